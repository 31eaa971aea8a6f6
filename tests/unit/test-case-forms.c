/*
 * Cases whose sides hold the weights in forms of their own: what is held and by whom, bytes of each
 * form by hand, ratios per rank, several pools, forms that turn out to be the same, errors with
 * their places; DeepSeek-V3 cast to FP8 on the way, to the byte.
 */

#include "input-text.h"
#include "model/problem/refit-bound.h"

static const char small[] = "schema: refit.case/1\n"
                            "model: tiny\n"
                            "train: {framework: megatron, gpus: 4, tp: 2, pp: 1, ep: 2}\n"
                            "generation:\n"
                            "  - {framework: vllm, gpus: 2, tp: 2}\n"
                            "  - {framework: vllm, gpus: 1, tp: 1}\n"
                            "topology: \"node:4 gpu:4 nvlink:450GBps nic:50GBps\"\n";

static RefitCase *parse(const char *text, const char *overrides, GError **error) {
    g_autoptr(RefitDoc) doc = input_doc(text);
    g_auto(GStrv) words = g_strsplit(overrides, " ", -1);
    for (guint i = 0; words[i] != NULL && words[i][0] != '\0'; i++)
        g_assert_true(refit_doc_set(doc, words[i], NULL));
    return refit_case_parse(input_store(), doc, error);
}

static RefitCase *parse_ok(const char *overrides) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = parse(small, overrides, &error);
    g_assert_no_error(error);
    return refit_case;
}

static void expect_form(const RefitCase *refit_case, guint pool, const char *form, guint64 bytes) {
    const RefitLayout *held = refit_case_held(refit_case, pool);
    if (form == NULL) {
        g_assert_null(held);
        return;
    }
    g_assert_nonnull(held);
    g_assert_cmpstr(refit_model_form(refit_layout_model(held)), ==, form);
    g_assert_cmpuint(refit_model_bytes(refit_layout_model(held)), ==, bytes);
}

/*
 * tiny has 2544 parameters, 1920 of them in matrices that FP8 quantizes, with blocks of 2 x 4.
 * BF16: 5088 B. FP8: 1920 B, 240 scales of 4 B, and 624 numbers of 2 B, together 4128 B.
 */
static void test_forms(void) {
    static const struct {
        const char *overrides, *wire;
        guint64 wire_bytes;
        const char *source, *first, *second;
        guint64 source_bytes, first_bytes, second_bytes;
    } rows[] = {
        {"", "bf16", 5088, NULL, NULL, NULL, 0, 0, 0},
        {"dtype=fp8", "fp8", 4128, NULL, NULL, NULL, 0, 0, 0},
        {"dtype=fp8 train.dtype=bf16", "fp8", 4128, "bf16", NULL, NULL, 5088, 0, 0},
        {"train.dtype=bf16 generation.0.dtype=bf16", "bf16", 5088, NULL, NULL, NULL, 0, 0, 0},
        {"train.dtype=f32 generation.1.dtype=fp8", "bf16", 5088, "f32", NULL, "fp8", 10176, 0,
         4128},
        {"generation.0.dtype=fp8 generation.1.dtype=f16", "bf16", 5088, NULL, "fp8", "f16", 0, 4128,
         5088},
        /* No native form is stated, so that it is the plain one. */
        {"train.dtype=native", "bf16", 5088, NULL, NULL, NULL, 0, 0, 0},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_test_message("%s", rows[i].overrides);
        g_autoptr(RefitCase) refit_case = parse_ok(rows[i].overrides);
        g_assert_cmpstr(refit_model_form(refit_case->model), ==, rows[i].wire);
        g_assert_cmpuint(refit_model_bytes(refit_case->model), ==, rows[i].wire_bytes);
        expect_form(refit_case, REFIT_CASE_SOURCE, rows[i].source, rows[i].source_bytes);
        expect_form(refit_case, 0, rows[i].first, rows[i].first_bytes);
        expect_form(refit_case, 1, rows[i].second, rows[i].second_bytes);
    }
}

