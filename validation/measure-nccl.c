/*
 * The one place in validation/ that turns NCCL's results into errors. Cost: none.
 */

#include "validation/measure-nccl.h"

#include <string.h>

#include "model/base/refit-error.h"

gboolean measure_nccl(ncclResult_t result, const char *call, GError **error) {
    const char *last;

    if (result == ncclSuccess || result == ncclInProgress)
        return TRUE;
    last = ncclGetLastError(NULL);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%.*s: %s%s%s", (int)strcspn(call, "("),
                call, ncclGetErrorString(result), last != NULL && *last != '\0' ? ": " : "",
                last != NULL ? last : "");
    return FALSE;
}
