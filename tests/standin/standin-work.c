/*
 * Copies, fills, host functions and kernels: what is checked when they are queued, and what the
 * stream does when it reaches them. A copy from or to pageable host memory happens in stream order,
 * which is the latest moment at which CUDA may look at that memory.
 */

#include "standin-private.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define NS_PER_S G_GUINT64_CONSTANT(1000000000)

typedef struct {
    StandinOp op;
    char *to;
    const char *from; /* NULL: a fill */
    size_t to_pitch, from_pitch, width, height;
    int value;
} CopyOp;

typedef struct {
    StandinOp op;
    void (*run)(void *argument);
    void (*drop)(void *argument); /* of a kernel */
    void *argument;
    guint n_blocks;
} CallOp;

static void run_copy(StandinOp *op) {
    const CopyOp *copy = (const CopyOp *)op;
    for (size_t y = 0; y < copy->height; y++) {
        if (copy->from != NULL) {
            memcpy(copy->to + y * copy->to_pitch, copy->from + y * copy->from_pitch, copy->width);
        } else {
            memset(copy->to + y * copy->to_pitch, copy->value, copy->width);
        }
    }
}

STANDIN_RACY static void describe_copy(const StandinOp *op, char *text, size_t size) {
    const CopyOp *copy = (const CopyOp *)op;
    g_snprintf(text, size, "%zu x %zu bytes", copy->height, copy->width);
}

static void check_stream(const char *function, cudaStream_t stream) {
    const char *why = standin_stream_error(stream);
    if (why != NULL) {
        standin_die("%s: %s", function, why);
    }
}

static gboolean kind_fits(enum cudaMemcpyKind kind, const void *to, const void *from) {
    const gboolean to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const gboolean from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return kind == cudaMemcpyDefault ||
           (to_device == standin_is_device(to) && from_device == standin_is_device(from));
}

static void check_copy(const char *function, void *to, guint64 to_size, const void *from,
                       guint64 from_size) {
    const char *why = standin_range_error(from, from_size, -1, TRUE);
    if (why != NULL) {
        standin_die("%s from %p: %s", function, from, why);
    }
    why = standin_range_error(to, to_size, -1, TRUE);
    if (why != NULL) {
        standin_die("%s to %p: %s", function, to, why);
    }
}

static cudaError_t enqueue_copy(const char *function, CopyOp shape, void *to, const void *from,
                                enum cudaMemcpyKind kind, cudaStream_t stream) {
    check_stream(function, stream);
    if (shape.width == 0 || shape.height == 0) {
        return cudaSuccess;
    }
    if (shape.width > shape.to_pitch || shape.width > shape.from_pitch) {
        return standin_error(cudaErrorInvalidPitchValue);
    }
    if (!kind_fits(kind, to, from)) {
        return standin_error(cudaErrorInvalidMemcpyDirection);
    }
    check_copy(function, to, (shape.height - 1) * shape.to_pitch + shape.width, from,
               (shape.height - 1) * shape.from_pitch + shape.width);
    CopyOp *copy = g_new(CopyOp, 1);
    *copy = shape;
    copy->op = (StandinOp){.run = run_copy, .describe = describe_copy, .name = function};
    copy->to = standin_bytes(to);
    copy->from = standin_bytes(from);
    standin_enqueue(stream, &copy->op);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    STANDIN_ENTER(cudaMemcpy2DAsync);
    const CopyOp shape = {
        .to_pitch = to_pitch, .from_pitch = from_pitch, .width = width, .height = height};
    return enqueue_copy("cudaMemcpy2DAsync", shape, to, from, kind, stream);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    STANDIN_ENTER(cudaMemcpyAsync);
    const CopyOp shape = {.to_pitch = size, .from_pitch = size, .width = size, .height = 1};
    return enqueue_copy("cudaMemcpyAsync", shape, to, from, kind, stream);
}

