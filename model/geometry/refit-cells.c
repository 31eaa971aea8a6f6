/*
 * Cells: the tensor cut where either side's holdings cut it.
 *
 * Problem: planning treats alike all elements with the same holders and the same needers, so it
 * needs the coarsest regions in which both are constant. Method: along each dim the sweep of
 * refit-cuts.c gives groups of indices that no shard tells apart; a cell is a product of one group
 * per dim. The recursion over the dims keeps the pieces of both sides that contain the groups
 * chosen so far and follows only groups that some remaining destination piece covers, so products
 * that nobody needs are never looked at. Rank sets are interned: first by the pieces they come
 * from, then by their ranks. Cost: the sweeps, plus pieces per cell over all cells, plus one union
 * of ranks per distinct set of pieces.
 */

#include "model/geometry/refit-cuts.h"

#include <string.h>

/* A set of numbers in ascending order: ranks, or pieces. */
typedef struct {
    guint n;
    guint items[];
} Set;

/* Pieces of one side that contain a group, for all groups of a node of the recursion. */
typedef struct {
    guint *count; /* per group; 0 outside a visit of the node */
    guint *start; /* per group: into pieces */
    GArray *pieces;
} Spread;

typedef struct {
    Spread source, destination;
    GArray *touched; /* groups that some destination piece of the node covers, ascending */
} Level;

typedef struct {
    const RefitHolding *source, *destination;
    guint n_dims;
    RefitCuts cuts[REFIT_MAX_DIMS];
    Level levels[REFIT_MAX_DIMS];
    RefitRegion region; /* borrowed groups chosen so far */
    GArray *cells;
    GPtrArray *rank_sets;
    GHashTable *by_ranks;  /* Set of ranks -> itself */
    GHashTable *by_pieces; /* Set of pieces (those of the destination follow) -> Set of ranks */
    const Set **of_piece;  /* per piece: the rank set of it alone, once asked for */
} Builder;

static guint set_hash(gconstpointer key) {
    const Set *set = key;
    guint hash = set->n;

    for (guint i = 0; i < set->n; i++) {
        hash = (hash ^ set->items[i]) * 0x9e3779b1u;
        hash ^= hash >> 15;
    }
    return hash;
}

static gboolean set_equal(gconstpointer a, gconstpointer b) {
    const Set *left = a;
    const Set *right = b;

    return left->n == right->n &&
           memcmp(left->items, right->items, left->n * sizeof *left->items) == 0;
}

static Set *set_alloc(guint n) {
    Set *set = g_malloc(sizeof *set + n * sizeof *set->items);

    set->n = n;
    return set;
}

/* The shared set of all ranks of the given pieces. */
static const Set *unite_ranks(Builder *self, const RefitHolding *holding, const guint *pieces,
                              guint n) {
    guint n_ranks = 0;
    const Set *known;
    Set *set;

    for (guint i = 0; i < n; i++)
        n_ranks += holding->pieces[pieces[i]].n_ranks;
    set = set_alloc(n_ranks);
    n_ranks = 0;
    for (guint i = 0; i < n; i++) {
        const RefitPiece *piece = &holding->pieces[pieces[i]];

        memcpy(set->items + n_ranks, piece->ranks, piece->n_ranks * sizeof *piece->ranks);
        n_ranks += piece->n_ranks;
    }
    if (n > 1) {
        refit_ranks_sort(set->items, set->n);
        set->n = refit_ranks_drop_repeats(set->items, set->n);
    }
    known = g_hash_table_lookup(self->by_ranks, set);
    if (known != NULL) {
        g_free(set);
        return known;
    }
    g_ptr_array_add(self->rank_sets, set);
    g_hash_table_add(self->by_ranks, set);
    return set;
}

