#pragma once

/*
 * Element by element oracle for the geometry of small tensors (at most 63 elements).
 *
 * Shards are bit masks of elements, dealt index by index. Each comparison gives NULL when the
 * library's answer agrees, else a word for what differs. Part of test-geometry-exhaustive.
 */

#include "model/geometry/refit-geometry.h"

#include <string.h>

#define MAX_RANKS 8

typedef struct {
    guint n_dims;
    guint64 shape[3];
} Shape;

/* What each of up to MAX_RANKS positions holds: bit e is element e in row-major order. */
typedef struct {
    guint64 held[MAX_RANKS];
    gboolean scattered; /* some cut leaves more than one run, in an order of its own */
} Held;

/* One side: what its positions hold, and the library's answer under two rank numberings. */
typedef struct {
    Held held;
    RefitHolding *source;      /* position p is rank p */
    RefitHolding *destination; /* position p is rank 20 - 2 p */
} Side;

typedef struct {
    guint n_axes;
    guint sizes[3];
    RefitPlacement placements[3];
    guint padding; /* indices of each dim beyond the tensor's */
} Config;

/* The indices that a position stores of one dim, by local place; PAD where none is stored. */
#define MAX_PLACES 24
#define PAD -1
typedef struct {
    guint n;
    int index[MAX_PLACES];
} Buffer;

static guint rank_of(guint position, gboolean destination) {
    return destination ? 20 - 2 * position : position;
}

static guint n_elements(const Shape *shape) {
    guint n = 1;

    for (guint d = 0; d < shape->n_dims; d++)
        n *= (guint)shape->shape[d];
    return n;
}

static guint index_of(const Shape *shape, guint element, guint dim) {
    for (guint d = shape->n_dims - 1; d > dim; d--)
        element /= (guint)shape->shape[d];
    return element % (guint)shape->shape[dim];
}

/* ---- oracle: sharding by dealing indices ---- */

/* Hands `n` places out to `parts` one by one: owner[i] gets place i. */
static void deal(guint n, guint parts, RefitSplit split, guint *owner) {
    guint part = 0;
    guint in_part = 0;

    for (guint i = 0; i < n; i++) {
        guint room;

        for (;;) {
            if (split == REFIT_SPLIT_BALANCED)
                room = part < n % parts ? n / parts + 1 : n / parts;
            else
                room = (n + parts - 1) / parts;
            if (in_part < room)
                break;
            part++;
            in_part = 0;
        }
        owner[i] = part;
        in_part++;
    }
}

/* The same, chunk by chunk: each of `chunks` is dealt to all parts. */
static void deal_each(guint n, guint chunks, guint parts, guint *owner) {
    guint chunk_of[MAX_PLACES];
    guint first = 0;

    deal(n, chunks, REFIT_SPLIT_CHUNK, chunk_of);
    for (guint i = 1; i <= n; i++) {
        if (i < n && chunk_of[i] == chunk_of[first])
            continue;
        deal(i - first, parts, REFIT_SPLIT_CHUNK, owner + first);
        first = i;
    }
}

/* Stores what `lists` say: place `lo + k` of the old buffer goes to place `at + k` of the new. */
static void take_listed(const Buffer *from, const RefitIntervalList *list, Buffer *to) {
    for (guint i = 0; i < list->n; i++) {
        const RefitInterval *item = &list->items[i];

        for (guint k = 0; k < item->hi - item->lo && item->lo + k < from->n; k++) {
            guint at = (guint)item->at + k;

            while (to->n <= at)
                to->index[to->n++] = PAD;
            to->index[at] = from->index[item->lo + k];
        }
    }
}

/* What part `own` of `parts` keeps of a buffer. */
static Buffer cut_buffer(const Buffer *from, const RefitPlacement *placement, guint parts,
                         guint own) {
    guint owner[MAX_PLACES];
    Buffer to = {.n = 0};

    if (placement->split == REFIT_SPLIT_LISTS) {
        take_listed(from, placement->lists[own], &to);
        return to;
    }
    if (placement->split == REFIT_SPLIT_STRIDED)
        deal_each(from->n, placement->chunks, parts, owner);
    else
        deal(from->n, parts, placement->split, owner);
    for (guint i = 0; i < from->n; i++) {
        if (owner[i] == own)
            to.index[to.n++] = from->index[i];
    }
    return to;
}

