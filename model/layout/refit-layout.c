/*
 * Layouts: the framework table, the reading of one side of a case, and the store of shardings.
 *
 * A generator assigns a sharding to each of tens of thousands of tensors, but only a few hundred
 * differ. Shardings live in one hash table; the generators keep a table of those already made, so
 * that the usual tensor costs an array lookup and no mesh is built twice. What two generators need
 * (the tensor-parallel cut of a role, meshes by strides) is here too.
 */

#include "model/layout/refit-layout-private.h"

struct _RefitLayout {
    char *side, *framework, *summary;
    GPtrArray *notes; /* of texts */
    RefitModel *model;
    guint n_ranks, n_stages;
    guint *ranks, *stage_of;
    const RefitSharding **assigned; /* per tensor; NULL: not held */
    GHashTable *shardings;          /* set that owns every RefitSharding */
    guint packing_options, block_rows;
    GArray *fused;            /* of RefitFused, which own what they point to but the sharding */
    GHashTable *expert_slots; /* rank to GArray of guint */
};

const RefitFramework *const *refit_frameworks(void) {
    static const RefitFramework *const frameworks[] = {
        &refit_framework_megatron,
        &refit_framework_fsdp,
        &refit_framework_vllm,
        &refit_framework_sglang,
        &refit_framework_m2n,
        &refit_framework_explicit,
        NULL,
    };

    return frameworks;
}

gboolean refit_layout_always_by_role(G_GNUC_UNUSED RefitNode *node) {
    return TRUE;
}

/* ---- the layout object ---- */

static void clear_fused(gpointer item) {
    RefitFused *fused = item;

    g_free((char *)fused->name);
    g_free((guint *)fused->members);
    g_free((RefitFusedRows *)fused->rows);
}

RefitLayout *refit_layout_new(const char *side, const char *framework, RefitModel *model,
                              const guint *ranks, guint n_ranks) {
    RefitLayout *layout = g_new0(RefitLayout, 1);

    layout->side = g_strdup(side);
    layout->framework = g_strdup(framework);
    layout->summary = g_strdup(framework);
    layout->notes = g_ptr_array_new_with_free_func(g_free);
    layout->model = refit_model_ref(model);
    layout->n_ranks = n_ranks;
    layout->ranks = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++)
        layout->ranks[i] = ranks[i];
    layout->n_stages = 1;
    layout->stage_of = g_new0(guint, n_ranks);
    layout->assigned = g_new0(const RefitSharding *, refit_model_n_tensors(model));
    layout->shardings =
        g_hash_table_new_full((GHashFunc)refit_sharding_hash, (GEqualFunc)refit_sharding_equal,
                              (GDestroyNotify)refit_sharding_free, NULL);
    layout->fused = g_array_new(FALSE, FALSE, sizeof(RefitFused));
    g_array_set_clear_func(layout->fused, clear_fused);
    layout->expert_slots = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)g_array_unref);
    return layout;
}

void refit_layout_free(RefitLayout *layout) {
    if (layout == NULL)
        return;
    g_hash_table_unref(layout->expert_slots);
    g_array_unref(layout->fused);
    g_hash_table_unref(layout->shardings);
    g_free(layout->assigned);
    g_free(layout->stage_of);
    g_free(layout->ranks);
    refit_model_unref(layout->model);
    g_ptr_array_unref(layout->notes);
    g_free(layout->summary);
    g_free(layout->framework);
    g_free(layout->side);
    g_free(layout);
}

const char *refit_layout_side(const RefitLayout *layout) {
    return layout->side;
}

const char *refit_layout_framework(const RefitLayout *layout) {
    return layout->framework;
}

const char *refit_layout_summary(const RefitLayout *layout) {
    return layout->summary;
}

guint refit_layout_n_notes(const RefitLayout *layout) {
    return layout->notes->len;
}

const char *refit_layout_note(const RefitLayout *layout, guint index) {
    g_return_val_if_fail(index < layout->notes->len, NULL);
    return g_ptr_array_index(layout->notes, index);
}

void refit_layout_add_note(RefitLayout *layout, const char *note) {
    g_ptr_array_add(layout->notes, g_strdup(note));
}

const RefitModel *refit_layout_model(const RefitLayout *layout) {
    return layout->model;
}

guint refit_layout_n_ranks(const RefitLayout *layout) {
    return layout->n_ranks;
}

