/*
 * Messages in chunks: bounds, slots and turns by hand, for messages of exactly one chunk, an
 * element more and several, packed and straight from memory, over pieces and inside slices; the
 * pool that chunks share, by an independent count; as little staging memory as there can be, on
 * random cases with every strategy, bit by bit; shipped cases; too many turns.
 */

#include "program-run.h"
#include "random-case.h"

/* ---- by hand ---- */

typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitPlan *plan;
    ProgramSet *set;
} Worked;

static void worked_clear(Worked *worked) {
    program_set_free(worked->set);
    refit_plan_free(worked->plan);
    refit_problem_free(worked->problem);
    refit_case_free(worked->refit_case);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Worked, worked_clear)

/*
 * A matrix of so many rows and two columns of BF16: ranks 0 and 1 have a column each, rank 2 on the
 * other node receives both in one step. Chunks are half the slots of two exchanges on one stream: a
 * quarter of the budget.
 */
static void work_columns(Worked *worked, guint rows, guint64 budget) {
    g_autofree char *tensor =
        g_strdup_printf("  - {name: w, shape: [%u, 2], dtype: bf16, role: other}\n", rows);
    const StrategyCase described = {
        .topology = "node:2 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = tensor,
        .source = "ranks: [0-1], rules: [{tensors: w, mesh: [2], place: [{shard: 1}]}]",
        .pools = {"ranks: [2], rules: [{tensors: w, mesh: [1], place: [replicate]}]"}};

    worked->refit_case = strategy_case_new(&described);
    worked->refit_case->budget_staging_bytes = budget;
    worked->problem = plan_case_problem(worked->refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(worked->problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 1);

    refit_plan_builder_set_peers_per_step(builder, 2);
    plan_case_assign_all(builder, worked->problem,
                         refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint rank = 0; rank < 2; rank++) {
        g_autofree char *region = g_strdup_printf("0:%u,%u:%u", rows, rank, rank + 1);

        plan_case_add(builder, 0, region, rank, 2, stage, REFIT_LANDING_HOME, NULL, 0);
    }
    worked->plan = plan_case_finish(builder);
    worked->set = program_set_new(worked->plan);
}

/* `last`: bytes of the last chunk of each message; the others have 1024. */
static void assert_columns(guint rows, guint n_chunks, guint64 last) {
    g_auto(Worked) worked = {0};

    work_columns(&worked, rows, 4096);
    const RefitProgram *receiver = worked.set->programs[2];

    g_assert_cmpuint(receiver->n_steps, ==, 1);
    g_assert_cmpuint(receiver->steps[0].chunk_bytes, ==, 1024);
    g_assert_cmpuint(receiver->steps[0].n_chunks, ==, n_chunks);
    g_assert_cmpuint(receiver->n_turns, ==, n_chunks);
    g_assert_cmpuint(receiver->n_exchanges, ==, 2);
    for (guint c = 0; c < n_chunks; c++) {
        const RefitTurn *turn = &receiver->turns[c];
        guint64 bytes = c + 1 < n_chunks ? 1024 : last;

        g_assert_cmpuint(turn->chunk, ==, c);
        for (guint rank = 0; rank < 2; rank++) {
            const RefitExchange *exchange = &receiver->exchanges[rank];
            const RefitProgram *sender = worked.set->programs[rank];
            g_autoptr(GArray) runs = g_array_new(FALSE, FALSE, sizeof(RefitByteRun));

            /* The sender's column is one run. */
            g_assert_cmpuint(sender->n_turns, ==, n_chunks);
            g_assert_true(sender->exchanges[0].direct);
            g_assert_cmpuint(sender->staging_bytes, ==, 0);
            g_assert_cmpuint(
                refit_program_exchange_bytes(sender, sender->exchanges, &sender->turns[c]), ==,
                bytes);
            g_assert_cmpuint(
                refit_program_exchange_offset(sender, sender->exchanges, &sender->turns[c]), ==,
                1024 * c);

            /* The receiver's is every other element. */
            guint64 slot = (last + 255) / 256 * 256, slots = 1;
            if (n_chunks > 1) {
                slot = 1024;
                slots = 2;
            }
            g_assert_false(exchange->direct);
            g_assert_cmpuint(exchange->wire_slots, ==, slots);
            g_assert_cmpuint(exchange->wire_bytes, ==, slot);
            g_assert_cmpuint(refit_program_exchange_bytes(receiver, exchange, turn), ==, bytes);
            g_assert_cmpuint(refit_program_exchange_offset(receiver, exchange, turn), ==,
                             rank * slots * slot + c % 2 * slot);
            refit_program_append_runs(receiver, exchange, turn, runs);
            g_assert_cmpuint(runs->len, ==, bytes / 2);
            for (guint i = 0; i < runs->len; i++) {
                const RefitByteRun *run = &g_array_index(runs, RefitByteRun, i);

                g_assert_cmpuint(run->bytes, ==, 2);
                g_assert_cmpuint(run->from_memory, ==, REFIT_MEMORY_MESSAGE);
                g_assert_cmpuint(run->from, ==, 2 * i);
                g_assert_cmpuint(run->to, ==, 4 * (512 * c + i) + 2 * rank);
            }
            g_assert_cmpuint(receiver->staging_bytes, ==, 2 * slots * slot);
        }
    }
    program_set_assert_right(worked.set, rows);
}

static void test_less(void) {
    assert_columns(2, 1, 4);
}

static void test_one_chunk(void) {
    assert_columns(512, 1, 1024);
}

static void test_element_more(void) {
    assert_columns(513, 2, 2);
}

static void test_several(void) {
    assert_columns(1700, 4, 328);
}

/*
 * 300 elements of 4 bytes, then 300 of 2, in one message of 1800 bytes: the third chunk of 512 is
 * bytes 1024 .. 1200 of the first and 0 .. 336 of the second.
 */
static void test_inside_pieces(void) {
    static const StrategyCase described = {
        .topology = "node:2 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: b, shape: [300], dtype: bf16, role: other}\n"
                   "  - {name: a, shape: [300], dtype: F32, role: other}\n",
        .source = "ranks: [0], rules: [{tensors: \"*\", mesh: [1], place: [replicate]}]",
        .pools = {"ranks: [2], rules: [{tensors: \"*\", mesh: [1], place: [replicate]}]"}};
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(GArray) runs = g_array_new(FALSE, FALSE, sizeof(RefitByteRun));

    refit_case->budget_staging_bytes = 1024;
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "direct");
    g_autoptr(ProgramSet) set = program_set_new(plan);
    const RefitProgram *source = set->programs[0];

    g_assert_cmpuint(source->n_turns, ==, 4);
    refit_program_append_runs(source, &source->exchanges[0], &source->turns[2], runs);
    g_assert_cmpuint(runs->len, ==, 2);
    const RefitByteRun *first = &g_array_index(runs, RefitByteRun, 0), *second = first + 1;
    g_assert_cmpuint(first->from, ==, 1024);
    g_assert_cmpuint(first->to, ==, 0);
    g_assert_cmpuint(first->bytes, ==, 176);
    g_assert_cmpuint(second->from, ==, 0);
    g_assert_cmpuint(second->to, ==, 176);
    g_assert_cmpuint(second->bytes, ==, 336);
    g_assert_cmpuint(first->from_parameter, !=, second->from_parameter);
    g_assert_cmpuint(source->staging_bytes, ==, 1024);
    program_set_assert_right(set, 1);
}

