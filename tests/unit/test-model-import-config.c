/*
 * Models from hub configs: for every shipped model a config with the keys that such files have,
 * most of them unrelated, expands to the shipped model in every form and field; nulls, nested text
 * models, architectures instead of a model type, keys that our files give another meaning; biases
 * of Qwen2; blocks of FP8; files that JSON forbids; what cannot be expanded, with its place.
 */

#include "import-files.h"
#include "test-model.h"

#define HUB REFIT_TEST_SOURCE_DIR "/data/hub"

static RefitModel *load_form(const char *name, RefitForm form) {
    g_autofree char *path =
        g_strdup_printf("%s/layouts/models/%s.yaml", REFIT_SOURCE_DATA_DIR, name);
    const RefitModelOptions options = {.dtype = BF16, .mtp = TRUE, .form = form};
    return import_file(path, &options);
}

static void expect_same_tensor(const RefitTensor *tensor, const RefitTensor *wanted) {
    g_assert_cmpstr(tensor->name, ==, wanted->name);
    g_assert_cmpuint(tensor->n_dims, ==, wanted->n_dims);
    g_assert_cmpint(tensor->dtype, ==, wanted->dtype);
    g_assert_cmpint(tensor->role, ==, wanted->role);
    g_assert_cmpint(tensor->layer, ==, wanted->layer);
    g_assert_cmpint(tensor->expert, ==, wanted->expert);
    g_assert_cmpint(tensor->mtp, ==, wanted->mtp);
    g_assert_cmpuint(tensor->elements, ==, wanted->elements);
    g_assert_cmpuint(tensor->bytes, ==, wanted->bytes);
    g_assert_cmpuint(tensor->n_packed, ==, wanted->n_packed);
    g_assert_cmpuint(tensor->packed_dim, ==, wanted->packed_dim);
    for (guint i = 0; i < tensor->n_packed; i++) {
        g_assert_cmpuint(tensor->packed[i].extent, ==, wanted->packed[i].extent);
        g_assert_cmpuint(tensor->packed[i].units, ==, wanted->packed[i].units);
    }
    g_assert_cmpint(tensor->scale, ==, wanted->scale);
    g_assert_cmpuint(tensor->scale_of, ==, wanted->scale_of);
    for (guint d = 0; d < REFIT_MAX_DIMS; d++) {
        g_assert_cmpuint(tensor->shape[d], ==, wanted->shape[d]);
        g_assert_cmpuint(tensor->block[d], ==, wanted->block[d]);
        g_assert_cmpuint(tensor->granule[d], ==, wanted->granule[d]);
    }
}

static void expect_same(const RefitModel *model, const RefitModel *wanted) {
    g_assert_cmpuint(refit_model_n_tensors(model), ==, refit_model_n_tensors(wanted));
    g_assert_cmpuint(refit_model_parameters(model), ==, refit_model_parameters(wanted));
    g_assert_cmpuint(refit_model_bytes(model), ==, refit_model_bytes(wanted));
    g_assert_cmpuint(refit_model_n_layers(model), ==, refit_model_n_layers(wanted));
    g_assert_cmpuint(refit_model_n_experts(model), ==, refit_model_n_experts(wanted));
    g_assert_cmpuint(refit_model_n_heads(model), ==, refit_model_n_heads(wanted));
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, refit_model_n_kv_heads(wanted));
    g_assert_cmpint(refit_model_tied_embeddings(model), ==, refit_model_tied_embeddings(wanted));
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        expect_same_tensor(refit_model_tensor(model, i), refit_model_tensor(wanted, i));
    }
}

/* The file name is that of the shipped model. */
static void test_shipped(gconstpointer data) {
    const char *name = data;
    g_autofree char *path = g_strdup_printf("%s/%s.json", HUB, name);
    static const RefitForm forms[] = {REFIT_FORM_PLAIN, REFIT_FORM_NATIVE};
    guint n_forms = g_str_equal(name, "kimi-k3") ? 1 : 2; /* it takes seconds under sanitizers */
    RefitModelFile kind = REFIT_MODEL_FILE_REFIT;
    g_assert_true(refit_model_file_kind(&refit_disk, path, &kind, NULL));
    g_assert_cmpint(kind, ==, REFIT_MODEL_FILE_HUB_CONFIG);
    for (guint i = 0; i < n_forms; i++) {
        const RefitModelOptions options = {.dtype = BF16, .mtp = TRUE, .form = forms[i]};
        g_autoptr(RefitModel) model = import_file(path, &options);
        g_autoptr(RefitModel) wanted = load_form(name, forms[i]);
        g_assert_cmpstr(refit_model_name(model), ==, name);
        expect_same(model, wanted);
    }
}

static const char *const shipped[] = {
    "deepseek-v3",       "glm-4.5",           "glm-4.5-air",
    "gpt-oss-120b",      "kimi-k2",           "kimi-k3",
    "llama-3.1-8b",      "llama-3.1-70b",     "llama-3.1-405b",
    "minimax-m2",        "mixtral-8x7b",      "qwen3-4b",
    "qwen3-32b",         "qwen3-30b-a3b",     "qwen3-235b-a22b",
    "qwen3.5-397b-a17b", "qwen3.8-2.4t-a95b", "nemotron-3-ultra-550b-a55b",
};

