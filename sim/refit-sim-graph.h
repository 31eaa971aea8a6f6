#pragma once

/*
 * The work items of a schedule: what the executor "simgrid" hands to the network simulator.
 *
 * EXACT: turn by turn. Every turn of every rank has the items of refit-schedule.h's order:
 *
 *   submit   behind that of the rank's turn before, and behind done of the turn
 *            REFIT_SCHEDULE_IN_FLIGHT places before on the stream; lasts `operation`, for messages
 *            once more per exchange that has bytes in the turn
 *   pack     behind submit, the stream's pack before and all that the turn waits for
 *   begin    of the move, behind all that the pack is behind, the pack, and the flows of the
 *            communicator's turn before
 *   flow     one per exchange with bytes, behind begin on both ranks
 *   unpack   behind the turn's flows, latency and the stream's unpack before
 *   done     behind all of that, and done of the stream's turn before
 *
 * MERGED: step by step, one flow per message with the bytes of all its turns. A step has the same
 * items once. What happens turn by turn inside a step of T turns with the shares p, f, u of its
 * packing, moving (its bytes through the rank's port) and unpacking, and latency l, is expressed by
 * times:
 *
 *   submit   begins at the date of the first turn; the last turn's flows do not end before the date
 *            of its submit + p + f. Dates are sums: what is in flight does not hold them
 *   pack     the first turn's before the flow. A flow takes (T - 1) times the longest of p, u and
 *            (p + f + l + u) / 2, and f, at least: the first two are slower than the port, the
 * third is the rule of REFIT_SCHEDULE_SLOTS turns unpack   the last turn's after the flow slots a
 * step packs after the second step before it on the stream is done, for which a single turn lies in
 * between; after a step of more turns it begins no sooner than (first p + l + u - f of that step)
 * behind its flows slices   a message that follows another in slices starts a slice's way after
 * that has started and ends a slice's way after it has ended: f + l + u + p of the numbers in
 * between. In a step that waits for its own turns, a flow takes p + l + u per number longer,
 * because nothing of that is hidden
 *
 * Totals of bytes are the same in both modes, times nearly so: docs/sim.md.
 */

#include "model/predict/refit-executor.h"
#include "sim/refit-netsim.h"

G_BEGIN_DECLS

#define REFIT_SIM_NONE G_MAXUINT

/* An event as soon as dates are known. */
typedef struct {
    RefitEvent event;
    guint begin, end;       /* items: it begins when one starts, and ends when one ends ... */
    double early_s, late_s; /* ... so much before and after that */
} RefitSimEvent;

typedef struct {
    RefitNetsimGraph graph;
    GArray *events;      /* RefitSimEvent */
    double resolution_s; /* 0: dates apart */
    guint64 n_parts;     /* turns, or messages */
    GArray *items;       /* owned storage of the graph */
    guint64 *offsets;
    guint *successors;
} RefitSimGraph;

/*
 * Errors: REFIT_ERROR_LIMIT when there are too many turns to go through one by one;
 * REFIT_ERROR_OVERFLOW when the graph would have 2^31 items or more. Cost: exact, turns and what
 * they wait for; merged, messages, dependencies, and the chunks of a step.
 */
RefitSimGraph *refit_sim_graph_new(const RefitExecutorConfig *config, const RefitSchedule *schedule,
                                   GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_sim_graph_free(RefitSimGraph *graph);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitSimGraph, refit_sim_graph_free)

G_END_DECLS
