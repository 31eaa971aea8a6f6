/*
 * A group on its streams: one kernel on the first stream that was named, the others wait for it and
 * it for them, as NCCL documents. It starts when its communicator's group before has ended, its
 * device has room for its CTAs and, where NCCL keeps an order, the device's group before has
 * started. Two hostile modes: REFIT_STANDIN_PLAN_OPS cuts a group into kernels that each start at
 * the first round of the peer schedule, as NCCL before 2.29.7 cuts large ones, and
 * REFIT_STANDIN_SERIAL lets a device run one kernel at a time in launch order, as NCCL's implicit
 * order does without launch events (CUDA before 12.3).
 */

#include "standin-nccl.h"

#include <string.h>

enum { MAX_OTHER_STREAMS = 8 };

typedef enum { STATE_QUEUED, STATE_ROOM, STATE_RUNS } GroupState;

typedef struct {
    StandinOp op;
    ncclComm_t comm;
    uint32_t number; /* of the communicator's groups */
    uint32_t ticket; /* of the device's groups, when serial */
    uint32_t order;  /* of the device's groups */
    guint n_ctas;
    _Atomic int state; /* for the report */
    guint n;
    StandinPart *parts;
    GArray *cuts; /* guint: ends of kernels */
} GroupOp;

typedef struct {
    StandinOp op;
    char *to;
    const char *from;
    size_t size;
} SelfOp;

static _Atomic uint32_t n_issued[STANDIN_MAX_DEVICES], n_ended[STANDIN_MAX_DEVICES];

/* ---- on the stream ---- */

STANDIN_RACY static void describe_group(const StandinOp *op, char *text, size_t size) {
    const GroupOp *group = (const GroupOp *)op;
    const int state = atomic_load_explicit(&group->state, memory_order_relaxed);
    const size_t size_of_parts = size - MIN(size, 48);
    g_snprintf(text, size, "%u of rank %d of %s:", group->number, group->comm->rank,
               group->comm->name);
    gsize at = strlen(text);
    standin_parts_describe(group->parts, group->n, text + at, MAX(size_of_parts, at + 1) - at);
    at = strlen(text);
    if (state != STATE_QUEUED) {
        g_snprintf(text + at, size - at, "; %s %u CTAs", state == STATE_ROOM ? "wants" : "holds",
                   group->n_ctas);
    }
}

/* A fault planned for groups of communicators of this many ranks: NCCL finds an error. */
static gboolean has_fault(ncclComm_t comm) {
    char name[32];
    g_snprintf(name, sizeof name, "group@%d", comm->n);
    if (!standin_fault(name, comm->device)) {
        return FALSE;
    }
    standin_comm_say(comm, "planned fault in a group");
    atomic_store_explicit(&comm->error, ncclSystemError, memory_order_release);
    return TRUE;
}

/* Returns the CTAs that it holds: none when it has been given up. */
static guint start(GroupOp *group) {
    ncclComm_t comm = group->comm;

    standin_wait(&comm->n_finished, group->number, "the communicator's group before");
    standin_order_wait(comm->device, group->order);
    if (standin_options()->serial) {
        standin_wait_unordered(&n_ended[comm->device], group->ticket,
                               "the device's group before (REFIT_STANDIN_SERIAL)");
    }
    atomic_store_explicit(&group->state, STATE_ROOM, memory_order_relaxed);
    const guint held = standin_room_take(comm->device, group->n_ctas, group->n_ctas, &comm->aborted,
                                         "a group without room on its device");
    atomic_store_explicit(&group->state, STATE_RUNS, memory_order_relaxed);
    standin_order_started(comm->device);
    standin_op_begun(&group->op);
    return held;
}

static void run_group(StandinOp *op) {
    GroupOp *group = (GroupOp *)op;
    ncclComm_t comm = group->comm;
    guint from = 0;

    const guint held = start(group);
    const gboolean fails = has_fault(comm);
    for (guint i = 0; i < group->cuts->len && !fails; i++) {
        const guint to = g_array_index(group->cuts, guint, i);
        if (!standin_parts_move(comm, group->parts + from, to - from)) {
            break;
        }
        from = to;
    }
    standin_room_give(comm->device, held);
    if (standin_options()->serial) {
        atomic_fetch_add_explicit(&n_ended[comm->device], 1, memory_order_relaxed);
        standin_wake(&n_ended[comm->device]);
    }
    g_free(group->parts);
    g_array_unref(group->cuts);
    atomic_store_explicit(&comm->n_finished, group->number + 1, memory_order_release);
    standin_wake(&comm->n_finished);
}

static void run_self(StandinOp *op) {
    const SelfOp *self = (const SelfOp *)op;
    memmove(self->to, self->from, self->size);
}

/* ---- queueing ---- */

/* The unused part in `parts` with that direction and peer, -1 for none. */
static gint find_part(const StandinPart *parts, const gboolean *used, guint n, gboolean is_send,
                      int peer) {
    for (guint i = 0; i < n; i++) {
        if (!used[i] && parts[i].kind == STANDIN_SEND_RECEIVE && parts[i].is_send == is_send &&
            parts[i].peer == peer) {
            return (gint)i;
        }
    }
    return -1;
}

/* Orders messages by rounds of the schedule, in round r to rank + r and from rank - r, and cuts
 * after each plan_ops of them; each kernel starts again at round 0. Collectives are not cut. */
