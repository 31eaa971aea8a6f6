/*
 * Covers sim/refit-sim.h: plans through the executor "simgrid", against times worked out by hand:
 * one transfer, two-stage pipelines of batches, ring, incast, fan-out, sliced chains, streams,
 * communicators, slots, lanes, barriers, latency, oversubscribed leaves, local copies; events,
 * their order, and that two runs are equal; what is too much to go through turn by turn. Both modes
 * must meet the same times. What software costs: test-sim-costs.c.
 */

#include "sim-run.h"

#include <string.h>

#define SEND REFIT_EVENT_SEND
#define RECEIVE REFIT_EVENT_RECEIVE

/* ---- messages and stages ---- */

static void test_one_transfer(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    /* 1 GB / 50 GB/s; an event at each end. */
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 1);
    sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_run(fixture, 0.020);
    for (guint mode = 0; mode < SIM_N_MODES; mode++) {
        g_assert_cmpuint(fixture->events[mode]->len, ==, 2);
        g_assert_cmpuint(sim_event(fixture, mode, SEND, 0, 64, 0, 1).bytes, ==, 1000000000);
        g_assert_cmpuint(sim_event(fixture, mode, RECEIVE, 64, 0, 0, 1).bytes, ==, 1000000000);
        g_assert_cmpfloat(fixture->results[mode].time_resolution_s, ==, 0);
    }
    /* Messages, and turns of both ranks. */
    g_assert_cmpuint(fixture->results[SIM_MERGED].n_items, ==, 1);
    g_assert_cmpuint(fixture->results[SIM_EXACT].n_items, ==, 2);
}

static void test_empty(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    sim_add_batches(fixture, 1);
    sim_run(fixture, 0);
    g_assert_cmpuint(fixture->events[SIM_MERGED]->len, ==, 0);
    g_assert_cmpuint(fixture->events[SIM_EXACT]->len, ==, 0);
}

static void test_pipeline(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 4);
    guint dep;

    /* One step after another on each stream: batch b arrives at 20 (b + 1) ms and crosses NVLink
     * while b + 1 arrives: 4 x 20 + 2 ms. */
    sim_add_stage(fixture, "network", 1);
    sim_add_stage(fixture, "exchange", 1);
    sim_add_batches(fixture, 4);
    dep = sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_send(fixture, SIM_WHOLE, 64, 65, 1, dep);
    sim_run(fixture, 0.082);
    for (guint b = 0; b < 4; b++) {
        sim_lasts(fixture, SEND, 0, 64, 2 * b, 0.020 * b, 0.020 * (b + 1));
        sim_lasts(fixture, RECEIVE, 65, 64, 2 * b + 1, 0.020 * (b + 1), 0.020 * (b + 1) + 0.002);
    }
}

static void test_ring(void) {
    static const char *const quarters[] = {"0:2,0:62500000", "2:4,0:62500000", "4:6,0:62500000",
                                           "6:8,0:62500000"};
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    /* All-gather of quarters over four domains: 3 hops of 0.25 GB / 50 GB/s. */
    sim_add_stage(fixture, "ring", 1);
    sim_add_batches(fixture, 1);
    for (guint start = 0; start < 4; start++) {
        guint dep = SIM_NO_DEP;
        for (guint hop = 0; hop < 3; hop++)
            dep = sim_send(fixture, quarters[start], (start + hop) % 4 * 8,
                           (start + hop + 1) % 4 * 8, 0, dep);
    }
    sim_run(fixture, 0.015);
    sim_lasts(fixture, SEND, 8, 16, 1, 0.005, 0.010);
}

static void test_incast(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    /* Seven senders of 1 GB to one port, in one turn of the receiver: all end at 7 x 20 ms. */
    refit_plan_builder_set_peers_per_step(fixture->builder, 7);
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 1);
    for (guint i = 0; i < 7; i++)
        sim_send(fixture, SIM_WHOLE, 8 * i, 64, 0, SIM_NO_DEP);
    sim_run(fixture, 0.140);
    for (guint i = 0; i < 7; i++)
        sim_lasts(fixture, RECEIVE, 64, 8 * i, 0, 0, 0.140);
}

static void test_incast_in_rounds(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    /* The same, as many at a time as fill the port: four, then three. */
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 1);
    for (guint i = 0; i < 7; i++)
        sim_send(fixture, SIM_WHOLE, 8 * i, 64, 0, SIM_NO_DEP);
    sim_run(fixture, 0.140);
    for (guint i = 0; i < 7; i++)
        sim_lasts(fixture, RECEIVE, 64, 8 * i, i < 4 ? 0 : 1, i < 4 ? 0 : 0.080,
                  i < 4 ? 0.080 : 0.140);
}

