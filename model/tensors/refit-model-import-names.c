/*
 * What a tensor is for, from its name and its shape.
 *
 * The families already know every name: so a small model of each is expanded, and its names, with
 * numbers taken out, are the table. A name can mean different things in different families, and in
 * layers of different kinds (the output projection of attention and of a delta net); therefore the
 * family is the one that knows most names of the file, and the kind of a layer the one that has
 * most of the layer's names. Extents of a small model are equal only where the family says so, and
 * what is equal there must be equal in the file: a name whose shape disagrees, a name of another
 * family, and a packed projection whose segments no shape tells, are not known, and say so. A
 * config.json beside the headers gives a full model, whose names come first. Cost: one look-up per
 * tensor, or a few for names that other programs wrap, and one per dim.
 */

#include "model/tensors/refit-model-import-private.h"

#include <string.h>

#define MAX_KINDS 8 /* layers of a small model */

#define SMALL_QWEN3_5                                                                              \
    "num_attention_heads: 6, num_key_value_heads: 2, head_dim: 17, attention_bias: true, "         \
    "attn_output_gate: true, full_attention_interval: 2, linear_num_key_heads: 3, "                \
    "linear_num_value_heads: 9, linear_key_head_dim: 13, linear_value_head_dim: 19, "              \
    "linear_conv_kernel_dim: 4, moe_intermediate_size: 401, num_experts: 5, "                      \
    "shared_expert_intermediate_size: 409"

/*
 * Small models with a layer of each kind and every optional tensor. Tables of one family add up and
 * have the same numbers. Two extents are the same number only where the family makes them one:
 * heads, kernels and the like are chosen so that no product of them meets another.
 */
static const char *const small_models[] = {
    "dense, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 1, "
    "num_attention_heads: 6, num_key_value_heads: 2, head_dim: 17, intermediate_size: 307, "
    "attention_bias: true, qk_norm: true}",
    "qwen3_moe, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 1, "
    "num_attention_heads: 6, num_key_value_heads: 2, head_dim: 17, attention_bias: true, "
    "num_experts: 5, moe_intermediate_size: 401}",
    "deepseek_v3, config: {rotary_inv_freq: 2, hidden_size: 101, vocab_size: 211, "
    "num_hidden_layers: 2, num_nextn_predict_layers: 1, num_attention_heads: 6, q_lora_rank: 23, "
    "kv_lora_rank: 29, qk_nope_head_dim: 31, qk_rope_head_dim: 37, v_head_dim: 41, "
    "intermediate_size: 307, moe_intermediate_size: 401, n_routed_experts: 5, "
    "n_shared_experts: 3, first_k_dense_replace: 1}",
    "deepseek_v3, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 1, "
    "num_attention_heads: 6, kv_lora_rank: 29, qk_nope_head_dim: 31, qk_rope_head_dim: 37, "
    "v_head_dim: 41, intermediate_size: 307, moe_intermediate_size: 401, n_routed_experts: 5, "
    "n_shared_experts: 3, first_k_dense_replace: 0}",
    "glm4_moe, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 2, "
    "num_nextn_predict_layers: 1, num_attention_heads: 6, num_key_value_heads: 2, head_dim: 17, "
    "attention_bias: true, qk_norm: true, intermediate_size: 307, moe_intermediate_size: 401, "
    "n_routed_experts: 5, n_shared_experts: 3, first_k_dense_replace: 1}",
    "mixtral, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 1, "
    "num_attention_heads: 6, num_key_value_heads: 2, head_dim: 17, qk_norm: true, "
    "intermediate_size: 307, num_local_experts: 5, use_routing_bias: true}",
    "qwen3_5_moe, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 2, "
    "mtp_num_hidden_layers: 1, mtp_stacked_experts: false, " SMALL_QWEN3_5 ", vision_config: "
    "{hidden_size: 103, intermediate_size: 109, depth: 1, in_channels: 3, patch_size: 7, "
    "temporal_patch_size: 11, spatial_merge_size: 2, num_position_embeddings: 97, "
    "out_hidden_size: 101}}",
    "qwen3_5_moe, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 2, "
    "mtp_num_hidden_layers: 1, mtp_stacked_experts: true, " SMALL_QWEN3_5 "}",
    "gpt_oss, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 1, "
    "num_attention_heads: 6, num_key_value_heads: 2, head_dim: 17, attention_bias: true, "
    "intermediate_size: 307, num_local_experts: 5}",
    "nemotron_h, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 4, "
    "hybrid_override_pattern: \"M*E-\", intermediate_size: 307, num_nextn_predict_layers: 1, "
    "mtp_hybrid_override_pattern: \"*E\", num_attention_heads: 6, num_key_value_heads: 2, "
    "head_dim: 17, mamba_num_heads: 9, mamba_head_dim: 19, n_groups: 3, ssm_state_size: 13, "
    "conv_kernel: 4, use_conv_bias: true, moe_intermediate_size: 401, moe_latent_size: 43, "
    "moe_shared_expert_intermediate_size: 409, n_routed_experts: 5, n_shared_experts: 1}",
    "kimi_k3, config: {hidden_size: 101, vocab_size: 211, num_hidden_layers: 4, "
    "num_attention_heads: 6, q_lora_rank: 23, kv_lora_rank: 29, qk_nope_head_dim: 31, "
    "qk_rope_head_dim: 37, v_head_dim: 41, mla_use_output_gate: true, intermediate_size: 307, "
    "moe_intermediate_size: 401, routed_expert_hidden_size: 43, num_experts: 5, "
    "num_shared_experts: 3, first_k_dense_replace: 2, linear_attn_config: {num_heads: 9, "
    "head_dim: 19, short_conv_kernel_size: 4, a_log_size: 16, kda_layers: [1, 3]}, vision_config: "
    "{vt_hidden_size: 103, vt_intermediate_size: 109, vt_num_hidden_layers: 1, "
    "qkv_hidden_size: 107, patch_size: 7, init_pos_emb_height: 53, init_pos_emb_width: 59, "
    "merge_size: 2, text_hidden_size: 101}}",
};

