#pragma once

/* Shared by the files of the C API (refit.h); not for other modules. */

#include "gpu/executor/refit-gpu.h"
#include "lib/refit.h"
#include "model/case/refit-manifest.h"
#include "model/problem/refit-bound.h"
#include "model/strategy/refit-strategy.h"

G_BEGIN_DECLS

/* What the two sides of a tensor have; owned by the manifest. NULL: not placed. */
typedef struct {
    RefitSharding *sides[REFIT_N_SIDES];
} RefitApiPlaced;

struct _RefitJob {
    char *message;
    char *data_dir, *topology, *profile; /* NULL: unset */
    guint64 staging;
    RefitManifest *manifest;
    GArray *placed;        /* of RefitApiPlaced, by tensor */
    RefitCase *refit_case; /* NULL: description still open */
    RefitProblem *problem; /* NULL: not planned */
    RefitPlan *plan;
    RefitSchedule *schedule;
    gint n_endpoints; /* atomic: open ones */
};

/* Takes `error`, keeps its text as *message and gives its status. */
RefitStatus refit_api_fail(char **message, GError *error);
/* The same for a text; REFIT_STATUS_INVALID. */
RefitStatus refit_api_refuse(char **message, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* Refuses a struct that is older than this library's first; `size` is what it says of itself. */
gboolean refit_api_check_size(gsize size, gsize least, const char *what, GError **error);

G_END_DECLS
