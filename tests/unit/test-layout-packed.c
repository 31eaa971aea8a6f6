/*
 * Packed projections, and whole models under Megatron.
 *
 * Covers: which tensors of the families with packed projections have which segments; the rows that
 * tensor parallelism and FSDP over it give to each rank, for small models by hand; for Qwen3.5,
 * Qwen3.8, Nemotron 3 Ultra and Kimi K3 as shipped, row by row, against a loop that knows only the
 * order of the heads; for all shipped models under a layout each, that every element is held, by
 * equally many ranks; and refusals. The row loops share no code with the planner: each says of one
 * row which tensor-parallel rank owns it.
 */

#include "test-layout.h"

#define QWEN                                                                                       \
    "family: qwen3_5_moe\nconfig: {hidden_size: 8, vocab_size: 16, num_hidden_layers: 2, "         \
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, attn_output_gate: true, "        \
    "full_attention_interval: 2, linear_num_key_heads: 2, linear_num_value_heads: 4, "             \
    "linear_key_head_dim: 2, linear_value_head_dim: 3, linear_conv_kernel_dim: 4, "                \
    "num_experts: 4, moe_intermediate_size: 6, shared_expert_intermediate_size: 4}\n"
#define NEMOTRON                                                                                   \
    "family: nemotron_h\nconfig: {hidden_size: 8, vocab_size: 16, num_hidden_layers: 3, "          \
    "hybrid_override_pattern: \"M*E\", num_attention_heads: 4, num_key_value_heads: 2, "           \
    "head_dim: 2, mamba_num_heads: 4, mamba_head_dim: 2, n_groups: 2, ssm_state_size: 3, "         \
    "conv_kernel: 4, use_conv_bias: true, n_routed_experts: 4, n_shared_experts: 1, "              \
    "moe_intermediate_size: 4, moe_shared_expert_intermediate_size: 4}\n"
#define DENSE                                                                                      \
    "family: list\nconfig: {num_attention_heads: 2, num_key_value_heads: 2}\ntensors:\n"           \
    "  - {name: up, shape: [8, 4], role: dense_up}\n"                                              \
    "  - {name: s, shape: []}\n"

static void assert_segments(const RefitLayout *layout, const char *name, guint dim,
                            const char *expected) {
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), find(layout, name));
    g_autoptr(GString) text = g_string_new(NULL);
    guint64 sum = 0;

    for (guint i = 0; i < tensor->n_packed; i++) {
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT "/%u", i > 0 ? " " : "",
                               tensor->packed[i].extent, tensor->packed[i].units);
        sum += tensor->packed[i].extent;
    }
    g_assert_cmpstr(text->str, ==, expected);
    g_assert_cmpuint(tensor->packed_dim, ==, dim);
    g_assert_cmpuint(sum, ==, tensor->n_packed == 0 ? 0 : tensor->shape[dim]);
}

static void test_segments(void) {
    g_autoptr(RefitLayout) qwen = make(QWEN, "{framework: fsdp, gpus: 1}");
    assert_segments(qwen, "model.layers.0.linear_attn.in_proj_qkv.weight", 0, "4/2 4/2 12/4");
    assert_segments(qwen, "model.layers.0.linear_attn.conv1d.weight", 0, "4/2 4/2 12/4");
    assert_segments(qwen, "model.layers.0.linear_attn.in_proj_z.weight", 0, "");
    assert_segments(qwen, "model.layers.1.self_attn.q_proj.weight", 0, "");
    assert_segments(qwen, "model.layers.1.mlp.experts.gate_up_proj", 1, "6/6 6/6");
    g_autoptr(RefitLayout) nemotron = make(NEMOTRON, "{framework: fsdp, gpus: 1}");
    assert_segments(nemotron, "backbone.layers.0.mixer.in_proj.weight", 0, "8/4 8/4 6/2 6/2 4/4");
    assert_segments(nemotron, "backbone.layers.0.mixer.conv1d.weight", 0, "8/4 6/2 6/2");
    assert_segments(nemotron, "backbone.layers.0.mixer.conv1d.bias", 0, "8/4 6/2 6/2");
    assert_segments(nemotron, "backbone.layers.0.mixer.norm.weight", 0, "");
}

/* ---- by hand ---- */

