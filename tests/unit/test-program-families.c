/*
 * Programs between live parameters of engines: small models of every family, on frameworks that
 * fuse, interleave, stack, transpose and pad, with every strategy, bit by bit; scales of blocks and
 * elements of half a byte; tensors beyond 32 bits, by their numbers alone; a stage with more peers
 * than a turn may have.
 */

#include "program-run.h"
#include "strategy-cases.h"
#include "test-views.h"

static RefitLayout *family_side(const char *side, RefitModel *model, guint next, const char *text) {
    g_autoptr(GError) error = NULL;
    g_autofree char *document = g_strconcat("side: ", text, NULL);
    g_autoptr(RefitDoc) doc = input_doc(document);
    RefitLayout *layout = refit_layout_parse(refit_node_get(refit_doc_root(doc), "side"), side,
                                             model, next, 16, &error);

    g_assert_no_error(error);
    return layout;
}

static RefitCase *family_case(const char *body, RefitForm form, const char *train,
                              const char *generation) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = g_new0(RefitCase, 1);
    g_autofree char *text = g_strconcat("schema: refit.model/1\nname: m\n", body, NULL);
    g_autoptr(RefitDoc) doc = input_doc(text);
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .form = form};

    refit_case->name = g_strdup("made-up");
    refit_case->topology =
        refit_topology_parse_line("node:4 gpu:4 nvlink:450GBps nic:50GBps", &error);
    g_assert_no_error(error);
    refit_case->profile = refit_profile_from_case(NULL, input_store(), &error);
    g_assert_no_error(error);
    refit_case->profile->stripe_bytes.value = 256;
    refit_case->profile->slice_bytes.value = 1024;
    refit_case->profile->bucket_bytes.value = 16384;
    refit_case->profile->batches = 3;
    refit_case->profile->slices = 3;
    refit_case->model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    refit_case->source = family_side("train", refit_case->model, 0, train);
    refit_case->n_destinations = 1;
    refit_case->destinations = g_new0(RefitLayout *, 2);
    refit_case->destinations[0] = family_side("generation", refit_case->model, 8, generation);
    return refit_case;
}

/* `only`: the one strategy to run; NULL: every one. */
static void assert_runs(const char *body, RefitForm form, const char *train, const char *generation,
                        const char *only) {
    g_autoptr(RefitCase) refit_case = family_case(body, form, train, generation);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        const char *strategy = refit_strategies()[i]->name;

        if (only != NULL && !g_str_equal(strategy, only))
            continue;
        g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy);
        g_autoptr(ProgramSet) set = program_set_new(plan);
        static const ProgramOrder orders[] = {PROGRAM_ORDER_EAGER, PROGRAM_ORDER_RANDOM};

        g_test_message("%s to %s, strategy %s", train, generation, strategy);
        for (guint o = 0; o < G_N_ELEMENTS(orders); o++) {
            g_autofree char *complaint = program_set_run(set, orders[o], i);

            g_assert_cmpstr(complaint, ==, NULL);
        }
    }
}

static void assert_family_runs(const char *body) {
    assert_runs(body, REFIT_FORM_PLAIN, "{framework: megatron, gpus: 4, tp: 2, ep: 2}",
                "{framework: vllm, gpus: 4, tp: 2, engines: 2}", NULL);
    assert_runs(body, REFIT_FORM_PLAIN, "{framework: fsdp, gpus: 3}",
                "{framework: sglang, gpus: 2, tp: 2, ep: 2}", "refit");
    assert_runs(body, REFIT_FORM_PLAIN,
                "{framework: megatron, gpus: 4, tp: 2, ep: 4, experts: grouped}",
                "{framework: vllm, gpus: 2, tp: 2, ep: true}", "refit");
}

static void test_qwen3_moe(void) {
    assert_family_runs(SMALL);
}

static void test_deepseek(void) {
    assert_family_runs(DEEPSEEK_SMALL);
}

static void test_qwen3_5(void) {
    assert_family_runs(QWEN3_5_SMALL);
}

static void test_nemotron(void) {
    assert_family_runs(NEMOTRON_SMALL);
}

static void test_gpt_oss(void) {
    assert_family_runs(GPT_OSS_SMALL);
}

static void test_kimi(void) {
    assert_family_runs(KIMI_SMALL);
}

static void test_mixtral(void) {
    assert_family_runs(MIXTRAL_SMALL);
}

static void test_tied(void) {
    assert_runs(TIED, REFIT_FORM_PLAIN, "{framework: megatron, gpus: 4, tp: 2, pp: 2}",
                "{framework: vllm, gpus: 2, tp: 2}", NULL);
}

static void test_scales(void) {
    assert_runs(
        "family: qwen3_moe\nconfig: {hidden_size: 8, vocab_size: 128, num_hidden_layers: 1, "
        "num_attention_heads: 8, num_key_value_heads: 4, head_dim: 4, moe_intermediate_size: 8, "
        "num_experts: 4}\nnative: {style: fp8_block, block: [2, 2], linears: [attention, "
        "expert]}\n",
        REFIT_FORM_NATIVE, "{framework: megatron, gpus: 4, tp: 2, ep: 2}",
        "{framework: vllm, gpus: 4, tp: 4}", NULL);
}

