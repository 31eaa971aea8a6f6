/*
 * Expected and found events are sorted alike and compared one by one, which also tells the turn
 * that each belongs to; the rules are then checked on the dates of turns. Cost: events, waits, and
 * the turns of steps that are waited for slice by slice.
 */

#include "executor-events.h"

#include "standin-child.h"

/* An event without dates, so that they do not count when it is sorted, and its turn or dates. */
typedef struct {
    RefitEvent event;
    guint turn;
    double begin_s, end_s;
} Entry;

/* When a part of a turn began and ended; begin > end: there is none. */
typedef struct {
    double begin_s, end_s;
} Span;

typedef enum { PACK, MOVE, UNPACK, N_PARTS } Part;

typedef struct {
    Span parts[N_PARTS], all;
} Dates;

typedef struct {
    const RefitSchedule *schedule;
    const RefitScheduleStep *steps; /* of the rank */
    const RefitTurn *turns;
    guint n_steps, n_turns;
    Dates *dates;    /* per turn */
    GArray **places; /* per stream: guint, its turns */
    GArray **ends;   /* per stream: double, when all up to that place have ended */
} Timeline;

void executor_events_collect(const RefitEvent *event, gpointer events) {
    g_array_append_vals(events, event, 1);
}

/* ---- what there must be ---- */

static void expect(GArray *entries, const RefitEvent *like, RefitEventKind kind, guint peer,
                   guint64 bytes, guint turn) {
    Entry entry = {.event = *like, .turn = turn};

    if (bytes == 0)
        return;
    entry.event.kind = kind;
    entry.event.peer = peer;
    entry.event.bytes = bytes;
    g_array_append_val(entries, entry);
}

static void expect_turn(const Timeline *self, guint rank, guint t, GArray *entries) {
    const RefitTurn *turn = &self->turns[t];
    const RefitScheduleStep *step = &self->steps[turn->step];
    const RefitEvent like = {.rank = rank,
                             .stage = step->stage,
                             .stream = step->stream,
                             .number = turn->number,
                             .chunk = turn->chunk};
    guint64 packed = 0, unpacked = 0;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        static const RefitEventKind kinds[] = {[REFIT_EXCHANGE_SEND] = REFIT_EVENT_SEND,
                                               [REFIT_EXCHANGE_RECEIVE] = REFIT_EVENT_RECEIVE,
                                               [REFIT_EXCHANGE_COPY] = REFIT_EVENT_COPY,
                                               [REFIT_EXCHANGE_INSTALL] = REFIT_EVENT_INSTALL};
        const RefitScheduleExchange *exchange = &self->schedule->exchanges[e];
        guint64 bytes =
            refit_schedule_turn_bytes(self->schedule, step, exchange, turn->number, turn->chunk);

        expect(entries, &like, kinds[exchange->kind], exchange->peer, bytes, t);
        if (exchange->kind == REFIT_EXCHANGE_SEND && exchange->direct == 0)
            packed += bytes;
        if (exchange->kind == REFIT_EXCHANGE_RECEIVE && exchange->direct == 0)
            unpacked += bytes;
    }
    expect(entries, &like, REFIT_EVENT_PACK, rank, packed, t);
    expect(entries, &like, REFIT_EVENT_UNPACK, rank, unpacked, t);
}

static Part part_of(guint kind) {
    switch ((RefitEventKind)kind) {
    case REFIT_EVENT_PACK:
        return PACK;
    case REFIT_EVENT_SEND:
    case REFIT_EVENT_RECEIVE:
        return MOVE;
    default:
        return UNPACK;
    }
}

static void widen(Span *span, const Entry *entry) {
    span->begin_s = MIN(span->begin_s, entry->begin_s);
    span->end_s = MAX(span->end_s, entry->end_s);
}

