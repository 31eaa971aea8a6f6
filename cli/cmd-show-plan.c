/*
 * `refit show plan FILE`: what a plan file says of itself and its totals, and what each stage
 * moves, added up from its messages. The document is read as such and no plan is rebuilt from it:
 * nothing here proves that the plan delivers what is needed. Cost: linear in the file.
 */

#include "cli/cli-show.h"
#include "lib/refit-disk.h"

#include <jansson.h>

G_DEFINE_AUTOPTR_CLEANUP_FUNC(json_t, json_decref)

#define SCHEMA "refit.plan/1"
#define MAX_BYTES (G_GUINT64_CONSTANT(16) << 30)

/* Columns of a message row that are read here. */
enum { MESSAGE_STAGE = 2, MESSAGE_LINK = 5, MESSAGE_BYTES = 7, MESSAGE_COLUMNS = 10 };

typedef struct {
    const char *name; /* of the document */
    guint64 messages;
    guint64 bytes[REFIT_N_LINKS];
} StageSum;

typedef struct {
    const char *case_name, *model, *strategy, *digest; /* of the document */
    guint64 ranks, steps, needed_bytes, logical_bytes;
    guint64 link_bytes[REFIT_N_LINKS];
    guint64 transfers, messages, classes, batches;
    GArray *stages; /* StageSum */
} Summary;

static gboolean fail(GError **error, const char *path, const char *what) {
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "%s: %s; write a plan with `refit plan -o`", path, what);
    return FALSE;
}

static json_t *load(const char *path, GError **error) {
    g_autoptr(GBytes) bytes = refit_files_read(&refit_disk, path, MAX_BYTES, error);
    gsize length;
    json_error_t json_error;

    if (bytes == NULL)
        return NULL;
    const char *text = g_bytes_get_data(bytes, &length);
    g_autoptr(json_t) plan =
        json_loadb(length > 0 ? text : "", length, JSON_REJECT_DUPLICATES, &json_error);
    if (plan == NULL) {
        g_autofree char *excerpt = refit_error_excerpt(json_error.text);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE, "%s:%d:%d: not JSON: %s", path,
                    MAX(json_error.line, 1), MAX(json_error.column, 1), excerpt);
        return NULL;
    }
    if (g_strcmp0(json_string_value(json_object_get(plan, "schema")), SCHEMA) != 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s:1:1: not a plan of schema " SCHEMA "; write one with `refit plan -o`",
                    path);
        return NULL;
    }
    return g_steal_pointer(&plan);
}

static gboolean read_string(json_t *plan, const char *path, const char *key, const char **value_out,
                            GError **error) {
    const char *value = json_string_value(json_object_get(plan, key));

    if (value == NULL) {
        g_autofree char *what = g_strdup_printf("\"%s\" is not a text", key);
        return fail(error, path, what);
    }
    *value_out = value;
    return TRUE;
}

static gboolean read_uint(json_t *object, const char *path, const char *key, guint64 *value_out,
                          GError **error) {
    json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        g_autofree char *what = g_strdup_printf("\"%s\" is not a count", key);
        return fail(error, path, what);
    }
    *value_out = (guint64)json_integer_value(value);
    return TRUE;
}

static gboolean read_length(json_t *plan, const char *path, const char *key, guint64 *value_out,
                            GError **error) {
    json_t *list = json_object_get(plan, key);

    if (!json_is_array(list)) {
        g_autofree char *what = g_strdup_printf("\"%s\" is not a list", key);
        return fail(error, path, what);
    }
    *value_out = json_array_size(list);
    return TRUE;
}

static gboolean add_message(Summary *summary, json_t *row) {
    json_t *stage = json_array_get(row, MESSAGE_STAGE);
    json_t *link = json_array_get(row, MESSAGE_LINK);
    json_t *bytes = json_array_get(row, MESSAGE_BYTES);
    json_int_t stage_number = json_integer_value(stage), link_number = json_integer_value(link);

    if (json_array_size(row) != MESSAGE_COLUMNS || !json_is_integer(stage) ||
        !json_is_integer(link) || !json_is_integer(bytes) || stage_number < 0 ||
        stage_number >= (json_int_t)summary->stages->len || link_number < 0 ||
        link_number >= REFIT_N_LINKS || json_integer_value(bytes) < 0)
        return FALSE;
    StageSum *sum = &g_array_index(summary->stages, StageSum, (guint)stage_number);
    sum->messages++;
    sum->bytes[link_number] += (guint64)json_integer_value(bytes);
    return TRUE;
}

/* `summary_out->stages` is the caller's to free, also on failure. */
static gboolean summarize(json_t *plan, const char *path, Summary *summary_out, GError **error) {
    json_t *links = json_object_get(plan, "link_bytes"), *item;
    guint64 n_stages;
    size_t i;

    if (!read_string(plan, path, "case", &summary_out->case_name, error) ||
        !read_string(plan, path, "model", &summary_out->model, error) ||
        !read_string(plan, path, "strategy", &summary_out->strategy, error) ||
        !read_string(plan, path, "digest", &summary_out->digest, error) ||
        !read_uint(plan, path, "ranks", &summary_out->ranks, error) ||
        !read_uint(plan, path, "steps", &summary_out->steps, error) ||
        !read_uint(plan, path, "needed_bytes", &summary_out->needed_bytes, error) ||
        !read_uint(plan, path, "logical_bytes", &summary_out->logical_bytes, error) ||
        !read_length(plan, path, "classes", &summary_out->classes, error) ||
        !read_length(plan, path, "batches", &summary_out->batches, error) ||
        !read_length(plan, path, "transfers", &summary_out->transfers, error) ||
        !read_length(plan, path, "messages", &summary_out->messages, error) ||
        !read_length(plan, path, "stages", &n_stages, error))
        return FALSE;
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        if (!read_uint(links, path, refit_link_name((RefitLink)link),
                       &summary_out->link_bytes[link], error))
            return FALSE;
    json_array_foreach(json_object_get(plan, "stages"), i, item) {
        StageSum sum = {.messages = 0};

        if (!read_string(item, path, "name", &sum.name, error))
            return FALSE;
        g_array_append_val(summary_out->stages, sum);
    }
    json_array_foreach(json_object_get(plan, "messages"), i, item) {
        if (!add_message(summary_out, item)) {
            g_autofree char *what =
                g_strdup_printf("messages[%" G_GSIZE_FORMAT "] is not a row of the plan's", i);
            return fail(error, path, what);
        }
    }
    return TRUE;
}

