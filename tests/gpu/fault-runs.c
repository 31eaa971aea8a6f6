/*
 * Each run is a child process, at most SIDE_BY_SIDE at a time. Its stand-in says when the fault
 * happens, so a run that never reaches it is found out. Cost: the longest time-out per batch.
 */

#include "fault-runs.h"

#include "model/schedule/refit-schedule-comms.h"
#include "random-case.h"

#include <string.h>

enum { SIDE_BY_SIDE = 6 };

/* Time-outs of a run, one after the other. */
static const double patience[] = {1, 6, 36};

static struct {
    FaultRun run;
    double patience;
} scene;

RefitCase *fault_case_load(const char *name) {
    g_autoptr(GError) error = NULL;
    g_autofree char *path =
        name != NULL ? g_strdup_printf("%s/data/run/%s.yaml", REFIT_TEST_SOURCE_DIR, name)
                     : g_strdup("tiny");
    RefitCase *refit_case = refit_case_load(input_store(), path, NULL, &error);

    g_assert_no_error(error);
    executor_cut_small(refit_case);
    return refit_case;
}

static RefitPlan *plan_with(const RefitProblem *problem, const char *name) {
    g_autoptr(GError) error = NULL;
    const RefitStrategy *strategy = refit_strategy_find(name, &error);
    g_assert_no_error(error);
    RefitPlan *plan = refit_plan_new(problem, strategy, &error);
    g_assert_no_error(error);
    return plan;
}

static void body(void) {
    const FaultRun *what = &scene.run;
    g_autoptr(RefitCase) refit_case = fault_case_load(what->case_name);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan =
        plan_with(problem, what->strategy != NULL ? what->strategy : "refit");
    g_autoptr(RefitPlan) second = what->then != NULL ? plan_with(problem, what->then) : NULL;
    g_autoptr(ProgramSet) set = program_set_new(plan);
    g_autoptr(ProgramSet) then = second != NULL ? program_set_new(second) : NULL;
    ExecutorRun run = what->run;

    if (run.timeout_s == 0)
        run.timeout_s = 0.6 * scene.patience;
    if (what->connecting) /* a thread that NCCL keeps waiting for a peer is left to itself */
        run.untidy = TRUE;
    run.then = then;
    executor_run(set, &run);
}

/* Calls of this name that a rank makes, or groups that its device runs, to connect to its peers. */
static guint count_connecting(const RefitSchedule *schedule, guint rank, const char *name) {
    guint n_ranks = schedule->plan->problem->n_ranks, n = 0;
    guint domain = refit_topology_gpus_per_domain(schedule->plan->problem->refit_case->topology);
    g_autofree char *network = g_strdup_printf("group@%u", n_ranks);
    g_autofree char *nvlink = g_strdup_printf("group@%u", domain);

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint comm = 0; comm < schedule->n_comms[link]; comm++) {
            const RefitScheduleConnections *peers =
                refit_schedule_connections(schedule, rank, (RefitLink)link, comm);
            gboolean meets = peers->n_sends + peers->n_receives > 0;

            if (g_str_equal(name, "ncclSend"))
                n += peers->n_sends;
            else if (g_str_equal(name, "ncclRecv"))
                n += peers->n_receives;
            else if (meets &&
                     (g_str_equal(name, "ncclGroupStart") || g_str_equal(name, "ncclGroupEnd") ||
                      g_str_equal(name, link == REFIT_LINK_NETWORK ? network : nvlink)))
                n++;
        }
    return n;
}

/* The fault as the stand-in counts. Caller frees. */
static char *count_from_open(const FaultRun *run) {
    g_autoptr(GError) error = NULL;
    g_auto(GStrv) words = run->fault != NULL ? g_strsplit(run->fault, ":", 4) : NULL;
    guint nth;

    if (words == NULL || run->connecting ||
        !(g_str_has_prefix(words[0], "nccl") || g_str_has_prefix(words[0], "group@")))
        return g_strdup(run->fault != NULL ? run->fault : "");
    g_assert_cmpuint(g_strv_length(words), >=, 3);
    g_autoptr(RefitCase) refit_case = fault_case_load(run->case_name);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_with(problem, run->strategy != NULL ? run->strategy : "refit");
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    nth = (guint)g_ascii_strtoull(words[2], NULL, 10) +
          count_connecting(schedule, (guint)g_ascii_strtoull(words[1], NULL, 10), words[0]);
    return g_strdup_printf("%s:%s:%u%s%s", words[0], words[1], nth, words[3] != NULL ? ":" : "",
                           words[3] != NULL ? words[3] : "");
}

