/*
 * The family `gpt_oss`: attention with sinks and stacked experts.
 *
 * All experts of a layer are two tensors [experts, in, out] with their biases; gate and up are
 * interleaved along the outputs of the first, so that a cut of it holds as much of both. This is
 * the dequantized form of the published MXFP4 checkpoint. Cost: linear in the tensors.
 */

#include "model/tensors/refit-model-private.h"

/* Numbers of this family. */
enum {
    REFIT_FACT_TWICE_SIZE = REFIT_FACT_OWN, /* gate and up together */
};

static const RefitTemplate ffn[] = {
    REFIT_VECTOR("self_attn.sinks", ATTENTION_SINK, NUM_ATTENTION_HEADS, NONE),
    REFIT_MATRIX("mlp.router.weight", ROUTER, EXPERTS, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("mlp.router.bias", ROUTER, EXPERTS, NONE),
    REFIT_VOLUME("mlp.experts.gate_up_proj", EXPERT_GATE_UP_T, EXPERTS, HIDDEN_SIZE, TWICE_SIZE,
                 NONE),
    REFIT_MATRIX("mlp.experts.gate_up_proj_bias", EXPERT_GATE_UP_BIAS, EXPERTS, TWICE_SIZE, NONE),
    REFIT_VOLUME("mlp.experts.down_proj", EXPERT_DOWN_T, EXPERTS, INTERMEDIATE_SIZE, HIDDEN_SIZE,
                 NONE),
    REFIT_MATRIX("mlp.experts.down_proj_bias", EXPERT_DOWN_BIAS, EXPERTS, HIDDEN_SIZE, NONE),
};
static const RefitBlock ffn_block = REFIT_BLOCK(ffn);

static const RefitFactUse uses[] = {
    REFIT_FACTS_OF_A_STACK,
    {REFIT_FACT_HEAD_DIM, FALSE},
    {REFIT_FACT_ATTENTION_BIAS, FALSE},
    {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_NUM_LOCAL_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE},
};

static gboolean emit_layer(RefitModelBuilder *builder, G_GNUC_UNUSED guint layer,
                           const guint64 *facts, GError **error) {
    return refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) &&
           refit_model_builder_emit(builder, &refit_block_gqa, facts, error) &&
           refit_model_builder_emit(builder, &ffn_block, facts, error);
}

static gboolean expand_gpt_oss(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config =
        refit_family_read_config(builder, root, uses, G_N_ELEMENTS(uses), facts, error);
    if (config == NULL || !refit_family_derive_gqa(builder, config, facts, error) ||
        !refit_family_derive_experts(builder, config, REFIT_FACT_NUM_LOCAL_EXPERTS,
                                     REFIT_FACT_NUM_EXPERTS_PER_TOK, facts, error)) {
        return FALSE;
    }
    facts[REFIT_FACT_TWICE_SIZE] = 2 * facts[REFIT_FACT_INTERMEDIATE_SIZE];
    return refit_family_emit_stack(builder, builder->n_layers, emit_layer, facts, error);
}

const RefitModelFamily refit_model_family_gpt_oss = {
    "gpt_oss", "gpt-oss: attention with sinks and biases, stacked experts", expand_gpt_oss};
