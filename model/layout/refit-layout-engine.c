/*
 * Placing tensors as inference engines do: what vLLM and SGLang have in common.
 *
 * Every tensor is cut over a number of neighbouring ranks that depends on what it is for, and
 * repeated over all others. Fused parameters (qkv, gate and up, packed inputs of state-space
 * layers) are cut per part, so a logical tensor keeps an even cut of its own or of each of its
 * segments; KV heads fewer than ranks are held by several ranks each; a vocabulary is padded.
 * Experts in MXFP4 are cut between blocks: whole blocks each, the last ranks fewer. What ranks add
 * to sums that they then add up lies on the first of them, zeros on the others.
 *
 * Cost: a hash lookup per tensor; a mesh is built once per stage and kind of cut.
 */

#include "model/layout/refit-layout-engine.h"
#include "model/layout/refit-view.h"

#include <string.h>

/* The vocabulary is padded to a multiple of this. */
#define VOCABULARY_GRANULE 64

/* ---- table of the shardings made so far ---- */

typedef struct {
    guint64 words[9 + 2 * REFIT_MAX_PACKED];
} Key;

static guint key_hash(gconstpointer data) {
    const Key *key = data;
    guint64 hash = 0;

    for (guint i = 0; i < G_N_ELEMENTS(key->words); i++)
        hash = (hash ^ key->words[i]) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    return (guint)(hash >> 32);
}

static gboolean key_equal(gconstpointer a, gconstpointer b) {
    return memcmp(a, b, sizeof(Key)) == 0;
}

/* ---- what the model is ---- */

gboolean refit_engine_is_family(const RefitModel *model, const char *family) {
    return g_strcmp0(refit_model_family(model), family) == 0;
}

gboolean refit_engine_has_role(const RefitModel *model, RefitRole role) {
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        if (refit_model_tensor(model, i)->role == role)
            return TRUE;
    }
    return FALSE;
}

/* ---- sizes and stages ---- */

RefitSize refit_engine_size(const char *name, guint value, const RefitSize *of) {
    return (RefitSize){.name = name, .value = value, .stated = of->stated, .place = of->place};
}

gboolean refit_engine_begin(RefitEngine *engine, RefitLayout *layout, RefitNode *node,
                            GError **error) {
    *engine = (RefitEngine){.layout = layout, .model = refit_layout_model(layout), .node = node};
    engine->stage_layers = refit_node_get(node, "stage_layers");
    engine->redundant_node = refit_node_get(node, "redundant_experts");
    engine->expert_map = refit_node_get(node, "expert_map");
    if (!refit_layout_read_size(node, "tp", 1, &engine->tp, error) ||
        !refit_layout_read_size(node, "pp", 1, &engine->pp, error) ||
        !refit_layout_read_size(node, "engines", 1, &engine->engines, error) ||
        !refit_node_get_uint(node, "redundant_experts", 0, G_MAXUINT32, &engine->redundant, error))
        return FALSE;
    if (engine->stage_layers != NULL && !engine->pp.stated &&
        refit_node_kind(engine->stage_layers) == REFIT_NODE_SEQUENCE)
        engine->pp.value = MAX(refit_node_size(engine->stage_layers), 1);
    return TRUE;
}

void refit_engine_clear(RefitEngine *engine) {
    g_free(engine->order);
    g_free(engine->stage_of_layer);
    refit_expert_slots_free(engine->slots);
    if (engine->made != NULL)
        g_hash_table_unref(engine->made);
}

