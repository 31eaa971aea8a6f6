/*
 * Connections: made when two ranks first exchange a message in one direction on a communicator,
 * kept until that ends. The host meets the peer's for it: a group reaches its stream only when all
 * peers of its new connections have come to a group that needs them too. That costs device memory,
 * counted but not held, by NCCL 2.28.9's rules:
 *
 * - on one node, per peer and channel, 10 MiB to receive and 2 MiB to send (transport/p2p.cc:
 *   377-380, 446-448: 4 KiB and, to receive, buffers of 512 KiB, 4,800 KiB and 4 MiB, in units of
 *   2 MiB), for all channels of a pair at once (enqueue.cc:2418-2446);
 * - between nodes a pool of 16 steps per channel (transport/net.cc:628, 647), one for all that a
 *   rank receives, and one for what it sends on the device of each rank whose NIC it uses: by PXN
 *   that of the receiver's rail (graph/search.cc:1302-1343), its own where its host has none.
 *
 * Collectives take none here, and their peers meet on the streams.
 *
 * Memory on a device of another process is told to that through the link, where that has room for
 * it; nobody is refused for it. What failed stays taken until the communicator ends.
 */

#include "standin-nccl.h"

#include <stdio.h>

enum {
    OPENED = 1,      /* this rank has told the peer */
    PAID = 2,        /* memory was taken, if there was any */
    AWAITED = 4,     /* the host waits, or has waited, for the peer to tell this rank */
    FOR_RECEIVE = 3, /* shift of the same flags for the other direction */
    MAX_WAITING = 4096,
    SHARED_STEPS = 16
};

#define MIB (G_GUINT64_CONSTANT(1) << 20)
#define NEAR_RECEIVE (10 * MIB)
#define NEAR_SEND (2 * MIB)

typedef struct {
    int peer;
    gboolean is_send;
} Opening;

static _Atomic guint64 connection_bytes[STANDIN_MAX_DEVICES];

/* For the report of a stuck process. */
static _Atomic(ncclComm_t) waiting[MAX_WAITING];

/* Communicators with ranks of other processes: those may take memory of this one's devices. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t shared_first;
static _Atomic uint32_t n_shared;

/* ---- memory ---- */

static ncclResult_t out_of_memory(ncclComm_t comm) {
    return standin_nccl_fail(comm, ncclUnhandledCudaError, "Cuda failure 2 'out of memory'");
}

static gboolean take(int device, guint64 size) {
    if (!standin_memory_take(device, size)) {
        return FALSE;
    }
    atomic_fetch_add_explicit(&connection_bytes[device], size, memory_order_relaxed);
    return TRUE;
}

static void give(int device, guint64 size) {
    atomic_fetch_sub_explicit(&connection_bytes[device], size, memory_order_relaxed);
    standin_memory_give(device, size);
}

static gboolean take_own(ncclComm_t comm, guint64 size) {
    if (!take(comm->device, size)) {
        return FALSE;
    }
    comm->connections.bytes += size;
    return TRUE;
}

