/*
 * What a tensor is for, from its name alone.
 *
 * The families already know every name: so a small model of each is expanded, and its names, with
 * numbers taken out, are the table. A name can mean different things in different families, and in
 * layers of different kinds (the output projection of attention and of a delta net); therefore the
 * family is the one that knows most names of the file, and the kind of a layer the one that has
 * most of the layer's names. A config.json beside the headers gives a full model, whose names come
 * first. Cost: one look-up per tensor, or a few for names that other programs wrap.
 */

#include "model/tensors/refit-model-import-private.h"

#include <string.h>

#define MAX_KINDS 8 /* layers of a small model */

/* Small models with a layer of each kind and every optional tensor. Tables of one family add up. */
static const char *const small_models[] = {
    "dense, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 1, num_attention_heads: 2, "
    "intermediate_size: 8, attention_bias: true, qk_norm: true}",
    "qwen3_moe, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 1, "
    "num_attention_heads: 2, attention_bias: true, num_experts: 1, moe_intermediate_size: 8}",
    "deepseek_v3, config: {rotary_inv_freq: 2, hidden_size: 8, vocab_size: 8, num_hidden_layers: "
    "2, "
    "num_nextn_predict_layers: 1, num_attention_heads: 2, q_lora_rank: 2, kv_lora_rank: 2, "
    "qk_nope_head_dim: 2, qk_rope_head_dim: 2, v_head_dim: 2, intermediate_size: 8, "
    "moe_intermediate_size: 8, n_routed_experts: 1, n_shared_experts: 1, "
    "first_k_dense_replace: 1}",
    "glm4_moe, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 2, "
    "num_nextn_predict_layers: 1, num_attention_heads: 2, attention_bias: true, qk_norm: true, "
    "intermediate_size: 8, moe_intermediate_size: 8, n_routed_experts: 1, n_shared_experts: 1, "
    "first_k_dense_replace: 1}",
    "mixtral, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 1, "
    "num_attention_heads: 2, qk_norm: true, intermediate_size: 8, num_local_experts: 1, "
    "use_routing_bias: true}",
    "qwen3_5_moe, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 2, "
    "mtp_num_hidden_layers: 1, mtp_stacked_experts: false, num_attention_heads: 2, "
    "attention_bias: true, attn_output_gate: true, full_attention_interval: 2, "
    "linear_num_key_heads: 2, linear_num_value_heads: 2, linear_key_head_dim: 2, "
    "linear_value_head_dim: 2, linear_conv_kernel_dim: 2, moe_intermediate_size: 8, "
    "num_experts: 1, shared_expert_intermediate_size: 8, vision_config: {hidden_size: 8, "
    "intermediate_size: 8, depth: 1, in_channels: 3, patch_size: 2, temporal_patch_size: 2, "
    "spatial_merge_size: 2, num_position_embeddings: 2, out_hidden_size: 8}}",
    "qwen3_5_moe, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 2, "
    "mtp_num_hidden_layers: 1, mtp_stacked_experts: true, num_attention_heads: 2, "
    "attention_bias: true, attn_output_gate: true, full_attention_interval: 2, "
    "linear_num_key_heads: 2, linear_num_value_heads: 2, linear_key_head_dim: 2, "
    "linear_value_head_dim: 2, linear_conv_kernel_dim: 2, moe_intermediate_size: 8, "
    "num_experts: 1, shared_expert_intermediate_size: 8}",
    "gpt_oss, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 1, "
    "num_attention_heads: 2, attention_bias: true, intermediate_size: 8, num_local_experts: 1}",
    "nemotron_h, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 3, "
    "hybrid_override_pattern: \"M*E\", num_nextn_predict_layers: 1, "
    "mtp_hybrid_override_pattern: \"*E\", num_attention_heads: 2, mamba_num_heads: 2, "
    "mamba_head_dim: 2, n_groups: 1, ssm_state_size: 2, conv_kernel: 2, use_conv_bias: true, "
    "moe_intermediate_size: 8, moe_latent_size: 2, moe_shared_expert_intermediate_size: 8, "
    "n_routed_experts: 1, n_shared_experts: 1}",
    "kimi_k3, config: {hidden_size: 8, vocab_size: 8, num_hidden_layers: 4, "
    "num_attention_heads: 2, q_lora_rank: 2, kv_lora_rank: 2, qk_nope_head_dim: 2, "
    "qk_rope_head_dim: 2, v_head_dim: 2, mla_use_output_gate: true, intermediate_size: 8, "
    "moe_intermediate_size: 8, routed_expert_hidden_size: 8, num_experts: 1, "
    "num_shared_experts: 1, first_k_dense_replace: 2, linear_attn_config: {num_heads: 2, "
    "head_dim: 2, short_conv_kernel_size: 2, kda_layers: [1, 3]}, vision_config: "
    "{vt_hidden_size: 8, vt_intermediate_size: 8, vt_num_hidden_layers: 1, qkv_hidden_size: 8, "
    "patch_size: 2, init_pos_emb_height: 2, init_pos_emb_width: 2, merge_size: 2, "
    "text_hidden_size: 8}}",
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
    gint kind; /* which layer of the small model, or REFIT_NO_LAYER */
    RefitRole role;
    gboolean mtp, has_expert;
    gboolean after_main; /* layers are counted from the last main layer on */
} Meaning;

