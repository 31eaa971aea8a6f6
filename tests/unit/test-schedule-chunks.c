/*
 * Chunks by hand: their borders; on one stream and two, with a budget and without, small messages
 * and large ones, the same share of unlike ones, narrow steps and wide ones, grains; and that a
 * budget is kept that the smallest chunks keep.
 */

#include "model/schedule/refit-schedule.h"
#include "plan-cases.h"

#define POOL_SOURCE "rules: [{tensors: w, ranks: [0], place: [replicate]}]"
#define MIB (G_GUINT64_CONSTANT(1) << 20)
#define GRAIN (MIB / 2) /* over the network */

/* ---- borders ---- */

typedef struct {
    RefitCutting cutting;
    guint64 bytes, most;
    guint count;
    guint64 borders[7]; /* of chunks 0, 1, ...; the last is that of all further ones */
} Cut;

static void test_borders(void) {
    static const Cut cuts[] = {
        /* Three grains of 256 bytes and one of 232, in the four, three, two or one that n allows:
         * borders behind 4c/n grains, rounded down. */
        {{4, 256}, 1000, 256, 4, {0, 256, 512, 768, 1000, 1000, 1000}},
        {{3, 256}, 1000, 512, 3, {0, 256, 512, 1000, 1000, 1000, 1000}},
        {{2, 256}, 1000, 512, 2, {0, 512, 1000, 1000, 1000, 1000, 1000}},
        {{1, 256}, 1000, 1000, 1, {0, 1000, 1000, 1000, 1000, 1000, 1000}},
        /* 17 grains in five chunks: borders behind 3.4, 6.8, 10.2 and 13.6. */
        {{5, 256}, 17 * 256, 1024, 5, {0, 768, 1536, 2560, 3328, 4352, 4352}},
        /* The same with a single byte in the last grain. */
        {{5, 256}, 16 * 256 + 1, 1024, 5, {0, 768, 1536, 2560, 3328, 4097, 4097}},
        /* Fewer grains than chunks: one each, and nothing is left for the last ones. */
        {{6, 256}, 600, 256, 3, {0, 256, 512, 600, 600, 600, 600}},
        {{6, 256}, 257, 256, 2, {0, 256, 257, 257, 257, 257, 257}},
        {{6, 256}, 256, 256, 1, {0, 256, 256, 256, 256, 256, 256}},
        {{6, 256}, 1, 1, 1, {0, 1, 1, 1, 1, 1, 1}},
        {{6, 256}, 0, 0, 1, {0}},
        /* Copies. */
        {{1, G_MAXUINT64}, 12345, 12345, 1, {0, 12345, 12345, 12345, 12345, 12345, 12345}},
        {{1, G_MAXUINT64},
         G_MAXUINT64,
         G_MAXUINT64,
         1,
         {0, G_MAXUINT64, G_MAXUINT64, G_MAXUINT64, G_MAXUINT64, G_MAXUINT64, G_MAXUINT64}},
        /* 2^30 + 1 grains of a MiB: borders behind 357913941.67 and 715827883.33. */
        {{3, 1 << 20},
         (G_GUINT64_CONSTANT(1) << 50) + 1,
         357913942 * MIB,
         3,
         {0, 357913941 * MIB, 715827883 * MIB, (G_GUINT64_CONSTANT(1) << 50) + 1,
          (G_GUINT64_CONSTANT(1) << 50) + 1, (G_GUINT64_CONSTANT(1) << 50) + 1,
          (G_GUINT64_CONSTANT(1) << 50) + 1}},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cuts); i++) {
        const Cut *cut = &cuts[i];

        g_assert_cmpuint(refit_cutting_count(&cut->cutting, cut->bytes), ==, cut->count);
        g_assert_cmpuint(refit_cutting_most(&cut->cutting, cut->bytes), ==, cut->most);
        for (guint chunk = 0; chunk < G_N_ELEMENTS(cut->borders); chunk++)
            g_assert_cmpuint(refit_cutting_border(&cut->cutting, cut->bytes, chunk), ==,
                             cut->borders[chunk]);
    }
}

