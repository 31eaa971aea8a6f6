/*
 * SGLang layouts: which rank holds which part of which tensor, where kinds of layers have parallel
 * sizes of their own.
 *
 * Covers: copies of the engine, attention groups within tp, output heads and embeddings, dense
 * layers, experts over groups of ranks with and without redundant copies, shared experts cut, whole
 * and in a slot, MTP projections, stages, and the exact message of each refusal. Expected regions
 * were worked out by hand from the rules that the engine documents.
 */

#include "test-layout-models.h"

/* Qwen3, whose classes run under attention DP: TIED with query and key norms. */
#define MIXTRAL(norm)                                                                              \
    "family: mixtral\nconfig: {hidden_size: 8, vocab_size: 256, num_hidden_layers: 1, "            \
    "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 2, intermediate_size: 8, "          \
    "num_local_experts: 2, qk_norm: " norm "}\n"
#define QWEN3_5_TINY                                                                               \
    "family: qwen3_5_moe\nconfig: {hidden_size: 8, vocab_size: 128, num_hidden_layers: 2, "        \
    "full_attention_interval: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, "    \
    "linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 2, "                 \
    "linear_value_head_dim: 2, linear_conv_kernel_dim: 4, num_experts: 2, "                        \
    "moe_intermediate_size: 8, shared_expert_intermediate_size: 8, mtp_stacked_experts: true}\n"
#define TIED_NORMED                                                                                \
    "family: dense\nconfig: {hidden_size: 8, vocab_size: 256, num_hidden_layers: 2, "              \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, intermediate_size: 8, "          \
    "tie_word_embeddings: true, qk_norm: true}\n"

#define KINDS                                                                                      \
    "family: list\nconfig: {num_attention_heads: 4, num_key_value_heads: 2}\ntensors:\n"           \
    "  - {name: embed, shape: [128, 4], role: embedding}\n"                                        \
    "  - {name: layers.0.q, shape: [8, 4], role: attention_q}\n"                                   \
    "  - {name: layers.0.k, shape: [4, 4], role: attention_k}\n"                                   \
    "  - {name: layers.0.o, shape: [4, 8], role: attention_o}\n"                                   \
    "  - {name: layers.0.in, shape: [8, 4], role: ssm_in}\n"                                       \
    "  - {name: layers.0.up, shape: [8, 4], role: dense_up}\n"                                     \
    "  - {name: layers.0.down, shape: [4, 8], role: dense_down}\n"                                 \
    "  - {name: layers.1.router, shape: [4, 4], role: router}\n"                                   \
    "  - {name: layers.1.shared_up, shape: [8, 4], role: shared_up}\n"                             \
    "  - {name: layers.1.shared_down, shape: [4, 8], role: shared_down}\n"                         \
    "  - {name: \"layers.1.experts.{0-3}.up\", shape: [8, 4], role: expert_up}\n"                  \
    "  - {name: layers.1.stacked, shape: [4, 4, 8], role: expert_down}\n"                          \
    "  - {name: head, shape: [128, 4], role: lm_head}\n"
#define MTP                                                                                        \
    KINDS "  - {name: mtp.fc, shape: [4, 8], role: mtp_proj, mtp: true}\n"                         \
          "  - {name: mtp.layers.0.eh_proj, shape: [4, 8], role: mtp_proj, mtp: true}\n"           \
          "  - {name: layers.2.eh_proj, shape: [4, 8], role: mtp_proj, mtp: true}\n"

static RefitLayout *place(const char *words) {
    g_autofree char *side = g_strdup_printf("{framework: sglang, %s, first_gpu: 0}", words);

    return make(KINDS, side);
}

/* As vLLM does where only tp and copies are stated. */
static void test_plain(void) {
    g_autoptr(RefitLayout) layout = place("gpus: 8, tp: 4");
    g_autoptr(RefitLayout) other = make(KINDS, "{framework: vllm, gpus: 8, tp: 4, first_gpu: 0}");
    const RefitModel *model = refit_layout_model(layout);

    g_assert_cmpstr(refit_layout_summary(layout), ==, "sglang tp4 dp2");
    for (guint i = 0; i < refit_model_n_tensors(model); i++)
        g_assert_true(refit_sharding_equal(refit_layout_sharding(layout, i),
                                           refit_layout_sharding(other, i)));
    assert_held(layout, "layers.0.k", "0,1,4,5 [0:2, 0:4]; 2,3,6,7 [2:4, 0:4]");
    assert_held(layout, "layers.1.shared_down",
                "0,4 [0:4, 0:2]; 1,5 [0:4, 2:4]; 2,6 [0:4, 4:6]; 3,7 [0:4, 6:8]");
}

