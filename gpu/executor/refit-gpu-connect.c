/*
 * Connections, before the first run: each rank meets its peers with a few bytes.
 *
 * NCCL connects two ranks when they first meet on a communicator, on all channels that the pair may
 * use (2.28.9, enqueue.cc:2426): it allocates buffers and exchanges handles, milliseconds per peer.
 * In the first update that would be part of its time, and would fail when an engine has filled the
 * device since. So prepare does it, with a message of 16 bytes in each direction that the schedule
 * has, and says beforehand when memory is short (refit-schedule-comms.h has the rule).
 *
 * Here NCCL waits for peers inside of its calls. So a thread makes them, and the rank's own waits
 * for it as long as its time lasts. When that is over the thread is left to itself with the
 * communicator that it uses, which an abort would free under its hands; should it come back, it
 * aborts that itself. The rank then counts as one whose device hangs, and keeps what it has until
 * its process ends.
 *
 * Peers are met by distance, so many distances in a group, nearest first: what a rank sends in a
 * group, its peer receives in the same one, and no group is larger than others may be. Cost: a
 * message per peer and direction, and what NCCL takes to connect.
 */

#include "gpu/executor/refit-gpu-private.h"

#include "model/schedule/refit-schedule-comms.h"

enum { GREETING_BYTES = 16, DISTANCES = REFIT_STEP_OPERATIONS / 2 };

/* What a rank sends to a peer, or receives from it. */
typedef struct {
    guint peer;     /* as the communicator numbers its ranks */
    guint distance; /* from the sender to the receiver, round all ranks */
    guint place;    /* of its bytes; 0: what is sent to all */
} Greeting;

typedef struct {
    ncclComm_t comm;
    guint n;           /* ranks in it */
    GArray *greetings; /* Greeting: receives before sends */
} Meeting;

/* All of them, for the thread that outlives the rank's patience. */
typedef struct {
    gint n_users, done; /* atomic */
    int device;
    cudaStream_t stream;
    guint64 greetings; /* device address: what is sent, and behind it a place for each receive */
    guint n;
    Meeting meetings[REFIT_N_LINKS * REFIT_SCHEDULE_COMMS];
    ncclResult_t result;
    GMutex lock; /* of the four below */
    guint now;   /* the meeting in work, or that ended with the result */
    gboolean inside, stops;
    gboolean left; /* its communicator is this thread's alone */
} Meetings;

static void leave(Meetings *self) {
    if (!g_atomic_int_dec_and_test(&self->n_users))
        return;
    for (guint i = 0; i < self->n; i++)
        g_array_unref(self->meetings[i].greetings);
    g_mutex_clear(&self->lock);
    g_free(self);
}

/* ---- on the thread ---- */

static gboolean is_at(const Greeting *greeting, guint first) {
    return greeting->distance >= first && greeting->distance < first + DISTANCES;
}

static gboolean has_any(const Meeting *meeting, guint first) {
    for (guint i = 0; i < meeting->greetings->len; i++)
        if (is_at(&g_array_index(meeting->greetings, Greeting, i), first))
            return TRUE;
    return FALSE;
}

static ncclResult_t greet(const Meetings *self, const Meeting *meeting, const Greeting *greeting) {
    void *place = (void *)(guintptr)(self->greetings + (guint64)greeting->place * GREETING_BYTES);
    int peer = (int)greeting->peer;

    return greeting->place == 0
               ? ncclSend(place, GREETING_BYTES, ncclUint8, peer, meeting->comm, self->stream)
               : ncclRecv(place, GREETING_BYTES, ncclUint8, peer, meeting->comm, self->stream);
}

static ncclResult_t submit(const Meetings *self, const Meeting *meeting, guint first) {
    ncclResult_t result = ncclGroupStart(), end;

    if (result != ncclSuccess)
        return result;
    for (guint i = 0; i < meeting->greetings->len && result == ncclSuccess; i++) {
        const Greeting *greeting = &g_array_index(meeting->greetings, Greeting, i);

        if (is_at(greeting, first))
            result = greet(self, meeting, greeting);
    }
    end = ncclGroupEnd(); /* in any case, or this thread stays in the group */
    return result == ncclSuccess ? end : result;
}

