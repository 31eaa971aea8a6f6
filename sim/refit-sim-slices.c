/*
 * Steps of sliced stages, in which messages begin and end under different numbers.
 *
 * Each step has a clock, which has a tick at every number under which a message of the rank's
 * sliced steps begins, has its last slice, or is over. A tick is two items: `moved`, at which all
 * turns of smaller numbers have moved, and `begin`, at which the number's turn may move; they are
 * one unless turns wait in slices. From tick to tick the clock takes what the slices of the
 * messages that are under way take at full rate, or longer, when a message starts late: so a
 * message holds the others of its step, as its slices hold their turns. Cost: ticks times messages,
 * per step.
 */

#include "sim/refit-sim-merged.h"

#include <string.h>

#define MAX_SPARSE 64 /* numbers that are gone through one by one */

/* An end of a message. */
typedef struct {
    guint message;
    guint first, last; /* numbers with bytes */
    gboolean sends;
    gboolean sparse;                /* some numbers in between have none */
    gboolean in_all_chunks;         /* of a number that is cut */
    double first_share, last_share; /* of the message, under the first and the last number */
    double share;                   /* under each other one that has bytes */
    RefitSimLoad load;              /* of the message; the port's part in seconds, one way */
} Part;

typedef struct {
    guint number;
    guint moved, begin; /* items */
    double lag_s;       /* of moved, behind the begin of the tick before */
} Tick;

typedef struct {
    guint step, before; /* of the schedule; before: on the same stream */
    guint first_part, n_parts;
    guint first_tick, n_ticks;
} Clock;

typedef struct {
    RefitSimMerged *merged;
    RefitSimBuild *build;
    const RefitSchedule *schedule;
    GArray *numbers; /* guint */
    GArray *parts, *ticks, *clocks;
} Slices;

/* ---- loads ---- */

/* Numbers of a part, and the share of its message under each. */
static void find_numbers(const Slices *self, const RefitScheduleStep *step, Part *part) {
    const RefitMessage *message = &self->schedule->plan->messages[part->message];
    RefitSimSlices slices = refit_sim_slices(self->schedule, part->message);
    guint n = slices.n;

    part->first = message->step + slices.first;
    part->last = message->step + slices.slices - 1;
    part->first_share = slices.first_share;
    part->last_share = slices.last_share;
    part->sparse = n < slices.slices - slices.first;
    if (slices.slices == 1 && refit_cutting_count(&step->cutting, message->bytes) > 1) {
        n = refit_cutting_count(&step->cutting, message->bytes);
        part->first_share = refit_sim_chunk_share(step, message->bytes, 0);
        part->last_share = refit_sim_chunk_share(step, message->bytes, n - 1);
        part->last = part->first + n - 1;
    }
    part->share = n > 2 ? (1 - part->first_share - part->last_share) / (n - 2) : 0;
}

static void collect_parts(Slices *self, Clock *clock) {
    const RefitSchedule *schedule = self->schedule;
    const RefitScheduleStep *step = &schedule->steps[clock->step];
    const RefitSimCosts *costs = &self->build->costs;
    double bytes_per_s = refit_sim_bandwidth(costs->topology, (RefitLink)step->link);

    clock->first_part = self->parts->len;
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];
        gboolean sends = exchange->kind == REFIT_EXCHANGE_SEND;
        guint64 most = refit_schedule_most_bytes(schedule, exchange);
        gboolean in_all_chunks = step->n_numbers > 1 && step->n_chunks > 1 &&
                                 refit_cutting_count(&step->cutting, most) == step->n_chunks;

        for (guint i = 0; i < exchange->n_messages; i++) {
            guint m = schedule->messages[exchange->first + i];
            Part part = {.message = m, .sends = sends, .in_all_chunks = in_all_chunks};

            find_numbers(self, step, &part);
            part.load.port_s = (double)schedule->plan->messages[m].bytes / bytes_per_s;
            if (!sends)
                part.load.latency_s = refit_sim_latency(costs->topology, exchange->peer,
                                                        self->merged->rank, (RefitLink)step->link);
            if (exchange->direct == 0 && sends)
                part.load.pack_s = refit_sim_pack_s(costs, m);
            if (exchange->direct == 0 && !sends)
                part.load.unpack_s = refit_sim_unpack_s(costs, m);
            g_array_append_val(self->parts, part);
        }
    }
    clock->n_parts = self->parts->len - clock->first_part;
}

