/*
 * Models: sums per role; names, shapes, layers and experts of single tensors worked out by hand;
 * element types and bytes; MTP layers in and out; optional tensors (tied heads, biases, query and
 * key norms, shared experts); every kind of bad file, with its place. The shipped files, families
 * with several kinds of layers, and explicit lists have programs of their own.
 */

#include "test-model.h"

typedef struct {
    RefitRole role;
    guint n_tensors;
    guint64 elements;
} RoleSum;

/* `sums` has every role that occurs. */
static void expect_roles(const RefitModel *model, const RoleSum *sums, guint n_sums) {
    RoleSum found[REFIT_N_ROLES] = {0};
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        found[tensor->role].n_tensors++;
        found[tensor->role].elements += tensor->elements;
    }
    for (guint i = 0; i < n_sums; i++) {
        g_test_message("role %s", refit_role_name(sums[i].role));
        g_assert_cmpuint(found[sums[i].role].n_tensors, ==, sums[i].n_tensors);
        g_assert_cmpuint(found[sums[i].role].elements, ==, sums[i].elements);
        found[sums[i].role] = (RoleSum){0};
    }
    for (guint i = 0; i < REFIT_N_ROLES; i++) {
        g_assert_cmpuint(found[i].n_tensors, ==, 0);
    }
}

static void test_roles_deepseek(void) {
    /* With MTP: 62 attention layers, 59 MoE layers of 256 experts of 7168 x 2048, 3 dense ones. */
    static const RoleSum sums[] = {
        {REFIT_ROLE_EMBEDDING, 2, G_GUINT64_CONSTANT(2) * 129280 * 7168},
        {REFIT_ROLE_LM_HEAD, 2, G_GUINT64_CONSTANT(2) * 129280 * 7168},
        {REFIT_ROLE_NORM, 62 * 4 + 1 + 3,
         G_GUINT64_CONSTANT(62) * (2 * 7168 + 1536 + 512) + 4 * 7168},
        {REFIT_ROLE_MLA_Q_A, 62, G_GUINT64_CONSTANT(62) * 1536 * 7168},
        {REFIT_ROLE_MLA_Q_B, 62, G_GUINT64_CONSTANT(62) * 128 * 192 * 1536},
        {REFIT_ROLE_MLA_KV_A, 62, G_GUINT64_CONSTANT(62) * 576 * 7168},
        {REFIT_ROLE_MLA_KV_B, 62, G_GUINT64_CONSTANT(62) * 128 * 256 * 512},
        {REFIT_ROLE_ATTENTION_O, 62, G_GUINT64_CONSTANT(62) * 7168 * 128 * 128},
        {REFIT_ROLE_ROUTER, 2 * 59, G_GUINT64_CONSTANT(59) * 256 * (7168 + 1)},
        {REFIT_ROLE_DENSE_GATE, 3, G_GUINT64_CONSTANT(3) * 18432 * 7168},
        {REFIT_ROLE_DENSE_UP, 3, G_GUINT64_CONSTANT(3) * 18432 * 7168},
        {REFIT_ROLE_DENSE_DOWN, 3, G_GUINT64_CONSTANT(3) * 18432 * 7168},
        {REFIT_ROLE_SHARED_GATE, 59, G_GUINT64_CONSTANT(59) * 2048 * 7168},
        {REFIT_ROLE_SHARED_UP, 59, G_GUINT64_CONSTANT(59) * 2048 * 7168},
        {REFIT_ROLE_SHARED_DOWN, 59, G_GUINT64_CONSTANT(59) * 2048 * 7168},
        {REFIT_ROLE_EXPERT_GATE, 59 * 256, G_GUINT64_CONSTANT(59) * 256 * 2048 * 7168},
        {REFIT_ROLE_EXPERT_UP, 59 * 256, G_GUINT64_CONSTANT(59) * 256 * 2048 * 7168},
        {REFIT_ROLE_EXPERT_DOWN, 59 * 256, G_GUINT64_CONSTANT(59) * 256 * 2048 * 7168},
        {REFIT_ROLE_MTP_PROJ, 1, G_GUINT64_CONSTANT(7168) * 2 * 7168},
    };
    g_autoptr(RefitModel) model = load("deepseek-v3", BF16, TRUE);
    expect_roles(model, sums, G_N_ELEMENTS(sums));
}

