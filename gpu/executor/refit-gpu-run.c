/*
 * A run: turns are submitted in the schedule's order, each to the streams of its flow,
 *
 *   pack stream     waits, pack kernel            -> packed
 *   move stream     packed (or waits), NCCL group -> moved
 *   unpack stream   moved, unpack kernel          -> done
 *
 * so that the packing of a turn, the messages of the one before and the unpacking of the one before
 * that go on side by side, and memory is reused only where the schedule's waits allow it. As turns
 * are submitted in the order of their numbers and chunks on every rank, and wait for earlier ones
 * only, no group can wait for one that its peer submits later. The host stays no further ahead on a
 * stream than the schedule says, so that it never waits inside a full queue of the driver; while it
 * waits for one stream it follows all. Cost: a few calls per turn.
 */

#include "gpu/executor/refit-gpu-private.h"

#include "gpu/executor/refit-pack.h"

#include <string.h>

#define BLOCKS 64
#define BLOCKS_ON_NETWORK 16 /* enough for the 50 GB/s of a NIC, many times over */

/* ---- submission ---- */

static gboolean record(cudaEvent_t event, cudaStream_t stream, GError **error) {
    return event == NULL || REFIT_GPU_CUDA(cudaEventRecord(event, stream), error);
}

/* As it happens in this turn, when it has such an event. */
static gboolean note(const RefitGpuRank *self, const RefitGpuTurn *turn, RefitGpuEvent event,
                     cudaStream_t stream, GError **error) {
    return record(refit_gpu_turn_event(self->work, turn, event), stream, error);
}

static gboolean wait_for(cudaStream_t stream, cudaEvent_t event, GError **error) {
    return REFIT_GPU_CUDA(cudaStreamWaitEvent(stream, event, 0), error);
}

static gboolean wait_for_turns(const RefitGpuWork *work, const RefitGpuTurn *turn,
                               cudaStream_t stream, GError **error) {
    for (guint w = turn->first_wait; w < turn->first_wait + turn->n_waits; w++) {
        const RefitGpuTurn *on = &work->turns[g_array_index(work->waits, guint, w)];

        /* The events of one that is done may be another's by now. */
        if (!refit_gpu_turn_is_done(work, on) &&
            !wait_for(stream, refit_gpu_turn_event(work, on, REFIT_GPU_DONE), error))
            return FALSE;
    }
    return TRUE;
}

/* `stream` goes on when `before` has come to where it is now. */
static gboolean follow(cudaStream_t stream, cudaStream_t before, cudaEvent_t event,
                       GError **error) {
    return stream == before || (record(event, before, error) && wait_for(stream, event, error));
}

static guint blocks_for(const RefitGpuRank *self, const RefitGpuTurn *turn) {
    if (self->kernel_blocks > 0)
        return self->kernel_blocks;
    return self->work->program->steps[turn->step].link == REFIT_LINK_NETWORK ? BLOCKS_ON_NETWORK
                                                                             : BLOCKS;
}

static gboolean launch(RefitGpuRank *self, const RefitGpuTurn *turn, const RefitGpuLaunch *what,
                       gboolean packs, cudaStream_t stream, GError **error) {
    const RefitGpuWork *work = self->work;
    void *packed = (void *)(guintptr)work->staging;
    guint blocks = blocks_for(self, turn);

    self->result.n_launches += what->packed.n_tiles > 0 ? 1 : 0;
    self->result.n_launches += what->other.n_tiles > 0 ? 1 : 0;
    if (packs && !REFIT_GPU_CUDA(
                     refit_pack_launch(work->table, &what->packed, packed, blocks, stream), error))
        return FALSE;
    if (!packs &&
        !REFIT_GPU_CUDA(refit_unpack_launch(work->table, &what->packed, packed, blocks, stream),
                        error))
        return FALSE;
    return REFIT_GPU_CUDA(refit_copy_launch(work->table, &what->other, blocks, stream), error);
}

static gboolean pack(RefitGpuRank *self, const RefitGpuTurn *turn, GError **error) {
    const RefitGpuFlow *flow = &self->work->flows[turn->flow];

    if (turn->before.bytes == 0)
        return TRUE;
    return wait_for_turns(self->work, turn, flow->pack, error) &&
           note(self, turn, REFIT_GPU_PACK_BEGIN, flow->pack, error) &&
           launch(self, turn, &turn->before, TRUE, flow->pack, error) &&
           note(self, turn, REFIT_GPU_PACK_END, flow->pack, error) &&
           follow(flow->move, flow->pack, flow->packed, error);
}

