/*
 * The rendezvous of a job of several hosts: ranks are named with theirs, and of an error that all
 * return one rank tells. Ranks are threads.
 */

#include "rendezvous-job.h"

#include <sys/wait.h>
#include <unistd.h>

static const char *const two_hosts[] = {"node0", "node0", "node1", "node1"};
static const char *const one_host[] = {"node0", "node0", "node0", "node0"};

/* Ranks [first, 4) of a job on these hosts. */
static void run_on(Job *job, const char *const *hosts, double timeout_s, RankFunc func,
                   gpointer data, guint first, guint n) {
    init_job(job, 4, timeout_s, func);
    job->hosts = hosts;
    job->data = data;
    run_ranks(job, first, n);
}

/* What a rank of the test finds. */
typedef struct {
    const char *says[4];
    guint teller;
    gint n_told; /* atomic */
} Expected;

static void expect(const RefitRendezvous *rendezvous, guint rank, Job *job, const GError *error) {
    Expected *expected = job->data;

    assert_says(error, expected->says[rank] != NULL ? expected->says[rank] : expected->says[0]);
    g_assert_true(refit_rendezvous_tells(rendezvous) == (rank == expected->teller));
    if (refit_rendezvous_tells(rendezvous))
        g_atomic_int_inc(&expected->n_told);
}

static void expect_once(RankFunc func, const char *const *hosts, double timeout_s, guint teller,
                        const char *says) {
    Expected expected = {.says = {says}, .teller = teller};
    Job job;

    run_on(&job, hosts, timeout_s, func, &expected, 0, 4);
    for (guint rank = 0; rank < 4; rank++)
        g_assert_no_error(job.errors[rank]);
    g_assert_cmpint(g_atomic_int_get(&expected.n_told), ==, 1);
    clear_job(&job);
}

/* ---- names ---- */

static void ranks_are_listed_with_hosts(void) {
    char *const hosts[] = {(char *)"a", (char *)"a", (char *)"a", (char *)"b",
                           (char *)"b", NULL,        (char *)"c", (char *)"a"};
    const guint8 all[] = {1, 1, 1, 1, 1, 1, 1, 1}, some[] = {1, 0, 1, 0, 1, 0, 0, 0},
                 unknown[] = {0, 0, 0, 0, 0, 1, 0, 0};
    g_autofree char *every = refit_ranks_to_string(all, 8, hosts);
    g_autofree char *few = refit_ranks_to_string(some, 8, hosts);
    g_autofree char *lost = refit_ranks_to_string(unknown, 8, hosts);

    g_assert_cmpstr(every, ==, "0-2 (a), 3-4 (b), 5, 6 (c), 7 (a)");
    g_assert_cmpstr(few, ==, "0, 2 (a), 4 (b)");
    g_assert_cmpstr(lost, ==, "5");
}

