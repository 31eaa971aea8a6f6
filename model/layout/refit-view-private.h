#pragma once

/* What the parts of the view code share: pieces of one rank and the groups that fill parameters. */

#include "model/layout/refit-view.h"

G_BEGIN_DECLS

/* One shard of the rank. */
typedef struct {
    guint index; /* of the tensor */
    const RefitTensor *tensor;
    guint turn; /* place among the slots of its rank: the part of the sharding, or a stated slot */
    const RefitPacking *row;
    guint row_part; /* place among the parts of the parameter */
    gboolean slots; /* its parameter has slots of experts, or there is one per slot */
    gboolean stack; /* with `slots`: its own dim 0 is that of the slots */
    RefitRegion region;
    guint64 buffer[REFIT_MAX_DIMS];
} RefitViewPiece;

/* Pieces that share a parameter, or with '#' in its name one per expert. */
typedef struct {
    char *name;
    GArray *pieces; /* of RefitViewPiece */
} RefitViewGroup;

typedef struct {
    const RefitLayout *layout;
    const RefitModel *model;
    const RefitFramework *framework;
    guint options;
    const guint *fused_of;
    GHashTable *by_name;   /* of groups */
    GHashTable *elsewhere; /* shardings that do not name the rank */
    GPtrArray *groups;
    GArray *parameters; /* of RefitParameter */
    GArray *first;      /* of guint: first tensor of each */
    GArray *views;      /* of RefitView */
    GHashTable *taken;  /* names of parameters */
} RefitViewBuilder;

/* A layout that a program has made is of none: each tensor is a parameter of its own. */
const RefitFramework *refit_view_framework(const RefitLayout *layout);
/* Whether the tensor itself has the experts along dim 0. */
gboolean refit_view_is_stack(const RefitTensor *tensor);
/* The parameters and views of a group. */
gboolean refit_view_group_emit(RefitViewBuilder *builder, const RefitViewGroup *group,
                               GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Those of a fused parameter of stated rows; nothing for one without rows. */
gboolean refit_view_fused_emit(RefitViewBuilder *builder, const RefitFused *fused, guint rank,
                               GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
