/*
 * SGLang layouts: an inference engine in which kinds of layers have parallel sizes of their own.
 *
 * Rank order, innermost first: tp, pp, then copies of the engine (its dp without dp_attention, and
 * engines). With dp_attention the tp ranks of a stage are dp groups of tp / dp: attention is cut
 * within a group and repeated over groups, as are embeddings and, with dp_lm_head, the output
 * head. Experts are cut over ep groups of tp / ep ranks, whole experts to each group; dense layers
 * over all tp ranks or, with moe_dense_tp 1, not at all. A shared expert may take a slot among the
 * routed ones on every group: then it is cut as they are and repeated over groups. Layers that pp
 * does not divide go to the last stages.
 *
 * Cost: that of refit-layout-engine.c.
 */

#include "model/layout/refit-layout-engine.h"
#include "model/layout/refit-view.h"

static const char *const keys[] = {
    "tp\ttensor parallel size, which dp_attention and ep divide (1)",
    "pp\tpipeline parallel size (1)",
    "dp\tcopies of the engine, follows from gpus; with dp_attention: attention groups within tp",
    "ep\tgroups of tp / ep GPUs with whole experts; true: tp (1)",
    "engines\tequal engines side by side (1; with dp_attention it follows from gpus)",
    "stage_layers\tlist of the layers of each stage",
    "dp_attention\ttrue: attention is cut over tp / dp GPUs and repeated dp times (false)",
    "dp_lm_head\ttrue: with dp_attention, the output head is cut likewise (false)",
    "replicated_embedding\ttrue: with dp_attention, embeddings are whole on every GPU (false)",
    "moe_dense_tp\t1: the dense layers of a model with experts are whole on every GPU (tp)",
    "moe_a2a_backend\tnone or deepep, which implies ep = tp and whole shared experts (none)",
    "shared_expert_as_slot\ttrue: each ep group has the shared expert in a slot (false)",
    "redundant_experts\textra expert slots (0)",
    "expert_map\tthe expert of each slot: one list, or one per ep group",
    NULL,
};

typedef struct {
    RefitSize dp, moe_dense_tp;
    RefitNode *ep, *dp_attention_node, *dp_lm_head_node, *embedding_node, *backend;
    gboolean dp_attention, dp_lm_head, replicated_embedding, shared_slot, deepep;
} Words;

static gboolean read_words(RefitEngine *engine, Words *words, GError **error) {
    static const char *const backends[] = {"none", "deepep", NULL};
    RefitNode *node = engine->node;
    guint chosen = 0;

    *words = (Words){.ep = refit_node_get(node, "ep"),
                     .dp_attention_node = refit_node_get(node, "dp_attention"),
                     .dp_lm_head_node = refit_node_get(node, "dp_lm_head"),
                     .embedding_node = refit_node_get(node, "replicated_embedding"),
                     .backend = refit_node_get(node, "moe_a2a_backend")};
    if (!refit_layout_read_size(node, "dp", 1, &words->dp, error) ||
        !refit_layout_read_size(node, "moe_dense_tp", engine->tp.value, &words->moe_dense_tp,
                                error) ||
        !refit_node_get_bool(node, "dp_attention", &words->dp_attention, error) ||
        !refit_node_get_bool(node, "dp_lm_head", &words->dp_lm_head, error) ||
        !refit_node_get_bool(node, "replicated_embedding", &words->replicated_embedding, error) ||
        !refit_node_get_bool(node, "shared_expert_as_slot", &words->shared_slot, error) ||
        (words->backend != NULL && !refit_node_choice(words->backend, backends, &chosen, error)))
        return FALSE;
    words->deepep = chosen == 1;
    return refit_node_finish(node, error);
}

/* dp and engines: one follows from the number of GPUs. */
static gboolean solve_copies(RefitEngine *engine, Words *words, GError **error) {
    const RefitSize *tp = &engine->tp, *dp = &words->dp;

    if (!words->dp_attention) {
        RefitSize sizes[] = {*tp, engine->pp, engine->engines};

        if (words->dp_lm_head || words->replicated_embedding) {
            refit_node_error(words->dp_lm_head ? words->dp_lm_head_node : words->embedding_node,
                             REFIT_ERROR_INVALID, error,
                             "this goes with dp_attention; set dp_attention, or leave this out");
            return FALSE;
        }
        return refit_layout_solve_dp(engine->layout, engine->node, sizes, G_N_ELEMENTS(sizes),
                                     &words->dp, error);
    }
    if (!dp->stated) {
        refit_node_error(words->dp_attention_node, REFIT_ERROR_INVALID, error,
                         "dp_attention needs dp, the number of attention groups within tp; write a "
                         "divisor of tp %u",
                         tp->value);
        return FALSE;
    }
    if (tp->value % dp->value != 0) {
        refit_node_error(dp->place, REFIT_ERROR_INVALID, error,
                         "dp %u does not divide tp %u, which holds the attention groups; use a "
                         "divisor of it",
                         dp->value, tp->value);
        return FALSE;
    }
    RefitSize sizes[] = {*tp, engine->pp};
    return refit_layout_solve_dp(engine->layout, engine->node, sizes, G_N_ELEMENTS(sizes),
                                 &engine->engines, error);
}

