/*
 * The sides of NCCL M2N's system files: ranks of both meshes of training, of the one mesh of
 * generation, stages, which names are cut and how, grouped and single experts, defaults; the number
 * of GPUs from the file or the case; keys that the benchmark does not read; every size that does
 * not divide; files that are not there.
 */

#include "import-files.h"
#include "test-layout.h"

#define MODEL                                                                                      \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: model.embed_tokens.weight, shape: [8, 4]}\n"                                       \
    "  - {name: \"model.layers.{0-3}.self_attn.o_proj.weight\", shape: [4, 8]}\n"                  \
    "  - {name: \"model.layers.{0-3}.input_layernorm.weight\", shape: [4]}\n"                      \
    "  - {name: \"model.layers.{0-3}.mlp.gate.weight\", shape: [4, 4]}\n"                          \
    "  - {name: \"model.layers.{0-3}.mlp.experts.{0-3}.up_proj.weight\", shape: [4, 4], role: "    \
    "expert_up}\n"                                                                                 \
    "  - {name: \"model.layers.0.mlp.experts.down_proj.weight\", shape: [4, 4, 8], role: "         \
    "expert_down}\n"                                                                               \
    "  - {name: lm_head.weight, shape: [8, 4]}\n"

/* Training: 2 stages of 4 ranks; [dp 2, tp 2] and [dp' 1, ep 4]. */
#define TRAIN "\"train\": {\"num_gpus\": 8, \"tp_size\": 2, \"ep_size\": 4, \"pp_size\": 2}"

static RefitLayout *read_side(const char *system, const char *side, const char *keys,
                              GError **error) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_text(&folder, "system.json", system);
    g_autofree char *text = g_strdup_printf("side: {framework: m2n, system: %s%s}", path, keys);
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "c.yaml", error);
    g_assert_nonnull(doc);
    refit_doc_use_files(doc, &refit_disk);
    g_autoptr(RefitModel) model = make_model(MODEL);
    return refit_layout_parse(refit_node_get(refit_doc_root(doc), "side"), side, model, 0,
                              N_AVAILABLE, error);
}

static RefitLayout *read_ok(const char *system, const char *side) {
    g_autoptr(GError) error = NULL;
    RefitLayout *layout = read_side(system, side, "", &error);
    g_assert_no_error(error);
    g_assert_nonnull(layout);
    return layout;
}

/* The message ends in "system.json" and `expected`, which may have wildcards. */
static void refuse(const char *system, const char *side, const char *keys, const char *expected) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitLayout) layout = read_side(system, side, keys, &error);
    g_assert_null(layout);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_autofree char *pattern = g_strconcat("*/system.json", expected, NULL);
    if (!g_pattern_match_simple(pattern, error->message))
        g_assert_cmpstr(error->message, ==, pattern);
}

static void test_train(void) {
    g_autoptr(RefitLayout) layout = read_ok("{" TRAIN "}", "train");
    g_assert_cmpuint(refit_layout_n_ranks(layout), ==, 8);
    g_assert_cmpstr(refit_layout_summary(layout), ==, "m2n tp2 ep4 dp2 pp2");
    g_assert_cmpuint(refit_layout_n_stages(layout), ==, 2);
    g_assert_cmpuint(refit_layout_stage_of(layout, 3), ==, 0);
    g_assert_cmpuint(refit_layout_stage_of(layout, 4), ==, 1);
    assert_held(layout, "model.embed_tokens.weight", "0,2 [0:4, 0:4]; 1,3 [4:8, 0:4]");
    assert_held(layout, "lm_head.weight", "4,6 [0:4, 0:4]; 5,7 [4:8, 0:4]");
    assert_held(layout, "model.layers.1.self_attn.o_proj.weight", "0,2 [0:4, 0:4]; 1,3 [0:4, 4:8]");
    assert_held(layout, "model.layers.2.self_attn.o_proj.weight", "4,6 [0:4, 0:4]; 5,7 [0:4, 4:8]");
    assert_held(layout, "model.layers.3.input_layernorm.weight", "4,5,6,7 [0:4]");
    assert_held(layout, "model.layers.0.mlp.gate.weight", "0,1,2,3 [0:4, 0:4]");
    assert_held(layout, "model.layers.0.mlp.experts.2.up_proj.weight", "2 [0:4, 0:4]");
    assert_held(layout, "model.layers.3.mlp.experts.1.up_proj.weight", "5 [0:4, 0:4]");
    assert_held(layout, "model.layers.0.mlp.experts.down_proj.weight",
                "0 [0:1, 0:4, 0:8]; 1 [1:2, 0:4, 0:8]; 2 [2:3, 0:4, 0:8]; 3 [3:4, 0:4, 0:8]");
}

