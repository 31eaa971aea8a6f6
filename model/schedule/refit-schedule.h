#pragma once

/*
 * The schedule: everything of a plan that takes time, for all ranks, and nothing that is an
 * address.
 *
 * A plan says who sends what to whom, after what. The schedule follows from it by rules that are
 * here and nowhere else, so that what is predicted is what is executed: the simulator runs the
 * schedule, and a rank's program (refit-program.h) is its part of the schedule with addresses.
 *
 *   step      all that a rank does on one stream under one global step number of the plan; in a
 *             sliced stage, all that it does there in one batch under numbers that overlap
 *   exchange  what a step sends to one peer, or receives from it: one message, or in a sliced stage
 *             all messages with that peer whose slices have numbers in common. On the own rank:
 *             local copies, or an install
 *   turn      one chunk of one number of a step: what a rank submits at once, which is one launch
 *             that packs, one NCCL group, one launch that unpacks; or one launch that copies
 *   install   copies out of buckets into parameters, behind the last stage that brings buckets
 *
 * Numbers. A message of a sliced stage has a number per slice, from its step on; others have one.
 * In a batch a stage has no more slices than its largest message has `slice_bytes` of the profile.
 * It is not sliced in a batch in which a rank would meet more than REFIT_STEP_OPERATIONS others in
 * a turn, or in which a local copy, which stays whole, would follow a message of the stage.
 *
 * Bytes. A message is its pieces (each member of each of its transfers) one after the other, as
 * refit-program.h says; under number k it moves slice k - step of each piece, whose borders are
 * refit_schedule_cut(). So the bytes under a number follow from the plan alone.
 *
 * Chunks. What an exchange moves under one number is cut into `n` chunks, the same for all ranks
 * that share numbers and link class, so both ends cut alike, and every turn of a step moves the
 * same share of all its messages: ranks that keep step then keep their ports as busy in each turn
 * as in the whole step, however unlike its messages are. There are so many chunks that the rank
 * that packs most there has memory for a turn (see Memory); what nobody packs is not cut. Their
 * borders are multiples of `grain` bytes, which is REFIT_SCHEDULE_GRAIN_NETWORK or _NVLINK unless
 * memory is too small for that; what has fewer grains than n has a chunk for each, which go first.
 *
 * Order. A rank submits its turns in the order of (number, install, chunk, stream), and at most
 * REFIT_SCHEDULE_IN_FLIGHT turns of a stream ahead of its oldest one that is not done. On a stream,
 * packs follow each other, and so do moves and unpacks:
 *
 *   pack    after what the turn waits for
 *   move    after the pack, and on both ranks: messages start when both are there. Streams that
 *           share a communicator also move one after the other, in the order of submission
 *
 *   unpack  after all messages of the turn; the turn is done then
 *
 * Waits. A turn begins after all that its step waits for is done: other steps, each with all before
 * it on its stream; or, marked `in_slices`, the turns of a step with smaller numbers. In a stream,
 * a turn also waits for the one REFIT_SCHEDULE_SLOTS places before, whose wire memory it takes, so
 * a chunk is packed while one moves and the one before is unpacked. What is waited for always has a
 * smaller (number, install, chunk), here and, as both ends of a message have the same number and
 * chunk, everywhere: waiting cannot circle.
 *
 * Direct or packed. A message goes straight from memory, or into it, when the bytes of its
 * exchange's turns are one run there: a single piece that is one run of a parameter which keeps
 * rows together (refit_layout_keeps_rows()); what arrived in one message as a block and goes on
 * whole; a block that lands. All else is packed on the side where that fails, through wire memory;
 * so is every side that holds another form than that on the wire.
 *
 * Memory. A rank has landings and wire memory. Relays, and parts of assembled tensors, land as
 * blocks, one per message and in its order; buckets as whole sections. Landings of a batch are
 * together in one of REFIT_SCHEDULE_BATCH_SLOTS slots of their lane, which its batches with
 * landings take in turn, those far above the mean always the first; in a single slot where two
 * leave too little of the memory: relays, and behind them assembled parts, or buckets in their
 * place, which come when the rank has done its part in the stages before. A slot is as large as the
 * largest of its batches. Wire memory is REFIT_SCHEDULE_SLOTS slots per stream, each as large as
 * its largest turn. The pool is what chunks may take of it: what the largest landings of any rank
 * leave of the case's staging budget; without one, of REFIT_PLAN_STAGING_BYTES, but at least a
 * quarter of REFIT_SCHEDULE_POOL_BYTES; and no more than REFIT_SCHEDULE_POOL_BYTES. A turn may pack
 * what the busiest rank packs on the stream in REFIT_SCHEDULE_FEW_TURNS turns, but at least 16 MiB
 * and what a port moves in twice the time in which the host submits the largest turn; where the
 * pool is not enough for that, streams share it so that they have the fewest turns together.
 */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