/* `ep` is a divisor of tp, or true or false. */
static gboolean solve_ep(RefitEngine *engine, const Words *words, GError **error) {
    guint tp = engine->tp.value;
    guint64 number = words->deepep ? tp : 1;
    const char *text;

    if (words->ep != NULL && !refit_node_string(words->ep, &text, error))
        return FALSE;
    if (words->ep != NULL && g_ascii_isdigit(text[0])) {
        if (!refit_node_uint(words->ep, 1, G_MAXUINT32, &number, error))
            return FALSE;
        if (tp % number != 0) {
            refit_node_error(words->ep, REFIT_ERROR_INVALID, error,
                             "ep %" G_GUINT64_FORMAT " does not divide tp %u; use a divisor of it",
                             number, tp);
            return FALSE;
        }
    } else if (words->ep != NULL) {
        gboolean on;

        if (!refit_node_bool(words->ep, &on, error))
            return FALSE;
        number = on ? tp : 1;
    }
    if (words->deepep && number != tp) {
        refit_node_error(words->ep, REFIT_ERROR_INVALID, error,
                         "ep %" G_GUINT64_FORMAT " is not tp %u, which moe_a2a_backend deepep asks "
                         "for; leave ep out",
                         number, tp);
        return FALSE;
    }
    RefitNode *stated = words->ep != NULL ? words->ep : words->backend;
    engine->ep = (RefitSize){.name = "ep",
                             .value = (guint)number,
                             .stated = stated != NULL,
                             .place = stated != NULL ? stated : engine->node};
    return TRUE;
}

/*
 * What the classes of a family do under attention DP, read off SGLang 0.5.23: Llama (queries
 * without bias or norm) and Mixtral (without norm) cut attention over all of tp, and cannot run it;
 * Qwen3.5 holds embeddings whole; MiniMax-M2 leaves dp_lm_head aside.
 */
static gboolean check_attention_dp(RefitEngine *engine, Words *words, GError **error) {
    const RefitModel *model = engine->model;
    gboolean is_mixtral = refit_engine_is_family(model, "mixtral");
    gboolean has_norm = refit_engine_has_role(model, REFIT_ROLE_ATTENTION_Q_NORM);
    gboolean is_llama = refit_engine_is_family(model, "dense");

    for (guint i = 0; is_llama && i < refit_model_n_tensors(model); i++) {
        const char *name = refit_model_tensor(model, i)->name;
        is_llama =
            !g_str_has_suffix(name, ".q_norm.weight") && !g_str_has_suffix(name, ".q_proj.bias");
    }
    if (is_llama || (is_mixtral && !has_norm)) {
        refit_node_error(words->dp_attention_node, REFIT_ERROR_INVALID, error,
                         "the engine's %s has no attention DP; leave dp_attention out, and write "
                         "engines: %u for copies",
                         is_llama ? "Llama" : "Mixtral", words->dp.value);
        return FALSE;
    }
    if (refit_engine_is_family(model, "qwen3_5_moe"))
        words->replicated_embedding = TRUE;
    if (is_mixtral && words->dp_lm_head) {
        refit_layout_add_note(
            engine->layout,
            "sglang leaves dp_lm_head aside for MiniMax-M2: its head is cut over tp");
        words->dp_lm_head = FALSE;
    }
    return TRUE;
}

static gboolean solve(RefitEngine *engine, Words *words, GError **error) {
    const RefitSize *tp = &engine->tp;

    engine->width = tp->value;
    engine->even_experts = TRUE;
    engine->mtp_cut = "mtp.layers."; /* of families that have them in layers of an MTP module */
    if (!solve_copies(engine, words, error) || !solve_ep(engine, words, error) ||
        (words->dp_attention && !check_attention_dp(engine, words, error)))
        return FALSE;
    if (words->moe_dense_tp.value != 1 && words->moe_dense_tp.value != tp->value) {
        refit_node_error(words->moe_dense_tp.place, REFIT_ERROR_INVALID, error,
                         "moe_dense_tp is %u; the engine knows 1 and, when it is left out, tp %u",
                         words->moe_dense_tp.value, tp->value);
        return FALSE;
    }
    engine->expert_tp =
        engine->ep.value > 1
            ? refit_engine_size("tp / ep", tp->value / engine->ep.value, &engine->ep)
            : *tp;
    engine->attention = words->dp_attention
                            ? refit_engine_size("tp / dp", tp->value / words->dp.value, &words->dp)
                            : *tp;
    engine->embedding =
        words->replicated_embedding ? refit_engine_size("tp", 1, tp) : engine->attention;
    engine->head = words->dp_lm_head ? engine->attention : *tp;
    engine->dense = words->moe_dense_tp.value == 1 ? refit_engine_size("tp", 1, tp) : *tp;
    engine->shared = words->shared_slot ? engine->expert_tp
                     : words->deepep    ? refit_engine_size("tp", 1, tp)
                                        : *tp;
    return TRUE;
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    g_auto(RefitEngine) engine;
    Words words;

    if (!refit_engine_begin(&engine, layout, node, error) || !read_words(&engine, &words, error) ||
        !solve(&engine, &words, error))
        return FALSE;
    engine.packing_options = words.shared_slot ? REFIT_PACKING_SHARED_SLOT : 0;
    if (!refit_engine_assign(&engine, error))
        return FALSE;

    GString *text = g_string_new("sglang");
    g_string_append_printf(text, " tp%u", engine.tp.value);
    if (engine.pp.value > 1)
        g_string_append_printf(text, " pp%u", engine.pp.value);
    if (engine.ep.value > 1)
        g_string_append_printf(text, " ep%u", engine.ep.value);
    g_string_append_printf(text, " dp%u%s", words.dp.value, words.dp_attention ? " attention" : "");
    if (engine.engines.value > 1)
        g_string_append_printf(text, " x %u engines", engine.engines.value);
    refit_layout_set_summary(layout, g_string_free(text, FALSE));
    return TRUE;
}

const RefitFramework refit_framework_sglang = {
    .name = "sglang",
    .summary = "SGLang: parallel sizes of their own for attention, experts and dense layers",
    .packings = refit_packings_sglang,
    .prefixes = refit_prefixes_sglang,
    .keys = keys,
    .by_role = refit_layout_always_by_role,
    .generate = generate,
};
