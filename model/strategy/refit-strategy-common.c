/*
 * What strategies share. Everything here is linear in ranks or members; none of it decides who
 * sends what.
 */

#include "model/strategy/refit-strategy-private.h"

#include <math.h>

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
    guint per_domain = refit_topology_gpus_per_domain(topology);
    guint in_domain = ranks[first] % per_domain;
    guint n = 1;

    while (first + n < n_ranks && ranks[first + n] - ranks[first] < per_domain - in_domain)
        n++;
    return n;
}

/* The first of the ranks that is not below `rank`; n_ranks when all are. */
static guint find_rank(const guint *ranks, guint n_ranks, guint rank) {
    guint lo = 0, hi = n_ranks;

    while (lo < hi) {
        guint middle = lo + (hi - lo) / 2;
        if (ranks[middle] < rank)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

guint refit_domain_ranks(const RefitTopology *topology, const guint *ranks, guint n_ranks,
                         guint rank, guint *first_out) {
    guint per_domain = refit_topology_gpus_per_domain(topology);
    guint domain = rank / per_domain;

    *first_out = find_rank(ranks, n_ranks, domain * per_domain);
    if (*first_out == n_ranks || ranks[*first_out] / per_domain != domain)
        return 0;
    return refit_domain_run(topology, ranks, n_ranks, *first_out);
}

gboolean refit_ranks_contain(const guint *ranks, guint n_ranks, guint rank) {
    guint at = find_rank(ranks, n_ranks, rank);

    return at < n_ranks && ranks[at] == rank;
}

guint refit_spread(guint n, guint root, RefitSpreadFunc hop, gpointer data) {
    guint level = 0;

    for (guint have = 1; have < n; have *= 2) {
        for (guint t = 0; t < MIN(have, n - have); t++)
            hop(level, (root + t) % n, (root + t + have) % n, data);
        level++;
    }
    return level;
}

GArray *refit_ranks_of_both_sides(const RefitProblem *problem) {
    const RefitCase *refit_case = problem->refit_case;
    GArray *all = g_array_new(FALSE, FALSE, sizeof(guint));
    guint *ranks, n = 0;

    g_array_append_vals(all, refit_layout_ranks(refit_case->source),
                        refit_layout_n_ranks(refit_case->source));
    for (guint d = 0; d < refit_case->n_destinations; d++)
        g_array_append_vals(all, refit_layout_ranks(refit_case->destinations[d]),
                            refit_layout_n_ranks(refit_case->destinations[d]));
    ranks = (guint *)(gpointer)all->data;
    refit_ranks_sort(ranks, all->len);
    g_array_set_size(all, refit_ranks_drop_repeats(ranks, all->len));
    for (guint i = 0; i < all->len; i++)
        if (!problem->failed[ranks[i]])
            ranks[n++] = ranks[i];
    g_array_set_size(all, n);
    return all;
}

/* ---- cuts ---- */

#define ACCESS_BITS 128

guint64 refit_strategy_grain(const RefitClass *klass) {
    guint bits = refit_dtype_bits(klass->dtype);

    return ACCESS_BITS % bits == 0 ? ACCESS_BITS / bits : 1;
}

/* ---- chains ---- */

/* A turn over the network and one over NVLink, each with a message in and one out: two groups and
 * four operations. */
#define OPERATIONS_OF_A_HOP 6
/* So many slices that a turn of a rank does not have to be cut for lack of wire memory. */
#define SLICES_IN_WIRE 104

guint refit_chain_slices(const RefitProblem *problem, guint64 bytes, guint64 total, guint hops) {
    const RefitProfile *profile = problem->refit_case->profile;
    double turn_s = OPERATIONS_OF_A_HOP * refit_profile_value(profile, REFIT_TERM_OPERATION);
    double best = sqrt((double)total * problem->refit_case->topology->nic_bandwidth.value * turn_s /
                       MAX(hops, 1));

    /* All channels of a domain have a slice on their way in and one on their way out. */
    best = MIN(best, (double)REFIT_PLAN_WIRE_BYTES / SLICES_IN_WIRE);
    return (guint)CLAMP((double)bytes / MAX(best, profile->slice_bytes.value), 1.0, 65535.0);
}

guint64 refit_batch_limit(const RefitCase *refit_case) {
    guint64 budget = refit_case->budget_staging_bytes > 0 ? refit_case->budget_staging_bytes
                                                          : REFIT_PLAN_STAGING_BYTES;

    return MAX((budget - MIN(budget / 80 * 34, REFIT_PLAN_WIRE_BYTES)) / 2, 1);
}
