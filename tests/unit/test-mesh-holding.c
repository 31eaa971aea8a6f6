/*
 * Meshes, shardings and holdings.
 *
 * Covered: mesh errors and limits; sharding errors, normal form, equality, hash and text; holdings
 * by torch.chunk, balanced and stated sizes, nested cuts in both orders, empty shards, 0-d tensors,
 * permuted rank lists with holes, several parts with equal and different regions; 2^60 elements and
 * overflow; overlaps in order with their common region, over parts that overlap each other.
 */

#include "sharding-helpers.h"

static RefitPlacement shard(guint dim, RefitSplit split, guint order) {
    return (RefitPlacement){
        .kind = REFIT_PLACEMENT_SHARD, .dim = dim, .split = split, .order = order};
}

static RefitPlacement shard_sizes(guint dim, guint n_sizes, const guint64 *sizes) {
    return (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD,
                            .dim = dim,
                            .split = REFIT_SPLIT_SIZES,
                            .n_sizes = n_sizes,
                            .sizes = sizes};
}

static RefitMesh *mesh_of(guint n_axes, const guint *sizes, const guint *ranks, guint n_ranks) {
    g_autoptr(GError) error = NULL;
    RefitMesh *mesh = refit_mesh_new(n_axes, sizes, ranks, n_ranks, &error);

    g_assert_no_error(error);
    return mesh;
}

/* Mesh of consecutive ranks from `first`. */
static RefitMesh *mesh_from(guint n_axes, const guint *sizes, guint first) {
    guint ranks[64];
    guint n = 1;

    for (guint a = 0; a < n_axes; a++)
        n *= sizes[a];
    for (guint p = 0; p < n; p++)
        ranks[p] = first + p;
    return mesh_of(n_axes, sizes, ranks, n);
}

static void add(RefitSharding *sharding, RefitMesh *mesh, const RefitPlacement *placements) {
    g_autoptr(GError) error = NULL;

    g_assert_true(refit_sharding_add(sharding, mesh, placements, &error));
    g_assert_no_error(error);
}

static void assert_cut(guint n_axes, const guint *sizes, const RefitPlacement *placements,
                       guint n_dims, const guint64 *shape, const char *expected) {
    g_autoptr(RefitSharding) sharding = sharding_of(n_axes, sizes, placements);

    assert_held(sharding, n_dims, shape, expected);
}

/* ---- meshes ---- */

static void assert_mesh_fails(guint n_axes, const guint *sizes, const guint *ranks, guint n_ranks,
                              RefitError code, const char *words) {
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_mesh_new(n_axes, sizes, ranks, n_ranks, &error));
    g_assert_error(error, REFIT_ERROR, (int)code);
    g_assert_nonnull(strstr(error->message, words));
}

static void test_mesh_errors(void) {
    const guint ranks[] = {7, 3, 9, 3};
    const guint good[] = {0, 1, 2, 3};
    const guint huge[] = {1u << 31, 1u << 31, 1u << 31};
    const guint nine[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

    assert_mesh_fails(2, (const guint[]){2, 2}, ranks, 4, REFIT_ERROR_RANK_DUP,
                      "rank 3 is listed twice");
    assert_mesh_fails(2, (const guint[]){2, 0}, ranks, 0, REFIT_ERROR_INVALID,
                      "mesh [2, 0]: axis 1 is 0");
    assert_mesh_fails(3, (const guint[]){8, 8, 0}, good, 4, REFIT_ERROR_INVALID, "axis 2 is 0");
    assert_mesh_fails(2, (const guint[]){2, 3}, good, 4, REFIT_ERROR_MESH_SIZE,
                      "mesh [2, 3]: 4 ranks");
    assert_mesh_fails(2, (const guint[]){2, 1}, good, 4, REFIT_ERROR_MESH_SIZE, "is smaller");
    assert_mesh_fails(3, huge, good, 4, REFIT_ERROR_MESH_SIZE, "is larger");
    assert_mesh_fails(9, nine, good, 1, REFIT_ERROR_INVALID, "9 axes, the limit is 8");
    refit_mesh_free(NULL);
}

static void test_mesh_keeps_order(void) {
    const guint ranks[] = {9, 4, 0, 7};
    g_autoptr(RefitMesh) mesh = mesh_of(2, (const guint[]){2, 2}, ranks, 4);
    g_autoptr(RefitMesh) point = mesh_of(0, NULL, ranks, 1);

    for (guint i = 0; i < 4; i++)
        g_assert_cmpuint(mesh->ranks[i], ==, ranks[i]);
    g_assert_cmpuint(mesh->n_axes, ==, 2);
    g_assert_cmpuint(point->n_ranks, ==, 1);
}

static void test_ranks_sort(void) {
    guint ranks[] = {5, 1, 5, 0, 1, 5};
    const guint expected[] = {0, 1, 5};
    guint n;

    refit_ranks_sort(ranks, 6);
    n = refit_ranks_drop_repeats(ranks, 6);
    g_assert_cmpuint(n, ==, G_N_ELEMENTS(expected));
    for (guint i = 0; i < n; i++)
        g_assert_cmpuint(ranks[i], ==, expected[i]);
    refit_ranks_sort(NULL, 0);
    g_assert_cmpuint(refit_ranks_drop_repeats(NULL, 0), ==, 0);
}

/* ---- shardings ---- */

static void assert_add_fails(guint n_axes, const guint *sizes, const RefitPlacement *placements,
                             RefitError code, const char *words) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    g_autoptr(GError) error = NULL;

    g_assert_false(refit_sharding_add(sharding, mesh_from(n_axes, sizes, 0), placements, &error));
    g_assert_error(error, REFIT_ERROR, (int)code);
    g_assert_nonnull(strstr(error->message, words));
    g_assert_cmpuint(refit_sharding_n_parts(sharding), ==, 0);
}

