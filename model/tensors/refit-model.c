/*
 * The list of tensors of a model.
 *
 * Planning starts from every logical tensor with its global shape, but nobody should have to ship
 * listings of tens of thousands of names: they follow from a dozen facts. A family (see
 * refit-model-private.h) emits blocks of templates; this file turns templates into tensors, checks
 * sizes and published totals, and owns the result. Expansion runs twice, once to count and once to
 * build, so that an absurd file is refused before memory is spent and the array is reserved in one
 * piece. Names live in one string chunk. Cost: linear in the tensors, one copy of each name.
 */

#include "model/tensors/refit-model-private.h"

#include <string.h>

struct _RefitModel {
    gatomicrefcount references;
    char *name;
    const char *form;   /* static; NULL: as given */
    const char *family; /* static; NULL: none */
    guint n_tensors;
    RefitTensor *tensors;
    GStringChunk *names;
    guint64 parameters, bytes;
    guint n_layers, n_experts, n_expert_groups, n_heads, n_kv_heads;
    gboolean tied_embeddings;
};

static const RefitModelFamily *const families[] = {
#define X(name) &refit_model_family_##name,
    REFIT_MODEL_FAMILY_MAP(X)
#undef X
};

static const char *const family_names[] = {
#define X(name) #name,
    REFIT_MODEL_FAMILY_MAP(X)
#undef X
        NULL,
};

const char *const *refit_model_families(void) {
    return family_names;
}

const char *refit_model_family_name(const char *text) {
    gsize length = strcspn(text, ",");
    for (guint i = 0; family_names[i] != NULL; i++) {
        if (strlen(family_names[i]) == length && strncmp(family_names[i], text, length) == 0) {
            return family_names[i];
        }
    }
    return NULL;
}

static const char *const role_names[] = {
#define X(suffix, name) name,
    REFIT_ROLE_MAP(X)
#undef X
        NULL,
};

const char *refit_role_name(RefitRole role) {
    g_return_val_if_fail((guint)role < REFIT_N_ROLES, NULL);
    return role_names[role];
}

gboolean refit_role_read(RefitNode *node, RefitRole *role_out, GError **error) {
    guint role = 0;
    if (!refit_node_choice(node, role_names, &role, error)) {
        return FALSE;
    }
    *role_out = (RefitRole)role;
    return TRUE;
}

/* ---- facts ---- */

typedef enum { KIND_COUNT, KIND_FLAG } FactKind;

typedef struct {
    const char *key;
    FactKind kind;
    guint64 min, max;
} FactKey;

static const FactKey fact_keys[] = {[REFIT_FACT_NONE] = {0},
#define X(suffix, key, kind, min, max) [REFIT_FACT_##suffix] = {key, KIND_##kind, min, max},
                                    REFIT_FACT_MAP(X)
#undef X
};

static gboolean read_fact(RefitNode *config, RefitFactUse use, guint64 *value, GError **error) {
    const FactKey *key = &fact_keys[use.fact];
    if (use.required && refit_node_require(config, key->key, error) == NULL) {
        return FALSE;
    }
    RefitNode *node = refit_node_get(config, key->key);
    if (node == NULL) {
        return TRUE;
    }
    if (key->kind == KIND_COUNT) {
        return refit_node_uint(node, key->min, key->max, value, error);
    }
    gboolean flag = FALSE;
    if (!refit_node_bool(node, &flag, error)) {
        return FALSE;
    }
    *value = flag ? 1 : 0;
    return TRUE;
}

gboolean refit_facts_read(RefitNode *config, const RefitFactUse *uses, guint n_uses, guint64 *facts,
                          GError **error) {
    for (guint i = 0; i < REFIT_N_FACTS; i++) {
        facts[i] = 0;
    }
    if (!refit_node_expect(config, REFIT_NODE_MAPPING, error)) {
        return FALSE;
    }
    for (guint i = 0; i < n_uses; i++) {
        refit_node_get(config, fact_keys[uses[i].fact].key);
    }
    if (!refit_node_finish(config, error)) {
        return FALSE;
    }
    for (guint i = 0; i < n_uses; i++) {
        if (!read_fact(config, uses[i], &facts[uses[i].fact], error)) {
            return FALSE;
        }
    }
    return TRUE;
}

