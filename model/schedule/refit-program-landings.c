/*
 * Where bytes lie that are neither at home nor on the way: relays, assembled tensors and buckets.
 *
 * Each batch packs its own one after the other into a slot of its lane; the batches of a lane that
 * have any take the slots in turn, so that one can fill while the one before is still read. A slot
 * is as large as its largest batch. All of it follows from the rank's messages, so it costs those
 * and the pieces among them that do not land at home.
 */

#include "model/schedule/refit-program-private.h"

#define NOWHERE G_MAXUINT64
#define TENSOR_ALIGN 16

typedef struct {
    guint transfer, tensor;
    guint64 at;
} Relay;

static int compare_relays(gconstpointer left, gconstpointer right) {
    const Relay *a = left, *b = right;

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

/* A tensor of which `piece` is part, unless it has a place already. */
static gboolean place_tensor(RefitLandings *landings, const RefitPlan *plan,
                             const RefitPieceSeed *piece, guint64 *filled, GError **error) {
    const RefitTransfer *transfer = &plan->transfers[piece->transfer];
    gboolean bucket = transfer->landing == REFIT_LANDING_BUCKET;
    guint64 **places = bucket ? &landings->bucketed : &landings->assembled;
    const RefitBucketTensor item = {piece->message->batch, transfer->class_index, piece->tensor};

    if (*places == NULL)
        *places = new_places(refit_model_n_tensors(plan->problem->refit_case->model));
    if (bucket)
        landings->bucket_stages[item.batch] =
            MAX(landings->bucket_stages[item.batch], transfer->stage + 1u);
    if ((*places)[piece->tensor] != NOWHERE)
        return TRUE;
    if (bucket)
        g_array_append_val(landings->buckets, item);
    return take(filled, plan->problem->classes[transfer->class_index].bytes, TENSOR_ALIGN,
                &(*places)[piece->tensor], error);
}

static gboolean lands_elsewhere(const RefitPlan *plan, const RefitPair *pair) {
    for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++)
        if (plan->transfers[t].landing != REFIT_LANDING_HOME)
            return TRUE;
    return FALSE;
}

/* The relays of a message follow each other as in the message. */
static gboolean place_pieces(RefitLandings *landings, const RefitPlan *plan, const GArray *seeds,
                             guint64 *filled, GError **error) {
    guint64 align = REFIT_PROGRAM_ALIGN;

    for (guint i = 0; i < seeds->len; i++) {
        const RefitPieceSeed *piece = &g_array_index(seeds, RefitPieceSeed, i);
        Relay relay = {piece->transfer, piece->tensor, 0};

        switch (plan->transfers[piece->transfer].landing) {
        case REFIT_LANDING_HOME:
            break;
        case REFIT_LANDING_RELAY:
            if (!take(filled, piece->bytes, align, &relay.at, error))
                return FALSE;
            g_array_append_val(landings->relays, relay);
            align = 1;
            break;
        default:
            if (!place_tensor(landings, plan, piece, filled, error))
                return FALSE;
            align = REFIT_PROGRAM_ALIGN;
            break;
        }
    }
    return TRUE;
}

/* Slots of each lane, as large as the largest of their batches. */
static gboolean place_slots(RefitLandings *landings, const RefitPlan *plan, const guint64 *filled,
                            GError **error) {
    gsize n_slots = (gsize)plan->n_lanes * REFIT_PROGRAM_BATCH_SLOTS;
    g_autofree guint *turns = g_new0(guint, MAX(plan->n_lanes, 1));
    g_autofree guint64 *sizes = g_new0(guint64, MAX(n_slots, 1));

    for (guint b = 0; b < plan->n_batches; b++) {
        guint lane = plan->batches[b].lane;

        landings->batch_slots[b] = G_MAXUINT;
        if (filled[b] == 0)
            continue;
        guint slot = lane * REFIT_PROGRAM_BATCH_SLOTS + turns[lane]++ % REFIT_PROGRAM_BATCH_SLOTS;

        landings->batch_slots[b] = slot;
        sizes[slot] = MAX(sizes[slot], filled[b]);
    }
    landings->slot_offsets = g_new(guint64, MAX(n_slots, 1));
    for (gsize s = 0; s < n_slots; s++)
        if (!take(&landings->bytes, sizes[s], REFIT_PROGRAM_ALIGN, &landings->slot_offsets[s],
                  error))
            return FALSE;
    return TRUE;
}

RefitLandings *refit_landings_new(const RefitProgramIndex *index, guint rank, GError **error) {
    const RefitPlan *plan = index->plan;
    g_autoptr(RefitLandings) landings = g_new0(RefitLandings, 1);
    g_autofree guint64 *filled = g_new0(guint64, MAX(plan->n_batches, 1));
    g_autoptr(GArray) seeds = g_array_new(FALSE, FALSE, sizeof(RefitPieceSeed));

    landings->relays = g_array_new(FALSE, FALSE, sizeof(Relay));
    landings->buckets = g_array_new(FALSE, FALSE, sizeof(RefitBucketTensor));
    landings->batch_slots = g_new(guint, MAX(plan->n_batches, 1));
    landings->bucket_stages = g_new0(guint, MAX(plan->n_batches, 1));
    for (guint i = index->message_offsets[rank]; i < index->message_offsets[rank + 1]; i++) {
        const RefitMessage *message = &plan->messages[index->messages[i]];
        const RefitPair *pair = &plan->pairs[message->pair];

        if (pair->dst != rank || !lands_elsewhere(plan, pair))
            continue;
        refit_program_list_pieces(index, &index->messages[i], 1, seeds);
        if (!place_pieces(landings, plan, seeds, &filled[message->batch], error))
            return NULL;
    }
    g_array_sort(landings->relays, compare_relays);
    if (!place_slots(landings, plan, filled, error))
        return NULL;
    return g_steal_pointer(&landings);
}

void refit_landings_free(RefitLandings *landings) {
    if (landings == NULL)
        return;
    g_array_unref(landings->relays);
    g_array_unref(landings->buckets);
    g_free(landings->assembled);
    g_free(landings->bucketed);
    g_free(landings->batch_slots);
    g_free(landings->slot_offsets);
    g_free(landings->bucket_stages);
    g_free(landings);
}

guint64 refit_landings_find_bucket(const RefitLandings *landings, guint tensor, guint batch) {
    return landings->slot_offsets[landings->batch_slots[batch]] + landings->bucketed[tensor];
}

guint64 refit_landings_find(const RefitLandings *landings, const RefitPlan *plan, guint transfer,
                            guint tensor, guint batch) {
    const Relay wanted = {transfer, tensor, 0};
    gboolean found;
    guint at = 0;

    switch (plan->transfers[transfer].landing) {
    case REFIT_LANDING_BUCKET:
        return refit_landings_find_bucket(landings, tensor, batch);
    case REFIT_LANDING_ASSEMBLY:
        return landings->slot_offsets[landings->batch_slots[batch]] + landings->assembled[tensor];
    default:
        found = g_array_binary_search(landings->relays, &wanted, compare_relays, &at);
        g_assert(found); /* every relay of the rank was placed */
        return landings->slot_offsets[landings->batch_slots[batch]] +
               g_array_index(landings->relays, Relay, at).at;
    }
}
