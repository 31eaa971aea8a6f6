/*
 * Frames of the rendezvous and the proof of the token. Whatever arrives may come from a stranger:
 * lengths are bounded before memory is taken for them, every field is read with its bounds, and no
 * call here waits. Cost: each byte is copied twice.
 */

#include "gpu/rendezvous/refit-rendezvous-private.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>

static const guint8 magic[8] = {'r', 'e', 'f', 'i', 't', '-', 'r', 'v'};

/* ---- bodies ---- */

void refit_body_put_u32(GByteArray *body, guint32 value) {
    guint32 big = GUINT32_TO_BE(value);

    g_byte_array_append(body, (const guint8 *)&big, sizeof big);
}

void refit_body_put_text(GByteArray *body, const char *text, gsize limit) {
    gsize length = strlen(text);
    guint8 size[2];

    if (length > limit) /* not inside a character */
        for (length = limit; length > 0 && ((guchar)text[length] & 0xC0) == 0x80;)
            length--;
    size[0] = (guint8)(length >> 8);
    size[1] = (guint8)length;
    g_byte_array_append(body, size, sizeof size);
    g_byte_array_append(body, (const guint8 *)text, (guint)length);
}

void refit_body_put_greeting(GByteArray *body) {
    g_byte_array_append(body, magic, sizeof magic);
    refit_body_put_u32(body, REFIT_RENDEZVOUS_VERSION);
}

void refit_body_put_error(GByteArray *body, const GError *error) {
    refit_body_put_u32(body, error->domain == REFIT_ERROR ? (guint32)error->code
                                                          : (guint32)REFIT_ERROR_BACKEND);
    refit_body_put_text(body, error->message, REFIT_RENDEZVOUS_TEXT);
}

const guint8 *refit_body_get_bytes(RefitBodyReader *reader, gsize size) {
    const guint8 *at = reader->at;

    if (reader->failed || size > reader->left) {
        reader->failed = TRUE;
        return NULL;
    }
    reader->at += size;
    reader->left -= size;
    return at;
}

guint32 refit_body_get_u32(RefitBodyReader *reader) {
    const guint8 *at = refit_body_get_bytes(reader, 4);
    guint32 big = 0;

    if (at != NULL)
        memcpy(&big, at, sizeof big);
    return GUINT32_FROM_BE(big);
}

char *refit_body_get_text(RefitBodyReader *reader) {
    const guint8 *size = refit_body_get_bytes(reader, 2);
    gsize length = size != NULL ? (gsize)size[0] << 8 | size[1] : 0;
    const guint8 *at = refit_body_get_bytes(reader, length);
    char *text;

    if (at == NULL)
        return NULL;
    text = g_utf8_make_valid((const char *)at, (gssize)length);
    for (char *c = text; *c != '\0'; c++)
        if (g_ascii_iscntrl(*c))
            *c = ' ';
    return text;
}

gboolean refit_body_get_greeting(RefitBodyReader *reader, guint32 *version_out) {
    const guint8 *at = refit_body_get_bytes(reader, sizeof magic);
    guint32 version = refit_body_get_u32(reader);

    if (reader->failed || memcmp(at, magic, sizeof magic) != 0)
        return FALSE;
    *version_out = version;
    return TRUE;
}

GError *refit_body_get_error(RefitBodyReader *reader) {
    static const RefitError codes[] = {
#define X(suffix, exit_code, name, meaning) REFIT_ERROR_##suffix,
        REFIT_ERROR_MAP(X)
#undef X
    };
    guint32 code = refit_body_get_u32(reader);
    g_autofree char *text = refit_body_get_text(reader);

    if (text == NULL)
        return NULL;
    return g_error_new_literal(
        REFIT_ERROR, (int)(code < G_N_ELEMENTS(codes) ? codes[code] : REFIT_ERROR_BACKEND), text);
}

/* ---- connections ---- */

gint64 refit_deadline_us(double seconds) {
    return g_get_monotonic_time() + (gint64)(seconds * G_USEC_PER_SEC);
}

