#pragma once

/*
 * What the framework generators share: the tensor-parallel cut of each role, meshes given by
 * strides over the side's rank order, reading of parallel sizes, and a table of the shardings
 * already made, so that tens of thousands of tensors cost one lookup each.
 *
 * A position is an index into the side's ranks.
 */

#include "refit-layout.h"

G_BEGIN_DECLS

extern const RefitFramework refit_framework_megatron;
extern const RefitFramework refit_framework_fsdp;
extern const RefitFramework refit_framework_vllm;
extern const RefitFramework refit_framework_explicit;

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
/* Number of a placement that refit_layout_even() can give: a key for tables of shardings. */
#define REFIT_N_EVEN_KINDS 4
guint refit_layout_even_kind(const RefitPlacement *placement);
/*
 * A vocabulary of `rows`, padded to `padded` (a multiple of `parts`) and cut evenly; the padding
 * belongs to no tensor. `sizes` has room for `parts` and is used by the placement.
 */
RefitPlacement refit_layout_vocabulary(guint64 rows, guint64 padded, guint parts, guint64 *sizes);

/* One axis of a mesh: index i adds i * stride to the position. */
typedef struct {
    guint size, stride;
    RefitPlacement placement;
} RefitAxis;

/*
 * Adds to `sharding` the mesh of the positions base + sum of index * stride. Axes of size 1 are
 * left out, so that layouts that hold the same elements come out equal.
 */
gboolean refit_layout_add_part(const RefitLayout *layout, RefitSharding *sharding, guint base,
                               const RefitAxis *axes, guint n_axes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* A shared sharding with this one part; NULL on error. */
const RefitSharding *refit_layout_share_part(RefitLayout *layout, guint base, const RefitAxis *axes,
                                             guint n_axes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Reads the optional key `name`, a positive count; absent means `value`. */
gboolean refit_layout_read_size(RefitNode *node, const char *name, guint value, RefitSize *size_out,
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
/* Checks that the model has routed experts when `ep` > 1, and with `even` that `ep` divides them.
 */
gboolean refit_layout_check_experts(const RefitModel *model, const RefitSize *ep, gboolean even,
                                    GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Checks that the KV heads divide by `tp` or `tp` by the KV heads; TRUE when they are unknown. */
gboolean refit_layout_check_kv_heads(const RefitModel *model, const RefitSize *tp, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/*
 * Reads a sequence of numbers and "a-b" texts, each below `limit`, none twice. For messages: `what`
 * is numbered ("GPU") and `owner` has `limit` of them ("the topology"). An array of guint.
 */
GArray *refit_layout_read_ranks(RefitNode *node, guint limit, const char *what, const char *owner,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
