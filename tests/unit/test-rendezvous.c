/*
 * The rendezvous: exchanges of all kinds, absent ranks named, what strangers and misconfigured
 * ranks meet with. Ranks are threads.
 */

#include "rendezvous-job.h"

#include <sys/resource.h>
#include <unistd.h>

/* ---- exchanges ---- */

static void exchange_everything(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    g_assert_cmpuint(refit_rendezvous_rank(rendezvous), ==, rank);
    g_assert_cmpuint(refit_rendezvous_world(rendezvous), ==, job->world);
    for (guint round = 0; round < 3; round++) {
        guint64 record[2] = {rank * 1000 + round, ~(guint64)rank};
        guint8 id[128];
        g_autofree guint8 *all = NULL;

        memset(id, rank == 0 ? (int)(7 + round) : 0xEE, sizeof id);
        g_assert_true(refit_rendezvous_broadcast(rendezvous, "id", id, sizeof id, &error));
        for (guint i = 0; i < sizeof id; i++)
            g_assert_cmpuint(id[i], ==, 7 + round);
        g_assert_true(
            refit_rendezvous_gather(rendezvous, "sizes", record, sizeof record, &all, &error));
        for (guint other = 0; other < job->world; other++) {
            guint64 theirs[2];

            memcpy(theirs, all + other * sizeof theirs, sizeof theirs);
            g_assert_cmpuint(theirs[0], ==, other * 1000 + round);
            g_assert_cmpuint(theirs[1], ==, ~(guint64)other);
        }
        g_clear_pointer(&all, g_free);
        g_assert_true(
            refit_rendezvous_report(rendezvous, "times", record, sizeof record, &all, &error));
        g_assert_true((all != NULL) == (rank == 0));
        for (guint other = 0; all != NULL && other < job->world; other++)
            g_assert_cmpuint(((const guint64 *)(gpointer)all)[2 * other], ==, other * 1000 + round);
        g_assert_true(refit_rendezvous_same(rendezvous, "digest", "0123", 4, &error));
        g_assert_true(refit_rendezvous_agree(rendezvous, "ready", NULL, &error));
        g_assert_true(refit_rendezvous_barrier(rendezvous, "go", &error));
        g_assert_true(refit_rendezvous_check(rendezvous, &error));
    }
    g_assert_no_error(error);
}

static void all_ranks_see_all_records(void) {
    run_all(8, exchange_everything, NULL);
}

static void one_rank_meets_itself(void) {
    run_all(1, exchange_everything, NULL);
}

static void differ(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;
    char digest[8] = "same";

    (void)job;
    if (rank >= 2)
        digest[0] = 'l';
    g_assert_false(refit_rendezvous_same(rendezvous, "plan digest", digest, sizeof digest, &error));
    assert_says(error, "rank 2 has another plan digest than rank 0");
    g_clear_error(&error);
    g_assert_true(refit_rendezvous_barrier(rendezvous, "afterwards", &error)); /* still there */
    g_assert_no_error(error);
}

static void records_that_differ_name_the_first(void) {
    run_all(4, differ, NULL);
}