void refit_facts_error(RefitNode *config, RefitFact fact, GError **error, const char *format, ...) {
    RefitNode *node = refit_node_get(config, fact_keys[fact].key);
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *message = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    refit_node_error(node != NULL ? node : config, REFIT_ERROR_INVALID, error, "%s", message);
}

/* ---- building ---- */

void refit_model_builder_enter(RefitModelBuilder *builder, gint layer, gboolean mtp,
                               const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    g_string_vprintf(builder->prefix, format, arguments);
    va_end(arguments);
    builder->layer = layer;
    builder->mtp = mtp;
}

void refit_model_builder_leave(RefitModelBuilder *builder) {
    g_string_truncate(builder->prefix, 0);
    builder->layer = REFIT_NO_LAYER;
    builder->mtp = FALSE;
}

gboolean refit_model_builder_count(RefitModelBuilder *builder, guint64 n, GError **error) {
    if (n > REFIT_MODEL_MAX_TENSORS - builder->n_counted) {
        refit_node_error(builder->place, REFIT_ERROR_INVALID, error,
                         "the model expands to more than %u tensors; reduce layers or experts",
                         REFIT_MODEL_MAX_TENSORS);
        return FALSE;
    }
    builder->n_counted += (guint)n;
    return TRUE;
}

/* Product of the extents, and its bytes. */
static gboolean set_sizes(RefitTensor *tensor, GError **error) {
    guint64 elements = 1;
    for (guint i = 0; i < tensor->n_dims; i++) {
        if (!refit_checked_mul(elements, tensor->shape[i], "elements", &elements, error)) {
            return FALSE;
        }
    }
    tensor->elements = elements;
    return refit_dtype_bytes(tensor->dtype, elements, &tensor->bytes, error);
}

/* Parameters are those of the plain form: packed numbers count each, scales and buffers do not. */
static gboolean count_parameters(RefitModelBuilder *builder, RefitTensor *tensor, GError **error) {
    tensor->parameters = tensor->scale || tensor->role == REFIT_ROLE_BUFFER ? 0 : tensor->elements;
    if (!refit_checked_add(builder->parameters_all, tensor->parameters, "parameters",
                           &builder->parameters_all, error)) {
        return FALSE;
    }
    /* Parts of a sum that fits. */
    builder->parameters_main += tensor->mtp ? 0 : tensor->parameters;
    builder->parameters += tensor->mtp && !builder->options.mtp ? 0 : tensor->parameters;
    return TRUE;
}

static gboolean append(RefitModelBuilder *builder, const RefitTensor *tensor, GError **error) {
    RefitTensor copy = *tensor;
    if (!set_sizes(&copy, error) ||
        !refit_checked_add(builder->bytes, copy.bytes, "bytes of the model", &builder->bytes,
                           error)) {
        return FALSE;
    }
    copy.name = g_string_chunk_insert(builder->names, tensor->name);
    g_array_append_val(builder->tensors, copy);
    return TRUE;
}

static gboolean append_quantized(RefitModelBuilder *builder, const RefitTensor *tensor,
                                 GError **error) {
    RefitTensor weight, scale;
    if (!refit_quantization_apply(&builder->quantization, tensor, &weight, &scale, error)) {
        return FALSE;
    }
    scale.scale_of = builder->tensors->len;
    scale.parameters = 0;
    gboolean added = append(builder, &weight, error) && append(builder, &scale, error);
    g_free(weight.name);
    g_free(scale.name);
    return added;
}

static gboolean add(RefitModelBuilder *builder, const RefitTensor *tensor, GError **error) {
    RefitTensor plain = *tensor;
    if (!set_sizes(&plain, error) || !count_parameters(builder, &plain, error)) {
        return FALSE;
    }
    if (plain.mtp && !builder->options.mtp) {
        return TRUE;
    }
    return refit_quantization_covers(&builder->quantization, &plain)
               ? append_quantized(builder, &plain, error)
               : append(builder, &plain, error);
}

gboolean refit_model_builder_add(RefitModelBuilder *builder, const RefitTensor *tensor,
                                 GError **error) {
    g_autoptr(GError) cause = NULL;
    if (add(builder, tensor, &cause)) {
        return TRUE;
    }
    refit_node_error(builder->place, (RefitError)cause->code, error, "tensor %s: %s", tensor->name,
                     cause->message);
    return FALSE;
}

