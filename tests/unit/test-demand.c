/*
 * Demand: the fewest ranks that hit all sets and the least load of the busiest, each against trying
 * everything on small random sets; counts of hand-made cases (bytes, senders, operations, domains,
 * rails, idle ranks); limits on senders; demand against the bytes of direct plans.
 */

#include "strategy-cases.h"
#include "validation/refit-cover.h"
#include "validation/refit-demand.h"

#define MAX_SETS 7
#define MAX_RANKS 7

typedef struct {
    guint n;
    guint masks[MAX_SETS]; /* sets of ranks */
    guint members[MAX_SETS][MAX_RANKS];
    RefitRankSet sets[MAX_SETS];
    guint64 bytes[MAX_SETS];
} RandomSets;

static void draw_sets(RandomSets *random, guint n_ranks) {
    random->n = (guint)g_test_rand_int_range(0, MAX_SETS + 1);
    for (guint s = 0; s < random->n; s++) {
        guint n = 0;
        random->masks[s] = (guint)g_test_rand_int_range(1, 1 << n_ranks);
        if (g_test_rand_int_range(0, 2) == 0) /* small sets make harder problems */
            random->masks[s] = 1u << g_test_rand_int_range(0, (gint)n_ranks) |
                               1u << g_test_rand_int_range(0, (gint)n_ranks);
        for (guint rank = 0; rank < n_ranks; rank++)
            if (random->masks[s] & 1u << rank)
                random->members[s][n++] = 10 * rank;
        random->sets[s] = (RefitRankSet){n, random->members[s]};
        random->bytes[s] = (guint64)g_test_rand_int_range(0, 40);
    }
}

static guint count_bits(guint mask) {
    guint n = 0;
    for (; mask != 0; mask &= mask - 1)
        n++;
    return n;
}

static void test_cover(void) {
    for (guint round = 0; round < 3000; round++) {
        RandomSets random;
        gboolean exact;
        guint best = G_MAXUINT;
        draw_sets(&random, MAX_RANKS);
        for (guint chosen = 0; chosen < 1u << MAX_RANKS; chosen++) {
            gboolean all = TRUE;
            for (guint s = 0; s < random.n; s++)
                all = all && (random.masks[s] & chosen) != 0;
            if (all)
                best = MIN(best, count_bits(chosen));
        }
        g_assert_cmpuint(refit_cover_fewest(random.sets, random.n, 100000, &exact), ==, best);
        g_assert_true(exact);
    }
}

static void test_cover_budget(void) {
    /* The edges of a ring of 9: five ranks are needed, and no packing of edges proves it. */
    guint members[9][2];
    RefitRankSet sets[9];
    gboolean exact;
    for (guint i = 0; i < 9; i++) {
        members[i][0] = MIN(i, (i + 1) % 9);
        members[i][1] = MAX(i, (i + 1) % 9);
        sets[i] = (RefitRankSet){2, members[i]};
    }
    g_assert_cmpuint(refit_cover_fewest(sets, 9, 1000, &exact), ==, 5);
    g_assert_true(exact);
    g_assert_cmpuint(refit_cover_fewest(sets, 9, 0, &exact), >=, 5);
    g_assert_false(exact);
    g_assert_cmpuint(refit_cover_fewest(NULL, 0, 0, &exact), ==, 0);
    g_assert_true(exact);
}

/* Hall: the largest ratio of the bytes confined to some ranks, over all choices of ranks. */
static guint64 spread_slowly(const RandomSets *random) {
    guint64 least = 0;
    for (guint chosen = 1; chosen < 1u << MAX_RANKS; chosen++) {
        guint64 confined = 0, n = count_bits(chosen);
        for (guint s = 0; s < random->n; s++)
            confined += (random->masks[s] & ~chosen) == 0 ? random->bytes[s] : 0;
        least = MAX(least, (confined + n - 1) / n);
    }
    return least;
}

