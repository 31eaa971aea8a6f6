/*
 * Exchanges between ranks of several nodes. The pattern is a shift, the same for all ranks: who is
 * the k-th peer of a rank has that rank as its k-th source, so every rank sends and receives as
 * much, and a group holds one send and one receive per peer. Communicators are non-blocking, so
 * that each wait can look at the clock and at the other ranks. Cost: a communicator per setting,
 * and the messages.
 */

#include "validation/two-nodes-bench.h"

#include "validation/measure-nccl.h"
#include "validation/pack-check.h"

enum { POLL_SPINS = 200, POLL_US = 50, CHECK_EVERY = 32 };

static const char *const place_names[TWO_NODES_N_PLACES] = {
    [TWO_NODES_OTHER] = "other",
    [TWO_NODES_SPREAD] = "spread",
    [TWO_NODES_OWN] = "own",
    [TWO_NODES_DOMAIN] = "domain",
};

const char *two_nodes_place_name(TwoNodesPlace place) {
    return place_names[place];
}

guint two_nodes_most_peers(const TwoNodesBench *bench, TwoNodesPlace place) {
    switch (place) {
    case TWO_NODES_OTHER:
        return bench->n_nodes > 1 ? bench->per_node : 0;
    case TWO_NODES_SPREAD:
        return bench->n_nodes - 1;
    case TWO_NODES_OWN:
    case TWO_NODES_DOMAIN:
    case TWO_NODES_N_PLACES:
    default:
        return bench->per_node - 1;
    }
}

/* Rank, in the communicator for `place`, of the k-th peer that this rank sends to, `step` 1, or
 * receives from, `step` -1. */
static int peer_of(const TwoNodesBench *bench, TwoNodesPlace place, guint k, int step) {
    const int n_nodes = (int)bench->n_nodes, per_node = (int)bench->per_node;
    const int node = (int)bench->rank / per_node, own = (int)bench->rank % per_node;
    const int far = place == TWO_NODES_OTHER ? 1 : place == TWO_NODES_SPREAD ? (int)k + 1 : 0;
    const int along = place == TWO_NODES_SPREAD  ? 0
                      : place == TWO_NODES_OTHER ? (int)k
                                                 : (int)k + 1;
    const int peer_node = (node + step * far + n_nodes) % n_nodes;
    const int peer_own = (own + step * along + per_node) % per_node;

    return place == TWO_NODES_DOMAIN ? peer_own : peer_node * per_node + peer_own;
}

/* ---- waits ---- */

typedef struct {
    const TwoNodesBench *bench;
    gint64 end_us;
    guint n_polls;
} Wait;

static Wait begin_wait(const TwoNodesBench *bench) {
    return (Wait){bench, g_get_monotonic_time() + (gint64)(bench->timeout_s * G_USEC_PER_SEC), 0};
}

static gboolean linger(Wait *wait, const char *what, GError **error) {
    if (g_get_monotonic_time() > wait->end_us) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: not done within %g s", what,
                    wait->bench->timeout_s);
        return FALSE;
    }
    if (wait->n_polls % CHECK_EVERY == CHECK_EVERY - 1 &&
        !refit_rendezvous_check(wait->bench->rendezvous, error))
        return FALSE;
    if (wait->n_polls++ < POLL_SPINS)
        g_thread_yield();
    else
        g_usleep(POLL_US);
    return TRUE;
}

static gboolean settle(const TwoNodesBench *bench, ncclComm_t comm, const char *what,
                       GError **error) {
    ncclResult_t state = ncclInProgress;
    Wait wait = begin_wait(bench);

    while (MEASURE_NCCL(ncclCommGetAsyncError(comm, &state), error) &&
           measure_nccl(state, what, error)) {
        if (state == ncclSuccess)
            return TRUE;
        if (!linger(&wait, what, error))
            return FALSE;
    }
    return FALSE;
}

static gboolean wait_for(const TwoNodesBench *bench, cudaEvent_t event, GError **error) {
    Wait wait = begin_wait(bench);
    ncclResult_t state = ncclSuccess;
    cudaError_t result;

    while ((result = cudaEventQuery(event)) == cudaErrorNotReady)
        if (!MEASURE_NCCL(ncclCommGetAsyncError(bench->comm, &state), error) ||
            !measure_nccl(state, "an exchange", error) || !linger(&wait, "an exchange", error))
            return FALSE;
    return pack_check_cuda(result, "cudaEventQuery", error);
}

/* ---- communicators ---- */

gboolean two_nodes_free_bytes(const TwoNodesBench *bench, double *bytes_out, GError **error) {
    size_t free_bytes, total_bytes;

    if (!refit_rendezvous_barrier(bench->rendezvous, "memory", error) ||
        !PACK_CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes), error))
        return FALSE;
    *bytes_out = (double)free_bytes;
    return TRUE;
}

static gboolean end(const TwoNodesBench *bench, ncclComm_t comm) {
    return MEASURE_NCCL(ncclCommFinalize(comm), NULL) &&
           settle(bench, comm, "end of a communicator", NULL) &&
           ncclCommDestroy(comm) == ncclSuccess;
}

static void drop(const TwoNodesBench *bench, ncclComm_t *comm, gboolean well) {
    if (*comm != NULL && !(well && end(bench, *comm)))
        ncclCommAbort(*comm);
    *comm = NULL;
}

static void drop_comms(TwoNodesBench *bench, gboolean well) {
    if (bench->comm == bench->world)
        bench->comm = NULL;
    drop(bench, &bench->comm, well);
    drop(bench, &bench->world, well);
}

