/*
 * What rank 0 makes of a run: the trace, and the report. Beside what was measured stands what the
 * simulator predicts of the same schedule, stage by stage, and the least time of each stage. It
 * predicts when the executor is closed, as the simulator forks. Cost: that of the simulation.
 */

#include "cli/cli-run.h"

#include "model/predict/refit-stage-bound.h"

#include <stdlib.h>

/* ---- predicted and measured ---- */

typedef struct {
    double begin_s, end_s; /* begin > end: nothing happened */
} Span;

/* A stage, or all of them together. */
typedef struct {
    double predicted_s, measured_s; /* from the first begin to the last end */
    guint64 bytes;                  /* moved and copied in the last run */
    double bound_s;
} StageTimes;

typedef struct {
    const RefitExecutor *predictor;
    guint n_stages;
    StageTimes *stages; /* per stage, and all behind them */
} Comparison;

static void comparison_clear(Comparison *comparison) {
    g_clear_pointer(&comparison->stages, g_free);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Comparison, comparison_clear)

static void widen(Span *span, double begin_s, double end_s) {
    span->begin_s = MIN(span->begin_s, begin_s);
    span->end_s = MAX(span->end_s, end_s);
}

static double length_of(const Span *span) {
    return MAX(span->end_s - span->begin_s, 0);
}

static const Span nothing = {G_MAXDOUBLE, -G_MAXDOUBLE};

static void enter_event(const RefitEvent *event, gpointer spans) {
    widen(&((Span *)spans)[event->stage], event->begin_s, event->end_s);
}

static void enter_measured(Comparison *self, const CliRunReport *report) {
    StageTimes *all = &self->stages[self->n_stages];
    Span whole = nothing;

    for (guint s = 0; s < self->n_stages; s++) {
        const RefitGpuStage *stage = &report->stages[s];

        self->stages[s].bytes = stage->bytes[REFIT_EVENT_RECEIVE] + stage->bytes[REFIT_EVENT_COPY];
        all->bytes += self->stages[s].bytes;
        if (stage->end_s <= stage->start_s)
            continue;
        self->stages[s].measured_s = stage->end_s - stage->start_s;
        widen(&whole, stage->start_s, stage->end_s);
    }
    all->measured_s = length_of(&whole);
}

static gboolean compare_stages(const CliRun *run, const CliRunReport *report, Comparison *out,
                               GError **error) {
    g_auto(Comparison) self = {.predictor = cli_executor_find_predictor(error),
                               .n_stages = report->n_stages,
                               .stages = g_new0(StageTimes, report->n_stages + 1)};
    g_autofree Span *spans = g_new(Span, self.n_stages + 1);
    g_autofree RefitStageBound *bounds = refit_stage_bounds(run->schedule);
    const RefitPredictionOptions options = {.func = enter_event, .user_data = spans};
    RefitPrediction prediction;

    for (guint s = 0; s <= self.n_stages; s++)
        spans[s] = nothing;
    if (self.predictor == NULL)
        return FALSE;
    if (!refit_predict(self.predictor, run->schedule, &options, &prediction, error)) {
        g_prefix_error(error, "the run went well, but not its prediction: ");
        return FALSE;
    }
    for (guint s = 0; s < self.n_stages; s++)
        widen(&spans[self.n_stages], spans[s].begin_s, spans[s].end_s);
    for (guint s = 0; s <= self.n_stages; s++) {
        self.stages[s].predicted_s = length_of(&spans[s]);
        self.stages[s].bound_s = bounds[s].time_s;
    }
    enter_measured(&self, report);
    *out = self;
    self.stages = NULL;
    return TRUE;
}

/* A quotient that has a meaning; FALSE where nothing happened. */
static gboolean divide(double dividend, double divisor, double *quotient_out) {
    *quotient_out = divisor > 0 ? dividend / divisor : 0;
    return dividend > 0 && divisor > 0;
}

/* ---- spread ---- */

