/*
 * Holdings: which ranks hold which part of a tensor, and where two holdings meet.
 *
 * Problem: hundreds of ranks, few distinct shards; a class of tensors needs all shards with their
 * ranks, and the pairs of shards of two sides that have elements in common, without trying every
 * pair. Method: the axes that shard a dim cut its index range one after the other, once per
 * distinct shard and not per rank; ranks are then dealt to the product of the dims' shards by a
 * counting sort. Pieces are sorted, so they form a tree with one level per dim; overlaps walk the
 * tree of one side and keep the nodes of the other side that meet in every dim so far, with the
 * meeting pairs of lists found by one sweep per dim (refit-cuts.c). Cost: distinct shards plus
 * ranks to build; sort plus output to overlap.
 */

#include "refit-cuts.h"

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

/* torch.chunk: every part ceil(extent / parts) long until the indices run out. */
static RefitIntervalList *chunk(const RefitIntervalList *list, guint parts, guint index) {
    guint64 each = list->extent / parts + (list->extent % parts != 0);
    guint64 from = list->extent;

    if (each > 0 && index <= list->extent / each)
        from = index * each;
    return refit_interval_list_slice(list, from, from + MIN(each, list->extent - from));
}

static gboolean check_stated_sizes(const RefitPlacement *placement, guint axis, guint64 extent,
                                   GError **error) {
    guint64 sum = 0;

    for (guint i = 0; i < placement->n_sizes; i++) {
        if (!refit_checked_add(sum, placement->sizes[i], "sum of stated part sizes", &sum, error))
            return FALSE;
    }
    if (sum != extent) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "part sizes stated for mesh axis %u sum to %" G_GUINT64_FORMAT
                    ", but the extent of dim %u that they cut is %" G_GUINT64_FORMAT
                    ": state sizes that sum to it",
                    axis, sum, placement->dim, extent);
        return FALSE;
    }
    return TRUE;
}

/* Replaces the shards of a dim by the parts that one axis cuts each of them into. */
static gboolean dim_shards_cut(DimShards *shards, const RefitPlacement *placement, guint axis,
                               guint parts, GError **error) {
    RefitIntervalList **lists;

    if (placement->split == REFIT_SPLIT_SIZES) {
        for (guint i = 0; i < shards->n; i++) {
            if (!check_stated_sizes(placement, axis, shards->lists[i]->extent, error))
                return FALSE;
        }
    }
    lists = g_new(RefitIntervalList *, (gsize)shards->n * parts);
    for (guint i = 0; i < shards->n; i++) {
        const RefitIntervalList *whole = shards->lists[i];
        guint64 from = 0;

        for (guint p = 0; p < parts; p++) {
            RefitIntervalList **part = &lists[(gsize)i * parts + p];

            if (placement->split == REFIT_SPLIT_CHUNK) {
                *part = chunk(whole, parts, p);
            } else if (placement->split == REFIT_SPLIT_BALANCED) {
                *part = refit_interval_list_part(whole, parts, p);
            } else {
                *part = refit_interval_list_slice(whole, from, from + placement->sizes[p]);
                from += placement->sizes[p];
            }
        }
        refit_interval_list_unref(shards->lists[i]);
    }
    g_free(shards->lists);
    shards->lists = lists;
    shards->n *= parts;
    for (guint a = 0; a < REFIT_MAX_AXES; a++)
        shards->stride[a] *= parts;
    shards->stride[axis] = 1;
    return TRUE;
}

/* All shards of one dim; an empty DimShards after an error. */
static gboolean dim_shards_init(DimShards *shards, const RefitMesh *mesh,
                                const RefitPlacement *placements, guint dim, guint64 extent,
                                GError **error) {
    *shards = (DimShards){.n = 1, .lists = g_new(RefitIntervalList *, 1)};
    shards->lists[0] = refit_interval_list_range(0, extent);
    /* Orders of one dim count 0, 1, ... in a sharding's normal form. */
    for (guint order = 0; order < mesh->n_axes; order++) {
        for (guint a = 0; a < mesh->n_axes; a++) {
            if (placements[a].kind != REFIT_PLACEMENT_SHARD || placements[a].dim != dim ||
                placements[a].order != order)
                continue;
            if (!dim_shards_cut(shards, &placements[a], a, mesh->sizes[a], error)) {
                dim_shards_clear(shards);
                return FALSE;
            }
        }
    }
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
    const RefitPlacement *placements = refit_sharding_placements(sharding, part);
    DimShards shards[REFIT_MAX_DIMS];
    guint n_ready = 0;

    for (guint a = 0; a < mesh->n_axes; a++) {
        if (placements[a].kind == REFIT_PLACEMENT_SHARD && placements[a].dim >= n_dims) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "mesh axis %u shards dim %u of a tensor with %u dims: "
                        "name a dim below %u or replicate",
                        a, placements[a].dim, n_dims, n_dims);
            return FALSE;
        }
    }
    while (n_ready < n_dims &&
           dim_shards_init(&shards[n_ready], mesh, placements, n_ready, shape[n_ready], error))
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

