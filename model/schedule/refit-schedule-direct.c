/*
 * Whether a message goes straight between the network and memory, or is packed on a side.
 *
 * What a pair's transfers have in common is worked out once per pair; what depends on the batch is
 * whether the message is a single piece. A single piece is then compared with the parameter in
 * which it lies, without making the rank's views, or with the landing in which it arrived. The
 * answer errs on the side of packing, which is always right. Cost: transfers; and for single pieces
 * at home a look at the tensor's sharding, and once per tensor at its packing.
 */

#include "model/layout/refit-view.h"
#include "model/schedule/refit-schedule-private.h"

typedef enum {
    SEND_WHOLE = 1 << 0,    /* sends on all that one pair brought as a block, in its order */
    RECEIVE_BLOCK = 1 << 1, /* all of it lands as a block: relays, or parts of assembled tensors */
} PairFlags;

typedef enum { UNKNOWN, NO, YES } Answer;

#define CACHE_SIZE 4096 /* power of two */

/* Whether a region of a class is a run of a rank's parameter. */
typedef struct {
    guint class_index, region, rank;
    guint8 source; /* 1 + TRUE or FALSE; 0: empty */
    guint8 run;
} Cached;

struct _RefitScheduleDirect {
    const RefitPlan *plan;
    guint8 *flags;                             /* per pair */
    const RefitLayout **source, **destination; /* per rank; NULL: none */
    guint8 *keeps[2];                          /* per side and tensor: Answer */
    double *cast_from, *cast_to;               /* per rank */
    Cached *cache;
};

static guint8 find_flags(const RefitPlan *plan, const RefitPair *pair) {
    guint8 flags = SEND_WHOLE | RECEIVE_BLOCK;
    guint before = G_MAXUINT;

    for (guint i = 0; i < pair->n_transfers; i++) {
        const RefitTransfer *transfer = &plan->transfers[pair->first_transfer + i];
        const RefitTransfer *dep;

        if (!refit_schedule_lands_in_block((RefitLanding)transfer->landing))
            flags &= (guint8)~RECEIVE_BLOCK;
        if (transfer->n_deps != 1) {
            flags &= (guint8)~SEND_WHOLE;
            continue;
        }
        dep = &plan->transfers[plan->deps[transfer->first_dep]];
        if (i == 0)
            before = dep->pair;
        if (dep->pair != before || !refit_schedule_lands_in_block((RefitLanding)dep->landing) ||
            plan->deps[transfer->first_dep] != plan->pairs[before].first_transfer + i ||
            dep->region != transfer->region || plan->pairs[before].n_transfers != pair->n_transfers)
            flags &= (guint8)~SEND_WHOLE;
    }
    return flags;
}

static void note_ranks(const RefitLayout *layout, const RefitLayout **of_rank) {
    for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
        of_rank[refit_layout_ranks(layout)[i]] = layout;
}

RefitScheduleDirect *refit_schedule_direct_new(const RefitPlan *plan) {
    const RefitCase *refit_case = plan->problem->refit_case;
    guint n_ranks = MAX(plan->problem->n_ranks, 1);
    RefitScheduleDirect *direct = g_new0(RefitScheduleDirect, 1);

    direct->plan = plan;
    direct->flags = g_new(guint8, MAX(plan->n_pairs, 1));
    for (guint p = 0; p < plan->n_pairs; p++)
        direct->flags[p] = find_flags(plan, &plan->pairs[p]);
    direct->source = g_new0(const RefitLayout *, n_ranks);
    direct->destination = g_new0(const RefitLayout *, n_ranks);
    note_ranks(refit_case->source, direct->source);
    for (guint d = 0; d < refit_case->n_destinations; d++)
        note_ranks(refit_case->destinations[d], direct->destination);
    for (guint side = 0; side < 2; side++)
        direct->keeps[side] = g_new0(guint8, MAX(refit_model_n_tensors(refit_case->model), 1));
    direct->cache = g_new0(Cached, CACHE_SIZE);
    direct->cast_from = refit_case_cast_ratios(refit_case, TRUE);
    direct->cast_to = refit_case_cast_ratios(refit_case, FALSE);
    return direct;
}

void refit_schedule_direct_free(RefitScheduleDirect *direct) {
    if (direct == NULL)
        return;
    g_free(direct->flags);
    g_free(direct->source);
    g_free(direct->destination);
    g_free(direct->keeps[0]);
    g_free(direct->keeps[1]);
    g_free(direct->cache);
    g_free(direct->cast_from);
    g_free(direct->cast_to);
    g_free(direct);
}

/* The tensor of a message with a single piece. */
static guint tensor_of(const RefitPlan *plan, const RefitMessage *message,
                       const RefitTransfer *transfer) {
    guint section = refit_plan_section_of(plan, transfer);
    const RefitBatchRun *run = refit_plan_batch_run(plan, section, message->batch);

    return plan->problem->classes[transfer->class_index]
        .members[plan->member_order[plan->member_offsets[section] + run->first]];
}

