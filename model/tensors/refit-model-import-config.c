/*
 * Models from a `config.json` of the hub.
 *
 * Such a file has dozens of keys, most of which say nothing about weights, and leaves out what the
 * model code knows by itself (Qwen3 has query and key norms). So the file is taken as the `config`
 * of a model file of ours, with a row per model type that says which family it is, what to add,
 * what has another name here, and what we cannot expand; every other key is ignored. Nodes stay
 * those of the file, so errors show their line. Cost: linear in the file, then that of the family.
 */

#include "model/tensors/refit-model-import-private.h"

#include "model/base/refit-yaml-import.h"

#include <string.h>

#define MAX_CHANGES 4

typedef enum {
    CHANGE_NONE,
    CHANGE_SET,    /* `key` is `other` */
    CHANGE_RENAME, /* our `other` is their `key` */
    CHANGE_SQUARE, /* our `other` is each of the two numbers of their `key` */
    CHANGE_REFUSE, /* `key` may only say no */
    CHANGE_STATED, /* `key` must be there, if only as null: the model code has another default */
} ChangeKind;

typedef struct {
    ChangeKind kind;
    const char *section, *key; /* section: mapping in the config, NULL for itself */
    const char *other;
    const char *if_key, *if_value; /* CHANGE_SET: only where this key has this value; or NULL */
} Change;

typedef struct {
    const char *model_type, *architecture;
    const char *family;
    const char *quantized; /* what published quantized forms of it quantize; NULL: none known */
    Change changes[MAX_CHANGES];
} HubType;

#define SET(in, name, value)                                                                       \
    { .kind = CHANGE_SET, .section = in, .key = name, .other = value }
#define SET_IF(name, value, set, to)                                                               \
    { .kind = CHANGE_SET, .key = set, .other = to, .if_key = name, .if_value = value }
#define RENAME(name, ours)                                                                         \
    { .kind = CHANGE_RENAME, .key = name, .other = ours }
#define SQUARE(in, name, ours)                                                                     \
    { .kind = CHANGE_SQUARE, .section = in, .key = name, .other = ours }
#define REFUSE(name)                                                                               \
    { .kind = CHANGE_REFUSE, .key = name }
#define STATED(name)                                                                               \
    { .kind = CHANGE_STATED, .key = name }

#define DENSE_LINEARS "linears: [attention, dense], scale: bf16"
#define MOE_LINEARS "linears: [attention, expert], scale: bf16"
#define DEEPSEEK_LINEARS "linears: [attention, dense, expert, shared]"

/* A new model type of a known family is one row. */
static const HubType types[] = {
    {"llama", "LlamaForCausalLM", "dense", NULL, {REFUSE("mlp_bias")}},
    {"mistral", "MistralForCausalLM", "dense", NULL, {REFUSE("mlp_bias")}},
    {"qwen2", "Qwen2ForCausalLM", "dense", NULL, {SET(NULL, "qkv_bias", "true")}},
    {"qwen3", "Qwen3ForCausalLM", "dense", DENSE_LINEARS, {SET(NULL, "qk_norm", "true")}},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3_moe", MOE_LINEARS, {REFUSE("mlp_only_layers")}},
    {"qwen3_5_moe",
     "Qwen3_5MoeForConditionalGeneration",
     "qwen3_5_moe",
     NULL,
     {SET(NULL, "linear_keeps_f32", "true"), SET(NULL, "mtp_stacked_experts", "false")}},
    {"qwen3_5_moe_text",
     "Qwen3_5MoeForCausalLM",
     "qwen3_5_moe",
     NULL,
     {SET(NULL, "linear_keeps_f32", "false"), SET(NULL, "mtp_stacked_experts", "true")}},
    {"mixtral", "MixtralForCausalLM", "mixtral", NULL, {{0}}},
    {"minimax_m2",
     "MiniMaxM2ForCausalLM",
     "mixtral",
     "linears: [attention, expert]",
     {RENAME("use_qk_norm", "qk_norm"), REFUSE("shared_intermediate_size")}},
    {"deepseek_v3",
     "DeepseekV3ForCausalLM",
     "deepseek_v3",
     DEEPSEEK_LINEARS,
     {REFUSE("attention_bias"), STATED("q_lora_rank")}},
    {"kimi_k2",
     "KimiK2ForCausalLM",
     "deepseek_v3",
     DEEPSEEK_LINEARS,
     {REFUSE("attention_bias"), STATED("q_lora_rank"), SET(NULL, "rotary_inv_freq", "56")}},
    /* From GLM-4.6 on, which has this context length, MTP layers share embedding and head. */
    {"glm4_moe",
     "Glm4MoeForCausalLM",
     "glm4_moe",
     NULL,
     {RENAME("use_qk_norm", "qk_norm"),
      SET_IF("max_position_embeddings", "202752", "mtp_shares_ends", "true")}},
    {"gpt_oss", "GptOssForCausalLM", "gpt_oss", "linears: [expert]", {{0}}},
    {"nemotron_h",
     "NemotronHForCausalLM",
     "nemotron_h",
     NULL,
     {REFUSE("attention_bias"), REFUSE("mlp_bias"), REFUSE("mamba_proj_bias"), REFUSE("use_bias")}},
    {"kimi_k3",
     "KimiK3ForConditionalGeneration",
     "kimi_k3",
     "linears: [expert]",
     {SET("linear_attn_config", "a_log_size", "128"),
      SQUARE("vision_config", "merge_kernel_size", "merge_size")}},
};