/*
 * All that 64 bits count, 2^45 grains, in 2^32 - 1 chunks: 8192 grains each, and one more in 8192
 * of them. The last border is behind 2^45 - 2 x 8192 + 8191 grains.
 */
static void test_borders_of_64_bits(void) {
    const RefitCutting cutting = {G_MAXUINT, 1 << 19};
    const guint64 grains = G_GUINT64_CONSTANT(1) << 45;

    g_assert_cmpuint(refit_cutting_count(&cutting, G_MAXUINT64), ==, G_MAXUINT);
    g_assert_cmpuint(refit_cutting_most(&cutting, G_MAXUINT64), ==, G_GUINT64_CONSTANT(8193) << 19);
    g_assert_cmpuint(refit_cutting_border(&cutting, G_MAXUINT64, 1), ==,
                     G_GUINT64_CONSTANT(8192) << 19);
    g_assert_cmpuint(refit_cutting_border(&cutting, G_MAXUINT64, G_MAXUINT - 1), ==,
                     (grains - 8193) << 19);
    g_assert_cmpuint(refit_cutting_border(&cutting, G_MAXUINT64, G_MAXUINT), ==, G_MAXUINT64);
}

/* Wire memory of a message is enough for a smaller one. */
static void test_most_grows(void) {
    for (guint n = 1; n <= 9; n++) {
        const RefitCutting cutting = {n, 16};

        for (guint64 bytes = 1; bytes < 16 * 40; bytes++) {
            guint64 most = refit_cutting_most(&cutting, bytes);

            g_assert_cmpuint(most, >=, refit_cutting_most(&cutting, bytes - 1));
            for (guint chunk = 0; chunk < n; chunk++)
                g_assert_cmpuint(refit_cutting_border(&cutting, bytes, chunk + 1) -
                                     refit_cutting_border(&cutting, bytes, chunk),
                                 <=, most);
        }
    }
}

static void assert_cutting(const RefitScheduleStep *step, guint n, guint64 grain) {
    g_assert_cmpuint(step->cutting.n, ==, n);
    g_assert_cmpuint(step->cutting.grain, ==, grain);
}

/* ---- shares of memory ---- */

/* `cuttings`: of each stage of an unsliced plan, in which a rank has one step of a stage. */
static void assert_chunks(const RefitPlan *plan, const RefitCutting *cuttings) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);

    g_assert_no_error(error);
    for (guint i = 0; i < schedule->n_steps; i++) {
        const RefitCutting *expected = &cuttings[schedule->steps[i].stage];

        assert_cutting(&schedule->steps[i], expected->n, expected->grain);
    }
}

/*
 * The worked case with 2^26 rows: from each source the columns of each destination, 128 MiB, go
 * straight, or the whole half, 256 MiB, goes to a relay that passes the columns on.
 */
static RefitPlan *plan_halves(const RefitProblem *problem, gboolean relays) {
    static const char *const whole[] = {"0:33554432,0:4", "33554432:67108864,0:4"};
    static const char *const columns[2][2] = {{"0:33554432,0:2", "0:33554432,2:4"},
                                              {"33554432:67108864,0:2", "33554432:67108864,2:4"}};
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint first = relays ? refit_plan_builder_add_stage(builder, "relay", 1) : 0;
    guint last = refit_plan_builder_add_stage(builder, "deliver", 1);

    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint half = 0; half < 2; half++) {
        guint dep = 0;

        if (relays)
            dep = plan_case_add(builder, 0, whole[half], half, 2 + half, first, REFIT_LANDING_RELAY,
                                NULL, 0);
        for (guint rank = 0; rank < 4; rank++)
            plan_case_add(builder, 0, columns[half][rank % 2], relays ? 2 + half : half, 4 + rank,
                          last, REFIT_LANDING_HOME, &dep, relays ? 1 : 0);
    }
    return plan_case_finish(builder);
}

/*
 * Who delivers packs four messages at a time, those who receive none. Relays come straight from
 * memory and land straight, so they stay whole. The smallest chunks take 1024 bytes.
 */
