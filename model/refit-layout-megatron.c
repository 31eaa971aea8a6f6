/*
 * Megatron-Core layouts: tensor, pipeline, context, expert and expert-tensor parallelism.
 *
 * Rank order, innermost first: tp, cp, dp, pp. A stage is a run of gpus / pp positions, seen twice:
 * as [dp * cp, tp] by everything but the routed experts, and as [edp, ep, etp] by those. Query, key
 * and value are one fused parameter there, rows grouped by KV head (q..q k v), cut by raw rows:
 * with at least tp KV heads the cut falls between groups and each of q, k, v is cut evenly; with
 * fewer it falls inside one. Since groups follow each other in q, k and v alike, a rank's rows of
 * each are still one run, and only the sizes are irregular (some are 0).
 *
 * Cost: one array lookup per tensor; a mesh is built once per stage, kind of cut and expert group.
 */

#include "refit-layout-private.h"

/* The vocabulary is padded to a multiple of this times tp. */
#define VOCABULARY_GRANULE 128

typedef struct {
    RefitLayout *layout;
    const RefitModel *model;
    RefitSize tp, cp, pp, ep, etp, dp, first, last;
    guint stage_world, edp;
    guint middle_stages, middle_layers; /* stages of equal depth and their number of layers */
    guint64 kv_rows;                    /* rows per KV head, 0 without such attention */
    guint64 *sizes;                     /* room for tp */
    const RefitSharding **made;         /* [stage][group][kind]; group 0 dense, 1 stacked, 2+ ep */
} Megatron;

static const char *const keys[] = {
    "tp\ttensor parallel size (1)",
    "pp\tpipeline parallel size (1)",
    "ep\texpert parallel size (1)",
    "cp\tcontext parallel size (1); holds copies",
    "dp\tdata parallel size; follows from gpus when absent",
    "etp\texpert tensor parallel size (1)",
    "first_stage_layers\tlayers of the first pipeline stage; an even share when absent",
    "last_stage_layers\tlayers of the last pipeline stage; an even share when absent",
    NULL,
};

/* Depths of the end stages that leave the middle ones equal and all nearly so. */
static char *suggest_stages(guint layers, guint pp) {
    guint depth = (layers + pp - 1) / pp;

    if (layers < pp)
        return g_strdup_printf("use pp up to %u", layers);
    if (layers < depth * (pp - 2) + 2)
        depth = layers / pp;
    guint ends = layers - depth * (pp - 2);
    return g_strdup_printf("state first_stage_layers %u and last_stage_layers %u", ends - ends / 2,
                           ends / 2);
}

static gboolean solve_stages(Megatron *m, GError **error) {
    guint layers = refit_model_n_layers(m->model), pp = m->pp.value;
    guint ends = (m->first.stated ? 1u : 0u) + (m->last.stated ? 1u : 0u);
    guint64 stated = (guint64)m->first.value + m->last.value;
    const RefitSize *end = m->first.stated ? &m->first : &m->last;

    if (ends > 0 && pp < 2) {
        refit_node_error(end->place, REFIT_ERROR_INVALID, error,
                         "%s needs a pipeline; state pp of at least 2 or leave it out", end->name);
        return FALSE;
    }
    if (stated > layers) {
        refit_node_error(end->place, REFIT_ERROR_INVALID, error,
                         "the end stages take %" G_GUINT64_FORMAT
                         " layers, but model %s has %u; use fewer",
                         stated, refit_model_name(m->model), layers);
        return FALSE;
    }
    m->middle_stages = pp - ends;
    guint rest = layers - (guint)stated;
    if (m->middle_stages == 0 ? rest != 0 : rest % m->middle_stages != 0) {
        g_autofree char *advice = suggest_stages(layers, pp);
        refit_node_error(m->pp.place, REFIT_ERROR_INVALID, error,
                         "%u of %u layers are left, which %u other stages cannot share evenly; %s",
                         rest, layers, m->middle_stages, advice);
        return FALSE;
    }
    m->middle_layers = m->middle_stages == 0 ? 0 : rest / m->middle_stages;
    return TRUE;
}

static guint stage_of_layer(const Megatron *m, guint layer) {
    guint first = m->first.stated ? 1 : 0;

    if (layer < m->first.value)
        return 0;
    layer -= m->first.value;
    if (layer >= m->middle_stages * m->middle_layers)
        return m->pp.value - 1;
    return first + layer / m->middle_layers;
}

static guint stage_of_tensor(const Megatron *m, const RefitTensor *tensor) {
    if (tensor->mtp || refit_layout_is_output(tensor))
        return m->pp.value - 1;
    return tensor->layer == REFIT_NO_LAYER ? 0 : stage_of_layer(m, (guint)tensor->layer);
}

/* Rows of a part (q, k or v), which starts `at` within a group, among the first `raw` fused rows.
 */
static guint64 rows_before(guint64 raw, guint64 group, guint64 at, guint64 rows) {
    guint64 inside = raw % group;

    return raw / group * rows + (inside <= at ? 0 : MIN(inside - at, rows));
}

