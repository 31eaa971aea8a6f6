/*
 * Programs of ranks, proved, compared with each other and carried out bit by bit in several orders
 * of events: worked plans with direct sends, exchange, relays, assembled tensors and buckets; the
 * shipped tiny case, small models of every family with fused parameters and random cases, with
 * every strategy; colocated sides; ranks without a part; lanes, barriers and windows; staging
 * memory.
 */

#include "program-run.h"
#include "random-case.h"

static void assert_plan_runs(const RefitPlan *plan, guint seed) {
    g_autoptr(ProgramSet) set = program_set_new(plan);

    program_set_assert_right(set, seed);
}

/* ---- worked plans ---- */

static void assert_worked_runs(RefitPlan *(*make)(const RefitProblem *problem)) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = make(problem);

    assert_plan_runs(plan, 1);
}

static void test_direct(void) {
    assert_worked_runs(plan_case_direct_plan);
}

static void test_exchange(void) {
    assert_worked_runs(plan_case_worked_plan);
}

static void test_relay(void) {
    assert_worked_runs(plan_case_relay_plan);
}

static void test_bucket(void) {
    assert_worked_runs(plan_case_bucket_plan);
}

/*
 * By hand: rank 4 of the worked plan takes rows 0-3 of columns 0-1 from rank 0 (16 bytes, strided
 * in rank 0's rows of four, the first half of its own rows of two), passes them to rank 6 in the
 * exchange and takes rows 4-7 from it. The program of rank 4 is one step of one message and one of
 * two, all straight from and into its parameter; rank 0 packs both of its messages.
 */
static void test_worked_numbers(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_worked_plan(problem);
    g_autoptr(ProgramSet) set = program_set_new(plan);
    const RefitProgram *taker = set->programs[4], *source = set->programs[0];

    g_assert_cmpuint(taker->n_steps, ==, 2);
    g_assert_cmpuint(taker->n_turns, ==, 2);
    g_assert_cmpuint(taker->n_exchanges, ==, 3);
    g_assert_cmpuint(taker->steps[0].link, ==, REFIT_LINK_NETWORK);
    g_assert_cmpuint(taker->steps[1].link, ==, REFIT_LINK_NVLINK);
    g_assert_cmpuint(taker->steps[1].n_exchanges, ==, 2);
    /* The exchange waits for the arrival, on the other stream. */
    g_assert_cmpuint(taker->steps[1].n_waits, ==, 1);
    g_assert_cmpuint(taker->waits[taker->steps[1].first_wait].step, ==, 0);
    for (guint e = 0; e < 3; e++) {
        const RefitExchange *exchange = &taker->exchanges[e];

        g_assert_true(exchange->direct);
        g_assert_cmpuint(exchange->memory, ==, REFIT_MEMORY_DESTINATION);
        g_assert_cmpuint(exchange->bytes, ==, 16);
        g_assert_cmpuint(exchange->peer, ==, e == 0 ? 0 : 6);
        g_assert_cmpint(exchange->sends, ==, e == 2);
        g_assert_cmpuint(exchange->offset, ==, e == 1 ? 16 : 0);
    }
    g_assert_cmpuint(taker->staging_bytes, ==, 0);
    g_assert_cmpuint(taker->in[REFIT_LINK_NETWORK], ==, 16);
    g_assert_cmpuint(taker->out[REFIT_LINK_NETWORK], ==, 0);
    g_assert_cmpuint(taker->in[REFIT_LINK_NVLINK], ==, 16);
    g_assert_cmpuint(taker->out[REFIT_LINK_NVLINK], ==, 16);

    g_assert_cmpuint(source->n_turns, ==, 1);
    g_assert_cmpuint(source->n_exchanges, ==, 2);
    for (guint e = 0; e < 2; e++) {
        g_autoptr(GArray) runs = g_array_new(FALSE, FALSE, sizeof(RefitByteRun));

        g_assert_false(source->exchanges[e].direct);
        refit_program_append_runs(source, &source->exchanges[e], &source->turns[0], runs);
        g_assert_cmpuint(runs->len, ==, 4);
        for (guint r = 0; r < runs->len; r++) {
            const RefitByteRun *run = &g_array_index(runs, RefitByteRun, r);
            guint column = source->exchanges[e].peer % 2;

            g_assert_cmpuint(run->bytes, ==, 4);
            g_assert_cmpuint(run->from, ==, 8 * r + 4 * column);
            g_assert_cmpuint(run->to, ==, 4 * r);
            g_assert_cmpuint(run->from_memory, ==, REFIT_MEMORY_SOURCE);
            g_assert_cmpuint(run->to_memory, ==, REFIT_MEMORY_MESSAGE);
        }
    }
}

