/*
 * A stream is a thread that runs queued operations in order. The queue is linked, with one producer
 * side and one consumer: each link is stored with release and loaded with acquire, so an operation
 * happens after what its caller did before queueing it, and after nothing else. Streams are never
 * freed, so a stale handle is recognised. Cost: one thread and some 200 bytes each.
 */

#include "standin-private.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STREAM_MAGIC = 0x57e4a1 };

typedef enum { STREAM_LIVE, STREAM_ENDING, STREAM_DEAD } StreamState;

struct CUstream_st {
    guint magic;
    int device;
    uint32_t id;
    StandinQueue *queue;
    gboolean blocking; /* waits for and is waited for by the NULL stream */
    _Atomic int state;
    _Atomic(StandinOp *) tail; /* producers only */
    StandinOp *head;           /* the stream's thread only */
    StandinOp stub;
    _Atomic uint32_t n_queued, n_done;
    _Atomic(StandinOp *) running; /* for the report of a stuck process */
};

static _Atomic(cudaStream_t) streams[STANDIN_MAX_STREAMS];
static _Atomic uint32_t n_streams;

static void end_stream(StandinOp *op) {
    (void)op;
}

static StandinOp *next_op(cudaStream_t stream) {
    const struct timespec limit = {.tv_sec = 1};
    for (;;) {
        const uint32_t seen = atomic_load_explicit(&stream->n_queued, memory_order_relaxed);
        StandinOp *next = atomic_load_explicit(&stream->head->next, memory_order_acquire);
        if (next != NULL) {
            return next;
        }
        syscall(SYS_futex, &stream->n_queued, FUTEX_WAIT, seen, &limit, NULL, 0);
    }
}

void standin_op_begun(StandinOp *op) {
    if (!op->has_begun) {
        op->has_begun = TRUE;
        standin_queue_begun(op->stream->queue);
    }
}

static void run(StandinOp *op) {
    if (!op->has_begun) {
        standin_queue_wait(op->stream->queue, op->ticket);
    }
    if (!op->begins_late) {
        standin_op_begun(op);
    }
    op->run(op);
    standin_op_begun(op);
}

static void *work(void *argument) {
    cudaStream_t stream = argument;
    gboolean last = FALSE;

    standin_device_set(stream->device);
    while (!last) {
        StandinOp *op = next_op(stream);
        if (stream->head != &stream->stub) {
            g_free(stream->head);
        }
        stream->head = op;
        standin_jitter();
        standin_device_slow(stream->device);
        atomic_store_explicit(&stream->running, op, memory_order_relaxed);
        last = op->run == end_stream;
        run(op);
        atomic_store_explicit(&stream->running, NULL, memory_order_relaxed);
        standin_progress();
        atomic_fetch_add_explicit(&stream->n_done, 1, memory_order_release);
        standin_wake(&stream->n_done);
    }
    atomic_store_explicit(&stream->state, STREAM_DEAD, memory_order_relaxed);
    return NULL;
}

const char *standin_stream_error(cudaStream_t stream) {
    if ((uintptr_t)stream <= 2) {
        return "work on the NULL stream or a default stream: not modelled, create a stream";
    }
    if (stream->magic != STREAM_MAGIC) {
        return "not a stream";
    }
    return atomic_load_explicit(&stream->state, memory_order_relaxed) == STREAM_LIVE
               ? NULL
               : "stream was destroyed";
}

int standin_stream_device(cudaStream_t stream) {
    return stream->device;
}

void standin_enqueue(cudaStream_t stream, StandinOp *op) {
    op->stream = stream;
    atomic_store_explicit(&op->next, NULL, memory_order_relaxed);
    standin_queue_lock(stream->queue);
    if (!op->has_begun) {
        op->ticket = standin_queue_ticket(stream->queue);
    }
    StandinOp *before = atomic_exchange_explicit(&stream->tail, op, memory_order_acq_rel);
    standin_queue_unlock(stream->queue);
    standin_progress();
    atomic_store_explicit(&before->next, op, memory_order_release);
    atomic_fetch_add_explicit(&stream->n_queued, 1, memory_order_relaxed);
    standin_wake(&stream->n_queued);
}