static void disagree(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL, mine = NULL;

    (void)job;
    if (rank == 1 || rank == 3)
        mine = g_error_new(REFIT_ERROR, REFIT_ERROR_LIMIT, "no room for %u", rank);
    g_assert_false(refit_rendezvous_agree(rendezvous, "prepare", mine, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT);
    assert_says(error, "rank 1: no room for 1; 1 more failed");
    g_clear_error(&error);
    g_assert_true(refit_rendezvous_agree(rendezvous, "again", NULL, &error));
    g_assert_no_error(error);
}

static void errors_are_agreed_upon(void) {
    run_all(4, disagree, NULL);
}

static void stray(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    (void)job;
    g_assert_false(refit_rendezvous_barrier(rendezvous, rank == 2 ? "unpack" : "pack", &error));
    assert_says(error, "\"unpack\"");
    assert_says(error, "\"pack\"");
    assert_says(error, "rank 2");
    g_clear_error(&error); /* and stays so */
    g_assert_false(refit_rendezvous_barrier(rendezvous, "pack", &error));
    assert_says(error, "\"unpack\"");
}

static void ranks_at_different_places_are_told(void) {
    run_all(3, stray, NULL);
}

static void wrong_size(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;
    guint8 bytes[16] = {0};

    (void)job;
    g_assert_false(refit_rendezvous_broadcast(rendezvous, "id", bytes, rank == 1 ? 8 : 16, &error));
    assert_says(error, "bytes at \"id\", rank ");
    assert_says(error, "all ranks must run the same version of refit");
}

static void sizes_must_be_equal(void) {
    run_all(2, wrong_size, NULL);
}

/* ---- absent ranks ---- */

static void ranks_that_never_start_are_named(void) {
    Job job;

    init_job(&job, 8, SHORT_S, NULL);
    run_ranks(&job, 0, 3);
    for (guint rank = 0; rank < 3; rank++)
        assert_says(job.errors[rank], "ranks 3-7 of 8 did not join within 0.4 s");
    clear_job(&job);
}

static void without_rank_0_others_say_where_they_looked(void) {
    Job job;
    g_autofree char *place = NULL;

    init_job(&job, 4, SHORT_S, NULL);
    g_clear_object(&job.listener); /* nobody listens */
    run_ranks(&job, 2, 1);
    place = g_strdup_printf("rank 2 cannot reach rank 0 at 127.0.0.1:%u within 0.4 s", job.port);
    assert_says(job.errors[2], place);
    clear_job(&job);
}

static void stay_away(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    if (rank == 2) {
        while (refit_rendezvous_check(rendezvous, &error))
            g_usleep(1000);
        assert_says(error, "rank 2 of 4 did not come to \"prepare\"");
        return;
    }
    (void)job;
    g_assert_false(refit_rendezvous_barrier(rendezvous, "prepare", &error));
    assert_says(error, "rank 2 of 4 did not come to \"prepare\" within 0.4 s");
}

static void absent_from_an_exchange_is_named(void) {
    Job job;

    init_job(&job, 4, SHORT_S, stay_away);
    run_ranks(&job, 0, 4);
    clear_job(&job);
}

/* Rank 1 is late for both rounds, and catches up: what rank 0 makes of them is there for it. */
static void collect(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;
    guint32 all[3] = {0}, mine = rank + 10;
    guint8 came[3] = {0};
    const gboolean first = rank == 0;
    char verdict[] = "????";

    if (rank == 1)
        g_usleep(500 * 1000);
    (void)job;
    for (guint round = 0; round < 2; round++) {
        g_assert_true(refit_rendezvous_collect(rendezvous, "report", &mine, sizeof mine,
                                               first ? all : NULL, first ? came : NULL, 0.1,
                                               &error));
        if (first) {
            g_assert_true(memcmp(came, "\1\0\1", 3) == 0);
            g_assert_cmpuint(all[0], ==, 10);
            g_assert_cmpuint(all[1], ==, 0);
            g_assert_cmpuint(all[2], ==, 12);
            memcpy(verdict, round == 0 ? "late" : "last", 4);
        }
        g_assert_true(refit_rendezvous_spread(rendezvous, "verdict", verdict, 4, LONG_S, &error));
        g_assert_cmpstr(verdict, ==, round == 0 ? "late" : "last");
    }
    g_assert_true(refit_rendezvous_collect(rendezvous, "report", &mine, sizeof mine,
                                           first ? all : NULL, first ? came : NULL, LONG_S,
                                           &error));
    if (first) {
        g_assert_true(memcmp(came, "\1\1\1", 3) == 0);
        g_assert_cmpuint(all[1], ==, 11);
    }
    g_assert_no_error(error);
}

static void collections_do_without_the_late(void) {
    run_all(3, collect, NULL);
}

static void collect_without_the_first(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;
    guint8 mine = 0, all[4] = {0}, came[4] = {0};

    (void)job;
    if (rank == 0 || rank == 2)
        g_usleep(500 * 1000);
    g_assert_false(refit_rendezvous_collect(rendezvous, "report", &mine, 1, rank == 0 ? all : NULL,
                                            rank == 0 ? came : NULL, 0.1, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND);
    g_assert_cmpstr(error->message, ==, "ranks 0, 2 of 4 did not come to \"report\" within 0.1 s");
    g_clear_error(&error);
    g_assert_true(refit_rendezvous_barrier(rendezvous, "afterwards", &error)); /* still there */
    g_assert_no_error(error);
}

static void collections_need_rank_0(void) {
    run_all(4, collect_without_the_first, NULL);
}

static void spread_from_nobody(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;
    char verdict[] = "????";

    (void)job;
    if (rank == 0)
        while (refit_rendezvous_check(rendezvous, &error))
            g_usleep(1000);
    else
        g_assert_false(refit_rendezvous_spread(rendezvous, "verdict", verdict, 4, 0.1, &error));
    assert_says(error, "rank 0 of 2 did not come to \"verdict\" within 0.1 s");
    g_assert_cmpstr(verdict, ==, "????");
}

static void spreading_waits_for_rank_0_no_longer_than_stated(void) {
    run_all(2, spread_from_nobody, NULL);
}

static void spread_of_another_size(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;
    char verdict[] = "????????";
    const gboolean well =
        refit_rendezvous_spread(rendezvous, "verdict", verdict, rank == 0 ? 8 : 4, LONG_S, &error);

    (void)job;
    g_assert_true(well == (rank == 0));
    if (rank > 0)
        assert_says(error, "sent what is no message of the rendezvous");
}

static void what_is_spread_has_the_stated_size(void) {
    run_all(2, spread_of_another_size, NULL);
}

/* ---- strangers and wrong ranks ---- */

/* What a second process with these options gets while rank 0 of a job of two waits. */
static void assert_refused(const RefitRendezvousOptions *wrong, const char *why,
                           const char *remembered) {
    Job job;
    Rank rank = {&job, 0};
    RefitRendezvousOptions options = *wrong;
    GThread *thread;
    g_autoptr(GError) error = NULL;

    init_job(&job, 2, SHORT_S, NULL);
    thread = g_thread_new("rank", run_rank, &rank);
    options.address = "127.0.0.1";
    options.port = job.port;
    options.timeout_s = LONG_S;
    g_assert_null(refit_rendezvous_new(&options, NULL, &error));
    assert_says(error, why);
    g_thread_join(thread);
    assert_says(job.errors[0], "rank 1 of 2 did not join");
    assert_says(job.errors[0], remembered);
    clear_job(&job);
}

static void another_token_is_refused(void) {
    const RefitRendezvousOptions options = {
        .rank = 1, .world = 2, .token = "a token of another job"};

    assert_refused(&options, "refuses rank 1 with another token",
                   "refused: rank 1 with another token from 127.0.0.1");
}

static void another_world_is_refused(void) {
    const RefitRendezvousOptions options = {.rank = 1, .world = 3, .token = TOKEN};

    assert_refused(&options, "refuses rank 1 of 3 ranks instead of 2", "rank 1 of 3 ranks");
}

static void a_rank_beyond_the_world_is_refused(void) {
    const RefitRendezvousOptions options = {.rank = 2, .world = 3, .token = TOKEN};

    assert_refused(&options, "refuses rank 2 of 3", "refused: rank 2");
}

static void be_joined_twice(RefitRendezvous *rendezvous, guint rank, Job *job) {
    g_autoptr(GError) error = NULL;

    if (rank == 0) {
        RefitRendezvousOptions options = options_of(job, 1);

        options.tells_out = NULL; /* of the first one */
        g_assert_null(refit_rendezvous_new(&options, NULL, &error));
        assert_says(error, "refuses a second rank 1");
        g_clear_error(&error);
    }
    g_assert_true(refit_rendezvous_barrier(rendezvous, "afterwards", &error));
    g_assert_no_error(error);
}

static void a_second_copy_of_a_rank_is_refused(void) {
    run_all(2, be_joined_twice, NULL);
}

/* A connection to the hub of `job` that sends `bytes`. */
static GSocket *intrude(const Job *job, const void *bytes, gsize size) {
    g_autoptr(GSocketAddress) address =
        g_inet_socket_address_new_from_string("127.0.0.1", job->port);
    g_autoptr(GError) error = NULL;
    GSocket *socket =
        g_socket_new(G_SOCKET_FAMILY_IPV4, G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_TCP, &error);

    g_assert_no_error(error);
    g_assert_true(g_socket_connect(socket, address, NULL, &error));
    if (size > 0)
        g_assert_cmpint(g_socket_send(socket, bytes, size, NULL, &error), ==, (gssize)size);
    g_assert_no_error(error);
    return socket;
}

/* Everything the hub says until it closes the connection. */
static GByteArray *read_all(GSocket *socket) {
    GByteArray *all = g_byte_array_new();
    char chunk[256];
    gssize n;

    g_socket_set_timeout(socket, 10);
    while ((n = g_socket_receive(socket, chunk, sizeof chunk, NULL, NULL)) > 0)
        g_byte_array_append(all, (const guint8 *)chunk, (guint)n);
    return all;
}

static void strangers_do_not_keep_ranks_from_meeting(void) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n";
    static const guint8 large[] = {0xFF, 0xFF, 0xFF, 0xFF, REFIT_FRAME_HELLO};
    static const guint8 early[] = {0, 0, 0, 0, REFIT_FRAME_BYE};
    static const guint8 zeros[64] = {0};
    GSocket *sockets[6];
    Job job;

    init_job(&job, 4, LONG_S, exchange_everything);
    sockets[0] = intrude(&job, http, sizeof http - 1);
    sockets[1] = intrude(&job, large, sizeof large);
    sockets[2] = intrude(&job, early, sizeof early);
    sockets[3] = intrude(&job, zeros, sizeof zeros);
    sockets[4] = intrude(&job, "\0", 1); /* and never the rest */
    sockets[5] = intrude(&job, NULL, 0);
    run_ranks(&job, 0, 4);
    for (guint rank = 0; rank < 4; rank++)
        g_assert_no_error(job.errors[rank]);
    for (guint i = 0; i < G_N_ELEMENTS(sockets); i++)
        g_object_unref(sockets[i]);
    clear_job(&job);
}

static void a_crowd_of_strangers_is_bounded(void) {
    enum { CROWD = 200 };
    GSocket *sockets[CROWD];
    Job job;

    init_job(&job, 2, LONG_S, exchange_everything);
    for (guint i = 0; i < CROWD; i++)
        sockets[i] = intrude(&job, NULL, 0);
    run_ranks(&job, 0, 2);
    g_assert_no_error(job.errors[0]);
    g_assert_no_error(job.errors[1]);
    for (guint i = 0; i < CROWD; i++)
        g_object_unref(sockets[i]);
    clear_job(&job);
}

static void another_version_is_told(void) {
    Job job;
    Rank rank = {&job, 0};
    GThread *thread;
    g_autoptr(GByteArray) frame = g_byte_array_new(), reply = NULL;
    g_autoptr(GSocket) socket = NULL;
    g_autofree char *text = NULL;

    init_job(&job, 2, SHORT_S, NULL);
    refit_body_put_u32(frame, 12);
    g_byte_array_append(frame, (const guint8 *)"\2refit-rv\0\0\0\7", 13);
    socket = intrude(&job, frame->data, frame->len);
    thread = g_thread_new("rank", run_rank, &rank);
    reply = read_all(socket);
    /* The challenge, then the refusal. */
    g_assert_cmpuint(reply->len, >, 49 + 5 + 6);
    g_assert_cmpuint(reply->data[49 + 4], ==, REFIT_FRAME_REFUSE);
    text = g_strndup((const char *)reply->data + 49 + 5 + 6, reply->len - 49 - 5 - 6);
    g_assert_cmpstr(text, ==, "version 7 of the protocol instead of 2");
    g_thread_join(thread);
    assert_says(job.errors[0], "refused: version 7");
    clear_job(&job);
}

/* A server at the port that is no hub. */
static gpointer serve_nonsense(gpointer data) {
    GSocket *listener = data;
    g_autoptr(GSocket) socket = g_socket_accept(listener, NULL, NULL);

    g_assert_nonnull(socket);
    (void)g_socket_send(socket, "SSH-2.0-OpenSSH_9.2\r\n", 21, NULL, NULL);
    g_usleep(200 * 1000);
    return NULL;
}

/* Rank 1 meets `serve` in the place of rank 0. */
static void assert_recognised(GThreadFunc serve) {
    Job job;
    GThread *thread;

    init_job(&job, 2, LONG_S, NULL);
    thread = g_thread_new("server", serve, job.listener);
    run_ranks(&job, 1, 1);
    assert_says(job.errors[1], "is no rank 0 of a refit job");
    g_thread_join(thread);
    clear_job(&job);
}

static void another_server_at_the_port_is_recognised(void) {
    assert_recognised(serve_nonsense);
}

/* A hub that does not know the token, and accepts everybody. */
static gpointer serve_falsely(gpointer data) {
    GSocket *listener = data;
    g_autoptr(GSocket) socket = g_socket_accept(listener, NULL, NULL);
    g_autoptr(GByteArray) out = g_byte_array_new();
    guint8 zeros[32] = {0};
    char hello[256];

    refit_body_put_u32(out, 12 + 32);
    g_byte_array_append(out, (const guint8 *)"\1refit-rv\0\0\0\2", 13);
    g_byte_array_append(out, zeros, 32);
    (void)g_socket_send(socket, (const char *)out->data, out->len, NULL, NULL);
    (void)g_socket_receive(socket, hello, sizeof hello, NULL, NULL);
    g_byte_array_set_size(out, 0);
    refit_body_put_u32(out, 32);
    g_byte_array_append(out, (const guint8 *)"\3", 1);
    g_byte_array_append(out, zeros, 32);
    (void)g_socket_send(socket, (const char *)out->data, out->len, NULL, NULL);
    g_usleep(200 * 1000);
    return NULL;
}

static void a_hub_without_the_token_is_recognised(void) {
    assert_recognised(serve_falsely);
}

/* The next frame of the hub, which must be of `size` bytes with its header and of that type. */
static void expect_frame(GSocket *socket, char *frame, gsize size, char type) {
    g_socket_set_timeout(socket, 10);
    g_assert_cmpint(g_socket_receive(socket, frame, size, NULL, NULL), ==, (gssize)size);
    g_assert_cmpint(frame[4], ==, type);
}

/* A hub that hangs up on the first peer instead of welcoming it, as one that is hard pressed may.
 */
static gpointer serve_half(gpointer data) {
    GSocket *listener = data;
    g_autoptr(GSocket) socket = g_socket_accept(listener, NULL, NULL);
    g_autoptr(GByteArray) out = g_byte_array_new();
    char hello[256];

    refit_body_put_u32(out, 12 + 32);
    g_byte_array_append(out, (const guint8 *)"\1refit-rv\0\0\0\2", 13);
    g_byte_array_set_size(out, 12 + 32 + 5);
    (void)g_socket_send(socket, (const char *)out->data, out->len, NULL, NULL);
    g_assert_cmpint(g_socket_receive(socket, hello, sizeof hello, NULL, NULL), >, 0);
    return NULL;
}

static gpointer serve_half_then_well(gpointer data) {
    Rank *rank = data;

    serve_half(rank->job->listener);
    return run_rank(rank);
}

static void a_lost_greeting_is_tried_again(void) {
    Job job;
    Rank rank = {&job, 0};
    GThread *thread;

    init_job(&job, 2, LONG_S, exchange_everything);
    thread = g_thread_new("server", serve_half_then_well, &rank);
    run_ranks(&job, 1, 1);
    g_thread_join(thread);
    g_assert_no_error(job.errors[0]);
    g_assert_no_error(job.errors[1]);
    clear_job(&job);
}

/* Rank 1 of `job` on a connection that has had its challenge: proves the token by hand. */
static void greet_by_hand(const Job *job, GSocket *socket, const char *challenge) {
    g_autoptr(GByteArray) hello = g_byte_array_new();
    RefitProofInput input = {.token = TOKEN, .world = job->world, .rank = 1};
    guint8 proof[REFIT_PROOF_BYTES];
    char welcome[37];
    const char type = REFIT_FRAME_HELLO;

    memcpy(input.hub_nonce, challenge + 17, REFIT_NONCE_BYTES);
    refit_proof_make(&input, FALSE, proof);
    refit_body_put_u32(hello, 12 + 8 + REFIT_NONCE_BYTES + REFIT_PROOF_BYTES + 2);
    g_byte_array_append(hello, (const guint8 *)&type, 1);
    refit_body_put_greeting(hello);
    refit_body_put_u32(hello, input.world);
    refit_body_put_u32(hello, input.rank);
    g_byte_array_append(hello, input.peer_nonce, REFIT_NONCE_BYTES);
    g_byte_array_append(hello, proof, sizeof proof);
    refit_body_put_text(hello, "", REFIT_HOST_BYTES);
    g_socket_send(socket, (const char *)hello->data, hello->len, NULL, NULL);
    expect_frame(socket, welcome, sizeof welcome, REFIT_FRAME_WELCOME);
}

/* Rank 1 of `job`, which joins by hand and then sends `bytes`. */
static void join_and_send(const Job *job, const char *bytes, gsize size) {
    g_autoptr(GSocket) socket = intrude(job, NULL, 0);
    char challenge[49];

    expect_frame(socket, challenge, sizeof challenge, REFIT_FRAME_CHALLENGE);
    greet_by_hand(job, socket, challenge);
    g_socket_send(socket, bytes, size, NULL, NULL);
    g_byte_array_unref(read_all(socket)); /* until the hub hangs up */
}

/* All ranks of a large job may be about to greet at the same time. */
static void ranks_that_come_together_are_all_heard(void) {
    enum { CROWD = 150 };
    GSocket *sockets[CROWD];
    char challenges[CROWD][49];
    Job job;
    Rank rank = {&job, 0};
    GThread *thread;

    init_job(&job, CROWD + 1, LONG_S, NULL);
    thread = g_thread_new("rank", run_rank, &rank);
    for (guint i = 0; i < CROWD; i++)
        sockets[i] = intrude(&job, NULL, 0);
    for (guint i = CROWD; i-- > 0;)
        expect_frame(sockets[i], challenges[i], sizeof challenges[i], REFIT_FRAME_CHALLENGE);
    greet_by_hand(&job, sockets[0], challenges[0]);
    g_socket_send(sockets[0], "\0\0\0\0\xb", 5, NULL, NULL); /* leaves */
    g_thread_join(thread);
    assert_says(job.errors[0], "rank 1 left before all ranks had joined");
    for (guint i = 0; i < CROWD; i++)
        g_object_unref(sockets[i]);
    clear_job(&job);
}

/* With one descriptor less than it takes. */
static void a_hub_that_cannot_accept_says_so(void) {
    struct rlimit before, lowered;
    g_autoptr(GSocket) socket = NULL;
    int free_fd;
    Job job;

    init_job(&job, 2, SHORT_S, NULL);
    socket = intrude(&job, NULL, 0); /* waits in the listener's queue */
    free_fd = dup(0);
    close(free_fd);
    g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &before), ==, 0);
    lowered = before;
    lowered.rlim_cur = (rlim_t)free_fd + 3; /* for rank 0's own connection, and to watch it */
    g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &lowered), ==, 0);
    run_ranks(&job, 0, 1);
    g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &before), ==, 0);
    assert_says(job.errors[0], "rank 1 of 2 did not join within ");
    assert_says(job.errors[0], "rank 0 cannot accept more connections: ");
    assert_says(job.errors[0], "oo many open files");
    clear_job(&job);
}