static void test_dp_attention(void) {
    g_autoptr(RefitLayout) layout = place("gpus: 8, tp: 4, dp: 2, dp_attention: true");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "sglang tp4 dp2 attention x 2 engines");
    assert_held(layout, "layers.0.q", "0,2,4,6 [0:4, 0:4]; 1,3,5,7 [4:8, 0:4]");
    assert_held(layout, "layers.0.k", "0,2,4,6 [0:2, 0:4]; 1,3,5,7 [2:4, 0:4]");
    assert_held(layout, "layers.0.o", "0,2,4,6 [0:4, 0:4]; 1,3,5,7 [0:4, 4:8]");
    assert_held(layout, "layers.0.in", "0,2,4,6 [0:4, 0:4]; 1,3,5,7 [4:8, 0:4]");
    assert_held(layout, "layers.0.up",
                "0,4 [0:2, 0:4]; 1,5 [2:4, 0:4]; 2,6 [4:6, 0:4]; "
                "3,7 [6:8, 0:4]");
    assert_held(layout, "embed", "0,2,4,6 [0:64, 0:4]; 1,3,5,7 [64:128, 0:4]");
    assert_held(layout, "head",
                "0,4 [0:32, 0:4]; 1,5 [32:64, 0:4]; 2,6 [64:96, 0:4]; "
                "3,7 [96:128, 0:4]");
    assert_held(layout, "layers.1.router", "0,1,2,3,4,5,6,7 [0:4, 0:4]");
    /* More groups than KV heads: one head each. */
    g_autoptr(RefitLayout) wide = place("gpus: 4, tp: 4, dp: 1, dp_attention: true");
    assert_held(wide, "layers.0.k", "0,1 [0:2, 0:4]; 2,3 [2:4, 0:4]");
    g_autoptr(RefitLayout) whole = place("gpus: 4, tp: 4, dp: 4, dp_attention: true");
    assert_held(whole, "layers.0.k", "0,1,2,3 [0:4, 0:4]");
}

static void test_ends(void) {
    g_autoptr(RefitLayout) head =
        place("gpus: 4, tp: 4, dp: 2, dp_attention: true, dp_lm_head: true");
    assert_held(head, "head", "0,2 [0:64, 0:4]; 1,3 [64:128, 0:4]");
    g_autoptr(RefitLayout) embedding =
        place("gpus: 4, tp: 4, dp: 2, dp_attention: true, replicated_embedding: true");
    assert_held(embedding, "embed", "0,1,2,3 [0:128, 0:4]");
    assert_held(embedding, "layers.0.q", "0,2 [0:4, 0:4]; 1,3 [4:8, 0:4]");
    /* Tied: the copy on the last stage is cut as a head is. */
    g_autoptr(RefitLayout) tied =
        make(TIED_NORMED,
             "{framework: sglang, gpus: 8, tp: 4, pp: 2, dp: 2, dp_attention: true, first_gpu: 0}");
    assert_held(tied, "model.embed_tokens.weight",
                "4 [0:64, 0:8]; 0,2 [0:128, 0:8]; 5 [64:128, 0:8]; 6 [128:192, 0:8]; "
                "1,3 [128:256, 0:8]; 7 [192:256, 0:8]");
}

static void test_dense(void) {
    g_autoptr(RefitLayout) layout = place("gpus: 4, tp: 4, moe_dense_tp: 1");

    assert_held(layout, "layers.0.up", "0,1,2,3 [0:8, 0:4]");
    assert_held(layout, "layers.0.down", "0,1,2,3 [0:4, 0:8]");
    assert_held(layout, "layers.1.shared_up",
                "0 [0:2, 0:4]; 1 [2:4, 0:4]; 2 [4:6, 0:4]; 3 [6:8, 0:4]");
    g_autoptr(RefitLayout) stated = place("gpus: 4, tp: 4, moe_dense_tp: 4");
    assert_held(stated, "layers.0.down", "0 [0:4, 0:2]; 1 [0:4, 2:4]; 2 [0:4, 4:6]; 3 [0:4, 6:8]");
}

