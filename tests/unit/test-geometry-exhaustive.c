/*
 * The geometry against element by element arithmetic, over complete sets of small cases.
 *
 * The oracle (geometry-oracle.h) knows shards only as bit masks of elements, dealt index by index;
 * it shares no code with the library. Nothing is sampled.
 *
 * Covered: all shardings of all meshes of 1 to 8 ranks in 1 to 3 axes (axes of 1 included) with
 * replicate, chunk and balanced placements and all cutting orders, over 0-d to 3-d shapes with
 * uneven and empty shards; all of 1 or 2 axes that also cut in strides and by lists, out of order,
 * shared, with gaps, nested in every way, and padded, with the local place of every index; all
 * pairs of different holdings of these and of two-part sides, for overlaps and cells; all pairs of
 * two arbitrary lists a side for overlaps and cells; and that the comparisons see a planted error.
 */

#include "geometry-oracle.h"

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

/* Lists of places that stand for all: numbers of `lists` below. */
typedef enum { NO_LISTS, TURNED_LISTS, SHARED_LISTS } Lists;

typedef struct {
    RefitSplit split;
    guint chunks;
    Lists lists;
} Cut;

/* A set of shardings: all meshes up to a size, all placements by `cuts`, all orders. */
typedef struct {
    const Cut *cuts;
    guint n_cuts, max_axes, max_ranks, padding;
    gboolean scattered; /* some shards are not one run or leave something out */
} Family;

typedef struct {
    const char *name;
    Family family;
    Shape shape;
} Case;

static const Cut plain_cuts[] = {{.split = REFIT_SPLIT_CHUNK}, {.split = REFIT_SPLIT_BALANCED}};
static const Cut all_cuts[] = {
    {.split = REFIT_SPLIT_CHUNK},
    {.split = REFIT_SPLIT_BALANCED},
    {.split = REFIT_SPLIT_STRIDED, .chunks = 2},
    {.split = REFIT_SPLIT_STRIDED, .chunks = 3},
    {.split = REFIT_SPLIT_LISTS, .lists = TURNED_LISTS},
    {.split = REFIT_SPLIT_LISTS, .lists = SHARED_LISTS},
};

#define PLAIN                                                                                      \
    { plain_cuts, G_N_ELEMENTS(plain_cuts), 3, MAX_RANKS, 0, FALSE }
#define SPLITS(max_ranks, padding)                                                                 \
    { all_cuts, G_N_ELEMENTS(all_cuts), 2, max_ranks, padding, TRUE }

static const Case cases[] = {
    {"small", PLAIN, {.n_dims = 0}},
    {"small", PLAIN, {1, {0}}},
    {"small", PLAIN, {1, {1}}},
    {"small", PLAIN, {1, {2}}},
    {"small", PLAIN, {1, {3}}},
    {"small", PLAIN, {1, {4}}},
    {"small", PLAIN, {1, {5}}},
    {"small", PLAIN, {1, {6}}},
    {"small", PLAIN, {1, {7}}},
    {"small", PLAIN, {1, {8}}},
    {"small", PLAIN, {1, {9}}},
    {"small", PLAIN, {2, {5, 3}}},
    {"small", PLAIN, {2, {4, 4}}},
    {"small", PLAIN, {2, {0, 3}}},
    {"small", PLAIN, {3, {2, 3, 2}}},
    {"strided-and-listed", SPLITS(4, 0), {1, {1}}},
    {"strided-and-listed", SPLITS(8, 0), {1, {4}}},
    {"strided-and-listed", SPLITS(6, 0), {1, {5}}},
    {"strided-and-listed", SPLITS(4, 0), {1, {9}}},
    {"strided-and-listed", SPLITS(4, 0), {2, {3, 4}}},
    {"padded-by-1", SPLITS(6, 1), {1, {5}}},
    {"padded-by-3", SPLITS(6, 3), {1, {5}}},
    {"padded-by-3", SPLITS(4, 3), {1, {0}}},
    {"padded-by-2", SPLITS(2, 2), {2, {3, 2}}},
};

/* Every `parts`-th place from `part` on, stored from the last to the first. */
static RefitIntervalList *turned_list(guint part, guint parts) {
    RefitInterval items[MAX_PLACES];
    guint n = 0;

    for (guint place = part; place < MAX_PLACES / 2; place += parts)
        items[n++] = (RefitInterval){.lo = place, .hi = place + 1};
    for (guint i = 0; i < n; i++)
        items[i].at = n - 1 - i;
    return refit_interval_list_new(items, n, NULL);
}

/* Places 2 part to 2 part + 2, the last of them first, then a gap: neighbours share a place. */
static RefitIntervalList *shared_list(guint part) {
    const RefitInterval items[] = {{2 * part + 2, 2 * part + 3, 0}, {2 * part, 2 * part + 2, 2}};

    return refit_interval_list_new(items, 2, NULL);
}

