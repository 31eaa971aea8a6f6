/*
 * Connections: ranks meet their peers when a plan is prepared, before any run; the device must have
 * room for what NCCL takes for that, or all ranks say which one has not; and a rank that is lost
 * meanwhile is noticed. What breaks down is in test-executor-faults.c.
 */

#include "fault-runs.h"
#include "random-case.h"
#include "standin-child.h"

static ExecutorRun scene;

static const char *case_name, *strategy; /* NULL: tiny; refit */

static void body(void) {
    g_autoptr(RefitCase) refit_case = fault_case_load(case_name);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy != NULL ? strategy : "refit");
    g_autoptr(ProgramSet) set = program_set_new(plan);

    executor_run(set, &scene);
}

/*
 * Rank 4 has three connections of 16 channels over NVLink, 2 x 10 and 2 MiB each, and a pool of 16
 * MiB: 368 MiB, more than any other. Its staging memory and parameters take some KiB besides.
 */
static void test_room(void) {
    scene = (ExecutorRun){.n_runs = 1, .timeout_s = 60};
    child_passes(body,
                 (const char *const[]){"REFIT_STANDIN_DEVICES=64", "REFIT_STANDIN_HOST_DEVICES=4",
                                       "REFIT_STANDIN_MEMORY=386007040", NULL});
    scene.must_fail = TRUE;
    scene.error_has =
        "rank 4: NCCL's connections of this plan need 385875968 bytes of device memory, and ";
    child_passes(body, (const char *const[]){"REFIT_STANDIN_DEVICES=64",
                                             "REFIT_STANDIN_MEMORY=385875968", NULL});
}

/* The rules of the schedule against those of the stand-in; see executor-run.c. Of domains that are
 * a node, as the stand-in takes each host for one. */
static void test_memory(void) {
    static const char *const cases[] = {NULL, "pools", "colocated", "idle", "fsdp", "copies"};

    for (guint c = 0; c < G_N_ELEMENTS(cases); c++)
        for (guint s = 0; refit_strategies()[s] != NULL; s++) {
            g_autoptr(RefitCase) refit_case = fault_case_load(cases[c]);
            g_autofree char *hosts = g_strdup_printf("REFIT_STANDIN_HOST_DEVICES=%u",
                                                     refit_case->topology->gpus_per_node);

            case_name = cases[c];
            strategy = refit_strategies()[s]->name;
            scene = (ExecutorRun){.n_runs = 1, .timeout_s = 60};
            child_passes(body, (const char *const[]){"REFIT_STANDIN_DEVICES=64", hosts, NULL});
        }
    case_name = strategy = NULL;
}

/* What fails at the first message fails in prepare, where ranks that hear of it end. */
static void test_before_the_run(void) {
    static const char *const faults[] = {"ncclSend:1:1", "ncclRecv:6:1", "group@8:5:1",
                                         "group@4:5:1"};
    FaultRun runs[G_N_ELEMENTS(faults)] = {0};

    for (guint i = 0; i < G_N_ELEMENTS(faults); i++)
        runs[i] = (FaultRun){.run = {.n_runs = 1,
                                     .timeout_s = 60,
                                     .informs = TRUE,
                                     .must_fail = TRUE,
                                     .error_has = "connecting to peers: "},
                             .fault = faults[i],
                             .connecting = TRUE};
    fault_runs(runs, G_N_ELEMENTS(faults));
}

/* Nobody but NCCL notices that the rank is gone, and to the streams all is done then. */
static void test_lost(void) {
    scene = (ExecutorRun){.as = RANKS_AS_PROCESSES,
                          .n_runs = 1,
                          .timeout_s = 60,
                          .informs = TRUE,
                          .must_fail = TRUE,
                          .untidy = TRUE,
                          .error_has = "remote process exited"};
    child_passes(body,
                 (const char *const[]){"REFIT_STANDIN_DEVICES=64", "REFIT_STANDIN_TRANSPORT=tcp",
                                       "REFIT_STANDIN_FAULT=ncclGroupEnd:1:1:kill", NULL});
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-connect/memory-is-as-the-schedule-says", test_memory);
    g_test_add_func("/executor-connect/connections-need-room", test_room);
    g_test_add_func("/executor-connect/peers-are-connected-before-the-run", test_before_the_run);
    g_test_add_func("/executor-connect/a-peer-is-lost-as-ranks-connect", test_lost);
    return g_test_run();
}
