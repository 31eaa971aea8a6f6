/*
 * Families whose layers differ from each other or that have unusual tensors: Qwen3.5, Mixtral and
 * MiniMax-M2, GLM-4.5, gpt-oss, Nemotron-H, Kimi K3. Covers single tensors worked out by hand, all
 * of a layer in order, optional parts, published totals of siblings that are not shipped, and the
 * refusals that these families add.
 */

#include "test-model.h"

/* ---- GLM-4.5 ---- */

static void test_glm(void) {
    g_autoptr(RefitModel) model = load("glm-4.5", BF16, TRUE);
    expect(model, "model.layers.0.self_attn.q_proj.bias 12288 BF16 attention_q 0 -1");
    expect(model, "model.layers.0.self_attn.k_norm.weight 128 BF16 norm 0 -1");
    expect(model, "model.layers.2.mlp.up_proj.weight 12288x5120 BF16 dense_up 2 -1");
    expect(model, "model.layers.3.mlp.gate.e_score_correction_bias 160 F32 router 3 -1");
    expect(model, "model.layers.92.self_attn.v_proj.bias 1024 BF16 attention_v 92 -1 mtp");
    expect(model, "model.layers.92.shared_head.head.weight 151552x5120 BF16 lm_head 92 -1 mtp");
    g_assert_null(find(model, "model.layers.0.self_attn.o_proj.bias"));
    g_assert_null(find(model, "model.layers.0.self_attn.q_a_proj.weight"));
    g_assert_cmpuint(refit_model_n_layers(model), ==, 92);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 8);
}

/* ---- Mixtral, MiniMax-M2 ---- */

static void test_mixtral(void) {
    g_autoptr(RefitModel) model = load("mixtral-8x7b", BF16, FALSE);
    expect_at(model, 8, "model.layers.0.block_sparse_moe.gate.weight 8x4096 BF16 router 0 -1");
    expect_at(model, 9,
              "model.layers.0.block_sparse_moe.experts.0.w1.weight 14336x4096 BF16 expert_gate 0 "
              "0");
    expect_at(model, 10,
              "model.layers.0.block_sparse_moe.experts.0.w3.weight 14336x4096 BF16 expert_up 0 0");
    expect_at(model, 11,
              "model.layers.0.block_sparse_moe.experts.0.w2.weight 4096x14336 BF16 expert_down 0 "
              "0");
    g_assert_null(find(model, "model.layers.0.self_attn.q_norm.weight"));
}

static void test_minimax(void) {
    g_autoptr(RefitModel) model = load("minimax-m2", BF16, FALSE);
    expect(model, "model.layers.0.self_attn.q_norm.weight 6144 BF16 attention_q_norm 0 -1");
    expect(model, "model.layers.0.self_attn.k_norm.weight 1024 BF16 attention_k_norm 0 -1");
    expect(model, "model.layers.0.block_sparse_moe.gate.weight 256x3072 F32 router 0 -1");
    expect(model, "model.layers.61.block_sparse_moe.e_score_correction_bias 256 F32 router 61 -1");
    /* 62 routers of 256 x 3072 and their biases have two bytes more than the rest. */
    g_assert_cmpuint(refit_model_bytes(model) - 2 * refit_model_parameters(model), ==,
                     62 * 256 * (3072 + 1) * 2);
}

/* ---- gpt-oss ---- */

