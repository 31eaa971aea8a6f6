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
 *   submit   begins at the date of the first turn. The last turn's flows do not end before the
 *            date of its submit and their own time. Dates are sums: what is in flight holds none
 *
 *   pack     of the first turn, before the flows
 *
 *   unpack   of the last turn, behind the flows
 *
 *   slots    a step packs after the second step before it on the stream is done, for which a
 *            single turn lies in between; after a step of more turns it begins no sooner than its
 *            first pack + l + u - f of that step behind the flows of that
 *
 *   clock    of a step with slices, or with several turns of which p + l + u is longer than f: it
 *            ticks where messages begin, have their last turn and end, and takes from tick to tick
 *            what REFIT_SCHEDULE_SLOTS turns at a time take (refit-sim-slices.c)
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
    double *lags_s;
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
