/*
 * `refit run CASE`: carries a plan out. Every rank makes the same plan, fills its parameters with
 * synthetic weights, and runs; rank 0 prints what all have measured. Ranks come from a launcher
 * (torchrun, srun, mpirun) or, with --ranks, are started here.
 */

#include "cli/cli-run.h"

#include "model/plan/refit-progress.h"

#include <stdlib.h>
#include <sys/resource.h>

#define DEFAULT_TIMEOUT "60s"
enum { MAX_REPEAT = 1000 };

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

static void json_stages(RefitJson *json, const RefitPlan *plan, const CliRunReport *report) {
    refit_json_begin_array(json, "stages");
    for (guint s = 0; s < report->n_stages; s++) {
        const RefitGpuStage *stage = &report->stages[s];

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "stage", plan->stages[s].name);
        refit_json_double(json, "start_s", stage->start_s);
        refit_json_double(json, "end_s", stage->end_s);
        refit_json_begin_object(json, "busy_s");
        for (guint a = 0; a < REFIT_N_ACTIVITIES; a++)
            refit_json_double(json, refit_activity_name((RefitActivity)a), stage->busy_s[a]);
        refit_json_end_object(json);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
}

static void print_json(const CliRun *run, const CliRunReport *report) {
    const RefitPlan *plan = run->plan;
    const Sums sums = sum_up(report);
    RefitJson *json = refit_json_new(2);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.run/1");
    refit_json_string(json, "case", plan->problem->refit_case->name);
    refit_json_string(json, "strategy", plan->strategy);
    refit_json_string(json, "executor", run->executor->name);
    refit_json_string(json, "note", run->executor->note);
    refit_json_string(json, "digest", plan->digest);
    refit_json_uint(json, "ranks", report->n_ranks);
    refit_json_uint(json, "runs", report->repeat);
    refit_json_bool(json, "verified", run->verify);
    refit_json_uint(json, "network_bytes", sums.out[REFIT_LINK_NETWORK]);
    refit_json_uint(json, "nvlink_bytes", sums.out[REFIT_LINK_NVLINK]);
    refit_json_uint(json, "local_bytes", sums.out[REFIT_LINK_LOCAL]);
    refit_json_uint(json, "staging_bytes", sums.staging_bytes);
    refit_json_uint(json, "groups", sums.n_groups);
    refit_json_uint(json, "launches", sums.n_launches);
    json_spread(json, "device_s", report->duration_s, report->repeat);
    json_spread(json, "agreed_s", report->agreed_s, report->repeat);
    json_stages(json, plan, report);
    refit_json_end_object(json);
    cli_print_json(json);
}

static void print_stages(const RefitPlan *plan, const CliRunReport *report) {
    g_autoptr(CliTable) table = cli_table_new();

    cli_table_add_column(table, "stage", "", CLI_LEFT);
    cli_table_add_measure(table, "begins", CLI_SECONDS);
    cli_table_add_measure(table, "ends", CLI_SECONDS);
    for (guint a = 0; a < REFIT_N_ACTIVITIES; a++)
        cli_table_add_measure(table, refit_activity_name((RefitActivity)a), CLI_SECONDS);
    for (guint s = 0; s < report->n_stages; s++) {
        cli_table_add_cell(table, g_strdup(plan->stages[s].name));
        cli_table_add_number(table, report->stages[s].start_s);
        cli_table_add_number(table, report->stages[s].end_s);
        for (guint a = 0; a < REFIT_N_ACTIVITIES; a++)
            cli_table_add_number(table, report->stages[s].busy_s[a]);
    }
    cli_print("\n");
    cli_print_table(table);
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

static void print_text(const CliRun *run, const CliRunReport *report) {
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
    cli_print_labelled("moved", "%s over the network, %s over NVLink, %s locally, as planned",
                       network, nvlink, local);
    print_spread("time", "from the first operation to the last", report->duration_s,
                 report->repeat);
    print_spread("agreed", "until all ranks have the new version", report->agreed_s,
                 report->repeat);
    print_stages(plan, report);
}

static void print_report(const CliRun *run, const CliRunReport *report, gpointer user_data) {
    const Cli *cli = user_data;

    if (cli->options.json)
        print_json(run, report);
    else
        print_text(run, report);
}

/* ---- options ---- */

static const CliExecutor *find_executor(const char *name, GError **error) {
    const char *names[8] = {NULL};
    const char *nearest;
    g_autofree char *list = NULL, *excerpt = NULL;

    if (name == NULL)
        return &cli_executors[0];
    for (guint i = 0; cli_executors[i].name != NULL && i + 1 < G_N_ELEMENTS(names); i++) {
        if (g_str_equal(cli_executors[i].name, name))
            return &cli_executors[i];
        names[i] = cli_executors[i].name;
    }
    nearest = refit_nearest_name(name, names);
    list = g_strjoinv(", ", (char **)names);
    excerpt = refit_error_excerpt(name);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "no executor \"%s\"; there is %s%s%s%s",
                excerpt, list, nearest != NULL ? "; did you mean \"" : "",
                nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
    return NULL;
}

static gboolean read_options(const CliOptions *options, CliRun *run, GError **error) {
    const char *timeout = options->timeout != NULL ? options->timeout : DEFAULT_TIMEOUT;

    run->executor = find_executor(options->executor, error);
    if (run->executor == NULL)
        return FALSE;
    if (options->repeat < 1 || options->repeat > MAX_REPEAT) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "--repeat %d: give 1 to %d",
                    options->repeat, MAX_REPEAT);
        return FALSE;
    }
    run->repeat = (guint)options->repeat;
    run->verify = options->verify;
    if (!refit_quantity_parse(timeout, REFIT_UNIT_SECONDS, &run->timeout_s, error)) {
        g_prefix_error(error, "--timeout: ");
        return FALSE;
    }
    if (run->timeout_s > 0 && run->timeout_s <= 86400)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "--timeout %s: give more than 0 and at most 86400s", timeout);
    return FALSE;
}

