/*
 * Work items turn by turn.
 *
 * Ranks are gone through one after the other, each in the order in which it submits its turns, so
 * that what a turn of a rank waits for has its items already. A flow belongs to two ranks and is
 * made by whichever comes first: the exchange that sends has a table of its flows by number and
 * chunk, which both ends count alike. Cost: exchanges of all turns, times the messages of an
 * exchange; about 500 bytes per turn.
 */

#include "sim/refit-sim-private.h"

/* Of all ranks, and flows: what fits into the memory of a small machine. */
#define MAX_TURNS (G_GUINT64_CONSTANT(1) << 23)

typedef struct {
    RefitSimBuild *build;
    const RefitSchedule *schedule;
    guint *senders;        /* per message that is the first of an exchange: the one that sends it */
    guint64 *flow_offsets; /* per exchange that sends: its part of `flows` */
    guint *flows;          /* items; REFIT_SIM_NONE: not met */
    /* Of the rank in work. */
    guint rank;
    const RefitScheduleStep *steps;
    guint *turn_offsets;            /* per stream: its part of `done` */
    guint *done;                    /* per turn, by stream and place */
    guint *ready;                   /* per step: join of what all its turns wait for */
    guint *packs, *unpacks;         /* per stream: the last item */
    guint moved[REFIT_SIM_N_COMMS]; /* the last turn's flows */
    guint submitted;                /* of the last turn */
} Exact;

/* Of a turn: what it does, and its items as far as they are made. */
typedef struct {
    const RefitScheduleStep *step;
    RefitTurn turn;
    guint place; /* on its stream */
    guint submit;
    guint n_exchanges;        /* with bytes */
    guint64 packed, unpacked; /* bytes */
    double pack_s, unpack_s;
} Turn;

/* ---- exchanges ---- */

static guint first_message(const RefitSchedule *schedule, const RefitScheduleExchange *exchange) {
    return schedule->messages[exchange->first];
}

static guint exchange_chunks(const RefitSchedule *schedule, const RefitScheduleStep *step,
                             const RefitScheduleExchange *exchange) {
    return refit_cutting_count(&step->cutting, refit_schedule_most_bytes(schedule, exchange));
}

static gboolean index_flows(Exact *self, GError **error) {
    const RefitSchedule *schedule = self->schedule;
    guint64 n_turns = 0, n_flows = 0;

    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++)
        n_turns += schedule->ranks[rank].n_turns;
    for (guint s = 0; s < schedule->n_steps; s++)
        for (guint e = 0; e < schedule->steps[s].n_exchanges; e++) {
            guint number = schedule->steps[s].first_exchange + e;
            const RefitScheduleExchange *exchange = &schedule->exchanges[number];
            guint first, end;

            if (exchange->kind != REFIT_EXCHANGE_SEND)
                continue;
            self->senders[first_message(schedule, exchange)] = number;
            self->flow_offsets[number] = n_flows;
            refit_schedule_numbers(schedule, exchange, &first, &end);
            n_flows +=
                (guint64)(end - first) * exchange_chunks(schedule, &schedule->steps[s], exchange);
        }
    if (MAX(n_turns, n_flows) > MAX_TURNS) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                    "the schedule has %" G_GUINT64_FORMAT " turns and %" G_GUINT64_FORMAT
                    " chunks of messages, but at most %" G_GUINT64_FORMAT
                    " can be simulated one by one; leave them merged, or use another strategy",
                    n_turns, n_flows, MAX_TURNS);
        return FALSE;
    }
    self->flows = refit_sim_numbers(n_flows);
    self->build->out->n_parts = n_turns;
    return TRUE;
}

/* The flow of an exchange of this rank's turn, made when it is met first. */
static guint flow_of(Exact *self, const Turn *turn, const RefitScheduleExchange *exchange,
                     guint64 bytes) {
    guint first = first_message(self->schedule, exchange);
    guint64 place = (guint64)(turn->turn.number - self->schedule->plan->messages[first].step) *
                        exchange_chunks(self->schedule, turn->step, exchange) +
                    turn->turn.chunk;
    guint *flow = &self->flows[self->flow_offsets[self->senders[first]] + place];
    gboolean sends = exchange->kind == REFIT_EXCHANGE_SEND;

    if (*flow == REFIT_SIM_NONE)
        *flow = refit_sim_flow(self->build, sends ? self->rank : exchange->peer,
                               sends ? exchange->peer : self->rank, (double)bytes);
    return *flow;
}

