/*
 * Strategies on cases small enough to count by hand: finding one by name; the 8 x 4 example of one
 * domain with two replicas; network, NVLink and egress bytes of ring and direct (replica within a
 * domain, over several domains, some of it next to the source, surplus source replicas); stripes
 * and relays of refit; bytes of each step of gather-broadcast; and every strategy on odd cases:
 * one rank, colocated and overlapping sides, needs that overlap on a rank, replicated sources, two
 * pools, empty and uneven shards, scalars, ranks with holes, half-byte types, more batches than
 * tensors, sources that hold only part of a tensor.
 */

#include "strategy-cases.h"

/* ---- the table ---- */

static void test_find_known(void) {
    static const char *const shipped[] = {"gather-broadcast", "direct", "ring", "hybrid", "refit"};

    for (guint i = 0; i < G_N_ELEMENTS(shipped); i++)
        g_assert_cmpstr(strategy_get(shipped[i])->name, ==, shipped[i]);
    /* A name that is there twice finds the first of them. */
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_assert_true(strategy_get(refit_strategies()[i]->name) == refit_strategies()[i]);
        g_assert_cmpuint(strlen(refit_strategies()[i]->summary), >, 0);
    }
    g_assert_cmpstr(strategy_get(REFIT_STRATEGY_DEFAULT)->name, ==, "refit");
}

static void test_find_unknown(void) {
    static const char *const bad[][2] = {
        {"rong", "unknown strategy \"rong\" (did you mean \"ring\"?); known: "},
        {"gather_broadcast",
         "unknown strategy \"gather_broadcast\" (did you mean \"gather-broadcast\"?); known: "},
        {"zzzzzzzz", "unknown strategy \"zzzzzzzz\"; known: "},
    };
    g_autoptr(GString) known = g_string_new(NULL);

    for (guint i = 0; refit_strategies()[i] != NULL; i++)
        g_string_append_printf(known, "%s%s", i > 0 ? ", " : "", refit_strategies()[i]->name);
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *message = g_strconcat(bad[i][1], known->str, NULL);

        g_assert_null(refit_strategy_find(bad[i][0], &error));
        input_assert_error(error, REFIT_ERROR_INVALID, message);
    }
}

/* ---- bytes by hand ---- */

/* Bytes by link, then the largest network bytes into and out of one rank. */
typedef struct {
    guint64 network, nvlink, local, most_in, most_out;
} Bytes;

static void assert_bytes(const StrategyCase *described, const char *strategy, Bytes expected) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy);
    guint64 most_in = 0, most_out = 0;

    for (guint rank = 0; rank < problem->n_ranks; rank++) {
        most_in = MAX(most_in, plan->accounts[rank].in[NETWORK]);
        most_out = MAX(most_out, plan->accounts[rank].out[NETWORK]);
    }
    g_assert_cmpuint(plan->link_bytes[NETWORK], ==, expected.network);
    g_assert_cmpuint(plan->link_bytes[NVLINK], ==, expected.nvlink);
    g_assert_cmpuint(plan->link_bytes[LOCAL], ==, expected.local);
    g_assert_cmpuint(most_in, ==, expected.most_in);
    g_assert_cmpuint(most_out, ==, expected.most_out);
    strategy_assert_sound(plan);
}

/* The same with every strategy that sends shards. */
static void assert_bytes_of_shards(const StrategyCase *described, Bytes expected) {
    for (guint i = 0; refit_strategies()[i] != NULL; i++)
        if (refit_strategies()[i]->sends == REFIT_SENDS_SHARDS)
            assert_bytes(described, refit_strategies()[i]->name, expected);
}

#define WORKED_SIDES                                                                               \
    .topology = WORKED_TOPOLOGY, .source = "gpus: 2, rules: [{tensors: w, place: [{shard: 0}]}]",  \
    .pools = {"gpus: 4, first_gpu: 4, rules: [{tensors: w, mesh: [2, 2], place: [replicate, "      \
              "{shard: 1}]}]"}

