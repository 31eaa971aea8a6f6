/*
 * A rank's end of the rendezvous. One connection to the hub carries everything: an exchange sends
 * one frame and waits for one, and whatever the hub says in between (a question, a failure of
 * another rank) is handled on the way, so no thread is needed. A failure is kept: once a job has
 * failed, every further exchange says so at once.
 */

#include "gpu/rendezvous/refit-rendezvous-private.h"

#include <string.h>
#include <sys/socket.h>

/* Beyond its own time-out, a rank leaves the hub time to decide and to say what it has decided. */
#define HUB_MARGIN_S (2 * REFIT_RENDEZVOUS_GRACE_S)

/* ---- joining ---- */

static gboolean start_hub(RefitRendezvous *rendezvous, const RefitRendezvousOptions *options,
                          GSocket *listener, GError **error) {
    g_autoptr(GSocket) own_listener = NULL, ours = NULL, hubs = NULL;
    RefitHubOptions hub = {.world = options->world,
                           .token = options->token,
                           .timeout_s = options->timeout_s,
                           .host = options->host};
    int ends[2];

    if (listener == NULL) {
        own_listener = refit_rendezvous_listen(options->address, options->port, NULL, error);
        if (own_listener == NULL)
            return FALSE;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "no pair of sockets: %s",
                    g_strerror(errno));
        return FALSE;
    }
    ours = g_socket_new_from_fd(ends[0], error);
    hubs = ours != NULL ? g_socket_new_from_fd(ends[1], error) : NULL;
    if (hubs == NULL)
        return FALSE;
    rendezvous->wire = refit_wire_new(g_steal_pointer(&ours), REFIT_FRAME_HUB_LIMIT);
    hub.listener = listener != NULL ? listener : own_listener;
    hub.own = g_steal_pointer(&hubs);
    rendezvous->hub = refit_hub_start(&hub, error);
    return rendezvous->hub != NULL;
}

static gboolean check_options(const RefitRendezvousOptions *options, GError **error) {
    g_autofree char *why = NULL;

    if (options->world < 1 || options->world > REFIT_RENDEZVOUS_MAX_WORLD)
        why = g_strdup_printf("a job of %u ranks; 1 to %u can meet", options->world,
                              REFIT_RENDEZVOUS_MAX_WORLD);
    else if (options->rank >= options->world)
        why = g_strdup_printf("rank %u of %u; ranks count from 0", options->rank, options->world);
    else if (options->rank > 0 && (options->port < 1 || options->port > G_MAXUINT16))
        why = g_strdup_printf("port %u of rank 0; ports are 1 to 65535", options->port);
    else if (strlen(options->token) < REFIT_RENDEZVOUS_MIN_TOKEN)
        why = g_strdup_printf("a token of %u bytes; give it at least %u",
                              (guint)strlen(options->token), REFIT_RENDEZVOUS_MIN_TOKEN);
    else if (!(options->timeout_s > 0) || options->timeout_s > 1e6)
        why = g_strdup_printf("a time-out of %g s; it must be above 0 and at most 1000000",
                              options->timeout_s);
    if (why != NULL)
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID, why);
    return why == NULL;
}

RefitRendezvous *refit_rendezvous_new(const RefitRendezvousOptions *options, GSocket *listener,
                                      GError **error) {
    g_autoptr(RefitRendezvous) rendezvous = NULL;
    gboolean joined;

    if (options->tells_out != NULL)
        *options->tells_out = TRUE;
    if (!check_options(options, error))
        return NULL;
    rendezvous = g_new0(RefitRendezvous, 1);
    rendezvous->rank = options->rank;
    rendezvous->world = options->world;
    rendezvous->timeout_s = options->timeout_s;
    rendezvous->deputy = MIN(1, options->world - 1);
    rendezvous->place = g_strdup_printf(strchr(options->address, ':') != NULL ? "[%s]:%u" : "%s:%u",
                                        options->address, options->port);
    if (!(options->rank == 0 ? start_hub(rendezvous, options, listener, error)
                             : refit_rendezvous_connect(rendezvous, options, error)))
        return NULL;
    joined = refit_rendezvous_barrier(rendezvous, "join", error);
    if (options->tells_out != NULL)
        *options->tells_out = refit_rendezvous_tells(rendezvous);
    if (!joined)
        return NULL;
    return g_steal_pointer(&rendezvous);
}

