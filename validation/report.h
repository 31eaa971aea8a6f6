#pragma once

/*
 * Reports: cases of resharding as JSON files, each with what must come out (docs/reports.md).
 * One file is read into a report, from which the public functions of the planning core build a case
 * and answer what the file asks. Private to case-runner.
 */

#include <jansson.h>

#include "model/case/refit-manifest.h"
#include "validation/refit-demand.h"

G_BEGIN_DECLS

/* The file does not say what it should; never an error that a report may expect. */
#define REPORT_ERROR (report_error_quark())
GQuark report_error_quark(void);
/* Sets such an error. Returns FALSE. */
gboolean report_fail(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* ---- reading JSON (report-json.c) ---- */

/* FALSE naming the first key of `object` that is not in `keys`, a NULL-terminated list. `where`
 * says what the object is. */
gboolean report_check_keys(const json_t *object, const char *where, const char *const *keys,
                           GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* FALSE when `value` is no list, or no object; also when it is NULL. */
gboolean report_expect_list(const json_t *value, const char *where, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean report_expect_object(const json_t *value, const char *where, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean report_get_uint(const json_t *value, const char *where, guint64 max, guint64 *value_out,
                         GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* A number of any kind that is not negative. */
gboolean report_get_number(const json_t *value, const char *where, double *value_out,
                           GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* An array of guint64. */
GArray *report_get_uints(const json_t *value, const char *where, guint64 max, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean report_get_string(const json_t *value, const char *where, const char **value_out,
                           GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Key of a mapping from ranks. */
gboolean report_get_rank(const char *text, const char *where, guint *rank_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean report_get_shape(const json_t *value, const char *where, guint *n_dims_out,
                          guint64 *shape_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;
gboolean report_get_dtype(const json_t *value, const char *where, RefitDtype *dtype_out,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* A number; one that JSON's integers cannot hold is a real, as files have to write it too. */
json_t *report_new_uint(guint64 value);
void report_set_uint(json_t *object, const char *key, guint64 value);

/* ---- one report (report-case.c) ---- */

#define REPORT_MAX_RANK (REFIT_TOPOLOGY_MAX_GPUS - 1)
#define REPORT_NO_GPU G_MAXUINT

/*
 * Ranks of the file and GPUs of the topology. A topology has equal nodes in the order of their
 * GPUs; a file lists any ranks per node and their rails, so ranks are renumbered.
 */
typedef struct {
    guint n_ranks, n_gpus; /* sizes of the tables */
    guint *gpu_of;         /* per rank, REPORT_NO_GPU for ranks not in the file */
    guint *rank_of;        /* per GPU, REPORT_NO_GPU likewise */
    guint n_nodes;         /* stated in the file, 0: none */
    gboolean has_rails;
    RefitTopology *topology;
} ReportRanks;

ReportRanks *report_ranks_new(const json_t *root, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void report_ranks_free(ReportRanks *ranks);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(ReportRanks, report_ranks_free)

/* Parts of a sharding that come from one layout of the file and make one shard per rank. */
typedef struct {
    guint first, n;
} ReportLayout;

/*
 * The sharding of a tensor on one side, by ranks that are GPUs. NULL without an error when the side
 * does not hold it, or when it follows another tensor in blocks: then *leader_out is that tensor's
 * name. `layouts` (of ReportLayout) may be NULL.
 */
RefitSharding *report_sharding_new(const json_t *root, const ReportRanks *ranks,
                                   const json_t *tensor, RefitSide side, GArray *layouts,
                                   const char **leader_out, GError **error);
/* The sharding of a mesh alone, by ranks that are GPUs. */
RefitSharding *report_mesh_new(const ReportRanks *ranks, const json_t *layout, guint n_dims,
                               GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* Rows [lo, hi) of a tensor; the name is borrowed from the file. */
typedef struct {
    const char *name;
    guint64 lo, hi;
} ReportRows;
/* A fused buffer of the file. */
typedef struct {
    guint dim, n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    GArray *rows;         /* of ReportRows, which fill it in turn */
    RefitSharding *whole; /* by ranks that are GPUs */
} ReportFused;
/* Fills in `fused`, which is to be cleared also on error: REFIT_ERROR_PARTITION_SUM when the rows
 * do not fill the buffer. */
gboolean report_fused_read(const ReportRanks *ranks, const json_t *json, ReportFused *fused,
                           GError **error) G_GNUC_WARN_UNUSED_RESULT;
void report_fused_clear(ReportFused *fused);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(ReportFused, report_fused_clear)

typedef struct {
    const json_t *root; /* borrowed */
    ReportRanks *ranks;
    guint n_tensors;
    guint *first; /* per tensor of the file: its first tensor in the model; n_tensors + 1 entries */
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitDemand *demand;
} Report;

/* Builds all of it; an error of REFIT_ERROR is what a report may expect. */
Report *report_new(const json_t *root, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void report_free(Report *report);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Report, report_free)

/* Distinct ranks of the parts of one layout, ascending; an array of guint. */
GArray *report_layout_ranks(const RefitSharding *sharding, ReportLayout layout);
/*
 * How a side holds tensor `index` of the file, before ranks are withdrawn, and its layouts. NULL
 * when it does not, or on error. *stated_out is for the caller to free; the result may be it.
 */
const RefitSharding *report_placed(const Report *report, guint index, const json_t *tensor,
                                   RefitSide side, GArray *layouts, RefitSharding **stated_out,
                                   GError **error);

/* ---- answers and checks ---- */

/* All that a report can be asked for, under the names of `expect`; contiguous runs only when asked
 * for, as counting them takes a step per run (report-answers.c). */
json_t *report_answers(const Report *report, gboolean with_segments, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* "segments" (report-segments.c). */
gboolean report_segments(const Report *report, guint64 *segments_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Result of one entry of `checks` (report-checks.c). */
json_t *report_check_result(const json_t *check, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Those about order (report-orders.c). */
json_t *report_check_schedule(const json_t *check, GError **error) G_GNUC_WARN_UNUSED_RESULT;
json_t *report_check_matching_rounds(const json_t *check, GError **error) G_GNUC_WARN_UNUSED_RESULT;
json_t *report_check_stream_slices(const json_t *check, GError **error) G_GNUC_WARN_UNUSED_RESULT;
json_t *report_check_strided_view(const json_t *check, GError **error) G_GNUC_WARN_UNUSED_RESULT;
json_t *report_check_layout_diff(const json_t *check, GError **error) G_GNUC_WARN_UNUSED_RESULT;
json_t *report_check_row_order_diff(const json_t *check, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Plans the case with every strategy and proves the plans (report-plans.c). */
gboolean report_check_plans(const Report *report, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
