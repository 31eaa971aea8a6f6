/*
 * The hub of a rendezvous: one thread of rank 0's process that talks to all ranks, its own among
 * them through a socket pair, so that no memory is shared with the thread that computes.
 *
 * Strangers can connect. Until a peer has proven the token it may send one small frame within
 * GREETING_S, and only so many are heard at a time; what else they do closes their connection and
 * nothing more. Of members, each has at most one record in the exchange under way. Cost: what is
 * sent and received; an event costs the same however many ranks there are, so an exchange costs as
 * much as there are ranks.
 */

#include "gpu/rendezvous/refit-rendezvous-hub.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* All ranks may come at the same time. */
enum {
    LEAST_STRANGERS = 64,
    STRANGERS_PER_RANK = 2,
    MAX_REFUSALS = 4,
    MAX_EVENTS = 256 /* heard of in a turn */
};
#define GREETING_S 5.0     /* for a peer to greet, and for a refused one to read why */
#define ACCEPT_AGAIN_S 0.1 /* after the system would not accept */

static void free_connection(gpointer data) {
    RefitHubConnection *connection = data;

    refit_wire_free(connection->wire);
    g_free(connection->from);
    g_free(connection);
}

static RefitHub *new_hub(const RefitHubOptions *options) {
    RefitHub *hub = g_new0(RefitHub, 1);

    hub->world = options->world;
    hub->token = g_strdup(options->token);
    hub->timeout_s = options->timeout_s;
    hub->grace_s = MIN(REFIT_RENDEZVOUS_GRACE_S, options->timeout_s);
    hub->listener = g_object_ref(options->listener);
    hub->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    hub->connections = g_ptr_array_new_with_free_func(free_connection);
    g_queue_init(&hub->others);
    hub->others_us = G_MAXINT64;
    hub->outgoing = g_ptr_array_new();
    hub->dropped = g_ptr_array_new_with_free_func(free_connection);
    hub->members = g_new0(RefitHubConnection *, hub->world);
    hub->hosts = g_new0(char *, hub->world);
    hub->records = g_new0(GBytes *, hub->world);
    hub->failed = g_new0(guint8, hub->world);
    hub->gone = g_new0(guint8, hub->world);
    hub->answers = g_new0(guint8, hub->world);
    hub->left = g_new0(guint8, hub->world);
    hub->refusals = g_ptr_array_new_with_free_func(g_free);
    hub->complaints = g_ptr_array_new_with_free_func(g_free);
    hub->wait_s = hub->timeout_s;
    hub->deadline_us = refit_deadline_us(hub->timeout_s); /* of the joining */
    return hub;
}

static void free_hub(RefitHub *hub) {
    refit_hub_clear_records(hub);
    g_ptr_array_unref(hub->connections);
    g_ptr_array_unref(hub->outgoing);
    g_ptr_array_unref(hub->dropped);
    if (hub->epoll_fd >= 0)
        close(hub->epoll_fd);
    g_ptr_array_unref(hub->refusals);
    g_ptr_array_unref(hub->complaints);
    g_object_unref(hub->listener);
    g_free(hub->accept_error);
    g_clear_error(&hub->failure);
    g_clear_error(&hub->verdict);
    g_free(hub->members);
    for (guint rank = 0; rank < hub->world; rank++)
        g_free(hub->hosts[rank]);
    g_free(hub->hosts);
    g_free(hub->records);
    g_free(hub->failed);
    g_free(hub->gone);
    g_free(hub->answers);
    g_free(hub->left);
    g_free(hub->token);
    g_free(hub);
}

/* ---- connections ---- */

static void set_deadline(RefitHub *hub, RefitHubConnection *connection, double seconds) {
    connection->deadline_us = refit_deadline_us(seconds);
    hub->others_us = MIN(hub->others_us, connection->deadline_us);
}

void refit_hub_send(RefitHub *hub, RefitHubConnection *connection, guint8 type,
                    const GByteArray *body) {
    refit_wire_send(connection->wire, type, body);
    if (!connection->queued)
        g_ptr_array_add(hub->outgoing, connection);
    connection->queued = TRUE;
}

static void remember_refusal(RefitHub *hub, const RefitHubConnection *connection, const char *why) {
    hub->n_refused++;
    if (hub->refusals->len < MAX_REFUSALS)
        g_ptr_array_add(hub->refusals, g_strdup_printf("%s from %s", why, connection->from));
}

