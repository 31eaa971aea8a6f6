/*
 * What goes wrong: ranks that never come, that leave or close between calls, are killed or stalled
 * in the middle (stage by stage: test-executor-stages.c); ranks with another plan or other sizes;
 * plans prepared one after the other; wrong addresses; aborts by the user; a run that fails on its
 * caller's stream; each call of CUDA and NCCL failing. All other ranks return, name the one to
 * blame, leave the version as it was and leave nothing behind.
 */

#include "fault-runs.h"
#include "strategy-cases.h"

/* ---- ranks that leave ---- */

static void leave(ExecutorLeaves leaves) {
    FaultRun runs[4] = {0};

    for (guint i = 0; i < 4; i++) {
        guint leaver = i < 2 ? 2 : 5; /* a sender, a receiver */
        runs[i].run = (ExecutorRun){.as = i % 2 == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                    .n_runs = 1,
                                    .leaves = leaves,
                                    .leaver = leaver,
                                    .untidy = i % 2 == 0, /* what the rank had is in this process */
                                    .must_fail = TRUE,
                                    .error_has = leaver == 2 ? "rank 2 did not report within"
                                                             : "rank 5 did not report within"};
    }
    fault_runs(runs, 4);
}

static void test_never_opens(void) {
    leave(EXECUTOR_NEVER_OPENS);
}

static void test_never_prepares(void) {
    leave(EXECUTOR_NEVER_PREPARES);
}

static void test_never_starts(void) {
    leave(EXECUTOR_NEVER_STARTS);
}

static void test_never_waits(void) {
    leave(EXECUTOR_NEVER_WAITS);
}

/* It leaves nothing behind itself. */
static void test_closes(void) {
    FaultRun runs[4] = {0};

    for (guint i = 0; i < 4; i++)
        runs[i] = (FaultRun){.run = {.as = i % 2 == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                     .n_runs = 1,
                                     .leaves = EXECUTOR_CLOSES_IN_A_RUN,
                                     .leaver = 2,
                                     .must_fail = TRUE,
                                     .error_has = "rank 2 did not report within"},
                             .fault = i < 2 ? NULL
                                            : "group@8:2:1:stall"}; /* in flight, or perhaps done */
    fault_runs(runs, 4);
}

/* ---- ranks that break down in the middle ---- */

/* The rank is killed as it submits one of its groups. */
static void test_killed(void) {
    guint n = strategy_count();
    g_autofree FaultRun *runs = g_new0(FaultRun, 2 * n);

    for (guint s = 0; s < n; s++)
        for (guint i = 0; i < 2; i++)
            runs[2 * s + i] =
                (FaultRun){.run = {.as = RANKS_AS_PROCESSES,
                                   .n_runs = 1,
                                   .may_fail = TRUE,
                                   .must_fail = i == 0,
                                   .error_has = "rank 1 did not report"},
                           .strategy = refit_strategies()[s]->name,
                           .fault = i == 0 ? "ncclGroupEnd:1:1:kill" : "ncclGroupEnd:1:3:kill",
                           .may_miss = i == 1};
    fault_runs(runs, 2 * n);
}

/* The rank's device moves nothing any more; the rank itself reports that. */
static void test_stalled(void) {
    guint n = strategy_count();
    g_autofree FaultRun *runs = g_new0(FaultRun, 2 * n);

    for (guint s = 0; s < n; s++)
        for (guint i = 0; i < 2; i++)
            runs[2 * s + i] =
                (FaultRun){.run = {.as = i == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                   .n_runs = 1,
                                   .must_fail = TRUE,
                                   .error_has = "rank 1"},
                           .strategy = refit_strategies()[s]->name,
                           .fault = "ncclGroupEnd:1:1:stall"};
    fault_runs(runs, 2 * n);
}

/* Before the run, when ranks meet for the first time. */
static void test_stalled_connecting(void) {
    guint n = strategy_count();
    g_autofree FaultRun *runs = g_new0(FaultRun, 2 * n);

    for (guint s = 0; s < n; s++)
        for (guint i = 0; i < 2; i++)
            runs[2 * s + i] = (FaultRun){
                .run = {.as = i == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                        .n_runs = 1,
                        .must_fail = TRUE,
                        .error_has = i == 0 ? "connecting to peers: "
                                            : "preparing: rank 1 (node0) did not report"},
                .strategy = refit_strategies()[s]->name,
                .fault = i == 0 ? "group@8:1:1:stall" : "ncclGroupEnd:1:1:kill",
                .connecting = TRUE};
    fault_runs(runs, 2 * n);
}

static void test_lost(void) {
    FaultRun runs[2] = {0};

    for (guint i = 0; i < 2; i++)
        runs[i] = (FaultRun){.run = {.as = i == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                     .n_runs = 1,
                                     .must_fail = TRUE,
                                     .error_has = "rank 1: "},
                             .fault = "ncclGroupEnd:1:1:lost"};
    fault_runs(runs, 2);
}

