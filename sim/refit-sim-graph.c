/*
 * What both ways to make work items of a schedule share: storage, buckets, resolution.
 *
 * Items and edges are collected in any order; edges are then sorted by where they begin, by
 * counting. Buckets are work between batches and not of a rank, so they hold whole batches: each
 * batch has a join of all its steps and a delay before them. Cost: items and edges.
 */

#include "sim/refit-netsim-private.h"
#include "sim/refit-sim-private.h"

/* Up to so many messages every date is kept apart; beyond, dates within this share of the busiest
 * port's time are merged, and within this share of what a mean row of its messages takes: what is
 * merged must be short against the flows that share. Messages of a step go side by side and are one
 * row; in a sliced stage each is one. */
#define EXACT_MESSAGES 3000
#define RESOLUTION_SHARE 0.0005
#define RESOLUTION_OF_ROW 0.06
/* Turn by turn, merging dates keeps ranks out of step that wait for each other in every turn. So it
 * begins with more of them and is finer by this factor. */
#define EXACT_TURNS 200000
#define EXACT_FINER 0.03

/* ---- buckets ---- */

static gboolean has_buckets(const RefitSimBuild *build) {
    const RefitPlan *plan = build->plan;

    for (guint b = 0; build->costs.bucket_s > 0 && b < plan->n_batches; b++)
        if (plan->batches[b].buckets > 0)
            return TRUE;
    return FALSE;
}

/*
 * The bucket term: host work that opens a batch, one batch of a lane after another. When a
 * buffer is free again is a matter of landings, for which the schedule waits. A barrier batch waits
 * for all earlier batches, so its buckets do too. Batches without messages do not count.
 */
static void open_batches(RefitSimBuild *build) {
    const RefitPlan *plan = build->plan;
    g_autofree guint *last = refit_sim_numbers(plan->n_lanes); /* per lane */
    guint all = REFIT_SIM_NONE, n_joined = 0;

    build->opens = refit_sim_numbers(plan->n_batches);
    build->closes = refit_sim_numbers(plan->n_batches);
    if (!has_buckets(build))
        return;
    for (guint64 m = 0; m < plan->n_messages; m++)
        if (build->closes[plan->messages[m].batch] == REFIT_SIM_NONE)
            build->closes[plan->messages[m].batch] = refit_sim_join(build);
    for (guint b = 0; b < plan->n_batches; b++) {
        const RefitBatch *batch = &plan->batches[b];
        guint before = last[batch->lane];

        if (build->closes[b] == REFIT_SIM_NONE || batch->buckets == 0)
            continue;
        last[batch->lane] = b;
        build->opens[b] = refit_sim_delay(build, batch->buckets * build->costs.bucket_s);
        if (before != REFIT_SIM_NONE)
            refit_sim_edge(build, build->opens[before], build->opens[b]);
        if (!batch->barrier)
            continue;
        guint join = refit_sim_join(build);
        refit_sim_edge(build, all, join);
        for (; n_joined < b; n_joined++)
            refit_sim_edge(build, build->closes[n_joined], join);
        all = join;
        refit_sim_edge(build, all, build->opens[b]);
    }
}

/* ---- the whole ---- */

/* Rows of messages of a rank over a link class. */
static guint64 count_rows(const RefitSchedule *schedule, guint rank, RefitLink link) {
    guint64 n = 0;

    for (guint s = schedule->step_offsets[rank]; s < schedule->step_offsets[rank + 1]; s++) {
        const RefitScheduleStep *step = &schedule->steps[s];

        for (guint e = 0; step->link == link && step->n_numbers > 1 && e < step->n_exchanges; e++)
            n += schedule->exchanges[step->first_exchange + e].n_messages;
        n += step->link == link && step->n_numbers == 1 ? 1 : 0;
    }
    return n;
}

/*
 * Shares of what the busiest port needs for its bytes, and for one of its rows; exact in small
 * plans.
 */
