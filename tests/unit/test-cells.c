/*
 * Cells: the coarsest regions with the same holders and needers.
 *
 * Covered: the worked example of rows against columns; strided and interleaved lists, which form
 * cells with several intervals; needed elements that nobody holds and held elements that nobody
 * needs; ranks in two pieces; sharing of equal rank sets; 0-d tensors; no needer at all; 2^60
 * elements; and that many groups per dim cost only what is covered.
 */

#include "model/geometry/refit-geometry.h"

#define MAX_PIECES 8

/* A holding made by hand, in 2 dims, from pieces given in sorted order. */
typedef struct {
    RefitHolding holding;
    RefitPiece pieces[MAX_PIECES];
    guint ranks[MAX_PIECES][4];
} Hand;

static void hand_add(Hand *hand, const char *rows, const char *columns, guint n_ranks,
                     const guint *ranks) {
    const char *dims[2] = {rows, columns};
    guint i = hand->holding.n_pieces++;
    RefitPiece *piece = &hand->pieces[i];

    g_assert_cmpuint(i, <, MAX_PIECES);
    hand->holding.pieces = hand->pieces;
    piece->region = (RefitRegion){.n_dims = 2};
    for (guint d = 0; d < 2; d++) {
        g_auto(GStrv) words = g_strsplit(dims[d], "+", -1);
        g_autoptr(GError) error = NULL;
        RefitInterval items[8];
        guint n = 0;

        for (guint64 at = 0; words[n] != NULL; n++) {
            char *end;

            items[n].lo = g_ascii_strtoull(words[n], &end, 10);
            items[n].hi = g_ascii_strtoull(end + 1, NULL, 10);
            items[n].at = at;
            at += items[n].hi - items[n].lo;
        }
        piece->region.dims[d] = refit_interval_list_new(items, n, &error);
        g_assert_no_error(error);
    }
    piece->n_ranks = n_ranks;
    piece->ranks = hand->ranks[i];
    for (guint r = 0; r < n_ranks; r++)
        piece->ranks[r] = ranks[r];
    if (i > 0)
        g_assert_cmpint(refit_region_compare(&piece[-1].region, &piece->region), <, 0);
}

static void hand_clear(Hand *hand) {
    for (guint i = 0; i < hand->holding.n_pieces; i++)
        refit_region_clear(&hand->pieces[i].region);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Hand, hand_clear)

#define RANKS(...)                                                                                 \
    (sizeof((const guint[]){__VA_ARGS__}) / sizeof(guint)), (const guint[]) {                      \
        __VA_ARGS__                                                                                \
    }

/* "[0:2, 0:4] 8: 0 1 > 5" a line: region, volume, holders, needers. */
static void assert_cells(const RefitCells *cells, const char *expected) {
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < cells->n_cells; i++) {
        const RefitCell *cell = &cells->cells[i];
        g_autofree char *region = refit_region_to_string(&cell->region);

        g_string_append_printf(text, "%s %" G_GUINT64_FORMAT ":", region, cell->volume);
        for (guint r = 0; r < cell->n_holders; r++)
            g_string_append_printf(text, " %u", cell->holders[r]);
        g_string_append(text, " >");
        for (guint r = 0; r < cell->n_needers; r++)
            g_string_append_printf(text, " %u", cell->needers[r]);
        g_string_append_c(text, '\n');
    }
    g_assert_cmpstr(text->str, ==, expected);
}

static RefitHolding *hold_axis(guint n_ranks, guint first, const RefitPlacement *placement,
                               guint n_dims, const guint64 *shape) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    g_autoptr(GError) error = NULL;
    g_autofree guint *ranks = g_new(guint, n_ranks);
    RefitHolding *holding;

    for (guint p = 0; p < n_ranks; p++)
        ranks[p] = first + p;
    g_assert_true(refit_sharding_add(sharding, refit_mesh_new(1, &n_ranks, ranks, n_ranks, &error),
                                     placement, &error));
    holding = refit_holding_new(sharding, n_dims, shape, &error);
    g_assert_no_error(error);
    return holding;
}

static const RefitPlacement replicate = {.kind = REFIT_PLACEMENT_REPLICATE};
static const RefitPlacement rows = {.kind = REFIT_PLACEMENT_SHARD, .dim = 0};
static const RefitPlacement columns = {.kind = REFIT_PLACEMENT_SHARD, .dim = 1};

