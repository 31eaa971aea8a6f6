/*
 * A plan as a schedule of streams, to prove that it finishes.
 *
 * Each stream of a rank (lane, track, link class) is a rank of its own in the game of
 * refit-progress.h; each message is an operation of its sender's and its receiver's stream. What a
 * message waits for is put into the sender's stream before it: all that a stage it depends on
 * delivered to that rank in the batch, the messages of its own stage that it follows, and before a
 * barrier everything the rank had a part in so far. Hops of a sliced stage run side by side and
 * only have to follow each other by offset, which is checked directly. A stream waits for a stage
 * at most once per batch, so the cost stays near the number of messages.
 */

#include "model/plan/refit-progress.h"

#define NO_MESSAGE G_MAXUINT

/* A group is what a stream has in flight at once: a step, or all of a sliced stage in a batch. */
typedef struct {
    guint waits_in, acts_in; /* last group, from 1, that has such a step here */
    guint batch;             /* 1 + the batch that the rest is about */
    gboolean has_barrier;    /* waited at this batch's barrier already */
    guint64 waited;          /* stages waited for; those from 64 on are waited for each time */
} Stream;

typedef struct {
    const RefitPlan *plan;
    RefitProgress *progress; /* operation m is message m */
    Stream *streams;
    guint group;
    guint *message_of; /* per pair: its message in the current batch */
    guint *arrivals;   /* per rank: its last arrival in the current batch */
    guint *next;       /* per message: the arrival before it at the same rank */
    GArray **parts;    /* per rank: messages it had a part in before the current batch */
} Lattice;

static guint stream_of(const RefitPlan *plan, guint rank, const RefitMessage *message) {
    const RefitPair *pair = &plan->pairs[message->pair];
    guint lane = plan->batches[message->batch].lane, track = plan->stages[pair->stage].track;

    return ((rank * plan->n_lanes + lane) * plan->n_stages + track) * REFIT_N_LINKS + pair->link;
}

static void wait_for(Lattice *lattice, guint stream, guint message) {
    Stream *state = &lattice->streams[stream];

    if (state->waits_in != lattice->group)
        refit_progress_begin_step(lattice->progress, stream);
    state->waits_in = lattice->group;
    refit_progress_join(lattice->progress, stream, message);
}

static void act(Lattice *lattice, guint stream, guint message) {
    Stream *state = &lattice->streams[stream];

    if (state->acts_in != lattice->group)
        refit_progress_begin_step(lattice->progress, stream);
    state->acts_in = lattice->group;
    refit_progress_join(lattice->progress, stream, message);
}

/* Everything that `stage` delivered to `rank` in the current batch. */
static void wait_for_stage(Lattice *lattice, guint stream, guint rank, guint stage) {
    const RefitPlan *plan = lattice->plan;
    guint64 bit = stage < 64 ? G_GUINT64_CONSTANT(1) << stage : 0;

    if (lattice->streams[stream].waited & bit)
        return;
    lattice->streams[stream].waited |= bit;
    for (guint m = lattice->arrivals[rank]; m != NO_MESSAGE; m = lattice->next[m])
        if (plan->pairs[plan->messages[m].pair].stage == stage)
            wait_for(lattice, stream, m);
}

/* One transfer of `message` follows one of the pair `before`. */
static gboolean wait_for_pair(Lattice *lattice, guint stream, const RefitMessage *message,
                              guint before, GError **error) {
    const RefitPlan *plan = lattice->plan;
    const RefitPair *pair = &plan->pairs[message->pair];
    guint stage = plan->pairs[before].stage;

    if (stage < pair->stage) {
        wait_for_stage(lattice, stream, pair->src, stage);
        return TRUE;
    }
    if (stage > pair->stage || plan->pairs[before].offset >= pair->offset) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                    "the message of step %u from rank %u to rank %u follows one that comes no "
                    "earlier",
                    message->step, pair->src, pair->dst);
        return FALSE;
    }
    if (plan->stages[stage].slices == 1 && lattice->message_of[before] != NO_MESSAGE)
        wait_for(lattice, stream, lattice->message_of[before]);
    return TRUE;
}

