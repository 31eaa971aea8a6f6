#pragma once

/*
 * Executor "simgrid": predicts a plan's time with SimGrid's fluid network model (max-min fair
 * sharing of link bandwidth, no packets). See docs/sim.md for the platform and the equations.
 */

#include "model/predict/refit-executor.h"

G_BEGIN_DECLS

extern const RefitExecutor refit_executor_simgrid;

G_END_DECLS
