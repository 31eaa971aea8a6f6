/*
 * Turns a builder's decisions into a plan: offsets, pairs, steps, messages, accounts.
 *
 * Transfers are ordered by counting sorts, one pass per sort key from the least significant on,
 * and passes that find their key in order already cost one scan; so the cost is linear in
 * transfers plus messages. Runs are counted class by class, because only then one rank-to-piece
 * index serves many transfers, with a small cache in front: neighbouring transfers mostly move
 * the same region of the same piece.
 */

#include "model/geometry/refit-piece-index.h"
#include "model/plan/refit-plan-private.h"
#include "model/plan/refit-rounds.h"

#include <string.h>

typedef struct {
    RefitPlanBuilder *builder;
    const RefitProblem *problem;
    RefitPlan *plan;
    guint n; /* transfers */
    RefitTransfer *transfers;
    guint *order, *scratch, *keys; /* n each, for sorting */
    guint *offsets;                /* per transfer in the order of adding */
    guint64 *runs_src, *runs_dst;  /* the same */
    RefitStage *stages;
    guint *stage_bases; /* n_stages + 1: first offset of each stage in one batch's steps */
} Finish;

/* ---- sizes ---- */

/* Once the total fits, so does every partial sum of the same numbers. */
static gboolean check_totals(const Finish *finish, GError **error) {
    guint64 bytes = 0, elements = 0;
    for (guint i = 0; i < finish->n; i++) {
        const RefitTransfer *transfer = &finish->transfers[i];
        const RefitClass *klass = &finish->problem->classes[transfer->class_index];
        guint64 volume = g_array_index(finish->builder->volumes, guint64, transfer->region);
        guint64 some;
        if (!refit_checked_mul(volume, klass->n_members, "elements moved", &some, error) ||
            !refit_checked_add(elements, some, "elements moved", &elements, error) ||
            !refit_checked_mul(refit_class_bytes(klass, volume), klass->n_members, "bytes moved",
                               &some, error) ||
            !refit_checked_add(bytes, some, "bytes moved", &bytes, error))
            return FALSE;
    }
    if (finish->builder->logical_overflow) {
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                            "logical bytes of the plan do not fit in 64 bits");
        return FALSE;
    }
    return TRUE;
}

/* ---- offsets ---- */

#define SORT_BY(finish, n_keys, key_of)                                                            \
    G_STMT_START {                                                                                 \
        for (guint item = 0; item < (finish)->n; item++) {                                         \
            const RefitTransfer *transfer = &(finish)->transfers[item];                            \
            (finish)->keys[item] = (key_of);                                                       \
        }                                                                                          \
        refit_counting_sort((finish)->keys, (n_keys), (finish)->order, (finish)->scratch,          \
                            (finish)->n);                                                          \
    }                                                                                              \
    G_STMT_END

/* Counters of one pass; beyond, their memory costs more than a second pass. */
#define MAX_SORT_KEYS (1u << 20)

/* By `high_of`, then by `low_of`: in one pass when the pairs of keys are few enough. */
#define SORT_BY_TWO(finish, n_high, high_of, n_low, low_of)                                        \
    G_STMT_START {                                                                                 \
        if ((guint64)(n_high) * (n_low) <= MAX_SORT_KEYS) {                                        \
            SORT_BY(finish, (n_high) * (n_low), (high_of) * (n_low) + (low_of));                   \
        } else {                                                                                   \
            SORT_BY(finish, n_low, low_of);                                                        \
            SORT_BY(finish, n_high, high_of);                                                      \
        }                                                                                          \
    }                                                                                              \
    G_STMT_END

