/*
 * Hardware queues of the CPU stand-in: streams share them in turn, and the front of a queue holds
 * up what is behind it, of whichever stream. Each kernel here leaves a mark, and gates keep one
 * running.
 */

#include "standin-child.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { MAX_STREAMS = 40 };

static _Atomic bool open_gate;
static _Atomic int n_marks;

static void gate(void *closure) {
    (void)closure;
    while (!atomic_load(&open_gate)) {
        g_usleep(100);
    }
}

static void mark(void *closure) {
    (void)closure;
    atomic_fetch_add(&n_marks, 1);
}

static void forget(void *closure) {
    (void)closure;
}

static void launch(cudaStream_t stream, void (*run)(void *)) {
    CUDA(standin_launch(stream, run == gate ? "gate" : "mark", 1, run, forget, NULL));
}

static void settle(void) {
    atomic_store(&open_gate, true);
    CUDA(cudaDeviceSynchronize());
    atomic_store(&open_gate, false);
    atomic_store(&n_marks, 0);
}

/* How many of `n` streams go on while the first has a kernel behind one that does not end. */
static int count_free(int n) {
    cudaStream_t streams[MAX_STREAMS];
    int n_free = 0;
    for (int i = 0; i < n; i++) {
        streams[i] = stream_new();
    }
    launch(streams[0], gate);
    launch(streams[0], mark);
    for (int i = 1; i < n; i++) {
        launch(streams[i], mark);
    }
    g_usleep(100 * 1000);
    for (int i = 1; i < n; i++) {
        n_free += cudaStreamQuery(streams[i]) == cudaSuccess;
    }
    CHECK(atomic_load(&n_marks) == n_free);
    settle();
    for (int i = 0; i < n; i++) {
        CUDA(cudaStreamDestroy(streams[i]));
    }
    return n_free;
}

/* Streams 1 to 16 beside stream 0: one in `n` is in its queue. */
static void body_one(void) {
    CHECK(count_free(17) == 0);
}

static void body_two(void) {
    CHECK(count_free(17) == 8);
}

static void body_eight(void) {
    CHECK(count_free(8) == 7);
    CHECK(count_free(17) == 14); /* the 9th and the 17th wait */
}

static void body_32(void) {
    CHECK(count_free(32) == 31);
    CHECK(count_free(33) == 31);
}

static void test_shared(void) {
    const char *const one[] = {"CUDA_DEVICE_MAX_CONNECTIONS=1", NULL};
    const char *const two[] = {"CUDA_DEVICE_MAX_CONNECTIONS=2", NULL};
    const char *const most[] = {"CUDA_DEVICE_MAX_CONNECTIONS=32", NULL};
    const char *const more[] = {"CUDA_DEVICE_MAX_CONNECTIONS=1000", NULL};
    const char *const none[] = {"CUDA_DEVICE_MAX_CONNECTIONS=0", NULL};
    const char *const wrong[] = {"CUDA_DEVICE_MAX_CONNECTIONS=many", NULL};
    child_passes(body_one, one);
    child_passes(body_two, two);
    child_passes(body_eight, NULL);
    child_passes(body_eight, none);
    child_passes(body_eight, wrong);
    child_passes(body_32, most);
    child_passes(body_32, more);
}

/* Read when the first context is made; counting devices makes none. */
static void body_in_time(void) {
    int n;
    CUDA(cudaGetDeviceCount(&n));
    g_setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", TRUE);
    body_one();
}

static void body_late(void) {
    CUDA(cudaSetDevice(0));
    g_setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", TRUE);
    body_eight();
}

static void test_read_once(void) {
    child_passes(body_in_time, NULL);
    child_passes(body_late, NULL);
}

/* With one queue. A kernel that runs holds up nothing; a wait for an event that has not happened,
 * and what is behind a kernel that runs on its own stream, do. */
