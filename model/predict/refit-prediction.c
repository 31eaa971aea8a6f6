/*
 * Two runs of one plan: with every software cost off (wire) and with the profile's (pipeline). The
 * wire run's events are summed per rank, link class and direction; the busiest of these sums says
 * what limits the plan, and their totals must equal the plan's own. Install, host and pause add to
 * the pipeline time; the first two only for what a destination rank picks out of broadcast buckets,
 * because all else lands in its place. Cost: events plus, per class, the ranks that need it.
 */

#include "model/predict/refit-prediction.h"

typedef struct {
    guint n_ranks;
    guint64 *moved; /* [rank][link][in, out] */
    guint64 total[REFIT_N_LINKS];
} Tally;

static void count_event(const RefitEvent *event, gpointer user_data) {
    Tally *tally = user_data;
    RefitLink link;

    switch (event->activity) {
    case REFIT_ACTIVITY_NETWORK:
        link = REFIT_LINK_NETWORK;
        break;
    case REFIT_ACTIVITY_NVLINK:
        link = REFIT_LINK_NVLINK;
        break;
    case REFIT_ACTIVITY_LOCAL:
        link = REFIT_LINK_LOCAL;
        break;
    default:
        return;
    }
    tally->total[link] += event->bytes;
    tally->moved[((gsize)event->peer * REFIT_N_LINKS + link) * 2] += event->bytes;
    tally->moved[((gsize)event->rank * REFIT_N_LINKS + link) * 2 + 1] += event->bytes;
}

static gboolean run_once(const RefitExecutor *executor, const RefitPlan *plan,
                         const RefitProfile *profile, RefitEventFunc func, gpointer user_data,
                         RefitRunResult *result_out, GError **error) {
    gpointer self = executor->open(plan->problem->refit_case->topology, profile, error);
    gboolean ok = self != NULL && executor->prepare(self, plan, error) &&
                  executor->run(self, func, user_data, result_out, error);

    executor->close(self);
    return ok;
}

static gboolean check_bytes(const RefitExecutor *executor, const RefitPlan *plan,
                            const Tally *tally, GError **error) {
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        if (tally->total[link] != plan->link_bytes[link]) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                        "executor %s moved %" G_GUINT64_FORMAT
                        " bytes over %s, but the plan has %" G_GUINT64_FORMAT,
                        executor->name, tally->total[link], refit_link_name(link),
                        plan->link_bytes[link]);
            return FALSE;
        }
    return TRUE;
}

/* The resource that its bytes keep busy for longest; the first rank on a tie. */
static void find_limit(const RefitTopology *topology, const Tally *tally,
                       RefitPrediction *prediction) {
    const struct {
        const char *name;
        RefitLink link;
        guint direction; /* 0 in, 1 out */
        double bytes_per_s;
    } resources[] = {
        {"network in", REFIT_LINK_NETWORK, 0, topology->nic_bandwidth.value},
        {"network out", REFIT_LINK_NETWORK, 1, topology->nic_bandwidth.value},
        {"nvlink in", REFIT_LINK_NVLINK, 0, topology->nvlink_bandwidth.value},
        {"nvlink out", REFIT_LINK_NVLINK, 1, topology->nvlink_bandwidth.value},
        /* A copy reads and writes. */
        {"local", REFIT_LINK_LOCAL, 0, topology->memory_bandwidth.value / 2},
    };
    double busiest = 0;

    prediction->limited_by = "local";
    prediction->limited_rank = 0;
    for (guint r = 0; r < G_N_ELEMENTS(resources); r++)
        for (guint rank = 0; rank < tally->n_ranks; rank++) {
            gsize entry = ((gsize)rank * REFIT_N_LINKS + resources[r].link) * 2;
            guint64 bytes = tally->moved[entry + resources[r].direction];
            double seconds = bytes > 0 ? (double)bytes / resources[r].bytes_per_s : 0;

            if (seconds > busiest) {
                busiest = seconds;
                prediction->limited_by = resources[r].name;
                prediction->limited_rank = rank;
            }
        }
    prediction->limited_busy = prediction->wire_s > 0 ? MIN(busiest / prediction->wire_s, 1) : 0;
}

