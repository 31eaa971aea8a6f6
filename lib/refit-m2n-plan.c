/*
 * Plans of the NCCL M2N interface: one for all calls of a group, by the default strategy, proved
 * complete and free of deadlock. Cost: that of planning and proving, once per distinct set of
 * descriptors.
 */

#include "lib/refit-m2n-private.h"
#include "model/strategy/refit-strategy.h"

M2nPlan *m2n_plan_new(RefitCase *refit_case, guint rank, GBytes *key, GError **error) {
    g_autoptr(M2nPlan) self = g_new0(M2nPlan, 1);
    const RefitStrategy *strategy = refit_strategy_find(REFIT_STRATEGY_DEFAULT, error);

    self->refit_case = refit_case;
    self->key = g_bytes_ref(key);
    if (strategy == NULL)
        return NULL;
    self->problem = refit_problem_new(refit_case, error);
    if (self->problem == NULL)
        return NULL;
    self->plan = refit_plan_new(self->problem, strategy, error);
    if (self->plan == NULL)
        return NULL;
    self->schedule = refit_schedule_new(self->plan, error);
    if (self->schedule == NULL || !refit_schedule_check(self->schedule, error) ||
        !refit_schedule_check_budget(self->schedule, error))
        return NULL;
    self->part = refit_part_new(refit_case, self->schedule, rank, error);
    return self->part != NULL ? g_steal_pointer(&self) : NULL;
}

void m2n_plan_free(M2nPlan *self) {
    if (self == NULL)
        return;
    refit_part_free(self->part);
    refit_schedule_free(self->schedule);
    refit_plan_free(self->plan);
    refit_problem_free(self->problem);
    refit_case_free(self->refit_case);
    g_bytes_unref(self->key);
    g_free(self);
}

guint64 *m2n_plan_addresses(const M2nPlan *self, RefitSide side, const M2nCall *calls) {
    const RefitRankViews *views = self->part->views[side];
    guint64 *addresses;

    if (views == NULL)
        return NULL;
    addresses = g_new0(guint64, views->n_parameters);
    for (guint v = 0; v < views->n_views; v++)
        addresses[views->views[v].parameter] = calls[views->views[v].tensor].sides[side].address;
    return addresses;
}
