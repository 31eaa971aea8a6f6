/*
 * Regions: products of interval lists, one per tensor dim.
 *
 * Problem: a shard, an overlap and a unit of planning are all sets of tensor elements that must be
 * counted, intersected, cut and compared without touching elements. Method: every operation works
 * dim by dim on the interval lists and multiplies. Cost: linear in the number of intervals,
 * whatever the number of elements. A region is empty when one of its lists is.
 */

#include "model/geometry/refit-geometry.h"

RefitRegion refit_region_full(guint n_dims, const guint64 *shape) {
    RefitRegion region = {.n_dims = n_dims};

    g_assert(n_dims <= REFIT_MAX_DIMS);
    for (guint d = 0; d < n_dims; d++)
        region.dims[d] = refit_interval_list_range(0, shape[d]);
    return region;
}

RefitRegion refit_region_copy(const RefitRegion *region) {
    RefitRegion copy = *region;

    for (guint d = 0; d < copy.n_dims; d++)
        refit_interval_list_ref(copy.dims[d]);
    return copy;
}

void refit_region_clear(RefitRegion *region) {
    if (region == NULL)
        return;
    for (guint d = 0; d < region->n_dims; d++)
        refit_interval_list_unref(region->dims[d]);
    *region = (RefitRegion){.n_dims = 0};
}

guint64 refit_region_volume(const RefitRegion *region) {
    guint64 volume = 1;

    for (guint d = 0; d < region->n_dims; d++)
        volume *= region->dims[d]->extent;
    return volume;
}

gboolean refit_region_is_empty(const RefitRegion *region) {
    for (guint d = 0; d < region->n_dims; d++) {
        if (region->dims[d]->extent == 0)
            return TRUE;
    }
    return FALSE;
}

gboolean refit_region_equal(const RefitRegion *a, const RefitRegion *b) {
    if (a->n_dims != b->n_dims)
        return FALSE;
    for (guint d = 0; d < a->n_dims; d++) {
        if (!refit_interval_list_same_indices(a->dims[d], b->dims[d]))
            return FALSE;
    }
    return TRUE;
}

int refit_region_compare(const RefitRegion *a, const RefitRegion *b) {
    if (a->n_dims != b->n_dims)
        return a->n_dims < b->n_dims ? -1 : 1;
    for (guint d = 0; d < a->n_dims; d++) {
        int order = refit_interval_list_compare(a->dims[d], b->dims[d]);

        if (order != 0)
            return order;
    }
    return 0;
}

