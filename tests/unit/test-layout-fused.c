/*
 * Fused parameters of explicit layouts: several tensors in one, interleaved by blocks and cut as
 * one.
 *
 * Covers: rows of KV groups over raw chunks; blocks of gate and up; parts one after the other;
 * padded parameters; one axis, several axes and no axis over the rows, next to cuts of other dims;
 * several parts; layers that share; what the layout tells of each parameter; stated shapes; local
 * order; and the code and message of each refusal.
 */

#include "test-layout.h"

#define QKV                                                                                        \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: \"layers.{0-1}.q.weight\", shape: [16, 2]}\n"                                      \
    "  - {name: \"layers.{0-1}.k.weight\", shape: [4, 2]}\n"                                       \
    "  - {name: \"layers.{0-1}.v.weight\", shape: [4, 2]}\n"                                       \
    "  - {name: o, shape: [4]}\n"

#define GLU                                                                                        \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: gate, shape: [8, 4]}\n"                                                            \
    "  - {name: up, shape: [8, 4]}\n"                                                              \
    "  - {name: odd, shape: [8, 3]}\n"                                                             \
    "  - {name: wide, shape: [8, 4], dtype: f32}\n"                                                \
    "  - {name: s, shape: []}\n"

#define OTHERS "absent: [odd, wide, s], "

/* Two KV groups of eight query rows, two keys and two values, three raw rows a rank. */
static void test_kv_groups(void) {
    g_autoptr(RefitLayout) layout =
        make(QKV, "{framework: explicit, gpus: 8, absent: [o], rules: [{"
                  "fused: [\"*.q.weight\", \"*.k.weight\", \"*.v.weight\"], blocks: [8, 2, 2], "
                  "parameter: \"*.linear_qkv.weight\", place: [\"shard(0)\"], shape: [24, 2], "
                  "local: {0: [3, 2], 7: [3, 2]}}]}");

    for (guint layer = 0; layer < 2; layer++) {
        g_autofree char *q = g_strdup_printf("layers.%u.q.weight", layer);
        g_autofree char *k = g_strdup_printf("layers.%u.k.weight", layer);
        g_autofree char *v = g_strdup_printf("layers.%u.v.weight", layer);

        assert_held(layout, q,
                    "4 [0:3, 0:2]; 5 [3:6, 0:2]; 6 [6:8, 0:2]; 8 [8:11, 0:2]; 9 [11:14, 0:2]; "
                    "10 [14:16, 0:2]");
        assert_held(layout, k, "6 [0:1, 0:2]; 7 [1:2, 0:2]; 10 [2:3, 0:2]; 11 [3:4, 0:2]");
        assert_held(layout, v, "7 [0:2, 0:2]; 11 [2:4, 0:2]");
    }
    g_assert_true(sharding_of(layout, "layers.0.q.weight") ==
                  sharding_of(layout, "layers.1.q.weight"));
    g_assert_cmpuint(refit_sharding_n_parts(sharding_of(layout, "layers.0.q.weight")), ==, 1);
}

static void test_parameters(void) {
    static const RefitFusedRows rows[] = {{0, 0, 8},  {1, 0, 2}, {2, 0, 2},
                                          {0, 8, 16}, {1, 2, 4}, {2, 2, 4}};
    g_autoptr(RefitLayout) layout =
        make(QKV, "{framework: explicit, gpus: 2, rules: [{tensors: o, place: [replicate]}, {"
                  "fused: [\"*.q.weight\", \"*.k.weight\", \"*.v.weight\"], blocks: [8, 2, 2], "
                  "parameter: \"x.*.qkv\", place: [\"shard(0)\"]}]}");

    g_assert_cmpuint(refit_layout_n_fused(layout), ==, 2);
    for (guint layer = 0; layer < 2; layer++) {
        const RefitFused *fused = refit_layout_fused(layout, layer);
        static const char *const parts[] = {"q", "k", "v"};
        g_autofree char *name = g_strdup_printf("x.layers.%u.qkv", layer);
        g_autofree char *text = refit_sharding_to_string(fused->sharding);

        g_assert_cmpstr(fused->name, ==, name);
        g_assert_cmpuint(fused->n_members, ==, 3);
        for (guint i = 0; i < 3; i++) {
            g_autofree char *member = g_strdup_printf("layers.%u.%s.weight", layer, parts[i]);
            g_assert_cmpuint(fused->members[i], ==, find(layout, member));
        }
        g_assert_cmpuint(fused->n_rows, ==, G_N_ELEMENTS(rows));
        for (guint r = 0; r < fused->n_rows; r++) {
            g_assert_cmpuint(fused->rows[r].member, ==, rows[r].member);
            g_assert_cmpuint(fused->rows[r].lo, ==, rows[r].lo);
            g_assert_cmpuint(fused->rows[r].hi, ==, rows[r].hi);
        }
        g_assert_cmpuint(fused->n_dims, ==, 2);
        g_assert_cmpuint(fused->shape[0], ==, 24);
        g_assert_cmpuint(fused->shape[1], ==, 2);
        g_assert_cmpstr(text, ==, "mesh [2] ranks 4-5: shard(0)");
    }
    g_assert_cmpstr(refit_layout_summary(layout), ==, "explicit, 2 rules");
}

