/*
 * vLLM layouts: which rank holds which part of which tensor.
 *
 * Covers: rank order with stages, data parallel ranks and engines; uneven and stated stages; KV
 * heads held several times; the padded vocabulary and tied embeddings; experts cut over tp or over
 * tp * dp, and spread whole: evenly, unevenly, in turn, with redundant copies and by a stated map,
 * one by one and stacked, also inside the engine's parameters; and the exact message of each
 * refusal. Expected regions and slots were worked out by hand from the rules that the engine
 * documents.
 */

#include "test-layout-models.h"

#include "model/layout/refit-view.h"

#define EXPERTS                                                                                    \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: \"layers.{0-1}.experts.{0-3}.up\", shape: [4, 2], role: expert_up}\n"              \
    "  - {name: \"layers.{0-1}.stacked\", shape: [4, 4, 2], role: expert_up}\n"                    \
    "  - {name: \"layers.{0-1}.bias\", shape: [4, 2], role: expert_down_bias}\n"                   \
    "  - {name: \"layers.{0-1}.shared\", shape: [8, 2], role: shared_up}\n"
/* More value heads than key heads: tp 4 would cut the one evenly, not the other. */
#define DELTA_NET                                                                                  \
    "family: qwen3_5_moe\nconfig: {hidden_size: 8, vocab_size: 128, num_hidden_layers: 2, "        \
    "full_attention_interval: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, "    \
    "linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 2, "                 \
    "linear_value_head_dim: 2, linear_conv_kernel_dim: 4, num_experts: 2, "                        \
    "moe_intermediate_size: 8, shared_expert_intermediate_size: 8, mtp_stacked_experts: true}\n"
#define GPT_OSS                                                                                    \
    "family: gpt_oss\nconfig: {hidden_size: 8, vocab_size: 128, num_hidden_layers: 1, "            \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, intermediate_size: 8, "          \
    "num_local_experts: 2}\n"
#define IN_GROUPS EXPERTS "config: {n_group: 2}\n"
#define SIX_LAYERS                                                                                 \
    "family: list\ntensors:\n  - {name: \"layers.{0-5}.norm\", shape: [2], role: norm}\n"
#define THIRTY                                                                                     \
    "family: list\ntensors:\n  - {name: layers.0.e, shape: [30, 2], role: expert_down_bias}\n"
#define UNEQUAL                                                                                    \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: layers.0.stacked, shape: [4, 4, 2], role: expert_up}\n"                            \
    "  - {name: layers.1.stacked, shape: [5, 4, 2], role: expert_up}\n"

/*
 * The rows of dim 0 that `rank` holds, in the order in which it stores them, part by part. Places
 * that this part leaves to another one are dots.
 */
static void assert_slots(const RefitLayout *layout, const char *name, guint rank,
                         const char *expected) {
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), find(layout, name));
    const RefitSharding *sharding = sharding_of(layout, name);
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint part = 0; part < refit_sharding_n_parts(sharding); part++) {
        g_auto(RefitRegion) region = {0};
        guint64 shape[REFIT_MAX_DIMS], rows[16], n = 0;
        g_autoptr(GError) error = NULL;

        for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
            rows[i] = G_MAXUINT64;
        if (!refit_sharding_local(sharding, part, rank, tensor->n_dims, tensor->shape, &region,
                                  shape, &error)) {
            g_assert_no_error(error);
            continue;
        }
        for (guint i = 0; i < region.dims[0]->n; i++) {
            const RefitInterval *item = &region.dims[0]->items[i];

            for (guint64 row = item->lo; row < item->hi; row++)
                rows[item->at + row - item->lo] = row;
            n = MAX(n, item->at + item->hi - item->lo);
        }
        g_string_append(text, text->len > 0 ? " |" : "");
        for (guint64 i = 0; i < n; i++) {
            if (rows[i] == G_MAXUINT64)
                g_string_append(text, " .");
            else
                g_string_append_printf(text, " %" G_GUINT64_FORMAT, rows[i]);
        }
    }
    g_assert_cmpstr(text->str, ==, expected);
}

static void assert_stages(const char *model, const char *side, const char *pattern,
                          const char *expected) {
    g_autoptr(RefitLayout) layout = make(model, side);
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint layer = 0; layer < refit_model_n_layers(refit_layout_model(layout)); layer++) {
        g_auto(GStrv) pieces = g_strsplit(pattern, "#", 2);
        g_autofree char *name = g_strdup_printf("%s%u%s", pieces[0], layer, pieces[1]);

        g_string_append_printf(text, "%u",
                               refit_sharding_mesh(sharding_of(layout, name), 0)->ranks[0]);
    }
    g_assert_cmpstr(text->str, ==, expected);
}

