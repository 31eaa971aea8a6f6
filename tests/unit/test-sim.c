/*
 * Covers sim/refit-sim.h: plans through the executor "simgrid", against times worked out by hand:
 * one transfer, two-stage pipelines of batches, ring, incast, fan-out, sliced chains, windows,
 * lanes, barriers, latency, oversubscribed leaves, local copies, and each profile term; events,
 * their order, and that two runs are equal.
 *
 * Tensors are 1 GB. NIC 50 GB/s: 20 ms per tensor; NVLink 500 GB/s: 2 ms; memory 2 TB/s. Latency is
 * 0 unless a test says otherwise.
 */

#include "plan-cases.h"
#include "sim/refit-sim.h"

#include <math.h>
#include <string.h>

#define NODES "node:9 gpu:8 nvlink:500GBps nic:50GBps hbm:2000GBps "
#define NO_LATENCY NODES "nvlink_latency:0us nic_latency:0us spine_latency:0us"
#define ROWS 8
#define COLUMNS 62500000 /* 8 rows of BF16: 1 GB */

typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitPlanBuilder *builder;
    RefitProfile profile;
    RefitPlan *plan;
    GArray *events;
    RefitRunResult result;
} Fixture;

/* `n_tensors` tensors of one class; ranks 0-63 hold them, 64-71 need them. */
static Fixture *fixture_new(const char *topology, guint n_tensors) {
    Fixture *fixture = g_new0(Fixture, 1);
    g_autofree char *tensors =
        g_strdup_printf("  - {name: \"layers.{0-%u}.w\", shape: [%d, %d], dtype: bf16, "
                        "role: other}\n",
                        n_tensors - 1, ROWS, COLUMNS);

    fixture->refit_case =
        plan_case_new(topology, tensors, 64, "rules: [{tensors: \"*\", place: [replicate]}]", 8,
                      "rules: [{tensors: \"*\", place: [replicate]}]");
    fixture->problem = plan_case_problem(fixture->refit_case);
    fixture->builder = refit_plan_builder_new(fixture->problem, "by hand");
    g_assert_cmpuint(fixture->problem->n_classes, ==, 1);
    return fixture;
}

static void fixture_free(Fixture *fixture) {
    g_clear_pointer(&fixture->events, g_array_unref);
    refit_plan_free(fixture->plan);
    refit_plan_builder_free(fixture->builder);
    refit_problem_free(fixture->problem);
    refit_case_free(fixture->refit_case);
    g_free(fixture);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Fixture, fixture_free)

/* A new batch with the next tensor. */
static guint add_batch(Fixture *fixture, guint member, guint lane, guint buckets,
                       gboolean barrier) {
    guint batch = refit_plan_builder_add_batch(fixture->builder, lane, buckets, barrier);

    refit_plan_builder_assign(fixture->builder, 0, member, batch);
    return batch;
}

static void add_batches(Fixture *fixture, guint n) {
    for (guint i = 0; i < n; i++)
        add_batch(fixture, i, 0, 0, FALSE);
}

#define WHOLE "0:8,0:62500000"
#define NO_DEP G_MAXUINT

static guint send(Fixture *fixture, const char *region, guint src, guint dst, guint stage,
                  guint dep) {
    return plan_case_add(fixture->builder, 0, region, src, dst, stage, REFIT_LANDING_HOME, &dep,
                         dep == NO_DEP ? 0 : 1);
}

static void on_event(const RefitEvent *event, gpointer user_data) {
    g_array_append_vals(user_data, event, 1);
}

/* Runs what the fixture has built; its total must be `expected_s` within 0.1 %. */
static void run(Fixture *fixture, double expected_s) {
    g_autoptr(GError) error = NULL;
    gpointer self;

    if (fixture->plan == NULL)
        fixture->plan = plan_case_finish(fixture->builder);
    g_clear_pointer(&fixture->events, g_array_unref);
    fixture->events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    self = refit_executor_simgrid.open(fixture->refit_case->topology, &fixture->profile, &error);
    g_assert_no_error(error);
    g_assert_true(refit_executor_simgrid.prepare(self, fixture->plan, &error));
    g_assert_true(
        refit_executor_simgrid.run(self, on_event, fixture->events, &fixture->result, &error));
    g_assert_no_error(error);
    refit_executor_simgrid.close(self);
    if (fabs(fixture->result.duration_s - expected_s) > 1e-3 * expected_s)
        g_error("%.9g s is not within 0.1 %% of %.9g s", fixture->result.duration_s, expected_s);
}

