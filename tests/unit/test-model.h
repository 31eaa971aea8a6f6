#pragma once

/* What the tests of models share: parsing a text, and descriptions of tensors in one line. */

#include "lib/refit-disk.h"
#include "model/tensors/refit-model.h"

#include <string.h>

#define BF16 REFIT_DTYPE_BF16

/* Start of a model file: lines 1 to 3. */
#define HEAD(family) "schema: refit.model/1\nname: m\nfamily: " family "\n"

static inline RefitModel *parse(const char *text, gboolean mtp, GError **error) {
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "m.yaml", error);
    if (doc == NULL) {
        return NULL;
    }
    const RefitModelOptions options = {.dtype = BF16, .mtp = mtp};
    return refit_model_parse(refit_doc_root(doc), &options, error);
}

static inline RefitModel *parse_ok(const char *text, gboolean mtp) {
    g_autoptr(GError) error = NULL;
    RefitModel *model = parse(text, mtp, &error);
    g_assert_no_error(error);
    g_assert_nonnull(model);
    return model;
}

/* The message begins with `place` and contains `part`. */
static inline void refuse(const char *text, RefitError code, const char *place, const char *part) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) model = parse(text, TRUE, &error);
    g_assert_null(model);
    g_assert_error(error, REFIT_ERROR, (gint)code);
    if (!g_str_has_prefix(error->message, place) || strstr(error->message, part) == NULL) {
        g_error("expected \"%s...%s...\", got \"%s\"", place, part, error->message);
    }
}

/* "NAME AxB DTYPE role layer expert mtp" */
static inline char *describe(const RefitTensor *tensor) {
    GString *text = g_string_new(tensor->name);
    for (guint i = 0; i < tensor->n_dims; i++) {
        g_string_append_printf(text, "%c%" G_GUINT64_FORMAT, i == 0 ? ' ' : 'x', tensor->shape[i]);
    }
    g_string_append_printf(text, " %s %s %d %d%s", refit_dtype_name(tensor->dtype),
                           refit_role_name(tensor->role), tensor->layer, tensor->expert,
                           tensor->mtp ? " mtp" : "");
    return g_string_free(text, FALSE);
}

static inline void expect_at(const RefitModel *model, guint index, const char *expected) {
    g_autofree char *text = describe(refit_model_tensor(model, index));
    g_assert_cmpstr(text, ==, expected);
}

/* A shipped model. */
static inline RefitModel *load(const char *name, RefitDtype dtype, gboolean mtp) {
    g_autofree char *path =
        g_strdup_printf("%s/layouts/models/%s.yaml", REFIT_SOURCE_DATA_DIR, name);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_load(&refit_disk, path, &error);
    g_assert_no_error(error);
    const RefitModelOptions options = {.dtype = dtype, .mtp = mtp};
    RefitModel *model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(refit_model_name(model), ==, name);
    return model;
}

static inline const RefitTensor *find(const RefitModel *model, const char *name) {
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        if (strcmp(refit_model_tensor(model, i)->name, name) == 0) {
            return refit_model_tensor(model, i);
        }
    }
    return NULL;
}

static inline void expect(const RefitModel *model, const char *expected) {
    g_autofree char *name = g_strndup(expected, strcspn(expected, " "));
    const RefitTensor *tensor = find(model, name);
    g_assert_nonnull(tensor);
    g_autofree char *text = describe(tensor);
    g_assert_cmpstr(text, ==, expected);
}
