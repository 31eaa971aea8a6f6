#pragma once

/*
 * A plan: the immutable answer to "who sends what to whom, when". It is printed, saved, checked,
 * simulated and executed; executors never re-derive it.
 *
 *   transfer  one region of each member of one class, from one rank to one rank, in one stage,
 *             after the transfers it depends on
 *   section   a contiguous run of bytes of each member of one class, which is put into batches by
 *             itself. A class has one, the whole tensor, unless the strategy splits it; a transfer
 *             moves part of one
 *   batch     a set of sections of tensors that moves together; batches of one lane follow each
 *             other on every stream of a rank, lanes run side by side
 *   stage     a phase inside a batch (inject, exchange, broadcast ...)
 *   offset    place of a transfer inside its stage: the hop of a chain, or the round of an exchange
 *   pair      all transfers with the same stage, offset, source and destination
 *   message   what a pair moves of one batch: at most one per ordered pair of ranks and step
 *   step      global number of a message, ordered by (batch, stage, offset); both sides of a
 *             message see the same number. A stage takes n_offsets + slices - 1 numbers in each
 *             batch, used or not: a place for each slice of its last hop
 *
 * How time flows (what every executor obeys). Each rank works on one stream per lane, track and
 * link class. On a stream, steps follow each other; the steps of one batch in a stage with
 * slices > 1 overlap (a chain receives and forwards at the same time). A batch marked `barrier`
 * starts on a rank when all earlier batches, of every lane, are done there. A message may start
 * when (a) both ranks' streams have reached its step, (b) for dependencies on an earlier stage:
 * everything that stage delivered to the sending rank in this batch has arrived, (c) for
 * dependencies inside a stage with slices == 1: the messages of its own batch that it depends on
 * have arrived; with slices > 1: their first slice has arrived, and it ends at least one slice
 * later than they do. Slice i of a message is slice i of each of its transfers, so a transfer can
 * follow another in slices only when both move the same region.
 *
 * Landings. HOME: bytes land in the destination's parameters. RELAY: in staging memory, to be sent
 * on. ASSEMBLY: in a section assembled on a source rank. BUCKET: in a broadcast bucket of whole
 * sections, from which a destination rank installs its part.
 */

#include "model/base/refit-json.h"
#include "model/problem/refit-problem.h"

G_BEGIN_DECLS

typedef enum { REFIT_LINK_LOCAL, REFIT_LINK_NVLINK, REFIT_LINK_NETWORK, REFIT_N_LINKS } RefitLink;

typedef enum {
    REFIT_LANDING_HOME,
    REFIT_LANDING_RELAY,
    REFIT_LANDING_ASSEMBLY,
    REFIT_LANDING_BUCKET,
    REFIT_N_LANDINGS
} RefitLanding;

const char *refit_link_name(RefitLink link);          /* "local", "nvlink", "network" */
const char *refit_landing_name(RefitLanding landing); /* "home", ... */

typedef struct {
    guint class_index;
    guint region; /* index into the plan's regions */
    guint src, dst;
    guint pair;              /* index into the plan's pairs */
    guint first_dep, n_deps; /* slice of the plan's deps: transfer indices */
    guint16 stage;
    guint8 link;    /* RefitLink */
    guint8 landing; /* RefitLanding */
} RefitTransfer;

/*
 * Staging memory that plans and their schedules keep to on every rank, when the case states no
 * budget: a tenth of an 80 GB GPU. Strategies make as many batches as that takes.
 */
#define REFIT_PLAN_STAGING_BYTES G_GUINT64_CONSTANT(8000000000)
/* What of it is for messages on their way; the rest is for what lands. */
#define REFIT_PLAN_WIRE_BYTES G_GUINT64_CONSTANT(3400000000)

typedef struct {
    char *name;
    guint slices;    /* > 1: the hops of a chain overlap in this many slices */
    guint n_offsets; /* offsets used are 0 .. n_offsets - 1 */
    guint track;     /* stages on different tracks have streams of their own; below n_stages */
} RefitStage;

typedef struct {
    guint lane;
    guint buckets;    /* broadcast buckets this batch stands for; 0 when it is not bucketed */
    gboolean barrier; /* on each rank, waits for all earlier batches of every lane */
} RefitBatch;

typedef struct {
    guint src, dst;
    guint offset;
    guint16 stage;
    guint8 link;
    guint first_transfer, n_transfers; /* transfers of a pair are contiguous */
} RefitPair;

