/*
 * Scales of fewer dims than their weights, as checkpoints quantized per tensor or per row have
 * them: cuts that they allow, and where they lie in fused parameters.
 */

#include "import-files.h"
#include "model/layout/refit-view.h"

/* Gate, up and down, [64, 32] in FP8, each with a scale of one shape. */
#define WEIGHT(name, rows, columns, at, end)                                                       \
    "\"model.layers.0.mlp." name ".weight\": {\"dtype\": \"F8_E4M3\", \"shape\": [" rows           \
    ", " columns "], \"data_offsets\": [" at ", " end "]}"
#define SCALE(name, shape, at, end)                                                                \
    "\"model.layers.0.mlp." name ".weight_scale\": {\"dtype\": \"F32\", \"shape\": " shape         \
    ", \"data_offsets\": [" at ", " end "]}"
#define FFN(shape, a, b, c)                                                                        \
    "{" WEIGHT("gate_proj", "64", "32", "0", "2048") ", " WEIGHT(                                  \
        "up_proj", "64", "32", "2048",                                                             \
        "4096") ", " WEIGHT("down_proj", "64", "32", "4096",                                       \
                            "6144") ", " SCALE("gate_proj", shape, "6144",                         \
                                               a) ", " SCALE("up_proj", shape, a,                  \
                                                             b) ", " SCALE("down_proj", shape, b,  \
                                                                           c) "}"

static RefitModel *import_header(const char *header) {
    const RefitModelOptions as_written = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_tensors(&folder, "a.safetensors", header, 0);
    return import_file(path, &as_written);
}

static RefitLayout *place(RefitModel *model, const char *side) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = g_strconcat("train: ", side, NULL);
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "c.yaml", &error);
    g_assert_no_error(error);
    RefitLayout *layout = refit_layout_parse(refit_node_get(refit_doc_root(doc), "train"), "train",
                                             model, 0, 8, &error);
    g_assert_no_error(error);
    return layout;
}

static const char *const headers[] = {
    FFN("[]", "6148", "6152", "6156"),      FFN("[1]", "6148", "6152", "6156"),
    FFN("[1, 1]", "6148", "6152", "6156"),  FFN("[64]", "6400", "6656", "6912"),
    FFN("[64, 1]", "6400", "6656", "6912"),
};

/* One number for all columns stands on each part of them. */
static void test_cuts(void) {
    for (guint i = 0; i < G_N_ELEMENTS(headers); i++) {
        g_autoptr(RefitModel) model = import_header(headers[i]);
        for (guint t = 0; t < refit_model_n_tensors(model); t++) {
            const RefitTensor *tensor = refit_model_tensor(model, t);
            g_assert_cmpint(tensor->scale, ==, g_str_has_suffix(tensor->name, "_scale"));
            for (guint d = 0; d < tensor->n_dims; d++) {
                g_assert_cmpuint(tensor->granule[d], ==, 0);
            }
        }
    }
}

#define TWICE_SCALED(scales)                                                                       \
    "{\"w.weight\": {\"dtype\": \"F8_E4M3\", \"shape\": [12], \"data_offsets\": [0, 12]}, " scales \
    "}"

/* Blocks of 4 and of 2: a cut keeps those of 4. */
static void test_two_scales(void) {
    g_autoptr(RefitModel) model = import_header(TWICE_SCALED(
        "\"w.weight_scale_inv\": {\"dtype\": \"U8\", \"shape\": [3], \"data_offsets\": [12, 15]}, "
        "\"w.weight_scale\": {\"dtype\": \"U8\", \"shape\": [6], \"data_offsets\": [15, 21]}"));
    g_assert_cmpuint(refit_model_tensor(model, 0)->granule[0], ==, 4);
    g_autoptr(RefitModel) whole = import_header(TWICE_SCALED(
        "\"w.weight_scale_inv\": {\"dtype\": \"U8\", \"shape\": [3], \"data_offsets\": [12, 15]}, "
        "\"w.weight_scale\": {\"dtype\": \"U8\", \"shape\": [], \"data_offsets\": [15, 16]}"));
    g_assert_cmpuint(refit_model_tensor(whole, 0)->granule[0], ==, 4);
}

static void test_scales_that_disagree(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_tensors(
        &folder, "a.safetensors",
        TWICE_SCALED(
            "\"w.weight_scale_inv\": {\"dtype\": \"U8\", \"shape\": [3], \"data_offsets\": [12, "
            "15]}, \"w.weight_scale\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [15, "
            "19]}"),
        0);
    import_refused(path, REFIT_ERROR_LOCAL_SHAPE, ": tensor w.weight_scale: ",
                   "blocks that another scale of w.weight does not have");
}

static const RefitParameter *find_parameter(const RefitRankViews *views, const char *name) {
    for (guint p = 0; p < views->n_parameters; p++) {
        if (g_str_equal(views->parameters[p].name, name)) {
            return &views->parameters[p];
        }
    }
    g_error("no parameter %s", name);
}