/* Beginnings that programs put before a family's names, or leave out. */
static const struct {
    const char *theirs, *ours;
} wrappings[] = {
    {"language_model.", ""},
    {"model.language_model.", "model."},
    {"", "model."},
};

/* Endings of quantized weights, and the name of the weight that they stand for. */
static const struct {
    const char *theirs, *ours;
} packed_endings[] = {
    {"weight_packed", "weight"},
    {"_blocks", ""},
};

/* One meaning of a name. */
typedef struct {
    guint family;
    const RefitTensor *tensor; /* of a small model: role, extents, and the layer, which is a kind */
    gboolean after_main;       /* layers are counted from the last main layer on */
} Meaning;

typedef struct {
    GPtrArray *models;    /* the small ones */
    GHashTable *meanings; /* name without numbers to GArray of Meaning */
    GHashTable *lists[2]; /* the same of the file, with three dims or not, to List */
    const char *families[G_N_ELEMENTS(small_models)];
    guint n_families;
} Names;

/* What is known of a name of the file, as it is and unwrapped. */
typedef struct {
    GPtrArray *meanings; /* of borrowed Meaning */
    gboolean stacked;    /* all experts in one tensor, by a name for one */
} List;

static void list_free(gpointer data) {
    List *list = data;
    g_ptr_array_unref(list->meanings);
    g_free(list);
}

typedef struct {
    const List *list;
    gint number; /* of the layer in the name, or -1 */
} Found;

static void names_free(Names *names) {
    g_ptr_array_unref(names->models);
    g_hash_table_unref(names->meanings);
    g_hash_table_unref(names->lists[0]);
    g_hash_table_unref(names->lists[1]);
    g_free(names);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Names, names_free)

/* Experts and other parts that only a number tells apart are alike: one stands for all of them. */
static gboolean is_known(const GArray *list, const Meaning *meaning) {
    for (guint i = 0; i < list->len; i++) {
        const Meaning *other = &g_array_index(list, Meaning, i);
        if (other->family == meaning->family && other->tensor->layer == meaning->tensor->layer &&
            other->tensor->role == meaning->tensor->role &&
            other->tensor->mtp == meaning->tensor->mtp &&
            other->after_main == meaning->after_main &&
            memcmp(other->tensor->shape, meaning->tensor->shape, sizeof other->tensor->shape) ==
                0) {
            return TRUE;
        }
    }
    return FALSE;
}

