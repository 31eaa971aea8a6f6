/*
 * `refit show KIND [NAME]`: what an input or a plan file holds, as text or JSON. One row of the
 * table below per kind. Without NAME the shipped names of the kind are listed.
 */

#include "cli/cli-show.h"

#include <string.h>

/* ---- models ---- */

typedef struct {
    guint64 tensors, parameters, bytes;
} RoleSum;

static void sum_roles(const RefitModel *model, RoleSum sums[REFIT_N_ROLES],
                      guint64 *mtp_parameters_out) {
    *mtp_parameters_out = 0;
    for (guint t = 0; t < refit_model_n_tensors(model); t++) {
        const RefitTensor *tensor = refit_model_tensor(model, t);

        sums[tensor->role].tensors++;
        sums[tensor->role].parameters += tensor->parameters;
        sums[tensor->role].bytes += tensor->bytes;
        if (tensor->mtp)
            *mtp_parameters_out += tensor->parameters;
    }
}

static void print_model_json(const RefitModel *model, const RoleSum sums[REFIT_N_ROLES],
                             guint64 mtp_parameters) {
    RefitJson *json = refit_json_new(2);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.model-summary/1");
    refit_json_string(json, "name", refit_model_name(model));
    refit_json_string(json, "form", refit_model_form(model));
    refit_json_uint(json, "parameters", refit_model_parameters(model));
    refit_json_uint(json, "main_parameters", refit_model_parameters(model) - mtp_parameters);
    refit_json_uint(json, "mtp_parameters", mtp_parameters);
    refit_json_uint(json, "bytes", refit_model_bytes(model));
    refit_json_uint(json, "tensors", refit_model_n_tensors(model));
    refit_json_uint(json, "layers", refit_model_n_layers(model));
    refit_json_uint(json, "experts", refit_model_n_experts(model));
    cli_json_unknown(json, model);
    refit_json_begin_array(json, "classes");
    for (guint role = 0; role < REFIT_N_ROLES; role++) {
        if (sums[role].tensors == 0)
            continue;
        refit_json_begin_object(json, NULL);
        refit_json_string(json, "class", refit_role_name(role));
        refit_json_uint(json, "tensors", sums[role].tensors);
        refit_json_uint(json, "parameters", sums[role].parameters);
        refit_json_uint(json, "bytes", sums[role].bytes);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
    refit_json_end_object(json);
    cli_print_json(json);
}

static void print_model_text(const RefitModel *model, const RoleSum sums[REFIT_N_ROLES],
                             guint64 mtp_parameters) {
    g_autoptr(CliTable) table = cli_table_new();
    g_autofree char *bytes = refit_format_bytes(refit_model_bytes(model));
    g_autofree char *parameters = cli_count(refit_model_parameters(model), "parameter");
    g_autofree char *tensors = cli_count(refit_model_n_tensors(model), "tensor");

    cli_print("%s: %s, %s in %s\n", refit_model_name(model), parameters, bytes, tensors);
    cli_print_unknown(model);
    if (refit_model_n_experts(model) > 0)
        cli_print_labelled("layers", "%u, those with experts have %u routed ones each",
                           refit_model_n_layers(model), refit_model_n_experts(model));
    else
        cli_print_labelled("layers", "%u", refit_model_n_layers(model));
    if (mtp_parameters > 0)
        cli_print_labelled("mtp",
                           "%" G_GUINT64_FORMAT " parameters of multi-token prediction are "
                           "included; --set mtp=false leaves them out",
                           mtp_parameters);
    cli_print("\n");
    cli_table_add_column(table, "class", "", CLI_LEFT);
    cli_table_add_column(table, "tensors", "", CLI_RIGHT);
    cli_table_add_column(table, "parameters", "", CLI_RIGHT);
    cli_table_add_measure(table, "size", CLI_BYTES);
    for (guint role = 0; role < REFIT_N_ROLES; role++) {
        if (sums[role].tensors == 0)
            continue;
        cli_table_add_cell(table, g_strdup(refit_role_name(role)));
        cli_table_add_cell(table, g_strdup_printf("%" G_GUINT64_FORMAT, sums[role].tensors));
        cli_table_add_cell(table, g_strdup_printf("%" G_GUINT64_FORMAT, sums[role].parameters));
        cli_table_add_number(table, (double)sums[role].bytes);
    }
    cli_print_table(table);
}

/* --set takes dtype and mtp, as in a case; the default is the whole model in BF16. */
static gboolean read_model_options(const Cli *cli, RefitModelOptions *options, GError **error) {
    g_autoptr(RefitDoc) doc = refit_doc_parse("{}", 2, "--set", error);
    RefitNode *root, *dtype;

    if (doc == NULL)
        return FALSE;
    for (guint i = 0; cli->options.set != NULL && cli->options.set[i] != NULL; i++)
        if (!refit_doc_set(doc, cli->options.set[i], error))
            return FALSE;
    root = refit_doc_root(doc);
    dtype = refit_node_get(root, "dtype");
    options->dtype_stated = dtype != NULL;
    return (dtype == NULL || refit_model_form_read(dtype, options, error)) &&
           refit_node_get_bool(root, "mtp", &options->mtp, error) && refit_node_finish(root, error);
}

static int show_model(Cli *cli, GError **error) {
    RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    g_autoptr(RefitModel) model = NULL;
    RoleSum sums[REFIT_N_ROLES] = {{0}};
    guint64 mtp_parameters;

    if (!read_model_options(cli, &options, error))
        return CLI_EXIT_NO;
    model = refit_store_load_model(&cli->store, cli->arguments[1], &options, NULL, error);
    if (model == NULL)
        return CLI_EXIT_NO;
    sum_roles(model, sums, &mtp_parameters);
    if (cli->options.json)
        print_model_json(model, sums, mtp_parameters);
    else
        print_model_text(model, sums, mtp_parameters);
    return CLI_EXIT_YES;
}

/* ---- topologies and profiles ---- */

typedef struct {
    const char *key;
    const RefitSourced *number;
    RefitUnit unit;
} Quantity;

static char *format_quantity(const Quantity *quantity) {
    char text[G_ASCII_DTOSTR_BUF_SIZE];

    switch (quantity->unit) {
    case REFIT_UNIT_BYTES:
        return refit_format_bytes((guint64)quantity->number->value);
    case REFIT_UNIT_BYTES_PER_S:
        return quantity->number->value > 0 ? refit_format_bandwidth(quantity->number->value)
                                           : g_strdup("free");
    case REFIT_UNIT_SECONDS:
        return refit_format_seconds(quantity->number->value);
    case REFIT_UNIT_PLAIN:
        break;
    }
    return g_strdup(g_ascii_formatd(text, sizeof text, "%g", quantity->number->value));
}

static void print_quantities(const Quantity *quantities, guint n) {
    g_autoptr(CliTable) table = cli_table_new();

    cli_table_add_column(table, "number", "", CLI_LEFT);
    cli_table_add_column(table, "value", "", CLI_RIGHT);
    cli_table_add_column(table, "source", "", CLI_LEFT);
    for (guint i = 0; i < n; i++) {
        cli_table_add_cell(table, g_strdup(quantities[i].key));
        cli_table_add_cell(table, format_quantity(&quantities[i]));
        cli_table_add_cell(table, g_strdup(quantities[i].number->source != NULL
                                               ? quantities[i].number->source
                                               : "not stated"));
    }
    cli_print("\n");
    cli_print_table(table);
}

/* Keys name their unit, unless they do so already. */
static char *json_key(const Quantity *quantity) {
    static const char *const suffixes[] = {"_bytes", "_bytes_per_s", "_s", ""};
    const char *suffix = suffixes[quantity->unit];

    return g_strconcat(quantity->key, g_str_has_suffix(quantity->key, suffix) ? "" : suffix, NULL);
}

static void json_quantities(RefitJson *json, const Quantity *quantities, guint n) {
    for (guint i = 0; i < n; i++) {
        g_autofree char *key = json_key(&quantities[i]);

        refit_json_begin_object(json, key);
        refit_json_double(json, "value", quantities[i].number->value);
        refit_json_string(json, "source", quantities[i].number->source);
        refit_json_end_object(json);
    }
}

/* {name: NAME} with --set applied: what a case that overrides parts of it would say. */
static RefitDoc *new_overridden(const Cli *cli, GError **error) {
    RefitJson *json = refit_json_new(0);
    gsize length;
    g_autofree char *text = NULL;
    g_autoptr(RefitDoc) doc = NULL;

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "name", cli->arguments[1]);
    refit_json_end_object(json);
    text = refit_json_finish(json, &length);
    doc = refit_doc_parse(text, length, "command line", error);
    for (guint i = 0; doc != NULL && cli->options.set[i] != NULL; i++)
        if (!refit_doc_set(doc, cli->options.set[i], error))
            return NULL;
    return g_steal_pointer(&doc);
}