void refit_rendezvous_free(RefitRendezvous *rendezvous) {
    if (rendezvous == NULL)
        return;
    if (rendezvous->wire != NULL) {
        gint64 deadline_us = refit_deadline_us(REFIT_RENDEZVOUS_GRACE_S);

        refit_wire_send(rendezvous->wire, REFIT_FRAME_BYE, NULL);
        while (refit_wire_pump(rendezvous->wire, NULL) && rendezvous->wire->out->len > 0 &&
               g_get_monotonic_time() < deadline_us)
            refit_wire_wait(rendezvous->wire, deadline_us);
        refit_wire_free(rendezvous->wire);
    }
    if (rendezvous->hub != NULL)
        g_thread_join(rendezvous->hub);
    g_clear_pointer(&rendezvous->result, g_byte_array_unref);
    g_clear_error(&rendezvous->failure);
    g_free(rendezvous->place);
    g_free(rendezvous);
}

guint refit_rendezvous_rank(const RefitRendezvous *rendezvous) {
    return rendezvous->rank;
}

guint refit_rendezvous_world(const RefitRendezvous *rendezvous) {
    return rendezvous->world;
}

/* ---- exchanges ---- */

static void lose_hub(RefitRendezvous *rendezvous, const char *how) {
    if (rendezvous->failure != NULL)
        return;
    rendezvous->teller = rendezvous->deputy;
    rendezvous->failure =
        g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND, "rank 0 at %s %s", rendezvous->place, how);
}

static void handle(RefitRendezvous *rendezvous, int type, GByteArray *body) {
    RefitBodyReader reader = {.at = body->data, .left = body->len};

    if (type == REFIT_FRAME_QUERY) {
        refit_wire_send(rendezvous->wire, REFIT_FRAME_ANSWER, NULL);
    } else if (type == REFIT_FRAME_ABORT) {
        if (rendezvous->failure == NULL) {
            rendezvous->failure = refit_body_get_error(&reader);
            rendezvous->teller = refit_body_get_u32(&reader);
        }
        if (rendezvous->failure == NULL)
            lose_hub(rendezvous, "sent what is no message of the rendezvous");
    } else if (type == REFIT_FRAME_RESULT && rendezvous->result == NULL &&
               refit_body_get_u32(&reader) == rendezvous->number && !reader.failed) {
        rendezvous->result = g_byte_array_new();
        g_byte_array_append(rendezvous->result, reader.at, (guint)reader.left);
    } else {
        lose_hub(rendezvous, "sent what is no message of the rendezvous");
    }
}

/*
 * All that has arrived; never waits. FALSE: a rank has failed. A result is taken one at a time: the
 * next one comes only after this rank's next record, unless it was called absent. Sending an answer
 * may read what comes next, so after one it looks again.
 */
static gboolean pump(RefitRendezvous *rendezvous) {
    gboolean open;

    do {
        open = refit_wire_pump(rendezvous->wire, NULL);
        while (rendezvous->failure == NULL && rendezvous->result == NULL) {
            g_autoptr(GByteArray) body = NULL;
            int type = refit_wire_take(rendezvous->wire, &body);

            if (type == 0)
                break;
            if (type < 0)
                lose_hub(rendezvous, "sent what is no message of the rendezvous");
            else
                handle(rendezvous, type, body);
        }
    } while (open && rendezvous->wire->out->len > 0 &&
             g_socket_condition_check(rendezvous->wire->socket, G_IO_OUT) != 0);
    if (!open && rendezvous->result == NULL)
        lose_hub(rendezvous, "ended without a word");
    return rendezvous->failure == NULL;
}

/* The result of an exchange, with a reader over it. Free with g_byte_array_unref. */
static GByteArray *exchange(RefitRendezvous *rendezvous, RefitExchangeOperation operation,
                            const char *what, const void *record, gsize size, double timeout_s,
                            RefitBodyReader *reader_out, GError **error) {
    g_autoptr(GByteArray) body = g_byte_array_new();
    gint64 deadline_us = refit_deadline_us(timeout_s + HUB_MARGIN_S);
    GByteArray *result;

    g_return_val_if_fail(size <= REFIT_RENDEZVOUS_MAX_RECORD, NULL);
    refit_body_put_u32(body, rendezvous->number);
    refit_body_put_u32(body, (guint32)operation);
    refit_body_put_text(body, what, REFIT_WHAT_BYTES);
    refit_body_put_u32(body, (guint32)(timeout_s * 1000));
    if (size > 0)
        g_byte_array_append(body, record, (guint)size);
    if (rendezvous->failure == NULL)
        refit_wire_send(rendezvous->wire, REFIT_FRAME_EXCHANGE, body);
    while (pump(rendezvous) && rendezvous->result == NULL) {
        if (g_get_monotonic_time() >= deadline_us)
            lose_hub(rendezvous, "does not answer");
        refit_wire_wait(rendezvous->wire, deadline_us);
    }
    if (rendezvous->failure != NULL) {
        g_propagate_error(error, g_error_copy(rendezvous->failure));
        return NULL;
    }
    result = g_steal_pointer(&rendezvous->result);
    rendezvous->number++;
    rendezvous->teller = 0; /* it is there, should this end badly */
    *reader_out = (RefitBodyReader){.at = result->data, .left = result->len};
    return result;
}

