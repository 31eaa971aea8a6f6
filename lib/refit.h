#ifndef REFIT_H
#define REFIT_H

/*
 * Refit: plans the move of model weights from one parallel layout to another, and moves them with
 * CUDA and NCCL. For programs in C and whatever can call C: plain types, opaque handles.
 *
 *   job        what moves, between which layouts, on which machine; and the plan. Needs no GPU.
 *   endpoint   this rank's part in carrying out the plan of a job
 *
 *   RefitJob *job = refit_job_new();
 *   refit_job_set_topology(job, "node:2 gpu:8 nvlink:450GBps nic:50GBps");
 *   refit_job_add_tensor(job, &tensor, &index);
 *   refit_job_place(job, index, REFIT_SOURCE, &trained);
 *   refit_job_place(job, index, REFIT_DESTINATION, &served);
 *   refit_job_plan(job, NULL);
 *
 *   refit_endpoint_open(job, &config, &endpoint);          on every rank, as are the calls below
 *   refit_endpoint_bind(endpoint, REFIT_SOURCE, 0, address); ...
 *   refit_endpoint_prepare(endpoint);
 *   refit_endpoint_run(endpoint, stream, NULL);            after each update of the weights
 *   refit_endpoint_close(endpoint);
 *   refit_job_free(job);
 *
 * Ranks are the GPUs of the topology, from 0 on. Every rank describes the same job, in the same
 * order; plans are compared before anything moves.
 *
 * Errors. Calls that can fail return a status; REFIT_OK is 0. After any other status
 * refit_job_message() or refit_endpoint_message() says in one line what was wrong, where, and what
 * to do; outputs are untouched and the handle is as before unless stated otherwise. Exhausted host
 * memory ends the process.
 *
 * Ownership. Arguments are copied unless they are called borrowed. What a call returns as const
 * belongs to the handle and lasts until the next call that changes it, or until the handle is
 * freed.
 *
 * Threads. A handle is used by one thread at a time, except where stated. A planned job may be
 * read, and endpoints of it opened, by many threads at once.
 *
 * Structs that may grow begin with their size: REFIT_TENSOR_INIT and its like fill it in.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define REFIT_API __attribute__((visibility("default")))
#else
#define REFIT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when programs must be built anew; also the version in the library's file name. */
#define REFIT_API_VERSION 0

typedef enum {
    REFIT_OK = 0,
    REFIT_STATUS_PARSE = 1,         /* the text is not YAML, JSON or a quantity */
    REFIT_STATUS_INVALID = 2,       /* impossible, or not now */
    REFIT_STATUS_OVERFLOW = 3,      /* a size does not fit in 64 bits */
    REFIT_STATUS_INFEASIBLE = 4,    /* no plan within the stated limits */
    REFIT_STATUS_NOT_SUPPORTED = 5, /* this build or machine cannot do it */
    REFIT_STATUS_BACKEND = 6,       /* CUDA, NCCL, another rank or the operating system failed */
    REFIT_STATUS_COVERAGE = 7,      /* a plan fails its proof, or ranks have different plans */
    REFIT_STATUS_LAYOUT = 8,        /* a mesh, a cut or a size does not fit the tensor */
    REFIT_STATUS_DISAGREE = 9,      /* two sides or two ranks state different things */
    REFIT_STATUS_MISSING = 10,      /* what a destination needs is held by no source */
    REFIT_STATUS_SPLIT = 11         /* a cut falls inside a byte, block or tile */
} RefitStatus;

REFIT_API const char *refit_status_name(RefitStatus status); /* "ok", "invalid", ...; static */
REFIT_API const char *refit_library_version(void);           /* "0.1.0"; static */

typedef enum { REFIT_SOURCE = 0, REFIT_DESTINATION = 1 } RefitEnd;

/* ---- job: description ---- */

typedef struct _RefitJob RefitJob;

