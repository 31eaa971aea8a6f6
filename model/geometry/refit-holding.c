/*
 * Holdings: which ranks hold which part of a tensor.
 *
 * Problem: hundreds of ranks, few distinct shards; a class of tensors needs all shards with their
 * ranks. Method: the axes that shard a dim cut its index range one after the other, once per
 * distinct shard and not per rank; ranks are then dealt to the product of the dims' shards by a
 * counting sort. Plain cuts give pieces that are sorted and distinct; only several parts, strided
 * cuts and stated lists need a sort that also joins equal pieces. The question of one rank walks
 * the same cuts along its own coordinates. Cost: distinct shards plus ranks.
 */

#include "model/geometry/refit-geometry-private.h"

#include <stdlib.h>
#include <string.h>

/* The rank lists of all pieces lie in one block behind the public part. */
typedef struct {
    RefitHolding holding;
    guint *ranks;
} Holding;

/* The shards of one dim under one mesh, numbered with the axis that cuts first slowest. */
typedef struct {
    guint n;
    RefitIntervalList **lists;
    guint stride[REFIT_MAX_AXES]; /* how far one step along an axis moves the number; 0: not cut */
} DimShards;

static void dim_shards_clear(DimShards *shards) {
    for (guint i = 0; i < shards->n; i++)
        refit_interval_list_unref(shards->lists[i]);
    g_clear_pointer(&shards->lists, g_free);
    shards->n = 0;
}

static int piece_compare(const void *a, const void *b) {
    const RefitPiece *left = a;
    const RefitPiece *right = b;

    return refit_region_compare(&left->region, &right->region);
}

/* Replaces the shards of a dim by the parts that one axis cuts each of them into. */
static gboolean dim_shards_cut(DimShards *shards, const RefitPlacement *placement, guint axis,
                               guint parts, GError **error) {
    DimShards cut = {.lists = g_new(RefitIntervalList *, (gsize)shards->n * parts)};

    for (guint i = 0; i < shards->n; i++) {
        if (!refit_split_list(shards->lists[i], placement, axis, parts, 0, parts, cut.lists + cut.n,
                              error)) {
            dim_shards_clear(&cut);
            return FALSE;
        }
        cut.n += parts;
    }
    for (guint a = 0; a < REFIT_MAX_AXES; a++)
        cut.stride[a] = shards->stride[a] * parts;
    cut.stride[axis] = 1;
    dim_shards_clear(shards);
    *shards = cut;
    return TRUE;
}

/* Axis that cuts `dim` as number `order`, or -1; orders count 0, 1, ... in a normal form. */
static int axis_of_order(const RefitMesh *mesh, const RefitPlacement *placements, guint dim,
                         guint order) {
    for (guint a = 0; a < mesh->n_axes; a++) {
        if (placements[a].kind == REFIT_PLACEMENT_SHARD && placements[a].dim == dim &&
            placements[a].order == order)
            return (int)a;
    }
    return -1;
}

/* All shards of one dim; an empty DimShards after an error. */
static gboolean dim_shards_init(DimShards *shards, const RefitSharding *sharding, guint part,
                                guint dim, guint64 extent, GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
    const RefitPlacement *placements = refit_sharding_placements(sharding, part);
    guint64 padded;
    int axis;

    *shards = (DimShards){0};
    if (!refit_split_extent(sharding, dim, extent, &padded, error))
        return FALSE;
    shards->n = 1;
    shards->lists = g_new(RefitIntervalList *, 1);
    shards->lists[0] = refit_interval_list_range(0, padded);
    for (guint order = 0; (axis = axis_of_order(mesh, placements, dim, order)) >= 0; order++) {
        if (!dim_shards_cut(shards, &placements[axis], (guint)axis, mesh->sizes[axis], error)) {
            dim_shards_clear(shards);
            return FALSE;
        }
    }
    for (guint i = 0; i < shards->n && padded > extent; i++)
        shards->lists[i] = refit_split_clip(shards->lists[i], extent);
    return TRUE;
}