/* The held layout has the ranks and the cuts of the side. */
static void test_ranks(void) {
    g_autoptr(RefitCase) refit_case = parse_ok("generation.1.dtype=fp8 generation.0.dtype=f32");
    const RefitLayout *held = refit_case_held(refit_case, 1);
    g_assert_cmpuint(refit_layout_n_ranks(held), ==, 1);
    g_assert_cmpuint(refit_layout_ranks(held)[0], ==, 6);
    g_assert_cmpuint(refit_layout_ranks(refit_case->destinations[1])[0], ==, 6);
    g_assert_cmpstr(refit_layout_side(held), ==, "generation.1");
    g_assert_cmpuint(refit_layout_ranks(refit_case_held(refit_case, 0))[0], ==, 4);
    guint64 total;
    g_autoptr(GError) error = NULL;
    g_assert_true(refit_layout_total_bytes(held, NULL, 0, &total, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(total, ==, 4128);
    g_assert_true(refit_layout_total_bytes(held, (const guint[]){6, 1000000}, 2, &total, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(total, ==, 0);
    guint64 bytes[8] = {0}, left;
    held = refit_case_held(refit_case, 0);
    g_assert_true(refit_layout_add_bytes(held, bytes, &error));
    g_assert_true(refit_layout_total_bytes(held, NULL, 0, &total, &error));
    g_assert_true(refit_layout_total_bytes(held, (const guint[]){4}, 1, &left, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(bytes[4], >, 0);
    g_assert_cmpuint(left, ==, total - bytes[4]);
}

static void test_ratios(void) {
    g_autoptr(RefitCase) refit_case = parse_ok("train.dtype=f32 generation.1.dtype=fp8");
    g_autofree double *sending = refit_case_cast_ratios(refit_case, TRUE);
    g_autofree double *receiving = refit_case_cast_ratios(refit_case, FALSE);
    for (guint rank = 0; rank < 16; rank++) {
        g_assert_cmpfloat(sending[rank], ==, rank < 4 ? 2 : 0);
        g_assert_cmpfloat(receiving[rank], ==, rank == 6 ? 4128.0 / 5088.0 : 0);
    }
}

static void test_errors(void) {
    static const struct {
        const char *overrides, *message;
    } rows[] = {
        {"dtype=fp9", "--set dtype: \"fp9\" is not a known element type*native and fp8"},
        {"train.dtype=fp9",
         "--set train.dtype: \"fp9\" is not a known element type*native and fp8"},
        {"model=qwen3-4b dtype=fp8", "*no FP8 form*"},
        {"model=qwen3-4b train.ep=1 generation.0.dtype=fp8", "*no FP8 form*"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        g_test_message("%s", rows[i].overrides);
        g_assert_null(parse(small, rows[i].overrides, &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
        if (!g_pattern_match_simple(rows[i].message, error->message))
            g_assert_cmpstr(error->message, ==, rows[i].message);
    }
}

/* ---- DeepSeek-V3 ---- */

static RefitCase *deepseek(const char *const *overrides) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = refit_case_load(input_store(), "deepseek-v3-h100", overrides, &error);
    g_assert_no_error(error);
    return refit_case;
}

static guint64 network_bytes(const RefitCase *refit_case, guint64 *weights_out) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProblem) problem = refit_problem_new(refit_case, &error);
    g_assert_no_error(error);
    RefitBound bound;
    g_assert_true(refit_bound_compute(problem, &bound, &error));
    g_assert_no_error(error);
    *weights_out = problem->weight_bytes;
    return bound.network_bytes;
}

#define MATRIX(rows, columns) ((guint64)(rows) * (columns))
#define BLOCKS(rows, columns) ((guint64)(((rows) + 127) / 128) * (((columns) + 127) / 128))
#define ATTENTION(of)                                                                              \
    (of(1536, 7168) + of(24576, 1536) + of(576, 7168) + of(32768, 512) + of(7168, 16384))
#define FFN(of, size) (2 * of(size, 7168) + of(7168, size))
/* 61 layers with attention, 3 dense FFNs, 58 layers of 256 experts and a shared one. */
#define ALL(of)                                                                                    \
    (61 * ATTENTION(of) + 3 * FFN(of, 18432) + G_GUINT64_CONSTANT(58) * 257 * FFN(of, 2048))
/* Held whole by every rank of an engine: parts of the attention, and norms. */
#define SHARED(of) (of(1536, 7168) + of(576, 7168))
#define NORMS (G_GUINT64_CONSTANT(61) * (2 * 7168 + 1536 + 512) + 7168)
#define PARAMETERS G_GUINT64_CONSTANT(671026419200)
#define ROUTER_BIASES G_GUINT64_CONSTANT(14848) /* 58 x 256, in F32 */

static void test_deepseek(void) {
    const char *const cast[] = {"dtype=fp8", "train.dtype=bf16", "generation.tp=16",
                                "generation.engines=16", NULL};
    const char *const plain[] = {"generation.tp=16", "generation.engines=16", NULL};
    g_autoptr(RefitCase) fp8 = deepseek(cast);
    g_autoptr(RefitCase) bf16 = deepseek(plain);
    guint64 fp8_weights, bf16_weights, held;
    guint64 fp8_network = network_bytes(fp8, &fp8_weights);
    guint64 bf16_network = network_bytes(bf16, &bf16_weights);

    guint64 wanted = ALL(MATRIX) + 4 * ALL(BLOCKS) +
                     2 * (PARAMETERS - ALL(MATRIX) - ROUTER_BIASES) + 4 * ROUTER_BIASES;
    g_assert_cmpuint(wanted, ==, G_GUINT64_CONSTANT(673150611808));
    g_assert_cmpuint(fp8_weights, ==, wanted);
    g_assert_cmpuint(bf16_weights, ==, 2 * PARAMETERS + 2 * ROUTER_BIASES);
    /* An engine is two nodes, which take half of the model each, and both what all ranks hold. */
    guint64 replicated = 2 * (NORMS + 58 * MATRIX(256, 7168)) + 4 * ROUTER_BIASES;
    g_assert_cmpuint(fp8_network, ==,
                     16 * (fp8_weights + 61 * (SHARED(MATRIX) + 4 * SHARED(BLOCKS)) + replicated));
    g_assert_cmpuint(bf16_network, ==, 16 * (bf16_weights + 61 * 2 * SHARED(MATRIX) + replicated));

    /* Every expert is on one training GPU, all else of a stage on its 16. */
    g_autoptr(GError) error = NULL;
    const guint64 experts = 2 * G_GUINT64_CONSTANT(58) * 256 * FFN(MATRIX, 2048);
    g_assert_true(
        refit_layout_total_bytes(refit_case_held(fp8, REFIT_CASE_SOURCE), NULL, 0, &held, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(held, ==, experts + 16 * (bf16_weights - experts));
}

/* With 32 parts of 18432 rows the cuts fall inside blocks: 576 = 4.5 x 128. */
static void test_deepseek_cuts_blocks(void) {
    const char *const cast[] = {"dtype=fp8", "train.dtype=bf16", NULL};
    g_autoptr(RefitCase) refit_case = deepseek(cast);
    g_autoptr(GError) error = NULL;
    g_assert_null(refit_problem_new(refit_case, &error));
    input_assert_error(error, REFIT_ERROR_GRANULE_SPLIT,
                       "tensor model.layers.0.mlp.gate_proj.weight: the destination cuts dim 0 at "
                       "576 for rank 256, inside a block with one scale of 128; choose parallel "
                       "sizes that cut at multiples of 128, or another dtype");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/case-forms/sides-hold-their-own-form", test_forms);
    g_test_add_func("/case-forms/held-layouts-have-the-ranks-of-the-side", test_ranks);
    g_test_add_func("/case-forms/ratios-are-those-of-the-bytes", test_ratios);
    g_test_add_func("/case-forms/errors-say-where", test_errors);
    g_test_add_func("/case-forms/deepseek-v3-in-fp8-to-the-byte", test_deepseek);
    g_test_add_func("/case-forms/deepseek-v3-has-blocks-of-128", test_deepseek_cuts_blocks);
    return g_test_run();
}
