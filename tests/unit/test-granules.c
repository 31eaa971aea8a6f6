/*
 * Cuts that a type does not allow: inside blocks, tiles and bytes, on either side and in the form
 * that a side holds; what is allowed at ends of dims and on borders; who is named; that tensors of
 * one shape with and without granules are told apart.
 */

#include "model/layout/refit-granule.h"
#include "plan-cases.h"

#define TOPOLOGY "node:2 gpu:4 nvlink:450GBps nic:50GBps"
#define WHOLE "rules: [{tensors: \"*\", place: [replicate]}]"

typedef struct {
    const char *tensor;
    guint n_source;
    const char *source;
    guint n_destination;
    const char *destination;
    RefitError code;
    const char *message; /* NULL: allowed */
} Row;

static void check(const Row *row) {
    g_autofree char *item = g_strdup_printf("  - {name: w, %s}\n", row->tensor);
    g_autoptr(RefitCase) refit_case = plan_case_new(TOPOLOGY, item, row->n_source, row->source,
                                                    row->n_destination, row->destination);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProblem) problem = refit_problem_new(refit_case, &error);
    g_test_message("%s: %s -> %s", row->tensor, row->source, row->destination);
    if (row->message == NULL) {
        g_assert_no_error(error);
        g_assert_nonnull(problem);
    } else {
        g_assert_null(problem);
        input_assert_error(error, row->code, row->message);
    }
}

#define ROWS "rules: [{tensors: w, place: [shard(0)]}]"
#define COLUMNS "rules: [{tensors: w, place: [shard(1)]}]"

