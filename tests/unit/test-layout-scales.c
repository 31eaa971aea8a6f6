/*
 * Where scales lie: on block borders they share the sharding of their tensor; cuts inside blocks
 * give both sides the scale; replicas, copies, empty shards, scales of rows and of whole tensors;
 * order of local places, also against a walk over single elements; rules that state scales
 * themselves; shipped models under the generators.
 */

#include "lib/refit-disk.h"
#include "model/layout/refit-layout-private.h"
#include "test-layout.h"

/* Blocks of 2 x 4. The side's ranks are 4, 5, ... */
#define PAIR                                                                                       \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: w, shape: [8, 8], dtype: f8_e4m3, granule: [2, 4]}\n"                              \
    "  - {name: s, shape: [4, 2], dtype: f32, scale: {of: w, block: [2, 4]}}\n"

static void test_shares_the_sharding(void) {
    static const char *const sides[] = {
        "{framework: explicit, gpus: 4, rules: [{tensors: w, place: [shard(0)]}]}",
        "{framework: explicit, gpus: 2, rules: [{tensors: w, place: [shard(1)]}]}",
        "{framework: explicit, gpus: 4, rules: [{tensors: w, mesh: [2, 2], place: [replicate, "
        "shard(1)]}]}",
        "{framework: explicit, gpus: 4, rules: [{tensors: w, mesh: [2, 2], place: [shard(0), "
        "shard(1)]}]}",
        "{framework: explicit, gpus: 3, rules: [{tensors: w, place: [replicate]}]}",
    };
    for (guint i = 0; i < G_N_ELEMENTS(sides); i++) {
        g_autoptr(RefitLayout) layout = make(PAIR, sides[i]);
        g_test_message("%s", sides[i]);
        g_assert_nonnull(sharding_of(layout, "w"));
        g_assert_true(sharding_of(layout, "s") == sharding_of(layout, "w"));
    }
    g_autoptr(RefitLayout) layout = make(PAIR, sides[3]);
    assert_held(layout, "s", "4 [0:2, 0:1]; 5 [0:2, 1:2]; 6 [2:4, 0:1]; 7 [2:4, 1:2]");
}

/* 3 blocks over 258 columns in two halves of 129: both touch the block in the middle. */
static void test_cut_inside_a_block(void) {
    const char *model =
        "family: list\ntensors:\n"
        "  - {name: w, shape: [4, 258], dtype: f8_e4m3}\n"
        "  - {name: s, shape: [1, 3], dtype: f32, scale: {of: w, block: [128, 128]}}\n";
    g_autoptr(RefitLayout) layout =
        make(model, "{framework: explicit, gpus: 4, rules: [{tensors: w, mesh: [2, 2], place: "
                    "[replicate, shard(1)]}]}");
    assert_held(layout, "s", "4,6 [0:1, 0:2]; 5,7 [0:1, 1:3]");
    g_autoptr(RefitLayout) single =
        make(model, "{framework: explicit, gpus: 2, rules: [{tensors: w, mesh: [1, 2], place: "
                    "[replicate, shard(1)]}]}");
    assert_held(single, "s", "4 [0:1, 0:2]; 5 [0:1, 1:3]");
}

/* Sizes 2 and 6 are no sizes of 4 blocks, but fall on their borders. */
static void test_stated_sizes(void) {
    g_autoptr(RefitLayout) layout =
        make(PAIR, "{framework: explicit, gpus: 2, rules: [{tensors: w, place: [{shard: 0, sizes: "
                   "[2, 6]}]}]}");
    assert_held(layout, "s", "4 [0:1, 0:2]; 5 [1:4, 0:2]");
}

