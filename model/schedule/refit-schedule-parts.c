/*
 * Slices: in which stages hops overlap, and which bytes move under which number.
 *
 * A sliced stage in which some rank would meet too many peers in one turn, or has to copy something
 * between two hops, is carried out hop after hop instead. All of it is counted from the plan's
 * messages, so all ranks come to the same. Cost: messages; those of sliced stages are sorted.
 */

#include "model/schedule/refit-schedule-private.h"

/* ---- slices ---- */

guint64 refit_schedule_cut(guint64 bytes, guint slices, guint slice) {
    if (slice >= slices)
        return bytes;
    guint64 at = bytes / slices * slice + bytes % slices * slice / slices;

    return at - at % REFIT_SCHEDULE_SLICE_ALIGN;
}

static const RefitScheduleStorage *storage_of(const RefitSchedule *schedule) {
    return (const RefitScheduleStorage *)schedule;
}

guint refit_schedule_slices(const RefitSchedule *schedule, guint batch, guint stage) {
    return storage_of(schedule)->slices[(gsize)batch * schedule->plan->n_stages + stage];
}

guint refit_schedule_message_slices(const RefitSchedule *schedule, const RefitMessage *message) {
    const RefitPair *pair = &schedule->plan->pairs[message->pair];

    return pair->link == REFIT_LINK_LOCAL
               ? 1
               : refit_schedule_slices(schedule, message->batch, pair->stage);
}

guint64 refit_schedule_message_bytes(const RefitSchedule *schedule, guint message, guint number) {
    const RefitPlan *plan = schedule->plan;
    const RefitMessage *self = &plan->messages[message];
    const RefitPair *pair = &plan->pairs[self->pair];
    guint slices = refit_schedule_message_slices(schedule, self), slice = number - self->step;
    guint64 bytes = 0;

    if (number < self->step || slice >= slices)
        return 0;
    if (slices == 1)
        return self->bytes;
    for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++) {
        const RefitTransfer *transfer = &plan->transfers[t];
        guint64 of_piece = refit_plan_transfer_bytes(plan, transfer);

        bytes += (refit_schedule_cut(of_piece, slices, slice + 1) -
                  refit_schedule_cut(of_piece, slices, slice)) *
                 refit_plan_batch_members(plan, refit_plan_section_of(plan, transfer), self->batch);
    }
    return bytes;
}

guint64 refit_schedule_most_bytes(const RefitSchedule *schedule,
                                  const RefitScheduleExchange *exchange) {
    const guint *messages = schedule->messages + exchange->first;
    guint64 bytes = 0;

    for (guint i = 0; i < exchange->n_messages; i++) {
        const RefitMessage *message = &schedule->plan->messages[messages[i]];

        /* The borders of slices are multiples of REFIT_SCHEDULE_SLICE_ALIGN. */
        bytes += exchange->slices == 1
                     ? message->bytes
                     : MIN(message->bytes,
                           message->bytes / exchange->slices +
                               (guint64)message->tensors * (REFIT_SCHEDULE_SLICE_ALIGN + 1));
    }
    return bytes;
}

/* ---- chunks ---- */

static guint64 count_grains(const RefitCutting *cutting, guint64 bytes) {
    return bytes / cutting->grain + (bytes % cutting->grain > 0 ? 1 : 0);
}

guint refit_cutting_count(const RefitCutting *cutting, guint64 bytes) {
    return (guint)CLAMP(count_grains(cutting, bytes), 1, cutting->n);
}

guint64 refit_cutting_border(const RefitCutting *cutting, guint64 bytes, guint chunk) {
    guint64 grains = count_grains(cutting, bytes), n = refit_cutting_count(cutting, bytes);

    if (chunk == 0 || chunk >= n)
        return chunk == 0 ? 0 : bytes;
    return (grains / n * chunk + grains % n * chunk / n) * cutting->grain;
}

guint64 refit_cutting_most(const RefitCutting *cutting, guint64 bytes) {
    guint64 grains = count_grains(cutting, bytes), n = refit_cutting_count(cutting, bytes);

    if (n == 1)
        return bytes;
    return (grains / n + (grains % n > 0 ? 1 : 0)) * cutting->grain;
}

/* ---- numbers ---- */

void refit_schedule_numbers(const RefitSchedule *schedule, const RefitScheduleExchange *exchange,
                            guint *first_out, guint *end_out) {
    const guint *messages = schedule->messages + exchange->first;

    /* Ascending, and so are their steps. */
    *first_out = schedule->plan->messages[messages[0]].step;
    *end_out = schedule->plan->messages[messages[exchange->n_messages - 1]].step + exchange->slices;
}

