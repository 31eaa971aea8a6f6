/*
 * The CUDA part of the CPU stand-in: order of streams and events, device memory that the host
 * cannot touch and whose misuse is refused, errors on request, a lost device, kernels that fail or
 * hang, the report of what was left.
 */

#include "standin-child.h"
#include "standin-private.h"

#include <string.h>

#define SIZE ((size_t)10000)
#define SEGMENTATION_FAULT (128 + 11)

static void nap(void *argument) {
    g_usleep((gulong)GPOINTER_TO_UINT(argument));
}

/* ---- order ---- */

static void body_stream_order(void) {
    cudaStream_t stream = stream_new();
    char *a = device_new(SIZE, 0);
    char *b = device_new(SIZE, 0);
    CUDA(cudaLaunchHostFunc(stream, nap, GUINT_TO_POINTER(20000)));
    CUDA(cudaMemsetAsync(a, 1, SIZE, stream));
    CUDA(cudaMemcpyAsync(b, a, SIZE, cudaMemcpyDeviceToDevice, stream));
    CUDA(cudaMemsetAsync(a, 2, SIZE, stream));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    device_expect(stream, b, SIZE, 1);
    device_expect(stream, a, SIZE, 2);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaStreamDestroy(stream));
}

static void test_stream_order(void) {
    child_passes(body_stream_order, NULL);
}

/* The event is recorded again, on a stream that is free, before the waiting stream gets there. */
static void body_event_order(void) {
    cudaStream_t slow = stream_new(), waiting = stream_new(), idle = stream_new();
    cudaEvent_t event;
    char *a = device_new(SIZE, 0);
    char *b = device_new(SIZE, 0);
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA(cudaLaunchHostFunc(slow, nap, GUINT_TO_POINTER(50000)));
    CUDA(cudaMemsetAsync(a, 7, SIZE, slow));
    CUDA(cudaEventRecord(event, slow));
    CUDA(cudaStreamWaitEvent(waiting, event, 0));
    CUDA(cudaMemcpyAsync(b, a, SIZE, cudaMemcpyDeviceToDevice, waiting));
    CUDA(cudaEventRecord(event, idle));
    CUDA(cudaEventSynchronize(event));
    device_expect(waiting, b, SIZE, 7);
    CUDA(cudaEventDestroy(event));
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaStreamDestroy(slow));
    CUDA(cudaStreamDestroy(waiting));
    CUDA(cudaStreamDestroy(idle));
}

static void test_event_order(void) {
    child_passes(body_event_order, NULL);
}

static void body_elapsed(void) {
    cudaStream_t stream = stream_new();
    cudaEvent_t begin, end;
    float ms = 0;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    CUDA(cudaEventRecord(begin, stream));
    CUDA(cudaLaunchHostFunc(stream, nap, GUINT_TO_POINTER(20000)));
    CUDA(cudaEventRecord(end, stream));
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady);
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    CHECK(ms >= 20.0f);
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    CUDA(cudaStreamDestroy(stream));
}

static void test_elapsed(void) {
    child_passes(body_elapsed, NULL);
}

static void body_unrecorded(void) {
    cudaStream_t stream = stream_new();
    cudaEvent_t event;
    CUDA(cudaEventCreate(&event));
    CUDA(cudaStreamWaitEvent(stream, event, 0));
}

static void test_unrecorded(void) {
    child_expect(body_unrecorded, NULL, STANDIN_EXIT_MISUSE, "never recorded");
}

static void body_null_stream(void) {
    char *a = device_new(SIZE, 0);
    CUDA(cudaMemsetAsync(a, 0, SIZE, NULL));
}

static void test_null_stream(void) {
    child_expect(body_null_stream, NULL, STANDIN_EXIT_MISUSE, "NULL stream");
}

static void body_blocking_stream(void) {
    cudaStream_t stream;
    char byte = 0;
    CUDA(cudaStreamCreate(&stream));
    char *a = device_new(1, 0);
    CUDA(cudaLaunchHostFunc(stream, nap, GUINT_TO_POINTER(30000)));
    CUDA(cudaMemsetAsync(a, 9, 1, stream));
    CUDA(cudaMemcpy(&byte, a, 1, cudaMemcpyDeviceToHost)); /* waits for blocking streams */
    CHECK(byte == 9);
    CUDA(cudaFree(a));
    CUDA(cudaStreamDestroy(stream));
}

static void test_blocking_stream(void) {
    child_passes(body_blocking_stream, NULL);
}

static void never(void *argument) {
    (void)argument;
    for (;;) {
        g_usleep(1000);
    }
}

static void body_stuck(void) {
    cudaStream_t stream = stream_new();
    CUDA(cudaLaunchHostFunc(stream, never, NULL));
    CUDA(cudaStreamSynchronize(stream));
}

static void test_stuck(void) {
    const char *const environment[] = {"REFIT_STANDIN_TIMEOUT_MS=200", NULL};
    child_expect(body_stuck, environment, STANDIN_EXIT_STUCK,
                 "device 0 stream 0: 1 operations left, now in host function");
}

