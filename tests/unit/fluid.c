/*
 * Max-min fair sharing by progressive filling: give every flow the share of the link where shares
 * are smallest, fix the flows of that link, take their rate off their other links, repeat. Between
 * two dates all rates are constant; the next date is the first end of a flow or of a wait.
 */

#include "fluid.h"

#include <math.h>

#define MAX_ROUTE 4
#define NONE G_MAXUINT

typedef struct {
    const RefitNetsimPlatform *platform;
    const RefitNetsimGraph *graph;
    RefitNetsimTime *times;
    guint n_links;
    double *capacity, *free_rate; /* per link */
    guint *users, *head;          /* per link: flows without a rate yet, and the list of flows */
    guint (*route)[MAX_ROUTE];    /* per item */
    guint (*next)[MAX_ROUTE];     /* per item: next entry of the list of that link */
    guint *hops;                  /* per item; 0 for items that do not flow */
    double *left, *rate, *until;  /* per item: bytes, bytes/s, date when the wait is over */
    guint *missing;               /* per item: predecessors not done */
    GArray *flowing, *waiting, *ready;
    double now;
} Fluid;

static void set_route(Fluid *fluid, guint item) {
    const RefitNetsimPlatform *p = fluid->platform;
    const RefitNetsimItem *what = &fluid->graph->items[item];
    guint *route = fluid->route[item], n = p->n_gpus;

    if (what->src / p->gpus_per_domain == what->dst / p->gpus_per_domain) {
        route[0] = what->src;
        route[1] = n + what->dst;
        fluid->hops[item] = 2;
        return;
    }
    route[0] = 2 * n + what->src;
    route[1] = 3 * n + what->dst;
    fluid->hops[item] = 2;
    if (p->n_leaves > 0 && p->leaf_of[what->src] != p->leaf_of[what->dst]) {
        route[2] = 4 * n + p->leaf_of[what->src];
        route[3] = 4 * n + p->n_leaves + p->leaf_of[what->dst];
        fluid->hops[item] = 4;
    }
}

static void release(Fluid *fluid, guint item, gboolean on_start) {
    const RefitNetsimGraph *graph = fluid->graph;

    for (guint64 i = graph->successor_offsets[item]; i < graph->successor_offsets[item + 1]; i++) {
        guint successor = graph->successors[i] & ~REFIT_NETSIM_ON_START;
        gboolean early = (graph->successors[i] & REFIT_NETSIM_ON_START) != 0;
        if (early == on_start && --fluid->missing[successor] == 0)
            g_array_append_val(fluid->ready, successor);
    }
}

static void finish(Fluid *fluid, guint item) {
    fluid->times[item].end_s = fluid->now;
    release(fluid, item, FALSE);
}

static void start_ready(Fluid *fluid) {
    for (guint i = 0; i < fluid->ready->len; i++) {
        guint item = g_array_index(fluid->ready, guint, i);
        const RefitNetsimItem *what = &fluid->graph->items[item];

        fluid->times[item].start_s = fluid->now;
        release(fluid, item, TRUE);
        fluid->until[item] = what->kind == REFIT_NETSIM_DELAY ? what->delay_s : 0;
        if (what->kind == REFIT_NETSIM_FLOW)
            set_route(fluid, item);
        if (fluid->until[item] > 0) {
            fluid->until[item] += fluid->now;
            g_array_append_val(fluid->waiting, item);
        } else if (what->kind == REFIT_NETSIM_FLOW) {
            g_array_append_val(fluid->flowing, item);
        } else {
            finish(fluid, item);
        }
    }
    g_array_set_size(fluid->ready, 0);
}

static void fix_link(Fluid *fluid, guint link) {
    double share = fluid->free_rate[link] / fluid->users[link];
    guint entry = fluid->head[link];

    while (entry != NONE) {
        guint item = entry / MAX_ROUTE;
        entry = fluid->next[item][entry % MAX_ROUTE];
        if (fluid->rate[item] >= 0)
            continue;
        fluid->rate[item] = share;
        for (guint hop = 0; hop < fluid->hops[item]; hop++) {
            fluid->users[fluid->route[item][hop]]--;
            fluid->free_rate[fluid->route[item][hop]] -= share;
        }
    }
}

