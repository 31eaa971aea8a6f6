/*
 * Communicators: set-up, split, state, end. Ranks meet through their link's gather, which tells
 * everyone where everyone is; two ranks on one device of one host are refused as NCCL does. A
 * non-blocking communicator does this on a thread of its own and reports ncclInProgress meanwhile,
 * and a group on it begins only after its state has been asked for, so an executor that does not
 * wait for that is found out. Abort is local, as NCCL's is: peers notice by their own time-out or
 * by a lost connection.
 */

#include "standin-nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMM_MAGIC = 0xc0330 };

static _Thread_local char thread_error[256];
static _Atomic uint32_t n_comms[STANDIN_MAX_DEVICES];

/* Set-up jobs, streams and the host may fail at the same time. */
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;

void standin_comm_say(ncclComm_t comm, const char *text) {
    pthread_mutex_lock(&error_lock);
    g_strlcpy(comm->last_error, text, sizeof comm->last_error);
    pthread_mutex_unlock(&error_lock);
}

ncclResult_t standin_nccl_fail(ncclComm_t comm, ncclResult_t result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    g_vsnprintf(thread_error, sizeof thread_error, format, arguments);
    va_end(arguments);
    if (comm != NULL) {
        standin_comm_say(comm, thread_error);
    }
    return result;
}

ncclResult_t standin_nccl_enter(const char *function, ncclComm_t comm) {
    const int device = comm != NULL ? comm->device : standin_device();
    if (comm != NULL && comm->magic != COMM_MAGIC) {
        standin_die("%s on what is not, or no longer, a communicator", function);
    }
    if (standin_options()->no_driver) {
        return standin_nccl_fail(comm, ncclUnhandledCudaError,
                                 "Cuda failure 'CUDA driver version is insufficient'");
    }
    if (standin_fault(function, device)) {
        return standin_nccl_fail(comm, ncclSystemError, "planned fault in %s", function);
    }
    if (standin_device_lost(device)) {
        return standin_nccl_fail(comm, ncclUnhandledCudaError, "Cuda failure 'uncorrectable ECC'");
    }
    return ncclSuccess;
}

const StandinTransport *standin_transport(void) {
    return standin_options()->tcp ? &standin_tcp_transport : &standin_memory_transport;
}

/* ---- set-up ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id_out) {
    char why[128] = "";
    if (standin_fault("ncclGetUniqueId", standin_device())) {
        return standin_nccl_fail(NULL, ncclSystemError, "planned fault in ncclGetUniqueId");
    }
    G_STATIC_ASSERT(sizeof id_out->internal == STANDIN_ID_SIZE);
    memset(id_out, 0, sizeof *id_out);
    if (!standin_transport()->announce(id_out->internal, why, sizeof why)) {
        return standin_nccl_fail(NULL, ncclSystemError, "ncclGetUniqueId: %s", why);
    }
    return ncclSuccess;
}

static guint64 hash_of(const char *kind, const char *name, int number) {
    g_autofree char *text = g_strdup_printf("%s %s %d", kind, name, number);
    guint64 hash = 14695981039346656037u;
    for (const char *c = text; *c != '\0'; c++) {
        hash = (hash ^ (guint8)*c) * 1099511628211u;
    }
    return hash;
}

static StandinMember member_of(int device) {
    const int per_host = standin_options()->host_devices;
    const char *stated = getenv("NCCL_HOSTID"); /* as the real library */
    const char *group = getenv("REFIT_STANDIN_FAST_GROUP");
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    StandinMember member = {
        .host =
            hash_of("host", stated != NULL ? stated : name, per_host > 0 ? device / per_host : 0),
        .process = hash_of("process", name, (int)getpid()),
        .device = device,
        .rail = per_host > 0 ? device % per_host : device,
    };
    member.node = group != NULL && *group != '\0' ? hash_of("group", group, 0) : member.host;
    return member;
}

static void comm_free(ncclComm_t comm) {
    comm->magic = 0;
    atomic_fetch_sub_explicit(&n_comms[comm->device], 1, memory_order_relaxed);
    if (comm->deferred != NULL) {
        g_array_unref(comm->deferred);
    }
    standin_connect_clear(comm);
    if (comm->link != NULL) {
        comm->transport->withdraw(comm->id);
        comm->transport->leave(comm->link);
    }
    standin_layout_clear(comm);
    g_free(comm->members);
    g_free(comm->pairs);
    g_free(comm);
}

