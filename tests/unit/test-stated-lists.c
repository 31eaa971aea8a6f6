/*
 * Stated lists: cuts by places in any order, and the lists that fused and packed parameters need.
 *
 * Covered: selection of local places, by hand and for every order of a small list; lists out of
 * order, shared, with gaps and left out, cut again in local order; segments cut, replicated and
 * both; rows of a fused parameter over chunks that cut groups; impossible rows; sizes of 64 bits.
 */

#include "sharding-helpers.h"

/* ---- selection ---- */

static void test_select(void) {
    /* Stored as 20 21 22 23 10 11 12 13. */
    g_autoptr(RefitIntervalList) list = list_of("20:24 10:14");
    g_autoptr(RefitIntervalList) middle = list_of("2:6");
    g_autoptr(RefitIntervalList) turned = list_of("6:8 0:1");
    g_autoptr(RefitIntervalList) beyond = list_of("7:100");
    g_autoptr(RefitIntervalList) none = list_of("");
    g_autoptr(RefitIntervalList) a = refit_interval_list_select(list, middle);
    g_autoptr(RefitIntervalList) b = refit_interval_list_select(list, turned);
    g_autoptr(RefitIntervalList) c = refit_interval_list_select(list, beyond);
    g_autoptr(RefitIntervalList) d = refit_interval_list_select(list, none);
    g_autoptr(RefitIntervalList) e = refit_interval_list_select(none, middle);

    assert_list(a, "22:24 10:12");
    assert_list(b, "12:14 20:21");
    assert_list(c, "13:14");
    assert_list(d, "");
    assert_list(e, "");
    g_assert_cmpuint(b->extent, ==, 3);
    g_assert_false(refit_interval_list_is_packed(list));
    g_assert_true(refit_interval_list_is_packed(middle));
    g_assert_cmpuint(refit_interval_list_local_extent(list), ==, 8);
    g_assert_cmpuint(refit_interval_list_local_extent(none), ==, 0);
}

/* Index at local place `place` of `list`, or -1. */
static int index_at(const RefitIntervalList *list, guint place) {
    for (guint i = 0; i < list->n; i++) {
        const RefitInterval *item = &list->items[i];

        if (place >= item->at && place < item->at + (item->hi - item->lo))
            return (int)(item->lo + (place - item->at));
    }
    return -1;
}

/* Permutation number `code` of four single indices out of 0 .. 5 at places out of 0 .. 4. */
static RefitIntervalList *scrambled_list(guint code, guint mask) {
    RefitInterval items[4];
    guint places[] = {0, 1, 2, 3, 4};
    guint n = 0;

    for (guint i = 0; i < 4; i++) {
        guint j = i + code % (5 - i);
        guint place = places[j];

        code /= 5 - i;
        places[j] = places[i];
        places[i] = place;
        if (mask >> i & 1) {
            guint index = i < 2 ? i : i + 2; /* 0 1 4 5: neighbours and a gap */
            items[n++] = (RefitInterval){.lo = index, .hi = index + 1, .at = place};
        }
    }
    return refit_interval_list_new(items, n, NULL);
}

static void test_every_selection(void) {
    guint n_kept = 0;

    for (guint code = 0; code < 120 * 120; code++) {
        g_autoptr(RefitIntervalList) list = scrambled_list(code / 120, 15);
        g_autoptr(RefitIntervalList) places = scrambled_list(code % 120, 1 + code % 15);
        g_autoptr(RefitIntervalList) kept = refit_interval_list_select(list, places);
        guint n = 0;

        for (guint to = 0; to < 6; to++) {
            int place = index_at(places, to);
            int expected = place >= 0 ? index_at(list, (guint)place) : -1;

            g_assert_cmpint(index_at(kept, to), ==, expected);
            n += expected >= 0;
        }
        g_assert_cmpuint(kept->extent, ==, n);
        for (guint i = 1; i < kept->n; i++)
            g_assert_cmpuint(kept->items[i - 1].hi, <=, kept->items[i].lo);
        n_kept += n;
    }
    g_assert_cmpuint(n_kept, >, 10000);
}

/* ---- lists ---- */

