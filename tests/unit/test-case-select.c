/*
 * Parts of a case that are not copied as they are: tensors left out by `only` and `except`, with
 * their scales, and tensors that one side holds as other numbers than the other.
 */

#include "lib/refit-disk.h"
#include "model/case/refit-values.h"

#include <string.h>

/* Two layers of two tensors; w is quantized and has a scale. */
static const char listed[] =
    "schema: refit.model/1\nname: m\nfamily: list\ntensors:\n"
    "- {name: \"layers.{0-1}.w\", shape: [8, 4], dtype: f8_e4m3, role: dense_up}\n"
    "- {name: \"layers.{0-1}.s\", shape: [2, 1], dtype: f32, role: dense_up,\n"
    "   scale: {of: \"layers.{0-1}.w\", block: [4, 4]}}\n"
    "- {name: \"layers.{0-1}.norm\", shape: [4], dtype: bf16, role: norm}\n";

static const char mamba[] =
    "schema: refit.model/1\nname: m\nfamily: nemotron_h\n"
    "config: {vocab_size: 128, hidden_size: 8, num_attention_heads: 2, num_key_value_heads: 2, "
    "head_dim: 4, mamba_num_heads: 4, mamba_head_dim: 2, n_groups: 2, ssm_state_size: 2, "
    "conv_kernel: 4, num_hidden_layers: 2, hybrid_override_pattern: MM}\n";

static const char delta[] =
    "schema: refit.model/1\nname: m\nfamily: qwen3_5_moe\n"
    "config: {hidden_size: 8, vocab_size: 128, num_hidden_layers: 2, full_attention_interval: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 2, linear_num_key_heads: 2, "
    "linear_num_value_heads: 4, linear_key_head_dim: 2, linear_value_head_dim: 2, "
    "linear_conv_kernel_dim: 4, num_experts: 2, moe_intermediate_size: 8, "
    "shared_expert_intermediate_size: 8, mtp_stacked_experts: true}\n";

/* Model files by name, in memory. */
static RefitPathKind kind_of(const char *path, gpointer user_data) {
    return user_data != NULL && g_str_has_suffix(path, "model.yaml")
               ? REFIT_PATH_FILE
               : refit_disk.kind(path, refit_disk.user_data);
}

static GBytes *read_file(const char *path, guint64 limit, gpointer user_data, GError **error) {
    const char *text = user_data;
    return g_str_has_suffix(path, "model.yaml")
               ? g_bytes_new(text, strlen(text))
               : refit_disk.read(path, limit, refit_disk.user_data, error);
}

static RefitCase *read_case(const char *model, const char *train, const char *generation,
                            const char *more, GError **error) {
    const RefitFiles files = {
        .kind = kind_of, .read = read_file, .list = refit_disk.list, .user_data = (gpointer)model};
    g_autofree char *layouts = g_build_filename(REFIT_SOURCE_DATA_DIR, "layouts", NULL);
    const RefitStore store = {.layouts_dir = layouts, .files = &files};
    g_autofree char *text = g_strdup_printf(
        "schema: refit.case/1\nmodel: ./model.yaml\n%strain: {framework: %s, gpus: 2, tp: 2}\n"
        "generation: {framework: %s, gpus: 2, tp: 2}\n"
        "topology: \"node:1 gpu:4 nvlink:450GBps nic:50GBps\"\n",
        more, train, generation);
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "c.yaml", error);
    g_assert_nonnull(doc);
    return refit_case_parse(&store, doc, error);
}

static void expect_names(const char *more, const char *expected) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = read_case(listed, "fsdp", "vllm", more, &error);
    g_autoptr(GString) names = g_string_new(NULL);

    g_assert_no_error(error);
    for (guint t = 0; t < refit_model_n_tensors(refit_case->model); t++) {
        const RefitTensor *tensor = refit_model_tensor(refit_case->model, t);

        g_string_append_printf(names, "%s%s", t > 0 ? " " : "", tensor->name);
        if (tensor->scale)
            g_string_append_printf(names, "<%s",
                                   refit_model_tensor(refit_case->model, tensor->scale_of)->name);
    }
    g_assert_cmpstr(names->str, ==, expected);
    g_assert_cmpuint(refit_model_n_layers(refit_case->model), ==, 2);
}

