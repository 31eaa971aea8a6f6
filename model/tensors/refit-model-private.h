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

#include "model/tensors/refit-model.h"

G_BEGIN_DECLS

/* Limits on what a file can ask for, so that a typing mistake cannot exhaust memory. */
#define REFIT_MODEL_MAX_TENSORS 4000000u
#define REFIT_MODEL_MAX_COUNT (1u << 20) /* layers, experts, heads */
#define REFIT_MODEL_MAX_SIZE (1u << 24)  /* extents stated in a config */
#define REFIT_MODEL_MAX_EDGE (1u << 10)  /* kernels, patches */

/*
 * X(SUFFIX, key, kind, min, max): hub keys, in the meaning that the hub's model code gives them.
 * A key with min == max states something that only one value of is supported.
 * Facts of a hub's `text_config` stand in `config` itself. Not from the hub, but of a checkpoint:
 * linear_keeps_f32, mtp_shares_ends (MTP layers have no embedding and head of their own),
 * mtp_stacked_experts, a_log_size and rotary_inv_freq (the length of a buffer
 * stored with each attention of the native form); merge_size is each of the hub's two
 * merge_kernel_size.
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
    X(QKV_BIAS, "qkv_bias", FLAG, 0, 1)                                                            \
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
    X(N_GROUP, "n_group", COUNT, 1, REFIT_MODEL_MAX_COUNT)                                         \
    X(NUM_EXPERTS_PER_TOK, "num_experts_per_tok", COUNT, 1, REFIT_MODEL_MAX_COUNT)                 \
    X(FIRST_K_DENSE_REPLACE, "first_k_dense_replace", COUNT, 0, REFIT_MODEL_MAX_COUNT)             \
    X(MTP_SHARES_ENDS, "mtp_shares_ends", FLAG, 0, 1)                                              \
    X(MOE_LAYER_FREQ, "moe_layer_freq", COUNT, 1, 1)                                               \
    X(DECODER_SPARSE_STEP, "decoder_sparse_step", COUNT, 1, 1)                                     \
    X(ROTARY_INV_FREQ, "rotary_inv_freq", COUNT, 1, REFIT_MODEL_MAX_SIZE)                          \
    /* Mixtral, MiniMax-M2, gpt-oss */                                                             \
    X(NUM_LOCAL_EXPERTS, "num_local_experts", COUNT, 1, REFIT_MODEL_MAX_COUNT)                     \
    X(USE_ROUTING_BIAS, "use_routing_bias", FLAG, 0, 1)                                            \
    /* Qwen3.5 */                                                                                  \
    X(FULL_ATTENTION_INTERVAL, "full_attention_interval", COUNT, 1, REFIT_MODEL_MAX_COUNT)         \
    X(ATTN_OUTPUT_GATE, "attn_output_gate", FLAG, 0, 1)                                            \
    X(LINEAR_NUM_KEY_HEADS, "linear_num_key_heads", COUNT, 1, REFIT_MODEL_MAX_COUNT)               \
    X(LINEAR_NUM_VALUE_HEADS, "linear_num_value_heads", COUNT, 1, REFIT_MODEL_MAX_COUNT)           \
    X(LINEAR_KEY_HEAD_DIM, "linear_key_head_dim", COUNT, 1, REFIT_MODEL_MAX_SIZE)                  \
    X(LINEAR_VALUE_HEAD_DIM, "linear_value_head_dim", COUNT, 1, REFIT_MODEL_MAX_SIZE)              \
    X(LINEAR_CONV_KERNEL_DIM, "linear_conv_kernel_dim", COUNT, 1, REFIT_MODEL_MAX_EDGE)            \
    X(LINEAR_KEEPS_F32, "linear_keeps_f32", FLAG, 0, 1)                                            \
    X(SHARED_EXPERT_INTERMEDIATE_SIZE, "shared_expert_intermediate_size", COUNT, 1,                \
      REFIT_MODEL_MAX_SIZE)                                                                        \
    X(MTP_NUM_HIDDEN_LAYERS, "mtp_num_hidden_layers", COUNT, 0, REFIT_MODEL_MAX_COUNT)             \
    X(MTP_STACKED_EXPERTS, "mtp_stacked_experts", FLAG, 0, 1)                                      \
    X(DEPTH, "depth", COUNT, 1, REFIT_MODEL_MAX_COUNT)                                             \
    X(IN_CHANNELS, "in_channels", COUNT, 1, REFIT_MODEL_MAX_EDGE)                                  \
    X(PATCH_SIZE, "patch_size", COUNT, 1, REFIT_MODEL_MAX_EDGE)                                    \
    X(TEMPORAL_PATCH_SIZE, "temporal_patch_size", COUNT, 1, REFIT_MODEL_MAX_EDGE)                  \
    X(SPATIAL_MERGE_SIZE, "spatial_merge_size", COUNT, 1, REFIT_MODEL_MAX_EDGE)                    \
    X(NUM_POSITION_EMBEDDINGS, "num_position_embeddings", COUNT, 1, REFIT_MODEL_MAX_SIZE)          \
    X(OUT_HIDDEN_SIZE, "out_hidden_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                          \
    /* Nemotron-H */                                                                               \
    X(MAMBA_NUM_HEADS, "mamba_num_heads", COUNT, 1, REFIT_MODEL_MAX_COUNT)                         \
    X(MAMBA_HEAD_DIM, "mamba_head_dim", COUNT, 1, REFIT_MODEL_MAX_SIZE)                            \
    X(N_GROUPS, "n_groups", COUNT, 1, REFIT_MODEL_MAX_COUNT)                                       \
    X(SSM_STATE_SIZE, "ssm_state_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                            \
    X(CONV_KERNEL, "conv_kernel", COUNT, 1, REFIT_MODEL_MAX_EDGE)                                  \
    X(USE_CONV_BIAS, "use_conv_bias", FLAG, 0, 1)                                                  \
    X(MOE_LATENT_SIZE, "moe_latent_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                          \
    X(MOE_SHARED_EXPERT_INTERMEDIATE_SIZE, "moe_shared_expert_intermediate_size", COUNT, 1,        \
      REFIT_MODEL_MAX_SIZE)                                                                        \
    /* Kimi K3 */                                                                                  \
    X(MLA_USE_OUTPUT_GATE, "mla_use_output_gate", FLAG, 0, 1)                                      \
    X(NUM_EXPERTS_PER_TOKEN, "num_experts_per_token", COUNT, 1, REFIT_MODEL_MAX_COUNT)             \
    X(NUM_SHARED_EXPERTS, "num_shared_experts", COUNT, 0, REFIT_MODEL_MAX_COUNT)                   \
    X(ROUTED_EXPERT_HIDDEN_SIZE, "routed_expert_hidden_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)      \
    X(NUM_HEADS, "num_heads", COUNT, 1, REFIT_MODEL_MAX_COUNT)                                     \
    X(SHORT_CONV_KERNEL_SIZE, "short_conv_kernel_size", COUNT, 1, REFIT_MODEL_MAX_EDGE)            \
    X(A_LOG_SIZE, "a_log_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                                    \
    X(VT_HIDDEN_SIZE, "vt_hidden_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                            \
    X(VT_INTERMEDIATE_SIZE, "vt_intermediate_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                \
    X(VT_NUM_HIDDEN_LAYERS, "vt_num_hidden_layers", COUNT, 1, REFIT_MODEL_MAX_COUNT)               \
    X(QKV_HIDDEN_SIZE, "qkv_hidden_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)                          \
    X(INIT_POS_EMB_HEIGHT, "init_pos_emb_height", COUNT, 1, REFIT_MODEL_MAX_SIZE)                  \
    X(INIT_POS_EMB_WIDTH, "init_pos_emb_width", COUNT, 1, REFIT_MODEL_MAX_SIZE)                    \
    X(MERGE_SIZE, "merge_size", COUNT, 1, REFIT_MODEL_MAX_EDGE)                                    \
    X(TEXT_HIDDEN_SIZE, "text_hidden_size", COUNT, 1, REFIT_MODEL_MAX_SIZE)

/*
 * Facts that families derive. A product of two keys, and one of two more edges, fits in 64 bits by
 * their limits; only volumes of tensors are checked.
 */
typedef enum {
    REFIT_FACT_NONE, /* its value is 0 */
#define X(suffix, key, kind, min, max) REFIT_FACT_##suffix,
    REFIT_FACT_MAP(X)
#undef X
        REFIT_FACT_UNTIED, /* the output head is a tensor of its own */
    REFIT_FACT_ONE,
    REFIT_FACT_Q_WIDTH,  /* all query heads */
    REFIT_FACT_Q_ROWS,   /* the same, and as much again where queries carry an output gate */
    REFIT_FACT_KV_WIDTH, /* all key or all value heads */
    REFIT_FACT_O_BIAS,
    REFIT_FACT_FULL_QK_NORM, /* query and key norms over all heads instead of one */
    REFIT_FACT_MLA_PLAIN_Q,  /* queries are not compressed: one projection */
    REFIT_FACT_MLA_Q_WIDTH,  /* query heads, with and without position part */
    REFIT_FACT_MLA_KV_A,     /* compressed keys and values and the shared position part */
    REFIT_FACT_MLA_KV_WIDTH, /* keys without position part and values of all heads */
    REFIT_FACT_MLA_V_WIDTH,  /* values of all heads */
    REFIT_FACT_EXPERTS,      /* routed experts under whichever key */
    REFIT_FACT_SHARED_SIZE,  /* all shared experts as one FFN */
    REFIT_FACT_TWICE_HIDDEN,
    REFIT_FACT_MTP_ENDS, /* MTP layers have an embedding and a head of their own */
    REFIT_FACT_OWN,      /* first number that a family may use as it likes */
    REFIT_N_FACTS = 128
} RefitFact;

typedef struct {
    RefitFact fact;
    gboolean required; /* else 0 when absent */
} RefitFactUse;

/* The first rows of the uses of most families. */
#define REFIT_FACTS_OF_A_STACK                                                                     \
    {REFIT_FACT_HIDDEN_SIZE, TRUE}, {REFIT_FACT_VOCAB_SIZE, TRUE},                                 \
        {REFIT_FACT_NUM_HIDDEN_LAYERS, TRUE}, {REFIT_FACT_TIE_WORD_EMBEDDINGS, FALSE},             \
        {REFIT_FACT_NUM_ATTENTION_HEADS, TRUE}, {                                                  \
        REFIT_FACT_NUM_KEY_VALUE_HEADS, FALSE                                                      \
    }

/*
 * Reads the keys of `uses` from the mapping `config` into `facts` (REFIT_N_FACTS values, zeroed
 * here). Unknown keys are rejected before missing ones, so that a misspelt key is named.
 */
gboolean refit_facts_read(RefitNode *config, const RefitFactUse *uses, guint n_uses, guint64 *facts,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Sets an error at the value of `fact`, or at `config` when the key is absent. */
void refit_facts_error(RefitNode *config, RefitFact fact, GError **error, const char *format, ...)
    G_GNUC_PRINTF(4, 5);

#define REFIT_TEMPLATE_MAX_DIMS 5

/* Segments of a packed projection; extents and units are facts, and an extent of 0 is left out. */
typedef struct {
    guint8 dim, n;
    struct {
        guint8 extent, units;
    } segments[REFIT_MAX_PACKED];
} RefitTemplatePacking;

typedef struct {
    const char *suffix; /* of the name, after the prefix of the layer or expert */
    RefitRole role;
    guint8 dims[REFIT_TEMPLATE_MAX_DIMS]; /* facts, up to the first REFIT_FACT_NONE */
    guint8 when;                          /* emitted when this fact is not 0; NONE: always */
    gboolean keeps_f32;                   /* not converted with the weights */
    const RefitTemplatePacking *packing;  /* NULL: one piece */
} RefitTemplate;

typedef struct {
    guint n;
    const RefitTemplate *templates;
} RefitBlock;

/* Rows of a table of templates; extents and `when` are facts without their prefix. */
#define REFIT_TENSOR_ROW(suffix, role, when, keeps_f32, packing, ...)                              \
    { suffix, REFIT_ROLE_##role, {__VA_ARGS__}, REFIT_FACT_##when, keeps_f32, packing }
#define REFIT_VECTOR(suffix, role, extent, when)                                                   \
    REFIT_TENSOR_ROW(suffix, role, when, FALSE, NULL, REFIT_FACT_##extent)
#define REFIT_VECTOR_F32(suffix, role, extent, when)                                               \
    REFIT_TENSOR_ROW(suffix, role, when, TRUE, NULL, REFIT_FACT_##extent)
#define REFIT_MATRIX(suffix, role, rows, columns, when)                                            \
    REFIT_TENSOR_ROW(suffix, role, when, FALSE, NULL, REFIT_FACT_##rows, REFIT_FACT_##columns)
#define REFIT_MATRIX_F32(suffix, role, rows, columns, when)                                        \
    REFIT_TENSOR_ROW(suffix, role, when, TRUE, NULL, REFIT_FACT_##rows, REFIT_FACT_##columns)
#define REFIT_VOLUME(suffix, role, a, b, c, when)                                                  \
    REFIT_TENSOR_ROW(suffix, role, when, FALSE, NULL, REFIT_FACT_##a, REFIT_FACT_##b,              \
                     REFIT_FACT_##c)

/* Initializer of a block from a static array of templates. */
#define REFIT_BLOCK(array)                                                                         \
    { G_N_ELEMENTS(array), (array) }

/* Blocks that several families share; names are those of Llama, Qwen3 and DeepSeek-V3. */
extern const RefitBlock refit_block_embeddings; /* global: VOCAB_SIZE, UNTIED */
extern const RefitBlock refit_block_final_norm; /* global */
extern const RefitBlock refit_block_layer_norms;
/* Q_ROWS, Q_WIDTH, KV_WIDTH, QKV_BIAS, O_BIAS, QK_NORM, FULL_QK_NORM */
extern const RefitBlock refit_block_gqa;
extern const RefitBlock refit_block_mla;
extern const RefitBlock refit_block_dense_ffn; /* INTERMEDIATE_SIZE */
extern const RefitBlock refit_block_expert;    /* MOE_INTERMEDIATE_SIZE */
extern const RefitBlock refit_block_router;    /* EXPERTS */
extern const RefitBlock refit_block_deepseek_router;
extern const RefitBlock refit_block_deepseek_shared; /* SHARED_SIZE */
extern const RefitBlock refit_block_deepseek_mtp;    /* TWICE_HIDDEN, MTP_ENDS */

/*
 * How a form writes matrices of linear layers: which of them, and as what. See docs/model.md.
 */
typedef enum {
    REFIT_STYLE_PLAIN,
    REFIT_STYLE_FP8_BLOCK,   /* E4M3 and a scale per block */
    REFIT_STYLE_FP8_CHANNEL, /* E4M3 and a scale per row */
    REFIT_STYLE_MXFP4,       /* two numbers a byte and a scale per 32 columns */
} RefitStyle;

typedef struct {
    RefitStyle style;
    guint linears; /* a bit for each group of linear layers that is quantized */
    guint32 block[2];
    RefitDtype scale_dtype;
    RefitNode *exclude; /* texts in names of tensors that stay as they are; may be NULL */
} RefitQuantization;

/*
 * Reads `native:` and `fp8:` of a model file and gives what `form` asks for. REFIT_ERROR_INVALID
 * when the file has no FP8 form.
 */
gboolean refit_quantization_read(RefitNode *root, RefitForm form, RefitQuantization *out,
                                 GError **error) G_GNUC_WARN_UNUSED_RESULT;
gboolean refit_quantization_covers(const RefitQuantization *quantization,
                                   const RefitTensor *tensor);
/*
 * The pair that stands for a covered tensor, without elements and bytes; names are to be freed.
 * The scale is to follow its weight and gets scale_of from the caller. REFIT_ERROR_INVALID for
 * sizes that the style cannot write.
 */
gboolean refit_quantization_apply(const RefitQuantization *quantization, const RefitTensor *tensor,
                                  RefitTensor *weight_out, RefitTensor *scale_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* The form has a matrix per expert where the plain form may stack them. */
gboolean refit_quantization_splits_experts(const RefitQuantization *quantization);

/*
 * A model being expanded. Families run twice over it: first only counting, so that the limit on
 * tensors is checked and memory reserved before anything is built.
 */
typedef struct {
    RefitModelOptions options;
    RefitQuantization quantization;
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
    guint n_layers, n_experts, n_expert_groups, n_heads, n_kv_heads;
    gboolean tied_embeddings;
} RefitModelBuilder;

/*
 * Following blocks belong to `layer` (REFIT_NO_LAYER: to none) and their names begin with the text
 * of `format`.
 */
void refit_model_builder_enter(RefitModelBuilder *builder, gint layer, gboolean mtp,
                               const char *format, ...) G_GNUC_PRINTF(4, 5);
/* Back to names without prefix, outside layers. */
void refit_model_builder_leave(RefitModelBuilder *builder);
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
 * Building pass: appends a copy of `tensor` (name copied; elements and bytes computed here), or the
 * weight and the scale that the form has in its place, unless it belongs to an MTP layer and those
 * are left out. REFIT_ERROR_OVERFLOW when sizes do not fit.
 */
gboolean refit_model_builder_add(RefitModelBuilder *builder, const RefitTensor *tensor,
                                 GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* N of the first component "WORD.N" of a dotted name; -1 when there is none within the limits. */
gint refit_name_number(const char *name, const char *word);

/* `text` becomes `name` with `mark` for each component that is a number: "layers.#.up". */
void refit_name_take_numbers(const char *name, char mark, GString *text);

/* What cannot be seen in a list of tensors, or only in part of it. */
typedef struct {
    const char *family; /* static, of refit_model_families(); NULL: none */
    guint n_layers, n_experts, n_expert_groups, n_heads, n_kv_heads;
    gboolean tied_embeddings;
} RefitModelCounts;

/* The family that `text` begins with, up to a comma, as refit_model_families() has it; or NULL. */
const char *refit_model_family_name(const char *text);

/* As refit_model_new(), with these counts. */
RefitModel *refit_model_new_counted(const char *name, const RefitTensor *tensors, guint n_tensors,
                                    const RefitModelCounts *counts, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* As refit_model_new(), with the name, form, family and counts of `like`. */
RefitModel *refit_model_new_like(const RefitModel *like, const RefitTensor *tensors,
                                 guint n_tensors, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* ---- what families share ---- */

#define REFIT_LAYER_PREFIX "model.layers.%u."
#define REFIT_EXPERT_INFIX "mlp.experts."

/* The mapping `config:` of a model file, for families that read more than facts from it. */
RefitNode *refit_family_config(RefitNode *root, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Reads `uses` from it, fills in what all families have, and points further errors at it. */
gboolean refit_family_read(RefitModelBuilder *builder, RefitNode *config, const RefitFactUse *uses,
                           guint n_uses, guint64 *facts, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Both in one; NULL on error. */
RefitNode *refit_family_read_config(RefitModelBuilder *builder, RefitNode *root,
                                    const RefitFactUse *uses, guint n_uses, guint64 *facts,
                                    GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* KV heads default to one per query head. */
gboolean refit_family_derive_kv_heads(RefitModelBuilder *builder, RefitNode *config, guint64 *facts,
                                      GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Everything of refit_block_gqa. */
gboolean refit_family_derive_gqa(RefitModelBuilder *builder, RefitNode *config, guint64 *facts,
                                 GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Everything of refit_block_mla. */
void refit_family_derive_mla(guint64 *facts);
/* EXPERTS from the key `count`; `chosen` is the key of how many a token uses. */
gboolean refit_family_derive_experts(RefitModelBuilder *builder, RefitNode *config, RefitFact count,
                                     RefitFact chosen, guint64 *facts, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* FIRST_K_DENSE_REPLACE is at most the number of layers. */
gboolean refit_family_check_dense_layers(const RefitModelBuilder *builder, RefitNode *config,
                                         const guint64 *facts, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
typedef gboolean (*RefitLayerFunc)(RefitModelBuilder *builder, guint layer, const guint64 *facts,
                                   GError **error);
/* Embeddings, `n` layers and the final norm, under the names of Llama. */
gboolean refit_family_emit_stack(RefitModelBuilder *builder, guint n, RefitLayerFunc emit_layer,
                                 const guint64 *facts, GError **error) G_GNUC_WARN_UNUSED_RESULT;

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
    X(qwen3_5_moe)                                                                                 \
    X(mixtral)                                                                                     \
    X(deepseek_v3)                                                                                 \
    X(glm4_moe)                                                                                    \
    X(gpt_oss)                                                                                     \
    X(nemotron_h)                                                                                  \
    X(kimi_k3)                                                                                     \
    X(list)

#define X(name) extern const RefitModelFamily refit_model_family_##name;
REFIT_MODEL_FAMILY_MAP(X)
#undef X

G_END_DECLS
