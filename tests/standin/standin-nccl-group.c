/*
 * Groups of operations on the host: what a thread posts between ncclGroupStart and ncclGroupEnd,
 * checked and sorted by communicator. At its end new connections are made, for which peers must
 * come, and what is left goes to the streams: by the caller where communicators block, else when
 * their state is asked for. Collectives are made of messages too.
 */

#include "standin-nccl.h"

static _Thread_local guint depth;
static _Thread_local GArray *pending; /* StandinPart */
static _Thread_local ncclResult_t pending_error;
static _Atomic unsigned n_threads; /* that NCCL would have made for groups */

/* ---- posting ---- */

/* The parts of `comm` in `all`, collectives first; `all` no longer counts them as the comm's. */
static GArray *take_parts(GArray *all, ncclComm_t comm) {
    GArray *parts = g_array_new(FALSE, FALSE, sizeof(StandinPart));
    for (guint pass = 0; pass < 2; pass++) {
        for (guint i = 0; i < all->len; i++) {
            StandinPart *part = &g_array_index(all, StandinPart, i);
            if (part->comm == comm && (part->kind == STANDIN_SEND_RECEIVE) == (pass == 1)) {
                g_array_append_val(parts, *part);
                part->comm = NULL;
            }
        }
    }
    return parts;
}

/* What one group posts on one communicator. */
typedef struct {
    ncclComm_t comm;
    GArray *parts; /* StandinPart */
} Post;

static void post_clear(gpointer data) {
    g_array_unref(((Post *)data)->parts);
}

/* The parts in `all` by communicator. One that mixes blocking and other communicators is refused by
 * NCCL where it makes or splits them, and undefined here: the last one's kind would be all's. */
static GArray *sort_parts(GArray *all) {
    GArray *posts = g_array_new(FALSE, FALSE, sizeof(Post));
    g_array_set_clear_func(posts, post_clear);
    for (guint i = 0; i < all->len; i++) {
        ncclComm_t comm = g_array_index(all, StandinPart, i).comm;
        if (comm == NULL) {
            continue;
        }
        const Post post = {comm, take_parts(all, comm)};
        g_array_append_val(posts, post);
        if (comm->config.nonblocking != g_array_index(posts, Post, 0).comm->config.nonblocking) {
            standin_die("blocking and nonblocking communicators in one group");
        }
    }
    return posts;
}

/* Keeps the parts of a non-blocking communicator until its state is asked for. */
static void defer(const Post *post, guint64 launcher) {
    ncclComm_t comm = post->comm;
    if (comm->deferred != NULL) {
        standin_die("a group on a communicator whose group before is still in progress");
    }
    const ncclResult_t result =
        standin_connect_begin(comm, (StandinPart *)(void *)post->parts->data, post->parts->len);
    if (result != ncclSuccess) {
        atomic_store_explicit(&comm->error, (int)result, memory_order_relaxed);
        return;
    }
    comm->deferred = g_array_ref(post->parts);
    comm->n_polls = 2;
    comm->launcher = launcher;
    standin_launch_begin(comm, launcher);
    atomic_store_explicit(&comm->error, ncclInProgress, memory_order_relaxed);
}

void standin_group_poll(ncclComm_t comm) {
    if (comm->deferred == NULL) {
        return;
    }
    comm->n_polls -= comm->n_polls > 0;
    ncclResult_t result = comm->n_polls > 0 ? ncclInProgress : standin_connect_poll(comm);
    if (result == ncclInProgress) {
        return;
    }
    g_autoptr(GArray) parts = g_steal_pointer(&comm->deferred);
    if (result == ncclSuccess) {
        result = standin_group_launch(comm, (StandinPart *)(void *)parts->data, parts->len,
                                      comm->launcher);
    }
    atomic_store_explicit(&comm->error, (int)result, memory_order_relaxed);
}

