/*
 * Bandwidth of the strided kernels. Each launch is timed by a pair of events on one stream, the
 * first launch of each kind is left out, and medians are kept with the extremes. Payload counts
 * once, although a copy reads and writes it, so a ratio of 1 to the contiguous copy is the best to
 * be had. Cost: the launches.
 */

#include "validation/pack-measure.h"

#include "gpu/executor/refit-pack.h"
#include "validation/measure.h"
#include "validation/pack-check.h"

enum { MAX_TIMES = 64, MAX_LIMITS = 8, DEFAULT_BLOCKS = 64, MANY_REGIONS = 1024, STEP = 2 };

typedef enum {
    COPY_PLAIN,
    COPY_PACK_2D,
    COPY_UNPACK_2D,
    KERNEL_PACK,
    KERNEL_UNPACK,
    KERNEL_COPY
} What;

/* Without packed side, KERNEL_COPY goes from one strided array to another. */
typedef struct {
    const PackMeasure *measure;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *strided, *other, *packed; /* 2, 2 and 1 times the bytes */
    RefitStridedCopy *table;        /* on the device */
    gint64 deadline_us;
    double copy_rate;
    /* of the figure in work */
    guint64 run;
    guint n_regions, blocks;
    RefitStridedSpan packing, copying;
} Bench;

static cudaError_t launch(const Bench *bench, What what) {
    const guint64 bytes = bench->measure->bytes, run = bench->run;

    switch (what) {
    case COPY_PACK_2D:
        return cudaMemcpy2DAsync(bench->packed, run, bench->strided, STEP * run, run, bytes / run,
                                 cudaMemcpyDeviceToDevice, bench->stream);
    case COPY_UNPACK_2D:
        return cudaMemcpy2DAsync(bench->strided, STEP * run, bench->packed, run, run, bytes / run,
                                 cudaMemcpyDeviceToDevice, bench->stream);
    case KERNEL_PACK:
        return refit_pack_launch(bench->table, &bench->packing, bench->packed, bench->blocks,
                                 bench->stream);
    case KERNEL_UNPACK:
        return refit_unpack_launch(bench->table, &bench->packing, bench->packed, bench->blocks,
                                   bench->stream);
    case KERNEL_COPY:
        return refit_copy_launch(bench->table, &bench->copying, bench->blocks, bench->stream);
    case COPY_PLAIN:
    default:
        return cudaMemcpyAsync(bench->packed, bench->strided, bytes, cudaMemcpyDeviceToDevice,
                               bench->stream);
    }
}

static gboolean time_once(const Bench *bench, What what, double *seconds_out, GError **error) {
    float ms;

    if (!PACK_CHECK_CUDA(cudaEventRecord(bench->begin, bench->stream), error) ||
        !pack_check_cuda(launch(bench, what), "a launch", error) ||
        !PACK_CHECK_CUDA(cudaEventRecord(bench->end, bench->stream), error) ||
        !PACK_CHECK_CUDA(cudaStreamSynchronize(bench->stream), error) ||
        !PACK_CHECK_CUDA(cudaEventElapsedTime(&ms, bench->begin, bench->end), error))
        return FALSE;
    *seconds_out = MAX((double)ms, 1e-4) / 1e3; /* an event's clock has steps */
    return TRUE;
}

static gboolean time_many(const Bench *bench, What what, MeasureSpread *times_out, GError **error) {
    double seconds[MAX_TIMES], first;
    guint n = MIN(bench->measure->n_times, MAX_TIMES);

    if (!time_once(bench, what, &first, error))
        return FALSE;
    if (first > 0.2) /* some copies of short runs are very slow */
        n = 1;
    for (guint i = 0; i < n; i++)
        if (!time_once(bench, what, &seconds[i], error))
            return FALSE;
    *times_out = measure_spread(seconds, n);
    return TRUE;
}

/* ---- tables ---- */

