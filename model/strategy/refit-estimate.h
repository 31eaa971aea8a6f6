#pragma once

/*
 * How long a plan takes, without simulating it: what choices between plans of one case are made by.
 */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

/*
 * Seconds from the start until the last rank has what it needs, with the operation, run, pack and
 * unpack terms of the case's profile (none when it has no profile); buckets are not known here. A
 * path through the plan's steps, see refit-estimate.c; no less than the busiest port needs for its
 * bytes. Cost: messages and dependencies.
 */
double refit_plan_estimate_s(const RefitPlan *plan);

G_END_DECLS
