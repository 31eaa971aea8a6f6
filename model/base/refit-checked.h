#pragma once

/*
 * Checked 64-bit size arithmetic. Sizes of trillion-parameter models fit in 64 bits, but shapes
 * come from files, so every product and sum of sizes that an input can reach goes through these.
 */

#include "model/base/refit-error.h"

G_BEGIN_DECLS

/* product_out = a * b; REFIT_ERROR_OVERFLOW naming `what` and both factors when it does not fit. */
gboolean refit_checked_mul(guint64 a, guint64 b, const char *what, guint64 *product_out,
                           GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* sum_out = a + b; REFIT_ERROR_OVERFLOW naming `what` and both terms when it does not fit. */
gboolean refit_checked_add(guint64 a, guint64 b, const char *what, guint64 *sum_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Smallest multiple of `unit` (at least 1) that is not below `value`. REFIT_ERROR_OVERFLOW. */
gboolean refit_checked_round_up(guint64 value, guint64 unit, const char *what, guint64 *rounded_out,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