/* Which classes reach the destinations in buckets. */
static gboolean *find_bucketed(const RefitPlan *plan) {
    gboolean *bucketed = g_new0(gboolean, MAX(plan->problem->n_classes, 1));

    for (guint i = 0; i < plan->n_obligations; i++)
        if (plan->obligations[i].landing == REFIT_LANDING_BUCKET)
            bucketed[plan->obligations[i].class_index] = TRUE;
    return bucketed;
}

/* install_s and host_s of the destination rank for which their sum is largest. */
static void find_install(const RefitPlan *plan, const RefitProfile *profile,
                         RefitPrediction *prediction) {
    const RefitProblem *problem = plan->problem;
    g_autofree guint64 *bytes = g_new0(guint64, MAX(problem->n_ranks, 1));
    g_autofree guint64 *tensors = g_new0(guint64, MAX(problem->n_ranks, 1));
    g_autofree gboolean *bucketed = find_bucketed(plan);
    g_autofree double *cast = refit_case_cast_ratios(problem->refit_case, FALSE);
    double rate = refit_profile_is_on(profile, REFIT_TERM_INSTALL)
                      ? profile->terms[REFIT_TERM_INSTALL].value
                      : 0;
    double per_tensor =
        refit_profile_is_on(profile, REFIT_TERM_HOST) ? profile->terms[REFIT_TERM_HOST].value : 0;

    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint p = 0; bucketed[c] && p < klass->destination->n_pieces; p++) {
            const RefitPiece *piece = &klass->destination->pieces[p];
            guint64 piece_bytes = refit_class_bytes(klass, refit_region_volume(&piece->region));

            for (guint r = 0; r < piece->n_ranks; r++) {
                bytes[piece->ranks[r]] += piece_bytes * klass->n_members;
                tensors[piece->ranks[r]] += klass->n_members;
            }
        }
    }
    prediction->install_s = prediction->host_s = 0;
    for (guint rank = 0; rank < problem->n_ranks; rank++) {
        /* A copy touches each byte twice, a cast reads one form and writes the other. */
        double touched = (double)bytes[rank] * (cast[rank] > 0 ? (1 + cast[rank]) / 2 : 1);
        double install_s = rate > 0 ? touched / rate : 0;
        double host_s = (double)tensors[rank] * per_tensor;

        if (install_s + host_s > prediction->install_s + prediction->host_s) {
            prediction->install_s = install_s;
            prediction->host_s = host_s;
        }
    }
}

gboolean refit_predict(const RefitExecutor *executor, const RefitPlan *plan,
                       RefitPrediction *prediction_out, GError **error) {
    const RefitCase *refit_case = plan->problem->refit_case;
    guint n_ranks = plan->problem->n_ranks;
    g_autofree guint64 *moved = g_new0(guint64, (gsize)MAX(n_ranks, 1) * REFIT_N_LINKS * 2);
    Tally tally = {.n_ranks = n_ranks, .moved = moved};
    RefitProfile wire_profile = *refit_case->profile;
    RefitRunResult wire, pipeline;
    RefitPrediction prediction = {0};

    for (guint t = 0; t < REFIT_N_TERMS; t++)
        wire_profile.off[t] = TRUE;
    if (!run_once(executor, plan, &wire_profile, count_event, &tally, &wire, error) ||
        !check_bytes(executor, plan, &tally, error) ||
        !run_once(executor, plan, refit_case->profile, NULL, NULL, &pipeline, error))
        return FALSE;
    prediction.wire_s = wire.duration_s;
    /* Extra costs can shift messages to a luckier order; they do not make hardware faster. */
    prediction.pipeline_s = MAX(pipeline.duration_s, wire.duration_s);
    prediction.n_flows = wire.n_flows;
    prediction.time_resolution_s = MAX(wire.time_resolution_s, pipeline.time_resolution_s);
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        prediction.event_bytes[link] = tally.total[link];
    find_limit(refit_case->topology, &tally, &prediction);
    find_install(plan, refit_case->profile, &prediction);
    prediction.pause_s = refit_profile_is_on(refit_case->profile, REFIT_TERM_PAUSE)
                             ? refit_case->profile->terms[REFIT_TERM_PAUSE].value
                             : 0;
    prediction.step_s =
        prediction.pipeline_s + prediction.install_s + prediction.host_s + prediction.pause_s;
    *prediction_out = prediction;
    return TRUE;
}
