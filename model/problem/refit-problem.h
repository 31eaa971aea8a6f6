#pragma once

/*
 * A case made ready for planning: tensors grouped into classes.
 *
 * Layers repeat. Tensors with the same shape, dtype, purpose and shardings on every side form a
 * class; geometry and planning run once per class and hold for each member, so cost follows classes
 * (about a thousand for DeepSeek-V3), not tensors (45,000).
 */

#include "model/case/refit-case.h"

G_BEGIN_DECLS

typedef struct {
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    RefitDtype dtype;
    guint64 elements; /* of one member */
    guint64 bytes;    /* of one member */
    gboolean bulk;    /* moved by the ring in the published hybrid path (FFN projections) */
    guint stage;      /* pipeline stage of the source that holds it */
    guint n_members;
    const guint *members; /* tensor indices of the model, ascending */
    const RefitHolding *source;
    const RefitHolding *destination; /* all pools together */
    const RefitCells *cells;
} RefitClass;

typedef struct {
    const RefitCase *refit_case; /* borrowed; must outlive the problem */
    guint n_ranks;               /* GPUs of the topology */
    guint8 *failed;              /* per rank: 1 when it neither sends nor receives; owned */
    guint n_classes;
    RefitClass *classes;  /* in the order of their first member */
    GPtrArray *holdings;  /* owned, shared between classes */
    GPtrArray *cells;     /* owned, shared between classes */
    GArray *members;      /* owned storage of all member lists */
    guint64 weight_bytes; /* bytes of all tensors that a destination needs */
    guint64 needed_bytes; /* sum over destination ranks of the bytes they need */
} RefitProblem;

/*
 * Ranks that failed hold and need nothing here. Errors: REFIT_ERROR_NOT_COVERED naming tensor and
 * region when a destination needs what no source rank holds, REFIT_ERROR_DATA_LOST when only ranks
 * that failed hold it; those of refit_granules_check() for cuts that a type does not
 * allow, on the wire or in the form that a side holds;
 * REFIT_ERROR_INVALID for a rank beyond the topology; REFIT_ERROR_OVERFLOW; those of the geometry.
 * Tensors that no destination needs are left out.
 */
RefitProblem *refit_problem_new(const RefitCase *refit_case, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_problem_free(RefitProblem *problem);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitProblem, refit_problem_free)

/* Bytes of `elements` elements of the class; exact by construction of the problem. */
guint64 refit_class_bytes(const RefitClass *klass, guint64 elements);

/* TRUE when a contiguous run of `region` starts or ends inside a byte (sub-byte types only). Such a
 * region cannot be sent. */
gboolean refit_class_cuts_byte(const RefitClass *klass, const RefitRegion *region);

/* TRUE for the tensors that the published hybrid path moves by ring: gate, up and down projections
 * of dense and routed-expert FFNs, not shared experts and not MTP. */
gboolean refit_tensor_is_bulk(const RefitTensor *tensor);

G_END_DECLS
