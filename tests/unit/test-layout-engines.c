/*
 * Inference engines on whole shipped models.
 *
 * Covers: every tensor of every model is held completely, by each engine, under several sizes of
 * both engines, and no element by fewer ranks than others of its tensor; bytes per rank against
 * totals that another program computed from its own table of cuts; packed projections row by row,
 * in the order in which a rank stores them, against a loop over segments and heads that shares
 * nothing with the code; MXFP4 experts cut between blocks.
 */

#include "test-layout-models.h"

#define MODELS REFIT_SOURCE_DATA_DIR "/layouts/models"

static RefitModel *load(const char *name, RefitForm form) {
    g_autofree char *path = g_strdup_printf("%s/%s.yaml", MODELS, name);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_load(&refit_disk, path, &error);
    g_assert_no_error(error);
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .form = form};
    RefitModel *model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    return model;
}

/* `side` without the braces; ranks from 0 on. */
static RefitLayout *put(RefitModel *model, const char *side) {
    g_autofree char *text = g_strdup_printf("{framework: %s}", side);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "side", &error);
    g_assert_no_error(error);
    RefitLayout *layout =
        refit_layout_parse(refit_doc_root(doc), "generation", model, 0, N_AVAILABLE, &error);
    g_assert_no_error(error);
    return layout;
}

/* ---- complete ---- */

/* Distinct pieces share nothing, add up to the tensor, and have equally many holders. */
static void check_complete(const RefitLayout *layout, guint index) {
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), index);
    g_autoptr(RefitHolding) holding = holding_of(layout, index);
    guint64 sum = 0;

    for (guint i = 0; i < holding->n_pieces; i++) {
        sum += refit_region_volume(&holding->pieces[i].region);
        g_assert_cmpuint(holding->pieces[i].n_ranks, ==, holding->pieces[0].n_ranks);
        for (guint j = 0; j < i; j++)
            g_assert_cmpuint(
                refit_region_common(&holding->pieces[i].region, &holding->pieces[j].region), ==, 0);
    }
    if (sum != tensor->elements)
        g_error("%s: %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " elements held", tensor->name,
                sum, tensor->elements);
}

/* What decides who holds a tensor; layers repeat, so few differ. */
typedef struct {
    const RefitSharding *sharding;
    guint64 n_dims, shape[REFIT_MAX_DIMS];
} Kind;

static guint kind_hash(gconstpointer data) {
    const Kind *kind = data;
    guint hash = g_direct_hash(kind->sharding);

    for (guint d = 0; d < REFIT_MAX_DIMS; d++)
        hash = hash * 31 + (guint)kind->shape[d];
    return hash;
}

static gboolean kind_equal(gconstpointer a, gconstpointer b) {
    return memcmp(a, b, sizeof(Kind)) == 0;
}

static void check_layout(RefitModel *model, const char *side) {
    g_autoptr(RefitLayout) layout = put(model, side);
    g_autoptr(GHashTable) seen = g_hash_table_new_full(kind_hash, kind_equal, g_free, NULL);

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        Kind kind = {.sharding = refit_layout_sharding(layout, i), .n_dims = tensor->n_dims};

        g_assert_nonnull(kind.sharding);
        memcpy(kind.shape, tensor->shape, tensor->n_dims * sizeof tensor->shape[0]);
        if (g_hash_table_contains(seen, &kind))
            continue;
        g_hash_table_add(seen, g_memdup2(&kind, sizeof kind));
        check_complete(layout, i);
    }
}

