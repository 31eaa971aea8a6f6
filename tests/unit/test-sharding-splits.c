/*
 * Cuts that are not one run, and the question of one rank.
 *
 * Covered: strided shards even, uneven, nested and of more chunks than indices; regions of
 * irregular ranks; padded extents under every split, also inside a shard; local regions and buffers
 * of a rank against the holding; equality, hash and text of lists, chunks and padding; errors;
 * sizes of 64 bits.
 */

#include "sharding-helpers.h"

/* ---- strided ---- */

static void test_strided(void) {
    const guint four[] = {4};
    const guint grid[] = {2, 2};
    const RefitPlacement two_chunks[] = {strided(0, 2, 0)};
    const RefitPlacement nested[] = {strided(0, 2, 0), chunked(0, 1)};
    const RefitPlacement many[] = {strided(0, 1000, 0)};
    g_autoptr(RefitSharding) alone = sharding_of(1, four, two_chunks);
    g_autoptr(RefitSharding) pair = sharding_of(2, grid, nested);
    g_autoptr(RefitSharding) fine = sharding_of(1, four, many);

    /* Halves 0-4 and 5-8, each in four chunks of ceil: 2 2 1 0 and 1 1 1 1. */
    assert_held(alone, 1, (const guint64[]){9}, "[0:2+5:6] 0; [2:4+6:7] 1; [4:5+7:8] 2; [8:9] 3");
    assert_local(alone, 0, 9, "0:2 5:6", 3);
    /* Rows 0 2 1 3: FSDP over tensor parallelism, as if the second axis had cut first. */
    assert_held(pair, 1, (const guint64[]){4}, "[0:1] 0; [1:2] 2; [2:3] 1; [3:4] 3");
    /* Halves 0-2 and 3-4: part 0 is 0 1 3, part 1 is 2 4; each is cut in two again. */
    assert_held(pair, 1, (const guint64[]){5}, "[0:2] 0; [2:3] 2; [3:4] 1; [4:5] 3");
    assert_held(alone, 1, (const guint64[]){1}, "[0:1] 0");
    assert_held(alone, 1, (const guint64[]){0}, "");
    /* Chunks of one index are whole in the first part. */
    assert_held(fine, 1, (const guint64[]){7}, "[0:7] 0");
}

static void test_strided_sorts_pieces(void) {
    const RefitPlacement placements[] = {strided(1, 2, 0), chunked(1, 1), chunked(0, 0)};
    g_autoptr(RefitSharding) sharding = sharding_of(3, (const guint[]){2, 2, 2}, placements);

    assert_held(sharding, 2, (const guint64[]){2, 5},
                "[0:1, 0:2] 0; [0:1, 2:3] 4; [0:1, 3:4] 2; [0:1, 4:5] 6; "
                "[1:2, 0:2] 1; [1:2, 2:3] 5; [1:2, 3:4] 3; [1:2, 4:5] 7");
}

/* ---- regions ---- */

