#pragma once

/*
 * What strategies share: batching, look-ups in lists of ranks, spreading in a group, and the two
 * published paths as building blocks, each over a selection of classes (`hybrid` is one after the
 * other).
 */

#include "model/strategy/refit-strategy.h"

G_BEGIN_DECLS

/* Which classes a building block moves. */
typedef enum { REFIT_SELECT_ALL, REFIT_SELECT_BULK, REFIT_SELECT_MISC } RefitSelection;

gboolean refit_selection_has(RefitSelection selection, const RefitClass *klass);
/* Bytes of all members of the selected classes. */
guint64 refit_selection_bytes(RefitSelection selection, const RefitProblem *problem);

/* M2N's ring, call by call, on profile->stage_lanes lanes from lane 0 on. */
void refit_ring_build(RefitPlanBuilder *builder, const RefitProblem *problem,
                      RefitSelection selection);
/*
 * The bucketed conventional path on lane 0. `barrier`: start only when all earlier batches are
 * done. REFIT_ERROR_INFEASIBLE when the source side holds only part of a tensor.
 */
gboolean refit_gather_broadcast_build(RefitPlanBuilder *builder, const RefitProblem *problem,
                                      RefitSelection selection, gboolean barrier, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/*
 * Puts every member of the selected classes into the batch of its bucket, on lane 0; the first one
 * waits for all earlier batches when `barrier` says so. Tensors that leave no room for anything
 * else when they land are split, where their type allows. Returns the bytes of the largest batch.
 */
guint64 refit_buckets_assign(RefitPlanBuilder *builder, const RefitProblem *problem,
                             RefitSelection selection, gboolean barrier);

/*
 * Puts every member of every class into one of `n_batches` new batches on lane 0, so that each rank
 * has nearly the same to send in every batch: equal numbers of each class, and the rest of a class
 * where its pipeline stage has the fewest such bytes so far (the earlier batch on a tie).
 */
void refit_batches_spread(RefitPlanBuilder *builder, const RefitProblem *problem, guint n_batches);

/*
 * Slices for messages of `bytes` in chains of `hops`, when the busiest network port of the chains
 * passes `total` bytes on, one message after the other. With slices of s bytes that takes
 * (total / s + hops) (s / bandwidth + t), t being what a rank's turns of one number cost it: at
 * least at s = sqrt(total x bandwidth x t / hops). Slices are not smaller than the profile's
 * slice_bytes.
 */
guint refit_chain_slices(const RefitProblem *problem, guint64 bytes, guint64 total, guint hops);

/* Bytes of a batch that may land on a rank, so that the landings of two batches and the wire memory
 * fit the case's staging budget, or REFIT_PLAN_STAGING_BYTES. */
guint64 refit_batch_limit(const RefitCase *refit_case);

/* Ranks [first, first + n) of an ascending list that lie in the domain of ranks[first]. */
guint refit_domain_run(const RefitTopology *topology, const guint *ranks, guint n_ranks,
                       guint first);
/* Ranks of an ascending list that lie in the domain of `rank`: those from *first_out on, and how
 * many they are. Cost: the log of the list, and the run. */
guint refit_domain_ranks(const RefitTopology *topology, const guint *ranks, guint n_ranks,
                         guint rank, guint *first_out);
/* Ranks of the source and of all pools that have not failed, ascending; guint. */
GArray *refit_ranks_of_both_sides(const RefitProblem *problem);
gboolean refit_ranks_contain(const guint *ranks, guint n_ranks, guint rank);

/*
 * Spreads what member `root` of a group of `n` has to all of them: member root + t passes it to
 * root + t + 2^level, modulo n. When all members spread at once, each has one partner to send to
 * and one to receive from per level, and receives (n - 1)/n of everything once, as in a ring, in
 * log2(n) messages instead of n - 1. Calls `hop` level after level, senders before receivers;
 * returns the number of levels.
 */
typedef void (*RefitSpreadFunc)(guint level, guint from, guint to, gpointer data);
guint refit_spread(guint n, guint root, RefitSpreadFunc hop, gpointer data);

/* ---- broadcasts ---- */

/* What a rank has of a region: nothing, from the start, or by the transfer of that handle. */
#define REFIT_NOT_HELD G_MAXUINT
#define REFIT_HELD (G_MAXUINT - 1)

/* A region on its way from rank to rank of a group. */
typedef struct {
    RefitPlanBuilder *builder;
    guint class_index, region, stage;
    RefitLanding landing;
    guint first_level;
    const guint *group; /* what members of the spread are: indices into `state` */
    const guint *ranks; /* per index into `state` */
    guint *state; /* REFIT_NOT_HELD, REFIT_HELD or the handle of the transfer that brought it */
    const GArray *deps; /* handles that completed the root's copy, or NULL */
} RefitTravel;

/* A RefitSpreadFunc, `data` a RefitTravel: passes the region on, unless the member has it. */
void refit_travel_pass(guint level, guint from, guint to, gpointer data);

/*
 * Ring over `ranks`, domain after domain, each domain's ranks rotated so that the ring leaves it at
 * its `channel`-th rank.
 */
void refit_ring_order(const RefitTopology *topology, const guint *ranks, guint n_ranks,
                      guint channel, guint *order_out);

/*
 * Indices of the innermost dim that make 16 bytes, or 1 where none do: cuts at multiples of it keep
 * the rest of a row as aligned as its beginning, and NCCL and the pack kernels move what both sides
 * have aligned to 16 bytes in such accesses, all else in smaller ones.
 */
guint64 refit_strategy_grain(const RefitClass *klass);

typedef struct {
    RefitPlanBuilder *builder;
    const RefitTopology *topology;
    guint stage;
    const GArray *everyone; /* guint: ranks, ascending */
    guint root;             /* one of them */
} RefitBroadcast;

/* From the root to all, into buckets. `root_deps`: handles of what brought it to the root. */
void refit_broadcast_add(const RefitBroadcast *broadcast, guint class_index,
                         const RefitRegion *region, guint channel, const GArray *root_deps);
/* Hops: in a chain through all ranks, or over all domains. */
guint refit_broadcast_hops(const RefitTopology *topology, const GArray *everyone);

G_END_DECLS