static void test_roles_qwen3_moe(void) {
    static const RoleSum sums[] = {
        {REFIT_ROLE_EMBEDDING, 1, 622329856},
        {REFIT_ROLE_LM_HEAD, 1, 622329856},
        {REFIT_ROLE_NORM, 189 + 188, 774144 + 24064},
        {REFIT_ROLE_ATTENTION_Q, 94, 3154116608},
        {REFIT_ROLE_ATTENTION_K, 94, 197132288},
        {REFIT_ROLE_ATTENTION_V, 94, 197132288},
        {REFIT_ROLE_ATTENTION_O, 94, 3154116608},
        {REFIT_ROLE_ROUTER, 94, 49283072},
        {REFIT_ROLE_EXPERT_GATE, 12032, 227096395776 / 3},
        {REFIT_ROLE_EXPERT_UP, 12032, 227096395776 / 3},
        {REFIT_ROLE_EXPERT_DOWN, 12032, 227096395776 / 3},
    };
    g_autoptr(RefitModel) model = load("qwen3-235b-a22b", BF16, FALSE);
    expect_roles(model, sums, G_N_ELEMENTS(sums));
}

static void test_roles_dense(void) {
    static const RoleSum sums[] = {
        {REFIT_ROLE_EMBEDDING, 1, 525336576},
        {REFIT_ROLE_LM_HEAD, 1, 525336576},
        {REFIT_ROLE_NORM, 65, 266240},
        {REFIT_ROLE_ATTENTION_Q, 32, 536870912},
        {REFIT_ROLE_ATTENTION_K, 32, 134217728},
        {REFIT_ROLE_ATTENTION_V, 32, 134217728},
        {REFIT_ROLE_ATTENTION_O, 32, 536870912},
        {REFIT_ROLE_DENSE_GATE, 32, 5637144576 / 3},
        {REFIT_ROLE_DENSE_UP, 32, 5637144576 / 3},
        {REFIT_ROLE_DENSE_DOWN, 32, 5637144576 / 3},
    };
    g_autoptr(RefitModel) model = load("llama-3.1-8b", BF16, FALSE);
    expect_roles(model, sums, G_N_ELEMENTS(sums));
}

static void test_tensors_deepseek(void) {
    g_autoptr(RefitModel) model = load("deepseek-v3", BF16, TRUE);
    expect_at(model, 0, "model.embed_tokens.weight 129280x7168 BF16 embedding -1 -1");
    expect_at(model, 1, "lm_head.weight 129280x7168 BF16 lm_head -1 -1");
    expect_at(model, 2, "model.layers.0.input_layernorm.weight 7168 BF16 norm 0 -1");
    expect_at(model, 46182, "model.norm.weight 7168 BF16 norm -1 -1");
    expect(model, "model.layers.0.self_attn.q_a_layernorm.weight 1536 BF16 norm 0 -1");
    expect(model, "model.layers.5.self_attn.q_b_proj.weight 24576x1536 BF16 mla_q_b 5 -1");
    expect(model, "model.layers.5.self_attn.kv_a_proj_with_mqa.weight 576x7168 BF16 mla_kv_a 5 -1");
    expect(model, "model.layers.5.self_attn.kv_b_proj.weight 32768x512 BF16 mla_kv_b 5 -1");
    expect(model, "model.layers.2.mlp.down_proj.weight 7168x18432 BF16 dense_down 2 -1");
    expect(model, "model.layers.3.mlp.gate.weight 256x7168 BF16 router 3 -1");
    expect(model, "model.layers.3.mlp.gate.e_score_correction_bias 256 F32 router 3 -1");
    expect(model, "model.layers.60.mlp.experts.255.down_proj.weight 7168x2048 BF16 expert_down 60 "
                  "255");
    expect(model, "model.layers.60.mlp.shared_experts.up_proj.weight 2048x7168 BF16 shared_up 60 "
                  "-1");
    expect(model, "model.layers.61.eh_proj.weight 7168x14336 BF16 mtp_proj 61 -1 mtp");
    expect(model, "model.layers.61.embed_tokens.weight 129280x7168 BF16 embedding 61 -1 mtp");
    expect(model, "model.layers.61.shared_head.head.weight 129280x7168 BF16 lm_head 61 -1 mtp");
    expect(model, "model.layers.61.shared_head.norm.weight 7168 BF16 norm 61 -1 mtp");
    expect(model, "model.layers.61.mlp.experts.0.gate_proj.weight 2048x7168 BF16 expert_gate 61 0 "
                  "mtp");
    g_assert_null(find(model, "model.layers.2.mlp.gate.weight"));
    g_assert_null(find(model, "model.layers.3.mlp.up_proj.weight"));
    g_assert_null(find(model, "model.layers.60.eh_proj.weight"));
    g_assert_cmpuint(refit_model_n_layers(model), ==, 61);
    g_assert_cmpuint(refit_model_n_experts(model), ==, 256);
    g_assert_cmpuint(refit_model_n_heads(model), ==, 128);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 128);
    g_assert_false(refit_model_tied_embeddings(model));
}