/* Rows q 0-3, k 4-7, v 8-19; gate 0-5, up 6-11. */
static void test_qwen(void) {
    g_autoptr(RefitLayout) layout =
        make(QWEN, "{framework: megatron, gpus: 2, tp: 2, etp: 2, first_gpu: 0}");
    assert_held(layout, "model.layers.0.linear_attn.in_proj_qkv.weight",
                "0 [0:2+4:6+8:14, 0:8]; 1 [2:4+6:8+14:20, 0:8]");
    assert_held(layout, "model.layers.0.linear_attn.conv1d.weight",
                "0 [0:2+4:6+8:14, 0:1, 0:4]; 1 [2:4+6:8+14:20, 0:1, 0:4]");
    assert_held(layout, "model.layers.0.linear_attn.in_proj_z.weight",
                "0 [0:6, 0:8]; 1 [6:12, 0:8]");
    assert_held(layout, "model.layers.0.mlp.experts.gate_up_proj",
                "0 [0:4, 0:3+6:9, 0:8]; 1 [0:4, 3:6+9:12, 0:8]");
    /* Whole experts are not cut. */
    g_autoptr(RefitLayout) spread =
        make(QWEN, "{framework: megatron, gpus: 2, tp: 2, ep: 2, first_gpu: 0}");
    assert_held(spread, "model.layers.0.mlp.experts.gate_up_proj",
                "0 [0:2, 0:12, 0:8]; 1 [2:4, 0:12, 0:8]");
    /* A tp of its own: state-space mixers are not cut, gate and up are. */
    g_autoptr(RefitLayout) own =
        make(QWEN, "{framework: megatron, gpus: 2, tp: 2, etp: 2, tp_of: {ssm: 1}, first_gpu: 0}");
    assert_held(own, "model.layers.0.linear_attn.in_proj_qkv.weight", "0,1 [0:20, 0:8]");
}

/* Rows z 0-7, x 8-15, B 16-21, C 22-27, dt 28-31; in the convolution x 0-7, B 8-13, C 14-19. */
static void test_nemotron(void) {
    g_autoptr(RefitLayout) layout =
        make(NEMOTRON, "{framework: megatron, gpus: 2, tp: 2, first_gpu: 0}");
    assert_held(layout, "backbone.layers.0.mixer.in_proj.weight",
                "0 [0:4+8:12+16:19+22:25+28:30, 0:8]; 1 [4:8+12:16+19:22+25:28+30:32, 0:8]");
    assert_held(layout, "backbone.layers.0.mixer.conv1d.bias",
                "0 [0:4+8:11+14:17]; 1 [4:8+11:14+17:20]");
    assert_held(layout, "backbone.layers.0.mixer.norm.weight", "0 [0:4]; 1 [4:8]");
}

/* tp cuts first, FSDP halves the 10 rows that are left: q 0-1, k 4-5, v 8 | v 9-13. */
static void test_fsdp(void) {
    g_autoptr(RefitLayout) layout = make(QWEN, "{framework: fsdp, gpus: 4, tp: 2, first_gpu: 0}");
    assert_held(layout, "model.layers.0.linear_attn.in_proj_qkv.weight",
                "0 [0:2+4:6+8:9, 0:8]; 1 [2:4+6:8+14:15, 0:8]; 2 [9:14, 0:8]; 3 [15:20, 0:8]");
    assert_held(layout, "model.layers.0.mlp.experts.gate_up_proj",
                "0 [0:2, 0:3+6:9, 0:8]; 1 [0:2, 3:6+9:12, 0:8]; 2 [2:4, 0:3+6:9, 0:8]; "
                "3 [2:4, 3:6+9:12, 0:8]");
    g_autoptr(RefitLayout) hsdp =
        make(DENSE, "{framework: fsdp, gpus: 8, tp: 2, replicate: 2, first_gpu: 0}");
    assert_held(hsdp, "up", "0,4 [0:2, 0:4]; 2,6 [2:4, 0:4]; 1,5 [4:6, 0:4]; 3,7 [6:8, 0:4]");
    assert_held(hsdp, "s", "0,1,2,3,4,5,6,7 []");
}

