/*
 * Quantized forms of models: every shipped model in its native and FP8 form against checksums of
 * independent listings; how weights and scales are linked, also in lists; which matrices a file
 * quantizes; bad form descriptions; names of forms.
 */

#include "test-model.h"

#define NATIVE REFIT_FORM_NATIVE
#define FP8 REFIT_FORM_FP8_BLOCK

/*
 * The checksum is SHA-256 over one line per tensor, in order, such as
 *
 *   model.layers.3.self_attn.kv_a_proj_with_mqa.weight_scale_inv 5x56 F32
 *
 * and was taken from a listing written by another program, which was itself compared with published
 * listings of quantized checkpoints. Parameters count the numbers that are stored, packed or not.
 * MTP layers are in wherever there are any; that they can be left out is tested with plain forms.
 */
typedef struct {
    const char *name;
    RefitForm form;
    gboolean mtp;
    guint64 parameters;
    guint n_tensors, n_scales;
    guint64 bytes;
    const char *checksum;
} Shipped;

static const Shipped shipped[] = {
    {"qwen3-4b", NATIVE, FALSE, 4022468096, 398, 0, 8044936192,
     "be55bd591f877ba675c9444457cbec10e42304f9d88ea3d46ed9100e92ead67a"},
    {"qwen3-30b-a3b", NATIVE, FALSE, 30532122624, 18867, 0, 61064245248,
     "3f3f31223d7eb3d48614b9f47d65805871514c90341580f6db713412fd542b11"},
    {"qwen3-30b-a3b", FP8, FALSE, 30532122624, 37491, 18624, 31170895872,
     "72823833f43e26b37023191c296bb2b40803248920105c57709b45b42dc32da5"},
    {"qwen3-32b", NATIVE, FALSE, 32762123264, 707, 0, 65524246528,
     "4f9395756d4ba17dee4aeeeb5ec2fe412697f0feeda065e099503d9dd8025741"},
    {"qwen3-32b", FP8, FALSE, 32762123264, 1155, 448, 34322434048,
     "8a5566ce537ad807c47ad4c6bffe4cc52f573bf21b34b31424addd760387227e"},
    {"qwen3-235b-a22b", NATIVE, FALSE, 235093634560, 36945, 0, 470187269120,
     "da56e28d30faad721e56fe0360db3797a2888b67a87b14ce40b09555e23132b1"},
    {"qwen3-235b-a22b", FP8, FALSE, 235093634560, 73417, 36472, 236416915456,
     "a65501505701defc1525d559db2ec5d8a4248375a0d8eb7c7a58f60a314c8d37"},
    {"qwen3.5-397b-a17b", NATIVE, TRUE, 403397928944, 2924, 0, 806795875168,
     "d40e42b645c8b2cb416da30fd568ef0a198e797d847a6fe59cbb0f4166e431e2"},
    {"qwen3.5-397b-a17b", FP8, TRUE, 403397928944, 189042, 94078, 406125181280,
     "1b46c545b4786c8b028dd8589a845d36bf60dc5ef7122946978b4e7361e3ae6a"},
    {"deepseek-v3", NATIVE, TRUE, 684489845504, 91991, 45808, 688574839360,
     "3165ab622d97cd5d346f410d4a230fce5817183b6ea79e2677ed1f8cf99ce582"},
    {"kimi-k2", NATIVE, FALSE, 1026408232448, 139644, 69608, 1029173256720,
     "8a65e3607b19fe7aad3f3e3b2b838931f75548f2ae206701ddecd3efbeb2ae8a"},
    {"kimi-k2", FP8, FALSE, 1026408232448, 139583, 69608, 1029173249888,
     "a79945691538530adbd18415dec06e585b4e451dc978c59294e982834c9a28e9"},
    {"nemotron-3-ultra-550b-a55b", NATIVE, TRUE, 560524603904, 51023, 0, 1121049257984,
     "cfb3805ab3581fa26a357a19706b5d7cbf61aa1a14ab687c15621b95cd55522c"},
    {"kimi-k3", NATIVE, FALSE, 2779931837184, 497220, 247296, 1560860324864,
     "f1048fc993b3da365ebec400e2de7a2f431dd7834e15ab086be1958cb6aa67c6"},
    {"qwen3.8-2.4t-a95b", NATIVE, TRUE, 2446182725504, 1609, 0, 4892365451008,
     "d4aa91a1d6ee907264e428c4d191427ab0c2899cef017d70a8bb27efab42d17f"},
    {"qwen3.8-2.4t-a95b", FP8, TRUE, 2446182725504, 287119, 142848, 2496066252544,
     "a7787480e2563461f588b47c34734f76d43b8e3009cb51f0a976dfcdc4959bfe"},
    {"llama-3.1-8b", NATIVE, FALSE, 8030261248, 291, 0, 16060522496,
     "4a937a6d16c35bd5ae4e91e33d4948c3bcac0323f30b020bac5c99237fad564e"},
    {"llama-3.1-8b", FP8, FALSE, 8030261248, 515, 224, 9082904576,
     "37c8ce962703b56555f1a56c19476ee1d6ed8087ebac546842948b3693289a53"},
    {"llama-3.1-70b", NATIVE, FALSE, 70553706496, 723, 0, 141107412992,
     "a023117a3e7ec00665b2dec85bb4f00aada3c089d95b2321a48f66bb10c8a9cb"},
    {"llama-3.1-70b", FP8, FALSE, 70553706496, 1283, 560, 72673083392,
     "b9f2142d65362cdd169a8d892c36b52b76224d059bdc08905facf98792038197"},
    {"llama-3.1-405b", NATIVE, FALSE, 405853388800, 1137, 0, 811706777600,
     "d9dfa4ac2982cb2253015a4208864c91bace83a46e02f4bcf9d4ba77beaa3736"},
    {"gpt-oss-120b", NATIVE, FALSE, 116829156672, 687, 72, 65248815744,
     "1dbfe655a52db2ff416df0d4160a0a438c0408a07047c192b03047cd55d26063"},
    {"glm-4.5", NATIVE, TRUE, 358337791296, 44691, 0, 716675611392,
     "6005f1675f64c1ecdea9c3b071407a9fead22072256cb9e82b65b6f008a6821b"},
    {"glm-4.5", FP8, TRUE, 358337791296, 88543, 43852, 361277168384,
     "13ca8ca28d8201a66cd3eb179084f7139f8f447cac87d0dbf3481aba493438aa"},
    {"mixtral-8x7b", NATIVE, FALSE, 46702792704, 995, 0, 93405585408,
     "9a4389dcf265b5c8183d165e00edb711d139edf4ec90a144f6a9967c76998926"},
    {"minimax-m2", NATIVE, FALSE, 228689764864, 96103, 47864, 230121630720,
     "38f8c2795b86080a022a5bf582dfc08069debd4519abeaca455bcd84dc478492"},
    {"minimax-m2", FP8, FALSE, 228689764864, 96103, 47864, 230121630720,
     "38f8c2795b86080a022a5bf582dfc08069debd4519abeaca455bcd84dc478492"},
};

