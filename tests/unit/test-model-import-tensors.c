/*
 * Models from lists of tensors: headers written from the shipped models, in each form, give back
 * roles, layers, experts, MTP layers and scales from names alone; wrapped, grouped and unknown
 * names; a config beside the headers; element types; indexes over several files; M2N model files;
 * every way in which a header, an index or a list can be wrong.
 */

#include "import-files.h"
#include "lib/refit-disk.h"
#include "model/base/refit-json.h"
#include "test-model.h"

static const RefitModelOptions as_written = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};

/* ---- there and back ---- */

typedef struct {
    const char *name;
    RefitForm form;
    gboolean has_config;
} Listing;

/* Two experts of each layer show all there is, and keep the files small. */
static gboolean is_listed(const RefitTensor *tensor) {
    return tensor->expert < 2;
}

static char *write_listing(const RefitModel *model) {
    RefitJson *json = refit_json_new(0);
    guint64 end = 0;
    refit_json_begin_object(json, NULL);
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        if (!is_listed(tensor)) {
            continue;
        }
        refit_json_begin_object(json, tensor->name);
        refit_json_string(json, "dtype", refit_dtype_name(tensor->dtype));
        refit_json_begin_row(json, "shape");
        for (guint d = 0; d < tensor->n_dims; d++) {
            refit_json_uint(json, NULL, tensor->shape[d]);
        }
        refit_json_end_row(json);
        refit_json_begin_row(json, "data_offsets");
        refit_json_uint(json, NULL, end);
        refit_json_uint(json, NULL, end += tensor->bytes);
        refit_json_end_row(json);
        refit_json_end_object(json);
    }
    refit_json_end_object(json);
    gsize length = 0;
    return refit_json_finish(json, &length);
}

/* What only a config tells: segments of packed projections, which are not known without. */
static void expect_packed(const RefitTensor *tensor, const RefitTensor *wanted) {
    g_assert_cmpuint(tensor->n_packed, ==, wanted->n_packed);
    for (guint i = 0; i < wanted->n_packed; i++) {
        g_assert_cmpuint(tensor->packed[i].extent, ==, wanted->packed[i].extent);
    }
}

static void expect_listed(const RefitModel *model, const RefitModel *wanted, gboolean has_config) {
    guint at = 0;
    for (guint i = 0; i < refit_model_n_tensors(wanted); i++) {
        const RefitTensor *b = refit_model_tensor(wanted, i);
        if (!is_listed(b)) {
            continue;
        }
        const RefitTensor *a = refit_model_tensor(model, at++);
        if (!has_config && a->unknown) {
            g_assert_cmpuint(b->n_packed, >, 0);
            g_assert_cmpint(a->role, ==, REFIT_ROLE_OTHER);
            g_assert_cmpint(a->layer, ==, b->mtp ? a->layer : b->layer);
            g_assert_cmpint(a->mtp, ==, b->mtp);
            continue;
        }
        g_assert_false(a->unknown);
        g_autofree char *text = describe(a);
        g_autofree char *wanted_text = describe(b);
        g_assert_cmpstr(text, ==, wanted_text);
        g_assert_cmpint(a->scale, ==, b->scale);
        if (a->scale) {
            g_assert_cmpstr(refit_model_tensor(model, a->scale_of)->name, ==,
                            refit_model_tensor(wanted, b->scale_of)->name);
        }
        for (guint d = 0; d < b->n_dims; d++) {
            g_assert_cmpuint(a->block[d], ==, b->block[d]);
            g_assert_cmpuint(a->granule[d], ==, b->granule[d]);
        }
        if (has_config) {
            expect_packed(a, b);
        }
    }
    g_assert_cmpuint(at, ==, refit_model_n_tensors(model));
}