/* Every rank needs the scales of all rows when columns are cut. */
static void test_scale_per_row(void) {
    const char *model = "family: list\ntensors:\n"
                        "  - {name: w, shape: [4, 6], dtype: f8_e4m3}\n"
                        "  - {name: s, shape: [4, 1], dtype: f32, scale: {of: w, block: [1, 6]}}\n";
    g_autoptr(RefitLayout) columns =
        make(model, "{framework: explicit, gpus: 3, rules: [{tensors: w, place: [shard(1)]}]}");
    assert_held(columns, "s", "4,5,6 [0:4, 0:1]");
    g_autoptr(RefitLayout) rows =
        make(model, "{framework: explicit, gpus: 2, rules: [{tensors: w, place: [shard(0)]}]}");
    assert_held(rows, "s", "4 [0:2, 0:1]; 5 [2:4, 0:1]");
    g_assert_true(sharding_of(rows, "s") == sharding_of(rows, "w"));
}

/* Ranks without elements have no scale either: 3 rows over 4 ranks. */
static void test_one_scale_for_all(void) {
    g_autoptr(RefitLayout) layout =
        make("family: list\ntensors:\n"
             "  - {name: w, shape: [3, 2], dtype: f8_e4m3}\n"
             "  - {name: s, shape: [], dtype: f32, scale: {of: w, block: []}}\n",
             "{framework: explicit, gpus: 4, rules: [{tensors: w, place: [shard(0)]}]}");
    assert_held(layout, "s", "4,5,6 []");
}

/* 5 rows in blocks of 2 over 4 ranks: 2, 2, 1 and none. */
static void test_empty_shards(void) {
    g_autoptr(RefitLayout) layout =
        make("family: list\ntensors:\n"
             "  - {name: w, shape: [5], dtype: f8_e4m3}\n"
             "  - {name: s, shape: [3], dtype: f32, scale: {of: w, block: [2]}}\n",
             "{framework: explicit, gpus: 4, rules: [{tensors: w, place: [shard(0)]}]}");
    assert_held(layout, "s", "4 [0:1]; 5 [1:2]; 6 [2:3]");
    g_assert_true(sharding_of(layout, "s") == sharding_of(layout, "w"));
}

/* Two independent copies, one of them cut inside a block. */
static void test_copies(void) {
    g_autoptr(RefitLayout) layout = make(
        PAIR, "{framework: explicit, gpus: 5, rules: [{tensors: w, parts: [{ranks: [0-1], place: "
              "[shard(0)]}, {ranks: [2-4], place: [shard(0)]}]}]}");
    /* Chunks of 8 over 3: rows 0-2, 3-5, 6-7. */
    assert_held(layout, "s", "4,6 [0:2, 0:2]; 7 [1:3, 0:2]; 5 [2:4, 0:2]; 8 [3:4, 0:2]");
}

/* ---- rules that take scales ---- */

static void test_rules_of_scales(void) {
    const char *stated = "{framework: explicit, gpus: 2, rules: [{tensors: w, place: [shard(0)]}, "
                         "{tensors: s, place: [replicate]}]}";
    g_autoptr(RefitLayout) layout = make(PAIR, stated);
    assert_held(layout, "s", "4,5 [0:4, 0:2]");
    /* A rule that takes both is about the tensor: cut at 3 of 8, not at 2 of 4. */
    g_autoptr(RefitLayout) both = make(PAIR, "{framework: explicit, gpus: 3, rules: [{tensors: "
                                             "\"*\", place: [shard(0)]}]}");
    assert_held(both, "s", "4 [0:2, 0:2]; 5 [1:3, 0:2]; 6 [3:4, 0:2]");
    g_autoptr(RefitLayout) absent =
        make(PAIR "  - {name: v, shape: [2]}\n",
             "{framework: explicit, gpus: 2, absent: [w], rules: [{tensors: v, place: "
             "[replicate]}]}");
    g_assert_null(sharding_of(absent, "w"));
    g_assert_null(sharding_of(absent, "s"));
}

/* ---- order of local places ---- */

/* What place_scales() gives one rank that holds `held` of a vector of `extent`, blocks of `size`.
 */
