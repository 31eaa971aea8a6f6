#pragma once

/*
 * Rounds for an exchange: in which order the ranks of a stage meet.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct {
    guint src, dst;
    guint64 bytes; /* 0 where it is of no matter; meetings of like sizes are put together */
} RefitMeeting;

/*
 * Gives each meeting a round in which no rank sends to more than `peers` ranks, nor receives from
 * more; REFIT_ROUNDS_SPARSE_PEERS at most, or `peers` if that is more, where ranks meet few
 * of the others. `meetings` are sorted by (src, dst) without repetition; ranks are below
 * `n_ranks`. Returns the number of rounds; `rounds_out` has `n` entries.
 */
#define REFIT_ROUNDS_SPARSE_PEERS 48
guint refit_rounds_assign(const RefitMeeting *meetings, guint n, guint n_ranks, guint peers,
                          guint *rounds_out);
/* Fewest rounds of one meeting at a time each for sender and receiver: the most meetings that one
 * end has, as a bipartite graph needs no more colours than that. Repeated meetings count each. */
guint refit_rounds_least(const RefitMeeting *meetings, guint n, guint n_ranks);
/* Peers at a time for so many senders: enough to keep NICs busy, few enough for large clusters. */
guint refit_rounds_peers(guint n_senders);

G_END_DECLS