/* Rounds of meetings that all start together: as few as keep each rank within the limit. */
static guint count_rounds(const RefitMeeting *meetings, guint n, guint n_ranks, guint *rounds) {
    g_autofree guint *sent = g_new0(guint, n_ranks);
    g_autofree guint *received = g_new0(guint, n_ranks);
    guint n_rounds = 0;
    for (guint i = 0; i < n; i++) {
        guint *out = &sent[meetings[i].src], *in = &received[meetings[i].dst];
        rounds[i] =
            MAX(*out, *in) / (REFIT_STEP_OPERATIONS / 2); /* half to send, half to receive */
        ++*out;
        ++*in;
        n_rounds = MAX(n_rounds, rounds[i] + 1);
    }
    return n_rounds;
}

/* Of all members; the total was found to fit. */
static guint64 bytes_moved(const Finish *finish, const RefitTransfer *transfer) {
    const RefitClass *klass = &finish->problem->classes[transfer->class_index];

    return refit_class_bytes(klass,
                             g_array_index(finish->builder->volumes, guint64, transfer->region)) *
           klass->n_members;
}

/*
 * Transfers of one stage, depth and link class are one exchange. In a stage without slices it is
 * scheduled in rounds, level after level; in a sliced stage all of a level starts together, in as
 * few rounds as the limit on operations allows.
 */
static guint place_level(Finish *finish, guint first, guint end, guint base) {
    const RefitTransfer *transfers = finish->transfers;
    guint n_ranks = finish->problem->n_ranks, n_rounds, number = G_MAXUINT;
    gboolean sliced = finish->stages[transfers[finish->order[first]].stage].slices > 1;
    g_autoptr(GArray) meetings = g_array_new(FALSE, FALSE, sizeof(RefitMeeting));
    RefitMeeting last = {.src = G_MAXUINT, .dst = G_MAXUINT};
    for (guint i = first; i < end; i++) {
        const RefitTransfer *transfer = &transfers[finish->order[i]];
        if (last.src != transfer->src || last.dst != transfer->dst) {
            last = (RefitMeeting){.src = transfer->src, .dst = transfer->dst};
            g_array_append_val(meetings, last);
        }
        g_array_index(meetings, RefitMeeting, meetings->len - 1).bytes +=
            bytes_moved(finish, transfer);
    }
    g_autofree guint *rounds = g_new0(guint, meetings->len);
    const RefitMeeting *list = (const RefitMeeting *)(gpointer)meetings->data;
    if (sliced)
        n_rounds = count_rounds(list, meetings->len, n_ranks, rounds);
    else
        n_rounds =
            refit_rounds_assign(list, meetings->len, n_ranks, finish->builder->peers, rounds);
    for (guint i = first; i < end; i++) {
        const RefitTransfer *transfer = &transfers[finish->order[i]];
        if (i == first || list[number].src != transfer->src || list[number].dst != transfer->dst)
            number++;
        finish->offsets[finish->order[i]] = base + rounds[number];
    }
    return n_rounds;
}

static void place_offsets(Finish *finish) {
    RefitPlan *plan = finish->plan;
    guint n_ranks = finish->problem->n_ranks, n_depths = 1, base = 0, level_rounds = 0;
    for (guint i = 0; i < finish->n; i++) {
        finish->order[i] = i;
        n_depths = MAX(n_depths, finish->transfers[i].pair + 1); /* the hop depth */
    }
    SORT_BY_TWO(finish, n_ranks, transfer->src, n_ranks, transfer->dst);
    SORT_BY(finish, REFIT_N_LINKS, transfer->link);
    SORT_BY_TWO(finish, plan->n_stages, (guint)transfer->stage, n_depths, transfer->pair);
    for (guint first = 0, end; first < finish->n; first = end) {
        const RefitTransfer *own = &finish->transfers[finish->order[first]];
        const RefitTransfer *next = own;
        for (end = first + 1; end < finish->n; end++) {
            next = &finish->transfers[finish->order[end]];
            if (next->stage != own->stage || next->pair != own->pair || next->link != own->link)
                break;
        }
        level_rounds = MAX(level_rounds, place_level(finish, first, end, base));
        if (end == finish->n || next->stage != own->stage || next->pair != own->pair) {
            base += level_rounds;
            level_rounds = 0;
        }
        if (end == finish->n || next->stage != own->stage) {
            finish->stages[own->stage].n_offsets = base;
            base = 0;
        }
    }
    finish->stage_bases[0] = 0;
    for (guint stage = 0; stage < plan->n_stages; stage++)
        finish->stage_bases[stage + 1] = finish->stage_bases[stage] +
                                         finish->stages[stage].n_offsets +
                                         finish->stages[stage].slices - 1;
}