static void test_fan_out(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    /* One GPU to the seven others of its domain: 7 GB / 500 GB/s. */
    sim_add_stage(fixture, "exchange", 1);
    sim_add_batches(fixture, 1);
    for (guint i = 65; i < 72; i++)
        sim_send(fixture, SIM_WHOLE, 64, i, 0, SIM_NO_DEP);
    sim_run(fixture, 0.014);
}

static void test_stage_waits_for_all(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);
    guint dep;

    /* 64 forwards what it got from 0 only when all of the stage has arrived: 30 ms, and 1 ms. */
    sim_add_stage(fixture, "network", 1);
    sim_add_stage(fixture, "exchange", 1);
    sim_add_batches(fixture, 1);
    dep = sim_send(fixture, "0:4,0:62500000", 0, 64, 0, SIM_NO_DEP);
    sim_send(fixture, SIM_WHOLE, 8, 64, 0, SIM_NO_DEP);
    sim_send(fixture, "0:4,0:62500000", 64, 65, 1, dep);
    sim_run(fixture, 0.031);
    sim_lasts(fixture, RECEIVE, 64, 0, 0, 0, 0.020);
    sim_lasts(fixture, SEND, 64, 65, 1, 0.030, 0.031);
}

/* ---- slices ---- */

/* A chain of five hops between domains. */
static void build_chain(SimFixture *fixture, guint slices) {
    guint dep = SIM_NO_DEP;

    sim_add_stage(fixture, "chain", slices);
    sim_add_batches(fixture, 1);
    for (guint hop = 0; hop < 5; hop++)
        dep = sim_send(fixture, SIM_WHOLE, 8 * hop, 8 * hop + 8, 0, dep);
}

static void test_sliced_chain(void) {
    const char *topology = SIM_NODES "nvlink_latency:0us nic_latency:100us spine_latency:100us";

    /*
     * Five hops in 100 slices of 0.2 ms. In the middle a rank receives slice k and sends slice
     * k - 1 in one turn, behind the turn before: 104 turns in all, of 0.2 ms; with a latency of
     * 0.1 ms, which a turn that waits for the one before cannot hide, of 0.3 ms.
     */
    for (guint late = 0; late < 2; late++) {
        g_autoptr(SimFixture) fixture = sim_fixture_new(late ? topology : SIM_NO_LATENCY, 1);
        double turn_s = late ? 0.3e-3 : 0.2e-3;

        build_chain(fixture, 100);
        sim_run(fixture, 104 * turn_s);
        g_assert_cmpuint(refit_schedule_slices(fixture->schedule, 0, 0), ==, 100);
        for (guint mode = 0; mode < SIM_N_MODES; mode++) {
            sim_lasts_in(fixture, mode, RECEIVE, 16, 8, 1, 100, turn_s, 101 * turn_s);
            g_assert_cmpuint(sim_event(fixture, mode, RECEIVE, 16, 8, 1, 100).bytes, ==,
                             1000000000);
        }
    }
}

static void test_chunks_of_slices(void) {
    g_autoptr(SimFixture) fixture =
        sim_fixture_new(SIM_NODES "nvlink_latency:0us nic_latency:1ms spine_latency:1ms", 1);

    /*
     * Slices of 100 MB go in 12 chunks of a sixth of a ms, of which two are under way: a chunk
     * begins a latency after the one two before has ended, so two take 7/6 ms. The last one of a
     * number has arrived after 6 x 7/6 + 1/6 ms, and 14 numbers follow each other.
     */
    build_chain(fixture, 10);
    sim_run(fixture, 14 * 43.0 / 6000);
    g_assert_cmpuint(fixture->schedule->steps[0].n_chunks, ==, 12);
}

static void test_chain_speeds_differ(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);
    guint dep;

    /* NVLink after NIC in 10 slices: the last slice (0.2 ms) of the fast hop comes after the last
     * one of the slow hop. */
    sim_add_stage(fixture, "chain", 10);
    sim_add_batches(fixture, 1);
    dep = sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_send(fixture, SIM_WHOLE, 64, 65, 0, dep);
    sim_run(fixture, 0.0202);
}