static ncclComm_t comm_new(int rank, int n, const char *name, const StandinConfig *config,
                           int device) {
    ncclComm_t comm = g_new0(struct ncclComm, 1);
    comm->magic = COMM_MAGIC;
    comm->transport = standin_transport();
    comm->rank = rank;
    comm->n = n;
    comm->device = device;
    comm->config = *config;
    g_strlcpy(comm->name, name, sizeof comm->name);
    comm->members = g_new0(StandinMember, (gsize)n);
    comm->pairs = g_new0(StandinPair, (gsize)n);
    atomic_fetch_add_explicit(&n_comms[device], 1, memory_order_relaxed);
    return comm;
}

static ncclResult_t comm_join(ncclComm_t comm, const char *id) {
    char why[128] = "";
    memcpy(comm->id, id, sizeof comm->id);
    comm->link = comm->transport->join(id, comm->rank, comm->n, why, sizeof why);
    if (comm->link == NULL) {
        return standin_nccl_fail(comm, ncclSystemError, "%s transport: %s", comm->transport->name,
                                 why);
    }
    return ncclSuccess;
}

/* Meets the other ranks, unless *aborted becomes true. */
static ncclResult_t comm_meet(ncclComm_t comm, _Atomic bool *aborted) {
    const StandinMember me = member_of(comm->device);
    if (!comm->transport->gather(comm->link, &me, sizeof me, comm->members, aborted,
                                 comm->config.nonblocking)) {
        return standin_nccl_fail(comm, ncclRemoteError, "rank %d: a peer left during set-up",
                                 comm->rank);
    }
    comm->transport->withdraw(comm->id);
    for (int i = 0; i < comm->n; i++) {
        const StandinMember *other = &comm->members[i];
        if (i != comm->rank && other->host == me.host && other->device == me.device) {
            return standin_nccl_fail(
                comm, ncclInvalidUsage,
                "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", comm->rank,
                i, (guint)me.device);
        }
    }
    standin_layout_init(comm);
    standin_connect_init(comm);
    return ncclSuccess;
}

static ncclResult_t comm_join_and_meet(ncclComm_t comm, const char *id, _Atomic bool *aborted) {
    ncclResult_t result = comm_join(comm, id);
    if (result == ncclSuccess) {
        result = comm_meet(comm, aborted);
    }
    return result;
}

static void *meet_job(void *argument) {
    ncclComm_t comm = argument;
    standin_device_set(comm->device);
    atomic_store_explicit(&comm->error, (int)comm_meet(comm, &comm->aborted), memory_order_release);
    return NULL;
}

static void job_start(ncclComm_t comm, void *(*job)(void *), void *argument) {
    atomic_store_explicit(&comm->error, ncclInProgress, memory_order_relaxed);
    if (pthread_create(&comm->job, NULL, job, argument) != 0) {
        standin_die("no thread for a communicator");
    }
    comm->job_started = TRUE;
}

static void job_join(ncclComm_t comm) {
    if (comm->job_started) {
        pthread_join(comm->job, NULL);
        comm->job_started = FALSE;
    }
}

static ncclResult_t init_rank(ncclComm_t *comm_out, int n, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *config) {
    StandinConfig parsed;
    if (comm_out == NULL || n < 1 || n > STANDIN_MAX_RANKS || rank < 0 || rank >= n) {
        return standin_nccl_fail(NULL, ncclInvalidArgument, "Invalid rank requested : %d/%d", rank,
                                 n);
    }
    *comm_out = NULL;
    ncclResult_t result = standin_config_parse(config, &parsed);
    if (result != ncclSuccess) {
        return result;
    }
    ncclComm_t comm = comm_new(rank, n, "world", &parsed, standin_device());
    if (parsed.nonblocking) {
        result = comm_join(comm, id->internal);
        if (result == ncclSuccess) {
            *comm_out = comm;
            job_start(comm, meet_job, comm);
            return ncclInProgress;
        }
    } else {
        result = comm_join_and_meet(comm, id->internal, &comm->aborted);
    }
    if (result != ncclSuccess) {
        comm_free(comm);
        return result;
    }
    *comm_out = comm;
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm_out, int n, ncclUniqueId id, int rank) {
    STANDIN_NCCL_ENTER(ncclCommInitRank, NULL);
    return init_rank(comm_out, n, &id, rank, NULL);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm_out, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    STANDIN_NCCL_ENTER(ncclCommInitRankConfig, NULL);
    return init_rank(comm_out, n, &id, rank, config);
}

/* ---- split ---- */

typedef struct {
    gint32 color, key;
    char id[STANDIN_ID_SIZE]; /* of a communicator that this rank could be the first of */
} Choice;

typedef struct {
    ncclComm_t parent;
    gint32 color, key;
    StandinConfig config; /* of the new one */
    ncclComm_t *comm_out;
} Split;

/* Whether rank `a` comes before rank `b` in a part. */
static gboolean comes_before(const Choice *all, int a, int b) {
    return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
}

