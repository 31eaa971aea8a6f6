#pragma once

/* Item graphs written down in a test, and their runs. */

#include "sim/refit-netsim-private.h"

#include <math.h>
#include <string.h>

/* 64 GPUs in domains of 8: NVLink 450 GB/s, NIC 50 GB/s, no latency, nothing limiting behind. */
static const RefitNetsimPlatform DGX = {
    .n_gpus = 64, .gpus_per_domain = 8, .nvlink_bytes_per_s = 450e9, .nic_bytes_per_s = 50e9};
#define NIC 50e9
#define NVLINK 450e9
#define GB 1e9

typedef struct {
    guint before, after; /* `after` possibly with REFIT_NETSIM_ON_START */
    double lag_s;
} Edge;

typedef struct {
    GArray *items; /* RefitNetsimItem */
    GArray *edges; /* Edge */
    RefitNetsimTime *times;
    double makespan_s;
} Work;

static inline Work *work_new(void) {
    Work *work = g_new0(Work, 1);

    work->items = g_array_new(FALSE, TRUE, sizeof(RefitNetsimItem));
    work->edges = g_array_new(FALSE, FALSE, sizeof(Edge));
    return work;
}

static inline void work_free(Work *work) {
    g_array_unref(work->items);
    g_array_unref(work->edges);
    g_free(work->times);
    g_free(work);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Work, work_free)

static inline guint work_add(Work *work, RefitNetsimItem item) {
    g_array_append_val(work->items, item);
    return work->items->len - 1;
}

static inline guint flow(Work *work, guint src, guint dst, double bytes) {
    return work_add(
        work, (RefitNetsimItem){.kind = REFIT_NETSIM_FLOW, .src = src, .dst = dst, .bytes = bytes});
}

static inline guint delay(Work *work, double seconds) {
    return work_add(work, (RefitNetsimItem){.kind = REFIT_NETSIM_DELAY, .delay_s = seconds});
}

static inline guint join(Work *work) {
    return work_add(work, (RefitNetsimItem){.kind = REFIT_NETSIM_JOIN});
}

static inline void edge_after(Work *work, guint before, double lag_s, guint after) {
    const Edge edge = {before, after, lag_s};

    g_array_append_val(work->edges, edge);
}

static inline void edge(Work *work, guint before, guint after) {
    edge_after(work, before, 0, after);
}

/* The graph in the simulator's form; arrays belong to the caller. */
static inline RefitNetsimGraph work_graph(const Work *work, guint64 **offsets_out,
                                          guint **successors_out, double **lags_s_out) {
    guint n = work->items->len, n_edges = work->edges->len;
    const Edge *edges = (const Edge *)(gpointer)work->edges->data;
    guint64 *offsets = g_new0(guint64, n + 2);
    guint *successors = g_new(guint, MAX(n_edges, 1));
    double *lags_s = g_new(double, MAX(n_edges, 1));

    for (guint e = 0; e < n_edges; e++)
        offsets[edges[e].before + 2]++;
    for (guint i = 2; i < n + 2; i++)
        offsets[i] += offsets[i - 1];
    for (guint e = 0; e < n_edges; e++) {
        guint64 place = offsets[edges[e].before + 1]++;

        successors[place] = edges[e].after;
        lags_s[place] = edges[e].lag_s;
    }
    *offsets_out = offsets;
    *successors_out = successors;
    *lags_s_out = lags_s;
    return (RefitNetsimGraph){.n_items = n,
                              .items = (const RefitNetsimItem *)(gpointer)work->items->data,
                              .successor_offsets = offsets,
                              .successors = successors,
                              .lags_s = lags_s};
}

static inline gboolean try_run(Work *work, const RefitNetsimPlatform *platform, double resolution_s,
                               RefitNetsimEngine engine, GError **error) {
    g_autofree guint64 *offsets = NULL;
    g_autofree guint *successors = NULL;
    g_autofree double *lags_s = NULL;
    RefitNetsimGraph graph = work_graph(work, &offsets, &successors, &lags_s);

    g_free(work->times);
    work->times = g_new0(RefitNetsimTime, graph.n_items);
    if (engine != NULL)
        return refit_netsim_run_with(engine, platform, &graph, resolution_s, work->times,
                                     &work->makespan_s, error);
    return refit_netsim_run(platform, &graph, resolution_s, work->times, &work->makespan_s, error);
}

static inline void run(Work *work, const RefitNetsimPlatform *platform) {
    g_autoptr(GError) error = NULL;
    gboolean ok = try_run(work, platform, 0, NULL, &error);

    g_assert_no_error(error);
    g_assert_true(ok);
}

/* Within 0.1 %. */
static inline void near(double got, double expected) {
    if (fabs(got - expected) > 1e-3 * fabs(expected))
        g_error("%.9g is not within 0.1 %% of %.9g", got, expected);
}

static inline void fails(Work *work, const RefitNetsimPlatform *platform, RefitError code,
                         const char *message) {
    g_autoptr(GError) error = NULL;

    g_assert_false(try_run(work, platform, 0, NULL, &error));
    g_assert_error(error, REFIT_ERROR, (gint)code);
    g_assert_nonnull(strstr(error->message, message));
}