/* `n_regions` boxes of equal size, one below the other, packed first and then as copies. */
static gboolean make_table(Bench *bench, GError **error) {
    const guint64 n_rows = bench->measure->bytes / bench->run / bench->n_regions;
    const guint64 extents[] = {n_rows, bench->run};
    const gint64 strides[] = {(gint64)(STEP * bench->run), 1};
    const RefitStridedShape shape = {2, extents, 1};
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    guint n;

    for (guint kind = 0; kind < 2; kind++) {
        refit_strided_table_begin(table);
        for (guint64 i = 0; i < bench->n_regions; i++) {
            const guint64 offset = i * n_rows * STEP * bench->run;
            const RefitStridedPlace from = {(guintptr)bench->strided + offset, strides};
            const RefitStridedPlace to = {(guintptr)bench->other + offset, strides};
            gboolean added = kind == 0
                                 ? refit_strided_table_add_packed(table, &shape, &from,
                                                                  i * n_rows * bench->run, error)
                                 : refit_strided_table_add_copy(table, &shape, &from, &to, error);
            if (!added)
                return FALSE;
        }
        *(kind == 0 ? &bench->packing : &bench->copying) = refit_strided_table_end(table);
    }
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n);
    if (bench->table != NULL)
        cudaFree(bench->table);
    bench->table = NULL;
    return PACK_CHECK_CUDA(cudaMalloc((void **)&bench->table, n * sizeof *copies), error) &&
           PACK_CHECK_CUDA(cudaMemcpyAsync(bench->table, copies, n * sizeof *copies,
                                           cudaMemcpyHostToDevice, bench->stream),
                           error) &&
           PACK_CHECK_CUDA(cudaStreamSynchronize(bench->stream), error);
}

/* ---- figures ---- */

static void write_times(const Bench *bench, RefitJson *json, const MeasureSpread *times) {
    const double bytes = (double)bench->measure->bytes;

    refit_json_double(json, "median_s", times->median);
    refit_json_double(json, "least_s", times->least);
    refit_json_double(json, "most_s", times->most);
    refit_json_uint(json, "times", times->n);
    refit_json_double(json, "payload_bytes_per_s", bytes / times->median);
    if (bench->copy_rate > 0)
        refit_json_double(json, "ratio_to_copy", bytes / times->median / bench->copy_rate);
}

static gboolean measure_row(const Bench *bench, What what, const char *name, RefitJson *json,
                            GError **error) {
    MeasureSpread times;

    if (!time_many(bench, what, &times, error))
        return FALSE;
    refit_json_begin_object(json, NULL);
    refit_json_string(json, what >= KERNEL_PACK ? "kernel" : "like", name);
    refit_json_uint(json, "run_bytes", bench->run);
    if (what >= KERNEL_PACK) {
        refit_json_uint(json, "kernel_blocks", bench->blocks);
        refit_json_uint(json, "regions", bench->n_regions);
    }
    write_times(bench, json, &times);
    refit_json_end_object(json);
    return TRUE;
}

static gboolean measure_kernels(const Bench *bench, RefitJson *json, GError **error) {
    return measure_row(bench, KERNEL_PACK, "pack", json, error) &&
           measure_row(bench, KERNEL_UNPACK, "unpack", json, error) &&
           measure_row(bench, KERNEL_COPY, "copy", json, error);
}

static gboolean in_time(const Bench *bench, GError **error) {
    if (g_get_monotonic_time() < bench->deadline_us)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT, "not done within %g s",
                bench->measure->limit_s);
    return FALSE;
}

/* Ascending, none twice. Returns how many. */
static guint list_limits(guint *limits, GError **error) {
    int device, n_sms;
    guint n = 0;

    if (!PACK_CHECK_CUDA(cudaGetDevice(&device), error) ||
        !PACK_CHECK_CUDA(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device),
                         error))
        return 0;
    const guint wanted[] = {16, 32, DEFAULT_BLOCKS, (guint)n_sms, 2 * (guint)n_sms};
    for (guint i = 0; i < G_N_ELEMENTS(wanted); i++) {
        guint at = n;

        while (at > 0 && limits[at - 1] > wanted[i])
            at--;
        if (at > 0 && limits[at - 1] == wanted[i])
            continue;
        for (guint k = n++; k > at; k--)
            limits[k] = limits[k - 1];
        limits[at] = wanted[i];
    }
    return n;
}

