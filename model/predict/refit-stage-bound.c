/*
 * Bytes through each port per stage, summed over the exchanges of the schedule, and the busiest of
 * them. Both ends of a message have an exchange, so in and out are counted where they happen. Cost:
 * exchanges and their messages; stages x ranks.
 */

#include "model/predict/refit-stage-bound.h"

enum { IN, OUT, N_DIRECTIONS };

double refit_busiest_port(const RefitTopology *topology, const guint64 *moved, guint n_ranks,
                          const char **name_out, guint *rank_out) {
    const struct {
        const char *name;
        RefitLink link;
        guint direction;
        double bytes_per_s;
    } ports[] = {
        {"network in", REFIT_LINK_NETWORK, IN, topology->nic_bandwidth.value},
        {"network out", REFIT_LINK_NETWORK, OUT, topology->nic_bandwidth.value},
        {"nvlink in", REFIT_LINK_NVLINK, IN, topology->nvlink_bandwidth.value},
        {"nvlink out", REFIT_LINK_NVLINK, OUT, topology->nvlink_bandwidth.value},
        /* A copy reads and writes. */
        {"local", REFIT_LINK_LOCAL, IN, topology->memory_bandwidth.value / 2},
    };
    double busiest = 0;

    *name_out = "local";
    *rank_out = 0;
    for (guint p = 0; p < G_N_ELEMENTS(ports); p++)
        for (guint rank = 0; rank < n_ranks; rank++) {
            gsize entry = ((gsize)rank * REFIT_N_LINKS + ports[p].link) * N_DIRECTIONS;
            guint64 bytes = moved[entry + ports[p].direction];
            double seconds = bytes > 0 ? (double)bytes / ports[p].bytes_per_s : 0;

            if (seconds > busiest) {
                busiest = seconds;
                *name_out = ports[p].name;
                *rank_out = rank;
            }
        }
    return busiest;
}

static void count_step(const RefitSchedule *schedule, const RefitScheduleStep *step,
                       guint64 *moved) {
    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];
        guint64 bytes = exchange->kind != REFIT_EXCHANGE_INSTALL
                            ? refit_schedule_exchange_bytes(schedule, exchange)
                            : 0;

        moved[IN] += exchange->kind != REFIT_EXCHANGE_SEND ? bytes : 0;
        moved[OUT] += exchange->kind != REFIT_EXCHANGE_RECEIVE ? bytes : 0;
    }
}

static RefitStageBound find_bound(const RefitTopology *topology, const guint64 *moved,
                                  guint n_ranks) {
    RefitStageBound bound = {0};

    bound.time_s =
        refit_busiest_port(topology, moved, n_ranks, &bound.limited_by, &bound.limited_rank);
    for (gsize i = 0; i < (gsize)n_ranks * REFIT_N_LINKS; i++)
        bound.bytes += moved[i * N_DIRECTIONS + IN];
    return bound;
}

RefitStageBound *refit_stage_bounds(const RefitSchedule *schedule) {
    const RefitPlan *plan = schedule->plan;
    const RefitTopology *topology = plan->problem->refit_case->topology;
    const guint n_ranks = plan->problem->n_ranks;
    const gsize per_stage = (gsize)n_ranks * REFIT_N_LINKS * N_DIRECTIONS;
    g_autofree guint64 *moved = g_new0(guint64, MAX(per_stage * (plan->n_stages + 1), 1));
    guint64 *all = moved + per_stage * plan->n_stages;
    RefitStageBound *bounds = g_new0(RefitStageBound, plan->n_stages + 1);

    for (guint rank = 0; rank < n_ranks; rank++) {
        guint n_steps;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);

        for (guint s = 0; s < n_steps; s++) {
            gsize port = ((gsize)rank * REFIT_N_LINKS + steps[s].link) * N_DIRECTIONS;

            count_step(schedule, &steps[s], moved + per_stage * steps[s].stage + port);
            count_step(schedule, &steps[s], all + port);
        }
    }
    for (guint s = 0; s <= plan->n_stages; s++)
        bounds[s] = find_bound(topology, moved + per_stage * s, n_ranks);
    return bounds;
}
