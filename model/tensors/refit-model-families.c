/*
 * The families of models: which tensors follow from which facts.
 *
 * Llama, Qwen3 and DeepSeek-V3 share their naming. What differs is which blocks a layer has and
 * which facts give the shapes; so blocks are tables, and a family is the order in which it emits
 * them: embeddings and output head, layers ascending, final norm. GLM-4.5 is DeepSeek-V3 with
 * another attention. Families that differ in more have files of their own and use the blocks and
 * helpers of this one. Cost: linear in the tensors.
 */

#include "model/tensors/refit-model-private.h"

/* ---- blocks ---- */

static const RefitTemplate embeddings[] = {
    REFIT_MATRIX("model.embed_tokens.weight", EMBEDDING, VOCAB_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("lm_head.weight", LM_HEAD, VOCAB_SIZE, HIDDEN_SIZE, UNTIED),
};
const RefitBlock refit_block_embeddings = REFIT_BLOCK(embeddings);

static const RefitTemplate final_norm[] = {
    REFIT_VECTOR("model.norm.weight", NORM, HIDDEN_SIZE, NONE),
};
const RefitBlock refit_block_final_norm = REFIT_BLOCK(final_norm);

static const RefitTemplate layer_norms[] = {
    REFIT_VECTOR("input_layernorm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("post_attention_layernorm.weight", NORM, HIDDEN_SIZE, NONE),
};
const RefitBlock refit_block_layer_norms = REFIT_BLOCK(layer_norms);

static const RefitTemplate gqa[] = {
    REFIT_MATRIX("self_attn.q_proj.weight", ATTENTION_Q, Q_ROWS, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.q_proj.bias", ATTENTION_Q, Q_ROWS, QKV_BIAS),
    REFIT_MATRIX("self_attn.k_proj.weight", ATTENTION_K, KV_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.k_proj.bias", ATTENTION_K, KV_WIDTH, QKV_BIAS),
    REFIT_MATRIX("self_attn.v_proj.weight", ATTENTION_V, KV_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.v_proj.bias", ATTENTION_V, KV_WIDTH, QKV_BIAS),
    REFIT_MATRIX("self_attn.o_proj.weight", ATTENTION_O, HIDDEN_SIZE, Q_WIDTH, NONE),
    REFIT_VECTOR("self_attn.o_proj.bias", ATTENTION_O, HIDDEN_SIZE, O_BIAS),
    REFIT_VECTOR("self_attn.q_norm.weight", NORM, HEAD_DIM, QK_NORM),
    REFIT_VECTOR("self_attn.k_norm.weight", NORM, HEAD_DIM, QK_NORM),
    REFIT_VECTOR("self_attn.q_norm.weight", ATTENTION_Q_NORM, Q_WIDTH, FULL_QK_NORM),
    REFIT_VECTOR("self_attn.k_norm.weight", ATTENTION_K_NORM, KV_WIDTH, FULL_QK_NORM),
};
const RefitBlock refit_block_gqa = REFIT_BLOCK(gqa);

static const RefitTemplate mla[] = {
    REFIT_MATRIX("self_attn.q_a_proj.weight", MLA_Q_A, Q_LORA_RANK, HIDDEN_SIZE, Q_LORA_RANK),
    REFIT_VECTOR("self_attn.q_a_layernorm.weight", NORM, Q_LORA_RANK, Q_LORA_RANK),
    REFIT_MATRIX("self_attn.q_b_proj.weight", MLA_Q_B, MLA_Q_WIDTH, Q_LORA_RANK, Q_LORA_RANK),
    REFIT_MATRIX("self_attn.q_proj.weight", MLA_Q_B, MLA_Q_WIDTH, HIDDEN_SIZE, MLA_PLAIN_Q),
    REFIT_MATRIX("self_attn.kv_a_proj_with_mqa.weight", MLA_KV_A, MLA_KV_A, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.kv_a_layernorm.weight", NORM, KV_LORA_RANK, NONE),
    REFIT_MATRIX("self_attn.kv_b_proj.weight", MLA_KV_B, MLA_KV_WIDTH, KV_LORA_RANK, NONE),
    REFIT_MATRIX("self_attn.g_proj.weight", ATTENTION_GATE, MLA_V_WIDTH, HIDDEN_SIZE,
                 MLA_USE_OUTPUT_GATE),
    REFIT_MATRIX("self_attn.o_proj.weight", ATTENTION_O, HIDDEN_SIZE, MLA_V_WIDTH, NONE),
    REFIT_VECTOR("self_attn.rotary_emb.inv_freq", BUFFER, ROTARY_INV_FREQ, ROTARY_INV_FREQ),
};
const RefitBlock refit_block_mla = REFIT_BLOCK(mla);

static const RefitTemplate dense_ffn[] = {
    REFIT_MATRIX("mlp.gate_proj.weight", DENSE_GATE, INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.up_proj.weight", DENSE_UP, INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.down_proj.weight", DENSE_DOWN, HIDDEN_SIZE, INTERMEDIATE_SIZE, NONE),
};
const RefitBlock refit_block_dense_ffn = REFIT_BLOCK(dense_ffn);

static const RefitTemplate expert[] = {
    REFIT_MATRIX("gate_proj.weight", EXPERT_GATE, MOE_INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("up_proj.weight", EXPERT_UP, MOE_INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("down_proj.weight", EXPERT_DOWN, HIDDEN_SIZE, MOE_INTERMEDIATE_SIZE, NONE),
};
const RefitBlock refit_block_expert = REFIT_BLOCK(expert);

static const RefitTemplate router[] = {
    REFIT_MATRIX("mlp.gate.weight", ROUTER, EXPERTS, HIDDEN_SIZE, NONE),
};
const RefitBlock refit_block_router = REFIT_BLOCK(router);

static const RefitTemplate deepseek_router[] = {
    REFIT_MATRIX("mlp.gate.weight", ROUTER, EXPERTS, HIDDEN_SIZE, NONE),
    REFIT_VECTOR_F32("mlp.gate.e_score_correction_bias", ROUTER, EXPERTS, NONE),
};
const RefitBlock refit_block_deepseek_router = REFIT_BLOCK(deepseek_router);

static const RefitTemplate deepseek_shared[] = {
    REFIT_MATRIX("mlp.shared_experts.gate_proj.weight", SHARED_GATE, SHARED_SIZE, HIDDEN_SIZE,
                 SHARED_SIZE),
    REFIT_MATRIX("mlp.shared_experts.up_proj.weight", SHARED_UP, SHARED_SIZE, HIDDEN_SIZE,
                 SHARED_SIZE),
    REFIT_MATRIX("mlp.shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN_SIZE, SHARED_SIZE,
                 SHARED_SIZE),
};
const RefitBlock refit_block_deepseek_shared = REFIT_BLOCK(deepseek_shared);

static const RefitTemplate deepseek_mtp[] = {
    REFIT_MATRIX("embed_tokens.weight", EMBEDDING, VOCAB_SIZE, HIDDEN_SIZE, MTP_ENDS),
    REFIT_MATRIX("eh_proj.weight", MTP_PROJ, HIDDEN_SIZE, TWICE_HIDDEN, NONE),
    REFIT_VECTOR("enorm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("hnorm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("shared_head.norm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("shared_head.head.weight", LM_HEAD, VOCAB_SIZE, HIDDEN_SIZE, MTP_ENDS),
};
const RefitBlock refit_block_deepseek_mtp = REFIT_BLOCK(deepseek_mtp);

/* ---- what families share ---- */

RefitNode *refit_family_config(RefitNode *root, GError **error) {
    RefitNode *config = refit_node_require(root, "config", error);
    return config != NULL && refit_node_expect(config, REFIT_NODE_MAPPING, error) ? config : NULL;
}

gboolean refit_family_read(RefitModelBuilder *builder, RefitNode *config, const RefitFactUse *uses,
                           guint n_uses, guint64 *facts, GError **error) {
    if (!refit_facts_read(config, uses, n_uses, facts, error)) {
        return FALSE;
    }
    builder->place = config;
    facts[REFIT_FACT_ONE] = 1;
    facts[REFIT_FACT_UNTIED] = facts[REFIT_FACT_TIE_WORD_EMBEDDINGS] == 0 ? 1 : 0;
    facts[REFIT_FACT_TWICE_HIDDEN] = 2 * facts[REFIT_FACT_HIDDEN_SIZE];
    builder->n_layers = (guint)facts[REFIT_FACT_NUM_HIDDEN_LAYERS];
    builder->n_heads = (guint)facts[REFIT_FACT_NUM_ATTENTION_HEADS];
    builder->tied_embeddings = facts[REFIT_FACT_TIE_WORD_EMBEDDINGS] != 0;
    return TRUE;
}

RefitNode *refit_family_read_config(RefitModelBuilder *builder, RefitNode *root,
                                    const RefitFactUse *uses, guint n_uses, guint64 *facts,
                                    GError **error) {
    RefitNode *config = refit_family_config(root, error);
    return config != NULL && refit_family_read(builder, config, uses, n_uses, facts, error) ? config
                                                                                            : NULL;
}

gboolean refit_family_derive_kv_heads(RefitModelBuilder *builder, RefitNode *config, guint64 *facts,
                                      GError **error) {
    guint64 heads = facts[REFIT_FACT_NUM_ATTENTION_HEADS];
    guint64 kv_heads = facts[REFIT_FACT_NUM_KEY_VALUE_HEADS];
    if (kv_heads == 0) {
        kv_heads = facts[REFIT_FACT_NUM_KEY_VALUE_HEADS] = heads;
    }
    /* Stated KV heads without heads, as a list may have them, are not a multiple either. */
    if (kv_heads != 0 && (heads == 0 || heads % kv_heads != 0)) {
        refit_facts_error(config, REFIT_FACT_NUM_KEY_VALUE_HEADS, error,
                          "%" G_GUINT64_FORMAT
                          " does not divide num_attention_heads %" G_GUINT64_FORMAT,
                          kv_heads, heads);
        return FALSE;
    }
    builder->n_kv_heads = (guint)kv_heads;
    return TRUE;
}

gboolean refit_family_derive_gqa(RefitModelBuilder *builder, RefitNode *config, guint64 *facts,
                                 GError **error) {
    guint64 hidden = facts[REFIT_FACT_HIDDEN_SIZE];
    guint64 heads = facts[REFIT_FACT_NUM_ATTENTION_HEADS];
    if (!refit_family_derive_kv_heads(builder, config, facts, error)) {
        return FALSE;
    }
    if (facts[REFIT_FACT_HEAD_DIM] == 0) {
        if (hidden % heads != 0) {
            refit_facts_error(config, REFIT_FACT_NUM_ATTENTION_HEADS, error,
                              "%" G_GUINT64_FORMAT " does not divide hidden_size %" G_GUINT64_FORMAT
                              "; state head_dim",
                              heads, hidden);
            return FALSE;
        }
        facts[REFIT_FACT_HEAD_DIM] = hidden / heads;
    }
    facts[REFIT_FACT_Q_WIDTH] = heads * facts[REFIT_FACT_HEAD_DIM];
    facts[REFIT_FACT_Q_ROWS] =
        facts[REFIT_FACT_Q_WIDTH] * (facts[REFIT_FACT_ATTN_OUTPUT_GATE] != 0 ? 2 : 1);
    facts[REFIT_FACT_KV_WIDTH] = facts[REFIT_FACT_NUM_KEY_VALUE_HEADS] * facts[REFIT_FACT_HEAD_DIM];
    facts[REFIT_FACT_QKV_BIAS] |= facts[REFIT_FACT_ATTENTION_BIAS];
    facts[REFIT_FACT_O_BIAS] = facts[REFIT_FACT_ATTENTION_BIAS];
    return TRUE;
}

void refit_family_derive_mla(guint64 *facts) {
    guint64 heads = facts[REFIT_FACT_NUM_ATTENTION_HEADS];
    guint64 nope = facts[REFIT_FACT_QK_NOPE_HEAD_DIM];
    guint64 rope = facts[REFIT_FACT_QK_ROPE_HEAD_DIM];
    guint64 value = facts[REFIT_FACT_V_HEAD_DIM];
    facts[REFIT_FACT_MLA_PLAIN_Q] = facts[REFIT_FACT_Q_LORA_RANK] == 0 ? 1 : 0;
    facts[REFIT_FACT_MLA_Q_WIDTH] = heads * (nope + rope);
    facts[REFIT_FACT_MLA_KV_A] = facts[REFIT_FACT_KV_LORA_RANK] + rope;
    facts[REFIT_FACT_MLA_KV_WIDTH] = heads * (nope + value);
    facts[REFIT_FACT_MLA_V_WIDTH] = heads * value;
}

gboolean refit_family_derive_experts(RefitModelBuilder *builder, RefitNode *config, RefitFact count,
                                     RefitFact chosen, guint64 *facts, GError **error) {
    guint64 experts = facts[count];
    if (facts[chosen] > experts) {
        refit_facts_error(config, chosen, error,
                          "a token cannot choose %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
                          " experts",
                          facts[chosen], experts);
        return FALSE;
    }
    facts[REFIT_FACT_EXPERTS] = experts;
    builder->n_experts = (guint)experts;
    return TRUE;
}

gboolean refit_family_check_dense_layers(const RefitModelBuilder *builder, RefitNode *config,
                                         const guint64 *facts, GError **error) {
    if (facts[REFIT_FACT_FIRST_K_DENSE_REPLACE] <= builder->n_layers) {
        return TRUE;
    }
    refit_facts_error(config, REFIT_FACT_FIRST_K_DENSE_REPLACE, error,
                      "%" G_GUINT64_FORMAT " exceeds num_hidden_layers %u",
                      facts[REFIT_FACT_FIRST_K_DENSE_REPLACE], builder->n_layers);
    return FALSE;
}

gboolean refit_family_emit_stack(RefitModelBuilder *builder, guint n, RefitLayerFunc emit_layer,
                                 const guint64 *facts, GError **error) {
    if (!refit_model_builder_emit(builder, &refit_block_embeddings, facts, error)) {
        return FALSE;
    }
    for (guint layer = 0; layer < n; layer++) {
        refit_model_builder_enter(builder, (gint)layer, layer >= builder->n_layers,
                                  REFIT_LAYER_PREFIX, layer);
        if (!emit_layer(builder, layer, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_leave(builder);
    return refit_model_builder_emit(builder, &refit_block_final_norm, facts, error);
}

/* ---- dense: Llama, Qwen3 ---- */

static const RefitFactUse dense_uses[] = {
    REFIT_FACTS_OF_A_STACK,      {REFIT_FACT_HEAD_DIM, FALSE}, {REFIT_FACT_ATTENTION_BIAS, FALSE},
    {REFIT_FACT_QK_NORM, FALSE}, {REFIT_FACT_QKV_BIAS, FALSE}, {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},
};

static gboolean emit_dense_layer(RefitModelBuilder *builder, G_GNUC_UNUSED guint layer,
                                 const guint64 *facts, GError **error) {
    return refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) &&
           refit_model_builder_emit(builder, &refit_block_gqa, facts, error) &&
           refit_model_builder_emit(builder, &refit_block_dense_ffn, facts, error);
}

static gboolean expand_dense(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config =
        refit_family_read_config(builder, root, dense_uses, G_N_ELEMENTS(dense_uses), facts, error);
    return config != NULL && refit_family_derive_gqa(builder, config, facts, error) &&
           refit_family_emit_stack(builder, builder->n_layers, emit_dense_layer, facts, error);
}

const RefitModelFamily refit_model_family_dense = {
    "dense", "Llama and Qwen3: grouped-query attention and a dense FFN in every layer",
    expand_dense};

/* ---- qwen3_moe ---- */

static const RefitFactUse qwen3_moe_uses[] = {
    REFIT_FACTS_OF_A_STACK,
    {REFIT_FACT_HEAD_DIM, FALSE},
    {REFIT_FACT_ATTENTION_BIAS, FALSE},
    {REFIT_FACT_NUM_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE},
    {REFIT_FACT_MOE_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_DECODER_SPARSE_STEP, FALSE},
};

static gboolean emit_qwen3_moe_layer(RefitModelBuilder *builder, G_GNUC_UNUSED guint layer,
                                     const guint64 *facts, GError **error) {
    return refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) &&
           refit_model_builder_emit(builder, &refit_block_gqa, facts, error) &&
           refit_model_builder_emit(builder, &refit_block_router, facts, error) &&
           refit_model_builder_emit_experts(builder, &refit_block_expert, REFIT_EXPERT_INFIX,
                                            builder->n_experts, facts, error);
}

static gboolean expand_qwen3_moe(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config = refit_family_read_config(builder, root, qwen3_moe_uses,
                                                 G_N_ELEMENTS(qwen3_moe_uses), facts, error);
    if (config == NULL || !refit_family_derive_gqa(builder, config, facts, error) ||
        !refit_family_derive_experts(builder, config, REFIT_FACT_NUM_EXPERTS,
                                     REFIT_FACT_NUM_EXPERTS_PER_TOK, facts, error)) {
        return FALSE;
    }
    facts[REFIT_FACT_QK_NORM] = 1;
    return refit_family_emit_stack(builder, builder->n_layers, emit_qwen3_moe_layer, facts, error);
}

const RefitModelFamily refit_model_family_qwen3_moe = {
    "qwen3_moe", "Qwen3 MoE: grouped-query attention and routed experts in every layer",
    expand_qwen3_moe};

/* ---- deepseek_v3, glm4_moe ---- */

static const RefitFactUse deepseek_v3_uses[] = {
    {REFIT_FACT_HIDDEN_SIZE, TRUE},
    {REFIT_FACT_VOCAB_SIZE, TRUE},
    {REFIT_FACT_NUM_HIDDEN_LAYERS, TRUE},
    {REFIT_FACT_NUM_NEXTN_PREDICT_LAYERS, FALSE},
    {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE},
    {REFIT_FACT_NUM_ATTENTION_HEADS, TRUE},
    {REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE},
    {REFIT_FACT_Q_LORA_RANK, FALSE},
    {REFIT_FACT_KV_LORA_RANK, TRUE},
    {REFIT_FACT_QK_NOPE_HEAD_DIM, TRUE},
    {REFIT_FACT_QK_ROPE_HEAD_DIM, TRUE},
    {REFIT_FACT_V_HEAD_DIM, TRUE},
    {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_MOE_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_N_ROUTED_EXPERTS, TRUE},
    {REFIT_FACT_N_SHARED_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE},
    {REFIT_FACT_FIRST_K_DENSE_REPLACE, TRUE},
    {REFIT_FACT_MOE_LAYER_FREQ, FALSE},
    {REFIT_FACT_ROTARY_INV_FREQ, FALSE},
    {REFIT_FACT_N_GROUP, FALSE},
};

static const RefitFactUse glm4_moe_uses[] = {
    {REFIT_FACT_HIDDEN_SIZE, TRUE},
    {REFIT_FACT_VOCAB_SIZE, TRUE},
    {REFIT_FACT_NUM_HIDDEN_LAYERS, TRUE},
    {REFIT_FACT_NUM_NEXTN_PREDICT_LAYERS, FALSE},
    {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE},
    {REFIT_FACT_NUM_ATTENTION_HEADS, TRUE},
    {REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE},
    {REFIT_FACT_HEAD_DIM, FALSE},
    {REFIT_FACT_ATTENTION_BIAS, FALSE},
    {REFIT_FACT_QK_NORM, FALSE},
    {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_MOE_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_N_ROUTED_EXPERTS, TRUE},
    {REFIT_FACT_N_SHARED_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE},
    {REFIT_FACT_FIRST_K_DENSE_REPLACE, TRUE},
    {REFIT_FACT_N_GROUP, FALSE},
    {REFIT_FACT_MTP_SHARES_ENDS, FALSE},
};

static gboolean emit_deepseek_layer(RefitModelBuilder *builder, guint layer,
                                    const RefitBlock *attention, const guint64 *facts,
                                    GError **error) {
    if (!refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) ||
        !refit_model_builder_emit(builder, attention, facts, error)) {
        return FALSE;
    }
    gboolean is_dense = layer < facts[REFIT_FACT_FIRST_K_DENSE_REPLACE];
    gboolean emitted =
        is_dense
            ? refit_model_builder_emit(builder, &refit_block_dense_ffn, facts, error)
            : refit_model_builder_emit(builder, &refit_block_deepseek_router, facts, error) &&
                  refit_model_builder_emit_experts(builder, &refit_block_expert, REFIT_EXPERT_INFIX,
                                                   builder->n_experts, facts, error) &&
                  refit_model_builder_emit(builder, &refit_block_deepseek_shared, facts, error);
    return emitted && (!builder->mtp ||
                       refit_model_builder_emit(builder, &refit_block_deepseek_mtp, facts, error));
}

static gboolean emit_mla_layer(RefitModelBuilder *builder, guint layer, const guint64 *facts,
                               GError **error) {
    return emit_deepseek_layer(builder, layer, &refit_block_mla, facts, error);
}

static gboolean emit_gqa_layer(RefitModelBuilder *builder, guint layer, const guint64 *facts,
                               GError **error) {
    return emit_deepseek_layer(builder, layer, &refit_block_gqa, facts, error);
}

/* All but the attention, whose facts have been derived. */
static gboolean expand_deepseek_stack(RefitModelBuilder *builder, RefitNode *config,
                                      RefitLayerFunc emit_layer, guint64 *facts, GError **error) {
    if (!refit_family_derive_experts(builder, config, REFIT_FACT_N_ROUTED_EXPERTS,
                                     REFIT_FACT_NUM_EXPERTS_PER_TOK, facts, error)) {
        return FALSE;
    }
    builder->n_expert_groups = (guint)facts[REFIT_FACT_N_GROUP];
    facts[REFIT_FACT_MTP_ENDS] = facts[REFIT_FACT_MTP_SHARES_ENDS] == 0 ? 1 : 0;
    facts[REFIT_FACT_SHARED_SIZE] =
        facts[REFIT_FACT_N_SHARED_EXPERTS] * facts[REFIT_FACT_MOE_INTERMEDIATE_SIZE];
    guint n = builder->n_layers + (guint)facts[REFIT_FACT_NUM_NEXTN_PREDICT_LAYERS];
    return refit_family_emit_stack(builder, n, emit_layer, facts, error);
}

static gboolean expand_deepseek_v3(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config = refit_family_read_config(builder, root, deepseek_v3_uses,
                                                 G_N_ELEMENTS(deepseek_v3_uses), facts, error);
    if (config == NULL || !refit_family_derive_kv_heads(builder, config, facts, error)) {
        return FALSE;
    }
    refit_family_derive_mla(facts);
    if (builder->options.form != REFIT_FORM_NATIVE) {
        facts[REFIT_FACT_ROTARY_INV_FREQ] = 0;
    }
    return expand_deepseek_stack(builder, config, emit_mla_layer, facts, error);
}

const RefitModelFamily refit_model_family_deepseek_v3 = {
    "deepseek_v3",
    "DeepSeek-V3 and R1, Kimi K2: latent attention, routed and shared experts, MTP layers",
    expand_deepseek_v3};

static gboolean expand_glm4_moe(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config = refit_family_read_config(builder, root, glm4_moe_uses,
                                                 G_N_ELEMENTS(glm4_moe_uses), facts, error);
    if (config == NULL || !refit_family_derive_gqa(builder, config, facts, error)) {
        return FALSE;
    }
    facts[REFIT_FACT_O_BIAS] = 0; /* attention_bias means query, key and value only */
    return expand_deepseek_stack(builder, config, emit_gqa_layer, facts, error);
}

const RefitModelFamily refit_model_family_glm4_moe = {
    "glm4_moe", "GLM-4.5: grouped-query attention, otherwise as DeepSeek-V3", expand_glm4_moe};