static void test_tensors_qwen3_4b(void) {
    g_autoptr(RefitModel) model = load("qwen3-4b", BF16, FALSE);
    expect_at(model, 0, "model.embed_tokens.weight 151936x2560 BF16 embedding -1 -1");
    expect_at(model, 1, "model.layers.0.input_layernorm.weight 2560 BF16 norm 0 -1");
    expect(model, "model.layers.35.self_attn.q_proj.weight 4096x2560 BF16 attention_q 35 -1");
    expect(model, "model.layers.35.self_attn.k_proj.weight 1024x2560 BF16 attention_k 35 -1");
    expect(model, "model.layers.35.self_attn.v_proj.weight 1024x2560 BF16 attention_v 35 -1");
    expect(model, "model.layers.35.self_attn.o_proj.weight 2560x4096 BF16 attention_o 35 -1");
    expect(model, "model.layers.35.self_attn.k_norm.weight 128 BF16 norm 35 -1");
    expect(model, "model.layers.7.mlp.gate_proj.weight 9728x2560 BF16 dense_gate 7 -1");
    g_assert_null(find(model, "lm_head.weight"));
    g_assert_null(find(model, "model.layers.36.input_layernorm.weight"));
    g_assert_true(refit_model_tied_embeddings(model));
    g_assert_cmpuint(refit_model_n_layers(model), ==, 36);
    g_assert_cmpuint(refit_model_n_experts(model), ==, 0);
    g_assert_cmpuint(refit_model_n_heads(model), ==, 32);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 8);
}

/* All of layer 1 of the tiny model, in order. */
static void test_tensors_tiny(void) {
    static const char *const layer[] = {
        "model.layers.1.input_layernorm.weight 8 BF16 norm 1 -1",
        "model.layers.1.post_attention_layernorm.weight 8 BF16 norm 1 -1",
        "model.layers.1.self_attn.q_proj.weight 8x8 BF16 attention_q 1 -1",
        "model.layers.1.self_attn.k_proj.weight 4x8 BF16 attention_k 1 -1",
        "model.layers.1.self_attn.v_proj.weight 4x8 BF16 attention_v 1 -1",
        "model.layers.1.self_attn.o_proj.weight 8x8 BF16 attention_o 1 -1",
        "model.layers.1.self_attn.q_norm.weight 2 BF16 norm 1 -1",
        "model.layers.1.self_attn.k_norm.weight 2 BF16 norm 1 -1",
        "model.layers.1.mlp.gate.weight 4x8 BF16 router 1 -1",
        "model.layers.1.mlp.experts.0.gate_proj.weight 8x8 BF16 expert_gate 1 0",
        "model.layers.1.mlp.experts.0.up_proj.weight 8x8 BF16 expert_up 1 0",
        "model.layers.1.mlp.experts.0.down_proj.weight 8x8 BF16 expert_down 1 0",
        "model.layers.1.mlp.experts.1.gate_proj.weight 8x8 BF16 expert_gate 1 1",
    };
    g_autoptr(RefitModel) model = load("tiny", BF16, FALSE);
    for (guint i = 0; i < G_N_ELEMENTS(layer); i++) {
        expect_at(model, 2 + 21 + i, layer[i]);
    }
    expect_at(model, 43, "model.layers.1.mlp.experts.3.down_proj.weight 8x8 BF16 expert_down 1 3");
    expect_at(model, 44, "model.norm.weight 8 BF16 norm -1 -1");
    g_assert_cmpuint(refit_model_n_experts(model), ==, 4);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 2);
}

