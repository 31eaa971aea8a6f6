/*
 * The family `nemotron_h`: Mamba-2, attention, experts and plain FFNs, one of them a layer.
 *
 * `hybrid_override_pattern` has a letter for each layer: M for Mamba-2, * for grouped-query
 * attention, E for experts, - for a plain FFN. FFNs and experts are two matrices without a gate;
 * experts may work in a latent space narrower than the hidden size, with one projection into it
 * and one out of it per layer. An MTP stage is a short pattern of its own. Cost: linear in the
 * tensors.
 */

#include "model/tensors/refit-model-private.h"

#include <string.h>

/* Numbers of this family. */
enum {
    REFIT_FACT_MAMBA_WIDTH = REFIT_FACT_OWN, /* all heads */
    REFIT_FACT_MAMBA_STATES,                 /* of all groups, on the way in or out */
    REFIT_FACT_MAMBA_CONV,                   /* inputs of the convolution: heads and both states */
    REFIT_FACT_MAMBA_IN,
    REFIT_FACT_EXPERT_HIDDEN, /* what experts read and write */
};

static const RefitTemplate global[] = {
    REFIT_MATRIX("backbone.embeddings.weight", EMBEDDING, VOCAB_SIZE, HIDDEN_SIZE, NONE),
};
static const RefitBlock global_block = REFIT_BLOCK(global);

