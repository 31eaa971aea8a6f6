#pragma once

/* Shared by the files that make graphs; not for other modules. */

#include "sim/refit-sim-costs.h"
#include "sim/refit-sim-graph.h"

G_BEGIN_DECLS

typedef struct {
    const RefitSchedule *schedule;
    const RefitPlan *plan;
    RefitSimCosts costs;
    RefitSimGraph *out;
    GArray *edges; /* guint pairs: before, after */
    /* Per batch: the item that opens it, and a join of all that it does; REFIT_SIM_NONE where there
     * is no need for one. */
    guint *opens, *closes;
} RefitSimBuild;

/* ---- items and edges ---- */

static inline guint refit_sim_add(RefitSimBuild *build, RefitNetsimItem item) {
    g_array_append_val(build->out->items, item);
    return build->out->items->len - 1;
}

static inline guint refit_sim_join(RefitSimBuild *build) {
    return refit_sim_add(build, (RefitNetsimItem){.kind = REFIT_NETSIM_JOIN});
}

static inline guint refit_sim_delay(RefitSimBuild *build, double seconds) {
    return refit_sim_add(build, (RefitNetsimItem){.kind = REFIT_NETSIM_DELAY, .delay_s = seconds});
}

static inline guint refit_sim_flow(RefitSimBuild *build, guint src, guint dst, double bytes) {
    return refit_sim_add(
        build,
        (RefitNetsimItem){.kind = REFIT_NETSIM_FLOW, .src = src, .dst = dst, .bytes = bytes});
}

/* Nothing, when `before` is REFIT_SIM_NONE. */
static inline void refit_sim_edge(RefitSimBuild *build, guint before, guint after) {
    const guint edge[2] = {before, after};

    if (before != REFIT_SIM_NONE)
        g_array_append_vals(build->edges, edge, 1);
}

static inline guint *refit_sim_numbers(gsize n) {
    guint *numbers = g_new(guint, MAX(n, 1));

    for (gsize i = 0; i < n; i++)
        numbers[i] = REFIT_SIM_NONE;
    return numbers;
}

/* ---- arrivals ---- */

/* Flows that arrive at a rank, by their latency: below one leaf, or over the spine. */
typedef struct {
    guint n;
    guint items[2];
    double latency_s[2];
} RefitSimArrivals;

static inline void refit_sim_arrive(RefitSimBuild *build, RefitSimArrivals *arrivals, guint flow,
                                    double latency_s) {
    guint i = 0;

    while (i < arrivals->n && arrivals->latency_s[i] != latency_s)
        i++;
    g_assert(i < G_N_ELEMENTS(arrivals->items));
    if (i == arrivals->n) {
        arrivals->items[arrivals->n] = refit_sim_delay(build, latency_s);
        arrivals->latency_s[arrivals->n++] = latency_s;
    }
    refit_sim_edge(build, flow, arrivals->items[i]);
}

static inline void refit_sim_edge_arrivals(RefitSimBuild *build, const RefitSimArrivals *arrivals,
                                           guint after) {
    for (guint i = 0; i < arrivals->n; i++)
        refit_sim_edge(build, arrivals->items[i], after);
}

/* ---- exchanges ---- */

static inline gboolean refit_sim_is_move(const RefitScheduleExchange *exchange) {
    return exchange->kind == REFIT_EXCHANGE_SEND || exchange->kind == REFIT_EXCHANGE_RECEIVE;
}

/* An event of a step, without kind, peer, bytes and items. */
static inline RefitSimEvent refit_sim_event(const RefitScheduleStep *step, guint rank, guint number,
                                            guint chunk) {
    return (RefitSimEvent){.event = {.rank = rank,
                                     .peer = rank,
                                     .stage = step->stage,
                                     .stream = step->stream,
                                     .number = number,
                                     .chunk = chunk}};
}

/* Of a rank's communicators: that of a stream with messages. */
#define REFIT_SIM_N_COMMS (REFIT_N_LINKS * REFIT_SCHEDULE_COMMS)
static inline guint refit_sim_comm(const RefitSchedule *schedule, const RefitScheduleStep *step) {
    return step->link * REFIT_SCHEDULE_COMMS + schedule->comm_of[step->stream];
}

/* ---- refit-sim-exact.c, refit-sim-merged.c ---- */

gboolean refit_sim_build_exact(RefitSimBuild *build, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_sim_build_merged(RefitSimBuild *build);

/* ---- refit-sim-submit.c ---- */

/* When turns are submitted that nothing holds, in seconds; all NULL when that costs nothing. */
typedef struct {
    double *steps;                          /* per step of the schedule: its first turn */
    double *messages_first, *messages_last; /* per message: its first turn with bytes, and its last
                                             * one, on the later of its ranks */
} RefitSimSubmits;

void refit_sim_submits_init(RefitSimSubmits *submits, const RefitSimBuild *build);
void refit_sim_submits_clear(RefitSimSubmits *submits);

/* Which slices of a message have bytes. */
typedef struct {
    guint slices;
    guint n;                        /* slices that have some */
    guint first;                    /* the first of them; the last slice always has */
    double first_share, last_share; /* of the message's bytes */
} RefitSimSlices;

RefitSimSlices refit_sim_slices(const RefitSchedule *schedule, guint message);

G_END_DECLS
