/* What an executor reports: names, and the order of events. */

#include "model/predict/refit-executor.h"

const char *refit_event_kind_name(RefitEventKind kind) {
    static const char *const names[REFIT_N_EVENT_KINDS] = {
        [REFIT_EVENT_PACK] = "pack",       [REFIT_EVENT_SEND] = "send",
        [REFIT_EVENT_RECEIVE] = "receive", [REFIT_EVENT_UNPACK] = "unpack",
        [REFIT_EVENT_COPY] = "copy",       [REFIT_EVENT_INSTALL] = "install",
    };

    g_return_val_if_fail((guint)kind < REFIT_N_EVENT_KINDS, "unknown");
    return names[kind];
}

static int compare(guint a, guint b) {
    return (a > b) - (a < b);
}

int refit_event_compare(gconstpointer left, gconstpointer right) {
    const RefitEvent *a = left, *b = right;
    int order;

    if (a->end_s != b->end_s)
        return a->end_s < b->end_s ? -1 : 1;
    order = compare(a->rank, b->rank);
    order = order != 0 ? order : compare(a->stream, b->stream);
    order = order != 0 ? order : compare(a->number, b->number);
    order = order != 0 ? order : compare(a->chunk, b->chunk);
    order = order != 0 ? order : compare(a->kind, b->kind);
    return order != 0 ? order : compare(a->peer, b->peer);
}