/* Ranks of one color, in the order of their keys, meet under the id of the first of them. */
static ncclResult_t split_run(const Split *split) {
    ncclComm_t parent = split->parent;
    g_autofree Choice *all = g_new0(Choice, (gsize)parent->n);
    Choice mine = {split->color, split->key, ""};
    char why[128] = "";
    int n = 0, rank = 0, first = parent->rank;

    if (split->color != NCCL_SPLIT_NOCOLOR &&
        !parent->transport->announce(mine.id, why, sizeof why)) {
        return standin_nccl_fail(parent, ncclSystemError, "ncclCommSplit: %s", why);
    }
    if (!parent->transport->gather(parent->link, &mine, sizeof mine, all, &parent->aborted,
                                   parent->config.nonblocking)) {
        return standin_nccl_fail(parent, ncclRemoteError, "rank %d: a peer left during a split",
                                 parent->rank);
    }
    parent->n_splits++;
    if (split->color == NCCL_SPLIT_NOCOLOR) {
        return ncclSuccess;
    }
    for (int i = 0; i < parent->n; i++) {
        if (all[i].color != split->color) {
            continue;
        }
        n++;
        rank += comes_before(all, i, parent->rank);
        if (comes_before(all, i, first)) {
            first = i;
        }
    }
    g_autofree char *name =
        g_strdup_printf("%s split %u color %d", parent->name, parent->n_splits, split->color);
    ncclComm_t comm = comm_new(rank, n, name, &split->config, parent->device);
    /* An abort of the parent ends this, too. */
    const ncclResult_t result = comm_join_and_meet(comm, all[first].id, &parent->aborted);
    if (first != parent->rank) {
        parent->transport->withdraw(mine.id);
    }
    if (result != ncclSuccess) {
        standin_comm_say(parent, comm->last_error);
        comm_free(comm);
        return result;
    }
    __atomic_store_n(split->comm_out, comm, __ATOMIC_RELEASE);
    return ncclSuccess;
}

static void *split_job(void *argument) {
    g_autofree Split *split = argument;
    standin_device_set(split->parent->device);
    const ncclResult_t result = split_run(split);
    atomic_store_explicit(&split->parent->error, (int)result, memory_order_release);
    return NULL;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm_out,
                           ncclConfig_t *config) {
    STANDIN_NCCL_ENTER(ncclCommSplit, parent);
    if (parent == NULL || comm_out == NULL || (color < 0 && color != NCCL_SPLIT_NOCOLOR) ||
        atomic_load_explicit(&parent->error, memory_order_relaxed) != ncclSuccess) {
        return standin_nccl_fail(parent, ncclInvalidArgument,
                                 "ncclCommSplit : wrong argument, or communicator still busy");
    }
    *comm_out = NULL;
    Split split = {
        .parent = parent,
        .color = color,
        .key = key,
        .config = parent->config, /* a config of its own inherits nothing (init.cc:2597) */
        .comm_out = comm_out,
    };
    const ncclResult_t result =
        config != NULL ? standin_config_parse(config, &split.config) : ncclSuccess;
    if (result != ncclSuccess) {
        standin_comm_say(parent, ncclGetLastError(NULL));
        return result;
    }
    /* The parent's kind decides who runs it, the new one's only how that works later. */
    if (!parent->config.nonblocking) {
        return split_run(&split);
    }
    /* The new handle is there when the parent is no longer in progress. */
    job_join(parent);
    job_start(parent, split_job, g_memdup2(&split, sizeof split));
    return ncclInProgress;
}

