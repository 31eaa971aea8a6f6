/*
 * Communicators. Streams of a schedule run side by side, and groups of one communicator never do,
 * so the schedule gives each stream one, as far as there are enough: of all ranks for the network;
 * of the NVLink domain for NVLink, because NCCL gives a communicator that has network peers few
 * channels and small chunks for NVLink peers, too. All of them are split from one of all ranks that
 * moves nothing, when a plan first wants them, and stay until a plan wants others.
 *
 * The schedule says how many channels each may have (refit-schedule-comms.h), so that the kernels
 * of all communicators find room side by side on the device. So none needs to be launched before
 * another, and NCCL_LAUNCH_ORDER_IMPLICIT, which would order the communicators of the whole process
 * and let one thread at a time launch, stays as it is.
 *
 * The parent is non-blocking: set-up is polled, within the time of the call in progress. Its
 * children are blocking, because NCCL makes a thread for each group of a non-blocking one (2.28.9,
 * group.cc:736); whether a child can be set up without waiting is its parent's affair
 * (group.cc:56). A group of a blocking communicator whose peers are connected (refit-gpu-connect.c)
 * waits for none of them. It could wait for room among the kernels that NCCL has queued: 1 MiB of
 * work, of which a group takes 32 bytes, 16 per batch and 48 per peer (enqueue.cc:1122). So many
 * turns as the schedule has in flight fit, REFIT_SCHEDULE_IN_FLIGHT of REFIT_STEP_OPERATIONS
 * messages each. So the thread that submits can always go on, see that the time is over, and abort.
 * (From another thread it must not: NCCL frees a communicator that it aborts, in use or not.) Cost:
 * polling spins for a while, then sleeps; a communicator, a collective call and NCCL's buffers.
 */

#include "gpu/executor/refit-gpu-private.h"

#include <string.h>

enum { SPIN_US = 100, SLEEP_US = 50, CHECK_EVERY = 32 };

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

gboolean refit_gpu_nccl(RefitGpuRank *self, ncclComm_t comm, ncclResult_t result, const char *call,
                        GError **error) {
    return result == ncclSuccess || result == ncclInProgress ||
           fail_nccl(self, comm, result, call, error);
}

static gboolean check_state(RefitGpuRank *self, ncclComm_t comm, const char *what,
                            gboolean *ready_out, GError **error) {
    ncclResult_t state = ncclSuccess;

    if (!refit_gpu_nccl(self, comm, ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError",
                        error) ||
        !refit_gpu_nccl(self, comm, state, what, error))
        return FALSE;
    *ready_out = state == ncclSuccess;
    return TRUE;
}

/* FALSE when the user has aborted. */
static gboolean is_wanted(const RefitGpuRank *self, const char *what, GError **error) {
    if (g_atomic_int_get(&self->aborted) == 0)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: aborted by its user", what);
    return FALSE;
}

gboolean refit_gpu_linger(RefitGpuRank *self, RefitGpuPoll *poll, const char *what,
                          GError **error) {
    if (!is_wanted(self, what, error))
        return FALSE;
    if (refit_gpu_is_late(self)) {
        self->waiting = TRUE;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: not done within %g s", what,
                    self->timeout_s);
        return FALSE;
    }
    if (self->peers.check != NULL && poll->n % CHECK_EVERY == CHECK_EVERY - 1 &&
        !self->peers.check(self->peers.user_data, error)) {
        self->informed = TRUE;
        return FALSE;
    }
    poll->n++;
    if (poll->since_us == 0)
        poll->since_us = g_get_monotonic_time();
    if (g_get_monotonic_time() - poll->since_us < SPIN_US)
        g_thread_yield();
    else
        g_usleep(SLEEP_US);
    return TRUE;
}

gboolean refit_gpu_comms_check(RefitGpuRank *self, const char *what, GError **error) {
    gboolean ready;

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint i = 0; i < self->n_comms[link]; i++)
            if (!check_state(self, self->comms[link][i], what, &ready, error))
                return FALSE;
    return TRUE;
}

