/*
 * What each step of a rank waits for.
 *
 * Steps are met in their order, and everything that can be waited for is remembered as the last
 * step of a stream: a wait covers all earlier steps of that stream, so a step has at most one wait
 * per stream besides those that follow slices. Rules, all of refit-plan.h and all backward:
 *
 *   barrier   everything before the batch
 *   stage     all that an earlier stage brought here in the batch, if something sent depends on it
 *   hop       the message of the same stage that it depends on; its slices, in a sliced stage
 *   memory    everything that used the slot of landings before the batch took it over; and where a
 *             bucket takes the place of what was assembled, all that the earlier stages do there
 *
 * Cost: dependencies of the rank's messages, and streams per step.
 */

#include "model/schedule/refit-schedule-private.h"

#include <string.h>

typedef struct {
    RefitScheduleBuild *build;
    guint rank;
    RefitScheduleStep *steps; /* of the rank */
    guint n_steps, n_streams;
    guint8 *elsewhere;      /* per pair: bits, see below */
    guint *last;            /* per stream: 1 + its last step */
    guint *before_batch;    /* per stream: the same, before the batch in work */
    guint *arrivals;        /* per stage and link: 1 + the last step that brought something ... */
    guint *arrival_batches; /* ... and 1 + its batch */
    guint *slot_users;      /* per slot and stream: 1 + the last step that used it */
    guint *slot_before;     /* per stream: the same of the batch's slot before the batch */
    guint next_landing;     /* of the schedule, not before the batch in work */
    guint slot;             /* of the batch in work; G_MAXUINT: none */
    guint *before_stage;    /* per stream: 1 + its last step before the stage in work */
    gboolean assembles;     /* the batch in work, so far */
    guint *wanted;          /* scratch, per stream: 1 + step */
} Waits;

/* What a pair does with landings. */
enum { READS = 1, WRITES = 2, ASSEMBLES = 4, BRINGS_BUCKETS = 8 };

static guint8 *find_elsewhere(const RefitPlan *plan) {
    guint8 *elsewhere = g_new0(guint8, MAX(plan->n_pairs, 1));

    for (guint t = 0; t < plan->n_transfers; t++) {
        const RefitTransfer *transfer = &plan->transfers[t];

        if (transfer->landing != REFIT_LANDING_HOME)
            elsewhere[transfer->pair] |= WRITES;
        if (transfer->landing == REFIT_LANDING_ASSEMBLY)
            elsewhere[transfer->pair] |= ASSEMBLES;
        if (transfer->landing == REFIT_LANDING_BUCKET)
            elsewhere[transfer->pair] |= BRINGS_BUCKETS;
        for (guint d = 0; d < transfer->n_deps; d++)
            if (plan->transfers[plan->deps[transfer->first_dep + d]].landing != REFIT_LANDING_HOME)
                elsewhere[transfer->pair] |= READS;
    }
    return elsewhere;
}

/* ---- the rules ---- */

static void want(const Waits *waits, guint step) {
    guint *wanted = &waits->wanted[waits->steps[step].stream];

    *wanted = MAX(*wanted, step + 1);
}

static void want_all(const Waits *waits, const guint *last_steps) {
    for (guint s = 0; s < waits->n_streams; s++)
        waits->wanted[s] = MAX(waits->wanted[s], last_steps[s]);
}

static void want_stage(const Waits *waits, guint batch, guint stage) {
    for (guint link = 0; link < REFIT_N_LINKS; link++) {
        gsize at = (gsize)stage * REFIT_N_LINKS + link;

        if (waits->arrival_batches[at] == batch + 1)
            want(waits, waits->arrivals[at] - 1);
    }
}

