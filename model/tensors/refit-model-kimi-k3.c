/*
 * The family `kimi_k3`: delta attention, latent attention, latent experts.
 *
 * `linear_attn_config` lists, counting from 1, the layers with Kimi delta attention; the others
 * have multi-head latent attention with an output gate. Each layer weighs the outputs of earlier
 * ones (attention residuals). Routed experts work in a space narrower than the hidden size, with
 * one projection into it and one out of it per layer. An image encoder is optional. Cost: linear
 * in the tensors.
 */

#include "model/tensors/refit-model-private.h"

/* Numbers of this family. */
enum {
    REFIT_FACT_KDA_WIDTH = REFIT_FACT_OWN, /* all heads */
    REFIT_FACT_KDA_PADDING,                /* of the decays, beyond the heads */
    /* of the image encoder */
    REFIT_FACT_COLOURS,
    REFIT_FACT_THRICE_QKV,
    REFIT_FACT_MERGED_SIZE, /* neighbouring patches side by side */
};

#define MODEL "language_model.model."

static const RefitTemplate global[] = {
    REFIT_MATRIX(MODEL "embed_tokens.weight", EMBEDDING, VOCAB_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("language_model.lm_head.weight", LM_HEAD, VOCAB_SIZE, HIDDEN_SIZE, UNTIED),
};
static const RefitBlock global_block = REFIT_BLOCK(global);

static const RefitTemplate output[] = {
    REFIT_VECTOR(MODEL "norm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR(MODEL "output_attn_res_norm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_MATRIX(MODEL "output_attn_res_proj.weight", RESIDUAL_PROJ, ONE, HIDDEN_SIZE, NONE),
};
static const RefitBlock output_block = REFIT_BLOCK(output);

static const RefitTemplate residuals[] = {
    REFIT_VECTOR("self_attention_res_norm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("self_attention_res_proj.weight", RESIDUAL_PROJ, ONE, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("mlp_res_norm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp_res_proj.weight", RESIDUAL_PROJ, ONE, HIDDEN_SIZE, NONE),
};
static const RefitBlock residuals_block = REFIT_BLOCK(residuals);

/* Facts of linear_attn_config and the hidden size. */
#define KDA_CONV(name)                                                                             \
    REFIT_TENSOR_ROW("self_attn." name "_conv1d.weight", SSM_CONV, NONE, TRUE, NULL,               \
                     REFIT_FACT_KDA_WIDTH, REFIT_FACT_ONE, REFIT_FACT_SHORT_CONV_KERNEL_SIZE)
static const RefitTemplatePacking kda_decays = {
    .dim = 0,
    .n = 2,
    .segments = {{REFIT_FACT_NUM_HEADS, REFIT_FACT_NUM_HEADS},
                 {REFIT_FACT_KDA_PADDING, REFIT_FACT_NONE}},
};
static const RefitTemplate kda[] = {
    REFIT_MATRIX("self_attn.q_proj.weight", SSM_IN, KDA_WIDTH, HIDDEN_SIZE, NONE),
    KDA_CONV("q"),
    REFIT_MATRIX("self_attn.k_proj.weight", SSM_IN, KDA_WIDTH, HIDDEN_SIZE, NONE),
    KDA_CONV("k"),
    REFIT_MATRIX("self_attn.v_proj.weight", SSM_IN, KDA_WIDTH, HIDDEN_SIZE, NONE),
    KDA_CONV("v"),
    REFIT_MATRIX("self_attn.f_a_proj.weight", SSM_LOW_RANK, HEAD_DIM, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("self_attn.f_b_proj.weight", SSM_IN, KDA_WIDTH, HEAD_DIM, NONE),
    REFIT_MATRIX("self_attn.b_proj.weight", SSM_IN, NUM_HEADS, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("self_attn.g_proj.weight", SSM_IN, KDA_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_TENSOR_ROW("self_attn.A_log", SSM_HEAD, NONE, TRUE, &kda_decays, REFIT_FACT_A_LOG_SIZE),
    REFIT_VECTOR_F32("self_attn.dt_bias", SSM_HEAD, KDA_WIDTH, NONE),
    REFIT_VECTOR_F32("self_attn.o_norm.weight", NORM, HEAD_DIM, NONE),
    REFIT_MATRIX("self_attn.o_proj.weight", SSM_OUT, HIDDEN_SIZE, KDA_WIDTH, NONE),
};
static const RefitBlock kda_block = REFIT_BLOCK(kda);

#define MOE "block_sparse_moe."

static const RefitTemplate router[] = {
    REFIT_MATRIX(MOE "gate.weight", ROUTER, EXPERTS, HIDDEN_SIZE, NONE),
    REFIT_VECTOR_F32(MOE "gate.e_score_correction_bias", ROUTER, EXPERTS, NONE),
    REFIT_MATRIX(MOE "routed_expert_down_proj.weight", LATENT_PROJ, ROUTED_EXPERT_HIDDEN_SIZE,
                 HIDDEN_SIZE, NONE),
    REFIT_VECTOR(MOE "routed_expert_norm.weight", NORM, ROUTED_EXPERT_HIDDEN_SIZE, NONE),
    REFIT_MATRIX(MOE "routed_expert_up_proj.weight", LATENT_PROJ, HIDDEN_SIZE,
                 ROUTED_EXPERT_HIDDEN_SIZE, NONE),
};
static const RefitBlock router_block = REFIT_BLOCK(router);

static const RefitTemplate expert[] = {
    REFIT_MATRIX("w1.weight", EXPERT_GATE, MOE_INTERMEDIATE_SIZE, ROUTED_EXPERT_HIDDEN_SIZE, NONE),
    REFIT_MATRIX("w3.weight", EXPERT_UP, MOE_INTERMEDIATE_SIZE, ROUTED_EXPERT_HIDDEN_SIZE, NONE),
    REFIT_MATRIX("w2.weight", EXPERT_DOWN, ROUTED_EXPERT_HIDDEN_SIZE, MOE_INTERMEDIATE_SIZE, NONE),
};
static const RefitBlock expert_block = REFIT_BLOCK(expert);

static const RefitTemplate shared[] = {
    REFIT_MATRIX(MOE "shared_experts.gate_proj.weight", SHARED_GATE, SHARED_SIZE, HIDDEN_SIZE,
                 SHARED_SIZE),
    REFIT_MATRIX(MOE "shared_experts.up_proj.weight", SHARED_UP, SHARED_SIZE, HIDDEN_SIZE,
                 SHARED_SIZE),
    REFIT_MATRIX(MOE "shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN_SIZE, SHARED_SIZE,
                 SHARED_SIZE),
};
static const RefitBlock shared_block = REFIT_BLOCK(shared);

/* ---- image encoder ---- */

static const RefitTemplate vision_begin[] = {
    REFIT_TENSOR_ROW("vision_tower.patch_embed.proj.weight", VISION, NONE, FALSE, NULL,
                     REFIT_FACT_VT_HIDDEN_SIZE, REFIT_FACT_COLOURS, REFIT_FACT_PATCH_SIZE,
                     REFIT_FACT_PATCH_SIZE),
    REFIT_VOLUME("vision_tower.patch_embed.pos_emb.weight", VISION, INIT_POS_EMB_HEIGHT,
                 INIT_POS_EMB_WIDTH, VT_HIDDEN_SIZE, NONE),
};
static const RefitBlock vision_begin_block = REFIT_BLOCK(vision_begin);

static const RefitTemplate vision_layer[] = {
    REFIT_VECTOR("norm0.weight", VISION, VT_HIDDEN_SIZE, NONE),
    REFIT_VECTOR("norm1.weight", VISION, VT_HIDDEN_SIZE, NONE),
    REFIT_MATRIX("wqkv.weight", VISION, THRICE_QKV, VT_HIDDEN_SIZE, NONE),
    REFIT_MATRIX("wo.weight", VISION, VT_HIDDEN_SIZE, QKV_HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.fc0.weight", VISION, VT_INTERMEDIATE_SIZE, VT_HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.fc1.weight", VISION, VT_HIDDEN_SIZE, VT_INTERMEDIATE_SIZE, NONE),
};
static const RefitBlock vision_layer_block = REFIT_BLOCK(vision_layer);

static const RefitTemplate vision_end[] = {
    REFIT_VECTOR("vision_tower.encoder.final_layernorm.weight", VISION, VT_HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mm_projector.proj.0.weight", VISION, MERGED_SIZE, MERGED_SIZE, NONE),
    REFIT_MATRIX("mm_projector.proj.2.weight", VISION, TEXT_HIDDEN_SIZE, MERGED_SIZE, NONE),
    REFIT_VECTOR("mm_projector.post_norm.weight", VISION, TEXT_HIDDEN_SIZE, NONE),
};
static const RefitBlock vision_end_block = REFIT_BLOCK(vision_end);

static const RefitFactUse vision_uses[] = {
    {REFIT_FACT_VT_HIDDEN_SIZE, TRUE},       {REFIT_FACT_VT_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_VT_NUM_HIDDEN_LAYERS, TRUE}, {REFIT_FACT_QKV_HIDDEN_SIZE, TRUE},
    {REFIT_FACT_PATCH_SIZE, TRUE},           {REFIT_FACT_INIT_POS_EMB_HEIGHT, TRUE},
    {REFIT_FACT_INIT_POS_EMB_WIDTH, TRUE},   {REFIT_FACT_MERGE_SIZE, TRUE},
    {REFIT_FACT_TEXT_HIDDEN_SIZE, TRUE},
};

static gboolean read_vision(RefitNode *vision, guint64 *facts, GError **error) {
    if (!refit_facts_read(vision, vision_uses, G_N_ELEMENTS(vision_uses), facts, error)) {
        return FALSE;
    }
    facts[REFIT_FACT_COLOURS] = 3;
    facts[REFIT_FACT_THRICE_QKV] = 3 * facts[REFIT_FACT_QKV_HIDDEN_SIZE];
    facts[REFIT_FACT_MERGED_SIZE] = facts[REFIT_FACT_VT_HIDDEN_SIZE] *
                                    facts[REFIT_FACT_MERGE_SIZE] * facts[REFIT_FACT_MERGE_SIZE];
    return TRUE;
}

static gboolean emit_vision(RefitModelBuilder *builder, const guint64 *facts, GError **error) {
    if (!refit_model_builder_emit(builder, &vision_begin_block, facts, error)) {
        return FALSE;
    }
    for (guint block = 0; block < facts[REFIT_FACT_VT_NUM_HIDDEN_LAYERS]; block++) {
        refit_model_builder_enter(builder, REFIT_NO_LAYER, FALSE, "vision_tower.encoder.blocks.%u.",
                                  block);
        if (!refit_model_builder_emit(builder, &vision_layer_block, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_leave(builder);
    return refit_model_builder_emit(builder, &vision_end_block, facts, error);
}

/* ---- delta attention ---- */

static const RefitFactUse kda_uses[] = {
    {REFIT_FACT_NUM_HEADS, TRUE},
    {REFIT_FACT_HEAD_DIM, TRUE},
    {REFIT_FACT_SHORT_CONV_KERNEL_SIZE, TRUE},
    {REFIT_FACT_A_LOG_SIZE, FALSE},
};

/* A flag for each layer, set for those of the list, which count from 1. */
static guint8 *read_layers(RefitNode *list, guint n_layers, GError **error) {
    if (!refit_node_expect(list, REFIT_NODE_SEQUENCE, error)) {
        return NULL;
    }
    g_autofree guint8 *flags = g_new0(guint8, n_layers);
    for (guint i = 0; i < refit_node_size(list); i++) {
        guint64 layer = 0;
        RefitNode *item = refit_node_at(list, i);
        if (!refit_node_uint(item, 1, n_layers, &layer, error)) {
            return NULL;
        }
        if (flags[layer - 1] != 0) {
            refit_node_error(item, REFIT_ERROR_INVALID, error,
                             "layer %" G_GUINT64_FORMAT " is listed twice; name each once", layer);
            return NULL;
        }
        flags[layer - 1] = 1;
    }
    return g_steal_pointer(&flags);
}

static gboolean read_kda(RefitNode *linear, guint64 *facts, GError **error) {
    if (!refit_node_expect(linear, REFIT_NODE_MAPPING, error)) {
        return FALSE;
    }
    refit_node_get(linear, "kda_layers"); /* read when the number of layers is known */
    if (!refit_facts_read(linear, kda_uses, G_N_ELEMENTS(kda_uses), facts, error)) {
        return FALSE;
    }
    facts[REFIT_FACT_ONE] = 1;
    facts[REFIT_FACT_KDA_WIDTH] = facts[REFIT_FACT_NUM_HEADS] * facts[REFIT_FACT_HEAD_DIM];
    if (facts[REFIT_FACT_A_LOG_SIZE] == 0) {
        facts[REFIT_FACT_A_LOG_SIZE] = facts[REFIT_FACT_NUM_HEADS];
    }
    if (facts[REFIT_FACT_A_LOG_SIZE] < facts[REFIT_FACT_NUM_HEADS]) {
        refit_facts_error(linear, REFIT_FACT_A_LOG_SIZE, error,
                          "is less than the %" G_GUINT64_FORMAT
                          " heads, each of which has a decay; use at least that",
                          facts[REFIT_FACT_NUM_HEADS]);
        return FALSE;
    }
    facts[REFIT_FACT_KDA_PADDING] = facts[REFIT_FACT_A_LOG_SIZE] - facts[REFIT_FACT_NUM_HEADS];
    return TRUE;
}

/* ---- text model ---- */

static const RefitFactUse uses[] = {
    REFIT_FACTS_OF_A_STACK,
    {REFIT_FACT_Q_LORA_RANK, TRUE},
    {REFIT_FACT_KV_LORA_RANK, TRUE},
    {REFIT_FACT_QK_NOPE_HEAD_DIM, TRUE},
    {REFIT_FACT_QK_ROPE_HEAD_DIM, TRUE},
    {REFIT_FACT_V_HEAD_DIM, TRUE},
    {REFIT_FACT_MLA_USE_OUTPUT_GATE, FALSE},
    {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_FIRST_K_DENSE_REPLACE, TRUE},
    {REFIT_FACT_MOE_LAYER_FREQ, FALSE},
    {REFIT_FACT_NUM_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOKEN, FALSE},
    {REFIT_FACT_NUM_SHARED_EXPERTS, TRUE},
    {REFIT_FACT_MOE_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_ROUTED_EXPERT_HIDDEN_SIZE, TRUE},
};

static gboolean emit_ffn(RefitModelBuilder *builder, guint layer, const guint64 *facts,
                         GError **error) {
    if (layer < facts[REFIT_FACT_FIRST_K_DENSE_REPLACE]) {
        return refit_model_builder_emit(builder, &refit_block_dense_ffn, facts, error);
    }
    return refit_model_builder_emit(builder, &router_block, facts, error) &&
           refit_model_builder_emit_experts(builder, &expert_block, MOE "experts.",
                                            builder->n_experts, facts, error) &&
           refit_model_builder_emit(builder, &shared_block, facts, error);
}

static gboolean emit_text(RefitModelBuilder *builder, const guint64 *facts,
                          const guint64 *kda_facts, const guint8 *is_kda, GError **error) {
    if (!refit_model_builder_emit(builder, &global_block, facts, error)) {
        return FALSE;
    }
    for (guint layer = 0; layer < builder->n_layers; layer++) {
        gboolean is_linear = is_kda[layer] != 0;
        refit_model_builder_enter(builder, (gint)layer, FALSE, MODEL "layers.%u.", layer);
        if (!refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) ||
            !refit_model_builder_emit(builder, &residuals_block, facts, error) ||
            !refit_model_builder_emit(builder, is_linear ? &kda_block : &refit_block_mla,
                                      is_linear ? kda_facts : facts, error) ||
            !emit_ffn(builder, layer, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_leave(builder);
    return refit_model_builder_emit(builder, &output_block, facts, error);
}

static gboolean expand_kimi_k3(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    guint64 kda_facts[REFIT_N_FACTS];
    guint64 vision_facts[REFIT_N_FACTS];
    RefitNode *config = refit_family_config(root, error);
    if (config == NULL) {
        return FALSE;
    }
    RefitNode *vision = refit_node_get(config, "vision_config");
    RefitNode *linear = refit_node_require(config, "linear_attn_config", error);
    if ((vision != NULL && !read_vision(vision, vision_facts, error)) || linear == NULL ||
        !read_kda(linear, kda_facts, error) ||
        !refit_family_read(builder, config, uses, G_N_ELEMENTS(uses), facts, error) ||
        !refit_family_derive_kv_heads(builder, config, facts, error) ||
        !refit_family_derive_experts(builder, config, REFIT_FACT_NUM_EXPERTS,
                                     REFIT_FACT_NUM_EXPERTS_PER_TOKEN, facts, error) ||
        !refit_family_check_dense_layers(builder, config, facts, error)) {
        return FALSE;
    }
    RefitNode *list = refit_node_require(linear, "kda_layers", error);
    g_autofree guint8 *is_kda = list != NULL ? read_layers(list, builder->n_layers, error) : NULL;
    if (is_kda == NULL) {
        return FALSE;
    }
    refit_family_derive_mla(facts);
    facts[REFIT_FACT_SHARED_SIZE] =
        facts[REFIT_FACT_NUM_SHARED_EXPERTS] * facts[REFIT_FACT_MOE_INTERMEDIATE_SIZE];
    kda_facts[REFIT_FACT_HIDDEN_SIZE] = facts[REFIT_FACT_HIDDEN_SIZE];
    return emit_text(builder, facts, kda_facts, is_kda, error) &&
           (vision == NULL || emit_vision(builder, vision_facts, error));
}

const RefitModelFamily refit_model_family_kimi_k3 = {
    "kimi_k3", "Kimi K3: delta and latent attention, attention residuals, latent experts",
    expand_kimi_k3};