static int compare_doubles(gconstpointer a, gconstpointer b) {
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

typedef struct {
    double least, median, most;
} Spread;

static Spread spread_of(const double *values, guint n) {
    g_autofree double *sorted = g_memdup2(values, n * sizeof *values);

    qsort(sorted, n, sizeof *sorted, compare_doubles);
    return (Spread){sorted[0], (sorted[(n - 1) / 2] + sorted[n / 2]) / 2, sorted[n - 1]};
}

typedef struct {
    guint64 out[REFIT_N_LINKS], n_groups, n_launches, staging_bytes;
    guint64 connection_bytes, connections_taken_bytes;
} Sums;

static Sums sum_up(const CliRunReport *report) {
    Sums sums = {0};

    for (guint rank = 0; rank < report->n_ranks; rank++) {
        const CliRankReport *one = &report->ranks[rank];

        for (guint link = 0; link < REFIT_N_LINKS; link++)
            sums.out[link] += one->out[link];
        sums.n_groups += one->n_groups;
        sums.n_launches += one->n_launches;
        sums.staging_bytes = MAX(sums.staging_bytes, one->staging_bytes);
        sums.connection_bytes = MAX(sums.connection_bytes, one->connection_bytes);
        sums.connections_taken_bytes =
            MAX(sums.connections_taken_bytes, one->connections_taken_bytes);
    }
    return sums;
}

static void json_spread(RefitJson *json, const char *key, const double *values, guint n) {
    const Spread spread = spread_of(values, n);

    refit_json_begin_object(json, key);
    refit_json_double(json, "least", spread.least);
    refit_json_double(json, "median", spread.median);
    refit_json_double(json, "most", spread.most);
    refit_json_end_object(json);
}

/* Run by run. */
static void json_each(RefitJson *json, const char *key, const double *values, guint n) {
    refit_json_begin_row(json, key);
    for (guint i = 0; i < n; i++)
        refit_json_double(json, NULL, values[i]);
    refit_json_end_row(json);
}

static void json_ratio(RefitJson *json, const char *key, double dividend, double divisor) {
    double quotient;

    if (divide(dividend, divisor, &quotient))
        refit_json_double(json, key, quotient);
    else
        refit_json_string(json, key, NULL);
}

static void json_times(RefitJson *json, const StageTimes *times) {
    refit_json_double(json, "predicted_s", times->predicted_s);
    refit_json_double(json, "measured_s", times->measured_s);
    json_ratio(json, "ratio", times->measured_s, times->predicted_s);
    refit_json_uint(json, "bytes", times->bytes);
    json_ratio(json, "bytes_per_s", (double)times->bytes, times->measured_s);
    json_ratio(json, "bound_share", times->bound_s, times->measured_s);
}

static void json_stages(RefitJson *json, const RefitPlan *plan, const CliRunReport *report,
                        const Comparison *comparison) {
    refit_json_begin_array(json, "stages");
    for (guint s = 0; s < report->n_stages; s++) {
        const RefitGpuStage *stage = &report->stages[s];

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "stage", plan->stages[s].name);
        refit_json_double(json, "start_s", stage->start_s);
        refit_json_double(json, "end_s", stage->end_s);
        refit_json_begin_object(json, "busy_s");
        for (guint kind = 0; kind < REFIT_N_EVENT_KINDS; kind++)
            refit_json_double(json, refit_event_kind_name((RefitEventKind)kind),
                              stage->busy_s[kind]);
        refit_json_end_object(json);
        json_times(json, &comparison->stages[s]);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
    refit_json_begin_object(json, "all_stages");
    json_times(json, &comparison->stages[report->n_stages]);
    refit_json_end_object(json);
}

static void print_json(const CliRun *run, const CliRunReport *report,
                       const Comparison *comparison) {
    const RefitPlan *plan = run->plan;
    const Sums sums = sum_up(report);
    RefitJson *json = refit_json_new(2);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.run/1");
    refit_json_string(json, "case", plan->problem->refit_case->name);
    cli_json_unknown(json, plan->problem->refit_case->model);
    refit_json_string(json, "strategy", plan->strategy);
    refit_json_string(json, "executor", run->executor->name);
    refit_json_string(json, "note", run->executor->note);
    refit_json_string(json, "place_note", report->place_note);
    refit_json_string(json, "predictor", comparison->predictor->name);
    refit_json_string(json, "digest", plan->digest);
    refit_json_uint(json, "ranks", report->n_ranks);
    refit_json_uint(json, "runs", report->repeat);
    refit_json_bool(json, "verified", run->verify);
    refit_json_uint(json, "network_bytes", sums.out[REFIT_LINK_NETWORK]);
    refit_json_uint(json, "nvlink_bytes", sums.out[REFIT_LINK_NVLINK]);
    refit_json_uint(json, "local_bytes", sums.out[REFIT_LINK_LOCAL]);
    refit_json_uint(json, "staging_bytes", sums.staging_bytes);
    refit_json_uint(json, "connection_bytes", sums.connection_bytes);
    refit_json_uint(json, "connections_taken_bytes", sums.connections_taken_bytes);
    refit_json_uint(json, "groups", sums.n_groups);
    refit_json_uint(json, "launches", sums.n_launches);
    json_spread(json, "device_s", report->duration_s, report->repeat);
    json_spread(json, "agreed_s", report->agreed_s, report->repeat);
    json_each(json, "each_device_s", report->duration_s, report->repeat);
    json_each(json, "each_agreed_s", report->agreed_s, report->repeat);
    json_stages(json, plan, report, comparison);
    cli_json_trace(json, run->trace, report->events);
    refit_json_end_object(json);
    cli_print_json(json);
}

static void print_stages(const RefitPlan *plan, const CliRunReport *report) {
    g_autoptr(CliTable) table = cli_table_new();

    cli_table_add_column(table, "stage", "", CLI_LEFT);
    cli_table_add_measure(table, "begins", CLI_SECONDS);
    cli_table_add_measure(table, "ends", CLI_SECONDS);
    for (guint kind = 0; kind < REFIT_N_EVENT_KINDS; kind++)
        cli_table_add_measure(table, refit_event_kind_name((RefitEventKind)kind), CLI_SECONDS);
    for (guint s = 0; s < report->n_stages; s++) {
        cli_table_add_cell(table, g_strdup(plan->stages[s].name));
        cli_table_add_number(table, report->stages[s].start_s);
        cli_table_add_number(table, report->stages[s].end_s);
        for (guint kind = 0; kind < REFIT_N_EVENT_KINDS; kind++)
            cli_table_add_number(table, report->stages[s].busy_s[kind]);
    }
    cli_print("\n");
    cli_print_table(table);
}

static void add_ratio(CliTable *table, double dividend, double divisor, double unit) {
    double quotient;

    if (divide(dividend, divisor, &quotient))
        cli_table_add_number(table, quotient / unit);
    else
        cli_table_add_cell(table, g_strdup("-"));
}

static void print_comparison(const CliRun *run, const Comparison *comparison) {
    g_autoptr(CliTable) table = cli_table_new();

    cli_table_add_column(table, "stage", "", CLI_LEFT);
    cli_table_add_measure(table, "predicted", CLI_SECONDS);
    cli_table_add_measure(table, "measured", CLI_SECONDS);
    cli_table_add_column(table, "ratio", "", CLI_RIGHT);
    cli_table_add_measure(table, "bytes", CLI_BYTES);
    cli_table_add_column(table, "rate", "GB/s", CLI_RIGHT);
    cli_table_add_column(table, "bound", "%", CLI_RIGHT);
    for (guint s = 0; s <= comparison->n_stages; s++) {
        const StageTimes *times = &comparison->stages[s];

        cli_table_add_cell(table,
                           g_strdup(s < comparison->n_stages ? run->plan->stages[s].name : "all"));
        cli_table_add_number(table, times->predicted_s);
        cli_table_add_number(table, times->measured_s);
        add_ratio(table, times->measured_s, times->predicted_s, 1);
        cli_table_add_number(table, (double)times->bytes);
        add_ratio(table, (double)times->bytes, times->measured_s, 1e9);
        add_ratio(table, times->bound_s, times->measured_s, 0.01);
    }
    cli_print("\n");
    cli_print_table(table);
    cli_print("\npredicted: by %s; measured: the last run%s%s%s;\n"
              "ratio: measured over predicted; rate: of all GPUs together;\n"
              "bound: least time of the stage's busiest port over measured.\n",
              comparison->predictor->name, run->executor->note != NULL ? " (" : "",
              run->executor->note != NULL ? run->executor->note : "",
              run->executor->note != NULL ? ")" : "");
}

static void print_spread(const char *label, const char *what, const double *values, guint n) {
    const Spread spread = spread_of(values, n);
    g_autofree char *least = refit_format_seconds(spread.least);
    g_autofree char *median = refit_format_seconds(spread.median);
    g_autofree char *most = refit_format_seconds(spread.most);

    if (n == 1)
        cli_print_labelled(label, "%s %s", median, what);
    else
        cli_print_labelled(label, "%s %s, median of %u runs from %s to %s", median, what, n, least,
                           most);
}

static void print_text(const CliRun *run, const CliRunReport *report,
                       const Comparison *comparison) {
    const RefitPlan *plan = run->plan;
    const RefitCase *refit_case = plan->problem->refit_case;
    const Sums sums = sum_up(report);
    const double median_s = spread_of(report->duration_s, report->repeat).median;
    g_autofree char *needed = refit_format_bytes(plan->problem->needed_bytes);
    g_autofree char *time = refit_format_seconds(median_s);
    g_autofree char *network = refit_format_bytes(sums.out[REFIT_LINK_NETWORK]);
    g_autofree char *nvlink = refit_format_bytes(sums.out[REFIT_LINK_NVLINK]);
    g_autofree char *local = refit_format_bytes(sums.out[REFIT_LINK_LOCAL]);
    g_autofree char *staging = refit_format_bytes(sums.staging_bytes);
    g_autofree char *counted = refit_format_bytes(sums.connection_bytes);
    g_autofree char *taken = refit_format_bytes(sums.connections_taken_bytes);
    g_autofree char *ranks = cli_count(report->n_ranks, "rank");
    g_autofree char *groups = cli_count(sums.n_groups, "NCCL group");
    g_autofree char *launches = cli_count(sums.n_launches, "kernel");

    cli_print("%s: %s delivered %s in %s%s%s%s%s\n", refit_case->name, plan->strategy, needed, time,
              run->verify ? ", every byte right" : "", run->executor->note != NULL ? " (" : "",
              run->executor->note != NULL ? run->executor->note : "",
              run->executor->note != NULL ? ")" : "");
    cli_print_case(refit_case);
    cli_print_labelled("digest", "%s", plan->digest);
    cli_print_labelled("by", "%s on %u ranks: %s, %s, staging %s at most", run->executor->name,
                       report->n_ranks, groups, launches, staging);
    cli_print_labelled("nccl", "%s for connections on a GPU at most, and %s of its memory gone",
                       counted, taken);
    if (report->place_note != NULL)
        cli_print_labelled("place", "%s", report->place_note);
    cli_print_labelled("moved", "%s over the network, %s over NVLink, %s locally, as planned",
                       network, nvlink, local);
    print_spread("time", "from the first operation to the last", report->duration_s,
                 report->repeat);
    print_spread("agreed", "until all ranks have the new version", report->agreed_s,
                 report->repeat);
    cli_print_trace(run->trace, report->events);
    print_stages(plan, report);
    print_comparison(run, comparison);
}

gboolean cli_run_report(const CliRun *run, const CliRunReport *report, GError **error) {
    const CliTraceOrigin origin = {.plan = run->plan,
                                   .executor = run->executor->name,
                                   .note = run->executor->note,
                                   .exact = TRUE};
    g_auto(Comparison) comparison = {NULL};

    if (!cli_trace_write(run->cli, run->trace, &origin, report->events, error) ||
        !compare_stages(run, report, &comparison, error))
        return FALSE;
    if (run->cli->options.json)
        print_json(run, report, &comparison);
    else
        print_text(run, report, &comparison);
    return TRUE;
}