static double share_at(const Slices *self, const Part *part, guint number) {
    const RefitMessage *message = &self->schedule->plan->messages[part->message];

    if (number < part->first || number > part->last)
        return 0;
    if (number == part->last)
        return part->last_share;
    if (number == part->first)
        return part->first_share;
    if (!part->sparse || part->last - part->first > MAX_SPARSE)
        return part->share;
    return (double)refit_schedule_message_bytes(self->schedule, part->message, number) /
           (double)message->bytes;
}

/* Of the step under one number. */
static RefitSimLoad load_at(const Slices *self, const Clock *clock, guint number) {
    const Part *parts = &g_array_index(self->parts, Part, clock->first_part);
    RefitSimLoad load = {0};
    double in_s = 0, out_s = 0;

    for (guint i = 0; i < clock->n_parts; i++) {
        double share = share_at(self, &parts[i], number);

        if (!(share > 0))
            continue;
        *(parts[i].sends ? &out_s : &in_s) += share * parts[i].load.port_s;
        load.pack_s += share * parts[i].load.pack_s;
        load.unpack_s += share * parts[i].load.unpack_s;
        load.latency_s = MAX(load.latency_s, parts[i].load.latency_s);
    }
    load.port_s = MAX(in_s, out_s);
    return load;
}

static gboolean is_sparse(const Slices *self, const Clock *clock, guint number, guint n) {
    for (guint i = 0; n > 1 && n <= MAX_SPARSE && i < clock->n_parts; i++) {
        const Part *part = &g_array_index(self->parts, Part, clock->first_part + i);

        if (part->sparse && part->first < number + n && part->last >= number)
            return TRUE;
    }
    return FALSE;
}

/* From the begin of `number` until n numbers have moved. */
static double numbers_s(const Slices *self, const Clock *clock, guint number, guint n) {
    const RefitScheduleStep *step = &self->schedule->steps[clock->step];
    guint n_chunks =
        step->n_numbers > 1 ? step->n_chunks : 1; /* else it is them that are counted */
    guint every = self->merged->sums[clock->step].waits_for_itself ? n_chunks : 0;
    RefitSimLoad loads[MAX_SPARSE];

    loads[0] = load_at(self, clock, number);
    if (is_sparse(self, clock, number, n)) {
        for (guint i = 1; i < n; i++)
            loads[i] = load_at(self, clock, number + i);
        return refit_sim_turns_s(loads, 1, n, every > 0 ? 1 : 0);
    }
    loads[0].port_s /= n_chunks;
    loads[0].pack_s /= n_chunks;
    loads[0].unpack_s /= n_chunks;
    return refit_sim_turns_s(loads, 0, n * n_chunks, every);
}

/* ---- ticks ---- */

