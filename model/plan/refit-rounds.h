#pragma once

/*
 * Rounds for an exchange: in which order the ranks of a stage meet.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct {
    guint src, dst;
    guint64 bytes; /* 0 where it is of no matter */
} RefitMeeting;

/*
 * Ranks that a rank meets in a round at the least: one NCCL connection moves some 13 GB/s over the
 * network (github.com/NVIDIA/nccl/issues/2409), so four fill a NIC of 400 Gbit/s even if each of
 * them has one channel.
 */
#define REFIT_ROUNDS_LEAST_PEERS 4
/* Messages of a rank in a round at most, over either link class: half of REFIT_STEP_OPERATIONS,
 * less a local copy. */
#define REFIT_ROUNDS_OPERATIONS 127

/*
 * Gives each meeting a round. `peers`: in a round no rank sends to more ranks, nor receives from
 * more; 0: as many as fit the meetings, see refit-rounds.c. `meetings` are sorted by (src, dst)
 * without repetition; ranks are below `n_ranks`. Returns the number of rounds; `rounds_out` has `n`
 * entries.
 */
guint refit_rounds_assign(const RefitMeeting *meetings, guint n, guint n_ranks, guint peers,
                          guint *rounds_out);
/* Fewest rounds of one meeting at a time each for sender and receiver: the most meetings that one
 * end has, as a bipartite graph needs no more colours than that. Repeated meetings count each. */
guint refit_rounds_least(const RefitMeeting *meetings, guint n, guint n_ranks);

G_END_DECLS
