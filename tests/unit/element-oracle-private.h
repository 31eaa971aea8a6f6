#pragma once

/* Shared by the files of the element oracle; not for tests. */

#include "element-oracle.h"

G_BEGIN_DECLS

/* The indices of one dim that a rank stores, by local place. */
#define ELEMENT_GAP (-1)
typedef struct {
    guint n; /* places, also those behind the last index */
    int *index;
} ElementLine;

/* What one rank has of one tensor in one piece: element numbers, row-major in the tensor. */
typedef struct {
    guint n;
    guint *elements; /* ascending */
    ElementLine lines[REFIT_MAX_DIMS];
} ElementBuffer;

/* One rank of a mesh, as it was placed. */
typedef struct {
    guint rank;
    gboolean alone; /* no part of a fused parameter, whose padding is not the tensor's */
    ElementBuffer buffer;
} ElementRecord;

typedef struct {
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    guint element_bytes;
    guint n_elements;
    GPtrArray **held, **needed; /* per rank: of ElementBuffer, NULL when none */
    GPtrArray *records[2];      /* of ElementRecord: held, needed; also those without elements */
} ElementTensor;

struct _ElementOracle {
    guint n_ranks, domain_size;
    GPtrArray *tensors;
};

static inline ElementTensor *element_oracle_tensor(const ElementOracle *oracle, guint index) {
    return g_ptr_array_index(oracle->tensors, index);
}

/* Does `list` store exactly the indices of `line`, each at its place? */
gboolean element_line_is(const ElementLine *line, const RefitIntervalList *list);
/* Marks in `seen` what the rank has; returns how many elements were not marked before. */
guint element_buffers_mark(GPtrArray *buffers, guint8 *seen);

G_END_DECLS
