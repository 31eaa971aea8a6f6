#pragma once

/*
 * How models are expanded; shared by the files of the model module only.
 *
 * A family turns the facts of a `config.json` into tensors. Its parts are data: a *block* is a list
 * of tensor templates, and a template is a name suffix, a role and a shape whose extents are
 * numbers of facts. The family's function reads its facts, derives the products that shapes need,
 * and emits blocks layer by layer. A new family is one function and its own blocks in a new file
 * and one line in REFIT_MODEL_FAMILY_MAP.
 */

#include "refit-model.h"

G_BEGIN_DECLS

/* Limits on what a file can ask for, so that a typing mistake cannot exhaust memory. */
#define REFIT_MODEL_MAX_TENSORS 4000000u
#define REFIT_MODEL_MAX_COUNT (1u << 20) /* layers, experts, heads */
#define REFIT_MODEL_MAX_SIZE (1u << 24)  /* extents stated in a config */

/*
 * X(SUFFIX, key, kind, min, max): hub keys, in the meaning that the hub's model code gives them.
 * A key with min == max states something that only one value of is supported.
 */
#define REFIT_FACT_MAP(X)                                                                          \
    X(HIDDEN_SIZE, "hidden_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                                  \
    X(VOCAB_SIZE, "vocab_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                                    \
    X(NUM_HIDDEN_LAYERS, "num_hidden_layers", COUNT, 1, REFIT_MODEL_MAX_COUNT)                     \
    X(NUM_NEXTN_PREDICT_LAYERS, "num_nextn_predict_layers", COUNT, 0, REFIT_MODEL_MAX_COUNT)       \
    X(TIE_WORD_EMBEDDINGS, "tie_word_embeddings", FLAG, 0, 1)                                      \
    X(NUM_ATTENTION_HEADS, "num_attention_heads", COUNT, 1, REFIT_MODEL_MAX_COUNT)                 \
    X(NUM_KEY_VALUE_HEADS, "num_key_value_heads", COUNT, 1, REFIT_MODEL_MAX_COUNT)                 \
    X(HEAD_DIM, "head_dim", COUNT, 1, REFIT_MODEL_MAX_SIZE)                                        \
    X(ATTENTION_BIAS, "attention_bias", FLAG, 0, 1)                                                \
    X(QK_NORM, "qk_norm", FLAG, 0, 1)                                                              \
    X(Q_LORA_RANK, "q_lora_rank", COUNT, 1, REFIT_MODEL_MAX_SIZE)                                  \
    X(KV_LORA_RANK, "kv_lora_rank", COUNT, 1, REFIT_MODEL_MAX_SIZE)                                \
    X(QK_NOPE_HEAD_DIM, "qk_nope_head_dim", COUNT, 1, REFIT_MODEL_MAX_SIZE)                        \
    X(QK_ROPE_HEAD_DIM, "qk_rope_head_dim", COUNT, 1, REFIT_MODEL_MAX_SIZE)                        \
    X(V_HEAD_DIM, "v_head_dim", COUNT, 1, REFIT_MODEL_MAX_SIZE)                                    \
    X(INTERMEDIATE_SIZE, "intermediate_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                      \
    X(MOE_INTERMEDIATE_SIZE, "moe_intermediate_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)              \
    X(NUM_EXPERTS, "num_experts", COUNT, 1, REFIT_MODEL_MAX_COUNT)                                 \
    X(N_ROUTED_EXPERTS, "n_routed_experts", COUNT, 1, REFIT_MODEL_MAX_COUNT)                       \
    X(N_SHARED_EXPERTS, "n_shared_experts", COUNT, 0, REFIT_MODEL_MAX_COUNT)                       \
    X(NUM_EXPERTS_PER_TOK, "num_experts_per_tok", COUNT, 1, REFIT_MODEL_MAX_COUNT)                 \
    X(FIRST_K_DENSE_REPLACE, "first_k_dense_replace", COUNT, 0, REFIT_MODEL_MAX_COUNT)             \
    X(MOE_LAYER_FREQ, "moe_layer_freq", COUNT, 1, 1)                                               \
    X(DECODER_SPARSE_STEP, "decoder_sparse_step", COUNT, 1, 1)

/*
 * Facts that families derive. A product of two keys fits in 64 bits by their limits; only volumes
 * of tensors are checked.
 */
typedef enum {
    REFIT_FACT_NONE, /* its value is 0 */
#define X(suffix, key, kind, min, max) REFIT_FACT_##suffix,
    REFIT_FACT_MAP(X)
#undef X
        REFIT_FACT_UNTIED, /* the output head is a tensor of its own */
    REFIT_FACT_Q_WIDTH,    /* all query heads */
    REFIT_FACT_KV_WIDTH,   /* all key or all value heads */
    REFIT_FACT_QKV_BIAS,
    REFIT_FACT_O_BIAS,
    REFIT_FACT_MLA_Q_WIDTH,  /* query heads, with and without position part */
    REFIT_FACT_MLA_KV_A,     /* compressed keys and values and the shared position part */
    REFIT_FACT_MLA_KV_WIDTH, /* keys without position part and values of all heads */
    REFIT_FACT_MLA_V_WIDTH,  /* values of all heads */
    REFIT_FACT_EXPERTS,      /* routed experts under whichever key */
    REFIT_FACT_SHARED_SIZE,  /* all shared experts as one FFN */
    REFIT_FACT_TWICE_HIDDEN,
    REFIT_FACT_OWN, /* first number that a family may use as it likes */
    REFIT_N_FACTS = 64
} RefitFact;

typedef struct {
    RefitFact fact;
    gboolean required; /* else 0 when absent */
} RefitFactUse;

/*
 * Reads the keys of `uses` from the mapping `config` into `facts` (REFIT_N_FACTS values, zeroed
 * here). Unknown keys are rejected before missing ones, so that a misspelt key is named.
 */
gboolean refit_facts_read(RefitNode *config, const RefitFactUse *uses, guint n_uses, guint64 *facts,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Sets an error at the value of `fact`, or at `config` when the key is absent. */
void refit_facts_error(RefitNode *config, RefitFact fact, GError **error, const char *format, ...)
    G_GNUC_PRINTF(4, 5);

#define REFIT_TEMPLATE_MAX_DIMS 4

typedef struct {
    const char *suffix; /* of the name, after the prefix of the layer or expert */
    RefitRole role;
    guint8 dims[REFIT_TEMPLATE_MAX_DIMS]; /* facts, up to the first REFIT_FACT_NONE */
    guint8 when;                          /* emitted when this fact is not 0; NONE: always */
    gboolean keeps_f32;                   /* not converted with the weights */
} RefitTemplate;

typedef struct {
    guint n;
    const RefitTemplate *templates;
} RefitBlock;

/* Rows of a table of templates; extents and `when` are facts without their prefix. */
#define REFIT_VECTOR(suffix, role, extent, when)                                                   \
    { suffix, REFIT_ROLE_##role, {REFIT_FACT_##extent}, REFIT_FACT_##when, FALSE }
#define REFIT_VECTOR_F32(suffix, role, extent, when)                                               \
    { suffix, REFIT_ROLE_##role, {REFIT_FACT_##extent}, REFIT_FACT_##when, TRUE }
#define REFIT_MATRIX(suffix, role, rows, columns, when)                                            \
    {                                                                                              \
        suffix, REFIT_ROLE_##role, {REFIT_FACT_##rows, REFIT_FACT_##columns}, REFIT_FACT_##when,   \
            FALSE                                                                                  \
    }

/* Initializer of a block from a static array of templates. */
#define REFIT_BLOCK(array)                                                                         \
    { G_N_ELEMENTS(array), (array) }

/* Blocks that several families share; names are those of Llama, Qwen3 and DeepSeek-V3. */
extern const RefitBlock refit_block_embeddings; /* global: VOCAB_SIZE, UNTIED */
extern const RefitBlock refit_block_final_norm; /* global */
extern const RefitBlock refit_block_layer_norms;
extern const RefitBlock refit_block_gqa; /* Q_WIDTH, KV_WIDTH, QKV_BIAS, O_BIAS, QK_NORM */
extern const RefitBlock refit_block_mla;
extern const RefitBlock refit_block_dense_ffn; /* INTERMEDIATE_SIZE */
extern const RefitBlock refit_block_expert;    /* MOE_INTERMEDIATE_SIZE */
extern const RefitBlock refit_block_deepseek_router;
extern const RefitBlock refit_block_deepseek_shared; /* SHARED_SIZE */
extern const RefitBlock refit_block_deepseek_mtp;    /* TWICE_HIDDEN */

/*
 * A model being expanded. Families run twice over it: first only counting, so that the limit on
 * tensors is checked and memory reserved before anything is built.
 */
typedef struct {
    RefitModelOptions options;
    RefitNode *place; /* of errors about single tensors; set by the family */
    gboolean counting;
    guint n_counted;

    GArray *tensors; /* RefitTensor */
    GStringChunk *names;
    GString *prefix; /* "model.layers.3." while inside a layer */
    gint layer;
    gint expert;
    gboolean mtp;

    guint64 parameters;      /* of the tensors kept */
    guint64 bytes;           /* of the tensors kept */
    guint64 parameters_main; /* without MTP layers */
    guint64 parameters_all;  /* with MTP layers, also when options leave them out */

    /* Written by the family. */
    guint n_layers, n_experts, n_heads, n_kv_heads;
    gboolean tied_embeddings;
} RefitModelBuilder;

/* Following blocks belong to `layer`: their names begin with PREFIX LAYER and a dot. */
void refit_model_builder_enter_layer(RefitModelBuilder *builder, const char *prefix, guint layer,
                                     gboolean mtp);
void refit_model_builder_leave_layer(RefitModelBuilder *builder);
gboolean refit_model_builder_emit(RefitModelBuilder *builder, const RefitBlock *block,
                                  const guint64 *facts, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* The block once for each expert, named `infix` ("mlp.experts.") NUMBER and a dot. */
gboolean refit_model_builder_emit_experts(RefitModelBuilder *builder, const RefitBlock *block,
                                          const char *infix, guint n_experts, const guint64 *facts,
                                          GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Counting pass: `n` more tensors. REFIT_ERROR_INVALID beyond REFIT_MODEL_MAX_TENSORS. */
gboolean refit_model_builder_count(RefitModelBuilder *builder, guint64 n, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Building pass: appends a copy of `tensor` (name copied; elements and bytes computed here) unless
 * it belongs to an MTP layer and those are left out. REFIT_ERROR_OVERFLOW when sizes do not fit.
 */
gboolean refit_model_builder_add(RefitModelBuilder *builder, const RefitTensor *tensor,
                                 GError **error) G_GNUC_WARN_UNUSED_RESULT;

typedef struct {
    const char *name;
    const char *summary;
    /* Reads its keys from the root of the model file and emits all tensors in hub order. */
    gboolean (*expand)(RefitModelBuilder *builder, RefitNode *root, GError **error);
} RefitModelFamily;

/* X(name): each is a `const RefitModelFamily refit_model_family_NAME` in some file. */
#define REFIT_MODEL_FAMILY_MAP(X)                                                                  \
    X(dense)                                                                                       \
    X(qwen3_moe)                                                                                   \
    X(deepseek_v3)                                                                                 \
    X(list)

#define X(name) extern const RefitModelFamily refit_model_family_##name;
REFIT_MODEL_FAMILY_MAP(X)
#undef X

G_END_DECLS