/* The stage of every decoder layer, or NULL. */
static guint *solve_stages(const RefitEngine *engine, GError **error) {
    guint layers = refit_model_n_layers(engine->model), pp = engine->pp.value, layer = 0;
    guint few = layers / pp, left = layers % pp;
    RefitNode *table = engine->stage_layers;

    if (table != NULL) {
        RefitPipeline pipeline = {
            .pp = engine->pp, .vpp = {.name = "vpp", .value = 1}, .table = table};

        if (refit_node_kind(table) == REFIT_NODE_SEQUENCE && refit_node_size(table) != pp) {
            refit_node_error(table, REFIT_ERROR_INVALID, error,
                             "has %u numbers, but pp is %u; write one for each stage",
                             refit_node_size(table), pp);
            return NULL;
        }
        return refit_layout_solve_stages(engine->model, &pipeline, error);
    }
    if (layers > 0 && layers < pp) {
        refit_node_error(engine->pp.place, REFIT_ERROR_INVALID, error,
                         "pp %u is more than the model's %u layers; use at most %u, or say with "
                         "stage_layers which stages have none",
                         pp, layers, layers);
        return NULL;
    }
    guint *stages = g_new(guint, MAX(layers, 1));
    for (guint i = 0; i < pp && layer < layers; i++) {
        guint from_last = pp - 1 - i, depth = few;

        if (from_last >= engine->spared_stages && from_last < engine->spared_stages + left)
            depth++;
        while (depth-- > 0)
            stages[layer++] = i;
    }
    return stages;
}

static guint stage_of_tensor(const RefitEngine *engine, const RefitTensor *tensor) {
    if (tensor->mtp || refit_layout_is_output(tensor))
        return engine->pp.value - 1;
    return tensor->layer == REFIT_NO_LAYER ? 0 : engine->stage_of_layer[tensor->layer];
}

/* Within a stage: tp innermost, then data parallel ranks, then engines. */
static void set_order(RefitEngine *engine) {
    guint n_ranks = refit_layout_n_ranks(engine->layout), tp = engine->tp.value;
    guint pp = engine->pp.value, per_stage = n_ranks / pp;
    g_autofree guint *stages = g_new(guint, n_ranks);

    engine->order = g_new(guint, n_ranks);
    for (guint position = 0; position < n_ranks; position++) {
        guint stage = position / tp % pp, place = position / tp / pp * tp + position % tp;

        engine->order[stage * per_stage + place] = position;
        stages[position] = stage;
    }
    refit_layout_set_stages(engine->layout, pp, stages);
}

gboolean refit_engine_add(const RefitEngine *engine, RefitSharding *sharding, guint stage,
                          guint base, const RefitAxis *axes, guint n_axes, GError **error) {
    guint per_stage = refit_layout_n_ranks(engine->layout) / engine->pp.value;

    return refit_layout_add_ordered(engine->layout, sharding, engine->order + stage * per_stage,
                                    base, axes, n_axes, error);
}

/* ---- cuts ---- */

/* How one tensor is cut over `parts` neighbours, each part held by `repeat` of them. */
typedef struct {
    guint parts, repeat;
    RefitPlacement placement;
    RefitListedCut listed; /* owns the lists of the placement */
    guint64 *sizes;        /* owns the sizes of the placement */
    guint64 padded;        /* extent of dim 0 with padding, or 0 */
    gboolean first_only;   /* only the first of the neighbours holds it */
} Cut;

static void cut_clear(Cut *cut) {
    refit_listed_cut_clear(&cut->listed);
    g_free(cut->sizes);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Cut, cut_clear)

static const RefitSize *size_of(const RefitEngine *engine, const RefitTensor *tensor) {
    switch (tensor->role) {
    case REFIT_ROLE_EMBEDDING:
        return &engine->embedding;
    case REFIT_ROLE_LM_HEAD:
        return &engine->head;
    case REFIT_ROLE_DENSE_GATE:
    case REFIT_ROLE_DENSE_UP:
    case REFIT_ROLE_DENSE_DOWN:
        return &engine->dense;
    case REFIT_ROLE_SHARED_GATE:
    case REFIT_ROLE_SHARED_UP:
    case REFIT_ROLE_SHARED_DOWN:
        return &engine->shared;
    default:
        return refit_layout_is_expert(tensor) ? &engine->expert_tp : &engine->attention;
    }
}

