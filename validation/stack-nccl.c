/*
 * NCCL with one rank: whether kernels of two communicators pass each other, what a group costs the
 * host, and how fast channels copy. All is warmed up by a group before anything is timed, since the
 * first one loads kernels and sets channels up. Cost: the groups, and in stack_order() the waits.
 */

#include "validation/stack-nccl.h"

#include <time.h>

#include "validation/measure-nccl.h"
#include "validation/measure.h"
#include "validation/pack-check.h"

enum { SMALL_BYTES = 65536, SHIFT = 2, DRAIN_EVERY = 32, POLL_US = 100 };

typedef struct {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *from, *to;
    gboolean blocking;
} Lane;

static gboolean in_patience(gint64 begin_us, const char *what, GError **error) {
    if (g_get_monotonic_time() - begin_us < (gint64)STACK_PATIENCE_S * G_USEC_PER_SEC)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: not done within %d s", what,
                STACK_PATIENCE_S);
    return FALSE;
}

/* Until the communicator has nothing in progress on the host. */
static gboolean settle(const Lane *lane, GError **error) {
    const gint64 begin_us = g_get_monotonic_time();
    ncclResult_t state = ncclInProgress;

    while (MEASURE_NCCL(ncclCommGetAsyncError(lane->comm, &state), error) &&
           measure_nccl(state, "NCCL", error)) {
        if (state == ncclSuccess)
            return TRUE;
        if (!in_patience(begin_us, "NCCL", error))
            return FALSE;
        g_thread_yield();
    }
    return FALSE;
}

static gboolean group(const Lane *lane, guint64 bytes, guint shift, GError **error) {
    return MEASURE_NCCL(ncclGroupStart(), error) &&
           MEASURE_NCCL(ncclSend(lane->from + shift, bytes, ncclInt8, 0, lane->comm, lane->stream),
                        error) &&
           MEASURE_NCCL(ncclRecv(lane->to + shift, bytes, ncclInt8, 0, lane->comm, lane->stream),
                        error) &&
           MEASURE_NCCL(ncclGroupEnd(), error) && (lane->blocking || settle(lane, error));
}

static void close_lane(Lane *lane) {
    if (lane->comm != NULL)
        ncclCommAbort(lane->comm); /* nothing is in progress, and it never waits for a peer */
    if (lane->from != NULL)
        cudaFree(lane->from);
    if (lane->to != NULL)
        cudaFree(lane->to);
    if (lane->begin != NULL)
        cudaEventDestroy(lane->begin);
    if (lane->end != NULL)
        cudaEventDestroy(lane->end);
    if (lane->stream != NULL)
        cudaStreamDestroy(lane->stream);
    *lane = (Lane){0};
}

/* `channels` 0: as many as NCCL takes by itself. */
static gboolean open_lane(Lane *lane, gboolean blocking, int channels, guint64 bytes,
                          GError **error) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;

    lane->blocking = blocking;
    config.blocking = blocking;
    if (channels > 0)
        config.minCTAs = config.maxCTAs = channels;
    return MEASURE_NCCL(ncclGetUniqueId(&id), error) &&
           MEASURE_NCCL(ncclCommInitRankConfig(&lane->comm, 1, id, 0, &config), error) &&
           settle(lane, error) &&
           PACK_CHECK_CUDA(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking),
                           error) &&
           PACK_CHECK_CUDA(cudaEventCreateWithFlags(&lane->begin, cudaEventDefault), error) &&
           PACK_CHECK_CUDA(cudaEventCreateWithFlags(&lane->end, cudaEventDefault), error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&lane->from, bytes + SHIFT), error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&lane->to, bytes + SHIFT), error) &&
           PACK_CHECK_CUDA(cudaMemsetAsync(lane->from, 1, bytes + SHIFT, lane->stream), error) &&
           PACK_CHECK_CUDA(cudaMemsetAsync(lane->to, 2, bytes + SHIFT, lane->stream), error) &&
           group(lane, bytes, 0, error) &&
           PACK_CHECK_CUDA(cudaStreamSynchronize(lane->stream), error);
}

/* ---- order ---- */

typedef struct {
    gint open; /* atomic */
} Gate;

/* Of a stream. Ends by itself, should this program have failed meanwhile. */
static void CUDART_CB hold(void *data) {
    const gint64 begin_us = g_get_monotonic_time();
    Gate *gate = data;

    while (g_atomic_int_get(&gate->open) == 0 && in_patience(begin_us, "the gate", NULL))
        g_usleep(POLL_US);
}

static gboolean wait_for(cudaEvent_t event, double seconds, gboolean *done_out, GError **error) {
    const gint64 end_us = g_get_monotonic_time() + (gint64)(seconds * G_USEC_PER_SEC);
    cudaError_t state;

    while ((state = cudaEventQuery(event)) == cudaErrorNotReady && g_get_monotonic_time() < end_us)
        g_usleep(POLL_US);
    *done_out = state == cudaSuccess;
    return state == cudaErrorNotReady || pack_check_cuda(state, "cudaEventQuery", error);
}