static void test_listing(gconstpointer data) {
    const Listing *listing = data;
    const RefitModelOptions options = {.dtype = BF16, .mtp = TRUE, .form = listing->form};
    g_autofree char *source =
        g_strdup_printf("%s/layouts/models/%s.yaml", REFIT_SOURCE_DATA_DIR, listing->name);
    g_autoptr(RefitModel) wanted = import_file(source, &options);
    g_autofree char *header = write_listing(wanted);
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_tensors(&folder, "model.safetensors", header, 0);
    if (listing->has_config) {
        g_autofree char *config =
            g_strdup_printf("%s/data/hub/%s.json", REFIT_TEST_SOURCE_DIR, listing->name);
        g_autofree char *text = NULL;
        gsize length = 0;
        g_assert_true(g_file_get_contents(config, &text, &length, NULL));
        g_autofree char *copy = folder_write(&folder, "config.json", text, length);
    }
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    expect_listed(model, wanted, listing->has_config);
    g_assert_cmpuint(refit_model_n_layers(model), ==, refit_model_n_layers(wanted));
    g_assert_cmpint(refit_model_tied_embeddings(model), ==, refit_model_tied_embeddings(wanted));
    g_assert_cmpuint(refit_model_n_heads(model), ==,
                     listing->has_config ? refit_model_n_heads(wanted) : 0);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==,
                     listing->has_config ? refit_model_n_kv_heads(wanted) : 0);
}

static const Listing listings[] = {
    {"llama-3.1-8b", REFIT_FORM_PLAIN, FALSE},
    {"qwen3-4b", REFIT_FORM_PLAIN, FALSE},
    {"qwen3-32b", REFIT_FORM_FP8_BLOCK, FALSE},
    {"qwen3-30b-a3b", REFIT_FORM_PLAIN, FALSE},
    {"qwen3-235b-a22b", REFIT_FORM_FP8_BLOCK, TRUE},
    {"qwen3.5-397b-a17b", REFIT_FORM_PLAIN, FALSE},
    {"qwen3.5-397b-a17b", REFIT_FORM_PLAIN, TRUE},
    {"qwen3.8-2.4t-a95b", REFIT_FORM_PLAIN, FALSE},
    {"mixtral-8x7b", REFIT_FORM_PLAIN, FALSE},
    {"minimax-m2", REFIT_FORM_NATIVE, FALSE},
    {"deepseek-v3", REFIT_FORM_PLAIN, FALSE},
    {"deepseek-v3", REFIT_FORM_NATIVE, TRUE},
    {"kimi-k2", REFIT_FORM_NATIVE, FALSE},
    {"glm-4.5", REFIT_FORM_PLAIN, FALSE},
    {"glm-4.5", REFIT_FORM_FP8_BLOCK, TRUE},
    {"gpt-oss-120b", REFIT_FORM_PLAIN, TRUE},
    {"gpt-oss-120b", REFIT_FORM_NATIVE, FALSE},
    {"nemotron-3-ultra-550b-a55b", REFIT_FORM_PLAIN, FALSE},
    {"nemotron-3-ultra-550b-a55b", REFIT_FORM_PLAIN, TRUE},
    {"kimi-k3", REFIT_FORM_PLAIN, FALSE},
    {"kimi-k3", REFIT_FORM_NATIVE, FALSE},
};

/* ---- single names ---- */

/* One tensor per name, each [2, 2, 2] of U8. */
static RefitModel *import_names(const char *const *names) {
    g_autoptr(GString) header = g_string_new("{");
    for (guint i = 0; names[i] != NULL; i++) {
        g_string_append_printf(header,
                               "%s\"%s\": {\"dtype\": \"U8\", \"shape\": [2, 2, 2], "
                               "\"data_offsets\": [%u, %u]}",
                               i > 0 ? ", " : "", names[i], 8 * i, 8 * i + 8);
    }
    g_string_append_c(header, '}');
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_tensors(&folder, "a.safetensors", header->str,
                                                 8 * g_strv_length((char **)names));
    return import_file(path, &as_written);
}

static void test_wrapped(void) {
    g_autoptr(RefitModel) model = import_names((const char *const[]){
        "language_model.model.layers.3.self_attn.k_proj.weight", "layers.1.mlp.up_proj.weight",
        "language_model.model.embed_tokens.weight", NULL});
    expect(model,
           "language_model.model.layers.3.self_attn.k_proj.weight 2x2x2 U8 attention_k 3 -1");
    expect(model, "layers.1.mlp.up_proj.weight 2x2x2 U8 dense_up 1 -1");
    expect(model, "language_model.model.embed_tokens.weight 2x2x2 U8 embedding -1 -1");
    g_assert_cmpuint(refit_model_n_layers(model), ==, 4);
}