static void test_gpt_oss(void) {
    static const char *const layer[] = {
        "model.layers.35.self_attn.o_proj.bias 2880 BF16 attention_o 35 -1",
        "model.layers.35.self_attn.sinks 64 BF16 attention_sink 35 -1",
        "model.layers.35.mlp.router.weight 128x2880 BF16 router 35 -1",
        "model.layers.35.mlp.router.bias 128 BF16 router 35 -1",
        "model.layers.35.mlp.experts.gate_up_proj 128x2880x5760 BF16 expert_gate_up_t 35 -1",
        "model.layers.35.mlp.experts.gate_up_proj_bias 128x5760 BF16 expert_gate_up_bias 35 -1",
        "model.layers.35.mlp.experts.down_proj 128x2880x2880 BF16 expert_down_t 35 -1",
        "model.layers.35.mlp.experts.down_proj_bias 128x2880 BF16 expert_down_bias 35 -1",
        "model.norm.weight 2880 BF16 norm -1 -1",
    };
    g_autoptr(RefitModel) model = load("gpt-oss-120b", BF16, FALSE);
    for (guint i = 0; i < G_N_ELEMENTS(layer); i++) {
        expect_at(model, 615 - G_N_ELEMENTS(layer) + i, layer[i]);
    }
    g_assert_cmpuint(refit_model_n_experts(model), ==, 128);
}

/* ---- Qwen3.5, Qwen3.8 ---- */

static void test_qwen3_5(void) {
    static const char *const layer[] = {
        "input_layernorm.weight 4096 BF16 norm 4 -1",
        "post_attention_layernorm.weight 4096 BF16 norm 4 -1",
        "linear_attn.A_log 64 F32 ssm_head 4 -1",
        "linear_attn.dt_bias 64 BF16 ssm_head 4 -1",
        "linear_attn.conv1d.weight 12288x1x4 BF16 ssm_conv 4 -1",
        "linear_attn.in_proj_qkv.weight 12288x4096 BF16 ssm_in 4 -1",
        "linear_attn.in_proj_z.weight 8192x4096 BF16 ssm_in 4 -1",
        "linear_attn.in_proj_a.weight 64x4096 BF16 ssm_in 4 -1",
        "linear_attn.in_proj_b.weight 64x4096 BF16 ssm_in 4 -1",
        "linear_attn.norm.weight 128 F32 norm 4 -1",
        "linear_attn.out_proj.weight 4096x8192 BF16 ssm_out 4 -1",
        "mlp.gate.weight 512x4096 BF16 router 4 -1",
        "mlp.experts.gate_up_proj 512x2048x4096 BF16 expert_gate_up 4 -1",
        "mlp.experts.down_proj 512x4096x1024 BF16 expert_down 4 -1",
        "mlp.shared_expert.gate_proj.weight 1024x4096 BF16 shared_gate 4 -1",
        "mlp.shared_expert.up_proj.weight 1024x4096 BF16 shared_up 4 -1",
        "mlp.shared_expert.down_proj.weight 4096x1024 BF16 shared_down 4 -1",
        "mlp.shared_expert_gate.weight 1x4096 BF16 shared_expert_gate 4 -1",
    };
    g_autoptr(RefitModel) model = load("qwen3.5-397b-a17b", BF16, TRUE);
    for (guint i = 0; i < G_N_ELEMENTS(layer); i++) {
        g_autofree char *expected = g_strconcat("model.language_model.layers.4.", layer[i], NULL);
        /* 2 global, three linear layers of 18 and one of 15 with full attention. */
        expect_at(model, 2 + 3 * 18 + 15 + i, expected);
    }
    expect(model, "model.language_model.layers.3.self_attn.q_proj.weight 16384x4096 BF16 "
                  "attention_q 3 -1");
    expect(model, "model.language_model.layers.59.self_attn.o_proj.weight 4096x8192 BF16 "
                  "attention_o 59 -1");
    expect(model, "mtp.layers.0.mlp.experts.511.down_proj.weight 4096x1024 BF16 expert_down 60 511 "
                  "mtp");
    expect(model, "mtp.fc.weight 4096x8192 BF16 mtp_proj 60 -1 mtp");
    expect(model, "mtp.pre_fc_norm_hidden.weight 4096 BF16 norm 60 -1 mtp");
    expect(model, "model.visual.patch_embed.proj.weight 1152x3x2x16x16 BF16 vision -1 -1");
    expect(model, "model.visual.blocks.26.attn.qkv.weight 3456x1152 BF16 vision -1 -1");
    expect(model, "model.visual.merger.linear_fc2.weight 4096x4608 BF16 vision -1 -1");
    g_assert_null(find(model, "model.language_model.layers.3.linear_attn.A_log"));
    g_assert_null(find(model, "mtp.layers.0.mlp.experts.gate_up_proj"));
    g_assert_cmpuint(refit_model_n_layers(model), ==, 60);
}