static void cut_group(GroupOp *group) {
    const guint limit = standin_options()->plan_ops;
    const int n_ranks = group->comm->n;
    const int rank = group->comm->rank;
    g_autofree gboolean *used = g_new0(gboolean, group->n);
    g_autofree StandinPart *ordered = g_new(StandinPart, group->n);
    guint n = 0, in_kernel = 0;
    gboolean restart;

    for (guint i = 0; i < group->n; i++) {
        if (group->parts[i].kind != STANDIN_SEND_RECEIVE) {
            ordered[n++] = group->parts[i];
            used[i] = TRUE;
        }
    }
    while (n < group->n) {
        restart = FALSE;
        for (int round = 0; round < n_ranks && !restart; round++) {
            const gint pair[2] = {
                find_part(group->parts, used, group->n, TRUE, (rank + round) % n_ranks),
                find_part(group->parts, used, group->n, FALSE, (rank - round + n_ranks) % n_ranks)};
            if (pair[0] < 0 && pair[1] < 0) {
                continue;
            }
            if (in_kernel == limit) {
                g_array_append_val(group->cuts, n);
                in_kernel = 0;
                restart = TRUE;
                continue;
            }
            in_kernel++;
            for (guint side = 0; side < 2; side++) {
                if (pair[side] >= 0) {
                    ordered[n++] = group->parts[pair[side]];
                    used[pair[side]] = TRUE;
                }
            }
        }
    }
    memcpy(group->parts, ordered, group->n * sizeof *ordered);
}

/* Sends to the rank itself meet its receives from itself in order, as copies on `stream`. */
static ncclResult_t enqueue_self_copies(ncclComm_t comm, cudaStream_t stream,
                                        const StandinPart *parts, guint n) {
    guint n_to = 0, n_from = 0, from = 0;

    for (guint i = 0; i < n; i++) {
        if (parts[i].peer == comm->rank) {
            *(parts[i].is_send ? &n_to : &n_from) += 1;
        }
    }
    if (n_to != n_from) {
        return standin_nccl_fail(comm, ncclInvalidUsage, "Trying to %s self without a matching %s",
                                 n_to > n_from ? "send to" : "recv from",
                                 n_to > n_from ? "recv" : "send");
    }
    for (guint i = 0; i < n; i++) {
        if (parts[i].peer != comm->rank || !parts[i].is_send) {
            continue;
        }
        while (parts[from].peer != comm->rank || parts[from].is_send) {
            from++;
        }
        if (parts[from].size != parts[i].size) {
            standin_die("rank %d sends itself %" G_GUINT64_FORMAT
                        " bytes and receives %" G_GUINT64_FORMAT,
                        comm->rank, parts[i].size, parts[from].size);
        }
        SelfOp *self = STANDIN_OP_NEW(SelfOp, run_self, "copy to the rank itself");
        self->to = parts[from++].bytes;
        self->from = parts[i].bytes;
        self->size = parts[i].size;
        standin_enqueue(stream, &self->op);
    }
    return ncclSuccess;
}

static GroupOp *group_new(ncclComm_t comm, const StandinPart *parts, guint n) {
    GroupOp *group = STANDIN_OP_NEW(GroupOp, run_group, "group");
    group->op.describe = describe_group;
    group->op.begins_late = TRUE;
    group->comm = comm;
    group->parts = g_new(StandinPart, n);
    group->cuts = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint i = 0; i < n; i++) {
        if (parts[i].peer != comm->rank) {
            group->parts[group->n++] = parts[i];
        }
    }
    if (standin_options()->plan_ops > 0) {
        cut_group(group);
    }
    g_array_append_val(group->cuts, group->n);
    return group;
}

/* The streams of `parts` besides the first part's. */
static guint other_streams(const StandinPart *parts, guint n,
                           cudaStream_t others[MAX_OTHER_STREAMS]) {
    guint n_others = 0;
    for (guint i = 1; i < n; i++) {
        gboolean known = parts[i].stream == parts[0].stream;
        for (guint k = 0; k < n_others; k++) {
            known |= others[k] == parts[i].stream;
        }
        if (!known && n_others < MAX_OTHER_STREAMS) {
            others[n_others++] = parts[i].stream;
        } else if (!known) {
            standin_die("more than %d streams in one group", MAX_OTHER_STREAMS + 1);
        }
    }
    return n_others;
}

ncclResult_t standin_group_launch(ncclComm_t comm, StandinPart *parts, guint n, guint64 launcher) {
    cudaStream_t stream = parts[0].stream;
    cudaStream_t others[MAX_OTHER_STREAMS];
    const guint n_others = other_streams(parts, n, others);

    for (guint i = 0; i < n_others; i++) {
        standin_stream_join(stream, others[i]);
    }
    const ncclResult_t result = enqueue_self_copies(comm, stream, parts, n);
    if (result != ncclSuccess) {
        return result;
    }
    comm->group_channels = standin_parts_channels(comm, parts, n);
    standin_rate_count(comm, parts, n);
    GroupOp *group = group_new(comm, parts, n);
    group->number = comm->n_launched++;
    group->order = standin_order_ticket(comm->device);
    group->n_ctas = standin_group_ctas(comm);
    if (standin_options()->serial) {
        group->ticket = atomic_fetch_add_explicit(&n_issued[comm->device], 1, memory_order_relaxed);
    }
    standin_enqueue(stream, &group->op);
    for (guint i = 0; i < n_others; i++) {
        standin_stream_join(others[i], stream);
    }
    return standin_launch_end(comm, launcher);
}
