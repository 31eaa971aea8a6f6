/*
 * Parallel sizes of the layouts: reading them, the one that follows from the others, and whether
 * they fit the heads and experts of the model.
 *
 * Cost: a few divisions, but for models that state no number of experts: then one pass over their
 * tensors.
 */

#include "model/layout/refit-layout-private.h"

gboolean refit_layout_read_size(RefitNode *node, const char *name, guint value, RefitSize *size_out,
                                GError **error) {
    RefitNode *place = refit_node_get(node, name);
    guint64 number = value;

    if (place != NULL && !refit_node_uint(place, 1, G_MAXUINT32, &number, error))
        return FALSE;
    *size_out = (RefitSize){.name = name,
                            .value = (guint)number,
                            .stated = place != NULL,
                            .place = place != NULL ? place : node};
    return TRUE;
}

gboolean refit_layout_solve_dp(const RefitLayout *layout, RefitNode *node, const RefitSize *sizes,
                               guint n_sizes, RefitSize *dp, GError **error) {
    guint n_ranks = refit_layout_n_ranks(layout);
    g_autoptr(GString) text = g_string_new(NULL);
    guint64 product = 1; /* divides n_ranks, so the next factor cannot overflow it */

    for (guint i = 0; i < n_sizes; i++) {
        g_string_append_printf(text, "%s%s %u", i > 0 ? " * " : "", sizes[i].name, sizes[i].value);
        product *= sizes[i].value;
        if (n_ranks % product != 0) {
            refit_node_error(sizes[i].place, REFIT_ERROR_INVALID, error,
                             "%s does not divide the %u GPUs; choose sizes whose product does",
                             text->str, n_ranks);
            return FALSE;
        }
    }
    guint derived = (guint)(n_ranks / product);
    if (dp->stated && dp->value != derived) {
        refit_node_error(dp->place, REFIT_ERROR_INVALID, error,
                         "%s * %s %u is not the %u GPUs; leave %s out or write %u", text->str,
                         dp->name, dp->value, n_ranks, dp->name, derived);
        return FALSE;
    }
    *dp = (RefitSize){.name = dp->name,
                      .value = derived,
                      .stated = dp->stated,
                      .place = dp->stated ? dp->place : node};
    return TRUE;
}

gboolean refit_layout_check_heads(const RefitModel *model, const RefitSize *tp, GError **error) {
    guint heads = refit_model_n_heads(model);

    if (heads % tp->value == 0)
        return TRUE;
    refit_node_error(tp->place, REFIT_ERROR_INVALID, error,
                     "%s %u does not divide the model's %u attention heads; use a divisor of %u",
                     tp->name, tp->value, heads, heads);
    return FALSE;
}

gboolean refit_layout_check_kv_heads(const RefitModel *model, const RefitSize *tp, GError **error) {
    guint heads = refit_model_n_kv_heads(model);

    if (heads % tp->value == 0 || tp->value % heads == 0)
        return TRUE;
    refit_node_error(tp->place, REFIT_ERROR_INVALID, error,
                     "%s %u and the model's %u KV heads do not divide each other; use a divisor "
                     "or a multiple of %u",
                     tp->name, tp->value, heads, heads);
    return FALSE;
}

gboolean refit_layout_check_known_heads(const RefitModel *model, const RefitTensor *tensor,
                                        const RefitSize *tp, GError **error) {
    if (refit_model_n_kv_heads(model) != 0)
        return TRUE;
    refit_node_error(tp->place, REFIT_ERROR_INVALID, error,
                     "the attention heads of model %s are not known, and %s lies by KV heads; put "
                     "a config.json with num_attention_heads and num_key_value_heads beside the "
                     "headers, or state them under config in a model file of family list",
                     refit_model_name(model), tensor->name);
    return FALSE;
}

guint64 refit_layout_count_experts(const RefitModel *model) {
    guint64 experts = refit_model_n_experts(model);

    for (guint i = 0; i < refit_model_n_tensors(model) && experts == 0; i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        if (refit_layout_is_expert(tensor) && tensor->n_dims > 0)
            experts = tensor->shape[0];
    }
    return experts;
}

gboolean refit_layout_check_experts(const RefitModel *model, const RefitSize *ep, gboolean even,
                                    GError **error) {
    if (ep->value == 1)
        return TRUE;
    guint64 experts = refit_layout_count_experts(model);
    if (experts == 0) {
        refit_node_error(ep->place, REFIT_ERROR_INVALID, error,
                         "%s %u, but model %s has no routed experts; leave %s out", ep->name,
                         ep->value, refit_model_name(model), ep->name);
        return FALSE;
    }
    if (even && experts % ep->value != 0) {
        refit_node_error(ep->place, REFIT_ERROR_INVALID, error,
                         "%s %u does not divide the model's %" G_GUINT64_FORMAT
                         " routed experts; use a divisor of %" G_GUINT64_FORMAT,
                         ep->name, ep->value, experts, experts);
        return FALSE;
    }
    return TRUE;
}

gboolean refit_layout_check_expert(const RefitTensor *tensor, const RefitSize *ep,
                                   guint64 n_experts, GError **error) {
    if (tensor->expert == REFIT_NO_EXPERT ? tensor->n_dims > 0 && tensor->shape[0] == n_experts
                                          : (guint64)tensor->expert < n_experts)
        return TRUE;
    refit_node_error(ep->place, REFIT_ERROR_INVALID, error,
                     "%s does not fit the model's %" G_GUINT64_FORMAT
                     " routed experts; give all layers as many, or leave %s out",
                     tensor->name, n_experts, ep->name);
    return FALSE;
}