/* The only event of this activity at this rank and peer in this step. */
static const RefitEvent *event_of(const Fixture *fixture, RefitActivity activity, guint rank,
                                  guint peer, guint step) {
    const RefitEvent *found = NULL;

    for (guint i = 0; i < fixture->events->len; i++) {
        const RefitEvent *event = &g_array_index(fixture->events, RefitEvent, i);

        if (event->activity == activity && event->rank == rank && event->peer == peer &&
            event->step == step) {
            g_assert_null(found);
            found = event;
        }
    }
    g_assert_nonnull(found);
    return found;
}

static void lasts(const Fixture *fixture, RefitActivity activity, guint rank, guint peer,
                  guint step, double start_s, double end_s) {
    const RefitEvent *event = event_of(fixture, activity, rank, peer, step);

    if (fabs(event->start_s - start_s) > 1e-3 * end_s || fabs(event->end_s - end_s) > 1e-3 * end_s)
        g_error("step %u lasts from %.9g to %.9g s, not from %.9g to %.9g s", step, event->start_s,
                event->end_s, start_s, end_s);
}

static void set_term(Fixture *fixture, RefitTerm which, double value) {
    fixture->profile.terms[which].value = value;
}

static void test_one_transfer(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);
    const RefitEvent *event;

    /* 1 GB / 50 GB/s. */
    refit_plan_builder_add_stage(fixture->builder, "send", 1);
    add_batches(fixture, 1);
    send(fixture, WHOLE, 0, 64, 0, NO_DEP);
    run(fixture, 0.020);
    g_assert_cmpuint(fixture->events->len, ==, 1);
    event = event_of(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 0);
    g_assert_cmpuint(event->bytes, ==, 1000000000);
    g_assert_cmpuint(fixture->result.n_flows, ==, 1);
    g_assert_cmpfloat(fixture->result.time_resolution_s, ==, 0);
    g_assert_false(fixture->result.verified);
}

static void test_empty(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);

    add_batches(fixture, 1);
    run(fixture, 0);
    g_assert_cmpuint(fixture->events->len, ==, 0);
}

static void test_pipeline(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 4);
    guint dep;

    /* Four batches, NIC then NVLink. At most two are in flight: the port gives both of batches 0
     * and 1 half, so they arrive together at 40 ms, and 2 and 3 at 80 ms; the last two cross
     * NVLink together in 4 ms. */
    refit_plan_builder_set_window(fixture->builder, 2);
    refit_plan_builder_add_stage(fixture->builder, "network", 1);
    refit_plan_builder_add_stage(fixture->builder, "exchange", 1);
    add_batches(fixture, 4);
    dep = send(fixture, WHOLE, 0, 64, 0, NO_DEP);
    send(fixture, WHOLE, 64, 65, 1, dep);
    run(fixture, 0.084);
    lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 0, 0, 0.040);
    lasts(fixture, REFIT_ACTIVITY_NVLINK, 64, 65, 1, 0.040, 0.044);
}

static void test_window_one(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 4);
    guint dep;

    /* One at a time: batch b arrives at 20 (b + 1) ms and crosses NVLink while b + 1 arrives:
     * 4 x 20 ms + 2 ms. */
    refit_plan_builder_set_window(fixture->builder, 1);
    refit_plan_builder_add_stage(fixture->builder, "network", 1);
    refit_plan_builder_add_stage(fixture->builder, "exchange", 1);
    add_batches(fixture, 4);
    dep = send(fixture, WHOLE, 0, 64, 0, NO_DEP);
    send(fixture, WHOLE, 64, 65, 1, dep);
    run(fixture, 0.082);
    lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 2, 0.020, 0.040);
    lasts(fixture, REFIT_ACTIVITY_NVLINK, 64, 65, 1, 0.020, 0.022);
}

