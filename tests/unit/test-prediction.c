/*
 * Covers model/predict/refit-prediction.h and refit-executor.h with a made-up executor: the wire
 * run has every term off and the pipeline run the profile's; the step waits for installs and the
 * pause; what limits a plan; install, host and pause; events and options; the byte check; errors of
 * each step of an executor reach the caller; the order and the names of events.
 */

#include "model/predict/refit-prediction.h"
#include "plan-cases.h"

#include <string.h>

/* Told through the profile's name, the only free text that reaches an executor. */
#define FAIL_OPEN "fail open"
#define FAIL_PREPARE "fail prepare"
#define FAIL_RUN "fail run"
#define LOSE_BYTES "lose bytes"
#define FASTER "faster with costs"

/* What the executor was told, run by run. */
static struct {
    guint n_opened, n_closed;
    gboolean exact[2];
} told;

typedef struct {
    const RefitProfile *profile;
    const RefitSchedule *schedule;
} Fake;

static gboolean fail_if(const RefitProfile *profile, const char *when, GError **error) {
    if (strcmp(profile->name, when) != 0)
        return FALSE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "told to %s", when);
    return TRUE;
}

static gpointer fake_open(const RefitExecutorConfig *config, GError **error) {
    Fake *fake;

    g_assert_nonnull(config->topology);
    g_assert_null(config->rank);
    if (fail_if(config->profile, FAIL_OPEN, error))
        return NULL;
    told.exact[told.n_opened++ % 2] = config->exact;
    fake = g_new0(Fake, 1);
    fake->profile = config->profile;
    return fake;
}

static void fake_close(gpointer self) {
    told.n_closed += self != NULL ? 1 : 0;
    g_free(self);
}

static gboolean fake_prepare(gpointer self, const RefitExecutorWork *work, GError **error) {
    Fake *fake = self;

    g_assert_null(work->program);
    fake->schedule = work->schedule;
    return !fail_if(fake->profile, FAIL_PREPARE, error);
}

/* Both ends of the messages of an exchange, at `end_s`; and what packs them, which must not count
 * as moved. */
static void report(const Fake *fake, const RefitEvent *event, const RefitScheduleExchange *exchange,
                   RefitEventFunc func, gpointer user_data) {
    static const RefitEventKind kinds[] = {
        [REFIT_EXCHANGE_SEND] = REFIT_EVENT_SEND,
        [REFIT_EXCHANGE_RECEIVE] = REFIT_EVENT_RECEIVE,
        [REFIT_EXCHANGE_COPY] = REFIT_EVENT_COPY,
        [REFIT_EXCHANGE_INSTALL] = REFIT_EVENT_INSTALL,
    };
    RefitEvent moved = *event, pack = *event;

    moved.peer = exchange->peer;
    moved.kind = kinds[exchange->kind];
    moved.bytes = refit_schedule_exchange_bytes(fake->schedule, exchange);
    if (moved.kind == REFIT_EVENT_RECEIVE && event->rank == 4 && event->number == 0 &&
        strcmp(fake->profile->name, LOSE_BYTES) == 0)
        moved.bytes--;
    func(&moved, user_data);
    pack.kind = event->rank % 2 == 0 ? REFIT_EVENT_PACK : REFIT_EVENT_UNPACK;
    pack.peer = event->rank;
    pack.bytes = moved.bytes;
    if (moved.kind != REFIT_EVENT_INSTALL)
        func(&pack, user_data);
}

/*
 * What moves ends after 10 s, and 1, 2, 4 ... s for each term of the profile that is on; installs
 * and the run 16 s later when one of their terms is on.
 */
