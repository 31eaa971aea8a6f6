/*
 * The executor of the program `refit-standin`: that of the project, on the CPU stand-in of the CUDA
 * runtime and NCCL. For tests only; whatever it prints says so. REFIT_STANDIN_RANKS=threads makes
 * ranks of --ranks threads instead of processes. REFIT_STANDIN_SPOIL=byte makes every download
 * return a wrong first byte, =count adds one to the bytes that each run has counted, =plan spoils
 * plans (see damage-plan.c): the program must notice all.
 */

#include "cli/cli-executor.h"
#include "sim/refit-sim.h"

static gboolean download_wrong(RefitGpuRank *rank, gpointer to, guint64 address, guint64 bytes,
                               GError **error) {
    if (!refit_gpu.memory_download(rank, to, address, bytes, error))
        return FALSE;
    if (bytes > 0)
        *(guint8 *)to ^= 1;
    return TRUE;
}

static gboolean count_wrong(RefitGpuRank *rank, RefitEventFunc func, gpointer user_data,
                            RefitGpuResult *result_out, GError **error) {
    if (!refit_gpu.wait(rank, func, user_data, result_out, error))
        return FALSE;
    result_out->out[REFIT_LINK_NETWORK]++;
    return TRUE;
}

/* The executor with `spoil`; ranks that are threads share it, so it is made before they start. */
static const RefitGpu *spoiled(const char *spoil) {
    static RefitGpu gpu;
    static gsize made;

    if (g_once_init_enter(&made)) {
        gpu = refit_gpu;
        if (g_str_equal(spoil, "byte"))
            gpu.memory_download = download_wrong;
        else
            gpu.wait = count_wrong;
        g_once_init_leave(&made, 1);
    }
    return &gpu;
}

static const RefitGpu *load(GError **error) {
    const char *spoil = g_getenv("REFIT_STANDIN_SPOIL");

    if (!refit_gpu.executor.probe(error))
        return NULL;
    return spoil != NULL && !g_str_equal(spoil, "plan") ? spoiled(spoil) : &refit_gpu;
}

static gboolean wants_threads(void) {
    return g_strcmp0(g_getenv("REFIT_STANDIN_RANKS"), "threads") == 0;
}

const CliExecutor cli_executors[] = {
    {.name = "simgrid", .linked = &refit_executor_simgrid},
    {.name = "standin",
     .note = "stand-in, not a GPU",
     .load = load,
     .wants_threads = wants_threads},
    {.name = NULL},
};
