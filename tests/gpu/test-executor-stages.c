/*
 * One rank breaks down in the middle of a stage, as its device comes to it: as it packs, moves over
 * the network or NVLink, unpacks, copies locally or installs a bucket, with every strategy that has
 * the stage. The rank is killed, its device is lost, its kernel never ends or its messages stop.
 * Other ranks return and name it, no rank has switched versions, nothing is left behind. What a
 * device that hangs holds is lost, but its rank, too, returns.
 */

#include "fault-runs.h"
#include "schedule-cases.h"

typedef struct {
    const char *what;      /* for the stand-in: a kernel, or groups of so many ranks */
    const char *case_name; /* NULL: tiny */
    guint rank;
    gboolean moves; /* messages, not a kernel */
    const char *says;
} Stage;

static const Stage pack = {"refit_pack_kernel", NULL, 1, FALSE, "packing"};
static const Stage network = {"group@8", NULL, 1, TRUE, NULL};
static const Stage nvlink = {"group@4", NULL, 5, TRUE, NULL};
static const Stage unpack = {"refit_unpack_kernel", NULL, 5, FALSE, "unpacking"};
/* Ranks whose only kernels of this name these are; see test_copies(). */
static const Stage copy = {"refit_copy_kernel", "copies", 0, FALSE, "copying"};
static const Stage install = {"refit_copy_kernel", NULL, 5, FALSE, "installing"};

/* Steps of the stage's rank that are what the stage is about, by the strategy's schedule: copies
 * and installs are a kernel each. */
static guint count_steps(const RefitStrategy *strategy, const Stage *stage) {
    g_autoptr(RefitCase) refit_case = fault_case_load(stage->case_name);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy->name);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);
    guint n_steps, n = 0;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, stage->rank, &n_steps);

    for (guint i = 0; i < n_steps; i++) {
        RefitLink link = (RefitLink)steps[i].link;

        if (stage == &install)
            n += steps[i].install != 0;
        else if (stage == &copy)
            n += link == REFIT_LINK_LOCAL && steps[i].install == 0;
        else
            n += stage == &nvlink ? link == REFIT_LINK_NVLINK : link != REFIT_LINK_LOCAL;
    }
    return n;
}

typedef struct {
    const char *action;
    RanksAs as;
    gboolean informs;
    gboolean always; /* else for one strategy only, unless everything is asked for */
} Break;

static const Break breaks[] = {
    {"kill", RANKS_AS_PROCESSES, FALSE, TRUE},  {"stall", RANKS_AS_THREADS, FALSE, TRUE},
    {"stall", RANKS_AS_PROCESSES, TRUE, FALSE}, {"lost", RANKS_AS_THREADS, FALSE, FALSE},
    {"lost", RANKS_AS_PROCESSES, TRUE, FALSE},
};

static char *text_of(const Stage *stage, const Break *how) {
    if (g_str_equal(how->action, "kill"))
        return g_strdup_printf("rank %u did not report within", stage->rank);
    if (g_str_equal(how->action, "lost"))
        return g_strdup_printf("rank %u", stage->rank);
    return stage->moves ? g_strdup_printf("rank %u", stage->rank)
                        : g_strdup_printf("%s has not ended on rank %u", stage->says, stage->rank);
}

static void break_at(const Stage *stage) {
    g_autoptr(GPtrArray) texts = g_ptr_array_new_with_free_func(g_free);
    g_autofree FaultRun *runs = g_new0(FaultRun, G_N_ELEMENTS(breaks) * strategy_count());
    guint n = 0;

    for (guint b = 0; b < G_N_ELEMENTS(breaks); b++) {
        const Break *how = &breaks[b];
        gboolean stalls = g_str_equal(how->action, "stall"), tried = FALSE;

        for (guint s = 0; refit_strategies()[s] != NULL; s++) {
            const RefitStrategy *strategy = refit_strategies()[s];

            if (count_steps(strategy, stage) == 0 || (tried && !how->always && !fault_runs_all()))
                continue;
            char *text = text_of(stage, how);
            char *fault = g_strdup_printf("%s:%u:1:%s", stage->what, stage->rank,
                                          stalls && !stage->moves ? "hang" : how->action);
            g_ptr_array_add(texts, text);
            g_ptr_array_add(texts, fault);
            tried = TRUE;
            runs[n++] = (FaultRun){.run = {.as = how->as,
                                           .n_runs = 1,
                                           .informs = how->informs,
                                           .must_fail = TRUE,
                                           .error_has = text,
                                           .blamed = how->informs ? stage->rank + 1 : 0},
                                   .case_name = stage->case_name,
                                   .strategy = strategy->name,
                                   .fault = fault};
        }
    }
    fault_runs(runs, n);
}

