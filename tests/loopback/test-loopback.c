/*
 * The loop-back of NCCL on the CPU stand-in of CUDA: messages arrive, in the order of the streams
 * on both sides, through several communicators, splits and streams; what NCCL would hang on or
 * garble is refused or stays in progress; an abort frees what waits. That nothing is left on the
 * device, the stand-in checks when a child ends.
 */

#include "loopback.h"
#include "standin-child.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MAX_RANKS = 8, BYTES = 4096, PATIENCE_US = 20 * G_USEC_PER_SEC };

typedef struct {
    int rank, n;
    ncclUniqueId id;
    ncclComm_t comm; /* not blocking */
    cudaStream_t stream;
    char *from, *to; /* device memory of BYTES per rank; from: all the rank's number plus 1 */
    void (*body)(void *member);
} Member;

static pthread_barrier_t barrier;

static void meet(void) {
    pthread_barrier_wait(&barrier);
}

static ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state;

    NCCL(ncclCommGetAsyncError(comm, &state));
    return state;
}

static ncclResult_t settle(ncclComm_t comm) {
    gint64 deadline = g_get_monotonic_time() + PATIENCE_US;
    ncclResult_t state = state_of(comm);

    while (state == ncclInProgress && g_get_monotonic_time() < deadline) {
        g_usleep(50);
        state = state_of(comm);
    }
    return state;
}

static gboolean is_well(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}

static void *member_main(void *data) {
    Member *self = data;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    CUDA(cudaSetDevice(0));
    CHECK(is_well(ncclCommInitRankConfig(&self->comm, self->n, self->id, self->rank, &config)));
    CHECK(settle(self->comm) == ncclSuccess);
    self->stream = stream_new();
    self->from = device_new((size_t)self->n * BYTES, self->rank + 1);
    self->to = device_new((size_t)self->n * BYTES, 0);
    self->body(self);
    CUDA(cudaStreamSynchronize(self->stream));
    CUDA(cudaFree(self->from));
    CUDA(cudaFree(self->to));
    CUDA(cudaStreamDestroy(self->stream));
    if (self->comm != NULL)
        NCCL(ncclCommDestroy(self->comm));
    return NULL;
}

static void run(int n, void (*body)(void *)) {
    pthread_t threads[MAX_RANKS];
    Member members[MAX_RANKS];
    ncclUniqueId id;

    NCCL(ncclGetUniqueId(&id));
    CHECK(pthread_barrier_init(&barrier, NULL, (unsigned)n) == 0);
    for (int r = 0; r < n; r++) {
        members[r] = (Member){.rank = r, .n = n, .id = id, .body = body};
        CHECK(pthread_create(&threads[r], NULL, member_main, &members[r]) == 0);
    }
    for (int r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&barrier);
    CHECK(loop_n_comms() == 0);
}

/* ---- messages ---- */

static ncclResult_t send_to(const Member *self, ncclComm_t comm, int peer, size_t bytes) {
    return ncclSend(self->from + peer * BYTES, bytes, ncclUint8, peer, comm, self->stream);
}

static ncclResult_t receive_from(const Member *self, ncclComm_t comm, int peer, size_t bytes) {
    return ncclRecv(self->to + peer * BYTES, bytes, ncclUint8, peer, comm, self->stream);
}

static void exchange_all(const Member *self, ncclComm_t comm, int rank, int n, size_t bytes) {
    NCCL(ncclGroupStart());
    for (int peer = 0; peer < n; peer++)
        if (peer != rank) {
            NCCL(send_to(self, comm, peer, bytes));
            NCCL(receive_from(self, comm, peer, bytes));
        }
    CHECK(is_well(ncclGroupEnd()));
    CHECK(settle(comm) == ncclSuccess);
}

static void body_exchange(void *data) {
    Member *self = data;

    for (guint i = 0; i < 20; i++)
        exchange_all(self, self->comm, self->rank, self->n, BYTES);
    for (int peer = 0; peer < self->n; peer++)
        device_expect(self->stream, self->to + peer * BYTES, BYTES,
                      peer == self->rank ? 0 : peer + 1);
}

static void child_exchange(void) {
    run(6, body_exchange);
}

static void test_exchange(void) {
    child_passes(child_exchange, NULL);
}

