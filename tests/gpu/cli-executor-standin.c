/*
 * The executor of the program `refit-standin`: that of the project, on the CPU stand-in of the CUDA
 * runtime and NCCL. For tests only; whatever it prints says so. REFIT_STANDIN_RANKS=threads makes
 * ranks of --ranks threads instead of processes. REFIT_STANDIN_SPOIL=byte makes every download
 * return a wrong first byte, =count adds one to the bytes that each run has counted, =plan spoils
 * plans (see damage-plan.c): the program must notice all.
 *
 * All ranks are on one machine, whatever the case. So each is told that its host is the node that
 * the case declares for it, unless NCCL_HOSTID says where it is.
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

static gpointer open_on_node(const RefitExecutorConfig *config, GError **error) {
    RefitExecutorConfig executor = *config;
    RefitGpuConfig rank = *config->rank;
    char host[32];

    g_snprintf(host, sizeof host, "node%u", rank.nodes[rank.rank]);
    if (g_getenv("NCCL_HOSTID") == NULL)
        rank.host = host;
    executor.rank = &rank;
    /* cppcheck-suppress returnDanglingLifetime // a call, which copies it */
    return refit_gpu.executor.open(&executor, error);
}

/* The executor on that host, with `spoil` (NULL: none); ranks that are threads share it, so it is
 * made before they start. */
static const RefitGpu *altered(const char *spoil) {
    static RefitGpu gpu;
    static gsize made;

    if (g_once_init_enter(&made)) {
        gpu = refit_gpu;
        gpu.executor.open = open_on_node;
        if (g_strcmp0(spoil, "byte") == 0)
            gpu.memory_download = download_wrong;
        else if (g_strcmp0(spoil, "count") == 0)
            gpu.wait = count_wrong;
        g_once_init_leave(&made, 1);
    }
    return &gpu;
}

static const RefitGpu *load(GError **error) {
    const char *spoil = g_getenv("REFIT_STANDIN_SPOIL");

    if (!refit_gpu.executor.probe(error))
        return NULL;
    return altered(spoil);
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