static void test_ring(void) {
    static const char *const quarters[] = {"0:2,0:62500000", "2:4,0:62500000", "4:6,0:62500000",
                                           "6:8,0:62500000"};
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);

    /* All-gather of quarters over four domains: 3 hops of 0.25 GB / 50 GB/s. */
    refit_plan_builder_add_stage(fixture->builder, "ring", 1);
    add_batches(fixture, 1);
    for (guint start = 0; start < 4; start++) {
        guint dep = NO_DEP;
        for (guint hop = 0; hop < 3; hop++)
            dep = send(fixture, quarters[start], (start + hop) % 4 * 8, (start + hop + 1) % 4 * 8,
                       0, dep);
    }
    run(fixture, 0.015);
    lasts(fixture, REFIT_ACTIVITY_NETWORK, 8, 16, 1, 0.005, 0.010);
}

static void test_incast(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);

    /* Seven senders of 1 GB to one port, all in flight: all end at 7 x 20 ms. */
    refit_plan_builder_set_window(fixture->builder, 7);
    refit_plan_builder_add_stage(fixture->builder, "send", 1);
    add_batches(fixture, 1);
    for (guint i = 0; i < 7; i++)
        send(fixture, WHOLE, 8 * i, 64, 0, NO_DEP);
    run(fixture, 0.140);
    for (guint i = 0; i < fixture->events->len; i++)
        g_assert_cmpfloat_with_epsilon(g_array_index(fixture->events, RefitEvent, i).end_s, 0.140,
                                       1e-6);
}

static void test_fan_out(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);

    /* One GPU to the seven others of its domain: 7 GB / 500 GB/s. */
    refit_plan_builder_add_stage(fixture->builder, "exchange", 1);
    add_batches(fixture, 1);
    for (guint i = 65; i < 72; i++)
        send(fixture, WHOLE, 64, i, 0, NO_DEP);
    run(fixture, 0.014);
}

static void test_sliced_chain(void) {
    const char *topology = NODES "nvlink_latency:0us nic_latency:1ms spine_latency:1ms";

    /* Five hops in 10 slices of 2 ms: 20 + 4 x 2 ms; with a latency of 1 ms, each hop starts
     * 2 + 1 ms after the one before and the last byte travels 1 ms: 20 + 4 x 3 + 1 ms. */
    for (guint late = 0; late < 2; late++) {
        g_autoptr(Fixture) fixture = fixture_new(late ? topology : NO_LATENCY, 1);
        guint dep = NO_DEP;

        refit_plan_builder_add_stage(fixture->builder, "chain", 10);
        add_batches(fixture, 1);
        for (guint hop = 0; hop < 5; hop++)
            dep = send(fixture, WHOLE, 8 * hop, 8 * hop + 8, 0, dep);
        run(fixture, late ? 0.033 : 0.028);
        lasts(
            fixture, REFIT_ACTIVITY_NETWORK, 8, 16,
            event_of(fixture, REFIT_ACTIVITY_NETWORK, 8, 16, fixture->plan->messages[1].step)->step,
            late ? 0.003 : 0.002, late ? 0.024 : 0.022);
    }
}

static void test_chain_speeds_differ(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);
    guint dep;

    /* NVLink after NIC in 10 slices: the fast hop could be done at 2 + 2 ms, but its last slice
     * (0.2 ms) comes after the last slice of the slow one: 20 + 0.2 ms. */
    refit_plan_builder_add_stage(fixture->builder, "chain", 10);
    add_batches(fixture, 1);
    dep = send(fixture, WHOLE, 0, 64, 0, NO_DEP);
    send(fixture, WHOLE, 64, 65, 0, dep);
    run(fixture, 0.0202);
}

static void test_stage_waits_for_all(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);
    guint dep;

    /* 64 forwards what it got from 0 only when all of the stage has arrived: the second arrival
     * shares the port, so both end at 30 ms (1 + 0.5 GB). Then 2 ms. */
    refit_plan_builder_set_window(fixture->builder, 2);
    refit_plan_builder_add_stage(fixture->builder, "network", 1);
    refit_plan_builder_add_stage(fixture->builder, "exchange", 1);
    add_batches(fixture, 1);
    dep = send(fixture, "0:4,0:62500000", 0, 64, 0, NO_DEP);
    send(fixture, WHOLE, 8, 64, 0, NO_DEP);
    send(fixture, "0:4,0:62500000", 64, 65, 1, dep);
    run(fixture, 0.031);
    {
        const RefitEvent *last = &g_array_index(fixture->events, RefitEvent, 2);
        g_assert_cmpint(last->activity, ==, REFIT_ACTIVITY_NVLINK);
        g_assert_cmpfloat_with_epsilon(last->start_s, 0.030, 1e-6);
        g_assert_cmpfloat_with_epsilon(g_array_index(fixture->events, RefitEvent, 0).end_s, 0.020,
                                       1e-6);
    }
}

