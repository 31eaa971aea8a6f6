/*
 * Plain text tables. Cells are kept as strings in row order; widths are found when the text is
 * made. Cost: linear in the cells.
 */

#include "cli-table.h"

#include <math.h>
#include <string.h>

typedef struct {
    char *title;
    char *unit;
    CliAlign align;
} Column;

struct _CliTable {
    GArray *columns; /* Column */
    GPtrArray *cells;
};

static void clear_column(gpointer data) {
    Column *column = data;

    g_free(column->title);
    g_free(column->unit);
}

CliTable *cli_table_new(void) {
    CliTable *table = g_new0(CliTable, 1);

    table->columns = g_array_new(FALSE, FALSE, sizeof(Column));
    g_array_set_clear_func(table->columns, clear_column);
    table->cells = g_ptr_array_new_with_free_func(g_free);
    return table;
}

void cli_table_free(CliTable *table) {
    if (table == NULL)
        return;
    g_array_unref(table->columns);
    g_ptr_array_unref(table->cells);
    g_free(table);
}

void cli_table_add_column(CliTable *table, const char *title, const char *unit, CliAlign align) {
    Column column = {g_strdup(title), g_strdup(unit), align};

    g_array_append_val(table->columns, column);
}

void cli_table_add_cell(CliTable *table, char *text) {
    g_ptr_array_add(table->cells, text);
}

void cli_table_add_number(CliTable *table, double value) {
    char text[G_ASCII_DTOSTR_BUF_SIZE];
    int digits = 2; /* behind the point */

    if (value != 0)
        digits = CLAMP(2 - (int)floor(log10(fabs(value))), 0, 6);
    char *format = g_strdup_printf("%%.%df", digits);
    g_ascii_formatd(text, sizeof text, format, value);
    g_free(format);
    cli_table_add_cell(table, g_strdup(text));
}

static void append_aligned(GString *line, const char *text, gsize width, CliAlign align,
                           gboolean last) {
    gsize length = (gsize)g_utf8_strlen(text, -1);
    gsize fill = width > length ? width - length : 0;

    if (align == CLI_RIGHT)
        for (gsize i = 0; i < fill; i++)
            g_string_append_c(line, ' ');
    g_string_append(line, text);
    if (align == CLI_LEFT && !last)
        for (gsize i = 0; i < fill; i++)
            g_string_append_c(line, ' ');
    g_string_append(line, last ? "\n" : "  ");
}

char *cli_table_to_string(const CliTable *table) {
    guint n_columns = table->columns->len;
    g_autofree gsize *widths = g_new0(gsize, n_columns);
    g_autoptr(GString) text = g_string_new(NULL);
    gboolean units = FALSE;

    for (guint c = 0; c < n_columns; c++) {
        const Column *column = &g_array_index(table->columns, Column, c);

        widths[c] =
            MAX((gsize)g_utf8_strlen(column->title, -1), (gsize)g_utf8_strlen(column->unit, -1));
        units = units || column->unit[0] != '\0';
    }
    for (guint i = 0; i < table->cells->len; i++) {
        gsize length = (gsize)g_utf8_strlen(g_ptr_array_index(table->cells, i), -1);
        widths[i % n_columns] = MAX(widths[i % n_columns], length);
    }
    for (guint c = 0; c < n_columns; c++) {
        const Column *column = &g_array_index(table->columns, Column, c);
        append_aligned(text, column->title, widths[c], column->align, c + 1 == n_columns);
    }
    for (guint c = 0; units && c < n_columns; c++) {
        const Column *column = &g_array_index(table->columns, Column, c);
        append_aligned(text, column->unit, widths[c], column->align, c + 1 == n_columns);
    }
    for (guint i = 0; i < table->cells->len; i++)
        append_aligned(text, g_ptr_array_index(table->cells, i), widths[i % n_columns],
                       g_array_index(table->columns, Column, i % n_columns).align,
                       i % n_columns + 1 == n_columns);
    return g_string_free(g_steal_pointer(&text), FALSE);
}