static void test_blocks(void) {
    g_autoptr(RefitLayout) layout =
        make(GLU, "{framework: explicit, gpus: 2, " OTHERS "rules: [{fused: [gate, up], blocks: "
                  "[2, 2], parameter: fc1, place: [\"shard(0)\"]}]}");
    assert_held(layout, "gate", "4 [0:4, 0:4]; 5 [4:8, 0:4]");
    assert_held(layout, "up", "4 [0:4, 0:4]; 5 [4:8, 0:4]");

    /* 16 rows over three ranks: g g u u g g, u u g g u u, g g u u. */
    g_autoptr(RefitLayout) three =
        make(GLU, "{framework: explicit, gpus: 3, " OTHERS "rules: [{fused: [gate, up], blocks: "
                  "[2, 2], parameter: fc1, place: [\"shard(0)\"]}]}");
    assert_held(three, "gate", "4 [0:4, 0:4]; 5 [4:6, 0:4]; 6 [6:8, 0:4]");
    assert_held(three, "up", "4 [0:2, 0:4]; 5 [2:6, 0:4]; 6 [6:8, 0:4]");

    /* Without blocks the parts follow each other. */
    g_autoptr(RefitLayout) whole =
        make(GLU, "{framework: explicit, gpus: 2, " OTHERS "rules: [{fused: [gate, up], "
                  "parameter: fc1, place: [\"shard(0)\"]}]}");
    assert_held(whole, "gate", "4 [0:8, 0:4]");
    assert_held(whole, "up", "5 [0:8, 0:4]");
}

static void test_strided(void) {
    /* gate | up, each in two: what tensor parallelism does with a fused first projection. */
    g_autoptr(RefitLayout) layout =
        make(GLU, "{framework: explicit, gpus: 2, " OTHERS "rules: [{fused: [gate, up], "
                  "parameter: fc1, place: [{shard: 0, chunks: 2}]}]}");
    assert_held(layout, "gate", "4 [0:4, 0:4]; 5 [4:8, 0:4]");
    assert_held(layout, "up", "4 [0:4, 0:4]; 5 [4:8, 0:4]");
}

/* Rows in the order of a rank's buffer, which the stated list turns round. */
static void test_local_order(void) {
    g_autoptr(RefitLayout) layout =
        make(GLU, "{framework: explicit, gpus: 2, " OTHERS "rules: [{fused: [gate, up], blocks: "
                  "[2, 2], parameter: fc1, place: [{shard: 0, lists: [[12-13, 0-1], [4-11]]}]}]}");
    g_autofree char *text = refit_sharding_to_string(sharding_of(layout, "gate"));

    /* Rows 0 1 are gate 0 1, rows 12 13 are gate 6 7, rows 4 5 8 9 are gate 2 3 4 5. */
    g_assert_cmpstr(text, ==, "mesh [2] ranks 4-5: shard(0, lists [0:2@2+6:8@0] [2:6])");
    assert_held(layout, "up", "5 [2:6, 0:4]");
}

static void test_padded(void) {
    /* 16 rows padded to 24, eight a rank: the last one has padding alone. */
    g_autoptr(RefitLayout) layout =
        make(GLU, "{framework: explicit, gpus: 3, " OTHERS "rules: [{fused: [gate, up], "
                  "parameter: fc1, padded: {0: 24, 1: 6}, place: [\"shard(0)\"], "
                  "local: {0: [8, 6], 2: [8, 6]}}]}");
    assert_held(layout, "gate", "4 [0:8, 0:4]");
    assert_held(layout, "up", "5 [0:8, 0:4]");
    g_assert_cmpuint(refit_sharding_padded(sharding_of(layout, "up"), 0), ==, 0);
    g_assert_cmpuint(refit_sharding_padded(sharding_of(layout, "up"), 1), ==, 6);
    g_assert_cmpuint(refit_sharding_padded(refit_layout_fused(layout, 0)->sharding, 0), ==, 24);
}