static gboolean fake_run(gpointer self, RefitEventFunc func, gpointer user_data,
                         RefitRunResult *result_out, GError **error) {
    const Fake *fake = self;
    guint n_ranks = fake->schedule->plan->problem->n_ranks;
    double end_s = 10, install_s = 0;

    if (fail_if(fake->profile, FAIL_RUN, error))
        return FALSE;
    for (guint t = 0; t < REFIT_N_TERMS; t++)
        if (!refit_profile_is_on(fake->profile, t))
            continue;
        else if (t == REFIT_TERM_INSTALL || t == REFIT_TERM_HOST)
            install_s = 16;
        else if (t != REFIT_TERM_PAUSE)
            end_s += strcmp(fake->profile->name, FASTER) == 0 ? -1 : 1 << t;
    for (guint rank = 0; func != NULL && rank < n_ranks; rank++) {
        guint n_steps;
        const RefitScheduleStep *steps = refit_schedule_steps(fake->schedule, rank, &n_steps);

        for (guint i = 0; i < n_steps; i++) {
            const RefitEvent event = {.end_s = steps[i].install ? end_s + install_s : end_s,
                                      .rank = rank,
                                      .stage = steps[i].stage,
                                      .stream = steps[i].stream,
                                      .number = steps[i].number};

            for (guint e = 0; e < steps[i].n_exchanges; e++)
                report(fake, &event, &fake->schedule->exchanges[steps[i].first_exchange + e], func,
                       user_data);
        }
    }
    *result_out =
        (RefitRunResult){.duration_s = end_s + install_s, .n_items = 7, .time_resolution_s = 0.5};
    return TRUE;
}

static const RefitExecutor fake_executor = {
    .name = "fake",
    .summary = "for this test",
    .flags = REFIT_EXECUTOR_PREDICTS,
    .open = fake_open,
    .prepare = fake_prepare,
    .run = fake_run,
    .close = fake_close,
};

typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitPlan *plan;
    RefitSchedule *schedule;
    RefitPrediction prediction;
} Fixture;

/* The worked 8 x 4 case: each of four destinations needs 32 B of one tensor. */
static void fixture_set(Fixture *fixture, RefitPlan *(*plan)(const RefitProblem *),
                        const char *profile_name) {
    g_autoptr(GError) error = NULL;

    memset(&told, 0, sizeof told);
    fixture->refit_case = plan_case_worked();
    fixture->refit_case->profile = g_new0(RefitProfile, 1);
    fixture->refit_case->profile->name = g_strdup(profile_name);
    fixture->problem = plan_case_problem(fixture->refit_case);
    fixture->plan = plan(fixture->problem);
    fixture->schedule = refit_schedule_new(fixture->plan, &error);
    g_assert_no_error(error);
}

static void fixture_clear(Fixture *fixture) {
    refit_schedule_free(fixture->schedule);
    refit_plan_free(fixture->plan);
    refit_problem_free(fixture->problem);
    refit_case_free(fixture->refit_case);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Fixture, fixture_clear)

static void set_term(Fixture *fixture, RefitTerm which, double value) {
    fixture->refit_case->profile->terms[which].value = value;
}

static void predict_with(Fixture *fixture, const RefitPredictionOptions *options) {
    g_autoptr(GError) error = NULL;
    gboolean ok =
        refit_predict(&fake_executor, fixture->schedule, options, &fixture->prediction, &error);

    g_assert_no_error(error);
    g_assert_true(ok);
    g_assert_cmpuint(told.n_closed, ==, told.n_opened);
}

static void predict(Fixture *fixture) {
    predict_with(fixture, NULL);
}

