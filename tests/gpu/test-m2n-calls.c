/*
 * The NCCL M2N interface on the CPU stand-in, besides plain moves: what descriptors can say here
 * and not there (more axes and dims, several cuts, unequal shards, shared ranks, empty shards);
 * runs that repeat, move their memory or change their weights; groups and handles; communicators
 * that do not block and default streams; what is refused, on one rank's account on all ranks, and
 * that calls after it work; ranks that do not come.
 */

#include "m2n-tensor.h"

#include <string.h>

#define M2N(call)                                                                                  \
    do {                                                                                           \
        if ((call) != ncclSuccess) {                                                               \
            check_failed(__FILE__, __LINE__, ncclM2nGetLastError());                               \
        }                                                                                          \
    } while (0)
/* The call fails with that result, and says why. */
#define FAILS(call, result, text)                                                                  \
    do {                                                                                           \
        CHECK((call) == (result));                                                                 \
        if (strstr(ncclM2nGetLastError(), (text)) == NULL) {                                       \
            check_failed(__FILE__, __LINE__, ncclM2nGetLastError());                               \
        }                                                                                          \
    } while (0)

static const char *const environment[] = {"REFIT_DOMAIN_SIZE=2", "REFIT_TIMEOUT_S=30", NULL};

/* Four ranks: rows over 0 and 1 to columns over 2 and 3. */
static const Tensor simple = {
    .n_dims = 2,
    .shape = {8, 12},
    .dtype = ncclFloat32,
    .element = 4,
    .source = {.n_axes = 1, .axes = {2}, .places = {0}},
    .destination = {.first = 2, .n_axes = 1, .axes = {2}, .places = {1}},
};

static ncclResult_t reshard(Rank *rank, ncclM2nHandle_t handle, const TensorOnRank *tensor) {
    return ncclReshard(handle, rank->comm, &tensor->sides[0], &tensor->sides[1], rank->stream);
}

/* ---- what descriptors can say ---- */

static const size_t sizes_3_5[] = {3, 5}, sizes_0_7_1[] = {0, 7, 1}, sizes_nested[] = {1, 2, 4, 1};

static const Tensor wide[] = {
    /* Three axes on four dims, two of them cut. */
    {.n_dims = 4,
     .shape = {4, 3, 6, 5},
     .dtype = ncclBfloat16,
     .element = 2,
     .source = {.n_axes = 3, .axes = {2, 1, 2}, .places = {0, NCCL_RESHARD_REPLICATE, 2}},
     .destination = {.first = 4, .n_axes = 3, .axes = {2, 2, 1}, .places = {2, -1, 0}}},
    /* Two cuts of one dim; eight dims. */
    {.n_dims = 8,
     .shape = {2, 1, 2, 1, 8, 1, 3, 2},
     .dtype = ncclInt64,
     .element = 8,
     .source = {.n_axes = 2, .axes = {2, 2}, .places = {4, 4}},
     .destination = {.first = 4, .n_axes = 1, .axes = {3}, .places = {6}}},
    /* Unequal shards on both sides. */
    {.n_dims = 2,
     .shape = {8, 8},
     .dtype = ncclFloat64,
     .element = 8,
     .source = {.n_axes = 2, .axes = {2, 2}, .places = {0, -1}, .sizes = {sizes_3_5}},
     .destination =
         {.first = 4, .n_axes = 1, .axes = {3}, .places = {1}, .sizes = {NULL, sizes_0_7_1}}},
    /* Unequal parts of two cuts of one dim, which no nesting of sizes can say. */
    {.n_dims = 1,
     .shape = {8},
     .dtype = ncclUint8,
     .element = 1,
     .source = {.n_axes = 2, .axes = {2, 2}, .places = {0, 0}, .sizes = {sizes_nested}},
     .destination = {.first = 5, .n_axes = 1, .axes = {2}, .places = {0}}},
    /* Meshes that share ranks, some of which keep what they have. */
    {.n_dims = 2,
     .shape = {8, 4},
     .dtype = ncclFloat16,
     .element = 2,
     .source = {.n_axes = 1, .axes = {4}, .places = {0}},
     .destination = {.first = 2, .n_axes = 1, .axes = {4}, .places = {0}}},
    /* Everything everywhere. */
    {.n_dims = 1,
     .shape = {33},
     .dtype = ncclFloat8e4m3,
     .element = 1,
     .source = {.n_axes = 2, .axes = {4, 2}, .places = {-1, -1}},
     .destination = {.first = 0, .n_axes = 1, .axes = {8}, .places = {-1}}},
};