static int compare_numbers(gconstpointer left, gconstpointer right) {
    const guint *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

/* All numbers at which clocks tick, each once. */
static void collect_numbers(Slices *self) {
    guint *numbers, n = 0;

    g_array_set_size(self->numbers, 0);
    for (guint i = 0; i < self->parts->len; i++) {
        const Part *part = &g_array_index(self->parts, Part, i);
        guint all[] = {part->first, part->last, part->last + 1};

        g_array_append_vals(self->numbers, all, G_N_ELEMENTS(all));
    }
    g_array_sort(self->numbers, compare_numbers);
    numbers = (guint *)(gpointer)self->numbers->data;
    for (guint i = 0; i < self->numbers->len; i++)
        if (n == 0 || numbers[i] != numbers[n - 1])
            numbers[n++] = numbers[i];
    g_array_set_size(self->numbers, n);
}

static Tick *tick_of(const Slices *self, const Clock *clock, guint i) {
    return &g_array_index(self->ticks, Tick, clock->first_tick + i);
}

/* For the step that follows: the tick before the last one is that of the last turn. */
static void note_almost(const Slices *self, const Clock *clock) {
    const Tick *tick = tick_of(self, clock, clock->n_ticks - 2);
    RefitSimLoad load = load_at(self, clock, tick->number - 1);

    refit_sim_edge_after(self->build, tick->moved, load.latency_s + load.unpack_s,
                         self->merged->steps[clock->step].almost_done);
}

/* Makes the items of `moved`. The first tick is the step's begin, the last one its end. */
static void add_ticks(Slices *self, Clock *clock) {
    const RefitScheduleStep *step = &self->schedule->steps[clock->step];
    const RefitSimStep *items = &self->merged->steps[clock->step];
    guint end = step->number + (step->n_numbers > 1 ? step->n_numbers : step->n_chunks);
    Tick before = {step->number, items->begin, items->begin, 0};

    clock->first_tick = self->ticks->len;
    g_array_append_val(self->ticks, before);
    for (guint i = 0; i < self->numbers->len; i++) {
        guint number = g_array_index(self->numbers, guint, i);
        Tick tick = {.number = number};

        if (number <= step->number || number > end)
            continue;
        tick.lag_s = numbers_s(self, clock, before.number, number - before.number);
        tick.moved = tick.begin = number == end ? items->moved : refit_sim_join(self->build);
        g_array_append_val(self->ticks, tick);
        before = tick;
    }
    clock->n_ticks = self->ticks->len - clock->first_tick;
    note_almost(self, clock);
}

/* ---- waits ---- */

/* The begin of a tick, to put something before it. */
static guint held_begin(const Slices *self, Tick *tick) {
    if (tick->begin == tick->moved) {
        tick->begin = refit_sim_join(self->build);
        refit_sim_edge(self->build, tick->moved, tick->begin);
    }
    return tick->begin;
}

/* Something that holds the begin of a tick, `seconds` after it. */
static void hold(const Slices *self, Tick *tick, guint item, double seconds) {
    refit_sim_edge_after(self->build, item, seconds, held_begin(self, tick));
}

/* What comes between the move of a number before `number` and the begin of this one, when the one
 * waits for the other to be done. */
static double between_s(const Slices *self, const Clock *before, const Clock *after, guint number) {
    RefitSimLoad done = load_at(self, before, number - 1);

    return done.latency_s + done.unpack_s + load_at(self, after, number).pack_s;
}

/* The clock of a step, if it has one, and its tick at a number, or the last one before it. */
static const Clock *clock_of(const Slices *self, guint step) {
    for (guint i = 0; i < self->clocks->len; i++)
        if (g_array_index(self->clocks, Clock, i).step == step)
            return &g_array_index(self->clocks, Clock, i);
    return NULL;
}

static const Tick *tick_at(const Slices *self, const Clock *clock, guint number) {
    const Tick *found = NULL;

    for (guint i = 0; i < clock->n_ticks && tick_of(self, clock, i)->number <= number; i++)
        found = tick_of(self, clock, i);
    return found;
}

/* The first turn of a step is held before its pack. */
static void hold_first(Slices *self, const Clock *clock, const Clock *before, guint step) {
    guint first = self->merged->steps[clock->step].first;
    guint number = tick_of(self, clock, 0)->number;

    if (before == NULL) {
        refit_sim_edge(self->build, self->merged->steps[step].done, first);
        return;
    }
    RefitSimLoad done = load_at(self, before, number - 1);
    refit_sim_edge_after(self->build, tick_at(self, before, number)->moved,
                         done.latency_s + done.unpack_s, first);
}

/* Turns wait for those of smaller numbers, of their step or of others. */
static void add_wait(Slices *self, const Clock *clock, const RefitWait *wait) {
    const RefitSchedule *schedule = self->schedule;
    guint step = schedule->step_offsets[self->merged->rank] + wait->step;
    const RefitScheduleStep *other = &schedule->steps[step];
    const Clock *before = clock_of(self, step);
    gboolean over = other->number + other->n_numbers <= schedule->steps[clock->step].number;

    if (!wait->in_slices || over)
        return;
    for (guint i = 0; i + 1 < clock->n_ticks; i++) {
        Tick *tick = tick_of(self, clock, i);

        if (tick->number <= other->number)
            continue;
        if (i == 0) {
            hold_first(self, clock, before, step);
            continue;
        }
        if (before == NULL) { /* copies */
            hold(self, tick, self->merged->steps[step].done, 0);
            return;
        }
        if (tick->number >= other->number + other->n_numbers) {
            hold(self, tick, self->merged->steps[step].done,
                 load_at(self, clock, tick->number).pack_s);
            return;
        }
        hold(self, tick, tick_at(self, before, tick->number)->moved,
             between_s(self, before, clock, tick->number));
    }
}

/* From the done of a number to the begin of the one after the next, which has its slot. */
static double slot_s(const Slices *self, const Clock *clock, guint number) {
    RefitSimLoad load = load_at(self, clock, number);

    return load.latency_s + load.unpack_s + load_at(self, clock, number + 2).pack_s;
}

/* What comes so long after a tick, whose turn has begun when its messages have on both ranks. */
static void add_behind(const Slices *self, const Clock *clock, const Tick *tick, double seconds,
                       guint item) {
    refit_sim_edge_after(self->build, tick->begin, seconds, item);
    for (guint p = 0; p < clock->n_parts; p++) {
        const Part *part = &g_array_index(self->parts, Part, clock->first_part + p);

        if (part->first == tick->number)
            refit_sim_edge_after(self->build, self->merged->flows[part->message], seconds,
                                 item | REFIT_NETSIM_ON_START);
    }
}

/*
 * The rule of slots between turns on both sides of a tick; between two ticks it is in their delay.
 * The turn before a tick has the slot of the second one behind it, the second one before it that of
 * the tick's own. Nothing is made where the port takes longer.
 */
static void add_slots(Slices *self, const Clock *clock) {
    for (guint i = 1; i + 1 < clock->n_ticks; i++) {
        Tick *before = tick_of(self, clock, i - 1), *tick = tick_of(self, clock, i);
        const Tick *next = tick_of(self, clock, i + 1);
        double seconds = slot_s(self, clock, tick->number - 1);

        if (seconds > load_at(self, clock, tick->number).port_s) {
            if (next->number == tick->number + 1)
                hold(self, tick_of(self, clock, i + 1), tick->moved, seconds);
            else
                refit_sim_edge_after(self->build, tick->moved,
                                     seconds + numbers_s(self, clock, tick->number + 1,
                                                         next->number - tick->number - 1),
                                     next->moved);
        }
        if (tick->number - before->number < 2)
            continue;
        seconds = slot_s(self, clock, tick->number - 2);
        if (seconds > load_at(self, clock, tick->number - 1).port_s)
            add_behind(
                self, clock, before,
                seconds + numbers_s(self, clock, before->number, tick->number - before->number - 1),
                held_begin(self, tick));
    }
}

/* Packs and unpacks follow each other, whatever is between two ticks: where they take longer than
 * the port, they hold the tick of the next turn, and the last unpack. */
static void add_copies(Slices *self, const Clock *clock) {
    RefitSimBuild *build = self->build;
    const RefitSimStep *items = &self->merged->steps[clock->step];
    RefitSimStream *stream = &self->merged->streams[self->schedule->steps[clock->step].stream];
    guint join = REFIT_SIM_NONE;
    double unpack_s = 0; /* from the tick on, but of the last turn */

    for (guint i = clock->n_ticks - 1; i-- > 0;) {
        const Tick *tick = tick_of(self, clock, i);
        Tick *next = tick_of(self, clock, i + 1);
        RefitSimLoad load = load_at(self, clock, tick->number);
        guint n = next->number - tick->number;
        double pack_s = load.pack_s * (n - 1) + load_at(self, clock, next->number).pack_s;

        if (i + 2 < clock->n_ticks && load.pack_s > load.port_s)
            hold(self, next, tick->begin, pack_s);
        unpack_s += load.unpack_s * (i + 2 < clock->n_ticks ? n : n - 1);
        if (load.unpack_s <= load.port_s)
            continue;
        if (join == REFIT_SIM_NONE) {
            join = refit_sim_join(build);
            refit_sim_edge(build, stream->unpack, join);
            refit_sim_edge(build, join, items->almost_done);
            stream->unpack = join;
        }
        add_behind(self, clock, tick, load.port_s + load.latency_s + unpack_s, join);
    }
}

/* The second turn has the slot of the last one of the step before. */
static void add_first_slot(Slices *self, const Clock *clock) {
    const RefitSimMerged *merged = self->merged;
    Tick *first = tick_of(self, clock, 0), *next = tick_of(self, clock, 1);
    RefitSimLoad load = load_at(self, clock, first->number);
    double pack_s = load_at(self, clock, first->number + 1).pack_s;
    const RefitSimSums *sums;
    guint done;

    if (clock->before == REFIT_SIM_NONE)
        return;
    sums = &merged->sums[clock->before];
    done = merged->steps[clock->before].done;
    if (sums->unpack_last_s + sums->all.latency_s + pack_s <= load.port_s)
        return;
    if (next->number == first->number + 1)
        hold(self, next, done, pack_s);
    else
        refit_sim_edge_after(
            self->build, done,
            pack_s + numbers_s(self, clock, first->number + 1, next->number - first->number - 1),
            next->moved);
}

/* A last slice ends with its last chunk, and chunks may be held by more than the port. */
static void prolong(const RefitSimBuild *build, guint delay, double seconds) {
    RefitNetsimItem *item = &g_array_index(build->out->items, RefitNetsimItem, delay);

    item->delay_s = MAX(item->delay_s, seconds);
}

/* Messages and delays follow the begin of their ticks. */
static void add_edges(Slices *self, const Clock *clock) {
    RefitSimBuild *build = self->build;
    const RefitSimMerged *merged = self->merged;

    for (guint i = 0; i + 1 < clock->n_ticks; i++) {
        const Tick *next = tick_of(self, clock, i + 1);

        add_behind(self, clock, tick_of(self, clock, i), next->lag_s, next->moved);
    }
    for (guint p = 0; p < clock->n_parts; p++) {
        const Part *part = &g_array_index(self->parts, Part, clock->first_part + p);
        guint m = part->message;

        for (guint i = 0; i < clock->n_ticks; i++) {
            const Tick *tick = tick_of(self, clock, i);

            if (tick->number == part->first)
                refit_sim_edge(build, tick->begin, merged->flows[m]);
            if (tick->number == part->last)
                refit_sim_edge(build, tick->begin, merged->lasts[m]);
            if (tick->number == part->last && part->in_all_chunks)
                prolong(build, merged->lasts[m], numbers_s(self, clock, part->last, 1));
            if (tick->number == part->last + 1)
                refit_sim_edge(build, merged->ends[m], tick->moved);
        }
    }
}

void refit_sim_add_clocked(RefitSimMerged *merged, guint first, guint last) {
    g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autoptr(GArray) parts = g_array_new(FALSE, FALSE, sizeof(Part));
    g_autoptr(GArray) ticks = g_array_new(FALSE, FALSE, sizeof(Tick));
    g_autoptr(GArray) clocks = g_array_new(FALSE, FALSE, sizeof(Clock));
    Slices self = {.merged = merged,
                   .build = merged->build,
                   .schedule = merged->schedule,
                   .numbers = numbers,
                   .parts = parts,
                   .ticks = ticks,
                   .clocks = clocks};

    for (guint s = first; s < last; s++) {
        Clock clock = {.step = s};

        if (merged->schedule->steps[s].link == REFIT_LINK_LOCAL) {
            refit_sim_add_launch(merged, s);
            continue;
        }
        clock.before = merged->streams[merged->schedule->steps[s].stream].last;
        refit_sim_begin_step(merged, s);
        collect_parts(&self, &clock);
        g_array_append_val(clocks, clock);
    }
    collect_numbers(&self);
    for (guint i = 0; i < clocks->len; i++)
        add_ticks(&self, &g_array_index(clocks, Clock, i));
    for (guint i = 0; i < clocks->len; i++) {
        const Clock *clock = &g_array_index(clocks, Clock, i);
        const RefitScheduleStep *step = &merged->schedule->steps[clock->step];

        for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++)
            add_wait(&self, clock, &merged->schedule->waits[w]);
        if (!merged->sums[clock->step].waits_for_itself) {
            add_slots(&self, clock);
            add_copies(&self, clock);
        }
        add_first_slot(&self, clock);
    }
    for (guint i = 0; i < clocks->len; i++) {
        add_edges(&self, &g_array_index(clocks, Clock, i));
        refit_sim_end_step(merged, g_array_index(clocks, Clock, i).step);
    }
}
