/*
 * Meshes and placements of explicit layouts.
 *
 *   replicate                                       every rank of the axis holds all of it
 *   shard(0), {shard: 0}                            chunks of dim 0
 *   {shard: 0, split: balanced}                     parts that differ by one at most
 *   {shard: 0, sizes: [3, 5]}                       stated parts
 *   {shard: 0, split: strided, chunks: 4}           of each of four chunks, a chunk
 *   {shard: 0, lists: [[6, 0-1], [2-5]]}            stated places, stored in this order
 *   {shard: 0, segments: [{extent: 8, ways: 2}]}    side by side, each cut on its own
 *
 * Everything that follows from the text alone is refused here, at its line; what depends on a shape
 * is collected as needs, so that a rule for thousands of tensors is not cut again for each. When
 * two axes cut one dim their order is stated, never guessed. Cost: the text, and ranks.
 */

#include "model/layout/refit-layout-explicit.h"

#include <string.h>

/* The last two limit what a small text can ask for. */
#define MAX_CHUNKS (1u << 16)
#define MAX_INTERVALS (1u << 20)

/* Placements under construction, and what they borrow. */
typedef struct {
    RefitPlacement placements[REFIT_MAX_AXES];
    gboolean ordered[REFIT_MAX_AXES];
    guint64 *sizes[REFIT_MAX_AXES];
    RefitIntervalList **lists[REFIT_MAX_AXES];
    guint64 extent[REFIT_MAX_AXES]; /* of the segments */
} Places;

static void places_clear(Places *places) {
    for (guint a = 0; a < REFIT_MAX_AXES; a++) {
        g_free(places->sizes[a]);
        refit_lists_free(places->lists[a], places->placements[a].n_lists);
    }
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Places, places_clear)

/* ---- one placement ---- */

static gboolean read_place_text(RefitNode *node, RefitPlacement *placement, GError **error) {
    const char *text;
    guint64 dim;

    if (!refit_node_string(node, &text, error))
        return FALSE;
    if (g_str_equal(text, "replicate"))
        return TRUE;
    if (g_str_has_prefix(text, "shard(") && g_str_has_suffix(text, ")")) {
        g_autofree char *inside = g_strndup(text + 6, strlen(text) - 7);
        if (g_ascii_string_to_unsigned(inside, 10, 0, REFIT_MAX_DIMS - 1, &dim, NULL)) {
            placement->kind = REFIT_PLACEMENT_SHARD;
            placement->dim = (guint)dim;
            return TRUE;
        }
    }
    refit_node_error(node, REFIT_ERROR_INVALID, error,
                     "\"%s\" is not a placement; write replicate, shard(DIM) with a dim from 0 to "
                     "%u, or {shard: DIM, split: ..., order: N}",
                     text, REFIT_MAX_DIMS - 1);
    return FALSE;
}

/* A list with one item per rank of the axis. */
static gboolean expect_parts(RefitNode *node, const char *what, guint axis_size, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (refit_node_size(node) != axis_size) {
        refit_node_error(node, REFIT_ERROR_PARTITION_COUNT, error,
                         "%u %ss for a mesh axis of %u ranks; state one %s per rank",
                         refit_node_size(node), what, axis_size, what);
        return FALSE;
    }
    return TRUE;
}

static gboolean read_sizes(RefitNode *node, guint axis, guint axis_size, Places *places,
                           GError **error) {
    guint64 sum = 0;

    if (!expect_parts(node, "size", axis_size, error))
        return FALSE;
    places->sizes[axis] = g_new(guint64, axis_size);
    for (guint i = 0; i < axis_size; i++) {
        guint64 *size = &places->sizes[axis][i];
        if (!refit_node_uint(refit_node_at(node, i), 0, G_MAXINT64, size, error) ||
            !refit_checked_add(sum, *size, "sum of shard sizes", &sum, error))
            return FALSE;
    }
    places->placements[axis].n_sizes = axis_size;
    places->placements[axis].sizes = places->sizes[axis];
    return TRUE;
}

