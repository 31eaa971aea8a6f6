/*
 * Layouts of unusual tensors: where tensor and expert parallelism cut state-space mixers, attention
 * sinks and gates, norms over all heads, stacked experts of either orientation and their biases,
 * latent projections, image encoders and the tensors after the last layer; bytes per rank of whole
 * shipped models. Expected regions were worked out by hand, bytes by another program from its own
 * table of cuts.
 */

#include "test-layout.h"

/* Two KV heads of two rows, four query heads. */
#define HEADS "config: {num_attention_heads: 4, num_key_value_heads: 2}\n"
#define MIXERS                                                                                     \
    "family: list\n" HEADS "tensors:\n"                                                            \
    "  - {name: layers.0.k, shape: [4, 4], role: attention_k}\n"                                   \
    "  - {name: layers.0.q_norm, shape: [8], role: attention_q_norm}\n"                            \
    "  - {name: layers.0.k_norm, shape: [4], role: attention_k_norm}\n"                            \
    "  - {name: layers.0.gate, shape: [8, 6], role: attention_gate}\n"                             \
    "  - {name: layers.0.sinks, shape: [4], role: attention_sink}\n"                               \
    "  - {name: layers.0.in, shape: [12, 6], role: ssm_in}\n"                                      \
    "  - {name: layers.0.low, shape: [4, 6], role: ssm_low_rank}\n"                                \
    "  - {name: layers.0.conv, shape: [12, 1, 4], role: ssm_conv}\n"                               \
    "  - {name: layers.0.decay, shape: [4], role: ssm_head}\n"                                     \
    "  - {name: layers.0.out, shape: [6, 8], role: ssm_out}\n"                                     \
    "  - {name: layers.0.latent, shape: [2, 6], role: latent_proj}\n"                              \
    "  - {name: layers.0.shared_gate, shape: [1, 6], role: shared_expert_gate}\n"                  \
    "  - {name: layers.1.residual, shape: [1, 6], role: residual_proj}\n"                          \
    "  - {name: residual, shape: [1, 6], role: residual_proj}\n"                                   \
    "  - {name: visual.norm, shape: [4], role: vision}\n"
#define STACKED                                                                                    \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: layers.0.gate_up, shape: [4, 8, 2], role: expert_gate_up}\n"                       \
    "  - {name: layers.0.gate_up_t, shape: [4, 2, 8], role: expert_gate_up_t}\n"                   \
    "  - {name: layers.0.gate_up_bias, shape: [4, 8], role: expert_gate_up_bias}\n"                \
    "  - {name: layers.0.down_t, shape: [4, 6, 2], role: expert_down_t}\n"                         \
    "  - {name: layers.0.down_bias, shape: [4, 2], role: expert_down_bias}\n"

static const char *const frameworks[] = {"megatron", "vllm"};

static RefitLayout *make_side(const char *model, const char *framework, const char *words) {
    g_autofree char *side = g_strdup_printf("{framework: %s, %s, first_gpu: 0}", framework, words);

    return make(model, side);
}

/* Both engines cut these alike. */
static void test_mixers(void) {
    for (guint i = 0; i < G_N_ELEMENTS(frameworks); i++) {
        g_autoptr(RefitLayout) layout = make_side(MIXERS, frameworks[i], "gpus: 4, tp: 2, pp: 2");

        assert_held(layout, "layers.0.q_norm", "0 [0:4]; 1 [4:8]");
        assert_held(layout, "layers.0.k_norm", "0 [0:2]; 1 [2:4]");
        assert_held(layout, "layers.0.gate", "0 [0:4, 0:6]; 1 [4:8, 0:6]");
        assert_held(layout, "layers.0.sinks", "0 [0:2]; 1 [2:4]");
        assert_held(layout, "layers.0.in", "0 [0:6, 0:6]; 1 [6:12, 0:6]");
        assert_held(layout, "layers.0.low", "0,1 [0:4, 0:6]");
        assert_held(layout, "layers.0.conv", "0 [0:6, 0:1, 0:4]; 1 [6:12, 0:1, 0:4]");
        assert_held(layout, "layers.0.decay", "0 [0:2]; 1 [2:4]");
        assert_held(layout, "layers.0.out", "0 [0:6, 0:4]; 1 [0:6, 4:8]");
        assert_held(layout, "layers.0.latent", "0,1 [0:2, 0:6]");
        assert_held(layout, "layers.0.shared_gate", "0,1 [0:1, 0:6]");
    }
}

