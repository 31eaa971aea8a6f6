#pragma once

/*
 * Arithmetic of staging memory: what every rank must compute alike before it moves anything.
 *
 * Buckets, windows and buffer offsets are decided from sizes alone, in one place, so that both ends
 * of a transfer see the same cuts: ranks that cut on their own, by what they hold themselves, wait
 * for each other or read each other's bytes wrongly. Sizes are bytes in 64 bits and sums are
 * checked; every function is linear in its input unless said.
 */

#include "model/base/refit-checked.h"

G_BEGIN_DECLS

/* ---- one buffer ---- */

typedef struct {
    guint64 bytes;
    guint64 align; /* the offset is a multiple of this: the item size, or one number for all */
} RefitPackItem;

/*
 * Places the items one after the other, each at the next offset that its alignment allows.
 * `offsets_out` has n entries. The total ends with the last byte, without padding behind it.
 * REFIT_ERROR_INVALID for an alignment of 0, REFIT_ERROR_OVERFLOW.
 */
gboolean refit_staging_pack(const RefitPackItem *items, guint n, guint64 *offsets_out,
                            guint64 *total_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Rounds that `bytes` take through a buffer of `buffer_bytes` (at least 1); 0 for no bytes. */
guint64 refit_staging_rounds(guint64 bytes, guint64 buffer_bytes);
/* Bytes for each of `parts` equal shares of a buffer, each a multiple of `align`, rounded down. */
guint64 refit_staging_share(guint64 buffer_bytes, guint64 parts, guint64 align);

/* ---- buckets ---- */

/* Bytes [from, from + bytes) of an item, at offset `at` of a bucket. */
typedef struct {
    guint bucket, item;
    guint64 from, bytes, at;
} RefitBucketPart;

typedef struct {
    guint n_buckets;
    guint64 bytes; /* of all items */
    GArray *parts; /* of RefitBucketPart, in the order of the items */
} RefitBuckets;

/*
 * Cuts items, in their order, into buckets of at most `bucket_bytes`. An item that does not fit in
 * what is left of a bucket starts the next one; one larger than a bucket fills several, and what
 * follows shares its last. Empty items have no part. REFIT_ERROR_INVALID for buckets of 0 bytes,
 * REFIT_ERROR_LIMIT for more than 2^32 - 1 buckets, REFIT_ERROR_OVERFLOW.
 */
RefitBuckets *refit_buckets_new(const guint64 *items, guint n, guint64 bucket_bytes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_buckets_free(RefitBuckets *buckets);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitBuckets, refit_buckets_free)

/* ---- windows ---- */

/*
 * Windows of tensors whose operations are submitted together: the same windows on every rank, no
 * rank with more than `limit` operations in one. A tensor that would exceed the limit on any rank
 * begins the next window, for all.
 */
typedef struct _RefitWindows RefitWindows;
RefitWindows *refit_windows_new(guint n_ranks, guint64 limit);
/*
 * The next tensor: `operations[i]` of them on `ranks[i]`, which are below n_ranks and all
 * different. *window_out takes its window, counted from 0. REFIT_ERROR_LIMIT naming the rank when
 * the tensor alone exceeds the limit; nothing is added then. Cost: the ranks given, and all ranks
 * at each new window.
 */
gboolean refit_windows_add(RefitWindows *windows, const guint *ranks, const guint64 *operations,
                           guint n, guint *window_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;
guint refit_windows_count(const RefitWindows *windows); /* windows begun */
void refit_windows_free(RefitWindows *windows);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitWindows, refit_windows_free)

/* ---- memory ---- */

typedef struct {
    guint64 start, bytes;
} RefitExtent;

/*
 * Allocations that must be registered with the network card so that every tensor is reachable:
 * each once, however many tensors share it. Allocations are disjoint. *n_out takes their number;
 * `used_out`, when not NULL, has n_allocations flags. REFIT_ERROR_INVALID naming the tensor that
 * does not lie inside one allocation. Cost: sorting the allocations, a search per tensor.
 */
gboolean refit_staging_registrations(const RefitExtent *allocations, guint n_allocations,
                                     const RefitExtent *tensors, guint n_tensors,
                                     gboolean *used_out, guint *n_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/*
 * Bytes that arrive when `n` ranks send theirs to one: as they are, and padded to the largest, as a
 * gather of equal parts does. REFIT_ERROR_OVERFLOW.
 */
gboolean refit_staging_gather_bytes(const guint64 *bytes, guint n, guint64 *exact_out,
                                    guint64 *padded_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* Seconds that messages, one after the other, take: messages x latency + bytes / bandwidth. */
double refit_staging_serial_s(guint64 messages, double latency_s, double bytes, double bytes_per_s);

G_END_DECLS
