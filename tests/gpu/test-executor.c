/*
 * The executor on the CPU stand-in of CUDA and NCCL: the shipped tiny case and random cases with
 * every strategy, ranks as threads and as processes, several runs, runs on the caller's stream, as
 * little staging memory as there can be; bytes of parameters and padding, bytes per link class,
 * versions; the stand-in's hostile modes.
 */

#include "executor-run.h"
#include "random-case.h"

static struct {
    ExecutorRun run;
    guint seed;
    guint times; /* the least staging memory, so many times, is the budget; 0: there is none */
} scene;

static const char *const calm[] = {"REFIT_STANDIN_DEVICES=64", NULL};

static void run_case(RefitCase *refit_case) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, refit_strategies()[i]);

        if (plan == NULL)
            continue;
        if (scene.times > 0)
            refit_case->budget_staging_bytes =
                MAX(scene.times * program_least_staging(refit_case, plan), 1);
        g_autoptr(ProgramSet) set = program_set_new(plan);
        executor_run(set, &scene.run);
    }
}

static void body_tiny(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), "tiny", NULL, &error);

    g_assert_no_error(error);
    executor_cut_small(refit_case);
    run_case(refit_case);
}

static void body_random(void) {
    g_autoptr(RandomCase) random = random_case_new(scene.seed);
    g_autoptr(RefitCase) refit_case = random_case_build(random);

    if (refit_topology_n_gpus(refit_case->topology) <= EXECUTOR_MAX_RANKS)
        run_case(refit_case);
}

static void run_tiny(const ExecutorRun *run, const char *const *environment) {
    scene.run = *run;
    scene.run.timeout_s = 60;
    child_passes(body_tiny, environment);
}

static void test_threads(void) {
    run_tiny(&(const ExecutorRun){.as = RANKS_AS_THREADS, .n_runs = 2}, calm);
}

static void test_processes(void) {
    run_tiny(&(const ExecutorRun){.as = RANKS_AS_PROCESSES, .n_runs = 2}, calm);
}

static void test_chunks(void) {
    scene.times = 2;
    run_tiny(&(const ExecutorRun){.as = RANKS_AS_THREADS, .n_runs = 2}, calm);
    run_tiny(&(const ExecutorRun){.as = RANKS_AS_PROCESSES, .n_runs = 1}, calm);
    scene.times = 0;
}

static void test_untimed(void) {
    run_tiny(&(const ExecutorRun){.n_runs = 2, .untimed = TRUE}, calm);
}

static void test_stream(void) {
    run_tiny(&(const ExecutorRun){.n_runs = 1, .own_stream = TRUE}, calm);
}

/* ---- random cases ---- */

static void run_random(RanksAs as, guint n, const char *const *environment) {
    guint first = g_test_rand_int() & 0xffff;

    for (guint i = 0; i < n; i++) {
        scene.seed = first + i;
        scene.run = (ExecutorRun){.as = as, .n_runs = 1, .timeout_s = 60};
        g_test_message("seed %u", scene.seed);
        child_passes(body_random, environment);
    }
}

static void test_random_threads(void) {
    run_random(RANKS_AS_THREADS, 6, calm);
}

static void test_random_processes(void) {
    run_random(RANKS_AS_PROCESSES, 2, calm);
}

static void test_random_chunks(void) {
    scene.times = 1;
    run_random(RANKS_AS_THREADS, 2, calm);
    run_random(RANKS_AS_PROCESSES, 1, calm);
    scene.times = 0;
}

/* ---- hostile modes ---- */

static void run_hostile(const char *mode) {
    const char *const environment[] = {"REFIT_STANDIN_DEVICES=64", mode, NULL};

    run_tiny(&(const ExecutorRun){.n_runs = 1}, environment);
    run_random(RANKS_AS_THREADS, 1, environment);
    scene.times = 1;
    run_random(RANKS_AS_THREADS, 1, environment);
    scene.times = 0;
}

static void test_eager(void) {
    run_hostile("REFIT_STANDIN_EAGER=1");
}

static void test_serial(void) {
    run_hostile("REFIT_STANDIN_SERIAL=1");
}

static void test_cut_groups(void) {
    run_hostile("REFIT_STANDIN_PLAN_OPS=1");
    run_hostile("REFIT_STANDIN_PLAN_OPS=3");
}

static void test_jitter(void) {
    run_hostile("REFIT_STANDIN_JITTER_US=2000");
}

static void test_small_rings(void) {
    run_hostile("REFIT_STANDIN_RING=256");
}

static void test_block_threads(void) {
    run_hostile("REFIT_STANDIN_BLOCK_THREADS=2");
}

static void test_sockets(void) {
    const char *const environment[] = {"REFIT_STANDIN_DEVICES=64", "REFIT_STANDIN_TRANSPORT=tcp",
                                       NULL};

    run_tiny(&(const ExecutorRun){.as = RANKS_AS_PROCESSES, .n_runs = 1}, environment);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor/tiny-case-with-ranks-as-threads", test_threads);
    g_test_add_func("/executor/tiny-case-with-ranks-as-processes", test_processes);
    g_test_add_func("/executor/messages-move-in-chunks", test_chunks);
    g_test_add_func("/executor/runs-without-times", test_untimed);
    g_test_add_func("/executor/runs-in-the-order-of-the-callers-stream", test_stream);
    g_test_add_func("/executor/random-cases-with-ranks-as-threads", test_random_threads);
    g_test_add_func("/executor/random-cases-with-ranks-as-processes", test_random_processes);
    g_test_add_func("/executor/random-cases-in-little-memory", test_random_chunks);
    g_test_add_func("/executor/sends-end-early", test_eager);
    g_test_add_func("/executor/a-device-runs-one-group-at-a-time", test_serial);
    g_test_add_func("/executor/groups-are-cut", test_cut_groups);
    g_test_add_func("/executor/streams-are-delayed-at-random", test_jitter);
    g_test_add_func("/executor/little-room-between-ranks", test_small_rings);
    g_test_add_func("/executor/blocks-run-at-the-same-time", test_block_threads);
    g_test_add_func("/executor/ranks-speak-through-sockets", test_sockets);
    return g_test_run();
}
