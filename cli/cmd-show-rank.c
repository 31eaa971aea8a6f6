/*
 * `refit show layout CASE --rank R`: the parameters of one rank and where logical tensors lie in
 * them. Layers repeat, so without --tensor parameters that differ only in the numbers of their
 * names are one line; with it each one is listed with its views.
 */

#include "cli/cli-show.h"
#include "model/layout/refit-view.h"

#include <string.h>

#define MAX_LISTED 40   /* parameters with their views, in text */
#define MAX_INTERVALS 3 /* of a dim, in text */

typedef struct {
    const RefitLayout *layout;
    RefitRankViews *views;
    GPatternSpec *pattern;  /* NULL: everything */
    guint64 bytes, padding; /* of all parameters */
} Holding;

/* ---- what is asked for ---- */

static const RefitTensor *tensor_of(const Holding *holding, const RefitView *view) {
    return refit_model_tensor(refit_layout_model(holding->layout), view->tensor);
}

/* A view is shown when its tensor's name or that of its parameter matches. */
static gboolean view_matches(const Holding *holding, const RefitView *view) {
    return holding->pattern == NULL ||
           g_pattern_spec_match_string(holding->pattern, tensor_of(holding, view)->name) ||
           g_pattern_spec_match_string(holding->pattern,
                                       holding->views->parameters[view->parameter].name);
}

/* Per parameter the positions of the views to show; NULL where none matches. */
static GArray **collect_views(const Holding *holding) {
    GArray **shown = g_new0(GArray *, holding->views->n_parameters + 1);

    for (guint v = 0; v < holding->views->n_views; v++) {
        const RefitView *view = &holding->views->views[v];

        if (!view_matches(holding, view))
            continue;
        if (shown[view->parameter] == NULL)
            shown[view->parameter] = g_array_new(FALSE, FALSE, sizeof(guint));
        g_array_append_val(shown[view->parameter], v);
    }
    return shown;
}

static void free_views(const Holding *holding, GArray **shown) {
    for (guint p = 0; p < holding->views->n_parameters; p++) {
        if (shown[p] != NULL)
            g_array_unref(shown[p]);
    }
    g_free(shown);
}

/* All of it for a parameter of nothing but padding, whatever the pattern. */
static gboolean is_shown(const Holding *holding, GArray **shown, guint parameter) {
    return shown[parameter] != NULL ||
           (holding->views->parameters[parameter].n_tensors == 0 &&
            (holding->pattern == NULL ||
             g_pattern_spec_match_string(holding->pattern,
                                         holding->views->parameters[parameter].name)));
}

static gboolean measure(Holding *holding, GError **error) {
    for (guint p = 0; p < holding->views->n_parameters; p++)
        holding->bytes += holding->views->parameters[p].bytes;
    holding->padding = holding->bytes;
    for (guint v = 0; v < holding->views->n_views; v++) {
        const RefitView *view = &holding->views->views[v];
        guint64 bytes;

        if (!refit_dtype_bytes(tensor_of(holding, view)->dtype, refit_region_volume(&view->region),
                               &bytes, error))
            return FALSE;
        holding->padding -= bytes;
    }
    return TRUE;
}

/* ---- text ---- */

static char *shape_text(guint n_dims, const guint64 *shape) {
    GString *text = g_string_new("[");

    for (guint d = 0; d < n_dims; d++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, d > 0 ? ", " : "", shape[d]);
    return g_string_free(g_string_append(text, "]"), FALSE);
}

/* "[2:4@6, 0:4]": indices, and where they lie when that is not their first place. */
static char *region_text(const RefitRegion *region) {
    GString *text = g_string_new("[");

    for (guint d = 0; d < region->n_dims; d++) {
        const RefitIntervalList *list = region->dims[d];

        g_string_append(text, d > 0 ? ", " : "");
        for (guint i = 0; i < MIN(list->n, MAX_INTERVALS); i++) {
            const RefitInterval *item = &list->items[i];

            g_string_append_printf(text, "%s%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT,
                                   i > 0 ? "+" : "", item->lo, item->hi);
            if (item->at > 0)
                g_string_append_printf(text, "@%" G_GUINT64_FORMAT, item->at);
        }
        if (list->n > MAX_INTERVALS)
            g_string_append_printf(text, "+%u more", list->n - MAX_INTERVALS);
    }
    return g_string_free(g_string_append(text, "]"), FALSE);
}