static void test_chains_of_two_batches(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 2);
    guint dep = SIM_NO_DEP;

    /* Two batches of three hops in 4 slices of 5 ms. The second rank receives in 4 turns and sends
     * in 4, one turn later, so it begins the second batch after 5 turns. From there on it takes 4
     * turns, and two more for the hops behind. */
    sim_add_stage(fixture, "chain", 4);
    sim_add_batches(fixture, 2);
    for (guint hop = 0; hop < 3; hop++)
        dep = sim_send(fixture, SIM_WHOLE, 8 * hop, 8 * hop + 8, 0, dep);
    sim_run(fixture, 11 * 0.005);
}

/* ---- streams ---- */

static void test_lanes_and_barriers(void) {
    /* Two batches on two lanes share 0's port: both take 40 ms. With a barrier the second starts
     * when the first is done. */
    for (guint barrier = 0; barrier < 2; barrier++) {
        g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 2);

        sim_add_stage(fixture, "send", 1);
        sim_add_batch(fixture, 0, 0, 0, FALSE);
        sim_add_batch(fixture, 1, 1, 0, barrier == 1);
        sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
        sim_run(fixture, 0.040);
        sim_lasts(fixture, SEND, 0, 64, 0, 0, barrier ? 0.020 : 0.040);
        sim_lasts(fixture, SEND, 0, 64, 1, barrier ? 0.020 : 0, 0.040);
    }
}

static void test_barrier_in_one_lane(void) {
    /* A barrier also holds the link class that the earlier batch is done with. */
    for (guint barrier = 0; barrier < 2; barrier++) {
        g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 2);
        double begin_s = barrier ? 0.020 : 0.002;

        sim_add_stage(fixture, "network", 1);
        sim_add_stage(fixture, "exchange", 1);
        sim_add_batch(fixture, 0, 0, 0, FALSE);
        sim_add_batch(fixture, 1, 0, 0, barrier == 1);
        sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
        sim_send(fixture, SIM_WHOLE, 0, 1, 1, SIM_NO_DEP);
        sim_run(fixture, 0.040);
        sim_lasts(fixture, SEND, 0, 64, 2, 0.020, 0.040);
        sim_lasts(fixture, SEND, 0, 1, 1, 0, 0.002);
        sim_lasts(fixture, SEND, 0, 1, 3, begin_s, begin_s + 0.002);
    }
}

static void test_tracks(void) {
    /* Two stages of one batch on one link class: in turn on one track, side by side on two. */
    for (guint track = 0; track < 2; track++) {
        g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

        sim_add_stage(fixture, "first", 1);
        sim_add_stage(fixture, "second", 1);
        refit_plan_builder_set_track(fixture->builder, 1, track);
        sim_add_batches(fixture, 1);
        sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
        sim_send(fixture, SIM_WHOLE, 0, 65, 1, SIM_NO_DEP);
        sim_run(fixture, 0.040);
        sim_lasts(fixture, SEND, 0, 64, 0, 0, track ? 0.040 : 0.020);
        sim_lasts(fixture, SEND, 0, 65, 1, track ? 0 : 0.020, 0.040);
    }
}

static void test_shared_communicators(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, REFIT_SCHEDULE_COMMS + 1);
    guint last = REFIT_SCHEDULE_COMMS;

    /* Five lanes and four communicators: four messages share the port until 80 ms; the fifth comes
     * behind that of its communicator. */
    sim_add_stage(fixture, "send", 1);
    for (guint lane = 0; lane <= last; lane++)
        sim_add_batch(fixture, lane, lane, 0, FALSE);
    sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_run(fixture, 0.100);
    g_assert_cmpuint(fixture->schedule->n_comms[REFIT_LINK_NETWORK], ==, REFIT_SCHEDULE_COMMS);
    for (guint lane = 0; lane < last; lane++)
        sim_lasts(fixture, SEND, 0, 64, lane, 0, 0.080);
    sim_lasts(fixture, SEND, 0, 64, last, 0.080, 0.100);
}

static void test_slots(void) {
    g_autoptr(SimFixture) fixture =
        sim_fixture_new(SIM_NODES "nvlink_latency:0us nic_latency:30ms spine_latency:30ms", 4);

    /* A turn waits for the one two places before: the first two are done at 20 + 30 and 40 + 30 ms,
     * so the third moves from 50 to 70 ms and the fourth from 70 to 90 ms, and that arrives at
     * 120 ms. */
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 4);
    sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_run(fixture, 0.120);
    sim_lasts(fixture, SEND, 0, 64, 1, 0.020, 0.040);
    sim_lasts(fixture, SEND, 0, 64, 2, 0.050, 0.070);
    sim_lasts(fixture, SEND, 0, 64, 3, 0.070, 0.090);
}

