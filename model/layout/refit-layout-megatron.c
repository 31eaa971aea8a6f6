/*
 * Megatron-Core layouts: tensor, pipeline, context, expert and expert-tensor parallelism.
 *
 * Rank order, innermost first: tp, cp, dp, pp. A stage is a run of gpus / pp positions, its world,
 * seen as [world / tp, tp] by everything but the routed experts, with a tp of its own for each kind
 * of layer where tp_of states one, and as [edp, ep, etp] by the experts. Interleaved stages (vpp)
 * hold several runs of layers. Packed projections of mixers and stacked gate and up are cut segment
 * by segment. Query, key and value are one fused parameter, rows grouped by KV head: the queries of
 * all its heads, their output gates if they have such, key, value. It is cut by raw rows: with a
 * multiple of tp KV heads between groups, which cuts each of q, k, v evenly; with fewer inside a
 * group. The vocabulary is padded.
 *
 * Cost: one array lookup per tensor; a mesh is built once per stage, kind of cut and expert group,
 * but for packed and fused tensors, which are rare, once each.
 */

#include "model/layout/refit-layout-private.h"
#include "model/layout/refit-view.h"

/* The vocabulary is padded to a multiple of this times tp. */
#define VOCABULARY_GRANULE 128
#define MAX_GRANULE (1u << 20)

/* Kinds of layers that may have a tp of their own. */
typedef enum { ATTENTION, SSM, DENSE, SHARED, VOCABULARY, OTHER, N_CLASSES } Class;

static const char *const class_names[] = {"attention", "ssm", "dense", "shared", "vocabulary"};

/* Rows of the table of shardings made so far, after the classes; experts by group follow. */
enum { GROUP_STACKED = N_CLASSES, GROUP_EXPERTS };

typedef struct {
    RefitLayout *layout;
    const RefitModel *model;
    RefitSize cp, ep, etp, dp, mtp_stage;
    RefitNode *interleave;   /* glu_interleave, or NULL */
    RefitSize tp[N_CLASSES]; /* OTHER: the one of all that state none */
    RefitPipeline pipeline;
    guint granule; /* of the vocabulary, times tp */
    guint stage_world, edp;
    guint *stages;               /* of the decoder layers */
    guint64 query_rows, kv_rows; /* per KV head, 0 without such attention */
    guint64 n_experts;           /* in each layer that has some */
    gboolean has_mtp, mtp_has_embedding, mtp_has_head;
    const RefitSharding **made; /* [stage][group][kind] */
} Megatron;

static const char *const keys[] = {
    "tp\ttensor parallel size (1)",
    "tp_of\ttp of kinds of layers: {attention, ssm, dense, shared, vocabulary}; tp when absent",
    "pp\tpipeline parallel size (1)",
    "vpp\tvirtual stages per stage, interleaved (1)",
    "ep\texpert parallel size (1)",
    "cp\tcontext parallel size (1); holds copies",
    "dp\tdata parallel size; follows from gpus when absent",
    "etp\texpert tensor parallel size (1)",
    "first_stage_layers\tlayers of the first pipeline stage; an even share when absent",
    "last_stage_layers\tlayers of the last pipeline stage; an even share when absent",
    "stage_layers\tlayers of every stage, with vpp of every virtual stage; even when absent",
    "mtp_stage\tstage of the MTP layers; the last one when absent",
    "vocab_granule\tthe vocabulary is padded to a multiple of this times tp (128)",
    "experts\tsequential: a parameter for each expert; grouped: one for all of a layer",
    "glu_interleave\trows of gate and of up in turn in linear_fc1 of experts; apart when absent",
    NULL,
};