/* Text only, stacked experts in the MTP layer too, nothing in F32. */
static void test_qwen3_8(void) {
    g_autoptr(RefitModel) model = load("qwen3.8-2.4t-a95b", BF16, TRUE);
    expect(model, "model.layers.0.linear_attn.A_log 128 BF16 ssm_head 0 -1");
    expect(model, "mtp.layers.0.mlp.experts.gate_up_proj 512x4096x8192 BF16 expert_gate_up 92 -1 "
                  "mtp");
    g_assert_cmpuint(refit_model_bytes(model), ==, 2 * refit_model_parameters(model));
}

#define QWEN(config)                                                                               \
    HEAD("qwen3_5_moe")                                                                            \
    "config: {hidden_size: 2048, vocab_size: 248320, num_attention_heads: 16, "                    \
    "num_key_value_heads: 2, head_dim: 256, attn_output_gate: true, full_attention_interval: 4, "  \
    "linear_num_key_heads: 16, linear_num_value_heads: 32, linear_key_head_dim: 128, "             \
    "linear_value_head_dim: 128, linear_conv_kernel_dim: 4, num_experts: 256, "                    \
    "num_experts_per_tok: 8, moe_intermediate_size: 512, shared_expert_intermediate_size: 512, "   \
    "num_hidden_layers: 40, " config "}\n"
#define QWEN_VISION                                                                                \
    "vision_config: {hidden_size: 1152, intermediate_size: 4304, depth: 27, in_channels: 3, "      \
    "patch_size: 16, temporal_patch_size: 2, spatial_merge_size: 2, "                              \
    "num_position_embeddings: 2304, out_hidden_size: 2048}"

/* Qwen3.5-35B-A3B as published. */
static void test_qwen3_5_sibling(void) {
    g_autoptr(RefitModel) model =
        parse_ok(QWEN("mtp_num_hidden_layers: 1, linear_keeps_f32: true, " QWEN_VISION), TRUE);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 1811);
    g_assert_cmpuint(refit_model_parameters(model), ==, 35951822704);
}

static void test_qwen3_5_options(void) {
    g_autoptr(RefitModel) model = parse_ok(QWEN("tie_word_embeddings: true"), TRUE);
    expect_at(model, 1, "model.layers.0.input_layernorm.weight 2048 BF16 norm 0 -1");
    /* 30 layers of 18, 10 of 15, embeddings and final norm. */
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 30 * 18 + 10 * 15 + 2);
    refuse(QWEN("vision_config: 3"), REFIT_ERROR_INVALID, "m.yaml:4:", "config.vision_config: ");
    refuse(QWEN("vision_config: {depth: 1, dept: 2}"), REFIT_ERROR_INVALID,
           "m.yaml:4:", "config.vision_config.dept: ");
    refuse(QWEN("vision_config: {depth: 1}"), REFIT_ERROR_INVALID, "m.yaml:4:", "hidden_size");
    refuse(HEAD("qwen3_5_moe"), REFIT_ERROR_INVALID, "m.yaml:1:1: ", "config");
    refuse(HEAD("qwen3_5_moe") "config: [1]\n", REFIT_ERROR_INVALID, "m.yaml:4:9: config: ", "");
}

/* ---- Nemotron-H ---- */