static gboolean cut_vocabulary(const RefitTensor *tensor, const RefitSize *size, Cut *cut,
                               GError **error) {
    guint64 rows = tensor->n_dims > 0 ? tensor->shape[0] : 0;
    guint64 padded = rows + (VOCABULARY_GRANULE - rows % VOCABULARY_GRANULE) % VOCABULARY_GRANULE;

    if (padded % size->value != 0) {
        refit_node_error(size->place, REFIT_ERROR_INVALID, error,
                         "%s %u does not divide the vocabulary of %" G_GUINT64_FORMAT
                         " rows, padded to %" G_GUINT64_FORMAT
                         "; use a divisor of %" G_GUINT64_FORMAT,
                         size->name, size->value, rows, padded, padded);
        return FALSE;
    }
    if (tensor->n_dims > 0 && size->value > 1)
        cut->placement.kind = REFIT_PLACEMENT_SHARD;
    cut->padded = padded != rows ? padded : 0;
    return TRUE;
}

/*
 * The width of an expert in whole blocks, the last ranks fewer. A block is an equal share of any
 * extent that runs along the width: 32 columns, 16 bytes of them, 32 rows, or 64 rows where those
 * of gate and up take turns.
 */
static gboolean cut_blocks(const RefitEngine *engine, const RefitTensor *tensor, RefitCut how,
                           Cut *cut, GError **error) {
    guint parts = cut->parts, dim = refit_layout_cut_dim(tensor, how);
    guint64 blocks = engine->blocks;

    if (dim >= tensor->n_dims || tensor->shape[dim] % blocks != 0 || blocks % parts == 0)
        return refit_layout_even(tensor, how, &engine->expert_tp, &cut->placement, error);
    guint64 left = tensor->shape[dim], unit = left / blocks;
    guint64 chunk = (blocks + parts - 1) / parts * unit;
    cut->sizes = g_new(guint64, parts);
    for (guint i = 0; i < parts; i++) {
        cut->sizes[i] = MIN(chunk, left);
        left -= cut->sizes[i];
    }
    cut->placement = (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD,
                                      .dim = dim,
                                      .split = REFIT_SPLIT_SIZES,
                                      .n_sizes = parts,
                                      .sizes = cut->sizes};
    return TRUE;
}

static gboolean cut_tensor(const RefitEngine *engine, const RefitTensor *tensor, Cut *cut,
                           GError **error) {
    RefitSize size = *size_of(engine, tensor);
    RefitCut how = refit_layout_cut(tensor);
    guint kv_heads = refit_model_n_kv_heads(engine->model);

    cut->parts = size.value;
    cut->repeat = 1;
    if (how == REFIT_CUT_VOCABULARY)
        return cut_vocabulary(tensor, &size, cut, error);
    if (how == REFIT_CUT_KV && size.value > 1) {
        if (!refit_layout_check_known_heads(engine->model, tensor, &size, error) ||
            !refit_layout_check_kv_heads(engine->model, &size, error))
            return FALSE;
        if (kv_heads % size.value != 0) {
            cut->repeat = size.value / kv_heads;
            cut->parts = size.value = kv_heads;
        }
    }
    if (how == REFIT_CUT_QUERY || how == REFIT_CUT_KV)
        how = REFIT_CUT_ROWS;
    if (tensor->role == REFIT_ROLE_MTP_PROJ && !g_str_has_prefix(tensor->name, engine->mtp_cut))
        how = REFIT_CUT_NONE; /* a plain linear layer */
    cut->first_only = tensor->role == REFIT_ROLE_EXPERT_DOWN_BIAS;
    if (engine->blocks > 0 && how != REFIT_CUT_NONE && cut->parts > 1 &&
        refit_layout_is_expert(tensor))
        return cut_blocks(engine, tensor, how, cut, error);
    if (refit_layout_is_packed(tensor, how, &size)) {
        /* Mamba groups fewer than ranks are held by several; key heads of a delta net cannot be. */
        gboolean repeat = !refit_engine_is_family(engine->model, "qwen3_5_moe");

        if (!refit_layout_packed(tensor, &size, repeat, &cut->listed, error))
            return FALSE;
        cut->placement = cut->listed.placement;
        return TRUE;
    }
    return refit_layout_even(tensor, how, &size, &cut->placement, error);
}