static double choose_resolution(const RefitSimBuild *build) {
    const RefitPlan *plan = build->plan;
    double busiest_s = 0, resolution_s;
    RefitLink busiest_link = REFIT_LINK_NETWORK;
    guint busiest = 0;
    guint64 n_rows;

    if (plan->n_messages <= EXACT_MESSAGES)
        return 0;
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++)
        for (guint link = REFIT_LINK_NVLINK; link < REFIT_N_LINKS; link++) {
            const RefitRankAccount *account = &plan->accounts[rank];
            double seconds = (double)MAX(account->in[link], account->out[link]) /
                             refit_sim_bandwidth(build->costs.topology, (RefitLink)link);

            if (seconds > busiest_s) {
                busiest = rank;
                busiest_link = (RefitLink)link;
                busiest_s = seconds;
            }
        }
    resolution_s = RESOLUTION_SHARE * busiest_s;
    n_rows = count_rows(build->schedule, busiest, busiest_link);
    if (n_rows > 0)
        resolution_s = MIN(resolution_s, RESOLUTION_OF_ROW * busiest_s / (double)n_rows);
    return resolution_s;
}

static gpointer large(gsize n_bytes) {
    gpointer memory = g_malloc(MAX(n_bytes, 1));

    refit_netsim_advise(memory, n_bytes);
    return memory;
}

static gboolean finish(RefitSimBuild *build, GError **error) {
    RefitSimGraph *out = build->out;
    guint n = out->items->len;
    const RefitSimEdge *edges = (gpointer)build->edges->data;

    if (n >= REFIT_NETSIM_ON_START) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                    "the simulation would have %u items, but at most %u are possible; use fewer "
                    "batches",
                    n, REFIT_NETSIM_ON_START - 1);
        return FALSE;
    }
    out->offsets = g_new0(guint64, (gsize)n + 2);
    out->successors = large(build->edges->len * sizeof *out->successors);
    out->lags_s = large(build->edges->len * sizeof *out->lags_s);
    for (guint e = 0; e < build->edges->len; e++)
        out->offsets[edges[e].before + 2]++;
    for (guint i = 2; i < n + 2; i++)
        out->offsets[i] += out->offsets[i - 1];
    for (guint e = 0; e < build->edges->len; e++) {
        guint64 place = out->offsets[edges[e].before + 1]++;

        out->successors[place] = edges[e].after;
        out->lags_s[place] = edges[e].lag_s;
    }
    out->graph = (RefitNetsimGraph){.n_items = n,
                                    .items = (gpointer)out->items->data,
                                    .successor_offsets = out->offsets,
                                    .successors = out->successors,
                                    .lags_s = out->lags_s};
    return TRUE;
}

RefitSimGraph *refit_sim_graph_new(const RefitExecutorConfig *config, const RefitSchedule *schedule,
                                   GError **error) {
    g_autoptr(RefitSimGraph) out = g_new0(RefitSimGraph, 1);
    RefitSimBuild build = {.schedule = schedule,
                           .plan = schedule->plan,
                           .out = out,
                           .times_only = config->times_only,
                           .root = REFIT_SIM_NONE};
    gboolean made = TRUE;

    out->items = g_array_new(FALSE, FALSE, sizeof(RefitNetsimItem));
    out->events = g_array_new(FALSE, FALSE, sizeof(RefitSimEvent));
    build.edges = g_array_new(FALSE, FALSE, sizeof(RefitSimEdge));
    refit_sim_costs_init(&build.costs, config->topology, config->profile, schedule);
    open_batches(&build);
    if (config->exact) {
        made = refit_sim_build_exact(&build, error);
        if (out->n_parts > EXACT_TURNS)
            out->resolution_s = EXACT_FINER * choose_resolution(&build);
    } else {
        refit_sim_build_merged(&build);
        out->resolution_s = choose_resolution(&build);
    }
    made = made && finish(&build, error);
    g_array_unref(build.edges);
    g_free(build.opens);
    g_free(build.closes);
    refit_sim_costs_clear(&build.costs);
    return made ? g_steal_pointer(&out) : NULL;
}

void refit_sim_graph_free(RefitSimGraph *graph) {
    if (graph == NULL)
        return;
    g_array_unref(graph->items);
    g_array_unref(graph->events);
    g_free(graph->offsets);
    g_free(graph->successors);
    g_free(graph->lags_s);
    g_free(graph);
}
