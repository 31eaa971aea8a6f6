/*
 * Messages in chunks: bounds, slots and turns by hand, for messages of exactly one chunk, an
 * element more and several, packed and straight from memory, over pieces and inside slices; nothing
 * is cut where nobody packs; as little staging memory as there can be, on random cases with every
 * strategy, bit by bit; too many turns.
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
 * other node receives both in one step: of a budget of 4096, each chunk has 1024 bytes, in grains
 * of 256.
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

/* `borders`: where each of the chunks of a message begins, and where the last one ends. `slot`:
 * memory for the largest of them. */
static void assert_columns(guint rows, guint n_chunks, const guint64 *borders, guint64 slot) {
    const guint64 slots = MIN(n_chunks, 2);
    g_auto(Worked) worked = {0};

    work_columns(&worked, rows, 4096);
    const RefitProgram *receiver = worked.set->programs[2];

    g_assert_cmpuint(receiver->n_steps, ==, 1);
    g_assert_cmpuint(receiver->steps[0].cutting.n, ==, n_chunks);
    g_assert_cmpuint(receiver->steps[0].cutting.grain, ==, 256);
    g_assert_cmpuint(receiver->steps[0].n_chunks, ==, n_chunks);
    g_assert_cmpuint(receiver->n_turns, ==, n_chunks);
    g_assert_cmpuint(receiver->n_exchanges, ==, 2);
    g_assert_cmpuint(receiver->staging_bytes, ==, 2 * slots * slot);
    for (guint c = 0; c < n_chunks; c++) {
        const RefitTurn *turn = &receiver->turns[c];
        guint64 bytes = borders[c + 1] - borders[c];

        g_assert_cmpuint(turn->chunk, ==, c);
        g_assert_cmpuint(refit_program_turn_place(receiver, turn), ==, c);
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
                borders[c]);

            /* The receiver's is every other element. In a slot, one message is behind the other. */
            g_assert_false(exchange->direct);
            g_assert_cmpuint(exchange->wire, ==, rank * slot);
            g_assert_cmpuint(exchange->wire_bytes, ==, slot);
            g_assert_cmpuint(exchange->wire_step, ==, 2 * slot);
            g_assert_cmpuint(exchange->wire_slots, ==, slots);
            g_assert_cmpuint(refit_program_exchange_bytes(receiver, exchange, turn), ==, bytes);
            g_assert_cmpuint(refit_program_exchange_offset(receiver, exchange, turn), ==,
                             rank * slot + c % 2 * 2 * slot);
            refit_program_append_runs(receiver, exchange, turn, runs);
            g_assert_cmpuint(runs->len, ==, bytes / 2);
            for (guint i = 0; i < runs->len; i++) {
                const RefitByteRun *run = &g_array_index(runs, RefitByteRun, i);

                g_assert_cmpuint(run->bytes, ==, 2);
                g_assert_cmpuint(run->from_memory, ==, REFIT_MEMORY_MESSAGE);
                g_assert_cmpuint(run->from, ==, 2 * i);
                g_assert_cmpuint(run->to, ==, 4 * (borders[c] / 2 + i) + 2 * rank);
            }
        }
    }
    program_set_assert_right(worked.set, rows);
}

static void test_less(void) {
    assert_columns(2, 1, (guint64[]){0, 4}, 256);
}

static void test_one_chunk(void) {
    assert_columns(512, 1, (guint64[]){0, 1024}, 1024);
}

/* 1026 bytes: not 1024 and 2, but halves, as near as grains come to them: two and three, of which
 * the last has 2 bytes. A slot has room for three. */
static void test_element_more(void) {
    assert_columns(513, 2, (guint64[]){0, 512, 1026}, 768);
}

/* 3400 bytes are 14 grains, of which a chunk may have 4: four chunks, with borders behind 3.5, 7
 * and 10.5 of them; 2200 bytes are 9: three chunks of 3. */
