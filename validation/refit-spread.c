/*
 * The least that the busiest rank must send.
 *
 * Bytes of a set may be shared between its members, so a limit L per rank is kept exactly when a
 * flow from the sets through their members, each with capacity L, carries everything. If it does
 * not, the sets that cannot get rid of their bytes and the ranks they reach are a bottleneck: all
 * bytes of those sets are confined to those ranks, so L is at least their ratio. Raising L to it
 * and going on with the flow found so far ends at the answer, usually after a few rounds, since
 * each ratio is that of a new, tighter bottleneck. Flows by Dinic's method: shortest paths first.
 * Cost per round: in practice a few passes over the members of all sets.
 */

#include "validation/refit-cover.h"

#include <string.h>

#define UNREACHED G_MAXUINT

/* Edge e leads from set owner[e] to rank target[e]. Nodes: sets 0 .. n_sets - 1, then ranks. */
typedef struct {
    guint n_sets, n_ranks, n_edges;
    guint *first, *owner, *target; /* edges of set s: first[s] .. first[s + 1] */
    guint *back_first, *back;      /* edges of rank r: back[back_first[r] ..] */
    guint64 *flow;                 /* per edge */
    guint64 *left;                 /* per set: bytes not yet placed */
    guint64 *room;                 /* per rank: what it may still send */
    guint *level, *arc, *queue, *path;
} Flow;

static void number_ranks(Flow *flow, const RefitRankSet *sets, guint n) {
    g_autofree guint *names = g_new(guint, MAX(flow->n_edges, 1));
    guint e = 0;

    for (guint s = 0; s < n; s++)
        for (guint i = 0; i < sets[s].n; i++)
            names[e++] = sets[s].members[i];
    refit_ranks_sort(names, flow->n_edges);
    flow->n_ranks = refit_ranks_drop_repeats(names, flow->n_edges);
    e = 0;
    for (guint s = 0; s < n; s++) {
        flow->first[s] = e;
        for (guint i = 0, at = 0; i < sets[s].n; i++) {
            guint hi = flow->n_ranks;
            while (at < hi) { /* first name that is not below the member */
                guint middle = at + (hi - at) / 2;
                if (names[middle] < sets[s].members[i])
                    at = middle + 1;
                else
                    hi = middle;
            }
            flow->owner[e] = s;
            flow->target[e++] = at;
        }
    }
    flow->first[n] = e;
}

static void index_back(Flow *flow) {
    flow->back_first = g_new0(guint, flow->n_ranks + 1);
    flow->back = g_new(guint, MAX(flow->n_edges, 1));
    g_autofree guint *next = g_new0(guint, MAX(flow->n_ranks, 1));
    for (guint e = 0; e < flow->n_edges; e++)
        flow->back_first[flow->target[e] + 1]++;
    for (guint r = 0; r < flow->n_ranks; r++)
        flow->back_first[r + 1] += flow->back_first[r];
    for (guint e = 0; e < flow->n_edges; e++) {
        guint r = flow->target[e];
        flow->back[flow->back_first[r] + next[r]++] = e;
    }
}

static Flow *flow_new(const RefitRankSet *sets, const guint64 *bytes, guint n) {
    Flow *flow = g_new0(Flow, 1);

    flow->n_sets = n;
    for (guint s = 0; s < n; s++)
        flow->n_edges += sets[s].n;
    flow->first = g_new(guint, n + 1);
    flow->owner = g_new(guint, MAX(flow->n_edges, 1));
    flow->target = g_new(guint, MAX(flow->n_edges, 1));
    number_ranks(flow, sets, n);
    index_back(flow);
    flow->flow = g_new0(guint64, MAX(flow->n_edges, 1));
    flow->left = g_memdup2(bytes, n * sizeof *bytes);
    flow->room = g_new0(guint64, MAX(flow->n_ranks, 1));
    guint n_nodes = n + flow->n_ranks;
    flow->level = g_new(guint, n_nodes);
    flow->arc = g_new(guint, n_nodes);
    flow->queue = g_new(guint, n_nodes);
    flow->path = g_new(guint, n_nodes);
    return flow;
}

static void flow_free(Flow *flow) {
    guint *lists[] = {flow->first, flow->owner, flow->target, flow->back_first, flow->back,
                      flow->level, flow->arc,   flow->queue,  flow->path};

    for (guint i = 0; i < G_N_ELEMENTS(lists); i++)
        g_free(lists[i]);
    g_free(flow->flow);
    g_free(flow->left);
    g_free(flow->room);
    g_free(flow);
}

