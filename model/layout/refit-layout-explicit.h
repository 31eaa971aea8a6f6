#pragma once

/*
 * What the files of explicit layouts share: the reading of meshes and placements, and fused
 * parameters.
 */

#include "model/layout/refit-layout-private.h"

G_BEGIN_DECLS

/* What the placements of a rule ask of the tensors that they cut. */
typedef struct {
    guint n_dims;                   /* they have at least so many */
    gboolean inexact;               /* stated sizes or padding must fit each shape */
    guint64 reach[REFIT_MAX_DIMS];  /* stated places lie below this */
    guint64 extent[REFIT_MAX_DIMS]; /* segments sum to this; 0: no segments */
} RefitExplicitNeeds;

/*
 * Reads who holds what: `mesh`, `ranks` and `place` of `node` or of each item of its `parts`, and
 * `padded`. `needs` starts zeroed.
 */
RefitSharding *refit_explicit_read_sharding(const RefitLayout *layout, RefitNode *node,
                                            RefitExplicitNeeds *needs, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Whether `sharding` can cut a tensor of this shape; errors at `node`, naming the tensor. */
gboolean refit_explicit_check_fit(const RefitNode *node, const RefitExplicitNeeds *needs,
                                  const RefitSharding *sharding, const char *name, guint n_dims,
                                  const guint64 *shape, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* Shapes that this side believes in, to be compared with those that follow. */
typedef struct _RefitStatedShapes RefitStatedShapes;
/* Reads `shape` and `local` of a rule; NULL without an error when it has neither. */
gboolean refit_stated_shapes_read(const RefitLayout *layout, RefitNode *node,
                                  RefitStatedShapes **stated_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_stated_shapes_free(RefitStatedShapes *stated);
/* REFIT_ERROR_SHAPE_MISMATCH, REFIT_ERROR_LOCAL_SHAPE; TRUE for NULL. */
gboolean refit_stated_shapes_check(const RefitStatedShapes *stated, const RefitSharding *sharding,
                                   const char *name, guint n_dims, const guint64 *shape,
                                   GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* A rule that interleaves several tensors in one parameter. */
typedef struct _RefitFusedRule RefitFusedRule;
/* Reads `fused`, `blocks` and `parameter`, without the placement. */
RefitFusedRule *refit_fused_rule_read(RefitNode *node, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_fused_rule_free(RefitFusedRule *rule);
/* Whether the tensor is a part of a parameter of this rule; remembers that it is. */
gboolean refit_fused_rule_take(RefitFusedRule *rule, const RefitModel *model, guint tensor);
/*
 * After all tensors were offered: assigns them what `sharding` of the whole parameter leaves of
 * each, and tells the layout of the parameters. `sharding` is one that the layout shares.
 */
gboolean refit_fused_rule_finish(RefitFusedRule *rule, RefitLayout *layout,
                                 const RefitExplicitNeeds *needs, const RefitSharding *sharding,
                                 const RefitStatedShapes *stated, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
