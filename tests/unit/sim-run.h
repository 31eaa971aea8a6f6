#pragma once

/*
 * Plans stated by hand through the simulator, in both of its modes.
 *
 * Tensors are 1 GB, 8 rows of 125 MB. NIC 50 GB/s: 20 ms per tensor; NVLink 500 GB/s: 2 ms; memory
 * 2 TB/s. Latency is 0 unless a test says otherwise, and so is every term of the profile. A whole
 * tensor is one run and goes straight; columns of it are 8 runs and are packed, in turns of about
 * 16 MiB.
 */

#include "schedule-cases.h"
#include "sim/refit-sim.h"

#include <math.h>

#define SIM_NODES "node:9 gpu:8 nvlink:500GBps nic:50GBps hbm:2000GBps "
#define SIM_NO_LATENCY SIM_NODES "nvlink_latency:0us nic_latency:0us spine_latency:0us"
#define SIM_WHOLE "0:8,0:62500000"
#define SIM_EIGHT_MB "0:8,0:500000" /* one turn; 0.16 ms over the network */
#define SIM_NO_DEP G_MAXUINT

typedef enum { SIM_MERGED, SIM_EXACT, SIM_N_MODES } SimMode;

typedef struct {
    RefitCase *refit_case; /* without a profile, so stages keep their slices */
    RefitProblem *problem;
    RefitPlanBuilder *builder;
    RefitProfile profile; /* of the executor */
    RefitPlan *plan;
    RefitSchedule *schedule;
    GArray *events[SIM_N_MODES]; /* RefitEvent */
    RefitRunResult results[SIM_N_MODES];
} SimFixture;

/* `n_tensors` tensors of one class; ranks 0-63 hold them, 64-71 need them. */
static inline SimFixture *sim_fixture_new(const char *topology, guint n_tensors) {
    SimFixture *fixture = g_new0(SimFixture, 1);
    g_autofree char *tensors =
        g_strdup_printf("  - {name: \"layers.{0-%u}.w\", shape: [8, 62500000], dtype: bf16, "
                        "role: other}\n",
                        n_tensors - 1);

    fixture->refit_case =
        plan_case_new(topology, tensors, 64, "rules: [{tensors: \"*\", place: [replicate]}]", 8,
                      "rules: [{tensors: \"*\", place: [replicate]}]");
    fixture->problem = plan_case_problem(fixture->refit_case);
    fixture->builder = refit_plan_builder_new(fixture->problem, "by hand");
    g_assert_cmpuint(fixture->problem->n_classes, ==, 1);
    return fixture;
}

