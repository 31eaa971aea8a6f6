/*
 * What each step of a program waits for.
 *
 * Steps are met in their order, and everything that can be waited for is remembered as the last
 * step of a stream: a wait covers all earlier steps of that stream, so a step has at most one wait
 * per stream besides those that follow slices. Rules, all of refit-plan.h and all backward:
 *
 *   window    the step `window` places before on its stream
 *   barrier   everything before the batch
 *   stage     all that an earlier stage brought here in the batch, if something sent depends on it
 *   hop       the message of the same stage that it depends on; its slices, in a sliced stage
 *   memory    everything that used the slot of landings before the batch took it over
 *
 * Cost: dependencies of the rank's messages, and streams per step.
 */

#include "model/schedule/refit-program-private.h"

void refit_waits_init(RefitWaits *waits, const RefitProgramIndex *index, guint rank,
                      const RefitLandings *landings) {
    const RefitPlan *plan = index->plan;
    guint n_streams = index->n_streams;
    gsize n_slots = (gsize)plan->n_lanes * REFIT_PROGRAM_BATCH_SLOTS;
    gsize n_arrivals = (gsize)plan->n_stages * REFIT_N_LINKS;

    *waits = (RefitWaits){
        .index = index,
        .landings = landings,
        .rank = rank,
        .n_streams = n_streams,
        .on_stream = g_new(GArray *, MAX(n_streams, 1)),
        .before_batch = g_new0(guint, MAX(n_streams, 1)),
        .arrivals = g_new0(guint, MAX(n_arrivals, 1)),
        .arrival_batches = g_new0(guint, MAX(n_arrivals, 1)),
        .slot_users = g_new0(guint, MAX(n_slots * n_streams, 1)),
        .slot_before = g_new0(guint, MAX(n_streams, 1)),
        .batch = G_MAXUINT,
        .wanted = g_new0(guint, MAX(n_streams, 1)),
        .waits = g_array_new(FALSE, FALSE, sizeof(RefitWait)),
    };
    for (guint s = 0; s < n_streams; s++)
        waits->on_stream[s] = g_array_new(FALSE, FALSE, sizeof(guint));
}

void refit_waits_clear(RefitWaits *waits) {
    for (guint s = 0; s < waits->n_streams; s++)
        g_array_unref(waits->on_stream[s]);
    g_free(waits->on_stream);
    g_free(waits->before_batch);
    g_free(waits->arrivals);
    g_free(waits->arrival_batches);
    g_free(waits->slot_users);
    g_free(waits->slot_before);
    g_free(waits->wanted);
    g_clear_pointer(&waits->waits, g_array_unref);
}

void refit_waits_begin(RefitWaits *waits, guint batch) {
    guint slot = waits->landings->batch_slots[batch];

    waits->batch = batch;
    for (guint s = 0; s < waits->n_streams; s++) {
        const GArray *steps = waits->on_stream[s];
        guint *user = &waits->slot_users[(gsize)slot * waits->n_streams + s];

        waits->before_batch[s] =
            steps->len > 0 ? g_array_index(steps, guint, steps->len - 1) + 1 : 0;
        if (slot == G_MAXUINT)
            continue;
        waits->slot_before[s] = *user;
        *user = 0;
    }
}

/* ---- the rules ---- */

static void want(const RefitWaits *waits, const GArray *steps, guint step) {
    guint *wanted = &waits->wanted[g_array_index(steps, RefitProgramStep, step).stream];

    *wanted = MAX(*wanted, step + 1);
}

static void want_all(const RefitWaits *waits, const guint *last_steps) {
    for (guint s = 0; s < waits->n_streams; s++)
        waits->wanted[s] = MAX(waits->wanted[s], last_steps[s]);
}

static void want_window(const RefitWaits *waits, const GArray *steps,
                        const RefitProgramStep *step) {
    const GArray *before = waits->on_stream[step->stream];
    guint window = step->link == REFIT_LINK_LOCAL ? 1 : MAX(waits->index->plan->window, 1);

    if (before->len >= window)
        want(waits, steps, g_array_index(before, guint, before->len - window));
}

