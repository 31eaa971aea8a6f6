/*
 * Where bytes lie in staging memory, and in how many goes they pass through it.
 *
 * The problem: ranks that each work out their own buckets, windows or offsets disagree as soon as
 * one of them sees other sizes. So the cuts are functions of one list of sizes, greedy in its
 * order: a bucket or window is filled until the next item does not fit. All are linear, except the
 * search for a tensor's allocation, which is binary.
 */

#include "validation/refit-staging.h"

/* ---- one buffer ---- */

gboolean refit_staging_pack(const RefitPackItem *items, guint n, guint64 *offsets_out,
                            guint64 *total_out, GError **error) {
    g_autofree guint64 *offsets = g_new(guint64, MAX(n, 1));
    guint64 end = 0;

    for (guint i = 0; i < n; i++) {
        if (items[i].align == 0) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "item %u has alignment 0; write 1 for any offset", i);
            return FALSE;
        }
        if (!refit_checked_round_up(end, items[i].align, "packed bytes", &offsets[i], error) ||
            !refit_checked_add(offsets[i], items[i].bytes, "packed bytes", &end, error))
            return FALSE;
    }
    for (guint i = 0; i < n; i++)
        offsets_out[i] = offsets[i];
    *total_out = end;
    return TRUE;
}

guint64 refit_staging_rounds(guint64 bytes, guint64 buffer_bytes) {
    g_return_val_if_fail(buffer_bytes > 0, 0);
    return bytes / buffer_bytes + (bytes % buffer_bytes != 0);
}

guint64 refit_staging_share(guint64 buffer_bytes, guint64 parts, guint64 align) {
    guint64 share;

    g_return_val_if_fail(parts > 0 && align > 0, 0);
    share = buffer_bytes / parts;
    return share - share % align;
}

/* ---- buckets ---- */

/* A bucket that is being filled: `used` bytes of bucket `number`. */
typedef struct {
    guint64 number, used;
} OpenBucket;

static void close_bucket(OpenBucket *open) {
    open->number++;
    open->used = 0;
}

static void add_part(GArray *parts, OpenBucket *open, guint item, guint64 from, guint64 bytes) {
    RefitBucketPart part = {(guint)open->number, item, from, bytes, open->used};

    g_array_append_val(parts, part);
    open->used += bytes;
}

RefitBuckets *refit_buckets_new(const guint64 *items, guint n, guint64 bucket_bytes,
                                GError **error) {
    g_autoptr(RefitBuckets) buckets = g_new0(RefitBuckets, 1);
    OpenBucket open = {0};

    buckets->parts = g_array_new(FALSE, FALSE, sizeof(RefitBucketPart));
    if (bucket_bytes == 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "buckets of 0 bytes hold nothing; give them at least 1");
        return NULL;
    }
    for (guint i = 0; i < n; i++) {
        guint64 left = items[i];

        if (!refit_checked_add(buckets->bytes, left, "bytes of all buckets", &buckets->bytes,
                               error))
            return NULL;
        if (left == 0)
            continue;
        if (left > bucket_bytes - open.used && open.used > 0)
            close_bucket(&open);
        if (open.number + left / bucket_bytes >= G_MAXUINT32) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                        "item %u of %" G_GUINT64_FORMAT
                        " bytes needs more than 2^32 - 1 buckets of %" G_GUINT64_FORMAT
                        " bytes; make them larger",
                        i, left, bucket_bytes);
            return NULL;
        }
        for (; left > bucket_bytes; left -= bucket_bytes) {
            add_part(buckets->parts, &open, i, items[i] - left, bucket_bytes);
            close_bucket(&open);
        }
        add_part(buckets->parts, &open, i, items[i] - left, left);
    }
    buckets->n_buckets = (guint)(open.number + (open.used > 0));
    return g_steal_pointer(&buckets);
}

void refit_buckets_free(RefitBuckets *buckets) {
    if (buckets == NULL)
        return;
    g_clear_pointer(&buckets->parts, g_array_unref);
    g_free(buckets);
}

/* ---- windows ---- */

struct _RefitWindows {
    guint n_ranks, n_windows;
    guint64 limit;
    guint64 *used; /* per rank, in the window being filled */
};

RefitWindows *refit_windows_new(guint n_ranks, guint64 limit) {
    RefitWindows *windows = g_new0(RefitWindows, 1);

    windows->n_ranks = n_ranks;
    windows->limit = limit;
    windows->used = g_new0(guint64, MAX(n_ranks, 1));
    return windows;
}

