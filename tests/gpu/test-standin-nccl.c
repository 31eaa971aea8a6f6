/*
 * The NCCL part of the CPU stand-in: messages between ranks as threads, as processes and over
 * sockets; what NCCL would hang on is reported as stuck, with who waits for whom; what it would
 * garble is refused; the hostile modes.
 */

#include "standin-child.h"

#include <string.h>

#define SIZE ((size_t)1000)

static const char *const short_timeout[] = {"REFIT_STANDIN_TIMEOUT_MS=300", NULL};

/* ---- exchanges ---- */

/* Every rank sends its number to all others in one group, `size` bytes each. */
static void all_to_all(Rank *rank, size_t size) {
    char *mine = device_new(size, rank->rank + 1);
    char *theirs = device_new(size * (size_t)rank->n, 0);
    NCCL(ncclGroupStart());
    for (int i = 1; i < rank->n; i++) {
        const int to = (rank->rank + i) % rank->n;
        const int from = (rank->rank - i + rank->n) % rank->n;
        NCCL(ncclSend(mine, size, ncclUint8, to, rank->comm, rank->stream));
        NCCL(ncclRecv(theirs + size * (size_t)from, size, ncclUint8, from, rank->comm,
                      rank->stream));
    }
    NCCL(ncclGroupEnd());
    for (int i = 0; i < rank->n; i++) {
        device_expect(rank->stream, theirs + size * (size_t)i, size, i == rank->rank ? 0 : i + 1);
    }
    CUDA(cudaFree(mine));
    CUDA(cudaFree(theirs));
}

/* Sizes below, at and above a ring, and one that takes many of them. */
static void rank_exchange(Rank *rank) {
    all_to_all(rank, 1);
    all_to_all(rank, 16384 - 32);
    all_to_all(rank, 16385);
    all_to_all(rank, 300001);
}

static void body_threads(void) {
    ranks_run(6, RANKS_AS_THREADS, rank_exchange);
}

static void body_processes(void) {
    ranks_run(6, RANKS_AS_PROCESSES, rank_exchange);
}

static void test_threads(void) {
    child_passes(body_threads, NULL);
}

static void test_processes(void) {
    child_passes(body_processes, NULL);
}

static void test_tcp(void) {
    const char *const environment[] = {"REFIT_STANDIN_TRANSPORT=tcp", NULL};
    child_passes(body_processes, environment);
}

static void test_tcp_fast(void) {
    const char *const environment[] = {
        "REFIT_STANDIN_TRANSPORT=tcp", "REFIT_STANDIN_ADDRESS=127.0.0.2",
        "REFIT_STANDIN_FAST_ADDRESS=127.0.0.3", "REFIT_STANDIN_FAST_GROUP=all", NULL};
    child_passes(body_processes, environment);
}

static void test_hostile(void) {
    const char *const environment[] = {"REFIT_STANDIN_EAGER=1",    "REFIT_STANDIN_SERIAL=1",
                                       "REFIT_STANDIN_PLAN_OPS=2", "REFIT_STANDIN_JITTER_US=200",
                                       "REFIT_STANDIN_RING=300",   NULL};
    child_passes(body_threads, environment);
}

/* Step k goes from r to r + k on both sides, so any skew between ranks is fine. */
static void rank_steps(Rank *rank) {
    const int last = 19;
    char *a = device_new(SIZE, rank->rank);
    char *b = device_new(SIZE, 0);
    for (int k = 0; k <= last; k++) {
        const int to = (rank->rank + k) % rank->n;
        const int from = (rank->rank + rank->n - k % rank->n) % rank->n;
        NCCL(ncclGroupStart());
        NCCL(ncclSend(a, SIZE, ncclUint8, to, rank->comm, rank->stream));
        NCCL(ncclRecv(b, SIZE, ncclUint8, from, rank->comm, rank->stream));
        NCCL(ncclGroupEnd());
    }
    device_expect(rank->stream, b, SIZE, (rank->rank + rank->n - last % rank->n) % rank->n);
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
}

static void body_steps(void) {
    ranks_run(5, RANKS_AS_THREADS, rank_steps);
}

static void test_steps(void) {
    child_passes(body_steps, NULL);
}