REFIT_API RefitJob *refit_job_new(void); /* never NULL */
/* All endpoints of it must be closed. Accepts NULL. */
REFIT_API void refit_job_free(RefitJob *job);
/* Of the last call that failed; "" when none has. */
REFIT_API const char *refit_job_message(const RefitJob *job);

/*
 * Where shipped cases, models, topologies and profiles are: a folder with layouts/ and topologies/.
 * Unset: where the library was installed to.
 */
REFIT_API RefitStatus refit_job_set_data_dir(RefitJob *job, const char *path);
/*
 * A shipped name ("dgx-h100"), the path of a topology file, or one line: "node:64 gpu:8
 * nvlink:450GBps nic:50GBps". NVLink domains follow from it.
 */
REFIT_API RefitStatus refit_job_set_topology(RefitJob *job, const char *topology);
/* Costs that plans weigh: a shipped name or a path. Unset: a built-in one. */
REFIT_API RefitStatus refit_job_set_profile(RefitJob *job, const char *profile);
/* Limit of staging memory per rank, in bytes; 0: none. */
REFIT_API RefitStatus refit_job_set_staging(RefitJob *job, uint64_t bytes);

/*
 * Everything from a case file, shipped or a path, instead of the calls above and below: models by
 * name, layouts in the words of Megatron, vLLM, SGLang and FSDP. `overrides`: texts "path=value",
 * ended by NULL; may be NULL.
 */
REFIT_API RefitStatus refit_job_load_case(RefitJob *job, const char *name_or_path,
                                          const char *const *overrides);

typedef struct {
    size_t size;
    const char *name;  /* unique in the job */
    const char *dtype; /* "bf16", "F8_E4M3", ...: names of safetensors, in any case */
    uint32_t n_dims;   /* 0 to 8 */
    const uint64_t *shape;
} RefitTensorDesc;
#define REFIT_TENSOR_INIT                                                                          \
    { sizeof(RefitTensorDesc), NULL, NULL, 0, NULL }

/* `tensor_out` takes the number that other calls name it by: 0, 1, ... */
REFIT_API RefitStatus refit_job_add_tensor(RefitJob *job, const RefitTensorDesc *tensor,
                                           uint32_t *tensor_out);

typedef enum {
    REFIT_AXIS_REPLICATE = 0,
    REFIT_AXIS_CHUNK = 1, /* as torch.chunk: equal parts rounded up, the last ones short or empty */
    REFIT_AXIS_BALANCED = 2, /* sizes differ by at most one, larger first */
    REFIT_AXIS_SIZES = 3,    /* stated sizes */
    REFIT_AXIS_STRIDED = 4   /* `chunks` chunks, then a part of each */
} RefitAxisKind;

typedef struct {
    uint32_t extent; /* ranks along this axis, at least 1 */
    RefitAxisKind kind;
    uint32_t dim;          /* of the tensor, that the axis cuts */
    uint32_t order;        /* where several axes cut one dim: smaller ones first; all different */
    uint32_t chunks;       /* REFIT_AXIS_STRIDED */
    const uint64_t *sizes; /* REFIT_AXIS_SIZES: `extent` entries */
} RefitAxisDesc;

typedef struct {
    size_t size;
    uint32_t n_axes; /* 1 to 8 */
    const RefitAxisDesc *axes;
    /* Ranks, the last axis fastest: as many as the product of the extents. NULL: `first_rank` and
     * the ones after it. */
    const uint32_t *ranks;
    uint32_t first_rank;
} RefitMeshDesc;
#define REFIT_MESH_INIT                                                                            \
    { sizeof(RefitMeshDesc), 0, NULL, NULL, 0 }

/*
 * How one side holds a tensor. A further call for the same side and tensor adds another copy, on
 * other ranks or in another layout. Each rank's shard is contiguous, row-major, a parameter of its
 * own.
 */