static gboolean check_volume(guint n_dims, const guint64 *shape, GError **error) {
    guint64 volume = 1;

    for (guint d = 0; d < n_dims; d++) {
        if (shape[d] == 0)
            return TRUE;
    }
    for (guint d = 0; d < n_dims; d++) {
        if (!refit_checked_mul(volume, shape[d], "number of elements", &volume, error))
            return FALSE;
    }
    return TRUE;
}

RefitHolding *refit_holding_new(const RefitSharding *sharding, guint n_dims, const guint64 *shape,
                                GError **error) {
    guint n_parts = refit_sharding_n_parts(sharding);
    guint n_ranks = 0;
    Holding *holding;
    GArray *pieces;
    gboolean ok;

    if (n_dims > REFIT_MAX_DIMS) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "tensor has %u dims, the limit is %d",
                    n_dims, REFIT_MAX_DIMS);
        return NULL;
    }
    ok = check_volume(n_dims, shape, error);
    for (guint i = 0; i < n_parts; i++)
        n_ranks += refit_sharding_mesh(sharding, i)->n_ranks;
    pieces = g_array_new(FALSE, FALSE, sizeof(RefitPiece));
    holding = g_new0(Holding, 1);
    holding->ranks = g_new(guint, n_ranks);
    for (guint i = 0, used = 0; i < n_parts && ok; i++) {
        ok = add_part(pieces, sharding, i, n_dims, shape, holding->ranks + used, error);
        used += refit_sharding_mesh(sharding, i)->n_ranks;
    }
    if (ok && n_parts > 1)
        join_pieces(pieces, &holding->ranks);
    holding->holding.n_pieces = pieces->len;
    holding->holding.pieces = (RefitPiece *)(gpointer)g_array_free(pieces, FALSE);
    if (!ok) {
        refit_holding_free(&holding->holding);
        return NULL;
    }
    return &holding->holding;
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

/* A list of b that a list of a meets, and what they have in common. */
typedef struct {
    guint list;
    RefitIntervalList *common;
} Meeting;

/* A node of the tree of b: pieces [first, end) agree in the dims walked so far. */
typedef struct {
    guint first, end;
    RefitRegion common; /* borrowed lists */
} Node;

typedef struct {
    const RefitHolding *a;
    guint n_dims;
    RefitCuts cuts[REFIT_MAX_DIMS];
    GArray **meetings[REFIT_MAX_DIMS]; /* per dim and list of a, ascending */
    GArray *nodes[REFIT_MAX_DIMS + 1]; /* Node; nodes[d] meet in dims 0 .. d - 1 */
    RefitOverlapFunc func;
    gpointer user_data;
} Overlaps;

/* Lists of b that share a group with list `list`. */
static GArray *find_meetings(const RefitCuts *cuts, guint list) {
    GArray *meetings = g_array_new(FALSE, FALSE, sizeof(Meeting));
    g_autoptr(GArray) met = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint p = cuts->parts_start[list]; p < cuts->parts_start[list + 1]; p++) {
        guint group = cuts->parts[p];

        for (guint i = cuts->cover_start[group]; i < cuts->cover_start[group + 1]; i++) {
            if (cuts->in_b[cuts->cover[i]])
                g_array_append_val(met, cuts->cover[i]);
        }
    }
    refit_ranks_sort((guint *)(gpointer)met->data, met->len);
    for (guint i = 0; i < met->len; i++) {
        Meeting meeting = {.list = g_array_index(met, guint, i)};

        if (i > 0 && meeting.list == g_array_index(met, guint, i - 1))
            continue;
        meeting.common =
            refit_interval_list_intersect(cuts->lists[list], cuts->lists[meeting.list]);
        g_array_append_val(meetings, meeting);
    }
    return meetings;
}

