/*
 * Views: every element that a rank holds lies in exactly one place of one parameter and every place
 * that is not padding holds one, by an element loop over small models of all families under many
 * layouts, also in FP8 and MXFP4; and parameters of shipped cases, by volumes.
 */

#include "lib/refit-disk.h"
#include "model/case/refit-case.h"
#include "test-views.h"

static void check_all(const char *model, const char *const *sides) {
    for (guint s = 0; sides[s] != NULL; s++) {
        g_autoptr(RefitLayout) layout = make(model, sides[s]);

        g_test_message("%s", sides[s]);
        for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
            check_rank(layout, refit_layout_ranks(layout)[i]);
    }
}

static const char *const all_sides[] = {
    "{framework: megatron, gpus: 1}",
    "{framework: megatron, gpus: 2, tp: 2}",
    "{framework: megatron, gpus: 4, tp: 4, ep: 2, etp: 2, glu_interleave: 1}",
    "{framework: megatron, gpus: 4, tp: 2, ep: 4, experts: grouped, glu_interleave: 2}",
    "{framework: fsdp, gpus: 3}",
    "{framework: fsdp, gpus: 4, tp: 2}",
    "{framework: vllm, gpus: 2, tp: 2}",
    "{framework: vllm, gpus: 4, tp: 4}",
    "{framework: vllm, gpus: 4, tp: 2, ep: true}",
    "{framework: sglang, gpus: 4, tp: 4, ep: 2}",
    "{framework: sglang, gpus: 4, tp: 4, dp: 2, dp_attention: true, ep: 4}",
    NULL,
};

static void test_qwen3_moe(void) {
    static const char *const more[] = {
        "{framework: megatron, gpus: 8, tp: 2, pp: 4}",
        "{framework: megatron, gpus: 4, tp: 4, experts: grouped}",
        "{framework: vllm, gpus: 8, tp: 2, pp: 2}",
        "{framework: vllm, gpus: 4, tp: 2, ep: true, redundant_experts: 4}",
        NULL,
    };

    check_all(SMALL, all_sides);
    check_all(SMALL, more);
    check_all(ODD, (const char *const[]){"{framework: vllm, gpus: 4, tp: 4, ep: true}", NULL});
    check_all(TIED, (const char *const[]){"{framework: megatron, gpus: 4, tp: 2, pp: 2}", NULL});
}

static void test_deepseek(void) {
    static const char *const more[] = {
        "{framework: sglang, gpus: 4, tp: 4, ep: 2, shared_expert_as_slot: true}", NULL};

    check_all(DEEPSEEK_SMALL, all_sides);
    check_all(DEEPSEEK_SMALL, more);
}

static void test_qwen3_5(void) {
    check_all(QWEN3_5_SMALL,
              (const char *const[]){
                  "{framework: megatron, gpus: 1}", "{framework: megatron, gpus: 2, tp: 2}",
                  "{framework: megatron, gpus: 4, tp: 2, ep: 2, "
                  "etp: 2, glu_interleave: 2}",
                  "{framework: megatron, gpus: 4, tp: 2, ep: 4, "
                  "experts: grouped}",
                  "{framework: fsdp, gpus: 3}", "{framework: vllm, gpus: 2, tp: 2}",
                  "{framework: vllm, gpus: 4, tp: 2, ep: true}",
                  "{framework: sglang, gpus: 2, tp: 2, ep: 2}", NULL});
}

static void test_nemotron(void) {
    check_all(NEMOTRON_SMALL, all_sides);
}

/* All sides but those with `without`, which the engine does not run for that family. */
static void check_all_but(const char *body, const char *without) {
    g_autoptr(GPtrArray) sides = g_ptr_array_new();

    for (guint i = 0; all_sides[i] != NULL; i++) {
        if (strstr(all_sides[i], without) == NULL)
            g_ptr_array_add(sides, (gpointer)all_sides[i]);
    }
    g_ptr_array_add(sides, NULL);
    check_all(body, (const char *const *)sides->pdata);
}

static void test_gpt_oss(void) {
    check_all_but(GPT_OSS_SMALL, "vllm, gpus: 4, tp: 4");
}

static void test_kimi(void) {
    check_all(KIMI_SMALL, all_sides);
}

static void test_mixtral(void) {
    check_all_but(MIXTRAL_SMALL, "dp_attention");
}

/* ---- quantized forms ---- */

static void check_native(const char *body, const char *const *sides) {
    for (guint s = 0; sides[s] != NULL; s++) {
        g_autoptr(RefitLayout) layout = make_native(body, sides[s]);

        g_test_message("%s", sides[s]);
        for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
            check_rank(layout, refit_layout_ranks(layout)[i]);
    }
}