/* ---- slices ---- */

static void test_cuts(void) {
    static const guint64 big = G_GUINT64_CONSTANT(1) << 60;

    g_assert_cmpuint(refit_schedule_cut(64, 4, 0), ==, 0);
    g_assert_cmpuint(refit_schedule_cut(64, 4, 1), ==, 16);
    g_assert_cmpuint(refit_schedule_cut(64, 4, 3), ==, 48);
    g_assert_cmpuint(refit_schedule_cut(64, 4, 4), ==, 64);
    g_assert_cmpuint(refit_schedule_cut(100, 3, 1), ==, 32);
    g_assert_cmpuint(refit_schedule_cut(100, 3, 2), ==, 64);
    /* Too small to be cut: all of it comes with the last slice. */
    g_assert_cmpuint(refit_schedule_cut(6, 4, 3), ==, 0);
    g_assert_cmpuint(refit_schedule_cut(6, 4, 4), ==, 6);
    g_assert_cmpuint(refit_schedule_cut(big + 5, 65536, 65535), ==, big / 65536 * 65535);
    g_assert_cmpuint(refit_schedule_cut(big + 5, 65536, 65536), ==, big + 5);
    g_assert_cmpuint(refit_schedule_cut(7, 1, 0), ==, 0);
    g_assert_cmpuint(refit_schedule_cut(7, 1, 1), ==, 7);
    for (guint bytes = 0; bytes < 300; bytes++)
        for (guint slices = 1; slices < 20; slices++)
            for (guint i = 0; i < slices; i++)
                g_assert_cmpuint(refit_schedule_cut(bytes, slices, i), <=,
                                 refit_schedule_cut(bytes, slices, i + 1));
}

/* A chain of three hops in four slices: at number k, hop h carries slice k - h. */
static void test_chain(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:2 gpu:2 nvlink:450GBps nic:50GBps",
                      "  - {name: w, shape: [16, 4], dtype: bf16, role: other}\n", 1,
                      "rules: [{tensors: w, ranks: [0], place: [replicate]}]", 3,
                      "rules: [{tensors: w, mesh: [3], place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_chain_plan(problem, "0:16,0:4", 4);
    g_autoptr(ProgramSet) set = program_set_new(plan);
    /* Rank 1 receives over NVLink in numbers 0-3 and sends over the network in 1-4. */
    const RefitProgram *middle = set->programs[1];

    g_assert_cmpuint(middle->n_steps, ==, 2);
    g_assert_cmpuint(middle->n_turns, ==, 8);
    for (guint i = 0; i < middle->n_turns; i++) {
        const RefitTurn *turn = &middle->turns[i];
        const RefitProgramStep *step = &middle->steps[turn->step];
        const RefitExchange *exchange = &middle->exchanges[step->first_exchange];

        g_assert_cmpuint(turn->number, ==, (i + 1) / 2);
        g_assert_cmpuint(step->link, ==,
                         i == 0 || (i < 7 && i % 2 == 1) ? REFIT_LINK_NVLINK : REFIT_LINK_NETWORK);
        g_assert_cmpuint(refit_program_exchange_bytes(middle, exchange, turn), ==, 32);
        g_assert_true(exchange->direct);
    }
    const RefitProgramStep *sends = &middle->steps[1];
    g_assert_cmpuint(sends->n_waits, ==, 1);
    g_assert_true(middle->waits[sends->first_wait].in_slices);
    g_assert_cmpuint(middle->waits[sends->first_wait].step, ==, 0);
    program_set_assert_right(set, 5);
}

/* ---- strategies ---- */

