/*
 * Tensors that no family knows: names of other families, names whose shapes disagree and packed
 * projections without a config are not cut; what is stated of them; the limit from which a case is
 * refused, and the sides that it concerns.
 */

#include "import-files.h"
#include "model/case/refit-case.h"
#include "test-model.h"

static const RefitModelOptions as_written = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};

/* One tensor of a header that is being written. */
static void add(GString *header, guint64 *end, const char *name, guint n_dims,
                const guint64 *shape) {
    guint64 bytes = 2;
    g_string_append_printf(header, "%s\"%s\": {\"dtype\": \"BF16\", \"shape\": [",
                           *end > 0 ? ", " : "", name);
    for (guint d = 0; d < n_dims; d++) {
        g_string_append_printf(header, "%s%" G_GUINT64_FORMAT, d > 0 ? ", " : "", shape[d]);
        bytes *= shape[d];
    }
    g_string_append_printf(header,
                           "], \"data_offsets\": [%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT "]}",
                           *end, *end + bytes);
    *end += bytes;
}

#define ADD_TENSOR(name, ...)                                                                      \
    do {                                                                                           \
        const guint64 shape[] = {__VA_ARGS__};                                                     \
        add(header, &end, name, G_N_ELEMENTS(shape), shape);                                       \
    } while (0)

#define LAYER "model.layers.0."

/* A layer of 4 heads, 2 KV heads of 8, hidden 32, with experts [in, out] as `experts` has them. */
static char *write_layer(const Folder *folder, guint64 rows, guint64 columns, guint64 extra) {
    g_autoptr(GString) header = g_string_new("{");
    guint64 end = 0;
    ADD_TENSOR("model.embed_tokens.weight", 160, 32);
    ADD_TENSOR("lm_head.weight", 160, 32);
    ADD_TENSOR(LAYER "input_layernorm.weight", 32);
    ADD_TENSOR(LAYER "post_attention_layernorm.weight", 32);
    ADD_TENSOR(LAYER "self_attn.q_proj.weight", 32, 32);
    ADD_TENSOR(LAYER "self_attn.k_proj.weight", 16, 32);
    ADD_TENSOR(LAYER "self_attn.v_proj.weight", 16, 32);
    ADD_TENSOR(LAYER "self_attn.o_proj.weight", 32, 32);
    ADD_TENSOR(LAYER "self_attn.q_norm.weight", 8);
    ADD_TENSOR(LAYER "self_attn.k_norm.weight", 8);
    ADD_TENSOR("model.norm.weight", 32);
    if (rows > 0) {
        ADD_TENSOR(LAYER "mlp.experts.gate_up_proj", 4, rows, columns);
    }
    if (extra > 0) {
        ADD_TENSOR(LAYER "mixer.D", extra); /* of Nemotron-H */
    }
    g_string_append_c(header, '}');
    return folder_write_tensors(folder, "model.safetensors", header->str, 0);
}

static void expect_unknown(const RefitModel *model, const char *name) {
    const RefitTensor *tensor = find(model, name);
    g_assert_nonnull(tensor);
    g_assert_true(tensor->unknown);
    g_assert_cmpint(tensor->role, ==, REFIT_ROLE_OTHER);
    g_assert_cmpint(tensor->layer, ==, 0);
}

/* A name that only another family than that of the layer knows. */
static void test_other_family(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_layer(&folder, 0, 0, 6);
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    guint64 bytes = 0;
    g_assert_cmpstr(refit_model_family(model), ==, "dense");
    g_assert_cmpuint(refit_model_n_unknown(model, &bytes), ==, 1);
    g_assert_cmpuint(bytes, ==, 12);
    expect_unknown(model, LAYER "mixer.D");
    g_assert_cmpint(find(model, LAYER "self_attn.q_proj.weight")->role, ==, REFIT_ROLE_ATTENTION_Q);
}

/* Qwen3.5 has [experts, out, in]: with rows and columns exchanged the name is right, not the shape.
 */