/* ---- runs ---- */

#define RUN_CACHE_SIZE 4096 /* power of two */

typedef struct {
    const RefitRegion *region, *local;
    guint64 runs; /* 0: not contained */
} RunCacheEntry;

static guint64 cached_runs(RunCacheEntry *cache, const RefitRegion *region,
                           const RefitHolding *holding, const RefitPieceIndex *index, guint rank) {
    const guint *pieces;
    guint n = refit_piece_index_get(index, rank, &pieces);
    for (guint i = 0; i < n; i++) {
        const RefitRegion *local = &holding->pieces[pieces[i]].region;
        guint slot = (GPOINTER_TO_UINT(region) / 16 * 31 + GPOINTER_TO_UINT(local) / 16 * 17) &
                     (RUN_CACHE_SIZE - 1);
        if (cache[slot].region != region || cache[slot].local != local) {
            gboolean inside = refit_region_contains(local, region);
            cache[slot] =
                (RunCacheEntry){region, local, inside ? refit_local_runs(region, local) : 0};
        }
        if (cache[slot].runs > 0)
            return cache[slot].runs;
    }
    return 1; /* a source that does not hold it: the proof will say so */
}

/* Staging memory holds a region as one run. */
static gboolean sends_from_staging(const Finish *finish, const RefitTransfer *transfer) {
    const guint *deps = (const guint *)(gpointer)finish->builder->deps->data + transfer->first_dep;
    for (guint i = 0; i < transfer->n_deps; i++)
        if (finish->transfers[deps[i]].landing != REFIT_LANDING_HOME)
            return TRUE;
    return FALSE;
}

static void count_runs(Finish *finish) {
    const RefitProblem *problem = finish->problem;
    g_autofree RunCacheEntry *cache = g_new0(RunCacheEntry, RUN_CACHE_SIZE);
    g_autoptr(RefitPieceIndex) sources = refit_piece_index_new(problem->n_ranks);
    g_autoptr(RefitPieceIndex) needs = refit_piece_index_new(problem->n_ranks);
    for (guint i = 0; i < finish->n; i++) {
        finish->order[i] = i;
        finish->keys[i] = finish->transfers[i].class_index;
    }
    refit_counting_sort(finish->keys, problem->n_classes, finish->order, finish->scratch,
                        finish->n);
    for (guint i = 0; i < finish->n; i++) {
        const RefitTransfer *transfer = &finish->transfers[finish->order[i]];
        const RefitClass *klass = &problem->classes[transfer->class_index];
        const RefitRegion *region = g_ptr_array_index(finish->builder->regions, transfer->region);
        refit_piece_index_load(sources, klass->source);
        refit_piece_index_load(needs, klass->destination);
        guint64 src = 1, dst = 1;
        if (transfer->n_deps == 0)
            src = cached_runs(cache, region, klass->source, sources, transfer->src);
        else if (!sends_from_staging(finish, transfer))
            src = cached_runs(cache, region, klass->destination, needs, transfer->src);
        if (transfer->landing == REFIT_LANDING_HOME)
            dst = cached_runs(cache, region, klass->destination, needs, transfer->dst);
        finish->runs_src[finish->order[i]] = src;
        finish->runs_dst[finish->order[i]] = dst;
    }
}

/* ---- order ---- */