/*
 * Two slices of 1024 bytes over three hops, in chunks of 256: the middle rank receives slices in
 * numbers 0 and 1 over NVLink and sends them on in 1 and 2. Within number 1, chunks of both links
 * take turns.
 */
static void test_inside_slices(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:2 gpu:2 nvlink:450GBps nic:50GBps",
                      "  - {name: w, shape: [1024], dtype: bf16, role: other}\n", 1,
                      "rules: [{tensors: w, ranks: [0], place: [replicate]}]", 3,
                      "rules: [{tensors: w, mesh: [3], place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_chain_plan(problem, "0:1024", 2);
    refit_case->budget_staging_bytes = 2 * 2 * 256; /* two streams, two slots */
    g_autoptr(ProgramSet) set = program_set_new(plan);
    const RefitProgram *middle = set->programs[1];

    g_assert_cmpuint(middle->n_turns, ==, 16);
    for (guint i = 0; i < 16; i++) {
        const RefitTurn *turn = &middle->turns[i];
        const RefitProgramStep *step = &middle->steps[turn->step];
        const RefitExchange *exchange = &middle->exchanges[step->first_exchange];
        guint number = i < 4 ? 0 : i < 12 ? 1 : 2;
        guint chunk = i < 4 ? i : i < 12 ? (i - 4) / 2 : i - 12;
        gboolean network = i >= 12 || (i >= 4 && i % 2 == 1);

        g_assert_cmpuint(turn->number, ==, number);
        g_assert_cmpuint(turn->chunk, ==, chunk);
        g_assert_cmpuint(step->link, ==, network ? REFIT_LINK_NETWORK : REFIT_LINK_NVLINK);
        g_assert_cmpuint(refit_program_exchange_bytes(middle, exchange, turn), ==, 256);
        g_assert_cmpuint(refit_program_exchange_offset(middle, exchange, turn), ==,
                         1024 * (number - step->number) + 256 * chunk);
    }
    program_set_assert_right(set, 2);
}

