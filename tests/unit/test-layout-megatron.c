/*
 * Megatron layouts beyond plain tp, pp and ep: interleaved stages, stated depths of stages, the
 * granule of the vocabulary and the local buffers that it pads, query projections with an output
 * gate cut by raw rows, a tp of its own for kinds of layers, context parallel copies, MTP layers on
 * a chosen stage with the copies of embedding and head that they need, choices that only views
 * show; and the message of each refusal. Expected regions were worked out by hand.
 */

#include "test-layout.h"

#include "model/layout/refit-view.h"

#define EIGHT                                                                                      \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: embed, shape: [20, 4], role: embedding}\n"                                         \
    "  - {name: \"layers.{0-7}.norm\", shape: [4], role: norm}\n"                                  \
    "  - {name: head, shape: [20, 4], role: lm_head}\n"
/* One KV head of two rows; four query heads of two rows, each followed by its gate. */
#define GATED                                                                                      \
    "family: list\nconfig: {num_attention_heads: 4, num_key_value_heads: 1}\ntensors:\n"           \
    "  - {name: layers.0.q, shape: [16, 4], role: attention_q}\n"                                  \
    "  - {name: layers.0.k, shape: [2, 4], role: attention_k}\n"                                   \
    "  - {name: layers.0.v, shape: [2, 4], role: attention_v}\n"
#define GATED_PAIR                                                                                 \
    "family: list\nconfig: {num_attention_heads: 4, num_key_value_heads: 2}\ntensors:\n"           \
    "  - {name: layers.0.q, shape: [16, 4], role: attention_q}\n"                                  \
    "  - {name: layers.0.k, shape: [4, 4], role: attention_k}\n"
#define KINDS                                                                                      \
    "family: list\nconfig: {num_attention_heads: 4, num_key_value_heads: 4}\ntensors:\n"           \
    "  - {name: embed, shape: [8, 4], role: embedding}\n"                                          \
    "  - {name: layers.0.q, shape: [8, 4], role: attention_q}\n"                                   \
    "  - {name: layers.0.o, shape: [4, 8], role: attention_o}\n"                                   \
    "  - {name: layers.0.in, shape: [8, 4], role: ssm_in}\n"                                       \
    "  - {name: layers.0.up, shape: [8, 4], role: dense_up}\n"                                     \
    "  - {name: layers.0.shared, shape: [8, 4], role: shared_up}\n"                                \
    "  - {name: layers.0.norm, shape: [4], role: norm}\n"
#define MTP_BODY                                                                                   \
    "  - {name: embed, shape: [8, 4], role: embedding}\n"                                          \
    "  - {name: \"layers.{0-1}.norm\", shape: [4], role: norm}\n"                                  \
    "  - {name: head, shape: [8, 4], role: lm_head}\n"                                             \
    "  - {name: mtp.norm, shape: [4], role: norm, mtp: true}\n"
#define MTP "family: list\ntensors:\n" MTP_BODY
#define MTP_OWN                                                                                    \
    MTP "  - {name: mtp.embed, shape: [8, 4], role: embedding, mtp: true}\n"                       \
        "  - {name: mtp.head, shape: [8, 4], role: lm_head, mtp: true}\n"

/* A digit per decoder layer: the stage, with one GPU each, that holds it. */
static void assert_stages(const char *words, const char *expected) {
    g_autofree char *side = g_strdup_printf("{framework: megatron, first_gpu: 0, %s}", words);
    g_autoptr(RefitLayout) layout = make(EIGHT, side);
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint layer = 0; layer < 8; layer++) {
        g_autofree char *name = g_strdup_printf("layers.%u.norm", layer);
        const RefitMesh *mesh = refit_sharding_mesh(sharding_of(layout, name), 0);

        g_assert_cmpuint(mesh->n_ranks, ==, 1);
        g_string_append_printf(text, "%u", mesh->ranks[0]);
    }
    g_assert_cmpstr(text->str, ==, expected);
}

/* What rank holds of dim 0, with local places: "0:2@0 4:6@2 of 5". */
static void assert_local(const RefitLayout *layout, const char *name, guint rank,
                         const char *expected) {
    guint index = find(layout, name);
    const RefitTensor *tensor = refit_model_tensor(refit_layout_model(layout), index);
    g_autoptr(GString) text = g_string_new(NULL);
    g_auto(RefitRegion) region = {0};
    guint64 buffer[REFIT_MAX_DIMS];
    g_autoptr(GError) error = NULL;

    g_assert_true(refit_sharding_local(refit_layout_sharding(layout, index), 0, rank,
                                       tensor->n_dims, tensor->shape, &region, buffer, &error));
    g_assert_no_error(error);
    for (guint i = 0; i < region.dims[0]->n; i++) {
        const RefitInterval *item = &region.dims[0]->items[i];
        g_string_append_printf(text,
                               "%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT "@%" G_GUINT64_FORMAT " ",
                               item->lo, item->hi, item->at);
    }
    g_string_append_printf(text, "of %" G_GUINT64_FORMAT, buffer[0]);
    g_assert_cmpstr(text->str, ==, expected);
}

