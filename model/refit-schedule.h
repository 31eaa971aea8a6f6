#pragma once

/*
 * Rounds for an exchange: in which order the ranks of a stage meet. Internal to the plan builder.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct {
    guint src, dst;
} RefitMeeting;

/*
 * Gives each meeting a round in which no rank sends to more than `peers` ranks, nor receives from
 * more. `meetings` are sorted by (src, dst) without repetition; ranks are below `n_ranks`. Returns
 * the number of rounds; `rounds_out` has `n` entries.
 */
guint refit_schedule_rounds(const RefitMeeting *meetings, guint n, guint n_ranks, guint peers,
                            guint *rounds_out);
/* Peers at a time for so many senders: enough to keep NICs busy, few enough for large clusters. */
guint refit_schedule_peers(guint n_senders);

G_END_DECLS