RefitWire *refit_wire_new(GSocket *socket, gsize limit) {
    RefitWire *wire = g_new0(RefitWire, 1);

    g_socket_set_blocking(socket, FALSE);
    /* Frames are small and wait for each other; Unix sockets refuse the option, and need it not. */
    if (g_socket_get_family(socket) != G_SOCKET_FAMILY_UNIX)
        (void)g_socket_set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, NULL);
    wire->socket = socket;
    wire->in = g_byte_array_new();
    wire->out = g_byte_array_new();
    wire->limit = limit;
    return wire;
}

void refit_wire_free(RefitWire *wire) {
    if (wire == NULL)
        return;
    g_object_unref(wire->socket);
    g_byte_array_unref(wire->in);
    g_byte_array_unref(wire->out);
    g_free(wire);
}

void refit_wire_send(RefitWire *wire, guint8 type, const GByteArray *body) {
    refit_body_put_u32(wire->out, body != NULL ? body->len : 0);
    g_byte_array_append(wire->out, &type, 1);
    if (body != NULL)
        g_byte_array_append(wire->out, body->data, body->len);
}

/* FALSE: lost. Interrupted and full sockets are tried again later. */
static gboolean flush(RefitWire *wire, GError **error) {
    gsize done = 0;

    while (done < wire->out->len) {
        g_autoptr(GError) local = NULL;
        gssize n = g_socket_send_with_blocking(wire->socket, (const char *)wire->out->data + done,
                                               wire->out->len - done, FALSE, NULL, &local);

        if (n > 0) {
            done += (gsize)n;
        } else if (g_error_matches(local, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK)) {
            break;
        } else {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s",
                        local != NULL ? local->message : "nothing could be written");
            return FALSE;
        }
    }
    if (done > 0)
        g_byte_array_remove_range(wire->out, 0, (guint)done);
    return TRUE;
}

gboolean refit_wire_pump(RefitWire *wire, GError **error) {
    enum { CHUNK_BYTES = 16384 };
    g_autoptr(GError) write_error = NULL;
    gboolean can_write = flush(wire, &write_error);

    /* What the other end said before it went is read even when it no longer listens. */
    while (wire->in->len <= wire->limit + REFIT_FRAME_HEADER_BYTES) {
        char chunk[CHUNK_BYTES];
        g_autoptr(GError) local = NULL;
        gssize n =
            g_socket_receive_with_blocking(wire->socket, chunk, sizeof chunk, FALSE, NULL, &local);

        if (n > 0) {
            g_byte_array_append(wire->in, (const guint8 *)chunk, (guint)n);
        } else if (n < 0 && g_error_matches(local, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK)) {
            break;
        } else {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s",
                        local != NULL ? local->message : "its connection closed");
            return FALSE;
        }
    }
    if (!can_write)
        g_propagate_error(error, g_steal_pointer(&write_error));
    return can_write;
}

int refit_wire_take(RefitWire *wire, GByteArray **body_out) {
    RefitBodyReader reader = {.at = wire->in->data, .left = wire->in->len};
    guint32 size = refit_body_get_u32(&reader);
    const guint8 *type = refit_body_get_bytes(&reader, 1);
    int result;

    if (reader.failed)
        return 0;
    if (size > wire->limit || *type < REFIT_FRAME_CHALLENGE || *type > REFIT_FRAME_BYE)
        return -1;
    if (size > reader.left)
        return 0;
    result = *type;
    *body_out = g_byte_array_sized_new(size);
    g_byte_array_append(*body_out, reader.at, size);
    g_byte_array_remove_range(wire->in, 0, REFIT_FRAME_HEADER_BYTES + size);
    return result;
}