static void test_shapes(void) {
    for (guint turned = 0; turned < 2; turned++) {
        g_autoptr(GString) header = g_string_new("{");
        guint64 end = 0;
        g_auto(Folder) folder;
        folder_init(&folder);
        ADD_TENSOR("model.embed_tokens.weight", 160, 32);
        ADD_TENSOR("lm_head.weight", 160, 32);
        ADD_TENSOR(LAYER "input_layernorm.weight", 32);
        ADD_TENSOR(LAYER "post_attention_layernorm.weight", 32);
        ADD_TENSOR(LAYER "linear_attn.A_log", 8);
        ADD_TENSOR(LAYER "linear_attn.dt_bias", 8);
        ADD_TENSOR(LAYER "linear_attn.in_proj_qkv.weight", 64, 32);
        ADD_TENSOR(LAYER "mlp.gate.weight", 4, 32);
        if (turned == 0) {
            ADD_TENSOR(LAYER "mlp.experts.gate_up_proj", 4, 24, 32);
        } else {
            ADD_TENSOR(LAYER "mlp.experts.gate_up_proj", 4, 32, 24);
        }
        ADD_TENSOR(LAYER "mlp.experts.down_proj", 4, 32, 12);
        ADD_TENSOR("model.norm.weight", 32);
        g_string_append_c(header, '}');
        g_autofree char *path = folder_write_tensors(&folder, "model.safetensors", header->str, 0);
        g_autoptr(RefitModel) model = import_file(path, &as_written);
        const RefitTensor *experts = find(model, LAYER "mlp.experts.gate_up_proj");
        g_assert_cmpstr(refit_model_family(model), ==, "qwen3_5_moe");
        if (turned == 1) {
            expect_unknown(model, experts->name);
        } else {
            g_assert_cmpint(experts->role, ==, REFIT_ROLE_EXPERT_GATE_UP);
            g_assert_cmpuint(experts->n_packed, ==, 2);
            g_assert_cmpuint(experts->packed[0].extent, ==, 12);
            g_assert_cmpuint(experts->packed[1].extent, ==, 12);
            g_assert_cmpuint(experts->packed_dim, ==, 1);
        }
        /* Key heads are in no shape, so its segments are not known. */
        expect_unknown(model, LAYER "linear_attn.in_proj_qkv.weight");
    }
}

/* What the model type cannot expand does not stop the headers; heads are taken from it. */
static void test_config_that_cannot_be_expanded(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_layer(&folder, 0, 0, 0);
    g_autofree char *config = folder_write_text(
        &folder, "config.json",
        "{\"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_key_value_heads\": 2}");
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    g_assert_cmpuint(refit_model_n_heads(model), ==, 4);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 2);
    guint64 bytes = 0;
    g_assert_cmpuint(refit_model_n_unknown(model, &bytes), ==, 0);
}

/* ---- cases ---- */

static const char *const whole_train = "{framework: fsdp, gpus: 2}";

/* The case of these sides and `more`, whose model is `path`; an error must begin and go on so. */
static RefitCase *load_case(const Folder *folder, const char *train, const char *generation,
                            const char *more, const char *place, const char *part) {
    g_autofree char *text = g_strdup_printf(
        "schema: refit.case/1\nmodel: model.safetensors\ntrain: %s\ngeneration: %s\n"
        "topology: \"node:1 gpu:8 nvlink:450GBps nic:50GBps\"\n%s",
        train, generation, more);
    g_autofree char *layouts = g_build_filename(REFIT_SOURCE_DATA_DIR, "layouts", NULL);
    g_autofree char *path = folder_write_text(folder, "case.yaml", text);
    const RefitStore store = {.layouts_dir = layouts, .files = &refit_disk};
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = refit_case_load(&store, path, NULL, &error);
    if (part == NULL) {
        g_assert_no_error(error);
        return refit_case;
    }
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_autofree char *begin = g_strconcat(path, place, NULL);
    if (!g_str_has_prefix(error->message, begin) || strstr(error->message, part) == NULL) {
        g_error("expected \"%s...%s...\", got \"%s\"", begin, part, error->message);
    }
    return NULL;
}

