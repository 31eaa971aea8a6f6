/*
 * What a run took, read from CUDA events when all of them are done: times per stage and activity,
 * and the stream of events that traces and reports read. Cost: two readings per part of a turn.
 */

#include "gpu/executor/refit-gpu-private.h"

typedef struct {
    RefitGpuRank *self;
    GArray *events; /* RefitEvent; NULL: nobody wants them */
    double first_s, last_s;
} Reading;

static gboolean seconds_at(const Reading *reading, cudaEvent_t event, double *s_out,
                           GError **error) {
    float ms = 0;

    if (!REFIT_GPU_CUDA(cudaEventElapsedTime(&ms, reading->self->work->origin, event), error))
        return FALSE;
    *s_out = (double)ms / 1000;
    return TRUE;
}

/* Enters what happened between two events of a turn. */
static gboolean read_span(Reading *reading, const RefitGpuTurn *turn, RefitGpuEvent begin,
                          RefitGpuEvent end, RefitActivity activity, guint64 bytes,
                          RefitEvent *event_out, GError **error) {
    const RefitGpuWork *work = reading->self->work;
    RefitGpuStage *stage = &work->stages[work->program->steps[turn->step].stage];
    double start_s, end_s;

    if (!seconds_at(reading, turn->events[begin], &start_s, error) ||
        !seconds_at(reading, turn->events[end], &end_s, error))
        return FALSE;
    stage->start_s = MIN(stage->start_s, start_s);
    stage->end_s = MAX(stage->end_s, end_s);
    stage->busy_s[activity] += end_s - start_s;
    stage->bytes[activity] += bytes;
    reading->first_s = MIN(reading->first_s, start_s);
    reading->last_s = MAX(reading->last_s, end_s);
    *event_out = (RefitEvent){.start_s = start_s,
                              .end_s = end_s,
                              .step = turn->number,
                              .rank = reading->self->rank,
                              .peer = reading->self->rank,
                              .activity = activity,
                              .bytes = bytes};
    return TRUE;
}

static void add_event(Reading *reading, const RefitEvent *event) {
    if (reading->events != NULL)
        g_array_append_vals(reading->events, event, 1);
}

static gboolean read_kernel(Reading *reading, const RefitGpuTurn *turn, RefitGpuEvent begin,
                            RefitGpuEvent end, RefitActivity activity, guint64 bytes,
                            GError **error) {
    RefitEvent event;

    if (turn->events[begin] == NULL)
        return TRUE;
    if (!read_span(reading, turn, begin, end, activity, bytes, &event, error))
        return FALSE;
    add_event(reading, &event);
    return TRUE;
}

static gboolean read_messages(Reading *reading, const RefitGpuTurn *turn, RefitLink link,
                              GError **error) {
    RefitActivity activity =
        link == REFIT_LINK_NVLINK ? REFIT_ACTIVITY_NVLINK : REFIT_ACTIVITY_NETWORK;
    const RefitGpuWork *work = reading->self->work;
    const RefitGpuMessage *messages =
        &g_array_index(work->messages, RefitGpuMessage, turn->first_message);
    guint64 bytes = 0;
    RefitEvent event;

    if (turn->events[REFIT_GPU_MOVE_BEGIN] == NULL)
        return TRUE;
    for (guint i = 0; i < turn->n_messages; i++)
        bytes += messages[i].bytes;
    if (!read_span(reading, turn, REFIT_GPU_MOVE_BEGIN, REFIT_GPU_MOVE_END, activity, bytes, &event,
                   error))
        return FALSE;
    for (guint i = 0; i < turn->n_messages; i++) {
        event.rank = messages[i].peer;
        event.bytes = messages[i].bytes;
        if (!messages[i].sends)
            add_event(reading, &event);
    }
    return TRUE;
}

static gboolean read_turn(Reading *reading, const RefitGpuTurn *turn, GError **error) {
    const RefitProgramStep *step = &reading->self->work->program->steps[turn->step];
    RefitActivity after = step->link == REFIT_LINK_LOCAL && !step->install ? REFIT_ACTIVITY_LOCAL
                                                                           : REFIT_ACTIVITY_UNPACK;

    return read_kernel(reading, turn, REFIT_GPU_PACK_BEGIN, REFIT_GPU_PACK_END, REFIT_ACTIVITY_PACK,
                       turn->before.bytes, error) &&
           (step->link == REFIT_LINK_LOCAL || read_messages(reading, turn, step->link, error)) &&
           read_kernel(reading, turn, REFIT_GPU_UNPACK_BEGIN, REFIT_GPU_DONE, after,
                       turn->after.bytes, error);
}

gboolean refit_gpu_measure(RefitGpuRank *self, RefitEventFunc func, gpointer user_data,
                           GError **error) {
    const RefitGpuWork *work = self->work;
    g_autoptr(GArray) events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    Reading reading = {
        .self = self, .events = func != NULL ? events : NULL, .first_s = G_MAXDOUBLE};

    self->result.n_stages = work->program->plan->n_stages;
    self->result.stages = work->stages;
    for (guint s = 0; s < self->result.n_stages; s++)
        work->stages[s] = (RefitGpuStage){.start_s = G_MAXDOUBLE};
    for (guint t = 0; !self->untimed && t < work->n_turns; t++)
        if (!read_turn(&reading, &work->turns[t], error))
            return FALSE;
    for (guint s = 0; s < self->result.n_stages; s++)
        if (work->stages[s].end_s < work->stages[s].start_s)
            work->stages[s].start_s = work->stages[s].end_s = 0;
    self->result.duration_s = MAX(reading.last_s - MIN(reading.first_s, reading.last_s), 0);
    g_array_sort(events, refit_event_compare);
    for (guint i = 0; i < events->len; i++)
        func(&g_array_index(events, RefitEvent, i), user_data);
    return TRUE;
}