/* Without ep, training holds every expert everywhere, generation cuts them over tp. */
static void test_experts_over_tp(void) {
    static const char system[] =
        "{\"train\": {\"num_gpus\": 2, \"tp_size\": 2},"
        "\"generation\": {\"num_gpus\": 4, \"tp_size\": 2, \"dp_size\": 2}}";
    g_autoptr(RefitLayout) train = read_ok(system, "train");
    g_autoptr(RefitLayout) generation = read_ok(system, "generation.1");
    assert_held(train, "model.layers.0.mlp.experts.2.up_proj.weight", "0,1 [0:4, 0:4]");
    assert_held(generation, "model.layers.0.mlp.experts.2.up_proj.weight",
                "0,2 [0:2, 0:4]; 1,3 [2:4, 0:4]");
    assert_held(generation, "model.layers.0.mlp.experts.down_proj.weight",
                "0,2 [0:4, 0:4, 0:4]; 1,3 [0:4, 0:4, 4:8]");
    g_assert_cmpstr(refit_layout_summary(generation), ==, "m2n tp2 dp2");
}

/* One mesh [dp 2, ep 2, cp 1, tp 2]. */
static void test_experts_over_ep(void) {
    g_autoptr(RefitLayout) layout = read_ok(
        "{\"generation\": {\"num_gpus\": 8, \"tp_size\": 2, \"ep_size\": 2, \"dp_size\": 2}}",
        "generation");
    assert_held(layout, "model.layers.0.mlp.experts.2.up_proj.weight", "2,3,6,7 [0:4, 0:4]");
    assert_held(layout, "model.layers.0.mlp.experts.down_proj.weight",
                "0,1,4,5 [0:2, 0:4, 0:8]; 2,3,6,7 [2:4, 0:4, 0:8]");
    assert_held(layout, "lm_head.weight", "0,2,4,6 [0:4, 0:4]; 1,3,5,7 [4:8, 0:4]");
}

static void test_comments(void) {
    g_autoptr(RefitLayout) layout = read_ok(
        "{\"_comment\": \"x\", \"train\": {\"num_gpus\": 2, \"fsdp_size\": 2, \"dp_size\": 9, "
        "\"note\": {\"a\": [1]}}}",
        "train");
    assert_held(layout, "lm_head.weight", "0,1 [0:8, 0:4]");
    g_assert_cmpstr(refit_layout_summary(layout), ==, "m2n dp2 (fsdp2 is not used)");
}

/* A misspelt size is one that is not there, for the benchmark as for us: the user should know. */
static void test_notes(void) {
    static const char system[] = "{\"train\": {\"num_gpus\": 2,\n \"tp_sizes\": 2,"
                                 " \"_why\": 1, \"fsdp_size\": 1,\n  \"note\": \"x\"},"
                                 " \"generation\": {\"num_gpus\": 2, \"tp_size\": 2}}";
    static const char *const wanted[] = {
        "*/system.json:2:2: train.tp_sizes: NCCL M2N's benchmark does not read this key, nor do we "
        "(did you mean \"tp_size\"?)",
        "*/system.json:3:3: train.note: NCCL M2N's benchmark does not read this key, nor do we; "
        "begin it with _ to say that it is a comment"};
    g_autoptr(RefitLayout) train = read_ok(system, "train");
    g_autoptr(RefitLayout) generation = read_ok(system, "generation");
    g_assert_cmpuint(refit_layout_n_notes(train), ==, G_N_ELEMENTS(wanted));
    for (guint i = 0; i < G_N_ELEMENTS(wanted); i++)
        if (!g_pattern_match_simple(wanted[i], refit_layout_note(train, i)))
            g_assert_cmpstr(refit_layout_note(train, i), ==, wanted[i]);
    g_assert_cmpuint(refit_layout_n_notes(generation), ==, 0);
}