gboolean refit_gpu_comms_poll(RefitGpuRank *self, RefitGpuPoll *poll, const char *what,
                              GError **error) {
    return refit_gpu_comms_check(self, what, error) && refit_gpu_linger(self, poll, what, error);
}

/* Of a communicator that is non-blocking. */
static gboolean wait_ready(RefitGpuRank *self, ncclComm_t comm, const char *what, GError **error) {
    gboolean ready = FALSE;
    RefitGpuPoll poll = {0};

    while (check_state(self, comm, what, &ready, error)) {
        if (ready)
            return TRUE;
        if (!refit_gpu_linger(self, &poll, what, error))
            return FALSE;
    }
    return FALSE;
}

/* ---- the end ---- */

gint64 refit_gpu_comms_patience_us(const RefitGpuRank *self) {
    return (gint64)(G_USEC_PER_SEC *
                    MAX(self->timeout_s / 4, self->hung ? REFIT_GPU_HUNG_S : REFIT_GPU_ABORT_S));
}

/* The end of a communicator waits for the kernels in front of its own: for ever, where one hangs.
 * Hence threads that can be left to themselves; all atomic. */
typedef struct {
    gint n_users, n_left;
} Ends;

typedef struct {
    ncclComm_t comm;
    gboolean aborts;
    Ends *ends;
} End;

static void leave_ends(Ends *ends) {
    if (g_atomic_int_dec_and_test(&ends->n_users))
        g_free(ends);
}

static gpointer end_one(gpointer data) {
    g_autofree End *self = data;

    if (self->aborts || ncclCommFinalize(self->comm) != ncclSuccess)
        ncclCommAbort(self->comm);
    else
        ncclCommDestroy(self->comm);
    g_atomic_int_add(&self->ends->n_left, -1);
    leave_ends(self->ends);
    return NULL;
}

static void start_end(Ends *ends, ncclComm_t comm, gboolean aborts) {
    End *one = g_new(End, 1);

    *one = (End){comm, aborts, ends};
    g_atomic_int_inc(&ends->n_users);
    g_atomic_int_inc(&ends->n_left);
    g_thread_unref(g_thread_new("refit-end", end_one, one));
}

/* Whether all have come to their end by then. */
static gboolean wait_for_ends(Ends *ends, gint64 until) {
    gboolean well;

    while (g_atomic_int_get(&ends->n_left) > 0 && g_get_monotonic_time() < until)
        g_usleep(SLEEP_US);
    well = g_atomic_int_get(&ends->n_left) == 0;
    leave_ends(ends);
    return well;
}

static Ends *new_ends(void) {
    Ends *ends = g_new(Ends, 1);

    *ends = (Ends){.n_users = 1};
    return ends;
}

void refit_gpu_comms_abort(RefitGpuRank *self) {
    gint64 until = g_get_monotonic_time() + refit_gpu_comms_patience_us(self);
    Ends *ends;

    self->broken = TRUE;
    if (self->world == NULL)
        return;
    ends = new_ends();
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint i = 0; i < self->n_comms[link]; i++)
            start_end(ends, self->comms[link][i], TRUE);
    start_end(ends, self->world, TRUE);
    self->hung = !wait_for_ends(ends, until);
    /* NCCL may have set it until its parent was aborted. */
    if (!self->hung && self->splitting != NULL && *self->splitting != NULL)
        ncclCommAbort(*self->splitting);
    self->splitting = NULL;
    self->world = NULL;
    memset(self->n_comms, 0, sizeof self->n_comms);
}

void refit_gpu_comms_leave(RefitGpuRank *self, ncclComm_t used) {
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint i = 0; i < self->n_comms[link]; i++)
            if (self->comms[link][i] == used)
                self->comms[link][i--] = self->comms[link][--self->n_comms[link]];
    refit_gpu_comms_abort(self);
    self->hung = TRUE;
}

/* All of a link class; their groups are done. */
static gboolean end_all(RefitGpuRank *self, RefitLink link, GError **error) {
    Ends *ends = new_ends();
    gboolean well;

    for (guint i = 0; i < self->n_comms[link]; i++)
        start_end(ends, self->comms[link][i], FALSE);
    self->n_comms[link] = 0;
    self->connection_bytes = self->taken_bytes = 0; /* of others, too: room is checked anew */
    well = wait_for_ends(ends, self->deadline_us);
    if (!well) {
        self->hung = TRUE; /* perhaps */
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "end of the communicators of streams: not done within %g s", self->timeout_s);
    }
    return well;
}

