/*
 * vLLM layouts: tensor, pipeline, data and expert parallelism of an inference engine.
 *
 * Rank order, innermost first: tp, pp, dp, engine. With expert parallelism the tp * dp ranks of a
 * stage share out whole experts, the first ranks one more when it does not come out even; without
 * it every expert is cut over tp * dp, since the data parallel ranks of an engine step together;
 * what serves on its own is another engine. Layers that pp does not divide go to the stages before
 * the last, from the back.
 *
 * What the engine decides by itself is decided here by the same rules, read off vLLM 0.33:
 * experts placed round_robin are placed linearly unless the model has expert groups, there are no
 * redundant experts, and dp is 1 or the all-to-all backend has routing tables (deepep_low_latency);
 * shared experts are whole with ep when tp and dp exceed 1, in families whose code asks for it.
 *
 * Cost: that of refit-layout-engine.c.
 */

#include "model/layout/refit-layout-engine.h"
#include "model/layout/refit-view.h"

static const char *const keys[] = {
    "tp\ttensor parallel size (1)",
    "pp\tpipeline parallel size (1)",
    "dp\tdata parallel size of an engine (1; with ep it follows from gpus)",
    "ep\ttrue: whole experts spread over tp * dp GPUs; false: every expert cut over tp * dp",
    "engines\tequal engines side by side, tp * pp * dp GPUs each; follows from gpus without ep",
    "stage_layers\tlist of the layers of each stage",
    "moe_tp_across_dp\ttrue: without ep, experts are cut over tp * dp GPUs, which is always so",
    "sequence_parallel_moe\ttrue: with ep, shared experts are whole on every GPU; by family",
    "all2all_backend\tof experts, by its name in vLLM (allgather_reducescatter)",
    "expert_placement\tlinear or round_robin (linear)",
    "redundant_experts\textra expert slots (0)",
    "expert_map\tthe expert of each slot: one list, or one per GPU that shares experts",
    NULL,
};

typedef struct {
    RefitSize dp;
    RefitNode *expert_placement, *ep, *moe_tp_across_dp, *sequence_parallel_moe;
    gboolean across_dp, sequence_parallel;
    guint backend;
} Words;

static const char *const backends[] = {
    "allgather_reducescatter", "naive", "deepep_high_throughput", "deepep_low_latency", "pplx",
    "flashinfer_all2allv",     NULL};
enum { DEEPEP_LOW_LATENCY = 3, PPLX = 4 };

/* Families in whose code shared experts ask for sequence parallelism. */
static const char *const sequence_parallel_families[] = {"deepseek_v3", "qwen3_5_moe", NULL};

static gboolean read_words(RefitEngine *engine, Words *words, GError **error) {
    static const char *const placements[] = {"linear", "round_robin", NULL};
    RefitNode *node = engine->node;
    guint chosen = 0;

    *words = (Words){.expert_placement = refit_node_get(node, "expert_placement"),
                     .ep = refit_node_get(node, "ep"),
                     .moe_tp_across_dp = refit_node_get(node, "moe_tp_across_dp"),
                     .sequence_parallel_moe = refit_node_get(node, "sequence_parallel_moe"),
                     .across_dp = TRUE};
    RefitNode *backend = refit_node_get(node, "all2all_backend");
    if (!refit_layout_read_size(node, "dp", 1, &words->dp, error) ||
        !refit_node_get_bool(node, "moe_tp_across_dp", &words->across_dp, error) ||
        !refit_node_get_bool(node, "sequence_parallel_moe", &words->sequence_parallel, error) ||
        (words->expert_placement != NULL &&
         !refit_node_choice(words->expert_placement, placements, &chosen, error)) ||
        (backend != NULL && !refit_node_choice(backend, backends, &words->backend, error)))
        return FALSE;
    engine->round_robin = chosen == 1;
    return refit_node_finish(node, error);
}

/*
 * dp and engines: one follows from the number of GPUs. Whole experts are spread over all ranks of
 * an engine, so that with ep the data parallel ranks are its own; without, they are engines.
 */
