/*
 * Covers sim/refit-sim.h with the terms of a profile, against times worked out by hand: packing and
 * unpacking, in one turn and in chunks; operations of turns and messages, and the turns in flight;
 * buckets, their slots and their installs. Both modes must meet the same times, but for what only
 * exists turn by turn.
 */

#include "sim-run.h"

#define SEND REFIT_EVENT_SEND
#define RECEIVE REFIT_EVENT_RECEIVE
#define PACK REFIT_EVENT_PACK
#define UNPACK REFIT_EVENT_UNPACK
#define INSTALL REFIT_EVENT_INSTALL

/* ---- packing ---- */

static void test_pack_and_unpack(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    /* 8 MB in 8 runs on both sides. Pack 8 MB / 100 GB/s + 8 x 10 us, move 160 us, unpack
     * 8 MB / 50 GB/s + 8 x 10 us. */
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 1);
    sim_send(fixture, SIM_EIGHT_MB, 0, 64, 0, SIM_NO_DEP);
    sim_set_term(fixture, REFIT_TERM_PACK, 100e9);
    sim_set_term(fixture, REFIT_TERM_UNPACK, 50e9);
    sim_set_term(fixture, REFIT_TERM_RUN, 10e-6);
    sim_run(fixture, 560e-6);
    sim_lasts(fixture, PACK, 0, 0, 0, 0, 160e-6);
    sim_lasts(fixture, SEND, 0, 64, 0, 160e-6, 320e-6);
    sim_lasts(fixture, UNPACK, 64, 64, 0, 320e-6, 560e-6);
    /* Each term can be switched off. */
    fixture->profile.off[REFIT_TERM_PACK] = TRUE;
    sim_run(fixture, 480e-6);
    fixture->profile.off[REFIT_TERM_RUN] = TRUE;
    sim_run(fixture, 320e-6);
    fixture->profile.off[REFIT_TERM_UNPACK] = TRUE;
    sim_run(fixture, 160e-6);
}

static void test_single_run_goes_straight(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 1);
    sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_set_term(fixture, REFIT_TERM_PACK, 1e9);
    sim_set_term(fixture, REFIT_TERM_UNPACK, 1e9);
    sim_set_term(fixture, REFIT_TERM_RUN, 1);
    sim_run(fixture, 0.020);
}

static void test_relays_are_not_packed(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);
    guint dep;

    /* Packed once by the owner (80 us) and unpacked once at home (80 us); the relay in between
     * passes on what landed. */
    sim_add_stage(fixture, "in", 1);
    sim_add_stage(fixture, "on", 1);
    sim_add_batches(fixture, 1);
    dep = sim_land(fixture, SIM_EIGHT_MB, 0, 56, 0, REFIT_LANDING_RELAY, SIM_NO_DEP);
    sim_send(fixture, SIM_EIGHT_MB, 56, 64, 1, dep);
    sim_set_term(fixture, REFIT_TERM_PACK, 100e9);
    sim_set_term(fixture, REFIT_TERM_UNPACK, 100e9);
    sim_run(fixture, 480e-6);
    for (guint mode = 0; mode < SIM_N_MODES; mode++)
        g_assert_cmpuint(fixture->events[mode]->len, ==, 6);
}

static void test_pack_overlaps(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 4);

    /* Four batches of 8 MB, packed in 80 us each while the one before moves: only the first pack is
     * seen. The third has its slot when the first has left. */
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, 4);
    sim_send(fixture, SIM_EIGHT_MB, 0, 64, 0, SIM_NO_DEP);
    sim_set_term(fixture, REFIT_TERM_PACK, 100e9);
    sim_run(fixture, 720e-6);
    sim_lasts(fixture, PACK, 0, 0, 1, 80e-6, 160e-6);
    sim_lasts(fixture, PACK, 0, 0, 2, 240e-6, 320e-6);
    sim_lasts(fixture, SEND, 0, 64, 1, 240e-6, 400e-6);
}

#define CHUNK_BYTES (G_GUINT64_CONSTANT(16) << 20)
#define CHUNK_S ((double)CHUNK_BYTES / 50e9) /* over the network */

/* 48 MiB in three chunks of 16 MiB: the budget has room for two turns of one chunk. */
static void build_chunks(SimFixture *fixture, guint n_batches) {
    fixture->refit_case->budget_staging_bytes = 2 * CHUNK_BYTES;
    sim_add_stage(fixture, "send", 1);
    sim_add_batches(fixture, n_batches);
    sim_send(fixture, "0:8,0:3145728", 0, 64, 0, SIM_NO_DEP);
}