static void test_complete(gconstpointer data) {
    static const char *const small[] = {"vllm, gpus: 8, tp: 2, dp: 4",
                                        "vllm, gpus: 12, tp: 2, pp: 2, engines: 3",
                                        "sglang, gpus: 8, tp: 4, dp: 2, dp_attention: true"};
    static const char *const no_attention_dp[] = {"llama", "mixtral"}; /* nor has the engine */
    static const char *const large[] = {
        "vllm, gpus: 16, tp: 8, engines: 2", "vllm, gpus: 40, tp: 4, pp: 5, dp: 2",
        "sglang, gpus: 32, tp: 16, dp: 4, dp_attention: true, dp_lm_head: true, moe_dense_tp: 1",
        "sglang, gpus: 24, tp: 8, pp: 3, shared_expert_as_slot: true"};
    static const char *const spread[] = {
        "vllm, gpus: 64, tp: 8, ep: true", "vllm, gpus: 24, tp: 8, ep: true",
        "vllm, gpus: 32, tp: 4, pp: 2, ep: true, expert_placement: round_robin",
        "sglang, gpus: 16, tp: 16, dp: 16, dp_attention: true, ep: 4, shared_expert_as_slot: true",
        "sglang, gpus: 8, tp: 8, moe_a2a_backend: deepep"};
    const char *name = data;
    g_autoptr(RefitModel) model = load(name, REFIT_FORM_PLAIN);
    gboolean is_tiny = g_str_equal(name, "tiny"), has_experts = FALSE;

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        RefitRole role = refit_model_tensor(model, i)->role;
        has_experts =
            has_experts || role == REFIT_ROLE_EXPERT_DOWN || role == REFIT_ROLE_EXPERT_DOWN_T;
    }
    gboolean attention_dp = TRUE;
    for (guint i = 0; i < G_N_ELEMENTS(no_attention_dp); i++)
        attention_dp = attention_dp && !g_str_has_prefix(name, no_attention_dp[i]);
    for (guint i = 0; i < G_N_ELEMENTS(small); i++) {
        if (attention_dp || strstr(small[i], "dp_attention") == NULL)
            check_layout(model, small[i]);
    }
    for (guint i = 0; i < G_N_ELEMENTS(large) && !is_tiny; i++) {
        if (attention_dp || strstr(large[i], "dp_attention") == NULL)
            check_layout(model, large[i]);
    }
    for (guint i = 0; i < G_N_ELEMENTS(spread) && !is_tiny && has_experts; i++) {
        if (attention_dp || strstr(spread[i], "dp_attention") == NULL)
            check_layout(model, spread[i]);
    }
}

/* ---- bytes ---- */

typedef struct {
    const char *model, *side;
    guint64 bytes; /* on every rank */
} Known;

static const Known known[] = {
    {"deepseek-v3", "vllm, gpus: 64, tp: 32", 43936587776},
    {"deepseek-v3", "vllm, gpus: 32, tp: 8, ep: true, sequence_parallel_moe: false", 46952849408},
    {"deepseek-v3", "vllm, gpus: 32, tp: 8, ep: true, all2all_backend: pplx", 46952849408},
    /* Seven more eighths of the shared experts of 58 layers, 3 x 2048 x 7168 in two bytes. */
    {"deepseek-v3", "vllm, gpus: 32, tp: 8, ep: true", 51422928896},
    {"glm-4.5-air", "vllm, gpus: 8, tp: 8", 26755038720},
    {"kimi-k2", "vllm, gpus: 128, tp: 32, ep: true, engines: 4", 66261753856},
    {"kimi-k2", "sglang, gpus: 32, tp: 32, ep: 32", 66261753856},
    {"nemotron-3-ultra-550b-a55b", "vllm, gpus: 8, tp: 8", 140537545728},
    {"qwen3.5-397b-a17b", "vllm, gpus: 256, tp: 16", 50747721752},
    {"qwen3.8-2.4t-a95b", "vllm, gpus: 128, tp: 8, ep: true, engines: 2", 95213027904},
    /* GLM-4.5 cuts them all the same: that of tp 8 with a 16th of the experts for an eighth. */
    {"glm-4.5-air", "vllm, gpus: 16, tp: 8, ep: true", 14297955840},
};

static void test_bytes(gconstpointer data) {
    const Known *want = data;
    g_autoptr(RefitModel) model = load(want->model, REFIT_FORM_PLAIN);
    g_autoptr(RefitLayout) layout = put(model, want->side);

    g_assert_cmpuint(bytes_on(layout, 0), ==, want->bytes);
    g_assert_cmpuint(bytes_on(layout, refit_layout_n_ranks(layout) - 1), ==, want->bytes);
}

/*
 * The published totals of a replica of eight ranks: Qwen3-235B 471.7 GB with its four KV heads
 * twice and routers and norms eight times; GLM-4.5-Air 213.7 GB of weights, whose eight KV heads
 * are there once, and 0.3 GB more with the copies of routers and norms.
 */
