/*
 * The rate of the pack kernel under two conditions. Beside a kernel that stays: a stream whose
 * second kernel waits for its first blocks all streams that share a hardware queue with it, so a
 * pack that is done only after the kernel that stays has been held by it. By width of accesses: the
 * same runs, at places that allow no wider one. Cost: for each number of blocks, eleven times the
 * time that the kernel stays.
 */

#include "validation/stack-pack.h"

#include "gpu/executor/refit-pack.h"
#include "validation/measure.h"
#include "validation/pack-check.h"
#include "validation/stack-resident.h"

enum { N_STREAMS = 12, STEP = 2, WIDEST = 16, DEFAULT_BLOCKS = 64, MAX_TIMES = 64 };

typedef struct {
    const StackPack *what;
    cudaStream_t streams[N_STREAMS];
    cudaEvent_t begin, end, resident_end;
    char *strided, *packed;
    void *sums;
    RefitStridedCopy *table; /* on the device */
    RefitStridedSpan span;
} Bench;

/* ---- set-up ---- */

static gboolean set_up(Bench *bench, GError **error) {
    const guint64 bytes = bench->what->bytes;

    for (guint i = 0; i < N_STREAMS; i++)
        if (!PACK_CHECK_CUDA(cudaStreamCreateWithFlags(&bench->streams[i], cudaStreamNonBlocking),
                             error))
            return FALSE;
    return PACK_CHECK_CUDA(cudaEventCreateWithFlags(&bench->begin, cudaEventDefault), error) &&
           PACK_CHECK_CUDA(cudaEventCreateWithFlags(&bench->end, cudaEventDefault), error) &&
           PACK_CHECK_CUDA(cudaEventCreateWithFlags(&bench->resident_end, cudaEventDisableTiming),
                           error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&bench->strided, STEP * bytes + WIDEST), error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&bench->packed, bytes), error) &&
           PACK_CHECK_CUDA(cudaMalloc(&bench->sums, (guint64)MAX(bench->what->resident_blocks, 1) *
                                                        STACK_RESIDENT_BYTES),
                           error) &&
           PACK_CHECK_CUDA(cudaMemset(bench->strided, 1, STEP * bytes + WIDEST), error) &&
           PACK_CHECK_CUDA(cudaDeviceSynchronize(), error);
}

static void tear_down(const Bench *bench) {
    void *const memory[] = {bench->strided, bench->packed, bench->sums, bench->table};
    const cudaEvent_t events[] = {bench->begin, bench->end, bench->resident_end};

    for (guint i = 0; i < N_STREAMS; i++)
        if (bench->streams[i] != NULL)
            cudaStreamDestroy(bench->streams[i]);
    for (guint i = 0; i < G_N_ELEMENTS(events); i++)
        if (events[i] != NULL)
            cudaEventDestroy(events[i]);
    for (guint i = 0; i < G_N_ELEMENTS(memory); i++)
        if (memory[i] != NULL)
            cudaFree(memory[i]);
}

/* Runs at twice their length, the first one `width` bytes behind a place that allows any access, so
 * that no access is wider. */
static gboolean make_table(Bench *bench, guint width, GError **error) {
    const guint64 extents[] = {bench->what->bytes / STACK_PACK_RUN, STACK_PACK_RUN};
    const gint64 strides[] = {STEP * STACK_PACK_RUN, 1};
    const RefitStridedShape shape = {2, extents, 1};
    const RefitStridedPlace place = {(guintptr)bench->strided + width % WIDEST, strides};
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    guint n;

    refit_strided_table_begin(table);
    if (!refit_strided_table_add_packed(table, &shape, &place, 0, error))
        return FALSE;
    bench->span = refit_strided_table_end(table);
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n);
    for (guint i = 0; i < n; i++)
        g_assert(1U << copies[i].width_log2 == width);
    if (bench->table != NULL)
        cudaFree(bench->table);
    bench->table = NULL;
    return PACK_CHECK_CUDA(cudaMalloc((void **)&bench->table, n * sizeof *copies), error) &&
           PACK_CHECK_CUDA(
               cudaMemcpy(bench->table, copies, n * sizeof *copies, cudaMemcpyHostToDevice),
               error) &&
           PACK_CHECK_CUDA(cudaDeviceSynchronize(), error);
}

/* ---- timing ---- */

static gboolean pack(const Bench *bench, guint blocks, cudaStream_t stream, double *rate_out,
                     GError **error) {
    float ms;

    if (!PACK_CHECK_CUDA(cudaEventRecord(bench->begin, stream), error) ||
        !PACK_CHECK_CUDA(
            refit_pack_launch(bench->table, &bench->span, bench->packed, blocks, stream), error) ||
        !PACK_CHECK_CUDA(cudaEventRecord(bench->end, stream), error) ||
        !PACK_CHECK_CUDA(cudaStreamSynchronize(stream), error) ||
        !PACK_CHECK_CUDA(cudaEventElapsedTime(&ms, bench->begin, bench->end), error))
        return FALSE;
    *rate_out = (double)bench->what->bytes / (MAX((double)ms, 1e-4) / 1e3);
    return TRUE;
}