/* What the position with `coordinates` stores of dim `dim`; a gap at the end is no place. */
static Buffer kept_places(const Config *config, const guint *coordinates, guint dim, guint extent) {
    Buffer buffer = {.n = extent + config->padding};

    for (guint i = 0; i < buffer.n; i++)
        buffer.index[i] = (int)i;
    for (guint order = 0; order < 3; order++) {
        for (guint a = 0; a < config->n_axes; a++) {
            const RefitPlacement *placement = &config->placements[a];

            if (placement->kind != REFIT_PLACEMENT_SHARD || placement->dim != dim ||
                placement->order != order)
                continue;
            buffer = cut_buffer(&buffer, placement, config->sizes[a], coordinates[a]);
            while (buffer.n > 0 && buffer.index[buffer.n - 1] == PAD)
                buffer.n--;
        }
    }
    for (guint i = 0; i < buffer.n; i++) {
        if (buffer.index[i] >= (int)extent)
            buffer.index[i] = PAD;
    }
    return buffer;
}

static guint kept_indices(const Buffer *buffer) {
    guint kept = 0;

    for (guint i = 0; i < buffer->n; i++)
        kept |= buffer->index[i] != PAD ? 1u << buffer->index[i] : 0;
    return kept;
}

/* Coordinates of position `p`, last axis fastest. */
static void coordinates_of(const Config *config, guint p, guint *coordinates) {
    for (guint a = config->n_axes; a-- > 0;) {
        coordinates[a] = p % config->sizes[a];
        p /= config->sizes[a];
    }
}

static void oracle_hold(Held *held, const Config *config, const Shape *shape, guint first) {
    guint n_ranks = 1;

    for (guint a = 0; a < config->n_axes; a++) {
        RefitSplit split = config->placements[a].split;

        n_ranks *= config->sizes[a];
        held->scattered |= split == REFIT_SPLIT_STRIDED || split == REFIT_SPLIT_LISTS;
    }
    for (guint p = 0; p < n_ranks; p++) {
        guint coordinates[3] = {0};
        guint kept[3] = {0};

        coordinates_of(config, p, coordinates);
        for (guint d = 0; d < shape->n_dims; d++) {
            Buffer buffer = kept_places(config, coordinates, d, (guint)shape->shape[d]);

            kept[d] = kept_indices(&buffer);
        }
        for (guint e = 0; e < n_elements(shape); e++) {
            gboolean in = TRUE;

            for (guint d = 0; d < shape->n_dims; d++)
                in = in && (kept[d] >> index_of(shape, e, d) & 1);
            if (in)
                held->held[first + p] |= G_GUINT64_CONSTANT(1) << e;
        }
    }
}

/* ---- reading the library's answers ---- */

static gboolean list_has(const RefitIntervalList *list, guint64 index) {
    for (guint i = 0; i < list->n; i++) {
        if (index >= list->items[i].lo && index < list->items[i].hi)
            return TRUE;
    }
    return FALSE;
}

static guint64 region_mask(const RefitRegion *region, const Shape *shape) {
    guint64 mask = 0;

    for (guint e = 0; e < n_elements(shape); e++) {
        gboolean in = TRUE;

        for (guint d = 0; d < shape->n_dims; d++)
            in = in && list_has(region->dims[d], index_of(shape, e, d));
        if (in)
            mask |= G_GUINT64_CONSTANT(1) << e;
    }
    return mask;
}

static guint64 popcount(guint64 mask) {
    return (guint64)__builtin_popcountll(mask);
}

/* ---- comparisons: NULL when equal, else what differs ---- */

/* Pieces must be the different non-empty masks of the positions, each with all its ranks. */
static const char *compare_holding(const RefitHolding *holding, const Held *held,
                                   gboolean destination, const Shape *shape) {
    guint64 seen[MAX_RANKS] = {0};

    for (guint i = 0; i < holding->n_pieces; i++) {
        const RefitPiece *piece = &holding->pieces[i];
        guint64 mask = region_mask(&piece->region, shape);
        guint n = 0;

        if (mask == 0 || refit_region_volume(&piece->region) != popcount(mask))
            return "volume of a piece";
        if (i > 0 && refit_region_compare(&holding->pieces[i - 1].region, &piece->region) >= 0)
            return "order of pieces";
        for (guint r = 0; r < piece->n_ranks; r++) {
            if (r > 0 && piece->ranks[r - 1] >= piece->ranks[r])
                return "order of ranks";
            for (guint p = 0; p < MAX_RANKS; p++) {
                if (rank_of(p, destination) != piece->ranks[r])
                    continue;
                seen[p] |= mask;
                n++;
            }
        }
        if (n != piece->n_ranks)
            return "an unknown rank";
        for (guint d = 0; d < shape->n_dims && !held->scattered; d++) {
            if (piece->region.dims[d]->n != 1 || piece->region.dims[d]->items[0].at != 0)
                return "local place of a shard";
        }
    }
    for (guint p = 0; p < MAX_RANKS; p++) {
        if (seen[p] != held->held[p])
            return "elements of a rank";
    }
    return NULL;
}

