#pragma once

/*
 * Least times of the stages of a schedule. A stage takes no less than its busiest port needs for
 * what the stage moves through it: bytes in or out of one rank over one link class, divided by the
 * bandwidth that the topology states. Local copies read and write, so they have half of the
 * memory's. Installs are not counted: they move what has arrived already, beside other stages.
 *
 * A stage that waits for another, or shares ports with it, takes longer; so does one with latency,
 * packing or an oversubscribed fabric. A measured stage close to its bound keeps that port busy.
 */

#include "model/schedule/refit-schedule.h"

G_BEGIN_DECLS

typedef struct {
    guint64 bytes; /* moved over all link classes, each byte once per hop */
    double time_s; /* 0: nothing moves */
    /* The busiest port: "network in", "network out", "nvlink in", "nvlink out" or "local"; static
     * string. The first of equals, and its first rank. */
    const char *limited_by;
    guint limited_rank;
} RefitStageBound;

/* One per stage of the plan, and behind them one of all stages together. Free with g_free(). Cost:
 * exchanges and their messages; stages x ranks. */
RefitStageBound *refit_stage_bounds(const RefitSchedule *schedule);

/*
 * The port that `moved`, bytes by [rank][link][in, out], keeps busy for longest, and for how long;
 * for the bounds above and for refit_predict().
 */
double refit_busiest_port(const RefitTopology *topology, const guint64 *moved, guint n_ranks,
                          const char **name_out, guint *rank_out);

G_END_DECLS