static void print_parameter(const Holding *holding, guint index, const GArray *shown) {
    const RefitParameter *parameter = &holding->views->parameters[index];
    g_autoptr(CliTable) table = cli_table_new();
    g_autofree char *shape = shape_text(parameter->n_dims, parameter->shape);
    g_autofree char *bytes = refit_format_bytes(parameter->bytes);

    cli_print("\n%s\n  %s %s, %s%s\n", parameter->name, shape, refit_dtype_name(parameter->dtype),
              bytes, shown == NULL ? ", padding" : "");
    if (shown == NULL)
        return;
    cli_table_add_column(table, "  held", "", CLI_LEFT);
    cli_table_add_column(table, "offset", "", CLI_RIGHT);
    cli_table_add_column(table, "strides", "", CLI_LEFT);
    cli_table_add_column(table, "of", "", CLI_LEFT);
    for (guint i = 0; i < shown->len; i++) {
        const RefitView *view = &holding->views->views[g_array_index(shown, guint, i)];
        g_autofree char *region = region_text(&view->region);

        cli_table_add_cell(table, g_strconcat("  ", region, NULL));
        cli_table_add_cell(table, g_strdup_printf("%" G_GUINT64_FORMAT, view->offset));
        cli_table_add_cell(table, shape_text(view->region.n_dims, view->stride));
        cli_table_add_cell(table, g_strdup(tensor_of(holding, view)->name));
    }
    cli_print_table(table);
}

static void print_views(const Holding *holding) {
    GArray **shown = collect_views(holding);
    guint n = 0;

    for (guint p = 0; p < holding->views->n_parameters; p++) {
        if (!is_shown(holding, shown, p))
            continue;
        if (n++ < MAX_LISTED)
            print_parameter(holding, p, shown[p]);
    }
    if (n > MAX_LISTED)
        cli_print("\nand %u more parameters; narrow --tensor, or see all with --json\n",
                  n - MAX_LISTED);
    else if (n > 0)
        cli_print("\nheld: indices of the tensor, @ where the first lies along that dim of the\n"
                  "parameter when not at 0; offset and strides: in elements\n");
    free_views(holding, shown);
}

/* The name with '*' for each number that is a word of it or ends it. */
static char *name_class(const char *name) {
    GString *text = g_string_new(NULL);
    const char *at = name;

    while (*at != '\0') {
        const char *end = at;

        while (g_ascii_isdigit(*end))
            end++;
        if (end > at && (*end == '\0' || (*end == '.' && (at == name || at[-1] == '.')))) {
            g_string_append_c(text, '*');
            at = end;
        } else {
            end = MAX(end, at + 1);
            g_string_append_len(text, at, end - at);
            at = end;
        }
    }
    return g_string_free(text, FALSE);
}

typedef struct {
    const RefitParameter *example;
    char *name;
    guint n;
    guint64 bytes;
} Class;

static void class_clear(gpointer item) {
    g_free(((Class *)item)->name);
}

static void print_classes(const Holding *holding) {
    g_autoptr(GArray) classes = g_array_new(FALSE, FALSE, sizeof(Class));
    g_autoptr(GHashTable) known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(CliTable) table = cli_table_new();

    g_array_set_clear_func(classes, class_clear);
    for (guint p = 0; p < holding->views->n_parameters; p++) {
        const RefitParameter *parameter = &holding->views->parameters[p];
        g_autofree char *name = name_class(parameter->name);
        g_autofree char *shape = shape_text(parameter->n_dims, parameter->shape);
        char *key = g_strjoin(" ", name, shape, refit_dtype_name(parameter->dtype), NULL);
        guint at = GPOINTER_TO_UINT(g_hash_table_lookup(known, key));

        if (at == 0) {
            Class class = {.example = parameter, .name = g_steal_pointer(&name)};

            g_array_append_val(classes, class);
            at = classes->len;
            g_hash_table_insert(known, key, GUINT_TO_POINTER(at));
        } else {
            g_free(key);
        }
        g_array_index(classes, Class, at - 1).n++;
        g_array_index(classes, Class, at - 1).bytes += parameter->bytes;
    }
    cli_table_add_column(table, "number", "", CLI_RIGHT);
    cli_table_add_column(table, "shape", "", CLI_LEFT);
    cli_table_add_column(table, "type", "", CLI_LEFT);
    cli_table_add_measure(table, "size", CLI_BYTES);
    cli_table_add_column(table, "parameter", "", CLI_LEFT);
    for (guint i = 0; i < classes->len; i++) {
        Class *class = &g_array_index(classes, Class, i);

        cli_table_add_cell(table, g_strdup_printf("%u", class->n));
        cli_table_add_cell(table, shape_text(class->example->n_dims, class->example->shape));
        cli_table_add_cell(table, g_strdup(refit_dtype_name(class->example->dtype)));
        cli_table_add_number(table, (double)class->bytes);
        cli_table_add_cell(table, g_steal_pointer(&class->name));
    }
    cli_print("\n");
    cli_print_table(table);
    cli_print("\n--tensor PATTERN shows what lies where in parameters, such as --tensor '*.0.*'\n");
}