/* Models of which no FP8 form was published. */
static const char *const without_fp8[] = {"qwen3-4b",     "nemotron-3-ultra-550b-a55b",
                                          "kimi-k3",      "llama-3.1-405b",
                                          "gpt-oss-120b", "mixtral-8x7b"};

static RefitDoc *open_shipped(const char *name) {
    g_autofree char *path =
        g_strdup_printf("%s/layouts/models/%s.yaml", REFIT_SOURCE_DATA_DIR, name);
    g_autoptr(GError) error = NULL;
    RefitDoc *doc = refit_doc_load(&refit_disk, path, &error);
    g_assert_no_error(error);
    return doc;
}

static RefitModel *load_form(const char *name, RefitForm form, gboolean mtp) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = open_shipped(name);
    const RefitModelOptions options = {.dtype = BF16, .mtp = mtp, .form = form};
    RefitModel *model = refit_model_parse(refit_doc_root(doc), &options, &error);
    g_assert_no_error(error);
    return model;
}

static RefitModel *parse_form(const char *text, RefitForm form, GError **error) {
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "m.yaml", error);
    g_assert_nonnull(doc);
    const RefitModelOptions options = {.dtype = BF16, .mtp = TRUE, .form = form};
    return refit_model_parse(refit_doc_root(doc), &options, error);
}

