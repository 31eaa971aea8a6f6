/*
 * Splits: what one mesh axis leaves of the local buffer of a tensor dim.
 *
 * Problem: axes cut one after the other, and a later axis sees what the earlier ones left, in the
 * order in which a rank stores it: after a cut by stated lists that is not the order of indices.
 * Method: every split is a set of local places, and the part is the selection of these places from
 * the list. Lists stored in index order, which are nearly all, are sliced without sorting anything.
 * Cost: intervals per part.
 */

#include "model/geometry/refit-geometry-private.h"

gboolean refit_split_check_dims(const RefitPlacement *placements, guint n_axes, guint n_dims,
                                GError **error) {
    for (guint a = 0; a < n_axes; a++) {
        if (placements[a].kind != REFIT_PLACEMENT_SHARD || placements[a].dim < n_dims)
            continue;
        if (n_dims == 0) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_SCALAR_SHARD,
                        "mesh axis %u shards dim %u of a tensor without dims: replicate it", a,
                        placements[a].dim);
        } else {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_DIM_RANGE,
                        "mesh axis %u shards dim %u of a tensor with %u dims: "
                        "name a dim below %u or replicate",
                        a, placements[a].dim, n_dims, n_dims);
        }
        return FALSE;
    }
    return TRUE;
}

gboolean refit_split_extent(const RefitSharding *sharding, guint dim, guint64 extent,
                            guint64 *extent_out, GError **error) {
    guint64 padded = refit_sharding_padded(sharding, dim);

    if (padded != 0 && padded < extent) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "dim %u is padded to %" G_GUINT64_FORMAT
                    ", but its extent is %" G_GUINT64_FORMAT
                    ": state a padded extent that is at least as large",
                    dim, padded, extent);
        return FALSE;
    }
    *extent_out = padded != 0 ? padded : extent;
    return TRUE;
}

static gboolean check_stated_sizes(const RefitPlacement *placement, guint axis, guint64 extent,
                                   GError **error) {
    guint64 sum = 0;

    for (guint i = 0; i < placement->n_sizes; i++) {
        if (!refit_checked_add(sum, placement->sizes[i], "sum of stated part sizes", &sum, error))
            return FALSE;
    }
    if (sum != extent) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARTITION_SUM,
                    "part sizes stated for mesh axis %u sum to %" G_GUINT64_FORMAT
                    ", but the extent of dim %u that they cut is %" G_GUINT64_FORMAT
                    ": state sizes that sum to it",
                    axis, sum, placement->dim, extent);
        return FALSE;
    }
    return TRUE;
}

/* A list and what its cuts need of it, looked up once. */
typedef struct {
    const RefitIntervalList *list;
    guint64 extent; /* of the local buffer */
    gboolean packed;
} Buffer;

static RefitIntervalList *take_places(const Buffer *buffer, guint64 from, guint64 to) {
    if (buffer->packed)
        return refit_interval_list_slice(buffer->list, from, to);

    g_autoptr(RefitIntervalList) places = refit_interval_list_range(from, to);
    return refit_interval_list_select(buffer->list, places);
}

void refit_split_chunk(guint64 extent, guint parts, guint index, guint64 *from_out,
                       guint64 *to_out) {
    guint64 each = extent / parts + (extent % parts != 0);
    guint64 from = extent;

    if (each > 0 && index <= extent / each)
        from = index * each;
    *from_out = from;
    *to_out = from + MIN(each, extent - from);
}

/* The chunk of number `index` of every one of `chunks` chunks, stored one after the other. */
static RefitIntervalList *strided_places(guint64 extent, guint chunks, guint parts, guint index) {
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    guint64 at = 0;

    for (guint c = 0; c < chunks; c++) {
        guint64 start, end, from, to;

        refit_split_chunk(extent, chunks, c, &start, &end);
        if (start == end)
            break;
        refit_split_chunk(end - start, parts, index, &from, &to);
        if (from == to)
            continue;
        RefitInterval place = {.lo = start + from, .hi = start + to, .at = at};
        g_array_append_val(places, place);
        at += to - from;
    }
    return refit_interval_list_new((RefitInterval *)(gpointer)places->data, places->len, NULL);
}

static RefitIntervalList *take_part(const Buffer *buffer, const RefitPlacement *placement,
                                    guint parts, guint index, guint64 *next) {
    guint64 each, larger, from, to;

    switch (placement->split) {
    case REFIT_SPLIT_LISTS:
        return refit_interval_list_select(buffer->list, placement->lists[index]);
    case REFIT_SPLIT_STRIDED: {
        g_autoptr(RefitIntervalList) places =
            strided_places(buffer->extent, placement->chunks, parts, index);
        return refit_interval_list_select(buffer->list, places);
    }
    case REFIT_SPLIT_SIZES:
        from = *next;
        to = from + placement->sizes[index];
        *next = to;
        break;
    case REFIT_SPLIT_BALANCED:
        each = buffer->extent / parts;
        larger = buffer->extent % parts;
        from = index * each + MIN(index, larger);
        to = from + each + (index < larger ? 1 : 0);
        break;
    default:
        refit_split_chunk(buffer->extent, parts, index, &from, &to);
    }
    return take_places(buffer, from, to);
}

gboolean refit_split_list(const RefitIntervalList *list, const RefitPlacement *placement,
                          guint axis, guint parts, guint first, guint n,
                          RefitIntervalList **parts_out, GError **error) {
    Buffer buffer = {.list = list,
                     .extent = refit_interval_list_local_extent(list),
                     .packed = refit_interval_list_is_packed(list)};
    guint64 next = 0;

    if (placement->split == REFIT_SPLIT_SIZES) {
        if (!check_stated_sizes(placement, axis, buffer.extent, error))
            return FALSE;
        for (guint i = 0; i < first; i++)
            next += placement->sizes[i];
    }
    for (guint i = 0; i < n; i++)
        parts_out[i] = take_part(&buffer, placement, parts, first + i, &next);
    return TRUE;
}

RefitIntervalList *refit_split_clip(RefitIntervalList *list, guint64 extent) {
    g_autoptr(RefitIntervalList) owned = list;
    guint n = list->n;

    if (n == 0 || list->items[n - 1].hi <= extent)
        return g_steal_pointer(&owned);

    g_autofree RefitInterval *kept = g_memdup2(list->items, n * sizeof *kept);
    while (n > 0 && kept[n - 1].lo >= extent)
        n--;
    if (n > 0)
        kept[n - 1].hi = MIN(kept[n - 1].hi, extent);
    return refit_interval_list_new(kept, n, NULL);
}