static void test_refusals(void) {
    assert_refused(QWEN, "{framework: megatron, gpus: 4, tp: 4}",
                   "c.yaml:1:43: train.tp: tp 4 does not divide the 2 heads or groups of segment 0 "
                   "of model.layers.0.linear_attn.conv1d.weight; use a divisor of 2");
    assert_refused(QWEN, "{framework: megatron, gpus: 4, etp: 4}",
                   "c.yaml:1:44: train.etp: etp 4 does not divide the 6 heads or groups of segment "
                   "0 of model.layers.0.mlp.experts.gate_up_proj; use a divisor of 6");
    assert_refused(NEMOTRON, "{framework: megatron, gpus: 4, tp: 4}",
                   "c.yaml:1:43: train.tp: tp 4 does not divide the 2 heads or groups of segment 2 "
                   "of backbone.layers.0.mixer.in_proj.weight; use a divisor of 2");
    assert_refused(QWEN, "{framework: fsdp, gpus: 4, tp: 4}",
                   "c.yaml:1:39: train.tp: tp 4 does not divide the 2 heads or groups of segment 0 "
                   "of model.layers.0.linear_attn.conv1d.weight; use a divisor of 2");
}

/* ---- shipped models ---- */

static RefitLayout *make_megatron(const char *model_name, const char *words, guint n_ranks) {
    g_autofree char *side = g_strdup_printf("{framework: megatron, gpus: %u, %s}", n_ranks, words);

    return make_shipped(model_name, side, n_ranks);
}

/* The rank, of `tp`, that owns a row of the cut dim of a tensor. */
typedef guint (*OwnerFunc)(guint64 row, guint tp);

/* Segments of `heads` heads each, `width` rows to a head. */
static guint owner_in(const guint64 (*segments)[2], guint n, guint64 row, guint tp) {
    for (guint i = 0; i < n; i++) {
        guint64 heads = segments[i][0], width = segments[i][1];

        if (row < heads * width)
            return (guint)(row / width / (heads / tp));
        row -= heads * width;
    }
    g_assert_not_reached();
}

static guint owner_qwen_qkv(guint64 row, guint tp) {
    static const guint64 segments[][2] = {{16, 128}, {16, 128}, {64, 128}};
    return owner_in(segments, 3, row, tp);
}

static guint owner_qwen_gate_up(guint64 row, guint tp) {
    static const guint64 segments[][2] = {{1024, 1}, {1024, 1}};
    return owner_in(segments, 2, row, tp);
}

static guint owner_nemotron_in(guint64 row, guint tp) {
    static const guint64 segments[][2] = {{256, 64}, {256, 64}, {8, 128}, {8, 128}, {256, 1}};
    return owner_in(segments, 5, row, tp);
}

static guint owner_nemotron_conv(guint64 row, guint tp) {
    static const guint64 segments[][2] = {{256, 64}, {8, 128}, {8, 128}};
    return owner_in(segments, 3, row, tp);
}

static guint owner_kimi_decays(guint64 row, guint tp) {
    static const guint64 segments[][2] = {{96, 1}, {32, 1}};
    return owner_in(segments, 2, row, tp);
}

/*
 * Rows of a gated query projection in the fused parameter, of `n_groups` groups of 16 heads with
 * 256 rows: per group all queries, all gates, key, value. On the hub a head has its query rows,
 * then those of its gate.
 */
static guint owner_gated(guint64 row, guint tp, guint n_groups) {
    const guint64 group = 16 * 512 + 2 * 256, total = group * n_groups;
    guint64 head = row / 512, inside = row % 512;
    guint64 fused =
        head / 16 * group + (inside < 256 ? 0 : 16 * 256) + head % 16 * 256 + inside % 256;

    return (guint)(fused / (total / tp));
}

static guint owner_qwen35_query(guint64 row, guint tp) {
    return owner_gated(row, tp, 2);
}

static guint owner_qwen38_query(guint64 row, guint tp) {
    return owner_gated(row, tp, 4);
}

static guint owner_qwen35_key(guint64 row, guint tp) {
    guint64 fused = row / 256 * (16 * 512 + 512) + 16 * 512 + row % 256;
    return (guint)(fused / ((16 * 512 + 512) * 2 / tp));
}

typedef struct {
    const char *title;
    const char *model, *words;
    guint n_ranks, tp;
    const char *tensor;
    guint dim;
    OwnerFunc owner;
} Rows;