/* Shard number of every mesh position: positions count up like an odometer, last axis fastest. */
static void number_positions(const RefitMesh *mesh, const guint *stride, guint *shard_of) {
    guint coordinate[REFIT_MAX_AXES] = {0};
    guint shard = 0;

    for (guint p = 0; p < mesh->n_ranks; p++) {
        shard_of[p] = shard;
        for (guint a = mesh->n_axes; a-- > 0;) {
            shard += stride[a];
            if (++coordinate[a] < mesh->sizes[a])
                break;
            shard -= stride[a] * mesh->sizes[a];
            coordinate[a] = 0;
        }
    }
}

/*
 * Appends one piece per non-empty shard of a part. `ranks` takes the ranks of the mesh, grouped by
 * shard; pieces point into it.
 */
static void add_pieces(GArray *pieces, const RefitMesh *mesh, const DimShards *shards, guint n_dims,
                       guint *ranks) {
    guint stride[REFIT_MAX_AXES] = {0};
    guint n_shards = 1;
    g_autofree guint *shard_of = g_new(guint, mesh->n_ranks);
    g_autofree guint *end = NULL;

    for (guint d = n_dims; d-- > 0;) {
        for (guint a = 0; a < mesh->n_axes; a++)
            stride[a] += shards[d].stride[a] * n_shards;
        n_shards *= shards[d].n;
    }
    number_positions(mesh, stride, shard_of);
    end = g_new0(guint, n_shards + 1);
    for (guint p = 0; p < mesh->n_ranks; p++)
        end[shard_of[p] + 1]++;
    for (guint s = 0; s < n_shards; s++)
        end[s + 1] += end[s];
    /* Dealing moves end[s] from the start of shard s to its end. */
    for (guint p = 0; p < mesh->n_ranks; p++)
        ranks[end[shard_of[p]]++] = mesh->ranks[p];

    for (guint s = 0; s < n_shards; s++) {
        RefitPiece piece = {.region = {.n_dims = n_dims}};
        guint start = s > 0 ? end[s - 1] : 0;
        guint number = s;

        for (guint d = n_dims; d-- > 0;) {
            piece.region.dims[d] = shards[d].lists[number % shards[d].n];
            number /= shards[d].n;
        }
        if (refit_region_is_empty(&piece.region))
            continue;
        piece.region = refit_region_copy(&piece.region);
        piece.ranks = ranks + start;
        piece.n_ranks = end[s] - start;
        refit_ranks_sort(piece.ranks, piece.n_ranks);
        g_array_append_val(pieces, piece);
    }
}

static gboolean add_part(GArray *pieces, const RefitSharding *sharding, guint part, guint n_dims,
                         const guint64 *shape, guint *ranks, GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
    DimShards shards[REFIT_MAX_DIMS];
    guint n_ready = 0;

    if (!refit_split_check_dims(refit_sharding_placements(sharding, part), mesh->n_axes, n_dims,
                                error))
        return FALSE;
    while (n_ready < n_dims &&
           dim_shards_init(&shards[n_ready], sharding, part, n_ready, shape[n_ready], error))
        n_ready++;
    if (n_ready == n_dims)
        add_pieces(pieces, mesh, shards, n_dims, ranks);
    for (guint d = 0; d < n_ready; d++)
        dim_shards_clear(&shards[d]);
    return n_ready == n_dims;
}

static void merge_ranks(RefitPiece *into, const RefitPiece *from, guint *block) {
    guint n = into->n_ranks + from->n_ranks;

    memmove(block, into->ranks, into->n_ranks * sizeof *block);
    memcpy(block + into->n_ranks, from->ranks, from->n_ranks * sizeof *block);
    refit_ranks_sort(block, n);
    into->ranks = block;
    into->n_ranks = refit_ranks_drop_repeats(block, n);
}

