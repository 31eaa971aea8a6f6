/*
 * Interval lists: the indices of one tensor dim that a shard covers.
 *
 * Problem: shards are strided, interleaved or cut several times, and planning intersects them
 * millions of times, so a list must be cheap to share, to compare and to intersect. Method: sorted
 * disjoint intervals in one reference counted block that is never modified; every binary operation
 * is a single merge of two sorted lists, and an operation whose result is one of its operands
 * returns that operand, so equal lists tend to be the same pointer and compare at once. Cost:
 * linear in the number of intervals, constant for lists of one interval.
 *
 * Two lists may cover the same indices with differently broken intervals, when neighbouring indices
 * lie apart in the local buffer. Comparisons of indices therefore walk runs (neighbours joined),
 * not items.
 */

#include "model/geometry/refit-geometry.h"

#include <stdlib.h>

static RefitIntervalList *list_alloc(guint n) {
    RefitIntervalList *list =
        g_atomic_rc_box_alloc(sizeof *list + (gsize)n * sizeof(RefitInterval));

    list->extent = 0;
    list->n = 0;
    return list;
}

/* Appends to a list under construction, joining what is adjacent in both senses. */
static void list_append(RefitIntervalList *list, guint64 lo, guint64 hi, guint64 at) {
    RefitInterval *last = list->n > 0 ? &list->items[list->n - 1] : NULL;

    list->extent += hi - lo;
    if (last != NULL && last->hi == lo && last->at + (last->hi - last->lo) == at) {
        last->hi = hi;
        return;
    }
    list->items[list->n++] = (RefitInterval){.lo = lo, .hi = hi, .at = at};
}

/* Lists are immutable, so a const operand may serve as a result of its own. */
static RefitIntervalList *list_share(const RefitIntervalList *list) {
    return refit_interval_list_ref((RefitIntervalList *)list);
}

gboolean refit_interval_list_is_packed(const RefitIntervalList *list) {
    guint64 at = 0;

    for (guint i = 0; i < list->n; i++) {
        if (list->items[i].at != at)
            return FALSE;
        at += list->items[i].hi - list->items[i].lo;
    }
    return TRUE;
}

guint64 refit_interval_list_local_extent(const RefitIntervalList *list) {
    guint64 extent = 0;

    for (guint i = 0; i < list->n; i++)
        extent = MAX(extent, list->items[i].at + (list->items[i].hi - list->items[i].lo));
    return extent;
}

gboolean refit_interval_list_next_run(const RefitIntervalList *list, guint *position,
                                      guint64 *lo_out, guint64 *hi_out) {
    guint i = *position;
    guint64 hi;

    if (i >= list->n)
        return FALSE;
    *lo_out = list->items[i].lo;
    hi = list->items[i].hi;
    for (i++; i < list->n && list->items[i].lo == hi; i++)
        hi = list->items[i].hi;
    *hi_out = hi;
    *position = i;
    return TRUE;
}

static int interval_compare(const void *a, const void *b) {
    const RefitInterval *left = a;
    const RefitInterval *right = b;

    return left->lo < right->lo ? -1 : left->lo > right->lo;
}

static int place_compare(const void *a, const void *b) {
    const RefitInterval *left = a;
    const RefitInterval *right = b;

    return left->at < right->at ? -1 : left->at > right->at;
}

/* One pass when already sorted, as most are. */
static void intervals_sort(RefitInterval *items, guint n,
                           int (*compare)(const void *, const void *)) {
    for (guint i = 1; i < n; i++) {
        if (compare(&items[i - 1], &items[i]) > 0) {
            qsort(items, n, sizeof *items, compare);
            return;
        }
    }
}