static void test_axes(void) {
    /* Rows over the second axis, columns over the first, copies over the third. */
    g_autoptr(RefitLayout) one =
        make(GLU, "{framework: explicit, gpus: 8, " OTHERS "rules: [{fused: [gate, up], blocks: "
                  "[4, 4], parameter: fc1, mesh: [2, 2, 2], "
                  "place: [\"shard(1)\", \"shard(0)\", replicate]}]}");
    assert_held(one, "gate", "4,5 [0:4, 0:2]; 8,9 [0:4, 2:4]; 6,7 [4:8, 0:2]; 10,11 [4:8, 2:4]");
    g_assert_cmpuint(refit_sharding_n_parts(sharding_of(one, "gate")), ==, 1);

    /* Two axes cut the rows: rows 0-7 and 8-15, each in halves, in a region per rank. */
    g_autoptr(RefitLayout) two =
        make(GLU, "{framework: explicit, gpus: 4, " OTHERS "rules: [{fused: [gate, up], blocks: "
                  "[4, 4], parameter: fc1, mesh: [2, 2], "
                  "place: [{shard: 0, order: 1}, {shard: 0, order: 0}]}]}");
    assert_held(two, "gate", "4 [0:4, 0:4]; 5 [4:8, 0:4]");
    assert_held(two, "up", "6 [0:4, 0:4]; 7 [4:8, 0:4]");

    /* Nobody cuts the rows: each part is whole on every rank. */
    g_autoptr(RefitLayout) none =
        make(GLU, "{framework: explicit, gpus: 2, " OTHERS "rules: [{fused: [gate, up], blocks: "
                  "[4, 4], parameter: fc1, place: [\"shard(1)\"]}]}");
    assert_held(none, "gate", "4 [0:8, 0:2]; 5 [0:8, 2:4]");
}

static void test_parts(void) {
    g_autoptr(RefitLayout) layout =
        make(GLU, "{framework: explicit, gpus: 3, " OTHERS "rules: [{fused: [gate, up], "
                  "parameter: fc1, parts: [{ranks: [0-1], place: [\"shard(0)\"]}, {ranks: [2], "
                  "place: [replicate]}]}]}");
    assert_held(layout, "gate", "4,6 [0:8, 0:4]");
    assert_held(layout, "up", "5,6 [0:8, 0:4]");
}