/* Whether to make one more call. */
static gboolean enter(Meetings *self, guint meeting) {
    gboolean enters;

    g_mutex_lock(&self->lock);
    enters = self->inside = !self->stops;
    self->now = meeting;
    g_mutex_unlock(&self->lock);
    return enters;
}

/* From a call: late, perhaps, and then with a communicator that has been left to it. */
static void come_back(Meetings *self) {
    gboolean left;

    g_mutex_lock(&self->lock);
    self->inside = FALSE;
    left = self->left;
    g_mutex_unlock(&self->lock);
    if (left)
        ncclCommAbort(self->meetings[self->now].comm);
}

/* One communicator's groups. */
static ncclResult_t meet_in(Meetings *self, guint number) {
    const Meeting *meeting = &self->meetings[number];
    ncclResult_t result = ncclSuccess;

    for (guint first = 0; first < meeting->n && result == ncclSuccess; first += DISTANCES) {
        if (!has_any(meeting, first))
            continue;
        if (!enter(self, number))
            return ncclSuccess;
        result = submit(self, meeting, first);
        come_back(self);
    }
    return result;
}

static gpointer meet_all(gpointer data) {
    Meetings *self = data;
    ncclResult_t result =
        cudaSetDevice(self->device) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;

    for (guint i = 0; i < self->n && result == ncclSuccess; i++)
        result = meet_in(self, i);
    self->result = result;
    g_atomic_int_set(&self->done, 1);
    leave(self);
    return NULL;
}

/* ---- on the rank's own ---- */

/* Ranks in this one's NVLink domain, itself included. */
static guint count_domain(const RefitGpuRank *self) {
    guint n = 1;

    for (guint r = 0; r < self->n_ranks; r++)
        n += r != self->rank && self->domains[r] == self->domains[self->rank] ? 1 : 0;
    return n;
}

static void add_meeting(const RefitGpuRank *self, Meetings *meetings, RefitLink link, guint comm) {
    gboolean in_domain = link == REFIT_LINK_NVLINK;
    guint own = in_domain ? self->domain_ranks[self->rank] : self->rank;
    guint n = in_domain ? count_domain(self) : self->n_ranks;
    g_autoptr(GArray) sends = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autoptr(GArray) receives = g_array_new(FALSE, FALSE, sizeof(guint));
    GArray *greetings = g_array_new(FALSE, FALSE, sizeof(Greeting));

    refit_schedule_comm_peers(self->work->program->schedule, self->rank, link, comm, sends,
                              receives);
    for (guint i = 0; i < receives->len + sends->len; i++) {
        gboolean is_sent = i >= receives->len;
        guint rank = is_sent ? g_array_index(sends, guint, i - receives->len)
                             : g_array_index(receives, guint, i);
        guint peer = in_domain ? self->domain_ranks[rank] : rank;
        Greeting greeting = {peer, (is_sent ? peer + n - own : own + n - peer) % n,
                             is_sent ? 0 : 1 + i};

        g_array_append_val(greetings, greeting);
    }
    meetings->meetings[meetings->n++] = (Meeting){self->comms[link][comm], n, greetings};
}

static Meetings *list_meetings(const RefitGpuRank *self) {
    const RefitSchedule *schedule = self->work->program->schedule;
    Meetings *meetings = g_new0(Meetings, 1);

    meetings->n_users = 2;
    g_mutex_init(&meetings->lock);
    meetings->device = self->device;
    meetings->stream = self->work->main;
    meetings->greetings = self->work->greetings;
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint i = 0; i < schedule->n_comms[link]; i++)
            add_meeting(self, meetings, (RefitLink)link, i);
    return meetings;
}

/* The thread makes no more calls. If it is in one, nobody may use that communicator. */
static void stop(RefitGpuRank *self, Meetings *meetings) {
    ncclComm_t used;

    g_mutex_lock(&meetings->lock);
    meetings->stops = TRUE;
    meetings->left = meetings->inside;
    used = meetings->left ? meetings->meetings[meetings->now].comm : NULL;
    g_mutex_unlock(&meetings->lock);
    if (used != NULL)
        refit_gpu_comms_leave(self, used);
}

