/*
 * Rounds of an exchange: permutations of an all-to-all, the limit of peers on both sides, islands
 * that do not wait for each other, the same rank sending and receiving, gaps; and how many peers go
 * together, by sums of rounds in lock step worked out by hand: four, eight, all, colours, and no
 * more than a turn may have. A checker of its own counts what each rank does in each round.
 */

#include "model/plan/refit-rounds.h"

#include <string.h>

/* Most messages that any rank sends or receives in one round. */
static guint busiest(const RefitMeeting *meetings, const guint *rounds, guint n, guint n_ranks,
                     guint n_rounds) {
    g_autofree guint *sent = g_new0(guint, (gsize)n_ranks * n_rounds);
    g_autofree guint *received = g_new0(guint, (gsize)n_ranks * n_rounds);
    guint most = 0;

    for (guint m = 0; m < n; m++) {
        g_assert_cmpuint(rounds[m], <, n_rounds);
        guint out = ++sent[meetings[m].src * n_rounds + rounds[m]];
        guint in = ++received[meetings[m].dst * n_rounds + rounds[m]];
        most = MAX(most, MAX(out, in));
    }
    return most;
}

/* Everyone of [0, n_senders) meets everyone of [first, first + n_receivers), itself excepted. */
static RefitMeeting *all_to_all(guint n_senders, guint first, guint n_receivers, guint *n_out) {
    RefitMeeting *meetings = g_new(RefitMeeting, (gsize)n_senders * n_receivers);
    guint n = 0;

    for (guint s = 0; s < n_senders; s++)
        for (guint r = first; r < first + n_receivers; r++)
            if (s != r)
                meetings[n++] = (RefitMeeting){.src = s, .dst = r};
    *n_out = n;
    return meetings;
}

static void test_permutations(void) {
    guint n, rounds[64];
    g_autofree RefitMeeting *meetings = all_to_all(8, 8, 8, &n);

    g_assert_cmpuint(refit_rounds_assign(meetings, n, 16, 1, rounds), ==, 8);
    g_assert_cmpuint(busiest(meetings, rounds, n, 16, 8), ==, 1);
    /* Sender 3 starts with receiver 3 and goes on to the next one. */
    for (guint i = 0; i < 8; i++)
        g_assert_cmpuint(rounds[3 * 8 + (3 + i) % 8], ==, i);
}

static void test_peers(void) {
    static const guint sizes[][2] = {{1, 9}, {9, 1}, {4, 6}, {6, 4}, {5, 7}, {16, 16}, {3, 64}};

    for (guint i = 0; i < G_N_ELEMENTS(sizes); i++) {
        for (guint peers = 1; peers <= 5; peers++) {
            guint n, n_rounds, more = MAX(sizes[i][0], sizes[i][1]);
            g_autofree RefitMeeting *meetings =
                all_to_all(sizes[i][0], sizes[i][0], sizes[i][1], &n);
            g_autofree guint *rounds = g_new(guint, n);

            n_rounds = refit_rounds_assign(meetings, n, sizes[i][0] + sizes[i][1], peers, rounds);
            g_assert_cmpuint(n_rounds, ==, (more + peers - 1) / peers);
            g_assert_cmpuint(busiest(meetings, rounds, n, sizes[i][0] + sizes[i][1], n_rounds), <=,
                             peers);
        }
    }
}

/* Among 4 ranks there are 3 rounds, in each of which everyone sends and receives once. */
static void test_exchange(void) {
    guint n, rounds[12];
    g_autofree RefitMeeting *meetings = all_to_all(4, 0, 4, &n);

    g_assert_cmpuint(n, ==, 12);
    g_assert_cmpuint(refit_rounds_assign(meetings, n, 4, 1, rounds), ==, 3);
    for (guint m = 0; m < n; m++)
        g_assert_cmpuint(rounds[m], ==, (meetings[m].dst + 4 - meetings[m].src) % 4 - 1);
}

/* Two domains of 3: as many rounds as for one, not one after the other. */
static void test_islands(void) {
    RefitMeeting meetings[12];
    guint rounds[12], n = 0;

    for (guint domain = 0; domain < 2; domain++)
        for (guint s = 0; s < 3; s++)
            for (guint r = 0; r < 3; r++)
                if (s != r)
                    meetings[n++] = (RefitMeeting){.src = 10 * domain + s, .dst = 10 * domain + r};
    g_assert_cmpuint(refit_rounds_assign(meetings, n, 20, 1, rounds), ==, 2);
    for (guint m = 0; m < 6; m++)
        g_assert_cmpuint(rounds[m], ==, rounds[m + 6]);
}

