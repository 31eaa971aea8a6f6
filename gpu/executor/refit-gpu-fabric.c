/*
 * Which NVLink fabric a GPU belongs to. Hosts share NVLink (a rack with switches of its own) where
 * their GPUs have one cluster UUID and one clique, which the management library alone says. It
 * comes with the driver and is loaded when asked for; without it, or where it is too old to know,
 * nothing is known. Cost: loading a library, a few calls.
 */

#include "gpu/executor/refit-gpu-private.h"

#include <dlfcn.h>
#include <string.h>

/* Of nvml.h, which the CUDA Toolkit need not have: nvmlGpuFabricInfo_v2_t and what goes with it, as
 * NCCL 2.28.9 has them (include/nvmlwrap.h:195). */
typedef struct {
    unsigned int version;
    unsigned char cluster[REFIT_GPU_CLUSTER_BYTES];
    unsigned int status; /* counts in state FABRIC_COMPLETED */
    unsigned int clique;
    unsigned char state;
    unsigned int health;
} FabricInfo;

enum {
    NVML_SUCCESS = 0,
    NVML_NOT_SUPPORTED = 3,
    FABRIC_COMPLETED = 3,
    FABRIC_INFO_VERSION = sizeof(FabricInfo) | 2 << 24
};

typedef struct _Device *Device;
typedef struct {
    int (*init)(void);
    int (*shutdown)(void);
    int (*device_by_bus)(const char *bus_id, Device *device_out);
    int (*fabric_info)(Device device, FabricInfo *info);
} Library;

static gboolean load(Library *library, void **handle_out) {
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"nvmlInit_v2", &library->init},
        {"nvmlShutdown", &library->shutdown},
        {"nvmlDeviceGetHandleByPciBusId_v2", &library->device_by_bus},
        {"nvmlDeviceGetGpuFabricInfoV", &library->fabric_info},
    };

    *handle_out = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (guint i = 0; *handle_out != NULL && i < G_N_ELEMENTS(symbols); i++) {
        void *symbol = dlsym(*handle_out, symbols[i].name);

        if (symbol == NULL)
            return FALSE;
        memcpy(symbols[i].to, &symbol, sizeof symbol);
    }
    return *handle_out != NULL;
}

static RefitGpuFabric ask(const Library *library, const char *bus_id, FabricInfo *info) {
    static const unsigned char zeros[REFIT_GPU_CLUSTER_BYTES];
    Device device = NULL;
    int result;

    if (library->device_by_bus(bus_id, &device) != NVML_SUCCESS)
        return REFIT_GPU_FABRIC_UNKNOWN;
    result = library->fabric_info(device, info);
    if (result != NVML_SUCCESS)
        return result == NVML_NOT_SUPPORTED ? REFIT_GPU_FABRIC_NONE : REFIT_GPU_FABRIC_UNKNOWN;
    /* A GPU without neighbours on other hosts completes with an empty UUID. */
    return info->state == FABRIC_COMPLETED && info->status == NVML_SUCCESS &&
                   memcmp(info->cluster, zeros, sizeof zeros) != 0
               ? REFIT_GPU_FABRIC_KNOWN
               : REFIT_GPU_FABRIC_NONE;
}

void refit_gpu_fabric_find(RefitGpuPlace *place) {
    FabricInfo info = {.version = FABRIC_INFO_VERSION};
    void *handle = NULL;
    Library library;

    place->fabric = REFIT_GPU_FABRIC_UNKNOWN;
    if (load(&library, &handle) && library.init() == NVML_SUCCESS) {
        place->fabric = ask(&library, place->gpu, &info);
        library.shutdown();
    }
    if (place->fabric == REFIT_GPU_FABRIC_KNOWN) {
        memcpy(place->cluster, info.cluster, sizeof place->cluster);
        place->clique = info.clique;
    }
    if (handle != NULL)
        dlclose(handle);
}