static void test_sharding_errors(void) {
    const guint64 sizes[] = {1, 2, 3};
    const RefitPlacement equal_orders[] = {shard(1, REFIT_SPLIT_CHUNK, 4), replicate,
                                           shard(1, REFIT_SPLIT_CHUNK, 4)};
    const RefitPlacement far[] = {replicate, shard(8, REFIT_SPLIT_CHUNK, 0)};
    const RefitPlacement three[] = {shard_sizes(0, 3, sizes)};

    assert_add_fails(3, (const guint[]){2, 1, 2}, equal_orders, REFIT_ERROR_INVALID,
                     "axes 0 and 2 both shard dim 1 with order 4");
    assert_add_fails(2, (const guint[]){2, 2}, far, REFIT_ERROR_INVALID,
                     "axis 1 shards dim 8, the largest dim is 7");
    assert_add_fails(1, (const guint[]){2}, three, REFIT_ERROR_PARTITION_COUNT,
                     "2 positions, but 3 part sizes");
    refit_sharding_free(NULL);
}

static void test_sharding_normal_form(void) {
    const guint64 sizes[] = {3, 5};
    guint64 copied[] = {3, 5};
    const RefitPlacement messy[] = {
        {.kind = REFIT_PLACEMENT_REPLICATE, .dim = 5, .order = 9, .split = REFIT_SPLIT_BALANCED},
        shard(1, REFIT_SPLIT_CHUNK, 40),
        shard(1, REFIT_SPLIT_CHUNK, 7),
        shard_sizes(0, 2, copied)};
    const RefitPlacement plain[] = {replicate, shard(1, REFIT_SPLIT_CHUNK, 1),
                                    shard(1, REFIT_SPLIT_CHUNK, 0), shard_sizes(0, 2, sizes)};
    const guint axes[] = {1, 2, 2, 2};
    g_autoptr(RefitSharding) a = sharding_of(4, axes, messy);
    g_autoptr(RefitSharding) b = sharding_of(4, axes, plain);
    const RefitPlacement *stored = refit_sharding_placements(a, 0);

    copied[0] = 99; /* the sharding has its own copy */
    g_assert_true(refit_sharding_equal(a, a));
    g_assert_true(refit_sharding_equal(a, b));
    g_assert_cmpuint(refit_sharding_hash(a), ==, refit_sharding_hash(b));
    g_assert_cmpuint(stored[0].dim + stored[0].order, ==, 0);
    g_assert_cmpuint(stored[1].order, ==, 1);
    g_assert_cmpuint(stored[2].order, ==, 0);
    g_assert_cmpuint(stored[3].sizes[0], ==, 3);
    g_assert_cmpuint(refit_sharding_n_parts(a), ==, 1);
    g_assert_cmpuint(refit_sharding_mesh(a, 0)->n_ranks, ==, 8);
}

