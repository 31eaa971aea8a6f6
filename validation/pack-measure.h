#pragma once

/* How fast the kernels of refit-pack.h are, beside plain copies of the same device. */

#include <glib.h>

#include "model/base/refit-json.h"

G_BEGIN_DECLS

typedef struct {
    guint64 bytes;        /* payload of each launch; a multiple of PACK_MEASURE_LONGEST_RUN */
    guint n_times;        /* each is timed so often, after one that is not */
    guint64 shortest_run; /* a power of two, from PACK_MEASURE_SHORTEST_RUN on */
    double limit_s;       /* from one figure to the next: none is begun after that */
} PackMeasure;

enum { PACK_MEASURE_SHORTEST_RUN = 16, PACK_MEASURE_LONGEST_RUN = 1 << 16 };

/*
 * Writes the members of an object: the `copy` of `bytes` contiguous bytes, then `rows`, each for a
 * kernel (pack, unpack, copy), a length of runs, a limit of the grid and a number of regions, and
 * `copies_2d`. Runs lie at twice their length. Takes six times `bytes` of device memory.
 */
gboolean pack_measure(const PackMeasure *measure, RefitJson *json, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