/* The receiver is early and the bytes come late on the sender's stream, which overwrites them after
 * the message; the receiver reads them at once. */
static void body_order(void *data) {
    Member *self = data;

    for (int i = 1; i <= 50; i++) {
        if (self->rank == 0) {
            CUDA(cudaMemsetAsync(self->from + BYTES, i, BYTES, self->stream));
            CHECK(is_well(send_to(self, self->comm, 1, BYTES)));
            CHECK(settle(self->comm) == ncclSuccess);
            CUDA(cudaMemsetAsync(self->from + BYTES, 99, BYTES, self->stream));
        } else {
            CUDA(cudaMemsetAsync(self->to, 77, BYTES, self->stream));
            CHECK(is_well(receive_from(self, self->comm, 0, BYTES)));
            CHECK(settle(self->comm) == ncclSuccess);
            device_expect(self->stream, self->to, BYTES, i);
        }
    }
}

static void child_order(void) {
    run(2, body_order);
}

static void test_order(void) {
    const char *const slow[] = {"REFIT_STANDIN_JITTER_US=300", NULL};

    child_passes(child_order, slow);
}

/* What one stream has done before the group and another does after it. */
static void body_streams(void *data) {
    Member *self = data;
    cudaStream_t other = stream_new();

    CUDA(cudaMemsetAsync(self->from, self->rank + 50, (size_t)self->n * BYTES, other));
    NCCL(ncclGroupStart());
    NCCL(receive_from(self, self->comm, 1 - self->rank, BYTES));
    NCCL(ncclSend(self->from, BYTES, ncclUint8, 1 - self->rank, self->comm, other));
    CHECK(is_well(ncclGroupEnd()));
    CHECK(settle(self->comm) == ncclSuccess);
    device_expect(other, self->to + (1 - self->rank) * BYTES, BYTES, 1 - self->rank + 50);
    CUDA(cudaStreamDestroy(other));
}

static void child_streams(void) {
    run(2, body_streams);
}

static void test_streams(void) {
    child_passes(child_streams, NULL);
}

/* ---- communicators ---- */

/* Odd and even ranks, numbered from the end; twice; one rank takes none the second time. */
static void body_split(void *data) {
    Member *self = data;
    ncclComm_t halves[2] = {NULL, NULL};

    for (int i = 0; i < 2; i++) {
        int color = i == 1 && self->rank == 0 ? NCCL_SPLIT_NOCOLOR : self->rank % 2;
        CHECK(is_well(ncclCommSplit(self->comm, color, -self->rank, &halves[i], NULL)));
        CHECK(settle(self->comm) == ncclSuccess);
        CHECK((halves[i] == NULL) == (color == NCCL_SPLIT_NOCOLOR));
    }
    for (int i = 0; i < 2; i++) {
        int n = (self->n + 1 - self->rank % 2) / 2 - (i == 1 && self->rank % 2 == 0 ? 1 : 0);
        int mine = (self->n - 1 - self->rank) / 2;
        if (halves[i] == NULL)
            continue;
        exchange_all(self, halves[i], mine, n, BYTES);
        for (int peer = 0; peer < n; peer++) {
            int number = self->n - 1 - 2 * peer - (self->n - 1 - self->rank) % 2; /* of the peer */
            device_expect(self->stream, self->to + peer * BYTES, BYTES,
                          peer == mine ? 0 : number + 1);
        }
    }
    for (int i = 0; i < 2; i++)
        if (halves[i] != NULL) {
            NCCL(ncclCommFinalize(halves[i]));
            NCCL(ncclCommDestroy(halves[i]));
        }
}

static void child_split(void) {
    run(6, body_split);
}

static void test_split(void) {
    child_passes(child_split, NULL);
}