static void test_dtype(void) {
    g_autoptr(RefitModel) f8 = load("deepseek-v3", REFIT_DTYPE_F8_E4M3, FALSE);
    /* One byte each, and 58 router biases of 256 elements with 3 bytes more. */
    g_assert_cmpuint(refit_model_bytes(f8), ==, 671026419200 + 58 * 256 * 3);
    expect(f8, "model.layers.3.mlp.gate.e_score_correction_bias 256 F32 router 3 -1");
    expect(f8, "model.layers.3.mlp.gate.weight 256x7168 F8_E4M3 router 3 -1");
    g_autoptr(RefitModel) f32 = load("tiny", REFIT_DTYPE_F32, FALSE);
    g_assert_cmpuint(refit_model_bytes(f32), ==, 4 * 2544);
    g_assert_cmpuint(refit_model_tensor(f32, 0)->bytes, ==, 4 * 256);
}

static void test_references(void) {
    RefitModel *model = load("tiny", BF16, FALSE);
    RefitModel *again = refit_model_ref(model);
    g_assert_true(again == model);
    refit_model_unref(model);
    g_assert_cmpstr(refit_model_name(again), ==, "tiny");
    g_assert_cmpuint(refit_model_tensor(again, 44)->elements, ==, 8);
    refit_model_unref(again);
    refit_model_unref(NULL);
}

static void test_families(void) {
    static const char *const expected[] = {
        "dense",    "qwen3_moe", "qwen3_5_moe", "mixtral", "deepseek_v3",
        "glm4_moe", "gpt_oss",   "nemotron_h",  "kimi_k3", "list",
    };
    const char *const *families = refit_model_families();
    g_assert_cmpuint(g_strv_length((char **)families), ==, G_N_ELEMENTS(expected));
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
        g_assert_cmpstr(families[i], ==, expected[i]);
    }
}

static void test_role_names(void) {
    g_assert_cmpstr(refit_role_name(REFIT_ROLE_EMBEDDING), ==, "embedding");
    g_assert_cmpstr(refit_role_name(REFIT_ROLE_MLA_KV_B), ==, "mla_kv_b");
    g_assert_cmpstr(refit_role_name(REFIT_ROLE_OTHER), ==, "other");
}

/* ---- options of families ---- */

#define DENSE(config) HEAD("dense") "config: {" config "}\n"
#define DENSE_FACTS "hidden_size: 6, vocab_size: 10, num_hidden_layers: 1, intermediate_size: 4"
#define MOE(config)                                                                                \
    HEAD("qwen3_moe")                                                                              \
    "config: {hidden_size: 4, vocab_size: 6, num_attention_heads: 2, moe_intermediate_size: 3, "   \
    "num_key_value_heads: 1, " config "}\n"
#define DEEPSEEK(config)                                                                           \
    HEAD("deepseek_v3")                                                                            \
    "config: {hidden_size: 4, vocab_size: 6, num_attention_heads: 2, q_lora_rank: 3, "             \
    "kv_lora_rank: 2, qk_nope_head_dim: 2, qk_rope_head_dim: 1, v_head_dim: 2, "                   \
    "intermediate_size: 5, moe_intermediate_size: 2, n_routed_experts: 2, " config "}\n"

static void test_default_heads(void) {
    g_autoptr(RefitModel) model = parse_ok(DENSE(DENSE_FACTS ", num_attention_heads: 3"), FALSE);
    expect(model, "model.layers.0.self_attn.k_proj.weight 6x6 BF16 attention_k 0 -1");
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 3);
    g_assert_null(find(model, "model.layers.0.self_attn.q_norm.weight"));
    g_assert_null(find(model, "model.layers.0.self_attn.q_proj.bias"));
}