/* 0 and 8 of 16 ranks swap, all shifts but one unused: one round, both directions in it. */
static void test_gaps(void) {
    const RefitMeeting meetings[] = {{.src = 0, .dst = 8}, {.src = 8, .dst = 0}};
    guint rounds[2];

    g_assert_cmpuint(refit_rounds_assign(meetings, 2, 16, 1, rounds), ==, 1);
    g_assert_cmpuint(rounds[0], ==, 0);
    g_assert_cmpuint(rounds[1], ==, 0);
}

/* A ring over 5 ranks with a long hop: everyone sends and receives once, so one round. */
static void test_ring(void) {
    const RefitMeeting meetings[] = {{.src = 0, .dst = 1},
                                     {.src = 1, .dst = 4},
                                     {.src = 2, .dst = 0},
                                     {.src = 3, .dst = 2},
                                     {.src = 4, .dst = 3}};
    guint rounds[5];

    g_assert_cmpuint(refit_rounds_assign(meetings, 5, 5, 1, rounds), ==, 1);
}

static void test_empty(void) {
    g_assert_cmpuint(refit_rounds_assign(NULL, 0, 5, 1, NULL), ==, 0);
}

/* ---- how many peers ---- */

/*
 * Rounds with as many peers as fit. Checks that ranks keep to the limit of operations and that all
 * rounds are used; *busiest_out: most messages of a rank in one round.
 */
static guint assign(const RefitMeeting *meetings, guint n, guint n_ranks, guint *rounds,
                    guint *busiest_out) {
    guint n_rounds = refit_rounds_assign(meetings, n, n_ranks, 0, rounds);
    g_autofree guint *used = g_new0(guint, n_rounds);

    *busiest_out = busiest(meetings, rounds, n, n_ranks, n_rounds);
    g_assert_cmpuint(*busiest_out, <=, REFIT_ROUNDS_OPERATIONS);
    for (guint m = 0; m < n; m++)
        used[rounds[m]] = 1;
    for (guint r = 0; r < n_rounds; r++)
        g_assert_cmpuint(used[r], ==, 1);
    return n_rounds;
}

/*
 * Senders 0 .. n - 1 meet all receivers n .. 2n - 1, n odd. Sender s has `large` bytes for receiver
 * 2s, which is a permutation, in shift s, `small` for all others. So in each shift one sender and
 * one receiver have a large one, and each port has `large` + (n - 1) x `small` in all.
 */
static RefitMeeting *unlike_meetings(guint n, guint64 large, guint64 small) {
    RefitMeeting *meetings = g_new(RefitMeeting, (gsize)n * n);

    for (guint s = 0; s < n; s++)
        for (guint r = 0; r < n; r++)
            meetings[s * n + r] = (RefitMeeting){s, n + r, r == 2 * s % n ? large : small};
    return meetings;
}

static void assert_unlike(guint n, guint64 large, guint64 small, guint n_rounds, guint most) {
    g_autofree RefitMeeting *meetings = unlike_meetings(n, large, small);
    g_autofree guint *rounds = g_new(guint, (gsize)n * n);
    guint got;

    g_assert_cmpuint(assign(meetings, n * n, 2 * n, rounds, &got), ==, n_rounds);
    g_assert_cmpuint(got, ==, most);
}

/*
 * Sender 0, the hub, has `small` bytes for each of n_small receivers n .. n + n_small - 1, in
 * shifts 0, 1, ...; senders s = 1 .. n - 1 have `large` for receiver 2s, in shift s, and something
 * without bytes for receiver 2s + 2, so that all are one island. n is odd.
 */
static RefitMeeting *hub_meetings(guint n, guint n_small, guint64 small, guint64 large,
                                  guint *n_out) {
    RefitMeeting *meetings = g_new(RefitMeeting, n_small + 2 * n);
    guint count = 0;

    for (guint r = 0; r < n_small; r++)
        meetings[count++] = (RefitMeeting){0, n + r, small};
    for (guint s = 1; s < n; s++) {
        guint r = 2 * s % n, other = (2 * s + 2) % n;

        meetings[count++] = (RefitMeeting){s, n + MIN(r, other), r < other ? large : 0};
        meetings[count++] = (RefitMeeting){s, n + MAX(r, other), r < other ? 0 : large};
    }
    *n_out = count;
    return meetings;
}

