/*
 * The table of strategies and the one way to make a plan: build, number, prove. A strategy only
 * adds transfers; numbering and accounts are the builder's work and the proof is independent of
 * both, so a wrong strategy cannot produce a plan that looks right.
 */

#include "model/strategy/refit-strategy.h"

#include "model/problem/refit-bound.h"
#include "model/strategy/refit-estimate.h"

static const RefitStrategy *const strategies[] = {
#define X(identifier) &refit_strategy_##identifier,
    REFIT_STRATEGY_MAP(X)
#undef X
        NULL,
};

const RefitStrategy *const *refit_strategies(void) {
    return strategies;
}

const RefitStrategy *refit_strategy_find(const char *name, GError **error) {
    const char *names[G_N_ELEMENTS(strategies)] = {NULL};

    for (guint i = 0; strategies[i] != NULL; i++) {
        if (g_str_equal(strategies[i]->name, name))
            return strategies[i];
        names[i] = strategies[i]->name;
    }
    g_autofree char *known = g_strjoinv(", ", (char **)names);
    const char *nearest = refit_nearest_name(name, names);
    if (nearest != NULL)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "unknown strategy \"%s\" (did you mean \"%s\"?); known: %s", name, nearest,
                    known);
    else
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "unknown strategy \"%s\"; known: %s",
                    name, known);
    return NULL;
}

static RefitPlan *plan_shape(const RefitProblem *problem, const RefitStrategy *strategy,
                             const RefitShape *shape, GError **error) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, strategy->name);
    RefitStrategyBuild build = shape != NULL ? shape->build : strategy->build;
    RefitPlan *plan;

    if (!build(builder, problem, error))
        return NULL;
    plan = refit_plan_builder_finish(builder, error);
    if (plan != NULL && shape != NULL)
        plan->shape = shape->name;
    return plan;
}

/* Puts a better shape in the place of *plan. FALSE, with `error` set: one could not be planned. */
static gboolean choose_shape(const RefitProblem *problem, const RefitStrategy *strategy,
                             RefitPlan **plan, GError **error) {
    double least_s = refit_plan_estimate_s(*plan);
    RefitBound bound;

    if (!refit_bound_compute(problem, &bound, error))
        return FALSE;
    for (const RefitShape *shape = strategy->shapes;
         shape->name != NULL && least_s > REFIT_SHAPE_ENOUGH * bound.time_s; shape++) {
        g_autoptr(RefitPlan) other = plan_shape(problem, strategy, shape, error);
        double seconds;

        if (other == NULL)
            return FALSE;
        seconds = refit_plan_estimate_s(other);
        if (seconds >= least_s)
            continue;
        least_s = seconds;
        refit_plan_free(*plan);
        *plan = g_steal_pointer(&other);
    }
    return TRUE;
}

RefitPlan *refit_plan_of_shape(const RefitProblem *problem, const RefitStrategy *strategy,
                               const RefitShape *shape, GError **error) {
    g_autoptr(RefitPlan) plan = plan_shape(problem, strategy, shape, error);

    return plan != NULL && refit_plan_check(plan, error) ? g_steal_pointer(&plan) : NULL;
}

RefitPlan *refit_plan_new(const RefitProblem *problem, const RefitStrategy *strategy,
                          GError **error) {
    g_autoptr(RefitPlan) plan = plan_shape(problem, strategy, NULL, error);

    if (plan == NULL)
        return NULL;
    if (strategy->shapes != NULL && !choose_shape(problem, strategy, &plan, error))
        return NULL;
    return refit_plan_check(plan, error) ? g_steal_pointer(&plan) : NULL;
}
