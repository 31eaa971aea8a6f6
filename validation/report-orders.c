/*
 * Checks of a report that are about order: schedules, rounds of an exchange, slices of a stream,
 * strided buffers, layouts that differ, rows in another order.
 */

#include <string.h>

#include "model/layout/refit-view.h"
#include "validation/refit-progress.h"
#include "model/plan/refit-rounds.h"
#include "validation/refit-staging.h"
#include "validation/report.h"

/* ---- schedules ---- */

/* Number of a name among those seen, from 0. */
static guint number_name(GHashTable *numbers, const char *name) {
    gpointer known = g_hash_table_lookup(numbers, name);

    if (known != NULL)
        return GPOINTER_TO_UINT(known) - 1;
    g_hash_table_insert(numbers, (gpointer)name, GUINT_TO_POINTER(g_hash_table_size(numbers) + 1));
    return g_hash_table_size(numbers) - 1;
}

static gboolean read_operations(const json_t *members, GHashTable *ranks, RefitProgress *progress,
                                GHashTable *operations, GError **error) {
    const char *name;
    json_t *list;

    if (!report_expect_object(members, "members", error))
        return FALSE;
    json_object_foreach((json_t *)members, name, list) {
        g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(guint));
        if (!report_expect_list(list, "members", error))
            return FALSE;
        for (gsize i = 0; i < json_array_size(list); i++) {
            const char *member = json_string_value(json_array_get(list, i));
            if (member == NULL || !g_hash_table_contains(ranks, member))
                return report_fail(error, "members of %s: not a rank of the schedule", name);
            guint number = number_name(ranks, member);
            g_array_append_val(numbers, number);
        }
        guint operation = refit_progress_add_operation(
            progress, (const guint *)(gpointer)numbers->data, numbers->len);
        g_hash_table_insert(operations, (gpointer)name, GUINT_TO_POINTER(operation + 1));
    }
    return TRUE;
}

static gboolean join(RefitProgress *progress, guint rank, const json_t *operation,
                     GHashTable *operations, GError **error) {
    const char *name = json_string_value(operation);
    gpointer number = name != NULL ? g_hash_table_lookup(operations, name) : NULL;

    if (number == NULL)
        return report_fail(error, "a step names an operation without members");
    refit_progress_join(progress, rank, GPOINTER_TO_UINT(number) - 1);
    return TRUE;
}

static gboolean read_steps(const json_t *ranks, GHashTable *numbers, RefitProgress *progress,
                           GHashTable *operations, GError **error) {
    const char *name;
    json_t *steps;

    json_object_foreach((json_t *)ranks, name, steps) {
        guint rank = number_name(numbers, name);
        if (!report_expect_list(steps, "ranks", error))
            return FALSE;
        for (gsize i = 0; i < json_array_size(steps); i++) {
            const json_t *step = json_array_get(steps, i);
            refit_progress_begin_step(progress, rank);
            if (!json_is_array(step)) {
                if (!join(progress, rank, step, operations, error))
                    return FALSE;
                continue;
            }
            for (gsize k = 0; k < json_array_size(step); k++)
                if (!join(progress, rank, json_array_get(step, k), operations, error))
                    return FALSE;
        }
    }
    return TRUE;
}

