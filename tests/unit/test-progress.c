/*
 * Progress of ranks through steps: schedules that finish and those that do not, who waits for whom,
 * against a slow player on small random schedules.
 */

#include "validation/refit-progress.h"

/* "ab,c" is two steps: operations a and b, then c. */
static void add_steps(RefitProgress *progress, guint rank, const char *steps) {
    g_auto(GStrv) parts = g_strsplit(steps, ",", -1);
    for (guint i = 0; parts[i] != NULL; i++) {
        refit_progress_begin_step(progress, rank);
        for (const char *at = parts[i]; *at != '\0'; at++)
            refit_progress_join(progress, rank, (guint)(*at - 'a'));
    }
}

/* Members of operations a, b, ... as texts of digits. */
static RefitProgress *schedule(guint n_ranks, const char *const *members,
                               const char *const *steps) {
    RefitProgress *progress = refit_progress_new(n_ranks);
    for (guint operation = 0; members[operation] != NULL; operation++) {
        guint ranks[10], n = 0;
        for (const char *at = members[operation]; *at != '\0'; at++)
            ranks[n++] = (guint)(*at - '0');
        g_assert_cmpuint(refit_progress_add_operation(progress, ranks, n), ==, operation);
    }
    for (guint rank = 0; rank < n_ranks; rank++)
        if (steps[rank] != NULL)
            add_steps(progress, rank, steps[rank]);
    return progress;
}

static void test_crossing(void) {
    static const char *const members[] = {"01", "02", "10", "12", NULL};
    static const char *const local[] = {"ab,c", "cd,a", "bd"};
    static const char *const agreed[] = {"ab,c", "ad,c", "bd"};
    g_autoptr(RefitProgress) progress = schedule(3, members, local);
    g_autoptr(RefitProgressResult) result = refit_progress_run(progress);
    g_assert_false(result->finishes);
    g_assert_cmpuint(result->n_stuck, ==, 2); /* rank 2 gets through */
    for (guint i = 0; i < 2; i++) {
        g_assert_cmpuint(result->stuck[i].rank, ==, i);
        g_assert_cmpuint(result->stuck[i].step, ==, 0);
        g_assert_cmpuint(result->stuck[i].operation, ==, i == 0 ? 0 : 2);
        g_assert_cmpuint(result->stuck[i].missing, ==, 1 - i);
        g_assert_false(result->stuck[i].missing_ended);
    }
    g_autoptr(RefitProgress) windows = schedule(3, members, agreed);
    g_autoptr(RefitProgressResult) finished = refit_progress_run(windows);
    g_assert_true(finished->finishes);
    g_assert_cmpuint(finished->n_stuck, ==, 0);
}

static void test_ended(void) {
    static const char *const members[] = {"01", "01", "01", NULL};
    static const char *const steps[] = {"a,b,c", "a,b"};
    g_autoptr(RefitProgress) progress = schedule(2, members, steps);
    g_autoptr(RefitProgressResult) result = refit_progress_run(progress);
    g_assert_cmpuint(result->n_stuck, ==, 1);
    g_assert_cmpuint(result->stuck[0].rank, ==, 0);
    g_assert_cmpuint(result->stuck[0].step, ==, 2);
    g_assert_cmpuint(result->stuck[0].missing, ==, 1);
    g_assert_true(result->stuck[0].missing_ended);
}

static void test_waiting(void) {
    /* Rank 2 waits for what ranks 0 and 1 do together, twice in one step, and again later. */
    static const char *const members[] = {"01", "2", NULL};
    static const char *const steps[] = {"a", ",a", "aa,b,a"};
    g_autoptr(RefitProgress) progress = schedule(3, members, steps);
    g_autoptr(RefitProgressResult) result = refit_progress_run(progress);
    g_assert_true(result->finishes);
    static const char *const never[] = {"b", "a", "a"};
    g_autoptr(RefitProgress) waiting = schedule(3, members, never);
    g_autoptr(RefitProgressResult) stuck = refit_progress_run(waiting);
    g_assert_cmpuint(stuck->n_stuck, ==, 3);
}

