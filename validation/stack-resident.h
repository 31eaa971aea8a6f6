#pragma once

/*
 * A kernel that stays on the device as long as it is told, in the shape of NCCL's for sends and
 * receives: 640 threads a block (NCCL 2.28.9, enqueue.cc:1045), and 94 registers a
 * thread, so that a block nearly fills a multiprocessor.
 */

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For each block, bytes of device memory that the kernel needs to have a result. */
#define STACK_RESIDENT_BYTES (640 * 4)

/* Every thread of `blocks` blocks stays for `nanoseconds` from its own start; 0: it ends at once.
 * `sums` has room for STACK_RESIDENT_BYTES of each block. */
cudaError_t stack_resident_launch(unsigned blocks, unsigned long long nanoseconds, void *sums,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif
