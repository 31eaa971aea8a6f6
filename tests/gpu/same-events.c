/*
 * Nothing is derived here: both executors run, and what they report is put side by side. Cost: two
 * simulations, and a run with a thread per rank.
 */

#include "same-events.h"

#include "executor-run.h"
#include "sim-run.h"

static GArray *simulate(const RefitSchedule *schedule, SimMode mode) {
    GArray *events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    RefitRunResult result;

    sim_run_as(schedule, schedule->plan->problem->refit_case->profile, mode, events, &result);
    return events;
}

SameEvents *same_events_new(const ProgramSet *set, const RefitSchedule *simulated) {
    SameEvents *self = g_new0(SameEvents, 1);

    self->executed = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    executor_run(
        set, &(const ExecutorRun){
                 .as = RANKS_AS_THREADS, .n_runs = 1, .timeout_s = 120, .events = self->executed});
    self->exact = simulate(simulated, SIM_EXACT);
    self->merged = simulate(simulated, SIM_MERGED);
    return self;
}

void same_events_free(SameEvents *self) {
    if (self == NULL)
        return;
    g_array_unref(self->executed);
    g_array_unref(self->exact);
    g_array_unref(self->merged);
    g_free(self);
}

static EventSet executed(const SameEvents *self) {
    return (EventSet){"the executor", self->executed};
}

char *same_events_differ(const SameEvents *self) {
    const EventSet simulator = {"the simulator", self->exact}, executor = executed(self);

    return event_sets_differ(&simulator, &executor);
}

char *same_events_totals_differ(const SameEvents *self) {
    const EventSet simulator = {"the simulator", self->merged}, executor = executed(self);

    return event_totals_differ(&simulator, &executor);
}
