/*
 * The entry points of the NCCL M2N interface: handles, groups, last errors.
 *
 * A handle keeps one mover per communicator it was used with, made by the first call. Calls inside
 * of a group are copied into a list of this thread; the end of the group sorts them by handle,
 * communicator and stream and carries out each set as one move. A call outside is a group of one.
 * Handles are known by a table, so that a stale one is an error. Cost: that of the moves.
 */

#include "lib/refit-m2n-private.h"

#include <pthread.h>
#include <string.h>

struct ncclM2nHandle {
    guint max_blocks;  /* 0: the executor's choice */
    GPtrArray *movers; /* of M2nMover */
};

/* A recorded call. */
typedef struct {
    ncclM2nHandle_t handle; /* as stated */
    ncclComm_t comm;
    cudaStream_t stream; /* the legacy default stream is NULL */
    M2nCall call;
} Entry;

/* Of one thread. */
typedef struct {
    char last_error[1024];
    guint depth; /* of groups */
    ncclResult_t group_result;
    char group_error[1024];
    GArray *entries; /* of Entry; NULL: none */
} Thread;

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of the three below and of all lists of movers */
static GHashTable *handles;    /* set of those that were made and not finalized */
static ncclM2nHandle_t shared; /* of calls without a handle; NULL: not made yet */
static gboolean probed;

static void free_thread(gpointer data) {
    Thread *thread = data;

    if (thread->entries != NULL)
        g_array_unref(thread->entries);
    g_free(thread);
}

static Thread *this_thread(void) {
    static GPrivate key = G_PRIVATE_INIT(free_thread);
    Thread *thread = g_private_get(&key);

    if (thread == NULL) {
        thread = g_new0(Thread, 1);
        g_private_set(&key, thread);
    }
    return thread;
}

/* ---- errors ---- */

static ncclResult_t result_of(const GError *error) {
    if (error->domain != REFIT_ERROR)
        return ncclSystemError;
    switch ((RefitError)error->code) {
    case REFIT_ERROR_BACKEND:
    case REFIT_ERROR_NOT_SUPPORTED:
        return ncclSystemError;
    case REFIT_ERROR_COVERAGE:
    case REFIT_ERROR_INFEASIBLE:
    case REFIT_ERROR_LIMIT:
        return ncclInternalError;
    default:
        return ncclInvalidArgument;
    }
}

static ncclResult_t fail(const char *function, GError *error) {
    Thread *thread = this_thread();
    ncclResult_t result = result_of(error);

    g_snprintf(thread->last_error, sizeof thread->last_error, "%s: %s", function, error->message);
    g_error_free(error);
    return result;
}

static ncclResult_t refuse(const char *function, ncclResult_t result, const char *why) {
    Thread *thread = this_thread();

    g_snprintf(thread->last_error, sizeof thread->last_error, "%s: %s", function, why);
    return result;
}

const char *ncclM2nGetLastError(void) {
    return this_thread()->last_error;
}

/* ---- handles ---- */

static ncclM2nHandle_t new_handle(const ncclM2nConfig_t *config, GError **error) {
    ncclM2nHandle_t handle;

    if (!probed && !refit_gpu.executor.probe(error))
        return NULL;
    probed = TRUE;
    handle = g_new0(struct ncclM2nHandle, 1);
    handle->max_blocks = config != NULL && config->maxCta > 0 ? (guint)config->maxCta : 0;
    handle->movers = g_ptr_array_new();
    return handle;
}

static void free_handle(ncclM2nHandle_t handle) {
    for (guint i = 0; i < handle->movers->len; i++)
        m2n_mover_free(g_ptr_array_index(handle->movers, i));
    g_ptr_array_unref(handle->movers);
    g_free(handle);
}

ncclResult_t ncclM2nInit(ncclM2nHandle_t *handle, const ncclM2nConfig_t *config) {
    GError *error = NULL;

    this_thread()->last_error[0] = '\0';
    if (handle == NULL)
        return refuse(G_STRFUNC, ncclInvalidArgument, "there is no place for the handle");
    *handle = NULL;
    if (config != NULL && (config->size != sizeof *config || config->magic != NCCL_M2N_API_MAGIC))
        return refuse(G_STRFUNC, ncclInvalidArgument,
                      "the config is malformed; use NCCL_M2N_CONFIG_INITIALIZER");
    pthread_mutex_lock(&lock);
    *handle = new_handle(config, &error);
    if (handles == NULL)
        handles = g_hash_table_new(NULL, NULL);
    if (*handle != NULL)
        g_hash_table_add(handles, *handle);
    pthread_mutex_unlock(&lock);
    return *handle != NULL ? ncclSuccess : fail(G_STRFUNC, error);
}