static void test_interleaved(void) {
    assert_stages("gpus: 2, pp: 2, vpp: 2", "00110011");
    assert_stages("gpus: 2, pp: 2, vpp: 4", "01010101");
    assert_stages("gpus: 4, pp: 4, vpp: 1", "00112233");
    /* Depths 4, 2, 2 in two chunks each. */
    assert_stages("gpus: 3, pp: 3, vpp: 2, first_stage_layers: 4, last_stage_layers: 2",
                  "00120012");
    g_autoptr(RefitLayout) layout =
        make(EIGHT, "{framework: megatron, gpus: 2, pp: 2, vpp: 2, first_gpu: 0}");
    g_assert_cmpstr(refit_layout_summary(layout), ==, "megatron tp1 pp2 vpp2 dp1");
    g_assert_cmpuint(refit_layout_n_stages(layout), ==, 2);
    assert_held(layout, "embed", "0 [0:20, 0:4]");
    assert_held(layout, "head", "1 [0:20, 0:4]");
}

static void test_stage_table(void) {
    assert_stages("gpus: 3, pp: 3, stage_layers: [2, 3, 3]", "00111222");
    assert_stages("gpus: 3, pp: 3, stage_layers: [3, 0, 5]", "00022222");
    /* Virtual stages 0 to 3 are chunks of stages 0, 1, 0, 1. */
    assert_stages("gpus: 2, pp: 2, vpp: 2, stage_layers: [1, 3, 4, 0]", "01110000");
    assert_stages("gpus: 1, stage_layers: [8]", "00000000");
    /* Stages without layers still hold the ends. */
    g_autoptr(RefitLayout) ends =
        make(EIGHT, "{framework: megatron, gpus: 3, pp: 3, stage_layers: [0, 8, 0], first_gpu: 0}");
    assert_held(ends, "embed", "0 [0:20, 0:4]");
    assert_held(ends, "layers.7.norm", "1 [0:4]");
    assert_held(ends, "head", "2 [0:20, 0:4]");
}

/* 20 rows over 2 ranks: padded to 24 by 3 x 2, to 256 by default, not at all by 5 x 2. */
static void test_granule(void) {
    g_autoptr(RefitLayout) three =
        make(EIGHT, "{framework: megatron, gpus: 2, tp: 2, vocab_granule: 3, first_gpu: 0}");
    assert_held(three, "head", "0 [0:12, 0:4]; 1 [12:20, 0:4]");
    assert_local(three, "head", 1, "12:20@0 of 12");
    g_assert_cmpuint(refit_sharding_padded(sharding_of(three, "head"), 0), ==, 24);
    g_autoptr(RefitLayout) five =
        make(EIGHT, "{framework: megatron, gpus: 2, tp: 2, vocab_granule: 5, first_gpu: 0}");
    assert_held(five, "head", "0 [0:10, 0:4]; 1 [10:20, 0:4]");
    g_assert_cmpuint(refit_sharding_padded(sharding_of(five, "head"), 0), ==, 0);
    g_autoptr(RefitLayout) standard =
        make(EIGHT, "{framework: megatron, gpus: 2, tp: 2, first_gpu: 0}");
    assert_held(standard, "head", "0 [0:20, 0:4]");
    assert_local(standard, "head", 0, "0:20@0 of 128");
    assert_local(standard, "head", 1, "of 128");
}

/*
 * Fused rows: queries 0-1 4-5 8-9 12-13, gates 2-3 6-7 10-11 14-15, k 0-1, v 0-1; 20 rows, 5 for
 * each of four ranks. With one KV head per rank heads stay whole.
 */
