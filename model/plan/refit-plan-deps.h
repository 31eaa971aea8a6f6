#pragma once

/*
 * What the messages of a plan wait for, gathered per pair: messages of other pairs in the same
 * stage, and everything that an earlier stage brings to the sender. A pair has the same in every
 * batch.
 */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

#define REFIT_PLAN_DEP_STAGE 0x80000000u /* or-ed into a dependency: a stage, not a pair */

typedef struct _RefitPlanDeps RefitPlanDeps;

/* `plan` need not outlive it. Cost: transfers and their dependencies. */
RefitPlanDeps *refit_plan_deps_new(const RefitPlan *plan);
void refit_plan_deps_free(RefitPlanDeps *deps);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitPlanDeps, refit_plan_deps_free)

/* Distinct pairs of the same stage and earlier stages that `pair` waits for. Borrowed. */
const guint *refit_plan_deps_get(const RefitPlanDeps *deps, guint pair, guint *n_out);

G_END_DECLS
