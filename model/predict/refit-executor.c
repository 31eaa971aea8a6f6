/* What an executor reports: names, and the order of events. */

#include "model/predict/refit-executor.h"

const char *refit_activity_name(RefitActivity activity) {
    static const char *const names[REFIT_N_ACTIVITIES] = {
        [REFIT_ACTIVITY_NETWORK] = "network", [REFIT_ACTIVITY_NVLINK] = "nvlink",
        [REFIT_ACTIVITY_LOCAL] = "local",     [REFIT_ACTIVITY_PACK] = "pack",
        [REFIT_ACTIVITY_UNPACK] = "unpack",
    };

    g_return_val_if_fail((guint)activity < REFIT_N_ACTIVITIES, "unknown");
    return names[activity];
}

int refit_event_compare(gconstpointer left, gconstpointer right) {
    const RefitEvent *a = left, *b = right;

    if (a->end_s != b->end_s)
        return a->end_s < b->end_s ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->peer != b->peer)
        return a->peer < b->peer ? -1 : 1;
    return (int)a->activity - (int)b->activity;
}
