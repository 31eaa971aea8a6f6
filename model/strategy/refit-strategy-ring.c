/*
 * Strategy `ring`: what NCCL M2N does. Tensors move call by call; a call is one tensor, or all
 * experts of one layer and projection. For each call and destination shard:
 *
 *   source replica --> leader in the first domain of its chain --> leader in the next domain ...
 *                            |                                        |
 *                            +--> other local replicas (NVLink)       +--> ...
 *
 * Each active source replica feeds one chain and sends every piece once; surplus replicas idle.
 * When a domain holds n replicas of a shard, the source pieces of that shard are divided among n
 * leaders. Hops of a chain overlap in slices. Pipeline stages take turns on a few lanes, and calls
 * of a lane run one after another. Network bytes: domains x B when a destination replica fits in a
 * domain, R_d x B when it spans several. Cost: one transfer per cell and needer.
 */

#include "model/strategy/refit-strategy-private.h"

#include <stdlib.h>

typedef struct {
    guint stage;   /* pipeline stage of the source */
    gint layer;    /* of the tensor */
    guint experts; /* role + 1 when all experts of the layer go in one call, else 0 */
    guint tensor;
    guint class_index, member;
} CallMember;

static int compare_call_members(const void *left, const void *right) {
    const CallMember *a = left, *b = right;

    if (a->stage != b->stage)
        return a->stage < b->stage ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    if (a->experts != b->experts)
        return a->experts < b->experts ? -1 : 1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static gboolean same_call(const CallMember *a, const CallMember *b) {
    return a->stage == b->stage && a->layer == b->layer && a->experts == b->experts &&
           a->experts != 0;
}

/* Members [first, end). */
typedef struct {
    guint first, end;
    guint lane;
    guint64 before; /* bytes of the lane's calls before it */
} Call;

static int compare_calls(const void *left, const void *right) {
    const Call *a = left, *b = right;

    if (a->before != b->before)
        return a->before < b->before ? -1 : 1;
    if (a->lane != b->lane)
        return a->lane < b->lane ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

static GArray *list_members(const RefitProblem *problem, RefitSelection selection) {
    GArray *members = g_array_new(FALSE, FALSE, sizeof(CallMember));

    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint m = 0; refit_selection_has(selection, klass) && m < klass->n_members; m++) {
            const RefitTensor *tensor =
                refit_model_tensor(problem->refit_case->model, klass->members[m]);
            CallMember member = {
                .stage = klass->stage,
                .layer = tensor->layer,
                .experts = tensor->expert == REFIT_NO_EXPERT ? 0 : (guint)tensor->role + 1,
                .tensor = klass->members[m],
                .class_index = c,
                .member = m,
            };
            g_array_append_val(members, member);
        }
    }
    g_array_sort(members, compare_call_members);
    return members;
}

/* In an order in which the lanes go on side by side, byte for byte: ranks work in the order of
 * batches, and one lane that came after the other would be one lane. */
static GArray *list_calls(const RefitProblem *problem, const GArray *members) {
    guint n_lanes = problem->refit_case->profile->stage_lanes;
    g_autofree guint64 *bytes = g_new0(guint64, n_lanes);
    GArray *calls = g_array_new(FALSE, FALSE, sizeof(Call));

    for (guint first = 0, end; first < members->len; first = end) {
        const CallMember *member = &g_array_index(members, CallMember, first);
        Call call = {.first = first, .lane = member->stage % n_lanes};

        call.before = bytes[call.lane];
        for (end = first; end < members->len; end++) {
            const CallMember *other = &g_array_index(members, CallMember, end);

            if (end > first && !same_call(member, other))
                break;
            bytes[call.lane] += problem->classes[other->class_index].bytes;
        }
        call.end = end;
        g_array_append_val(calls, call);
    }
    g_array_sort(calls, compare_calls);
    return calls;
}

/* One batch per call; the stages of the source take turns on the lanes. */
static void assign_calls(RefitPlanBuilder *builder, const RefitProblem *problem,
                         RefitSelection selection) {
    g_autoptr(GArray) members = list_members(problem, selection);
    g_autoptr(GArray) calls = list_calls(problem, members);

    for (guint i = 0; i < calls->len; i++) {
        const Call *call = &g_array_index(calls, Call, i);
        guint batch = refit_plan_builder_add_batch(builder, call->lane, 0, FALSE);

        for (guint m = call->first; m < call->end; m++) {
            const CallMember *member = &g_array_index(members, CallMember, m);
            refit_plan_builder_assign(builder, member->class_index, member->member, batch);
        }
    }
}

/* The needers of a cell in one domain. */
typedef struct {
    const guint *ranks;
    guint n_ranks;
    guint leader; /* index into ranks */
} Arrival;

typedef struct {
    RefitPlanBuilder *builder;
    const RefitTopology *topology;
    guint chain_stage, copy_stage;
} Ring;

