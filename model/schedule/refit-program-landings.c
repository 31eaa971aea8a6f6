/*
 * Where bytes lie that are neither at home nor on the way: relays, assembled parts and buckets.
 *
 * Each batch packs its own one after the other into the slot that the schedule gives it, which is
 * large enough (refit-schedule-landings.c counts alike). Cost: the rank's messages, and the pieces
 * of those that do not land at home.
 */

#include "model/schedule/refit-program-private.h"

#define NOWHERE G_MAXUINT64

typedef struct {
    guint transfer, tensor;
    guint64 at;
} Block;

static int compare_blocks(gconstpointer left, gconstpointer right) {
    const Block *a = left, *b = right;

    if (a->transfer != b->transfer)
        return a->transfer < b->transfer ? -1 : 1;
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static guint64 *new_places(guint n) {
    guint64 *places = g_new(guint64, MAX(n, 1));

    for (guint i = 0; i < n; i++)
        places[i] = NOWHERE;
    return places;
}

/* Next place in the slot of a batch that is `*filled` full. */
static gboolean take(guint64 *filled, guint64 bytes, guint64 align, guint64 *at_out,
                     GError **error) {
    return refit_checked_round_up(*filled, align, "staging bytes", at_out, error) &&
           refit_checked_add(*at_out, bytes, "staging bytes", filled, error);
}

/* The section of which `piece` is part, unless it has a place already. */
static gboolean place_section(RefitLandings *landings, const RefitPlan *plan,
                              const RefitPieceSeed *piece, guint64 *filled, GError **error) {
    const RefitBucketTensor item = {piece->message->batch, piece->section, piece->tensor,
                                    piece->place};

    if (landings->bucketed == NULL)
        landings->bucketed = new_places(plan->member_offsets[plan->n_sections]);
    if (landings->bucketed[piece->place] != NOWHERE)
        return TRUE;
    g_array_append_val(landings->buckets, item);
    return take(filled, plan->sections[piece->section].bytes, REFIT_SCHEDULE_TENSOR_ALIGN,
                &landings->bucketed[piece->place], error);
}

/* How full a batch's slot is: relays, assembled parts, buckets. */
typedef struct {
    guint64 of[REFIT_N_LANDINGS];
} Filled;

/* What lands as a block follows each other as in the message. */
static gboolean place_pieces(RefitLandings *landings, const RefitPlan *plan, const GArray *seeds,
                             Filled *filled, GError **error) {
    guint64 align = REFIT_SCHEDULE_ALIGN;

    for (guint i = 0; i < seeds->len; i++) {
        const RefitPieceSeed *piece = &g_array_index(seeds, RefitPieceSeed, i);
        RefitLanding landing = (RefitLanding)plan->transfers[piece->transfer].landing;
        Block block = {piece->transfer, piece->tensor, 0};

        if (landing == REFIT_LANDING_BUCKET &&
            !place_section(landings, plan, piece, &filled->of[landing], error))
            return FALSE;
        if (!refit_schedule_lands_in_block(landing))
            continue;
        if (!take(&filled->of[landing], piece->bytes, align, &block.at, error))
            return FALSE;
        g_array_append_val(landings->blocks, block);
        align = 1;
    }
    return TRUE;
}

/* Slots of each lane, as large as the largest of their batches. */
static void place_slots(RefitLandings *landings, const RefitSchedule *schedule, guint rank) {
    const RefitPlan *plan = schedule->plan;
    gsize n_slots = (gsize)plan->n_lanes * REFIT_SCHEDULE_BATCH_SLOTS;
    g_autofree guint64 *sizes = g_new0(guint64, MAX(n_slots, 1));
    guint64 at = 0;

    for (guint b = 0; b < plan->n_batches; b++)
        landings->batch_slots[b] = G_MAXUINT;
    for (guint i = schedule->landing_offsets[rank]; i < schedule->landing_offsets[rank + 1]; i++) {
        const RefitScheduleLanding *landing = &schedule->landings[i];

        landings->batch_slots[landing->batch] = landing->slot;
        landings->relay_bytes[landing->batch] = landing->relay_bytes;
        sizes[landing->slot] = MAX(sizes[landing->slot], landing->bytes);
    }
    landings->slot_offsets = g_new(guint64, MAX(n_slots, 1));
    for (gsize s = 0; s < n_slots; s++) {
        landings->slot_offsets[s] = at;
        at += sizes[s];
    }
}

static gboolean lands_elsewhere(const RefitPlan *plan, const RefitPair *pair) {
    for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++)
        if (plan->transfers[t].landing != REFIT_LANDING_HOME)
            return TRUE;
    return FALSE;
}