static RefitModel *parse_form_ok(const char *text, RefitForm form) {
    g_autoptr(GError) error = NULL;
    RefitModel *model = parse_form(text, form, &error);
    g_assert_no_error(error);
    return model;
}

static void refuse_form(const char *text, RefitForm form, const char *place, const char *part) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) model = parse_form(text, form, &error);
    g_assert_null(model);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    if (!g_str_has_prefix(error->message, place) || strstr(error->message, part) == NULL) {
        g_error("expected \"%s...%s...\", got \"%s\"", place, part, error->message);
    }
}

static void update(GChecksum *sum, GString *line, const RefitTensor *tensor) {
    g_string_printf(line, "%s ", tensor->name);
    for (guint d = 0; d < tensor->n_dims; d++) {
        g_string_append_printf(line, "%s%" G_GUINT64_FORMAT, d == 0 ? "" : "x", tensor->shape[d]);
    }
    g_string_append_printf(line, " %s\n", refit_dtype_name(tensor->dtype));
    g_checksum_update(sum, (const guchar *)line->str, (gssize)line->len);
}

/* A scale has an index for each block of its weight, and stands right behind it. */
static void check_scale(const RefitModel *model, guint index) {
    const RefitTensor *scale = refit_model_tensor(model, index);
    g_assert_cmpuint(scale->scale_of, ==, index - 1);
    const RefitTensor *weight = refit_model_tensor(model, index - 1);
    g_assert_false(weight->scale);
    g_assert_cmpint(scale->role, ==, weight->role);
    g_assert_cmpint(scale->layer, ==, weight->layer);
    g_assert_cmpint(scale->expert, ==, weight->expert);
    g_assert_cmpuint(scale->n_dims, <=, weight->n_dims);
    for (guint d = 0; d < scale->n_dims; d++) {
        g_assert_cmpuint(scale->block[d], >, 0);
        g_assert_cmpuint(scale->shape[d] * scale->block[d], >=, weight->shape[d]);
        g_assert_cmpuint((scale->shape[d] - 1) * scale->block[d], <, weight->shape[d]);
        g_assert_cmpuint(scale->granule[d], ==, 0);
    }
}

static void test_shipped(gconstpointer data) {
    const Shipped *want = data;
    g_autoptr(RefitModel) model = load_form(want->name, want->form, want->mtp);
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    g_autoptr(GString) line = g_string_new(NULL);
    guint n_scales = 0;
    guint64 bytes = 0, parameters = 0;
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        update(sum, line, tensor);
        bytes += tensor->bytes;
        parameters += tensor->parameters;
        if (tensor->scale) {
            check_scale(model, i);
            n_scales++;
        }
    }
    g_assert_cmpuint(refit_model_parameters(model), ==, want->parameters);
    g_assert_cmpuint(parameters, ==, want->parameters);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, want->n_tensors);
    g_assert_cmpuint(n_scales, ==, want->n_scales);
    g_assert_cmpuint(refit_model_bytes(model), ==, want->bytes);
    g_assert_cmpuint(bytes, ==, want->bytes);
    g_assert_cmpstr(g_checksum_get_string(sum), ==, want->checksum);
}