const guint *refit_layout_ranks(const RefitLayout *layout) {
    return layout->ranks;
}

gboolean refit_layout_has_rank(const RefitLayout *layout, guint rank) {
    for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
        if (layout->ranks[i] == rank)
            return TRUE;
    return FALSE;
}

const RefitSharding *refit_layout_sharding(const RefitLayout *layout, guint tensor) {
    g_return_val_if_fail(tensor < refit_model_n_tensors(layout->model), NULL);
    return layout->assigned[tensor];
}

guint refit_layout_n_stages(const RefitLayout *layout) {
    return layout->n_stages;
}

guint refit_layout_stage_of(const RefitLayout *layout, guint position) {
    g_return_val_if_fail(position < layout->n_ranks, 0);
    return layout->stage_of[position];
}

const RefitSharding *refit_layout_share(RefitLayout *layout, RefitSharding *sharding) {
    RefitSharding *known = g_hash_table_lookup(layout->shardings, sharding);

    if (known != NULL) {
        refit_sharding_free(sharding);
        return known;
    }
    g_hash_table_add(layout->shardings, sharding);
    return sharding;
}

void refit_layout_assign(RefitLayout *layout, guint tensor, const RefitSharding *shared) {
    g_return_if_fail(tensor < refit_model_n_tensors(layout->model));
    layout->assigned[tensor] = shared;
}

void refit_layout_set_summary(RefitLayout *layout, char *summary) {
    g_free(layout->summary);
    layout->summary = summary;
}

void refit_layout_set_stages(RefitLayout *layout, guint n_stages, const guint *stage_of) {
    layout->n_stages = n_stages;
    for (guint i = 0; i < layout->n_ranks; i++)
        layout->stage_of[i] = stage_of[i];
}

guint refit_layout_packing_options(const RefitLayout *layout) {
    return layout->packing_options;
}

guint refit_layout_block_rows(const RefitLayout *layout) {
    return layout->block_rows;
}

void refit_layout_set_packing(RefitLayout *layout, guint options, guint block_rows) {
    layout->packing_options = options;
    layout->block_rows = block_rows;
}

const GArray *refit_layout_expert_slots(const RefitLayout *layout, guint rank) {
    return g_hash_table_lookup(layout->expert_slots, GUINT_TO_POINTER(rank));
}

void refit_layout_set_expert_slots(RefitLayout *layout, guint position, const guint *experts,
                                   guint n) {
    GArray *slots = g_array_sized_new(FALSE, FALSE, sizeof(guint), n);

    g_array_append_vals(slots, experts, n);
    g_hash_table_insert(layout->expert_slots, GUINT_TO_POINTER(layout->ranks[position]), slots);
}

guint refit_layout_n_fused(const RefitLayout *layout) {
    return layout->fused->len;
}

const RefitFused *refit_layout_fused(const RefitLayout *layout, guint index) {
    g_return_val_if_fail(index < layout->fused->len, NULL);
    return &g_array_index(layout->fused, RefitFused, index);
}

void refit_layout_add_fused(RefitLayout *layout, const RefitFused *fused) {
    g_array_append_vals(layout->fused, fused, 1);
    RefitFused *copy = &g_array_index(layout->fused, RefitFused, layout->fused->len - 1);
    copy->name = g_strdup(fused->name);
    copy->members = g_memdup2(fused->members, fused->n_members * sizeof(guint));
    copy->rows = g_memdup2(fused->rows, fused->n_rows * sizeof(RefitFusedRows));
}

/* ---- reading a side ---- */

gboolean refit_layout_parse_range(const char *text, guint limit, const char *what,
                                  const char *owner, guint *first_out, guint *last_out,
                                  GError **error) {
    g_auto(GStrv) parts = g_strsplit(text, "-", 2);
    guint n = g_strv_length(parts);
    guint64 ends[2] = {0, 0};

    for (guint i = 0; i < MAX(n, 1); i++) {
        if (n == 0 || !g_ascii_string_to_unsigned(parts[i], 10, 0, G_MAXUINT64, &ends[i], NULL)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "\"%s\" is not a %s; write a number such as 3 or a range such as 0-7", text,
                        what);
            return FALSE;
        }
        if (ends[i] >= limit) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "%s %" G_GUINT64_FORMAT " does not exist: %s has %u; use 0 to %u", what,
                        ends[i], owner, limit, limit - 1);
            return FALSE;
        }
    }
    if (n == 2 && ends[0] > ends[1]) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "range %s runs backwards; list the numbers one by one for that order", text);
        return FALSE;
    }
    *first_out = (guint)ends[0];
    *last_out = (guint)ends[n - 1];
    return TRUE;
}

