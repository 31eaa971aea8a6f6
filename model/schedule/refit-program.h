#pragma once

/*
 * Programs: what one rank does when a plan is carried out.
 *
 * A program follows from the plan, the rank and the rank's own parameters by rules that both ends
 * of a message apply alike, so no rank asks another what it is about to send. It says in which
 * order a rank works, what each step waits for, which bytes lie where in each message and in
 * memory, and how much staging memory that takes.
 *
 *   step      all that a rank does on one stream under one global step number of the plan; in a
 *             sliced stage, all that it does there in one batch, under several numbers
 *   turn      one chunk of one number of a step: a group of operations submitted together. Turns
 *             are in the order of (number, install, chunk, stream); a rank submits them in this
 *             order
 *   exchange  the message to or from one peer; in a sliced stage one per number
 *   chunk     what an exchange moves in one turn: a part of its message
 *   piece     one member of one transfer inside a message
 *   copy      a region of a piece, between two places: parameters, staging memory or the message
 *
 * Messages. A message is its pieces one after the other without gaps, larger elements first, then
 * in the order of (first number, transfer, position of the member): every piece is aligned to its
 * elements. The bytes of a piece are the elements of its transfer's region, row-major. In a sliced
 * stage, number k carries slice k - piece.number of each piece for which that is one of 0 ..
 * slices - 1: bytes [cut(i), cut(i + 1)), see refit_program_cut().
 *
 *   three tensors of 64 bytes in a chain of 4 slices, rank receives from offset 0, sends at 1:
 *   number   0        1              2              3              4
 *   receive  0..16    16..32         32..48         48..64                  of each, 48 bytes in
 * all send              0..16          16..32         32..48         48..64
 *
 * Chunks. What an exchange moves under one number is cut into chunks of chunk_bytes, the last one
 * shorter; chunk_bytes is the same for all messages of a stage and link class and follows from the
 * plan, so both ends cut alike, whether or not they pack. Chunks are cut without regard to pieces.
 * All numbers of a step have n_chunks turns, as many as the largest message needs. An exchange
 * without bytes in a turn does not happen on either side.
 *
 * Waiting. A turn may start when all its step waits for is complete: sent, arrived and unpacked,
 * copied. A wait is for a step and all earlier ones of the same stream. A wait marked `in_slices`
 * is for their turns with smaller numbers than this turn's, so that hops of a chain overlap; all
 * other waits are for whole steps with smaller numbers. The turns of a stream start in their order.
 * In a step that uses wire memory, a turn also waits for the turn REFIT_PROGRAM_WIRE_SLOTS places
 * before it in the step, so that a chunk is packed while one moves and the one before is unpacked.
 * What is waited for always has a smaller (number, install, chunk), on the own rank and, as both
 * ends of a message have the same number and chunk, on all: waiting cannot circle, whatever else
 * delays a rank.
 *
 * Memory. Parameters are read on the source side and written on the destination side; on a rank of
 * both sides they must not share memory, except that a local copy may find its bytes in place.
 * Staging memory is one block of staging_bytes: landings, which are relays, assembled tensors and
 * buckets, and wire memory. An exchange that is not `direct` is packed into or received in wire
 * memory, slot (place of the turn in its step) % wire_slots of wire_bytes each, from `wire` on.
 *
 * The pool is what a rank has for wire memory at most: REFIT_PROGRAM_POOL_BYTES, or what the
 * largest landings of any rank leave of the case's staging budget, if that is less. It is shared
 * out evenly:
 *
 *   chunk_bytes(stage, link) = pool / (streams with messages * window * REFIT_PROGRAM_WIRE_SLOTS
 *                                      * most exchanges of a rank in a turn of stage and link)
 *
 * rounded down to a multiple of REFIT_PROGRAM_ALIGN. If that leaves nothing for one of them, all
 * chunks have REFIT_PROGRAM_ALIGN bytes, which is the least memory that a plan can do with.
 */

#include "model/layout/refit-view.h"
#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

/* Alignment of everything placed in staging memory. */
#define REFIT_PROGRAM_ALIGN 256
/* Batches of a lane whose relays, assembled tensors and buckets have memory at the same time. */
#define REFIT_PROGRAM_BATCH_SLOTS 2
/* Chunks of an exchange that have memory at the same time. */
#define REFIT_PROGRAM_WIRE_SLOTS 2
/*
 * Wire memory of a rank, unless its case's budget leaves less. With messages on two streams, a turn
 * then moves 64 MiB: 0.15 ms over NVLink at 450 GB/s, which still hides what it costs to submit a
 * turn, and little enough that steps of 100 MB are packed and unpacked while they move.
 */
