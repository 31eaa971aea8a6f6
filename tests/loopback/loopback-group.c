/*
 * Groups of sends and receives of the loop-back.
 *
 * When a group is submitted, an event is recorded on its streams: from there on its memory may be
 * read and written. A receive whose sender has come waits for that event and copies on the
 * receiver's stream, behind which another event is recorded; the sender's stream waits for that
 * one. Every rank does so on its own thread, when it asks whether the group is on its streams.
 * Streams wait only for events that have been recorded before, so the order of the calls is one in
 * which the device could do everything: no two streams can wait for each other.
 * Cost: an event, a copy and two waits per message.
 */

#include "loopback.h"

typedef struct {
    ncclComm_t comm;
    gboolean sends;
    guint peer;
    void *address;
    gsize bytes;
    cudaStream_t stream;
    LoopMessage *message; /* NULL: not posted, or through with it */
} Operation;

struct LoopGroup {
    GArray *operations; /* of Operation */
    GArray *streams;    /* of cudaStream_t; the work goes to the first */
    cudaEvent_t ready;
};

static _Thread_local guint depth;
static _Thread_local LoopGroup *open_group;
static _Thread_local ncclResult_t open_failure;

static GPtrArray *in_progress; /* of LoopGroup; within the lock */

gboolean loop_in_group(void) {
    return depth > 0;
}

static Operation *operation_of(const LoopGroup *group, guint i) {
    return &g_array_index(group->operations, Operation, i);
}

static cudaStream_t stream_of(const LoopGroup *group, guint i) {
    return g_array_index(group->streams, cudaStream_t, i);
}

static gboolean has_stream(const LoopGroup *group, cudaStream_t stream) {
    for (guint i = 0; i < group->streams->len; i++)
        if (stream_of(group, i) == stream)
            return TRUE;
    return FALSE;
}

/* ---- messages ---- */

static LoopMessage **place_of(const Operation *operation) {
    const LoopWorld *world = operation->comm->world;
    const guint rank = operation->comm->rank;
    const guint from = operation->sends ? rank : operation->peer;
    const guint to = operation->sends ? operation->peer : rank;

    return &world->messages[(gsize)from * world->n + to];
}

/* This end is through with the message. */
static void release(Operation *operation) {
    LoopMessage *message = operation->message;

    operation->message = NULL;
    if (operation->sends)
        message->sender = NULL;
    else
        message->receiver = NULL;
    if (message->sender != NULL || message->receiver != NULL)
        return;
    if (*place_of(operation) == message)
        *place_of(operation) = NULL;
    if (message->copied != NULL)
        cudaEventDestroy(message->copied);
    g_free(message);
}

static ncclResult_t post(LoopGroup *group, Operation *operation) {
    LoopMessage **place = place_of(operation);
    gboolean met = *place != NULL;

    if (!met)
        *place = g_new0(LoopMessage, 1);
    LoopMessage *message = operation->message = *place;
    if (operation->sends) {
        message->sender = group;
        message->from = operation->address;
    } else {
        message->receiver = group;
    }
    if (!met)
        message->bytes = operation->bytes;
    if (message->bytes == operation->bytes)
        return ncclSuccess;
    return loop_fail_world(
        operation->comm->world,
        loop_fail(ncclInvalidUsage,
                  "rank %u %s %" G_GSIZE_FORMAT " bytes %s rank %u, which has %" G_GSIZE_FORMAT,
                  operation->comm->rank, operation->sends ? "sends" : "expects", operation->bytes,
                  operation->sends ? "to" : "from", operation->peer, message->bytes));
}

/* ---- on the streams ---- */

static ncclResult_t record_new(cudaEvent_t *event_out, cudaStream_t stream) {
    ncclResult_t result = LOOP_CUDA(cudaEventCreateWithFlags(event_out, cudaEventDisableTiming));

    return result == ncclSuccess ? LOOP_CUDA(cudaEventRecord(*event_out, stream)) : result;
}