static void test_gated(void) {
    g_autoptr(RefitLayout) raw = make(GATED, "{framework: megatron, gpus: 4, tp: 4, first_gpu: 0}");
    assert_local(raw, "layers.0.q", 0, "0:2@0 4:6@2 8:9@4 of 5");
    assert_local(raw, "layers.0.q", 1, "2:4@3 9:10@0 12:14@1 of 5");
    assert_local(raw, "layers.0.q", 2, "6:8@0 10:12@2 14:15@4 of 5");
    assert_local(raw, "layers.0.q", 3, "15:16@0 of 1");
    assert_held(raw, "layers.0.k", "3 [0:2, 0:4]");
    assert_held(raw, "layers.0.v", "3 [0:2, 0:4]");
    g_autoptr(RefitLayout) whole =
        make(GATED_PAIR, "{framework: megatron, gpus: 2, tp: 2, first_gpu: 0}");
    assert_held(whole, "layers.0.q", "0 [0:8, 0:4]; 1 [8:16, 0:4]");
    assert_held(whole, "layers.0.k", "0 [0:2, 0:4]; 1 [2:4, 0:4]");
    /* Two groups of 8 + 2 + 2 rows, 6 for each of four ranks: q 0-1 4-5 2-3 | q 6-7 k v. */
    g_autoptr(RefitLayout) pair =
        make(GATED_PAIR, "{framework: megatron, gpus: 4, tp: 4, first_gpu: 0}");
    assert_held(pair, "layers.0.q", "0 [0:6, 0:4]; 1 [6:8, 0:4]; 2 [8:14, 0:4]; 3 [14:16, 0:4]");
    assert_local(pair, "layers.0.q", 2, "8:10@0 10:12@4 12:14@2 of 6");
}

static void test_tp_of(void) {
    g_autoptr(RefitLayout) layout =
        make(KINDS, "{framework: megatron, gpus: 4, tp: 2, vocab_granule: 1, first_gpu: 0, "
                    "tp_of: {attention: 4, ssm: 1, dense: 1, vocabulary: 4}}");

    g_assert_cmpstr(refit_layout_summary(layout), ==,
                    "megatron tp2 attention-tp4 ssm-tp1 dense-tp1 vocabulary-tp4 pp1 dp2");
    assert_held(layout, "embed", "0 [0:2, 0:4]; 1 [2:4, 0:4]; 2 [4:6, 0:4]; 3 [6:8, 0:4]");
    assert_held(layout, "layers.0.q", "0 [0:2, 0:4]; 1 [2:4, 0:4]; 2 [4:6, 0:4]; 3 [6:8, 0:4]");
    assert_held(layout, "layers.0.o", "0 [0:4, 0:2]; 1 [0:4, 2:4]; 2 [0:4, 4:6]; 3 [0:4, 6:8]");
    assert_held(layout, "layers.0.in", "0,1,2,3 [0:8, 0:4]");
    assert_held(layout, "layers.0.up", "0,1,2,3 [0:8, 0:4]");
    assert_held(layout, "layers.0.shared", "0,2 [0:4, 0:4]; 1,3 [4:8, 0:4]");
    assert_held(layout, "layers.0.norm", "0,1,2,3 [0:4]");
    /* A pipeline stage is a world of its own: tp 2 over each half. */
    g_autoptr(RefitLayout) stages =
        make(KINDS, "{framework: megatron, gpus: 4, pp: 2, stage_layers: [0, 1], first_gpu: 0, "
                    "tp_of: {dense: 2}}");
    assert_held(stages, "layers.0.up", "2 [0:4, 0:4]; 3 [4:8, 0:4]");
    assert_held(stages, "layers.0.q", "2,3 [0:8, 0:4]");
}

/* Rank order tp, cp, dp: ranks 0 and 2 are the same tp rank of the two context parallel ones. */
static void test_context(void) {
    g_autoptr(RefitLayout) layout =
        make(KINDS, "{framework: megatron, gpus: 8, tp: 2, cp: 2, first_gpu: 0}");

    g_assert_cmpstr(refit_layout_summary(layout), ==, "megatron tp2 pp1 cp2 dp2");
    assert_held(layout, "layers.0.up", "0,2,4,6 [0:4, 0:4]; 1,3,5,7 [4:8, 0:4]");
}

