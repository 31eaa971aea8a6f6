/*
 * Room on a device and the order of launches on the CPU stand-in: kernels of communicators that do
 * not fit beside each other hang when two ranks start them in opposite order, unless NCCL keeps the
 * order of submission; other kernels take what room there is; threads that race for a launch are
 * told.
 */

#include "standin-child.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define SIZE ((size_t)100)

static cudaStream_t streams[2][2]; /* per rank */
static ncclComm_t comms[2][2];
static char *bytes[2];

/* Connects, so that later groups wait on their streams only. Each takes 1 CTA: to and from the one
 * peer of two are of one round. */
static void exchange(const Rank *rank, int i) {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(bytes[rank->rank], SIZE, ncclUint8, 1 - rank->rank, comms[rank->rank][i],
                  streams[rank->rank][i]));
    NCCL(ncclRecv(bytes[rank->rank] + SIZE * (size_t)(i + 1), SIZE, ncclUint8, 1 - rank->rank,
                  comms[rank->rank][i], streams[rank->rank][i]));
    NCCL(ncclGroupEnd());
}

static void synchronize(const Rank *rank) {
    for (int i = 0; i < 2; i++) {
        CUDA(cudaStreamSynchronize(streams[rank->rank][i]));
    }
}

/* Two communicators with a stream each. */
static void open_two(Rank *rank) {
    comms[rank->rank][0] = rank->comm;
    NCCL(ncclCommSplit(rank->comm, 0, rank->rank, &comms[rank->rank][1], NULL));
    bytes[rank->rank] = device_new(3 * SIZE, rank->rank);
    for (int i = 0; i < 2; i++) {
        streams[rank->rank][i] = stream_new();
        exchange(rank, i);
        CHECK(standin_group_ctas(comms[rank->rank][i]) == 1);
        CUDA(cudaStreamSynchronize(streams[rank->rank][i]));
    }
}

static void close_two(Rank *rank) {
    synchronize(rank);
    CUDA(cudaStreamDestroy(streams[rank->rank][0]));
    CUDA(cudaStreamDestroy(streams[rank->rank][1]));
    NCCL(ncclCommDestroy(comms[rank->rank][1]));
    CUDA(cudaFree(bytes[rank->rank]));
}

/* ---- room ---- */

/* Rank 0 starts on the first communicator, rank 1 on the second, and each has begun before it
 * submits the other. */
static void rank_crosswise(Rank *rank) {
    open_two(rank);
    exchange(rank, rank->rank);
    g_usleep(100 * 1000);
    exchange(rank, 1 - rank->rank);
    close_two(rank);
}

static void body_crosswise(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_crosswise);
}

static void test_crosswise(void) {
    const char *const two[] = {"REFIT_STANDIN_SMS=2", NULL};
    const char *const one[] = {"REFIT_STANDIN_SMS=1", "REFIT_STANDIN_TIMEOUT_MS=300", NULL};
    child_passes(body_crosswise, NULL);
    child_passes(body_crosswise, two);
    child_expect(body_crosswise, one, STANDIN_EXIT_STUCK, "wants 1 CTAs");
    child_expect(body_crosswise, one, STANDIN_EXIT_STUCK,
                 "device 1: 1 of 1 CTAs held, 1 more wanted");
}

/* More CTAs than there are slots never start; an abort ends them. */
static void rank_too_many(Rank *rank) {
    char *a = device_new(4 * SIZE * SIZE, rank->rank);
    ncclComm_t comm = rank->comm;
    rank->comm = NULL;
    NCCL(ncclGroupStart()); /* 40,000 bytes: low latency, in parts of 8 KiB at least */
    NCCL(ncclSend(a, SIZE * SIZE * 2, ncclUint8, 1 - rank->rank, comm, rank->stream));
    NCCL(ncclRecv(a + SIZE * SIZE * 2, SIZE * SIZE * 2, ncclUint8, 1 - rank->rank, comm,
                  rank->stream));
    NCCL(ncclGroupEnd());
    CHECK(standin_group_ctas(comm) == 3);
    g_usleep(50 * 1000);
    CHECK(cudaStreamQuery(rank->stream) == cudaErrorNotReady);
    NCCL(ncclCommAbort(comm));
    CUDA(cudaStreamSynchronize(rank->stream));
    CUDA(cudaFree(a));
}

static void body_too_many(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_too_many);
}

static void test_too_many(void) {
    const char *const environment[] = {"REFIT_STANDIN_SMS=2", NULL};
    child_passes(body_too_many, environment);
}

/* ---- other kernels ---- */

static _Atomic int n_runs;
static _Atomic bool goes_on;

static void run_kernel(void *closure) {
    (void)closure;
    atomic_fetch_add(&n_runs, 1);
    while (!atomic_load(&goes_on)) {
        g_usleep(100);
    }
}

static void forget(void *closure) {
    (void)closure;
}

