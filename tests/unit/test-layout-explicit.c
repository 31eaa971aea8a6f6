/*
 * Explicit layouts: rules that name tensors, meshes and placements.
 *
 * Covers: first match, globs, positions into the side's ranks; absent tensors; the order of two
 * cuts of one dim; chunk, balanced and stated sizes with empty shards; several parts; equal
 * shardings shared; and the message of each refusal.
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
        {"rules: [{tensors: \"*\", place: [replicate, replicate]}]",
         "c.yaml:1:69: train.rules.0.place: 2 placements for a mesh of 1 axes; state one per axis"},
        {"rules: [{tensors: \"*\", mesh: [3], place: [replicate]}]",
         "c.yaml:1:68: train.rules.0.mesh: the mesh does not have 4 ranks; state 1 to 8 axis sizes "
         "whose product is 4"},
        {"rules: [{tensors: \"*\", mesh: [], place: [replicate]}]",
         "c.yaml:1:68: train.rules.0.mesh: the mesh does not have 4 ranks; state 1 to 8 axis sizes "
         "whose product is 4"},
        {"rules: [{tensors: \"*\", mesh: [2], place: [replicate]}]",
         "c.yaml:1:68: train.rules.0.mesh: the mesh does not have 4 ranks; state 1 to 8 axis sizes "
         "whose product is 4"},
        {"rules: [{tensors: \"*\", mesh: 4, place: [replicate]}]",
         "c.yaml:1:68: train.rules.0.mesh: *"},
        {"rules: [{tensors: \"*\", mesh: [0], place: [replicate]}]",
         "c.yaml:1:69: train.rules.0.mesh.0: *"},
        {"rules: [{tensors: \"*\", ranks: [4], place: [replicate]}]",
         "c.yaml:1:70: train.rules.0.ranks.0: position 4 does not exist: this side has 4; use 0 to "
         "3"},
        {"rules: [{tensors: \"*\", place: [shard]}]",
         "c.yaml:1:70: train.rules.0.place.0: \"shard\" is not a placement; write replicate, "
         "shard(DIM) with a dim from 0 to 7, or {shard: DIM, split: ..., sizes: [...], order: N}"},
        {"rules: [{tensors: \"*\", place: [\"shard(8)\"]}]",
         "c.yaml:1:70: train.rules.0.place.0: \"shard(8)\" is not a placement; write replicate, "
         "shard(DIM) with a dim from 0 to 7, or {shard: DIM, split: ..., sizes: [...], order: N}"},
        {"rules: [{tensors: \"*\", place: [[]]}]", "c.yaml:1:70: train.rules.0.place.0: *"},
        {"rules: [{tensors: \"*\", place: [{split: chunk}]}]",
         "c.yaml:1:70: train.rules.0.place.0: *"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, split: even}]}]",
         "c.yaml:1:88: train.rules.0.place.0.split: \"even\" *"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, split: sizes}]}]",
         "c.yaml:1:70: train.rules.0.place.0: split: sizes goes with a list sizes: [...], one per "
         "rank of the axis, and no other split does"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, split: chunk, sizes: [2, 2, 2, 2]}]}]",
         "c.yaml:1:70: train.rules.0.place.0: split: sizes goes with a list sizes: [...], one per "
         "rank of the axis, and no other split does"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, sizes: [8]}]}]",
         "c.yaml:1:88: train.rules.0.place.0.sizes: 1 sizes for a mesh axis of 4 ranks; state one "
         "size per rank"},
        {"rules: [{tensors: \"*\", place: [{shard: 0, sizes: 8}]}]",
         "c.yaml:1:88: train.rules.0.place.0.sizes: *"},
        {"rules: [{tensors: w, place: [{shard: 0, sizes: [1, 1, 1, 1]}]}]",
         "c.yaml:1:47: train.rules.0: tensor w: *"},
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
        {"rules: [{tensors: \"*\", place: [\"shard(0)\"]}]",
         "c.yaml:1:47: train.rules.0: dim 0 is cut, but tensor s has 0 dims; give it a rule of its "
         "own"},
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
        {"absent: {}, rules: [{tensors: \"*\", place: [replicate]}]",
         "c.yaml:1:47: train.absent: *"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *side = g_strdup_printf("{framework: explicit, gpus: 4, %s}", cases[i][0]);
        assert_refused(LIST, side, cases[i][1]);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout/explicit-takes-the-first-matching-rule", test_explicit_rules);
    g_test_add_func("/layout/explicit-leaves-absent-tensors-out", test_explicit_absent);
    g_test_add_func("/layout/explicit-cuts-in-the-stated-order", test_explicit_order);
    g_test_add_func("/layout/explicit-splits-unevenly", test_explicit_splits);
    g_test_add_func("/layout/explicit-holds-parts-independently", test_explicit_parts);
    g_test_add_func("/layout/explicit-shares-equal-shardings", test_explicit_shared);
    g_test_add_func("/layout/explicit-refuses-what-it-cannot-mean", test_explicit_refusals);
    return g_test_run();
}