static gboolean measure_all_kernels(Bench *bench, RefitJson *json, GError **error) {
    guint limits[MAX_LIMITS];
    const guint n_limits = list_limits(limits, error);

    if (n_limits == 0)
        return FALSE;
    for (guint64 run = bench->measure->shortest_run; run <= PACK_MEASURE_LONGEST_RUN; run *= 2) {
        bench->run = run;
        bench->n_regions = 1;
        if (!make_table(bench, error))
            return FALSE;
        for (guint i = 0; i < n_limits; i++) {
            bench->blocks = limits[i];
            if (!in_time(bench, error) || !measure_kernels(bench, json, error))
                return FALSE;
        }
        bench->n_regions = MANY_REGIONS;
        bench->blocks = DEFAULT_BLOCKS;
        if (bench->measure->bytes / run % MANY_REGIONS == 0 &&
            (!make_table(bench, error) || !measure_kernels(bench, json, error)))
            return FALSE;
    }
    return TRUE;
}

static gboolean measure_copies_2d(Bench *bench, RefitJson *json, GError **error) {
    for (guint64 run = PACK_MEASURE_LONGEST_RUN; run >= bench->measure->shortest_run; run /= 2) {
        bench->run = run;
        if (!in_time(bench, error) || !measure_row(bench, COPY_PACK_2D, "pack", json, error) ||
            !measure_row(bench, COPY_UNPACK_2D, "unpack", json, error))
            return FALSE;
    }
    return TRUE;
}

static gboolean measure_plain(Bench *bench, RefitJson *json, GError **error) {
    MeasureSpread times;

    if (!time_many(bench, COPY_PLAIN, &times, error))
        return FALSE;
    refit_json_begin_object(json, "copy");
    write_times(bench, json, &times);
    refit_json_end_object(json);
    bench->copy_rate = (double)bench->measure->bytes / times.median;
    return TRUE;
}

static gboolean set_up(Bench *bench, GError **error) {
    const guint64 bytes = bench->measure->bytes;

    return PACK_CHECK_CUDA(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking),
                           error) &&
           PACK_CHECK_CUDA(cudaEventCreateWithFlags(&bench->begin, cudaEventDefault), error) &&
           PACK_CHECK_CUDA(cudaEventCreateWithFlags(&bench->end, cudaEventDefault), error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&bench->strided, STEP * bytes), error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&bench->other, STEP * bytes), error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&bench->packed, bytes), error) &&
           PACK_CHECK_CUDA(cudaMemsetAsync(bench->strided, 1, STEP * bytes, bench->stream),
                           error) &&
           PACK_CHECK_CUDA(cudaMemsetAsync(bench->other, 2, STEP * bytes, bench->stream), error) &&
           PACK_CHECK_CUDA(cudaMemsetAsync(bench->packed, 3, bytes, bench->stream), error);
}

static void tear_down(const Bench *bench) {
    void *const memory[] = {bench->strided, bench->other, bench->packed, bench->table};

    for (guint i = 0; i < G_N_ELEMENTS(memory); i++)
        if (memory[i] != NULL)
            cudaFree(memory[i]);
    if (bench->begin != NULL)
        cudaEventDestroy(bench->begin);
    if (bench->end != NULL)
        cudaEventDestroy(bench->end);
    if (bench->stream != NULL)
        cudaStreamDestroy(bench->stream);
}

static gboolean measure_in(Bench *bench, RefitJson *json, GError **error) {
    gboolean well;

    if (!set_up(bench, error) || !measure_plain(bench, json, error))
        return FALSE;
    refit_json_begin_array(json, "rows");
    well = measure_all_kernels(bench, json, error);
    refit_json_end_array(json);
    refit_json_begin_array(json, "copies_2d");
    well = well && measure_copies_2d(bench, json, error);
    refit_json_end_array(json);
    return well;
}

gboolean pack_measure(const PackMeasure *measure, RefitJson *json, GError **error) {
    Bench bench = {.measure = measure,
                   .deadline_us =
                       g_get_monotonic_time() + (gint64)(measure->limit_s * G_USEC_PER_SEC)};
    gboolean well;

    g_return_val_if_fail(measure->bytes % PACK_MEASURE_LONGEST_RUN == 0 &&
                             measure->shortest_run >= PACK_MEASURE_SHORTEST_RUN &&
                             PACK_MEASURE_LONGEST_RUN % measure->shortest_run == 0,
                         FALSE);
    refit_json_uint(json, "payload_bytes", measure->bytes);
    well = measure_in(&bench, json, error);
    tear_down(&bench);
    return well;
}