REFIT_API RefitStatus refit_job_place(RefitJob *job, uint32_t tensor, RefitEnd side,
                                      const RefitMeshDesc *mesh);

/* Indices [lo, hi) of `dim`, stored from local index `at` on. */
typedef struct {
    uint32_t dim;
    uint64_t lo, hi, at;
} RefitRangeDesc;

/* The same for one rank, by what it holds: one range of each dim at least; several make a list. */
REFIT_API RefitStatus refit_job_place_ranges(RefitJob *job, uint32_t tensor, RefitEnd side,
                                             uint32_t rank, uint32_t n_ranges,
                                             const RefitRangeDesc *ranges);
/* All cuts of `dim` act on `extent` indices, of which the tensor has the first (padded
 * vocabularies). */
REFIT_API RefitStatus refit_job_pad(RefitJob *job, uint32_t tensor, RefitEnd side, uint32_t dim,
                                    uint64_t extent);
/* The rank is gone: it neither sends nor receives. */
REFIT_API RefitStatus refit_job_fail_rank(RefitJob *job, uint32_t rank);

/* ---- job: plan ---- */

/*
 * `strategy`: "refit", "direct", "ring", ...; NULL: the default. Checks the description, plans and
 * proves of the plan that every byte arrives and that no rank waits for ever. The description is
 * closed by it; a job can be planned anew with another strategy while it has no endpoints. Equal
 * descriptions give equal plans on every rank.
 */
REFIT_API RefitStatus refit_job_plan(RefitJob *job, const char *strategy);
/* 64 hex digits that name the plan; NULL before there is one. */
REFIT_API const char *refit_job_digest(const RefitJob *job);
REFIT_API const char *refit_job_strategy(const RefitJob *job); /* NULL before there is one */
/* The whole plan, schema refit.plan/1. Free with refit_text_free(). */
REFIT_API RefitStatus refit_job_json(RefitJob *job, char **text_out, size_t *length_out);
REFIT_API void refit_text_free(char *text);