static inline void sim_fixture_free(SimFixture *fixture) {
    for (guint mode = 0; mode < SIM_N_MODES; mode++)
        g_clear_pointer(&fixture->events[mode], g_array_unref);
    refit_schedule_free(fixture->schedule);
    refit_plan_free(fixture->plan);
    refit_plan_builder_free(fixture->builder);
    refit_problem_free(fixture->problem);
    refit_case_free(fixture->refit_case);
    g_free(fixture);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(SimFixture, sim_fixture_free)

/* ---- plans ---- */

static inline void sim_add_stage(SimFixture *fixture, const char *name, guint slices) {
    refit_plan_builder_add_stage(fixture->builder, name, slices);
}

/* A new batch with the next tensor. */
static inline void sim_add_batch(SimFixture *fixture, guint member, guint lane, guint buckets,
                                 gboolean barrier) {
    refit_plan_builder_assign(
        fixture->builder, 0, member,
        refit_plan_builder_add_batch(fixture->builder, lane, buckets, barrier));
}

static inline void sim_add_batches(SimFixture *fixture, guint n) {
    for (guint i = 0; i < n; i++)
        sim_add_batch(fixture, i, 0, 0, FALSE);
}

static inline guint sim_land(SimFixture *fixture, const char *region, guint src, guint dst,
                             guint stage, RefitLanding landing, guint dep) {
    return plan_case_add(fixture->builder, 0, region, src, dst, stage, landing, &dep,
                         dep == SIM_NO_DEP ? 0 : 1);
}

/* In every batch. */
static inline guint sim_send(SimFixture *fixture, const char *region, guint src, guint dst,
                             guint stage, guint dep) {
    return sim_land(fixture, region, src, dst, stage, REFIT_LANDING_HOME, dep);
}

static inline void sim_set_term(SimFixture *fixture, RefitTerm which, double value) {
    fixture->profile.terms[which].value = value;
}

/* ---- runs ---- */

static inline void sim_on_event(const RefitEvent *event, gpointer user_data) {
    g_array_append_vals(user_data, event, 1);
}

static inline gboolean sim_try(const RefitSchedule *schedule, const RefitProfile *profile,
                               SimMode mode, GArray *events, RefitRunResult *result_out,
                               GError **error) {
    const RefitExecutorConfig config = {.topology = schedule->plan->problem->refit_case->topology,
                                        .profile = profile,
                                        .exact = mode == SIM_EXACT};
    const RefitExecutorWork work = {.schedule = schedule};
    gpointer self = refit_executor_simgrid.open(&config, error);
    gboolean done = self != NULL && refit_executor_simgrid.prepare(self, &work, error) &&
                    refit_executor_simgrid.run(self, sim_on_event, events, result_out, error);

    refit_executor_simgrid.close(self);
    return done;
}

static inline void sim_run_as(const RefitSchedule *schedule, const RefitProfile *profile,
                              SimMode mode, GArray *events, RefitRunResult *result_out) {
    g_autoptr(GError) error = NULL;
    gboolean done = sim_try(schedule, profile, mode, events, result_out, &error);

    g_assert_no_error(error);
    g_assert_true(done);
    g_array_sort(events, refit_event_compare);
}

static inline void sim_simulate(SimFixture *fixture) {
    if (fixture->plan == NULL)
        fixture->plan = plan_case_finish(fixture->builder);
    if (fixture->schedule == NULL)
        fixture->schedule = schedule_of(fixture->plan);
    for (guint mode = 0; mode < SIM_N_MODES; mode++) {
        g_clear_pointer(&fixture->events[mode], g_array_unref);
        fixture->events[mode] = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
        sim_run_as(fixture->schedule, &fixture->profile, (SimMode)mode, fixture->events[mode],
                   &fixture->results[mode]);
    }
}

static inline const char *sim_mode_name(guint mode) {
    return mode == SIM_EXACT ? "turn by turn" : "merged";
}

static inline gboolean sim_is_about(double seen_s, double expected_s, double scale_s) {
    return fabs(seen_s - expected_s) <= 1e-3 * scale_s;
}

/* Runs what the fixture has built; it must take `exact_s` turn by turn and `merged_s` merged,
 * within 0.1 %. */
static inline void sim_run_both(SimFixture *fixture, double exact_s, double merged_s) {
    sim_simulate(fixture);
    for (guint mode = 0; mode < SIM_N_MODES; mode++) {
        double expected_s = mode == SIM_EXACT ? exact_s : merged_s;

        if (!sim_is_about(fixture->results[mode].duration_s, expected_s, expected_s))
            g_error("%s: %.9g s is not within 0.1 %% of %.9g s; turn by turn: %.9g s",
                    sim_mode_name(mode), fixture->results[mode].duration_s, expected_s,
                    fixture->results[SIM_EXACT].duration_s);
    }
}

static inline void sim_run(SimFixture *fixture, double expected_s) {
    sim_run_both(fixture, expected_s, expected_s);
}

/* ---- events ---- */

/* All of this kind at this rank and peer under the numbers [number, number + n_numbers), whatever
 * their chunks, as one. */
static inline RefitEvent sim_event(const SimFixture *fixture, guint mode, RefitEventKind kind,
                                   guint rank, guint peer, guint number, guint n_numbers) {
    RefitEvent whole = {.rank = G_MAXUINT};

    for (guint i = 0; i < fixture->events[mode]->len; i++) {
        const RefitEvent *event = &g_array_index(fixture->events[mode], RefitEvent, i);

        if (event->kind != kind || event->rank != rank || event->peer != peer ||
            event->number < number || event->number - number >= n_numbers)
            continue;
        if (whole.rank == G_MAXUINT) {
            whole = *event;
            continue;
        }
        whole.begin_s = MIN(whole.begin_s, event->begin_s);
        whole.end_s = MAX(whole.end_s, event->end_s);
        whole.bytes += event->bytes;
    }
    g_assert_cmpuint(whole.rank, ==, rank);
    return whole;
}

static inline void sim_lasts_in(const SimFixture *fixture, guint mode, RefitEventKind kind,
                                guint rank, guint peer, guint number, guint n_numbers,
                                double begin_s, double end_s) {
    RefitEvent event = sim_event(fixture, mode, kind, rank, peer, number, n_numbers);

    if (!sim_is_about(event.begin_s, begin_s, end_s) || !sim_is_about(event.end_s, end_s, end_s))
        g_error("%s: %s of rank %u, number %u lasts from %.9g to %.9g s, not from %.9g to %.9g s",
                sim_mode_name(mode), refit_event_kind_name(kind), rank, number, event.begin_s,
                event.end_s, begin_s, end_s);
}

/* In both modes. */
static inline void sim_lasts(const SimFixture *fixture, RefitEventKind kind, guint rank, guint peer,
                             guint number, double begin_s, double end_s) {
    for (guint mode = 0; mode < SIM_N_MODES; mode++)
        sim_lasts_in(fixture, mode, kind, rank, peer, number, 1, begin_s, end_s);
}