/* Two groups of two ranks: whole experts to a group, cut within it. */
static void test_experts(void) {
    g_autoptr(RefitLayout) layout = place("gpus: 8, tp: 4, ep: 2");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "sglang tp4 ep2 dp2");
    assert_held(layout, "layers.1.experts.0.up", "0,4 [0:4, 0:4]; 1,5 [4:8, 0:4]");
    assert_held(layout, "layers.1.experts.1.up", "0,4 [0:4, 0:4]; 1,5 [4:8, 0:4]");
    assert_held(layout, "layers.1.experts.3.up", "2,6 [0:4, 0:4]; 3,7 [4:8, 0:4]");
    assert_held(layout, "layers.1.stacked",
                "0,4 [0:2, 0:4, 0:4]; 1,5 [0:2, 0:4, 4:8]; 2,6 [2:4, 0:4, 0:4]; "
                "3,7 [2:4, 0:4, 4:8]");
    assert_held(layout, "layers.1.shared_up",
                "0,4 [0:2, 0:4]; 1,5 [2:4, 0:4]; 2,6 [4:6, 0:4]; 3,7 [6:8, 0:4]");
    g_autoptr(RefitLayout) all = place("gpus: 4, tp: 4, ep: true");
    assert_held(all, "layers.1.experts.2.up", "2 [0:8, 0:4]");
    g_autoptr(RefitLayout) none = place("gpus: 4, tp: 4, ep: false");
    assert_held(none, "layers.1.experts.2.up",
                "0 [0:2, 0:4]; 1 [2:4, 0:4]; 2 [4:6, 0:4]; 3 [6:8, 0:4]");
}

/* Slots 0 1 2 on the first group, 3 0 1 on the second. */
static void test_redundant(void) {
    static const char *const words[] = {"redundant_experts: 2", "expert_map: [0, 1, 2, 3, 0, 1]"};

    for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
        g_autofree char *side = g_strdup_printf("gpus: 4, tp: 4, ep: 2, %s", words[i]);
        g_autoptr(RefitLayout) layout = place(side);

        assert_held(layout, "layers.1.experts.0.up", "0,2 [0:4, 0:4]; 1,3 [4:8, 0:4]");
        assert_held(layout, "layers.1.experts.2.up", "0 [0:4, 0:4]; 1 [4:8, 0:4]");
        assert_held(layout, "layers.1.experts.3.up", "2 [0:4, 0:4]; 3 [4:8, 0:4]");
        assert_held(layout, "layers.1.stacked",
                    "2 [0:2+3:4, 0:4, 0:4]; 3 [0:2+3:4, 0:4, 4:8]; 0 [0:3, 0:4, 0:4]; "
                    "1 [0:3, 0:4, 4:8]");
    }
}

static void test_shared(void) {
    g_autoptr(RefitLayout) slot = place("gpus: 8, tp: 4, ep: 2, shared_expert_as_slot: true");
    assert_held(slot, "layers.1.shared_up", "0,2,4,6 [0:4, 0:4]; 1,3,5,7 [4:8, 0:4]");
    assert_held(slot, "layers.1.shared_down", "0,2,4,6 [0:4, 0:4]; 1,3,5,7 [0:4, 4:8]");
    assert_held(slot, "layers.0.up",
                "0,4 [0:2, 0:4]; 1,5 [2:4, 0:4]; 2,6 [4:6, 0:4]; 3,7 [6:8, 0:4]");
    g_autoptr(RefitLayout) every = place("gpus: 4, tp: 4, ep: 4, shared_expert_as_slot: true");
    assert_held(every, "layers.1.shared_down", "0,1,2,3 [0:4, 0:8]");
    g_autoptr(RefitLayout) deepep = place("gpus: 4, tp: 4, moe_a2a_backend: deepep");
    g_assert_cmpstr(refit_layout_summary(deepep), ==, "sglang tp4 ep4 dp1");
    assert_held(deepep, "layers.1.shared_up", "0,1,2,3 [0:8, 0:4]");
    assert_held(deepep, "layers.1.experts.1.up", "1 [0:8, 0:4]");
}

/* Rank order tp, pp, dp; layers left over go to the last stages. */
static void test_stages(void) {
    static const guint depth[] = {15, 15, 15, 16};
    g_autoptr(RefitLayout) layout =
        make(DEEPSEEK, "{framework: sglang, gpus: 16, tp: 2, pp: 4, first_gpu: 0}");
    guint layer = 0;

    g_assert_cmpstr(refit_layout_summary(layout), ==, "sglang tp2 pp4 dp2");
    for (guint stage = 0; stage < 4; stage++) {
        for (guint i = 0; i < depth[stage]; i++, layer++) {
            g_autofree char *name =
                g_strdup_printf("model.layers.%u.input_layernorm.weight", layer);
            g_autofree char *held = g_strdup_printf("%u,%u,%u,%u [0:7168]", 2 * stage,
                                                    2 * stage + 1, 2 * stage + 8, 2 * stage + 9);
            assert_held(layout, name, held);
        }
    }
    g_assert_cmpuint(layer, ==, 61);
    g_autoptr(RefitLayout) stated = place("gpus: 2, pp: 2, stage_layers: [0, 2]");
    assert_held(stated, "layers.0.q", "1 [0:8, 0:4]");
    assert_held(stated, "embed", "0 [0:128, 0:4]");
}

