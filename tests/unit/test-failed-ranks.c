/*
 * Cases with ranks that are gone: reading them, what is lost with them, destinations that shrink,
 * and plans of every strategy around every set of lost ranks that leaves the weights whole: proven,
 * in order, and without a transfer that touches a lost rank.
 */

#include "model/schedule/refit-schedule.h"
#include "strategy-cases.h"
#include "validation/refit-demand.h"

/* Two pipeline stages of two replicas of two shards; pools of four and two. */
static const StrategyCase staged = {
    .topology = "node:4 gpu:4 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: \"layers.{0-3}.up\", shape: [16, 8], role: dense_up}\n"
               "  - {name: \"layers.{0-3}.norm\", shape: [8], role: norm}\n",
    .source =
        "gpus: 8, rules: ["
        "{tensors: \"layers.0.up\", ranks: [0-3], mesh: [2, 2], place: [replicate, {shard: 0}]}, "
        "{tensors: \"layers.1.up\", ranks: [0-3], mesh: [2, 2], place: [replicate, {shard: 1}]}, "
        "{tensors: \"*.up\", ranks: [4-7], mesh: [2, 2], place: [replicate, {shard: 0}]}, "
        "{tensors: \"layers.0.norm\", ranks: [0-3], place: [replicate]}, "
        "{tensors: \"*\", ranks: [4-7], place: [replicate]}]",
    .pools = {"gpus: 4, first_gpu: 8, rules: [{tensors: \"*\", mesh: [2, 2], place: [replicate, "
              "{shard: 0}]}]",
              "gpus: 2, first_gpu: 12, rules: [{tensors: \"*\", place: [replicate]}]"}};

static void set_failed(RefitCase *refit_case, const guint *ranks, guint n) {
    g_free(refit_case->failed);
    refit_case->failed = g_memdup2(ranks, n * sizeof *ranks);
    refit_case->n_failed = n;
}

/* Each of the pairs of replicas keeps one: 0 or 2, 1 or 3, 4 or 6, 5 or 7. */
static gboolean is_whole(guint lost) {
    static const guint pairs[] = {0x05, 0x0a, 0x50, 0xa0};
    for (guint i = 0; i < G_N_ELEMENTS(pairs); i++)
        if ((lost & pairs[i]) == pairs[i])
            return FALSE;
    return TRUE;
}

static void check_plans(const RefitProblem *problem, const guint8 *failed) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDemand) demand = refit_demand_new(problem, &error);
    g_assert_no_error(error);
    for (guint i = 0; i < demand->n_ranks; i++)
        g_assert_false(failed[demand->ranks[i].rank]);
    for (guint s = 0; refit_strategies()[s] != NULL; s++) {
        g_autoptr(RefitPlan) plan = refit_plan_new(problem, refit_strategies()[s], &error);
        g_assert_no_error(error);
        g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
        g_assert_no_error(error);
        g_assert_true(refit_schedule_check(schedule, &error));
        g_assert_no_error(error);
        for (guint t = 0; t < plan->n_transfers; t++) {
            g_assert_false(failed[plan->transfers[t].src]);
            g_assert_false(failed[plan->transfers[t].dst]);
        }
        for (guint o = 0; o < plan->n_obligations; o++)
            for (guint r = 0; r < plan->obligations[o].n_ranks; r++)
                g_assert_false(failed[plan->obligations[o].ranks[r]]);
    }
}

static void test_every_loss(void) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(&staged);
    guint n_whole = 0;
    for (guint lost = 0; lost < 256; lost++) {
        g_autoptr(GError) error = NULL;
        guint ranks[9], n = 0;
        guint8 failed[16] = {0};
        for (guint rank = 0; rank < 8; rank++)
            if (lost & 1u << rank)
                ranks[n++] = rank;
        if (lost % 3 == 0) /* now and then a destination as well */
            ranks[n++] = 8 + lost % 5;
        for (guint i = 0; i < n; i++)
            failed[ranks[i]] = 1;
        set_failed(refit_case, ranks, n);
        g_autoptr(RefitProblem) problem = refit_problem_new(refit_case, &error);
        if (!is_whole(lost)) {
            g_assert_null(problem);
            g_assert_error(error, REFIT_ERROR, REFIT_ERROR_DATA_LOST);
            continue;
        }
        g_assert_no_error(error);
        check_plans(problem, failed);
        n_whole++;
    }
    g_assert_cmpuint(n_whole, ==, 81); /* three ways for each of four pairs */
}