static void test_pack(void) {
    break_at(&pack);
}

static void test_network(void) {
    break_at(&network);
}

static void test_nvlink(void) {
    break_at(&nvlink);
}

static void test_unpack(void) {
    break_at(&unpack);
}

static void test_copy(void) {
    break_at(&copy);
}

static void test_install(void) {
    break_at(&install);
}

/* Without events of its kernels a rank cannot tell that one hangs, but it returns. */
static void test_untimed(void) {
    FaultRun runs[2] = {0};

    if (!fault_runs_all()) {
        g_test_skip("takes 10 s; set REFIT_LONG=1");
        return;
    }
    for (guint i = 0; i < 2; i++)
        runs[i] = (FaultRun){.run = {.as = i == 0 ? RANKS_AS_THREADS : RANKS_AS_PROCESSES,
                                     .n_runs = 1,
                                     .untimed = TRUE,
                                     .must_fail = TRUE,
                                     .error_has = "rank 1"},
                             .fault = "refit_pack_kernel:1:1:hang"};
    fault_runs(runs, 2);
}

/* Copy kernels also pack and unpack what is strided on both sides: not so on the ranks above, which
 * launch as many as they have local copies or installs. */
static void test_copies(void) {
    static const Stage *const stages[] = {&copy, &install};
    g_autofree FaultRun *runs = g_new0(FaultRun, G_N_ELEMENTS(stages) * strategy_count());
    g_autoptr(GPtrArray) faults = g_ptr_array_new_with_free_func(g_free);
    guint n = 0;

    for (guint i = 0; i < G_N_ELEMENTS(stages); i++)
        for (guint s = 0; refit_strategies()[s] != NULL; s++) {
            const Stage *stage = stages[i];
            const RefitStrategy *strategy = refit_strategies()[s];
            guint kernels = count_steps(strategy, stage);
            if (kernels == 0)
                continue;
            char *last = g_strdup_printf("%s:%u:%u:pause=0", stage->what, stage->rank, kernels);
            char *none = g_strdup_printf("%s:%u:%u:pause=0", stage->what, stage->rank, kernels + 1);
            g_ptr_array_add(faults, last);
            g_ptr_array_add(faults, none);
            runs[n++] = (FaultRun){.run = {.n_runs = 1, .timeout_s = 60},
                                   .case_name = stage->case_name,
                                   .strategy = strategy->name,
                                   .fault = last,
                                   .never = none};
        }
    fault_runs(runs, n);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-stages/a-rank-breaks-down-as-it-packs", test_pack);
    g_test_add_func("/executor-stages/a-rank-breaks-down-on-the-network", test_network);
    g_test_add_func("/executor-stages/a-rank-breaks-down-on-nvlink", test_nvlink);
    g_test_add_func("/executor-stages/a-rank-breaks-down-as-it-unpacks", test_unpack);
    g_test_add_func("/executor-stages/a-rank-breaks-down-as-it-copies", test_copy);
    g_test_add_func("/executor-stages/a-rank-breaks-down-as-it-installs", test_install);
    g_test_add_func("/executor-stages/a-kernel-hangs-in-a-run-without-times", test_untimed);
    g_test_add_func("/executor-stages/copies-and-installs-are-what-is-hit", test_copies);
    return g_test_run();
}