static void test_mtp(void) {
    g_autoptr(RefitLayout) last =
        make(MTP, "{framework: megatron, gpus: 3, pp: 3, stage_layers: [1, 1, 0], "
                  "vocab_granule: 1, first_gpu: 0}");
    assert_held(last, "mtp.norm", "2 [0:4]");
    assert_held(last, "embed", "0,2 [0:8, 0:4]"); /* they read the embedding, */
    assert_held(last, "head", "2 [0:8, 0:4]");    /* and the head is there */
    g_autoptr(RefitLayout) middle =
        make(MTP, "{framework: megatron, gpus: 3, pp: 3, stage_layers: [1, 1, 0], "
                  "vocab_granule: 1, first_gpu: 0, mtp_stage: 1}");
    assert_held(middle, "mtp.norm", "1 [0:4]");
    assert_held(middle, "embed", "0,1 [0:8, 0:4]");
    assert_held(middle, "head", "1,2 [0:8, 0:4]");
    g_autoptr(RefitLayout) tied =
        make(MTP "config: {tie_word_embeddings: true}\n",
             "{framework: megatron, gpus: 3, pp: 3, stage_layers: [1, 1, 0], vocab_granule: 1, "
             "first_gpu: 0, mtp_stage: 1}");
    assert_held(tied, "embed", "0,1,2 [0:8, 0:4]");
    g_autoptr(RefitLayout) own =
        make(MTP_OWN, "{framework: megatron, gpus: 3, pp: 3, stage_layers: [1, 1, 0], "
                      "vocab_granule: 1, first_gpu: 0, mtp_stage: 1}");
    assert_held(own, "embed", "0 [0:8, 0:4]");
    assert_held(own, "head", "2 [0:8, 0:4]");
    assert_held(own, "mtp.embed", "1 [0:8, 0:4]");
    assert_held(own, "mtp.head", "1 [0:8, 0:4]");
}

static void test_choices_of_views(void) {
    g_autoptr(RefitLayout) plain = make(KINDS, "{framework: megatron, gpus: 2, tp: 2}");
    g_assert_cmpuint(refit_layout_packing_options(plain), ==, 0);
    g_assert_cmpuint(refit_layout_block_rows(plain), ==, 0);
    g_autoptr(RefitLayout) grouped =
        make(KINDS, "{framework: megatron, gpus: 2, tp: 2, experts: grouped, glu_interleave: 2}");
    g_assert_cmpuint(refit_layout_packing_options(grouped), ==, REFIT_PACKING_GROUPED_EXPERTS);
    g_assert_cmpuint(refit_layout_block_rows(grouped), ==, 2);
    for (guint i = 0; i < refit_model_n_tensors(refit_layout_model(plain)); i++)
        g_assert_true(refit_sharding_equal(refit_layout_sharding(plain, i),
                                           refit_layout_sharding(grouped, i)));
}

static void test_refusals(void) {
    static const char *const cases[][3] = {
        {EIGHT, "{framework: megatron, gpus: 8, vpp: 2}",
         "c.yaml:1:44: train.vpp: vpp needs a pipeline; state pp of at least 2 or leave it out"},
        {EIGHT, "{framework: megatron, gpus: 8, pp: 2, vpp: 3}",
         "c.yaml:1:51: train.vpp: vpp 3 does not divide the 4 layers of stage 0; use a divisor of "
         "4, or stage_layers with a number for each chunk"},
        {EIGHT, "{framework: megatron, gpus: 8, pp: 2, vpp: 9}",
         "c.yaml:1:51: train.vpp: vpp 9 is more than the 8 layers of model m; use fewer chunks"},
        {EIGHT, "{framework: megatron, gpus: 8, pp: 2, stage_layers: [8]}",
         "c.yaml:1:60: train.stage_layers: length 1, but pp 2 * vpp 1 is 2; write a number for "
         "each stage, with vpp for each chunk of each stage in the order of the layers"},
        {EIGHT, "{framework: megatron, gpus: 8, pp: 2, stage_layers: [4, 5]}",
         "c.yaml:1:60: train.stage_layers: the stages take 9 layers, but model m has 8; make them "
         "add up"},
        {EIGHT, "{framework: megatron, gpus: 8, pp: 2, stage_layers: [4, 9]}",
         "c.yaml:1:64: train.stage_layers.1: *"},
        {EIGHT, "{framework: megatron, gpus: 8, pp: 2, stage_layers: 4}",
         "c.yaml:1:60: train.stage_layers: *"},
        {EIGHT,
         "{framework: megatron, gpus: 8, pp: 2, first_stage_layers: 4, stage_layers: [4, 4]}",
         "c.yaml:1:66: train.first_stage_layers: first_stage_layers and stage_layers both say how "
         "deep a stage is; keep one"},
        {EIGHT, "{framework: megatron, gpus: 8, pp: 2, mtp_stage: 2}",
         "c.yaml:1:57: train.mtp_stage: *"},
        {EIGHT, "{framework: megatron, gpus: 8, vocab_granule: 0}",
         "c.yaml:1:54: train.vocab_granule: *"},
        {EIGHT, "{framework: megatron, gpus: 8, experts: stacked}",
         "c.yaml:1:48: train.experts: *"},
        {EIGHT, "{framework: megatron, gpus: 8, glu_interleave: 0}",
         "c.yaml:1:55: train.glu_interleave: *"},
        {KINDS, "{framework: megatron, gpus: 8, tp_of: 4}", "c.yaml:1:46: train.tp_of: *"},
        {KINDS, "{framework: megatron, gpus: 8, tp_of: {mamba: 4}}",
         "c.yaml:1:47: train.tp_of.mamba: *"},
        {KINDS, "{framework: megatron, gpus: 8, pp: 2, tp_of: {ssm: 3}, stage_layers: [1, 0]}",
         "c.yaml:1:59: train.tp_of.ssm: tp 3 does not divide the 4 GPUs of a pipeline stage; use "
         "a divisor of 4"},
        {KINDS, "{framework: megatron, gpus: 8, tp_of: {attention: 8}}",
         "c.yaml:1:58: train.tp_of.attention: tp 8 does not divide the model's 4 attention heads; "
         "use a divisor of 4"},
        {KINDS, "{framework: megatron, gpus: 16, tp_of: {ssm: 16}}",
         "c.yaml:1:53: train.tp_of.ssm: tp 16 does not divide dim 0 of layers.0.in, which is 8; "
         "use a divisor of it"},
    };

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        assert_refused(cases[i][0], cases[i][1], cases[i][2]);
}