/* Sorts pieces of several parts and joins those with equal regions, ranks in a new block. */
static void join_pieces(GArray *pieces, guint **block) {
    guint n_ranks = 0;
    guint n_pieces = 0;
    guint used = 0;
    guint *joined;

    g_array_sort(pieces, piece_compare);
    for (guint i = 0; i < pieces->len; i++)
        n_ranks += g_array_index(pieces, RefitPiece, i).n_ranks;
    joined = g_new(guint, n_ranks);
    for (guint i = 0; i < pieces->len; i++) {
        RefitPiece *piece = &g_array_index(pieces, RefitPiece, i);
        RefitPiece *last = n_pieces > 0 ? &g_array_index(pieces, RefitPiece, n_pieces - 1) : NULL;

        if (last != NULL && refit_region_equal(&last->region, &piece->region)) {
            used -= last->n_ranks;
            merge_ranks(last, piece, joined + used);
            used += last->n_ranks;
            refit_region_clear(&piece->region);
            continue;
        }
        memcpy(joined + used, piece->ranks, piece->n_ranks * sizeof *joined);
        piece->ranks = joined + used;
        used += piece->n_ranks;
        g_array_index(pieces, RefitPiece, n_pieces++) = *piece;
    }
    g_array_set_size(pieces, n_pieces);
    g_free(*block);
    *block = joined;
}

/* Checks what does not depend on a part: dims, padded extents and the volume they span. */
static gboolean check_shape(const RefitSharding *sharding, guint n_dims, const guint64 *shape,
                            GError **error) {
    guint64 extents[REFIT_MAX_DIMS];
    guint64 volume = 1;
    gboolean empty = FALSE;

    if (n_dims > REFIT_MAX_DIMS) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "tensor has %u dims, the limit is %d",
                    n_dims, REFIT_MAX_DIMS);
        return FALSE;
    }
    for (guint d = n_dims; d < REFIT_MAX_DIMS; d++) {
        if (refit_sharding_padded(sharding, d) != 0) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_DIM_RANGE,
                        "dim %u of a tensor with %u dims is padded: pad a dim that it has", d,
                        n_dims);
            return FALSE;
        }
    }
    for (guint d = 0; d < n_dims; d++) {
        if (!refit_split_extent(sharding, d, shape[d], &extents[d], error))
            return FALSE;
        empty = empty || extents[d] == 0;
    }
    for (guint d = 0; d < n_dims && !empty; d++) {
        if (!refit_checked_mul(volume, extents[d], "number of elements", &volume, error))
            return FALSE;
    }
    return TRUE;
}

/* Pieces of one part come out sorted and distinct unless a cut takes places out of turn. */
static gboolean needs_join(const RefitSharding *sharding) {
    const RefitMesh *mesh;
    const RefitPlacement *placements;

    if (refit_sharding_n_parts(sharding) != 1)
        return TRUE;
    mesh = refit_sharding_mesh(sharding, 0);
    placements = refit_sharding_placements(sharding, 0);
    for (guint a = 0; a < mesh->n_axes; a++) {
        if (placements[a].split == REFIT_SPLIT_STRIDED || placements[a].split == REFIT_SPLIT_LISTS)
            return TRUE;
    }
    return FALSE;
}

RefitHolding *refit_holding_new_all(const RefitSharding *const *shardings, guint n, guint n_dims,
                                    const guint64 *shape, GError **error) {
    guint n_ranks = 0;
    Holding *holding;
    GArray *pieces;
    gboolean ok = TRUE;

    for (guint s = 0; s < n; s++) {
        if (!check_shape(shardings[s], n_dims, shape, error))
            return NULL;
        for (guint i = 0; i < refit_sharding_n_parts(shardings[s]); i++)
            n_ranks += refit_sharding_mesh(shardings[s], i)->n_ranks;
    }
    pieces = g_array_new(FALSE, FALSE, sizeof(RefitPiece));
    holding = g_new0(Holding, 1);
    holding->ranks = g_new(guint, n_ranks);
    for (guint s = 0, used = 0; s < n; s++) {
        for (guint i = 0; i < refit_sharding_n_parts(shardings[s]) && ok; i++) {
            ok = add_part(pieces, shardings[s], i, n_dims, shape, holding->ranks + used, error);
            used += refit_sharding_mesh(shardings[s], i)->n_ranks;
        }
    }
    if (ok && (n != 1 || needs_join(shardings[0])))
        join_pieces(pieces, &holding->ranks);
    holding->holding.n_pieces = pieces->len;
    holding->holding.pieces = (RefitPiece *)(gpointer)g_array_free(pieces, FALSE);
    if (!ok) {
        refit_holding_free(&holding->holding);
        return NULL;
    }
    return &holding->holding;
}