/* Whether the thread has come back. */
static gboolean wait_for_thread(RefitGpuRank *self, Meetings *meetings, GError **error) {
    RefitGpuPoll poll = {0};

    while (g_atomic_int_get(&meetings->done) == 0)
        if (!refit_gpu_linger(self, &poll, "connecting to peers", error)) {
            stop(self, meetings);
            return FALSE;
        }
    return TRUE;
}

static gboolean wait_until_met(RefitGpuRank *self, GError **error) {
    RefitGpuPoll poll = {0};
    cudaError_t state;

    while ((state = cudaStreamQuery(self->work->main)) == cudaErrorNotReady) {
        cudaGetLastError(); /* or the next launch would be taken for a failure */
        if (!refit_gpu_comms_poll(self, &poll, "connecting to peers", error))
            return FALSE;
    }
    return refit_gpu_cuda(state, "cudaStreamQuery", error) &&
           refit_gpu_comms_check(self, "connecting to peers", error);
}

static gboolean meet(RefitGpuRank *self, GError **error) {
    Meetings *meetings = list_meetings(self);
    gboolean well;

    g_thread_unref(g_thread_new("refit-connect", meet_all, meetings));
    well = wait_for_thread(self, meetings, error) &&
           refit_gpu_nccl(self, meetings->meetings[meetings->now].comm, meetings->result,
                          "connecting to peers", error) &&
           wait_until_met(self, error);
    leave(meetings);
    return well;
}

/* ---- memory ---- */

static gboolean get_free(guint64 *free_out, GError **error) {
    size_t left, total;

    if (!REFIT_GPU_CUDA(cudaMemGetInfo(&left, &total), error))
        return FALSE;
    *free_out = left;
    return TRUE;
}

gboolean refit_gpu_connect_check(const RefitGpuRank *self, GError **error) {
    guint64 needed = refit_schedule_connection_bytes(self->work->program->schedule, self->rank);
    guint64 left;

    if (!get_free(&left, error))
        return FALSE;
    if (needed <= self->connection_bytes || needed - self->connection_bytes <= left)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                "NCCL's connections of this plan need %" G_GUINT64_FORMAT
                " bytes of device memory, and %" G_GUINT64_FORMAT
                " are free: leave it more, prepare before an engine fills the device, or state a "
                "smaller memory: in the topology",
                needed - self->connection_bytes, left);
    return FALSE;
}

static guint most_peers(const RefitGpuRank *self) {
    const RefitSchedule *schedule = self->work->program->schedule;
    guint most = 0;

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint i = 0; i < schedule->n_comms[link]; i++)
            most = MAX(
                most,
                refit_schedule_connections(schedule, self->rank, (RefitLink)link, i)->n_receives);
    return most;
}

static gboolean allocate_greetings(RefitGpuRank *self, GError **error) {
    void *greetings = NULL;

    if (!REFIT_GPU_CUDA(cudaMalloc(&greetings, (most_peers(self) + (gsize)1) * GREETING_BYTES),
                        error))
        return FALSE;
    self->work->greetings = (guint64)(guintptr)greetings;
    return TRUE;
}

gboolean refit_gpu_connect(RefitGpuRank *self, GError **error) {
    guint64 before, after;

    if (!allocate_greetings(self, error) || !get_free(&before, error) || !meet(self, error) ||
        !get_free(&after, error))
        return FALSE;
    self->connection_bytes =
        MAX(self->connection_bytes,
            refit_schedule_connection_bytes(self->work->program->schedule, self->rank));
    self->taken_bytes += before - MIN(before, after);
    return TRUE;
}

void refit_gpu_connect_describe(const RefitGpuRank *self, RefitGpuRecord *record_out) {
    const RefitSchedule *schedule = self->work->program->schedule;
    g_autoptr(GArray) sends = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autoptr(GArray) receives = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint link = 0; link < REFIT_N_LINKS && record_out->n_peers == 0; link++)
        for (guint i = 0; i < schedule->n_comms[link] && record_out->n_peers == 0; i++) {
            refit_schedule_comm_peers(schedule, self->rank, (RefitLink)link, i, sends, receives);
            const GArray *peers = receives->len > 0 ? receives : sends;

            record_out->n_peers = peers->len;
            for (guint k = 0; k < MIN(peers->len, REFIT_GPU_STUCK_PEERS); k++)
                record_out->peers[k] = g_array_index(peers, guint, k);
        }
}
