#pragma once

/* What gpu/executor/refit-kernel.h asks of those who compile kernels with a host compiler. */

#include "standin-kernel.h"

#define REFIT_KERNEL_INLINE static inline
#define REFIT_KERNEL(threads, blocks_per_sm) extern "C" void
#define REFIT_KERNEL_UNROLL
#define REFIT_KERNEL_MEMORY(type, address) (standin_memory<type>(address))
#define REFIT_KERNEL_LAUNCH(kernel, blocks, threads, stream, ...)                                  \
    standin_kernel_launch(#kernel, kernel, (blocks), (threads), (stream), __VA_ARGS__)

template <class T> REFIT_KERNEL_INLINE T refit_kernel_load(const T *place) {
    standin_bytes_copied += sizeof(T);
    return *place;
}
