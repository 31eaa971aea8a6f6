/*
 * Hardware queues: a device takes work from CUDA_DEVICE_MAX_CONNECTIONS queues (1 to 32, 8 where
 * not set), which the driver reads when it makes the first context. Streams take queues in turn. A
 * queue is strictly in order: its front operation holds up all behind it, also of other streams,
 * until it has begun; and it begins when what it waits for is there, the operation before it on its
 * stream, an event, room for a kernel. With more streams than queues that is a dependency that
 * nobody asked for.
 *
 * It must not hide one that is missing: no happens-before edge comes of it. Tickets are handed out
 * under a lock that ThreadSanitizer does not see, for the order of tickets must be that of the
 * stream. NCCL's own streams, which take queues too, are not modelled.
 */

#include "standin-private.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_QUEUES = 32, USUAL_QUEUES = 8 };

struct StandinQueue {
    _Atomic uint32_t n_submitted, n_begun;
    _Atomic bool locked;
};

static StandinQueue queues[STANDIN_MAX_DEVICES][MAX_QUEUES];
static _Atomic uint32_t n_streams[STANDIN_MAX_DEVICES];
static guint n_queues;

static void read_environment(void) {
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const long n = text != NULL ? strtol(text, NULL, 10) : 0;
    n_queues = n > 0 ? (guint)MIN(n, MAX_QUEUES) : USUAL_QUEUES;
}

void standin_queues_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
}

StandinQueue *standin_queue_of_next(int device) {
    standin_queues_open();
    return &queues[device][atomic_fetch_add_explicit(&n_streams[device], 1, memory_order_relaxed) %
                           n_queues];
}

guint standin_queue_number(const StandinQueue *queue) {
    return (guint)((queue - &queues[0][0]) % MAX_QUEUES);
}

STANDIN_RACY void standin_queue_lock(StandinQueue *queue) {
    while (atomic_exchange_explicit(&queue->locked, true, memory_order_acquire)) {
    }
}

STANDIN_RACY void standin_queue_unlock(StandinQueue *queue) {
    atomic_store_explicit(&queue->locked, false, memory_order_release);
}

uint32_t standin_queue_ticket(StandinQueue *queue) {
    return atomic_fetch_add_explicit(&queue->n_submitted, 1, memory_order_relaxed);
}

gboolean standin_queue_is_at(const StandinQueue *queue, uint32_t ticket) {
    return atomic_load_explicit(&queue->n_begun, memory_order_relaxed) == ticket;
}

void standin_queue_wait(StandinQueue *queue, uint32_t ticket) {
    standin_wait_unordered(&queue->n_begun, ticket, "a hardware queue");
}

void standin_queue_begun(StandinQueue *queue) {
    atomic_fetch_add_explicit(&queue->n_begun, 1, memory_order_relaxed);
    standin_wake(&queue->n_begun);
}