static gboolean read_chunks(RefitNode *node, guint axis, guint axis_size, Places *places,
                            GError **error) {
    guint64 chunks;

    if (!refit_node_uint(node, 1, MIN(MAX_CHUNKS, MAX_INTERVALS / axis_size), &chunks, error))
        return FALSE;
    places->placements[axis].chunks = (guint)chunks;
    return TRUE;
}

/* "8" or "0-3", which is inclusive. */
static gboolean read_places_item(RefitNode *node, RefitInterval *item, GError **error) {
    const char *text;
    guint64 ends[2];

    if (!refit_node_string(node, &text, error))
        return FALSE;
    g_auto(GStrv) parts = g_strsplit(text, "-", 2);
    guint n = g_strv_length(parts);
    gboolean ok = n > 0;
    for (guint i = 0; ok && i < n; i++)
        ok = g_ascii_string_to_unsigned(parts[i], 10, 0, G_MAXINT64 - 1, &ends[i], NULL);
    if (!ok || ends[0] > ends[n - 1]) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "\"%s\" is not a place; write a number or first-last, as in 0-3", text);
        return FALSE;
    }
    item->lo = ends[0];
    item->hi = ends[n - 1] + 1;
    return TRUE;
}

static RefitIntervalList *read_list(RefitNode *node, GError **error) {
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    g_autoptr(GError) inner = NULL;
    guint64 at = 0;

    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return NULL;
    for (guint i = 0; i < refit_node_size(node); i++) {
        RefitInterval item = {.at = at};
        if (!read_places_item(refit_node_at(node, i), &item, error) ||
            !refit_checked_add(at, item.hi - item.lo, "number of places", &at, error))
            return NULL;
        g_array_append_val(items, item);
    }
    RefitIntervalList *list =
        refit_interval_list_new((RefitInterval *)(gpointer)items->data, items->len, &inner);
    if (list == NULL)
        refit_node_error(node, (RefitError)inner->code, error, "%s", inner->message);
    return list;
}

static gboolean read_lists(RefitNode *node, guint axis, guint axis_size, Places *places,
                           GError **error) {
    if (!expect_parts(node, "list", axis_size, error))
        return FALSE;
    places->lists[axis] = g_new0(RefitIntervalList *, axis_size);
    places->placements[axis].n_lists = axis_size;
    places->placements[axis].lists = places->lists[axis];
    for (guint i = 0; i < axis_size; i++) {
        places->lists[axis][i] = read_list(refit_node_at(node, i), error);
        if (places->lists[axis][i] == NULL)
            return FALSE;
    }
    return TRUE;
}

static gboolean read_segments(RefitNode *node, guint axis, guint axis_size, Places *places,
                              GError **error) {
    guint n = refit_node_size(node);
    g_autofree RefitSegment *segments = g_new0(RefitSegment, n);

    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (n == 0 || n > MAX_INTERVALS / axis_size) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "%u segments over %u ranks; state at least 1 and at most %u", n, axis_size,
                         MAX_INTERVALS / axis_size);
        return FALSE;
    }
    for (guint i = 0; i < n; i++) {
        RefitNode *item = refit_node_at(node, i);
        if (!refit_node_expect(item, REFIT_NODE_MAPPING, error))
            return FALSE;
        RefitNode *extent = refit_node_require(item, "extent", error);
        segments[i].ways = axis_size;
        if (extent == NULL || !refit_node_uint(extent, 0, G_MAXINT64, &segments[i].extent, error) ||
            !refit_node_get_uint(item, "ways", 1, axis_size, &segments[i].ways, error) ||
            !refit_checked_add(places->extent[axis], segments[i].extent, "sum of segments",
                               &places->extent[axis], error))
            return FALSE;
    }
    places->lists[axis] = refit_lists_of_segments(segments, n, axis_size);
    places->placements[axis].n_lists = axis_size;
    places->placements[axis].lists = places->lists[axis];
    return TRUE;
}

/* The splits by name, and the key that each of them goes with. */
typedef struct {
    RefitSplit split;
    const char *key;
    gboolean (*read)(RefitNode *node, guint axis, guint axis_size, Places *places, GError **error);
} Split;
static const char *const split_names[] = {"chunk", "balanced", "sizes", "strided",
                                          "lists", "segments", NULL};
