#pragma once

/* The reports of data/reports, for the tests that carry out on the executor what they state. */

#include "executor-run.h"
#include "validation/report.h"

G_BEGIN_DECLS

enum { N_REPORTS = 80 };

/* File names of all reports, in order; asserts that there are N_REPORTS. */
GPtrArray *report_files_list(void);
json_t *report_file_load(const char *name);
/* The one whose name begins with that number. */
json_t *report_file_load_number(const char *number);

/* The checks of that type in all reports, as new references. */
GPtrArray *report_files_checks(const char *type);

/* The number under `key`; 0: none. */
guint64 report_file_uint(const json_t *object, const char *key);

/* Halves the longest even dim of the only tensor until it has no more than a mebibyte. Returns the
 * bytes stated over those left, and 0 where that cannot be done. Ends the child unless the tensors
 * can be read. */
guint64 report_file_halve(json_t *root);

/* The programs of a report's plan. Ranks that have failed come without a part, as those do that
 * take their places. */
ProgramSet *report_file_programs(const RefitPlan *plan);

G_END_DECLS
