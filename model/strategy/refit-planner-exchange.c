/*
 * Strategy `refit`: the exchange over NVLink. A cell has come into a domain in stripes; each needer
 * there must get those that others took in.
 *
 *   few needers                 each taker sends its stripe to each other one: n (n - 1) transfers
 *   a stripe for each of many   doubling: in step j everyone passes the 2^j stripes it has to the
 *                               needer 2^j places on: n log2(n) transfers, in which each receives
 *                               (n - 1)/n of the cell just the same
 *   fewer stripes               each goes down a tree over the same pairs of needers: n - 1
 */

#include "model/strategy/refit-planner-private.h"

#include <string.h>

#define MAX_LEVELS 32 /* of doubling */

static const RefitLanded *landed_at(const RefitPlanner *self, guint arrival, guint stripe) {
    return &g_array_index(self->landed, RefitLanded, arrival * self->cuts->len + stripe);
}

/* Each taker sends its stripe to each other needer. */
static void swap_stripes(RefitPlanner *self, guint class_index, guint number) {
    const RefitArrival *arrival = &g_array_index(self->arrivals, RefitArrival, number);

    for (guint i = 0; i < self->cuts->len; i++) {
        const RefitLanded *landed = landed_at(self, number, i);
        guint taker = g_array_index(self->takers, guint, arrival->first_taker + i);
        guint region;

        if (landed->n == 0)
            continue;
        region = refit_planner_whole_stripe(self, &g_array_index(self->cuts, RefitCut, i))->region;
        for (guint r = 0; r < arrival->n_ranks; r++)
            if (arrival->ranks[r] != taker)
                refit_plan_builder_add(self->builder, class_index, region, taker, arrival->ranks[r],
                                       self->exchange_stage, REFIT_LANDING_HOME, landed->handles,
                                       landed->n);
    }
}

typedef struct {
    RefitPlanner *self;
    guint class_index, region, root;
    const RefitArrival *arrival;
    const RefitLanded *landed; /* at the root */
    guint *handles;            /* per needer */
} Tree;

static void pass_on(guint level, guint from, guint to, gpointer data) {
    const Tree *tree = data;
    gboolean root = from == tree->root;

    refit_plan_builder_set_least_depth(tree->self->builder, level);
    tree->handles[to] = refit_plan_builder_add(
        tree->self->builder, tree->class_index, tree->region, tree->arrival->ranks[from],
        tree->arrival->ranks[to], tree->self->exchange_stage, REFIT_LANDING_HOME,
        root ? tree->landed->handles : &tree->handles[from], root ? tree->landed->n : 1);
}

/* Few stripes for many needers: each goes down a tree. */
static void spread_stripes(RefitPlanner *self, guint class_index, guint number) {
    const RefitArrival *arrival = &g_array_index(self->arrivals, RefitArrival, number);
    g_autofree guint *handles = g_new(guint, arrival->n_ranks);

    for (guint i = 0; i < self->cuts->len; i++) {
        guint taker = g_array_index(self->takers, guint, arrival->first_taker + i);
        Tree tree = {.self = self,
                     .class_index = class_index,
                     .arrival = arrival,
                     .landed = landed_at(self, number, i),
                     .handles = handles};

        if (tree.landed->n == 0)
            continue;
        tree.region =
            refit_planner_whole_stripe(self, &g_array_index(self->cuts, RefitCut, i))->region;
        while (arrival->ranks[tree.root] != taker)
            tree.root++;
        refit_spread(arrival->n_ranks, tree.root, pass_on, &tree);
    }
    refit_plan_builder_set_least_depth(self->builder, 0);
}

/*
 * The cell's stripes last - n + 1 .. last of `count`, modulo that, as one region. Stripes are cut
 * along one dim, so these are one part of it, or two.
 */