static const Split splits[] = {
    {REFIT_SPLIT_CHUNK, NULL, NULL},          {REFIT_SPLIT_BALANCED, NULL, NULL},
    {REFIT_SPLIT_SIZES, "sizes", read_sizes}, {REFIT_SPLIT_STRIDED, "chunks", read_chunks},
    {REFIT_SPLIT_LISTS, "lists", read_lists}, {REFIT_SPLIT_LISTS, "segments", read_segments},
};

/* The split that `node` states, or that follows from the key it has; and that key's value. */
static const Split *find_split(RefitNode *node, RefitNode **value_out, GError **error) {
    RefitNode *how = refit_node_get(node, "split");
    guint split = 0;

    if (how != NULL && !refit_node_choice(how, split_names, &split, error))
        return NULL;
    *value_out = NULL;
    for (guint i = 0; i < G_N_ELEMENTS(splits); i++) {
        RefitNode *value = splits[i].key != NULL ? refit_node_get(node, splits[i].key) : NULL;
        if (value != NULL && how == NULL && *value_out == NULL)
            split = i;
        if (value != NULL && i != split) {
            refit_node_error(value, REFIT_ERROR_INVALID, error,
                             "%s belongs to split: %s, but this is split: %s; keep one",
                             splits[i].key, split_names[i], split_names[split]);
            return NULL;
        }
        if (value != NULL)
            *value_out = value;
    }
    if (splits[split].key != NULL && *value_out == NULL) {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "split: %s needs the key %s",
                         split_names[split], splits[split].key);
        return NULL;
    }
    return &splits[split];
}

static gboolean read_place(RefitNode *node, guint axis, guint axis_size, Places *places,
                           GError **error) {
    RefitPlacement *placement = &places->placements[axis];
    RefitNode *value;
    guint64 dim;

    if (refit_node_kind(node) == REFIT_NODE_SCALAR)
        return read_place_text(node, placement, error);
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    RefitNode *shard = refit_node_require(node, "shard", error);
    places->ordered[axis] = refit_node_get(node, "order") != NULL;
    if (shard == NULL || !refit_node_uint(shard, 0, REFIT_MAX_DIMS - 1, &dim, error) ||
        !refit_node_get_uint(node, "order", 0, G_MAXUINT32, &placement->order, error))
        return FALSE;
    const Split *split = find_split(node, &value, error);
    if (split == NULL)
        return FALSE;
    placement->kind = REFIT_PLACEMENT_SHARD;
    placement->dim = (guint)dim;
    placement->split = split->split;
    return split->read == NULL || split->read(value, axis, axis_size, places, error);
}

static gboolean check_order(RefitNode *node, const Places *places, guint n_axes, GError **error) {
    for (guint i = 0; i < n_axes; i++) {
        const RefitPlacement *a = &places->placements[i];
        for (guint j = i + 1; j < n_axes; j++) {
            const RefitPlacement *b = &places->placements[j];
            if (a->kind != REFIT_PLACEMENT_SHARD || b->kind != REFIT_PLACEMENT_SHARD ||
                a->dim != b->dim ||
                (places->ordered[i] && places->ordered[j] && a->order != b->order))
                continue;
            refit_node_error(node, REFIT_ERROR_INVALID, error,
                             "dim %u is cut by mesh axes %u and %u; say which cuts first with "
                             "different order: values on both",
                             a->dim, i, j);
            return FALSE;
        }
    }
    return TRUE;
}

/* ---- meshes ---- */

static gboolean read_mesh(RefitNode *node, guint n_ranks, guint *sizes, guint *n_axes_out,
                          GError **error) {
    guint64 product = 1; /* divides n_ranks, so the next factor cannot overflow it */
    guint n = 0;

    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    gboolean fits = refit_node_size(node) >= 1 && refit_node_size(node) <= REFIT_MAX_AXES;
    for (; fits && n < refit_node_size(node); n++) {
        guint64 size;
        if (!refit_node_uint(refit_node_at(node, n), 1, G_MAXUINT32, &size, error))
            return FALSE;
        sizes[n] = (guint)size;
        product *= size;
        fits = n_ranks % product == 0;
    }
    if (!fits || product != n_ranks) {
        refit_node_error(node, REFIT_ERROR_MESH_SIZE, error,
                         "the mesh does not have %u ranks; state 1 to %u axis sizes whose product "
                         "is %u",
                         n_ranks, REFIT_MAX_AXES, n_ranks);
        return FALSE;
    }
    *n_axes_out = n;
    return TRUE;
}

