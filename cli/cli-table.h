#pragma once

/* Plain text tables: columns sized to their widest cell, two spaces between them. */

#include <glib.h>

G_BEGIN_DECLS

typedef struct _CliTable CliTable;

typedef enum { CLI_LEFT, CLI_RIGHT } CliAlign;

CliTable *cli_table_new(void);
void cli_table_free(CliTable *table);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(CliTable, cli_table_free)

/* `unit` is printed under the title; "" when there is none. */
void cli_table_add_column(CliTable *table, const char *title, const char *unit, CliAlign align);
/* Cells are added row by row, left to right; takes ownership of `text`. */
void cli_table_add_cell(CliTable *table, char *text);
/* Three significant digits without unit: 0.843, 11.2, 1342. */
void cli_table_add_number(CliTable *table, double value);
/* The table as text. Caller frees. */
char *cli_table_to_string(const CliTable *table);

G_END_DECLS