/* ---- which type ---- */

/* `key` of a mapping without asking for it; NULL when absent. */
static RefitNode *peek(RefitNode *mapping, const char *key, RefitNodeKind kind) {
    RefitNode *node = mapping != NULL && refit_node_kind(mapping) == REFIT_NODE_MAPPING
                          ? refit_node_get(mapping, key)
                          : NULL;
    return node != NULL && refit_node_kind(node) == kind ? node : NULL;
}

/* The text model's facts: those of `text_config`, or the file itself. */
static RefitNode *text_config(RefitNode *root) {
    RefitNode *text = peek(root, "text_config", REFIT_NODE_MAPPING);
    return text != NULL ? text : root;
}

static RefitNode *first_architecture(RefitNode *root) {
    RefitNode *list = peek(root, "architectures", REFIT_NODE_SEQUENCE);
    return list != NULL && refit_node_size(list) > 0 ? refit_node_at(list, 0) : NULL;
}

static const HubType *find_type(RefitNode *root) {
    const char *model_type = NULL, *architecture = NULL;
    RefitNode *stated = peek(root, "model_type", REFIT_NODE_SCALAR);
    RefitNode *first = first_architecture(root);
    gboolean has_type = stated != NULL && refit_node_string(stated, &model_type, NULL);
    gboolean has_architecture = first != NULL && refit_node_string(first, &architecture, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(types); i++) {
        if (has_type ? g_str_equal(types[i].model_type, model_type)
                     : has_architecture && g_str_equal(types[i].architecture, architecture)) {
            return &types[i];
        }
    }
    return NULL;
}

gboolean refit_hub_config_is(RefitNode *root) {
    return peek(root, "model_type", REFIT_NODE_SCALAR) != NULL || first_architecture(root) != NULL;
}

gboolean refit_hub_config_is_known(RefitNode *root) {
    return find_type(root) != NULL;
}

static void report_type(RefitNode *root, GError **error) {
    g_autoptr(GString) known = g_string_new(NULL);
    RefitNode *place = peek(root, "model_type", REFIT_NODE_SCALAR);
    for (guint i = 0; i < G_N_ELEMENTS(types); i++) {
        g_string_append_printf(known, "%s%s", i > 0 ? ", " : "", types[i].model_type);
    }
    if (place == NULL) {
        place = first_architecture(root);
    }
    const char *text = "";
    if (place != NULL && !refit_node_string(place, &text, NULL)) {
        text = "";
    }
    g_autofree char *excerpt = refit_error_excerpt(text);
    refit_node_error(place != NULL ? place : root, REFIT_ERROR_INVALID, error,
                     "\"%s\" is no model type whose tensors are known; import its *.safetensors "
                     "headers instead; known are %s",
                     excerpt, known->str);
}

/* ---- changes ---- */

static gboolean says_no(RefitNode *node) {
    static const char *const noes[] = {"false", "False", "0", NULL};
    const char *text = NULL;
    return refit_node_kind(node) == REFIT_NODE_SCALAR
               ? refit_node_string(node, &text, NULL) && g_strv_contains(noes, text)
               : refit_node_size(node) == 0;
}