static void assert_case_runs(const RefitCase *refit_case, guint seed) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, refit_strategies()[i]);

        if (plan == NULL)
            continue;
        g_test_message("strategy %s", plan->strategy);
        assert_plan_runs(plan, seed);
    }
}

static RefitCase *parse_case(const char *text) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = input_doc(text);
    RefitCase *refit_case = refit_case_parse(input_store(), doc, &error);

    g_assert_no_error(error);
    return refit_case;
}

static void test_tiny(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), "tiny", NULL, &error);

    g_assert_no_error(error);
    assert_case_runs(refit_case, 2);
}

/* Both sides on the same GPUs: much of it is copied on the spot. */
static void test_colocated(void) {
    g_autoptr(RefitCase) refit_case =
        parse_case("schema: refit.case/1\nmodel: tiny\ndtype: bf16\n"
                   "train: {framework: megatron, gpus: 4, tp: 2, pp: 1, ep: 2}\n"
                   "generation: {framework: vllm, gpus: 4, first_gpu: 2, tp: 2, engines: 2}\n"
                   "topology: \"node:2 gpu:4 nvlink:450GBps nic:50GBps\"\n");

    assert_case_runs(refit_case, 3);
}

/* Two pipeline stages, several destination pools, GPUs that are in none of them. */
static void test_pools(void) {
    g_autoptr(RefitCase) refit_case = parse_case(
        "schema: refit.case/1\nmodel: tiny\ndtype: bf16\n"
        "train: {framework: megatron, gpus: 4, tp: 1, pp: 2, ep: 2}\n"
        "generation:\n  - {framework: vllm, gpus: 2, tp: 2}\n"
        "  - {framework: sglang, gpus: 4, first_gpu: 8, tp: 4}\n"
        "topology: \"node:4 gpu:4 nvlink:450GBps nic:50GBps\"\n"
        "profile: {stripe_bytes: 16B, slice_bytes: 64B, bucket_bytes: 4KiB, stage_lanes: 2, "
        "slices: 3, batches: 4}\n");

    assert_case_runs(refit_case, 4);
}

static void test_idle(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new("node:3 gpu:4 nvlink:450GBps nic:50GBps", WORKED_TENSOR, 4, WORKED_SOURCE, 4,
                      WORKED_DESTINATION);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_worked_plan(problem);
    g_autoptr(ProgramSet) set = program_set_new(plan);

    for (guint rank = 8; rank < 12; rank++) {
        g_assert_cmpuint(set->programs[rank]->n_steps, ==, 0);
        g_assert_cmpuint(set->programs[rank]->n_turns, ==, 0);
        g_assert_cmpuint(set->programs[rank]->staging_bytes, ==, 0);
    }
    program_set_assert_right(set, 6);
}

static void test_random(void) {
    guint first = g_test_rand_int() & 0xffff, n = 8;

    if (g_test_thorough())
        n = 100;
    for (guint i = 0; i < n; i++) {
        g_autoptr(RandomCase) random = random_case_new(first + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);
        g_autofree char *text = random_case_to_string(random);

        g_test_message("seed %u:\n%s", first + i, text);
        assert_case_runs(refit_case, first + i);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/program/direct-sends-arrive", test_direct);
    g_test_add_func("/program/exchange-sends-on-what-arrived", test_exchange);
    g_test_add_func("/program/relays-pass-through-staging-memory", test_relay);
    g_test_add_func("/program/buckets-are-installed", test_bucket);
    g_test_add_func("/program/worked-plan-by-its-numbers", test_worked_numbers);
    g_test_add_func("/program/cuts-are-whole-and-in-order", test_cuts);
    g_test_add_func("/program/hops-of-a-chain-overlap", test_chain);
    g_test_add_func("/program/tiny-case-with-every-strategy", test_tiny);
    g_test_add_func("/program/colocated-sides-copy-on-the-spot", test_colocated);
    g_test_add_func("/program/pools-stages-and-lanes", test_pools);
    g_test_add_func("/program/ranks-without-a-part-do-nothing", test_idle);
    g_test_add_func("/program/random-cases-with-every-strategy", test_random);
    return g_test_run();
}
