/*
 * Work items step by step, one flow per message: see refit-sim-graph.h for the rules.
 *
 * First come the flows and what each step does in sum; then what makes messages longer than their
 * flows, or late, of which nothing is made that the flow's own time at full rate already covers;
 * then the items of the steps of each rank, in the order in which it submits them. Cost: messages
 * and waits; about 5 items per step, 10 in sliced stages, and two per message.
 */

#include "sim/refit-sim-merged.h"

/* ---- sums ---- */

double refit_sim_chunk_share(const RefitScheduleStep *step, guint64 bytes, guint chunk) {
    return (double)(refit_cutting_border(&step->cutting, bytes, chunk + 1) -
                    refit_cutting_border(&step->cutting, bytes, chunk)) /
           (double)bytes;
}

static void sum_message(RefitSimMerged *self, guint number, const RefitScheduleExchange *exchange,
                        guint m, double *in, double *out) {
    const RefitScheduleStep *step = &self->schedule->steps[number];
    const RefitMessage *message = &self->schedule->plan->messages[m];
    gboolean sends = exchange->kind == REFIT_EXCHANGE_SEND;
    RefitSimSlices slices = refit_sim_slices(self->schedule, m);
    double first = slices.first_share, last = slices.last_share, seconds;
    RefitSimSums *sums = &self->sums[number];

    if (slices.slices == 1) {
        first = refit_sim_chunk_share(step, message->bytes, 0);
        last = refit_sim_chunk_share(step, message->bytes, step->n_chunks - 1);
    } else if (message->step + slices.first > step->number) {
        first = 0;
    }
    *(sends ? &self->sender[m] : &self->receiver[m]) = number;
    *(sends ? out : in) += (double)message->bytes;
    if (!sends)
        sums->all.latency_s =
            MAX(sums->all.latency_s, refit_sim_latency(self->build->costs.topology, exchange->peer,
                                                       self->rank, (RefitLink)step->link));
    if (exchange->direct != 0)
        return;
    if (sends) {
        seconds = refit_sim_pack_s(&self->build->costs, m);
        sums->packed += message->bytes;
        sums->all.pack_s += seconds;
        sums->pack_first_s += seconds * first;
    } else {
        seconds = refit_sim_unpack_s(&self->build->costs, m);
        sums->unpacked += message->bytes;
        sums->all.unpack_s += seconds;
        sums->unpack_last_s += seconds * last;
    }
}

/* Of a turn of a step, on average. */
static RefitSimLoad mean_load(const RefitSimSums *sums) {
    RefitSimLoad load = sums->all;

    load.port_s /= sums->n_turns;
    load.pack_s /= sums->n_turns;
    load.unpack_s /= sums->n_turns;
    return load;
}

/* Copies and latency do not hide behind the port. */
static gboolean is_held(const RefitSimSums *sums) {
    RefitSimLoad load = mean_load(sums);

    return load.pack_s + load.unpack_s + load.latency_s > load.port_s;
}

static void sum_step(RefitSimMerged *self, guint number) {
    const RefitSchedule *schedule = self->schedule;
    const RefitScheduleStep *step = &schedule->steps[number];
    RefitSimSums *sums = &self->sums[number];
    double in = 0, out = 0;

    if (step->link == REFIT_LINK_LOCAL)
        return;
    sums->n_turns = step->n_numbers * step->n_chunks;
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];

        for (guint i = 0; i < exchange->n_messages; i++)
            sum_message(self, number, exchange, schedule->messages[exchange->first + i], &in, &out);
    }
    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
        const RefitWait *wait = &schedule->waits[w];

        if (wait->in_slices && schedule->step_offsets[self->rank] + wait->step == number)
            sums->waits_for_itself = TRUE;
    }
    sums->all.port_s =
        MAX(in, out) / refit_sim_bandwidth(self->build->costs.topology, (RefitLink)step->link);
    sums->clocked = sums->n_turns > 1 && (step->n_numbers > 1 || is_held(sums));
}

