/*
 * Collects what a strategy decides: stages, batches, regions, transfers, obligations. Everything
 * goes into growing arrays, one fixed-size record per transfer; regions and rank sets are stored
 * once however often they are named. Members and sections are in refit-plan-sections.c. What
 * follows from the decisions (pairs, steps, messages, accounts) is computed once at the end, in
 * refit-plan-finish.c. Cost: constant per call.
 */

#include "model/plan/refit-plan-private.h"

#include <string.h>

static guint region_key_hash(gconstpointer key) {
    return refit_region_hash(key);
}

static gboolean region_key_equal(gconstpointer a, gconstpointer b) {
    return refit_region_equal(a, b);
}

static void region_free(gpointer data) {
    refit_region_clear(data);
    g_free(data);
}

RefitPlanBuilder *refit_plan_builder_new(const RefitProblem *problem, const char *strategy) {
    g_return_val_if_fail(problem != NULL && strategy != NULL, NULL);
    RefitPlanBuilder *builder = g_new0(RefitPlanBuilder, 1);
    builder->problem = problem;
    builder->strategy = strategy;
    builder->stages = g_array_new(FALSE, FALSE, sizeof(RefitStage));
    builder->batches = g_array_new(FALSE, FALSE, sizeof(RefitBatch));
    builder->regions = g_ptr_array_new_with_free_func(region_free);
    builder->region_numbers = g_hash_table_new(region_key_hash, region_key_equal);
    builder->volumes = g_array_new(FALSE, FALSE, sizeof(guint64));
    builder->transfers = g_array_new(FALSE, FALSE, sizeof(RefitTransfer));
    builder->deps = g_array_new(FALSE, FALSE, sizeof(guint));
    builder->obligations = g_array_new(FALSE, FALSE, sizeof(RefitObligation));
    builder->rank_sets = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    builder->rank_bytes = g_hash_table_new(g_bytes_hash, g_bytes_equal);
    refit_plan_members_init(builder);
    return builder;
}

void refit_plan_builder_free(RefitPlanBuilder *builder) {
    if (builder == NULL)
        return;
    for (guint i = 0; i < builder->stages->len; i++)
        g_free(g_array_index(builder->stages, RefitStage, i).name);
    g_array_unref(builder->stages);
    g_array_unref(builder->batches);
    g_hash_table_unref(builder->region_numbers);
    g_ptr_array_unref(builder->regions);
    g_array_unref(builder->volumes);
    g_array_unref(builder->transfers);
    g_array_unref(builder->deps);
    g_array_unref(builder->obligations);
    g_hash_table_unref(builder->rank_bytes);
    if (builder->rank_sets != NULL)
        g_ptr_array_unref(builder->rank_sets);
    refit_plan_members_free(builder);
    g_free(builder);
}

void refit_plan_builder_add_logical_bytes(RefitPlanBuilder *builder, guint64 bytes) {
    builder->logical_overflow |= bytes > G_MAXUINT64 - builder->logical_bytes;
    builder->logical_bytes += bytes;
}

guint refit_plan_builder_add_stage(RefitPlanBuilder *builder, const char *name, guint slices) {
    g_return_val_if_fail(name != NULL && slices > 0, 0);
    g_return_val_if_fail(builder->stages->len < G_MAXUINT16, 0);
    RefitStage stage = {.name = g_strdup(name), .slices = slices};
    g_array_append_val(builder->stages, stage);
    return builder->stages->len - 1;
}

void refit_plan_builder_set_peers_per_step(RefitPlanBuilder *builder, guint peers) {
    builder->peers = peers;
}

void refit_plan_builder_set_least_depth(RefitPlanBuilder *builder, guint depth) {
    builder->least_depth = depth;
}

void refit_plan_builder_set_track(RefitPlanBuilder *builder, guint stage, guint track) {
    g_return_if_fail(stage < builder->stages->len);
    g_array_index(builder->stages, RefitStage, stage).track = track;
}