static void test_chunks(void) {
    static const struct {
        double pack_bytes_per_s, unpack_bytes_per_s;
        double expected; /* in chunks over the network */
    } rows[] = {
        /* The first pack, three chunks, the last unpack. */
        {100e9, 100e9, 0.5 + 3 + 0.5},
        /* The same, when packs and unpacks take as long as the network. */
        {50e9, 50e9, 5},
        /* A slow pack, all three times. */
        {25e9, 100e9, 3 * 2 + 1 + 0.5},
        /* A slow unpack. */
        {100e9, 25e9, 0.5 + 1 + 3 * 2},
        /* Both: the third chunk is packed from 4 on and moves when the first is unpacked, at 5, and
         * it is packed at 6; unpacked when the second is, at 7. */
        {25e9, 25e9, 7 + 2},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

        build_chunks(fixture, 1);
        sim_set_term(fixture, REFIT_TERM_PACK, rows[i].pack_bytes_per_s);
        sim_set_term(fixture, REFIT_TERM_UNPACK, rows[i].unpack_bytes_per_s);
        sim_run(fixture, rows[i].expected * CHUNK_S);
        g_assert_cmpuint(fixture->schedule->steps[0].n_chunks, ==, 3);
    }
}

static void test_chunks_turn_by_turn(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);
    const GArray *events;
    guint n = 0;

    /* Packs from 0, 0.5 and, when the first chunk has left its slot, 1.5 chunks on. */
    build_chunks(fixture, 1);
    sim_set_term(fixture, REFIT_TERM_PACK, 100e9);
    sim_run(fixture, 3.5 * CHUNK_S);
    events = fixture->events[SIM_EXACT];
    for (guint i = 0; i < events->len; i++) {
        static const double begins[] = {0, 0.5, 1.5};
        const RefitEvent *event = &g_array_index(events, RefitEvent, i);

        if (event->kind != PACK)
            continue;
        g_assert_cmpuint(event->chunk, ==, n);
        g_assert_cmpuint(event->bytes, ==, CHUNK_BYTES);
        g_assert_cmpfloat_with_epsilon(event->begin_s, begins[n++] * CHUNK_S, 1e-9);
    }
    g_assert_cmpuint(n, ==, 3);
    sim_lasts(fixture, SEND, 0, 64, 0, 0.5 * CHUNK_S, 3.5 * CHUNK_S);
}

static void test_chunks_of_two_steps(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 2);

    /* The second step's first chunk is packed and the first step's last one unpacked while others
     * move. */
    build_chunks(fixture, 2);
    sim_set_term(fixture, REFIT_TERM_PACK, 100e9);
    sim_set_term(fixture, REFIT_TERM_UNPACK, 100e9);
    sim_run(fixture, (0.5 + 6 + 0.5) * CHUNK_S);
    sim_lasts(fixture, SEND, 0, 64, 1, 3.5 * CHUNK_S, 6.5 * CHUNK_S);
}

/* ---- operations ---- */

static void test_operation(void) {
    /* Three turns of a message each, two operations per turn, one turn after another beside the
     * network. */
    static const struct {
        double operation_s, begins_s[3];
    } rows[] = {
        {1e-3, {0.002, 0.022, 0.042}}, /* the first one is seen */
        {20e-3, {0.040, 0.080, 0.120}},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 3);

        sim_add_stage(fixture, "send", 1);
        sim_add_batches(fixture, 3);
        sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
        sim_set_term(fixture, REFIT_TERM_OPERATION, rows[i].operation_s);
        sim_run(fixture, rows[i].begins_s[2] + 0.020);
        for (guint b = 0; b < 3; b++)
            sim_lasts(fixture, SEND, 0, 64, b, rows[i].begins_s[b], rows[i].begins_s[b] + 0.020);
    }
}

static void test_operations_of_a_turn(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    /* Slices of three messages are a turn of rank 0, which costs four operations of 1 ms: the first
     * 1.5 GB move from 4 ms on, the rest behind. */
    sim_add_stage(fixture, "send", 2);
    sim_add_batches(fixture, 1);
    for (guint i = 0; i < 3; i++)
        sim_send(fixture, SIM_WHOLE, 0, 64 + i, 0, SIM_NO_DEP);
    sim_set_term(fixture, REFIT_TERM_OPERATION, 1e-3);
    sim_run(fixture, 0.064);
}

static void test_operations_of_chunks(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 1);

    /* Each of three chunks costs two operations of 0.2 ms, more than the network: the last one
     * moves at 1.2 ms. */
    build_chunks(fixture, 1);
    sim_set_term(fixture, REFIT_TERM_OPERATION, 0.2e-3);
    sim_run(fixture, 1.2e-3 + CHUNK_S);
}

