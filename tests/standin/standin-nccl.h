#pragma once

/*
 * Inside of the stand-in's NCCL. A communicator moves the messages of its groups through a link; a
 * link is the work of a transport: memory shared by threads or processes, or TCP connections.
 * Messages, their matching, rendezvous, order and reports are the same over both.
 */

#include <pthread.h>

#include <nccl.h>

#include "standin-private.h"

enum {
    STANDIN_MAX_RANKS = 1024,
    STANDIN_MAX_CHANNELS = 64, /* MAXCHANNELS */
    STANDIN_ID_SIZE = 128      /* of an ncclUniqueId */
};

typedef struct StandinLink StandinLink;

/* What a rank tells its peers when it joins. */
typedef struct {
    guint64 host;    /* hash of the host's name or of NCCL_HOSTID */
    guint64 node;    /* of the NVLink domain: the fast group if there is one, else the host */
    guint64 process; /* two ranks with the same one are threads of it */
    gint32 device;
    gint32 rail; /* number of the device on its host */
} StandinMember;

/* What a kernel waits for from one peer. */
enum {
    STANDIN_WANT_SPACE = 1,   /* to put more bytes */
    STANDIN_WANT_RECEIPT = 2, /* of a message put as a whole */
    STANDIN_WANT_BYTES = 4    /* to get */
};

enum { STANDIN_PEER_GONE = -1 };

/*
 * The table that a transport fills in. Bytes between two ranks arrive in order and once. put, get,
 * receipts, confirm, look and wait are called by one thread at a time; the other rank's happen
 * meanwhile.
 */
typedef struct {
    const char *name;

    /* Writes what ranks need to find each other, at most STANDIN_ID_SIZE bytes with its end. Called
     * by one rank, before any joins. FALSE with `why`. */
    gboolean (*announce)(char *id_out, char *why, size_t why_size);

    /* Drops what this process holds for `id` if it announced it: everyone has joined, or will not.
     */
    void (*withdraw)(const char *id);

    /* Joins `n` ranks as `rank`. Returns without waiting for them; NULL with `why`. */
    StandinLink *(*join)(const char *id, int rank, int n, char *why, size_t why_size);
    void (*leave)(StandinLink *link);

    /* All ranks meet and each sees all records of `size` bytes; a full barrier. The first gather of
     * a link also completes its connections. FALSE when *aborted became true or a peer is gone;
     * `patient` callers have time-outs of their own. */
    gboolean (*gather)(StandinLink *link, const void *mine, size_t size, void *all,
                       _Atomic bool *aborted, gboolean patient);

    /* Tells the peer, once per peer and direction, that this rank will send to it, or receive from
     * it; and whether the peer has said the same of the other end: 1, 0 or STANDIN_PEER_GONE. Bytes
     * go that way only when it has. From any thread. No happens-before edge. */
    void (*open)(StandinLink *link, int peer, gboolean is_send);
    int (*opened)(StandinLink *link, int peer, gboolean is_send);

    /* A number that all ranks share, zero at first, for each rank. NULL: there is no such place. */
    _Atomic uint64_t *(*pool)(StandinLink *link, int rank);

    /* Take as many bytes as there is room for, or deliver as many as there are. The number, 0 when
     * none now, or STANDIN_PEER_GONE. */
    gssize (*put)(StandinLink *link, int peer, const void *bytes, size_t size);
    gssize (*get)(StandinLink *link, int peer, void *bytes, size_t size);

    /* The receiver confirms each message that it has taken as a whole; the sender sees how many it
     * has confirmed so far. No happens-before edge: NCCL promises the sender nothing about the
     * receiver. */
    void (*confirm)(StandinLink *link, int peer);
    gint64 (*receipts)(StandinLink *link, int peer); /* or STANDIN_PEER_GONE */

    /* `look` before trying to move bytes, `wait` when nothing moved: sleeps until something may
     * have changed since, a short while at most. `wants` has an entry per peer. */
    uint32_t (*look)(StandinLink *link);
    void (*wait)(StandinLink *link, uint32_t seen, const guint8 *wants, gint64 at_most_ns,
                 const char *who);
    void (*interrupt)(StandinLink *link); /* from another thread: ends a wait */
} StandinTransport;

