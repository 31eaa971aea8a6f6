#pragma once

/*
 * Small random cases for the tests that plan: everything follows from one seed. A case is made
 * twice from the same choices, as texts for the library and as meshes for the element oracle.
 */

#include "element-oracle.h"
#include "strategy-cases.h"

G_BEGIN_DECLS

typedef struct {
    guint seed;
    char *topology, *tensors, *source, *pools[2]; /* as in StrategyCase */
    guint n_stages;                               /* pipeline stages of the source */
    guint stripe_bytes, slice_bytes, bucket_bytes, lanes, slices, batches; /* of the profile */
    guint n_ranks;                                                         /* of both sides */
    guint n_tensors;
    ElementOracle *oracle;
} RandomCase;

RandomCase *random_case_new(guint seed);
void random_case_free(RandomCase *random);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RandomCase, random_case_free)

/* The case as the library takes it. */
RefitCase *random_case_build(const RandomCase *random);
/* A model file and a case file that say the same. Caller frees. */
char *random_case_to_string(const RandomCase *random);

G_END_DECLS