static Class class_of(const RefitTensor *tensor) {
    switch (tensor->role) {
    case REFIT_ROLE_EMBEDDING:
    case REFIT_ROLE_LM_HEAD:
        return VOCABULARY;
    case REFIT_ROLE_ATTENTION_Q:
    case REFIT_ROLE_ATTENTION_K:
    case REFIT_ROLE_ATTENTION_V:
    case REFIT_ROLE_ATTENTION_O:
    case REFIT_ROLE_ATTENTION_Q_NORM:
    case REFIT_ROLE_ATTENTION_K_NORM:
    case REFIT_ROLE_ATTENTION_GATE:
    case REFIT_ROLE_ATTENTION_SINK:
    case REFIT_ROLE_MLA_Q_B:
    case REFIT_ROLE_MLA_KV_B:
        return ATTENTION;
    case REFIT_ROLE_SSM_IN:
    case REFIT_ROLE_SSM_CONV:
    case REFIT_ROLE_SSM_HEAD:
    case REFIT_ROLE_SSM_OUT:
        return SSM;
    case REFIT_ROLE_DENSE_GATE:
    case REFIT_ROLE_DENSE_UP:
    case REFIT_ROLE_DENSE_DOWN:
        return DENSE;
    case REFIT_ROLE_SHARED_GATE:
    case REFIT_ROLE_SHARED_UP:
    case REFIT_ROLE_SHARED_DOWN:
        return SHARED;
    default:
        return OTHER;
    }
}

static guint stage_of_tensor(const Megatron *m, const RefitTensor *tensor) {
    if (tensor->mtp)
        return m->mtp_stage.value;
    if (refit_layout_is_output(tensor) || tensor->layer >= (gint)refit_model_n_layers(m->model))
        return m->pipeline.pp.value - 1;
    return tensor->layer == REFIT_NO_LAYER ? 0 : m->stages[tensor->layer];
}

/* ---- tensors that tables of shardings cannot hold ---- */

static const RefitSharding *share_listed(const Megatron *m, guint base, RefitAxis *axes,
                                         guint n_axes, RefitListedCut *cut, GError **error) {
    axes[n_axes - 1].placement = cut->placement;
    return refit_layout_share_part(m->layout, base, axes, n_axes, error);
}

/*
 * The rows of the fused query, key and value parameter; `member` 0 to 2. With a gate the hub has
 * the rows of a query head and those of its gate in turn.
 */
static GArray *fused_rows(const Megatron *m, gboolean gated) {
    guint n_groups = refit_model_n_kv_heads(m->model);
    guint n_queries = refit_model_n_heads(m->model) / n_groups;
    guint64 head = m->query_rows / (n_queries * (gated ? 2 : 1)), step = gated ? 2 * head : head;
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(RefitFusedRows));

    for (guint group = 0; group < n_groups; group++) {
        guint64 query = group * m->query_rows, key = group * m->kv_rows;

        for (guint part = 0; part < (gated ? 2u : 1u); part++) {
            for (guint i = 0; i < n_queries; i++) {
                guint64 lo = query + i * step + part * head;
                RefitFusedRows run = {.member = 0, .lo = lo, .hi = lo + head};
                g_array_append_val(rows, run);
            }
        }
        for (guint member = 1; member <= 2; member++) {
            RefitFusedRows run = {.member = member, .lo = key, .hi = key + m->kv_rows};
            g_array_append_val(rows, run);
        }
    }
    return rows;
}

/* Fewer KV heads than tp: raw rows of the fused parameter. */
static const RefitSharding *place_fused(const Megatron *m, const RefitTensor *tensor, guint stage,
                                        GError **error) {
    const RefitSize *tp = &m->tp[ATTENTION];
    guint heads = refit_model_n_heads(m->model), kv_heads = refit_model_n_kv_heads(m->model);
    gboolean is_query = refit_layout_cut(tensor) == REFIT_CUT_QUERY;
    guint64 plain = heads / kv_heads * m->kv_rows;
    guint member = is_query ? 0 : tensor->role == REFIT_ROLE_ATTENTION_V ? 2 : 1;
    guint64 rows = is_query ? m->query_rows : m->kv_rows;
    guint64 total = (m->query_rows + 2 * m->kv_rows) * kv_heads;
    RefitAxis axes[] = {{.size = m->stage_world / tp->value, .stride = tp->value},
                        {.size = tp->value, .stride = 1}};
    g_auto(RefitListedCut) cut = {.lists = NULL};

    if (tensor->n_dims == 0 || tensor->shape[0] != rows * kv_heads || total % tp->value != 0 ||
        plain == 0 || (m->query_rows != plain && m->query_rows != 2 * plain)) {
        refit_node_error(tp->place, REFIT_ERROR_INVALID, error,
                         "tp %u exceeds the model's %u KV heads, and %s cannot be cut inside a "
                         "head; use tp up to %u",
                         tp->value, kv_heads, tensor->name, kv_heads);
        return NULL;
    }
    g_autoptr(GArray) fused = fused_rows(m, m->query_rows != plain);
    cut.lists = refit_lists_of_member((const RefitFusedRows *)(void *)fused->data, fused->len,
                                      member, tp->value, error);
    if (cut.lists == NULL)
        return NULL;
    cut.placement = (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD,
                                     .dim = 0,
                                     .split = REFIT_SPLIT_LISTS,
                                     .n_lists = tp->value,
                                     .lists = cut.lists};
    return share_listed(m, stage * m->stage_world, axes, 2, &cut, error);
}

