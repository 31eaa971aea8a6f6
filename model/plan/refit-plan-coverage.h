#pragma once

/* The geometric half of refit_plan_check: what arrives is what is needed, once. */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

/* `plan` has passed the structural checks. Error: REFIT_ERROR_COVERAGE. */
gboolean refit_plan_check_coverage(const RefitPlan *plan, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
