/*
 * Events. Each cudaEventRecord makes a record of its own, and a wait holds the record that was
 * current when it was queued: recording an event again adds no order that a GPU would not give.
 * Records stay until the process ends, in one list: counting their users, or reusing them, would
 * order streams that have nothing to do with each other. Cost: 32 bytes per record.
 */

#include "standin-private.h"

#include <stdlib.h>

enum { EVENT_MAGIC = 0xe7e27 };

typedef struct Record {
    struct Record *next;
    _Atomic uint32_t done;
    _Atomic gint64 time_us;
} Record;

struct CUevent_st {
    guint magic;
    int device;
    gboolean timed;
    Record *current; /* NULL: never recorded */
};

typedef struct {
    StandinOp op;
    Record *record;
} EventOp;

static _Atomic(Record *) records; /* keeps them reachable */
static _Atomic uint32_t n_events[STANDIN_MAX_DEVICES];

static Record *record_new(void) {
    Record *record = g_new0(Record, 1);
    record->next = atomic_load_explicit(&records, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&records, &record->next, record,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return record;
}

static gboolean is_event(cudaEvent_t event) {
    return event != NULL && event->magic == EVENT_MAGIC;
}

static cudaError_t event_new(cudaEvent_t *event_out, unsigned flags) {
    if (event_out == NULL ||
        (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
        return standin_error(cudaErrorInvalidValue);
    }
    cudaEvent_t event = g_new0(struct CUevent_st, 1);
    event->magic = EVENT_MAGIC;
    event->device = standin_device();
    event->timed = (flags & cudaEventDisableTiming) == 0;
    atomic_fetch_add_explicit(&n_events[event->device], 1, memory_order_relaxed);
    *event_out = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event_out) {
    STANDIN_ENTER(cudaEventCreate);
    return event_new(event_out, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_out, unsigned flags) {
    STANDIN_ENTER(cudaEventCreateWithFlags);
    return event_new(event_out, flags);
}

/* What is lost with its device costs no memory of the host. */
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const cudaError_t entered = standin_enter("cudaEventDestroy");
    if (entered != cudaSuccess && !standin_device_lost(standin_device())) {
        return standin_error(entered);
    }
    if (!is_event(event)) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    atomic_fetch_sub_explicit(&n_events[event->device], 1, memory_order_relaxed);
    event->magic = 0;
    g_free(event);
    return entered == cudaSuccess ? cudaSuccess : standin_error(entered);
}

static void run_record(StandinOp *op) {
    Record *record = ((EventOp *)op)->record;
    atomic_store_explicit(&record->time_us, g_get_monotonic_time(), memory_order_relaxed);
    atomic_store_explicit(&record->done, 1, memory_order_release);
    standin_wake(&record->done);
}

static void run_wait(StandinOp *op) {
    standin_wait(&((EventOp *)op)->record->done, 1, "cudaStreamWaitEvent");
}

static void enqueue(cudaStream_t stream, Record *record, void (*run)(StandinOp *),
                    const char *name) {
    EventOp *op = STANDIN_OP_NEW(EventOp, run, name);
    op->op.begins_late = run == run_wait;
    op->record = record;
    standin_enqueue(stream, &op->op);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    STANDIN_ENTER(cudaEventRecord);
    const char *why = standin_stream_error(stream);
    if (why != NULL) {
        standin_die("cudaEventRecord: %s", why);
    }
    if (!is_event(event) || event->device != standin_stream_device(stream)) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    event->current = record_new();
    enqueue(stream, event->current, run_record, "cudaEventRecord");
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    STANDIN_ENTER(cudaStreamWaitEvent);
    const char *why = standin_stream_error(stream);
    if (why != NULL) {
        standin_die("cudaStreamWaitEvent: %s", why);
    }
    if (!is_event(event) || flags != 0) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    if (event->current == NULL) {
        standin_die(
            "cudaStreamWaitEvent on an event that was never recorded: a GPU would not wait");
    }
    enqueue(stream, event->current, run_wait, "cudaStreamWaitEvent");
    return cudaSuccess;
}

void standin_stream_join(cudaStream_t waiting, cudaStream_t stream) {
    Record *record = record_new();
    enqueue(stream, record, run_record, "joining streams of a group");
    enqueue(waiting, record, run_wait, "joining streams of a group");
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    STANDIN_ENTER(cudaEventSynchronize);
    if (!is_event(event)) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    if (event->current != NULL) {
        standin_wait(&event->current->done, 1, "cudaEventSynchronize");
    }
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    STANDIN_ENTER(cudaEventQuery);
    if (!is_event(event)) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    if (event->current != NULL &&
        atomic_load_explicit(&event->current->done, memory_order_acquire) == 0) {
        standin_watch("cudaEventQuery");
        return cudaErrorNotReady;
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms_out, cudaEvent_t begin, cudaEvent_t end) {
    STANDIN_ENTER(cudaEventElapsedTime);
    if (!is_event(begin) || !is_event(end) || !begin->timed || !end->timed ||
        begin->current == NULL || end->current == NULL) {
        return standin_error(cudaErrorInvalidResourceHandle);
    }
    if (atomic_load_explicit(&begin->current->done, memory_order_acquire) == 0 ||
        atomic_load_explicit(&end->current->done, memory_order_acquire) == 0) {
        return cudaErrorNotReady;
    }
    const gint64 us = atomic_load_explicit(&end->current->time_us, memory_order_relaxed) -
                      atomic_load_explicit(&begin->current->time_us, memory_order_relaxed);
    *ms_out = (float)us / 1000.0f;
    return cudaSuccess;
}

guint standin_event_leaks(void) {
    guint n = 0;
    for (int device = 0; device < STANDIN_MAX_DEVICES; device++) {
        n += standin_device_lost(device) || standin_device_hung(device)
                 ? 0
                 : atomic_load(&n_events[device]);
    }
    return n;
}

unsigned standin_events_of(int device) {
    return atomic_load(&n_events[device]);
}
