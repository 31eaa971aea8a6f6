#pragma once

/*
 * Rows of measurements, as refit.measurements/1 of docs/formats.md has them, and the device that
 * they are of: what the programs of validation/ share that time CUDA or NCCL.
 */

#include <glib.h>

#include "model/base/refit-json.h"

G_BEGIN_DECLS

typedef struct {
    double least, median, most;
    guint n;
} MeasureSpread;

/* Of `n` (at least 1) values, which are sorted. */
MeasureSpread measure_spread(double *values, guint n);

/* What a row measures: the unit is part of its keys. */
typedef enum {
    MEASURE_SECONDS,
    MEASURE_BYTES,
    MEASURE_BYTES_PER_S,
    MEASURE_SHARE, /* how many of the times something happened, 0 to 1 */
} MeasureUnit;

/* Begins a row and its parameters, which the caller writes; `what` is its kind. */
void measure_row_begin(RefitJson *json, const char *what);
void measure_row_end(RefitJson *json, MeasureUnit unit, const MeasureSpread *spread);

/* Makes CUDA device 0 that of this thread. FALSE, saying why on stderr, where there is none. */
gboolean measure_find_device(const char *program);
/* Member `device`: facts of CUDA device 0. REFIT_ERROR_BACKEND. */
gboolean measure_write_device(RefitJson *json, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