static void test_nemotron(void) {
    static const char *const layer[] = {
        "backbone.embeddings.weight 131072x8192 BF16 embedding -1 -1",
        "backbone.layers.0.norm.weight 8192 BF16 norm 0 -1",
        "backbone.layers.0.mixer.in_proj.weight 35072x8192 BF16 ssm_in 0 -1",
        "backbone.layers.0.mixer.conv1d.weight 18432x1x4 BF16 ssm_conv 0 -1",
        "backbone.layers.0.mixer.conv1d.bias 18432 BF16 ssm_conv 0 -1",
        "backbone.layers.0.mixer.A_log 256 BF16 ssm_head 0 -1",
        "backbone.layers.0.mixer.D 256 BF16 ssm_head 0 -1",
        "backbone.layers.0.mixer.dt_bias 256 BF16 ssm_head 0 -1",
        "backbone.layers.0.mixer.norm.weight 16384 BF16 ssm_head 0 -1",
        "backbone.layers.0.mixer.out_proj.weight 8192x16384 BF16 ssm_out 0 -1",
        "backbone.layers.1.norm.weight 8192 BF16 norm 1 -1",
        "backbone.layers.1.mixer.gate.weight 512x8192 BF16 router 1 -1",
        "backbone.layers.1.mixer.gate.e_score_correction_bias 512 F32 router 1 -1",
        "backbone.layers.1.mixer.fc1_latent_proj.weight 2048x8192 BF16 latent_proj 1 -1",
        "backbone.layers.1.mixer.fc2_latent_proj.weight 8192x2048 BF16 latent_proj 1 -1",
        "backbone.layers.1.mixer.experts.0.up_proj.weight 5120x2048 BF16 expert_up 1 0",
        "backbone.layers.1.mixer.experts.0.down_proj.weight 2048x5120 BF16 expert_down 1 0",
    };
    g_autoptr(RefitModel) model = load("nemotron-3-ultra-550b-a55b", BF16, TRUE);
    for (guint i = 0; i < G_N_ELEMENTS(layer); i++) {
        expect_at(model, i, layer[i]);
    }
    expect(model, "backbone.layers.7.mixer.k_proj.weight 256x8192 BF16 attention_k 7 -1");
    expect(model, "mtp.layers.0.eh_proj.weight 8192x16384 BF16 mtp_proj 108 -1 mtp");
    expect(model, "mtp.layers.0.mixer.q_proj.weight 8192x8192 BF16 attention_q 108 -1 mtp");
    expect(model, "mtp.layers.1.mixer.experts.511.up_proj.weight 5120x2048 BF16 expert_up 109 511 "
                  "mtp");
    g_assert_null(find(model, "mtp.layers.1.eh_proj.weight"));
    g_assert_null(find(model, "mtp.layers.0.final_layernorm.weight"));
    g_assert_cmpuint(refit_model_n_layers(model), ==, 108);
}

#define NEMOTRON(config)                                                                           \
    HEAD("nemotron_h")                                                                             \
    "config: {vocab_size: 131072, num_attention_heads: 32, num_key_value_heads: 2, "               \
    "head_dim: 128, mamba_head_dim: 64, n_groups: 8, ssm_state_size: 128, conv_kernel: 4, "        \
    "n_shared_experts: 1, " config "}\n"
#define LIGHTNING                                                                                  \
    "use_conv_bias: true, hidden_size: 2688, mamba_num_heads: 64, n_routed_experts: 128, "         \
    "moe_intermediate_size: 1856, moe_shared_expert_intermediate_size: 3712, "
#define LIGHTNING_LAYERS "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
#define MTP_LAYER "num_nextn_predict_layers: 1, mtp_hybrid_override_pattern: \"*E\""

static guint64 f32_elements(const RefitModel *model) {
    guint64 elements = 0;
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        elements += tensor->dtype == REFIT_DTYPE_F32 ? tensor->elements : 0;
    }
    return elements;
}

