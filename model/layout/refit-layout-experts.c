/*
 * Slots of routed experts: which expert lies where when whole experts are spread over ranks.
 *
 * Engines number physical slots, rank after rank, and say which logical expert each of them holds:
 * in order with sizes that differ by one at most, in turn (round robin), with copies of busy
 * experts behind the others (slot p holds expert p mod E), or by a stated map. A tensor of one
 * expert is then a part per slot; experts stacked along dim 0 are one part whose lists pick rows
 * slot by slot, and another part for experts that a rank holds a second time.
 *
 * Cost: slots once; per sharding the slots it needs.
 */

#include "model/layout/refit-layout-engine.h"

#define MAX_SLOTS (1u << 20)

void refit_expert_slots_free(RefitExpertSlots *slots) {
    if (slots == NULL)
        return;
    g_free(slots->first_slot);
    g_free(slots->expert_of);
    g_free(slots->first_holder);
    g_free(slots->rank_of);
    g_free(slots);
}

/* `first` and `experts` are taken over. */
static RefitExpertSlots *slots_new(guint n_experts, guint n_ranks, guint *first, guint *experts) {
    RefitExpertSlots *slots = g_new0(RefitExpertSlots, 1);
    guint n_slots = first[n_ranks];

    slots->n_experts = n_experts;
    slots->n_ranks = n_ranks;
    slots->first_slot = first;
    slots->expert_of = experts;
    slots->in_order = n_slots == n_experts;
    slots->first_holder = g_new0(guint, (gsize)n_experts + 1);
    slots->rank_of = g_new(guint, n_slots);
    for (guint i = 0; i < n_slots; i++) {
        slots->first_holder[experts[i] + 1]++;
        slots->in_order = slots->in_order && experts[i] == i;
    }
    for (guint i = 0; i < n_experts; i++)
        slots->first_holder[i + 1] += slots->first_holder[i];
    g_autofree guint *next = g_memdup2(slots->first_holder, n_experts * sizeof(guint));
    for (guint rank = 0; rank < n_ranks; rank++) {
        for (guint i = first[rank]; i < first[rank + 1]; i++)
            slots->rank_of[next[experts[i]]++] = rank;
    }
    return slots;
}

/* Slots of each rank: as many as the others or one more, the first ranks those. */
static guint *balanced(guint n_slots, guint n_ranks) {
    guint *first = g_new0(guint, (gsize)n_ranks + 1);

    for (guint i = 0; i < n_ranks; i++)
        first[i + 1] = first[i] + n_slots / n_ranks + (i < n_slots % n_ranks ? 1 : 0);
    return first;
}

static RefitExpertSlots *slots_by_rule(const RefitEngine *engine, guint n_experts) {
    guint n_ranks = engine->ep.value, n_slots = n_experts + engine->redundant, slot = 0;
    guint *experts = g_new(guint, n_slots);

    for (guint i = 0; !engine->round_robin && i < n_slots; i++)
        experts[i] = i % n_experts;
    for (guint rank = 0; engine->round_robin && rank < n_ranks; rank++) {
        for (guint i = rank; i < n_experts; i += n_ranks)
            experts[slot++] = i;
    }
    return slots_new(n_experts, n_ranks, balanced(n_slots, n_ranks), experts);
}

static gboolean read_slot(RefitNode *item, guint n_experts, GArray *experts, GError **error) {
    guint64 expert;

    if (!refit_node_uint(item, 0, n_experts - 1, &expert, error))
        return FALSE;
    guint narrow = (guint)expert;
    g_array_append_val(experts, narrow);
    return TRUE;
}

