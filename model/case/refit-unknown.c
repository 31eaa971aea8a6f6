/*
 * Unknown tensors of a case: reading what it says of them, and refusing where it says nothing.
 *
 * What a family does not know it cannot cut, so any layout that cuts by what tensors are for would
 * hold them whole by guess. A few that hardly weigh, such as a new norm, are no reason to stop;
 * they are listed. Cost: linear in the tensors.
 */

#include "model/case/refit-unknown.h"

gboolean refit_unknown_read(RefitNode *node, RefitUnknown *unknown_out, GError **error) {
    static const char *const words[] = {"whole", NULL};
    guint word = 0;

    *unknown_out = (RefitUnknown){.stated = FALSE};
    if (node == NULL)
        return TRUE;
    if (refit_node_kind(node) == REFIT_NODE_SEQUENCE) {
        unknown_out->roles = node;
        return TRUE;
    }
    unknown_out->stated = TRUE;
    return refit_node_choice(node, words, &word, error);
}

/* ---- refusing ---- */

static void append_shape(GString *text, const RefitTensor *tensor) {
    for (guint d = 0; d < tensor->n_dims; d++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, d == 0 ? " [" : ", ",
                               tensor->shape[d]);
    if (tensor->n_dims > 0)
        g_string_append_c(text, ']');
}

/* Endings of packed integers that no family reads: AWQ and GPTQ. */
static gboolean is_foreign_packing(const RefitTensor *tensor) {
    return g_str_has_suffix(tensor->name, ".qweight") || g_str_has_suffix(tensor->name, ".qzeros");
}

/* The framework that `side` names, if it cuts by roles, or NULL. */
static const RefitFramework *find_cutting(RefitNode *side) {
    const RefitFramework *const *frameworks = refit_frameworks();
    const char *name = NULL;
    RefitNode *node =
        refit_node_kind(side) == REFIT_NODE_MAPPING ? refit_node_get(side, "framework") : NULL;

    if (node == NULL || !refit_node_string(node, &name, NULL))
        return NULL;
    for (guint i = 0; frameworks[i] != NULL; i++) {
        if (g_str_equal(frameworks[i]->name, name))
            return frameworks[i]->by_role != NULL && frameworks[i]->by_role(side) ? frameworks[i]
                                                                                  : NULL;
    }
    return NULL;
}

gboolean refit_unknown_check(const RefitUnknown *unknown, const RefitModel *model, RefitNode *side,
                             const RefitNode *place, GError **error) {
    const RefitFramework *framework = find_cutting(side);
    guint64 bytes = 0, total = refit_model_bytes(model);
    guint n = refit_model_n_unknown(model, &bytes);
    const RefitTensor *largest = NULL;

    if (unknown->stated || framework == NULL ||
        (double)bytes * 100 <= (double)total * REFIT_UNKNOWN_LIMIT_PERCENT)
        return TRUE;
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        if (tensor->unknown && (largest == NULL || tensor->bytes > largest->bytes))
            largest = tensor;
    }
    if (largest == NULL) /* the sum above is then 0, within the limit */
        return TRUE;
    g_autofree char *part = refit_format_bytes(bytes);
    g_autofree char *all = refit_format_bytes(total);
    g_autoptr(GString) example = g_string_new(largest->name);
    append_shape(example, largest);
    refit_node_error(
        place, REFIT_ERROR_INVALID, error,
        "%s of %s, %.1f %% (limit %d), %s no family knows by name and shape, such as %s%s: "
        "how %s cuts %s cannot be told; %ssay unknown: whole to hold them whole, state what they "
        "are for with unknown: [{tensors: \"PATTERN\", role: ROLE}], or write this side with "
        "framework: explicit",
        part, all, (double)bytes / (double)total * 100, REFIT_UNKNOWN_LIMIT_PERCENT,
        n == 1 ? "are a tensor that" : "are tensors that", example->str,
        is_foreign_packing(largest) ? " (packed as AWQ and GPTQ do)" : "", framework->name,
        n == 1 ? "it" : "them",
        refit_model_n_heads(model) == 0
            ? "put the checkpoint's config.json beside its headers, where it is missing, or "
            : "");
    return FALSE;
}
