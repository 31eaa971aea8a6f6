/*
 * Shapes of plans: what a plan is estimated to take, by hand; that the shape with the least
 * estimate is taken; that all of them bring each byte into a domain once; who sends what inside a
 * domain and in chains.
 */

#include "model/strategy/refit-estimate.h"
#include "random-case.h"

/* Bytes per second. */
#define NIC_RATE 50e9
#define NVLINK_RATE 450e9
#define N_CASES 100

/* ---- the estimate ---- */

/* Two steps of the worked case, one after the other: two messages out of a source, then a swap. */
static void test_worked(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_worked_plan(problem);
    double latency_s =
        refit_case->topology->nic_latency.value + refit_case->topology->nvlink_latency.value;

    g_assert_cmpfloat(latency_s, >, 0);
    g_assert_cmpfloat_with_epsilon(refit_plan_estimate_s(plan),
                                   32 / NIC_RATE + 16 / NVLINK_RATE + latency_s, 1e-15);
}

/*
 * With 10 us per turn and message, a destination submits its first turn, with one message, by 20 us
 * and its second, with two, by 50 us; the bytes take nanoseconds.
 */
static void test_operations(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitDoc) doc = input_doc("{name: refit, operation: {value: 10us, source: test}}");

    refit_case->profile = refit_profile_from_case(refit_doc_root(doc), input_store(), &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_worked_plan(problem);
    g_assert_cmpfloat_with_epsilon(refit_plan_estimate_s(plan),
                                   50e-6 + refit_case->topology->nvlink_latency.value, 10e-9);
}

/* ---- the choice ---- */

/* The estimate of a shape's plan, and its digest. */
static double estimate(const RefitProblem *problem, const RefitStrategy *strategy,
                       const RefitShape *shape, char **digest_out) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitPlan) plan = refit_plan_of_shape(problem, strategy, shape, &error);

    g_assert_no_error(error);
    g_assert_true(shape == NULL ? plan->shape == NULL : plan->shape == shape->name);
    *digest_out = g_strdup(plan->digest);
    return refit_plan_estimate_s(plan);
}

/* The shape that should be taken of those of `refit`; NULL: the usual one. */
static const char *find_best(const RefitProblem *problem, const RefitStrategy *strategy,
                             char **digest_out) {
    g_autoptr(GError) error = NULL;
    RefitBound bound;
    const char *best = NULL;
    double least_s = estimate(problem, strategy, NULL, digest_out);

    g_assert_true(refit_bound_compute(problem, &bound, &error));
    for (const RefitShape *shape = strategy->shapes;
         shape->name != NULL && least_s > 1.02 * bound.time_s; shape++) {
        char *digest;
        double seconds = estimate(problem, strategy, shape, &digest);

        if (seconds < least_s) {
            least_s = seconds;
            best = shape->name;
            g_free(*digest_out);
            *digest_out = g_steal_pointer(&digest);
        }
        g_free(digest);
    }
    return best;
}

static void test_choice(void) {
    const RefitStrategy *strategy = strategy_get("refit");
    guint first = (guint)g_test_rand_int(), n_others = 0;

    for (guint i = 0; i < N_CASES; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RandomCase) random = random_case_new(first + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlan) plan = refit_plan_new(problem, strategy, &error);
        g_autofree char *digest = NULL;

        g_assert_no_error(error);
        g_test_message("case %u", random->seed);
        g_assert_cmpstr(plan->shape, ==, find_best(problem, strategy, &digest));
        g_assert_cmpstr(plan->digest, ==, digest);
        n_others += plan->shape != NULL ? 1 : 0;
    }
    g_assert_cmpuint(n_others, >, 0);
    g_assert_cmpuint(n_others, <, N_CASES);
}

/* ---- what shapes do ---- */

#define THIRD (G_GUINT64_CONSTANT(1) << 20)
#define ALL "rules: [{tensors: w, place: [replicate]}]"

/* `sources`: the rule of the source's ranks. Every needer needs all 3 MiB. */
static RefitCase *replicas(const char *topology, guint n_sources, const char *sources,
                           guint n_needers) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case =
        plan_case_new(topology, "  - {name: w, shape: [1536, 1024], dtype: bf16, role: other}\n",
                      n_sources, sources, n_needers, "rules: [{tensors: w, place: [replicate]}]");

    refit_case->profile = refit_profile_from_case(NULL, input_store(), &error);
    g_assert_no_error(error);
    return refit_case;
}

