#pragma once

/* Shared by the files that make programs; not for other modules. */

#include "model/schedule/refit-program.h"
#include "model/schedule/refit-schedule-private.h"

G_BEGIN_DECLS

/* What the programs of all ranks share; owned by the schedule. Cost: regions. */
struct _RefitProgramIndex {
    const RefitPlan *plan;
    RefitView *packed; /* per region of the plan: dense, row-major */
    RefitView *whole;  /* per section: the same of all of it */
    guint64 *volumes;  /* per region: elements */
};

/* Bytes that these pieces move under one number. */
guint64 refit_program_slices_bytes(const RefitProgramPiece *pieces, guint n, guint number);

/* A member of a transfer in one batch. */
typedef struct {
    guint transfer, section, tensor;
    guint place; /* of section and member: below the plan's member_offsets[n_sections] */
    RefitDtype dtype;
    guint64 bytes;
    const RefitMessage *message;
} RefitPieceSeed;

/*
 * Replaces `seeds` (of RefitPieceSeed) by the pieces of these messages, in the order of
 * refit-program.h. `messages`: numbers in the plan, ascending.
 */
void refit_program_list_pieces(const RefitSchedule *schedule, const guint *messages, guint n,
                               GArray *seeds);

/* ---- staging memory that outlives a step ---- */

/* A section of a tensor that comes to a rank in a bucket. */
typedef struct {
    guint batch, section, tensor;
    guint place; /* as of a RefitPieceSeed */
} RefitBucketTensor;

/*
 * Where the relays, assembled parts and buckets of one rank lie. Those of one batch are together
 * in one of its lane's slots, which the batches of the lane take in turn.
 */
typedef struct {
    GArray *blocks;    /* by transfer and tensor */
    guint64 *bucketed; /* per `place` of a seed: where it lies behind the relays; NULL: none do */
    guint64 *relay_bytes;  /* per batch */
    guint *batch_slots;    /* per batch: its slot in the schedule; G_MAXUINT: none */
    guint64 *slot_offsets; /* per slot: from the start of staging memory */
    GArray *buckets;       /* RefitBucketTensor, by batch */
} RefitLandings;

RefitLandings *refit_landings_new(const RefitSchedule *schedule, guint rank, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_landings_free(RefitLandings *landings);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitLandings, refit_landings_free)
/* Where what `transfer`, of a landing other than HOME, brings of the seed's tensor in its batch
 * lies in staging memory: the region, or the section of which it is part. The transfer is the
 * seed's, or one that it depends on. */
guint64 refit_landings_find(const RefitLandings *landings, const RefitPlan *plan, guint transfer,
                            const RefitPieceSeed *seed);
guint64 refit_landings_find_bucket(const RefitLandings *landings, guint place, guint batch);

/* ---- copies ---- */

typedef struct {
    const RefitProgramIndex *index;
    guint rank;
    const RefitRankViews *views[2]; /* by RefitMemory: SOURCE, DESTINATION; may be NULL */
    guint *first_views[2];          /* per tensor: 1 + its first view, 0: none */
    const RefitLandings *landings;
    GArray *copies;     /* RefitCopy */
    GPtrArray *regions; /* RefitRegion, owned */
    GArray *from, *to;  /* of the piece in work: regions and where they lie */
    GPtrArray *left;    /* of the piece in work: regions not found yet */
    guint *asked;       /* per region: 1 + transfer for which it was last asked ... */
    gboolean *at_home;  /* ... whether all of it has landed at home by then */
} RefitCopier;

/* `n_pieces`: how many to make room for. */
void refit_copier_init(RefitCopier *copier, const RefitSchedule *schedule, guint rank,
                       const RefitRankViews *source, const RefitRankViews *destination,
                       const RefitLandings *landings, guint n_pieces);
void refit_copier_clear(RefitCopier *copier);
/* Appends the copies of one piece: out of memory, into memory, or both. */
gboolean refit_copier_add(RefitCopier *copier, const RefitPieceSeed *seed, gboolean reads,
                          gboolean writes, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* What `view` takes out of a bucket: elements, 0 when it has none of the section. */
guint64 refit_copier_add_install(RefitCopier *copier, const RefitBucketTensor *bucket,
                                 const RefitView *view);

/* Bytes of so many elements that are known to fit. */
guint64 refit_program_bytes(RefitDtype dtype, guint64 elements);

/* ---- steps ---- */

/* What refit_program_free() releases. */
typedef struct {
    RefitProgram program;
    GPtrArray *regions;
} RefitProgramStorage;

G_END_DECLS