typedef struct {
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
    const List *list; /* NULL: another look-up has named the tensor */
    gint number;      /* of the layer in the name, or -1 */
} Found;

static void names_free(Names *names) {
    g_hash_table_unref(names->meanings);
    g_hash_table_unref(names->lists[0]);
    g_hash_table_unref(names->lists[1]);
    g_free(names);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Names, names_free)

/* "layers.12.up" as "layers.#.up". */
static void take_numbers(const char *name, GString *text) {
    g_string_truncate(text, 0);
    for (const char *at = name; *at != '\0';) {
        gsize length = strcspn(at, ".");
        if (length > 0 && strspn(at, "0123456789") >= length) {
            g_string_append_c(text, '#');
        } else {
            g_string_append_len(text, at, (gssize)length);
        }
        at += length;
        if (*at == '.') {
            g_string_append_c(text, *at++);
        }
    }
}

static void add_names(Names *names, guint family, const RefitModel *model) {
    g_autoptr(GString) text = g_string_new(NULL);
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        take_numbers(tensor->name, text);
        GArray *list = g_hash_table_lookup(names->meanings, text->str);
        if (list == NULL) {
            list = g_array_new(FALSE, FALSE, sizeof(Meaning));
            g_hash_table_insert(names->meanings, g_strdup(text->str), list);
        }
        g_assert(tensor->layer < MAX_KINDS);
        const Meaning meaning = {
            .family = family,
            .kind = tensor->layer,
            .role = tensor->role,
            .mtp = tensor->mtp,
            .has_expert = tensor->expert != REFIT_NO_EXPERT,
            .after_main = tensor->layer != REFIT_NO_LAYER &&
                          tensor->layer != refit_name_number(tensor->name, "layers"),
        };
        g_array_append_val(list, meaning);
    }
}

/* The table of all families; NULL only if a small model above is wrong. */
static Names *names_new(GError **error) {
    const RefitModelOptions options = {
        .dtype = REFIT_DTYPE_BF16, .mtp = TRUE, .form = REFIT_FORM_NATIVE};
    g_autoptr(Names) names = g_new0(Names, 1);
    names->meanings =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_array_unref);
    for (guint i = 0; i < G_N_ELEMENTS(names->lists); i++) {
        names->lists[i] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, list_free);
    }
    for (guint i = 0; i < G_N_ELEMENTS(small_models); i++) {
        g_autofree char *text = g_strconcat(
            "{schema: refit.model/1, name: names, family: ", small_models[i], "}", NULL);
        g_autoptr(RefitDoc) doc = refit_doc_parse(text, strlen(text), "names", error);
        g_autoptr(RefitModel) model =
            doc != NULL ? refit_model_parse(refit_doc_root(doc), &options, error) : NULL;
        if (model == NULL) {
            return NULL;
        }
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
    take_numbers(tensor->name, text);
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
        for (guint k = 0; found[i].list != NULL && k < found[i].list->meanings->len; k++) {
            guint family = ((const Meaning *)g_ptr_array_index(found[i].list->meanings, k))->family;
            votes[family] += (seen >> family & 1) == 0 ? 1 : 0;
            seen |= (guint64)1 << family;
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
        if (found[i].list == NULL || found[i].number < 0) {
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
            if (meaning->family == family && meaning->kind != REFIT_NO_LAYER &&
                !meaning->after_main && (seen >> meaning->kind & 1) == 0) {
                votes[meaning->kind]++;
                seen |= (guint64)1 << meaning->kind;
            }
        }
    }
    return layers;
}

