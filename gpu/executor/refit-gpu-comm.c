/*
 * Communicators. Streams of a schedule run side by side, and groups of one communicator never do,
 * so the schedule gives each stream one, as far as there are enough: of all ranks for the network;
 * of the NVLink domain for NVLink, because NCCL gives a communicator that has network peers few
 * channels and small chunks for NVLink peers, too. The first one of all ranks is made when the rank
 * is opened, others are split from it when a plan first wants them, and stay. All ranks submit
 * groups in the same order, whatever the communicator, and NCCL_LAUNCH_ORDER_IMPLICIT keeps that
 * order on the device, so that kernels that do not fit side by side wait for no later one.
 * Communicators are non-blocking: set-up, groups and the end are polled, within the time of the
 * call in progress. Cost: polling spins for some microseconds, then sleeps; a communicator, a
 * collective call and NCCL's buffers.
 */

#include "gpu/executor/refit-gpu-private.h"

#include <string.h>

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
    if (refit_gpu_is_late(self)) {
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

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint i = 0; i < self->n_comms[link]; i++)
            if (!check_state(self, self->comms[link][i], what, &ready, error))
                return FALSE;
    return linger(self, n_polls, what, error);
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

gboolean refit_gpu_comms_open(RefitGpuRank *self, const ncclUniqueId *id, GError **error) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t *world = &self->comms[REFIT_LINK_NETWORK][0];
    ncclResult_t result;

    config.blocking = 0;
    result = ncclCommInitRankConfig(world, (int)self->n_ranks, *id, (int)self->rank, &config);
    self->n_comms[REFIT_LINK_NETWORK] = *world != NULL ? 1 : 0;
    return check_nccl(self, NULL, result, "ncclCommInitRankConfig", error) &&
           wait_ready(self, *world, "set-up of the communicator of all ranks", error);
}

/* The next communicator of a link class. Every rank of the parent must take part, also one alone in
 * its NVLink domain. */
static gboolean split(RefitGpuRank *self, RefitLink link, GError **error) {
    ncclComm_t world = self->comms[REFIT_LINK_NETWORK][0];
    ncclComm_t *comm = &self->comms[link][self->n_comms[link]];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int color = link == REFIT_LINK_NVLINK ? (int)self->domains[self->rank] : 0;

    config.blocking = 0;
    self->splitting = comm;
    if (!check_nccl(self, world, ncclCommSplit(world, color, (int)self->rank, comm, &config),
                    "ncclCommSplit", error) ||
        !wait_ready(self, world, "set-up of the communicators of streams", error))
        return FALSE;
    self->splitting = NULL;
    self->n_comms[link]++;
    return wait_ready(self, *comm, "set-up of the communicator of a stream", error);
}

gboolean refit_gpu_comms_missing(const RefitGpuRank *self) {
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        if (self->n_comms[link] < self->work->program->schedule->n_comms[link])
            return TRUE;
    return FALSE;
}

gboolean refit_gpu_comms_extend(RefitGpuRank *self, GError **error) {
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        while (self->n_comms[link] < self->work->program->schedule->n_comms[link])
            if (!split(self, (RefitLink)link, error))
                return FALSE;
    return TRUE;
}

gint64 refit_gpu_comms_patience_us(const RefitGpuRank *self) {
    return (gint64)(G_USEC_PER_SEC *
                    MAX(self->timeout_s / 4, self->hung ? REFIT_GPU_HUNG_S : REFIT_GPU_ABORT_S));
}

/* An abort waits for the kernels in front of its communicator's: for ever, where one hangs. Hence
 * threads that can be left to themselves; all atomic. */
typedef struct {
    gint n_users, n_left;
} Aborts;

typedef struct {
    ncclComm_t comm;
    Aborts *aborts;
} Abort;

static void leave_aborts(Aborts *aborts) {
    if (g_atomic_int_dec_and_test(&aborts->n_users))
        g_free(aborts);
}

