#pragma once

/* What the tests of views share: an element loop over every view, and the rows of a parameter. */

#include "model/layout/refit-view.h"
#include "test-layout-models.h"

#define UNTOUCHED G_MAXUINT64

static inline guint64 place_of(const RefitIntervalList *list, guint64 index) {
    for (guint i = 0; i < list->n; i++) {
        if (index >= list->items[i].lo && index < list->items[i].hi)
            return list->items[i].at + (index - list->items[i].lo);
    }
    return UNTOUCHED;
}

static inline guint64 elements_of(const RefitParameter *parameter) {
    guint64 elements = 1;

    for (guint d = 0; d < parameter->n_dims; d++)
        elements *= parameter->shape[d];
    return elements;
}

/* Which element of which tensor lies where: tensor << 32 | row-major number of the element. */
static inline guint64 **map_elements(const RefitLayout *layout, const RefitRankViews *views) {
    guint64 **maps = g_new0(guint64 *, views->n_parameters + 1);

    for (guint p = 0; p < views->n_parameters; p++) {
        guint64 n = elements_of(&views->parameters[p]);

        maps[p] = g_new(guint64, n);
        for (guint64 i = 0; i < n; i++)
            maps[p][i] = UNTOUCHED;
    }
    for (guint v = 0; v < views->n_views; v++) {
        const RefitView *view = &views->views[v];
        const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), view->tensor);

        g_assert_cmpuint(view->region.n_dims, ==, tensor->n_dims);
        for (guint64 element = 0; element < tensor->elements; element++) {
            guint64 at = view->offset, rest = element;
            gboolean held = TRUE;

            for (guint d = tensor->n_dims; d-- > 0; rest /= tensor->shape[d]) {
                guint64 place = place_of(view->region.dims[d], rest % tensor->shape[d]);

                held = held && place != UNTOUCHED;
                at += held ? place * view->stride[d] : 0;
            }
            if (!held)
                continue;
            g_assert_cmpuint(at, <, elements_of(&views->parameters[view->parameter]));
            g_assert_cmpuint(maps[view->parameter][at], ==, UNTOUCHED); /* no two in one place */
            maps[view->parameter][at] = (guint64)view->tensor << 32 | element;
        }
    }
    return maps;
}

static inline void free_maps(guint64 **maps) {
    for (guint p = 0; maps[p] != NULL; p++)
        g_free(maps[p]);
    g_free(maps);
}

static inline const RefitParameter *parameter_of(const RefitRankViews *views, const char *name) {
    for (guint p = 0; p < views->n_parameters; p++) {
        if (g_str_equal(views->parameters[p].name, name))
            return &views->parameters[p];
    }
    for (guint p = 0; p < views->n_parameters; p++)
        g_test_message("%s", views->parameters[p].name);
    g_error("no parameter %s", name);
}

static inline RefitRankViews *views_of(const RefitLayout *layout, guint rank) {
    g_autoptr(GError) error = NULL;
    RefitRankViews *views = refit_rank_views_new(layout, rank, &error);

    g_assert_no_error(error);
    g_assert_nonnull(views);
    g_assert_cmpuint(views->rank, ==, rank);
    return views;
}

/* Adds what `rank` holds by the holdings, which views do not read, to the count of each tensor. */
static inline guint64 held_elements(const RefitLayout *layout, guint rank) {
    guint64 held = 0;

    for (guint i = 0; i < refit_model_n_tensors(refit_layout_model(layout)); i++) {
        if (refit_layout_sharding(layout, i) == NULL)
            continue;
        g_autoptr(RefitHolding) holding = holding_of(layout, i);

        for (guint p = 0; p < holding->n_pieces; p++) {
            for (guint r = 0; r < holding->pieces[p].n_ranks; r++) {
                if (holding->pieces[p].ranks[r] == rank)
                    held += refit_region_volume(&holding->pieces[p].region);
            }
        }
    }
    return held;
}

static inline gboolean may_be_padded(const char *name) {
    return strstr(name, "embed") != NULL || strstr(name, "lm_head") != NULL ||
           strstr(name, "output_layer") != NULL || strstr(name, ".head.") != NULL;
}

static inline void check_rank(const RefitLayout *layout, guint rank) {
    g_autoptr(RefitRankViews) views = views_of(layout, rank);
    guint64 **maps = map_elements(layout, views), found = 0;

    for (guint p = 0; p < views->n_parameters; p++) {
        const RefitParameter *parameter = &views->parameters[p];
        guint64 elements = elements_of(parameter), filled = 0, bytes;

        for (guint64 i = 0; i < elements; i++)
            filled += maps[p][i] != UNTOUCHED ? 1 : 0;
        if (filled != elements && !may_be_padded(parameter->name))
            g_error("%s of rank %u has %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " elements",
                    parameter->name, rank, filled, elements);
        g_assert_true(refit_dtype_bytes(parameter->dtype, elements, &bytes, NULL));
        g_assert_cmpuint(parameter->bytes, ==, bytes);
        for (guint other = 0; other < p; other++)
            g_assert_cmpstr(views->parameters[other].name, !=, parameter->name);
        found += filled;
    }
    for (guint v = 1; v < views->n_views; v++)
        g_assert_cmpuint(views->views[v - 1].tensor, <=, views->views[v].tensor);
    g_assert_cmpuint(found, ==, held_elements(layout, rank));
    free_maps(maps);
}

