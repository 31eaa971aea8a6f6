/*
 * Rows of parameters against rows worked out by hand: fused, grouped, block-interleaved, packed,
 * stacked, transposed and padded ones, of frameworks and of explicit layouts; engine names; copies;
 * finding views by tensor; and parts that do not fit together.
 */

#include "test-views.h"

/*
 * The rows of a parameter from top to bottom as "LABEL lo:hi": its tensor's label and row numbers,
 * for slots one after the other; "-" for padding. The label is the word before the last '.'.
 */
static char *rows_of(const RefitLayout *layout, guint rank, const char *name) {
    g_autoptr(RefitRankViews) views = views_of(layout, rank);
    const RefitParameter *parameter = parameter_of(views, name);
    guint64 **maps = map_elements(layout, views), columns, rows;
    const guint64 *map = maps[parameter - views->parameters];
    GString *text = g_string_new(NULL);
    guint64 last = UNTOUCHED - 1, start = 0, tensor = UNTOUCHED;

    columns = parameter->n_dims > 1 ? parameter->shape[parameter->n_dims - 1] : 1;
    rows = elements_of(parameter) / columns;
    for (guint64 r = 0; r <= rows; r++) {
        guint64 first = r < rows ? map[r * columns] : 0, now = UNTOUCHED, row = 0;

        if (r < rows && first != UNTOUCHED) {
            now = first >> 32;
            row = (first & G_MAXUINT32) / columns;
            for (guint64 c = 1; c < columns; c++)
                g_assert_cmpuint(map[r * columns + c], ==, first + c);
        }
        if (r < rows && now == tensor && (now == UNTOUCHED || row == last + 1)) {
            last = row;
            continue;
        }
        if (r > 0 && tensor != UNTOUCHED) {
            const char *whole = refit_model_tensor(refit_layout_model(layout), (guint)tensor)->name;
            g_auto(GStrv) words = g_strsplit(whole, ".", -1);
            guint n = g_strv_length(words);

            g_string_append_printf(text, "%s%s %" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT,
                                   text->len > 0 ? ", " : "", words[n > 1 ? n - 2 : 0], start,
                                   last + 1);
        } else if (r > 0) {
            g_string_append(text, text->len > 0 ? ", -" : "-");
        }
        tensor = now;
        start = last = row;
    }
    free_maps(maps);
    return g_string_free(text, FALSE);
}

static void assert_rows(const RefitLayout *layout, guint rank, const char *name,
                        const char *expected) {
    g_autofree char *rows = rows_of(layout, rank, name);

    g_assert_cmpstr(rows, ==, expected);
}

static void assert_shape(const RefitLayout *layout, guint rank, const char *name, guint n_dims,
                         guint64 a, guint64 b, guint64 c) {
    g_autoptr(RefitRankViews) views = views_of(layout, rank);
    const RefitParameter *parameter = parameter_of(views, name);
    const guint64 shape[] = {a, b, c};

    g_assert_cmpuint(parameter->n_dims, ==, n_dims);
    for (guint d = 0; d < n_dims; d++)
        g_assert_cmpuint(parameter->shape[d], ==, shape[d]);
}

#define QKV "decoder.layers.0.self_attention.linear_qkv.weight"
#define ONE_LAYER(heads, kv)                                                                       \
    "family: dense\nconfig: {hidden_size: 2, vocab_size: 128, num_hidden_layers: 1, "              \
    "num_attention_heads: " heads ", num_key_value_heads: " kv ", head_dim: 2, "                   \
    "intermediate_size: 8, attention_bias: true}\n"

/* 8 heads of 2 rows, 2 KV heads: q [16, 2], k and v [4, 2]; fused 24 rows, 3 to each of 8 ranks. */
static void test_raw_rows(void) {
    static const char *const rows[] = {
        "q_proj 0:3",  "q_proj 3:6",   "q_proj 6:8, k_proj 0:1",   "k_proj 1:2, v_proj 0:2",
        "q_proj 8:11", "q_proj 11:14", "q_proj 14:16, k_proj 2:3", "k_proj 3:4, v_proj 2:4",
    };
    g_autoptr(RefitLayout) layout =
        make(ONE_LAYER("8", "2"), "{framework: megatron, gpus: 8, tp: 8}");

    for (guint i = 0; i < 8; i++) {
        assert_rows(layout, 4 + i, QKV, rows[i]);
        assert_rows(layout, 4 + i, "decoder.layers.0.self_attention.linear_qkv.bias", rows[i]);
    }
    /* Between groups: whole groups in turn. */
    g_autoptr(RefitLayout) whole = make(ONE_LAYER("8", "2"), "{framework: megatron, gpus: 1}");
    assert_rows(whole, 4, QKV,
                "q_proj 0:8, k_proj 0:2, v_proj 0:2, q_proj 8:16, k_proj 2:4, v_proj 2:4");
}