static guint64 turn_bytes(const Exact *self, const Turn *turn,
                          const RefitScheduleExchange *exchange) {
    return refit_schedule_turn_bytes(self->schedule, turn->step, exchange, turn->turn.number,
                                     turn->turn.chunk);
}

/* Seconds of a copy that is `bytes` of what the exchange moves under this number. */
static double share_s(const Exact *self, const Turn *turn, const RefitScheduleExchange *exchange,
                      guint64 bytes, double (*message_s)(const RefitSimCosts *, guint)) {
    const RefitPlan *plan = self->schedule->plan;
    guint64 all = 0;
    double seconds = 0;

    for (guint i = 0; i < exchange->n_messages; i++) {
        guint m = self->schedule->messages[exchange->first + i];
        guint64 part = refit_schedule_message_bytes(self->schedule, m, turn->turn.number);

        if (part > 0)
            seconds +=
                message_s(&self->build->costs, m) * (double)part / (double)plan->messages[m].bytes;
        all += part;
    }
    return all > 0 ? seconds * (double)bytes / (double)all : 0;
}

static void survey(const Exact *self, Turn *turn) {
    const RefitScheduleStep *step = turn->step;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &self->schedule->exchanges[e];
        guint64 bytes = turn_bytes(self, turn, exchange);

        turn->n_exchanges += bytes > 0 ? 1 : 0;
        if (bytes == 0 || exchange->direct != 0)
            continue;
        if (exchange->kind == REFIT_EXCHANGE_SEND) {
            turn->packed += bytes;
            turn->pack_s += share_s(self, turn, exchange, bytes, refit_sim_pack_s);
        } else if (exchange->kind == REFIT_EXCHANGE_RECEIVE) {
            turn->unpacked += bytes;
            turn->unpack_s += share_s(self, turn, exchange, bytes, refit_sim_unpack_s);
        }
    }
}

/* ---- events ---- */

static void add_event(Exact *self, const Turn *turn, RefitEventKind kind, guint peer, guint64 bytes,
                      guint item, double late_s) {
    RefitSimEvent event =
        refit_sim_event(turn->step, self->rank, turn->turn.number, turn->turn.chunk);

    event.event.kind = kind;
    event.event.peer = peer;
    event.event.bytes = bytes;
    event.begin = event.end = item;
    event.late_s = late_s;
    refit_sim_add_event(self->build, &event);
}

/* ---- what a turn waits for ---- */

static guint done_at(const Exact *self, guint stream, guint place) {
    return self->done[self->turn_offsets[stream] + place];
}

/* The last turn of a step with a number below `number`; REFIT_SIM_NONE: none. */
static guint done_before(const Exact *self, const RefitScheduleStep *step, guint number) {
    guint n = number > step->number ? MIN(number - step->number, step->n_numbers) : 0;

    return n == 0 ? REFIT_SIM_NONE
                  : done_at(self, step->stream, step->first_turn + n * step->n_chunks - 1);
}

/* Of the whole step, once. */
static guint ready_of(Exact *self, const Turn *turn) {
    const RefitScheduleStep *step = turn->step;
    guint *ready = &self->ready[turn->turn.step];
    guint opens = self->build->opens[step->batch];
    gboolean waits = opens != REFIT_SIM_NONE;

    for (guint w = step->first_wait; !waits && w < step->first_wait + step->n_waits; w++)
        waits = !self->schedule->waits[w].in_slices;
    if (*ready != REFIT_SIM_NONE || !waits)
        return *ready;
    *ready = refit_sim_join(self->build);
    refit_sim_edge(self->build, opens, *ready);
    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
        const RefitWait *wait = &self->schedule->waits[w];

        if (!wait->in_slices)
            refit_sim_edge(self->build, done_before(self, &self->steps[wait->step], G_MAXUINT),
                           *ready);
    }
    return *ready;
}

/* All that holds the first item of a turn. */
static void add_waits(Exact *self, const Turn *turn, guint item) {
    const RefitScheduleStep *step = turn->step;

    refit_sim_edge(self->build, turn->submit, item);
    refit_sim_edge(self->build, ready_of(self, turn), item);
    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
        const RefitWait *wait = &self->schedule->waits[w];

        if (wait->in_slices)
            refit_sim_edge(self->build,
                           done_before(self, &self->steps[wait->step], turn->turn.number), item);
    }
    if (step->link != REFIT_LINK_LOCAL && turn->place >= REFIT_SCHEDULE_SLOTS)
        refit_sim_edge(self->build, done_at(self, step->stream, turn->place - REFIT_SCHEDULE_SLOTS),
                       item);
}

