#pragma once

/*
 * The calls of NCCL that the executor makes, answered inside one process: ranks are threads that
 * share one device, and a message is a copy on that device. A test double, for a machine with a
 * single GPU, where NCCL refuses a second rank: the executor's kernels, streams, events and memory
 * are real then, the messages are not. It tells nothing about NCCL or a link. Needs the CUDA
 * runtime only, so it also runs on the CPU stand-in of that.
 *
 * Like NCCL, but stricter:
 *  - a group has at most one send and one receive per peer, and none to itself
 *  - both ends of a message state the same size, or both fail
 *  - a communicator, and a stream, takes a group only when its last one is on its streams:
 * non-blocking communicators are in progress until then. That needs the groups of all peers to have
 * been submitted, so ranks that submit in different orders stay in progress for ever, where NCCL
 *    would hang.
 *  - bytes only; no calls but these within a group
 *
 * ncclCommAbort is local, as NCCL's is: peers stay in progress.
 */

#include <glib.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

G_BEGIN_DECLS

typedef struct LoopWorld LoopWorld;
typedef struct LoopSplit LoopSplit;
typedef struct LoopGroup LoopGroup;

/* From one rank to another. Goes away when neither end needs it any more. */
typedef struct {
    gsize bytes;
    const void *from;
    LoopGroup *sender, *receiver; /* NULL: has not come, or is through with it */
    cudaEvent_t copied;           /* recorded behind the copy; NULL: not copied yet */
} LoopMessage;

/* What the members of a communicator share. */
struct LoopWorld {
    char id[sizeof(ncclUniqueId)]; /* all 0: made by a split */
    guint n, n_came, n_gone;
    gboolean *came;         /* per rank */
    int device;             /* of all ranks */
    LoopMessage **messages; /* [source * n + destination]: not copied yet */
    GPtrArray *splits;      /* of LoopSplit, in the order of the calls */
    ncclResult_t failure;   /* ncclSuccess: none */
    char *text;             /* of the failure */
};

struct ncclComm {
    LoopWorld *world;
    guint rank;
    gboolean blocking;
    gboolean finalized;
    LoopGroup *group; /* not yet on its streams */
    guint n_splits;
    LoopSplit *split; /* in progress */
    ncclComm_t *split_out;
    gboolean split_blocking;
};

/* ---- loopback-comm.c ---- */

/* All of this file's state belongs to who holds the lock. */
void loop_lock(void);
void loop_unlock(void);
/* Within the lock: until something has changed. */
void loop_wait(void);
void loop_changed(void);

/* Sets the text of ncclGetLastError() and returns `result`. */
ncclResult_t loop_fail(ncclResult_t result, const char *format, ...) G_GNUC_PRINTF(2, 3);
#define LOOP_CUDA(call) loop_cuda((call), #call)
ncclResult_t loop_cuda(cudaError_t error, const char *call);
/* Also for all other members, for ever. */
ncclResult_t loop_fail_world(LoopWorld *world, ncclResult_t result);

/* Communicators that have not been destroyed. */
guint loop_n_comms(void);
/* Makes what progress is possible: ncclSuccess when nothing is in progress. */
ncclResult_t loop_progress(ncclComm_t comm);

/* ---- loopback-group.c ---- */

/* NCCL's header leaves their parameters open. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* This thread is between ncclGroupStart and ncclGroupEnd. */
gboolean loop_in_group(void);
/* Puts on the streams what has its peers. The group is freed, and ncclSuccess returned, when that
 * is all of it. */
ncclResult_t loop_group_advance(LoopGroup *group);
/* Takes the operations of `comm` out of its group. */
void loop_group_drop(ncclComm_t comm);

G_END_DECLS
