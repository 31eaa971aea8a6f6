#pragma once

/*
 * The executor for CUDA and NCCL: carries out one rank's part of a schedule (refit-schedule.h) turn
 * by turn, as it is there: order, waits, turns in flight and communicators are the schedule's.
 *
 * It is a plugin: a shared object that exports one symbol, REFIT_GPU_SYMBOL, a constant RefitGpu. A
 * program that loads it with dlopen() needs neither CUDA nor NCCL itself, and no type of theirs
 * appears here: streams are passed as `void *`, device memory as 64-bit addresses.
 *
 *   probe()                          once, before threads start
 *   open()      on every rank        whether ranks are where they are declared to be; the
 *                                    communicator of all ranks
 *   prepare()   on every rank        staging memory, descriptors; plans are compared; communicators
 *                                    for the plan's streams, connected to the plan's peers
 *   run()       on every rank        as often as wanted; or start() and wait()
 *   close()
 *
 * All ranks call open, prepare, start and wait in the same order, also those without a part in a
 * plan. What they must agree on goes through the caller's RefitGpuPeers to rank 0, which judges it
 * and tells all the verdict: open and prepare agree twice, and the others once, also on a rank that
 * has failed by then, so that all ranks return the same. To agree is to gather once and to
 * broadcast once, some 50 bytes from and some 20 to each rank; when a rank has failed or is absent,
 * once more each, to hear why and to say so. (start, when it fails after it has agreed, agrees in
 * the place of wait.)
 *
 * Place. All ranks declare the same nodes and NVLink domains, and open compares these with what it
 * finds: each rank has a GPU of its own; ranks of one node are on one host, and those of different
 * nodes on different ones; GPUs of one domain have peer access to each other, as far as a process
 * sees both; a domain that spans hosts is one NVLink fabric, by the cluster UUID and the clique
 * that NVML states. Where it states nothing, place_note() says so. From then on errors name ranks
 * with their hosts, when these are several.
 *
 * Failure. A run that a rank does not finish within `timeout_s` fails on all ranks; the error names
 * those that did not report, or the one whose kernel has not ended, or else the ones that wait for
 * each other, and the step. Communicators are aborted then, the version stays as it is, and the
 * rank can only be closed. On a device that never ends a kernel that costs up to 10 s more, and the
 * rank keeps what it has on the device until its process ends; other ranks do not wait for it. An
 * object belongs to one thread at a time, except for abort() and the version functions.
 *
 * Errors: REFIT_ERROR_NOT_SUPPORTED for machines that cannot do it, REFIT_ERROR_INVALID for
 * arguments that make no sense and ranks that are not where they are declared to be,
 * REFIT_ERROR_WIRE_SIZE and REFIT_ERROR_COVERAGE when ranks have different plans or schedules,
 * REFIT_ERROR_BACKEND for all that CUDA, NCCL or another rank did.
 */

#include "model/predict/refit-executor.h"
#include "model/schedule/refit-version.h"

G_BEGIN_DECLS

#define REFIT_GPU_ABI 4
#define REFIT_GPU_SYMBOL "refit_gpu"

/* How a rank reaches the others; the calls come from the thread that uses the executor. */
typedef struct {
    /*
     * Brings what all ranks say to rank 0: `bytes` bytes of each, by rank, in `all`; some 50, or
     * some 300 in open and when a rank has failed. Other ranks pass NULL for `all` and `came`.
     * Calls come in the same order and with the same size on every rank. It returns, on all ranks,
     * when every rank has come or after `timeout_s`: came[r] takes 1 for each rank that has come
     * and 0 for others, whose bytes are undefined; it stays so when one comes later. FALSE, with
     * the same error on all ranks, when rank 0 has not come; also for other absent ranks if it
     * prefers to name them itself, and when it cannot go on.
     */
    gboolean (*gather)(gpointer user_data, gconstpointer mine, gsize bytes, gpointer all,
                       guint8 *came, double timeout_s, GError **error);
    /*
     * `bytes` bytes of rank 0 replace those of all others; 16, 128 or some 1000. It follows a
     * gather that rank 0 has come to, and returns when rank 0's bytes are there, also on a rank
     * that comes late; best without waiting for those that have not come. FALSE, also after
     * `timeout_s`, when it cannot go on.
     */
    gboolean (*broadcast)(gpointer user_data, gpointer data, gsize bytes, double timeout_s,
                          GError **error);
    /* May be NULL. Never waits: FALSE when another rank is known to have failed. Called every few
     * milliseconds in long waits. Nothing is gathered after it returned FALSE. */
    gboolean (*check)(gpointer user_data, GError **error);
    /* May be NULL. Takes ownership of this rank's error, tells the others' check() and returns the
     * error to report. Called in the place of a gather; ranks whose time is over while they wait
     * for others gather all the same, and together find whom they wait for. */
    GError *(*fail)(gpointer user_data, GError *mine);
    gpointer user_data;
} RefitGpuPeers;