/* `stream` goes on when `before` has come to where it is now. */
static ncclResult_t follow(cudaStream_t stream, cudaStream_t before) {
    cudaEvent_t event = NULL;
    ncclResult_t result = record_new(&event, before);

    if (result == ncclSuccess)
        result = LOOP_CUDA(cudaStreamWaitEvent(stream, event, 0));
    if (event != NULL)
        cudaEventDestroy(event);
    return result;
}

static ncclResult_t copy(Operation *operation, cudaStream_t stream) {
    LoopMessage *message = operation->message;
    ncclResult_t result = LOOP_CUDA(cudaStreamWaitEvent(stream, message->sender->ready, 0));

    if (result == ncclSuccess && message->bytes > 0)
        result = LOOP_CUDA(cudaMemcpyAsync(operation->address, message->from, message->bytes,
                                           cudaMemcpyDeviceToDevice, stream));
    if (result == ncclSuccess)
        result = record_new(&message->copied, stream);
    if (result != ncclSuccess)
        return result;
    *place_of(operation) = NULL; /* the next message may come */
    release(operation);
    return ncclSuccess;
}

static void group_free(LoopGroup *group) {
    if (group->ready != NULL)
        cudaEventDestroy(group->ready);
    g_array_unref(group->operations);
    g_array_unref(group->streams);
    g_free(group);
}

/* Its communicators are free for the next one. */
static void conclude(LoopGroup *group) {
    g_ptr_array_remove(in_progress, group);
    for (guint i = 0; i < group->operations->len; i++)
        if (operation_of(group, i)->comm != NULL)
            operation_of(group, i)->comm->group = NULL;
    group_free(group);
}

ncclResult_t loop_group_advance(LoopGroup *group) {
    cudaStream_t stream = stream_of(group, 0);
    ncclResult_t result = ncclSuccess;
    guint n_left = 0;

    for (guint i = 0; i < group->operations->len && result == ncclSuccess; i++) {
        Operation *operation = operation_of(group, i);
        LoopMessage *message = operation->message;

        if (message == NULL)
            continue;
        if (!operation->sends && message->sender != NULL) {
            result = copy(operation, stream);
            loop_changed();
        } else if (operation->sends && message->copied != NULL) {
            result = LOOP_CUDA(cudaStreamWaitEvent(stream, message->copied, 0));
            release(operation);
        } else {
            n_left++;
        }
        if (result != ncclSuccess)
            return loop_fail_world(operation->comm->world, result);
    }
    if (n_left > 0)
        return ncclInProgress;
    for (guint i = 1; i < group->streams->len && result == ncclSuccess; i++)
        result = follow(stream_of(group, i), stream);
    conclude(group);
    return result;
}

void loop_group_drop(ncclComm_t comm) {
    LoopGroup *group = comm->group;
    guint n_others = 0;

    for (guint i = 0; i < group->operations->len; i++) {
        Operation *operation = operation_of(group, i);

        if (operation->comm != comm) {
            n_others += operation->comm != NULL ? 1 : 0;
            continue;
        }
        if (operation->message != NULL)
            release(operation);
        operation->comm = NULL;
    }
    comm->group = NULL;
    if (n_others == 0)
        conclude(group);
}

/* ---- calls ---- */

ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}

static ncclResult_t add(gboolean sends, void *address, size_t count, ncclDataType_t type, int peer,
                        ncclComm_t comm, cudaStream_t stream) {
    const Operation operation = {.comm = comm,
                                 .sends = sends,
                                 .peer = (guint)peer,
                                 .address = address,
                                 .bytes = count,
                                 .stream = stream};

    if (peer < 0 || (guint)peer >= comm->world->n || (guint)peer == comm->rank)
        return loop_fail(ncclInvalidArgument, "rank %u of %u: peer %d", comm->rank, comm->world->n,
                         peer);
    if (type != ncclInt8 && type != ncclUint8)
        return loop_fail(ncclInvalidArgument, "type %d: the loop-back moves bytes", (int)type);
    if (open_group == NULL) {
        open_group = g_new0(LoopGroup, 1);
        open_group->operations = g_array_new(FALSE, FALSE, sizeof(Operation));
        open_group->streams = g_array_new(FALSE, FALSE, sizeof(cudaStream_t));
    }
    for (guint i = 0; i < open_group->operations->len; i++) {
        const Operation *other = operation_of(open_group, i);
        if (other->comm == comm && other->sends == sends && other->peer == operation.peer)
            return loop_fail(ncclInvalidUsage, "rank %u: two messages %s rank %d in one group",
                             comm->rank, sends ? "to" : "from", peer);
    }
    g_array_append_val(open_group->operations, operation);
    if (!has_stream(open_group, stream))
        g_array_append_val(open_group->streams, stream);
    return ncclSuccess;
}

