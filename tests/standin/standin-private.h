#pragma once

/*
 * Inside of the stand-in.
 *
 * The rule that makes it worth having: each happens-before edge that it creates exists on a GPU too
 * (the order of a stream, an event's record before its waits, a message's send before its receive,
 * work done before a host call that waited for it), and it creates no other. So ThreadSanitizer
 * reports a missing cudaStreamWaitEvent as the data race that it is. Hence the relaxed counters,
 * queues whose links carry one edge per operation, and no locks, no shared reference counts and no
 * recycled records on any path between streams or ranks.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <glib.h>

#include "standin.h"

enum {
    STANDIN_MAX_DEVICES = 1024,
    STANDIN_MAX_STREAMS = 8192,
    STANDIN_PAGE = 4096,
    STANDIN_TEXT = 1024 /* bytes of a description */
};

/* Code that only reports on threads that are still running reads what they write. */
#define STANDIN_RACY __attribute__((no_sanitize("thread")))

/* ---- options: read from the environment at the first call, then fixed ---- */

typedef struct {
    int devices;
    int host_devices; /* that make one host, in order; 0: all of this process */
    guint channels;   /* NCCL's, for collectives; 0: those of an H100 node */
    gboolean no_driver;
    gboolean eager;        /* a small send may finish before its receive begins */
    gboolean serial;       /* a device runs one NCCL group at a time, in launch order */
    gboolean leaks;        /* leftovers at exit end the process with STANDIN_EXIT_MISUSE */
    gboolean tells_faults; /* on stderr, as they happen */
    gboolean tcp;          /* NCCL moves bytes through sockets, not through memory */
    guint sms;             /* slots of a device for CTAs */
    guint plan_ops;        /* send and receive pairs of a group that run together; 0: all */
    guint block_threads;
    guint64 jitter_us;
    guint64 timeout_ms;
    guint64 channel_rate; /* bytes per second; 0: any */
    guint64 ring;         /* bytes between two ranks */
    guint64 memory;       /* bytes of a device */
    guint64 span;         /* bytes of addresses, all devices together; never used twice */
} StandinOptions;

const StandinOptions *standin_options(void);

/* Sleeps for a random time up to jitter_us, now and then. */
void standin_jitter(void);

/* ---- faults ---- */

/* Counts this call of `function` for `device` and does what REFIT_STANDIN_FAULT plans for it. TRUE
 * when the call must fail. */
gboolean standin_fault(const char *function, int device);

/* The same when a stream of `device` comes to a kernel, which must not run when this is TRUE: as on
 * a GPU, the device is lost then. */
gboolean standin_kernel_fault(const char *name, int device);

/* What faults have done to a device so far. */
gboolean standin_device_lost(int device);
gboolean standin_device_stalled(int device);
gboolean standin_device_hung(int device);
void standin_device_slow(
    int device); /* sleeps as long as each operation of a slow device takes more */

/* ---- rates ---- */

/* Bytes per second that each launch of a kernel copies; 0: as fast as the host can. */
guint64 standin_kernel_rate(const char *name);

/* ---- reports ---- */