#define VLLM "{framework: vllm, gpus: 2, tp: 2}"
#define VLLM_1 "{framework: vllm, gpus: 1, tp: 1}"
#define EXPLICIT "{framework: explicit, gpus: 2, rules: [{tensors: \"*\", place: [replicate]}]}"

static void write_heads(const Folder *folder) {
    g_autofree char *config = folder_write_text(
        folder, "config.json",
        "{\"model_type\": \"novel\", \"num_attention_heads\": 4, \"num_key_value_heads\": 2}");
}

static void test_refused(void) {
    static const char *const cutting[] = {VLLM, "{framework: sglang, gpus: 2, tp: 2}",
                                          "{framework: megatron, gpus: 2, tp: 2}",
                                          "{framework: fsdp, gpus: 2, tp: 2}"};
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_layer(&folder, 32, 48, 0);
    write_heads(&folder);
    for (guint i = 0; i < G_N_ELEMENTS(cutting); i++) {
        load_case(&folder, whole_train, cutting[i], "",
                  ":2:8: model: ", "such as model.layers.0.mlp.experts.gate_up_proj [4, 32, 48]");
        load_case(&folder, cutting[i], EXPLICIT, "", ":2:8: model: ", "(limit 1)");
        g_autoptr(RefitCase) whole =
            load_case(&folder, whole_train, cutting[i], "unknown: whole\n", NULL, NULL);
        g_assert_nonnull(whole);
    }
    /* These do not look at what tensors are for. */
    g_autoptr(RefitCase) other = load_case(&folder, whole_train, EXPLICIT, "", NULL, NULL);
    g_assert_nonnull(other);
}

/* 26,848 B are known, so that 270 B are just below 1 % of all and 272 B just above. */
static void test_limit(void) {
    for (guint64 extra = 135; extra <= 136; extra++) {
        g_auto(Folder) folder;
        folder_init(&folder);
        g_autofree char *path = write_layer(&folder, 0, 0, extra);
        write_heads(&folder);
        g_autoptr(RefitModel) model = import_file(path, &as_written);
        g_assert_cmpuint(refit_model_bytes(model), ==, 26848 + 2 * extra);
        g_autoptr(RefitCase) refit_case =
            load_case(&folder, whole_train, VLLM, "",
                      ":2:8: model: ", extra == 135 ? NULL : "272 B of 27.1 kB, 1.0 %");
        g_assert_cmpint(refit_case != NULL, ==, extra == 135);
    }
}

static void test_stated_roles(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_layer(&folder, 32, 48, 0);
    write_heads(&folder);
    g_autoptr(RefitCase) refit_case = load_case(
        &folder, whole_train, VLLM,
        "unknown: [{tensors: \"*.gate_up_proj\", role: expert_gate_up_halves_t}]\n", NULL, NULL);
    const RefitTensor *tensor = find(refit_case->model, LAYER "mlp.experts.gate_up_proj");
    guint64 bytes = 0;
    g_assert_cmpuint(refit_model_n_unknown(refit_case->model, &bytes), ==, 0);
    g_assert_cmpint(tensor->role, ==, REFIT_ROLE_EXPERT_GATE_UP_HALVES_T);
    guint index = (guint)(tensor - refit_model_tensor(refit_case->model, 0));
    const RefitSharding *sharding = refit_layout_sharding(refit_case->destinations[0], index);
    /* Rank 1 has gate 12-23 and up 36-47 of dim 2. */
    g_auto(RefitRegion) region = {0};
    guint64 buffer[REFIT_MAX_DIMS];
    g_assert_true(refit_sharding_local(sharding, 0, 3, 3, tensor->shape, &region, buffer, NULL));
    g_autofree char *text = refit_region_to_string(&region);
    g_assert_cmpstr(text, ==, "[0:4, 0:32, 12:24+36:48]");
}