static gboolean no_result(RefitRendezvous *rendezvous, GError **error) {
    lose_hub(rendezvous, "sent what is no message of the rendezvous");
    g_propagate_error(error, g_error_copy(rendezvous->failure));
    return FALSE;
}

gboolean refit_rendezvous_barrier(RefitRendezvous *rendezvous, const char *what, GError **error) {
    return refit_rendezvous_agree(rendezvous, what, NULL, error);
}

/* The result of an exchange that brings the bytes of rank 0. */
static gboolean receive_bytes(RefitRendezvous *rendezvous, RefitExchangeOperation operation,
                              const char *what, gsize sent, void *bytes, gsize size,
                              double timeout_s, GError **error) {
    RefitBodyReader reader;
    g_autoptr(GByteArray) result =
        exchange(rendezvous, operation, what, bytes, sent, timeout_s, &reader, error);

    if (result == NULL)
        return FALSE;
    if (reader.left != size)
        return no_result(rendezvous, error);
    if (size > 0)
        memcpy(bytes, reader.at, size);
    return TRUE;
}

gboolean refit_rendezvous_broadcast(RefitRendezvous *rendezvous, const char *what, void *bytes,
                                    gsize size, GError **error) {
    return receive_bytes(rendezvous, REFIT_EXCHANGE_BROADCAST, what, size, bytes, size,
                         rendezvous->timeout_s, error);
}

gboolean refit_rendezvous_spread(RefitRendezvous *rendezvous, const char *what, void *bytes,
                                 gsize size, double timeout_s, GError **error) {
    return receive_bytes(rendezvous, REFIT_EXCHANGE_SPREAD, what, rendezvous->rank == 0 ? size : 0,
                         bytes, size, timeout_s, error);
}

/* Whether records of that size fit into an exchange of all ranks. */
static gboolean check_size(const RefitRendezvous *rendezvous, const char *what, gsize size,
                           GError **error) {
    if (size <= REFIT_RENDEZVOUS_MAX_RECORD &&
        (size + 1) * rendezvous->world < REFIT_FRAME_HUB_LIMIT - sizeof(guint32))
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                "%s: %" G_GSIZE_FORMAT " bytes of each of %u ranks; a rank can tell %d, and all "
                "together %d",
                what, size, rendezvous->world, REFIT_RENDEZVOUS_MAX_RECORD, REFIT_FRAME_HUB_LIMIT);
    return FALSE;
}

/* Takes the records of all ranks; `came` may be NULL. */
static gboolean take_records(RefitRendezvous *rendezvous, const RefitBodyReader *reader, gsize size,
                             void *all, guint8 *came, GError **error) {
    if (reader->left != rendezvous->world * (size + 1))
        return no_result(rendezvous, error);
    if (came != NULL)
        memcpy(came, reader->at, rendezvous->world);
    if (size > 0)
        memcpy(all, reader->at + rendezvous->world, rendezvous->world * size);
    return TRUE;
}

static gboolean gather(RefitRendezvous *rendezvous, RefitExchangeOperation operation,
                       const char *what, const void *record, gsize size, void *all,
                       GError **error) {
    RefitBodyReader reader;
    g_autoptr(GByteArray) result = NULL;

    if (!check_size(rendezvous, what, size, error))
        return FALSE;
    result =
        exchange(rendezvous, operation, what, record, size, rendezvous->timeout_s, &reader, error);
    /* Without `all` it is a report, and not to this rank. */
    return result != NULL &&
           (all == NULL || take_records(rendezvous, &reader, size, all, NULL, error));
}

gboolean refit_rendezvous_gather(RefitRendezvous *rendezvous, const char *what, const void *record,
                                 gsize size, guint8 **all_out, GError **error) {
    g_autofree guint8 *all = g_malloc0(rendezvous->world * size + 1);

    if (!gather(rendezvous, REFIT_EXCHANGE_GATHER, what, record, size, all, error))
        return FALSE;
    *all_out = g_steal_pointer(&all);
    return TRUE;
}

gboolean refit_rendezvous_report(RefitRendezvous *rendezvous, const char *what, const void *record,
                                 gsize size, guint8 **all_out, GError **error) {
    g_autofree guint8 *all = rendezvous->rank == 0 ? g_malloc0(rendezvous->world * size + 1) : NULL;

    if (!gather(rendezvous, REFIT_EXCHANGE_REPORT, what, record, size, all, error))
        return FALSE;
    *all_out = g_steal_pointer(&all);
    return TRUE;
}

