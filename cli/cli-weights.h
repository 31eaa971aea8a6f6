#pragma once

/*
 * Synthetic weights: contents of parameters in which every element's value follows from its tensor,
 * its logical indices and the number of the run, so that any byte which a refit has put in a wrong
 * place, or has left from an earlier run, shows.
 */

#include "model/layout/refit-view.h"

G_BEGIN_DECLS

/* What stands in padding and, before a refit, in all that a destination holds. */
#define CLI_WEIGHTS_FILLER 0xA5

/* The contents of parameter `parameter` as it must be in run `run`, padding filled: `bytes` takes
 * as many as the parameter has. */
void cli_weights_fill(const RefitModel *model, const RefitRankViews *views, guint parameter,
                      guint run, guint8 *bytes);

/*
 * TRUE when `bytes` are what cli_weights_fill() makes. REFIT_ERROR_COVERAGE naming the parameter,
 * the first byte that differs and the tensor that it belongs to.
 */
gboolean cli_weights_check(const RefitModel *model, const RefitRankViews *views, guint parameter,
                           guint run, const guint8 *bytes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
