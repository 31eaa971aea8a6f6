#pragma once

/*
 * What the events of a run must be, worked out from the schedule and not from the executor: one for
 * each part of each turn, with its bytes, in the order that the schedule's rules ask for.
 */

#include "gpu/executor/refit-gpu.h"

G_BEGIN_DECLS

/* For RefitEventFunc, with a GArray of RefitEvent. */
void executor_events_collect(const RefitEvent *event, gpointer events);

/*
 * CHECKs of a timed run of one rank: each event that the schedule names is there once, and no
 * other; they come in their order; nothing began before what it had to wait for had ended: parts of
 * a turn, the stream, waits, wire memory, turns in flight.
 */
void executor_events_check(const RefitSchedule *schedule, guint rank, const GArray *events);

/* CUDA events that the executor may have at most for its part of a schedule: for each turn that may
 * be in flight. */
guint executor_events_most(const RefitSchedule *schedule, guint rank, gboolean untimed);

/* CHECKs that the sums per stage, and the whole, are those of the events. */
void executor_events_check_sums(const GArray *events, const RefitGpuResult *result);

G_END_DECLS
