#pragma once

/* Small cases written in the test itself, with explicit layouts, for the tests that plan. */

#include "input-text.h"
#include "model/plan/refit-plan.h"

/* A side: `rules` is the text of the explicit layout's rules. */
static inline RefitLayout *plan_case_side(const char *side, RefitModel *model, guint first,
                                          guint n_ranks, guint n_gpus, const char *rules) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = g_strdup_printf("{framework: explicit, gpus: %u, first_gpu: %u, %s}",
                                            n_ranks, first, rules);
    g_autoptr(RefitDoc) doc = input_doc(text);
    RefitLayout *layout = refit_layout_parse(refit_doc_root(doc), side, model, 0, n_gpus, &error);
    g_assert_no_error(error);
    return layout;
}

/*
 * `tensors`: items of a list model. The source is ranks 0 .. n_source - 1, the destination the
 * next n_destination. The topology is one line.
 */
static inline RefitCase *plan_case_new(const char *topology, const char *tensors, guint n_source,
                                       const char *source, guint n_destination,
                                       const char *destination) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = g_new0(RefitCase, 1);
    refit_case->name = g_strdup("made-up");
    refit_case->topology = refit_topology_parse_line(topology, &error);
    g_assert_no_error(error);
    guint n_gpus = refit_topology_n_gpus(refit_case->topology);
    g_autofree char *text =
        g_strdup_printf("schema: refit.model/1\nname: made-up\nfamily: list\nsource: the test\n"
                        "tensors:\n%s",
                        tensors);
    g_autoptr(RefitDoc) doc = input_doc(text);
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    refit_case->model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    refit_case->source = plan_case_side("train", refit_case->model, 0, n_source, n_gpus, source);
    refit_case->n_destinations = 1;
    refit_case->destinations = g_new0(RefitLayout *, 2);
    refit_case->destinations[0] = plan_case_side("generation", refit_case->model, n_source,
                                                 n_destination, n_gpus, destination);
    return refit_case;
}

static inline RefitProblem *plan_case_problem(const RefitCase *refit_case) {
    g_autoptr(GError) error = NULL;
    RefitProblem *problem = refit_problem_new(refit_case, &error);
    g_assert_no_error(error);
    return problem;
}

/* Region from "lo:hi,lo:hi", one interval per dim; "" is the region of a 0-d tensor. */
static inline RefitRegion plan_case_region(const char *text) {
    RefitRegion region = {0};
    g_auto(GStrv) dims = g_strsplit(text, ",", -1);
    for (guint dim = 0; dims[dim] != NULL; dim++) {
        char *end;
        guint64 lo = g_ascii_strtoull(dims[dim], &end, 10);
        g_assert_true(*end == ':');
        region.dims[region.n_dims++] =
            refit_interval_list_range(lo, g_ascii_strtoull(end + 1, NULL, 10));
    }
    return region;
}

static inline guint plan_case_add(RefitPlanBuilder *builder, guint class_index, const char *region,
                                  guint src, guint dst, guint stage, RefitLanding landing,
                                  const guint *deps, guint n_deps) {
    g_auto(RefitRegion) parsed = plan_case_region(region);
    return refit_plan_builder_add(builder, class_index, refit_plan_builder_region(builder, &parsed),
                                  src, dst, stage, landing, deps, n_deps);
}

static inline void plan_case_assign_all(RefitPlanBuilder *builder, const RefitProblem *problem,
                                        guint batch) {
    for (guint i = 0; i < problem->n_classes; i++)
        for (guint member = 0; member < problem->classes[i].n_members; member++)
            refit_plan_builder_assign(builder, i, member, batch);
}

static inline RefitPlan *plan_case_finish(RefitPlanBuilder *builder) {
    g_autoptr(GError) error = NULL;
    RefitPlan *plan = refit_plan_builder_finish(builder, &error);
    g_assert_no_error(error);
    return plan;
}

/* ---- the 8 x 4 tensor of four plus four ranks, two domains ---- */

#define WORKED_TOPOLOGY "node:2 gpu:4 nvlink:450GBps nic:50GBps"
#define WORKED_TENSOR "  - {name: w, shape: [8, 4], dtype: bf16, role: other}\n"
#define WORKED_SOURCE "rules: [{tensors: w, ranks: [0-1], place: [{shard: 0}]}]"
#define WORKED_DESTINATION "rules: [{tensors: w, mesh: [2, 2], place: [replicate, {shard: 1}]}]"