static gboolean read_range(RefitNode *item, guint limit, const char *what, const char *owner,
                           guint *lo_out, guint *hi_out, GError **error) {
    g_autoptr(GError) local = NULL;
    const char *text;

    if (!refit_node_string(item, &text, error))
        return FALSE;
    if (refit_layout_parse_range(text, limit, what, owner, lo_out, hi_out, &local))
        return TRUE;
    refit_node_error(item, (RefitError)local->code, error, "%s", local->message);
    return FALSE;
}

GArray *refit_layout_read_ranks(RefitNode *node, guint limit, const char *what, const char *owner,
                                GError **error) {
    g_autoptr(GArray) ranks = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autofree guint8 *seen = g_new0(guint8, limit);

    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return NULL;
    for (guint i = 0; i < refit_node_size(node); i++) {
        RefitNode *item = refit_node_at(node, i);
        guint lo, hi;

        if (!read_range(item, limit, what, owner, &lo, &hi, error))
            return NULL;
        for (guint rank = lo; rank <= hi; rank++) {
            if (seen[rank]) {
                refit_node_error(item, REFIT_ERROR_RANK_DUP, error,
                                 "%s %u is listed twice; name each once", what, rank);
                return NULL;
            }
            seen[rank] = 1;
            g_array_append_val(ranks, rank);
        }
    }
    if (ranks->len == 0) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "the list is empty; name at least one %s", what);
        return NULL;
    }
    return g_steal_pointer(&ranks);
}

static GArray *read_side_ranks(RefitNode *node, const char *side, const RefitFramework *framework,
                               guint next_rank, guint n_available, GError **error) {
    RefitNode *gpus = refit_node_get(node, "gpus"), *list = refit_node_get(node, "ranks");
    RefitNode *first = refit_node_get(node, "first_gpu");
    guint64 count = 0, start = next_rank;

    if (gpus != NULL && !refit_node_uint(gpus, 1, G_MAXUINT32, &count, error))
        return NULL;
    if (first != NULL && !refit_node_uint(first, 0, G_MAXUINT32, &start, error))
        return NULL;
    if (list != NULL) {
        if (first != NULL) {
            refit_node_error(first, REFIT_ERROR_INVALID, error,
                             "first_gpu and ranks both say which GPUs to use; keep one");
            return NULL;
        }
        g_autoptr(GArray) ranks =
            refit_layout_read_ranks(list, n_available, "GPU", "the topology", error);
        if (ranks == NULL)
            return NULL;
        if (gpus != NULL && ranks->len != count) {
            refit_node_error(list, REFIT_ERROR_INVALID, error,
                             "%u ranks are listed, but gpus is %" G_GUINT64_FORMAT
                             "; leave gpus out or make them agree",
                             ranks->len, count);
            return NULL;
        }
        return g_steal_pointer(&ranks);
    }
    if (gpus == NULL && framework->count != NULL) {
        guint n = 0;
        if (!framework->count(node, side, &n, error))
            return NULL;
        count = n;
    } else if (gpus == NULL) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "the number of GPUs is missing; write gpus (a count) or ranks (a list)");
        return NULL;
    }
    if (start + count > n_available) {
        refit_node_error(gpus != NULL ? gpus : node, REFIT_ERROR_INVALID, error,
                         "%" G_GUINT64_FORMAT " GPUs from GPU %" G_GUINT64_FORMAT
                         " on need %" G_GUINT64_FORMAT
                         ", but the topology has %u; use fewer, or a topology with more nodes",
                         count, start, start + count, n_available);
        return NULL;
    }
    GArray *ranks = g_array_sized_new(FALSE, FALSE, sizeof(guint), (guint)count);
    for (guint i = 0; i < count; i++) {
        guint rank = (guint)start + i;
        g_array_append_val(ranks, rank);
    }
    return ranks;
}