static void test_lanes_and_barriers(void) {
    /* Two batches on two lanes share 0's port: both take 40 ms. With a barrier the second starts
     * when the first is done. */
    for (guint barrier = 0; barrier < 2; barrier++) {
        g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 2);

        refit_plan_builder_add_stage(fixture->builder, "send", 1);
        add_batch(fixture, 0, 0, 0, FALSE);
        add_batch(fixture, 1, 1, 0, barrier == 1);
        send(fixture, WHOLE, 0, 64, 0, NO_DEP);
        run(fixture, 0.040);
        lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 0, 0, barrier ? 0.020 : 0.040);
        lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 1, barrier ? 0.020 : 0, 0.040);
    }
}

static void test_barrier_in_one_lane(void) {
    /* A window of two lets batches overlap, a barrier does not: neither on the link class that the
     * earlier batch uses, nor on the other. */
    for (guint barrier = 0; barrier < 2; barrier++) {
        g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 2);

        refit_plan_builder_set_window(fixture->builder, 2);
        refit_plan_builder_add_stage(fixture->builder, "network", 1);
        refit_plan_builder_add_stage(fixture->builder, "exchange", 1);
        add_batch(fixture, 0, 0, 0, FALSE);
        add_batch(fixture, 1, 0, 0, barrier == 1);
        send(fixture, WHOLE, 0, 64, 0, NO_DEP);
        send(fixture, WHOLE, 0, 1, 1, NO_DEP);
        run(fixture, 0.040);
        lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 0, 0, barrier ? 0.020 : 0.040);
        lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 2, barrier ? 0.020 : 0, 0.040);
        lasts(fixture, REFIT_ACTIVITY_NVLINK, 0, 1, 1, 0, barrier ? 0.002 : 0.004);
        lasts(fixture, REFIT_ACTIVITY_NVLINK, 0, 1, 3, barrier ? 0.020 : 0,
              barrier ? 0.022 : 0.004);
    }
}

static void test_tracks(void) {
    /* Two stages of one batch on one link class: in turn on one track, side by side on two. */
    for (guint track = 0; track < 2; track++) {
        g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);

        refit_plan_builder_add_stage(fixture->builder, "first", 1);
        refit_plan_builder_add_stage(fixture->builder, "second", 1);
        refit_plan_builder_set_track(fixture->builder, 1, track);
        add_batches(fixture, 1);
        send(fixture, WHOLE, 0, 64, 0, NO_DEP);
        send(fixture, WHOLE, 0, 65, 1, NO_DEP);
        run(fixture, 0.040);
        lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 0, 0, track ? 0.040 : 0.020);
        lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 65, 1, track ? 0 : 0.020, 0.040);
    }
}

static void test_latency(void) {
    g_autoptr(Fixture) fixture = fixture_new(
        NODES "nvlink_latency:3ms nic_latency:10ms leaf:1 rails:1 spine_latency:15ms", 4);
    guint dep;

    /* A stream pays latency once: 4 x 20 ms + 15 ms over the spine; then NVLink: the last two
     * batches together 4 ms, and 3 ms. */
    refit_plan_builder_set_window(fixture->builder, 2);
    refit_plan_builder_add_stage(fixture->builder, "network", 1);
    refit_plan_builder_add_stage(fixture->builder, "exchange", 1);
    add_batches(fixture, 4);
    dep = send(fixture, WHOLE, 0, 64, 0, NO_DEP);
    send(fixture, WHOLE, 64, 65, 1, dep);
    run(fixture, 0.080 + 0.015 + 0.004 + 0.003);
    lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 0, 0, 0.055);
}

static void test_oversubscription(void) {
    g_autoptr(Fixture) fixture =
        fixture_new(NODES "nvlink_latency:0us nic_latency:0us spine_latency:0us leaf:1 rails:1 "
                          "oversubscription:4",
                    1);

    /* Eight NICs per leaf, 400 GB/s down, 100 GB/s up: 8 GB / 100 GB/s. */
    refit_plan_builder_add_stage(fixture->builder, "send", 1);
    add_batches(fixture, 1);
    for (guint i = 0; i < 8; i++)
        send(fixture, WHOLE, i, 64 + i, 0, NO_DEP);
    run(fixture, 0.080);
}

