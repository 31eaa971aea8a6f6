/*
 * Typed values of nodes, and the nearest name for mistyped ones. YAML's own guessing of types is
 * not used: what a scalar means is decided by who reads it, so that "no" is never a country and 1e3
 * never a count. A text is read as a number or a truth value only when it is written without
 * quotes. Cost: linear in the text; nearest names cost the product of both lengths.
 */

#include "model/base/refit-yaml-private.h"

#include <string.h>

static const char *kind_noun(RefitNodeKind kind) {
    static const char *const nouns[] = {
        [REFIT_NODE_SCALAR] = "a single value",
        [REFIT_NODE_SEQUENCE] = "a sequence",
        [REFIT_NODE_MAPPING] = "a mapping",
    };

    return nouns[kind];
}

gboolean refit_yaml_is_null(const RefitNode *node) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};

    return node->kind == REFIT_NODE_SCALAR && node->is_plain && g_strv_contains(nulls, node->text);
}

gboolean refit_node_expect(RefitNode *node, RefitNodeKind kind, GError **error) {
    if (refit_yaml_is_null(node)) {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "has no value; write %s",
                         kind_noun(kind));
        return FALSE;
    }
    if (node->kind == kind) {
        return TRUE;
    }
    if (node->kind == REFIT_NODE_SCALAR) {
        g_autofree char *excerpt = refit_error_excerpt(node->text);
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "\"%s\" is a single value; write %s here", excerpt, kind_noun(kind));
    } else {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "is %s; write %s here",
                         kind_noun(node->kind), kind_noun(kind));
    }
    return FALSE;
}

/* For numbers and truth values, which quotes would make texts. */
static gboolean expect_unquoted(RefitNode *node, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_SCALAR, error)) {
        return FALSE;
    }
    if (!node->is_plain) {
        g_autofree char *excerpt = refit_error_excerpt(node->text);
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "\"%s\" is text; write it without quotes", excerpt);
        return FALSE;
    }
    return TRUE;
}

gboolean refit_node_string(RefitNode *node, const char **value_out, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_SCALAR, error)) {
        return FALSE;
    }
    *value_out = node->text;
    return TRUE;
}

gboolean refit_node_bool(RefitNode *node, gboolean *value_out, GError **error) {
    static const char *const yes[] = {"yes", "on", "y", "1", "true", NULL};
    static const char *const no[] = {"no", "off", "n", "0", "false", NULL};

    if (!expect_unquoted(node, error)) {
        return FALSE;
    }
    if (g_str_equal(node->text, "true") || g_str_equal(node->text, "false")) {
        *value_out = g_str_equal(node->text, "true");
        return TRUE;
    }
    g_autofree char *lower = g_ascii_strdown(node->text, -1);
    g_autofree char *excerpt = refit_error_excerpt(node->text);
    const char *hint = "true or false";
    if (g_strv_contains(yes, lower)) {
        hint = "true";
    } else if (g_strv_contains(no, lower)) {
        hint = "false";
    }
    refit_node_error(node, REFIT_ERROR_INVALID, error, "\"%s\" is neither true nor false; write %s",
                     excerpt, hint);
    return FALSE;
}

gboolean refit_node_uint(RefitNode *node, guint64 min, guint64 max, guint64 *value_out,
                         GError **error) {
    g_return_val_if_fail(min <= max, FALSE);

    if (!expect_unquoted(node, error)) {
        return FALSE;
    }
    const char *text = node->text;
    g_autofree char *excerpt = refit_error_excerpt(text);
    gsize n_digits = strspn(text, "0123456789");
    if (n_digits == 0 || text[n_digits] != '\0') {
        gboolean is_negative = text[0] == '-' && g_ascii_isdigit(text[1]);
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         is_negative
                             ? "%s is negative; write a whole number from %" G_GUINT64_FORMAT
                             : "\"%s\" is not a whole number; write decimal digits, as in "
                               "%" G_GUINT64_FORMAT,
                         excerpt, min);
        return FALSE;
    }
    if (text[0] == '0' && n_digits > 1) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "%s begins with a zero, which some read as octal; write %s", excerpt,
                         text + MIN(strspn(text, "0"), n_digits - 1));
        return FALSE;
    }
    guint64 value = G_MAXUINT64;
    gboolean fits = g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT64, &value, NULL);
    if (!fits || value > max) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "%s is above the limit of %" G_GUINT64_FORMAT, excerpt, max);
        return FALSE;
    }
    if (value < min) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "%s is below the least allowed, %" G_GUINT64_FORMAT, excerpt, min);
        return FALSE;
    }
    *value_out = value;
    return TRUE;
}

/* Puts the place of `node` before the message of `cause`. */
static void set_error_from(const RefitNode *node, const GError *cause, GError **error) {
    refit_node_error(node, (RefitError)cause->code, error, "%s", cause->message);
}

gboolean refit_node_quantity(RefitNode *node, RefitUnit unit, double *value_out, GError **error) {
    g_autoptr(GError) cause = NULL;

    /* JSON has to quote what carries a unit */
    gboolean is_scalar = unit == REFIT_UNIT_PLAIN
                             ? expect_unquoted(node, error)
                             : refit_node_expect(node, REFIT_NODE_SCALAR, error);
    if (!is_scalar) {
        return FALSE;
    }
    if (!refit_quantity_parse(node->text, unit, value_out, &cause)) {
        set_error_from(node, cause, error);
        return FALSE;
    }
    return TRUE;
}

