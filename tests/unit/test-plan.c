/*
 * Plans and their builder: the worked 8 x 4 example by hand; rounds and hops become offsets and
 * steps; one message per ordered pair and step whatever the order of adding; members and batches;
 * runs on either side; limits; the digest is equal for equal plans and differs after any change;
 * the JSON form holds the same numbers.
 */

#include <jansson.h>

#include "plan-cases.h"

static void test_worked(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_worked_plan(problem);
    g_assert_cmpuint(plan->link_bytes[REFIT_LINK_NETWORK], ==, 64);
    g_assert_cmpuint(plan->link_bytes[REFIT_LINK_NVLINK], ==, 64);
    g_assert_cmpuint(plan->link_bytes[REFIT_LINK_LOCAL], ==, 0);
    for (guint rank = 0; rank < 8; rank++) {
        const RefitRankAccount *account = &plan->accounts[rank];
        gboolean source = rank < 2, destination = rank >= 4;
        g_assert_cmpuint(account->out[REFIT_LINK_NETWORK], ==, source ? 32 : 0);
        g_assert_cmpuint(account->in[REFIT_LINK_NETWORK], ==, destination ? 16 : 0);
        g_assert_cmpuint(account->in[REFIT_LINK_NVLINK], ==, destination ? 16 : 0);
        g_assert_cmpuint(account->out[REFIT_LINK_NVLINK], ==, destination ? 16 : 0);
        g_assert_cmpuint(account->messages_in, ==, destination ? 2 : 0);
        g_assert_cmpuint(account->messages_out, ==, source ? 2 : destination ? 1 : 0);
    }
    g_assert_cmpuint(plan->n_steps, ==, 2);
    g_assert_cmpuint(plan->n_transfers, ==, 8);
    g_assert_cmpuint(plan->n_messages, ==, 8);
    for (guint i = 0; i < 8; i++) {
        g_assert_cmpuint(plan->messages[i].step, ==, i < 4 ? 0 : 1);
        g_assert_cmpuint(plan->messages[i].bytes, ==, 16);
        /* A source holds rows of 4 columns and sends 2 of each: 4 runs. Each destination holds
         * just its 2 columns: one run. */
        g_assert_cmpuint(plan->messages[i].runs_src, ==, i < 4 ? 4 : 1);
        g_assert_cmpuint(plan->messages[i].runs_dst, ==, 1);
    }
    /* The second stage waits for the first, transfer by transfer. */
    for (guint i = 4; i < 8; i++) {
        g_assert_cmpuint(plan->transfers[i].n_deps, ==, 1);
        guint dep = plan->deps[plan->transfers[i].first_dep];
        g_assert_cmpuint(plan->transfers[dep].dst, ==, plan->transfers[i].src);
        g_assert_cmpuint(plan->transfers[dep].region, ==, plan->transfers[i].region);
    }
    g_assert_cmpuint(refit_plan_transfer_bytes(plan, &plan->transfers[0]), ==, 16);
}

static void test_staging_is_contiguous(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_relay_plan(problem);
    g_assert_cmpuint(plan->n_messages, ==, 10);
    for (guint64 i = 0; i < plan->n_messages; i++) {
        g_assert_cmpuint(plan->messages[i].runs_src, ==, 1);
        g_assert_cmpuint(plan->messages[i].runs_dst, ==, 1);
    }
    g_assert_cmpuint(plan->messages[0].bytes, ==, 32);
    g_assert_cmpuint(plan->link_bytes[REFIT_LINK_NVLINK], ==, 64);
    g_assert_cmpuint(plan->link_bytes[REFIT_LINK_NETWORK], ==, 128);
}

static void test_chain_hops(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_bucket_plan(problem);
    /* Gather takes one step; the chain has 4 hops in 4 slices: 4 + 3 step numbers. */
    g_assert_cmpuint(plan->n_steps, ==, 8);
    g_assert_cmpuint(plan->stages[0].n_offsets, ==, 1);
    g_assert_cmpuint(plan->stages[1].n_offsets, ==, 4);
    g_assert_cmpuint(plan->n_messages, ==, 6);
    for (guint hop = 0; hop < 4; hop++) {
        const RefitMessage *message = &plan->messages[2 + hop];
        g_assert_cmpuint(message->step, ==, 1 + hop);
        g_assert_cmpuint(plan->pairs[message->pair].offset, ==, hop);
        g_assert_cmpuint(plan->pairs[message->pair].dst, ==, 4 + hop);
        g_assert_cmpuint(message->bytes, ==, 64);
    }
    g_assert_cmpuint(plan->logical_bytes, ==, 128);
    g_assert_cmpuint(plan->n_obligations, ==, 2);
}