static guint joined_stripes(const RefitPlanner *self, const RefitCell *cell, guint last, guint n,
                            guint count) {
    g_auto(RefitRegion) region = refit_region_copy(&cell->region);
    const RefitCut *cuts = (const RefitCut *)(gpointer)self->cuts->data;
    const RefitIntervalList *whole;
    RefitIntervalList *list;
    guint dim = 0, first = (last + count + 1 - n) % count;
    guint64 lo = 0, hi = 0;

    while (cuts[0].stripe.dims[dim]->extent == region.dims[dim]->extent)
        dim++;
    whole = region.dims[dim];
    for (guint i = 0; i < MAX(first, last + 1); i++) {
        lo += i < first ? cuts[i].stripe.dims[dim]->extent : 0;
        hi += i <= last ? cuts[i].stripe.dims[dim]->extent : 0;
    }
    if (lo < hi) {
        list = refit_interval_list_slice(whole, lo, hi);
    } else {
        g_autoptr(RefitIntervalList) front = refit_interval_list_slice(whole, 0, hi);
        g_autoptr(RefitIntervalList) back = refit_interval_list_slice(whole, lo, whole->extent);
        list = refit_planner_join_lists(front, back);
    }
    refit_interval_list_unref(region.dims[dim]);
    region.dims[dim] = list;
    return refit_plan_builder_region(self->builder, &region);
}

/*
 * As many stripes as needers, needer i has stripe i: in each step every needer passes all that it
 * has to one other, so that log2(n) steps do instead of n - 1. Regions are the same in every
 * domain: `joined` keeps them, by level and needer.
 */
static void double_stripes(RefitPlanner *self, guint class_index, const RefitCell *cell,
                           guint number, GArray *joined) {
    const RefitArrival *arrival = &g_array_index(self->arrivals, RefitArrival, number);
    guint n = arrival->n_ranks, level = 0;
    /* handles[level * n + i]: what needer i received in that step. */
    g_autofree guint *handles = g_new(guint, (gsize)n * MAX_LEVELS);
    guint deps[REFIT_MAX_GROUP + MAX_LEVELS];

    for (guint have = 1; have < n; have *= 2, level++) {
        guint moved = MIN(have, n - have);

        refit_plan_builder_set_least_depth(self->builder, level);
        for (guint from = 0; from < n; from++) {
            const RefitLanded *landed = landed_at(self, number, from);
            guint to = (from + have) % n, n_deps = landed->n;

            memcpy(deps, landed->handles, n_deps * sizeof *deps);
            for (guint l = 0; l < level && (1u << l) < moved; l++)
                deps[n_deps++] = handles[l * n + from];
            if (joined->len == level * n + from) {
                guint region = joined_stripes(self, cell, from, moved, n);
                g_array_append_val(joined, region);
            }
            handles[level * n + to] = refit_plan_builder_add(
                self->builder, class_index, g_array_index(joined, guint, level * n + from),
                arrival->ranks[from], arrival->ranks[to], self->exchange_stage, REFIT_LANDING_HOME,
                deps, n_deps);
        }
    }
    refit_plan_builder_set_least_depth(self->builder, 0);
}

void refit_planner_exchange(RefitPlanner *self, guint class_index, const RefitCell *cell) {
    g_autoptr(GArray) joined = g_array_new(FALSE, FALSE, sizeof(guint));
    gboolean any_empty = FALSE;

    for (guint i = 0; i < self->cuts->len; i++)
        any_empty |= refit_region_is_empty(&g_array_index(self->cuts, RefitCut, i).stripe);
    for (guint a = 0; a < self->arrivals->len; a++) {
        guint n = g_array_index(self->arrivals, RefitArrival, a).n_ranks;

        if (n <= REFIT_MAX_SWAP)
            swap_stripes(self, class_index, a);
        else if (n == self->cuts->len && !any_empty)
            double_stripes(self, class_index, cell, a, joined);
        else
            spread_stripes(self, class_index, a);
    }
}