static void test_pool(void) {
    static const char tensor[] = "  - {name: w, shape: [67108864, 4], dtype: bf16, role: other}\n";
    const guint64 relayed = 256 * MIB;
    g_autoptr(RefitCase) refit_case =
        plan_case_new(WORKED_TOPOLOGY, tensor, 4, WORKED_SOURCE, 4, WORKED_DESTINATION);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) direct = plan_halves(problem, FALSE);
    g_autoptr(RefitPlan) relay = plan_halves(problem, TRUE);

    /* 512 MiB in 256 turns are 2 MiB each, but 16 MiB are the least: 4 MiB of each message. */
    assert_chunks(direct, (RefitCutting[]){{32, GRAIN}});
    assert_chunks(relay, (RefitCutting[]){{1, MIB}, {32, GRAIN}});
    refit_case->budget_staging_bytes = G_GUINT64_CONSTANT(1) << 40;
    assert_chunks(relay, (RefitCutting[]){{1, MIB}, {32, GRAIN}});
    /* 800000 / 2 / 4 is 100000. A quarter of that is 97 times 256 and something: 5406 grains, of
     * which a chunk has room for 4: 1352 chunks. */
    refit_case->budget_staging_bytes = 800000;
    assert_chunks(direct, (RefitCutting[]){{1352, 97 * 256}});
    /* What relays leave. */
    refit_case->budget_staging_bytes = relayed + 800000;
    assert_chunks(relay, (RefitCutting[]){{1, MIB}, {1352, 97 * 256}});
    /* The least. */
    refit_case->budget_staging_bytes = 100;
    assert_chunks(direct, (RefitCutting[]){{128 * MIB / 256, 256}});
    assert_chunks(relay, (RefitCutting[]){{1, MIB}, {128 * MIB / 256, 256}});
}

/* Rank 0 packs a column for each of the others, all in one step; how the schedule cuts them. */
static RefitCutting cut_columns(const char *topology, guint n, guint rows, guint64 budget,
                                guint64 *wire_out) {
    g_autoptr(GError) error = NULL;
    g_autofree char *tensor =
        g_strdup_printf("  - {name: w, shape: [%u, %u], dtype: bf16, role: other}\n", rows, n);
    g_autofree char *destination =
        g_strdup_printf("rules: [{tensors: w, mesh: [%u], place: [{shard: 1}]}]", n);
    g_autoptr(RefitCase) refit_case =
        plan_case_new(topology, tensor, 1, POOL_SOURCE, n, destination);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 1);

    refit_case->budget_staging_bytes = budget;
    refit_plan_builder_set_peers_per_step(builder, n);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < n; i++) {
        g_autofree char *region = g_strdup_printf("0:%u,%u:%u", rows, i, i + 1);

        plan_case_add(builder, 0, region, 0, 1 + i, stage, REFIT_LANDING_HOME, NULL, 0);
    }
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(schedule->step_offsets[1], ==, 1);
    g_assert_cmpuint(schedule->steps[0].n_exchanges, ==, n);
    *wire_out = schedule->ranks[0].wire_bytes;
    return schedule->steps[0].cutting;
}

/* Many packed messages share 16 MiB: a quarter of what each has is a grain, with a budget and
 * without. */
static void test_grains(void) {
    static const char nvlink[] = "node:1 gpu:65 nvlink:450GBps nic:50GBps";
    static const char network[] = "node:21 gpu:1 nvlink:450GBps nic:50GBps";
    const guint64 budgets[] = {0, 256 * MIB};

    for (guint i = 0; i < G_N_ELEMENTS(budgets); i++) {
        RefitCutting cutting;
        guint64 wire;

        /* 64 of 8 MiB: 256 KiB each, and 256 bytes for the smallest chunk. 128 grains of 64 KiB,
         * four to a chunk. */
        cutting = cut_columns(nvlink, 64, 4 << 20, budgets[i], &wire);
        g_assert_cmpuint(cutting.n, ==, 32);
        g_assert_cmpuint(cutting.grain, ==, 64 << 10);
        g_assert_cmpuint(wire, ==, 2 * 16 * MIB);
        /* 20 of 2 MiB: 838860 and 256 bytes each, of which a quarter is 819 times 256: 11 grains,
         * four to a chunk. */
        cutting = cut_columns(network, 20, 1 << 20, budgets[i], &wire);
        g_assert_cmpuint(cutting.n, ==, 3);
        g_assert_cmpuint(cutting.grain, ==, 819 * 256);
        g_assert_cmpuint(wire, ==, 2 * 20 * 4 * 819 * 256);
        /* 4 of 8 MiB, each with four times the grain and more: that of the link class. */
        cutting = cut_columns(nvlink, 4, 4 << 20, budgets[i], &wire);
        g_assert_cmpuint(cutting.n, ==, 2);
        g_assert_cmpuint(cutting.grain, ==, MIB);
        cutting = cut_columns(network, 4, 4 << 20, budgets[i], &wire);
        g_assert_cmpuint(cutting.n, ==, 2);
        g_assert_cmpuint(cutting.grain, ==, GRAIN);
    }
}

