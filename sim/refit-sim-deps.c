/*
 * A message is found by its pair and batch, an arrival by a key of batch, stage and rank, both by
 * bisection. Arrivals that nothing waits for do not exist, which keeps their number near that of
 * the messages that forward something.
 */

#include "sim/refit-sim-deps.h"

struct _RefitSimDeps {
    const RefitPlan *plan;
    RefitPlanDeps *pairs;
    guint *pair_offsets; /* per pair, slice of pair_messages, by batch */
    guint *pair_messages;
    GArray *arrivals; /* guint64 keys, sorted */
};

static void index_messages(RefitSimDeps *self) {
    const RefitPlan *plan = self->plan;

    for (guint m = 0; m < plan->n_messages; m++)
        self->pair_offsets[plan->messages[m].pair + 2]++;
    for (guint p = 2; p < plan->n_pairs + 2; p++)
        self->pair_offsets[p] += self->pair_offsets[p - 1];
    for (guint m = 0; m < plan->n_messages; m++)
        self->pair_messages[self->pair_offsets[plan->messages[m].pair + 1]++] = m;
}

static guint64 arrival_key(const RefitPlan *plan, guint batch, guint stage, guint rank) {
    return ((guint64)batch * plan->n_stages + stage) * plan->problem->n_ranks + rank;
}

static int compare_keys(gconstpointer left, gconstpointer right) {
    const guint64 *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

static void collect_arrivals(RefitSimDeps *self) {
    const RefitPlan *plan = self->plan;
    guint64 *keys;
    guint kept = 0;

    for (guint m = 0; m < plan->n_messages; m++) {
        const RefitMessage *message = &plan->messages[m];
        guint n;
        const guint *deps = refit_sim_deps_of_pair(self, message->pair, &n);

        for (guint d = 0; d < n; d++)
            if ((deps[d] & REFIT_PLAN_DEP_STAGE) != 0) {
                guint64 key = arrival_key(plan, message->batch, deps[d] & ~REFIT_PLAN_DEP_STAGE,
                                          plan->pairs[message->pair].src);
                g_array_append_val(self->arrivals, key);
            }
    }
    g_array_sort(self->arrivals, compare_keys);
    keys = (guint64 *)(gpointer)self->arrivals->data;
    for (guint i = 0; i < self->arrivals->len; i++)
        if (kept == 0 || keys[i] != keys[kept - 1])
            keys[kept++] = keys[i];
    g_array_set_size(self->arrivals, kept);
}

RefitSimDeps *refit_sim_deps_new(const RefitPlan *plan) {
    RefitSimDeps *self = g_new0(RefitSimDeps, 1);

    self->plan = plan;
    self->pairs = refit_plan_deps_new(plan);
    self->pair_offsets = g_new0(guint, (gsize)plan->n_pairs + 2);
    self->pair_messages = g_new(guint, MAX(plan->n_messages, 1));
    self->arrivals = g_array_new(FALSE, FALSE, sizeof(guint64));
    index_messages(self);
    collect_arrivals(self);
    return self;
}

void refit_sim_deps_free(RefitSimDeps *deps) {
    if (deps == NULL)
        return;
    refit_plan_deps_free(deps->pairs);
    g_free(deps->pair_offsets);
    g_free(deps->pair_messages);
    g_array_unref(deps->arrivals);
    g_free(deps);
}

const guint *refit_sim_deps_of_pair(const RefitSimDeps *deps, guint pair, guint *n_out) {
    return refit_plan_deps_get(deps->pairs, pair, n_out);
}

guint refit_sim_deps_message(const RefitSimDeps *deps, guint pair, guint batch) {
    guint lo = deps->pair_offsets[pair], hi = deps->pair_offsets[pair + 1];

    while (lo < hi) {
        guint middle = lo + (hi - lo) / 2;
        guint m = deps->pair_messages[middle];

        if (deps->plan->messages[m].batch == batch)
            return m;
        if (deps->plan->messages[m].batch < batch)
            lo = middle + 1;
        else
            hi = middle;
    }
    return REFIT_SIM_NONE;
}

static gboolean is_staging(guint8 landing) {
    return landing == REFIT_LANDING_RELAY || landing == REFIT_LANDING_BUCKET;
}

gboolean refit_sim_deps_from_staging(const RefitSimDeps *deps, guint pair) {
    const RefitPlan *plan = deps->plan;
    guint first = plan->pairs[pair].first_transfer;

    for (guint t = first; t < first + plan->pairs[pair].n_transfers; t++) {
        const RefitTransfer *transfer = &plan->transfers[t];

        if (transfer->n_deps == 0)
            return FALSE;
        for (guint d = 0; d < transfer->n_deps; d++)
            if (!is_staging(plan->transfers[plan->deps[transfer->first_dep + d]].landing))
                return FALSE;
    }
    return TRUE;
}

gboolean refit_sim_deps_into_staging(const RefitSimDeps *deps, guint pair) {
    const RefitPlan *plan = deps->plan;
    guint first = plan->pairs[pair].first_transfer;

    for (guint t = first; t < first + plan->pairs[pair].n_transfers; t++)
        if (!is_staging(plan->transfers[t].landing))
            return FALSE;
    return TRUE;
}

guint refit_sim_deps_n_arrivals(const RefitSimDeps *deps) {
    return deps->arrivals->len;
}

guint refit_sim_deps_arrival(const RefitSimDeps *deps, guint batch, guint stage, guint rank) {
    guint64 key = arrival_key(deps->plan, batch, stage, rank);
    guint index;

    return g_array_binary_search(deps->arrivals, &key, compare_keys, &index) ? index
                                                                             : REFIT_SIM_NONE;
}