static gboolean wait_for_deps(Lattice *lattice, guint stream, const RefitMessage *message,
                              GError **error) {
    const RefitPlan *plan = lattice->plan;
    const RefitPair *pair = &plan->pairs[message->pair];

    for (guint t = 0; t < pair->n_transfers; t++) {
        const RefitTransfer *transfer = &plan->transfers[pair->first_transfer + t];
        if (refit_plan_batch_members(plan, transfer->class_index, message->batch) == 0)
            continue;
        for (guint d = 0; d < transfer->n_deps; d++) {
            guint dep = plan->deps[transfer->first_dep + d];
            if (!wait_for_pair(lattice, stream, message, plan->transfers[dep].pair, error))
                return FALSE;
        }
    }
    return TRUE;
}

static void wait_at_barrier(Lattice *lattice, guint stream, guint rank, guint batch) {
    Stream *state = &lattice->streams[stream];

    if (state->batch != batch + 1) {
        state->batch = batch + 1;
        state->has_barrier = FALSE;
        state->waited = 0;
    }
    if (!lattice->plan->batches[batch].barrier || state->has_barrier)
        return;
    state->has_barrier = TRUE;
    for (guint i = 0; lattice->parts[rank] != NULL && i < lattice->parts[rank]->len; i++)
        wait_for(lattice, stream, g_array_index(lattice->parts[rank], guint, i));
}

/* First what the messages [first, end) wait for, then the messages. */
static gboolean add_group(Lattice *lattice, guint first, guint end, GError **error) {
    const RefitPlan *plan = lattice->plan;

    lattice->group++;
    for (guint m = first; m < end; m++) {
        const RefitMessage *message = &plan->messages[m];
        const RefitPair *pair = &plan->pairs[message->pair];
        guint sender = stream_of(plan, pair->src, message);

        wait_at_barrier(lattice, sender, pair->src, message->batch);
        wait_at_barrier(lattice, stream_of(plan, pair->dst, message), pair->dst, message->batch);
        if (!wait_for_deps(lattice, sender, message, error))
            return FALSE;
    }
    for (guint m = first; m < end; m++) {
        const RefitMessage *message = &plan->messages[m];
        const RefitPair *pair = &plan->pairs[message->pair];
        guint sender = stream_of(plan, pair->src, message);
        guint receiver = stream_of(plan, pair->dst, message);

        act(lattice, sender, m);
        if (receiver != sender)
            act(lattice, receiver, m);
        lattice->message_of[message->pair] = m;
        lattice->next[m] = lattice->arrivals[pair->dst];
        lattice->arrivals[pair->dst] = m;
    }
    return TRUE;
}

/* Forgets the batch of messages [first, end), but for the ranks that had a part in it. */
static void end_batch(Lattice *lattice, guint first, guint end, gboolean keep) {
    for (guint m = first; m < end; m++) {
        const RefitPair *pair = &lattice->plan->pairs[lattice->plan->messages[m].pair];
        const guint ranks[] = {pair->src, pair->dst};

        lattice->message_of[lattice->plan->messages[m].pair] = NO_MESSAGE;
        lattice->arrivals[pair->dst] = NO_MESSAGE;
        for (guint i = 0; keep && i < (pair->src == pair->dst ? 1u : 2u); i++) {
            if (lattice->parts[ranks[i]] == NULL)
                lattice->parts[ranks[i]] = g_array_new(FALSE, FALSE, sizeof(guint));
            g_array_append_val(lattice->parts[ranks[i]], m);
        }
    }
}

static gboolean same_group(const RefitPlan *plan, guint a, guint b) {
    const RefitMessage *left = &plan->messages[a], *right = &plan->messages[b];
    guint stage = plan->pairs[left->pair].stage;

    if (left->step == right->step)
        return TRUE;
    return left->batch == right->batch && plan->pairs[right->pair].stage == stage &&
           plan->stages[stage].slices > 1;
}