/* Tells why, if the peer can be expected to understand, and leaves it time to read it: closing at
 * once could take the message along. */
static void refuse(RefitHub *hub, RefitHubConnection *connection, gboolean tell, const char *why) {
    g_autoptr(GError) error = g_error_new_literal(REFIT_ERROR, REFIT_ERROR_BACKEND, why);

    remember_refusal(hub, connection, why);
    if (tell)
        refit_hub_send_error(hub, connection, REFIT_FRAME_REFUSE, error);
    connection->state = REFIT_HUB_CLOSING;
    set_deadline(hub, connection, tell ? GREETING_S : 0);
}

static void lose_member(RefitHub *hub, guint rank) {
    hub->members[rank] = NULL;
    hub->n_staying -= hub->left[rank] == 0;
    if (hub->left[rank] != 0 || hub->failed[rank] != 0 || hub->verdict != NULL)
        return; /* what there is to know of it is known */
    hub->gone[rank] = 1;
    refit_hub_ask_all(hub);
}

/* `host` may be empty, or NULL. */
static void keep_host(RefitHub *hub, guint rank, const char *host) {
    g_free(hub->hosts[rank]);
    hub->hosts[rank] = host != NULL && host[0] != '\0' ? g_strdup(host) : NULL;
    hub->several_hosts |= hub->hosts[rank] != NULL && hub->hosts[0] != NULL &&
                          !g_str_equal(hub->hosts[rank], hub->hosts[0]);
}

static void greet(RefitHub *hub, RefitHubConnection *connection, GByteArray *body) {
    RefitBodyReader reader = {.at = body->data, .left = body->len};
    RefitProofInput input = {.token = hub->token};
    guint32 version = 0;
    gboolean known = refit_body_get_greeting(&reader, &version);
    guint8 own_proof[REFIT_PROOF_BYTES];
    const guint8 *nonce, *proof;
    g_autofree char *why = NULL, *host = NULL;
    g_autoptr(GByteArray) reply = NULL;

    input.world = refit_body_get_u32(&reader);
    input.rank = refit_body_get_u32(&reader);
    nonce = refit_body_get_bytes(&reader, REFIT_NONCE_BYTES);
    proof = refit_body_get_bytes(&reader, REFIT_PROOF_BYTES);
    host = refit_body_get_text(&reader);
    if (!known) {
        refuse(hub, connection, FALSE, "no greeting of a rank");
        return;
    }
    if (version != REFIT_RENDEZVOUS_VERSION)
        why = g_strdup_printf("version %u of the protocol instead of %u", version,
                              REFIT_RENDEZVOUS_VERSION);
    else if (reader.failed || reader.left > 0)
        why = g_strdup("a greeting that is no greeting");
    if (why != NULL) {
        refuse(hub, connection, TRUE, why);
        return;
    }
    memcpy(input.hub_nonce, connection->nonce, REFIT_NONCE_BYTES);
    memcpy(input.peer_nonce, nonce, REFIT_NONCE_BYTES);
    if (!refit_proof_holds(&input, FALSE, proof))
        why = g_strdup_printf("rank %u with another token", input.rank);
    else if (input.world != hub->world)
        why = g_strdup_printf("rank %u of %u ranks instead of %u", input.rank, input.world,
                              hub->world);
    else if (input.rank >= hub->world)
        why = g_strdup_printf("rank %u, which must be below %u", input.rank, hub->world);
    else if (hub->members[input.rank] != NULL || hub->left[input.rank] != 0 ||
             hub->gone[input.rank] != 0)
        why = g_strdup_printf("a second rank %u", input.rank);
    else if (hub->verdict != NULL)
        why = g_strdup_printf("rank %u, too late: %s", input.rank, hub->verdict->message);
    if (why != NULL) {
        refuse(hub, connection, TRUE, why);
        return;
    }
    connection->state = REFIT_HUB_MEMBER;
    connection->rank = input.rank;
    connection->wire->limit = REFIT_FRAME_PEER_LIMIT;
    g_queue_unlink(&hub->others, &connection->link);
    hub->members[input.rank] = connection;
    hub->n_staying++;
    hub->n_answered = 0;
    keep_host(hub, input.rank, host);
    refit_proof_make(&input, TRUE, own_proof);
    reply = g_byte_array_new();
    g_byte_array_append(reply, own_proof, sizeof own_proof);
    refit_hub_send(hub, connection, REFIT_FRAME_WELCOME, reply);
    if (hub->verdict_us > 0)
        refit_hub_send(hub, connection, REFIT_FRAME_QUERY, NULL);
}