/* ---- rounds ---- */

/* `n_source` ranks that all hold a [2520] vector's chunks, to `n_destination` that need chunks. */
static RefitCase *exchange_case(guint n_source, guint n_destination, const char *tensors) {
    g_autofree char *topology =
        g_strdup_printf("node:%u gpu:1 nvlink:450GBps nic:50GBps", n_source + n_destination);
    return plan_case_new(topology, tensors, n_source,
                         "rules: [{tensors: \"*\", place: [{shard: 0}]}]", n_destination,
                         "rules: [{tensors: \"*\", place: [{shard: 0}]}]");
}

/* Every source sends every destination one element; not a plan that delivers, but one to number. */
static RefitPlanBuilder *all_to_all(const RefitProblem *problem, guint n_source,
                                    guint n_destination, guint peers) {
    RefitPlanBuilder *builder = refit_plan_builder_new(problem, "by hand");
    refit_plan_builder_set_peers_per_step(builder, peers);
    refit_plan_builder_add_stage(builder, "direct", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint source = 0; source < n_source; source++)
        for (guint rank = 0; rank < n_destination; rank++)
            plan_case_add(builder, 0, "0:1", source, n_source + rank, 0, REFIT_LANDING_HOME, NULL,
                          0);
    return builder;
}

#define VECTOR "  - {name: v, shape: [2520], dtype: bf16, role: other}\n"

static void test_rounds(void) {
    static const struct {
        guint n_source, n_destination, peers, rounds;
    } cases[] = {{4, 4, 1, 4}, {2, 6, 2, 3}, {6, 2, 2, 3},
                 {5, 7, 3, 3}, {7, 5, 3, 3}, {1, 9, 4, 3}};
    for (guint number = 0; number < G_N_ELEMENTS(cases); number++) {
        guint n_source = cases[number].n_source, n_destination = cases[number].n_destination;
        g_autoptr(RefitCase) refit_case = exchange_case(n_source, n_destination, VECTOR);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlanBuilder) builder =
            all_to_all(problem, n_source, n_destination, cases[number].peers);
        g_autoptr(RefitPlan) plan = plan_case_finish(builder);
        g_assert_cmpuint(plan->n_steps, ==, cases[number].rounds);
        g_assert_cmpuint(plan->n_messages, ==, n_source * n_destination);
        for (guint step = 0; step < plan->n_steps; step++)
            for (guint rank = 0; rank < n_source + n_destination; rank++) {
                guint n = 0;
                for (guint64 i = 0; i < plan->n_messages; i++) {
                    const RefitPair *pair = &plan->pairs[plan->messages[i].pair];
                    n += plan->messages[i].step == step && (pair->src == rank || pair->dst == rank);
                }
                g_assert_cmpuint(n, <=, cases[number].peers);
            }
    }
}

static void test_round_formula(void) {
    g_autoptr(RefitCase) refit_case = exchange_case(2, 4, VECTOR);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = all_to_all(problem, 2, 4, 1);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    /* Source 0 starts at the first receiver (rank 2), source 1 two further on. */
    static const guint expected[][3] = {{0, 0, 2}, {0, 1, 4}, {1, 0, 3}, {1, 1, 5},
                                        {2, 0, 4}, {2, 1, 2}, {3, 0, 5}, {3, 1, 3}};
    for (guint i = 0; i < 8; i++) {
        g_assert_cmpuint(plan->messages[i].step, ==, expected[i][0]);
        g_assert_cmpuint(plan->pairs[plan->messages[i].pair].src, ==, expected[i][1]);
        g_assert_cmpuint(plan->pairs[plan->messages[i].pair].dst, ==, expected[i][2]);
    }
}