/* Changing any one thing makes another sharding. */
static void test_sharding_differences(void) {
    const guint64 sizes[2][2] = {{3, 5}, {5, 3}};
    const guint axes[] = {2, 2};
    const RefitPlacement variants[][2] = {
        {shard(0, REFIT_SPLIT_CHUNK, 0), shard(0, REFIT_SPLIT_CHUNK, 1)},
        {shard(0, REFIT_SPLIT_CHUNK, 1), shard(0, REFIT_SPLIT_CHUNK, 0)},
        {shard(0, REFIT_SPLIT_CHUNK, 0), shard(1, REFIT_SPLIT_CHUNK, 0)},
        {shard(0, REFIT_SPLIT_CHUNK, 0), shard(1, REFIT_SPLIT_BALANCED, 0)},
        {shard(0, REFIT_SPLIT_CHUNK, 0), replicate},
        {shard(0, REFIT_SPLIT_CHUNK, 0), shard_sizes(1, 2, sizes[0])},
        {shard(0, REFIT_SPLIT_CHUNK, 0), shard_sizes(1, 2, sizes[1])},
    };
    GPtrArray *all = g_ptr_array_new_with_free_func((GDestroyNotify)refit_sharding_free);

    for (guint i = 0; i < G_N_ELEMENTS(variants); i++)
        g_ptr_array_add(all, sharding_of(2, axes, variants[i]));
    g_ptr_array_add(all, sharding_of(2, (const guint[]){4, 1}, variants[0]));
    g_ptr_array_add(all, sharding_of(1, (const guint[]){4}, variants[0]));
    g_ptr_array_add(all, refit_sharding_new());
    add(g_ptr_array_index(all, all->len - 1), mesh_from(2, axes, 1), variants[0]);
    g_ptr_array_add(all, sharding_of(2, axes, variants[0]));
    add(g_ptr_array_index(all, all->len - 1), mesh_from(2, axes, 4), variants[0]);
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

static void test_sharding_text(void) {
    const guint64 sizes[] = {3, 5};
    const RefitPlacement plain[] = {replicate, shard(0, REFIT_SPLIT_CHUNK, 3)};
    const RefitPlacement rich[] = {shard(1, REFIT_SPLIT_BALANCED, 1),
                                   shard(1, REFIT_SPLIT_CHUNK, 0), shard_sizes(0, 2, sizes)};
    const guint permuted[] = {5, 6, 1, 0, 12, 13, 14, 20};
    g_autoptr(RefitSharding) a = sharding_of(2, (const guint[]){2, 4}, plain);
    g_autoptr(RefitSharding) b = refit_sharding_new();
    g_autofree char *text_a = refit_sharding_to_string(a);
    g_autofree char *text_b = NULL;

    add(b, mesh_of(3, (const guint[]){2, 2, 2}, permuted, 8), rich);
    add(b, mesh_from(0, NULL, 7), NULL);
    text_b = refit_sharding_to_string(b);
    g_assert_cmpstr(text_a, ==, "mesh [2, 4] ranks 0-7: replicate, shard(0)");
    g_assert_cmpstr(text_b, ==,
                    "mesh [2, 2, 2] ranks 5-6,1,0,12-14,20: shard(1, balanced, order 1), "
                    "shard(1, order 0), shard(0, sizes 3+5); mesh [] ranks 7");
}

/* ---- holdings ---- */

static void test_chunk(void) {
    const RefitPlacement placement[] = {shard(0, REFIT_SPLIT_CHUNK, 0)};
    const guint four[] = {4};

    assert_cut(1, four, placement, 1, (const guint64[]){10}, "[0:3] 0; [3:6] 1; [6:9] 2; [9:10] 3");
    /* ceil(5/4) = 2: nothing is left for the last rank. */
    assert_cut(1, four, placement, 1, (const guint64[]){5}, "[0:2] 0; [2:4] 1; [4:5] 2");
    assert_cut(1, four, placement, 1, (const guint64[]){2}, "[0:1] 0; [1:2] 1");
    assert_cut(1, four, placement, 1, (const guint64[]){0}, "");
}

static void test_balanced(void) {
    const RefitPlacement placement[] = {shard(0, REFIT_SPLIT_BALANCED, 0)};
    const guint four[] = {4};

    assert_cut(1, four, placement, 1, (const guint64[]){10}, "[0:3] 0; [3:6] 1; [6:8] 2; [8:10] 3");
    assert_cut(1, four, placement, 1, (const guint64[]){5}, "[0:2] 0; [2:3] 1; [3:4] 2; [4:5] 3");
    assert_cut(1, four, placement, 1, (const guint64[]){3}, "[0:1] 0; [1:2] 1; [2:3] 2");
}

static void test_stated_sizes(void) {
    const guint64 sizes[] = {4, 0, 1};
    const RefitPlacement placement[] = {replicate, shard_sizes(1, 3, sizes)};

    assert_cut(2, (const guint[]){2, 3}, placement, 2, (const guint64[]){2, 5},
               "[0:2, 0:4] 0 3; [0:2, 4:5] 2 5");
}

/* 10 rows over mesh [2, 2]: 5 + 5, then ceil(5/2) = 3 + 2 each. */
static void test_nested_orders(void) {
    const guint axes[] = {2, 2};
    const RefitPlacement outer_first[] = {shard(0, REFIT_SPLIT_CHUNK, 0),
                                          shard(0, REFIT_SPLIT_CHUNK, 1)};
    const RefitPlacement inner_first[] = {shard(0, REFIT_SPLIT_CHUNK, 1),
                                          shard(0, REFIT_SPLIT_CHUNK, 0)};

    assert_cut(2, axes, outer_first, 1, (const guint64[]){10},
               "[0:3] 0; [3:5] 1; [5:8] 2; [8:10] 3");
    assert_cut(2, axes, inner_first, 1, (const guint64[]){10},
               "[0:3] 0; [3:5] 2; [5:8] 1; [8:10] 3");
}

static void test_two_dims(void) {
    const RefitPlacement placements[] = {shard(1, REFIT_SPLIT_CHUNK, 0), replicate,
                                         shard(0, REFIT_SPLIT_CHUNK, 0)};

    /* position = 4 a + 2 b + c: a picks the columns, c the rows */
    assert_cut(3, (const guint[]){2, 2, 2}, placements, 2, (const guint64[]){4, 3},
               "[0:2, 0:2] 0 2; [0:2, 2:3] 4 6; [2:4, 0:2] 1 3; [2:4, 2:3] 5 7");
}

static void test_zero_dims(void) {
    const RefitPlacement placement[] = {replicate};

    assert_cut(1, (const guint[]){3}, placement, 0, NULL, "[] 0 1 2");
}

static void test_permuted_ranks(void) {
    const guint ranks[] = {30, 2, 17, 5, 11, 3};
    const RefitPlacement placements[] = {replicate, shard(0, REFIT_SPLIT_CHUNK, 0)};
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    g_autoptr(RefitHolding) holding = NULL;

    add(sharding, mesh_of(2, (const guint[]){3, 2}, ranks, 6), placements);
    holding = hold(sharding, 1, (const guint64[]){4});
    assert_holding(holding, "[0:2] 11 17 30; [2:4] 2 3 5");
}

static void test_parts(void) {
    const RefitPlacement rows[] = {shard(0, REFIT_SPLIT_CHUNK, 0)};
    const RefitPlacement whole[] = {replicate};
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    g_autoptr(RefitHolding) holding = NULL;
    g_autoptr(RefitHolding) nothing = NULL;
    g_autoptr(RefitSharding) empty = refit_sharding_new();

    add(sharding, mesh_from(1, (const guint[]){2}, 4), rows);
    add(sharding, mesh_from(1, (const guint[]){3}, 3), rows);  /* ranks 3, 4, 5: 2 rows each */
    add(sharding, mesh_from(1, (const guint[]){2}, 0), rows);  /* the same halves again */
    add(sharding, mesh_from(1, (const guint[]){1}, 4), rows);  /* rank 4 again, with all rows */
    add(sharding, mesh_from(1, (const guint[]){1}, 4), whole); /* and once more */
    holding = hold(sharding, 1, (const guint64[]){6});
    assert_holding(holding, "[0:2] 3; [0:3] 0 4; [0:6] 4; [2:4] 4; [3:6] 1 5; [4:6] 5");
    nothing = hold(empty, 1, (const guint64[]){6});
    assert_holding(nothing, "");
    refit_holding_free(NULL);
}

static void assert_holding_fails(const RefitSharding *sharding, guint n_dims, const guint64 *shape,
                                 RefitError code, const char *words) {
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_holding_new(sharding, n_dims, shape, &error));
    g_assert_error(error, REFIT_ERROR, (int)code);
    g_assert_nonnull(strstr(error->message, words));
}

