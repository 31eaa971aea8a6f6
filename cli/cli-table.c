/*
 * Plain text tables. Cells are kept in row order, quantities as numbers, because their unit depends
 * on all of them; texts and widths are found when the table is printed. Cost: linear in the cells.
 */

#include "cli/cli-table.h"

#include <math.h>
#include <string.h>

#define LABEL_WIDTH 8
#define MIN_WRAP 20 /* a last column is not squeezed below this */

typedef struct {
    char *title;
    char *unit;
    CliAlign align;
    gboolean is_measure;
    CliMeasure measure;
} Column;

typedef struct {
    char *text; /* NULL: the number counts */
    double number;
} Cell;

struct _CliTable {
    GArray *columns; /* Column */
    GArray *cells;   /* Cell */
};

typedef struct {
    const char *name;
    double size;
} Unit;

static void clear_column(gpointer data) {
    Column *column = data;

    g_free(column->title);
    g_free(column->unit);
}

static void clear_cell(gpointer data) {
    g_free(((Cell *)data)->text);
}

CliTable *cli_table_new(void) {
    CliTable *table = g_new0(CliTable, 1);

    table->columns = g_array_new(FALSE, FALSE, sizeof(Column));
    g_array_set_clear_func(table->columns, clear_column);
    table->cells = g_array_new(FALSE, FALSE, sizeof(Cell));
    g_array_set_clear_func(table->cells, clear_cell);
    return table;
}

void cli_table_free(CliTable *table) {
    if (table == NULL)
        return;
    g_array_unref(table->columns);
    g_array_unref(table->cells);
    g_free(table);
}

void cli_table_add_column(CliTable *table, const char *title, const char *unit, CliAlign align) {
    Column column = {.title = g_strdup(title), .unit = g_strdup(unit), .align = align};

    g_array_append_val(table->columns, column);
}

void cli_table_add_measure(CliTable *table, const char *title, CliMeasure measure) {
    Column column = {.title = g_strdup(title),
                     .unit = g_strdup(""),
                     .align = CLI_RIGHT,
                     .is_measure = TRUE,
                     .measure = measure};

    g_array_append_val(table->columns, column);
}

void cli_table_add_cell(CliTable *table, char *text) {
    Cell cell = {.text = text};

    g_array_append_val(table->cells, cell);
}

void cli_table_add_number(CliTable *table, double value) {
    Cell cell = {.number = value};

    g_array_append_val(table->cells, cell);
}

/* ---- numbers ---- */

static const Column *column_of(const CliTable *table, guint cell) {
    return &g_array_index(table->columns, Column, cell % table->columns->len);
}

/* The largest unit in which the largest value of the measure is at least one. */
static Unit choose_unit(const CliTable *table, CliMeasure measure) {
    static const Unit units[CLI_N_MEASURES][4] = {
        [CLI_SECONDS] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {NULL, 0}},
        [CLI_BYTES] = {{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}},
    };
    double largest = 0;
    guint i = 0;

    for (guint c = 0; c < table->cells->len; c++) {
        const Column *column = column_of(table, c);
        const Cell *cell = &g_array_index(table->cells, Cell, c);

        if (column->is_measure && column->measure == measure && cell->text == NULL)
            largest = MAX(largest, cell->number);
    }
    for (; i + 1 < G_N_ELEMENTS(units[measure]) && units[measure][i + 1].name != NULL; i++) {
        /* From a tenth of a second on, times are in seconds, as everywhere else. */
        double enough = measure == CLI_SECONDS && i == 0 ? 0.1 : units[measure][i].size;

        if (largest <= 0 || largest >= enough)
            break;
    }
    return units[measure][i];
}

/* Three significant digits without exponent: 0.843, 11.2, 1342; `whole`: 2, not 2.00. */
static char *three_digits(double value, gboolean whole) {
    char text[G_ASCII_DTOSTR_BUF_SIZE];
    int digits;

    if (value == 0)
        return g_strdup("0");
    /* The exponent after rounding: 9.999 counts as 10.0. */
    g_ascii_formatd(text, sizeof text, "%.2e", fabs(value));
    digits = CLAMP(2 - (int)g_ascii_strtoll(strchr(text, 'e') + 1, NULL, 10), 0, whole ? 0 : 6);
    g_autofree char *format = g_strdup_printf("%%.%df", digits);
    return g_strdup(g_ascii_formatd(text, sizeof text, format, value));
}

/* ---- text ---- */

static gsize width_of(const char *text) {
    return (gsize)g_utf8_strlen(text, -1);
}

static void append_spaces(GString *line, gsize n) {
    for (gsize i = 0; i < n; i++)
        g_string_append_c(line, ' ');
}

