#pragma once

/*
 * What the framework generators share: the tensor-parallel cut of each role, meshes given by
 * strides over the side's rank order, reading of parallel sizes, and a table of the shardings
 * already made, so that tens of thousands of tensors cost one lookup each.
 *
 * A position is an index into the side's ranks.
 */

#include "model/layout/refit-layout.h"

G_BEGIN_DECLS

extern const RefitFramework refit_framework_megatron;
extern const RefitFramework refit_framework_fsdp;
extern const RefitFramework refit_framework_vllm;
extern const RefitFramework refit_framework_sglang;
extern const RefitFramework refit_framework_m2n;
extern const RefitFramework refit_framework_explicit;

gboolean refit_layout_always_by_role(RefitNode *node); /* for RefitFramework */

/* A parallel size as read from the case, and where to point when it turns out to be wrong. */
typedef struct {
    const char *name;
    guint value;
    gboolean stated;
    RefitNode *place; /* the key's node, or the side's mapping when the key is absent */
} RefitSize;

/* How tensor parallelism cuts a tensor, by its role. */
typedef enum {
    REFIT_CUT_NONE,       /* every rank holds all of it */
    REFIT_CUT_ROWS,       /* column parallel: output rows, dim 0 */
    REFIT_CUT_COLUMNS,    /* row parallel: input columns, dim 1; a bias is held whole */
    REFIT_CUT_VOCABULARY, /* dim 0 after padding */
    REFIT_CUT_QUERY,      /* dim 0 by query heads, which go with their KV head */
    REFIT_CUT_KV,         /* dim 0 by KV heads */
} RefitCut;

RefitCut refit_layout_cut(const RefitTensor *tensor);
/* A weight of one routed expert, or of all of them stacked along dim 0 (expert REFIT_NO_EXPERT). */
gboolean refit_layout_is_expert(const RefitTensor *tensor);
/* Belongs to no layer and works on the output of the last one: held by the last stage. */
gboolean refit_layout_is_output(const RefitTensor *tensor);
/*
 * Rows or columns of `tensor` over an axis of size->value ranks; replicate for the other cuts.
 * Stacked experts have their rows in dim 1, or in dim 2 where they are transposed.
 * REFIT_ERROR_INVALID at the size when it is uneven.
 */
gboolean refit_layout_even(const RefitTensor *tensor, RefitCut cut, const RefitSize *size,
                           RefitPlacement *placement_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* The dim that holds the output rows or, for REFIT_CUT_COLUMNS, the input columns. */
guint refit_layout_cut_dim(const RefitTensor *tensor, RefitCut cut);
/* Number of a placement that refit_layout_even() can give: a key for tables of shardings. */
#define REFIT_N_EVEN_KINDS 4
guint refit_layout_even_kind(const RefitPlacement *placement);
/*
 * Packed projections (refit-layout-packed.c): whether `cut` over an axis of size->value ranks, more
 * than one, goes through the segments of `tensor`, so that each is cut on its own.
 */
gboolean refit_layout_is_packed(const RefitTensor *tensor, RefitCut cut, const RefitSize *size);
/*
 * A placement by stated lists, which it borrows: clear it when it has been added to a sharding. It
 * has no even kind, so tables of shardings cannot hold it.
 */
typedef struct {
    RefitPlacement placement;
    RefitIntervalList **lists;
} RefitListedCut;
void refit_listed_cut_clear(RefitListedCut *cut);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RefitListedCut, refit_listed_cut_clear)
/*
 * Requires refit_layout_is_packed(). Each rank has an even share of every segment, by whole units,
 * one after the other. With `repeat`, units fewer than ranks are held by several ranks each.
 * REFIT_ERROR_INVALID at the size when a segment or its units do not divide.
 */
gboolean refit_layout_packed(const RefitTensor *tensor, const RefitSize *size, gboolean repeat,
                             RefitListedCut *cut_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* One axis of a mesh: index i adds i * stride to the position. */
typedef struct {
    guint size, stride;
    RefitPlacement placement;
} RefitAxis;

/*
 * Adds to `sharding` the mesh of the positions order[base + sum of index * stride]; without `order`
 * these sums are the positions. Axes of size 1 are left out, so that layouts that hold the same
 * elements come out equal.
 */
gboolean refit_layout_add_ordered(const RefitLayout *layout, RefitSharding *sharding,
                                  const guint *order, guint base, const RefitAxis *axes,
                                  guint n_axes, GError **error) G_GNUC_WARN_UNUSED_RESULT;
static inline gboolean refit_layout_add_part(const RefitLayout *layout, RefitSharding *sharding,
                                             guint base, const RefitAxis *axes, guint n_axes,
                                             GError **error) {
    return refit_layout_add_ordered(layout, sharding, NULL, base, axes, n_axes, error);
}
/* A shared sharding with this one part; NULL on error. */
const RefitSharding *refit_layout_share_part(RefitLayout *layout, guint base, const RefitAxis *axes,
                                             guint n_axes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Reads the optional key `name`, a positive count; absent means `value`. */
gboolean refit_layout_read_size(RefitNode *node, const char *name, guint value, RefitSize *size_out,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Keys of a pipeline (refit-layout-stages.c): pp, vpp and how many layers a stage has. */
typedef struct {
    RefitSize pp, vpp, first, last;
    RefitNode *table; /* stage_layers, or NULL */
} RefitPipeline;
gboolean refit_layout_read_pipeline(RefitNode *node, RefitPipeline *pipeline_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * The stage of every decoder layer; caller frees. REFIT_ERROR_INVALID at the key that is wrong.
 * Call it when pp is known to divide the ranks.
 */
guint *refit_layout_solve_stages(const RefitModel *model, const RefitPipeline *pipeline,
                                 GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Makes the product of `sizes` and dp, whatever its name, the number of ranks: derives dp when it
 * was not stated, else checks it.
 */
gboolean refit_layout_solve_dp(const RefitLayout *layout, RefitNode *node, const RefitSize *sizes,
                               guint n_sizes, RefitSize *dp, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Checks that `tp` divides the attention heads, where the model has them. */
gboolean refit_layout_check_heads(const RefitModel *model, const RefitSize *tp, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Checks that the heads are known, for a tensor cut by KV heads over `tp` ranks, or fused by them:
 * a list of tensors does not tell them.
 */
gboolean refit_layout_check_known_heads(const RefitModel *model, const RefitTensor *tensor,
                                        const RefitSize *tp, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Routed experts per layer; stacked ones carry no number and are counted by their dim 0. */
guint64 refit_layout_count_experts(const RefitModel *model);
/* Checks that the model has routed experts when `ep` > 1, and with `even` that `ep` divides them.
 */
gboolean refit_layout_check_experts(const RefitModel *model, const RefitSize *ep, gboolean even,
                                    GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Checks that `tensor`, of an expert or of all, is of `n_experts` ones: all layers have as many. */
gboolean refit_layout_check_expert(const RefitTensor *tensor, const RefitSize *ep,
                                   guint64 n_experts, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Checks that the KV heads divide by `tp` or `tp` by the KV heads; TRUE when they are unknown. */
gboolean refit_layout_check_kv_heads(const RefitModel *model, const RefitSize *tp, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
