/*
 * `refit predict CASE`: one strategy, simulated. The first line is the answer; when the case has
 * a time budget, it says whether the step fits and the exit code is 1 when it does not.
 */

#include "cli/cli-executor.h"
#include "cli/cli-trace.h"

/* All that is printed. */
typedef struct {
    const Cli *cli;
    const RefitExecutor *executor;
    const RefitPlan *plan;
    const CliForms *forms;
    const RefitBound *bound;
    const RefitPrediction *prediction;
    const CliTimings *timings;
    const CliTrace *trace;
    const GArray *events;
} Answer;

static void print_json(const Answer *answer) {
    const RefitPlan *plan = answer->plan;
    const RefitPrediction *prediction = answer->prediction;
    const RefitCase *refit_case = plan->problem->refit_case;
    RefitJson *json = refit_json_new(2);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.prediction/1");
    refit_json_string(json, "case", refit_case->name);
    refit_json_string(json, "strategy", plan->strategy);
    refit_json_string(json, "shape", plan->shape);
    refit_json_string(json, "executor", answer->executor->name);
    refit_json_bool(json, "exact", answer->cli->options.exact);
    cli_json_failed(json, refit_case);
    cli_json_notes(json, refit_case);
    cli_json_profile(json, refit_case->profile);
    refit_json_string(json, "digest", plan->digest);
    refit_json_begin_object(json, "time_s");
    refit_json_double(json, "wire", prediction->wire_s);
    refit_json_double(json, "pipeline", prediction->pipeline_s);
    refit_json_double(json, "step", prediction->step_s);
    refit_json_double(json, "install", prediction->install_s);
    refit_json_double(json, "host", prediction->host_s);
    refit_json_double(json, "pause", prediction->pause_s);
    refit_json_end_object(json);
    cli_json_forms(json, refit_case, answer->forms);
    cli_json_bound(json, answer->bound);
    refit_json_uint(json, "network_bytes", prediction->event_bytes[REFIT_LINK_NETWORK]);
    refit_json_uint(json, "nvlink_bytes", prediction->event_bytes[REFIT_LINK_NVLINK]);
    refit_json_uint(json, "local_bytes", prediction->event_bytes[REFIT_LINK_LOCAL]);
    refit_json_string(json, "limited_by", prediction->limited_by);
    refit_json_uint(json, "limited_rank", prediction->limited_rank);
    refit_json_double(json, "limited_busy", prediction->limited_busy);
    refit_json_double(json, "time_resolution_s", prediction->time_resolution_s);
    if (refit_case->budget_time_s > 0) {
        refit_json_double(json, "budget_s", refit_case->budget_time_s);
        refit_json_bool(json, "fits", prediction->step_s <= refit_case->budget_time_s);
    }
    cli_json_trace(json, answer->trace, answer->events);
    cli_json_timings(answer->cli, json, answer->timings);
    refit_json_end_object(json);
    cli_print_json(json);
}

static void add_row(CliTable *table, const char *what, double seconds, const char *note) {
    cli_table_add_cell(table, g_strdup(what));
    cli_table_add_number(table, seconds);
    cli_table_add_cell(table, g_strdup(note));
}

