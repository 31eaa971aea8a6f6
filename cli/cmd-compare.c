/*
 * `refit compare CASE`: every strategy on one case, side by side with the bound. The first line is
 * the answer; the table gives times, bytes and what limits; JSON has the same in full precision.
 */

#include "cli/cli.h"

typedef struct {
    const char *strategy; /* static */
    RefitPrediction prediction;
    CliTimings timings;
    guint64 link_bytes[REFIT_N_LINKS];
    guint64 logical_bytes, transfers, n_messages;
    const char *shape; /* static; NULL: the usual one */
    char *digest;
} Row;

static void clear_row(gpointer data) {
    g_free(((Row *)data)->digest);
}

static gboolean run_strategy(const Cli *cli, const RefitProblem *problem,
                             const RefitStrategy *strategy, Row *row, GError **error) {
    g_auto(CliPlanned) planned = {0};
    const RefitPlan *plan;

    if (!cli_plan_and_predict(cli, problem, strategy, &planned, NULL, &row->prediction,
                              &row->timings, error))
        return FALSE;
    plan = planned.plan;
    row->strategy = strategy->name;
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        row->link_bytes[link] = plan->link_bytes[link];
    row->logical_bytes = plan->logical_bytes;
    row->transfers = cli_count_transfers(plan);
    row->n_messages = plan->n_messages;
    row->shape = plan->shape;
    row->digest = g_strdup(plan->digest);
    return TRUE;
}

static CliTimings add_timings(const GArray *rows) {
    CliTimings total = {0, 0};

    for (guint i = 0; i < rows->len; i++) {
        total.plan_s += g_array_index(rows, Row, i).timings.plan_s;
        total.simulate_s += g_array_index(rows, Row, i).timings.simulate_s;
    }
    return total;
}

static void print_json(const Cli *cli, const RefitCase *refit_case, const RefitProblem *problem,
                       const CliForms *forms, const RefitBound *bound, const GArray *rows) {
    RefitJson *json = refit_json_new(2);
    CliTimings total = add_timings(rows);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.comparison/1");
    refit_json_string(json, "case", refit_case->name);
    cli_json_failed(json, refit_case);
    cli_json_notes(json, refit_case);
    cli_json_profile(json, refit_case->profile);
    cli_json_forms(json, refit_case, forms);
    cli_json_bound(json, bound);
    if (refit_case->budget_time_s > 0)
        refit_json_double(json, "budget_s", refit_case->budget_time_s);
    cli_json_timings(cli, json, &total);
    refit_json_begin_array(json, "rows");
    for (guint i = 0; i < rows->len; i++) {
        const Row *row = &g_array_index(rows, Row, i);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "strategy", row->strategy);
        refit_json_string(json, "shape", row->shape);
        refit_json_begin_object(json, "time_s");
        refit_json_double(json, "wire", row->prediction.wire_s);
        refit_json_double(json, "pipeline", row->prediction.pipeline_s);
        refit_json_double(json, "step", row->prediction.step_s);
        refit_json_end_object(json);
        refit_json_uint(json, "network_bytes", row->link_bytes[REFIT_LINK_NETWORK]);
        refit_json_uint(json, "nvlink_bytes", row->link_bytes[REFIT_LINK_NVLINK]);
        refit_json_uint(json, "local_bytes", row->link_bytes[REFIT_LINK_LOCAL]);
        refit_json_uint(json, "needed_bytes", problem->needed_bytes);
        refit_json_uint(json, "logical_bytes", row->logical_bytes);
        refit_json_uint(json, "transfers", row->transfers);
        refit_json_uint(json, "messages", row->n_messages);
        refit_json_string(json, "limited_by", row->prediction.limited_by);
        refit_json_double(json, "limited_busy", row->prediction.limited_busy);
        refit_json_string(json, "digest", row->digest);
        if (refit_case->budget_time_s > 0)
            refit_json_bool(json, "fits", row->prediction.step_s <= refit_case->budget_time_s);
        if (cli->options.timings) {
            refit_json_double(json, "plan_s", row->timings.plan_s);
            refit_json_double(json, "simulate_s", row->timings.simulate_s);
        }
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
    refit_json_end_object(json);
    cli_print_json(json);
}

static const Row *fastest(const GArray *rows) {
    const Row *best = &g_array_index(rows, Row, 0);

    for (guint i = 1; i < rows->len; i++) {
        const Row *row = &g_array_index(rows, Row, i);
        if (row->prediction.step_s < best->prediction.step_s)
            best = row;
    }
    return best;
}

