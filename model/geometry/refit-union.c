/*
 * Size of a union of regions, by a sweep.
 *
 * Along one dim every region is a list of intervals; their ends cut the dim into segments inside
 * which the set of regions present does not change. A segment with one region contributes that
 * region's extent in the remaining dims; one with several is measured in the next dim, for those
 * regions only. Interleaved layouts repeat the same few sets many times, so the last set and its
 * measure are kept. Cost: sorting the cuts, plus the regions that meet at each.
 */

#include "model/geometry/refit-geometry.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    guint64 at;
    guint region;
    gboolean opens;
} Cut;

/* Closing before opening at the same place: adjacent intervals do not meet. */
static int compare_cuts(gconstpointer a, gconstpointer b) {
    const Cut *left = a, *right = b;
    if (left->at != right->at)
        return left->at < right->at ? -1 : 1;
    return (int)left->opens - (int)right->opens;
}

static guint64 tail_volume(const RefitRegion *region, guint dim) {
    guint64 volume = 1;
    for (; dim < region->n_dims; dim++)
        volume *= region->dims[dim]->extent;
    return volume;
}

static gboolean all_same(const RefitRegion *const *regions, guint n, guint dim) {
    for (guint i = 1; i < n; i++)
        if (regions[i]->dims[dim] != regions[0]->dims[dim] &&
            !refit_interval_list_same_indices(regions[i]->dims[dim], regions[0]->dims[dim]))
            return FALSE;
    return TRUE;
}

static guint64 measure(const RefitRegion *const *regions, guint n, guint dim) {
    if (n == 0)
        return 0;
    guint64 common = 1; /* dims that all regions cover alike */
    while (dim < regions[0]->n_dims && (n == 1 || all_same(regions, n, dim)))
        common *= regions[0]->dims[dim++]->extent;
    if (dim == regions[0]->n_dims)
        return common;

    gsize n_cuts = 0;
    for (guint i = 0; i < n; i++)
        n_cuts += 2 * (gsize)regions[i]->dims[dim]->n;
    g_autofree Cut *cuts = g_new(Cut, MAX(n_cuts, 1));
    n_cuts = 0;
    for (guint i = 0; i < n; i++) {
        const RefitIntervalList *list = regions[i]->dims[dim];
        for (guint item = 0; item < list->n; item++) {
            cuts[n_cuts++] = (Cut){list->items[item].lo, i, TRUE};
            cuts[n_cuts++] = (Cut){list->items[item].hi, i, FALSE};
        }
    }
    qsort(cuts, n_cuts, sizeof *cuts, compare_cuts);

    g_autofree guint *active = g_new(guint, n); /* ascending region numbers */
    g_autofree guint *last = g_new(guint, n);
    g_autofree const RefitRegion **present = g_new(const RefitRegion *, n);
    guint n_active = 0, n_last = 0;
    guint64 last_measure = 0, sum = 0;
    for (gsize i = 0; i < n_cuts;) {
        guint64 from = cuts[i].at;
        for (; i < n_cuts && cuts[i].at == from; i++) {
            guint at = 0;
            while (at < n_active && active[at] < cuts[i].region)
                at++;
            if (cuts[i].opens) {
                memmove(active + at + 1, active + at, (n_active - at) * sizeof *active);
                active[at] = cuts[i].region;
                n_active++;
            } else {
                n_active--;
                memmove(active + at, active + at + 1, (n_active - at) * sizeof *active);
            }
        }
        if (n_active == 0)
            continue;
        if (n_active == 1) {
            sum += (cuts[i].at - from) * tail_volume(regions[active[0]], dim + 1);
            continue;
        }
        if (n_active != n_last || memcmp(active, last, n_active * sizeof *active) != 0) {
            for (guint j = 0; j < n_active; j++)
                present[j] = regions[active[j]];
            last_measure = measure(present, n_active, dim + 1);
            memcpy(last, active, n_active * sizeof *active);
            n_last = n_active;
        }
        sum += (cuts[i].at - from) * last_measure;
    }
    return common * sum;
}

guint64 refit_union_volume(const RefitRegion *const *regions, guint n) {
    return measure(regions, n, 0);
}