/* ---- turns ---- */

static void submit(Exact *self, Turn *turn) {
    RefitSimBuild *build = self->build;
    gboolean local = turn->step->link == REFIT_LINK_LOCAL;
    double seconds = build->costs.operation_s * (local ? 1 : 1 + turn->n_exchanges);
    guint before = REFIT_SIM_NONE, item;

    if (turn->place >= REFIT_SCHEDULE_IN_FLIGHT)
        before = done_at(self, turn->step->stream, turn->place - REFIT_SCHEDULE_IN_FLIGHT);
    if (seconds > 0 || before != REFIT_SIM_NONE) {
        item = refit_sim_delay(build, seconds);
        refit_sim_edge(build, self->submitted, item);
        refit_sim_edge(build, before, item);
        self->submitted = item;
    }
    turn->submit = self->submitted;
}

/* Copies or an install: one launch behind another. */
static guint add_launch(Exact *self, const Turn *turn) {
    const RefitSchedule *schedule = self->schedule;
    const RefitScheduleStep *step = turn->step;
    gboolean install = step->install != 0;
    double seconds = 0;
    guint64 bytes = 0;
    guint item;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];
        guint64 part = turn_bytes(self, turn, exchange);

        bytes += part;
        seconds += install ? refit_sim_install_s(&self->build->costs, self->rank,
                                                 &schedule->installs[exchange->first])
                           : share_s(self, turn, exchange, part, refit_sim_copy_s);
    }
    item = refit_sim_delay(self->build, seconds);
    add_waits(self, turn, item);
    if (turn->place > 0)
        refit_sim_edge(self->build, done_at(self, step->stream, turn->place - 1), item);
    add_event(self, turn, install ? REFIT_EVENT_INSTALL : REFIT_EVENT_COPY, self->rank, bytes, item,
              0);
    return item;
}

/* Packs what is packed and returns the item at which messages may move. */
static guint begin_move(Exact *self, const Turn *turn) {
    RefitSimBuild *build = self->build;
    guint *pack = &self->packs[turn->step->stream];
    guint moved = self->moved[refit_sim_comm(self->schedule, turn->step)];
    guint item;

    if (turn->packed > 0) {
        item = refit_sim_delay(build, turn->pack_s);
        add_waits(self, turn, item);
        refit_sim_edge(build, *pack, item);
        *pack = item;
        add_event(self, turn, REFIT_EVENT_PACK, self->rank, turn->packed, item, 0);
        item = refit_sim_join(build);
        refit_sim_edge(build, *pack, item);
    } else {
        item = refit_sim_join(build);
        add_waits(self, turn, item);
    }
    refit_sim_edge(build, moved, item);
    return item;
}

static double latency_of(const Exact *self, const Turn *turn,
                         const RefitScheduleExchange *exchange) {
    return exchange->kind == REFIT_EXCHANGE_SEND
               ? 0
               : refit_sim_latency(self->build->costs.topology, exchange->peer, self->rank,
                                   turn->step->link);
}

/* Moves, unpacks, and returns the item at which the turn is done. */
static guint add_moves(Exact *self, const Turn *turn) {
    RefitSimBuild *build = self->build;
    const RefitScheduleStep *step = turn->step;
    guint begin = begin_move(self, turn), moved = refit_sim_join(build);
    guint done = refit_sim_join(build);
    guint *unpack = &self->unpacks[step->stream];
    guint landed = turn->unpacked > 0 ? refit_sim_delay(build, turn->unpack_s) : done;

    refit_sim_edge(build, begin, moved);
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &self->schedule->exchanges[e];
        gboolean sends = exchange->kind == REFIT_EXCHANGE_SEND;
        double latency_s = latency_of(self, turn, exchange);
        guint64 bytes = turn_bytes(self, turn, exchange);
        guint flow;

        if (bytes == 0)
            continue;
        flow = flow_of(self, turn, exchange, bytes);
        refit_sim_edge(build, begin, flow);
        refit_sim_edge(build, flow, moved);
        if (!sends)
            refit_sim_edge_after(build, flow, latency_s, landed);
        add_event(self, turn, sends ? REFIT_EVENT_SEND : REFIT_EVENT_RECEIVE, exchange->peer, bytes,
                  flow, latency_s);
    }
    self->moved[refit_sim_comm(self->schedule, step)] = moved;
    if (turn->unpacked > 0) {
        refit_sim_edge(build, moved, landed);
        refit_sim_edge(build, *unpack, landed);
        refit_sim_edge(build, landed, done);
        *unpack = landed;
        add_event(self, turn, REFIT_EVENT_UNPACK, self->rank, turn->unpacked, landed, 0);
    }
    refit_sim_edge(build, moved, done);
    if (turn->place > 0)
        refit_sim_edge(build, done_at(self, step->stream, turn->place - 1), done);
    return done;
}

