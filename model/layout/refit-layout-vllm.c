/*
 * vLLM layouts: tensor, pipeline, data and expert parallelism of an inference engine.
 *
 * Rank order, innermost first: tp, pp, dp, engine. With expert parallelism the tp * dp ranks of a
 * stage share out whole experts, the first ranks one more when it does not come out even; without
 * it every expert is cut over tp or, where data parallel ranks step together, over tp * dp. Layers
 * that pp does not divide go to the stages before the last, from the back.
 *
 * Cost: that of refit-layout-engine.c.
 */

#include "model/layout/refit-layout-engine.h"
#include "model/layout/refit-view.h"

static const char *const keys[] = {
    "tp\ttensor parallel size (1)",
    "pp\tpipeline parallel size (1)",
    "dp\tdata parallel size of an engine; follows from gpus when absent",
    "ep\ttrue: whole experts spread over tp * dp GPUs; false: every expert cut over tp",
    "engines\tequal engines side by side, tp * pp * dp GPUs each (1)",
    "stage_layers\tlist of the layers of each stage",
    "moe_tp_across_dp\ttrue: without ep, experts are cut over tp * dp GPUs (false)",
    "sequence_parallel_moe\ttrue: with ep, shared experts are whole on every GPU (false)",
    "expert_placement\tlinear or round_robin (linear)",
    "redundant_experts\textra expert slots (0)",
    "expert_map\tthe expert of each slot: one list, or one per GPU that shares experts",
    NULL,
};

typedef struct {
    RefitSize dp;
    RefitNode *expert_placement, *ep, *moe_tp_across_dp, *sequence_parallel_moe;
    gboolean across_dp, sequence_parallel;
} Words;

static gboolean read_words(RefitEngine *engine, Words *words, GError **error) {
    static const char *const placements[] = {"linear", "round_robin", NULL};
    RefitNode *node = engine->node;
    guint chosen = 0;

    *words = (Words){.expert_placement = refit_node_get(node, "expert_placement"),
                     .ep = refit_node_get(node, "ep"),
                     .moe_tp_across_dp = refit_node_get(node, "moe_tp_across_dp"),
                     .sequence_parallel_moe = refit_node_get(node, "sequence_parallel_moe")};
    if (!refit_layout_read_size(node, "dp", 1, &words->dp, error) ||
        !refit_node_get_bool(node, "moe_tp_across_dp", &words->across_dp, error) ||
        !refit_node_get_bool(node, "sequence_parallel_moe", &words->sequence_parallel, error) ||
        (words->expert_placement != NULL &&
         !refit_node_choice(words->expert_placement, placements, &chosen, error)))
        return FALSE;
    engine->round_robin = chosen == 1;
    return refit_node_finish(node, error);
}

/* `ep` is false, true or the number of GPUs, tp * dp. */
static gboolean solve_ep(RefitEngine *engine, const Words *words, GError **error) {
    guint64 spread = engine->width, number = 1;
    const char *text = "false";

    if (words->ep != NULL && !refit_node_string(words->ep, &text, error))
        return FALSE;
    if (words->ep != NULL && g_ascii_isdigit(text[0])) {
        if (!refit_node_uint(words->ep, 1, G_MAXUINT32, &number, error))
            return FALSE;
        if (number != 1 && number != spread) {
            refit_node_error(words->ep, REFIT_ERROR_INVALID, error,
                             "ep %" G_GUINT64_FORMAT " is not tp * dp = %" G_GUINT64_FORMAT
                             "; write true or %" G_GUINT64_FORMAT,
                             number, spread, spread);
            return FALSE;
        }
    } else if (words->ep != NULL) {
        gboolean on;

        if (!refit_node_bool(words->ep, &on, error))
            return FALSE;
        number = on ? spread : 1;
    }
    engine->ep = (RefitSize){.name = "ep",
                             .value = (guint)number,
                             .stated = words->ep != NULL,
                             .place = words->ep != NULL ? words->ep : engine->node};
    if (engine->ep.value > 1 && words->across_dp) {
        refit_node_error(words->moe_tp_across_dp, REFIT_ERROR_INVALID, error,
                         "with ep no expert is cut; leave out moe_tp_across_dp or ep");
        return FALSE;
    }
    if (engine->ep.value == 1 && words->sequence_parallel) {
        refit_node_error(words->sequence_parallel_moe, REFIT_ERROR_INVALID, error,
                         "sequence_parallel_moe goes with ep; set ep, or leave this out");
        return FALSE;
    }
    if (engine->ep.value == 1 && engine->round_robin) {
        refit_node_error(words->expert_placement, REFIT_ERROR_INVALID, error,
                         "experts are not spread over ranks; set ep, or leave this out");
        return FALSE;
    }
    return TRUE;
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    g_auto(RefitEngine) engine;
    Words words;

    if (!refit_engine_begin(&engine, layout, node, error) || !read_words(&engine, &words, error))
        return FALSE;
    const RefitSize *tp = &engine.tp;
    RefitSize sizes[] = {*tp, engine.pp, engine.engines};
    if (!refit_layout_solve_dp(layout, node, sizes, G_N_ELEMENTS(sizes), &words.dp, error))
        return FALSE;
    guint dp = words.dp.value;
    engine.spared_stages = 1;
    engine.mtp_cut = "mtp."; /* of families whose MTP layers are a module of their own */
    engine.width = tp->value * dp;
    if (!solve_ep(&engine, &words, error))
        return FALSE;
    gboolean spread = engine.ep.value > 1;
    engine.attention = engine.dense = engine.embedding = engine.head = *tp;
    engine.shared = words.sequence_parallel ? refit_engine_size("tp", 1, tp) : *tp;
    engine.expert_tp = spread            ? refit_engine_size("tp", 1, tp)
                       : words.across_dp ? refit_engine_size("tp * dp", engine.width, tp)
                                         : *tp;
    if (!refit_engine_assign(&engine, error))
        return FALSE;

    GString *text = g_string_new("vllm");
    g_string_append_printf(text, " tp%u", tp->value);
    if (engine.pp.value > 1)
        g_string_append_printf(text, " pp%u", engine.pp.value);
    if (spread)
        g_string_append_printf(text, " ep%u", engine.ep.value);
    g_string_append_printf(text, " dp%u", dp);
    if (engine.engines.value > 1)
        g_string_append_printf(text, " x %u engines", engine.engines.value);
    refit_layout_set_summary(layout, g_string_free(text, FALSE));
    return TRUE;
}

const RefitFramework refit_framework_vllm = {
    .name = "vllm",
    .summary = "vLLM: tensor, pipeline, data and expert parallelism",
    .packings = refit_packings_vllm,
    .prefixes = refit_prefixes_vllm,
    .keys = keys,
    .by_role = refit_layout_always_by_role,
    .generate = generate,
};
