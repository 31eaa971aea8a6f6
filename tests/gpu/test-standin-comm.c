/*
 * Communicators of the CPU stand-in, and faults: set-up that refuses or is given up, splits,
 * non-blocking state, aborts, and devices and ranks that stall, slow down, fail or die.
 */

#include "standin-child.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SIZE ((size_t)1000)
#define KILLED (128 + 9)

static const char *const short_timeout[] = {"REFIT_STANDIN_TIMEOUT_MS=300", NULL};

/* Both ranks of two send each other their number. */
static void exchange(Rank *rank) {
    char *mine = device_new(SIZE, rank->rank + 1);
    char *theirs = device_new(SIZE, 0);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(mine, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    NCCL(ncclRecv(theirs, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    NCCL(ncclGroupEnd());
    device_expect(rank->stream, theirs, SIZE, 2 - rank->rank);
    CUDA(cudaFree(mine));
    CUDA(cudaFree(theirs));
}

/* ---- set-up ---- */

static void rank_duplicate(Rank *rank, const ncclUniqueId *id) {
    ncclComm_t comm;
    CUDA(cudaSetDevice(0));
    CHECK(ncclCommInitRank(&comm, rank->n, *id, rank->rank) == ncclInvalidUsage);
    CHECK(comm == NULL && strstr(ncclGetLastError(NULL), "Duplicate GPU detected") != NULL);
}

static void body_duplicate(void) {
    ranks_run_bare(2, RANKS_AS_THREADS, rank_duplicate);
}

static void test_duplicate(void) {
    child_passes(body_duplicate, NULL);
}

/* Nobody has a communicator that blocks before the last rank has come. */
static _Atomic bool last_came;

static void rank_late(Rank *rank, const ncclUniqueId *id) {
    if (rank->rank == 2) {
        g_usleep(50 * 1000);
        atomic_store(&last_came, true);
    }
    NCCL(ncclCommInitRank(&rank->comm, rank->n, *id, rank->rank));
    CHECK(atomic_load(&last_came));
    NCCL(ncclCommDestroy(rank->comm));
}

static void body_late(void) {
    ranks_run_bare(3, RANKS_AS_THREADS, rank_late);
}

static void test_late(void) {
    child_passes(body_late, NULL);
}

/* ---- communicators ---- */

/* Even and odd ranks, in reverse order; rank 4 stays out. */
static void rank_split(Rank *rank) {
    ncclComm_t part;
    int n, own;
    const int color = rank->rank == 4 ? NCCL_SPLIT_NOCOLOR : rank->rank % 2;
    NCCL(ncclCommSplit(rank->comm, color, -rank->rank, &part, NULL));
    if (rank->rank == 4) {
        CHECK(part == NULL);
        return;
    }
    NCCL(ncclCommCount(part, &n));
    NCCL(ncclCommUserRank(part, &own));
    CHECK(n == (rank->rank % 2 == 0 ? 2 : 3));
    CHECK(own == (rank->rank % 2 == 0 ? 2 - rank->rank : 5 - rank->rank) / 2);
    char *a = device_new(SIZE, rank->rank);
    NCCL(ncclBroadcast(a, a, SIZE, ncclUint8, 0, part, rank->stream));
    device_expect(rank->stream, a, SIZE, rank->rank % 2 == 0 ? 2 : 5);
    CUDA(cudaFree(a));
    NCCL(ncclCommDestroy(part));
}

static void body_split(void) {
    ranks_run(6, RANKS_AS_THREADS, rank_split);
}

static void body_split_processes(void) {
    ranks_run(6, RANKS_AS_PROCESSES, rank_split);
}

static void test_split(void) {
    const char *const tcp[] = {"REFIT_STANDIN_TRANSPORT=tcp", NULL};
    child_passes(body_split, NULL);
    child_passes(body_split_processes, NULL);
    child_passes(body_split_processes, tcp);
}

static ncclResult_t settle(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL(ncclCommGetAsyncError(comm, &state));
        g_usleep(100);
    }
    return state;
}

static ncclComm_t nonblocking_comm(Rank *rank, const ncclUniqueId *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&rank->comm, rank->n, *id, rank->rank, &config) == ncclInProgress);
    return rank->comm;
}

