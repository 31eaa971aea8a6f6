#pragma once

/* Shared by the files of the executor; not for other modules. */

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "gpu/executor/refit-gpu.h"
#include "gpu/executor/refit-strided.h"

G_BEGIN_DECLS

/* ---- agreement ---- */

typedef enum {
    REFIT_GPU_PHASE_OPEN,
    REFIT_GPU_PHASE_PREPARE,
    REFIT_GPU_PHASE_START,
    REFIT_GPU_PHASE_WAIT,
} RefitGpuPhase;

enum { REFIT_GPU_STUCK_PEERS = 6, REFIT_GPU_TEXT = 256, REFIT_GPU_VERDICT_TEXT = 1024 };

/*
 * What a rank says of itself in each phase. Rank 0 hears it of every other, so only the head is
 * said always; the rest, when the head of any rank says that it has failed.
 */
typedef struct {
    guint32 abi, phase;
    guint32 failed; /* 0, or 1 + RefitError */
    guint32 stuck;  /* it waits for others; its step and how many it waits for */
    guint32 step, n_peers;
    guint64 same;     /* open: hash of ranks and domains; prepare: see refit_gpu_digest_head() */
    guint64 schedule; /* prepare: see refit_gpu_schedule_hash() */
    guint64 sent, received; /* prepare: sums of a hash of each message, modulo 2^64 */
    /* The rest. */
    guint32 peers[REFIT_GPU_STUCK_PEERS]; /* that it waits for, the first of them */
    char text[REFIT_GPU_TEXT];            /* of its error */
} RefitGpuRecord;

#define REFIT_GPU_HEAD_BYTES offsetof(RefitGpuRecord, peers)

enum {
    REFIT_GPU_HOST_NAME = 64,
    REFIT_GPU_NAME = 32,
    REFIT_GPU_UNREACHABLE = 16,
    REFIT_GPU_CLUSTER_BYTES = 16
};

/* Whether NVLink may join a GPU with those of other hosts. */
typedef enum {
    REFIT_GPU_FABRIC_UNKNOWN,
    REFIT_GPU_FABRIC_NONE,
    REFIT_GPU_FABRIC_KNOWN
} RefitGpuFabric;

/* Where a rank is: what it says once, with its first record. */
typedef struct {
    guint64 host; /* see RefitHost */
    char host_name[REFIT_GPU_HOST_NAME];
    char gpu[REFIT_GPU_NAME]; /* PCI bus id, lower case */
    guint32 n_unreachable;    /* GPUs of its process that its own has no peer access to */
    guint32 unreachable[REFIT_GPU_UNREACHABLE]; /* hashes of their bus ids */
    guint32 fabric;                             /* RefitGpuFabric; when known, which: */
    guint32 clique;
    guint8 cluster[REFIT_GPU_CLUSTER_BYTES];
} RefitGpuPlace;

/* What rank 0 makes of the heads of all ranks. */
typedef struct {
    guint32 failed;   /* 0: all is well, else 1 + RefitError */
    guint32 asks_why; /* a rank has failed: all say the rest of their records */
    guint32 rank;     /* this one, the first of those; should the rest not be heard */
    guint32 breaks;   /* a rank is absent: nothing can be agreed upon any more */
} RefitGpuVerdict;

/* ---- what has been prepared ---- */

/* When parts of a turn begin and end. */
typedef enum {
    REFIT_GPU_PACK_BEGIN,
    REFIT_GPU_PACK_END,
    REFIT_GPU_MOVE_BEGIN,
    REFIT_GPU_MOVE_END,
    REFIT_GPU_UNPACK_BEGIN,
    REFIT_GPU_DONE, /* and unpacked, if there is anything to unpack */
    REFIT_GPU_N_EVENTS
} RefitGpuEvent;

/* Seconds after which aborted work does not end any more: when a kernel seems to hang, and when
 * nothing says so. */
#define REFIT_GPU_HUNG_S 1
#define REFIT_GPU_ABORT_S 10
/* What one exchange moves in a turn: a message, or local copies. */
typedef struct {
    guint peer;
    gboolean sends;
    guint64 address; /* of a message */
    guint64 bytes;
} RefitGpuMessage;

/* A launch's descriptors: packed ones and others are different kernels. There are none where all is
 * in place already. */
typedef struct {
    RefitStridedSpan packed, other;
    guint64 bytes; /* of the messages; 0: the turn has no such part */
} RefitGpuLaunch;