static void leave(RefitHub *hub, guint rank) {
    hub->n_staying -= hub->left[rank] == 0;
    hub->left[rank] = 1;
    if (rank == 0)
        hub->end_us = refit_deadline_us(hub->verdict != NULL ? hub->grace_s : hub->timeout_s);
    if (hub->number == 0 && hub->verdict == NULL) {
        g_autofree char *name = refit_hub_name(hub, rank);

        refit_hub_fail(hub, g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND,
                                        "%s left before all ranks had joined", name));
    }
}

/* FALSE: not what a member sends. */
static gboolean serve_member(RefitHub *hub, guint rank, int type, GByteArray *body) {
    switch (type) {
    case REFIT_FRAME_EXCHANGE:
        return refit_hub_take_record(hub, rank, body);
    case REFIT_FRAME_FAIL: {
        RefitBodyReader reader = {.at = body->data, .left = body->len};
        GError *error = refit_body_get_error(&reader);

        if (error != NULL)
            refit_hub_fail_of_rank(hub, rank, error);
        return error != NULL;
    }
    case REFIT_FRAME_ANSWER:
        hub->answers[rank] = 1;
        return TRUE;
    case REFIT_FRAME_BYE:
        leave(hub, rank);
        return TRUE;
    default:
        return FALSE;
    }
}

/* All frames that have arrived. FALSE: the connection is of no more use. */
static gboolean serve(RefitHub *hub, RefitHubConnection *connection) {
    gboolean open = refit_wire_pump(connection->wire, NULL);

    while (connection->state != REFIT_HUB_CLOSING) {
        g_autoptr(GByteArray) body = NULL;
        int type = refit_wire_take(connection->wire, &body);

        if (type == 0)
            break;
        if (connection->state == REFIT_HUB_STRANGER && type == REFIT_FRAME_HELLO) {
            greet(hub, connection, body);
        } else if (connection->state == REFIT_HUB_STRANGER) {
            refuse(hub, connection, FALSE, "no greeting of a rank");
        } else if (type < 0 || !serve_member(hub, connection->rank, type, body)) {
            refit_hub_fail_of_rank(hub, connection->rank,
                                   g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND,
                                               "it sent what is no message of the rendezvous"));
            return FALSE;
        }
    }
    if (connection->state == REFIT_HUB_CLOSING) {
        g_byte_array_set_size(connection->wire->in, 0);
        if (connection->wire->out->len == 0)
            (void)g_socket_shutdown(connection->wire->socket, FALSE, TRUE, NULL);
    }
    if (!open && connection->state == REFIT_HUB_STRANGER)
        remember_refusal(hub, connection, "a connection that closed at once");
    return open;
}

/* What is left of it is freed at the end of the turn: others of this turn's events may name it. */
static void drop(RefitHub *hub, RefitHubConnection *connection) {
    if (connection->dropped)
        return;
    if (connection->state == REFIT_HUB_MEMBER)
        lose_member(hub, connection->rank);
    else
        g_queue_unlink(&hub->others, &connection->link);
    connection->dropped = TRUE;
    (void)epoll_ctl(hub->epoll_fd, EPOLL_CTL_DEL, g_socket_get_fd(connection->wire->socket), NULL);
    g_ptr_array_steal_index_fast(hub->connections, connection->place);
    if (connection->place < hub->connections->len)
        ((RefitHubConnection *)hub->connections->pdata[connection->place])->place =
            connection->place;
    g_ptr_array_add(hub->dropped, connection);
}

/* Asks to hear of what a connection has to say and, while something is queued, of room for it.
 * FALSE: the system does not hear of it. */
static gboolean watch(RefitHub *hub, RefitHubConnection *connection) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = connection}};
    const int how = connection->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

    if (connection->wire->out->len > 0)
        event.events |= EPOLLOUT;
    if (event.events == connection->watched)
        return TRUE;
    connection->watched = event.events;
    return epoll_ctl(hub->epoll_fd, how, g_socket_get_fd(connection->wire->socket), &event) == 0;
}

