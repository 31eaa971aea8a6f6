/*
 * Communicators of the loop-back: set-up, splits and ends. Members find each other by the
 * identifier, or by the number of the split, in tables that one lock guards. Nothing runs by
 * itself: a call that asks for the state of a communicator brings it forward, on the thread of its
 * rank. Cost: a lock per call, and per communicator the square of its ranks in pointers.
 */

#include "loopback.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static GPtrArray *worlds; /* of LoopWorld that were made by an identifier */
static guint64 n_ids;
static guint n_comms;
static _Thread_local char last_text[512];

struct LoopSplit {
    guint n_called, n_taken;
    int *colors, *keys;
    gboolean *called;
    LoopWorld **worlds; /* per rank of the parent, when all have called; NULL: takes none */
    guint *ranks;
};

void loop_lock(void) {
    pthread_mutex_lock(&mutex);
}

void loop_unlock(void) {
    pthread_mutex_unlock(&mutex);
}

void loop_wait(void) {
    pthread_cond_wait(&changed, &mutex);
}

void loop_changed(void) {
    pthread_cond_broadcast(&changed);
}

/* ---- errors ---- */

ncclResult_t loop_fail(ncclResult_t result, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(last_text, sizeof last_text, format, arguments);
    va_end(arguments);
    return result;
}

ncclResult_t loop_cuda(cudaError_t error, const char *call) {
    return error == cudaSuccess
               ? ncclSuccess
               : loop_fail(ncclUnhandledCudaError, "%s: %s", call, cudaGetErrorString(error));
}

ncclResult_t loop_fail_world(LoopWorld *world, ncclResult_t result) {
    if (world->failure == ncclSuccess) {
        world->failure = result;
        world->text = g_strdup(last_text);
        loop_changed();
    }
    return result;
}

const char *ncclGetErrorString(ncclResult_t result) {
    switch ((int)result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclInProgress:
        return "in progress";
    default:
        return "loop-back error";
    }
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last_text;
}

/* ---- worlds ---- */

static LoopWorld *world_new(guint n, int device) {
    LoopWorld *world = g_new0(LoopWorld, 1);

    world->n = n;
    world->device = device;
    world->came = g_new0(gboolean, n);
    world->messages = g_new0(LoopMessage *, (gsize)n * n);
    world->splits = g_ptr_array_new();
    return world;
}

static void split_free(LoopSplit *split) {
    g_free(split->colors);
    g_free(split->keys);
    g_free(split->called);
    g_free(split->worlds);
    g_free(split->ranks);
    g_free(split);
}

/* One member less; the last one frees it. */
static void world_leave(LoopWorld *world) {
    if (++world->n_gone < world->n)
        return;
    if (worlds != NULL)
        g_ptr_array_remove(worlds, world);
    for (guint i = 0; i < world->splits->len; i++)
        split_free(g_ptr_array_index(world->splits, i));
    g_ptr_array_unref(world->splits);
    g_free(world->came);
    g_free(world->messages);
    g_free(world->text);
    g_free(world);
}

static LoopWorld *find_world(const ncclUniqueId *id, guint n, int device) {
    if (worlds == NULL)
        worlds = g_ptr_array_new();
    for (guint i = 0; i < worlds->len; i++) {
        LoopWorld *world = g_ptr_array_index(worlds, i);
        if (memcmp(world->id, id, sizeof *id) == 0)
            return world;
    }
    LoopWorld *world = world_new(n, device);
    memcpy(world->id, id, sizeof *id);
    g_ptr_array_add(worlds, world);
    return world;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id_out) {
    memset(id_out, 0, sizeof *id_out);
    loop_lock();
    snprintf(id_out->internal, sizeof id_out->internal, "loop-back %" G_GUINT64_FORMAT, ++n_ids);
    loop_unlock();
    return ncclSuccess;
}

static ncclComm_t comm_new(LoopWorld *world, guint rank, gboolean blocking) {
    ncclComm_t comm = g_new0(struct ncclComm, 1);

    comm->world = world;
    comm->rank = rank;
    comm->blocking = blocking;
    n_comms++;
    return comm;
}

/* Of a call that a blocking communicator waits in. */
static ncclResult_t complete(ncclComm_t comm) {
    ncclResult_t result = loop_progress(comm);

    while (result == ncclInProgress && comm->blocking) {
        loop_wait();
        result = loop_progress(comm);
    }
    return result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm_out, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    int device;

    if (loop_in_group())
        return loop_fail(ncclInvalidUsage, "a communicator is made within a group");
    if (n < 1 || rank < 0 || rank >= n)
        return loop_fail(ncclInvalidArgument, "rank %d of %d", rank, n);
    ncclResult_t result = LOOP_CUDA(cudaGetDevice(&device));
    if (result != ncclSuccess)
        return result;
    loop_lock();
    LoopWorld *world = find_world(&id, (guint)n, device);
    if (world->n != (guint)n || world->came[rank]) {
        result = loop_fail(ncclInvalidArgument, "rank %d of %d comes %s", rank, n,
                           world->n != (guint)n ? "to a communicator of another size" : "twice");
    } else if (world->device != device) {
        result = loop_fail(ncclInvalidUsage, "rank %d uses device %d, others device %d", rank,
                           device, world->device);
    } else {
        world->came[rank] = TRUE;
        world->n_came++;
        loop_changed();
        *comm_out = comm_new(world, (guint)rank, config == NULL || config->blocking != 0);
        result = complete(*comm_out);
    }
    loop_unlock();
    return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm_out, int n, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(comm_out, n, id, rank, NULL);
}

