/*
 * `refit run CASE`: carries a plan out. Every rank makes the same plan, fills its parameters with
 * synthetic weights, and runs; rank 0 prints what all have measured. Ranks come from a launcher
 * (torchrun, srun, mpirun) or, with --ranks, are started here.
 */

#include "cli/cli-run.h"

#include <sys/resource.h>

#define DEFAULT_TIMEOUT "60s"
enum { MAX_REPEAT = 1000 };

/* ---- options ---- */

static gboolean read_options(const Cli *cli, CliRun *run, GError **error) {
    const CliOptions *options = &cli->options;
    const char *timeout = options->timeout != NULL ? options->timeout : DEFAULT_TIMEOUT;

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
        return cli_run_report(run, &report, error);
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
    const RefitTopology *topology = problem->refit_case->topology;
    g_autofree guint *domains = g_new(guint, problem->n_ranks);
    g_autofree guint *nodes = g_new(guint, problem->n_ranks);

    if (!refit_schedule_check(run->schedule, error) ||
        !refit_schedule_check_budget(run->schedule, error))
        return FALSE;
    for (guint rank = 0; rank < problem->n_ranks; rank++) {
        domains[rank] = refit_topology_domain_of(topology, rank);
        nodes[rank] = refit_topology_node_of(topology, rank);
    }
    run->domains = domains;
    run->nodes = nodes;
    raise_file_limit(problem->n_ranks);
    cli_progress_done(cli);
    return launch->launcher != NULL ? run_launched(cli, run, launch, error)
                                    : cli_run_ranks(run, error);
}

int cli_run(Cli *cli, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    g_autoptr(RefitProblem) problem = NULL;
    g_auto(CliPlanned) planned = {0};
    g_auto(RefitLaunch) launch = {0};
    const RefitStrategy *strategy = refit_strategy_find(
        cli->options.strategy ? cli->options.strategy : REFIT_STRATEGY_DEFAULT, error);
    g_auto(CliTrace) trace = {0};
    CliTimings timings;
    CliRun run = {.cli = cli, .trace = &trace};
    int exit_code;

    if (strategy != NULL && !cli_trace_check(cli, error))
        return CLI_EXIT_USAGE;
    if (strategy == NULL || !read_options(cli, &run, error) ||
        !choose_launch(&cli->options, &launch, error) ||
        !cli_load_case(cli, cli->arguments[0], &refit_case, &problem, error) ||
        !check_world(problem, launch.launcher != NULL ? launch.launcher : "--ranks",
                     launch.launcher != NULL ? launch.world : (guint)cli->options.ranks, error))
        return CLI_EXIT_NO;
    exit_code = cli_trace_read(cli, problem, &trace, error);
    if (exit_code != CLI_EXIT_YES)
        return exit_code;
    /* Of several ranks, only the first is where the file would be. */
    if ((launch.launcher == NULL && !cli_check_output(cli, trace.path, error)) ||
        !cli_plan_and_predict(cli, problem, strategy, &planned, NULL, NULL, &timings, error))
        return CLI_EXIT_NO;
    run.plan = planned.plan;
    run.schedule = planned.schedule;
    return run_plan(cli, &run, &launch, error) ? CLI_EXIT_YES : CLI_EXIT_NO;
}
