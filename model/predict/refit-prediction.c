/*
 * Two runs of one schedule: with every software cost off (wire) and with the profile's (pipeline
 * and step). Events are asked of the second only. They are summed per rank, link class and
 * direction; the busiest of these sums says what limits the plan, and their totals must equal the
 * plan's own. Cost: events, and the installs of the schedule.
 */

#include "model/predict/refit-prediction.h"

#include "model/predict/refit-stage-bound.h"

typedef struct {
    guint n_ranks;
    guint64 *moved; /* [rank][link][in, out] */
    guint64 total[REFIT_N_LINKS];
    double pipeline_s; /* last end of what is not an install */
    const RefitPredictionOptions *options;
} Tally;

static void count_event(const RefitEvent *event, gpointer user_data) {
    Tally *tally = user_data;
    guint link = event->stream % REFIT_N_LINKS; /* see refit_schedule_stream() */
    guint64 *moved = tally->moved + ((gsize)event->rank * REFIT_N_LINKS + link) * 2;
    gboolean in = event->kind == REFIT_EVENT_RECEIVE || event->kind == REFIT_EVENT_COPY;
    gboolean out = event->kind == REFIT_EVENT_SEND || event->kind == REFIT_EVENT_COPY;

    moved[0] += in ? event->bytes : 0;
    moved[1] += out ? event->bytes : 0;
    tally->total[link] += in ? event->bytes : 0;
    if (event->kind != REFIT_EVENT_INSTALL)
        tally->pipeline_s = MAX(tally->pipeline_s, event->end_s);
    if (tally->options != NULL && tally->options->func != NULL)
        tally->options->func(event, tally->options->user_data);
}

static gboolean run_once(const RefitExecutor *executor, const RefitSchedule *schedule,
                         const RefitProfile *profile, gboolean exact, RefitEventFunc func,
                         gpointer user_data, RefitRunResult *result_out, GError **error) {
    const RefitExecutorConfig config = {.topology = schedule->plan->problem->refit_case->topology,
                                        .profile = profile,
                                        .exact = exact,
                                        .times_only = func == NULL};
    const RefitExecutorWork work = {.schedule = schedule};
    gpointer self = executor->open(&config, error);
    gboolean ok = self != NULL && executor->prepare(self, &work, error) &&
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

double refit_cast_bytes(double bytes, double cast) {
    return cast > 0 ? bytes * (1 + cast) / 2 : bytes;
}

/* The port that its bytes keep busy for longest. */
static void find_limit(const RefitTopology *topology, const Tally *tally,
                       RefitPrediction *prediction) {
    double busy_s = refit_busiest_port(topology, tally->moved, tally->n_ranks,
                                       &prediction->limited_by, &prediction->limited_rank);

    prediction->limited_busy = prediction->wire_s > 0 ? MIN(busy_s / prediction->wire_s, 1) : 0;
}

double refit_install_copy_s(const RefitProfile *profile, double cast,
                            const RefitScheduleInstall *install) {
    double bytes_per_s = refit_profile_value(profile, REFIT_TERM_INSTALL);

    return bytes_per_s > 0 ? refit_cast_bytes((double)install->bytes, cast) / bytes_per_s : 0;
}

double refit_install_host_s(const RefitProfile *profile, const RefitScheduleInstall *install) {
    return (double)install->tensors * refit_profile_value(profile, REFIT_TERM_HOST);
}

/* install_s and host_s of the rank for which their sum is largest. */
static void find_install(const RefitSchedule *schedule, const RefitProfile *profile,
                         RefitPrediction *prediction) {
    const RefitProblem *problem = schedule->plan->problem;
    g_autofree double *cast = refit_case_cast_ratios(problem->refit_case, FALSE);

    prediction->install_s = prediction->host_s = 0;
    for (guint rank = 0; rank < problem->n_ranks; rank++) {
        RefitScheduleInstall sum = {0};
        guint n_steps;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);

        for (guint i = 0; i < n_steps; i++) {
            const RefitScheduleInstall *install;

            if (steps[i].install == 0)
                continue;
            install = &schedule->installs[schedule->exchanges[steps[i].first_exchange].first];
            sum.bytes += install->bytes;
            sum.tensors += install->tensors;
        }
        double install_s = refit_install_copy_s(profile, cast[rank], &sum);
        double host_s = refit_install_host_s(profile, &sum);

        if (install_s + host_s > prediction->install_s + prediction->host_s) {
            prediction->install_s = install_s;
            prediction->host_s = host_s;
        }
    }
}

gboolean refit_predict(const RefitExecutor *executor, const RefitSchedule *schedule,
                       const RefitPredictionOptions *options, RefitPrediction *prediction_out,
                       GError **error) {
    const RefitPlan *plan = schedule->plan;
    const RefitCase *refit_case = plan->problem->refit_case;
    guint n_ranks = plan->problem->n_ranks;
    gboolean exact = options != NULL && options->exact;
    g_autofree guint64 *moved = g_new0(guint64, (gsize)MAX(n_ranks, 1) * REFIT_N_LINKS * 2);
    Tally tally = {.n_ranks = n_ranks, .moved = moved, .options = options};
    RefitProfile wire_profile = *refit_case->profile;
    RefitRunResult wire, pipeline;
    RefitPrediction prediction = {0};

    for (guint t = 0; t < REFIT_N_TERMS; t++)
        wire_profile.off[t] = TRUE;
    if (!run_once(executor, schedule, &wire_profile, exact, NULL, NULL, &wire, error) ||
        !run_once(executor, schedule, refit_case->profile, exact, count_event, &tally, &pipeline,
                  error) ||
        !check_bytes(executor, plan, &tally, error))
        return FALSE;
    prediction.wire_s = wire.duration_s;
    /* Extra costs can shift messages to a luckier order; they do not make hardware faster. */
    prediction.pipeline_s = MAX(tally.pipeline_s, wire.duration_s);
    prediction.n_items = wire.n_items;
    prediction.time_resolution_s = MAX(wire.time_resolution_s, pipeline.time_resolution_s);
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        prediction.event_bytes[link] = tally.total[link];
    find_limit(refit_case->topology, &tally, &prediction);
    find_install(schedule, refit_case->profile, &prediction);
    prediction.pause_s = refit_profile_value(refit_case->profile, REFIT_TERM_PAUSE);
    prediction.step_s = MAX(prediction.pipeline_s, pipeline.duration_s) + prediction.pause_s;
    *prediction_out = prediction;
    return TRUE;
}
