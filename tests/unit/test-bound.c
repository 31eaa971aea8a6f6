/*
 * Lower limits by hand: the worked example, each limit as the largest in turn, data that a domain
 * or a rank already holds, source sets that alone hold some bytes, nothing to move; the published
 * DeepSeek-V3 cases; no strategy moves fewer network bytes than the bound.
 */

#include "model/problem/refit-bound.h"
#include "model/strategy/refit-strategy.h"
#include "plan-cases.h"

static RefitBound compute(const RefitProblem *problem) {
    g_autoptr(GError) error = NULL;
    RefitBound bound;
    gboolean good = refit_bound_compute(problem, &bound, &error);
    g_assert_no_error(error);
    g_assert_true(good);
    return bound;
}

static void assert_seconds(double seen, double expected) {
    g_assert_cmpfloat_with_epsilon(seen, expected, expected * 1e-12 + 1e-30);
}

static void test_worked(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    RefitBound bound = compute(problem);
    g_assert_cmpuint(bound.network_bytes, ==, 64);
    assert_seconds(bound.ingress_s, 64 / (4 * 50e9));
    /* Both holders sit in one domain of four, whose NICs can all help. */
    assert_seconds(bound.egress_s, 64 / (4 * 50e9));
    assert_seconds(bound.receive_s, 32 / 500e9);
    assert_seconds(bound.time_s, bound.ingress_s);
    g_assert_cmpstr(bound.limited_by, ==, "network in");
}

/* A vector of 1000 BF16 elements (2000 B) under different layouts. */
typedef struct {
    const char *what, *topology;
    guint n_source, n_destination;
    const char *source, *destination; /* placements of the one rule */
    guint64 network_bytes;
    double ingress_s, egress_s, receive_s, memory_s;
    const char *limited_by;
} Example;

static const Example examples[] = {
    {"two domains of two take a copy each", "node:3 gpu:2 nvlink:100GBps nic:10GBps hbm:1000GBps",
     2, 4, "replicate", "replicate", 4000, 2000 / 20e9, 2000 / 20e9, 2000 / 110e9, 2000 / 1e12,
     "network in"},
    {"sharded needs: each domain needs half", "node:3 gpu:2 nvlink:100GBps nic:10GBps hbm:1000GBps",
     2, 4, "replicate", "{shard: 0}", 2000, 1000 / 20e9, 2000 / 20e9, 500 / 110e9, 500 / 1e12,
     "network out"},
    {"inside one domain nothing crosses", "node:1 gpu:4 nvlink:100GBps nic:10GBps hbm:100GBps", 2,
     2, "replicate", "replicate", 0, 0, 0, 2000 / 110e9, 2000 / 100e9, "memory"},
    {"slow links inside a domain", "node:1 gpu:4 nvlink:10GBps nic:10GBps hbm:1000GBps", 2, 2,
     "replicate", "replicate", 0, 0, 0, 2000 / 20e9, 2000 / 1e12, "receive"},
};

static void test_examples(void) {
    for (guint i = 0; i < G_N_ELEMENTS(examples); i++) {
        const Example *example = &examples[i];
        g_test_message("%s", example->what);
        g_autofree char *source =
            g_strdup_printf("rules: [{tensors: v, place: [%s]}]", example->source);
        g_autofree char *destination =
            g_strdup_printf("rules: [{tensors: v, place: [%s]}]", example->destination);
        g_autoptr(RefitCase) refit_case = plan_case_new(
            example->topology, "  - {name: v, shape: [1000], dtype: bf16, role: other}\n",
            example->n_source, source, example->n_destination, destination);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        RefitBound bound = compute(problem);
        g_assert_cmpuint(bound.network_bytes, ==, example->network_bytes);
        assert_seconds(bound.ingress_s, example->ingress_s);
        assert_seconds(bound.egress_s, example->egress_s);
        assert_seconds(bound.receive_s, example->receive_s);
        assert_seconds(bound.memory_s, example->memory_s);
        g_assert_cmpstr(bound.limited_by, ==, example->limited_by);
        assert_seconds(bound.time_s, MAX(MAX(bound.ingress_s, bound.egress_s),
                                         MAX(bound.receive_s, bound.memory_s)));
    }
}