static void test_regions(void) {
    /* Expert slots: rank 4 has experts 0 1 2, rank 2 has 3 0 2. */
    g_auto(RefitRegion) first = {.n_dims = 2, .dims = {list_of("0:3"), list_of("0:2")}};
    g_auto(RefitRegion) second = {.n_dims = 2, .dims = {list_of("3:4 0:1 2:3"), list_of("0:2")}};
    g_auto(RefitRegion) scalar = {0};
    const guint64 shape[] = {4, 2};
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    g_autoptr(RefitSharding) single = refit_sharding_new();
    g_autofree char *text = NULL;
    g_autoptr(GError) error = NULL;
    g_auto(RefitRegion) region = {0};
    guint64 buffer[2];

    g_assert_true(refit_sharding_add_region(sharding, 4, &first, &error));
    g_assert_true(refit_sharding_add_region(sharding, 2, &second, &error));
    g_assert_true(refit_sharding_add_region(sharding, 7, &first, &error));
    g_assert_true(refit_sharding_add_region(single, 3, &scalar, &error));
    g_assert_no_error(error);
    assert_held(sharding, 2, shape, "[0:1+2:4, 0:2] 2; [0:3, 0:2] 4 7");
    assert_held(single, 0, NULL, "[] 3");
    g_assert_true(refit_sharding_local(sharding, 1, 2, 2, shape, &region, buffer, &error));
    assert_list(region.dims[0], "3:4 0:1 2:3");
    g_assert_cmpuint(buffer[0], ==, 3);
    g_assert_cmpuint(buffer[1], ==, 2);
    text = refit_sharding_to_string(sharding);
    g_assert_cmpstr(text, ==,
                    "mesh [1, 1] ranks 4: shard(0, lists [0:3]), shard(1, lists [0:2]); "
                    "mesh [1, 1] ranks 2: shard(0, lists [0:1@1+2:3@2+3:4@0]), "
                    "shard(1, lists [0:2]); "
                    "mesh [1, 1] ranks 7: shard(0, lists [0:3]), shard(1, lists [0:2])");
    assert_fails(sharding, 1, shape, REFIT_ERROR_DIM_RANGE, "shards dim 1 of a tensor with 1 dims");
}

