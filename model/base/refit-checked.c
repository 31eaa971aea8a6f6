/*
 * Products and sums of sizes that cannot wrap. GLib's checked operations compile to one multiply or
 * add and a branch on the carry, so they may be used freely in inner loops; only the failing path
 * formats a message.
 */

#include "model/base/refit-checked.h"

gboolean refit_checked_mul(guint64 a, guint64 b, const char *what, guint64 *product_out,
                           GError **error) {
    guint64 product;

    if (!g_uint64_checked_mul(&product, a, b)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                    "%s: %" G_GUINT64_FORMAT " times %" G_GUINT64_FORMAT " does not fit in 64 bits",
                    what, a, b);
        return FALSE;
    }
    *product_out = product;
    return TRUE;
}

gboolean refit_checked_add(guint64 a, guint64 b, const char *what, guint64 *sum_out,
                           GError **error) {
    guint64 sum;

    if (!g_uint64_checked_add(&sum, a, b)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                    "%s: %" G_GUINT64_FORMAT " plus %" G_GUINT64_FORMAT " does not fit in 64 bits",
                    what, a, b);
        return FALSE;
    }
    *sum_out = sum;
    return TRUE;
}

gboolean refit_checked_round_up(guint64 value, guint64 unit, const char *what, guint64 *rounded_out,
                                GError **error) {
    guint64 rest;

    g_return_val_if_fail(unit > 0, FALSE);
    rest = value % unit;
    return refit_checked_add(value, rest == 0 ? 0 : unit - rest, what, rounded_out, error);
}
