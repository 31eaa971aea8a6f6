#pragma once

/*
 * How the interval lists of two holdings cut one tensor dim. Internal to the geometry.
 *
 *   lists of a: [0,4) [4,8)      lists of b: [0,6) [6,8)
 *   groups: [0,4) in a0 b0, [4,6) in a1 b0, [6,8) in a1 b1
 *
 * A group is the set of indices that no list of either side tells apart. Groups are disjoint, in
 * the order of their first index, and only those that some list of b covers are kept.
 */

#include "model/geometry/refit-geometry.h"

G_BEGIN_DECLS

typedef struct {
    guint n_lists; /* distinct lists of both sides together, in refit_interval_list_compare order */
    const RefitIntervalList **lists; /* borrowed from the holdings */
    gboolean *in_b;                  /* per list: some piece of b has it */
    guint *a_list, *b_list;          /* per piece: its list */
    guint n_groups;
    RefitIntervalList **groups; /* owned, local places counted from 0 */
    /* Lists that cover group g, ascending: cover[cover_start[g] .. cover_start[g + 1]). */
    guint *cover_start, *cover;
    /* Groups of list l, ascending: parts[parts_start[l] .. parts_start[l + 1]). */
    guint *parts_start, *parts;
} RefitCuts;

/* Cost: sort of the distinct lists and their cuts, plus the lists that meet at each cut. */
void refit_cuts_init(RefitCuts *cuts, const RefitHolding *a, const RefitHolding *b, guint dim);
void refit_cuts_clear(RefitCuts *cuts);

G_END_DECLS
