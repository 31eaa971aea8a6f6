/*
 * The family `list`: explicit tensors, for models that no other family describes.
 *
 * Writing thousands of names would be as tedious as it is error-prone, so a name may count with
 * {a-b}: a pattern is split once into literals and ranges, and each name is the pattern with the
 * digits of a mixed-radix counter. Layers and experts are read off the names. Cost: linear in the
 * tensors; one table of names, to refuse repeats and to link scales.
 */

#include "model/tensors/refit-model-private.h"

#include <string.h>

#define MAX_RANGES 4u

/* "layers.{0-3}.up" is literals "layers.", ".up" around the range 0-3. */
typedef struct {
    guint n_ranges;
    guint64 first[MAX_RANGES], last[MAX_RANGES];
    const char *literals[MAX_RANGES + 1]; /* into the pattern, with their lengths */
    gsize lengths[MAX_RANGES + 1];
    guint64 n_names;
} NamePattern;

/* Reads "{a-b}" at *text and moves behind it. */
static gboolean parse_range(const char **text, guint64 *first, guint64 *last) {
    const char *at = *text + 1;
    guint64 *const ends[] = {first, last};
    for (guint i = 0; i < 2; i++) {
        char *end = NULL;
        if (!g_ascii_isdigit(*at)) {
            return FALSE;
        }
        *ends[i] = g_ascii_strtoull(at, &end, 10);
        if (*end != "-}"[i]) {
            return FALSE;
        }
        at = end + 1;
    }
    *text = at;
    return *first <= *last && *last <= REFIT_MODEL_MAX_COUNT;
}

static gboolean parse_pattern(RefitNode *node, NamePattern *pattern, GError **error) {
    const char *text = NULL;
    if (!refit_node_string(node, &text, error)) {
        return FALSE;
    }
    *pattern = (NamePattern){.n_names = 1};
    for (const char *at = text;;) {
        gsize length = strcspn(at, "{}");
        pattern->literals[pattern->n_ranges] = at;
        pattern->lengths[pattern->n_ranges] = length;
        at += length;
        if (*at == '\0') {
            break;
        }
        guint i = pattern->n_ranges;
        if (i == MAX_RANGES || *at != '{' ||
            !parse_range(&at, &pattern->first[i], &pattern->last[i])) {
            refit_node_error(node, REFIT_ERROR_INVALID, error,
                             "\"%s\": braces hold a range such as {0-3}, ascending, up to %u, at "
                             "most %u times",
                             text, REFIT_MODEL_MAX_COUNT, MAX_RANGES);
            return FALSE;
        }
        pattern->n_names *= pattern->last[i] - pattern->first[i] + 1;
        if (pattern->n_names > REFIT_MODEL_MAX_TENSORS) {
            pattern->n_names = REFIT_MODEL_MAX_TENSORS + 1; /* refused when counted */
        }
        pattern->n_ranges++;
    }
    if (*text == '\0') {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "the name of a tensor cannot be empty");
        return FALSE;
    }
    return TRUE;
}

/* Name number `index` of the pattern; the last range counts fastest. */
static void pattern_name(const NamePattern *pattern, guint64 index, GString *name) {
    guint64 values[MAX_RANGES] = {0};
    for (guint i = pattern->n_ranges; i-- > 0;) {
        guint64 size = pattern->last[i] - pattern->first[i] + 1;
        values[i] = pattern->first[i] + index % size;
        index /= size;
    }
    g_string_truncate(name, 0);
    for (guint i = 0; i <= pattern->n_ranges; i++) {
        g_string_append_len(name, pattern->literals[i], (gssize)pattern->lengths[i]);
        if (i < pattern->n_ranges) {
            g_string_append_printf(name, "%" G_GUINT64_FORMAT, values[i]);
        }
    }
}

gint refit_name_number(const char *name, const char *word) {
    gsize length = strlen(word);
    for (const char *at = strstr(name, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at != name && at[-1] != '.') || at[length] != '.' ||
            !g_ascii_isdigit(at[length + 1])) {
            continue;
        }
        char *end = NULL;
        guint64 number = g_ascii_strtoull(at + length + 1, &end, 10);
        if ((*end == '.' || *end == '\0') && number <= REFIT_MODEL_MAX_COUNT) {
            return (gint)number;
        }
    }
    return -1;
}