/*
 * 256 experts of 3 * 2048 * 7168 in 58 layers are 1,307,817,541,632 of 1,342,052,868,096 bytes in
 * all; with attention, dense layers, heads and shared experts whole, a rank has all the others and
 * a sixteenth of these. Attention over 2 ranks halves q_b, kv_b and o.
 */
static void test_bytes(void) {
    g_autoptr(RefitLayout) whole =
        make(DEEPSEEK, "{framework: sglang, gpus: 32, tp: 16, dp: 16, dp_attention: true, "
                       "moe_dense_tp: 1, dp_lm_head: true, moe_a2a_backend: deepep, first_gpu: 0}");
    const guint64 others = G_GUINT64_CONSTANT(1342052868096) - G_GUINT64_CONSTANT(1307817541632);
    const guint64 heads = G_GUINT64_CONSTANT(122) * (24576 * 1536 + 32768 * 512 + 7168 * 16384);

    g_assert_cmpuint(bytes_on(whole, 31), ==, others + G_GUINT64_CONSTANT(1307817541632) / 16);
    g_autoptr(RefitLayout) halves =
        make(DEEPSEEK, "{framework: sglang, gpus: 16, tp: 16, dp: 8, dp_attention: true, "
                       "replicated_embedding: true, moe_dense_tp: 1, moe_a2a_backend: deepep, "
                       "first_gpu: 0}");
    const guint64 head_rows = G_GUINT64_CONSTANT(2) * 129280 * 7168;
    g_assert_cmpuint(bytes_on(halves, 3), ==,
                     others + G_GUINT64_CONSTANT(1307817541632) / 16 - heads / 2 -
                         head_rows / 16 * 15);
}

/* Only where MTP layers are a module with layers of its own. */
static void test_mtp(void) {
    g_autoptr(RefitLayout) layout =
        make(MTP, "{framework: sglang, gpus: 4, tp: 4, dp: 2, dp_attention: true, first_gpu: 0}");

    assert_held(layout, "mtp.fc", "0,1,2,3 [0:4, 0:8]");
    assert_held(layout, "mtp.layers.0.eh_proj", "0,2 [0:2, 0:8]; 1,3 [2:4, 0:8]");
    assert_held(layout, "layers.2.eh_proj", "0,1,2,3 [0:4, 0:8]");
}

/* What classes of a family do under attention DP. */
static void test_attention_dp_by_family(void) {
    assert_refused(TIED, "{framework: sglang, gpus: 4, tp: 4, dp: 2, dp_attention: true}",
                   "c.yaml:1:65: train.dp_attention: the engine's Llama has no attention DP; leave "
                   "dp_attention out, and write engines: 2 for copies");
    assert_refused(MIXTRAL("false"),
                   "{framework: sglang, gpus: 4, tp: 4, dp: 2, dp_attention: true}",
                   "c.yaml:1:*: train.dp_attention: the engine's Mixtral has no attention DP; *");
    g_autoptr(RefitLayout) minimax =
        make(MIXTRAL("true"), "{framework: sglang, gpus: 4, tp: 4, dp: 2, dp_attention: true, "
                              "dp_lm_head: true, first_gpu: 0}");
    assert_held(minimax, "lm_head.weight",
                "0 [0:64, 0:8]; 1 [64:128, 0:8]; 2 [128:192, 0:8]; 3 [192:256, 0:8]");
    g_assert_cmpuint(refit_layout_n_notes(minimax), ==, 1);
    g_autoptr(RefitLayout) qwen =
        make(QWEN3_5_TINY, "{framework: sglang, gpus: 4, tp: 4, dp: 2, dp_attention: true, "
                           "first_gpu: 0}");
    assert_held(qwen, "model.embed_tokens.weight", "0,1,2,3 [0:128, 0:8]");
}