/* ---- ranks ---- */

static void clear_numbers(guint *numbers, guint n) {
    for (guint i = 0; i < n; i++)
        numbers[i] = REFIT_SIM_NONE;
}

/* Where the turns of each stream are in `done`. */
static void begin_rank(Exact *self, guint rank, guint n_steps) {
    guint n_streams = self->schedule->n_streams;

    self->rank = rank;
    self->submitted = REFIT_SIM_NONE;
    clear_numbers(self->packs, n_streams);
    clear_numbers(self->unpacks, n_streams);
    clear_numbers(self->moved, REFIT_SIM_N_COMMS);
    for (guint s = 0; s < n_streams; s++)
        self->turn_offsets[s] = 0;
    for (guint i = 0; i < n_steps; i++)
        self->turn_offsets[self->steps[i].stream] +=
            self->steps[i].n_numbers * self->steps[i].n_chunks;
    for (guint s = 0, offset = 0; s < n_streams; s++) {
        guint n = self->turn_offsets[s];

        self->turn_offsets[s] = offset;
        offset += n;
    }
}

static void add_rank(Exact *self, guint rank) {
    const RefitSchedule *schedule = self->schedule;
    g_autoptr(GArray) turns = refit_schedule_list_turns(schedule, rank);
    g_autofree guint *done = refit_sim_numbers(turns->len);
    g_autofree guint *ready = NULL;
    guint n_steps;

    self->steps = refit_schedule_steps(schedule, rank, &n_steps);
    self->done = done;
    ready = refit_sim_numbers(n_steps);
    self->ready = ready;
    begin_rank(self, rank, n_steps);
    for (guint i = 0; i < turns->len; i++) {
        const RefitTurn *at = &g_array_index(turns, RefitTurn, i);
        const RefitScheduleStep *step = &self->steps[at->step];
        Turn turn = {.step = step,
                     .turn = *at,
                     .place = step->first_turn + refit_schedule_turn_place(step, at)};
        guint item;

        survey(self, &turn);
        submit(self, &turn);
        item = step->link == REFIT_LINK_LOCAL ? add_launch(self, &turn) : add_moves(self, &turn);
        done[self->turn_offsets[step->stream] + turn.place] = item;
        if (refit_schedule_turn_place(step, at) + 1 == step->n_numbers * step->n_chunks &&
            self->build->closes[step->batch] != REFIT_SIM_NONE)
            refit_sim_edge(self->build, item, self->build->closes[step->batch]);
    }
}

gboolean refit_sim_build_exact(RefitSimBuild *build, GError **error) {
    const RefitSchedule *schedule = build->schedule;
    guint n_streams = MAX(schedule->n_streams, 1);
    g_autofree guint *senders = refit_sim_numbers(schedule->plan->n_messages);
    g_autofree guint64 *flow_offsets = g_new0(guint64, MAX(schedule->n_exchanges, 1));
    g_autofree guint *turn_offsets = g_new0(guint, n_streams);
    g_autofree guint *packs = g_new0(guint, n_streams), *unpacks = g_new0(guint, n_streams);
    Exact self = {.build = build,
                  .schedule = schedule,
                  .senders = senders,
                  .flow_offsets = flow_offsets,
                  .turn_offsets = turn_offsets,
                  .packs = packs,
                  .unpacks = unpacks};
    gboolean indexed = index_flows(&self, error);

    for (guint rank = 0; indexed && rank < schedule->plan->problem->n_ranks; rank++)
        add_rank(&self, rank);
    g_free(self.flows);
    return indexed;
}
