#pragma once

/*
 * One rank of several, in a communicator at a time, in which all exchange messages of one size with
 * as many peers at once. All functions that take a bench are calls of all ranks, in one order.
 * Nothing waits longer than the time-out, or when another rank has failed. FALSE with
 * REFIT_ERROR_BACKEND.
 */

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "gpu/rendezvous/refit-rendezvous.h"

G_BEGIN_DECLS

/* Where the peers of a rank are. */
typedef enum {
    TWO_NODES_OTHER,  /* all on one other node: ranks from its own place there on */
    TWO_NODES_SPREAD, /* each on another node, at its own place there */
    TWO_NODES_OWN,    /* on its own node, in a communicator of all ranks */
    TWO_NODES_DOMAIN, /* on its own node, in a communicator of that node */
    TWO_NODES_N_PLACES
} TwoNodesPlace;

typedef struct {
    RefitRendezvous *rendezvous;
    guint rank, n_nodes, per_node; /* rank = node * per_node + place on the node */
    double timeout_s;
    ncclComm_t world, comm; /* `comm`: in which messages go; NULL: none */
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *from, *to; /* of `room` bytes */
    guint64 room;
} TwoNodesBench;

/* "other", "spread", "own", "domain". */
const char *two_nodes_place_name(TwoNodesPlace place);
/* The most peers that a rank can have there. */
guint two_nodes_most_peers(const TwoNodesBench *bench, TwoNodesPlace place);

/* Stream, events and buffers. */
gboolean two_nodes_open(TwoNodesBench *bench, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Also the communicator, which is aborted when something has failed. */
void two_nodes_close(TwoNodesBench *bench, gboolean well);

/*
 * Replaces the communicator by one for `place`. `channels` (0: NCCL chooses) is
 * nChannelsPerNetPeer. *seconds_out: what the call of NCCL took; *bytes_out: by how much free
 * device memory became less.
 */
gboolean two_nodes_connect(TwoNodesBench *bench, TwoNodesPlace place, int channels,
                           double *seconds_out, double *bytes_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Sends `bytes` to each of `n_peers` peers and receives as much from as many, `n` times, one group
 * after the other. *seconds_out: of one of them, on the device, after an exchange that is not
 * timed; with `n` 0, of that one, by the host's clock. n_peers * bytes must fit in the room.
 */
gboolean two_nodes_exchange(const TwoNodesBench *bench, TwoNodesPlace place, guint n_peers,
                            guint64 bytes, guint n, double *seconds_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Free memory of the device, when all ranks have come here: others make buffers on it, too. */
gboolean two_nodes_free_bytes(const TwoNodesBench *bench, double *bytes_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
