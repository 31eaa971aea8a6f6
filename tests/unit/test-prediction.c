/*
 * Covers model/predict/refit-prediction.h and refit-executor.h with a made-up executor: the wire
 * run has every term off and the pipeline run the profile's; what limits a plan; install, host and
 * pause; the byte check; errors of each step of an executor reach the caller.
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

typedef struct {
    const RefitProfile *profile;
    const RefitPlan *plan;
} Fake;

static gboolean fail_if(const RefitProfile *profile, const char *when, GError **error) {
    if (strcmp(profile->name, when) != 0)
        return FALSE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "told to %s", when);
    return TRUE;
}

static gpointer fake_open(const RefitTopology *topology G_GNUC_UNUSED, const RefitProfile *profile,
                          GError **error) {
    Fake *fake;

    if (fail_if(profile, FAIL_OPEN, error))
        return NULL;
    fake = g_new0(Fake, 1);
    fake->profile = profile;
    return fake;
}

static gboolean fake_prepare(gpointer self, const RefitPlan *plan, GError **error) {
    Fake *fake = self;

    fake->plan = plan;
    return !fail_if(fake->profile, FAIL_PREPARE, error);
}

/* 10 s, and 1, 2, 4 ... s for each term of the profile that is on; reports a pack that must not
 * count as moved. */
static gboolean fake_run(gpointer self, RefitEventFunc func, gpointer user_data,
                         RefitRunResult *result_out, GError **error) {
    static const RefitActivity activities[] = {REFIT_ACTIVITY_LOCAL, REFIT_ACTIVITY_NVLINK,
                                               REFIT_ACTIVITY_NETWORK};
    const Fake *fake = self;

    if (fail_if(fake->profile, FAIL_RUN, error))
        return FALSE;
    for (guint64 m = 0; func != NULL && m < fake->plan->n_messages; m++) {
        const RefitPair *pair = &fake->plan->pairs[fake->plan->messages[m].pair];
        RefitEvent event = {.rank = pair->src,
                            .peer = pair->dst,
                            .activity = activities[pair->link],
                            .bytes = fake->plan->messages[m].bytes};
        RefitEvent pack = event;

        if (m == 0 && strcmp(fake->profile->name, LOSE_BYTES) == 0)
            event.bytes--;
        func(&event, user_data);
        pack.activity = REFIT_ACTIVITY_PACK;
        func(&pack, user_data);
    }
    *result_out = (RefitRunResult){.duration_s = 10, .n_flows = 7, .time_resolution_s = 0.5};
    for (guint t = 0; t < REFIT_N_TERMS; t++)
        if (refit_profile_is_on(fake->profile, t))
            result_out->duration_s += strcmp(fake->profile->name, FASTER) == 0 ? -1 : 1 << t;
    return TRUE;
}

static const RefitExecutor fake_executor = {
    .name = "fake",
    .summary = "for this test",
    .flags = REFIT_EXECUTOR_PREDICTS,
    .open = fake_open,
    .prepare = fake_prepare,
    .run = fake_run,
    .close = g_free,
};

typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitPlan *plan;
    RefitPrediction prediction;
} Fixture;

/* The worked 8 x 4 case: each of four destinations needs 32 B of one tensor. */
static void fixture_set(Fixture *fixture, RefitPlan *(*plan)(const RefitProblem *),
                        const char *profile_name) {
    fixture->refit_case = plan_case_worked();
    fixture->refit_case->profile = g_new0(RefitProfile, 1);
    fixture->refit_case->profile->name = g_strdup(profile_name);
    fixture->problem = plan_case_problem(fixture->refit_case);
    fixture->plan = plan(fixture->problem);
}

static void fixture_clear(Fixture *fixture) {
    refit_plan_free(fixture->plan);
    refit_problem_free(fixture->problem);
    refit_case_free(fixture->refit_case);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Fixture, fixture_clear)

static void set_term(Fixture *fixture, RefitTerm which, double value) {
    fixture->refit_case->profile->terms[which].value = value;
}

static void predict(Fixture *fixture) {
    g_autoptr(GError) error = NULL;
    gboolean ok = refit_predict(&fake_executor, fixture->plan, &fixture->prediction, &error);

    g_assert_no_error(error);
    g_assert_true(ok);
}

static void test_terms(void) {
    g_auto(Fixture) fixture = {0};

    /* pack is number 2 (+4 s), install 6 (+64 s); pause (7) is on, but switched off. */
    fixture_set(&fixture, plan_case_direct_plan, "plain");
    set_term(&fixture, REFIT_TERM_PACK, 1e9);
    set_term(&fixture, REFIT_TERM_INSTALL, 16);
    set_term(&fixture, REFIT_TERM_PAUSE, 3);
    fixture.refit_case->profile->off[REFIT_TERM_PAUSE] = TRUE;
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.wire_s, ==, 10);
    g_assert_cmpfloat(fixture.prediction.pipeline_s, ==,
                      10 + (1 << REFIT_TERM_PACK) + (1 << REFIT_TERM_INSTALL));
    g_assert_cmpfloat(fixture.prediction.pause_s, ==, 0);
    /* The case's own profile is not touched. */
    g_assert_false(fixture.refit_case->profile->off[REFIT_TERM_PACK]);
    g_assert_cmpuint(fixture.prediction.n_flows, ==, 7);
    g_assert_cmpfloat(fixture.prediction.time_resolution_s, ==, 0.5);
}