/* Nemotron 3 Super 120B-A12B and Nemotron 3.5 Lightning 30B-A3B as published. */
static void test_nemotron_siblings(void) {
    g_autoptr(RefitModel) super = parse_ok(
        NEMOTRON("use_conv_bias: true, hidden_size: 4096, mamba_num_heads: 128, "
                 "n_routed_experts: 512, moe_intermediate_size: 2688, moe_latent_size: 1024, "
                 "moe_shared_expert_intermediate_size: 5376, num_hidden_layers: 88, "
                 "hybrid_override_pattern: MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
                 "EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME, " MTP_LAYER),
        TRUE);
    g_assert_cmpuint(f32_elements(super), ==, 20992);
    g_assert_cmpuint(refit_model_parameters(super), ==, 123611012096 + 20992);
    g_autoptr(RefitModel) lightning =
        parse_ok(NEMOTRON(LIGHTNING "num_hidden_layers: 52, "
                                    "hybrid_override_pattern: " LIGHTNING_LAYERS ", " MTP_LAYER),
                 TRUE);
    g_assert_cmpuint(f32_elements(lightning), ==, 3072);
    g_assert_cmpuint(refit_model_parameters(lightning), ==, 32913263168 + 3072);
    g_assert_null(find(lightning, "backbone.layers.1.mixer.fc1_latent_proj.weight"));
}

static void test_nemotron_mtp_stages(void) {
    g_autoptr(RefitModel) model =
        parse_ok(NEMOTRON(LIGHTNING "num_hidden_layers: 2, hybrid_override_pattern: M*, "
                                    "num_nextn_predict_layers: 2, "
                                    "mtp_hybrid_override_pattern: \"**\""),
                 TRUE);
    /* Twice: projection and two norms, two layers of 5, one norm. */
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 1 + 9 + 5 + 2 + 2 * (3 + 2 * 5 + 1));
    expect(model, "mtp.layers.2.hnorm.weight 2688 BF16 norm 4 -1 mtp");
    expect(model, "mtp.layers.3.final_layernorm.weight 2688 BF16 norm 5 -1 mtp");
    g_assert_null(find(model, "mtp.layers.1.eh_proj.weight"));
}

/* Nemotron-H: layers of plain FFNs, and no keys of experts where there are none. */
static void test_nemotron_ffn(void) {
    static const char body[] =
        HEAD("nemotron_h") "config: {vocab_size: 160, hidden_size: 32, num_attention_heads: 8, "
                           "num_key_value_heads: 2, head_dim: 8, mamba_num_heads: 16, "
                           "mamba_head_dim: 4, n_groups: 2, ssm_state_size: 8, conv_kernel: 4, "
                           "num_hidden_layers: 2, hybrid_override_pattern: M-";
    g_autofree char *whole = g_strconcat(body, ", intermediate_size: 64}\n", NULL);
    g_autofree char *none = g_strconcat(body, "}\n", NULL);
    g_autoptr(RefitModel) model = parse_ok(whole, TRUE);
    expect(model, "backbone.layers.1.mixer.up_proj.weight 64x32 BF16 dense_up 1 -1");
    expect(model, "backbone.layers.1.mixer.down_proj.weight 32x64 BF16 dense_down 1 -1");
    /* Embedding, Mamba layer without convolution bias, norm and FFN, final norm and head. */
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 1 + 8 + 3 + 2);
    g_assert_cmpuint(refit_model_n_experts(model), ==, 0);
    refuse(none, REFIT_ERROR_INVALID, "m.yaml:4:9: config: ", "\"intermediate_size\" is missing");
}

