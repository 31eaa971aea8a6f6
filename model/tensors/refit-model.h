#pragma once

/*
 * A model: the full list of logical tensors under their names on the Hugging Face hub, expanded
 * from the facts of a `config.json`. A model file of schema refit.model/1 is YAML:
 *
 *   schema: refit.model/1
 *   name: qwen3-4b
 *   family: dense              # one of refit_model_families()
 *   source: Qwen/Qwen3-4B config.json
 *   config: {hidden_size: 2560, ...}     # hub key names; which ones depends on the family
 *   parameters: 4022468096     # published count, MTP layers included; checked when stated
 *   parameters_main: ...       # the same without MTP layers; for models that have some
 *   native:                    # optional: the published checkpoint quantizes matrices
 *     style: fp8_block         # plain, fp8_block, fp8_channel or mxfp4
 *     linears: [attention]     # and linear_attention, dense, expert, shared, latent, mtp_head
 *     exclude: [in_proj_a]     # optional: texts in names of tensors that stay as they are
 *     scale: f32               # optional: dtype of FP8 scales
 *     block: [128, 128]        # optional: rows and columns of fp8_block
 *   fp8: {...}                 # optional: the FP8 form, where native is not it
 *   note: free text            # optional, as is source
 *
 * or, for explicit models, `family: list` with
 *
 *   tensors:
 *     - {name: "layers.{0-3}.mlp.up_proj.weight", shape: [16, 8], dtype: bf16, role: dense_up}
 *   config: {num_attention_heads: 4, num_key_value_heads: 2}      # optional
 *
 * where {a-b} counts inclusively (the last range of a name fastest). A number after "layers." fills
 * `layer`, one after "experts." fills `expert`. Optional: dtype (the options' one), role (other),
 * mtp (false), granule or tile (per dim, 0: cut anywhere), scale ({of: "w.{0-3}", block: [4, 4]}:
 * one element per block of a tensor listed before); in config also tie_word_embeddings.
 */

#include "model/base/refit-yaml.h"
#include "model/geometry/refit-geometry.h"

G_BEGIN_DECLS

/* X(SUFFIX, name): what a tensor is for; layouts and reports select by it. */
#define REFIT_ROLE_MAP(X)                                                                          \
    X(EMBEDDING, "embedding")                                                                      \
    X(LM_HEAD, "lm_head")                                                                          \
    X(NORM, "norm")                                                                                \
    X(ATTENTION_Q, "attention_q")                                                                  \
    X(ATTENTION_K, "attention_k")                                                                  \
    X(ATTENTION_V, "attention_v")                                                                  \
    X(ATTENTION_O, "attention_o")                                                                  \
    X(ATTENTION_Q_NORM, "attention_q_norm") /* over all query heads */                             \
    X(ATTENTION_K_NORM, "attention_k_norm") /* over all key heads */                               \
    X(ATTENTION_GATE, "attention_gate")                                                            \
    X(ATTENTION_SINK, "attention_sink") /* one number per query head */                            \
    X(MLA_Q_A, "mla_q_a")                                                                          \
    X(MLA_Q_B, "mla_q_b")                                                                          \
    X(MLA_KV_A, "mla_kv_a")                                                                        \
    X(MLA_KV_B, "mla_kv_b")                                                                        \
    X(SSM_IN, "ssm_in")             /* state-space and linear attention: inputs, by heads */       \
    X(SSM_LOW_RANK, "ssm_low_rank") /* inputs that all heads share */                              \
    X(SSM_CONV, "ssm_conv")                                                                        \
    X(SSM_HEAD, "ssm_head") /* vectors over heads: decays, time steps, norms */                    \
    X(SSM_OUT, "ssm_out")                                                                          \
    X(ROUTER, "router")                                                                            \
    X(DENSE_GATE, "dense_gate")                                                                    \
    X(DENSE_UP, "dense_up")                                                                        \
    X(DENSE_DOWN, "dense_down")                                                                    \
    X(SHARED_GATE, "shared_gate")                                                                  \
    X(SHARED_UP, "shared_up")                                                                      \
    X(SHARED_DOWN, "shared_down")                                                                  \
    X(SHARED_EXPERT_GATE, "shared_expert_gate")                                                    \
    X(LATENT_PROJ, "latent_proj") /* between hidden size and that of routed experts */             \
    X(EXPERT_GATE, "expert_gate")                                                                  \
    X(EXPERT_UP, "expert_up")                                                                      \
    X(EXPERT_DOWN, "expert_down")                                                                  \
    X(EXPERT_GATE_UP, "expert_gate_up")     /* stacked: [experts, out, in] */                      \
    X(EXPERT_GATE_UP_T, "expert_gate_up_t") /* stacked: [experts, in, out], gate and up in turn */ \
    X(EXPERT_GATE_UP_HALVES_T, "expert_gate_up_halves_t") /* the same, gate before up */           \
    X(EXPERT_DOWN_T, "expert_down_t")                     /* stacked: [experts, in, out] */        \
    X(EXPERT_GATE_UP_BIAS, "expert_gate_up_bias")                                                  \
    X(EXPERT_DOWN_BIAS, "expert_down_bias")                                                        \
    X(RESIDUAL_PROJ, "residual_proj") /* weighs earlier layers */                                  \
    X(VISION, "vision")               /* all of an image encoder */                                \
    X(MTP_PROJ, "mtp_proj")                                                                        \
    X(BUFFER, "buffer") /* computed, not trained: no parameters */                                 \
    X(OTHER, "other")

