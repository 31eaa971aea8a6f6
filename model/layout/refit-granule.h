#pragma once

/*
 * Cuts that a type does not allow: inside a block that shares a scale, inside a tile of a swizzled
 * order, inside a byte. A cut is an end of an interval that a rank holds, unless it is the end of
 * the dim.
 */

#include "model/layout/refit-layout.h"

G_BEGIN_DECLS

/*
 * REFIT_ERROR_GRANULE_SPLIT, _TILE_SPLIT or _SUBBYTE_SPLIT naming tensor, side, rank, dim and
 * place. `side` ("train") is for messages. Cost: intervals of the holding.
 */
gboolean refit_granules_check(const RefitTensor *tensor, const RefitHolding *holding,
                              const char *side, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* The same for all that a side holds; geometry once per distinct sharding and tensor shape. */
gboolean refit_granules_check_layout(const RefitLayout *layout, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * TRUE when a contiguous run of `region` starts or ends inside a byte (sub-byte types only); then
 * the dim and one such place of it.
 */
gboolean refit_granules_cut_byte(RefitDtype dtype, guint n_dims, const guint64 *shape,
                                 const RefitRegion *region, guint *dim_out, guint64 *place_out);

G_END_DECLS
