/*
 * Communicators: one of all ranks for the network, and one per NVLink domain, because NCCL gives a
 * communicator that has network peers few channels and small chunks for NVLink peers, too. Both are
 * non-blocking, so that no call can wait for ever: set-up, groups and the end are polled, within
 * the time of the call in progress. Cost: polling spins for some microseconds, then sleeps.
 */

#include "refit-gpu-private.h"

#include <limits.h>

enum { SPINS = 200, SLEEP_US = 50, CHECK_EVERY = 32 };

static gboolean fail_nccl(RefitGpuRank *self, ncclComm_t comm, ncclResult_t result,
                          const char *call, GError **error) {
    const char *last = ncclGetLastError(comm);

    /* Whose fault it is, the records of the other ranks will say. */
    self->waiting = result == ncclRemoteError;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: %s%s%s", call,
                ncclGetErrorString(result), last != NULL && *last != '\0' ? ": " : "",
                last != NULL ? last : "");
    return FALSE;
}

/* ncclSuccess and ncclInProgress are both well. */
static gboolean check_nccl(RefitGpuRank *self, ncclComm_t comm, ncclResult_t result,
                           const char *call, GError **error) {
    return result == ncclSuccess || result == ncclInProgress ||
           fail_nccl(self, comm, result, call, error);
}

static gboolean check_state(RefitGpuRank *self, ncclComm_t comm, const char *what,
                            gboolean *ready_out, GError **error) {
    ncclResult_t state = ncclSuccess;

    if (!check_nccl(self, comm, ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError",
                    error) ||
        !check_nccl(self, comm, state, what, error))
        return FALSE;
    *ready_out = state == ncclSuccess;
    return TRUE;
}

/* Whether to go on waiting; sleeps. */
static gboolean linger(RefitGpuRank *self, guint *n_polls, const char *what, GError **error) {
    if (g_atomic_int_get(&self->aborted) != 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: aborted by its user", what);
        return FALSE;
    }
    if (g_get_monotonic_time() > self->deadline_us) {
        self->waiting = TRUE;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: not done within %g s", what,
                    self->timeout_s);
        return FALSE;
    }
    if (self->peers.check != NULL && *n_polls % CHECK_EVERY == CHECK_EVERY - 1 &&
        !self->peers.check(self->peers.user_data, error)) {
        self->informed = TRUE;
        return FALSE;
    }
    if ((*n_polls)++ < SPINS)
        g_thread_yield();
    else
        g_usleep(SLEEP_US);
    return TRUE;
}

gboolean refit_gpu_comms_poll(RefitGpuRank *self, guint *n_polls, const char *what,
                              GError **error) {
    gboolean ready;

    return check_state(self, self->world, what, &ready, error) &&
           (self->domain == NULL || check_state(self, self->domain, what, &ready, error)) &&
           linger(self, n_polls, what, error);
}

static gboolean wait_ready(RefitGpuRank *self, ncclComm_t comm, const char *what, GError **error) {
    gboolean ready = FALSE;
    guint n_polls = 0;

    while (check_state(self, comm, what, &ready, error)) {
        if (ready)
            return TRUE;
        if (!linger(self, &n_polls, what, error))
            return FALSE;
    }
    return FALSE;
}

/* ---- set-up and end ---- */

static gboolean has_pairs(const RefitGpuRank *self) {
    for (guint r = 0; r < self->n_ranks; r++)
        if (self->domain_ranks[r] > 0)
            return TRUE;
    return FALSE;
}

gboolean refit_gpu_comms_open(RefitGpuRank *self, const ncclUniqueId *id, GError **error) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t result;

    config.blocking = 0;
    result =
        ncclCommInitRankConfig(&self->world, (int)self->n_ranks, *id, (int)self->rank, &config);
    if (!check_nccl(self, NULL, result, "ncclCommInitRankConfig", error) ||
        !wait_ready(self, self->world, "set-up of the communicator of all ranks", error))
        return FALSE;
    if (!has_pairs(self))
        return TRUE;
    /* Every rank of the parent must take part, also one alone in its domain. */
    self->splitting = TRUE;
    result = ncclCommSplit(self->world, (int)self->domains[self->rank], (int)self->rank,
                           &self->domain, &config);
    if (!check_nccl(self, self->world, result, "ncclCommSplit", error) ||
        !wait_ready(self, self->world, "set-up of the communicators of NVLink domains", error))
        return FALSE;
    self->splitting = FALSE;
    return wait_ready(self, self->domain, "set-up of the communicator of an NVLink domain", error);
}

static gpointer abort_one(gpointer comm) {
    ncclCommAbort(comm);
    return NULL;
}

void refit_gpu_comms_abort(RefitGpuRank *self) {
    ncclComm_t world = g_steal_pointer(&self->world);
    GThread *thread = NULL;

    self->broken = TRUE;
    if (!self->splitting && self->domain != NULL)
        thread = g_thread_new("refit-abort", abort_one, self->domain);
    if (world != NULL)
        ncclCommAbort(world);
    if (thread != NULL)
        g_thread_join(thread);
    else if (self->domain != NULL) /* NCCL set it until the split was aborted */
        ncclCommAbort(self->domain);
    self->domain = NULL;
}

static gboolean finalize(RefitGpuRank *self, ncclComm_t *comm) {
    if (!check_nccl(self, *comm, ncclCommFinalize(*comm), "ncclCommFinalize", NULL) ||
        !wait_ready(self, *comm, "end of a communicator", NULL) ||
        ncclCommDestroy(*comm) != ncclSuccess)
        return FALSE;
    *comm = NULL;
    return TRUE;
}

void refit_gpu_comms_close(RefitGpuRank *self) {
    self->deadline_us = g_get_monotonic_time() + (gint64)(self->timeout_s * G_USEC_PER_SEC);
    if (self->broken || (self->domain != NULL && !finalize(self, &self->domain)) ||
        (self->world != NULL && !finalize(self, &self->world)))
        refit_gpu_comms_abort(self);
}

/* ---- groups ---- */

static ncclResult_t submit(RefitGpuRank *self, const RefitGpuTurn *turn, ncclComm_t comm,
                           cudaStream_t stream) {
    const RefitGpuMessage *messages =
        &g_array_index(self->work->messages, RefitGpuMessage, turn->first_message);
    ncclResult_t result = ncclSuccess, end;

    for (guint i = 0; i < turn->n_messages && result == ncclSuccess; i++) {
        const RefitGpuMessage *message = &messages[i];
        int peer = (int)(comm == self->domain ? self->domain_ranks[message->peer] : message->peer);
        void *address = (void *)(guintptr)message->address; /* on the device */

        result = message->sends ? ncclSend(address, message->bytes, ncclUint8, peer, comm, stream)
                                : ncclRecv(address, message->bytes, ncclUint8, peer, comm, stream);
    }
    end = ncclGroupEnd(); /* in any case, or this thread stays in the group */
    return result == ncclSuccess ? end : result;
}

gboolean refit_gpu_comms_group(RefitGpuRank *self, const RefitGpuTurn *turn, GError **error) {
    const RefitGpuWork *work = self->work;
    const RefitProgramStep *step = &work->program->steps[turn->step];
    ncclComm_t comm = step->link == REFIT_LINK_NVLINK ? self->domain : self->world;

    return check_nccl(self, comm, ncclGroupStart(), "ncclGroupStart", error) &&
           check_nccl(self, comm, submit(self, turn, comm, work->flows[turn->flow].move),
                      "a group of ncclSend and ncclRecv", error) &&
           wait_ready(self, comm, "submission of a group", error);
}