/* ---- the pool ---- */

/* Most exchanges of a rank under one number of an unsliced stage and link class. */
static guint count_exchanges(const RefitPlan *plan, guint stage, RefitLink link) {
    guint most = 0;

    for (guint number = 0; number < plan->n_steps; number++)
        for (guint rank = 0; rank < plan->problem->n_ranks; rank++) {
            guint n = 0;

            for (guint m = 0; m < plan->n_messages; m++) {
                const RefitPair *pair = &plan->pairs[plan->messages[m].pair];

                n += plan->messages[m].step == number && pair->stage == stage &&
                     pair->link == link && (pair->src == rank || pair->dst == rank);
            }
            most = MAX(most, n);
        }
    return most;
}

static guint count_streams(const RefitPlan *plan) {
    g_autoptr(GHashTable) streams = g_hash_table_new(NULL, NULL);

    for (guint m = 0; m < plan->n_messages; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];

        if (pair->link != REFIT_LINK_LOCAL)
            g_hash_table_add(streams, GUINT_TO_POINTER(refit_program_stream(
                                          plan, pair->stage, plan->messages[m].batch, pair->link)));
    }
    return g_hash_table_size(streams);
}

static void assert_pool(const RefitPlan *plan, guint64 pool) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProgramIndex) index = refit_program_index_new(plan, &error);

    g_assert_no_error(error);
    for (guint stage = 0; stage < plan->n_stages; stage++) {
        g_assert_cmpuint(refit_program_index_chunk_bytes(index, stage, REFIT_LINK_LOCAL), ==,
                         G_MAXUINT64);
        for (guint link = REFIT_LINK_NVLINK; link < REFIT_N_LINKS; link++) {
            guint n = count_exchanges(plan, stage, link);
            guint64 bytes = pool / ((guint64)2 * count_streams(plan) * plan->window * MAX(n, 1));

            g_assert_cmpuint(refit_program_index_chunk_bytes(index, stage, link), ==,
                             n == 0 ? refit_program_index_chunk_bytes(index, stage, link)
                                    : MAX(bytes / 256 * 256, 256));
        }
    }
}

/* Relays of 32 bytes take 256; what is left is for messages. */
static void test_pool(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) direct = plan_case_direct_plan(problem);
    g_autoptr(RefitPlan) relay = plan_case_relay_plan(problem);

    assert_pool(direct, REFIT_PROGRAM_POOL_BYTES);
    assert_pool(relay, REFIT_PROGRAM_POOL_BYTES);
    refit_case->budget_staging_bytes = G_GUINT64_CONSTANT(1) << 40;
    assert_pool(relay, REFIT_PROGRAM_POOL_BYTES);
    refit_case->budget_staging_bytes = 100000;
    assert_pool(direct, 100000);
    assert_pool(relay, 100000 - 256);
    RefitPlan windowed = *direct;
    windowed.window = 3;
    assert_pool(&windowed, 100000);
    refit_case->budget_staging_bytes = 100;
    assert_pool(direct, 0);
    assert_pool(relay, 0);
}

/* Two exchanges with two slots of 256 bytes are the least. */
static void test_least(void) {
    g_autoptr(GError) error = NULL;
    g_auto(Worked) worked = {0};

    work_columns(&worked, 1700, 1024);
    g_assert_cmpuint(worked.set->programs[2]->staging_bytes, ==, 1024);
    g_assert_cmpuint(worked.set->programs[2]->n_turns, ==, 14);
    worked.refit_case->budget_staging_bytes = 1023;
    g_autoptr(RefitProgramIndex) index = refit_program_index_new(worked.plan, &error);
    g_assert_no_error(error);
    g_assert_null(refit_program_new(index, 2, NULL, worked.set->destination[2], &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE);
    g_assert_nonnull(
        strstr(error->message, "rank 2 needs 1024 bytes of staging memory, 0 of them"));
    g_assert_nonnull(strstr(error->message, "the budget is 1023; state a larger one"));
}

/* 4 TiB in chunks of 256 bytes. */
static void test_too_many_turns(void) {
    static const StrategyCase described = {
        .topology = "node:2 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [2199023255552], dtype: bf16, role: other}\n",
        .source = "ranks: [0], rules: [{tensors: w, mesh: [1], place: [replicate]}]",
        .pools = {"ranks: [2], rules: [{tensors: w, mesh: [1], place: [replicate]}]"}};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);

    refit_case->budget_staging_bytes = 512;
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "direct");
    g_autoptr(RefitProgramIndex) index = refit_program_index_new(plan, &error);
    g_assert_no_error(error);
    g_autoptr(RefitRankViews) views = refit_rank_views_new(refit_case->source, 0, &error);
    g_assert_no_error(error);
    guint64 bytes;

    g_assert_null(refit_program_new(index, 0, views, NULL, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT);
    g_assert_nonnull(strstr(error->message, "state a larger staging budget"));
    g_clear_error(&error);
    g_assert_false(refit_program_index_staging(index, 0, &bytes, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT);
}

/* ---- strategies ---- */

/* Runs a plan within `budget`; chunks beyond the first of each number and rank. */
static guint run_within(RefitCase *refit_case, const RefitPlan *plan, guint64 budget, guint seed) {
    guint n = 0;

    refit_case->budget_staging_bytes = budget;
    g_autoptr(ProgramSet) set = program_set_new(plan);
    for (guint rank = 0; rank < set->n_ranks; rank++)
        for (guint i = 0; set->programs[rank] != NULL && i < set->programs[rank]->n_steps; i++)
            n += set->programs[rank]->steps[i].n_chunks - 1;
    program_set_assert_right(set, seed);
    return n;
}

static guint run_in_chunks(RefitCase *refit_case, guint seed) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    guint n = 0;

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, refit_strategies()[i]);

        if (plan == NULL)
            continue;
        guint64 least = program_least_staging(refit_case, plan);
        g_test_message("strategy %s within %" G_GUINT64_FORMAT, plan->strategy, least);
        n += run_within(refit_case, plan, MAX(least, 1), seed);
        n += run_within(refit_case, plan, 3 * MAX(least, 1), seed + 1);
    }
    return n;
}

