/*
 * Covers model/predict/refit-stage-bound.h: bytes and busiest ports of stages, against sums by hand
 * over small plans.
 */

#include "model/predict/refit-stage-bound.h"
#include "plan-cases.h"

#define NIC 50e9
#define NVLINK 450e9

typedef struct {
    guint64 bytes;
    double time_s;
    const char *limited_by;
    guint limited_rank;
} Expected;

static void check(const RefitStageBound *bound, const Expected *expected) {
    g_assert_cmpuint(bound->bytes, ==, expected->bytes);
    g_assert_cmpfloat_with_epsilon(bound->time_s, expected->time_s,
                                   1e-9 * expected->time_s + 1e-30);
    g_assert_cmpstr(bound->limited_by, ==, expected->limited_by);
    g_assert_cmpuint(bound->limited_rank, ==, expected->limited_rank);
}

/* The stages of a plan of the worked case, and all of them. */
static void check_plan(RefitPlan *(*make)(const RefitProblem *), const Expected *expected,
                       guint n_stages) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = plan_case_worked();
    RefitProblem *problem = plan_case_problem(refit_case);
    RefitPlan *plan = make(problem);
    RefitSchedule *schedule = refit_schedule_new(plan, &error);
    RefitStageBound *bounds;

    g_assert_no_error(error);
    g_assert_cmpuint(plan->n_stages, ==, n_stages);
    bounds = refit_stage_bounds(schedule);
    for (guint s = 0; s <= n_stages; s++)
        check(&bounds[s], &expected[s]);
    g_free(bounds);
    refit_schedule_free(schedule);
    refit_plan_free(plan);
    refit_problem_free(problem);
    refit_case_free(refit_case);
}

static void test_two_links(void) {
    static const Expected expected[] = {
        /* Two sources send 2 x 16 B each; each of four destinations takes 16 B. */
        {64, 32 / NIC, "network out", 0},
        /* Four destinations send 16 B and take 16 B: the way in is named first. */
        {64, 16 / NVLINK, "nvlink in", 4},
        {128, 32 / NIC, "network out", 0},
    };

    check_plan(plan_case_worked_plan, expected, 2);
}

static void test_relays(void) {
    static const Expected expected[] = {
        {64, 32 / NVLINK, "nvlink in", 2},
        /* A relay sends 4 x 16 B. */
        {128, 64 / NIC, "network out", 2},
        {192, 64 / NIC, "network out", 2},
    };

    check_plan(plan_case_relay_plan, expected, 2);
}

static void test_installs(void) {
    static const Expected expected[] = {
        {64, 32 / NVLINK, "nvlink in", 0},
        /* 64 B into the second domain, three hops in it; what is installed then does not count. */
        {256, 64 / NIC, "network in", 4},
        {320, 64 / NIC, "network in", 4},
    };

    check_plan(plan_case_bucket_plan, expected, 2);
}

static RefitPlan *plan_copies(const RefitProblem *problem) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint copy = refit_plan_builder_add_stage(builder, "copy", 1);

    refit_plan_builder_add_stage(builder, "nothing", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    plan_case_add(builder, 0, "0:4,0:4", 1, 1, copy, REFIT_LANDING_HOME, NULL, 0);
    return plan_case_finish(builder);
}

static void test_copies(void) {
    g_autoptr(GError) error = NULL;
    RefitTopology *topology = refit_topology_parse_line(WORKED_TOPOLOGY, &error);
    const double memory = topology->memory_bandwidth.value;
    const Expected expected[] = {
        {32, 2 * 32 / memory, "local", 1},
        {0, 0, "local", 0},
        {32, 2 * 32 / memory, "local", 1},
    };

    g_assert_cmpfloat(memory, >, 0);
    check_plan(plan_copies, expected, 2);
    refit_topology_free(topology);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/stage-bound/the-busiest-port-of-each-link-class-counts", test_two_links);
    g_test_add_func("/stage-bound/a-relay-counts-each-hop", test_relays);
    g_test_add_func("/stage-bound/installs-are-not-counted", test_installs);
    g_test_add_func("/stage-bound/copies-read-and-write", test_copies);
    return g_test_run();
}