static gboolean change_square(RefitNode *section, const Change *change, GError **error) {
    RefitNode *pair = refit_node_get(section, change->key);
    guint64 sizes[2] = {0};
    if (pair == NULL) {
        return TRUE; /* the family names what it misses */
    }
    if (!refit_node_expect(pair, REFIT_NODE_SEQUENCE, error)) {
        return FALSE;
    }
    for (guint i = 0; i < 2 && refit_node_size(pair) == 2; i++) {
        if (!refit_node_uint(refit_node_at(pair, i), 1, REFIT_MODEL_MAX_EDGE, &sizes[i], error)) {
            return FALSE;
        }
    }
    if (sizes[0] == 0 || sizes[0] != sizes[1]) {
        refit_node_error(pair, REFIT_ERROR_INVALID, error,
                         "must be two equal numbers: only squares can be merged");
        return FALSE;
    }
    refit_yaml_link(section, change->other, refit_node_at(pair, 0));
    return TRUE;
}

static gboolean apply(RefitNode *config, const Change *change, GError **error) {
    RefitNode *section =
        change->section != NULL ? peek(config, change->section, REFIT_NODE_MAPPING) : config;
    if (section == NULL) {
        return TRUE;
    }
    RefitNode *node = refit_node_get(section, change->key);
    switch (change->kind) {
    case CHANGE_SET:
        if (change->if_key != NULL) {
            RefitNode *stated = peek(section, change->if_key, REFIT_NODE_SCALAR);
            const char *text = NULL;
            if (stated == NULL || !refit_node_string(stated, &text, NULL) ||
                !g_str_equal(text, change->if_value)) {
                return TRUE;
            }
        }
        refit_yaml_put_text(section, change->key, change->other);
        return TRUE;
    case CHANGE_RENAME:
        refit_yaml_link(section, change->other, node);
        return TRUE;
    case CHANGE_SQUARE:
        return change_square(section, change, error);
    case CHANGE_REFUSE:
        if (node != NULL && !says_no(node)) {
            refit_node_error(node, REFIT_ERROR_INVALID, error,
                             "the names of such tensors are not known; import the model's "
                             "*.safetensors headers instead");
            return FALSE;
        }
        return TRUE;
    case CHANGE_STATED: /* before nulls were dropped */
    case CHANGE_NONE:
    default:
        return TRUE;
    }
}

/* ---- the native form ---- */

/* How `quantization_config` says that matrices are written. */
static const struct {
    const char *key, *value;
    const char *style;
} quantizations[] = {
    {"quant_method", "fp8", "fp8_block"},
    {"quant_method", "mxfp4", "mxfp4"},
    {"format", "mxfp4-pack-quantized", "mxfp4"},
};

static const char *style_of(RefitNode *quantization) {
    for (guint i = 0; i < G_N_ELEMENTS(quantizations); i++) {
        const char *text = NULL;
        RefitNode *node = peek(quantization, quantizations[i].key, REFIT_NODE_SCALAR);
        if (node != NULL && refit_node_string(node, &text, NULL) &&
            g_str_equal(text, quantizations[i].value)) {
            return quantizations[i].style;
        }
    }
    return NULL;
}

/* Only rows and columns of blocks that are stated; the form has a default. */
static gboolean append_block(GString *text, RefitNode *quantization, GError **error) {
    RefitNode *block = peek(quantization, "weight_block_size", REFIT_NODE_SEQUENCE);
    guint64 sizes[2] = {0};
    if (block == NULL) {
        return TRUE;
    }
    for (guint i = 0; i < 2; i++) {
        if (i >= refit_node_size(block) ||
            !refit_node_uint(refit_node_at(block, i), 1, REFIT_MODEL_MAX_SIZE, &sizes[i], NULL)) {
            refit_node_error(block, REFIT_ERROR_INVALID, error,
                             "must be two numbers, rows and columns of a block");
            return FALSE;
        }
    }
    g_string_append_printf(text, ", block: [%" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT "]",
                           sizes[0], sizes[1]);
    return TRUE;
}

