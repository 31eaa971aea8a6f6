/*
 * Events of the executor on the CPU stand-in. Every rank of every run is compared with the schedule
 * (executor-events.c), and so is how many CUDA events it holds; here the cases are such that all of
 * it comes up: chains in slices, chunks, copies, installs, messages straight from memory, several
 * lanes, more turns on a stream than may be in flight.
 */

#include "executor-run.h"
#include "random-case.h"

#include <stdio.h>

typedef enum {
    HAS_SLICES = 1 << 0,
    HAS_CHUNKS = 1 << 1,
    HAS_COPIES = 1 << 2,
    HAS_INSTALLS = 1 << 3,
    HAS_DIRECT = 1 << 4,
    HAS_PACKED = 1 << 5,
    HAS_SLICE_WAITS = 1 << 6,
    HAS_CHUNKED_SLICES = 1 << 7,
    HAS_LONG_STREAMS = 1 << 8, /* with more turns than may be in flight */
} Features;

static struct {
    ExecutorRun run;
    const char *name;              /* of a case; NULL: ... */
    const StrategyCase *described; /* ... this one */
    const char *strategy;          /* NULL: all */
    guint slices, lanes;
    gboolean little; /* staging memory, so there are chunks */
    guint features;  /* that must come up */
} scene;

/* ---- cases ---- */

/* Halves of a matrix by columns become halves by rows, on two ranks each. */
static const StrategyCase turned = {
    .topology = "node:3 gpu:2 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: a, shape: [192, 128], dtype: bf16, role: other}\n"
               "  - {name: b, shape: [64, 96], dtype: f32, role: other}\n"
               "  - {name: c, shape: [96], dtype: bf16, role: other}\n",
    .source = "ranks: [0-1], rules: [{tensors: c, mesh: [2], place: [replicate]}, "
              "{tensors: '*', mesh: [2], place: [{shard: 1}]}]",
    .pools = {"ranks: [2-5], rules: [{tensors: c, mesh: [4], place: [replicate]}, "
              "{tensors: '*', mesh: [2, 2], place: [replicate, {shard: 0}]}]"}};

/* Halves stay where they are. */
static const StrategyCase kept = {
    .topology = "node:1 gpu:2 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: a, shape: [64, 128], dtype: bf16, role: other}\n"
               "  - {name: b, shape: [16, 96], dtype: f32, role: other}\n",
    .source = "ranks: [0-1], rules: [{tensors: '*', mesh: [2], place: [{shard: 0}]}]",
    .pools = {"ranks: [0-1], rules: [{tensors: '*', mesh: [2], place: [{shard: 0}]}]"}};

static RefitCase *load_case(void) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = scene.name != NULL
                                ? refit_case_load(input_store(), scene.name, NULL, &error)
                                : strategy_case_new(scene.described);

    g_assert_no_error(error);
    executor_cut_small(refit_case);
    if (scene.slices > 0)
        refit_case->profile->slices = scene.slices;
    if (scene.lanes > 0)
        refit_case->profile->stage_lanes = scene.lanes;
    return refit_case;
}

static guint features_of(const RefitSchedule *schedule, guint rank) {
    guint n_steps, features = 0;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);

    for (guint i = 0; i < n_steps; i++) {
        const RefitScheduleStep *step = &steps[i];
        guint n_turns = step->first_turn + step->n_numbers * step->n_chunks;

        features |= step->n_numbers > 1 ? HAS_SLICES : 0;
        features |= step->n_chunks > 1 ? HAS_CHUNKS : 0;
        features |= step->n_numbers > 1 && step->n_chunks > 1 ? HAS_CHUNKED_SLICES : 0;
        features |= step->install != 0 ? HAS_INSTALLS : step->link == LOCAL ? HAS_COPIES : 0;
        features |= n_turns > REFIT_SCHEDULE_IN_FLIGHT ? HAS_LONG_STREAMS : 0;
        for (guint w = 0; w < step->n_waits; w++)
            features |= schedule->waits[step->first_wait + w].in_slices ? HAS_SLICE_WAITS : 0;
        for (guint e = 0; e < step->n_exchanges && step->link != LOCAL; e++)
            features |=
                schedule->exchanges[step->first_exchange + e].direct != 0 ? HAS_DIRECT : HAS_PACKED;
    }
    return features;
}