static void rank_wide(Rank *rank) {
    TensorOnRank tensors[G_N_ELEMENTS(wide)];
    ncclM2nHandle_t handle;

    M2N(ncclM2nInit(&handle, NULL));
    for (guint i = 0; i < G_N_ELEMENTS(wide); i++) {
        tensor_open(&tensors[i], &wide[i], rank->rank);
        M2N(reshard(rank, handle, &tensors[i]));
        tensor_check(&tensors[i], &wide[i]);
        tensor_fill(&tensors[i], &wide[i]);
    }
    M2N(ncclM2nGroupStart());
    for (guint i = 0; i < G_N_ELEMENTS(wide); i++)
        M2N(reshard(rank, handle, &tensors[i]));
    M2N(ncclM2nGroupEnd());
    for (guint i = 0; i < G_N_ELEMENTS(wide); i++) {
        tensor_check(&tensors[i], &wide[i]);
        tensor_close(&tensors[i]);
    }
    M2N(ncclM2nFinalize(handle));
}

static void child_wide(void) {
    ranks_run(8, RANKS_AS_THREADS, rank_wide);
}

static void test_wide(void) {
    child_passes(child_wide, environment);
}

/* ---- runs ---- */

static void rank_repeats(Rank *rank) {
    Tensor tensor = simple, other = simple;
    TensorOnRank here, there, moved;
    ncclM2nHandle_t handle;

    other.shape[0] = 16;
    M2N(ncclM2nInit(&handle, NULL));
    tensor_open(&here, &tensor, rank->rank);
    tensor_open(&there, &other, rank->rank);
    tensor_open(&moved, &tensor, rank->rank);
    for (guint run = 0; run < 6; run++) {
        tensor.salt = other.salt = run;
        tensor_fill(&here, &tensor);
        M2N(reshard(rank, handle, &here));
        tensor_check(&here, &tensor);
        if (run == 2) { /* another plan in between */
            tensor_fill(&there, &other);
            M2N(reshard(rank, handle, &there));
            tensor_check(&there, &other);
        }
        if (run == 4) { /* the same plan, other memory: on one side only */
            TensorOnRank mixed = here;
            tensor_fill(&moved, &tensor);
            mixed.sides[1].dataPtr = moved.sides[1].dataPtr;
            M2N(reshard(rank, handle, &mixed));
            tensor_check(&moved, &tensor);
        }
    }
    tensor_close(&here);
    tensor_close(&there);
    tensor_close(&moved);
    M2N(ncclM2nFinalize(handle));
}

static void child_repeats(void) {
    ranks_run(4, RANKS_AS_THREADS, rank_repeats);
}

static void test_repeats(void) {
    child_passes(child_repeats, environment);
}

/* After eight calls with one plan and memory, device memory can no longer be had. */
static void rank_reuses(Rank *rank) {
    TensorOnRank tensor;
    ncclM2nHandle_t handle;

    M2N(ncclM2nInit(&handle, NULL));
    tensor_open(&tensor, &simple, rank->rank);
    M2N(reshard(rank, handle, &tensor));
    void *address;
    while (cudaMalloc(&address, 64) == cudaSuccess)
        CUDA(cudaFree(address));
    for (guint run = 0; run < 3; run++) {
        tensor_fill(&tensor, &simple);
        M2N(reshard(rank, handle, &tensor));
        tensor_check(&tensor, &simple);
    }
    tensor_close(&tensor);
    M2N(ncclM2nFinalize(handle));
}

static void child_reuses(void) {
    ranks_run(4, RANKS_AS_THREADS, rank_reuses);
}

static void test_reuses(void) {
    const char *const no_memory[] = {"REFIT_STANDIN_FAULT=cudaMalloc:*:200:errors",
                                     "REFIT_DOMAIN_SIZE=2", "REFIT_TIMEOUT_S=30", NULL};

    child_passes(child_reuses, no_memory);
}

