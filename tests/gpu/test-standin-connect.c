/*
 * Device memory of connections on the CPU stand-in: amounts worked out by hand from NCCL 2.28.9's
 * buffers, on one node and between nodes, with and without PXN; what does not fit; what an end
 * gives back.
 */

#include "standin-child.h"

#include <string.h>

#define SIZE ((size_t)100)
#define MIB (UINT64_C(1) << 20)

static const char *const two_hosts[] = {"REFIT_STANDIN_DEVICES=16", "REFIT_STANDIN_HOST_DEVICES=8",
                                        NULL};
static const char *const no_pxn[] = {"REFIT_STANDIN_DEVICES=16", "REFIT_STANDIN_HOST_DEVICES=8",
                                     "NCCL_PXN_DISABLE=1", NULL};

static uint64_t used(void) {
    size_t left, total;
    CUDA(cudaMemGetInfo(&left, &total));
    return total - left;
}

/* A message from rank `from` to rank `to`; others do nothing. */
static void send_one(Rank *rank, int from, int to) {
    char *a = device_new(SIZE, rank->rank);
    if (rank->rank == from) {
        NCCL(ncclSend(a, SIZE, ncclUint8, to, rank->comm, rank->stream));
    } else if (rank->rank == to) {
        NCCL(ncclRecv(a, SIZE, ncclUint8, from, rank->comm, rank->stream));
        device_expect(rank->stream, a, SIZE, from);
    }
    CUDA(cudaStreamSynchronize(rank->stream));
    CUDA(cudaFree(a));
}

/* All ranks have come this far; takes no memory. */
static void meet(Rank *rank) {
    ncclComm_t none;
    NCCL(ncclCommSplit(rank->comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
}

static void expect_bytes(Rank *rank, uint64_t bytes) {
    const uint64_t own = standin_connection_bytes(rank->comm);
    if (own != bytes) {
        g_printerr("rank %d: %" G_GUINT64_FORMAT " MiB, expected %" G_GUINT64_FORMAT "\n",
                   rank->rank, own / MIB, bytes / MIB);
    }
    CHECK(own == bytes);
}

/* ---- one node ---- */

/* 32 channels of 10 MiB to receive and 2 MiB to send. */
static void rank_pair(Rank *rank) {
    const uint64_t both[2] = {64 * MIB, 320 * MIB}; /* of the sender, of the receiver */
    CHECK(used() == 0);
    send_one(rank, 0, 1);
    expect_bytes(rank, rank->rank < 2 ? both[rank->rank] : 0);
    send_one(rank, 0, 1); /* once only */
    expect_bytes(rank, rank->rank < 2 ? both[rank->rank] : 0);
    send_one(rank, 1, 0);
    expect_bytes(rank, rank->rank < 2 ? 384 * MIB : 0);
    CHECK(used() == (rank->rank < 2 ? 384 * MIB : 0));
    CHECK(standin_connection_bytes_of(rank->rank) == used());
    NCCL(ncclCommDestroy(rank->comm));
    rank->comm = NULL;
    CHECK(used() == 0 && standin_connection_bytes_of(rank->rank) == 0);
}

static void body_pair(void) {
    ranks_run(3, RANKS_AS_THREADS, rank_pair);
}

static void body_pair_processes(void) {
    ranks_run(3, RANKS_AS_PROCESSES, rank_pair);
}

static void test_pair(void) {
    const char *const tcp[] = {"REFIT_STANDIN_TRANSPORT=tcp", NULL};
    child_passes(body_pair, NULL);
    child_passes(body_pair_processes, NULL);
    child_passes(body_pair_processes, tcp);
}

static void all_to_all(Rank *rank, ncclComm_t comm, int n, int own) {
    char *a = device_new(SIZE * 64, rank->rank);
    NCCL(ncclGroupStart());
    for (int peer = 0; peer < n; peer++) {
        if (peer != own) {
            NCCL(ncclSend(a, SIZE, ncclUint8, peer, comm, rank->stream));
            NCCL(
                ncclRecv(a + SIZE * (size_t)(peer + 1), SIZE, ncclUint8, peer, comm, rank->stream));
        }
    }
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(rank->stream));
    CUDA(cudaFree(a));
}

/* Seven peers: 7 x 32 x 12 MiB; each communicator pays anew, by its own channels. */
static void rank_node(Rank *rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t narrow;
    config.maxCTAs = 8;
    all_to_all(rank, rank->comm, 8, rank->rank);
    expect_bytes(rank, 2688 * MIB);
    NCCL(ncclCommSplit(rank->comm, 0, rank->rank, &narrow, &config));
    all_to_all(rank, narrow, 8, rank->rank);
    CHECK(standin_connection_bytes(narrow) == 672 * MIB);
    CHECK(used() == 3360 * MIB);
    NCCL(ncclCommAbort(narrow)); /* gives back as well */
    CHECK(used() == 2688 * MIB);
}

static void body_node(void) {
    ranks_run(8, RANKS_AS_THREADS, rank_node);
}

static void test_node(void) {
    child_passes(body_node, NULL);
}

/* To itself and in collectives of this model: none. */
static void rank_none(Rank *rank) {
    char *a = device_new(SIZE, 0);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(a, SIZE / 2, ncclUint8, rank->rank, rank->comm, rank->stream));
    NCCL(ncclRecv(a + SIZE / 2, SIZE / 2, ncclUint8, rank->rank, rank->comm, rank->stream));
    NCCL(ncclGroupEnd());
    NCCL(ncclBroadcast(a, a, SIZE, ncclUint8, 0, rank->comm, rank->stream));
    CUDA(cudaStreamSynchronize(rank->stream));
    expect_bytes(rank, 0);
    CUDA(cudaFree(a));
}