static void print_text(const Holding *holding) {
    g_autofree char *bytes = refit_format_bytes(holding->bytes);
    g_autofree char *parameters = cli_count(holding->views->n_parameters, "parameter");

    cli_print("rank %u holds %s in %s: %s, %s\n", holding->views->rank, bytes, parameters,
              refit_layout_side(holding->layout), refit_layout_summary(holding->layout));
    if (holding->padding > 0) {
        g_autofree char *padding = refit_format_bytes(holding->padding);

        cli_print_labelled("padding", "%s of it belong to no tensor", padding);
    }
    if (holding->pattern != NULL)
        print_views(holding);
    else if (holding->views->n_parameters > 0)
        print_classes(holding);
}

/* ---- JSON ---- */

static void json_numbers(RefitJson *json, const char *key, guint n, const guint64 *numbers) {
    refit_json_begin_row(json, key);
    for (guint i = 0; i < n; i++)
        refit_json_uint(json, NULL, numbers[i]);
    refit_json_end_row(json);
}

static void json_view(RefitJson *json, const Holding *holding, const RefitView *view) {
    refit_json_begin_object(json, NULL);
    refit_json_string(json, "tensor", tensor_of(holding, view)->name);
    refit_json_begin_array(json, "region");
    for (guint d = 0; d < view->region.n_dims; d++) {
        const RefitIntervalList *list = view->region.dims[d];

        refit_json_begin_row(json, NULL);
        for (guint i = 0; i < list->n; i++) {
            refit_json_uint(json, NULL, list->items[i].lo);
            refit_json_uint(json, NULL, list->items[i].hi);
            refit_json_uint(json, NULL, list->items[i].at);
        }
        refit_json_end_row(json);
    }
    refit_json_end_array(json);
    refit_json_uint(json, "offset", view->offset);
    json_numbers(json, "strides", view->region.n_dims, view->stride);
    refit_json_end_object(json);
}

static void print_json(RefitJson *json, const Holding *holding) {
    GArray **shown = collect_views(holding);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "side", refit_layout_side(holding->layout));
    refit_json_string(json, "framework", refit_layout_framework(holding->layout));
    refit_json_string(json, "summary", refit_layout_summary(holding->layout));
    refit_json_uint(json, "bytes", holding->bytes);
    refit_json_uint(json, "padding_bytes", holding->padding);
    refit_json_begin_array(json, "parameters");
    for (guint p = 0; p < holding->views->n_parameters; p++) {
        const RefitParameter *parameter = &holding->views->parameters[p];

        if (!is_shown(holding, shown, p))
            continue;
        refit_json_begin_object(json, NULL);
        refit_json_string(json, "name", parameter->name);
        refit_json_string(json, "dtype", refit_dtype_name(parameter->dtype));
        json_numbers(json, "shape", parameter->n_dims, parameter->shape);
        refit_json_uint(json, "bytes", parameter->bytes);
        refit_json_begin_array(json, "views");
        for (guint i = 0; shown[p] != NULL && i < shown[p]->len; i++)
            json_view(json, holding, &holding->views->views[g_array_index(shown[p], guint, i)]);
        refit_json_end_array(json);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
    refit_json_end_object(json);
    free_views(holding, shown);
}

/* ---- the command ---- */

