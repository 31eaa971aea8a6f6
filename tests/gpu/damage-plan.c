/*
 * Plans that would never end, for programs linked with --wrap=refit_plan_new: with
 * REFIT_STANDIN_SPOIL=plan in the environment, each plan is changed after it was proved, so that a
 * message follows another one of its own step. Whatever carries plans out must refuse it.
 */

#include "model/strategy/refit-strategy.h"

/* Names that the linker gives. */
RefitPlan *__real_refit_plan_new(const RefitProblem *problem, const RefitStrategy *strategy,
                                 GError **error);
RefitPlan *__wrap_refit_plan_new(const RefitProblem *problem, const RefitStrategy *strategy,
                                 GError **error);

static void damage(RefitPlan *plan) {
    for (guint t = 0; t < plan->n_transfers; t++) {
        const RefitTransfer *transfer = &plan->transfers[t];
        if (transfer->n_deps > 0) {
            const RefitPair *pair = &plan->pairs[transfer->pair];
            guint dep = plan->deps[transfer->first_dep];
            RefitPair *before = (RefitPair *)&plan->pairs[plan->transfers[dep].pair];
            before->stage = pair->stage;
            before->offset = pair->offset;
            for (guint i = 0; i < before->n_transfers; i++)
                ((RefitTransfer *)&plan->transfers[before->first_transfer + i])->stage =
                    pair->stage;
            return;
        }
    }
    g_error("no message of this plan follows another");
}

RefitPlan *__wrap_refit_plan_new(const RefitProblem *problem, const RefitStrategy *strategy,
                                 GError **error) {
    RefitPlan *plan = __real_refit_plan_new(problem, strategy, error);

    if (plan != NULL && g_strcmp0(g_getenv("REFIT_STANDIN_SPOIL"), "plan") == 0)
        damage(plan);
    return plan;
}
