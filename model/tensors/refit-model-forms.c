/*
 * Forms of the weights: what a published checkpoint, or an FP8 one, has in place of a matrix.
 *
 * A model file says of each form which groups of linear layers it quantizes and how; the role of a
 * tensor says to which group it belongs. A covered matrix becomes two tensors, the numbers and
 * their scales, which are linked so that layouts can place the second after the first. Block
 * borders are granules: a matrix cut inside a block would need scales that nobody computed. Cost:
 * constant per tensor, and one search per excluded text.
 */

#include "model/tensors/refit-model-private.h"

#include <string.h>

#define FP8_BLOCK 128u  /* rows and columns, unless a file says otherwise */
#define MXFP4_GROUP 32u /* numbers that share a scale */
#define MXFP4_PER_BYTE 2u
#define MAX_BLOCK (1u << 16)

/* X(SUFFIX, name): groups of linear layers */
#define LINEAR_MAP(X)                                                                              \
    X(ATTENTION, "attention")                                                                      \
    X(LINEAR_ATTENTION, "linear_attention")                                                        \
    X(DENSE, "dense")                                                                              \
    X(EXPERT, "expert")                                                                            \
    X(SHARED, "shared")                                                                            \
    X(LATENT, "latent")                                                                            \
    X(MTP_HEAD, "mtp_head")

typedef enum {
#define X(suffix, name) LINEAR_##suffix,
    LINEAR_MAP(X)
#undef X
        N_LINEARS
} Linear;

static Linear linear_of(const RefitTensor *tensor) {
    switch (tensor->role) {
    case REFIT_ROLE_ATTENTION_Q:
    case REFIT_ROLE_ATTENTION_K:
    case REFIT_ROLE_ATTENTION_V:
    case REFIT_ROLE_ATTENTION_O:
    case REFIT_ROLE_ATTENTION_GATE:
    case REFIT_ROLE_MLA_Q_A:
    case REFIT_ROLE_MLA_Q_B:
    case REFIT_ROLE_MLA_KV_A:
    case REFIT_ROLE_MLA_KV_B:
        return LINEAR_ATTENTION;
    case REFIT_ROLE_SSM_IN:
    case REFIT_ROLE_SSM_OUT:
        return LINEAR_LINEAR_ATTENTION;
    case REFIT_ROLE_DENSE_GATE:
    case REFIT_ROLE_DENSE_UP:
    case REFIT_ROLE_DENSE_DOWN:
        return LINEAR_DENSE;
    case REFIT_ROLE_EXPERT_GATE:
    case REFIT_ROLE_EXPERT_UP:
    case REFIT_ROLE_EXPERT_DOWN:
    case REFIT_ROLE_EXPERT_GATE_UP_T:
    case REFIT_ROLE_EXPERT_GATE_UP_HALVES_T:
    case REFIT_ROLE_EXPERT_DOWN_T:
        return LINEAR_EXPERT;
    case REFIT_ROLE_SHARED_GATE:
    case REFIT_ROLE_SHARED_UP:
    case REFIT_ROLE_SHARED_DOWN:
        return LINEAR_SHARED;
    case REFIT_ROLE_LATENT_PROJ:
        return LINEAR_LATENT;
    case REFIT_ROLE_LM_HEAD:
        return tensor->mtp ? LINEAR_MTP_HEAD : N_LINEARS;
    default:
        return N_LINEARS;
    }
}

/* ---- reading ---- */

static gboolean read_linears(RefitNode *node, guint *linears_out, GError **error) {
    static const char *const names[] = {
#define X(suffix, name) name,
        LINEAR_MAP(X)
#undef X
            NULL,
    };
    RefitNode *list = refit_node_require(node, "linears", error);
    if (list == NULL || !refit_node_expect(list, REFIT_NODE_SEQUENCE, error)) {
        return FALSE;
    }
    guint linears = 0;
    for (guint i = 0; i < refit_node_size(list); i++) {
        guint linear = 0;
        RefitNode *item = refit_node_at(list, i);
        if (!refit_node_choice(item, names, &linear, error)) {
            return FALSE;
        }
        if ((linears >> linear & 1) != 0) {
            refit_node_error(item, REFIT_ERROR_INVALID, error, "%s is listed twice; name it once",
                             names[linear]);
            return FALSE;
        }
        linears |= 1u << linear;
    }
    if (linears == 0) {
        refit_node_error(list, REFIT_ERROR_INVALID, error,
                         "the list is empty; name the layers that are quantized");
        return FALSE;
    }
    *linears_out = linears;
    return TRUE;
}