/* Every shipped model, the made-up one aside, has a config here and a row above. */
static void test_all(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(GDir) dir = g_dir_open(REFIT_SOURCE_DATA_DIR "/layouts/models", 0, &error);
    g_assert_no_error(error);
    guint n = 0;
    for (const char *file = g_dir_read_name(dir); file != NULL; file = g_dir_read_name(dir)) {
        if (!g_str_has_suffix(file, ".yaml") || g_str_equal(file, "tiny.yaml")) {
            continue;
        }
        gboolean found = FALSE;
        for (guint i = 0; i < G_N_ELEMENTS(shipped); i++) {
            found |= g_str_has_prefix(file, shipped[i]) &&
                     strlen(file) == strlen(shipped[i]) + strlen(".yaml");
        }
        g_test_message("%s", file);
        g_assert_true(found);
        n++;
    }
    g_assert_cmpuint(n, ==, G_N_ELEMENTS(shipped));
}

/* ---- small configs ---- */

#define SIZES                                                                                      \
    "\"hidden_size\": 8, \"vocab_size\": 16, \"num_hidden_layers\": 1,\n"                          \
    "\"num_attention_heads\": 4, \"intermediate_size\": 12"

static const RefitModelOptions plain = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};

static RefitModel *import_text(const char *text, const RefitModelOptions *options) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_text(&folder, "config.json", text);
    return import_file(path, options);
}

static void refuse_text(const char *text, const char *place, const char *part) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_text(&folder, "config.json", text);
    import_refused(path, REFIT_ERROR_INVALID, place, part);
}

static void test_name(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path =
        folder_write_text(&folder, "config.json", "{\"model_type\": \"llama\", " SIZES "}");
    g_autofree char *other =
        folder_write_text(&folder, "small-3.5b.json", "{\"model_type\": \"llama\", " SIZES "}");
    g_autofree char *wanted = g_path_get_basename(folder.path);
    g_autoptr(RefitModel) model = import_file(path, &plain);
    g_autoptr(RefitModel) named = import_file(other, &plain);
    g_assert_cmpstr(refit_model_name(model), ==, wanted);
    g_assert_cmpstr(refit_model_name(named), ==, "small-3.5b");
}

static void test_nulls(void) {
    g_autoptr(RefitModel) model = import_text(
        "{\"model_type\": \"mistral\", \"head_dim\": null, \"num_key_value_heads\": null, "
        "\"rope_scaling\": {\"factor\": 8.0, \"x\": [null, 1]}, " SIZES "}",
        &plain);
    expect(model, "model.layers.0.self_attn.k_proj.weight 8x8 BF16 attention_k 0 -1");
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 4);
}

static void test_architectures(void) {
    g_autoptr(RefitModel) model =
        import_text("{\"architectures\": [\"Qwen3ForCausalLM\"], " SIZES "}", &plain);
    expect(model, "model.layers.0.self_attn.q_norm.weight 2 BF16 norm 0 -1");
}

static void test_qwen2(void) {
    g_autoptr(RefitModel) model = import_text(
        "{\"model_type\": \"qwen2\", \"tie_word_embeddings\": true, " SIZES "}", &plain);
    expect(model, "model.layers.0.self_attn.v_proj.bias 8 BF16 attention_v 0 -1");
    g_assert_null(find(model, "model.layers.0.self_attn.o_proj.bias"));
    g_assert_null(find(model, "lm_head.weight"));
    g_assert_true(refit_model_tied_embeddings(model));
}

/* Keys that our own model files give a meaning say nothing in a hub file. */
static void test_own_keys(void) {
    g_autoptr(RefitModel) model =
        import_text("{\"model_type\": \"llama\", \"parameters\": 3, \"native\": 1, \"source\": [], "
                    "\"name\": 7, \"family\": \"list\", \"config\": {}, " SIZES "}",
                    &plain);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 12);
}

static void test_infinity(void) {
    g_autoptr(RefitModel) model = import_text(
        "{\"model_type\": \"llama\", \"time_step_limit\": [0.0, Infinity], " SIZES "}", &plain);
    g_assert_cmpuint(refit_model_n_layers(model), ==, 1);
}

static void test_blocks(void) {
    const RefitModelOptions native = {.dtype = BF16, .form = REFIT_FORM_NATIVE};
    g_autoptr(RefitModel) model =
        import_text("{\"model_type\": \"qwen3\", " SIZES ", \"quantization_config\": "
                    "{\"quant_method\": \"fp8\", \"weight_block_size\": [4, 8]}}",
                    &native);
    expect(model, "model.layers.0.mlp.up_proj.weight 12x8 F8_E4M3 dense_up 0 -1");
    expect(model, "model.layers.0.mlp.up_proj.weight_scale_inv 3x1 BF16 dense_up 0 -1");
    g_assert_cmpuint(find(model, "model.layers.0.mlp.up_proj.weight")->granule[0], ==, 4);
}