static void test_nemotron_refusals(void) {
    refuse(NEMOTRON(LIGHTNING "num_hidden_layers: 2"), REFIT_ERROR_INVALID,
           "m.yaml:4:9: config: ", "hybrid_override_pattern");
    refuse(NEMOTRON(LIGHTNING "num_hidden_layers: 2, hybrid_override_pattern: MX"),
           REFIT_ERROR_INVALID, "m.yaml:4:",
           "config.hybrid_override_pattern: \"MX\" is not a pattern of layers; use only the "
           "letters M*E-");
    refuse(NEMOTRON(LIGHTNING "num_hidden_layers: 2, hybrid_override_pattern: \"\""),
           REFIT_ERROR_INVALID, "m.yaml:4:", "\"\" is not a pattern of layers");
    refuse(NEMOTRON(LIGHTNING "num_hidden_layers: 3, hybrid_override_pattern: M*"),
           REFIT_ERROR_INVALID, "m.yaml:4:",
           "config.hybrid_override_pattern: has 2 letters, but num_hidden_layers is 3");
    refuse(NEMOTRON(LIGHTNING "num_hidden_layers: 2, hybrid_override_pattern: M*, "
                              "num_nextn_predict_layers: 1"),
           REFIT_ERROR_INVALID, "m.yaml:4:9: config: ", "mtp_hybrid_override_pattern");
    refuse(NEMOTRON(LIGHTNING "num_hidden_layers: 2, hybrid_override_pattern: M*, "
                              "num_nextn_predict_layers: 1048576, "
                              "mtp_hybrid_override_pattern: \"*E\""),
           REFIT_ERROR_INVALID, "m.yaml:4:9: config: ", "more than 4000000 tensors");
}

/* ---- Kimi K3 ---- */

static void test_kimi_k3(void) {
    static const char *const layer[] = {
        "input_layernorm.weight 7168 BF16 norm 1 -1",
        "post_attention_layernorm.weight 7168 BF16 norm 1 -1",
        "self_attention_res_norm.weight 7168 BF16 norm 1 -1",
        "self_attention_res_proj.weight 1x7168 BF16 residual_proj 1 -1",
        "mlp_res_norm.weight 7168 BF16 norm 1 -1",
        "mlp_res_proj.weight 1x7168 BF16 residual_proj 1 -1",
        "self_attn.q_proj.weight 12288x7168 BF16 ssm_in 1 -1",
        "self_attn.q_conv1d.weight 12288x1x4 F32 ssm_conv 1 -1",
        "self_attn.k_proj.weight 12288x7168 BF16 ssm_in 1 -1",
        "self_attn.k_conv1d.weight 12288x1x4 F32 ssm_conv 1 -1",
        "self_attn.v_proj.weight 12288x7168 BF16 ssm_in 1 -1",
        "self_attn.v_conv1d.weight 12288x1x4 F32 ssm_conv 1 -1",
        "self_attn.f_a_proj.weight 128x7168 BF16 ssm_low_rank 1 -1",
        "self_attn.f_b_proj.weight 12288x128 BF16 ssm_in 1 -1",
        "self_attn.b_proj.weight 96x7168 BF16 ssm_in 1 -1",
        "self_attn.g_proj.weight 12288x7168 BF16 ssm_in 1 -1",
        "self_attn.A_log 128 F32 ssm_head 1 -1",
        "self_attn.dt_bias 12288 F32 ssm_head 1 -1",
        "self_attn.o_norm.weight 128 F32 norm 1 -1",
        "self_attn.o_proj.weight 7168x12288 BF16 ssm_out 1 -1",
        "block_sparse_moe.gate.weight 896x7168 BF16 router 1 -1",
        "block_sparse_moe.gate.e_score_correction_bias 896 F32 router 1 -1",
        "block_sparse_moe.routed_expert_down_proj.weight 3584x7168 BF16 latent_proj 1 -1",
        "block_sparse_moe.routed_expert_norm.weight 3584 BF16 norm 1 -1",
        "block_sparse_moe.routed_expert_up_proj.weight 7168x3584 BF16 latent_proj 1 -1",
        "block_sparse_moe.experts.0.w1.weight 3072x3584 BF16 expert_gate 1 0",
        "block_sparse_moe.experts.0.w3.weight 3072x3584 BF16 expert_up 1 0",
        "block_sparse_moe.experts.0.w2.weight 3584x3072 BF16 expert_down 1 0",
    };
    g_autoptr(RefitModel) model = load("kimi-k3", BF16, TRUE);
    for (guint i = 0; i < G_N_ELEMENTS(layer); i++) {
        g_autofree char *expected = g_strconcat("language_model.model.layers.1.", layer[i], NULL);
        /* 2 global, 20 of a layer with delta attention and a dense FFN of 3. */
        expect_at(model, 2 + 20 + 3 + i, expected);
    }
    expect(model, "language_model.model.layers.0.mlp.up_proj.weight 33792x7168 BF16 dense_up 0 -1");
    expect(model, "language_model.model.layers.92.self_attn.g_proj.weight 12288x7168 BF16 "
                  "attention_gate 92 -1");
    expect(model, "language_model.model.layers.92.block_sparse_moe.shared_experts.down_proj.weight "
                  "7168x6144 BF16 shared_down 92 -1");
    expect(model, "language_model.model.output_attn_res_proj.weight 1x7168 BF16 residual_proj -1 "
                  "-1");
    expect(model, "vision_tower.patch_embed.pos_emb.weight 64x64x1024 BF16 vision -1 -1");
    expect(model, "vision_tower.encoder.blocks.26.wqkv.weight 4608x1024 BF16 vision -1 -1");
    expect(model, "mm_projector.proj.2.weight 7168x4096 BF16 vision -1 -1");
    g_assert_cmpuint(refit_model_n_experts(model), ==, 896);
    /* Parameters as they are counted elsewhere, without the padding of A_log. */
    g_assert_cmpuint(refit_model_parameters(model) - 69 * 32, ==, 2779931834976);
}