/* The same tensors in vLLM over 4 ranks: q in quarters, each KV head on two ranks. */
static void test_qkv_proj(void) {
    g_autoptr(RefitLayout) layout = make(ONE_LAYER("8", "2"), "{framework: vllm, gpus: 4, tp: 4}");
    static const char *const rows[] = {
        "q_proj 0:4, k_proj 0:2, v_proj 0:2",
        "q_proj 4:8, k_proj 0:2, v_proj 0:2",
        "q_proj 8:12, k_proj 2:4, v_proj 2:4",
        "q_proj 12:16, k_proj 2:4, v_proj 2:4",
    };

    for (guint i = 0; i < 4; i++) {
        assert_rows(layout, 4 + i, "model.layers.0.self_attn.qkv_proj.weight", rows[i]);
        assert_rows(layout, 4 + i, "model.layers.0.self_attn.qkv_proj.bias", rows[i]);
        assert_shape(layout, 4 + i, "model.layers.0.self_attn.qkv_proj.weight", 2, 8, 2, 0);
    }
}

/* 8 rows of gate and of up over 2 and over 4 ranks. */
static void test_gate_up(void) {
    g_autoptr(RefitLayout) train =
        make(ONE_LAYER("4", "4"), "{framework: megatron, gpus: 2, tp: 2}");
    g_autoptr(RefitLayout) serve = make(ONE_LAYER("4", "4"), "{framework: sglang, gpus: 4, tp: 4}");

    assert_rows(train, 4, "decoder.layers.0.mlp.linear_fc1.weight", "gate_proj 0:4, up_proj 0:4");
    assert_rows(train, 5, "decoder.layers.0.mlp.linear_fc1.weight", "gate_proj 4:8, up_proj 4:8");
    assert_rows(serve, 5, "model.layers.0.mlp.gate_up_proj.weight", "gate_proj 2:4, up_proj 2:4");
    assert_rows(serve, 7, "model.layers.0.mlp.gate_up_proj.weight", "gate_proj 6:8, up_proj 6:8");
    assert_shape(serve, 7, "model.layers.0.mlp.down_proj.weight", 2, 2, 2, 0);
}

/* The query tensor has per head 2 rows of query, then 2 of gate: 4 heads, 2 KV heads. */
static void test_output_gates(void) {
    g_autoptr(RefitLayout) whole = make(QWEN3_5_SMALL, "{framework: megatron, gpus: 1}");
    g_autoptr(RefitLayout) half = make(QWEN3_5_SMALL, "{framework: megatron, gpus: 2, tp: 2}");
    const char *name = "decoder.layers.1.self_attention.linear_qkv.weight";

    assert_rows(whole, 4, name,
                "q_proj 0:2, q_proj 4:6, q_proj 2:4, q_proj 6:8, k_proj 0:2, v_proj 0:2, "
                "q_proj 8:10, q_proj 12:14, q_proj 10:12, q_proj 14:16, k_proj 2:4, v_proj 2:4");
    assert_rows(half, 5, name,
                "q_proj 8:10, q_proj 12:14, q_proj 10:12, q_proj 14:16, k_proj 2:4, v_proj 2:4");
}

/* 12 fused rows a group, 24 in all, over 4 ranks: inside the groups, after the gates. */
static void test_output_gates_raw(void) {
    g_autoptr(RefitLayout) layout =
        make(QWEN3_5_SMALL, "{framework: megatron, gpus: 4, tp_of: {attention: 4}}");
    const char *name = "decoder.layers.1.self_attention.linear_qkv.weight";

    assert_rows(layout, 4, name, "q_proj 0:2, q_proj 4:6, q_proj 2:4");
    assert_rows(layout, 5, name, "q_proj 6:8, k_proj 0:2, v_proj 0:2");
    assert_rows(layout, 6, name, "q_proj 8:10, q_proj 12:14, q_proj 10:12");
    assert_rows(layout, 7, name, "q_proj 14:16, k_proj 2:4, v_proj 2:4");
}