/* More plans than are kept. */
static void rank_varies(Rank *rank) {
    ncclM2nHandle_t handle;

    M2N(ncclM2nInit(&handle, NULL));
    for (guint i = 0; i < 140; i++) {
        Tensor tensor = simple;
        TensorOnRank on_rank;
        tensor.shape[0] = 2 * (1 + i % 70);
        tensor_open(&on_rank, &tensor, rank->rank);
        M2N(reshard(rank, handle, &on_rank));
        tensor_check(&on_rank, &tensor);
        tensor_close(&on_rank);
    }
    M2N(ncclM2nFinalize(handle));
}

static void child_varies(void) {
    ranks_run(4, RANKS_AS_THREADS, rank_varies);
}

static void test_varies(void) {
    child_passes(child_varies, environment);
}

/* ---- streams and communicators ---- */

static void rank_in_stream_order(Rank *rank) {
    TensorOnRank tensor;

    tensor_open(&tensor, &simple, rank->rank);
    const Shard *source = &tensor.shards[0];
    char *copy = source->held ? device_new(source->bytes, 0) : NULL;
    if (source->held) { /* the weights come last, by the stream */
        CUDA(cudaMemcpy(copy, source->data, source->bytes, cudaMemcpyDeviceToDevice));
        CUDA(cudaMemset(source->data, 0, source->bytes));
        CUDA(cudaMemcpyAsync(source->data, copy, source->bytes, cudaMemcpyDeviceToDevice,
                             rank->stream));
    }
    M2N(reshard(rank, NULL, &tensor));
    tensor_check(&tensor, &simple);
    if (copy != NULL)
        CUDA(cudaFree(copy));

    /* Default streams, behind a stream that the legacy one waits for. */
    const cudaStream_t defaults[] = {NULL, cudaStreamLegacy, cudaStreamPerThread};
    cudaStream_t blocking;
    CUDA(cudaStreamCreate(&blocking));
    for (guint i = 0; i < G_N_ELEMENTS(defaults); i++) {
        tensor_fill(&tensor, &simple);
        if (tensor.shards[1].held)
            CUDA(cudaMemsetAsync(tensor.shards[1].data, 1, tensor.shards[1].bytes, blocking));
        if (defaults[i] == cudaStreamPerThread)
            CUDA(cudaStreamSynchronize(blocking));
        M2N(ncclReshard(NULL, rank->comm, &tensor.sides[0], &tensor.sides[1], defaults[i]));
        tensor_check(&tensor, &simple);
    }
    CUDA(cudaStreamDestroy(blocking));
    tensor_close(&tensor);
    M2N(ncclM2nFinalize(NULL));
    M2N(ncclM2nFinalize(NULL));
}

static void child_in_stream_order(void) {
    ranks_run(4, RANKS_AS_PROCESSES, rank_in_stream_order);
}

static void test_stream_order(void) {
    child_passes(child_in_stream_order, environment);
}

static void rank_does_not_block(Rank *rank, const ncclUniqueId *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state = ncclInProgress;
    TensorOnRank tensor;

    config.blocking = 0;
    rank->stream = stream_new();
    CHECK(ncclCommInitRankConfig(&rank->comm, rank->n, *id, rank->rank, &config) <= ncclInProgress);
    tensor_open(&tensor, &simple, rank->rank);
    M2N(reshard(rank, NULL, &tensor)); /* also before the communicator is ready */
    tensor_check(&tensor, &simple);
    tensor_close(&tensor);
    M2N(ncclM2nFinalize(NULL));
    CUDA(cudaStreamDestroy(rank->stream));
    CHECK(ncclCommFinalize(rank->comm) <= ncclInProgress);
    while (state == ncclInProgress)
        NCCL(ncclCommGetAsyncError(rank->comm, &state));
    NCCL(ncclCommDestroy(rank->comm));
}

static void child_does_not_block(void) {
    ranks_run_bare(4, RANKS_AS_PROCESSES, rank_does_not_block);
}

static void test_does_not_block(void) {
    child_passes(child_does_not_block, environment);
}

/* ---- groups and handles ---- */

