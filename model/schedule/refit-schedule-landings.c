/*
 * How much memory landings take on each rank, and which slot each batch has.
 *
 * Relays of a message are one block, and so are assembled parts. Sections of tensors in buckets
 * have a place as a whole, once, however many transfers bring parts of them: which sections a rank
 * receives so is collected from the transfers, and sizes follow per section and batch. Cost:
 * transfers that do not land at home, times batches; and ranks times sections in buckets.
 */

#include "model/base/refit-checked.h"
#include "model/schedule/refit-schedule-private.h"

#define ENTERED (1u << REFIT_N_LANDINGS) /* its sections in buckets are known to its receiver */

typedef struct {
    RefitScheduleBuild *build;
    guint n_batches;
    /* Per batch, of the rank in work: relays, assembled parts, buckets. */
    guint64 *relays, *assembled, *buckets;
    guint8 *kinds;    /* landings_of of the build, with ENTERED */
    guint8 *received; /* per section: it comes in buckets */
    GArray *sections; /* guint: those received by the rank in work */
} Landings;

static gboolean fill(guint64 *filled, guint64 bytes, guint64 align, GError **error) {
    return refit_checked_add(*filled, bytes, "staging bytes", filled, error) &&
           refit_checked_round_up(*filled, align, "staging bytes", filled, error);
}

gboolean refit_schedule_lands_in_block(RefitLanding landing) {
    return landing == REFIT_LANDING_RELAY || landing == REFIT_LANDING_ASSEMBLY;
}

/* Sections of which a pair brings parts in buckets; the same in every batch. */
static void enter_buckets(Landings *self, const RefitPair *pair) {
    const RefitPlan *plan = self->build->plan;

    for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++) {
        guint section = refit_plan_section_of(plan, &plan->transfers[t]);

        if (plan->transfers[t].landing != REFIT_LANDING_BUCKET)
            continue;
        if (self->received[section] == 0)
            g_array_append_val(self->sections, section);
        self->received[section] = 1;
    }
}

/* Bytes of a message that land so. Mostly all of a pair lands alike. */
static guint64 landing_bytes(const Landings *self, const RefitMessage *message,
                             RefitLanding landing) {
    const RefitPlan *plan = self->build->plan;
    const RefitPair *pair = &plan->pairs[message->pair];
    guint64 bytes = 0;

    if ((self->kinds[message->pair] & (1u << landing)) == 0)
        return 0;
    if (self->kinds[message->pair] == 1u << landing)
        return message->bytes;
    for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++) {
        const RefitTransfer *transfer = &plan->transfers[t];

        if (transfer->landing == landing)
            bytes += refit_plan_transfer_bytes(plan, transfer) *
                     refit_plan_batch_members(plan, refit_plan_section_of(plan, transfer),
                                              message->batch);
    }
    return bytes;
}

static gboolean enter_message(Landings *self, const RefitMessage *message, GError **error) {
    guint8 *kinds = &self->kinds[message->pair];

    if ((*kinds & (1u << REFIT_LANDING_BUCKET)) != 0 && (*kinds & ENTERED) == 0)
        enter_buckets(self, &self->build->plan->pairs[message->pair]);
    if ((*kinds & (1u << REFIT_LANDING_BUCKET)) != 0)
        *kinds |= ENTERED;
    return fill(&self->relays[message->batch], landing_bytes(self, message, REFIT_LANDING_RELAY),
                REFIT_SCHEDULE_ALIGN, error) &&
           fill(&self->assembled[message->batch],
                landing_bytes(self, message, REFIT_LANDING_ASSEMBLY), REFIT_SCHEDULE_ALIGN, error);
}

/* Sections that come in buckets, as a whole. */
static gboolean add_sections(Landings *self, GError **error) {
    const RefitPlan *plan = self->build->plan;

    for (guint i = 0; i < self->sections->len; i++) {
        guint section = g_array_index(self->sections, guint, i);
        guint64 bytes, all;

        self->received[section] = 0;
        if (!refit_checked_round_up(plan->sections[section].bytes, REFIT_SCHEDULE_TENSOR_ALIGN,
                                    "staging bytes", &bytes, error))
            return FALSE;
        for (guint r = plan->run_offsets[section]; r < plan->run_offsets[section + 1]; r++) {
            const RefitBatchRun *run = &plan->batch_runs[r];

            if (!refit_checked_mul(bytes, run->count, "staging bytes", &all, error) ||
                !fill(&self->buckets[run->batch], all, 1, error))
                return FALSE;
        }
    }
    g_array_set_size(self->sections, 0);
    return TRUE;
}