/* Brings transfers and their dependencies into the plan's order. */
static void sort_transfers(Finish *finish) {
    RefitPlanBuilder *builder = finish->builder;
    RefitPlan *plan = finish->plan;
    guint n = finish->n, n_ranks = finish->problem->n_ranks;
    guint n_offsets = finish->stage_bases[plan->n_stages];
    for (guint i = 0; i < n; i++)
        finish->order[i] = i;
    SORT_BY_TWO(finish, finish->problem->n_classes, transfer->class_index, builder->regions->len,
                transfer->region);
    SORT_BY_TWO(finish, n_ranks, transfer->src, n_ranks, transfer->dst);
    SORT_BY(finish, n_offsets, finish->stage_bases[transfer->stage] + finish->offsets[item]);

    guint *place = finish->scratch;
    for (guint i = 0; i < n; i++)
        place[finish->order[i]] = i;
    RefitTransfer *sorted = g_new(RefitTransfer, MAX(n, 1));
    guint *deps = g_new(guint, MAX(builder->deps->len, 1));
    guint n_deps = 0;
    for (guint i = 0; i < n; i++) {
        sorted[i] = finish->transfers[finish->order[i]];
        const guint *old = (const guint *)(gpointer)builder->deps->data + sorted[i].first_dep;
        sorted[i].first_dep = n_deps;
        for (guint j = 0; j < sorted[i].n_deps; j++) {
            guint at = n_deps++;
            for (; at > sorted[i].first_dep && deps[at - 1] > place[old[j]]; at--)
                deps[at] = deps[at - 1];
            deps[at] = place[old[j]];
        }
    }
    plan->transfers = sorted;
    plan->deps = deps;
    plan->n_transfers = n;
    plan->n_deps = n_deps;
}

static void group_pairs(Finish *finish) {
    RefitPlan *plan = finish->plan;
    RefitTransfer *transfers = (RefitTransfer *)plan->transfers;
    GArray *pairs = g_array_new(FALSE, FALSE, sizeof(RefitPair));
    RefitPair *last = NULL;
    for (guint i = 0; i < plan->n_transfers; i++) {
        RefitTransfer *transfer = &transfers[i];
        guint offset = finish->offsets[finish->order[i]];
        if (last == NULL || last->stage != transfer->stage || last->offset != offset ||
            last->src != transfer->src || last->dst != transfer->dst) {
            RefitPair pair = {
                transfer->src, transfer->dst, offset, transfer->stage, transfer->link, i, 0};
            g_array_append_val(pairs, pair);
            last = &g_array_index(pairs, RefitPair, pairs->len - 1);
        }
        last->n_transfers++;
        transfer->pair = pairs->len - 1;
    }
    plan->n_pairs = pairs->len;
    plan->pairs = (RefitPair *)(gpointer)g_array_free(pairs, FALSE);
}

/* ---- messages ---- */

/* Adds what a pair moves of a section to the messages of the batches that its members are in. */
static void add_section(const RefitPlan *plan, guint section, const RefitMessage *share,
                        RefitMessage *sums, GArray *touched) {
    for (guint i = plan->run_offsets[section]; i < plan->run_offsets[section + 1]; i++) {
        const RefitBatchRun *run = &plan->batch_runs[i];
        RefitMessage *sum = &sums[run->batch];
        if (sum->bytes == 0)
            g_array_append_val(touched, run->batch);
        sum->tensors += share->tensors * run->count;
        sum->bytes += share->bytes * run->count;
        sum->runs_src += share->runs_src * run->count;
        sum->runs_dst += share->runs_dst * run->count;
    }
}