ncclResult_t ncclM2nFinalize(ncclM2nHandle_t handle) {
    ncclM2nHandle_t found;

    this_thread()->last_error[0] = '\0';
    if (this_thread()->depth > 0)
        return refuse(G_STRFUNC, ncclInvalidArgument, "a group is active on this thread");
    pthread_mutex_lock(&lock);
    if (handle == NULL)
        found = g_steal_pointer(&shared);
    else
        found = handles != NULL && g_hash_table_remove(handles, handle) ? handle : NULL;
    pthread_mutex_unlock(&lock);
    if (found != NULL)
        free_handle(found);
    else if (handle != NULL)
        return refuse(G_STRFUNC, ncclInvalidArgument, "no such handle, or finalized before");
    return ncclSuccess;
}

static ncclM2nHandle_t find_handle(ncclM2nHandle_t handle, GError **error) {
    if (handle == NULL) {
        if (shared == NULL)
            shared = new_handle(NULL, error);
        return shared;
    }
    if (handles != NULL && g_hash_table_contains(handles, handle))
        return handle;
    g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "no such handle, or finalized before");
    return NULL;
}

/* The mover of the communicator, made outside of the lock, as other ranks may be threads. */
static M2nMover *find_mover(ncclM2nHandle_t stated, ncclComm_t comm, GError **error) {
    ncclM2nHandle_t handle;
    M2nMover *mover = NULL;
    guint max_blocks = 0;

    pthread_mutex_lock(&lock);
    handle = find_handle(stated, error);
    for (guint i = 0; handle != NULL && i < handle->movers->len; i++)
        if (m2n_mover_comm(g_ptr_array_index(handle->movers, i)) == comm)
            mover = g_ptr_array_index(handle->movers, i);
    if (handle != NULL)
        max_blocks = handle->max_blocks;
    pthread_mutex_unlock(&lock);
    if (handle == NULL || mover != NULL)
        return mover;
    mover = m2n_mover_new(comm, max_blocks, error);
    if (mover != NULL) {
        pthread_mutex_lock(&lock);
        g_ptr_array_add(handle->movers, mover);
        pthread_mutex_unlock(&lock);
    }
    return mover;
}

/* ---- carrying out ---- */

static gboolean same_context(const Entry *a, const Entry *b) {
    return a->handle == b->handle && a->comm == b->comm && a->stream == b->stream;
}

/* Those of `entries` with the context of entry `first`. */
static gboolean issue_context(const GArray *entries, guint first, GError **error) {
    const Entry *context = &g_array_index(entries, Entry, first);
    g_autoptr(GArray) calls = g_array_new(FALSE, FALSE, sizeof(M2nCall));
    M2nMover *mover;
    int device = 0;
    gboolean well;

    for (guint i = first; i < entries->len; i++)
        if (same_context(context, &g_array_index(entries, Entry, i)))
            g_array_append_val(calls, g_array_index(entries, Entry, i).call);
    if (!m2n_cuda(cudaGetDevice(&device), "cudaGetDevice", error))
        return FALSE;
    mover = find_mover(context->handle, context->comm, error);
    well = mover != NULL && m2n_mover_run(mover, (const M2nCall *)(const void *)calls->data,
                                          calls->len, context->stream, error);
    cudaSetDevice(device);
    return well;
}

static ncclResult_t issue(const char *function, const GArray *entries) {
    GError *error = NULL;

    for (guint i = 0; i < entries->len; i++) {
        guint first = 0;
        while (
            !same_context(&g_array_index(entries, Entry, first), &g_array_index(entries, Entry, i)))
            first++;
        if (first == i && !issue_context(entries, i, &error))
            return fail(function, error);
    }
    return ncclSuccess;
}

