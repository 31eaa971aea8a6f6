/*
 * Dependencies of transfers become dependencies of pairs: pairs are gone through in turn, and each
 * pair and stage carries a mark of the last pair that named it, so that none is named twice. Cost:
 * transfers and their dependencies.
 */

#include "model/plan/refit-plan-deps.h"

struct _RefitPlanDeps {
    guint *offsets; /* per pair: slice of deps */
    GArray *deps;   /* guint */
};

RefitPlanDeps *refit_plan_deps_new(const RefitPlan *plan) {
    RefitPlanDeps *self = g_new(RefitPlanDeps, 1);
    g_autofree guint *pair_mark = g_new0(guint, MAX(plan->n_pairs, 1));
    g_autofree guint *stage_mark = g_new0(guint, MAX(plan->n_stages, 1));

    self->offsets = g_new(guint, (gsize)plan->n_pairs + 1);
    self->deps = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint p = 0; p < plan->n_pairs; p++) {
        const RefitPair *pair = &plan->pairs[p];

        self->offsets[p] = self->deps->len;
        for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++)
            for (guint d = 0; d < plan->transfers[t].n_deps; d++) {
                const RefitTransfer *on =
                    &plan->transfers[plan->deps[plan->transfers[t].first_dep + d]];
                gboolean inside = on->stage == pair->stage;
                guint *mark = inside ? &pair_mark[on->pair] : &stage_mark[on->stage];
                guint dep = inside ? on->pair : on->stage | REFIT_PLAN_DEP_STAGE;

                if (*mark != p + 1)
                    g_array_append_val(self->deps, dep);
                *mark = p + 1;
            }
    }
    self->offsets[plan->n_pairs] = self->deps->len;
    return self;
}

void refit_plan_deps_free(RefitPlanDeps *deps) {
    if (deps == NULL)
        return;
    g_free(deps->offsets);
    g_array_unref(deps->deps);
    g_free(deps);
}

const guint *refit_plan_deps_get(const RefitPlanDeps *deps, guint pair, guint *n_out) {
    *n_out = deps->offsets[pair + 1] - deps->offsets[pair];
    return (const guint *)(gpointer)deps->deps->data + deps->offsets[pair];
}