RefitIntervalList *refit_interval_list_new(const RefitInterval *items, guint n, GError **error) {
    g_autoptr(RefitIntervalList) list = NULL;
    g_autofree RefitInterval *sorted = g_new(RefitInterval, n);
    guint n_sorted = 0;

    for (guint i = 0; i < n; i++) {
        if (items[i].lo > items[i].hi) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "interval [%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                        ") is reversed: its start must not exceed its end",
                        items[i].lo, items[i].hi);
            return NULL;
        }
        if (items[i].lo < items[i].hi) {
            guint64 end;

            if (!refit_checked_add(items[i].at, items[i].hi - items[i].lo,
                                   "end of a local interval", &end, error))
                return NULL;
            sorted[n_sorted++] = items[i];
        }
    }
    intervals_sort(sorted, n_sorted, interval_compare);

    list = list_alloc(n_sorted);
    for (guint i = 0; i < n_sorted; i++) {
        if (i > 0 && sorted[i].lo < sorted[i - 1].hi) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "intervals [%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                        ") and [%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                        ") overlap: each index may be listed once",
                        sorted[i - 1].lo, sorted[i - 1].hi, sorted[i].lo, sorted[i].hi);
            return NULL;
        }
        list_append(list, sorted[i].lo, sorted[i].hi, sorted[i].at);
    }
    return g_steal_pointer(&list);
}

RefitIntervalList *refit_interval_list_range(guint64 lo, guint64 hi) {
    RefitIntervalList *list;

    g_assert(lo <= hi);
    list = list_alloc(1);
    if (lo < hi)
        list_append(list, lo, hi, 0);
    return list;
}

RefitIntervalList *refit_interval_list_ref(RefitIntervalList *list) {
    return g_atomic_rc_box_acquire(list);
}

void refit_interval_list_unref(RefitIntervalList *list) {
    if (list != NULL)
        g_atomic_rc_box_release(list);
}

gboolean refit_interval_list_same_indices(const RefitIntervalList *a, const RefitIntervalList *b) {
    return a == b || (a->extent == b->extent && refit_interval_list_compare(a, b) == 0);
}

gboolean refit_interval_list_equal(const RefitIntervalList *a, const RefitIntervalList *b) {
    if (a == b)
        return TRUE;
    if (a->n != b->n || a->extent != b->extent)
        return FALSE;
    for (guint i = 0; i < a->n; i++) {
        if (a->items[i].lo != b->items[i].lo || a->items[i].hi != b->items[i].hi ||
            a->items[i].at != b->items[i].at)
            return FALSE;
    }
    return TRUE;
}

int refit_interval_list_compare(const RefitIntervalList *a, const RefitIntervalList *b) {
    guint i = 0;
    guint j = 0;

    if (a == b)
        return 0;
    if (a->n == 1 && b->n == 1) {
        const RefitInterval *x = &a->items[0];
        const RefitInterval *y = &b->items[0];

        if (x->lo != y->lo)
            return x->lo < y->lo ? -1 : 1;
        return x->hi < y->hi ? -1 : x->hi > y->hi;
    }
    for (;;) {
        guint64 a_lo, a_hi, b_lo, b_hi;
        gboolean more_a = refit_interval_list_next_run(a, &i, &a_lo, &a_hi);
        gboolean more_b = refit_interval_list_next_run(b, &j, &b_lo, &b_hi);

        if (!more_a || !more_b)
            return (int)more_a - (int)more_b;
        if (a_lo != b_lo)
            return a_lo < b_lo ? -1 : 1;
        if (a_hi != b_hi)
            return a_hi < b_hi ? -1 : 1;
    }
}

RefitIntervalList *refit_interval_list_intersect(const RefitIntervalList *a,
                                                 const RefitIntervalList *b) {
    RefitIntervalList *list;
    guint i = 0;
    guint j = 0;

    if (a == b)
        return refit_interval_list_slice(a, 0, a->extent);
    if (a->n == 1 && b->n == 1) {
        const RefitInterval *x = &a->items[0];
        const RefitInterval *y = &b->items[0];
        guint64 lo = MAX(x->lo, y->lo);
        guint64 hi = MIN(x->hi, y->hi);

        if (x->lo == lo && x->hi == hi && x->at == 0)
            return list_share(a);
        if (y->lo == lo && y->hi == hi && y->at == 0)
            return list_share(b);
        return refit_interval_list_range(MIN(lo, hi), hi);
    }
    /* Each step of the merge leaves one interval behind, so there are fewer pieces than items. */
    list = list_alloc(a->n + b->n);
    while (i < a->n && j < b->n) {
        guint64 lo = MAX(a->items[i].lo, b->items[j].lo);
        guint64 hi = MIN(a->items[i].hi, b->items[j].hi);

        if (lo < hi)
            list_append(list, lo, hi, list->extent);
        if (a->items[i].hi == hi)
            i++;
        else
            j++;
    }
    return list;
}

