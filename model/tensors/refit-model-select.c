/*
 * Part of a model: the tensors that names choose, for a refit that moves only some.
 *
 * Scales go with what they scale, whatever their own names. What the whole model says of layers,
 * heads and experts stays, so that the part is cut as it would be in the whole. Cost: tensors times
 * patterns.
 */

#include "model/tensors/refit-model-private.h"

/* The patterns of `node`, a text or a list of texts; NULL on error. */
static GPtrArray *read_patterns(RefitNode *node, GError **error) {
    g_autoptr(GPtrArray) globs =
        g_ptr_array_new_with_free_func((GDestroyNotify)g_pattern_spec_free);
    gboolean is_list = refit_node_kind(node) == REFIT_NODE_SEQUENCE;
    guint n = is_list ? refit_node_size(node) : 1;
    for (guint i = 0; i < n; i++) {
        const char *text = NULL;
        if (!refit_node_string(is_list ? refit_node_at(node, i) : node, &text, error)) {
            return NULL;
        }
        g_ptr_array_add(globs, g_pattern_spec_new(text));
    }
    return g_steal_pointer(&globs);
}

/* Sets chosen[t] to `value` for each tensor that a pattern fits; a pattern must fit some. */
static gboolean choose(const RefitModel *model, RefitNode *node, guint8 *chosen, guint8 value,
                       GError **error) {
    g_autoptr(GPtrArray) globs = read_patterns(node, error);
    gboolean is_list = refit_node_kind(node) == REFIT_NODE_SEQUENCE;
    for (guint i = 0; globs != NULL && i < globs->len; i++) {
        guint n = 0;
        for (guint t = 0; t < refit_model_n_tensors(model); t++) {
            if (g_pattern_spec_match_string(g_ptr_array_index(globs, i),
                                            refit_model_tensor(model, t)->name)) {
                chosen[t] = value;
                n++;
            }
        }
        if (n == 0) {
            refit_node_error(is_list ? refit_node_at(node, i) : node, REFIT_ERROR_INVALID, error,
                             "fits no tensor of model %s; write names as refit show layout --rank "
                             "shows them, * for any text",
                             refit_model_name(model));
            return FALSE;
        }
    }
    return globs != NULL;
}

RefitModel *refit_model_select(RefitModel *model, RefitNode *only, RefitNode *except,
                               GError **error) {
    guint n = refit_model_n_tensors(model);
    g_autofree guint8 *chosen = g_new0(guint8, MAX(n, 1));
    g_autofree guint *moved = g_new0(guint, MAX(n, 1));
    g_autoptr(GArray) tensors = g_array_new(FALSE, FALSE, sizeof(RefitTensor));
    for (guint t = 0; t < n; t++) {
        chosen[t] = only == NULL ? 1 : 0;
    }
    if ((only != NULL && !choose(model, only, chosen, 1, error)) ||
        (except != NULL && !choose(model, except, chosen, 0, error))) {
        return NULL;
    }
    for (guint t = 0; t < n; t++) {
        const RefitTensor *tensor = refit_model_tensor(model, t);
        moved[t] = tensors->len;
        if (chosen[tensor->scale ? tensor->scale_of : t] != 0) {
            g_array_append_vals(tensors, tensor, 1);
        }
    }
    if (tensors->len == 0) {
        refit_node_error(except != NULL ? except : only, REFIT_ERROR_INVALID, error,
                         "leaves no tensor of model %s to move", refit_model_name(model));
        return NULL;
    }
    for (guint i = 0; i < tensors->len; i++) {
        RefitTensor *tensor = &g_array_index(tensors, RefitTensor, i);
        if (tensor->scale) {
            tensor->scale_of = moved[tensor->scale_of];
        }
    }
    return refit_model_new_like(model, (const RefitTensor *)(gpointer)tensors->data, tensors->len,
                                error);
}
