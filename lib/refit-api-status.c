/*
 * Errors of the C API. The problem: the core has a code per kind of mistake and gains more, while
 * the numbers of a public header must never change. Method: a table from the one to the other;
 * texts stay as they are. Also what both kinds of handles share.
 */

#include "lib/refit-api-private.h"

static const char *const names[] = {
    [REFIT_OK] = "ok",
    [REFIT_STATUS_PARSE] = "parse",
    [REFIT_STATUS_INVALID] = "invalid",
    [REFIT_STATUS_OVERFLOW] = "overflow",
    [REFIT_STATUS_INFEASIBLE] = "infeasible",
    [REFIT_STATUS_NOT_SUPPORTED] = "not-supported",
    [REFIT_STATUS_BACKEND] = "backend",
    [REFIT_STATUS_COVERAGE] = "coverage",
    [REFIT_STATUS_LAYOUT] = "layout",
    [REFIT_STATUS_DISAGREE] = "disagree",
    [REFIT_STATUS_MISSING] = "missing",
    [REFIT_STATUS_SPLIT] = "split",
};

const char *refit_status_name(RefitStatus status) {
    return (guint)status < G_N_ELEMENTS(names) ? names[status] : "unknown";
}

const char *refit_library_version(void) {
    return REFIT_API_LIBRARY_VERSION;
}

static RefitStatus status_of(RefitError code) {
    switch (code) {
    case REFIT_ERROR_PARSE:
        return REFIT_STATUS_PARSE;
    case REFIT_ERROR_INVALID:
    case REFIT_ERROR_NAME_COLLISION:
        return REFIT_STATUS_INVALID;
    case REFIT_ERROR_OVERFLOW:
        return REFIT_STATUS_OVERFLOW;
    case REFIT_ERROR_INFEASIBLE:
    case REFIT_ERROR_LIMIT:
        return REFIT_STATUS_INFEASIBLE;
    case REFIT_ERROR_NOT_SUPPORTED:
        return REFIT_STATUS_NOT_SUPPORTED;
    case REFIT_ERROR_BACKEND:
        return REFIT_STATUS_BACKEND;
    case REFIT_ERROR_COVERAGE:
        return REFIT_STATUS_COVERAGE;
    case REFIT_ERROR_MESH_SIZE:
    case REFIT_ERROR_RANK_DUP:
    case REFIT_ERROR_PLACEMENT_COUNT:
    case REFIT_ERROR_DIM_RANGE:
    case REFIT_ERROR_SCALAR_SHARD:
    case REFIT_ERROR_PARTITION_SUM:
    case REFIT_ERROR_PARTITION_COUNT:
        return REFIT_STATUS_LAYOUT;
    case REFIT_ERROR_SHAPE_MISMATCH:
    case REFIT_ERROR_LOCAL_SHAPE:
    case REFIT_ERROR_DEVICE_DUP:
    case REFIT_ERROR_WIRE_SIZE:
        return REFIT_STATUS_DISAGREE;
    case REFIT_ERROR_NAME_MISSING:
    case REFIT_ERROR_NOT_COVERED:
    case REFIT_ERROR_DATA_LOST:
        return REFIT_STATUS_MISSING;
    case REFIT_ERROR_GRANULE_SPLIT:
    case REFIT_ERROR_TILE_SPLIT:
    case REFIT_ERROR_SUBBYTE_SPLIT:
        return REFIT_STATUS_SPLIT;
    }
    return REFIT_STATUS_BACKEND;
}

RefitStatus refit_api_fail(char **message, GError *error) {
    RefitStatus status =
        error->domain == REFIT_ERROR ? status_of((RefitError)error->code) : REFIT_STATUS_BACKEND;

    g_free(*message);
    *message = g_steal_pointer(&error->message);
    g_error_free(error);
    return status;
}

RefitStatus refit_api_refuse(char **message, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    g_free(*message);
    *message = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    return REFIT_STATUS_INVALID;
}

gboolean refit_api_check_size(gsize size, gsize least, const char *what, GError **error) {
    if (size >= least)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "%s: its size is %" G_GSIZE_FORMAT " but must be at least %" G_GSIZE_FORMAT
                "; fill it in with the _INIT macro of its type",
                what, size, least);
    return FALSE;
}

void refit_text_free(char *text) {
    g_free(text);
}