/* 8 rows of gate and up of each expert; blocks of 2, over 2 ranks of expert tensor parallelism. */
static void test_blocks(void) {
    const char *model = "family: qwen3_moe\nconfig: {hidden_size: 2, vocab_size: 128, "
                        "num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2, "
                        "num_experts: 2, moe_intermediate_size: 8}\n";
    g_autoptr(RefitLayout) apart =
        make(model, "{framework: megatron, gpus: 2, tp: 2, etp: 2, glu_interleave: 2}");
    g_autoptr(RefitLayout) grouped =
        make(model, "{framework: megatron, gpus: 1, experts: grouped, glu_interleave: 4}");

    assert_rows(apart, 5, "decoder.layers.0.mlp.experts.linear_fc1.weight1",
                "gate_proj 4:6, up_proj 4:6, gate_proj 6:8, up_proj 6:8");
    assert_shape(apart, 5, "decoder.layers.0.mlp.experts.linear_fc2.weight0", 2, 2, 4, 0);
    assert_shape(grouped, 4, "decoder.layers.0.mlp.experts.linear_fc1.weight", 3, 2, 16, 2);
    assert_rows(grouped, 4, "decoder.layers.0.mlp.experts.linear_fc1.weight",
                "gate_proj 0:4, up_proj 0:4, gate_proj 4:8, up_proj 4:8, "
                "gate_proj 0:4, up_proj 0:4, gate_proj 4:8, up_proj 4:8");
}

/*
 * 2 key heads and 4 value heads of 2: in_proj_qkv has rows q 0-3, k 4-7, v 8-15, in_proj_z 8 rows,
 * b and a 4 each. Half of each segment to a rank.
 */
static void test_packed_projection(void) {
    g_autoptr(RefitLayout) train = make(QWEN3_5_SMALL, "{framework: megatron, gpus: 2, tp: 2}");
    g_autoptr(RefitLayout) serve = make(QWEN3_5_SMALL, "{framework: vllm, gpus: 2, tp: 2}");

    assert_rows(train, 5, "decoder.layers.0.self_attention.in_proj.weight",
                "in_proj_qkv 2:4, in_proj_qkv 6:8, in_proj_qkv 12:16, in_proj_z 4:8, "
                "in_proj_b 2:4, in_proj_a 2:4");
    assert_rows(serve, 4, "model.layers.0.linear_attn.in_proj_qkvz.weight",
                "in_proj_qkv 0:2, in_proj_qkv 4:6, in_proj_qkv 8:12, in_proj_z 0:4");
    assert_rows(serve, 5, "model.layers.0.linear_attn.in_proj_ba.weight",
                "in_proj_b 2:4, in_proj_a 2:4");
}

/* Replicated on every rank, one after the other. */
static void test_latent_attention(void) {
    g_autoptr(RefitLayout) vllm = make(DEEPSEEK_SMALL, "{framework: vllm, gpus: 2, tp: 2}");
    g_autoptr(RefitLayout) sglang = make(DEEPSEEK_SMALL, "{framework: sglang, gpus: 2, tp: 2}");

    assert_rows(vllm, 5, "model.layers.0.self_attn.fused_qkv_a_proj.weight",
                "q_a_proj 0:3, kv_a_proj_with_mqa 0:3");
    assert_rows(sglang, 4, "model.layers.0.self_attn.fused_qkv_a_proj_with_mqa.weight",
                "q_a_proj 0:3, kv_a_proj_with_mqa 0:3");
}