/* Everything that decides where the parts of `tensor` lie. */
static Key key_of(const RefitEngine *engine, const RefitTensor *tensor, guint stage,
                  const Cut *cut) {
    const RefitExpertSlots *slots = engine->slots;
    Key key = {{stage, cut->parts, cut->repeat, cut->padded}};
    guint64 *words = key.words;

    if (cut->placement.kind == REFIT_PLACEMENT_SHARD)
        words[4] = 1 + cut->placement.dim;
    if (cut->placement.split == REFIT_SPLIT_SIZES)
        words[5] = tensor->shape[cut->placement.dim];
    if (tensor->role == REFIT_ROLE_EMBEDDING)
        words[6] = 1;
    if (slots != NULL && refit_layout_is_expert(tensor)) {
        if (tensor->expert == REFIT_NO_EXPERT) {
            words[6] = 2;
        } else {
            guint first = slots->first_holder[tensor->expert];
            gboolean alone = slots->first_holder[tensor->expert + 1] == first + 1;
            words[6] = 3 + (alone ? slots->rank_of[first]
                                  : (guint64)slots->n_ranks + (guint)tensor->expert);
        }
    }
    if (cut->placement.split == REFIT_SPLIT_LISTS) {
        words[7] = tensor->n_packed;
        for (guint i = 0; i < tensor->n_packed; i++) {
            words[9 + 2 * i] = tensor->packed[i].extent;
            words[10 + 2 * i] = tensor->packed[i].units;
        }
    }
    words[8] = cut->first_only ? 1 : 0;
    return key;
}

/* ---- placing ---- */

static gboolean add_neighbours(const RefitEngine *engine, RefitSharding *sharding, guint stage,
                               const Cut *cut, GError **error) {
    guint n_ranks = refit_layout_n_ranks(engine->layout) / engine->pp.value;
    guint run = cut->parts * cut->repeat;
    RefitAxis axes[] = {{.size = n_ranks / run, .stride = run},
                        {.size = cut->first_only ? 1 : cut->parts,
                         .stride = cut->repeat,
                         .placement = cut->placement},
                        {.size = cut->repeat, .stride = 1}};

    return refit_engine_add(engine, sharding, stage, 0, axes, G_N_ELEMENTS(axes), error);
}

static RefitSharding *build(const RefitEngine *engine, const RefitTensor *tensor, guint stage,
                            const Cut *cut, GError **error) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();
    guint last = engine->pp.value - 1;

    if (engine->slots != NULL && refit_layout_is_expert(tensor)) {
        RefitAxis within = {.size = cut->first_only ? 1 : engine->expert_tp.value,
                            .stride = 1,
                            .placement = cut->placement};
        if (!refit_engine_add_expert(engine, tensor, stage, &within, sharding, error))
            return NULL;
        return g_steal_pointer(&sharding);
    }
    if (!add_neighbours(engine, sharding, stage, cut, error))
        return NULL;
    /* Tied: the last stage keeps its own copy, which serves as the head. */
    if (tensor->role == REFIT_ROLE_EMBEDDING && !tensor->mtp && stage != last &&
        refit_model_tied_embeddings(engine->model)) {
        g_auto(Cut) head = {.parts = engine->head.value, .repeat = 1};

        if (!cut_vocabulary(tensor, &engine->head, &head, error) ||
            !add_neighbours(engine, sharding, last, &head, error))
            return NULL;
    }
    if (cut->padded > 0)
        refit_sharding_set_padded(sharding, 0, cut->padded);
    return g_steal_pointer(&sharding);
}

static const RefitSharding *place(const RefitEngine *engine, const RefitTensor *tensor,
                                  GError **error) {
    guint stage = stage_of_tensor(engine, tensor);
    g_auto(Cut) cut = {0};

    if ((engine->slots != NULL && refit_layout_is_expert(tensor) &&
         !refit_layout_check_expert(tensor, &engine->ep, engine->slots->n_experts, error)) ||
        !cut_tensor(engine, tensor, &cut, error))
        return NULL;
    Key key = key_of(engine, tensor, stage, &cut);
    const RefitSharding *made = g_hash_table_lookup(engine->made, &key);
    if (made == NULL) {
        RefitSharding *sharding = build(engine, tensor, stage, &cut, error);
        if (sharding == NULL)
            return NULL;
        made = refit_layout_share(engine->layout, sharding);
        g_hash_table_insert(engine->made, g_memdup2(&key, sizeof key), (gpointer)made);
    }
    return made;
}

