#pragma once

/*
 * What the files of strategy `refit` share: the planner and the cell that it is working on.
 */

#include "model/strategy/refit-strategy-private.h"

G_BEGIN_DECLS

#define REFIT_MAX_GROUP 8 /* domains that relay to each other */
/* Needers of a domain that send to each other directly; more pass on what they have received. */
#define REFIT_MAX_SWAP 8

typedef struct {
    RefitPlanBuilder *builder;
    const RefitProblem *problem;
    const RefitTopology *topology;
    gboolean stripes; /* FALSE: parts come into a domain whole */
    gboolean chains;  /* from domain to domain, not from holders to all of them */
    guint network_stage, relay_stage, exchange_stage;
    guint64 *sent, *received; /* network bytes per rank so far, all members */
    guint64 *sent_inside;     /* the same from holders to needers of their domain, over NVLink */
    double *relayed;          /* per source rank: share of its deliveries that relays take over */
    guint64 stripe_bytes;     /* parts are not cut below this; dealt to the least loaded NIC */
    guint64 even_bytes;       /* bytes of all members that no NIC feels; no stripe is smaller */
    guint *known, *n_known;   /* per rank: some ranks that send to it */
    GArray *arrivals;         /* RefitArrival: domains that must bring in the current cell */
    GArray *everyone;         /* guint: ranks that take part, ascending */
    GArray *insiders;         /* the same: those that hold it, with needers that do not */
    GArray *inside;           /* guint: these needers */
    GArray *takers;           /* guint: of the current cell, arrival after arrival */
    GArray *cuts;             /* RefitCut: stripes of the current cell */
    GArray *landed;           /* RefitLanded: per arrival and stripe of the current cell */
} RefitPlanner;

typedef struct {
    const guint *ranks; /* needers of the cell in one domain */
    guint n_ranks;
    guint first_inside, n_inside; /* holders of the cell in this domain */
    guint first_taker; /* index into takers: stripe i is brought in by takers[first_taker + i] */
} RefitArrival;

/* A part of the current cell that moves: its number in the plan, and bytes of one member. */
typedef struct {
    guint region;
    guint64 bytes;
} RefitPart;

/*
 * A stripe of the current cell, cut for a group of domains: `direct` is what the source sends to
 * each domain, a part for all (A) and the domain's slice; `slices` are passed on.
 */
typedef struct {
    RefitRegion stripe; /* owned */
    RefitPart whole;
    guint dim;      /* that is cut */
    guint64 extent; /* of that dim */
    guint64 slice;  /* its positions per slice; 0: not cut */
    guint n_slices; /* one per domain; 0: none yet */
    RefitPart direct[REFIT_MAX_GROUP], slices[REFIT_MAX_GROUP];
} RefitCut;

/* How a stripe came into a domain: in one piece, or in slices hop by hop. */
typedef struct {
    guint n; /* 0: the stripe is empty */
    guint handles[REFIT_MAX_GROUP];
} RefitLanded;

/* The stripe moved whole: registered when first asked for, so that the plan has no unused regions.
 */
const RefitPart *refit_planner_whole_stripe(const RefitPlanner *self, RefitCut *cut);
/* Two parts of one list, the second behind the first. */
RefitIntervalList *refit_planner_join_lists(const RefitIntervalList *front,
                                            const RefitIntervalList *back);
/*
 * Who sends `bytes` of the cell to `taker`: a holder that sends to it anyway, unless another one
 * has sent less by more than half of that. Few and equal messages per rank keep NICs in step.
 */
guint refit_planner_choose_sender(RefitPlanner *self, const RefitCell *cell, guint taker,
                                  guint64 bytes);
/* Adds a transfer over the network, after the transfer *dep unless that is NULL. Returns it. */
guint refit_planner_bring(RefitPlanner *self, guint class_index, const RefitPart *part,
                          guint sender, guint taker, const guint *dep);

/*
 * Serves needers of a domain that holds the cell, so that nothing enters it: those that hold it
 * copy it. When the others are no more than the holders, each gets it from one of them; else they
 * are noted as an arrival, which takes it in by stripes and swaps these.
 */
void refit_planner_serve_inside(RefitPlanner *self, guint class_index, const RefitCell *cell,
                                const RefitArrival *arrival);
/* Stripes of the current cell into a domain that holds it: arrival `number`, noted before. */
void refit_planner_bring_stripes_inside(RefitPlanner *self, guint class_index,
                                        const RefitCell *cell, RefitCut *cuts, guint number);
/* Stripe `index` of the current cell from domain to domain, over its first `n_network` arrivals. */
void refit_planner_chain_stripe(RefitPlanner *self, guint class_index, const RefitCell *cell,
                                RefitCut *cut, guint index, guint n_network);
/* Finishes the needers of each domain over NVLink, once the cell's stripes have been brought in. */
void refit_planner_exchange(RefitPlanner *self, guint class_index, const RefitCell *cell);

G_END_DECLS