/* Borders of slices are multiples of so many bytes: itself a multiple of every element. */
#define REFIT_SCHEDULE_SLICE_ALIGN 16
/* Alignment of everything placed in staging memory. */
#define REFIT_SCHEDULE_ALIGN 256
/* Batches of a lane whose landings have memory at the same time. */
#define REFIT_SCHEDULE_BATCH_SLOTS 2
/* Turns of a stream that have wire memory at the same time. */
#define REFIT_SCHEDULE_SLOTS 2
/* Wire memory of a rank at most, unless its case's budget leaves less. */
#define REFIT_SCHEDULE_POOL_BYTES REFIT_PLAN_WIRE_BYTES
/* Turns in which a stream packs all that it has, memory permitting: so many that the first pack and
 * the last unpack, which nothing hides, are below one percent of the whole. */
#define REFIT_SCHEDULE_FEW_TURNS 256
/* Chunks are no smaller, unless messages are or memory forbids it: NCCL moves what one channel has
 * of a message in steps of up to 512 KiB, so less per chunk would cost as much as that. */
#define REFIT_SCHEDULE_GRAIN_NETWORK (G_GUINT64_CONSTANT(512) << 10)
#define REFIT_SCHEDULE_GRAIN_NVLINK (G_GUINT64_CONSTANT(1) << 20)
/* Turns of a stream that are submitted and not done. */
#define REFIT_SCHEDULE_IN_FLIGHT 64
/* Communicators of a link class at most; further streams share them. Each costs device memory. */
#define REFIT_SCHEDULE_COMMS 4
/* Turns of one rank. */
#define REFIT_SCHEDULE_MAX_TURNS (1u << 24)

typedef enum {
    REFIT_EXCHANGE_SEND,
    REFIT_EXCHANGE_RECEIVE,
    REFIT_EXCHANGE_COPY,    /* messages from the rank to itself */
    REFIT_EXCHANGE_INSTALL, /* no messages */
} RefitExchangeKind;

typedef struct {
    guint peer;     /* the own rank: a copy or an install */
    guint8 kind;    /* RefitExchangeKind */
    guint8 direct;  /* not packed, not unpacked; FALSE in a copy or install */
    guint16 slices; /* of each of its messages: numbers that it has */
    guint n_messages;
    guint first; /* of RefitSchedule.messages; in an install, of RefitSchedule.installs */
} RefitScheduleExchange;

typedef struct {
    guint64 bytes;
    guint64 tensors; /* loaded: one that is split counts in each bucket that brings some of it */
} RefitScheduleInstall;

typedef struct {
    guint step;         /* of the same rank, counted from its first */
    gboolean in_slices; /* for turns with smaller numbers only */
} RefitWait;

/* How what an exchange moves under one number is cut; see Chunks. */
typedef struct {
    guint n;       /* chunks at most; 1 for copies, which stay whole */
    guint64 grain; /* bytes; G_MAXUINT64 for copies */
} RefitCutting;

typedef struct {
    guint number, n_numbers; /* global step numbers */
    guint n_chunks;          /* turns under each number: those that its largest exchange needs */
    guint batch;
    guint stream;
    guint16 stage;
    guint8 link;          /* RefitLink */
    guint8 install;       /* after all else with its number */
    guint first_turn;     /* its place among the turns of its stream, from 0 */
    guint first_exchange; /* of RefitSchedule.exchanges; by (peer, receives before sends, number) */
    guint n_exchanges;
    guint first_wait, n_waits; /* of RefitSchedule.waits */
    RefitCutting cutting;
} RefitScheduleStep;

/* Landings of a batch on a rank. */
typedef struct {
    guint batch;
    guint slot; /* lane * REFIT_SCHEDULE_BATCH_SLOTS + slot */
    guint64 bytes;
    guint64 relay_bytes; /* of these; assembled parts and buckets are behind */
} RefitScheduleLanding;

typedef struct {
    guint n_turns;                     /* that a rank submits */
    guint n_groups;                    /* of these, with messages */
    guint64 landing_bytes, wire_bytes; /* of staging memory */
} RefitScheduleRank;

/* Of a rank on a communicator: peers to which it sends and from which it receives; and on a network
 * communicator how many ranks of its node send. */
typedef struct {
    guint n_sends, n_receives, n_node_senders;
} RefitScheduleConnections;

typedef struct {
    const RefitPlan *plan; /* borrowed; must outlive the schedule */
    guint n_streams;       /* of a rank */
    /* Communicators per link class, alike on all ranks, and per stream which of its class it has.
     */
    guint n_comms[REFIT_N_LINKS];
    const guint *comm_of;
    /* Channels of a communicator, and of a pair of its ranks: refit-schedule-comms.h. */
    guint ctas[REFIT_N_LINKS], per_peer[REFIT_N_LINKS];
    /* Per rank, link class and communicator: (rank * REFIT_N_LINKS + link) * REFIT_SCHEDULE_COMMS +
     * communicator. */
    const RefitScheduleConnections *connections;
    const guint *step_offsets; /* n_ranks + 1: steps of rank r are [step_offsets[r], ...[r + 1]) */
    const RefitScheduleStep *steps; /* of a rank by (number, install, stream) */
    const RefitScheduleExchange *exchanges;
    const guint *messages; /* of the plan; of an exchange ascending */
    const RefitScheduleInstall *installs;
    const RefitWait *waits;
    const guint *landing_offsets;         /* n_ranks + 1 */
    const RefitScheduleLanding *landings; /* of a rank by batch */
    const RefitScheduleRank *ranks;
    guint n_steps, n_exchanges;
} RefitSchedule;

