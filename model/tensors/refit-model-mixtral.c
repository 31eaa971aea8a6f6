/*
 * The family `mixtral`: Mixtral and MiniMax-M2.
 *
 * Grouped-query attention and routed experts in every layer, as in Qwen3 MoE, under the names that
 * Mixtral introduced: w1 is the gate, w3 the way up and w2 the way down. MiniMax-M2 normalizes
 * queries and keys over all heads at once and keeps the router, which then has a bias, in F32.
 * Cost: linear in the tensors.
 */

#include "model/tensors/refit-model-private.h"

/* Numbers of this family. */
enum {
    REFIT_FACT_PLAIN_ROUTER = REFIT_FACT_OWN, /* no bias */
};

static const RefitTemplate router[] = {
    REFIT_MATRIX("block_sparse_moe.gate.weight", ROUTER, EXPERTS, HIDDEN_SIZE, PLAIN_ROUTER),
    REFIT_MATRIX_F32("block_sparse_moe.gate.weight", ROUTER, EXPERTS, HIDDEN_SIZE,
                     USE_ROUTING_BIAS),
    REFIT_VECTOR_F32("block_sparse_moe.e_score_correction_bias", ROUTER, EXPERTS, USE_ROUTING_BIAS),
};
static const RefitBlock router_block = REFIT_BLOCK(router);

static const RefitTemplate expert[] = {
    REFIT_MATRIX("w1.weight", EXPERT_GATE, INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("w3.weight", EXPERT_UP, INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("w2.weight", EXPERT_DOWN, HIDDEN_SIZE, INTERMEDIATE_SIZE, NONE),
};
static const RefitBlock expert_block = REFIT_BLOCK(expert);

static const RefitFactUse uses[] = {
    REFIT_FACTS_OF_A_STACK,
    {REFIT_FACT_HEAD_DIM, FALSE},
    {REFIT_FACT_QK_NORM, FALSE},
    {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_NUM_LOCAL_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE},
    {REFIT_FACT_USE_ROUTING_BIAS, FALSE},
};

static gboolean emit_layer(RefitModelBuilder *builder, G_GNUC_UNUSED guint layer,
                           const guint64 *facts, GError **error) {
    return refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) &&
           refit_model_builder_emit(builder, &refit_block_gqa, facts, error) &&
           refit_model_builder_emit(builder, &router_block, facts, error) &&
           refit_model_builder_emit_experts(builder, &expert_block, "block_sparse_moe.experts.",
                                            builder->n_experts, facts, error);
}

static gboolean expand_mixtral(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config =
        refit_family_read_config(builder, root, uses, G_N_ELEMENTS(uses), facts, error);
    if (config == NULL || !refit_family_derive_gqa(builder, config, facts, error) ||
        !refit_family_derive_experts(builder, config, REFIT_FACT_NUM_LOCAL_EXPERTS,
                                     REFIT_FACT_NUM_EXPERTS_PER_TOK, facts, error)) {
        return FALSE;
    }
    facts[REFIT_FACT_FULL_QK_NORM] = facts[REFIT_FACT_QK_NORM];
    facts[REFIT_FACT_QK_NORM] = 0;
    facts[REFIT_FACT_PLAIN_ROUTER] = facts[REFIT_FACT_USE_ROUTING_BIAS] == 0 ? 1 : 0;
    return refit_family_emit_stack(builder, builder->n_layers, emit_layer, facts, error);
}

const RefitModelFamily refit_model_family_mixtral = {
    "mixtral", "Mixtral and MiniMax-M2: grouped-query attention and routed experts",
    expand_mixtral};
