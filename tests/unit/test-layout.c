/*
 * Layouts: which rank holds which part of which tensor.
 *
 * Covers: the ranks of a side (counts, first GPU, lists, ranges, order); Megatron stages, rank
 * order, expert groups, expert tensor parallelism, padded vocabulary, tied embeddings, fused
 * query-key-value rows; the shared shardings; whole-model facts of DeepSeek-V3; and the exact
 * message of each refusal. Expected regions were worked out by hand from the rank order of each
 * engine.
 */

#include "test-layout-models.h"

static void assert_ranks(const RefitLayout *layout, const char *expected) {
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
        g_string_append_printf(text, "%s%u", i > 0 ? "," : "", refit_layout_ranks(layout)[i]);
    g_assert_cmpstr(text->str, ==, expected);
}

/* ---- sides ---- */

static void test_side_ranks(void) {
    g_autoptr(RefitLayout) next = make(LIST, "{framework: vllm, gpus: 3}");
    assert_ranks(next, "4,5,6");
    g_autoptr(RefitLayout) first = make(LIST, "{framework: vllm, gpus: 2, first_gpu: 510}");
    assert_ranks(first, "510,511");
    g_autoptr(RefitLayout) list = make(LIST, "{framework: vllm, ranks: [9, 2-4, \"0-1\", 7]}");
    assert_ranks(list, "9,2,3,4,0,1,7");
    g_autoptr(RefitLayout) agreed = make(LIST, "{framework: vllm, gpus: 2, ranks: [1, 0]}");
    assert_ranks(agreed, "1,0");
    g_assert_cmpstr(refit_layout_side(list), ==, "train");
    g_assert_cmpstr(refit_layout_framework(list), ==, "vllm");
    g_assert_cmpstr(refit_layout_summary(list), ==, "vllm tp1 dp1 x 7 engines");
    g_assert_cmpuint(refit_layout_n_stages(list), ==, 1);
    g_assert_cmpuint(refit_layout_stage_of(list, 6), ==, 0);
}

