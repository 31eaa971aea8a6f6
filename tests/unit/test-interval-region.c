/*
 * Interval lists and regions.
 *
 * Covered: building (order, merging, local places, errors), sharing by reference, comparison of
 * indices across differently broken lists, intersections, slices, near-equal parts; every pair of
 * index sets over 7 indices against bit masks; regions: full, copy, volume, empty, 0-d, equality,
 * order, hash, intersection, common, containment, stripes, runs (every product region of a 3 x 4
 * tensor against a walk over its elements), text; sizes of 2^60 elements.
 */

#include "model/geometry/refit-geometry.h"

#include <string.h>

#define N_INDICES 7

static RefitIntervalList *list_of(const RefitInterval *items, guint n) {
    g_autoptr(GError) error = NULL;
    RefitIntervalList *list = refit_interval_list_new(items, n, &error);

    g_assert_no_error(error);
    return list;
}

/* The indices whose bit is set, local places counting up. */
static RefitIntervalList *list_of_mask(guint mask) {
    RefitInterval items[32];
    guint n = 0;

    for (guint index = 0; index < 32; index++) {
        if (mask >> index & 1) {
            items[n] = (RefitInterval){.lo = index, .hi = index + 1, .at = n};
            n++;
        }
    }
    return list_of(items, n);
}

static guint mask_of_list(const RefitIntervalList *list) {
    guint mask = 0;

    for (guint i = 0; i < list->n; i++) {
        for (guint64 index = list->items[i].lo; index < list->items[i].hi; index++)
            mask |= 1u << index;
    }
    return mask;
}

/* Local places count 0, 1, ... and the list is as short as it can be. */
static void assert_packed(const RefitIntervalList *list) {
    guint64 at = 0;

    for (guint i = 0; i < list->n; i++) {
        g_assert_cmpuint(list->items[i].at, ==, at);
        g_assert_cmpuint(list->items[i].lo, <, list->items[i].hi);
        if (i > 0)
            g_assert_cmpuint(list->items[i - 1].hi, <, list->items[i].lo);
        at += list->items[i].hi - list->items[i].lo;
    }
    g_assert_cmpuint(list->extent, ==, at);
}

static void assert_item(const RefitIntervalList *list, guint i, guint64 lo, guint64 hi,
                        guint64 at) {
    g_assert_cmpuint(i, <, list->n);
    g_assert_cmpuint(list->items[i].lo, ==, lo);
    g_assert_cmpuint(list->items[i].hi, ==, hi);
    g_assert_cmpuint(list->items[i].at, ==, at);
}

static void test_new_sorts(void) {
    const RefitInterval items[] = {{8, 10, 0}, {3, 3, 9}, {0, 2, 2}, {4, 5, 4}};
    g_autoptr(RefitIntervalList) list = list_of(items, 4);

    g_assert_cmpuint(list->n, ==, 3);
    g_assert_cmpuint(list->extent, ==, 5);
    assert_item(list, 0, 0, 2, 2);
    assert_item(list, 1, 4, 5, 4);
    assert_item(list, 2, 8, 10, 0);
}

static void test_new_merges(void) {
    const RefitInterval items[] = {{4, 6, 2}, {2, 4, 0}, {6, 8, 9}};
    g_autoptr(RefitIntervalList) list = list_of(items, 3);

    /* [2,4) and [4,6) are neighbours in both senses, [6,8) lies elsewhere locally. */
    g_assert_cmpuint(list->n, ==, 2);
    assert_item(list, 0, 2, 6, 0);
    assert_item(list, 1, 6, 8, 9);
}

static void test_new_empty(void) {
    const RefitInterval items[] = {{5, 5, 1}};
    g_autoptr(RefitIntervalList) dropped = list_of(items, 1);
    g_autoptr(RefitIntervalList) none = list_of(NULL, 0);
    g_autoptr(RefitIntervalList) range = refit_interval_list_range(7, 7);

    g_assert_cmpuint(dropped->n + none->n + range->n, ==, 0);
    g_assert_cmpuint(dropped->extent + none->extent + range->extent, ==, 0);
    g_assert_true(refit_interval_list_equal(dropped, range));
    g_assert_true(refit_interval_list_same_indices(none, range));
}

