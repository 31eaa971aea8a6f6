/*
 * Every strategy on every shipped case: proved (by making the plan), repeatable, no network byte
 * below the bound, every needed byte delivered, and `refit` at the bound. On the largest cases this
 * is so for `refit` only, and for 8,192 GPUs not at all, unless REFIT_LONG=1 is in the environment.
 * The payloads of the two largest models by gather-broadcast. For deepseek-v3-h100 also
 * the published byte counts of each path, from the sizes of the model's tensors and the closed
 * formulas, not from cells: logical payload, pipeline broadcast, expert gather and broadcast of the
 * conventional path, R_d x B of direct and ring, shards and broadcast part of the hybrid path.
 */

#include "strategy-cases.h"

#include <math.h>

static RefitCase *load(const char *name) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = refit_case_load(input_store(), name, NULL, &error);

    g_assert_no_error(error);
    return refit_case;
}

/* GPUs of cases that all strategies, and that one at least, must plan every time. */
#define ALL_STRATEGIES_GPUS 768
#define ONE_STRATEGY_GPUS 2048

static void test_shipped(gconstpointer data) {
    g_autoptr(RefitCase) refit_case = load(data);
    guint n_gpus = refit_topology_n_gpus(refit_case->topology);
    gboolean all = strategy_long_tier() || n_gpus <= ALL_STRATEGIES_GPUS;

    if (!all && n_gpus > ONE_STRATEGY_GPUS) {
        g_test_skip("takes minutes under a sanitizer; set REFIT_LONG=1");
        return;
    }
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        if (!all && !g_str_equal(refit_strategies()[i]->name, "refit"))
            continue;
        g_autoptr(RefitPlan) plan = strategy_plan(problem, refit_strategies()[i]->name);
        strategy_assert_sound(plan);
    }
    if (!all)
        g_test_message("strategy refit only; set REFIT_LONG=1 for all");
}

/* Twice the weights; the plan itself only in the long tier, as it has millions of transfers. */
static void assert_payload(const char *name, double least_tb, double most_tb) {
    g_autoptr(RefitCase) refit_case = load(name);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    guint64 payload = 2 * problem->weight_bytes;

    g_assert_cmpfloat((double)payload / 1e12, >=, least_tb);
    g_assert_cmpfloat((double)payload / 1e12, <=, most_tb);
    if (!strategy_long_tier())
        return;
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "gather-broadcast");
    g_assert_cmpuint(plan->logical_bytes, ==, payload);
}

static void test_payloads(void) {
    assert_payload("kimi-k3-2k-gb200", 11.1, 11.2);
    assert_payload("qwen3.8-2.4t-gb200", 9.6, 9.8);
}

/* Rows of a tensor lie on 256 ranks: each receives 255/256 of it, over 32 nodes of 8. */
static void test_large_gather(void) {
    enum { N_TRAIN = 256, N_PER_NODE = 8 };
    g_autoptr(RefitCase) refit_case = load("llama-405b-fsdp-h100");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "gather-broadcast");
    guint64 weights = problem->weight_bytes, all = 0, by_network = 0;

    for (guint i = 0; i < plan->n_transfers; i++) {
        const RefitTransfer *transfer = &plan->transfers[i];

        if (!g_str_equal(plan->stages[transfer->stage].name, "gather"))
            continue;
        g_assert_cmpuint(transfer->dst, <, N_TRAIN);
        all += strategy_moved(plan, transfer);
        if (transfer->link == NETWORK)
            by_network += strategy_moved(plan, transfer);
    }
    g_assert_cmpuint(all, ==, weights * (N_TRAIN - 1));
    /* Every node takes in once what its ranks lack. */
    g_assert_cmpuint(by_network, ==, weights * (N_TRAIN / N_PER_NODE - 1));
}

/* ---- DeepSeek-V3, 256 -> 256 GPUs: 16 stages of 16 GPUs to 8 replicas of TP 32, nodes of 8 ----
 */