static void test_edges(void) {
    g_autoptr(RefitProgress) nobody = refit_progress_new(0);
    g_autoptr(RefitProgressResult) nothing = refit_progress_run(nobody);
    g_assert_true(nothing->finishes);
    static const char *const members[] = {"", "0", NULL};
    static const char *const steps[] = {"a,b,,b", NULL};
    g_autoptr(RefitProgress) alone = schedule(2, members, steps);
    g_autoptr(RefitProgressResult) result = refit_progress_run(alone);
    g_assert_true(result->finishes);
}

/* ---- a slow player ---- */

#define MAX_RANKS 4
#define MAX_STEPS 4
#define N_OPERATIONS 5

typedef struct {
    guint n_ranks, n_steps[MAX_RANKS];
    guint steps[MAX_RANKS][MAX_STEPS]; /* sets of operations */
    guint members[N_OPERATIONS];       /* sets of ranks */
} Small;

/* Plays until a whole round changes nothing; the set of ranks that are stuck. */
static guint play_slowly(const Small *small) {
    guint at[MAX_RANKS] = {0}, done = 0, stuck = 0;
    for (gboolean moved = TRUE; moved;) {
        moved = FALSE;
        for (guint operation = 0; operation < N_OPERATIONS; operation++) {
            gboolean all = TRUE;
            for (guint rank = 0; rank < small->n_ranks; rank++)
                if (small->members[operation] & 1u << rank)
                    all = all && at[rank] < small->n_steps[rank] &&
                          (small->steps[rank][at[rank]] & 1u << operation) != 0;
            if (all && !(done & 1u << operation)) {
                done |= 1u << operation;
                moved = TRUE;
            }
        }
        for (guint rank = 0; rank < small->n_ranks; rank++)
            if (at[rank] < small->n_steps[rank] && (small->steps[rank][at[rank]] & ~done) == 0) {
                at[rank]++;
                moved = TRUE;
            }
    }
    for (guint rank = 0; rank < small->n_ranks; rank++)
        stuck |= at[rank] < small->n_steps[rank] ? 1u << rank : 0;
    return stuck;
}

static void test_against_slow_player(void) {
    guint n_finished = 0, n_stuck = 0;
    for (guint round = 0; round < 3000; round++) {
        Small small = {.n_ranks = (guint)g_test_rand_int_range(1, MAX_RANKS + 1)};
        g_autoptr(RefitProgress) progress = refit_progress_new(small.n_ranks);
        for (guint operation = 0; operation < N_OPERATIONS; operation++) {
            guint ranks[MAX_RANKS], n = 0;
            small.members[operation] = (guint)g_test_rand_int_range(0, 1 << small.n_ranks);
            for (guint rank = 0; rank < small.n_ranks; rank++)
                if (small.members[operation] & 1u << rank)
                    ranks[n++] = rank;
            refit_progress_add_operation(progress, ranks, n);
        }
        for (guint rank = 0; rank < small.n_ranks; rank++) {
            small.n_steps[rank] = (guint)g_test_rand_int_range(0, MAX_STEPS + 1);
            for (guint step = 0; step < small.n_steps[rank]; step++) {
                small.steps[rank][step] = 0;
                refit_progress_begin_step(progress, rank);
                for (guint operation = 0; operation < N_OPERATIONS; operation++)
                    if (g_test_rand_int_range(0, 3) > 0) {
                        small.steps[rank][step] |= 1u << operation;
                        refit_progress_join(progress, rank, operation);
                    }
            }
        }
        guint expected = play_slowly(&small), got = 0;
        g_autoptr(RefitProgressResult) result = refit_progress_run(progress);
        for (guint i = 0; i < result->n_stuck; i++)
            got |= 1u << result->stuck[i].rank;
        g_assert_cmpuint(got, ==, expected);
        g_assert_cmpint(result->finishes, ==, expected == 0);
        n_finished += expected == 0 ? 1 : 0;
        n_stuck += expected != 0 ? 1 : 0;
    }
    g_assert_cmpuint(n_finished, >, 100);
    g_assert_cmpuint(n_stuck, >, 100);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/progress/steps-cut-differently-wait-in-a-circle", test_crossing);
    g_test_add_func("/progress/a-rank-that-has-ended-is-named", test_ended);
    g_test_add_func("/progress/ranks-can-wait-for-what-others-do", test_waiting);
    g_test_add_func("/progress/nothing-to-do-is-done", test_edges);
    g_test_add_func("/progress/agrees-with-a-slow-player", test_against_slow_player);
    return g_test_run();
}
