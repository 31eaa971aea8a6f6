/*
 * The broadcast of a region from one rank to all ranks of both sides, on one of several channels:
 * channel j leaves a domain at its j-th GPU and enters the next at the one after, as collective
 * libraries rotate their rings.
 *
 * Few ranks are one chain through all, domain by domain. Among many, a chain over the domains
 * brings it to one rank of each, which spreads it inside (refit_spread). Cost: ranks.
 */

#include "model/strategy/refit-strategy-private.h"

/* Most ranks of a chain through all. */
#define MAX_CHAIN 16

void refit_ring_order(const RefitTopology *topology, const guint *ranks, guint n_ranks,
                      guint channel, guint *order_out) {
    for (guint first = 0; first < n_ranks;) {
        guint n = refit_domain_run(topology, ranks, n_ranks, first);

        for (guint i = 0; i < n; i++)
            order_out[first + i] = ranks[first + (channel + 1 + i) % n];
        first += n;
    }
}

void refit_travel_pass(guint level, guint from, guint to, gpointer data) {
    const RefitTravel *travel = data;
    guint source = travel->group[from], target = travel->group[to];
    guint *state = travel->state;
    const guint *deps = &state[source];
    guint n_deps = 1;

    if (state[target] != REFIT_NOT_HELD)
        return;
    if (state[source] == REFIT_HELD) {
        deps = travel->deps != NULL ? (const guint *)(gpointer)travel->deps->data : NULL;
        n_deps = travel->deps != NULL ? travel->deps->len : 0;
    }
    refit_plan_builder_set_least_depth(travel->builder, travel->first_level + level);
    state[target] = refit_plan_builder_add(travel->builder, travel->class_index, travel->region,
                                           travel->ranks[source], travel->ranks[target],
                                           travel->stage, travel->landing, deps, n_deps);
    refit_plan_builder_set_least_depth(travel->builder, 0);
}

static gboolean same_domain(const RefitTopology *topology, guint a, guint b) {
    return refit_topology_domain_of(topology, a) == refit_topology_domain_of(topology, b);
}

static void pass_between(RefitTravel *travel, guint level, guint from, guint to) {
    const guint pair[2] = {from, to};

    travel->group = pair;
    travel->first_level = level;
    refit_travel_pass(0, 0, 1, travel);
    travel->group = NULL;
}

/*
 * A chain over the domains and a spread in each. The root gives each channel to one neighbour only,
 * which serves the rest of its domain: its own NVLink port would else be the narrowest place of
 * all.
 */
static void spread_to_all(const RefitTopology *topology, RefitTravel *travel, guint n,
                          guint channel, guint root) {
    const guint *ranks = travel->ranks;
    guint first = root, size, before;
    g_autofree guint *group = g_new(guint, n);

    while (first > 0 && same_domain(topology, ranks[first - 1], ranks[root]))
        first--;
    size = refit_domain_run(topology, ranks, n, first);
    before = first + channel % size;
    if (size > 1) {
        guint neighbour = before != root ? before : first + (root - first + 1) % size, others = 0;

        pass_between(travel, 0, root, neighbour);
        for (guint i = first; i < first + size; i++)
            if (i != root)
                group[others++] = i;
        travel->group = group;
        travel->first_level = 1;
        refit_spread(others, neighbour - first - (neighbour > root ? 1 : 0), refit_travel_pass,
                     travel);
    }
    for (guint hop = 1, done = size; done < n; hop++, done += size) {
        first = (first + size) % n;
        size = refit_domain_run(topology, ranks, n, first);
        pass_between(travel, hop, before, first + channel % size);
        before = first + channel % size;
        for (guint i = 0; i < size; i++)
            group[i] = first + i;
        travel->group = group;
        travel->first_level = hop + 1;
        refit_spread(size, channel % size, refit_travel_pass, travel);
    }
}

guint refit_broadcast_hops(const RefitTopology *topology, const GArray *everyone) {
    const guint *ranks = (const guint *)(gpointer)everyone->data;
    guint n = everyone->len, hops = 0;

    for (guint first = 0; first < n && n > MAX_CHAIN; hops++)
        first += refit_domain_run(topology, ranks, n, first);
    return n > MAX_CHAIN ? hops : n;
}

/* One chain through all ranks, domain by domain. */
static void chain_to_all(const RefitTopology *topology, RefitTravel *travel, guint n, guint channel,
                         guint root) {
    guint start = 0, from = root;
    g_autofree guint *order = g_new(guint, n);
    g_autofree guint *place_of = g_new(guint, (gsize)travel->ranks[n - 1] + 1);

    for (guint i = 0; i < n; i++)
        place_of[travel->ranks[i]] = i;
    refit_ring_order(topology, travel->ranks, n, channel, order);
    while (order[start] != travel->ranks[root])
        start++;
    for (guint i = 1; i < n; i++) {
        guint to = place_of[order[(start + i) % n]];

        pass_between(travel, 0, from, to);
        from = to;
    }
}

void refit_broadcast_add(const RefitBroadcast *broadcast, guint class_index,
                         const RefitRegion *region, guint channel, const GArray *root_deps) {
    const guint *ranks = (const guint *)(gpointer)broadcast->everyone->data;
    guint n = broadcast->everyone->len, root = 0;
    g_autofree guint *state = g_new(guint, n);
    RefitTravel travel = {.builder = broadcast->builder,
                          .class_index = class_index,
                          .region = refit_plan_builder_region(broadcast->builder, region),
                          .stage = broadcast->stage,
                          .landing = REFIT_LANDING_BUCKET,
                          .ranks = ranks,
                          .state = state,
                          .deps = root_deps};

    for (guint i = 0; i < n; i++)
        state[i] = REFIT_NOT_HELD;
    while (ranks[root] != broadcast->root)
        root++;
    state[root] = REFIT_HELD;
    if (n <= MAX_CHAIN)
        chain_to_all(broadcast->topology, &travel, n, channel, root);
    else
        spread_to_all(broadcast->topology, &travel, n, channel, root);
}