/* Uses the NULL stream, so it waits for streams made without cudaStreamNonBlocking, and only those.
 */
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    STANDIN_ENTER(cudaMemcpy);
    if (!kind_fits(kind, to, from)) {
        return standin_error(cudaErrorInvalidMemcpyDirection);
    }
    check_copy("cudaMemcpy", to, size, from, size);
    standin_blocking_streams_wait(standin_device());
    if (size > 0) {
        memcpy(standin_bytes(to), standin_bytes(from), size);
    }
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t size) {
    STANDIN_ENTER(cudaMemset);
    const char *why = standin_range_error(to, size, -1, FALSE);
    if (why != NULL) {
        standin_die("cudaMemset of %p: %s", to, why);
    }
    standin_blocking_streams_wait(standin_device());
    if (size > 0) {
        memset(standin_bytes(to), value, size);
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
    STANDIN_ENTER(cudaMemsetAsync);
    check_stream("cudaMemsetAsync", stream);
    const char *why = standin_range_error(to, size, -1, FALSE);
    if (why != NULL) {
        standin_die("cudaMemsetAsync of %p: %s", to, why);
    }
    CopyOp *copy = STANDIN_OP_NEW(CopyOp, run_copy, "cudaMemsetAsync");
    copy->op.describe = describe_copy;
    copy->to = standin_bytes(to);
    copy->width = size;
    copy->height = 1;
    copy->value = value;
    standin_enqueue(stream, &copy->op);
    return cudaSuccess;
}

static void run_call(StandinOp *op) {
    const CallOp *call = (const CallOp *)op;
    call->run(call->argument);
}

static guint64 now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (guint64)now.tv_sec * NS_PER_S + (guint64)now.tv_nsec;
}

/* The end is a date, so that what the host needed for the copy itself does not add to it. */
static void sleep_until(guint64 end_ns) {
    const struct timespec end = {.tv_sec = (time_t)(end_ns / NS_PER_S),
                                 .tv_nsec = (long)(end_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
    }
}

__thread uint64_t standin_bytes_copied;

static void run_timed(const CallOp *call) {
    const guint64 rate = standin_kernel_rate(call->op.name);
    const guint64 begun_ns = now_ns();
    const guint64 before = standin_bytes_copied;
    call->run(call->argument);
    if (rate > 0) {
        const guint64 bytes = standin_bytes_copied - before;
        sleep_until(begun_ns + (guint64)((double)bytes * NS_PER_S / (double)rate));
    }
}

static void run_kernel(StandinOp *op) {
    const CallOp *call = (const CallOp *)op;
    const int device = standin_device();
    const guint held =
        standin_room_take(device, 1, call->n_blocks, NULL, "a kernel without room on its device");
    standin_op_begun(op);
    if (!standin_kernel_fault(op->name, device) && !standin_device_lost(device)) {
        run_timed(call);
    }
    standin_room_give(device, held);
    call->drop(call->argument);
}

static void enqueue_call(cudaStream_t stream, CallOp shape, const char *name,
                         void (*run)(StandinOp *)) {
    CallOp *call = STANDIN_OP_NEW(CallOp, run, name);
    call->run = shape.run;
    call->drop = shape.drop;
    call->argument = shape.argument;
    call->n_blocks = shape.n_blocks;
    call->op.begins_late = run == run_kernel;
    standin_enqueue(stream, &call->op);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
    STANDIN_ENTER(cudaLaunchHostFunc);
    check_stream("cudaLaunchHostFunc", stream);
    enqueue_call(stream, (CallOp){.run = function, .argument = argument}, "host function",
                 run_call);
    return cudaSuccess;
}

static cudaError_t launch_error(cudaStream_t stream, const char *name) {
    STANDIN_ENTER(cudaLaunchKernel);
    check_stream(name, stream);
    if (standin_stream_device(stream) != standin_device()) {
        standin_die("kernel %s launched on a stream of device %d while device %d is current", name,
                    standin_stream_device(stream), standin_device());
    }
    return cudaSuccess;
}

cudaError_t standin_launch(cudaStream_t stream, const char *name, unsigned n_blocks,
                           void (*run)(void *), void (*drop)(void *), void *closure) {
    const cudaError_t error = launch_error(stream, name);
    if (error != cudaSuccess) {
        drop(closure);
        return error;
    }
    const CallOp shape = {.run = run, .drop = drop, .argument = closure, .n_blocks = n_blocks};
    enqueue_call(stream, shape, name, run_kernel);
    return cudaSuccess;
}

unsigned standin_block_threads(void) {
    return standin_options()->block_threads;
}

int standin_work_device(void) {
    return standin_device();
}

void standin_work_for(int device) {
    standin_device_set(device);
}