static ncclResult_t add_grouped(gboolean sends, void *address, size_t count, ncclDataType_t type,
                                int peer, ncclComm_t comm, cudaStream_t stream) {
    ncclGroupStart();
    ncclResult_t result = add(sends, address, count, type, peer, comm, stream);
    if (result != ncclSuccess)
        open_failure = result;
    ncclResult_t end = ncclGroupEnd();
    return result != ncclSuccess ? result : end;
}

ncclResult_t ncclSend(const void *address, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return add_grouped(TRUE, (void *)(guintptr)address, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *address, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add_grouped(FALSE, address, count, type, peer, comm, stream);
}

/* Nothing that the group needs is still in use by another. */
static ncclResult_t check_free(const LoopGroup *group) {
    for (guint i = 0; i < group->operations->len; i++) {
        ncclComm_t comm = operation_of(group, i)->comm;
        ncclResult_t result = loop_progress(comm);

        if (result == ncclInProgress || comm->finalized)
            return loop_fail(ncclInvalidUsage, "rank %u: a group while the communicator %s",
                             comm->rank, comm->finalized ? "ends" : "is busy");
        if (result != ncclSuccess)
            return result;
    }
    for (guint i = 0; in_progress != NULL && i < in_progress->len; i++)
        for (guint s = 0; s < group->streams->len; s++)
            if (has_stream(g_ptr_array_index(in_progress, i), stream_of(group, s)))
                return loop_fail(ncclInvalidUsage, "a group on a stream that waits for another");
    return ncclSuccess;
}

static ncclResult_t begin(LoopGroup *group) {
    ncclResult_t result = ncclSuccess;

    for (guint i = 1; i < group->streams->len && result == ncclSuccess; i++)
        result = follow(stream_of(group, 0), stream_of(group, i));
    return result == ncclSuccess ? record_new(&group->ready, stream_of(group, 0)) : result;
}

/* Frees the group unless it is in progress afterwards. */
static ncclResult_t submit(LoopGroup *group) {
    gboolean blocking = FALSE;
    ncclResult_t result = check_free(group);

    if (result == ncclSuccess)
        result = begin(group);
    if (result != ncclSuccess) {
        group_free(group);
        return result;
    }
    if (in_progress == NULL)
        in_progress = g_ptr_array_new();
    g_ptr_array_add(in_progress, group);
    for (guint i = 0; i < group->operations->len; i++) {
        Operation *operation = operation_of(group, i);
        ncclComm_t comm = operation->comm;

        comm->group = group;
        blocking |= comm->blocking;
        ncclResult_t posted = post(group, operation);
        if (posted != ncclSuccess)
            result = posted; /* it stays, for the abort that must follow */
    }
    loop_changed();
    while (result == ncclSuccess || (result == ncclInProgress && blocking)) {
        if (result == ncclInProgress)
            loop_wait();
        ncclComm_t comm = operation_of(group, 0)->comm;
        result = loop_progress(comm);
        if (result == ncclSuccess)
            return ncclSuccess;
        if (!blocking)
            break;
    }
    return result;
}

ncclResult_t ncclGroupEnd(void) {
    ncclResult_t result;

    if (depth == 0)
        return loop_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--depth > 0)
        return ncclSuccess;
    LoopGroup *group = g_steal_pointer(&open_group);
    result = open_failure;
    open_failure = ncclSuccess;
    if (group == NULL)
        return result;
    if (result != ncclSuccess) {
        group_free(group);
        return result;
    }
    loop_lock();
    result = submit(group);
    loop_unlock();
    return result;
}