static int compare_names(gconstpointer a, gconstpointer b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

json_t *report_check_schedule(const json_t *check, GError **error) {
    const json_t *ranks = json_object_get(check, "ranks");
    g_autoptr(GHashTable) numbers = g_hash_table_new(g_str_hash, g_str_equal);
    g_autoptr(GHashTable) operations = g_hash_table_new(g_str_hash, g_str_equal);
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    g_autoptr(RefitProgress) progress = refit_progress_new((guint)json_object_size(ranks));
    const char *name;
    json_t *value;

    if (!report_expect_object(ranks, "ranks", error))
        return NULL;
    json_object_foreach((json_t *)ranks, name, value) {
        number_name(numbers, name);
        g_ptr_array_add(names, (gpointer)name);
    }
    if (!read_operations(json_object_get(check, "members"), numbers, progress, operations, error) ||
        !read_steps(ranks, numbers, progress, operations, error))
        return NULL;
    g_autoptr(RefitProgressResult) outcome = refit_progress_run(progress);
    json_t *result = json_pack("{s:b}", "completes", outcome->finishes);
    if (outcome->finishes)
        return result;
    g_autoptr(GPtrArray) stuck = g_ptr_array_new();
    json_t *list = json_array();
    for (guint i = 0; i < outcome->n_stuck; i++)
        g_ptr_array_add(stuck, g_ptr_array_index(names, outcome->stuck[i].rank));
    g_ptr_array_sort(stuck, compare_names);
    for (guint i = 0; i < stuck->len; i++)
        json_array_append_new(list, json_string(g_ptr_array_index(stuck, i)));
    json_object_set_new(result, "stuck", list);
    return result;
}

json_t *report_check_matching_rounds(const json_t *check, GError **error) {
    const json_t *pairs = json_object_get(check, "pairs");
    g_autoptr(GHashTable) senders = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GHashTable) receivers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GArray) meetings = g_array_new(FALSE, FALSE, sizeof(RefitMeeting));

    if (!report_expect_list(pairs, "pairs", error))
        return NULL;
    for (gsize i = 0; i < json_array_size(pairs); i++) {
        guint ends[2];
        for (guint end = 0; end < G_N_ELEMENTS(ends); end++) {
            json_t *value = json_array_get(json_array_get(pairs, i), end);
            GHashTable *names = end == 0 ? senders : receivers;
            if (!json_is_string(value) && !json_is_integer(value)) {
                report_fail(error, "pairs is not a list of [sender, receiver]");
                return NULL;
            }
            g_autofree char *name =
                json_is_string(value)
                    ? g_strdup(json_string_value(value))
                    : g_strdup_printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
            gboolean known = g_hash_table_contains(names, name);
            ends[end] = number_name(names, known ? name : g_steal_pointer(&name));
        }
        RefitMeeting meeting = {.src = ends[0], .dst = ends[1]};
        g_array_append_val(meetings, meeting);
    }
    guint n_ends = MAX(g_hash_table_size(senders), g_hash_table_size(receivers));
    return report_new_uint(
        refit_rounds_least((const RefitMeeting *)(gpointer)meetings->data, meetings->len, n_ends));
}

/* [name, bytes] entries, one after the other. */
typedef struct {
    guint n;
    const char **names;
    guint64 *bytes, *offsets, total;
} Slices;

static void slices_clear(Slices *slices) {
    g_free(slices->names);
    g_free(slices->bytes);
    g_free(slices->offsets);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Slices, slices_clear)

static gboolean read_slices(const json_t *list, const char *where, Slices *slices, GError **error) {
    guint n = (guint)json_array_size(list);
    g_autofree RefitPackItem *items = g_new0(RefitPackItem, MAX(n, 1));

    *slices = (Slices){.n = n,
                       .names = g_new0(const char *, MAX(n, 1)),
                       .bytes = g_new0(guint64, MAX(n, 1)),
                       .offsets = g_new0(guint64, MAX(n, 1))};
    if (!report_expect_list(list, where, error))
        return FALSE;
    for (guint i = 0; i < n; i++) {
        const json_t *entry = json_array_get(list, i);
        if (!report_get_string(json_array_get(entry, 0), where, &slices->names[i], error) ||
            !report_get_uint(json_array_get(entry, 1), where, G_MAXINT64, &slices->bytes[i], error))
            return FALSE;
        items[i] = (RefitPackItem){slices->bytes[i], 1};
    }
    return refit_staging_pack(items, n, slices->offsets, &slices->total, error);
}

