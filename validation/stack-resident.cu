/*
 * A resident kernel. Its threads compute in registers, each from others, and store a sum in the
 * end, so that the compiler can do without none of them in the whole loop. Cost: the time that it
 * is told to stay.
 */

#include "validation/stack-resident.h"

#include "gpu/executor/refit-kernel.h"

namespace {

constexpr unsigned n_threads = 640;
constexpr int n_held = 88; /* of 94 registers in all, which the hardware counts as 96 */

} // namespace

REFIT_KERNEL(n_threads, 1)
stack_resident_kernel(unsigned long long nanoseconds, unsigned *sums) {
    const unsigned long long begin = refit_kernel_nanoseconds();
    const unsigned self = blockIdx.x * n_threads + threadIdx.x;
    unsigned held[n_held], sum = 0;
    REFIT_KERNEL_UNROLL
    for (int i = 0; i < n_held; i++) {
        held[i] = (self + unsigned(i)) * unsigned(begin);
    }
    do {
        REFIT_KERNEL_UNROLL
        for (int i = 0; i < n_held; i++) {
            held[i] = held[i] * 5 + held[(i + 7) % n_held];
        }
    } while (refit_kernel_nanoseconds() - begin < nanoseconds);
    REFIT_KERNEL_UNROLL
    for (int i = 0; i < n_held; i++) {
        sum ^= held[i];
    }
    REFIT_KERNEL_MEMORY(unsigned *, sums)[self] = sum;
}

extern "C" cudaError_t stack_resident_launch(unsigned blocks, unsigned long long nanoseconds,
                                             void *sums, cudaStream_t stream) {
    return REFIT_KERNEL_LAUNCH(stack_resident_kernel, blocks, n_threads, stream, nanoseconds,
                               static_cast<unsigned *>(sums));
}
