/*
 * `refit run CASE`: carries a plan out. Every rank makes the same plan, fills its parameters with
 * synthetic weights, and runs; rank 0 prints what all have measured. Ranks come from a launcher
 * (torchrun, srun, mpirun) or, with --ranks, are started here.
 */

#include "cli/cli-run.h"

#include <sys/resource.h>

#define DEFAULT_TIMEOUT_S 60
#define TIMEOUT_PER_RANK_S 0.05
enum { MAX_REPEAT = 1000 };

/* ---- options ---- */

static gboolean read_timeout(const char *text, double *seconds_out, GError **error) {
    double seconds;

    if (!refit_quantity_parse(text, REFIT_UNIT_SECONDS, &seconds, error)) {
        g_prefix_error(error, "--timeout: ");
        return FALSE;
    }
    if (!(seconds > 0 && seconds <= 86400)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "--timeout %s: give more than 0 and at most 86400s", text);
        return FALSE;
    }
    *seconds_out = seconds;
    return TRUE;
}

static gboolean read_options(const Cli *cli, CliRun *run, GError **error) {
    const CliOptions *options = &cli->options;

    run->executor = cli_executor_find_mover(options->executor, cli->arguments[0], error);
    if (run->executor == NULL)
        return FALSE;
    if (options->repeat < 1 || options->repeat > MAX_REPEAT) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "--repeat %d: give 1 to %d",
                    options->repeat, MAX_REPEAT);
        return FALSE;
    }
    run->repeat = (guint)options->repeat;
    run->verify = options->verify;
    return options->timeout == NULL || read_timeout(options->timeout, &run->timeout_s, error);
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

/* One rank of a launcher, which may have failed already: `early`, ownership taken. Only rank 0 has
 * a stdout, and of what all ranks return, one tells. */
static gboolean run_launched(Cli *cli, const CliRun *run, const RefitLaunch *launch, GError *early,
                             GError **error) {
    g_auto(CliRunReport) report = {0};
    gboolean tells, ok;

    raise_file_limit(launch->world);
    cli_progress_done(cli);
    ok = cli_run_rank(run, launch, NULL, early, &report, &tells, error);
    if (ok && launch->rank == 0)
        return cli_run_report(run, &report, error);
    if (!ok)
        g_prefix_error(error, "[rank %u] ", launch->rank);
    cli->others_tell = !tells;
    if (launch->rank > 0)
        cli->options.json = FALSE;
    return ok;
}

/* What a run is made of; freed together. */
typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    CliPlanned planned;
    CliTrace trace;
    guint *domains, *nodes;
} Parts;

static void parts_clear(Parts *parts) {
    g_free(parts->domains);
    g_free(parts->nodes);
    cli_trace_clear(&parts->trace);
    cli_planned_clear(&parts->planned);
    refit_problem_free(parts->problem);
    refit_case_free(parts->refit_case);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Parts, parts_clear)

static void place_ranks(CliRun *run, Parts *parts) {
    const RefitTopology *topology = parts->refit_case->topology;
    const guint n_ranks = parts->problem->n_ranks;

    parts->domains = g_new(guint, n_ranks);
    parts->nodes = g_new(guint, n_ranks);
    for (guint rank = 0; rank < n_ranks; rank++) {
        parts->domains[rank] = refit_topology_domain_of(topology, rank);
        parts->nodes[rank] = refit_topology_node_of(topology, rank);
    }
    run->domains = parts->domains;
    run->nodes = parts->nodes;
}

/* All that ranks do before they meet. CLI_EXIT_YES when they can. */
static int make_plan(Cli *cli, CliRun *run, const RefitLaunch *launch,
                     const RefitStrategy *strategy, Parts *parts, GError **error) {
    const gboolean launched = launch->launcher != NULL;
    CliTimings timings;
    int exit_code;

    if (!cli_load_case(cli, cli->arguments[0], &parts->refit_case, &parts->problem, error) ||
        !refit_values_check(parts->refit_case, error) ||
        !check_world(parts->problem, launched ? launch->launcher : "--ranks",
                     launched ? launch->world : (guint)cli->options.ranks, error))
        return CLI_EXIT_NO;
    exit_code = cli_trace_read(cli, parts->problem, &parts->trace, error);
    if (exit_code != CLI_EXIT_YES)
        return exit_code;
    /* Of several ranks, only the first is where the file would be. */
    if ((!launched && !cli_check_output(cli, parts->trace.path, error)) ||
        !cli_plan_and_predict(cli, parts->problem, strategy, &parts->planned, NULL, NULL, &timings,
                              error) ||
        !refit_schedule_check(parts->planned.schedule, error) ||
        !refit_schedule_check_budget(parts->planned.schedule, error))
        return CLI_EXIT_NO;
    run->plan = parts->planned.plan;
    run->schedule = parts->planned.schedule;
    place_ranks(run, parts);
    if (cli->options.timeout == NULL) /* ranks meet, and NCCL connects them, one after the other */
        run->timeout_s = DEFAULT_TIMEOUT_S + TIMEOUT_PER_RANK_S * parts->problem->n_ranks;
    return CLI_EXIT_YES;
}

int cli_run(Cli *cli, GError **error) {
    g_auto(Parts) parts = {0};
    g_auto(RefitLaunch) launch = {0};
    CliRun run = {.cli = cli, .trace = &parts.trace, .timeout_s = DEFAULT_TIMEOUT_S};
    GError *early = NULL;
    const RefitStrategy *strategy = refit_strategy_find(
        cli->options.strategy ? cli->options.strategy : REFIT_STRATEGY_DEFAULT, &early);
    gboolean ok;
    int exit_code = CLI_EXIT_NO;

    if (strategy != NULL && !cli_trace_check(cli, error))
        return CLI_EXIT_USAGE;
    if (strategy != NULL && !read_options(cli, &run, &early))
        g_assert(early != NULL);
    if (!choose_launch(&cli->options, &launch, early == NULL ? error : NULL)) {
        if (early != NULL)
            g_propagate_error(error, early);
        return CLI_EXIT_NO;
    }
    if (early == NULL)
        exit_code = make_plan(cli, &run, &launch, strategy, &parts, &early);
    /* Ranks meet all the same when there is something wrong, so that it is told once. */
    if (launch.launcher != NULL && exit_code != CLI_EXIT_USAGE) {
        ok = run_launched(cli, &run, &launch, early, error);
    } else if (early != NULL) {
        g_propagate_error(error, early);
        return exit_code;
    } else {
        raise_file_limit(parts.problem->n_ranks);
        cli_progress_done(cli);
        ok = cli_run_ranks(&run, error);
    }
    return ok ? CLI_EXIT_YES : CLI_EXIT_NO;
}