static RefitRegion scale_of(RefitIntervalList *held, guint64 extent, guint32 size) {
    const RefitTensor tensors[] = {
        {.name = (char *)"w", .n_dims = 1, .shape = {extent}, .layer = -1, .expert = -1},
        {.name = (char *)"s",
         .n_dims = 1,
         .shape = {(extent - 1) / size + 1},
         .layer = -1,
         .expert = -1,
         .scale = TRUE,
         .block = {size}},
    };
    const guint rank = 0;
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) model = refit_model_new("m", tensors, 2, &error);
    g_assert_no_error(error);
    g_autoptr(RefitLayout) layout = refit_layout_new("train", "explicit", model, &rank, 1);
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    const RefitRegion region = {.n_dims = 1, .dims = {held}};
    g_assert_true(refit_sharding_add_region(sharding, rank, &region, &error));
    refit_layout_assign(layout, 0, refit_layout_share(layout, g_steal_pointer(&sharding)));
    g_assert_true(refit_layout_place_scales(layout, &error));
    g_assert_no_error(error);
    RefitRegion scale = {.n_dims = 0};
    guint64 buffer[REFIT_MAX_DIMS];
    g_assert_true(refit_sharding_local(refit_layout_sharding(layout, 1), 0, rank, 1,
                                       tensors[1].shape, &scale, buffer, &error));
    g_assert_no_error(error);
    return scale;
}

/* The rank stores rows 8-11, then 0-3; blocks of 4: block 2, then block 0. */
static void test_order_is_that_of_the_tensor(void) {
    const RefitInterval items[] = {{0, 4, 4}, {8, 12, 0}};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitIntervalList) held = refit_interval_list_new(items, 2, &error);
    g_assert_no_error(error);
    g_auto(RefitRegion) scale = scale_of(held, 16, 4);
    const RefitIntervalList *list = scale.dims[0];
    g_assert_cmpuint(list->n, ==, 2);
    g_assert_cmpuint(list->items[0].lo, ==, 0);
    g_assert_cmpuint(list->items[0].at, ==, 1);
    g_assert_cmpuint(list->items[1].lo, ==, 2);
    g_assert_cmpuint(list->items[1].at, ==, 0);
}

/* Blocks in the order in which a walk over the local buffer first meets them. */
static void expect_walk(const guint8 *is_held, const guint *order, guint n_runs,
                        const RefitInterval *runs, guint64 extent, guint32 size,
                        const RefitRegion *scale) {
    guint64 n_blocks = (extent - 1) / size + 1, next = 0;
    g_autofree guint64 *place_of = g_new(guint64, n_blocks); /* 1 + place, 0: not held */
    memset(place_of, 0, n_blocks * sizeof *place_of);
    for (guint r = 0; r < n_runs; r++) {
        const RefitInterval *run = &runs[order[r]];
        for (guint64 i = run->lo; i < run->hi; i++) {
            g_assert_cmpuint(is_held[i], ==, 1);
            if (place_of[i / size] == 0) {
                place_of[i / size] = ++next;
            }
        }
    }
    guint64 covered = 0;
    for (guint i = 0; i < scale->dims[0]->n; i++) {
        const RefitInterval *item = &scale->dims[0]->items[i];
        for (guint64 block = item->lo; block < item->hi; block++, covered++) {
            g_assert_cmpuint(place_of[block], ==, 1 + item->at + block - item->lo);
        }
    }
    g_assert_cmpuint(covered, ==, next);
}

#define MAX_EXTENT 40

static void test_random_runs(void) {
    g_autoptr(GRand) random = g_rand_new_with_seed(7);
    for (guint round = 0; round < 2000; round++) {
        guint64 extent = (guint64)g_rand_int_range(random, 1, MAX_EXTENT + 1);
        guint32 size = (guint32)g_rand_int_range(random, 1, 8);
        guint8 is_held[MAX_EXTENT] = {0};
        RefitInterval runs[MAX_EXTENT];
        guint order[MAX_EXTENT], n_runs = 0;
        for (guint64 at = 0; at < extent;) {
            guint64 length = (guint64)g_rand_int_range(random, 1, 6);
            guint64 hi = MIN(extent, at + length);
            if (g_rand_boolean(random)) {
                memset(is_held + at, 1, hi - at);
                runs[n_runs] = (RefitInterval){at, hi, 0};
                order[n_runs] = n_runs;
                n_runs++;
            }
            at = hi;
        }
        for (guint i = n_runs; i > 1; i--) {
            guint j = (guint)g_rand_int_range(random, 0, (gint32)i), kept = order[i - 1];
            order[i - 1] = order[j];
            order[j] = kept;
        }
        guint64 place = 0;
        for (guint i = 0; i < n_runs; i++) {
            runs[order[i]].at = place;
            place += runs[order[i]].hi - runs[order[i]].lo;
        }
        if (n_runs == 0) {
            continue;
        }
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitIntervalList) held = refit_interval_list_new(runs, n_runs, &error);
        g_assert_no_error(error);
        g_auto(RefitRegion) scale = scale_of(held, extent, size);
        expect_walk(is_held, order, n_runs, runs, extent, size, &scale);
    }
}