static void test_vllm_order(void) {
    g_autoptr(RefitLayout) layout =
        make(SMALL, "{framework: vllm, gpus: 8, tp: 2, pp: 2, engines: 2, first_gpu: 0}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "vllm tp2 pp2 dp1 x 2 engines");
    g_assert_cmpuint(refit_layout_n_stages(layout), ==, 2);
    for (guint i = 0; i < 8; i++)
        g_assert_cmpuint(refit_layout_stage_of(layout, i), ==, i / 2 % 2);
    assert_held(layout, "model.embed_tokens.weight", "0,4 [0:128, 0:8]; 1,5 [128:256, 0:8]");
    assert_held(layout, "lm_head.weight", "2,6 [0:128, 0:8]; 3,7 [128:256, 0:8]");
    assert_held(layout, "model.norm.weight", "2,3,6,7 [0:8]");
    assert_held(layout, "model.layers.1.self_attn.k_proj.weight", "0,4 [0:2, 0:8]; 1,5 [2:4, 0:8]");
    assert_held(layout, "model.layers.2.self_attn.o_proj.weight", "2,6 [0:8, 0:4]; 3,7 [0:8, 4:8]");
    assert_held(layout, "model.layers.0.mlp.experts.3.gate_proj.weight",
                "0,4 [0:2, 0:8]; 1,5 [2:4, 0:8]");
    assert_held(layout, "model.layers.0.mlp.experts.3.down_proj.weight",
                "0,4 [0:8, 0:2]; 1,5 [0:8, 2:4]");
    assert_held(layout, "model.layers.0.mlp.gate.weight", "0,1,4,5 [0:4, 0:8]");
    g_assert_true(sharding_of(layout, "model.layers.0.mlp.experts.3.gate_proj.weight") ==
                  sharding_of(layout, "model.layers.1.self_attn.q_proj.weight"));
}

static void test_vllm_kv_heads(void) {
    /* Two KV heads over four ranks: each head twice, on neighbours. */
    g_autoptr(RefitLayout) small = make(SMALL, "{framework: vllm, gpus: 8, tp: 4, first_gpu: 0}");
    assert_held(small, "model.layers.0.self_attn.k_proj.weight",
                "0,1,4,5 [0:2, 0:8]; 2,3,6,7 [2:4, 0:8]");
    assert_held(small, "model.layers.0.self_attn.q_proj.weight",
                "0,4 [0:2, 0:8]; 1,5 [2:4, 0:8]; 2,6 [4:6, 0:8]; 3,7 [6:8, 0:8]");
    g_autoptr(RefitLayout) qwen =
        make(QWEN_235B, "{framework: vllm, gpus: 8, tp: 8, first_gpu: 0}");
    assert_held(qwen, "model.layers.93.self_attn.v_proj.weight",
                "0,1 [0:128, 0:4096]; 2,3 [128:256, 0:4096]; 4,5 [256:384, 0:4096]; "
                "6,7 [384:512, 0:4096]");
}

static void test_vllm_vocabulary(void) {
    /* 300 rows are padded to 320. */
    g_autoptr(RefitLayout) layout = make(ODD, "{framework: vllm, gpus: 4, tp: 4}");

    assert_held(layout, "lm_head.weight",
                "4 [0:80, 0:8]; 5 [80:160, 0:8]; 6 [160:240, 0:8]; 7 [240:300, 0:8]");
    g_autoptr(RefitLayout) whole = make(ODD, "{framework: vllm, gpus: 1, tp: 1}");
    g_assert_cmpuint(refit_sharding_padded(sharding_of(whole, "lm_head.weight"), 0), ==, 320);
    assert_held(whole, "lm_head.weight", "4 [0:300, 0:8]");
    g_autoptr(RefitLayout) tied =
        make(TIED, "{framework: vllm, gpus: 4, tp: 2, pp: 2, first_gpu: 0}");
    g_assert_cmpuint(refit_sharding_n_parts(sharding_of(tied, "model.embed_tokens.weight")), ==, 2);
    assert_held(tied, "model.embed_tokens.weight", "0,2 [0:128, 0:8]; 1,3 [128:256, 0:8]");
}

static void test_vllm_expert_parallel(void) {
    static const char *const stated[] = {"true", "4"};

    for (guint i = 0; i < G_N_ELEMENTS(stated); i++) {
        g_autofree char *side = g_strdup_printf(
            "{framework: vllm, gpus: 8, tp: 2, pp: 2, ep: %s, first_gpu: 0}", stated[i]);
        g_autoptr(RefitLayout) layout = make(SMALL, side);

        g_assert_cmpstr(refit_layout_summary(layout), ==, "vllm tp2 pp2 ep4 dp2");
        assert_held(layout, "model.layers.0.mlp.experts.0.up_proj.weight", "0 [0:4, 0:8]");
        assert_held(layout, "model.layers.0.mlp.experts.1.down_proj.weight", "1 [0:8, 0:4]");
        assert_held(layout, "model.layers.1.mlp.experts.2.up_proj.weight", "4 [0:4, 0:8]");
        assert_held(layout, "model.layers.3.mlp.experts.3.up_proj.weight", "7 [0:4, 0:8]");
    }
}

static void test_vllm_uneven_experts(void) {
    /* 6 experts on 4 ranks: 0-1, 2-3, 4, 5. */
    static const guint rank_of[] = {0, 0, 1, 1, 2, 3};
    g_autoptr(RefitLayout) layout = make(ODD, "{framework: vllm, gpus: 4, ep: true, first_gpu: 0}");

    for (guint i = 0; i < G_N_ELEMENTS(rank_of); i++) {
        g_autofree char *name = g_strdup_printf("model.layers.0.mlp.experts.%u.up_proj.weight", i);
        g_autofree char *expected = g_strdup_printf("%u [0:4, 0:8]", rank_of[i]);
        assert_held(layout, name, expected);
    }
}

static void test_vllm_stacked(void) {
    g_autoptr(RefitLayout) spread =
        make(STACKED, "{framework: vllm, gpus: 4, tp: 2, ep: true, first_gpu: 0}");
    assert_held(spread, "layers.1.down",
                "0 [0:2, 0:2, 0:4]; 1 [2:4, 0:2, 0:4]; 2 [4:6, 0:2, 0:4]; 3 [6:8, 0:2, 0:4]");
    g_autoptr(RefitLayout) cut =
        make(STACKED, "{framework: vllm, gpus: 2, tp: 2, ep: false, first_gpu: 0}");
    assert_held(cut, "layers.1.down", "0 [0:8, 0:2, 0:2]; 1 [0:8, 0:2, 2:4]");
    assert_held(cut, "layers.0.up", "0 [0:8, 0:2, 0:2]; 1 [0:8, 2:4, 0:2]");
    /* A module of its own cuts it; MTP layers among the others keep it whole. */
    assert_held(cut, "mtp.proj", "0 [0:2, 0:4]; 1 [2:4, 0:4]");
    g_autoptr(RefitLayout) among =
        make(STACKED "  - {name: layers.2.eh_proj, shape: [4, 4], role: mtp_proj, mtp: true}\n",
             "{framework: vllm, gpus: 2, tp: 2, first_gpu: 0}");
    assert_held(among, "layers.2.eh_proj", "0,1 [0:4, 0:4]");
}

static void test_vllm_bytes(void) {
    /*
     * DeepSeek-V3: everything over 32 ranks but q_a, kv_a, norms and routers, whose biases are F32.
     * Qwen3-235B: all 470.2 GB once, KV rows twice, norms and routers eight times.
     */
    g_autoptr(RefitLayout) deepseek =
        make(DEEPSEEK, "{framework: vllm, gpus: 256, tp: 32, engines: 8, first_gpu: 0}");
    g_assert_cmpuint(bytes_on(deepseek, 0), ==, G_GUINT64_CONSTANT(43936587776));
    g_assert_cmpuint(bytes_on(deepseek, 255), ==, G_GUINT64_CONSTANT(43936587776));
    g_autoptr(RefitLayout) qwen =
        make(QWEN_235B, "{framework: vllm, gpus: 128, tp: 8, engines: 16, first_gpu: 0}");
    guint64 sum = 0;
    for (guint rank = 8; rank < 16; rank++)
        sum += bytes_on(qwen, rank);
    g_assert_cmpuint(sum, ==, G_GUINT64_CONSTANT(471676936192));
}

static void test_vllm_refusals(void) {
    static const char *const cases[][3] = {
        {SMALL, "{framework: vllm, gpus: 8, tp: 3}",
         "c.yaml:1:39: train.tp: tp 3 does not divide the 8 GPUs; choose sizes whose product does"},
        {SMALL, "{framework: vllm, gpus: 8, tp: 2, engines: 2}",
         "c.yaml:1:51: train.engines: tp 2 * pp 1 * dp 1 * engines 2 is not the 8 GPUs; leave "
         "engines out or write 4"},
        {SMALL, "{framework: vllm, gpus: 8, tp: 2, ep: true, dp: 3}",
         "c.yaml:1:56: train.dp: tp 2 * pp 1 * dp 3 does not divide the 8 GPUs; choose sizes whose "
         "product does"},
        {SMALL, "{framework: vllm, gpus: 8, tp: 8}",
         "c.yaml:1:39: train.tp: tp 8 does not divide the model's 4 attention heads; use a divisor "
         "of 4"},
        {SMALL, "{framework: vllm, gpus: 8, pp: 8}",
         "c.yaml:1:39: train.pp: pp 8 is more than the model's 4 layers; use at most 4, or say "
         "with stage_layers which stages have none"},
        {SMALL, "{framework: vllm, gpus: 3, pp: 3, stage_layers: [2, 2]}",
         "c.yaml:1:56: train.stage_layers: has 2 numbers, but pp is 3; write one for each stage"},
        {SMALL, "{framework: vllm, gpus: 2, pp: 2, stage_layers: [2, 3]}",
         "c.yaml:1:56: train.stage_layers: the stages take 5 layers, but model m has 4; make them "
         "add up"},
        {SMALL, "{framework: vllm, gpus: 2, pp: 2, stage_layers: 4}",
         "c.yaml:1:56: train.stage_layers: *"},
        {SMALL, "{framework: vllm, gpus: 2, pp: 2, stage_layers: [5, -1]}",
         "c.yaml:1:57: train.stage_layers.0: *"},
        {SMALL, "{framework: vllm, gpus: 8, tp: 2, ep: 4}",
         "c.yaml:1:46: train.ep: ep 4 is not tp * dp = 8; write true or 8"},
        {SMALL, "{framework: vllm, gpus: 8, tp: 2, ep: yess}", "c.yaml:1:46: train.ep: *"},
        {TIED, "{framework: vllm, gpus: 8, tp: 2, ep: true}",
         "c.yaml:1:46: train.ep: ep 8, but model m has no routed experts; leave ep out"},
        {SMALL, "{framework: vllm, gpus: 4, ep: true, moe_tp_across_dp: true}",
         "c.yaml:1:63: train.moe_tp_across_dp: with ep no expert is cut; leave out "
         "moe_tp_across_dp or ep"},
        {SMALL, "{framework: vllm, gpus: 4, tp: 4, sequence_parallel_moe: true}",
         "c.yaml:1:65: train.sequence_parallel_moe: sequence_parallel_moe goes with ep; set ep, or "
         "leave this out"},
        {SMALL, "{framework: vllm, gpus: 4, tp: 3, engines: 4}",
         "c.yaml:1:39: train.tp: tp 3 does not divide the 4 GPUs; choose sizes whose product does"},
        {SMALL, "{framework: vllm, gpus: 4, tp: 2, dp: 2, moe_tp_across_dp: false}",
         "c.yaml:1:67: train.moe_tp_across_dp: data parallel ranks of one engine step together, so "
         "that it cuts experts over tp * dp; write engines: 2 in place of dp for engines on their "
         "own"},
        {SMALL, "{framework: vllm, gpus: 4, tp: 2, dp: 2, engines: 2}",
         "c.yaml:1:58: train.engines: tp 2 * pp 1 * dp 2 * engines 2 is not the 4 GPUs; leave "
         "engines out or write 1"},
        {SMALL, "{framework: vllm, gpus: 4, tp: 2, engines: 4}",
         "c.yaml:1:51: train.engines: tp 2 * pp 1 * dp 1 * engines 4 is not the 4 GPUs; leave "
         "engines out or write 2"},
        {DELTA_NET, "{framework: vllm, gpus: 4, tp: 4}",
         "c.yaml:1:39: train.tp: tp 4 does not divide the 2 heads or groups of segment 0 of "
         "model.layers.0.linear_attn.conv1d.weight; use a divisor of 2"},
        {GPT_OSS, "{framework: vllm, gpus: 4, tp: 4}",
         "c.yaml:1:39: train.tp: tp 4 exceeds the 2 KV heads of gpt-oss, whose attention the "
         "engine cannot repeat over ranks; use a divisor of 2"},
        {LIST_SIX, "{framework: vllm, gpus: 4, tp: 4}",
         "c.yaml:1:39: train.tp: tp 4 and the model's 6 KV heads do not divide each other; use a "
         "divisor or a multiple of 6"},
        {LIST_HEAD, "{framework: vllm, gpus: 3, tp: 3}",
         "c.yaml:1:39: train.tp: tp 3 does not divide the vocabulary of 64 rows, padded to 64; use "
         "a divisor of 64"},
        {LIST_FFN, "{framework: vllm, gpus: 3, tp: 3}",
         "c.yaml:1:39: train.tp: tp 3 does not divide dim 1 of down, which is 4; use a divisor of "
         "it"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        assert_refused(cases[i][0], cases[i][1], cases[i][2]);
}

/* Layers left over go to the stages before the last, from the back. */
static void test_vllm_uneven_stages(void) {
    assert_stages(SMALL, "{framework: vllm, gpus: 3, pp: 3, first_gpu: 0}",
                  "model.layers.#.input_layernorm.weight", "0112");
    assert_stages(SIX_LAYERS, "{framework: vllm, gpus: 4, pp: 4, first_gpu: 0}", "layers.#.norm",
                  "011223");
    assert_stages(SIX_LAYERS, "{framework: vllm, gpus: 5, pp: 5, first_gpu: 0}", "layers.#.norm",
                  "012334");
    /* 61 layers in 4 stages: 15, 15, 16, 15. */
    assert_stages(DEEPSEEK, "{framework: vllm, gpus: 4, pp: 4, first_gpu: 0}",
                  "model.layers.#.input_layernorm.weight",
                  "000000000000000"
                  "111111111111111"
                  "2222222222222222"
                  "333333333333333");
    assert_stages(SMALL, "{framework: vllm, gpus: 3, stage_layers: [3, 0, 1], first_gpu: 0}",
                  "model.layers.#.input_layernorm.weight", "0002");
    g_autoptr(RefitLayout) stated =
        make(SMALL, "{framework: vllm, gpus: 8, tp: 2, stage_layers: [1, 3], first_gpu: 0}");
    g_assert_cmpstr(refit_layout_summary(stated), ==, "vllm tp2 pp2 dp1 x 2 engines");
    assert_held(stated, "model.layers.1.input_layernorm.weight", "2,3,6,7 [0:8]");
}

static void test_vllm_engines(void) {
    /* Two engines of tp 2, pp 2, dp 2: stage 0 is 0,1 and 4,5 of the first, 8,9 and 12,13 of the
     * second. */
    g_autoptr(RefitLayout) layout = make(
        SMALL, "{framework: vllm, gpus: 16, tp: 2, pp: 2, engines: 2, ep: true, first_gpu: 0}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "vllm tp2 pp2 ep4 dp2 x 2 engines");
    assert_held(layout, "model.layers.0.self_attn.q_proj.weight",
                "0,4,8,12 [0:4, 0:8]; 1,5,9,13 [4:8, 0:8]");
    assert_held(layout, "model.layers.0.mlp.experts.1.up_proj.weight", "1,9 [0:4, 0:8]");
    assert_held(layout, "model.layers.3.mlp.experts.2.up_proj.weight", "6,14 [0:4, 0:8]");
}

static void test_vllm_across_dp(void) {
    g_autoptr(RefitLayout) layout =
        make(EXPERTS, "{framework: vllm, gpus: 4, tp: 2, dp: 2, first_gpu: 0}");
    g_autoptr(RefitLayout) engines =
        make(EXPERTS, "{framework: vllm, gpus: 4, tp: 2, first_gpu: 0}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "vllm tp2 dp2");
    g_assert_cmpstr(refit_layout_summary(engines), ==, "vllm tp2 dp1 x 2 engines");
    assert_held(engines, "layers.0.experts.2.up", "0,2 [0:2, 0:2]; 1,3 [2:4, 0:2]");

    assert_held(layout, "layers.0.experts.2.up",
                "0 [0:1, 0:2]; 1 [1:2, 0:2]; 2 [2:3, 0:2]; 3 [3:4, 0:2]");
    assert_held(layout, "layers.0.shared", "0,2 [0:4, 0:2]; 1,3 [4:8, 0:2]");
}

static void test_vllm_sequence_parallel(void) {
    g_autoptr(RefitLayout) layout = make(
        EXPERTS,
        "{framework: vllm, gpus: 4, tp: 2, ep: true, sequence_parallel_moe: true, first_gpu: 0}");

    assert_held(layout, "layers.0.shared", "0,1,2,3 [0:8, 0:2]");
    assert_held(layout, "layers.0.experts.2.up", "2 [0:4, 0:2]");
}

static void test_vllm_uneven_stacked(void) {
    /* 4 stacked experts on 3 ranks: two, one, one; biases of the way down likewise. */
    g_autoptr(RefitLayout) layout =
        make(EXPERTS, "{framework: vllm, gpus: 3, ep: true, first_gpu: 0}");

    assert_held(layout, "layers.0.stacked",
                "0 [0:2, 0:4, 0:2]; 1 [2:3, 0:4, 0:2]; 2 [3:4, 0:4, 0:2]");
    assert_held(layout, "layers.0.bias", "0 [0:2, 0:2]; 1 [2:3, 0:2]; 2 [3:4, 0:2]");
    assert_held(layout, "layers.0.experts.1.up", "0 [0:4, 0:2]");
    assert_held(layout, "layers.0.experts.3.up", "2 [0:4, 0:2]");
    g_autoptr(RefitLayout) thirty =
        make(THIRTY, "{framework: vllm, gpus: 8, ep: true, first_gpu: 0}");
    assert_held(thirty, "layers.0.e",
                "0 [0:4, 0:2]; 1 [4:8, 0:2]; 2 [8:12, 0:2]; 3 [12:16, 0:2]; 4 [16:20, 0:2]; "
                "5 [20:24, 0:2]; 6 [24:27, 0:2]; 7 [27:30, 0:2]");
    /* More ranks than experts: the last ones have none. */
    g_autoptr(RefitLayout) wide =
        make(EXPERTS, "{framework: vllm, gpus: 6, ep: true, first_gpu: 0}");
    assert_held(wide, "layers.0.bias", "0 [0:1, 0:2]; 1 [1:2, 0:2]; 2 [2:3, 0:2]; 3 [3:4, 0:2]");
}

/* The engine places experts linearly where it cannot place them in turn, and goes on. */
static void test_vllm_round_robin_falls_back(void) {
    static const char *const cases[][3] = {
        {EXPERTS, "gpus: 3, tp: 1, dp: 3, ep: true", "no expert groups"},
        {IN_GROUPS, "gpus: 3, tp: 1, dp: 3, ep: true", "no routing tables"},
        {IN_GROUPS, "gpus: 2, tp: 2, ep: true, redundant_experts: 2", "redundant copies"},
        {IN_GROUPS, "gpus: 2, tp: 2, ep: true, expert_map: [0, 1, 2, 3]", "rebalanced"},
        {IN_GROUPS, "gpus: 1, ep: true", "not spread"},
        {IN_GROUPS, "gpus: 2, tp: 2", "not spread"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *side = g_strdup_printf("{framework: vllm, %s, first_gpu: 0}", cases[i][1]);
        g_autofree char *turned = g_strdup_printf(
            "{framework: vllm, %s, expert_placement: round_robin, first_gpu: 0}", cases[i][1]);
        g_autoptr(RefitLayout) linear = make(cases[i][0], side);
        g_autoptr(RefitLayout) layout = make(cases[i][0], turned);
        g_autoptr(RefitHolding) wanted = holding_of(linear, find(linear, "layers.1.experts.2.up"));
        g_autoptr(RefitHolding) held = holding_of(layout, find(layout, "layers.1.experts.2.up"));
        g_assert_cmpuint(refit_layout_n_notes(layout), ==, 1);
        g_assert_nonnull(strstr(refit_layout_note(layout, 0), cases[i][2]));
        g_assert_cmpuint(refit_layout_n_notes(linear), ==, 0);
        g_assert_cmpuint(held->n_pieces, ==, wanted->n_pieces);
        for (guint p = 0; p < held->n_pieces; p++)
            g_assert_cmpuint(held->pieces[p].ranks[0], ==, wanted->pieces[p].ranks[0]);
    }
}

static void test_vllm_round_robin(void) {
    g_autoptr(RefitLayout) layout =
        make(IN_GROUPS, "{framework: vllm, gpus: 3, dp: 3, ep: true, all2all_backend: "
                        "deepep_low_latency, expert_placement: round_robin, first_gpu: 0}");

    g_assert_cmpuint(refit_layout_n_notes(layout), ==, 0);
    assert_slots(layout, "layers.1.stacked", 0, " 0 3");
    assert_slots(layout, "layers.1.stacked", 1, " 1");
    assert_slots(layout, "layers.1.stacked", 2, " 2");
    assert_held(layout, "layers.1.experts.3.up", "0 [0:4, 0:2]");
    assert_held(layout, "layers.1.experts.2.up", "2 [0:4, 0:2]");
}

static void test_vllm_redundant(void) {
    /* Six slots: 0 1 2 and 3 0 1. */
    g_autoptr(RefitLayout) layout =
        make(EXPERTS, "{framework: vllm, gpus: 2, ep: true, redundant_experts: 2, first_gpu: 0}");

    assert_slots(layout, "layers.0.stacked", 0, " 0 1 2");
    assert_slots(layout, "layers.0.stacked", 1, " 3 0 1");
    assert_slots(layout, "layers.0.bias", 1, " 3 0 1");
    assert_held(layout, "layers.0.stacked", "1 [0:2+3:4, 0:4, 0:2]; 0 [0:3, 0:4, 0:2]");
    assert_held(layout, "layers.0.experts.0.up", "0,1 [0:4, 0:2]");
    assert_held(layout, "layers.0.experts.2.up", "0 [0:4, 0:2]");
    assert_held(layout, "layers.0.experts.3.up", "1 [0:4, 0:2]");
    assert_held(layout, "layers.0.shared", "0,1 [0:8, 0:2]");
    /* More copies than experts, twice on one rank: slots 0 1 2 3 0 and 1 2 3 0 1. */
    g_autoptr(RefitLayout) many =
        make(EXPERTS, "{framework: vllm, gpus: 2, ep: true, redundant_experts: 6, first_gpu: 0}");
    assert_slots(many, "layers.0.stacked", 0, " 0 1 2 3 | . . . . 0");
    assert_slots(many, "layers.0.stacked", 1, " 1 2 3 0 | . . . . 1");
    g_assert_cmpuint(refit_sharding_n_parts(sharding_of(many, "layers.0.experts.0.up")), ==, 3);
    assert_held(many, "layers.0.experts.0.up", "0,1 [0:4, 0:2]");
}

static void test_vllm_expert_map(void) {
    static const char *const maps[] = {"[[0, 1, 2], [3, 0, 2]]", "[0, 1, 2, 3, 0, 2]"};

    for (guint i = 0; i < G_N_ELEMENTS(maps); i++) {
        /* Two engines of two stages. */
        g_autofree char *side =
            g_strdup_printf("{framework: vllm, gpus: 8, tp: 2, pp: 2, ep: true, engines: 2, "
                            "expert_map: %s, first_gpu: 0}",
                            maps[i]);
        g_autoptr(RefitLayout) layout = make(EXPERTS, side);

        assert_slots(layout, "layers.1.stacked", 2, " 0 1 2");
        assert_slots(layout, "layers.1.stacked", 3, " 3 0 2");
        assert_slots(layout, "layers.1.stacked", 7, " 3 0 2");
        assert_slots(layout, "layers.0.stacked", 5, " 3 0 2");
        assert_held(layout, "layers.0.experts.0.up", "0,1,4,5 [0:4, 0:2]");
        assert_held(layout, "layers.0.experts.1.up", "0,4 [0:4, 0:2]");
        assert_held(layout, "layers.1.experts.2.up", "2,3,6,7 [0:4, 0:2]");
        assert_held(layout, "layers.1.experts.3.up", "3,7 [0:4, 0:2]");
    }
    /* Ranks may have different numbers of slots, or none. */
    g_autoptr(RefitLayout) odd =
        make(EXPERTS, "{framework: vllm, gpus: 3, ep: true, expert_map: [[2, 0, 1, 3], [], [1]], "
                      "first_gpu: 0}");
    assert_slots(odd, "layers.0.stacked", 0, " 2 0 1 3");
    assert_slots(odd, "layers.0.stacked", 2, " 1");
    assert_held(odd, "layers.0.experts.1.up", "0,2 [0:4, 0:2]");
    assert_held(odd, "layers.0.stacked", "0 [0:4, 0:4, 0:2]; 2 [1:2, 0:4, 0:2]");
}

/* Parameters of live engines are in the order of the slots, which need not be that of numbers. */
static void test_vllm_slot_views(void) {
    static const guint slots[] = {2, 0, 1, 2};
    g_autoptr(RefitLayout) layout = make(
        SMALL, "{framework: vllm, gpus: 2, ep: true, expert_map: [[2, 0, 1, 2], [3, 1, 0, 3]], "
               "first_gpu: 0}");
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitRankViews) views = refit_rank_views_new(layout, 0, &error);
    g_assert_no_error(error);

    for (guint expert = 0; expert < 3; expert++) {
        g_autofree char *up =
            g_strdup_printf("model.layers.2.mlp.experts.%u.up_proj.weight", expert);
        g_autofree char *down =
            g_strdup_printf("model.layers.2.mlp.experts.%u.down_proj.weight", expert);
        guint n_up, n_down, n = 0;
        const RefitView *up_view = refit_rank_views_find(views, find(layout, up), &n_up);
        const RefitView *down_view = refit_rank_views_find(views, find(layout, down), &n_down);

        for (guint slot = 0; slot < G_N_ELEMENTS(slots); slot++) {
            if (slots[slot] != expert)
                continue;
            /* A slot is 4 rows of gate and 4 of up, and a way down of 8 x 4. */
            g_assert_cmpuint(n, <, MIN(n_up, n_down));
            g_assert_cmpuint(up_view[n].offset, ==, slot * 64);
            g_assert_cmpuint(up_view[n].region.dims[0]->items[0].at, ==, 4);
            g_assert_cmpuint(down_view[n].offset, ==, slot * 32);
            n++;
        }
        g_assert_cmpuint(n, ==, n_up);
        g_assert_cmpuint(n, ==, n_down);
        g_assert_cmpuint(views->parameters[up_view->parameter].shape[0], ==, 4);
    }
    /* Where no map is stated, copies come behind: 0 1 2 | 3 0 1. */
    g_autoptr(RefitLayout) rule =
        make(SMALL, "{framework: vllm, gpus: 2, ep: true, redundant_experts: 2, first_gpu: 0}");
    g_autoptr(RefitRankViews) second = refit_rank_views_new(rule, 1, &error);
    g_assert_no_error(error);
    static const guint offsets[] = {32, 64, 0, 0};
    for (guint expert = 0; expert < 4; expert++) {
        g_autofree char *down =
            g_strdup_printf("model.layers.0.mlp.experts.%u.down_proj.weight", expert);
        const RefitView *view = refit_rank_views_find(second, find(rule, down), NULL);

        if (expert == 2)
            g_assert_null(view);
        else
            g_assert_cmpuint(view->offset, ==, offsets[expert]);
    }
}

static void test_vllm_expert_refusals(void) {
    static const char *const cases[][2] = {
        {"redundant_experts: 2", "c.yaml:1:54: train.redundant_experts: experts are not spread "
                                 "over ranks; set ep, or leave this out"},
        {"expert_map: [0, 1, 2, 3]", "c.yaml:1:47: train.expert_map: experts are not spread over "
                                     "ranks; set ep, or leave this out"},
        {"ep: true, redundant_experts: 3",
         "c.yaml:1:64: train.redundant_experts: ep 2 does not divide the 7 slots of 4 experts and "
         "3 redundant ones; use redundant_experts 4"},
        {"ep: true, redundant_experts: 2000000",
         "c.yaml:1:64: train.redundant_experts: 2000004 expert slots are more than 1048576, the "
         "most that a layer may have"},
        {"ep: true, redundant_experts: -1", "c.yaml:1:64: train.redundant_experts: *"},
        {"ep: true, redundant_experts: 2, expert_map: [0, 1, 2, 3]",
         "c.yaml:1:64: train.redundant_experts: redundant_experts and expert_map both say which "
         "slots there are; keep one"},
        {"ep: true, expert_placement: robin", "c.yaml:1:63: train.expert_placement: *"},
        {"ep: true, expert_map: 4", "c.yaml:1:57: train.expert_map: *"},
        {"ep: true, expert_map: []", "c.yaml:1:57: train.expert_map: expert 0 of 4 is in no slot; "
                                     "give every expert at least one"},
        {"ep: true, expert_map: [0, 1, 2]",
         "c.yaml:1:57: train.expert_map: expert_map has 3 slots, which the 2 expert ranks cannot "
         "share evenly; write a list per rank"},
        {"ep: true, expert_map: [[0, 1, 2, 3]]",
         "c.yaml:1:57: train.expert_map: expert_map has 1 lists, but there are 2 expert ranks; "
         "write one list per rank"},
        {"ep: true, expert_map: [[0, 1], 2]", "c.yaml:1:66: train.expert_map.1: *"},
        {"ep: true, expert_map: [[0, 1], [2, 4]]", "c.yaml:1:70: train.expert_map.1.1: *"},
        {"ep: true, expert_map: [0, 1, [2], 3]", "c.yaml:1:64: train.expert_map.2: *"},
        {"ep: true, expert_map: [0, 1, 3, 1]",
         "c.yaml:1:57: train.expert_map: expert 2 of 4 is in no slot; give every expert at least "
         "one"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *side = g_strdup_printf("{framework: vllm, gpus: 2, %s}", cases[i][0]);

        g_test_message("%s", side);
        assert_refused(EXPERTS, side, cases[i][1]);
    }
    assert_refused(UNEQUAL, "{framework: vllm, gpus: 2, ep: true}",
                   "c.yaml:1:39: train.ep: layers.1.stacked does not fit the model's 4 routed "
                   "experts; give all layers as many, or leave ep out");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout-vllm/orders-ranks-tp-pp-dp", test_vllm_order);
    g_test_add_func("/layout-vllm/holds-few-kv-heads-several-times", test_vllm_kv_heads);
    g_test_add_func("/layout-vllm/pads-the-vocabulary", test_vllm_vocabulary);
    g_test_add_func("/layout-vllm/spreads-whole-experts", test_vllm_expert_parallel);
    g_test_add_func("/layout-vllm/gives-the-first-ranks-one-expert-more", test_vllm_uneven_experts);
    g_test_add_func("/layout-vllm/cuts-stacked-experts", test_vllm_stacked);
    g_test_add_func("/layout-vllm/holds-the-known-bytes", test_vllm_bytes);
    g_test_add_func("/layout-vllm/refuses-what-does-not-divide", test_vllm_refusals);
    g_test_add_func("/layout-vllm/gives-layers-left-over-to-stages-before-the-last",
                    test_vllm_uneven_stages);
    g_test_add_func("/layout-vllm/repeats-engines", test_vllm_engines);
    g_test_add_func("/layout-vllm/cuts-experts-over-data-parallel-ranks", test_vllm_across_dp);
    g_test_add_func("/layout-vllm/keeps-shared-experts-whole-when-sequence-parallel",
                    test_vllm_sequence_parallel);
    g_test_add_func("/layout-vllm/spreads-stacked-experts-unevenly", test_vllm_uneven_stacked);
    g_test_add_func("/layout-vllm/places-experts-in-turn", test_vllm_round_robin);
    g_test_add_func("/layout-vllm/does-not-always-place-experts-in-turn",
                    test_vllm_round_robin_falls_back);
    g_test_add_func("/layout-vllm/puts-redundant-experts-behind-the-others", test_vllm_redundant);
    g_test_add_func("/layout-vllm/follows-a-stated-expert-map", test_vllm_expert_map);
    g_test_add_func("/layout-vllm/keeps-parameters-in-the-order-of-slots", test_vllm_slot_views);
    g_test_add_func("/layout-vllm/refuses-experts-that-do-not-fit", test_vllm_expert_refusals);
    return g_test_run();
}
