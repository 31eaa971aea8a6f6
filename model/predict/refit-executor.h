#pragma once

/*
 * Executors: what turns a plan into time or into moved bytes. One small table of functions each,
 * found by name; all emit the same event stream, and traces, utilisation, byte checks and
 * predicted-against-measured read that stream and nothing else. The core knows executors only
 * through this table.
 */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

typedef enum {
    REFIT_EXECUTOR_PREDICTS = 1 << 0,   /* times are simulated, not measured */
    REFIT_EXECUTOR_MOVES_DATA = 1 << 1, /* bytes really move, so results can be verified */
    REFIT_EXECUTOR_NEEDS_GPU = 1 << 2,
    REFIT_EXECUTOR_REPRODUCIBLE = 1 << 3, /* same input, same numbers, on any machine */
} RefitExecutorFlags;

typedef enum {
    REFIT_ACTIVITY_NETWORK,
    REFIT_ACTIVITY_NVLINK,
    REFIT_ACTIVITY_LOCAL,
    REFIT_ACTIVITY_PACK,   /* peer is the rank itself */
    REFIT_ACTIVITY_UNPACK, /* peer is the rank itself */
    REFIT_N_ACTIVITIES
} RefitActivity;

const char *refit_activity_name(RefitActivity activity); /* static string */

typedef struct {
    double start_s, end_s; /* since run() began */
    guint step;
    guint rank, peer; /* sender and receiver */
    RefitActivity activity;
    guint64 bytes;
} RefitEvent;

/* By (end_s, step, rank, peer, activity); for g_array_sort(). */
int refit_event_compare(gconstpointer left, gconstpointer right);
/* Events come in the order of refit_event_compare(). */
typedef void (*RefitEventFunc)(const RefitEvent *event, gpointer user_data);

typedef struct {
    double duration_s;        /* from start to the last byte */
    guint64 n_flows;          /* work items the executor handled */
    gboolean verified;        /* contents compared; FALSE also means "cannot be" (see flags) */
    double time_resolution_s; /* dates closer than this may be merged; 0: exact */
} RefitRunResult;

typedef struct {
    const char *name;
    const char *summary;
    RefitExecutorFlags flags;
    /* Can it run here, and if not, why: REFIT_ERROR_NOT_SUPPORTED. */
    gboolean (*probe)(GError **error);
    /* Both borrowed until close. The terms of `profile` that are on are charged. */
    gpointer (*open)(const RefitTopology *topology, const RefitProfile *profile, GError **error);
    /* Set-up for one plan (borrowed until the next prepare or close). */
    gboolean (*prepare)(gpointer self, const RefitPlan *plan, GError **error);
    /* `func` may be NULL. Can be called again. */
    gboolean (*run)(gpointer self, RefitEventFunc func, gpointer user_data,
                    RefitRunResult *result_out, GError **error);
    void (*close)(gpointer self); /* accepts NULL */
} RefitExecutor;

G_END_DECLS