/* ---- aborts by the user ---- */

/* The ring has more turns than may be in flight, so a rank waits while it submits them; the first
 * of them until its peers have come, and an abort then leaves its device without a group. */
static void test_aborted(void) {
    static const struct {
        ExecutorAborts when;
        const char *strategy, *fault;
    } aborts[] = {
        {EXECUTOR_ABORTS_BEFORE, "refit", NULL},
        {EXECUTOR_ABORTS_IN_START, "ring", "group@8:1:1:stall"},
        {EXECUTOR_ABORTS_IN_WAIT, "refit", "group@8:1:1:stall"},
        {EXECUTOR_ABORTS_IN_WAIT, "gather-broadcast", "group@4:1:1:stall"},
    };
    FaultRun runs[G_N_ELEMENTS(aborts)][3] = {0};

    for (guint a = 0; a < G_N_ELEMENTS(aborts); a++)
        for (guint i = 0; i < 3; i++)
            runs[a][i] = (FaultRun){.run = {.as = i == 0 ? RANKS_AS_PROCESSES : RANKS_AS_THREADS,
                                            .n_runs = 1,
                                            .timeout_s = 20,
                                            .aborts = aborts[a].when,
                                            .aborter = 1,
                                            .informs = TRUE,
                                            .must_fail = TRUE,
                                            .error_has = "aborted by its user"},
                                    .strategy = aborts[a].strategy,
                                    .fault = aborts[a].fault,
                                    .may_miss = aborts[a].when == EXECUTOR_ABORTS_IN_START};
    for (guint a = 0; a < G_N_ELEMENTS(aborts); a++) {
        runs[a][2].run.informs = FALSE; /* others wait for their time-out */
        runs[a][2].run.timeout_s = 0;
    }
    fault_runs(runs[0], G_N_ELEMENTS(aborts) * 3);
}

/* ---- a caller's stream ---- */

/* It can be used again, whatever became of the run. */
static void test_stream(void) {
    static const char *const faults[] = {"group@8:1:1:stall", "group@8:6:1", "ncclSend:1:1",
                                         "cudaLaunchKernel:6:1"};
    FaultRun runs[G_N_ELEMENTS(faults)] = {0};

    for (guint i = 0; i < G_N_ELEMENTS(faults); i++)
        runs[i] = (FaultRun){.run = {.n_runs = 1, .own_stream = TRUE, .must_fail = TRUE},
                             .fault = faults[i]};
    fault_runs(runs, G_N_ELEMENTS(faults));
}

/* ---- disagreement ---- */

static void test_other_plan(void) {
    const FaultRun run = {
        .run = {.n_runs = 1,
                .timeout_s = 60,
                .must_fail = TRUE,
                .other_plan = 1 + 3,
                .error_has = "ranks 0 (node0) and 3 (node0) have different plans"}};

    fault_runs(&run, 1);
}

static void test_other_schedule(void) {
    const FaultRun run = {.run = {.n_runs = 1,
                                  .timeout_s = 60,
                                  .must_fail = TRUE,
                                  .other_schedule = 1 + 3,
                                  .error_has = "ranks 0 and 3 have different schedules"}};

    fault_runs(&run, 1);
}

static void test_other_sizes(void) {
    const FaultRun run = {
        .run = {.n_runs = 1,
                .timeout_s = 60,
                .must_fail = TRUE,
                .short_message = 1 + 3,
                .error_has = "what ranks would send is not what others would receive"}};

    fault_runs(&run, 1);
}

/* ---- preparing more than once ---- */

static void test_prepared_again(void) {
    FaultRun runs[4] = {0};

    for (guint i = 0; i < 4; i++)
        runs[i] = (FaultRun){.run = {.as = i % 2 == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                     .n_runs = 2,
                                     .timeout_s = 60},
                             .strategy = i < 2 ? "refit" : "gather-broadcast",
                             .then = i < 2 ? "refit" : "hybrid"};
    fault_runs(runs, 4);
}

/* Nothing can be run then; a prepare that succeeds mends it. */
static void test_wrong_addresses(void) {
    static const struct {
        ExecutorAddresses addresses;
        const char *says[2]; /* of a sender, of a receiver */
    } cases[] = {
        {EXECUTOR_NO_LIST, {"rank 2: the addresses of ", "rank 6: the addresses of "}},
        {EXECUTOR_NULL_ADDRESS, {"0x0 is not memory of device 2", "0x0 is not memory of device 6"}},
        {EXECUTOR_HOST_MEMORY, {"is not memory of device 2", "is not memory of device 6"}},
        {EXECUTOR_OTHER_DEVICE, {"is not memory of device 2", "is not memory of device 6"}},
        {EXECUTOR_FREED_MEMORY, {"is not memory of device 2", "is not memory of device 6"}},
    };
    FaultRun runs[G_N_ELEMENTS(cases)][2] = {0};

    for (guint c = 0; c < G_N_ELEMENTS(cases); c++)
        for (guint i = 0; i < 2; i++)
            runs[c][i].run = (ExecutorRun){.n_runs = 1,
                                           .timeout_s = 60,
                                           .addresses = cases[c].addresses,
                                           .misled = i == 0 ? 2 : 6,
                                           .error_has = cases[c].says[i]};
    fault_runs(runs[0], G_N_ELEMENTS(cases) * 2);
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
    "cudaStreamQuery",
    "cudaMemGetInfo",
    "cudaLaunchKernel",
    "ncclCommInitRankConfig",
    "ncclCommSplit",
    "ncclCommGetAsyncError",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclSend",
    "ncclRecv",
};