static void rank_collectives(Rank *rank) {
    char *own = device_new(SIZE, rank->rank);
    char *copy = device_new(SIZE, 99);
    char *all = device_new(SIZE * (size_t)rank->n, 77);
    NCCL(ncclAllGather(own, all, SIZE / 2, ncclBfloat16, rank->comm, rank->stream));
    NCCL(ncclBroadcast(own, copy, SIZE, ncclUint8, 3, rank->comm, rank->stream));
    NCCL(ncclBroadcast(own, own, SIZE, ncclUint8, 1, rank->comm, rank->stream));
    device_expect(rank->stream, copy, SIZE, 3);
    device_expect(rank->stream, own, SIZE, 1);
    for (int i = 0; i < rank->n; i++) {
        device_expect(rank->stream, all + SIZE * (size_t)i, SIZE, i);
    }
    CUDA(cudaFree(own));
    CUDA(cudaFree(copy));
    CUDA(cudaFree(all));
}

static void body_collectives(void) {
    ranks_run(5, RANKS_AS_THREADS, rank_collectives);
}

static void body_collectives_processes(void) {
    ranks_run(5, RANKS_AS_PROCESSES, rank_collectives);
}

static void test_collectives(void) {
    child_passes(body_collectives, NULL);
    child_passes(body_collectives_processes, NULL);
}

static void rank_self(Rank *rank) {
    char *a = device_new(SIZE, rank->rank + 3);
    char *b = device_new(SIZE, 0);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(a, SIZE, ncclUint8, rank->rank, rank->comm, rank->stream));
    NCCL(ncclRecv(b, SIZE, ncclUint8, rank->rank, rank->comm, rank->stream));
    NCCL(ncclGroupEnd());
    device_expect(rank->stream, b, SIZE, rank->rank + 3);
    CHECK(ncclSend(a, SIZE, ncclUint8, rank->rank, rank->comm, rank->stream) == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(rank->comm), "without a matching recv") != NULL);
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
}

static void body_self(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_self);
}

static void test_self(void) {
    child_passes(body_self, NULL);
}

/* A group over two streams waits for both and is waited for by both. */
static void rank_two_streams(Rank *rank) {
    cudaStream_t other = stream_new();
    char *a = device_new(SIZE, 0);
    char *b = device_new(SIZE, 0);
    char *c = device_new(SIZE, 0);
    CUDA(cudaMemsetAsync(a, rank->rank + 1, SIZE, other));
    NCCL(ncclGroupStart());
    NCCL(ncclRecv(b, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    NCCL(ncclSend(a, SIZE, ncclUint8, 1 - rank->rank, rank->comm, other));
    NCCL(ncclGroupEnd());
    CUDA(cudaMemcpyAsync(c, b, SIZE, cudaMemcpyDeviceToDevice, other));
    device_expect(other, c, SIZE, 2 - rank->rank);
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaFree(c));
    CUDA(cudaStreamDestroy(other));
}

static void body_two_streams(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_two_streams);
}

static void test_two_streams(void) {
    child_passes(body_two_streams, NULL);
}

/* ---- what NCCL would hang on ---- */