static cudaError_t stream_new(cudaStream_t *stream_out, unsigned flags) {
    cudaStream_t stream;
    pthread_t thread;

    if (stream_out == NULL || flags > cudaStreamNonBlocking) {
        return standin_error(cudaErrorInvalidValue);
    }
    stream = g_new0(struct CUstream_st, 1);
    stream->magic = STREAM_MAGIC;
    stream->device = standin_device();
    stream->blocking = flags != cudaStreamNonBlocking;
    stream->head = &stream->stub;
    stream->tail = &stream->stub;
    stream->queue = standin_queue_of_next(stream->device);
    stream->id = atomic_fetch_add_explicit(&n_streams, 1, memory_order_relaxed);
    if (stream->id >= STANDIN_MAX_STREAMS) {
        standin_die("more than %d streams", STANDIN_MAX_STREAMS);
    }
    if (pthread_create(&thread, NULL, work, stream) != 0) {
        standin_die("no thread for a stream");
    }
    pthread_detach(thread);
    atomic_store_explicit(&streams[stream->id], stream, memory_order_release);
    *stream_out = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream_out) {
    STANDIN_ENTER(cudaStreamCreate);
    return stream_new(stream_out, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream_out, unsigned flags) {
    STANDIN_ENTER(cudaStreamCreateWithFlags);
    return stream_new(stream_out, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream_out, unsigned flags, int priority) {
    STANDIN_ENTER(cudaStreamCreateWithPriority);
    (void)priority; /* orders nothing */
    return stream_new(stream_out, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least_out, int *greatest_out) {
    STANDIN_ENTER(cudaDeviceGetStreamPriorityRange);
    *least_out = 0;
    *greatest_out = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device_out) {
    STANDIN_ENTER(cudaStreamGetDevice);
    if (standin_stream_error(stream) != NULL) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    *device_out = stream->device;
    return cudaSuccess;
}

/* Returns at once: what is queued still runs, as on a GPU. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    STANDIN_ENTER(cudaStreamDestroy);
    if (standin_stream_error(stream) != NULL) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    atomic_store_explicit(&stream->state, STREAM_ENDING, memory_order_relaxed);
    StandinOp *op = g_new0(StandinOp, 1);
    op->run = end_stream;
    op->has_begun = TRUE; /* it takes no place in the hardware queue */
    op->name = "end of the stream";
    standin_enqueue(stream, op);
    return cudaSuccess;
}

static void stream_wait(cudaStream_t stream, const char *who) {
    standin_wait(&stream->n_done, atomic_load_explicit(&stream->n_queued, memory_order_relaxed),
                 who);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    STANDIN_ENTER(cudaStreamSynchronize);
    if (standin_stream_error(stream) != NULL) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    stream_wait(stream, "cudaStreamSynchronize");
    return standin_device_lost(stream->device) ? standin_error(cudaErrorECCUncorrectable)
                                               : cudaSuccess;
}

/* Only a stream found idle orders the caller after its work. */
static cudaError_t query(cudaStream_t stream) {
    const uint32_t queued = atomic_load_explicit(&stream->n_queued, memory_order_relaxed);
    if ((int32_t)(atomic_load_explicit(&stream->n_done, memory_order_relaxed) - queued) < 0) {
        standin_watch("cudaStreamQuery");
        return cudaErrorNotReady;
    }
    (void)atomic_load_explicit(&stream->n_done, memory_order_acquire);
    return cudaSuccess;
}

/* The legacy default stream, which has no work of its own here: that of the streams it waits for.
 * The default stream of a thread waits for none. */
static cudaError_t default_query(int device) {
    const uint32_t n = atomic_load_explicit(&n_streams, memory_order_relaxed);
    cudaError_t result = cudaSuccess;
    for (uint32_t i = 0; i < MIN(n, STANDIN_MAX_STREAMS) && result == cudaSuccess; i++) {
        cudaStream_t stream = atomic_load_explicit(&streams[i], memory_order_acquire);
        if (stream != NULL && stream->device == device && stream->blocking) {
            result = query(stream);
        }
    }
    return result;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    STANDIN_ENTER(cudaStreamQuery);
    if (stream == NULL || stream == cudaStreamLegacy) {
        return default_query(standin_device());
    }
    if (stream == cudaStreamPerThread) {
        return cudaSuccess;
    }
    if (standin_stream_error(stream) != NULL) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    return query(stream);
}

static void wait_for_streams(int device, gboolean blocking_only, const char *who) {
    const uint32_t n = atomic_load_explicit(&n_streams, memory_order_relaxed);
    for (uint32_t i = 0; i < MIN(n, STANDIN_MAX_STREAMS); i++) {
        cudaStream_t stream = atomic_load_explicit(&streams[i], memory_order_acquire);
        if (stream != NULL && stream->device == device && (stream->blocking || !blocking_only)) {
            stream_wait(stream, who);
        }
    }
}

cudaError_t cudaDeviceSynchronize(void) {
    STANDIN_ENTER(cudaDeviceSynchronize);
    wait_for_streams(standin_device(), FALSE, "cudaDeviceSynchronize");
    return cudaSuccess;
}

void standin_blocking_streams_wait(int device) {
    wait_for_streams(device, TRUE, "a call that uses the NULL stream");
}

guint standin_stream_leaks(void) {
    guint n = 0;
    for (uint32_t i = 0; i < MIN(atomic_load(&n_streams), STANDIN_MAX_STREAMS); i++) {
        cudaStream_t stream = atomic_load(&streams[i]);
        n += stream != NULL && atomic_load(&stream->state) == STREAM_LIVE &&
             !standin_device_lost(stream->device) && !standin_device_hung(stream->device);
    }
    return n;
}

STANDIN_RACY void standin_streams_print(void) {
    const uint32_t n = atomic_load(&n_streams);
    for (uint32_t i = 0; i < MIN(n, STANDIN_MAX_STREAMS); i++) {
        cudaStream_t stream = atomic_load(&streams[i]);
        const uint32_t left =
            stream != NULL ? atomic_load(&stream->n_queued) - atomic_load(&stream->n_done) : 0;
        if (left == 0) {
            continue;
        }
        const StandinOp *op = atomic_load(&stream->running);
        char text[STANDIN_TEXT] = "";
        if (op != NULL && op->describe != NULL) {
            op->describe(op, text, sizeof text);
        }
        char queue[32] = "";
        if (op != NULL && !op->has_begun && !standin_queue_is_at(stream->queue, op->ticket)) {
            g_snprintf(queue, sizeof queue, "queue %u before ",
                       standin_queue_number(stream->queue));
        }
        fprintf(stderr, "  device %d stream %u: %u operations left, now in %s%s %s\n",
                stream->device, stream->id, left, queue, op != NULL ? op->name : "none", text);
    }
}