static void disagree(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL, mine = NULL;

    if (rank >= 2)
        mine = g_error_new(REFIT_ERROR, REFIT_ERROR_LIMIT, "no room for %u", rank);
    g_assert_false(refit_rendezvous_agree(rendezvous, "prepare", mine, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT);
    expect(rendezvous, rank, job, error);
}

static void an_agreed_error_is_told_by_rank_0(void) {
    expect_once(disagree, two_hosts, LONG_S, 0, "rank 2 (node1): no room for 2; 1 more failed");
    expect_once(disagree, one_host, LONG_S, 0, "rank 2: no room for 2; 1 more failed");
    expect_once(disagree, NULL, LONG_S, 0, "rank 2: no room for 2; 1 more failed");
}

static void differ(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    g_assert_false(
        refit_rendezvous_same(rendezvous, "plan", rank < 3 ? "same" : "else", 4, &error));
    expect(rendezvous, rank, job, error);
}

static void a_rank_that_differs_is_named_with_its_host(void) {
    expect_once(differ, two_hosts, LONG_S, 0, "rank 3 (node1) has another plan than rank 0");
}

static void fail_alone(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    if (rank == 3)
        error = refit_rendezvous_fail(rendezvous,
                                      g_error_new(REFIT_ERROR, REFIT_ERROR_LIMIT, "no memory"));
    else
        g_assert_false(refit_rendezvous_barrier(rendezvous, "run", &error));
    expect(rendezvous, rank, job, error);
}

static void a_failure_is_told_by_rank_0(void) {
    expect_once(fail_alone, two_hosts, LONG_S, 0, "rank 3 (node1): no memory");
}

static void stray(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    g_assert_false(refit_rendezvous_barrier(rendezvous, rank == 2 ? "unpack" : "pack", &error));
    assert_says(error, "rank 2 (node1) ");
    if (refit_rendezvous_tells(rendezvous)) /* who was there first */
        g_atomic_int_inc(&((Expected *)job->data)->n_told);
}

static void an_error_of_the_hub_is_told_once(void) {
    Expected expected = {.teller = 0};
    Job job;

    run_on(&job, two_hosts, LONG_S, stray, &expected, 0, 4);
    g_assert_cmpint(expected.n_told, ==, 1);
    clear_job(&job);
}

/* ---- without rank 0 ---- */

static void stay_away_0(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    if (rank == 0)
        while (refit_rendezvous_check(rendezvous, &error))
            g_usleep(1000);
    else
        g_assert_false(refit_rendezvous_barrier(rendezvous, "prepare", &error));
    expect(rendezvous, rank, job, error);
}

static void when_rank_0_is_absent_another_tells(void) {
    expect_once(stay_away_0, two_hosts, SHORT_S, 1, "rank 0 (node0) of 4 did not come to");
}

/* Rank 0 does nothing until all is over. */
static void be_silent_0(RefitRendezvous *rendezvous, guint rank, Job *job) {
    static gint n_over;
    g_autoptr(GError) error = NULL;

    if (rank == 0) {
        while (g_atomic_int_get(&n_over) < 3)
            g_usleep(1000);
        while (refit_rendezvous_check(rendezvous, &error))
            g_usleep(1000);
    } else if (rank == 2) {
        error = refit_rendezvous_fail(
            rendezvous, g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND, "waited for rank 0"));
    } else {
        g_assert_false(refit_rendezvous_barrier(rendezvous, "run", &error));
    }
    expect(rendezvous, rank, job, error);
    g_atomic_int_inc(&n_over);
}

static void when_rank_0_is_silent_another_tells(void) {
    expect_once(be_silent_0, two_hosts, LONG_S, 1,
                "rank 2 (node1): waited for rank 0; no answer from rank 0 (node0) within ");
}

static void collect_late(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;
    guint8 mine = 0, all[4] = {0}, came[4] = {0};

    if (rank == 0)
        g_usleep(500 * 1000);
    g_assert_false(refit_rendezvous_collect(rendezvous, "report", &mine, 1, rank == 0 ? all : NULL,
                                            rank == 0 ? came : NULL, 0.1, &error));
    expect(rendezvous, rank, job, error);
    g_clear_error(&error); /* and rank 0 again, once it is there */
    g_assert_true(refit_rendezvous_barrier(rendezvous, "afterwards", &error));
    g_assert_true(refit_rendezvous_tells(rendezvous) == (rank == 0));
}

static void a_collection_without_rank_0_is_told_by_another(void) {
    expect_once(collect_late, two_hosts, LONG_S, 1,
                "rank 0 (node0) of 4 did not come to \"report\" within 0.1 s");
}

/* Through it, ranks let rank 0 die. */
static int all_there[2];

static void outlive_0(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    g_assert_true(refit_rendezvous_barrier(rendezvous, "all are there", &error));
    g_assert_cmpint(write(all_there[1], "x", 1), ==, 1);
    g_assert_false(refit_rendezvous_barrier(rendezvous, "run", &error));
    expect(rendezvous, rank, job, error);
}