/* 130 rows padded to 192 in vLLM, over 2 ranks, and to 512 in Megatron, over 4. */
static void test_padded_vocabulary(void) {
    g_autoptr(RefitLayout) serve = make(DEEPSEEK_SMALL, "{framework: vllm, gpus: 2, tp: 2}");
    g_autoptr(RefitLayout) train = make(DEEPSEEK_SMALL, "{framework: megatron, gpus: 4, tp: 4}");
    g_autoptr(RefitRankViews) views = views_of(train, 6);

    assert_rows(serve, 4, "model.embed_tokens.weight", "embed_tokens 0:96");
    assert_rows(serve, 5, "model.embed_tokens.weight", "embed_tokens 96:130, -");
    assert_shape(serve, 5, "lm_head.weight", 2, 96, 4, 0);
    /* 128 rows a rank: the third has padding alone, and no tensor. */
    assert_rows(train, 4, "embedding.word_embeddings.weight", "embed_tokens 0:128");
    assert_rows(train, 5, "embedding.word_embeddings.weight", "embed_tokens 128:130, -");
    assert_rows(train, 6, "embedding.word_embeddings.weight", "-");
    g_assert_cmpuint(parameter_of(views, "output_layer.weight")->n_tensors, ==, 0);
    g_assert_cmpuint(parameter_of(views, "output_layer.weight")->shape[0], ==, 128);
}

/* Experts 2 and 3 of 4 on the second rank, in slots 0 and 1; 4 rows of gate and up each. */
static void test_stacked_experts(void) {
    g_autoptr(RefitLayout) layout = make(DEEPSEEK_SMALL, "{framework: vllm, gpus: 2, ep: true}");
    g_autoptr(RefitRankViews) views = views_of(layout, 5);
    guint n;
    const RefitView *view = refit_rank_views_find(
        views, find(layout, "model.layers.1.mlp.experts.3.up_proj.weight"), &n);

    assert_shape(layout, 5, "model.layers.1.mlp.experts.w13_weight", 3, 2, 8, 4);
    assert_shape(layout, 5, "model.layers.1.mlp.experts.w2_weight", 3, 2, 4, 4);
    assert_rows(layout, 5, "model.layers.1.mlp.experts.w13_weight",
                "gate_proj 0:4, up_proj 0:4, gate_proj 0:4, up_proj 0:4");
    g_assert_cmpuint(n, ==, 1);
    g_assert_cmpuint(view->offset, ==, 8 * 4);
    g_assert_cmpuint(view->stride[0], ==, 4);
    g_assert_cmpuint(view->region.dims[0]->items[0].at, ==, 4);
    g_assert_cmpuint(views->parameters[view->parameter].n_tensors, ==, 4);
    g_assert_null(refit_rank_views_find(
        views, find(layout, "model.layers.1.mlp.experts.0.up_proj.weight"), &n));
    g_assert_cmpuint(n, ==, 0);
}

/* 4 experts and 2 copies, 3 slots a rank: 0 1 2, 3 0 1. */
static void test_redundant_experts(void) {
    g_autoptr(RefitLayout) layout =
        make(SMALL, "{framework: vllm, gpus: 2, ep: true, redundant_experts: 2}");
    g_autoptr(RefitRankViews) views = views_of(layout, 5);
    const RefitParameter *parameter = parameter_of(views, "model.layers.0.mlp.experts.w2_weight");
    static const guint64 offsets[] = {1, 2, 0};
    static const guint experts[] = {0, 1, 3};

    g_assert_cmpuint(parameter->shape[0], ==, 3);
    for (guint i = 0; i < 3; i++) {
        g_autofree char *name =
            g_strdup_printf("model.layers.0.mlp.experts.%u.down_proj.weight", experts[i]);
        const RefitView *view = refit_rank_views_find(views, find(layout, name), NULL);

        g_assert_nonnull(view);
        g_assert_cmpuint(view->offset, ==, offsets[i] * 8 * 4);
    }
}

/* A stated map: rank 4 has 3 1 3, rank 5 has 0 2 1. */
static void test_expert_map(void) {
    const char *side = "{framework: vllm, gpus: 2, ep: true, expert_map: [[3, 1, 3], [0, 2, 1]]}";
    g_autoptr(RefitLayout) layout = make(SMALL, side);
    g_autoptr(RefitRankViews) one = views_of(layout, 4), two = views_of(layout, 5);
    guint three = find(layout, "model.layers.0.mlp.experts.3.down_proj.weight"), n;
    const RefitView *view = refit_rank_views_find(one, three, &n);

    check_rank(layout, 5); /* holdings do not count the second copy on rank 4 */
    g_assert_cmpuint(n, ==, 2);
    g_assert_cmpuint(view[0].offset, ==, 0);
    g_assert_cmpuint(view[1].offset, ==, 2 * 8 * 4);
    view = refit_rank_views_find(one, find(layout, "model.layers.0.mlp.experts.1.down_proj.weight"),
                                 &n);
    g_assert_cmpuint(view->offset, ==, 8 * 4);
    view = refit_rank_views_find(two, find(layout, "model.layers.0.mlp.experts.1.down_proj.weight"),
                                 &n);
    g_assert_cmpuint(view->offset, ==, 2 * 8 * 4);
}