static void sum_steps(RefitSimMerged *self) {
    const RefitSchedule *schedule = self->schedule;

    for (self->rank = 0; self->rank < schedule->plan->problem->n_ranks; self->rank++)
        for (guint s = schedule->step_offsets[self->rank];
             s < schedule->step_offsets[self->rank + 1]; s++)
            sum_step(self, s);
}

/* ---- turns ---- */

/* So many are gone through before the rest is taken to go on alike. */
#define LIKE_TURNS 16

double refit_sim_turns_s(const RefitSimLoad *loads, guint stride, guint n, guint every) {
    double packed = 0, moved = 0, unpacked = 0, done[2] = {0, 0}, begin, before[2] = {0, 0};
    guint period = every > 0 ? every : 2;
    guint enough = stride == 0 ? (LIKE_TURNS / period + 2) * period : n;

    for (guint i = 0; i < n; i++) {
        const RefitSimLoad *load = &loads[(gsize)i * stride];
        double ready = i > 1 ? done[0] : 0;

        if (i >= enough) {
            double more = (moved - before[0]) / period;
            return moved + more * (n - i);
        }
        if (i == enough - period)
            before[0] = moved;
        if (every > 0 && i >= every && i % every == 0)
            ready = MAX(ready, done[1]);
        packed = MAX(packed, ready) + (i > 0 ? load->pack_s : 0);
        begin = MAX(packed, moved);
        moved = begin + load->port_s;
        unpacked = MAX(unpacked, moved + load->latency_s) + load->unpack_s;
        done[0] = done[1];
        done[1] = unpacked;
    }
    return moved;
}

/* ---- messages ---- */

/* The item at which a message has ended, to put something before it. */
static guint end_join(RefitSimMerged *self, guint m) {
    guint join;

    if (self->ends[m] != self->flows[m])
        return self->ends[m];
    join = refit_sim_join(self->build);
    refit_sim_edge(self->build, self->flows[m], join);
    return self->ends[m] = join;
}

/* Where a step waits for itself, all that a number takes beside the port makes messages longer. */
static void add_gaps(RefitSimMerged *self, guint m, const RefitSimSlices *slices) {
    const guint sides[] = {self->sender[m], self->receiver[m]};
    double gap_s = 0;

    for (guint i = 0; i < 2; i++) {
        RefitSimLoad load = mean_load(&self->sums[sides[i]]);

        if (self->sums[sides[i]].waits_for_itself)
            gap_s = MAX(gap_s, load.pack_s + load.latency_s + load.unpack_s);
    }
    if (!(gap_s > 0) || slices->n == 1)
        return;
    self->ends[m] = refit_sim_join(self->build);
    refit_sim_edge_after(self->build, self->flows[m], gap_s * (slices->n - 1), self->ends[m]);
}

/* Dates of the first and the last turn of a message. */
static void add_dates(RefitSimMerged *self, guint m, double last_s) {
    const guint sides[] = {self->sender[m], self->receiver[m]};
    double begin_s = 0, port_s = 0;

    if (self->submits.steps == NULL)
        return;
    for (guint i = 0; i < 2; i++) {
        begin_s = MAX(begin_s, self->submits.steps[sides[i]]);
        port_s = MAX(port_s, self->sums[sides[i]].all.port_s);
    }
    if (self->submits.messages_first[m] > begin_s)
        refit_sim_date(self->build, self->submits.messages_first[m], self->flows[m]);
    if (self->submits.messages_last[m] + last_s > begin_s + port_s)
        refit_sim_date(self->build, self->submits.messages_last[m] + last_s, end_join(self, m));
}