static void solve(Fluid *fluid) {
    for (guint link = 0; link < fluid->n_links; link++) {
        fluid->free_rate[link] = fluid->capacity[link];
        fluid->users[link] = 0;
        fluid->head[link] = NONE;
    }
    for (guint i = 0; i < fluid->flowing->len; i++) {
        guint item = g_array_index(fluid->flowing, guint, i);

        fluid->rate[item] = -1;
        for (guint hop = 0; hop < fluid->hops[item]; hop++) {
            guint link = fluid->route[item][hop];
            fluid->next[item][hop] = fluid->head[link];
            fluid->head[link] = item * MAX_ROUTE + hop;
            fluid->users[link]++;
        }
    }
    for (;;) {
        guint tightest = NONE;
        for (guint link = 0; link < fluid->n_links; link++)
            if (fluid->users[link] > 0 &&
                (tightest == NONE || fluid->free_rate[link] / fluid->users[link] <
                                         fluid->free_rate[tightest] / fluid->users[tightest]))
                tightest = link;
        if (tightest == NONE)
            return;
        fix_link(fluid, tightest);
    }
}

static void advance(Fluid *fluid) {
    double step = INFINITY;
    guint kept = 0;

    for (guint i = 0; i < fluid->flowing->len; i++) {
        guint item = g_array_index(fluid->flowing, guint, i);
        step = MIN(step, fluid->left[item] / fluid->rate[item]);
    }
    for (guint i = 0; i < fluid->waiting->len; i++)
        step = MIN(step, fluid->until[g_array_index(fluid->waiting, guint, i)] - fluid->now);
    fluid->now += step;

    g_autoptr(GArray) flowing = g_steal_pointer(&fluid->flowing);
    fluid->flowing = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint i = 0; i < flowing->len; i++) {
        guint item = g_array_index(flowing, guint, i);
        fluid->left[item] -= fluid->rate[item] * step;
        if (fluid->left[item] <= fluid->rate[item] * 1e-12)
            finish(fluid, item);
        else
            g_array_append_val(fluid->flowing, item);
    }
    for (guint i = 0; i < fluid->waiting->len; i++) {
        guint item = g_array_index(fluid->waiting, guint, i);
        if (fluid->until[item] > fluid->now + 1e-12)
            g_array_index(fluid->waiting, guint, kept++) = item;
        else
            finish(fluid, item);
    }
    g_array_set_size(fluid->waiting, kept);
}

static void set_capacities(Fluid *fluid) {
    const RefitNetsimPlatform *p = fluid->platform;

    for (guint link = 0; link < fluid->n_links; link++)
        fluid->capacity[link] = link < 2 * p->n_gpus   ? p->nvlink_bytes_per_s
                                : link < 4 * p->n_gpus ? p->nic_bytes_per_s
                                                       : p->leaf_uplink_bytes_per_s;
}

double fluid_run(const RefitNetsimPlatform *platform, const RefitNetsimGraph *graph,
                 RefitNetsimTime *times_out) {
    guint n = graph->n_items, n_links = 4 * platform->n_gpus + 2 * platform->n_leaves;
    g_autofree double *capacity = g_new(double, n_links), *free_rate = g_new(double, n_links);
    g_autofree guint *users = g_new(guint, n_links), *head = g_new(guint, n_links);
    g_autofree gpointer route = g_new(guint, (gsize)n * MAX_ROUTE);
    g_autofree gpointer next = g_new(guint, (gsize)n * MAX_ROUTE);
    g_autofree guint *hops = g_new0(guint, n), *missing = g_new0(guint, n);
    g_autofree double *left = g_new0(double, n), *rate = g_new0(double, n);
    g_autofree double *until = g_new0(double, n);
    Fluid fluid = {.platform = platform,
                   .graph = graph,
                   .times = times_out,
                   .n_links = n_links,
                   .capacity = capacity,
                   .free_rate = free_rate,
                   .users = users,
                   .head = head,
                   .route = route,
                   .next = next,
                   .hops = hops,
                   .left = left,
                   .rate = rate,
                   .until = until,
                   .missing = missing,
                   .flowing = g_array_new(FALSE, FALSE, sizeof(guint)),
                   .waiting = g_array_new(FALSE, FALSE, sizeof(guint)),
                   .ready = g_array_new(FALSE, FALSE, sizeof(guint))};

    set_capacities(&fluid);
    for (guint64 i = 0; i < graph->successor_offsets[n]; i++)
        missing[graph->successors[i] & ~REFIT_NETSIM_ON_START]++;
    for (guint item = 0; item < n; item++) {
        left[item] = graph->items[item].bytes;
        if (missing[item] == 0)
            g_array_append_val(fluid.ready, item);
    }
    start_ready(&fluid);
    while (fluid.flowing->len + fluid.waiting->len > 0) {
        solve(&fluid);
        advance(&fluid);
        start_ready(&fluid);
    }
    g_array_unref(fluid.flowing);
    g_array_unref(fluid.waiting);
    g_array_unref(fluid.ready);
    return fluid.now;
}