/* Ranks 0-3 are sources, rank 3 also needs the vector, next to ranks of another domain. */
static void test_held_already(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:2 gpu:4 nvlink:100GBps nic:10GBps hbm:1000GBps",
                      "  - {name: v, shape: [1000], dtype: bf16, role: other}\n", 4,
                      "rules: [{tensors: v, place: [{shard: 0}]}]", 4,
                      "rules: [{tensors: v, ranks: [0], place: [replicate]}]");
    refit_case->n_destinations = 2;
    refit_case->destinations[1] = plan_case_side("generation", refit_case->model, 3, 1, 8,
                                                 "rules: [{tensors: v, place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    RefitBound bound = compute(problem);
    g_assert_cmpuint(bound.network_bytes, ==, 2000); /* rank 4's domain only */
    assert_seconds(bound.ingress_s, 2000 / 40e9);
    assert_seconds(bound.egress_s, 2000 / 40e9);   /* out of the four NICs of the domain */
    assert_seconds(bound.receive_s, 2000 / 110e9); /* rank 4; rank 3 lacks only 1500 */
    assert_seconds(bound.memory_s, 2000 / 1e12);
}

static void test_sets_add_up_over_tensors(void) {
    /* Two tensors held by rank 0 alone, one by ranks 0 and 1. */
    g_autoptr(RefitCase) refit_case = plan_case_new(
        "node:2 gpu:4 nvlink:100GBps nic:10GBps",
        "  - {name: a.0, shape: [100], dtype: bf16, role: other}\n"
        "  - {name: a.1, shape: [300], dtype: f32, role: other}\n"
        "  - {name: b, shape: [1000], dtype: bf16, role: other}\n",
        4,
        "rules: [{tensors: \"a.*\", ranks: [0], place: [replicate]}, {tensors: b, ranks: [0-1], "
        "place: [replicate]}]",
        4, "rules: [{tensors: \"*\", place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    RefitBound bound = compute(problem);
    g_assert_cmpuint(bound.network_bytes, ==, 200 + 1200 + 2000);
    assert_seconds(bound.egress_s, 3400 / 40e9); /* all of it out of one domain of four NICs */
    assert_seconds(bound.ingress_s, 3400 / 40e9);
    /* With slow NVLink rank 0 cannot hand out what it alone holds, 1400 B, any faster. */
    refit_case->topology->nvlink_bandwidth.value = 1e9;
    bound = compute(problem);
    assert_seconds(bound.egress_s, 1400 / 11e9);
}

static void test_nothing(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(WORKED_TOPOLOGY, WORKED_TENSOR, 4,
                                                    WORKED_SOURCE, 4, "absent: [w], rules: []");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    RefitBound bound = compute(problem);
    g_assert_cmpuint(bound.network_bytes, ==, 0);
    g_assert_cmpfloat(bound.time_s, ==, 0);
}

static void test_deepseek(void) {
    static const struct {
        const char *name;
        double time_s;
    } cases[] = {{"deepseek-v3-h100", 0.84}, {"deepseek-v3-gb200", 0.42}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitCase) refit_case =
            refit_case_load(input_store(), cases[i].name, NULL, &error);
        g_assert_no_error(error);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        RefitBound bound = compute(problem);
        g_assert_cmpfloat_with_epsilon(bound.time_s, cases[i].time_s, 0.005);
        g_assert_cmpstr(bound.limited_by, ==, "network in");
    }
}

static void test_no_plan_beats_it(void) {
    static const char *const names[] = {"tiny", "qwen3-30b-h100"};
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), names[i], NULL, &error);
        g_assert_no_error(error);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        RefitBound bound = compute(problem);
        g_assert_cmpuint(bound.network_bytes, >, 0);
        for (const RefitStrategy *const *strategy = refit_strategies(); *strategy != NULL;
             strategy++) {
            g_autoptr(RefitPlan) plan = refit_plan_new(problem, *strategy, &error);
            g_assert_no_error(error);
            g_assert_cmpuint(plan->link_bytes[REFIT_LINK_NETWORK], >=, bound.network_bytes);
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/bound/the-worked-example-needs-64-bytes", test_worked);
    g_test_add_func("/bound/each-limit-can-be-the-largest", test_examples);
    g_test_add_func("/bound/held-data-need-not-move", test_held_already);
    g_test_add_func("/bound/bytes-of-one-holder-set-add-up", test_sets_add_up_over_tensors);
    g_test_add_func("/bound/nothing-to-move-takes-no-time", test_nothing);
    g_test_add_func("/bound/deepseek-v3-is-limited-by-ingress", test_deepseek);
    g_test_add_func("/bound/no-plan-moves-fewer-network-bytes", test_no_plan_beats_it);
    return g_test_run();
}