static void test_bytes(void) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(&staged);
    g_autoptr(RefitProblem) all = plan_case_problem(refit_case);
    static const guint ranks[] = {9, 12, 13};
    set_failed(refit_case, ranks, 3);
    g_autoptr(RefitProblem) some = plan_case_problem(refit_case);
    /* The first pool needs half of 4 x (256 + 16) bytes per rank, the second all. */
    g_assert_cmpuint(all->needed_bytes, ==, 4 * 544 + 2 * 1088);
    g_assert_cmpuint(some->needed_bytes, ==, 3 * 544);
    g_assert_cmpuint(some->weight_bytes, ==, all->weight_bytes);
}

static void test_nobody_left(void) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(&staged);
    guint ranks[14];
    guint8 failed[16] = {0};
    for (guint i = 0; i < 14; i++) {
        ranks[i] = i;
        failed[i] = 1;
    }
    set_failed(refit_case, ranks, 14);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->n_classes, ==, 0);
    check_plans(problem, failed);
}

/* What nobody held is not lost, whoever fails. */
static void test_never_held(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        plan_case_new(WORKED_TOPOLOGY, WORKED_TENSOR, 4,
                      "rules: [{tensors: w, ranks: [0], place: [{shard: 0, sizes: [8]}]}]", 4,
                      WORKED_DESTINATION);
    static const guint bystander[] = {2}, holder[] = {0};
    set_failed(refit_case, bystander, 1);
    g_autoptr(RefitProblem) fine = plan_case_problem(refit_case);
    g_assert_cmpuint(fine->n_classes, ==, 1);
    set_failed(refit_case, holder, 1);
    g_assert_null(refit_problem_new(refit_case, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_DATA_LOST);
    g_autoptr(RefitCase) absent = plan_case_new(WORKED_TOPOLOGY, WORKED_TENSOR, 4,
                                                "absent: [w], rules: []", 4, WORKED_DESTINATION);
    g_autoptr(GError) missing = NULL;
    set_failed(absent, holder, 1);
    g_assert_null(refit_problem_new(absent, &missing));
    g_assert_error(missing, REFIT_ERROR, REFIT_ERROR_NOT_COVERED);
}

/* ---- the case file ---- */

static RefitCase *load_tiny(const char *failed, GError **error) {
    g_autofree char *set = g_strconcat("failed_ranks=", failed, NULL);
    const char *const overrides[] = {set, NULL};
    return refit_case_load(input_store(), "tiny", overrides, error);
}

static void test_key(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = load_tiny("[3, 0-1]", &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_case->n_failed, ==, 3);
    static const guint expected[] = {0, 1, 3};
    for (guint i = 0; i < 3; i++)
        g_assert_cmpuint(refit_case->failed[i], ==, expected[i]);
    g_autoptr(RefitCase) none = load_tiny("[]", &error);
    g_assert_no_error(error);
    g_assert_cmpuint(none->n_failed, ==, 0);
    static const struct {
        const char *failed;
        RefitError code;
    } bad[] = {{"[1000000]", REFIT_ERROR_INVALID},
               {"3", REFIT_ERROR_INVALID},
               {"[1, 1]", REFIT_ERROR_RANK_DUP},
               {"[2-1]", REFIT_ERROR_INVALID},
               {"[x]", REFIT_ERROR_INVALID}};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) cause = NULL;
        g_assert_null(load_tiny(bad[i].failed, &cause));
        g_assert_error(cause, REFIT_ERROR, (int)bad[i].code);
        g_assert_nonnull(strstr(cause->message, "failed_ranks"));
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/failed/every-loss-is-planned-around-or-named", test_every_loss);
    g_test_add_func("/failed/lost-destinations-need-nothing", test_bytes);
    g_test_add_func("/failed/nobody-left-is-nothing-to-do", test_nobody_left);
    g_test_add_func("/failed/what-nobody-held-is-not-lost", test_never_held);
    g_test_add_func("/failed/case-files-name-lost-ranks", test_key);
    return g_test_run();
}