static gboolean put_native(RefitNode *root, RefitNode *config, const HubType *type,
                           const RefitModelOptions *options, GError **error) {
    RefitNode *quantization = peek(config, "quantization_config", REFIT_NODE_MAPPING);
    if (quantization == NULL) {
        quantization = peek(root, "quantization_config", REFIT_NODE_MAPPING);
    }
    if (quantization == NULL) {
        return TRUE;
    }
    const char *style = style_of(quantization);
    if (style == NULL || type->quantized == NULL) {
        if (options->form == REFIT_FORM_PLAIN) {
            return TRUE;
        }
        refit_node_error(quantization, REFIT_ERROR_INVALID, error,
                         "what this quantizes in a model of type %s is not known; import its "
                         "*.safetensors headers instead, or state a plain dtype",
                         type->model_type);
        return FALSE;
    }
    g_autoptr(GString) text = g_string_new("{style: ");
    gboolean is_fp8 = g_str_equal(style, "fp8_block");
    gsize first_key = is_fp8 ? strlen(type->quantized) : strcspn(type->quantized, "]") + 1;
    g_string_append_printf(text, "%s, %.*s", style, (int)first_key, type->quantized);
    if (is_fp8 && !append_block(text, quantization, error)) {
        return FALSE;
    }
    g_string_append_c(text, '}');
    return refit_yaml_put(root, "native", text->str, error);
}

/* ---- the model ---- */

/* What a wrapped model states beside its text model. */
static void link_outer(RefitNode *root, RefitNode *config) {
    static const char *const keys[] = {"vision_config", "tie_word_embeddings"};
    for (guint i = 0; i < G_N_ELEMENTS(keys); i++) {
        RefitNode *node = refit_node_get(root, keys[i]);
        if (node != NULL && refit_node_get(config, keys[i]) == NULL) {
            refit_yaml_link(config, keys[i], node);
        }
    }
}

RefitModel *refit_hub_config_parse(RefitDoc *doc, const char *name,
                                   const RefitModelOptions *options, GError **error) {
    static const char *const ours[] = {"tensors", "source", "note",           "parameters",
                                       "native",  "fp8",    "parameters_main"};
    RefitNode *root = refit_doc_root(doc);
    if (!refit_node_expect(root, REFIT_NODE_MAPPING, error)) {
        return NULL;
    }
    const HubType *type = find_type(root);
    if (type == NULL) {
        report_type(root, error);
        return NULL;
    }
    RefitNode *config = text_config(root);
    for (guint i = 0; i < MAX_CHANGES && type->changes[i].kind != CHANGE_NONE; i++) {
        if (type->changes[i].kind == CHANGE_STATED &&
            refit_node_require(config, type->changes[i].key, error) == NULL) {
            return NULL;
        }
    }
    refit_yaml_drop_nulls(root);
    refit_node_consume_all(root);
    if (config != root) {
        link_outer(root, config);
    }
    for (guint i = 0; i < MAX_CHANGES && type->changes[i].kind != CHANGE_NONE; i++) {
        if (!apply(config, &type->changes[i], error)) {
            return NULL;
        }
    }
    for (guint i = 0; i < G_N_ELEMENTS(ours); i++) {
        refit_yaml_link(root, ours[i], NULL);
    }
    if (!put_native(root, config, type, options, error)) {
        return NULL;
    }
    refit_yaml_put_text(root, "schema", "refit.model/1");
    refit_yaml_put_text(root, "name", g_str_equal(name, "config") ? type->model_type : name);
    refit_yaml_put_text(root, "family", type->family);
    refit_yaml_link(root, "config", config);
    return refit_model_parse(root, options, error);
}

gboolean refit_hub_config_heads(RefitNode *root, RefitModelCounts *counts, GError **error) {
    RefitNode *config = text_config(root);
    guint heads = 0, kv_heads = 0;
    if (refit_node_kind(config) != REFIT_NODE_MAPPING) {
        return TRUE;
    }
    refit_yaml_drop_nulls(config);
    if (!refit_node_get_uint(config, "num_attention_heads", 1, REFIT_MODEL_MAX_COUNT, &heads,
                             error) ||
        !refit_node_get_uint(config, "num_key_value_heads", 1, REFIT_MODEL_MAX_COUNT, &kv_heads,
                             error)) {
        return FALSE;
    }
    if (heads == 0) { /* KV heads mean nothing alone */
        return TRUE;
    }
    if (kv_heads != 0 && heads % kv_heads != 0) {
        refit_node_error(refit_node_get(config, "num_key_value_heads"), REFIT_ERROR_INVALID, error,
                         "%u KV heads do not divide the %u attention heads", kv_heads, heads);
        return FALSE;
    }
    counts->n_heads = heads;
    counts->n_kv_heads = kv_heads != 0 ? kv_heads : heads;
    return TRUE;
}