static void print_text(const Answer *answer) {
    const RefitPlan *plan = answer->plan;
    const RefitBound *bound = answer->bound;
    const RefitPrediction *prediction = answer->prediction;
    const RefitCase *refit_case = plan->problem->refit_case;
    g_autoptr(CliTable) table = cli_table_new();
    g_autofree char *step = refit_format_seconds(prediction->step_s);
    g_autofree char *budget = refit_format_seconds(refit_case->budget_time_s);
    g_autofree char *network = refit_format_bytes(prediction->event_bytes[REFIT_LINK_NETWORK]);
    g_autofree char *nvlink = refit_format_bytes(prediction->event_bytes[REFIT_LINK_NVLINK]);
    g_autofree char *least = refit_format_bytes(bound->network_bytes);

    if (refit_case->budget_time_s > 0)
        cli_print("%s: %s with %s, step %s of %s\n", refit_case->name,
                  prediction->step_s <= refit_case->budget_time_s ? "FITS" : "MISSES",
                  plan->strategy, step, budget);
    else
        cli_print("%s: step %s with %s\n", refit_case->name, step, plan->strategy);
    cli_print_case(refit_case);
    cli_print_forms(refit_case, answer->forms);
    cli_print_shape(plan);
    if (answer->cli->options.exact)
        cli_print_labelled("exact", "turn by turn, as an executor carries it out");
    else if (prediction->time_resolution_s > 0)
        cli_print_labelled("merged",
                           "several turns as one: can be a tenth too short; --exact takes "
                           "each");
    cli_print_trace(answer->trace, answer->events);
    cli_print_timings(answer->cli, answer->timings);
    cli_table_add_column(table, "time", "", CLI_LEFT);
    cli_table_add_measure(table, "", CLI_SECONDS);
    cli_table_add_column(table, "what it counts", "", CLI_LEFT);
    g_autofree char *floor = g_strdup_printf("no plan is faster: %s", bound->limited_by);
    add_row(table, "bound", bound->time_s, floor);
    add_row(table, "wire", prediction->wire_s, "network and NVLink");
    add_row(table, "pipeline", prediction->pipeline_s, "with operations and packing");
    add_row(table, "step", prediction->step_s, "with install, host and pause");
    cli_print("\n");
    cli_print_table(table);
    cli_print("\n");
    cli_print_labelled("moved", "%s over the network (at least %s), %s over NVLink", network, least,
                       nvlink);
    cli_print_labelled("limit", "%s of GPU %u, busy %.0f %% of the wire time",
                       prediction->limited_by, prediction->limited_rank,
                       100 * prediction->limited_busy);
}

int cli_predict(Cli *cli, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    g_autoptr(RefitProblem) problem = NULL;
    g_auto(CliPlanned) planned = {0};
    const RefitStrategy *strategy = refit_strategy_find(
        cli->options.strategy ? cli->options.strategy : REFIT_STRATEGY_DEFAULT, error);
    g_auto(CliForms) forms = {0};
    g_auto(CliTrace) trace = {0};
    g_autoptr(GArray) events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    CliTraceKeeper keeper = {&trace, events};
    RefitPredictionOptions options = {.exact = cli->options.exact, .user_data = &keeper};
    RefitPrediction prediction;
    CliTimings timings;
    RefitBound bound;
    int exit_code;

    if (strategy != NULL && !cli_trace_check(cli, error))
        return CLI_EXIT_USAGE;
    if (strategy == NULL || !cli_load_case(cli, cli->arguments[0], &refit_case, &problem, error))
        return CLI_EXIT_NO;
    exit_code = cli_trace_read(cli, problem, &trace, error);
    if (exit_code != CLI_EXIT_YES)
        return exit_code;
    options.func = trace.path != NULL ? cli_trace_keep : NULL;
    if (!cli_check_output(cli, trace.path, error) || !refit_bound_compute(problem, &bound, error) ||
        !cli_forms_measure(refit_case, &forms, error) ||
        !cli_plan_and_predict(cli, problem, strategy, &planned, &options, &prediction, &timings,
                              error))
        return CLI_EXIT_NO;
    const Answer answer = {.cli = cli,
                           .executor = cli_executor_find_predictor(NULL),
                           .plan = planned.plan,
                           .forms = &forms,
                           .bound = &bound,
                           .prediction = &prediction,
                           .timings = &timings,
                           .trace = &trace,
                           .events = events};
    const CliTraceOrigin origin = {.plan = planned.plan,
                                   .executor = answer.executor->name,
                                   .predicted = TRUE,
                                   .exact = cli->options.exact};
    if (!cli_trace_write(cli, &trace, &origin, events, error))
        return CLI_EXIT_NO;
    if (cli->options.json)
        print_json(&answer);
    else
        print_text(&answer);
    return refit_case->budget_time_s > 0 && prediction.step_s > refit_case->budget_time_s
               ? CLI_EXIT_NO
               : CLI_EXIT_YES;
}