#define KIMI(config)                                                                               \
    HEAD("kimi_k3")                                                                                \
    "config: {hidden_size: 8, vocab_size: 6, num_hidden_layers: 2, num_attention_heads: 2, "       \
    "q_lora_rank: 3, kv_lora_rank: 2, qk_nope_head_dim: 2, qk_rope_head_dim: 1, v_head_dim: 2, "   \
    "intermediate_size: 5, moe_intermediate_size: 2, routed_expert_hidden_size: 4, "               \
    "num_experts: 2, num_shared_experts: 0, " config "}\n"
#define KDA(layers)                                                                                \
    "linear_attn_config: {num_heads: 3, head_dim: 2, short_conv_kernel_size: 4, "                  \
    "kda_layers: " layers "}"

static void test_kimi_k3_options(void) {
    g_autoptr(RefitModel) model = parse_ok(KIMI("first_k_dense_replace: 1, " KDA("[2]")), TRUE);
    /* Layers: norms 2, residuals 4, MLA 7, FFN 3; then 6, KDA 14, router 5, experts 2 x 3. */
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 2 + 16 + 31 + 3);
    expect(model, "language_model.model.layers.1.self_attn.A_log 3 F32 ssm_head 1 -1");
    expect(model, "language_model.model.layers.0.self_attn.kv_b_proj.weight 8x2 BF16 mla_kv_b 0 "
                  "-1");
    g_assert_null(find(model, "language_model.model.layers.0.self_attn.g_proj.weight"));
    g_autoptr(RefitModel) none = parse_ok(KIMI("first_k_dense_replace: 2, " KDA("[]")), TRUE);
    g_assert_cmpuint(refit_model_n_tensors(none), ==, 2 + 16 + 16 + 3);
}