/* What each position of a part is told that it stores, place by place. */
static const char *compare_local(const RefitSharding *sharding, guint part, const Config *config,
                                 const Shape *shape) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);

    for (guint p = 0; p < mesh->n_ranks; p++) {
        g_auto(RefitRegion) region = {0};
        guint64 buffer_shape[REFIT_MAX_DIMS];
        guint coordinates[3] = {0};

        if (!refit_sharding_local(sharding, part, mesh->ranks[p], shape->n_dims, shape->shape,
                                  &region, buffer_shape, NULL))
            return "local region of a rank";
        coordinates_of(config, p, coordinates);
        for (guint d = 0; d < shape->n_dims; d++) {
            const RefitIntervalList *list = region.dims[d];
            Buffer buffer = kept_places(config, coordinates, d, (guint)shape->shape[d]);
            guint n = 0;

            if (buffer_shape[d] != buffer.n)
                return "length of a buffer";
            for (guint i = 0; i < list->n; i++) {
                for (guint64 k = 0; k < list->items[i].hi - list->items[i].lo; k++, n++) {
                    guint64 at = list->items[i].at + k;

                    if (at >= buffer.n || buffer.index[at] != (int)(list->items[i].lo + k))
                        return "index at a local place";
                }
            }
            if (n != popcount(kept_indices(&buffer)) || n != list->extent)
                return "number of stored indices";
        }
    }
    return NULL;
}

/* Sees each call once, in order, with the right common elements. */
typedef struct {
    const Side *a, *b;
    const Shape *shape;
    const guint64 *mask_a, *mask_b;
    guint next_a, next_b; /* first pair not yet accounted for */
    guint64 n_calls;
    const char *wrong;
} Watch;

/* Moves to the next pair with common elements; FALSE when there is none. */
static gboolean watch_advance(Watch *watch) {
    for (; watch->next_a < watch->a->source->n_pieces; watch->next_a++, watch->next_b = 0) {
        for (; watch->next_b < watch->b->destination->n_pieces; watch->next_b++) {
            if (watch->mask_a[watch->next_a] & watch->mask_b[watch->next_b])
                return TRUE;
        }
    }
    return FALSE;
}

static void watch_overlap(guint piece_a, guint piece_b, const RefitRegion *common,
                          gpointer user_data) {
    Watch *watch = user_data;
    guint64 mask = region_mask(common, watch->shape);

    watch->n_calls++;
    if (!watch_advance(watch) || watch->next_a != piece_a || watch->next_b != piece_b)
        watch->wrong = "pair of pieces";
    else if (mask != (watch->mask_a[piece_a] & watch->mask_b[piece_b]))
        watch->wrong = "common elements";
    watch->next_b++;
}

static void piece_masks(guint64 *masks, const RefitHolding *holding, const Shape *shape) {
    g_assert_cmpuint(holding->n_pieces, <=, 2 * MAX_RANKS);
    for (guint i = 0; i < holding->n_pieces; i++)
        masks[i] = region_mask(&holding->pieces[i].region, shape);
}

static const char *compare_overlaps(const Side *a, const Side *b, const Shape *shape,
                                    guint64 *n_calls) {
    guint64 mask_a[2 * MAX_RANKS], mask_b[2 * MAX_RANKS];
    Watch watch = {.a = a, .b = b, .shape = shape, .mask_a = mask_a, .mask_b = mask_b};

    piece_masks(mask_a, a->source, shape);
    piece_masks(mask_b, b->destination, shape);
    refit_holding_overlaps(a->source, b->destination, watch_overlap, &watch);
    *n_calls += watch.n_calls;
    if (watch.wrong == NULL && watch_advance(&watch))
        watch.wrong = "a pair was left out";
    for (guint i = 0; i < a->source->n_pieces; i++) {
        for (guint j = 0; j < b->destination->n_pieces; j++) {
            const RefitRegion *x = &a->source->pieces[i].region;
            const RefitRegion *y = &b->destination->pieces[j].region;

            if (refit_region_common(x, y) != popcount(mask_a[i] & mask_b[j]))
                watch.wrong = "number of common elements";
            if (refit_region_contains(x, y) != ((mask_b[j] & ~mask_a[i]) == 0))
                watch.wrong = "containment";
        }
    }
    return watch.wrong;
}