typedef struct {
    guint step, number, chunk; /* step of the program, global number */
    guint flow, place;         /* among the turns of its flow */
    guint first_message, n_messages;
    guint first_wait, n_waits;    /* of RefitGpuWork.waits */
    RefitGpuLaunch before, after; /* pack; unpack, copies or an install */
    gboolean writes;              /* into destination parameters */
    float ms[REFIT_GPU_N_EVENTS]; /* since the run began, once they have been read */
} RefitGpuTurn;

/*
 * A stream of the schedule: CUDA streams, of which there are two or one where nothing is packed
 * (unpacked), and events for as many turns as may be in flight. A turn has those of its place
 * modulo that, which the turn that had them before is done with.
 */
typedef struct {
    guint stream;              /* of the schedule */
    guint first_turn, n_turns; /* of RefitGpuWork.by_place */
    guint n_issued, n_done;    /* of these, in the run in progress */
    cudaStream_t pack, move, unpack;
    cudaEvent_t packed, moved;                 /* recorded anew in each turn */
    cudaEvent_t last;                          /* of the run */
    guint window;                              /* turns that have events at the same time */
    cudaEvent_t (*events)[REFIT_GPU_N_EVENTS]; /* NULL where no turn needs one */
} RefitGpuFlow;

typedef struct {
    const RefitProgram *program;
    guint n_flows, n_turns;
    RefitGpuFlow *flows;
    RefitGpuTurn *turns;
    guint *by_place;         /* turns, flow after flow */
    GArray *messages;        /* RefitGpuMessage */
    GArray *waits;           /* guint: turns */
    guint64 staging;         /* device address; 0: none */
    guint64 greetings;       /* likewise; see refit-gpu-connect.c */
    RefitStridedCopy *table; /* on the device; NULL: none */
    RefitGpuStage *stages;
    guint64 sent, received; /* see RefitGpuRecord */
    cudaEvent_t origin;     /* of the run */
    cudaStream_t main;      /* when the caller states none */
} RefitGpuWork;

/* A wait in progress. */
typedef struct {
    guint n;
    gint64 since_us; /* 0: it has not begun */
} RefitGpuPoll;

struct _RefitGpuRank {
    guint rank, n_ranks;
    int device;
    guint *domains;      /* per rank */
    guint *nodes;        /* per rank; NULL: not declared */
    guint *domain_ranks; /* per rank: its number in its domain */
    RefitGpuPeers peers;
    RefitGpuPlace place;
    gboolean introduces;    /* its next record is the first, and its place goes with it */
    RefitGpuPlace *places;  /* per rank, on rank 0; NULL elsewhere */
    gboolean several_hosts; /* on rank 0: ranks are named with their hosts */
    char *place_note;       /* on rank 0: what could not be checked; NULL: nothing */
    double timeout_s;
    gboolean untimed;
    guint kernel_blocks;
    int high_priority, low_priority;
    ncclComm_t world; /* of all ranks: from it all others are split; NULL: none */
    /* By link class, of all ranks or of the NVLink domain: for streams of schedules. */
    ncclComm_t comms[REFIT_N_LINKS][REFIT_SCHEDULE_COMMS];
    guint n_comms[REFIT_N_LINKS];
    guint ctas[REFIT_N_LINKS], per_peer[REFIT_N_LINKS]; /* of these; see refit-schedule-comms.h */
    GArray *followed;      /* cudaEvent_t: the next run begins after them */
    ncclComm_t *splitting; /* of these, the one that NCCL may set at any time; NULL: none */
    gint aborted;          /* atomic */
    gboolean broken;       /* communicators are gone */
    gboolean waiting;      /* the last failure was that others did not come */
    gboolean informed;     /* another rank told of the last failure */
    gboolean hung;         /* the device does not end its work; in a failure, maybe */
    gboolean running;
    gint64 deadline_us; /* of the call in progress; see refit_gpu_begin() */
    /* Of device memory, by connections: as the schedules prepared so far count them, and what was
     * found to be gone. */
    guint64 connection_bytes, taken_bytes;
    RefitGpuWork *work; /* NULL: not prepared */
    GMutex lock;        /* of the three below */
    RefitVersion *version;
    gboolean writing; /* it has begun */
    guint64 number;
    /* of the run in progress */
    guint n_issued; /* turns */
    gint64 started_us;
    RefitGpuResult result;
};

/* ---- refit-gpu.c ---- */

