/*
 * What several commands do with a case: load it, say what it is, plan and predict it, and print
 * the parts of the results they share.
 */

#include "cli/cli-executor.h"
#include "cli/cli.h"

gboolean cli_load_case(const Cli *cli, const char *name, RefitCase **case_out,
                       RefitProblem **problem_out, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    RefitProblem *problem;

    cli_progress(cli, "reading %s ...", name);
    refit_case = refit_case_load(&cli->store, name, (const char *const *)cli->options.set, error);
    if (refit_case == NULL)
        return FALSE;
    problem = refit_problem_new(refit_case, error);
    if (problem == NULL) {
        g_prefix_error(error, "%s: ", name);
        return FALSE;
    }
    *problem_out = problem;
    *case_out = g_steal_pointer(&refit_case);
    return TRUE;
}

static void print_costs(const RefitProfile *profile) {
    g_autoptr(GString) on = g_string_new(NULL);

    for (guint term = 0; term < REFIT_N_TERMS; term++)
        if (refit_profile_is_on(profile, (RefitTerm)term))
            g_string_append_printf(on, "%s%s", on->len > 0 ? ", " : "",
                                   refit_term_name((RefitTerm)term));
    cli_print_labelled("costs", "profile %s: %s", profile->name, on->len > 0 ? on->str : "all off");
}

static void print_side(const char *label, const RefitLayout *layout) {
    g_autofree char *gpus = cli_count(refit_layout_n_ranks(layout), "GPU");

    cli_print_labelled(label, "%s: %s", gpus, refit_layout_summary(layout));
}

void cli_print_notes(const RefitLayout *layout) {
    for (guint i = 0; i < refit_layout_n_notes(layout); i++)
        cli_print_labelled("note", "%s", refit_layout_note(layout, i));
}

void cli_print_shape(const RefitPlan *plan) {
    if (plan->shape != NULL)
        cli_print_labelled("shape", "%s: estimated faster than the usual one", plan->shape);
}

#define MAX_UNKNOWN_SHOWN 8u

void cli_print_unknown(const RefitModel *model) {
    guint64 bytes = 0;
    guint n = refit_model_n_unknown(model, &bytes);

    if (n == 0)
        return;
    g_autoptr(GArray) names = refit_model_unknown_names(model);
    g_autofree char *size = refit_format_bytes(bytes);
    g_autofree char *tensors = cli_count(n, "tensor");
    cli_print_labelled("unknown",
                       "%s, %s (%.2f %%), that no family knows, not cut by role:", tensors, size,
                       (double)bytes / (double)MAX(refit_model_bytes(model), 1) * 100);
    for (guint i = 0; i < MIN(names->len, MAX_UNKNOWN_SHOWN); i++) {
        const RefitUnknownNames *item = &g_array_index(names, RefitUnknownNames, i);
        g_autofree char *part = refit_format_bytes(item->bytes);

        cli_print_labelled("", "%s in %u of %s", part, item->n_tensors, item->names);
    }
    if (names->len > MAX_UNKNOWN_SHOWN)
        cli_print_labelled("", "and %u more kinds: see --json", names->len - MAX_UNKNOWN_SHOWN);
}

void cli_json_unknown(RefitJson *json, const RefitModel *model) {
    g_autoptr(GArray) names = refit_model_unknown_names(model);

    if (names->len == 0)
        return;
    refit_json_begin_array(json, "unknown");
    for (guint i = 0; i < names->len; i++) {
        const RefitUnknownNames *item = &g_array_index(names, RefitUnknownNames, i);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "names", item->names);
        refit_json_uint(json, "tensors", item->n_tensors);
        refit_json_uint(json, "bytes", item->bytes);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
}