#define QWEN35 "model.language_model.layers."
static const Rows row_cases[] = {
    {"qwen3.5-delta-net", "qwen3.5-397b-a17b", "tp: 8", 8, 8,
     QWEN35 "0.linear_attn.in_proj_qkv.weight", 0, owner_qwen_qkv},
    {"qwen3.5-convolution", "qwen3.5-397b-a17b", "tp: 4", 4, 4,
     QWEN35 "4.linear_attn.conv1d.weight", 0, owner_qwen_qkv},
    {"qwen3.5-gate-and-up", "qwen3.5-397b-a17b", "etp: 8", 8, 8,
     QWEN35 "59.mlp.experts.gate_up_proj", 1, owner_qwen_gate_up},
    {"qwen3.5-queries-with-gates", "qwen3.5-397b-a17b", "tp: 8", 8, 8,
     QWEN35 "3.self_attn.q_proj.weight", 0, owner_qwen35_query},
    {"qwen3.5-keys", "qwen3.5-397b-a17b", "tp: 8", 8, 8, QWEN35 "3.self_attn.k_proj.weight", 0,
     owner_qwen35_key},
    {"qwen3.8-queries-with-gates", "qwen3.8-2.4t-a95b", "tp: 8", 8, 8,
     "model.layers.91.self_attn.q_proj.weight", 0, owner_qwen38_query},
    {"nemotron-mixer", "nemotron-3-ultra-550b-a55b", "tp: 8", 8, 8,
     "backbone.layers.0.mixer.in_proj.weight", 0, owner_nemotron_in},
    {"nemotron-convolution", "nemotron-3-ultra-550b-a55b", "tp: 4", 4, 4,
     "backbone.layers.0.mixer.conv1d.weight", 0, owner_nemotron_conv},
    {"kimi-decays", "kimi-k3", "tp: 4", 4, 4, "language_model.model.layers.0.self_attn.A_log", 0,
     owner_kimi_decays},
};

static void test_rows(gconstpointer data) {
    const Rows *rows = data;
    g_autoptr(RefitLayout) layout = make_megatron(rows->model, rows->words, rows->n_ranks);
    guint index = find(layout, rows->tensor);
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), index);
    g_autofree guint8 *owners = g_new(guint8, tensor->shape[rows->dim]);
    g_autoptr(RefitHolding) holding = holding_of(layout, index);

    memset(owners, 0xff, tensor->shape[rows->dim]);
    for (guint i = 0; i < holding->n_pieces; i++) {
        const RefitPiece *piece = &holding->pieces[i];

        g_assert_cmpuint(piece->n_ranks, ==, 1);
        for (guint dim = 0; dim < tensor->n_dims; dim++) {
            if (dim != rows->dim)
                g_assert_cmpuint(piece->region.dims[dim]->extent, ==, tensor->shape[dim]);
        }
        for (guint k = 0; k < piece->region.dims[rows->dim]->n; k++) {
            const RefitInterval *item = &piece->region.dims[rows->dim]->items[k];
            for (guint64 row = item->lo; row < item->hi; row++) {
                g_assert_cmpuint(owners[row], ==, 0xff);
                owners[row] = (guint8)piece->ranks[0];
            }
        }
    }
    for (guint64 row = 0; row < tensor->shape[rows->dim]; row++)
        g_assert_cmpuint(owners[row], ==, rows->owner(row, rows->tp));
}

/* ---- every element of every shipped model ---- */

typedef struct {
    const char *model, *words;
    guint n_ranks;
} Whole;

