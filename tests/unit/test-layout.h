#pragma once

/* What the tests of layouts share: reading a side, and who holds what in one line. */

#include "lib/refit-disk.h"
#include "model/layout/refit-layout.h"

#include <string.h>

#define N_AVAILABLE 512

#define LIST                                                                                       \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: w, shape: [8, 4]}\n"                                                               \
    "  - {name: b, shape: [6]}\n"                                                                  \
    "  - {name: s, shape: []}\n"

static inline RefitModel *make_model(const char *body) {
    g_autofree char *text = g_strconcat("schema: refit.model/1\nname: m\n", body, NULL);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "m.yaml", &error);

    g_assert_no_error(error);
    RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16,
                                 .mtp = strstr(body, "mtp: true") != NULL};
    RefitModel *model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    return model;
}

static inline RefitLayout *parse(const char *model_body, const char *side, GError **error) {
    g_autofree char *text = g_strconcat("train: ", side, NULL);
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "c.yaml", error);

    g_assert_nonnull(doc);
    refit_doc_use_files(doc, &refit_disk);
    g_autoptr(RefitModel) model = make_model(model_body);
    return refit_layout_parse(refit_node_get(refit_doc_root(doc), "train"), "train", model, 4,
                              N_AVAILABLE, error);
}

static inline RefitLayout *make(const char *model_body, const char *side) {
    g_autoptr(GError) error = NULL;
    RefitLayout *layout = parse(model_body, side, &error);

    g_assert_no_error(error);
    g_assert_nonnull(layout);
    return layout;
}

/* A side of a shipped model, MTP layers included, on GPUs 0 to n_gpus - 1. */
static inline RefitLayout *make_shipped(const char *model_name, const char *side, guint n_gpus) {
    g_autofree char *path =
        g_strdup_printf("%s/layouts/models/%s.yaml", REFIT_SOURCE_DATA_DIR, model_name);
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) model_doc = refit_doc_load(&refit_disk, path, &error);
    g_assert_no_error(error);
    g_autoptr(RefitDoc) side_doc = refit_doc_parse(side, strlen(side), "side", &error);
    g_assert_no_error(error);
    g_autoptr(RefitModel) model = refit_model_parse(refit_doc_root(model_doc), &options, &error);
    g_assert_no_error(error);
    RefitLayout *layout =
        refit_layout_parse(refit_doc_root(side_doc), "side", model, 0, n_gpus, &error);
    g_assert_no_error(error);
    return layout;
}

/* `message` may end in "*" where the words are those of the YAML reader or of the geometry. */
static inline void assert_refused_as(const char *model_body, const char *side, RefitError code,
                                     const char *message) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitLayout) layout = parse(model_body, side, &error);

    g_assert_null(layout);
    g_assert_error(error, REFIT_ERROR, (int)code);
    if (!g_pattern_match_simple(message, error->message))
        g_assert_cmpstr(error->message, ==, message);
}

static inline void assert_refused(const char *model_body, const char *side, const char *message) {
    assert_refused_as(model_body, side, REFIT_ERROR_INVALID, message);
}

static inline guint find(const RefitLayout *layout, const char *name) {
    const RefitModel *model = refit_layout_model(layout);

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        if (g_str_equal(refit_model_tensor(model, i)->name, name))
            return i;
    }
    g_error("no tensor %s", name);
}

static inline const RefitSharding *sharding_of(const RefitLayout *layout, const char *name) {
    return refit_layout_sharding(layout, find(layout, name));
}

static inline RefitHolding *holding_of(const RefitLayout *layout, guint index) {
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), index);
    g_autoptr(GError) error = NULL;
    RefitHolding *holding = refit_holding_new(refit_layout_sharding(layout, index), tensor->n_dims,
                                              tensor->shape, &error);

    g_assert_no_error(error);
    return holding;
}

/* `expected`: "ranks region; ranks region", pieces in the order of the holding. */
static inline void assert_held(const RefitLayout *layout, const char *name, const char *expected) {
    g_autoptr(RefitHolding) holding = holding_of(layout, find(layout, name));
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < holding->n_pieces; i++) {
        const RefitPiece *piece = &holding->pieces[i];
        g_autofree char *region = refit_region_to_string(&piece->region);

        g_string_append(text, i > 0 ? "; " : "");
        for (guint j = 0; j < piece->n_ranks; j++)
            g_string_append_printf(text, "%s%u", j > 0 ? "," : "", piece->ranks[j]);
        g_string_append_printf(text, " %s", region);
    }
    g_assert_cmpstr(text->str, ==, expected);
}
