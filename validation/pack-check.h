#pragma once

/*
 * The kernels of refit-pack.h against plain loops over elements, on whatever CUDA this is linked
 * with: a GPU, or the CPU stand-in of the tests. Every byte of every buffer is compared, those that
 * must not be touched, too.
 *
 * Functions return FALSE with REFIT_ERROR_BACKEND when a CUDA call fails and REFIT_ERROR_COVERAGE
 * when bytes are wrong.
 */

#include <cuda_runtime_api.h>

#include "gpu/executor/refit-strided.h"
#include "model/base/refit-error.h"

G_BEGIN_DECLS

enum { PACK_CHECK_WIDTHS = 5, PACK_CHECK_SLICES = 4 };

typedef struct {
    GRand *random;
    cudaStream_t stream;
    guint64 most_bytes; /* of an array */
    GArray *addresses;  /* of device memory to free */
    /* what has been done */
    guint64 n_regions, n_bytes;
    guint64 widths[PACK_CHECK_WIDTHS]; /* descriptors with accesses of 2^i bytes */
} PackCheck;

/* Of the current device. */
PackCheck *pack_check_new(guint32 seed, guint64 most_bytes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void pack_check_free(PackCheck *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(PackCheck, pack_check_free)

#define PACK_CHECK_CUDA(call, error) pack_check_cuda((call), #call, (error))
gboolean pack_check_cuda(cudaError_t result, const char *call, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Packs `n` (at most PACK_CHECK_SLICES) random slices of arrays into one buffer by one launch, and
 * unpacks them into other arrays. */
gboolean pack_check_slices(PackCheck *self, guint n, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Copies a random slice to one of the same shape of another array. */
gboolean pack_check_copy(PackCheck *self, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Packs and unpacks one region of `bytes` bytes, rounded down to rows, out of every second row of
 * an array: sizes above 4 GiB need 64-bit offsets on both sides. Takes three times as much device
 * memory.
 */
gboolean pack_check_large(PackCheck *self, guint64 bytes, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
