/*
 * Schedules of the shipped cases, with every strategy: proved, no finer than they must be, within
 * the staging memory that plans keep to, and within a budget of 2 GiB where one is stated; with no
 * more memory for connections than an engine can spare. The largest cases with REFIT_LONG=1 in the
 * environment.
 */

#include "model/schedule/refit-schedule-comms.h"
#include "strategy-cases.h"

#define SHORT_MESSAGES 600000 /* more take seconds each */
#define LARGE_GPUS 128
#define TURN_BYTES (8u << 20)

/* Most turns of a rank. */
static const struct {
    const char *name, *strategy; /* NULL: every case */
    guint turns;
} FEW_TURNS[] = {{NULL, "refit", 2000}, {"deepseek-v3-h100", "gather-broadcast", 20000}};

/* Connections leave an engine its memory. */
static const struct {
    const char *topology;
    guint64 bytes;
} CONNECTIONS[] = {{"one-line", G_GUINT64_CONSTANT(1) << 30},
                   {"dgx-h100", G_GUINT64_CONSTANT(1) << 30},
                   {"dgx-gb200-nvl72", G_GUINT64_CONSTANT(2) << 30}};

static void assert_connections(const RefitSchedule *schedule) {
    const char *topology = schedule->plan->problem->refit_case->topology->name;
    gboolean known = FALSE;

    for (guint i = 0; i < G_N_ELEMENTS(CONNECTIONS); i++) {
        if (!g_str_equal(CONNECTIONS[i].topology, topology))
            continue;
        known = TRUE;
        g_assert_cmpuint(
            refit_schedule_connection_bytes(schedule, refit_schedule_most_connected(schedule)), <=,
            CONNECTIONS[i].bytes);
    }
    g_assert_true(known);
    g_assert_cmpuint(schedule->n_comms[REFIT_LINK_NETWORK] * schedule->ctas[REFIT_LINK_NETWORK] +
                         schedule->n_comms[REFIT_LINK_NVLINK] * schedule->ctas[REFIT_LINK_NVLINK],
                     <=, REFIT_SCHEDULE_COMM_CTAS);
}

typedef struct {
    guint64 network_bytes, network_turns;
    guint64 staging_bytes;
} Sums;

static Sums sum_up(const RefitSchedule *schedule) {
    Sums sums = {0};

    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++) {
        guint n;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n);

        sums.staging_bytes = MAX(sums.staging_bytes, refit_schedule_staging_bytes(schedule, rank));
        for (guint i = 0; i < n; i++) {
            if (steps[i].link != REFIT_LINK_NETWORK)
                continue;
            sums.network_turns += (guint64)steps[i].n_numbers * steps[i].n_chunks;
            for (guint e = 0; e < steps[i].n_exchanges; e++)
                sums.network_bytes += refit_schedule_exchange_bytes(
                    schedule, &schedule->exchanges[steps[i].first_exchange + e]);
        }
    }
    return sums;
}

static void assert_schedule(const char *name, const RefitSchedule *schedule) {
    const char *strategy = schedule->plan->strategy;
    const Sums sums = sum_up(schedule);
    guint turns = schedule->ranks[refit_schedule_busiest(schedule)].n_turns;
    g_autoptr(GError) error = NULL;

    g_test_message("%s, %s: %u turns, %" G_GUINT64_FORMAT
                   " bytes of staging memory, %" G_GUINT64_FORMAT " bytes in a network turn",
                   name, strategy, turns, sums.staging_bytes,
                   sums.network_bytes / MAX(sums.network_turns, 1));
    g_assert_true(refit_schedule_check(schedule, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(sums.staging_bytes, <=, REFIT_PLAN_STAGING_BYTES);
    assert_connections(schedule);
    if (schedule->plan->problem->n_ranks >= LARGE_GPUS)
        g_assert_cmpuint(sums.network_bytes, >=, sums.network_turns * TURN_BYTES);
    for (guint i = 0; i < G_N_ELEMENTS(FEW_TURNS); i++)
        if (g_str_equal(FEW_TURNS[i].strategy, strategy) &&
            (FEW_TURNS[i].name == NULL || g_str_equal(FEW_TURNS[i].name, name)))
            g_assert_cmpuint(turns, <, FEW_TURNS[i].turns);
}

static RefitSchedule *schedule_of(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    RefitSchedule *schedule = refit_schedule_new(plan, &error);

    g_assert_no_error(error);
    return schedule;
}

/* The largest of the published cases, and the one with the largest tensors. */
static const char *const always[] = {"deepseek-v3-h100", "qwen3.5-397b-h100", NULL};

static void test_shipped(gconstpointer data) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), data, NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = NULL;

        /* The largest case takes gigabytes with the others. */
        if (problem->n_ranks > 4096 && !g_str_equal(refit_strategies()[i]->name, "refit"))
            continue;
        if (problem->n_ranks > 1024 && !strategy_long_tier() &&
            refit_strategies()[i]->sends != REFIT_SENDS_SHARDS)
            continue;
        plan = refit_plan_new(problem, refit_strategies()[i], &error);
        g_assert_no_error(error);
        if (plan->n_messages > SHORT_MESSAGES && !strategy_long_tier() &&
            !g_strv_contains(always, data))
            continue;
        g_autoptr(RefitSchedule) schedule = schedule_of(plan);
        assert_schedule(data, schedule);
    }
}

/* 2 GiB can be asked for: with every strategy, and with tensors of nearly as much, or more. */
static void test_budget(gconstpointer data) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), data, NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    refit_case->budget_staging_bytes = G_GUINT64_CONSTANT(2) << 30;
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = refit_plan_new(problem, refit_strategies()[i], &error);
        g_assert_no_error(error);
        if (plan->n_messages > SHORT_MESSAGES && !strategy_long_tier())
            continue;
        g_autoptr(RefitSchedule) schedule = schedule_of(plan);

        g_assert_true(refit_schedule_check_budget(schedule, &error));
        g_assert_no_error(error);
        g_assert_true(refit_schedule_check(schedule, &error));
        g_assert_no_error(error);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_auto(GStrv) names = refit_store_list(input_store(), "cases");

    for (guint i = 0; names[i] != NULL; i++) {
        g_autofree char *path = g_strdup_printf("/schedule-shipped/few-turns-on-%s", names[i]);
        g_test_add_data_func(path, names[i], test_shipped);
    }
    g_test_add_data_func("/schedule-shipped/two-gibibytes-can-be-asked-for", "qwen3-235b-h100",
                         test_budget);
    g_test_add_data_func("/schedule-shipped/two-gibibytes-with-stacked-experts",
                         "qwen3.5-397b-h100", test_budget);
    return g_test_run();
}
