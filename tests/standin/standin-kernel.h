#pragma once

/*
 * Lets a kernel file written with gpu/executor/refit-kernel.h be compiled as plain C++ and run on
 * the streams of the stand-in: a block is a loop over its threads, a grid a loop over its blocks.
 * Right for kernels without shared memory and barriers only. What a kernel reads through
 * refit_kernel_load it copies, once: by these bytes a launch lasts.
 */

#include <numeric>
#include <thread>
#include <tuple>
#include <vector>

#include "standin.h"

struct StandinIndex {
    unsigned x, y, z;
};

extern thread_local StandinIndex standin_thread_index, standin_block_index, standin_block_size,
    standin_grid_size;

#define threadIdx standin_thread_index
#define blockIdx standin_block_index
#define blockDim standin_block_size
#define gridDim standin_grid_size

template <class T> T standin_memory(uint64_t address) {
    return static_cast<T>(standin_memory_of(address));
}

template <class T, class U> T standin_memory(U *address) {
    return static_cast<T>(standin_memory_of(reinterpret_cast<uintptr_t>(address)));
}

template <class... Parameters> struct StandinLaunch {
    void (*kernel)(Parameters...);
    unsigned n_blocks, n_threads;
    std::tuple<Parameters...> arguments;

    /* Returns the bytes that these blocks copied. */
    uint64_t run_blocks(unsigned first, unsigned step) {
        const uint64_t before = standin_bytes_copied;
        standin_grid_size = {n_blocks, 1, 1};
        standin_block_size = {n_threads, 1, 1};
        for (unsigned block = first; block < n_blocks; block += step) {
            standin_block_index = {block, 0, 0};
            for (unsigned thread = 0; thread < n_threads; thread++) {
                standin_thread_index = {thread, 0, 0};
                std::apply(kernel, arguments);
            }
        }
        return standin_bytes_copied - before;
    }

    /* With several threads, blocks run at the same time, and ThreadSanitizer sees two that write
     * one place. */
    static void run(void *closure) {
        auto *launch = static_cast<StandinLaunch *>(closure);
        const unsigned n = standin_block_threads();
        const int device = standin_work_device();
        std::vector<uint64_t> bytes(n); /* of the others */
        std::vector<std::thread> others;
        for (unsigned i = 1; i < n; i++) {
            others.emplace_back([launch, i, n, device, &bytes] {
                standin_work_for(device);
                bytes[i] = launch->run_blocks(i, n);
            });
        }
        launch->run_blocks(0, n);
        for (auto &other : others) {
            other.join();
        }
        standin_bytes_copied += std::accumulate(bytes.begin(), bytes.end(), uint64_t(0));
    }

    static void drop(void *closure) {
        delete static_cast<StandinLaunch *>(closure);
    }
};

template <class... Parameters, class... Arguments>
cudaError_t standin_kernel_launch(const char *name, void (*kernel)(Parameters...),
                                  unsigned n_blocks, unsigned n_threads, cudaStream_t stream,
                                  Arguments... arguments) {
    using Launch = StandinLaunch<Parameters...>;
    if (n_blocks == 0 || n_threads == 0 || n_threads > 1024) {
        return cudaErrorInvalidConfiguration;
    }
    return standin_launch(stream, name, n_blocks, Launch::run, Launch::drop,
                          new Launch{kernel, n_blocks, n_threads, {arguments...}});
}
