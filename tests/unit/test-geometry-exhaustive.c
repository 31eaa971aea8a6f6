/*
 * The geometry against element by element arithmetic, over complete sets of small cases.
 *
 * The oracle (geometry-oracle.h) knows shards only as bit masks of elements, dealt index by index;
 * it shares no code with the library. Nothing is sampled.
 *
 * Covered: all shardings of all meshes of 1 to 8 ranks in 1 to 3 axes (axes of 1 included) with
 * replicate, chunk and balanced placements and all cutting orders, over 0-d to 3-d shapes with
 * uneven and empty shards; all pairs of different holdings of these and of two-part sides, for
 * overlaps and cells; all pairs of two arbitrary lists a side for overlaps and cells; and that the
 * comparisons see a planted error.
 */

#include "geometry-oracle.h"

static const Shape shapes[] = {
    {.n_dims = 0},
    {.n_dims = 1, .shape = {0}},
    {.n_dims = 1, .shape = {1}},
    {.n_dims = 1, .shape = {2}},
    {.n_dims = 1, .shape = {3}},
    {.n_dims = 1, .shape = {4}},
    {.n_dims = 1, .shape = {5}},
    {.n_dims = 1, .shape = {6}},
    {.n_dims = 1, .shape = {7}},
    {.n_dims = 1, .shape = {8}},
    {.n_dims = 1, .shape = {9}},
    {.n_dims = 2, .shape = {5, 3}},
    {.n_dims = 2, .shape = {4, 4}},
    {.n_dims = 2, .shape = {0, 3}},
    {.n_dims = 3, .shape = {2, 3, 2}},
};

static const char *compare_pair(const Side *a, const Side *b, const Shape *shape,
                                guint64 *n_cells) {
    g_autoptr(RefitCells) cells = refit_cells_new(a->source, b->destination);
    guint64 masks[4 * MAX_RANKS];

    piece_masks(masks, a->source, shape);
    piece_masks(masks + a->source->n_pieces, b->destination, shape);
    *n_cells += cells->n_cells;
    return compare_cells(cells, &a->held, &b->held, masks,
                         a->source->n_pieces + b->destination->n_pieces, shape);
}

/* ---- enumeration ---- */

typedef void (*ConfigFunc)(const Config *config, const Shape *shape, gpointer user_data);

/* All cutting orders of the axes: every assignment of 0, 1, 2 that counts 0, 1, ... per dim. */
static void each_order(Config *config, guint axis, const Shape *shape, ConfigFunc func,
                       gpointer user_data) {
    guint cuts = 0;

    if (axis == config->n_axes) {
        func(config, shape, user_data);
        return;
    }
    if (config->placements[axis].kind == REFIT_PLACEMENT_REPLICATE) {
        each_order(config, axis + 1, shape, func, user_data);
        return;
    }
    for (guint a = 0; a < config->n_axes; a++) {
        cuts += config->placements[a].kind == REFIT_PLACEMENT_SHARD &&
                config->placements[a].dim == config->placements[axis].dim;
    }
    for (guint order = 0; order < cuts; order++) {
        gboolean taken = FALSE;

        for (guint a = 0; a < axis; a++) {
            taken = taken || (config->placements[a].kind == REFIT_PLACEMENT_SHARD &&
                              config->placements[a].dim == config->placements[axis].dim &&
                              config->placements[a].order == order);
        }
        if (taken)
            continue;
        config->placements[axis].order = order;
        each_order(config, axis + 1, shape, func, user_data);
    }
}

static void each_placement(Config *config, guint axis, const Shape *shape, ConfigFunc func,
                           gpointer user_data) {
    if (axis == config->n_axes) {
        each_order(config, 0, shape, func, user_data);
        return;
    }
    config->placements[axis] = (RefitPlacement){.kind = REFIT_PLACEMENT_REPLICATE};
    each_placement(config, axis + 1, shape, func, user_data);
    for (guint d = 0; d < shape->n_dims; d++) {
        for (guint s = 0; s < 2; s++) {
            config->placements[axis] =
                (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD,
                                 .dim = d,
                                 .split = s == 0 ? REFIT_SPLIT_CHUNK : REFIT_SPLIT_BALANCED};
            each_placement(config, axis + 1, shape, func, user_data);
        }
    }
}

