/*
 * The families of models: which tensors follow from which facts.
 *
 * Llama, Qwen3 and DeepSeek-V3 share their naming. What differs is which blocks a layer has and
 * which facts give the shapes; so blocks are tables, and a family is the order in which it emits
 * them: embeddings and output head, layers ascending, final norm. The family `list` instead takes
 * explicit tensors, whose names may count with {a-b}. Cost: linear in the tensors.
 */

#include "refit-model-private.h"

#include <string.h>

/* ---- blocks ---- */

static const RefitTemplate embeddings[] = {
    REFIT_MATRIX("model.embed_tokens.weight", EMBEDDING, VOCAB_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("lm_head.weight", LM_HEAD, VOCAB_SIZE, HIDDEN_SIZE, UNTIED),
};
const RefitBlock refit_block_embeddings = REFIT_BLOCK(embeddings);

static const RefitTemplate final_norm[] = {
    REFIT_VECTOR("model.norm.weight", NORM, HIDDEN_SIZE, NONE),
};
const RefitBlock refit_block_final_norm = REFIT_BLOCK(final_norm);

static const RefitTemplate layer_norms[] = {
    REFIT_VECTOR("input_layernorm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("post_attention_layernorm.weight", NORM, HIDDEN_SIZE, NONE),
};
const RefitBlock refit_block_layer_norms = REFIT_BLOCK(layer_norms);

static const RefitTemplate gqa[] = {
    REFIT_MATRIX("self_attn.q_proj.weight", ATTENTION_Q, Q_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.q_proj.bias", ATTENTION_Q, Q_WIDTH, QKV_BIAS),
    REFIT_MATRIX("self_attn.k_proj.weight", ATTENTION_K, KV_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.k_proj.bias", ATTENTION_K, KV_WIDTH, QKV_BIAS),
    REFIT_MATRIX("self_attn.v_proj.weight", ATTENTION_V, KV_WIDTH, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.v_proj.bias", ATTENTION_V, KV_WIDTH, QKV_BIAS),
    REFIT_MATRIX("self_attn.o_proj.weight", ATTENTION_O, HIDDEN_SIZE, Q_WIDTH, NONE),
    REFIT_VECTOR("self_attn.o_proj.bias", ATTENTION_O, HIDDEN_SIZE, O_BIAS),
    REFIT_VECTOR("self_attn.q_norm.weight", NORM, HEAD_DIM, QK_NORM),
    REFIT_VECTOR("self_attn.k_norm.weight", NORM, HEAD_DIM, QK_NORM),
};
const RefitBlock refit_block_gqa = REFIT_BLOCK(gqa);

static const RefitTemplate mla[] = {
    REFIT_MATRIX("self_attn.q_a_proj.weight", MLA_Q_A, Q_LORA_RANK, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.q_a_layernorm.weight", NORM, Q_LORA_RANK, NONE),
    REFIT_MATRIX("self_attn.q_b_proj.weight", MLA_Q_B, MLA_Q_WIDTH, Q_LORA_RANK, NONE),
    REFIT_MATRIX("self_attn.kv_a_proj_with_mqa.weight", MLA_KV_A, MLA_KV_A, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("self_attn.kv_a_layernorm.weight", NORM, KV_LORA_RANK, NONE),
    REFIT_MATRIX("self_attn.kv_b_proj.weight", MLA_KV_B, MLA_KV_WIDTH, KV_LORA_RANK, NONE),
    REFIT_MATRIX("self_attn.o_proj.weight", ATTENTION_O, HIDDEN_SIZE, MLA_V_WIDTH, NONE),
};
const RefitBlock refit_block_mla = REFIT_BLOCK(mla);

static const RefitTemplate dense_ffn[] = {
    REFIT_MATRIX("mlp.gate_proj.weight", DENSE_GATE, INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.up_proj.weight", DENSE_UP, INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("mlp.down_proj.weight", DENSE_DOWN, HIDDEN_SIZE, INTERMEDIATE_SIZE, NONE),
};
const RefitBlock refit_block_dense_ffn = REFIT_BLOCK(dense_ffn);

static const RefitTemplate expert[] = {
    REFIT_MATRIX("gate_proj.weight", EXPERT_GATE, MOE_INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("up_proj.weight", EXPERT_UP, MOE_INTERMEDIATE_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("down_proj.weight", EXPERT_DOWN, HIDDEN_SIZE, MOE_INTERMEDIATE_SIZE, NONE),
};
const RefitBlock refit_block_expert = REFIT_BLOCK(expert);

static const RefitTemplate qwen3_router[] = {
    REFIT_MATRIX("mlp.gate.weight", ROUTER, EXPERTS, HIDDEN_SIZE, NONE),
};
static const RefitBlock qwen3_router_block = REFIT_BLOCK(qwen3_router);

static const RefitTemplate deepseek_router[] = {
    REFIT_MATRIX("mlp.gate.weight", ROUTER, EXPERTS, HIDDEN_SIZE, NONE),
    REFIT_VECTOR_F32("mlp.gate.e_score_correction_bias", ROUTER, EXPERTS, NONE),
};
const RefitBlock refit_block_deepseek_router = REFIT_BLOCK(deepseek_router);

static const RefitTemplate deepseek_shared[] = {
    REFIT_MATRIX("mlp.shared_experts.gate_proj.weight", SHARED_GATE, SHARED_SIZE, HIDDEN_SIZE,
                 SHARED_SIZE),
    REFIT_MATRIX("mlp.shared_experts.up_proj.weight", SHARED_UP, SHARED_SIZE, HIDDEN_SIZE,
                 SHARED_SIZE),
    REFIT_MATRIX("mlp.shared_experts.down_proj.weight", SHARED_DOWN, HIDDEN_SIZE, SHARED_SIZE,
                 SHARED_SIZE),
};
const RefitBlock refit_block_deepseek_shared = REFIT_BLOCK(deepseek_shared);

static const RefitTemplate deepseek_mtp[] = {
    REFIT_MATRIX("embed_tokens.weight", EMBEDDING, VOCAB_SIZE, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("eh_proj.weight", MTP_PROJ, HIDDEN_SIZE, TWICE_HIDDEN, NONE),
    REFIT_VECTOR("enorm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("hnorm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_VECTOR("shared_head.norm.weight", NORM, HIDDEN_SIZE, NONE),
    REFIT_MATRIX("shared_head.head.weight", LM_HEAD, VOCAB_SIZE, HIDDEN_SIZE, NONE),
};
const RefitBlock refit_block_deepseek_mtp = REFIT_BLOCK(deepseek_mtp);

/* ---- what families share ---- */

#define LAYER_PREFIX "model.layers."
#define EXPERT_INFIX "mlp.experts."

/* Reads `config:` and points further errors at it. */
static RefitNode *read_config(RefitModelBuilder *builder, RefitNode *root, const RefitFactUse *uses,
                              guint n_uses, guint64 *facts, GError **error) {
    RefitNode *config = refit_node_require(root, "config", error);
    if (config == NULL || !refit_facts_read(config, uses, n_uses, facts, error)) {
        return NULL;
    }
    builder->place = config;
    facts[REFIT_FACT_UNTIED] = facts[REFIT_FACT_TIE_WORD_EMBEDDINGS] == 0 ? 1 : 0;
    builder->n_layers = (guint)facts[REFIT_FACT_NUM_HIDDEN_LAYERS];
    builder->n_heads = (guint)facts[REFIT_FACT_NUM_ATTENTION_HEADS];
    builder->tied_embeddings = facts[REFIT_FACT_TIE_WORD_EMBEDDINGS] != 0;
    return config;
}

/* KV heads default to one per query head. */
static gboolean derive_kv_heads(RefitModelBuilder *builder, RefitNode *config, guint64 *facts,
                                GError **error) {
    guint64 heads = facts[REFIT_FACT_NUM_ATTENTION_HEADS];
    guint64 kv_heads = facts[REFIT_FACT_NUM_KEY_VALUE_HEADS];
    if (kv_heads == 0) {
        kv_heads = facts[REFIT_FACT_NUM_KEY_VALUE_HEADS] = heads;
    }
    /* Stated KV heads without heads, as a list may have them, are not a multiple either. */
    if (kv_heads != 0 && (heads == 0 || heads % kv_heads != 0)) {
        refit_facts_error(config, REFIT_FACT_NUM_KEY_VALUE_HEADS, error,
                          "%" G_GUINT64_FORMAT
                          " does not divide num_attention_heads %" G_GUINT64_FORMAT,
                          kv_heads, heads);
        return FALSE;
    }
    builder->n_kv_heads = (guint)kv_heads;
    return TRUE;
}

static gboolean derive_gqa(RefitModelBuilder *builder, RefitNode *config, guint64 *facts,
                           GError **error) {
    guint64 hidden = facts[REFIT_FACT_HIDDEN_SIZE];
    guint64 heads = facts[REFIT_FACT_NUM_ATTENTION_HEADS];
    if (!derive_kv_heads(builder, config, facts, error)) {
        return FALSE;
    }
    if (facts[REFIT_FACT_HEAD_DIM] == 0) {
        if (hidden % heads != 0) {
            refit_facts_error(config, REFIT_FACT_NUM_ATTENTION_HEADS, error,
                              "%" G_GUINT64_FORMAT " does not divide hidden_size %" G_GUINT64_FORMAT
                              "; state head_dim",
                              heads, hidden);
            return FALSE;
        }
        facts[REFIT_FACT_HEAD_DIM] = hidden / heads;
    }
    facts[REFIT_FACT_Q_WIDTH] = heads * facts[REFIT_FACT_HEAD_DIM];
    facts[REFIT_FACT_KV_WIDTH] = facts[REFIT_FACT_NUM_KEY_VALUE_HEADS] * facts[REFIT_FACT_HEAD_DIM];
    facts[REFIT_FACT_QKV_BIAS] = facts[REFIT_FACT_ATTENTION_BIAS];
    facts[REFIT_FACT_O_BIAS] = facts[REFIT_FACT_ATTENTION_BIAS];
    return TRUE;
}

static void derive_mla(guint64 *facts) {
    guint64 heads = facts[REFIT_FACT_NUM_ATTENTION_HEADS];
    guint64 nope = facts[REFIT_FACT_QK_NOPE_HEAD_DIM];
    guint64 rope = facts[REFIT_FACT_QK_ROPE_HEAD_DIM];
    guint64 value = facts[REFIT_FACT_V_HEAD_DIM];
    facts[REFIT_FACT_MLA_Q_WIDTH] = heads * (nope + rope);
    facts[REFIT_FACT_MLA_KV_A] = facts[REFIT_FACT_KV_LORA_RANK] + rope;
    facts[REFIT_FACT_MLA_KV_WIDTH] = heads * (nope + value);
    facts[REFIT_FACT_MLA_V_WIDTH] = heads * value;
}

static gboolean derive_experts(RefitModelBuilder *builder, RefitNode *config, RefitFact count,
                               guint64 *facts, GError **error) {
    guint64 experts = facts[count];
    guint64 chosen = facts[REFIT_FACT_NUM_EXPERTS_PER_TOK];
    if (chosen > experts) {
        refit_facts_error(config, REFIT_FACT_NUM_EXPERTS_PER_TOK, error,
                          "a token cannot choose %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
                          " experts",
                          chosen, experts);
        return FALSE;
    }
    facts[REFIT_FACT_EXPERTS] = experts;
    builder->n_experts = (guint)experts;
    return TRUE;
}

/* ---- dense: Llama, Qwen3 ---- */

static const RefitFactUse dense_uses[] = {
    {REFIT_FACT_HIDDEN_SIZE, TRUE},
    {REFIT_FACT_VOCAB_SIZE, TRUE},
    {REFIT_FACT_NUM_HIDDEN_LAYERS, TRUE},
    {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE},
    {REFIT_FACT_NUM_ATTENTION_HEADS, TRUE},
    {REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE},
    {REFIT_FACT_HEAD_DIM, FALSE},
    {REFIT_FACT_ATTENTION_BIAS, FALSE},
    {REFIT_FACT_QK_NORM, FALSE},
    {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},
};

static gboolean expand_dense(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config =
        read_config(builder, root, dense_uses, G_N_ELEMENTS(dense_uses), facts, error);
    if (config == NULL || !derive_gqa(builder, config, facts, error) ||
        !refit_model_builder_emit(builder, &refit_block_embeddings, facts, error)) {
        return FALSE;
    }
    for (guint layer = 0; layer < builder->n_layers; layer++) {
        refit_model_builder_enter_layer(builder, LAYER_PREFIX, layer, FALSE);
        if (!refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) ||
            !refit_model_builder_emit(builder, &refit_block_gqa, facts, error) ||
            !refit_model_builder_emit(builder, &refit_block_dense_ffn, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_leave_layer(builder);
    return refit_model_builder_emit(builder, &refit_block_final_norm, facts, error);
}

const RefitModelFamily refit_model_family_dense = {
    "dense", "Llama and Qwen3: grouped-query attention and a dense FFN in every layer",
    expand_dense};

/* ---- qwen3_moe ---- */

static const RefitFactUse qwen3_moe_uses[] = {
    {REFIT_FACT_HIDDEN_SIZE, TRUE},
    {REFIT_FACT_VOCAB_SIZE, TRUE},
    {REFIT_FACT_NUM_HIDDEN_LAYERS, TRUE},
    {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE},
    {REFIT_FACT_NUM_ATTENTION_HEADS, TRUE},
    {REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE},
    {REFIT_FACT_HEAD_DIM, FALSE},
    {REFIT_FACT_ATTENTION_BIAS, FALSE},
    {REFIT_FACT_NUM_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE},
    {REFIT_FACT_MOE_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_DECODER_SPARSE_STEP, FALSE},
};

static gboolean expand_qwen3_moe(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config =
        read_config(builder, root, qwen3_moe_uses, G_N_ELEMENTS(qwen3_moe_uses), facts, error);
    if (config == NULL || !derive_gqa(builder, config, facts, error) ||
        !derive_experts(builder, config, REFIT_FACT_NUM_EXPERTS, facts, error)) {
        return FALSE;
    }
    facts[REFIT_FACT_QK_NORM] = 1;
    if (!refit_model_builder_emit(builder, &refit_block_embeddings, facts, error)) {
        return FALSE;
    }
    for (guint layer = 0; layer < builder->n_layers; layer++) {
        refit_model_builder_enter_layer(builder, LAYER_PREFIX, layer, FALSE);
        if (!refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) ||
            !refit_model_builder_emit(builder, &refit_block_gqa, facts, error) ||
            !refit_model_builder_emit(builder, &qwen3_router_block, facts, error) ||
            !refit_model_builder_emit_experts(builder, &refit_block_expert, EXPERT_INFIX,
                                              builder->n_experts, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_leave_layer(builder);
    return refit_model_builder_emit(builder, &refit_block_final_norm, facts, error);
}

const RefitModelFamily refit_model_family_qwen3_moe = {
    "qwen3_moe", "Qwen3 MoE: grouped-query attention and routed experts in every layer",
    expand_qwen3_moe};

/* ---- deepseek_v3 ---- */

static const RefitFactUse deepseek_v3_uses[] = {
    {REFIT_FACT_HIDDEN_SIZE, TRUE},          {REFIT_FACT_VOCAB_SIZE, TRUE},
    {REFIT_FACT_NUM_HIDDEN_LAYERS, TRUE},    {REFIT_FACT_NUM_NEXTN_PREDICT_LAYERS, FALSE},
    {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE}, {REFIT_FACT_NUM_ATTENTION_HEADS, TRUE},
    {REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE}, {REFIT_FACT_Q_LORA_RANK, TRUE},
    {REFIT_FACT_KV_LORA_RANK, TRUE},         {REFIT_FACT_QK_NOPE_HEAD_DIM, TRUE},
    {REFIT_FACT_QK_ROPE_HEAD_DIM, TRUE},     {REFIT_FACT_V_HEAD_DIM, TRUE},
    {REFIT_FACT_INTERMEDIATE_SIZE, TRUE},    {REFIT_FACT_MOE_INTERMEDIATE_SIZE, TRUE},
    {REFIT_FACT_N_ROUTED_EXPERTS, TRUE},     {REFIT_FACT_N_SHARED_EXPERTS, TRUE},
    {REFIT_FACT_NUM_EXPERTS_PER_TOK, FALSE}, {REFIT_FACT_FIRST_K_DENSE_REPLACE, TRUE},
    {REFIT_FACT_MOE_LAYER_FREQ, FALSE},
};

static gboolean emit_deepseek_layer(RefitModelBuilder *builder, guint layer, const guint64 *facts,
                                    GError **error) {
    gboolean mtp = layer >= builder->n_layers;
    refit_model_builder_enter_layer(builder, LAYER_PREFIX, layer, mtp);
    if (!refit_model_builder_emit(builder, &refit_block_layer_norms, facts, error) ||
        !refit_model_builder_emit(builder, &refit_block_mla, facts, error)) {
        return FALSE;
    }
    if (layer < facts[REFIT_FACT_FIRST_K_DENSE_REPLACE]) {
        return refit_model_builder_emit(builder, &refit_block_dense_ffn, facts, error);
    }
    return refit_model_builder_emit(builder, &refit_block_deepseek_router, facts, error) &&
           refit_model_builder_emit_experts(builder, &refit_block_expert, EXPERT_INFIX,
                                            builder->n_experts, facts, error) &&
           refit_model_builder_emit(builder, &refit_block_deepseek_shared, facts, error) &&
           (!mtp || refit_model_builder_emit(builder, &refit_block_deepseek_mtp, facts, error));
}

static gboolean expand_deepseek_v3(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    RefitNode *config =
        read_config(builder, root, deepseek_v3_uses, G_N_ELEMENTS(deepseek_v3_uses), facts, error);
    if (config == NULL || !derive_kv_heads(builder, config, facts, error) ||
        !derive_experts(builder, config, REFIT_FACT_N_ROUTED_EXPERTS, facts, error)) {
        return FALSE;
    }
    if (facts[REFIT_FACT_FIRST_K_DENSE_REPLACE] > builder->n_layers) {
        refit_facts_error(config, REFIT_FACT_FIRST_K_DENSE_REPLACE, error,
                          "%" G_GUINT64_FORMAT " exceeds num_hidden_layers %u",
                          facts[REFIT_FACT_FIRST_K_DENSE_REPLACE], builder->n_layers);
        return FALSE;
    }
    derive_mla(facts);
    facts[REFIT_FACT_SHARED_SIZE] =
        facts[REFIT_FACT_N_SHARED_EXPERTS] * facts[REFIT_FACT_MOE_INTERMEDIATE_SIZE];
    facts[REFIT_FACT_TWICE_HIDDEN] = 2 * facts[REFIT_FACT_HIDDEN_SIZE];
    if (!refit_model_builder_emit(builder, &refit_block_embeddings, facts, error)) {
        return FALSE;
    }
    guint n = builder->n_layers + (guint)facts[REFIT_FACT_NUM_NEXTN_PREDICT_LAYERS];
    for (guint layer = 0; layer < n; layer++) {
        if (!emit_deepseek_layer(builder, layer, facts, error)) {
            return FALSE;
        }
    }
    refit_model_builder_leave_layer(builder);
    return refit_model_builder_emit(builder, &refit_block_final_norm, facts, error);
}

const RefitModelFamily refit_model_family_deepseek_v3 = {
    "deepseek_v3", "DeepSeek-V3 and R1: latent attention, routed and shared experts, MTP layers",
    expand_deepseek_v3};

/* ---- list ---- */

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

/* N of the first component "WORD.N" of a dotted name; -1 when there is none within the limits. */
static gint number_after(const char *name, const char *word) {
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

static gboolean read_role(RefitNode *item, RefitTensor *tensor, GError **error) {
    static const char *const names[] = {
#define X(suffix, name) name,
        REFIT_ROLE_MAP(X)
#undef X
            NULL,
    };
    RefitNode *node = refit_node_get(item, "role");
    guint role = REFIT_ROLE_OTHER;
    if (node != NULL && !refit_node_choice(node, names, &role, error)) {
        return FALSE;
    }
    tensor->role = (RefitRole)role;
    return TRUE;
}

static gboolean read_item(RefitModelBuilder *builder, RefitNode *item, NamePattern *pattern,
                          RefitTensor *tensor, GError **error) {
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
           refit_node_get_bool(item, "mtp", &tensor->mtp, error) && refit_node_finish(item, error);
}

static gboolean add_item(RefitModelBuilder *builder, const NamePattern *pattern,
                         RefitTensor *tensor, GHashTable *seen, GError **error) {
    for (guint64 i = 0; i < pattern->n_names; i++) {
        pattern_name(pattern, i, builder->prefix);
        tensor->name = builder->prefix->str;
        tensor->layer = number_after(tensor->name, "layers");
        tensor->expert = number_after(tensor->name, "experts");
        if (!g_hash_table_add(seen, g_strdup(tensor->name))) {
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
};

/* Heads cannot be seen in shapes; a list may state them. */
static gboolean read_list_config(RefitModelBuilder *builder, RefitNode *root, GError **error) {
    guint64 facts[REFIT_N_FACTS];
    if (refit_node_get(root, "config") == NULL) {
        return TRUE;
    }
    RefitNode *config =
        read_config(builder, root, list_uses, G_N_ELEMENTS(list_uses), facts, error);
    return config != NULL && derive_kv_heads(builder, config, facts, error);
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
        NamePattern pattern;
        RefitTensor tensor;
        builder->place = refit_node_at(tensors, i);
        if (!read_item(builder, builder->place, &pattern, &tensor, error)) {
            return FALSE;
        }
        gboolean done = builder->counting
                            ? refit_model_builder_count(builder, pattern.n_names, error)
                            : add_item(builder, &pattern, &tensor, seen, error);
        if (!done) {
            return FALSE;
        }
    }
    g_string_truncate(builder->prefix, 0);
    return TRUE;
}

const RefitModelFamily refit_model_family_list = {
    "list", "explicit tensors; names may count with {a-b}", expand_list};