static void print_budget(double budget_s, const GArray *rows) {
    g_autofree char *budget = refit_format_seconds(budget_s);
    g_autoptr(GString) met_by = g_string_new(NULL);

    for (guint i = 0; i < rows->len; i++) {
        const Row *row = &g_array_index(rows, Row, i);
        if (row->prediction.step_s <= budget_s)
            g_string_append_printf(met_by, "%s%s", met_by->len > 0 ? ", " : "", row->strategy);
    }
    cli_print_labelled("budget", "%s, met by %s", budget,
                       met_by->len > 0 ? met_by->str : "no strategy");
}

static void print_text(const Cli *cli, const RefitCase *refit_case, const CliForms *forms,
                       const RefitBound *bound, const GArray *rows) {
    g_autoptr(CliTable) table = cli_table_new();
    const Row *best = fastest(rows);
    CliTimings total = add_timings(rows);
    g_autofree char *step = refit_format_seconds(best->prediction.step_s);
    g_autofree char *wire = refit_format_seconds(best->prediction.wire_s);
    g_autofree char *bound_time = refit_format_seconds(bound->time_s);
    g_autofree char *bound_bytes = refit_format_bytes(bound->network_bytes);

    cli_table_add_column(table, "strategy", "", CLI_LEFT);
    cli_table_add_measure(table, "wire", CLI_SECONDS);
    cli_table_add_column(table, "bound", "%", CLI_RIGHT);
    cli_table_add_measure(table, "pipeline", CLI_SECONDS);
    cli_table_add_measure(table, "step", CLI_SECONDS);
    cli_table_add_measure(table, "network", CLI_BYTES);
    cli_table_add_measure(table, "NVLink", CLI_BYTES);
    cli_table_add_column(table, "limited by", "", CLI_LEFT);
    for (guint i = 0; i < rows->len; i++) {
        const Row *row = &g_array_index(rows, Row, i);
        double wire_s = row->prediction.wire_s;

        cli_table_add_cell(table, g_strconcat(row->strategy, row == best ? " *" : "", NULL));
        cli_table_add_number(table, wire_s);
        cli_table_add_number(table, wire_s > 0 ? 100 * bound->time_s / wire_s : 100);
        cli_table_add_number(table, row->prediction.pipeline_s);
        cli_table_add_number(table, row->prediction.step_s);
        cli_table_add_number(table, (double)row->link_bytes[REFIT_LINK_NETWORK]);
        cli_table_add_number(table, (double)row->link_bytes[REFIT_LINK_NVLINK]);
        cli_table_add_cell(table, g_strdup(row->prediction.limited_by));
    }
    cli_print("%s: %s is fastest, step %s (wire %s)\n", refit_case->name, best->strategy, step,
              wire);
    cli_print_case(refit_case);
    cli_print_forms(refit_case, forms);
    cli_print_labelled("bound", "%s and %s into NVLink domains, limited by %s", bound_time,
                       bound_bytes, bound->limited_by);
    if (refit_case->budget_time_s > 0)
        print_budget(refit_case->budget_time_s, rows);
    cli_print_timings(cli, &total);
    cli_print("\n");
    cli_print_table(table);
    cli_print("\nwire: network and NVLink only; bound: best possible wire time over this one;\n"
              "pipeline: with operations and packing; step: with install, host and pause;\n"
              "limited by: the busiest resource of the wire run; *: fastest step.\n");
}

int cli_compare(Cli *cli, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    g_autoptr(RefitProblem) problem = NULL;
    g_autoptr(GArray) rows = g_array_new(FALSE, TRUE, sizeof(Row));
    g_auto(CliForms) forms = {0};
    RefitBound bound;

    g_array_set_clear_func(rows, clear_row);
    if (!cli_load_case(cli, cli->arguments[0], &refit_case, &problem, error) ||
        !refit_bound_compute(problem, &bound, error) ||
        !cli_forms_measure(refit_case, &forms, error))
        return CLI_EXIT_NO;
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_array_set_size(rows, i + 1);
        if (!run_strategy(cli, problem, refit_strategies()[i], &g_array_index(rows, Row, i), error))
            return CLI_EXIT_NO;
    }
    if (cli->options.json)
        print_json(cli, refit_case, problem, &forms, &bound, rows);
    else
        print_text(cli, refit_case, &forms, &bound, rows);
    return CLI_EXIT_YES;
}