static gboolean read_shape(RefitNode *node, RefitTensor *tensor, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error)) {
        return FALSE;
    }
    if (refit_node_size(node) > REFIT_MAX_DIMS) {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "%u dims exceed the limit of %u",
                         refit_node_size(node), REFIT_MAX_DIMS);
        return FALSE;
    }
    tensor->n_dims = refit_node_size(node);
    for (guint i = 0; i < tensor->n_dims; i++) {
        if (!refit_node_uint(refit_node_at(node, i), 1, G_MAXUINT64, &tensor->shape[i], error)) {
            return FALSE;
        }
    }
    return TRUE;
}

/* Sizes along the dims of the tensor under `key`, none of them larger than 32 bits. */
static gboolean read_sizes(RefitNode *item, const char *key, guint n_dims, guint64 min,
                           guint32 *sizes, GError **error) {
    RefitNode *node = refit_node_get(item, key);
    if (node == NULL) {
        return TRUE;
    }
    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error)) {
        return FALSE;
    }
    if (refit_node_size(node) != n_dims) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "%u sizes for a tensor of %u dims; write one per dim",
                         refit_node_size(node), n_dims);
        return FALSE;
    }
    for (guint i = 0; i < n_dims; i++) {
        guint64 size = 0;
        if (!refit_node_uint(refit_node_at(node, i), min, G_MAXUINT32, &size, error)) {
            return FALSE;
        }
        sizes[i] = (guint32)size;
    }
    return TRUE;
}

/* `granule:` or `tile:`, which differ only in what a cut is called. */
static gboolean read_granule(RefitNode *item, RefitTensor *tensor, GError **error) {
    RefitNode *tile = refit_node_get(item, "tile");
    if (tile != NULL && refit_node_get(item, "granule") != NULL) {
        refit_node_error(tile, REFIT_ERROR_INVALID, error,
                         "tile and granule both say where cuts may fall; keep one");
        return FALSE;
    }
    tensor->tiled = tile != NULL;
    return read_sizes(item, tile != NULL ? "tile" : "granule", tensor->n_dims, 0, tensor->granule,
                      error);
}

/* `scale: {of: NAMES, block: [...]}`: the names that this tensor scales, one for each of its own.
 */
static gboolean read_scale(RefitNode *item, const NamePattern *pattern, NamePattern *of,
                           RefitTensor *tensor, GError **error) {
    RefitNode *scale = refit_node_get(item, "scale");
    if (scale == NULL) {
        return TRUE;
    }
    if (!refit_node_expect(scale, REFIT_NODE_MAPPING, error)) {
        return FALSE;
    }
    RefitNode *names = refit_node_require(scale, "of", error);
    RefitNode *block = names != NULL ? refit_node_require(scale, "block", error) : NULL;
    if (block == NULL || !parse_pattern(names, of, error) ||
        !read_sizes(scale, "block", tensor->n_dims, 1, tensor->block, error) ||
        !refit_node_finish(scale, error)) {
        return FALSE;
    }
    if (of->n_names != pattern->n_names) {
        refit_node_error(names, REFIT_ERROR_INVALID, error,
                         "%" G_GUINT64_FORMAT " names for %" G_GUINT64_FORMAT
                         " scales; write one per scale",
                         of->n_names, pattern->n_names);
        return FALSE;
    }
    tensor->scale = TRUE;
    return TRUE;
}

static gboolean read_role(RefitNode *item, RefitTensor *tensor, GError **error) {
    RefitNode *node = refit_node_get(item, "role");
    tensor->role = REFIT_ROLE_OTHER;
    return node == NULL || refit_role_read(node, &tensor->role, error);
}

static gboolean read_item(RefitModelBuilder *builder, RefitNode *item, NamePattern *pattern,
                          NamePattern *of, RefitTensor *tensor, GError **error) {
    *tensor = (RefitTensor){.dtype = builder->options.dtype};
    if (!refit_node_expect(item, REFIT_NODE_MAPPING, error)) {
        return FALSE;
    }
    RefitNode *name = refit_node_require(item, "name", error);
    RefitNode *shape = name != NULL ? refit_node_require(item, "shape", error) : NULL;
    RefitNode *dtype = refit_node_get(item, "dtype");
    return shape != NULL && parse_pattern(name, pattern, error) &&
           read_shape(shape, tensor, error) && read_role(item, tensor, error) &&
           (dtype == NULL || refit_node_dtype(dtype, &tensor->dtype, error)) &&
           refit_node_get_bool(item, "mtp", &tensor->mtp, error) &&
           read_granule(item, tensor, error) && read_scale(item, pattern, of, tensor, error) &&
           refit_node_finish(item, error);
}