struct _RefitGpuConfig {
    guint rank, n_ranks;  /* of the program and its plan, ranks without a part included */
    int device;           /* CUDA device, as this process numbers them */
    const guint *domains; /* per rank: its NVLink domain; borrowed for the call */
    const guint *nodes;   /* per rank: its node; likewise. NULL: none is declared, none checked */
    const char *host;     /* the one that this rank is on; NULL: this machine (refit-host.h) */
    const char *gpu;      /* what tells its GPU from others; NULL: the device's PCI bus id. For test
                             doubles whose ranks share one: then nothing else is asked of it */
    RefitGpuPeers peers;
    double
        timeout_s; /* of each open, prepare and run; then a quarter more, or 1 s, to agree on it */
    gboolean untimed; /* no times and no events: a run then takes fewer CUDA events */
    /* Limit of a pack, unpack or copy kernel's grid; 0: 16 beside messages over the network, whose
     * kernels need whole multiprocessors and whose bytes come no faster, else 64. */
    guint kernel_blocks;
};

/*
 * What one stage of the plan took on this rank: from its first begin to its last end, and per kind
 * of event the sum over its turns. All that a turn sends counts once, and takes as long as its
 * group, and so does all that it receives. Times since the run began.
 */
typedef struct {
    double start_s, end_s;
    double busy_s[REFIT_N_EVENT_KINDS];
    guint64 bytes[REFIT_N_EVENT_KINDS]; /* of the messages, or installed */
} RefitGpuStage;

typedef struct {
    guint64 version;   /* number of the version that this run brought */
    double duration_s; /* from the first operation to the last, by CUDA events; 0 when untimed */
    double agreed_s;   /* until all ranks agreed, by the host's clock */
    guint64 in[REFIT_N_LINKS], out[REFIT_N_LINKS]; /* bytes handed to NCCL and to copy kernels */
    guint64 n_groups, n_launches;                  /* NCCL groups, kernels */
    /* Device memory of NCCL's connections: by the rule of refit-schedule-comms.h, and what was gone
     * of the free memory when they had been made. Others on the device count in the latter. */
    guint64 connection_bytes, connections_taken_bytes;
    guint n_stages;
    const RefitGpuStage *stages; /* of the plan; owned by the executor until the next start */
} RefitGpuResult;

typedef struct _RefitGpuRank RefitGpuRank;

typedef struct {
    /*
     * What every executor has; `self` is a RefitGpuRank.
     *
     *   probe     is there a driver, recent enough, and a GPU? Changes nothing
     *   open      copies the configuration. NULL, on all ranks that come, when a rank does not come
     *             or has failed
     *   prepare   the program is of this rank, its schedule that of all ranks. Replaces what was
     *             prepared before; the version starts anew. Connects to all peers; fails on all
     *             ranks where a device has no room for that
     *   run       start(), then wait(); each event of this rank that refit-executor.h names. What
     *             an exchange moves in a turn begins and ends with the turn's group
     */
    RefitExecutor executor;
    guint abi; /* REFIT_GPU_ABI */

    guint (*n_devices)(void); /* that this process can use; 0: see probe */
    /* What open could not check of where ranks are, in a sentence without an end; owned by the
     * executor. NULL: nothing, or this is not rank 0. */
    const char *(*place_note)(RefitGpuRank *self);
    /*
     * Submits the whole program. `stream` is a cudaStream_t or NULL: the program begins after what
     * has been submitted to it, and what is submitted to it after wait() begins after the program.
     * Must be followed by wait(), unless it failed.
     */
    gboolean (*start)(RefitGpuRank *self, void *stream, GError **error);
    /*
     * The next run begins after what this cudaStream_t holds by now, too; as often as an engine has
     * streams that read or write what the run does.
     */
    gboolean (*follow)(RefitGpuRank *self, void *stream, GError **error);
    /* Until the run has ended on all ranks. `func` and `result_out` may be NULL. */
    gboolean (*wait)(RefitGpuRank *self, RefitEventFunc func, gpointer user_data,
                     RefitGpuResult *result_out, GError **error);
    /* From any thread: a run in progress, and all later ones, fail. */
    void (*abort)(RefitGpuRank *self);

    /*
     * From any thread. The version that this rank serves: `none` from the submission of the first
     * write to its parameters until all ranks agreed that all of theirs are done, whence it is the
     * new one (old, to the run after). A rank without destination parameters always serves.
     *
     * It tells the host what to do next, and is no fence on the device: work that an engine has
     * submitted to a stream of its own may still run when a run writes, whatever it read here
     * before, unless the run begins after it: start() behind that stream, or follow() it.
     */
    RefitServes (*serves)(RefitGpuRank *self);
    guint64 (*version)(RefitGpuRank *self); /* runs that brought a version on all ranks */

    /* Device memory for programs that link no CUDA. 0 with an error when there is none left. Not
     * while a run is in progress. `free` takes what `alloc` gave and has not been freed. */
    guint64 (*memory_alloc)(RefitGpuRank *self, guint64 bytes, GError **error);
    void (*memory_free)(RefitGpuRank *self, guint64 address);
    gboolean (*memory_upload)(RefitGpuRank *self, guint64 address, gconstpointer from,
                              guint64 bytes, GError **error);
    gboolean (*memory_download)(RefitGpuRank *self, gpointer to, guint64 address, guint64 bytes,
                                GError **error);
} RefitGpu;

/* The table of this plugin, for programs that link it instead of loading it. */
extern const RefitGpu refit_gpu;

G_END_DECLS
