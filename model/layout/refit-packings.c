/*
 * Packings of the frameworks: which logical tensors share a parameter, in what order, and what the
 * engine calls it. Data only, one row per role and ending; refit-view.h says how rows are read. The
 * page docs/layouts.md is made from these tables.
 *
 * Layer numbers stay those of the model. Norms that an engine folds into the linear layer after
 * them are listed under the names they have when it does not. MTP layers keep the beginning of
 * their hub names.
 */

#include "model/layout/refit-view.h"

/* ---- what vLLM and SGLang share ---- */

#define ENGINE_ATTENTION                                                                           \
    {REFIT_ROLE_ATTENTION_Q, "q_proj.*", "qkv_proj.*", .pack = REFIT_PACK_CONCAT},                 \
        {REFIT_ROLE_ATTENTION_K, "k_proj.*", "qkv_proj.*", .pack = REFIT_PACK_CONCAT, .part = 1},  \
    {                                                                                              \
        REFIT_ROLE_ATTENTION_V, "v_proj.*", "qkv_proj.*", .pack = REFIT_PACK_CONCAT, .part = 2     \
    }

/* Mamba mixers keep the decays that they multiply by, where the hub has their logarithms. */
#define ENGINE_SSM                                                                                 \
    {REFIT_ROLE_SSM_HEAD, "mixer.A_log", "mixer.A", .pack = REFIT_PACK_OWN, .values = "-exp(x)"},  \
        {REFIT_ROLE_SSM_IN, "in_proj_qkv.*", "in_proj_qkvz.*", .pack = REFIT_PACK_CONCAT},         \
        {REFIT_ROLE_SSM_IN, "in_proj_z.*", "in_proj_qkvz.*", .pack = REFIT_PACK_CONCAT,            \
         .part = 1},                                                                               \
        {REFIT_ROLE_SSM_IN, "in_proj_b.*", "in_proj_ba.*", .pack = REFIT_PACK_CONCAT}, {           \
        REFIT_ROLE_SSM_IN, "in_proj_a.*", "in_proj_ba.*", .pack = REFIT_PACK_CONCAT, .part = 1     \
    }

/* Without a gate the up projection stands alone. */
#define ENGINE_FFN                                                                                 \
    {REFIT_ROLE_DENSE_GATE, "gate_proj.*", "gate_up_proj.*", .pack = REFIT_PACK_CONCAT},           \
        {REFIT_ROLE_DENSE_UP, "mixer.up_proj.*", "mixer.up_proj.*", .pack = REFIT_PACK_OWN},       \
        {REFIT_ROLE_DENSE_UP, "up_proj.*", "gate_up_proj.*", .pack = REFIT_PACK_CONCAT,            \
         .part = 1},                                                                               \
        {REFIT_ROLE_SHARED_GATE, "gate_proj.*", "gate_up_proj.*", .pack = REFIT_PACK_CONCAT},      \
        {REFIT_ROLE_SHARED_UP, "mixer.shared_experts.up_proj.*", "mixer.shared_experts.up_proj.*", \
         .pack = REFIT_PACK_OWN},                                                                  \
    {                                                                                              \
        REFIT_ROLE_SHARED_UP, "up_proj.*", "gate_up_proj.*", .pack = REFIT_PACK_CONCAT, .part = 1  \
    }

#define ENGINE_W13(role, ending, number)                                                           \
    {                                                                                              \
        REFIT_ROLE_##role, ending, "experts.w13_*", .pack = REFIT_PACK_CONCAT, .part = number,     \
                                                    .stacked = TRUE                                \
    }