/* What the first cut of each dim says about extents; later cuts see what it leaves. */
static gboolean note_needs(RefitNode *node, const Places *places, guint n_axes,
                           RefitExplicitNeeds *needs, GError **error) {
    for (guint i = 0; i < n_axes; i++) {
        const RefitPlacement *placement = &places->placements[i];
        gboolean first = TRUE;

        if (placement->kind != REFIT_PLACEMENT_SHARD)
            continue;
        needs->n_dims = MAX(needs->n_dims, placement->dim + 1);
        needs->inexact |= placement->split == REFIT_SPLIT_SIZES;
        for (guint j = 0; j < n_axes; j++) {
            const RefitPlacement *other = &places->placements[j];
            first = first && !(other->kind == REFIT_PLACEMENT_SHARD &&
                               other->dim == placement->dim && other->order < placement->order);
        }
        if (!first)
            continue;
        guint64 *extent = &needs->extent[placement->dim];
        if (places->extent[i] > 0 && *extent > 0 && *extent != places->extent[i]) {
            refit_node_error(node, REFIT_ERROR_PARTITION_SUM, error,
                             "segments of dim %u sum to %" G_GUINT64_FORMAT
                             " here and to %" G_GUINT64_FORMAT " in a part before; state segments "
                             "of one tensor",
                             placement->dim, places->extent[i], *extent);
            return FALSE;
        }
        if (places->extent[i] > 0)
            *extent = places->extent[i];
        for (guint p = 0; p < placement->n_lists && places->extent[i] == 0; p++) {
            const RefitIntervalList *list = placement->lists[p];
            guint64 end = list->n > 0 ? list->items[list->n - 1].hi : 0;
            needs->reach[placement->dim] = MAX(needs->reach[placement->dim], end);
        }
    }
    return TRUE;
}