/* ---- memory ---- */

static void body_host_access(void) {
    const char *a = device_new(SIZE, 1);
    CHECK(*(const volatile char *)a == 1);
}

static void test_host_access(void) {
    /* Sanitizers catch the signal and leave with a code of their own. */
#if defined(__SANITIZE_ADDRESS__)
    child_expect(body_host_access, NULL, 1, "SEGV");
#elif defined(__SANITIZE_THREAD__)
    child_expect(body_host_access, NULL, 66, "SEGV");
#else
    child_expect(body_host_access, NULL, SEGMENTATION_FAULT, NULL);
#endif
}

static void body_fresh(void) {
    unsigned char byte = 0;
    char *a;
    CUDA(cudaMalloc((void **)&a, SIZE));
    CHECK((guintptr)a % 256 == 0);
    CUDA(cudaMemcpy(&byte, a + SIZE - 1, 1, cudaMemcpyDeviceToHost));
    CHECK(byte == 0xCB);
    CUDA(cudaFree(a));
}

static void test_fresh(void) {
    child_passes(body_fresh, NULL);
}

static void body_past_end(void) {
    char *a = device_new(SIZE, 0);
    CUDA(cudaMemset(a + 1, 0, SIZE));
}

static void test_past_end(void) {
    child_expect(body_past_end, NULL, STANDIN_EXIT_MISUSE, "runs past the end");
}

static void body_freed(void) {
    char *a = device_new(SIZE, 0);
    CUDA(cudaFree(a));
    CHECK(cudaFree(a) == cudaErrorInvalidValue);
    CUDA(cudaMemset(a, 0, SIZE));
}

static void test_freed(void) {
    child_expect(body_freed, NULL, STANDIN_EXIT_MISUSE, "already freed");
}

static void body_host_pointer(void) {
    char host[16] = "";
    cudaStream_t stream = stream_new();
    CHECK(cudaMemcpyAsync(host, host, 8, cudaMemcpyDeviceToHost, stream) ==
          cudaErrorInvalidMemcpyDirection);
    CUDA(cudaMemset(host, 0, sizeof host));
}

static void test_host_pointer(void) {
    child_expect(body_host_pointer, NULL, STANDIN_EXIT_MISUSE, "host pointer");
}

static void body_attributes(void) {
    struct cudaPointerAttributes attributes;
    int host = 0;
    CUDA(cudaSetDevice(3));
    char *a = device_new(SIZE, 0);
    CUDA(cudaSetDevice(1));
    CUDA(cudaPointerGetAttributes(&attributes, a + SIZE - 1));
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 3);
    CUDA(cudaPointerGetAttributes(&attributes, &host));
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CUDA(cudaFree(a));
}

static void test_attributes(void) {
    child_passes(body_attributes, NULL);
}

static void body_capacity(void) {
    size_t left, total;
    char *a, *b;
    CUDA(cudaMalloc((void **)&a, 60000));
    CUDA(cudaMemGetInfo(&left, &total));
    CHECK(left == 40000 && total == 100000);
    CHECK(cudaMalloc((void **)&b, 50000) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    CUDA(cudaSetDevice(1));
    CUDA(cudaMalloc((void **)&b, 50000));
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
}

static void test_capacity(void) {
    const char *const environment[] = {"REFIT_STANDIN_MEMORY=100000", NULL};
    child_passes(body_capacity, environment);
}

/* ---- ends and faults ---- */

static void body_leak(void) {
    device_new(1000, 0);
    stream_new();
}

static void test_leak(void) {
    child_expect(body_leak, NULL, STANDIN_EXIT_MISUSE,
                 "left at exit: 1 device blocks (1000 bytes), 1 streams, 0 events");
}

static void body_fault(void) {
    char *a[3];
    CUDA(cudaSetDevice(2));
    CUDA(cudaMalloc((void **)&a[0], 1));
    CUDA(cudaSetDevice(1));
    CUDA(cudaMalloc((void **)&a[1], 1));
    CHECK(cudaMalloc((void **)&a[2], 1) == cudaErrorUnknown);
    CUDA(cudaMalloc((void **)&a[2], 1));
    CHECK(cudaMemset(a[0], 0, 1) == cudaSuccess);
    CHECK(cudaMemset(a[0], 0, 1) == cudaErrorUnknown);
    CHECK(cudaMemset(a[0], 0, 1) == cudaErrorUnknown);
    for (int i = 0; i < 3; i++) {
        CUDA(cudaFree(a[i]));
    }
}

static void test_fault(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=cudaMalloc:1:2,cudaMemset:*:2:errors",
                                       NULL};
    child_passes(body_fault, environment);
}

static void body_lost(void) {
    cudaStream_t stream = stream_new();
    CHECK(cudaStreamSynchronize(stream) == cudaErrorECCUncorrectable);
    CHECK(cudaStreamQuery(stream) == cudaErrorECCUncorrectable);
    CUDA(cudaGetLastError() == cudaErrorECCUncorrectable ? cudaSuccess : cudaErrorUnknown);
    CUDA(cudaRuntimeGetVersion(&(int){0}));
}