gboolean refit_node_dtype(RefitNode *node, RefitDtype *value_out, GError **error) {
    g_autoptr(GError) cause = NULL;

    if (!refit_node_expect(node, REFIT_NODE_SCALAR, error)) {
        return FALSE;
    }
    if (!refit_dtype_parse(node->text, value_out, &cause)) {
        set_error_from(node, cause, error);
        return FALSE;
    }
    return TRUE;
}

gboolean refit_node_choice(RefitNode *node, const char *const *choices, guint *index_out,
                           GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_SCALAR, error)) {
        return FALSE;
    }
    for (guint i = 0; choices[i] != NULL; i++) {
        if (g_str_equal(node->text, choices[i])) {
            *index_out = i;
            return TRUE;
        }
    }
    g_autofree char *excerpt = refit_error_excerpt(node->text);
    g_autofree char *list = g_strjoinv(", ", (char **)choices);
    const char *nearest = refit_nearest_name(node->text, choices);
    if (nearest != NULL) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "\"%s\" is not one of %s (did you mean \"%s\"?)", excerpt, list, nearest);
    } else {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "\"%s\" is not one of %s", excerpt,
                         list);
    }
    return FALSE;
}

/* `*child_out` is NULL when the key is absent. */
static gboolean get_optional(RefitNode *node, const char *key, RefitNode **child_out,
                             GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error)) {
        return FALSE;
    }
    *child_out = refit_node_get(node, key);
    return TRUE;
}

gboolean refit_node_get_uint(RefitNode *node, const char *key, guint64 min, guint64 max,
                             guint *value, GError **error) {
    RefitNode *child;
    guint64 wide = 0;

    if (!get_optional(node, key, &child, error)) {
        return FALSE;
    }
    if (child == NULL) {
        return TRUE;
    }
    if (!refit_node_uint(child, min, MIN(max, G_MAXUINT), &wide, error)) {
        return FALSE;
    }
    *value = (guint)wide;
    return TRUE;
}

gboolean refit_node_get_bool(RefitNode *node, const char *key, gboolean *value, GError **error) {
    RefitNode *child;

    if (!get_optional(node, key, &child, error)) {
        return FALSE;
    }
    return child == NULL || refit_node_bool(child, value, error);
}

gboolean refit_node_get_quantity(RefitNode *node, const char *key, RefitUnit unit, double *value,
                                 GError **error) {
    RefitNode *child;

    if (!get_optional(node, key, &child, error)) {
        return FALSE;
    }
    return child == NULL || refit_node_quantity(child, unit, value, error);
}

gboolean refit_node_get_string(RefitNode *node, const char *key, char **value, GError **error) {
    RefitNode *child;
    const char *text;

    if (!get_optional(node, key, &child, error)) {
        return FALSE;
    }
    if (child == NULL) {
        return TRUE;
    }
    if (!refit_node_string(child, &text, error)) {
        return FALSE;
    }
    g_free(*value);
    *value = g_strdup(text);
    return TRUE;
}

gboolean refit_node_check_schema(RefitNode *root, const char *schema, GError **error) {
    RefitNode *node = refit_yaml_require(root, "schema", schema, error);
    const char *text;

    if (node == NULL || !refit_node_string(node, &text, error)) {
        return FALSE;
    }
    if (!g_str_equal(text, schema)) {
        g_autofree char *excerpt = refit_error_excerpt(text);
        refit_node_error(node, REFIT_ERROR_INVALID, error, "\"%s\" cannot be read here; \"%s\" can",
                         excerpt, schema);
        return FALSE;
    }
    return TRUE;
}

/*
 * Edits between both texts, where swapping two neighbours is one edit (optimal string alignment).
 * Three rows of the table suffice.
 */
static gsize edit_distance(const char *a, const char *b) {
    gsize n_a = strlen(a);
    gsize n_b = strlen(b);
    g_autofree gsize *rows = g_new(gsize, 3 * (n_b + 1));
    gsize *before = rows; /* row i - 2 */
    gsize *above = rows + (n_b + 1);
    gsize *row = rows + 2 * (n_b + 1);

    for (gsize j = 0; j <= n_b; j++) {
        row[j] = j;
    }
    for (gsize i = 1; i <= n_a; i++) {
        gsize *spare = before;
        before = above;
        above = row;
        row = spare;
        row[0] = i;
        char from = g_ascii_tolower(a[i - 1]);
        for (gsize j = 1; j <= n_b; j++) {
            char to = g_ascii_tolower(b[j - 1]);
            gsize edits = MIN(above[j], row[j - 1]) + 1;
            edits = MIN(edits, above[j - 1] + (from != to));
            if (i > 1 && j > 1 && from == g_ascii_tolower(b[j - 2]) &&
                to == g_ascii_tolower(a[i - 2])) {
                edits = MIN(edits, before[j - 2] + 1);
            }
            row[j] = edits;
        }
    }
    return row[n_b];
}

const char *refit_nearest_name(const char *text, const char *const *candidates) {
    gsize length = strlen(text);
    gsize limit = MAX(1, length / 3);
    const char *nearest = NULL;

    for (guint i = 0; candidates[i] != NULL; i++) {
        gsize other = strlen(candidates[i]);
        /* Below this many edits something of the longer text remains */
        gsize longest = MAX(length, other);
        if (longest - MIN(length, other) > limit) {
            continue;
        }
        gsize distance = edit_distance(text, candidates[i]);
        if (distance <= limit && distance < longest) {
            nearest = candidates[i];
            if (distance == 0) {
                break;
            }
            limit = distance - 1;
        }
    }
    return nearest;
}