static const char *look_up(gpointer data, const char *name) {
    (void)data;
    return g_getenv(name);
}

static gboolean check_world(const RefitProblem *problem, const char *where, guint world,
                            GError **error) {
    if (world == problem->n_ranks)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "%s: %s has %u GPUs and takes a rank for each, idle ones too; %s gives %u",
                problem->refit_case->name, problem->refit_case->topology->name, problem->n_ranks,
                where, world);
    return FALSE;
}

/* --ranks, or a launcher; both only where the launcher started a single process. */
static gboolean choose_launch(const CliOptions *options, RefitLaunch *launch_out, GError **error) {
    guint world;
    const char *launcher = refit_launch_find(look_up, NULL, &world);

    if (options->ranks == 0)
        return refit_launch_read(look_up, NULL, launch_out, error);
    if (options->ranks > 0 && (launcher == NULL || world <= 1))
        return TRUE;
    if (options->ranks < 0)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "--ranks %d: give 1 or more",
                    options->ranks);
    else
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "--ranks starts ranks itself, but %s has started %u already; leave one out",
                    launcher, world);
    return FALSE;
}

/* ---- the command ---- */

/* One rank of a launcher. Only rank 0 has a stdout; all say what went wrong. */
static gboolean run_launched(Cli *cli, const CliRun *run, const RefitLaunch *launch,
                             GError **error) {
    g_auto(CliRunReport) report = {0};
    const gboolean ok = cli_run_rank(run, launch, NULL, &report, error);

    if (ok && launch->rank == 0)
        print_report(run, &report, cli);
    if (!ok)
        g_prefix_error(error, "[rank %u] ", launch->rank);
    if (launch->rank > 0)
        cli->options.json = FALSE;
    return ok;
}

/* A rank is a connection of rank 0 and, with --ranks, two pipes of this process. */
static void raise_file_limit(guint n_ranks) {
    enum { PER_RANK = 4, OTHERS = 256 };
    const rlim_t wanted = (rlim_t)n_ranks * PER_RANK + OTHERS;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = MIN(limit.rlim_max, wanted);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static gboolean run_plan(Cli *cli, CliRun *run, const RefitLaunch *launch, GError **error) {
    const RefitProblem *problem = run->plan->problem;
    g_autofree guint *domains = g_new(guint, problem->n_ranks);
    g_autoptr(RefitProgramIndex) index = NULL;

    if (!refit_plan_check_progress(run->plan, error))
        return FALSE;
    index = refit_program_index_new(run->plan, error);
    if (index == NULL)
        return FALSE;
    for (guint rank = 0; rank < problem->n_ranks; rank++)
        domains[rank] = refit_topology_domain_of(problem->refit_case->topology, rank);
    run->index = index;
    run->domains = domains;
    raise_file_limit(problem->n_ranks);
    cli_progress_done(cli);
    return launch->launcher != NULL ? run_launched(cli, run, launch, error)
                                    : cli_run_ranks(run, print_report, cli, error);
}

int cli_run(Cli *cli, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    g_autoptr(RefitProblem) problem = NULL;
    g_autoptr(RefitPlan) plan = NULL;
    g_auto(RefitLaunch) launch = {0};
    const RefitStrategy *strategy = refit_strategy_find(
        cli->options.strategy ? cli->options.strategy : REFIT_STRATEGY_DEFAULT, error);
    CliTimings timings;
    CliRun run = {0};

    if (strategy == NULL || !read_options(&cli->options, &run, error) ||
        !choose_launch(&cli->options, &launch, error) ||
        !cli_load_case(cli, cli->arguments[0], &refit_case, &problem, error) ||
        !check_world(problem, launch.launcher != NULL ? launch.launcher : "--ranks",
                     launch.launcher != NULL ? launch.world : (guint)cli->options.ranks, error) ||
        !cli_plan_and_predict(cli, problem, strategy, &plan, NULL, &timings, error))
        return CLI_EXIT_NO;
    run.plan = plan;
    return run_plan(cli, &run, &launch, error) ? CLI_EXIT_YES : CLI_EXIT_NO;
}
