/*
 * How a measured value is written, and of what device. A row states its parameters, its unit in the
 * names of its keys, how often it was measured, and the spread, so that who reads it needs nothing
 * else. Cost: none.
 */

#include "validation/measure.h"

#include <stdio.h>
#include <stdlib.h>

#include "validation/pack-check.h"

static const struct {
    const char *unit, *least, *median, *most;
} units[] = {
    [MEASURE_SECONDS] = {"s", "least_s", "median_s", "most_s"},
    [MEASURE_BYTES] = {"bytes", "least_bytes", "median_bytes", "most_bytes"},
    [MEASURE_BYTES_PER_S] = {"bytes_per_s", "least_bytes_per_s", "median_bytes_per_s",
                             "most_bytes_per_s"},
    [MEASURE_SHARE] = {"share", "least_share", "median_share", "most_share"},
};

static int compare_doubles(gconstpointer a, gconstpointer b) {
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

MeasureSpread measure_spread(double *values, guint n) {
    g_assert(n > 0);
    qsort(values, n, sizeof *values, compare_doubles);
    return (MeasureSpread){values[0], (values[(n - 1) / 2] + values[n / 2]) / 2, values[n - 1], n};
}

void measure_row_begin(RefitJson *json, const char *what) {
    refit_json_begin_object(json, NULL);
    refit_json_string(json, "what", what);
    refit_json_begin_object(json, "parameters");
}

void measure_row_end(RefitJson *json, MeasureUnit unit, const MeasureSpread *spread) {
    refit_json_end_object(json);
    refit_json_string(json, "unit", units[unit].unit);
    refit_json_uint(json, "times", spread->n);
    refit_json_double(json, units[unit].least, spread->least);
    refit_json_double(json, units[unit].median, spread->median);
    refit_json_double(json, units[unit].most, spread->most);
    refit_json_end_object(json);
}

gboolean measure_find_device(const char *program) {
    int n = 0;
    cudaError_t result = cudaGetDeviceCount(&n);

    if (result == cudaSuccess && n > 0)
        result = cudaSetDevice(0);
    if (result == cudaSuccess && n > 0)
        return TRUE;
    fprintf(stderr, "%s: no GPU here: %s\n", program,
            result == cudaSuccess ? "there is none" : cudaGetErrorString(result));
    return FALSE;
}

gboolean measure_write_device(RefitJson *json, GError **error) {
    int n_sms, major, minor, driver, runtime;
    size_t free_bytes, total_bytes;

    if (!PACK_CHECK_CUDA(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, 0),
                         error) ||
        !PACK_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
                         error) ||
        !PACK_CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0),
                         error) ||
        !PACK_CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes), error) ||
        !PACK_CHECK_CUDA(cudaDriverGetVersion(&driver), error) ||
        !PACK_CHECK_CUDA(cudaRuntimeGetVersion(&runtime), error))
        return FALSE;
    refit_json_begin_object(json, "device");
    refit_json_uint(json, "multiprocessors", (guint64)n_sms);
    refit_json_uint(json, "compute_capability", 10 * (guint64)major + (guint64)minor);
    refit_json_uint(json, "memory_bytes", total_bytes);
    refit_json_uint(json, "free_bytes", free_bytes);
    refit_json_uint(json, "driver_cuda", (guint64)driver);
    refit_json_uint(json, "runtime_cuda", (guint64)runtime);
    refit_json_end_object(json);
    return TRUE;
}
