#pragma once

/*
 * Programs: what one rank does when a plan is carried out.
 *
 * A program is the rank's part of the schedule (refit-schedule.h), with addresses: which bytes of
 * which parameters and of staging memory each exchange moves, and where in its message they are. It
 * decides nothing that takes time, so no rank asks another what it is about to send.
 *
 *   piece     one member of one transfer inside a message
 *   copy      a region of a piece, between two places: parameters, staging memory or the message
 *
 * Messages. A message is its pieces one after the other without gaps, larger elements first, then
 * in the order of (first number, transfer, position of the member): every piece is aligned to its
 * elements. The bytes of a piece are the elements of its transfer's region, row-major. In a sliced
 * stage, number k carries slice k - piece.number of each piece for which that is one of 0 ..
 * slices - 1: bytes [cut(i), cut(i + 1)), see refit_schedule_cut().
 *
 *   three tensors of 64 bytes in a chain of 4 slices, rank receives from offset 0, sends at 1:
 *   number   0        1              2              3              4
 *   receive  0..16    16..32         32..48         48..64                  of each, 48 bytes in
 * all send              0..16          16..32         32..48         48..64
 *
 * Chunks are cut without regard to pieces. An exchange without bytes in a turn does not happen on
 * either side.
 *
 * Memory. Parameters are read on the source side and written on the destination side; on a rank of
 * both sides they must not share memory, except that a local copy may find its bytes in place.
 * Staging memory is one block of staging_bytes: landings, in the slots of the schedule, then wire
 * memory, stream after stream. An exchange that is not direct is packed into or received in wire
 * memory at `wire` of the turn's slot, which is its place on its stream modulo
 * REFIT_SCHEDULE_SLOTS.
 */

#include "model/layout/refit-view.h"
#include "model/schedule/refit-schedule.h"

G_BEGIN_DECLS

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
    const RefitView *view; /* borrowed from the views or the schedule */
} RefitPlace;

/* Elements of `region`, which lies inside both views. */
typedef struct {
    const RefitRegion *region; /* borrowed from the plan, or owned by the program */
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
    guint64 wire;       /* not direct: offset in staging memory of its place in slot 0 */
    guint64 wire_bytes; /* of that place, a multiple of REFIT_SCHEDULE_ALIGN; 0: direct */
    guint64 wire_step;  /* from a slot to the next */
    guint wire_slots;   /* of its stream: no more than the stream has turns */
} RefitExchange;

typedef RefitScheduleStep RefitProgramStep;

/*
 * Steps and waits are the schedule's, with exchanges and waits counted from the rank's first; so
 * are exchanges, one for one.
 */
typedef struct {
    const RefitSchedule *schedule; /* borrowed */
    const RefitPlan *plan;         /* borrowed */
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

/*
 * `source` and `destination`: views of the rank in the layouts of the plan's case, NULL for a side
 * that it is no rank of; borrowed, like the schedule. Errors: REFIT_ERROR_COVERAGE when the rank is
 * to send what none of its views or arrivals has, or receives what no view takes, or when its views
 * are not those of the layouts; REFIT_ERROR_SUBBYTE_SPLIT; REFIT_ERROR_OVERFLOW. Cost: the rank's
 * part of the plan.
 */
RefitProgram *refit_program_new(const RefitSchedule *schedule, guint rank,
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

/* The part [*from_out, *to_out) of a piece that moves under `number`; may be empty. */
void refit_program_slice(const RefitProgramPiece *piece, guint number, guint64 *from_out,
                         guint64 *to_out);
/* Place of a turn among those of its stream, from 0. */
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