static guint assign_hub(guint n, guint n_small, guint64 small, guint64 large, guint *busiest_out) {
    guint n_meetings;
    g_autofree RefitMeeting *meetings = hub_meetings(n, n_small, small, large, &n_meetings);
    g_autofree guint *rounds = g_new(guint, n_meetings);

    return assign(meetings, n_meetings, 2 * n, rounds, busiest_out);
}

/* Equal meetings of all with all: no port waits, so four at a time. Meetings without bytes, too. */
static void test_equal(void) {
    assert_unlike(65, 1000, 1000, 17, 4);
    assert_unlike(65, 0, 0, 17, 4);
}

/*
 * Nine shifts of 2 bytes and, for one sender each, 3: 19 for each port. Four at a time: 3 + 3 x 2
 * twice, and 3 of the ninth shift: 21, a tenth too much. Eight at a time: 3 + 7 x 2, and 3: 20.
 */
static void test_eight(void) {
    assert_unlike(9, 3, 2, 2, 8);
}

/* h + 8s = 100 for each port. Four at a time take twice h + 3s, and h for the ninth shift. h = 12,
 * s = 11: 3 x 12 + 6 x 11 = 102; h = 20, s = 10: 120, and eight at a time (20 + 70) + 20 = 110: all
 * nine then. */
static void test_border(void) {
    assert_unlike(9, 12, 11, 3, 4);
    assert_unlike(9, 20, 10, 1, 9);
}

/*
 * A hub with five meetings of 100, 16 others with one of 400. Busiest is the port of a receiver of
 * both, 500. Four at a time: shifts 0 to 3 hold a receiver of both (the second), 500; each of the
 * other four rounds somebody's 400: 2100. Eight: 500 + 400 + 400. Sixteen: 500 + 400. All: 500.
 */
static void test_all(void) {
    guint most;

    g_assert_cmpuint(assign_hub(17, 5, 100, 400, &most), ==, 1);
    g_assert_cmpuint(most, ==, 5);
}

/* An island for itself, each with its own number: 0 .. 17 as in test_eight(), 18 .. 51 as in
 * test_all(), and equal meetings of four with four. */
static void test_own_peers(void) {
    g_autofree RefitMeeting *eight = unlike_meetings(9, 3, 2);
    guint n_all, most;
    g_autofree RefitMeeting *all = hub_meetings(17, 5, 100, 400, &n_all);
    guint n = 81 + n_all;
    g_autofree RefitMeeting *meetings = g_new(RefitMeeting, n);
    g_autofree guint *rounds = g_new(guint, n);

    memcpy(meetings, eight, 81 * sizeof *meetings);
    for (guint i = 0; i < n_all; i++)
        meetings[81 + i] = (RefitMeeting){all[i].src + 18, all[i].dst + 18, all[i].bytes};
    g_assert_cmpuint(assign(meetings, n, 52, rounds, &most), ==, 2);
    g_assert_cmpuint(most, ==, 8);
    for (guint i = 81; i < n; i++)
        g_assert_cmpuint(rounds[i], ==, 0);
}

/*
 * A hub with 128 meetings of 100, 12800 in all, and 256 others with one of 400. With 4, 8, 16, 32
 * or 64 at a time, half of the 257 shifts are busy with the hub, the other half with 400s: 64 at a
 * time still take 2 x 6400 + 3 x 400 = 14000, and 128 are more than a rank may have in a round.
 * Colours: one for the 400s, then one for each of the hub's. Four at a time: 500 (a receiver of
 * both in the first round), 31 x 400 and 100 of the last: 13000, near enough.
 */
static void test_colours(void) {
    guint n, most;
    g_autofree RefitMeeting *meetings = hub_meetings(257, 128, 100, 400, &n);
    g_autofree guint *rounds = g_new(guint, n);

    g_assert_cmpuint(assign(meetings, n, 2 * 257, rounds, &most), ==, 33);
    g_assert_cmpuint(most, ==, 4);
    for (guint m = 0; m < n; m++)
        g_assert_cmpuint(rounds[m], ==, meetings[m].src == 0 ? (1 + m) / 4 : 0);
}

