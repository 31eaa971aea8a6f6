#pragma once

/*
 * What any plan for a problem must do, counted from geometry alone, before a strategy is chosen:
 * bytes each rank must receive, from how few ranks it can get them, operations, bytes into each
 * domain, and the least that the busiest source must send when nothing is relayed.
 */

#include "model/problem/refit-problem.h"

G_BEGIN_DECLS

typedef struct {
    guint rank;
    guint64 receive_bytes; /* needed elements that the rank does not hold as a source */
    guint64 local_bytes;   /* needed elements that it does */
    guint fan_in;          /* fewest other ranks that can serve it */
    gboolean needs;        /* belongs to a destination */
    gboolean idle;         /* has nothing to receive and no byte that only it can send */
} RefitDemandRank;

typedef struct {
    guint n_ranks; /* ranks of both sides that have not failed, ascending */
    RefitDemandRank *ranks;
    guint64 receive_bytes; /* sum over ranks */
    guint64 unique_bytes;  /* needed by a rank that does not hold them, each counted once */
    guint64 operations;    /* tensor by tensor: sum over ranks of the fewest senders */
    guint max_fan_in;
    gboolean exact_fan_in; /* FALSE when a search was cut short and fan_in is an upper limit */
    guint n_domains;
    guint64 *domain_in_bytes;     /* elements that a GPU of the domain needs and none of it holds */
    guint64 cross_rail_bytes;     /* received where no holder is on the rail or in the node */
    guint64 min_max_egress_bytes; /* busiest sender at least, sending directly; rounded up */
} RefitDemand;

/* Cost: cells times their ranks, a small set-cover search per rank, and a maximum flow between
 * distinct holder sets and ranks. */
RefitDemand *refit_demand_new(const RefitProblem *problem, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_demand_free(RefitDemand *demand);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitDemand, refit_demand_free)

/* REFIT_ERROR_LIMIT naming the rank when one needs more than `max_sources` ranks. */
gboolean refit_demand_check_sources(const RefitDemand *demand, guint max_sources, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
