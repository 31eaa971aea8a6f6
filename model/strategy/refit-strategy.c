/*
 * The table of strategies and the one way to make a plan: build, number, prove. A strategy only
 * adds transfers; numbering and accounts are the builder's work and the proof is independent of
 * both, so a wrong strategy cannot produce a plan that looks right.
 */

#include "model/strategy/refit-strategy.h"

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

RefitPlan *refit_plan_new(const RefitProblem *problem, const RefitStrategy *strategy,
                          GError **error) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, strategy->name);
    g_autoptr(RefitPlan) plan = NULL;

    if (!strategy->build(builder, problem, error))
        return NULL;
    plan = refit_plan_builder_finish(builder, error);
    if (plan == NULL || !refit_plan_check(plan, error))
        return NULL;
    return g_steal_pointer(&plan);
}