/* The encoder feeds the first layer; the last residual projection reads what the last one wrote. */
static void test_ends(void) {
    for (guint i = 0; i < G_N_ELEMENTS(frameworks); i++) {
        g_autoptr(RefitLayout) layout = make_side(MIXERS, frameworks[i], "gpus: 4, tp: 2, pp: 2");

        assert_held(layout, "visual.norm", "0,1 [0:4]");
        assert_held(layout, "layers.1.residual", "2,3 [0:1, 0:6]");
        assert_held(layout, "residual", "2,3 [0:1, 0:6]");
    }
}

/*
 * Norms over all heads go where their heads go: with more ranks than KV heads Megatron cuts fused
 * rows (q 0-3, k 0-1, v 0-1 of one group on two ranks: q 0-3 on the first), vLLM repeats keys.
 */
static void test_norms_follow_heads(void) {
    g_autoptr(RefitLayout) fused = make_side(MIXERS, "megatron", "gpus: 4, tp: 4");
    assert_held(fused, "layers.0.q_norm", "0 [0:4]; 2 [4:8]");
    assert_held(fused, "layers.0.k_norm", "1 [0:2]; 3 [2:4]");
    assert_held(fused, "layers.0.k", "1 [0:2, 0:4]; 3 [2:4, 0:4]");
    g_autoptr(RefitLayout) repeated = make_side(MIXERS, "vllm", "gpus: 4, tp: 4");
    assert_held(repeated, "layers.0.q_norm", "0 [0:2]; 1 [2:4]; 2 [4:6]; 3 [6:8]");
    assert_held(repeated, "layers.0.k_norm", "0,1 [0:2]; 2,3 [2:4]");
}

static void test_stacked_spread(void) {
    g_autoptr(RefitLayout) megatron = make_side(STACKED, "megatron", "gpus: 4, tp: 2, ep: 4");
    g_autoptr(RefitLayout) vllm = make_side(STACKED, "vllm", "gpus: 4, tp: 2, ep: true");
    const RefitLayout *const layouts[] = {megatron, vllm};

    for (guint i = 0; i < G_N_ELEMENTS(layouts); i++) {
        assert_held(layouts[i], "layers.0.gate_up",
                    "0 [0:1, 0:8, 0:2]; 1 [1:2, 0:8, 0:2]; 2 [2:3, 0:8, 0:2]; 3 [3:4, 0:8, 0:2]");
        assert_held(layouts[i], "layers.0.down_t",
                    "0 [0:1, 0:6, 0:2]; 1 [1:2, 0:6, 0:2]; 2 [2:3, 0:6, 0:2]; 3 [3:4, 0:6, 0:2]");
        assert_held(layouts[i], "layers.0.gate_up_bias",
                    "0 [0:1, 0:8]; 1 [1:2, 0:8]; 2 [2:3, 0:8]; 3 [3:4, 0:8]");
        assert_held(layouts[i], "layers.0.down_bias",
                    "0 [0:1, 0:2]; 1 [1:2, 0:2]; 2 [2:3, 0:2]; 3 [3:4, 0:2]");
    }
}

/* Outputs of the way up and inputs of the way down, wherever they lie. */
static void test_stacked_cut(void) {
    g_autoptr(RefitLayout) megatron = make_side(STACKED, "megatron", "gpus: 2, etp: 2");
    g_autoptr(RefitLayout) vllm = make_side(STACKED, "vllm", "gpus: 2, tp: 2");
    const RefitLayout *const layouts[] = {megatron, vllm};

    for (guint i = 0; i < G_N_ELEMENTS(layouts); i++) {
        assert_held(layouts[i], "layers.0.gate_up", "0 [0:4, 0:4, 0:2]; 1 [0:4, 4:8, 0:2]");
        assert_held(layouts[i], "layers.0.gate_up_t", "0 [0:4, 0:2, 0:4]; 1 [0:4, 0:2, 4:8]");
        assert_held(layouts[i], "layers.0.gate_up_bias", "0 [0:4, 0:4]; 1 [0:4, 4:8]");
        assert_held(layouts[i], "layers.0.down_t", "0 [0:4, 0:3, 0:2]; 1 [0:4, 3:6, 0:2]");
    }
    /* A rank of an engine adds its part and, the first one, the bias to what is then summed up. */
    assert_held(megatron, "layers.0.down_bias", "0,1 [0:4, 0:2]");
    assert_held(vllm, "layers.0.down_bias", "0 [0:4, 0:2]");
}