static RefitPlan *plan_named(const RefitProblem *problem, const char *name) {
    g_autoptr(GError) error = NULL;
    const RefitStrategy *strategy = strategy_get("refit");
    const RefitShape *shape = strategy->shapes;

    while (name != NULL && !g_str_equal(shape->name, name))
        shape++;
    RefitPlan *plan = refit_plan_of_shape(problem, strategy, name != NULL ? shape : NULL, &error);
    g_assert_no_error(error);
    return plan;
}

/* One holder of 3 MiB and three needers in a domain: a third to each, which the others get from it.
 */
static void test_few_inside(void) {
    g_autoptr(RefitCase) refit_case = replicas("node:1 gpu:4 nvlink:450GBps nic:50GBps", 1, ALL, 3);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_named(problem, NULL);

    g_assert_cmpuint(plan->accounts[0].out[NVLINK], ==, 3 * THIRD);
    for (guint rank = 1; rank < 4; rank++) {
        g_assert_cmpuint(plan->accounts[rank].in[NVLINK], ==, 3 * THIRD);
        g_assert_cmpuint(plan->accounts[rank].out[NVLINK], ==, 2 * THIRD);
    }
    strategy_assert_sound(plan);
}

/* As many holders as needers: each needer gets it from another one. */
static void test_many_inside(void) {
    g_autoptr(RefitCase) refit_case = replicas("node:1 gpu:6 nvlink:450GBps nic:50GBps", 3, ALL, 3);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_named(problem, NULL);

    for (guint rank = 0; rank < 3; rank++)
        g_assert_cmpuint(plan->accounts[rank].out[NVLINK], ==, 3 * THIRD);
    strategy_assert_sound(plan);
}

/*
 * One holder and three domains of three needers. In a chain it sends 3 MiB once, a third for each
 * NIC of the first domain; each of these passes its third on, those of the last domain do not.
 */
static void test_chain(void) {
    g_autoptr(RefitCase) refit_case =
        replicas("node:4 gpu:3 nvlink:450GBps nic:50GBps", 3,
                 "rules: [{tensors: w, ranks: [0], place: [replicate]}]", 9);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_named(problem, "chains");
    guint n_last = 0;

    /* Ranks 1 and 2 hold nothing, but take part in the case: each sends a third for rank 0. */
    for (guint rank = 0; rank < 3; rank++)
        g_assert_cmpuint(plan->accounts[rank].out[NETWORK], ==, THIRD);
    g_assert_cmpuint(plan->accounts[0].out[NVLINK], ==, 2 * THIRD);
    for (guint rank = 3; rank < 12; rank++) {
        g_assert_cmpuint(plan->accounts[rank].in[NETWORK], ==, THIRD);
        g_assert_cmpuint(plan->accounts[rank].in[NVLINK], ==, 2 * THIRD);
        n_last += plan->accounts[rank].out[NETWORK] == 0 ? 1 : 0;
    }
    g_assert_cmpuint(n_last, ==, 3);
    strategy_assert_sound(plan);
}

/* Whatever the shape, on cases of all kinds: nothing comes into a domain twice. */
static void test_bytes(void) {
    const RefitStrategy *strategy = strategy_get("refit");
    guint first = (guint)g_test_rand_int();

    for (guint i = 0; i < N_CASES; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RandomCase) random = random_case_new(first + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        RefitBound bound;

        g_test_message("case %u", random->seed);
        g_assert_true(refit_bound_compute(problem, &bound, &error));
        g_assert_no_error(error);
        for (const RefitShape *shape = strategy->shapes; shape->name != NULL; shape++) {
            g_autoptr(RefitPlan) plan = plan_named(problem, shape->name);
            g_assert_cmpuint(plan->link_bytes[NETWORK], ==, bound.network_bytes);
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/shapes/the-worked-case-is-estimated", test_worked);
    g_test_add_func("/shapes/operations-are-estimated", test_operations);
    g_test_add_func("/shapes/the-least-estimate-is-taken", test_choice);
    g_test_add_func("/shapes/few-holders-give-it-once-inside", test_few_inside);
    g_test_add_func("/shapes/many-holders-share-what-they-give-inside", test_many_inside);
    g_test_add_func("/shapes/a-chain-spares-the-source", test_chain);
    g_test_add_func("/shapes/nothing-comes-in-twice", test_bytes);
    return g_test_run();
}