typedef struct {
    guint step;
    guint batch;
    guint pair;
    guint tensors; /* pieces: sections of tensors (class members), counted per transfer */
    guint64 bytes;
    /* Contiguous runs on either side's parameters; one per transfer in staging memory, buckets and
     * assembled tensors. */
    guint64 runs_src, runs_dst;
} RefitMessage;

/* See above. Sections of a class are in the order of their bytes, without gaps. */
typedef struct {
    guint class_index;
    RefitRegion region;
    guint64 bytes; /* of one member */
} RefitSection;

/* Of members [first, first + count) of a class, one section moves in `batch`. */
typedef struct {
    guint batch, first, count;
} RefitBatchRun;

typedef struct {
    guint64 in[REFIT_N_LINKS], out[REFIT_N_LINKS]; /* bytes */
    guint64 messages_in, messages_out;             /* network and NVLink */
} RefitRankAccount;

/* Ranks that must receive all of each member of a class under a landing other than HOME and RELAY.
 * ASSEMBLY: all but what the rank holds from the start. BUCKET: all. */
typedef struct {
    guint class_index;
    RefitLanding landing;
    guint n_ranks;
    const guint *ranks; /* ascending; shared, owned by the plan */
} RefitObligation;

typedef struct {
    const RefitProblem *problem; /* borrowed; must outlive the plan */
    const char *strategy;        /* static name */
    const char *shape;           /* static name, when it is not the first one of its strategy */
    guint n_stages, n_batches, n_lanes, n_steps;
    guint n_regions, n_sections, n_transfers, n_deps, n_pairs, n_obligations;
    guint64 n_messages;
    const RefitStage *stages;
    const RefitBatch *batches;
    const RefitRegion *regions;
    const RefitSection *sections;   /* class after class: as many as classes when none is split */
    const guint *section_offsets;   /* of class c: [section_offsets[c], section_offsets[c + 1]) */
    const RefitTransfer *transfers; /* sorted by stage, offset, src, dst, class, region */
    const guint *deps;
    const RefitPair *pairs;       /* sorted by stage, offset, src, dst */
    const RefitMessage *messages; /* sorted by step, src, dst */
    const guint
        *run_offsets; /* runs of section s: batch_runs[run_offsets[s] .. run_offsets[s + 1]) */
    const RefitBatchRun *batch_runs; /* per section ascending by batch; members permuted: below */
    const guint *member_order; /* concatenated per section: position -> index into class->members */
    const guint *member_offsets; /* n_sections + 1 */
    const RefitObligation *obligations;
    const RefitRankAccount *accounts; /* per rank */
    guint64 link_bytes[REFIT_N_LINKS];
    guint64 logical_bytes; /* payload: each weight byte counted once per full pass over the model */
    char *digest;          /* 64 hex digits: SHA-256 of the canonical form */
} RefitPlan;

void refit_plan_free(RefitPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitPlan, refit_plan_free)

/*
 * The coverage proof. Checks, per class:
 *  - every transfer's source holds the region at the start, or has received it by the transfers it
 *    depends on; dependencies form no cycle and arrive at the sender, in the same or an earlier
 *    stage, and in a stage with slices > 1 they move the same region;
 *  - every destination rank's need is written exactly once by HOME and BUCKET landings together
 *    (what the rank holds already arrives by a LOCAL transfer from itself), and HOME lands nothing
 *    that is not needed;
 *  - every obligation is met exactly once and nothing lands in ASSEMBLY or BUCKET without one;
 *  - every RELAY landing is sent on, whole, and lands once;
 * and, for the whole plan: slices, tracks and lanes are in range, sections follow each other from
 * the first byte of their tensor to the last, transfers and what they depend on keep to one of
 * them, members are partitioned into batches section by section, messages equal their transfers'
 * bytes, at most one message per ordered pair and step, at most REFIT_STEP_OPERATIONS messages per
 * rank and step, stated link classes and accounts equal the topology's and the sums. Independent of
 * the builder: it works on regions by a sweep over sorted intervals, not on cells. Error:
 * REFIT_ERROR_COVERAGE naming tensor, ranks and region. Cost: transfers x log.
 */
