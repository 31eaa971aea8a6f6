/*
 * The executor of the program `refit-loopback`: that of the project with the loop-back in the place
 * of NCCL, so that all ranks share one GPU, as threads. For checks only; whatever it prints says
 * so.
 */

#include "cli/cli-executor.h"

enum { ANY_NUMBER = 4096 };

/* Every rank is told that it has a GPU of its own. */
static RefitGpuRank *open_shared(const RefitGpuConfig *config, GError **error) {
    RefitGpuConfig shared = *config;

    shared.device = 0;
    /* cppcheck-suppress returnDanglingLifetime // a call, not a list of values */
    return refit_gpu.open(&shared, error);
}

static const RefitGpu *load(guint *n_devices_out, GError **error) {
    static RefitGpu gpu;
    static gsize made;

    if (g_once_init_enter(&made)) { /* before ranks start */
        gpu = refit_gpu;
        gpu.open = open_shared;
        g_once_init_leave(&made, 1);
    }
    if (!refit_gpu.probe(n_devices_out, error))
        return NULL;
    if (n_devices_out != NULL)
        *n_devices_out = ANY_NUMBER;
    return &gpu;
}

static gboolean always(void) {
    return TRUE;
}

const CliExecutor cli_executors[] = {
    {.name = "loopback", .note = REFIT_LOOPBACK_NOTE, .load = load, .wants_threads = always},
    {.name = NULL},
};
