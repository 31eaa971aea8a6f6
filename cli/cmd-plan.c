/*
 * `refit plan CASE`: makes and proves a plan, prints what it moves next to the bound and the
 * staging memory that carrying it out may take, and with -o writes the whole plan. With a staging
 * budget the exit code is 1 when that is more. It claims no times beyond the bound: `refit predict`
 * does.
 */

#include "cli/cli.h"

#include "model/schedule/refit-program.h"

/* Staging memory of the rank that takes most. */
typedef struct {
    guint64 bytes;
    guint rank;
} Staging;

static gboolean find_staging(const RefitPlan *plan, Staging *staging_out, GError **error) {
    g_autoptr(RefitProgramIndex) index = refit_program_index_new(plan, error);
    Staging most = {0};

    if (index == NULL)
        return FALSE;
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++) {
        guint64 bytes;

        if (!refit_program_index_staging(index, rank, &bytes, error))
            return FALSE;
        if (bytes > most.bytes)
            most = (Staging){bytes, rank};
    }
    *staging_out = most;
    return TRUE;
}

static gboolean over_budget(const RefitCase *refit_case, const Staging *staging) {
    return refit_case->budget_staging_bytes > 0 &&
           staging->bytes > refit_case->budget_staging_bytes;
}

static void print_json(const Cli *cli, const RefitPlan *plan, const RefitBound *bound,
                       const Staging *staging, const CliTimings *timings) {
    const RefitCase *refit_case = plan->problem->refit_case;
    RefitJson *json = refit_json_new(2);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.plan-summary/1");
    refit_json_string(json, "case", refit_case->name);
    refit_json_string(json, "strategy", plan->strategy);
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
    refit_json_uint(json, "bytes", staging->bytes);
    if (staging->bytes > 0)
        refit_json_uint(json, "gpu", staging->rank);
    if (refit_case->budget_staging_bytes > 0) {
        refit_json_uint(json, "budget_bytes", refit_case->budget_staging_bytes);
        refit_json_bool(json, "fits", !over_budget(refit_case, staging));
    }
    refit_json_end_object(json);
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

static void print_staging(const RefitCase *refit_case, const Staging *staging) {
    g_autofree char *most = refit_format_bytes(staging->bytes);
    g_autofree char *budget = refit_format_bytes(refit_case->budget_staging_bytes);
    g_autofree char *where =
        staging->bytes > 0
            ? g_strdup_printf("up to %s on a GPU, most on GPU %u", most, staging->rank)
            : g_strdup("none");

    if (refit_case->budget_staging_bytes == 0)
        cli_print_labelled("staging", "%s", where);
    else
        cli_print_labelled("staging", "%s: %s the budget of %s", where,
                           over_budget(refit_case, staging) ? "MISSES" : "FITS", budget);
}

static void print_text(const Cli *cli, const RefitPlan *plan, const RefitBound *bound,
                       const Staging *staging, const CliTimings *timings) {
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
    print_staging(refit_case, staging);
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
    g_autoptr(RefitPlan) plan = NULL;
    const RefitStrategy *strategy = refit_strategy_find(
        cli->options.strategy ? cli->options.strategy : REFIT_STRATEGY_DEFAULT, error);
    CliTimings timings;
    RefitBound bound;
    Staging staging;

    if (strategy == NULL || !cli_check_output(cli, error) ||
        !cli_load_case(cli, cli->arguments[0], &refit_case, &problem, error) ||
        !refit_bound_compute(problem, &bound, error) ||
        !cli_plan_and_predict(cli, problem, strategy, &plan, NULL, &timings, error) ||
        !find_staging(plan, &staging, error))
        return CLI_EXIT_NO;
    if (cli->options.output != NULL) {
        gsize length;
        g_autofree char *text = refit_plan_to_json(plan, &length);

        if (!cli_write_output(cli, text, length, error))
            return CLI_EXIT_NO;
        if (cli_output_is_stdout(cli))
            return CLI_EXIT_YES;
    }
    if (cli->options.json)
        print_json(cli, plan, &bound, &staging, &timings);
    else
        print_text(cli, plan, &bound, &staging, &timings);
    return over_budget(refit_case, &staging) ? CLI_EXIT_NO : CLI_EXIT_YES;
}
