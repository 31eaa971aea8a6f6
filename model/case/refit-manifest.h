#pragma once

/*
 * A manifest: what the ranks of two sides declare of their tensors, and a case made of it.
 *
 * Programs that do not write case files build a case here: they add tensors, say how each side
 * holds them, and what ranks report about themselves (local shapes, devices, sizes on the wire).
 * Everything that can be known to be wrong before a byte moves is refused, each with its own error
 * code and a message that names tensor, ranks and numbers.
 *
 *   g_autoptr(RefitManifest) manifest = refit_manifest_new();
 *   refit_manifest_add(manifest, &tensor, &index, &error)
 *   refit_manifest_place(manifest, index, REFIT_SIDE_SOURCE, sharding);
 *   ...
 *   RefitCase *refit_case = refit_manifest_to_case(manifest, topology, profile, &error);
 */

#include "model/case/refit-case.h"

G_BEGIN_DECLS

typedef enum { REFIT_SIDE_SOURCE, REFIT_SIDE_DESTINATION, REFIT_N_SIDES } RefitSide;

typedef struct _RefitManifest RefitManifest;

RefitManifest *refit_manifest_new(void);
void refit_manifest_free(RefitManifest *manifest);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitManifest, refit_manifest_free)

/*
 * Adds a tensor, copying `tensor` (its elements and bytes are computed here); its dtype is the one
 * on the wire. REFIT_ERROR_NAME_COLLISION when the name is taken; for names that differ only by a
 * stage's own numbering of layers this is how the mistake shows. REFIT_ERROR_OVERFLOW.
 */
gboolean refit_manifest_add(RefitManifest *manifest, const RefitTensor *tensor, guint *index_out,
                            GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * How a side holds a tensor; takes ownership of `sharding`, in place of an earlier one. Without one
 * the side does not hold it. A scale tensor without one follows its tensor: each rank holds the
 * blocks that its shard touches, and REFIT_ERROR_SHAPE_MISMATCH says when the scale has not one
 * element per block.
 */
void refit_manifest_place(RefitManifest *manifest, guint tensor, RefitSide side,
                          RefitSharding *sharding);
/* The global shape, and the dtype on the wire, as that side has them. Two dtypes of one size differ
 * on the wire as well: the bytes would be read wrongly. */
void refit_manifest_state_shape(RefitManifest *manifest, guint tensor, RefitSide side, guint n_dims,
                                const guint64 *shape);
void refit_manifest_state_wire(RefitManifest *manifest, guint tensor, RefitSide side,
                               RefitDtype dtype);
/* The local shape (of the data, without padding) that a rank reports. A rank that the layout places
 * twice may report either. */
void refit_manifest_state_local(RefitManifest *manifest, guint tensor, RefitSide side, guint rank,
                                guint n_dims, const guint64 *shape);
/* The rank does not have the tensor although its layout says so. `tensor` and `side` as above. */
void refit_manifest_withdraw(RefitManifest *manifest, guint tensor, RefitSide side, guint rank);
/* A name that must be there. */
void refit_manifest_require(RefitManifest *manifest, const char *name);
/* The device a rank runs on, "node3:gpu0"; NCCL wants one rank per device. */
void refit_manifest_bind(RefitManifest *manifest, guint rank, const char *device);
/* The rank is gone: it neither sends nor receives. */
void refit_manifest_fail_rank(RefitManifest *manifest, guint rank);

/*
 * Checks everything and builds the case. `topology` and `profile` are taken, also on error; every
 * rank is a GPU of the topology. Errors, in the order they are looked for: NAME_MISSING,
 * DEVICE_DUP, INVALID for a failed rank beyond the topology, SHAPE_MISMATCH, WIRE_SIZE; then side
 * by side INVALID for a rank beyond the topology, those of the geometry, GRANULE_SPLIT, TILE_SPLIT
 * and SUBBYTE_SPLIT, LOCAL_SHAPE. Uncovered elements show when the problem is built. Cost: geometry
 * once per distinct sharding and shape.
 */
RefitCase *refit_manifest_to_case(const RefitManifest *manifest, RefitTopology *topology,
                                  RefitProfile *profile, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