gboolean refit_rendezvous_collect(RefitRendezvous *rendezvous, const char *what, const void *record,
                                  gsize size, void *all, guint8 *came, double timeout_s,
                                  GError **error) {
    RefitBodyReader reader;
    g_autoptr(GByteArray) result = NULL;
    const guint8 *well;

    if (!check_size(rendezvous, what, size, error))
        return FALSE;
    result =
        exchange(rendezvous, REFIT_EXCHANGE_COLLECT, what, record, size, timeout_s, &reader, error);
    if (result == NULL)
        return FALSE;
    well = refit_body_get_bytes(&reader, 1);
    if (well == NULL)
        return no_result(rendezvous, error);
    if (*well == 0) {
        g_autofree char *absent = refit_body_get_text(&reader);

        rendezvous->teller = refit_body_get_u32(&reader);
        if (reader.failed)
            return no_result(rendezvous, error);
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_BACKEND, absent);
        return FALSE;
    }
    return all == NULL || take_records(rendezvous, &reader, size, all, came, error);
}

gboolean refit_rendezvous_same(RefitRendezvous *rendezvous, const char *what, const void *record,
                               gsize size, GError **error) {
    RefitBodyReader reader;
    g_autoptr(GByteArray) result = exchange(rendezvous, REFIT_EXCHANGE_SAME, what, record, size,
                                            rendezvous->timeout_s, &reader, error);
    g_autofree char *other = NULL;

    if (result == NULL)
        return FALSE;
    if (reader.left == 0)
        return TRUE;
    other = refit_body_get_text(&reader);
    if (other == NULL)
        return no_result(rendezvous, error);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "%s has another %s than rank 0: all ranks must run the same program on the same "
                "input",
                other, what);
    return FALSE;
}

gboolean refit_rendezvous_agree(RefitRendezvous *rendezvous, const char *what, const GError *mine,
                                GError **error) {
    RefitBodyReader reader;
    g_autoptr(GByteArray) record = g_byte_array_new(), result = NULL;
    g_autoptr(GError) theirs = NULL;
    g_autofree char *name = NULL;
    guint32 n_errors;

    if (mine != NULL)
        refit_body_put_error(record, mine);
    result = exchange(rendezvous, REFIT_EXCHANGE_AGREE, what, record->data, record->len,
                      rendezvous->timeout_s, &reader, error);
    if (result == NULL)
        return FALSE;
    n_errors = refit_body_get_u32(&reader);
    if (n_errors == 0)
        rendezvous->deputy = refit_body_get_u32(&reader);
    else
        name = refit_body_get_text(&reader);
    if (n_errors > 0)
        theirs = refit_body_get_error(&reader);
    if (reader.failed)
        return no_result(rendezvous, error);
    if (n_errors == 0)
        return TRUE;
    if (n_errors > 1)
        g_set_error(error, REFIT_ERROR, theirs->code, "%s: %s; %u more failed", name,
                    theirs->message, n_errors - 1);
    else
        g_set_error(error, REFIT_ERROR, theirs->code, "%s: %s", name, theirs->message);
    return FALSE;
}

/* ---- failure ---- */

gboolean refit_rendezvous_tells(const RefitRendezvous *rendezvous) {
    return rendezvous->rank == rendezvous->teller;
}

gboolean refit_rendezvous_check(RefitRendezvous *rendezvous, GError **error) {
    if (pump(rendezvous))
        return TRUE;
    g_propagate_error(error, g_error_copy(rendezvous->failure));
    return FALSE;
}

GError *refit_rendezvous_fail(RefitRendezvous *rendezvous, GError *mine) {
    g_autoptr(GByteArray) body = g_byte_array_new();
    gint64 deadline_us = refit_deadline_us(HUB_MARGIN_S);

    if (rendezvous->failure == NULL) {
        refit_body_put_error(body, mine);
        refit_wire_send(rendezvous->wire, REFIT_FRAME_FAIL, body);
    }
    while (pump(rendezvous) && g_get_monotonic_time() < deadline_us) {
        if (rendezvous->result != NULL) { /* of an exchange in which this rank counts as absent */
            g_clear_pointer(&rendezvous->result, g_byte_array_unref);
            rendezvous->number++;
            continue;
        }
        refit_wire_wait(rendezvous->wire, deadline_us);
    }
    if (rendezvous->failure == NULL) { /* nobody has heard of it */
        rendezvous->teller = rendezvous->rank;
        return mine;
    }
    g_error_free(mine);
    return g_error_copy(rendezvous->failure);
}