static void each_mesh(Config *config, guint axis, guint room, const Shape *shape, ConfigFunc func,
                      gpointer user_data) {
    if (axis > 0) {
        config->n_axes = axis;
        each_placement(config, 0, shape, func, user_data);
    }
    for (guint size = 1; axis < 3 && size <= room; size++) {
        config->sizes[axis] = size;
        each_mesh(config, axis + 1, room / size, shape, func, user_data);
    }
}

static void add_part(RefitSharding *sharding, const Config *config, guint first,
                     gboolean destination) {
    g_autoptr(GError) error = NULL;
    guint ranks[MAX_RANKS];
    guint n = 1;
    RefitMesh *mesh;

    for (guint a = 0; a < config->n_axes; a++)
        n *= config->sizes[a];
    for (guint p = 0; p < n; p++)
        ranks[p] = rank_of(first + p, destination);
    mesh = refit_mesh_new(config->n_axes, config->sizes, ranks, n, &error);
    g_assert_no_error(error);
    g_assert_true(refit_sharding_add(sharding, mesh, config->placements, &error));
    g_assert_no_error(error);
}

/* Side of one part, or of two when `second` is given; the second starts at position 2. */
static Side *side_new(const Config *config, const Config *second, const Shape *shape) {
    Side *side = g_new0(Side, 1);

    oracle_hold(&side->held, config, shape, 0);
    if (second != NULL)
        oracle_hold(&side->held, second, shape, 2);
    for (guint to = 0; to < 2; to++) {
        g_autoptr(RefitSharding) sharding = refit_sharding_new();
        g_autoptr(GError) error = NULL;
        RefitHolding *holding;

        add_part(sharding, config, 0, to == 1);
        if (second != NULL)
            add_part(sharding, second, 2, to == 1);
        holding = refit_holding_new(sharding, shape->n_dims, shape->shape, &error);
        g_assert_no_error(error);
        if (to == 0)
            side->source = holding;
        else
            side->destination = holding;
    }
    return side;
}

static void side_free(gpointer data) {
    Side *side = data;

    refit_holding_free(side->source);
    refit_holding_free(side->destination);
    g_free(side);
}

/* Sides whose holdings differ. Equal holdings are equal arguments, so one of them stands for all.
 */
typedef struct {
    GPtrArray *sides;
    GHashTable *known; /* text of the pieces */
    GArray *small;     /* configs of one axis and at most 4 ranks */
    guint64 n_configs;
} Sides;

/* Text of pieces and ranks, which is all that overlaps and cells can see. */
static char *side_key(const Side *side) {
    GString *key = g_string_new(NULL);

    for (guint i = 0; i < side->source->n_pieces; i++) {
        const RefitPiece *piece = &side->source->pieces[i];
        g_autofree char *text = refit_region_to_string(&piece->region);

        g_string_append(key, text);
        for (guint r = 0; r < piece->n_ranks; r++)
            g_string_append_printf(key, " %u", piece->ranks[r]);
        g_string_append_c(key, '\n');
    }
    return g_string_free(key, FALSE);
}

static void sides_add(Sides *sides, Side *side) {
    char *key = side_key(side);

    if (g_hash_table_add(sides->known, key))
        g_ptr_array_add(sides->sides, side);
    else
        side_free(side);
}

static void check_and_collect(const Config *config, const Shape *shape, gpointer user_data) {
    Sides *sides = user_data;
    Side *side = side_new(config, NULL, shape);

    g_assert_cmpstr(compare_holding(side->source, &side->held, FALSE, shape), ==, NULL);
    g_assert_cmpstr(compare_holding(side->destination, &side->held, TRUE, shape), ==, NULL);
    sides->n_configs++;
    if (config->n_axes == 1 && config->sizes[0] <= 4)
        g_array_append_val(sides->small, *config);
    sides_add(sides, side);
}

static void sides_collect(Sides *sides, const Shape *shape, gboolean two_parts) {
    Config config = {.n_axes = 0};

    sides->sides = g_ptr_array_new_with_free_func(side_free);
    sides->known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    sides->small = g_array_new(FALSE, FALSE, sizeof(Config));
    sides->n_configs = 0;
    each_mesh(&config, 0, MAX_RANKS, shape, check_and_collect, sides);
    for (guint i = 0; two_parts && i < sides->small->len; i++) {
        for (guint j = 0; j < sides->small->len; j++) {
            Side *side = side_new(&g_array_index(sides->small, Config, i),
                                  &g_array_index(sides->small, Config, j), shape);

            g_assert_cmpstr(compare_holding(side->source, &side->held, FALSE, shape), ==, NULL);
            sides_add(sides, side);
        }
    }
}