static void test_several(void) {
    assert_columns(1700, 4, (guint64[]){0, 3 * 256, 7 * 256, 10 * 256, 3400}, 1024);
    assert_columns(1100, 3, (guint64[]){0, 3 * 256, 6 * 256, 2200}, 768);
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

/* ---- slices ---- */

#define CHAIN_TOPOLOGY "node:2 gpu:2 nvlink:450GBps nic:50GBps"
#define CHAIN_SOURCE "rules: [{tensors: w, ranks: [0], place: [replicate]}]"
#define CHAIN_DESTINATION "rules: [{tensors: w, mesh: [3], place: [replicate]}]"

/* Both columns of a matrix go from rank 0 to 1, to 2 and to 3 in two slices, in one message. */
static RefitPlan *plan_columns(const RefitProblem *problem) {
    static const char *const regions[] = {"0:480,0:1", "0:480,1:2"};
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "chain", 2);

    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint column = 0, dep = 0; column < 2; column++)
        for (guint hop = 0; hop < 3; hop++)
            dep = plan_case_add(builder, 0, regions[column], hop, hop + 1, stage,
                                REFIT_LANDING_HOME, &dep, hop == 0 ? 0 : 1);
    return plan_case_finish(builder);
}

/*
 * By hand, with the middle rank. Each slice is 480 bytes of a column, so 960 under a number, in
 * chunks of 256, 256, 256 and 192. Numbers 0 and 1 bring slices over NVLink, numbers 1 and 2 send
 * them on over the network; within number 1, chunks of both links take turns. Rows are packed: the
 * elements of a column are 4 bytes apart. Each stream has two slots of one chunk.
 */
static void test_inside_slices(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new(CHAIN_TOPOLOGY, "  - {name: w, shape: [480, 2], dtype: bf16, role: other}\n",
                      1, CHAIN_SOURCE, 3, CHAIN_DESTINATION);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_columns(problem);
    refit_case->budget_staging_bytes = 2 * 2 * 256; /* two streams, two slots */
    g_autoptr(ProgramSet) set = program_set_new(plan);
    const RefitProgram *middle = set->programs[1];

    g_assert_cmpuint(middle->n_turns, ==, 16);
    g_assert_cmpuint(middle->staging_bytes, ==, 1024);
    for (guint i = 0; i < 16; i++) {
        const RefitTurn *turn = &middle->turns[i];
        const RefitProgramStep *step = &middle->steps[turn->step];
        const RefitExchange *exchange = &middle->exchanges[step->first_exchange];
        guint number = i < 4 ? 0 : i < 12 ? 1 : 2;
        guint chunk = i < 4 ? i : i < 12 ? (i - 4) / 2 : i - 12;
        gboolean network = i >= 12 || (i >= 4 && i % 2 == 1);
        guint slice = network ? number - 1 : number;
        g_autoptr(GArray) runs = g_array_new(FALSE, FALSE, sizeof(RefitByteRun));

        g_assert_cmpuint(turn->number, ==, number);
        g_assert_cmpuint(turn->chunk, ==, chunk);
        g_assert_cmpuint(step->link, ==, network ? REFIT_LINK_NETWORK : REFIT_LINK_NVLINK);
        g_assert_false(exchange->direct);
        g_assert_cmpuint(refit_program_exchange_bytes(middle, exchange, turn), ==,
                         chunk == 3 ? 192 : 256);
        g_assert_cmpuint(refit_program_exchange_offset(middle, exchange, turn), ==,
                         (network ? 512 : 0) + (4 * slice + chunk) % 2 * 256);
        refit_program_append_runs(middle, exchange, turn, runs);
        g_assert_cmpuint(runs->len, ==, chunk == 3 ? 96 : 128);
        for (guint r = 0; r < runs->len; r++) {
            const RefitByteRun *run = &g_array_index(runs, RefitByteRun, r);
            guint element = 128 * chunk + r, column = element / 240;
            guint64 at = 4 * (240 * slice + element % 240) + 2 * column;

            g_assert_cmpuint(run->bytes, ==, 2);
            g_assert_cmpuint(network ? run->to : run->from, ==, 2 * r);
            g_assert_cmpuint(network ? run->from : run->to, ==, at);
        }
    }
    program_set_assert_right(set, 2);
}