static void test_grouped(void) {
    g_autoptr(RefitModel) model =
        import_names((const char *const[]){"model.layers.0.mlp.experts.gate_proj.weight",
                                           "model.layers.0.mlp.experts.7.up_proj.weight",
                                           "model.layers.0.mlp.experts.gate_up_proj", NULL});
    expect(model, "model.layers.0.mlp.experts.gate_proj.weight 2x2x2 U8 expert_gate 0 -1");
    expect(model, "model.layers.0.mlp.experts.7.up_proj.weight 2x2x2 U8 expert_up 0 7");
    g_assert_cmpuint(refit_model_n_experts(model), ==, 8);
}

static void test_unknown(void) {
    g_autoptr(RefitModel) model = import_names(
        (const char *const[]){"model.layers.1.mlp.up_proj.weight", "model.layers.0.novel.weight",
                              "model.layers.9.novel.weight",
                              "vision_tower.layers.0.self_attn.q_proj.weight", "extra", NULL});
    expect(model, "model.layers.0.novel.weight 2x2x2 U8 other 0 -1");
    expect(model, "model.layers.9.novel.weight 2x2x2 U8 other -1 -1");
    expect(model, "vision_tower.layers.0.self_attn.q_proj.weight 2x2x2 U8 vision -1 -1");
    expect(model, "extra 2x2x2 U8 other -1 -1");
    g_assert_cmpuint(refit_model_n_layers(model), ==, 2);
}

/* Nothing is known: then numbers in names are all there is. */
static void test_all_unknown(void) {
    g_autoptr(RefitModel) model =
        import_names((const char *const[]){"net.layers.4.a", "net.layers.2.experts.1.b", NULL});
    expect(model, "net.layers.4.a 2x2x2 U8 other 4 -1");
    expect(model, "net.layers.2.experts.1.b 2x2x2 U8 other 2 1");
    g_assert_cmpuint(refit_model_n_layers(model), ==, 5);
}

/* The same name means another thing in a layer with delta attention. */
static void test_kinds(void) {
    g_autoptr(RefitModel) model = import_names(
        (const char *const[]){"language_model.model.layers.0.self_attn.o_proj.weight",
                              "language_model.model.layers.0.self_attn.A_log",
                              "language_model.model.layers.1.self_attn.o_proj.weight",
                              "language_model.model.layers.1.self_attn.kv_b_proj.weight",
                              "language_model.model.output_attn_res_norm.weight", NULL});
    expect(model, "language_model.model.layers.0.self_attn.o_proj.weight 2x2x2 U8 ssm_out 0 -1");
    expect(model,
           "language_model.model.layers.1.self_attn.o_proj.weight 2x2x2 U8 attention_o 1 -1");
}

/* ---- element types, MTP ---- */

#define SMALL                                                                                      \
    "{\"__metadata__\": {\"format\": \"pt\"},"                                                     \
    "\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 16]},"      \
    "\"model.embed_tokens.weight\": {\"dtype\": \"BF16\", \"shape\": [4, 4], \"data_offsets\": "   \
    "[16, 48]},"                                                                                   \
    "\"lm_head.weight\": {\"dtype\": \"BF16\", \"shape\": [4, 4], \"data_offsets\": [48, 80]}}   "
#define SMALL_BYTES 80