#define DEEPSEEK "deepseek-v3-h100"
#define WEIGHTS G_GUINT64_CONSTANT(1342052868096)
#define N_STAGES 16
#define EP 16
#define N_SOURCE 256
#define N_RANKS 512
#define TP 32
#define N_REPLICAS 8
#define N_TRAIN_NODES 32
#define N_NODES 32 /* of the destination */

typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitPlan *plan;
} Fixture;

static void set_up(Fixture *fixture, gconstpointer strategy) {
    fixture->refit_case = load(DEEPSEEK);
    fixture->problem = plan_case_problem(fixture->refit_case);
    fixture->plan = strategy_plan(fixture->problem, strategy);
    g_assert_cmpuint(fixture->problem->n_ranks, ==, N_RANKS);
    g_assert_cmpuint(refit_layout_n_stages(fixture->refit_case->source), ==, N_STAGES);
}

static void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    refit_plan_free(fixture->plan);
    refit_problem_free(fixture->problem);
    refit_case_free(fixture->refit_case);
}

/* Stage by the case's words: 61 layers, 3 on the first, 2 on the last, 4 on each between. */
static guint stage_of(const RefitTensor *tensor) {
    if (tensor->role == REFIT_ROLE_EMBEDDING)
        return 0;
    if (tensor->layer == REFIT_NO_LAYER)
        return N_STAGES - 1;
    return ((guint)tensor->layer + 1) / 4;
}

/* Tensors that tensor parallelism does not cut in generation. */
static gboolean is_replicated(const RefitTensor *tensor) {
    switch (tensor->role) {
    case REFIT_ROLE_NORM:
    case REFIT_ROLE_ROUTER:
    case REFIT_ROLE_MLA_Q_A:
    case REFIT_ROLE_MLA_KV_A:
        return TRUE;
    default:
        return FALSE;
    }
}

typedef struct {
    guint64 all, replicated, bulk;
    guint64 stage_dense[N_STAGES], stage_expert[N_STAGES];
} Sizes;

static Sizes measure(const RefitModel *model) {
    Sizes sizes = {0};

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        guint64 *stage = tensor->expert == REFIT_NO_EXPERT ? sizes.stage_dense : sizes.stage_expert;

        sizes.all += tensor->bytes;
        sizes.replicated += is_replicated(tensor) ? tensor->bytes : 0;
        sizes.bulk += refit_tensor_is_bulk(tensor) ? tensor->bytes : 0;
        stage[stage_of(tensor)] += tensor->bytes;
    }
    g_assert_cmpuint(sizes.all, ==, WEIGHTS);
    return sizes;
}

/* Giga bytes to three digits, as published. */
static void assert_gigabytes(guint64 bytes, double expected) {
    g_assert_cmpfloat(fabs((double)bytes / 1e9 - expected), <, 0.05);
}

/* Received bytes of a named stage, per rank. */
static guint64 *received_in(const RefitPlan *plan, const char *stage, int link) {
    guint64 *bytes = g_new0(guint64, plan->problem->n_ranks);
    guint n_seen = 0;

    for (guint i = 0; i < plan->n_transfers; i++) {
        const RefitTransfer *transfer = &plan->transfers[i];

        if (!g_str_equal(plan->stages[transfer->stage].name, stage))
            continue;
        n_seen++;
        if (link < 0 || transfer->link == (guint)link)
            bytes[transfer->dst] += strategy_moved(plan, transfer);
    }
    g_assert_cmpuint(n_seen, >, 0);
    return bytes;
}