guint refit_plan_builder_add_batch(RefitPlanBuilder *builder, guint lane, guint buckets,
                                   gboolean barrier) {
    RefitBatch batch = {lane, buckets, barrier};
    g_array_append_val(builder->batches, batch);
    return builder->batches->len - 1;
}

guint refit_plan_builder_region(RefitPlanBuilder *builder, const RefitRegion *region) {
    guint number =
        GPOINTER_TO_UINT(g_hash_table_lookup(builder->region_numbers, region)); /* 1 + number */
    if (number != 0)
        return number - 1;
    RefitRegion *copy = g_new(RefitRegion, 1);
    *copy = refit_region_copy(region);
    guint64 volume = refit_region_volume(copy);
    g_ptr_array_add(builder->regions, copy);
    g_array_append_val(builder->volumes, volume);
    g_hash_table_insert(builder->region_numbers, copy, GUINT_TO_POINTER(builder->regions->len));
    return builder->regions->len - 1;
}

guint refit_plan_builder_add(RefitPlanBuilder *builder, guint class_index, guint region, guint src,
                             guint dst, guint stage, RefitLanding landing, const guint *deps,
                             guint n_deps) {
    const RefitProblem *problem = builder->problem;
    g_assert(class_index < problem->n_classes);
    g_assert(region < builder->regions->len);
    g_assert(g_array_index(builder->volumes, guint64, region) > 0);
    g_assert(src < problem->n_ranks && dst < problem->n_ranks);
    g_assert(stage < builder->stages->len);
    g_assert(landing < REFIT_N_LANDINGS);
    g_assert(builder->transfers->len < G_MAXUINT - 1);
    g_assert(n_deps < G_MAXUINT - builder->deps->len);

    guint depth = builder->least_depth;
    for (guint i = 0; i < n_deps; i++) {
        g_assert(deps[i] < builder->transfers->len);
        const RefitTransfer *dep = &g_array_index(builder->transfers, RefitTransfer, deps[i]);
        g_assert(dep->class_index == class_index && dep->dst == src && dep->stage <= stage);
        if (dep->stage == stage)
            depth = MAX(depth, dep->pair + 1);
    }
    RefitTransfer transfer = {
        .class_index = class_index,
        .region = region,
        .src = src,
        .dst = dst,
        .pair = depth,
        .first_dep = builder->deps->len,
        .n_deps = n_deps,
        .stage = (guint16)stage,
        .link = (guint8)refit_plan_link(problem->refit_case->topology, src, dst),
        .landing = (guint8)landing,
    };
    if (n_deps > 0)
        g_array_append_vals(builder->deps, deps, n_deps);
    g_array_append_val(builder->transfers, transfer);
    return builder->transfers->len - 1;
}

/* The shared copy of a rank set. */
static const guint *intern_ranks(RefitPlanBuilder *builder, const guint *ranks, guint n_ranks) {
    g_autoptr(GBytes) bytes = g_bytes_new(ranks, n_ranks * sizeof *ranks);
    GBytes *known = g_hash_table_lookup(builder->rank_bytes, bytes);
    if (known == NULL) {
        known = g_steal_pointer(&bytes);
        g_ptr_array_add(builder->rank_sets, known);
        g_hash_table_add(builder->rank_bytes, known);
    }
    return g_bytes_get_data(known, NULL);
}

void refit_plan_builder_oblige(RefitPlanBuilder *builder, guint class_index, RefitLanding landing,
                               const guint *ranks, guint n_ranks) {
    g_assert(class_index < builder->problem->n_classes);
    g_assert(landing == REFIT_LANDING_ASSEMBLY || landing == REFIT_LANDING_BUCKET);
    for (guint i = 0; i < n_ranks; i++) {
        g_assert(ranks[i] < builder->problem->n_ranks);
        g_assert(i == 0 || ranks[i - 1] < ranks[i]);
    }
    if (n_ranks == 0)
        return;
    RefitObligation obligation = {class_index, landing, n_ranks,
                                  intern_ranks(builder, ranks, n_ranks)};
    g_array_append_val(builder->obligations, obligation);
}
