/*
 * The family `qwen3_5_moe`: Qwen3.5 and Qwen3.8.
 *
 * Every full_attention_interval-th layer has grouped-query attention whose query projection also
 * carries an output gate; the others have gated delta nets. All have routed experts, stacked over
 * the experts as [experts, out, in], and one shared expert behind a gate. Some checkpoints come
 * with an image encoder, then the text model's names have a longer prefix; some keep a few vectors
 * in F32; MTP layers have stacked or separate experts, quantized forms only separate ones. Cost:
 * linear in the tensors.
 */

#include "model/tensors/refit-model-private.h"

/* Numbers of this family. */
enum {
    REFIT_FACT_LINEAR_IN = REFIT_FACT_OWN, /* queries, keys and values of the linear attention */
    REFIT_FACT_LINEAR_KEYS,                /* and as many queries */
    REFIT_FACT_LINEAR_VALUES,
    REFIT_FACT_LINEAR_CONVERTS, /* not LINEAR_KEEPS_F32 */
    REFIT_FACT_TWICE_SIZE,      /* gate and up together */
    /* of the image encoder */
    REFIT_FACT_THRICE_HIDDEN,
    REFIT_FACT_MERGED_SIZE, /* neighbouring patches side by side */
};

static const RefitTemplate wrapped_embeddings[] = {
    REFIT_MATRIX("model.language_model.embed_tokens.weight", EMBEDDING, VOCAB_SIZE, HIDDEN_SIZE,
                 NONE),
    REFIT_MATRIX("lm_head.weight", LM_HEAD, VOCAB_SIZE, HIDDEN_SIZE, UNTIED),
};
static const RefitBlock wrapped_embeddings_block = REFIT_BLOCK(wrapped_embeddings);

static const RefitTemplate wrapped_norm[] = {
    REFIT_VECTOR("model.language_model.norm.weight", NORM, HIDDEN_SIZE, NONE),
};
static const RefitBlock wrapped_norm_block = REFIT_BLOCK(wrapped_norm);