static gboolean is_emitted(const RefitTemplate *template, const guint64 *facts) {
    return template->when == REFIT_FACT_NONE || facts[template->when] != 0;
}

static guint64 count_emitted(const RefitBlock *block, const guint64 *facts) {
    guint64 n = 0;
    for (guint i = 0; i < block->n; i++) {
        n += is_emitted(&block->templates[i], facts) ? 1 : 0;
    }
    return n;
}

static gboolean add_template(RefitModelBuilder *builder, const RefitTemplate *template,
                             const guint64 *facts, GError **error) {
    gsize prefix_length = builder->prefix->len;
    g_string_append(builder->prefix, template->suffix);
    RefitTensor tensor = {
        .name = builder->prefix->str,
        .dtype = template->keeps_f32 ? REFIT_DTYPE_F32 : builder->options.dtype,
        .role = template->role,
        .layer = builder->layer,
        .expert = builder->expert,
        .mtp = builder->mtp,
    };
    while (tensor.n_dims < REFIT_TEMPLATE_MAX_DIMS &&
           template->dims[tensor.n_dims] != REFIT_FACT_NONE) {
        tensor.shape[tensor.n_dims] = facts[template->dims[tensor.n_dims]];
        tensor.n_dims++;
    }
    for (guint i = 0; template->packing != NULL && i < template->packing->n; i++) {
        guint64 extent = facts[template->packing->segments[i].extent];
        tensor.packed_dim = template->packing->dim;
        if (extent > 0) {
            tensor.packed[tensor.n_packed].extent = extent;
            tensor.packed[tensor.n_packed++].units =
                (guint)facts[template->packing->segments[i].units];
        }
    }
    gboolean added = refit_model_builder_add(builder, &tensor, error);
    g_string_truncate(builder->prefix, prefix_length);
    return added;
}

gboolean refit_model_builder_emit(RefitModelBuilder *builder, const RefitBlock *block,
                                  const guint64 *facts, GError **error) {
    if (builder->counting) {
        return refit_model_builder_count(builder, count_emitted(block, facts), error);
    }
    for (guint i = 0; i < block->n; i++) {
        if (is_emitted(&block->templates[i], facts) &&
            !add_template(builder, &block->templates[i], facts, error)) {
            return FALSE;
        }
    }
    return TRUE;
}

gboolean refit_model_builder_emit_experts(RefitModelBuilder *builder, const RefitBlock *block,
                                          const char *infix, guint n_experts, const guint64 *facts,
                                          GError **error) {
    if (builder->counting) {
        return refit_model_builder_count(builder, count_emitted(block, facts) * n_experts, error);
    }
    gsize prefix_length = builder->prefix->len;
    gboolean emitted = TRUE;
    for (guint expert = 0; expert < n_experts && emitted; expert++) {
        g_string_append_printf(builder->prefix, "%s%u.", infix, expert);
        builder->expert = (gint)expert;
        emitted = refit_model_builder_emit(builder, block, facts, error);
        g_string_truncate(builder->prefix, prefix_length);
    }
    builder->expert = REFIT_NO_EXPERT;
    return emitted;
}

static void builder_init(RefitModelBuilder *builder, const RefitModelOptions *options,
                         RefitNode *place) {
    *builder = (RefitModelBuilder){
        .options = *options,
        .place = place,
        .counting = TRUE,
        .names = g_string_chunk_new(1 << 16),
        .prefix = g_string_new(NULL),
        .layer = REFIT_NO_LAYER,
        .expert = REFIT_NO_EXPERT,
    };
}

/* Leaves nothing that the model has taken over. */
static void builder_clear(RefitModelBuilder *builder) {
    g_clear_pointer(&builder->tensors, g_array_unref);
    g_clear_pointer(&builder->names, g_string_chunk_free);
    g_string_free(builder->prefix, TRUE);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RefitModelBuilder, builder_clear)

static gboolean expand(RefitModelBuilder *builder, const RefitModelFamily *family, RefitNode *root,
                       GError **error) {
    if (!family->expand(builder, root, error)) {
        return FALSE;
    }
    builder->counting = FALSE;
    builder->tensors =
        g_array_sized_new(FALSE, FALSE, sizeof(RefitTensor), MAX(builder->n_counted, 1));
    return family->expand(builder, root, error);
}

