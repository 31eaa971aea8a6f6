/*
 * Packed projections: how tensor parallelism cuts a tensor whose rows are several matrices.
 *
 * Gate and up of stacked experts, queries, keys and values of a linear attention, gate, input,
 * states and time steps of a state-space mixer: such segments lie side by side in one tensor, and
 * engines cut each on its own, by whole heads or groups, so that a rank holds a run of every
 * segment. An even cut of the whole would hand out other elements. Cost: ranks times segments.
 */

#include "model/layout/refit-layout-private.h"

void refit_listed_cut_clear(RefitListedCut *cut) {
    if (cut->lists != NULL)
        refit_lists_free(cut->lists, cut->placement.n_lists);
    *cut = (RefitListedCut){.lists = NULL};
}

gboolean refit_layout_is_packed(const RefitTensor *tensor, RefitCut cut, const RefitSize *size) {
    return tensor->n_packed > 0 && size->value > 1 && cut != REFIT_CUT_NONE &&
           refit_layout_cut_dim(tensor, cut) == tensor->packed_dim;
}

/* Parts that a segment is cut in, or 0. Padding may be cut unevenly. */
static guint ways_of(guint64 extent, guint units, guint parts, gboolean repeat) {
    if (units == 0 || (extent % parts == 0 && units % parts == 0))
        return parts;
    return repeat && parts % units == 0 && extent % units == 0 ? units : 0;
}

gboolean refit_layout_packed(const RefitTensor *tensor, const RefitSize *size, gboolean repeat,
                             RefitListedCut *cut_out, GError **error) {
    RefitSegment segments[REFIT_MAX_PACKED];

    for (guint i = 0; i < tensor->n_packed; i++) {
        guint64 extent = tensor->packed[i].extent;
        guint units = tensor->packed[i].units;
        guint ways = ways_of(extent, units, size->value, repeat);

        if (ways == 0) {
            refit_node_error(size->place, REFIT_ERROR_INVALID, error,
                             "%s %u does not divide the %u heads or groups of segment %u of %s; "
                             "use a divisor of %u%s",
                             size->name, size->value, units, i, tensor->name, units,
                             repeat ? " or a multiple of it" : "");
            return FALSE;
        }
        segments[i] = (RefitSegment){.extent = extent, .ways = ways};
    }
    RefitIntervalList **lists = refit_lists_of_segments(segments, tensor->n_packed, size->value);
    *cut_out = (RefitListedCut){.placement = {.kind = REFIT_PLACEMENT_SHARD,
                                              .dim = tensor->packed_dim,
                                              .split = REFIT_SPLIT_LISTS,
                                              .n_lists = size->value,
                                              .lists = lists},
                                .lists = lists};
    return TRUE;
}
