#pragma once

/*
 * What the generators of inference engines share. An engine has pp stages of `width` ranks; engines
 * of equal layout stand side by side. The ranks of a stage over all engines are numbered 0, 1, ...
 * with tp innermost, and every kind of tensor is cut over a run of neighbours in that order and
 * repeated over the rest. The engines differ in how many ranks share which kind.
 */

#include "model/layout/refit-layout-private.h"

G_BEGIN_DECLS

/* Which routed experts the ranks of an expert group hold, slot by slot. */
typedef struct {
    guint n_experts, n_ranks;
    gboolean in_order;   /* every expert once, ascending from rank to rank */
    guint *first_slot;   /* of each rank; one more entry: the number of slots */
    guint *expert_of;    /* per slot */
    guint *first_holder; /* of each expert in rank_of; one more entry: the number of slots */
    guint *rank_of;      /* ranks of the slots, expert by expert */
} RefitExpertSlots;

void refit_expert_slots_free(RefitExpertSlots *slots);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitExpertSlots, refit_expert_slots_free)

typedef struct {
    RefitLayout *layout;
    const RefitModel *model;
    RefitNode *node;
    RefitSize tp, pp, engines;
    RefitNode *stage_layers; /* NULL: shared out evenly */
    guint spared_stages;     /* last stages that get none of the layers left over */
    guint width;             /* ranks of one engine that hold the same layers */

    /* How many ranks share a tensor; `place` and `name` are for messages. */
    RefitSize attention, dense, shared, embedding, head;
    RefitSize ep, expert_tp; /* with ep > 1, ep * expert_tp is the width */
    guint packing_options;   /* RefitPackingOption */
    const char *mtp_cut;     /* beginning of names of MTP projections that are cut over rows */

    /* Routed experts. */
    guint redundant;
    RefitNode *redundant_node, *expert_map; /* NULL when absent */
    gboolean round_robin;
    gboolean even_experts; /* ep must divide them */
    RefitExpertSlots *slots;
    guint64 blocks; /* of MXFP4, along the width of an expert; 0: none */

    guint *order; /* positions, stage by stage, in the order that cuts go by */
    guint *stage_of_layer;
    GHashTable *made; /* shardings made so far */
} RefitEngine;

/* Reads tp, pp, engines, stage_layers, redundant_experts and expert_map; nothing is checked. */
gboolean refit_engine_begin(RefitEngine *engine, RefitLayout *layout, RefitNode *node,
                            GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Assigns every tensor, once all sizes are known. Scales are left to their tensors. */
gboolean refit_engine_assign(RefitEngine *engine, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_engine_clear(RefitEngine *engine);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RefitEngine, refit_engine_clear)

/* Whether `model` is of `family`, by its name. */
gboolean refit_engine_is_family(const RefitModel *model, const char *family);
/* Whether `model` has a tensor of `role`. Cost: linear in the tensors. */
gboolean refit_engine_has_role(const RefitModel *model, RefitRole role);

/* A size that follows from others; messages point at `of`. */
RefitSize refit_engine_size(const char *name, guint value, const RefitSize *of);
/* Checks what is said about experts and fills slots; requires ep > 1. */
gboolean refit_engine_place_experts(RefitEngine *engine, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Adds to `sharding` who holds `tensor`, an expert or all of them stacked, on `stage`. `within` is
 * what the expert_tp ranks of a slot do. Requires slots.
 */
gboolean refit_engine_add_expert(const RefitEngine *engine, const RefitTensor *tensor, guint stage,
                                 const RefitAxis *within, RefitSharding *sharding, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Adds a part, base and strides counted in the order of the stage's ranks. */
gboolean refit_engine_add(const RefitEngine *engine, RefitSharding *sharding, guint stage,
                          guint base, const RefitAxis *axes, guint n_axes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
