/*
 * Tensors of several times the staging budget, which strategies that assemble whole tensors move
 * section by section, carried out on the CPU stand-in: stacked experts with an uneven number of
 * rows and an embedding, ranks as threads and as processes, sides apart and on the same ranks. No
 * rank takes more staging memory than the budget, and every byte is right.
 */

#include "executor-run.h"
#include "strategy-cases.h"

#define EXPERTS                                                                                    \
    "  - {name: \"l.{0-1}.experts\", shape: [33, 32, 64], role: expert_gate_up}\n"                 \
    "  - {name: embed, shape: [1001, 72], role: other}\n"                                          \
    "  - {name: \"l.{0-1}.norm\", shape: [64], dtype: F32, role: other}\n"
#define BUDGET 40000 /* bytes; an expert tensor has 135168, the embedding 144144 */

static const StrategyCase sides[] = {
    /* apart: experts over two pipeline stages, rows to columns */
    {.topology = "node:2 gpu:4 nvlink:450GBps nic:50GBps",
     .tensors = EXPERTS,
     .source = "ranks: [0-3], rules: ["
               "{tensors: l.0.*, mesh: [2], ranks: [0-1], place: [{shard: 0}]}, "
               "{tensors: l.1.*, mesh: [2], ranks: [2-3], place: [{shard: 0}]}, "
               "{tensors: embed, mesh: [4], ranks: [0-3], place: [{shard: 0}]}]",
     .pools = {"ranks: [4-7], rules: ["
               "{tensors: \"*.norm\", mesh: [4], place: [replicate]}, "
               "{tensors: \"*\", mesh: [2, 2], place: [{shard: 0}, {shard: 1}]}]"}},
    /* on the same ranks: the first one keeps its part of what it assembles */
    {.topology = "node:2 gpu:2 nvlink:450GBps nic:50GBps",
     .tensors = EXPERTS,
     .source = "ranks: [0-3], rules: [{tensors: \"*\", mesh: [4], place: [{shard: 0}]}]",
     .pools = {"ranks: [0-3], rules: ["
               "{tensors: \"*.norm\", mesh: [4], place: [replicate]}, "
               "{tensors: \"*\", mesh: [4], place: [{shard: 1}]}]"}},
};

static struct {
    RanksAs as;
    guint side;
    const char *strategy;
} scene;

static void body(void) {
    const ExecutorRun run = {.as = scene.as, .n_runs = 2, .timeout_s = 60};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&sides[scene.side]);

    if (scene.side == 0)
        refit_layout_set_stages(refit_case->source, 2, (const guint[]){0, 0, 1, 1});
    executor_cut_small(refit_case);
    refit_case->budget_staging_bytes = BUDGET;
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, scene.strategy);
    g_autoptr(ProgramSet) set = program_set_new(plan);

    CHECK(plan->n_sections >= problem->n_classes + 12);
    CHECK(refit_schedule_check_budget(set->schedule, &error));
    executor_run(set, &run);
}

static void run(guint side, RanksAs as) {
    static const char *const calm[] = {"REFIT_STANDIN_DEVICES=64", NULL};
    static const char *const strategies[] = {"gather-broadcast", "hybrid"};

    for (guint i = 0; i < G_N_ELEMENTS(strategies); i++) {
        scene.as = as;
        scene.side = side;
        scene.strategy = strategies[i];
        child_passes(body, calm);
    }
}

static void test_apart(void) {
    run(0, RANKS_AS_THREADS);
}

static void test_same(void) {
    run(1, RANKS_AS_THREADS);
}

static void test_processes(void) {
    if (EXECUTOR_WATCHES_THREADS) {
        g_test_skip("ThreadSanitizer sees nothing between processes");
        return;
    }
    run(0, RANKS_AS_PROCESSES);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-sections/sides-apart", test_apart);
    g_test_add_func("/executor-sections/sides-on-the-same-ranks", test_same);
    g_test_add_func("/executor-sections/processes", test_processes);
    return g_test_run();
}