/* Gate and up of [experts, in, 12]: 6 rows each, in turn; those of a list are named by the hub. */
#define STACKS                                                                                     \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: mlp.experts.gate_up_proj, shape: [2, 4, 12], role: expert_gate_up_t}\n"            \
    "  - {name: mlp.experts.down_proj, shape: [2, 6, 4], role: expert_down_t}\n"
#define EXPERT                                                                                     \
    "family: list\ntensors:\n"                                                                     \
    "  - {name: mlp.experts.0.gate_proj.weight, shape: [12, 4], role: expert_gate}\n"

static void test_uneven_blocks(void) {
    assert_refused_as(STACKS, "{framework: megatron, gpus: 1, glu_interleave: 4}",
                      REFIT_ERROR_GRANULE_SPLIT,
                      "c.yaml:1:55: train.glu_interleave: each GPU has 6 rows of "
                      "mlp.experts.gate_up_proj, which are not whole blocks of 4; use a divisor of "
                      "6, or a smaller etp");
    assert_refused_as(EXPERT, "{framework: megatron, gpus: 4, tp: 4, etp: 4, glu_interleave: 2}",
                      REFIT_ERROR_GRANULE_SPLIT,
                      "c.yaml:1:70: train.glu_interleave: each GPU has 3 rows of "
                      "mlp.experts.0.gate_proj.weight, which are not whole blocks of 2; use a "
                      "divisor of 3, or a smaller etp");
    g_autoptr(RefitLayout) stacks =
        make(STACKS, "{framework: megatron, gpus: 2, tp: 2, etp: 2, glu_interleave: 3}");
    g_autoptr(RefitLayout) expert =
        make(EXPERT, "{framework: megatron, gpus: 2, tp: 2, etp: 2, glu_interleave: 3}");
    g_autoptr(RefitLayout) other = /* a parameter of its own has no blocks */
        make("family: list\ntensors:\n  - {name: up, shape: [5, 4], role: expert_up}\n",
             "{framework: megatron, gpus: 1, glu_interleave: 4}");
    g_assert_cmpuint(refit_layout_block_rows(stacks), ==, 3);
    g_assert_cmpuint(refit_layout_block_rows(expert), ==, 3);
    g_assert_cmpuint(refit_layout_block_rows(other), ==, 4);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/megatron/interleaved-stages-take-turns", test_interleaved);
    g_test_add_func("/megatron/stages-are-as-deep-as-stated", test_stage_table);
    g_test_add_func("/megatron/vocabulary-is-padded-by-the-granule-times-tp", test_granule);
    g_test_add_func("/megatron/gates-follow-the-queries-of-their-group", test_gated);
    g_test_add_func("/megatron/kinds-of-layers-have-a-tp-of-their-own", test_tp_of);
    g_test_add_func("/megatron/context-parallelism-holds-copies", test_context);
    g_test_add_func("/megatron/mtp-layers-have-embedding-and-head-at-hand", test_mtp);
    g_test_add_func("/megatron/storage-of-experts-does-not-move-elements", test_choices_of_views);
    g_test_add_func("/megatron/refusals-say-where-and-what-to-do", test_refusals);
    g_test_add_func("/megatron/blocks-of-gate-and-up-are-whole", test_uneven_blocks);
    return g_test_run();
}
