/*
 * How a rank comes to the rendezvous: addresses, the listening socket of rank 0, and connections of
 * the others, which try again as long as rank 0 may yet start and then prove the token, as the hub
 * does. Cost: a few small frames.
 */

#include "gpu/rendezvous/refit-rendezvous-private.h"

#include <string.h>

/* All ranks of a large job come at the same time. The system may allow fewer (net.core.somaxconn);
 * TCP tries again then. */
enum { BACKLOG = 8192 };
#define CONNECT_AGAIN_S 0.05

/* ---- addresses ---- */

static GInetAddress *resolve(const char *address, GError **error) {
    GInetAddress *number = g_inet_address_new_from_string(address);
    g_autoptr(GResolver) resolver = NULL;
    GList *found;

    if (number != NULL)
        return number;
    resolver = g_resolver_get_default();
    found = g_resolver_lookup_by_name(resolver, address, NULL, error);
    if (found == NULL)
        return NULL;
    number = g_object_ref(G_INET_ADDRESS(found->data));
    g_resolver_free_addresses(found);
    return number;
}

GSocket *refit_rendezvous_listen(const char *address, guint port, guint *port_out, GError **error) {
    g_autoptr(GError) local = NULL;
    g_autoptr(GInetAddress) inet = resolve(address, &local);
    g_autoptr(GSocketAddress) bound = NULL, actual = NULL;
    g_autoptr(GSocket) socket = NULL;

    if (inet != NULL && g_inet_address_get_is_any(inet)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "rank 0 cannot listen on %s, which is all addresses of the machine; state one",
                    address);
        return NULL;
    }
    if (port > G_MAXUINT16) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "port %u is above 65535", port);
        return NULL;
    }
    if (inet != NULL) {
        bound = g_inet_socket_address_new(inet, (guint16)port);
        socket = g_socket_new(g_inet_address_get_family(inet), G_SOCKET_TYPE_STREAM,
                              G_SOCKET_PROTOCOL_TCP, &local);
    }
    if (socket != NULL) {
        g_socket_set_listen_backlog(socket, BACKLOG);
        if (g_socket_bind(socket, bound, TRUE, &local) && g_socket_listen(socket, &local))
            actual = g_socket_get_local_address(socket, &local);
    }
    if (actual == NULL) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "rank 0 cannot listen on %s port %u: %s; the address must be one of its own "
                    "machine and the port free",
                    address, port, local->message);
        return NULL;
    }
    if (port_out != NULL)
        *port_out = g_inet_socket_address_get_port(G_INET_SOCKET_ADDRESS(actual));
    return g_steal_pointer(&socket);
}

/* One try; NULL: not now. */
static GSocket *try_connect(const RefitRendezvousOptions *options, gint64 deadline_us,
                            GError **error) {
    g_autoptr(GInetAddress) inet = resolve(options->address, error);
    g_autoptr(GSocketAddress) address = NULL;
    g_autoptr(GSocket) socket = NULL;
    g_autoptr(GError) local = NULL;
    gint64 left_us;

    if (inet == NULL)
        return NULL;
    address = g_inet_socket_address_new(inet, (guint16)options->port);
    socket = g_socket_new(g_inet_address_get_family(inet), G_SOCKET_TYPE_STREAM,
                          G_SOCKET_PROTOCOL_TCP, error);
    if (socket == NULL)
        return NULL;
    g_socket_set_blocking(socket, FALSE);
    if (g_socket_connect(socket, address, NULL, &local))
        return g_steal_pointer(&socket);
    if (!g_error_matches(local, G_IO_ERROR, G_IO_ERROR_PENDING)) {
        g_propagate_error(error, g_steal_pointer(&local));
        return NULL;
    }
    left_us = MAX(deadline_us - g_get_monotonic_time(), 1);
    if (!g_socket_condition_timed_wait(socket, G_IO_OUT, left_us, NULL, error) ||
        !g_socket_check_connect_result(socket, error))
        return NULL;
    return g_steal_pointer(&socket);
}

/* ---- joining ---- */

/* The next frame of the hub before the proofs are made. 0: none in time, or the connection closed,
 * which need not be for good. */
static int await_greeting(RefitRendezvous *rendezvous, gint64 deadline_us, GByteArray **body_out,
                          GError **error) {
    g_autoptr(GError) lost = NULL;

    for (;;) {
        gboolean open = refit_wire_pump(rendezvous->wire, lost == NULL ? &lost : NULL);
        int type = refit_wire_take(rendezvous->wire, body_out);

        if (type < 0)
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                        "what answers at %s is no rank 0 of a refit job", rendezvous->place);
        if (type != 0)
            return type;
        if (!open || g_get_monotonic_time() >= deadline_us) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "what listens there %s",
                        open ? "does not answer" : "closed the connection");
            return 0;
        }
        refit_wire_wait(rendezvous->wire, deadline_us);
    }
}