/*
 * On its own stage, on the last one where a tied embedding serves as head, and with MTP layers that
 * have none of their own.
 */
static gboolean add_copies(const Megatron *m, const RefitTensor *tensor, guint stage,
                           const RefitAxis *axes, RefitSharding *sharding, GError **error) {
    gboolean is_embedding = tensor->role == REFIT_ROLE_EMBEDDING;
    gboolean is_tied = is_embedding && refit_model_tied_embeddings(m->model);
    gboolean has_own = is_embedding ? m->mtp_has_embedding : m->mtp_has_head;
    guint last = m->pipeline.pp.value - 1, mtp = m->mtp_stage.value;
    guint stages[3] = {stage}, n = 1;

    if (!tensor->mtp && is_tied && last != stage)
        stages[n++] = last;
    if (!tensor->mtp && m->has_mtp && !has_own && mtp != stage && mtp != stages[n - 1])
        stages[n++] = mtp;
    for (guint i = 0; i < n; i++) {
        if (!refit_layout_add_part(m->layout, sharding, stages[i] * m->stage_world, axes, 2, error))
            return FALSE;
    }
    return TRUE;
}

static const RefitSharding *place_vocabulary(const Megatron *m, const RefitTensor *tensor,
                                             guint stage, GError **error) {
    guint tp = m->tp[VOCABULARY].value;
    guint64 rows = tensor->n_dims > 0 ? tensor->shape[0] : 0, granule = (guint64)m->granule * tp;
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    RefitAxis axes[] = {{.size = m->stage_world / tp, .stride = tp}, {.size = tp, .stride = 1}};

    if (tensor->n_dims > 0) {
        axes[1].placement = (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD, .dim = 0};
        if (rows % granule != 0)
            refit_sharding_set_padded(sharding, 0, (rows / granule + 1) * granule);
    }
    if (!add_copies(m, tensor, stage, axes, sharding, error))
        return NULL;
    return refit_layout_share(m->layout, g_steal_pointer(&sharding));
}

/* ---- all others ---- */

static const RefitSharding **slot(const Megatron *m, guint stage, guint group,
                                  const RefitPlacement *placement) {
    gsize row = (gsize)stage * (GROUP_EXPERTS + m->ep.value) + group;

    return &m->made[row * REFIT_N_EVEN_KINDS + refit_layout_even_kind(placement)];
}

/*
 * Gate and up that share linear_fc1 in blocks of rows fill them on each rank. Called for tensors
 * that have a place; scales, which follow, are not looked at.
 */
static gboolean check_blocks(const Megatron *m, const RefitTensor *tensor, GError **error) {
    guint dim = refit_layout_cut_dim(tensor, REFIT_CUT_ROWS);
    guint block = refit_layout_block_rows(m->layout);
    guint64 rows = dim < tensor->n_dims ? tensor->shape[dim] / m->etp.value : 0;
    g_autofree char *name = NULL;

    if (block == 0 || rows % (2 * (guint64)block) == 0)
        return TRUE;
    const RefitPacking *row = refit_packing_find(
        &refit_framework_megatron, refit_layout_packing_options(m->layout), tensor, &name);
    rows /= row != NULL && row->inner != REFIT_INNER_ONE ? 2 : 1;
    if (row == NULL || row->pack != REFIT_PACK_BLOCKS || rows % block == 0)
        return TRUE;
    refit_node_error(m->interleave, REFIT_ERROR_GRANULE_SPLIT, error,
                     "each GPU has %" G_GUINT64_FORMAT
                     " rows of %s, which are not whole blocks of %u; use a divisor of "
                     "%" G_GUINT64_FORMAT ", or a smaller etp",
                     rows, tensor->name, block, rows);
    return FALSE;
}

