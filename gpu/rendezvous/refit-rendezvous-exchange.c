/*
 * What the hub of a rendezvous makes of what members say: it completes exchanges, and when a rank
 * fails or its connection closes, it asks all others whether they are there. The verdict, sent to
 * all, says who failed and who did not answer: a rank that waits for a stalled one otherwise sees
 * only its own time-out. Cost: an exchange, the bytes it sends.
 */

#include "gpu/rendezvous/refit-rendezvous-hub.h"

#include <string.h>

#define NOBODY G_MAXUINT32
enum { MAX_COMPLAINTS = 3 };

void refit_hub_send_error(RefitHub *hub, RefitHubConnection *connection, guint8 type,
                          const GError *error) {
    g_autoptr(GByteArray) body = g_byte_array_new();

    refit_body_put_error(body, error);
    refit_hub_send(hub, connection, type, body);
}

void refit_hub_clear_records(RefitHub *hub) {
    for (guint rank = 0; rank < hub->world; rank++)
        g_clear_pointer(&hub->records[rank], g_bytes_unref);
    g_clear_pointer(&hub->what, g_free);
    hub->n_here = 0;
    hub->deadline_us = 0;
}

/* ---- failure ---- */

/* "rank 3" or "ranks 3, 5"; NULL when there are none. */
static char *name_ranks(const RefitHub *hub, const guint8 *which) {
    const guint8 *first = memchr(which, 1, hub->world);
    g_autofree char *list = NULL;

    if (first == NULL)
        return NULL;
    list = refit_ranks_to_string(which, hub->world, hub->several_hosts ? hub->hosts : NULL);
    return g_strdup_printf(
        "rank%s %s",
        memchr(first + 1, 1, hub->world - (gsize)(first + 1 - which)) != NULL ? "s" : "", list);
}

char *refit_hub_name(const RefitHub *hub, guint rank) {
    const char *host = hub->several_hosts ? hub->hosts[rank] : NULL;

    return host != NULL ? g_strdup_printf("rank %u (%s)", rank, host)
                        : g_strdup_printf("rank %u", rank);
}

/* The lowest rank that is there: that has answered when all were asked, else that has come to the
 * exchange under way, or any when there is none. */
static guint find_teller(const RefitHub *hub) {
    for (guint rank = 0; rank < hub->world; rank++) {
        gboolean there = hub->members[rank] != NULL && hub->left[rank] == 0;

        if (hub->verdict_us > 0)
            there &= hub->answers[rank] != 0 || hub->failed[rank] != 0;
        else if (hub->n_here > 0)
            there &= hub->records[rank] != NULL;
        if (there)
            return rank;
    }
    return 0;
}

/* Who tells the user when rank 0 is gone: not on its host, where that can be. */
static guint find_deputy(const RefitHub *hub) {
    for (guint rank = 1; hub->several_hosts && rank < hub->world; rank++)
        if (hub->hosts[rank] != NULL && !g_str_equal(hub->hosts[rank], hub->hosts[0]))
            return rank;
    return hub->world > 1 ? 1 : 0;
}