static gboolean not_refit(const RefitRendezvous *rendezvous, GError **error) {
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                "what answers at %s is no rank 0 of a refit job", rendezvous->place);
    return FALSE;
}

/* Proves the token and asks for the hub's proof. *again_out: FALSE came of a connection that closed
 * or was too slow, which need not be for good. */
static gboolean greet(RefitRendezvous *rendezvous, const char *token, const char *host,
                      GByteArray *challenge, gint64 deadline_us, gboolean *again_out,
                      GError **error) {
    RefitBodyReader reader = {.at = challenge->data, .left = challenge->len};
    RefitProofInput input = {.token = token, .world = rendezvous->world, .rank = rendezvous->rank};
    g_autoptr(GByteArray) hello = g_byte_array_new(), reply = NULL;
    const guint8 *nonce;
    guint32 version;
    int type;

    if (!refit_body_get_greeting(&reader, &version))
        return not_refit(rendezvous, error);
    if (version != REFIT_RENDEZVOUS_VERSION) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "rank 0 at %s speaks version %u of the protocol, rank %u version %u: all ranks "
                    "must run the same program",
                    rendezvous->place, version, rendezvous->rank, REFIT_RENDEZVOUS_VERSION);
        return FALSE;
    }
    nonce = refit_body_get_bytes(&reader, REFIT_NONCE_BYTES);
    if (nonce == NULL)
        return not_refit(rendezvous, error);
    memcpy(input.hub_nonce, nonce, REFIT_NONCE_BYTES);
    if (!refit_nonce_draw(input.peer_nonce, error))
        return FALSE;
    refit_body_put_hello(hello, &input, host != NULL ? host : "");
    refit_wire_send(rendezvous->wire, REFIT_FRAME_HELLO, hello);
    type = await_greeting(rendezvous, deadline_us, &reply, error);
    *again_out = type == 0;
    if (type <= 0)
        return FALSE;
    reader = (RefitBodyReader){.at = reply->data, .left = reply->len};
    if (type == REFIT_FRAME_REFUSE) {
        g_autoptr(GError) why = refit_body_get_error(&reader);

        if (why == NULL)
            return not_refit(rendezvous, error);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "rank 0 at %s refuses %s",
                    rendezvous->place, why->message);
        return FALSE;
    }
    nonce = refit_body_get_bytes(&reader, REFIT_PROOF_BYTES);
    if (type != REFIT_FRAME_WELCOME || nonce == NULL || !refit_proof_holds(&input, TRUE, nonce))
        return not_refit(rendezvous, error);
    rendezvous->wire->limit = REFIT_FRAME_HUB_LIMIT;
    return TRUE;
}

gboolean refit_rendezvous_connect(RefitRendezvous *rendezvous,
                                  const RefitRendezvousOptions *options, GError **error) {
    gint64 deadline_us = refit_deadline_us(options->timeout_s);

    for (;;) {
        g_autoptr(GError) local = NULL;
        GSocket *socket = try_connect(options, deadline_us, &local);

        if (socket != NULL) {
            g_autoptr(GByteArray) challenge = NULL;
            int type;

            rendezvous->wire = refit_wire_new(socket, REFIT_FRAME_REFUSAL_LIMIT);
            type = await_greeting(rendezvous, deadline_us, &challenge, &local);
            if (type == REFIT_FRAME_CHALLENGE) {
                gboolean again = FALSE;

                if (greet(rendezvous, options->token, options->host, challenge,
                          refit_deadline_us(options->timeout_s), &again, &local))
                    return TRUE;
                if (!again) {
                    g_propagate_error(error, g_steal_pointer(&local));
                    return FALSE;
                }
            } else if (type != 0) {
                return not_refit(rendezvous, error);
            }
            g_clear_pointer(&rendezvous->wire, refit_wire_free);
        }
        if (refit_deadline_us(CONNECT_AGAIN_S) >= deadline_us) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                        "rank %u cannot reach rank 0 at %s within %g s: %s", rendezvous->rank,
                        rendezvous->place, options->timeout_s, local->message);
            return FALSE;
        }
        g_usleep((gulong)(CONNECT_AGAIN_S * G_USEC_PER_SEC));
    }
}