/* The step with this number on the link; G_MAXUINT when there is none. */
static guint find_step(const Waits *waits, guint number, RefitLink link) {
    guint low = 0, high = waits->n_steps;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (waits->steps[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < waits->n_steps && waits->steps[low].number == number; low++)
        if (waits->steps[low].link == link && waits->steps[low].install == 0)
            return low;
    return G_MAXUINT;
}

/* What a message depends on. Hops of a sliced stage are noted by their link. */
static void want_deps(const Waits *waits, const RefitMessage *message, gboolean sliced,
                      gboolean *in_slices) {
    const RefitPair *pairs = waits->build->plan->pairs, *pair = &pairs[message->pair];
    guint n_deps;
    const guint *deps = refit_plan_deps_get(waits->build->deps, message->pair, &n_deps);

    for (guint d = 0; d < n_deps; d++) {
        guint dep = deps[d];

        if ((dep & REFIT_PLAN_DEP_STAGE) != 0) {
            want_stage(waits, message->batch, dep & ~REFIT_PLAN_DEP_STAGE);
        } else if (sliced) {
            in_slices[pairs[dep].link] = TRUE;
        } else {
            guint step =
                find_step(waits, message->step - pair->offset + pairs[dep].offset, pairs[dep].link);

            if (step != G_MAXUINT)
                want(waits, step);
        }
    }
}

/*
 * Steps of the same sliced stage whose turns come before some of this one's. Of those that end
 * before it begins, the last one of a stream stands for all.
 */
static void append_slices(const Waits *waits, guint number, RefitLink link) {
    const RefitScheduleStep *step = &waits->steps[number];
    guint end = number + 1;

    while (end < waits->n_steps && waits->steps[end].number < step->number + step->n_numbers - 1)
        end++;
    for (guint i = end; i-- > 0;) {
        const RefitScheduleStep *other = &waits->steps[i];
        RefitWait wait = {i, TRUE};

        if (other->batch != step->batch || other->stage != step->stage)
            return;
        if (other->link != link || other->install != 0)
            continue;
        g_array_append_val(waits->build->waits, wait);
        if (other->number + other->n_numbers <= step->number)
            return;
    }
}

static void append_waits(const Waits *waits, guint number, const gboolean *in_slices) {
    RefitScheduleStep *step = &waits->steps[number];
    GArray *all = waits->build->waits;

    step->first_wait = all->len;
    for (guint s = 0; s < waits->n_streams; s++) {
        RefitWait wait = {waits->wanted[s] - 1, FALSE};

        if (waits->wanted[s] > 0)
            g_array_append_val(all, wait);
        waits->wanted[s] = 0;
    }
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        if (in_slices[link])
            append_slices(waits, number, (RefitLink)link);
    step->n_waits = all->len - step->first_wait;
}

/* ---- steps ---- */

static void begin_batch(Waits *waits, guint batch) {
    const RefitScheduleBuild *build = waits->build;

    memcpy(waits->before_batch, waits->last, waits->n_streams * sizeof *waits->last);
    waits->slot = G_MAXUINT;
    waits->assembles = FALSE;
    while (waits->next_landing < build->landing_offsets[waits->rank + 1]) {
        const RefitScheduleLanding *landing =
            &g_array_index(build->landings, RefitScheduleLanding, waits->next_landing);
        guint *users;

        if (landing->batch > batch)
            break;
        waits->next_landing++;
        if (landing->batch < batch)
            continue;
        waits->slot = landing->slot;
        users = &waits->slot_users[(gsize)waits->slot * waits->n_streams];
        memcpy(waits->slot_before, users, waits->n_streams * sizeof *users);
        memset(users, 0, waits->n_streams * sizeof *users);
    }
}

typedef struct {
    gboolean receives; /* something arrives or is copied */
    gboolean lands;    /* reads or writes landings */
    guint8 brings;     /* bits of what it receives */
} Use;

/* Enters what the messages of a step want. */
static Use enter_messages(const Waits *waits, const RefitScheduleStep *step, gboolean *in_slices) {
    const RefitScheduleBuild *build = waits->build;
    Use use = {FALSE, FALSE, 0};

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange =
            &g_array_index(build->exchanges, RefitScheduleExchange, e);
        gboolean sends = exchange->kind != REFIT_EXCHANGE_RECEIVE;
        gboolean receives = exchange->kind != REFIT_EXCHANGE_SEND;

        use.receives = use.receives || receives;
        for (guint i = 0; i < exchange->n_messages; i++) {
            const RefitMessage *message =
                &build->plan->messages[g_array_index(build->messages, guint, exchange->first + i)];
            guint8 elsewhere = waits->elsewhere[message->pair];
            gboolean sliced = exchange->slices > 1;

            if (sends)
                want_deps(waits, message, sliced, in_slices);
            use.lands = use.lands || (sends && (elsewhere & READS) != 0) ||
                        (receives && (elsewhere & WRITES) != 0);
            use.brings |= receives ? elsewhere : 0;
        }
    }
    return use;
}