static ncclResult_t check_stream(const char *function, cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t result = cudaStreamIsCapturing(stream, &status);

    if (result == cudaSuccess && status == cudaStreamCaptureStatusNone)
        return ncclSuccess;
    if (result == cudaSuccess || result == cudaErrorStreamCaptureImplicit)
        return refuse(
            function, ncclInvalidUsage,
            "the stream is being captured into a graph, which a reshard cannot be part of");
    return refuse(function, ncclInvalidArgument, cudaGetErrorString(result));
}

static ncclResult_t reshard(const char *function, ncclM2nHandle_t handle, ncclComm_t comm,
                            const ncclDistTensor_t *src, const ncclDistTensor_t *dst,
                            cudaStream_t stream) {
    Entry entry = {
        .handle = handle, .comm = comm, .stream = stream == cudaStreamLegacy ? NULL : stream};
    GError *error = NULL;
    ncclResult_t result = check_stream(function, stream);

    if (result != ncclSuccess)
        return result;
    if (comm == NULL)
        return refuse(function, ncclInvalidArgument, "the communicator is NULL");
    if (!m2n_call_read(src, dst, &entry.call, &error))
        return fail(function, error);
    Thread *thread = this_thread();
    if (thread->depth > 0) {
        entry.call.number = thread->entries->len;
        g_array_append_val(thread->entries, entry);
        return ncclSuccess;
    }
    g_autoptr(GArray) alone = g_array_new(FALSE, FALSE, sizeof(Entry));
    g_array_append_val(alone, entry);
    return issue(function, alone);
}

/* A group keeps the first error of its calls and refuses those after it. */
static ncclResult_t reshard_or_keep(const char *function, ncclM2nHandle_t handle, ncclComm_t comm,
                                    const ncclDistTensor_t *src, const ncclDistTensor_t *dst,
                                    cudaStream_t stream) {
    Thread *thread = this_thread();
    ncclResult_t result;

    thread->last_error[0] = '\0';
    if (thread->depth > 0 && thread->group_result != ncclSuccess) {
        g_strlcpy(thread->last_error, thread->group_error, sizeof thread->last_error);
        return thread->group_result;
    }
    result = reshard(function, handle, comm, src, dst, stream);
    if (thread->depth > 0 && result != ncclSuccess) {
        thread->group_result = result;
        g_snprintf(thread->group_error, sizeof thread->group_error, "call %u: %s",
                   thread->entries->len, thread->last_error);
    }
    return result;
}

ncclResult_t ncclReshard(ncclM2nHandle_t handle, ncclComm_t comm, const ncclDistTensor_t *src,
                         const ncclDistTensor_t *dst, cudaStream_t stream) {
    return reshard_or_keep(G_STRFUNC, handle, comm, src, dst, stream);
}

ncclResult_t ncclReshardWithWindow(ncclM2nHandle_t handle, ncclComm_t comm, ncclWindow_t window,
                                   const ncclDistTensor_t *src, const ncclDistTensor_t *dst,
                                   cudaStream_t stream) {
    (void)window;
    return reshard_or_keep(G_STRFUNC, handle, comm, src, dst, stream);
}

/* ---- groups ---- */

ncclResult_t ncclM2nGroupStart(void) {
    Thread *thread = this_thread();

    thread->last_error[0] = '\0';
    if (thread->depth++ == 0) {
        thread->group_result = ncclSuccess;
        if (thread->entries == NULL)
            thread->entries = g_array_new(FALSE, FALSE, sizeof(Entry));
    }
    return ncclSuccess;
}

ncclResult_t ncclM2nGroupEnd(void) {
    Thread *thread = this_thread();

    thread->last_error[0] = '\0';
    if (thread->depth == 0)
        return refuse(G_STRFUNC, ncclInvalidUsage, "no group is active on this thread");
    if (--thread->depth > 0)
        return ncclSuccess;
    g_autoptr(GArray) entries = g_steal_pointer(&thread->entries);
    if (thread->group_result != ncclSuccess) {
        g_strlcpy(thread->last_error, thread->group_error, sizeof thread->last_error);
        return thread->group_result;
    }
    return issue(G_STRFUNC, entries);
}

ncclResult_t ncclM2nGroupAbort(void) {
    Thread *thread = this_thread();

    thread->last_error[0] = '\0';
    thread->depth = 0;
    g_clear_pointer(&thread->entries, g_array_unref);
    return ncclSuccess;
}