static void test_random(void) {
    guint first = g_test_rand_int() & 0xffff, n = g_test_thorough() ? 60 : 6, n_chunks = 0;

    for (guint i = 0; i < n; i++) {
        g_autoptr(RandomCase) random = random_case_new(first + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);
        g_autofree char *text = random_case_to_string(random);

        g_test_message("seed %u:\n%s", first + i, text);
        n_chunks += run_in_chunks(refit_case, first + i);
    }
    g_test_message("%u chunks", n_chunks);
    g_assert_cmpuint(n_chunks, >, 0);
}

static void test_tiny(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), "tiny", NULL, &error);

    g_assert_no_error(error);
    g_assert_cmpuint(run_in_chunks(refit_case, 3), >, 0);
}

/* Without a budget, wire memory is the pool, whatever the sizes of messages. */
static void assert_shipped(const char *name, const char *strategy) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), name, NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy);
    g_autoptr(RefitProgramIndex) index = refit_program_index_new(plan, &error);
    g_assert_no_error(error);
    guint64 bytes, most = 0;

    for (guint rank = 0; rank < problem->n_ranks; rank++) {
        g_assert_true(refit_program_index_staging(index, rank, &bytes, &error));
        g_assert_no_error(error);
        most = MAX(most, bytes);
    }
    g_test_message("%s, %s: %" G_GUINT64_FORMAT, name, strategy, most);
    g_assert_cmpuint(most, <=, REFIT_PROGRAM_POOL_BYTES);
    g_assert_cmpuint(most, >=, REFIT_PROGRAM_POOL_BYTES / 4);
}

/* Single messages of these have gigabytes. Whole tensors take memory beside the pool. */
static void test_shipped(void) {
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        const char *strategy = refit_strategies()[i]->name;

        if (strategy_sends(strategy) != STRATEGY_SENDS_SHARDS)
            continue;
        assert_shipped("kimi-k2-h100", strategy);
        assert_shipped("qwen3-235b-h100", strategy);
        if (strategy_long_tier()) {
            assert_shipped("deepseek-v3-h100", strategy);
            assert_shipped("llama-405b-fsdp-h100", strategy);
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/program-chunks/less-than-a-chunk-is-one", test_less);
    g_test_add_func("/program-chunks/exactly-a-chunk-is-one", test_one_chunk);
    g_test_add_func("/program-chunks/an-element-more-is-two", test_element_more);
    g_test_add_func("/program-chunks/several-with-a-rest", test_several);
    g_test_add_func("/program-chunks/bounds-lie-inside-pieces", test_inside_pieces);
    g_test_add_func("/program-chunks/bounds-lie-inside-slices", test_inside_slices);
    g_test_add_func("/program-chunks/the-pool-is-shared-out", test_pool);
    g_test_add_func("/program-chunks/less-than-the-least-is-refused", test_least);
    g_test_add_func("/program-chunks/too-many-turns-are-refused", test_too_many_turns);
    g_test_add_func("/program-chunks/random-cases-in-little-memory", test_random);
    g_test_add_func("/program-chunks/tiny-case-in-little-memory", test_tiny);
    g_test_add_func("/program-chunks/shipped-cases-stay-within-the-pool", test_shipped);
    return g_test_run();
}