/* The same events, one by one; enters their dates with their turns. */
static void match(const Timeline *self, guint rank, const GArray *events) {
    g_autoptr(GArray) expected = g_array_new(FALSE, FALSE, sizeof(Entry));
    g_autoptr(GArray) found = g_array_new(FALSE, FALSE, sizeof(Entry));

    for (guint t = 0; t < self->n_turns; t++)
        expect_turn(self, rank, t, expected);
    for (guint i = 0; i < events->len; i++) {
        Entry entry = {.event = g_array_index(events, RefitEvent, i)};

        CHECK(entry.event.begin_s >= 0 && entry.event.end_s >= entry.event.begin_s);
        entry.begin_s = entry.event.begin_s;
        entry.end_s = entry.event.end_s;
        entry.event.begin_s = entry.event.end_s = 0;
        g_array_append_val(found, entry);
    }
    CHECK(found->len == expected->len);
    g_array_sort(expected, refit_event_compare);
    g_array_sort(found, refit_event_compare);
    for (guint i = 0; i < found->len; i++) {
        const Entry *a = &g_array_index(expected, Entry, i), *b = &g_array_index(found, Entry, i);
        Dates *dates = &self->dates[a->turn];

        CHECK(refit_event_compare(&a->event, &b->event) == 0);
        CHECK(a->event.stage == b->event.stage && a->event.bytes == b->event.bytes);
        widen(&dates->parts[part_of(b->event.kind)], b);
        widen(&dates->all, b);
    }
}

/* ---- the rules ---- */

static void comes_after(const Span *after, const Span *before) {
    CHECK(before->begin_s > before->end_s || after->begin_s > after->end_s ||
          before->end_s <= after->begin_s);
}

static const Dates *dates_at(const Timeline *self, guint stream, guint place) {
    return &self->dates[g_array_index(self->places[stream], guint, place)];
}

/* Turns of a stream follow each other in their order. */
static void list_places(const Timeline *self) {
    for (guint t = 0; t < self->n_turns; t++) {
        const RefitScheduleStep *step = &self->steps[self->turns[t].step];
        GArray *places = self->places[step->stream], *ends = self->ends[step->stream];
        double end = self->dates[t].all.end_s;

        CHECK(step->first_turn + refit_schedule_turn_place(step, &self->turns[t]) == places->len);
        if (ends->len > 0)
            end = MAX(end, g_array_index(ends, double, ends->len - 1));
        g_array_append_val(places, t);
        g_array_append_val(ends, end);
    }
}

static void check_wait(const Timeline *self, const RefitWait *wait, const RefitTurn *turn,
                       const Dates *dates) {
    const RefitScheduleStep *on = &self->steps[wait->step];
    guint n_of_step = on->n_numbers * on->n_chunks;

    if (!wait->in_slices) { /* and all before it on its stream */
        double end = g_array_index(self->ends[on->stream], double, on->first_turn + n_of_step - 1);
        CHECK(dates->all.begin_s >= end);
        return;
    }
    for (guint i = on->first_turn; i < on->first_turn + n_of_step; i++) {
        guint other = g_array_index(self->places[on->stream], guint, i);
        if (self->turns[other].number < turn->number)
            comes_after(&dates->all, &self->dates[other].all);
    }
}

static void check_turn(const Timeline *self, guint t) {
    const RefitTurn *turn = &self->turns[t];
    const RefitScheduleStep *step = &self->steps[turn->step];
    const Dates *dates = &self->dates[t];
    guint place = step->first_turn + refit_schedule_turn_place(step, turn);

    comes_after(&dates->parts[MOVE], &dates->parts[PACK]);
    comes_after(&dates->parts[UNPACK], &dates->parts[MOVE]);
    for (guint part = 0; place > 0 && part < N_PARTS; part++)
        comes_after(&dates->parts[part], &dates_at(self, step->stream, place - 1)->parts[part]);
    if (step->link != REFIT_LINK_LOCAL && place >= REFIT_SCHEDULE_SLOTS)
        comes_after(&dates->all, &dates_at(self, step->stream, place - REFIT_SCHEDULE_SLOTS)->all);
    if (place >= REFIT_SCHEDULE_IN_FLIGHT)
        comes_after(&dates->all,
                    &dates_at(self, step->stream, place - REFIT_SCHEDULE_IN_FLIGHT)->all);
    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++)
        check_wait(self, &self->schedule->waits[w], turn, dates);
}

