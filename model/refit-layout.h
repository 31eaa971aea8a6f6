#pragma once

/*
 * A layout: how one side (source or destination) holds every tensor of a model. A framework
 * generator turns the engine's own words (tp, pp, ep, ...) into one sharding per tensor; equal
 * shardings are shared, so comparing pointers compares layouts.
 *
 * Frameworks: `megatron`, `fsdp`, `vllm`, `explicit`. They are entries of one table; adding one
 * touches one new file and one line.
 */

#include "refit-geometry.h"
#include "refit-model.h"

G_BEGIN_DECLS

typedef struct _RefitLayout RefitLayout; /* immutable once returned by a generator */

struct _RefitPacking; /* refit-view.h */

typedef struct {
    const char *name;
    const char *summary;
    /* How logical tensors make up the engine's parameters; ends with a row without a parameter. */
    const struct _RefitPacking *packings;
    /* One line per key of the case file, for help and documentation: "tp\ttensor parallel size". */
    const char *const *keys;
    /*
     * Reads its keys from `node` (the `train:` or `generation:` mapping, without `framework`,
     * `gpus`, `first_gpu`, `ranks`, which the caller has consumed) and assigns every tensor of
     * `model`. The side's ranks are ranks[0..n_ranks).
     */
    gboolean (*generate)(RefitLayout *layout, RefitNode *node, GError **error);
} RefitFramework;

/* NULL-terminated table, in the order shown to users. */
const RefitFramework *const *refit_frameworks(void);

/*
 * Reads a side of a case. `side` ("train", "generation") is used in messages. `next_rank`: first
 * rank when the node states neither `first_gpu` nor `ranks`; `n_available`: GPUs of the topology.
 * Calls refit_node_finish on the node.
 */
RefitLayout *refit_layout_parse(RefitNode *node, const char *side, RefitModel *model,
                                guint next_rank, guint n_available, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_layout_free(RefitLayout *layout);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitLayout, refit_layout_free)

const char *refit_layout_side(const RefitLayout *layout);
const char *refit_layout_framework(const RefitLayout *layout);
const char *refit_layout_summary(const RefitLayout *layout); /* "megatron tp1 pp16 ep16" */
const RefitModel *refit_layout_model(const RefitLayout *layout);
guint refit_layout_n_ranks(const RefitLayout *layout);
const guint *refit_layout_ranks(const RefitLayout *layout); /* in the framework's order */
/* Sharding of a tensor, or NULL when this side does not hold it. Borrowed; equal ones are the same
 * pointer. */
const RefitSharding *refit_layout_sharding(const RefitLayout *layout, guint tensor);

/*
 * Collective groups that gather-broadcast needs (FIELD: pipeline, tensor and expert groups). For
 * rank position p (index into ranks): position inside its pipeline stage and the stage number.
 * n_stages is 1 and every stage number 0 for frameworks without pipeline.
 */
guint refit_layout_n_stages(const RefitLayout *layout);
guint refit_layout_stage_of(const RefitLayout *layout, guint position);

/* ---- for generators ---- */
RefitLayout *refit_layout_new(const char *side, const char *framework, RefitModel *model,
                              const guint *ranks, guint n_ranks);
/*
 * Adds `sharding` (ownership taken) or finds the equal one already there; returns the shared one.
 */
const RefitSharding *refit_layout_share(RefitLayout *layout, RefitSharding *sharding);
void refit_layout_assign(RefitLayout *layout, guint tensor, const RefitSharding *shared);
void refit_layout_set_summary(RefitLayout *layout, char *summary); /* takes ownership */
/* Stage of each position; copied. */
void refit_layout_set_stages(RefitLayout *layout, guint n_stages, const guint *stage_of);

G_END_DECLS
