#pragma once

/*
 * What the tests of strategies share: cases with explicit sides, counts made from a plan's
 * transfers alone, and what every plan of every strategy must satisfy.
 */

#include "model/problem/refit-bound.h"
#include "model/strategy/refit-strategy.h"
#include "plan-cases.h"

#define NETWORK REFIT_LINK_NETWORK
#define NVLINK REFIT_LINK_NVLINK
#define LOCAL REFIT_LINK_LOCAL

/* Sides are what stands between the braces after `framework: explicit`. */
typedef struct {
    const char *topology, *tensors, *source, *pools[2];
} StrategyCase;

static inline RefitLayout *strategy_side(const char *side, RefitModel *model, guint n_gpus,
                                         const char *body) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = g_strdup_printf("{framework: explicit, %s}", body);
    g_autoptr(RefitDoc) doc = input_doc(text);
    RefitLayout *layout = refit_layout_parse(refit_doc_root(doc), side, model, 0, n_gpus, &error);
    g_assert_no_error(error);
    return layout;
}

static inline RefitCase *strategy_case_new(const StrategyCase *described) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = g_new0(RefitCase, 1);
    refit_case->name = g_strdup("made-up");
    refit_case->topology = refit_topology_parse_line(described->topology, &error);
    g_assert_no_error(error);
    refit_case->profile = refit_profile_from_case(NULL, input_store(), &error);
    g_assert_no_error(error);
    guint n_gpus = refit_topology_n_gpus(refit_case->topology);
    g_autofree char *text = g_strconcat(
        "schema: refit.model/1\nname: made-up\nfamily: list\ntensors:\n", described->tensors, NULL);
    g_autoptr(RefitDoc) doc = input_doc(text);
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    refit_case->model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    refit_case->source = strategy_side("train", refit_case->model, n_gpus, described->source);
    refit_case->destinations = g_new0(RefitLayout *, G_N_ELEMENTS(described->pools) + 1);
    while (refit_case->n_destinations < G_N_ELEMENTS(described->pools) &&
           described->pools[refit_case->n_destinations] != NULL) {
        guint pool = refit_case->n_destinations++;
        refit_case->destinations[pool] =
            strategy_side("generation", refit_case->model, n_gpus, described->pools[pool]);
    }
    return refit_case;
}

/* REFIT_LONG=1 asks for what takes too long for every build. */
static inline gboolean strategy_long_tier(void) {
    return g_strcmp0(g_getenv("REFIT_LONG"), "1") == 0;
}

static inline const RefitStrategy *strategy_get(const char *name) {
    g_autoptr(GError) error = NULL;
    const RefitStrategy *strategy = refit_strategy_find(name, &error);
    g_assert_no_error(error);
    return strategy;
}

static inline guint strategy_count(void) {
    guint n = 0;

    while (refit_strategies()[n] != NULL)
        n++;
    return n;
}

/* In the usual shape of the strategy. */
static inline RefitPlan *strategy_plan(const RefitProblem *problem, const char *name) {
    g_autoptr(GError) error = NULL;
    RefitPlan *plan = refit_plan_of_shape(problem, strategy_get(name), NULL, &error);
    g_assert_no_error(error);
    g_assert_nonnull(plan);
    g_assert_cmpstr(plan->strategy, ==, name);
    return plan;
}

/* NULL when the strategy cannot serve such a case. */
static inline RefitPlan *strategy_try_plan(const RefitProblem *problem,
                                           const RefitStrategy *strategy) {
    g_autoptr(GError) error = NULL;
    RefitPlan *plan = refit_plan_new(problem, strategy, &error);

    if (!g_error_matches(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE))
        g_assert_no_error(error);
    return plan;
}

/* Bytes of one transfer over all members of its class. */
static inline guint64 strategy_moved(const RefitPlan *plan, const RefitTransfer *transfer) {
    return refit_plan_transfer_bytes(plan, transfer) *
           plan->problem->classes[transfer->class_index].n_members;
}