static gboolean read_part(const RefitLayout *layout, RefitNode *node, RefitExplicitNeeds *needs,
                          RefitSharding *sharding, GError **error) {
    guint n_ranks = refit_layout_n_ranks(layout), sizes[REFIT_MAX_AXES], n_axes = 1;
    g_autoptr(GArray) positions = NULL;
    g_auto(Places) places = {0};

    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    RefitNode *mesh_node = refit_node_get(node, "mesh"), *list = refit_node_get(node, "ranks");
    RefitNode *place = refit_node_require(node, "place", error);
    if (place == NULL)
        return FALSE;
    if (list != NULL) {
        positions = refit_layout_read_ranks(list, n_ranks, "position", "this side", error);
        if (positions == NULL)
            return FALSE;
        n_ranks = positions->len;
    }
    sizes[0] = n_ranks;
    if (mesh_node != NULL && !read_mesh(mesh_node, n_ranks, sizes, &n_axes, error))
        return FALSE;
    if (!refit_node_expect(place, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (refit_node_size(place) != n_axes) {
        refit_node_error(place, REFIT_ERROR_PLACEMENT_COUNT, error,
                         "%u placements for a mesh of %u axes; state one per axis",
                         refit_node_size(place), n_axes);
        return FALSE;
    }
    for (guint i = 0; i < n_axes; i++) {
        if (!read_place(refit_node_at(place, i), i, sizes[i], &places, error))
            return FALSE;
    }
    if (!check_order(place, &places, n_axes, error) ||
        !note_needs(place, &places, n_axes, needs, error))
        return FALSE;

    g_autofree guint *ranks = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++)
        ranks[i] =
            refit_layout_ranks(layout)[positions != NULL ? g_array_index(positions, guint, i) : i];
    RefitMesh *mesh = refit_mesh_new(n_axes, sizes, ranks, n_ranks, error);
    return mesh != NULL && refit_sharding_add(sharding, mesh, places.placements, error);
}

/* ---- all of a rule ---- */

static gboolean read_padded(RefitNode *node, RefitExplicitNeeds *needs, RefitSharding *sharding,
                            GError **error) {
    if (node == NULL)
        return TRUE;
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    for (guint i = 0; i < refit_node_size(node); i++) {
        const char *key = refit_node_key_at(node, i);
        RefitNode *value = refit_node_get(node, key);
        guint64 dim, extent;
        if (!g_ascii_string_to_unsigned(key, 10, 0, REFIT_MAX_DIMS - 1, &dim, NULL)) {
            refit_node_error(value, REFIT_ERROR_INVALID, error,
                             "\"%s\" is not a dim; write {DIM: EXTENT} with a dim from 0 to %u",
                             key, REFIT_MAX_DIMS - 1);
            return FALSE;
        }
        if (!refit_node_uint(value, 1, G_MAXINT64, &extent, error))
            return FALSE;
        refit_sharding_set_padded(sharding, (guint)dim, extent);
        needs->n_dims = MAX(needs->n_dims, (guint)dim + 1);
        needs->inexact = TRUE;
    }
    return TRUE;
}

RefitSharding *refit_explicit_read_sharding(const RefitLayout *layout, RefitNode *node,
                                            RefitExplicitNeeds *needs, GError **error) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    RefitNode *parts = refit_node_get(node, "parts");

    if (!read_padded(refit_node_get(node, "padded"), needs, sharding, error))
        return NULL;
    if (parts == NULL) {
        if (!read_part(layout, node, needs, sharding, error))
            return NULL;
        return g_steal_pointer(&sharding);
    }
    if (!refit_node_expect(parts, REFIT_NODE_SEQUENCE, error))
        return NULL;
    if (refit_node_size(parts) == 0) {
        refit_node_error(parts, REFIT_ERROR_INVALID, error,
                         "parts is empty; state a mesh, or list the tensors under absent");
        return NULL;
    }
    for (guint i = 0; i < refit_node_size(parts); i++) {
        if (!read_part(layout, refit_node_at(parts, i), needs, sharding, error))
            return NULL;
    }
    return g_steal_pointer(&sharding);
}

gboolean refit_explicit_check_fit(const RefitNode *node, const RefitExplicitNeeds *needs,
                                  const RefitSharding *sharding, const char *name, guint n_dims,
                                  const guint64 *shape, GError **error) {
    g_autoptr(GError) inner = NULL;

    if (n_dims < needs->n_dims) {
        refit_node_error(node, n_dims == 0 ? REFIT_ERROR_SCALAR_SHARD : REFIT_ERROR_DIM_RANGE,
                         error,
                         "dim %u is cut, but tensor %s has %u dims; give it a rule of its "
                         "own",
                         needs->n_dims - 1, name, n_dims);
        return FALSE;
    }
    for (guint d = 0; d < n_dims; d++) {
        guint64 padded = refit_sharding_padded(sharding, d);
        guint64 extent = padded != 0 ? padded : shape[d];

        if (needs->extent[d] != 0 && needs->extent[d] != extent) {
            refit_node_error(node, REFIT_ERROR_PARTITION_SUM, error,
                             "tensor %s: segments of dim %u sum to %" G_GUINT64_FORMAT
                             ", but its extent is %" G_GUINT64_FORMAT "; state segments that sum "
                             "to it",
                             name, d, needs->extent[d], extent);
            return FALSE;
        }
        if (needs->reach[d] > extent) {
            refit_node_error(node, REFIT_ERROR_INVALID, error,
                             "tensor %s: place %" G_GUINT64_FORMAT " of dim %u is listed, but its "
                             "extent is %" G_GUINT64_FORMAT "; list places below it",
                             name, needs->reach[d] - 1, d, extent);
            return FALSE;
        }
    }
    if (!needs->inexact)
        return TRUE;
    g_autoptr(RefitHolding) holding = refit_holding_new(sharding, n_dims, shape, &inner);
    if (holding == NULL)
        refit_node_error(node, (RefitError)inner->code, error, "tensor %s: %s", name,
                         inner->message);
    return holding != NULL;
}
