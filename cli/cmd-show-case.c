/*
 * `refit show case` and `refit show layout`: a case's sides, what each rank of a side holds in
 * bytes, and how each kind of tensor is placed. Shards of one kind are alike but for their ranks,
 * so one example per role stands for all of them.
 */

#include "cli/cli-show.h"

#include <string.h>

/* ---- layout ---- */

typedef struct {
    const RefitTensor *example;
    const RefitSharding *sharding; /* of the example */
    guint tensors, shardings;      /* how many tensors, under how many different shardings */
} RolePlacement;

static void collect_roles(const RefitLayout *layout, RolePlacement roles[REFIT_N_ROLES]) {
    const RefitModel *model = refit_layout_model(layout);
    GHashTable *seen[REFIT_N_ROLES] = {NULL}; /* shardings met, per role */

    for (guint t = 0; t < refit_model_n_tensors(model); t++) {
        const RefitTensor *tensor = refit_model_tensor(model, t);
        const RefitSharding *sharding = refit_layout_sharding(layout, t);
        RolePlacement *role = &roles[tensor->role];

        if (sharding == NULL)
            continue;
        if (role->tensors++ == 0) {
            role->example = tensor;
            role->sharding = sharding;
            seen[tensor->role] = g_hash_table_new(NULL, NULL);
        }
        g_hash_table_add(seen[tensor->role], (gpointer)sharding);
    }
    for (guint r = 0; r < REFIT_N_ROLES; r++) {
        if (seen[r] == NULL)
            continue;
        roles[r].shardings = g_hash_table_size(seen[r]);
        g_hash_table_unref(seen[r]);
    }
}

static void print_side_text(const RefitLayout *layout, const guint64 *bytes,
                            const RolePlacement roles[REFIT_N_ROLES]) {
    g_autoptr(CliTable) table = cli_table_new();
    guint n = refit_layout_n_ranks(layout);
    const guint *ranks = refit_layout_ranks(layout);
    guint64 least = G_MAXUINT64, most = 0;

    for (guint i = 0; i < n; i++) {
        least = MIN(least, bytes[ranks[i]]);
        most = MAX(most, bytes[ranks[i]]);
    }
    g_autofree char *low = refit_format_bytes(least);
    g_autofree char *high = refit_format_bytes(most);
    g_autofree char *gpus = cli_count(n, "GPU");
    cli_print("%s: %s, %s from %u\n", refit_layout_side(layout), refit_layout_summary(layout), gpus,
              ranks[0]);
    if (g_str_equal(low, high))
        cli_print("%s per GPU\n\n", low);
    else
        cli_print("%s to %s per GPU\n\n", low, high);
    if (refit_model_n_unknown(refit_layout_model(layout), &least) > 0) {
        cli_print_unknown(refit_layout_model(layout));
        cli_print("\n");
    }
    if (refit_layout_n_notes(layout) > 0) {
        cli_print_notes(layout);
        cli_print("\n");
    }
    cli_table_add_column(table, "class", "", CLI_LEFT);
    cli_table_add_column(table, "tensors", "", CLI_RIGHT);
    cli_table_add_column(table, "layouts", "", CLI_RIGHT);
    cli_table_add_column(table, "the first one", "", CLI_LEFT);
    for (guint role = 0; role < REFIT_N_ROLES; role++) {
        if (roles[role].tensors == 0)
            continue;
        cli_table_add_cell(table, g_strdup(refit_role_name(role)));
        cli_table_add_cell(table, g_strdup_printf("%u", roles[role].tensors));
        cli_table_add_cell(table, g_strdup_printf("%u", roles[role].shardings));
        cli_table_add_cell(table, refit_sharding_to_string(roles[role].sharding));
    }
    cli_print_table(table);
}

static void print_side_json(RefitJson *json, const RefitLayout *layout, const guint64 *bytes,
                            const RolePlacement roles[REFIT_N_ROLES]) {
    refit_json_begin_object(json, NULL);
    refit_json_string(json, "side", refit_layout_side(layout));
    refit_json_string(json, "framework", refit_layout_framework(layout));
    refit_json_string(json, "summary", refit_layout_summary(layout));
    refit_json_begin_array(json, "classes");
    for (guint role = 0; role < REFIT_N_ROLES; role++) {
        if (roles[role].tensors == 0)
            continue;
        g_autofree char *placement = refit_sharding_to_string(roles[role].sharding);
        refit_json_begin_object(json, NULL);
        refit_json_string(json, "class", refit_role_name(role));
        refit_json_uint(json, "tensors", roles[role].tensors);
        refit_json_uint(json, "shardings", roles[role].shardings);
        refit_json_string(json, "example", roles[role].example->name);
        refit_json_string(json, "example_placement", placement);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
    refit_json_begin_row(json, "ranks");
    for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
        refit_json_uint(json, NULL, refit_layout_ranks(layout)[i]);
    refit_json_end_row(json);
    refit_json_begin_row(json, "rank_bytes");
    for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
        refit_json_uint(json, NULL, bytes[refit_layout_ranks(layout)[i]]);
    refit_json_end_row(json);
    refit_json_end_object(json);
}

static gboolean show_side(const RefitLayout *layout, guint n_gpus, RefitJson *json,
                          GError **error) {
    g_autofree guint64 *bytes = g_new0(guint64, n_gpus);
    RolePlacement roles[REFIT_N_ROLES] = {{0}};

    if (!refit_layout_add_bytes(layout, bytes, error))
        return FALSE;
    collect_roles(layout, roles);
    if (json != NULL)
        print_side_json(json, layout, bytes, roles);
    else
        print_side_text(layout, bytes, roles);
    return TRUE;
}

/* Whether the options of a layout go together; on error the command line is to blame. */
static gboolean check_options(const Cli *cli, GError **error) {
    const CliOptions *options = &cli->options;
    const char *message = NULL;

    if (options->rank != NULL && options->output != NULL)
        message = "--svg shows all ranks; leave --rank out";
    else if (options->output != NULL && options->tensor == NULL)
        message = "--svg shows one tensor; name it with --tensor";
    else if (options->output != NULL && options->json)
        message = "--svg writes a picture and --json a document; ask for one at a time";
    else if (options->tensor != NULL && options->rank == NULL && options->output == NULL)
        message = "--tensor goes with --rank or --svg; add one of them";
    else if (options->strategy != NULL && options->output == NULL)
        message = "--strategy goes with --svg, which shows who sends what; add --svg or leave it "
                  "out";
    if (message == NULL)
        return TRUE;
    g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID, message);
    return FALSE;
}