/* A local copy is made whole, so it cannot stand between the hops of a chain. */
static gboolean has_local_hop(const RefitScheduleBuild *build, guint first, guint end) {
    const RefitPlan *plan = build->plan;

    for (guint m = first; m < end; m++) {
        guint n_deps;
        const guint *deps = refit_plan_deps_get(build->deps, plan->messages[m].pair, &n_deps);

        if (plan->pairs[plan->messages[m].pair].link != REFIT_LINK_LOCAL)
            continue;
        for (guint d = 0; d < n_deps; d++)
            if ((deps[d] & REFIT_PLAN_DEP_STAGE) == 0)
                return TRUE;
    }
    return FALSE;
}

typedef struct {
    GArray *pairs; /* guint64: sender and receiver */
    guint *counts; /* per rank; zeros between calls */
} Census;

static int compare_pairs(gconstpointer left, gconstpointer right) {
    const guint64 *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

/*
 * Most exchanges of a rank in a turn of the messages [first, end) of a sliced stage: peers and
 * directions of all hops, which in the middle of a chain all have a slice.
 */
static guint count_exchanges(const RefitPlan *plan, const Census *census, guint first, guint end) {
    guint most = 0;

    g_array_set_size(census->pairs, 0);
    for (guint m = first; m < end; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];
        guint64 key = (guint64)pair->src << 32 | pair->dst;

        if (pair->link != REFIT_LINK_LOCAL)
            g_array_append_val(census->pairs, key);
    }
    g_array_sort(census->pairs, compare_pairs);
    const guint64 *keys = (const guint64 *)(gpointer)census->pairs->data;
    for (guint i = 0; i < census->pairs->len; i++)
        if (i == 0 || keys[i] != keys[i - 1]) {
            guint sender = ++census->counts[keys[i] >> 32];
            guint receiver = ++census->counts[(guint32)keys[i]];

            most = MAX(most, MAX(sender, receiver));
        }
    for (guint i = 0; i < census->pairs->len; i++)
        census->counts[keys[i] >> 32] = census->counts[(guint32)keys[i]] = 0;
    return most;
}

static guint64 largest_message(const RefitPlan *plan, guint first, guint end) {
    guint64 largest = 0;

    for (guint m = first; m < end; m++)
        largest = MAX(largest, plan->messages[m].bytes);
    return largest;
}

/* Messages [first, end) are all of a stage in a batch. */
static void enter_stage(RefitScheduleBuild *build, const Census *census, guint first, guint end) {
    const RefitPlan *plan = build->plan;
    const RefitProfile *profile = plan->problem->refit_case->profile; /* NULL: no costs stated */
    const RefitMessage *messages = plan->messages;
    guint stage = plan->pairs[messages[first].pair].stage, batch = messages[first].batch;
    guint *slices = &build->storage->slices[(gsize)batch * plan->n_stages + stage];

    if (*slices > 1 && profile != NULL)
        *slices =
            (guint)CLAMP((double)largest_message(plan, first, end) / profile->slice_bytes.value,
                         1.0, (double)*slices);
    if (*slices > 1 && (has_local_hop(build, first, end) ||
                        count_exchanges(plan, census, first, end) > REFIT_STEP_OPERATIONS))
        *slices = 1;
    for (guint m = first; m < end; m++) {
        RefitLink link = plan->pairs[messages[m].pair].link;

        if (m == first || (*slices == 1 && messages[m].step != messages[m - 1].step))
            g_array_set_size(build->groups, build->groups->len + 1);
        build->group_of[m] = build->groups->len - 1;
        build->used[refit_schedule_stream(plan, stage, batch, link)] = 1;
    }
}

void refit_schedule_choose_slices(RefitScheduleBuild *build) {
    const RefitPlan *plan = build->plan;
    gsize n = (gsize)plan->n_batches * plan->n_stages;
    guint n_messages = (guint)plan->n_messages;
    g_autoptr(GArray) pairs = g_array_new(FALSE, FALSE, sizeof(guint64));
    g_autofree guint *counts = g_new0(guint, MAX(plan->problem->n_ranks, 1));
    const Census census = {pairs, counts};

    build->storage->slices = g_new(guint, MAX(n, 1));
    for (gsize i = 0; i < n; i++)
        build->storage->slices[i] = MIN(plan->stages[i % plan->n_stages].slices, G_MAXUINT16);
    for (guint first = 0, end; first < n_messages; first = end) {
        const RefitMessage *message = &plan->messages[first];
        guint stage = plan->pairs[message->pair].stage;

        for (end = first + 1; end < n_messages && plan->messages[end].batch == message->batch &&
                              plan->pairs[plan->messages[end].pair].stage == stage;)
            end++;
        enter_stage(build, &census, first, end);
    }
}