static void test_worked_example(void) {
    /* 64 B. Too small to be cut: whole 16 B parts are dealt out, each rank gets one of two. */
    static const StrategyCase small = {.tensors = WORKED_TENSOR, WORKED_SIDES};

    assert_bytes(&small, "direct", (Bytes){128, 0, 0, 32, 64});
    assert_bytes(&small, "refit", (Bytes){64, 64, 0, 16, 32});
    /* A domain is entered once; the two source pieces of a shard go to its two replicas. */
    assert_bytes(&small, "ring", (Bytes){64, 64, 0, 16, 32});
}

static void test_worked_example_in_stripes(void) {
    /*
     * Each entry is 256 x 256 elements: 64 B x 2^16 = 4 MiB. Each of the four 1 MiB parts is cut in
     * two stripes of 512 KiB, one for each of its two needers: 2 x 512 KiB = 16 B x 2^16 per NIC,
     * and the other two stripes come over NVLink.
     */
    static const StrategyCase large = {
        .tensors = "  - {name: w, shape: [2048, 1024]}\n",
        WORKED_SIDES,
    };
    const guint64 k = 1 << 16;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&large);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "refit");

    assert_bytes(&large, "direct", (Bytes){128 * k, 0, 0, 32 * k, 64 * k});
    assert_bytes(&large, "ring", (Bytes){64 * k, 64 * k, 0, 16 * k, 32 * k});
    assert_bytes(&large, "refit", (Bytes){64 * k, 64 * k, 0, 16 * k, 32 * k});
    for (guint rank = 4; rank < 8; rank++) {
        g_assert_cmpuint(plan->accounts[rank].in[NETWORK], ==, 16 * k);
        g_assert_cmpuint(plan->accounts[rank].in[NVLINK], ==, 16 * k);
        g_assert_cmpuint(plan->accounts[rank].out[NVLINK], ==, 16 * k);
    }
    /* 4 parts x 2 stripes, each sent once and passed on once. */
    g_assert_cmpuint(plan->n_transfers, ==, 16);
}

static void test_one_shard_eight_replicas(void) {
    /* 1 MiB held whole by one rank and needed whole by a domain of eight: an eighth per NIC. */
    static const StrategyCase described = {
        .topology = "node:2 gpu:8 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [512, 1024]}\n",
        .source = "gpus: 1, rules: [{tensors: w, place: [replicate]}]",
        .pools = {"gpus: 8, first_gpu: 8, rules: [{tensors: w, place: [replicate]}]"},
    };
    const guint64 b = 1 << 20;

    assert_bytes(&described, "refit", (Bytes){b, 7 * b, 0, b / 8, b});
    assert_bytes(&described, "ring", (Bytes){b, 7 * b, 0, b, b});
    assert_bytes(&described, "direct", (Bytes){8 * b, 0, 0, b, 8 * b});
}

static void test_replica_within_a_domain(void) {
    /* B = 64 KiB in 4 source shards; 4 replicas of 2 shards, two replicas in each of 2 domains. */
    static const StrategyCase described = {
        .topology = "node:3 gpu:4 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [128, 256]}\n",
        .source = "gpus: 4, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 8, rules: [{tensors: w, mesh: [4, 2], place: [replicate, {shard: 1}]}], "
                  "first_gpu: 4"},
    };
    const guint64 b = 1 << 16;

    /* Two domains: 2 x B; copies 4 x B - 2 x B. One chain: each source sends its B/4 once. Each
     * leader takes 2 of the 4 source pieces of its shard of B/2 and forwards at most as much. */
    assert_bytes(&described, "ring", (Bytes){2 * b, 2 * b, 0, b / 4, b / 4});
    /* 4 x B, of which each source sends R_d x B / S_s. */
    assert_bytes(&described, "direct", (Bytes){4 * b, 0, 0, b / 2, b});
}

static void test_replica_over_domains(void) {
    /* 2 replicas of 4 shards in domains of 2 GPUs: a replica spans two. */
    static const StrategyCase described = {
        .topology = "node:5 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [64, 512]}\n",
        .source = "gpus: 2, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 8, first_gpu: 2, rules: [{tensors: w, mesh: [2, 4], place: [replicate, "
                  "{shard: 0}]}]"},
    };
    const guint64 b = 1 << 16;

    /* R_d x B = 2 x B, nothing to copy; the second replica gets it from the first. */
    assert_bytes(&described, "ring", (Bytes){2 * b, 0, 0, b / 4, b / 2});
    assert_bytes(&described, "direct", (Bytes){2 * b, 0, 0, b / 4, b});
}