static void rank_nonblocking(Rank *rank, const ncclUniqueId *id) {
    char *a = device_new(SIZE, rank->rank);
    char *b = device_new(SIZE, 99);
    ncclComm_t part;
    rank->stream = stream_new();
    NCCL(settle(nonblocking_comm(rank, id)));
    NCCL(ncclGroupStart());
    NCCL(ncclSend(a, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    NCCL(ncclRecv(b, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    CHECK(ncclGroupEnd() == ncclInProgress);
    device_expect(rank->stream, b, SIZE, 99); /* not on the stream yet */
    CHECK(ncclSend(a, 1, ncclUint8, 0, rank->comm, rank->stream) == ncclInvalidArgument);
    NCCL(settle(rank->comm));
    device_expect(rank->stream, b, SIZE, 1 - rank->rank);
    CHECK(ncclCommSplit(rank->comm, 0, 0, &part, NULL) == ncclInProgress);
    NCCL(settle(rank->comm));
    CHECK(__atomic_load_n(&part, __ATOMIC_ACQUIRE) != NULL);
    CHECK(ncclBroadcast(a, b, SIZE, ncclUint8, 1, part, rank->stream) == ncclInProgress);
    NCCL(settle(part));
    device_expect(rank->stream, b, SIZE, 1);
    CHECK(ncclCommFinalize(part) == ncclInProgress);
    NCCL(settle(part));
    NCCL(ncclCommDestroy(part));
    NCCL(ncclCommDestroy(rank->comm));
    CUDA(cudaStreamDestroy(rank->stream));
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
}

static void body_nonblocking(void) {
    ranks_run_bare(2, RANKS_AS_THREADS, rank_nonblocking);
}

static void body_nonblocking_processes(void) {
    ranks_run_bare(2, RANKS_AS_PROCESSES, rank_nonblocking);
}

static void test_nonblocking(void) {
    const char *const tcp[] = {"REFIT_STANDIN_TRANSPORT=tcp", NULL};
    child_passes(body_nonblocking, NULL);
    child_passes(body_nonblocking_processes, NULL);
    child_passes(body_nonblocking_processes, tcp);
}

/* Rank 1 never joins; the other gives up by itself. */
static void rank_absent(Rank *rank, const ncclUniqueId *id) {
    ncclResult_t state = ncclSuccess;
    if (rank->rank == 1) {
        return;
    }
    ncclComm_t comm = nonblocking_comm(rank, id);
    g_usleep(500 * 1000); /* longer than the stand-in's own patience */
    NCCL(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInProgress);
    NCCL(ncclCommAbort(comm));
}

static void body_absent(void) {
    ranks_run_bare(2, RANKS_AS_THREADS, rank_absent);
}

static void test_absent(void) {
    const char *const tcp[] = {"REFIT_STANDIN_TRANSPORT=tcp", "REFIT_STANDIN_TIMEOUT_MS=300", NULL};
    child_passes(body_absent, short_timeout);
    child_passes(body_absent, tcp);
}

/* Waits for a message that does not come, and gives up. */
static void give_up(Rank *rank, char *a, ncclResult_t expected) {
    ncclResult_t state = ncclSuccess;
    NCCL(ncclRecv(a, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    for (guint i = 0; i < 100 && cudaStreamQuery(rank->stream) == cudaErrorNotReady; i++) {
        g_usleep(1000);
    }
    NCCL(ncclCommGetAsyncError(rank->comm, &state));
    CHECK(state == expected);
    NCCL(ncclCommAbort(rank->comm));
    rank->comm = NULL;
    CUDA(cudaStreamSynchronize(rank->stream));
}

static void rank_abort(Rank *rank) {
    char *a = device_new(SIZE, 0);
    exchange(rank); /* connected, so that a group reaches its stream without the peer */
    if (rank->rank == 0) {
        give_up(rank, a, ncclSuccess);
    }
    CUDA(cudaFree(a));
}

static void body_abort(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_abort);
}

static void test_abort(void) {
    child_passes(body_abort, NULL);
}

/* Rank 1 never comes to the first message, for which both must meet on the host. */
static void *abort_later(void *argument) {
    g_usleep(100 * 1000);
    NCCL(ncclCommAbort(argument));
    return NULL;
}

static void rank_unmet(Rank *rank) {
    char *a = device_new(SIZE, 0);
    if (rank->rank == 0) {
        pthread_t watcher;
        ncclComm_t comm = rank->comm;
        rank->comm = NULL;
        CHECK(pthread_create(&watcher, NULL, abort_later, comm) == 0);
        CHECK(ncclSend(a, SIZE, ncclUint8, 1, comm, rank->stream) == ncclInternalError);
        pthread_join(watcher, NULL);
        CUDA(cudaStreamQuery(rank->stream));
        CHECK(standin_comms_of(0) == 0);
    } else {
        g_usleep(300 * 1000); /* a peer that leaves is another matter */
    }
    CHECK(standin_group_threads() == 0); /* neither takes one */
    CUDA(cudaFree(a));
}

static void body_unmet(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_unmet);
}

static void body_unmet_processes(void) {
    ranks_run(2, RANKS_AS_PROCESSES, rank_unmet);
}

/* Its device is lost meanwhile: by another thread's call. */
static void *lose_later(void *argument) {
    int n;
    (void)argument;
    g_usleep(50 * 1000);
    CHECK(cudaGetDeviceCount(&n) == cudaErrorECCUncorrectable);
    return NULL;
}

static void rank_unmet_lost(Rank *rank) {
    if (rank->rank == 0) {
        pthread_t other;
        char *a = device_new(SIZE, 0);
        CHECK(pthread_create(&other, NULL, lose_later, NULL) == 0);
        CHECK(ncclSend(a, SIZE, ncclUint8, 1, rank->comm, rank->stream) == ncclUnhandledCudaError);
        pthread_join(other, NULL);
        NCCL(ncclCommAbort(rank->comm));
        exit(0);
    }
    g_usleep(10 * 1000 * 1000);
}

static void body_unmet_lost(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_unmet_lost);
}

/* The same without blocking: in progress until it is given up. */
static void rank_unmet_nonblocking(Rank *rank, const ncclUniqueId *id) {
    ncclResult_t state = ncclSuccess;
    NCCL(settle(nonblocking_comm(rank, id)));
    if (rank->rank == 0) {
        char *a = device_new(SIZE, 0);
        cudaStream_t stream = stream_new();
        CHECK(ncclSend(a, SIZE, ncclUint8, 1, rank->comm, stream) == ncclInProgress);
        for (int i = 0; i < 100; i++) {
            NCCL(ncclCommGetAsyncError(rank->comm, &state));
            CHECK(state == ncclInProgress);
        }
        CUDA(cudaStreamDestroy(stream));
        CUDA(cudaFree(a));
        CHECK(standin_group_threads() == 1);
    }
    NCCL(ncclCommAbort(rank->comm));
}

static void body_unmet_nonblocking(void) {
    ranks_run_bare(2, RANKS_AS_THREADS, rank_unmet_nonblocking);
}

static void test_unmet(void) {
    const char *const tcp[] = {"REFIT_STANDIN_TRANSPORT=tcp", NULL};
    child_passes(body_unmet, NULL);
    child_passes(body_unmet_processes, NULL);
    child_passes(body_unmet_processes, tcp);
    child_passes(body_unmet_nonblocking, NULL);
    const char *const lost[] = {"REFIT_STANDIN_FAULT=cudaGetDeviceCount:0:1:lost",
                                "REFIT_STANDIN_LEAKS=0", NULL};
    child_passes(body_unmet_lost, lost);
}

/* A group of a communicator that waits on its host and one that does not. */
static void rank_mixed(Rank *rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t other;
    char *a = device_new(SIZE, 0);
    config.blocking = 0;
    NCCL(ncclCommSplit(rank->comm, 0, 0, &other, &config)); /* the parent's kind: done at once */
    CHECK(other != NULL);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(a, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    NCCL(ncclRecv(a, SIZE, ncclUint8, 1 - rank->rank, other, rank->stream));
    ncclGroupEnd();
}

static void body_mixed(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_mixed);
}

/* A parent that does not block makes children that do; their set-up still runs beside the host. */
static void rank_blocking_child(Rank *rank, const ncclUniqueId *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t child, copy;
    rank->stream = stream_new();
    NCCL(settle(nonblocking_comm(rank, id)));
    CHECK(ncclCommSplit(rank->comm, 0, rank->rank, &child, &config) == ncclInProgress);
    NCCL(settle(rank->comm));
    ncclComm_t parent = rank->comm;
    rank->comm = __atomic_load_n(&child, __ATOMIC_ACQUIRE);
    exchange(rank); /* its calls end with success */
    CHECK(standin_group_threads() == 0);
    CHECK(ncclCommSplit(parent, 0, rank->rank, &copy, NULL) == ncclInProgress);
    NCCL(settle(parent));
    CHECK(ncclCommFinalize(__atomic_load_n(&copy, __ATOMIC_ACQUIRE)) == ncclInProgress);
    NCCL(settle(copy));
    NCCL(ncclCommDestroy(copy));
    NCCL(ncclCommDestroy(rank->comm));
    NCCL(ncclCommDestroy(parent));
    CUDA(cudaStreamDestroy(rank->stream));
}

static void body_blocking_child(void) {
    ranks_run_bare(2, RANKS_AS_THREADS, rank_blocking_child);
}

static void test_blocking_child(void) {
    child_expect(body_mixed, NULL, STANDIN_EXIT_MISUSE, "blocking and nonblocking");
    child_passes(body_blocking_child, NULL);
}

/* ---- faults ---- */

/* Device 1 moves nothing from its first send on: both sides give up. */
static void rank_stalled(Rank *rank) {
    char *a = device_new(SIZE, 0);
    if (rank->rank == 1) {
        NCCL(ncclSend(a, SIZE, ncclUint8, 0, rank->comm, rank->stream));
        g_usleep(150 * 1000);
        CHECK(cudaStreamQuery(rank->stream) == cudaErrorNotReady);
        NCCL(ncclCommAbort(rank->comm));
        rank->comm = NULL;
    } else {
        give_up(rank, a, ncclSuccess);
    }
    CUDA(cudaFree(a));
}

static void body_stalled(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_stalled);
}

static void test_stalled(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=ncclSend:1:1:stall", NULL};
    child_passes(body_stalled, environment);
}

/* NCCL finds an error in a kernel of rank 1, and later calls on the communicator return it. */
static void rank_group_fails(Rank *rank) {
    char *a = device_new(SIZE, 0);
    if (rank->rank == 1) {
        ncclResult_t state = ncclSuccess;
        NCCL(ncclSend(a, SIZE, ncclUint8, 0, rank->comm, rank->stream));
        while (state == ncclSuccess) {
            NCCL(ncclCommGetAsyncError(rank->comm, &state));
        }
        CHECK(state == ncclSystemError);
        CHECK(ncclSend(a, SIZE, ncclUint8, 0, rank->comm, rank->stream) == ncclSystemError);
        CHECK(strcmp(ncclGetLastError(rank->comm), "planned fault in a group") == 0);
        NCCL(ncclCommAbort(rank->comm));
        rank->comm = NULL;
        CHECK(standin_comms_of(1) == 0);
    } else {
        give_up(rank, a, ncclSuccess);
    }
    CUDA(cudaFree(a));
}

static void body_group_fails(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_group_fails);
}

static void test_group_fails(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=group@2:1:1", NULL};
    child_passes(body_group_fails, environment);
}

/* Rank 1 dies in its second call of cudaStreamQuery; rank 0 learns of it from its connection. */
static void rank_killed(Rank *rank) {
    char *a = device_new(SIZE, 0);
    exchange(rank);
    if (rank->rank == 1) {
        CHECK(cudaStreamQuery(rank->stream) == cudaSuccess);
        cudaStreamQuery(rank->stream);
        CHECK(FALSE);
    }
    give_up(rank, a, ncclRemoteError);
    CUDA(cudaFree(a));
}

static void body_killed(void) {
    ranks_run(2, RANKS_AS_PROCESSES, rank_killed);
}

static void test_killed(void) {
    const char *const environment[] = {"REFIT_STANDIN_TRANSPORT=tcp",
                                       "REFIT_STANDIN_FAULT=cudaStreamQuery:1:2:kill", NULL};
    child_expect(body_killed, environment, KILLED, NULL);
}

/* Before any rank has begun: one that begins late waits for less. */
static gint64 slow_begin_us;

static void rank_slow(Rank *rank) {
    exchange(rank);
    CHECK(g_get_monotonic_time() - slow_begin_us >= 50 * 1000);
}

static void body_slow(void) {
    slow_begin_us = g_get_monotonic_time();
    ranks_run(2, RANKS_AS_THREADS, rank_slow);
}

static void test_slow(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=ncclSend:1:1:slow=50000", NULL};
    child_passes(body_slow, environment);
}

static void rank_fault(Rank *rank) {
    ncclResult_t result;
    NCCL(ncclGroupStart());
    result = ncclGroupEnd();
    CHECK(result == (rank->rank == 1 ? ncclSystemError : ncclSuccess));
    CHECK(rank->rank == 0 || strcmp(ncclGetLastError(NULL), "planned fault in ncclGroupEnd") == 0);
    exchange(rank);
}

static void body_fault(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_fault);
}

