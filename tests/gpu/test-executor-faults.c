/*
 * What goes wrong: ranks that never come, that leave between calls, are killed or stalled in the
 * middle; ranks with another plan or other sizes; wrong addresses and arguments; an abort by the
 * user; each call of CUDA and NCCL failing. All other ranks return, name the one to blame, leave
 * the version as it was and leave nothing behind.
 */

#include "executor-run.h"
#include "random-case.h"

static struct {
    ExecutorRun run;
    const char *strategy;
} scene;

static void body(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), "tiny", NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    const RefitStrategy *strategy =
        refit_strategy_find(scene.strategy != NULL ? scene.strategy : "refit", &error);
    g_assert_no_error(error);
    g_autoptr(RefitPlan) plan = refit_plan_new(problem, strategy, &error);
    g_assert_no_error(error);
    g_autoptr(ProgramSet) set = program_set_new(plan);

    executor_run(set, &scene.run);
}

/* `fault`: NULL, or as in REFIT_STANDIN_FAULT. */
static void run_with(const char *fault) {
    g_autofree char *planned =
        g_strdup_printf("REFIT_STANDIN_FAULT=%s", fault != NULL ? fault : "");
    const char *const environment[] = {"REFIT_STANDIN_DEVICES=64", planned, NULL};

    child_passes(body, environment);
}

/* ---- ranks that leave ---- */

static void leave(ExecutorLeaves leaves, const char *error_has) {
    for (guint i = 0; i < 4; i++) {
        scene.run = (ExecutorRun){.as = i % 2 == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                  .n_runs = 1,
                                  .timeout_s = 0.6,
                                  .leaves = leaves,
                                  .leaver = i < 2 ? 2 : 5, /* a sender, a receiver */
                                  .untidy = i % 2 == 0, /* what the rank had is in this process */
                                  .must_fail = TRUE,
                                  .error_has = error_has};
        run_with(NULL);
    }
}

static void test_never_opens(void) {
    leave(EXECUTOR_NEVER_OPENS, "did not report within 0.6 s");
}

static void test_never_prepares(void) {
    leave(EXECUTOR_NEVER_PREPARES, "did not report");
}

static void test_never_starts(void) {
    leave(EXECUTOR_NEVER_STARTS, "did not report");
}

static void test_never_waits(void) {
    leave(EXECUTOR_NEVER_WAITS, "did not report");
}

/* ---- ranks that break down in the middle ---- */

static const char *const strategies[] = {"gather-broadcast", "direct", "ring", "hybrid", "refit"};

/* The rank is killed as it submits one of its groups. */
static void test_killed(void) {
    for (guint s = 0; s < G_N_ELEMENTS(strategies); s++)
        for (guint nth = 1; nth <= 3; nth += 2) {
            g_autofree char *fault = g_strdup_printf("ncclGroupEnd:1:%u:kill", nth);
            scene.strategy = strategies[s];
            scene.run = (ExecutorRun){.as = RANKS_AS_PROCESSES,
                                      .n_runs = 1,
                                      .timeout_s = 0.6,
                                      .may_fail = TRUE,
                                      .must_fail = nth == 1,
                                      .error_has = "rank 1 did not report"};
            run_with(fault);
        }
}

/* The rank's device moves nothing any more; the rank itself reports that. */
static void test_stalled(void) {
    for (guint s = 0; s < G_N_ELEMENTS(strategies); s++)
        for (guint as = 0; as < 2; as++) {
            scene.strategy = strategies[s];
            scene.run = (ExecutorRun){.as = as == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                      .n_runs = 1,
                                      .timeout_s = 0.6,
                                      .must_fail = TRUE,
                                      .error_has = "rank 1"};
            run_with("ncclGroupEnd:1:1:stall");
        }
}

static void test_lost(void) {
    for (guint as = 0; as < 2; as++) {
        scene.run = (ExecutorRun){.as = as == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                  .n_runs = 1,
                                  .timeout_s = 0.6,
                                  .must_fail = TRUE,
                                  .error_has = "rank 1: ",
                                  .untidy = TRUE}; /* a lost device keeps what it has */
        run_with("ncclGroupEnd:1:1:lost");
    }
}