static void test_too_many_operations(void) {
    g_autoptr(RefitCase) refit_case = exchange_case(1, 300, VECTOR);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    for (guint peers = 256; peers <= 257; peers++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitPlanBuilder) builder = all_to_all(problem, 1, 300, peers);
        g_autoptr(RefitPlan) plan = refit_plan_builder_finish(builder, &error);
        if (peers == 256)
            g_assert_no_error(error);
        else
            input_assert_error(error, REFIT_ERROR_INFEASIBLE,
                               "strategy by hand, stage direct: rank 0 would take part in more "
                               "than 256 messages of step 0; use fewer peers per step");
        g_assert_true((plan != NULL) == (peers == 256));
    }
}

static void test_too_many_steps(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = exchange_case(1, 1, VECTOR);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    refit_plan_builder_add_stage(builder, "chain", 0x80000000u);
    plan_case_add(builder, 0, "0:2520", 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
    refit_plan_builder_add_batch(builder, 0, 0, FALSE);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    g_assert_null(refit_plan_builder_finish(builder, &error));
    input_assert_error(error, REFIT_ERROR_OVERFLOW,
                       "the plan would have 4294967296 steps, the limit is 4294967295; use fewer "
                       "batches");
}

static void test_overflow(void) {
    g_autoptr(RefitCase) refit_case = exchange_case(
        1, 1, "  - {name: v, shape: [3000000000, 3000000000], dtype: u8, role: other}\n");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    for (guint n = 2; n <= 3; n++) { /* 9e18 each; the limit is 1.8e19 */
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
        refit_plan_builder_add_stage(builder, "direct", 1);
        plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
        for (guint i = 0; i < n; i++)
            plan_case_add(builder, 0, "0:3000000000,0:3000000000", 0, 1, 0, REFIT_LANDING_HOME,
                          NULL, 0);
        g_autoptr(RefitPlan) plan = refit_plan_builder_finish(builder, &error);
        if (n == 2)
            g_assert_cmpuint(plan->link_bytes[REFIT_LINK_NETWORK], ==,
                             G_GUINT64_CONSTANT(18000000000000000000));
        else
            g_assert_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW);
    }
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    refit_plan_builder_add_logical_bytes(builder, G_MAXUINT64);
    refit_plan_builder_add_logical_bytes(builder, 1);
    g_assert_null(refit_plan_builder_finish(builder, &error));
    input_assert_error(error, REFIT_ERROR_OVERFLOW,
                       "logical bytes of the plan do not fit in 64 bits");
}

/* ---- members, batches, messages ---- */

#define LAYERS                                                                                     \
    "  - {name: \"layers.{0-4}.a\", shape: [8], dtype: bf16, role: other}\n"                       \
    "  - {name: \"layers.{0-2}.b\", shape: [4], dtype: f32, role: other}\n"