static void test_pairs_inside_a_domain(void) {
    /* The first of two replicas lies in the domain of the source. */
    static const StrategyCase described = {
        .topology = "node:2 gpu:4 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [64, 512]}\n",
        .source = "gpus: 2, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 4, first_gpu: 2, rules: [{tensors: w, mesh: [2, 2], place: [replicate, "
                  "{shard: 0}]}]"},
    };
    const guint64 b = 1 << 16;

    assert_bytes_of_shards(&described, (Bytes){b, b, 0, b / 2, b / 2});
}

static void test_surplus_source_replicas_idle(void) {
    /* 4 source replicas of 2 shards, 2 destination domains: two chains, replicas 1 and 3 idle. */
    static const StrategyCase described = {
        .topology = "node:6 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [64, 512]}\n",
        .source = "gpus: 8, rules: [{tensors: w, mesh: [4, 2], place: [replicate, {shard: 0}]}]",
        .pools = {"gpus: 4, first_gpu: 8, rules: [{tensors: w, mesh: [2, 2], place: [replicate, "
                  "{shard: 1}]}]"},
    };
    const guint64 b = 1 << 16;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) ring = strategy_plan(problem, "ring");
    g_autoptr(RefitPlan) refit = strategy_plan(problem, "refit");

    g_assert_cmpuint(ring->link_bytes[NETWORK], ==, 2 * b);
    for (guint rank = 0; rank < 8; rank++) {
        /* B/S_s per rank of an active chain. */
        g_assert_cmpuint(ring->accounts[rank].out[NETWORK], ==, rank / 2 % 2 == 0 ? b / 2 : 0);
        /* All eight share 2 x B evenly: each shard is sent in 4 parts of B/4, one per replica. */
        g_assert_cmpuint(refit->accounts[rank].out[NETWORK], ==, b / 4);
    }
}

static void test_ring_divides_source_pieces(void) {
    /* 4 source shards, one domain with 4 full replicas: each leads for one shard. */
    static const StrategyCase described = {
        .topology = "node:2 gpu:4 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [64, 512]}\n",
        .source = "gpus: 4, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 4, first_gpu: 4, rules: [{tensors: w, place: [replicate]}]"},
    };
    const guint64 b = 1 << 16;

    assert_bytes(&described, "ring", (Bytes){b, 3 * b, 0, b / 4, b / 4});
    assert_bytes(&described, "refit", (Bytes){b, 3 * b, 0, b / 4, b / 4});
}

/* Calls of two lanes in the order of batches: neither is ahead by more than a call. */
static void test_ring_lanes_side_by_side(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc =
        input_doc("schema: refit.case/1\nmodel: tiny\ndtype: bf16\n"
                  "train: {framework: megatron, gpus: 4, tp: 1, pp: 2, ep: 2}\n"
                  "generation: {framework: vllm, gpus: 4, tp: 2, engines: 2}\n"
                  "topology: \"node:2 gpu:4 nvlink:450GBps nic:50GBps\"\n"
                  "profile: {slice_bytes: 64B, stage_lanes: 2}\n");
    g_autoptr(RefitCase) refit_case = refit_case_parse(input_store(), doc, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "ring");
    g_autofree guint64 *bytes = g_new0(guint64, plan->n_batches);
    guint64 left[2] = {0}, done[2] = {0}, largest = 0;

    g_assert_cmpuint(plan->n_lanes, ==, 2);
    for (guint b = 0; b < plan->n_batches; b++) {
        for (guint c = 0; c < problem->n_classes; c++)
            bytes[b] += refit_plan_batch_members(plan, c, b) * problem->classes[c].bytes;
        left[plan->batches[b].lane] += bytes[b];
        largest = MAX(largest, bytes[b]);
    }
    g_assert_cmpuint(largest * 4, <, MIN(left[0], left[1]));
    for (guint b = 0; b < plan->n_batches; b++) {
        guint lane = plan->batches[b].lane;

        done[lane] += bytes[b];
        left[lane] -= bytes[b];
        if (left[0] > 0 && left[1] > 0)
            g_assert_cmpuint(MAX(done[0], done[1]), <=, MIN(done[0], done[1]) + largest);
    }
}

