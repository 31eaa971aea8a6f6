#pragma once

/* Shared by the files of the NCCL M2N interface (nccl_m2n.h); not for other modules. */

#include "gpu/executor/refit-gpu.h"
#include "lib/nccl_m2n.h"
#include "lib/refit-part.h"
#include "model/case/refit-manifest.h"

G_BEGIN_DECLS

/* A side of a call, copied. */
typedef struct {
    guint n_dims, n_axes;
    guint64 local[REFIT_MAX_DIMS]; /* shape that this rank states */
    guint sizes[REFIT_MAX_AXES];
    gint placements[REFIT_MAX_AXES]; /* a dim or NCCL_RESHARD_REPLICATE */
    guint first, n_ranks;
    RefitDtype dtype;
    guint64 address;
} M2nSide;

typedef struct {
    M2nSide sides[REFIT_N_SIDES];
    guint number; /* in its group */
} M2nCall;

/* ---- refit-m2n-describe.c ---- */

/*
 * Copies descriptors that make sense by themselves; what depends on the communicator or on other
 * ranks is checked later. REFIT_ERROR_INVALID.
 */
gboolean m2n_call_read(const ncclDistTensor_t *source, const ncclDistTensor_t *destination,
                       M2nCall *call_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Against the communicator: meshes inside of it, memory on ranks that have a part. */
gboolean m2n_call_check(const M2nCall *call, guint rank, guint n_ranks, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean m2n_side_has(const M2nSide *side, guint rank);

/* SHA-256 of what all ranks must state alike. */
void m2n_calls_digest(const M2nCall *calls, guint n, guint8 *digest_out);
/* Of the local shapes that this rank states, and of its addresses. */
void m2n_calls_digest_local(const M2nCall *calls, guint n, guint8 *shapes_out,
                            guint8 *addresses_out);

/* Local shapes as ranks exchange them: n calls, two sides each, REFIT_MAX_DIMS entries each. */
guint64 *m2n_calls_shapes(const M2nCall *calls, guint n);

/*
 * The case of the calls. `shapes`: what m2n_calls_shapes() gave on each rank, by rank; once, when
 * they are `alike`. `domain_size`: ranks that are an NVLink domain, in turn. Errors name the call
 * and the rank.
 */
RefitCase *m2n_case_new(const M2nCall *calls, guint n, const guint64 *shapes, gboolean alike,
                        guint n_ranks, guint domain_size, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* ---- refit-m2n-plan.c ---- */

/* One rank's part of a planned set of calls. */
typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitPlan *plan;
    RefitSchedule *schedule;
    RefitPart *part;
    GBytes *key; /* what all ranks stated when it was made */
} M2nPlan;

/* Takes `refit_case`, also on error; references `key`. */
M2nPlan *m2n_plan_new(RefitCase *refit_case, guint rank, GBytes *key, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void m2n_plan_free(M2nPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(M2nPlan, m2n_plan_free)
/* Addresses of the calls in the order of the plan's parameters; NULL for a side without. Caller
 * frees. */
guint64 *m2n_plan_addresses(const M2nPlan *plan, RefitSide side, const M2nCall *calls);

/* ---- refit-m2n-gather.c ---- */

/* A communicator of this library's own, split off the caller's, over which ranks tell each other
 * what is not weights. */
typedef struct _M2nGather M2nGather;

/* Collective. REFIT_ERROR_BACKEND, also after `timeout_s`. */
M2nGather *m2n_gather_new(ncclComm_t parent, guint rank, guint n_ranks, double timeout_s,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;
void m2n_gather_free(M2nGather *gather);
/* All ranks' `bytes` bytes, by rank, in `all`, which may be NULL. */
gboolean m2n_gather(M2nGather *gather, gconstpointer mine, gsize bytes, gpointer all,
                    double timeout_s, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* FALSE with REFIT_ERROR_BACKEND, naming the call, unless it succeeded. */
gboolean m2n_cuda(cudaError_t result, const char *call, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Likewise; ncclInProgress is well. */
gboolean m2n_nccl(ncclComm_t comm, ncclResult_t result, const char *call, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Until `comm` is done with what it was asked for; for communicators that do not block. */
gboolean m2n_wait_comm(ncclComm_t comm, gint64 deadline_us, const char *what, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Until `stream`, which may be a default stream, is empty; `comm` may be NULL. */
gboolean m2n_wait_stream(cudaStream_t stream, ncclComm_t comm, gint64 deadline_us, const char *what,
                         GError **error) G_GNUC_WARN_UNUSED_RESULT;
gint64 m2n_deadline(double timeout_s);

/* ---- refit-m2n-mover.c ---- */

/* What is kept for one communicator of one handle. */
typedef struct _M2nMover M2nMover;

/* Collective. `max_blocks`: 0 for the executor's choice. */
M2nMover *m2n_mover_new(ncclComm_t comm, guint max_blocks, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Collective, except after a failure. */
void m2n_mover_free(M2nMover *mover);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(M2nMover, m2n_mover_free)
ncclComm_t m2n_mover_comm(const M2nMover *mover);
/* Collective: carries out the calls behind what `stream` holds. */
gboolean m2n_mover_run(M2nMover *mover, const M2nCall *calls, guint n, cudaStream_t stream,
                       GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
