/*
 * Capture of streams into graphs: only whether a stream is being captured, for code that refuses to
 * work on one. Nothing is recorded, and no graph comes out of it.
 */

#include "standin-private.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudaStream_t capturing[8];

static cudaStream_t *find(cudaStream_t stream) {
    for (guint i = 0; i < G_N_ELEMENTS(capturing); i++) {
        if (capturing[i] == stream) {
            return &capturing[i];
        }
    }
    return NULL;
}

/* Puts `with` in the place of `stream`. */
static cudaError_t replace(cudaStream_t stream, cudaStream_t with) {
    pthread_mutex_lock(&lock);
    cudaStream_t *place = find(stream);
    if (place != NULL) {
        *place = with;
    }
    pthread_mutex_unlock(&lock);
    return place != NULL ? cudaSuccess : standin_error(cudaErrorInvalidValue);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    STANDIN_ENTER(cudaStreamBeginCapture);
    (void)mode;
    if (standin_stream_error(stream) != NULL) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    return replace(NULL, stream);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph_out) {
    STANDIN_ENTER(cudaStreamEndCapture);
    *graph_out = NULL;
    return replace(stream, NULL);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status_out) {
    STANDIN_ENTER(cudaStreamIsCapturing);
    pthread_mutex_lock(&lock);
    *status_out = stream != NULL && find(stream) != NULL ? cudaStreamCaptureStatusActive
                                                         : cudaStreamCaptureStatusNone;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}