/* The shared expert follows the two routed ones of a rank. */
static void test_shared_slot(void) {
    g_autoptr(RefitLayout) layout = make(
        DEEPSEEK_SMALL, "{framework: sglang, gpus: 2, tp: 2, ep: 2, shared_expert_as_slot: true}");
    g_autoptr(RefitRankViews) views = views_of(layout, 4);
    const RefitView *view = refit_rank_views_find(
        views, find(layout, "model.layers.1.mlp.shared_experts.down_proj.weight"), NULL);

    assert_shape(layout, 4, "model.layers.1.mlp.experts.w2_weight", 3, 3, 4, 4);
    g_assert_cmpuint(view->offset, ==, 2 * 4 * 4);
    g_assert_cmpuint(refit_layout_packing_options(layout), ==,
                     REFIT_PACKING_SHARED_SLOT | REFIT_PACKING_COMPRESSED_Q);
}

/*
 * [4 experts, 4 in, 16 out], gate and up in turn along the outputs. vLLM keeps that order and has
 * outputs before inputs; Megatron has a parameter for each expert, gate before up.
 */
static void test_transposed_stack(void) {
    g_autoptr(RefitLayout) serve = make(GPT_OSS_SMALL, "{framework: vllm, gpus: 2, tp: 2}");
    g_autoptr(RefitLayout) train =
        make(GPT_OSS_SMALL, "{framework: megatron, gpus: 2, tp: 2, ep: 2}");
    g_autoptr(RefitRankViews) one = views_of(serve, 5), two = views_of(train, 5);
    guint index = find(serve, "model.layers.0.mlp.experts.gate_up_proj"), n;
    const RefitView *view = refit_rank_views_find(one, index, &n);

    assert_shape(serve, 5, "model.layers.0.mlp.experts.w13_weight", 3, 4, 8, 4);
    g_assert_cmpuint(n, ==, 1);
    g_assert_cmpuint(view->stride[0], ==, 32);
    g_assert_cmpuint(view->stride[1], ==, 1);
    g_assert_cmpuint(view->stride[2], ==, 4);

    view = refit_rank_views_find(two, index, &n);
    g_assert_cmpuint(n, ==, 2); /* experts 2 and 3 */
    g_assert_cmpstr(two->parameters[view[1].parameter].name, ==,
                    "decoder.layers.0.mlp.experts.linear_fc1.weight1");
    g_assert_cmpuint(view[1].region.dims[0]->items[0].lo, ==, 3);
    g_assert_cmpuint(place_of(view[1].region.dims[2], 0), ==, 0); /* gate 0 */
    g_assert_cmpuint(place_of(view[1].region.dims[2], 1), ==, 8); /* up 0 */
    g_assert_cmpuint(place_of(view[1].region.dims[2], 14), ==, 7);
    assert_rows(train, 5, "decoder.layers.0.mlp.experts.linear_fc2.bias0", "experts 8:12");
}

/* ---- explicit layouts ---- */

#define PAIR                                                                                       \
    "family: list\ntensors:\n  - {name: a, shape: [4, 2]}\n  - {name: b, shape: [2, 2]}\n"         \
    "  - {name: c, shape: [2]}\n  - {name: d, shape: [], dtype: f32}\n"
#define WHOLE                                                                                      \
    "{framework: explicit, gpus: 2, rules: [{tensors: \"*\", mesh: [2], place: [replicate]}]}"

