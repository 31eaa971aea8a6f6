/*
 * The rendezvous when something fails: failures and deaths of ranks told to the others, options
 * that cannot be, and frames that are none. Ranks are threads, or processes where one must die.
 */

#include "rendezvous-job.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- failures ---- */

static void too_large(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autofree guint8 *record = g_malloc0(REFIT_RENDEZVOUS_MAX_RECORD + 1), *all = NULL;
    g_autoptr(GError) error = NULL;

    (void)rank;
    (void)job;
    g_assert_false(refit_rendezvous_gather(rendezvous, "times", record,
                                           REFIT_RENDEZVOUS_MAX_RECORD + 1, &all, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT);
    assert_says(error, "times: 65537 bytes of each of 2 ranks; a rank can tell 65536");
    g_clear_error(&error);
    g_assert_true(refit_rendezvous_gather(rendezvous, "times", record, REFIT_RENDEZVOUS_MAX_RECORD,
                                          &all, &error));
    g_assert_no_error(error);
}

static void records_beyond_the_limit_are_refused(void) {
    run_all(2, too_large, NULL);
}

static void one_fails(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    (void)job;
    if (rank == 2) {
        error = refit_rendezvous_fail(rendezvous,
                                      g_error_new(REFIT_ERROR, REFIT_ERROR_LIMIT, "out of memory"));
    } else if (rank == 1) { /* computes */
        while (refit_rendezvous_check(rendezvous, &error))
            g_usleep(1000);
    } else { /* waits */
        g_assert_false(refit_rendezvous_barrier(rendezvous, "run", &error));
    }
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT);
    g_assert_cmpstr(error->message, ==, "rank 2: out of memory");
}

static void a_failure_reaches_all_ranks(void) {
    for (guint i = 0; i < 50; i++) /* question and verdict arrive together or apart */
        run_all(4, one_fails, NULL);
}

static void one_is_silent(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    if (rank == 1) { /* stuck, until after the verdict */
        while (!g_atomic_int_get((gint *)job->data))
            g_usleep(1000);
        while (refit_rendezvous_check(rendezvous, &error)) /* the verdict may still be on its way */
            g_usleep(1000);
    } else if (rank == 2) {
        error = refit_rendezvous_fail(
            rendezvous, g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND, "waited for rank 3"));
        g_atomic_int_set((gint *)job->data, 1);
    } else {
        g_assert_false(refit_rendezvous_barrier(rendezvous, "run", &error));
    }
    assert_says(error, "rank 2: waited for rank 3; no answer from rank 1 within ");
}

static void a_silent_rank_is_named(void) {
    gint done = 0;

    run_all(4, one_is_silent, &done);
}

static void leave_early(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    (void)job;
    if (rank == 1)
        return;
    g_assert_false(refit_rendezvous_barrier(rendezvous, "run", &error));
    assert_says(error, "rank 1 left before \"run\"");
}

static void leaving_early_is_no_hang(void) {
    run_all(3, leave_early, NULL);
}

/* A rank as a process that joins and dies without a word. */
static pid_t fork_dying_rank(Job *job, guint rank) {
    pid_t child = fork();

    if (child == 0) {
        RefitRendezvousOptions options = options_of(job, rank);
        RefitRendezvous *rendezvous =
            refit_rendezvous_new(&options, rank == 0 ? job->listener : NULL, NULL);

        _exit(rendezvous != NULL ? 0 : 1);
    }
    g_assert_cmpint(child, >, 0);
    return child;
}

