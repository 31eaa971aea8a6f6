/*
 * `refit plan CASE`: makes and proves a plan, prints what it moves next to the bound, the staging
 * memory that carrying it out may take and in how many turns, what NCCL's connections take besides,
 * and with -o writes the whole plan.
 * With a staging budget the exit code is 1 when that is more. It claims no times beyond the bound:
 * `refit predict` does.
 */

#include "cli/cli.h"

#include "model/schedule/refit-schedule-comms.h"

/* What the ranks take that take most. */
typedef struct {
    guint64 staging_bytes;
    guint staging_gpu, turns_gpu, connections_gpu;
} Most;

static Most find_most(const RefitSchedule *schedule) {
    Most most = {.turns_gpu = refit_schedule_busiest(schedule),
                 .connections_gpu = refit_schedule_most_connected(schedule)};

    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++) {
        guint64 bytes = refit_schedule_staging_bytes(schedule, rank);

        if (bytes > most.staging_bytes) {
            most.staging_bytes = bytes;
            most.staging_gpu = rank;
        }
    }
    return most;
}

static guint64 count_turns(const RefitSchedule *schedule) {
    guint64 n = 0;

    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++)
        n += schedule->ranks[rank].n_turns;
    return n;
}

static gboolean over_budget(const RefitCase *refit_case, const Most *most) {
    return refit_case->budget_staging_bytes > 0 &&
           most->staging_bytes > refit_case->budget_staging_bytes;
}

/* Communicators that the GPU with most connections has a part in; see refit-schedule-comms.h. */
static void add_connections(RefitJson *json, const RefitSchedule *schedule, guint gpu) {
    refit_json_begin_object(json, "connections");
    refit_json_uint(json, "bytes", refit_schedule_connection_bytes(schedule, gpu));
    refit_json_uint(json, "gpu", gpu);
    refit_json_begin_array(json, "communicators");
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint comm = 0; comm < schedule->n_comms[link]; comm++) {
            const RefitScheduleConnections *connections =
                refit_schedule_connections(schedule, gpu, (RefitLink)link, comm);

            refit_json_begin_object(json, NULL);
            refit_json_string(json, "link", refit_link_name((RefitLink)link));
            refit_json_uint(json, "channels", schedule->ctas[link]);
            refit_json_uint(json, "channels_of_a_pair", schedule->per_peer[link]);
            refit_json_uint(json, "sends_to", connections->n_sends);
            refit_json_uint(json, "receives_from", connections->n_receives);
            refit_json_uint(json, "bytes",
                            refit_schedule_comm_bytes(schedule, gpu, (RefitLink)link, comm));
            refit_json_end_object(json);
        }
    refit_json_end_array(json);
    refit_json_end_object(json);
}

static void print_json(const Cli *cli, const RefitSchedule *schedule, const RefitBound *bound,
                       const Most *most, const CliTimings *timings) {
    const RefitPlan *plan = schedule->plan;
    const RefitCase *refit_case = plan->problem->refit_case;
    RefitJson *json = refit_json_new(2);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.plan-summary/1");
    refit_json_string(json, "case", refit_case->name);
    cli_json_unknown(json, refit_case->model);
    refit_json_string(json, "strategy", plan->strategy);
    refit_json_string(json, "shape", plan->shape);
    refit_json_string(json, "digest", plan->digest);
    refit_json_uint(json, "transfers", cli_count_transfers(plan));
    refit_json_uint(json, "class_transfers", plan->n_transfers);
    refit_json_uint(json, "classes", plan->problem->n_classes);
    refit_json_uint(json, "messages", plan->n_messages);
    refit_json_uint(json, "steps", plan->n_steps);
    refit_json_uint(json, "batches", plan->n_batches);
    refit_json_uint(json, "network_bytes", plan->link_bytes[REFIT_LINK_NETWORK]);
    refit_json_uint(json, "nvlink_bytes", plan->link_bytes[REFIT_LINK_NVLINK]);
    refit_json_uint(json, "local_bytes", plan->link_bytes[REFIT_LINK_LOCAL]);
    refit_json_uint(json, "needed_bytes", plan->problem->needed_bytes);
    refit_json_uint(json, "logical_bytes", plan->logical_bytes);
    refit_json_begin_object(json, "staging");
    refit_json_uint(json, "bytes", most->staging_bytes);
    if (most->staging_bytes > 0) {
        const RefitScheduleRank *rank = &schedule->ranks[most->staging_gpu];

        refit_json_uint(json, "gpu", most->staging_gpu);
        refit_json_uint(json, "landing_bytes", rank->landing_bytes);
        refit_json_uint(json, "wire_bytes", rank->wire_bytes);
    }
    if (refit_case->budget_staging_bytes > 0) {
        refit_json_uint(json, "budget_bytes", refit_case->budget_staging_bytes);
        refit_json_bool(json, "fits", !over_budget(refit_case, most));
    }
    refit_json_end_object(json);
    refit_json_begin_object(json, "turns");
    refit_json_uint(json, "most", schedule->ranks[most->turns_gpu].n_turns);
    refit_json_uint(json, "groups", schedule->ranks[most->turns_gpu].n_groups);
    refit_json_uint(json, "gpu", most->turns_gpu);
    refit_json_uint(json, "all", count_turns(schedule));
    refit_json_end_object(json);
    add_connections(json, schedule, most->connections_gpu);
    cli_json_bound(json, bound);
    cli_json_timings(cli, json, timings);
    refit_json_end_object(json);
    cli_print_json(json);
}