/* One list over all slots, which the ranks share evenly, or a list per rank. */
static gboolean read_map(RefitNode *map, guint n_experts, guint n_ranks, GArray *experts,
                         guint *first, GError **error) {
    if (!refit_node_expect(map, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    guint size = refit_node_size(map);
    gboolean nested = size > 0 && refit_node_kind(refit_node_at(map, 0)) == REFIT_NODE_SEQUENCE;

    if (nested ? size != n_ranks : size % n_ranks != 0) {
        refit_node_error(map, REFIT_ERROR_INVALID, error,
                         nested ? "expert_map has %u lists, but there are %u expert ranks; write "
                                  "one list per rank"
                                : "expert_map has %u slots, which the %u expert ranks cannot "
                                  "share evenly; write a list per rank",
                         size, n_ranks);
        return FALSE;
    }
    for (guint i = 0; i < size; i++) {
        RefitNode *item = refit_node_at(map, i);

        if (!nested) {
            if (!read_slot(item, n_experts, experts, error))
                return FALSE;
            first[i / (size / n_ranks) + 1] = experts->len;
            continue;
        }
        if (!refit_node_expect(item, REFIT_NODE_SEQUENCE, error))
            return FALSE;
        for (guint j = 0; j < refit_node_size(item); j++) {
            if (!read_slot(refit_node_at(item, j), n_experts, experts, error))
                return FALSE;
        }
        first[i + 1] = experts->len;
    }
    return TRUE;
}

static RefitExpertSlots *slots_by_map(const RefitEngine *engine, guint n_experts, GError **error) {
    g_autofree guint *first = g_new0(guint, (gsize)engine->ep.value + 1);
    g_autoptr(GArray) experts = g_array_new(FALSE, FALSE, sizeof(guint));

    if (!read_map(engine->expert_map, n_experts, engine->ep.value, experts, first, error))
        return NULL;
    g_autoptr(RefitExpertSlots) slots =
        slots_new(n_experts, engine->ep.value, g_steal_pointer(&first),
                  (guint *)(void *)g_array_steal(experts, NULL));
    for (guint i = 0; i < n_experts; i++) {
        if (slots->first_holder[i] == slots->first_holder[i + 1]) {
            refit_node_error(engine->expert_map, REFIT_ERROR_INVALID, error,
                             "expert %u of %u is in no slot; give every expert at least one", i,
                             n_experts);
            return NULL;
        }
    }
    return g_steal_pointer(&slots);
}

gboolean refit_engine_place_experts(RefitEngine *engine, GError **error) {
    guint64 n_experts = refit_layout_count_experts(engine->model), n_slots;
    guint ep = engine->ep.value;

    if (!refit_checked_add(n_experts, engine->redundant, "expert slots", &n_slots, error))
        return FALSE;
    if (n_slots > MAX_SLOTS) {
        refit_node_error(engine->redundant_node != NULL ? engine->redundant_node : engine->ep.place,
                         REFIT_ERROR_INVALID, error,
                         "%" G_GUINT64_FORMAT " expert slots are more than %u, the most that a "
                         "layer may have",
                         n_slots, MAX_SLOTS);
        return FALSE;
    }
    if ((engine->redundant > 0 || engine->even_experts) && engine->expert_map == NULL &&
        n_slots % ep != 0) {
        refit_node_error(engine->redundant_node != NULL ? engine->redundant_node : engine->ep.place,
                         REFIT_ERROR_INVALID, error,
                         "%s %u does not divide the %" G_GUINT64_FORMAT
                         " slots of %" G_GUINT64_FORMAT
                         " experts and %u redundant ones; use redundant_experts %" G_GUINT64_FORMAT,
                         engine->ep.name, ep, n_slots, n_experts, engine->redundant,
                         engine->redundant + ep - n_slots % ep);
        return FALSE;
    }
    engine->slots = engine->expert_map != NULL ? slots_by_map(engine, (guint)n_experts, error)
                                               : slots_by_rule(engine, (guint)n_experts);
    return engine->slots != NULL;
}

/* Adds the rows of each rank's slots, those that it holds for the `turn`-th time. */
static gboolean add_turn(const RefitEngine *engine, RefitSharding *sharding, guint stage,
                         RefitAxis *axes, guint turn, gboolean *any_out, GError **error) {
    const RefitExpertSlots *slots = engine->slots;
    RefitIntervalList **lists = g_new0(RefitIntervalList *, slots->n_ranks);
    g_autofree RefitInterval *rows = g_new(RefitInterval, slots->first_slot[slots->n_ranks]);
    g_autofree guint *seen = g_new(guint, slots->n_experts);
    gboolean added = TRUE;

    *any_out = FALSE;
    for (guint rank = 0; rank < slots->n_ranks && added; rank++) {
        guint n = 0, first = slots->first_slot[rank];

        for (guint i = 0; i < slots->n_experts; i++)
            seen[i] = 0;
        for (guint i = first; i < slots->first_slot[rank + 1]; i++) {
            guint expert = slots->expert_of[i];
            if (seen[expert]++ == turn)
                rows[n++] =
                    (RefitInterval){.lo = expert, .hi = (guint64)expert + 1, .at = i - first};
        }
        lists[rank] = refit_interval_list_new(rows, n, error);
        added = lists[rank] != NULL;
        *any_out = *any_out || n > 0;
    }
    if (added && *any_out) {
        axes[1].placement.split = REFIT_SPLIT_LISTS;
        axes[1].placement.n_lists = slots->n_ranks;
        axes[1].placement.lists = lists;
        added = refit_engine_add(engine, sharding, stage, 0, axes, 3, error);
    }
    refit_lists_free(lists, slots->n_ranks);
    return added;
}

gboolean refit_engine_add_expert(const RefitEngine *engine, const RefitTensor *tensor, guint stage,
                                 const RefitAxis *within, RefitSharding *sharding, GError **error) {
    const RefitExpertSlots *slots = engine->slots;
    guint tp = engine->expert_tp.value;
    guint copies = refit_layout_n_ranks(engine->layout) / engine->pp.value / engine->width;
    RefitAxis axes[] = {
        {.size = copies, .stride = engine->width},
        {.size = slots->n_ranks, .stride = tp, .placement = {.kind = REFIT_PLACEMENT_SHARD}},
        *within};
    gboolean any = TRUE;

    if (tensor->expert != REFIT_NO_EXPERT) {
        guint expert = (guint)tensor->expert;

        axes[1].size = 1;
        for (guint i = slots->first_holder[expert]; i < slots->first_holder[expert + 1]; i++) {
            if (!refit_engine_add(engine, sharding, stage, slots->rank_of[i] * tp, axes, 3, error))
                return FALSE;
        }
        return TRUE;
    }
    if (slots->in_order) {
        if (slots->n_experts % slots->n_ranks != 0)
            axes[1].placement.split = REFIT_SPLIT_BALANCED;
        return refit_engine_add(engine, sharding, stage, 0, axes, 3, error);
    }
    for (guint turn = 0; any; turn++) {
        if (!add_turn(engine, sharding, stage, axes, turn, &any, error))
            return FALSE;
    }
    return TRUE;
}