void refit_wire_wait(RefitWire *wire, gint64 deadline_us) {
    gint64 left_us = deadline_us - g_get_monotonic_time();
    GIOCondition condition = wire->out->len > 0 ? G_IO_IN | G_IO_OUT : G_IO_IN;

    /* A time-out and an error are both seen by the next pump. */
    if (left_us > 0)
        (void)g_socket_condition_timed_wait(wire->socket, condition, left_us, NULL, NULL);
}

/* ---- proofs ---- */

gboolean refit_nonce_draw(guint8 nonce[REFIT_NONCE_BYTES], GError **error) {
    if (getrandom(nonce, REFIT_NONCE_BYTES, 0) == REFIT_NONCE_BYTES)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                "the operating system gives no random bytes");
    return FALSE;
}

void refit_proof_make(const RefitProofInput *input, gboolean of_hub,
                      guint8 proof[REFIT_PROOF_BYTES]) {
    g_autoptr(GByteArray) text = g_byte_array_new();
    g_autoptr(GHmac) hmac =
        g_hmac_new(G_CHECKSUM_SHA256, (const guchar *)input->token, strlen(input->token));
    gsize size = REFIT_PROOF_BYTES;

    refit_body_put_text(text, of_hub ? "hub" : "peer", REFIT_WHAT_BYTES);
    g_byte_array_append(text, input->hub_nonce, REFIT_NONCE_BYTES);
    g_byte_array_append(text, input->peer_nonce, REFIT_NONCE_BYTES);
    refit_body_put_greeting(text);
    refit_body_put_u32(text, input->world);
    refit_body_put_u32(text, input->rank);
    g_hmac_update(hmac, text->data, text->len);
    g_hmac_get_digest(hmac, proof, &size);
}

gboolean refit_proof_holds(const RefitProofInput *input, gboolean of_hub, const guint8 *proof) {
    guint8 right[REFIT_PROOF_BYTES];
    guint8 difference = 0;

    refit_proof_make(input, of_hub, right);
    for (guint i = 0; i < REFIT_PROOF_BYTES; i++)
        difference |= (guint8)(right[i] ^ proof[i]);
    return difference == 0;
}

void refit_body_put_hello(GByteArray *body, const RefitProofInput *input, const char *host) {
    guint8 proof[REFIT_PROOF_BYTES];

    refit_proof_make(input, FALSE, proof);
    refit_body_put_greeting(body);
    refit_body_put_u32(body, input->world);
    refit_body_put_u32(body, input->rank);
    g_byte_array_append(body, input->peer_nonce, REFIT_NONCE_BYTES);
    g_byte_array_append(body, proof, sizeof proof);
    refit_body_put_text(body, host, REFIT_HOST_BYTES);
}

/* ---- names ---- */

static const char *host_of(char *const *hosts, guint rank) {
    return hosts != NULL ? hosts[rank] : NULL;
}

static void put_host(GString *text, const char *host) {
    if (host != NULL)
        g_string_append_printf(text, " (%s)", host);
}

char *refit_ranks_to_string(const guint8 *member, guint world, char *const *hosts) {
    enum { MAX_RANGES = 8 };
    GString *text = g_string_new(NULL);
    const char *host = NULL; /* of the ranges so far that have not been given one */
    guint n_ranges = 0, more = 0;

    for (guint first = 0, end; first < world; first = end) {
        for (end = first; end < world && member[end] != 0 &&
                          g_strcmp0(host_of(hosts, end), host_of(hosts, first)) == 0;)
            end++;
        if (end == first) {
            end++;
            continue;
        }
        if (n_ranges++ >= MAX_RANGES) {
            more += end - first;
            continue;
        }
        if (n_ranges > 1 && g_strcmp0(host, host_of(hosts, first)) != 0)
            put_host(text, host);
        host = host_of(hosts, first);
        g_string_append_printf(text, "%s%u", text->len > 0 ? ", " : "", first);
        if (end > first + 1)
            g_string_append_printf(text, "-%u", end - 1);
    }
    put_host(text, host);
    if (more > 0)
        g_string_append_printf(text, " and %u more", more);
    return g_string_free(text, FALSE);
}
