#pragma once

/*
 * Runs a plan on arrays of element identities and says whether every rank ends up with what it must
 * hold, place by place. Independent of the planning core: who holds what is found by asking each
 * element for its owner; of a plan and its holdings only the data is read, by loops of its own.
 *
 * An identity is a 64-bit number unique to tensor and index, never 0, so elements that come from
 * the wrong tensor, the wrong index or nowhere all show.
 */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

#define ELEMENT_MAX_SEGMENTS 4

/* The places of a cut by REFIT_SPLIT_LISTS, in terms of its own; `lists` of a placement are not
 * read. */
typedef struct {
    GArray **lists; /* per part, of guint: places in the order in which they are stored; or NULL */
    guint n_segments;
    guint64 extents[ELEMENT_MAX_SEGMENTS];
    guint ways[ELEMENT_MAX_SEGMENTS];
} ElementCut;

typedef struct {
    guint n_axes;
    guint sizes[REFIT_MAX_AXES];
    RefitPlacement places[REFIT_MAX_AXES];
    const guint *ranks; /* row-major, last axis fastest */
    ElementCut cuts[REFIT_MAX_AXES];
    guint64 padded[REFIT_MAX_DIMS]; /* what cuts act on; 0: the tensor's extent */
} ElementMesh;

typedef struct _ElementOracle ElementOracle;

/* GPU g is in NVLink domain g / domain_size. */
ElementOracle *element_oracle_new(guint n_ranks, guint domain_size);
void element_oracle_free(ElementOracle *oracle);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(ElementOracle, element_oracle_free)

/* Tensors are numbered as in the model, in the order they are added. */
guint element_oracle_add_tensor(ElementOracle *oracle, guint n_dims, const guint64 *shape,
                                guint element_bytes);
/* The ranks of `mesh` hold (or, with `needed`, need) their shards of the tensor. */
void element_oracle_place(ElementOracle *oracle, guint tensor, gboolean needed,
                          const ElementMesh *mesh);

/*
 * The same for tensors that make up one parameter: blocks[i] rows of tensor i in turn until all are
 * used up. The mesh cuts the parameter.
 */
void element_oracle_place_fused(ElementOracle *oracle, const guint *tensors, guint n_tensors,
                                const guint64 *blocks, gboolean needed, const ElementMesh *mesh);

/*
 * Compares what a sharding says that each rank stores, and where, with every mesh placed for the
 * tensor so far. NULL when all agree, else what is wrong, to be freed by the caller.
 */
char *element_oracle_check_local(const ElementOracle *oracle, guint tensor, gboolean needed,
                                 const RefitSharding *sharding);

/*
 * Executes the plan in step order, all messages of a step at once. NULL when every buffer ends as
 * it must, each place written once; else what is wrong, to be freed by the caller.
 */
char *element_oracle_run(const ElementOracle *oracle, const RefitPlan *plan);
/* Compares the bytes that messages state with those of their regions; as above. */
char *element_oracle_check_bytes(const ElementOracle *oracle, const RefitPlan *plan);

/* Bytes that `rank` needs, an element in two of its shards counted once. */
guint64 element_oracle_needed_bytes(const ElementOracle *oracle, guint rank);
/* Bytes that must enter domains: needed by some GPU of the domain, held by none. */
guint64 element_oracle_network_bytes(const ElementOracle *oracle);

G_END_DECLS