typedef struct {
    guint64 budget;
    RefitCutting nvlink, network;
    guint64 wire; /* of rank 0 */
} Fan;

/* Rank 0 packs a column of so many rows for a peer on its node, and for each of n - 1 others. */
static void assert_fan(guint rows, guint n, const Fan *expected, guint n_expected) {
    g_autofree char *tensor =
        g_strdup_printf("  - {name: w, shape: [%u, %u], dtype: bf16, role: other}\n", rows, n);
    g_autofree char *destination =
        g_strdup_printf("rules: [{tensors: w, mesh: [%u], place: [{shard: 1}]}]", n);
    g_autoptr(RefitCase) refit_case = plan_case_new("node:4 gpu:2 nvlink:450GBps nic:50GBps",
                                                    tensor, 1, POOL_SOURCE, n, destination);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 1);

    refit_plan_builder_set_peers_per_step(builder, n);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < n; i++) {
        g_autofree char *region = g_strdup_printf("0:%u,%u:%u", rows, i, i + 1);

        plan_case_add(builder, 0, region, 0, 1 + i, stage, REFIT_LANDING_HOME, NULL, 0);
    }
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    for (guint i = 0; i < n_expected; i++) {
        g_autoptr(GError) error = NULL;

        refit_case->budget_staging_bytes = expected[i].budget;
        g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
        g_assert_no_error(error);
        g_assert_cmpuint(schedule->steps[0].link, ==, REFIT_LINK_NVLINK);
        assert_cutting(&schedule->steps[0], expected[i].nvlink.n, expected[i].nvlink.grain);
        assert_cutting(&schedule->steps[1], expected[i].network.n, expected[i].network.grain);
        g_assert_cmpuint(schedule->ranks[0].wire_bytes, ==, expected[i].wire);
    }
}

/*
 * 1200 bytes each, five grains of 256. 2048 bytes are the least: slots of 256 and 768 bytes on two
 * streams. Both want 16 MiB, so half of what is more goes to each. What is one chunk needs one
 * slot.
 */
static void test_two_streams(void) {
    static const Fan expected[] = {
        {1, {5, 256}, {5, 256}, 2048},
        {2048, {5, 256}, {5, 256}, 2048},
        {3071, {5, 256}, {5, 256}, 2048},
        {3072, {3, 256}, {5, 256}, 2560}, /* slots of 512 and 1024 bytes */
        {6144, {1, 256}, {3, 256}, 1280 + 2 * 3 * 512},
        {0, {1, MIB}, {1, GRAIN}, 4 * 1280},
    };

    assert_fan(600, 4, expected, G_N_ELEMENTS(expected));
}

/*
 * 4 GiB each. In 256 turns, 16 MiB over NVLink and 64 MiB over the network to four. Where there are
 * only 24 MiB beside the least, they are shared 1 to 2.
 */
static void test_large_streams(void) {
    const Fan expected[] = {
        {0, {256, MIB}, {256, GRAIN}, 2 * 5 * 16 * MIB},
        {2 * (24 * MIB + 1280), {512, MIB}, {1024, GRAIN}, 2 * (8 + 4 * 4) * MIB},
    };

    assert_fan(1u << 31, 5, expected, G_N_ELEMENTS(expected));
}

/*
 * Columns of 200 bytes to rank 1 and 10000 bytes to ranks 2 and 3, packed together within 4352
 * bytes: 256 for the small one, which stays whole, and 2048 for the others: five chunks of eight
 * grains.
 */