static void test_dtypes(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_tensors(&folder, "model.safetensors", SMALL, SMALL_BYTES);
    RefitModelOptions options = {.dtype = REFIT_DTYPE_F16, .mtp = TRUE};
    g_autoptr(RefitModel) written = import_file(path, &options);
    g_assert_cmpuint(refit_model_bytes(written), ==, 80);
    options.dtype_stated = TRUE;
    g_autoptr(RefitModel) stated = import_file(path, &options);
    expect(stated, "model.norm.weight 4 F32 norm -1 -1");
    expect(stated, "lm_head.weight 4x4 F16 lm_head -1 -1");
    options.form = REFIT_FORM_NATIVE;
    g_autoptr(RefitModel) native = import_file(path, &options);
    expect(native, "lm_head.weight 4x4 BF16 lm_head -1 -1");
    options.form = REFIT_FORM_FP8_BLOCK;
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) fp8 = refit_model_import(&refit_disk, path, &options, &error);
    g_assert_null(fp8);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
}

#define FP8_LAYER(n)                                                                               \
    "\"model.layers." n ".mlp.up_proj.weight_scale_inv\": {\"dtype\": \"F32\", \"shape\": [2, 1]," \
    " \"data_offsets\": [0, 8]}, \"model.layers." n ".mlp.up_proj.weight\": {\"dtype\": "          \
    "\"F8_E4M3\", \"shape\": [6, 4], \"data_offsets\": [8, 32]}"

/* A scale may come before its weight; 4 is the power of two that gives 2 blocks of 6 rows. */
static void test_scales(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path =
        folder_write_tensors(&folder, "model.safetensors", "{" FP8_LAYER("0") "}", 32);
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    const RefitTensor *scale = refit_model_tensor(model, 0), *weight = refit_model_tensor(model, 1);
    g_assert_true(scale->scale);
    g_assert_cmpuint(scale->scale_of, ==, 1);
    g_assert_cmpint(scale->role, ==, REFIT_ROLE_DENSE_UP);
    g_assert_cmpuint(scale->block[0], ==, 4);
    g_assert_cmpuint(scale->block[1], ==, 4);
    g_assert_cmpuint(weight->granule[0], ==, 4);
    g_assert_cmpuint(weight->granule[1], ==, 0);
    RefitModelOptions options = {.dtype = BF16, .dtype_stated = TRUE};
    g_autoptr(GError) error = NULL;
    g_assert_null(refit_model_import(&refit_disk, path, &options, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_nonnull(strstr(error->message, "weight_scale_inv is F32; "));
}

static void test_bad_scale(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_tensors(
        &folder, "a.safetensors",
        "{\"a.weight\": {\"dtype\": \"F8_E4M3\", \"shape\": [6], \"data_offsets\": [0, 6]},"
        "\"a.weight_scale_inv\": {\"dtype\": \"F32\", \"shape\": [7], \"data_offsets\": [6, 34]}}",
        34);
    import_refused(path, REFIT_ERROR_LOCAL_SHAPE, ": tensor a.weight_scale_inv: ", "a.weight");
}

/* MTP layers go; what their scales count on moves with them. */
static void test_without_mtp(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path =
        folder_write_tensors(&folder, "model.safetensors",
                             "{\"mtp.norm.weight\": {\"dtype\": \"BF16\", \"shape\": [1], "
                             "\"data_offsets\": [32, 34]}," FP8_LAYER("0") "}",
                             34);
    const RefitModelOptions options = {.dtype = BF16};
    g_autoptr(RefitModel) model = import_file(path, &options);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 2);
    g_assert_cmpuint(refit_model_tensor(model, 0)->scale_of, ==, 1);
}

/* ---- a config beside ---- */

#define BESIDE                                                                                     \
    "\"hidden_size\": 4, \"vocab_size\": 4, \"num_hidden_layers\": 1, \"intermediate_size\": 4, "  \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1"

static void test_other_config(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_tensors(&folder, "model.safetensors", SMALL, SMALL_BYTES);
    g_autofree char *config =
        folder_write_text(&folder, "config.json", "{\"model_type\": \"novel\", " BESIDE "}");
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    g_assert_cmpuint(refit_model_n_heads(model), ==, 2);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 1);
}

static void test_wrong_config(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_tensors(&folder, "model.safetensors", SMALL, SMALL_BYTES);
    g_autofree char *config = folder_write_text(
        &folder, "config.json",
        "{\"model_type\": \"llama\", \"hidden_size\": 8, \"vocab_size\": 4, \"num_hidden_layers\": "
        "1, \"intermediate_size\": 4, \"num_attention_heads\": 2}");
    import_refused(path, REFIT_ERROR_SHAPE_MISMATCH,
                   ": tensor model.embed_tokens.weight: ", "config.json beside it");
}