/* `first` is the number of the holding's piece 0 among the pieces of both sides. */
static const Set *rank_set(Builder *self, const RefitHolding *holding, guint first,
                           const guint *pieces, guint n) {
    const Set *ranks;
    Set *key;

    if (n == 1) {
        const Set **cached = &self->of_piece[first + pieces[0]];

        if (*cached == NULL)
            *cached = unite_ranks(self, holding, pieces, 1);
        return *cached;
    }
    key = set_alloc(n);
    for (guint i = 0; i < n; i++)
        key->items[i] = first + pieces[i];
    ranks = g_hash_table_lookup(self->by_pieces, key);
    if (ranks != NULL) {
        g_free(key);
        return ranks;
    }
    ranks = unite_ranks(self, holding, pieces, n);
    g_hash_table_insert(self->by_pieces, key, (gpointer)ranks);
    return ranks;
}

static void emit(Builder *self, const guint *source, guint n_source, const guint *destination,
                 guint n_destination) {
    RefitCell cell = {.region = refit_region_copy(&self->region),
                      .volume = refit_region_volume(&self->region)};
    const Set *needers =
        rank_set(self, self->destination, self->source->n_pieces, destination, n_destination);

    cell.n_needers = needers->n;
    cell.needers = needers->items;
    if (n_source > 0) {
        const Set *holders = rank_set(self, self->source, 0, source, n_source);

        cell.n_holders = holders->n;
        cell.holders = holders->items;
    }
    g_array_append_val(self->cells, cell);
}

/* Counts the pieces that cover each group; groups not met before go to `touched`, or are skipped
 * when that is NULL and `needed` says so. */
static void spread_count(Spread *spread, const RefitCuts *cuts, const guint *list_of,
                         const guint *pieces, guint n, const Spread *needed, GArray *touched) {
    for (guint i = 0; i < n; i++) {
        guint list = list_of[pieces[i]];

        for (guint p = cuts->parts_start[list]; p < cuts->parts_start[list + 1]; p++) {
            guint group = cuts->parts[p];

            if (needed != NULL && needed->count[group] == 0)
                continue;
            if (touched != NULL && spread->count[group] == 0)
                g_array_append_val(touched, group);
            spread->count[group]++;
        }
    }
}

/* Deals the pieces to the groups; afterwards start[g] .. start[g] + count[g] are those of g. */
static void spread_fill(Spread *spread, const RefitCuts *cuts, const guint *list_of,
                        const guint *pieces, guint n, const GArray *touched) {
    guint total = 0;

    for (guint i = 0; i < touched->len; i++) {
        guint group = g_array_index(touched, guint, i);

        spread->start[group] = total;
        total += spread->count[group];
    }
    g_array_set_size(spread->pieces, total);
    for (guint i = 0; i < n; i++) {
        guint list = list_of[pieces[i]];

        for (guint p = cuts->parts_start[list]; p < cuts->parts_start[list + 1]; p++) {
            guint group = cuts->parts[p];

            if (spread->count[group] > 0)
                g_array_index(spread->pieces, guint, spread->start[group]++) = pieces[i];
        }
    }
    for (guint i = 0; i < touched->len; i++) {
        guint group = g_array_index(touched, guint, i);

        spread->start[group] -= spread->count[group];
    }
}

static int group_compare(gconstpointer a, gconstpointer b) {
    const guint *left = a;
    const guint *right = b;

    return *left < *right ? -1 : *left > *right;
}

