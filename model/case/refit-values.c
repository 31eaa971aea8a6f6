/*
 * Whether both sides hold the same numbers: each tensor's row in the tables of packings says.
 *
 * Cost: linear in the tensors, and a search in a table for those of a role that has such rows.
 */

#include "model/case/refit-values.h"

#include "model/layout/refit-view.h"

static gboolean is_gap(const RefitCase *refit_case, guint pool, guint tensor,
                       RefitValuesGap *gap_out) {
    const RefitLayout *destination = refit_case->destinations[pool];

    if (refit_layout_sharding(refit_case->source, tensor) == NULL ||
        refit_layout_sharding(destination, tensor) == NULL)
        return FALSE;
    *gap_out = (RefitValuesGap){.tensor = tensor,
                                .pool = pool,
                                .source = refit_layout_values(refit_case->source, tensor),
                                .destination = refit_layout_values(destination, tensor)};
    return !g_str_equal(gap_out->source, gap_out->destination);
}

gboolean refit_values_find_gap(const RefitCase *refit_case, RefitValuesGap *gap_out) {
    RefitValuesGap first = {0};

    for (guint pool = 0; pool < refit_case->n_destinations && first.n_tensors == 0; pool++) {
        guint64 roles = refit_layout_value_roles(refit_case->source) |
                        refit_layout_value_roles(refit_case->destinations[pool]);

        for (guint t = 0; t < refit_model_n_tensors(refit_case->model); t++) {
            guint64 role = (guint64)1 << refit_model_tensor(refit_case->model, t)->role;
            RefitValuesGap gap;

            if ((roles & role) == 0 || !is_gap(refit_case, pool, t, &gap))
                continue;
            if (first.n_tensors == 0)
                first = gap;
            if (g_str_equal(gap.source, first.source) &&
                g_str_equal(gap.destination, first.destination))
                first.n_tensors++;
        }
    }
    *gap_out = first;
    return first.n_tensors > 0;
}

gboolean refit_values_check(const RefitCase *refit_case, GError **error) {
    RefitValuesGap gap;

    if (!refit_values_find_gap(refit_case, &gap))
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED,
                "%s, one of %u: %s holds %s of it and %s %s, so that a copy would install wrong "
                "numbers; leave them out with except: and have the engine load them",
                refit_model_tensor(refit_case->model, gap.tensor)->name, gap.n_tensors,
                refit_layout_side(refit_case->source), gap.source,
                refit_layout_side(refit_case->destinations[gap.pool]), gap.destination);
    return FALSE;
}
