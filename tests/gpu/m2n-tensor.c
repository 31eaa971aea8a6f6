/* See m2n-tensor.h. Cost: the elements of a rank's shards. */

#include "m2n-tensor.h"

#include <string.h>

static const TensorSide *side_of(const Tensor *tensor, int side) {
    return side == 0 ? &tensor->source : &tensor->destination;
}

static int n_ranks(const TensorSide *side) {
    int n = 1;

    for (int axis = 0; axis < side->n_axes; axis++)
        n *= side->axes[axis];
    return n;
}

/* What the `position`-th rank of the mesh holds along `dim`: axes that cut it count from the left.
 */
static void locate(const Tensor *tensor, const TensorSide *side, int position, int dim,
                   size_t *lo_out, size_t *extent_out) {
    int coordinates[TENSOR_MAX_DIMS];
    size_t part = 0, parts = 1;

    for (int axis = side->n_axes - 1; axis >= 0; axis--) {
        coordinates[axis] = position % side->axes[axis];
        position /= side->axes[axis];
    }
    for (int axis = 0; axis < side->n_axes; axis++)
        if (side->places[axis] == dim) {
            part = part * (size_t)side->axes[axis] + (size_t)coordinates[axis];
            parts *= (size_t)side->axes[axis];
        }
    *lo_out = 0;
    if (side->sizes[dim] == NULL) {
        CHECK(tensor->shape[dim] % parts == 0);
        *extent_out = tensor->shape[dim] / parts;
        *lo_out = part * *extent_out;
        return;
    }
    for (size_t before = 0; before < part; before++)
        *lo_out += side->sizes[dim][before];
    *extent_out = side->sizes[dim][part];
}

static guint64 value_at(const Tensor *tensor, const size_t *index) {
    guint64 place = 0;

    for (int dim = 0; dim < tensor->n_dims; dim++)
        place = place * tensor->shape[dim] + index[dim];
    return (place + 1) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15) + tensor->salt * 0x51ed27u;
}

/* The bytes of a shard, on the host. Caller frees. */
static char *expected(const Tensor *tensor, const Shard *shard) {
    char *bytes = g_malloc(shard->bytes + 1), *at = bytes;
    size_t index[TENSOR_MAX_DIMS];
    const char *end = bytes + shard->bytes;

    memcpy(index, shard->lo, sizeof index);
    while (at < end) {
        guint64 value = value_at(tensor, index) >> (64 - 8 * tensor->element);
        memcpy(at, &value, tensor->element); /* its low bytes */
        at += tensor->element;
        for (int dim = tensor->n_dims - 1; dim >= 0; dim--) {
            if (++index[dim] < shard->lo[dim] + shard->shape[dim])
                break;
            index[dim] = shard->lo[dim];
        }
    }
    return bytes;
}

static void open_side(TensorOnRank *self, const Tensor *tensor, int s, int rank) {
    const TensorSide *side = side_of(tensor, s);
    Shard *shard = &self->shards[s];

    shard->held = rank >= side->first && rank < side->first + n_ranks(side);
    shard->bytes = tensor->element;
    for (int dim = 0; dim < tensor->n_dims; dim++) {
        locate(tensor, side, shard->held ? rank - side->first : 0, dim, &shard->lo[dim],
               &shard->shape[dim]);
        shard->bytes *= shard->shape[dim];
    }
    if (shard->held && shard->bytes > 0)
        CUDA(cudaMalloc((void **)&shard->data, shard->bytes));
    self->meshes[s] = (ncclMesh_t)NCCL_M2N_MESH_INITIALIZER;
    self->meshes[s].ndims = side->n_axes;
    self->meshes[s].dims = (int *)side->axes;
    self->meshes[s].startRank = side->first;
    self->sides[s] = (ncclDistTensor_t)NCCL_M2N_DIST_TENSOR_INITIALIZER;
    self->sides[s].dataPtr = shard->data;
    self->sides[s].localShape = shard->shape;
    self->sides[s].ndims = tensor->n_dims;
    self->sides[s].dtype = tensor->dtype;
    self->sides[s].mesh = &self->meshes[s];
    self->sides[s].placements = (int *)side->places;
}

void tensor_fill(TensorOnRank *self, const Tensor *tensor) {
    const Shard *source = &self->shards[0], *destination = &self->shards[1];

    if (source->data != NULL) {
        g_autofree char *bytes = expected(tensor, source);
        CUDA(cudaMemcpy(source->data, bytes, source->bytes, cudaMemcpyHostToDevice));
    }
    if (destination->data != NULL)
        CUDA(cudaMemset(destination->data, 0xa5, destination->bytes));
}

void tensor_open(TensorOnRank *self, const Tensor *tensor, int rank) {
    memset(self, 0, sizeof *self);
    open_side(self, tensor, 0, rank);
    open_side(self, tensor, 1, rank);
    tensor_fill(self, tensor);
}

void tensor_check(const TensorOnRank *self, const Tensor *tensor) {
    for (int s = 0; s < 2; s++) {
        const Shard *shard = &self->shards[s];
        if (shard->data == NULL)
            continue;
        g_autofree char *bytes = expected(tensor, shard);
        g_autofree char *found = g_malloc(shard->bytes);
        CUDA(cudaMemcpy(found, shard->data, shard->bytes, cudaMemcpyDeviceToHost));
        CHECK(memcmp(found, bytes, shard->bytes) == 0);
    }
}

void tensor_close(TensorOnRank *self) {
    for (int s = 0; s < 2; s++)
        if (self->shards[s].data != NULL)
            CUDA(cudaFree(self->shards[s].data));
}
