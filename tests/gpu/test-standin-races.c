/*
 * Planted bugs of the kind that the stand-in exists to find: each leaves out, or misplaces, one
 * dependency between streams, events, groups or host. ThreadSanitizer must report it, also where
 * the bytes come out right by luck; and it must be silent about the same program without the bug.
 * Built with -fsanitize=thread only. A pipeline of two ranks: pack, group, unpack, through two
 * slots.
 */

#include "gpu/executor/refit-pack.h"
#include "gpu/executor/refit-strided.h"
#include "standin-child.h"

#include <stdlib.h>

enum { N_STEPS = 6, N_SLOTS = 2, SIDE = 64, REPORTED = 66 };

typedef enum {
    BUG_NONE,
    BUG_SEND_BEFORE_PACK,       /* the group does not wait for the pack */
    BUG_PACK_INTO_BUSY_SLOT,    /* the pack does not wait for the send two steps ago */
    BUG_RECEIVE_INTO_BUSY_SLOT, /* the group does not wait for the unpack two steps ago */
    BUG_UNPACK_BEFORE_RECEIVE,  /* the unpack does not wait for the group */
    BUG_WRONG_EVENT,            /* it waits for the other slot's */
    BUG_EARLY_RECORD,           /* the event is recorded before the group is queued */
    BUG_EARLY_READ,             /* the host reads before it has waited */
    BUG_TABLE_NOT_AWAITED,      /* the packs do not wait for an upload of their table */
    BUG_EARLY_DEFERRED_RECORD   /* non-blocking: recorded before the group is on its stream */
} Bug;

static Bug bug;

typedef struct {
    Rank *rank;
    cudaStream_t pack, net, unpack;
    cudaEvent_t uploaded, packed[N_SLOTS], moved[N_SLOTS], unpacked[N_SLOTS];
    char *array, *result;
    char *send[N_SLOTS], *receive[N_SLOTS];
    RefitStridedCopy *table, *pinned;
    RefitStridedSpan spans[2][N_STEPS];
} Pipeline;

/* Step k moves every N_STEPS-th column, from column k, of a square of bytes. */
static void make_table(Pipeline *pipe) {
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    const guint64 extents[] = {SIDE, SIDE / N_STEPS};
    const gint64 strides[] = {SIDE, N_STEPS};
    const RefitStridedShape shape = {2, extents, 1};
    guint n;
    for (guint side = 0; side < 2; side++) {
        for (guint k = 0; k < N_STEPS; k++) {
            const char *array = side == 0 ? pipe->array : pipe->result;
            const RefitStridedPlace place = {(guintptr)array + k, strides};
            refit_strided_table_begin(table);
            CHECK(refit_strided_table_add_packed(table, &shape, &place, 0, NULL));
            pipe->spans[side][k] = refit_strided_table_end(table);
        }
    }
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n);
    const size_t size = n * sizeof *copies;
    CUDA(cudaMallocHost((void **)&pipe->pinned, size));
    for (guint i = 0; i < n; i++) {
        pipe->pinned[i] = copies[i];
    }
    CUDA(cudaMalloc((void **)&pipe->table, size));
    CUDA(cudaMemcpyAsync(pipe->table, pipe->pinned, size, cudaMemcpyHostToDevice, pipe->pack));
    CUDA(cudaEventRecord(pipe->uploaded, pipe->pack));
    CUDA(cudaStreamWaitEvent(pipe->unpack, pipe->uploaded, 0));
    if (bug == BUG_TABLE_NOT_AWAITED) { /* once more, on a stream that the packs do not wait for */
        CUDA(
            cudaMemcpyAsync(pipe->table, pipe->pinned, size, cudaMemcpyHostToDevice, pipe->unpack));
    }
}

static void event_new(cudaEvent_t *event_out) {
    CUDA(cudaEventCreateWithFlags(event_out, cudaEventDisableTiming));
}