static void test_lists(void) {
    RefitIntervalList *lists[] = {list_of("6:7 0:2"), list_of("6:7"), list_of(""),
                                  list_of("0:2 6:7")};
    const RefitPlacement alone[] = {listed(0, lists, 4)};
    g_autoptr(RefitSharding) sharding = sharding_of(1, (const guint[]){4}, alone);

    for (guint i = 0; i < 4; i++)
        refit_interval_list_unref(lists[i]); /* the sharding has its own references */
    /* 3 to 5 and 7 are nowhere; ranks 0 and 3 hold one region in different order. */
    assert_held(sharding, 1, (const guint64[]){8}, "[0:2+6:7] 0 3; [6:7] 1");
    assert_local(sharding, 0, 8, "6:7 0:2", 3);
    assert_local(sharding, 2, 8, "", 0);
    assert_local(sharding, 3, 8, "0:2 6:7", 3);
    /* A shorter tensor has fewer of the places. */
    assert_held(sharding, 1, (const guint64[]){6}, "[0:2] 0 3");
}

/* A second cut takes places of the buffer, not indices in ascending order. */
static void test_lists_are_cut_in_local_order(void) {
    RefitIntervalList *lists[] = {list_of("6:7 0:2"), list_of("3:5 @4 5:6")};
    const RefitPlacement then_chunk[] = {listed(0, lists, 2), chunked(0, 1)};
    RefitPlacement then_balanced[] = {listed(0, lists, 2), chunked(0, 1)};
    RefitPlacement then_strided[] = {listed(0, lists, 2), strided(0, 2, 1)};
    const guint grid[] = {2, 2};

    then_balanced[1].split = REFIT_SPLIT_BALANCED;
    g_autoptr(RefitSharding) chunks = sharding_of(2, grid, then_chunk);
    g_autoptr(RefitSharding) balanced = sharding_of(2, grid, then_balanced);
    g_autoptr(RefitSharding) each = sharding_of(2, grid, then_strided);

    for (guint i = 0; i < 2; i++)
        refit_interval_list_unref(lists[i]);
    /* Buffers 6 0 1 and 3 4 _ _ 5: two and one, three and two places. */
    assert_held(chunks, 1, (const guint64[]){8}, "[0:1+6:7] 0; [1:2] 1; [3:5] 2; [5:6] 3");
    assert_local(chunks, 0, 8, "6:7 0:1", 2);
    assert_local(chunks, 3, 8, "@1 5:6", 2);
    assert_held(balanced, 1, (const guint64[]){8}, "[0:1+6:7] 0; [1:2] 1; [3:5] 2; [5:6] 3");
    /* 6 0 | 1: 6 and 1, then 0. 3 4 _ | _ 5: 3 4 _, then _ 5 without its first. */
    assert_held(each, 1, (const guint64[]){8}, "[0:1] 1; [1:2+6:7] 0; [3:5] 2; [5:6] 3");
    assert_local(each, 0, 8, "6:7 1:2", 2);
}

static void test_segments(void) {
    /* Eight query heads, four keys, two gates that all ranks hold. */
    const RefitSegment segments[] = {{8, 4}, {4, 2}, {2, 1}, {0, 1}};
    RefitIntervalList **lists = refit_lists_of_segments(segments, 4, 4);
    const RefitPlacement placements[] = {listed(0, lists, 4)};
    g_autoptr(RefitSharding) sharding = sharding_of(1, (const guint[]){4}, placements);

    assert_list(lists[0], "0:2 8:10 12:14");
    assert_list(lists[1], "2:4 8:10 12:14");
    assert_list(lists[2], "4:6 10:14");
    assert_list(lists[3], "6:8 10:14");
    refit_lists_free(lists, 4);
    refit_lists_free(NULL, 4);
    assert_held(sharding, 1, (const guint64[]){14},
                "[0:2+8:10+12:14] 0; [2:4+8:10+12:14] 1; [4:6+10:14] 2; [6:8+10:14] 3");
    assert_local(sharding, 1, 14, "2:4 8:10 12:14", 6);
}

static void test_uneven_segments(void) {
    const RefitSegment segments[] = {{5, 3}, {BIG, 2}};
    RefitIntervalList **lists = refit_lists_of_segments(segments, 2, 3);

    assert_list(lists[0], "0:2 5:2305843009213693957");
    assert_list(lists[1], "2:4 5:2305843009213693957");
    assert_list(lists[2], "4:5 2305843009213693957:4611686018427387909");
    refit_lists_free(lists, 3);
}

/* ---- fused parameters ---- */

static RefitIntervalList **member_lists(const RefitFusedRows *rows, guint n_rows, guint member,
                                        guint parts) {
    g_autoptr(GError) error = NULL;
    RefitIntervalList **lists = refit_lists_of_member(rows, n_rows, member, parts, &error);

    g_assert_no_error(error);
    return lists;
}

