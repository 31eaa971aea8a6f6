/*
 * Proof that a schedule finishes on all ranks, however they are delayed.
 *
 * Turns have a global order: (number, install, chunk). A rank submits its turns in this order, both
 * ends of a message carry the same numbers and chunks, and what a turn waits for comes before it in
 * this order. So the first turn of all ranks that is not done waits for nothing that is not done,
 * and goes on: nobody waits in a circle. What is checked is just that, from the schedule as it is:
 * the order of steps, that waits look back, that each message has its two ends, alike, and that
 * dependencies of the plan look back. Cost: steps, waits, messages and dependencies.
 */

#include "model/schedule/refit-schedule-private.h"

/* What an end of a message says of it. */
typedef struct {
    guint rank;  /* 1 + rank; 0: not met */
    guint first; /* message of its exchange */
    guint stream;
    RefitCutting cutting;
} End;

static gboolean fail(const RefitSchedule *schedule, guint rank, guint number, GError **error,
                     const char *format, ...) G_GNUC_PRINTF(5, 6);
static gboolean fail(const RefitSchedule *schedule, guint rank, guint number, GError **error,
                     const char *format, ...) {
    g_autofree char *text = NULL;
    va_list arguments;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "a plan by the strategy %s: rank %u, step %u: %s", schedule->plan->strategy, rank,
                number, text);
    return FALSE;
}

/* ---- the plan's dependencies ---- */

static gboolean check_deps(const RefitSchedule *schedule, GError **error) {
    const RefitPlan *plan = schedule->plan;

    for (guint m = 0; m < plan->n_messages; m++) {
        const RefitMessage *message = &plan->messages[m];
        const RefitPair *pair = &plan->pairs[message->pair];
        guint n_deps;
        const guint *deps = refit_schedule_deps(schedule, message->pair, &n_deps);

        for (guint d = 0; d < n_deps; d++)
            if ((deps[d] & REFIT_PLAN_DEP_STAGE) != 0
                    ? (deps[d] & ~REFIT_PLAN_DEP_STAGE) >= pair->stage
                    : plan->pairs[deps[d]].offset >= pair->offset)
                return fail(schedule, pair->src, message->step, error,
                            "the message to rank %u follows one that comes no earlier", pair->dst);
    }
    return TRUE;
}

/* ---- ranks ---- */

static gboolean check_waits(const RefitSchedule *schedule, guint rank,
                            const RefitScheduleStep *steps, guint n, guint number, GError **error) {
    const RefitScheduleStep *step = &steps[number];

    for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
        const RefitWait *wait = &schedule->waits[w];
        const RefitScheduleStep *on = &steps[MIN(wait->step, n - 1)];
        guint last = on->number + on->n_numbers - 1;

        if (wait->step >= n)
            return fail(schedule, rank, step->number, error, "waits for no step");
        if (wait->in_slices ? on->install != 0 || step->install != 0 || on->batch != step->batch ||
                                  on->stage != step->stage
                            : last > step->number || (last == step->number &&
                                                      (step->install == 0 || on->install != 0)))
            return fail(schedule, rank, step->number, error,
                        "waits for step %u, which does not end before", last);
    }
    return TRUE;
}

/* Exchanges with different peers or directions: those of a turn at most. */
static guint count_peers(const RefitSchedule *schedule, const RefitScheduleStep *step) {
    guint n = 0;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];

        n += e == step->first_exchange || exchange->peer != exchange[-1].peer ||
             exchange->kind != exchange[-1].kind;
    }
    return n;
}

/* Turns of a stream follow each other, and those of the rank are in the global order. */
static gboolean check_step(const RefitSchedule *schedule, guint rank,
                           const RefitScheduleStep *steps, guint number, guint *turns, guint *ends,
                           GError **error) {
    const RefitScheduleStep *step = &steps[number];

    if (number > 0) {
        const RefitScheduleStep *before = step - 1;

        if (before->number > step->number ||
            (before->number == step->number &&
             (before->install > step->install ||
              (before->install == step->install && before->stream >= step->stream))))
            return fail(schedule, rank, step->number, error, "comes after step %u", before->number);
    }
    if (step->n_chunks == 0 || step->cutting.n == 0 || step->cutting.grain == 0 ||
        step->n_numbers == 0 || step->n_exchanges == 0 || step->first_turn != turns[step->stream] ||
        (step->install == 0 && step->number < ends[step->stream]))
        return fail(schedule, rank, step->number, error,
                    "is not behind the one before it on its "
                    "stream");
    if (step->link != REFIT_LINK_LOCAL && count_peers(schedule, step) > REFIT_STEP_OPERATIONS)
        return fail(schedule, rank, step->number, error,
                    "has %u exchanges in a turn, the limit is %d", count_peers(schedule, step),
                    REFIT_STEP_OPERATIONS);
    turns[step->stream] += step->n_numbers * step->n_chunks;
    ends[step->stream] = step->number + step->n_numbers;
    return TRUE;
}

