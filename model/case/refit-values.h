#pragma once

/*
 * Tensors whose numbers differ between the sides of a case: an engine that holds -exp(x) in place
 * of the hub's x computes it as it loads. A plain copy from a side that holds x would install wrong
 * weights without a word, so such a case can be planned and predicted, but not executed.
 */

#include "model/case/refit-case.h"

G_BEGIN_DECLS

/* One kind of such tensors, of the source and one destination. */
typedef struct {
    guint n_tensors;
    guint tensor;                     /* the first */
    guint pool;                       /* of the destinations */
    const char *source, *destination; /* what they hold in place of x; static */
} RefitValuesGap;

/* The first kind, of all its tensors; FALSE when both sides hold the same numbers everywhere. */
gboolean refit_values_find_gap(const RefitCase *refit_case, RefitValuesGap *gap_out);
/* REFIT_ERROR_NOT_SUPPORTED, with a way out, when there is a gap: before execution. */
gboolean refit_values_check(const RefitCase *refit_case, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