static void sides_clear(Sides *sides) {
    g_ptr_array_unref(sides->sides);
    g_hash_table_unref(sides->known);
    g_array_unref(sides->small);
}

/* ---- tests ---- */

static void test_pairs(gconstpointer data) {
    const Shape *shape = data;
    guint64 n_calls = 0;
    guint64 n_cells = 0;
    guint64 n_pairs = 0;
    Sides sides;

    sides_collect(&sides, shape, TRUE);
    for (guint i = 0; i < sides.sides->len; i++) {
        for (guint j = 0; j < sides.sides->len; j++) {
            const Side *a = g_ptr_array_index(sides.sides, i);
            const Side *b = g_ptr_array_index(sides.sides, j);

            g_assert_cmpstr(compare_overlaps(a, b, shape, &n_calls), ==, NULL);
            g_assert_cmpstr(compare_pair(a, b, shape, &n_cells), ==, NULL);
            n_pairs++;
        }
    }
    g_test_message("%" G_GUINT64_FORMAT " shardings, %u different holdings, %" G_GUINT64_FORMAT
                   " pairs, %" G_GUINT64_FORMAT " overlaps, %" G_GUINT64_FORMAT " cells",
                   sides.n_configs, sides.sides->len, n_pairs, n_calls, n_cells);
    /* 15 meshes of 8 ranks alone: a smaller count means that the enumeration lost cases. */
    g_assert_cmpuint(sides.n_configs, >=, 66);
    if (n_elements(shape) > 0) {
        g_assert_cmpuint(n_calls, >=, n_pairs);
        g_assert_cmpuint(n_cells, >=, n_pairs);
    } else {
        g_assert_cmpuint(n_calls + n_cells, ==, 0);
    }
    sides_clear(&sides);
}

/* A holding of one or two pieces of a 1-d tensor, made by hand: the indices in each mask. */
static void list_holding(RefitHolding *holding, RefitPiece *pieces, guint *ranks, guint first,
                         guint second, gboolean destination) {
    guint masks[2] = {first, second};

    *holding = (RefitHolding){.pieces = pieces};
    for (guint i = 0; i < 2; i++) {
        RefitInterval items[4];
        guint n = 0;
        RefitPiece *piece = &pieces[holding->n_pieces];

        for (guint index = 0; index < 4; index++) {
            if (masks[i] >> index & 1) {
                items[n] = (RefitInterval){.lo = index, .hi = index + 1, .at = n};
                n++;
            }
        }
        if (n == 0)
            continue;
        ranks[i] = rank_of(i, destination);
        piece->region = (RefitRegion){.n_dims = 1};
        piece->region.dims[0] = refit_interval_list_new(items, n, NULL);
        piece->n_ranks = 1;
        piece->ranks = &ranks[i];
        holding->n_pieces++;
    }
    if (holding->n_pieces == 2 && refit_region_compare(&pieces[0].region, &pieces[1].region) > 0) {
        RefitPiece swapped = pieces[0];

        pieces[0] = pieces[1];
        pieces[1] = swapped;
    }
}

static void pieces_clear(RefitHolding *holding) {
    for (guint i = 0; i < holding->n_pieces; i++)
        refit_region_clear(&holding->pieces[i].region);
}

/* Two arbitrary index sets a side, interleaved in every way. Equal sets would be one piece. */
static void test_arbitrary_lists(void) {
    const Shape shape = {.n_dims = 1, .shape = {4}};
    guint64 n_cells = 0;
    guint64 n_calls = 0;

    for (guint code = 0; code < 1u << 16; code++) {
        guint mask[4] = {code & 15, code >> 4 & 15, code >> 8 & 15, code >> 12};
        RefitHolding source, destination;
        RefitPiece source_pieces[2], destination_pieces[2];
        guint source_ranks[2], destination_ranks[2];
        Side a = {.held.held = {mask[0], mask[1]}, .source = &source};
        Side b = {.held.held = {mask[2], mask[3]}, .destination = &destination};

        if (mask[0] == mask[1] || mask[2] == mask[3])
            continue;
        list_holding(&source, source_pieces, source_ranks, mask[0], mask[1], FALSE);
        list_holding(&destination, destination_pieces, destination_ranks, mask[2], mask[3], TRUE);
        g_assert_cmpstr(compare_overlaps(&a, &b, &shape, &n_calls), ==, NULL);
        g_assert_cmpstr(compare_pair(&a, &b, &shape, &n_cells), ==, NULL);
        pieces_clear(&source);
        pieces_clear(&destination);
    }
    g_test_message("%" G_GUINT64_FORMAT " overlaps, %" G_GUINT64_FORMAT " cells", n_calls, n_cells);
    g_assert_cmpuint(n_calls, >, 100000);
    g_assert_cmpuint(n_cells, >, 100000);
}