/* The meaning in this family and the likeliest kind of layer. */
static const Meaning *choose_meaning(const Found *found, guint family, GHashTable *layers) {
    const Meaning *best = NULL;
    const guint *votes =
        found->number >= 0 ? g_hash_table_lookup(layers, GINT_TO_POINTER(found->number)) : NULL;
    for (guint k = 0; k < found->list->meanings->len; k++) {
        const Meaning *meaning = g_ptr_array_index(found->list->meanings, k);
        gboolean is_nearer = best == NULL || (meaning->family == family && best->family != family);
        gboolean is_likelier = best != NULL && meaning->family == family && votes != NULL &&
                               best->kind >= 0 && meaning->kind >= 0 &&
                               votes[meaning->kind] > votes[best->kind];
        if (is_nearer || is_likelier) {
            best = meaning;
        }
    }
    return best;
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
    tensor->role = packed_role(tensor, meaning->role);
    tensor->mtp = meaning->mtp;
    if (meaning->has_expert && !found->list->stacked) {
        tensor->expert = refit_name_number(tensor->name, "experts");
    }
    if (meaning->kind != REFIT_NO_LAYER) {
        tensor->layer =
            meaning->after_main ? (gint)n_layers + MAX(found->number, 0) : found->number;
    }
}

/* Parts of image encoders that no family knows are at least not parts of layers. */
static void apply_unknown(RefitTensor *tensor, const Found *found, guint n_layers) {
    if (strstr(tensor->name, "vision") != NULL || strstr(tensor->name, "visual") != NULL) {
        tensor->role = REFIT_ROLE_VISION;
        return;
    }
    tensor->expert = refit_name_number(tensor->name, "experts");
    if (n_layers == 0 || found->number < (gint)n_layers) {
        tensor->layer = found->number;
    }
}

/* By the table of all families; the tensors that `done` marks are left as they are. */
static gboolean name_by_table(RefitHeaders *headers, const guint8 *done, guint n_layers,
                              GError **error) {
    RefitTensor *tensors = (RefitTensor *)(gpointer)headers->tensors->data;
    guint n = headers->tensors->len, n_seen = 0;
    g_autoptr(GString) text = g_string_new(NULL);
    g_autoptr(Names) names = names_new(error);
    if (names == NULL) {
        return FALSE;
    }
    g_autofree Found *found = g_new0(Found, MAX(n, 1));
    for (guint i = 0; i < n; i++) {
        if (done[i] == 0) {
            found[i] = find(names, &tensors[i], text);
        }
    }
    guint family = choose_family(names, found, n);
    g_autoptr(GHashTable) layers = count_kinds(found, n, family);
    g_autofree const Meaning **chosen = g_new0(const Meaning *, MAX(n, 1));
    for (guint i = 0; i < n; i++) {
        chosen[i] = found[i].list != NULL ? choose_meaning(&found[i], family, layers) : NULL;
        if (chosen[i] != NULL && !chosen[i]->mtp && chosen[i]->kind != REFIT_NO_LAYER) {
            n_seen = MAX(n_seen, (guint)(found[i].number + 1));
        }
    }
    n_layers = n_layers != 0 ? n_layers : n_seen;
    for (guint i = 0; i < n; i++) {
        if (chosen[i] != NULL) {
            apply_meaning(&tensors[i], &found[i], chosen[i], n_layers);
        } else if (done[i] == 0) {
            apply_unknown(&tensors[i], &found[i], n_layers);
        }
    }
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
                        "move the wrong file away",
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
    if ((like != NULL && !name_by_model(headers, like, done, error)) ||
        !name_by_table(headers, done, like != NULL ? refit_model_n_layers(like) : 0, error)) {
        return FALSE;
    }
    if (like == NULL) {
        count_model(headers, counts);
        return TRUE;
    }
    *counts = (RefitModelCounts){
        .n_layers = refit_model_n_layers(like),
        .n_experts = refit_model_n_experts(like),
        .n_heads = refit_model_n_heads(like),
        .n_kv_heads = refit_model_n_kv_heads(like),
        .tied_embeddings = refit_model_tied_embeddings(like),
    };
    return TRUE;
}