void cli_print_case(const RefitCase *refit_case) {
    const RefitTopology *topology = refit_case->topology;
    g_autofree char *tensors = cli_count(refit_model_n_tensors(refit_case->model), "tensor");
    g_autofree char *gpus = cli_count(refit_topology_n_gpus(topology), "GPU");
    g_autofree char *bytes = refit_format_bytes(refit_model_bytes(refit_case->model));

    cli_print_unknown(refit_case->model);
    cli_print_labelled("model", "%s, %s in %s", refit_model_name(refit_case->model), bytes,
                       tensors);
    print_side("from", refit_case->source);
    for (guint d = 0; d < refit_case->n_destinations; d++)
        print_side("to", refit_case->destinations[d]);
    cli_print_labelled("on", "%s, %s in NVLink domains of %u", topology->name, gpus,
                       refit_topology_gpus_per_domain(topology));
    if (refit_case->n_failed > 0) {
        g_autofree char *ranks = cli_ranks_to_string(refit_case->failed, refit_case->n_failed);

        cli_print_labelled("failed", "GPU%s %s; plans go around %s",
                           refit_case->n_failed == 1 ? "" : "s", ranks,
                           refit_case->n_failed == 1 ? "it" : "them");
    }
    RefitValuesGap gap;
    if (refit_values_find_gap(refit_case, &gap))
        cli_print_labelled("values", "%s of %s holds %s of the hub's x, %s %s; refit run refuses",
                           refit_model_tensor(refit_case->model, gap.tensor)->name,
                           refit_layout_side(refit_case->source), gap.source,
                           refit_layout_side(refit_case->destinations[gap.pool]), gap.destination);
    print_costs(refit_case->profile);
    cli_print_notes(refit_case->source);
    for (guint d = 0; d < refit_case->n_destinations; d++)
        cli_print_notes(refit_case->destinations[d]);
    if (refit_case->budget_staging_bytes > 0) {
        g_autofree char *staging = refit_format_bytes(refit_case->budget_staging_bytes);

        cli_print_labelled(
            "note", "the staging budget of %s is checked by refit plan and refit run", staging);
    }
}

/* ---- forms ---- */

void cli_forms_clear(CliForms *forms) {
    g_clear_pointer(&forms->installed_bytes, g_free);
}

/* The layout of the form that a side holds. */
static const RefitLayout *held_layout(const RefitCase *refit_case, guint pool) {
    const RefitLayout *held = refit_case_held(refit_case, pool);

    if (held != NULL)
        return held;
    return pool == REFIT_CASE_SOURCE ? refit_case->source : refit_case->destinations[pool];
}

/* What the GPUs that are left hold of a side. */
static gboolean measure_held(const RefitCase *refit_case, guint pool, guint64 *bytes_out,
                             GError **error) {
    return refit_layout_total_bytes(held_layout(refit_case, pool), refit_case->failed,
                                    refit_case->n_failed, bytes_out, error);
}

gboolean cli_forms_measure(const RefitCase *refit_case, CliForms *forms_out, GError **error) {
    g_auto(CliForms) forms = {.installed_bytes = g_new0(guint64, refit_case->n_destinations)};

    if (!measure_held(refit_case, REFIT_CASE_SOURCE, &forms.held_bytes, error))
        return FALSE;
    for (guint pool = 0; pool < refit_case->n_destinations; pool++)
        if (!measure_held(refit_case, pool, &forms.installed_bytes[pool], error))
            return FALSE;
    *forms_out = forms;
    forms.installed_bytes = NULL;
    return TRUE;
}

static const char *form_of(const RefitCase *refit_case, guint pool) {
    return refit_model_form(refit_layout_model(held_layout(refit_case, pool)));
}

static void append_form(GString *text, const RefitCase *refit_case, guint pool, const char *verb,
                        guint64 bytes) {
    const char *form = form_of(refit_case, pool);
    g_autofree char *size = refit_format_bytes(bytes);

    g_string_append_printf(text, "; %s %s %s as %s",
                           refit_layout_side(held_layout(refit_case, pool)), verb, size,
                           form != NULL ? form : "given");
}

void cli_print_forms(const RefitCase *refit_case, const CliForms *forms) {
    const char *wire = refit_model_form(refit_case->model);
    gboolean casts = refit_case_held(refit_case, REFIT_CASE_SOURCE) != NULL;
    g_autoptr(GString) text = g_string_new(NULL);

    append_form(text, refit_case, REFIT_CASE_SOURCE, "holds", forms->held_bytes);
    for (guint pool = 0; pool < refit_case->n_destinations; pool++) {
        casts |= refit_case_held(refit_case, pool) != NULL;
        append_form(text, refit_case, pool, "installs", forms->installed_bytes[pool]);
    }
    if (casts)
        cli_print_labelled("forms", "%s on the wire%s", wire != NULL ? wire : "given", text->str);
}