static void test_replicas(void) {
    g_autoptr(RefitModel) qwen = load("qwen3-235b-a22b", REFIT_FORM_PLAIN);
    g_autoptr(RefitModel) glm = load("glm-4.5-air", REFIT_FORM_PLAIN);
    g_autoptr(RefitLayout) qwen_layout = put(qwen, "vllm, gpus: 8, tp: 8");
    g_autoptr(RefitLayout) glm_layout = put(glm, "vllm, gpus: 8, tp: 8");
    guint64 qwen_sum = 0, glm_sum = 0;

    for (guint rank = 0; rank < 8; rank++) {
        qwen_sum += bytes_on(qwen_layout, rank);
        glm_sum += bytes_on(glm_layout, rank);
    }
    g_assert_cmpuint(refit_model_bytes(qwen), ==, 470187269120);
    g_assert_cmpuint(qwen_sum, ==, 471676936192);
    g_assert_cmpuint(refit_model_bytes(glm), ==, 213704514048);
    g_assert_cmpuint(glm_sum, ==, 214040309760);
}

/* ---- packed rows ---- */

/* What `rank` of `tp` stores along the packed dim, one index after the other. */
static GArray *packed_rows(const RefitTensor *tensor, guint rank, guint tp) {
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(guint64));
    guint64 start = 0;

    for (guint s = 0; s < tensor->n_packed; s++) {
        guint64 extent = tensor->packed[s].extent, units = tensor->packed[s].units;

        for (guint64 row = 0; row < extent; row++) {
            gboolean mine;

            if (units == 0) { /* padding, cut in nearly equal runs, longer ones first */
                guint64 few = extent / tp, more = extent % tp, first = rank * few + MIN(rank, more);
                mine = row >= first && row < first + few + (rank < more ? 1 : 0);
            } else if (units % tp == 0) { /* whole heads each */
                mine = row / (extent / units) / (units / tp) == rank;
            } else { /* a head for several ranks */
                mine = row / (extent / units) == rank / (tp / units);
            }
            guint64 index = start + row;
            if (mine)
                g_array_append_val(rows, index);
        }
        start += extent;
    }
    g_assert_cmpuint(start, ==, tensor->shape[tensor->packed_dim]);
    return rows;
}

static void check_packed(const RefitLayout *layout, guint index, guint tp) {
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), index);
    const RefitSharding *sharding = refit_layout_sharding(layout, index);

    g_assert_cmpuint(refit_sharding_n_parts(sharding), ==, 1);
    for (guint rank = 0; rank < tp; rank++) {
        g_autoptr(GArray) expected = packed_rows(tensor, rank, tp);
        g_auto(RefitRegion) region = {0};
        guint64 shape[REFIT_MAX_DIMS];
        g_autoptr(GError) error = NULL;

        gboolean held = refit_sharding_local(sharding, 0, rank, tensor->n_dims, tensor->shape,
                                             &region, shape, &error);
        g_assert_no_error(error);
        g_assert_true(held);
        const RefitIntervalList *list = region.dims[tensor->packed_dim];
        g_assert_cmpuint(list->extent, ==, expected->len);
        for (guint i = 0; i < list->n; i++) {
            for (guint64 row = list->items[i].lo; row < list->items[i].hi; row++) {
                guint64 at = list->items[i].at + row - list->items[i].lo;
                g_assert_cmpuint(at, <, expected->len);
                g_assert_cmpuint(g_array_index(expected, guint64, at), ==, row);
            }
        }
        for (guint d = 0; d < tensor->n_dims; d++) {
            if (d != tensor->packed_dim)
                g_assert_cmpuint(region.dims[d]->extent, ==, tensor->shape[d]);
        }
    }
}

static void test_packed(gconstpointer data) {
    static const guint sizes[] = {2, 8, 16};
    g_autoptr(RefitModel) model = load(data, REFIT_FORM_PLAIN);
    guint n_checked = 0;

    for (guint i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_autofree char *side = g_strdup_printf("vllm, gpus: %u, tp: %u", sizes[i], sizes[i]);
        g_autoptr(RefitLayout) layout = put(model, side);

        for (guint t = 0; t < refit_model_n_tensors(model); t++) {
            const RefitTensor *tensor = refit_model_tensor(model, t);

            /* Layers repeat: the first four have every kind of mixer. */
            if (tensor->n_packed == 0 || tensor->layer > 3)
                continue;
            check_packed(layout, t, sizes[i]);
            n_checked++;
        }
    }
    g_assert_cmpuint(n_checked, >, 0);
}

/* ---- blocks ---- */

/*
 * GPT-OSS in its own numbers: 2880 columns of a way down are 90 blocks of 32; eight ranks take 12
 * blocks each and the last one 6. Gate and up take turns, so that a block is 64 of their rows.
 */