/* Two KV groups of q q q q q q q q k k v v over eight ranks: three raw rows each. */
static void test_fused_raw_rows(void) {
    const RefitFusedRows rows[] = {{0, 0, 8},  {1, 0, 2}, {2, 0, 2},
                                   {0, 8, 16}, {1, 2, 4}, {2, 2, 4}};
    static const char *const expected[3][8] = {
        {"0:3", "3:6", "6:8", "", "8:11", "11:14", "14:16", ""},
        {"", "", "0:1", "1:2", "", "", "2:3", "3:4"},
        {"", "", "", "0:2", "", "", "", "2:4"},
    };

    for (guint member = 0; member < 3; member++) {
        RefitIntervalList **lists = member_lists(rows, 6, member, 8);

        for (guint j = 0; j < 8; j++)
            assert_list(lists[j], expected[member][j]);
        refit_lists_free(lists, 8);
    }
}

static void test_fused_blocks(void) {
    /* Blocks of two rows of gate and up in turn, and two rows of padding at the end. */
    const RefitFusedRows rows[] = {{0, 0, 2}, {1, 0, 2}, {0, 2, 4}, {1, 2, 4}, {9, 0, 2}};
    RefitIntervalList **two = member_lists(rows, 5, 0, 2);
    RefitIntervalList **three = member_lists(rows, 5, 1, 3);
    RefitIntervalList **none = member_lists(rows, 5, 5, 2);
    /* Rows of a member may come in any order: the buffer keeps it. */
    const RefitFusedRows turned[] = {{0, 4, 6}, {1, 0, 1}, {0, 0, 4}};
    RefitIntervalList **whole = member_lists(turned, 3, 0, 1);
    RefitIntervalList **more = member_lists(NULL, 0, 0, 2);

    assert_list(two[0], "0:3");
    assert_list(two[1], "3:4");
    assert_list(three[0], "0:2");
    assert_list(three[1], "2:4");
    assert_list(three[2], "");
    assert_list(none[0], "");
    assert_list(whole[0], "4:6 0:4");
    assert_list(more[1], "");
    refit_lists_free(two, 2);
    refit_lists_free(three, 3);
    refit_lists_free(none, 2);
    refit_lists_free(whole, 1);
    refit_lists_free(more, 2);
}

static void assert_rows_fail(const RefitFusedRows *rows, guint n_rows, guint parts, RefitError code,
                             const char *words) {
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_lists_of_member(rows, n_rows, 0, parts, &error));
    g_assert_error(error, REFIT_ERROR, (int)code);
    g_assert_nonnull(strstr(error->message, words));
}

static void test_fused_errors(void) {
    const RefitFusedRows reversed[] = {{3, 5, 4}};
    const RefitFusedRows wrapping[] = {{0, 0, G_MAXUINT64}, {1, 0, 1}};
    const RefitFusedRows repeated[] = {{1, 0, 4}, {0, 0, 2}, {0, 1, 3}};
    const RefitFusedRows large[] = {{0, 0, BIG}, {1, 7, 7}, {0, BIG, 2 * BIG}, {1, 0, BIG}};
    RefitIntervalList **apart = member_lists(repeated, 3, 0, 4);
    RefitIntervalList **thirds = member_lists(large, 4, 1, 3);

    assert_rows_fail(reversed, 1, 2, REFIT_ERROR_INVALID, "rows [5, 4) of member 3 are reversed");
    assert_rows_fail(wrapping, 2, 2, REFIT_ERROR_OVERFLOW, "rows of a fused parameter");
    assert_rows_fail(repeated, 3, 2, REFIT_ERROR_INVALID, "overlap");
    /* On different ranks the same row is a copy. */
    assert_list(apart[2], "0:2");
    assert_list(apart[3], "1:3");
    assert_list(thirds[1], "");
    assert_list(thirds[2], "0:4611686018427387904");
    refit_lists_free(apart, 4);
    refit_lists_free(thirds, 3);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/geometry/select/places-follow-the-local-order", test_select);
    g_test_add_func("/geometry/select/every-order-agrees-with-single-places", test_every_selection);
    g_test_add_func("/geometry/lists/places-may-be-shared-turned-and-left-out", test_lists);
    g_test_add_func("/geometry/lists/later-cuts-act-in-local-order",
                    test_lists_are_cut_in_local_order);
    g_test_add_func("/geometry/lists/segments-are-cut-each-on-their-own", test_segments);
    g_test_add_func("/geometry/lists/segments-may-be-uneven", test_uneven_segments);
    g_test_add_func("/geometry/fused/raw-rows-cut-groups", test_fused_raw_rows);
    g_test_add_func("/geometry/fused/blocks-alternate-and-padding-is-nobodys", test_fused_blocks);
    g_test_add_func("/geometry/fused/impossible-rows-are-refused", test_fused_errors);
    return g_test_run();
}