static void add_message(RefitSimMerged *self, guint m) {
    RefitSimBuild *build = self->build;
    const RefitMessage *message = &build->plan->messages[m];
    const RefitPair *pair = &build->plan->pairs[message->pair];
    double seconds =
        (double)message->bytes / refit_sim_bandwidth(build->costs.topology, (RefitLink)pair->link);
    RefitSimSlices slices = refit_sim_slices(self->schedule, m);

    self->flows[m] = self->ends[m] =
        refit_sim_flow(build, pair->src, pair->dst, (double)message->bytes);
    if (self->sums[self->sender[m]].n_turns == 1 && self->sums[self->receiver[m]].n_turns == 1)
        return;
    if (slices.slices > 1)
        add_gaps(self, m, &slices);
    const RefitScheduleStep *step = &self->schedule->steps[self->sender[m]];
    seconds *= slices.slices > 1
                   ? slices.last_share
                   : refit_sim_chunk_share(step, message->bytes,
                                           refit_cutting_count(&step->cutting, message->bytes) - 1);
    if (self->sums[self->sender[m]].clocked || self->sums[self->receiver[m]].clocked) {
        self->lasts[m] = refit_sim_delay(build, seconds);
        refit_sim_edge(build, self->lasts[m], end_join(self, m));
    }
    add_dates(self, m, seconds);
}

/* ---- steps ---- */

static void add_event(RefitSimMerged *self, const RefitSimEvent *like, RefitEventKind kind,
                      guint peer, guint64 bytes) {
    RefitSimEvent event = *like;

    event.event.kind = kind;
    event.event.peer = peer;
    event.event.bytes = bytes;
    refit_sim_add_event(self->build, &event);
}

/* What holds all turns of a step. */
static void add_waits(RefitSimMerged *self, guint number, guint item) {
    RefitSimBuild *build = self->build;
    const RefitSchedule *schedule = self->schedule;
    const RefitScheduleStep *step = &schedule->steps[number];
    guint offset = schedule->step_offsets[self->rank];

    if (self->submits.steps != NULL)
        refit_sim_date(build, self->submits.steps[number], item);
    refit_sim_edge(build, build->opens[step->batch], item);
    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
        guint other = offset + schedule->waits[w].step;

        /* Slices that overlap are held one by one. */
        if (schedule->steps[other].number + schedule->steps[other].n_numbers <= step->number ||
            !schedule->waits[w].in_slices)
            refit_sim_edge(build, self->steps[other].done, item);
    }
}

/* Puts a step behind the one before it on its stream. */
static void enter_stream(RefitSimMerged *self, guint number) {
    RefitSimBuild *build = self->build;
    const RefitScheduleStep *step = &self->schedule->steps[number];
    RefitSimStream *stream = &self->streams[step->stream];

    if (stream->last != REFIT_SIM_NONE)
        refit_sim_edge(build, self->steps[stream->last].done, self->steps[number].done);
    if (build->closes[step->batch] != REFIT_SIM_NONE)
        refit_sim_edge(build, self->steps[number].done, build->closes[step->batch]);
    stream->before = stream->last;
    stream->last = number;
}

void refit_sim_add_launch(RefitSimMerged *self, guint number) {
    RefitSimBuild *build = self->build;
    const RefitSchedule *schedule = self->schedule;
    const RefitScheduleStep *step = &schedule->steps[number];
    RefitSimEvent event = refit_sim_event(step, self->rank, step->number, 0);
    guint64 bytes = 0;
    double seconds = 0;
    guint item;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];

        bytes += refit_schedule_exchange_bytes(schedule, exchange);
        if (step->install != 0)
            seconds += refit_sim_install_s(&build->costs, self->rank,
                                           &schedule->installs[exchange->first]);
        for (guint i = 0; step->install == 0 && i < exchange->n_messages; i++)
            seconds += refit_sim_copy_s(&build->costs, schedule->messages[exchange->first + i]);
    }
    item = refit_sim_delay(build, seconds);
    add_waits(self, number, item);
    self->steps[number] = (RefitSimStep){item, item, item, item, REFIT_SIM_NONE};
    enter_stream(self, number);
    event.begin = event.end = item;
    add_event(self, &event, step->install != 0 ? REFIT_EVENT_INSTALL : REFIT_EVENT_COPY, self->rank,
              bytes);
}

/*
 * The first turn has its slot when the last but one before it is done. After a step of several
 * turns that is one of this step.
 */