/* Waits until all peers of new connections have come, or a communicator is aborted. */
static ncclResult_t wait_connected(const GArray *posts) {
    for (;;) {
        gboolean all = TRUE;
        for (guint i = 0; i < posts->len; i++) {
            ncclComm_t comm = g_array_index(posts, Post, i).comm;
            if (atomic_load_explicit(&comm->aborted, memory_order_relaxed)) {
                return ncclInternalError; /* as NCCL's waits end */
            }
            if (standin_device_lost(comm->device)) {
                return standin_nccl_fail(comm, ncclUnhandledCudaError,
                                         "Cuda failure 'uncorrectable ECC'");
            }
            const ncclResult_t result = standin_connect_poll(comm);
            if (result != ncclSuccess && result != ncclInProgress) {
                return result;
            }
            all &= result == ncclSuccess;
        }
        if (all) {
            return ncclSuccess;
        }
        standin_watch("ncclGroupEnd");
        g_usleep(50);
    }
}

static ncclResult_t connect_and_launch(const GArray *posts) {
    ncclResult_t result = ncclSuccess;
    for (guint i = 0; i < posts->len && result == ncclSuccess; i++) {
        const Post *post = &g_array_index(posts, Post, i);
        result = standin_connect_begin(post->comm, (StandinPart *)(void *)post->parts->data,
                                       post->parts->len);
        if (result != ncclSuccess) { /* half connected: of no more use */
            atomic_store_explicit(&post->comm->error, (int)result, memory_order_relaxed);
        }
    }
    if (result == ncclSuccess) {
        result = wait_connected(posts);
    }
    for (guint i = 0; i < posts->len && result == ncclSuccess; i++) {
        const Post *post = &g_array_index(posts, Post, i);
        standin_launch_begin(post->comm, standin_launcher());
        result = standin_group_launch(post->comm, (StandinPart *)(void *)post->parts->data,
                                      post->parts->len, standin_launcher());
    }
    return result;
}

/* The caller's thread does all; an abort from another lets it go. */
static ncclResult_t run_blocking(const GArray *posts) {
    for (guint i = 0; i < posts->len; i++) {
        atomic_fetch_add_explicit(&g_array_index(posts, Post, i).comm->n_callers, 1,
                                  memory_order_relaxed);
    }
    const ncclResult_t result = connect_and_launch(posts);
    for (guint i = 0; i < posts->len; i++) {
        atomic_fetch_sub_explicit(&g_array_index(posts, Post, i).comm->n_callers, 1,
                                  memory_order_release);
    }
    return result;
}

static ncclResult_t close_group(void) {
    g_autoptr(GArray) all = g_steal_pointer(&pending);
    const ncclResult_t error = pending_error;

    pending_error = ncclSuccess;
    if (all == NULL || all->len == 0 || error != ncclSuccess) {
        return error;
    }
    g_autoptr(GArray) posts = sort_parts(all);
    if (!g_array_index(posts, Post, 0).comm->config.nonblocking) {
        return run_blocking(posts);
    }
    atomic_fetch_add_explicit(&n_threads, 1, memory_order_relaxed);
    const guint64 launcher = standin_launcher_new(); /* that thread */
    for (guint i = 0; i < posts->len; i++) {
        defer(&g_array_index(posts, Post, i), launcher);
    }
    return ncclInProgress;
}

unsigned standin_group_threads(void) {
    return atomic_load_explicit(&n_threads, memory_order_relaxed);
}