/* What a receiver reads wrongly that slices a stream in another order than it was written. */
json_t *report_check_stream_slices(const json_t *check, GError **error) {
    g_auto(Slices) stream = {0}, meta = {0};
    g_autoptr(GHashTable) written = g_hash_table_new(g_str_hash, g_str_equal); /* 1 + entry */
    g_autoptr(GPtrArray) wrong = g_ptr_array_new();

    if (!read_slices(json_object_get(check, "stream"), "stream", &stream, error) ||
        !read_slices(json_object_get(check, "meta"), "meta", &meta, error))
        return NULL;
    for (guint i = 0; i < stream.n; i++)
        g_hash_table_insert(written, (gpointer)stream.names[i], GUINT_TO_POINTER(i + 1));
    for (guint i = 0; i < meta.n; i++) {
        guint there = GPOINTER_TO_UINT(g_hash_table_lookup(written, meta.names[i]));
        if (there == 0) {
            report_fail(error, "meta: \"%s\" is not in the stream", meta.names[i]);
            return NULL;
        }
        if (stream.offsets[there - 1] != meta.offsets[i] ||
            stream.bytes[there - 1] != meta.bytes[i])
            g_ptr_array_add(wrong, (gpointer)meta.names[i]);
    }
    json_t *result = json_object(), *misread = json_array();
    report_set_uint(result, "bytes", stream.total);
    json_object_set_new(result, "misread", misread);
    for (guint i = 0; i < wrong->len; i++)
        json_array_append_new(misread, json_string(g_ptr_array_index(wrong, i)));
    return result;
}

/* ---- layouts and buffers ---- */

/* Payload of a strided view: what packing it into a dense buffer copies. */
json_t *report_check_strided_view(const json_t *check, GError **error) {
    const json_t *storage = json_object_get(check, "storage");
    const json_t *offset = json_object_get(check, "offset");
    g_autoptr(GArray) stride =
        report_get_uints(json_object_get(check, "stride"), "stride", G_MAXUINT32, error);
    g_autoptr(GArray) runs = g_array_new(FALSE, FALSE, sizeof(RefitRun));
    guint64 shape[REFIT_MAX_DIMS], dense = 1;
    guint n_dims;
    RefitView from = {0}, to = {0};

    if (stride == NULL ||
        !report_get_shape(json_object_get(check, "shape"), "shape", &n_dims, shape, error) ||
        (offset != NULL && !report_get_uint(offset, "offset", G_MAXUINT32, &from.offset, error)))
        return NULL;
    if (stride->len != n_dims) {
        report_fail(error, "stride has %u entries, shape %u", stride->len, n_dims);
        return NULL;
    }
    for (guint d = n_dims; d-- > 0;) {
        from.stride[d] = g_array_index(stride, guint64, d);
        to.stride[d] = dense;
        if (!refit_checked_mul(dense, shape[d], "elements", &dense, error))
            return NULL;
    }
    if (dense > 1000000) {
        report_fail(error, "shape has more than a million elements");
        return NULL;
    }
    g_auto(RefitRegion) whole = refit_region_full(n_dims, shape);
    from.region = to.region = whole;
    refit_view_append_runs(&from, &to, &whole, runs);
    refit_runs_join(runs);
    json_t *payload = json_array();
    for (guint i = 0; i < runs->len; i++) {
        const RefitRun *run = &g_array_index(runs, RefitRun, i);
        for (guint64 k = 0; k < run->length; k++) {
            json_t *value = json_array_get(storage, run->from + k);
            if (value == NULL) {
                json_decref(payload);
                report_fail(error, "the view reaches beyond its storage");
                return NULL;
            }
            json_array_append(payload, value);
        }
    }
    return payload;
}

/* Ranks that no position names hold nothing. */
static gboolean find_local(const RefitSharding *sharding, guint gpu, guint n_dims,
                           const guint64 *shape, RefitRegion *region_out, gboolean *held_out,
                           GError **error) {
    g_autoptr(GError) cause = NULL;
    guint64 buffer[REFIT_MAX_DIMS];

    *held_out = gpu != REPORT_NO_GPU &&
                refit_sharding_local(sharding, 0, gpu, n_dims, shape, region_out, buffer, &cause);
    if (cause == NULL)
        return TRUE;
    g_propagate_error(error, g_steal_pointer(&cause));
    return FALSE;
}