static void want_stage(const RefitWaits *waits, const GArray *steps, guint stage) {
    for (guint link = 0; link < REFIT_N_LINKS; link++) {
        gsize at = (gsize)stage * REFIT_N_LINKS + link;

        if (waits->arrival_batches[at] == waits->batch + 1)
            want(waits, steps, waits->arrivals[at] - 1);
    }
}

/* The step with this number on the link; G_MAXUINT when there is none. */
static guint find_step(const GArray *steps, guint number, RefitLink link) {
    guint low = 0, high = steps->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (g_array_index(steps, RefitProgramStep, middle).number < number)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < steps->len; low++) {
        const RefitProgramStep *step = &g_array_index(steps, RefitProgramStep, low);

        if (step->number != number)
            break;
        if (step->link == link && !step->install)
            return low;
    }
    return G_MAXUINT;
}

/* What a message depends on. Hops of a sliced stage are noted by their link. */
static void want_deps(const RefitWaits *waits, const GArray *steps, const RefitMessage *message,
                      const RefitStepUse *use, gboolean *in_slices) {
    const RefitProgramIndex *index = waits->index;
    const RefitPair *pairs = index->plan->pairs, *pair = &pairs[message->pair];
    guint n_deps;
    const guint *deps = refit_plan_deps_get(index->deps, message->pair, &n_deps);

    for (guint d = 0; d < n_deps; d++) {
        guint dep = deps[d];

        if ((dep & REFIT_PLAN_DEP_STAGE) != 0) {
            want_stage(waits, steps, dep & ~REFIT_PLAN_DEP_STAGE);
        } else if (use->group != NULL) {
            in_slices[pairs[dep].link] = TRUE;
        } else {
            guint step =
                find_step(steps, message->step - pair->offset + pairs[dep].offset, pairs[dep].link);

            if (step != G_MAXUINT)
                want(waits, steps, step);
        }
    }
}

static void append_waits(RefitWaits *waits, RefitProgramStep *step, const guint *group,
                         const gboolean *in_slices) {
    step->first_wait = waits->waits->len;
    for (guint s = 0; s < waits->n_streams; s++) {
        RefitWait wait = {waits->wanted[s] - 1, FALSE};

        if (waits->wanted[s] > 0)
            g_array_append_val(waits->waits, wait);
        waits->wanted[s] = 0;
    }
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        if (in_slices[link] && group[link] != G_MAXUINT) {
            RefitWait wait = {group[link], TRUE};

            g_array_append_val(waits->waits, wait);
        }
    step->n_waits = waits->waits->len - step->first_wait;
}

void refit_waits_enter(RefitWaits *waits, GArray *steps, guint number, const RefitStepUse *use) {
    const RefitPlan *plan = waits->index->plan;
    RefitProgramStep *step = &g_array_index(steps, RefitProgramStep, number);
    gboolean in_slices[REFIT_N_LINKS] = {FALSE};
    guint slot = waits->landings->batch_slots[step->batch];

    want_window(waits, steps, step);
    if (plan->batches[step->batch].barrier)
        want_all(waits, waits->before_batch);
    for (guint i = 0; i < use->n_messages; i++) {
        const RefitMessage *message = &plan->messages[use->messages[i]];

        if (step->link == REFIT_LINK_LOCAL || plan->pairs[message->pair].src == waits->rank)
            want_deps(waits, steps, message, use, in_slices);
    }
    for (guint stage = 0; step->install && stage <= step->stage; stage++)
        want_stage(waits, steps, stage);
    if (use->stages)
        want_all(waits, waits->slot_before);
    append_waits(waits, step, use->group, in_slices);

    g_array_append_val(waits->on_stream[step->stream], number);
    if (use->receives) {
        gsize at = (gsize)step->stage * REFIT_N_LINKS + step->link;

        waits->arrivals[at] = number + 1;
        waits->arrival_batches[at] = step->batch + 1;
    }
    if (use->stages)
        waits->slot_users[(gsize)slot * waits->n_streams + step->stream] = number + 1;
}