extern const StandinTransport standin_memory_transport;
extern const StandinTransport standin_tcp_transport;

const StandinTransport *standin_transport(void); /* the one that the options name */

/* ---- communicators ---- */

/* Messages between this rank and one peer; used by the group that runs, and those run in turn. */
typedef struct {
    guint64 n_sent, n_received;
} StandinPair;

typedef struct StandinPart StandinPart;

/* A communicator's ncclConfig_t with NCCL's defaults and the environment, as far as it matters. */
typedef struct {
    gboolean nonblocking;
    int min_ctas, max_ctas;
    int channels_per_net_peer; /* 0: by number of ranks */
} StandinConfig;

/* Variables of NCCL, 0 where not set and no other default is stated. */
typedef struct {
    gint64 min_ctas, max_ctas, channels_per_net_peer;
    gint64 min_p2p_channels, max_p2p_channels; /* 1, STANDIN_MAX_CHANNELS */
    gint64 net_chunk, nvlink_chunk;            /* bytes; 128 KiB, 512 KiB */
    gint64 pxn_disable;
} StandinNcclParams;

/* Where the ranks are, who meets whom in which round, and the channels for it. */
typedef struct {
    int n_nodes;
    int *node, *local; /* per rank: its node, and its number there */
    int group_size, n_rounds;
    int *send_round, *receive_round; /* per peer */
    guint n_channels, per_peer, n_collective;
    guint64 chunk; /* bytes of a step */
} StandinLayout;

/* What has been made of connections, and the device memory they take. Used by the host. */
typedef struct {
    guint8 *flags;      /* per peer */
    gboolean *has_pool; /* per rank: this rank's pool for sends on that rank's device */
    gboolean can_receive;
    GArray *openings; /* that wait for the peer */
    guint64 bytes;    /* on this rank's device */
    gboolean is_shared;
    ncclComm_t next;
} StandinConnections;

struct ncclComm {
    guint magic;
    const StandinTransport *transport;
    StandinLink *link;
    char id[STANDIN_ID_SIZE];
    char name[64]; /* for reports */
    int rank, n, device;
    StandinMember *members;
    StandinConfig config;
    StandinLayout layout;
    StandinConnections connections;
    _Atomic uint32_t n_callers;                     /* host threads within a blocking group */
    uint64_t group_channels;                        /* of the last group, one bit each */
    guint64 channel_bytes[2][STANDIN_MAX_CHANNELS]; /* received, sent; by the host */
    double taken_until_ns[2][STANDIN_MAX_CHANNELS]; /* the same; by the group that runs */
    guint n_splits;
    _Atomic int error; /* ncclResult_t, as ncclCommGetAsyncError reports it */
    _Atomic bool aborted;
    char last_error[256];
    uint32_t n_launched;         /* by the host */
    _Atomic uint32_t n_finished; /* groups run one after another */
    StandinPair *pairs;
    _Atomic uint32_t n_registered; /* buffers and windows */
    gboolean finalizing;

    /* A non-blocking communicator's set-up or split, on a thread of its own. */
    gboolean job_started;
    pthread_t job;

    /* A non-blocking communicator's group, which reaches its stream only when the state has been
     * asked for a second time and all peers have come. */
    GArray *deferred; /* StandinPart */
    guint n_polls;
    guint64 launcher;
    _Atomic guint64 launched_by;
};

typedef enum { STANDIN_SEND_RECEIVE, STANDIN_BROADCAST, STANDIN_ALL_GATHER } StandinKind;

/* Goes before the bytes of each message, so that the receiver can compare both sides of it. */
typedef struct {
    guint32 magic, kind, type, root;
    guint64 size, number;
} StandinHeader;

/* One message, or this rank's side of it. */
struct StandinPart {
    ncclComm_t comm;
    cudaStream_t stream;
    gboolean is_send;
    StandinKind kind;
    int peer, root;
    ncclDataType_t type;
    char *bytes;
    guint64 size;
    /* progress */
    StandinHeader header;
    guint64 header_moved, n_moved; /* bytes */
    guint n_channels;              /* with a rate */
    gboolean met, begun, done;
};

