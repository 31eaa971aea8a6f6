#ifndef REFIT_NCCL_M2N_H
#define REFIT_NCCL_M2N_H

/*
 * The interface of NCCL M2N 0.2, as librefit_m2n.so implements it: names, structs and numbers are
 * those of that library, so that programs written or built for it run on Refit's planner; set
 * NCCL_M2N_LIBRARY where a program loads it by path.
 *
 * A reshard moves one tensor from the ranks of a source mesh to those of a destination mesh. All
 * ranks of the communicator make the call with both descriptors. What differs here:
 *
 *   - A call returns when the weights have landed on all ranks, not when they are on their way;
 *     what the stream holds before comes first.
 *   - Calls of a group on one communicator and stream are planned together, as one move. A plan is
 *     made once and used again for equal descriptors; groups are faster than single calls.
 *   - Descriptors are compared between ranks before anything moves. What does not fit together is
 *     refused on all ranks with ncclInvalidArgument, and ncclM2nGetLastError() names the rank.
 *   - Up to 8 mesh axes and 8 tensor dims; any number of sharded axes, also several on one dim, the
 *     first cutting first; shards of different sizes, where each rank states its own local shape;
 *     meshes that share ranks. Nothing limits sizes or numbers of peers.
 *   - A time-out, REFIT_TIMEOUT_S seconds in the environment, 300 unless set, after which all ranks
 *     get an error. The communicator's handle must then be finalized.
 *
 * Windows are accepted and not used. Ranks on one host are one NVLink domain; REFIT_DOMAIN_SIZE=n
 * in the environment says that n ranks in turn are, whatever their hosts (0 or 1: none).
 * Finalize a handle before destroying a communicator that was used with it. NCCL 2.28 or newer.
 */

#include <limits.h>
#include <stddef.h>

#ifdef __cplusplus
#include <cuda_runtime.h>
#else
#include <cuda_runtime_api.h>
#endif
#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_M2N_MAJOR 0
#define NCCL_M2N_MINOR 2
#define NCCL_M2N_PATCH 0
#define NCCL_M2N_VERSION_CODE (NCCL_M2N_MAJOR * 10000 + NCCL_M2N_MINOR * 100 + NCCL_M2N_PATCH)

/* Oldest NCCL to build and run with. */
#define NCCL_M2N_MIN_NCCL_VERSION_CODE NCCL_VERSION(2, 28, 0)

/* Of the structs below. */
#define NCCL_M2N_API_VERSION 2u
#define NCCL_M2N_API_MAGIC 0x4d324e32u

#if defined(__GNUC__)
#define NCCL_M2N_API __attribute__((visibility("default")))
#else
#define NCCL_M2N_API
#endif

/*
 * The limits of NCCL M2N, as programs have arrays of these sizes and state them as numbers of axes;
 * and those of this implementation.
 */
#define NCCL_RESHARD_MAX_MESH_DIMS 2
#define NCCL_RESHARD_MESH_NDIMS NCCL_RESHARD_MAX_MESH_DIMS
#define NCCL_RESHARD_MAX_TENSOR_DIMS 3
#define REFIT_M2N_MAX_MESH_DIMS 8
#define REFIT_M2N_MAX_TENSOR_DIMS 8

/* Ranks startRank and on, the last axis fastest. Arrays are read during the call only. */
typedef struct ncclMesh_v2 {
    size_t size;          /* of the struct */
    unsigned int version; /* NCCL_M2N_API_VERSION */
    int ndims;            /* entries of dims */
    int *dims;            /* positive */
    int startRank;        /* of the communicator */
} ncclMesh_t;

#define NCCL_M2N_MESH_INITIALIZER                                                                  \
    { sizeof(ncclMesh_t), NCCL_M2N_API_VERSION, 0, NULL, 0 }

/* What a mesh axis does with a tensor. */
#define NCCL_RESHARD_REPLICATE (-1)
#define NCCL_RESHARD_SHARD(td) (td)

/* One side of a reshard. */
typedef struct ncclDistTensor_v2 {
    size_t size;          /* of the struct */
    unsigned int version; /* NCCL_M2N_API_VERSION */
    void *dataPtr;        /* this rank's shard, contiguous; ignored on ranks outside of the mesh */
    size_t *localShape;   /* ndims entries; on ranks outside, that of any rank inside */
    int ndims;            /* of the tensor */
    ncclDataType_t dtype;
    const ncclMesh_t *mesh;
    int *placements; /* one entry per mesh axis */
} ncclDistTensor_t;

#define NCCL_M2N_DIST_TENSOR_INITIALIZER                                                           \
    { sizeof(ncclDistTensor_t), NCCL_M2N_API_VERSION, NULL, NULL, 0, (ncclDataType_t)0, NULL, NULL }

#define NCCL_M2N_CONFIG_UNDEF_INT INT_MIN

typedef struct ncclM2nConfig_v2 {
    size_t size;
    unsigned int magic; /* NCCL_M2N_API_MAGIC */
    unsigned int version;
    int maxCta; /* most blocks of a pack or unpack kernel; undefined: the library's choice */
} ncclM2nConfig_t;

#define NCCL_M2N_CONFIG_INITIALIZER                                                                \
    { sizeof(ncclM2nConfig_t), NCCL_M2N_API_MAGIC, NCCL_M2N_API_VERSION, NCCL_M2N_CONFIG_UNDEF_INT }

typedef struct ncclM2nHandle *ncclM2nHandle_t;

/*
 * *handle takes NULL, and a handle on success. `config` may be NULL. ncclInvalidArgument for a
 * malformed config, ncclSystemError without a driver or GPU.
 */
NCCL_M2N_API ncclResult_t ncclM2nInit(ncclM2nHandle_t *handle, const ncclM2nConfig_t *config);
/*
 * Frees all that the handle's calls have left, with the other ranks' calls. NULL: the handle that
 * calls without one share; it may be finalized again. ncclInvalidArgument for a handle that is
 * unknown, or inside of a group.
 */
NCCL_M2N_API ncclResult_t ncclM2nFinalize(ncclM2nHandle_t handle);

/* Of the last call of this thread: what was wrong, or "". Lasts until its next call. */
NCCL_M2N_API const char *ncclM2nGetLastError(void);

/* Reshards of this thread are recorded until the matching end, whose outermost carries them out, by
 * handle, communicator and stream in the order of their first calls. */
NCCL_M2N_API ncclResult_t ncclM2nGroupStart(void);
/* The first error of a recorded call, or of carrying them out; ncclInvalidUsage without a start. */
NCCL_M2N_API ncclResult_t ncclM2nGroupEnd(void);
/* Forgets all that is recorded, on all levels. */
NCCL_M2N_API ncclResult_t ncclM2nGroupAbort(void);

/*
 * ncclInvalidArgument when descriptors make no sense or differ between ranks, ncclInvalidUsage on a
 * stream that is being captured; other results when CUDA, NCCL or another rank failed. Then
 * destinations hold mixtures, on all ranks.
 */
NCCL_M2N_API ncclResult_t ncclReshard(ncclM2nHandle_t handle, ncclComm_t comm,
                                      const ncclDistTensor_t *src, const ncclDistTensor_t *dst,
                                      cudaStream_t stream);
NCCL_M2N_API ncclResult_t ncclReshardWithWindow(ncclM2nHandle_t handle, ncclComm_t comm,
                                                ncclWindow_t window, const ncclDistTensor_t *src,
                                                const ncclDistTensor_t *dst, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