/* Queries, keys and values side by side, in the projection and in the convolution after it. */
static const RefitTemplatePacking linear_qkv = {
    .dim = 0,
    .n = 3,
    .segments = {{REFIT_FACT_LINEAR_KEYS, REFIT_FACT_LINEAR_NUM_KEY_HEADS},
                 {REFIT_FACT_LINEAR_KEYS, REFIT_FACT_LINEAR_NUM_KEY_HEADS},
                 {REFIT_FACT_LINEAR_VALUES, REFIT_FACT_LINEAR_NUM_VALUE_HEADS}},
};
static const RefitTemplate linear[] = {
    REFIT_VECTOR_F32("linear_attn.A_log", SSM_HEAD, LINEAR_NUM_VALUE_HEADS, LINEAR_KEEPS_F32),
    REFIT_VECTOR("linear_attn.A_log", SSM_HEAD, LINEAR_NUM_VALUE_HEADS, LINEAR_CONVERTS),
    REFIT_VECTOR("linear_attn.dt_bias", SSM_HEAD, LINEAR_NUM_VALUE_HEADS, NONE),
    REFIT_TENSOR_ROW("linear_attn.conv1d.weight", SSM_CONV, NONE, FALSE, &linear_qkv,
                     REFIT_FACT_LINEAR_IN, REFIT_FACT_ONE, REFIT_FACT_LINEAR_CONV_KERNEL_DIM),
    REFIT_TENSOR_ROW("linear_attn.in_proj_qkv.weight", SSM_IN, NONE, FALSE, &linear_qkv,
                     REFIT_FACT_LINEAR_IN, REFIT_FACT_HIDDEN_SIZE),
    REFIT_MATRIX("linear_attn.in_proj_z.weight", SSM_IN, LINEAR_VALUES, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("linear_attn.in_proj_a.weight", SSM_IN, LINEAR_NUM_VALUE_HEADS, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("linear_attn.in_proj_b.weight", SSM_IN, LINEAR_NUM_VALUE_HEADS, HIDDEN_SIZE, NONE),
    REFIT_VECTOR_F32("linear_attn.norm.weight", NORM, LINEAR_VALUE_HEAD_DIM, LINEAR_KEEPS_F32),
    REFIT_VECTOR("linear_attn.norm.weight", NORM, LINEAR_VALUE_HEAD_DIM, LINEAR_CONVERTS),
    REFIT_MATRIX("linear_attn.out_proj.weight", SSM_OUT, HIDDEN_SIZE, LINEAR_VALUES, NONE),
};
static const RefitBlock linear_block = REFIT_BLOCK(linear);

/* Gate, then up, of each expert. */
static const RefitTemplatePacking gate_up = {
    .dim = 1,
    .n = 2,
    .segments = {{REFIT_FACT_MOE_INTERMEDIATE_SIZE, REFIT_FACT_MOE_INTERMEDIATE_SIZE},
                 {REFIT_FACT_MOE_INTERMEDIATE_SIZE, REFIT_FACT_MOE_INTERMEDIATE_SIZE}},
};
static const RefitTemplate stacked_experts[] = {
    REFIT_TENSOR_ROW("mlp.experts.gate_up_proj", EXPERT_GATE_UP, NONE, FALSE, &gate_up,
                     REFIT_FACT_EXPERTS, REFIT_FACT_TWICE_SIZE, REFIT_FACT_HIDDEN_SIZE),
    REFIT_VOLUME("mlp.experts.down_proj", EXPERT_DOWN, EXPERTS, HIDDEN_SIZE, MOE_INTERMEDIATE_SIZE,
                 NONE),
};
static const RefitBlock stacked_experts_block = REFIT_BLOCK(stacked_experts);

static const RefitTemplate shared[] = {
    REFIT_MATRIX("mlp.shared_expert.gate_proj.weight", SHARED_GATE, SHARED_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.shared_expert.up_proj.weight", SHARED_UP, SHARED_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.shared_expert.down_proj.weight", SHARED_DOWN, HIDDEN_SIZE, SHARED_SIZE, NONE),
    REFIT_MATRIX("mlp.shared_expert_gate.weight", SHARED_EXPERT_GATE, ONE, HIDDEN_SIZE, NONE),
};
static const RefitBlock shared_block = REFIT_BLOCK(shared);

static const RefitTemplate mtp[] = {
    REFIT_MATRIX("fc.weight", MTP_PROJ, HIDDEN_SIZE, TWICE_HIDDEN, NONE),
    REFIT_VECTOR("norm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("pre_fc_norm_embedding.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("pre_fc_norm_hidden.weight", NORM, HIDDEN_SIZE, NONE),
};
static const RefitBlock mtp_block = REFIT_BLOCK(mtp);

/* ---- image encoder; sizes are those of its own config ---- */

static const RefitTemplate vision_begin[] = {
    REFIT_TENSOR_ROW("patch_embed.proj.weight", VISION, NONE, FALSE, NULL, REFIT_FACT_HIDDEN_SIZE,
                     REFIT_FACT_IN_CHANNELS, REFIT_FACT_TEMPORAL_PATCH_SIZE, REFIT_FACT_PATCH_SIZE,
                     REFIT_FACT_PATCH_SIZE),
    REFIT_VECTOR("patch_embed.proj.bias", VISION, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("pos_embed.weight", VISION, NUM_POSITION_EMBEDDINGS, HIDDEN_SIZE, NONE),
};
static const RefitBlock vision_begin_block = REFIT_BLOCK(vision_begin);

static const RefitTemplate vision_layer[] = {
    REFIT_MATRIX("attn.qkv.weight", VISION, THRICE_HIDDEN, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("attn.qkv.bias", VISION, THRICE_HIDDEN, NONE),
    REFIT_MATRIX("attn.proj.weight", VISION, HIDDEN_SIZE, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("attn.proj.bias", VISION, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.linear_fc1.weight", VISION, INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("mlp.linear_fc1.bias", VISION, INTERMEDIATE_SIZE, NONE),
    REFIT_MATRIX("mlp.linear_fc2.weight", VISION, HIDDEN_SIZE, INTERMEDIATE_SIZE, NONE),
    REFIT_VECTOR("mlp.linear_fc2.bias", VISION, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("norm1.weight", VISION, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("norm1.bias", VISION, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("norm2.weight", VISION, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("norm2.bias", VISION, HIDDEN_SIZE, NONE),
};
static const RefitBlock vision_layer_block = REFIT_BLOCK(vision_layer);

static const RefitTemplate vision_end[] = {
    REFIT_MATRIX("linear_fc1.weight", VISION, MERGED_SIZE, MERGED_SIZE, NONE),
    REFIT_VECTOR("linear_fc1.bias", VISION, MERGED_SIZE, NONE),
    REFIT_MATRIX("linear_fc2.weight", VISION, OUT_HIDDEN_SIZE, MERGED_SIZE, NONE),
    REFIT_VECTOR("linear_fc2.bias", VISION, OUT_HIDDEN_SIZE, NONE),
    REFIT_VECTOR("norm.weight", VISION, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("norm.bias", VISION, HIDDEN_SIZE, NONE),
};
static const RefitBlock vision_end_block = REFIT_BLOCK(vision_end);

static const RefitFactUse vision_uses[] = {
    {REFIT_FACT_HIDDEN_SIZE, TRUE},
    {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_DEPTH, TRUE},
    {REFIT_FACT_IN_CHANNELS, TRUE},
    {REFIT_FACT_PATCH_SIZE, TRUE},
    {REFIT_FACT_TEMPORAL_PATCH_SIZE, TRUE},
    {REFIT_FACT_SPATIAL_MERGE_SIZE, TRUE},
    {REFIT_FACT_NUM_POSITION_EMBEDDINGS, TRUE},
    {REFIT_FACT_OUT_HIDDEN_SIZE, TRUE},
};

static gboolean read_vision(RefitNode *vision, guint64 *facts, GError **error) {
    if (!refit_facts_read(vision, vision_uses, G_N_ELEMENTS(vision_uses), facts, error)) {
        return FALSE;
    }
    facts[REFIT_FACT_THRICE_HIDDEN] = 3 * facts[REFIT_FACT_HIDDEN_SIZE];
    facts[REFIT_FACT_MERGED_SIZE] = facts[REFIT_FACT_HIDDEN_SIZE] *
                                    facts[REFIT_FACT_SPATIAL_MERGE_SIZE] *
                                    facts[REFIT_FACT_SPATIAL_MERGE_SIZE];
    return TRUE;
}

static gboolean emit_vision(RefitModelBuilder *builder, const guint64 *facts, GError **error) {
    refit_model_builder_enter(builder, REFIT_NO_LAYER, FALSE, "model.visual.");
    if (!refit_model_builder_emit(builder, &vision_begin_block, facts, error)) {
        return FALSE;
    }
    for (guint block = 0; block < facts[REFIT_FACT_DEPTH]; block++) {
        refit_model_builder_enter(builder, REFIT_NO_LAYER, FALSE, "model.visual.blocks.%u.", block);
        if (!refit_model_builder_emit(builder, &vision_layer_block, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_enter(builder, REFIT_NO_LAYER, FALSE, "model.visual.merger.");
    if (!refit_model_builder_emit(builder, &vision_end_block, facts, error)) {
        return FALSE;
    }
    refit_model_builder_leave(builder);
    return TRUE;
}

/* ---- text model ---- */

static const RefitFactUse uses[] = {
    {REFIT_FACT_HIDDEN_SIZE, TRUE},
    {REFIT_FACT_VOCAB_SIZE, TRUE},
    {REFIT_FACT_NUM_HIDDEN_LAYERS, TRUE},
    {REFIT_FACT_MTP_NUM_HIDDEN_LAYERS, FALSE},
    {REFIT_FACT_MTP_STACKED_EXPERTS, FALSE},
    {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE},
    {REFIT_FACT_NUM_ATTENTION_HEADS, TRUE},
    {REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE},
    {REFIT_FACT_HEAD_DIM, FALSE},
    {REFIT_FACT_ATTENTION_BIAS, FALSE},
    {REFIT_FACT_ATTN_OUTPUT_GATE, FALSE},
    {REFIT_FACT_FULL_ATTENTION_INTERVAL, TRUE},
    {REFIT_FACT_LINEAR_NUM_KEY_HEADS, TRUE},
    {REFIT_FACT_LINEAR_NUM_VALUE_HEADS, TRUE},
    {REFIT_FACT_LINEAR_KEY_HEAD_DIM, TRUE},
    {REFIT_FACT_LINEAR_VALUE_HEAD_DIM, TRUE},
    {REFIT_FACT_LINEAR_CONV_KERNEL_DIM, TRUE},
    {REFIT_FACT_LINEAR_KEEPS_F32, FALSE},
    {REFIT_FACT_NUM_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE},
    {REFIT_FACT_MOE_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_SHARED_EXPERT_INTERMEDIATE_SIZE, TRUE},
};

static void derive_widths(guint64 *facts) {
    guint64 keys = facts[REFIT_FACT_LINEAR_NUM_KEY_HEADS] * facts[REFIT_FACT_LINEAR_KEY_HEAD_DIM];
    facts[REFIT_FACT_LINEAR_KEYS] = keys;
    facts[REFIT_FACT_LINEAR_VALUES] =
        facts[REFIT_FACT_LINEAR_NUM_VALUE_HEADS] * facts[REFIT_FACT_LINEAR_VALUE_HEAD_DIM];
    facts[REFIT_FACT_LINEAR_IN] = 2 * keys + facts[REFIT_FACT_LINEAR_VALUES];
    facts[REFIT_FACT_LINEAR_CONVERTS] = facts[REFIT_FACT_LINEAR_KEEPS_F32] == 0 ? 1 : 0;
    facts[REFIT_FACT_TWICE_SIZE] = 2 * facts[REFIT_FACT_MOE_INTERMEDIATE_SIZE];
    facts[REFIT_FACT_SHARED_SIZE] = facts[REFIT_FACT_SHARED_EXPERT_INTERMEDIATE_SIZE];
    facts[REFIT_FACT_QK_NORM] = 1;
}

static gboolean emit_layer(RefitModelBuilder *builder, const RefitBlock *mixer, gboolean stacked,
                           const guint64 *facts, GError **error) {
    return refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) &&
           refit_model_builder_emit(builder, mixer, facts, error) &&
           refit_model_builder_emit(builder, &refit_block_router, facts, error) &&
           (stacked
                ? refit_model_builder_emit(builder, &stacked_experts_block, facts, error)
                : refit_model_builder_emit_experts(builder, &refit_block_expert, REFIT_EXPERT_INFIX,
                                                   builder->n_experts, facts, error)) &&
           refit_model_builder_emit(builder, &shared_block, facts, error);
}

static gboolean emit_main(RefitModelBuilder *builder, gboolean wrapped, const guint64 *facts,
                          GError **error) {
    const RefitBlock *first = wrapped ? &wrapped_embeddings_block : &refit_block_embeddings;
    const RefitBlock *last = wrapped ? &wrapped_norm_block : &refit_block_final_norm;
    gboolean split = refit_quantization_splits_experts(&builder->quantization);
    if (!refit_model_builder_emit(builder, first, facts, error)) {
        return FALSE;
    }
    for (guint layer = 0; layer < builder->n_layers; layer++) {
        gboolean full = (layer + 1) % facts[REFIT_FACT_FULL_ATTENTION_INTERVAL] == 0;
        refit_model_builder_enter(builder, (gint)layer, FALSE, "model.%slayers.%u.",
                                  wrapped ? "language_model." : "", layer);
        if (!emit_layer(builder, full ? &refit_block_gqa : &linear_block, !split, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_leave(builder);
    return refit_model_builder_emit(builder, last, facts, error);
}

static gboolean emit_mtp(RefitModelBuilder *builder, const guint64 *facts, GError **error) {
    guint n = (guint)facts[REFIT_FACT_MTP_NUM_HIDDEN_LAYERS];
    gboolean stacked = facts[REFIT_FACT_MTP_STACKED_EXPERTS] != 0 &&
                       !refit_quantization_splits_experts(&builder->quantization);
    if (n == 0) {
        return TRUE;
    }
    for (guint i = 0; i < n; i++) {
        refit_model_builder_enter(builder, (gint)(builder->n_layers + i), TRUE, "mtp.layers.%u.",
                                  i);
        if (!emit_layer(builder, &refit_block_gqa, stacked, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_enter(builder, (gint)builder->n_layers, TRUE, "mtp.");
    if (!refit_model_builder_emit(builder, &mtp_block, facts, error)) {
        return FALSE;
    }
    refit_model_builder_leave(builder);
    return TRUE;
}

static gboolean expand_qwen3_5_moe(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    guint64 vision_facts[REFIT_N_FACTS];
    RefitNode *config = refit_family_config(root, error);
    if (config == NULL) {
        return FALSE;
    }
    RefitNode *vision = refit_node_get(config, "vision_config");
    if ((vision != NULL && !read_vision(vision, vision_facts, error)) ||
        !refit_family_read(builder, config, uses, G_N_ELEMENTS(uses), facts, error) ||
        !refit_family_derive_gqa(builder, config, facts, error) ||
        !refit_family_derive_experts(builder, config, REFIT_FACT_NUM_EXPERTS,
                                     REFIT_FACT_NUM_EXPERTS_PER_TOK, facts, error)) {
        return FALSE;
    }
    derive_widths(facts);
    return emit_main(builder, vision != NULL, facts, error) && emit_mtp(builder, facts, error) &&
           (vision == NULL || emit_vision(builder, vision_facts, error));
}

const RefitModelFamily refit_model_family_qwen3_5_moe = {
    "qwen3_5_moe", "Qwen3.5 and Qwen3.8: gated delta nets, gated attention, stacked experts",
    expand_qwen3_5_moe};