static RefitTopology *load_topology(const Cli *cli, GError **error) {
    const char *name = cli->arguments[1];
    g_autoptr(RefitDoc) doc = NULL;
    g_autoptr(RefitTopology) topology = NULL;

    if (cli->options.set != NULL) {
        doc = new_overridden(cli, error);
        topology =
            doc != NULL ? refit_topology_from_case(refit_doc_root(doc), &cli->store, error) : NULL;
        return topology != NULL && refit_node_finish(refit_doc_root(doc), error)
                   ? g_steal_pointer(&topology)
                   : NULL;
    }
    if (strchr(name, ':') != NULL && strchr(name, '/') == NULL)
        return refit_topology_parse_line(name, error);
    doc = refit_store_load(&cli->store, "topologies", name, NULL, error);
    return doc != NULL ? refit_topology_parse(refit_doc_root(doc), error) : NULL;
}

static int show_topology(Cli *cli, GError **error) {
    g_autoptr(RefitTopology) topology = load_topology(cli, error);

    if (topology == NULL)
        return CLI_EXIT_NO;
    const Quantity quantities[] = {
        {"nvlink_bandwidth", &topology->nvlink_bandwidth, REFIT_UNIT_BYTES_PER_S},
        {"nvlink_latency", &topology->nvlink_latency, REFIT_UNIT_SECONDS},
        {"nic_bandwidth", &topology->nic_bandwidth, REFIT_UNIT_BYTES_PER_S},
        {"nic_latency", &topology->nic_latency, REFIT_UNIT_SECONDS},
        {"spine_latency", &topology->spine_latency, REFIT_UNIT_SECONDS},
        {"oversubscription", &topology->oversubscription, REFIT_UNIT_PLAIN},
        {"memory", &topology->memory, REFIT_UNIT_BYTES},
        {"memory_bandwidth", &topology->memory_bandwidth, REFIT_UNIT_BYTES_PER_S},
    };
    g_autofree char *line = refit_topology_to_line(topology);

    if (cli->options.json) {
        RefitJson *json = refit_json_new(2);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "schema", "refit.topology-summary/1");
        refit_json_string(json, "name", topology->name);
        refit_json_string(json, "line", line);
        refit_json_uint(json, "nodes", topology->n_nodes);
        refit_json_uint(json, "gpus", refit_topology_n_gpus(topology));
        refit_json_uint(json, "gpus_per_node", topology->gpus_per_node);
        refit_json_uint(json, "domains", refit_topology_n_domains(topology));
        refit_json_uint(json, "gpus_per_domain", refit_topology_gpus_per_domain(topology));
        refit_json_uint(json, "rails", topology->rails);
        refit_json_uint(json, "nodes_per_leaf", topology->nodes_per_leaf);
        json_quantities(json, quantities, G_N_ELEMENTS(quantities));
        refit_json_end_object(json);
        cli_print_json(json);
        return CLI_EXIT_YES;
    }
    g_autofree char *gpus = cli_count(refit_topology_n_gpus(topology), "GPU");
    g_autofree char *nodes = cli_count(topology->n_nodes, "node");
    g_autofree char *domains = cli_count(refit_topology_n_domains(topology), "NVLink domain");
    g_autofree char *size = cli_count(refit_topology_gpus_per_domain(topology), "GPU");
    g_autofree char *rails = cli_count(topology->rails, "rail");
    cli_print("%s: %s in %s, %s of %s, %s\n", topology->name, gpus, nodes, domains, size, rails);
    cli_print_labelled("line", "%s", line);
    print_quantities(quantities, G_N_ELEMENTS(quantities));
    return CLI_EXIT_YES;
}