static void body_none(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_none);
}

static void test_none(void) {
    child_passes(body_none, NULL);
}

/* ---- between nodes ---- */

/* Pools of 16 channels x 16 steps x 128 KiB = 32 MiB. Rank 0's message to rank 9 leaves by the NIC
 * of rank 1, on whose device the pool lies. */
static void rank_rails(Rank *rank) {
    send_one(rank, 0, 8);
    meet(rank);
    expect_bytes(rank, rank->rank == 0 || rank->rank == 8 ? 32 * MIB : 0);
    CHECK(used() == standin_connection_bytes(rank->comm));
    meet(rank);
    send_one(rank, 0, 9);
    send_one(rank, 0, 9);
    meet(rank);
    expect_bytes(rank, rank->rank == 0 || rank->rank == 8 || rank->rank == 9 ? 32 * MIB : 0);
    CHECK(
        used() ==
        (rank->rank == 0 || rank->rank == 1 || rank->rank == 8 || rank->rank == 9 ? 32 * MIB : 0));
    CHECK(standin_connection_bytes_of(rank->rank) == used());
    meet(rank);
    send_one(rank, 0, 1); /* a pair of one node here has 2 channels */
    expect_bytes(rank, rank->rank == 0                      ? 36 * MIB
                       : rank->rank == 1                    ? 20 * MIB
                       : rank->rank == 8 || rank->rank == 9 ? 32 * MIB
                                                            : 0);
    meet(rank);
}

static void rank_rails_threads(Rank *rank) {
    rank_rails(rank);
    if (rank->rank == 0) {
        NCCL(ncclCommDestroy(rank->comm));
        rank->comm = NULL;
        CHECK(standin_connection_bytes_of(0) == 0);
        CHECK(standin_connection_bytes_of(1) == 20 * MIB || standin_connection_bytes_of(1) == 0);
    }
}

static void body_rails(void) {
    ranks_run(16, RANKS_AS_THREADS, rank_rails_threads);
}

static void body_rails_processes(void) {
    ranks_run(16, RANKS_AS_PROCESSES, rank_rails);
}

static void test_rails(void) {
    child_passes(body_rails, two_hosts);
    child_passes(body_rails_processes, two_hosts);
}

/* Everything to everyone on two hosts of eight: 7 peers near, 2 channels each; a pool to receive,
 * and one for each of the eight ranks of the node, its own included. */
static void rank_full(Rank *rank) {
    all_to_all(rank, rank->comm, 16, rank->rank);
    meet(rank);
    CHECK(used() == (7 * 2 * 12 + 32 + 8 * 32) * MIB);
    expect_bytes(rank, (7 * 2 * 12 + 32 + 32) * MIB);
    meet(rank);
}

