/*
 * The checks of a report that are not about a case's shards: sizes and versions here, orders in
 * report-orders.c. Each is answered by the function of the planning core that an executor uses for
 * the same purpose.
 */

#include <math.h>

#include "model/schedule/refit-version.h"
#include "validation/refit-staging.h"
#include "validation/report.h"

#define MAX_LANDINGS 10000000u

static gboolean get(const json_t *check, const char *key, guint64 *value_out, GError **error) {
    return report_get_uint(json_object_get(check, key), key, G_MAXINT64, value_out, error);
}

/* A count that something is divided by. */
static gboolean get_positive(const json_t *check, const char *key, guint64 *value_out,
                             GError **error) {
    if (!get(check, key, value_out, error))
        return FALSE;
    return *value_out > 0 || report_fail(error, "%s is 0", key);
}

/* ---- sizes ---- */

/* Offsets of [name, dtype, count] entries. */
static json_t *check_pack(const json_t *check, GError **error) {
    const json_t *tensors = json_object_get(check, "tensors");
    const json_t *align = json_object_get(check, "align");

    if (!report_expect_list(tensors, "tensors", error))
        return NULL;
    guint n = (guint)json_array_size(tensors);
    g_autofree RefitPackItem *items = g_new0(RefitPackItem, MAX(n, 1));
    g_autofree guint64 *offsets = g_new0(guint64, MAX(n, 1));
    gboolean by_item = g_strcmp0(json_string_value(align), "itemsize") == 0;
    guint64 fixed = 0, total;

    if (!by_item && !report_get_uint(align, "align", G_MAXINT64, &fixed, error))
        return NULL;
    for (guint i = 0; i < n; i++) {
        const json_t *tensor = json_array_get(tensors, i);
        RefitDtype dtype;
        guint64 count;
        if (!report_get_dtype(json_array_get(tensor, 1), "tensors", &dtype, error) ||
            !report_get_uint(json_array_get(tensor, 2), "tensors", G_MAXINT64, &count, error) ||
            !refit_dtype_bytes(dtype, count, &items[i].bytes, error))
            return NULL;
        items[i].align = by_item ? MAX(refit_dtype_bits(dtype) / 8, 1) : fixed;
    }
    if (!refit_staging_pack(items, n, offsets, &total, error))
        return NULL;
    json_t *result = json_object(), *named = json_object();
    json_object_set_new(result, "offsets", named);
    report_set_uint(result, "total", total);
    for (guint i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(json_array_get(tensors, i), 0));
        report_set_uint(named, name != NULL ? name : "", offsets[i]);
    }
    return result;
}

static json_t *check_rounds(const json_t *check, GError **error) {
    guint64 bytes, buffer;

    if (!get(check, "bytes", &bytes, error) || !get_positive(check, "buffer", &buffer, error))
        return NULL;
    return report_new_uint(refit_staging_rounds(bytes, buffer));
}

static json_t *check_buckets(const json_t *check, GError **error) {
    g_autoptr(GArray) sizes =
        report_get_uints(json_object_get(check, "sizes"), "sizes", G_MAXINT64, error);
    guint64 cap;

    if (sizes == NULL || !get(check, "cap", &cap, error))
        return NULL;
    g_autoptr(RefitBuckets) buckets =
        refit_buckets_new((const guint64 *)(gpointer)sizes->data, sizes->len, cap, error);
    if (buckets == NULL)
        return NULL;
    json_t *result = json_object();
    report_set_uint(result, "buckets", buckets->n_buckets);
    report_set_uint(result, "bytes", buckets->bytes);
    return result;
}

/* What 32 bits would make of a value that the checked sum of its halves carries whole. */
static json_t *check_wrap(const json_t *check, GError **error) {
    guint64 value, sum;

    if (!get(check, "value", &value, error) ||
        !refit_checked_add(value / 2, value - value / 2, "the value", &sum, error))
        return NULL;
    if (sum != value) {
        report_fail(error, "the sum of its halves is %" G_GUINT64_FORMAT, sum);
        return NULL;
    }
    gint64 low = (gint64)(sum & G_MAXUINT32);
    return json_pack("{s:I,s:I}", "uint32", (json_int_t)low, "int32",
                     (json_int_t)(low > G_MAXINT32 ? low - (G_GINT64_CONSTANT(1) << 32) : low));
}

