#pragma once

/* The geometric half of refit_plan_check: what arrives is what is needed, once. */

#include "refit-plan.h"

G_BEGIN_DECLS

/*
 * Elements in the union of n regions of the same number of dims.
 * Method: sweep over the cuts of the first dim; where several regions meet, sweep the next dim for
 * just those. Cost: sorting the cuts, plus the regions that meet at each.
 */
guint64 refit_union_volume(const RefitRegion *const *regions, guint n);

/* `plan` has passed the structural checks. Error: REFIT_ERROR_COVERAGE. */
gboolean refit_plan_check_coverage(const RefitPlan *plan, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
