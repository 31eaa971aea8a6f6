/*
 * Tensors that no family knows: what a user states of them, and listing them.
 *
 * Roles are stated by patterns of names, for unknown tensors only: what a family knows is not
 * overruled. Names that differ in numbers are listed as one. Cost: tensors times patterns.
 */

#include "model/tensors/refit-model-private.h"

#include <string.h>

/* ---- stated roles ---- */

/* Gate and up of stacked experts one after the other: each is cut on its own. */
static gboolean state_halves(RefitNode *item, RefitTensor *tensor, GError **error) {
    guint dim = tensor->role == REFIT_ROLE_EXPERT_GATE_UP ? 1 : 2;

    if (tensor->role != REFIT_ROLE_EXPERT_GATE_UP &&
        tensor->role != REFIT_ROLE_EXPERT_GATE_UP_HALVES_T) {
        return TRUE;
    }
    if (tensor->n_dims != 3 || tensor->shape[dim] % 2 != 0 || tensor->shape[dim] / 2 > G_MAXUINT) {
        refit_node_error(item, REFIT_ERROR_INVALID, error,
                         "%s is not [experts, %s] with as much of gate as of up; state another "
                         "role",
                         tensor->name, dim == 1 ? "gate then up, in" : "in, gate then up");
        return FALSE;
    }
    tensor->packed_dim = dim;
    tensor->n_packed = 2;
    for (guint i = 0; i < 2; i++) {
        tensor->packed[i].extent = tensor->shape[dim] / 2;
        tensor->packed[i].units = (guint)(tensor->shape[dim] / 2);
    }
    return TRUE;
}

static gboolean state_role(RefitNode *item, GArray *tensors, GError **error) {
    const char *text = NULL;
    RefitRole role = REFIT_ROLE_OTHER;
    guint n = 0;

    if (!refit_node_expect(item, REFIT_NODE_MAPPING, error)) {
        return FALSE;
    }
    RefitNode *pattern = refit_node_require(item, "tensors", error);
    RefitNode *named = pattern != NULL ? refit_node_require(item, "role", error) : NULL;
    if (named == NULL || !refit_node_string(pattern, &text, error) ||
        !refit_role_read(named, &role, error)) {
        return FALSE;
    }
    g_autoptr(GPatternSpec) glob = g_pattern_spec_new(text);
    for (guint i = 0; i < tensors->len; i++) {
        RefitTensor *tensor = &g_array_index(tensors, RefitTensor, i);

        if (!tensor->unknown || tensor->scale || !g_pattern_spec_match_string(glob, tensor->name)) {
            continue;
        }
        tensor->unknown = FALSE;
        tensor->role = role;
        n++;
        if (!state_halves(named, tensor, error)) {
            return FALSE;
        }
    }
    if (n > 0) {
        return TRUE;
    }
    refit_node_error(pattern, REFIT_ERROR_INVALID, error,
                     "\"%s\" fits none of the tensors that no family knows; refit show model lists "
                     "them",
                     text);
    return FALSE;
}

RefitModel *refit_model_state_roles(RefitModel *model, RefitNode *roles, GError **error) {
    g_autoptr(GArray) tensors = g_array_new(FALSE, FALSE, sizeof(RefitTensor));
    guint n = refit_model_n_tensors(model);
    if (!refit_node_expect(roles, REFIT_NODE_SEQUENCE, error)) {
        return NULL;
    }
    for (guint i = 0; i < n; i++) {
        g_array_append_vals(tensors, refit_model_tensor(model, i), 1);
    }
    for (guint i = 0; i < refit_node_size(roles); i++) {
        if (!state_role(refit_node_at(roles, i), tensors, error)) {
            return NULL;
        }
    }
    for (guint i = 0; i < n; i++) { /* scales go with what they scale */
        RefitTensor *tensor = &g_array_index(tensors, RefitTensor, i);
        if (tensor->scale) {
            const RefitTensor *scaled = &g_array_index(tensors, RefitTensor, tensor->scale_of);
            tensor->unknown = scaled->unknown;
            tensor->role = scaled->role;
        }
    }
    return refit_model_new_like(model, (const RefitTensor *)(gpointer)tensors->data, n, error);
}

/* ---- listing ---- */

void refit_name_take_numbers(const char *name, char mark, GString *text) {
    g_string_truncate(text, 0);
    for (const char *at = name; *at != '\0';) {
        gsize length = strcspn(at, ".");
        if (length > 0 && strspn(at, "0123456789") >= length) {
            g_string_append_c(text, mark);
        } else {
            g_string_append_len(text, at, (gssize)length);
        }
        at += length;
        if (*at == '.') {
            g_string_append_c(text, *at++);
        }
    }
}

static void clear_names(gpointer item) {
    g_free(((RefitUnknownNames *)item)->names);
}

static int compare_names(gconstpointer a, gconstpointer b) {
    const RefitUnknownNames *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return strcmp(x->names, y->names);
}

GArray *refit_model_unknown_names(const RefitModel *model) {
    GArray *list = g_array_new(FALSE, FALSE, sizeof(RefitUnknownNames));
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal); /* to index + 1 */
    g_autoptr(GString) text = g_string_new(NULL);

    g_array_set_clear_func(list, clear_names);
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        if (!tensor->unknown) {
            continue;
        }
        refit_name_take_numbers(tensor->name, '*', text);
        guint index = GPOINTER_TO_UINT(g_hash_table_lookup(seen, text->str));
        if (index == 0) {
            const RefitUnknownNames first = {.names = g_strdup(text->str)};
            g_array_append_val(list, first);
            index = list->len;
            g_hash_table_insert(seen, first.names, GUINT_TO_POINTER(index));
        }
        RefitUnknownNames *item = &g_array_index(list, RefitUnknownNames, index - 1);
        item->n_tensors++;
        item->bytes += tensor->bytes;
    }
    g_array_sort(list, compare_names);
    return list;
}