static gboolean add_messages(Lattice *lattice, GError **error) {
    const RefitPlan *plan = lattice->plan;
    guint n = (guint)plan->n_messages;
    guint last_barrier = 0;

    for (guint batch = 0; batch < plan->n_batches; batch++)
        last_barrier = plan->batches[batch].barrier ? batch : last_barrier;
    for (guint first = 0, batch_first = 0; first < n;) {
        guint end = first + 1;

        while (end < n && same_group(plan, first, end))
            end++;
        if (!add_group(lattice, first, end, error))
            return FALSE;
        if (end == n || plan->messages[end].batch != plan->messages[first].batch) {
            end_batch(lattice, batch_first, end, plan->messages[first].batch < last_barrier);
            batch_first = end;
        }
        first = end;
    }
    return TRUE;
}

static gboolean check_finishes(const RefitProgress *progress, const RefitPlan *plan,
                               GError **error) {
    g_autoptr(RefitProgressResult) result = refit_progress_run(progress);

    if (result->finishes)
        return TRUE;
    const RefitMessage *message = &plan->messages[result->stuck[0].operation];
    const RefitPair *pair = &plan->pairs[message->pair];
    guint per_rank = plan->n_lanes * plan->n_stages * REFIT_N_LINKS;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "rank %u waits for ever for the message of step %u from rank %u to rank %u, which "
                "rank %u does not come to (%u streams are stuck)",
                result->stuck[0].rank / per_rank, message->step, pair->src, pair->dst,
                result->stuck[0].missing / per_rank, result->n_stuck);
    return FALSE;
}

static guint *new_numbers(guint n, guint value) {
    guint *numbers = g_new(guint, MAX(n, 1));

    for (guint i = 0; i < n; i++)
        numbers[i] = value;
    return numbers;
}

gboolean refit_plan_check_progress(const RefitPlan *plan, GError **error) {
    guint n_ranks = plan->problem->n_ranks;
    guint64 n_streams = (guint64)n_ranks * plan->n_lanes * plan->n_stages * REFIT_N_LINKS;

    if (plan->n_messages >= G_MAXUINT32 || n_streams >= G_MAXUINT32) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                    "%" G_GUINT64_FORMAT " messages on %" G_GUINT64_FORMAT
                    " streams are too many to follow; check a smaller plan",
                    plan->n_messages, n_streams);
        return FALSE;
    }
    g_autoptr(RefitProgress) progress = refit_progress_new((guint)n_streams);
    g_autofree Stream *streams = g_new0(Stream, MAX(n_streams, 1));
    g_autofree guint *message_of = new_numbers(plan->n_pairs, NO_MESSAGE);
    g_autofree guint *arrivals = new_numbers(n_ranks, NO_MESSAGE);
    g_autofree guint *next = new_numbers((guint)plan->n_messages, NO_MESSAGE);
    g_autofree GArray **parts = g_new0(GArray *, MAX(n_ranks, 1));
    Lattice lattice = {.plan = plan,
                       .progress = progress,
                       .streams = streams,
                       .message_of = message_of,
                       .arrivals = arrivals,
                       .next = next,
                       .parts = parts};

    for (guint m = 0; m < plan->n_messages; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];
        const guint ends[] = {stream_of(plan, pair->src, &plan->messages[m]),
                              stream_of(plan, pair->dst, &plan->messages[m])};
        refit_progress_add_operation(progress, ends, G_N_ELEMENTS(ends));
    }
    gboolean finishes = add_messages(&lattice, error) && check_finishes(progress, plan, error);
    for (guint rank = 0; rank < n_ranks; rank++)
        g_clear_pointer(&parts[rank], g_array_unref);
    if (!finishes)
        g_prefix_error(error, "a plan by the strategy %s: ", plan->strategy);
    return finishes;
}