static json_t *check_product(const json_t *check, GError **error) {
    g_autoptr(GArray) factors =
        report_get_uints(json_object_get(check, "of"), "of", G_MAXINT64, error);
    guint64 product = 1;

    for (guint i = 0; factors != NULL && i < factors->len; i++)
        if (!refit_checked_mul(product, g_array_index(factors, guint64, i), "product", &product,
                               error))
            return NULL;
    return factors != NULL ? report_new_uint(product) : NULL;
}

static json_t *check_floor_align(const json_t *check, GError **error) {
    guint64 value, parts, align;

    if (!get(check, "value", &value, error) || !get_positive(check, "parts", &parts, error) ||
        !get_positive(check, "align", &align, error))
        return NULL;
    return report_new_uint(refit_staging_share(value, parts, align));
}

static json_t *check_padded_vocab(const json_t *check, GError **error) {
    guint64 vocab, multiple, tp, unit, padded;

    if (!get(check, "vocab", &vocab, error) || !get_positive(check, "multiple", &multiple, error) ||
        !get_positive(check, "tp", &tp, error) ||
        !refit_checked_mul(multiple, tp, "padding", &unit, error) ||
        !refit_checked_round_up(vocab, unit, "padded vocabulary", &padded, error))
        return NULL;
    return report_new_uint(padded);
}

static json_t *check_gather_pad(const json_t *check, GError **error) {
    g_autoptr(GArray) counts =
        report_get_uints(json_object_get(check, "counts"), "counts", G_MAXINT64, error);
    guint64 exact, padded;

    if (counts == NULL || !refit_staging_gather_bytes((const guint64 *)(gpointer)counts->data,
                                                      counts->len, &exact, &padded, error))
        return NULL;
    json_t *result = json_object();
    report_set_uint(result, "real", exact);
    report_set_uint(result, "padded", padded);
    return result;
}

static json_t *check_time_ms(const json_t *check, GError **error) {
    const json_t *messages = json_object_get(check, "messages");
    const json_t *alpha = json_object_get(check, "alpha_s");
    double latency = 0, bytes, rate;
    guint64 n = 0;

    if ((messages != NULL && !get(check, "messages", &n, error)) ||
        (alpha != NULL && !report_get_number(alpha, "alpha_s", &latency, error)) ||
        !report_get_number(json_object_get(check, "bytes"), "bytes", &bytes, error) ||
        !report_get_number(json_object_get(check, "bw"), "bw", &rate, error))
        return NULL;
    double nanoseconds =
        rate > 0 ? round(1e9 * refit_staging_serial_s(n, latency, bytes, rate)) : 0;
    if (rate <= 0 || !isfinite(nanoseconds)) {
        report_fail(error, "bw of %g gives no time", rate);
        return NULL;
    }
    return json_real(nanoseconds / 1e6); /* reports give milliseconds to the nanosecond */
}

static json_t *check_windows(const json_t *check, GError **error) {
    guint64 tensors, operations, cap;
    const guint busiest = 0;
    guint window = 0, per_window = 0;

    if (!report_get_uint(json_object_get(check, "tensors"), "tensors", 10000000, &tensors, error) ||
        !get_positive(check, "ops_per_tensor_busiest_rank", &operations, error) ||
        !get(check, "cap", &cap, error))
        return NULL;
    g_autoptr(RefitWindows) windows = refit_windows_new(1, cap);
    for (guint64 i = 0; i < tensors; i++) {
        if (!refit_windows_add(windows, &busiest, &operations, 1, &window, error))
            return NULL;
        per_window += window == 0 ? 1 : 0;
    }
    /* A window that is not full does not say how many would fit. */
    json_t *result = json_object();
    report_set_uint(result, "tensors_per_window",
                    refit_windows_count(windows) > 1 ? per_window : cap / operations);
    report_set_uint(result, "windows", refit_windows_count(windows));
    return result;
}

/* [[start, bytes], ...] */
static GArray *read_extents(const json_t *list, const char *where, GError **error) {
    g_autoptr(GArray) extents = g_array_new(FALSE, FALSE, sizeof(RefitExtent));

    if (!report_expect_list(list, where, error))
        return NULL;
    for (gsize i = 0; i < json_array_size(list); i++) {
        RefitExtent extent;
        const json_t *pair = json_array_get(list, i);
        if (!report_get_uint(json_array_get(pair, 0), where, G_MAXINT64, &extent.start, error) ||
            !report_get_uint(json_array_get(pair, 1), where, G_MAXINT64, &extent.bytes, error))
            return NULL;
        g_array_append_val(extents, extent);
    }
    return g_steal_pointer(&extents);
}