/* ---- bad headers ---- */

typedef struct {
    const char *name;
    const char *header;
    gsize n_data;
    RefitError code;
    const char *part;
} BadHeader;

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": [" shape "], \"data_offsets\": [" begin   \
    ", " end "]}"

static const BadHeader bad_headers[] = {
    {"not-json", "{\"a\": ", 0, REFIT_ERROR_PARSE, ": header:1:6: not JSON: "},
    {"not-text", "{\"\xff\": 1}", 0, REFIT_ERROR_PARSE, ": header:1:"},
    {"a-list", "[1]", 0, REFIT_ERROR_INVALID, ": its header is not an object of tensors"},
    {"empty", "{}", 0, REFIT_ERROR_INVALID, ": has no tensors"},
    {"only-metadata", "{\"__metadata__\": {}}", 0, REFIT_ERROR_INVALID, ": has no tensors"},
    {"the-same-name-twice",
     "{" TENSOR("a", "U8", "1", "0", "1") ", " TENSOR("a", "U8", "1", "1", "2") "}", 2,
     REFIT_ERROR_NAME_COLLISION, ": header:1:"},
    {"an-empty-name", "{" TENSOR("", "U8", "1", "0", "1") "}", 1, REFIT_ERROR_INVALID,
     ": the name of a tensor cannot be empty"},
    {"a-number-for-a-tensor", "{\"a\": 3}", 0, REFIT_ERROR_INVALID,
     ": tensor a: is not an object with shape and dtype"},
    {"no-shape", "{\"a\": {\"dtype\": \"U8\", \"data_offsets\": [0, 1]}}", 1, REFIT_ERROR_INVALID,
     ": tensor a: has no list of numbers under \"shape\""},
    {"no-dtype", "{\"a\": {\"shape\": [1], \"data_offsets\": [0, 1]}}", 1, REFIT_ERROR_INVALID,
     ": tensor a: has no text under \"dtype\""},
    {"an-unknown-dtype", "{" TENSOR("a", "BF17", "1", "0", "1") "}", 1, REFIT_ERROR_INVALID,
     ": tensor a: \"BF17\" is not a known element type"},
    {"a-negative-dim", "{" TENSOR("a", "U8", "2, -1", "0", "1") "}", 1, REFIT_ERROR_INVALID,
     ": tensor a: dim 1 is not a whole number from 1 on"},
    {"a-fractional-dim", "{" TENSOR("a", "U8", "1.5", "0", "1") "}", 1, REFIT_ERROR_INVALID,
     ": tensor a: dim 0 is not a whole number"},
    {"too-many-dims", "{" TENSOR("a", "U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "0", "1") "}", 1,
     REFIT_ERROR_INVALID, ": tensor a: 17 dims exceed the limit of "},
    {"no-offsets", "{\"a\": {\"dtype\": \"U8\", \"shape\": [1]}}", 1, REFIT_ERROR_INVALID,
     ": tensor a: data_offsets must be two ascending numbers"},
    {"three-offsets", "{" TENSOR("a", "U8", "1", "0, 1", "1") "}", 1, REFIT_ERROR_INVALID,
     ": tensor a: data_offsets must be two ascending numbers"},
    {"descending-offsets", "{" TENSOR("a", "U8", "1", "2", "1") "}", 1, REFIT_ERROR_INVALID,
     ": tensor a: data_offsets must be two ascending numbers"},
    {"offsets-that-contradict-the-shape", "{" TENSOR("a", "BF16", "3", "0", "5") "}", 5,
     REFIT_ERROR_INVALID, ": tensor a: data_offsets give 5 bytes, but shape and dtype 6"},
    {"an-overflow", "{" TENSOR("a", "U8", "4294967296, 4294967296", "0", "1") "}", 1,
     REFIT_ERROR_OVERFLOW, ": tensor a: "},
    {"half-a-byte", "{" TENSOR("a", "F4", "3", "0", "2") "}", 2, REFIT_ERROR_INVALID,
     ": tensor a: "},
    {"an-overlap", "{" TENSOR("a", "U8", "4", "0", "4") ", " TENSOR("b", "U8", "4", "2", "6") "}",
     6, REFIT_ERROR_INVALID, ": tensor b: data begin at 2, a before them ends at 4"},
    {"a-gap", "{" TENSOR("b", "U8", "2", "6", "8") ", " TENSOR("a", "U8", "4", "0", "4") "}", 8,
     REFIT_ERROR_INVALID, ": tensor b: data begin at 6, a before them ends at 4"},
    {"a-gap-at-the-start", "{" TENSOR("a", "U8", "4", "4", "8") "}", 8, REFIT_ERROR_INVALID,
     ": tensor a: data begin at 4, the header before them ends at 0"},
    {"missing-data", "{" TENSOR("a", "U8", "4", "0", "4") "}", 3, REFIT_ERROR_INVALID,
     ": has 3 bytes behind its header, which asks for 4"},
    {"too-much-data", "{" TENSOR("a", "U8", "4", "0", "4") "}", 5, REFIT_ERROR_INVALID,
     ": has 5 bytes behind its header, which asks for 4"},
};

