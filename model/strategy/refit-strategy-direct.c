/*
 * Strategy `direct`: shard to shard. Every destination rank fetches each part of its shards from
 * one holder, without regard to what its neighbours fetch, so bytes needed by several GPUs of a
 * domain cross the network several times. Network bytes = R_d x B less what a holder in the same
 * domain provides. Cost: one transfer per cell and needer.
 */

#include "model/strategy/refit-strategy-private.h"

/*
 * Holder for the `index`-th needer of a cell: itself, else a holder in its own domain, else holders
 * in turn, starting at another one for each class so that replicas share the work.
 */
static guint pick_holder(const RefitTopology *topology, const RefitCell *cell, guint index,
                         guint turn) {
    guint needer = cell->needers[index];
    guint domain = refit_topology_domain_of(topology, needer);

    g_assert(cell->n_holders > 0); /* the problem refuses tensors that nobody holds */
    if (refit_ranks_contain(cell->holders, cell->n_holders, needer))
        return needer;
    for (guint h = 0; h < cell->n_holders; h++) {
        guint holder = cell->holders[(h + turn + index) % cell->n_holders];
        if (refit_topology_domain_of(topology, holder) == domain)
            return holder;
    }
    return cell->holders[(turn + index) % cell->n_holders];
}

static gboolean build(RefitPlanBuilder *builder, const RefitProblem *problem,
                      G_GNUC_UNUSED GError **error) {
    const RefitTopology *topology = problem->refit_case->topology;
    guint stage = refit_plan_builder_add_stage(builder, "send", 1);

    refit_batches_spread(builder, problem, 1);
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint i = 0; i < klass->cells->n_cells; i++) {
            const RefitCell *cell = &klass->cells->cells[i];
            guint region = refit_plan_builder_region(builder, &cell->region);

            for (guint n = 0; n < cell->n_needers; n++)
                refit_plan_builder_add(builder, c, region, pick_holder(topology, cell, n, c),
                                       cell->needers[n], stage, REFIT_LANDING_HOME, NULL, 0);
        }
    }
    refit_plan_builder_add_logical_bytes(builder, problem->weight_bytes);
    return TRUE;
}

const RefitStrategy refit_strategy_direct = {
    .name = "direct",
    .summary = "shard to shard, every destination replica served over the network",
    .build = build,
};