static void test_local(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 2);

    /* Reading and writing 1 GB at 2 TB/s, one copy after another; free of every term. */
    refit_plan_builder_add_stage(fixture->builder, "copy", 1);
    add_batches(fixture, 2);
    send(fixture, WHOLE, 64, 64, 0, NO_DEP);
    for (guint t = 0; t < REFIT_N_TERMS; t++)
        set_term(fixture, t, 1);
    run(fixture, 0.002);
    lasts(fixture, REFIT_ACTIVITY_LOCAL, 64, 64, 1, 0.001, 0.002);
}

static void test_pack_and_unpack(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);

    /* Half of each of 8 rows, 0.5 GB in 8 runs on both sides. Pack 0.5 GB / 100 GB/s + 8 x 0.1 ms,
     * move 10 ms, unpack 0.5 GB / 50 GB/s + 8 x 0.1 ms. */
    refit_plan_builder_add_stage(fixture->builder, "send", 1);
    add_batches(fixture, 1);
    send(fixture, "0:8,0:31250000", 0, 64, 0, NO_DEP);
    set_term(fixture, REFIT_TERM_PACK, 100e9);
    set_term(fixture, REFIT_TERM_UNPACK, 50e9);
    set_term(fixture, REFIT_TERM_RUN, 1e-4);
    run(fixture, 0.0058 + 0.010 + 0.0108);
    lasts(fixture, REFIT_ACTIVITY_PACK, 0, 0, 0, 0, 0.0058);
    lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 0, 0.0058, 0.0158);
    lasts(fixture, REFIT_ACTIVITY_UNPACK, 64, 64, 0, 0.0158, 0.0266);
    /* Each term can be switched off; without all three the bytes go straight. */
    fixture->profile.off[REFIT_TERM_PACK] = TRUE;
    run(fixture, 0.0008 + 0.010 + 0.0108);
    fixture->profile.off[REFIT_TERM_RUN] = TRUE;
    run(fixture, 0.010 + 0.010);
    fixture->profile.off[REFIT_TERM_UNPACK] = TRUE;
    run(fixture, 0.010);
    g_assert_cmpuint(fixture->events->len, ==, 1);
}

static void test_single_run_goes_straight(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);

    refit_plan_builder_add_stage(fixture->builder, "send", 1);
    add_batches(fixture, 1);
    send(fixture, WHOLE, 0, 64, 0, NO_DEP);
    set_term(fixture, REFIT_TERM_PACK, 1e9);
    set_term(fixture, REFIT_TERM_UNPACK, 1e9);
    set_term(fixture, REFIT_TERM_RUN, 1);
    run(fixture, 0.020);
}

static void test_relays_are_not_packed(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);
    guint dep;

    /* Packed once by the owner (5 ms) and unpacked once at home (5 ms); the relay in between passes
     * its staging memory on: 5 + 10 + 10 + 5 ms. */
    refit_plan_builder_add_stage(fixture->builder, "in", 1);
    refit_plan_builder_add_stage(fixture->builder, "on", 1);
    add_batches(fixture, 1);
    dep = plan_case_add(fixture->builder, 0, "0:8,0:31250000", 0, 56, 0, REFIT_LANDING_RELAY, NULL,
                        0);
    send(fixture, "0:8,0:31250000", 56, 64, 1, dep);
    set_term(fixture, REFIT_TERM_PACK, 100e9);
    set_term(fixture, REFIT_TERM_UNPACK, 100e9);
    run(fixture, 0.030);
    g_assert_cmpuint(fixture->events->len, ==, 4);
}

static void test_pack_overlaps(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 4);

    /* Four batches of 0.5 GB (10 ms) in 8 runs, packed in 5 ms each, beside the network: only the
     * first pack is seen: 5 + 4 x 10 ms. */
    refit_plan_builder_set_window(fixture->builder, 2);
    refit_plan_builder_add_stage(fixture->builder, "send", 1);
    add_batches(fixture, 4);
    send(fixture, "0:8,0:31250000", 0, 64, 0, NO_DEP);
    set_term(fixture, REFIT_TERM_PACK, 100e9);
    run(fixture, 0.045);
    lasts(fixture, REFIT_ACTIVITY_PACK, 0, 0, 1, 0.005, 0.010);
}

