/*
 * The executor: items from refit-sim-graph.c, dates from refit-netsim.c, events from both. The
 * platform is the topology as ports: leaf uplinks appear only when the fabric is oversubscribed,
 * since links that cannot be full only cost time. Latency ends a message's event but holds no port.
 */

#include "sim/refit-sim.h"
#include "sim/refit-sim-costs.h"
#include "sim/refit-sim-graph.h"

typedef struct {
    const RefitExecutorConfig *config; /* borrowed */
    RefitSimGraph *graph;              /* NULL before prepare */
    RefitNetsimPlatform platform;
    guint *leaf_of;
} Simulator;

static gboolean simulator_probe(GError **error G_GNUC_UNUSED) {
    return TRUE;
}

static gpointer simulator_open(const RefitExecutorConfig *config, GError **error G_GNUC_UNUSED) {
    const RefitTopology *topology = config->topology;
    Simulator *self = g_new0(Simulator, 1);
    guint n_gpus = refit_topology_n_gpus(topology);

    self->config = config;
    self->platform = (RefitNetsimPlatform){
        .n_gpus = n_gpus,
        .gpus_per_domain = refit_topology_gpus_per_domain(topology),
        .nvlink_bytes_per_s = topology->nvlink_bandwidth.value,
        .nic_bytes_per_s = topology->nic_bandwidth.value,
    };
    if (topology->oversubscription.value > 1 && topology->nodes_per_leaf > 0) {
        double nics_per_leaf =
            (double)topology->nodes_per_leaf * topology->gpus_per_node / topology->rails;

        self->leaf_of = g_new(guint, n_gpus);
        for (guint gpu = 0; gpu < n_gpus; gpu++)
            self->leaf_of[gpu] = refit_sim_leaf_of(topology, gpu);
        self->platform.n_leaves = refit_sim_n_leaves(topology);
        self->platform.leaf_of = self->leaf_of;
        self->platform.leaf_uplink_bytes_per_s =
            nics_per_leaf * topology->nic_bandwidth.value / topology->oversubscription.value;
    }
    return self;
}

static gboolean simulator_prepare(gpointer data, const RefitExecutorWork *work, GError **error) {
    Simulator *self = data;

    /* The schedule before may be gone, whether this one can be prepared or not. */
    g_clear_pointer(&self->graph, refit_sim_graph_free);
    self->graph = refit_sim_graph_new(self->config, work->schedule, error);
    return self->graph != NULL;
}

/* Fills in the dates of all events and tells them. What a port owes in the end makes its last flow
 * longer, but nothing that follows it, so an end is held to the end of all. */
static void tell_events(const RefitSimGraph *graph, const RefitNetsimTime *times, double makespan_s,
                        RefitEventFunc func, gpointer user_data) {
    for (guint i = 0; i < graph->events->len; i++) {
        RefitSimEvent *part = &g_array_index(graph->events, RefitSimEvent, i);
        RefitEvent *event = &part->event;

        event->end_s = MIN(times[part->end].end_s + part->late_s, makespan_s);
        event->begin_s = MIN(MAX(times[part->begin].start_s - part->early_s, 0), event->end_s);
        func(event, user_data);
    }
}

static gboolean simulator_run(gpointer data, RefitEventFunc func, gpointer user_data,
                              RefitRunResult *result_out, GError **error) {
    const Simulator *self = data;
    g_autofree RefitNetsimTime *times = NULL;
    double makespan_s;

    g_return_val_if_fail(self->graph != NULL, FALSE);
    g_return_val_if_fail(func == NULL || !self->config->times_only, FALSE);
    if (func != NULL)
        times = g_new0(RefitNetsimTime, MAX(self->graph->graph.n_items, 1));
    if (!refit_netsim_run(&self->platform, &self->graph->graph, self->graph->resolution_s, times,
                          &makespan_s, error))
        return FALSE;
    if (func != NULL)
        tell_events(self->graph, times, makespan_s, func, user_data);
    *result_out = (RefitRunResult){
        .duration_s = makespan_s,
        .n_items = self->graph->n_parts,
        .time_resolution_s = self->graph->resolution_s,
    };
    return TRUE;
}

static void simulator_close(gpointer data) {
    Simulator *self = data;

    if (self == NULL)
        return;
    refit_sim_graph_free(self->graph);
    g_free(self->leaf_of);
    g_free(self);
}

const RefitExecutor refit_executor_simgrid = {
    .name = "simgrid",
    .summary = "predicts times with SimGrid's fluid network model",
    .flags = REFIT_EXECUTOR_PREDICTS,
    .probe = simulator_probe,
    .open = simulator_open,
    .prepare = simulator_prepare,
    .run = simulator_run,
    .close = simulator_close,
};
