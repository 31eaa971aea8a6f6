#pragma once

/* Shared by the files that make programs; not for other modules. */

#include "model/plan/refit-plan-deps.h"
#include "model/schedule/refit-program.h"

G_BEGIN_DECLS

struct _RefitProgramIndex {
    const RefitPlan *plan;
    guint n_streams;        /* of a rank */
    guint *message_offsets; /* per rank: slice of messages */
    guint *messages;        /* of the plan, ascending; a local one once */
    RefitPlanDeps *deps;
    guint *slices;        /* per batch and stage */
    guint64 *chunk_bytes; /* per stage and link */
    RefitView *packed;    /* per region of the plan: dense, row-major */
    RefitView *whole;     /* per class: the same of the full tensor */
    guint64 *volumes;     /* per region: elements */
};

/* Numbers that the message has: its stage's slices, or 1. */
guint refit_program_message_slices(const RefitProgramIndex *index, const RefitMessage *message);
/* Bytes that an exchange moves under one of its numbers at most. */
guint64 refit_program_number_bytes(guint64 bytes, guint64 n_pieces, guint slices);
/* The same of these pieces, exactly, under one number. */
guint64 refit_program_slices_bytes(const RefitProgramPiece *pieces, guint n, guint number);
/* Chunks of so many bytes; 1 for none. */
guint64 refit_program_count_chunks(guint64 bytes, guint64 chunk_bytes);
/* Decides slices and chunks, for all ranks alike. The rest of the index is made. */
gboolean refit_program_choose_parts(RefitProgramIndex *index, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* RefitTurn, in their order. `steps`: of RefitProgramStep. */
GArray *refit_program_list_turns(const GArray *steps);

/* A member of a transfer in one batch. */
typedef struct {
    guint transfer, tensor;
    RefitDtype dtype;
    guint64 bytes;
    const RefitMessage *message;
} RefitPieceSeed;

/*
 * Replaces `seeds` (of RefitPieceSeed) by the pieces of these messages, in the order of
 * refit-program.h. `messages`: numbers in the plan, ascending.
 */
void refit_program_list_pieces(const RefitProgramIndex *index, const guint *messages, guint n,
                               GArray *seeds);

/* ---- staging memory that outlives a step ---- */

/* A tensor that comes to a rank in a bucket. */
typedef struct {
    guint batch, class_index, tensor;
} RefitBucketTensor;

/*
 * Where the relays, assembled tensors and buckets of one rank lie. Those of one batch are together
 * in one of its lane's slots, which the batches of the lane take in turn.
 */
typedef struct {
    GArray *relays;        /* by transfer and tensor */
    guint64 *assembled;    /* per tensor: place in its slot; NULL when there are none */
    guint64 *bucketed;     /* the same */
    guint *batch_slots;    /* per batch: lane * REFIT_PROGRAM_BATCH_SLOTS + slot; G_MAXUINT: none */
    guint64 *slot_offsets; /* per lane and slot: from the start of staging memory */
    guint64 bytes;         /* of all slots */
    guint *bucket_stages;  /* per batch: 1 + last stage that brings buckets; 0: none */
    GArray *buckets;       /* RefitBucketTensor, by batch */
} RefitLandings;

RefitLandings *refit_landings_new(const RefitProgramIndex *index, guint rank, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_landings_free(RefitLandings *landings);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitLandings, refit_landings_free)
/* Where what `transfer`, of a landing other than HOME, brings of a tensor lies in staging memory:
 * the region, or the tensor of which it is part. */
guint64 refit_landings_find(const RefitLandings *landings, const RefitPlan *plan, guint transfer,
                            guint tensor, guint batch);
guint64 refit_landings_find_bucket(const RefitLandings *landings, guint tensor, guint batch);

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
void refit_copier_init(RefitCopier *copier, const RefitProgramIndex *index, guint rank,
                       const RefitRankViews *source, const RefitRankViews *destination,
                       const RefitLandings *landings, guint n_pieces);
void refit_copier_clear(RefitCopier *copier);
/* Appends the copies of one piece: out of memory, into memory, or both. */
gboolean refit_copier_add(RefitCopier *copier, const RefitPieceSeed *seed, gboolean reads,
                          gboolean writes, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* What `view` takes out of a bucket. */
void refit_copier_add_install(RefitCopier *copier, const RefitBucketTensor *bucket,
                              const RefitView *view);

/* TRUE when the region lies in one run in row-major order; *place_out: the first element's. */
gboolean refit_view_is_run(const RefitView *view, const RefitRegion *region, guint64 *place_out);
/* Bytes of so many elements that are known to fit. */
guint64 refit_program_bytes(RefitDtype dtype, guint64 elements);

/* ---- steps ---- */

/* What refit_program_free() releases. */
typedef struct {
    RefitProgram program;
    GPtrArray *regions;
} RefitProgramStorage;

/* ---- waits ---- */

/*
 * What the steps so far have left behind for those to come. Steps are entered in their order, with
 * refit_waits_begin() before the first of each batch.
 */
typedef struct {
    const RefitProgramIndex *index;
    const RefitLandings *landings;
    guint rank, n_streams;
    GArray **on_stream;     /* per stream: guint, its steps */
    guint *before_batch;    /* per stream: 1 + its last step before the batch in work */
    guint *arrivals;        /* per stage and link: 1 + the last step that brought something ... */
    guint *arrival_batches; /* ... and 1 + its batch */
    guint *slot_users;      /* per slot and stream: 1 + the last step that used it */
    guint *slot_before;     /* per stream: the same of the batch's slot before the batch */
    guint batch;            /* in work; G_MAXUINT before the first */
    guint *wanted;          /* scratch, per stream: 1 + step */
    GArray *waits;          /* RefitWait */
} RefitWaits;

void refit_waits_init(RefitWaits *waits, const RefitProgramIndex *index, guint rank,
                      const RefitLandings *landings);
void refit_waits_clear(RefitWaits *waits);
void refit_waits_begin(RefitWaits *waits, guint batch);

typedef struct {
    const guint *messages; /* of the plan */
    guint n_messages;      /* 0: an install */
    gboolean receives;     /* something arrives or is copied */
    gboolean stages;       /* reads or writes relays, assembled tensors or buckets */
    const guint *group;    /* sliced: the batch's steps of this stage by link, G_MAXUINT: none */
} RefitStepUse;

/* Finds the waits of step number `number`, steps[number], which is the last one so far. */
void refit_waits_enter(RefitWaits *waits, GArray *steps, guint number, const RefitStepUse *use);

G_END_DECLS