static void *blocking_main(void *data) {
    Member *self = data;

    CUDA(cudaSetDevice(0));
    NCCL(ncclCommInitRank(&self->comm, self->n, self->id, self->rank));
    self->stream = stream_new();
    self->from = device_new((size_t)self->n * BYTES, self->rank + 1);
    self->to = device_new((size_t)self->n * BYTES, 0);
    NCCL(ncclGroupStart());
    NCCL(send_to(self, self->comm, 1 - self->rank, BYTES));
    NCCL(receive_from(self, self->comm, 1 - self->rank, BYTES));
    NCCL(ncclGroupEnd());
    device_expect(self->stream, self->to + (1 - self->rank) * BYTES, BYTES, 2 - self->rank);
    CUDA(cudaFree(self->from));
    CUDA(cudaFree(self->to));
    CUDA(cudaStreamDestroy(self->stream));
    NCCL(ncclCommDestroy(self->comm));
    return NULL;
}

static void child_blocking(void) {
    Member members[2] = {{.n = 2}, {.n = 2, .rank = 1}};
    pthread_t thread;

    NCCL(ncclGetUniqueId(&members[0].id));
    members[1].id = members[0].id;
    CHECK(pthread_create(&thread, NULL, blocking_main, &members[1]) == 0);
    blocking_main(&members[0]);
    pthread_join(thread, NULL);
}

static void test_blocking(void) {
    child_passes(child_blocking, NULL);
}

/* ---- what is refused ---- */

static gboolean says(const char *text) {
    return strstr(ncclGetLastError(NULL), text) != NULL;
}