static void test_spread(void) {
    for (guint round = 0; round < 3000; round++) {
        RandomSets random;
        draw_sets(&random, MAX_RANKS);
        g_assert_cmpuint(refit_spread_least(random.sets, random.bytes, random.n), ==,
                         spread_slowly(&random));
    }
}

static void test_spread_large(void) {
    /* A chain of 200 pairs, all work in the first: it flows along the whole chain. */
    guint members[200][2];
    RefitRankSet sets[200];
    guint64 bytes[200];
    for (guint i = 0; i < 200; i++) {
        members[i][0] = i;
        members[i][1] = i + 1;
        sets[i] = (RefitRankSet){2, members[i]};
        bytes[i] = i == 0 ? G_GUINT64_CONSTANT(402) << 40 : G_GUINT64_CONSTANT(1) << 40;
    }
    /* 402 T between ranks 0 and 1 is 201 T each whatever the others do. */
    g_assert_cmpuint(refit_spread_least(sets, bytes, 200), ==, G_GUINT64_CONSTANT(201) << 40);
    for (guint i = 0; i < 200; i++)
        bytes[i] = 201;
    g_assert_cmpuint(refit_spread_least(sets, bytes, 200), ==, 200);
}

/* ---- cases ---- */

static const RefitDemandRank *find_rank(const RefitDemand *demand, guint rank) {
    for (guint i = 0; i < demand->n_ranks; i++)
        if (demand->ranks[i].rank == rank)
            return &demand->ranks[i];
    g_assert_not_reached();
}

static RefitDemand *new_demand(const RefitProblem *problem) {
    g_autoptr(GError) error = NULL;
    RefitDemand *demand = refit_demand_new(problem, &error);
    g_assert_no_error(error);
    return demand;
}

/* Two halves of 32 bytes on ranks 0 and 1; ranks 4 and 6 need columns 0-1, 5 and 7 the others. */
static void test_worked(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitDemand) demand = new_demand(problem);
    g_assert_cmpuint(demand->n_ranks, ==, 8);
    for (guint rank = 4; rank < 8; rank++) {
        g_assert_cmpuint(find_rank(demand, rank)->receive_bytes, ==, 32);
        g_assert_cmpuint(find_rank(demand, rank)->fan_in, ==, 2);
        g_assert_true(find_rank(demand, rank)->needs);
        g_assert_false(find_rank(demand, rank)->idle);
    }
    for (guint rank = 0; rank < 4; rank++) {
        g_assert_false(find_rank(demand, rank)->needs);
        g_assert_cmpint(find_rank(demand, rank)->idle, ==, rank >= 2);
    }
    g_assert_cmpuint(demand->receive_bytes, ==, 128);
    g_assert_cmpuint(demand->unique_bytes, ==, 64);
    g_assert_cmpuint(demand->operations, ==, 8);
    g_assert_cmpuint(demand->max_fan_in, ==, 2);
    g_assert_true(demand->exact_fan_in);
    g_assert_cmpuint(demand->n_domains, ==, 2);
    g_assert_cmpuint(demand->domain_in_bytes[0], ==, 0);
    g_assert_cmpuint(demand->domain_in_bytes[1], ==, 64);
    g_assert_cmpuint(demand->min_max_egress_bytes, ==, 64);
    /* Ranks 4 and 5 are on the rails of 0 and 1 and get half from there; 6 and 7 get none so. */
    g_assert_cmpuint(demand->cross_rail_bytes, ==, 16 + 16 + 32 + 32);
}