static void test_refusals(void) {
    static const char *const cases[][2] = {
        {"gpus: 8, tp: 3",
         "c.yaml:1:41: train.tp: tp 3 does not divide the 8 GPUs; choose sizes whose product does"},
        {"gpus: 8, tp: 4, dp: 4",
         "c.yaml:1:48: train.dp: tp 4 * pp 1 * engines 1 * dp 4 is not the 8 GPUs; leave dp out or "
         "write 2"},
        {"gpus: 8, tp: 4, dp_attention: true",
         "c.yaml:1:58: train.dp_attention: dp_attention needs dp, the number of attention groups "
         "within tp; write a divisor of tp 4"},
        {"gpus: 8, tp: 4, dp: 3, dp_attention: true",
         "c.yaml:1:48: train.dp: dp 3 does not divide tp 4, which holds the attention groups; use "
         "a divisor of it"},
        {"gpus: 8, tp: 4, dp: 2, dp_attention: true, engines: 1",
         "c.yaml:1:80: train.engines: tp 4 * pp 1 * engines 1 is not the 8 GPUs; leave engines out "
         "or write 2"},
        {"gpus: 4, tp: 4, dp_lm_head: true",
         "c.yaml:1:56: train.dp_lm_head: this goes with dp_attention; set dp_attention, or leave "
         "this out"},
        {"gpus: 4, tp: 4, replicated_embedding: true",
         "c.yaml:1:66: train.replicated_embedding: this goes with dp_attention; set dp_attention, "
         "or leave this out"},
        {"gpus: 4, tp: 4, ep: 3",
         "c.yaml:1:48: train.ep: ep 3 does not divide tp 4; use a divisor of it"},
        {"gpus: 4, tp: 4, ep: maybe", "c.yaml:1:48: train.ep: *"},
        {"gpus: 4, tp: 4, ep: [2]", "c.yaml:1:48: train.ep: *"},
        {"gpus: 4, tp: 4, ep: 2, moe_a2a_backend: deepep",
         "c.yaml:1:48: train.ep: ep 2 is not tp 4, which moe_a2a_backend deepep asks for; leave ep "
         "out"},
        {"gpus: 4, tp: 4, moe_a2a_backend: deep", "c.yaml:1:61: train.moe_a2a_backend: *"},
        {"gpus: 4, tp: 4, moe_dense_tp: 2",
         "c.yaml:1:58: train.moe_dense_tp: moe_dense_tp is 2; the engine knows 1 and, when it is "
         "left out, tp 4"},
        {"gpus: 4, tp: 4, ep: 2, redundant_experts: 1",
         "c.yaml:1:70: train.redundant_experts: ep 2 does not divide the 5 slots of 4 experts and "
         "1 redundant ones; use redundant_experts 2"},
        {"gpus: 8, tp: 8",
         "c.yaml:1:41: train.tp: tp 8 does not divide the model's 4 attention heads; use a divisor "
         "of 4"},
        {"gpus: 16, tp: 16, dp: 2, dp_attention: true",
         "c.yaml:1:50: train.dp: tp / dp 8 does not divide the model's 4 attention heads; use a "
         "divisor of 4"},
        {"gpus: 8, tp: 8, dp: 2, dp_attention: true, ep: true",
         "c.yaml:1:75: train.ep: ep 8 does not divide the 4 slots of 4 experts and 0 redundant "
         "ones; use redundant_experts 4"},
        {"gpus: 4, tp: 4, ep_size: 2", "c.yaml:1:44: train.ep_size: *"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *side = g_strdup_printf("{framework: sglang, %s}", cases[i][0]);

        assert_refused(KINDS, side, cases[i][1]);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout-sglang/agrees-with-vllm-where-only-tp-is-stated", test_plain);
    g_test_add_func("/layout-sglang/cuts-attention-within-groups", test_dp_attention);
    g_test_add_func("/layout-sglang/cuts-the-ends-as-stated", test_ends);
    g_test_add_func("/layout-sglang/keeps-dense-layers-whole", test_dense);
    g_test_add_func("/layout-sglang/gives-whole-experts-to-groups", test_experts);
    g_test_add_func("/layout-sglang/copies-redundant-experts", test_redundant);
    g_test_add_func("/layout-sglang/puts-the-shared-expert-in-a-slot", test_shared);
    g_test_add_func("/layout-sglang/gives-layers-left-over-to-the-last-stages", test_stages);
    g_test_add_func("/layout-sglang/cuts-mtp-projections-of-some-families", test_mtp);
    g_test_add_func("/layout-sglang/holds-the-known-bytes", test_bytes);
    g_test_add_func("/layout-sglang/attention-dp-goes-by-family", test_attention_dp_by_family);
    g_test_add_func("/layout-sglang/refuses-what-does-not-fit", test_refusals);
    return g_test_run();
}