static void test_small_messages(void) {
    static const char tensors[] = "  - {name: v, shape: [100, 2], dtype: bf16, role: other}\n"
                                  "  - {name: w, shape: [5000, 2], dtype: bf16, role: other}\n";
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:1 gpu:4 nvlink:450GBps nic:50GBps", tensors, 1,
                      "rules: [{tensors: \"*\", ranks: [0], place: [replicate]}]", 3,
                      "rules: [{tensors: \"*\", mesh: [3], place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 1);
    guint small = problem->classes[0].shape[0] == 100 ? 0 : 1;

    refit_case->budget_staging_bytes = 2 * 4352;
    refit_plan_builder_set_peers_per_step(builder, 3);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    plan_case_add(builder, small, "0:100,0:1", 0, 1, stage, REFIT_LANDING_HOME, NULL, 0);
    plan_case_add(builder, 1 - small, "0:5000,0:1", 0, 2, stage, REFIT_LANDING_HOME, NULL, 0);
    plan_case_add(builder, 1 - small, "0:5000,1:2", 0, 3, stage, REFIT_LANDING_HOME, NULL, 0);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    for (guint rank = 0; rank < 4; rank++) {
        const RefitScheduleStep *step = &schedule->steps[rank];

        assert_cutting(step, 5, 256);
        g_assert_cmpuint(step->n_chunks, ==, rank == 1 ? 1 : 5);
    }
    g_assert_cmpuint(schedule->ranks[0].wire_bytes, ==, 2 * 4352);
    g_assert_cmpuint(schedule->ranks[1].wire_bytes, ==, 256);
    g_assert_cmpuint(schedule->ranks[2].wire_bytes, ==, 2 * 2048);
    for (guint chunk = 0; chunk < 5; chunk++)
        for (guint e = 0; e < 3; e++)
            g_assert_cmpuint(refit_schedule_turn_bytes(schedule, &schedule->steps[0],
                                                       &schedule->exchanges[e], 0, chunk),
                             ==,
                             e == 0 && chunk == 0 ? 200
                             : e == 0             ? 0
                             : chunk < 4          ? 2048
                                                  : 10000 - 4 * 2048);
}

/*
 * 10, 20 and 40 grains to ranks 1, 2 and 3, packed together within 13 grains: six chunks, of 2, 4
 * and 7 grains at most (in five they would have 2, 4 and 8). All of them have the same share of
 * each message, to a grain, and nobody's port waits for another's: borders behind 10c/6, 20c/6 and
 * 40c/6.
 */
static void test_unlike_messages(void) {
    static const guint sizes[3] = {10, 20, 40};
    static const guint grains[6][3] = {{1, 3, 6}, {2, 3, 7}, {2, 4, 7},
                                       {1, 3, 6}, {2, 3, 7}, {2, 4, 7}};
    static const char tensors[] = "  - {name: w, shape: [1280, 70], dtype: bf16, role: other}\n";
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:4 gpu:1 nvlink:450GBps nic:50GBps", tensors, 1, POOL_SOURCE, 3,
                      "rules: [{tensors: w, place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 1), n;

    refit_case->budget_staging_bytes = 2 * 13 * 256;
    refit_plan_builder_set_peers_per_step(builder, 3);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < 3; i++) {
        /* 128 rows of `size` elements. */
        g_autofree char *region = g_strdup_printf("%u:%u,0:%u", 128 * i, 128 * i + 128, sizes[i]);

        plan_case_add(builder, 0, region, 0, 1 + i, stage, REFIT_LANDING_HOME, NULL, 0);
    }
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    for (guint rank = 0; rank < 4; rank++) {
        const RefitScheduleStep *step = refit_schedule_steps(schedule, rank, &n);

        g_assert_cmpuint(n, ==, 1);
        assert_cutting(step, 6, 256);
        g_assert_cmpuint(step->n_chunks, ==, 6);
        for (guint chunk = 0; chunk < 6; chunk++)
            for (guint e = 0; e < step->n_exchanges; e++)
                g_assert_cmpuint(refit_schedule_turn_bytes(
                                     schedule, step, &schedule->exchanges[step->first_exchange + e],
                                     step->number, chunk),
                                 ==, 256 * grains[chunk][rank == 0 ? e : rank - 1]);
    }
    g_assert_cmpuint(schedule->ranks[0].wire_bytes, ==, 2 * 13 * 256);
}

