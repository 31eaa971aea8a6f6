/*
 * When a rank submits its turns, if nothing holds it: the costs of all its turns up to each one.
 *
 * Turns are not listed, there may be many thousand per step. Steps of one batch and stage overlap
 * in numbers, those of different ones do not, so they are gone through together, from one number at
 * which a step or message begins or ends to the next: in between, each number costs the same. The
 * exceptions are slices without bytes, which cost less; numbers of short chains are gone through
 * one by one, in long ones the mean counts. Cost: messages, times those that overlap, and chunks.
 */

#include "sim/refit-sim-private.h"

#include <string.h>

/* A message with empty slices is gone through slice by slice up to so many of them. */
#define SHORT_SLICES 64

/* ---- slices with bytes ---- */

RefitSimSlices refit_sim_slices(const RefitSchedule *schedule, guint message) {
    const RefitPlan *plan = schedule->plan;
    const RefitMessage *self = &plan->messages[message];
    const RefitPair *pair = &plan->pairs[self->pair];
    guint n = refit_schedule_message_slices(schedule, self);
    RefitSimSlices slices = {n, n, 0, 1.0 / n, 1.0 / n};
    /* From here on what the borders of slices are rounded to does not matter. */
    const guint64 even = (guint64)REFIT_SCHEDULE_SLICE_ALIGN * n * SHORT_SLICES;
    const guint64 filled = (guint64)REFIT_SCHEDULE_SLICE_ALIGN * n;
    guint64 largest = 0;

    /* The largest piece is not below their mean. */
    if (n == 1 || self->bytes / MAX(self->tensors, 1) >= even)
        return slices;
    for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++) {
        const RefitTransfer *transfer = &plan->transfers[t];

        if (refit_plan_batch_members(plan, refit_plan_section_of(plan, transfer), self->batch) > 0)
            largest = MAX(largest, refit_plan_transfer_bytes(plan, transfer));
        if (largest >= even || (largest >= filled && n > SHORT_SLICES))
            return slices;
    }
    if (n > SHORT_SLICES) {
        slices.n = (guint)MAX(largest / REFIT_SCHEDULE_SLICE_ALIGN, 1);
        slices.first = n / slices.n - 1;
        return slices;
    }
    slices.n = 0;
    for (guint i = 0; i < n; i++) {
        double share = (double)refit_schedule_message_bytes(schedule, message, self->step + i) /
                       (double)self->bytes;

        if (!(share > 0))
            continue;
        if (slices.n++ == 0) {
            slices.first = i;
            slices.first_share = share;
        }
        slices.last_share = share;
    }
    return slices;
}

/* ---- rows ---- */

/* A step at a number: what its turns cost, in operations. */
typedef struct {
    guint step;    /* of the schedule */
    GArray *up_to; /* double per chunk and one more: all turns of chunks before */
} Row;

typedef struct {
    const RefitSimBuild *build;
    RefitSimSubmits *submits;
    double now; /* operations before the number in work */
    guint n_rows;
    Row rows[REFIT_N_LINKS + 1]; /* one per link class, and an install */
    double per_number;           /* of all rows */
    GArray *borders;             /* guint: numbers */
} Sweep;

static double up_to(const Row *row, guint chunk) {
    return g_array_index(row->up_to, double, MIN(chunk, row->up_to->len - 1));
}

/* Operations from the start of the number until this turn of a row is submitted. */
static double place_of(const Sweep *sweep, const Row *row, guint chunk) {
    const RefitScheduleStep *steps = sweep->build->schedule->steps, *self = &steps[row->step];
    double sum = 0;

    for (guint r = 0; r < sweep->n_rows; r++) {
        const Row *other = &sweep->rows[r];
        const RefitScheduleStep *step = &steps[other->step];

        if (step->install != self->install)
            sum += step->install < self->install ? up_to(other, G_MAXUINT) : 0;
        else
            sum += up_to(other, chunk + (step->stream <= self->stream ? 1 : 0));
    }
    return sum;
}

/* Chunks that an exchange has under the numbers from `number` on, and how many of these numbers
 * have any. */