static void test_members_and_locals(void) {
    /* Three equal tensors of 16 bytes, held twice; rank 1 needs all and has half. */
    static const StrategyCase described = {
        .topology = "node:1 gpu:4 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: \"w.{0-2}\", shape: [8], role: other}\n",
        .source = "gpus: 4, rules: [{tensors: \"w.*\", mesh: [2, 2], place: [replicate, "
                  "{shard: 0}]}]",
        .pools = {"gpus: 1, first_gpu: 1, rules: [{tensors: \"w.*\", place: [replicate]}]"}};
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitDemand) demand = new_demand(problem);
    g_assert_cmpuint(demand->receive_bytes, ==, 3 * 8);
    g_assert_cmpuint(find_rank(demand, 1)->local_bytes, ==, 3 * 8);
    g_assert_cmpuint(demand->unique_bytes, ==, 3 * 8);
    g_assert_cmpuint(demand->operations, ==, 3);
    g_assert_cmpuint(find_rank(demand, 1)->fan_in, ==, 1);
    /* The first half is on ranks 0 and 2; either can send. */
    g_assert_true(find_rank(demand, 0)->idle);
    g_assert_true(find_rank(demand, 2)->idle);
    g_assert_true(find_rank(demand, 3)->idle);
    g_assert_cmpuint(demand->min_max_egress_bytes, ==, 12);
    g_assert_cmpuint(demand->cross_rail_bytes, ==, 0);
}

static void test_limit(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitDemand) demand = new_demand(problem);
    g_assert_true(refit_demand_check_sources(demand, 2, &error));
    g_assert_no_error(error);
    g_assert_false(refit_demand_check_sources(demand, 1, &error));
    input_assert_error(error, REFIT_ERROR_LIMIT,
                       "rank 4 needs bytes from 2 ranks, but the limit is 1; raise it, or relay "
                       "through other ranks");
}

static void test_nothing(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(WORKED_TOPOLOGY, WORKED_TENSOR, 4,
                                                    WORKED_SOURCE, 4, "absent: [w], rules: []");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitDemand) demand = new_demand(problem);
    g_assert_cmpuint(demand->receive_bytes + demand->operations + demand->max_fan_in, ==, 0);
    g_assert_cmpuint(demand->min_max_egress_bytes, ==, 0);
    g_assert_cmpuint(demand->n_ranks, ==, 8);
    for (guint i = 0; i < demand->n_ranks; i++)
        g_assert_true(demand->ranks[i].idle);
}

/* The direct plan of a shipped case moves what the demand says, per rank and per domain. */
static void test_direct_plan(void) {
    static const char *const names[] = {"tiny", "qwen3-30b-h100"};
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), names[i], NULL, &error);
        g_assert_no_error(error);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitDemand) demand = new_demand(problem);
        g_autoptr(RefitPlan) plan = refit_plan_new(problem, strategy_get("direct"), &error);
        g_assert_no_error(error);
        guint64 busiest = 0;
        for (guint k = 0; k < demand->n_ranks; k++) {
            const RefitRankAccount *account = &plan->accounts[demand->ranks[k].rank];
            g_assert_cmpuint(account->in[NVLINK] + account->in[NETWORK], ==,
                             demand->ranks[k].receive_bytes);
            busiest = MAX(busiest, account->out[NVLINK] + account->out[NETWORK]);
        }
        g_assert_cmpuint(plan->link_bytes[NVLINK] + plan->link_bytes[NETWORK], ==,
                         demand->receive_bytes);
        g_assert_cmpuint(busiest, >=, demand->min_max_egress_bytes);
        g_assert_cmpuint(demand->min_max_egress_bytes, >, 0);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/demand/fewest-senders-agree-with-trying-all", test_cover);
    g_test_add_func("/demand/a-search-cut-short-says-so", test_cover_budget);
    g_test_add_func("/demand/least-load-agrees-with-trying-all", test_spread);
    g_test_add_func("/demand/load-moves-along-chains-of-replicas", test_spread_large);
    g_test_add_func("/demand/counts-of-a-worked-case", test_worked);
    g_test_add_func("/demand/equal-tensors-count-each-and-own-bytes-do-not",
                    test_members_and_locals);
    g_test_add_func("/demand/too-many-senders-are-refused", test_limit);
    g_test_add_func("/demand/nothing-needed-is-no-demand", test_nothing);
    g_test_add_func("/demand/direct-plans-move-just-that", test_direct_plan);
    return g_test_run();
}