/* Before they have met, the hosts wait; after that, the streams. */
static void rank_ungrouped(Rank *rank) {
    char *a = device_new(SIZE, 0);
    NCCL(ncclSend(a, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    NCCL(ncclRecv(a, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
    CUDA(cudaStreamSynchronize(rank->stream));
}

static void rank_ungrouped_again(Rank *rank) {
    all_to_all(rank, SIZE);
    rank_ungrouped(rank);
}

static void body_ungrouped(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_ungrouped);
}

static void body_ungrouped_again(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_ungrouped_again);
}

static void body_ungrouped_processes(void) {
    ranks_run(2, RANKS_AS_PROCESSES, rank_ungrouped_again);
}

static void test_ungrouped(void) {
    child_expect(body_ungrouped, short_timeout, STANDIN_EXIT_STUCK,
                 "a group of rank 1 of world connects: send/recv to rank 0");
    child_expect(body_ungrouped_again, short_timeout, STANDIN_EXIT_STUCK,
                 "group 1 of rank 1 of world: send/recv to rank 0 1000/1000");
    child_expect(body_ungrouped_processes, short_timeout, STANDIN_EXIT_STUCK,
                 "group 1 of rank 1 of world: send/recv to rank 0 1000/1000");
}

static void rank_inverted(Rank *rank) {
    ncclComm_t other;
    cudaStream_t stream = stream_new();
    char *a = device_new(SIZE, rank->rank);
    char *b = device_new(SIZE, rank->rank);
    NCCL(ncclCommSplit(rank->comm, 0, rank->rank, &other, NULL));
    for (int i = 0; i < 2; i++) {
        if (i == rank->rank) {
            NCCL(ncclBroadcast(a, a, SIZE, ncclUint8, 0, rank->comm, rank->stream));
        } else {
            NCCL(ncclBroadcast(b, b, SIZE, ncclUint8, 0, other, stream));
        }
    }
    device_expect(stream, b, SIZE, 0);
    device_expect(rank->stream, a, SIZE, 0);
    CUDA(cudaStreamDestroy(stream));
    NCCL(ncclCommDestroy(other));
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
}

static void body_inverted(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_inverted);
}

static void test_inverted(void) {
    const char *const environment[] = {"REFIT_STANDIN_TIMEOUT_MS=300", "REFIT_STANDIN_SERIAL=1",
                                       NULL};
    child_passes(body_inverted, NULL);
    child_expect(body_inverted, environment, STANDIN_EXIT_STUCK, "broadcast");
}

/* Rank pairs with 12 messages among pairs with one: legal, and hangs when the group is cut. */
static void rank_many_per_peer(Rank *rank) {
    const int n = rank->n;
    size_t n_got = 0;
    char *a = device_new(SIZE, rank->rank);
    char *b = device_new(SIZE * 64, 0);
    NCCL(ncclGroupStart());
    for (int i = 1; i < n; i++) {
        const int to = (rank->rank + i) % n;
        const int from = (rank->rank - i + n) % n;
        for (int k = 0; k < ((rank->rank + to) % 3 != 0 ? 1 : 12); k++) {
            NCCL(ncclSend(a, SIZE, ncclUint8, to, rank->comm, rank->stream));
        }
        for (int k = 0; k < ((rank->rank + from) % 3 != 0 ? 1 : 12); k++) {
            NCCL(ncclRecv(b + SIZE * n_got++, SIZE, ncclUint8, from, rank->comm, rank->stream));
        }
    }
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(rank->stream));
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
}

static void body_many_per_peer(void) {
    ranks_run(5, RANKS_AS_THREADS, rank_many_per_peer);
}

static void test_many_per_peer(void) {
    const char *const environment[] = {"REFIT_STANDIN_TIMEOUT_MS=300", "REFIT_STANDIN_PLAN_OPS=3",
                                       NULL};
    child_passes(body_many_per_peer, NULL);
    child_expect(body_many_per_peer, environment, STANDIN_EXIT_STUCK, "send/recv");
}

/* ---- what is refused ---- */

static void exchange_unlike(Rank *rank, size_t count, ncclDataType_t type) {
    char *a = device_new(SIZE, 0);
    if (rank->rank == 0) {
        NCCL(ncclSend(a, SIZE, ncclUint8, 1, rank->comm, rank->stream));
    } else {
        NCCL(ncclRecv(a, count, type, 0, rank->comm, rank->stream));
    }
    CUDA(cudaStreamSynchronize(rank->stream));
}

static void rank_unlike_sizes(Rank *rank) {
    exchange_unlike(rank, SIZE - 2, ncclUint8);
}

static void rank_unlike_types(Rank *rank) {
    exchange_unlike(rank, SIZE, ncclInt8);
}

static void rank_unlike_operations(Rank *rank) {
    char *a = device_new(SIZE, 0);
    if (rank->rank == 0) {
        NCCL(ncclSend(a, SIZE, ncclUint8, 1, rank->comm, rank->stream));
    } else {
        NCCL(ncclBroadcast(a, a, SIZE, ncclUint8, 0, rank->comm, rank->stream));
    }
    CUDA(cudaStreamSynchronize(rank->stream));
}

static void body_unlike_sizes(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_unlike_sizes);
}

static void body_unlike_sizes_processes(void) {
    ranks_run(2, RANKS_AS_PROCESSES, rank_unlike_sizes);
}