static void test_bias_and_norm(void) {
    g_autoptr(RefitModel) model =
        parse_ok(DENSE(DENSE_FACTS ", num_attention_heads: 3, num_key_value_heads: 1, head_dim: 4, "
                                   "attention_bias: true, qk_norm: true"),
                 FALSE);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 2 + 2 + 10 + 3 + 1);
    expect_at(model, 4, "model.layers.0.self_attn.q_proj.weight 12x6 BF16 attention_q 0 -1");
    expect_at(model, 5, "model.layers.0.self_attn.q_proj.bias 12 BF16 attention_q 0 -1");
    expect_at(model, 7, "model.layers.0.self_attn.k_proj.bias 4 BF16 attention_k 0 -1");
    expect_at(model, 9, "model.layers.0.self_attn.v_proj.bias 4 BF16 attention_v 0 -1");
    expect_at(model, 11, "model.layers.0.self_attn.o_proj.bias 6 BF16 attention_o 0 -1");
    expect_at(model, 12, "model.layers.0.self_attn.q_norm.weight 4 BF16 norm 0 -1");
}

static void test_no_shared_experts(void) {
    g_autoptr(RefitModel) model = parse_ok(
        DEEPSEEK("num_hidden_layers: 1, first_k_dense_replace: 0, n_shared_experts: 0"), TRUE);
    /* 2 global, 2 + 7 in the layer, 2 of the router, 2 experts of 3, final norm. */
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 2 + 9 + 2 + 6 + 1);
    g_assert_null(find(model, "model.layers.0.mlp.shared_experts.up_proj.weight"));
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 2);
}

static void test_all_dense_layers(void) {
    g_autoptr(RefitModel) model =
        parse_ok(DEEPSEEK("num_hidden_layers: 2, first_k_dense_replace: 2, n_shared_experts: 2, "
                          "num_nextn_predict_layers: 2"),
                 TRUE);
    expect(model, "model.layers.1.mlp.up_proj.weight 5x4 BF16 dense_up 1 -1");
    expect(model, "model.layers.3.mlp.shared_experts.down_proj.weight 4x4 BF16 shared_down 3 -1 "
                  "mtp");
    g_assert_null(find(model, "model.layers.1.mlp.gate.weight"));
    g_assert_cmpuint(refit_model_n_layers(model), ==, 2);
    g_autoptr(RefitModel) main_model =
        parse_ok(DEEPSEEK("num_hidden_layers: 2, first_k_dense_replace: 2, n_shared_experts: 2, "
                          "num_nextn_predict_layers: 2"),
                 FALSE);
    g_assert_cmpuint(refit_model_n_tensors(main_model), ==, 2 + 2 * 12 + 1);
    /* More dense layers than there are: MTP layer 2 is one of them. */
    g_autoptr(RefitModel) more =
        parse_ok(DEEPSEEK("num_hidden_layers: 2, first_k_dense_replace: 3, n_shared_experts: 2, "
                          "num_nextn_predict_layers: 2"),
                 TRUE);
    expect(more, "model.layers.2.mlp.up_proj.weight 5x4 BF16 dense_up 2 -1 mtp");
    expect(more, "model.layers.2.eh_proj.weight 4x8 BF16 mtp_proj 2 -1 mtp");
    g_assert_null(find(more, "model.layers.2.mlp.gate.weight"));
    g_assert_nonnull(find(more, "model.layers.3.mlp.gate.weight"));
}

/* Without q_lora_rank queries are one projection: [heads * (nope + rope), hidden]. */
static void test_plain_queries(void) {
    g_autoptr(RefitModel) model = parse_ok(
        HEAD("deepseek_v3") "config: {hidden_size: 4, vocab_size: 6, num_attention_heads: 2, "
                            "kv_lora_rank: 2, qk_nope_head_dim: 2, qk_rope_head_dim: 1, "
                            "v_head_dim: 2, intermediate_size: 5, moe_intermediate_size: 2, "
                            "n_routed_experts: 2, num_hidden_layers: 1, "
                            "first_k_dense_replace: 1, n_shared_experts: 0}\n",
        TRUE);
    expect(model, "model.layers.0.self_attn.q_proj.weight 6x4 BF16 mla_q_b 0 -1");
    g_assert_null(find(model, "model.layers.0.self_attn.q_a_proj.weight"));
    g_assert_null(find(model, "model.layers.0.self_attn.q_b_proj.weight"));
    /* 2 global, 2 norms, 5 of attention, 3 of the FFN, final norm. */
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 2 + 2 + 5 + 3 + 1);
}