static const RefitTemplate output[] = {
    REFIT_VECTOR("backbone.norm_f.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("lm_head.weight", LM_HEAD, VOCAB_SIZE, HIDDEN_SIZE, UNTIED),
};
static const RefitBlock output_block = REFIT_BLOCK(output);

static const RefitTemplate norm[] = {
    REFIT_VECTOR("norm.weight", NORM, HIDDEN_SIZE, NONE),
};
static const RefitBlock norm_block = REFIT_BLOCK(norm);

/* The gate z, the input x and the states B and C, then the time steps; x, B and C are convolved. */
#define HEADS                                                                                      \
    { REFIT_FACT_MAMBA_WIDTH, REFIT_FACT_MAMBA_NUM_HEADS }
#define GROUPS                                                                                     \
    { REFIT_FACT_MAMBA_STATES, REFIT_FACT_N_GROUPS }
#define STEPS                                                                                      \
    { REFIT_FACT_MAMBA_NUM_HEADS, REFIT_FACT_MAMBA_NUM_HEADS }
static const RefitTemplatePacking mamba_in = {
    .dim = 0, .n = 5, .segments = {HEADS, HEADS, GROUPS, GROUPS, STEPS}};
static const RefitTemplatePacking mamba_conv = {
    .dim = 0, .n = 3, .segments = {HEADS, GROUPS, GROUPS}};

static const RefitTemplate mamba[] = {
    REFIT_TENSOR_ROW("mixer.in_proj.weight", SSM_IN, NONE, FALSE, &mamba_in, REFIT_FACT_MAMBA_IN,
                     REFIT_FACT_HIDDEN_SIZE),
    REFIT_TENSOR_ROW("mixer.conv1d.weight", SSM_CONV, NONE, FALSE, &mamba_conv,
                     REFIT_FACT_MAMBA_CONV, REFIT_FACT_ONE, REFIT_FACT_CONV_KERNEL),
    REFIT_TENSOR_ROW("mixer.conv1d.bias", SSM_CONV, USE_CONV_BIAS, FALSE, &mamba_conv,
                     REFIT_FACT_MAMBA_CONV),
    REFIT_VECTOR("mixer.A_log", SSM_HEAD, MAMBA_NUM_HEADS, NONE),
    REFIT_VECTOR("mixer.D", SSM_HEAD, MAMBA_NUM_HEADS, NONE),
    REFIT_VECTOR("mixer.dt_bias", SSM_HEAD, MAMBA_NUM_HEADS, NONE),
    REFIT_VECTOR("mixer.norm.weight", SSM_HEAD, MAMBA_WIDTH, NONE),
    REFIT_MATRIX("mixer.out_proj.weight", SSM_OUT, HIDDEN_SIZE, MAMBA_WIDTH, NONE),
};
static const RefitBlock mamba_block = REFIT_BLOCK(mamba);

static const RefitTemplate attention[] = {
    REFIT_MATRIX("mixer.q_proj.weight", ATTENTION_Q, Q_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mixer.k_proj.weight", ATTENTION_K, KV_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mixer.v_proj.weight", ATTENTION_V, KV_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mixer.o_proj.weight", ATTENTION_O, HIDDEN_SIZE, Q_WIDTH, NONE),
};
static const RefitBlock attention_block = REFIT_BLOCK(attention);

static const RefitTemplate router[] = {
    REFIT_MATRIX("mixer.gate.weight", ROUTER, EXPERTS, HIDDEN_SIZE, NONE),
    REFIT_VECTOR_F32("mixer.gate.e_score_correction_bias", ROUTER, EXPERTS, NONE),
    REFIT_MATRIX("mixer.fc1_latent_proj.weight", LATENT_PROJ, MOE_LATENT_SIZE, HIDDEN_SIZE,
                 MOE_LATENT_SIZE),
    REFIT_MATRIX("mixer.fc2_latent_proj.weight", LATENT_PROJ, HIDDEN_SIZE, MOE_LATENT_SIZE,
                 MOE_LATENT_SIZE),
};
static const RefitBlock router_block = REFIT_BLOCK(router);

static const RefitTemplate expert[] = {
    REFIT_MATRIX("up_proj.weight", EXPERT_UP, MOE_INTERMEDIATE_SIZE, EXPERT_HIDDEN, NONE),
    REFIT_MATRIX("down_proj.weight", EXPERT_DOWN, EXPERT_HIDDEN, MOE_INTERMEDIATE_SIZE, NONE),
};
static const RefitBlock expert_block = REFIT_BLOCK(expert);

static const RefitTemplate shared[] = {
    REFIT_MATRIX("mixer.shared_experts.up_proj.weight", SHARED_UP, SHARED_SIZE, HIDDEN_SIZE,
                 SHARED_SIZE),
    REFIT_MATRIX("mixer.shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN_SIZE, SHARED_SIZE,
                 SHARED_SIZE),
};
static const RefitBlock shared_block = REFIT_BLOCK(shared);

static const RefitTemplate ffn[] = {
    REFIT_MATRIX("mixer.up_proj.weight", DENSE_UP, INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mixer.down_proj.weight", DENSE_DOWN, HIDDEN_SIZE, INTERMEDIATE_SIZE, NONE),
};
static const RefitBlock ffn_block = REFIT_BLOCK(ffn);

static const RefitTemplate mtp_begin[] = {
    REFIT_MATRIX("eh_proj.weight", MTP_PROJ, HIDDEN_SIZE, TWICE_HIDDEN, NONE),
    REFIT_VECTOR("enorm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("hnorm.weight", NORM, HIDDEN_SIZE, NONE),
};
static const RefitBlock mtp_begin_block = REFIT_BLOCK(mtp_begin);

static const RefitTemplate mtp_end[] = {
    REFIT_VECTOR("final_layernorm.weight", NORM, HIDDEN_SIZE, NONE),
};
static const RefitBlock mtp_end_block = REFIT_BLOCK(mtp_end);

static const RefitFactUse uses[] = {
    {REFIT_FACT_HIDDEN_SIZE, TRUE},
    {REFIT_FACT_VOCAB_SIZE, TRUE},
    {REFIT_FACT_NUM_HIDDEN_LAYERS, TRUE},
    {REFIT_FACT_NUM_NEXTN_PREDICT_LAYERS, FALSE},
    {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE},
    {REFIT_FACT_NUM_ATTENTION_HEADS, TRUE},
    {REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE},
    {REFIT_FACT_HEAD_DIM, FALSE},
    {REFIT_FACT_MAMBA_NUM_HEADS, TRUE},
    {REFIT_FACT_MAMBA_HEAD_DIM, TRUE},
    {REFIT_FACT_N_GROUPS, TRUE},
    {REFIT_FACT_SSM_STATE_SIZE, TRUE},
    {REFIT_FACT_CONV_KERNEL, TRUE},
    {REFIT_FACT_USE_CONV_BIAS, FALSE},
    {REFIT_FACT_INTERMEDIATE_SIZE, FALSE},
    {REFIT_FACT_N_ROUTED_EXPERTS, FALSE},
    {REFIT_FACT_N_SHARED_EXPERTS, FALSE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE},
    {REFIT_FACT_MOE_INTERMEDIATE_SIZE, FALSE},
    {REFIT_FACT_MOE_LATENT_SIZE, FALSE},
    {REFIT_FACT_MOE_SHARED_EXPERT_INTERMEDIATE_SIZE, FALSE},
};

/* Keys that layers of a kind need. */
static const struct {
    char kind;
    const char *key;
} needs[] = {
    {'-', "intermediate_size"},
    {'E', "n_routed_experts"},
    {'E', "n_shared_experts"},
    {'E', "moe_intermediate_size"},
    {'E', "moe_shared_expert_intermediate_size"},
};

static gboolean check_needs(RefitNode *config, const char *pattern, GError **error) {
    for (guint i = 0; i < G_N_ELEMENTS(needs); i++) {
        if (strchr(pattern, needs[i].kind) != NULL &&
            refit_node_require(config, needs[i].key, error) == NULL) {
            return FALSE;
        }
    }
    return TRUE;
}

#define LETTERS "M*E-"

/* The letters of the layers under `key`, of which `allowed` are known. */
static const char *read_pattern(RefitNode *config, const char *key, const char *allowed,
                                GError **error) {
    const char *pattern = NULL;
    RefitNode *node = refit_node_require(config, key, error);
    if (node == NULL || !refit_node_string(node, &pattern, error)) {
        return NULL;
    }
    if (*pattern == '\0' || strspn(pattern, allowed) != strlen(pattern)) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "\"%s\" is not a pattern of layers; use only the letters %s", pattern,
                         allowed);
        return NULL;
    }
    return pattern;
}

static gboolean emit_mixer(RefitModelBuilder *builder, char kind, const guint64 *facts,
                           GError **error) {
    if (!refit_model_builder_emit(builder, &norm_block, facts, error)) {
        return FALSE;
    }
    if (kind == 'M') {
        return refit_model_builder_emit(builder, &mamba_block, facts, error);
    }
    if (kind == '*') {
        return refit_model_builder_emit(builder, &attention_block, facts, error);
    }
    if (kind == '-') {
        return refit_model_builder_emit(builder, &ffn_block, facts, error);
    }
    return refit_model_builder_emit(builder, &router_block, facts, error) &&
           refit_model_builder_emit_experts(builder, &expert_block, "mixer.experts.",
                                            builder->n_experts, facts, error) &&
           refit_model_builder_emit(builder, &shared_block, facts, error);
}

static gboolean emit_main(RefitModelBuilder *builder, const char *pattern, const guint64 *facts,
                          GError **error) {
    if (!refit_model_builder_emit(builder, &global_block, facts, error)) {
        return FALSE;
    }
    for (guint layer = 0; layer < builder->n_layers; layer++) {
        refit_model_builder_enter(builder, (gint)layer, FALSE, "backbone.layers.%u.", layer);
        if (!emit_mixer(builder, pattern[layer], facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_leave(builder);
    return refit_model_builder_emit(builder, &output_block, facts, error);
}

/* MTP layers count on over all stages; projection and norms go with the ends of a stage. */
static gboolean emit_mtp(RefitModelBuilder *builder, const char *pattern, const guint64 *facts,
                         GError **error) {
    gsize length = strlen(pattern);
    guint64 n = facts[REFIT_FACT_NUM_NEXTN_PREDICT_LAYERS] * length;
    for (guint64 i = 0; i < n; i++) {
        gsize at = (gsize)(i % length);
        refit_model_builder_enter(builder, (gint)(builder->n_layers + i), TRUE, "mtp.layers.%u.",
                                  (guint)i);
        if ((at == 0 && !refit_model_builder_emit(builder, &mtp_begin_block, facts, error)) ||
            !emit_mixer(builder, pattern[at], facts, error) ||
            (at == length - 1 &&
             !refit_model_builder_emit(builder, &mtp_end_block, facts, error))) {
            return FALSE;
        }
    }
    refit_model_builder_leave(builder);
    return TRUE;
}

static void derive_widths(guint64 *facts) {
    guint64 heads = facts[REFIT_FACT_MAMBA_NUM_HEADS];
    guint64 latent = facts[REFIT_FACT_MOE_LATENT_SIZE];
    facts[REFIT_FACT_MAMBA_WIDTH] = heads * facts[REFIT_FACT_MAMBA_HEAD_DIM];
    facts[REFIT_FACT_MAMBA_STATES] = facts[REFIT_FACT_N_GROUPS] * facts[REFIT_FACT_SSM_STATE_SIZE];
    facts[REFIT_FACT_MAMBA_CONV] =
        facts[REFIT_FACT_MAMBA_WIDTH] + 2 * facts[REFIT_FACT_MAMBA_STATES];
    facts[REFIT_FACT_MAMBA_IN] =
        facts[REFIT_FACT_MAMBA_WIDTH] + facts[REFIT_FACT_MAMBA_CONV] + heads;
    facts[REFIT_FACT_EXPERT_HIDDEN] = latent != 0 ? latent : facts[REFIT_FACT_HIDDEN_SIZE];
    facts[REFIT_FACT_SHARED_SIZE] =
        facts[REFIT_FACT_MOE_SHARED_EXPERT_INTERMEDIATE_SIZE] * facts[REFIT_FACT_N_SHARED_EXPERTS];
}

static gboolean expand_nemotron_h(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config = refit_family_config(root, error);
    if (config == NULL) {
        return FALSE;
    }
    /* Known before the facts are read, which refuses what nobody asked for. */
    RefitNode *place = refit_node_get(config, "hybrid_override_pattern");
    refit_node_get(config, "mtp_hybrid_override_pattern");
    if (!refit_family_read(builder, config, uses, G_N_ELEMENTS(uses), facts, error) ||
        !refit_family_derive_gqa(builder, config, facts, error)) {
        return FALSE;
    }
    const char *pattern = read_pattern(config, "hybrid_override_pattern", LETTERS, error);
    if (pattern == NULL || !check_needs(config, pattern, error)) {
        return FALSE;
    }
    if (strchr(pattern, 'E') != NULL &&
        !refit_family_derive_experts(builder, config, REFIT_FACT_N_ROUTED_EXPERTS,
                                     REFIT_FACT_NUM_EXPERTS_PER_TOK, facts, error)) {
        return FALSE;
    }
    if (strlen(pattern) != builder->n_layers) {
        refit_node_error(place, REFIT_ERROR_INVALID, error,
                         "has %" G_GSIZE_FORMAT " letters, but num_hidden_layers is %u",
                         strlen(pattern), builder->n_layers);
        return FALSE;
    }
    derive_widths(facts);
    if (!emit_main(builder, pattern, facts, error)) {
        return FALSE;
    }
    if (facts[REFIT_FACT_NUM_NEXTN_PREDICT_LAYERS] == 0) {
        return TRUE;
    }
    const char *mtp_pattern = read_pattern(config, "mtp_hybrid_override_pattern", LETTERS, error);
    return mtp_pattern != NULL && check_needs(config, mtp_pattern, error) &&
           emit_mtp(builder, mtp_pattern, facts, error);
}

const RefitModelFamily refit_model_family_nemotron_h = {
    "nemotron_h", "Nemotron-H and 3: Mamba-2, attention, experts and FFNs by a pattern of layers",
    expand_nemotron_h};