_Noreturn void standin_die(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* Something moved: the program is not stuck. */
void standin_progress(void);

/* Waits until *gate may differ from `seen`, for 20 ms at most; ends the process when nothing has
 * moved for too long. No happens-before edge. `who` is for the report. */
enum { STANDIN_SLEEP_NS = 20 * 1000 * 1000 };
void standin_sleep(_Atomic uint32_t *gate, uint32_t seen, const char *who);
void standin_sleep_at_most(_Atomic uint32_t *gate, uint32_t seen, gint64 ns, const char *who);
void standin_watch(const char *who); /* the check alone */
void standin_wake(_Atomic uint32_t *gate);

/* Waits until the rising counter *gate has reached `least`: acquire, or without any edge. */
void standin_wait(_Atomic uint32_t *gate, uint32_t least, const char *who);
void standin_wait_unordered(_Atomic uint32_t *gate, uint32_t least, const char *who);

/* What is still there at exit, but for what a device that is lost or hangs cannot give back, and
 * the work of all streams: each part reports its own. */
guint standin_memory_leaks(guint64 *bytes_out);
guint standin_stream_leaks(void);
guint standin_event_leaks(void);
guint standin_comm_leaks(void);
void standin_streams_print(void);
void standin_connects_print(void);
void standin_rooms_print(void);

/* ---- devices and errors ---- */

int standin_device(void); /* of the calling thread */
void standin_device_set(int device);
cudaError_t standin_error(cudaError_t error); /* remembers it for cudaGetLastError */

/* Opens a CUDA call: cudaSuccess when it may go on. */
cudaError_t standin_enter(const char *function);

#define STANDIN_ENTER(function)                                                                    \
    do {                                                                                           \
        const cudaError_t enter_error = standin_enter(#function);                                  \
        if (enter_error != cudaSuccess) {                                                          \
            return standin_error(enter_error);                                                     \
        }                                                                                          \
    } while (0)

/* ---- memory ---- */

gboolean standin_is_device(const void *address);

/* Counts bytes of a device as in use; FALSE when it has no more. */
gboolean standin_memory_take(int device, guint64 size);
void standin_memory_give(int device, guint64 size);

/* What other processes' ranks have taken of a device. */
guint64 standin_memory_of_others(int device);

/* Where the bytes are; host addresses are themselves. No check. */
void *standin_bytes(const void *address);

/* NULL when [address, address + size) lies in one live block, of `device` unless that is negative,
 * or, with host_ok, in host memory. Else why not. */
const char *standin_range_error(const void *address, guint64 size, int device, gboolean host_ok);

/* ---- room ---- */

/* Takes between `least` and `most` of a device's slots for CTAs, and waits for them unless *aborted
 * (may be NULL) becomes true or the device is lost: 0 then. */
guint standin_room_take(int device, guint least, guint most, const _Atomic bool *aborted,
                        const char *who);
void standin_room_give(int device, guint n);

/* ---- streams ---- */

/* A hardware queue of a device. */
typedef struct StandinQueue StandinQueue;

void standin_queues_open(void); /* reads how many; later calls do nothing */
StandinQueue *standin_queue_of_next(int device);
guint standin_queue_number(const StandinQueue *queue);

/* Around a ticket and what must come in the same order; no happens-before edge for the sanitizer.
 */
void standin_queue_lock(StandinQueue *queue);
void standin_queue_unlock(StandinQueue *queue);
uint32_t standin_queue_ticket(StandinQueue *queue);

/* Waits until all before the ticket have begun; says that the one at the front has. */
gboolean standin_queue_is_at(const StandinQueue *queue, uint32_t ticket);
void standin_queue_wait(StandinQueue *queue, uint32_t ticket);
void standin_queue_begun(StandinQueue *queue);

typedef struct StandinOp StandinOp;
struct StandinOp {
    _Atomic(StandinOp *) next;
    void (*run)(StandinOp *op);
    void (*describe)(const StandinOp *op, char *text, size_t size); /* may be NULL */
    const char *name;
    cudaStream_t stream;
    uint32_t ticket;      /* in the stream's hardware queue */
    gboolean begins_late; /* calls standin_op_begun by itself, or has begun when it ends */
    gboolean has_begun;
};

/* Appends `op`, which begins a g_malloc'd struct that the stream frees after it ran. */
void standin_enqueue(cudaStream_t stream, StandinOp *op);

/* An operation has begun: what is behind it in its hardware queue may, too. Once at least. */
void standin_op_begun(StandinOp *op);

/* NULL when `stream` may be given work, else why not. */
const char *standin_stream_error(cudaStream_t stream);
int standin_stream_device(cudaStream_t stream);
void standin_blocking_streams_wait(int device);

/* Makes `waiting` wait for what `stream` holds so far, as an event would. */
void standin_stream_join(cudaStream_t waiting, cudaStream_t stream);

/* A new operation of `type`, whose first member is the StandinOp `op`. */
#define STANDIN_OP_NEW(type, run_function, name_text)                                              \
    ({                                                                                             \
        type *new_op = g_new0(type, 1);                                                            \
        new_op->op.run = (run_function);                                                           \
        new_op->op.name = (name_text);                                                             \
        new_op;                                                                                    \
    })