RefitIntervalList *refit_interval_list_select(const RefitIntervalList *list,
                                              const RefitIntervalList *places) {
    g_autofree RefitInterval *local = g_memdup2(list->items, list->n * sizeof *local);
    g_autofree RefitInterval *kept = g_new(RefitInterval, (gsize)list->n + places->n);
    RefitIntervalList *selection;
    guint n_kept = 0;
    guint i = 0;
    guint j = 0;

    intervals_sort(local, list->n, place_compare);
    while (i < list->n && j < places->n) {
        const RefitInterval *item = &local[i];
        const RefitInterval *place = &places->items[j];
        guint64 end = item->at + (item->hi - item->lo);
        guint64 from = MAX(item->at, place->lo);
        guint64 to = MIN(end, place->hi);

        if (from < to) {
            guint64 lo = item->lo + (from - item->at);

            kept[n_kept++] = (RefitInterval){
                .lo = lo, .hi = lo + (to - from), .at = place->at + (from - place->lo)};
        }
        if (end <= place->hi)
            i++;
        else
            j++;
    }
    intervals_sort(kept, n_kept, interval_compare);
    selection = list_alloc(n_kept);
    for (guint k = 0; k < n_kept; k++)
        list_append(selection, kept[k].lo, kept[k].hi, kept[k].at);
    return selection;
}

guint64 refit_interval_list_common(const RefitIntervalList *a, const RefitIntervalList *b) {
    guint64 common = 0;
    guint i = 0;
    guint j = 0;

    if (a == b)
        return a->extent;
    while (i < a->n && j < b->n) {
        guint64 lo = MAX(a->items[i].lo, b->items[j].lo);
        guint64 hi = MIN(a->items[i].hi, b->items[j].hi);

        if (lo < hi)
            common += hi - lo;
        if (a->items[i].hi == hi)
            i++;
        else
            j++;
    }
    return common;
}

RefitIntervalList *refit_interval_list_slice(const RefitIntervalList *list, guint64 from,
                                             guint64 to) {
    RefitIntervalList *slice;
    guint64 position = 0; /* of the first index of the item at hand */

    g_assert(from <= to && to <= list->extent);
    if (from == 0 && to == list->extent && refit_interval_list_is_packed(list))
        return list_share(list);
    slice = list_alloc(list->n);
    for (guint i = 0; i < list->n && position < to; i++) {
        const RefitInterval *item = &list->items[i];
        guint64 length = item->hi - item->lo;
        guint64 first = from > position ? from - position : 0;
        guint64 last = MIN(length, to - position);

        if (first < last)
            list_append(slice, item->lo + first, item->lo + last, slice->extent);
        position += length;
    }
    return slice;
}

RefitIntervalList *refit_interval_list_part(const RefitIntervalList *list, guint count,
                                            guint64 grain, guint index) {
    guint64 units, each, larger, from, length;

    g_assert(count > 0 && grain > 0 && index < count);
    if (list->extent / count < grain)
        grain = 1;
    units = list->extent / grain + (list->extent % grain > 0 ? 1 : 0); /* the last one is short */
    each = units / count;
    larger = units % count;
    from = index * each + MIN(index, larger);
    length = each + (index < larger ? 1 : 0);
    return refit_interval_list_slice(list, MIN(from * grain, list->extent),
                                     MIN((from + length) * grain, list->extent));
}