static void test_holding_errors(void) {
    const guint64 sizes[] = {3, 5};
    const guint64 wrapping[] = {G_MAXUINT64, 9};
    const guint64 eight[] = {8, 8, 8, 8, 8, 8, 8, 8, 8};
    const guint64 huge[] = {G_GUINT64_CONSTANT(1) << 40, 1 << 20, 16};
    const RefitPlacement dim_1[] = {shard(1, REFIT_SPLIT_CHUNK, 0)};
    const RefitPlacement stated[] = {shard_sizes(0, 2, sizes)};
    const RefitPlacement over[] = {shard_sizes(0, 2, wrapping)};
    const guint two[] = {2};
    g_autoptr(RefitSharding) columns = sharding_of(1, two, dim_1);
    g_autoptr(RefitSharding) three_five = sharding_of(1, two, stated);
    g_autoptr(RefitSharding) too_much = sharding_of(1, two, over);
    g_autoptr(RefitSharding) second = sharding_of(1, two, stated);

    add(second, mesh_from(1, two, 0), dim_1);
    assert_holding_fails(columns, 1, eight, REFIT_ERROR_DIM_RANGE,
                         "shards dim 1 of a tensor with 1");
    assert_holding_fails(columns, 0, NULL, REFIT_ERROR_SCALAR_SHARD,
                         "dim 1 of a tensor without dims");
    assert_holding_fails(columns, 9, eight, REFIT_ERROR_INVALID, "9 dims, the limit is 8");
    assert_holding_fails(three_five, 1, (const guint64[]){9}, REFIT_ERROR_PARTITION_SUM,
                         "sum to 8, but the extent of dim 0 that they cut is 9");
    assert_holding_fails(too_much, 1, eight, REFIT_ERROR_OVERFLOW, "sum of stated part sizes");
    assert_holding_fails(columns, 3, huge, REFIT_ERROR_OVERFLOW, "number of elements");
    /* The first part is fine: its pieces must not leak. */
    assert_holding_fails(second, 1, eight, REFIT_ERROR_DIM_RANGE, "shards dim 1");
}