void refit_hub_send_verdict(RefitHub *hub) {
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(GByteArray) body = g_byte_array_new();
    g_autofree guint8 *silent = g_new0(guint8, hub->world);
    g_autofree char *gone = name_ranks(hub, hub->gone);
    g_autofree char *silent_names = NULL;

    for (guint rank = 0; rank < hub->world; rank++)
        silent[rank] = hub->members[rank] != NULL && hub->failed[rank] == 0 &&
                       hub->answers[rank] == 0 && hub->verdict_us > 0;
    silent_names = name_ranks(hub, silent);
    if (gone != NULL)
        g_string_append_printf(text, "%s ended without a word", gone);
    if (hub->failure != NULL)
        g_string_append_printf(text, "%s%s", text->len > 0 ? "; " : "", hub->failure->message);
    for (guint i = 0; i < hub->complaints->len; i++)
        g_string_append_printf(text, "; %s", (const char *)hub->complaints->pdata[i]);
    if (hub->n_failed > hub->complaints->len + 1)
        g_string_append_printf(text, "; %u more failed", hub->n_failed - hub->complaints->len - 1);
    if (silent_names != NULL)
        g_string_append_printf(text, "; no answer from %s within %g s", silent_names, hub->grace_s);
    hub->verdict = g_error_new_literal(
        REFIT_ERROR, hub->failure != NULL ? hub->failure->code : REFIT_ERROR_BACKEND, text->str);
    refit_body_put_error(body, hub->verdict);
    refit_body_put_u32(body, find_teller(hub));
    for (guint rank = 0; rank < hub->world; rank++)
        if (hub->members[rank] != NULL)
            refit_hub_send(hub, hub->members[rank], REFIT_FRAME_ABORT, body);
    refit_hub_clear_records(hub);
    if (hub->end_us > 0)
        hub->end_us = MIN(hub->end_us, refit_deadline_us(hub->grace_s));
}

void refit_hub_fail(RefitHub *hub, GError *error) {
    if (hub->verdict != NULL || hub->failure != NULL) {
        g_error_free(error);
        return;
    }
    hub->failure = error;
    refit_hub_send_verdict(hub);
}

void refit_hub_ask_all(RefitHub *hub) {
    if (hub->verdict != NULL || hub->verdict_us > 0)
        return;
    hub->verdict_us = refit_deadline_us(hub->grace_s);
    for (guint rank = 0; rank < hub->world; rank++)
        if (hub->members[rank] != NULL)
            refit_hub_send(hub, hub->members[rank], REFIT_FRAME_QUERY, NULL);
}

gboolean refit_hub_all_answered(RefitHub *hub) {
    for (; hub->n_answered < hub->world; hub->n_answered++) {
        const guint rank = hub->n_answered;

        if (hub->members[rank] != NULL && hub->failed[rank] == 0 && hub->answers[rank] == 0)
            return FALSE;
    }
    return TRUE;
}

void refit_hub_fail_of_rank(RefitHub *hub, guint rank, GError *error) {
    g_autofree char *name = refit_hub_name(hub, rank);

    if (hub->failed[rank] == 0)
        hub->n_failed++;
    else
        g_clear_error(&error); /* it has said why */
    hub->failed[rank] = 1;
    if (error != NULL)
        g_prefix_error(&error, "%s: ", name);
    if (hub->failure == NULL) {
        hub->failure = error;
    } else if (error != NULL) {
        if (hub->complaints->len < MAX_COMPLAINTS)
            g_ptr_array_add(hub->complaints, g_strdup(error->message));
        g_error_free(error);
    }
    refit_hub_ask_all(hub);
}

/* ---- exchanges ---- */

static void put_records(RefitHub *hub, GByteArray *body) {
    g_autofree guint8 *nothing = g_malloc0(hub->size + 1);

    for (guint rank = 0; rank < hub->world; rank++) {
        const guint8 here = hub->records[rank] != NULL;
        g_byte_array_append(body, &here, 1);
    }
    for (guint rank = 0; rank < hub->world; rank++)
        g_byte_array_append(
            body, hub->records[rank] != NULL ? g_bytes_get_data(hub->records[rank], NULL) : nothing,
            (guint)hub->size);
}

/* Rank of the first record that differs from rank 0's, or NOBODY. */
static guint first_other(const RefitHub *hub) {
    for (guint rank = 1; rank < hub->world; rank++)
        if (!g_bytes_equal(hub->records[0], hub->records[rank]))
            return rank;
    return NOBODY;
}

static void put_other(const RefitHub *hub, GByteArray *body) {
    const guint other = first_other(hub);

    if (other == NOBODY)
        return;
    g_autofree char *name = refit_hub_name(hub, other);
    refit_body_put_text(body, name, REFIT_RENDEZVOUS_TEXT);
}