static void test_mxfp4(void) {
    assert_runs("family: gpt_oss\nconfig: {hidden_size: 64, vocab_size: 128, num_hidden_layers: 1, "
                "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, "
                "intermediate_size: 64, num_local_experts: 2}\n"
                "native: {style: mxfp4, linears: [expert]}\n",
                REFIT_FORM_NATIVE, "{framework: megatron, gpus: 2, tp: 2, ep: 2}",
                "{framework: vllm, gpus: 2, tp: 2}", NULL);
}

/* ---- cases of their own ---- */

/* Half bytes, in rows of eight and cut along them; and doubles, so that widths mix in a message. */
static void test_half_bytes(void) {
    static const StrategyCase described = {
        .topology = "node:4 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [6, 8], dtype: F4, role: other}\n"
                   "  - {name: d, shape: [5], dtype: F64, role: other}\n"
                   "  - {name: b, shape: [3], dtype: U8, role: other}\n",
        .source = "ranks: [0-1], rules: [{tensors: w, mesh: [2], place: [{shard: 1}]}, "
                  "{tensors: \"*\", mesh: [2], place: [{shard: 0}]}]",
        .pools = {"ranks: [2-5], rules: [{tensors: w, mesh: [2, 2], place: [replicate, {shard: "
                  "0}]}, {tensors: \"*\", mesh: [4], place: [replicate]}]"}};
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_plan(problem, refit_strategies()[i]->name);
        g_autoptr(ProgramSet) set = program_set_new(plan);

        program_set_assert_right(set, i);
        for (guint e = 0; e < set->programs[2]->n_exchanges; e++) {
            const RefitExchange *exchange = &set->programs[2]->exchanges[e];
            guint last = 64;

            /* Wide elements first. */
            for (guint p = 0; p < exchange->n_pieces; p++) {
                guint bits =
                    refit_dtype_bits(set->programs[2]->pieces[exchange->first_piece + p].dtype);
                g_assert_cmpuint(bits, <=, last);
                last = bits;
            }
        }
    }
}

/*
 * A tensor of 2^40 rows of 4 BF16, 8 TiB, of which rank 2 needs the last column: 2 TiB of runs of
 * two bytes, and rank 3 rows from 2^39 on, which are one run that starts at 4 TiB.
 */
static void test_large(void) {
    static const StrategyCase described = {
        .topology = "node:2 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [1099511627776, 4], dtype: bf16, role: other}\n",
        .source = "ranks: [0], rules: [{tensors: w, mesh: [1], place: [replicate]}]",
        .pools = {"ranks: [2-3], rules: [{tensors: w, mesh: [2], place: [{shard: 0}]}]"}};
    const guint64 half = G_GUINT64_CONSTANT(1) << 42;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, "direct");
    g_autoptr(ProgramSet) set = program_set_new(plan);
    const RefitProgram *source = set->programs[0];
    guint64 offsets = 0;

    g_assert_cmpuint(source->n_exchanges, ==, 2);
    for (guint e = 0; e < 2; e++) {
        g_assert_true(source->exchanges[e].direct);
        g_assert_cmpuint(source->exchanges[e].bytes, ==, half);
        offsets += source->exchanges[e].offset;
        g_assert_cmpuint(source->exchanges[e].offset, ==,
                         source->exchanges[e].peer == 2 ? 0 : half);
    }
    g_assert_cmpuint(offsets, ==, half);
    g_assert_cmpuint(source->out[REFIT_LINK_NETWORK], ==, 2 * half);
    g_assert_cmpuint(source->staging_bytes, ==, 0);
}

/* A sliced stage in which rank 0 sends to 300 ranks in three offsets: turns would be too large. */
static void test_too_many_peers(void) {
    static const StrategyCase described = {
        .topology = "node:38 gpu:8 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [64], dtype: bf16, role: other}\n",
        .source = "ranks: [0], rules: [{tensors: w, mesh: [1], place: [replicate]}]",
        .pools = {"ranks: [1-300], rules: [{tensors: w, mesh: [300], place: [replicate]}]"}};
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "fan out", 4);

    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint rank = 1; rank <= 300; rank++)
        plan_case_add(builder, 0, "0:64", 0, rank, stage, REFIT_LANDING_HOME, NULL, 0);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(ProgramSet) set = program_set_new(plan);

    g_assert_cmpuint(plan->stages[0].slices, ==, 4);
    g_assert_cmpuint(refit_schedule_slices(set->schedule, 0, 0), ==, 1);
    program_set_assert_right(set, 7);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/program-families/qwen3-moe", test_qwen3_moe);
    g_test_add_func("/program-families/deepseek", test_deepseek);
    g_test_add_func("/program-families/qwen3-5", test_qwen3_5);
    g_test_add_func("/program-families/nemotron", test_nemotron);
    g_test_add_func("/program-families/gpt-oss", test_gpt_oss);
    g_test_add_func("/program-families/kimi-k3", test_kimi);
    g_test_add_func("/program-families/mixtral", test_mixtral);
    g_test_add_func("/program-families/tied-embeddings", test_tied);
    g_test_add_func("/program-families/scales-of-blocks", test_scales);
    g_test_add_func("/program-families/mxfp4", test_mxfp4);
    g_test_add_func("/program-families/half-bytes-and-mixed-widths", test_half_bytes);
    g_test_add_func("/program-families/offsets-beyond-32-bits", test_large);
    g_test_add_func("/program-families/too-many-peers-for-slices", test_too_many_peers);
    return g_test_run();
}
