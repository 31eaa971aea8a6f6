/*
 * A schedule is made in passes over the plan's messages: which are sliced (refit-schedule-parts.c),
 * what lands where (-landings.c), the steps of each rank (-steps.c) with what goes straight from
 * memory (-direct.c), chunks and turns, and waits (-waits.c). Each pass decides one thing, once,
 * for both ends of every message. Cost: transfers, messages and dependencies; about 100 bytes a
 * message.
 */

#include "model/base/refit-checked.h"
#include "model/schedule/refit-schedule-comms.h"
#include "model/schedule/refit-schedule-private.h"

guint refit_schedule_stream(const RefitPlan *plan, guint stage, guint batch, RefitLink link) {
    return (plan->stages[stage].track * plan->n_lanes + plan->batches[batch].lane) * REFIT_N_LINKS +
           link;
}

/* ---- making ---- */

static void deal_messages(RefitScheduleBuild *build) {
    const RefitPlan *plan = build->plan;
    guint n_ranks = plan->problem->n_ranks;
    guint *offsets = g_new0(guint, (gsize)n_ranks + 2);

    for (guint64 m = 0; m < plan->n_messages; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];

        offsets[pair->src + 2]++;
        if (pair->dst != pair->src)
            offsets[pair->dst + 2]++;
    }
    for (guint rank = 0; rank < n_ranks; rank++)
        offsets[rank + 2] += offsets[rank + 1];
    build->rank_messages = g_new(guint, MAX(offsets[n_ranks + 1], 1));
    for (guint m = 0; m < plan->n_messages; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];

        build->rank_messages[offsets[pair->src + 1]++] = m;
        if (pair->dst != pair->src)
            build->rank_messages[offsets[pair->dst + 1]++] = m;
    }
    build->message_offsets = offsets;
}

static guint64 most_landing_bytes(const RefitScheduleBuild *build) {
    guint64 most = 0;

    for (guint rank = 0; rank < build->plan->problem->n_ranks; rank++)
        most = MAX(most, build->ranks[rank].landing_bytes);
    return most;
}

/* Bytes by which some rank takes more than `limit`. */
static guint64 find_excess(const RefitScheduleBuild *build, guint64 limit) {
    guint64 excess = 0;

    for (guint rank = 0; rank < build->plan->problem->n_ranks; rank++) {
        guint64 bytes = refit_schedule_staging_bytes(&build->storage->schedule, rank);

        excess = MAX(excess, bytes - MIN(bytes, limit));
    }
    return excess;
}

/*
 * Chunks and turns within the pool. Places in wire memory can leave gaps: then the pool is made
 * smaller, until a budget is kept or chunks are the smallest, which leave none.
 */
static gboolean choose_turns(RefitScheduleBuild *build, guint64 budget, GError **error) {
    for (;;) {
        guint64 excess;

        refit_schedule_choose_chunks(build);
        if (!refit_schedule_count_turns(build, error))
            return FALSE;
        excess = budget > 0 ? find_excess(build, budget) : 0;
        if (excess == 0 || build->pool == 0)
            return TRUE;
        build->pool -= MIN(build->pool, MAX(excess, build->pool / 8));
    }
}

/*
 * Slots of landings, chunks and turns. Landings have two slots; or one, which holds up the next
 * batch, where two leave less than a quarter of the memory to move messages, or do not fit.
 */
static gboolean choose_memory(RefitScheduleBuild *build, GError **error) {
    guint64 budget = build->plan->problem->refit_case->budget_staging_bytes;
    guint64 limit = budget > 0 ? budget : REFIT_PLAN_STAGING_BYTES;

    build->storage->schedule.ranks = build->ranks;
    for (guint n_slots = REFIT_SCHEDULE_BATCH_SLOTS; n_slots > 0; n_slots--) {
        guint64 most;

        if (!refit_schedule_place_slots(build, n_slots, error))
            return FALSE;
        most = most_landing_bytes(build);
        if (n_slots > 1 && most > limit - limit / 4)
            continue;
        build->pool = limit - MIN(limit, most);
        if (budget == 0)
            build->pool = MAX(build->pool, REFIT_SCHEDULE_POOL_BYTES / 4);
        build->pool = MIN(build->pool, REFIT_SCHEDULE_POOL_BYTES);
        if (!choose_turns(build, budget, error))
            return FALSE;
        if (most == 0 || find_excess(build, limit) == 0)
            break;
    }
    return TRUE;
}