#define REFIT_PROGRAM_POOL_BYTES (G_GUINT64_CONSTANT(256) << 20)
/* Turns of one rank. */
#define REFIT_PROGRAM_MAX_TURNS (1u << 24)

typedef enum {
    REFIT_MEMORY_SOURCE,      /* a parameter of the source views */
    REFIT_MEMORY_DESTINATION, /* a parameter of the destination views */
    REFIT_MEMORY_STAGING,
    REFIT_MEMORY_MESSAGE, /* the piece's part of the message */
} RefitMemory;

const char *refit_memory_name(RefitMemory memory); /* "source", ... */

/*
 * Where the elements of a tensor lie: `base` bytes from the start of the parameter
 * (view->parameter), of the staging memory or of the piece, plus the place that the view gives, in
 * elements. Base is 0 in parameters.
 */
typedef struct {
    RefitMemory memory;
    guint64 base;
    const RefitView *view; /* borrowed from the views or the index */
} RefitPlace;

/* Elements of `region`, which lies inside both views. */
typedef struct {
    const RefitRegion *region; /* borrowed from the index, or owned by the program */
    RefitPlace from, to;
} RefitCopy;

typedef struct {
    guint transfer; /* of the plan; G_MAXUINT in an install */
    guint tensor;   /* of the model */
    RefitDtype dtype;
    guint slices; /* of its stage; 1: whole, in its first number */
    guint number; /* of its first slice */
    guint64 bytes;
    guint64 at; /* bytes from the start of the message, when it is not sliced */
    guint first_copy, n_copies;
} RefitProgramPiece;

typedef struct {
    guint peer; /* the own rank: local copies, without a message */
    gboolean sends;
    gboolean sliced;
    guint64 bytes; /* in all turns together */
    guint first_piece, n_pieces;
    /* One contiguous run in memory, in the order of the message: sent from or received into `place`
     * straight, a slice from its cut on. */
    gboolean direct;
    RefitMemory memory; /* direct: SOURCE, DESTINATION or STAGING */
    guint parameter;    /* direct, in parameters */
    guint64 offset;     /* direct: bytes from the start of the parameter or staging memory */
    guint64 wire;       /* not direct: offset in staging memory */
    guint64 wire_bytes; /* of a slot, a multiple of REFIT_PROGRAM_ALIGN */
    guint wire_slots;   /* 1 when it happens in one turn, else REFIT_PROGRAM_WIRE_SLOTS */
} RefitExchange;

typedef struct {
    guint step;         /* of this program */
    gboolean in_slices; /* for turns with smaller numbers only */
} RefitWait;

typedef struct {
    guint number, n_numbers; /* global step numbers */
    guint n_chunks;          /* of each number */
    guint64 chunk_bytes;     /* of an exchange; G_MAXUINT64 for local copies, which stay whole */
    guint batch, stage;
    guint stream; /* see refit_program_stream() */
    RefitLink link;
    gboolean install; /* copies from buckets into parameters, after all else with its number */
    guint first_exchange,
        n_exchanges; /* by (peer, receives before sends); local: one, with itself */
    guint first_wait, n_waits;
} RefitProgramStep;

typedef struct {
    guint step;
    guint number;
    guint chunk;
} RefitTurn;

typedef struct {
    const RefitPlan *plan; /* borrowed */
    guint rank;
    const RefitRankViews *source, *destination; /* borrowed; NULL when not on that side */
    guint n_streams, n_steps, n_turns, n_exchanges, n_pieces, n_copies, n_waits;
    const RefitProgramStep *steps; /* by (number, install, stream) */
    const RefitTurn *turns;
    const RefitExchange *exchanges;
    const RefitProgramPiece *pieces;
    const RefitCopy *copies;
    const RefitWait *waits;
    guint64 staging_bytes; /* wire and landings together */
    guint64 in[REFIT_N_LINKS], out[REFIT_N_LINKS];
} RefitProgram;

/* What the programs of all ranks share. Cost: transfers, messages and regions. */
typedef struct _RefitProgramIndex RefitProgramIndex;

/*
 * `plan` is borrowed. REFIT_ERROR_LIMIT for 2^31 - 1 messages or more. With a staging budget and
 * landings, it also costs the landings of all ranks; REFIT_ERROR_OVERFLOW in those.
 */
RefitProgramIndex *refit_program_index_new(const RefitPlan *plan, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_program_index_free(RefitProgramIndex *index);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitProgramIndex, refit_program_index_free)
/*
 * Slices of a stage in a batch. 1, whatever the plan says, where a rank would have more than
 * REFIT_STEP_OPERATIONS exchanges in a turn, or a local copy follows a message of the same stage.
 */