/* What a message to the rank brings that does not land at home. */
static gboolean place_message(RefitLandings *landings, const RefitSchedule *schedule, guint message,
                              Filled *filled, GArray *seeds, GError **error) {
    const RefitMessage *self = &schedule->plan->messages[message];

    if (!lands_elsewhere(schedule->plan, &schedule->plan->pairs[self->pair]))
        return TRUE;
    refit_program_list_pieces(schedule, &message, 1, seeds);
    return place_pieces(landings, schedule->plan, seeds, &filled[self->batch], error);
}

static int compare_numbers(gconstpointer left, gconstpointer right) {
    const guint *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

static gboolean place_messages(RefitLandings *landings, const RefitSchedule *schedule, guint rank,
                               Filled *filled, GError **error) {
    g_autoptr(GArray) seeds = g_array_new(FALSE, FALSE, sizeof(RefitPieceSeed));
    g_autoptr(GArray) messages = g_array_new(FALSE, FALSE, sizeof(guint));
    guint n_steps;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);

    for (guint i = 0; i < n_steps; i++)
        for (guint e = 0; e < steps[i].n_exchanges; e++) {
            const RefitScheduleExchange *exchange =
                &schedule->exchanges[steps[i].first_exchange + e];

            if (exchange->kind != REFIT_EXCHANGE_SEND)
                g_array_append_vals(messages, schedule->messages + exchange->first,
                                    exchange->n_messages);
        }
    g_array_sort(messages, compare_numbers);
    for (guint m = 0; m < messages->len; m++)
        if (!place_message(landings, schedule, g_array_index(messages, guint, m), filled, seeds,
                           error))
            return FALSE;
    return TRUE;
}

/* The schedule has counted alike. */
static void check_filled(const Filled *filled, const RefitScheduleLanding *landing) {
    guint64 behind = MAX(filled->of[REFIT_LANDING_ASSEMBLY], filled->of[REFIT_LANDING_BUCKET]);

    g_assert(filled->of[REFIT_LANDING_RELAY] <= landing->relay_bytes &&
             behind <= landing->bytes - landing->relay_bytes);
}

RefitLandings *refit_landings_new(const RefitSchedule *schedule, guint rank, GError **error) {
    guint n_batches = MAX(schedule->plan->n_batches, 1);
    g_autoptr(RefitLandings) landings = g_new0(RefitLandings, 1);
    g_autofree Filled *filled = g_new0(Filled, n_batches);

    landings->blocks = g_array_new(FALSE, FALSE, sizeof(Block));
    landings->buckets = g_array_new(FALSE, FALSE, sizeof(RefitBucketTensor));
    landings->batch_slots = g_new(guint, n_batches);
    landings->relay_bytes = g_new0(guint64, n_batches);
    place_slots(landings, schedule, rank);
    if (schedule->landing_offsets[rank] == schedule->landing_offsets[rank + 1])
        return g_steal_pointer(&landings);
    if (!place_messages(landings, schedule, rank, filled, error))
        return NULL;
    g_array_sort(landings->blocks, compare_blocks);
    for (guint i = schedule->landing_offsets[rank]; i < schedule->landing_offsets[rank + 1]; i++)
        check_filled(&filled[schedule->landings[i].batch], &schedule->landings[i]);
    return g_steal_pointer(&landings);
}

void refit_landings_free(RefitLandings *landings) {
    if (landings == NULL)
        return;
    g_array_unref(landings->blocks);
    g_array_unref(landings->buckets);
    g_free(landings->bucketed);
    g_free(landings->relay_bytes);
    g_free(landings->batch_slots);
    g_free(landings->slot_offsets);
    g_free(landings);
}

static guint64 slot_at(const RefitLandings *landings, guint batch, gboolean relay) {
    return landings->slot_offsets[landings->batch_slots[batch]] +
           (relay ? 0 : landings->relay_bytes[batch]);
}

guint64 refit_landings_find_bucket(const RefitLandings *landings, guint place, guint batch) {
    return slot_at(landings, batch, FALSE) + landings->bucketed[place];
}

guint64 refit_landings_find(const RefitLandings *landings, const RefitPlan *plan, guint transfer,
                            const RefitPieceSeed *seed) {
    const Block wanted = {transfer, seed->tensor, 0};
    RefitLanding landing = (RefitLanding)plan->transfers[transfer].landing;
    gboolean found;
    guint at = 0;

    if (landing == REFIT_LANDING_BUCKET)
        return refit_landings_find_bucket(landings, seed->place, seed->message->batch);
    found = g_array_binary_search(landings->blocks, &wanted, compare_blocks, &at);
    g_assert(found); /* every block of the rank was placed */
    return slot_at(landings, seed->message->batch, landing == REFIT_LANDING_RELAY) +
           g_array_index(landings->blocks, Block, at).at;
}