gboolean refit_windows_add(RefitWindows *windows, const guint *ranks, const guint64 *operations,
                           guint n, guint *window_out, GError **error) {
    gboolean fits = windows->n_windows > 0;

    for (guint i = 0; i < n; i++) {
        g_return_val_if_fail(ranks[i] < windows->n_ranks, FALSE);
        if (operations[i] > windows->limit) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                        "one tensor has %" G_GUINT64_FORMAT
                        " operations on rank %u, but a window takes %" G_GUINT64_FORMAT
                        "; cut it into several tensors or raise the limit",
                        operations[i], ranks[i], windows->limit);
            return FALSE;
        }
        fits = fits && operations[i] <= windows->limit - windows->used[ranks[i]];
    }
    if (!fits) {
        windows->n_windows++;
        for (guint rank = 0; rank < windows->n_ranks; rank++)
            windows->used[rank] = 0;
    }
    for (guint i = 0; i < n; i++)
        windows->used[ranks[i]] += operations[i];
    *window_out = windows->n_windows - 1;
    return TRUE;
}

guint refit_windows_count(const RefitWindows *windows) {
    return windows->n_windows;
}

void refit_windows_free(RefitWindows *windows) {
    if (windows == NULL)
        return;
    g_free(windows->used);
    g_free(windows);
}

/* ---- memory ---- */

typedef struct {
    RefitExtent extent;
    guint index;
} IndexedExtent;

static int compare_starts(gconstpointer a, gconstpointer b) {
    const IndexedExtent *left = a, *right = b;

    if (left->extent.start != right->extent.start)
        return left->extent.start < right->extent.start ? -1 : 1;
    return left->extent.bytes < right->extent.bytes ? -1 : left->extent.bytes > right->extent.bytes;
}

/* The allocation that `tensor` lies in, or NULL. `sorted` by start. */
static const IndexedExtent *find_allocation(const GArray *sorted, const RefitExtent *tensor) {
    guint lo = 0, hi = sorted->len;
    const IndexedExtent *last;

    while (lo < hi) { /* first allocation that starts behind the tensor's start */
        guint middle = lo + (hi - lo) / 2;
        if (g_array_index(sorted, IndexedExtent, middle).extent.start <= tensor->start)
            lo = middle + 1;
        else
            hi = middle;
    }
    if (lo == 0)
        return NULL;
    last = &g_array_index(sorted, IndexedExtent, lo - 1);
    if (tensor->start - last->extent.start > last->extent.bytes ||
        tensor->bytes > last->extent.bytes - (tensor->start - last->extent.start))
        return NULL;
    return last;
}

gboolean refit_staging_registrations(const RefitExtent *allocations, guint n_allocations,
                                     const RefitExtent *tensors, guint n_tensors,
                                     gboolean *used_out, guint *n_out, GError **error) {
    g_autoptr(GArray) sorted =
        g_array_sized_new(FALSE, FALSE, sizeof(IndexedExtent), n_allocations);
    g_autofree gboolean *used = g_new0(gboolean, MAX(n_allocations, 1));
    guint n_used = 0;

    for (guint i = 0; i < n_allocations; i++) {
        IndexedExtent item = {allocations[i], i};
        g_array_append_val(sorted, item);
    }
    g_array_sort(sorted, compare_starts);
    for (guint i = 0; i < n_tensors; i++) {
        const IndexedExtent *found = find_allocation(sorted, &tensors[i]);
        if (found == NULL) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "tensor %u, %" G_GUINT64_FORMAT " bytes at %" G_GUINT64_FORMAT
                        ", does not lie inside one allocation; list the one that holds it",
                        i, tensors[i].bytes, tensors[i].start);
            return FALSE;
        }
        n_used += used[found->index] ? 0 : 1;
        used[found->index] = TRUE;
    }
    for (guint i = 0; used_out != NULL && i < n_allocations; i++)
        used_out[i] = used[i];
    *n_out = n_used;
    return TRUE;
}

gboolean refit_staging_gather_bytes(const guint64 *bytes, guint n, guint64 *exact_out,
                                    guint64 *padded_out, GError **error) {
    guint64 exact = 0, largest = 0, padded;

    for (guint i = 0; i < n; i++) {
        largest = MAX(largest, bytes[i]);
        if (!refit_checked_add(exact, bytes[i], "bytes gathered", &exact, error))
            return FALSE;
    }
    if (!refit_checked_mul(largest, n, "bytes of a padded gather", &padded, error))
        return FALSE;
    *exact_out = exact;
    *padded_out = padded;
    return TRUE;
}

double refit_staging_serial_s(guint64 messages, double latency_s, double bytes,
                              double bytes_per_s) {
    return (double)messages * latency_s + (bytes > 0 ? bytes / bytes_per_s : 0);
}