static RefitProfile *load_profile(const Cli *cli, GError **error) {
    g_autoptr(RefitDoc) doc = NULL;
    g_autoptr(RefitProfile) profile = NULL;

    if (cli->options.set == NULL) {
        doc = refit_store_load(&cli->store, "profiles", cli->arguments[1], NULL, error);
        return doc != NULL ? refit_profile_parse(refit_doc_root(doc), error) : NULL;
    }
    doc = new_overridden(cli, error);
    profile = doc != NULL ? refit_profile_from_case(refit_doc_root(doc), &cli->store, error) : NULL;
    return profile != NULL && refit_node_finish(refit_doc_root(doc), error)
               ? g_steal_pointer(&profile)
               : NULL;
}

static int show_profile(Cli *cli, GError **error) {
    static const RefitUnit units[] = {
#define X(suffix, key, unit, meaning) unit,
        REFIT_TERM_MAP(X)
#undef X
    };
    g_autoptr(RefitProfile) profile = load_profile(cli, error);
    Quantity quantities[REFIT_N_TERMS + 4];

    if (profile == NULL)
        return CLI_EXIT_NO;
    for (guint term = 0; term < REFIT_N_TERMS; term++)
        quantities[term] = (Quantity){refit_term_name(term), &profile->terms[term], units[term]};
    quantities[REFIT_N_TERMS] =
        (Quantity){"bucket_bytes", &profile->bucket_bytes, REFIT_UNIT_BYTES};
    quantities[REFIT_N_TERMS + 1] =
        (Quantity){"bucket_memory_percent", &profile->bucket_memory_percent, REFIT_UNIT_PLAIN};
    quantities[REFIT_N_TERMS + 2] =
        (Quantity){"slice_bytes", &profile->slice_bytes, REFIT_UNIT_BYTES};
    quantities[REFIT_N_TERMS + 3] =
        (Quantity){"stripe_bytes", &profile->stripe_bytes, REFIT_UNIT_BYTES};
    if (cli->options.json) {
        RefitJson *json = refit_json_new(2);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "schema", "refit.profile-summary/1");
        refit_json_string(json, "name", profile->name);
        json_quantities(json, quantities, G_N_ELEMENTS(quantities));
        refit_json_uint(json, "stage_lanes", profile->stage_lanes);
        refit_json_uint(json, "slices", profile->slices);
        refit_json_uint(json, "batches", profile->batches);
        refit_json_end_object(json);
        cli_print_json(json);
        return CLI_EXIT_YES;
    }
    g_autofree char *lanes = cli_count(profile->stage_lanes, "stage lane");
    g_autofree char *slices = cli_count(profile->slices, "slice");
    g_autofree char *batches = cli_count(profile->batches, "batch");
    cli_print("%s: software costs; %s, %s, %s\n", profile->name, lanes, slices, batches);
    print_quantities(quantities, G_N_ELEMENTS(quantities));
    return CLI_EXIT_YES;
}