RefitHolding *refit_holding_new(const RefitSharding *sharding, guint n_dims, const guint64 *shape,
                                GError **error) {
    return refit_holding_new_all(&sharding, 1, n_dims, shape, error);
}

void refit_holding_free(RefitHolding *holding) {
    Holding *self = (Holding *)holding;

    if (holding == NULL)
        return;
    for (guint i = 0; i < holding->n_pieces; i++)
        refit_region_clear(&holding->pieces[i].region);
    g_free(holding->pieces);
    g_free(self->ranks);
    g_free(self);
}

/* Coordinates of `rank` in a mesh; FALSE when it is not there. */
static gboolean find_coordinates(const RefitMesh *mesh, guint rank, guint *coordinates) {
    guint position = 0;

    while (position < mesh->n_ranks && mesh->ranks[position] != rank)
        position++;
    if (position == mesh->n_ranks)
        return FALSE;
    for (guint a = mesh->n_axes; a-- > 0;) {
        coordinates[a] = position % mesh->sizes[a];
        position /= mesh->sizes[a];
    }
    return TRUE;
}

/* What one position of a mesh keeps of a dim; NULL on error. */
static RefitIntervalList *dim_local(const RefitSharding *sharding, guint part,
                                    const guint *coordinates, guint dim, guint64 extent,
                                    guint64 *buffer_out, GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
    const RefitPlacement *placements = refit_sharding_placements(sharding, part);
    g_autoptr(RefitIntervalList) list = NULL;
    guint64 padded;
    int axis;

    if (!refit_split_extent(sharding, dim, extent, &padded, error))
        return NULL;
    list = refit_interval_list_range(0, padded);
    for (guint order = 0; (axis = axis_of_order(mesh, placements, dim, order)) >= 0; order++) {
        RefitIntervalList *kept;

        if (!refit_split_list(list, &placements[axis], (guint)axis, mesh->sizes[axis],
                              coordinates[axis], 1, &kept, error))
            return NULL;
        refit_interval_list_unref(list);
        list = kept;
    }
    *buffer_out = refit_interval_list_local_extent(list);
    return refit_split_clip(g_steal_pointer(&list), extent);
}

gboolean refit_sharding_local(const RefitSharding *sharding, guint part, guint rank, guint n_dims,
                              const guint64 *shape, RefitRegion *region_out,
                              guint64 *buffer_shape_out, GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
    g_auto(RefitRegion) region = {0};
    guint64 buffer[REFIT_MAX_DIMS] = {0};
    guint coordinates[REFIT_MAX_AXES];

    if (!find_coordinates(mesh, rank, coordinates))
        return FALSE;
    if (!check_shape(sharding, n_dims, shape, error) ||
        !refit_split_check_dims(refit_sharding_placements(sharding, part), mesh->n_axes, n_dims,
                                error))
        return FALSE;
    for (; region.n_dims < n_dims; region.n_dims++) {
        guint d = region.n_dims;

        region.dims[d] = dim_local(sharding, part, coordinates, d, shape[d], &buffer[d], error);
        if (region.dims[d] == NULL)
            return FALSE;
    }
    memcpy(buffer_shape_out, buffer, n_dims * sizeof *buffer);
    *region_out = refit_region_copy(&region);
    return TRUE;
}