/* Messages of all pairs, pair by pair. */
static GArray *collect_messages(Finish *finish) {
    const RefitPlan *plan = finish->plan;
    GArray *messages = g_array_new(FALSE, FALSE, sizeof(RefitMessage));
    g_autofree RefitMessage *sums = g_new0(RefitMessage, MAX(plan->n_batches, 1));
    g_autoptr(GArray) touched = g_array_new(FALSE, FALSE, sizeof(guint));
    guint per_batch = finish->stage_bases[plan->n_stages];
    for (guint number = 0; number < plan->n_pairs; number++) {
        const RefitPair *pair = &plan->pairs[number];
        guint end = pair->first_transfer + pair->n_transfers;
        for (guint i = pair->first_transfer; i < end;) {
            guint section = refit_plan_section_of(plan, &plan->transfers[i]);
            const RefitClass *klass = &finish->problem->classes[plan->transfers[i].class_index];
            RefitMessage share = {0};
            for (; i < end && refit_plan_section_of(plan, &plan->transfers[i]) == section; i++) {
                guint64 volume =
                    g_array_index(finish->builder->volumes, guint64, plan->transfers[i].region);
                share.tensors++;
                share.bytes += refit_class_bytes(klass, volume);
                share.runs_src += finish->runs_src[finish->order[i]];
                share.runs_dst += finish->runs_dst[finish->order[i]];
            }
            add_section(plan, section, &share, sums, touched);
        }
        for (guint i = 0; i < touched->len; i++) {
            guint batch = g_array_index(touched, guint, i);
            sums[batch].step = batch * per_batch + finish->stage_bases[pair->stage] + pair->offset;
            sums[batch].batch = batch;
            sums[batch].pair = number;
            g_array_append_val(messages, sums[batch]);
            sums[batch] = (RefitMessage){0};
        }
        g_array_set_size(touched, 0);
    }
    return messages;
}

/*
 * Messages in step order. Pairs are in the order of (stage, offset, src, dst), so a stable sort by
 * batch is all it takes.
 */
static gboolean place_messages(Finish *finish, GError **error) {
    RefitPlan *plan = finish->plan;
    guint64 n_steps = (guint64)plan->n_batches * finish->stage_bases[plan->n_stages];
    if (n_steps > G_MAXUINT) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                    "the plan would have %" G_GUINT64_FORMAT
                    " steps, the limit is %u; use fewer batches",
                    n_steps, G_MAXUINT);
        return FALSE;
    }
    plan->n_steps = (guint)n_steps;
    g_autoptr(GArray) found = collect_messages(finish);
    plan->n_messages = found->len;
    g_autofree guint *ends = g_new0(guint, (gsize)plan->n_batches + 1);
    for (guint i = 0; i < found->len; i++)
        ends[g_array_index(found, RefitMessage, i).batch + 1]++;
    for (guint batch = 0; batch < plan->n_batches; batch++)
        ends[batch + 1] += ends[batch];
    RefitMessage *messages = g_new(RefitMessage, MAX(found->len, 1));
    for (guint i = 0; i < found->len; i++) {
        const RefitMessage *message = &g_array_index(found, RefitMessage, i);
        messages[ends[message->batch]++] = *message;
    }
    plan->messages = messages;
    return TRUE;
}

static gboolean check_step_operations(const RefitPlan *plan, GError **error) {
    guint n_ranks = plan->problem->n_ranks;
    g_autofree guint *operations = g_new0(guint, MAX(n_ranks, 1));
    g_autofree guint *step_of = g_new0(guint, MAX(n_ranks, 1)); /* 1 + step */
    for (guint64 i = 0; i < plan->n_messages; i++) {
        const RefitPair *pair = &plan->pairs[plan->messages[i].pair];
        const guint sides[2] = {pair->src, pair->dst};
        for (guint side = 0; side < (pair->src == pair->dst ? 1 : 2); side++) {
            guint rank = sides[side];
            if (step_of[rank] != plan->messages[i].step + 1)
                operations[rank] = 0;
            step_of[rank] = plan->messages[i].step + 1;
            if (++operations[rank] > REFIT_STEP_OPERATIONS) {
                g_set_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE,
                            "strategy %s, stage %s: rank %u would take part in more than %d "
                            "messages of step %u; use fewer peers per step",
                            plan->strategy, plan->stages[pair->stage].name, rank,
                            REFIT_STEP_OPERATIONS, plan->messages[i].step);
                return FALSE;
            }
        }
    }
    return TRUE;
}

