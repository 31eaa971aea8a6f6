/*
 * Channels and connections of the CPU stand-in: the memory that NCCL's buffers take when ranks
 * first meet, by hand, on one host and on two; with stated channels; without room for them; and
 * groups that make a thread.
 */

#include "standin-child.h"

#include <string.h>

#define MIB ((guint64)1 << 20)

/* What the ranks of a child do; `config` NULL: NCCL's defaults. */
static ncclConfig_t stated;
static gboolean states, may_fail;
static guint64 expected[8]; /* bytes per device */

/* All ranks come here, and go on together. */
static void meet(ncclComm_t comm, cudaStream_t stream) {
    char *all = device_new(8, 0);

    NCCL(ncclAllGather(all, all, 1, ncclUint8, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaFree(all));
}

static ncclResult_t move(ncclComm_t comm, cudaStream_t stream, int to, int from) {
    char *out = device_new(16, 1), *in = device_new(16, 0);
    ncclResult_t result = ncclSuccess, end;

    NCCL(ncclGroupStart());
    if (to >= 0)
        result = ncclSend(out, 16, ncclUint8, to, comm, stream);
    if (from >= 0 && result == ncclSuccess)
        result = ncclRecv(in, 16, ncclUint8, from, comm, stream);
    end = ncclGroupEnd();
    result = result == ncclSuccess ? end : result;
    if (result == ncclSuccess)
        CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaFree(out));
    CUDA(cudaFree(in));
    return result;
}

static ncclComm_t split(Rank *rank) {
    ncclComm_t comm;

    NCCL(ncclCommSplit(rank->comm, 0, rank->rank, &comm, states ? &stated : NULL));
    return comm;
}

/* Round a ring, twice. */
static void rank_ring(Rank *rank) {
    ncclComm_t comm = split(rank);
    size_t before, after, total;

    CUDA(cudaMemGetInfo(&before, &total));
    for (guint i = 0; i < 2; i++) {
        NCCL(move(comm, rank->stream, (rank->rank + 1) % rank->n,
                  (rank->rank + rank->n - 1) % rank->n));
        meet(comm, rank->stream);
        CHECK(standin_connection_bytes(rank->rank) == expected[rank->rank]);
    }
    CUDA(cudaMemGetInfo(&after, &total));
    CHECK(before - after == expected[rank->rank]);
    meet(comm, rank->stream);
    NCCL(ncclCommDestroy(comm));
    meet(rank->comm, rank->stream);
    CHECK(standin_connection_bytes(rank->rank) == 0);
    meet(rank->comm, rank->stream);
}

static void body_ring(void) {
    ranks_run(8, RANKS_AS_THREADS, rank_ring);
}

static void expect_all(guint64 bytes) {
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++)
        expected[i] = bytes;
}

static void state(int ctas, int per_net_peer) {
    stated = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    stated.minCTAs = stated.maxCTAs = ctas;
    if (per_net_peer > 0)
        stated.nChannelsPerNetPeer = per_net_peer;
    states = TRUE;
}

/* A connection in and one out, on 32 channels, or as many as stated, which count as the next power
 * of two. */
static void test_one_host(void) {
    states = FALSE;
    expect_all(32 * (10 + 2) * MIB);
    child_passes(body_ring, NULL);
    state(8, 0);
    expect_all(8 * (10 + 2) * MIB);
    child_passes(body_ring, NULL);
    state(5, 0);
    child_passes(body_ring, NULL);
    state(1, 0);
    expect_all((10 + 2) * MIB);
    child_passes(body_ring, NULL);
}

/*
 * Two hosts of four. In the ring, 3 -> 4 and 7 -> 0 go over the network: ranks 4 and 0 have a pool
 * to receive, and the senders' pools are on the GPUs with the receivers' places, 0 and 4. Others
 * meet on a communicator that has network peers, on as many channels as such a pair.
 */
static void test_two_hosts(void) {
    state(8, 4);
    for (guint i = 0; i < 8; i++)
        expected[i] = i % 4 == 0   ? 4 * 2 * MIB + 2 * 8 * 2 * MIB
                      : i % 4 == 3 ? 4 * 10 * MIB
                                   : 4 * (10 + 2) * MIB;
    child_passes(body_ring, (const char *const[]){"REFIT_STANDIN_GPUS_PER_HOST=4", NULL});
}

static void rank_full(Rank *rank) {
    ncclComm_t comm = split(rank);
    ncclResult_t result =
        move(comm, rank->stream, (rank->rank + 1) % rank->n, (rank->rank + rank->n - 1) % rank->n);

    CHECK((result == ncclSuccess) == !may_fail);
    if (may_fail)
        CHECK(result == ncclUnhandledCudaError &&
              strstr(ncclGetLastError(comm), "out of memory") != NULL);
    NCCL(ncclCommAbort(comm));
}

static void body_full(void) {
    ranks_run(8, RANKS_AS_THREADS, rank_full);
}

/* Two buffers of 16 bytes are there besides. */
static void test_no_room(void) {
    state(8, 0);
    may_fail = FALSE;
    child_passes(body_full, (const char *const[]){"REFIT_STANDIN_MEMORY=100663328", NULL});
    may_fail = TRUE;
    child_passes(body_full, (const char *const[]){"REFIT_STANDIN_MEMORY=100663327", NULL});
}

static ncclResult_t settle(ncclComm_t comm) {
    ncclResult_t result = ncclInProgress;

    while (result == ncclInProgress)
        NCCL(ncclCommGetAsyncError(comm, &result));
    return result;
}

/* A non-blocking parent's group makes a thread; its blocking child's does not. */
static void rank_threads(Rank *rank, const ncclUniqueId *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t child = NULL;
    cudaStream_t stream = stream_new();

    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&rank->comm, rank->n, *id, rank->rank, &config) == ncclInProgress);
    NCCL(settle(rank->comm));
    config.blocking = 1;
    CHECK(ncclCommSplit(rank->comm, 0, rank->rank, &child, &config) == ncclInProgress);
    NCCL(settle(rank->comm));
    NCCL(move(child, stream, 1 - rank->rank, 1 - rank->rank));
    meet(child, stream);
    CHECK(standin_group_threads() == 0);
    meet(child, stream);
    char *out = device_new(16, 1), *in = device_new(16, 0);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(out, 16, ncclUint8, 1 - rank->rank, rank->comm, stream));
    NCCL(ncclRecv(in, 16, ncclUint8, 1 - rank->rank, rank->comm, stream));
    CHECK(ncclGroupEnd() == ncclInProgress);
    NCCL(settle(rank->comm));
    CUDA(cudaStreamSynchronize(stream));
    meet(child, stream);
    CHECK(standin_group_threads() == 2);
    CUDA(cudaFree(out));
    CUDA(cudaFree(in));
    NCCL(ncclCommDestroy(child));
    CHECK(ncclCommFinalize(rank->comm) == ncclInProgress);
    NCCL(settle(rank->comm));
    NCCL(ncclCommDestroy(rank->comm));
    CUDA(cudaStreamDestroy(stream));
}

static void body_threads(void) {
    ranks_run_bare(2, RANKS_AS_THREADS, rank_threads);
}

static void test_threads(void) {
    child_passes(body_threads, NULL);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/standin-channels/connections-on-one-host", test_one_host);
    g_test_add_func("/standin-channels/connections-between-hosts", test_two_hosts);
    g_test_add_func("/standin-channels/no-room-for-connections", test_no_room);
    g_test_add_func("/standin-channels/groups-that-make-threads", test_threads);
    return g_test_run();
}