/* What a rank's batches with landings take. Empties the sums. */
static gboolean list_landings(Landings *self, GError **error) {
    for (guint b = 0; b < self->n_batches; b++) {
        RefitScheduleLanding landing = {
            .batch = b, .bytes = self->relays[b], .relay_bytes = self->relays[b]};

        if (!fill(&landing.bytes, MAX(self->assembled[b], self->buckets[b]), REFIT_SCHEDULE_ALIGN,
                  error))
            return FALSE;
        self->relays[b] = self->assembled[b] = self->buckets[b] = 0;
        if (landing.bytes > 0)
            g_array_append_val(self->build->landings, landing);
    }
    return TRUE;
}

/*
 * Slots in turn, each as large as the largest of its batches. Those far above the mean of their
 * lane always take the first slot, so that not both are as large as them. With one slot, all take
 * it.
 */
static gboolean place_slots(RefitScheduleBuild *build, guint rank, guint n_slots, GError **error) {
    const RefitPlan *plan = build->plan;
    gsize n_all = (gsize)plan->n_lanes * REFIT_SCHEDULE_BATCH_SLOTS;
    g_autofree guint64 *lane_bytes = g_new0(guint64, MAX(plan->n_lanes, 1));
    g_autofree guint *lane_batches = g_new0(guint, MAX(plan->n_lanes, 1));
    g_autofree guint *next = g_new0(guint, MAX(plan->n_lanes, 1));
    g_autofree guint64 *sizes = g_new0(guint64, MAX(n_all, 1));
    guint first = build->landing_offsets[rank], end = build->landing_offsets[rank + 1];
    RefitScheduleLanding *landings = (RefitScheduleLanding *)(gpointer)build->landings->data;
    guint64 *total = &build->ranks[rank].landing_bytes;

    for (guint i = first; i < end; i++) {
        lane_bytes[plan->batches[landings[i].batch].lane] += landings[i].bytes;
        lane_batches[plan->batches[landings[i].batch].lane]++;
    }
    for (guint i = first; i < end; i++) {
        guint lane = plan->batches[landings[i].batch].lane;
        guint64 mean = lane_bytes[lane] / lane_batches[lane];
        guint slot = landings[i].bytes > mean + mean / 2 ? 0 : next[lane];

        next[lane] = (slot + 1) % n_slots;
        landings[i].slot = lane * REFIT_SCHEDULE_BATCH_SLOTS + slot;
        sizes[landings[i].slot] = MAX(sizes[landings[i].slot], landings[i].bytes);
    }
    *total = 0;
    for (gsize s = 0; s < n_all; s++)
        if (!refit_checked_add(*total, sizes[s], "staging bytes", total, error))
            return FALSE;
    return TRUE;
}

gboolean refit_schedule_place_slots(RefitScheduleBuild *build, guint n_slots, GError **error) {
    for (guint rank = 0; rank < build->plan->problem->n_ranks; rank++)
        if (!place_slots(build, rank, n_slots, error))
            return FALSE;
    return TRUE;
}

static gboolean place_rank(Landings *self, guint rank, GError **error) {
    RefitScheduleBuild *build = self->build;
    gboolean any = FALSE;

    for (guint i = build->message_offsets[rank]; i < build->message_offsets[rank + 1]; i++) {
        const RefitMessage *message = &build->plan->messages[build->rank_messages[i]];

        if (build->plan->pairs[message->pair].dst != rank ||
            (self->kinds[message->pair] & ~(1u << REFIT_LANDING_HOME)) == 0)
            continue;
        any = TRUE;
        if (!enter_message(self, message, error))
            return FALSE;
    }
    return !any || (add_sections(self, error) && list_landings(self, error));
}

gboolean refit_schedule_list_landings(RefitScheduleBuild *build, GError **error) {
    const RefitPlan *plan = build->plan;
    guint n_ranks = plan->problem->n_ranks;
    g_autofree guint64 *relays = g_new0(guint64, MAX(plan->n_batches, 1));
    g_autofree guint64 *assembled = g_new0(guint64, MAX(plan->n_batches, 1));
    g_autofree guint64 *buckets = g_new0(guint64, MAX(plan->n_batches, 1));
    g_autofree guint8 *received = g_new0(guint8, MAX(plan->n_sections, 1));
    g_autoptr(GArray) sections = g_array_new(FALSE, FALSE, sizeof(guint));
    Landings self = {.build = build,
                     .n_batches = plan->n_batches,
                     .relays = relays,
                     .assembled = assembled,
                     .buckets = buckets,
                     .kinds = build->landings_of,
                     .received = received,
                     .sections = sections};
    gboolean any = FALSE;

    for (guint p = 0; p < plan->n_pairs; p++)
        any = any || (build->landings_of[p] & ~(1u << REFIT_LANDING_HOME)) != 0;
    for (guint rank = 0; rank < n_ranks; rank++) {
        build->landing_offsets[rank] = build->landings->len;
        if (any && !place_rank(&self, rank, error))
            return FALSE;
    }
    build->landing_offsets[n_ranks] = build->landings->len;
    return TRUE;
}