static void test_rows_to_columns(void) {
    const guint64 shape[] = {8, 4};
    g_autoptr(RefitHolding) source = hold_axis(2, 0, &rows, 2, shape);
    g_autoptr(RefitHolding) destination = hold_axis(2, 10, &columns, 2, shape);
    g_autoptr(RefitCells) cells = refit_cells_new(source, destination);

    assert_cells(cells, "[0:4, 0:2] 8: 0 > 10\n[0:4, 2:4] 8: 0 > 11\n"
                        "[4:8, 0:2] 8: 1 > 10\n[4:8, 2:4] 8: 1 > 11\n");
    g_assert_true(cells->cells[0].holders == cells->cells[1].holders);
    g_assert_true(cells->cells[0].holders != cells->cells[2].holders);
    g_assert_true(cells->cells[0].needers == cells->cells[2].needers);
}

/* Four row blocks dealt round robin to two sources; the destination halves them contiguously. */
static void test_interleaved(void) {
    g_auto(Hand) source = {.holding.n_pieces = 0};
    g_auto(Hand) destination = {.holding.n_pieces = 0};
    g_autoptr(RefitCells) cells = NULL;

    hand_add(&source, "0:1+2:3+4:5+6:7", "0:3", RANKS(0));
    hand_add(&source, "1:2+3:4+5:6+7:8", "0:3", RANKS(1));
    hand_add(&destination, "0:4", "0:3", RANKS(2, 3));
    hand_add(&destination, "4:8", "0:3", RANKS(4));
    cells = refit_cells_new(&source.holding, &destination.holding);
    assert_cells(cells, "[0:1+2:3, 0:3] 6: 0 > 2 3\n[1:2+3:4, 0:3] 6: 1 > 2 3\n"
                        "[4:5+6:7, 0:3] 6: 0 > 4\n[5:6+7:8, 0:3] 6: 1 > 4\n");
    /* Local places in a cell count from 0. */
    g_assert_cmpuint(cells->cells[2].region.dims[0]->items[1].at, ==, 1);
}

static void test_uncovered_and_unneeded(void) {
    g_auto(Hand) source = {.holding.n_pieces = 0};
    g_auto(Hand) destination = {.holding.n_pieces = 0};
    g_autoptr(RefitCells) cells = NULL;

    hand_add(&source, "0:4", "0:2", RANKS(0));
    hand_add(&source, "6:9", "0:2", RANKS(1));
    hand_add(&destination, "2:8", "1:3", RANKS(5));
    cells = refit_cells_new(&source.holding, &destination.holding);
    assert_cells(cells, "[2:4, 1:2] 2: 0 > 5\n[2:4, 2:3] 2: > 5\n[4:6, 1:2] 2: > 5\n"
                        "[4:6, 2:3] 2: > 5\n[6:8, 1:2] 2: 1 > 5\n[6:8, 2:3] 2: > 5\n");
    g_assert_null(cells->cells[1].holders);
}

/* Rank 1 holds the first rows twice; ranks 0 and 1 also appear as needers: one set, one pointer. */
static void test_rank_sets(void) {
    g_auto(Hand) source = {.holding.n_pieces = 0};
    g_auto(Hand) destination = {.holding.n_pieces = 0};
    g_autoptr(RefitCells) cells = NULL;

    hand_add(&source, "0:2", "0:1", RANKS(0, 1));
    hand_add(&source, "0:4", "0:1", RANKS(1));
    hand_add(&source, "4:6", "0:1", RANKS(0, 1));
    hand_add(&destination, "0:6", "0:1", RANKS(1));
    hand_add(&destination, "2:6", "0:1", RANKS(0));
    cells = refit_cells_new(&source.holding, &destination.holding);
    assert_cells(cells, "[0:2, 0:1] 2: 0 1 > 1\n[2:4, 0:1] 2: 1 > 0 1\n[4:6, 0:1] 2: 0 1 > 0 1\n");
    g_assert_true(cells->cells[0].holders == cells->cells[1].needers);
    g_assert_true(cells->cells[0].holders == cells->cells[2].holders);
    g_assert_true(cells->cells[0].needers == cells->cells[1].holders);
    g_assert_cmpuint(cells->rank_sets->len, ==, 2);
}

