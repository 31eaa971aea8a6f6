/*
 * A plan as JSON, schema refit.plan/1 (docs/formats.md). Tables are arrays of rows of numbers with
 * their column names beside them: a plan has up to millions of rows, and naming each number would
 * triple the file. Cost: linear in the plan.
 */

#include "model/plan/refit-plan.h"

#include <string.h>

/* ---- small parts ---- */

static void write_columns(RefitJson *json, const char *key, const char *const *names) {
    refit_json_begin_row(json, key);
    for (guint i = 0; names[i] != NULL; i++)
        refit_json_string(json, NULL, names[i]);
    refit_json_end_row(json);
}

static void write_row(RefitJson *json, const guint64 *values, guint n) {
    refit_json_begin_row(json, NULL);
    for (guint i = 0; i < n; i++)
        refit_json_uint(json, NULL, values[i]);
    refit_json_end_row(json);
}

#define WRITE_ROW(json, ...)                                                                       \
    write_row((json), (const guint64[]){__VA_ARGS__},                                              \
              sizeof((const guint64[]){__VA_ARGS__}) / sizeof(guint64))

static void write_links(RefitJson *json, const char *key, const guint64 *bytes) {
    refit_json_begin_object(json, key);
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        refit_json_uint(json, refit_link_name((RefitLink)link), bytes[link]);
    refit_json_end_object(json);
}

/* ---- sections ---- */

