#pragma once

/*
 * CPU stand-in for the CUDA runtime and NCCL: a test double, never part of the program. It
 * implements the functions of cuda_runtime_api.h and nccl.h that the executor calls, on the memory
 * and threads of the host, so that the executor's host code and kernels run in tests on any
 * machine. It says nothing about the speed or the internals of a GPU or of NCCL. README.md lists
 * what it models and its environment variables. This header is what kernels and tests see besides
 * the two real ones.
 */

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the stand-in ends a process that it cannot let go on. */
enum {
    STANDIN_EXIT_STUCK = 86, /* nothing moved for REFIT_STANDIN_TIMEOUT_MS */
    STANDIN_EXIT_MISUSE = 87 /* a call that a GPU would punish in ways hard to see, or a leak */
};

/* For kernels: where the bytes of device address `address` are. Ends the process unless it lies in
 * live memory of the device whose stream this thread works for. */
void *standin_memory_of(uint64_t address);

/* How many threads run the blocks of a kernel, and the device that this thread works for: what one
 * that helps it must be told. */
unsigned standin_block_threads(void);
int standin_work_device(void);
void standin_work_for(int device);

/* For kernels: what this thread has copied, ever. By it a launch lasts as long as
 * REFIT_STANDIN_KERNEL_RATES says. */
extern __thread uint64_t standin_bytes_copied;

/* For tests: communicators of the device that have not been destroyed or aborted; 0 where a kernel
 * hangs, for nothing can be ended there. */
unsigned standin_comms_of(int device);
/* For tests: events of the device that have not been destroyed. */
unsigned standin_events_of(int device);

/* For tests: what NCCL's rules say of a communicator (README.md), which is an ncclComm_t. */
typedef struct {
    unsigned nodes;      /* NVLink domains: hosts, or fast groups */
    unsigned channels;   /* for sends and receives; a power of two */
    unsigned per_peer;   /* of them, for one message at most, and connected to each peer */
    unsigned collective; /* channels of collectives */
    uint64_t chunk;      /* bytes of a step */
} StandinChannels;
struct ncclComm;
void standin_channels(const struct ncclComm *comm, StandinChannels *channels_out);

/* The channels of a message to (`is_send`) or from a peer, one bit each; the peer may be the rank
 * itself. */
uint64_t standin_message_channels(const struct ncclComm *comm, int peer, int is_send,
                                  uint64_t bytes);

/* The channels of the communicator's last group, one bit each, and how many: its kernel's CTAs. */
uint64_t standin_group_channels(const struct ncclComm *comm);
unsigned standin_group_ctas(const struct ncclComm *comm);

/* What a channel of the communicator has been given so far to send, or to receive. */
uint64_t standin_channel_bytes(const struct ncclComm *comm, int is_send, unsigned channel);

/* Device memory that connections take, made and kept for the first message of each pair of ranks:
 * of a communicator on its own device, and on a device by all, other ranks' PXN pools included. */
uint64_t standin_connection_bytes(const struct ncclComm *comm);
uint64_t standin_connection_bytes_of(int device);

/* Threads that NCCL would have made so far for groups: one for each group on communicators that are
 * not blocking. */
unsigned standin_group_threads(void);

/* Queues a kernel of that many blocks: `run` is called once on the stream's thread, then `drop`,
 * with `closure`. */
cudaError_t standin_launch(cudaStream_t stream, const char *name, unsigned n_blocks,
                           void (*run)(void *closure), void (*drop)(void *closure), void *closure);

#ifdef __cplusplus
}
#endif