typedef struct {
    size_t size;
    uint32_t n_ranks; /* of the topology */
    uint32_t n_tensors;
    uint64_t n_steps, n_messages;
    uint64_t weight_bytes;  /* of all tensors that a destination needs */
    uint64_t needed_bytes;  /* what destination ranks need, copies counted */
    uint64_t network_bytes; /* that move, by link */
    uint64_t nvlink_bytes, local_bytes;
    uint64_t network_bound_bytes; /* no plan can do with fewer */
    double time_bound_s;          /* nor be faster */
} RefitJobFacts;
#define REFIT_JOB_FACTS_INIT                                                                       \
    { sizeof(RefitJobFacts), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

REFIT_API RefitStatus refit_job_facts(RefitJob *job, RefitJobFacts *facts);

typedef struct {
    size_t size;
    uint64_t network_in, network_out; /* bytes */
    uint64_t nvlink_in, nvlink_out;
    uint64_t local_bytes;
    uint64_t staging_bytes; /* device memory that the rank needs besides its parameters, at most */
} RefitRankFacts;
#define REFIT_RANK_FACTS_INIT                                                                      \
    { sizeof(RefitRankFacts), 0, 0, 0, 0, 0, 0 }

REFIT_API RefitStatus refit_job_rank_facts(RefitJob *job, uint32_t rank, RefitRankFacts *facts);

/* ---- endpoint ---- */

/*
 * Loads the executor that endpoints will use, `executor` as in RefitEndpointConfig, and asks it
 * whether there is a driver and a GPU; *n_devices_out (may be NULL) takes how many GPUs. Endpoints
 * do it themselves otherwise.
 */
REFIT_API RefitStatus refit_job_probe(RefitJob *job, const char *executor, uint32_t *n_devices_out);

/*
 * Brings together what all ranks say: `bytes` bytes of each, at most 512, by rank, in `all`. Every
 * rank calls it in the same order with the same size. Returns when all have come or after
 * `timeout_s`: came[r] becomes 1 for each rank that has, the same ones on all ranks. 0: it cannot
 * go on at all, and `message` says why.
 *
 * By its nature it brings all records to every rank, N ranks N * N * `bytes`, where one agreement
 * of ranks over TCP is N messages to rank 0 and N from it. A call in which all is well gathers 56
 * and 16 bytes, open some 300.
 */
typedef int (*RefitGatherFunc)(void *data, const void *mine, size_t bytes, void *all, uint8_t *came,
                               double timeout_s, char *message, size_t message_size);

typedef struct {
    size_t size;
    uint32_t rank;
    int device;             /* CUDA device, as this process numbers them */
    RefitGatherFunc gather; /* NULL: ranks meet over TCP, as the three below say */
    void *gather_data;
    const char *address; /* where rank 0 listens: a host name or number */
    uint32_t port;
    const char *token;    /* known to the ranks of this job only; at least 8 bytes */
    double timeout_s;     /* of each call that all ranks make; 0: 300 s */
    const char *executor; /* path of the plugin that moves bytes; NULL: the installed one */
    const char *host; /* name of the host that the rank is on; NULL: this machine, by the variable
                         NCCL_HOSTID, else by host name and boot, as NCCL tells hosts apart */
} RefitEndpointConfig;
#define REFIT_ENDPOINT_CONFIG_INIT                                                                 \
    { sizeof(RefitEndpointConfig), 0, 0, NULL, NULL, NULL, 0, NULL, 0, NULL, NULL }

typedef struct _RefitEndpoint RefitEndpoint;

/*
 * Collective: open, prepare, start and wait are called by every rank of the topology, in the same
 * order, also by those without a part in the plan. When a rank cannot go on or does not come, all
 * fail and the message names it. Open fails when ranks are not where the topology has them: rank r
 * is GPU r of it, so ranks are numbered node by node, a node being a host. A call refused as
 * REFIT_STATUS_INVALID was not made, as far as others can tell: they time out.
 *
 * `job` must have a plan, and is borrowed until the endpoint is closed. *endpoint_out takes a
 * handle also on failure; then only message and close accept it.
 */
REFIT_API RefitStatus refit_endpoint_open(RefitJob *job, const RefitEndpointConfig *config,
                                          RefitEndpoint **endpoint_out);
REFIT_API const char *refit_endpoint_message(const RefitEndpoint *endpoint);
/* On rank 0, what open could not check of where ranks are, such as whether NVLink joins the hosts
 * of a domain; NULL: nothing, or another rank. Owned by the endpoint. */
REFIT_API const char *refit_endpoint_place_note(const RefitEndpoint *endpoint);
/* Frees what the executor has; parameters stay. May wait for the other ranks to close theirs, at
 * most for `timeout_s`. Accepts NULL. */
REFIT_API void refit_endpoint_close(RefitEndpoint *endpoint);

/* A buffer of this rank: dense, row-major, of `shape`, padding included. */
typedef struct {
    size_t size;
    const char *name;  /* of the tensor, or of the fused parameter of a framework; borrowed */
    const char *dtype; /* "BF16", ...; static */
    uint32_t n_dims;
    uint64_t shape[8];
    uint64_t bytes;
} RefitParameterInfo;
#define REFIT_PARAMETER_INFO_INIT                                                                  \
    { sizeof(RefitParameterInfo), NULL, NULL, 0, {0}, 0 }

/* Buffers that this rank has on a side, in the order of their first tensors. */
REFIT_API uint32_t refit_endpoint_n_parameters(const RefitEndpoint *endpoint, RefitEnd side);
REFIT_API RefitStatus refit_endpoint_parameter(RefitEndpoint *endpoint, RefitEnd side,
                                               uint32_t index, RefitParameterInfo *info);
/*
 * Says where a buffer is, in device memory; borrowed until the endpoint is closed. Sources are read
 * and destinations written by runs. Takes effect with the next prepare. Buffers of both sides of
 * one rank must not overlap, except that a buffer may serve as both if its elements stay in place.
 */
REFIT_API RefitStatus refit_endpoint_bind(RefitEndpoint *endpoint, RefitEnd side, uint32_t index,
                                          void *address);

/* Collective. All buffers with at least one byte must be bound. Allocates staging memory, makes
 * NCCL's communicators and connects them: runs allocate nothing. */
REFIT_API RefitStatus refit_endpoint_prepare(RefitEndpoint *endpoint);

typedef struct {
    size_t size;
    uint64_t version;                 /* of the weights that this run brought: 1, 2, ... */
    double duration_s;                /* on the device, from the first operation to the last */
    double agreed_s;                  /* until all ranks agreed, by the host's clock */
    uint64_t network_in, network_out; /* bytes that moved; equal to the plan's */
    uint64_t nvlink_in, nvlink_out;
    uint64_t local_bytes;
    uint64_t n_groups, n_launches; /* NCCL groups and kernels */
} RefitMetrics;
#define REFIT_METRICS_INIT                                                                         \
    { sizeof(RefitMetrics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/*
 * The next run begins after what this cudaStream_t holds by now, too. For engines with several
 * streams that write the sources or read the destinations: one call for each. NULL: there are none,
 * the device does nothing with these parameters.
 */
REFIT_API RefitStatus refit_endpoint_follow(RefitEndpoint *endpoint, void *stream);
/*
 * Collective. Submits a run behind what `stream` (a cudaStream_t) holds by now. Sources must not
 * change, and destinations not be used, until wait() returns. A start that succeeded is followed by
 * a wait. `stream` may be NULL where follow() has been called since the run before; else a rank
 * with destination parameters is refused, because its run would write while an engine reads.
 */
REFIT_API RefitStatus refit_endpoint_start(RefitEndpoint *endpoint, void *stream);
/*
 * Collective. Returns when the weights have landed on all ranks, or when the time is up: then the
 * message names the ranks and the step that are late, no rank has the new version, and the endpoint
 * can only be closed. `metrics` may be NULL.
 */
REFIT_API RefitStatus refit_endpoint_wait(RefitEndpoint *endpoint, RefitMetrics *metrics);
/* start, then wait. */
REFIT_API RefitStatus refit_endpoint_run(RefitEndpoint *endpoint, void *stream,
                                         RefitMetrics *metrics);
/* From any thread: the run in progress and all later ones fail. */
REFIT_API void refit_endpoint_abort(RefitEndpoint *endpoint);

typedef enum {
    REFIT_VERSION_OLD = 0,  /* the parameters hold the version of the run before */
    REFIT_VERSION_NONE = 1, /* a mixture: do not use them */
    REFIT_VERSION_NEW = 2   /* the version of the last run, whole on all ranks */
} RefitVersionState;

/*
 * From any thread. For the host, and no fence on the device: what an engine submitted while it read
 * REFIT_VERSION_OLD here may run when the next run writes, unless that run begins after it; see
 * start and follow.
 */
REFIT_API RefitVersionState refit_endpoint_serves(const RefitEndpoint *endpoint);
REFIT_API uint64_t refit_endpoint_version(const RefitEndpoint *endpoint);

/* Device memory, for programs that do not link CUDA. Free it before close. Not during a run. */
REFIT_API RefitStatus refit_endpoint_alloc(RefitEndpoint *endpoint, uint64_t bytes,
                                           void **address_out);
REFIT_API void refit_endpoint_free(RefitEndpoint *endpoint, void *address);
REFIT_API RefitStatus refit_endpoint_upload(RefitEndpoint *endpoint, void *address,
                                            const void *from, uint64_t bytes);
REFIT_API RefitStatus refit_endpoint_download(RefitEndpoint *endpoint, void *to, void *address,
                                              uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