static void test_blocks(void) {
    static const Row rows[] = {
        {"shape: [256, 256], granule: [128, 128]", 2, ROWS, 2, COLUMNS, 0, NULL},
        /* The last block may be short: 258 = 2 x 128 + 2. */
        {"shape: [258, 4], granule: [128, 0]", 3, ROWS, 1, WHOLE, REFIT_ERROR_GRANULE_SPLIT,
         "tensor w: the source cuts dim 0 at 86 for rank 0, inside a block with one scale of 128; "
         "choose parallel sizes that cut at multiples of 128, or another dtype"},
        {"shape: [258, 4], granule: [128, 0]", 2,
         "rules: [{tensors: w, place: [{shard: 0, sizes: [128, 130]}]}]", 1, WHOLE, 0, NULL},
        {"shape: [258, 4], granule: [128, 0]", 2, COLUMNS, 4, COLUMNS, 0, NULL},
        /* Rank 1 of the source has rows 0-127, and rank 0 row 128 and those after it. */
        {"shape: [256, 4], granule: [128, 1]", 2,
         "rules: [{tensors: w, ranks: [1, 0], place: [{shard: 0, sizes: [129, 127]}]}]", 1, WHOLE,
         REFIT_ERROR_GRANULE_SPLIT, "tensor w: the source cuts dim 0 at 129 for rank 1, inside a*"},
        {"shape: [4, 64], granule: [0, 16]", 1, WHOLE, 3, COLUMNS, REFIT_ERROR_GRANULE_SPLIT,
         "tensor w: the destination cuts dim 1 at 22 for rank 1, inside a block with one scale of "
         "16; choose*"},
        {"shape: [4, 64], granule: [0, 16]", 1, WHOLE, 4, COLUMNS, 0, NULL},
        /* A piece of two intervals: the second one starts inside a block. */
        {"shape: [16], granule: [4]", 2,
         "rules: [{tensors: w, place: [{shard: 0, split: strided, chunks: 2}]}]", 1, WHOLE, 0,
         NULL},
        {"shape: [12], granule: [4]", 2,
         "rules: [{tensors: w, place: [{shard: 0, split: strided, chunks: 2}]}]", 1, WHOLE,
         REFIT_ERROR_GRANULE_SPLIT, "tensor w: the source cuts dim 0 at 3 for rank 0, inside a*"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        check(&rows[i]);
}

static void test_tiles(void) {
    static const Row rows[] = {
        {"shape: [256, 4], dtype: u8, tile: [128, 4]", 2, ROWS, 1, WHOLE, 0, NULL},
        {"shape: [192, 4], dtype: u8, tile: [128, 4]", 2, ROWS, 1, WHOLE, REFIT_ERROR_TILE_SPLIT,
         "tensor w: the source cuts dim 0 at 96 for rank 0, inside a tile of 128; choose parallel "
         "sizes that cut at multiples of 128, or another dtype"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        check(&rows[i]);
}

static void test_bytes(void) {
    static const Row rows[] = {
        {"shape: [2, 12], dtype: f4", 3, COLUMNS, 1, WHOLE, 0, NULL},
        {"shape: [2, 12], dtype: f4", 4, COLUMNS, 1, WHOLE, REFIT_ERROR_SUBBYTE_SPLIT,
         "tensor w: the source cuts dim 1 at 3 for rank 0, inside a byte of F4, which has 2 "
         "elements; choose parallel sizes that cut at whole bytes"},
        {"shape: [2, 12], dtype: f4", 1, WHOLE, 4, COLUMNS, REFIT_ERROR_SUBBYTE_SPLIT,
         "tensor w: the destination cuts dim 1 at 3 for rank 1, inside*"},
        /* Rows of 3 elements: two rows are 3 bytes. */
        {"shape: [4, 3], dtype: f4", 2, ROWS, 1, WHOLE, 0, NULL},
        {"shape: [4, 3], dtype: f4", 4, ROWS, 1, WHOLE, REFIT_ERROR_SUBBYTE_SPLIT,
         "tensor w: the source cuts dim 0 at 1 for rank 0, inside*"},
        /* Granules are looked at first. */
        {"shape: [2, 12], dtype: f4, granule: [0, 4]", 4, COLUMNS, 1, WHOLE,
         REFIT_ERROR_GRANULE_SPLIT, "tensor w: the source cuts dim 1 at 3 for rank 0, inside a b*"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        check(&rows[i]);
}

/* Same shape, dtype and layout: only the second has blocks, and only it is named. */
static void test_classes_know_granules(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new(TOPOLOGY,
                      "  - {name: a, shape: [6]}\n"
                      "  - {name: b, shape: [6], granule: [4]}\n",
                      2, "rules: [{tensors: \"*\", place: [shard(0)]}]", 1, WHOLE);
    g_autoptr(GError) error = NULL;
    g_assert_null(refit_problem_new(refit_case, &error));
    input_assert_error(error, REFIT_ERROR_GRANULE_SPLIT, "tensor b: the source cuts dim 0 at 3*");
}

static void test_places_in_bytes(void) {
    static const struct {
        guint n_dims;
        guint64 shape[3];
        const char *region;
        gboolean cuts;
        guint dim;
        guint64 place;
    } rows[] = {
        {2, {4, 6}, "0:4,2:4", FALSE, 0, 0},
        {2, {4, 6}, "0:4,1:4", TRUE, 1, 1},
        {2, {4, 6}, "0:4,2:5", TRUE, 1, 5},
        {2, {4, 6}, "1:2,0:6", FALSE, 0, 0},
        /* Rows of 5: whole runs of them, but the next row starts inside a byte. */
        {2, {4, 5}, "0:4,0:4", TRUE, 1, 5},
        {2, {1, 5}, "0:1,0:4", FALSE, 0, 0},
        {3, {1, 1, 5}, "0:1,0:1,0:4", FALSE, 0, 0},
        {3, {2, 1, 5}, "0:2,0:1,0:4", TRUE, 2, 5},
        {2, {4, 5}, "1:3,0:5", TRUE, 0, 1},
        {3, {2, 3, 3}, "0:2,0:2,0:3", TRUE, 1, 3},
        {2, {4, 6}, "0:4,0:0", FALSE, 0, 0},
        /* 2^62 rows of 2^63 - 1 elements, counted modulo 2. */
        {2, {G_GUINT64_CONSTANT(1) << 62, G_MAXINT64}, "0:2,0:9223372036854775807", FALSE, 0, 0},
        {2, {G_GUINT64_CONSTANT(1) << 62, G_MAXINT64}, "0:3,0:9223372036854775807", TRUE, 0, 3},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_auto(RefitRegion) region = plan_case_region(rows[i].region);
        guint dim = 9;
        guint64 place = 9;
        g_test_message("%s", rows[i].region);
        g_assert_cmpint(refit_granules_cut_byte(REFIT_DTYPE_F4, rows[i].n_dims, rows[i].shape,
                                                &region, &dim, &place),
                        ==, rows[i].cuts);
        if (rows[i].cuts) {
            g_assert_cmpuint(dim, ==, rows[i].dim);
            g_assert_cmpuint(place, ==, rows[i].place);
        }
        g_assert_false(refit_granules_cut_byte(REFIT_DTYPE_U8, rows[i].n_dims, rows[i].shape,
                                               &region, &dim, &place));
    }
}

/* ---- forms that sides hold ---- */

static const char cast_case[] = "schema: refit.case/1\n"
                                "model: tiny\n"
                                "train: {framework: megatron, gpus: 4, tp: 2, pp: 1, ep: 2}\n"
                                "generation: {framework: vllm, gpus: 4, tp: 4}\n"
                                "topology: \"node:2 gpu:4 nvlink:450GBps nic:50GBps\"\n";

static RefitProblem *tiny_problem(const char *sides, GError **error) {
    g_autoptr(RefitDoc) doc = input_doc(cast_case);
    g_auto(GStrv) overrides = g_strsplit(sides, " ", -1);
    for (guint i = 0; overrides[i] != NULL; i++)
        g_assert_true(refit_doc_set(doc, overrides[i], NULL));
    g_autoptr(GError) inner = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_parse(input_store(), doc, &inner);
    g_assert_no_error(inner);
    RefitProblem *problem = refit_problem_new(refit_case, error);
    if (problem != NULL)
        problem->refit_case = NULL; /* it is about to go */
    return problem;
}

/* Four columns of o_proj share a scale, so that four ranks cannot have two each. */
static void test_held_forms(void) {
    static const struct {
        const char *sides, *message;
    } rows[] = {
        {"dtype=bf16", NULL},
        {"dtype=fp8 generation.tp=2 generation.gpus=2", NULL},
        {"dtype=fp8",
         "tensor model.layers.0.self_attn.o_proj.weight: the destination cuts dim 1 at 2*"},
        {"dtype=bf16 generation.dtype=fp8",
         "tensor model.layers.0.self_attn.o_proj.weight: generation cuts dim 1 at 2 for rank 4*"},
        {"dtype=bf16 generation.dtype=fp8 generation.tp=2 generation.gpus=2", NULL},
        {"dtype=bf16 train.dtype=fp8", NULL},
        {"dtype=bf16 train.dtype=fp8 train.tp=4 train.ep=1",
         "tensor model.layers.0.self_attn.o_proj.weight: train cuts dim 1 at 2 for rank 0*"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitProblem) problem = tiny_problem(rows[i].sides, &error);
        g_test_message("%s", rows[i].sides);
        if (rows[i].message == NULL)
            g_assert_no_error(error);
        else
            input_assert_error(error, REFIT_ERROR_GRANULE_SPLIT, rows[i].message);
    }
}

/* Whole sides: each kind of tensor is looked at, whatever stands before it. */
static void test_sides(void) {
    static const struct {
        const char *last, *message;
    } rows[] = {
        {"granule: [2]", "tensor c: train cuts dim 0 at 3 for rank 0, inside a block with one*"},
        {"granule: [3]", NULL},
        {"granule: [1]", NULL},
        {"dtype: f4", "tensor c: train cuts dim 0 at 3 for rank 0, inside a byte*"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *tensors = g_strdup_printf("  - {name: a, shape: [6]}\n"
                                                   "  - {name: b, shape: [8], granule: [4]}\n"
                                                   "  - {name: c, shape: [6], %s}\n",
                                                   rows[i].last);
        g_autoptr(RefitCase) refit_case = plan_case_new(
            TOPOLOGY, tensors, 2, "rules: [{tensors: \"*\", place: [shard(0)]}]", 1, WHOLE);
        g_autoptr(GError) error = NULL;
        g_test_message("%s", rows[i].last);
        g_assert_cmpint(refit_granules_check_layout(refit_case->source, &error), ==,
                        rows[i].message == NULL);
        if (rows[i].message != NULL)
            input_assert_error(error, (RefitError)error->code, rows[i].message);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/granules/blocks-stay-together", test_blocks);
    g_test_add_func("/granules/tiles-have-their-own-code", test_tiles);
    g_test_add_func("/granules/bytes-stay-together", test_bytes);
    g_test_add_func("/granules/equal-shapes-are-told-apart", test_classes_know_granules);
    g_test_add_func("/granules/places-inside-bytes-are-found", test_places_in_bytes);
    g_test_add_func("/granules/whole-sides-are-checked", test_sides);
    g_test_add_func("/granules/held-forms-are-checked", test_held_forms);
    return g_test_run();
}