static void descend(Builder *self, guint dim, const guint *source, guint n_source,
                    const guint *destination, guint n_destination) {
    const RefitCuts *cuts;
    Level *level;

    if (dim == self->n_dims) {
        emit(self, source, n_source, destination, n_destination);
        return;
    }
    cuts = &self->cuts[dim];
    level = &self->levels[dim];
    if (cuts->n_lists == 1) {
        self->region.dims[dim] = cuts->groups[0];
        descend(self, dim + 1, source, n_source, destination, n_destination);
        return;
    }
    g_array_set_size(level->touched, 0);
    spread_count(&level->destination, cuts, cuts->b_list, destination, n_destination, NULL,
                 level->touched);
    g_array_sort(level->touched, group_compare);
    spread_count(&level->source, cuts, cuts->a_list, source, n_source, &level->destination, NULL);
    spread_fill(&level->destination, cuts, cuts->b_list, destination, n_destination,
                level->touched);
    spread_fill(&level->source, cuts, cuts->a_list, source, n_source, level->touched);

    for (guint i = 0; i < level->touched->len; i++) {
        guint group = g_array_index(level->touched, guint, i);
        const guint *held = (guint *)(gpointer)level->source.pieces->data;
        const guint *needed = (guint *)(gpointer)level->destination.pieces->data;

        self->region.dims[dim] = cuts->groups[group];
        descend(self, dim + 1, held + level->source.start[group], level->source.count[group],
                needed + level->destination.start[group], level->destination.count[group]);
    }
    for (guint i = 0; i < level->touched->len; i++) {
        guint group = g_array_index(level->touched, guint, i);

        level->source.count[group] = 0;
        level->destination.count[group] = 0;
    }
}

static void spread_init(Spread *spread, guint n_groups) {
    spread->count = g_new0(guint, n_groups);
    spread->start = g_new0(guint, n_groups);
    spread->pieces = g_array_new(FALSE, FALSE, sizeof(guint));
}

static void spread_clear(Spread *spread) {
    g_free(spread->count);
    g_free(spread->start);
    g_array_unref(spread->pieces);
}

/* Numbers 0 .. n - 1: at the root every piece is a candidate. */
static guint *count_up(guint n) {
    guint *numbers = g_new(guint, n);

    for (guint i = 0; i < n; i++)
        numbers[i] = i;
    return numbers;
}

static void build(Builder *self) {
    guint n_source = self->source->n_pieces;
    guint n_destination = self->destination->n_pieces;
    g_autofree guint *source = count_up(n_source);
    g_autofree guint *destination = count_up(n_destination);

    self->n_dims = self->destination->pieces[0].region.n_dims;
    g_assert(n_source == 0 || self->source->pieces[0].region.n_dims == self->n_dims);
    self->region.n_dims = self->n_dims;
    self->by_ranks = g_hash_table_new(set_hash, set_equal);
    self->by_pieces = g_hash_table_new_full(set_hash, set_equal, g_free, NULL);
    self->of_piece = g_new0(const Set *, (gsize)n_source + n_destination);
    for (guint d = 0; d < self->n_dims; d++) {
        refit_cuts_init(&self->cuts[d], self->source, self->destination, d);
        spread_init(&self->levels[d].source, self->cuts[d].n_groups);
        spread_init(&self->levels[d].destination, self->cuts[d].n_groups);
        self->levels[d].touched = g_array_new(FALSE, FALSE, sizeof(guint));
    }
    descend(self, 0, source, n_source, destination, n_destination);
    for (guint d = 0; d < self->n_dims; d++) {
        refit_cuts_clear(&self->cuts[d]);
        spread_clear(&self->levels[d].source);
        spread_clear(&self->levels[d].destination);
        g_array_unref(self->levels[d].touched);
    }
    g_hash_table_unref(self->by_ranks);
    g_hash_table_unref(self->by_pieces);
    g_free(self->of_piece);
}

RefitCells *refit_cells_new(const RefitHolding *source, const RefitHolding *destination) {
    Builder self = {.source = source,
                    .destination = destination,
                    .cells = g_array_new(FALSE, FALSE, sizeof(RefitCell)),
                    .rank_sets = g_ptr_array_new_with_free_func(g_free)};
    RefitCells *cells = g_new(RefitCells, 1);

    if (destination->n_pieces > 0)
        build(&self);
    cells->rank_sets = self.rank_sets;
    cells->n_cells = self.cells->len;
    cells->cells = (RefitCell *)(gpointer)g_array_free(self.cells, FALSE);
    return cells;
}

void refit_cells_free(RefitCells *cells) {
    if (cells == NULL)
        return;
    for (guint i = 0; i < cells->n_cells; i++)
        refit_region_clear(&cells->cells[i].region);
    g_free(cells->cells);
    g_ptr_array_unref(cells->rank_sets);
    g_free(cells);
}