static void test_operation(void) {
    /* Three steps of one message each. In turn, each costs 1 ms and moves for 20 ms: 63 ms. With
     * three in flight they start after 1, 2 and 3 ms and the port never idles after 1 ms. */
    for (guint window = 1; window <= 3; window += 2) {
        g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 3);

        refit_plan_builder_set_window(fixture->builder, window);
        refit_plan_builder_add_stage(fixture->builder, "send", 1);
        add_batches(fixture, 3);
        send(fixture, WHOLE, 0, 64, 0, NO_DEP);
        set_term(fixture, REFIT_TERM_OPERATION, 1e-3);
        run(fixture, window == 1 ? 0.063 : 0.061);
        for (guint step = 0; step < 3; step++)
            g_assert_cmpfloat_with_epsilon(
                event_of(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, step)->start_s,
                window == 1 ? 0.001 + 0.021 * step : 0.001 * (step + 1), 1e-6);
    }
}

static void test_operations_of_a_group(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 1);

    /* Three first hops of one sliced stage are one group: its three operations of 1 ms come first,
     * then all three share the port. */
    refit_plan_builder_add_stage(fixture->builder, "send", 2);
    add_batches(fixture, 1);
    for (guint i = 0; i < 3; i++)
        send(fixture, WHOLE, 0, 64 + i, 0, NO_DEP);
    set_term(fixture, REFIT_TERM_OPERATION, 1e-3);
    run(fixture, 0.063);
    for (guint i = 0; i < 3; i++)
        g_assert_cmpfloat_with_epsilon(g_array_index(fixture->events, RefitEvent, i).start_s, 0.003,
                                       1e-6);
}

static void test_bucket(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 2);

    /* Two batches of two buckets: (2 x 5 ms + 20 ms) twice; the second batch's buckets start when
     * the first batch is done. */
    refit_plan_builder_add_stage(fixture->builder, "broadcast", 1);
    add_batch(fixture, 0, 0, 2, FALSE);
    add_batch(fixture, 1, 0, 2, FALSE);
    send(fixture, WHOLE, 0, 64, 0, NO_DEP);
    run(fixture, 0.040);
    set_term(fixture, REFIT_TERM_BUCKET, 5e-3);
    run(fixture, 0.060);
    lasts(fixture, REFIT_ACTIVITY_NETWORK, 0, 64, 1, 0.040, 0.060);
}

static void test_bucket_after_barrier(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 2);

    /* The bucket of a barrier batch on another lane waits for the first batch: 20 + 5 + 20 ms. */
    refit_plan_builder_add_stage(fixture->builder, "broadcast", 1);
    add_batch(fixture, 0, 0, 0, FALSE);
    add_batch(fixture, 1, 1, 1, TRUE);
    send(fixture, WHOLE, 0, 64, 0, NO_DEP);
    set_term(fixture, REFIT_TERM_BUCKET, 5e-3);
    run(fixture, 0.045);
}