static void test_relays_spare_the_source(void) {
    /* One source rank, 8 domains of one GPU, 8 tensors of 64 to 71 rows of 1 KiB. Someone else
     * passes on each tensor, so that the source need not send anything twice. */
    static const StrategyCase described = {
        .topology = "node:9 gpu:1 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w0, shape: [64, 512]}\n  - {name: w1, shape: [65, 512]}\n"
                   "  - {name: w2, shape: [66, 512]}\n  - {name: w3, shape: [67, 512]}\n"
                   "  - {name: w4, shape: [68, 512]}\n  - {name: w5, shape: [69, 512]}\n"
                   "  - {name: w6, shape: [70, 512]}\n  - {name: w7, shape: [71, 512]}\n",
        .source = "gpus: 1, rules: [{tensors: \"*\", place: [replicate]}]",
        .pools = {"gpus: 8, first_gpu: 1, rules: [{tensors: \"*\", place: [replicate]}]"},
    };
    const guint64 w = (64 + 65 + 66 + 67 + 68 + 69 + 70 + 71) << 10;

    assert_bytes(&described, "direct", (Bytes){8 * w, 0, 0, w, 8 * w});
    assert_bytes(&described, "ring", (Bytes){8 * w, 0, 0, w, w});
    assert_bytes(&described, "refit", (Bytes){8 * w, 0, 0, w, w});
}

static void test_gather_broadcast_by_hand(void) {
    /* W = 64 KiB in 4 source shards of one domain; destination: one domain of 4 GPUs. */
    static const StrategyCase described = {
        .topology = "node:2 gpu:4 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [64, 512]}\n",
        .source = "gpus: 4, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 4, first_gpu: 4, rules: [{tensors: w, place: [{shard: 1}]}]"},
    };
    const guint64 w = 1 << 16;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "gather-broadcast");

    strategy_assert_sound(plan);
    g_assert_cmpuint(plan->logical_bytes, ==, 2 * w);
    /* Gather: 4 ranks receive 3/4 W. Broadcast: 7 ranks receive W, of whom one is the first of the
     * other domain, plus one that is first back in the domain of the root when the chain returns.
     */
    guint64 assembly[8] = {0}, bucket[8] = {0};
    for (guint i = 0; i < plan->n_transfers; i++) {
        const RefitTransfer *transfer = &plan->transfers[i];
        guint64 *sums = transfer->landing == REFIT_LANDING_ASSEMBLY ? assembly : bucket;
        sums[transfer->dst] += strategy_moved(plan, transfer);
    }
    for (guint rank = 0; rank < 8; rank++) {
        g_assert_cmpuint(assembly[rank], ==, rank < 4 ? w / 4 * 3 : 0);
        g_assert_cmpuint(bucket[rank], ==, rank == 0 ? 0 : w);
    }
    g_assert_cmpuint(plan->link_bytes[NETWORK] + plan->link_bytes[NVLINK], ==, 3 * w + 7 * w);
}

/* ---- every strategy on odd cases ---- */

static void plan_all(const StrategyCase *described) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_plan(problem, refit_strategies()[i]->name);
        strategy_assert_sound(plan);
    }
}

#define TWO_NODES .topology = "node:2 gpu:4 nvlink:450GBps nic:50GBps"

static void test_one_rank_to_one_rank(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [6, 4]}\n  - {name: b, shape: [6]}\n",
        .source = "gpus: 1, rules: [{tensors: \"*\", place: [replicate]}]",
        .pools = {"gpus: 1, first_gpu: 7, rules: [{tensors: \"*\", place: [replicate]}]"},
    };

    plan_all(&described);
    for (guint i = 0; refit_strategies()[i] != NULL; i++) /* 24 + 6 elements of 2 B */
        assert_bytes(&described, refit_strategies()[i]->name, (Bytes){60, 0, 0, 60, 60});
}

static void test_colocated_same_layout(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [8, 4]}\n",
        .source = "gpus: 8, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 8, first_gpu: 0, rules: [{tensors: w, place: [{shard: 0}]}]"},
    };

    plan_all(&described);
    assert_bytes_of_shards(&described, (Bytes){0, 0, 64, 0, 0}); /* all is copied in place */
}

