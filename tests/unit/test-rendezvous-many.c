/*
 * A rendezvous of 8,192 ranks: rank 0 is real, its hub and all, and the others are connections that
 * one thread drives, which say what ranks say when they agree. All bytes that cross the hub's
 * connections are counted: those of an agreement are in proportion to the ranks, not to their
 * square. A machine that allows fewer open files, two for each rank here, has fewer ranks, and the
 * message says how many. Cost: some seconds, most of it for the system to make connections.
 */

#include "gpu/rendezvous/refit-rendezvous-private.h"
#include "model/base/refit-error.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define TOKEN "a token of this job"
#define LONG_S 20.0

enum {
    MANY = 8192,
    FEW = 512,
    ROUNDS = 4,         /* agreements */
    RECORD_BYTES = 56,  /* of a rank, as the executor's */
    VERDICT_BYTES = 16, /* likewise */
    AT_A_TIME = 256,    /* connections that are being made */
    OTHER_FILES = 64,
    EVENTS = 256
};

/* A rank of the crowd. */
typedef struct {
    RefitWire *wire;
    guint rank;
    guint32 number; /* of the exchange that it is in */
    gboolean watches_room;
    gboolean done;
} Light;

typedef struct {
    guint world, port;
    int epoll_fd;
    Light *lights; /* per rank; that of rank 0 stays empty */
    guint n_started, n_joining, n_done;
    guint64 joining_bytes,
        bytes; /* of all, from and to the hub: until all have joined, and after */
} Crowd;

static void send_frame(Crowd *crowd, Light *light, guint8 type, const GByteArray *body) {
    const guint size = REFIT_FRAME_HEADER_BYTES + (body != NULL ? body->len : 0);

    refit_wire_send(light->wire, type, body);
    if (light->number == 0)
        crowd->joining_bytes += size;
    else
        crowd->bytes += size;
}

static void greet(Crowd *crowd, Light *light, const GByteArray *challenge) {
    g_autoptr(GByteArray) hello = g_byte_array_new();
    RefitProofInput input = {.token = TOKEN, .world = crowd->world, .rank = light->rank};

    g_assert_cmpuint(challenge->len, ==, 12 + REFIT_NONCE_BYTES);
    memcpy(input.hub_nonce, challenge->data + 12, REFIT_NONCE_BYTES);
    refit_body_put_hello(hello, &input, "node0042");
    send_frame(crowd, light, REFIT_FRAME_HELLO, hello);
}

/* Exchange 0 is the joining; then each agreement is two. */
static void take_part(Crowd *crowd, Light *light) {
    const guint8 nothing[RECORD_BYTES] = {0};
    g_autoptr(GByteArray) body = g_byte_array_new();
    const gboolean joins = light->number == 0, collects = light->number % 2 == 1;

    if (light->number > 2 * ROUNDS) {
        send_frame(crowd, light, REFIT_FRAME_BYE, NULL);
        return;
    }
    refit_body_put_u32(body, light->number);
    refit_body_put_u32(body, joins      ? REFIT_EXCHANGE_AGREE
                             : collects ? REFIT_EXCHANGE_COLLECT
                                        : REFIT_EXCHANGE_SPREAD);
    refit_body_put_text(body, joins ? "join" : "executor", REFIT_WHAT_BYTES);
    refit_body_put_u32(body, (guint32)LONG_S * 1000);
    if (collects)
        g_byte_array_append(body, nothing, sizeof nothing);
    send_frame(crowd, light, REFIT_FRAME_EXCHANGE, body);
}

static void handle(Crowd *crowd, Light *light, int type, const GByteArray *body) {
    const guint size = REFIT_FRAME_HEADER_BYTES + body->len;

    if (light->number == 0)
        crowd->joining_bytes += size;
    else
        crowd->bytes += size;
    if (type == REFIT_FRAME_CHALLENGE) {
        greet(crowd, light, body);
    } else if (type == REFIT_FRAME_WELCOME) {
        crowd->n_joining--;
        take_part(crowd, light);
    } else if (type == REFIT_FRAME_RESULT) {
        if (light->number > 0 && light->number % 2 == 0)
            g_assert_cmpuint(body->data[body->len - 1], ==, (guint8)light->number);
        light->number++;
        take_part(crowd, light);
    } else {
        RefitBodyReader reader = {.at = body->data, .left = body->len};
        g_autoptr(GError) told = type > 0 ? refit_body_get_error(&reader) : NULL;

        g_error("rank %u got a frame of type %d: %s", light->rank, type,
                told != NULL ? told->message : "no error");
    }
}

static void watch(const Crowd *crowd, Light *light, int how) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = light}};

    light->watches_room = light->wire->out->len > 0;
    if (light->watches_room)
        event.events |= EPOLLOUT;
    g_assert_cmpint(epoll_ctl(crowd->epoll_fd, how, g_socket_get_fd(light->wire->socket), &event),
                    ==, 0);
}

static void serve(Crowd *crowd, Light *light) {
    gboolean open, again;

    do { /* to send is to read as well */
        open = refit_wire_pump(light->wire, NULL);
        again = FALSE;
        for (;;) {
            g_autoptr(GByteArray) body = NULL;
            int type = refit_wire_take(light->wire, &body);

            if (type == 0)
                break;
            handle(crowd, light, type, body);
            again = TRUE;
        }
    } while (open && again);
    if (light->number > 2 * ROUNDS && light->wire->out->len == 0) {
        g_clear_pointer(&light->wire, refit_wire_free);
        crowd->n_done++;
        return;
    }
    g_assert_true(open);
    if (light->watches_room != (light->wire->out->len > 0))
        watch(crowd, light, EPOLL_CTL_MOD);
}

