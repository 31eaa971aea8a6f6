/* Names of what an executor reports. */

#include "refit-executor.h"

const char *refit_activity_name(RefitActivity activity) {
    static const char *const names[REFIT_N_ACTIVITIES] = {
        [REFIT_ACTIVITY_NETWORK] = "network", [REFIT_ACTIVITY_NVLINK] = "nvlink",
        [REFIT_ACTIVITY_LOCAL] = "local",     [REFIT_ACTIVITY_PACK] = "pack",
        [REFIT_ACTIVITY_UNPACK] = "unpack",
    };

    g_return_val_if_fail((guint)activity < REFIT_N_ACTIVITIES, "unknown");
    return names[activity];
}
