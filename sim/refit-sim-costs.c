/*
 * Seconds for bytes. Packing, unpacking and installing read and write each byte once, and their
 * rates are those of such copies; a cast reads or writes `cast` bytes for each byte on the wire, so
 * it counts as (1 + cast) / 2 copies. Copies inside a GPU are bound by its memory. Cost: O(1), and
 * a pair's transfers where something is cast on arrival.
 */

#include "sim/refit-sim-costs.h"

#include "model/predict/refit-prediction.h"

void refit_sim_costs_init(RefitSimCosts *costs, const RefitTopology *topology,
                          const RefitProfile *profile, const RefitSchedule *schedule) {
    const RefitCase *refit_case = schedule->plan->problem->refit_case;

    *costs = (RefitSimCosts){
        .topology = topology,
        .schedule = schedule,
        .operation_s = refit_profile_value(profile, REFIT_TERM_OPERATION),
        .run_s = refit_profile_value(profile, REFIT_TERM_RUN),
        .bucket_s = refit_profile_value(profile, REFIT_TERM_BUCKET),
        .pack_bytes_per_s = refit_profile_value(profile, REFIT_TERM_PACK),
        .unpack_bytes_per_s = refit_profile_value(profile, REFIT_TERM_UNPACK),
        .profile = profile,
        .cast_from = refit_case_cast_ratios(refit_case, TRUE),
        .cast_to = refit_case_cast_ratios(refit_case, FALSE),
    };
}

void refit_sim_costs_clear(RefitSimCosts *costs) {
    g_clear_pointer(&costs->cast_from, g_free);
    g_clear_pointer(&costs->cast_to, g_free);
}

/* ---- copies ---- */

/* Only what comes first hand is cast: later hops send on what they received. */
static double cast_from(const RefitSimCosts *costs, guint pair) {
    guint n_deps;

    refit_schedule_deps(costs->schedule, pair, &n_deps);
    return n_deps == 0 ? costs->cast_from[costs->schedule->plan->pairs[pair].src] : 0;
}

/* Only what lands in parameters is cast. */
static double cast_to(const RefitSimCosts *costs, guint pair) {
    const RefitPlan *plan = costs->schedule->plan;
    const RefitPair *self = &plan->pairs[pair];
    double cast = costs->cast_to[self->dst];

    for (guint t = 0; cast > 0 && t < self->n_transfers; t++)
        if (plan->transfers[self->first_transfer + t].landing == REFIT_LANDING_HOME)
            return cast;
    return 0;
}

double refit_sim_pack_s(const RefitSimCosts *costs, guint message) {
    const RefitMessage *self = &costs->schedule->plan->messages[message];
    double runs_s = (double)self->runs_src * costs->run_s;

    if (!(costs->pack_bytes_per_s > 0))
        return runs_s;
    return runs_s + refit_cast_bytes((double)self->bytes, cast_from(costs, self->pair)) /
                        costs->pack_bytes_per_s;
}

double refit_sim_unpack_s(const RefitSimCosts *costs, guint message) {
    const RefitMessage *self = &costs->schedule->plan->messages[message];
    double runs_s = (double)self->runs_dst * costs->run_s;

    if (!(costs->unpack_bytes_per_s > 0))
        return runs_s;
    return runs_s + refit_cast_bytes((double)self->bytes, cast_to(costs, self->pair)) /
                        costs->unpack_bytes_per_s;
}

/* Reads and writes the same memory, each side in its own form. */
double refit_sim_copy_s(const RefitSimCosts *costs, guint message) {
    const RefitMessage *self = &costs->schedule->plan->messages[message];
    double from = cast_from(costs, self->pair), to = cast_to(costs, self->pair);

    return ((from > 0 ? from : 1) + (to > 0 ? to : 1)) * (double)self->bytes /
           costs->topology->memory_bandwidth.value;
}

double refit_sim_install_s(const RefitSimCosts *costs, guint rank,
                           const RefitScheduleInstall *install) {
    return refit_install_host_s(costs->profile, install) +
           refit_install_copy_s(costs->profile, costs->cast_to[rank], install);
}

/* ---- links ---- */

guint refit_sim_leaf_of(const RefitTopology *topology, guint gpu) {
    if (topology->nodes_per_leaf == 0)
        return 0;
    return refit_topology_node_of(topology, gpu) / topology->nodes_per_leaf * topology->rails +
           refit_topology_rail_of(topology, gpu);
}

guint refit_sim_n_leaves(const RefitTopology *topology) {
    guint per_leaf = topology->nodes_per_leaf;

    return per_leaf == 0 ? 1 : (topology->n_nodes + per_leaf - 1) / per_leaf * topology->rails;
}

double refit_sim_latency(const RefitTopology *topology, guint src, guint dst, RefitLink link) {
    if (link == REFIT_LINK_LOCAL)
        return 0;
    if (link == REFIT_LINK_NVLINK)
        return topology->nvlink_latency.value;
    return refit_sim_leaf_of(topology, src) == refit_sim_leaf_of(topology, dst)
               ? topology->nic_latency.value
               : topology->spine_latency.value;
}

double refit_sim_bandwidth(const RefitTopology *topology, RefitLink link) {
    return link == REFIT_LINK_NVLINK ? topology->nvlink_bandwidth.value
                                     : topology->nic_bandwidth.value;
}