static void run_plan(const RefitPlan *plan, guint *features) {
    g_autoptr(ProgramSet) set = program_set_new(plan);

    for (guint rank = 0; rank < set->n_ranks; rank++)
        *features |= features_of(set->schedule, rank);
    executor_run(set, &scene.run);
}

static void body(void) {
    g_autoptr(RefitCase) refit_case = load_case();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    guint features = 0;

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, refit_strategies()[i]);

        if (plan == NULL ||
            (scene.strategy != NULL && !g_str_equal(scene.strategy, plan->strategy)))
            continue;
        if (scene.little)
            refit_case->budget_staging_bytes = MAX(program_least_staging(refit_case, plan), 1);
        run_plan(plan, &features);
    }
    if ((features & scene.features) != scene.features)
        fprintf(stderr, "features %#x of %#x\n", features, scene.features);
    CHECK((features & scene.features) == scene.features);
}

static void run_in_child(const ExecutorRun *run, guint features) {
    scene.run = *run;
    scene.run.timeout_s = 120;
    scene.features = features;
    child_passes(body, (const char *const[]){"REFIT_STANDIN_DEVICES=64",
                                             "REFIT_STANDIN_TIMEOUT_MS=60000", NULL});
}

static void run_scene(RanksAs as, gboolean untimed, guint features) {
    run_in_child(&(const ExecutorRun){.as = as, .n_runs = 2, .untimed = untimed}, features);
}

/* ---- tests ---- */

static void test_tiny(void) {
    scene.name = "tiny";
    run_scene(RANKS_AS_THREADS, FALSE, HAS_INSTALLS | HAS_PACKED);
    run_scene(RANKS_AS_PROCESSES, FALSE, HAS_INSTALLS | HAS_PACKED);
}

static void test_copies(void) {
    scene.name = REFIT_TEST_SOURCE_DIR "/data/run/colocated.yaml";
    run_scene(RANKS_AS_THREADS, FALSE, HAS_COPIES);
    scene.name = REFIT_TEST_SOURCE_DIR "/data/run/pools.yaml";
    run_scene(RANKS_AS_THREADS, FALSE, 0);
}

/* Nothing is launched. */
static void test_in_place(void) {
    static const char *const strategies[] = {"direct", "refit"};

    scene.name = NULL;
    scene.described = &kept;
    for (guint i = 0; i < G_N_ELEMENTS(strategies); i++) {
        scene.strategy = strategies[i];
        run_in_child(&(const ExecutorRun){.n_runs = 1, .in_place = TRUE}, HAS_COPIES);
    }
    scene.strategy = NULL;
}

static void test_slices(void) {
    scene.slices = 5;
    scene.lanes = 3;
    scene.name = "tiny";
    run_scene(RANKS_AS_THREADS, FALSE, HAS_SLICES);
    scene.name = NULL;
    scene.described = &turned;
    run_scene(RANKS_AS_THREADS, FALSE, HAS_SLICES | HAS_SLICE_WAITS | HAS_DIRECT);
    scene.little = TRUE;
    run_scene(RANKS_AS_THREADS, FALSE, HAS_SLICES | HAS_SLICE_WAITS | HAS_CHUNKED_SLICES);
    scene.little = FALSE;
    scene.slices = scene.lanes = 0;
}

static void test_chunks(void) {
    scene.little = TRUE;
    scene.name = "tiny";
    run_scene(RANKS_AS_THREADS, FALSE, HAS_CHUNKS);
    scene.little = FALSE;
}

static void test_long_streams(void) {
    scene.name = NULL;
    scene.described = &turned;
    scene.little = TRUE;
    run_scene(RANKS_AS_THREADS, FALSE, HAS_CHUNKS | HAS_LONG_STREAMS);
    run_scene(RANKS_AS_PROCESSES, FALSE, HAS_CHUNKS | HAS_LONG_STREAMS);
    run_scene(RANKS_AS_THREADS, TRUE, HAS_CHUNKS | HAS_LONG_STREAMS);
    scene.little = FALSE;
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-events/of-each-turn-what-the-schedule-says", test_tiny);
    g_test_add_func("/executor-events/of-local-copies", test_copies);
    g_test_add_func("/executor-events/of-copies-whose-bytes-are-in-place", test_in_place);
    g_test_add_func("/executor-events/of-each-slice", test_slices);
    g_test_add_func("/executor-events/of-each-chunk", test_chunks);
    g_test_add_func("/executor-events/more-turns-than-may-be-in-flight", test_long_streams);
    return g_test_run();
}