/* Called a fixed number of times before the run; others may fail then, too. */
static gboolean is_of_groups(const char *call) {
    return g_str_has_prefix(call, "ncclGroup") || g_str_equal(call, "ncclSend") ||
           g_str_equal(call, "ncclRecv");
}

static void sweep(gboolean informs, const guint *nths, guint n_nths) {
    FaultRun runs[G_N_ELEMENTS(calls) * 6] = {0};
    g_autoptr(GPtrArray) faults = g_ptr_array_new_with_free_func(g_free);
    guint n = 0;

    g_assert_cmpuint(n_nths, <=, 6);
    for (guint c = 0; c < G_N_ELEMENTS(calls); c++)
        for (guint i = 0; i < n_nths; i++) {
            /* Rank 1 sends only, rank 6 receives only. */
            guint rank = g_str_equal(calls[c], "ncclRecv") || i % 2 == 1 ? 6 : 1;
            char *fault = g_strdup_printf("%s:%u:%u", calls[c], rank, nths[i]);
            g_ptr_array_add(faults, fault);
            runs[n++] = (FaultRun){.run = {.as = RANKS_AS_THREADS,
                                           .n_runs = 1,
                                           .timeout_s = informs ? 60 : 0,
                                           .informs = informs,
                                           .may_fail = TRUE,
                                           .must_fail = nths[i] == 1 && i == 0},
                                   .fault = fault,
                                   .connecting = i % 2 == 0 || !is_of_groups(calls[c]),
                                   .may_miss = nths[i] > 1 || i > 0};
        }
    fault_runs(runs, n);
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
    static const char *const releases[] = {"cudaFree", "cudaEventDestroy", "cudaStreamDestroy",
                                           "ncclCommFinalize", "ncclCommDestroy"};
    FaultRun runs[G_N_ELEMENTS(releases)][2] = {0};
    g_autoptr(GPtrArray) faults = g_ptr_array_new_with_free_func(g_free);

    for (guint c = 0; c < G_N_ELEMENTS(releases); c++)
        for (guint i = 0; i < 2; i++) {
            char *fault = g_strdup_printf("%s:1:%u", releases[c], 1 + i);
            g_ptr_array_add(faults, fault);
            runs[c][i] = (FaultRun){.run = {.n_runs = 1, .timeout_s = 60, .untidy = TRUE},
                                    .fault = fault,
                                    .may_miss = TRUE};
        }
    fault_runs(runs[0], G_N_ELEMENTS(releases) * 2);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-faults/a-rank-never-opens", test_never_opens);
    g_test_add_func("/executor-faults/a-rank-never-prepares", test_never_prepares);
    g_test_add_func("/executor-faults/a-rank-never-starts", test_never_starts);
    g_test_add_func("/executor-faults/a-rank-leaves-during-a-run", test_never_waits);
    g_test_add_func("/executor-faults/a-rank-closes-during-a-run", test_closes);
    g_test_add_func("/executor-faults/a-rank-is-killed-in-a-step", test_killed);
    g_test_add_func("/executor-faults/a-device-moves-nothing-any-more", test_stalled);
    g_test_add_func("/executor-faults/a-device-moves-nothing-as-it-connects",
                    test_stalled_connecting);
    g_test_add_func("/executor-faults/a-device-is-lost", test_lost);
    g_test_add_func("/executor-faults/a-user-aborts", test_aborted);
    g_test_add_func("/executor-faults/the-callers-stream-goes-on", test_stream);
    g_test_add_func("/executor-faults/plans-differ", test_other_plan);
    g_test_add_func("/executor-faults/schedules-differ", test_other_schedule);
    g_test_add_func("/executor-faults/sizes-differ", test_other_sizes);
    g_test_add_func("/executor-faults/plans-follow-each-other", test_prepared_again);
    g_test_add_func("/executor-faults/addresses-are-wrong", test_wrong_addresses);
    g_test_add_func("/executor-faults/each-call-fails", test_each_call);
    g_test_add_func("/executor-faults/each-call-fails-and-others-wait", test_each_call_by_time_out);
    g_test_add_func("/executor-faults/each-release-fails", test_each_release);
    return g_test_run();
}
