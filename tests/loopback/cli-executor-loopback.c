/*
 * The executor of the program `refit-loopback`: that of the project with the loop-back in the place
 * of NCCL, so that all ranks share one GPU, as threads. For checks only; whatever it prints says
 * so.
 */

#include "cli/cli-executor.h"
#include "sim/refit-sim.h"

enum { ANY_NUMBER = 4096 };

/* Every rank is told that it has a GPU of its own, and is on the host that the case declares. */
static gpointer open_shared(const RefitExecutorConfig *config, GError **error) {
    RefitExecutorConfig executor = *config;
    RefitGpuConfig shared = *config->rank;
    char host[32], gpu[32];

    g_snprintf(host, sizeof host, "node%u", shared.nodes[shared.rank]);
    g_snprintf(gpu, sizeof gpu, "of rank %u", shared.rank);
    shared.host = host;
    shared.gpu = gpu;
    shared.device = 0;
    executor.rank = &shared;
    /* cppcheck-suppress returnDanglingLifetime // a call, which copies it */
    return refit_gpu.executor.open(&executor, error);
}

static guint any_number(void) {
    return ANY_NUMBER;
}

static const RefitGpu *load(GError **error) {
    static RefitGpu gpu;
    static gsize made;

    if (g_once_init_enter(&made)) { /* before ranks start */
        gpu = refit_gpu;
        gpu.executor.open = open_shared;
        gpu.n_devices = any_number;
        g_once_init_leave(&made, 1);
    }
    if (!refit_gpu.executor.probe(error))
        return NULL;
    return &gpu;
}

static gboolean always(void) {
    return TRUE;
}

const CliExecutor cli_executors[] = {
    {.name = "simgrid", .linked = &refit_executor_simgrid},
    {.name = "loopback", .note = REFIT_LOOPBACK_NOTE, .load = load, .wants_threads = always},
    {.name = NULL},
};