/* ---- shipped models ---- */

static RefitLayout *shipped(const char *name, const char *side) {
    g_autofree char *path =
        g_strdup_printf("%s/layouts/models/%s.yaml", REFIT_SOURCE_DATA_DIR, name);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_load(&refit_disk, path, &error);
    g_assert_no_error(error);
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .form = REFIT_FORM_NATIVE};
    g_autoptr(RefitModel) model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    g_autoptr(RefitDoc) text = refit_doc_parse(side, strlen(side), "c.yaml", &error);
    g_assert_no_error(error);
    RefitLayout *layout =
        refit_layout_parse(refit_doc_root(text), "train", model, 0, N_AVAILABLE, &error);
    g_assert_no_error(error);
    return layout;
}

/* All scales are held where their tensors are, and under the very shardings of these. */
static void test_shipped(void) {
    static const struct {
        const char *name, *side;
    } rows[] = {
        {"deepseek-v3", "{framework: megatron, gpus: 256, tp: 1, pp: 16, ep: 16, "
                        "first_stage_layers: 3, last_stage_layers: 2}"},
        {"deepseek-v3", "{framework: vllm, gpus: 256, tp: 16, engines: 16}"},
        {"kimi-k3", "{framework: vllm, gpus: 64, tp: 16, dp: 4, ep: 64}"},
        {"gpt-oss-120b", "{framework: vllm, gpus: 2, tp: 2}"},
    };
    for (guint r = 0; r < G_N_ELEMENTS(rows); r++) {
        g_test_message("%s %s", rows[r].name, rows[r].side);
        g_autoptr(RefitLayout) layout = shipped(rows[r].name, rows[r].side);
        const RefitModel *model = refit_layout_model(layout);
        guint n_scales = 0;
        for (guint i = 0; i < refit_model_n_tensors(model); i++) {
            const RefitTensor *tensor = refit_model_tensor(model, i);
            if (!tensor->scale)
                continue;
            n_scales++;
            g_assert_nonnull(refit_layout_sharding(layout, i));
            g_assert_true(refit_layout_sharding(layout, i) ==
                          refit_layout_sharding(layout, tensor->scale_of));
        }
        g_assert_cmpuint(n_scales, >, 0);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout-scales/cuts-on-borders-share-the-sharding", test_shares_the_sharding);
    g_test_add_func("/layout-scales/a-cut-block-is-needed-twice", test_cut_inside_a_block);
    g_test_add_func("/layout-scales/stated-sizes-are-followed", test_stated_sizes);
    g_test_add_func("/layout-scales/rows-have-their-scale-under-cut-columns", test_scale_per_row);
    g_test_add_func("/layout-scales/one-scale-goes-to-all-holders", test_one_scale_for_all);
    g_test_add_func("/layout-scales/empty-shards-have-none", test_empty_shards);
    g_test_add_func("/layout-scales/copies-have-their-own", test_copies);
    g_test_add_func("/layout-scales/rules-may-state-scales", test_rules_of_scales);
    g_test_add_func("/layout-scales/order-is-that-of-the-tensor", test_order_is_that_of_the_tensor);
    g_test_add_func("/layout-scales/random-runs-agree-with-a-walk", test_random_runs);
    g_test_add_func("/layout-scales/shipped-models-add-no-sharding", test_shipped);
    return g_test_run();
}