static inline RefitCase *plan_case_worked(void) {
    return plan_case_new(WORKED_TOPOLOGY, WORKED_TENSOR, 4, WORKED_SOURCE, 4, WORKED_DESTINATION);
}

/* Each destination takes half of its columns over the network and swaps the other half. */
static inline RefitPlan *plan_case_worked_plan(const RefitProblem *problem) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint inject = refit_plan_builder_add_stage(builder, "inject", 1);
    guint exchange = refit_plan_builder_add_stage(builder, "exchange", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    static const char *const regions[2][2] = {{"0:4,0:2", "4:8,0:2"}, {"0:4,2:4", "4:8,2:4"}};
    for (guint column = 0; column < 2; column++)
        for (guint half = 0; half < 2; half++) {
            guint receiver = 4 + column + 2 * half, partner = 4 + column + 2 * (1 - half);
            guint dep = plan_case_add(builder, 0, regions[column][half], half, receiver, inject,
                                      REFIT_LANDING_HOME, NULL, 0);
            plan_case_add(builder, 0, regions[column][half], receiver, partner, exchange,
                          REFIT_LANDING_HOME, &dep, 1);
        }
    return plan_case_finish(builder);
}

/* One rank sends its half to a relay, which passes it on to all that need it. */
static inline RefitPlan *plan_case_relay_plan(const RefitProblem *problem) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint first = refit_plan_builder_add_stage(builder, "relay", 1);
    guint second = refit_plan_builder_add_stage(builder, "deliver", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint half = 0; half < 2; half++) {
        guint relay = 2 + half;
        guint dep = plan_case_add(builder, 0, half == 0 ? "0:4,0:4" : "4:8,0:4", half, relay, first,
                                  REFIT_LANDING_RELAY, NULL, 0);
        static const char *const regions[2][2] = {{"0:4,0:2", "0:4,2:4"}, {"4:8,0:2", "4:8,2:4"}};
        for (guint rank = 0; rank < 4; rank++)
            plan_case_add(builder, 0, regions[half][rank % 2], relay, 4 + rank, second,
                          REFIT_LANDING_HOME, &dep, 1);
    }
    return plan_case_finish(builder);
}

/* A region of class 0 goes from rank 0 to 1, to 2 and to 3, in slices. */
static inline RefitPlan *plan_case_chain_plan(const RefitProblem *problem, const char *region,
                                              guint slices) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "chain", slices), dep = 0;

    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint hop = 0; hop < 3; hop++)
        dep = plan_case_add(builder, 0, region, hop, hop + 1, stage, REFIT_LANDING_HOME, &dep,
                            hop == 0 ? 0 : 1);
    return plan_case_finish(builder);
}

/* Rank 0 assembles the tensor and a chain of all destinations receives it as a bucket. */
static inline RefitPlan *plan_case_bucket_plan(const RefitProblem *problem) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint gather = refit_plan_builder_add_stage(builder, "gather", 1);
    guint chain = refit_plan_builder_add_stage(builder, "broadcast", 4);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 1, FALSE));
    static const guint roots[] = {0, 1}, receivers[] = {4, 5, 6, 7};
    refit_plan_builder_oblige(builder, 0, REFIT_LANDING_ASSEMBLY, roots, 2);
    refit_plan_builder_oblige(builder, 0, REFIT_LANDING_BUCKET, receivers, 4);
    guint dep = plan_case_add(builder, 0, "4:8,0:4", 1, 0, gather, REFIT_LANDING_ASSEMBLY, NULL, 0);
    plan_case_add(builder, 0, "0:4,0:4", 0, 1, gather, REFIT_LANDING_ASSEMBLY, NULL, 0);
    for (guint hop = 0; hop < 4; hop++)
        dep = plan_case_add(builder, 0, "0:8,0:4", hop == 0 ? 0 : 3 + hop, 4 + hop, chain,
                            REFIT_LANDING_BUCKET, &dep, 1);
    refit_plan_builder_add_logical_bytes(builder, 2 * problem->weight_bytes);
    return plan_case_finish(builder);
}

/* Every destination takes its parts straight from both sources. */
static inline RefitPlan *plan_case_direct_plan(const RefitProblem *problem) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "direct", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    static const char *const regions[2][2] = {{"0:4,0:2", "0:4,2:4"}, {"4:8,0:2", "4:8,2:4"}};
    for (guint source = 0; source < 2; source++)
        for (guint rank = 0; rank < 4; rank++)
            plan_case_add(builder, 0, regions[source][rank % 2], source, 4 + rank, stage,
                          REFIT_LANDING_HOME, NULL, 0);
    return plan_case_finish(builder);
}