static void rank_groups(Rank *rank) {
    Tensor tensors[3] = {simple, simple, simple};
    TensorOnRank on_rank[3];
    ncclM2nHandle_t handle;
    cudaStream_t second = stream_new();

    M2N(ncclM2nInit(&handle, NULL));
    for (guint i = 0; i < 3; i++) {
        tensors[i].salt = i + 1;
        tensor_open(&on_rank[i], &tensors[i], rank->rank);
    }
    /* Nested levels are one; another stream is another move; descriptors are copied. */
    M2N(ncclM2nGroupStart());
    M2N(reshard(rank, handle, &on_rank[0]));
    M2N(ncclM2nGroupStart());
    TensorOnRank copy = on_rank[1];
    M2N(ncclReshard(handle, rank->comm, &copy.sides[0], &copy.sides[1], second));
    memset(&copy, 0, sizeof copy);
    M2N(ncclM2nGroupEnd());
    M2N(reshard(rank, handle, &on_rank[2]));
    FAILS(ncclM2nFinalize(handle), ncclInvalidArgument, "group");
    M2N(ncclM2nGroupEnd());
    for (guint i = 0; i < 3; i++)
        tensor_check(&on_rank[i], &tensors[i]);

    /* Forgotten on all levels. */
    tensor_fill(&on_rank[0], &tensors[0]);
    M2N(ncclM2nGroupStart());
    M2N(ncclM2nGroupStart());
    M2N(reshard(rank, handle, &on_rank[0]));
    M2N(ncclM2nGroupAbort());
    M2N(ncclM2nGroupAbort());
    FAILS(ncclM2nGroupEnd(), ncclInvalidUsage, "no group");
    if (on_rank[0].shards[1].held)
        device_expect(rank->stream, on_rank[0].shards[1].data, on_rank[0].shards[1].bytes, 0xa5);

    /* A wrong call spoils its group, and nothing else. */
    M2N(ncclM2nGroupStart());
    M2N(reshard(rank, handle, &on_rank[0]));
    FAILS(ncclReshard(handle, rank->comm, &on_rank[1].sides[0], NULL, rank->stream),
          ncclInvalidArgument, "dst");
    FAILS(reshard(rank, handle, &on_rank[2]), ncclInvalidArgument, "call 1");
    FAILS(ncclM2nGroupEnd(), ncclInvalidArgument, "call 1");
    M2N(ncclM2nGroupStart());
    M2N(ncclM2nGroupEnd());
    CHECK(ncclM2nGetLastError()[0] == '\0');
    M2N(reshard(rank, handle, &on_rank[0]));
    tensor_check(&on_rank[0], &tensors[0]);

    for (guint i = 0; i < 3; i++)
        tensor_close(&on_rank[i]);
    CUDA(cudaStreamDestroy(second));
    M2N(ncclM2nFinalize(handle));
    FAILS(ncclM2nFinalize(handle), ncclInvalidArgument, "finalized before");
    FAILS(reshard(rank, handle, &on_rank[0]), ncclInvalidArgument, "finalized before");
}

static void child_groups(void) {
    ranks_run(4, RANKS_AS_THREADS, rank_groups);
}

static void test_groups(void) {
    child_passes(child_groups, environment);
}

static void child_handles(void) {
    ncclM2nConfig_t config = NCCL_M2N_CONFIG_INITIALIZER;
    ncclM2nHandle_t one, two = (ncclM2nHandle_t)&config;

    FAILS(ncclM2nInit(NULL, NULL), ncclInvalidArgument, "place");
    config.magic = 1;
    FAILS(ncclM2nInit(&two, &config), ncclInvalidArgument, "malformed");
    CHECK(two == NULL);
    config = (ncclM2nConfig_t)NCCL_M2N_CONFIG_INITIALIZER;
    config.size--;
    FAILS(ncclM2nInit(&two, &config), ncclInvalidArgument, "malformed");
    config.size++;
    config.maxCta = -3; /* ignored */
    M2N(ncclM2nInit(&one, &config));
    M2N(ncclM2nInit(&two, NULL));
    CHECK(one != NULL && two != NULL && one != two);
    M2N(ncclM2nFinalize(one));
    FAILS(ncclM2nFinalize(one), ncclInvalidArgument, "finalized before");
    CHECK(ncclM2nGetLastError() != NULL);
    M2N(ncclM2nFinalize(two));
    M2N(ncclM2nFinalize(NULL));
}

static void test_handles(void) {
    child_passes(child_handles, NULL);
}

static void child_without_driver(void) {
    ncclM2nHandle_t handle;

    FAILS(ncclM2nInit(&handle, NULL), ncclSystemError, "driver");
    CHECK(handle == NULL);
}