static void test_stated_gpus(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitLayout) layout =
        read_side("{" TRAIN "}", "train", ", ranks: [8-11, 0-3], gpus: 8", &error);
    g_assert_no_error(error);
    assert_held(layout, "lm_head.weight", "0,2 [0:4, 0:4]; 1,3 [4:8, 0:4]");
    refuse("{" TRAIN "}", "train", ", gpus: 4",
           ":1:24: train.num_gpus: is 8, but the case gives this side 4 GPUs; *");
    refuse("{" TRAIN "}", "train", ", ranks: [0-2]",
           ":1:24: train.num_gpus: is 8, but the case gives this side 3 GPUs; *");
}

static void test_too_many(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitLayout) layout =
        read_side("{\"train\": {\"num_gpus\": 1024}}", "train", "", &error);
    g_assert_null(layout);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_nonnull(strstr(error->message, "1024 GPUs from GPU 0 on need 1024"));
}

#define SIDE(sizes) "{\"train\": {\"num_gpus\": 8, " sizes "}}"

static void test_bad_sizes(void) {
    refuse(SIDE("\"pp_size\": 3"), "train", "",
           ":*: train.pp_size: pp_size 3 does not divide the 8 GPUs of the side");
    refuse(SIDE("\"tp_size\": 3, \"cp_size\": 2"), "train", "",
           ":*: train.tp_size: tp_size * cp_size 6 does not divide the 8 GPUs of a stage");
    refuse(SIDE("\"ep_size\": 3"), "train", "",
           ":*: train.ep_size: ep_size 3 does not divide the 8 GPUs of a stage");
    refuse(SIDE("\"ep_size\": 8"), "train", "", ":*: train.ep_size: ep_size 8 does not divide *");
    refuse("{\"train\": {\"num_gpus\": 16, \"tp_size\": 16}}", "train", "",
           ":*: train.tp_size: tp_size 16 does not divide dim * of *; NCCL M2N moves equal shards "
           "only");
    refuse(SIDE("\"tp_size\": 0"), "train", "", ":*: train.tp_size: *");
    refuse("{\"train\": {\"tp_size\": 2}}", "train", "",
           ":*: train: the key \"num_gpus\" is missing*");
    refuse("{\"train\": 3}", "train", "", ":1:11: train: *");
    refuse("{\"train\": {}}", "generation", "", ":1:1: the key \"generation\" is missing*");
    refuse("{\"generation\": {\"num_gpus\": 8, \"tp_size\": 2, \"dp_size\": 2}}", "generation", "",
           ":*: generation.dp_size: * is not the 8 GPUs; *");
}

static void test_bad_file(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitLayout) missing =
        parse(MODEL, "{framework: m2n, system: /nowhere/system.json}", &error);
    g_assert_null(missing);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_assert_cmpstr(error->message, ==,
                    "c.yaml:1:33: train.system: /nowhere/system.json: cannot be read: No such file "
                    "or directory");
    assert_refused(MODEL, "{framework: m2n, gpus: 8}",
                   "c.yaml:1:8: train: the key \"system\" is missing");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
#define ADD(path, function) g_test_add_func("/layout-m2n/" path, function)
    ADD("training-has-a-mesh-for-experts", test_train);
    ADD("experts-are-cut-over-tp-without-ep", test_experts_over_tp);
    ADD("generation-has-one-mesh", test_experts_over_ep);
    ADD("what-the-benchmark-ignores-is-ignored", test_comments);
    ADD("keys-that-are-not-read-are-noted", test_notes);
    ADD("the-case-may-state-gpus", test_stated_gpus);
    ADD("too-many-gpus-are-refused", test_too_many);
    ADD("sizes-must-divide", test_bad_sizes);
    ADD("the-file-must-be-there", test_bad_file);
#undef ADD
    return g_test_run();
}