static void test_batches(void) {
    g_autoptr(RefitCase) refit_case = exchange_case(1, 1, LAYERS);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->n_classes, ==, 2);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    refit_plan_builder_add_stage(builder, "direct", 1);
    for (guint batch = 0; batch < 3; batch++)
        refit_plan_builder_add_batch(builder, batch % 2, 0, batch == 2);
    static const guint batches_of_a[] = {2, 0, 2, 0, 0}, batches_of_b[] = {0, 0, 0};
    for (guint member = 0; member < 5; member++)
        refit_plan_builder_assign(builder, 0, member, batches_of_a[member]);
    for (guint member = 0; member < 3; member++)
        refit_plan_builder_assign(builder, 1, member, batches_of_b[member]);
    plan_case_add(builder, 1, "0:4", 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
    plan_case_add(builder, 0, "4:8", 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
    plan_case_add(builder, 0, "0:4", 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_assert_cmpuint(plan->n_lanes, ==, 2);
    g_assert_true(plan->batches[2].barrier);

    static const guint order_of_a[] = {1, 3, 4, 0, 2};
    for (guint i = 0; i < 5; i++)
        g_assert_cmpuint(plan->member_order[plan->member_offsets[0] + i], ==, order_of_a[i]);
    g_assert_cmpuint(refit_plan_batch_members(plan, 0, 0), ==, 3);
    g_assert_cmpuint(refit_plan_batch_members(plan, 0, 1), ==, 0);
    g_assert_cmpuint(refit_plan_batch_members(plan, 0, 2), ==, 2);
    g_assert_cmpuint(refit_plan_batch_members(plan, 1, 0), ==, 3);
    g_assert_cmpuint(refit_plan_batch_members(plan, 1, 2), ==, 0);

    /* One pair; nothing in batch 1, whose step stays unused. */
    g_assert_cmpuint(plan->n_pairs, ==, 1);
    g_assert_cmpuint(plan->n_messages, ==, 2);
    g_assert_cmpuint(plan->messages[0].step, ==, 0);
    g_assert_cmpuint(plan->messages[0].bytes, ==, 3 * 16 + 3 * 16);
    g_assert_cmpuint(plan->messages[0].tensors, ==, 3 * 2 + 3);
    g_assert_cmpuint(plan->messages[1].step, ==, 2);
    g_assert_cmpuint(plan->messages[1].bytes, ==, 2 * 16);
    g_assert_cmpuint(plan->messages[1].runs_dst, ==, 4);
    g_assert_cmpuint(plan->n_steps, ==, 3);
}

static void test_one_message_per_pair_and_step(void) {
    g_autoptr(RefitCase) refit_case = exchange_case(3, 4, LAYERS);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(GRand) rand = g_rand_new_with_seed(7);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    refit_plan_builder_set_peers_per_step(builder, 1);
    for (guint stage = 0; stage < 3; stage++)
        refit_plan_builder_add_stage(builder, "direct", 1 + stage);
    for (guint batch = 0; batch < 3; batch++)
        refit_plan_builder_add_batch(builder, 0, 0, FALSE);
    for (guint i = 0; i < problem->n_classes; i++)
        for (guint member = 0; member < problem->classes[i].n_members; member++)
            refit_plan_builder_assign(builder, i, member, (guint)g_rand_int_range(rand, 0, 3));
    guint64 bytes = 0;
    for (guint i = 0; i < 400; i++) {
        guint class_index = (guint)g_rand_int_range(rand, 0, (gint32)problem->n_classes);
        guint lo = (guint)g_rand_int_range(rand, 0, 3);
        g_autofree char *region = g_strdup_printf("%u:%u", lo, lo + 1);
        plan_case_add(builder, class_index, region, (guint)g_rand_int_range(rand, 0, 7),
                      (guint)g_rand_int_range(rand, 0, 7), (guint)g_rand_int_range(rand, 0, 3),
                      REFIT_LANDING_HOME, NULL, 0);
        const RefitClass *klass = &problem->classes[class_index];
        bytes += refit_class_bytes(klass, 1) * klass->n_members;
    }
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    guint64 sum = 0;
    for (guint64 i = 0; i < plan->n_messages; i++) {
        const RefitMessage *message = &plan->messages[i];
        const RefitPair *pair = &plan->pairs[message->pair];
        sum += message->bytes;
        if (i == 0)
            continue;
        const RefitPair *last = &plan->pairs[message[-1].pair];
        gint64 key = ((gint64)message->step * 16 + pair->src) * 16 + pair->dst;
        gint64 last_key = ((gint64)message[-1].step * 16 + last->src) * 16 + last->dst;
        g_assert_cmpint(last_key, <, key);
    }
    g_assert_cmpuint(sum, ==, bytes);
    g_assert_cmpuint(sum, ==, plan->link_bytes[0] + plan->link_bytes[1] + plan->link_bytes[2]);
    /* Stage 0: shifts 1 to 6 of 7 ranks, local copies beside them. Stages 1 and 2: one round for
     * all, and a step for each further slice. */
    g_assert_cmpuint(plan->n_steps, ==, 3 * (6 + 2 + 3));
}

static void test_local_copy(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new(WORKED_TOPOLOGY, VECTOR, 1, "rules: [{tensors: v, place: [replicate]}]", 1,
                      "rules: [{tensors: v, place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    refit_plan_builder_add_stage(builder, "direct", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    plan_case_add(builder, 0, "0:20", 1, 1, 0, REFIT_LANDING_HOME, NULL, 0);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_assert_cmpuint(plan->transfers[0].link, ==, REFIT_LINK_LOCAL);
    g_assert_cmpuint(plan->accounts[1].in[REFIT_LINK_LOCAL], ==, 40);
    g_assert_cmpuint(plan->accounts[1].out[REFIT_LINK_LOCAL], ==, 40);
    g_assert_cmpuint(plan->accounts[1].messages_in, ==, 0);
    g_assert_cmpuint(plan->link_bytes[REFIT_LINK_LOCAL], ==, 40);
}

/* A rank that holds columns 0-1 and 6-7 of 8 in a dense buffer: places, not indices, count. */
static void test_runs_in_local_buffers(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new(WORKED_TOPOLOGY, "  - {name: w, shape: [6, 8], dtype: bf16, role: other}\n",
                      1, "rules: [{tensors: w, place: [replicate]}]", 2,
                      "rules: [{tensors: w, place: [{shard: 1}]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    refit_plan_builder_add_stage(builder, "direct", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    /* All of rank 1's columns of rows 1-3: 3 runs of the source's 8 columns, 1 run at home. */
    plan_case_add(builder, 0, "1:4,0:4", 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
    /* Two of rank 2's columns of all rows: 6 runs on both sides. */
    plan_case_add(builder, 0, "0:6,5:7", 0, 2, 0, REFIT_LANDING_HOME, NULL, 0);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_assert_cmpuint(plan->messages[0].runs_src, ==, 3);
    g_assert_cmpuint(plan->messages[0].runs_dst, ==, 1);
    g_assert_cmpuint(plan->messages[1].runs_src, ==, 6);
    g_assert_cmpuint(plan->messages[1].runs_dst, ==, 6);
}

/* ---- digest ---- */

typedef enum {
    SAME,
    OTHER_STRATEGY,
    OTHER_SLICES,
    OTHER_STAGE_NAME,
    OTHER_LANE,
    OTHER_BUCKETS,
    OTHER_BARRIER,
    OTHER_BATCH_OF_MEMBER,
    OTHER_REGION,
    OTHER_SOURCE,
    OTHER_DESTINATION,
    OTHER_LANDING,
    OTHER_DEPENDENCY,
    OTHER_OBLIGATION,
    OTHER_LOGICAL_BYTES,
    N_CHANGES
} Change;

static RefitPlan *changed_plan(const RefitProblem *problem, Change change) {
    g_autoptr(RefitPlanBuilder) builder =
        refit_plan_builder_new(problem, change == OTHER_STRATEGY ? "other" : "by hand");
    refit_plan_builder_add_stage(builder, "one", 1);
    refit_plan_builder_add_stage(builder, change == OTHER_STAGE_NAME ? "three" : "two",
                                 change == OTHER_SLICES ? 3 : 2);
    refit_plan_builder_add_batch(builder, 0, 0, FALSE);
    refit_plan_builder_add_batch(builder, change == OTHER_LANE ? 1 : 0, change == OTHER_BUCKETS,
                                 change == OTHER_BARRIER);
    for (guint i = 0; i < problem->n_classes; i++)
        for (guint member = 0; member < problem->classes[i].n_members; member++)
            refit_plan_builder_assign(
                builder, i, member,
                (member + (change == OTHER_BATCH_OF_MEMBER && i == 1 && member == 2)) % 2);
    guint first = plan_case_add(builder, 0, change == OTHER_REGION ? "0:3" : "0:4", 0, 2, 0,
                                REFIT_LANDING_HOME, NULL, 0);
    guint second = plan_case_add(builder, 0, "4:8", change == OTHER_SOURCE ? 0 : 1, 2, 0,
                                 REFIT_LANDING_HOME, NULL, 0);
    guint dep = change == OTHER_DEPENDENCY ? second : first;
    plan_case_add(builder, 0, "0:4", 2, change == OTHER_DESTINATION ? 4 : 3, 1,
                  change == OTHER_LANDING ? REFIT_LANDING_RELAY : REFIT_LANDING_HOME, &dep, 1);
    static const guint ranks[] = {4, 5};
    refit_plan_builder_oblige(builder, 0, REFIT_LANDING_BUCKET, ranks,
                              change == OTHER_OBLIGATION ? 1 : 2);
    refit_plan_builder_add_logical_bytes(builder, change == OTHER_LOGICAL_BYTES ? 8 : 7);
    return plan_case_finish(builder);
}

static void test_digest(void) {
    g_autoptr(RefitCase) refit_case = exchange_case(2, 4, LAYERS);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(GPtrArray) digests = g_ptr_array_new_with_free_func(g_free);
    for (guint change = 0; change < N_CHANGES; change++) {
        g_autoptr(RefitPlan) plan = changed_plan(problem, (Change)change);
        g_assert_cmpuint(strlen(plan->digest), ==, 64);
        for (guint i = 0; i < digests->len; i++)
            g_assert_cmpstr(plan->digest, !=, g_ptr_array_index(digests, i));
        g_ptr_array_add(digests, g_strdup(plan->digest));
    }
    g_autoptr(RefitCase) again_case = exchange_case(2, 4, LAYERS);
    g_autoptr(RefitProblem) again = plan_case_problem(again_case);
    g_autoptr(RefitPlan) plan = changed_plan(again, SAME);
    g_assert_cmpstr(plan->digest, ==, g_ptr_array_index(digests, SAME));

    /* The same plan for other tensors is another plan. */
    g_autoptr(RefitCase) other_case =
        exchange_case(2, 4,
                      "  - {name: \"layers.{0-4}.c\", shape: [8], dtype: bf16, role: other}\n"
                      "  - {name: \"layers.{0-2}.b\", shape: [4], dtype: f32, role: other}\n");
    g_autoptr(RefitProblem) other = plan_case_problem(other_case);
    g_autoptr(RefitPlan) renamed = changed_plan(other, SAME);
    g_assert_cmpstr(renamed->digest, !=, plan->digest);
}

/* ---- JSON ---- */

static guint64 number_at(json_t *row, gsize column) {
    json_t *value = json_array_get(row, column);
    g_assert_true(json_is_integer(value));
    return (guint64)json_integer_value(value);
}

static void test_json(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_bucket_plan(problem);
    gsize length;
    g_autofree char *text = refit_plan_to_json(plan, &length);
    g_assert_cmpuint(strlen(text), ==, length);
    json_error_t json_error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &json_error);
    g_assert_nonnull(root);
    g_assert_cmpstr(json_string_value(json_object_get(root, "schema")), ==, "refit.plan/1");
    g_assert_cmpstr(json_string_value(json_object_get(root, "digest")), ==, plan->digest);
    g_assert_cmpstr(json_string_value(json_object_get(root, "model")), ==, "made-up");
    g_assert_cmpint(json_integer_value(json_object_get(root, "steps")), ==, 8);
    g_assert_cmpint(json_integer_value(json_object_get(root, "logical_bytes")), ==, 128);
    json_t *links = json_object_get(root, "link_bytes");
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        g_assert_cmpuint(
            (guint64)json_integer_value(json_object_get(links, refit_link_name((RefitLink)link))),
            ==, plan->link_bytes[link]);

    json_t *transfers = json_object_get(root, "transfers");
    g_assert_cmpuint(json_array_size(transfers), ==, plan->n_transfers);
    json_t *regions = json_object_get(root, "regions");
    for (guint i = 0; i < plan->n_transfers; i++) {
        json_t *row = json_array_get(transfers, i);
        const RefitTransfer *transfer = &plan->transfers[i];
        const guint64 expected[] = {transfer->class_index, transfer->region, transfer->src,
                                    transfer->dst,         transfer->stage,  transfer->link,
                                    transfer->landing};
        g_assert_cmpuint(json_array_size(row), ==, G_N_ELEMENTS(expected) + transfer->n_deps);
        for (guint column = 0; column < G_N_ELEMENTS(expected); column++)
            g_assert_cmpuint(number_at(row, column), ==, expected[column]);
        for (guint dep = 0; dep < transfer->n_deps; dep++)
            g_assert_cmpuint(number_at(row, G_N_ELEMENTS(expected) + dep), ==,
                             plan->deps[transfer->first_dep + dep]);
        g_autofree char *region = refit_region_to_string(&plan->regions[transfer->region]);
        g_assert_cmpstr(json_string_value(json_array_get(regions, transfer->region)), ==, region);
    }
    json_t *messages = json_object_get(root, "messages");
    g_assert_cmpuint(json_array_size(messages), ==, plan->n_messages);
    for (guint64 i = 0; i < plan->n_messages; i++) {
        json_t *row = json_array_get(messages, i);
        const RefitMessage *message = &plan->messages[i];
        const RefitPair *pair = &plan->pairs[message->pair];
        const guint64 expected[] = {
            message->step, message->batch,   pair->stage,    pair->src,         pair->dst,
            pair->link,    message->tensors, message->bytes, message->runs_src, message->runs_dst};
        g_assert_cmpuint(json_array_size(row), ==, G_N_ELEMENTS(expected));
        g_assert_cmpuint(json_array_size(json_object_get(root, "message_columns")), ==,
                         G_N_ELEMENTS(expected));
        for (guint column = 0; column < G_N_ELEMENTS(expected); column++)
            g_assert_cmpuint(number_at(row, column), ==, expected[column]);
    }
    /* Ranks 2 and 3 have nothing to do and no row. */
    json_t *accounts = json_object_get(root, "accounts");
    g_assert_cmpuint(json_array_size(accounts), ==, 6);
    g_assert_cmpuint(number_at(json_array_get(accounts, 2), 0), ==, 4);
    g_assert_cmpuint(number_at(json_array_get(accounts, 2), 3), ==, 64);
    json_t *klass = json_array_get(json_object_get(root, "classes"), 0);
    g_assert_cmpstr(json_string_value(json_array_get(json_object_get(klass, "members"), 0)), ==,
                    "w");
    g_assert_cmpuint(number_at(json_object_get(klass, "shape"), 1), ==, 4);
    json_t *obligation = json_array_get(json_object_get(root, "obligations"), 1);
    g_assert_cmpstr(json_string_value(json_object_get(obligation, "landing")), ==, "bucket");
    g_assert_cmpuint(json_array_size(json_object_get(obligation, "ranks")), ==, 4);
    json_decref(root);
}

static void test_names(void) {
    g_assert_cmpstr(refit_link_name(REFIT_LINK_LOCAL), ==, "local");
    g_assert_cmpstr(refit_link_name(REFIT_LINK_NVLINK), ==, "nvlink");
    g_assert_cmpstr(refit_link_name(REFIT_LINK_NETWORK), ==, "network");
    g_assert_cmpstr(refit_landing_name(REFIT_LANDING_HOME), ==, "home");
    g_assert_cmpstr(refit_landing_name(REFIT_LANDING_RELAY), ==, "relay");
    g_assert_cmpstr(refit_landing_name(REFIT_LANDING_ASSEMBLY), ==, "assembly");
    g_assert_cmpstr(refit_landing_name(REFIT_LANDING_BUCKET), ==, "bucket");
    refit_plan_free(NULL);
    refit_plan_builder_free(NULL);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/plan/the-worked-example-moves-64-bytes-per-link-class", test_worked);
    g_test_add_func("/plan/staging-memory-is-one-run", test_staging_is_contiguous);
    g_test_add_func("/plan/hops-of-a-chain-are-offsets", test_chain_hops);
    g_test_add_func("/plan/a-round-loads-no-rank-with-more-than-its-peers", test_rounds);
    g_test_add_func("/plan/senders-start-at-different-receivers", test_round_formula);
    g_test_add_func("/plan/a-step-has-at-most-256-operations-per-rank", test_too_many_operations);
    g_test_add_func("/plan/too-many-steps-are-refused", test_too_many_steps);
    g_test_add_func("/plan/bytes-beyond-64-bits-are-refused", test_overflow);
    g_test_add_func("/plan/members-move-in-the-batch-they-were-put", test_batches);
    g_test_add_func("/plan/a-pair-has-one-message-per-step", test_one_message_per_pair_and_step);
    g_test_add_func("/plan/a-local-copy-uses-no-link", test_local_copy);
    g_test_add_func("/plan/runs-are-counted-in-local-buffers", test_runs_in_local_buffers);
    g_test_add_func("/plan/the-digest-tells-every-change", test_digest);
    g_test_add_func("/plan/json-holds-the-same-numbers", test_json);
    g_test_add_func("/plan/links-and-landings-have-names", test_names);
    return g_test_run();
}
