/*
 * Arithmetic of staging memory: rounding, packed offsets, rounds and shares of a buffer, buckets
 * with items larger than one, windows of operations, registrations, padded gathers, serial times;
 * sizes beyond 32 bits and beyond 64.
 */

#include <string.h>

#include "validation/refit-staging.h"

static void test_round_up(void) {
    g_autoptr(GError) error = NULL;
    guint64 rounded = 1;
    static const guint64 cases[][3] = {{0, 8, 0}, {1, 8, 8}, {8, 8, 8}, {50, 32, 64}, {7, 1, 7}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_assert_true(refit_checked_round_up(cases[i][0], cases[i][1], "rows", &rounded, &error));
        g_assert_cmpuint(rounded, ==, cases[i][2]);
    }
    g_assert_false(refit_checked_round_up(G_MAXUINT64, 2, "rows", &rounded, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW);
    g_assert_cmpuint(rounded, ==, 7);
}

static void test_pack(void) {
    g_autoptr(GError) error = NULL;
    guint64 offsets[3], total;
    /* Three halves, one float, one byte: the float moves to the next multiple of 4. */
    const RefitPackItem by_item[] = {{6, 2}, {4, 4}, {1, 1}};
    g_assert_true(refit_staging_pack(by_item, 3, offsets, &total, &error));
    g_assert_cmpuint(offsets[0], ==, 0);
    g_assert_cmpuint(offsets[1], ==, 8);
    g_assert_cmpuint(offsets[2], ==, 12);
    g_assert_cmpuint(total, ==, 13);
    const RefitPackItem fixed[] = {{6, 256}, {0, 256}, {1, 256}};
    g_assert_true(refit_staging_pack(fixed, 3, offsets, &total, &error));
    g_assert_cmpuint(offsets[1], ==, 256);
    g_assert_cmpuint(offsets[2], ==, 256);
    g_assert_cmpuint(total, ==, 257);
    g_assert_true(refit_staging_pack(NULL, 0, offsets, &total, &error));
    g_assert_cmpuint(total, ==, 0);
}

static void test_pack_errors(void) {
    guint64 offsets[2] = {5, 5}, total = 5;
    const RefitPackItem unaligned[] = {{6, 0}};
    const RefitPackItem large[] = {{G_MAXUINT64 - 2, 1}, {4, 4}};
    const struct {
        const RefitPackItem *items;
        guint n;
        RefitError code;
    } cases[] = {{unaligned, 1, REFIT_ERROR_INVALID}, {large, 2, REFIT_ERROR_OVERFLOW}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(refit_staging_pack(cases[i].items, cases[i].n, offsets, &total, &error));
        g_assert_error(error, REFIT_ERROR, (int)cases[i].code);
        g_assert_cmpuint(total, ==, 5);
        g_assert_cmpuint(offsets[0], ==, 5);
    }
}

static void test_rounds_and_shares(void) {
    g_assert_cmpuint(refit_staging_rounds(2542796800, 2147483648), ==, 2);
    g_assert_cmpuint(refit_staging_rounds(2147483648, 2147483648), ==, 1);
    g_assert_cmpuint(refit_staging_rounds(0, 7), ==, 0);
    g_assert_cmpuint(refit_staging_rounds(G_MAXUINT64, 1), ==, G_MAXUINT64);
    g_assert_cmpuint(refit_staging_share(1000, 3, 16), ==, 320);
    g_assert_cmpuint(refit_staging_share(15, 1, 16), ==, 0);
    g_assert_cmpuint(refit_staging_share(G_GUINT64_CONSTANT(1) << 33, 2, 4096), ==,
                     G_GUINT64_CONSTANT(1) << 32);
}

static const RefitBucketPart *part_of(const RefitBuckets *buckets, guint i) {
    g_assert_cmpuint(i, <, buckets->parts->len);
    return &g_array_index(buckets->parts, RefitBucketPart, i);
}

static void assert_part(const RefitBuckets *buckets, guint i, RefitBucketPart expected) {
    const RefitBucketPart *part = part_of(buckets, i);
    g_assert_cmpuint(part->bucket, ==, expected.bucket);
    g_assert_cmpuint(part->item, ==, expected.item);
    g_assert_cmpuint(part->from, ==, expected.from);
    g_assert_cmpuint(part->bytes, ==, expected.bytes);
    g_assert_cmpuint(part->at, ==, expected.at);
}

static void test_buckets(void) {
    g_autoptr(GError) error = NULL;
    /* 4 does not fit behind 3 in 6 bytes; 15 fills two buckets and shares a third with 3. */
    const guint64 items[] = {3, 4, 0, 15, 3};
    g_autoptr(RefitBuckets) buckets = refit_buckets_new(items, 5, 6, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(buckets->n_buckets, ==, 5);
    g_assert_cmpuint(buckets->bytes, ==, 25);
    g_assert_cmpuint(buckets->parts->len, ==, 6);
    assert_part(buckets, 0, (RefitBucketPart){0, 0, 0, 3, 0});
    assert_part(buckets, 1, (RefitBucketPart){1, 1, 0, 4, 0});
    assert_part(buckets, 2, (RefitBucketPart){2, 3, 0, 6, 0});
    assert_part(buckets, 3, (RefitBucketPart){3, 3, 6, 6, 0});
    assert_part(buckets, 4, (RefitBucketPart){4, 3, 12, 3, 0});
    assert_part(buckets, 5, (RefitBucketPart){4, 4, 0, 3, 3});
}

static void test_buckets_at_their_edges(void) {
    g_autoptr(GError) error = NULL;
    const guint64 exact[] = {6, 12, 6};
    g_autoptr(RefitBuckets) full = refit_buckets_new(exact, 3, 6, &error);
    g_assert_cmpuint(full->n_buckets, ==, 4);
    g_autoptr(RefitBuckets) none = refit_buckets_new(NULL, 0, 6, &error);
    g_assert_cmpuint(none->n_buckets, ==, 0);
    const guint64 empty[] = {0, 0};
    g_autoptr(RefitBuckets) nothing = refit_buckets_new(empty, 2, 6, &error);
    g_assert_cmpuint(nothing->n_buckets + nothing->parts->len, ==, 0);
    const guint64 large[] = {G_GUINT64_CONSTANT(5) << 30};
    g_autoptr(RefitBuckets) wide = refit_buckets_new(large, 1, G_GUINT64_CONSTANT(2) << 30, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(wide->n_buckets, ==, 3);
    g_assert_cmpuint(part_of(wide, 2)->from, ==, G_GUINT64_CONSTANT(4) << 30);
}

/* Every byte of every item once, parts inside their buckets and disjoint there. */
static void test_buckets_hold_every_byte_once(void) {
    for (guint round = 0; round < 200; round++) {
        g_autoptr(GError) error = NULL;
        guint n = (guint)g_test_rand_int_range(0, 12);
        guint64 cap = (guint64)g_test_rand_int_range(1, 20), items[12], filled[12] = {0};
        for (guint i = 0; i < n; i++)
            items[i] = (guint64)g_test_rand_int_range(0, 50);
        g_autoptr(RefitBuckets) buckets = refit_buckets_new(items, n, cap, &error);
        g_assert_no_error(error);
        guint bucket = 0;
        guint64 used = 0;
        for (guint i = 0; i < buckets->parts->len; i++) {
            const RefitBucketPart *part = part_of(buckets, i);
            used = part->bucket == bucket ? used : 0;
            g_assert_cmpuint(part->bucket, <=, bucket + 1);
            bucket = part->bucket;
            g_assert_cmpuint(part->at, ==, used);
            g_assert_cmpuint(part->from, ==, filled[part->item]);
            g_assert_cmpuint(part->bytes, >, 0);
            filled[part->item] += part->bytes;
            used += part->bytes;
            g_assert_cmpuint(used, <=, cap);
        }
        for (guint i = 0; i < n; i++)
            g_assert_cmpuint(filled[i], ==, items[i]);
        g_assert_cmpuint(buckets->n_buckets, ==, buckets->parts->len > 0 ? bucket + 1 : 0);
    }
}

static void test_bucket_errors(void) {
    static const guint64 one[] = {1}, huge[] = {G_MAXUINT64}, sum[] = {G_MAXUINT64, 1};
    static const struct {
        const guint64 *items;
        guint n;
        guint64 cap;
        RefitError code;
    } cases[] = {{one, 1, 0, REFIT_ERROR_INVALID},
                 {huge, 1, 1, REFIT_ERROR_LIMIT},
                 {sum, 2, G_MAXUINT64, REFIT_ERROR_OVERFLOW}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_null(refit_buckets_new(cases[i].items, cases[i].n, cases[i].cap, &error));
        g_assert_error(error, REFIT_ERROR, (int)cases[i].code);
    }
}

static void test_windows(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitWindows) windows = refit_windows_new(3, 4);
    guint window;
    /* Rank 2 is full after two tensors; the third begins a window for ranks 0 and 1 as well. */
    static const guint ranks[] = {0, 2}, other[] = {1};
    static const guint64 two[] = {1, 2}, one[] = {1}, four[] = {4};
    static const guint expected[] = {0, 0, 1};
    g_assert_cmpuint(refit_windows_count(windows), ==, 0);
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
        g_assert_true(refit_windows_add(windows, ranks, two, 2, &window, &error));
        g_assert_cmpuint(window, ==, expected[i]);
    }
    g_assert_true(refit_windows_add(windows, other, four, 1, &window, &error));
    g_assert_cmpuint(window, ==, 1);
    g_assert_true(refit_windows_add(windows, other, one, 1, &window, &error));
    g_assert_cmpuint(window, ==, 2);
    g_assert_true(refit_windows_add(windows, NULL, NULL, 0, &window, &error));
    g_assert_cmpuint(window, ==, 2);
    g_assert_cmpuint(refit_windows_count(windows), ==, 3);
}

static void test_window_limit(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitWindows) windows = refit_windows_new(2, 256);
    static const guint ranks[] = {0, 1};
    static const guint64 fits[] = {256, 1}, many[] = {1, 257};
    guint window = 9;
    g_assert_true(refit_windows_add(windows, ranks, fits, 2, &window, &error));
    g_assert_false(refit_windows_add(windows, ranks, many, 2, &window, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT);
    g_assert_nonnull(strstr(error->message, "257 operations on rank 1"));
    g_assert_cmpuint(refit_windows_count(windows), ==, 1);
    g_assert_cmpuint(window, ==, 0);
}

static void test_registrations(void) {
    g_autoptr(GError) error = NULL;
    static const RefitExtent allocations[] = {{8192, 4096}, {0, 4096}, {20000, 1}};
    static const RefitExtent tensors[] = {{0, 64},    {64, 64},    {128, 3968},
                                          {8192, 32}, {9000, 100}, {12288, 0}};
    gboolean used[3];
    guint n;
    g_assert_true(refit_staging_registrations(allocations, 3, tensors, 6, used, &n, &error));
    g_assert_cmpuint(n, ==, 2);
    g_assert_true(used[0]);
    g_assert_true(used[1]);
    g_assert_false(used[2]);
    static const RefitExtent bad[] = {{4000, 97}, {5000, 1}, {12288, 1}, {G_MAXUINT64, 1}};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) cause = NULL;
        n = 7;
        g_assert_false(refit_staging_registrations(allocations, 3, &bad[i], 1, NULL, &n, &cause));
        g_assert_error(cause, REFIT_ERROR, REFIT_ERROR_INVALID);
        g_assert_cmpuint(n, ==, 7);
    }
    g_assert_true(refit_staging_registrations(NULL, 0, NULL, 0, NULL, &n, &error));
    g_assert_cmpuint(n, ==, 0);
}