/* ---- state and end ---- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error_out) {
    STANDIN_NCCL_ENTER(ncclCommGetAsyncError, comm);
    standin_group_poll(comm);
    if (comm->finalizing &&
        atomic_load_explicit(&comm->n_finished, memory_order_acquire) == comm->n_launched) {
        comm->finalizing = FALSE;
        atomic_store_explicit(&comm->error, ncclSuccess, memory_order_relaxed);
    }
    *error_out = (ncclResult_t)atomic_load_explicit(&comm->error, memory_order_acquire);
    if (*error_out == ncclInProgress) {
        standin_watch("ncclCommGetAsyncError");
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    STANDIN_NCCL_ENTER(ncclCommFinalize, comm);
    if (comm->config.nonblocking) {
        comm->finalizing = TRUE;
        atomic_store_explicit(&comm->error, ncclInProgress, memory_order_relaxed);
        return ncclInProgress;
    }
    standin_wait(&comm->n_finished, comm->n_launched, "ncclCommFinalize");
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (comm == NULL) {
        return ncclSuccess;
    }
    STANDIN_NCCL_ENTER(ncclCommDestroy, comm);
    if (atomic_load_explicit(&comm->n_registered, memory_order_relaxed) > 0) {
        standin_die("ncclCommDestroy with registered buffers left");
    }
    if (comm->deferred != NULL) {
        standin_die("ncclCommDestroy with a group that is still in progress");
    }
    job_join(comm);
    standin_wait(&comm->n_finished, comm->n_launched, "ncclCommDestroy");
    comm_free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (comm == NULL) {
        return ncclSuccess;
    }
    if (comm->magic != COMM_MAGIC) {
        standin_die("ncclCommAbort on what is not, or no longer, a communicator");
    }
    standin_fault("ncclCommAbort", comm->device);
    atomic_store_explicit(&comm->aborted, true, memory_order_relaxed);
    comm->transport->interrupt(comm->link);
    job_join(comm);
    while (atomic_load_explicit(&comm->n_callers, memory_order_acquire) > 0) {
        standin_watch("ncclCommAbort, for a thread within a group");
        g_usleep(100);
    }
    standin_wait(&comm->n_finished, comm->n_launched, "ncclCommAbort");
    comm_free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *n_out) {
    STANDIN_NCCL_ENTER(ncclCommCount, comm);
    *n_out = comm->n;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank_out) {
    STANDIN_NCCL_ENTER(ncclCommUserRank, comm);
    *rank_out = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device_out) {
    STANDIN_NCCL_ENTER(ncclCommCuDevice, comm);
    *device_out = comm->device;
    return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version_out) {
    *version_out = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetLastError(ncclComm_t comm) {
    static _Thread_local char text[sizeof thread_error];

    if (comm == NULL) {
        return thread_error;
    }
    pthread_mutex_lock(&error_lock);
    memcpy(text, comm->last_error, sizeof text);
    pthread_mutex_unlock(&error_lock);
    return text;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        [ncclSystemError] = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        [ncclInternalError] = "internal error - please report this issue to the NCCL developers",
        [ncclInvalidArgument] = "invalid argument (run with NCCL_DEBUG=WARN for details)",
        [ncclInvalidUsage] = "invalid usage (run with NCCL_DEBUG=WARN for details)",
        [ncclRemoteError] = "remote process exited or there was a network error",
        [ncclInProgress] = "NCCL operation in progress",
    };
    return (guint)result < G_N_ELEMENTS(texts) ? texts[result] : "unknown result code";
}

/* ---- buffers ---- */

ncclResult_t ncclMemAlloc(void **address_out, size_t size) {
    STANDIN_NCCL_ENTER(ncclMemAlloc, NULL);
    if (cudaMalloc(address_out, size) != cudaSuccess) {
        return standin_nccl_fail(NULL, ncclUnhandledCudaError, "Cuda failure 'out of memory'");
    }
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *address) {
    STANDIN_NCCL_ENTER(ncclMemFree, NULL);
    return cudaFree(address) == cudaSuccess
               ? ncclSuccess
               : standin_nccl_fail(NULL, ncclUnhandledCudaError, "Cuda failure 'invalid argument'");
}

static ncclResult_t register_buffer(ncclComm_t comm, const char *function, const void *buffer,
                                    size_t size) {
    const char *why = standin_range_error(buffer, size, comm->device, FALSE);
    if (why != NULL) {
        return standin_nccl_fail(comm, ncclInvalidArgument, "%s : %s", function, why);
    }
    atomic_fetch_add_explicit(&comm->n_registered, 1, memory_order_relaxed);
    return ncclSuccess;
}

static ncclResult_t unregister_buffer(ncclComm_t comm) {
    if (atomic_fetch_sub_explicit(&comm->n_registered, 1, memory_order_relaxed) == 0) {
        standin_die("more buffers unregistered than registered");
    }
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle_out) {
    STANDIN_NCCL_ENTER(ncclCommRegister, comm);
    *handle_out = buffer;
    return register_buffer(comm, "ncclCommRegister", buffer, size);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    STANDIN_NCCL_ENTER(ncclCommDeregister, comm);
    (void)handle;
    return unregister_buffer(comm);
}

/* A window here is a registration: there is no device-side access to it. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size,
                                    ncclWindow_t *window_out, int flags) {
    STANDIN_NCCL_ENTER(ncclCommWindowRegister, comm);
    (void)flags;
    *window_out = (ncclWindow_t)buffer;
    return register_buffer(comm, "ncclCommWindowRegister", buffer, size);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    STANDIN_NCCL_ENTER(ncclCommWindowDeregister, comm);
    (void)window;
    return unregister_buffer(comm);
}

unsigned standin_comms_of(int device) {
    return standin_device_hung(device) ? 0 : atomic_load(&n_comms[device]);
}

guint standin_comm_leaks(void) {
    guint n = 0;
    for (int device = 0; device < STANDIN_MAX_DEVICES; device++) {
        n += standin_comms_of(device);
    }
    return n;
}
