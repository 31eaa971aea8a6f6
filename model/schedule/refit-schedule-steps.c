/*
 * The steps of all ranks: a rank's messages, in step order, become steps and exchanges; then, when
 * chunks are known, turns.
 *
 * What a rank has under one number, or in one batch of a sliced stage, is parted by link class; in
 * a sliced stage also where no slice is under way, so that each number of a step has messages. Each
 * part is a step, its messages with one peer in one direction an exchange. Installs follow the last
 * stage that brings buckets. Cost: messages, and those of a step sorted.
 */

#include "model/base/refit-checked.h"
#include "model/schedule/refit-schedule-private.h"

typedef struct {
    guint peer;
    gboolean sends;
    guint message;
} End;

typedef struct {
    RefitScheduleBuild *build;
    guint rank;
    GArray *of_link[REFIT_N_LINKS];  /* guint: messages of the group in work */
    GArray *ends;                    /* End, of the step in work */
    RefitScheduleInstalls *installs; /* NULL: nothing comes in buckets */
} Lister;

/* ---- exchanges ---- */

static gboolean comes_before(const End *a, const End *b) {
    if (a->peer != b->peer)
        return a->peer < b->peer;
    if (a->sends != b->sends)
        return b->sends;
    return a->message < b->message;
}

/* The ends of messages, in the order of exchanges; nearly so from the start. */
static void list_ends(Lister *lister, const guint *messages, guint n) {
    const RefitPlan *plan = lister->build->plan;
    End *ends;

    g_array_set_size(lister->ends, n);
    ends = (End *)(gpointer)lister->ends->data;
    for (guint i = 0; i < n; i++) {
        const RefitPair *pair = &plan->pairs[plan->messages[messages[i]].pair];
        gboolean receives = pair->dst == lister->rank;
        End end = {receives ? pair->src : pair->dst, !receives, messages[i]};
        guint at = i;

        for (; at > 0 && comes_before(&end, &ends[at - 1]); at--)
            ends[at] = ends[at - 1];
        ends[at] = end;
    }
}

static void add_exchange(Lister *lister, const End *ends, guint n, guint slices) {
    RefitScheduleBuild *build = lister->build;
    gboolean copies = ends[0].peer == lister->rank;
    RefitScheduleExchange exchange = {.peer = ends[0].peer,
                                      .kind = copies          ? REFIT_EXCHANGE_COPY
                                              : ends[0].sends ? REFIT_EXCHANGE_SEND
                                                              : REFIT_EXCHANGE_RECEIVE,
                                      .slices = (guint16)slices,
                                      .n_messages = n,
                                      .first = build->messages->len};

    if (n == 1 && !copies)
        exchange.direct =
            refit_schedule_is_direct(build->direct, ends[0].message, slices, ends[0].sends) ? 1 : 0;
    for (guint i = 0; i < n; i++)
        g_array_append_val(build->messages, ends[i].message);
    g_array_append_val(build->exchanges, exchange);
}

/* ---- steps ---- */

/*
 * Where the exchange that begins with ends[first] ends: messages with the same peer and direction
 * whose slices have numbers in common, directly or by others. Both ends find the same, whatever
 * else they do.
 */
static guint exchange_end(const Lister *lister, guint first, guint slices) {
    const RefitMessage *messages = lister->build->plan->messages;
    const End *ends = (const End *)(gconstpointer)lister->ends->data;
    guint next = first + 1, numbers_end = messages[ends[first].message].step + slices;

    while (next < lister->ends->len && ends[next].peer == ends[first].peer &&
           ends[next].sends == ends[first].sends && messages[ends[next].message].step < numbers_end)
        numbers_end = messages[ends[next++].message].step + slices;
    return next;
}

/* Messages of one step, ascending. */
static void add_step(Lister *lister, const guint *messages, guint n, guint slices) {
    RefitScheduleBuild *build = lister->build;
    const RefitPlan *plan = build->plan;
    const RefitMessage *first = &plan->messages[messages[0]];
    const RefitPair *pair = &plan->pairs[first->pair];
    RefitScheduleStep step = {
        .number = first->step,
        .n_numbers = plan->messages[messages[n - 1]].step + slices - first->step,
        .n_chunks = 1,
        .batch = first->batch,
        .stage = pair->stage,
        .link = pair->link,
        .stream = refit_schedule_stream(plan, pair->stage, first->batch, pair->link),
        .first_exchange = build->exchanges->len,
        .cutting = {1, G_MAXUINT64},
    };
    const End *ends;

    list_ends(lister, messages, n);
    ends = (const End *)(gconstpointer)lister->ends->data;
    for (guint i = 0, end; i < n; i = end) {
        end = exchange_end(lister, i, slices);
        add_exchange(lister, &ends[i], end - i, slices);
    }
    step.n_exchanges = build->exchanges->len - step.first_exchange;
    g_array_append_val(build->steps, step);
}