RefitLayout *refit_layout_parse(RefitNode *node, const char *side, RefitModel *model,
                                guint next_rank, guint n_available, GError **error) {
    const RefitFramework *const *frameworks = refit_frameworks();
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    guint chosen;

    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return NULL;
    for (guint i = 0; frameworks[i] != NULL; i++)
        g_ptr_array_add(names, (gpointer)frameworks[i]->name);
    g_ptr_array_add(names, NULL);
    RefitNode *name = refit_node_require(node, "framework", error);
    if (name == NULL || !refit_node_choice(name, (const char *const *)names->pdata, &chosen, error))
        return NULL;
    g_autoptr(GArray) ranks =
        read_side_ranks(node, side, frameworks[chosen], next_rank, n_available, error);
    if (ranks == NULL)
        return NULL;
    g_autoptr(RefitLayout) layout = refit_layout_new(
        side, frameworks[chosen]->name, model, (const guint *)(void *)ranks->data, ranks->len);
    if (!frameworks[chosen]->generate(layout, node, error) || !refit_node_finish(node, error) ||
        !refit_layout_place_scales(layout, error))
        return NULL;
    return g_steal_pointer(&layout);
}

/* ---- shared by the generators ---- */

gboolean refit_layout_is_expert(const RefitTensor *tensor) {
    switch (tensor->role) {
    case REFIT_ROLE_EXPERT_GATE:
    case REFIT_ROLE_EXPERT_UP:
    case REFIT_ROLE_EXPERT_DOWN:
    case REFIT_ROLE_EXPERT_GATE_UP:
    case REFIT_ROLE_EXPERT_GATE_UP_T:
    case REFIT_ROLE_EXPERT_GATE_UP_HALVES_T:
    case REFIT_ROLE_EXPERT_DOWN_T:
    case REFIT_ROLE_EXPERT_GATE_UP_BIAS:
    case REFIT_ROLE_EXPERT_DOWN_BIAS:
        return TRUE;
    default:
        return FALSE;
    }
}

gboolean refit_layout_is_output(const RefitTensor *tensor) {
    return tensor->layer == REFIT_NO_LAYER &&
           (tensor->role == REFIT_ROLE_LM_HEAD || tensor->role == REFIT_ROLE_NORM ||
            tensor->role == REFIT_ROLE_RESIDUAL_PROJ);
}

RefitCut refit_layout_cut(const RefitTensor *tensor) {
    switch (tensor->role) {
    case REFIT_ROLE_EMBEDDING:
    case REFIT_ROLE_LM_HEAD:
        return REFIT_CUT_VOCABULARY;
    case REFIT_ROLE_ATTENTION_Q:
    case REFIT_ROLE_ATTENTION_Q_NORM:
        return REFIT_CUT_QUERY;
    case REFIT_ROLE_ATTENTION_K:
    case REFIT_ROLE_ATTENTION_K_NORM:
    case REFIT_ROLE_ATTENTION_V:
        return REFIT_CUT_KV;
    case REFIT_ROLE_ATTENTION_O:
    case REFIT_ROLE_DENSE_DOWN:
    case REFIT_ROLE_SHARED_DOWN:
    case REFIT_ROLE_EXPERT_DOWN:
    case REFIT_ROLE_EXPERT_DOWN_T:
    case REFIT_ROLE_SSM_OUT:
        return REFIT_CUT_COLUMNS;
    case REFIT_ROLE_ATTENTION_GATE:
    case REFIT_ROLE_ATTENTION_SINK:
    case REFIT_ROLE_MLA_Q_B:
    case REFIT_ROLE_MLA_KV_B:
    case REFIT_ROLE_SSM_IN:
    case REFIT_ROLE_SSM_CONV:
    case REFIT_ROLE_SSM_HEAD:
    case REFIT_ROLE_DENSE_GATE:
    case REFIT_ROLE_DENSE_UP:
    case REFIT_ROLE_SHARED_GATE:
    case REFIT_ROLE_SHARED_UP:
    case REFIT_ROLE_EXPERT_GATE:
    case REFIT_ROLE_EXPERT_UP:
    case REFIT_ROLE_EXPERT_GATE_UP:
    case REFIT_ROLE_EXPERT_GATE_UP_T:
    case REFIT_ROLE_EXPERT_GATE_UP_HALVES_T:
    case REFIT_ROLE_EXPERT_GATE_UP_BIAS:
    case REFIT_ROLE_MTP_PROJ:
        return REFIT_CUT_ROWS;
    case REFIT_ROLE_NORM:
    case REFIT_ROLE_MLA_Q_A:
    case REFIT_ROLE_MLA_KV_A:
    case REFIT_ROLE_SSM_LOW_RANK:
    case REFIT_ROLE_ROUTER:
    case REFIT_ROLE_SHARED_EXPERT_GATE:
    case REFIT_ROLE_LATENT_PROJ:
    case REFIT_ROLE_EXPERT_DOWN_BIAS:
    case REFIT_ROLE_RESIDUAL_PROJ:
    case REFIT_ROLE_VISION:
    case REFIT_ROLE_OTHER:
    case REFIT_N_ROLES:
    default:
        return REFIT_CUT_NONE;
    }
}