static const Whole wholes[] = {
    {"deepseek-v3", "pp: 16, ep: 16, first_stage_layers: 3, last_stage_layers: 2", 256},
    {"deepseek-v3", "tp: 4, pp: 4, ep: 8, etp: 2, stage_layers: [14, 16, 16, 15], mtp_stage: 2",
     128},
    {"glm-4.5", "tp: 8, pp: 4, ep: 16", 64},
    {"gpt-oss-120b", "tp: 8, pp: 4, ep: 4, etp: 2", 32},
    {"kimi-k2", "tp: 8, pp: 8, ep: 32, stage_layers: [7, 8, 8, 8, 8, 8, 8, 6]", 256},
    {"kimi-k3", "tp: 4, pp: 8, ep: 64, stage_layers: [12, 12, 12, 12, 12, 12, 12, 9]", 512},
    {"kimi-k3", "tp: 8, tp_of: {ssm: 4, attention: 2, shared: 1}, ep: 8", 8},
    {"llama-3.1-405b", "tp: 8, pp: 9, vpp: 2", 72},
    {"llama-3.1-70b", "tp: 8, pp: 4, vpp: 5, cp: 2", 64},
    {"llama-3.1-8b", "tp: 16", 32},
    {"minimax-m2", "tp: 8, pp: 2, ep: 16", 32},
    {"minimax-m2", "tp: 16, pp: 2, ep: 16", 32},
    {"mixtral-8x7b", "tp: 2, pp: 4, ep: 4, etp: 2", 32},
    {"nemotron-3-ultra-550b-a55b", "tp: 8, pp: 4, ep: 32", 128},
    {"qwen3-235b-a22b", "tp: 4, pp: 8, ep: 16, first_stage_layers: 11, last_stage_layers: 11", 128},
    {"qwen3-30b-a3b", "tp: 8, pp: 2, ep: 8", 16},
    {"qwen3-32b", "tp: 8, pp: 2, cp: 2, vocab_granule: 1", 32},
    {"qwen3-4b", "tp: 2, pp: 2, vpp: 3", 8},
    {"qwen3.5-397b-a17b", "tp: 8, pp: 4, ep: 32", 256},
    {"qwen3.5-397b-a17b", "tp: 2, ep: 4, etp: 8, tp_of: {attention: 16, vocabulary: 8}", 32},
    {"qwen3.8-2.4t-a95b", "tp: 8, pp: 4, ep: 64", 256},
};

/* Pieces are disjoint, together the tensor, and held by as many ranks each. */
static void check_held_once(const RefitLayout *layout, guint index) {
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), index);
    g_autoptr(RefitHolding) holding = holding_of(layout, index);
    guint64 sum = 0;

    for (guint i = 0; i < holding->n_pieces; i++) {
        const RefitPiece *piece = &holding->pieces[i];

        sum += refit_region_volume(&piece->region);
        g_assert_cmpuint(piece->n_ranks, ==, holding->pieces[0].n_ranks);
        for (guint j = 0; j < i; j++)
            g_assert_cmpuint(refit_region_common(&piece->region, &holding->pieces[j].region), ==,
                             0);
    }
    g_assert_cmpuint(sum, ==, tensor->elements);
}

static void test_whole(gconstpointer data) {
    const Whole *whole = data;
    g_autoptr(RefitLayout) layout = make_megatron(whole->model, whole->words, whole->n_ranks);
    const RefitModel *model = refit_layout_model(layout);
    g_autoptr(GHashTable) checked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        GString *key = g_string_new(NULL);

        g_string_printf(key, "%p", (const void *)refit_layout_sharding(layout, i));
        for (guint dim = 0; dim < tensor->n_dims; dim++)
            g_string_append_printf(key, " %" G_GUINT64_FORMAT, tensor->shape[dim]);
        if (g_hash_table_add(checked, g_string_free(key, FALSE)))
            check_held_once(layout, i);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/packed/families-know-their-segments", test_segments);
    g_test_add_func("/packed/delta-nets-and-experts-are-cut-by-segment", test_qwen);
    g_test_add_func("/packed/mixers-are-cut-by-segment", test_nemotron);
    g_test_add_func("/packed/fsdp-cuts-what-tensor-parallelism-left", test_fsdp);
    g_test_add_func("/packed/heads-and-groups-stay-whole", test_refusals);
    for (guint i = 0; i < G_N_ELEMENTS(row_cases); i++) {
        g_autofree char *path = g_strdup_printf("/packed/rows/%s", row_cases[i].title);
        g_test_add_data_func(path, &row_cases[i], test_rows);
    }
    for (guint i = 0; i < G_N_ELEMENTS(wholes); i++) {
        g_autofree char *path = g_strdup_printf("/packed/held-once/%u-%s", i, wholes[i].model);
        g_test_add_data_func(path, &wholes[i], test_whole);
    }
    return g_test_run();
}