static void test_without_driver(void) {
    const char *const no_driver[] = {"REFIT_STANDIN_NO_DRIVER=1", NULL};

    child_passes(child_without_driver, no_driver);
}

/* ---- refusal ---- */

static void rank_alone_misuses(Rank *rank) {
    const Tensor tensor = {
        .n_dims = 1,
        .shape = {16},
        .dtype = ncclInt32,
        .element = 4,
        .source = {.n_axes = 1, .axes = {1}, .places = {-1}},
        .destination = {.n_axes = 1, .axes = {1}, .places = {-1}},
    };
    TensorOnRank good, bad;

    tensor_open(&good, &tensor, rank->rank);
    M2N(reshard(rank, NULL, &good)); /* to itself */
    tensor_check(&good, &tensor);

#define WRONG(change, text)                                                                        \
    do {                                                                                           \
        bad = good;                                                                                \
        bad.sides[0].mesh = &bad.meshes[0];                                                        \
        bad.sides[1].mesh = &bad.meshes[1];                                                        \
        change;                                                                                    \
        FAILS(reshard(rank, NULL, &bad), ncclInvalidArgument, text);                               \
    } while (0)
    int none[] = {0}, far[] = {1}, below[] = {-2}, two[] = {2};
    WRONG(bad.sides[0].size = 8, "size 8");
    WRONG(bad.sides[1].version = 3, "version 3");
    WRONG(bad.sides[1].localShape = NULL, "local shape");
    WRONG(bad.sides[0].ndims = 0, "0 dims");
    WRONG(bad.sides[0].ndims = 9, "9 dims");
    WRONG(bad.sides[0].ndims = 2, "dims");
    WRONG(bad.sides[0].dtype = ncclInt8, "nothing is cast");
    WRONG(bad.sides[0].dtype = (ncclDataType_t)77, "77");
    WRONG(bad.sides[0].mesh = NULL, "mesh is NULL");
    WRONG(bad.meshes[0].size = 1, "size 1");
    WRONG(bad.meshes[1].version = 0, "version 0");
    WRONG(bad.meshes[0].ndims = 9, "axes");
    WRONG(bad.meshes[0].dims = NULL, "axes");
    WRONG(bad.meshes[0].dims = none, "extent 0");
    WRONG(bad.meshes[0].startRank = -1, "rank -1");
    WRONG(bad.sides[1].placements = NULL, "placement");
    WRONG(bad.sides[1].placements = far, "cuts dim 1");
    WRONG(bad.sides[1].placements = below, "cuts dim -2");
    /* These are known to be wrong by the communicator only, or by the other side. */
    WRONG(bad.meshes[0].dims = two, "communicator");
    WRONG(bad.sides[0].dataPtr = NULL, "no data");
    size_t longer[] = {17};
    WRONG(bad.sides[1].localShape = longer, "[17]");
#undef WRONG
    FAILS(ncclReshard(NULL, NULL, &good.sides[0], &good.sides[1], rank->stream),
          ncclInvalidArgument, "communicator is NULL");
    FAILS(ncclReshard(NULL, rank->comm, NULL, &good.sides[1], rank->stream), ncclInvalidArgument,
          "src");
    FAILS(ncclReshard((ncclM2nHandle_t)&bad, rank->comm, &good.sides[0], &good.sides[1],
                      rank->stream),
          ncclInvalidArgument, "no such handle");
    M2N(reshard(rank, NULL, &good));
    tensor_close(&good);
    M2N(ncclM2nFinalize(NULL));
}

static void child_misuses(void) {
    ranks_run(1, RANKS_AS_THREADS, rank_alone_misuses);
}

static void test_misuse(void) {
    child_passes(child_misuses, NULL);
}