static void add_slot(RefitSimMerged *self, guint number) {
    RefitSimBuild *build = self->build;
    const RefitSimStream *stream = &self->streams[self->schedule->steps[number].stream];
    const RefitSimStep *items = &self->steps[number];
    guint last = stream->last;
    RefitSimLoad load;
    double lag_s;

    if (stream->before != REFIT_SIM_NONE)
        refit_sim_edge(build, self->steps[stream->before].done, items->first);
    if (last == REFIT_SIM_NONE || self->sums[last].n_turns == 1)
        return;
    if (self->sums[last].clocked) {
        refit_sim_edge(build, self->steps[last].almost_done, items->first);
        return;
    }
    /* Counted from the end of its flows, as there is no item for its turns. */
    load = mean_load(&self->sums[last]);
    lag_s = self->sums[number].pack_first_s + load.latency_s + load.unpack_s - load.port_s;
    if (lag_s > 0)
        refit_sim_edge_after(build, self->steps[last].moved, lag_s, items->begin);
}

void refit_sim_begin_step(RefitSimMerged *self, guint number) {
    RefitSimBuild *build = self->build;
    const RefitScheduleStep *step = &self->schedule->steps[number];
    const RefitSimSums *sums = &self->sums[number];
    RefitSimStream *stream = &self->streams[step->stream];
    RefitSimStep *items = &self->steps[number];
    guint *moved = &self->moved[refit_sim_comm(self->schedule, step)];

    items->first = items->begin =
        sums->pack_first_s > 0 ? refit_sim_delay(build, sums->pack_first_s) : refit_sim_join(build);
    add_waits(self, number, items->first);
    if (sums->pack_first_s > 0) {
        refit_sim_edge(build, stream->pack, items->first);
        stream->pack = items->first;
        items->begin = refit_sim_join(build);
        refit_sim_edge(build, items->first, items->begin);
    }
    if (*moved != REFIT_SIM_NONE)
        refit_sim_edge(build, self->steps[*moved].moved, items->begin);
    add_slot(self, number);
    *moved = number;
    items->moved = refit_sim_join(build);
    items->done = refit_sim_join(build);
    items->almost_done = sums->clocked ? refit_sim_join(build) : REFIT_SIM_NONE;
    enter_stream(self, number);
    if (sums->packed > 0) {
        RefitSimEvent event = refit_sim_event(step, self->rank, step->number, 0);

        event.begin = event.end = items->first;
        event.late_s = sums->all.pack_s - sums->pack_first_s;
        add_event(self, &event, REFIT_EVENT_PACK, self->rank, sums->packed);
    }
}

/* `landed`: what comes when all has arrived. */
static void end_message(RefitSimMerged *self, guint number, gboolean sends, guint m, guint landed) {
    RefitSimBuild *build = self->build;
    const RefitScheduleStep *step = &self->schedule->steps[number];
    const RefitMessage *message = &build->plan->messages[m];
    const RefitPair *pair = &build->plan->pairs[message->pair];
    RefitSimEvent event = refit_sim_event(step, self->rank, message->step, 0);

    refit_sim_edge(build, self->ends[m], self->steps[number].moved);
    event.begin = self->flows[m];
    event.end = self->ends[m];
    if (!sends) {
        event.late_s =
            refit_sim_latency(build->costs.topology, pair->src, pair->dst, (RefitLink)pair->link);
        refit_sim_edge_after(build, self->ends[m], event.late_s, landed);
    }
    add_event(self, &event, sends ? REFIT_EVENT_SEND : REFIT_EVENT_RECEIVE,
              sends ? pair->dst : pair->src, message->bytes);
}