static void assign_comms(const RefitScheduleBuild *build) {
    RefitSchedule *schedule = &build->storage->schedule;
    guint *comm_of = g_new0(guint, MAX(build->n_streams, 1)), n_used[REFIT_N_LINKS] = {0};

    for (guint s = 0; s < build->n_streams; s++) {
        guint link = s % REFIT_N_LINKS;

        if (build->used[s] != 0 && link != REFIT_LINK_LOCAL)
            comm_of[s] = n_used[link]++ % REFIT_SCHEDULE_COMMS;
    }
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        schedule->n_comms[link] = MIN(n_used[link], REFIT_SCHEDULE_COMMS);
    schedule->comm_of = comm_of;
}

static gpointer take(GArray **array) {
    return g_array_free(g_steal_pointer(array), FALSE);
}

/* What has been made so far can be read through the schedule, and does not grow any more. */
static void show_contents(const RefitScheduleBuild *build) {
    RefitSchedule *schedule = &build->storage->schedule;

    schedule->exchanges = (const RefitScheduleExchange *)(gconstpointer)build->exchanges->data;
    schedule->messages = (const guint *)(gconstpointer)build->messages->data;
    schedule->installs = (const RefitScheduleInstall *)(gconstpointer)build->installs->data;
}

static void hide_contents(const RefitScheduleBuild *build) {
    RefitSchedule *schedule = &build->storage->schedule;

    schedule->exchanges = NULL;
    schedule->messages = NULL;
    schedule->installs = NULL;
    schedule->ranks = NULL;
}

/* Hands over what has been made. */
static void take_contents(RefitScheduleBuild *build) {
    RefitSchedule *schedule = &build->storage->schedule;

    schedule->n_streams = build->n_streams;
    schedule->n_steps = build->steps->len;
    schedule->n_exchanges = build->exchanges->len;
    schedule->steps = take(&build->steps);
    schedule->exchanges = take(&build->exchanges);
    schedule->messages = take(&build->messages);
    schedule->installs = take(&build->installs);
    schedule->waits = take(&build->waits);
    schedule->landings = take(&build->landings);
    schedule->step_offsets = g_steal_pointer(&build->step_offsets);
    schedule->landing_offsets = g_steal_pointer(&build->landing_offsets);
    schedule->ranks = g_steal_pointer(&build->ranks);
}

static void init(RefitScheduleBuild *build, const RefitPlan *plan) {
    gsize n_ranks = plan->problem->n_ranks;
    guint n_tracks = 1;

    for (guint stage = 0; stage < plan->n_stages; stage++)
        n_tracks = MAX(n_tracks, plan->stages[stage].track + 1);
    *build = (RefitScheduleBuild){
        .plan = plan,
        .storage = g_new0(RefitScheduleStorage, 1),
        .n_streams = n_tracks * plan->n_lanes * REFIT_N_LINKS,
        .group_of = g_new(guint, MAX(plan->n_messages, 1)),
        .groups = g_array_new(FALSE, TRUE, sizeof(RefitScheduleGroup)),
        .direct = refit_schedule_direct_new(plan),
        .step_offsets = g_new0(guint, n_ranks + 1),
        .steps = g_array_new(FALSE, FALSE, sizeof(RefitScheduleStep)),
        .exchanges = g_array_new(FALSE, FALSE, sizeof(RefitScheduleExchange)),
        .messages = g_array_new(FALSE, FALSE, sizeof(guint)),
        .installs = g_array_new(FALSE, FALSE, sizeof(RefitScheduleInstall)),
        .waits = g_array_new(FALSE, FALSE, sizeof(RefitWait)),
        .landing_offsets = g_new0(guint, n_ranks + 1),
        .landings = g_array_new(FALSE, FALSE, sizeof(RefitScheduleLanding)),
        .ranks = g_new0(RefitScheduleRank, MAX(n_ranks, 1)),
    };
    build->used = g_new0(guint8, MAX(build->n_streams, 1));
    build->landings_of = g_new0(guint8, MAX(plan->n_pairs, 1));
    for (guint t = 0; t < plan->n_transfers; t++)
        build->landings_of[plan->transfers[t].pair] |= (guint8)(1u << plan->transfers[t].landing);
    build->packed = g_new0(guint64, MAX(build->n_streams, 1));
    build->least = g_new0(guint64, MAX(build->n_streams, 1));
    build->exchanges_of = g_new0(guint, MAX(build->n_streams, 1));
    build->storage->schedule.plan = plan;
    build->deps = build->storage->deps = refit_plan_deps_new(plan);
    build->storage->index = refit_program_index_new(plan);
}