static void attend(RefitHub *hub, RefitHubConnection *connection) {
    if (!connection->dropped && !(serve(hub, connection) && watch(hub, connection)))
        drop(hub, connection);
}

static RefitHubConnection *add_connection(RefitHub *hub, GSocket *socket, char *from) {
    RefitHubConnection *connection = g_new0(RefitHubConnection, 1);

    connection->wire = refit_wire_new(socket, REFIT_FRAME_GREETING_LIMIT);
    connection->from = from;
    connection->place = hub->connections->len;
    connection->link.data = connection;
    g_queue_push_tail_link(&hub->others, &connection->link);
    set_deadline(hub, connection, GREETING_S);
    g_ptr_array_add(hub->connections, connection);
    return connection;
}

static char *name_of_peer(GSocket *socket) {
    g_autoptr(GSocketAddress) address = g_socket_get_remote_address(socket, NULL);

    if (!G_IS_INET_SOCKET_ADDRESS(address))
        return g_strdup("an unknown address");
    return g_inet_address_to_string(
        g_inet_socket_address_get_address(G_INET_SOCKET_ADDRESS(address)));
}

/* FALSE: nobody waits, or the system accepts no more for now. */
static gboolean accept_one(RefitHub *hub) {
    g_autoptr(GError) error = NULL;
    GSocket *socket = g_socket_accept(hub->listener, NULL, &error);
    RefitHubConnection *connection;
    g_autoptr(GByteArray) body = NULL;

    if (socket == NULL) {
        if (!g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK)) {
            hub->accept_us = refit_deadline_us(ACCEPT_AGAIN_S);
            g_free(hub->accept_error);
            hub->accept_error = g_steal_pointer(&error->message);
        }
        return FALSE;
    }
    if (hub->others.length >= LEAST_STRANGERS + STRANGERS_PER_RANK * hub->world)
        drop(hub, hub->others.head->data);
    connection = add_connection(hub, socket, name_of_peer(socket));
    if (!watch(hub, connection) || !refit_nonce_draw(connection->nonce, NULL)) {
        set_deadline(hub, connection, 0);
        return TRUE;
    }
    body = g_byte_array_new();
    refit_body_put_greeting(body);
    g_byte_array_append(body, connection->nonce, REFIT_NONCE_BYTES);
    refit_hub_send(hub, connection, REFIT_FRAME_CHALLENGE, body);
    return TRUE;
}

/* ---- time ---- */

/* Of connections that are no members. */
static void end_strangers(RefitHub *hub, gint64 now_us) {
    GList *next;

    if (now_us < hub->others_us)
        return;
    hub->others_us = G_MAXINT64;
    for (GList *at = hub->others.head; at != NULL; at = next) {
        RefitHubConnection *connection = at->data;

        next = at->next;
        if (now_us < connection->deadline_us) {
            hub->others_us = MIN(hub->others_us, connection->deadline_us);
            continue;
        }
        if (connection->state == REFIT_HUB_STRANGER)
            remember_refusal(hub, connection, "a connection that said nothing");
        drop(hub, connection);
    }
}

static void check_deadlines(RefitHub *hub) {
    gint64 now_us = g_get_monotonic_time();

    end_strangers(hub, now_us);
    if (hub->verdict != NULL)
        return;
    if (hub->verdict_us > 0) {
        if (now_us >= hub->verdict_us || refit_hub_all_answered(hub))
            refit_hub_send_verdict(hub);
    } else if (hub->deadline_us > 0 && now_us >= hub->deadline_us) {
        if (hub->operation == REFIT_EXCHANGE_COLLECT && hub->n_here > 0)
            refit_hub_conclude(hub);
        else
            refit_hub_say_absent(hub);
    }
}

/* Rank 0 has left, and all others too, or they have had their time. */
static gboolean is_done(const RefitHub *hub) {
    if (hub->end_us == 0)
        return hub->members[0] == NULL; /* cannot be, but would never end */
    if (g_get_monotonic_time() >= hub->end_us)
        return TRUE;
    if (hub->n_staying > 0)
        return FALSE;
    for (const GList *at = hub->others.head; at != NULL; at = at->next) {
        const RefitHubConnection *connection = at->data;

        if (connection->state == REFIT_HUB_CLOSING && connection->wire->out->len > 0)
            return FALSE;
    }
    return TRUE;
}

