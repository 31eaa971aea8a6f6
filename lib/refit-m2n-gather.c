/*
 * What ranks of the NCCL M2N interface tell each other besides weights.
 *
 * The problem: all that ranks share is the caller's communicator, which may block for ever and must
 * not be aborted. Method: a communicator of our own is split off it, non-blocking, so that every
 * wait has an end and what hangs can be aborted; records travel through a small buffer in pinned
 * and device memory and an all-gather. Cost: one all-gather and two copies per record.
 */

#include "lib/refit-m2n-private.h"

#include <string.h>

enum { SPINS = 200, SLEEP_US = 50, MAX_SLEEP_US = 1000, LEAST_BYTES = 1024 };

struct _M2nGather {
    ncclComm_t comm;
    cudaStream_t stream;
    guint rank, n_ranks;
    gsize capacity; /* bytes of a record that the buffers have room for */
    char *host;     /* pinned: all records; the own one first, while it is sent */
    char *device;   /* the own record, then all */
    double timeout_s;
    gboolean broken;
};

gboolean m2n_cuda(cudaError_t result, const char *call, GError **error) {
    if (result == cudaSuccess)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: %s", call,
                cudaGetErrorString(result));
    return FALSE;
}

gboolean m2n_nccl(ncclComm_t comm, ncclResult_t result, const char *call, GError **error) {
    if (result == ncclSuccess || result == ncclInProgress)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: %s: %s", call,
                ncclGetErrorString(result), ncclGetLastError(comm));
    return FALSE;
}

gint64 m2n_deadline(double timeout_s) {
    return g_get_monotonic_time() + (gint64)(timeout_s * G_USEC_PER_SEC);
}

/* Whether to go on waiting; sleeps, the longer the longer it takes. */
static gboolean pause_until(gint64 deadline_us, guint *n_polls, const char *what, GError **error) {
    if (g_get_monotonic_time() > deadline_us) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "%s: not all ranks came in time; do all of them make this call?", what);
        return FALSE;
    }
    if (++*n_polls > SPINS)
        g_usleep(MIN(SLEEP_US + *n_polls - SPINS, MAX_SLEEP_US));
    return TRUE;
}

static gboolean check_comm(ncclComm_t comm, const char *what, gboolean *ready_out, GError **error) {
    ncclResult_t state = ncclSuccess;

    if (!m2n_nccl(comm, ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", error) ||
        !m2n_nccl(comm, state, what, error))
        return FALSE;
    *ready_out = state == ncclSuccess;
    return TRUE;
}

gboolean m2n_wait_comm(ncclComm_t comm, gint64 deadline_us, const char *what, GError **error) {
    guint n_polls = 0;
    gboolean ready;

    do {
        if (!check_comm(comm, what, &ready, error))
            return FALSE;
    } while (!ready && pause_until(deadline_us, &n_polls, what, error));
    return ready;
}

gboolean m2n_wait_stream(cudaStream_t stream, ncclComm_t comm, gint64 deadline_us, const char *what,
                         GError **error) {
    cudaError_t state;
    guint n_polls = 0;
    gboolean ready;

    while ((state = cudaStreamQuery(stream)) == cudaErrorNotReady)
        if (!pause_until(deadline_us, &n_polls, what, error) ||
            (comm != NULL && !check_comm(comm, what, &ready, error)))
            return FALSE;
    return m2n_cuda(state, what, error);
}

/* ---- set-up ---- */

static gboolean split(M2nGather *self, ncclComm_t parent, double timeout_s, GError **error) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    gint64 deadline_us = m2n_deadline(timeout_s);

    config.blocking = 0;
    if (!m2n_nccl(parent, ncclCommSplit(parent, 0, (int)self->rank, &self->comm, &config),
                  "ncclCommSplit", error) ||
        !m2n_wait_comm(parent, deadline_us, "ncclCommSplit", error))
        return FALSE;
    return m2n_wait_comm(self->comm, deadline_us, "ncclCommSplit", error);
}