/* A kernel of more blocks than there is room for runs in what there is, and keeps a group out. */
static void rank_kernel(Rank *rank) {
    open_two(rank);
    if (rank->rank == 0) {
        CUDA(standin_launch(streams[0][0], "many", 1000, run_kernel, forget, NULL));
        while (atomic_load(&n_runs) == 0) {
            g_usleep(100);
        }
    }
    exchange(rank, 1);
    if (rank->rank == 0) {
        g_usleep(50 * 1000);
        CHECK(cudaStreamQuery(streams[0][1]) == cudaErrorNotReady);
        atomic_store(&goes_on, true);
    }
    close_two(rank);
}

static void body_kernel(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_kernel);
}

/* A group that waits for a peer keeps the last slot: a kernel that the peer waits for never starts.
 */
static void rank_kept_out(Rank *rank) {
    open_two(rank);
    atomic_store(&goes_on, true);
    if (rank->rank == 0) {
        exchange(rank, 0);
        g_usleep(50 * 1000);
        CUDA(standin_launch(streams[0][1], "pack", 4, run_kernel, forget, NULL));
        CUDA(cudaStreamSynchronize(streams[0][1]));
        close_two(rank);
    } else {
        g_usleep(2000 * 1000);
    }
}

static void body_kept_out(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_kept_out);
}

static void test_kernels(void) {
    const char *const four[] = {"REFIT_STANDIN_SMS=4", NULL};
    const char *const one[] = {"REFIT_STANDIN_SMS=1", "REFIT_STANDIN_TIMEOUT_MS=300", NULL};
    child_passes(body_kernel, four);
    child_expect(body_kept_out, one, STANDIN_EXIT_STUCK, "now in pack");
}

/* ---- the order of launches ---- */

/* The first communicator's group waits behind a kernel; the second's, submitted later, has room. */
static void rank_ordered(Rank *rank) {
    const gboolean ordered = g_strcmp0(g_getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1") == 0;
    open_two(rank);
    if (rank->rank == 0) {
        CUDA(standin_launch(streams[0][0], "gate", 1, run_kernel, forget, NULL));
    }
    exchange(rank, 0);
    exchange(rank, 1);
    if (rank->rank == 0) {
        if (ordered) {
            g_usleep(50 * 1000);
            CHECK(cudaStreamQuery(streams[0][1]) == cudaErrorNotReady);
        } else {
            CUDA(cudaStreamSynchronize(streams[0][1]));
        }
        CHECK(cudaStreamQuery(streams[0][0]) == cudaErrorNotReady);
        atomic_store(&goes_on, true);
    }
    close_two(rank);
}

static void body_ordered(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_ordered);
}

/* Started is enough: the first communicator's group waits for its peer, the second's goes on. */
static void rank_started(Rank *rank) {
    open_two(rank);
    if (rank->rank == 0) {
        exchange(rank, 0);
    }
    exchange(rank, 1);
    CUDA(cudaStreamSynchronize(streams[rank->rank][1]));
    if (rank->rank == 1) {
        exchange(rank, 0);
    }
    close_two(rank);
}

static void body_started(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_started);
}

/* Read once, at the first launch: what is set after it comes too late, before it does not. */
static void rank_sets_late(Rank *rank) {
    open_two(rank);
    g_setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", TRUE);
    if (rank->rank == 0) {
        CUDA(standin_launch(streams[0][0], "gate", 1, run_kernel, forget, NULL));
    }
    exchange(rank, 0);
    exchange(rank, 1);
    CUDA(cudaStreamSynchronize(streams[rank->rank][1]));
    atomic_store(&goes_on, true);
    close_two(rank);
}

static void body_sets_late(void) {
    ranks_run(2, RANKS_AS_PROCESSES, rank_sets_late);
}

static void body_sets_early(void) {
    cudaStream_t stream = stream_new(); /* CUDA before is no matter */
    CUDA(cudaStreamDestroy(stream));
    g_setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", TRUE);
    body_ordered();
}

static void test_order(void) {
    const char *const on[] = {"NCCL_LAUNCH_ORDER_IMPLICIT=1", NULL};
    const char *const off[] = {"NCCL_LAUNCH_ORDER_IMPLICIT=0", NULL};
    child_passes(body_ordered, on);
    child_passes(body_ordered, off);
    child_passes(body_ordered, NULL);
    child_passes(body_started, on);
    child_passes(body_sets_late, NULL);
    child_passes(body_sets_early, NULL);
}

/* ---- races ---- */

typedef struct {
    const Rank *rank;
    int i;
    size_t slot;
    ncclResult_t result;
} Launch;