static gboolean read_block(RefitNode *node, RefitQuantization *out, GError **error) {
    RefitNode *block = refit_node_get(node, "block");
    if (block == NULL) {
        return TRUE;
    }
    if (out->style != REFIT_STYLE_FP8_BLOCK) {
        refit_node_error(block, REFIT_ERROR_INVALID, error,
                         "only the style fp8_block has a size of blocks; leave block out");
        return FALSE;
    }
    if (!refit_node_expect(block, REFIT_NODE_SEQUENCE, error)) {
        return FALSE;
    }
    if (refit_node_size(block) != 2) {
        refit_node_error(block, REFIT_ERROR_INVALID, error,
                         "a block has 2 sizes, rows and columns, not %u", refit_node_size(block));
        return FALSE;
    }
    for (guint i = 0; i < 2; i++) {
        guint64 size = 0;
        if (!refit_node_uint(refit_node_at(block, i), 1, MAX_BLOCK, &size, error)) {
            return FALSE;
        }
        out->block[i] = (guint32)size;
    }
    return TRUE;
}

static gboolean read_scale(RefitNode *node, RefitQuantization *out, GError **error) {
    RefitNode *scale = refit_node_get(node, "scale");
    if (scale == NULL) {
        return TRUE;
    }
    if (out->style == REFIT_STYLE_MXFP4) {
        refit_node_error(scale, REFIT_ERROR_INVALID, error,
                         "scales of mxfp4 are bytes with an exponent; leave scale out");
        return FALSE;
    }
    return refit_node_dtype(scale, &out->scale_dtype, error);
}

static gboolean read_exclude(RefitNode *node, RefitQuantization *out, GError **error) {
    RefitNode *list = refit_node_get(node, "exclude");
    if (list == NULL) {
        return TRUE;
    }
    if (!refit_node_expect(list, REFIT_NODE_SEQUENCE, error)) {
        return FALSE;
    }
    for (guint i = 0; i < refit_node_size(list); i++) {
        const char *text = NULL;
        RefitNode *item = refit_node_at(list, i);
        if (!refit_node_string(item, &text, error)) {
            return FALSE;
        }
        if (*text == '\0') {
            refit_node_error(item, REFIT_ERROR_INVALID, error,
                             "an empty text is part of every name; write part of some names");
            return FALSE;
        }
    }
    out->exclude = list;
    return TRUE;
}

/* An absent key is the plain form. */
static gboolean read_form(RefitNode *root, const char *key, RefitQuantization *out,
                          GError **error) {
    static const char *const styles[] = {"plain", "fp8_block", "fp8_channel", "mxfp4", NULL};
    RefitNode *node = refit_node_get(root, key);
    guint style = REFIT_STYLE_PLAIN;
    *out = (RefitQuantization){.block = {FP8_BLOCK, FP8_BLOCK}, .scale_dtype = REFIT_DTYPE_F32};
    if (node == NULL) {
        return TRUE;
    }
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error)) {
        return FALSE;
    }
    RefitNode *style_node = refit_node_require(node, "style", error);
    if (style_node == NULL || !refit_node_choice(style_node, styles, &style, error)) {
        return FALSE;
    }
    out->style = (RefitStyle)style;
    if (out->style == REFIT_STYLE_PLAIN) {
        return refit_node_finish(node, error);
    }
    if (out->style == REFIT_STYLE_MXFP4) {
        out->scale_dtype = REFIT_DTYPE_U8;
    }
    return read_linears(node, &out->linears, error) && read_block(node, out, error) &&
           read_scale(node, out, error) && read_exclude(node, out, error) &&
           refit_node_finish(node, error);
}

static gboolean is_fp8(const RefitQuantization *quantization) {
    return quantization->style == REFIT_STYLE_FP8_BLOCK ||
           quantization->style == REFIT_STYLE_FP8_CHANNEL;
}