static gpointer abort_one(gpointer data) {
    g_autofree Abort *self = data;

    ncclCommAbort(self->comm);
    g_atomic_int_add(&self->aborts->n_left, -1);
    leave_aborts(self->aborts);
    return NULL;
}

static void start_abort(Aborts *aborts, ncclComm_t comm) {
    Abort *one = g_new(Abort, 1);

    *one = (Abort){comm, aborts};
    g_atomic_int_inc(&aborts->n_users);
    g_atomic_int_inc(&aborts->n_left);
    g_thread_unref(g_thread_new("refit-abort", abort_one, one));
}

void refit_gpu_comms_abort(RefitGpuRank *self) {
    gint64 until = g_get_monotonic_time() + refit_gpu_comms_patience_us(self);
    Aborts *aborts;

    self->broken = TRUE;
    if (self->n_comms[REFIT_LINK_NETWORK] == 0)
        return;
    aborts = g_new(Aborts, 1);
    *aborts = (Aborts){.n_users = 1};
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint i = 0; i < self->n_comms[link]; i++)
            start_abort(aborts, self->comms[link][i]);
    while (g_atomic_int_get(&aborts->n_left) > 0 && g_get_monotonic_time() < until)
        g_usleep(SLEEP_US);
    self->hung = g_atomic_int_get(&aborts->n_left) > 0;
    leave_aborts(aborts);
    /* NCCL may have set it until its parent was aborted. */
    if (!self->hung && self->splitting != NULL && *self->splitting != NULL)
        ncclCommAbort(*self->splitting);
    self->splitting = NULL;
    memset(self->n_comms, 0, sizeof self->n_comms);
}

static gboolean finalize(RefitGpuRank *self, ncclComm_t comm) {
    return check_nccl(self, comm, ncclCommFinalize(comm), "ncclCommFinalize", NULL) &&
           wait_ready(self, comm, "end of a communicator", NULL) &&
           ncclCommDestroy(comm) == ncclSuccess;
}

/* In one order on all ranks, in which the parent, the network's first, is the last to go. */
static gboolean finalize_all(RefitGpuRank *self) {
    G_STATIC_ASSERT(REFIT_LINK_NETWORK == REFIT_N_LINKS - 1);

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (; self->n_comms[link] > 0; self->n_comms[link]--)
            if (!finalize(self, self->comms[link][self->n_comms[link] - 1]))
                return FALSE;
    return TRUE;
}

void refit_gpu_comms_close(RefitGpuRank *self) {
    self->deadline_us = g_get_monotonic_time() + (gint64)(self->timeout_s * G_USEC_PER_SEC);
    if (self->broken || !finalize_all(self))
        refit_gpu_comms_abort(self);
}

/* ---- groups ---- */

static ncclResult_t submit(const RefitGpuRank *self, const RefitGpuTurn *turn, ncclComm_t comm,
                           gboolean in_domain, cudaStream_t stream) {
    const RefitGpuMessage *messages =
        &g_array_index(self->work->messages, RefitGpuMessage, turn->first_message);
    ncclResult_t result = ncclSuccess, end;

    for (guint i = 0; i < turn->n_messages && result == ncclSuccess; i++) {
        const RefitGpuMessage *message = &messages[i];
        int peer = (int)(in_domain ? self->domain_ranks[message->peer] : message->peer);
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
    ncclComm_t comm = self->comms[step->link][work->program->schedule->comm_of[step->stream]];
    gboolean in_domain = step->link == REFIT_LINK_NVLINK;

    return check_nccl(self, comm, ncclGroupStart(), "ncclGroupStart", error) &&
           check_nccl(self, comm, submit(self, turn, comm, in_domain, work->flows[turn->flow].move),
                      "a group of ncclSend and ncclRecv", error) &&
           wait_ready(self, comm, "submission of a group", error);
}