static void test_no_fp8(void) {
    for (guint i = 0; i < G_N_ELEMENTS(without_fp8); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitDoc) doc = open_shipped(without_fp8[i]);
        const RefitModelOptions options = {.dtype = BF16, .form = FP8};
        g_autoptr(RefitModel) model = refit_model_parse(refit_doc_root(doc), &options, &error);
        g_assert_null(model);
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
        g_assert_nonnull(strstr(error->message, "no FP8 form"));
    }
}

/* Every model file that describes a form, but that of the tests, has a row here for each. */
static void test_all(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(GDir) folder = g_dir_open(REFIT_SOURCE_DATA_DIR "/layouts/models", 0, &error);
    g_assert_no_error(error);
    guint n_described = 0;
    for (const char *file = g_dir_read_name(folder); file != NULL; file = g_dir_read_name(folder)) {
        if (!g_str_has_suffix(file, ".yaml") || g_str_equal(file, "tiny.yaml")) {
            continue;
        }
        g_autofree char *name = g_strndup(file, strlen(file) - strlen(".yaml"));
        g_autoptr(RefitDoc) doc = open_shipped(name);
        gboolean has_native = FALSE, has_fp8 = FALSE;
        for (guint i = 0; i < G_N_ELEMENTS(shipped); i++) {
            gboolean same = g_str_equal(shipped[i].name, name);
            has_native |= same && shipped[i].form == NATIVE;
            has_fp8 |= same && shipped[i].form == FP8;
        }
        g_test_message("%s", name);
        if (refit_node_get(refit_doc_root(doc), "native") != NULL) {
            g_assert_true(has_native);
            n_described++;
        }
        if (refit_node_get(refit_doc_root(doc), "fp8") != NULL) {
            g_assert_true(has_fp8);
            n_described++;
        }
    }
    g_assert_cmpuint(n_described, ==, 13);
}

/* ---- links, by hand ---- */

static void expect_link(const RefitModel *model, const char *scale_name, const char *weight,
                        guint32 block0, guint32 block1, guint32 granule0, guint32 granule1) {
    const RefitTensor *scale = find(model, scale_name);
    g_assert_nonnull(scale);
    const RefitTensor *of = refit_model_tensor(model, scale->scale_of);
    g_assert_cmpstr(of->name, ==, weight);
    g_assert_true(scale->scale && !of->scale);
    g_assert_cmpuint(scale->block[0], ==, block0);
    g_assert_cmpuint(scale->block[1], ==, block1);
    g_assert_cmpuint(of->granule[0], ==, granule0);
    g_assert_cmpuint(of->granule[1], ==, granule1);
}

/* 576 = 4 x 128 + 64 rows, 7168 = 56 x 128 columns. */
static void test_fp8_blocks(void) {
    g_autoptr(RefitModel) model = load_form("deepseek-v3", NATIVE, FALSE);
    expect(model, "model.layers.3.self_attn.kv_a_proj_with_mqa.weight 576x7168 F8_E4M3 mla_kv_a 3 "
                  "-1");
    expect(model, "model.layers.3.self_attn.kv_a_proj_with_mqa.weight_scale_inv 5x56 F32 mla_kv_a "
                  "3 -1");
    expect_link(model, "model.layers.3.self_attn.kv_a_proj_with_mqa.weight_scale_inv",
                "model.layers.3.self_attn.kv_a_proj_with_mqa.weight", 128, 128, 128, 128);
    expect(model, "model.layers.60.mlp.experts.255.down_proj.weight_scale_inv 56x16 F32 "
                  "expert_down 60 255");
    expect(model, "model.layers.3.mlp.gate.weight 256x7168 BF16 router 3 -1");
    expect(model, "lm_head.weight 129280x7168 BF16 lm_head -1 -1");
}