int cli_show_layout(Cli *cli, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    g_autoptr(RefitJson) json = NULL;
    guint n_gpus;

    if (!check_options(cli, error))
        return CLI_EXIT_USAGE;
    if (cli->options.output != NULL)
        return cli_show_picture(cli, error);
    refit_case = refit_case_load(&cli->store, cli->arguments[1],
                                 (const char *const *)cli->options.set, error);
    if (refit_case == NULL)
        return CLI_EXIT_NO;
    if (cli->options.rank != NULL)
        return cli_show_rank(cli, refit_case, error);
    n_gpus = refit_topology_n_gpus(refit_case->topology);
    if (cli->options.json) {
        json = refit_json_new(2);
        refit_json_begin_object(json, NULL);
        refit_json_string(json, "schema", "refit.layout-summary/1");
        refit_json_string(json, "case", refit_case->name);
        cli_json_notes(json, refit_case);
        refit_json_begin_array(json, "sides");
    }
    if (!show_side(refit_case->source, n_gpus, json, error))
        return CLI_EXIT_NO;
    for (guint d = 0; d < refit_case->n_destinations; d++) {
        if (json == NULL)
            cli_print("\n");
        if (!show_side(refit_case->destinations[d], n_gpus, json, error))
            return CLI_EXIT_NO;
    }
    if (json != NULL) {
        refit_json_end_array(json);
        refit_json_end_object(json);
        cli_print_json(g_steal_pointer(&json));
    }
    return CLI_EXIT_YES;
}

/* ---- case ---- */

int cli_show_case(Cli *cli, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    g_autoptr(RefitProblem) problem = NULL;
    g_auto(CliForms) forms = {0};
    RefitBound bound;

    if (!cli_load_case(cli, cli->arguments[1], &refit_case, &problem, error) ||
        !refit_bound_compute(problem, &bound, error) ||
        !cli_forms_measure(refit_case, &forms, error))
        return CLI_EXIT_NO;
    cli_progress_done(cli);
    if (cli->options.json) {
        RefitJson *json = refit_json_new(2);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "schema", "refit.case-summary/1");
        refit_json_string(json, "case", refit_case->name);
        refit_json_string(json, "model", refit_model_name(refit_case->model));
        refit_json_string(json, "source", refit_layout_summary(refit_case->source));
        refit_json_begin_array(json, "destinations");
        for (guint d = 0; d < refit_case->n_destinations; d++)
            refit_json_string(json, NULL, refit_layout_summary(refit_case->destinations[d]));
        refit_json_end_array(json);
        refit_json_string(json, "topology", refit_case->topology->name);
        cli_json_failed(json, refit_case);
        cli_json_notes(json, refit_case);
        cli_json_profile(json, refit_case->profile);
        cli_json_forms(json, refit_case, &forms);
        refit_json_uint(json, "classes", problem->n_classes);
        refit_json_uint(json, "weight_bytes", problem->weight_bytes);
        refit_json_uint(json, "needed_bytes", problem->needed_bytes);
        cli_json_bound(json, &bound);
        if (refit_case->budget_time_s > 0)
            refit_json_double(json, "budget_s", refit_case->budget_time_s);
        refit_json_end_object(json);
        cli_print_json(json);
        return CLI_EXIT_YES;
    }
    g_autofree char *time = refit_format_seconds(bound.time_s);
    g_autofree char *network = refit_format_bytes(bound.network_bytes);
    g_autofree char *needed = refit_format_bytes(problem->needed_bytes);
    cli_print("%s: no plan is faster than %s\n", refit_case->name, time);
    cli_print_case(refit_case);
    cli_print_forms(refit_case, &forms);
    cli_print_labelled("bound", "%s into NVLink domains for %s needed, limited by %s", network,
                       needed, bound.limited_by);
    if (refit_case->budget_time_s > 0) {
        g_autofree char *budget = refit_format_seconds(refit_case->budget_time_s);

        cli_print_labelled("budget", "%s", budget);
    }
    g_autofree char *kinds = cli_count(problem->n_classes, "kind");
    cli_print_labelled("classes", "%s of tensor", kinds);
    return CLI_EXIT_YES;
}
