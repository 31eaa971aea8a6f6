#pragma once

/*
 * A profile: the software costs of a stack that executes a plan, apart from the hardware. File
 * format (schema refit.profile/1, layouts/README.md): every number other than a count is a mapping
 * {value, source}; a number without `source` is refused, and so is a term left out.
 *
 *   schema: refit.profile/1
 *   name: nemo-rl
 *   terms:                    # one entry per term of REFIT_TERM_MAP
 *     operation: {value: 11us, source: ...}
 *     pack: {value: 0GBps, source: ...}       # rate 0: free
 *     ...
 *   bucket_bytes: {value: 5GiB, source: ...}
 *   bucket_memory_percent: {value: 2, source: ...}
 *   slice_bytes: {value: 512KiB, source: ...}
 *   stripe_bytes: {value: 16KiB, source: ...}
 *   stage_lanes: 2
 *   slices: 8
 *   batches: 4
 *
 * Each term can be switched off by name, in the case (`profile: {name: nemo-rl, off: [pack,
 * host]}`) or on the command line; reports list the terms that were on.
 */

#include "model/case/refit-topology.h"

G_BEGIN_DECLS

/*
 * X(SUFFIX, key, unit, meaning). A term that is off costs nothing.
 *   operation        s its host spends per turn that a rank submits, and per message in it
 *   run              s per contiguous run that is packed or unpacked
 *   pack, unpack     bytes/s of the copy between parameter and staging memory
 *   bucket           s per bucket of a bucketed broadcast
 *   host             s of host time per tensor that a destination rank loads out of a bucket
 *   install          bytes/s at which a destination rank copies bytes out of buckets into place
 *   pause            s per refit during which generation stands still around the transfer
 */
#define REFIT_TERM_MAP(X)                                                                          \
    X(OPERATION, "operation", REFIT_UNIT_SECONDS, "per turn and per message in it")                \
    X(RUN, "run", REFIT_UNIT_SECONDS, "per contiguous run packed or unpacked")                     \
    X(PACK, "pack", REFIT_UNIT_BYTES_PER_S, "copy from parameters into staging memory")            \
    X(UNPACK, "unpack", REFIT_UNIT_BYTES_PER_S, "copy from staging memory into parameters")        \
    X(BUCKET, "bucket", REFIT_UNIT_SECONDS, "per bucket of a bucketed broadcast")                  \
    X(HOST, "host", REFIT_UNIT_SECONDS, "host time per tensor loaded out of a bucket")             \
    X(INSTALL, "install", REFIT_UNIT_BYTES_PER_S, "copy out of buckets into the final place")      \
    X(PAUSE, "pause", REFIT_UNIT_SECONDS, "fixed time around each refit")

typedef enum {
#define X(suffix, key, unit, meaning) REFIT_TERM_##suffix,
    REFIT_TERM_MAP(X)
#undef X
        REFIT_N_TERMS
} RefitTerm;

typedef struct {
    char *name;
    RefitSourced terms[REFIT_N_TERMS]; /* value 0 for a rate: the term is free */
    gboolean off[REFIT_N_TERMS];
    RefitSourced bucket_bytes;          /* largest bucket of a bucketed broadcast */
    RefitSourced bucket_memory_percent; /* and at most this share of GPU memory, in percent */
    RefitSourced slice_bytes;           /* slice of a pipelined broadcast chain */
    RefitSourced stripe_bytes;          /* `refit` cuts no part into stripes smaller than this */
    guint stage_lanes;                  /* pipeline stages that `ring` moves at once */
    guint slices;                       /* store-and-forward slices per `ring` call */
    guint batches;                      /* parts the whole model is cut in by `refit` */
} RefitProfile;

#define REFIT_PROFILE_DEFAULT "refit"

/*
 * `node`: the `profile:` value of a case: a name, a path, or a mapping {name: either, off: [TERM,
 * ...]} whose further keys override terms (`host: 50us`), bucket_bytes, bucket_memory_percent,
 * slice_bytes, stripe_bytes, stage_lanes, slices and batches. NULL or a mapping without name:
 * REFIT_PROFILE_DEFAULT.
 */
RefitProfile *refit_profile_from_case(RefitNode *node, const struct _RefitStore *store,
                                      GError **error) G_GNUC_WARN_UNUSED_RESULT;
RefitProfile *refit_profile_parse(RefitNode *root, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_profile_free(RefitProfile *profile);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitProfile, refit_profile_free)
const char *refit_term_name(RefitTerm term);    /* static string */
const char *refit_term_meaning(RefitTerm term); /* static string */
/* TRUE when the term is on and costs something. */
gboolean refit_profile_is_on(const RefitProfile *profile, RefitTerm term);
/* Its value, in the unit of refit_term_meaning(); 0 when it is off. */
double refit_profile_value(const RefitProfile *profile, RefitTerm term);

G_END_DECLS