/* Rank 0 as a process that dies without a word. */
static pid_t fork_rank_0(Job *job) {
    pid_t child = fork();

    if (child == 0) {
        RefitRendezvousOptions options = options_of(job, 0);
        RefitRendezvous *rendezvous = refit_rendezvous_new(&options, job->listener, NULL);

        char bytes[3];
        gboolean well =
            rendezvous != NULL && refit_rendezvous_barrier(rendezvous, "all are there", NULL);

        for (guint i = 0; i < sizeof bytes; i++)
            well &= read(all_there[0], &bytes[i], 1) == 1;
        _exit(well ? 0 : 1);
    }
    g_assert_cmpint(child, >, 0);
    return child;
}

static void when_rank_0_dies_its_deputy_tells(void) {
    const struct {
        const char *const *hosts;
        guint teller;
    } rows[] = {{NULL, 1}, {one_host, 1}, {two_hosts, 2}};

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        Expected expected = {.says = {"ended without a word"}, .teller = rows[i].teller};
        pid_t child;
        int status;
        Job job;

        init_job(&job, 4, LONG_S, outlive_0);
        job.hosts = rows[i].hosts;
        job.data = &expected;
        g_assert_cmpint(pipe(all_there), ==, 0);
        child = fork_rank_0(&job);
        run_ranks(&job, 1, 3);
        g_assert_cmpint(waitpid(child, &status, 0), ==, child);
        g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        g_assert_cmpint(expected.n_told, ==, 1);
        close(all_there[0]);
        close(all_there[1]);
        clear_job(&job);
    }
}

/* ---- joining ---- */

static void those_that_do_not_join_are_told_of_by_rank_0(void) {
    Job job;

    run_on(&job, two_hosts, SHORT_S, NULL, NULL, 0, 3);
    for (guint rank = 0; rank < 3; rank++) {
        assert_says(job.errors[rank], "rank 3 of 4 did not join within 0.4 s");
        g_assert_true(job.tells[rank] == (rank == 0));
    }
    clear_job(&job);
}

static void who_meets_nobody_tells_of_it(void) {
    Job job;

    init_job(&job, 4, SHORT_S, NULL);
    g_clear_object(&job.listener);
    run_ranks(&job, 2, 2);
    g_assert_true(job.tells[2] && job.tells[3]);
    g_assert_nonnull(job.errors[2]);
    clear_job(&job);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rendezvous-hosts/ranks-are-listed-with-hosts", ranks_are_listed_with_hosts);
    g_test_add_func("/rendezvous-hosts/an-agreed-error-is-told-by-rank-0",
                    an_agreed_error_is_told_by_rank_0);
    g_test_add_func("/rendezvous-hosts/a-rank-that-differs-is-named-with-its-host",
                    a_rank_that_differs_is_named_with_its_host);
    g_test_add_func("/rendezvous-hosts/a-failure-is-told-by-rank-0", a_failure_is_told_by_rank_0);
    g_test_add_func("/rendezvous-hosts/an-error-of-the-hub-is-told-once",
                    an_error_of_the_hub_is_told_once);
    g_test_add_func("/rendezvous-hosts/when-rank-0-is-absent-another-tells",
                    when_rank_0_is_absent_another_tells);
    g_test_add_func("/rendezvous-hosts/when-rank-0-is-silent-another-tells",
                    when_rank_0_is_silent_another_tells);
    g_test_add_func("/rendezvous-hosts/a-collection-without-rank-0-is-told-by-another",
                    a_collection_without_rank_0_is_told_by_another);
    g_test_add_func("/rendezvous-hosts/when-rank-0-dies-its-deputy-tells",
                    when_rank_0_dies_its_deputy_tells);
    g_test_add_func("/rendezvous-hosts/those-that-do-not-join-are-told-of-by-rank-0",
                    those_that_do_not_join_are_told_of_by_rank_0);
    g_test_add_func("/rendezvous-hosts/who-meets-nobody-tells-of-it", who_meets_nobody_tells_of_it);
    return g_test_run();
}