/* The same chain of a single run: nobody packs, so nothing is cut, however small the budget is. */
static void test_nobody_packs(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(
        CHAIN_TOPOLOGY, "  - {name: w, shape: [1099511627776], dtype: bf16, role: other}\n", 1,
        CHAIN_SOURCE, 3, CHAIN_DESTINATION);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_chain_plan(problem, "0:1099511627776", 2);
    refit_case->budget_staging_bytes = 1;
    g_autoptr(ProgramSet) set = program_set_new(plan);

    for (guint rank = 0; rank < 4; rank++) {
        const RefitProgram *program = set->programs[rank];

        g_assert_cmpuint(program->n_turns, ==, rank == 0 || rank == 3 ? 2 : 4);
        g_assert_cmpuint(program->staging_bytes, ==, 0);
        for (guint i = 0; i < program->n_turns; i++)
            g_assert_cmpuint(
                refit_program_exchange_bytes(
                    program,
                    &program->exchanges[program->steps[program->turns[i].step].first_exchange],
                    &program->turns[i]),
                ==, G_GUINT64_CONSTANT(1) << 40);
    }
}

/* ---- the least, and limits ---- */

/* Two exchanges with two slots of 256 bytes are the least. */
static void test_least(void) {
    g_autoptr(GError) error = NULL;
    g_auto(Worked) worked = {0};

    work_columns(&worked, 1700, 1024);
    g_assert_cmpuint(worked.set->programs[2]->staging_bytes, ==, 1024);
    g_assert_cmpuint(worked.set->programs[2]->n_turns, ==, 14);
    g_assert_true(refit_schedule_check_budget(worked.set->schedule, &error));
    g_assert_no_error(error);
    worked.refit_case->budget_staging_bytes = 1023;
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(worked.plan, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_schedule_staging_bytes(schedule, 2), ==, 1024);
    g_assert_false(refit_schedule_check_budget(schedule, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE);
    g_assert_nonnull(
        strstr(error->message, "rank 2 needs 1024 bytes of staging memory, 0 of them"));
    g_assert_nonnull(strstr(error->message, "the budget is 1023; state a larger one"));
}

/* A column of 4 TiB, packed in chunks of 256 bytes. */
static void test_too_many_turns(void) {
    static const StrategyCase described = {
        .topology = "node:2 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [2199023255552, 2], dtype: bf16, role: other}\n",
        .source = "ranks: [0], rules: [{tensors: w, mesh: [1], place: [replicate]}]",
        .pools = {"ranks: [2-3], rules: [{tensors: w, mesh: [2], place: [{shard: 1}]}]"}};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "direct");

    refit_case->budget_staging_bytes = 512;
    g_assert_null(refit_schedule_new(plan, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT);
    g_assert_nonnull(strstr(error->message, "rank 0 would have more than 16777216 turns"));
    g_assert_nonnull(strstr(error->message, "with step 0 in "));
    g_assert_nonnull(strstr(error->message, "state a larger staging budget"));
}

/* ---- strategies ---- */

/* Runs a plan within `budget`; chunks beyond the first of each number and rank. */
static guint run_within(RefitCase *refit_case, const RefitPlan *plan, guint64 budget, guint seed) {
    g_autoptr(GError) error = NULL;
    guint n = 0;

    refit_case->budget_staging_bytes = budget;
    g_autoptr(ProgramSet) set = program_set_new(plan);
    g_assert_true(refit_schedule_check_budget(set->schedule, &error));
    g_assert_no_error(error);
    for (guint i = 0; i < set->schedule->n_steps; i++)
        n += set->schedule->steps[i].n_chunks - 1;
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

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/program-chunks/less-than-a-chunk-is-one", test_less);
    g_test_add_func("/program-chunks/exactly-a-chunk-is-one", test_one_chunk);
    g_test_add_func("/program-chunks/an-element-more-is-two", test_element_more);
    g_test_add_func("/program-chunks/several-with-a-rest", test_several);
    g_test_add_func("/program-chunks/bounds-lie-inside-pieces", test_inside_pieces);
    g_test_add_func("/program-chunks/bounds-lie-inside-slices", test_inside_slices);
    g_test_add_func("/program-chunks/nothing-is-cut-where-nobody-packs", test_nobody_packs);
    g_test_add_func("/program-chunks/less-than-the-least-is-refused", test_least);
    g_test_add_func("/program-chunks/too-many-turns-are-refused", test_too_many_turns);
    g_test_add_func("/program-chunks/random-cases-in-little-memory", test_random);
    g_test_add_func("/program-chunks/tiny-case-in-little-memory", test_tiny);
    return g_test_run();
}