static void test_bad_header(gconstpointer data) {
    const BadHeader *bad = data;
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path =
        folder_write_tensors(&folder, "a.safetensors", bad->header, bad->n_data);
    import_refused(path, bad->code, bad->part, "");
}

static void test_bad_length(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *none = folder_write(&folder, "a.safetensors", "", 0);
    import_refused(none, REFIT_ERROR_INVALID, ": has 0 bytes, fewer than the 8", "");
    g_autofree char *few = folder_write(&folder, "b.safetensors", "\3\0\0", 3);
    import_refused(few, REFIT_ERROR_INVALID, ": has 3 bytes, fewer than the 8", "");
    g_autofree char *huge = folder_write_header(&folder, "c.safetensors", G_MAXUINT64, "{}", 0);
    import_refused(huge, REFIT_ERROR_INVALID, ": states a header of 18446744073709551615 bytes",
                   "limit of 100000000");
    g_autofree char *cut = folder_write_header(&folder, "d.safetensors", 100, "{}", 0);
    import_refused(cut, REFIT_ERROR_INVALID, ": ends inside its header: 2 of 100 bytes", "");
    g_autofree char *missing = g_build_filename(folder.path, "e.safetensors", NULL);
    import_refused(missing, REFIT_ERROR_PARSE, ": cannot be read: ", "");
}

/* ---- indexes ---- */

#define PART_1 "{" TENSOR("model.norm.weight", "BF16", "4", "0", "8") "}"
#define PART_2                                                                                     \
    "{" TENSOR("lm_head.weight", "BF16", "2, 4", "0", "16") ", " TENSOR(                           \
        "model.layers.0.mlp.up_proj.weight", "BF16", "1, 4", "16", "24") "}"
#define MAP(norm, head, up)                                                                        \
    "\"weight_map\": {\"lm_head.weight\": \"" head                                                 \
    "\", \"model.layers.0.mlp.up_proj.weight\": \"" up "\", \"model.norm.weight\": \"" norm "\"}"
#define GOOD_MAP MAP("m1.safetensors", "m2.safetensors", "m2.safetensors")

static char *write_index(const Folder *folder, const char *index) {
    g_autofree char *first = folder_write_tensors(folder, "m1.safetensors", PART_1, 8);
    g_autofree char *second = folder_write_tensors(folder, "m2.safetensors", PART_2, 0);
    return folder_write_text(folder, "model.safetensors.index.json", index);
}

