#pragma once

/* What NCCL says, as an error, for the programs of validation/ that call it. */

#include <glib.h>
#include <nccl.h>

G_BEGIN_DECLS

#define MEASURE_NCCL(call, error) measure_nccl((call), #call, (error))

/* TRUE for ncclSuccess, and for ncclInProgress, which is no failure. REFIT_ERROR_BACKEND, with the
 * name of the call. */
gboolean measure_nccl(ncclResult_t result, const char *call, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