static guint count_chunks(const Sweep *sweep, const RefitScheduleStep *step,
                          const RefitScheduleExchange *exchange, guint number, double *share_out) {
    const RefitSchedule *schedule = sweep->build->schedule;
    guint64 bytes = 0;

    *share_out = 0;
    for (guint i = 0; i < exchange->n_messages; i++) {
        guint m = schedule->messages[exchange->first + i];
        const RefitMessage *message = &schedule->plan->messages[m];
        RefitSimSlices slices;

        if (number < message->step ||
            number - message->step >= refit_schedule_message_slices(schedule, message))
            continue;
        slices = refit_sim_slices(schedule, m);
        if (slices.n > 0 && (slices.n == slices.slices || slices.slices > SHORT_SLICES)) {
            bytes += message->bytes / slices.n;
            *share_out = MAX(*share_out, (double)slices.n / slices.slices);
        } else {
            bytes += refit_schedule_message_bytes(schedule, m, number);
            *share_out = 1;
        }
    }
    return bytes == 0 ? 0 : MIN(refit_cutting_count(&step->cutting, bytes), step->n_chunks);
}

static void fill_row(Sweep *sweep, Row *row, guint number) {
    const RefitSchedule *schedule = sweep->build->schedule;
    const RefitScheduleStep *step = &schedule->steps[row->step];
    double *sums, more = 0;

    g_array_set_size(row->up_to, step->n_chunks + 1);
    sums = (double *)(gpointer)row->up_to->data;
    memset(sums, 0, row->up_to->len * sizeof *sums);
    /* First, at each chunk, how many exchanges have it as their last one. */
    for (guint e = 0; step->link != REFIT_LINK_LOCAL && e < step->n_exchanges; e++) {
        double share;
        guint n = count_chunks(sweep, step, &schedule->exchanges[step->first_exchange + e], number,
                               &share);

        sums[n] += share;
    }
    for (guint chunk = step->n_chunks; chunk > 0; chunk--) {
        double ends_here = sums[chunk];

        more += ends_here;
        sums[chunk] = 1 + more;
    }
    sums[0] = 0;
    for (guint chunk = 1; chunk <= step->n_chunks; chunk++)
        sums[chunk] += sums[chunk - 1];
}

/* ---- dates ---- */

static void raise_to(double *date, double to) {
    *date = MAX(*date, to);
}

/* Dates of the messages of a row that begin or end in the numbers [number, end). */
static void date_messages(const Sweep *sweep, const Row *row, guint number, guint end) {
    const RefitSchedule *schedule = sweep->build->schedule;
    const RefitScheduleStep *step = &schedule->steps[row->step];
    double operation_s = sweep->build->costs.operation_s;

    for (guint i = 0; i < step->n_exchanges; i++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[step->first_exchange + i];
        double share;
        guint n = count_chunks(sweep, step, exchange, number, &share);

        for (guint k = 0; k < exchange->n_messages; k++) {
            guint m = schedule->messages[exchange->first + k], first, last;
            const RefitMessage *message = &schedule->plan->messages[m];

            if (message->step >= end ||
                message->step + refit_schedule_message_slices(schedule, message) <= number)
                continue;
            RefitSimSlices slices = refit_sim_slices(schedule, m);
            first = message->step + slices.first;
            last = message->step + slices.slices - 1;
            if (first >= number && first < end)
                raise_to(&sweep->submits->messages_first[m],
                         operation_s * (sweep->now + place_of(sweep, row, 0) +
                                        (first - number) * sweep->per_number));
            if (last >= number && last < end)
                raise_to(&sweep->submits->messages_last[m],
                         operation_s * (sweep->now + place_of(sweep, row, MAX(n, 1) - 1) +
                                        (last - number) * sweep->per_number));
        }
    }
}