static void test_index(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path =
        write_index(&folder, "{\"metadata\": {\"total_size\": 32}, " GOOD_MAP "}");
    g_autofree char *name = g_path_get_basename(folder.path);
    RefitModelFile kind = REFIT_MODEL_FILE_REFIT;
    g_assert_true(refit_model_file_kind(&refit_disk, path, &kind, NULL));
    g_assert_cmpint(kind, ==, REFIT_MODEL_FILE_SAFETENSORS_INDEX);
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    g_assert_cmpstr(refit_model_name(model), ==, name);
    g_assert_cmpuint(refit_model_bytes(model), ==, 32);
    expect(model, "model.layers.0.mlp.up_proj.weight 1x4 BF16 dense_up 0 -1");
    g_autofree char *plain = write_index(&folder, "{" GOOD_MAP "}");
    g_autoptr(RefitModel) without_total = import_file(plain, &as_written);
    g_assert_cmpuint(refit_model_n_tensors(without_total), ==, 3);
}

typedef struct {
    const char *name;
    const char *index;
    RefitError code;
    const char *place, *part;
} BadIndex;

static const BadIndex bad_indexes[] = {
    {"total-size-differs", "{\"metadata\": {\"total_size\": 33}, " GOOD_MAP "}",
     REFIT_ERROR_INVALID, ": metadata.total_size: ",
     "states 33 bytes, but the tensors of the files "
     "have 32"},
    {"total-size-is-a-text", "{\"metadata\": {\"total_size\": \"33\"}, " GOOD_MAP "}",
     REFIT_ERROR_INVALID, ": metadata.total_size: ", "is not a number"},
    {"map-is-empty", "{\"weight_map\": {}}", REFIT_ERROR_INVALID, ": weight_map: ", "object"},
    {"map-is-a-list", "{\"weight_map\": []}", REFIT_ERROR_INVALID, ": weight_map: ", "object"},
    {"file-is-missing", "{" MAP("m1.safetensors", "m3.safetensors", "m2.safetensors") "}",
     REFIT_ERROR_PARSE, ": weight_map.lm_head.weight: ", "m3.safetensors: cannot be read: "},
    {"file-leaves-the-folder", "{" MAP("m1.safetensors", "../m2.safetensors", "m2.safetensors") "}",
     REFIT_ERROR_INVALID, ": weight_map.lm_head.weight: ", "in the same folder"},
    {"file-is-a-number", "{\"weight_map\": {\"a\": 1}}", REFIT_ERROR_INVALID,
     ": weight_map.a: ", "must be the name"},
    {"no-file-has-the-tensor", "{\"weight_map\": {\"a\": \"m1.safetensors\"}}",
     REFIT_ERROR_NAME_MISSING, ": weight_map.a: ", "m1.safetensors has no such tensor"},
    {"another-file-has-the-tensor",
     "{" MAP("m1.safetensors", "m2.safetensors", "m1.safetensors") "}", REFIT_ERROR_NAME_MISSING,
     ": weight_map.model.layers.0.mlp.up_proj.weight: ",
     "m1.safetensors has no such tensor, but another file has"},
    {"map-lacks-a-tensor", "{\"weight_map\": {\"lm_head.weight\": \"m2.safetensors\"}}",
     REFIT_ERROR_NAME_MISSING, ": weight_map: ", "tensor model.layers.0.mlp.up_proj.weight"},
    {"is-not-json", "{\"weight_map\": {", REFIT_ERROR_PARSE, ":1:", "not JSON"},
    {"names-a-tensor-twice",
     "{\"weight_map\": {\"a\": \"m1.safetensors\", \"a\": \"m1.safetensors\"}}",
     REFIT_ERROR_NAME_COLLISION, ":1:", "twice"},
};

static void test_bad_index(gconstpointer data) {
    const BadIndex *bad = data;
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_index(&folder, bad->index);
    import_refused(path, bad->code, bad->place, bad->part);
}

static void test_two_files(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *third = folder_write_tensors(&folder, "m3.safetensors", PART_1, 0);
    g_autofree char *path =
        write_index(&folder, "{\"weight_map\": {\"a\": \"m3.safetensors\", \"model.norm.weight\": "
                             "\"m1.safetensors\"}}");
    import_refused(path, REFIT_ERROR_NAME_COLLISION, ": weight_map.model.norm.weight: ",
                   "tensor model.norm.weight: another file has a tensor of this name");
}