static void test_blocks(void) {
    g_autoptr(RefitModel) model = load("gpt-oss-120b", REFIT_FORM_NATIVE);
    g_autoptr(RefitLayout) layout = put(model, "vllm, gpus: 8, tp: 8");

    assert_held(layout, "model.layers.0.mlp.experts.down_proj_blocks",
                "0 [0:128, 0:2880, 0:12, 0:16]; 1 [0:128, 0:2880, 12:24, 0:16]; "
                "2 [0:128, 0:2880, 24:36, 0:16]; 3 [0:128, 0:2880, 36:48, 0:16]; "
                "4 [0:128, 0:2880, 48:60, 0:16]; 5 [0:128, 0:2880, 60:72, 0:16]; "
                "6 [0:128, 0:2880, 72:84, 0:16]; 7 [0:128, 0:2880, 84:90, 0:16]");
    assert_held(layout, "model.layers.0.mlp.experts.gate_up_proj_bias",
                "0 [0:128, 0:768]; 1 [0:128, 768:1536]; 2 [0:128, 1536:2304]; "
                "3 [0:128, 2304:3072]; 4 [0:128, 3072:3840]; 5 [0:128, 3840:4608]; "
                "6 [0:128, 4608:5376]; 7 [0:128, 5376:5760]");
    const RefitTensor *up =
        refit_model_tensor(model, find(layout, "model.layers.3.mlp.experts.gate_up_proj_blocks"));
    g_assert_cmpuint(up->shape[1], ==, 5760);
    g_autoptr(RefitHolding) holding =
        holding_of(layout, find(layout, "model.layers.3.mlp.experts.gate_up_proj_blocks"));
    g_assert_cmpuint(holding->n_pieces, ==, 8);
    g_assert_cmpuint(holding->pieces[7].region.dims[1]->items[0].lo, ==, 5376);
    /* Where blocks come out even, so do the cuts. */
    g_autoptr(RefitLayout) even = put(model, "vllm, gpus: 2, tp: 2");
    /* Ranks add up what they compute: only the first adds the bias. */
    assert_held(even, "model.layers.0.mlp.experts.down_proj_bias", "0 [0:128, 0:2880]");
    assert_held(even, "model.layers.0.mlp.experts.gate_up_proj_bias",
                "0 [0:128, 0:2880]; 1 [0:128, 2880:5760]");
    g_autoptr(RefitLayout) groups = put(model, "sglang, gpus: 8, tp: 4, ep: 2");
    assert_held(groups, "model.layers.0.mlp.experts.down_proj_bias",
                "0,4 [0:64, 0:2880]; 2,6 [64:128, 0:2880]");
}

int main(int argc, char **argv) {
    static const char *const packed[] = {"kimi-k3", "nemotron-3-ultra-550b-a55b",
                                         "qwen3.5-397b-a17b", "qwen3.8-2.4t-a95b"};
    g_autoptr(GError) error = NULL;
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);

    g_test_init(&argc, &argv, NULL);
    g_autoptr(GDir) folder = g_dir_open(MODELS, 0, &error);
    g_assert_no_error(error);
    for (const char *file = g_dir_read_name(folder); file != NULL; file = g_dir_read_name(folder)) {
        if (!g_str_has_suffix(file, ".yaml"))
            continue;
        g_ptr_array_add(names, g_strndup(file, strlen(file) - strlen(".yaml")));
        g_autofree char *path = g_strdup_printf("/layout-engines/hold-all-of/%s",
                                                (char *)g_ptr_array_index(names, names->len - 1));
        g_test_add_data_func(path, g_ptr_array_index(names, names->len - 1), test_complete);
    }
    g_assert_cmpuint(names->len, >=, 18);
    for (guint i = 0; i < G_N_ELEMENTS(known); i++) {
        g_autofree char *path =
            g_strdup_printf("/layout-engines/known-bytes/%s-%u", known[i].model, i);
        g_test_add_data_func(path, &known[i], test_bytes);
    }
    g_test_add_func("/layout-engines/replicas-have-the-published-bytes", test_replicas);
    for (guint i = 0; i < G_N_ELEMENTS(packed); i++) {
        g_autofree char *path = g_strdup_printf("/layout-engines/packed-rows-of/%s", packed[i]);
        g_test_add_data_func(path, packed[i], test_packed);
    }
    g_test_add_func("/layout-engines/mxfp4-experts-are-cut-between-blocks", test_blocks);
    return g_test_run();
}