/* Appends `text`, which begins at column `indent`, broken at spaces and set below itself. */
static void append_wrapped(GString *out, const char *text, gsize indent) {
    gsize room = indent + MIN_WRAP < CLI_WIDTH ? CLI_WIDTH - indent : MIN_WRAP;
    gsize used = 0;

    for (const char *word = text; *word != '\0';) {
        gsize length = strcspn(word, " ");
        gsize width = (gsize)g_utf8_strlen(word, (gssize)length);

        if (used > 0 && used + 1 + width > room) {
            g_string_append_c(out, '\n');
            append_spaces(out, indent);
            used = 0;
        } else if (used > 0) {
            g_string_append_c(out, ' ');
            used++;
        }
        g_string_append_len(out, word, (gssize)length);
        used += width;
        word += length;
        word += strspn(word, " ");
    }
}

static void end_line(GString *text) {
    while (text->len > 0 && text->str[text->len - 1] == ' ')
        g_string_truncate(text, text->len - 1);
    g_string_append_c(text, '\n');
}

static void append_row(GString *out, const CliTable *table, const gsize *widths,
                       char *const *texts) {
    gsize indent = 0;

    for (guint c = 0; c < table->columns->len; c++) {
        gboolean last = c + 1 == table->columns->len;
        gsize width = width_of(texts[c]);
        gsize fill = widths[c] > width ? widths[c] - width : 0;

        if (column_of(table, c)->align == CLI_RIGHT) {
            append_spaces(out, fill);
            g_string_append(out, texts[c]);
        } else if (last) {
            append_wrapped(out, texts[c], indent);
        } else {
            g_string_append(out, texts[c]);
            append_spaces(out, fill);
        }
        append_spaces(out, 2);
        indent += widths[c] + 2;
    }
    end_line(out);
}

char *cli_table_to_string(const CliTable *table) {
    guint n_columns = table->columns->len;
    Unit units[CLI_N_MEASURES];
    g_autofree gsize *widths = g_new0(gsize, n_columns);
    g_autoptr(GPtrArray) texts = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GString) out = g_string_new(NULL);
    gboolean has_titles = FALSE, has_units = FALSE;

    for (guint m = 0; m < CLI_N_MEASURES; m++)
        units[m] = choose_unit(table, (CliMeasure)m);
    for (guint c = 0; c < n_columns; c++) {
        const char *title = column_of(table, c)->title;

        g_ptr_array_add(texts, g_strdup(title));
        has_titles = has_titles || title[0] != '\0';
    }
    for (guint c = 0; c < n_columns; c++) {
        const Column *column = column_of(table, c);
        const char *unit = column->is_measure ? units[column->measure].name : column->unit;

        g_ptr_array_add(texts, g_strdup(unit));
        has_units = has_units || unit[0] != '\0';
    }
    for (guint c = 0; c < table->cells->len; c++) {
        const Column *column = column_of(table, c);
        const Cell *cell = &g_array_index(table->cells, Cell, c);
        double size = column->is_measure ? units[column->measure].size : 1;
        gboolean whole = column->is_measure && column->measure == CLI_BYTES && size <= 1;

        g_ptr_array_add(texts, cell->text != NULL ? g_strdup(cell->text)
                                                  : three_digits(cell->number / size, whole));
    }
    for (guint i = 0; i < texts->len; i++)
        widths[i % n_columns] = MAX(widths[i % n_columns], width_of(g_ptr_array_index(texts, i)));
    for (guint i = 0; i < texts->len; i += n_columns)
        if ((i != 0 || has_titles) && (i != n_columns || has_units))
            append_row(out, table, widths, (char *const *)texts->pdata + i);
    return g_string_free(g_steal_pointer(&out), FALSE);
}

char *cli_labelled(const char *label, const char *text) {
    g_autoptr(GString) out = g_string_new(label);

    append_spaces(out, LABEL_WIDTH > out->len ? LABEL_WIDTH - out->len : 1);
    append_wrapped(out, text, LABEL_WIDTH);
    end_line(out);
    return g_string_free(g_steal_pointer(&out), FALSE);
}

char *cli_ranks_to_string(const guint *ranks, guint n) {
    GString *text = g_string_new(NULL);
    guint step = n > 2 ? ranks[1] - ranks[0] : 1, i = 1, ranges = 0;

    while (i < n && ranks[i] - ranks[i - 1] == step)
        i++;
    if (i == n && n > 3 && step > 1) {
        g_string_printf(text, "%u-%u by %u", ranks[0], ranks[n - 1], step);
        return g_string_free(text, FALSE);
    }
    for (i = 0; i < n; ranges++) {
        guint last = i;

        if (ranges == 4 && n - i > 1) {
            g_string_append_printf(text, " and %u more", n - i);
            break;
        }
        while (last + 1 < n && ranks[last + 1] == ranks[last] + 1)
            last++;
        g_string_append_printf(text,
                               last > i + 1 ? "%s%u-%u"
                               : last > i   ? "%s%u,%u"
                                            : "%s%u",
                               i > 0 ? "," : "", ranks[i], ranks[last]);
        i = last + 1;
    }
    return g_string_free(text, FALSE);
}