/* ---- small models ---- */

#define DEEPSEEK_SMALL                                                                             \
    "family: deepseek_v3\nnote: \"mtp: true\"\nconfig: {hidden_size: 4, vocab_size: 130, "         \
    "num_hidden_layers: 2, num_nextn_predict_layers: 1, num_attention_heads: 4, "                  \
    "num_key_value_heads: 4, q_lora_rank: 3, kv_lora_rank: 2, qk_nope_head_dim: 2, "               \
    "qk_rope_head_dim: 1, v_head_dim: 2, first_k_dense_replace: 1, intermediate_size: 8, "         \
    "moe_intermediate_size: 4, n_routed_experts: 4, n_shared_experts: 1}\n"
#define QWEN3_5_SMALL                                                                              \
    "family: qwen3_5_moe\nconfig: {hidden_size: 4, vocab_size: 128, num_hidden_layers: 2, "        \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, attn_output_gate: true, "        \
    "full_attention_interval: 2, linear_num_key_heads: 2, linear_num_value_heads: 4, "             \
    "linear_key_head_dim: 2, linear_value_head_dim: 2, linear_conv_kernel_dim: 2, "                \
    "num_experts: 4, moe_intermediate_size: 8, shared_expert_intermediate_size: 8}\n"
#define NEMOTRON_SMALL                                                                             \
    "family: nemotron_h\nconfig: {hidden_size: 4, vocab_size: 128, num_hidden_layers: 3, "         \
    "hybrid_override_pattern: \"M*E\", num_attention_heads: 4, num_key_value_heads: 2, "           \
    "head_dim: 2, mamba_num_heads: 4, mamba_head_dim: 2, n_groups: 4, ssm_state_size: 2, "         \
    "conv_kernel: 2, use_conv_bias: true, moe_intermediate_size: 4, moe_latent_size: 2, "          \
    "moe_shared_expert_intermediate_size: 8, n_routed_experts: 4, n_shared_experts: 1}\n"
#define GPT_OSS_SMALL                                                                              \
    "family: gpt_oss\nconfig: {hidden_size: 4, vocab_size: 128, num_hidden_layers: 1, "            \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, attention_bias: true, "          \
    "intermediate_size: 8, num_local_experts: 4}\n"
#define KIMI_SMALL                                                                                 \
    "family: kimi_k3\nconfig: {hidden_size: 4, vocab_size: 128, num_hidden_layers: 2, "            \
    "num_attention_heads: 4, q_lora_rank: 3, kv_lora_rank: 2, qk_nope_head_dim: 2, "               \
    "qk_rope_head_dim: 1, v_head_dim: 2, intermediate_size: 4, moe_intermediate_size: 4, "         \
    "routed_expert_hidden_size: 2, num_experts: 4, num_shared_experts: 1, "                        \
    "first_k_dense_replace: 1, linear_attn_config: {num_heads: 4, head_dim: 2, "                   \
    "short_conv_kernel_size: 2, kda_layers: [2]}}\n"
#define MIXTRAL_SMALL                                                                              \
    "family: mixtral\nconfig: {hidden_size: 4, vocab_size: 128, num_hidden_layers: 1, "            \
    "num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 4, "                       \
    "num_local_experts: 4}\n"

/* ---- quantized forms ---- */

#define FP8_QWEN                                                                                   \
    "family: qwen3_moe\nconfig: {hidden_size: 8, vocab_size: 128, num_hidden_layers: 1, "          \
    "num_attention_heads: 8, num_key_value_heads: 4, head_dim: 4, moe_intermediate_size: 8, "      \
    "num_experts: 4}\nnative: {style: fp8_block, block: [2, 2], linears: [attention, expert]}\n"
#define MXFP4_GPT_OSS                                                                              \
    "family: gpt_oss\nconfig: {hidden_size: 64, vocab_size: 128, num_hidden_layers: 1, "           \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, intermediate_size: 64, "         \
    "num_local_experts: 2}\nnative: {style: mxfp4, linears: [expert]}\n"

static inline RefitLayout *make_native(const char *body, const char *side) {
    g_autofree char *text = g_strconcat("schema: refit.model/1\nname: m\n", body, NULL);
    g_autofree char *place = g_strconcat("train: ", side, NULL);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "m.yaml", &error);
    g_autoptr(RefitDoc) case_doc = refit_doc_parse(place, strlen(place), "c.yaml", &error);
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .form = REFIT_FORM_NATIVE};

    g_assert_no_error(error);
    g_autoptr(RefitModel) model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    RefitLayout *layout = refit_layout_parse(refit_node_get(refit_doc_root(case_doc), "train"),
                                             "train", model, 4, N_AVAILABLE, &error);
    g_assert_no_error(error);
    return layout;
}
