#pragma once

/*
 * What the two ends of a rendezvous share: frames, their fields, and the proof of the token.
 *
 * A frame is a length of 4 bytes, a type of 1 byte and a body; numbers are big-endian. A text is
 * its length in 2 bytes and its bytes.
 *
 *   hub -> peer   CHALLENGE  magic, version, hub nonce
 *   peer -> hub   HELLO      magic, version, world, rank, peer nonce, proof, host (may be empty)
 *   hub -> peer   WELCOME    proof; or REFUSE code, text
 *   peer -> hub   EXCHANGE   number, operation, what, milliseconds, record
 *   hub -> peer   RESULT     number, bytes
 *   peer -> hub   FAIL       code, text
 *   hub -> peer   QUERY      ; the peer replies ANSWER
 *   hub -> peer   ABORT      code, text, rank that tells the user
 *   peer -> hub   BYE
 *
 * A proof is HMAC-SHA256 under the token over the prover's role, both nonces, version, world and
 * rank: neither the token nor a proof that serves twice crosses the network.
 */

#include "gpu/rendezvous/refit-rendezvous.h"
#include "model/base/refit-error.h"

G_BEGIN_DECLS

enum {
    REFIT_FRAME_CHALLENGE = 1,
    REFIT_FRAME_HELLO,
    REFIT_FRAME_WELCOME,
    REFIT_FRAME_REFUSE,
    REFIT_FRAME_EXCHANGE,
    REFIT_FRAME_RESULT,
    REFIT_FRAME_FAIL,
    REFIT_FRAME_QUERY,
    REFIT_FRAME_ANSWER,
    REFIT_FRAME_ABORT,
    REFIT_FRAME_BYE
};

typedef enum {
    REFIT_EXCHANGE_BROADCAST,
    REFIT_EXCHANGE_GATHER,
    REFIT_EXCHANGE_REPORT, /* gathered for rank 0 only */
    REFIT_EXCHANGE_SAME,
    REFIT_EXCHANGE_AGREE,
    REFIT_EXCHANGE_COLLECT, /* a report that does without absent ranks */
    REFIT_EXCHANGE_SPREAD,  /* a broadcast that waits for rank 0 alone */
    REFIT_N_EXCHANGES
} RefitExchangeOperation;

enum {
    REFIT_FRAME_HEADER_BYTES = 5,
    REFIT_NONCE_BYTES = 32,
    REFIT_PROOF_BYTES = 32,
    REFIT_WHAT_BYTES = 100,
    REFIT_HOST_BYTES = 64,
    REFIT_FRAME_GREETING_LIMIT = 256, /* bodies before the token is proven */
    REFIT_FRAME_PEER_LIMIT = REFIT_RENDEZVOUS_MAX_RECORD + 256,
    REFIT_FRAME_REFUSAL_LIMIT = REFIT_RENDEZVOUS_TEXT + 256,
    REFIT_FRAME_HUB_LIMIT = REFIT_RENDEZVOUS_MAX_EXCHANGE + 256
};

/* ---- bodies ---- */

void refit_body_put_u32(GByteArray *body, guint32 value);
void refit_body_put_text(GByteArray *body, const char *text, gsize limit);
void refit_body_put_greeting(GByteArray *body); /* magic and version */
void refit_body_put_error(GByteArray *body, const GError *error);

/* What is not yet read of a body. Reading past the end fails and stays failed. */
typedef struct {
    const guint8 *at;
    gsize left;
    gboolean failed;
} RefitBodyReader;

guint32 refit_body_get_u32(RefitBodyReader *reader);
const guint8 *refit_body_get_bytes(RefitBodyReader *reader, gsize size); /* NULL: failed */
/* Valid UTF-8 without control characters. Free with g_free; NULL: failed. */
char *refit_body_get_text(RefitBodyReader *reader);
/* TRUE when the magic is there. */
gboolean refit_body_get_greeting(RefitBodyReader *reader, guint32 *version_out);
/* An error that another process sent, or NULL. */
GError *refit_body_get_error(RefitBodyReader *reader);

/* ---- connections ---- */

/* `seconds` from now, on the monotonic clock. */
gint64 refit_deadline_us(double seconds);

typedef struct {
    GSocket *socket;
    GByteArray *in, *out;
    gsize limit; /* of a body */
} RefitWire;

/* Takes ownership of `socket`. */
RefitWire *refit_wire_new(GSocket *socket, gsize limit);
void refit_wire_free(RefitWire *wire);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitWire, refit_wire_free)
/* Queues a frame; `body` may be NULL. */
void refit_wire_send(RefitWire *wire, guint8 type, const GByteArray *body);
/* Writes what the socket takes, reads what is there; never waits. FALSE: the connection is lost or
 * closed by the other end; frames that arrived before can still be taken. */
gboolean refit_wire_pump(RefitWire *wire, GError **error);
/* Takes the next frame; 0 when none is complete. Returns -1 for one beyond the limit. *body_out:
 * free with g_byte_array_unref. */
int refit_wire_take(RefitWire *wire, GByteArray **body_out);
/* Waits until the socket can be read, or written when something is queued, at most until
 * `deadline_us` of the monotonic clock. */
void refit_wire_wait(RefitWire *wire, gint64 deadline_us);

/* ---- a rank's end ---- */

struct _RefitRendezvous {
    guint rank, world;
    double timeout_s;
    char *place; /* "host:port" of rank 0 */
    RefitWire *wire;
    GThread *hub;       /* on rank 0 */
    guint32 number;     /* of the next exchange */
    GByteArray *result; /* of exchange `number`, when it is there already */
    GError *failure;
    guint teller; /* rank that tells the user of the last error; see refit_rendezvous_tells() */
    guint deputy; /* that does when rank 0 has gone away */
};

/* Connects and makes the proofs. Tries again as long as nobody answers, as rank 0 may start later,
 * or hangs up, as it does when it is hard pressed; at most for the time-out. */
gboolean refit_rendezvous_connect(RefitRendezvous *rendezvous,
                                  const RefitRendezvousOptions *options, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- proofs ---- */

typedef struct {
    const char *token;
    guint8 hub_nonce[REFIT_NONCE_BYTES], peer_nonce[REFIT_NONCE_BYTES];
    guint32 world, rank;
} RefitProofInput;

/* What a rank says first: who it is, with its proof, and its host, which may be empty. */
void refit_body_put_hello(GByteArray *body, const RefitProofInput *input, const char *host);

gboolean refit_nonce_draw(guint8 nonce[REFIT_NONCE_BYTES], GError **error);
void refit_proof_make(const RefitProofInput *input, gboolean of_hub,
                      guint8 proof[REFIT_PROOF_BYTES]);
/* Takes the same time whatever differs. */
gboolean refit_proof_holds(const RefitProofInput *input, gboolean of_hub, const guint8 *proof);

/* ---- hub ---- */

/* Serves until rank 0 and the others have left. All borrowed ones live until it is joined. */
typedef struct {
    guint world;
    const char *token;
    double timeout_s;
    const char *host;  /* of rank 0; NULL: not stated */
    GSocket *listener; /* borrowed */
    GSocket *own;      /* the hub's end of rank 0's connection; ownership taken */
} RefitHubOptions;

/* Fails only when no thread can be started. End it by leaving on rank 0, then g_thread_join(). */
GThread *refit_hub_start(const RefitHubOptions *options, GError **error);

G_END_DECLS