static void test_select(void) {
    expect_names("except: layers.0.w\n",
                 "layers.1.w layers.1.s<layers.1.w layers.0.norm layers.1.norm");
    expect_names("only: [\"*.w\"]\n",
                 "layers.0.w layers.1.w layers.0.s<layers.0.w layers.1.s<layers.1.w");
    expect_names("only: [\"*.w\", \"*.norm\"]\nexcept: [\"layers.1.*\"]\n",
                 "layers.0.w layers.0.s<layers.0.w layers.0.norm");
    expect_names("only: \"*.norm\"\n", "layers.0.norm layers.1.norm");
}

static void test_bad_patterns(void) {
    static const char *const bad[][2] = {
        {"only: \"*.bias\"\n", "c.yaml:3:7: only: fits no tensor of model m; *"},
        {"except: [\"*.w\", bias]\n", "c.yaml:3:17: except.1: fits no tensor of model m; *"},
        {"except: \"*\"\n", "c.yaml:3:9: except: leaves no tensor of model m to move"},
        {"only: {a: b}\n", "c.yaml:3:7: only: *"},
        {"except: []\nonly: []\n", "c.yaml:3:9: except: leaves no tensor of model m to move"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_null(read_case(listed, "fsdp", "vllm", bad[i][0], &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
        if (!g_pattern_match_simple(bad[i][1], error->message))
            g_assert_cmpstr(error->message, ==, bad[i][1]);
    }
}

/* ---- values ---- */

static void test_values(void) {
    static const struct {
        const char *model, *train, *generation;
        guint n;
        const char *source, *destination;
    } rows[] = {
        {mamba, "megatron", "vllm", 2, "x", "-exp(x)"},
        {mamba, "megatron", "sglang", 2, "x", "-exp(x)"},
        {mamba, "vllm", "sglang", 0, NULL, NULL},
        {mamba, "megatron", "megatron", 0, NULL, NULL},
        {delta, "megatron", "vllm", 1, "x - 1", "x"},
        {delta, "fsdp", "megatron", 1, "x", "x - 1"},
        {delta, "fsdp", "vllm", 0, NULL, NULL},
        {delta, "megatron", "megatron", 0, NULL, NULL},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitCase) refit_case =
            read_case(rows[i].model, rows[i].train, rows[i].generation, "", &error);
        RefitValuesGap gap;

        g_assert_no_error(error);
        g_assert_cmpint(refit_values_find_gap(refit_case, &gap), ==, rows[i].n > 0);
        g_assert_cmpuint(gap.n_tensors, ==, rows[i].n);
        g_assert_cmpint(refit_values_check(refit_case, &error), ==, rows[i].n == 0);
        if (rows[i].n == 0)
            continue;
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED);
        g_assert_cmpstr(gap.source, ==, rows[i].source);
        g_assert_cmpstr(gap.destination, ==, rows[i].destination);
    }
}

/* The way out that the refusal names. */
static void test_values_left_out(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        read_case(mamba, "megatron", "vllm", "except: \"*.A_log\"\n", &error);

    g_assert_no_error(error);
    g_assert_true(refit_values_check(refit_case, &error));
    g_assert_no_error(error);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/case-select/patterns-choose-tensors-and-their-scales", test_select);
    g_test_add_func("/case-select/bad-patterns", test_bad_patterns);
    g_test_add_func("/case-select/other-numbers-are-not-copied", test_values);
    g_test_add_func("/case-select/other-numbers-may-be-left-out", test_values_left_out);
    return g_test_run();
}
