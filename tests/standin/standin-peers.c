/*
 * Where devices are: a PCI bus id for each, and which ones reach each other's memory, all unless
 * REFIT_STANDIN_NO_PEER names pairs that do not.
 */

#include "standin-private.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PAIRS 64

static struct { int a, b; } pairs[MAX_PAIRS];
static guint n_pairs;
static gboolean none; /* reaches any other */

static int device_number(const char *text, const char *whole) {
    guint64 value;

    if (!g_ascii_string_to_unsigned(text, 10, 0, STANDIN_MAX_DEVICES - 1, &value, NULL)) {
        standin_die("REFIT_STANDIN_NO_PEER: '%s' is not * or A-B,C-D,...", whole);
    }
    return (int)value;
}

static void read_pairs(void) {
    const char *text = getenv("REFIT_STANDIN_NO_PEER");
    g_auto(GStrv) parts = g_strsplit(text != NULL ? text : "", ",", -1);

    none = g_strcmp0(text, "*") == 0;
    for (guint i = 0; !none && parts[i] != NULL; i++) {
        g_auto(GStrv) ends = g_strsplit(parts[i], "-", 2);

        if (g_strv_length(ends) != 2 || n_pairs == MAX_PAIRS) {
            standin_die("REFIT_STANDIN_NO_PEER: '%s' is not * or A-B,C-D,...", text);
        }
        pairs[n_pairs].a = device_number(ends[0], text);
        pairs[n_pairs++].b = device_number(ends[1], text);
    }
}

static gboolean is_device(int device) {
    return device >= 0 && device < standin_options()->devices;
}

cudaError_t cudaDeviceCanAccessPeer(int *can_out, int device, int peer) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    STANDIN_ENTER(cudaDeviceCanAccessPeer);
    if (!is_device(device) || !is_device(peer)) {
        return standin_error(cudaErrorInvalidDevice);
    }
    pthread_once(&once, read_pairs);
    *can_out = device != peer && !none;
    for (guint i = 0; i < n_pairs; i++) {
        if ((pairs[i].a == device && pairs[i].b == peer) ||
            (pairs[i].b == device && pairs[i].a == peer)) {
            *can_out = 0;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
    STANDIN_ENTER(cudaDeviceGetPCIBusId);
    if (!is_device(device)) {
        return standin_error(cudaErrorInvalidDevice);
    }
    if (g_snprintf(text, (gulong)size, "%04X:%02X:00.0", (guint)device / 256,
                   (guint)device % 256) >= size) {
        return standin_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