/* How many have an error, and that of the lowest; or who tells the user when rank 0 is gone. */
static void put_agreement(const RefitHub *hub, GByteArray *body) {
    guint n_errors = 0, first = 0;
    g_autofree char *name = NULL;

    for (guint rank = hub->world; rank-- > 0;)
        if (g_bytes_get_size(hub->records[rank]) > 0) {
            n_errors++;
            first = rank;
        }
    refit_body_put_u32(body, n_errors);
    if (n_errors == 0) {
        refit_body_put_u32(body, find_deputy(hub));
        return;
    }
    name = refit_hub_name(hub, first);
    refit_body_put_text(body, name, REFIT_RENDEZVOUS_TEXT);
    g_byte_array_append(body, g_bytes_get_data(hub->records[first], NULL),
                        (guint)g_bytes_get_size(hub->records[first]));
}

/* "ranks 3, 5 of 8 did not come to \"pack\" within 4 s". Free with g_free. */
static char *describe_absent(const RefitHub *hub) {
    g_autofree guint8 *absent = g_new0(guint8, hub->world);
    g_autofree char *names = NULL;

    for (guint rank = 0; rank < hub->world; rank++)
        absent[rank] = hub->records[rank] == NULL;
    names = name_ranks(hub, absent);
    return g_strdup_printf("%s of %u did not %s%s%s within %g s", names, hub->world,
                           hub->number == 0 ? "join" : "come to \"",
                           hub->number == 0 ? "" : hub->what, hub->number == 0 ? "" : "\"",
                           hub->wait_s);
}

/* What rank 0 is told of an exchange that is for it alone; others only learn that it is over. A
 * collection without rank 0 has nobody to judge it. */
static void conclude_for_first(RefitHub *hub, GByteArray *body) {
    const gboolean collects = hub->operation == REFIT_EXCHANGE_COLLECT;
    const guint8 well = hub->records[0] != NULL;

    if (collects)
        g_byte_array_append(body, &well, 1);
    if (!well) {
        g_autofree char *absent = describe_absent(hub);

        refit_body_put_text(body, absent, REFIT_RENDEZVOUS_TEXT);
        refit_body_put_u32(body, find_teller(hub));
    } else if (hub->members[0] != NULL) {
        g_autoptr(GByteArray) full = g_byte_array_new();

        g_byte_array_append(full, body->data, body->len);
        put_records(hub, full);
        refit_hub_send(hub, hub->members[0], REFIT_FRAME_RESULT, full);
    }
}

void refit_hub_conclude(RefitHub *hub) {
    const gboolean for_first =
        (hub->operation == REFIT_EXCHANGE_REPORT || hub->operation == REFIT_EXCHANGE_COLLECT) &&
        hub->records[0] != NULL;
    g_autoptr(GByteArray) body = g_byte_array_new();

    refit_body_put_u32(body, hub->number);
    switch (hub->operation) {
    case REFIT_EXCHANGE_BROADCAST:
    case REFIT_EXCHANGE_SPREAD:
        g_byte_array_append(body, g_bytes_get_data(hub->records[0], NULL),
                            (guint)g_bytes_get_size(hub->records[0]));
        break;
    case REFIT_EXCHANGE_GATHER:
        put_records(hub, body);
        break;
    case REFIT_EXCHANGE_REPORT:
    case REFIT_EXCHANGE_COLLECT:
        conclude_for_first(hub, body);
        break;
    case REFIT_EXCHANGE_SAME:
        put_other(hub, body);
        break;
    case REFIT_EXCHANGE_AGREE:
    case REFIT_N_EXCHANGES:
        put_agreement(hub, body);
        break;
    }
    for (guint rank = for_first ? 1 : 0; rank < hub->world; rank++)
        if (hub->members[rank] != NULL)
            refit_hub_send(hub, hub->members[rank], REFIT_FRAME_RESULT, body);
    hub->number++;
    refit_hub_clear_records(hub);
}