/* What the plan counts: an install moves bytes that have come already. */
static void count_messages(RefitGpuRank *self, const RefitGpuTurn *turn) {
    const RefitProgramStep *step = &self->work->program->steps[turn->step];

    for (guint i = 0; i < turn->n_messages && !step->install; i++) {
        const RefitGpuMessage *message =
            &g_array_index(self->work->messages, RefitGpuMessage, turn->first_message + i);
        if (message->sends || step->link == REFIT_LINK_LOCAL)
            self->result.out[step->link] += message->bytes;
        if (!message->sends)
            self->result.in[step->link] += message->bytes;
    }
}

static gboolean move(RefitGpuRank *self, const RefitGpuTurn *turn, GError **error) {
    const RefitGpuFlow *flow = &self->work->flows[turn->flow];

    count_messages(self, turn);
    if (self->work->program->steps[turn->step].link == REFIT_LINK_LOCAL || turn->n_messages == 0)
        return TRUE;
    self->result.n_groups++;
    return note(self, turn, REFIT_GPU_MOVE_BEGIN, flow->move, error) &&
           refit_gpu_comms_group(self, turn, error) &&
           note(self, turn, REFIT_GPU_MOVE_END, flow->move, error);
}

static gboolean unpack(RefitGpuRank *self, const RefitGpuTurn *turn, GError **error) {
    const RefitGpuFlow *flow = &self->work->flows[turn->flow];

    return follow(flow->unpack, flow->move, flow->moved, error) &&
           note(self, turn, REFIT_GPU_UNPACK_BEGIN, flow->unpack, error) &&
           (turn->after.bytes == 0 ||
            launch(self, turn, &turn->after, FALSE, flow->unpack, error)) &&
           note(self, turn, REFIT_GPU_DONE, flow->unpack, error);
}

/* From here on parameters are neither of the old version nor of the new one. */
static void begin_writing(RefitGpuRank *self) {
    g_mutex_lock(&self->lock);
    if (!self->writing) {
        self->writing = refit_version_land(self->version, 0, NULL);
        g_assert(self->writing); /* the first of two in each run */
    }
    g_mutex_unlock(&self->lock);
}

/* Most turns that are in flight on the flow; NULL: on one of all. */
static guint count_in_flight(const RefitGpuWork *work, const RefitGpuFlow *flow) {
    guint most = 0;

    for (guint f = 0; f < work->n_flows; f++)
        if (flow == NULL || flow == &work->flows[f])
            most = MAX(most, work->flows[f].n_issued - work->flows[f].n_done);
    return most;
}

/* Until no more than `left` turns are in flight on the flow; NULL: on each. */
static gboolean drain(RefitGpuRank *self, const RefitGpuFlow *flow, guint left, GError **error) {
    RefitGpuPoll poll = {0};

    while (count_in_flight(self->work, flow) > left) {
        if (!refit_gpu_flows_advance(self->work, error))
            return FALSE;
        if (count_in_flight(self->work, flow) > left &&
            !refit_gpu_comms_poll(self, &poll, "waiting for a step", error))
            return FALSE;
    }
    return TRUE;
}

/* Makes room for one more turn on the flow, and takes the times of the one whose events it gets. */
static gboolean make_room(RefitGpuRank *self, const RefitGpuFlow *flow, GError **error) {
    const RefitGpuWork *work = self->work;

    return drain(self, flow, REFIT_SCHEDULE_IN_FLIGHT - 1, error) &&
           (flow->n_issued < flow->window ||
            refit_gpu_turn_read(
                self,
                &work->turns[work->by_place[flow->first_turn + flow->n_issued - flow->window]],
                error));
}

static gboolean issue(RefitGpuRank *self, GError **error) {
    const RefitGpuTurn *turn = &self->work->turns[self->n_issued];
    RefitGpuFlow *flow = &self->work->flows[turn->flow];

    if (!make_room(self, flow, error))
        return FALSE;
    if (turn->writes)
        begin_writing(self);
    self->n_issued++;
    if (!((turn->before.bytes > 0 || wait_for_turns(self->work, turn, flow->move, error)) &&
          pack(self, turn, error) && move(self, turn, error) && unpack(self, turn, error)))
        return FALSE;
    flow->n_issued++; /* now that its last event is its own */
    return TRUE;
}

/* ---- what a run follows ---- */

void refit_gpu_forget_followed(RefitGpuRank *self) {
    for (guint i = 0; i < self->followed->len; i++)
        cudaEventDestroy(g_array_index(self->followed, cudaEvent_t, i));
    g_array_set_size(self->followed, 0);
}