/* ---- disagreement ---- */

static void test_other_plan(void) {
    scene.run = (ExecutorRun){.n_runs = 1,
                              .timeout_s = 60,
                              .must_fail = TRUE,
                              .other_plan = 1 + 3,
                              .error_has = "ranks 0 and 3 have different plans"};
    run_with(NULL);
}

static void test_other_sizes(void) {
    scene.run =
        (ExecutorRun){.n_runs = 1,
                      .timeout_s = 60,
                      .must_fail = TRUE,
                      .short_message = 1 + 3,
                      .error_has = "what ranks would send is not what others would receive"};
    run_with(NULL);
}

/* ---- each call ---- */

static const char *const calls[] = {
    "cudaSetDevice",
    "cudaDeviceGetStreamPriorityRange",
    "cudaMalloc",
    "cudaMemcpy",
    "cudaPointerGetAttributes",
    "cudaStreamCreateWithPriority",
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cudaStreamWaitEvent",
    "cudaEventQuery",
    "cudaEventElapsedTime",
    "cudaLaunchKernel",
    "ncclCommInitRankConfig",
    "ncclCommSplit",
    "ncclCommGetAsyncError",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclSend",
    "ncclRecv",
};

static void sweep(gboolean informs, const guint *nths, guint n_nths) {
    for (guint c = 0; c < G_N_ELEMENTS(calls); c++)
        for (guint i = 0; i < n_nths; i++) {
            /* Rank 1 sends only, rank 6 receives only. */
            guint rank = g_str_equal(calls[c], "ncclRecv") || i % 2 == 1 ? 6 : 1;
            g_autofree char *fault = g_strdup_printf("%s:%u:%u", calls[c], rank, nths[i]);
            g_test_message("%s", fault);
            scene.run = (ExecutorRun){.as = RANKS_AS_THREADS,
                                      .n_runs = 1,
                                      .timeout_s = informs ? 20 : 0.5,
                                      .informs = informs,
                                      .may_fail = TRUE,
                                      .must_fail = nths[i] == 1 && i == 0};
            run_with(fault);
        }
}

static void test_each_call(void) {
    const guint nths[] = {1, 1, 2, 5, 13, 34};

    sweep(TRUE, nths, G_N_ELEMENTS(nths));
}

static void test_each_call_by_time_out(void) {
    const guint nths[] = {1};

    sweep(FALSE, nths, G_N_ELEMENTS(nths));
}

/* What cannot be given back is lost, but nothing hangs or breaks. */
static void test_each_release(void) {
    static const char *const releases[] = {"cudaFree",          "cudaEventDestroy",
                                           "cudaStreamDestroy", "ncclCommFinalize",
                                           "ncclCommDestroy",   "cudaStreamQuery"};

    for (guint c = 0; c < G_N_ELEMENTS(releases); c++)
        for (guint nth = 1; nth <= 2; nth++) {
            g_autofree char *fault = g_strdup_printf("%s:1:%u", releases[c], nth);
            scene.run = (ExecutorRun){.n_runs = 1, .timeout_s = 1, .untidy = TRUE};
            run_with(fault);
        }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-faults/a-rank-never-opens", test_never_opens);
    g_test_add_func("/executor-faults/a-rank-never-prepares", test_never_prepares);
    g_test_add_func("/executor-faults/a-rank-never-starts", test_never_starts);
    g_test_add_func("/executor-faults/a-rank-leaves-during-a-run", test_never_waits);
    g_test_add_func("/executor-faults/a-rank-is-killed-in-a-step", test_killed);
    g_test_add_func("/executor-faults/a-device-moves-nothing-any-more", test_stalled);
    g_test_add_func("/executor-faults/a-device-is-lost", test_lost);
    g_test_add_func("/executor-faults/plans-differ", test_other_plan);
    g_test_add_func("/executor-faults/sizes-differ", test_other_sizes);
    g_test_add_func("/executor-faults/each-call-fails", test_each_call);
    g_test_add_func("/executor-faults/each-call-fails-and-others-wait", test_each_call_by_time_out);
    g_test_add_func("/executor-faults/each-release-fails", test_each_release);
    return g_test_run();
}
