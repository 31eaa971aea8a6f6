#pragma once

/* Models that tests of several frameworks place, and what a rank has of them. */

#include "test-layout.h"

#define SMALL_CONFIG                                                                               \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, moe_intermediate_size: 4, "      \
    "num_hidden_layers: 4, num_experts_per_tok: 2, hidden_size: 8"
#define SMALL "family: qwen3_moe\nconfig: {" SMALL_CONFIG ", vocab_size: 256, num_experts: 4}\n"
#define ODD "family: qwen3_moe\nconfig: {" SMALL_CONFIG ", vocab_size: 300, num_experts: 6}\n"
#define TIED                                                                                       \
    "family: dense\nconfig: {hidden_size: 8, vocab_size: 256, num_hidden_layers: 2, "              \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, intermediate_size: 8, "          \
    "tie_word_embeddings: true}\n"
/* Two KV heads of two rows, each with four query heads: fused rows q 0-7, k, v, q 8-15, k, v. */
#define GROUPED                                                                                    \
    "family: dense\nconfig: {hidden_size: 8, vocab_size: 1024, num_hidden_layers: 1, "             \
    "num_attention_heads: 8, num_key_value_heads: 2, head_dim: 2, intermediate_size: 8}\n"
#define STACKED                                                                                    \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: \"layers.{0-1}.up\", shape: [8, 4, 2], role: expert_up}\n"                         \
    "  - {name: \"layers.{0-1}.down\", shape: [8, 2, 4], role: expert_down}\n"                     \
    "  - {name: \"layers.{0-1}.down_bias\", shape: [8, 2], role: expert_down}\n"                   \
    "  - {name: \"layers.{0-1}.o_bias\", shape: [2], role: attention_o}\n"                         \
    "  - {name: mtp.proj, shape: [4, 4], role: mtp_proj, mtp: true}\n"                             \
    "  - {name: frontend, shape: [3], role: other}\n"
/* The query projection has three times the rows of its heads. */
#define LIST_ODD_QUERIES                                                                           \
    "family: list\nconfig: {num_attention_heads: 4, num_key_value_heads: 2}\ntensors:\n"           \
    "  - {name: layers.0.q, shape: [24, 4], role: attention_q}\n"                                  \
    "  - {name: layers.0.k, shape: [4, 4], role: attention_k}\n"
#define LIST_SIX                                                                                   \
    "family: list\nconfig: {num_attention_heads: 12, num_key_value_heads: 6}\ntensors:\n"          \
    "  - {name: layers.0.k, shape: [12, 4], role: attention_k}\n"
#define LIST_HEAD "family: list\ntensors:\n  - {name: head, shape: [64, 4], role: lm_head}\n"
#define LIST_FFN "family: list\ntensors:\n  - {name: down, shape: [3, 4], role: dense_down}\n"
#define DEEPSEEK                                                                                   \
    "family: deepseek_v3\nconfig: {hidden_size: 7168, vocab_size: 129280, num_hidden_layers: 61, " \
    "num_nextn_predict_layers: 1, num_attention_heads: 128, num_key_value_heads: 128, "            \
    "q_lora_rank: 1536, kv_lora_rank: 512, qk_nope_head_dim: 128, qk_rope_head_dim: 64, "          \
    "v_head_dim: 128, first_k_dense_replace: 3, intermediate_size: 18432, "                        \
    "moe_intermediate_size: 2048, n_routed_experts: 256, n_shared_experts: 1}\n"
#define QWEN_235B                                                                                  \
    "family: qwen3_moe\nconfig: {hidden_size: 4096, vocab_size: 151936, num_hidden_layers: 94, "   \
    "num_attention_heads: 64, num_key_value_heads: 4, head_dim: 128, num_experts: 128, "           \
    "moe_intermediate_size: 1536}\n"

/* Bytes of every tensor on `rank`, computed once per distinct shape and sharding. */
static inline guint64 bytes_on(const RefitLayout *layout, guint rank) {
    const RefitModel *model = refit_layout_model(layout);
    g_autoptr(GHashTable) known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    guint64 sum = 0;

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        g_autofree char *key =
            g_strdup_printf("%p %u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT,
                            (const void *)refit_layout_sharding(layout, i), tensor->n_dims,
                            tensor->shape[0], tensor->n_dims > 1 ? tensor->shape[1] : 0);
        guint64 *elements = g_hash_table_lookup(known, key);
        if (elements == NULL) {
            g_autoptr(RefitHolding) holding = holding_of(layout, i);

            elements = g_new0(guint64, 1);
            for (guint j = 0; j < holding->n_pieces; j++) {
                for (guint k = 0; k < holding->pieces[j].n_ranks; k++) {
                    if (holding->pieces[j].ranks[k] == rank)
                        *elements += refit_region_volume(&holding->pieces[j].region);
                }
            }
            g_hash_table_insert(known, g_steal_pointer(&key), elements);
        }
        sum += *elements * refit_dtype_bits(tensor->dtype) / 8;
    }
    return sum;
}