gboolean refit_quantization_read(RefitNode *root, RefitForm form, RefitQuantization *out,
                                 GError **error) {
    RefitQuantization native, fp8;
    if (!read_form(root, "native", &native, error) || !read_form(root, "fp8", &fp8, error)) {
        return FALSE;
    }
    RefitNode *stated = refit_node_get(root, "fp8");
    if (stated != NULL && !is_fp8(&fp8)) {
        refit_node_error(refit_node_get(stated, "style"), REFIT_ERROR_INVALID, error,
                         "the FP8 form of a model has the style fp8_block or fp8_channel");
        return FALSE;
    }
    switch (form) {
    case REFIT_FORM_NATIVE:
        *out = native;
        return TRUE;
    case REFIT_FORM_FP8_BLOCK:
        *out = stated != NULL ? fp8 : native;
        if (is_fp8(out)) {
            return TRUE;
        }
        refit_node_error(root, REFIT_ERROR_INVALID, error,
                         "the model has no FP8 form; say in a refit.model/1 file which linear "
                         "layers it quantizes, as in "
                         "fp8: {style: fp8_block, linears: [attention, dense, expert]}, or use "
                         "another dtype");
        return FALSE;
    case REFIT_FORM_PLAIN:
    default:
        *out = (RefitQuantization){0};
        return TRUE;
    }
}

/* ---- applying ---- */

static gboolean is_stacked(const RefitTensor *tensor) {
    return tensor->role == REFIT_ROLE_EXPERT_GATE_UP_T ||
           tensor->role == REFIT_ROLE_EXPERT_GATE_UP_HALVES_T ||
           tensor->role == REFIT_ROLE_EXPERT_DOWN_T;
}

gboolean refit_quantization_covers(const RefitQuantization *quantization,
                                   const RefitTensor *tensor) {
    if (quantization->style == REFIT_STYLE_PLAIN) {
        return FALSE;
    }
    Linear linear = linear_of(tensor);
    if (linear == N_LINEARS || (quantization->linears >> linear & 1) == 0) {
        return FALSE;
    }
    gboolean is_matrix = is_stacked(tensor)
                             ? tensor->n_dims == 3 && quantization->style == REFIT_STYLE_MXFP4
                             : tensor->n_dims == 2 && g_str_has_suffix(tensor->name, ".weight");
    guint n_excluded =
        is_matrix && quantization->exclude != NULL ? refit_node_size(quantization->exclude) : 0;
    for (guint i = 0; i < n_excluded; i++) {
        const char *text = NULL;
        if (refit_node_string(refit_node_at(quantization->exclude, i), &text, NULL) &&
            strstr(tensor->name, text) != NULL) {
            return FALSE;
        }
    }
    return is_matrix;
}

/* [rows, columns] in E4M3 and a scale for each block of it. */
static void apply_fp8(const RefitTensor *tensor, const guint32 *block, const char *suffix,
                      RefitTensor *weight, RefitTensor *scale) {
    weight->name = g_strdup(tensor->name);
    weight->dtype = REFIT_DTYPE_F8_E4M3;
    scale->name = g_strconcat(tensor->name, suffix, NULL);
    for (guint dim = 0; dim < 2; dim++) {
        scale->shape[dim] = (tensor->shape[dim] - 1) / block[dim] + 1;
        scale->block[dim] = block[dim];
    }
}

/* [rows, columns] with two numbers a byte. */
static void apply_mxfp4(const RefitTensor *tensor, RefitTensor *weight, RefitTensor *scale) {
    g_autofree char *base = g_strndup(tensor->name, strlen(tensor->name) - strlen(".weight"));
    weight->name = g_strconcat(base, ".weight_packed", NULL);
    weight->dtype = REFIT_DTYPE_U8;
    weight->shape[1] = tensor->shape[1] / MXFP4_PER_BYTE;
    weight->granule[1] = MXFP4_GROUP / MXFP4_PER_BYTE;
    scale->name = g_strconcat(base, ".weight_scale", NULL);
    scale->shape[1] = tensor->shape[1] / MXFP4_GROUP;
    scale->block[0] = 1;
    scale->block[1] = MXFP4_GROUP / MXFP4_PER_BYTE;
}