static void overlaps_init_dim(Overlaps *self, guint dim, const RefitHolding *b) {
    RefitCuts *cuts = &self->cuts[dim];

    refit_cuts_init(cuts, self->a, b, dim);
    self->meetings[dim] = g_new0(GArray *, cuts->n_lists);
    for (guint i = 0; i < self->a->n_pieces; i++) {
        guint list = cuts->a_list[i];

        if (self->meetings[dim][list] == NULL)
            self->meetings[dim][list] = find_meetings(cuts, list);
    }
}

static void overlaps_clear_dim(Overlaps *self, guint dim) {
    for (guint l = 0; l < self->cuts[dim].n_lists; l++) {
        GArray *meetings = self->meetings[dim][l];

        if (meetings == NULL)
            continue;
        for (guint i = 0; i < meetings->len; i++)
            refit_interval_list_unref(g_array_index(meetings, Meeting, i).common);
        g_array_unref(meetings);
    }
    g_free(self->meetings[dim]);
    refit_cuts_clear(&self->cuts[dim]);
}

/* First piece in [first, end) whose list is at least `list`. */
static guint lower_bound(const guint *lists, guint first, guint end, guint list) {
    while (first < end) {
        guint middle = first + (end - first) / 2;

        if (lists[middle] < list)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* Children of `node` in `dim` whose list meets one of `meetings`. */
static void refine(GArray *children, const Node *node, guint dim, const guint *lists,
                   const GArray *meetings) {
    guint first = node->first;

    for (guint i = 0; i < meetings->len && first < node->end; i++) {
        const Meeting *meeting = &g_array_index(meetings, Meeting, i);
        Node child = *node;

        child.first = lower_bound(lists, first, node->end, meeting->list);
        child.end = lower_bound(lists, child.first, node->end, meeting->list + 1);
        first = child.end;
        if (child.first == child.end)
            continue;
        child.common.dims[dim] = meeting->common;
        g_array_append_val(children, child);
    }
}

/* Pieces [first, end) of a agree in dims 0 .. dim - 1; self->nodes[dim] are their partners. */
static void overlaps_walk(Overlaps *self, guint dim, guint first, guint end) {
    const GArray *nodes = self->nodes[dim];

    if (dim == self->n_dims) {
        for (guint i = 0; i < nodes->len; i++) {
            const Node *node = &g_array_index(nodes, Node, i);

            self->func(first, node->first, &node->common, self->user_data);
        }
        return;
    }
    while (first < end && nodes->len > 0) {
        guint list = self->cuts[dim].a_list[first];
        guint next = lower_bound(self->cuts[dim].a_list, first, end, list + 1);

        g_array_set_size(self->nodes[dim + 1], 0);
        for (guint i = 0; i < nodes->len; i++) {
            refine(self->nodes[dim + 1], &g_array_index(nodes, Node, i), dim,
                   self->cuts[dim].b_list, self->meetings[dim][list]);
        }
        overlaps_walk(self, dim + 1, first, next);
        first = next;
    }
}

void refit_holding_overlaps(const RefitHolding *a, const RefitHolding *b, RefitOverlapFunc func,
                            gpointer user_data) {
    Overlaps self = {.a = a, .func = func, .user_data = user_data};
    Node root = {.first = 0, .end = b->n_pieces};

    if (a->n_pieces == 0 || b->n_pieces == 0)
        return;
    self.n_dims = a->pieces[0].region.n_dims;
    g_assert(b->pieces[0].region.n_dims == self.n_dims);
    root.common.n_dims = self.n_dims;
    for (guint d = 0; d <= self.n_dims; d++)
        self.nodes[d] = g_array_new(FALSE, FALSE, sizeof(Node));
    for (guint d = 0; d < self.n_dims; d++)
        overlaps_init_dim(&self, d, b);
    g_array_append_val(self.nodes[0], root);
    overlaps_walk(&self, 0, 0, a->n_pieces);
    for (guint d = 0; d < self.n_dims; d++)
        overlaps_clear_dim(&self, d);
    for (guint d = 0; d <= self.n_dims; d++)
        g_array_unref(self.nodes[d]);
}