/* Fewer KV heads than tp: raw rows of the fused parameter. */
static gboolean cut_fused_rows(const Megatron *m, const RefitTensor *tensor,
                               RefitPlacement *placement_out, GError **error) {
    guint heads = refit_model_n_heads(m->model), kv_heads = refit_model_n_kv_heads(m->model);
    guint tp = m->tp.value;
    guint64 query_rows = heads / kv_heads * m->kv_rows, group = query_rows + 2 * m->kv_rows;
    guint64 at = 0, rows = query_rows, total = group * kv_heads;

    if (refit_layout_cut(tensor) == REFIT_CUT_KV) {
        rows = m->kv_rows;
        at = query_rows + (tensor->role == REFIT_ROLE_ATTENTION_V ? rows : 0);
    }
    /* Also refuses a query projection that carries a gate: its fused order is another one. */
    if (tensor->n_dims == 0 || tensor->shape[0] != rows * kv_heads || total % tp != 0) {
        refit_node_error(m->tp.place, REFIT_ERROR_INVALID, error,
                         "tp %u exceeds the model's %u KV heads, and %s cannot be cut inside a "
                         "head; use tp up to %u",
                         tp, kv_heads, tensor->name, kv_heads);
        return FALSE;
    }
    for (guint i = 0; i < tp; i++)
        m->sizes[i] = rows_before(total / tp * (i + 1), group, at, rows) -
                      rows_before(total / tp * i, group, at, rows);
    *placement_out = (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD,
                                      .dim = 0,
                                      .split = REFIT_SPLIT_SIZES,
                                      .n_sizes = tp,
                                      .sizes = m->sizes};
    return TRUE;
}

static const RefitSharding *place_irregular(const Megatron *m, const RefitTensor *tensor,
                                            RefitCut cut, guint stage, GError **error) {
    guint tp = m->tp.value, last = m->pp.value - 1;
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    RefitAxis axes[] = {{.size = m->dp.value * m->cp.value, .stride = tp},
                        {.size = tp, .stride = 1}};

    if (cut == REFIT_CUT_VOCABULARY) {
        guint64 rows = tensor->n_dims > 0 ? tensor->shape[0] : 0, granule = VOCABULARY_GRANULE * tp;
        if (tensor->n_dims > 0)
            axes[1].placement = refit_layout_vocabulary(
                rows, (rows + granule - 1) / granule * granule, tp, m->sizes);
    } else if (!cut_fused_rows(m, tensor, &axes[1].placement, error)) {
        return NULL;
    }
    if (!refit_layout_add_part(m->layout, sharding, stage * m->stage_world, axes, 2, error))
        return NULL;
    /* Tied: the last stage keeps its own copy, which serves as the head. */
    if (tensor->role == REFIT_ROLE_EMBEDDING && !tensor->mtp && stage != last &&
        refit_model_tied_embeddings(m->model) &&
        !refit_layout_add_part(m->layout, sharding, last * m->stage_world, axes, 2, error))
        return NULL;
    return refit_layout_share(m->layout, g_steal_pointer(&sharding));
}

static const RefitSharding **slot(const Megatron *m, guint stage, guint group,
                                  const RefitPlacement *placement) {
    gsize row = (gsize)stage * (2 + m->ep.value) + group;

    return &m->made[row * REFIT_N_EVEN_KINDS + refit_layout_even_kind(placement)];
}

static const RefitSharding *place_expert(const Megatron *m, const RefitTensor *tensor, guint stage,
                                         GError **error) {
    guint ep = m->ep.value, etp = m->etp.value, group = 1, base = stage * m->stage_world;
    RefitAxis axes[] = {{.size = m->edp, .stride = ep * etp},
                        {.size = ep, .stride = etp, .placement = {REFIT_PLACEMENT_SHARD, .dim = 0}},
                        {.size = etp, .stride = 1}};

    if (!refit_layout_even(tensor, refit_layout_cut(tensor), &m->etp, &axes[2].placement, error))
        return NULL;
    if (tensor->expert != REFIT_NO_EXPERT) {
        guint index = (guint)tensor->expert / (refit_model_n_experts(m->model) / ep);
        axes[1].size = 1;
        base += index * etp;
        group = 2 + index;
    }
    const RefitSharding **made = slot(m, stage, group, &axes[2].placement);
    if (*made == NULL)
        *made = refit_layout_share_part(m->layout, base, axes, 3, error);
    return *made;
}