static gboolean solve_copies(RefitEngine *engine, Words *words, GError **error) {
    const char *text = NULL;
    gboolean spread = words->ep != NULL && refit_node_string(words->ep, &text, NULL) &&
                      !g_str_equal(text, "false") && !g_str_equal(text, "1");
    gboolean follows = words->dp.stated || !spread;
    RefitSize sizes[] = {engine->tp, engine->pp, follows ? words->dp : engine->engines};

    return refit_layout_solve_dp(engine->layout, engine->node, sizes, G_N_ELEMENTS(sizes),
                                 follows ? &engine->engines : &words->dp, error);
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
    if (engine->ep.value > 1 && words->moe_tp_across_dp != NULL && words->across_dp) {
        refit_node_error(words->moe_tp_across_dp, REFIT_ERROR_INVALID, error,
                         "with ep no expert is cut; leave out moe_tp_across_dp or ep");
        return FALSE;
    }
    if (engine->ep.value == 1 && words->sequence_parallel) {
        refit_node_error(words->sequence_parallel_moe, REFIT_ERROR_INVALID, error,
                         "sequence_parallel_moe goes with ep; set ep, or leave this out");
        return FALSE;
    }
    if (engine->ep.value == 1 && !words->across_dp && words->dp.value > 1 &&
        refit_layout_count_experts(engine->model) > 0) {
        refit_node_error(words->moe_tp_across_dp, REFIT_ERROR_INVALID, error,
                         "data parallel ranks of one engine step together, so that it cuts experts "
                         "over tp * dp; write engines: %u in place of dp for engines on their own",
                         words->dp.value);
        return FALSE;
    }
    return TRUE;
}

/* Where the engine does not do as it is told, and says so in its log only. */
static void solve_placement(RefitEngine *engine, const Words *words) {
    const char *why = NULL;

    if (!engine->round_robin)
        return;
    if (engine->ep.value == 1)
        why = "experts are not spread over ranks";
    else if (refit_model_n_expert_groups(engine->model) <= 1)
        why = "the model has no expert groups (n_group of its config)";
    else if (engine->redundant > 0 || engine->expert_map != NULL)
        why = "experts have redundant copies or are rebalanced";
    else if (words->dp.value > 1 && words->backend != DEEPEP_LOW_LATENCY)
        why = "dp exceeds 1 and the all-to-all backend has no routing tables";
    if (why == NULL)
        return;
    g_autofree char *note =
        g_strdup_printf("vllm places experts linearly, not round_robin: %s", why);
    refit_layout_add_note(engine->layout, note);
    engine->round_robin = FALSE;
}

/* By family, when all-to-all turns sequence parallelism on. */
static gboolean is_sequence_parallel(const RefitEngine *engine, const Words *words) {
    const char *family = refit_model_family(engine->model);

    if (words->sequence_parallel_moe != NULL)
        return words->sequence_parallel;
    return engine->ep.value > 1 && engine->tp.value > 1 && words->dp.value > 1 &&
           words->backend < PPLX && family != NULL &&
           g_strv_contains(sequence_parallel_families, family);
}

/* What no engine runs. */
static gboolean check_runs(const RefitEngine *engine, GError **error) {
    guint kv_heads = refit_model_n_kv_heads(engine->model);

    if (!refit_engine_is_family(engine->model, "gpt_oss") || kv_heads == 0 ||
        engine->tp.value <= kv_heads)
        return TRUE;
    refit_node_error(engine->tp.place, REFIT_ERROR_INVALID, error,
                     "tp %u exceeds the %u KV heads of gpt-oss, whose attention the engine cannot "
                     "repeat over ranks; use a divisor of %u",
                     engine->tp.value, kv_heads, kv_heads);
    return FALSE;
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    g_auto(RefitEngine) engine;
    Words words;

    if (!refit_engine_begin(&engine, layout, node, error) || !read_words(&engine, &words, error))
        return FALSE;
    const RefitSize *tp = &engine.tp;
    if (!solve_copies(&engine, &words, error))
        return FALSE;
    guint dp = words.dp.value;
    engine.spared_stages = 1;
    engine.mtp_cut = "mtp."; /* of families whose MTP layers are a module of their own */
    engine.width = tp->value * dp;
    if (!solve_ep(&engine, &words, error) || !check_runs(&engine, error))
        return FALSE;
    solve_placement(&engine, &words);
    gboolean spread = engine.ep.value > 1;
    engine.attention = engine.dense = engine.embedding = engine.head = *tp;
    engine.shared = is_sequence_parallel(&engine, &words) ? refit_engine_size("tp", 1, tp) : *tp;
    engine.expert_tp =
        spread   ? refit_engine_size("tp", 1, tp)
        : dp > 1 ? refit_engine_size("tp * dp", engine.width, words.dp.stated ? &words.dp : tp)
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