/* In every batch, 20 ms over the network and 16 us over NVLink, independent of each other. */
static void build_two_streams(SimFixture *fixture, guint n_batches) {
    sim_add_stage(fixture, "network", 1);
    sim_add_stage(fixture, "exchange", 1);
    sim_add_batches(fixture, n_batches);
    sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_send(fixture, SIM_EIGHT_MB, 0, 1, 1, SIM_NO_DEP);
}

static void test_streams_share_a_host(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 2);

    /* By number: network, NVLink, network, NVLink, each 2 x 10 ms. */
    build_two_streams(fixture, 2);
    sim_set_term(fixture, REFIT_TERM_OPERATION, 10e-3);
    sim_run(fixture, 0.080016);
    sim_lasts(fixture, SEND, 0, 64, 0, 0.020, 0.040);
    sim_lasts(fixture, SEND, 0, 1, 1, 0.040, 0.040016);
    sim_lasts(fixture, SEND, 0, 64, 2, 0.060, 0.080);
    sim_lasts(fixture, SEND, 0, 1, 3, 0.080, 0.080016);
}

static void test_turns_in_flight(void) {
    guint n = REFIT_SCHEDULE_IN_FLIGHT + 8;
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, n);

    /* The 72nd network turn is submitted when the 8th is done, at 160 ms, and with it the NVLink
     * turn behind it in the order of submission. Merged, only the 71 before it hold that. */
    build_two_streams(fixture, n);
    sim_run(fixture, n * 0.020);
    sim_lasts_in(fixture, SIM_EXACT, SEND, 0, 1, 2 * n - 1, 1, 0.160, 0.160016);
    sim_lasts_in(fixture, SIM_MERGED, SEND, 0, 1, 2 * n - 1, 1, (n - 1) * 16e-6, n * 16e-6);
}

/* ---- buckets ---- */

/* A whole tensor per batch to rank 64, in 20 ms, and from there to seven others in one step, in
 * 14 ms. */
static void build_buckets(SimFixture *fixture, guint n_batches, guint buckets) {
    static const guint receivers[] = {64, 65, 66, 67, 68, 69, 70, 71};
    guint dep;

    sim_add_stage(fixture, "network", 1);
    sim_add_stage(fixture, "exchange", 1);
    for (guint b = 0; b < n_batches; b++)
        sim_add_batch(fixture, b, 0, buckets, FALSE);
    refit_plan_builder_set_peers_per_step(fixture->builder, 7);
    refit_plan_builder_oblige(fixture->builder, 0, REFIT_LANDING_BUCKET, receivers, 8);
    dep = sim_land(fixture, SIM_WHOLE, 0, 64, 0, REFIT_LANDING_BUCKET, SIM_NO_DEP);
    for (guint i = 1; i < 8; i++)
        sim_land(fixture, SIM_WHOLE, 64, receivers[i], 1, REFIT_LANDING_BUCKET, dep);
}

static void test_installs(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 2);

    /* 10 ms for the bytes and 3 ms for the tensor, on each rank when its bucket has come, beside
     * what moves: 64 installs the first one while it passes that on and the second one arrives. */
    build_buckets(fixture, 2, 0);
    sim_set_term(fixture, REFIT_TERM_INSTALL, 100e9);
    sim_set_term(fixture, REFIT_TERM_HOST, 3e-3);
    sim_run(fixture, 0.067);
    sim_lasts(fixture, INSTALL, 64, 64, 0, 0.020, 0.033);
    sim_lasts(fixture, SEND, 64, 65, 1, 0.020, 0.034);
    sim_lasts(fixture, RECEIVE, 64, 0, 2, 0.020, 0.040);
    sim_lasts(fixture, INSTALL, 65, 65, 1, 0.034, 0.047);
    sim_lasts(fixture, INSTALL, 65, 65, 3, 0.054, 0.067);
    for (guint mode = 0; mode < SIM_N_MODES; mode++)
        g_assert_cmpuint(sim_event(fixture, mode, INSTALL, 65, 65, 3, 1).bytes, ==, 1000000000);
    /* Either can be off. */
    fixture->profile.off[REFIT_TERM_HOST] = TRUE;
    sim_run(fixture, 0.064);
    fixture->profile.off[REFIT_TERM_INSTALL] = TRUE;
    fixture->profile.off[REFIT_TERM_HOST] = FALSE;
    sim_run(fixture, 0.057);
}