guint refit_layout_cut_dim(const RefitTensor *tensor, RefitCut cut) {
    gboolean stacked = refit_layout_is_expert(tensor) && tensor->expert == REFIT_NO_EXPERT;
    gboolean transposed = tensor->role == REFIT_ROLE_EXPERT_GATE_UP_T ||
                          tensor->role == REFIT_ROLE_EXPERT_GATE_UP_HALVES_T ||
                          tensor->role == REFIT_ROLE_EXPERT_DOWN_T;

    return ((cut == REFIT_CUT_COLUMNS) != transposed ? 1u : 0u) + (stacked ? 1u : 0u);
}

gboolean refit_layout_even(const RefitTensor *tensor, RefitCut cut, const RefitSize *size,
                           RefitPlacement *placement_out, GError **error) {
    guint dim = refit_layout_cut_dim(tensor, cut);
    RefitPlacement placement = {.kind = REFIT_PLACEMENT_REPLICATE};

    /* A tensor without that dim is the bias of a row-parallel layer or a scalar: held whole. */
    if (cut != REFIT_CUT_NONE && dim < tensor->n_dims) {
        if (tensor->shape[dim] % size->value != 0) {
            refit_node_error(size->place, REFIT_ERROR_INVALID, error,
                             "%s %u does not divide dim %u of %s, which is %" G_GUINT64_FORMAT
                             "; use a divisor of it",
                             size->name, size->value, dim, tensor->name, tensor->shape[dim]);
            return FALSE;
        }
        placement = (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD, .dim = dim};
    }
    *placement_out = placement;
    return TRUE;
}

guint refit_layout_even_kind(const RefitPlacement *placement) {
    return placement->kind == REFIT_PLACEMENT_REPLICATE ? 0 : 1 + placement->dim;
}

gboolean refit_layout_add_ordered(const RefitLayout *layout, RefitSharding *sharding,
                                  const guint *order, guint base, const RefitAxis *axes,
                                  guint n_axes, GError **error) {
    RefitPlacement placements[REFIT_MAX_AXES] = {{.kind = REFIT_PLACEMENT_REPLICATE}};
    guint sizes[REFIT_MAX_AXES] = {1}, strides[REFIT_MAX_AXES] = {0}, n = 0, n_ranks = 1;

    for (guint i = 0; i < n_axes; i++) {
        if (axes[i].size == 1)
            continue;
        sizes[n] = axes[i].size;
        strides[n] = axes[i].stride;
        placements[n++] = axes[i].placement;
        n_ranks *= axes[i].size;
    }
    n = MAX(n, 1);
    g_autofree guint *ranks = g_new(guint, n_ranks);
    for (guint i = 0; i < n_ranks; i++) {
        guint position = base, rest = i;

        for (guint axis = n; axis-- > 0; rest /= sizes[axis])
            position += rest % sizes[axis] * strides[axis];
        if (order != NULL)
            position = order[position];
        g_assert(position < layout->n_ranks);
        ranks[i] = layout->ranks[position];
    }
    RefitMesh *mesh = refit_mesh_new(n, sizes, ranks, n_ranks, error);
    return mesh != NULL && refit_sharding_add(sharding, mesh, placements, error);
}

const RefitSharding *refit_layout_share_part(RefitLayout *layout, guint base, const RefitAxis *axes,
                                             guint n_axes, GError **error) {
    g_autoptr(RefitSharding) sharding = refit_sharding_new();

    if (!refit_layout_add_part(layout, sharding, base, axes, n_axes, error))
        return NULL;
    return refit_layout_share(layout, g_steal_pointer(&sharding));
}