/* Least and most bytes of the ranks that move any in this direction. */
static void add_direction(CliTable *table, const RefitPlan *plan, RefitLink link, gboolean in) {
    guint64 least = G_MAXUINT64, most = 0, total = 0;
    guint n_ranks = 0;

    for (guint rank = 0; rank < plan->problem->n_ranks; rank++) {
        const RefitRankAccount *account = &plan->accounts[rank];
        guint64 bytes = in ? account->in[link] : account->out[link];

        if (bytes == 0)
            continue;
        least = MIN(least, bytes);
        most = MAX(most, bytes);
        total += bytes;
        n_ranks++;
    }
    if (n_ranks == 0)
        return;
    cli_table_add_cell(table, g_strdup_printf("%s %s", refit_link_name(link), in ? "in" : "out"));
    cli_table_add_cell(table, g_strdup_printf("%u", n_ranks));
    cli_table_add_number(table, (double)total);
    cli_table_add_number(table, (double)least);
    cli_table_add_number(table, (double)most);
}

static void print_staging(const RefitCase *refit_case, const Most *most) {
    g_autofree char *bytes = refit_format_bytes(most->staging_bytes);
    g_autofree char *budget = refit_format_bytes(refit_case->budget_staging_bytes);
    g_autofree char *where =
        most->staging_bytes > 0
            ? g_strdup_printf("up to %s on a GPU, most on GPU %u", bytes, most->staging_gpu)
            : g_strdup("none");

    if (refit_case->budget_staging_bytes == 0)
        cli_print_labelled("staging", "%s", where);
    else
        cli_print_labelled("staging", "%s: %s the budget of %s", where,
                           over_budget(refit_case, most) ? "MISSES" : "FITS", budget);
}

/* A turn is what a GPU submits at once; see refit-schedule.h. */
static void print_turns(const RefitScheduleRank *busiest, guint gpu) {
    g_autofree char *groups = cli_count(busiest->n_groups, "NCCL group");

    if (busiest->n_turns == 0)
        cli_print_labelled("turns", "none");
    else
        cli_print_labelled("turns", "up to %u on a GPU, most on GPU %u, with %s", busiest->n_turns,
                           gpu, groups);
}

static char *describe_comms(const RefitSchedule *schedule, RefitLink link) {
    guint n = schedule->n_comms[link];

    return g_strdup_printf("%u for %s with %u channel%s%s", n, refit_link_name(link),
                           schedule->ctas[link], schedule->ctas[link] == 1 ? "" : "s",
                           n == 1 ? "" : " each");
}

/* Memory that NCCL takes besides the staging memory. */
static void print_connections(const RefitSchedule *schedule, guint gpu) {
    g_autofree char *bytes = refit_format_bytes(refit_schedule_connection_bytes(schedule, gpu));
    GString *comms = g_string_new(NULL);

    for (guint link = REFIT_N_LINKS; link-- > 0;) {
        g_autofree char *some = NULL;

        if (schedule->n_comms[link] == 0)
            continue;
        some = describe_comms(schedule, (RefitLink)link);
        g_string_append_printf(comms, "%s%s", comms->len > 0 ? ", " : "", some);
    }
    if (comms->len == 0)
        cli_print_labelled("nccl", "no connections");
    else
        cli_print_labelled("nccl",
                           "up to %s for connections on a GPU, most on GPU %u; communicators: %s",
                           bytes, gpu, comms->str);
    g_string_free(comms, TRUE);
}

