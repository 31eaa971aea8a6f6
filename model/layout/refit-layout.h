#pragma once

/*
 * A layout: how one side (source or destination) holds every tensor of a model. A framework
 * generator turns the engine's own words (tp, pp, ep, ...) into one sharding per tensor; equal
 * shardings are shared, so comparing pointers compares layouts.
 *
 * Frameworks: `megatron`, `fsdp`, `vllm`, `sglang`, `m2n`, `explicit`. They are entries of one
 * table; adding one touches one new file and one line.
 */

#include "model/geometry/refit-geometry.h"
#include "model/tensors/refit-model.h"

G_BEGIN_DECLS

typedef struct _RefitLayout RefitLayout; /* immutable once returned by a generator */

struct _RefitPacking; /* refit-view.h */

typedef struct {
    const char *name;
    const char *summary;
    /* How logical tensors make up the engine's parameters; ends with a row without a parameter.
     * NULL: each is one of its own. */
    const struct _RefitPacking *packings;
    /* "hub\tengine": beginnings of names that differ, for tensors outside of MTP layers; the first
     * that fits. NULL-terminated; NULL: none. */
    const char *const *prefixes;
    /* One line per key of the case file, for help and documentation: "tp\ttensor parallel size". */
    const char *const *keys;
    /* Whether a side cuts tensors by what they are for: then it would hold unknown ones whole by
     * guess. NULL: never. */
    gboolean (*by_role)(RefitNode *node);
    /*
     * Number of GPUs of a side that states neither `gpus` nor `ranks`. NULL: it must.
     */
    gboolean (*count)(RefitNode *node, const char *side, guint *n_out, GError **error);
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
/* What the user should know of the files it was read from, each with its place. */
guint refit_layout_n_notes(const RefitLayout *layout);
const char *refit_layout_note(const RefitLayout *layout, guint index);
const RefitModel *refit_layout_model(const RefitLayout *layout);
guint refit_layout_n_ranks(const RefitLayout *layout);
const guint *refit_layout_ranks(const RefitLayout *layout); /* in the framework's order */
gboolean refit_layout_has_rank(const RefitLayout *layout, guint rank); /* cost: its ranks */
/* Sharding of a tensor, or NULL when this side does not hold it. Borrowed; equal ones are the same
 * pointer. */
const RefitSharding *refit_layout_sharding(const RefitLayout *layout, guint tensor);

/*
 * Adds to bytes[rank] what each rank holds, copies counted; `bytes` has an entry for every rank of
 * the layout. REFIT_ERROR_OVERFLOW, REFIT_ERROR_INVALID when a shard of a sub-byte type does not
 * end on a byte; then part may have been added.
 */
gboolean refit_layout_add_bytes(const RefitLayout *layout, guint64 *bytes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* The sum over all its ranks but those that are `gone`, in any order; NULL when n_gone is 0. */
gboolean refit_layout_total_bytes(const RefitLayout *layout, const guint *gone, guint n_gone,
                                  guint64 *total_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Collective groups that gather-broadcast needs (FIELD: pipeline, tensor and expert groups). For
 * rank position p (index into ranks): position inside its pipeline stage and the stage number.
 * n_stages is 1 and every stage number 0 for frameworks without pipeline.
 */
guint refit_layout_n_stages(const RefitLayout *layout);
guint refit_layout_stage_of(const RefitLayout *layout, guint position);

/* What refit-view.h needs: RefitPackingOption bits and the rows of REFIT_PACK_BLOCKS, 0: none. */
guint refit_layout_packing_options(const RefitLayout *layout);
guint refit_layout_block_rows(const RefitLayout *layout);

/*
 * A fused parameter of stated rows. It is whole as `shape`; its sharding says which ranks hold
 * which part of it. Without rows each rank holds the shards of the members one after the other
 * along dim 0, and shape and sharding are not used.
 */
typedef struct {
    const char *name;
    guint n_members;
    const guint *members; /* by member number: the tensor, or REFIT_NO_MEMBER for padding */
    guint n_rows;
    const RefitFusedRows *rows; /* along dim 0, in turn */
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    const RefitSharding *sharding; /* one that the layout shares */
} RefitFused;
#define REFIT_NO_MEMBER G_MAXUINT
guint refit_layout_n_fused(const RefitLayout *layout);
const RefitFused *refit_layout_fused(const RefitLayout *layout, guint index);

/*
 * The experts of the slots of `rank`, of guint in the order of the slots, where the layout states
 * them one by one. NULL: slots are in the order of copies and numbers.
 */
const GArray *refit_layout_expert_slots(const RefitLayout *layout, guint rank);

/*
 * Reads a sequence of numbers and "a-b" texts, each below `limit`, none twice. For messages: `what`
 * is numbered ("GPU") and `owner` has `limit` of them ("the topology"). An array of guint.
 */
GArray *refit_layout_read_ranks(RefitNode *node, guint limit, const char *what, const char *owner,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* One of these texts: "3" or "0-7". */
gboolean refit_layout_parse_range(const char *text, guint limit, const char *what,
                                  const char *owner, guint *first_out, guint *last_out,
                                  GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* ---- for generators ---- */
RefitLayout *refit_layout_new(const char *side, const char *framework, RefitModel *model,
                              const guint *ranks, guint n_ranks);
/*
 * Adds `sharding` (ownership taken) or finds the equal one already there; returns the shared one.
 */
const RefitSharding *refit_layout_share(RefitLayout *layout, RefitSharding *sharding);
void refit_layout_assign(RefitLayout *layout, guint tensor, const RefitSharding *shared);
void refit_layout_set_summary(RefitLayout *layout, char *summary); /* takes ownership */
void refit_layout_add_note(RefitLayout *layout, const char *note);
/* See refit_layout_packing_options(). */
void refit_layout_set_packing(RefitLayout *layout, guint options, guint block_rows);
/* See refit_layout_expert_slots(); copied. */
void refit_layout_set_expert_slots(RefitLayout *layout, guint position, const guint *experts,
                                   guint n);
/* Copied. A tensor may be a member of one fused parameter. */
void refit_layout_add_fused(RefitLayout *layout, const RefitFused *fused);
/* Stage of each position; copied. */
void refit_layout_set_stages(RefitLayout *layout, guint n_stages, const guint *stage_of);
/*
 * Gives every scale that has no sharding yet, and whose tensor has one, the blocks that each shard
 * of its tensor touches, in the same order, on the same ranks (refit-layout-scales.c).
 */
gboolean refit_layout_place_scales(RefitLayout *layout, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