static gboolean finalize_world(RefitGpuRank *self) {
    ncclComm_t world = self->world;

    if (!refit_gpu_nccl(self, world, ncclCommFinalize(world), "ncclCommFinalize", NULL) ||
        !wait_ready(self, world, "end of a communicator", NULL))
        return FALSE;
    self->world = NULL;
    return ncclCommDestroy(world) == ncclSuccess;
}

/* The parent is the last to go. */
static gboolean finalize_all(RefitGpuRank *self) {
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        if (!end_all(self, (RefitLink)link, NULL))
            return FALSE;
    return self->world == NULL || finalize_world(self);
}

void refit_gpu_comms_close(RefitGpuRank *self) {
    self->deadline_us = g_get_monotonic_time() + (gint64)(self->timeout_s * G_USEC_PER_SEC);
    if (self->broken || !finalize_all(self))
        refit_gpu_comms_abort(self);
}

/* ---- set-up ---- */

gboolean refit_gpu_comms_open(RefitGpuRank *self, const ncclUniqueId *id, GError **error) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t result;

    config.blocking = 0;
    result =
        ncclCommInitRankConfig(&self->world, (int)self->n_ranks, *id, (int)self->rank, &config);
    return refit_gpu_nccl(self, NULL, result, "ncclCommInitRankConfig", error) &&
           wait_ready(self, self->world, "set-up of the communicator of all ranks", error);
}

/* The next communicator of a link class. Every rank must take part, also one alone in its NVLink
 * domain. */
static gboolean split(RefitGpuRank *self, RefitLink link, GError **error) {
    const RefitSchedule *schedule = self->work->program->schedule;
    ncclComm_t *comm = &self->comms[link][self->n_comms[link]];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int color = link == REFIT_LINK_NVLINK ? (int)self->domains[self->rank] : 0;

    config.blocking = 1;
    /* Both, so that it has as many as the schedule counts on, whatever the rings of collectives. */
    config.minCTAs = config.maxCTAs = (int)schedule->ctas[link];
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    if (link == REFIT_LINK_NETWORK)
        config.nChannelsPerNetPeer = (int)schedule->per_peer[link];
#endif
    self->splitting = comm;
    if (!refit_gpu_nccl(self, self->world,
                        ncclCommSplit(self->world, color, (int)self->rank, comm, &config),
                        "ncclCommSplit", error) ||
        !wait_ready(self, self->world, "set-up of the communicators of streams", error))
        return FALSE;
    self->splitting = NULL;
    self->n_comms[link]++;
    return TRUE;
}

static gboolean has_other_channels(const RefitGpuRank *self, RefitLink link) {
    const RefitSchedule *schedule = self->work->program->schedule;

    return self->n_comms[link] > 0 && (self->ctas[link] != schedule->ctas[link] ||
                                       self->per_peer[link] != schedule->per_peer[link]);
}

gboolean refit_gpu_comms_extend(RefitGpuRank *self, GError **error) {
    const RefitSchedule *schedule = self->work->program->schedule;

    for (guint link = 0; link < REFIT_N_LINKS; link++) {
        if (schedule->n_comms[link] == 0)
            continue;
        if (has_other_channels(self, (RefitLink)link) && !end_all(self, (RefitLink)link, error))
            return FALSE;
        self->ctas[link] = schedule->ctas[link];
        self->per_peer[link] = schedule->per_peer[link];
        while (self->n_comms[link] < schedule->n_comms[link])
            if (!split(self, (RefitLink)link, error))
                return FALSE;
    }
    return TRUE;
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
    ncclResult_t result;

    if (!is_wanted(self, "submission of a group", error))
        return FALSE;
    result = ncclGroupStart();
    if (result == ncclSuccess)
        result = submit(self, turn, comm, in_domain, work->flows[turn->flow].move);
    return refit_gpu_nccl(self, comm, result, "a group of ncclSend and ncclRecv", error);
}