static gboolean reserve(M2nGather *self, gsize bytes, GError **error) {
    gsize capacity = MAX(bytes, LEAST_BYTES);
    gsize total;

    if (bytes <= self->capacity)
        return TRUE;
    if (!g_size_checked_mul(&total, capacity, (gsize)self->n_ranks + 1)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                    "%" G_GSIZE_FORMAT " bytes of each of %u ranks do not fit in 64 bits", bytes,
                    self->n_ranks);
        return FALSE;
    }
    cudaFreeHost(g_steal_pointer(&self->host));
    cudaFree(g_steal_pointer(&self->device));
    self->capacity = 0;
    if (!m2n_cuda(cudaMallocHost((void **)&self->host, total), "cudaMallocHost", error) ||
        !m2n_cuda(cudaMalloc((void **)&self->device, total), "cudaMalloc", error))
        return FALSE;
    self->capacity = capacity;
    return TRUE;
}

M2nGather *m2n_gather_new(ncclComm_t parent, guint rank, guint n_ranks, double timeout_s,
                          GError **error) {
    M2nGather *self = g_new0(M2nGather, 1);

    self->rank = rank;
    self->n_ranks = n_ranks;
    self->timeout_s = timeout_s;
    self->broken = !split(self, parent, timeout_s, error);
    if (!self->broken &&
        m2n_cuda(cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking),
                 "cudaStreamCreateWithFlags", error) &&
        reserve(self, LEAST_BYTES, error))
        return self;
    self->broken = TRUE;
    m2n_gather_free(self);
    return NULL;
}

static gboolean end_comm(M2nGather *self) {
    return !self->broken &&
           m2n_nccl(self->comm, ncclCommFinalize(self->comm), "ncclCommFinalize", NULL) &&
           m2n_wait_comm(self->comm, m2n_deadline(self->timeout_s), "ncclCommFinalize", NULL) &&
           ncclCommDestroy(self->comm) == ncclSuccess;
}

void m2n_gather_free(M2nGather *self) {
    if (self == NULL)
        return;
    if (self->comm != NULL && !end_comm(self))
        ncclCommAbort(self->comm);
    if (self->stream != NULL)
        cudaStreamDestroy(self->stream);
    cudaFreeHost(self->host);
    cudaFree(self->device);
    g_free(self);
}

/* ---- gathering ---- */

static gboolean move(M2nGather *self, gsize bytes, gint64 deadline_us, GError **error) {
    char *all = self->device + bytes;

    return m2n_cuda(cudaMemcpyAsync(self->device, self->host, bytes, cudaMemcpyHostToDevice,
                                    self->stream),
                    "cudaMemcpyAsync", error) &&
           m2n_nccl(self->comm,
                    ncclAllGather(self->device, all, bytes, ncclUint8, self->comm, self->stream),
                    "ncclAllGather", error) &&
           m2n_wait_comm(self->comm, deadline_us, "ncclAllGather", error) &&
           m2n_cuda(cudaMemcpyAsync(self->host, all, bytes * self->n_ranks, cudaMemcpyDeviceToHost,
                                    self->stream),
                    "cudaMemcpyAsync", error) &&
           m2n_wait_stream(self->stream, self->comm, deadline_us, "ncclAllGather", error);
}

gboolean m2n_gather(M2nGather *self, gconstpointer mine, gsize bytes, gpointer all,
                    double timeout_s, GError **error) {
    if (self->broken) {
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                            "an earlier call has failed; finalize the handle");
        return FALSE;
    }
    self->broken = TRUE;
    if (!reserve(self, bytes, error))
        return FALSE;
    memcpy(self->host, mine, bytes);
    if (!move(self, bytes, m2n_deadline(timeout_s), error)) {
        /* What waits on the device for others would keep the caller from freeing its memory. */
        ncclCommAbort(g_steal_pointer(&self->comm));
        return FALSE;
    }
    if (all != NULL)
        memcpy(all, self->host, bytes * self->n_ranks);
    self->broken = FALSE;
    return TRUE;
}
