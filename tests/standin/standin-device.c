/*
 * Devices and errors: the current device and the last error are the calling thread's.
 */

#include "standin-private.h"

#include <string.h>

static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;

#define ERROR_MAP(X)                                                                               \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInvalidPitchValue, "invalid pitch argument")                                        \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                        \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                            \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorNotReady, "device not ready")                                                       \
    X(cudaErrorUnknown, "unknown error")

int standin_device(void) {
    return current_device;
}

void standin_device_set(int device) {
    current_device = device;
}

cudaError_t standin_error(cudaError_t error) {
    last_error = error;
    return error;
}

cudaError_t standin_enter(const char *function) {
    if (standin_options()->no_driver) {
        return cudaErrorInsufficientDriver;
    }
    if (strcmp(function, "cudaGetDeviceCount") != 0) { /* which makes no context */
        standin_queues_open();
    }
    if (standin_fault(function, current_device)) {
        return standin_device_lost(current_device) ? cudaErrorECCUncorrectable : cudaErrorUnknown;
    }
    return standin_device_lost(current_device) ? cudaErrorECCUncorrectable : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n_out) {
    STANDIN_ENTER(cudaGetDeviceCount);
    *n_out = standin_options()->devices;
    return *n_out > 0 ? cudaSuccess : standin_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    STANDIN_ENTER(cudaSetDevice);
    if (device < 0 || device >= standin_options()->devices) {
        return standin_error(cudaErrorInvalidDevice);
    }
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device_out) {
    STANDIN_ENTER(cudaGetDevice);
    *device_out = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value_out, enum cudaDeviceAttr attribute, int device) {
    STANDIN_ENTER(cudaDeviceGetAttribute);
    if (device < 0 || device >= standin_options()->devices) {
        return standin_error(cudaErrorInvalidDevice);
    }
    switch ((int)attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value_out = (int)standin_options()->sms;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value_out = 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value_out = 0;
        return cudaSuccess;
    default:
        return standin_error(cudaErrorInvalidValue);
    }
}

cudaError_t cudaDriverGetVersion(int *version_out) {
    *version_out = standin_options()->no_driver ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version_out) {
    *version_out = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error) {
    switch ((int)error) {
#define X(name, text)                                                                              \
    case name:                                                                                     \
        return #name;
        ERROR_MAP(X)
#undef X
    default:
        return "unrecognized error code";
    }
}

const char *cudaGetErrorString(cudaError_t error) {
    switch ((int)error) {
#define X(name, text)                                                                              \
    case name:                                                                                     \
        return text;
        ERROR_MAP(X)
#undef X
    default:
        return "unrecognized error code";
    }
}
