/*
 * JSON writer: every call appends to one string. A small stack of open containers decides commas,
 * line breaks and what may come next. Integers are converted in place, because plans write millions
 * of them; each call costs time linear in what it appends, and memory is the text alone.
 */

#include "model/base/refit-json.h"

#include <math.h>
#include <string.h>

typedef struct {
    gboolean is_object;
    gboolean on_one_line;
    gboolean is_empty;
} Level;

struct _RefitJson {
    GString *text;
    GArray *levels; /* of Level, innermost last */
    guint indent;
    gboolean has_root;
};

RefitJson *refit_json_new(guint indent) {
    RefitJson *json = g_new0(RefitJson, 1);

    json->text = g_string_new(NULL);
    json->levels = g_array_new(FALSE, FALSE, sizeof(Level));
    json->indent = indent;
    return json;
}

void refit_json_free(RefitJson *json) {
    if (json == NULL) {
        return;
    }
    if (json->text != NULL) {
        g_string_free(json->text, TRUE);
    }
    g_array_unref(json->levels);
    g_free(json);
}

static Level *innermost(RefitJson *json) {
    return json->levels->len > 0 ? &g_array_index(json->levels, Level, json->levels->len - 1)
                                 : NULL;
}

static void append_line_break(RefitJson *json) {
    gsize n_spaces = (gsize)json->indent * json->levels->len;
    gsize at = json->text->len;

    g_string_append_c(json->text, '\n');
    g_string_set_size(json->text, at + 1 + n_spaces);
    memset(json->text->str + at + 1, ' ', n_spaces);
}

static void append_escaped(GString *text, const char *value) {
    g_autofree char *repaired = NULL;

    if (!g_utf8_validate(value, -1, NULL)) {
        repaired = g_utf8_make_valid(value, -1);
        value = repaired;
    }
    g_string_append_c(text, '"');
    for (const char *run = value;;) {
        const char *end = run;
        while ((guchar)*end >= 0x20 && *end != '"' && *end != '\\' && *end != 0x7f) {
            end++;
        }
        g_string_append_len(text, run, end - run);
        if (*end == '\0') {
            break;
        }
        switch (*end) {
        case '"':
            g_string_append(text, "\\\"");
            break;
        case '\\':
            g_string_append(text, "\\\\");
            break;
        case '\n':
            g_string_append(text, "\\n");
            break;
        case '\t':
            g_string_append(text, "\\t");
            break;
        case '\r':
            g_string_append(text, "\\r");
            break;
        default:
            g_string_append_printf(text, "\\u%04x", (guint)(guchar)*end);
        }
        run = end + 1;
    }
    g_string_append_c(text, '"');
}

/* Comma, line break and key: everything that stands before a value. */
static void begin_value(RefitJson *json, const char *key) {
    Level *level = innermost(json);

    if (level == NULL) {
        g_assert(!json->has_root && key == NULL);
        json->has_root = TRUE;
        return;
    }
    g_assert(level->is_object == (key != NULL));
    if (!level->is_empty) {
        g_string_append_c(json->text, ',');
    }
    if (json->indent > 0 && !level->on_one_line) {
        append_line_break(json);
    } else if (json->indent > 0 && !level->is_empty) {
        g_string_append_c(json->text, ' ');
    }
    level->is_empty = FALSE;
    if (key != NULL) {
        append_escaped(json->text, key);
        g_string_append(json->text, json->indent > 0 ? ": " : ":");
    }
}

static void begin_container(RefitJson *json, const char *key, gboolean is_object, gboolean is_row) {
    begin_value(json, key);
    const Level *outer = innermost(json);
    Level level = {is_object, is_row || (outer != NULL && outer->on_one_line), TRUE};

    g_array_append_val(json->levels, level);
    g_string_append_c(json->text, is_object ? '{' : '[');
}

static void end_container(RefitJson *json, gboolean is_object) {
    const Level *last = innermost(json);
    g_assert(last != NULL && last->is_object == is_object);
    Level level = *last;

    g_array_set_size(json->levels, json->levels->len - 1);
    if (json->indent > 0 && !level.on_one_line && !level.is_empty) {
        append_line_break(json);
    }
    g_string_append_c(json->text, is_object ? '}' : ']');
}

void refit_json_begin_object(RefitJson *json, const char *key) {
    begin_container(json, key, TRUE, FALSE);
}

void refit_json_end_object(RefitJson *json) {
    end_container(json, TRUE);
}

void refit_json_begin_array(RefitJson *json, const char *key) {
    begin_container(json, key, FALSE, FALSE);
}

void refit_json_end_array(RefitJson *json) {
    end_container(json, FALSE);
}

void refit_json_begin_row(RefitJson *json, const char *key) {
    begin_container(json, key, FALSE, TRUE);
}

void refit_json_end_row(RefitJson *json) {
    const Level *level = innermost(json);

    g_assert(level != NULL && level->on_one_line);
    end_container(json, FALSE);
}

void refit_json_string(RefitJson *json, const char *key, const char *value) {
    begin_value(json, key);
    if (value == NULL) {
        g_string_append(json->text, "null");
    } else {
        append_escaped(json->text, value);
    }
}

void refit_json_uint(RefitJson *json, const char *key, guint64 value) {
    char digits[20]; /* G_MAXUINT64 has 20 */
    gsize at = sizeof digits;

    begin_value(json, key);
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    g_string_append_len(json->text, digits + at, (gssize)(sizeof digits - at));
}

void refit_json_double(RefitJson *json, const char *key, double value) {
    char digits[G_ASCII_DTOSTR_BUF_SIZE];

    g_assert(isfinite(value));
    begin_value(json, key);
    /* Adding zero makes one text of both zeros */
    g_string_append(json->text, g_ascii_formatd(digits, sizeof digits, "%.9g", value + 0.0));
}

void refit_json_bool(RefitJson *json, const char *key, gboolean value) {
    begin_value(json, key);
    g_string_append(json->text, value ? "true" : "false");
}

char *refit_json_finish(RefitJson *json, gsize *length_out) {
    g_assert(json->has_root && json->levels->len == 0);
    g_string_append_c(json->text, '\n');
    if (length_out != NULL) {
        *length_out = json->text->len;
    }
    char *text = g_string_free(g_steal_pointer(&json->text), FALSE);
    refit_json_free(json);
    return text;
}