/* [experts, in, out] as [experts, out, groups, bytes of a group]. */
static void apply_mxfp4_stacked(const RefitTensor *tensor, RefitTensor *weight,
                                RefitTensor *scale) {
    weight->name = g_strconcat(tensor->name, "_blocks", NULL);
    weight->dtype = REFIT_DTYPE_U8;
    weight->role = tensor->role == REFIT_ROLE_EXPERT_DOWN_T ? REFIT_ROLE_EXPERT_DOWN
                                                            : REFIT_ROLE_EXPERT_GATE_UP;
    weight->n_dims = 4;
    weight->shape[1] = tensor->shape[2];
    weight->shape[2] = tensor->shape[1] / MXFP4_GROUP;
    weight->shape[3] = MXFP4_GROUP / MXFP4_PER_BYTE;
    weight->granule[3] = MXFP4_GROUP / MXFP4_PER_BYTE;
    scale->name = g_strconcat(tensor->name, "_scales", NULL);
    scale->role = weight->role;
    for (guint dim = 0; dim < 3; dim++) {
        scale->shape[dim] = weight->shape[dim];
        scale->block[dim] = 1;
    }
    scale->block[3] = MXFP4_GROUP / MXFP4_PER_BYTE;
}

gboolean refit_quantization_apply(const RefitQuantization *quantization, const RefitTensor *tensor,
                                  RefitTensor *weight_out, RefitTensor *scale_out, GError **error) {
    RefitTensor weight = *tensor, scale = *tensor;
    guint64 columns = tensor->shape[1];
    if (columns > G_MAXUINT32) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%" G_GUINT64_FORMAT " columns exceed the limit of %u for quantized matrices",
                    columns, G_MAXUINT32);
        return FALSE;
    }
    if (quantization->style == REFIT_STYLE_MXFP4 && columns % MXFP4_GROUP != 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%" G_GUINT64_FORMAT " columns are no multiple of %u, which share a scale in "
                    "mxfp4; leave the tensor out with exclude",
                    columns, MXFP4_GROUP);
        return FALSE;
    }
    scale.scale = TRUE;
    scale.dtype = quantization->scale_dtype;
    scale.n_packed = 0; /* its cuts follow those of the weight */
    if (quantization->style == REFIT_STYLE_MXFP4 && is_stacked(tensor)) {
        apply_mxfp4_stacked(tensor, &weight, &scale);
    } else if (quantization->style == REFIT_STYLE_MXFP4) {
        apply_mxfp4(tensor, &weight, &scale);
    } else if (quantization->style == REFIT_STYLE_FP8_CHANNEL) {
        const guint32 row[2] = {1, (guint32)columns};
        apply_fp8(tensor, row, "_scale", &weight, &scale);
    } else {
        apply_fp8(tensor, quantization->block, "_scale_inv", &weight, &scale);
        weight.granule[0] = quantization->block[0];
        weight.granule[1] = quantization->block[1];
    }
    *weight_out = weight;
    *scale_out = scale;
    return TRUE;
}

gboolean refit_quantization_splits_experts(const RefitQuantization *quantization) {
    return quantization->style != REFIT_STYLE_PLAIN &&
           (quantization->linears >> LINEAR_EXPERT & 1) != 0;
}

/* ---- options ---- */

gboolean refit_model_form_parse(const char *text, RefitModelOptions *options, GError **error) {
    if (g_ascii_strcasecmp(text, "native") == 0) {
        options->form = REFIT_FORM_NATIVE;
        options->dtype = REFIT_DTYPE_BF16;
        return TRUE;
    }
    if (g_ascii_strcasecmp(text, "fp8") == 0) {
        options->form = REFIT_FORM_FP8_BLOCK;
        options->dtype = REFIT_DTYPE_BF16;
        return TRUE;
    }
    RefitDtype dtype;
    g_autoptr(GError) cause = NULL;
    if (!refit_dtype_parse(text, &dtype, &cause)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "%s; forms are native and fp8",
                    cause->message);
        return FALSE;
    }
    options->form = REFIT_FORM_PLAIN;
    options->dtype = dtype;
    return TRUE;
}

gboolean refit_model_form_read(RefitNode *node, RefitModelOptions *options, GError **error) {
    const char *text = NULL;
    g_autoptr(GError) cause = NULL;
    if (!refit_node_string(node, &text, error)) {
        return FALSE;
    }
    if (!refit_model_form_parse(text, options, &cause)) {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "%s", cause->message);
        return FALSE;
    }
    return TRUE;
}

const char *refit_model_form_name(const RefitModelOptions *options) {
    static const char *const names[] = {
#define X(suffix, bits, text, key) key,
        REFIT_DTYPE_MAP(X)
#undef X
    };
    if (options->form == REFIT_FORM_NATIVE) {
        return "native";
    }
    return options->form == REFIT_FORM_FP8_BLOCK ? "fp8" : names[options->dtype];
}