static void test_scales(void) {
    static const char *const sides[] = {
        "{framework: megatron, gpus: 2, tp: 2}",
        "{framework: megatron, gpus: 4, tp: 4, ep: 2, etp: 2, experts: grouped}",
        "{framework: vllm, gpus: 4, tp: 4}",
        "{framework: vllm, gpus: 4, tp: 2, ep: true}",
        "{framework: sglang, gpus: 4, tp: 4, ep: 2}",
        NULL,
    };

    check_native(FP8_QWEN, sides);
    g_autoptr(RefitLayout) serve = make_native(FP8_QWEN, "{framework: vllm, gpus: 2, tp: 2}");
    g_autoptr(RefitRankViews) views = views_of(serve, 5);
    const RefitParameter *weight = parameter_of(views, "model.layers.0.mlp.experts.w13_weight");
    const RefitParameter *scale =
        parameter_of(views, "model.layers.0.mlp.experts.w13_weight_scale_inv");

    /* 4 experts, 4 rows of gate and of up, blocks of 2. */
    g_assert_cmpuint(weight->shape[1], ==, 8);
    g_assert_cmpint(weight->dtype, ==, REFIT_DTYPE_F8_E4M3);
    g_assert_cmpuint(scale->shape[0], ==, 4);
    g_assert_cmpuint(scale->shape[1], ==, 4);
    g_assert_cmpuint(scale->shape[2], ==, 4);
    g_assert_cmpint(scale->dtype, ==, REFIT_DTYPE_F32);
}

/* Layouts are refused for blocks that their weights do not fill; scales have fewer rows. */
static void test_blocks_of_scales(void) {
    g_autoptr(RefitLayout) layout =
        make_native(FP8_QWEN, "{framework: megatron, gpus: 1, glu_interleave: 8}");
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_rank_views_new(layout, 4, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_GRANULE_SPLIT);
    g_assert_cmpstr(error->message, ==,
                    "parameter decoder.layers.0.mlp.experts.linear_fc1.weight_scale_inv# has 4 "
                    "rows of model.layers.0.mlp.experts.0.gate_proj.weight_scale_inv on this rank, "
                    "which are not whole blocks of 8; use fewer ranks or smaller blocks");
}

static void test_mxfp4(void) {
    static const char *const sides[] = {
        "{framework: megatron, gpus: 2, tp: 2, ep: 2}",
        "{framework: vllm, gpus: 2, tp: 2}",
        "{framework: sglang, gpus: 2, tp: 2, ep: 2}",
        NULL,
    };

    check_native(MXFP4_GPT_OSS, sides);
}

/* ---- shipped cases ---- */

/* Volumes alone: the elements of a parameter are those of its views, or padding. */
static void check_volumes(const RefitLayout *layout, guint rank) {
    g_autoptr(RefitRankViews) views = views_of(layout, rank);
    g_autofree guint64 *filled = g_new0(guint64, views->n_parameters + 1);
    guint64 found = 0;

    for (guint v = 0; v < views->n_views; v++)
        filled[views->views[v].parameter] += refit_region_volume(&views->views[v].region);
    for (guint p = 0; p < views->n_parameters; p++) {
        guint64 elements = elements_of(&views->parameters[p]);

        g_assert_cmpuint(filled[p], <=, elements);
        if (filled[p] != elements)
            g_assert_true(may_be_padded(views->parameters[p].name));
        found += filled[p];
    }
    if (refit_model_n_tensors(refit_layout_model(layout)) < 2000)
        g_assert_cmpuint(found, ==, held_elements(layout, rank));
}

static void test_shipped(void) {
    static const RefitStore store = {.layouts_dir = REFIT_SOURCE_DATA_DIR "/layouts",
                                     .topologies_dir = REFIT_SOURCE_DATA_DIR "/topologies",
                                     .files = &refit_disk};
    g_auto(GStrv) names = refit_store_list(&store, "cases");

    g_assert_cmpuint(g_strv_length(names), >=, 9);
    for (guint i = 0; names[i] != NULL; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitCase) loaded = refit_case_load(&store, names[i], NULL, &error);

        g_assert_no_error(error);
        if (refit_model_n_tensors(loaded->model) > 100000) /* the others are as telling */
            continue;
        for (guint side = 0; side <= loaded->n_destinations; side++) {
            const RefitLayout *layout = side == 0 ? loaded->source : loaded->destinations[side - 1];
            const guint *ranks = refit_layout_ranks(layout);

            g_test_message("%s: %s", names[i], refit_layout_summary(layout));
            check_volumes(layout, ranks[0]);
            check_volumes(layout, ranks[refit_layout_n_ranks(layout) - 1]);
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/views/every-element-of-qwen3-moe-has-one-place", test_qwen3_moe);
    g_test_add_func("/views/every-element-of-deepseek-has-one-place", test_deepseek);
    g_test_add_func("/views/every-element-of-qwen3-5-has-one-place", test_qwen3_5);
    g_test_add_func("/views/every-element-of-nemotron-has-one-place", test_nemotron);
    g_test_add_func("/views/every-element-of-gpt-oss-has-one-place", test_gpt_oss);
    g_test_add_func("/views/every-element-of-kimi-k3-has-one-place", test_kimi);
    g_test_add_func("/views/every-element-of-mixtral-has-one-place", test_mixtral);
    g_test_add_func("/views/scales-go-with-their-weights", test_scales);
    g_test_add_func("/views/scales-must-fill-blocks-of-gate-and-up", test_blocks_of_scales);
    g_test_add_func("/views/stacked-bytes-of-mxfp4-have-one-place", test_mxfp4);
    g_test_add_func("/views/parameters-of-shipped-cases-are-full", test_shipped);
    return g_test_run();
}
