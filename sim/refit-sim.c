/*
 * The executor: items from refit-sim-graph.c, dates from refit-netsim.c, events from both. The
 * platform is the topology as ports: leaf uplinks appear only when the fabric is oversubscribed,
 * since links that cannot be full only cost time. Latency ends a message's event but holds no port.
 */

#include "sim/refit-sim.h"
#include "sim/refit-sim-graph.h"

#include <stdlib.h>

typedef struct {
    const RefitTopology *topology; /* borrowed */
    const RefitProfile *profile;   /* borrowed */
    const RefitPlan *plan;         /* borrowed, NULL before prepare */
    RefitSimGraph *graph;
    RefitNetsimPlatform platform;
    guint *leaf_of;
} Simulator;

static gboolean simulator_probe(GError **error G_GNUC_UNUSED) {
    return TRUE;
}

static gpointer simulator_open(const RefitTopology *topology, const RefitProfile *profile,
                               GError **error G_GNUC_UNUSED) {
    Simulator *self = g_new0(Simulator, 1);
    guint n_gpus = refit_topology_n_gpus(topology);

    self->topology = topology;
    self->profile = profile;
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

static gboolean simulator_prepare(gpointer data, const RefitPlan *plan, GError **error) {
    Simulator *self = data;

    /* The plan before may be gone, whether this one can be prepared or not. */
    g_clear_pointer(&self->graph, refit_sim_graph_free);
    self->graph = refit_sim_graph_new(self->topology, self->profile, plan, error);
    self->plan = self->graph != NULL ? plan : NULL;
    return self->graph != NULL;
}

static void add_copy_event(GArray *events, const RefitNetsimTime *times, guint item,
                           const RefitMessage *message, guint rank, RefitActivity activity) {
    RefitEvent event = {.step = message->step,
                        .rank = rank,
                        .peer = rank,
                        .activity = activity,
                        .bytes = message->bytes};

    if (item == REFIT_SIM_NONE)
        return;
    event.start_s = times[item].start_s;
    event.end_s = times[item].end_s;
    g_array_append_val(events, event);
}

static GArray *collect_events(const Simulator *self, const RefitNetsimTime *times) {
    static const RefitActivity moves[REFIT_N_LINKS] = {
        [REFIT_LINK_LOCAL] = REFIT_ACTIVITY_LOCAL,
        [REFIT_LINK_NVLINK] = REFIT_ACTIVITY_NVLINK,
        [REFIT_LINK_NETWORK] = REFIT_ACTIVITY_NETWORK,
    };
    GArray *events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));

    for (guint m = 0; m < self->plan->n_messages; m++) {
        const RefitMessage *message = &self->plan->messages[m];
        const RefitPair *pair = &self->plan->pairs[message->pair];
        const RefitSimMessage *items = &self->graph->messages[m];
        RefitEvent event = {
            .start_s = times[items->move].start_s,
            .end_s = times[items->end].end_s + refit_sim_latency(self->topology, pair),
            .step = message->step,
            .rank = pair->src,
            .peer = pair->dst,
            .activity = moves[pair->link],
            .bytes = message->bytes,
        };

        g_array_append_val(events, event);
        add_copy_event(events, times, items->pack, message, pair->src, REFIT_ACTIVITY_PACK);
        add_copy_event(events, times, items->unpack, message, pair->dst, REFIT_ACTIVITY_UNPACK);
    }
    g_array_sort(events, refit_event_compare);
    return events;
}

static gboolean simulator_run(gpointer data, RefitEventFunc func, gpointer user_data,
                              RefitRunResult *result_out, GError **error) {
    const Simulator *self = data;
    g_autofree RefitNetsimTime *times = NULL;
    g_autoptr(GArray) events = NULL;
    double makespan_s;

    g_return_val_if_fail(self->plan != NULL, FALSE);
    times = g_new0(RefitNetsimTime, MAX(self->graph->graph.n_items, 1));
    if (!refit_netsim_run(&self->platform, &self->graph->graph, self->graph->resolution_s, times,
                          &makespan_s, error))
        return FALSE;
    events = collect_events(self, times);
    for (guint i = 0; func != NULL && i < events->len; i++)
        func(&g_array_index(events, RefitEvent, i), user_data);
    if (events->len > 0) /* with latency behind the last item, or a port's last bytes */
        makespan_s = MAX(makespan_s, g_array_index(events, RefitEvent, events->len - 1).end_s);
    *result_out = (RefitRunResult){
        .duration_s = events->len > 0 ? makespan_s : 0,
        .n_flows = self->plan->n_messages,
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
    .flags = REFIT_EXECUTOR_PREDICTS | REFIT_EXECUTOR_REPRODUCIBLE,
    .probe = simulator_probe,
    .open = simulator_open,
    .prepare = simulator_prepare,
    .run = simulator_run,
    .close = simulator_close,
};