/* FALSE with REFIT_ERROR_BACKEND, naming the call, unless it succeeded. */
gboolean refit_gpu_cuda(cudaError_t result, const char *call, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
#define REFIT_GPU_CUDA(call, error) refit_gpu_cuda((call), #call, (error))

/* Begins a call, and its time. FALSE, without telling anybody, when the rank is broken. */
gboolean refit_gpu_begin(RefitGpuRank *self, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Whether the time of the call in progress is over. */
gboolean refit_gpu_is_late(const RefitGpuRank *self);
/* Makes the rank's device that of this thread. */
gboolean refit_gpu_enter(const RefitGpuRank *self, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Copies to the device, for all its streams: a copy out of pageable memory may still be on its way
 * when cudaMemcpy() returns, and streams that do not block would not wait for it. */
gboolean refit_gpu_upload(void *to, gconstpointer from, guint64 bytes, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- refit-gpu-agree.c ---- */

/* A record of this phase, without more in it. */
void refit_gpu_record_init(RefitGpuRecord *record, RefitGpuPhase phase);
/* The first 16 of a plan's hexadecimal digits. */
guint64 refit_gpu_digest_head(const char *digest);
/* Of steps and communicators of all ranks. Cost: steps. */
guint64 refit_gpu_schedule_hash(const RefitSchedule *schedule);
/* On rank 0: what the records of all ranks, who are well and in the same phase, say together. */
typedef gboolean (*RefitGpuJudge)(const RefitGpuRank *self, const RefitGpuRecord *all,
                                  GError **error);
/*
 * Says `mine`, which is failed when `failure` is not NULL (takes ownership), and hears the verdict
 * of rank 0. TRUE when no rank is absent or has failed, all are in the same phase, and `judge`
 * (NULL: nobody) finds nothing wrong; else FALSE with one error on all ranks.
 */
gboolean refit_gpu_agree(RefitGpuRank *self, RefitGpuRecord *mine, GError *failure,
                         RefitGpuJudge judge, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* "rank 3", "ranks 3, 5 and 8", "ranks 3, 5, 8, 9 and 12 more", on rank 0 each with its host where
 * there are several: "rank 3 (node1)". Caller frees. */
char *refit_gpu_name_ranks(const RefitGpuRank *self, const guint *ranks, guint n);
/* `bytes` bytes of rank 0 replace those of the others. */
gboolean refit_gpu_spread(RefitGpuRank *self, gpointer bytes, gsize size, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- refit-gpu-place.c ---- */

/* The host of a place; `stated` as in RefitGpuConfig. The rest of it becomes empty. */
void refit_gpu_place_host(const char *stated, RefitGpuPlace *place);
/* The GPU of a place; likewise. */
gboolean refit_gpu_place_device(int device, const char *stated, RefitGpuPlace *place,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* On rank 0, when the places of those that have come are there; of others the host has no name. */
void refit_gpu_places_heard(RefitGpuRank *self);
/* On rank 0 and where ranks are on several hosts: the name of this rank's; else NULL. */
const char *refit_gpu_host_of(const RefitGpuRank *self, guint rank);
/* On rank 0: whether all ranks are where nodes and domains say. *note_out takes what no machine
 * could say, if there is such a thing. REFIT_ERROR_INVALID. */
gboolean refit_gpu_places_check(const RefitGpuRank *self, char **note_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- refit-gpu-fabric.c ---- */

/* The NVLink fabric of the GPU of a place. */
void refit_gpu_fabric_find(RefitGpuPlace *place);

/* ---- refit-gpu-comm.c ---- */

/* FALSE with REFIT_ERROR_BACKEND, naming the call, unless the result is ncclSuccess or
 * ncclInProgress. */
gboolean refit_gpu_nccl(RefitGpuRank *self, ncclComm_t comm, ncclResult_t result, const char *call,
                        GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Whether a wait may go on: not aborted, in time, all ranks well. Sleeps for a while; more when it
 * has lasted. */
gboolean refit_gpu_linger(RefitGpuRank *self, RefitGpuPoll *poll, const char *what, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Makes the communicator of all ranks; rank 0's id is in `id`. */
gboolean refit_gpu_comms_open(RefitGpuRank *self, const ncclUniqueId *id, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Makes those that the prepared schedule wants and that are not there; a call of all ranks. Ends
 * those that have other channels. */
gboolean refit_gpu_comms_extend(RefitGpuRank *self, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Ends them in order, or aborts them after the time-out. */
void refit_gpu_comms_close(RefitGpuRank *self);
/* How long what has been aborted may take to end. */
gint64 refit_gpu_comms_patience_us(const RefitGpuRank *self);
/* Aborts all at the same time: each may have work that waits for another's. Sets `hung`. */
void refit_gpu_comms_abort(RefitGpuRank *self);
/* Aborts all but one that another thread uses, which is left as it is, for ever. Sets `hung`. */
void refit_gpu_comms_leave(RefitGpuRank *self, ncclComm_t used);
/* Whether all communicators are well: what they moved may be done without having come. */
gboolean refit_gpu_comms_check(RefitGpuRank *self, const char *what, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* As refit_gpu_linger(), while they are. */
gboolean refit_gpu_comms_poll(RefitGpuRank *self, RefitGpuPoll *poll, const char *what,
                              GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Submits the messages of a turn as one group. */
gboolean refit_gpu_comms_group(RefitGpuRank *self, const RefitGpuTurn *turn, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- refit-gpu-connect.c ---- */

/* Whether the device has room for connections that the prepared schedule wants, and no schedule
 * before it did. REFIT_ERROR_BACKEND naming bytes. */
gboolean refit_gpu_connect_check(const RefitGpuRank *self, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Meets the peers of the prepared schedule, a few bytes each, on communicators that are there, so
 * that NCCL makes its connections now. A call of all ranks. */
gboolean refit_gpu_connect(RefitGpuRank *self, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Whom a rank that waits in it may wait for: those from which it receives, else to which it sends.
 */
void refit_gpu_connect_describe(const RefitGpuRank *self, RefitGpuRecord *record_out);

/* ---- refit-gpu-prepare.c ---- */

RefitGpuWork *refit_gpu_work_new(RefitGpuRank *self, const RefitExecutorWork *what, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_gpu_work_free(RefitGpuWork *work);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitGpuWork, refit_gpu_work_free)

/* ---- refit-gpu-boxes.c ---- */

/* Where memory is on this rank. */
typedef struct {
    const guint64 *source, *destination; /* of parameters */
    guint64 staging;
    guint64 message; /* of the exchange in work */
} RefitGpuPlaces;

/*
 * Adds to `packed` and `other` (of RefitGpuBox) the copies of an exchange in one turn. `runs` is
 * scratch (of RefitByteRun). Neighbouring runs at constant distances become one box. *writes is set
 * to TRUE when something goes to destination parameters, else unchanged.
 */
typedef struct {
    guint64 from, to; /* addresses; of a message, its place */
    guint64 bytes;    /* of a run */
    guint n_dims;     /* innermost first */
    guint64 extent[REFIT_STRIDED_DIMS];
    gint64 from_step[REFIT_STRIDED_DIMS], to_step[REFIT_STRIDED_DIMS];
} RefitGpuBox;

/* The boxes that a list of runs makes, in their order; runs that are in place already are left out.
 */
void refit_gpu_boxes_append(GArray *boxes, const RefitGpuPlaces *places, const RefitByteRun *runs,
                            guint n);
/* Bytes of a box lie in its message, at `to` (from), one after the other. */
gboolean refit_gpu_box_is_packed(const RefitGpuBox *box, gboolean packs);
gboolean refit_gpu_box_add(const RefitGpuBox *box, RefitStridedTable *table, gboolean packed,
                           gboolean packs, guint64 packed_base, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- refit-gpu-flow.c ---- */

/* CUDA streams and events of a flow whose turns are counted. */
gboolean refit_gpu_flow_open(RefitGpuFlow *flow, const RefitGpuRank *self, gboolean packs,
                             gboolean moves, gboolean unpacks, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_gpu_flow_close(RefitGpuFlow *flow);
/* The event of a turn in flight or about to be; NULL where it has none. */
cudaEvent_t refit_gpu_turn_event(const RefitGpuWork *work, const RefitGpuTurn *turn,
                                 RefitGpuEvent event);
/* Whether a turn that was submitted is known to be done, so that others may have its events. */
gboolean refit_gpu_turn_is_done(const RefitGpuWork *work, const RefitGpuTurn *turn);
/* Asks all flows which of their turns are done. */
gboolean refit_gpu_flows_advance(RefitGpuWork *work, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Keeps the times of a turn that is done and whose events no other has yet; nothing when untimed.
 */
gboolean refit_gpu_turn_read(const RefitGpuRank *self, RefitGpuTurn *turn, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- refit-gpu-run.c ---- */

gboolean refit_gpu_follow(RefitGpuRank *self, void *stream, GError **error);
gboolean refit_gpu_start(RefitGpuRank *self, void *stream, GError **error);
gboolean refit_gpu_wait(RefitGpuRank *self, RefitEventFunc func, gpointer user_data,
                        RefitGpuResult *result_out, GError **error);

void refit_gpu_forget_followed(RefitGpuRank *self);

/* ---- refit-gpu-result.c ---- */

/* What a run took whose turns are all done. */
gboolean refit_gpu_measure(RefitGpuRank *self, RefitEventFunc func, gpointer user_data,
                           GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