static void test_kimi_k3_refusals(void) {
    refuse(KIMI("first_k_dense_replace: 1"), REFIT_ERROR_INVALID,
           "m.yaml:4:9: config: ", "linear_attn_config");
    refuse(KIMI("first_k_dense_replace: 1, linear_attn_config: 4"), REFIT_ERROR_INVALID,
           "m.yaml:4:", "config.linear_attn_config: ");
    refuse(KIMI("first_k_dense_replace: 1, linear_attn_config: {num_heads: 3, head_dim: 2, "
                "short_conv_kernel_size: 4}"),
           REFIT_ERROR_INVALID, "m.yaml:4:", "kda_layers");
    refuse(KIMI("first_k_dense_replace: 1, " KDA("[3]")), REFIT_ERROR_INVALID,
           "m.yaml:4:", "config.linear_attn_config.kda_layers.0: ");
    refuse(KIMI("first_k_dense_replace: 1, " KDA("[1, 0]")), REFIT_ERROR_INVALID,
           "m.yaml:4:", "config.linear_attn_config.kda_layers.1: ");
    refuse(KIMI("first_k_dense_replace: 1, " KDA("[2, 2]")), REFIT_ERROR_INVALID,
           "m.yaml:4:", "kda_layers.1: layer 2 is listed twice; name each once");
    refuse(KIMI("first_k_dense_replace: 1, " KDA("2")), REFIT_ERROR_INVALID,
           "m.yaml:4:", "config.linear_attn_config.kda_layers: ");
    refuse(KIMI("first_k_dense_replace: 1, linear_attn_config: {num_heads: 3, head_dim: 2, "
                "short_conv_kernel_size: 4, a_log_size: 2, kda_layers: [2]}"),
           REFIT_ERROR_INVALID, "m.yaml:4:",
           "a_log_size: is less than the 3 heads, each of which has a decay; use at least that");
    refuse(KIMI("first_k_dense_replace: 3, " KDA("[2]")), REFIT_ERROR_INVALID,
           "m.yaml:4:", "3 exceeds num_hidden_layers 2");
    refuse(KIMI("first_k_dense_replace: 1, num_experts_per_token: 3, " KDA("[2]")),
           REFIT_ERROR_INVALID, "m.yaml:4:", "a token cannot choose 3 of 2 experts");
    refuse(KIMI("first_k_dense_replace: 1, " KDA("[2]") ", vision_config: {merge_size: 2}"),
           REFIT_ERROR_INVALID, "m.yaml:4:", "vt_hidden_size");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/model-families/glm-has-biases-but-none-of-outputs", test_glm);
    g_test_add_func("/model-families/mixtral-names-experts-by-numbers", test_mixtral);
    g_test_add_func("/model-families/minimax-keeps-its-router-in-f32", test_minimax);
    g_test_add_func("/model-families/gpt-oss-stacks-experts-with-biases", test_gpt_oss);
    g_test_add_func("/model-families/qwen3-5-has-two-kinds-of-layers", test_qwen3_5);
    g_test_add_func("/model-families/qwen3-8-is-text-in-one-type", test_qwen3_8);
    g_test_add_func("/model-families/qwen3-5-equals-a-published-sibling", test_qwen3_5_sibling);
    g_test_add_func("/model-families/qwen3-5-parts-are-optional", test_qwen3_5_options);
    g_test_add_func("/model-families/nemotron-follows-its-pattern", test_nemotron);
    g_test_add_func("/model-families/nemotron-equals-published-siblings", test_nemotron_siblings);
    g_test_add_func("/model-families/nemotron-repeats-mtp-stages", test_nemotron_mtp_stages);
    g_test_add_func("/model-families/nemotron-refuses-bad-patterns", test_nemotron_refusals);
    g_test_add_func("/model-families/nemotron-has-plain-ffns", test_nemotron_ffn);
    g_test_add_func("/model-families/kimi-k3-has-two-kinds-of-layers", test_kimi_k3);
    g_test_add_func("/model-families/kimi-k3-parts-are-optional", test_kimi_k3_options);
    g_test_add_func("/model-families/kimi-k3-refuses-bad-lists", test_kimi_k3_refusals);
    return g_test_run();
}