static void test_colocated_other_layout(void) {
    /* Rows over 8 become columns over 4, twice: 16 B needed per rank, 2 B held by each. Of the
     * other 14 B, 6 B are held in its own domain and 8 B in the other. */
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [8, 4]}\n",
        .source = "gpus: 8, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 8, first_gpu: 0, rules: [{tensors: w, mesh: [2, 4], place: [replicate, "
                  "{shard: 1}]}]"},
    };

    plan_all(&described);
    assert_bytes_of_shards(&described, (Bytes){64, 48, 16, 8, 8});
}

static void test_overlapping_needs(void) {
    /* Rank 0 sends, and needs rows 0-3 for one part of the layout and all rows for another; rank 1
     * needs rows 4-7 and columns 0-1. What both parts need is written once. */
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [8, 4]}\n",
        .source = "gpus: 2, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 2, first_gpu: 0, rules: [{tensors: w, parts: [{ranks: [0-1], place: "
                  "[{shard: 0}]}, {ranks: [0], place: [replicate]}, {ranks: [1, 0], place: "
                  "[{shard: 1}]}]}]"},
    };
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    g_assert_cmpuint(problem->needed_bytes, ==, 2 * (32 + 4 * 4 + 4 * 2));
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_plan(problem, refit_strategies()[i]->name);
        guint64 home = 0;

        for (guint t = 0; t < plan->n_transfers; t++)
            if (plan->transfers[t].landing == REFIT_LANDING_HOME && plan->transfers[t].dst == 0)
                home += strategy_moved(plan, &plan->transfers[t]);
        g_assert_cmpuint(home, ==, 64);
    }
}

static void test_partly_overlapping_sides(void) {
    /* Source ranks 0-3, destination ranks 2-5, whole tensor of 64 B each. Ranks 2 and 3 keep 16 B
     * and get 48 B over NVLink; ranks 4 and 5 get 64 B each, or one gets what the other lacks. */
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [8, 4]}\n",
        .source = "gpus: 4, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 4, first_gpu: 2, rules: [{tensors: w, place: [replicate]}]"},
    };

    plan_all(&described);
    assert_bytes(&described, "direct", (Bytes){128, 96, 32, 64, 32});
    assert_bytes(&described, "ring", (Bytes){64, 160, 32, 32, 16});
    assert_bytes(&described, "refit", (Bytes){64, 160, 32, 32, 16});
}

static void test_replicated_on_all_ranks(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [8, 4]}\n",
        .source = "gpus: 8, rules: [{tensors: w, place: [replicate]}]",
        .pools = {"gpus: 8, first_gpu: 0, rules: [{tensors: w, place: [replicate]}]"},
    };

    plan_all(&described);
    assert_bytes(&described, "refit", (Bytes){0, 0, 8 * 64, 0, 0});
    assert_bytes(&described, "direct", (Bytes){0, 0, 8 * 64, 0, 0});
}

static void test_two_pools(void) {
    /* The second pool does not want v; both want w, cut differently, in one domain. */
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [8, 4]}\n  - {name: v, shape: [4]}\n",
        .source = "gpus: 2, rules: [{tensors: \"*\", place: [{shard: 0}]}]",
        .pools = {"gpus: 2, first_gpu: 4, rules: [{tensors: \"*\", place: [{shard: 0}]}]",
                  "gpus: 2, first_gpu: 6, rules: [{tensors: w, place: [{shard: 1}]}], "
                  "absent: [v]"},
    };

    plan_all(&described);
    assert_bytes(&described, "direct", (Bytes){64 + 64 + 8, 0, 0, 36, 68});
    /* w enters the domain once for both pools. */
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "refit");
    g_assert_cmpuint(plan->link_bytes[NETWORK], ==, 64 + 8);
    g_assert_cmpuint(plan->link_bytes[NVLINK], ==, 64);
}

static void test_empty_shards(void) {
    /* 5 rows in chunks of 2 leave the fourth rank nothing; 3 rows in chunks of 1 too. */
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [5, 4]}\n  - {name: v, shape: [3]}\n",
        .source = "gpus: 4, rules: [{tensors: \"*\", place: [{shard: 0}]}]",
        .pools = {"gpus: 4, first_gpu: 4, rules: [{tensors: \"*\", place: [{shard: 0}]}]"},
    };

    plan_all(&described);
    assert_bytes(&described, "direct", (Bytes){46, 0, 0, 18, 18});
}