static void clear(RefitScheduleBuild *build) {
    GArray **arrays[] = {&build->steps, &build->exchanges, &build->messages, &build->installs,
                         &build->waits, &build->landings,  &build->groups};

    for (guint i = 0; i < G_N_ELEMENTS(arrays); i++)
        g_clear_pointer(arrays[i], g_array_unref);
    g_free(build->message_offsets);
    g_free(build->rank_messages);
    g_free(build->group_of);
    g_free(build->used);
    g_free(build->landings_of);
    g_free(build->packed);
    g_free(build->least);
    g_free(build->exchanges_of);
    refit_schedule_direct_free(build->direct);
    g_free(build->step_offsets);
    g_free(build->landing_offsets);
    g_free(build->ranks);
}

RefitSchedule *refit_schedule_new(const RefitPlan *plan, GError **error) {
    g_autoptr(RefitSchedule) schedule = NULL;
    RefitScheduleBuild build;
    gboolean made;

    if (plan->n_messages >= G_MAXUINT / 2) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                    "the plan has %" G_GUINT64_FORMAT " messages, but at most %u can be carried "
                    "out; use fewer batches",
                    plan->n_messages, G_MAXUINT / 2 - 1);
        return NULL;
    }
    init(&build, plan);
    schedule = &build.storage->schedule;
    deal_messages(&build);
    refit_schedule_choose_slices(&build);
    assign_comms(&build);
    refit_schedule_list_steps(&build);
    show_contents(&build);
    refit_schedule_survey(&build);
    made = refit_schedule_list_landings(&build, error) && choose_memory(&build, error);
    if (made) {
        refit_schedule_list_waits(&build);
        take_contents(&build);
        refit_schedule_plan_comms(schedule);
    } else {
        hide_contents(&build);
    }
    clear(&build);
    return made ? g_steal_pointer(&schedule) : NULL;
}

void refit_schedule_free(RefitSchedule *schedule) {
    RefitScheduleStorage *storage = (RefitScheduleStorage *)schedule;

    if (schedule == NULL)
        return;
    refit_plan_deps_free(storage->deps);
    refit_program_index_free(storage->index);
    g_free(storage->slices);
    g_free((gpointer)schedule->comm_of);
    g_free((gpointer)schedule->connections);
    g_free((gpointer)schedule->step_offsets);
    g_free((gpointer)schedule->steps);
    g_free((gpointer)schedule->exchanges);
    g_free((gpointer)schedule->messages);
    g_free((gpointer)schedule->installs);
    g_free((gpointer)schedule->waits);
    g_free((gpointer)schedule->landing_offsets);
    g_free((gpointer)schedule->landings);
    g_free((gpointer)schedule->ranks);
    g_free(storage);
}

/* ---- reading ---- */

const RefitProgramIndex *refit_schedule_index(const RefitSchedule *schedule) {
    return ((const RefitScheduleStorage *)schedule)->index;
}

guint64 refit_schedule_staging_bytes(const RefitSchedule *schedule, guint rank) {
    return schedule->ranks[rank].landing_bytes + schedule->ranks[rank].wire_bytes;
}

