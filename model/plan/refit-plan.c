/*
 * Plans as values: names, queries, release, and the small helpers that builder and proof share.
 */

#include "model/plan/refit-plan-private.h"

#include <string.h>

const char *refit_link_name(RefitLink link) {
    static const char *const names[REFIT_N_LINKS] = {"local", "nvlink", "network"};
    g_return_val_if_fail((guint)link < REFIT_N_LINKS, NULL);
    return names[link];
}

const char *refit_landing_name(RefitLanding landing) {
    static const char *const names[REFIT_N_LANDINGS] = {"home", "relay", "assembly", "bucket"};
    g_return_val_if_fail((guint)landing < REFIT_N_LANDINGS, NULL);
    return names[landing];
}

void refit_plan_free(RefitPlan *plan) {
    if (plan == NULL)
        return;
    RefitPlanStorage *storage = (RefitPlanStorage *)plan;
    for (guint i = 0; i < plan->n_stages; i++)
        g_free(plan->stages[i].name);
    for (guint i = 0; i < plan->n_regions; i++)
        refit_region_clear((RefitRegion *)&plan->regions[i]);
    for (guint i = 0; i < plan->n_sections; i++)
        refit_region_clear((RefitRegion *)&plan->sections[i].region);
    g_free((gpointer)plan->sections);
    g_free((gpointer)plan->section_offsets);
    g_free((gpointer)plan->stages);
    g_free((gpointer)plan->batches);
    g_free((gpointer)plan->regions);
    g_free((gpointer)plan->transfers);
    g_free((gpointer)plan->deps);
    g_free((gpointer)plan->pairs);
    g_free((gpointer)plan->messages);
    g_free((gpointer)plan->run_offsets);
    g_free((gpointer)plan->batch_runs);
    g_free((gpointer)plan->member_order);
    g_free((gpointer)plan->member_offsets);
    g_free((gpointer)plan->obligations);
    g_free((gpointer)plan->accounts);
    g_free(plan->digest);
    g_ptr_array_unref(storage->rank_sets);
    g_free(storage);
}

guint64 refit_plan_transfer_bytes(const RefitPlan *plan, const RefitTransfer *transfer) {
    return refit_class_bytes(&plan->problem->classes[transfer->class_index],
                             refit_region_volume(&plan->regions[transfer->region]));
}

/* ---- helpers of builder and proof ---- */

void refit_counting_sort(const guint *keys, guint n_keys, guint *order, guint *scratch, guint n) {
    guint i = 1;
    while (i < n && keys[order[i - 1]] <= keys[order[i]])
        i++;
    if (i >= n)
        return;
    g_autofree guint *ends = g_new0(guint, (gsize)n_keys + 1);
    for (i = 0; i < n; i++)
        ends[keys[order[i]] + 1]++;
    for (guint key = 0; key < n_keys; key++)
        ends[key + 1] += ends[key];
    for (i = 0; i < n; i++)
        scratch[ends[keys[order[i]]]++] = order[i];
    memcpy(order, scratch, n * sizeof *order);
}

RefitLink refit_plan_link(const RefitTopology *topology, guint src, guint dst) {
    if (src == dst)
        return REFIT_LINK_LOCAL;
    return refit_topology_domain_of(topology, src) == refit_topology_domain_of(topology, dst)
               ? REFIT_LINK_NVLINK
               : REFIT_LINK_NETWORK;
}
