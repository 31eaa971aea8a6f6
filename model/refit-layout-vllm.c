/*
 * vLLM layouts: tensor, pipeline, data and expert parallelism of an inference engine.
 *
 * Rank order, innermost first: tp, pp, dp. Fused parameters (qkv, gate and up) are cut per part, so
 * logical tensors are cut evenly, except that KV heads fewer than tp are held by tp / heads ranks
 * each. With expert parallelism the tp * dp ranks of a pipeline stage share out whole experts, the
 * first ranks one more when it does not come out even.
 *
 * Cost: one array lookup per tensor; a mesh is built once per stage, kind of cut and expert group.
 */

#include "refit-layout-private.h"

/* The vocabulary is padded to a multiple of this. */
#define VOCABULARY_GRANULE 64

/* Rows of the table of shardings made so far. */
enum { GROUP_DENSE, GROUP_KV, GROUP_STACKED, N_GROUPS };

typedef struct {
    RefitLayout *layout;
    const RefitModel *model;
    RefitSize tp, pp, dp, ep;
    guint64 *sizes;             /* room for tp */
    const RefitSharding **made; /* [stage][group, then ep index][kind] */
} Vllm;

static const char *const keys[] = {
    "tp\ttensor parallel size (1)",
    "pp\tpipeline parallel size (1)",
    "dp\tdata parallel size; follows from gpus when absent",
    "ep\ttrue: whole experts spread over tp * dp GPUs; false: every expert cut over tp",
    NULL,
};

static guint stage_of_tensor(const Vllm *v, const RefitTensor *tensor) {
    if (tensor->mtp || refit_layout_is_output(tensor))
        return v->pp.value - 1;
    if (tensor->layer == REFIT_NO_LAYER)
        return 0;
    return (guint)tensor->layer / (refit_model_n_layers(v->model) / v->pp.value);
}

static const RefitSharding **slot(const Vllm *v, guint stage, guint group,
                                  const RefitPlacement *placement) {
    gsize row = (gsize)stage * (N_GROUPS + v->ep.value) + group;

    return &v->made[row * REFIT_N_EVEN_KINDS + refit_layout_even_kind(placement)];
}

static const RefitSharding *place_vocabulary(const Vllm *v, const RefitTensor *tensor, guint stage,
                                             GError **error) {
    guint tp = v->tp.value, last = v->pp.value - 1;
    guint64 rows = tensor->n_dims > 0 ? tensor->shape[0] : 0;
    guint64 padded = (rows + VOCABULARY_GRANULE - 1) / VOCABULARY_GRANULE * VOCABULARY_GRANULE;
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    RefitAxis axes[] = {{.size = v->dp.value, .stride = v->pp.value * tp},
                        {.size = tp, .stride = 1}};

    if (padded % tp != 0) {
        refit_node_error(v->tp.place, REFIT_ERROR_INVALID, error,
                         "tp %u does not divide the vocabulary of %" G_GUINT64_FORMAT
                         " rows, padded to %" G_GUINT64_FORMAT
                         "; use a divisor of %" G_GUINT64_FORMAT,
                         tp, rows, padded, padded);
        return NULL;
    }
    if (tensor->n_dims > 0)
        axes[1].placement = refit_layout_vocabulary(rows, padded, tp, v->sizes);
    if (!refit_layout_add_part(v->layout, sharding, stage * tp, axes, 2, error))
        return NULL;
    /* Tied: the last stage keeps its own copy, which serves as the head. */
    if (tensor->role == REFIT_ROLE_EMBEDDING && !tensor->mtp && stage != last &&
        refit_model_tied_embeddings(v->model) &&
        !refit_layout_add_part(v->layout, sharding, last * tp, axes, 2, error))
        return NULL;
    return refit_layout_share(v->layout, g_steal_pointer(&sharding));
}

/* Whole experts over all ranks of a stage. */
static const RefitSharding *place_expert(const Vllm *v, const RefitTensor *tensor, guint stage,
                                         GError **error) {
    static const RefitPlacement whole = {.kind = REFIT_PLACEMENT_REPLICATE};
    guint tp = v->tp.value, pp = v->pp.value, ep = v->ep.value, group = GROUP_STACKED;
    guint experts = refit_model_n_experts(v->model), base = stage * tp;
    RefitAxis axes[] = {
        {.size = v->dp.value, .stride = pp * tp, .placement = {REFIT_PLACEMENT_SHARD, .order = 0}},
        {.size = tp, .stride = 1, .placement = {REFIT_PLACEMENT_SHARD, .order = 1}}};

    if (tensor->expert != REFIT_NO_EXPERT) {
        guint expert = (guint)tensor->expert, few = experts / ep, more = experts % ep;
        guint index = expert < more * (few + 1) ? expert / (few + 1)
                                                : more + (expert - more * (few + 1)) / few;
        base += index / tp * pp * tp + index % tp;
        group = N_GROUPS + index;
        axes[0].size = axes[1].size = 1;
    } else if (!refit_layout_check_experts(v->model, &v->ep, TRUE, error)) {
        return NULL;
    }
    const RefitSharding **made = slot(v, stage, group, &whole);
    if (*made == NULL)
        *made = refit_layout_share_part(v->layout, base, axes, 2, error);
    return *made;
}