/* One scale a row: a cut between columns needs it on both sides, and is allowed. */
static void test_fp8_channels(void) {
    g_autoptr(RefitModel) model = load_form("glm-4.5", FP8, TRUE);
    expect(model, "model.layers.3.self_attn.q_proj.weight_scale 12288x1 F32 attention_q 3 -1");
    expect_link(model, "model.layers.3.self_attn.q_proj.weight_scale",
                "model.layers.3.self_attn.q_proj.weight", 1, 5120, 0, 0);
    expect(model, "model.layers.92.shared_head.head.weight_scale 151552x1 F32 lm_head 92 -1 mtp");
    expect(model, "lm_head.weight 151552x5120 BF16 lm_head -1 -1");
}

/* 3584 columns: 1792 bytes, 112 groups of 16 bytes. */
static void test_mxfp4(void) {
    g_autoptr(RefitModel) model = load_form("kimi-k3", NATIVE, FALSE);
    const char *expert = "language_model.model.layers.1.block_sparse_moe.experts.0.w1";
    g_autofree char *packed = g_strconcat(expert, ".weight_packed", NULL);
    g_autofree char *scale = g_strconcat(expert, ".weight_scale", NULL);
    g_autofree char *weight_line = g_strconcat(packed, " 3072x1792 U8 expert_gate 1 0", NULL);
    g_autofree char *scale_line = g_strconcat(scale, " 3072x112 U8 expert_gate 1 0", NULL);
    expect(model, weight_line);
    expect(model, scale_line);
    expect_link(model, scale, packed, 1, 16, 0, 16);
}

/* [experts, in, out] turns into [experts, out, groups, bytes]; 2880 = 90 groups of 32. */
static void test_mxfp4_stacked(void) {
    g_autoptr(RefitModel) model = load_form("gpt-oss-120b", NATIVE, FALSE);
    expect(model,
           "model.layers.0.mlp.experts.gate_up_proj_blocks 128x5760x90x16 U8 expert_gate_up 0 -1");
    expect(model, "model.layers.0.mlp.experts.gate_up_proj_scales 128x5760x90 U8 expert_gate_up 0 "
                  "-1");
    expect(model, "model.layers.0.mlp.experts.down_proj_scales 128x2880x90 U8 expert_down 0 -1");
    expect_link(model, "model.layers.0.mlp.experts.down_proj_scales",
                "model.layers.0.mlp.experts.down_proj_blocks", 1, 1, 0, 0);
    const RefitTensor *blocks = find(model, "model.layers.0.mlp.experts.down_proj_blocks");
    g_assert_cmpuint(blocks->granule[2], ==, 0);
    g_assert_cmpuint(blocks->granule[3], ==, 16);
}

/* A list with a form of its own: blocks of any size, and texts that exclude. */
#define LIST                                                                                       \
    HEAD("list")                                                                                   \
    "tensors:\n"                                                                                   \
    "  - {name: a.weight, shape: [5, 8], role: attention_q}\n"                                     \
    "  - {name: b.weight, shape: [4, 4], role: attention_k}\n"                                     \
    "  - {name: b.bias, shape: [4], role: attention_k}\n"                                          \
    "  - {name: c.weight, shape: [4, 4], role: router}\n"

static void test_any_block(void) {
    g_autoptr(RefitModel) model =
        parse_form_ok(LIST "native: {style: fp8_block, linears: [attention], block: [2, 3], scale: "
                           "f16, exclude: [b.w]}\n",
                      NATIVE);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 5);
    expect_at(model, 0, "a.weight 5x8 F8_E4M3 attention_q -1 -1");
    expect_at(model, 1, "a.weight_scale_inv 3x3 F16 attention_q -1 -1");
    expect_at(model, 2, "b.weight 4x4 BF16 attention_k -1 -1");
    expect_at(model, 3, "b.bias 4 BF16 attention_k -1 -1");
    expect_at(model, 4, "c.weight 4x4 BF16 router -1 -1");
    expect_link(model, "a.weight_scale_inv", "a.weight", 2, 3, 2, 3);
    /* 40 + 9 x 2 + 32 + 8 + 32 bytes; 40 + 16 + 4 + 16 parameters */
    g_assert_cmpuint(refit_model_bytes(model), ==, 130);
    g_assert_cmpuint(refit_model_parameters(model), ==, 76);
}