static void pipeline_open(Pipeline *pipe) {
    const size_t size = SIDE * SIDE;
    pipe->pack = stream_new();
    pipe->net = stream_new();
    pipe->unpack = stream_new();
    event_new(&pipe->uploaded);
    pipe->array = device_new(size, pipe->rank->rank + 1);
    pipe->result = device_new(size, 0);
    for (int i = 0; i < N_SLOTS; i++) {
        event_new(&pipe->packed[i]);
        event_new(&pipe->moved[i]);
        event_new(&pipe->unpacked[i]);
        pipe->send[i] = device_new(size, 0);
        pipe->receive[i] = device_new(size, 0);
    }
    make_table(pipe);
}

static void pipeline_close(Pipeline *pipe) {
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaStreamDestroy(pipe->pack));
    CUDA(cudaStreamDestroy(pipe->net));
    CUDA(cudaStreamDestroy(pipe->unpack));
    CUDA(cudaEventDestroy(pipe->uploaded));
    CUDA(cudaFree(pipe->array));
    CUDA(cudaFree(pipe->result));
    CUDA(cudaFree(pipe->table));
    CUDA(cudaFreeHost(pipe->pinned));
    for (int i = 0; i < N_SLOTS; i++) {
        CUDA(cudaEventDestroy(pipe->packed[i]));
        CUDA(cudaEventDestroy(pipe->moved[i]));
        CUDA(cudaEventDestroy(pipe->unpacked[i]));
        CUDA(cudaFree(pipe->send[i]));
        CUDA(cudaFree(pipe->receive[i]));
    }
}

static void settle(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL(ncclCommGetAsyncError(comm, &state));
    }
    NCCL(state);
}

static void exchange(Pipeline *pipe, int slot) {
    const size_t size = (size_t)SIDE * (SIDE / N_STEPS);
    const int peer = 1 - pipe->rank->rank;
    NCCL(ncclGroupStart());
    NCCL(ncclSend(pipe->send[slot], size, ncclUint8, peer, pipe->rank->comm, pipe->net));
    NCCL(ncclRecv(pipe->receive[slot], size, ncclUint8, peer, pipe->rank->comm, pipe->net));
    const ncclResult_t result = ncclGroupEnd();
    CHECK(result == ncclSuccess || result == ncclInProgress);
    if (bug != BUG_EARLY_DEFERRED_RECORD) {
        settle(pipe->rank->comm);
    }
}

static void step(Pipeline *pipe, int k) {
    const int slot = k % N_SLOTS;
    const gboolean reused = k >= N_SLOTS;
    if (reused && bug != BUG_PACK_INTO_BUSY_SLOT) {
        CUDA(cudaStreamWaitEvent(pipe->pack, pipe->moved[slot], 0));
    }
    CUDA(refit_pack_launch(pipe->table, &pipe->spans[0][k], pipe->send[slot], 2, pipe->pack));
    CUDA(cudaEventRecord(pipe->packed[slot], pipe->pack));
    if (bug != BUG_SEND_BEFORE_PACK) {
        CUDA(cudaStreamWaitEvent(pipe->net, pipe->packed[slot], 0));
    }
    if (reused && bug != BUG_RECEIVE_INTO_BUSY_SLOT) {
        CUDA(cudaStreamWaitEvent(pipe->net, pipe->unpacked[slot], 0));
    }
    if (bug == BUG_EARLY_RECORD) {
        CUDA(cudaEventRecord(pipe->moved[slot], pipe->net));
        exchange(pipe, slot);
    } else {
        exchange(pipe, slot);
        CUDA(cudaEventRecord(pipe->moved[slot], pipe->net));
    }
    if (bug == BUG_WRONG_EVENT && k > 0) {
        CUDA(cudaStreamWaitEvent(pipe->unpack, pipe->moved[1 - slot], 0));
    } else if (bug != BUG_UNPACK_BEFORE_RECEIVE) {
        CUDA(cudaStreamWaitEvent(pipe->unpack, pipe->moved[slot], 0));
    }
    CUDA(
        refit_unpack_launch(pipe->table, &pipe->spans[1][k], pipe->receive[slot], 2, pipe->unpack));
    CUDA(cudaEventRecord(pipe->unpacked[slot], pipe->unpack));
    if (bug == BUG_EARLY_DEFERRED_RECORD) {
        settle(pipe->rank->comm);
    }
}