/*
 * Bytes that land in parameters, directly or as the needed part of a broadcast tensor. Whole
 * tensors must arrive in buckets.
 */
static inline guint64 strategy_delivered(const RefitPlan *plan) {
    const RefitProblem *problem = plan->problem;
    guint64 bytes = 0;
    /* Per class and rank: bytes of one member received in buckets. */
    g_autofree guint64 *buckets = g_new0(guint64, (gsize)problem->n_classes * problem->n_ranks);

    for (guint i = 0; i < plan->n_transfers; i++) {
        const RefitTransfer *transfer = &plan->transfers[i];

        if (transfer->landing == REFIT_LANDING_HOME)
            bytes += strategy_moved(plan, transfer);
        if (transfer->landing == REFIT_LANDING_BUCKET)
            buckets[(gsize)transfer->class_index * problem->n_ranks + transfer->dst] +=
                refit_plan_transfer_bytes(plan, transfer);
    }
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];
        const guint64 *got = buckets + (gsize)c * problem->n_ranks;

        for (guint i = 0; i < klass->destination->n_pieces; i++) {
            const RefitPiece *piece = &klass->destination->pieces[i];
            guint64 size = refit_class_bytes(klass, refit_region_volume(&piece->region));

            for (guint r = 0; r < piece->n_ranks; r++) {
                g_assert_cmpuint(got[piece->ranks[r]] % klass->bytes, ==, 0);
                bytes += size * klass->n_members * (got[piece->ranks[r]] / klass->bytes);
            }
        }
    }
    return bytes;
}

/* The same, from the destination layouts alone; shards of one rank must not overlap. */
static inline guint64 strategy_needed(const RefitProblem *problem) {
    const RefitCase *refit_case = problem->refit_case;
    guint64 bytes = 0;

    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint pool = 0; pool < refit_case->n_destinations; pool++) {
            g_autoptr(GError) error = NULL;
            const RefitSharding *sharding =
                refit_layout_sharding(refit_case->destinations[pool], klass->members[0]);

            if (sharding == NULL)
                continue;
            g_autoptr(RefitHolding) need =
                refit_holding_new(sharding, klass->n_dims, klass->shape, &error);
            g_assert_no_error(error);
            for (guint i = 0; i < need->n_pieces; i++)
                bytes += refit_class_bytes(klass, refit_region_volume(&need->pieces[i].region)) *
                         need->pieces[i].n_ranks * klass->n_members;
        }
    }
    return bytes;
}

/* The shape of a plan among those of its strategy; NULL: the usual one. */
static inline const RefitShape *strategy_shape(const RefitPlan *plan) {
    const RefitShape *shape = strategy_get(plan->strategy)->shapes;

    if (plan->shape == NULL)
        return NULL;
    while (shape->name != plan->shape)
        shape++;
    return shape;
}

/* Builds the same plan once more, without the proof, and compares. */
static inline void strategy_assert_repeatable(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(plan->problem, plan->strategy);

    const RefitShape *shape = strategy_shape(plan);

    g_assert_true((shape != NULL ? shape->build : strategy_get(plan->strategy)->build)(
        builder, plan->problem, &error));
    g_assert_no_error(error);
    g_autoptr(RefitPlan) again = refit_plan_builder_finish(builder, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(again->digest, ==, plan->digest);
}

/* What holds for every strategy; the proof ran when the plan was made. */
static inline void strategy_assert_sound(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    RefitBound bound;

    g_assert_true(refit_bound_compute(plan->problem, &bound, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(plan->link_bytes[NETWORK], >=, bound.network_bytes);
    if (g_str_equal(plan->strategy, "refit"))
        g_assert_cmpuint(plan->link_bytes[NETWORK], ==, bound.network_bytes);
    g_assert_cmpuint(strategy_needed(plan->problem), ==, plan->problem->needed_bytes);
    g_assert_cmpuint(strategy_delivered(plan), ==, plan->problem->needed_bytes);
    strategy_assert_repeatable(plan);
}