/* Without `native:` the checkpoint is plain; `plain` says the same. */
static void test_plain_native(void) {
    g_autoptr(RefitModel) absent = parse_form_ok(LIST, NATIVE);
    g_autoptr(RefitModel) stated = parse_form_ok(LIST "native: {style: plain}\n", NATIVE);
    g_assert_cmpuint(refit_model_bytes(absent), ==, 2 * 76);
    g_assert_cmpuint(refit_model_bytes(stated), ==, 2 * 76);
}

/* `fp8:` comes before `native:`, and only then is native the FP8 form. */
static void test_which_fp8(void) {
    const char *both = LIST "native: {style: mxfp4, linears: [expert]}\n"
                            "fp8: {style: fp8_channel, linears: [attention]}\n";
    g_autoptr(RefitModel) model = parse_form_ok(both, FP8);
    expect_at(model, 1, "a.weight_scale 5x1 F32 attention_q -1 -1");
    g_autoptr(RefitModel) native = parse_form_ok(both, NATIVE);
    g_assert_cmpuint(refit_model_n_tensors(native), ==, 4);
    g_autoptr(RefitModel) second =
        parse_form_ok(LIST "native: {style: fp8_block, linears: [attention]}\n"
                           "fp8: {style: fp8_channel, linears: [attention]}\n",
                      FP8);
    expect_at(second, 1, "a.weight_scale 5x1 F32 attention_q -1 -1");
    g_autoptr(RefitModel) plain = parse_form_ok(both, REFIT_FORM_PLAIN);
    g_assert_cmpuint(refit_model_n_tensors(plain), ==, 4);
}

/* ---- bad descriptions; LIST has 8 lines ---- */

static void test_bad(void) {
    static const struct {
        const char *text, *place, *part;
    } rows[] = {
        {"native: {style: fp8_blocks, linears: [attention]}\n", "m.yaml:9:17:", "fp8_block"},
        {"native: {linears: [attention]}\n", "m.yaml:9:9:", "style"},
        {"native: [fp8_block]\n", "m.yaml:9:9:", "mapping"},
        {"native: {style: fp8_block}\n", "m.yaml:9:9:", "linears"},
        {"native: {style: fp8_block, linears: []}\n", "m.yaml:9:37:", "empty"},
        {"native: {style: fp8_block, linears: [atention]}\n", "m.yaml:9:38:", "attention"},
        {"native: {style: fp8_block, linears: [dense, dense]}\n", "m.yaml:9:45:", "twice"},
        {"native: {style: fp8_block, linears: [dense], block: [128]}\n", "m.yaml:9:53:", "2 sizes"},
        {"native: {style: fp8_block, linears: [dense], block: [0, 1]}\n", "m.yaml:9:54:", "0"},
        {"native: {style: mxfp4, linears: [dense], block: [1, 1]}\n",
         "m.yaml:9:49:", "leave block out"},
        {"native: {style: mxfp4, linears: [dense], scale: f32}\n",
         "m.yaml:9:49:", "leave scale out"},
        {"native: {style: fp8_block, linears: [dense], scale: f31}\n", "m.yaml:9:53:", "f31"},
        {"native: {style: fp8_block, linears: [dense], exclude: [\"\"]}\n",
         "m.yaml:9:56:", "empty"},
        {"native: {style: fp8_block, linears: [dense], exlude: [a]}\n", "m.yaml:9:46:", "exclude"},
        {"native: {style: plain, linears: [dense]}\n", "m.yaml:9:24:", "linears"},
        {"fp8: {style: mxfp4, linears: [dense]}\n", "m.yaml:9:14:", "fp8_channel"},
        /* a.weight has 8 columns */
        {"native: {style: mxfp4, linears: [attention]}\n", "m.yaml:5:5:", "multiple of 32"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = g_strconcat(LIST, rows[i].text, NULL);
        g_test_message("%s", rows[i].text);
        refuse_form(text, NATIVE, rows[i].place, rows[i].part);
    }
    refuse_form(LIST, FP8, "m.yaml:1:1:", "no FP8 form");
    /* Unused descriptions are read all the same. */
    refuse_form(LIST "fp8: {style: fp8}\n", REFIT_FORM_PLAIN, "m.yaml:9:14:", "fp8_block");
}

static void test_too_wide(void) {
    refuse_form(HEAD("list") "tensors:\n"
                             "  - {name: a.weight, shape: [1, 4294967296], role: dense_up}\n"
                             "native: {style: fp8_channel, linears: [dense]}\n",
                NATIVE, "m.yaml:5:5:", "4294967295");
}

/* ---- scales of lists ---- */

static void test_list_scales(void) {
    g_autoptr(RefitModel) model =
        parse_ok(HEAD("list") "tensors:\n"
                              "- {name: \"w.{0-1}\", shape: [5, 8], granule: [2, 0]}\n"
                              "- {name: m, shape: [5], mtp: true}\n"
                              "- {name: t, shape: [256, 4], tile: [128, 4]}\n"
                              "- {name: \"s.{0-1}\", shape: [3, 1], scale: {of: \"w.{0-1}\", "
                              "block: [2, 8]}}\n"
                              "- {name: z, shape: [], scale: {of: w.1, block: []}}\n",
                 FALSE);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 6);
    expect_link(model, "s.0", "w.0", 2, 8, 2, 0);
    expect_link(model, "s.1", "w.1", 2, 8, 2, 0);
    expect_link(model, "z", "w.1", 0, 0, 2, 0);
    g_assert_true(find(model, "t")->tiled);
    g_assert_cmpuint(find(model, "t")->granule[0], ==, 128);
    g_assert_false(find(model, "w.0")->tiled);
    g_assert_cmpuint(refit_model_parameters(model), ==, 40 + 40 + 1024);
}