/* Rows b0, a0-1, none, a2-3, b1 over two ranks of 4 rows each, the last one padding as well. */
static void test_fused_rows(void) {
    g_autoptr(RefitLayout) layout = make(PAIR, WHOLE);
    static const guint members[] = {0, 1, REFIT_NO_MEMBER};
    static const RefitFusedRows rows[] = {{1, 0, 1}, {0, 0, 2}, {2, 0, 1},
                                          {0, 2, 4}, {1, 1, 2}, {2, 1, 2}};
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    RefitPlacement placement = {.kind = REFIT_PLACEMENT_SHARD};
    const guint two = 2, ranks[] = {4, 5};

    g_assert_true(
        refit_sharding_add(sharding, refit_mesh_new(1, &two, ranks, 2, NULL), &placement, NULL));
    RefitFused fused = {.name = "ab",
                        .n_members = 3,
                        .members = members,
                        .n_rows = G_N_ELEMENTS(rows),
                        .rows = rows,
                        .n_dims = 2,
                        .shape = {8, 2},
                        .sharding = sharding};
    refit_layout_add_fused(layout, &fused);
    assert_rows(layout, 4, "ab", "b 0:1, a 0:2, -");
    assert_rows(layout, 5, "ab", "a 2:4, b 1:2, -");
    assert_shape(layout, 5, "ab", 2, 4, 2, 0);
    assert_shape(layout, 5, "c", 1, 2, 0, 0);
}

/*
 * The raw rows of a fused parameter as an explicit layout states them: q [16, 2], k and v [4, 2] in
 * blocks of 8, 2 and 2 over 8 ranks.
 */
static void test_fused_rule(void) {
    g_autoptr(RefitLayout) layout =
        make("family: list\ntensors:\n  - {name: a.q.w, shape: [16, 2]}\n"
             "  - {name: a.k.w, shape: [4, 2]}\n  - {name: a.v.w, shape: [4, 2]}\n",
             "{framework: explicit, gpus: 8, rules: [{fused: [\"*.q.w\", \"*.k.w\", \"*.v.w\"], "
             "blocks: [8, 2, 2], parameter: \"*.qkv.w\", mesh: [8], place: [shard(0)]}]}");
    static const char *const rows[] = {"q 0:3",  "q 3:6",   "q 6:8, k 0:1",   "k 1:2, v 0:2",
                                       "q 8:11", "q 11:14", "q 14:16, k 2:3", "k 3:4, v 2:4"};

    for (guint i = 0; i < 8; i++) {
        assert_rows(layout, 4 + i, "a.qkv.w", rows[i]);
        check_rank(layout, 4 + i);
    }
}

/* Shards of stated members one after the other, in the order stated. */
static void test_joined_members(void) {
    g_autoptr(RefitLayout) layout = make(PAIR, WHOLE);
    static const guint members[] = {1, 0};
    RefitFused fused = {.name = "ba", .n_members = 2, .members = members};

    refit_layout_add_fused(layout, &fused);
    assert_rows(layout, 4, "ba", "b 0:2, a 0:4");
}

static void test_scalars(void) {
    g_autoptr(RefitLayout) layout = make(PAIR, WHOLE);
    g_autoptr(RefitRankViews) views = views_of(layout, 5);
    const RefitView *view = refit_rank_views_find(views, 3, NULL);

    g_assert_cmpuint(view->region.n_dims, ==, 0);
    g_assert_cmpuint(view->offset, ==, 0);
    assert_shape(layout, 5, "d", 0, 0, 0, 0);
    g_assert_cmpuint(views->parameters[3].bytes, ==, 4);
}

/* The same rank in two parts: two buffers, so two parameters. */
static void test_two_copies(void) {
    g_autoptr(RefitLayout) layout =
        make("family: list\ntensors:\n  - {name: w, shape: [4, 2]}\n",
             "{framework: explicit, gpus: 2, rules: [{tensors: \"*\", parts: ["
             "{mesh: [2], place: [shard(0)]}, {mesh: [1], ranks: [1], place: [replicate]}]}]}");
    g_autoptr(RefitRankViews) views = views_of(layout, 5);
    guint n;

    g_assert_nonnull(refit_rank_views_find(views, 0, &n));
    g_assert_cmpuint(n, ==, 2);
    assert_rows(layout, 5, "w", "w 2:4");
    assert_rows(layout, 5, "w@1", "w 0:4");
}

static void test_nothing_held(void) {
    g_autoptr(RefitLayout) layout =
        make("family: list\ntensors:\n  - {name: w, shape: [1, 2]}\n",
             "{framework: explicit, gpus: 2, rules: [{tensors: \"*\", mesh: [2], "
             "place: [shard(0)]}]}");
    g_autoptr(RefitRankViews) views = views_of(layout, 5);

    g_assert_cmpuint(views->n_parameters, ==, 0);
    g_assert_cmpuint(views->n_views, ==, 0);
    g_assert_null(refit_rank_views_find(views, 0, NULL));
}

