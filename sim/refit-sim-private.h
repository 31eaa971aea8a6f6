#pragma once

/* Shared by the files that make graphs; not for other modules. */

#include "sim/refit-sim-costs.h"
#include "sim/refit-sim-graph.h"

G_BEGIN_DECLS

typedef struct {
    guint before, after; /* items; `after` possibly with REFIT_NETSIM_ON_START */
    double lag_s;
} RefitSimEdge;

typedef struct {
    const RefitSchedule *schedule;
    const RefitPlan *plan;
    RefitSimCosts costs;
    RefitSimGraph *out;
    gboolean times_only; /* no events */
    GArray *edges;       /* RefitSimEdge */
    guint root;          /* done when the run begins; REFIT_SIM_NONE: nobody needs it yet */
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

/* `after` comes so long after `before`. Nothing, when `before` is REFIT_SIM_NONE. */
static inline void refit_sim_edge_after(RefitSimBuild *build, guint before, double lag_s,
                                        guint after) {
    const RefitSimEdge edge = {before, after, lag_s};

    if (before != REFIT_SIM_NONE)
        g_array_append_vals(build->edges, &edge, 1);
}

static inline void refit_sim_edge(RefitSimBuild *build, guint before, guint after) {
    refit_sim_edge_after(build, before, 0, after);
}

/* `after` does not come before this time of the run. */
static inline void refit_sim_date(RefitSimBuild *build, double seconds, guint after) {
    if (build->root == REFIT_SIM_NONE)
        build->root = refit_sim_join(build);
    refit_sim_edge_after(build, build->root, seconds, after);
}

static inline guint *refit_sim_numbers(gsize n) {
    guint *numbers = g_new(guint, MAX(n, 1));

    for (gsize i = 0; i < n; i++)
        numbers[i] = REFIT_SIM_NONE;
    return numbers;
}

/* ---- exchanges ---- */

static inline gboolean refit_sim_is_move(const RefitScheduleExchange *exchange) {
    return exchange->kind == REFIT_EXCHANGE_SEND || exchange->kind == REFIT_EXCHANGE_RECEIVE;
}

static inline void refit_sim_add_event(RefitSimBuild *build, const RefitSimEvent *event) {
    if (!build->times_only)
        g_array_append_vals(build->out->events, event, 1);
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
