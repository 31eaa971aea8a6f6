/*
 * What strategies share. Everything here is linear in ranks or members; none of it decides who
 * sends what.
 */

#include "refit-strategy-private.h"

gboolean refit_selection_has(RefitSelection selection, const RefitClass *klass) {
    return selection == REFIT_SELECT_ALL || klass->bulk == (selection == REFIT_SELECT_BULK);
}

guint64 refit_selection_bytes(RefitSelection selection, const RefitProblem *problem) {
    guint64 bytes = 0;

    for (guint c = 0; c < problem->n_classes; c++)
        if (refit_selection_has(selection, &problem->classes[c]))
            bytes += problem->classes[c].bytes * problem->classes[c].n_members;
    return bytes;
}

void refit_batches_spread(RefitPlanBuilder *builder, const RefitProblem *problem, guint n_batches) {
    guint n_stages = refit_layout_n_stages(problem->refit_case->source);
    g_autofree guint *batches = g_new(guint, n_batches);
    g_autofree guint64 *extra = g_new0(guint64, (gsize)n_stages * n_batches);

    for (guint b = 0; b < n_batches; b++)
        batches[b] = refit_plan_builder_add_batch(builder, 0, 0, FALSE);
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];
        guint64 *stage = extra + (gsize)klass->stage * n_batches;
        guint even = klass->n_members - klass->n_members % n_batches;

        for (guint m = 0; m < klass->n_members; m++) {
            guint batch = m % n_batches;

            if (m >= even) {
                for (guint b = 0; b < n_batches; b++)
                    if (stage[b] < stage[batch])
                        batch = b;
                stage[batch] += klass->bytes;
            }
            refit_plan_builder_assign(builder, c, m, batches[batch]);
        }
    }
}

guint refit_domain_run(const RefitTopology *topology, const guint *ranks, guint n_ranks,
                       guint first) {
    guint domain = refit_topology_domain_of(topology, ranks[first]);
    guint n = 1;

    while (first + n < n_ranks && refit_topology_domain_of(topology, ranks[first + n]) == domain)
        n++;
    return n;
}

gboolean refit_ranks_contain(const guint *ranks, guint n_ranks, guint rank) {
    guint lo = 0, hi = n_ranks;

    while (lo < hi) {
        guint middle = lo + (hi - lo) / 2;
        if (ranks[middle] < rank)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < n_ranks && ranks[lo] == rank;
}
