#pragma once

/*
 * Quantities with units, as written in input files and printed for people.
 *
 * Grammar: decimal number, optional SI or binary prefix, unit. Small `b` is a bit, capital `B` a
 * byte; k M G T P are powers of 1000, Ki Mi Gi Ti Pi of 1024. A bare number other than 0 is refused
 * (which unit was meant?). Never depends on the locale.
 */

#include "model/base/refit-error.h"

G_BEGIN_DECLS

typedef enum {
    REFIT_UNIT_BYTES,       /* 64MiB, 5GB; must be a whole number of bytes */
    REFIT_UNIT_BYTES_PER_S, /* 450GBps or 450GB/s, 400Gbps or 400Gb/s; in bytes per second */
    REFIT_UNIT_SECONDS,     /* 2us, 1.5ms, 3s, 2min */
    REFIT_UNIT_PLAIN,       /* a number without unit, such as a ratio */
} RefitUnit;

/*
 * Parses `text` whole. Values must be finite and not negative. Bytes are exact. Errors:
 * REFIT_ERROR_PARSE quotes the text and gives an example of the expected form;
 * REFIT_ERROR_OVERFLOW when a size is above 2^63 bytes.
 */
gboolean refit_quantity_parse(const char *text, RefitUnit unit, double *value_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Three significant digits and a unit for people: "43.9 GB", "0.843 s", "12.0 us". Caller frees. */
char *refit_format_bytes(guint64 bytes);
char *refit_format_seconds(double seconds);
char *refit_format_bandwidth(double bytes_per_s);

G_END_DECLS