static void test_gather_broadcast(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    const RefitPlan *plan = fixture->plan;
    Sizes sizes = measure(fixture->refit_case->model);
    g_autofree guint64 *pipeline = received_in(plan, "pipeline broadcast", -1);
    g_autofree guint64 *gather = received_in(plan, "gather", -1);
    g_autofree guint64 *broadcast = received_in(plan, "broadcast", -1);
    guint64 all_expert = 0, all_pipeline = 0;

    for (guint stage = 0; stage < N_STAGES; stage++)
        all_expert += sizes.stage_expert[stage];
    g_assert_cmpuint(plan->logical_bytes, ==, 2 * WEIGHTS);
    for (guint rank = 0; rank < N_RANKS; rank++) {
        guint own = rank / EP;
        guint64 expected = 0;

        /* W_expert/EP + W_dense/TP (TP is 1) of each other stage. */
        for (guint stage = 0; rank < N_SOURCE && stage < N_STAGES; stage++)
            if (stage != own)
                expected += sizes.stage_expert[stage] / EP + sizes.stage_dense[stage];
        g_assert_cmpuint(pipeline[rank], ==, expected);
        all_pipeline += pipeline[rank];
        g_assert_cmpuint(gather[rank], ==, rank < N_SOURCE ? all_expert / EP * (EP - 1) : 0);
        g_assert_cmpuint(broadcast[rank], ==, rank == 0 ? 0 : WEIGHTS);
    }
    /* On average (PP - 1) / PP x (W_expert/EP + W_dense/TP). */
    g_assert_cmpuint(all_pipeline, ==,
                     (guint64)N_SOURCE / N_STAGES * (N_STAGES - 1) *
                         (all_expert / EP + (WEIGHTS - all_expert)));
}

static void test_gather_broadcast_nodes(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    g_autofree guint64 *network = received_in(fixture->plan, "broadcast", NETWORK);
    g_autofree guint64 *nvlink = received_in(fixture->plan, "broadcast", NVLINK);

    for (guint node = 0; node < N_TRAIN_NODES + N_NODES; node++) {
        guint64 by_network = 0, by_nvlink = 0;

        for (guint rank = 8 * node; rank < 8 * node + 8; rank++) {
            by_network += network[rank];
            by_nvlink += nvlink[rank];
        }
        if (node > 0) {
            g_assert_cmpuint(by_network, ==, WEIGHTS);
            g_assert_cmpuint(by_nvlink, ==, 7 * WEIGHTS);
        } else { /* has the root: at most the chain's last hops come back */
            g_assert_cmpuint(by_network, <=, WEIGHTS);
            g_assert_cmpuint(by_network + by_nvlink, ==, 7 * WEIGHTS);
        }
    }
}

static void test_direct(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    Sizes sizes = measure(fixture->refit_case->model);
    const RefitPlan *plan = fixture->plan;

    /* R_d x B; R_d is all 256 ranks for what is replicated. No two sides share a node. */
    g_assert_cmpuint(plan->link_bytes[NETWORK], ==,
                     N_REPLICAS * (WEIGHTS - sizes.replicated) +
                         (guint64)N_REPLICAS * TP * sizes.replicated);
    g_assert_cmpuint(plan->link_bytes[NVLINK], ==, 0);
    g_assert_cmpuint(plan->logical_bytes, ==, WEIGHTS);
    for (guint rank = N_SOURCE; rank < N_RANKS; rank++) {
        guint64 shards = (WEIGHTS - sizes.replicated) / TP + sizes.replicated;

        g_assert_cmpuint(plan->accounts[rank].in[NETWORK], ==, shards);
        assert_gigabytes(shards, 43.9);
    }
}

static void test_ring(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    Sizes sizes = measure(fixture->refit_case->model);
    const RefitPlan *plan = fixture->plan;
    /* A replica of the cut tensors spans 4 nodes: R_d x B. A node holds 8 of the others: nodes x B,
     * and R_d x B less that over NVLink. */
    guint64 network = N_REPLICAS * (WEIGHTS - sizes.replicated) + N_NODES * sizes.replicated;

    g_assert_cmpuint(plan->link_bytes[NETWORK], ==, network);
    g_assert_cmpuint(plan->link_bytes[NVLINK], ==,
                     (guint64)N_REPLICAS * TP * sizes.replicated - N_NODES * sizes.replicated);
    g_assert_cmpuint(plan->logical_bytes, ==, WEIGHTS);
}