static void test_refusals(void) {
    static const struct {
        RefitError code;
        const char *rule, *message;
    } cases[] = {
        {REFIT_ERROR_INVALID, "fused: [gate, up], place: [replicate]",
         "c.yaml:1:47: train.rules.0: *"},
        {REFIT_ERROR_INVALID, "fused: gate, parameter: p, place: [replicate]",
         "c.yaml:1:55: train.rules.0.fused: *"},
        {REFIT_ERROR_INVALID, "fused: [], parameter: p, place: [replicate]",
         "c.yaml:1:55: train.rules.0.fused: 0 fused parts; name at least 1 and at most 64"},
        {REFIT_ERROR_INVALID, "fused: [{}], parameter: p, place: [replicate]",
         "c.yaml:1:56: train.rules.0.fused.0: *"},
        {REFIT_ERROR_INVALID, "fused: [gate], parameter: [p], place: [replicate]",
         "c.yaml:1:74: train.rules.0.parameter: *"},
        {REFIT_ERROR_INVALID, "fused: [\"*.*\"], parameter: \"*\", place: [replicate]",
         "c.yaml:1:56: train.rules.0.fused.0: \"*.*\" has more than one *; write one, for what the "
         "names of a parameter's parts have in common"},
        {REFIT_ERROR_INVALID, "fused: [\"g*\"], parameter: p, place: [replicate]",
         "c.yaml:1:56: train.rules.0.fused.0: either parameter and all fused parts have a *, or "
         "none has one"},
        {REFIT_ERROR_INVALID, "fused: [gate, up], blocks: 4, parameter: p, place: [replicate]",
         "c.yaml:1:75: train.rules.0.blocks: *"},
        {REFIT_ERROR_INVALID, "fused: [gate, up], blocks: [4], parameter: p, place: [replicate]",
         "c.yaml:1:75: train.rules.0.blocks: 1 blocks for 2 fused parts; state the rows of one "
         "block of each part"},
        {REFIT_ERROR_INVALID, "fused: [gate, up], blocks: [4, 0], parameter: p, place: [replicate]",
         "c.yaml:1:79: train.rules.0.blocks.1: *"},
        {REFIT_ERROR_INVALID, "fused: [gate, up], blocks: [4, 2], parameter: p, place: [replicate]",
         "c.yaml:1:47: train.rules.0: tensor up has 8 rows, which are not 2 blocks of 2 rows; "
         "state blocks that divide every part into the same number"},
        {REFIT_ERROR_INVALID, "fused: [gate, up], blocks: [3, 3], parameter: p, place: [replicate]",
         "c.yaml:1:47: train.rules.0: tensor gate has 8 rows, which are not 2 blocks of 3 rows; *"},
        {REFIT_ERROR_INVALID, "fused: [gate, odd], parameter: p, place: [replicate]",
         "c.yaml:1:47: train.rules.0: tensors gate and odd of parameter p differ in more than "
         "their rows; fuse tensors of one dtype whose dims from 1 on are equal"},
        {REFIT_ERROR_INVALID, "fused: [gate, wide], parameter: p, place: [replicate]",
         "c.yaml:1:47: train.rules.0: tensors gate and wide of parameter p differ *"},
        {REFIT_ERROR_INVALID, "fused: [s, s], parameter: p, place: [replicate]",
         "c.yaml:1:47: train.rules.0: *"},
        {REFIT_ERROR_NAME_MISSING, "fused: [gate, down], parameter: p, place: [replicate]",
         "c.yaml:1:47: train.rules.0: parameter p needs tensor down, which model m lacks or "
         "another rule or absent takes; correct the names or their order"},
        {REFIT_ERROR_NAME_MISSING,
         "fused: [\"*ate\", \"*own\"], parameter: \"*x\", place: [replicate]",
         "c.yaml:1:47: train.rules.0: parameter gx needs tensor gown, which *"},
        {REFIT_ERROR_INVALID, "fused: [none, never], parameter: p, place: [replicate]",
         "c.yaml:1:47: train.rules.0: no tensor of model m is left for this rule; *"},
        {REFIT_ERROR_NAME_COLLISION, "fused: [gate, up], parameter: odd, place: [replicate]",
         "c.yaml:1:46: train.rules: two parameters are called odd; give each fused one a name of "
         "its own"},
        {REFIT_ERROR_DIM_RANGE, "fused: [gate, up], parameter: p, place: [\"shard(2)\"]",
         "c.yaml:1:47: train.rules.0: dim 2 is cut, but tensor p has 2 dims; *"},
        {REFIT_ERROR_PARTITION_SUM,
         "fused: [gate, up], parameter: p, place: [{shard: 0, sizes: [8, 7]}]",
         "c.yaml:1:47: train.rules.0: tensor p: *sum to 15*"},
        {REFIT_ERROR_OVERFLOW,
         "fused: [gate, up], parameter: p, padded: {0: 9223372036854775807}, place: [replicate]",
         "c.yaml:1:47: train.rules.0: tensor p: number of elements: *"},
        {REFIT_ERROR_SHAPE_MISMATCH,
         "fused: [gate, up], parameter: p, place: [replicate], shape: [8, 4]",
         "c.yaml:1:108: train.rules.0.shape: tensor p has shape [16, 4], but this side states [8, "
         "4]; *"},
        {REFIT_ERROR_LOCAL_SHAPE,
         "fused: [gate, up], parameter: p, place: [\"shard(0)\"], local: {1: [4, 4]}",
         "c.yaml:1:109: train.rules.0.local: tensor p: position 1 states local shape [4, 4], but "
         "the rule gives it [8, 4]; *"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *side =
            g_strdup_printf("{framework: explicit, gpus: 2, rules: [{%s}, {tensors: \"*\", place: "
                            "[replicate]}]}",
                            cases[i].rule);
        assert_refused_as(GLU, side, cases[i].code, cases[i].message);
    }
}

static void test_too_many_blocks(void) {
    assert_refused_as(
        "family: list\ntensors:\n  - {name: \"{0-1}\", shape: [524289]}\n",
        "{framework: explicit, gpus: 2, rules: [{fused: [\"0\", \"1\"], blocks: [1, 1], "
        "parameter: p, place: [replicate]}]}",
        REFIT_ERROR_INVALID,
        "c.yaml:1:*: train.rules.0: tensor 0 is in 524289 blocks, above the limit of "
        "524288; use larger blocks");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/layout/fused-kv-groups-are-cut-by-raw-rows", test_kv_groups);
    g_test_add_func("/layout/fused-parameters-are-told", test_parameters);
    g_test_add_func("/layout/fused-blocks-alternate", test_blocks);
    g_test_add_func("/layout/fused-parts-may-be-cut-each-by-strides", test_strided);
    g_test_add_func("/layout/fused-rows-keep-the-order-of-the-buffer", test_local_order);
    g_test_add_func("/layout/fused-parameters-may-be-padded", test_padded);
    g_test_add_func("/layout/fused-rows-may-be-cut-by-any-number-of-axes", test_axes);
    g_test_add_func("/layout/fused-parameters-may-have-copies", test_parts);
    g_test_add_func("/layout/fused-rules-refuse-what-does-not-fit", test_refusals);
    g_test_add_func("/layout/fused-blocks-have-a-limit", test_too_many_blocks);
    return g_test_run();
}