static void test_uneven_shards(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [7, 9]}\n",
        .source = "gpus: 3, rules: [{tensors: w, place: [{shard: 0, sizes: [5, 0, 2]}]}]",
        .pools = {"gpus: 4, first_gpu: 4, rules: [{tensors: w, place: [{shard: 1, split: "
                  "balanced}]}]"},
    };

    plan_all(&described);
    /* Columns 3, 2, 2, 2 of 7 rows; rank 0 sends 5 rows of 9. */
    assert_bytes(&described, "refit", (Bytes){126, 0, 0, 42, 90});
}

static void test_scalars(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: s, shape: []}\n  - {name: t, shape: [], dtype: f32}\n",
        .source = "gpus: 2, rules: [{tensors: \"*\", place: [replicate]}]",
        .pools = {"gpus: 4, first_gpu: 4, rules: [{tensors: \"*\", place: [replicate]}]"},
    };

    plan_all(&described);
    assert_bytes(&described, "direct", (Bytes){24, 0, 0, 6, 12});
    assert_bytes(&described, "refit", (Bytes){6, 18, 0, 4, 4});
}

static void test_ranks_with_holes(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [8, 4]}\n",
        .source = "gpus: 3, ranks: [6, 0, 3], rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 2, ranks: [7, 1], rules: [{tensors: w, place: [{shard: 1}]}]"},
    };

    plan_all(&described);
    /* Rank 6 holds rows 0-2, rank 0 rows 3-5, rank 3 rows 6-7. Rank 7 needs 2 columns and shares a
     * domain with rank 6, rank 1 with ranks 0 and 3: 20 B and 12 B cross. */
    assert_bytes(&described, "direct", (Bytes){32, 32, 0, 20, 12});
}

static void test_half_bytes(void) {
    /* 98306 elements of 4 bits: thirds of it would start in the middle of a byte, halves too. At
     * multiples of 16 bytes it is cut in 1025, 1024 and what is left of a 1024th. */
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [98306], dtype: f4}\n"
                   "  - {name: v, shape: [6, 32768], dtype: f4}\n",
        .source = "gpus: 1, rules: [{tensors: \"*\", place: [replicate]}]",
        .pools = {"gpus: 3, first_gpu: 4, rules: [{tensors: \"*\", place: [replicate]}]"},
    };

    plan_all(&described);
    /* v goes in thirds of 32 KiB. */
    assert_bytes(&described, "refit",
                 (Bytes){49153 + 98304, 2 * (49153 + 98304), 0, 1025 * 16 + 32768, 49153 + 98304});
}

/* 50 of them are too few for that: 25 bytes go whole, as thirds of 17 would not begin at bytes. */
static void test_few_half_bytes(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [50], dtype: f4}\n",
        .source = "gpus: 1, rules: [{tensors: \"*\", place: [replicate]}]",
        .pools = {"gpus: 3, first_gpu: 4, rules: [{tensors: \"*\", place: [replicate]}]"},
    };
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    refit_case->profile->stripe_bytes.value = 1;
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_plan(problem, refit_strategies()[i]->name);

        strategy_assert_sound(plan);
        if (g_str_equal(plan->strategy, "refit"))
            for (guint t = 0; t < plan->n_transfers; t++)
                g_assert_cmpuint(refit_region_volume(&plan->regions[plan->transfers[t].region]), ==,
                                 50);
    }
}

/* Half of w, 4 MiB, follows over NVLink: 9 us after 84 us, so it pays to cut in batches; 7 stay
 * empty. */
static void test_more_batches_than_tensors(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [4096, 1024]}\n",
        .source = "gpus: 2, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 2, first_gpu: 4, rules: [{tensors: w, place: [replicate]}]"},
    };
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    refit_case->profile->batches = 8;
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_plan(problem, refit_strategies()[i]->name);
        strategy_assert_sound(plan);
        if (g_str_equal(plan->strategy, "refit")) {
            g_assert_cmpuint(plan->n_batches, ==, 8);
            g_assert_cmpuint(refit_plan_batch_members(plan, 0, 0), ==, 1);
        }
    }
}