static Child *start(const FaultRun *run, const char *counted, double with_patience) {
    g_autofree char *fault =
        g_strdup_printf("REFIT_STANDIN_FAULT=%s%s%s", counted, run->never != NULL ? "," : "",
                        run->never != NULL ? run->never : "");
    g_autofree char *stuck =
        g_strdup_printf("REFIT_STANDIN_TIMEOUT_MS=%.0f", 20000 + 1000 * with_patience);
    const char *const environment[] = {"REFIT_STANDIN_DEVICES=65", "REFIT_STANDIN_FAULT_LOG=1",
                                       fault, stuck, NULL};

    scene.run = *run;
    scene.patience = with_patience;
    return child_start(body, environment);
}

static gboolean says_line(const char *text, const char *line) {
    gsize length = strlen(line);

    for (const char *at = text; (at = strstr(at, line)) != NULL; at += length)
        if (at[length] == '\n' && (at == text || at[-1] == '\n'))
            return TRUE;
    return FALSE;
}

/* Whether it ended as it should; *again_out: a time-out came too early. */
static gboolean end(Child *child, const FaultRun *run, const char *counted, gboolean *again_out) {
    g_autofree char *happened = run->fault == NULL || run->may_miss
                                    ? NULL
                                    : g_strdup_printf("stand-in: fault: %s", counted);
    int code;
    g_autofree char *said = child_end(child, &code);
    gboolean missed = happened != NULL && !says_line(said, happened);
    g_autofree char *wrong =
        run->never != NULL ? g_strdup_printf("stand-in: fault: %s", run->never) : NULL;
    gboolean one_more = wrong != NULL && says_line(said, wrong);

    *again_out = run->run.timeout_s == 0 && (code == EXECUTOR_EXIT_LATE || missed);
    if (code != 0 || missed || one_more)
        g_test_message("%s with %s ended with %d%s and said:\n%s",
                       run->strategy != NULL ? run->strategy : "refit",
                       run->fault != NULL ? run->fault : "no fault", code,
                       missed     ? ", without its fault,"
                       : one_more ? ", with one fault too many,"
                                  : "",
                       said);
    return code == 0 && !missed && !one_more;
}

void fault_runs(const FaultRun *runs, guint n) {
    g_autofree gboolean *left = g_new(gboolean, n);
    g_autoptr(GPtrArray) counted = g_ptr_array_new_with_free_func(g_free);
    Child *children[SIDE_BY_SIDE];

    for (guint i = 0; i < n; i++) {
        left[i] = TRUE;
        g_ptr_array_add(counted, count_from_open(&runs[i]));
    }
    for (guint p = 0; p < G_N_ELEMENTS(patience); p++) {
        for (guint first = 0; first < n;) {
            guint which[SIDE_BY_SIDE], n_started = 0;
            for (; first < n && n_started < SIDE_BY_SIDE; first++)
                if (left[first]) {
                    which[n_started] = first;
                    children[n_started++] = start(&runs[first], counted->pdata[first], patience[p]);
                }
            for (guint i = 0; i < n_started; i++) {
                gboolean again;
                gboolean well = end(children[i], &runs[which[i]], counted->pdata[which[i]], &again);
                left[which[i]] = !well && again && p + 1 < G_N_ELEMENTS(patience);
                if (!well && !left[which[i]])
                    g_test_fail();
            }
        }
    }
}

gboolean fault_runs_all(void) {
    return g_strcmp0(g_getenv("REFIT_LONG"), "1") == 0;
}