static void test_terms(void) {
    g_auto(Fixture) fixture = {0};

    /* pack is number 2 (+4 s); install delays the end, not the pipeline; pause is switched off. */
    fixture_set(&fixture, plan_case_direct_plan, "plain");
    set_term(&fixture, REFIT_TERM_PACK, 1e9);
    set_term(&fixture, REFIT_TERM_INSTALL, 16);
    set_term(&fixture, REFIT_TERM_PAUSE, 3);
    fixture.refit_case->profile->off[REFIT_TERM_PAUSE] = TRUE;
    predict(&fixture);
    g_assert_cmpuint(told.n_opened, ==, 2);
    g_assert_cmpfloat(fixture.prediction.wire_s, ==, 10);
    g_assert_cmpfloat(fixture.prediction.pipeline_s, ==, 14);
    g_assert_cmpfloat(fixture.prediction.step_s, ==, 30);
    g_assert_cmpfloat(fixture.prediction.pause_s, ==, 0);
    /* The case's own profile is not touched. */
    g_assert_false(fixture.refit_case->profile->off[REFIT_TERM_PACK]);
    g_assert_cmpuint(fixture.prediction.n_items, ==, 7);
    g_assert_cmpfloat(fixture.prediction.time_resolution_s, ==, 0.5);
}

static void test_step(void) {
    g_auto(Fixture) fixture = {0};

    /* Each destination installs 32 B of one tensor: 32 / 16 + 1 x 0.25 s, and 3 s of pause. All of
     * it takes the executor 16 s behind the pipeline. */
    fixture_set(&fixture, plan_case_bucket_plan, "plain");
    set_term(&fixture, REFIT_TERM_INSTALL, 16);
    set_term(&fixture, REFIT_TERM_HOST, 0.25);
    set_term(&fixture, REFIT_TERM_PAUSE, 3);
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.pipeline_s, ==, 10);
    g_assert_cmpfloat(fixture.prediction.install_s, ==, 2);
    g_assert_cmpfloat(fixture.prediction.host_s, ==, 0.25);
    g_assert_cmpfloat(fixture.prediction.pause_s, ==, 3);
    g_assert_cmpfloat(fixture.prediction.step_s, ==, 10 + 16 + 3);
    /* Half of it: 16 s as before, as the executor has it. */
    fixture.refit_case->profile->off[REFIT_TERM_HOST] = TRUE;
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.install_s, ==, 2);
    g_assert_cmpfloat(fixture.prediction.host_s, ==, 0);
    g_assert_cmpfloat(fixture.prediction.step_s, ==, 10 + 16 + 3);
    fixture.refit_case->profile->off[REFIT_TERM_INSTALL] = TRUE;
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.install_s, ==, 0);
    g_assert_cmpfloat(fixture.prediction.pipeline_s, ==, 10);
    g_assert_cmpfloat(fixture.prediction.step_s, ==, 13);
}

/* 10 s on the wire, 9 s with packing: a luckier order, not faster hardware. */
static void test_lucky_order(void) {
    g_auto(Fixture) fixture = {0};

    fixture_set(&fixture, plan_case_direct_plan, FASTER);
    set_term(&fixture, REFIT_TERM_PACK, 1e9);
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.wire_s, ==, 10);
    g_assert_cmpfloat(fixture.prediction.pipeline_s, ==, 10);
    g_assert_cmpfloat(fixture.prediction.step_s, ==, 10);
}

/* Bytes that land in their place need neither a loader nor a copy. */
static void test_in_place(void) {
    g_auto(Fixture) fixture = {0};

    fixture_set(&fixture, plan_case_direct_plan, "plain");
    set_term(&fixture, REFIT_TERM_INSTALL, 16);
    set_term(&fixture, REFIT_TERM_HOST, 0.25);
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.install_s, ==, 0);
    g_assert_cmpfloat(fixture.prediction.host_s, ==, 0);
}

/* ---- events ---- */

static void collect(const RefitEvent *event, gpointer user_data) {
    g_array_append_vals(user_data, event, 1);
}

/*
 * Those of the run with costs, after 14 s, as the executor tells them: the bucket plan has two
 * messages of a gather and a chain of four, each with two ends that are packed or unpacked, and
 * four installs of 32 B.
 */