static void add_names(Names *names, guint family, const RefitModel *model) {
    g_autoptr(GString) text = g_string_new(NULL);
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        refit_name_take_numbers(tensor->name, '#', text);
        GArray *list = g_hash_table_lookup(names->meanings, text->str);
        if (list == NULL) {
            list = g_array_new(FALSE, FALSE, sizeof(Meaning));
            g_hash_table_insert(names->meanings, g_strdup(text->str), list);
        }
        g_assert(tensor->layer < MAX_KINDS);
        const Meaning meaning = {
            .family = family,
            .tensor = tensor,
            .after_main = tensor->layer != REFIT_NO_LAYER &&
                          tensor->layer != refit_name_number(tensor->name, "layers"),
        };
        if (!is_known(list, &meaning)) {
            g_array_append_val(list, meaning);
        }
    }
}

/* The table of all families; NULL only if a small model above is wrong. */
static Names *names_new(GError **error) {
    const RefitModelOptions options = {
        .dtype = REFIT_DTYPE_BF16, .mtp = TRUE, .form = REFIT_FORM_NATIVE};
    g_autoptr(Names) names = g_new0(Names, 1);
    names->models = g_ptr_array_new_with_free_func((GDestroyNotify)refit_model_unref);
    names->meanings =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_array_unref);
    for (guint i = 0; i < G_N_ELEMENTS(names->lists); i++) {
        names->lists[i] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, list_free);
    }
    for (guint i = 0; i < G_N_ELEMENTS(small_models); i++) {
        g_autofree char *text = g_strconcat(
            "{schema: refit.model/1, name: names, family: ", small_models[i], "}", NULL);
        g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "names", error);
        RefitModel *model =
            doc != NULL ? refit_model_parse(refit_doc_root(doc), &options, error) : NULL;
        if (model == NULL) {
            return NULL;
        }
        g_ptr_array_add(names->models, model);
        gsize length = strcspn(small_models[i], ",");
        const char *last = names->n_families > 0 ? names->families[names->n_families - 1] : "";
        if (strncmp(last, small_models[i], length + 1) != 0) {
            names->families[names->n_families++] = small_models[i];
        }
        add_names(names, names->n_families - 1, model);
    }
    return g_steal_pointer(&names);
}

/* ---- looking up ---- */

static void add_meanings(List *list, const Names *names, const char *text) {
    GArray *known = g_hash_table_lookup(names->meanings, text);
    for (guint i = 0; known != NULL && i < known->len; i++) {
        g_ptr_array_add(list->meanings, &g_array_index(known, Meaning, i));
    }
}

static void add_wrapped(List *list, const Names *names, const char *text) {
    add_meanings(list, names, text);
    for (guint i = 0; i < G_N_ELEMENTS(wrappings); i++) {
        if (g_str_has_prefix(text, wrappings[i].theirs)) {
            g_autofree char *ours =
                g_strconcat(wrappings[i].ours, text + strlen(wrappings[i].theirs), NULL);
            add_meanings(list, names, ours);
        }
    }
}

static void add_packed(List *list, const Names *names, const char *text) {
    add_wrapped(list, names, text);
    for (guint i = 0; i < G_N_ELEMENTS(packed_endings) && list->meanings->len == 0; i++) {
        if (g_str_has_suffix(text, packed_endings[i].theirs)) {
            g_autofree char *stem =
                g_strndup(text, strlen(text) - strlen(packed_endings[i].theirs));
            g_autofree char *ours = g_strconcat(stem, packed_endings[i].ours, NULL);
            add_wrapped(list, names, ours);
        }
    }
}