/* Steps of one link class: one for each row of numbers without a gap. */
static void add_link(Lister *lister, const GArray *of_link) {
    const RefitPlan *plan = lister->build->plan;
    const guint *messages = (const guint *)(gconstpointer)of_link->data;
    guint slices = of_link->len > 0
                       ? refit_schedule_message_slices(&lister->build->storage->schedule,
                                                       &plan->messages[messages[0]])
                       : 1;

    for (guint first = 0, next; first < of_link->len; first = next) {
        next = first + 1;
        while (next < of_link->len && plan->messages[messages[next]].step <
                                          plan->messages[messages[next - 1]].step + slices)
            next++;
        add_step(lister, messages + first, next - first, slices);
    }
}

/* The steps from `first` on are those of several link classes, each in its order. */
static void sort_steps(GArray *steps, guint first) {
    RefitScheduleStep *all = (RefitScheduleStep *)(gpointer)steps->data;

    for (guint i = first + 1; i < steps->len; i++) {
        RefitScheduleStep step = all[i];
        guint at = i;

        for (; at > first &&
               (all[at - 1].number > step.number ||
                (all[at - 1].number == step.number && all[at - 1].stream > step.stream));
             at--)
            all[at] = all[at - 1];
        all[at] = step;
    }
}

/* Messages of the rank under one number, or in one batch of a sliced stage. */
static void add_group(Lister *lister, const guint *messages, guint n) {
    RefitScheduleBuild *build = lister->build;
    guint first = build->steps->len;

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        g_array_set_size(lister->of_link[link], 0);
    for (guint i = 0; i < n; i++)
        g_array_append_val(
            lister->of_link[build->plan->pairs[build->plan->messages[messages[i]].pair].link],
            messages[i]);
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        add_link(lister, lister->of_link[link]);
    sort_steps(build->steps, first);
}

/* ---- ranks ---- */

/* What the rank needs of the buckets of a batch, behind the last number of the stage of `message`.
 */
static void add_install(Lister *lister, const RefitMessage *message) {
    RefitScheduleBuild *build = lister->build;
    const RefitPlan *plan = build->plan;
    const RefitPair *pair = &plan->pairs[message->pair];
    const RefitStage *stage = &plan->stages[pair->stage];
    const RefitScheduleInstall *install =
        refit_schedule_installs_get(lister->installs, message->batch);
    RefitScheduleExchange exchange = {.peer = lister->rank,
                                      .kind = REFIT_EXCHANGE_INSTALL,
                                      .slices = 1,
                                      .first = build->installs->len};
    RefitScheduleStep step = {
        .number = message->step - pair->offset + stage->n_offsets + stage->slices - 2,
        .n_numbers = 1,
        .n_chunks = 1,
        .batch = message->batch,
        .stage = pair->stage,
        .link = REFIT_LINK_LOCAL,
        .stream = refit_schedule_stream(plan, pair->stage, message->batch, REFIT_LINK_LOCAL),
        .install = 1,
        .first_exchange = build->exchanges->len,
        .n_exchanges = 1,
        .cutting = {1, G_MAXUINT64},
    };

    if (install->bytes == 0)
        return;
    g_array_append_vals(build->installs, install, 1);
    g_array_append_val(build->exchanges, exchange);
    g_array_append_val(build->steps, step);
}

/* 1 + the last stage that brings buckets to the rank in the batch of messages[first]; 0: none. */
static guint find_bucket_stage(const Lister *lister, guint first, guint end) {
    const RefitScheduleBuild *build = lister->build;
    const RefitPlan *plan = build->plan;
    guint batch = plan->messages[build->rank_messages[first]].batch, found = 0;

    for (guint i = first; i < end; i++) {
        const RefitMessage *message = &plan->messages[build->rank_messages[i]];

        if (message->batch != batch)
            break;
        if ((build->landings_of[message->pair] & (1u << REFIT_LANDING_BUCKET)) != 0 &&
            plan->pairs[message->pair].dst == lister->rank)
            found = plan->pairs[message->pair].stage + 1u;
    }
    return found;
}