static void test_events(void) {
    g_auto(Fixture) fixture = {0};
    g_autoptr(GArray) events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    const RefitPredictionOptions exact = {TRUE, collect, events}, silent = {FALSE, NULL, NULL};
    guint n[REFIT_N_EVENT_KINDS] = {0};

    fixture_set(&fixture, plan_case_bucket_plan, "plain");
    set_term(&fixture, REFIT_TERM_PACK, 1e9);
    predict_with(&fixture, &exact);
    g_assert_true(told.exact[0]);
    g_assert_true(told.exact[1]);
    g_assert_cmpuint(events->len, ==, 2 * 12 + 4);
    for (guint i = 0; i < events->len; i++) {
        const RefitEvent *event = &g_array_index(events, RefitEvent, i);

        n[event->kind]++;
        g_assert_cmpfloat(event->end_s, ==, 14);
        if (event->kind == REFIT_EVENT_INSTALL)
            g_assert_cmpuint(event->bytes, ==, 32);
    }
    g_assert_cmpuint(n[REFIT_EVENT_SEND], ==, 6);
    g_assert_cmpuint(n[REFIT_EVENT_RECEIVE], ==, 6);
    g_assert_cmpuint(n[REFIT_EVENT_PACK] + n[REFIT_EVENT_UNPACK], ==, 12);
    g_assert_cmpuint(n[REFIT_EVENT_INSTALL], ==, 4);
    predict_with(&fixture, &silent);
    g_assert_false(told.exact[0]);
    g_assert_false(told.exact[1]);
    g_assert_cmpuint(events->len, ==, 2 * 12 + 4);
    /* Installs are not moved a second time: 2 x 32 B in the gather, 3 x 64 B in the chain. */
    g_assert_cmpuint(fixture.prediction.event_bytes[REFIT_LINK_NETWORK], ==, 64);
    g_assert_cmpuint(fixture.prediction.event_bytes[REFIT_LINK_NVLINK], ==, 64 + 3 * 64);
    g_assert_cmpuint(fixture.prediction.event_bytes[REFIT_LINK_LOCAL], ==, 0);
}

/* By each of its parts, the earlier ones first. */
static void test_event_order(void) {
    static const RefitEvent ascending[] = {
        {.end_s = 0.5, .rank = 9, .stream = 9, .number = 9, .chunk = 9, .kind = 5, .peer = 9},
        {.end_s = 1, .rank = 0, .stream = 9, .number = 9, .chunk = 9, .kind = 5, .peer = 9},
        {.end_s = 1, .rank = 1, .stream = 0, .number = 9, .chunk = 9, .kind = 5, .peer = 9},
        {.end_s = 1, .rank = 1, .stream = 1, .number = 0, .chunk = 9, .kind = 5, .peer = 9},
        {.end_s = 1, .rank = 1, .stream = 1, .number = 1, .chunk = 0, .kind = 5, .peer = 9},
        {.end_s = 1, .rank = 1, .stream = 1, .number = 1, .chunk = 1, .kind = 0, .peer = 9},
        {.end_s = 1, .rank = 1, .stream = 1, .number = 1, .chunk = 1, .kind = 1, .peer = 0},
        {.end_s = 1, .rank = 1, .stream = 1, .number = 1, .chunk = 1, .kind = 1, .peer = 1},
        {.end_s = 1,
         .rank = 1,
         .stream = 1,
         .number = 1,
         .chunk = 1,
         .kind = 1,
         .peer = 4000000000u},
    };

    for (guint a = 0; a < G_N_ELEMENTS(ascending); a++)
        for (guint b = 0; b < G_N_ELEMENTS(ascending); b++) {
            int order = refit_event_compare(&ascending[a], &ascending[b]);

            g_assert_cmpint((order > 0) - (order < 0), ==, (a > b) - (a < b));
        }
}

/* ---- limits ---- */