static json_t *check_registrations(const json_t *check, GError **error) {
    g_autoptr(GArray) allocations =
        read_extents(json_object_get(check, "allocations"), "allocations", error);
    g_autoptr(GArray) tensors = NULL;
    guint n;

    if (allocations == NULL)
        return NULL;
    tensors = read_extents(json_object_get(check, "tensors"), "tensors", error);
    if (tensors == NULL ||
        !refit_staging_registrations((const RefitExtent *)(gpointer)allocations->data,
                                     allocations->len, (const RefitExtent *)(gpointer)tensors->data,
                                     tensors->len, NULL, &n, error))
        return NULL;
    json_t *result = json_object();
    report_set_uint(result, "per_tensor", tensors->len);
    report_set_uint(result, "per_allocation", n);
    return result;
}

/* ---- versions ---- */

/* Chunks land on all ranks in turn until one fails. */
static json_t *check_commit(const json_t *check, GError **error) {
    guint64 n_ranks, chunks, fail_rank, fail_chunk;

    if (!report_get_uint(json_object_get(check, "ranks"), "ranks", REPORT_MAX_RANK, &n_ranks,
                         error) ||
        !report_get_uint(json_object_get(check, "chunks"), "chunks", 1000000, &chunks, error) ||
        !get(check, "fail_rank", &fail_rank, error) ||
        !get(check, "fail_chunk", &fail_chunk, error))
        return NULL;
    if (n_ranks * chunks > MAX_LANDINGS) {
        report_fail(error, "ranks times chunks are more than %u", MAX_LANDINGS);
        return NULL;
    }
    g_autofree guint64 *landings = g_new(guint64, MAX(n_ranks, 1));
    for (guint64 rank = 0; rank < n_ranks; rank++)
        landings[rank] = chunks;
    g_autoptr(RefitVersion) version = refit_version_new((guint)n_ranks, landings);
    for (guint64 chunk = 0; chunk < chunks && chunk <= fail_chunk; chunk++)
        for (guint64 rank = 0; rank < n_ranks; rank++)
            if ((rank != fail_rank || chunk != fail_chunk) &&
                !refit_version_land(version, (guint)rank, error))
                return NULL;
    json_t *dirty = json_array();
    for (guint64 rank = 0; rank < n_ranks; rank++)
        if (refit_version_is_dirty(version, (guint)rank))
            json_array_append_new(dirty, json_integer((json_int_t)rank));
    return json_pack("{s:s,s:o}", "serve_version", refit_serves_name(refit_version_of_all(version)),
                     "dirty_ranks", dirty);
}

/* ---- the table ---- */

static const struct {
    const char *type;
    json_t *(*check)(const json_t *check, GError **error);
    const char *keys; /* besides type and result, separated by blanks */
} checks[] = {
    {"pack", check_pack, "tensors align"},
    {"rounds", check_rounds, "bytes buffer"},
    {"buckets", check_buckets, "sizes cap"},
    {"wrap", check_wrap, "value"},
    {"product", check_product, "of"},
    {"floor_align", check_floor_align, "value parts align"},
    {"padded_vocab", check_padded_vocab, "vocab multiple tp"},
    {"gather_pad", check_gather_pad, "counts"},
    {"time_ms", check_time_ms, "messages alpha_s bytes bw"},
    {"windows", check_windows, "tensors ops_per_tensor_busiest_rank cap"},
    {"registrations", check_registrations, "allocations tensors"},
    {"schedule", report_check_schedule, "ranks members"},
    {"matching_rounds", report_check_matching_rounds, "pairs"},
    {"stream_slices", report_check_stream_slices, "stream meta"},
    {"strided_view", report_check_strided_view, "storage shape stride offset"},
    {"layout_diff", report_check_layout_diff, "shape a b"},
    {"row_order_diff", report_check_row_order_diff, "a b"},
    {"commit", check_commit, "ranks chunks fail_rank fail_chunk"},
};

json_t *report_check_result(const json_t *check, GError **error) {
    const char *type = json_string_value(json_object_get(check, "type"));

    for (guint i = 0; i < G_N_ELEMENTS(checks); i++) {
        if (g_strcmp0(type, checks[i].type) != 0)
            continue;
        g_autofree char *all = g_strconcat("type result ", checks[i].keys, NULL);
        g_auto(GStrv) keys = g_strsplit(all, " ", -1);
        if (!report_check_keys(check, "the check", (const char *const *)keys, error))
            return NULL;
        return checks[i].check(check, error);
    }
    g_autofree char *shown = refit_error_excerpt(type != NULL ? type : "");
    report_fail(error, "\"%s\" is no type of check", shown);
    return NULL;
}