/* The share of a stream by what its number packs: with one message under number 0 and three under
 * number 1, chunks are not alike. */
static void test_narrow_steps(void) {
    static const char tensor[] = "  - {name: w, shape: [1000, 4], dtype: bf16, role: other}\n";
    static const char *const columns[] = {"0:1000,0:1", "0:1000,1:2", "0:1000,2:3", "0:1000,3:4"};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:1 gpu:5 nvlink:450GBps nic:50GBps", tensor, 1, POOL_SOURCE, 4,
                      "rules: [{tensors: w, mesh: [4], place: [{shard: 1}]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 1);

    refit_case->budget_staging_bytes = 2 * 1536;
    refit_plan_builder_set_peers_per_step(builder, 4);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < 4; i++) {
        refit_plan_builder_set_least_depth(builder, i > 0 ? 1 : 0);
        plan_case_add(builder, 0, columns[i], 0, 1 + i, stage, REFIT_LANDING_HOME, NULL, 0);
    }
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    /* 2000 bytes are eight grains: two chunks of four, and four of two. */
    g_assert_cmpuint(schedule->step_offsets[1], ==, 2);
    assert_cutting(&schedule->steps[0], 2, 256);
    g_assert_cmpuint(schedule->steps[0].n_chunks, ==, 2);
    assert_cutting(&schedule->steps[1], 4, 256);
    g_assert_cmpuint(schedule->steps[1].n_chunks, ==, 4);
    g_assert_cmpuint(schedule->steps[1].first_turn, ==, 2);
    g_assert_cmpuint(schedule->ranks[0].wire_bytes, ==, 2 * 1536);
}

/*
 * Rank 0 packs one column for a peer on its node and four for others, rank 1 the other way round,
 * in a step of its own. Each takes 2560 bytes with the smallest chunks, though streams would take
 * 4096 for both of them.
 */
static void test_crossed_ranks(void) {
    static const guint peers[2][5] = {{2, 10, 11, 12, 13}, {3, 4, 5, 6, 14}};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:2 gpu:10 nvlink:450GBps nic:50GBps",
                      "  - {name: w, shape: [1000, 10], dtype: bf16, role: other}\n", 2,
                      "rules: [{tensors: w, place: [replicate]}]", 13,
                      "rules: [{tensors: w, place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 1);

    refit_plan_builder_set_peers_per_step(builder, 5);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < 10; i++) {
        g_autofree char *region = g_strdup_printf("0:1000,%u:%u", i, i + 1);

        refit_plan_builder_set_least_depth(builder, i / 5);
        plan_case_add(builder, 0, region, i / 5, peers[i / 5][i % 5], stage, REFIT_LANDING_HOME,
                      NULL, 0);
    }
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    refit_case->budget_staging_bytes = 2560;
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    g_assert_true(refit_schedule_check_budget(schedule, &error));
    g_assert_no_error(error);
    for (guint rank = 0; rank < 2; rank++)
        g_assert_cmpuint(schedule->ranks[rank].wire_bytes, ==, 2560);
}

/*
 * Two slices of about 1000 bytes go to rank 8 from each of four others, packed: under numbers 0 and
 * 1, 3 and 4, 2 and 3, 1 and 2. No more than two are under way at a time, so a slot has room for
 * two: 1024 bytes are enough for both slots with the smallest chunks, 4096 for whole slices.
 */
