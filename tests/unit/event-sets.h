#pragma once

/*
 * Events of two runs of one schedule, without their dates: are they the same, and if not, where
 * does it begin.
 */

#include "model/predict/refit-executor.h"

G_BEGIN_DECLS

typedef struct {
    const char *name;     /* of who reported them: "the simulator" */
    const GArray *events; /* RefitEvent, in any order */
} EventSet;

/*
 * NULL when both have the same events, each as often: rank, kind, number, chunk, stream, stage,
 * peer and bytes. Else the first difference in that order, which names the event, and what differs
 * where one side has it otherwise; caller frees.
 *
 *   rank 4, install, number 7, chunk 0, stream 0, stage 1, peer 4: bytes 64 in the simulator, 80 in
 *   the executor
 *   rank 4, install, number 7, chunk 0, stream 0, stage 1, peer 4, bytes 64: the simulator has one
 *   more
 */
char *event_sets_differ(const EventSet *left, const EventSet *right);

/*
 * The same of the sums of bytes per rank and kind.
 *
 *   rank 4, install: bytes 64 in the simulator, 80 in the executor
 */
char *event_totals_differ(const EventSet *left, const EventSet *right);

G_END_DECLS