static void test_side_refusals(void) {
    static const char *const cases[][2] = {
        {"{gpus: 4}", "c.yaml:1:8: train: *"},
        {"{framework: megatorn, gpus: 4}", "c.yaml:1:20: train.framework: \"megatorn\" *"},
        {"{framework: vllm}", "c.yaml:1:8: train: the number of GPUs is missing; write gpus (a "
                              "count) or ranks (a list)"},
        {"{framework: vllm, gpus: 0}", "c.yaml:1:32: train.gpus: *"},
        {"{framework: vllm, gpus: 509}",
         "c.yaml:1:32: train.gpus: 509 GPUs from GPU 4 on need 513, but the topology has 512; use "
         "fewer, or a topology with more nodes"},
        {"{framework: vllm, first_gpu: 511, gpus: 2}",
         "c.yaml:1:48: train.gpus: 2 GPUs from GPU 511 on need 513, but the topology has 512; use "
         "fewer, or a topology with more nodes"},
        {"{framework: vllm, first_gpu: 1, ranks: [0]}",
         "c.yaml:1:37: train.first_gpu: first_gpu and ranks both say which GPUs to use; keep one"},
        {"{framework: vllm, gpus: 3, ranks: [0, 1]}",
         "c.yaml:1:42: train.ranks: 2 ranks are listed, but gpus is 3; leave gpus out or make them "
         "agree"},
        {"{framework: vllm, ranks: []}",
         "c.yaml:1:33: train.ranks: the list is empty; name at least one GPU"},
        {"{framework: vllm, ranks: 0-3}", "c.yaml:1:33: train.ranks: *"},
        {"{framework: vllm, ranks: [0, 512]}",
         "c.yaml:1:37: train.ranks.1: GPU 512 does not exist: the topology has 512; use 0 to 511"},
        {"{framework: vllm, ranks: [0-4294967295]}",
         "c.yaml:1:34: train.ranks.0: GPU 4294967295 does not exist: the topology has 512; use 0 "
         "to 511"},
        {"{framework: vllm, ranks: [3-1]}", "c.yaml:1:34: train.ranks.0: range 3-1 runs backwards; "
                                            "list the numbers one by one for that order"},
        {"{framework: vllm, ranks: [a]}", "c.yaml:1:34: train.ranks.0: \"a\" is not a GPU; write a "
                                          "number such as 3 or a range such as 0-7"},
        {"{framework: vllm, ranks: [1-2-3]}", "c.yaml:1:34: train.ranks.0: \"1-2-3\" is not a GPU; "
                                              "write a number such as 3 or a range such as 0-7"},
        {"{framework: vllm, ranks: [\"\"]}", "c.yaml:1:34: train.ranks.0: \"\" is not a GPU; write "
                                             "a number such as 3 or a range such as 0-7"},
        {"{framework: vllm, gpus: 4, tpp: 2}", "c.yaml:1:35: train.tpp: *"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        assert_refused(LIST, cases[i][0], cases[i][1]);
    assert_refused_as(LIST, "{framework: vllm, ranks: [0-3, 2]}", REFIT_ERROR_RANK_DUP,
                      "c.yaml:1:39: train.ranks.1: GPU 2 is listed twice; name each once");
}

static void test_frameworks(void) {
    const RefitFramework *const *frameworks = refit_frameworks();
    guint n = 0;

    for (; frameworks[n] != NULL; n++) {
        for (const char *const *key = frameworks[n]->keys; *key != NULL; key++)
            g_assert_nonnull(strchr(*key, '\t'));
    }
    g_assert_cmpuint(n, >=, 5);
}

/* ---- megatron ---- */

static void test_megatron_order(void) {
    g_autoptr(RefitLayout) layout =
        make(SMALL, "{framework: megatron, gpus: 8, tp: 2, pp: 2, ep: 2, first_gpu: 0}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "megatron tp2 pp2 ep2 dp2");
    g_assert_cmpuint(refit_layout_n_stages(layout), ==, 2);
    for (guint i = 0; i < 8; i++)
        g_assert_cmpuint(refit_layout_stage_of(layout, i), ==, i / 4);
    assert_held(layout, "model.embed_tokens.weight", "0,2 [0:128, 0:8]; 1,3 [128:256, 0:8]");
    assert_held(layout, "lm_head.weight", "4,6 [0:128, 0:8]; 5,7 [128:256, 0:8]");
    assert_held(layout, "model.norm.weight", "4,5,6,7 [0:8]");
    assert_held(layout, "model.layers.1.self_attn.q_proj.weight", "0,2 [0:4, 0:8]; 1,3 [4:8, 0:8]");
    assert_held(layout, "model.layers.2.self_attn.k_proj.weight", "4,6 [0:2, 0:8]; 5,7 [2:4, 0:8]");
    assert_held(layout, "model.layers.2.self_attn.o_proj.weight", "4,6 [0:8, 0:4]; 5,7 [0:8, 4:8]");
    assert_held(layout, "model.layers.0.self_attn.q_norm.weight", "0,1,2,3 [0:2]");
    assert_held(layout, "model.layers.3.mlp.gate.weight", "4,5,6,7 [0:4, 0:8]");
    assert_held(layout, "model.layers.0.mlp.experts.1.up_proj.weight", "0,2 [0:4, 0:8]");
    assert_held(layout, "model.layers.3.mlp.experts.2.down_proj.weight", "5,7 [0:8, 0:4]");
}

static void test_megatron_permuted(void) {
    g_autoptr(RefitLayout) layout =
        make(SMALL, "{framework: megatron, tp: 2, cp: 2, ranks: [7, 3, 5, 1]}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "megatron tp2 pp1 cp2 dp1");
    assert_held(layout, "model.layers.0.self_attn.q_proj.weight", "5,7 [0:4, 0:8]; 1,3 [4:8, 0:8]");
    assert_held(layout, "model.layers.0.mlp.experts.3.up_proj.weight", "1,3,5,7 [0:4, 0:8]");
}

static void test_megatron_etp(void) {
    g_autoptr(RefitLayout) layout =
        make(SMALL, "{framework: megatron, gpus: 8, pp: 2, ep: 2, etp: 2, first_gpu: 0}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "megatron tp1 pp2 ep2 etp2 dp4");
    assert_held(layout, "model.layers.0.mlp.experts.0.gate_proj.weight",
                "0 [0:2, 0:8]; 1 [2:4, 0:8]");
    assert_held(layout, "model.layers.0.mlp.experts.3.down_proj.weight",
                "2 [0:8, 0:2]; 3 [0:8, 2:4]");
    assert_held(layout, "model.layers.2.mlp.experts.1.down_proj.weight",
                "4 [0:8, 0:2]; 5 [0:8, 2:4]");
    assert_held(layout, "model.layers.2.mlp.gate.weight", "4,5,6,7 [0:4, 0:8]");
}

static void test_megatron_stacked(void) {
    g_autoptr(RefitLayout) layout =
        make(STACKED, "{framework: megatron, gpus: 8, pp: 2, ep: 2, etp: 2, tp: 2, first_gpu: 0}");

    assert_held(layout, "layers.0.up",
                "0 [0:4, 0:2, 0:2]; 1 [0:4, 2:4, 0:2]; 2 [4:8, 0:2, 0:2]; 3 [4:8, 2:4, 0:2]");
    assert_held(layout, "layers.1.down",
                "4 [0:4, 0:2, 0:2]; 5 [0:4, 0:2, 2:4]; 6 [4:8, 0:2, 0:2]; 7 [4:8, 0:2, 2:4]");
    assert_held(layout, "layers.1.down_bias", "4,5 [0:4, 0:2]; 6,7 [4:8, 0:2]");
    assert_held(layout, "layers.0.o_bias", "0,1,2,3 [0:2]");
    assert_held(layout, "mtp.proj", "4,6 [0:2, 0:4]; 5,7 [2:4, 0:4]");
    assert_held(layout, "frontend", "0,1,2,3 [0:3]");
}

static void test_megatron_vocabulary(void) {
    /* 300 rows are padded to 512 for tp 2, to 512 for tp 4: the last rank has padding only. */
    g_autoptr(RefitLayout) two = make(ODD, "{framework: megatron, gpus: 2, tp: 2}");
    assert_held(two, "lm_head.weight", "4 [0:256, 0:8]; 5 [256:300, 0:8]");
    g_autoptr(RefitLayout) four = make(ODD, "{framework: megatron, gpus: 4, tp: 4}");
    assert_held(four, "lm_head.weight", "4 [0:128, 0:8]; 5 [128:256, 0:8]; 6 [256:300, 0:8]");
}

static void test_megatron_tied(void) {
    g_autoptr(RefitLayout) layout =
        make(TIED, "{framework: megatron, gpus: 4, tp: 2, pp: 2, first_gpu: 0}");

    assert_held(layout, "model.embed_tokens.weight", "0,2 [0:128, 0:8]; 1,3 [128:256, 0:8]");
    g_assert_cmpuint(refit_sharding_n_parts(sharding_of(layout, "model.embed_tokens.weight")), ==,
                     2);
    g_autoptr(RefitLayout) single = make(TIED, "{framework: megatron, gpus: 4, tp: 2}");
    g_assert_cmpuint(refit_sharding_n_parts(sharding_of(single, "model.embed_tokens.weight")), ==,
                     1);
}

static void test_megatron_fused_rows(void) {
    /* 24 fused rows over 8 ranks, 3 each: q 0-2, q 3-5, q 6-7 k 0, k 1 v 0-1, and so on. */
    g_autoptr(RefitLayout) layout =
        make(GROUPED, "{framework: megatron, gpus: 8, tp: 8, first_gpu: 0}");

    assert_held(layout, "model.layers.0.self_attn.q_proj.weight",
                "0 [0:3, 0:8]; 1 [3:6, 0:8]; 2 [6:8, 0:8]; 4 [8:11, 0:8]; 5 [11:14, 0:8]; "
                "6 [14:16, 0:8]");
    assert_held(layout, "model.layers.0.self_attn.k_proj.weight",
                "2 [0:1, 0:8]; 3 [1:2, 0:8]; 6 [2:3, 0:8]; 7 [3:4, 0:8]");
    assert_held(layout, "model.layers.0.self_attn.v_proj.weight", "3 [0:2, 0:8]; 7 [2:4, 0:8]");
}

static void test_megatron_deepseek(void) {
    static const guint depth[] = {3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2};
    g_autoptr(RefitLayout) layout =
        make(DEEPSEEK, "{framework: megatron, gpus: 256, tp: 1, pp: 16, ep: 16, first_gpu: 0, "
                       "first_stage_layers: 3, last_stage_layers: 2}");
    guint layer = 0;

    g_assert_cmpstr(refit_layout_summary(layout), ==, "megatron tp1 pp16 ep16 dp16");
    g_assert_cmpuint(refit_layout_n_stages(layout), ==, 16);
    for (guint stage = 0; stage < 16; stage++) {
        for (guint i = 0; i < depth[stage]; i++, layer++) {
            g_autofree char *name =
                g_strdup_printf("model.layers.%u.self_attn.q_a_proj.weight", layer);
            const RefitMesh *mesh = refit_sharding_mesh(sharding_of(layout, name), 0);

            g_assert_cmpuint(mesh->n_ranks, ==, 16);
            g_assert_cmpuint(mesh->ranks[0], ==, stage * 16);
            g_assert_cmpuint(mesh->ranks[15], ==, stage * 16 + 15);
        }
    }
    g_assert_cmpuint(layer, ==, 61);
    /* Layer 10 is the last of stage 2 (layers 7-10); expert 17 is the second of expert group 1. */
    assert_held(layout, "model.layers.10.mlp.experts.17.gate_proj.weight", "33 [0:2048, 0:7168]");
    assert_held(layout, "model.layers.11.mlp.experts.255.down_proj.weight", "63 [0:7168, 0:2048]");
    g_assert_true(sharding_of(layout, "model.layers.10.mlp.experts.17.gate_proj.weight") ==
                  sharding_of(layout, "model.layers.7.mlp.experts.16.down_proj.weight"));
    g_assert_true(sharding_of(layout, "model.layers.60.self_attn.o_proj.weight") ==
                  sharding_of(layout, "lm_head.weight"));
    g_assert_true(sharding_of(layout, "model.embed_tokens.weight") !=
                  sharding_of(layout, "lm_head.weight"));
}

static void test_megatron_one_stated_end(void) {
    g_autoptr(RefitLayout) first =
        make(SMALL, "{framework: megatron, gpus: 3, pp: 3, first_stage_layers: 2, first_gpu: 0}");
    assert_held(first, "model.layers.1.input_layernorm.weight", "0 [0:8]");
    assert_held(first, "model.layers.2.input_layernorm.weight", "1 [0:8]");
    assert_held(first, "model.layers.3.input_layernorm.weight", "2 [0:8]");
    g_autoptr(RefitLayout) last =
        make(SMALL, "{framework: megatron, gpus: 3, pp: 3, last_stage_layers: 2, first_gpu: 0}");
    assert_held(last, "model.layers.1.input_layernorm.weight", "1 [0:8]");
    assert_held(last, "model.layers.2.input_layernorm.weight", "2 [0:8]");
    g_autoptr(RefitLayout) both =
        make(SMALL, "{framework: megatron, gpus: 3, pp: 3, first_stage_layers: 3, "
                    "last_stage_layers: 1, first_gpu: 0}");
    assert_held(both, "model.layers.2.input_layernorm.weight", "0 [0:8]");
    assert_held(both, "model.layers.3.input_layernorm.weight", "2 [0:8]");
}

static void test_megatron_refusals(void) {
    static const char *const cases[][3] = {
        {SMALL, "{framework: megatron, gpus: 8, tp: 3}",
         "c.yaml:1:43: train.tp: tp 3 does not divide the 8 GPUs; choose sizes whose product does"},
        {SMALL, "{framework: megatron, gpus: 8, tp: 4, pp: 4}",
         "c.yaml:1:50: train.pp: tp 4 * cp 1 * pp 4 does not divide the 8 GPUs; choose sizes whose "
         "product does"},
        {SMALL, "{framework: megatron, gpus: 8, tp: 2, dp: 3}",
         "c.yaml:1:50: train.dp: tp 2 * cp 1 * pp 1 * dp 3 is not the 8 GPUs; leave dp out or "
         "write 4"},
        {SMALL, "{framework: megatron, gpus: 8, tp: 0}", "c.yaml:1:43: train.tp: *"},
        {SMALL, "{framework: megatron, gpus: 8, ep: 3}",
         "c.yaml:1:43: train.ep: ep 3 * etp 1 does not divide the 8 GPUs of a pipeline stage; "
         "choose sizes whose product does"},
        {SMALL, "{framework: megatron, gpus: 8, etp: 3}",
         "c.yaml:1:44: train.etp: ep 1 * etp 3 does not divide the 8 GPUs of a pipeline stage; "
         "choose sizes whose product does"},
        {SMALL, "{framework: megatron, gpus: 8, ep: 8}",
         "c.yaml:1:43: train.ep: ep 8 does not divide the model's 4 routed experts; use a divisor "
         "of 4"},
        {STACKED "  - {name: layers.2.up, shape: [4, 4, 2], role: expert_up}\n",
         "{framework: megatron, gpus: 8, ep: 8}",
         "c.yaml:1:43: train.ep: layers.2.up does not fit the model's 8 routed experts; give all "
         "layers as many, or leave ep out"},
        {TIED, "{framework: megatron, gpus: 8, ep: 8}",
         "c.yaml:1:43: train.ep: ep 8, but model m has no routed experts; leave ep out"},
        {SMALL, "{framework: megatron, gpus: 8, etp: 8}",
         "c.yaml:1:44: train.etp: etp 8 does not divide dim 0 of "
         "model.layers.0.mlp.experts.0.gate_proj.weight, which is 4; use a divisor of it"},
        {SMALL, "{framework: megatron, gpus: 8, tp: 8}",
         "c.yaml:1:43: train.tp: tp 8 does not divide the model's 4 attention heads; use a divisor "
         "of 4"},
        {SMALL, "{framework: megatron, gpus: 6, pp: 3}",
         "c.yaml:1:43: train.pp: 4 of 4 layers are left, which 3 other stages cannot share evenly; "
         "state first_stage_layers 1 and last_stage_layers 1"},
        {SMALL, "{framework: megatron, gpus: 8, pp: 8}",
         "c.yaml:1:43: train.pp: 4 of 4 layers are left, which 8 other stages cannot share evenly; "
         "use pp up to 4, or stage_layers with stages of 0"},
        {SMALL, "{framework: megatron, gpus: 8, first_stage_layers: 1}",
         "c.yaml:1:59: train.first_stage_layers: first_stage_layers needs a pipeline; state pp of "
         "at least 2 or leave it out"},
        {SMALL, "{framework: megatron, gpus: 8, pp: 2, last_stage_layers: 5}",
         "c.yaml:1:65: train.last_stage_layers: the end stages take 5 layers, but model m has 4; "
         "use fewer"},
        {SMALL,
         "{framework: megatron, gpus: 8, pp: 2, first_stage_layers: 1, last_stage_layers: 1}",
         "c.yaml:1:43: train.pp: 2 of 4 layers are left, which 0 other stages cannot share evenly; "
         "state first_stage_layers 2 and last_stage_layers 2"},
        {QWEN_235B, "{framework: megatron, gpus: 8, pp: 8}",
         "c.yaml:1:43: train.pp: 94 of 94 layers are left, which 8 other stages cannot share "
         "evenly; state first_stage_layers 11 and last_stage_layers 11"},
        {GROUPED, "{framework: megatron, gpus: 16, tp: 16}",
         "c.yaml:1:44: train.tp: tp 16 does not divide the model's 8 attention heads; use a "
         "divisor of 8"},
        {LIST_ODD_QUERIES, "{framework: megatron, gpus: 4, tp: 4}",
         "c.yaml:1:43: train.tp: tp 4 exceeds the model's 2 KV heads, and layers.0.q cannot be cut "
         "inside a head; use tp up to 2"},
        {LIST_SIX, "{framework: megatron, gpus: 4, tp: 4}",
         "c.yaml:1:43: train.tp: tp 4 and the model's 6 KV heads do not divide each other; use a "
         "divisor or a multiple of 6"},
        {SMALL, "{framework: megatron, gpus: 8, first_stage_layer: 1}",
         "c.yaml:1:39: train.first_stage_layer: *"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        assert_refused(cases[i][0], cases[i][1], cases[i][2]);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout/side-takes-its-ranks-in-the-stated-order", test_side_ranks);
    g_test_add_func("/layout/side-refuses-impossible-ranks", test_side_refusals);
    g_test_add_func("/layout/frameworks-document-their-keys", test_frameworks);
    g_test_add_func("/layout/megatron-orders-ranks-tp-dp-pp", test_megatron_order);
    g_test_add_func("/layout/megatron-follows-a-permuted-rank-list", test_megatron_permuted);
    g_test_add_func("/layout/megatron-cuts-experts-over-etp", test_megatron_etp);
    g_test_add_func("/layout/megatron-cuts-stacked-experts", test_megatron_stacked);
    g_test_add_func("/layout/megatron-pads-the-vocabulary", test_megatron_vocabulary);
    g_test_add_func("/layout/megatron-holds-tied-embeddings-on-both-ends", test_megatron_tied);
    g_test_add_func("/layout/megatron-cuts-fused-rows-inside-a-group", test_megatron_fused_rows);
    g_test_add_func("/layout/megatron-places-deepseek-v3", test_megatron_deepseek);
    g_test_add_func("/layout/megatron-spreads-the-layers-that-are-left",
                    test_megatron_one_stated_end);
    g_test_add_func("/layout/megatron-refuses-what-does-not-divide", test_megatron_refusals);
    return g_test_run();
}