static void print_json(const Summary *summary) {
    RefitJson *json = refit_json_new(2);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.plan-file-summary/1");
    refit_json_string(json, "case", summary->case_name);
    refit_json_string(json, "model", summary->model);
    refit_json_string(json, "strategy", summary->strategy);
    refit_json_string(json, "digest", summary->digest);
    refit_json_uint(json, "ranks", summary->ranks);
    refit_json_uint(json, "steps", summary->steps);
    refit_json_uint(json, "batches", summary->batches);
    refit_json_uint(json, "classes", summary->classes);
    refit_json_uint(json, "class_transfers", summary->transfers);
    refit_json_uint(json, "messages", summary->messages);
    refit_json_uint(json, "network_bytes", summary->link_bytes[REFIT_LINK_NETWORK]);
    refit_json_uint(json, "nvlink_bytes", summary->link_bytes[REFIT_LINK_NVLINK]);
    refit_json_uint(json, "local_bytes", summary->link_bytes[REFIT_LINK_LOCAL]);
    refit_json_uint(json, "needed_bytes", summary->needed_bytes);
    refit_json_uint(json, "logical_bytes", summary->logical_bytes);
    refit_json_begin_array(json, "stages");
    for (guint i = 0; i < summary->stages->len; i++) {
        const StageSum *sum = &g_array_index(summary->stages, StageSum, i);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "name", sum->name);
        refit_json_uint(json, "messages", sum->messages);
        refit_json_uint(json, "network_bytes", sum->bytes[REFIT_LINK_NETWORK]);
        refit_json_uint(json, "nvlink_bytes", sum->bytes[REFIT_LINK_NVLINK]);
        refit_json_uint(json, "local_bytes", sum->bytes[REFIT_LINK_LOCAL]);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
    refit_json_end_object(json);
    cli_print_json(json);
}

static void print_text(const Summary *summary) {
    g_autoptr(CliTable) table = cli_table_new();
    g_autofree char *network = refit_format_bytes(summary->link_bytes[REFIT_LINK_NETWORK]);
    g_autofree char *needed = refit_format_bytes(summary->needed_bytes);
    g_autofree char *gpus = cli_count(summary->ranks, "GPU");
    g_autofree char *transfers = cli_count(summary->transfers, "transfer");
    g_autofree char *classes = cli_count(summary->classes, "class");
    g_autofree char *messages = cli_count(summary->messages, "message");
    g_autofree char *steps = cli_count(summary->steps, "step");
    g_autofree char *batches = cli_count(summary->batches, "batch");

    cli_print("%s: %s moves %s over the network for %s needed\n", summary->case_name,
              summary->strategy, network, needed);
    cli_print_labelled("model", "%s", summary->model);
    cli_print_labelled("on", "%s", gpus);
    cli_print_labelled("plan", "%s for %s in %s, %s, %s", transfers, classes, messages, steps,
                       batches);
    cli_print_labelled("digest", "%s", summary->digest);
    cli_print("\n");
    cli_table_add_column(table, "stage", "", CLI_LEFT);
    cli_table_add_column(table, "messages", "", CLI_RIGHT);
    cli_table_add_measure(table, "network", CLI_BYTES);
    cli_table_add_measure(table, "NVLink", CLI_BYTES);
    cli_table_add_measure(table, "local", CLI_BYTES);
    for (guint i = 0; i < summary->stages->len; i++) {
        const StageSum *sum = &g_array_index(summary->stages, StageSum, i);

        cli_table_add_cell(table, g_strdup(sum->name));
        cli_table_add_cell(table, g_strdup_printf("%" G_GUINT64_FORMAT, sum->messages));
        cli_table_add_number(table, (double)sum->bytes[REFIT_LINK_NETWORK]);
        cli_table_add_number(table, (double)sum->bytes[REFIT_LINK_NVLINK]);
        cli_table_add_number(table, (double)sum->bytes[REFIT_LINK_LOCAL]);
    }
    cli_print_table(table);
}

int cli_show_plan(Cli *cli, GError **error) {
    const char *path = cli->arguments[1];
    g_autoptr(json_t) plan = NULL;
    g_autoptr(GArray) stages = g_array_new(FALSE, FALSE, sizeof(StageSum));
    Summary summary = {.stages = stages};

    if (cli->options.set != NULL) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "--set does not change a plan file; give it to `refit plan`");
        return CLI_EXIT_USAGE;
    }
    plan = load(path, error);
    if (plan == NULL || !summarize(plan, path, &summary, error))
        return CLI_EXIT_NO;
    if (cli->options.json)
        print_json(&summary);
    else
        print_text(&summary);
    return CLI_EXIT_YES;
}