/* ---- the model file ---- */

static gboolean check_stated(RefitNode *root, const char *key, const char *with, guint64 expanded,
                             GError **error) {
    RefitNode *node = refit_node_get(root, key);
    guint64 stated = 0;
    if (node == NULL) {
        return TRUE;
    }
    if (!refit_node_uint(node, 1, G_MAXUINT64, &stated, error)) {
        return FALSE;
    }
    if (stated != expanded) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "states %" G_GUINT64_FORMAT
                         " parameters, but the model has %" G_GUINT64_FORMAT
                         " %s MTP layers; correct the count or the tensors",
                         stated, expanded, with);
        return FALSE;
    }
    return TRUE;
}

static gboolean read_texts(RefitNode *root, char **name_out, GError **error) {
    g_autofree char *source = NULL;
    g_autofree char *note = NULL;
    const char *name = NULL;
    RefitNode *node = refit_node_require(root, "name", error);
    if (node == NULL || !refit_node_string(node, &name, error) ||
        !refit_node_get_string(root, "source", &source, error) ||
        !refit_node_get_string(root, "note", &note, error)) {
        return FALSE;
    }
    if (*name == '\0') {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "the name of a model cannot be empty");
        return FALSE;
    }
    *name_out = g_strdup(name);
    return TRUE;
}

static RefitModel *model_new(RefitModelBuilder *builder, char *name) {
    RefitModel *model = g_new0(RefitModel, 1);
    g_atomic_ref_count_init(&model->references);
    model->name = name;
    model->n_tensors = builder->tensors->len;
    model->tensors =
        (RefitTensor *)(gpointer)g_array_free(g_steal_pointer(&builder->tensors), FALSE);
    model->names = g_steal_pointer(&builder->names);
    model->parameters = builder->parameters;
    model->bytes = builder->bytes;
    model->n_layers = builder->n_layers;
    model->n_experts = builder->n_experts;
    model->n_expert_groups = builder->n_expert_groups;
    model->n_heads = builder->n_heads;
    model->n_kv_heads = builder->n_kv_heads;
    model->tied_embeddings = builder->tied_embeddings;
    return model;
}

RefitModel *refit_model_parse(RefitNode *root, const RefitModelOptions *options, GError **error) {
    g_return_val_if_fail(root != NULL && options != NULL, NULL);
    g_return_val_if_fail((guint)options->dtype < REFIT_N_DTYPES, NULL);
    g_autofree char *name = NULL;
    guint family = 0;
    if (!refit_node_check_schema(root, "refit.model/1", error) || !read_texts(root, &name, error)) {
        return NULL;
    }
    RefitNode *family_node = refit_node_require(root, "family", error);
    if (family_node == NULL || !refit_node_choice(family_node, family_names, &family, error)) {
        return NULL;
    }
    g_auto(RefitModelBuilder) builder;
    builder_init(&builder, options, root);
    if (!refit_quantization_read(root, options->form, &builder.quantization, error) ||
        !expand(&builder, families[family], root, error) ||
        !check_stated(root, "parameters", "with", builder.parameters_all, error) ||
        !check_stated(root, "parameters_main", "without", builder.parameters_main, error) ||
        !refit_node_finish(root, error)) {
        return NULL;
    }
    RefitModel *model = model_new(&builder, g_steal_pointer(&name));
    model->form = refit_model_form_name(options);
    model->family = family_names[family];
    return model;
}

/* ---- models of given tensors ---- */