static void write_stages(RefitJson *json, const RefitPlan *plan) {
    refit_json_begin_array(json, "stages");
    for (guint i = 0; i < plan->n_stages; i++) {
        refit_json_begin_object(json, NULL);
        refit_json_string(json, "name", plan->stages[i].name);
        refit_json_uint(json, "slices", plan->stages[i].slices);
        refit_json_uint(json, "offsets", plan->stages[i].n_offsets);
        refit_json_uint(json, "track", plan->stages[i].track);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
}

static void write_batches(RefitJson *json, const RefitPlan *plan) {
    refit_json_begin_array(json, "batches");
    for (guint i = 0; i < plan->n_batches; i++) {
        refit_json_begin_object(json, NULL);
        refit_json_uint(json, "lane", plan->batches[i].lane);
        refit_json_uint(json, "buckets", plan->batches[i].buckets);
        refit_json_bool(json, "barrier", plan->batches[i].barrier);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
}

/* Members in the order they move, and rows that share them out among batches. */
static void write_members(RefitJson *json, const RefitPlan *plan, guint section) {
    const RefitProblem *problem = plan->problem;
    const RefitClass *klass = &problem->classes[plan->sections[section].class_index];
    const guint *order = plan->member_order + plan->member_offsets[section];
    refit_json_begin_row(json, "members");
    for (guint member = 0; member < klass->n_members; member++)
        refit_json_string(
            json, NULL,
            refit_model_tensor(problem->refit_case->model, klass->members[order[member]])->name);
    refit_json_end_row(json);
    refit_json_begin_array(json, "batches");
    for (guint run = plan->run_offsets[section]; run < plan->run_offsets[section + 1]; run++)
        WRITE_ROW(json, plan->batch_runs[run].batch, plan->batch_runs[run].count);
    refit_json_end_array(json);
}

/* Those of a class that is split. */
static void write_sections(RefitJson *json, const RefitPlan *plan, guint class_index) {
    refit_json_begin_array(json, "sections");
    for (guint s = plan->section_offsets[class_index]; s < plan->section_offsets[class_index + 1];
         s++) {
        g_autofree char *text = refit_region_to_string(&plan->sections[s].region);
        refit_json_begin_object(json, NULL);
        refit_json_string(json, "region", text);
        refit_json_uint(json, "bytes", plan->sections[s].bytes);
        write_members(json, plan, s);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
}

static void write_classes(RefitJson *json, const RefitPlan *plan) {
    const RefitProblem *problem = plan->problem;
    refit_json_begin_array(json, "classes");
    for (guint i = 0; i < problem->n_classes; i++) {
        const RefitClass *klass = &problem->classes[i];
        refit_json_begin_object(json, NULL);
        refit_json_begin_row(json, "shape");
        for (guint dim = 0; dim < klass->n_dims; dim++)
            refit_json_uint(json, NULL, klass->shape[dim]);
        refit_json_end_row(json);
        refit_json_string(json, "dtype", refit_dtype_name(klass->dtype));
        refit_json_uint(json, "bytes", klass->bytes);
        if (plan->section_offsets[i + 1] - plan->section_offsets[i] == 1)
            write_members(json, plan, plan->section_offsets[i]);
        else
            write_sections(json, plan, i);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
}

static void write_regions(RefitJson *json, const RefitPlan *plan) {
    refit_json_begin_array(json, "regions");
    for (guint i = 0; i < plan->n_regions; i++) {
        g_autofree char *text = refit_region_to_string(&plan->regions[i]);
        refit_json_string(json, NULL, text);
    }
    refit_json_end_array(json);
}

static void write_transfers(RefitJson *json, const RefitPlan *plan) {
    static const char *const columns[] = {"class", "region",  "src",  "dst", "stage",
                                          "link",  "landing", "deps", NULL};
    write_columns(json, "transfer_columns", columns);
    refit_json_begin_array(json, "transfers");
    for (guint i = 0; i < plan->n_transfers; i++) {
        const RefitTransfer *transfer = &plan->transfers[i];
        const guint64 head[] = {transfer->class_index, transfer->region, transfer->src,
                                transfer->dst,         transfer->stage,  transfer->link,
                                transfer->landing};
        refit_json_begin_row(json, NULL);
        for (guint column = 0; column < G_N_ELEMENTS(head); column++)
            refit_json_uint(json, NULL, head[column]);
        for (guint dep = 0; dep < transfer->n_deps; dep++)
            refit_json_uint(json, NULL, plan->deps[transfer->first_dep + dep]);
        refit_json_end_row(json);
    }
    refit_json_end_array(json);
}

static void write_messages(RefitJson *json, const RefitPlan *plan) {
    static const char *const columns[] = {"step",    "batch", "stage",    "src",      "dst", "link",
                                          "tensors", "bytes", "runs_src", "runs_dst", NULL};
    write_columns(json, "message_columns", columns);
    refit_json_begin_array(json, "messages");
    for (guint64 i = 0; i < plan->n_messages; i++) {
        const RefitMessage *message = &plan->messages[i];
        const RefitPair *pair = &plan->pairs[message->pair];
        WRITE_ROW(json, message->step, message->batch, pair->stage, pair->src, pair->dst,
                  pair->link, message->tensors, message->bytes, message->runs_src,
                  message->runs_dst);
    }
    refit_json_end_array(json);
}

static void write_obligations(RefitJson *json, const RefitPlan *plan) {
    refit_json_begin_array(json, "obligations");
    for (guint i = 0; i < plan->n_obligations; i++) {
        const RefitObligation *obligation = &plan->obligations[i];
        refit_json_begin_object(json, NULL);
        refit_json_uint(json, "class", obligation->class_index);
        refit_json_string(json, "landing", refit_landing_name(obligation->landing));
        refit_json_begin_row(json, "ranks");
        for (guint rank = 0; rank < obligation->n_ranks; rank++)
            refit_json_uint(json, NULL, obligation->ranks[rank]);
        refit_json_end_row(json);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
}

static void write_accounts(RefitJson *json, const RefitPlan *plan) {
    static const char *const columns[] = {
        "rank",       "local_in",    "nvlink_in",   "network_in",   "local_out",
        "nvlink_out", "network_out", "messages_in", "messages_out", NULL};
    static const RefitRankAccount idle;
    write_columns(json, "account_columns", columns);
    refit_json_begin_array(json, "accounts");
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++) {
        const RefitRankAccount *account = &plan->accounts[rank];
        if (memcmp(account, &idle, sizeof idle) == 0)
            continue;
        WRITE_ROW(json, rank, account->in[REFIT_LINK_LOCAL], account->in[REFIT_LINK_NVLINK],
                  account->in[REFIT_LINK_NETWORK], account->out[REFIT_LINK_LOCAL],
                  account->out[REFIT_LINK_NVLINK], account->out[REFIT_LINK_NETWORK],
                  account->messages_in, account->messages_out);
    }
    refit_json_end_array(json);
}

char *refit_plan_to_json(const RefitPlan *plan, gsize *length_out) {
    g_return_val_if_fail(plan != NULL, NULL);
    RefitJson *json = refit_json_new(1);
    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.plan/1");
    refit_json_string(json, "digest", plan->digest);
    refit_json_string(json, "strategy", plan->strategy);
    refit_json_string(json, "case", plan->problem->refit_case->name);
    refit_json_string(json, "model", refit_model_name(plan->problem->refit_case->model));
    refit_json_uint(json, "ranks", plan->problem->n_ranks);
    refit_json_uint(json, "steps", plan->n_steps);
    refit_json_uint(json, "weight_bytes", plan->problem->weight_bytes);
    refit_json_uint(json, "needed_bytes", plan->problem->needed_bytes);
    refit_json_uint(json, "logical_bytes", plan->logical_bytes);
    write_links(json, "link_bytes", plan->link_bytes);
    write_stages(json, plan);
    write_batches(json, plan);
    write_classes(json, plan);
    write_regions(json, plan);
    write_transfers(json, plan);
    write_messages(json, plan);
    write_obligations(json, plan);
    write_accounts(json, plan);
    refit_json_end_object(json);
    return refit_json_finish(json, length_out);
}