/*
 * Errors: REFIT_ERROR_LIMIT for 2^31 - 1 messages or more, or a rank with more than
 * REFIT_SCHEDULE_MAX_TURNS turns; REFIT_ERROR_OVERFLOW in sums of staging bytes. Cost: transfers,
 * messages, dependencies; memory: messages.
 */
RefitSchedule *refit_schedule_new(const RefitPlan *plan, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_schedule_free(RefitSchedule *schedule);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitSchedule, refit_schedule_free)

/*
 * Proves that all ranks finish, however they are delayed: turns are in one order on all ranks, both
 * ends of a message have the same numbers and chunks, and whatever waits, waits for something that
 * comes before. REFIT_ERROR_COVERAGE naming ranks and steps. Cost: messages, waits, dependencies.
 */
gboolean refit_schedule_check(const RefitSchedule *schedule, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* REFIT_ERROR_INFEASIBLE, naming the rank, when the case has a staging budget and a rank needs
 * more, though chunks are as small as they can be. */
gboolean refit_schedule_check_budget(const RefitSchedule *schedule, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Landings and wire memory together. */
guint64 refit_schedule_staging_bytes(const RefitSchedule *schedule, guint rank);
/* The rank with the most turns; the first of equals. */
guint refit_schedule_busiest(const RefitSchedule *schedule);

const RefitScheduleStep *refit_schedule_steps(const RefitSchedule *schedule, guint rank,
                                              guint *n_out);

/* ---- turns ---- */

typedef struct {
    guint step; /* of the rank, counted from its first */
    guint number, chunk;
} RefitTurn;

/* The rank's turns in the order in which it submits them. Cost: turns x log. */
GArray *refit_schedule_list_turns(const RefitSchedule *schedule, guint rank);
/* Place of a turn among those of its step, from 0. */
guint refit_schedule_turn_place(const RefitScheduleStep *step, const RefitTurn *turn);
/* Bytes that an exchange of a step moves in one of the step's turns; 0: it does not happen. */
guint64 refit_schedule_turn_bytes(const RefitSchedule *schedule, const RefitScheduleStep *step,
                                  const RefitScheduleExchange *exchange, guint number, guint chunk);

/* ---- parts of messages ---- */

/* (track, lane, link) of a stream: (track * n_lanes + lane) * REFIT_N_LINKS + link. */
guint refit_schedule_stream(const RefitPlan *plan, guint stage, guint batch, RefitLink link);
/* Bytes of all messages of an exchange. */
guint64 refit_schedule_exchange_bytes(const RefitSchedule *schedule,
                                      const RefitScheduleExchange *exchange);
/* Bytes that an exchange moves under one of its numbers at most. */
guint64 refit_schedule_most_bytes(const RefitSchedule *schedule,
                                  const RefitScheduleExchange *exchange);
/* Chunks of an exchange that moves so many bytes under one number; at least one. */
guint refit_cutting_count(const RefitCutting *cutting, guint64 bytes);
/* Where a chunk of so many bytes begins; the bytes themselves behind the last one. */
guint64 refit_cutting_border(const RefitCutting *cutting, guint64 bytes, guint chunk);
/* Bytes of the largest of these chunks, its last grain counted as a whole one. Grows with `bytes`.
 */
guint64 refit_cutting_most(const RefitCutting *cutting, guint64 bytes);
/* Numbers [*first_out, *end_out) under which an exchange moves. Not of an install. */
void refit_schedule_numbers(const RefitSchedule *schedule, const RefitScheduleExchange *exchange,
                            guint *first_out, guint *end_out);
/*
 * Where the packed exchanges of a step lie in a slot of its stream's wire memory: `places`
 * (guint64) takes an offset for each of them, in their order; those under way together do not share
 * bytes. *bytes_out: what all of them take. REFIT_ERROR_OVERFLOW.
 */
gboolean refit_schedule_place_wires(const RefitSchedule *schedule, const RefitScheduleStep *step,
                                    GArray *places, guint64 *bytes_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Slices of a stage in a batch; see above. */
guint refit_schedule_slices(const RefitSchedule *schedule, guint batch, guint stage);
/* Numbers that a message has: the slices of its stage, or 1. */
guint refit_schedule_message_slices(const RefitSchedule *schedule, const RefitMessage *message);
/* Where slice `slice` of `slices` begins: at a multiple of REFIT_SCHEDULE_SLICE_ALIGN, or the end.
 * slice <= slices. */
guint64 refit_schedule_cut(guint64 bytes, guint slices, guint slice);
/* Bytes that a message of the plan moves under a number. */
guint64 refit_schedule_message_bytes(const RefitSchedule *schedule, guint message, guint number);
/* Distinct pairs of the same stage and earlier stages that `pair` waits for (refit-plan-deps.h). */
const guint *refit_schedule_deps(const RefitSchedule *schedule, guint pair, guint *n_out);

G_END_DECLS