/* The tensor called name number `index` of the pattern, and that a scale fits it. */
static gboolean find_scaled(RefitModelBuilder *builder, const NamePattern *of, guint64 index,
                            GHashTable *seen, RefitTensor *scale, GError **error) {
    pattern_name(of, index, builder->prefix);
    guint number = GPOINTER_TO_UINT(g_hash_table_lookup(seen, builder->prefix->str));
    const RefitTensor *tensor =
        number > 0 ? &g_array_index(builder->tensors, RefitTensor, number - 1) : NULL;
    if (tensor == NULL || tensor->scale || tensor->mtp != scale->mtp) {
        refit_node_error(
            builder->place, REFIT_ERROR_INVALID, error,
            "scales %s, which is not a tensor listed before it, of the same layers and "
            "no scale itself",
            builder->prefix->str);
        return FALSE;
    }
    gboolean fits = tensor->n_dims >= scale->n_dims;
    for (guint dim = 0; fits && dim < scale->n_dims; dim++) {
        fits = scale->shape[dim] == (tensor->shape[dim] - 1) / scale->block[dim] + 1;
    }
    if (!fits) {
        refit_node_error(builder->place, REFIT_ERROR_INVALID, error,
                         "a scale of %s has one element per block in each dim; correct its shape "
                         "or the block",
                         tensor->name);
        return FALSE;
    }
    scale->scale_of = number - 1;
    return TRUE;
}

static gboolean add_item(RefitModelBuilder *builder, const NamePattern *pattern,
                         const NamePattern *of, RefitTensor *tensor, GHashTable *seen,
                         GError **error) {
    for (guint64 i = 0; i < pattern->n_names; i++) {
        gboolean kept = !tensor->mtp || builder->options.mtp;
        if (tensor->scale && kept && !find_scaled(builder, of, i, seen, tensor, error)) {
            return FALSE;
        }
        pattern_name(pattern, i, builder->prefix);
        tensor->name = builder->prefix->str;
        tensor->layer = refit_name_number(tensor->name, "layers");
        tensor->expert = refit_name_number(tensor->name, "experts");
        guint number = kept ? builder->tensors->len + 1 : 0;
        if (!g_hash_table_insert(seen, g_strdup(tensor->name), GUINT_TO_POINTER(number))) {
            refit_node_error(builder->place, REFIT_ERROR_INVALID, error,
                             "tensor %s is already in the list; names must be unique",
                             tensor->name);
            return FALSE;
        }
        if (!refit_model_builder_add(builder, tensor, error)) {
            return FALSE;
        }
        if (!tensor->mtp) {
            builder->n_layers = MAX(builder->n_layers, (guint)(tensor->layer + 1));
        }
        builder->n_experts = MAX(builder->n_experts, (guint)(tensor->expert + 1));
    }
    return TRUE;
}

static const RefitFactUse list_uses[] = {
    {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE},
    {REFIT_FACT_NUM_ATTENTION_HEADS, FALSE},
    {REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE},
    {REFIT_FACT_N_GROUP, FALSE},
};

/* Heads cannot be seen in shapes; a list may state them. */
static gboolean read_list_config(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    if (refit_node_get(root, "config") == NULL) {
        return TRUE;
    }
    RefitNode *config =
        refit_family_read_config(builder, root, list_uses, G_N_ELEMENTS(list_uses), facts, error);
    builder->n_expert_groups = config != NULL ? (guint)facts[REFIT_FACT_N_GROUP] : 0;
    return config != NULL && refit_family_derive_kv_heads(builder, config, facts, error);
}

static gboolean expand_list(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    RefitNode *tensors = refit_node_require(root, "tensors", error);
    if (tensors == NULL || !refit_node_expect(tensors, REFIT_NODE_SEQUENCE, error) ||
        !read_list_config(builder, root, error)) {
        return FALSE;
    }
    if (refit_node_size(tensors) == 0) {
        refit_node_error(tensors, REFIT_ERROR_INVALID, error, "a model has at least one tensor");
        return FALSE;
    }
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (guint i = 0; i < refit_node_size(tensors); i++) {
        NamePattern pattern, of;
        RefitTensor tensor;
        builder->place = refit_node_at(tensors, i);
        if (!read_item(builder, builder->place, &pattern, &of, &tensor, error)) {
            return FALSE;
        }
        gboolean done = builder->counting
                            ? refit_model_builder_count(builder, pattern.n_names, error)
                            : add_item(builder, &pattern, &of, &tensor, seen, error);
        if (!done) {
            return FALSE;
        }
    }
    g_string_truncate(builder->prefix, 0);
    return TRUE;
}

const RefitModelFamily refit_model_family_list = {
    "list", "explicit tensors; names may count with {a-b}", expand_list};