static const RefitSharding *place_expert(const Megatron *m, const RefitTensor *tensor, guint stage,
                                         GError **error) {
    guint ep = m->ep.value, etp = m->etp.value, group = GROUP_STACKED,
          base = stage * m->stage_world;
    RefitCut cut = refit_layout_cut(tensor);
    RefitAxis axes[] = {{.size = m->edp, .stride = ep * etp},
                        {.size = ep, .stride = etp, .placement = {REFIT_PLACEMENT_SHARD, .dim = 0}},
                        {.size = etp, .stride = 1}};

    if (ep > 1 && !refit_layout_check_expert(tensor, &m->ep, m->n_experts, error))
        return NULL;
    if (tensor->expert != REFIT_NO_EXPERT) {
        guint index = ep > 1 ? (guint)tensor->expert / (guint)(m->n_experts / ep) : 0;
        axes[1].size = 1;
        base += index * etp;
        group = GROUP_EXPERTS + index;
    }
    if (refit_layout_is_packed(tensor, cut, &m->etp)) {
        g_auto(RefitListedCut) packed = {.lists = NULL};

        if (!refit_layout_packed(tensor, &m->etp, FALSE, &packed, error))
            return NULL;
        return share_listed(m, base, axes, 3, &packed, error);
    }
    if (!refit_layout_even(tensor, cut, &m->etp, &axes[2].placement, error))
        return NULL;
    const RefitSharding **made = slot(m, stage, group, &axes[2].placement);
    if (*made == NULL)
        *made = refit_layout_share_part(m->layout, base, axes, 3, error);
    return *made;
}

static const RefitSharding *place(const Megatron *m, const RefitTensor *tensor, GError **error) {
    guint stage = stage_of_tensor(m, tensor), base = stage * m->stage_world;
    RefitCut cut = refit_layout_cut(tensor);
    Class class = class_of(tensor);
    const RefitSize *tp = &m->tp[class];
    RefitPlacement placement;

    if (refit_layout_is_expert(tensor))
        return place_expert(m, tensor, stage, error);
    if (cut == REFIT_CUT_VOCABULARY)
        return place_vocabulary(m, tensor, stage, error);
    if (cut == REFIT_CUT_QUERY || cut == REFIT_CUT_KV) {
        if (!refit_layout_check_known_heads(m->model, tensor, tp, error) ||
            !refit_layout_check_kv_heads(m->model, tp, error))
            return NULL;
        if (refit_model_n_kv_heads(m->model) % tp->value != 0)
            return place_fused(m, tensor, stage, error);
        cut = REFIT_CUT_ROWS;
    }
    if (refit_layout_is_packed(tensor, cut, tp)) {
        RefitAxis axes[] = {{.size = m->stage_world / tp->value, .stride = tp->value},
                            {.size = tp->value, .stride = 1}};
        g_auto(RefitListedCut) packed = {.lists = NULL};

        if (!refit_layout_packed(tensor, tp, FALSE, &packed, error))
            return NULL;
        return share_listed(m, base, axes, 2, &packed, error);
    }
    if (!refit_layout_even(tensor, cut, tp, &placement, error))
        return NULL;
    if (placement.kind == REFIT_PLACEMENT_REPLICATE) { /* one sharding, whatever the layer */
        class = OTHER;
        tp = &m->tp[OTHER];
    }
    const RefitSharding **made = slot(m, stage, class, &placement);
    if (*made == NULL) {
        RefitAxis axes[] = {{.size = m->stage_world / tp->value, .stride = tp->value},
                            {.size = tp->value, .stride = 1, .placement = placement}};
        *made = refit_layout_share_part(m->layout, base, axes, 2, error);
    }
    return *made;
}

/* ---- keys ---- */