static void test_gather(void) {
    g_autoptr(GError) error = NULL;
    static const guint64 few[] = {0, 0, 512, 0, 0, 64};
    guint64 exact, padded;
    g_assert_true(refit_staging_gather_bytes(few, 6, &exact, &padded, &error));
    g_assert_cmpuint(exact, ==, 576);
    g_assert_cmpuint(padded, ==, 3072);
    g_assert_true(refit_staging_gather_bytes(NULL, 0, &exact, &padded, &error));
    g_assert_cmpuint(exact + padded, ==, 0);
    static const guint64 large[] = {G_MAXUINT64 / 2, 0, 0};
    g_assert_false(refit_staging_gather_bytes(large, 3, &exact, &padded, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW);
}

static void test_serial_time(void) {
    g_assert_cmpfloat_with_epsilon(refit_staging_serial_s(1000, 20e-6, 32000, 25e9), 0.02000128,
                                   1e-15);
    g_assert_cmpfloat_with_epsilon(refit_staging_serial_s(0, 20e-6, 1e11, 25e9), 4, 1e-12);
    g_assert_cmpfloat(refit_staging_serial_s(0, 1, 0, 0), ==, 0);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/staging/rounding-up-does-not-wrap", test_round_up);
    g_test_add_func("/staging/offsets-keep-the-alignment-of-each-item", test_pack);
    g_test_add_func("/staging/bad-items-leave-offsets-alone", test_pack_errors);
    g_test_add_func("/staging/rounds-and-shares-cover-a-buffer", test_rounds_and_shares);
    g_test_add_func("/staging/large-items-fill-several-buckets", test_buckets);
    g_test_add_func("/staging/buckets-may-be-exactly-full", test_buckets_at_their_edges);
    g_test_add_func("/staging/buckets-hold-every-byte-once", test_buckets_hold_every_byte_once);
    g_test_add_func("/staging/impossible-buckets-are-refused", test_bucket_errors);
    g_test_add_func("/staging/windows-begin-for-all-ranks-at-once", test_windows);
    g_test_add_func("/staging/a-tensor-beyond-the-window-is-refused", test_window_limit);
    g_test_add_func("/staging/allocations-are-registered-once", test_registrations);
    g_test_add_func("/staging/padding-makes-gathers-larger", test_gather);
    g_test_add_func("/staging/times-add-latency-and-bytes", test_serial_time);
    return g_test_run();
}