#define REFIT_STEP_OPERATIONS 256
gboolean refit_plan_check(const RefitPlan *plan, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* Bytes that a transfer moves of one member. */
guint64 refit_plan_transfer_bytes(const RefitPlan *plan, const RefitTransfer *transfer);
/* The section that a transfer moves part of. Cost: log of the sections of its class. */
guint refit_plan_section_of(const RefitPlan *plan, const RefitTransfer *transfer);
/* The members of a section in `batch`, NULL when there are none; their number, or 0. */
const RefitBatchRun *refit_plan_batch_run(const RefitPlan *plan, guint section, guint batch);
guint refit_plan_batch_members(const RefitPlan *plan, guint section, guint batch);

/* Whole plan as JSON, schema refit.plan/1 (docs/formats.md). Caller frees. */
char *refit_plan_to_json(const RefitPlan *plan, gsize *length_out);

/* ---- building ---- */

typedef struct _RefitPlanBuilder RefitPlanBuilder;

/* `strategy`: static name. */
RefitPlanBuilder *refit_plan_builder_new(const RefitProblem *problem, const char *strategy);
void refit_plan_builder_free(RefitPlanBuilder *builder);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitPlanBuilder, refit_plan_builder_free)

/* Ranks that a rank meets at a time in an exchange; 0, the default: by the number of senders. */
void refit_plan_builder_set_peers_per_step(RefitPlanBuilder *builder, guint peers);
/* Adds to the logical payload (see RefitPlan). */
void refit_plan_builder_add_logical_bytes(RefitPlanBuilder *builder, guint64 bytes);

/* New stage; stages run in the order they are added. Returns its number. */
guint refit_plan_builder_add_stage(RefitPlanBuilder *builder, const char *name, guint slices);
/*
 * Transfers added from now on are at least so many hops behind the start of their stage; 0 unless
 * set. For exchanges in which a rank sends to one partner at a time: those that go to the same
 * partner then make one message, whatever they wait for.
 */
void refit_plan_builder_set_least_depth(RefitPlanBuilder *builder, guint depth);
/* Track of a stage, below the number of stages; 0 unless set. A stage on its own track need not
 * wait for its turn among others.
 */
void refit_plan_builder_set_track(RefitPlanBuilder *builder, guint stage, guint track);
/* New batch; batches run in the order they are added. Returns its number. */
guint refit_plan_builder_add_batch(RefitPlanBuilder *builder, guint lane, guint buckets,
                                   gboolean barrier);
/*
 * Splits a class, which has no batches yet, into sections: `regions`, copied, in the order of their
 * bytes. Each must be a contiguous run of the tensor's bytes, and together they are all of it.
 */
void refit_plan_builder_split(RefitPlanBuilder *builder, guint class_index,
                              const RefitRegion *regions, guint n);
/* The sections of a class: *n_out regions, owned by the builder; NULL and 1: the whole tensor. */
const RefitRegion *refit_plan_builder_sections(const RefitPlanBuilder *builder, guint class_index,
                                               guint *n_out);
/* Puts a section (counted in its class) of a member (index into class->members) into a batch. Every
 * section of every member must be put once. */
void refit_plan_builder_assign_section(RefitPlanBuilder *builder, guint class_index, guint section,
                                       guint member, guint batch);
/* The same for classes that are not split. */
void refit_plan_builder_assign(RefitPlanBuilder *builder, guint class_index, guint member,
                               guint batch);
/* Index of an equal region, added if new. Copies. */
guint refit_plan_builder_region(RefitPlanBuilder *builder, const RefitRegion *region);
/*
 * Adds a transfer and returns its handle, to be used in `deps` of later ones. The link class
 * follows from the topology; src == dst is a local copy. Empty regions must not be added.
 */
guint refit_plan_builder_add(RefitPlanBuilder *builder, guint class_index, guint region, guint src,
                             guint dst, guint stage, RefitLanding landing, const guint *deps,
                             guint n_deps);
void refit_plan_builder_oblige(RefitPlanBuilder *builder, guint class_index, RefitLanding landing,
                               const guint *ranks, guint n_ranks);
/*
 * Numbers pairs, offsets, steps and messages, sums the accounts and computes the digest; consumes
 * the builder's contents. Offsets: the transfers of a stage are split in levels by their depth
 * (hops behind the stage's start), and those of a level and link class in rounds in which no rank
 * meets more than its peers (refit-rounds.h); a level of a sliced stage has as few rounds as
 * REFIT_STEP_OPERATIONS allows.
 * Error: REFIT_ERROR_OVERFLOW; REFIT_ERROR_INFEASIBLE when a step would exceed
 * REFIT_STEP_OPERATIONS on a rank.
 */
RefitPlan *refit_plan_builder_finish(RefitPlanBuilder *builder, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