/* The tp of every class, from the mapping or, when that says nothing, the common one. */
static gboolean read_tp(Megatron *m, RefitNode *node, GError **error) {
    RefitNode *tp_of = refit_node_get(node, "tp_of");
    RefitSize *common = &m->tp[OTHER];

    if (!refit_layout_read_size(node, "tp", 1, common, error) ||
        (tp_of != NULL && !refit_node_expect(tp_of, REFIT_NODE_MAPPING, error)))
        return FALSE;
    for (guint i = 0; i < OTHER; i++) {
        RefitSize size = {.stated = FALSE};

        if (tp_of != NULL &&
            !refit_layout_read_size(tp_of, class_names[i], common->value, &size, error))
            return FALSE;
        m->tp[i] = size.stated ? size : *common;
        m->tp[i].name = common->name;
    }
    return TRUE;
}

/* Keys that are not plain sizes. Absent ones are NULL. */
typedef struct {
    RefitNode *granule, *experts, *interleave, *mtp_stage;
} Nodes;

static gboolean read_keys(Megatron *m, RefitNode *node, Nodes *nodes, GError **error) {
    *nodes = (Nodes){
        .granule = refit_node_get(node, "vocab_granule"),
        .experts = refit_node_get(node, "experts"),
        .interleave = refit_node_get(node, "glu_interleave"),
        .mtp_stage = refit_node_get(node, "mtp_stage"),
    };
    return read_tp(m, node, error) && refit_layout_read_size(node, "cp", 1, &m->cp, error) &&
           refit_layout_read_pipeline(node, &m->pipeline, error) &&
           refit_layout_read_size(node, "ep", 1, &m->ep, error) &&
           refit_layout_read_size(node, "etp", 1, &m->etp, error) &&
           refit_layout_read_size(node, "dp", 1, &m->dp, error) && refit_node_finish(node, error);
}

/* The one of all divides the world already. */
static gboolean check_tp(const Megatron *m, GError **error) {
    for (guint i = 0; i < OTHER; i++) {
        const RefitSize *tp = &m->tp[i];

        if (m->stage_world % tp->value != 0) {
            refit_node_error(tp->place, REFIT_ERROR_INVALID, error,
                             "tp %u does not divide the %u GPUs of a pipeline stage; use a divisor "
                             "of %u",
                             tp->value, m->stage_world, m->stage_world);
            return FALSE;
        }
    }
    return refit_layout_check_heads(m->model, &m->tp[ATTENTION], error);
}

static gboolean read_choices(Megatron *m, const Nodes *nodes, GError **error) {
    static const char *const storages[] = {"sequential", "grouped", NULL};
    guint64 granule = VOCABULARY_GRANULE, interleave = 0, stage = m->pipeline.pp.value - 1;
    guint storage = 0;

    if ((nodes->granule != NULL &&
         !refit_node_uint(nodes->granule, 1, MAX_GRANULE, &granule, error)) ||
        (nodes->experts != NULL && !refit_node_choice(nodes->experts, storages, &storage, error)) ||
        (nodes->interleave != NULL &&
         !refit_node_uint(nodes->interleave, 1, MAX_GRANULE, &interleave, error)) ||
        (nodes->mtp_stage != NULL && !refit_node_uint(nodes->mtp_stage, 0, stage, &stage, error)))
        return FALSE;
    m->granule = (guint)granule;
    m->interleave = nodes->interleave;
    m->mtp_stage = (RefitSize){.name = "mtp_stage", .value = (guint)stage};
    refit_layout_set_packing(m->layout, storage == 1 ? REFIT_PACKING_GROUPED_EXPERTS : 0,
                             (guint)interleave);
    return TRUE;
}