static void test_bad_roles(void) {
    static const struct {
        const char *unknown, *place, *part;
    } bad[] = {
        {"some", ":6:10: unknown: ", "\"some\" is not one of whole"},
        {"[{tensors: \"*.novel\", role: other}]",
         ":6:21: unknown.0.tensors: ", "fits none of the tensors"},
        {"[{tensors: \"*.q_proj.weight\", role: other}]",
         ":6:21: unknown.0.tensors: ", "fits none of the tensors"},
        {"[{tensors: \"*\", role: experts}]",
         ":6:32: unknown.0.role: ", "\"experts\" is not one of"},
        {"[{tensors: \"*\"}]", ":6:11: unknown.0: ", "\"role\" is missing"},
        {"[whole]", ":6:11: unknown.0: ", "mapping"},
    };
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_layer(&folder, 32, 48, 0);
    write_heads(&folder);
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *more = g_strdup_printf("unknown: %s\n", bad[i].unknown);
        load_case(&folder, whole_train, VLLM, more, bad[i].place, bad[i].part);
    }
    g_autofree char *odd = write_layer(&folder, 32, 47, 0);
    load_case(&folder, whole_train, VLLM,
              "unknown: [{tensors: \"*\", role: expert_gate_up_halves_t}]\n",
              ":6:32: unknown.0.role: ", "is not [experts, in, gate then up]");
}

/* Heads are in no shape: what lies by KV heads cannot be cut, and Megatron fuses by them always. */
static void test_unknown_heads(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_layer(&folder, 0, 0, 0);
    load_case(&folder, whole_train, VLLM, "",
              ":4:44: generation.tp: ", "put a config.json with num_attention_heads");
    load_case(&folder, "{framework: megatron, gpus: 1}", VLLM_1, "",
              ":3:8: train: ", "self_attn.q_proj.weight lies by KV heads");
    g_autoptr(RefitCase) one = load_case(&folder, whole_train, VLLM_1, "", NULL, NULL);
    g_assert_nonnull(one);
    write_heads(&folder);
    g_autoptr(RefitCase) two = load_case(&folder, whole_train, VLLM, "", NULL, NULL);
    g_assert_nonnull(two);
}

/* Names that differ in numbers only are listed as one, the most bytes first. */
static void test_names(void) {
    g_autoptr(GString) header = g_string_new("{");
    guint64 end = 0;
    g_auto(Folder) folder;
    folder_init(&folder);
    ADD_TENSOR("model.layers.0.novel.weight", 3);
    ADD_TENSOR("model.layers.1.novel.weight", 4);
    ADD_TENSOR("z", 1);
    ADD_TENSOR("y", 1);
    g_string_append_c(header, '}');
    g_autofree char *path = folder_write_tensors(&folder, "model.safetensors", header->str, 0);
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    g_autoptr(GArray) names = refit_model_unknown_names(model);
    static const RefitUnknownNames wanted[] = {
        {(char *)"model.layers.*.novel.weight", 2, 14}, {(char *)"y", 1, 2}, {(char *)"z", 1, 2}};
    g_assert_cmpuint(names->len, ==, G_N_ELEMENTS(wanted));
    for (guint i = 0; i < names->len; i++) {
        const RefitUnknownNames *item = &g_array_index(names, RefitUnknownNames, i);
        g_assert_cmpstr(item->names, ==, wanted[i].names);
        g_assert_cmpuint(item->n_tensors, ==, wanted[i].n_tensors);
        g_assert_cmpuint(item->bytes, ==, wanted[i].bytes);
    }
}

#define TEST(name, function) g_test_add_func("/model-unknown/" name, function)

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    TEST("a-name-of-another-family", test_other_family);
    TEST("a-shape-that-disagrees", test_shapes);
    TEST("a-config-that-cannot-be-expanded", test_config_that_cannot_be_expanded);
    TEST("many-bytes-are-refused", test_refused);
    TEST("one-percent-is-the-limit", test_limit);
    TEST("roles-may-be-stated", test_stated_roles);
    TEST("bad-roles", test_bad_roles);
    TEST("heads-must-be-known", test_unknown_heads);
    TEST("names-are-listed", test_names);
    return g_test_run();
}