static List *list_new(const Names *names, const char *text, gboolean may_stack) {
    static const char experts[] = ".experts.";
    List *list = g_new0(List, 1);
    list->meanings = g_ptr_array_new();
    add_packed(list, names, text);
    const char *at = list->meanings->len == 0 && may_stack ? strstr(text, experts) : NULL;
    if (at != NULL && at[strlen(experts)] != '#') {
        g_autoptr(GString) single = g_string_new(text);
        g_string_insert(single, at - text + (gssize)strlen(experts), "#.");
        add_packed(list, names, single->str);
        list->stacked = TRUE;
    }
    return list;
}

/* Names repeat in layers and experts, so most look-ups end at the file's own table. */
static Found find(Names *names, const RefitTensor *tensor, GString *text) {
    gboolean may_stack = tensor->n_dims == 3;
    GHashTable *lists = names->lists[may_stack ? 1 : 0];
    refit_name_take_numbers(tensor->name, '#', text);
    List *list = g_hash_table_lookup(lists, text->str);
    if (list == NULL) {
        list = list_new(names, text->str, may_stack);
        g_hash_table_insert(lists, g_strdup(text->str), list);
    }
    return (Found){list, refit_name_number(tensor->name, "layers")};
}

/* The family that knows most names; the first one of equals. */
static guint choose_family(const Names *names, const Found *found, guint n) {
    guint votes[G_N_ELEMENTS(small_models)] = {0}, best = 0;
    for (guint i = 0; i < n; i++) {
        guint64 seen = 0;
        for (guint k = 0; k < found[i].list->meanings->len; k++) {
            const Meaning *meaning = g_ptr_array_index(found[i].list->meanings, k);
            if (meaning->tensor->role == REFIT_ROLE_VISION) {
                continue; /* text models of several families share an image encoder */
            }
            votes[meaning->family] += (seen >> meaning->family & 1) == 0 ? 1 : 0;
            seen |= (guint64)1 << meaning->family;
        }
    }
    for (guint family = 1; family < names->n_families; family++) {
        best = votes[family] > votes[best] ? family : best;
    }
    return best;
}

/* Votes of names for the kinds of each layer: layer number to MAX_KINDS counts. */
static GHashTable *count_kinds(const Found *found, guint n, guint family) {
    GHashTable *layers = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    for (guint i = 0; i < n; i++) {
        if (found[i].number < 0) {
            continue;
        }
        gpointer key = GINT_TO_POINTER(found[i].number);
        guint *votes = g_hash_table_lookup(layers, key);
        if (votes == NULL) {
            votes = g_new0(guint, MAX_KINDS);
            g_hash_table_insert(layers, key, votes);
        }
        guint64 seen = 0;
        for (guint k = 0; k < found[i].list->meanings->len; k++) {
            const Meaning *meaning = g_ptr_array_index(found[i].list->meanings, k);
            gint kind = meaning->tensor->layer;
            if (meaning->family == family && kind != REFIT_NO_LAYER && !meaning->after_main &&
                (seen >> kind & 1) == 0) {
                votes[kind]++;
                seen |= (guint64)1 << kind;
            }
        }
    }
    return layers;
}

/* The meaning in this family and the likeliest kind of layer; NULL when it has none. */
static const Meaning *choose_meaning(const Found *found, guint family, GHashTable *layers) {
    const Meaning *best = NULL;
    const guint *votes =
        found->number >= 0 ? g_hash_table_lookup(layers, GINT_TO_POINTER(found->number)) : NULL;
    for (guint k = 0; k < found->list->meanings->len; k++) {
        const Meaning *meaning = g_ptr_array_index(found->list->meanings, k);
        if (meaning->family != family) {
            continue;
        }
        gint kind = meaning->tensor->layer;
        if (best == NULL || (votes != NULL && best->tensor->layer >= 0 && kind >= 0 &&
                             votes[kind] > votes[best->tensor->layer])) {
            best = meaning;
        }
    }
    return best;
}

/* ---- shapes ---- */

#define SMALL_SIZES 2048 /* no extent of a small model is as large */

/* An extent of a small model, the one that a tensor of the file has in its place, and how many. */
typedef struct {
    guint64 small, large;
    guint votes;
} Size;

static guint size_hash(gconstpointer data) {
    const Size *size = data;
    return (guint)((size->small * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15) ^ size->large) *
                       G_GUINT64_CONSTANT(0xff51afd7ed558ccd) >>
                   32);
}