void executor_events_check(const RefitSchedule *schedule, guint rank, const GArray *events) {
    static const Span none = {G_MAXDOUBLE, -G_MAXDOUBLE};
    g_autoptr(GArray) turns = refit_schedule_list_turns(schedule, rank);
    Timeline self = {.schedule = schedule,
                     .turns = (const RefitTurn *)(gconstpointer)turns->data,
                     .n_turns = turns->len,
                     .dates = g_new(Dates, MAX(turns->len, 1)),
                     .places = g_new(GArray *, MAX(schedule->n_streams, 1)),
                     .ends = g_new(GArray *, MAX(schedule->n_streams, 1))};

    self.steps = refit_schedule_steps(schedule, rank, &self.n_steps);
    for (guint t = 0; t < self.n_turns; t++)
        self.dates[t] = (Dates){{none, none, none}, none};
    for (guint s = 0; s < schedule->n_streams; s++) {
        self.places[s] = g_array_new(FALSE, FALSE, sizeof(guint));
        self.ends[s] = g_array_new(FALSE, FALSE, sizeof(double));
    }
    match(&self, rank, events);
    list_places(&self);
    for (guint t = 0; t < self.n_turns; t++)
        check_turn(&self, t);
    for (guint s = 0; s < schedule->n_streams; s++) {
        g_array_unref(self.places[s]);
        g_array_unref(self.ends[s]);
    }
    g_free(self.dates);
    g_free(self.places);
    g_free(self.ends);
}

/* ---- CUDA events ---- */

/* Of each turn in flight two for each of three parts; of each stream three; the start of a run. */
guint executor_events_most(const RefitSchedule *schedule, guint rank, gboolean untimed) {
    g_autofree guint *turns = g_new0(guint, MAX(schedule->n_streams, 1));
    guint n_steps, n = 1;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);

    for (guint i = 0; i < n_steps; i++)
        turns[steps[i].stream] += steps[i].n_numbers * steps[i].n_chunks;
    for (guint s = 0; s < schedule->n_streams; s++)
        if (turns[s] > 0)
            n += MIN(turns[s], REFIT_SCHEDULE_IN_FLIGHT) * (untimed ? 1 : 6) + 3;
    return n;
}

/* ---- sums ---- */

static gboolean is_near(double a, double b) {
    return ABS(a - b) <= 1e-9 * MAX(1, ABS(a));
}

void executor_events_check_sums(const GArray *events, const RefitGpuResult *result) {
    g_autofree RefitGpuStage *stages = g_new0(RefitGpuStage, MAX(result->n_stages, 1));
    double first = G_MAXDOUBLE, last = 0;

    for (guint s = 0; s < result->n_stages; s++)
        stages[s].start_s = G_MAXDOUBLE;
    for (guint i = 0; i < events->len; i++) {
        const RefitEvent *event = &g_array_index(events, RefitEvent, i);
        RefitGpuStage *stage = &stages[event->stage];

        CHECK(event->stage < result->n_stages);
        stage->start_s = MIN(stage->start_s, event->begin_s);
        stage->end_s = MAX(stage->end_s, event->end_s);
        stage->bytes[event->kind] += event->bytes;
        first = MIN(first, event->begin_s);
        last = MAX(last, event->end_s);
    }
    CHECK(is_near(result->duration_s, events->len > 0 ? last - first : 0));
    for (guint s = 0; s < result->n_stages; s++) {
        const RefitGpuStage *stage = &result->stages[s];

        CHECK(is_near(stage->start_s, stages[s].start_s < G_MAXDOUBLE ? stages[s].start_s : 0));
        CHECK(is_near(stage->end_s, stages[s].end_s));
        for (guint kind = 0; kind < REFIT_N_EVENT_KINDS; kind++) {
            CHECK(stage->bytes[kind] == stages[s].bytes[kind]);
            CHECK(stage->busy_s[kind] >= 0 && (stage->bytes[kind] > 0 || stage->busy_s[kind] == 0));
        }
    }
}