void cli_json_forms(RefitJson *json, const RefitCase *refit_case, const CliForms *forms) {
    refit_json_begin_object(json, "forms");
    refit_json_string(json, "wire", refit_model_form(refit_case->model));
    refit_json_string(json, "held", form_of(refit_case, REFIT_CASE_SOURCE));
    refit_json_begin_row(json, "installed");
    for (guint pool = 0; pool < refit_case->n_destinations; pool++)
        refit_json_string(json, NULL, form_of(refit_case, pool));
    refit_json_end_row(json);
    refit_json_end_object(json);
    refit_json_uint(json, "wire_bytes", refit_model_bytes(refit_case->model));
    refit_json_uint(json, "held_bytes", forms->held_bytes);
    refit_json_begin_row(json, "installed_bytes");
    for (guint pool = 0; pool < refit_case->n_destinations; pool++)
        refit_json_uint(json, NULL, forms->installed_bytes[pool]);
    refit_json_end_row(json);
}

void cli_json_failed(RefitJson *json, const RefitCase *refit_case) {
    if (refit_case->n_failed == 0)
        return;
    refit_json_begin_row(json, "failed_ranks");
    for (guint i = 0; i < refit_case->n_failed; i++)
        refit_json_uint(json, NULL, refit_case->failed[i]);
    refit_json_end_row(json);
}

static void json_notes(RefitJson *json, const RefitLayout *layout) {
    for (guint i = 0; i < refit_layout_n_notes(layout); i++)
        refit_json_string(json, NULL, refit_layout_note(layout, i));
}

void cli_json_notes(RefitJson *json, const RefitCase *refit_case) {
    cli_json_unknown(json, refit_case->model);
    guint n = refit_layout_n_notes(refit_case->source);

    for (guint d = 0; d < refit_case->n_destinations; d++)
        n += refit_layout_n_notes(refit_case->destinations[d]);
    if (n == 0)
        return;
    refit_json_begin_array(json, "notes");
    json_notes(json, refit_case->source);
    for (guint d = 0; d < refit_case->n_destinations; d++)
        json_notes(json, refit_case->destinations[d]);
    refit_json_end_array(json);
}

void cli_json_profile(RefitJson *json, const RefitProfile *profile) {
    refit_json_string(json, "profile", profile->name);
    refit_json_begin_row(json, "terms_on");
    for (guint term = 0; term < REFIT_N_TERMS; term++)
        if (refit_profile_is_on(profile, (RefitTerm)term))
            refit_json_string(json, NULL, refit_term_name((RefitTerm)term));
    refit_json_end_row(json);
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

void cli_print_timings(const Cli *cli, const CliTimings *timings) {
    if (!cli->options.timings)
        return;
    g_autofree char *planned = refit_format_seconds(timings->plan_s);
    g_autofree char *simulated = refit_format_seconds(timings->simulate_s);
    g_autofree char *peak = refit_format_bytes(cli_peak_rss_bytes());

    cli_print_labelled("took", "%s to plan, %s to simulate, %s of memory at most", planned,
                       simulated, peak);
}

void cli_json_timings(const Cli *cli, RefitJson *json, const CliTimings *timings) {
    if (!cli->options.timings)
        return;
    refit_json_double(json, "plan_s", timings->plan_s);
    refit_json_double(json, "simulate_s", timings->simulate_s);
    refit_json_uint(json, "peak_rss_bytes", cli_peak_rss_bytes());
}

void cli_planned_clear(CliPlanned *planned) {
    g_clear_pointer(&planned->schedule, refit_schedule_free);
    g_clear_pointer(&planned->plan, refit_plan_free);
}

gboolean cli_plan_and_predict(const Cli *cli, const RefitProblem *problem,
                              const RefitStrategy *strategy, CliPlanned *planned_out,
                              const RefitPredictionOptions *options,
                              RefitPrediction *prediction_out, CliTimings *timings_out,
                              GError **error) {
    g_auto(CliPlanned) planned = {0};
    double start = cli_clock_s();

    cli_progress(cli, "planning %s ...", strategy->name);
    planned.plan = refit_plan_new(problem, strategy, error);
    if (planned.plan == NULL)
        return FALSE;
    planned.schedule = refit_schedule_new(planned.plan, error);
    if (planned.schedule == NULL)
        return FALSE;
    timings_out->plan_s = cli_clock_s() - start;
    timings_out->simulate_s = 0;
    if (prediction_out != NULL) {
        const RefitExecutor *executor = cli_executor_find_predictor(error);

        start = cli_clock_s();
        cli_progress(cli, "simulating %s ...", strategy->name);
        if (executor == NULL ||
            !refit_predict(executor, planned.schedule, options, prediction_out, error))
            return FALSE;
        timings_out->simulate_s = cli_clock_s() - start;
    }
    cli_progress_done(cli);
    *planned_out = planned;
    memset(&planned, 0, sizeof planned);
    return TRUE;
}