/* ---- whole models ---- */

typedef struct {
    const char *model;
    const char *ep;
    guint64 bytes; /* on each of eight ranks, with MTP layers */
    guint64 first; /* more on the first rank: biases of 128 experts in 36 layers of width 2880 */
} WholeModel;

static const WholeModel whole_models[] = {
    {"glm-4.5", "true", 89807020288, 0},
    {"gpt-oss-120b", "true", 29231070912, 0},
    {"gpt-oss-120b", "false", 29227753152, 26542080},
    {"kimi-k3", "true", 705829499712, 0},
    {"minimax-m2", "true", 57356018176, 0},
    {"mixtral-8x7b", "false", 11677999104, 0},
    {"nemotron-3-ultra-550b-a55b", "true", 143410727936, 0},
    {"qwen3.5-397b-a17b", "false", 101923080272, 0},
    {"qwen3.8-2.4t-a95b", "true", 612333061696, 0},
};

static RefitLayout *make_whole(const WholeModel *whole) {
    g_autofree char *side = g_strdup_printf("{framework: vllm, gpus: 8, tp: 8, ep: %s}", whole->ep);

    return make_shipped(whole->model, side, 8);
}

/* Adds the elements of tensor `index` that each rank holds. */
static void add_elements(const RefitLayout *layout, guint index, guint64 elements[8]) {
    g_autoptr(RefitHolding) holding = holding_of(layout, index);

    for (guint i = 0; i < holding->n_pieces; i++) {
        const RefitPiece *piece = &holding->pieces[i];
        for (guint j = 0; j < piece->n_ranks; j++)
            elements[piece->ranks[j]] += refit_region_volume(&piece->region);
    }
}

static gboolean is_like(const RefitLayout *layout, guint index, guint other) {
    const RefitTensor *a = refit_model_tensor(refit_layout_model(layout), index);
    const RefitTensor *b = refit_model_tensor(refit_layout_model(layout), other);

    return refit_layout_sharding(layout, index) == refit_layout_sharding(layout, other) &&
           a->n_dims == b->n_dims && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

static void test_whole_model(gconstpointer data) {
    const WholeModel *whole = data;
    g_autoptr(RefitLayout) layout = make_whole(whole);
    const RefitModel *model = refit_layout_model(layout);
    guint64 bytes[8] = {0}, elements[8] = {0};

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        if (i == 0 || !is_like(layout, i, i - 1)) {
            memset(elements, 0, sizeof elements);
            add_elements(layout, i, elements);
        }
        for (guint rank = 0; rank < 8; rank++)
            bytes[rank] +=
                elements[rank] * refit_dtype_bits(refit_model_tensor(model, i)->dtype) / 8;
    }
    for (guint rank = 0; rank < 8; rank++)
        g_assert_cmpuint(bytes[rank], ==, whole->bytes + (rank == 0 ? whole->first : 0));
}

static void test_refusals(void) {
    assert_refused(STACKED, "{framework: vllm, gpus: 3, tp: 3}",
                   "c.yaml:1:39: train.tp: tp 3 does not divide dim 1 of layers.0.gate_up, which "
                   "is 8; use a divisor of it");
    assert_refused(STACKED, "{framework: megatron, gpus: 8, ep: 8}",
                   "c.yaml:1:43: train.ep: ep 8 does not divide the model's 4 routed experts; use "
                   "a divisor of 4");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout-roles/mixers-are-cut-by-heads", test_mixers);
    g_test_add_func("/layout-roles/ends-of-a-pipeline-hold-what-they-run", test_ends);
    g_test_add_func("/layout-roles/norms-over-heads-go-with-their-heads", test_norms_follow_heads);
    g_test_add_func("/layout-roles/stacked-experts-are-spread-whole", test_stacked_spread);
    g_test_add_func("/layout-roles/stacked-experts-are-cut-along-their-width", test_stacked_cut);
    g_test_add_func("/layout-roles/refuses-what-does-not-divide", test_refusals);
    for (guint i = 0; i < G_N_ELEMENTS(whole_models); i++) {
        g_autofree char *path = g_strdup_printf("/layout-roles/known-bytes/%s-with-ep-%s",
                                                whole_models[i].model, whole_models[i].ep);
        g_test_add_data_func(path, &whole_models[i], test_whole_model);
    }
    return g_test_run();
}