/* ---- parts that do not fit ---- */

static void refuse(const char *tensors, const char *side, RefitError code, const char *message) {
    g_autofree char *model =
        g_strconcat("family: list\nconfig: {num_attention_heads: 2, num_key_value_heads: 2}\n"
                    "tensors:\n",
                    tensors, NULL);
    g_autoptr(RefitLayout) layout = make(model, side);
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_rank_views_new(layout, 4, &error));
    g_assert_error(error, REFIT_ERROR, (gint)code);
    g_assert_cmpstr(error->message, ==, message);
}

static void test_misfits(void) {
    refuse("  - {name: q_proj.weight, shape: [4, 2], role: attention_q}\n"
           "  - {name: k_proj.weight, shape: [4, 2], role: attention_k, dtype: f32}\n",
           "{framework: vllm, gpus: 1}", REFIT_ERROR_INVALID,
           "q_proj.weight and k_proj.weight share parameter qkv_proj.weight, but one is BF16 and "
           "the other F32");
    refuse("  - {name: q_proj.weight, shape: [4, 2], role: attention_q}\n"
           "  - {name: k_proj.weight, shape: [4, 3], role: attention_k}\n",
           "{framework: vllm, gpus: 1}", REFIT_ERROR_INVALID,
           "q_proj.weight and k_proj.weight share parameter qkv_proj.weight, but dims other than "
           "the rows differ in extent");
    refuse("  - {name: q_proj.weight, shape: [4, 2], role: attention_q}\n"
           "  - {name: k_proj.weight, shape: [4], role: attention_k}\n",
           "{framework: vllm, gpus: 1}", REFIT_ERROR_INVALID,
           "q_proj.weight and k_proj.weight share parameter qkv_proj.weight, but they have not as "
           "many dims");
    refuse("  - {name: experts.0.up_proj.weight, shape: [4, 2], role: expert_up}\n"
           "  - {name: experts.1.up_proj.weight, shape: [6, 2], role: expert_up}\n",
           "{framework: vllm, gpus: 1}", REFIT_ERROR_INVALID,
           "experts.0.up_proj.weight and experts.1.up_proj.weight share parameter "
           "experts.w13_weight, but their rows differ in number");
    refuse("  - {name: self_attn.q_proj.weight, shape: [4, 2], role: attention_q}\n"
           "  - {name: self_attn.k_proj.weight, shape: [3, 2], role: attention_k}\n",
           "{framework: megatron, gpus: 1}", REFIT_ERROR_INVALID,
           "self_attn.q_proj.weight and self_attn.k_proj.weight share parameter "
           "self_attention.linear_qkv.weight, but its rows do not divide by the heads of the "
           "model");
    refuse("  - {name: mlp.experts.gate_up_proj, shape: [2, 3, 2], role: expert_gate_up}\n",
           "{framework: megatron, gpus: 1}", REFIT_ERROR_INVALID,
           "mlp.experts.gate_up_proj is part of parameter "
           "mlp.experts.linear_fc1.weight#, but its rows are not as many of gate as of up");
    refuse(
        "  - {name: half, shape: [2, 3], dtype: f4}\n", "{framework: fsdp, gpus: 2}",
        REFIT_ERROR_INVALID,
        "parameter half: 3 elements of F4 do not end on a byte; cut at a multiple of 2 elements");
}

/* Names of other engines' tensors can meet in one parameter; nothing may lie where another does. */
static void test_same_place(void) {
    refuse("  - {name: experts.0.gate_proj.weight, shape: [4, 2], role: expert_gate}\n"
           "  - {name: experts.1.w1.weight, shape: [4, 2], role: expert_gate}\n"
           "  - {name: experts.1.gate_proj.weight, shape: [4, 2], role: expert_gate}\n",
           "{framework: vllm, gpus: 1}", REFIT_ERROR_INVALID,
           "experts.1.w1.weight and experts.1.gate_proj.weight share parameter "
           "experts.w13_weight, but they have the same place in it");
    refuse("  - {name: embedding.word_embeddings.weight, shape: [128, 2]}\n"
           "  - {name: model.embed_tokens.weight, shape: [128, 2], role: embedding}\n",
           "{framework: megatron, gpus: 1}", REFIT_ERROR_INVALID,
           "embedding.word_embeddings.weight and model.embed_tokens.weight share parameter "
           "embedding.word_embeddings.weight, but they have the same place in it");
    refuse("  - {name: mlp.experts.gate_proj, shape: [2, 4, 2], role: expert_gate_up}\n"
           "  - {name: mlp.experts.gate_up_proj, shape: [2, 4, 2], role: expert_gate_up}\n"
           "  - {name: mlp.experts.linear_fc1.weight1, shape: [4, 2]}\n",
           "{framework: megatron, gpus: 1}", REFIT_ERROR_INVALID,
           "two parameters have the name mlp.experts.linear_fc1.weight1");
}