/* ---- the platform ---- */

static void test_latency(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(
        SIM_NODES "nvlink_latency:3ms nic_latency:10ms leaf:1 rails:1 spine_latency:15ms", 4);
    guint dep;

    /* A stream pays latency once: 4 x 20 ms + 15 ms over the spine; then NVLink: 2 + 3 ms. It ends
     * what is received, not what is sent. */
    sim_add_stage(fixture, "network", 1);
    sim_add_stage(fixture, "exchange", 1);
    sim_add_batches(fixture, 4);
    dep = sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_send(fixture, SIM_WHOLE, 64, 65, 1, dep);
    sim_run(fixture, 0.080 + 0.015 + 0.002 + 0.003);
    sim_lasts(fixture, SEND, 0, 64, 0, 0, 0.020);
    sim_lasts(fixture, RECEIVE, 64, 0, 0, 0, 0.035);
    sim_lasts(fixture, RECEIVE, 65, 64, 1, 0.035, 0.040);
}

static void test_latency_below_a_leaf(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(
        SIM_NODES "nvlink_latency:0us nic_latency:10ms leaf:3 rails:8 spine_latency:15ms", 1);

    /* GPU 48 is in node 6, below the leaf of GPU 64 in node 8; GPU 0 is not. Both messages share
     * the port of 64 until 40 ms. */
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 1);
    sim_send(fixture, SIM_WHOLE, 48, 64, 0, SIM_NO_DEP);
    sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_run(fixture, 0.055);
    sim_lasts(fixture, RECEIVE, 64, 48, 0, 0, 0.050);
    sim_lasts(fixture, RECEIVE, 64, 0, 0, 0, 0.055);
}

static void test_oversubscription(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(
        SIM_NODES "nvlink_latency:0us nic_latency:0us spine_latency:0us leaf:1 rails:1 "
                  "oversubscription:4",
        1);

    /* Eight NICs per leaf, 400 GB/s down, 100 GB/s up: 8 GB / 100 GB/s. */
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 1);
    for (guint i = 0; i < 8; i++)
        sim_send(fixture, SIM_WHOLE, i, 64 + i, 0, SIM_NO_DEP);
    sim_run(fixture, 0.080);
}

static void test_local(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 2);

    /* Reading and writing 1 GB at 2 TB/s, one copy after another. */
    sim_add_stage(fixture, "copy", 1);
    sim_add_batches(fixture, 2);
    sim_send(fixture, SIM_WHOLE, 64, 64, 0, SIM_NO_DEP);
    sim_run(fixture, 0.002);
    sim_lasts(fixture, REFIT_EVENT_COPY, 64, 64, 1, 0.001, 0.002);
    /* A launch costs an operation, and nothing else: the second begins at 2 x 1.5 ms. */
    for (guint t = 0; t < REFIT_N_TERMS; t++)
        sim_set_term(fixture, t, 1);
    sim_set_term(fixture, REFIT_TERM_OPERATION, 1.5e-3);
    sim_run(fixture, 0.004);
    sim_lasts(fixture, REFIT_EVENT_COPY, 64, 64, 1, 0.003, 0.004);
}

/* ---- the executor ---- */

/* 20 messages in each of three batches, all packed. */
static void build_many(SimFixture *fixture) {
    sim_add_stage(fixture, "network", 1);
    sim_add_stage(fixture, "exchange", 1);
    sim_add_batches(fixture, 3);
    for (guint i = 0; i < 20; i++) {
        g_autofree char *region = g_strdup_printf("0:8,0:%u", 1000000 * (i + 1));
        guint dep = sim_send(fixture, region, i * 3, 64 + i % 4, 0, SIM_NO_DEP);
        sim_send(fixture, region, 64 + i % 4, 68 + i % 3, 1, dep);
    }
    sim_set_term(fixture, REFIT_TERM_PACK, 300e9);
    sim_set_term(fixture, REFIT_TERM_UNPACK, 300e9);
}