static void test_large_sizes(void) {
    const guint64 shape[] = {G_GUINT64_CONSTANT(1) << 40, G_GUINT64_CONSTANT(1) << 20};
    const guint64 longest[] = {G_MAXUINT64};
    const guint64 none[] = {G_MAXUINT64, 0, G_MAXUINT64};
    const RefitPlacement rows[] = {shard(0, REFIT_SPLIT_CHUNK, 0)};

    assert_cut(1, (const guint[]){3}, rows, 2, shape,
               "[0:366503875926, 0:1048576] 0; [366503875926:733007751852, 0:1048576] 1; "
               "[733007751852:1099511627776, 0:1048576] 2");
    assert_cut(1, (const guint[]){2}, rows, 1, longest,
               "[0:9223372036854775808] 0; [9223372036854775808:18446744073709551615] 1");
    assert_cut(1, (const guint[]){2}, rows, 3, none, "");
}

/* ---- overlaps ---- */

static void append_overlap(guint piece_a, guint piece_b, const RefitRegion *common,
                           gpointer user_data) {
    g_autofree char *text = refit_region_to_string(common);

    g_string_append_printf(user_data, "%u-%u %s\n", piece_a, piece_b, text);
}

static void test_overlaps(void) {
    const RefitPlacement rows[] = {shard(0, REFIT_SPLIT_CHUNK, 0)};
    const RefitPlacement grid[] = {shard(0, REFIT_SPLIT_CHUNK, 0), shard(1, REFIT_SPLIT_CHUNK, 0)};
    const RefitPlacement whole[] = {replicate};
    const guint64 shape[] = {6, 4};
    g_autoptr(RefitSharding) thirds = sharding_of(1, (const guint[]){3}, rows);
    g_autoptr(RefitSharding) quarters = sharding_of(2, (const guint[]){2, 2}, grid);
    g_autoptr(RefitSharding) nowhere = refit_sharding_new();
    g_autoptr(RefitHolding) a = hold(thirds, 2, shape);
    g_autoptr(RefitHolding) b = NULL;
    g_autoptr(RefitHolding) none = hold(nowhere, 2, shape);
    g_autoptr(GString) text = g_string_new(NULL);

    add(quarters, mesh_from(1, (const guint[]){1}, 9), whole);
    b = hold(quarters, 2, shape);
    assert_holding(b, "[0:3, 0:2] 0; [0:3, 2:4] 1; [0:6, 0:4] 9; [3:6, 0:2] 2; [3:6, 2:4] 3");
    refit_holding_overlaps(a, b, append_overlap, text);
    g_assert_cmpstr(text->str, ==,
                    "0-0 [0:2, 0:2]\n0-1 [0:2, 2:4]\n0-2 [0:2, 0:4]\n"
                    "1-0 [2:3, 0:2]\n1-1 [2:3, 2:4]\n1-2 [2:4, 0:4]\n"
                    "1-3 [3:4, 0:2]\n1-4 [3:4, 2:4]\n"
                    "2-2 [4:6, 0:4]\n2-3 [4:6, 0:2]\n2-4 [4:6, 2:4]\n");
    g_string_truncate(text, 0);
    refit_holding_overlaps(a, none, append_overlap, text);
    refit_holding_overlaps(none, b, append_overlap, text);
    g_assert_cmpstr(text->str, ==, "");
}