/* Ranks that do not hold the same elements in the same order by both layouts. */
json_t *report_check_layout_diff(const json_t *check, GError **error) {
    g_autoptr(RefitSharding) a = NULL, b = NULL;
    g_autoptr(ReportRanks) ranks = NULL;
    guint64 shape[REFIT_MAX_DIMS];
    guint n_dims;

    if (!report_get_shape(json_object_get(check, "shape"), "shape", &n_dims, shape, error))
        return NULL;
    json_t *sides = json_pack("{s:O?,s:O?}", "src", json_object_get(check, "a"), "dst",
                              json_object_get(check, "b"));
    ranks = sides != NULL ? report_ranks_new(sides, error) : NULL;
    json_decref(sides);
    if (ranks == NULL)
        return NULL;
    a = report_mesh_new(ranks, json_object_get(check, "a"), n_dims, error);
    b = a != NULL ? report_mesh_new(ranks, json_object_get(check, "b"), n_dims, error) : NULL;
    if (b == NULL)
        return NULL;
    json_t *different = json_array();
    for (guint rank = 0; rank < ranks->n_ranks; rank++) {
        g_auto(RefitRegion) one = {0}, two = {0};
        gboolean in_a, in_b;
        if (!find_local(a, ranks->gpu_of[rank], n_dims, shape, &one, &in_a, error) ||
            !find_local(b, ranks->gpu_of[rank], n_dims, shape, &two, &in_b, error)) {
            json_decref(different);
            return NULL;
        }
        gboolean same = in_a == in_b;
        for (guint d = 0; same && in_a && d < n_dims; d++)
            same = refit_interval_list_equal(one.dims[d], two.dims[d]);
        if (!same)
            json_array_append_new(different, json_integer(rank));
    }
    return different;
}

/* Rows [name, start, end] in turn: per name, its intervals by their places in the whole. */
static GArray *read_rows(const json_t *list, const char *where, GHashTable *names, guint64 *n_out,
                         GError **error) {
    g_autoptr(GArray) rows = g_array_new(FALSE, FALSE, sizeof(RefitFusedRows));
    guint64 n = 0;

    if (!report_expect_list(list, where, error))
        return NULL;
    for (gsize i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *name;
        RefitFusedRows item;
        if (!report_get_string(json_array_get(row, 0), where, &name, error) ||
            !report_get_uint(json_array_get(row, 1), where, G_MAXINT64, &item.lo, error) ||
            !report_get_uint(json_array_get(row, 2), where, G_MAXINT64, &item.hi, error))
            return NULL;
        if (item.hi < item.lo || !refit_checked_add(n, item.hi - item.lo, where, &n, NULL)) {
            report_fail(error, "%s has reversed rows", where);
            return NULL;
        }
        item.member = number_name(names, name);
        g_array_append_val(rows, item);
    }
    *n_out = n;
    return g_steal_pointer(&rows);
}

/* Rows at the same place in both orders. */
static guint64 common_places(const GArray *a, const GArray *b) {
    guint64 common = 0, start = 0;

    for (guint i = 0; i < a->len; i++) {
        const RefitFusedRows *one = &g_array_index(a, RefitFusedRows, i);
        guint64 other_start = 0;
        for (guint k = 0; k < b->len; k++) {
            const RefitFusedRows *two = &g_array_index(b, RefitFusedRows, k);
            guint64 lo = MAX(one->lo, two->lo), hi = MIN(one->hi, two->hi);
            if (one->member == two->member && lo < hi &&
                start + (lo - one->lo) == other_start + (lo - two->lo))
                common += hi - lo;
            other_start += two->hi - two->lo;
        }
        start += one->hi - one->lo;
    }
    return common;
}

json_t *report_check_row_order_diff(const json_t *check, GError **error) {
    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
    guint64 n, n_other;
    g_autoptr(GArray) a = read_rows(json_object_get(check, "a"), "a", names, &n, error);
    g_autoptr(GArray) b = NULL;

    if (a == NULL)
        return NULL;
    b = read_rows(json_object_get(check, "b"), "b", names, &n_other, error);
    if (b == NULL)
        return NULL;
    if (n != n_other) {
        report_fail(error, "a has %" G_GUINT64_FORMAT " rows, b %" G_GUINT64_FORMAT, n, n_other);
        return NULL;
    }
    return report_new_uint(n - common_places(a, b));
}