static int next_timeout_ms(const RefitHub *hub) {
    gint64 now_us = g_get_monotonic_time(), next_us = now_us + 10 * G_USEC_PER_SEC;
    const gint64 dates[] = {hub->verdict != NULL ? 0 : hub->verdict_us,
                            hub->verdict != NULL ? 0 : hub->deadline_us, hub->end_us,
                            hub->accept_us, hub->others_us};

    for (guint i = 0; i < G_N_ELEMENTS(dates); i++)
        if (dates[i] > 0)
            next_us = MIN(next_us, dates[i]);
    return (int)(MAX(next_us - now_us, 0) / 1000) + 1;
}

/* Whether the listener is heard; while the system accepts nothing, it would be without end. */
static gboolean watch_listener(const RefitHub *hub, gboolean hear) {
    struct epoll_event event = {.events = hear ? EPOLLIN : 0};

    return epoll_ctl(hub->epoll_fd, EPOLL_CTL_MOD, g_socket_get_fd(hub->listener), &event) == 0;
}

/* Those that wait, a few at a time, so that members are heard in between. */
static void accept_some(RefitHub *hub) {
    for (guint i = 0; i < MAX_EVENTS; i++)
        if (!accept_one(hub))
            break;
    if (hub->accept_us > 0)
        (void)watch_listener(hub, FALSE);
}

/* What this turn has queued; what follows from what is read meanwhile, the next turn sends. */
static void send_outgoing(RefitHub *hub) {
    g_autoptr(GPtrArray) outgoing = g_steal_pointer(&hub->outgoing);

    hub->outgoing = g_ptr_array_new();
    for (guint i = 0; i < outgoing->len; i++) {
        RefitHubConnection *connection = outgoing->pdata[i];

        connection->queued = FALSE;
        attend(hub, connection);
    }
}

static void run_turn(RefitHub *hub) {
    struct epoll_event events[MAX_EVENTS];
    const int timeout_ms = hub->outgoing->len > 0 ? 0 : next_timeout_ms(hub);
    const int n = epoll_wait(hub->epoll_fd, events, MAX_EVENTS, timeout_ms);

    if (hub->accept_us > 0 && g_get_monotonic_time() >= hub->accept_us) {
        hub->accept_us = 0;
        (void)watch_listener(hub, TRUE);
    }
    for (int i = 0; i < n; i++) /* none when interrupted */
        if (events[i].data.ptr == NULL)
            accept_some(hub);
        else
            attend(hub, events[i].data.ptr);
    refit_hub_check_complete(hub);
    check_deadlines(hub);
    send_outgoing(hub);
    refit_hub_check_complete(hub);
    check_deadlines(hub);
}

/* Frees what was dropped and is in no list any more. */
static void free_dropped(RefitHub *hub) {
    for (guint i = hub->dropped->len; i-- > 0;)
        if (!((RefitHubConnection *)hub->dropped->pdata[i])->queued)
            g_ptr_array_remove_index_fast(hub->dropped, i);
}

static gpointer run_hub(gpointer data) {
    RefitHub *hub = data;

    while (!is_done(hub)) {
        run_turn(hub);
        free_dropped(hub);
    }
    free_hub(hub);
    return NULL;
}

static gboolean watch_first(RefitHub *hub, GError **error) {
    struct epoll_event event = {.events = EPOLLIN};

    if (hub->epoll_fd >= 0 && watch(hub, hub->members[0]) &&
        epoll_ctl(hub->epoll_fd, EPOLL_CTL_ADD, g_socket_get_fd(hub->listener), &event) == 0)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "cannot watch connections: %s",
                g_strerror(errno));
    return FALSE;
}

GThread *refit_hub_start(const RefitHubOptions *options, GError **error) {
    RefitHub *hub = new_hub(options);
    RefitHubConnection *own = add_connection(hub, options->own, g_strdup("this process"));
    GThread *thread = NULL;

    g_queue_unlink(&hub->others, &own->link);
    own->state = REFIT_HUB_MEMBER;
    own->wire->limit = REFIT_FRAME_PEER_LIMIT;
    hub->members[0] = own;
    hub->n_staying = 1;
    keep_host(hub, 0, options->host);
    g_socket_set_blocking(hub->listener, FALSE);
    if (watch_first(hub, error))
        thread = g_thread_try_new("refit-rendezvous", run_hub, hub, error);
    if (thread == NULL)
        free_hub(hub);
    return thread;
}