/* ---- dispatch ---- */

static const struct {
    const char *kind;
    const char *store_kind; /* NULL: nothing shipped */
    int (*show)(Cli *cli, GError **error);
} kinds[] = {
    {"model", "models", show_model},           {"layout", "cases", cli_show_layout},
    {"topology", "topologies", show_topology}, {"profile", "profiles", show_profile},
    {"case", "cases", cli_show_case},          {"plan", NULL, cli_show_plan},
};

static void list_shipped(const Cli *cli, const char *store_kind) {
    g_auto(GStrv) names = refit_store_list(&cli->store, store_kind);

    if (cli->options.json) {
        RefitJson *json = refit_json_new(2);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "schema", "refit.names/1");
        refit_json_begin_array(json, store_kind);
        for (guint i = 0; names[i] != NULL; i++)
            refit_json_string(json, NULL, names[i]);
        refit_json_end_array(json);
        refit_json_end_object(json);
        cli_print_json(json);
        return;
    }
    for (guint i = 0; names[i] != NULL; i++)
        cli_print("%s\n", names[i]);
}

static gboolean asks_for_layout(const CliOptions *options) {
    return options->rank != NULL || options->tensor != NULL || options->output != NULL ||
           options->strategy != NULL;
}

int cli_show(Cli *cli, GError **error) {
    const char *wanted = cli->arguments[0];
    const char *names[G_N_ELEMENTS(kinds) + 1] = {NULL};

    for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
        names[i] = kinds[i].kind;
        if (!g_str_equal(kinds[i].kind, wanted))
            continue;
        if (asks_for_layout(&cli->options) &&
            (kinds[i].show != cli_show_layout || cli->arguments[1] == NULL)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "--rank, --tensor, --svg and --strategy go with `refit show layout CASE`");
            return CLI_EXIT_USAGE;
        }
        if (cli->arguments[1] != NULL)
            return kinds[i].show(cli, error);
        if (kinds[i].store_kind == NULL) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "no plans are shipped; name a file written by `refit plan -o FILE`");
            return CLI_EXIT_USAGE;
        }
        list_shipped(cli, kinds[i].store_kind);
        return CLI_EXIT_YES;
    }
    const char *nearest = refit_nearest_name(wanted, names);
    g_autofree char *known = g_strjoinv(", ", (char **)names);
    g_autofree char *excerpt = refit_error_excerpt(wanted);
    g_autofree char *hint = nearest != NULL ? g_strdup_printf("did you mean \"%s\"?", nearest)
                                            : g_strdup_printf("known: %s", known);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "cannot show \"%s\"; %s", excerpt, hint);
    return CLI_EXIT_USAGE;
}