/* ---- M2N model files ---- */

static void test_m2n(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_text(
        &folder, "small.model.json",
        "{\"_comment\": \"x\",\n"
        "\"model.layers.0.self_attn.q_proj.weight\": {\"shape\": [8, 4], \"dtype\": \"F16\", "
        "\"shard\": \"model-00001-of-00002.safetensors\"},\n"
        "\"model.layers.1.mlp.experts.3.down_proj.weight\": {\"shape\": [4, 2]}}");
    RefitModelFile kind = REFIT_MODEL_FILE_REFIT;
    g_assert_true(refit_model_file_kind(&refit_disk, path, &kind, NULL));
    g_assert_cmpint(kind, ==, REFIT_MODEL_FILE_M2N);
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    g_assert_cmpstr(refit_model_name(model), ==, "small");
    expect_at(model, 0, "model.layers.0.self_attn.q_proj.weight 8x4 F16 attention_q 0 -1");
    expect_at(model, 1, "model.layers.1.mlp.experts.3.down_proj.weight 4x2 BF16 expert_down 1 3");
}

static void test_bad_m2n(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *dim =
        folder_write_text(&folder, "a.json", "{\"a\": {\"shape\": [4]}, \"b\": {\"shape\": [0]}}");
    import_refused(dim, REFIT_ERROR_INVALID, ": tensor b: ", "dim 0 is not a whole number");
    g_autofree char *twice =
        folder_write_text(&folder, "b.json", "{\"a\": {\"shape\": [4]},\n\"a\": {\"shape\": [4]}}");
    import_refused(twice, REFIT_ERROR_NAME_COLLISION, ":2:", "given twice");
    g_autofree char *large = folder_write_text(
        &folder, "c.json", "{\"a\": {\"shape\": [9223372036854775807, 9223372036854775807]}}");
    import_refused(large, REFIT_ERROR_OVERFLOW, ": tensor a: ", "");
}

int main(int argc, char **argv) {
    static const char *const form_names[] = {"plain", "native", "fp8"};
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(listings); i++) {
        g_autofree char *path = g_strdup_printf("/model-import/names-of/%s-%s%s", listings[i].name,
                                                form_names[listings[i].form],
                                                listings[i].has_config ? "-with-config" : "");
        g_test_add_data_func(path, &listings[i], test_listing);
    }
    for (guint i = 0; i < G_N_ELEMENTS(bad_headers); i++) {
        g_autofree char *path =
            g_strdup_printf("/model-import/header-with/%s", bad_headers[i].name);
        g_test_add_data_func(path, &bad_headers[i], test_bad_header);
    }
    for (guint i = 0; i < G_N_ELEMENTS(bad_indexes); i++) {
        g_autofree char *path =
            g_strdup_printf("/model-import/index-whose/%s", bad_indexes[i].name);
        g_test_add_data_func(path, &bad_indexes[i], test_bad_index);
    }
#define ADD(path, function) g_test_add_func("/model-import/" path, function)
    ADD("wrapped-names-are-known", test_wrapped);
    ADD("experts-may-be-grouped", test_grouped);
    ADD("unknown-names-are-other", test_unknown);
    ADD("numbers-of-unknown-names-count-when-all-are", test_all_unknown);
    ADD("a-name-means-what-its-layer-is", test_kinds);
    ADD("types-are-those-of-the-file-unless-stated", test_dtypes);
    ADD("scales-are-linked-by-name", test_scales);
    ADD("scales-must-divide-weights", test_bad_scale);
    ADD("mtp-layers-can-be-left-out", test_without_mtp);
    ADD("an-unknown-config-still-has-heads", test_other_config);
    ADD("a-config-must-agree-with-shapes", test_wrong_config);
    ADD("header-length-is-checked", test_bad_length);
    ADD("index-joins-its-files", test_index);
    ADD("index-whose/files-share-a-tensor", test_two_files);
    ADD("m2n-model-is-a-list", test_m2n);
    ADD("m2n-model-is-checked", test_bad_m2n);
#undef ADD
    return g_test_run();
}