static void body_unlike_types(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_unlike_types);
}

static void body_unlike_operations(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_unlike_operations);
}

static void test_unlike(void) {
    child_expect(body_unlike_sizes, NULL, STANDIN_EXIT_MISUSE,
                 "rank 1 posts send/recv from rank 0 (998 bytes, type 1, root 0), but rank 0 sent "
                 "send/recv (1000 bytes, type 1, root 0): sizes differ");
    child_expect(body_unlike_types, NULL, STANDIN_EXIT_MISUSE, "data types differ");
    child_expect(body_unlike_operations, NULL, STANDIN_EXIT_MISUSE, "different operations meet");
}

static void test_unlike_processes(void) {
    child_expect(body_unlike_sizes_processes, short_timeout, STANDIN_EXIT_MISUSE, "sizes differ");
}

static void rank_wrong_device(Rank *rank) {
    CUDA(cudaSetDevice(5));
    char *a = device_new(SIZE, 0);
    CUDA(cudaSetDevice(rank->rank));
    NCCL(ncclSend(a, SIZE, ncclUint8, 1 - rank->rank, rank->comm, rank->stream));
}

static void body_wrong_device(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_wrong_device);
}

static void test_wrong_device(void) {
    child_expect(body_wrong_device, NULL, STANDIN_EXIT_MISUSE, "memory of another device");
}

static void rank_wrong_stream(Rank *rank) {
    CUDA(cudaSetDevice(5));
    cudaStream_t stream = stream_new();
    CUDA(cudaSetDevice(rank->rank));
    char *a = device_new(SIZE, 0);
    NCCL(ncclSend(a, SIZE, ncclUint8, 1 - rank->rank, rank->comm, stream));
}

static void body_wrong_stream(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_wrong_stream);
}

static void test_wrong_stream(void) {
    child_expect(body_wrong_stream, NULL, STANDIN_EXIT_MISUSE, "stream of device 5");
}

static void rank_wrong_arguments(Rank *rank) {
    char *a = device_new(SIZE, 0);
    CHECK(ncclSend(a, 1, ncclUint8, 2, rank->comm, rank->stream) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    NCCL(ncclGroupStart());
    CHECK(ncclRecv(a, 1, ncclUint8, -1, rank->comm, rank->stream) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    all_to_all(rank, SIZE); /* nothing of it stays */
    CUDA(cudaFree(a));
}

static void body_wrong_arguments(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_wrong_arguments);
}

static void test_wrong_arguments(void) {
    child_passes(body_wrong_arguments, NULL);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/nccl/ranks-as-threads-exchange", test_threads);
    g_test_add_func("/nccl/ranks-as-processes-exchange", test_processes);
    g_test_add_func("/nccl/ranks-exchange-over-sockets", test_tcp);
    g_test_add_func("/nccl/a-fast-group-uses-its-own-addresses", test_tcp_fast);
    g_test_add_func("/nccl/the-hostile-modes-change-no-byte", test_hostile);
    g_test_add_func("/nccl/steps-tolerate-skew", test_steps);
    g_test_add_func("/nccl/collectives-reach-all", test_collectives);
    g_test_add_func("/nccl/a-rank-copies-to-itself-within-a-group", test_self);
    g_test_add_func("/nccl/a-group-joins-its-streams", test_two_streams);
    g_test_add_func("/nccl/send-before-receive-on-both-sides-is-stuck", test_ungrouped);
    g_test_add_func("/nccl/communicators-launched-crosswise-are-stuck-when-serial", test_inverted);
    g_test_add_func("/nccl/many-messages-per-peer-are-stuck-when-a-group-is-cut",
                    test_many_per_peer);
    g_test_add_func("/nccl/both-sides-of-a-message-must-agree", test_unlike);
    g_test_add_func("/nccl/processes-compare-messages-too", test_unlike_processes);
    g_test_add_func("/nccl/memory-of-another-device-is-refused", test_wrong_device);
    g_test_add_func("/nccl/a-stream-of-another-device-is-refused", test_wrong_stream);
    g_test_add_func("/nccl/wrong-arguments-leave-no-group-behind", test_wrong_arguments);
    return g_test_run();
}