static const RefitSharding *place(const Megatron *m, const RefitTensor *tensor, GError **error) {
    guint stage = stage_of_tensor(m, tensor), kv_heads = refit_model_n_kv_heads(m->model);
    RefitCut cut = refit_layout_cut(tensor);
    RefitAxis axes[] = {{.size = m->dp.value * m->cp.value, .stride = m->tp.value},
                        {.size = m->tp.value, .stride = 1}};

    if (refit_layout_is_expert(tensor))
        return place_expert(m, tensor, stage, error);
    if (cut == REFIT_CUT_QUERY || cut == REFIT_CUT_KV) {
        if (!refit_layout_check_kv_heads(m->model, &m->tp, error))
            return NULL;
        if (kv_heads % m->tp.value == 0)
            cut = REFIT_CUT_ROWS;
    }
    if (cut == REFIT_CUT_VOCABULARY || cut == REFIT_CUT_QUERY || cut == REFIT_CUT_KV)
        return place_irregular(m, tensor, cut, stage, error);
    if (!refit_layout_even(tensor, cut, &m->tp, &axes[1].placement, error))
        return NULL;
    const RefitSharding **made = slot(m, stage, 0, &axes[1].placement);
    if (*made == NULL)
        *made = refit_layout_share_part(m->layout, stage * m->stage_world, axes, 2, error);
    return *made;
}

static gboolean read_keys(Megatron *m, RefitNode *node, GError **error) {
    return refit_layout_read_size(node, "tp", 1, &m->tp, error) &&
           refit_layout_read_size(node, "cp", 1, &m->cp, error) &&
           refit_layout_read_size(node, "pp", 1, &m->pp, error) &&
           refit_layout_read_size(node, "ep", 1, &m->ep, error) &&
           refit_layout_read_size(node, "etp", 1, &m->etp, error) &&
           refit_layout_read_size(node, "dp", 1, &m->dp, error) &&
           refit_layout_read_size(node, "first_stage_layers", 0, &m->first, error) &&
           refit_layout_read_size(node, "last_stage_layers", 0, &m->last, error) &&
           refit_node_finish(node, error);
}

static gboolean solve_expert_mesh(Megatron *m, GError **error) {
    guint64 group = (guint64)m->ep.value * m->etp.value;

    m->stage_world = refit_layout_n_ranks(m->layout) / m->pp.value;
    if (m->stage_world % group != 0) {
        const RefitSize *at = m->ep.stated || !m->etp.stated ? &m->ep : &m->etp;
        refit_node_error(at->place, REFIT_ERROR_INVALID, error,
                         "ep %u * etp %u does not divide the %u GPUs of a pipeline stage; choose "
                         "sizes whose product does",
                         m->ep.value, m->etp.value, m->stage_world);
        return FALSE;
    }
    m->edp = (guint)(m->stage_world / group);
    return refit_layout_check_experts(m->model, &m->ep, TRUE, error);
}

static void describe(const Megatron *m) {
    GString *text = g_string_new("megatron");

    g_string_append_printf(text, " tp%u pp%u", m->tp.value, m->pp.value);
    if (m->cp.value > 1)
        g_string_append_printf(text, " cp%u", m->cp.value);
    if (m->ep.value > 1)
        g_string_append_printf(text, " ep%u", m->ep.value);
    if (m->etp.value > 1)
        g_string_append_printf(text, " etp%u", m->etp.value);
    g_string_append_printf(text, " dp%u", m->dp.value);
    refit_layout_set_summary(m->layout, g_string_free(text, FALSE));
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    Megatron m = {.layout = layout, .model = refit_layout_model(layout)};
    guint n_ranks = refit_layout_n_ranks(layout), n_tensors = refit_model_n_tensors(m.model);

    if (!read_keys(&m, node, error))
        return FALSE;
    RefitSize sizes[] = {m.tp, m.cp, m.pp};
    if (!refit_layout_solve_dp(layout, node, sizes, G_N_ELEMENTS(sizes), &m.dp, error) ||
        !refit_layout_check_heads(m.model, &m.tp, error) || !solve_expert_mesh(&m, error) ||
        !solve_stages(&m, error))
        return FALSE;

    guint kv_heads = refit_model_n_kv_heads(m.model);
    for (guint i = 0; i < n_tensors && kv_heads > 0 && m.kv_rows == 0; i++) {
        const RefitTensor *tensor = refit_model_tensor(m.model, i);
        if (tensor->role == REFIT_ROLE_ATTENTION_K && tensor->n_dims > 0)
            m.kv_rows = tensor->shape[0] / kv_heads;
    }
    g_autofree guint64 *part_sizes = g_new(guint64, m.tp.value);
    g_autofree const RefitSharding **made =
        g_new0(const RefitSharding *, (gsize)m.pp.value *(2 + m.ep.value) * REFIT_N_EVEN_KINDS);
    m.sizes = part_sizes;
    m.made = made;
    for (guint i = 0; i < n_tensors; i++) {
        const RefitSharding *sharding = place(&m, refit_model_tensor(m.model, i), error);
        if (sharding == NULL)
            return FALSE;
        refit_layout_assign(layout, i, sharding);
    }

    g_autofree guint *stages = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++)
        stages[i] = i / m.stage_world;
    refit_layout_set_stages(layout, m.pp.value, stages);
    describe(&m);
    return TRUE;
}

const RefitFramework refit_framework_megatron = {
    .name = "megatron",
    .summary = "Megatron-Core: tensor, pipeline, expert, context and data parallelism",
    .keys = keys,
    .generate = generate,
};