static void assert_new_fails(const RefitInterval *items, guint n, const char *words) {
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_interval_list_new(items, n, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_nonnull(strstr(error->message, words));
}

static void test_new_errors(void) {
    const RefitInterval overlapping[] = {{4, 9, 0}, {0, 5, 5}};
    const RefitInterval twice[] = {{4, 9, 0}, {4, 9, 5}};
    const RefitInterval reversed[] = {{0, 1, 0}, {7, 6, 1}};

    assert_new_fails(overlapping, 2, "[0, 5) and [4, 9) overlap");
    assert_new_fails(twice, 2, "overlap");
    assert_new_fails(reversed, 2, "[7, 6) is reversed");
}

static void test_broken_differently(void) {
    const RefitInterval broken[] = {{0, 2, 5}, {2, 4, 0}, {6, 7, 2}};
    const RefitInterval plain[] = {{0, 4, 0}, {6, 7, 4}};
    g_autoptr(RefitIntervalList) a = list_of(broken, 3);
    g_autoptr(RefitIntervalList) b = list_of(plain, 2);
    RefitRegion x = {.n_dims = 1, .dims = {a}};
    RefitRegion y = {.n_dims = 1, .dims = {b}};

    g_assert_cmpuint(a->n, ==, 3);
    g_assert_true(refit_interval_list_same_indices(a, b));
    g_assert_false(refit_interval_list_equal(a, b));
    g_assert_cmpint(refit_interval_list_compare(a, b), ==, 0);
    g_assert_true(refit_region_equal(&x, &y));
    g_assert_cmpint(refit_region_compare(&x, &y), ==, 0);
    g_assert_cmpuint(refit_region_hash(&x), ==, refit_region_hash(&y));
}

static void test_equal_looks_at_places(void) {
    const RefitInterval first[] = {{0, 2, 0}};
    const RefitInterval second[] = {{0, 2, 4}};
    g_autoptr(RefitIntervalList) a = list_of(first, 1);
    g_autoptr(RefitIntervalList) b = list_of(second, 1);
    g_autoptr(RefitIntervalList) c = refit_interval_list_range(0, 2);
    g_autoptr(RefitIntervalList) d = refit_interval_list_range(0, 3);

    g_assert_false(refit_interval_list_equal(a, b));
    g_assert_true(refit_interval_list_equal(a, c));
    g_assert_false(refit_interval_list_equal(c, d));
}

static void test_sharing(void) {
    g_autoptr(RefitIntervalList) whole = refit_interval_list_range(0, 8);
    g_autoptr(RefitIntervalList) inner = refit_interval_list_range(2, 4);
    g_autoptr(RefitIntervalList) strided = list_of_mask(0x33);
    g_autoptr(RefitIntervalList) same = refit_interval_list_ref(whole);
    g_autoptr(RefitIntervalList) a = refit_interval_list_intersect(whole, inner);
    g_autoptr(RefitIntervalList) b = refit_interval_list_intersect(inner, whole);
    g_autoptr(RefitIntervalList) c = refit_interval_list_slice(strided, 0, 4);
    g_autoptr(RefitIntervalList) d = refit_interval_list_intersect(strided, strided);

    g_assert_true(same == whole);
    g_assert_true(a == inner && b == inner);
    g_assert_true(c == strided && d == strided);
    refit_interval_list_unref(NULL);
}

/* A list with other local places must not be returned as a result that counts from 0. */
static void test_results_are_packed(void) {
    const RefitInterval items[] = {{0, 2, 6}, {4, 6, 0}};
    const RefitInterval moved[] = {{2, 4, 9}};
    g_autoptr(RefitIntervalList) list = list_of(items, 2);
    g_autoptr(RefitIntervalList) one = list_of(moved, 1);
    g_autoptr(RefitIntervalList) whole = refit_interval_list_range(0, 8);
    g_autoptr(RefitIntervalList) a = refit_interval_list_intersect(list, list);
    g_autoptr(RefitIntervalList) b = refit_interval_list_intersect(list, whole);
    g_autoptr(RefitIntervalList) c = refit_interval_list_slice(list, 0, 4);
    g_autoptr(RefitIntervalList) d = refit_interval_list_intersect(one, whole);
    g_autoptr(RefitIntervalList) e = refit_interval_list_intersect(whole, one);

    assert_packed(a);
    assert_packed(b);
    assert_packed(c);
    assert_packed(d);
    assert_packed(e);
    assert_item(a, 1, 4, 6, 2);
    assert_item(d, 0, 2, 4, 0);
    g_assert_true(refit_interval_list_equal(a, b) && refit_interval_list_equal(a, c));
    g_assert_true(refit_interval_list_equal(d, e));
}

/* Order by hand: the sequence of (first, past last) of the runs, as words in a dictionary. */
static int compare_masks(guint a, guint b) {
    for (guint index = 0; index <= N_INDICES; index++) {
        guint a_run = a >> index & ~(a << 1 >> index) & 1;
        guint b_run = b >> index & ~(b << 1 >> index) & 1;
        guint a_end = index, b_end = index;

        if (a_run != b_run) {
            /* The run that starts here is earlier, unless the other list is a prefix. */
            if (a_run)
                return (b >> index) == 0 ? 1 : -1;
            return (a >> index) == 0 ? -1 : 1;
        }
        if (!a_run)
            continue;
        while (a >> a_end & 1)
            a_end++;
        while (b >> b_end & 1)
            b_end++;
        if (a_end != b_end)
            return a_end < b_end ? -1 : 1;
    }
    return 0;
}

static void test_every_pair_of_sets(void) {
    RefitIntervalList *lists[1 << N_INDICES];
    guint64 n = 0;

    for (guint a = 0; a < G_N_ELEMENTS(lists); a++)
        lists[a] = list_of_mask(a);
    for (guint a = 0; a < G_N_ELEMENTS(lists); a++) {
        assert_packed(lists[a]);
        for (guint b = 0; b < G_N_ELEMENTS(lists); b++) {
            g_autoptr(RefitIntervalList) both = refit_interval_list_intersect(lists[a], lists[b]);
            int order = refit_interval_list_compare(lists[a], lists[b]);

            g_assert_cmpuint(mask_of_list(both), ==, a & b);
            assert_packed(both);
            g_assert_cmpuint(refit_interval_list_common(lists[a], lists[b]), ==, both->extent);
            g_assert_cmpint(order, ==, compare_masks(a, b));
            g_assert_true(refit_interval_list_same_indices(lists[a], lists[b]) == (a == b));
            g_assert_true(refit_interval_list_equal(lists[a], lists[b]) == (a == b));
            n++;
        }
    }
    g_test_message("%" G_GUINT64_FORMAT " pairs of index sets", n);
    g_assert_cmpuint(n, ==, 16384);
    for (guint a = 0; a < G_N_ELEMENTS(lists); a++)
        refit_interval_list_unref(lists[a]);
}

static void test_every_slice(void) {
    guint64 n = 0;

    for (guint mask = 0; mask < 1u << N_INDICES; mask++) {
        g_autoptr(RefitIntervalList) list = list_of_mask(mask);

        for (guint from = 0; from <= list->extent; from++) {
            for (guint to = from; to <= list->extent; to++) {
                g_autoptr(RefitIntervalList) slice = refit_interval_list_slice(list, from, to);
                guint expected = 0;
                guint position = 0;

                for (guint index = 0; index < N_INDICES; index++) {
                    if ((mask >> index & 1) == 0)
                        continue;
                    if (position >= from && position < to)
                        expected |= 1u << index;
                    position++;
                }
                g_assert_cmpuint(mask_of_list(slice), ==, expected);
                assert_packed(slice);
                n++;
            }
        }
    }
    g_assert_cmpuint(n, >, 1000);
}

static void test_every_part(void) {
    for (guint mask = 0; mask < 1u << N_INDICES; mask++) {
        g_autoptr(RefitIntervalList) list = list_of_mask(mask);

        for (guint count = 1; count <= 9; count++) {
            guint seen = 0;
            guint64 last = G_MAXUINT64;

            for (guint i = 0; i < count; i++) {
                g_autoptr(RefitIntervalList) part = refit_interval_list_part(list, count, 1, i);

                g_assert_cmpuint(seen & mask_of_list(part), ==, 0);
                seen |= mask_of_list(part);
                g_assert_cmpuint(part->extent, <=, last);
                g_assert_cmpuint(part->extent, >=, list->extent / count);
                g_assert_cmpuint(part->extent, <=, list->extent / count + 1);
                last = part->extent;
            }
            g_assert_cmpuint(seen, ==, mask);
        }
    }
}

/* 40 indices with a hole: parts begin at multiples of 8 as long as there are five of these. */
static void test_coarse_parts(void) {
    static const guint64 borders[][10] = {{0, 40},
                                          {0, 24, 40},
                                          {0, 16, 32, 40},
                                          {0, 16, 24, 32, 40},
                                          {0, 8, 16, 24, 32, 40},
                                          {0, 7, 14, 21, 28, 34, 40}};
    const RefitInterval items[] = {{0, 11, 0}, {20, 49, 11}};
    g_autoptr(RefitIntervalList) list = list_of(items, 2);

    for (guint count = 1; count <= G_N_ELEMENTS(borders); count++)
        for (guint i = 0; i < count; i++) {
            g_autoptr(RefitIntervalList) part = refit_interval_list_part(list, count, 8, i);
            g_autoptr(RefitIntervalList) expected =
                refit_interval_list_slice(list, borders[count - 1][i], borders[count - 1][i + 1]);

            g_assert_true(refit_interval_list_equal(part, expected));
        }
    /* The last part is what is left: 29 are 8, 8, 8 and 5. */
    g_autoptr(RefitIntervalList) short_list = refit_interval_list_slice(list, 11, 40);
    g_autoptr(RefitIntervalList) last = refit_interval_list_part(short_list, 3, 8, 2);
    g_assert_cmpuint(last->extent, ==, 5);
}

static void test_next_run(void) {
    const RefitInterval items[] = {{1, 2, 7}, {2, 5, 0}, {8, 9, 3}};
    g_autoptr(RefitIntervalList) list = list_of(items, 3);
    guint position = 0;
    guint64 lo, hi;

    g_assert_true(refit_interval_list_next_run(list, &position, &lo, &hi));
    g_assert_cmpuint(lo, ==, 1);
    g_assert_cmpuint(hi, ==, 5);
    g_assert_true(refit_interval_list_next_run(list, &position, &lo, &hi));
    g_assert_cmpuint(lo, ==, 8);
    g_assert_cmpuint(hi, ==, 9);
    g_assert_false(refit_interval_list_next_run(list, &position, &lo, &hi));
}

/* ---- regions ---- */

static RefitRegion region_2d(guint rows, guint columns) {
    RefitRegion region = {.n_dims = 2};

    region.dims[0] = list_of_mask(rows);
    region.dims[1] = list_of_mask(columns);
    return region;
}

static void test_header_example(void) {
    /* [8, 6], rows 0-1 and 4-5, columns 3-5 */
    g_auto(RefitRegion) region = region_2d(0x33, 0x38);
    g_autofree char *text = refit_region_to_string(&region);

    g_assert_cmpuint(refit_region_volume(&region), ==, 12);
    assert_item(region.dims[0], 0, 0, 2, 0);
    assert_item(region.dims[0], 1, 4, 6, 2);
    assert_item(region.dims[1], 0, 3, 6, 0);
    g_assert_cmpstr(text, ==, "[0:2+4:6, 3:6]");
}

static void test_zero_dims(void) {
    g_auto(RefitRegion) region = refit_region_full(0, NULL);
    g_auto(RefitRegion) copy = refit_region_copy(&region);
    g_auto(RefitRegion) both = refit_region_intersect(&region, &copy);
    g_auto(RefitRegion) first = refit_region_stripe(&region, 3, 1, 0);
    g_auto(RefitRegion) second = refit_region_stripe(&region, 3, 1, 1);
    g_autofree char *text = refit_region_to_string(&region);

    g_assert_cmpuint(refit_region_volume(&region), ==, 1);
    g_assert_false(refit_region_is_empty(&region));
    g_assert_true(refit_region_equal(&region, &both));
    g_assert_cmpuint(refit_region_common(&region, &copy), ==, 1);
    g_assert_true(refit_region_contains(&region, &copy));
    g_assert_true(refit_region_equal(&region, &first));
    g_assert_true(refit_region_is_empty(&second));
    g_assert_false(refit_region_equal(&region, &second));
    g_assert_cmpint(refit_region_compare(&region, &second), <, 0);
    g_assert_cmpint(refit_region_compare(&second, &region), >, 0);
    g_assert_cmpuint(refit_region_runs(&region, NULL), ==, 1);
    g_assert_cmpstr(text, ==, "[]");
    refit_region_clear(NULL);
}

static void test_empty_region(void) {
    const guint64 shape[] = {4, 0, 3};
    g_auto(RefitRegion) region = refit_region_full(3, shape);
    g_auto(RefitRegion) a = region_2d(3, 3);
    g_auto(RefitRegion) b = region_2d(12, 3);
    g_auto(RefitRegion) both = refit_region_intersect(&a, &b);
    g_autofree char *text = refit_region_to_string(&region);

    g_assert_cmpuint(refit_region_volume(&region), ==, 0);
    g_assert_true(refit_region_is_empty(&region));
    g_assert_cmpuint(refit_region_runs(&region, shape), ==, 0);
    g_assert_cmpstr(text, ==, "[0:4, 0:0, 0:3]");
    g_assert_true(refit_region_is_empty(&both));
    g_assert_cmpuint(both.dims[0]->n, ==, 0);
    g_assert_cmpuint(refit_region_common(&a, &b), ==, 0);
    g_assert_true(refit_region_contains(&a, &both));
    g_assert_false(refit_region_contains(&both, &a));
}

static void test_order_and_hash(void) {
    g_auto(RefitRegion) a = region_2d(3, 5);
    g_auto(RefitRegion) b = region_2d(3, 9);
    g_auto(RefitRegion) c = region_2d(6, 1);
    g_auto(RefitRegion) d = region_2d(5, 3);

    g_assert_cmpint(refit_region_compare(&a, &b), <, 0);
    g_assert_cmpint(refit_region_compare(&b, &c), <, 0);
    g_assert_cmpint(refit_region_compare(&c, &a), >, 0);
    g_assert_false(refit_region_equal(&a, &b));
    /* The same lists in other dims are another region. */
    g_assert_cmpuint(refit_region_hash(&a), !=, refit_region_hash(&d));
    g_assert_cmpuint(refit_region_hash(&a), !=, refit_region_hash(&b));
}

static void test_contains(void) {
    g_auto(RefitRegion) outer = region_2d(0x3f, 0x33);
    g_auto(RefitRegion) inner = region_2d(0x21, 0x31);
    g_auto(RefitRegion) beside = region_2d(0x21, 0x35);

    g_assert_true(refit_region_contains(&outer, &inner));
    g_assert_false(refit_region_contains(&inner, &outer));
    g_assert_false(refit_region_contains(&outer, &beside));
    g_assert_cmpuint(refit_region_common(&outer, &beside), ==, 2 * 3);
}

static void test_stripes(void) {
    /* 2 rows: cut columns when more than 2 stripes are asked, the longest dim when none is enough.
     */
    for (guint count = 1; count <= 8; count++) {
        g_auto(RefitRegion) region = region_2d(0x05, 0x5b);
        guint cut = count <= 2 ? 0 : 1;
        guint64 sum = 0;

        for (guint i = 0; i < count; i++) {
            g_auto(RefitRegion) stripe = refit_region_stripe(&region, count, 1, i);
            guint64 each = region.dims[cut]->extent / count;

            g_assert_true(refit_region_contains(&region, &stripe));
            g_assert_true(stripe.dims[1 - cut] == region.dims[1 - cut]);
            g_assert_cmpuint(stripe.dims[cut]->extent, >=, each);
            g_assert_cmpuint(stripe.dims[cut]->extent, <=, each + 1);
            sum += refit_region_volume(&stripe);
            for (guint j = 0; j < i; j++) {
                g_auto(RefitRegion) other = refit_region_stripe(&region, count, 1, j);

                g_assert_cmpuint(refit_region_common(&stripe, &other), ==, 0);
            }
        }
        g_assert_cmpuint(sum, ==, refit_region_volume(&region));
    }
}

static void test_every_region_runs(void) {
    const guint64 shape[] = {3, 4};
    guint n = 0;

    for (guint rows = 0; rows < 8; rows++) {
        for (guint columns = 0; columns < 16; columns++) {
            g_auto(RefitRegion) region = region_2d(rows, columns);
            gboolean before = FALSE;
            guint expected = 0;

            for (guint e = 0; e < 12; e++) {
                gboolean in = (rows >> e / 4 & 1) && (columns >> e % 4 & 1);

                expected += in && !before;
                before = in;
            }
            g_assert_cmpuint(refit_region_runs(&region, shape), ==, expected);
            n++;
        }
    }
    g_assert_cmpuint(n, ==, 128);
}

static void test_large_sizes(void) {
    const guint64 shape[] = {G_GUINT64_CONSTANT(1) << 40, G_GUINT64_CONSTANT(1) << 20};
    g_auto(RefitRegion) full = refit_region_full(2, shape);
    g_auto(RefitRegion) last = refit_region_stripe(&full, 3, 1, 2);
    g_auto(RefitRegion) columns = refit_region_copy(&full);
    g_autofree char *text = refit_region_to_string(&last);

    refit_interval_list_unref(columns.dims[1]);
    columns.dims[1] = refit_interval_list_range(1, 3);
    g_assert_cmpuint(refit_region_volume(&full), ==, G_GUINT64_CONSTANT(1) << 60);
    /* 2^40 = 3 * 366503875925 + 1: the first stripe is one longer. */
    g_assert_cmpstr(text, ==, "[733007751851:1099511627776, 0:1048576]");
    g_assert_cmpuint(refit_region_common(&full, &last), ==, G_GUINT64_CONSTANT(366503875925) << 20);
    g_assert_cmpuint(refit_region_runs(&full, shape), ==, 1);
    g_assert_cmpuint(refit_region_runs(&last, shape), ==, 1);
    g_assert_cmpuint(refit_region_runs(&columns, shape), ==, G_GUINT64_CONSTANT(1) << 40);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/geometry/interval/new-sorts-and-drops-empty-intervals", test_new_sorts);
    g_test_add_func("/geometry/interval/new-merges-what-is-adjacent-in-both-senses",
                    test_new_merges);
    g_test_add_func("/geometry/interval/an-empty-list-has-no-items", test_new_empty);
    g_test_add_func("/geometry/interval/new-refuses-overlap-and-reversal", test_new_errors);
    g_test_add_func("/geometry/interval/comparison-ignores-how-indices-are-broken",
                    test_broken_differently);
    g_test_add_func("/geometry/interval/equal-looks-at-local-places", test_equal_looks_at_places);
    g_test_add_func("/geometry/interval/results-equal-to-an-operand-are-shared", test_sharing);
    g_test_add_func("/geometry/interval/results-count-local-places-from-zero",
                    test_results_are_packed);
    g_test_add_func("/geometry/interval/every-pair-of-index-sets-agrees-with-bit-masks",
                    test_every_pair_of_sets);
    g_test_add_func("/geometry/interval/every-slice-agrees-with-counting", test_every_slice);
    g_test_add_func("/geometry/interval/parts-are-near-equal-and-complete", test_every_part);
    g_test_add_func("/geometry/interval/parts-begin-at-multiples-where-there-are-enough",
                    test_coarse_parts);
    g_test_add_func("/geometry/interval/runs-join-neighbouring-indices", test_next_run);
    g_test_add_func("/geometry/region/rows-and-columns-multiply", test_header_example);
    g_test_add_func("/geometry/region/a-0-d-region-is-one-element", test_zero_dims);
    g_test_add_func("/geometry/region/an-empty-dim-empties-the-region", test_empty_region);
    g_test_add_func("/geometry/region/order-and-hash-follow-the-dims", test_order_and_hash);
    g_test_add_func("/geometry/region/contains-needs-every-dim", test_contains);
    g_test_add_func("/geometry/region/stripes-are-near-equal-disjoint-and-complete", test_stripes);
    g_test_add_func("/geometry/region/runs-agree-with-a-walk-over-the-elements",
                    test_every_region_runs);
    g_test_add_func("/geometry/region/sizes-have-64-bits", test_large_sizes);
    return g_test_run();
}