/*
 * The same with one of 500, against which the hub's are small and ride with the only colour of the
 * others: 128 in a round are too many. So shifts remain, with the most peers that are allowed: 64,
 * in 5 rounds for 257 shifts.
 */
static void test_riders(void) {
    guint most;

    g_assert_cmpuint(assign_hub(257, 128, 100, 500, &most), ==, 5);
    g_assert_cmpuint(most, ==, 64);
}

/*
 * Small meetings ride with large ones. The hub has 128 meetings of 300, the others one of 1000
 * each, and sender 1 has one of 50 for the hub's first receiver, too. As above, shifts take too
 * much: 64 at a time 38400 + 3 x 1000. Colours are one for the 1000s and 128 for the hub; the 50 is
 * in the first, with the 1000 of its sender.
 */
static void test_rider(void) {
    guint n, most;
    g_autofree RefitMeeting *hub = hub_meetings(257, 128, 300, 1000, &n);
    g_autofree RefitMeeting *meetings = g_new(RefitMeeting, n + 1);
    g_autofree guint *rounds = g_new(guint, n + 1);

    memcpy(meetings, hub, 128 * sizeof *meetings);
    meetings[128] = (RefitMeeting){1, 257, 50};
    memcpy(meetings + 129, hub + 128, (n - 128) * sizeof *meetings);
    g_assert_cmpuint(assign(meetings, n + 1, 2 * 257, rounds, &most), ==, 33);
    g_assert_cmpuint(rounds[128], ==, 0);
    g_assert_cmpuint(rounds[129], ==, 0);
}

/*
 * 127 meetings of the hub fit one round. 64 at a time take 12700 + 3 x 400, 128 at a time 12700 and
 * twice 400, which is 6.3 % too much; 256 at a time, 12700 and 400. The hub does not have so many,
 * so all go in one round.
 */
static void test_limit(void) {
    guint most;

    g_assert_cmpuint(assign_hub(257, 127, 100, 400, &most), ==, 1);
    g_assert_cmpuint(most, ==, 127);
}

/*
 * The hub has 127 meetings in shifts 0 to 126 and another in shift 128: 64 at a time take
 * 6400 + 6300 + 3 x 400 = 13900, 128 at a time 12700 + 400 + 400 = 13500, 5.5 % more than its
 * 12800. None of the three rounds has more than 127, though the hub has no more than the 128 peers.
 */
static void test_limit_of_a_round(void) {
    guint n, most;
    g_autofree RefitMeeting *meetings = hub_meetings(257, 128, 100, 400, &n);
    g_autofree guint *rounds = g_new(guint, n);

    meetings[127].dst++;
    g_assert_cmpuint(assign(meetings, n, 2 * 257, rounds, &most), ==, 3);
    g_assert_cmpuint(most, ==, 127);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rounds/an-all-to-all-is-a-row-of-permutations", test_permutations);
    g_test_add_func("/rounds/no-round-loads-a-rank-with-more-than-its-peers", test_peers);
    g_test_add_func("/rounds/in-an-exchange-ranks-send-and-receive-at-once", test_exchange);
    g_test_add_func("/rounds/islands-do-not-wait-for-each-other", test_islands);
    g_test_add_func("/rounds/unused-rounds-are-closed", test_gaps);
    g_test_add_func("/rounds/a-ring-is-one-round", test_ring);
    g_test_add_func("/rounds/nobody-to-meet-is-no-round", test_empty);
    g_test_add_func("/rounds/equal-meetings-go-four-at-a-time", test_equal);
    g_test_add_func("/rounds/unlike-meetings-go-eight-at-a-time", test_eight);
    g_test_add_func("/rounds/a-tenth-more-in-lock-step-is-too-much", test_border);
    g_test_add_func("/rounds/few-meetings-of-many-ranks-go-together", test_all);
    g_test_add_func("/rounds/each-island-has-its-own-number-of-peers", test_own_peers);
    g_test_add_func("/rounds/colours-where-shifts-leave-ranks-idle", test_colours);
    g_test_add_func("/rounds/no-colours-with-too-many-small-meetings", test_riders);
    g_test_add_func("/rounds/a-small-meeting-rides-along-with-large-ones", test_rider);
    g_test_add_func("/rounds/as-many-as-a-turn-may-have-go-together", test_limit);
    g_test_add_func("/rounds/no-round-has-more-than-a-turn-may-have", test_limit_of_a_round);
    return g_test_run();
}