static gboolean size_equal(gconstpointer a, gconstpointer b) {
    const Size *x = a, *y = b;
    return x->small == y->small && x->large == y->large;
}

/* Numbers packed in integers have shapes of their own, which only their scales explain. */
static gboolean is_packed_in_integers(const RefitTensor *tensor) {
    return tensor->dtype != REFIT_DTYPE_BF16 && tensor->dtype != REFIT_DTYPE_F16 &&
           tensor->dtype != REFIT_DTYPE_F32 && tensor->dtype != REFIT_DTYPE_F64 &&
           tensor->dtype != REFIT_DTYPE_F8_E4M3 && tensor->dtype != REFIT_DTYPE_F8_E5M2;
}

/* Dims before those of the small model's tensor: one when the file stacks experts. */
static gboolean has_dims(const RefitTensor *tensor, const Found *found, const Meaning *meaning) {
    return tensor->n_dims == meaning->tensor->n_dims + (found->list->stacked ? 1u : 0u);
}

static void vote_sizes(GHashTable *sizes, const RefitTensor *tensor, const Found *found,
                       const Meaning *meaning) {
    guint before = found->list->stacked ? 1 : 0;
    if (is_packed_in_integers(tensor) || !has_dims(tensor, found, meaning)) {
        return;
    }
    for (guint d = 0; d < meaning->tensor->n_dims; d++) {
        Size key = {meaning->tensor->shape[d], tensor->shape[d + before], 1};
        Size *size = g_hash_table_lookup(sizes, &key);
        if (size != NULL) {
            size->votes++;
        } else {
            g_hash_table_add(sizes, g_memdup2(&key, sizeof key));
        }
    }
}

/* What most tensors have in the place of each small extent, of equals the least; 0: none. */
static void choose_sizes(GHashTable *sizes, guint64 *large) {
    g_autofree guint *votes = g_new0(guint, SMALL_SIZES);
    GHashTableIter iter;
    gpointer item = NULL;
    g_hash_table_iter_init(&iter, sizes);
    while (g_hash_table_iter_next(&iter, &item, NULL)) {
        const Size *size = item;
        g_assert(size->small < SMALL_SIZES);
        if (size->votes > votes[size->small] ||
            (size->votes == votes[size->small] && size->large < large[size->small])) {
            votes[size->small] = size->votes;
            large[size->small] = size->large;
        }
    }
}

static gboolean has_shape(const RefitTensor *tensor, const Found *found, const Meaning *meaning,
                          const guint64 *large) {
    guint before = found->list->stacked ? 1 : 0;
    gboolean equal = has_dims(tensor, found, meaning);
    for (guint d = 0; equal && d < meaning->tensor->n_dims; d++) {
        equal = tensor->shape[d + before] == large[meaning->tensor->shape[d]];
    }
    return equal;
}

/* `meaning` or, of what only a number tells apart from it, the one that has the tensor's shape;
 * NULL when none has. */
static const Meaning *agree(const RefitTensor *tensor, const Found *found, const Meaning *meaning,
                            const guint64 *large) {
    if (is_packed_in_integers(tensor) || has_shape(tensor, found, meaning, large)) {
        return meaning;
    }
    for (guint k = 0; k < found->list->meanings->len; k++) {
        const Meaning *other = g_ptr_array_index(found->list->meanings, k);
        if (other->family == meaning->family && other->tensor->layer == meaning->tensor->layer &&
            has_shape(tensor, found, other, large)) {
            return other;
        }
    }
    return NULL;
}

/* The segments of a packed projection, where the shapes of others tell them. */
static gboolean find_segments(RefitTensor *tensor, const RefitTensor *small, const guint64 *large) {
    guint64 left = tensor->n_dims > small->packed_dim ? tensor->shape[small->packed_dim] : 0;
    if (small->n_packed == 0) {
        return TRUE;
    }
    for (guint i = 0; i < small->n_packed; i++) {
        gboolean is_padding = small->packed[i].units == 0;
        guint64 extent = is_padding ? left : large[small->packed[i].extent];
        guint64 units = is_padding ? 0 : large[small->packed[i].units];
        if (extent == 0 || extent > left || (!is_padding && (units == 0 || units > G_MAXUINT))) {
            return FALSE;
        }
        tensor->packed[i].extent = extent;
        tensor->packed[i].units = (guint)units;
        left -= extent;
    }
    tensor->packed_dim = small->packed_dim;
    tensor->n_packed = left == 0 ? small->n_packed : 0;
    return left == 0;
}