/* One round of a multiplicative mix; quality only matters for hash tables. */
static guint64 mix(guint64 hash, guint64 value) {
    hash = (hash ^ value) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

guint refit_region_hash(const RefitRegion *region) {
    guint64 hash = mix(0, region->n_dims);

    for (guint d = 0; d < region->n_dims; d++) {
        guint position = 0;
        guint64 lo, hi;

        while (refit_interval_list_next_run(region->dims[d], &position, &lo, &hi))
            hash = mix(mix(hash, lo), hi);
        hash = mix(hash, region->dims[d]->extent);
    }
    return (guint)(hash ^ (hash >> 32));
}

RefitRegion refit_region_intersect(const RefitRegion *a, const RefitRegion *b) {
    RefitRegion region = {.n_dims = a->n_dims};

    g_assert(a->n_dims == b->n_dims);
    for (guint d = 0; d < a->n_dims; d++)
        region.dims[d] = refit_interval_list_intersect(a->dims[d], b->dims[d]);
    return region;
}

guint64 refit_region_common(const RefitRegion *a, const RefitRegion *b) {
    guint64 common = 1;

    g_assert(a->n_dims == b->n_dims);
    for (guint d = 0; d < a->n_dims && common > 0; d++)
        common *= refit_interval_list_common(a->dims[d], b->dims[d]);
    return common;
}

gboolean refit_region_contains(const RefitRegion *outer, const RefitRegion *inner) {
    if (refit_region_is_empty(inner))
        return TRUE;
    g_assert(outer->n_dims == inner->n_dims);
    for (guint d = 0; d < inner->n_dims; d++) {
        guint64 extent = inner->dims[d]->extent;

        if (refit_interval_list_common(outer->dims[d], inner->dims[d]) != extent)
            return FALSE;
    }
    return TRUE;
}

/* First dim with at least `count` indices, else the longest (the first of them). */
static guint stripe_dim(const RefitRegion *region, guint count) {
    guint longest = 0;

    for (guint d = 0; d < region->n_dims; d++) {
        if (region->dims[d]->extent >= count)
            return d;
        if (region->dims[d]->extent > region->dims[longest]->extent)
            longest = d;
    }
    return longest;
}

RefitRegion refit_region_stripe(const RefitRegion *region, guint count, guint64 grain,
                                guint index) {
    RefitRegion stripe;
    guint cut;

    g_assert(count > 0 && index < count);
    if (region->n_dims == 0) {
        /* One element cannot be cut, and only a region with dims can be empty. */
        if (index > 0)
            return refit_region_full(1, &(guint64){0});
        return refit_region_copy(region);
    }
    cut = stripe_dim(region, count);
    stripe = *region;
    for (guint d = 0; d < region->n_dims; d++) {
        if (d == cut)
            stripe.dims[d] = refit_interval_list_part(region->dims[d], count,
                                                      d + 1 == region->n_dims ? grain : 1, index);
        else
            refit_interval_list_ref(stripe.dims[d]);
    }
    return stripe;
}

/*
 * From the innermost dim outwards: with the dims inside alone there are `runs` runs, and they touch
 * both ends of a row or not. Outside, each of `extent` indices repeats them, and where two indices
 * are neighbours and rows touch both ends, the last run of one row goes on in the next.
 */
guint64 refit_region_runs(const RefitRegion *region, const guint64 *shape) {
    guint64 runs = 1;
    gboolean touches_start = TRUE;
    gboolean touches_end = TRUE;

    if (refit_region_is_empty(region))
        return 0;
    for (guint d = region->n_dims; d-- > 0;) {
        const RefitIntervalList *list = region->dims[d];
        guint64 first = list->items[0].lo;
        guint64 lo, hi;
        guint64 segments = 0;
        guint position = 0;

        for (hi = 0; refit_interval_list_next_run(list, &position, &lo, &hi);)
            segments++;
        runs *= list->extent;
        if (touches_start && touches_end)
            runs -= list->extent - segments;
        touches_start = touches_start && first == 0;
        touches_end = touches_end && hi == shape[d];
    }
    return runs;
}

char *refit_region_to_string(const RefitRegion *region) {
    GString *text = g_string_new("[");

    for (guint d = 0; d < region->n_dims; d++) {
        const RefitIntervalList *list = region->dims[d];
        guint position = 0;
        guint64 lo, hi;

        if (d > 0)
            g_string_append(text, ", ");
        if (list->extent == 0)
            g_string_append(text, "0:0");
        for (guint n = 0; refit_interval_list_next_run(list, &position, &lo, &hi); n++) {
            g_string_append_printf(text, "%s%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT,
                                   n > 0 ? "+" : "", lo, hi);
        }
    }
    g_string_append_c(text, ']');
    return g_string_free(text, FALSE);
}

/* ---- runs in a local buffer ---- */

/* Indices of `list` as places of `local`, which contains them. */
static RefitIntervalList *to_local(const RefitIntervalList *list, const RefitIntervalList *local) {
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    for (guint i = 0, j = 0; i < list->n; i++) {
        for (guint64 lo = list->items[i].lo; lo < list->items[i].hi;) {
            while (local->items[j].hi <= lo)
                j++;
            guint64 hi = MIN(list->items[i].hi, local->items[j].hi);
            guint64 at = local->items[j].at + (lo - local->items[j].lo);
            RefitInterval item = {at, at + (hi - lo), at};
            g_array_append_val(items, item);
            lo = hi;
        }
    }
    RefitIntervalList *places =
        refit_interval_list_new((const RefitInterval *)(gpointer)items->data, items->len, NULL);
    g_assert(places != NULL); /* places of disjoint indices are disjoint */
    return places;
}

guint64 refit_local_runs(const RefitRegion *region, const RefitRegion *local) {
    guint64 runs = 1;
    gboolean inside = FALSE; /* a dim further in is covered in part: each index here is a run */
    for (guint dim = region->n_dims; dim > 0; dim--) {
        const RefitIntervalList *list = region->dims[dim - 1];
        if (inside) {
            runs *= list->extent;
        } else if (list->extent != local->dims[dim - 1]->extent) {
            g_autoptr(RefitIntervalList) places = to_local(list, local->dims[dim - 1]);
            runs = places->n;
            inside = TRUE;
        }
    }
    return runs;
}
