/*
 * Rounds of an exchange: permutations of an all-to-all, the limit of peers on both sides, islands
 * that do not wait for each other, the same rank sending and receiving, gaps, sparse islands whose
 * large meetings need no more rounds than the busiest rank has and whose small ones ride along, and
 * the automatic choice of peers. A checker of its own counts what each rank does in each round.
 */

#include "model/plan/refit-rounds.h"

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

#define N_SPARSE 1024
#define DEGREE 6

/* Sender s meets receivers s, s + 7, s + 49 ... of 1024: most shifts are unused. */
static guint sparse_meetings(RefitMeeting *meetings, guint64 bytes) {
    guint n = 0;

    for (guint s = 0; s < N_SPARSE; s++)
        for (guint i = 0, step = 1; i < DEGREE; i++, step *= 7)
            meetings[n++] =
                (RefitMeeting){.src = s, .dst = N_SPARSE + (s + step) % N_SPARSE, .bytes = bytes};
    return n;
}

/* 1024 senders leave 8 peers at a time, so that all six meetings of a rank go together. */
static void test_sparse(void) {
    g_autofree RefitMeeting *meetings = g_new(RefitMeeting, N_SPARSE * DEGREE);
    g_autofree guint *rounds = g_new(guint, N_SPARSE * DEGREE);
    guint n = sparse_meetings(meetings, 1000), n_rounds;

    n_rounds = refit_rounds_assign(meetings, n, 2 * N_SPARSE, 1, rounds);
    g_assert_cmpuint(n_rounds, ==, 1);
    g_assert_cmpuint(busiest(meetings, rounds, n, 2 * N_SPARSE, n_rounds), ==, DEGREE);
}

/*
 * The same sparse graph eight times, so that 8192 senders leave one peer at a time: as many rounds
 * as a rank has meetings, and in each of them every rank meets exactly one.
 */
static void test_colours(void) {
    guint n = 0, n_ranks = 16 * N_SPARSE, n_rounds;
    g_autofree RefitMeeting *meetings = g_new(RefitMeeting, 8 * N_SPARSE * DEGREE);
    g_autofree guint *rounds = g_new(guint, 8 * N_SPARSE * DEGREE);

    for (guint s = 0; s < 8 * N_SPARSE; s++)
        for (guint i = 0, step = 1; i < DEGREE; i++, step *= 7)
            meetings[n++] = (RefitMeeting){
                .src = s, .dst = 8 * N_SPARSE + (s + step) % (8 * N_SPARSE), .bytes = 1000};
    n_rounds = refit_rounds_assign(meetings, n, n_ranks, 1, rounds);
    g_assert_cmpuint(n_rounds, ==, DEGREE);
    g_assert_cmpuint(busiest(meetings, rounds, n, n_ranks, n_rounds), ==, 1);
}

/* A tenth of the bytes in every second meeting: those share the rounds of the large ones. */
static void test_riders(void) {
    guint n = 0, n_ranks = 16 * N_SPARSE, n_rounds;
    g_autofree RefitMeeting *meetings = g_new(RefitMeeting, 8 * N_SPARSE * DEGREE);
    g_autofree guint *rounds = g_new(guint, 8 * N_SPARSE * DEGREE);
    g_autofree guint *large = g_new0(guint, 8 * N_SPARSE * DEGREE);

    for (guint s = 0; s < 8 * N_SPARSE; s++)
        for (guint i = 0, step = 1; i < DEGREE; i++, step *= 7)
            meetings[n++] = (RefitMeeting){.src = s,
                                           .dst = 8 * N_SPARSE + (s + step) % (8 * N_SPARSE),
                                           .bytes = i % 2 == 0 ? 1000 : 100};
    n_rounds = refit_rounds_assign(meetings, n, n_ranks, 1, rounds);
    g_assert_cmpuint(n_rounds, ==, DEGREE / 2);
    g_assert_cmpuint(busiest(meetings, rounds, n, n_ranks, n_rounds), ==, 2);
    for (guint m = 0; m < n; m++)
        if (meetings[m].bytes == 1000)
            g_assert_cmpuint(++large[meetings[m].src * n_rounds + rounds[m]], ==, 1);
}

static void test_choice(void) {
    g_assert_cmpuint(refit_rounds_peers(1), ==, 16);
    g_assert_cmpuint(refit_rounds_peers(64), ==, 16);
    g_assert_cmpuint(refit_rounds_peers(256), ==, 4);
    g_assert_cmpuint(refit_rounds_peers(4096), ==, 1);
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
    g_test_add_func("/rounds/few-meetings-of-many-ranks-go-together", test_sparse);
    g_test_add_func("/rounds/colours-are-as-many-as-the-busiest-rank-has", test_colours);
    g_test_add_func("/rounds/small-meetings-ride-along-with-large-ones", test_riders);
    g_test_add_func("/rounds/large-clusters-meet-fewer-at-a-time", test_choice);
    return g_test_run();
}