void refit_hub_say_absent(RefitHub *hub) {
    g_autofree char *absent = describe_absent(hub);
    g_autoptr(GString) text = g_string_new(absent);

    for (guint i = 0; i < hub->refusals->len; i++)
        g_string_append_printf(text, "%s%s", i == 0 ? "; refused: " : ", ",
                               (const char *)hub->refusals->pdata[i]);
    if (hub->n_refused > hub->refusals->len)
        g_string_append_printf(text, " and %u more", hub->n_refused - hub->refusals->len);
    if (hub->number == 0 && hub->accept_error != NULL)
        g_string_append_printf(text, "; rank 0 cannot accept more connections: %s",
                               hub->accept_error);
    refit_hub_fail(hub, g_error_new_literal(REFIT_ERROR, REFIT_ERROR_BACKEND, text->str));
}

static void fail_left(RefitHub *hub, guint rank) {
    g_autofree char *name = refit_hub_name(hub, rank);

    refit_hub_fail(hub,
                   g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND,
                               "%s left before \"%s\", which needs all ranks", name, hub->what));
}

void refit_hub_check_complete(RefitHub *hub) {
    const guint8 *left = memchr(hub->left, 1, hub->world);

    if (hub->n_here == 0 || hub->verdict != NULL)
        return;
    if (hub->n_here == hub->world ||
        (hub->operation == REFIT_EXCHANGE_SPREAD && hub->records[0] != NULL))
        refit_hub_conclude(hub);
    else if (left != NULL)
        fail_left(hub, (guint)(left - hub->left));
}

/* What rank `rank` has sent does not go with the exchange under way. */
static void fail_apart(RefitHub *hub, guint rank, const char *what, gsize size) {
    g_autofree char *name = refit_hub_name(hub, rank), *first = refit_hub_name(hub, hub->first);
    GError *error;

    if (g_str_equal(what, hub->what) && size != hub->size)
        error = g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND,
                            "%s says %" G_GSIZE_FORMAT " bytes at \"%s\", %s %" G_GSIZE_FORMAT
                            ": all ranks must run the same version of refit on the same input",
                            name, size, what, first, hub->size);
    else
        error = g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND,
                            "%s is at \"%s\" while %s is at \"%s\": ranks must run the same "
                            "program on the same input",
                            name, what, first, hub->what);
    refit_hub_fail(hub, error);
}

gboolean refit_hub_take_record(RefitHub *hub, guint rank, GByteArray *body) {
    RefitBodyReader reader = {.at = body->data, .left = body->len};
    guint32 number = refit_body_get_u32(&reader);
    guint32 operation = refit_body_get_u32(&reader);
    g_autofree char *what = refit_body_get_text(&reader);
    guint32 timeout_ms = refit_body_get_u32(&reader);
    gsize size = reader.left;
    /* Agreements are of any size, and only rank 0 has something to spread. */
    gboolean sized = operation != REFIT_EXCHANGE_AGREE && operation != REFIT_EXCHANGE_SPREAD;

    if (reader.failed || operation >= REFIT_N_EXCHANGES || number > hub->number ||
        size > REFIT_RENDEZVOUS_MAX_RECORD)
        return FALSE;
    if (number < hub->number || hub->verdict != NULL)
        return TRUE; /* too late; it has been told */
    if (hub->records[rank] != NULL)
        return FALSE;
    if (hub->n_here == 0) {
        hub->operation = (RefitExchangeOperation)operation;
        hub->what = g_steal_pointer(&what);
        hub->size = size;
        hub->first = rank;
        if (number > 0) {
            hub->wait_s = timeout_ms / 1000.0;
            hub->deadline_us = refit_deadline_us(hub->wait_s);
        }
    } else if (operation != hub->operation || !g_str_equal(what, hub->what) ||
               (sized && size != hub->size)) {
        fail_apart(hub, rank, what, size);
        return TRUE;
    }
    hub->records[rank] = g_bytes_new(reader.at, size);
    hub->n_here++;
    return TRUE;
}