static void test_events_are_ordered_and_repeat(void) {
    g_autoptr(Fixture) fixture = fixture_new(NO_LATENCY, 3);
    g_autoptr(GArray) first = NULL;
    double total;

    refit_plan_builder_add_stage(fixture->builder, "network", 1);
    refit_plan_builder_add_stage(fixture->builder, "exchange", 1);
    add_batches(fixture, 3);
    for (guint i = 0; i < 20; i++) {
        g_autofree char *region = g_strdup_printf("0:8,0:%u", 1000000 * (i + 1));
        guint dep = send(fixture, region, i * 3, 64 + i % 4, 0, NO_DEP);
        send(fixture, region, 64 + i % 4, 68 + i % 3, 1, dep);
    }
    set_term(fixture, REFIT_TERM_PACK, 300e9);
    set_term(fixture, REFIT_TERM_UNPACK, 300e9);
    /* The port of 64 gets 1, 5, 9, 13 and 17 of 62.5 parts of a GB, that of 67 4, 8 ... 20 of them
     * in each of three batches: no less than 3 x 60 / 62.5 x 20 ms. */
    fixture->plan = plan_case_finish(fixture->builder);
    {
        g_autoptr(GError) error = NULL;
        gpointer self =
            refit_executor_simgrid.open(fixture->refit_case->topology, &fixture->profile, &error);
        fixture->events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
        g_assert_true(refit_executor_simgrid.prepare(self, fixture->plan, &error));
        g_assert_true(
            refit_executor_simgrid.run(self, on_event, fixture->events, &fixture->result, &error));
        refit_executor_simgrid.close(self);
    }
    total = fixture->result.duration_s;
    g_assert_cmpfloat(total, >, 3 * 60 / 62.5 * 0.020);
    first = g_steal_pointer(&fixture->events);
    run(fixture, total);
    g_assert_cmpuint(first->len, ==, fixture->events->len);
    g_assert_cmpuint(first->len, >, fixture->plan->n_messages);
    g_assert_true(memcmp(first->data, fixture->events->data, first->len * sizeof(RefitEvent)) == 0);
    for (guint i = 1; i < first->len; i++) {
        const RefitEvent *a = &g_array_index(first, RefitEvent, i - 1), *b = a + 1;
        g_assert_cmpfloat(a->end_s, <=, b->end_s);
        if (a->end_s == b->end_s)
            g_assert_cmpuint(a->step, <=, b->step);
        g_assert_cmpfloat(b->start_s, <=, b->end_s);
    }
}

static void test_table(void) {
    g_autoptr(GError) error = NULL;

    g_assert_cmpstr(refit_executor_simgrid.name, ==, "simgrid");
    g_assert_true(refit_executor_simgrid.flags & REFIT_EXECUTOR_PREDICTS);
    g_assert_false(refit_executor_simgrid.flags & REFIT_EXECUTOR_MOVES_DATA);
    g_assert_true(refit_executor_simgrid.probe(&error));
    refit_executor_simgrid.close(NULL);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim/one-transfer-takes-bytes-over-bandwidth", test_one_transfer);
    g_test_add_func("/sim/an-empty-plan-takes-no-time", test_empty);
    g_test_add_func("/sim/batches-pipeline-over-network-and-nvlink", test_pipeline);
    g_test_add_func("/sim/a-window-of-one-takes-steps-in-turn", test_window_one);
    g_test_add_func("/sim/a-ring-takes-one-part-time-per-hop", test_ring);
    g_test_add_func("/sim/incast-shares-the-receiver", test_incast);
    g_test_add_func("/sim/fan-out-shares-the-sender", test_fan_out);
    g_test_add_func("/sim/a-sliced-chain-costs-one-slice-per-hop", test_sliced_chain);
    g_test_add_func("/sim/a-fast-hop-ends-after-the-slow-one-before", test_chain_speeds_differ);
    g_test_add_func("/sim/a-stage-waits-for-all-that-arrives", test_stage_waits_for_all);
    g_test_add_func("/sim/lanes-share-and-barriers-wait", test_lanes_and_barriers);
    g_test_add_func("/sim/a-barrier-waits-within-its-lane", test_barrier_in_one_lane);
    g_test_add_func("/sim/tracks-run-side-by-side", test_tracks);
    g_test_add_func("/sim/a-stream-pays-latency-once", test_latency);
    g_test_add_func("/sim/oversubscribed-leaves-limit", test_oversubscription);
    g_test_add_func("/sim/local-copies-take-memory-bandwidth", test_local);
    g_test_add_func("/sim/pack-run-and-unpack-are-charged-when-on", test_pack_and_unpack);
    g_test_add_func("/sim/a-single-run-is-not-packed", test_single_run_goes_straight);
    g_test_add_func("/sim/relays-are-not-packed", test_relays_are_not_packed);
    g_test_add_func("/sim/packing-overlaps-the-network", test_pack_overlaps);
    g_test_add_func("/sim/operations-are-charged-per-message-and-rank", test_operation);
    g_test_add_func("/sim/operations-of-a-group-come-first", test_operations_of_a_group);
    g_test_add_func("/sim/buckets-are-charged-per-batch", test_bucket);
    g_test_add_func("/sim/buckets-of-a-barrier-batch-wait", test_bucket_after_barrier);
    g_test_add_func("/sim/events-are-ordered-and-repeat", test_events_are_ordered_and_repeat);
    g_test_add_func("/sim/the-table-says-what-it-can", test_table);
    return g_test_run();
}
