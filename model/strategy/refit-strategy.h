#pragma once

/*
 * Strategies: ways to make a plan. A table of data; adding one touches one new file
 * (refit-strategy-NAME.c), one line of REFIT_STRATEGY_MAP and one of model/CMakeLists.txt.
 */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

/* What reaches those who need it. */
typedef enum {
    REFIT_SENDS_SHARDS, /* what they need, where they need it */
    REFIT_SENDS_WHOLE,  /* whole tensors in buckets, from which they install their part */
    REFIT_SENDS_BOTH,   /* some tensors this way, some that */
} RefitStrategySends;

/* Adds stages, batches, transfers and obligations for the whole problem. */
typedef gboolean (*RefitStrategyBuild)(RefitPlanBuilder *builder, const RefitProblem *problem,
                                       GError **error);

/* One of several ways in which a strategy may plan a problem. */
typedef struct {
    const char *name; /* static */
    RefitStrategyBuild build;
} RefitShape;

typedef struct {
    const char *name;
    const char *summary; /* one line for people */
    RefitStrategySends sends;
    RefitStrategyBuild build;
    /* Further shapes of its plans, ended by one without a name; NULL: there is but `build`. */
    const RefitShape *shapes;
} RefitStrategy;

/* X(identifier): each defined in its own file as `const RefitStrategy refit_strategy_IDENTIFIER`.
 */
#define REFIT_STRATEGY_MAP(X)                                                                      \
    X(gather_broadcast)                                                                            \
    X(direct)                                                                                      \
    X(ring)                                                                                        \
    X(hybrid)                                                                                      \
    X(refit)

#define X(identifier) extern const RefitStrategy refit_strategy_##identifier;
REFIT_STRATEGY_MAP(X)
#undef X

#define REFIT_STRATEGY_DEFAULT "refit"

/* NULL-terminated, in the order shown to users. */
const RefitStrategy *const *refit_strategies(void);
/* REFIT_ERROR_INVALID lists the names and the nearest one. */
const RefitStrategy *refit_strategy_find(const char *name, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Plan and run the coverage proof; a plan that fails it is never returned. The first plans a stated
 * shape of the strategy, the usual one, `build`, if it is NULL. The second takes the shape with the
 * least refit_plan_estimate_s(), the first of equals; the usual one comes first, and the others are
 * not looked at when it is within REFIT_SHAPE_ENOUGH of the bound.
 */
#define REFIT_SHAPE_ENOUGH 1.02
RefitPlan *refit_plan_of_shape(const RefitProblem *problem, const RefitStrategy *strategy,
                               const RefitShape *shape, GError **error) G_GNUC_WARN_UNUSED_RESULT;
RefitPlan *refit_plan_new(const RefitProblem *problem, const RefitStrategy *strategy,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