static gboolean make_world(TwoNodesBench *bench, int channels, GError **error) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = {{0}};

    config.blocking = 0;
    if (channels > 0)
        config.nChannelsPerNetPeer = channels;
    return (bench->rank > 0 || MEASURE_NCCL(ncclGetUniqueId(&id), error)) &&
           refit_rendezvous_broadcast(bench->rendezvous, "NCCL", &id, sizeof id, error) &&
           MEASURE_NCCL(ncclCommInitRankConfig(&bench->world,
                                               (int)(bench->n_nodes * bench->per_node), id,
                                               (int)bench->rank, &config),
                        error) &&
           settle(bench, bench->world, "set-up of a communicator", error);
}

static gboolean make_domain(TwoNodesBench *bench, GError **error) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    return MEASURE_NCCL(ncclCommSplit(bench->world, (int)(bench->rank / bench->per_node),
                                      (int)bench->rank, &bench->comm, &config),
                        error) &&
           settle(bench, bench->world, "splitting a communicator", error) &&
           settle(bench, bench->comm, "set-up of a communicator of a node", error);
}

gboolean two_nodes_connect(TwoNodesBench *bench, TwoNodesPlace place, int channels,
                           double *seconds_out, double *bytes_out, GError **error) {
    double before, after;
    gint64 begin_us;

    drop_comms(bench, TRUE);
    if ((place == TWO_NODES_DOMAIN && !make_world(bench, channels, error)) ||
        !two_nodes_free_bytes(bench, &before, error))
        return FALSE;
    begin_us = g_get_monotonic_time();
    if (place == TWO_NODES_DOMAIN ? !make_domain(bench, error)
                                  : !make_world(bench, channels, error))
        return FALSE;
    *seconds_out = (double)(g_get_monotonic_time() - begin_us) / G_USEC_PER_SEC;
    if (place != TWO_NODES_DOMAIN)
        bench->comm = bench->world;
    if (!two_nodes_free_bytes(bench, &after, error))
        return FALSE;
    *bytes_out = MAX(before - after, 0);
    return TRUE;
}

/* ---- exchanges ---- */

static gboolean group(const TwoNodesBench *bench, TwoNodesPlace place, guint n_peers, guint64 bytes,
                      GError **error) {
    if (!MEASURE_NCCL(ncclGroupStart(), error))
        return FALSE;
    for (guint k = 0; k < n_peers; k++)
        if (!MEASURE_NCCL(ncclSend(bench->from + k * bytes, bytes, ncclInt8,
                                   peer_of(bench, place, k, 1), bench->comm, bench->stream),
                          error) ||
            !MEASURE_NCCL(ncclRecv(bench->to + k * bytes, bytes, ncclInt8,
                                   peer_of(bench, place, k, -1), bench->comm, bench->stream),
                          error))
            return FALSE;
    return MEASURE_NCCL(ncclGroupEnd(), error) &&
           settle(bench, bench->comm, "submitting an exchange", error);
}

gboolean two_nodes_exchange(const TwoNodesBench *bench, TwoNodesPlace place, guint n_peers,
                            guint64 bytes, guint n, double *seconds_out, GError **error) {
    gint64 begin_us;
    float ms;

    g_assert(n_peers <= two_nodes_most_peers(bench, place) && n_peers * bytes <= bench->room);
    if (!refit_rendezvous_barrier(bench->rendezvous, "exchange", error))
        return FALSE;
    begin_us = g_get_monotonic_time();
    if (!group(bench, place, n_peers, bytes, error) ||
        !PACK_CHECK_CUDA(cudaEventRecord(bench->begin, bench->stream), error))
        return FALSE;
    for (guint i = 0; i < n; i++)
        if (!group(bench, place, n_peers, bytes, error))
            return FALSE;
    if (!PACK_CHECK_CUDA(cudaEventRecord(bench->end, bench->stream), error) ||
        !wait_for(bench, bench->end, error) ||
        !PACK_CHECK_CUDA(cudaEventElapsedTime(&ms, bench->begin, bench->end), error))
        return FALSE;
    *seconds_out = n > 0 ? MAX((double)ms, 1e-3) / 1e3 / n
                         : (double)(g_get_monotonic_time() - begin_us) / G_USEC_PER_SEC;
    return TRUE;
}

/* ---- all ---- */

gboolean two_nodes_open(TwoNodesBench *bench, GError **error) {
    return PACK_CHECK_CUDA(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking),
                           error) &&
           PACK_CHECK_CUDA(cudaEventCreateWithFlags(&bench->begin, cudaEventDefault), error) &&
           PACK_CHECK_CUDA(cudaEventCreateWithFlags(&bench->end, cudaEventDefault), error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&bench->from, bench->room), error) &&
           PACK_CHECK_CUDA(cudaMalloc((void **)&bench->to, bench->room), error) &&
           PACK_CHECK_CUDA(cudaMemset(bench->from, 1, bench->room), error) &&
           PACK_CHECK_CUDA(cudaMemset(bench->to, 2, bench->room), error) &&
           PACK_CHECK_CUDA(cudaDeviceSynchronize(), error);
}

void two_nodes_close(TwoNodesBench *bench, gboolean well) {
    const cudaEvent_t events[] = {bench->begin, bench->end};

    drop_comms(bench, well);
    if (bench->from != NULL)
        cudaFree(bench->from);
    if (bench->to != NULL)
        cudaFree(bench->to);
    for (guint i = 0; i < G_N_ELEMENTS(events); i++)
        if (events[i] != NULL)
            cudaEventDestroy(events[i]);
    if (bench->stream != NULL)
        cudaStreamDestroy(bench->stream);
}