/* The lists of an axis of `parts`, made once and kept for all shardings. */
static RefitIntervalList *const *lists_of(Lists kind, guint parts) {
    static RefitIntervalList *made[2][MAX_RANKS + 1][MAX_RANKS];

    for (guint part = 0; part < parts; part++) {
        RefitIntervalList **list = &made[kind - TURNED_LISTS][parts][part];

        if (*list == NULL)
            *list = kind == TURNED_LISTS ? turned_list(part, parts) : shared_list(part);
    }
    return made[kind - TURNED_LISTS][parts];
}

static RefitPlacement placement_of(const Cut *cut, guint parts) {
    RefitPlacement placement = {
        .kind = REFIT_PLACEMENT_SHARD, .split = cut->split, .chunks = cut->chunks};

    if (cut->split == REFIT_SPLIT_LISTS) {
        placement.lists = lists_of(cut->lists, parts);
        placement.n_lists = parts;
    }
    return placement;
}

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

static void each_placement(Config *config, guint axis, const Shape *shape, const Family *family,
                           ConfigFunc func, gpointer user_data) {
    if (axis >= MIN(config->n_axes, G_N_ELEMENTS(config->placements))) {
        each_order(config, 0, shape, func, user_data);
        return;
    }
    config->placements[axis] = (RefitPlacement){.kind = REFIT_PLACEMENT_REPLICATE};
    each_placement(config, axis + 1, shape, family, func, user_data);
    for (guint d = 0; d < shape->n_dims; d++) {
        for (guint c = 0; c < family->n_cuts; c++) {
            config->placements[axis] = placement_of(&family->cuts[c], config->sizes[axis]);
            config->placements[axis].dim = d;
            each_placement(config, axis + 1, shape, family, func, user_data);
        }
    }
}

static void each_mesh(Config *config, guint axis, guint room, const Shape *shape,
                      const Family *family, ConfigFunc func, gpointer user_data) {
    if (axis > 0) {
        config->n_axes = axis;
        each_placement(config, 0, shape, family, func, user_data);
    }
    if (axis >= MIN(family->max_axes, G_N_ELEMENTS(config->sizes)))
        return;
    for (guint size = 1; size <= room; size++) {
        config->sizes[axis] = size;
        each_mesh(config, axis + 1, room / size, shape, family, func, user_data);
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
        for (guint d = 0; d < shape->n_dims && config->padding > 0; d++)
            refit_sharding_set_padded(sharding, d, shape->shape[d] + config->padding);
        holding = refit_holding_new(sharding, shape->n_dims, shape->shape, &error);
        g_assert_no_error(error);
        if (to == 0 && second == NULL)
            g_assert_cmpstr(compare_local(sharding, 0, config, shape), ==, NULL);
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

static void sides_collect(Sides *sides, const Shape *shape, const Family *family) {
    Config config = {.padding = family->padding};

    sides->sides = g_ptr_array_new_with_free_func(side_free);
    sides->known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    sides->small = g_array_new(FALSE, FALSE, sizeof(Config));
    sides->n_configs = 0;
    each_mesh(&config, 0, family->max_ranks, shape, family, check_and_collect, sides);
    for (guint i = 0; i < sides->small->len; i++) {
        for (guint j = 0; j < sides->small->len; j++) {
            Side *side = side_new(&g_array_index(sides->small, Config, i),
                                  &g_array_index(sides->small, Config, j), shape);

            g_assert_cmpstr(compare_holding(side->source, &side->held, FALSE, shape), ==, NULL);
            if (family->scattered)
                side_free(side);
            else
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
    const Case *test_case = data;
    const Shape *shape = &test_case->shape;
    guint64 n_calls = 0;
    guint64 n_cells = 0;
    guint64 n_pairs = 0;
    Sides sides;

    sides_collect(&sides, shape, &test_case->family);
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
    if (test_case->family.scattered && n_elements(shape) > 0) {
        g_assert_cmpuint(n_calls, >, 0);
        g_assert_cmpuint(n_cells, >, 0);
    } else if (n_elements(shape) > 0) {
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
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        GString *path = g_string_new(NULL);

        g_string_printf(path,
                        "/geometry/exhaustive/every-pair-of-%s-shardings-agrees-with-elements",
                        cases[i].name);
        g_string_append_printf(path, "/%u-d", cases[i].shape.n_dims);
        for (guint d = 0; d < cases[i].shape.n_dims; d++)
            g_string_append_printf(path, "-%" G_GUINT64_FORMAT, cases[i].shape.shape[d]);
        g_test_add_data_func(path->str, &cases[i], test_pairs);
        g_string_free(path, TRUE);
    }
    g_test_add_func("/geometry/exhaustive/every-pair-of-arbitrary-lists-agrees-with-elements",
                    test_arbitrary_lists);
    g_test_add_func("/geometry/exhaustive/a-planted-error-is-seen", test_planted_errors);
    return g_test_run();
}