static void test_events_are_ordered_and_repeat(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 3);

    build_many(fixture);
    sim_simulate(fixture);
    for (guint mode = 0; mode < SIM_N_MODES; mode++) {
        const GArray *first = fixture->events[mode];
        g_autoptr(GArray) second = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
        RefitRunResult result;

        /* The port of 67 gets 4, 8 ... 20 of 62.5 parts of a GB in each of three batches. */
        g_assert_cmpfloat(fixture->results[mode].duration_s, >, 3 * 60 / 62.5 * 0.020);
        sim_run_as(fixture->schedule, &fixture->profile, (SimMode)mode, second, &result);
        g_assert_cmpfloat(result.duration_s, ==, fixture->results[mode].duration_s);
        g_assert_cmpuint(first->len, ==, second->len);
        g_assert_cmpuint(first->len, >, 2 * fixture->plan->n_messages);
        for (guint i = 0; i < first->len; i++) {
            const RefitEvent *a = &g_array_index(first, RefitEvent, i);
            const RefitEvent *b = &g_array_index(second, RefitEvent, i);

            g_assert_cmpint(refit_event_compare(a, b), ==, 0);
            g_assert_cmpfloat(a->begin_s, ==, b->begin_s);
            g_assert_cmpuint(a->bytes, ==, b->bytes);
            g_assert_cmpfloat(a->begin_s, <=, a->end_s);
            if (i > 0)
                g_assert_cmpint(refit_event_compare(a - 1, a), <, 0);
        }
    }
}

static void test_too_many_turns(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 65);
    g_autoptr(GArray) events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    g_autoptr(GError) error = NULL;
    RefitRunResult result;

    /* 65 batches of 65,535 slices, on two ranks: more than 2^23 turns. Merged, they are 65
     * messages. */
    sim_add_stage(fixture, "send", G_MAXUINT16);
    sim_add_batches(fixture, 65);
    sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    fixture->plan = plan_case_finish(fixture->builder);
    fixture->schedule = schedule_of(fixture->plan);
    g_assert_false(
        sim_try(fixture->schedule, &fixture->profile, SIM_EXACT, events, &result, &error));
    input_assert_error(error, REFIT_ERROR_LIMIT,
                       "the schedule has 8519550 turns and 4259775 chunks of messages, but at most "
                       "8388608 can be simulated one by one; leave them merged, or use another "
                       "strategy");
    sim_run_as(fixture->schedule, &fixture->profile, SIM_MERGED, events, &result);
    g_assert_cmpfloat_with_epsilon(result.duration_s, 65 * 0.020, 1e-3);
    g_assert_cmpuint(events->len, ==, 2 * 65);
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
    g_test_add_func("/sim/a-ring-takes-one-part-time-per-hop", test_ring);
    g_test_add_func("/sim/incast-shares-the-receiver", test_incast);
    g_test_add_func("/sim/incast-goes-in-rounds", test_incast_in_rounds);
    g_test_add_func("/sim/fan-out-shares-the-sender", test_fan_out);
    g_test_add_func("/sim/a-stage-waits-for-all-that-arrives", test_stage_waits_for_all);
    g_test_add_func("/sim/a-sliced-chain-costs-one-slice-per-hop", test_sliced_chain);
    g_test_add_func("/sim/slots-hold-chunks-of-slices", test_chunks_of_slices);
    g_test_add_func("/sim/a-fast-hop-ends-after-the-slow-one-before", test_chain_speeds_differ);
    g_test_add_func("/sim/chains-of-batches-follow-each-other", test_chains_of_two_batches);
    g_test_add_func("/sim/lanes-share-and-barriers-wait", test_lanes_and_barriers);
    g_test_add_func("/sim/a-barrier-waits-within-its-lane", test_barrier_in_one_lane);
    g_test_add_func("/sim/tracks-run-side-by-side", test_tracks);
    g_test_add_func("/sim/streams-take-turns-on-a-communicator", test_shared_communicators);
    g_test_add_func("/sim/a-turn-waits-for-its-slot", test_slots);
    g_test_add_func("/sim/a-stream-pays-latency-once", test_latency);
    g_test_add_func("/sim/a-leaf-is-nearer-than-the-spine", test_latency_below_a_leaf);
    g_test_add_func("/sim/oversubscribed-leaves-limit", test_oversubscription);
    g_test_add_func("/sim/local-copies-take-memory-bandwidth", test_local);
    g_test_add_func("/sim/events-are-ordered-and-repeat", test_events_are_ordered_and_repeat);
    g_test_add_func("/sim/too-many-turns-must-be-merged", test_too_many_turns);
    g_test_add_func("/sim/the-table-says-what-it-can", test_table);
    return g_test_run();
}