guint refit_program_index_slices(const RefitProgramIndex *index, guint batch, guint stage);
/* Bytes of a chunk of a stage and link class; see above. G_MAXUINT64 for local copies. */
guint64 refit_program_index_chunk_bytes(const RefitProgramIndex *index, guint stage,
                                        RefitLink link);
/*
 * Staging bytes that the program of `rank` has at most, whatever lies contiguous in its parameters.
 * REFIT_ERROR_LIMIT, REFIT_ERROR_OVERFLOW. Cost: the rank's messages and landings.
 */
gboolean refit_program_index_staging(const RefitProgramIndex *index, guint rank, guint64 *bytes_out,
                                     GError **error) G_GNUC_WARN_UNUSED_RESULT;

/*
 * `source` and `destination`: views of the rank in the layouts of the plan's case, NULL for a side
 * that it is no rank of; borrowed, like the index. Errors: REFIT_ERROR_COVERAGE when the rank is to
 * send what none of its views or arrivals has, or receives what no view takes;
 * REFIT_ERROR_INFEASIBLE when landings and wire memory exceed the budget of the case, though chunks
 * are as small as they can be; REFIT_ERROR_LIMIT for more than REFIT_PROGRAM_MAX_TURNS turns;
 * REFIT_ERROR_OVERFLOW. Cost: the rank's part of the plan.
 */
RefitProgram *refit_program_new(const RefitProgramIndex *index, guint rank,
                                const RefitRankViews *source, const RefitRankViews *destination,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_program_free(RefitProgram *program);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitProgram, refit_program_free)

/*
 * Proves of one program, independently of how it was made: turns are in order; every wait is
 * backward; in a turn there is at most one exchange per peer and direction, and no more than
 * REFIT_STEP_OPERATIONS; steps have turns for all their chunks, and exchanges slots for them;
 * pieces fill their messages without gaps, copies fill their pieces; bytes
 * equal the plan's accounts; memory lies inside parameters and staging memory; steps that use the
 * same staging memory for different things wait for each other; steps that send what arrived wait
 * for its arrival. REFIT_ERROR_COVERAGE naming rank, step and what is wrong.
 */
gboolean refit_program_check(const RefitProgram *program, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Proves that every message has both ends, with the same numbers, chunks, bytes and pieces.
 * `programs`: of all ranks of the plan, by rank; NULL for ranks without a part in it.
 */
gboolean refit_programs_check(const RefitProgram *const *programs, guint n, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* (track, lane, link) of a stream: (track * n_lanes + lane) * REFIT_N_LINKS + link. */
guint refit_program_stream(const RefitPlan *plan, guint stage, guint batch, RefitLink link);

/* Where slice `slice` of `slices` begins: a multiple of 16 bytes, or the end. slice <= slices. */
guint64 refit_program_cut(guint64 bytes, guint slices, guint slice);
/* The part [*from_out, *to_out) of a piece that moves under `number`; may be empty. */
void refit_program_slice(const RefitProgramPiece *piece, guint number, guint64 *from_out,
                         guint64 *to_out);
/* Place of a turn among those of its step, from 0. */
guint refit_program_turn_place(const RefitProgram *program, const RefitTurn *turn);
/* Bytes that an exchange moves in a turn of its step; 0: it does not happen. */
guint64 refit_program_exchange_bytes(const RefitProgram *program, const RefitExchange *exchange,
                                     const RefitTurn *turn);
/*
 * Where these bytes lie: of a direct exchange, from the start of its parameter or of staging
 * memory; else of their slot, from the start of staging memory.
 */
guint64 refit_program_exchange_offset(const RefitProgram *program, const RefitExchange *exchange,
                                      const RefitTurn *turn);

/*
 * Bytes that are contiguous on both sides. Offsets count from the start of the parameter or of
 * staging memory; on the side of the message, from the start of what moves in this turn.
 */
typedef struct {
    guint8 from_memory, to_memory; /* RefitMemory */
    guint from_parameter, to_parameter;
    guint64 from, to, bytes;
} RefitByteRun;

/*
 * Appends to `runs` (of RefitByteRun) what packs, unpacks or copies the bytes of an exchange in a
 * turn of its step, in the order of pieces and copies, neighbours joined. Cost: its pieces, and the
 * runs of the rows that move.
 */
void refit_program_append_runs(const RefitProgram *program, const RefitExchange *exchange,
                               const RefitTurn *turn, GArray *runs);

G_END_DECLS