/* Both counts are checked whatever the options include. */
static void test_stated_counts(void) {
    static const char *const good = HEAD("list") "tensors:\n"
                                                 "- {name: a, shape: [3]}\n"
                                                 "- {name: b, shape: [2, 2], mtp: true}\n"
                                                 "parameters: 7\nparameters_main: 3\n";
    g_autoptr(RefitModel) all = parse_ok(good, TRUE);
    g_autoptr(RefitModel) main_part = parse_ok(good, FALSE);
    g_assert_cmpuint(refit_model_parameters(all), ==, 7);
    g_assert_cmpuint(refit_model_n_tensors(all), ==, 2);
    g_assert_cmpuint(refit_model_parameters(main_part), ==, 3);
    g_assert_cmpuint(refit_model_bytes(main_part), ==, 6);
    g_assert_cmpuint(refit_model_n_tensors(main_part), ==, 1);

#define LIST_OF_7                                                                                  \
    HEAD("list")                                                                                   \
    "tensors: [{name: a, shape: [3]}, {name: b, shape: [2, 2], mtp: true}]\n"
    refuse(LIST_OF_7 "parameters: 8\n", REFIT_ERROR_INVALID,
           "m.yaml:5:13: parameters: ", "states 8 parameters, but the model has 7 with MTP layers");
    refuse(LIST_OF_7 "parameters_main: 7\n", REFIT_ERROR_INVALID, "m.yaml:5:18: parameters_main: ",
           "states 7 parameters, but the model has 3 without MTP layers");
    refuse(LIST_OF_7 "parameters: 0\n", REFIT_ERROR_INVALID, "m.yaml:5:13: parameters: ", "0");
}

/* ---- bad files ---- */

static void test_root_refusals(void) {
    refuse("schema: refit.case/1\n", REFIT_ERROR_INVALID, "m.yaml:1:9: schema: ", "refit.model/1");
    refuse("schema: refit.model/1\nfamily: dense\n", REFIT_ERROR_INVALID, "m.yaml:1:1: ", "name");
    refuse("schema: refit.model/1\nname: ''\nfamily: dense\n", REFIT_ERROR_INVALID,
           "m.yaml:2:7: name: ", "empty");
    refuse("schema: refit.model/1\nname: m\n", REFIT_ERROR_INVALID, "m.yaml:1:1: ", "family");
    refuse("schema: refit.model/1\nname: m\nfamily: dens\n", REFIT_ERROR_INVALID,
           "m.yaml:3:9: family: ", "dense");
    refuse(HEAD("dense"), REFIT_ERROR_INVALID, "m.yaml:1:1: ", "config");
    refuse(HEAD("dense") "config: 5\n", REFIT_ERROR_INVALID, "m.yaml:4:9: config: ", "");
    refuse(DENSE(DENSE_FACTS ", num_attention_heads: 3") "parametres: 5\n", REFIT_ERROR_INVALID,
           "m.yaml:5:", "parameters");
}