static void test_step(void) {
    g_auto(Fixture) fixture = {0};

    /* Each destination installs 32 B of one tensor: 32 / 16 + 1 x 0.25 s, and 3 s of pause. */
    fixture_set(&fixture, plan_case_bucket_plan, "plain");
    set_term(&fixture, REFIT_TERM_INSTALL, 16);
    set_term(&fixture, REFIT_TERM_HOST, 0.25);
    set_term(&fixture, REFIT_TERM_PAUSE, 3);
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.install_s, ==, 2);
    g_assert_cmpfloat(fixture.prediction.host_s, ==, 0.25);
    g_assert_cmpfloat(fixture.prediction.pause_s, ==, 3);
    g_assert_cmpfloat(fixture.prediction.step_s, ==, fixture.prediction.pipeline_s + 5.25);
    fixture.refit_case->profile->off[REFIT_TERM_INSTALL] = TRUE;
    fixture.refit_case->profile->off[REFIT_TERM_HOST] = TRUE;
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.install_s, ==, 0);
    g_assert_cmpfloat(fixture.prediction.step_s, ==, fixture.prediction.pipeline_s + 3);
}

/* 10 s on the wire, 9 s with packing: a luckier order, not faster hardware. */
static void test_lucky_order(void) {
    g_auto(Fixture) fixture = {0};

    fixture_set(&fixture, plan_case_direct_plan, FASTER);
    set_term(&fixture, REFIT_TERM_PACK, 1e9);
    predict(&fixture);
    g_assert_cmpfloat(fixture.prediction.wire_s, ==, 10);
    g_assert_cmpfloat(fixture.prediction.pipeline_s, ==, 10);
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
    g_assert_cmpfloat(fixture.prediction.step_s, ==, fixture.prediction.pipeline_s);
}

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

static void test_bytes(void) {
    g_auto(Fixture) fixture = {0};
    g_autoptr(GError) error = NULL;

    fixture_set(&fixture, plan_case_direct_plan, LOSE_BYTES);
    fixture.prediction.wire_s = -1;
    g_assert_false(refit_predict(&fake_executor, fixture.plan, &fixture.prediction, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND);
    g_assert_cmpstr(error->message, ==,
                    "executor fake moved 127 bytes over network, but the plan has 128");
    g_assert_cmpfloat(fixture.prediction.wire_s, ==, -1);
}

static void test_errors(void) {
    static const char *const causes[] = {FAIL_OPEN, FAIL_PREPARE, FAIL_RUN};

    for (guint i = 0; i < G_N_ELEMENTS(causes); i++) {
        g_auto(Fixture) fixture = {0};
        g_autoptr(GError) error = NULL;

        fixture_set(&fixture, plan_case_direct_plan, causes[i]);
        g_assert_false(refit_predict(&fake_executor, fixture.plan, &fixture.prediction, &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND);
        g_assert_nonnull(strstr(error->message, causes[i]));
    }
}

static void test_activity_names(void) {
    g_assert_cmpstr(refit_activity_name(REFIT_ACTIVITY_NETWORK), ==, "network");
    g_assert_cmpstr(refit_activity_name(REFIT_ACTIVITY_NVLINK), ==, "nvlink");
    g_assert_cmpstr(refit_activity_name(REFIT_ACTIVITY_LOCAL), ==, "local");
    g_assert_cmpstr(refit_activity_name(REFIT_ACTIVITY_PACK), ==, "pack");
    g_assert_cmpstr(refit_activity_name(REFIT_ACTIVITY_UNPACK), ==, "unpack");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/prediction/wire-has-all-terms-off-and-pipeline-the-profile", test_terms);
    g_test_add_func("/prediction/step-adds-install-host-and-pause", test_step);
    g_test_add_func("/prediction/pipeline-is-never-below-wire", test_lucky_order);
    g_test_add_func("/prediction/what-lands-in-place-is-not-installed-again", test_in_place);
    g_test_add_func("/prediction/the-busiest-resource-limits", test_limit);
    g_test_add_func("/prediction/lost-bytes-are-an-error", test_bytes);
    g_test_add_func("/prediction/errors-of-the-executor-are-passed-on", test_errors);
    g_test_add_func("/prediction/activities-have-names", test_activity_names);
    return g_test_run();
}
