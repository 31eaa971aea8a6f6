/*
 * Explicit layouts: rules that name tensors, meshes and placements.
 *
 * Covers: first match, globs, positions into the side's ranks; absent tensors; the order of two
 * cuts of one dim; chunk, balanced and stated sizes with empty shards; strides, lists, segments and
 * padding; stated shapes; several parts; equal shardings shared; and the code and message of each
 * refusal. Fused parameters are in test-layout-fused.c.
 */

#include "test-layout.h"

static void test_explicit_rules(void) {
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 4, absent: [s, nothing], rules: ["
                   "{tensors: w, mesh: [2, 2], place: [\"shard(1)\", replicate]}, "
                   "{tensors: [x*, \"?\"], ranks: [3, 1], place: [\"shard(0)\"]}]}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "explicit, 2 rules");
    assert_held(layout, "w", "4,5 [0:8, 0:2]; 6,7 [0:8, 2:4]");
    assert_held(layout, "b", "7 [0:3]; 5 [3:6]");
}

static void test_explicit_absent(void) {
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 1, absent: [\"[bs]\", b, s], "
                   "rules: [{tensors: w, place: [replicate]}]}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "explicit, 1 rule");
    g_assert_nonnull(sharding_of(layout, "w"));
    g_assert_null(sharding_of(layout, "b"));
    g_assert_null(sharding_of(layout, "s"));
}

static void test_explicit_order(void) {
    /* Axis 0 first: 0:4 and 4:8, each halved. Axis 1 first: the halves belong to axis 1. */
    g_autoptr(RefitLayout) outer =
        make(LIST, "{framework: explicit, gpus: 4, absent: [b, s], rules: [{tensors: w, mesh: [2, "
                   "2], place: [{shard: 0, order: 0}, {shard: 0, order: 1}]}]}");
    assert_held(outer, "w", "4 [0:2, 0:4]; 5 [2:4, 0:4]; 6 [4:6, 0:4]; 7 [6:8, 0:4]");
    g_autoptr(RefitLayout) inner =
        make(LIST, "{framework: explicit, gpus: 4, absent: [b, s], rules: [{tensors: w, mesh: [2, "
                   "2], place: [{shard: 0, order: 7}, {shard: 0, order: 2}]}]}");
    assert_held(inner, "w", "4 [0:2, 0:4]; 6 [2:4, 0:4]; 5 [4:6, 0:4]; 7 [6:8, 0:4]");
}

static void test_explicit_splits(void) {
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 5, absent: [s], rules: ["
                   "{tensors: b, ranks: [0-3], place: [{shard: 0, split: chunk}]}, "
                   "{tensors: w, place: [{shard: 0, split: balanced}]}]}");
    assert_held(layout, "b", "4 [0:2]; 5 [2:4]; 6 [4:6]");
    assert_held(layout, "w",
                "4 [0:2, 0:4]; 5 [2:4, 0:4]; 6 [4:6, 0:4]; 7 [6:7, 0:4]; 8 [7:8, "
                "0:4]");
    g_autoptr(RefitLayout) sizes =
        make(LIST, "{framework: explicit, gpus: 4, absent: [s, b], rules: [{tensors: w, mesh: [2, "
                   "2], place: [{shard: 0, split: sizes, sizes: [3, 5]}, {shard: 1, sizes: [4, "
                   "0]}]}]}");
    assert_held(sizes, "w", "4 [0:3, 0:4]; 6 [3:8, 0:4]");
}

static void test_explicit_strided(void) {
    /* Halves 0-3 and 4-7 of w, of each a quarter. */
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 4, absent: [s, b], rules: ["
                   "{tensors: w, place: [{shard: 0, split: strided, chunks: 2}]}]}");
    assert_held(layout, "w",
                "4 [0:1+4:5, 0:4]; 5 [1:2+5:6, 0:4]; 6 [2:3+6:7, 0:4]; 7 [3:4+7:8, 0:4]");
    g_autoptr(RefitLayout) implied =
        make(LIST, "{framework: explicit, gpus: 4, absent: [s, b], rules: ["
                   "{tensors: w, place: [{shard: 0, chunks: 2}]}]}");
    g_assert_true(refit_sharding_equal(sharding_of(layout, "w"), sharding_of(implied, "w")));
}

static void test_explicit_lists(void) {
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 4, absent: [s, b], rules: ["
                   "{tensors: w, mesh: [2, 2], place: [replicate, "
                   "{shard: 0, lists: [[6, 0-2], [3-5, 7, 0]]}]}]}");
    g_autofree char *text = refit_sharding_to_string(sharding_of(layout, "w"));

    assert_held(layout, "w", "5,7 [0:1+3:6+7:8, 0:4]; 4,6 [0:3+6:7, 0:4]");
    g_assert_cmpstr(text, ==,
                    "mesh [2, 2] ranks 4-7: replicate, "
                    "shard(0, lists [0:3@1+6:7@0] [0:1@4+3:6@0+7:8@3])");
}

static void test_explicit_segments(void) {
    /* Four rows cut in four, two in two, two for all. */
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 4, absent: [s, b], rules: ["
                   "{tensors: w, place: [{shard: 0, segments: [{extent: 4}, {extent: 2, ways: 2}, "
                   "{extent: 2, ways: 1}]}]}]}");
    assert_held(layout, "w",
                "4 [0:1+4:5+6:8, 0:4]; 5 [1:2+4:5+6:8, 0:4]; 6 [2:3+5:8, 0:4]; 7 [3:4+5:8, 0:4]");
}

static void test_explicit_padded(void) {
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 4, absent: [s, w], rules: ["
                   "{tensors: b, padded: {0: 16}, place: [\"shard(0)\"], shape: [6], "
                   "local: {0: [4], 1: [4], 3: [4]}}]}");
    assert_held(layout, "b", "4 [0:4]; 5 [4:6]");
    g_assert_cmpuint(refit_sharding_padded(sharding_of(layout, "b"), 0), ==, 16);
}

/* A rank in two parts states the shape of one of them; a tensor without dims states none. */
static void test_explicit_stated_shapes(void) {
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 4, rules: ["
                   "{tensors: w, shape: [8, 4], local: {0: [2, 4], 1: [8, 4]}, parts: ["
                   "{place: [\"shard(0)\"]}, {ranks: [1], place: [replicate]}]}, "
                   "{tensors: b, place: [\"shard(0)\"], local: {2: [2], 3: [0]}}, "
                   "{tensors: s, place: [replicate], shape: [], local: {0: []}}]}");
    g_assert_nonnull(sharding_of(layout, "w"));
}

static void test_explicit_parts(void) {
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 8, absent: [w, s], rules: [{tensors: b, parts: ["
                   "{ranks: [0-1], place: [\"shard(0)\"]}, "
                   "{ranks: [6-7], place: [\"shard(0)\"]}]}]}");

    g_assert_cmpuint(refit_sharding_n_parts(sharding_of(layout, "b")), ==, 2);
    assert_held(layout, "b", "4,10 [0:3]; 5,11 [3:6]");
}

static void test_explicit_shared(void) {
    g_autoptr(RefitLayout) layout =
        make(LIST, "{framework: explicit, gpus: 2, rules: ["
                   "{tensors: w, place: [replicate]}, {tensors: b, mesh: [2], place: [replicate]}, "
                   "{tensors: s, ranks: [1, 0], place: [replicate]}]}");

    g_assert_true(sharding_of(layout, "w") == sharding_of(layout, "b"));
    g_assert_true(sharding_of(layout, "w") != sharding_of(layout, "s"));
    assert_held(layout, "s", "4,5 []");
}

static void test_explicit_refusals(void) {
    static const char *const cases[][2] = {
        {"", "c.yaml:1:8: train: *"},
        {"rules: w", "c.yaml:1:46: train.rules: *"},
        {"rules: []",
         "c.yaml:1:46: train.rules: no rule matches tensor w; add one or list it under absent"},
        {"rules: [w]", "c.yaml:1:47: train.rules.0: *"},
        {"rules: [{place: [replicate]}]", "c.yaml:1:47: train.rules.0: *"},
        {"rules: [{tensors: {}, place: [replicate]}]", "c.yaml:1:57: train.rules.0.tensors: *"},
        {"rules: [{tensors: [[]], place: [replicate]}]", "c.yaml:1:58: train.rules.0.tensors.0: *"},
        {"rules: [{tensors: \"*\"}]", "c.yaml:1:47: train.rules.0: *"},
        {"rules: [{tensors: \"*\", place: replicate}]", "c.yaml:1:69: train.rules.0.place: *"},
        {"rules: [{tensors: \"*\", mesh: 4, place: [replicate]}]",
         "c.yaml:1:68: train.rules.0.mesh: *"},
        {"rules: [{tensors: \"*\", mesh: [0], place: [replicate]}]",
         "c.yaml:1:69: train.rules.0.mesh.0: *"},
        {"rules: [{tensors: \"*\", ranks: [4], place: [replicate]}]",
         "c.yaml:1:70: train.rules.0.ranks.0: position 4 does not exist: this side has 4; use 0 to "
         "3"},
        {"rules: [{tensors: \"*\", place: [shard]}]",
         "c.yaml:1:70: train.rules.0.place.0: \"shard\" is not a placement; write replicate, "
         "shard(DIM) with a dim from 0 to 7, or {shard: DIM, split: ..., order: N}"},
        {"rules: [{tensors: \"*\", place: [\"shard(8)\"]}]",
         "c.yaml:1:70: train.rules.0.place.0: \"shard(8)\" is not a placement; write replicate, "
         "shard(DIM) with a dim from 0 to 7, or {shard: DIM, split: ..., order: N}"},
        {"rules: [{tensors: \"*\", place: [[]]}]", "c.yaml:1:70: train.rules.0.place.0: *"},
        {"rules: [{tensors: \"*\", place: [{split: chunk}]}]",
         "c.yaml:1:70: train.rules.0.place.0: *"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, split: even}]}]",
         "c.yaml:1:88: train.rules.0.place.0.split: \"even\" *"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, split: sizes}]}]",
         "c.yaml:1:70: train.rules.0.place.0: split: sizes needs the key sizes"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, split: chunk, sizes: [2, 2, 2, 2]}]}]",
         "c.yaml:1:102: train.rules.0.place.0.sizes: sizes belongs to split: sizes, but this is "
         "split: chunk; keep one"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, sizes: 8}]}]",
         "c.yaml:1:88: train.rules.0.place.0.sizes: *"},
        {"rules: [{tensors: \"*\", mesh: [2, 2], place: [\"shard(0)\", \"shard(0)\"]}]",
         "c.yaml:1:83: train.rules.0.place: dim 0 is cut by mesh axes 0 and 1; say which cuts "
         "first with different order: values on both"},
        {"rules: [{tensors: \"*\", mesh: [2, 2], place: [{shard: 0, order: 1}, {shard: 0, order: "
         "1}]}]",
         "c.yaml:1:83: train.rules.0.place: dim 0 is cut by mesh axes 0 and 1; say which cuts "
         "first with different order: values on both"},
        {"rules: [{tensors: \"[wbs]\", place: [replicate]}]",
         "c.yaml:1:46: train.rules: no rule matches tensor w; add one or list it under absent"},
        {"rules: [{tensors: w, place: [replicate]}]",
         "c.yaml:1:46: train.rules: no rule matches tensor b; add one or list it under absent"},
        {"rules: [{tensors: \"*\", place: [replicate]}, {tensors: w, place: [replicate]}]",
         "c.yaml:1:83: train.rules.1: no tensor of model m is left for this rule; correct its "
         "names or put it before the rule that takes them"},
        {"rules: [{tensors: \"*\", parts: []}]",
         "c.yaml:1:69: train.rules.0.parts: parts is empty; state a mesh, or list the tensors "
         "under absent"},
        {"rules: [{tensors: \"*\", parts: {}}]", "c.yaml:1:69: train.rules.0.parts: *"},
        {"rules: [{tensors: \"*\", parts: [x]}]", "c.yaml:1:70: train.rules.0.parts.0: *"},
        {"rules: [{tensors: \"*\", place: [replicate], mush: [4]}]",
         "c.yaml:1:82: train.rules.0.mush: *"},
        {"rules: [{tensors: w, place: [{shard: 0, split: strided}]}]",
         "c.yaml:1:68: train.rules.0.place.0: split: strided needs the key chunks"},
        {"rules: [{tensors: w, place: [{shard: 0, chunks: 2, sizes: [1, 2, 3, 2]}]}]",
         "c.yaml:1:87: train.rules.0.place.0.chunks: chunks belongs to split: strided, but this is "
         "split: sizes; keep one"},
        {"rules: [{tensors: w, place: [{shard: 0, chunks: 0}]}]",
         "c.yaml:1:87: train.rules.0.place.0.chunks: *"},
        {"rules: [{tensors: w, place: [{shard: 0, chunks: 65537}]}]",
         "c.yaml:1:87: train.rules.0.place.0.chunks: *"},
        {"rules: [{tensors: w, place: [{shard: 0, lists: 4}]}]",
         "c.yaml:1:86: train.rules.0.place.0.lists: *"},
        {"rules: [{tensors: w, place: [{shard: 0, lists: [0, 1, 2, 3]}]}]",
         "c.yaml:1:87: train.rules.0.place.0.lists.0: *"},
        {"rules: [{tensors: w, place: [{shard: 0, lists: [[3-1], [], [], []]}]}]",
         "c.yaml:1:88: train.rules.0.place.0.lists.0.0: \"3-1\" is not a place; write a number or "
         "first-last, as in 0-3"},
        {"rules: [{tensors: w, place: [{shard: 0, lists: [[-1], [], [], []]}]}]",
         "c.yaml:1:88: train.rules.0.place.0.lists.0.0: \"-1\" is not a place; *"},
        {"rules: [{tensors: w, place: [{shard: 0, lists: [[1-2-3], [], [], []]}]}]",
         "c.yaml:1:88: train.rules.0.place.0.lists.0.0: \"1-2-3\" is not a place; *"},
        {"rules: [{tensors: w, place: [{shard: 0, lists: [[{}], [], [], []]}]}]",
         "c.yaml:1:88: train.rules.0.place.0.lists.0.0: *"},
        {"rules: [{tensors: w, place: [{shard: 0, lists: [[0-4, 3], [], [], []]}]}]",
         "c.yaml:1:87: train.rules.0.place.0.lists.0: *overlap*"},
        {"rules: [{tensors: w, place: [{shard: 0, lists: [[0-3], [4-8], [], []]}]}]",
         "c.yaml:1:47: train.rules.0: tensor w: place 8 of dim 0 is listed, but its extent is 8; "
         "list places below it"},
        {"rules: [{tensors: w, place: [{shard: 0, segments: []}]}]",
         "c.yaml:1:89: train.rules.0.place.0.segments: 0 segments over 4 ranks; state at least 1 "
         "and at most 262144"},
        {"rules: [{tensors: w, place: [{shard: 0, segments: 8}]}]",
         "c.yaml:1:89: train.rules.0.place.0.segments: *"},
        {"rules: [{tensors: w, place: [{shard: 0, segments: [8]}]}]",
         "c.yaml:1:90: train.rules.0.place.0.segments.0: *"},
        {"rules: [{tensors: w, place: [{shard: 0, segments: [{ways: 2}]}]}]",
         "c.yaml:1:90: train.rules.0.place.0.segments.0: *"},
        {"rules: [{tensors: w, place: [{shard: 0, segments: [{extent: 8, ways: 5}]}]}]",
         "c.yaml:1:108: train.rules.0.place.0.segments.0.ways: *"},
        {"rules: [{tensors: w, place: [replicate], padded: 9}]",
         "c.yaml:1:88: train.rules.0.padded: *"},
        {"rules: [{tensors: w, place: [replicate], padded: {8: 9}}]",
         "c.yaml:1:92: train.rules.0.padded.8: \"8\" is not a dim; write {DIM: EXTENT} with a dim "
         "from 0 to 7"},
        {"rules: [{tensors: w, place: [replicate], padded: {0: 0}}]",
         "c.yaml:1:92: train.rules.0.padded.0: *"},
        {"rules: [{tensors: w, place: [replicate], padded: {0: 7}}]",
         "c.yaml:1:47: train.rules.0: tensor w: dim 0 is padded to 7, but its extent is 8: *"},
        {"rules: [{tensors: w, place: [replicate], shape: 8}]",
         "c.yaml:1:87: train.rules.0.shape: *"},
        {"rules: [{tensors: w, place: [replicate], shape: [x]}]",
         "c.yaml:1:88: train.rules.0.shape.0: *"},
        {"rules: [{tensors: w, place: [replicate], shape: [1, 1, 1, 1, 1, 1, 1, 1, 1]}]",
         "c.yaml:1:87: train.rules.0.shape: 9 dims; the limit is 8"},
        {"rules: [{tensors: w, place: [replicate], local: [1]}]",
         "c.yaml:1:87: train.rules.0.local: *"},
        {"rules: [{tensors: w, place: [replicate], local: {4: [8, 4]}}]",
         "c.yaml:1:91: train.rules.0.local.4: \"4\" is not a position: this side has 4; use 0 to "
         "3"},
        {"rules: [{tensors: w, place: [replicate], local: {0: 8}}]",
         "c.yaml:1:91: train.rules.0.local.0: *"},
        {"absent: {}, rules: [{tensors: \"*\", place: [replicate]}]",
         "c.yaml:1:47: train.absent: *"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *side = g_strdup_printf("{framework: explicit, gpus: 4, %s}", cases[i][0]);
        assert_refused(LIST, side, cases[i][1]);
    }
}

