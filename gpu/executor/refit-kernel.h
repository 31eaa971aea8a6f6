#pragma once

/*
 * The one place that knows how a kernel file is compiled: by nvcc, or by a host C++ compiler for
 * the CPU stand-in of tests/standin. Kernels written with it use no shared memory, no barriers and
 * one-dimensional launches; they reach device memory only through REFIT_KERNEL_MEMORY, read what no
 * one writes meanwhile through refit_kernel_load, and the time through refit_kernel_nanoseconds.
 */

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define REFIT_KERNEL_INLINE static __device__ __forceinline__
#define REFIT_KERNEL(threads, blocks_per_sm)                                                       \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm)
#define REFIT_KERNEL_UNROLL _Pragma("unroll")
#define REFIT_KERNEL_MEMORY(type, address) (reinterpret_cast<type>(address))
#define REFIT_KERNEL_LAUNCH(kernel, blocks, threads, stream, ...)                                  \
    (kernel<<<(blocks), (threads), 0, (stream)>>>(__VA_ARGS__), cudaGetLastError())

template <class T> REFIT_KERNEL_INLINE T refit_kernel_load(const T *place) {
    return __ldg(place);
}

/* Of a clock that all blocks share; it has steps, of up to a microsecond. */
REFIT_KERNEL_INLINE unsigned long long refit_kernel_nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#else

#include <chrono>

#include <refit-kernel-host.h> /* whoever builds so has one; it defines what is above */

REFIT_KERNEL_INLINE unsigned long long refit_kernel_nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return (unsigned long long)std::chrono::nanoseconds(now).count();
}

#endif