static gboolean solve_expert_mesh(Megatron *m, GError **error) {
    guint64 group = (guint64)m->ep.value * m->etp.value;

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

static void append_size(GString *text, const char *name, const RefitSize *size) {
    if (size->value > 1)
        g_string_append_printf(text, " %s%u", name, size->value);
}

static void describe(const Megatron *m) {
    GString *text = g_string_new("megatron");

    g_string_append_printf(text, " tp%u", m->tp[OTHER].value);
    for (guint i = 0; i < OTHER; i++) {
        if (m->tp[i].value != m->tp[OTHER].value)
            g_string_append_printf(text, " %s-tp%u", class_names[i], m->tp[i].value);
    }
    g_string_append_printf(text, " pp%u", m->pipeline.pp.value);
    append_size(text, "vpp", &m->pipeline.vpp);
    append_size(text, "cp", &m->cp);
    append_size(text, "ep", &m->ep);
    append_size(text, "etp", &m->etp);
    g_string_append_printf(text, " dp%u", m->dp.value);
    refit_layout_set_summary(m->layout, g_string_free(text, FALSE));
}

/* What the model's tensors say about its attention, its experts and its MTP layers. */
static void inspect(Megatron *m) {
    guint kv_heads = refit_model_n_kv_heads(m->model);

    m->n_experts = refit_layout_count_experts(m->model);
    for (guint i = 0; i < refit_model_n_tensors(m->model); i++) {
        const RefitTensor *tensor = refit_model_tensor(m->model, i);

        m->has_mtp |= tensor->mtp;
        m->mtp_has_embedding |= tensor->mtp && tensor->role == REFIT_ROLE_EMBEDDING;
        m->mtp_has_head |= tensor->mtp && tensor->role == REFIT_ROLE_LM_HEAD;
        if (kv_heads == 0 || tensor->n_dims == 0)
            continue;
        if (tensor->role == REFIT_ROLE_ATTENTION_Q && m->query_rows == 0)
            m->query_rows = tensor->shape[0] / kv_heads;
        if (tensor->role == REFIT_ROLE_ATTENTION_K && m->kv_rows == 0)
            m->kv_rows = tensor->shape[0] / kv_heads;
    }
    if (m->query_rows == 0 && kv_heads > 0)
        m->query_rows = refit_model_n_heads(m->model) / kv_heads * m->kv_rows;
}

static gboolean assign_all(const Megatron *m, GError **error) {
    for (guint i = 0; i < refit_model_n_tensors(m->model); i++) {
        const RefitTensor *tensor = refit_model_tensor(m->model, i);

        if (tensor->scale) /* follows its tensor, see refit_layout_parse() */
            continue;
        const RefitSharding *sharding = place(m, tensor, error);
        if (sharding == NULL || (refit_layout_is_expert(tensor) && !check_blocks(m, tensor, error)))
            return FALSE;
        refit_layout_assign(m->layout, i, sharding);
    }
    return TRUE;
}

static gboolean generate(RefitLayout *layout, RefitNode *node, GError **error) {
    Megatron m = {.layout = layout, .model = refit_layout_model(layout)};
    guint n_ranks = refit_layout_n_ranks(layout);
    Nodes nodes;

    if (!read_keys(&m, node, &nodes, error))
        return FALSE;
    RefitSize sizes[] = {m.tp[OTHER], m.cp, m.pipeline.pp};
    if (!refit_layout_solve_dp(layout, node, sizes, G_N_ELEMENTS(sizes), &m.dp, error))
        return FALSE;
    m.stage_world = n_ranks / m.pipeline.pp.value;
    if (!read_choices(&m, &nodes, error) || !check_tp(&m, error) || !solve_expert_mesh(&m, error))
        return FALSE;
    g_autofree guint *stages = refit_layout_solve_stages(m.model, &m.pipeline, error);
    if (stages == NULL)
        return FALSE;
    gsize n_rows = (gsize)m.pipeline.pp.value * (GROUP_EXPERTS + m.ep.value);
    g_autofree const RefitSharding **made =
        g_new0(const RefitSharding *, n_rows *REFIT_N_EVEN_KINDS);
    m.stages = stages;
    m.made = made;
    inspect(&m);
    if (!assign_all(&m, error))
        return FALSE;

    g_autofree guint *stage_of = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++)
        stage_of[i] = i / m.stage_world;
    refit_layout_set_stages(layout, m.pipeline.pp.value, stage_of);
    describe(&m);
    return TRUE;
}

const RefitFramework refit_framework_megatron = {
    .name = "megatron",
    .summary = "Megatron-Core: tensor, pipeline, expert, context and data parallelism",
    .packings = refit_packings_megatron,
    .prefixes = refit_prefixes_megatron,
    .keys = keys,
    .by_role = refit_layout_always_by_role,
    .generate = generate,
};
