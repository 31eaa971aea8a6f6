#pragma once

/*
 * The work items of a plan: what the executor "simgrid" hands to the network simulator. Follows
 * "How time flows" of refit-plan.h and charges the profile's terms as docs/sim.md says.
 */

#include "sim/refit-netsim.h"
#include "sim/refit-sim-deps.h"

G_BEGIN_DECLS

/* Items of one message. */
typedef struct {
    guint move;    /* the flow or local copy */
    guint end;     /* the last byte has left the link */
    guint pack;    /* REFIT_SIM_NONE when it goes straight from where it is */
    guint unpack;  /* REFIT_SIM_NONE when it goes straight to where it belongs */
    guint arrived; /* REFIT_SIM_NONE when nothing waits for its arrival */
} RefitSimMessage;

typedef struct {
    RefitNetsimGraph graph;
    RefitSimMessage *messages; /* one per message of the plan */
    double resolution_s;       /* 0: exact */
    GArray *items;             /* owned storage of the graph */
    guint64 *offsets;
    guint *successors;
} RefitSimGraph;

/*
 * REFIT_ERROR_OVERFLOW when the plan needs 2^31 items or more. Cost: messages + transfers + deps.
 */
RefitSimGraph *refit_sim_graph_new(const RefitTopology *topology, const RefitProfile *profile,
                                   const RefitPlan *plan, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_sim_graph_free(RefitSimGraph *graph);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitSimGraph, refit_sim_graph_free)

/* Leaf switch of a GPU's NIC: GPUs of one rail in `nodes_per_leaf` nodes share one. */
guint refit_sim_leaf_of(const RefitTopology *topology, guint gpu);
guint refit_sim_n_leaves(const RefitTopology *topology);
/* From the last byte sent to the last byte there. */
double refit_sim_latency(const RefitTopology *topology, const RefitPair *pair);

G_END_DECLS