static void test_places(void) {
    static const guint depths[] = {0, 3, 2, 1};
    static const struct {
        guint64 budget;
        guint n;
        guint64 largest; /* chunk */
    } expected[] = {{1024, 4, 256}, {2047, 4, 256}, {2048, 2, 512}, {4096, 1, 1024}};
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:1 gpu:9 nvlink:450GBps nic:50GBps",
                      "  - {name: w, shape: [1000, 4], dtype: bf16, role: other}\n", 8,
                      "rules: [{tensors: w, place: [replicate]}]", 1,
                      "rules: [{tensors: w, place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 2);

    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < 4; i++) {
        g_autofree char *region = g_strdup_printf("0:1000,%u:%u", i, i + 1);

        refit_plan_builder_set_least_depth(builder, depths[i]);
        plan_case_add(builder, 0, region, i, 8, stage, REFIT_LANDING_HOME, NULL, 0);
    }
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
        g_autoptr(GError) error = NULL;

        refit_case->budget_staging_bytes = expected[i].budget;
        g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
        g_assert_no_error(error);
        g_assert_true(refit_schedule_check_budget(schedule, &error));
        g_assert_no_error(error);
        g_assert_cmpuint(schedule->step_offsets[9] - schedule->step_offsets[8], ==, 1);
        assert_cutting(&schedule->steps[schedule->step_offsets[8]], expected[i].n, 256);
        g_assert_cmpuint(schedule->ranks[8].wire_bytes, ==, 4 * expected[i].largest);
    }
}

/*
 * One after the other, slices of 1024, 2048 and 2048 bytes, of which two are under way at a time:
 * no more than 4096 bytes. But the third does not fit where the first one was, so that whole slices
 * take 5120 of a slot; a budget of 4096 for each has them cut in halves, which take 2560.
 */
static void test_gaps(void) {
    static const char *const regions[] = {"0:1000,0:1", "0:1000,1:3", "0:1000,3:5"};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:1 gpu:9 nvlink:450GBps nic:50GBps",
                      "  - {name: w, shape: [1000, 6], dtype: bf16, role: other}\n", 8,
                      "rules: [{tensors: w, place: [replicate]}]", 1,
                      "rules: [{tensors: w, place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 2);

    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < 3; i++) {
        refit_plan_builder_set_least_depth(builder, i);
        plan_case_add(builder, 0, regions[i], i, 8, stage, REFIT_LANDING_HOME, NULL, 0);
    }
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) roomy = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(roomy->ranks[8].wire_bytes, ==, 2 * 5120);
    refit_case->budget_staging_bytes = 2 * 5120;
    g_autoptr(RefitSchedule) whole = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    assert_cutting(&whole->steps[0], 1, 256);
    g_assert_cmpuint(whole->ranks[8].wire_bytes, ==, 2 * 5120);
    refit_case->budget_staging_bytes = 2 * 4096;
    g_autoptr(RefitSchedule) cut = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    g_assert_true(refit_schedule_check_budget(cut, &error));
    g_assert_no_error(error);
    assert_cutting(&cut->steps[0], 2, 256);
    g_assert_cmpuint(cut->ranks[8].wire_bytes, ==, 2 * 2560);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/schedule-chunks/borders-are-in-proportion", test_borders);
    g_test_add_func("/schedule-chunks/borders-of-64-bits", test_borders_of_64_bits);
    g_test_add_func("/schedule-chunks/memory-for-a-message-is-enough-for-a-smaller-one",
                    test_most_grows);
    g_test_add_func("/schedule-chunks/chunks-share-what-landings-leave", test_pool);
    g_test_add_func("/schedule-chunks/grains-are-a-quarter-of-what-a-message-has", test_grains);
    g_test_add_func("/schedule-chunks/streams-share-what-the-least-leaves", test_two_streams);
    g_test_add_func("/schedule-chunks/streams-share-by-the-roots-of-what-they-pack",
                    test_large_streams);
    g_test_add_func("/schedule-chunks/small-messages-stay-whole-beside-large-ones",
                    test_small_messages);
    g_test_add_func("/schedule-chunks/turns-move-the-same-share-of-unlike-messages",
                    test_unlike_messages);
    g_test_add_func("/schedule-chunks/a-narrow-step-is-not-cut-as-fine-as-a-wide-one",
                    test_narrow_steps);
    g_test_add_func("/schedule-chunks/a-budget-that-every-rank-keeps-is-kept", test_crossed_ranks);
    g_test_add_func("/schedule-chunks/messages-that-follow-each-other-share-places", test_places);
    g_test_add_func("/schedule-chunks/gaps-between-messages-cost-chunks-not-the-budget", test_gaps);
    return g_test_run();
}