static void test_explicit_codes(void) {
    static const struct {
        RefitError code;
        const char *keys, *message;
    } cases[] = {
        {REFIT_ERROR_PLACEMENT_COUNT, "rules: [{tensors: \"*\", place: [replicate, replicate]}]",
         "c.yaml:1:69: train.rules.0.place: 2 placements for a mesh of 1 axes; state one per axis"},
        {REFIT_ERROR_MESH_SIZE, "rules: [{tensors: \"*\", mesh: [3], place: [replicate]}]",
         "c.yaml:1:68: train.rules.0.mesh: the mesh does not have 4 ranks; state 1 to 8 axis sizes "
         "whose product is 4"},
        {REFIT_ERROR_MESH_SIZE, "rules: [{tensors: \"*\", mesh: [], place: [replicate]}]",
         "c.yaml:1:68: train.rules.0.mesh: the mesh does not have 4 ranks; state 1 to 8 axis sizes "
         "whose product is 4"},
        {REFIT_ERROR_MESH_SIZE, "rules: [{tensors: \"*\", mesh: [2], place: [replicate]}]",
         "c.yaml:1:68: train.rules.0.mesh: the mesh does not have 4 ranks; state 1 to 8 axis sizes "
         "whose product is 4"},
        {REFIT_ERROR_PARTITION_COUNT, "rules: [{tensors: \"*\", place: [{shard: 0, sizes: [8]}]}]",
         "c.yaml:1:88: train.rules.0.place.0.sizes: 1 sizes for a mesh axis of 4 ranks; state one "
         "size per rank"},
        {REFIT_ERROR_PARTITION_SUM,
         "rules: [{tensors: w, place: [{shard: 0, sizes: [1, 1, 1, 1]}]}]",
         "c.yaml:1:47: train.rules.0: tensor w: *"},
        {REFIT_ERROR_SCALAR_SHARD, "rules: [{tensors: \"*\", place: [\"shard(0)\"]}]",
         "c.yaml:1:47: train.rules.0: dim 0 is cut, but tensor s has 0 dims; give it a rule of its "
         "own"},
        {REFIT_ERROR_RANK_DUP, "rules: [{tensors: \"*\", ranks: [0, 2, 0-1], place: [replicate]}]",
         "c.yaml:1:76: train.rules.0.ranks.2: position 0 is listed twice; name each once"},
        {REFIT_ERROR_PARTITION_COUNT,
         "rules: [{tensors: \"*\", place: [{shard: 0, lists: [[0], [1]]}]}]",
         "c.yaml:1:88: train.rules.0.place.0.lists: 2 lists for a mesh axis of 4 ranks; state one "
         "list per rank"},
        {REFIT_ERROR_DIM_RANGE, "rules: [{tensors: b, place: [\"shard(1)\"]}], absent: [s, w]",
         "c.yaml:1:47: train.rules.0: dim 1 is cut, but tensor b has 1 dims; give it a rule of its "
         "own"},
        {REFIT_ERROR_PARTITION_SUM,
         "rules: [{tensors: w, place: [{shard: 0, segments: [{extent: 4}, {extent: 3}]}]}]",
         "c.yaml:1:47: train.rules.0: tensor w: segments of dim 0 sum to 7, but its extent is 8; "
         "state segments that sum to it"},
        {REFIT_ERROR_PARTITION_SUM,
         "rules: [{tensors: w, parts: [{place: [{shard: 0, segments: [{extent: 8}]}]}, {place: "
         "[{shard: 0, segments: [{extent: 6}]}]}]}]",
         "c.yaml:1:124: train.rules.0.parts.1.place: segments of dim 0 sum to 6 here and to 8 in a "
         "part before; state segments of one tensor"},
        {REFIT_ERROR_OVERFLOW,
         "rules: [{tensors: w, place: [{shard: 0, segments: [{extent: 9223372036854775807}, "
         "{extent: "
         "9223372036854775807}, {extent: 2}]}]}]",
         "*"},
        {REFIT_ERROR_SHAPE_MISMATCH, "rules: [{tensors: w, place: [replicate], shape: [8, 5]}]",
         "c.yaml:1:87: train.rules.0.shape: tensor w has shape [8, 4], but this side states [8, "
         "5]; "
         "give both sides the same model"},
        {REFIT_ERROR_SHAPE_MISMATCH, "rules: [{tensors: w, place: [replicate], shape: [8]}]",
         "c.yaml:1:87: train.rules.0.shape: tensor w has shape [8, 4], but this side states [8]; "
         "give both sides the same model"},
        {REFIT_ERROR_LOCAL_SHAPE,
         "rules: [{tensors: w, place: [\"shard(0)\"], local: {0: [2, 4], 3: [1, 4]}}]",
         "c.yaml:1:88: train.rules.0.local: tensor w: position 3 states local shape [1, 4], but "
         "the "
         "rule gives it [2, 4]; correct the placement or the global shape"},
        {REFIT_ERROR_LOCAL_SHAPE,
         "rules: [{tensors: w, ranks: [0-1], place: [\"shard(0)\"], local: {2: [0, 4]}}]",
         "c.yaml:1:102: train.rules.0.local: tensor w: position 2 states local shape [0, 4], but "
         "the rule gives it no part; correct ranks or leave the position out"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *side =
            g_strdup_printf("{framework: explicit, gpus: 4, %s}", cases[i].keys);
        assert_refused_as(LIST, side, cases[i].code, cases[i].message);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout/explicit-takes-the-first-matching-rule", test_explicit_rules);
    g_test_add_func("/layout/explicit-leaves-absent-tensors-out", test_explicit_absent);
    g_test_add_func("/layout/explicit-cuts-in-the-stated-order", test_explicit_order);
    g_test_add_func("/layout/explicit-splits-unevenly", test_explicit_splits);
    g_test_add_func("/layout/explicit-cuts-each-of-several-chunks", test_explicit_strided);
    g_test_add_func("/layout/explicit-takes-stated-places", test_explicit_lists);
    g_test_add_func("/layout/explicit-cuts-segments-side-by-side", test_explicit_segments);
    g_test_add_func("/layout/explicit-cuts-the-padded-extent", test_explicit_padded);
    g_test_add_func("/layout/explicit-accepts-true-statements-of-shapes",
                    test_explicit_stated_shapes);
    g_test_add_func("/layout/explicit-holds-parts-independently", test_explicit_parts);
    g_test_add_func("/layout/explicit-shares-equal-shardings", test_explicit_shared);
    g_test_add_func("/layout/explicit-refuses-what-it-cannot-mean", test_explicit_refusals);
    g_test_add_func("/layout/explicit-has-a-code-for-each-contradiction", test_explicit_codes);
    return g_test_run();
}