static void enter_step(Waits *waits, guint number) {
    const RefitScheduleStep *step = &waits->steps[number];
    gboolean in_slices[REFIT_N_LINKS] = {FALSE};
    Use use = {FALSE, TRUE, 0};

    if (waits->build->plan->batches[step->batch].barrier)
        want_all(waits, waits->before_batch);
    if (step->install == 0)
        use = enter_messages(waits, step, in_slices);
    for (guint stage = 0; step->install != 0 && stage <= step->stage; stage++)
        want_stage(waits, step->batch, stage);
    if (use.lands && waits->slot != G_MAXUINT)
        want_all(waits, waits->slot_before);
    if (waits->assembles && (use.brings & BRINGS_BUCKETS) != 0)
        want_all(waits, waits->before_stage);
    waits->assembles = waits->assembles || (use.brings & ASSEMBLES) != 0;
    append_waits(waits, number, in_slices);

    waits->last[step->stream] = number + 1;
    if (use.receives) {
        gsize at = (gsize)step->stage * REFIT_N_LINKS + step->link;

        waits->arrivals[at] = number + 1;
        waits->arrival_batches[at] = step->batch + 1;
    }
    if (use.lands && waits->slot != G_MAXUINT)
        waits->slot_users[(gsize)waits->slot * waits->n_streams + step->stream] = number + 1;
}

void refit_schedule_list_waits(RefitScheduleBuild *build) {
    const RefitPlan *plan = build->plan;
    guint n_streams = MAX(build->n_streams, 1);
    gsize n_slots = MAX((gsize)plan->n_lanes * REFIT_SCHEDULE_BATCH_SLOTS, 1);
    gsize n_arrivals = MAX((gsize)plan->n_stages * REFIT_N_LINKS, 1);
    g_autofree guint8 *elsewhere = find_elsewhere(plan);
    g_autofree guint *last = g_new(guint, n_streams), *before_batch = g_new(guint, n_streams);
    g_autofree guint *arrivals = g_new(guint, n_arrivals);
    g_autofree guint *arrival_batches = g_new(guint, n_arrivals);
    g_autofree guint *slot_users = g_new(guint, n_slots * n_streams);
    g_autofree guint *slot_before = g_new(guint, n_streams);
    g_autofree guint *before_stage = g_new(guint, n_streams);
    g_autofree guint *wanted = g_new0(guint, n_streams);
    Waits waits = {.build = build,
                   .n_streams = build->n_streams,
                   .elsewhere = elsewhere,
                   .last = last,
                   .before_batch = before_batch,
                   .arrivals = arrivals,
                   .arrival_batches = arrival_batches,
                   .slot_users = slot_users,
                   .slot_before = slot_before,
                   .before_stage = before_stage,
                   .wanted = wanted};

    for (guint rank = 0; rank < plan->problem->n_ranks; rank++) {
        waits.rank = rank;
        waits.n_steps = build->step_offsets[rank + 1] - build->step_offsets[rank];
        waits.steps = waits.n_steps > 0 ? &g_array_index(build->steps, RefitScheduleStep,
                                                         build->step_offsets[rank])
                                        : NULL;
        waits.next_landing = build->landing_offsets[rank];
        memset(last, 0, n_streams * sizeof *last);
        memset(arrival_batches, 0, n_arrivals * sizeof *arrival_batches);
        memset(slot_users, 0, n_slots * n_streams * sizeof *slot_users);
        for (guint i = 0; i < waits.n_steps; i++) {
            gboolean first = i == 0 || waits.steps[i].batch != waits.steps[i - 1].batch;

            if (first)
                begin_batch(&waits, waits.steps[i].batch);
            if (first || waits.steps[i].stage != waits.steps[i - 1].stage)
                memcpy(before_stage, last, n_streams * sizeof *last);
            enter_step(&waits, i);
        }
    }
}