/* ---- splits ---- */

static LoopSplit *split_new(guint n) {
    LoopSplit *split = g_new0(LoopSplit, 1);

    split->colors = g_new0(int, n);
    split->keys = g_new0(int, n);
    split->called = g_new0(gboolean, n);
    split->worlds = g_new0(LoopWorld *, n);
    split->ranks = g_new0(guint, n);
    return split;
}

static gboolean comes_before(const LoopSplit *split, guint a, guint b) {
    const int key_a = split->keys[a], key_b = split->keys[b];

    return key_a != key_b ? key_a < key_b : a < b;
}

/* All have called: the members of each colour, by key and then by rank. */
static void divide(const LoopWorld *parent, LoopSplit *split) {
    for (guint r = 0; r < parent->n; r++) {
        guint n = 0;

        if (split->colors[r] == NCCL_SPLIT_NOCOLOR)
            continue;
        for (guint other = 0; other < parent->n; other++)
            if (split->colors[other] == split->colors[r]) {
                split->ranks[r] += comes_before(split, other, r) ? 1 : 0;
                n++;
                if (other < r)
                    split->worlds[r] = split->worlds[other];
            }
        if (split->worlds[r] == NULL) {
            split->worlds[r] = world_new(n, parent->device);
            split->worlds[r]->n_came = n;
        }
    }
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *comm_out,
                           ncclConfig_t *config) {
    LoopWorld *world = comm->world;
    ncclResult_t result;

    if (loop_in_group())
        return loop_fail(ncclInvalidUsage, "a communicator is split within a group");
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return loop_fail(ncclInvalidArgument, "colour %d", color);
    *comm_out = NULL;
    loop_lock();
    result = loop_progress(comm);
    if (result != ncclSuccess) {
        if (result == ncclInProgress)
            result = loop_fail(ncclInvalidUsage, "rank %u: a split while the communicator is busy",
                               comm->rank);
    } else {
        if (comm->n_splits == world->splits->len)
            g_ptr_array_add(world->splits, split_new(world->n));
        LoopSplit *split = g_ptr_array_index(world->splits, comm->n_splits++);
        split->colors[comm->rank] = color;
        split->keys[comm->rank] = key;
        split->called[comm->rank] = TRUE;
        if (++split->n_called == world->n)
            divide(world, split);
        comm->split = split;
        comm->split_out = comm_out;
        comm->split_blocking = config != NULL ? config->blocking != 0 : comm->blocking;
        loop_changed();
        result = complete(comm);
    }
    loop_unlock();
    return result;
}

/* ---- state ---- */

ncclResult_t loop_progress(ncclComm_t comm) {
    const LoopWorld *world = comm->world;

    if (world->failure != ncclSuccess)
        return loop_fail(world->failure, "%s", world->text);
    if (world->n_came < world->n)
        return ncclInProgress;
    if (comm->split != NULL) {
        LoopSplit *split = comm->split;
        if (split->n_called < world->n)
            return ncclInProgress;
        comm->split = NULL;
        if (split->worlds[comm->rank] != NULL)
            *comm->split_out =
                comm_new(split->worlds[comm->rank], split->ranks[comm->rank], comm->split_blocking);
    }
    return comm->group != NULL ? loop_group_advance(comm->group) : ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state_out) {
    loop_lock();
    *state_out = loop_progress(comm);
    loop_unlock();
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    ncclResult_t result;

    loop_lock();
    result = loop_progress(comm);
    if (result == ncclInProgress || comm->finalized)
        result = loop_fail(ncclInvalidUsage, "rank %u: the communicator %s", comm->rank,
                           comm->finalized ? "is ended twice" : "is busy");
    else
        comm->finalized = TRUE;
    loop_unlock();
    return result;
}

static void comm_free(ncclComm_t comm) {
    if (comm->split != NULL && comm->split->worlds[comm->rank] != NULL)
        world_leave(comm->split->worlds[comm->rank]); /* divided, never taken */
    world_leave(comm->world);
    g_free(comm);
    n_comms--;
}

guint loop_n_comms(void) {
    loop_lock();
    guint n = n_comms;
    loop_unlock();
    return n;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    loop_lock();
    gboolean busy = comm->group != NULL || comm->split != NULL;
    if (!busy)
        comm_free(comm);
    loop_unlock();
    return busy ? loop_fail(ncclInvalidUsage, "a busy communicator is destroyed") : ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    loop_lock();
    if (comm->group != NULL)
        loop_group_drop(comm);
    comm_free(comm);
    loop_unlock();
    return ncclSuccess;
}