void refit_sim_end_step(RefitSimMerged *self, guint number) {
    RefitSimBuild *build = self->build;
    const RefitSchedule *schedule = self->schedule;
    const RefitScheduleStep *step = &schedule->steps[number];
    const RefitSimSums *sums = &self->sums[number];
    RefitSimStream *stream = &self->streams[step->stream];
    RefitSimStep *items = &self->steps[number];
    guint landed = sums->unpacked > 0 ? refit_sim_delay(build, sums->unpack_last_s) : items->done;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];

        for (guint i = 0; i < exchange->n_messages; i++)
            end_message(self, number, exchange->kind == REFIT_EXCHANGE_SEND,
                        schedule->messages[exchange->first + i], landed);
    }
    refit_sim_edge(build, items->moved, items->done);
    if (sums->unpacked > 0) {
        RefitSimEvent event = refit_sim_event(step, self->rank, step->number, 0);

        refit_sim_edge(build, items->moved, landed);
        refit_sim_edge(build, stream->unpack, landed);
        refit_sim_edge(build, landed, items->done);
        stream->unpack = landed;
        event.begin = event.end = landed;
        event.early_s = sums->all.unpack_s - sums->unpack_last_s;
        add_event(self, &event, REFIT_EVENT_UNPACK, self->rank, sums->unpacked);
    }
}

static void add_moves(RefitSimMerged *self, guint number) {
    const RefitSchedule *schedule = self->schedule;
    const RefitScheduleStep *step = &schedule->steps[number];

    refit_sim_begin_step(self, number);
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++)
        for (guint i = 0; i < schedule->exchanges[e].n_messages; i++)
            refit_sim_edge(self->build, self->steps[number].begin,
                           self->flows[schedule->messages[schedule->exchanges[e].first + i]]);
    refit_sim_end_step(self, number);
}

static void add_rank(RefitSimMerged *self, guint rank) {
    const RefitSchedule *schedule = self->schedule;
    guint end = schedule->step_offsets[rank + 1];

    self->rank = rank;
    for (guint s = 0; s < schedule->n_streams; s++)
        self->streams[s] =
            (RefitSimStream){REFIT_SIM_NONE, REFIT_SIM_NONE, REFIT_SIM_NONE, REFIT_SIM_NONE};
    for (guint c = 0; c < REFIT_SIM_N_COMMS; c++)
        self->moved[c] = REFIT_SIM_NONE;
    for (guint first = schedule->step_offsets[rank], last; first < end; first = last) {
        const RefitScheduleStep *step = &schedule->steps[first];
        gboolean sliced = refit_schedule_slices(schedule, step->batch, step->stage) > 1;

        for (last = first + 1; sliced && last < end && schedule->steps[last].batch == step->batch &&
                               schedule->steps[last].stage == step->stage;)
            last++;
        if (sliced || self->sums[first].clocked)
            refit_sim_add_clocked(self, first, last);
        else if (step->link == REFIT_LINK_LOCAL)
            refit_sim_add_launch(self, first);
        else
            add_moves(self, first);
    }
}

/* ---- the whole ---- */

void refit_sim_build_merged(RefitSimBuild *build) {
    const RefitSchedule *schedule = build->schedule;
    const RefitPlan *plan = build->plan;
    g_autofree RefitSimSums *sums = g_new0(RefitSimSums, MAX(schedule->n_steps, 1));
    g_autofree RefitSimStep *steps = g_new0(RefitSimStep, MAX(schedule->n_steps, 1));
    g_autofree RefitSimStream *streams = g_new0(RefitSimStream, MAX(schedule->n_streams, 1));
    g_autofree guint *sender = refit_sim_numbers(plan->n_messages);
    g_autofree guint *receiver = refit_sim_numbers(plan->n_messages);
    g_autofree guint *flows = refit_sim_numbers(plan->n_messages);
    g_autofree guint *ends = refit_sim_numbers(plan->n_messages);
    g_autofree guint *lasts = refit_sim_numbers(plan->n_messages);
    RefitSimMerged self = {.build = build,
                           .schedule = schedule,
                           .sums = sums,
                           .steps = steps,
                           .streams = streams,
                           .sender = sender,
                           .receiver = receiver,
                           .flows = flows,
                           .ends = ends,
                           .lasts = lasts};

    refit_sim_submits_init(&self.submits, build);
    sum_steps(&self);
    for (guint m = 0; m < plan->n_messages; m++)
        if (plan->pairs[plan->messages[m].pair].link != REFIT_LINK_LOCAL)
            add_message(&self, m);
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++)
        add_rank(&self, rank);
    refit_sim_submits_clear(&self.submits);
    build->out->n_parts = plan->n_messages;
}