/* ---- messages ---- */

static gboolean meet(const RefitSchedule *schedule, End *other, guint rank,
                     const RefitScheduleStep *step, const RefitScheduleExchange *exchange, guint m,
                     guint64 bytes, GError **error) {
    const RefitMessage *message = &schedule->plan->messages[m];
    const End end = {rank + 1, schedule->messages[exchange->first], step->stream, step->cutting};

    if (exchange->slices != refit_schedule_message_slices(schedule, message))
        return fail(schedule, rank, step->number, error,
                    "has other slices of the message of step %u", message->step);
    if (message->step < step->number ||
        message->step + exchange->slices > step->number + step->n_numbers)
        return fail(schedule, rank, step->number, error, "has no turns for the message of step %u",
                    message->step);
    if (step->link != REFIT_LINK_LOCAL &&
        refit_cutting_count(&step->cutting, bytes) > step->n_chunks)
        return fail(schedule, rank, step->number, error,
                    "has %u chunks, too few for %" G_GUINT64_FORMAT " bytes", step->n_chunks,
                    bytes);
    if (other->rank == 0) {
        *other = end;
        return TRUE;
    }
    /* What moves together at one end does so at the other. */
    return (other->rank != end.rank && other->first == end.first && other->stream == end.stream &&
            other->cutting.n == end.cutting.n && other->cutting.grain == end.cutting.grain) ||
           fail(schedule, rank, step->number, error,
                "cuts the message with rank %u otherwise, or has it twice", other->rank - 1);
}

static gboolean check_exchanges(const RefitSchedule *schedule, guint rank,
                                const RefitScheduleStep *step, End *ends, guint8 *met,
                                GError **error) {
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];
        guint64 bytes = refit_schedule_most_bytes(schedule, exchange);

        for (guint i = 0; i < exchange->n_messages; i++) {
            guint m = schedule->messages[exchange->first + i];
            const RefitMessage *message = &schedule->plan->messages[m];
            const RefitPair *pair = &schedule->plan->pairs[message->pair];
            gboolean sends = exchange->kind != REFIT_EXCHANGE_RECEIVE;

            if ((sends ? pair->src : pair->dst) != rank || message->batch != step->batch ||
                pair->stage != step->stage || (sends ? pair->dst : pair->src) != exchange->peer ||
                pair->link != step->link)
                return fail(schedule, rank, step->number, error,
                            "has a message with rank %u that is not of it", exchange->peer);
            if (!meet(schedule, &ends[m], rank, step, exchange, m, bytes, error))
                return FALSE;
            met[m]++;
        }
    }
    return TRUE;
}

gboolean refit_schedule_check(const RefitSchedule *schedule, GError **error) {
    const RefitPlan *plan = schedule->plan;
    g_autofree End *ends = g_new0(End, MAX(plan->n_messages, 1));
    g_autofree guint8 *met = g_new0(guint8, MAX(plan->n_messages, 1));
    g_autofree guint *turns = g_new(guint, MAX(schedule->n_streams, 1));
    g_autofree guint *stream_ends = g_new(guint, MAX(schedule->n_streams, 1));

    if (!check_deps(schedule, error))
        return FALSE;
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++) {
        guint n;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n);

        for (guint s = 0; s < schedule->n_streams; s++)
            turns[s] = stream_ends[s] = 0;
        for (guint i = 0; i < n; i++)
            if (!check_step(schedule, rank, steps, i, turns, stream_ends, error) ||
                !check_waits(schedule, rank, steps, n, i, error) ||
                !check_exchanges(schedule, rank, &steps[i], ends, met, error))
                return FALSE;
    }
    for (guint m = 0; m < plan->n_messages; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];

        if (met[m] != (pair->link == REFIT_LINK_LOCAL ? 1 : 2))
            return fail(schedule, pair->src, plan->messages[m].step, error,
                        "the message to rank %u has %u of its ends", pair->dst, met[m]);
    }
    return TRUE;
}