static void body_refused(void *data) {
    Member *self = data;
    int peer = 1 - self->rank;
    ncclComm_t part;

    CHECK(send_to(self, self->comm, self->rank, 8) == ncclInvalidArgument);
    CHECK(send_to(self, self->comm, 2, 8) == ncclInvalidArgument);
    CHECK(ncclSend(self->from, 2, ncclFloat32, peer, self->comm, self->stream) ==
          ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    NCCL(ncclGroupStart());
    NCCL(send_to(self, self->comm, peer, 8));
    CHECK(send_to(self, self->comm, peer, 8) == ncclInvalidUsage && says("two messages"));
    CHECK(ncclCommSplit(self->comm, 0, 0, &part, NULL) == ncclInvalidUsage);
    CHECK(ncclGroupEnd() == ncclInvalidUsage); /* none of it is submitted */
    NCCL(ncclGroupStart());
    NCCL(ncclGroupEnd());
    meet();
    exchange_all(self, self->comm, self->rank, 2, 8); /* all is as before */
}

static void child_refused(void) {
    run(2, body_refused);
}

static void test_refused(void) {
    child_passes(child_refused, NULL);
}

/* Rank 0 waits for rank 1, who does not come yet: no other group on communicator or stream. */
static void body_busy(void *data) {
    Member *self = data;
    ncclComm_t second = NULL;

    CHECK(is_well(ncclCommSplit(self->comm, 0, self->rank, &second, NULL)));
    CHECK(settle(self->comm) == ncclSuccess);
    if (self->rank == 0) {
        CHECK(send_to(self, self->comm, 1, BYTES) == ncclInProgress);
        CHECK(state_of(self->comm) == ncclInProgress);
        CHECK(receive_from(self, self->comm, 1, BYTES) == ncclInvalidUsage && says("is busy"));
        CHECK(receive_from(self, second, 1, BYTES) == ncclInvalidUsage && says("on a stream"));
        CHECK(ncclCommFinalize(self->comm) == ncclInvalidUsage);
        CHECK(ncclCommDestroy(self->comm) == ncclInvalidUsage);
    }
    meet();
    if (self->rank == 1)
        CHECK(is_well(receive_from(self, self->comm, 0, BYTES)));
    CHECK(settle(self->comm) == ncclSuccess);
    NCCL(ncclCommDestroy(second));
    if (self->rank == 1)
        device_expect(self->stream, self->to, BYTES, 1);
}

static void child_busy(void) {
    run(2, body_busy);
}

static void test_busy(void) {
    child_passes(child_busy, NULL);
}

static void body_sizes(void *data) {
    Member *self = data;

    if (self->rank == 0)
        CHECK(is_well(send_to(self, self->comm, 1, 16)));
    meet();
    if (self->rank == 1)
        CHECK(receive_from(self, self->comm, 0, 17) == ncclInvalidUsage);
    meet();
    CHECK(state_of(self->comm) == ncclInvalidUsage);
    CHECK(says("rank 1 expects 17 bytes from rank 0, which has 16"));
    NCCL(ncclCommAbort(self->comm));
    self->comm = NULL;
}

static void child_sizes(void) {
    run(2, body_sizes);
}

static void test_sizes(void) {
    child_passes(child_sizes, NULL);
}

/* Both send first and receive in a second group, which NCCL would hang on. */
static void body_order_of_groups(void *data) {
    Member *self = data;

    CHECK(send_to(self, self->comm, 1 - self->rank, BYTES) == ncclInProgress);
    meet();
    for (guint i = 0; i < 100; i++)
        CHECK(state_of(self->comm) == ncclInProgress);
    meet();
    NCCL(ncclCommAbort(self->comm));
    self->comm = NULL;
}

static void child_order_of_groups(void) {
    run(2, body_order_of_groups);
}

static void test_order_of_groups(void) {
    child_passes(child_order_of_groups, NULL);
}

/* Rank 0 goes; its message, which is not copied yet, goes with it, and rank 1 waits for ever. */
static void body_abort(void *data) {
    Member *self = data;

    if (self->rank == 0) {
        CHECK(send_to(self, self->comm, 1, BYTES) == ncclInProgress);
        NCCL(ncclCommAbort(self->comm));
        self->comm = NULL;
    }
    meet();
    if (self->rank == 1) {
        CHECK(receive_from(self, self->comm, 0, BYTES) == ncclInProgress);
        CHECK(state_of(self->comm) == ncclInProgress);
        NCCL(ncclCommAbort(self->comm));
        self->comm = NULL;
        device_expect(self->stream, self->to, BYTES, 0);
    }
}

static void child_abort(void) {
    run(2, body_abort);
}

static void test_abort(void) {
    child_passes(child_abort, NULL);
}

/* A split that never ends, and ranks that come twice. */
static void child_incomplete(void) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm, again;
    ncclUniqueId id;

    config.blocking = 0;
    NCCL(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
    CHECK(ncclCommInitRankConfig(&again, 2, id, 0, &config) == ncclInvalidArgument);
    CHECK(ncclCommInitRankConfig(&again, 3, id, 1, &config) == ncclInvalidArgument);
    CHECK(ncclCommInitRankConfig(&again, 2, id, 2, &config) == ncclInvalidArgument);
    CUDA(cudaSetDevice(1));
    CHECK(ncclCommInitRankConfig(&again, 2, id, 1, &config) == ncclInvalidUsage);
    CUDA(cudaSetDevice(0));
    CHECK(state_of(comm) == ncclInProgress);
    CHECK(ncclCommSplit(comm, 0, 0, &again, &config) == ncclInvalidUsage);
    CHECK(ncclCommInitRankConfig(&again, 2, id, 1, &config) == ncclSuccess);
    CHECK(state_of(comm) == ncclSuccess);
    ncclComm_t part = NULL;
    CHECK(ncclCommSplit(comm, 0, 0, &part, &config) == ncclInProgress);
    CHECK(state_of(comm) == ncclInProgress && part == NULL);
    CHECK(ncclCommDestroy(comm) == ncclInvalidUsage);
    NCCL(ncclCommAbort(comm));
    NCCL(ncclCommAbort(again));
    CHECK(loop_n_comms() == 0);
}

static void test_incomplete(void) {
    child_passes(child_incomplete, NULL);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/loopback/every-rank-gets-what-every-other-sent", test_exchange);
    g_test_add_func("/loopback/streams-of-both-ends-keep-their-order", test_order);
    g_test_add_func("/loopback/a-group-joins-its-streams", test_streams);
    g_test_add_func("/loopback/splits-number-ranks-by-colour-and-key", test_split);
    g_test_add_func("/loopback/blocking-communicators-block", test_blocking);
    g_test_add_func("/loopback/wrong-calls-are-refused", test_refused);
    g_test_add_func("/loopback/a-busy-communicator-or-stream-is-refused", test_busy);
    g_test_add_func("/loopback/different-sizes-fail-on-both-ends", test_sizes);
    g_test_add_func("/loopback/what-would-hang-stays-in-progress", test_order_of_groups);
    g_test_add_func("/loopback/an-abort-takes-its-messages-back", test_abort);
    g_test_add_func("/loopback/set-up-waits-for-all-ranks", test_incomplete);
    return g_test_run();
}