/* On `stream`, while the other kernel stays. */
static gboolean pack_beside(const Bench *bench, guint blocks, cudaStream_t stream, double *rate_out,
                            gboolean *waited_out, GError **error) {
    const StackPack *what = bench->what;
    const cudaStream_t first = bench->streams[0];
    cudaError_t state;

    if (!PACK_CHECK_CUDA(
            stack_resident_launch(what->resident_blocks, what->resident_ns, bench->sums, first),
            error) ||
        !PACK_CHECK_CUDA(cudaEventRecord(bench->resident_end, first), error) ||
        !PACK_CHECK_CUDA(stack_resident_launch(1, 0, bench->sums, first), error) ||
        !pack(bench, blocks, stream, rate_out, error))
        return FALSE;
    state = cudaEventQuery(bench->resident_end);
    *waited_out = state == cudaSuccess;
    return (state == cudaErrorNotReady || pack_check_cuda(state, "cudaEventQuery", error)) &&
           PACK_CHECK_CUDA(cudaStreamSynchronize(first), error);
}

static void write_parameters(RefitJson *json, guint blocks, guint resident, guint width) {
    const char *connections = g_getenv("CUDA_DEVICE_MAX_CONNECTIONS");

    refit_json_uint(json, "kernel_blocks", blocks);
    refit_json_uint(json, "resident_blocks", resident);
    refit_json_uint(json, "access_bytes", width);
    refit_json_uint(json, "max_connections",
                    connections != NULL ? g_ascii_strtoull(connections, NULL, 10) : 8);
}

static gboolean beside_rows(const Bench *bench, guint blocks, gboolean beside, RefitJson *json,
                            GError **error) {
    const guint resident = beside ? bench->what->resident_blocks : 0;
    double rates[N_STREAMS - 1];
    guint n_waits = 0;

    for (guint i = 1; i < N_STREAMS; i++) {
        gboolean waited = FALSE;

        if (beside ? !pack_beside(bench, blocks, bench->streams[i], &rates[i - 1], &waited, error)
                   : !pack(bench, blocks, bench->streams[i], &rates[i - 1], error))
            return FALSE;
        n_waits += waited ? 1 : 0;
    }
    const MeasureSpread spread = measure_spread(rates, N_STREAMS - 1);
    measure_row_begin(json, "pack_rate");
    write_parameters(json, blocks, resident, WIDEST);
    measure_row_end(json, MEASURE_BYTES_PER_S, &spread);
    if (!beside)
        return TRUE;
    const double share = (double)n_waits / (N_STREAMS - 1);
    measure_row_begin(json, "pack_waits");
    write_parameters(json, blocks, resident, WIDEST);
    measure_row_end(json, MEASURE_SHARE, &(MeasureSpread){share, share, share, N_STREAMS - 1});
    return TRUE;
}

static gboolean all_beside(Bench *bench, RefitJson *json, GError **error) {
    static const guint blocks[] = {8, 16, 32, DEFAULT_BLOCKS};
    double warm_up;
    gboolean waited;

    if (!set_up(bench, error) || !make_table(bench, WIDEST, error) ||
        !pack_beside(bench, blocks[0], bench->streams[1], &warm_up, &waited, error))
        return FALSE;
    for (guint i = 0; i < G_N_ELEMENTS(blocks); i++)
        if (!beside_rows(bench, blocks[i], FALSE, json, error) ||
            !beside_rows(bench, blocks[i], TRUE, json, error))
            return FALSE;
    return TRUE;
}

static gboolean all_widths(Bench *bench, RefitJson *json, GError **error) {
    static const guint widths[] = {2, 8, WIDEST};
    const guint n_times = MIN(bench->what->n_times, MAX_TIMES);
    double rates[MAX_TIMES];

    if (!set_up(bench, error))
        return FALSE;
    for (guint w = 0; w < G_N_ELEMENTS(widths); w++) {
        if (!make_table(bench, widths[w], error) ||
            !pack(bench, DEFAULT_BLOCKS, bench->streams[0], &rates[0], error)) /* warm-up */
            return FALSE;
        for (guint i = 0; i < n_times; i++)
            if (!pack(bench, DEFAULT_BLOCKS, bench->streams[0], &rates[i], error))
                return FALSE;
        const MeasureSpread spread = measure_spread(rates, n_times);
        measure_row_begin(json, "pack_rate");
        write_parameters(json, DEFAULT_BLOCKS, 0, widths[w]);
        measure_row_end(json, MEASURE_BYTES_PER_S, &spread);
    }
    return TRUE;
}

gboolean stack_pack_beside(const StackPack *what, RefitJson *json, GError **error) {
    Bench bench = {.what = what};
    const gboolean well = all_beside(&bench, json, error);

    cudaDeviceSynchronize(); /* after a failure the other kernel may still stay */
    tear_down(&bench);
    return well;
}

gboolean stack_pack_width(const StackPack *what, RefitJson *json, GError **error) {
    Bench bench = {.what = what};
    const gboolean well = all_widths(&bench, json, error);

    tear_down(&bench);
    return well;
}
