#pragma once

/*
 * Launches of the strided copies described by refit-strided-copy.h, for C and C++. One launch does
 * all copies of a span. Each returns what the launch returned; the work itself is done in stream
 * order.
 *
 * `table` is the table in device memory and must stay there until the launch is done; `packed` is
 * the packed buffer in device memory, aligned to 16 bytes. `max_blocks` (at least 1) bounds the
 * grid, so that other kernels find room beside it. A span without tiles launches nothing.
 */

#include <cuda_runtime_api.h>

#include "gpu/executor/refit-strided-copy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From the strided places into `packed`. */
cudaError_t refit_pack_launch(const RefitStridedCopy *table, const RefitStridedSpan *span,
                              void *packed, unsigned max_blocks, cudaStream_t stream);

/* From `packed` into the strided places. */
cudaError_t refit_unpack_launch(const RefitStridedCopy *table, const RefitStridedSpan *span,
                                const void *packed, unsigned max_blocks, cudaStream_t stream);

/* From strided places to strided places, of a span of refit_strided_table_add_copy. */
cudaError_t refit_copy_launch(const RefitStridedCopy *table, const RefitStridedSpan *span,
                              unsigned max_blocks, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
