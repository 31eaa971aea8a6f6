/*
 * Which tensors keep their rows together in the parameters of a layout.
 *
 * Views say it exactly, but for one rank at a cost of all tensors. Here the row of the table of
 * packings decides: a parameter of its own and parts one after the other leave a shard as it is, so
 * that what is one run of the shard is one run of the parameter. The answer is FALSE in doubt.
 * Cost: a search in the table; fused parameters that a layout states are searched in turn.
 */

#include "model/layout/refit-view-private.h"

/* The fused parameter of stated members that has the tensor, or NULL. */
static const RefitFused *find_fused(const RefitLayout *layout, guint tensor) {
    for (guint f = 0; f < refit_layout_n_fused(layout); f++) {
        const RefitFused *fused = refit_layout_fused(layout, f);

        for (guint m = 0; m < fused->n_members; m++)
            if (fused->members[m] == tensor)
                return fused;
    }
    return NULL;
}

gboolean refit_layout_keeps_rows(const RefitLayout *layout, guint tensor) {
    const RefitSharding *sharding = refit_layout_sharding(layout, tensor);
    const RefitTensor *self = refit_model_tensor(refit_layout_model(layout), tensor);
    const RefitFused *fused = find_fused(layout, tensor);
    const RefitPacking *row;
    g_autofree char *name = NULL;

    if (sharding == NULL || refit_sharding_n_parts(sharding) != 1)
        return FALSE;
    if (fused != NULL)
        return fused->n_rows == 0;
    row = refit_packing_find(refit_view_framework(layout), refit_layout_packing_options(layout),
                             self, &name);
    if (row == NULL)
        return TRUE;
    return (row->pack == REFIT_PACK_OWN || row->pack == REFIT_PACK_CONCAT) && !row->transposed &&
           row->inner != REFIT_INNER_PAIRS && !refit_view_is_stack(self);
}

gboolean refit_layout_is_run(const RefitLayout *layout, guint tensor, guint rank,
                             const RefitRegion *region) {
    const RefitTensor *self = refit_model_tensor(refit_layout_model(layout), tensor);
    guint64 buffer[REFIT_MAX_DIMS], stride = 1, place;
    RefitView view = {.tensor = tensor};
    gboolean run;

    if (!refit_sharding_local(refit_layout_sharding(layout, tensor), 0, rank, self->n_dims,
                              self->shape, &view.region, buffer, NULL))
        return FALSE;
    for (guint d = self->n_dims; d-- > 0; stride *= buffer[d])
        view.stride[d] = stride;
    run = refit_region_contains(&view.region, region) && refit_view_is_run(&view, region, &place);
    refit_region_clear(&view.region);
    return run;
}