static void test_fault(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=ncclGroupEnd:1:1", NULL};
    child_passes(body_fault, environment);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/comm/two-ranks-on-one-device-are-refused", test_duplicate);
    g_test_add_func("/comm/a-set-up-that-blocks-waits-for-all-ranks", test_late);
    g_test_add_func("/comm/a-split-orders-ranks-by-key", test_split);
    g_test_add_func("/comm/a-non-blocking-group-starts-when-asked-for", test_nonblocking);
    g_test_add_func("/comm/an-absent-rank-can-be-given-up", test_absent);
    g_test_add_func("/comm/an-abort-ends-a-waiting-group", test_abort);
    g_test_add_func("/comm/an-abort-ends-a-group-that-waits-for-its-peer", test_unmet);
    g_test_add_func("/comm/a-parents-kind-and-its-childs", test_blocking_child);
    g_test_add_func("/comm/a-stalled-device-moves-nothing", test_stalled);
    g_test_add_func("/comm/an-error-in-a-group-stays", test_group_fails);
    g_test_add_func("/comm/a-killed-peer-is-noticed-over-sockets", test_killed);
    g_test_add_func("/comm/a-slow-device-is-waited-for", test_slow);
    g_test_add_func("/comm/a-planned-fault-leaves-the-communicator-usable", test_fault);
    return g_test_run();
}
