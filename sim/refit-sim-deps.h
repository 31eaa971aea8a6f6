#pragma once

/* What the messages of a plan wait for, and where to find it. */

#include "model/plan/refit-plan-deps.h"

G_BEGIN_DECLS

#define REFIT_SIM_NONE G_MAXUINT

typedef struct _RefitSimDeps RefitSimDeps;

/* Cost: transfers, deps, and messages x log. `plan` is borrowed. */
RefitSimDeps *refit_sim_deps_new(const RefitPlan *plan);
void refit_sim_deps_free(RefitSimDeps *deps);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitSimDeps, refit_sim_deps_free)

/* refit_plan_deps_get() of the plan. */
const guint *refit_sim_deps_of_pair(const RefitSimDeps *deps, guint pair, guint *n_out);
/* The message of `pair` in `batch`, or REFIT_SIM_NONE. */
guint refit_sim_deps_message(const RefitSimDeps *deps, guint pair, guint batch);
/* All that the pair sends lies in staging memory as it arrived there, so nothing is packed; all
 * that it brings stays in staging memory or in a bucket, so nothing is unpacked. */
gboolean refit_sim_deps_from_staging(const RefitSimDeps *deps, guint pair);
gboolean refit_sim_deps_into_staging(const RefitSimDeps *deps, guint pair);
/*
 * Arrivals: (batch, stage, rank) such that a message of this batch and sender waits for all that
 * the stage brings. Numbered from 0; REFIT_SIM_NONE when nothing waits.
 */
guint refit_sim_deps_n_arrivals(const RefitSimDeps *deps);
guint refit_sim_deps_arrival(const RefitSimDeps *deps, guint batch, guint stage, guint rank);

G_END_DECLS