/* ---- writing it down ---- */

/* The unpacked form of stacked experts is transposed in some families, the packed one never. */
static RefitRole packed_role(const RefitTensor *tensor, RefitRole role) {
    if (!g_str_has_suffix(tensor->name, "_blocks")) {
        return role;
    }
    return role == REFIT_ROLE_EXPERT_GATE_UP_T ? REFIT_ROLE_EXPERT_GATE_UP
           : role == REFIT_ROLE_EXPERT_DOWN_T  ? REFIT_ROLE_EXPERT_DOWN
                                               : role;
}

static void apply_meaning(RefitTensor *tensor, const Found *found, const Meaning *meaning,
                          guint n_layers) {
    const RefitTensor *small = meaning->tensor;
    tensor->role = packed_role(tensor, small->role);
    tensor->mtp = small->mtp;
    if (small->expert != REFIT_NO_EXPERT && !found->list->stacked) {
        tensor->expert = refit_name_number(tensor->name, "experts");
    }
    if (small->layer != REFIT_NO_LAYER) {
        tensor->layer =
            meaning->after_main ? (gint)n_layers + MAX(found->number, 0) : found->number;
    }
}

/* Parts of image encoders that no family knows are at least not parts of layers, and MTP modules
 * can be left out. */
static void apply_unknown(RefitTensor *tensor, const Found *found, guint n_layers) {
    tensor->unknown = TRUE;
    tensor->mtp |= g_str_has_prefix(tensor->name, "mtp.");
    tensor->role = REFIT_ROLE_OTHER;
    if (strstr(tensor->name, "vision") != NULL || strstr(tensor->name, "visual") != NULL) {
        tensor->role = REFIT_ROLE_VISION;
        return;
    }
    tensor->expert = refit_name_number(tensor->name, "experts");
    if (n_layers == 0 || found->number < (gint)n_layers) {
        tensor->layer = found->number;
    }
}

/* Meanings of all tensors in `family` whose shapes agree with each other, else NULL. Names alone
 * tell MTP layers, which may be left out. */
static const Meaning **choose_meanings(RefitHeaders *headers, const Found *found, guint family,
                                       guint64 *large) {
    RefitTensor *tensors = (RefitTensor *)(gpointer)headers->tensors->data;
    guint n = headers->tensors->len;
    g_autoptr(GHashTable) layers = count_kinds(found, n, family);
    g_autoptr(GHashTable) sizes = g_hash_table_new_full(size_hash, size_equal, g_free, NULL);
    const Meaning **chosen = g_new0(const Meaning *, MAX(n, 1));
    for (guint i = 0; i < n; i++) {
        chosen[i] = choose_meaning(&found[i], family, layers);
        if (chosen[i] != NULL) {
            vote_sizes(sizes, &tensors[i], &found[i], chosen[i]);
        }
    }
    choose_sizes(sizes, large);
    for (guint i = 0; i < n; i++) {
        if (chosen[i] == NULL) {
            continue;
        }
        tensors[i].mtp |= chosen[i]->tensor->mtp && tensors[i].role == REFIT_ROLE_OTHER;
        chosen[i] = agree(&tensors[i], &found[i], chosen[i], large);
    }
    return chosen;
}

