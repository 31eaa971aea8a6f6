/*
 * The executors of the program. The simulator is part of it. That for GPUs is a plugin, found
 * beside the program, in the library folder beside its own, or where this build installs it.
 */

#include "cli/cli-executor.h"

#include "lib/refit-gpu-load.h"
#include "sim/refit-sim.h"

static const RefitGpu *load_nccl(GError **error) {
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
    g_autofree char *folder = self != NULL ? g_path_get_dirname(self) : g_strdup(".");
    g_autofree char *beside = g_build_filename(folder, "refit-gpu.so", NULL);
    g_autofree char *installed =
        g_build_filename(folder, "..", REFIT_LIBDIR_NAME, "refit", "refit-gpu.so", NULL);
    const char *places[] = {beside, installed};

    for (guint i = 0; i < G_N_ELEMENTS(places); i++)
        if (g_file_test(places[i], G_FILE_TEST_EXISTS))
            return refit_gpu_load(places[i], error);
    return refit_gpu_load(NULL, error);
}

static gboolean never(void) {
    return FALSE;
}

const CliExecutor cli_executors[] = {
    {.name = "simgrid", .linked = &refit_executor_simgrid},
    {.name = "nccl", .load = load_nccl, .wants_threads = never},
    {.name = NULL},
};