typedef enum {
#define X(suffix, name) REFIT_ROLE_##suffix,
    REFIT_ROLE_MAP(X)
#undef X
        REFIT_N_ROLES
} RefitRole;

const char *refit_role_name(RefitRole role); /* static string */
gboolean refit_role_read(RefitNode *node, RefitRole *role_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

#define REFIT_NO_LAYER (-1)
#define REFIT_NO_EXPERT (-1)
#define REFIT_MAX_PACKED 6

typedef struct {
    char *name;
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    RefitDtype dtype;
    RefitRole role;
    gint layer;  /* decoder layer, num_hidden_layers + i for MTP layer i, or REFIT_NO_LAYER */
    gint expert; /* routed expert number, or REFIT_NO_EXPERT */
    gboolean mtp;
    guint64 elements;
    guint64 bytes;
    guint64 parameters; /* numbers of the plain form that it stands for: 0 for scales, buffers */
    /*
     * A packed projection: dim `packed_dim` is n_packed segments side by side, each cut on its own.
     * A segment is `units` heads or groups of equal size that stay whole (its extent: rows that may
     * be cut anywhere but evenly); 0: padding, cut in any way. n_packed 0: one piece.
     */
    guint n_packed, packed_dim;
    struct {
        guint64 extent;
        guint units;
    } packed[REFIT_MAX_PACKED];
    /*
     * Quantized forms. A scale tensor has one element per block of another tensor: `block[d]`
     * indices of that tensor's dim d per index of its own. Layouts place it after its tensor.
     */
    gboolean scale;
    guint scale_of; /* with `scale`: that tensor */
    guint32 block[REFIT_MAX_DIMS];
    /* Cuts of dim d fall on multiples of granule[d] or on the end; 0: anywhere. */
    guint32 granule[REFIT_MAX_DIMS];
    gboolean tiled; /* granules are tiles of a swizzled order; only the error code differs */
    /* Read from a file, and not known to the family: what engines do with it cannot be told. It
     * has REFIT_ROLE_OTHER or REFIT_ROLE_VISION, which are held whole. */
    gboolean unknown;
} RefitTensor;

typedef struct _RefitModel RefitModel; /* reference counted, immutable */

/* In which numbers the weights are written. */
typedef enum {
    REFIT_FORM_PLAIN,     /* all in one dtype */
    REFIT_FORM_NATIVE,    /* as the published checkpoint: FP8 blocks, MXFP4, or plain */
    REFIT_FORM_FP8_BLOCK, /* matrices of linear layers in FP8 with a scale per block or row */
} RefitForm;

typedef struct {
    RefitDtype dtype; /* of all weights that the form does not quantize; tensors that stay in F32
                         (router biases) keep it */
    gboolean mtp;     /* include multi-token-prediction layers */
    RefitForm form;
    gboolean dtype_stated; /* the user asked for dtype; files with tensors have their own */
} RefitModelOptions;

/*
 * The form that a text names: `native`, `fp8`, or a dtype for the plain form. Sets form and dtype;
 * native and fp8 have BF16 for all that is not quantized. REFIT_ERROR_INVALID lists what is known.
 */
gboolean refit_model_form_parse(const char *text, RefitModelOptions *options, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* The same for a value of a file, with its place in the error. */
gboolean refit_model_form_read(RefitNode *node, RefitModelOptions *options, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* What refit_model_form_parse() accepts for it. Static string. */
const char *refit_model_form_name(const RefitModelOptions *options);

/*
 * `root` is the root node of a refit.model/1 document. Rejects duplicate names.
 * REFIT_ERROR_INVALID when REFIT_FORM_FP8_BLOCK is asked of a model file that states no FP8 form.
 */
RefitModel *refit_model_parse(RefitNode *root, const RefitModelOptions *options, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * A model of the given tensors, copied in their order, for programs; elements, bytes and parameters
 * (the elements, but of scales and buffers) are computed. REFIT_ERROR_NAME_COLLISION,
 * REFIT_ERROR_OVERFLOW.
 */
RefitModel *refit_model_new(const char *name, const RefitTensor *tensors, guint n_tensors,
                            GError **error) G_GNUC_WARN_UNUSED_RESULT;
RefitModel *refit_model_ref(RefitModel *model);
void refit_model_unref(RefitModel *model);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitModel, refit_model_unref)

const char *refit_model_name(const RefitModel *model);
/* That of refit_model_families() which its tensors are of; NULL for given tensors. */
const char *refit_model_family(const RefitModel *model);
/* Tensors that are `unknown`, and their bytes. Cost: linear in the tensors. */
guint refit_model_n_unknown(const RefitModel *model, guint64 *bytes_out);
/* Unknown tensors whose names differ in numbers only. */
typedef struct {
    char *names; /* with '*' in place of numbers */
    guint n_tensors;
    guint64 bytes;
} RefitUnknownNames;
/* Of RefitUnknownNames, the most bytes first, then by name. */
GArray *refit_model_unknown_names(const RefitModel *model);
/*
 * A copy of `model` in which unknown tensors are what `roles` says, a list of {tensors: PATTERN,
 * role: ROLE}; the first pattern that fits holds. REFIT_ERROR_INVALID for a pattern that fits none,
 * and a shape that the role cannot have.
 */
RefitModel *refit_model_state_roles(RefitModel *model, RefitNode *roles, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * The tensors of `model` that patterns of `only` fit, all when NULL, without those that patterns of
 * `except` fit; each a text or a list of texts. REFIT_ERROR_INVALID for a pattern that fits none,
 * and when nothing is left.
 */
RefitModel *refit_model_select(RefitModel *model, RefitNode *only, RefitNode *except,
                               GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* What refit_model_form_name() gives for it; NULL for given tensors. Static string. */
const char *refit_model_form(const RefitModel *model);
guint refit_model_n_tensors(const RefitModel *model);
const RefitTensor *refit_model_tensor(const RefitModel *model, guint index);
/* Those of all tensors. */
guint64 refit_model_parameters(const RefitModel *model);
guint64 refit_model_bytes(const RefitModel *model);
guint refit_model_n_layers(const RefitModel *model);  /* decoder layers without MTP */
guint refit_model_n_experts(const RefitModel *model); /* routed experts per MoE layer, 0 if none */
/* Groups that routers choose experts from, n_group of a config; 0 when unknown. */
guint refit_model_n_expert_groups(const RefitModel *model);
guint refit_model_n_heads(const RefitModel *model); /* attention heads, 0 when unknown */
guint refit_model_n_kv_heads(const RefitModel *model);
gboolean refit_model_tied_embeddings(const RefitModel *model);
/* Families known to refit_model_parse, NULL-terminated. Static. */
const char *const *refit_model_families(void);

G_END_DECLS
