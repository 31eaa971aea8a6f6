/*
 * Stated lists for fused and packed parameters.
 *
 * Problem: engines keep several tensors, or several projections of one tensor, in one parameter and
 * cut that. Seen from one tensor the cut takes several runs, in an order of its own, and may take
 * the same rows on several ranks. Method: segments are cut each on its own and put side by side;
 * the rows of a fused parameter are walked once, together with the borders of its chunks. Cost:
 * parts times segments, or rows plus parts.
 */

#include "model/geometry/refit-geometry-private.h"

RefitIntervalList **refit_lists_of_segments(const RefitSegment *segments, guint n_segments,
                                            guint parts) {
    RefitIntervalList **lists = g_new(RefitIntervalList *, parts);
    g_autofree RefitInterval *items = g_new(RefitInterval, n_segments);

    for (guint j = 0; j < parts; j++) {
        guint64 start = 0;
        guint64 at = 0;

        for (guint s = 0; s < n_segments; s++) {
            guint ways = segments[s].ways;
            guint64 from, to;

            g_assert(ways >= 1 && ways <= parts);
            refit_split_chunk(segments[s].extent, ways, (guint)((guint64)j * ways / parts), &from,
                              &to);
            items[s] = (RefitInterval){.lo = start + from, .hi = start + to, .at = at};
            at += to - from;
            start += segments[s].extent;
        }
        lists[j] = refit_interval_list_new(items, n_segments, NULL);
        g_assert(lists[j] != NULL); /* segments that fit in 64 bits are disjoint */
    }
    return lists;
}

/* Appends the next rows of the member to the part at hand. */
static void append_rows(GArray *items, guint64 lo, guint64 hi) {
    RefitInterval item = {.lo = lo, .hi = hi};

    if (items->len > 0) {
        const RefitInterval *last = &g_array_index(items, RefitInterval, items->len - 1);
        item.at = last->at + (last->hi - last->lo);
    }
    g_array_append_val(items, item);
}

static gboolean check_rows(const RefitFusedRows *rows, guint n_rows, guint64 *total_out,
                           GError **error) {
    guint64 total = 0;

    for (guint r = 0; r < n_rows; r++) {
        if (rows[r].lo > rows[r].hi) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "rows [%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
                        ") of member %u are reversed: their start must not exceed their end",
                        rows[r].lo, rows[r].hi, rows[r].member);
            return FALSE;
        }
        if (!refit_checked_add(total, rows[r].hi - rows[r].lo, "rows of a fused parameter", &total,
                               error))
            return FALSE;
    }
    *total_out = total;
    return TRUE;
}

RefitIntervalList **refit_lists_of_member(const RefitFusedRows *rows, guint n_rows, guint member,
                                          guint parts, GError **error) {
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    RefitIntervalList **lists;
    guint64 total, each;
    guint64 taken = 0; /* rows of rows[r] that earlier chunks have */
    guint r = 0;

    g_assert(parts > 0);
    if (!check_rows(rows, n_rows, &total, error))
        return NULL;
    each = total / parts + (total % parts != 0);
    lists = g_new0(RefitIntervalList *, parts);
    for (guint j = 0; j < parts; j++) {
        guint64 room = each;

        g_array_set_size(items, 0);
        while (r < n_rows && room > 0) {
            guint64 left = rows[r].hi - rows[r].lo - taken;
            guint64 length = MIN(left, room);

            if (rows[r].member == member && length > 0)
                append_rows(items, rows[r].lo + taken, rows[r].lo + taken + length);
            room -= length;
            taken += length;
            if (length == left) {
                taken = 0;
                r++;
            }
        }
        lists[j] =
            refit_interval_list_new((RefitInterval *)(gpointer)items->data, items->len, error);
        if (lists[j] == NULL) {
            refit_lists_free(lists, parts);
            return NULL;
        }
    }
    return lists;
}

void refit_lists_free(RefitIntervalList **lists, guint parts) {
    if (lists == NULL)
        return;
    for (guint j = 0; j < parts; j++)
        refit_interval_list_unref(lists[j]);
    g_free(lists);
}
