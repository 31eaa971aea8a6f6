/*
 * What a run took, from the times of its turns: per stage and kind of event, and the stream of
 * events that traces and reports read. What a turn sends and what it receives begin and end with
 * its group, as NCCL says nothing of single messages. Cost: turns and messages.
 */

#include "gpu/executor/refit-gpu-private.h"

typedef struct {
    RefitGpuRank *self;
    RefitEventFunc func; /* NULL: nobody wants events */
    gpointer user_data;
    double first_s, last_s;
} Reading;

/* Enters what happened between two events of a turn; `peer` is that of an event to be added. */
static RefitEvent read_span(Reading *reading, const RefitGpuTurn *turn, RefitGpuEvent begin,
                            RefitGpuEvent end) {
    const RefitGpuWork *work = reading->self->work;
    const RefitProgramStep *step = &work->program->steps[turn->step];
    RefitEvent event = {.begin_s = (double)turn->ms[begin] / 1000,
                        .end_s = (double)turn->ms[end] / 1000,
                        .rank = reading->self->rank,
                        .peer = reading->self->rank,
                        .stage = step->stage,
                        .stream = step->stream,
                        .number = turn->number,
                        .chunk = turn->chunk};

    reading->first_s = MIN(reading->first_s, event.begin_s);
    reading->last_s = MAX(reading->last_s, event.end_s);
    return event;
}

static void enter_stage(const Reading *reading, const RefitEvent *event) {
    RefitGpuStage *stage = &reading->self->work->stages[event->stage];

    stage->start_s = MIN(stage->start_s, event->begin_s);
    stage->end_s = MAX(stage->end_s, event->end_s);
    stage->busy_s[event->kind] += event->end_s - event->begin_s;
    stage->bytes[event->kind] += event->bytes;
}

static void tell(const Reading *reading, const RefitEvent *event) {
    if (reading->func != NULL)
        reading->func(event, reading->user_data);
}

static void read_launch(Reading *reading, const RefitGpuTurn *turn, RefitGpuEvent begin,
                        RefitGpuEvent end, RefitEventKind kind, guint64 bytes) {
    RefitEvent event;

    if (bytes == 0)
        return;
    event = read_span(reading, turn, begin, end);
    event.kind = kind;
    event.bytes = bytes;
    enter_stage(reading, &event);
    tell(reading, &event);
}

/* What the turn sends, or receives. */
static void read_direction(const Reading *reading, const RefitGpuTurn *turn, const RefitEvent *span,
                           RefitEventKind kind) {
    RefitEvent event = *span, all = *span;

    event.kind = all.kind = kind;
    for (guint i = 0; i < turn->n_messages; i++) {
        const RefitGpuMessage *message =
            &g_array_index(reading->self->work->messages, RefitGpuMessage, turn->first_message + i);

        if (message->sends != (kind == REFIT_EVENT_SEND))
            continue;
        event.peer = message->peer;
        event.bytes = message->bytes;
        all.bytes += message->bytes;
        tell(reading, &event);
    }
    if (all.bytes > 0)
        enter_stage(reading, &all);
}

static void read_messages(Reading *reading, const RefitGpuTurn *turn) {
    if (turn->n_messages == 0)
        return;
    const RefitEvent span = read_span(reading, turn, REFIT_GPU_MOVE_BEGIN, REFIT_GPU_MOVE_END);

    read_direction(reading, turn, &span, REFIT_EVENT_SEND);
    read_direction(reading, turn, &span, REFIT_EVENT_RECEIVE);
}

static void read_turn(Reading *reading, const RefitGpuTurn *turn) {
    const RefitProgramStep *step = &reading->self->work->program->steps[turn->step];
    RefitEventKind after = step->install                    ? REFIT_EVENT_INSTALL
                           : step->link == REFIT_LINK_LOCAL ? REFIT_EVENT_COPY
                                                            : REFIT_EVENT_UNPACK;

    read_launch(reading, turn, REFIT_GPU_PACK_BEGIN, REFIT_GPU_PACK_END, REFIT_EVENT_PACK,
                turn->before.bytes);
    if (step->link != REFIT_LINK_LOCAL)
        read_messages(reading, turn);
    read_launch(reading, turn, REFIT_GPU_UNPACK_BEGIN, REFIT_GPU_DONE, after, turn->after.bytes);
}

/* The turns whose events no later one has taken. */
static gboolean read_last_turns(const RefitGpuRank *self, GError **error) {
    const RefitGpuWork *work = self->work;

    for (guint f = 0; f < work->n_flows; f++) {
        const RefitGpuFlow *flow = &work->flows[f];

        for (guint i = flow->n_turns - flow->window; i < flow->n_turns; i++)
            if (!refit_gpu_turn_read(self, &work->turns[work->by_place[flow->first_turn + i]],
                                     error))
                return FALSE;
    }
    return TRUE;
}

gboolean refit_gpu_measure(RefitGpuRank *self, RefitEventFunc func, gpointer user_data,
                           GError **error) {
    const RefitGpuWork *work = self->work;
    Reading reading = {.self = self, .func = func, .user_data = user_data, .first_s = G_MAXDOUBLE};

    self->result.n_stages = work->program->plan->n_stages;
    self->result.stages = work->stages;
    for (guint s = 0; s < self->result.n_stages; s++)
        work->stages[s] = (RefitGpuStage){.start_s = G_MAXDOUBLE};
    if (!read_last_turns(self, error))
        return FALSE;
    for (guint t = 0; !self->untimed && t < work->n_turns; t++)
        read_turn(&reading, &work->turns[t]);
    for (guint s = 0; s < self->result.n_stages; s++)
        if (work->stages[s].end_s < work->stages[s].start_s)
            work->stages[s].start_s = work->stages[s].end_s = 0;
    self->result.duration_s = MAX(reading.last_s - MIN(reading.first_s, reading.last_s), 0);
    return TRUE;
}