ncclResult_t ncclGroupStart(void) {
    STANDIN_NCCL_ENTER(ncclGroupStart, NULL);
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (depth == 0) {
        return standin_nccl_fail(NULL, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    }
    if (--depth > 0) {
        return ncclSuccess;
    }
    const ncclResult_t entered = standin_nccl_enter("ncclGroupEnd", NULL);
    if (entered != ncclSuccess) {
        pending_error = entered;
    }
    return close_group();
}

static guint64 type_size(ncclDataType_t type) {
    switch ((int)type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

/* Refuses an operation; within a group, the group as well. */
static ncclResult_t refuse(ncclComm_t comm, const char *function, const char *why) {
    const ncclResult_t result =
        standin_nccl_fail(comm, ncclInvalidArgument, "%s : %s", function, why);
    if (depth > 0) {
        pending_error = result;
    }
    return result;
}

/* Checks one operand of `function`; misuse that a GPU would not report ends the process. */
static ncclResult_t check(const char *function, ncclComm_t comm, const void *buffer, guint64 size,
                          ncclDataType_t type, int peer, cudaStream_t stream) {
    if (comm == NULL) {
        return refuse(NULL, function, "comm argument is NULL");
    }
    const ncclResult_t state =
        (ncclResult_t)atomic_load_explicit(&comm->error, memory_order_relaxed);
    if (state == ncclInProgress) {
        return refuse(comm, function, "communicator still busy");
    }
    if (state != ncclSuccess) { /* what has failed before stays the error */
        pending_error = depth > 0 ? state : pending_error;
        return state;
    }
    if (peer < 0 || peer >= comm->n || type_size(type) == 0) {
        return refuse(comm, function, "invalid peer, root or type");
    }
    const char *why = standin_stream_error(stream);
    if (why != NULL) {
        standin_die("%s: %s", function, why);
    }
    if (standin_stream_device(stream) != comm->device) {
        standin_die("%s: stream of device %d, communicator of device %d", function,
                    standin_stream_device(stream), comm->device);
    }
    why = standin_range_error(buffer, size, comm->device, FALSE);
    if (why != NULL) {
        standin_die("%s of rank %d, peer %d, %" G_GUINT64_FORMAT " bytes at %p: %s", function,
                    comm->rank, peer, size, buffer, why);
    }
    return ncclSuccess;
}

static void append(StandinPart part) {
    if (pending == NULL) {
        pending = g_array_new(FALSE, FALSE, sizeof(StandinPart));
    }
    g_array_append_val(pending, part);
}

/* An operation outside of a group is a group of its own. */
static ncclResult_t posted(void) {
    return depth > 0 ? ncclSuccess : close_group();
}

static ncclResult_t send_or_receive(const char *function, gboolean is_send, const void *buffer,
                                    size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
    const guint64 size = count * type_size(type);
    const ncclResult_t result = check(function, comm, buffer, size, type, peer, stream);
    if (result != ncclSuccess) {
        return result;
    }
    append((StandinPart){.comm = comm,
                         .stream = stream,
                         .is_send = is_send,
                         .kind = STANDIN_SEND_RECEIVE,
                         .peer = peer,
                         .type = type,
                         .bytes = standin_bytes(buffer),
                         .size = size});
    return posted();
}

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    STANDIN_NCCL_ENTER(ncclSend, comm);
    return send_or_receive("ncclSend", TRUE, buffer, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    STANDIN_NCCL_ENTER(ncclRecv, comm);
    return send_or_receive("ncclRecv", FALSE, buffer, count, type, peer, comm, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    STANDIN_NCCL_ENTER(ncclBroadcast, comm);
    const guint64 size = count * type_size(type);
    const gboolean is_root = comm != NULL && comm->rank == root;
    ncclResult_t result = check("ncclBroadcast", comm, to, size, type, root, stream);
    if (result == ncclSuccess && is_root) {
        result = check("ncclBroadcast", comm, from, size, type, root, stream);
    }
    if (result != ncclSuccess) {
        return result;
    }
    StandinPart part = {.comm = comm,
                        .stream = stream,
                        .kind = STANDIN_BROADCAST,
                        .peer = root,
                        .root = root,
                        .type = type,
                        .bytes = standin_bytes(to),
                        .size = size};
    if (!is_root || from != to) {
        append(part); /* the root's own copy is a message to itself */
    }
    part.is_send = TRUE;
    part.bytes = standin_bytes(from);
    for (part.peer = 0; is_root && part.peer < comm->n; part.peer++) {
        if (part.peer != root || from != to) {
            append(part);
        }
    }
    return posted();
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    STANDIN_NCCL_ENTER(ncclAllGather, comm);
    const guint64 size = count * type_size(type);
    ncclResult_t result = check("ncclAllGather", comm, from, size, type, 0, stream);
    if (result == ncclSuccess) {
        result = check("ncclAllGather", comm, to, size * (guint64)comm->n, type, 0, stream);
    }
    if (result != ncclSuccess) {
        return result;
    }
    for (int peer = 0; peer < comm->n; peer++) {
        char *slot = (char *)standin_bytes(to) + size * (guint64)peer;
        StandinPart part = {.comm = comm,
                            .stream = stream,
                            .is_send = TRUE,
                            .kind = STANDIN_ALL_GATHER,
                            .peer = peer,
                            .type = type,
                            .bytes = standin_bytes(from),
                            .size = size};
        if (peer == comm->rank && slot == part.bytes) {
            continue; /* in place */
        }
        append(part);
        part.is_send = FALSE;
        part.bytes = slot;
        append(part);
    }
    return posted();
}