#define ENGINE_W2(role, ending)                                                                    \
    { REFIT_ROLE_##role, ending, "experts.w2_*", .pack = REFIT_PACK_OWN, .stacked = TRUE }
#define ENGINE_STACK(role, ending, parameter)                                                      \
    { REFIT_ROLE_##role, ending, parameter, .pack = REFIT_PACK_OWN, .stacked = TRUE }
#define ENGINE_STACK_T(role, ending, parameter)                                                    \
    {                                                                                              \
        REFIT_ROLE_##role, ending, parameter, .pack = REFIT_PACK_OWN, .stacked = TRUE,             \
                                              .transposed = TRUE                                   \
    }

#define ENGINE_EXPERTS                                                                             \
    ENGINE_W13(EXPERT_GATE, "experts.#.gate_proj.*", 0),                                           \
        ENGINE_W13(EXPERT_UP, "experts.#.up_proj.*", 1),                                           \
        ENGINE_W2(EXPERT_DOWN, "experts.#.down_proj.*"),                                           \
        ENGINE_W13(EXPERT_GATE, "experts.#.w1.*", 0), ENGINE_W13(EXPERT_UP, "experts.#.w3.*", 1),  \
        ENGINE_W2(EXPERT_DOWN, "experts.#.w2.*"),                                                  \
        ENGINE_STACK(EXPERT_GATE_UP, "experts.gate_up_proj", "experts.w13_weight"),                \
        ENGINE_STACK(EXPERT_DOWN, "experts.down_proj", "experts.w2_weight"),                       \
        ENGINE_STACK(EXPERT_GATE_UP, "experts.gate_up_proj_blocks", "experts.w13_weight"),         \
        ENGINE_STACK(EXPERT_GATE_UP, "experts.gate_up_proj_scales", "experts.w13_weight_scale"),   \
        ENGINE_STACK(EXPERT_DOWN, "experts.down_proj_blocks", "experts.w2_weight"),                \
        ENGINE_STACK(EXPERT_DOWN, "experts.down_proj_scales", "experts.w2_weight_scale"),          \
        ENGINE_STACK_T(EXPERT_GATE_UP_T, "experts.gate_up_proj", "experts.w13_weight"),            \
        ENGINE_STACK_T(EXPERT_GATE_UP_HALVES_T, "experts.gate_up_proj", "experts.w13_weight"),     \
        ENGINE_STACK_T(EXPERT_DOWN_T, "experts.down_proj", "experts.w2_weight")
#define ENGINE_EXPERT_BIASES(w13, w2)                                                              \
    ENGINE_STACK(EXPERT_GATE_UP_BIAS, "experts.gate_up_proj_bias", "experts." w13),                \
        ENGINE_STACK(EXPERT_DOWN_BIAS, "experts.down_proj_bias", "experts." w2)

const RefitPacking refit_packings_vllm[] = {
    ENGINE_ATTENTION,
    {REFIT_ROLE_MLA_Q_A, "q_a_proj.*", "fused_qkv_a_proj.*", .pack = REFIT_PACK_CONCAT},
    {REFIT_ROLE_MLA_KV_A, "kv_a_proj_with_mqa.*", "fused_qkv_a_proj.*", .pack = REFIT_PACK_CONCAT,
     .part = 1, .option = REFIT_PACKING_COMPRESSED_Q},
    ENGINE_SSM,
    ENGINE_FFN,
    ENGINE_EXPERTS,
    ENGINE_EXPERT_BIASES("w13_bias", "w2_bias"),
    {.parameter = NULL},
};

const char *const refit_prefixes_vllm[] = {
    "model.language_model.\tlanguage_model.model.",
    "backbone.embeddings.\tmodel.embed_tokens.",
    "backbone.\tmodel.",
    NULL,
};

#define SGLANG_SLOT(role, ending, to, number)                                                      \
    {                                                                                              \
        REFIT_ROLE_##role, "shared_experts." ending, "experts." to,                                \
            .pack = REFIT_PACK_CONCAT, .part = number, .stacked = TRUE,                            \
            .option = REFIT_PACKING_SHARED_SLOT                                                    \
    }

const RefitPacking refit_packings_sglang[] = {
    ENGINE_ATTENTION,
    {REFIT_ROLE_MLA_Q_A, "q_a_proj.*", "fused_qkv_a_proj_with_mqa.*", .pack = REFIT_PACK_CONCAT},
    {REFIT_ROLE_MLA_KV_A, "kv_a_proj_with_mqa.*", "fused_qkv_a_proj_with_mqa.*",
     .pack = REFIT_PACK_CONCAT, .part = 1, .option = REFIT_PACKING_COMPRESSED_Q},
    ENGINE_SSM,
    SGLANG_SLOT(SHARED_GATE, "gate_proj.*", "w13_*", 0),
    SGLANG_SLOT(SHARED_UP, "up_proj.*", "w13_*", 1),
    SGLANG_SLOT(SHARED_DOWN, "down_proj.*", "w2_*", 0),
    ENGINE_FFN,
    ENGINE_EXPERTS,
    ENGINE_EXPERT_BIASES("w13_weight_bias", "w2_weight_bias"),
    {.parameter = NULL},
};

const char *const refit_prefixes_sglang[] = {
    "model.language_model.\tmodel.",
    "backbone.embeddings.\tmodel.embed_tokens.",
    "backbone.\tmodel.",
    NULL,
};

/* ---- Megatron ---- */

#define MEGATRON(role, ending, parameter)                                                          \
    { REFIT_ROLE_##role, ending, parameter, .pack = REFIT_PACK_OWN }
#define MEGATRON_QKV(module)                                                                       \
    {REFIT_ROLE_ATTENTION_Q, module ".q_proj.*", "self_attention.linear_qkv.*",                    \
     .pack = REFIT_PACK_KV_GROUP},                                                                 \
        {REFIT_ROLE_ATTENTION_K, module ".k_proj.*", "self_attention.linear_qkv.*",                \
         .pack = REFIT_PACK_KV_GROUP, .part = 1},                                                  \
        {REFIT_ROLE_ATTENTION_V, module ".v_proj.*", "self_attention.linear_qkv.*",                \
         .pack = REFIT_PACK_KV_GROUP, .part = 2},                                                  \
        MEGATRON(ATTENTION_O, module ".o_proj.*", "self_attention.linear_proj.*")
#define MEGATRON_GATED(role, from, to)                                                             \
    {REFIT_ROLE_##role##_GATE, from ".gate_proj.*", to ".linear_fc1.*",                            \
     .pack = REFIT_PACK_CONCAT},                                                                   \
        {REFIT_ROLE_##role##_UP, from ".up_proj.*", to ".linear_fc1.*", .pack = REFIT_PACK_CONCAT, \
         .part = 1},                                                                               \
        MEGATRON(role##_DOWN, from ".down_proj.*", to ".linear_fc2.*")
#define MEGATRON_IN(from, number)                                                                  \
    {                                                                                              \
        REFIT_ROLE_SSM_IN, "linear_attn.in_proj_" from ".*", "self_attention.in_proj.*",           \
            .pack = REFIT_PACK_CONCAT, .part = number                                              \
    }

/* With one parameter for all experts of a layer, else with one for each. */
#define MEGATRON_EXPERT(role, ending, to, how, number, turned, kind)                               \
    {REFIT_ROLE_##role,                                                                            \
     ending,                                                                                       \
     "mlp.experts." to,                                                                            \
     .pack = REFIT_PACK_##how,                                                                     \
     .part = number,                                                                               \
     .stacked = TRUE,                                                                              \
     .transposed = turned,                                                                         \
     .inner = REFIT_INNER_##kind,                                                                  \
     .option = REFIT_PACKING_GROUPED_EXPERTS},                                                     \
    {                                                                                              \
        REFIT_ROLE_##role, ending, "mlp.experts." to "#", .pack = REFIT_PACK_##how,                \
                                                          .part = number, .transposed = turned,    \
                                                          .inner = REFIT_INNER_##kind              \
    }
#define MEGATRON_EXPERTS(module, gate, up, down)                                                   \
    MEGATRON_EXPERT(EXPERT_GATE, module ".experts.#." gate ".*", "linear_fc1.*", BLOCKS, 0, FALSE, \
                    ONE),                                                                          \
        MEGATRON_EXPERT(EXPERT_UP, module ".experts.#." up ".*", "linear_fc1.*", BLOCKS, 1, FALSE, \
                        ONE),                                                                      \
        MEGATRON_EXPERT(EXPERT_DOWN, module ".experts.#." down ".*", "linear_fc2.*", OWN, 0,       \
                        FALSE, ONE)

const RefitPacking refit_packings_megatron[] = {
    MEGATRON(EMBEDDING, "embed_tokens.*", "/embedding.word_embeddings.*"),
    MEGATRON(EMBEDDING, "embeddings.*", "/embedding.word_embeddings.*"),
    MEGATRON(LM_HEAD, "lm_head.*", "/output_layer.*"),
    MEGATRON(NORM, "model.norm.*", "/decoder.final_layernorm.*"),
    MEGATRON(NORM, "language_model.norm.*", "/decoder.final_layernorm.*"),
    MEGATRON(NORM, "backbone.norm_f.*", "/decoder.final_norm.*"),
    MEGATRON(NORM, "post_attention_layernorm.*", "pre_mlp_layernorm.*"),
    MEGATRON(NORM, "self_attn.q_norm.*", "self_attention.q_layernorm.*"),
    MEGATRON(NORM, "self_attn.k_norm.*", "self_attention.k_layernorm.*"),
    MEGATRON(NORM, "self_attn.q_a_layernorm.*", "self_attention.q_layernorm.*"),
    MEGATRON(NORM, "self_attn.kv_a_layernorm.*", "self_attention.kv_layernorm.*"),
    /* Megatron-Core has this norm, too, centred on 0, where the hub has it on 1. */
    {REFIT_ROLE_NORM, "linear_attn.norm.*", "self_attention.out_norm.*", .pack = REFIT_PACK_OWN,
     .values = "x - 1"},
    MEGATRON(ATTENTION_Q_NORM, "self_attn.q_norm.*", "self_attention.q_layernorm.*"),
    MEGATRON(ATTENTION_K_NORM, "self_attn.k_norm.*", "self_attention.k_layernorm.*"),
    MEGATRON_QKV("self_attn"),
    MEGATRON_QKV("mixer"),
    MEGATRON(MLA_Q_A, "self_attn.q_a_proj.*", "self_attention.linear_q_down_proj.*"),
    MEGATRON(MLA_Q_B, "self_attn.q_b_proj.*", "self_attention.linear_q_up_proj.*"),
    MEGATRON(MLA_Q_B, "self_attn.q_proj.*", "self_attention.linear_q_proj.*"),
    MEGATRON(MLA_KV_A, "self_attn.kv_a_proj_with_mqa.*", "self_attention.linear_kv_down_proj.*"),
    MEGATRON(MLA_KV_B, "self_attn.kv_b_proj.*", "self_attention.linear_kv_up_proj.*"),
    MEGATRON_IN("qkv", 0),
    MEGATRON_IN("z", 1),
    MEGATRON_IN("b", 2),
    MEGATRON_IN("a", 3),
    MEGATRON(SSM_CONV, "linear_attn.conv1d.*", "self_attention.conv1d.*"),
    MEGATRON(SSM_HEAD, "linear_attn.*", "self_attention.*"),
    MEGATRON(SSM_OUT, "linear_attn.out_proj.*", "self_attention.out_proj.*"),
    MEGATRON(ROUTER, "mlp.gate.weight", "mlp.router.weight"),
    MEGATRON(ROUTER, "mlp.gate.e_score_correction_bias", "mlp.router.expert_bias"),
    MEGATRON(ROUTER, "mixer.gate.weight", "mlp.router.weight"),
    MEGATRON(ROUTER, "mixer.gate.e_score_correction_bias", "mlp.router.expert_bias"),
    MEGATRON(ROUTER, "block_sparse_moe.gate.weight", "mlp.router.weight"),
    MEGATRON(ROUTER, "block_sparse_moe.gate.e_score_correction_bias", "mlp.router.expert_bias"),
    MEGATRON(ROUTER, "block_sparse_moe.e_score_correction_bias", "mlp.router.expert_bias"),
    MEGATRON_GATED(DENSE, "mlp", "mlp"),
    MEGATRON(DENSE_UP, "mixer.up_proj.*", "mlp.linear_fc1.*"),
    MEGATRON(DENSE_DOWN, "mixer.down_proj.*", "mlp.linear_fc2.*"),
    MEGATRON_GATED(SHARED, "mlp.shared_experts", "mlp.shared_experts"),
    MEGATRON_GATED(SHARED, "mlp.shared_expert", "mlp.shared_experts"),
    MEGATRON_GATED(SHARED, "mixer.shared_experts", "mlp.shared_experts"),
    MEGATRON_GATED(SHARED, "block_sparse_moe.shared_experts", "mlp.shared_experts"),
    MEGATRON(SHARED_EXPERT_GATE, "mlp.shared_expert_gate.*", "mlp.shared_experts.gate_*"),
    MEGATRON(LATENT_PROJ, "mixer.fc1_latent_proj.*", "mlp.fc1_latent_proj.*"),
    MEGATRON(LATENT_PROJ, "mixer.fc2_latent_proj.*", "mlp.fc2_latent_proj.*"),
    MEGATRON_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
    MEGATRON_EXPERTS("mixer", "gate_proj", "up_proj", "down_proj"),
    MEGATRON_EXPERTS("block_sparse_moe", "w1", "w3", "w2"),
    MEGATRON_EXPERT(EXPERT_GATE_UP, "mlp.experts.gate_up_proj", "linear_fc1.weight", BLOCKS, 0,
                    FALSE, HALVES),
    MEGATRON_EXPERT(EXPERT_DOWN, "mlp.experts.down_proj", "linear_fc2.weight", OWN, 0, FALSE, ONE),
    MEGATRON_EXPERT(EXPERT_GATE_UP_T, "mlp.experts.gate_up_proj", "linear_fc1.weight", BLOCKS, 0,
                    TRUE, PAIRS),
    MEGATRON_EXPERT(EXPERT_GATE_UP_HALVES_T, "mlp.experts.gate_up_proj", "linear_fc1.weight",
                    BLOCKS, 0, TRUE, HALVES),
    MEGATRON_EXPERT(EXPERT_DOWN_T, "mlp.experts.down_proj", "linear_fc2.weight", OWN, 0, TRUE, ONE),
    MEGATRON_EXPERT(EXPERT_GATE_UP_BIAS, "mlp.experts.gate_up_proj_bias", "linear_fc1.bias", BLOCKS,
                    0, FALSE, PAIRS),
    MEGATRON_EXPERT(EXPERT_DOWN_BIAS, "mlp.experts.down_proj_bias", "linear_fc2.bias", OWN, 0,
                    FALSE, ONE),
    {.parameter = NULL},
};

const char *const refit_prefixes_megatron[] = {
    "model.language_model.layers.\tdecoder.layers.",
    "model.layers.\tdecoder.layers.",
    "backbone.layers.\tdecoder.layers.",
    "language_model.model.layers.\tdecoder.layers.",
    NULL,
};