gboolean refit_gpu_follow(RefitGpuRank *self, void *stream, GError **error) {
    cudaEvent_t event = NULL;

    if (!refit_gpu_enter(self, error) ||
        !REFIT_GPU_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), error))
        return FALSE;
    g_array_append_val(self->followed, event);
    return record(event, stream, error);
}

static gboolean wait_for_followed(RefitGpuRank *self, cudaStream_t stream, GError **error) {
    for (guint i = 0; i < self->followed->len; i++)
        if (!wait_for(stream, g_array_index(self->followed, cudaEvent_t, i), error))
            return FALSE;
    refit_gpu_forget_followed(self); /* streams keep what they wait for */
    return TRUE;
}

/* All streams begin after the origin, which is after what the caller's stream holds. */
static gboolean begin_streams(RefitGpuRank *self, cudaStream_t stream, GError **error) {
    const RefitGpuWork *work = self->work;

    if (!wait_for_followed(self, stream, error) || !record(work->origin, stream, error))
        return FALSE;
    for (guint f = 0; f < work->n_flows; f++) {
        const RefitGpuFlow *flow = &work->flows[f];
        if (!wait_for(flow->move, work->origin, error) ||
            (flow->pack != flow->move && !wait_for(flow->pack, work->origin, error)) ||
            (flow->unpack != flow->move && !wait_for(flow->unpack, work->origin, error)))
            return FALSE;
    }
    return TRUE;
}

static gboolean end_streams(RefitGpuRank *self, cudaStream_t stream, GError **error) {
    const RefitGpuWork *work = self->work;

    for (guint f = 0; f < work->n_flows; f++)
        if (!follow(stream, work->flows[f].unpack, work->flows[f].last, error))
            return FALSE;
    return TRUE;
}

static gboolean issue_all(RefitGpuRank *self, cudaStream_t stream, GError **error) {
    if (!begin_streams(self, stream != NULL ? stream : self->work->main, error))
        return FALSE;
    while (self->n_issued < self->work->n_turns)
        if (!issue(self, error))
            return FALSE;
    return stream == NULL || end_streams(self, stream, error);
}

/* ---- the end ---- */

/* Which turn is not done, and whom it waits for. */
static void describe_wait(const RefitGpuRank *self, RefitGpuRecord *record_out) {
    const RefitGpuWork *work = self->work;

    record_out->stuck = 1;
    for (guint t = 0; t < self->n_issued && record_out->n_peers == 0; t++) {
        const RefitGpuTurn *turn = &work->turns[t];
        gboolean moves = work->program->steps[turn->step].link != REFIT_LINK_LOCAL;

        if (refit_gpu_turn_is_done(work, turn))
            continue;
        record_out->step = turn->number;
        for (guint i = 0; moves && i < turn->n_messages; i++) {
            const RefitGpuMessage *message =
                &g_array_index(work->messages, RefitGpuMessage, turn->first_message + i);
            guint n = MIN(record_out->n_peers, REFIT_GPU_STUCK_PEERS);
            gboolean known = FALSE;
            for (guint k = 0; k < n; k++)
                known |= record_out->peers[k] == message->peer;
            if (known)
                continue;
            if (n < REFIT_GPU_STUCK_PEERS)
                record_out->peers[n] = message->peer;
            record_out->n_peers++;
        }
    }
}

static gboolean has_passed(const RefitGpuWork *work, const RefitGpuTurn *turn,
                           RefitGpuEvent which) {
    cudaEvent_t event = refit_gpu_turn_event(work, turn, which);
    gboolean passed = event != NULL && cudaEventQuery(event) == cudaSuccess;

    cudaGetLastError();
    return passed;
}

/* A kernel that this rank's device is in waits for no other rank. Replaces the error by it. */
static gboolean blame_kernel(RefitGpuRank *self, GError **failure) {
    const RefitGpuWork *work = self->work;

    for (guint t = 0; t < self->n_issued; t++) {
        const RefitGpuTurn *turn = &work->turns[t];
        const RefitProgramStep *step = &work->program->steps[turn->step];
        const char *what = NULL;

        if (refit_gpu_turn_is_done(work, turn))
            continue;
        if (has_passed(work, turn, REFIT_GPU_PACK_BEGIN) &&
            !has_passed(work, turn, REFIT_GPU_PACK_END))
            what = "packing";
        else if (has_passed(work, turn, REFIT_GPU_UNPACK_BEGIN) &&
                 !has_passed(work, turn, REFIT_GPU_DONE))
            what = step->install                    ? "installing"
                   : step->link == REFIT_LINK_LOCAL ? "copying"
                                                    : "unpacking";
        if (what == NULL)
            continue;
        g_clear_error(failure);
        g_set_error(failure, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "step %u: %s has not ended on rank %u within %g s", turn->number, what,
                    self->rank, self->timeout_s);
        self->hung = TRUE; /* perhaps */
        return TRUE;
    }
    return FALSE;
}