/* MXFP4 blocks are found at the tensor that has the width of an expert in its columns. */
static void find_blocks(RefitEngine *engine) {
    for (guint i = 0; i < refit_model_n_tensors(engine->model) && engine->blocks == 0; i++) {
        const RefitTensor *tensor = refit_model_tensor(engine->model, i);
        guint dim = refit_layout_cut_dim(tensor, REFIT_CUT_COLUMNS);

        if (tensor->scale || (tensor->dtype != REFIT_DTYPE_U8 && tensor->dtype != REFIT_DTYPE_F4) ||
            !refit_layout_is_expert(tensor) || refit_layout_cut(tensor) != REFIT_CUT_COLUMNS ||
            dim >= tensor->n_dims)
            continue;
        if (tensor->granule[dim] > 1)
            engine->blocks = tensor->shape[dim] / tensor->granule[dim];
        else if (dim + 1 < tensor->n_dims && tensor->granule[dim + 1] > 1)
            engine->blocks = tensor->shape[dim];
    }
}

static gboolean check_experts(RefitEngine *engine, GError **error) {
    RefitNode *needs_ep = engine->expert_map != NULL ? engine->expert_map : engine->redundant_node;

    if (engine->ep.value == 1) {
        if (engine->expert_map == NULL && engine->redundant == 0)
            return TRUE;
        refit_node_error(needs_ep, REFIT_ERROR_INVALID, error,
                         "experts are not spread over ranks; set ep, or leave this out");
        return FALSE;
    }
    if (engine->expert_map != NULL && engine->redundant_node != NULL) {
        refit_node_error(engine->redundant_node, REFIT_ERROR_INVALID, error,
                         "redundant_experts and expert_map both say which slots there are; keep "
                         "one");
        return FALSE;
    }
    return refit_layout_check_experts(engine->model, &engine->ep, FALSE, error) &&
           refit_engine_place_experts(engine, error);
}

/* Views of parameters go by number unless slots were stated. */
static void state_slots(const RefitEngine *engine) {
    const RefitExpertSlots *slots = engine->slots;
    guint n_ranks = refit_layout_n_ranks(engine->layout);
    guint width = engine->width, tp = engine->expert_tp.value;

    for (guint i = 0; i < n_ranks && engine->expert_map != NULL; i++) {
        guint rank = i % (n_ranks / engine->pp.value) % width / tp;
        guint first = slots->first_slot[rank];

        refit_layout_set_expert_slots(engine->layout, engine->order[i], slots->expert_of + first,
                                      slots->first_slot[rank + 1] - first);
    }
}

gboolean refit_engine_assign(RefitEngine *engine, GError **error) {
    if (!refit_layout_check_heads(engine->model, &engine->attention, error))
        return FALSE;
    engine->stage_of_layer = solve_stages(engine, error);
    if (engine->stage_of_layer == NULL || !check_experts(engine, error))
        return FALSE;
    if (refit_engine_has_role(engine->model, REFIT_ROLE_MLA_Q_A))
        engine->packing_options |= REFIT_PACKING_COMPRESSED_Q;
    refit_layout_set_packing(engine->layout, engine->packing_options, 0);
    set_order(engine);
    state_slots(engine);
    find_blocks(engine);
    engine->made = g_hash_table_new_full(key_hash, key_equal, g_free, NULL);
    for (guint i = 0; i < refit_model_n_tensors(engine->model); i++) {
        const RefitTensor *tensor = refit_model_tensor(engine->model, i);

        if (tensor->scale)
            continue;
        const RefitSharding *sharding = place(engine, tensor, error);
        if (sharding == NULL)
            return FALSE;
        refit_layout_assign(engine->layout, i, sharding);
    }
    return TRUE;
}
