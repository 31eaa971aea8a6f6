#pragma once

/*
 * Executors: what turns a schedule into time or into moved bytes. One small table of functions
 * each, found by name. All run the same schedule and emit the same events, in exact mode one by
 * one; traces, utilisation, byte checks and predicted-against-measured read that stream and nothing
 * else. The core knows executors only through this table.
 */

#include "model/schedule/refit-program.h"

G_BEGIN_DECLS

typedef enum {
    REFIT_EXECUTOR_PREDICTS = 1 << 0, /* times are simulated, not measured; one call, all ranks */
    REFIT_EXECUTOR_MOVES_DATA =
        1 << 1, /* bytes really move: a call per rank, each with its program */
} RefitExecutorFlags;

typedef enum {
    REFIT_EVENT_PACK,
    REFIT_EVENT_SEND,
    REFIT_EVENT_RECEIVE,
    REFIT_EVENT_UNPACK,
    REFIT_EVENT_COPY,    /* local messages */
    REFIT_EVENT_INSTALL, /* out of buckets */
    REFIT_N_EVENT_KINDS
} RefitEventKind;

const char *refit_event_kind_name(RefitEventKind kind); /* static string */

/*
 * Part of a turn of `rank`: a launch that packs, unpacks, copies or installs (peer: the rank
 * itself), or what an exchange moves. Both ends of a message have an event. Bytes are those of the
 * messages, or those installed. An executor that runs several turns of a message as one
 * (refit-sim.h) says its first number and chunk 0, and all the bytes.
 */
typedef struct {
    double begin_s, end_s; /* since the run began */
    guint rank, peer;
    guint stage, stream;
    guint number, chunk;
    RefitEventKind kind;
    guint64 bytes;
} RefitEvent;

/* By (end_s, rank, stream, number, chunk, kind, peer); for g_array_sort(). */
int refit_event_compare(gconstpointer left, gconstpointer right);
/* Events come in any order; refit_event_compare() gives them one. */
typedef void (*RefitEventFunc)(const RefitEvent *event, gpointer user_data);

typedef struct {
    double duration_s;        /* from start to the last byte in its place */
    guint64 n_items;          /* work items or turns that the executor handled */
    double time_resolution_s; /* dates closer than this may be merged; 0: exact */
} RefitRunResult;

/* How a rank of an executor that moves data is set up; of gpu/executor/refit-gpu.h. */
typedef struct _RefitGpuConfig RefitGpuConfig;

typedef struct {
    const RefitTopology *topology;
    const RefitProfile *profile; /* predicts: the terms that are on are charged */
    gboolean exact;              /* predicts: turn by turn */
    gboolean times_only;         /* predicts: run() is called without `func` */
    const RefitGpuConfig *rank;  /* moves data */
} RefitExecutorConfig;

typedef struct {
    const RefitSchedule *schedule;
    /* Moves data: the rank's part, and the device addresses of its parameters in the order of
     * RefitRankViews.parameters, NULL on a side with none. */
    const RefitProgram *program;
    const guint64 *source, *destination;
} RefitExecutorWork;

typedef struct {
    const char *name;
    const char *summary;
    RefitExecutorFlags flags;
    /* Can it run here, and if not, why: REFIT_ERROR_NOT_SUPPORTED, in one line. */
    gboolean (*probe)(GError **error);
    /* All of the configuration is borrowed until close. */
    gpointer (*open)(const RefitExecutorConfig *config, GError **error);
    /* Set-up for one schedule; all of `work` is borrowed until the next prepare or close. */
    gboolean (*prepare)(gpointer self, const RefitExecutorWork *work, GError **error);
    /* `func` may be NULL. Can be called again. */
    gboolean (*run)(gpointer self, RefitEventFunc func, gpointer user_data,
                    RefitRunResult *result_out, GError **error);
    void (*close)(gpointer self); /* accepts NULL */
} RefitExecutor;

G_END_DECLS