/* Levels of all nodes that bytes left over can reach; TRUE when one of them is a rank with room. */
static gboolean find_levels(Flow *flow) {
    guint head = 0, tail = 0;
    gboolean found = FALSE;

    for (guint node = 0; node < flow->n_sets + flow->n_ranks; node++) {
        flow->level[node] = UNREACHED;
        flow->arc[node] = 0;
        if (node >= flow->n_sets || flow->left[node] == 0)
            continue;
        flow->level[node] = 0;
        flow->queue[tail++] = node;
    }
    while (head < tail) {
        guint node = flow->queue[head++], rank = node - flow->n_sets;
        gboolean is_set = node < flow->n_sets;
        const guint *bounds = is_set ? &flow->first[node] : &flow->back_first[rank];

        found |= !is_set && flow->room[rank] > 0;
        for (guint i = bounds[0]; i < bounds[1]; i++) {
            guint e = is_set ? i : flow->back[i];
            guint to = is_set ? flow->n_sets + flow->target[e] : flow->owner[e];
            if (flow->level[to] != UNREACHED || (!is_set && flow->flow[e] == 0))
                continue;
            flow->level[to] = flow->level[node] + 1;
            flow->queue[tail++] = to;
        }
    }
    return found;
}

/* The edge by which the path leaves `node`, or n_edges when it cannot go on. */
static guint next_edge(Flow *flow, guint node, guint *to_out) {
    gboolean is_set = node < flow->n_sets;
    guint rank = node - flow->n_sets;
    const guint *bounds = is_set ? &flow->first[node] : &flow->back_first[rank];

    for (; bounds[0] + flow->arc[node] < bounds[1]; flow->arc[node]++) {
        guint i = bounds[0] + flow->arc[node], e = is_set ? i : flow->back[i];
        guint to = is_set ? flow->n_sets + flow->target[e] : flow->owner[e];
        if (flow->level[to] == flow->level[node] + 1 && (is_set || flow->flow[e] > 0)) {
            *to_out = to;
            return e;
        }
    }
    return flow->n_edges;
}

/* Moves what the path of `length` edges from `set` to `rank` allows. Edges go forth and back in
 * turn. */
static void augment(Flow *flow, guint set, guint rank, guint length) {
    guint64 amount = MIN(flow->left[set], flow->room[rank]);

    for (guint i = 1; i < length; i += 2)
        amount = MIN(amount, flow->flow[flow->path[i]]);
    for (guint i = 0; i < length; i++) {
        if (i % 2 == 0)
            flow->flow[flow->path[i]] += amount;
        else
            flow->flow[flow->path[i]] -= amount;
    }
    flow->left[set] -= amount;
    flow->room[rank] -= amount;
}

/* All shortest paths from one set. */
static void drain(Flow *flow, guint set) {
    guint node = set, length = 0;

    while (flow->left[set] > 0) {
        guint to;

        if (node >= flow->n_sets && flow->room[node - flow->n_sets] > 0) {
            augment(flow, set, node - flow->n_sets, length);
            node = set;
            length = 0;
            continue;
        }
        guint e = next_edge(flow, node, &to);
        if (e < flow->n_edges) {
            flow->path[length++] = e;
            node = to;
            continue;
        }
        if (length == 0)
            return;
        e = flow->path[--length]; /* back to where it came from, past this edge */
        node = length % 2 == 0 ? flow->owner[e] : flow->n_sets + flow->target[e];
        flow->arc[node]++;
    }
}

/* The ratio of the bottleneck that the last search of levels met. */
static guint64 bottleneck(const Flow *flow, const guint64 *bytes) {
    guint64 confined = 0, n_ranks = 0;

    for (guint s = 0; s < flow->n_sets; s++)
        confined += flow->level[s] != UNREACHED ? bytes[s] : 0;
    for (guint r = 0; r < flow->n_ranks; r++)
        n_ranks += flow->level[flow->n_sets + r] != UNREACHED ? 1 : 0;
    n_ranks = MAX(n_ranks, 1); /* a set with bytes left has members */
    return confined / n_ranks + (confined % n_ranks != 0);
}

guint64 refit_spread_least(const RefitRankSet *sets, const guint64 *bytes, guint n) {
    guint64 limit = 0, total = 0;

    for (guint s = 0; s < n; s++) {
        limit = MAX(limit, bytes[s] / sets[s].n + (bytes[s] % sets[s].n != 0));
        total += bytes[s];
    }
    if (total == 0)
        return 0;
    Flow *flow = flow_new(sets, bytes, n);
    for (guint r = 0; r < flow->n_ranks; r++)
        flow->room[r] = limit;
    for (;;) {
        gboolean done = TRUE;
        while (find_levels(flow))
            for (guint s = 0; s < n; s++)
                drain(flow, s);
        for (guint s = 0; s < n; s++)
            done = done && flow->left[s] == 0;
        if (done)
            break;
        guint64 raised = bottleneck(flow, bytes);
        g_assert(raised > limit); /* those ranks are full with bytes of those sets */
        for (guint r = 0; r < flow->n_ranks; r++)
            flow->room[r] += raised - limit;
        limit = raised;
    }
    flow_free(flow);
    return limit;
}
