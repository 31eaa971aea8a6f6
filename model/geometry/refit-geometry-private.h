#pragma once

/*
 * What the files of the geometry share: how one mesh axis cuts the local buffer of a dim.
 */

#include "model/geometry/refit-geometry.h"

G_BEGIN_DECLS

/* Appends "mesh [2, 4]". */
void refit_mesh_append_sizes(GString *text, guint n_axes, const guint *sizes);

/* Checks `placements` of a part against `n_dims`. */
gboolean refit_split_check_dims(const RefitPlacement *placements, guint n_axes, guint n_dims,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Extent of dim `dim` that cuts act on: the padded one where there is one. REFIT_ERROR_INVALID when
 * it is below the tensor's.
 */
gboolean refit_split_extent(const RefitSharding *sharding, guint dim, guint64 extent,
                            guint64 *extent_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* torch.chunk: places [*from_out, *to_out) of chunk `index`, ceil(extent / parts) of them until
 * they run out. */
void refit_split_chunk(guint64 extent, guint parts, guint index, guint64 *from_out,
                       guint64 *to_out);
/*
 * Cuts the local buffer of `list` as `placement` of mesh axis `axis` says: part `first` to part
 * `first + n - 1` of `parts` into parts_out, each with local places from 0. Cuts act in the order
 * of local places, as an engine cuts its buffer. REFIT_ERROR_PARTITION_SUM.
 */
gboolean refit_split_list(const RefitIntervalList *list, const RefitPlacement *placement,
                          guint axis, guint parts, guint first, guint n,
                          RefitIntervalList **parts_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* The indices of `list` below `extent`, at their local places; takes the reference to `list`. */
RefitIntervalList *refit_split_clip(RefitIntervalList *list, guint64 extent);

G_END_DECLS
