/*
 * Orders the meetings of senders and receivers so that ranks that run through their rounds in order
 * find their partners free.
 *
 * Method: ranks that meet directly or through others form an island (a domain in an NVLink
 * exchange, the whole cluster in a network stage). On an island, a shift schedule: with senders and
 * receivers numbered in rank order, receivers first(s), first(s) + 1, ... follow each other, where
 * first(s) spreads the senders evenly over the receivers; `peers` of them make a round. An
 * all-to-all thus becomes a sequence of permutations, and in an exchange among the same ranks each
 * one sends and receives in the same round. An island on which nobody has more than `peers`
 * meetings (a ring) needs one round.
 *
 * Tried and dropped: list scheduling by bytes (an open shop). It packs unequal messages better on
 * paper, but a rank that is early or late by a little breaks the packing for all after it, so that
 * over several batches it lost to the shift. Cost: linear in meetings and ranks.
 */

#include "refit-schedule.h"

#define MESSAGES_IN_FLIGHT 1024
#define MAX_PEERS 16

typedef struct {
    guint n_senders, n_receivers, n_ranks;
    gboolean both; /* some rank sends and receives */
    guint busiest; /* most meetings of one rank in one direction */
} Island;

/* Union-find root, with path halving. */
static guint root_of(guint *parent, guint rank) {
    while (parent[rank] != rank) {
        parent[rank] = parent[parent[rank]];
        rank = parent[rank];
    }
    return rank;
}

static guint shift(guint sender, guint n_senders, guint receiver, guint n_receivers) {
    guint first;

    if (n_senders > n_receivers)
        return shift(receiver, n_receivers, sender, n_senders);
    first = (guint)((guint64)sender * n_receivers / n_senders);
    return (receiver + n_receivers - first) % n_receivers;
}

/* Renumbers rounds so that none is unused; returns how many there are. */
static guint close_gaps(guint *rounds, guint n, guint n_rounds) {
    g_autofree guint *number = g_new0(guint, (gsize)n_rounds + 1);
    guint used = 0;

    for (guint m = 0; m < n; m++)
        number[rounds[m]] = 1;
    for (guint r = 0; r < n_rounds; r++)
        if (number[r] != 0)
            number[r] = used++;
    for (guint m = 0; m < n; m++)
        rounds[m] = number[rounds[m]];
    return used;
}

guint refit_schedule_peers(guint n_senders) {
    return CLAMP(MESSAGES_IN_FLIGHT / MAX(n_senders, 1), 1, MAX_PEERS);
}

guint refit_schedule_rounds(const RefitMeeting *meetings, guint n, guint n_ranks, guint peers,
                            guint *rounds_out) {
    g_autofree guint *parent = g_new(guint, MAX(n_ranks, 1));
    g_autofree guint *sends = g_new0(guint, MAX(n_ranks, 1)); /* meetings as sender */
    g_autofree guint *receives = g_new0(guint, MAX(n_ranks, 1));
    g_autofree Island *islands = g_new0(Island, MAX(n_ranks, 1)); /* at the root's number */
    g_autofree guint *sender = g_new(guint, MAX(n_ranks, 1));     /* number on its island */
    g_autofree guint *receiver = g_new(guint, MAX(n_ranks, 1));
    guint n_rounds = 0;

    for (guint rank = 0; rank < n_ranks; rank++)
        parent[rank] = rank;
    for (guint m = 0; m < n; m++) {
        sends[meetings[m].src]++;
        receives[meetings[m].dst]++;
        parent[root_of(parent, meetings[m].src)] = root_of(parent, meetings[m].dst);
    }
    for (guint rank = 0; rank < n_ranks; rank++)
        if (sends[rank] > 0 && receives[rank] > 0)
            islands[root_of(parent, rank)].both = TRUE;
    for (guint rank = 0; rank < n_ranks; rank++) {
        Island *island = &islands[root_of(parent, rank)];

        if (sends[rank] + receives[rank] == 0)
            continue;
        sender[rank] = island->both ? island->n_ranks : island->n_senders;
        receiver[rank] = island->both ? island->n_ranks : island->n_receivers;
        island->n_ranks++;
        island->n_senders += sends[rank] > 0 ? 1 : 0;
        island->n_receivers += receives[rank] > 0 ? 1 : 0;
        island->busiest = MAX(island->busiest, MAX(sends[rank], receives[rank]));
    }
    for (guint m = 0; m < n; m++) {
        const Island *island = &islands[root_of(parent, meetings[m].src)];
        guint n_senders = island->both ? island->n_ranks : island->n_senders;
        guint n_receivers = island->both ? island->n_ranks : island->n_receivers;

        rounds_out[m] = island->busiest <= peers ? 0
                                                 : shift(sender[meetings[m].src], n_senders,
                                                         receiver[meetings[m].dst], n_receivers) /
                                                       peers;
        n_rounds = MAX(n_rounds, rounds_out[m] + 1);
    }
    return close_gaps(rounds_out, n, n_rounds);
}