static void start_next(Crowd *crowd) {
    g_autoptr(GSocketAddress) address =
        g_inet_socket_address_new_from_string("127.0.0.1", crowd->port);
    g_autoptr(GError) error = NULL;
    GSocket *socket =
        g_socket_new(G_SOCKET_FAMILY_IPV4, G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_TCP, &error);
    Light *light = &crowd->lights[++crowd->n_started];

    g_assert_no_error(error);
    g_socket_connect(socket, address, NULL, &error);
    g_assert_no_error(error);
    light->rank = crowd->n_started;
    light->wire = refit_wire_new(socket, REFIT_FRAME_HUB_LIMIT);
    crowd->n_joining++;
    watch(crowd, light, EPOLL_CTL_ADD);
}

static gpointer run_crowd(gpointer data) {
    Crowd *crowd = data;
    struct epoll_event events[EVENTS];

    while (crowd->n_done + 1 < crowd->world) {
        int n;

        while (crowd->n_started + 1 < crowd->world && crowd->n_joining < AT_A_TIME)
            start_next(crowd);
        n = epoll_wait(crowd->epoll_fd, events, EVENTS, 1000);
        for (int i = 0; i < n; i++)
            serve(crowd, events[i].data.ptr);
    }
    return NULL;
}

/* Rank 0 hears all and tells all, as an agreement of the executor does. */
static void agree(RefitRendezvous *rendezvous, guint round) {
    const guint world = refit_rendezvous_world(rendezvous);
    const guint8 mine[RECORD_BYTES] = {7};
    g_autofree guint8 *all = g_malloc0((gsize)world * RECORD_BYTES);
    g_autofree guint8 *came = g_malloc0(world);
    guint8 verdict[VERDICT_BYTES];
    g_autoptr(GError) error = NULL;

    g_assert_true(refit_rendezvous_collect(rendezvous, "executor", mine, sizeof mine, all, came,
                                           LONG_S, &error));
    g_assert_cmpuint(all[0], ==, 7);
    g_assert_null(memchr(came, 0, world));
    memset(verdict, (int)(2 * round + 2), sizeof verdict);
    g_assert_true(
        refit_rendezvous_spread(rendezvous, "executor", verdict, sizeof verdict, LONG_S, &error));
    g_assert_no_error(error);
}

/* Bytes of one agreement between so many ranks, through the hub. */
static double measure(guint world) {
    Crowd crowd = {.world = world, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    RefitRendezvousOptions options = {
        .world = world, .address = "127.0.0.1", .token = TOKEN, .timeout_s = LONG_S};
    g_autoptr(GError) error = NULL;
    g_autoptr(GSocket) listener = refit_rendezvous_listen("127.0.0.1", 0, &crowd.port, &error);
    g_autofree Light *lights = g_new0(Light, world);
    gint64 began_us = g_get_monotonic_time(), joined_us, ended_us;
    RefitRendezvous *rendezvous;
    GThread *thread;

    g_assert_no_error(error);
    crowd.lights = lights;
    thread = g_thread_new("crowd", run_crowd, &crowd);
    rendezvous = refit_rendezvous_new(&options, listener, &error);
    g_assert_no_error(error);
    joined_us = g_get_monotonic_time();
    for (guint round = 0; round < ROUNDS; round++)
        agree(rendezvous, round);
    ended_us = g_get_monotonic_time();
    refit_rendezvous_free(rendezvous);
    g_thread_join(thread);
    close(crowd.epoll_fd);
    g_test_message("%u ranks: joining %.1f bytes of each in %.2f s; an agreement %.1f bytes of "
                   "each, %.0f of all, in %.3f s",
                   world, (double)crowd.joining_bytes / (world - 1),
                   (double)(joined_us - began_us) / G_USEC_PER_SEC,
                   (double)crowd.bytes / ROUNDS / (world - 1), (double)crowd.bytes / ROUNDS,
                   (double)(ended_us - joined_us) / G_USEC_PER_SEC / ROUNDS);
    return (double)crowd.bytes / ROUNDS;
}

/* At most as many ranks as this process may have connections for. */
static guint allowed(guint ranks) {
    const rlim_t wanted = 2 * (rlim_t)ranks + OTHER_FILES;
    struct rlimit limit;

    g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = MIN(limit.rlim_max, wanted);
        g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &limit), ==, 0);
    }
    if (limit.rlim_cur >= wanted)
        return ranks;
    ranks = ((guint)limit.rlim_cur - OTHER_FILES) / 2;
    g_test_message("only %u ranks: this machine allows %u open files", ranks,
                   (guint)limit.rlim_cur);
    return ranks;
}

static void bytes_are_in_proportion_to_ranks(void) {
    const guint many = allowed(MANY);
    const double few_bytes = measure(FEW), many_bytes = measure(many);

    g_assert_cmpuint(many, >, FEW);
    /* A record, its frame and a verdict, each once from or to each rank. */
    g_assert_cmpfloat(many_bytes, <, 200.0 * many);
    g_assert_cmpfloat(many_bytes, >, (double)(RECORD_BYTES + VERDICT_BYTES) * (many - 1));
    g_assert_cmpfloat(many_bytes / (many - 1), <=, 1.01 * few_bytes / (FEW - 1));
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/rendezvous-many/bytes-of-an-agreement-are-in-proportion-to-ranks",
                    bytes_are_in_proportion_to_ranks);
    return g_test_run();
}