/* 6 rows as they are, halved on ranks 0 and 1, and padded to 8, halved on ranks 2 and 3. */
static void test_holding_of_several(void) {
    g_autoptr(RefitSharding) plain = refit_sharding_new(), padded = refit_sharding_new();
    const RefitSharding *const both[] = {plain, padded};
    const RefitPlacement rows = shard(0, REFIT_SPLIT_CHUNK, 0);
    g_autoptr(GError) error = NULL;

    g_assert_true(refit_sharding_add(plain, mesh_from(1, (const guint[]){2}, 0), &rows, &error));
    g_assert_true(refit_sharding_add(padded, mesh_from(1, (const guint[]){2}, 2), &rows, &error));
    refit_sharding_set_padded(padded, 0, 8);
    g_autoptr(RefitHolding) holding =
        refit_holding_new_all(both, 2, 1, (const guint64[]){6}, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(holding->n_pieces, ==, 4);
    for (guint i = 0; i < 4; i++) {
        static const char *const regions[] = {"[0:3]", "[0:4]", "[3:6]", "[4:6]"};
        static const guint ranks[] = {0, 2, 1, 3};
        g_autofree char *text = refit_region_to_string(&holding->pieces[i].region);

        g_assert_cmpstr(text, ==, regions[i]);
        g_assert_cmpuint(holding->pieces[i].n_ranks, ==, 1);
        g_assert_cmpuint(holding->pieces[i].ranks[0], ==, ranks[i]);
    }
    refit_sharding_set_padded(padded, 0, 5);
    g_assert_null(refit_holding_new_all(both, 2, 1, (const guint64[]){6}, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/geometry/mesh/new-refuses-impossible-meshes", test_mesh_errors);
    g_test_add_func("/geometry/mesh/ranks-keep-their-order", test_mesh_keeps_order);
    g_test_add_func("/geometry/mesh/ranks-sort-and-drop-repeats", test_ranks_sort);
    g_test_add_func("/geometry/sharding/add-refuses-impossible-placements", test_sharding_errors);
    g_test_add_func("/geometry/sharding/fields-without-meaning-do-not-count",
                    test_sharding_normal_form);
    g_test_add_func("/geometry/sharding/every-difference-counts", test_sharding_differences);
    g_test_add_func("/geometry/sharding/text-shows-ranks-in-mesh-order", test_sharding_text);
    g_test_add_func("/geometry/holding/chunk-puts-the-short-shard-last", test_chunk);
    g_test_add_func("/geometry/holding/balanced-shards-differ-by-one", test_balanced);
    g_test_add_func("/geometry/holding/stated-sizes-are-taken-as-stated", test_stated_sizes);
    g_test_add_func("/geometry/holding/order-says-which-axis-cuts-first", test_nested_orders);
    g_test_add_func("/geometry/holding/dims-are-cut-independently", test_two_dims);
    g_test_add_func("/geometry/holding/a-0-d-tensor-is-replicated", test_zero_dims);
    g_test_add_func("/geometry/holding/rank-lists-may-be-permuted-and-have-holes",
                    test_permuted_ranks);
    g_test_add_func("/geometry/holding/parts-share-equal-regions", test_parts);
    g_test_add_func("/geometry/holding/errors-name-dim-and-sizes", test_holding_errors);
    g_test_add_func("/geometry/holding/sizes-have-64-bits", test_large_sizes);
    g_test_add_func("/geometry/holding/overlaps-come-in-order-with-their-common-region",
                    test_overlaps);
    g_test_add_func("/geometry/holding/several-shardings-keep-their-padding",
                    test_holding_of_several);
    return g_test_run();
}