static void test_hybrid(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    Sizes sizes = measure(fixture->refit_case->model);
    const RefitPlan *plan = fixture->plan;
    guint64 shards = sizes.bulk / TP, misc = WEIGHTS - sizes.bulk;
    g_autofree guint64 *ring = received_in(plan, "ring", -1);
    g_autofree guint64 *broadcast = received_in(plan, "broadcast", -1);

    assert_gigabytes(shards, 40.9);
    assert_gigabytes(misc, 31.9);
    g_assert_cmpuint(plan->logical_bytes, ==, sizes.bulk + 2 * misc);
    for (guint rank = 0; rank < N_RANKS; rank++) {
        g_assert_cmpuint(ring[rank], ==, rank < N_SOURCE ? 0 : shards);
        g_assert_cmpuint(broadcast[rank], ==, rank == 0 ? 0 : misc);
    }
    /* The broadcast waits for the ring on every rank. */
    guint n_barriers = 0, first = plan->n_batches;
    for (guint b = 0; b < plan->n_batches; b++) {
        n_barriers += plan->batches[b].barrier ? 1 : 0;
        first = plan->batches[b].buckets > 0 ? MIN(first, b) : first;
    }
    g_assert_cmpuint(n_barriers, ==, 1);
    g_assert_true(plan->batches[first].barrier);
}

static void test_refit(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    Sizes sizes = measure(fixture->refit_case->model);
    const RefitPlan *plan = fixture->plan;
    g_autoptr(GError) error = NULL;
    RefitBound bound;
    guint64 busiest = 0;

    g_assert_true(refit_bound_compute(fixture->problem, &bound, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(bound.network_bytes, ==,
                     N_REPLICAS * (WEIGHTS - sizes.replicated) + N_NODES * sizes.replicated);
    g_assert_cmpuint(plan->link_bytes[NETWORK], ==, bound.network_bytes);
    for (guint rank = 0; rank < N_RANKS; rank++) {
        busiest = MAX(busiest, plan->accounts[rank].in[NETWORK]);
        busiest = MAX(busiest, plan->accounts[rank].out[NETWORK]);
    }
    g_assert_cmpfloat((double)busiest, <=,
                      1.005 * bound.time_s * fixture->refit_case->topology->nic_bandwidth.value);
}

static const struct {
    const char *path, *strategy;
    void (*test)(Fixture *, gconstpointer);
} deepseek[] = {
    {"/gather-broadcast-receives-what-the-formulas-say", "gather-broadcast", test_gather_broadcast},
    {"/gather-broadcast-enters-each-node-once", "gather-broadcast", test_gather_broadcast_nodes},
    {"/direct-sends-every-replica", "direct", test_direct},
    {"/ring-sends-as-the-formulas-say", "ring", test_ring},
    {"/hybrid-receives-the-published-bytes", "hybrid", test_hybrid},
    {"/refit-balances-nics-at-the-bound", "refit", test_refit},
};

/* One without is held to the bound and the proofs only, which is said and is no error. */
static void test_every_strategy_is_here(void) {
    for (guint s = 0; refit_strategies()[s] != NULL; s++) {
        guint n = 0;

        for (guint i = 0; i < G_N_ELEMENTS(deepseek); i++)
            n += g_str_equal(deepseek[i].strategy, refit_strategies()[s]->name);
        if (n == 0) {
            g_autofree char *text =
                g_strdup_printf("no formulas for the strategy %s", refit_strategies()[s]->name);
            g_test_skip(text);
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_auto(GStrv) names = refit_store_list(input_store(), "cases");

    for (guint i = 0; names[i] != NULL; i++) {
        g_autofree char *path = g_strdup_printf("/strategies/shipped/all-plan-%s", names[i]);
        g_test_add_data_func(path, names[i], test_shipped);
    }
    g_test_add_func("/strategies/shipped/payloads-of-the-largest-models", test_payloads);
    g_test_add_func("/strategies/shipped/a-large-gather-enters-each-node-once", test_large_gather);
    g_test_add_func("/strategies/" DEEPSEEK "/every-strategy-has-formulas",
                    test_every_strategy_is_here);
    for (guint i = 0; i < G_N_ELEMENTS(deepseek); i++) {
        g_autofree char *path = g_strconcat("/strategies/" DEEPSEEK, deepseek[i].path, NULL);
        g_test_add(path, Fixture, deepseek[i].strategy, set_up, deepseek[i].test, tear_down);
    }
    return g_test_run();
}