static guint64 pool_size(const ncclComm_t comm) {
    const guint64 size = (guint64)comm->layout.n_channels * SHARED_STEPS * comm->layout.chunk;
    return (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

/* The rank whose NIC carries what this rank sends to `peer`. */
static int proxy_of(const ncclComm_t comm, int peer) {
    const StandinMember *me = &comm->members[comm->rank];
    for (int i = 0; i < comm->n && standin_nccl_params()->pxn_disable == 0; i++) {
        if (comm->members[i].host == me->host &&
            comm->layout.node[i] == comm->layout.node[comm->rank] &&
            comm->members[i].rail == comm->members[peer].rail) {
            return i;
        }
    }
    return comm->rank;
}

static gboolean in_this_process(const ncclComm_t comm, int rank) {
    return comm->members[rank].process == comm->members[comm->rank].process;
}

/* Where a rank of another process reads what others have taken of its device; NULL where the link
 * has no such place. */
static _Atomic uint64_t *told_to(const ncclComm_t comm, int rank) {
    return comm->transport->pool != NULL ? comm->transport->pool(comm->link, rank) : NULL;
}

static gboolean take_send_pool(ncclComm_t comm, int proxy) {
    StandinConnections *connections = &comm->connections;
    const guint64 size = pool_size(comm);
    if (connections->has_pool[proxy]) {
        return TRUE;
    }
    if (proxy == comm->rank) {
        if (!take_own(comm, size)) {
            return FALSE;
        }
    } else if (in_this_process(comm, proxy)) {
        if (!take(comm->members[proxy].device, size)) {
            return FALSE;
        }
    } else if (told_to(comm, proxy) != NULL) {
        atomic_fetch_add_explicit(told_to(comm, proxy), size, memory_order_relaxed);
    }
    connections->has_pool[proxy] = TRUE;
    return TRUE;
}

static gboolean pay(ncclComm_t comm, int peer, gboolean is_send) {
    StandinConnections *connections = &comm->connections;
    if (standin_is_near(comm, peer)) {
        return take_own(comm, comm->layout.per_peer * (is_send ? NEAR_SEND : NEAR_RECEIVE));
    }
    if (is_send) {
        return take_send_pool(comm, proxy_of(comm, peer));
    }
    if (!connections->can_receive && !take_own(comm, pool_size(comm))) {
        return FALSE;
    }
    connections->can_receive = TRUE;
    return TRUE;
}

static void give_all(ncclComm_t comm) {
    const StandinConnections *connections = &comm->connections;
    give(comm->device, connections->bytes);
    for (int i = 0; i < comm->n; i++) {
        if (!connections->has_pool[i] || i == comm->rank) {
            continue;
        }
        if (in_this_process(comm, i)) {
            give(comm->members[i].device, pool_size(comm));
        } else if (told_to(comm, i) != NULL) {
            atomic_fetch_sub_explicit(told_to(comm, i), pool_size(comm), memory_order_relaxed);
        }
    }
}

/* ---- what other processes take of a device ---- */

static void join_shared(ncclComm_t comm) {
    for (int i = 0; i < comm->n; i++) {
        comm->connections.is_shared |= !in_this_process(comm, i);
    }
    comm->connections.is_shared &= comm->transport->pool != NULL;
    if (comm->connections.is_shared) {
        pthread_mutex_lock(&lock);
        comm->connections.next = shared_first;
        shared_first = comm;
        pthread_mutex_unlock(&lock);
        atomic_fetch_add_explicit(&n_shared, 1, memory_order_relaxed);
    }
}

static void leave_shared(ncclComm_t comm) {
    if (!comm->connections.is_shared) {
        return;
    }
    pthread_mutex_lock(&lock);
    ncclComm_t *at = &shared_first;
    while (*at != comm) {
        at = &(*at)->connections.next;
    }
    *at = comm->connections.next;
    pthread_mutex_unlock(&lock);
    atomic_fetch_sub_explicit(&n_shared, 1, memory_order_relaxed);
}

guint64 standin_memory_of_others(int device) {
    guint64 bytes = 0;
    if (atomic_load_explicit(&n_shared, memory_order_relaxed) == 0) {
        return 0; /* no lock: it would order threads */
    }
    pthread_mutex_lock(&lock);
    for (ncclComm_t comm = shared_first; comm != NULL; comm = comm->connections.next) {
        if (comm->device == device) {
            bytes += atomic_load_explicit(told_to(comm, comm->rank), memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* ---- meeting ---- */

static void set_waiting(ncclComm_t from, ncclComm_t to) {
    for (guint i = 0; i < MAX_WAITING; i++) {
        ncclComm_t expected = from;
        if (atomic_compare_exchange_strong_explicit(&waiting[i], &expected, to,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            return;
        }
    }
}

static gboolean has(const ncclComm_t comm, int peer, gboolean is_send, guint flag) {
    return ((guint)comm->connections.flags[peer] >> (is_send ? 0 : FOR_RECEIVE) & flag) != 0;
}

static void set(ncclComm_t comm, int peer, gboolean is_send, guint flag) {
    comm->connections.flags[peer] |= (guint8)(flag << (is_send ? 0 : FOR_RECEIVE));
}

void standin_connect_init(ncclComm_t comm) {
    StandinConnections *connections = &comm->connections;
    connections->flags = g_new0(guint8, (gsize)comm->n);
    connections->has_pool = g_new0(gboolean, (gsize)comm->n);
    connections->openings = g_array_new(FALSE, FALSE, sizeof(Opening));
    join_shared(comm);
}

void standin_connect_clear(ncclComm_t comm) {
    StandinConnections *connections = &comm->connections;
    if (connections->flags == NULL) {
        return;
    }
    if (connections->openings->len > 0) {
        set_waiting(comm, NULL);
    }
    leave_shared(comm);
    give_all(comm);
    g_free(connections->flags);
    g_free(connections->has_pool);
    g_array_unref(connections->openings);
}

ncclResult_t standin_connect_begin(ncclComm_t comm, const StandinPart *parts, guint n) {
    GArray *openings = comm->connections.openings;
    for (guint i = 0; i < n; i++) {
        const StandinPart *part = &parts[i];
        if (part->kind == STANDIN_SEND_RECEIVE && part->peer != comm->rank &&
            !has(comm, part->peer, part->is_send, PAID)) {
            set(comm, part->peer, part->is_send, PAID);
            if (!pay(comm, part->peer, part->is_send)) {
                return out_of_memory(comm);
            }
        }
    }
    for (guint i = 0; i < n; i++) {
        const Opening opening = {parts[i].peer, parts[i].is_send};
        if (opening.peer == comm->rank) {
            continue;
        }
        if (!has(comm, opening.peer, opening.is_send, OPENED)) {
            set(comm, opening.peer, opening.is_send, OPENED);
            comm->transport->open(comm->link, opening.peer, opening.is_send);
        }
        if (parts[i].kind == STANDIN_SEND_RECEIVE &&
            !has(comm, opening.peer, opening.is_send, AWAITED)) {
            set(comm, opening.peer, opening.is_send, AWAITED);
            g_array_append_val(openings, opening);
        }
    }
    if (openings->len > 0) {
        set_waiting(NULL, comm);
    }
    return ncclSuccess;
}

ncclResult_t standin_connect_poll(ncclComm_t comm) {
    GArray *openings = comm->connections.openings;
    if (openings->len == 0) {
        return ncclSuccess;
    }
    for (guint i = 0; i < openings->len;) {
        const Opening *opening = &g_array_index(openings, Opening, i);
        const int met = comm->transport->opened(comm->link, opening->peer, opening->is_send);
        if (met == STANDIN_PEER_GONE) {
            return standin_nccl_fail(comm, ncclRemoteError, "rank %d: connection to rank %d lost",
                                     comm->rank, opening->peer);
        }
        if (met == 0) {
            i++;
            continue;
        }
        standin_progress();
        g_array_remove_index_fast(openings, i);
    }
    if (openings->len > 0) {
        return ncclInProgress;
    }
    set_waiting(comm, NULL);
    return ncclSuccess;
}

/* ---- reports ---- */

STANDIN_RACY void standin_connects_print(void) {
    for (guint i = 0; i < MAX_WAITING; i++) {
        const ncclComm_t comm = atomic_load_explicit(&waiting[i], memory_order_relaxed);
        if (comm == NULL) {
            continue;
        }
        const GArray *openings = comm->connections.openings;
        fprintf(stderr, "  device %d host: a group of rank %d of %s connects:", comm->device,
                comm->rank, comm->name);
        for (guint k = 0; k < openings->len; k++) {
            const Opening *opening = &g_array_index(openings, Opening, k);
            fprintf(stderr, " send/recv %s rank %d", opening->is_send ? "to" : "from",
                    opening->peer);
        }
        fprintf(stderr, "\n");
    }
}

uint64_t standin_connection_bytes(const struct ncclComm *comm) {
    return comm->connections.bytes;
}

uint64_t standin_connection_bytes_of(int device) {
    return atomic_load_explicit(&connection_bytes[device], memory_order_relaxed) +
           standin_memory_of_others(device);
}