/* After an abort, work that was submitted still ends; the caller's memory is in use until then. */
static void settle(RefitGpuRank *self, cudaStream_t stream) {
    while (stream != NULL && cudaStreamQuery(stream) == cudaErrorNotReady) {
        self->hung = g_get_monotonic_time() >= self->deadline_us;
        if (self->hung)
            break;
        g_usleep(50);
    }
    cudaGetLastError();
}

static void stop(RefitGpuRank *self) {
    self->deadline_us = g_get_monotonic_time() + refit_gpu_comms_patience_us(self);
    refit_gpu_comms_abort(self);
    for (guint f = 0; f < self->work->n_flows && !self->hung; f++) {
        settle(self, self->work->flows[f].pack);
        settle(self, self->work->flows[f].move);
        settle(self, self->work->flows[f].unpack);
    }
}

/* Whom this rank waits for, or the kernel of its own that it waits for. */
static void explain_wait(RefitGpuRank *self, RefitGpuRecord *mine, GError **failure) {
    if (!refit_gpu_flows_advance(self->work, NULL)) /* the host may have looked long ago */
        cudaGetLastError();
    if (!(refit_gpu_is_late(self) && blame_kernel(self, failure)))
        describe_wait(self, mine);
}

/* Ends a run on all ranks. Takes ownership of `failure`. */
static gboolean conclude(RefitGpuRank *self, GError *failure, GError **error) {
    RefitGpuRecord mine;

    self->running = FALSE;
    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_WAIT);
    if (failure != NULL && self->waiting)
        explain_wait(self, &mine, &failure);
    /* The others first: an abort may take its time. */
    if (!refit_gpu_agree(self, &mine, failure, NULL, error)) {
        stop(self);
        return FALSE;
    }
    g_mutex_lock(&self->lock);
    if (self->writing) {
        gboolean landed = refit_version_land(self->version, 0, NULL);
        g_assert(landed);
    }
    self->writing = FALSE;
    self->number++;
    g_mutex_unlock(&self->lock);
    return TRUE;
}

gboolean refit_gpu_start(RefitGpuRank *self, void *stream, GError **error) {
    GError *failure = NULL;
    RefitGpuRecord mine;

    if (self->work == NULL || self->running) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "rank %u: %s", self->rank,
                    self->running ? "a run has been started and not waited for"
                                  : "nothing has been prepared");
        return FALSE;
    }
    if (!refit_gpu_begin(self, error))
        return FALSE;
    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_START);
    if (!refit_gpu_enter(self, &failure))
        g_assert(failure != NULL);
    if (!refit_gpu_agree(self, &mine, failure, NULL, error))
        return FALSE;
    self->deadline_us = g_get_monotonic_time() + (gint64)(self->timeout_s * G_USEC_PER_SEC);
    self->started_us = g_get_monotonic_time();
    self->n_issued = 0;
    for (guint f = 0; f < self->work->n_flows; f++)
        self->work->flows[f].n_issued = self->work->flows[f].n_done = 0;
    memset(&self->result, 0, sizeof self->result);
    g_mutex_lock(&self->lock);
    refit_version_begin(self->version);
    g_mutex_unlock(&self->lock);
    self->running = issue_all(self, stream, &failure);
    return self->running || conclude(self, failure, error);
}

gboolean refit_gpu_wait(RefitGpuRank *self, RefitEventFunc func, gpointer user_data,
                        RefitGpuResult *result_out, GError **error) {
    GError *failure = NULL;

    if (!self->running) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "rank %u: no run has been started",
                    self->rank);
        return FALSE;
    }
    if (!refit_gpu_enter(self, &failure) || !drain(self, NULL, 0, &failure) ||
        !refit_gpu_comms_check(self, "the end of a run", &failure) ||
        !refit_gpu_measure(self, func, user_data, &failure))
        g_assert(failure != NULL);
    if (!conclude(self, failure, error))
        return FALSE;
    self->result.version = self->number;
    self->result.connection_bytes = self->connection_bytes;
    self->result.connections_taken_bytes = self->taken_bytes;
    self->result.agreed_s = (double)(g_get_monotonic_time() - self->started_us) / G_USEC_PER_SEC;
    if (result_out != NULL)
        *result_out = self->result;
    return TRUE;
}