/* Only a table numbers parameters; a '#' of a tensor's own name stays. */
static void test_number_sign(void) {
    g_autoptr(RefitLayout) layout = make("family: list\ntensors:\n"
                                         "  - {name: \"w.#\", shape: [2]}\n"
                                         "  - {name: w.0, shape: [3]}\n",
                                         "{framework: megatron, gpus: 1}");

    check_rank(layout, 4);
    assert_shape(layout, 4, "w.#", 1, 2, 0, 0);
    assert_shape(layout, 4, "w.0", 1, 3, 0, 0);
}

static void test_too_many_experts(void) {
    refuse("  - {name: mlp.experts.down_proj, shape: [4294967298, 1, 1], role: expert_down}\n",
           "{framework: megatron, gpus: 1}", REFIT_ERROR_INVALID,
           "mlp.experts.down_proj is part of parameter "
           "mlp.experts.linear_fc2.weight#, but it has more than 1048576 experts");
    refuse("  - {name: experts.down_proj, shape: [1048577, 1, 1], role: expert_down}\n",
           "{framework: vllm, gpus: 1}", REFIT_ERROR_INVALID,
           "experts.down_proj is part of parameter experts.w2_weight, but it has "
           "more than 1048576 experts");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/view-rows/raw-rows-of-kv-groups-are-a-chunk-of-the-whole", test_raw_rows);
    g_test_add_func("/view-rows/vllm-puts-query-key-and-value-one-after-the-other", test_qkv_proj);
    g_test_add_func("/view-rows/gate-and-up-follow-each-other-on-each-rank", test_gate_up);
    g_test_add_func("/view-rows/output-gates-follow-the-queries-of-a-group", test_output_gates);
    g_test_add_func("/view-rows/raw-rows-may-end-between-gates", test_output_gates_raw);
    g_test_add_func("/view-rows/gate-and-up-may-alternate-in-blocks", test_blocks);
    g_test_add_func("/view-rows/packed-projections-are-cut-by-segment", test_packed_projection);
    g_test_add_func("/view-rows/latent-projections-share-a-parameter", test_latent_attention);
    g_test_add_func("/view-rows/padding-belongs-to-no-tensor", test_padded_vocabulary);
    g_test_add_func("/view-rows/experts-have-slots", test_stacked_experts);
    g_test_add_func("/view-rows/copies-of-experts-have-slots-behind-the-others",
                    test_redundant_experts);
    g_test_add_func("/view-rows/experts-lie-where-a-map-says", test_expert_map);
    g_test_add_func("/view-rows/a-shared-expert-may-have-the-last-slot", test_shared_slot);
    g_test_add_func("/view-rows/stacked-experts-may-be-transposed-or-split-up",
                    test_transposed_stack);
    g_test_add_func("/view-rows/fused-rows-may-be-stated", test_fused_rows);
    g_test_add_func("/view-rows/fused-rules-give-raw-rows", test_fused_rule);
    g_test_add_func("/view-rows/members-may-be-joined", test_joined_members);
    g_test_add_func("/view-rows/scalars-have-one-element", test_scalars);
    g_test_add_func("/view-rows/a-second-copy-is-another-parameter", test_two_copies);
    g_test_add_func("/view-rows/a-rank-may-hold-nothing", test_nothing_held);
    g_test_add_func("/view-rows/parts-that-do-not-fit-are-refused", test_misfits);
    g_test_add_func("/view-rows/two-tensors-in-one-place-are-refused", test_same_place);
    g_test_add_func("/view-rows/a-number-sign-may-be-part-of-a-name", test_number_sign);
    g_test_add_func("/view-rows/stacks-have-a-limit-of-experts", test_too_many_experts);
    return g_test_run();
}