static void sum_accounts(RefitPlan *plan) {
    RefitRankAccount *accounts = g_new0(RefitRankAccount, MAX(plan->problem->n_ranks, 1));
    for (guint64 i = 0; i < plan->n_messages; i++) {
        const RefitMessage *message = &plan->messages[i];
        const RefitPair *pair = &plan->pairs[message->pair];
        accounts[pair->src].out[pair->link] += message->bytes;
        accounts[pair->dst].in[pair->link] += message->bytes;
        plan->link_bytes[pair->link] += message->bytes;
        if (pair->link != REFIT_LINK_LOCAL) {
            accounts[pair->src].messages_out++;
            accounts[pair->dst].messages_in++;
        }
    }
    plan->accounts = accounts;
}

/* ---- the whole ---- */

static guint count_lanes(const RefitPlan *plan) {
    guint n_lanes = 0;
    for (guint i = 0; i < plan->n_batches; i++)
        n_lanes = MAX(n_lanes, plan->batches[i].lane + 1);
    return n_lanes;
}

/* Hands the builder's contents over to the plan. */
static RefitPlan *take_contents(RefitPlanBuilder *builder) {
    RefitPlanStorage *storage = g_new0(RefitPlanStorage, 1);
    RefitPlan *plan = &storage->plan;
    plan->problem = builder->problem;
    plan->strategy = builder->strategy;
    plan->logical_bytes = builder->logical_bytes;
    plan->n_stages = builder->stages->len;
    plan->n_batches = builder->batches->len;
    plan->n_regions = builder->regions->len;
    plan->n_obligations = builder->obligations->len;
    plan->stages = (RefitStage *)(gpointer)g_array_steal(builder->stages, NULL);
    plan->batches = (RefitBatch *)(gpointer)g_array_steal(builder->batches, NULL);
    plan->obligations = (RefitObligation *)(gpointer)g_array_steal(builder->obligations, NULL);
    plan->n_lanes = count_lanes(plan);
    RefitRegion *regions = g_new(RefitRegion, MAX(plan->n_regions, 1));
    for (guint i = 0; i < plan->n_regions; i++)
        regions[i] = refit_region_copy(g_ptr_array_index(builder->regions, i));
    plan->regions = regions;
    storage->rank_sets = g_steal_pointer(&builder->rank_sets);
    return plan;
}

RefitPlan *refit_plan_builder_finish(RefitPlanBuilder *builder, GError **error) {
    g_return_val_if_fail(builder != NULL && builder->rank_sets != NULL, NULL);
    guint n = builder->transfers->len;
    gsize space = MAX(n, 1);
    g_autofree guint *order = g_new(guint, space);
    g_autofree guint *scratch = g_new(guint, space);
    g_autofree guint *keys = g_new(guint, space);
    g_autofree guint *offsets = g_new(guint, space);
    g_autofree guint64 *runs_src = g_new(guint64, space);
    g_autofree guint64 *runs_dst = g_new(guint64, space);
    g_autofree guint *stage_bases = g_new(guint, (gsize)builder->stages->len + 1);
    RefitTransfer *transfers = (RefitTransfer *)(gpointer)builder->transfers->data;
    g_autoptr(RefitPlan) plan = take_contents(builder);
    Finish finish = {
        .builder = builder,
        .problem = builder->problem,
        .plan = plan,
        .n = n,
        .transfers = transfers,
        .order = order,
        .scratch = scratch,
        .keys = keys,
        .offsets = offsets,
        .runs_src = runs_src,
        .runs_dst = runs_dst,
        .stages = (RefitStage *)plan->stages,
        .stage_bases = stage_bases,
    };
    if (!check_totals(&finish, error))
        return NULL;
    refit_plan_place_members(plan, builder);
    count_runs(&finish);
    place_offsets(&finish);
    sort_transfers(&finish);
    group_pairs(&finish);
    if (!place_messages(&finish, error) || !check_step_operations(plan, error))
        return NULL;
    sum_accounts(plan);
    plan->digest = refit_plan_digest(plan);
    return g_steal_pointer(&plan);
}