/* Layers repeat, so the same is asked for many members of a class. */
static gboolean is_run(RefitScheduleDirect *direct, const RefitLayout *layout, guint tensor,
                       const RefitTransfer *transfer, gboolean source, guint rank) {
    guint slot = transfer->class_index * 31 + transfer->region * 17 + rank * 2 + (source ? 1 : 0);
    Cached *cached = &direct->cache[slot & (CACHE_SIZE - 1)];
    const Cached wanted = {transfer->class_index, transfer->region, rank, source ? 2 : 1, 0};

    if (cached->class_index != wanted.class_index || cached->region != wanted.region ||
        cached->rank != wanted.rank || cached->source != wanted.source) {
        *cached = wanted;
        cached->run =
            refit_layout_is_run(layout, tensor, rank, &direct->plan->regions[transfer->region]) ? 1
                                                                                                : 0;
    }
    return cached->run != 0;
}

/* The region is one run of the parameter that `rank` has on this side. */
static gboolean is_run_at_home(RefitScheduleDirect *direct, const RefitMessage *message,
                               const RefitTransfer *transfer, gboolean source, guint rank) {
    const RefitLayout *layout = (source ? direct->source : direct->destination)[rank];
    guint tensor = tensor_of(direct->plan, message, transfer);
    guint8 *keeps = &direct->keeps[source ? 0 : 1][tensor];

    if (layout == NULL)
        return FALSE;
    /* Pools are of one model, but may be of different frameworks: no memory for those. */
    if (*keeps == UNKNOWN || (!source && direct->plan->problem->refit_case->n_destinations > 1))
        *keeps = refit_layout_keeps_rows(layout, tensor) ? YES : NO;
    return *keeps == YES && is_run(direct, layout, tensor, transfer, source, rank);
}

static gboolean is_run_in_section(const RefitPlan *plan, const RefitTransfer *transfer) {
    return refit_local_runs(&plan->regions[transfer->region],
                            &plan->sections[refit_plan_section_of(plan, transfer)].region) == 1;
}

/* Of a message with a single piece. */
static gboolean piece_comes_straight(RefitScheduleDirect *direct, const RefitMessage *message,
                                     const RefitTransfer *transfer) {
    const RefitPlan *plan = direct->plan;
    const RefitTransfer *dep;

    if (transfer->n_deps == 0)
        return is_run_at_home(direct, message, transfer, TRUE, transfer->src);
    dep = &plan->transfers[plan->deps[transfer->first_dep]];
    if (transfer->n_deps > 1 || dep->region != transfer->region)
        return FALSE;
    switch ((RefitLanding)dep->landing) {
    case REFIT_LANDING_RELAY:
    case REFIT_LANDING_ASSEMBLY:
        return TRUE;
    case REFIT_LANDING_HOME:
        return is_run_at_home(direct, message, transfer, FALSE, transfer->src);
    default:
        return is_run_in_section(plan, transfer);
    }
}

static gboolean piece_lands_straight(RefitScheduleDirect *direct, const RefitMessage *message,
                                     const RefitTransfer *transfer) {
    switch ((RefitLanding)transfer->landing) {
    case REFIT_LANDING_RELAY:
    case REFIT_LANDING_ASSEMBLY:
        return TRUE;
    case REFIT_LANDING_HOME:
        return is_run_at_home(direct, message, transfer, FALSE, transfer->dst);
    default:
        return is_run_in_section(direct->plan, transfer);
    }
}

gboolean refit_schedule_is_direct(RefitScheduleDirect *direct, guint message, guint slices,
                                  gboolean sends) {
    const RefitPlan *plan = direct->plan;
    const RefitMessage *self = &plan->messages[message];
    const RefitPair *pair = &plan->pairs[self->pair];
    const RefitTransfer *first = &plan->transfers[pair->first_transfer];
    guint8 flags = direct->flags[self->pair];

    /* Only what comes first hand is cast: later hops send on what they received. */
    if (sends ? direct->cast_from[pair->src] > 0 && first->n_deps == 0
              : direct->cast_to[pair->dst] > 0 && (flags & RECEIVE_BLOCK) == 0)
        return FALSE;
    if (self->tensors > 1)
        return slices == 1 && (flags & (sends ? SEND_WHOLE : RECEIVE_BLOCK)) != 0;
    if (pair->n_transfers == 1)
        return sends ? piece_comes_straight(direct, self, first)
                     : piece_lands_straight(direct, self, first);
    /* The one that has members in this batch. */
    for (guint t = 0; t < pair->n_transfers; t++)
        if (refit_plan_batch_members(plan, refit_plan_section_of(plan, &first[t]), self->batch) > 0)
            return sends ? piece_comes_straight(direct, self, &first[t])
                         : piece_lands_straight(direct, self, &first[t]);
    g_return_val_if_reached(FALSE);
}