static void test_lost(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=cudaStreamSynchronize:0:1:lost",
                                       "REFIT_STANDIN_LEAKS=0", NULL};
    child_passes(body_lost, environment);
}

static void count_run(void *closure) {
    atomic_fetch_add((_Atomic int *)closure, 1);
}

static void forget(void *closure) {
    (void)closure;
}

static void launch(cudaStream_t stream, _Atomic int *n_runs) {
    CUDA(standin_launch(stream, "count", 1, count_run, forget, n_runs));
}

/* Of three kernels, the second fails. */
static void body_kernel_fails(void) {
    static _Atomic int n_runs;
    cudaStream_t stream = stream_new();
    for (int i = 0; i < 3; i++) {
        launch(stream, &n_runs);
    }
    while (cudaStreamQuery(stream) != cudaErrorECCUncorrectable) {
        g_usleep(100);
    }
    CHECK(cudaStreamSynchronize(stream) == cudaErrorECCUncorrectable);
    CHECK(n_runs == 1);
}

static void test_kernel_fails(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=count:0:2", "REFIT_STANDIN_FAULT_LOG=1",
                                       NULL};
    child_expect(body_kernel_fails, environment, 0, "stand-in: fault: count:0:2\n");
}

/* Of two kernels, the first hangs; another stream goes on. What the device holds is no leak. */
static void body_hang(void) {
    static _Atomic int n_runs, n_others;
    cudaStream_t stream = stream_new();
    cudaStream_t other = stream_new();
    device_new(1000, 0);
    launch(stream, &n_runs);
    launch(stream, &n_runs);
    CUDA(cudaLaunchHostFunc(other, count_run, &n_others));
    CUDA(cudaStreamSynchronize(other));
    while (!standin_device_hung(0)) {
        g_usleep(100);
    }
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(n_runs == 0 && n_others == 1);
}

static void test_hang(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=count:0:1:hang", NULL};
    child_passes(body_hang, environment);
}

static void test_bad_hang(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=cudaMalloc:0:1:hang", NULL};
    child_expect(body_leak, environment, STANDIN_EXIT_MISUSE, "only kernels hang");
}

static void body_bad_fault(void) {
    CUDA(cudaSetDevice(0));
}

static void test_bad_fault(void) {
    const char *const environment[] = {"REFIT_STANDIN_FAULT=cudaMalloc:1:2:explode", NULL};
    child_expect(body_bad_fault, environment, STANDIN_EXIT_MISUSE, "no action 'explode'");
}

static void body_no_driver(void) {
    int n, version;
    CHECK(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver);
    CUDA(cudaDriverGetVersion(&version));
    CHECK(version == 0);
    CHECK(strcmp(cudaGetErrorName(cudaErrorInsufficientDriver), "cudaErrorInsufficientDriver") ==
          0);
}

static void test_no_driver(void) {
    const char *const environment[] = {"REFIT_STANDIN_NO_DRIVER=1", NULL};
    child_passes(body_no_driver, environment);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cuda/a-stream-runs-its-work-in-order", test_stream_order);
    g_test_add_func("/cuda/a-wait-holds-the-record-of-its-time", test_event_order);
    g_test_add_func("/cuda/events-measure-time", test_elapsed);
    g_test_add_func("/cuda/a-wait-for-an-unrecorded-event-is-refused", test_unrecorded);
    g_test_add_func("/cuda/work-on-the-null-stream-is-refused", test_null_stream);
    g_test_add_func("/cuda/a-copy-on-the-null-stream-waits-for-blocking-streams",
                    test_blocking_stream);
    g_test_add_func("/cuda/work-that-never-ends-is-reported", test_stuck);
    g_test_add_func("/cuda/host-code-cannot-touch-device-memory", test_host_access);
    g_test_add_func("/cuda/fresh-memory-is-poisoned", test_fresh);
    g_test_add_func("/cuda/a-range-past-the-end-is-refused", test_past_end);
    g_test_add_func("/cuda/freed-memory-is-refused", test_freed);
    g_test_add_func("/cuda/host-memory-where-device-memory-belongs-is-refused", test_host_pointer);
    g_test_add_func("/cuda/pointers-know-their-device", test_attributes);
    g_test_add_func("/cuda/a-device-has-a-capacity", test_capacity);
    g_test_add_func("/cuda/what-is-left-at-exit-is-reported", test_leak);
    g_test_add_func("/cuda/a-planned-call-fails", test_fault);
    g_test_add_func("/cuda/a-lost-device-fails-all-calls", test_lost);
    g_test_add_func("/cuda/a-kernel-that-fails-loses-the-device", test_kernel_fails);
    g_test_add_func("/cuda/a-kernel-that-hangs-stops-its-stream", test_hang);
    g_test_add_func("/cuda/a-call-that-would-hang-is-refused", test_bad_hang);
    g_test_add_func("/cuda/a-wrong-plan-of-faults-is-refused", test_bad_fault);
    g_test_add_func("/cuda/no-driver-is-told-as-cuda-does", test_no_driver);
    return g_test_run();
}