static void test_zero_dims(void) {
    g_autoptr(RefitHolding) source = hold_axis(2, 0, &replicate, 0, NULL);
    g_autoptr(RefitHolding) destination = hold_axis(3, 1, &replicate, 0, NULL);
    g_autoptr(RefitCells) cells = refit_cells_new(source, destination);

    assert_cells(cells, "[] 1: 0 1 > 1 2 3\n");
}

static void test_nobody(void) {
    const guint64 shape[] = {4};
    const guint64 none[] = {0};
    g_autoptr(RefitHolding) some = hold_axis(2, 0, &rows, 1, shape);
    g_autoptr(RefitHolding) nothing = hold_axis(2, 0, &rows, 1, none);
    g_autoptr(RefitCells) unneeded = refit_cells_new(some, nothing);
    g_autoptr(RefitCells) uncovered = refit_cells_new(nothing, some);

    assert_cells(unneeded, "");
    assert_cells(uncovered, "[0:2] 2: > 0\n[2:4] 2: > 1\n");
    refit_cells_free(NULL);
}

static void test_large_sizes(void) {
    const guint64 shape[] = {G_GUINT64_CONSTANT(1) << 40, G_GUINT64_CONSTANT(1) << 20};
    g_autoptr(RefitHolding) source = hold_axis(3, 0, &rows, 2, shape);
    g_autoptr(RefitHolding) destination = hold_axis(4, 4, &columns, 2, shape);
    g_autoptr(RefitCells) cells = refit_cells_new(source, destination);
    guint64 volume = 0;

    g_assert_cmpuint(cells->n_cells, ==, 12);
    for (guint i = 0; i < cells->n_cells; i++)
        volume += cells->cells[i].volume;
    g_assert_cmpuint(volume, ==, G_GUINT64_CONSTANT(1) << 60);
    g_assert_cmpuint(cells->cells[0].volume, ==, G_GUINT64_CONSTANT(366503875926) << 18);
}

/*
 * Pieces along a diagonal: 3000 groups in each of two dims, 9 million products, but only 3000 that
 * somebody needs.
 */
static void test_diagonal(void) {
    const guint n = 3000;
    RefitHolding holding = {.n_pieces = n, .pieces = g_new0(RefitPiece, n)};
    g_autoptr(RefitCells) cells = NULL;

    for (guint i = 0; i < n; i++) {
        RefitRegion *region = &holding.pieces[i].region;

        region->n_dims = 2;
        for (guint d = 0; d < 2; d++)
            region->dims[d] = refit_interval_list_range(i, i + 1);
        holding.pieces[i].n_ranks = 1;
        holding.pieces[i].ranks = g_memdup2(&i, sizeof i);
    }
    cells = refit_cells_new(&holding, &holding);
    g_assert_cmpuint(cells->n_cells, ==, n);
    for (guint i = 0; i < n; i++) {
        g_assert_true(refit_region_equal(&cells->cells[i].region, &holding.pieces[i].region));
        g_assert_cmpuint(cells->cells[i].holders[0], ==, i);
        g_assert_true(cells->cells[i].holders == cells->cells[i].needers);
        refit_region_clear(&holding.pieces[i].region);
        g_free(holding.pieces[i].ranks);
    }
    g_free(holding.pieces);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/geometry/cells/rows-to-columns-give-one-cell-a-pair", test_rows_to_columns);
    g_test_add_func("/geometry/cells/interleaved-shards-give-cells-of-several-intervals",
                    test_interleaved);
    g_test_add_func("/geometry/cells/needed-but-unheld-elements-have-no-holders",
                    test_uncovered_and_unneeded);
    g_test_add_func("/geometry/cells/equal-rank-sets-are-one-pointer", test_rank_sets);
    g_test_add_func("/geometry/cells/a-0-d-tensor-is-one-cell", test_zero_dims);
    g_test_add_func("/geometry/cells/no-needer-means-no-cell", test_nobody);
    g_test_add_func("/geometry/cells/sizes-have-64-bits", test_large_sizes);
    g_test_add_func("/geometry/cells/products-nobody-needs-are-not-visited", test_diagonal);
    return g_test_run();
}