/* What one rank states differently is refused on all, and the next call is well. */
static void rank_differs(Rank *rank) {
    Tensor other = simple, third = simple;
    TensorOnRank good, bad, worse;
    ncclM2nHandle_t handle;
    size_t shape[] = {4, 11};

    M2N(ncclM2nInit(&handle, NULL));
    tensor_open(&good, &simple, rank->rank);

    /* Placements. */
    other.source.places[0] = 1;
    tensor_open(&bad, &other, rank->rank);
    FAILS(reshard(rank, handle, rank->rank == 1 ? &bad : &good), ncclInvalidArgument,
          "ranks 0 and 1");
    tensor_close(&bad);

    /* A part of another size: it makes another tensor, which the other side does not have. */
    bad = good;
    if (rank->rank == 1)
        bad.sides[0].localShape = shape;
    FAILS(reshard(rank, handle, &bad), ncclInvalidArgument, "src");

    /* The other side's part, where the rank has none itself. */
    bad = good;
    if (rank->rank == 3)
        bad.sides[0].localShape = shape;
    FAILS(reshard(rank, handle, &bad), ncclInvalidArgument, "rank 3, outside");

    /* No memory. */
    bad = good;
    if (rank->rank == 2)
        bad.sides[1].dataPtr = NULL;
    FAILS(reshard(rank, handle, &bad), ncclInvalidArgument, "rank 2");

    /* Sides of different shapes, on all ranks alike. */
    third.shape[1] = 24;
    tensor_open(&worse, &third, rank->rank);
    bad = good;
    bad.sides[1] = worse.sides[1];
    FAILS(reshard(rank, handle, &bad), ncclInvalidArgument, "[8, 24]");
    tensor_close(&worse);

    /* More calls in the group of one rank. */
    M2N(ncclM2nGroupStart());
    M2N(reshard(rank, handle, &good));
    if (rank->rank == 0)
        M2N(reshard(rank, handle, &good));
    FAILS(ncclM2nGroupEnd(), ncclInvalidArgument, "calls");

    if (good.shards[1].held)
        device_expect(rank->stream, good.shards[1].data, good.shards[1].bytes, 0xa5);
    M2N(reshard(rank, handle, &good));
    tensor_check(&good, &simple);
    tensor_close(&good);
    M2N(ncclM2nFinalize(handle));
}

static void child_differs(void) {
    ranks_run(4, RANKS_AS_THREADS, rank_differs);
}

static void test_differs(void) {
    child_passes(child_differs, environment);
}

/* ---- ranks that do not come ---- */

static void rank_waits_in_vain(Rank *rank) {
    TensorOnRank tensor;
    ncclM2nHandle_t handle;
    gint64 start;

    M2N(ncclM2nInit(&handle, NULL));
    tensor_open(&tensor, &simple, rank->rank);
    M2N(reshard(rank, handle, &tensor));
    tensor_check(&tensor, &simple);
    start = g_get_monotonic_time();
    if (rank->rank != 3) {
        FAILS(reshard(rank, handle, &tensor), ncclSystemError, "not all ranks came");
        CHECK(g_get_monotonic_time() - start < 10 * G_USEC_PER_SEC);
        FAILS(reshard(rank, handle, &tensor), ncclSystemError, "finalize");
    }
    tensor_close(&tensor);
    M2N(ncclM2nFinalize(handle));
}

static void child_waits_in_vain(void) {
    ranks_run(4, RANKS_AS_THREADS, rank_waits_in_vain);
}

static void test_waits_in_vain(void) {
    const char *const short_time[] = {"REFIT_DOMAIN_SIZE=2", "REFIT_TIMEOUT_S=1", NULL};

    child_passes(child_waits_in_vain, short_time);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/m2n-calls/descriptors-say-more-than-they-could", test_wide);
    g_test_add_func("/m2n-calls/runs-repeat-with-other-weights-and-memory", test_repeats);
    g_test_add_func("/m2n-calls/a-plan-that-is-ready-needs-no-more-memory", test_reuses);
    g_test_add_func("/m2n-calls/plans-beyond-those-kept-are-made-anew", test_varies);
    g_test_add_func("/m2n-calls/what-the-stream-holds-comes-first", test_stream_order);
    g_test_add_func("/m2n-calls/communicators-need-not-block", test_does_not_block);
    g_test_add_func("/m2n-calls/groups-are-nested-forgotten-and-spoiled", test_groups);
    g_test_add_func("/m2n-calls/handles-are-known", test_handles);
    g_test_add_func("/m2n-calls/without-a-driver-there-is-no-handle", test_without_driver);
    g_test_add_func("/m2n-calls/descriptors-without-sense-are-refused", test_misuse);
    g_test_add_func("/m2n-calls/what-differs-between-ranks-is-refused-on-all", test_differs);
    g_test_add_func("/m2n-calls/a-rank-that-does-not-come-ends-the-wait", test_waits_in_vain);
    return g_test_run();
}