static void test_dense_is_plain(void) {
    g_autoptr(RefitModel) model = import_text("{\"model_type\": \"llama\", " SIZES
                                              ", \"quantization_config\": {\"quant_method\": "
                                              "\"awq\"}}",
                                              &plain);
    expect(model, "model.layers.0.mlp.up_proj.weight 12x8 BF16 dense_up 0 -1");
}

/* ---- bad configs ---- */

static void test_unknown_type(void) {
    refuse_text("{\"x\": 1,\n \"model_type\": \"gpt2\"}", ":2:16: model_type: ",
                "\"gpt2\" is no model type whose tensors are known; import its *.safetensors "
                "headers instead; known are llama, mistral, qwen2, ");
    refuse_text("{\"architectures\": [\"GPT2LMHeadModel\"]}",
                ":1:20: architectures.0: ", "\"GPT2LMHeadModel\" is no model type");
}

static void test_missing_key(void) {
    refuse_text("{\"model_type\": \"llama\", \"hidden_size\": 8, \"vocab_size\": 8}",
                ":1:1: ", "the key \"num_hidden_layers\" is missing");
    refuse_text("{\"model_type\": \"qwen3_5_moe\",\n \"text_config\": {\"hidden_size\": 8}}",
                ":2:17: text_config: ", "the key \"vocab_size\" is missing");
}

static void test_bad_value(void) {
    refuse_text("{\"model_type\": \"llama\", \"hidden_size\": 8, \"vocab_size\": 16,\n"
                "\"num_hidden_layers\": -1, \"num_attention_heads\": 4, \"intermediate_size\": 8}",
                ":2:22: num_hidden_layers: ", "-1");
}

static void test_twice(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_text(
        &folder, "config.json", "{\"model_type\": \"llama\",\n \"vocab_size\": 8, " SIZES "}");
    import_refused(path, REFIT_ERROR_PARSE, ":2:37: vocab_size: ", "given twice, first in line 2");
}

static void test_refused(void) {
    refuse_text("{\"model_type\": \"llama\", " SIZES ",\n \"mlp_bias\": true}",
                ":3:14: mlp_bias: ", "the names of such tensors are not known");
    refuse_text("{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [3], " SIZES "}",
                ":1:48: mlp_only_layers: ", "the names of such tensors are not known");
}

static void test_not_square(void) {
    refuse_text("{\"model_type\": \"kimi_k3\", \"text_config\": {" SIZES "},\n"
                "\"vision_config\": {\"merge_kernel_size\": [2, 3]}}",
                ":3:40: vision_config.merge_kernel_size: ", "two equal numbers");
}

static void test_unknown_quantization(void) {
    static const char text[] = "{\"model_type\": \"llama\", " SIZES
                               ",\n\"quantization_config\": {\"quant_method\": \"awq\"}}";
    const RefitModelOptions native = {.dtype = BF16, .form = REFIT_FORM_NATIVE};
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_text(&folder, "config.json", text);
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) model = refit_model_import(&refit_disk, path, &native, &error);
    g_assert_null(model);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_nonnull(strstr(error->message, "config.json:3:24: quantization_config: "));
}

static void test_no_model(void) {
    refuse_text("{\"a\": 1}", ":1:1: ", "is no model");
    refuse_text("[]", ":1:1: ", "is no model");
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *broken = folder_write_text(&folder, "a.json", "{\"a\": 1,\n\"b\" 2}");
    import_refused(broken, REFIT_ERROR_PARSE, ":2:", "not JSON");
    g_autofree char *missing = g_build_filename(folder.path, "b.json", NULL);
    import_refused(missing, REFIT_ERROR_PARSE, ": cannot be read: ", "");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(shipped); i++) {
        g_autofree char *path =
            g_strdup_printf("/model-import/config/%s-is-the-shipped-model", shipped[i]);
        g_test_add_data_func(path, shipped[i], test_shipped);
    }
#define ADD(path, function) g_test_add_func("/model-import/config/" path, function)
    ADD("every-shipped-model-has-one", test_all);
    ADD("is-named-by-its-file-or-folder", test_name);
    ADD("nulls-are-absent-keys", test_nulls);
    ADD("architectures-stand-for-a-model-type", test_architectures);
    ADD("qwen2-has-no-output-bias", test_qwen2);
    ADD("keys-of-our-files-mean-nothing", test_own_keys);
    ADD("infinity-is-no-error", test_infinity);
    ADD("blocks-of-fp8-are-those-stated", test_blocks);
    ADD("a-plain-form-needs-no-quantization", test_dense_is_plain);
    ADD("an-unknown-type-lists-the-known", test_unknown_type);
    ADD("a-missing-key-is-named", test_missing_key);
    ADD("a-bad-value-is-located", test_bad_value);
    ADD("a-key-is-given-once", test_twice);
    ADD("layers-without-known-names-are-refused", test_refused);
    ADD("patches-are-merged-in-squares", test_not_square);
    ADD("a-native-form-needs-a-known-quantization", test_unknown_quantization);
    ADD("other-files-are-no-model", test_no_model);
#undef ADD
    return g_test_run();
}