/* By the table of all families; the tensors that `done` marks are left as they are. */
static gboolean name_by_table(RefitHeaders *headers, const guint8 *done, guint n_layers,
                              const char **family_out, GError **error) {
    RefitTensor *tensors = (RefitTensor *)(gpointer)headers->tensors->data;
    guint n = headers->tensors->len, n_seen = 0;
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(Names) names = names_new(error);
    g_autofree guint64 *large = g_new0(guint64, SMALL_SIZES);
    if (names == NULL) {
        return FALSE;
    }
    g_autofree Found *found = g_new0(Found, MAX(n, 1));
    for (guint i = 0; i < n; i++) {
        found[i] = find(names, &tensors[i], text);
    }
    guint family = choose_family(names, found, n);
    g_autofree const Meaning **chosen = choose_meanings(headers, found, family, large);
    for (guint i = 0; i < n; i++) {
        if (chosen[i] != NULL && !chosen[i]->tensor->mtp &&
            chosen[i]->tensor->layer != REFIT_NO_LAYER) {
            n_seen = MAX(n_seen, (guint)(found[i].number + 1));
        }
    }
    n_layers = n_layers != 0 ? n_layers : n_seen;
    for (guint i = 0; i < n; i++) {
        if (done[i] != 0) {
            continue;
        }
        if (chosen[i] != NULL && find_segments(&tensors[i], chosen[i]->tensor, large)) {
            apply_meaning(&tensors[i], &found[i], chosen[i], n_layers);
        } else {
            apply_unknown(&tensors[i], &found[i], n_layers);
        }
    }
    *family_out = refit_model_family_name(names->families[family]);
    return TRUE;
}

/* By the names of a full model; marks what it knows in `done`. */
static gboolean name_by_model(RefitHeaders *headers, const RefitModel *like, guint8 *done,
                              GError **error) {
    for (guint i = 0; i < refit_model_n_tensors(like); i++) {
        const RefitTensor *known = refit_model_tensor(like, i);
        guint index = GPOINTER_TO_UINT(g_hash_table_lookup(headers->by_name, known->name));
        if (index == 0) {
            continue;
        }
        RefitTensor *tensor = &g_array_index(headers->tensors, RefitTensor, index - 1);
        gboolean equal = known->n_dims == tensor->n_dims;
        for (guint d = 0; d < known->n_dims && equal; d++) {
            equal = known->shape[d] == tensor->shape[d];
        }
        if (!equal) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_SHAPE_MISMATCH,
                        "tensor %s: its shape is not the one that the config.json beside it gives; "
                        "put the config.json of this checkpoint there",
                        tensor->name);
            return FALSE;
        }
        RefitTensor merged = *known;
        merged.name = tensor->name;
        merged.dtype = tensor->dtype;
        *tensor = merged;
        done[index - 1] = 1;
    }
    return TRUE;
}

static void count_model(const RefitHeaders *headers, RefitModelCounts *counts) {
    gboolean has_embedding = FALSE, has_head = FALSE;
    for (guint i = 0; i < headers->tensors->len; i++) {
        const RefitTensor *tensor = &g_array_index(headers->tensors, RefitTensor, i);
        if (tensor->mtp) {
            continue;
        }
        has_embedding |= tensor->role == REFIT_ROLE_EMBEDDING;
        has_head |= tensor->role == REFIT_ROLE_LM_HEAD;
        counts->n_layers = MAX(counts->n_layers, (guint)(tensor->layer + 1));
        counts->n_experts = MAX(counts->n_experts, (guint)(tensor->expert + 1));
    }
    counts->tied_embeddings = has_embedding && !has_head;
}

gboolean refit_headers_name(RefitHeaders *headers, const RefitModel *like, RefitModelCounts *counts,
                            GError **error) {
    g_autofree guint8 *done = g_new0(guint8, headers->tensors->len + 1);
    const char *family = NULL;
    if ((like != NULL && !name_by_model(headers, like, done, error)) ||
        !name_by_table(headers, done, like != NULL ? refit_model_n_layers(like) : 0, &family,
                       error)) {
        return FALSE;
    }
    if (like == NULL) {
        count_model(headers, counts);
        counts->family = family;
        return TRUE;
    }
    *counts = (RefitModelCounts){
        .family = refit_model_family(like),
        .n_layers = refit_model_n_layers(like),
        .n_experts = refit_model_n_experts(like),
        .n_expert_groups = refit_model_n_expert_groups(like),
        .n_heads = refit_model_n_heads(like),
        .n_kv_heads = refit_model_n_kv_heads(like),
        .tied_embeddings = refit_model_tied_embeddings(like),
    };
    return TRUE;
}