static const RefitSharding *place(const Vllm *v, const RefitTensor *tensor, GError **error) {
    guint stage = stage_of_tensor(v, tensor), tp = v->tp.value, group = GROUP_DENSE;
    guint kv_heads = refit_model_n_kv_heads(v->model);
    RefitCut cut = refit_layout_cut(tensor);
    RefitAxis axes[] = {{.size = v->dp.value, .stride = v->pp.value * tp},
                        {.size = tp, .stride = 1},
                        {.size = 1, .stride = 1}};
    RefitSize parts = v->tp;

    if (cut == REFIT_CUT_VOCABULARY)
        return place_vocabulary(v, tensor, stage, error);
    if (refit_layout_is_expert(tensor) && v->ep.value > 1)
        return place_expert(v, tensor, stage, error);
    if (cut == REFIT_CUT_KV) {
        if (!refit_layout_check_kv_heads(v->model, &v->tp, error))
            return NULL;
        if (kv_heads % tp != 0) {
            group = GROUP_KV;
            parts.value = axes[1].size = kv_heads;
            axes[1].stride = axes[2].size = tp / kv_heads;
        }
    }
    if (cut == REFIT_CUT_QUERY || cut == REFIT_CUT_KV)
        cut = REFIT_CUT_ROWS;
    if (tensor->role == REFIT_ROLE_MTP_PROJ) /* a plain linear layer in this engine */
        cut = REFIT_CUT_NONE;
    if (!refit_layout_even(tensor, cut, &parts, &axes[1].placement, error))
        return NULL;
    const RefitSharding **made = slot(v, stage, group, &axes[1].placement);
    if (*made == NULL)
        *made = refit_layout_share_part(v->layout, stage * tp, axes, 3, error);
    return *made;
}

/* `ep` is false, true or the number of GPUs, tp * dp. */
static gboolean solve_ep(Vllm *v, RefitNode *node, GError **error) {
    guint64 spread = (guint64)v->tp.value * v->dp.value, number = 1;
    RefitNode *place = refit_node_get(node, "ep");
    const char *text = "false";

    if (place != NULL && !refit_node_string(place, &text, error))
        return FALSE;
    if (place != NULL && g_ascii_isdigit(text[0])) {
        if (!refit_node_uint(place, 1, G_MAXUINT32, &number, error))
            return FALSE;
        if (number != 1 && number != spread) {
            refit_node_error(place, REFIT_ERROR_INVALID, error,
                             "ep %" G_GUINT64_FORMAT " is not tp * dp = %" G_GUINT64_FORMAT
                             "; write true or %" G_GUINT64_FORMAT,
                             number, spread, spread);
            return FALSE;
        }
    } else if (place != NULL) {
        gboolean on;

        if (!refit_node_bool(place, &on, error))
            return FALSE;
        number = on ? spread : 1;
    }
    v->ep = (RefitSize){.name = "ep",
                        .value = (guint)number,
                        .stated = place != NULL,
                        .place = place != NULL ? place : node};
    return refit_layout_check_experts(v->model, &v->ep, FALSE, error);
}

static gboolean check_stages(const Vllm *v, GError **error) {
    guint layers = refit_model_n_layers(v->model);

    if (layers % v->pp.value == 0)
        return TRUE;
    refit_node_error(v->pp.place, REFIT_ERROR_INVALID, error,
                     "pp %u does not divide the model's %u layers; use a divisor of %u",
                     v->pp.value, layers, layers);
    return FALSE;
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    Vllm v = {.layout = layout, .model = refit_layout_model(layout)};
    guint n_ranks = refit_layout_n_ranks(layout), n_tensors = refit_model_n_tensors(v.model);

    refit_node_get(node, "ep");
    if (!refit_layout_read_size(node, "tp", 1, &v.tp, error) ||
        !refit_layout_read_size(node, "pp", 1, &v.pp, error) ||
        !refit_layout_read_size(node, "dp", 1, &v.dp, error) || !refit_node_finish(node, error))
        return FALSE;
    RefitSize sizes[] = {v.tp, v.pp};
    if (!refit_layout_solve_dp(layout, node, sizes, G_N_ELEMENTS(sizes), &v.dp, error) ||
        !solve_ep(&v, node, error) || !refit_layout_check_heads(v.model, &v.tp, error) ||
        !check_stages(&v, error))
        return FALSE;

    g_autofree guint64 *part_sizes = g_new(guint64, v.tp.value);
    g_autofree const RefitSharding **made = g_new0(
        const RefitSharding *, (gsize)v.pp.value *(N_GROUPS + v.ep.value) * REFIT_N_EVEN_KINDS);
    v.sizes = part_sizes;
    v.made = made;
    for (guint i = 0; i < n_tensors; i++) {
        const RefitSharding *sharding = place(&v, refit_model_tensor(v.model, i), error);
        if (sharding == NULL)
            return FALSE;
        refit_layout_assign(layout, i, sharding);
    }

    g_autofree guint *stages = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++)
        stages[i] = i / v.tp.value % v.pp.value;
    refit_layout_set_stages(layout, v.pp.value, stages);
    GString *text = g_string_new("vllm");
    g_string_append_printf(text, " tp%u", v.tp.value);
    if (v.pp.value > 1)
        g_string_append_printf(text, " pp%u", v.pp.value);
    if (v.ep.value > 1)
        g_string_append_printf(text, " ep%u", v.ep.value);
    g_string_append_printf(text, " dp%u", v.dp.value);
    refit_layout_set_summary(layout, g_string_free(text, FALSE));
    return TRUE;
}

const RefitFramework refit_framework_vllm = {
    .name = "vllm",
    .summary = "vLLM: tensor, pipeline, data and expert parallelism",
    .keys = keys,
    .generate = generate,
};