/* Every comparison must notice one wrong bit in what it expects, wherever the bit is. */
static void test_planted_errors(void) {
    const Shape shape = {.n_dims = 2, .shape = {5, 3}};
    const Config rows = {
        .n_axes = 1, .sizes = {4}, .placements = {{.kind = REFIT_PLACEMENT_SHARD, .dim = 0}}};
    const Config columns = {.n_axes = 2,
                            .sizes = {2, 2},
                            .placements = {{.kind = REFIT_PLACEMENT_REPLICATE},
                                           {.kind = REFIT_PLACEMENT_SHARD, .dim = 1}}};
    Side *a = side_new(&rows, NULL, &shape);
    Side *b = side_new(&columns, NULL, &shape);
    Side *other = side_new(&columns, &rows, &shape);
    guint64 counter = 0;

    g_assert_cmpstr(compare_holding(a->source, &a->held, FALSE, &shape), ==, NULL);
    g_assert_cmpstr(compare_overlaps(a, b, &shape, &counter), ==, NULL);
    g_assert_cmpstr(compare_pair(a, b, &shape, &counter), ==, NULL);
    g_assert_cmpuint(counter, >, 0);
    for (guint p = 0; p < 4; p++) {
        for (guint e = 0; e < n_elements(&shape); e++) {
            guint64 bit = G_GUINT64_CONSTANT(1) << e;

            a->held.held[p] ^= bit;
            g_assert_nonnull(compare_holding(a->source, &a->held, FALSE, &shape));
            g_assert_nonnull(compare_pair(a, b, &shape, &counter));
            a->held.held[p] ^= bit;
            b->held.held[p] ^= bit;
            g_assert_nonnull(compare_holding(b->destination, &b->held, TRUE, &shape));
            g_assert_nonnull(compare_pair(a, b, &shape, &counter));
            b->held.held[p] ^= bit;
        }
    }
    for (guint i = 0; i < b->destination->n_pieces; i++) {
        guint64 masks_a[2 * MAX_RANKS], masks_b[2 * MAX_RANKS];
        Watch watch = {.a = a, .b = b, .shape = &shape, .mask_a = masks_a, .mask_b = masks_b};

        piece_masks(masks_a, a->source, &shape);
        piece_masks(masks_b, b->destination, &shape);
        masks_b[i] ^= 1;
        refit_holding_overlaps(a->source, b->destination, watch_overlap, &watch);
        g_assert_nonnull(watch.wrong);
    }
    /* Cells of another pair: right in themselves, wrong here. */
    {
        g_autoptr(RefitCells) cells = refit_cells_new(a->source, other->destination);
        guint64 masks[4 * MAX_RANKS];

        piece_masks(masks, a->source, &shape);
        piece_masks(masks + a->source->n_pieces, b->destination, &shape);
        g_assert_nonnull(compare_cells(cells, &a->held, &b->held, masks,
                                       a->source->n_pieces + b->destination->n_pieces, &shape));
    }
    side_free(a);
    side_free(b);
    side_free(other);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(shapes); i++) {
        GString *path =
            g_string_new("/geometry/exhaustive/every-pair-of-small-shardings-agrees-with-elements");

        g_string_append_printf(path, "/%u-d", shapes[i].n_dims);
        for (guint d = 0; d < shapes[i].n_dims; d++)
            g_string_append_printf(path, "-%" G_GUINT64_FORMAT, shapes[i].shape[d]);
        g_test_add_data_func(path->str, &shapes[i], test_pairs);
        g_string_free(path, TRUE);
    }
    g_test_add_func("/geometry/exhaustive/every-pair-of-arbitrary-lists-agrees-with-elements",
                    test_arbitrary_lists);
    g_test_add_func("/geometry/exhaustive/a-planted-error-is-seen", test_planted_errors);
    return g_test_run();
}