static void test_local_needs_the_rank(void) {
    const RefitPlacement placements[] = {chunked(0, 0)};
    g_autoptr(RefitSharding) sharding = sharding_of(1, (const guint[]){2}, placements);
    g_autoptr(GError) error = NULL;
    RefitRegion region = {.n_dims = 77};
    guint64 buffer[] = {99};

    g_assert_false(
        refit_sharding_local(sharding, 0, 2, 1, (const guint64[]){4}, &region, buffer, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(region.n_dims, ==, 77);
    g_assert_cmpuint(buffer[0], ==, 99);
}

/* Every rank of a large mesh: what it is told it holds is what the holding says. */
static void test_local_agrees_with_holding(void) {
    RefitSegment segments[] = {{10, 4}, {6, 2}};
    RefitIntervalList **lists = refit_lists_of_segments(segments, 2, 4);
    const guint sizes[] = {2, 4, 2, 3};
    const guint64 shape[] = {14, 16};
    RefitPlacement placements[] = {strided(0, 3, 1), listed(1, lists, 4), chunked(1, 1),
                                   chunked(0, 0)};
    guint n_found = 0;

    placements[3].split = REFIT_SPLIT_BALANCED;
    g_autoptr(RefitSharding) sharding = sharding_of(4, sizes, placements);
    g_autoptr(RefitHolding) holding = refit_holding_new(sharding, 2, shape, NULL);

    refit_lists_free(lists, 4);
    for (guint rank = 0; rank < 48; rank++) {
        g_auto(RefitRegion) region = {0};
        guint64 buffer[2];

        g_assert_true(refit_sharding_local(sharding, 0, rank, 2, shape, &region, buffer, NULL));
        g_assert_cmpuint(buffer[0], ==, region.dims[0]->extent);
        g_assert_cmpuint(buffer[1], ==, region.dims[1]->extent);
        for (guint i = 0; i < holding->n_pieces; i++) {
            for (guint r = 0; r < holding->pieces[i].n_ranks; r++) {
                if (holding->pieces[i].ranks[r] != rank)
                    continue;
                g_assert_true(refit_region_equal(&holding->pieces[i].region, &region));
                n_found++;
            }
        }
    }
    g_assert_cmpuint(n_found, ==, 48);
}

/* ---- padding ---- */

static void test_padding(void) {
    const RefitPlacement rows[] = {chunked(0, 0)};
    const guint64 sizes[] = {6, 6, 4};
    const RefitPlacement stated[] = {
        {.kind = REFIT_PLACEMENT_SHARD, .split = REFIT_SPLIT_SIZES, .n_sizes = 3, .sizes = sizes}};
    g_autoptr(RefitSharding) vocabulary = sharding_of(1, (const guint[]){4}, rows);
    g_autoptr(RefitSharding) thirds = sharding_of(1, (const guint[]){3}, stated);

    refit_sharding_set_padded(vocabulary, 0, 16);
    refit_sharding_set_padded(thirds, 0, 16);
    g_assert_cmpuint(refit_sharding_padded(vocabulary, 0), ==, 16);
    g_assert_cmpuint(refit_sharding_padded(vocabulary, 7), ==, 0);
    assert_held(vocabulary, 2, (const guint64[]){10, 3},
                "[0:4, 0:3] 0; [4:8, 0:3] 1; [8:10, 0:3] 2");
    assert_local(vocabulary, 1, 10, "4:8", 4);
    assert_local(vocabulary, 2, 10, "8:10", 4);
    assert_local(vocabulary, 3, 10, "", 4);
    assert_local(vocabulary, 3, 16, "12:16", 4);
    /* Stated sizes sum to the padded extent. */
    assert_held(thirds, 1, (const guint64[]){11}, "[0:6] 0; [6:11] 1");
    refit_sharding_set_padded(vocabulary, 0, 0);
    assert_held(vocabulary, 1, (const guint64[]){10}, "[0:3] 0; [3:6] 1; [6:9] 2; [9:10] 3");
}

/* Padding may lie inside a buffer: what follows it keeps its place. */
static void test_padding_inside(void) {
    RefitIntervalList *lists[] = {list_of("6:12 0:6")};
    const RefitPlacement turned[] = {listed(0, lists, 1), chunked(0, 1)};
    const RefitPlacement each[] = {strided(0, 2, 0)};
    g_autoptr(RefitSharding) one = sharding_of(2, (const guint[]){1, 1}, turned);
    g_autoptr(RefitSharding) two = sharding_of(2, (const guint[]){1, 2}, turned);
    g_autoptr(RefitSharding) three = sharding_of(1, (const guint[]){3}, each);

    refit_interval_list_unref(lists[0]);
    refit_sharding_set_padded(one, 0, 12);
    refit_sharding_set_padded(two, 0, 12);
    refit_sharding_set_padded(three, 0, 12);
    assert_local(one, 0, 9, "6:9 @6 0:6", 12);
    assert_local(two, 0, 9, "6:9", 6);
    assert_local(two, 1, 9, "0:6", 6);
    assert_held(two, 1, (const guint64[]){9}, "[0:6] 1; [6:9] 0");
    /* Halves 0-5 and 6-11 in pairs. */
    assert_local(three, 1, 9, "2:4 8:9", 4);
    assert_local(three, 2, 9, "4:6", 4);
    assert_held(three, 1, (const guint64[]){5}, "[0:2] 0; [2:4] 1; [4:5] 2");
}

/* ---- what is the same, and errors ---- */

static void test_differences(void) {
    static const char *const texts[] = {"0:2 4:6", "4:6 0:2", "0:2 @3 4:6", "0:2", "0:3 4:6"};
    GPtrArray *all = g_ptr_array_new_with_free_func((GDestroyNotify)refit_sharding_free);
    const guint two[] = {2};

    for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
        g_autoptr(RefitIntervalList) list = list_of(texts[i]);
        RefitIntervalList *lists[] = {list, list};
        RefitPlacement placement = listed(0, lists, 2);

        g_ptr_array_add(all, sharding_of(1, two, &placement));
    }
    for (guint chunks = 1; chunks < 4; chunks++) {
        RefitPlacement placement = strided(0, chunks, 0);

        g_ptr_array_add(all, sharding_of(1, two, &placement));
    }
    for (guint dim = 0; dim < 3; dim++) {
        g_ptr_array_add(all, sharding_of(1, two, &replicate));
        refit_sharding_set_padded(g_ptr_array_index(all, all->len - 1), dim, 8);
    }
    g_ptr_array_add(all, sharding_of(1, two, &replicate));
    for (guint i = 0; i < all->len; i++) {
        for (guint j = 0; j < all->len; j++) {
            const RefitSharding *a = g_ptr_array_index(all, i);
            const RefitSharding *b = g_ptr_array_index(all, j);

            g_assert_true(refit_sharding_equal(a, b) == (i == j));
            g_assert_true((refit_sharding_hash(a) == refit_sharding_hash(b)) == (i == j));
        }
    }
    g_ptr_array_unref(all);
}

/* Equal lists need not be one pointer, and one chunk is no stride at all. */
static void test_normal_form(void) {
    const guint one[] = {1};
    g_autoptr(RefitIntervalList) a = list_of("4:6 0:2");
    g_autoptr(RefitIntervalList) b = list_of("4:5 5:6 0:2");
    const RefitPlacement first[] = {listed(2, &a, 1)};
    const RefitPlacement second[] = {listed(2, &b, 1)};
    const RefitPlacement plain[] = {chunked(1, 0)};
    const RefitPlacement once[] = {strided(1, 1, 0)};
    g_autoptr(RefitSharding) x = sharding_of(1, one, first);
    g_autoptr(RefitSharding) y = sharding_of(1, one, second);
    g_autoptr(RefitSharding) z = sharding_of(1, one, plain);
    g_autoptr(RefitSharding) w = sharding_of(1, one, once);

    g_assert_true(refit_sharding_equal(x, y));
    g_assert_cmpuint(refit_sharding_hash(x), ==, refit_sharding_hash(y));
    g_assert_true(refit_sharding_equal(z, w));
    g_assert_cmpuint(refit_sharding_hash(z), ==, refit_sharding_hash(w));
    g_assert_cmpint(refit_sharding_placements(w, 0)[0].split, ==, REFIT_SPLIT_CHUNK);
}

static void test_text(void) {
    RefitIntervalList *lists[] = {list_of("6:7 0:2"), list_of("")};
    const RefitPlacement placements[] = {strided(0, 3, 0), listed(1, lists, 2)};
    g_autoptr(RefitSharding) sharding = sharding_of(2, (const guint[]){2, 2}, placements);

    refit_interval_list_unref(lists[0]);
    refit_interval_list_unref(lists[1]);
    refit_sharding_set_padded(sharding, 1, 40);
    g_autofree char *text = refit_sharding_to_string(sharding);
    g_assert_cmpstr(text, ==,
                    "mesh [2, 2] ranks 0-3: shard(0, each of 3 chunks), "
                    "shard(1, lists [0:2@1+6:7@0] []); dim 1 padded to 40");
}

static void assert_add_fails(const RefitPlacement *placement, guint size, RefitError code,
                             const char *words) {
    const guint ranks[] = {0, 1, 2};
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    g_autoptr(GError) error = NULL;
    RefitMesh *mesh = refit_mesh_new(1, &size, ranks, size, NULL);

    g_assert_false(refit_sharding_add(sharding, mesh, placement, &error));
    g_assert_error(error, REFIT_ERROR, (int)code);
    g_assert_nonnull(strstr(error->message, words));
    g_assert_cmpuint(refit_sharding_n_parts(sharding), ==, 0);
}

static void test_errors(void) {
    g_autoptr(RefitIntervalList) list = list_of("0:2");
    RefitIntervalList *lists[] = {list, list};
    const RefitPlacement two_lists = listed(0, lists, 2);
    const RefitPlacement no_chunks = strided(0, 0, 0);
    const RefitPlacement rows = chunked(0, 0);
    const guint64 sizes[] = {4, 4};
    const RefitPlacement stated = {
        .kind = REFIT_PLACEMENT_SHARD, .split = REFIT_SPLIT_SIZES, .n_sizes = 2, .sizes = sizes};
    const guint two[] = {2};
    g_autoptr(RefitSharding) padded = sharding_of(1, two, &rows);
    g_autoptr(RefitSharding) sums = sharding_of(1, two, &stated);
    g_autoptr(RefitSharding) far = sharding_of(1, two, &rows);
    g_autoptr(RefitSharding) wide = sharding_of(1, two, &rows);

    assert_add_fails(&two_lists, 3, REFIT_ERROR_PARTITION_COUNT,
                     "axis 0 has 3 positions, but 2 lists");
    assert_add_fails(&no_chunks, 2, REFIT_ERROR_INVALID, "each of 0 chunks");
    refit_sharding_set_padded(padded, 0, 7);
    assert_fails(padded, 1, (const guint64[]){8}, REFIT_ERROR_INVALID,
                 "dim 0 is padded to 7, but its extent is 8");
    assert_fails(padded, 0, NULL, REFIT_ERROR_DIM_RANGE, "dim 0 of a tensor with 0 dims is padded");
    refit_sharding_set_padded(sums, 0, 9);
    assert_fails(sums, 1, (const guint64[]){8}, REFIT_ERROR_PARTITION_SUM, "sum to 8");
    refit_sharding_set_padded(far, 2, 9);
    assert_fails(far, 1, (const guint64[]){8}, REFIT_ERROR_DIM_RANGE, "dim 2 of a tensor with 1");
    /* The tensor fits in 64 bits, its buffers would not. */
    refit_sharding_set_padded(wide, 0, 4 * (BIG / 4) + 8);
    assert_fails(wide, 2, (const guint64[]){8, 8}, REFIT_ERROR_OVERFLOW, "number of elements");
    g_assert_null(refit_interval_list_new((const RefitInterval[]){{0, 2, G_MAXUINT64}}, 1, NULL));
}

static void test_large_sizes(void) {
    const RefitPlacement each[] = {strided(0, 2, 0)};
    g_autoptr(RefitSharding) sharding = sharding_of(1, (const guint[]){2}, each);
    g_autoptr(RefitIntervalList) swapped =
        list_of("4611686018427387904:9223372036854775808 0:4611686018427387904");
    RefitIntervalList *lists[] = {swapped};
    const RefitPlacement turned[] = {listed(0, lists, 1), chunked(0, 1)};
    g_autoptr(RefitSharding) thirds = sharding_of(2, (const guint[]){1, 3}, turned);

    assert_held(sharding, 1, (const guint64[]){G_MAXUINT64},
                "[0:4611686018427387904+9223372036854775808:13835058055282163712] 0; "
                "[4611686018427387904:9223372036854775808+"
                "13835058055282163712:18446744073709551615] 1");
    assert_local(thirds, 1, 2 * BIG,
                 "7686143364045646507:9223372036854775808 0:1537228672809129302",
                 G_GUINT64_CONSTANT(3074457345618258603));
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/geometry/strided/a-part-has-one-run-of-each-chunk", test_strided);
    g_test_add_func("/geometry/strided/pieces-are-in-region-order", test_strided_sorts_pieces);
    g_test_add_func("/geometry/region/single-ranks-hold-what-is-stated", test_regions);
    g_test_add_func("/geometry/local/a-rank-of-another-part-is-no-error",
                    test_local_needs_the_rank);
    g_test_add_func("/geometry/local/every-rank-agrees-with-the-holding",
                    test_local_agrees_with_holding);
    g_test_add_func("/geometry/padding/cuts-act-on-the-padded-extent", test_padding);
    g_test_add_func("/geometry/padding/what-follows-keeps-its-place", test_padding_inside);
    g_test_add_func("/geometry/sharding/every-new-difference-counts", test_differences);
    g_test_add_func("/geometry/sharding/equal-lists-and-single-chunks-are-one-form",
                    test_normal_form);
    g_test_add_func("/geometry/sharding/text-shows-lists-chunks-and-padding", test_text);
    g_test_add_func("/geometry/sharding/new-errors-name-axis-and-numbers", test_errors);
    g_test_add_func("/geometry/holding/strides-and-lists-have-64-bits", test_large_sizes);
    return g_test_run();
}
