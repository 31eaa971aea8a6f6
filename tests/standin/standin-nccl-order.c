/*
 * The order in which kernels of a device's communicators start. NCCL keeps none, unless
 * NCCL_LAUNCH_ORDER_IMPLICIT is 1, which it reads at its first launch (enqueue.cc:1396-1417 of NCCL
 * 2.28.9): each kernel then starts after the one submitted before it on that device has started,
 * whatever their communicators (enqueue.cc:1505-1516, 1624-1628, 1733-1742).
 *
 * What keeps the order is not locked. Each launch notes its thread and looks at its end whether the
 * note is still its own; else host threads race, and NCCL says so although the kernel is on its way
 * (misc/strongstream.cc:159-172, 282). The same goes for two threads on one communicator, in order
 * or not. A group that does not block is launched by a thread of its own, at a time that its caller
 * does not know: here its launch lasts from its end to when its state is success, so that a second
 * one on the device within that time is found whenever it might have raced.
 */

#include "standin-nccl.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct {
    _Atomic uint32_t n_issued, n_started;
    _Atomic guint64 launched_by;
} Order;

static Order orders[STANDIN_MAX_DEVICES];
static gboolean is_implicit, is_fatal;

static gboolean is_on(const char *name, gboolean otherwise) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtol(text, NULL, 0) != 0 : otherwise;
}

static void read_environment(void) {
    is_implicit = is_on("NCCL_LAUNCH_ORDER_IMPLICIT", FALSE);
    is_fatal = is_on("NCCL_LAUNCH_RACE_FATAL", TRUE);
}

static gboolean keeps_order(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    return is_implicit;
}

guint64 standin_launcher_new(void) {
    static _Atomic guint64 n;
    return atomic_fetch_add_explicit(&n, 1, memory_order_relaxed) + 1;
}

guint64 standin_launcher(void) {
    static _Thread_local guint64 own;
    if (own == 0) {
        own = standin_launcher_new();
    }
    return own;
}

void standin_launch_begin(ncclComm_t comm, guint64 launcher) {
    atomic_store_explicit(&comm->launched_by, launcher, memory_order_relaxed);
    if (keeps_order()) {
        atomic_store_explicit(&orders[comm->device].launched_by, launcher, memory_order_relaxed);
    }
}

ncclResult_t standin_launch_end(ncclComm_t comm, guint64 launcher) {
    (void)standin_fault("launch", comm->device); /* where a pause makes it last */
    if ((atomic_load_explicit(&comm->launched_by, memory_order_relaxed) == launcher &&
         (!keeps_order() || atomic_load_explicit(&orders[comm->device].launched_by,
                                                 memory_order_relaxed) == launcher)) ||
        !is_fatal) {
        return ncclSuccess;
    }
    return standin_nccl_fail(comm, ncclInvalidUsage,
                             "Fatal: host threads racing to launch NCCL on same device.");
}

uint32_t standin_order_ticket(int device) {
    return atomic_fetch_add_explicit(&orders[device].n_issued, 1, memory_order_relaxed);
}

void standin_order_wait(int device, uint32_t ticket) {
    if (keeps_order()) {
        standin_wait_unordered(&orders[device].n_started, ticket,
                               "the device's group before (NCCL_LAUNCH_ORDER_IMPLICIT)");
    }
}

void standin_order_started(int device) {
    atomic_fetch_add_explicit(&orders[device].n_started, 1, memory_order_relaxed);
    standin_wake(&orders[device].n_started);
}