/* Reads --rank; on error the command line is to blame. */
static gboolean read_rank(const Cli *cli, const RefitCase *refit_case, guint *rank_out,
                          GError **error) {
    guint n_gpus = refit_topology_n_gpus(refit_case->topology);
    guint64 rank;

    if (!g_ascii_string_to_unsigned(cli->options.rank, 10, 0, G_MAXUINT32, &rank, NULL)) {
        g_autofree char *excerpt = refit_error_excerpt(cli->options.rank);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "--rank \"%s\" is not a number; name one of the %u GPUs, from 0", excerpt,
                    n_gpus);
        return FALSE;
    }
    *rank_out = (guint)rank;
    if (refit_layout_has_rank(refit_case->source, *rank_out))
        return TRUE;
    for (guint d = 0; d < refit_case->n_destinations; d++) {
        if (refit_layout_has_rank(refit_case->destinations[d], *rank_out))
            return TRUE;
    }
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "rank %" G_GUINT64_FORMAT " is on no side of %s; `refit show layout` lists the "
                "sides and their ranks",
                rank, refit_case->name);
    return FALSE;
}

/* What a side holds, in the form it holds it in. */
static const RefitLayout *layout_of(const RefitCase *refit_case, guint side) {
    if (side == 0)
        return refit_case->source_held != NULL ? refit_case->source_held : refit_case->source;
    if (refit_case->destinations_held != NULL && refit_case->destinations_held[side - 1] != NULL)
        return refit_case->destinations_held[side - 1];
    return refit_case->destinations[side - 1];
}

static void holding_clear(gpointer item) {
    Holding *holding = item;

    refit_rank_views_free(holding->views);
    g_clear_pointer(&holding->pattern, g_pattern_spec_free);
}

/* Adds what the rank holds on a side; *found_out grows by the parameters to show. */
static gboolean add_side(const Cli *cli, const RefitLayout *layout, guint rank, GArray *holdings,
                         guint *found_out, GError **error) {
    Holding holding = {.layout = layout, .views = refit_rank_views_new(layout, rank, error)};

    if (holding.views == NULL)
        return FALSE;
    if (cli->options.tensor != NULL)
        holding.pattern = g_pattern_spec_new(cli->options.tensor);
    g_array_append_val(holdings, holding);
    GArray **shown = collect_views(&holding);
    for (guint p = 0; p < holding.views->n_parameters; p++)
        *found_out += is_shown(&holding, shown, p) ? 1 : 0;
    free_views(&holding, shown);
    return measure(&g_array_index(holdings, Holding, holdings->len - 1), error);
}

int cli_show_rank(Cli *cli, const RefitCase *refit_case, GError **error) {
    g_autoptr(GArray) holdings = g_array_new(FALSE, FALSE, sizeof(Holding));
    guint rank, found = 0;

    if (!read_rank(cli, refit_case, &rank, error))
        return CLI_EXIT_USAGE;
    g_array_set_clear_func(holdings, holding_clear);
    for (guint side = 0; side <= refit_case->n_destinations; side++) {
        const RefitLayout *layout = layout_of(refit_case, side);

        if (refit_layout_has_rank(layout, rank) &&
            !add_side(cli, layout, rank, holdings, &found, error))
            return CLI_EXIT_NO;
    }
    if (found == 0 && cli->options.tensor != NULL) {
        g_autofree char *excerpt = refit_error_excerpt(cli->options.tensor);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "rank %u has no tensor or parameter \"%s\"; leave --tensor out to see their "
                    "names",
                    rank, excerpt);
        return CLI_EXIT_USAGE;
    }
    if (!cli->options.json) {
        for (guint i = 0; i < holdings->len; i++) {
            if (i > 0)
                cli_print("\n");
            print_text(&g_array_index(holdings, Holding, i));
        }
        return CLI_EXIT_YES;
    }
    RefitJson *json = refit_json_new(2);
    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.rank-layout/1");
    refit_json_string(json, "case", refit_case->name);
    refit_json_uint(json, "rank", rank);
    refit_json_begin_array(json, "sides");
    for (guint i = 0; i < holdings->len; i++)
        print_json(json, &g_array_index(holdings, Holding, i));
    refit_json_end_array(json);
    refit_json_end_object(json);
    cli_print_json(json);
    return CLI_EXIT_YES;
}