/* A send to the rank itself and back: no peer is needed. */
static void *launch_thread(void *argument) {
    Launch *launch = argument;
    const int own = launch->rank->rank;
    CUDA(cudaSetDevice(own));
    NCCL(ncclGroupStart());
    NCCL(
        ncclSend(bytes[own], SIZE, ncclUint8, own, comms[own][launch->i], streams[own][launch->i]));
    NCCL(ncclRecv(bytes[own] + SIZE * launch->slot, SIZE, ncclUint8, own, comms[own][launch->i],
                  streams[own][launch->i]));
    launch->result = ncclGroupEnd();
    return NULL;
}

/* The first thread's launch lasts 200 ms; another begins and ends within. */
static void race(Rank *rank, int second, ncclResult_t expected) {
    Launch launches[2] = {{rank, 0, 1, ncclSuccess}, {rank, second, 2, ncclSuccess}};
    pthread_t threads[2];
    open_two(rank);
    if (rank->rank == 0) {
        for (int i = 0; i < 2; i++) {
            CHECK(pthread_create(&threads[i], NULL, launch_thread, &launches[i]) == 0);
            g_usleep(70 * 1000);
        }
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        CHECK(launches[0].result == expected && launches[1].result == ncclSuccess);
        CHECK(expected == ncclSuccess ||
              strstr(ncclGetLastError(comms[0][0]), "host threads racing") != NULL);
    }
    close_two(rank);
}

static void rank_races(Rank *rank) {
    race(rank, 1, ncclInvalidUsage);
}

static void rank_does_not_race(Rank *rank) {
    race(rank, 1, ncclSuccess);
}

static void body_races(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_races);
}

static void body_does_not_race(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_does_not_race);
}

#if !defined(__SANITIZE_THREAD__)
static void rank_races_on_one(Rank *rank) {
    race(rank, 0, ncclInvalidUsage);
}

static void body_races_on_one(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_races_on_one);
}
#endif

/* Two groups that do not block, in progress at the same time: threads of NCCL's own may race. */
static void settle(ncclComm_t comm, ncclResult_t expected) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL(ncclCommGetAsyncError(comm, &state));
        g_usleep(100);
    }
    CHECK(state == expected);
}

static void self_group(ncclComm_t comm, char *a, cudaStream_t stream) {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(a, SIZE, ncclUint8, 0, comm, stream));
    NCCL(ncclRecv(a + SIZE, SIZE, ncclUint8, 0, comm, stream));
    CHECK(ncclGroupEnd() == ncclInProgress);
}

static void body_nonblocking_race(void) {
    const gboolean ordered = g_strcmp0(g_getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1") == 0;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t pair[2];
    cudaStream_t stream = stream_new();
    char *a = device_new(2 * SIZE, 1);
    config.blocking = 0;
    for (int i = 0; i < 2; i++) {
        ncclUniqueId id;
        NCCL(ncclGetUniqueId(&id));
        CHECK(ncclCommInitRankConfig(&pair[i], 1, id, 0, &config) == ncclInProgress);
        settle(pair[i], ncclSuccess);
    }
    self_group(pair[0], a, stream); /* one after the other */
    settle(pair[0], ncclSuccess);
    self_group(pair[1], a, stream);
    settle(pair[1], ncclSuccess);
    self_group(pair[0], a, stream);
    self_group(pair[1], a, stream);
    settle(pair[0], ordered ? ncclInvalidUsage : ncclSuccess);
    settle(pair[1], ncclSuccess);
    CUDA(cudaStreamSynchronize(stream));
    CHECK(standin_group_threads() == 4);
    NCCL(ncclCommAbort(pair[0]));
    NCCL(ncclCommAbort(pair[1]));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(a));
}

static void test_races(void) {
    const char *const on[] = {"NCCL_LAUNCH_ORDER_IMPLICIT=1",
                              "REFIT_STANDIN_FAULT=launch:0:3:pause=200", NULL};
    const char *const lenient[] = {"NCCL_LAUNCH_ORDER_IMPLICIT=1", "NCCL_LAUNCH_RACE_FATAL=0",
                                   "REFIT_STANDIN_FAULT=launch:0:3:pause=200", NULL};
    const char *const off[] = {"REFIT_STANDIN_FAULT=launch:0:3:pause=200", NULL};
    child_passes(body_races, on);
    child_passes(body_does_not_race, lenient);
    child_passes(body_does_not_race, off);
#if !defined(__SANITIZE_THREAD__) /* which would tell first */
    child_passes(body_races_on_one, off);
#endif
    child_passes(body_nonblocking_race, NULL);
    const char *const ordered[] = {"NCCL_LAUNCH_ORDER_IMPLICIT=1", NULL};
    child_passes(body_nonblocking_race, ordered);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/room/kernels-that-do-not-fit-hang-crosswise", test_crosswise);
    g_test_add_func("/room/more-than-the-device-has-never-starts", test_too_many);
    g_test_add_func("/room/other-kernels-take-room-too", test_kernels);
    g_test_add_func("/room/launch-order-is-kept-when-asked-for", test_order);
    g_test_add_func("/room/host-threads-that-race-are-told", test_races);
    return g_test_run();
}