static void test_list_refusals(void) {
    static const struct {
        const char *item, *place, *part;
    } rows[] = {
        {"granule: [2]", "m.yaml:6:39:", "1 sizes for a tensor of 2 dims"},
        {"granule: [2, -1]", "m.yaml:6:43:", "-1"},
        {"granule: [2, 4294967296]", "m.yaml:6:43:", "4294967295"},
        {"granule: [1, 1], tile: [1, 1]", "m.yaml:6:53:", "keep one"},
        {"scale: {of: w}", "m.yaml:6:37:", "block"},
        {"scale: {block: [1, 1]}", "m.yaml:6:37:", "of"},
        {"scale: [w]", "m.yaml:6:37:", "mapping"},
        {"scale: {of: w, block: [0, 1]}", "m.yaml:6:53:", "0"},
        {"scale: {of: w, block: [2, 8], dim: 1}", "m.yaml:6:60:", "dim"},
        {"scale: {of: \"w{0-1}\", block: [2, 8]}", "m.yaml:6:42:", "2 names for 1 scales"},
        {"scale: {of: v, block: [2, 8]}", "m.yaml:6:5:", "scales v, which is not"},
        {"scale: {of: s, block: [2, 8]}", "m.yaml:6:5:", "scales s, which is not"},
        {"scale: {of: w, block: [2, 8]}, mtp: true", "m.yaml:6:5:", "of the same layers"},
        {"scale: {of: w, block: [1, 8]}", "m.yaml:6:5:", "one element per block"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = g_strconcat(
            HEAD("list") "tensors:\n  - {name: w, shape: [5, 8]}\n  - {name: s, shape: [3, 1], ",
            rows[i].item, "}\n", NULL);
        g_test_message("%s", rows[i].item);
        refuse_form(text, REFIT_FORM_PLAIN, rows[i].place, rows[i].part);
    }
}

/* ---- names ---- */

static void test_names(void) {
    static const struct {
        const char *text, *name;
        RefitForm form;
        RefitDtype dtype;
    } rows[] = {
        {"native", "native", NATIVE, BF16},
        {"FP8", "fp8", FP8, BF16},
        {"bf16", "bf16", REFIT_FORM_PLAIN, BF16},
        {"F32", "f32", REFIT_FORM_PLAIN, REFIT_DTYPE_F32},
        {"f8_e4m3", "f8_e4m3", REFIT_FORM_PLAIN, REFIT_DTYPE_F8_E4M3},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        RefitModelOptions options = {.dtype = REFIT_DTYPE_I64, .mtp = TRUE, .form = FP8};
        g_autoptr(GError) error = NULL;
        g_assert_true(refit_model_form_parse(rows[i].text, &options, &error));
        g_assert_no_error(error);
        g_assert_cmpint(options.form, ==, rows[i].form);
        g_assert_cmpint(options.dtype, ==, rows[i].dtype);
        g_assert_true(options.mtp);
        g_assert_cmpstr(refit_model_form_name(&options), ==, rows[i].name);
    }
    RefitModelOptions options = {.dtype = REFIT_DTYPE_I64, .form = FP8};
    g_autoptr(GError) error = NULL;
    g_assert_false(refit_model_form_parse("fp9", &options, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_nonnull(strstr(error->message, "native"));
    g_assert_cmpint(options.dtype, ==, REFIT_DTYPE_I64);
}

/* ---- models of programs ---- */

static void test_new_checks_scales(void) {
    RefitTensor tensors[] = {
        {.name = (char *)"w", .n_dims = 1, .shape = {4}, .layer = -1, .expert = -1},
        {.name = (char *)"s", .n_dims = 1, .shape = {1}, .layer = -1, .expert = -1, .scale = TRUE},
    };
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) model = refit_model_new("m", tensors, 2, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_model_parameters(model), ==, 4);
    g_assert_cmpuint(refit_model_bytes(model), ==, 10);
    const guint bad[] = {1, 2};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        tensors[1].scale_of = bad[i];
        g_autoptr(GError) refused = NULL;
        g_assert_null(refit_model_new("m", tensors, 2, &refused));
        g_assert_error(refused, REFIT_ERROR, REFIT_ERROR_INVALID);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(shipped); i++) {
        g_autofree char *path = g_strdup_printf(
            "/model-forms/%s-%s%s-equals-an-independent-listing", shipped[i].name,
            shipped[i].form == NATIVE ? "native" : "fp8", shipped[i].mtp ? "-with-mtp" : "");
        g_test_add_data_func(path, &shipped[i], test_shipped);
    }
    g_test_add_func("/model-forms/unpublished-fp8-is-refused", test_no_fp8);
    g_test_add_func("/model-forms/every-file-is-covered", test_all);
    g_test_add_func("/model-forms/fp8-blocks-are-linked", test_fp8_blocks);
    g_test_add_func("/model-forms/fp8-channels-are-linked", test_fp8_channels);
    g_test_add_func("/model-forms/mxfp4-is-packed", test_mxfp4);
    g_test_add_func("/model-forms/stacked-mxfp4-is-transposed", test_mxfp4_stacked);
    g_test_add_func("/model-forms/blocks-have-any-size", test_any_block);
    g_test_add_func("/model-forms/native-may-be-plain", test_plain_native);
    g_test_add_func("/model-forms/fp8-goes-before-native", test_which_fp8);
    g_test_add_func("/model-forms/bad-descriptions-are-refused", test_bad);
    g_test_add_func("/model-forms/too-many-columns-are-refused", test_too_wide);
    g_test_add_func("/model-forms/lists-link-scales", test_list_scales);
    g_test_add_func("/model-forms/bad-scales-of-lists-are-refused", test_list_refusals);
    g_test_add_func("/model-forms/forms-have-names", test_names);
    g_test_add_func("/model-forms/scales-of-nothing-are-refused", test_new_checks_scales);
    return g_test_run();
}