static void rank_pipeline(Rank *rank, const ncclUniqueId *id) {
    Pipeline pipe = {.rank = rank};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    char byte = 0;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&rank->comm, rank->n, *id, rank->rank, &config) == ncclInProgress);
    settle(rank->comm);
    pipeline_open(&pipe);
    for (int k = 0; k < N_STEPS; k++) {
        step(&pipe, k);
    }
    if (bug != BUG_EARLY_READ) {
        while (cudaStreamQuery(pipe.unpack) == cudaErrorNotReady) {
            g_usleep(100);
        }
    }
    CUDA(cudaMemcpy(&byte, pipe.result, 1, cudaMemcpyDeviceToHost));
    CHECK(bug != BUG_NONE || byte == 2 - rank->rank);
    pipeline_close(&pipe);
    NCCL(ncclCommDestroy(rank->comm));
}

static void body(void) {
    ranks_run_bare(2, RANKS_AS_THREADS, rank_pipeline);
}

/* One queue, one slot and an order of launches: what delays an operation orders nothing. */
static const char *const narrow[] = {"CUDA_DEVICE_MAX_CONNECTIONS=1", "REFIT_STANDIN_SMS=1",
                                     "NCCL_LAUNCH_ORDER_IMPLICIT=1", NULL};

static void test_bug(gconstpointer data) {
    bug = (Bug)GPOINTER_TO_INT(data);
    child_expect(body, NULL, REPORTED, "ThreadSanitizer: data race");
    child_expect(body, narrow, REPORTED, "ThreadSanitizer: data race");
}

/* Several times, with delays, and in the hostile modes: the stand-in must not cry wolf. */
static void test_clean(void) {
    const char *const jitter[] = {"REFIT_STANDIN_JITTER_US=300", "REFIT_STANDIN_BLOCK_THREADS=2",
                                  NULL};
    const char *const hostile[] = {"REFIT_STANDIN_EAGER=1", "REFIT_STANDIN_SERIAL=1",
                                   "REFIT_STANDIN_RING=300", NULL};
    bug = BUG_NONE;
    for (guint i = 0; i < 3; i++) {
        child_passes(body, NULL);
        child_passes(body, jitter);
        child_passes(body, hostile);
        child_passes(body, narrow);
    }
}

static const struct {
    const char *path;
    Bug bug;
} bugs[] = {
    {"/races/a-send-before-its-pack", BUG_SEND_BEFORE_PACK},
    {"/races/a-pack-into-a-slot-being-sent", BUG_PACK_INTO_BUSY_SLOT},
    {"/races/a-receive-into-a-slot-being-unpacked", BUG_RECEIVE_INTO_BUSY_SLOT},
    {"/races/an-unpack-before-its-receive", BUG_UNPACK_BEFORE_RECEIVE},
    {"/races/a-wait-for-the-wrong-event", BUG_WRONG_EVENT},
    {"/races/an-event-recorded-too-early", BUG_EARLY_RECORD},
    {"/races/a-host-read-before-the-end", BUG_EARLY_READ},
    {"/races/a-table-in-use-while-it-is-written", BUG_TABLE_NOT_AWAITED},
    {"/races/an-event-recorded-before-a-deferred-group", BUG_EARLY_DEFERRED_RECORD},
};

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/races/a-correct-pipeline-is-clean", test_clean);
    for (guint i = 0; i < G_N_ELEMENTS(bugs); i++) {
        g_test_add_data_func(bugs[i].path, GINT_TO_POINTER(bugs[i].bug), test_bug);
    }
    return g_test_run();
}