gboolean refit_schedule_check_budget(const RefitSchedule *schedule, GError **error) {
    guint64 budget = schedule->plan->problem->refit_case->budget_staging_bytes;

    for (guint rank = 0; budget > 0 && rank < schedule->plan->problem->n_ranks; rank++) {
        guint64 bytes = refit_schedule_staging_bytes(schedule, rank);

        if (bytes <= budget)
            continue;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE,
                    "rank %u needs %" G_GUINT64_FORMAT
                    " bytes of staging memory, %" G_GUINT64_FORMAT
                    " of them for what lands there and the rest for messages on their way; the "
                    "budget is %" G_GUINT64_FORMAT
                    "; state a larger one, or use more batches or another strategy",
                    rank, bytes, schedule->ranks[rank].landing_bytes, budget);
        return FALSE;
    }
    return TRUE;
}

guint refit_schedule_busiest(const RefitSchedule *schedule) {
    guint busiest = 0;

    for (guint rank = 1; rank < schedule->plan->problem->n_ranks; rank++)
        if (schedule->ranks[rank].n_turns > schedule->ranks[busiest].n_turns)
            busiest = rank;
    return busiest;
}

const RefitScheduleStep *refit_schedule_steps(const RefitSchedule *schedule, guint rank,
                                              guint *n_out) {
    *n_out = schedule->step_offsets[rank + 1] - schedule->step_offsets[rank];
    return schedule->steps + schedule->step_offsets[rank];
}

guint64 refit_schedule_exchange_bytes(const RefitSchedule *schedule,
                                      const RefitScheduleExchange *exchange) {
    guint64 bytes = 0;

    if (exchange->kind == REFIT_EXCHANGE_INSTALL)
        return schedule->installs[exchange->first].bytes;
    for (guint i = 0; i < exchange->n_messages; i++)
        bytes += schedule->plan->messages[schedule->messages[exchange->first + i]].bytes;
    return bytes;
}

const guint *refit_schedule_deps(const RefitSchedule *schedule, guint pair, guint *n_out) {
    return refit_plan_deps_get(((const RefitScheduleStorage *)schedule)->deps, pair, n_out);
}

/* ---- turns ---- */

guint refit_schedule_turn_place(const RefitScheduleStep *step, const RefitTurn *turn) {
    return (turn->number - step->number) * step->n_chunks + turn->chunk;
}

guint64 refit_schedule_turn_bytes(const RefitSchedule *schedule, const RefitScheduleStep *step,
                                  const RefitScheduleExchange *exchange, guint number,
                                  guint chunk) {
    guint64 bytes = 0;

    if (exchange->kind == REFIT_EXCHANGE_INSTALL)
        return schedule->installs[exchange->first].bytes;
    for (guint i = 0; i < exchange->n_messages; i++)
        bytes +=
            refit_schedule_message_bytes(schedule, schedule->messages[exchange->first + i], number);
    return refit_cutting_border(&step->cutting, bytes, chunk + 1) -
           refit_cutting_border(&step->cutting, bytes, chunk);
}

static int compare_turns(gconstpointer left, gconstpointer right, gpointer user_data) {
    const RefitTurn *a = left, *b = right;
    const RefitScheduleStep *steps = user_data;

    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    if (steps[a->step].install != steps[b->step].install)
        return steps[a->step].install != 0 ? 1 : -1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    return (steps[a->step].stream > steps[b->step].stream) -
           (steps[a->step].stream < steps[b->step].stream);
}

GArray *refit_schedule_list_turns(const RefitSchedule *schedule, guint rank) {
    guint n_steps;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);
    GArray *turns =
        g_array_sized_new(FALSE, FALSE, sizeof(RefitTurn), schedule->ranks[rank].n_turns);

    for (guint i = 0; i < n_steps; i++)
        for (guint k = 0; k < steps[i].n_numbers * steps[i].n_chunks; k++) {
            RefitTurn turn = {i, steps[i].number + k / steps[i].n_chunks, k % steps[i].n_chunks};

            g_array_append_val(turns, turn);
        }
    g_array_sort_with_data(turns, compare_turns, (gpointer)steps);
    return turns;
}