/* The scales of gate and up are two numbers, one behind the other; that of down is one. */
static void test_scalars(void) {
    g_autoptr(RefitModel) model = import_header(headers[0]);
    g_autoptr(RefitLayout) layout = place(model, "{framework: vllm, gpus: 2, tp: 2}");
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitRankViews) views = refit_rank_views_new(layout, 1, &error);
    g_assert_no_error(error);
    const RefitParameter *both =
        find_parameter(views, "model.layers.0.mlp.gate_up_proj.weight_scale");
    const RefitParameter *down = find_parameter(views, "model.layers.0.mlp.down_proj.weight_scale");
    g_assert_cmpuint(both->n_dims, ==, 1);
    g_assert_cmpuint(both->shape[0], ==, 2);
    g_assert_cmpuint(both->bytes, ==, 8);
    g_assert_cmpuint(both->n_tensors, ==, 2);
    g_assert_cmpuint(down->n_dims, ==, 0);
    g_assert_cmpuint(down->bytes, ==, 4);
    const RefitView *gate = refit_rank_views_find(views, 3, NULL);
    const RefitView *up = refit_rank_views_find(views, 4, NULL);
    g_assert_cmpuint(gate->parameter, ==, up->parameter);
    g_assert_cmpuint(gate->offset, ==, 0);
    g_assert_cmpuint(up->offset, ==, 1);
}

#define EXPERT(n, word, from, to)                                                                  \
    "\"model.layers.0.mlp.experts." n "." word "\": {\"dtype\": \"F32\", \"shape\": [], "          \
    "\"data_offsets\": [" from ", " to "]}"

/* [experts, 2]: the second number of expert 1 is the fourth. */
static void test_scalars_of_experts(void) {
    g_autoptr(RefitModel) model =
        import_header("{" EXPERT("0", "gate_proj.weight_scale", "0", "4") ", " EXPERT(
            "0", "up_proj.weight_scale", "4",
            "8") ", " EXPERT("1", "gate_proj.weight_scale", "8",
                             "12") ", " EXPERT("1", "up_proj.weight_scale", "12",
                                               "16") ", "
                                                     "\"model.layers.0.mlp.experts.0.gate_proj."
                                                     "weight\": {\"dtype\": \"F8_E4M3\", "
                                                     "\"shape\": [1, 1], \"data_offsets\": [16, "
                                                     "17]}, "
                                                     "\"model.layers.0.mlp.experts.0.up_proj."
                                                     "weight\": {\"dtype\": \"F8_E4M3\", "
                                                     "\"shape\": [1, 1], \"data_offsets\": [17, "
                                                     "18]}, "
                                                     "\"model.layers.0.mlp.experts.1.gate_proj."
                                                     "weight\": {\"dtype\": \"F8_E4M3\", "
                                                     "\"shape\": [1, 1], \"data_offsets\": [18, "
                                                     "19]}, "
                                                     "\"model.layers.0.mlp.experts.1.up_proj."
                                                     "weight\": {\"dtype\": \"F8_E4M3\", "
                                                     "\"shape\": [1, 1], \"data_offsets\": [19, "
                                                     "20]}}");
    g_autoptr(RefitLayout) layout = place(model, "{framework: vllm, gpus: 1}");
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitRankViews) views = refit_rank_views_new(layout, 0, &error);
    g_assert_no_error(error);
    const RefitParameter *scales =
        find_parameter(views, "model.layers.0.mlp.experts.w13_weight_scale");
    g_assert_cmpuint(scales->n_dims, ==, 2);
    g_assert_cmpuint(scales->shape[0], ==, 2);
    g_assert_cmpuint(scales->shape[1], ==, 2);
    for (guint i = 0; i < 4; i++) {
        g_assert_cmpuint(refit_rank_views_find(views, i, NULL)->offset, ==, i);
    }
}

/* No head has a number of its own. */
static void test_scalars_of_heads(void) {
    const char *text = "{schema: refit.model/1, name: m, family: list, "
                       "config: {num_attention_heads: 2, num_key_value_heads: 2}, tensors: ["
                       "{name: model.layers.0.self_attn.q_proj.weight_scale, shape: [], "
                       "role: attention_q}]}";
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "m.yaml", &error);
    g_autoptr(RefitModel) list = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    g_autoptr(RefitLayout) layout = place(list, "{framework: megatron, gpus: 1}");
    g_assert_null(refit_rank_views_new(layout, 0, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_nonnull(strstr(error->message, "its rows do not divide by the heads of the model"));
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
#define ADD(path, function) g_test_add_func("/model-import-scales/" path, function)
    ADD("one-for-all-columns-allows-any-cut", test_cuts);
    ADD("cuts-keep-the-blocks-of-all-scales", test_two_scales);
    ADD("blocks-of-two-scales-must-nest", test_scales_that_disagree);
    ADD("scalars-of-parts-follow-each-other", test_scalars);
    ADD("scalars-of-experts-have-slots", test_scalars_of_experts);
    ADD("scalars-have-no-heads", test_scalars_of_heads);
#undef ADD
    return g_test_run();
}