static gboolean order_once(const Lane *a, const Lane *b, double wait_s, double *passed_out,
                           GError **error) {
    Gate gate = {0};
    gboolean passed = FALSE, well;

    well = PACK_CHECK_CUDA(cudaLaunchHostFunc(a->stream, hold, &gate), error) &&
           group(a, SMALL_BYTES, 0, error) && group(b, SMALL_BYTES, 0, error) &&
           PACK_CHECK_CUDA(cudaEventRecord(b->end, b->stream), error) &&
           wait_for(b->end, wait_s, &passed, error);
    g_atomic_int_set(&gate.open, 1);
    *passed_out = passed ? 1 : 0;
    /* Also after a failure: `gate` must outlive the host function. */
    return PACK_CHECK_CUDA(cudaStreamSynchronize(a->stream), well ? error : NULL) && well &&
           PACK_CHECK_CUDA(cudaStreamSynchronize(b->stream), error);
}

gboolean stack_order(guint n_times, double wait_s, RefitJson *json, GError **error) {
    const char *implicit = g_getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    g_autofree double *passed = g_new0(double, n_times);
    Lane a = {0}, b = {0};
    gboolean well =
        open_lane(&a, FALSE, 0, SMALL_BYTES, error) && open_lane(&b, FALSE, 0, SMALL_BYTES, error);

    for (guint i = 0; i < n_times && well; i++)
        well = order_once(&a, &b, wait_s, &passed[i], error);
    close_lane(&a);
    close_lane(&b);
    if (!well)
        return FALSE;
    guint n_passed = 0;
    for (guint i = 0; i < n_times; i++)
        n_passed += passed[i] > 0 ? 1 : 0;
    const double share = (double)n_passed / n_times;
    measure_row_begin(json, "passes_a_held_stream");
    refit_json_uint(json, "launch_order_implicit",
                    implicit != NULL ? g_ascii_strtoull(implicit, NULL, 10) : 0);
    measure_row_end(json, MEASURE_SHARE, &(MeasureSpread){share, share, share, n_times});
    return TRUE;
}

/* ---- cost of a group ---- */

/* Finer than GLib's, which counts microseconds. */
static double clock_s(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static gboolean group_rows(gboolean blocking, guint n_times, RefitJson *json, GError **error) {
    g_autofree double *seconds = g_new0(double, n_times);
    Lane lane = {0};
    gboolean well = open_lane(&lane, blocking, 0, SMALL_BYTES, error);

    for (guint i = 0; i < n_times && well; i++) {
        const double begin_s = clock_s();

        well = group(&lane, SMALL_BYTES, 0, error);
        seconds[i] = clock_s() - begin_s;
        if (well && i % DRAIN_EVERY == DRAIN_EVERY - 1) /* or a full queue would be what is timed */
            well = PACK_CHECK_CUDA(cudaStreamSynchronize(lane.stream), error);
    }
    well = well && PACK_CHECK_CUDA(cudaStreamSynchronize(lane.stream), error);
    close_lane(&lane);
    if (!well)
        return FALSE;
    const MeasureSpread spread = measure_spread(seconds, n_times);
    measure_row_begin(json, "group_host");
    refit_json_uint(json, "blocking", blocking ? 1 : 0);
    refit_json_uint(json, "messages", 1);
    measure_row_end(json, MEASURE_SECONDS, &spread);
    return TRUE;
}

gboolean stack_group(guint n_times, RefitJson *json, GError **error) {
    return group_rows(TRUE, n_times, json, error) && group_rows(FALSE, n_times, json, error);
}

/* ---- NCCL's copy ---- */

static gboolean copy_row(const Lane *lane, guint channels, guint shift, guint64 bytes,
                         guint n_times, RefitJson *json, GError **error) {
    g_autofree double *rates = g_new0(double, n_times);
    float ms;

    for (guint i = 0; i < n_times; i++) {
        if (!PACK_CHECK_CUDA(cudaEventRecord(lane->begin, lane->stream), error) ||
            !group(lane, bytes, shift, error) ||
            !PACK_CHECK_CUDA(cudaEventRecord(lane->end, lane->stream), error) ||
            !PACK_CHECK_CUDA(cudaStreamSynchronize(lane->stream), error) ||
            !PACK_CHECK_CUDA(cudaEventElapsedTime(&ms, lane->begin, lane->end), error))
            return FALSE;
        rates[i] = (double)bytes / (MAX((double)ms, 1e-4) / 1e3);
    }
    const MeasureSpread spread = measure_spread(rates, n_times);
    measure_row_begin(json, "self_copy");
    refit_json_uint(json, "channels", channels);
    refit_json_uint(json, "shift_bytes", shift);
    refit_json_uint(json, "message_bytes", bytes);
    measure_row_end(json, MEASURE_BYTES_PER_S, &spread);
    return TRUE;
}

gboolean stack_copy(guint64 bytes, guint n_times, RefitJson *json, GError **error) {
    static const guint channels[] = {1, 4, 16};

    for (guint i = 0; i < G_N_ELEMENTS(channels); i++) {
        Lane lane = {0};
        gboolean well = open_lane(&lane, FALSE, (int)channels[i], bytes, error) &&
                        copy_row(&lane, channels[i], 0, bytes, n_times, json, error) &&
                        copy_row(&lane, channels[i], SHIFT, bytes, n_times, json, error);

        close_lane(&lane);
        if (!well)
            return FALSE;
    }
    return TRUE;
}
