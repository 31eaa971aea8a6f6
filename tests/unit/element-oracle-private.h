#pragma once

/* Shared by the files of the element oracle; not for tests. */

#include "element-oracle.h"

G_BEGIN_DECLS

/* What one rank has of one tensor in one piece: element numbers, row-major in the tensor. */
typedef struct {
    guint n;
    guint *elements; /* in local order, which is ascending */
} ElementBuffer;

typedef struct {
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    guint element_bytes;
    guint n_elements;
    GPtrArray **held, **needed; /* per rank: of ElementBuffer, NULL when none */
} ElementTensor;

struct _ElementOracle {
    guint n_ranks, domain_size;
    GPtrArray *tensors;
};

static inline ElementTensor *element_oracle_tensor(const ElementOracle *oracle, guint index) {
    return g_ptr_array_index(oracle->tensors, index);
}

/* Marks in `seen` what the rank has; returns how many elements were not marked before. */
guint element_buffers_mark(GPtrArray *buffers, guint8 *seen);

G_END_DECLS
