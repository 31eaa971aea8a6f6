/*
 * A stand-in of the driver's management library, under its name: which NVLink fabric the devices of
 * the stand-in belong to. REFIT_STANDIN_FABRIC is A-B=CLUSTER:CLIQUE for devices A to B, several
 * with commas; a CLUSTER of 0 is none that spans hosts. Devices that it does not name have no
 * fabric; with "mute" the library does not know, as one that is too old.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, MISMATCH = 25 };
enum { COMPLETED = 3, CLUSTER_BYTES = 16 };

typedef struct {
    unsigned int version;
    unsigned char cluster[CLUSTER_BYTES];
    unsigned int status, clique;
    unsigned char state;
    unsigned int health;
} FabricInfo;

int nvmlInit_v2(void);
int nvmlInit_v2(void) {
    return SUCCESS;
}

int nvmlShutdown(void);
int nvmlShutdown(void) {
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device_out);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device_out) {
    static char devices[65536];
    unsigned int domain, bus;

    if (sscanf(bus_id, "%x:%x:00.0", &domain, &bus) != 2 || domain > 255 || bus > 255)
        return NOT_FOUND;
    *device_out = &devices[domain * 256 + bus];
    return SUCCESS;
}

static int number_of(const void *device) {
    void *first = NULL;

    (void)nvmlDeviceGetHandleByPciBusId_v2("0:0:00.0", &first);
    return (int)((const char *)device - (const char *)first);
}

int nvmlDeviceGetGpuFabricInfoV(void *device, FabricInfo *info);
int nvmlDeviceGetGpuFabricInfoV(void *device, FabricInfo *info) {
    const char *text = getenv("REFIT_STANDIN_FABRIC");
    const int number = number_of(device);

    if (info->version != (sizeof *info | 2u << 24))
        return MISMATCH;
    if (text != NULL && strcmp(text, "mute") == 0)
        return MISMATCH;
    for (; text != NULL && *text != '\0'; text += strcspn(text, ","), text += *text == ',') {
        unsigned int first, last, cluster, clique;

        if (sscanf(text, "%u-%u=%u:%u", &first, &last, &cluster, &clique) != 4)
            return INVALID_ARGUMENT;
        if (number < (int)first || number > (int)last)
            continue;
        memset(info->cluster, 0, sizeof info->cluster);
        info->cluster[CLUSTER_BYTES - 1] = (unsigned char)cluster;
        info->clique = clique;
        info->state = COMPLETED;
        info->status = SUCCESS;
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}