static void print_text(const Cli *cli, const RefitSchedule *schedule, const RefitBound *bound,
                       const Most *most, const CliTimings *timings) {
    const RefitPlan *plan = schedule->plan;
    const RefitCase *refit_case = plan->problem->refit_case;
    g_autoptr(CliTable) table = cli_table_new();
    g_autofree char *network = refit_format_bytes(plan->link_bytes[REFIT_LINK_NETWORK]);
    g_autofree char *least = refit_format_bytes(bound->network_bytes);
    g_autofree char *needed = refit_format_bytes(plan->problem->needed_bytes);
    g_autofree char *time = refit_format_seconds(bound->time_s);
    g_autofree char *transfers = cli_count(cli_count_transfers(plan), "transfer");
    g_autofree char *classes = cli_count(plan->problem->n_classes, "class");
    g_autofree char *messages = cli_count(plan->n_messages, "message");
    g_autofree char *steps = cli_count(plan->n_steps, "step");
    g_autofree char *batches = cli_count(plan->n_batches, "batch");

    cli_print("%s: %s moves %s over the network for %s needed\n", refit_case->name, plan->strategy,
              network, needed);
    cli_print_case(refit_case);
    cli_print_labelled("bound", "%s over the network, %s, limited by %s", least, time,
                       bound->limited_by);
    cli_print_labelled("plan", "%s of %s in %s, %s, %s", transfers, classes, messages, steps,
                       batches);
    cli_print_shape(plan);
    print_staging(refit_case, most);
    print_turns(&schedule->ranks[most->turns_gpu], most->turns_gpu);
    print_connections(schedule, most->connections_gpu);
    cli_print_labelled("digest", "%s", plan->digest);
    if (cli->options.output != NULL)
        cli_print_labelled("file", "%s", cli->options.output);
    cli_print_timings(cli, timings);
    cli_table_add_column(table, "link", "", CLI_LEFT);
    cli_table_add_column(table, "ranks", "", CLI_RIGHT);
    cli_table_add_measure(table, "all", CLI_BYTES);
    cli_table_add_measure(table, "least busy", CLI_BYTES);
    cli_table_add_measure(table, "busiest", CLI_BYTES);
    for (guint link = REFIT_N_LINKS; link-- > 0;) {
        add_direction(table, plan, (RefitLink)link, FALSE);
        add_direction(table, plan, (RefitLink)link, TRUE);
    }
    cli_print("\n");
    cli_print_table(table);
}

int cli_plan(Cli *cli, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    g_autoptr(RefitProblem) problem = NULL;
    g_auto(CliPlanned) planned = {0};
    const RefitStrategy *strategy = refit_strategy_find(
        cli->options.strategy ? cli->options.strategy : REFIT_STRATEGY_DEFAULT, error);
    CliTimings timings;
    RefitBound bound;
    Most most;

    if (strategy == NULL || !cli_check_output(cli, cli->options.output, error) ||
        !cli_load_case(cli, cli->arguments[0], &refit_case, &problem, error) ||
        !refit_bound_compute(problem, &bound, error) ||
        !cli_plan_and_predict(cli, problem, strategy, &planned, NULL, NULL, &timings, error))
        return CLI_EXIT_NO;
    most = find_most(planned.schedule);
    if (cli->options.output != NULL) {
        gsize length;
        g_autofree char *text = refit_plan_to_json(planned.plan, &length);

        if (!cli_write_output(cli, cli->options.output, text, length, error))
            return CLI_EXIT_NO;
        if (cli_is_stdout(cli->options.output))
            return CLI_EXIT_YES;
    }
    if (cli->options.json)
        print_json(cli, planned.schedule, &bound, &most, &timings);
    else
        print_text(cli, planned.schedule, &bound, &most, &timings);
    return over_budget(refit_case, &most) ? CLI_EXIT_NO : CLI_EXIT_YES;
}
