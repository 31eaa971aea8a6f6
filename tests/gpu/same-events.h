#pragma once

/*
 * One schedule on both executors: what the simulator reports and what the executor reports on the
 * stand-in, compared with one another. Used in the child of a test (standin-child.h).
 */

#include "event-sets.h"
#include "program-run.h"

G_BEGIN_DECLS

typedef struct {
    GArray *executed;       /* RefitEvent, of all ranks */
    GArray *exact, *merged; /* of the simulator, in its two modes */
} SameEvents;

/* Runs both: the executor with the programs of the set, the simulator with `simulated`, which is
 * the set's schedule unless a test wants it otherwise. */
SameEvents *same_events_new(const ProgramSet *set, const RefitSchedule *simulated);
void same_events_free(SameEvents *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(SameEvents, same_events_free)

/* The first difference of the events turn by turn, as event_sets_differ() tells it; NULL: none.
 * Caller frees. */
char *same_events_differ(const SameEvents *self);
/* The same of the bytes per rank and kind in the simulator's normal mode, as event_totals_differ()
 * tells it. */
char *same_events_totals_differ(const SameEvents *self);

G_END_DECLS