static void reap(pid_t child) {
    int status;

    g_assert_cmpint(waitpid(child, &status, 0), ==, child);
    g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void outlive_2(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    (void)rank;
    (void)job;
    g_assert_false(refit_rendezvous_barrier(rendezvous, "run", &error));
    g_assert_cmpstr(error->message, ==, "rank 2 ended without a word");
}

static void a_dead_rank_is_named(void) {
    Job job;
    pid_t child;

    init_job(&job, 3, LONG_S, outlive_2);
    child = fork_dying_rank(&job, 2);
    run_ranks(&job, 0, 2);
    reap(child);
    clear_job(&job);
}

static void outlive_0(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    (void)rank;
    (void)job;
    g_assert_false(refit_rendezvous_barrier(rendezvous, "run", &error));
    assert_says(error, "rank 0 at 127.0.0.1:");
    assert_says(error, "ended without a word");
}

static void the_death_of_rank_0_is_noticed(void) {
    Job job;
    pid_t child;

    init_job(&job, 3, LONG_S, outlive_0);
    child = fork_dying_rank(&job, 0);
    run_ranks(&job, 1, 2);
    for (guint rank = 1; rank < 3; rank++)
        if (job.errors[rank] != NULL) /* it may have died before that one's joining ended */
            assert_says(job.errors[rank], "ended without a word");
    reap(child);
    clear_job(&job);
}

/* ---- options and pieces ---- */

static void impossible_options_are_refused(void) {
    static const struct {
        RefitRendezvousOptions options;
        const char *why;
    } rows[] = {
        {{0, 0, "127.0.0.1", 1, TOKEN, 1, NULL, NULL}, "a job of 0 ranks"},
        {{0, 70000, "127.0.0.1", 1, TOKEN, 1, NULL, NULL}, "a job of 70000 ranks"},
        {{4, 4, "127.0.0.1", 1, TOKEN, 1, NULL, NULL}, "rank 4 of 4"},
        {{1, 4, "127.0.0.1", 0, TOKEN, 1, NULL, NULL}, "port 0"},
        {{1, 4, "127.0.0.1", 65536, TOKEN, 1, NULL, NULL}, "port 65536"},
        {{1, 4, "127.0.0.1", 1, "short", 1, NULL, NULL}, "a token of 5 bytes"},
        {{1, 4, "127.0.0.1", 1, TOKEN, 0, NULL, NULL}, "a time-out of 0 s"},
        {{0, 4, "0.0.0.0", 0, TOKEN, 1, NULL, NULL}, "all addresses of the machine"},
        {{0, 4, "::", 0, TOKEN, 1, NULL, NULL}, "all addresses of the machine"},
        {{0, 4, "127.0.0.1", 65536, TOKEN, 1, NULL, NULL}, "port 65536"},
        {{0, 4, "192.0.2.1", 0, TOKEN, 1, NULL, NULL}, "cannot listen on 192.0.2.1"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;

        g_assert_null(refit_rendezvous_new(&rows[i].options, NULL, &error));
        assert_says(error, rows[i].why);
    }
}

static void ranks_are_listed_in_ranges(void) {
    guint8 member[64] = {0};
    g_autofree char *none = refit_ranks_to_string(member, 64, NULL);
    g_autofree char *some = NULL, *many = NULL;

    member[3] = member[7] = member[8] = member[9] = member[63] = 1;
    some = refit_ranks_to_string(member, 64, NULL);
    memset(member, 0, sizeof member);
    for (guint i = 0; i < 64; i += 4)
        member[i] = member[i + 1] = 1;
    many = refit_ranks_to_string(member, 64, NULL);
    g_assert_cmpstr(none, ==, "");
    g_assert_cmpstr(some, ==, "3, 7-9, 63");
    g_assert_cmpstr(many, ==, "0-1, 4-5, 8-9, 12-13, 16-17, 20-21, 24-25, 28-29 and 16 more");
}

static void bodies_are_read_within_their_bounds(void) {
    g_autoptr(GByteArray) body = g_byte_array_new();
    RefitBodyReader reader;
    g_autofree char *text = NULL;
    g_autoptr(GError) error = g_error_new(REFIT_ERROR, REFIT_ERROR_LIMIT, "a\nb\x80");
    g_autoptr(GError) back = NULL;

    refit_body_put_u32(body, 0x01020304);
    refit_body_put_text(body, "caf\303\251", 4); /* never half a character */
    refit_body_put_error(body, error);
    reader = (RefitBodyReader){.at = body->data, .left = body->len};
    g_assert_cmpuint(body->data[0], ==, 1);
    g_assert_cmpuint(refit_body_get_u32(&reader), ==, 0x01020304);
    text = refit_body_get_text(&reader);
    g_assert_cmpstr(text, ==, "caf");
    back = refit_body_get_error(&reader);
    g_assert_error(back, REFIT_ERROR, REFIT_ERROR_LIMIT);
    g_assert_cmpstr(back->message, ==, "a b\357\277\275");
    g_assert_cmpuint(reader.left, ==, 0);
    g_assert_false(reader.failed);
    for (gsize cut = 0; cut < body->len; cut++) { /* every shorter one fails, and stays failed */
        g_autofree guint8 *part = g_memdup2(body->data, cut + 1);
        g_autofree char *cut_text = NULL;
        g_autoptr(GError) cut_error = NULL;

        reader = (RefitBodyReader){.at = part, .left = cut};
        (void)refit_body_get_u32(&reader);
        cut_text = refit_body_get_text(&reader);
        cut_error = refit_body_get_error(&reader);
        g_assert_null(cut_error);
        g_assert_true(reader.failed);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rendezvous/records-beyond-the-limit-are-refused",
                    records_beyond_the_limit_are_refused);
    g_test_add_func("/rendezvous/a-failure-reaches-all-ranks", a_failure_reaches_all_ranks);
    g_test_add_func("/rendezvous/a-silent-rank-is-named", a_silent_rank_is_named);
    g_test_add_func("/rendezvous/leaving-early-is-no-hang", leaving_early_is_no_hang);
    g_test_add_func("/rendezvous/a-dead-rank-is-named", a_dead_rank_is_named);
    g_test_add_func("/rendezvous/the-death-of-rank-0-is-noticed", the_death_of_rank_0_is_noticed);
    g_test_add_func("/rendezvous/impossible-options-are-refused", impossible_options_are_refused);
    g_test_add_func("/rendezvous/ranks-are-listed-in-ranges", ranks_are_listed_in_ranges);
    g_test_add_func("/rendezvous/bodies-are-read-within-their-bounds",
                    bodies_are_read_within_their_bounds);
    return g_test_run();
}