static void members_that_send_nonsense_end_the_job_by_name(void) {
    static const struct {
        const char *bytes;
        gsize size;
    } rows[] = {
        {"\xFF\xFF\xFF\xFF\5", 5},                         /* too long */
        {"\0\0\0\0\x63", 5},                               /* of no type */
        {"\0\0\0\0\6", 5},                                 /* what only the hub sends */
        {"\0\0\0\0\5", 5},                                 /* an exchange of nothing */
        {"\0\0\0\0\7", 5},                                 /* a failure without a text */
        {"\0\0\0\16\5\0\0\0\0\0\0\0\x63\0\0\0\0\0\0", 19}, /* an unknown operation */
        {"\0\0\0\16\5\0\0\0\7\0\0\0\1\0\0\0\0\0\0", 19},   /* of the future */
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        Job job;
        Rank rank = {&job, 0};
        GThread *thread;

        init_job(&job, 2, LONG_S, NULL);
        thread = g_thread_new("rank", run_rank, &rank);
        join_and_send(&job, rows[i].bytes, rows[i].size);
        g_thread_join(thread);
        g_assert_cmpstr(job.errors[0]->message, ==,
                        "rank 1: it sent what is no message of the rendezvous");
        clear_job(&job);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rendezvous/all-ranks-see-all-records", all_ranks_see_all_records);
    g_test_add_func("/rendezvous/one-rank-meets-itself", one_rank_meets_itself);
    g_test_add_func("/rendezvous/records-that-differ-name-the-first",
                    records_that_differ_name_the_first);
    g_test_add_func("/rendezvous/errors-are-agreed-upon", errors_are_agreed_upon);
    g_test_add_func("/rendezvous/ranks-at-different-places-are-told",
                    ranks_at_different_places_are_told);
    g_test_add_func("/rendezvous/sizes-must-be-equal", sizes_must_be_equal);
    g_test_add_func("/rendezvous/ranks-that-never-start-are-named",
                    ranks_that_never_start_are_named);
    g_test_add_func("/rendezvous/without-rank-0-others-say-where-they-looked",
                    without_rank_0_others_say_where_they_looked);
    g_test_add_func("/rendezvous/absent-from-an-exchange-is-named",
                    absent_from_an_exchange_is_named);
    g_test_add_func("/rendezvous/collections-do-without-the-late", collections_do_without_the_late);
    g_test_add_func("/rendezvous/collections-need-rank-0", collections_need_rank_0);
    g_test_add_func("/rendezvous/spreading-waits-for-rank-0-no-longer-than-stated",
                    spreading_waits_for_rank_0_no_longer_than_stated);
    g_test_add_func("/rendezvous/what-is-spread-has-the-stated-size",
                    what_is_spread_has_the_stated_size);
    g_test_add_func("/rendezvous/another-token-is-refused", another_token_is_refused);
    g_test_add_func("/rendezvous/another-world-is-refused", another_world_is_refused);
    g_test_add_func("/rendezvous/a-rank-beyond-the-world-is-refused",
                    a_rank_beyond_the_world_is_refused);
    g_test_add_func("/rendezvous/a-second-copy-of-a-rank-is-refused",
                    a_second_copy_of_a_rank_is_refused);
    g_test_add_func("/rendezvous/strangers-do-not-keep-ranks-from-meeting",
                    strangers_do_not_keep_ranks_from_meeting);
    g_test_add_func("/rendezvous/a-crowd-of-strangers-is-bounded", a_crowd_of_strangers_is_bounded);
    g_test_add_func("/rendezvous/another-version-is-told", another_version_is_told);
    g_test_add_func("/rendezvous/another-server-at-the-port-is-recognised",
                    another_server_at_the_port_is_recognised);
    g_test_add_func("/rendezvous/a-hub-without-the-token-is-recognised",
                    a_hub_without_the_token_is_recognised);
    g_test_add_func("/rendezvous/a-lost-greeting-is-tried-again", a_lost_greeting_is_tried_again);
    g_test_add_func("/rendezvous/ranks-that-come-together-are-all-heard",
                    ranks_that_come_together_are_all_heard);
    g_test_add_func("/rendezvous/a-hub-that-cannot-accept-says-so",
                    a_hub_that_cannot_accept_says_so);
    g_test_add_func("/rendezvous/members-that-send-nonsense-end-the-job-by-name",
                    members_that_send_nonsense_end_the_job_by_name);
    return g_test_run();
}