static void body_front(void) {
    cudaStream_t a = stream_new(), b = stream_new(), c = stream_new();
    cudaEvent_t event;
    CUDA(cudaEventCreate(&event));
    launch(a, gate);
    launch(b, mark);
    CUDA(cudaStreamSynchronize(b));
    settle();

    launch(a, gate);
    CUDA(cudaEventRecord(event, a)); /* waits for the gate, in front of all that follows */
    launch(b, mark);
    g_usleep(50 * 1000);
    CHECK(cudaStreamQuery(b) == cudaErrorNotReady && atomic_load(&n_marks) == 0);
    settle();

    launch(a, gate);
    CUDA(cudaEventRecord(event, a));
    CUDA(cudaStreamWaitEvent(b, event, 0));
    launch(c, mark);
    CUDA(cudaStreamDestroy(a)); /* takes no place in the queue */
    g_usleep(50 * 1000);
    CHECK(cudaStreamQuery(c) == cudaErrorNotReady && atomic_load(&n_marks) == 0);
    settle();
    CUDA(cudaStreamDestroy(b));
    CUDA(cudaStreamDestroy(c));
    CUDA(cudaEventDestroy(event));
}

/* The end of a stream that still works is not in a queue. */
static void body_ended(void) {
    cudaStream_t a = stream_new(), b = stream_new();
    launch(a, gate);
    CUDA(cudaStreamDestroy(a));
    launch(b, mark);
    CUDA(cudaStreamSynchronize(b));
    CHECK(atomic_load(&n_marks) == 1);
    settle();
    CUDA(cudaStreamDestroy(b));
}

/* Each device has queues of its own. */
static void body_devices(void) {
    cudaStream_t a = stream_new(), b;
    launch(a, gate);
    launch(a, mark);
    CUDA(cudaSetDevice(1));
    b = stream_new();
    launch(b, mark);
    CUDA(cudaStreamSynchronize(b));
    CUDA(cudaStreamDestroy(b));
    CUDA(cudaSetDevice(0));
    settle();
    CUDA(cudaStreamDestroy(a));
}

/* A kernel that finds no room is at the front, too. */
static void body_no_room(void) {
    cudaStream_t a = stream_new(), b = stream_new(), c = stream_new();
    char *bytes = device_new(8, 1);
    launch(a, gate);
    launch(b, mark); /* no slot left */
    CUDA(cudaMemsetAsync(bytes, 0, 8, c));
    g_usleep(50 * 1000);
    CHECK(cudaStreamQuery(b) == cudaErrorNotReady && cudaStreamQuery(c) == cudaErrorNotReady);
    settle();
    CUDA(cudaFree(bytes));
    CUDA(cudaStreamDestroy(a));
    CUDA(cudaStreamDestroy(b));
    CUDA(cudaStreamDestroy(c));
}

static void test_front(void) {
    const char *const one[] = {"CUDA_DEVICE_MAX_CONNECTIONS=1", NULL};
    const char *const no_room[] = {"CUDA_DEVICE_MAX_CONNECTIONS=1", "REFIT_STANDIN_SMS=1", NULL};
    child_passes(body_front, one);
    child_passes(body_ended, one);
    child_passes(body_devices, one);
    child_passes(body_no_room, no_room);
}

static void open_it(void *closure) {
    (void)closure;
    atomic_store(&open_gate, true);
}

/* What opens the gate is on a stream of its own, behind an operation that waits for the gate. */
static void body_stuck(void) {
    cudaStream_t a = stream_new(), b = stream_new();
    launch(a, gate);
    launch(a, mark);
    CUDA(cudaLaunchHostFunc(b, open_it, NULL));
    CUDA(cudaStreamSynchronize(a));
    CUDA(cudaStreamDestroy(a));
    CUDA(cudaStreamDestroy(b));
}

static void test_stuck(void) {
    const char *const one[] = {"CUDA_DEVICE_MAX_CONNECTIONS=1", "REFIT_STANDIN_TIMEOUT_MS=300",
                               NULL};
    child_passes(body_stuck, NULL);
    child_expect(body_stuck, one, STANDIN_EXIT_STUCK,
                 "device 0 stream 1: 1 operations left, now in queue 0 before host function");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/queue/streams-take-queues-in-turn", test_shared);
    g_test_add_func("/queue/how-many-is-read-once", test_read_once);
    g_test_add_func("/queue/the-front-holds-up-the-rest", test_front);
    g_test_add_func("/queue/a-false-dependency-can-hang", test_stuck);
    return g_test_run();
}