static void test_limit(void) {
    g_auto(Fixture) direct = {0};
    g_auto(Fixture) worked = {0};

    /* Direct: each source sends 64 B, each destination gets 32 B, over NICs. */
    fixture_set(&direct, plan_case_direct_plan, "plain");
    predict(&direct);
    g_assert_cmpstr(direct.prediction.limited_by, ==, "network out");
    g_assert_cmpuint(direct.prediction.limited_rank, ==, 0);
    g_assert_cmpfloat_with_epsilon(direct.prediction.limited_busy, 64 / 50e9 / 10, 1e-15);
    g_assert_cmpuint(direct.prediction.event_bytes[REFIT_LINK_NETWORK], ==, 128);
    g_assert_cmpuint(direct.prediction.event_bytes[REFIT_LINK_NVLINK], ==, 0);
    /* With NVLink at 1 GB/s the swap of 16 B takes longer than the 32 B out of a NIC. */
    fixture_set(&worked, plan_case_worked_plan, "plain");
    predict(&worked);
    g_assert_cmpstr(worked.prediction.limited_by, ==, "network out");
    worked.refit_case->topology->nvlink_bandwidth.value = 1e9;
    predict(&worked);
    g_assert_cmpstr(worked.prediction.limited_by, ==, "nvlink in");
    g_assert_cmpuint(worked.prediction.limited_rank, ==, 4);
    g_assert_cmpuint(worked.prediction.event_bytes[REFIT_LINK_NVLINK], ==, 64);
}

/* ---- what goes wrong ---- */

static void test_bytes(void) {
    g_auto(Fixture) fixture = {0};
    g_autoptr(GError) error = NULL;

    fixture_set(&fixture, plan_case_direct_plan, LOSE_BYTES);
    fixture.prediction.wire_s = -1;
    g_assert_false(
        refit_predict(&fake_executor, fixture.schedule, NULL, &fixture.prediction, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND);
    g_assert_cmpstr(error->message, ==,
                    "executor fake moved 126 bytes over network, but the plan has 128");
    g_assert_cmpfloat(fixture.prediction.wire_s, ==, -1);
    g_assert_cmpuint(told.n_closed, ==, told.n_opened);
}

static void test_errors(void) {
    static const char *const causes[] = {FAIL_OPEN, FAIL_PREPARE, FAIL_RUN};

    for (guint i = 0; i < G_N_ELEMENTS(causes); i++) {
        g_auto(Fixture) fixture = {0};
        g_autoptr(GError) error = NULL;

        fixture_set(&fixture, plan_case_direct_plan, causes[i]);
        g_assert_false(
            refit_predict(&fake_executor, fixture.schedule, NULL, &fixture.prediction, &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND);
        g_assert_nonnull(strstr(error->message, causes[i]));
        g_assert_cmpuint(told.n_closed, ==, told.n_opened);
    }
}

static void test_kind_names(void) {
    static const char *const names[REFIT_N_EVENT_KINDS] = {"pack",   "send", "receive",
                                                           "unpack", "copy", "install"};

    for (guint kind = 0; kind < REFIT_N_EVENT_KINDS; kind++)
        g_assert_cmpstr(refit_event_kind_name((RefitEventKind)kind), ==, names[kind]);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/prediction/wire-has-all-terms-off-and-pipeline-the-profile", test_terms);
    g_test_add_func("/prediction/step-waits-for-installs-and-the-pause", test_step);
    g_test_add_func("/prediction/pipeline-is-never-below-wire", test_lucky_order);
    g_test_add_func("/prediction/what-lands-in-place-is-not-installed-again", test_in_place);
    g_test_add_func("/prediction/events-of-the-run-with-costs-reach-the-caller", test_events);
    g_test_add_func("/prediction/events-are-in-the-order-of-their-ends", test_event_order);
    g_test_add_func("/prediction/the-busiest-resource-limits", test_limit);
    g_test_add_func("/prediction/lost-bytes-are-an-error", test_bytes);
    g_test_add_func("/prediction/errors-of-the-executor-are-passed-on", test_errors);
    g_test_add_func("/prediction/kinds-of-events-have-names", test_kind_names);
    return g_test_run();
}
