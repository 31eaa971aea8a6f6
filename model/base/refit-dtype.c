/*
 * Element types as one table. Sizes are computed from whole bytes per element, or whole elements
 * per byte, never from bits times elements: that product would overflow for sizes that themselves
 * fit.
 */

#include "model/base/refit-checked.h"
#include "model/base/refit-dtype.h"

static const struct {
    guint bits;
    const char *name;
    const char *key;
} dtypes[] = {
#define X(suffix, n_bits, text, key_text) [REFIT_DTYPE_##suffix] = {n_bits, text, key_text},
    REFIT_DTYPE_MAP(X)
#undef X
};

guint refit_dtype_bits(RefitDtype dtype) {
    g_return_val_if_fail(dtype < REFIT_N_DTYPES, 0);
    return dtypes[dtype].bits;
}

const char *refit_dtype_name(RefitDtype dtype) {
    g_return_val_if_fail(dtype < REFIT_N_DTYPES, "?");
    return dtypes[dtype].name;
}

gboolean refit_dtype_parse(const char *text, RefitDtype *dtype_out, GError **error) {
    for (guint i = 0; i < REFIT_N_DTYPES; i++) {
        if (g_ascii_strcasecmp(text, dtypes[i].name) == 0 ||
            g_ascii_strcasecmp(text, dtypes[i].key) == 0) {
            *dtype_out = (RefitDtype)i;
            return TRUE;
        }
    }

    g_autofree char *excerpt = refit_error_excerpt(text);
    g_autoptr(GString) known = g_string_new(NULL);
    for (guint i = 0; i < REFIT_N_DTYPES; i++) {
        g_string_append_printf(known, "%s%s", i > 0 ? ", " : "", dtypes[i].key);
    }
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "\"%s\" is not a known element type; known are %s", excerpt, known->str);
    return FALSE;
}

gboolean refit_dtype_bytes(RefitDtype dtype, guint64 elements, guint64 *bytes_out, GError **error) {
    g_return_val_if_fail(dtype < REFIT_N_DTYPES, FALSE);
    guint bits = dtypes[dtype].bits;

    if (bits >= 8) {
        return refit_checked_mul(elements, bits / 8, "bytes of packed elements", bytes_out, error);
    }
    guint per_byte = 8 / bits;
    if (elements % per_byte != 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%" G_GUINT64_FORMAT " elements of %s do not end on a byte; cut at a multiple "
                    "of %u elements",
                    elements, dtypes[dtype].name, per_byte);
        return FALSE;
    }
    *bytes_out = elements / per_byte;
    return TRUE;
}
