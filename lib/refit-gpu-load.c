/*
 * Loading of the executor plugin.
 *
 * The problem: planning must work where neither CUDA nor NCCL is, so nothing may link them, and a
 * plugin of another build must not be called. Method: dlopen, one symbol, its ABI number; then
 * probe(), whose answer is kept as it sets the environment. Plugins are never unloaded: threads and
 * static texts of theirs may outlive any caller. Cost: once per plugin.
 */

#include "lib/refit-gpu-load.h"

#include <dlfcn.h>
#include <pthread.h>

typedef struct {
    char *path;
    const RefitGpu *gpu;
} Loaded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static GPtrArray *loaded; /* of Loaded, which never change */

static void fail_load(const char *path, const char *why, GError **error) {
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED,
                "%s: %s; install the executor of this version, or build with REFIT_GPU=ON", path,
                why);
}

static gboolean load(const char *path, Loaded *result, GError **error) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        fail_load(path, dlerror(), error);
        return FALSE;
    }
    result->gpu = dlsym(library, REFIT_GPU_SYMBOL);
    if (result->gpu == NULL || result->gpu->abi != REFIT_GPU_ABI) {
        fail_load(path, result->gpu == NULL ? "it is no executor" : "it is of another version",
                  error);
        return FALSE;
    }
    return result->gpu->executor.probe(error);
}

static const Loaded *find(const char *path, GError **error) {
    Loaded result = {NULL, NULL};

    if (loaded == NULL)
        loaded = g_ptr_array_new();
    for (guint i = 0; i < loaded->len; i++) {
        const Loaded *known = g_ptr_array_index(loaded, i);
        if (g_str_equal(known->path, path))
            return known;
    }
    if (!load(path, &result, error))
        return NULL;
    result.path = g_strdup(path);
    g_ptr_array_add(loaded, g_memdup2(&result, sizeof result));
    return g_ptr_array_index(loaded, loaded->len - 1);
}

const RefitGpu *refit_gpu_load(const char *path, GError **error) {
    pthread_mutex_lock(&lock);
    const Loaded *found = find(path != NULL ? path : REFIT_GPU_PLUGIN, error);
    pthread_mutex_unlock(&lock);

    return found != NULL ? found->gpu : NULL;
}
