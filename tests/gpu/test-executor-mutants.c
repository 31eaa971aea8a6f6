/*
 * What only planted bugs brought up (see mutations/): a rank that is alone in its NVLink domain
 * takes part in what is made for all domains; an error that NCCL finds after a call has returned
 * ends a run at once, not at its time-out.
 */

#include "executor-run.h"
#include "random-case.h"

static struct {
    ExecutorRun run;
    const char *name; /* of the case */
    const char *strategy;
} scene;

static void body(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), scene.name, NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    const RefitStrategy *strategy = refit_strategy_find(scene.strategy, &error);
    g_assert_no_error(error);
    g_autoptr(RefitPlan) plan = refit_plan_new(problem, strategy, &error);
    g_assert_no_error(error);
    g_autoptr(ProgramSet) set = program_set_new(plan);

    executor_run(set, &scene.run);
}

/* The last three of these eight ranks have nothing to do; the first four use NVLink. */
static void test_lone_rank(void) {
    scene.name = REFIT_TEST_SOURCE_DIR "/data/run/idle.yaml";
    scene.strategy = "gather-broadcast";
    scene.run = (ExecutorRun){.n_runs = 1, .timeout_s = 60, .lone = 1 + 7};
    child_passes(body, (const char *const[]){"REFIT_STANDIN_DEVICES=64", NULL});
}

/* Nobody but NCCL notices that the rank is gone, with its first group after it has connected. Those
 * who wait longer are found stuck. */
static void test_lost_connection(void) {
    scene.name = "tiny";
    scene.strategy = "refit";
    scene.run = (ExecutorRun){.as = RANKS_AS_PROCESSES,
                              .n_runs = 1,
                              .timeout_s = 60,
                              .informs = TRUE,
                              .must_fail = TRUE,
                              .error_has = "remote process exited"};
    child_passes(body,
                 (const char *const[]){"REFIT_STANDIN_DEVICES=64", "REFIT_STANDIN_TRANSPORT=tcp",
                                       "REFIT_STANDIN_FAULT=ncclGroupEnd:1:2:kill", NULL});
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-mutants/a-rank-alone-in-its-domain", test_lone_rank);
    g_test_add_func("/executor-mutants/a-lost-connection-ends-the-run", test_lost_connection);
    return g_test_run();
}