/* The numbers [number, end), each of which costs the same, of the steps [first, last). */
static void pass(Sweep *sweep, guint first, guint last, guint number, guint end) {
    const RefitScheduleStep *steps = sweep->build->schedule->steps;

    sweep->n_rows = 0;
    sweep->per_number = 0;
    for (guint s = first; s < last && steps[s].number < end; s++) {
        Row *row = &sweep->rows[sweep->n_rows];

        if (steps[s].number + steps[s].n_numbers <= number)
            continue;
        g_assert(sweep->n_rows < G_N_ELEMENTS(sweep->rows));
        row->step = s;
        fill_row(sweep, row, number);
        sweep->per_number += up_to(row, G_MAXUINT);
        sweep->n_rows++;
    }
    for (guint r = 0; r < sweep->n_rows; r++) {
        const Row *row = &sweep->rows[r];
        const RefitScheduleStep *step = &steps[row->step];

        if (step->number == number)
            sweep->submits->steps[row->step] =
                sweep->build->costs.operation_s * (sweep->now + place_of(sweep, row, 0));
        if (step->link != REFIT_LINK_LOCAL && step->n_numbers * step->n_chunks > 1)
            date_messages(sweep, row, number, end);
    }
    sweep->now += (end - number) * sweep->per_number;
}

/* ---- batches and stages ---- */

static int compare_numbers(gconstpointer left, gconstpointer right) {
    const guint *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

static void add_border(Sweep *sweep, guint number) {
    g_array_append_val(sweep->borders, number);
}

static void add_borders(Sweep *sweep, const RefitScheduleStep *step) {
    const RefitSchedule *schedule = sweep->build->schedule;

    add_border(sweep, step->number);
    add_border(sweep, step->number + step->n_numbers);
    for (guint e = 0; step->n_numbers > 1 && e < step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[step->first_exchange + e];

        for (guint i = 0; i < exchange->n_messages; i++) {
            guint m = schedule->messages[exchange->first + i];
            guint begin = schedule->plan->messages[m].step;
            RefitSimSlices slices = refit_sim_slices(schedule, m);
            gboolean single = slices.n < slices.slices && slices.slices <= SHORT_SLICES;

            for (guint k = 0; k < slices.slices; k += single ? 1 : slices.slices)
                add_border(sweep, begin + k);
            add_border(sweep, begin + slices.slices);
        }
    }
}

/* The steps [first, last) of a rank, all of one batch and stage. */
static void pass_stage(Sweep *sweep, guint first, guint last) {
    const RefitScheduleStep *steps = sweep->build->schedule->steps;

    g_array_set_size(sweep->borders, 0);
    for (guint s = first; s < last; s++)
        add_borders(sweep, &steps[s]);
    g_array_sort(sweep->borders, compare_numbers);
    for (guint i = 0; i + 1 < sweep->borders->len; i++) {
        guint number = g_array_index(sweep->borders, guint, i);
        guint end = g_array_index(sweep->borders, guint, i + 1);

        while (first < last && steps[first].number + steps[first].n_numbers <= number)
            first++;
        if (number < end)
            pass(sweep, first, last, number, end);
    }
}

void refit_sim_submits_init(RefitSimSubmits *submits, const RefitSimBuild *build) {
    const RefitSchedule *schedule = build->schedule;
    g_autoptr(GArray) borders = g_array_new(FALSE, FALSE, sizeof(guint));
    Sweep sweep = {.build = build, .submits = submits, .borders = borders};

    *submits = (RefitSimSubmits){0};
    if (!(build->costs.operation_s > 0))
        return;
    submits->steps = g_new0(double, MAX(schedule->n_steps, 1));
    submits->messages_first = g_new0(double, MAX(schedule->plan->n_messages, 1));
    submits->messages_last = g_new0(double, MAX(schedule->plan->n_messages, 1));
    for (guint r = 0; r < G_N_ELEMENTS(sweep.rows); r++)
        sweep.rows[r].up_to = g_array_new(FALSE, FALSE, sizeof(double));
    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++) {
        guint end = schedule->step_offsets[rank + 1];

        sweep.now = 0;
        for (guint first = schedule->step_offsets[rank], last; first < end; first = last) {
            const RefitScheduleStep *step = &schedule->steps[first];

            for (last = first + 1; last < end && schedule->steps[last].batch == step->batch &&
                                   schedule->steps[last].stage == step->stage;)
                last++;
            pass_stage(&sweep, first, last);
        }
    }
    for (guint r = 0; r < G_N_ELEMENTS(sweep.rows); r++)
        g_array_unref(sweep.rows[r].up_to);
}

void refit_sim_submits_clear(RefitSimSubmits *submits) {
    g_clear_pointer(&submits->steps, g_free);
    g_clear_pointer(&submits->messages_first, g_free);
    g_clear_pointer(&submits->messages_last, g_free);
}