RefitModel *refit_model_new_counted(const char *name, const RefitTensor *tensors, guint n_tensors,
                                    const RefitModelCounts *counts, GError **error) {
    g_return_val_if_fail(name != NULL && (tensors != NULL || n_tensors == 0), NULL);
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
    g_auto(RefitModelBuilder) builder;
    builder_init(&builder, &options, NULL);
    builder.tensors = g_array_sized_new(FALSE, FALSE, sizeof(RefitTensor), MAX(n_tensors, 1));
    for (guint i = 0; i < n_tensors; i++) {
        const RefitTensor *tensor = &tensors[i];
        if (!g_hash_table_add(seen, tensor->name)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_NAME_COLLISION,
                        "tensor %s is in the list twice; names must be unique", tensor->name);
            return NULL;
        }
        if (tensor->scale && (tensor->scale_of >= n_tensors || tensors[tensor->scale_of].scale)) {
            g_set_error(
                error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "tensor %s: scales tensor %u of %u, which must exist and be no scale itself",
                tensor->name, tensor->scale_of, n_tensors);
            return NULL;
        }
        if (!add(&builder, tensor, error)) {
            g_prefix_error(error, "tensor %s: ", tensor->name);
            return NULL;
        }
    }
    builder.n_layers = counts->n_layers;
    builder.n_experts = counts->n_experts;
    builder.n_expert_groups = counts->n_expert_groups;
    builder.n_heads = counts->n_heads;
    builder.n_kv_heads = counts->n_kv_heads;
    builder.tied_embeddings = counts->tied_embeddings;
    RefitModel *model = model_new(&builder, g_strdup(name));
    model->family = counts->family;
    return model;
}

RefitModel *refit_model_new_like(const RefitModel *like, const RefitTensor *tensors,
                                 guint n_tensors, GError **error) {
    const RefitModelCounts counts = {
        .family = like->family,
        .n_layers = like->n_layers,
        .n_experts = like->n_experts,
        .n_expert_groups = like->n_expert_groups,
        .n_heads = like->n_heads,
        .n_kv_heads = like->n_kv_heads,
        .tied_embeddings = like->tied_embeddings,
    };
    RefitModel *model = refit_model_new_counted(like->name, tensors, n_tensors, &counts, error);
    if (model != NULL) {
        model->form = like->form;
    }
    return model;
}

RefitModel *refit_model_new(const char *name, const RefitTensor *tensors, guint n_tensors,
                            GError **error) {
    RefitModelCounts counts = {0};
    for (guint i = 0; i < n_tensors; i++) {
        if (!tensors[i].mtp) {
            counts.n_layers = MAX(counts.n_layers, (guint)(tensors[i].layer + 1));
        }
        counts.n_experts = MAX(counts.n_experts, (guint)(tensors[i].expert + 1));
    }
    return refit_model_new_counted(name, tensors, n_tensors, &counts, error);
}

/* ---- reading a model ---- */

RefitModel *refit_model_ref(RefitModel *model) {
    g_return_val_if_fail(model != NULL, NULL);
    g_atomic_ref_count_inc(&model->references);
    return model;
}

void refit_model_unref(RefitModel *model) {
    if (model == NULL || !g_atomic_ref_count_dec(&model->references)) {
        return;
    }
    g_free(model->name);
    g_free(model->tensors);
    g_string_chunk_free(model->names);
    g_free(model);
}

const char *refit_model_name(const RefitModel *model) {
    return model->name;
}

const char *refit_model_family(const RefitModel *model) {
    return model->family;
}

guint refit_model_n_unknown(const RefitModel *model, guint64 *bytes_out) {
    guint n = 0;
    *bytes_out = 0;
    for (guint i = 0; i < model->n_tensors; i++) {
        if (model->tensors[i].unknown) {
            n++;
            *bytes_out += model->tensors[i].bytes; /* part of a sum that fits */
        }
    }
    return n;
}

const char *refit_model_form(const RefitModel *model) {
    return model->form;
}

guint refit_model_n_tensors(const RefitModel *model) {
    return model->n_tensors;
}

const RefitTensor *refit_model_tensor(const RefitModel *model, guint index) {
    g_return_val_if_fail(index < model->n_tensors, NULL);
    return &model->tensors[index];
}

guint64 refit_model_parameters(const RefitModel *model) {
    return model->parameters;
}

guint64 refit_model_bytes(const RefitModel *model) {
    return model->bytes;
}

guint refit_model_n_layers(const RefitModel *model) {
    return model->n_layers;
}

guint refit_model_n_experts(const RefitModel *model) {
    return model->n_experts;
}

guint refit_model_n_expert_groups(const RefitModel *model) {
    return model->n_expert_groups;
}

guint refit_model_n_heads(const RefitModel *model) {
    return model->n_heads;
}

guint refit_model_n_kv_heads(const RefitModel *model) {
    return model->n_kv_heads;
}

gboolean refit_model_tied_embeddings(const RefitModel *model) {
    return model->tied_embeddings;
}