/* nccl.h declares these without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* Remembers a failure for ncclGetLastError and returns it. `comm` may be NULL. */
ncclResult_t standin_nccl_fail(ncclComm_t comm, ncclResult_t result, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* Sets what ncclGetLastError says of `comm`; from any thread. */
void standin_comm_say(ncclComm_t comm, const char *text);

/* Opens an NCCL call: ncclSuccess when it may go on. */
ncclResult_t standin_nccl_enter(const char *function, ncclComm_t comm);

#define STANDIN_NCCL_ENTER(function, comm)                                                         \
    do {                                                                                           \
        const ncclResult_t enter_result = standin_nccl_enter(#function, (comm));                   \
        if (enter_result != ncclSuccess) {                                                         \
            return enter_result;                                                                   \
        }                                                                                          \
    } while (0)

/* ---- configuration and channels ---- */

/* Checks and completes what a caller asks for, NULL for the defaults. */
ncclResult_t standin_config_parse(const ncclConfig_t *given, StandinConfig *config_out);
const StandinNcclParams *standin_nccl_params(void);

/* When all members are known. */
void standin_layout_init(ncclComm_t comm);
void standin_layout_clear(ncclComm_t comm);

/* Whether a peer is reached through NVLink. */
gboolean standin_is_near(const ncclComm_t comm, int peer);

/* Into how many parts a message is cut, and the channel of each. */
guint standin_parts_of(const ncclComm_t comm, int peer, guint64 bytes);
guint standin_channel_of(const ncclComm_t comm, int peer, gboolean is_send, guint part);

/* The channels of all messages of a group, one bit each. */
uint64_t standin_parts_channels(const ncclComm_t comm, const StandinPart *parts, guint n);

/* ---- rates ---- */

/* How many bytes of a message may move now; when none, *wait_ns is lowered to when some may. */
guint64 standin_rate_allows(StandinPart *part, gint64 *wait_ns);
void standin_rate_moved(StandinPart *part, guint64 bytes);

/* Whether the time of what has moved so far is over; lowers *wait_ns likewise. */
gboolean standin_rate_is_free(StandinPart *part, gint64 *wait_ns);

/* Adds a group's bytes to those of its channels. */
void standin_rate_count(ncclComm_t comm, const StandinPart *parts, guint n);

/* ---- connections ---- */

void standin_connect_init(ncclComm_t comm);
void standin_connect_clear(ncclComm_t comm);

/* Takes the memory of connections that `parts` need and tells the peers. */
ncclResult_t standin_connect_begin(ncclComm_t comm, const StandinPart *parts, guint n);

/* ncclSuccess when all peers have come, ncclInProgress, or why that will not be. */
ncclResult_t standin_connect_poll(ncclComm_t comm);

/* ---- groups ---- */

/* Goes on with what a non-blocking communicator's group has left to do before its streams have it.
 */
void standin_group_poll(ncclComm_t comm);

/* Queues parts of one communicator as one group on its streams, after standin_launch_begin; takes
 * no ownership. */
ncclResult_t standin_group_launch(ncclComm_t comm, StandinPart *parts, guint n, guint64 launcher);

/* ---- the order of launches ---- */

/* Who launches: the calling thread, or one that NCCL would have made. */
guint64 standin_launcher(void);
guint64 standin_launcher_new(void);

/* Around a launch; the end says whether another thread has launched meanwhile. `begin` may be
 * called long before. */
void standin_launch_begin(ncclComm_t comm, guint64 launcher);
ncclResult_t standin_launch_end(ncclComm_t comm, guint64 launcher);

/* The place of a kernel among all of its device; waits for its turn, if there is an order; it has
 * started. */
uint32_t standin_order_ticket(int device);
void standin_order_wait(int device, uint32_t ticket);
void standin_order_started(int device);

/* What the stream's thread does with the parts of one kernel: returns when all are done, or FALSE
 * when the communicator was aborted, its device lost or a peer gone. */
gboolean standin_parts_move(ncclComm_t comm, StandinPart *parts, guint n);

/* Says which parts are not done. */
void standin_parts_describe(const StandinPart *parts, guint n, char *text, size_t size);
