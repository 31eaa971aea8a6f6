/*
 * Flows: the streams of a schedule on the device, and which of their turns are in flight.
 *
 * The schedule lets so many turns of a stream be in flight, so a flow has events for no more of
 * them, whatever the number of turns: a turn takes the events of the one that many places before,
 * which is known to be done by then and whose times have been read. Turns of a flow end in their
 * order, so how many are done is one number. Cost: a query per flow and per turn that is done; two
 * readings per part of a turn.
 */

#include "gpu/executor/refit-gpu-private.h"

/* ---- streams and events ---- */

static gboolean new_stream(int priority, cudaStream_t *stream_out, GError **error) {
    return REFIT_GPU_CUDA(cudaStreamCreateWithPriority(stream_out, cudaStreamNonBlocking, priority),
                          error);
}

static gboolean new_event(gboolean timed, cudaEvent_t *event_out, GError **error) {
    return REFIT_GPU_CUDA(
        cudaEventCreateWithFlags(event_out, timed ? cudaEventDefault : cudaEventDisableTiming),
        error);
}

static gboolean make_streams(RefitGpuFlow *flow, const RefitGpuRank *self, gboolean packs,
                             gboolean unpacks, GError **error) {
    return new_stream(self->high_priority, &flow->move, error) &&
           (!packs || new_stream(self->low_priority, &flow->pack, error)) &&
           (!unpacks || new_stream(self->low_priority, &flow->unpack, error));
}

gboolean refit_gpu_flow_open(RefitGpuFlow *flow, const RefitGpuRank *self, gboolean packs,
                             gboolean moves, gboolean unpacks, GError **error) {
    gboolean timed = !self->untimed;
    const gboolean needed[REFIT_GPU_N_EVENTS] = {
        [REFIT_GPU_PACK_BEGIN] = timed && packs,
        [REFIT_GPU_PACK_END] = timed && packs,
        [REFIT_GPU_MOVE_BEGIN] = timed && moves,
        [REFIT_GPU_MOVE_END] = timed && moves,
        [REFIT_GPU_UNPACK_BEGIN] = timed && (unpacks || !moves),
        [REFIT_GPU_DONE] = TRUE,
    };

    if (!make_streams(flow, self, packs, unpacks, error))
        return FALSE;
    if (!packs)
        flow->pack = flow->move;
    if (!unpacks)
        flow->unpack = flow->move;
    flow->window = MIN(flow->n_turns, REFIT_SCHEDULE_IN_FLIGHT);
    flow->events = g_malloc0_n(MAX(flow->window, 1), sizeof *flow->events);
    for (guint i = 0; i < flow->window; i++)
        for (guint e = 0; e < REFIT_GPU_N_EVENTS; e++)
            if (needed[e] && !new_event(timed, &flow->events[i][e], error))
                return FALSE;
    return new_event(FALSE, &flow->packed, error) && new_event(FALSE, &flow->moved, error) &&
           new_event(FALSE, &flow->last, error);
}

static void destroy_stream(cudaStream_t stream) {
    if (stream != NULL)
        cudaStreamDestroy(stream);
}

static void destroy_event(cudaEvent_t event) {
    if (event != NULL)
        cudaEventDestroy(event);
}

void refit_gpu_flow_close(RefitGpuFlow *flow) {
    if (flow->pack != flow->move)
        destroy_stream(flow->pack);
    if (flow->unpack != flow->move)
        destroy_stream(flow->unpack);
    destroy_stream(flow->move);
    destroy_event(flow->packed);
    destroy_event(flow->moved);
    destroy_event(flow->last);
    for (guint i = 0; i < flow->window; i++)
        for (guint e = 0; e < REFIT_GPU_N_EVENTS; e++)
            destroy_event(flow->events[i][e]);
    g_free(flow->events);
}

/* ---- turns ---- */

/* Whether the turn has the part of which this event is an end. */
static gboolean has_part(const RefitGpuTurn *turn, RefitGpuEvent event) {
    switch (event) {
    case REFIT_GPU_PACK_BEGIN:
    case REFIT_GPU_PACK_END:
        return turn->before.bytes > 0;
    case REFIT_GPU_MOVE_BEGIN:
    case REFIT_GPU_MOVE_END:
        return turn->n_messages > 0;
    case REFIT_GPU_UNPACK_BEGIN:
        return turn->after.bytes > 0;
    default:
        return TRUE;
    }
}

cudaEvent_t refit_gpu_turn_event(const RefitGpuWork *work, const RefitGpuTurn *turn,
                                 RefitGpuEvent event) {
    const RefitGpuFlow *flow = &work->flows[turn->flow];

    return has_part(turn, event) ? flow->events[turn->place % flow->window][event] : NULL;
}

gboolean refit_gpu_turn_is_done(const RefitGpuWork *work, const RefitGpuTurn *turn) {
    return turn->place < work->flows[turn->flow].n_done;
}

static gboolean advance(const RefitGpuWork *work, RefitGpuFlow *flow, GError **error) {
    while (flow->n_done < flow->n_issued) {
        guint oldest = work->by_place[flow->first_turn + flow->n_done];
        cudaError_t state =
            cudaEventQuery(refit_gpu_turn_event(work, &work->turns[oldest], REFIT_GPU_DONE));

        if (state == cudaErrorNotReady) {
            cudaGetLastError(); /* or the next launch would be taken for a failure */
            return TRUE;
        }
        if (!refit_gpu_cuda(state, "cudaEventQuery", error))
            return FALSE;
        flow->n_done++;
    }
    return TRUE;
}

gboolean refit_gpu_flows_advance(RefitGpuWork *work, GError **error) {
    for (guint f = 0; f < work->n_flows; f++)
        if (!advance(work, &work->flows[f], error))
            return FALSE;
    return TRUE;
}

gboolean refit_gpu_turn_read(const RefitGpuRank *self, RefitGpuTurn *turn, GError **error) {
    for (guint e = 0; e < REFIT_GPU_N_EVENTS && !self->untimed; e++) {
        cudaEvent_t event = refit_gpu_turn_event(self->work, turn, (RefitGpuEvent)e);

        /* Where nothing is unpacked, nobody asks when the turn was done. */
        if (event != NULL && (e != REFIT_GPU_DONE || turn->after.bytes > 0) &&
            !REFIT_GPU_CUDA(cudaEventElapsedTime(&turn->ms[e], self->work->origin, event), error))
            return FALSE;
    }
    return TRUE;
}