/* Positions of `held` that have `element`, as a mask. */
static guint who_has(const Held *held, guint element) {
    guint who = 0;

    for (guint p = 0; p < MAX_RANKS; p++)
        who |= (guint)(held->held[p] >> element & 1) << p;
    return who;
}

/* The ranks as a mask of positions; all ones when they are not ascending. */
static guint rank_positions(const guint *ranks, guint n, gboolean destination) {
    guint who = 0;

    for (guint i = 0; i < n; i++) {
        if (i > 0 && ranks[i - 1] >= ranks[i])
            return ~0u;
        for (guint p = 0; p < MAX_RANKS; p++) {
            if (rank_of(p, destination) == ranks[i])
                who |= 1u << p;
        }
    }
    return who;
}

/* For each index of `dim`: which masks have an element there, one bit a mask. */
static void index_classes(guint64 *classes, const Shape *shape, guint dim, const guint64 *masks,
                          guint n_masks) {
    memset(classes, 0, 16 * sizeof *classes);
    for (guint e = 0; e < n_elements(shape); e++) {
        for (guint m = 0; m < n_masks; m++)
            classes[index_of(shape, e, dim)] |= (masks[m] >> e & 1) << m;
    }
}

/*
 * Cells expected: needed elements told apart by the classes of their indices. Fills `cell_of` with
 * the first element of each element's cell.
 */
static guint oracle_cells(guint *cell_of, const Shape *shape, const guint64 *masks, guint n_masks,
                          guint64 needed) {
    guint64 classes[3][16];
    guint n_cells = 0;

    for (guint d = 0; d < shape->n_dims; d++)
        index_classes(classes[d], shape, d, masks, n_masks);
    for (guint e = 0; e < n_elements(shape); e++) {
        gboolean found = FALSE;

        if ((needed >> e & 1) == 0)
            continue;
        for (guint f = 0; f < e && !found; f++) {
            found = needed >> f & 1;
            for (guint d = 0; d < shape->n_dims; d++) {
                found =
                    found && classes[d][index_of(shape, e, d)] == classes[d][index_of(shape, f, d)];
            }
            if (found)
                cell_of[e] = cell_of[f];
        }
        if (!found) {
            cell_of[e] = e;
            n_cells++;
        }
    }
    return n_cells;
}

/* `held` and `needed` are what the ranks of both sides have; `masks` all pieces of both sides. */
static const char *compare_cells(const RefitCells *cells, const Held *held, const Held *needed,
                                 const guint64 *masks, guint n_masks, const Shape *shape) {
    guint cell_of[64] = {0};
    guint64 all_needed = 0;
    guint64 seen = 0;

    for (guint p = 0; p < MAX_RANKS; p++)
        all_needed |= needed->held[p];
    if (cells->n_cells != oracle_cells(cell_of, shape, masks, n_masks, all_needed))
        return "number of cells";
    for (guint i = 0; i < cells->n_cells; i++) {
        const RefitCell *cell = &cells->cells[i];
        guint64 mask = region_mask(&cell->region, shape);
        guint holders = rank_positions(cell->holders, cell->n_holders, FALSE);
        guint needers = rank_positions(cell->needers, cell->n_needers, TRUE);
        guint first = (guint)__builtin_ctzll(mask | G_GUINT64_CONSTANT(1) << 63);

        if (mask == 0 || (mask & seen) != 0 || cell->volume != popcount(mask))
            return "elements of a cell";
        seen |= mask;
        for (guint e = 0; e < n_elements(shape); e++) {
            if ((mask >> e & 1) == 0)
                continue;
            if (cell_of[e] != cell_of[first])
                return "cell of an element";
            if (holders != who_has(held, e) || cell->n_holders != popcount(holders))
                return "holders of an element";
            if (needers != who_has(needed, e) || cell->n_needers != popcount(needers))
                return "needers of an element";
        }
        if (i > 0 && refit_region_compare(&cells->cells[i - 1].region, &cell->region) >= 0)
            return "order of cells";
        for (guint j = 0; j < i; j++) {
            const RefitCell *other = &cells->cells[j];
            guint other_holders = rank_positions(other->holders, other->n_holders, FALSE);
            guint other_needers = rank_positions(other->needers, other->n_needers, TRUE);

            if ((holders == other_holders) != (cell->holders == other->holders) ||
                (needers == other_needers) != (cell->needers == other->needers))
                return "sharing of rank sets";
        }
    }
    return seen == all_needed ? NULL : "needed elements without a cell";
}
