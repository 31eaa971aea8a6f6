#pragma once

/*
 * Tensors of tests of the NCCL M2N interface: who holds what is worked out here element by element,
 * from meshes and placements, and values tell every element of a tensor from its neighbours.
 */

#include "lib/nccl_m2n.h"
#include "standin-child.h"

enum { TENSOR_MAX_DIMS = 8 };

/* One side. `sizes[d]`: extents of the parts that dim d is cut into, in turn; NULL: equal ones. */
typedef struct {
    int first, n_axes, axes[TENSOR_MAX_DIMS], places[TENSOR_MAX_DIMS];
    const size_t *sizes[TENSOR_MAX_DIMS];
} TensorSide;

typedef struct {
    int n_dims;
    size_t shape[TENSOR_MAX_DIMS];
    ncclDataType_t dtype;
    size_t element; /* bytes */
    unsigned salt;  /* other values of the same tensor */
    TensorSide source, destination;
} Tensor;

/* A rank's shard of one side. `held`: the rank is in its mesh; `data` NULL and the shape that of
 * the side's first rank otherwise. */
typedef struct {
    gboolean held;
    size_t lo[TENSOR_MAX_DIMS], shape[TENSOR_MAX_DIMS], bytes;
    char *data; /* on the device */
} Shard;

typedef struct {
    Shard shards[2];
    ncclMesh_t meshes[2];
    ncclDistTensor_t sides[2]; /* source, destination: for a call */
} TensorOnRank;

/* Allocates and fills the source shard with values, the destination with 0xa5. */
void tensor_open(TensorOnRank *self, const Tensor *tensor, int rank);
/* Fills anew, with the values of another salt. */
void tensor_fill(TensorOnRank *self, const Tensor *tensor);
/* Ends the child unless the destination has its elements and the source its own still. */
void tensor_check(const TensorOnRank *self, const Tensor *tensor);
void tensor_close(TensorOnRank *self);