static void rank_full_no_pxn(Rank *rank) {
    all_to_all(rank, rank->comm, 16, rank->rank);
    meet(rank);
    CHECK(used() == (7 * 2 * 12 + 32 + 32) * MIB);
    meet(rank);
}

static void body_full(void) {
    ranks_run(16, RANKS_AS_THREADS, rank_full);
}

static void body_full_processes(void) {
    ranks_run(16, RANKS_AS_PROCESSES, rank_full);
}

static void body_full_no_pxn(void) {
    ranks_run(16, RANKS_AS_THREADS, rank_full_no_pxn);
}

static void test_full(void) {
    child_passes(body_full, two_hosts);
    child_passes(body_full_processes, two_hosts);
    child_passes(body_full_no_pxn, no_pxn);
}

/* ---- what does not fit ---- */

/* One byte less than the sender's buffer and its 64 MiB. The peer never hears of it. */
static void rank_too_much(Rank *rank) {
    if (rank->rank == 0) {
        char *a = device_new(SIZE, 0);
        ncclResult_t state;
        CHECK(ncclSend(a, SIZE, ncclUint8, 1, rank->comm, rank->stream) == ncclUnhandledCudaError);
        CHECK(strstr(ncclGetLastError(rank->comm), "Cuda failure 2 'out of memory'") != NULL);
        NCCL(ncclCommGetAsyncError(rank->comm, &state));
        CHECK(state == ncclUnhandledCudaError);
        CHECK(ncclSend(a, SIZE, ncclUint8, 1, rank->comm, rank->stream) == ncclUnhandledCudaError);
        NCCL(ncclCommAbort(rank->comm));
        rank->comm = NULL;
        CUDA(cudaFree(a));
        CHECK(used() == 0);
    }
}

static void body_too_much(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_too_much);
}

/* A receiver's 320 MiB and its buffer fit to the byte. */
static void rank_exactly(Rank *rank) {
    char *more;
    send_one(rank, 0, 1);
    if (rank->rank == 1) {
        CHECK(used() == 320 * MIB);
        CHECK(cudaMalloc((void **)&more, SIZE + 1) == cudaErrorMemoryAllocation);
        CUDA(cudaMalloc((void **)&more, SIZE));
        NCCL(ncclCommDestroy(rank->comm));
        rank->comm = NULL;
        CUDA(cudaFree(more));
    }
}

static void body_exactly(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_exactly);
}

/* Not blocking: the state tells. */
static void rank_too_much_nonblocking(Rank *rank, const ncclUniqueId *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclInProgress;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&rank->comm, rank->n, *id, rank->rank, &config) == ncclInProgress);
    while (state == ncclInProgress) {
        NCCL(ncclCommGetAsyncError(rank->comm, &state));
    }
    if (rank->rank == 0) {
        char *a = device_new(SIZE, 0);
        cudaStream_t stream = stream_new();
        CHECK(ncclRecv(a, SIZE, ncclUint8, 1, rank->comm, stream) == ncclInProgress);
        NCCL(ncclCommGetAsyncError(rank->comm, &state));
        CHECK(state == ncclUnhandledCudaError);
        CUDA(cudaStreamDestroy(stream));
        CUDA(cudaFree(a));
    }
    NCCL(ncclCommAbort(rank->comm));
}

static void body_too_much_nonblocking(void) {
    ranks_run_bare(2, RANKS_AS_THREADS, rank_too_much_nonblocking);
}

static void test_too_much(void) {
    const char *const less[] = {"REFIT_STANDIN_MEMORY=67108963", NULL};
    const char *const exactly[] = {"REFIT_STANDIN_MEMORY=335544420", NULL};
    const char *const some[] = {"REFIT_STANDIN_MEMORY=335544419", NULL};
    child_passes(body_too_much, less);
    child_passes(body_exactly, exactly);
    child_passes(body_too_much_nonblocking, some);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/connect/a-pair-on-one-node", test_pair);
    g_test_add_func("/connect/a-node-of-eight", test_node);
    g_test_add_func("/connect/messages-that-need-none", test_none);
    g_test_add_func("/connect/pools-lie-where-the-nic-is", test_rails);
    g_test_add_func("/connect/two-nodes-in-full", test_full);
    g_test_add_func("/connect/what-does-not-fit-fails", test_too_much);
    return g_test_run();
}
