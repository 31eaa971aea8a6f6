/*
 * Runs between two views: what a copy from one parameter to another has to move, as contiguous
 * pieces.
 *
 * Problem: a region lies in two buffers by two affine maps over interval lists. Method: along each
 * dim the region is cut where either list has a break, which gives segments that advance by one in
 * both; nested loops over the dims, the one with the longest stride of the receiver outermost, then
 * meet the runs nearly in the receiver's order, and neighbours that continue each other are joined
 * on the way. Cost: runs before joining, which is rows for a matrix.
 */

#include "model/layout/refit-view.h"

typedef struct {
    guint64 from, to, length; /* places along one dim */
} Segment;

static int compare_segments(gconstpointer a, gconstpointer b) {
    const Segment *one = a, *two = b;

    return one->to < two->to ? -1 : one->to > two->to;
}

/* Position of the interval of `list` that holds `index`. */
static guint interval_of(const RefitIntervalList *list, guint64 index) {
    guint low = 0, high = list->n;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (list->items[middle].hi <= index)
            low = middle + 1;
        else
            high = middle;
    }
    g_assert(low < list->n && list->items[low].lo <= index);
    return low;
}

static GArray *cut_segments(const RefitIntervalList *region, const RefitIntervalList *from,
                            const RefitIntervalList *to) {
    GArray *segments = g_array_new(FALSE, FALSE, sizeof(Segment));

    for (guint i = 0; i < region->n; i++) {
        guint64 lo = region->items[i].lo;

        while (lo < region->items[i].hi) {
            const RefitInterval *a = &from->items[interval_of(from, lo)];
            const RefitInterval *b = &to->items[interval_of(to, lo)];
            guint64 hi = MIN(region->items[i].hi, MIN(a->hi, b->hi));
            Segment segment = {a->at + (lo - a->lo), b->at + (lo - b->lo), hi - lo};

            g_array_append_val(segments, segment);
            lo = hi;
        }
    }
    g_array_sort(segments, compare_segments);
    return segments;
}

static void append_run(GArray *runs, guint64 from, guint64 to, guint64 length) {
    RefitRun *last = runs->len > 0 ? &g_array_index(runs, RefitRun, runs->len - 1) : NULL;
    RefitRun run = {from, to, length};

    if (last != NULL && last->from + last->length == from && last->to + last->length == to)
        last->length += length;
    else
        g_array_append_val(runs, run);
}

typedef struct {
    guint n_dims;
    GArray *segments[REFIT_MAX_DIMS];
    guint64 from[REFIT_MAX_DIMS], to[REFIT_MAX_DIMS]; /* strides */
    GArray *runs;
} Walk;

static void walk(const Walk *w, guint d, guint64 from, guint64 to) {
    if (d == w->n_dims) {
        append_run(w->runs, from, to, 1);
        return;
    }
    for (guint i = 0; i < w->segments[d]->len; i++) {
        const Segment *segment = &g_array_index(w->segments[d], Segment, i);
        guint64 a = from + segment->from * w->from[d], b = to + segment->to * w->to[d];

        if (d + 1 == w->n_dims && w->from[d] == 1 && w->to[d] == 1) {
            append_run(w->runs, a, b, segment->length);
            continue;
        }
        for (guint64 j = 0; j < segment->length; j++)
            walk(w, d + 1, a + j * w->from[d], b + j * w->to[d]);
    }
}

void refit_view_append_runs(const RefitView *from, const RefitView *to, const RefitRegion *region,
                            GArray *runs) {
    Walk w = {.n_dims = region->n_dims, .runs = runs};
    guint order[REFIT_MAX_DIMS] = {0};

    g_assert(from->region.n_dims == region->n_dims && to->region.n_dims == region->n_dims);
    for (guint d = 0; d < region->n_dims; d++) {
        guint at = d;

        for (; at > 0 && to->stride[order[at - 1]] < to->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (guint i = 0; i < region->n_dims; i++) {
        guint d = order[i];

        w.segments[i] = cut_segments(region->dims[d], from->region.dims[d], to->region.dims[d]);
        w.from[i] = from->stride[d];
        w.to[i] = to->stride[d];
    }
    walk(&w, 0, from->offset, to->offset);
    for (guint i = 0; i < region->n_dims; i++)
        g_array_unref(w.segments[i]);
}

static int compare_runs(gconstpointer a, gconstpointer b) {
    const RefitRun *one = a, *two = b;

    return one->to < two->to ? -1 : one->to > two->to;
}

void refit_runs_join(GArray *runs) {
    guint n = runs->len;

    g_array_sort(runs, compare_runs);
    g_array_set_size(runs, 0);
    for (guint i = 0; i < n; i++) {
        const RefitRun run = ((const RefitRun *)(void *)runs->data)[i];

        append_run(runs, run.from, run.to, run.length);
    }
}

/* ---- one run ---- */

/* TRUE when neighbours in `list` are neighbours in the places of `places`. */
static gboolean is_line(const RefitIntervalList *list, const RefitIntervalList *places,
                        guint64 *first_out) {
    guint64 next = 0;
    guint p = 0;

    for (guint i = 0; i < list->n; i++) {
        guint64 lo = list->items[i].lo;

        while (lo < list->items[i].hi) {
            while (places->items[p].hi <= lo)
                p++;
            guint64 at = places->items[p].at + (lo - places->items[p].lo);
            guint64 hi = MIN(list->items[i].hi, places->items[p].hi);

            if (i == 0 && lo == list->items[0].lo)
                *first_out = at;
            else if (at != next)
                return FALSE;
            next = at + (hi - lo);
            lo = hi;
        }
    }
    return TRUE;
}

gboolean refit_view_is_run(const RefitView *view, const RefitRegion *region, guint64 *place_out) {
    guint64 place = view->offset, stride = 1;

    for (guint d = region->n_dims; d-- > 0;) {
        guint64 first = 0, extent = region->dims[d]->extent;

        if (!is_line(region->dims[d], view->region.dims[d], &first) ||
            (extent > 1 && view->stride[d] != stride))
            return FALSE;
        place += first * view->stride[d];
        stride *= extent;
    }
    *place_out = place;
    return TRUE;
}