/* Rows 0-3 of 8 are all that is held and all that is needed; layouts alone cannot say so. */
static void test_partial_source(void) {
    static const StrategyCase described = {
        TWO_NODES,
        .tensors = "  - {name: w, shape: [8, 4]}\n",
        .source = "gpus: 2, rules: [{tensors: w, place: [{shard: 0}]}]",
        .pools = {"gpus: 2, first_gpu: 4, rules: [{tensors: w, place: [{shard: 0}]}]"},
    };
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    RefitClass *klass = &problem->classes[0];
    const RefitHolding held = {1, klass->source->pieces}, need = {1, klass->destination->pieces};
    g_autoptr(RefitCells) cells = refit_cells_new(&held, &need);

    klass->source = &held;
    klass->destination = &need;
    klass->cells = cells;
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitPlan) plan = refit_plan_new(problem, refit_strategies()[i], &error);

        if (refit_strategies()[i]->sends == REFIT_SENDS_SHARDS) {
            g_assert_no_error(error);
            g_assert_cmpuint(strategy_delivered(plan), ==, 32);
            g_assert_cmpuint(plan->link_bytes[NETWORK], ==, 32);
        } else {
            g_assert_null(plan);
            input_assert_error(error, REFIT_ERROR_INFEASIBLE,
                               "gather-broadcast assembles full tensors, but the source side holds "
                               "only part of \"w\"; use another strategy");
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/strategies/find-knows-all-by-name", test_find_known);
    g_test_add_func("/strategies/find-names-the-nearest", test_find_unknown);
    g_test_add_func("/strategies/worked-example", test_worked_example);
    g_test_add_func("/strategies/worked-example-in-stripes", test_worked_example_in_stripes);
    g_test_add_func("/strategies/one-shard-enters-by-eight-nics", test_one_shard_eight_replicas);
    g_test_add_func("/strategies/replica-within-a-domain", test_replica_within_a_domain);
    g_test_add_func("/strategies/replica-over-domains", test_replica_over_domains);
    g_test_add_func("/strategies/pairs-inside-a-domain-use-nvlink", test_pairs_inside_a_domain);
    g_test_add_func("/strategies/ring-leaves-surplus-source-replicas-idle",
                    test_surplus_source_replicas_idle);
    g_test_add_func("/strategies/ring-divides-source-pieces-among-leaders",
                    test_ring_divides_source_pieces);
    g_test_add_func("/strategies/ring-lanes-go-on-side-by-side", test_ring_lanes_side_by_side);
    g_test_add_func("/strategies/relays-spare-the-source", test_relays_spare_the_source);
    g_test_add_func("/strategies/gather-broadcast-by-hand", test_gather_broadcast_by_hand);
    g_test_add_func("/strategies/all-plan-one-rank-to-one-rank", test_one_rank_to_one_rank);
    g_test_add_func("/strategies/colocated-same-layout-sends-nothing", test_colocated_same_layout);
    g_test_add_func("/strategies/colocated-other-layout", test_colocated_other_layout);
    g_test_add_func("/strategies/overlapping-needs-are-met-once", test_overlapping_needs);
    g_test_add_func("/strategies/partly-overlapping-sides", test_partly_overlapping_sides);
    g_test_add_func("/strategies/replicated-on-all-ranks-sends-nothing",
                    test_replicated_on_all_ranks);
    g_test_add_func("/strategies/two-pools-share-what-enters-a-domain", test_two_pools);
    g_test_add_func("/strategies/empty-shards", test_empty_shards);
    g_test_add_func("/strategies/uneven-shards", test_uneven_shards);
    g_test_add_func("/strategies/scalars", test_scalars);
    g_test_add_func("/strategies/ranks-with-holes", test_ranks_with_holes);
    g_test_add_func("/strategies/half-bytes-are-not-cut", test_half_bytes);
    g_test_add_func("/strategies/few-half-bytes-go-whole", test_few_half_bytes);
    g_test_add_func("/strategies/more-batches-than-tensors", test_more_batches_than_tensors);
    g_test_add_func("/strategies/gather-broadcast-needs-whole-tensors", test_partial_source);
    return g_test_run();
}