static void test_two_buckets_under_way(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 3);

    /* Installs take 50 ms. The third bucket takes the memory of the first: on 64 that is installed
     * from 20 to 70 ms, on 65 from 34 to 84 ms; 65 installs without a break until 184 ms. */
    build_buckets(fixture, 3, 0);
    sim_set_term(fixture, REFIT_TERM_INSTALL, 20e9);
    sim_run(fixture, 0.184);
    sim_lasts(fixture, RECEIVE, 64, 0, 2, 0.020, 0.040);
    sim_lasts(fixture, RECEIVE, 64, 0, 4, 0.070, 0.090);
    sim_lasts(fixture, INSTALL, 65, 65, 5, 0.134, 0.184);
}

static void test_bucket(void) {
    /* Work for the buckets of a batch comes before it, one batch after another, beside what
     * moves. */
    static const struct {
        double bucket_s, begins_s[3];
    } rows[] = {
        {2.5e-3, {0.005, 0.025, 0.045}}, /* the first one is seen */
        {15e-3, {0.030, 0.060, 0.090}},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 3);

        build_buckets(fixture, 3, 2);
        sim_run(fixture, 0.074);
        sim_set_term(fixture, REFIT_TERM_BUCKET, rows[i].bucket_s);
        sim_run(fixture, rows[i].begins_s[2] + 0.034);
        for (guint b = 0; b < 3; b++)
            sim_lasts(fixture, SEND, 0, 64, 2 * b, rows[i].begins_s[b],
                      rows[i].begins_s[b] + 0.020);
    }
}

static void test_bucket_work_beside_installs(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 3);

    /* Installs of 50 ms, and 30 ms of work per bucket: the third is ready at 90 ms, but has no
     * memory before the first is installed, from 50 to 100 ms. 65 installs from 64 ms on. */
    build_buckets(fixture, 3, 1);
    sim_set_term(fixture, REFIT_TERM_INSTALL, 20e9);
    sim_set_term(fixture, REFIT_TERM_BUCKET, 30e-3);
    sim_run(fixture, 0.214);
    sim_lasts(fixture, SEND, 0, 64, 0, 0.030, 0.050);
    sim_lasts(fixture, SEND, 0, 64, 2, 0.060, 0.080);
    sim_lasts(fixture, SEND, 0, 64, 4, 0.100, 0.120);
}

static void test_bucket_after_barrier(void) {
    g_autoptr(SimFixture) fixture = sim_fixture_new(SIM_NO_LATENCY, 2);

    /* The bucket of a barrier batch on another lane waits for the first batch: 20 + 5 + 20 ms. */
    sim_add_stage(fixture, "broadcast", 1);
    sim_add_batch(fixture, 0, 0, 0, FALSE);
    sim_add_batch(fixture, 1, 1, 1, TRUE);
    sim_send(fixture, SIM_WHOLE, 0, 64, 0, SIM_NO_DEP);
    sim_set_term(fixture, REFIT_TERM_BUCKET, 5e-3);
    sim_run(fixture, 0.045);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim-costs/pack-run-and-unpack-are-charged-when-on", test_pack_and_unpack);
    g_test_add_func("/sim-costs/a-single-run-is-not-packed", test_single_run_goes_straight);
    g_test_add_func("/sim-costs/relays-are-not-packed", test_relays_are_not_packed);
    g_test_add_func("/sim-costs/packing-overlaps-the-network", test_pack_overlaps);
    g_test_add_func("/sim-costs/chunks-overlap-each-other", test_chunks);
    g_test_add_func("/sim-costs/chunks-have-events-turn-by-turn", test_chunks_turn_by_turn);
    g_test_add_func("/sim-costs/chunks-of-steps-follow-each-other", test_chunks_of_two_steps);
    g_test_add_func("/sim-costs/operations-are-charged-per-turn-and-message", test_operation);
    g_test_add_func("/sim-costs/operations-of-a-turn-come-first", test_operations_of_a_turn);
    g_test_add_func("/sim-costs/chunks-pay-operations", test_operations_of_chunks);
    g_test_add_func("/sim-costs/streams-of-a-rank-share-its-host", test_streams_share_a_host);
    g_test_add_func("/sim-costs/turns-in-flight-are-limited-turn-by-turn", test_turns_in_flight);
    g_test_add_func("/sim-costs/installs-take-bytes-and-tensors", test_installs);
    g_test_add_func("/sim-costs/two-buckets-are-under-way", test_two_buckets_under_way);
    g_test_add_func("/sim-costs/buckets-are-charged-before-their-batch", test_bucket);
    g_test_add_func("/sim-costs/a-bucket-needs-work-and-memory", test_bucket_work_beside_installs);
    g_test_add_func("/sim-costs/buckets-of-a-barrier-batch-wait", test_bucket_after_barrier);
    return g_test_run();
}
