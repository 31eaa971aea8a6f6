/*
 * What several commands do with a case: load it, name it in one headline, plan and predict it,
 * and print the parts of the JSON results they share.
 */

#include "cli.h"
#include "refit-sim.h"

gboolean cli_load_case(const Cli *cli, RefitCase **case_out, RefitProblem **problem_out,
                       GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    RefitProblem *problem;

    cli_progress(cli, "reading %s ...", cli->arguments[0]);
    refit_case = refit_case_load(&cli->store, cli->arguments[0],
                                 (const char *const *)cli->options.set, error);
    if (refit_case == NULL)
        return FALSE;
    problem = refit_problem_new(refit_case, error);
    if (problem == NULL)
        return FALSE;
    *problem_out = problem;
    *case_out = g_steal_pointer(&refit_case);
    return TRUE;
}

char *cli_case_headline(const RefitCase *refit_case) {
    g_autofree char *bytes = refit_format_bytes(refit_model_bytes(refit_case->model));
    g_autoptr(GString) text = g_string_new(NULL);

    g_string_append_printf(text, "model   %s, %s in %u tensors\n",
                           refit_model_name(refit_case->model), bytes,
                           refit_model_n_tensors(refit_case->model));
    g_string_append_printf(text, "layout  %u GPUs %s\n", refit_layout_n_ranks(refit_case->source),
                           refit_layout_summary(refit_case->source));
    for (guint d = 0; d < refit_case->n_destinations; d++)
        g_string_append_printf(text, "     -> %u GPUs %s\n",
                               refit_layout_n_ranks(refit_case->destinations[d]),
                               refit_layout_summary(refit_case->destinations[d]));
    g_string_append_printf(text, "on      %s, %u GPUs in NVLink domains of %u; profile %s\n",
                           refit_case->topology->name, refit_topology_n_gpus(refit_case->topology),
                           refit_topology_gpus_per_domain(refit_case->topology),
                           refit_case->profile->name);
    return g_string_free(g_steal_pointer(&text), FALSE);
}

void cli_json_bound(RefitJson *json, const RefitBound *bound) {
    refit_json_begin_object(json, "bound");
    refit_json_double(json, "time_s", bound->time_s);
    refit_json_uint(json, "network_bytes", bound->network_bytes);
    refit_json_double(json, "ingress_s", bound->ingress_s);
    refit_json_double(json, "egress_s", bound->egress_s);
    refit_json_double(json, "receive_s", bound->receive_s);
    refit_json_double(json, "memory_s", bound->memory_s);
    refit_json_string(json, "limited_by", bound->limited_by);
    refit_json_end_object(json);
}

guint64 cli_count_transfers(const RefitPlan *plan) {
    guint64 count = 0;

    for (guint t = 0; t < plan->n_transfers; t++)
        count += plan->problem->classes[plan->transfers[t].class_index].n_members;
    return count;
}

void cli_json_timings(RefitJson *json, const CliTimings *timings) {
    refit_json_double(json, "plan_s", timings->plan_s);
    refit_json_double(json, "simulate_s", timings->simulate_s);
    refit_json_uint(json, "peak_rss_bytes", cli_peak_rss_bytes());
}

gboolean cli_plan_and_predict(const Cli *cli, const RefitProblem *problem,
                              const RefitStrategy *strategy, RefitPlan **plan_out,
                              RefitPrediction *prediction_out, CliTimings *timings_out,
                              GError **error) {
    g_autoptr(RefitPlan) plan = NULL;
    double start = cli_clock_s();

    cli_progress(cli, "planning %s ...", strategy->name);
    plan = refit_plan_new(problem, strategy, error);
    if (plan == NULL)
        return FALSE;
    timings_out->plan_s = cli_clock_s() - start;
    timings_out->simulate_s = 0;
    if (prediction_out != NULL) {
        start = cli_clock_s();
        cli_progress(cli, "simulating %s ...", strategy->name);
        if (!refit_predict(&refit_executor_simgrid, plan, prediction_out, error))
            return FALSE;
        timings_out->simulate_s = cli_clock_s() - start;
    }
    cli_progress_done(cli);
    *plan_out = g_steal_pointer(&plan);
    return TRUE;
}
