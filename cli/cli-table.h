#pragma once

/*
 * Plain text for people, never wider than CLI_WIDTH unless one word is: tables whose columns are
 * sized to their widest cell, and label lines. Quantities of one table share one unit per kind, so
 * that a column can be read down; it is chosen by the largest value, so that small cases show
 * microseconds and large ones seconds.
 */

#include <glib.h>

G_BEGIN_DECLS

#define CLI_WIDTH 80

typedef struct _CliTable CliTable;

typedef enum { CLI_LEFT, CLI_RIGHT } CliAlign;
typedef enum { CLI_SECONDS, CLI_BYTES, CLI_N_MEASURES } CliMeasure;

CliTable *cli_table_new(void);
void cli_table_free(CliTable *table);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(CliTable, cli_table_free)

/*
 * `unit` is printed under the title; "" when there is none. A last column aligned left is wrapped
 * at CLI_WIDTH.
 */
void cli_table_add_column(CliTable *table, const char *title, const char *unit, CliAlign align);
/* A column of numbers in seconds or bytes; the table finds the unit. */
void cli_table_add_measure(CliTable *table, const char *title, CliMeasure measure);

/* Cells are added row by row, left to right; takes ownership of `text`. */
void cli_table_add_cell(CliTable *table, char *text);
/* A value of a measure's column (in seconds or bytes), or a plain number. */
void cli_table_add_number(CliTable *table, double value);
/* The table as text, without trailing spaces. Caller frees. */
char *cli_table_to_string(const CliTable *table);

/* "label   text", where text is broken at spaces and set below itself. Caller frees. */
char *cli_labelled(const char *label, const char *text);

/* Ascending `ranks`: "0-3,8", "0-248 by 8", "0,5,9 and 12 more", short however many there are. */
char *cli_ranks_to_string(const guint *ranks, guint n);

G_END_DECLS