/* Serves a domain that holds the cell already: nothing to bring in. */
static void serve_inside(const Ring *ring, guint class_index, guint region, const RefitCell *cell,
                         guint holder, const Arrival *arrival) {
    for (guint i = 0; i < arrival->n_ranks; i++) {
        guint needer = arrival->ranks[i];
        gboolean own = refit_ranks_contain(cell->holders, cell->n_holders, needer);

        refit_plan_builder_add(ring->builder, class_index, region, own ? needer : holder, needer,
                               ring->copy_stage, REFIT_LANDING_HOME, NULL, 0);
    }
}

static gboolean find_holder_inside(const Ring *ring, const RefitCell *cell, guint rank,
                                   guint *holder_out) {
    guint domain = refit_topology_domain_of(ring->topology, rank);

    for (guint h = 0; h < cell->n_holders; h++) {
        if (refit_topology_domain_of(ring->topology, cell->holders[h]) == domain) {
            *holder_out = cell->holders[h];
            return TRUE;
        }
    }
    return FALSE;
}

/* `share` of `shares`: number of this source piece among those of the same destination shard. */
static void add_cell(const Ring *ring, guint class_index, const RefitCell *cell, guint share,
                     guint shares, GArray *arrivals) {
    guint region = refit_plan_builder_region(ring->builder, &cell->region);
    guint previous = 0, previous_leader = 0, previous_chain = G_MAXUINT;

    g_array_set_size(arrivals, 0);
    for (guint first = 0; first < cell->n_needers;) {
        guint n = refit_domain_run(ring->topology, cell->needers, cell->n_needers, first);
        Arrival arrival = {cell->needers + first, n, (guint)((guint64)share * n / shares)};
        guint holder;

        if (find_holder_inside(ring, cell, cell->needers[first], &holder))
            serve_inside(ring, class_index, region, cell, holder, &arrival);
        else
            g_array_append_val(arrivals, arrival);
        first += n;
    }
    guint n_chains = MIN(cell->n_holders, arrivals->len);
    for (guint a = 0; a < arrivals->len; a++) {
        const Arrival *arrival = &g_array_index(arrivals, Arrival, a);
        guint leader = arrival->ranks[arrival->leader];
        guint chain = (guint)((guint64)a * n_chains / arrivals->len);
        gboolean head = chain != previous_chain;
        guint sender =
            head ? cell->holders[(guint64)chain * cell->n_holders / n_chains] : previous_leader;

        previous =
            refit_plan_builder_add(ring->builder, class_index, region, sender, leader,
                                   ring->chain_stage, REFIT_LANDING_HOME, &previous, head ? 0 : 1);
        for (guint i = 0; i < arrival->n_ranks; i++)
            if (i != arrival->leader)
                refit_plan_builder_add(ring->builder, class_index, region, leader,
                                       arrival->ranks[i], ring->copy_stage, REFIT_LANDING_HOME,
                                       &previous, 1);
        previous_leader = leader;
        previous_chain = chain;
    }
}

/* Number of each cell among those of its class with the same needers, and how many those are. */
static void number_shares(const RefitCells *cells, guint *share, guint *shares) {
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL); /* needer set -> count */

    for (guint i = 0; i < cells->n_cells; i++) {
        gpointer key = (gpointer)cells->cells[i].needers;
        share[i] = GPOINTER_TO_UINT(g_hash_table_lookup(seen, key));
        g_hash_table_insert(seen, key, GUINT_TO_POINTER(share[i] + 1));
    }
    for (guint i = 0; i < cells->n_cells; i++)
        shares[i] = GPOINTER_TO_UINT(g_hash_table_lookup(seen, (gpointer)cells->cells[i].needers));
}

void refit_ring_build(RefitPlanBuilder *builder, const RefitProblem *problem,
                      RefitSelection selection) {
    g_autoptr(GArray) arrivals = g_array_new(FALSE, FALSE, sizeof(Arrival));
    Ring ring = {
        .builder = builder,
        .topology = problem->refit_case->topology,
        .chain_stage =
            refit_plan_builder_add_stage(builder, "ring", problem->refit_case->profile->slices),
        .copy_stage = refit_plan_builder_add_stage(builder, "local copies", 1),
    };

    assign_calls(builder, problem, selection);
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitCells *cells = problem->classes[c].cells;

        if (!refit_selection_has(selection, &problem->classes[c]))
            continue;
        g_autofree guint *share = g_new(guint, cells->n_cells);
        g_autofree guint *shares = g_new(guint, cells->n_cells);

        number_shares(cells, share, shares);
        for (guint i = 0; i < cells->n_cells; i++)
            add_cell(&ring, c, &cells->cells[i], share[i], shares[i], arrivals);
    }
    refit_plan_builder_add_logical_bytes(builder, refit_selection_bytes(selection, problem));
}

static gboolean build(RefitPlanBuilder *builder, const RefitProblem *problem,
                      G_GNUC_UNUSED GError **error) {
    refit_ring_build(builder, problem, REFIT_SELECT_ALL);
    return TRUE;
}

const RefitStrategy refit_strategy_ring = {
    .name = "ring",
    .summary = "one leader per domain and shard, store-and-forward ring over domains, call by call",
    .build = build,
};