static void add_rank(Lister *lister) {
    const RefitScheduleBuild *build = lister->build;
    const RefitPlan *plan = build->plan;
    guint end = build->message_offsets[lister->rank + 1], batch = G_MAXUINT, bucket_stage = 0;

    for (guint first = build->message_offsets[lister->rank], next; first < end; first = next) {
        guint m = build->rank_messages[first];
        guint stage = plan->pairs[plan->messages[m].pair].stage;

        if (plan->messages[m].batch != batch && lister->installs != NULL)
            bucket_stage = find_bucket_stage(lister, first, end);
        batch = plan->messages[m].batch;
        for (next = first + 1;
             next < end && build->group_of[build->rank_messages[next]] == build->group_of[m];)
            next++;
        add_group(lister, &build->rank_messages[first], next - first);
        if (bucket_stage != stage + 1)
            continue;
        if (next < end) {
            const RefitMessage *message = &plan->messages[build->rank_messages[next]];

            if (message->batch == batch && plan->pairs[message->pair].stage == stage)
                continue;
        }
        add_install(lister, &plan->messages[m]);
    }
}

void refit_schedule_list_steps(RefitScheduleBuild *build) {
    const RefitPlan *plan = build->plan;
    guint n_ranks = plan->problem->n_ranks;
    g_autoptr(GArray) ends = g_array_new(FALSE, FALSE, sizeof(End));
    Lister lister = {.build = build, .ends = ends, .installs = refit_schedule_installs_new(plan)};

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        lister.of_link[link] = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint rank = 0; rank < n_ranks; rank++) {
        build->step_offsets[rank] = build->steps->len;
        lister.rank = rank;
        if (lister.installs != NULL)
            refit_schedule_installs_sum(lister.installs, rank);
        add_rank(&lister);
    }
    build->step_offsets[n_ranks] = build->steps->len;
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        g_array_unref(lister.of_link[link]);
    refit_schedule_installs_free(lister.installs);
}

/* ---- turns ---- */

/* Chunks of a step, and the wire memory of one of its turns. */
static gboolean cut_step(const RefitScheduleBuild *build, RefitScheduleStep *step, GArray *places,
                         guint64 *wire_out, GError **error) {
    const RefitSchedule *schedule = &build->storage->schedule;

    *wire_out = 0;
    if (step->link == REFIT_LINK_LOCAL)
        return TRUE;
    step->n_chunks = 1;
    step->cutting =
        refit_schedule_group_of(build, step)->cuttings[REFIT_SCHEDULE_CUT_LINK(step->link)];
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        guint64 bytes = refit_schedule_most_bytes(schedule, &schedule->exchanges[e]);

        step->n_chunks = MAX(step->n_chunks, refit_cutting_count(&step->cutting, bytes));
    }
    return refit_schedule_place_wires(schedule, step, places, wire_out, error);
}

static gboolean count_rank(const RefitScheduleBuild *build, guint rank, guint *turns,
                           guint64 *wires, GArray *places, GError **error) {
    RefitScheduleRank *account = &build->ranks[rank];
    guint64 all = 0;

    account->n_groups = 0;
    account->wire_bytes = 0;
    for (guint s = 0; s < build->n_streams; s++) {
        turns[s] = 0;
        wires[s] = 0;
    }
    for (guint i = build->step_offsets[rank]; i < build->step_offsets[rank + 1]; i++) {
        RefitScheduleStep *step = &g_array_index(build->steps, RefitScheduleStep, i);
        guint64 wire, n;

        if (!cut_step(build, step, places, &wire, error))
            return FALSE;
        n = (guint64)step->n_chunks * step->n_numbers;
        if (n > REFIT_SCHEDULE_MAX_TURNS - all) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                        "rank %u would have more than %u turns, with step %u in %u chunks; what "
                        "lands in staging memory takes %" G_GUINT64_FORMAT
                        " bytes of it: state a larger staging budget, or use more batches or "
                        "another strategy",
                        rank, REFIT_SCHEDULE_MAX_TURNS, step->number, step->n_chunks,
                        account->landing_bytes);
            return FALSE;
        }
        all += n;
        step->first_turn = turns[step->stream];
        turns[step->stream] += (guint)n;
        wires[step->stream] = MAX(wires[step->stream], wire);
        if (step->link != REFIT_LINK_LOCAL)
            account->n_groups += (guint)n;
    }
    account->n_turns = (guint)all;
    for (guint s = 0; s < build->n_streams; s++) {
        guint64 slots;

        if (!refit_checked_mul(wires[s], MIN(turns[s], REFIT_SCHEDULE_SLOTS), "staging bytes",
                               &slots, error) ||
            !refit_checked_add(account->wire_bytes, slots, "staging bytes", &account->wire_bytes,
                               error))
            return FALSE;
    }
    return TRUE;
}

gboolean refit_schedule_count_turns(RefitScheduleBuild *build, GError **error) {
    g_autofree guint *turns = g_new(guint, MAX(build->n_streams, 1));
    g_autofree guint64 *wires = g_new(guint64, MAX(build->n_streams, 1));
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(guint64));

    for (guint rank = 0; rank < build->plan->problem->n_ranks; rank++)
        if (!count_rank(build, rank, turns, wires, places, error))
            return FALSE;
    return TRUE;
}