static void test_config_refusals(void) {
    refuse(DENSE("hiden_size: 6, vocab_size: 10"), REFIT_ERROR_INVALID, "m.yaml:4:", "hidden_size");
    refuse(DENSE(DENSE_FACTS), REFIT_ERROR_INVALID, "m.yaml:4:9: config: ", "num_attention_heads");
    refuse(DENSE(DENSE_FACTS ", num_attention_heads: 0"), REFIT_ERROR_INVALID,
           "m.yaml:4:107: config.num_attention_heads: ", "0");
    refuse(DENSE(DENSE_FACTS ", num_attention_heads: 4"), REFIT_ERROR_INVALID,
           "m.yaml:4:107: config.num_attention_heads: ", "4 does not divide hidden_size 6");
    refuse(DENSE(DENSE_FACTS ", num_attention_heads: 3, num_key_value_heads: 2"),
           REFIT_ERROR_INVALID,
           "m.yaml:4:131: config.num_key_value_heads: ", "2 does not divide num_attention_heads 3");
    refuse(DENSE(DENSE_FACTS ", num_attention_heads: 3, qk_norm: 7"), REFIT_ERROR_INVALID,
           "m.yaml:4:", "7");
    refuse(DENSE(DENSE_FACTS ", num_attention_heads: 16777216"), REFIT_ERROR_INVALID,
           "m.yaml:4:107: config.num_attention_heads: ", "1048576");
    refuse(DENSE(DENSE_FACTS ", num_attention_heads: 3, num_experts: 4"), REFIT_ERROR_INVALID,
           "m.yaml:4:", "num_experts");
    refuse(MOE("num_hidden_layers: 2, num_experts: 4, num_experts_per_tok: 5"), REFIT_ERROR_INVALID,
           "m.yaml:4:", "a token cannot choose 5 of 4 experts");
    refuse(MOE("num_hidden_layers: 2, num_experts: 4, decoder_sparse_step: 2"), REFIT_ERROR_INVALID,
           "m.yaml:4:", "config.decoder_sparse_step: ");
}

/* Refused while counting: none of these would fit in memory. */
static void test_too_many_tensors(void) {
    const char *const part = "expands to more than 4000000 tensors";
    refuse(MOE("num_hidden_layers: 1048576, num_experts: 1048576"), REFIT_ERROR_INVALID,
           "m.yaml:4:9: config: ", part);
    refuse(DEEPSEEK("num_hidden_layers: 1048576, first_k_dense_replace: 1048576, "
                    "n_shared_experts: 0"),
           REFIT_ERROR_INVALID, "m.yaml:4:9: config: ", part);
}

static void test_big_volume(void) {
    /* 2^20 heads of 2^24 times 2^24 elements. */
    refuse(DENSE("hidden_size: 16777216, vocab_size: 1, num_hidden_layers: 1, intermediate_size: "
                 "1, num_attention_heads: 1048576, head_dim: 16777216"),
           REFIT_ERROR_OVERFLOW,
           "m.yaml:4:9: config: ", "tensor model.layers.0.self_attn.q_proj.weight: ");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/model/roles-of-deepseek-v3-sum-up", test_roles_deepseek);
    g_test_add_func("/model/roles-of-qwen3-moe-sum-up", test_roles_qwen3_moe);
    g_test_add_func("/model/roles-of-llama-sum-up", test_roles_dense);
    g_test_add_func("/model/tensors-of-deepseek-v3-are-known-by-hand", test_tensors_deepseek);
    g_test_add_func("/model/tensors-of-qwen3-4b-are-known-by-hand", test_tensors_qwen3_4b);
    g_test_add_func("/model/tensors-of-tiny-are-known-by-hand", test_tensors_tiny);
    g_test_add_func("/model/router-bias-stays-in-f32", test_dtype);
    g_test_add_func("/model/lives-until-the-last-reference", test_references);
    g_test_add_func("/model/families-are-listed", test_families);
    g_test_add_func("/model/roles-have-names", test_role_names);
    g_test_add_func("/model/heads-have-defaults", test_default_heads);
    g_test_add_func("/model/biases-and-norms-are-optional", test_bias_and_norm);
    g_test_add_func("/model/shared-experts-are-optional", test_no_shared_experts);
    g_test_add_func("/model/mtp-layers-follow-dense-layers", test_all_dense_layers);
    g_test_add_func("/model/queries-may-be-one-projection", test_plain_queries);
    g_test_add_func("/model/stated-counts-are-checked-with-and-without-mtp", test_stated_counts);
    g_test_add_func("/model/refuses-a-bad-root", test_root_refusals);
    g_test_add_func("/model/refuses-inconsistent-facts", test_config_refusals);
    g_test_add_func("/model/refuses-too-many-tensors", test_too_many_tensors);
    g_test_add_func("/model/refuses-volumes-beyond-64-bits", test_big_volume);
    return g_test_run();
}
