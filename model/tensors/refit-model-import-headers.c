/*
 * Lists of tensors as headers state them.
 *
 * A header is a JSON object of names; large models have hundreds of thousands. jansson reads them
 * with one hash per object, and one more table of names finds repeats over several files, so that
 * everything is linear in the text. Scales of quantized weights are tensors of their own, which
 * only their names tie to what they scale; the block of a scale follows from the two shapes.
 */

#include "model/tensors/refit-model-import-private.h"

#include <string.h>

RefitHeaders *refit_headers_new(void) {
    RefitHeaders *headers = g_new0(RefitHeaders, 1);
    headers->tensors = g_array_new(FALSE, FALSE, sizeof(RefitTensor));
    headers->names = g_string_chunk_new(1 << 16);
    headers->by_name = g_hash_table_new(g_str_hash, g_str_equal);
    return headers;
}

void refit_headers_free(RefitHeaders *headers) {
    if (headers == NULL) {
        return;
    }
    g_hash_table_unref(headers->by_name);
    g_array_unref(headers->tensors);
    g_string_chunk_free(headers->names);
    g_free(headers);
}

const RefitTensor *refit_headers_find(const RefitHeaders *headers, const char *name) {
    guint index = GPOINTER_TO_UINT(g_hash_table_lookup(headers->by_name, name));
    return index != 0 ? &g_array_index(headers->tensors, RefitTensor, index - 1) : NULL;
}

json_t *refit_headers_read_json(const char *data, gsize length, const char *place, GError **error) {
    json_error_t problem;
    json_t *root = json_loadb(data, length, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        gboolean is_repeat = json_error_code(&problem) == json_error_duplicate_key;
        g_autofree char *text = refit_error_excerpt(problem.text);
        g_set_error(error, REFIT_ERROR, is_repeat ? REFIT_ERROR_NAME_COLLISION : REFIT_ERROR_PARSE,
                    "%s:%d:%d: %s: %s", place, MAX(problem.line, 1), MAX(problem.column, 1),
                    is_repeat ? "a key is given twice" : "not JSON", text);
    }
    return root;
}

/* ---- one tensor ---- */

#define MAX_NAME 1024 /* bytes */

static gboolean refuse(const char *place, const char *name, RefitError code, GError **error,
                       const char *format, ...) G_GNUC_PRINTF(5, 6);

static gboolean refuse(const char *place, const char *name, RefitError code, GError **error,
                       const char *format, ...) {
    g_autofree char *excerpt = refit_error_excerpt(name);
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *message = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error(error, REFIT_ERROR, (gint)code, "%s: tensor %s: %s", place, excerpt, message);
    return FALSE;
}

static gboolean read_shape(const char *place, const json_t *shape, RefitTensor *tensor,
                           GError **error) {
    if (!json_is_array(shape)) {
        return refuse(place, tensor->name, REFIT_ERROR_INVALID, error,
                      "has no list of numbers under \"shape\"");
    }
    if (json_array_size(shape) > REFIT_MAX_DIMS) {
        return refuse(place, tensor->name, REFIT_ERROR_INVALID, error,
                      "%" G_GSIZE_FORMAT " dims exceed the limit of %u", json_array_size(shape),
                      REFIT_MAX_DIMS);
    }
    tensor->n_dims = (guint)json_array_size(shape);
    for (guint d = 0; d < tensor->n_dims; d++) {
        const json_t *extent = json_array_get(shape, d);
        if (!json_is_integer(extent) || json_integer_value(extent) < 1) {
            return refuse(place, tensor->name, REFIT_ERROR_INVALID, error,
                          "dim %u is not a whole number from 1 on", d);
        }
        tensor->shape[d] = (guint64)json_integer_value(extent);
    }
    return TRUE;
}

static gboolean read_dtype(const char *place, const json_t *stated, RefitDtype default_dtype,
                           RefitTensor *tensor, GError **error) {
    g_autoptr(GError) cause = NULL;
    if (stated == NULL && default_dtype != REFIT_N_DTYPES) {
        tensor->dtype = default_dtype;
        return TRUE;
    }
    if (!json_is_string(stated)) {
        return refuse(place, tensor->name, REFIT_ERROR_INVALID, error,
                      "has no text under \"dtype\"");
    }
    if (!refit_dtype_parse(json_string_value(stated), &tensor->dtype, &cause)) {
        return refuse(place, tensor->name, REFIT_ERROR_INVALID, error, "%s", cause->message);
    }
    return TRUE;
}

/* Messages and tables show names as they are. */
static gboolean check_name(const char *place, const char *name, GError **error) {
    gsize length = strlen(name);
    if (length == 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s: the name of a tensor cannot be empty", place);
        return FALSE;
    }
    if (length > MAX_NAME) {
        return refuse(place, name, REFIT_ERROR_INVALID, error,
                      "its name has %" G_GSIZE_FORMAT " bytes, over the limit of %u", length,
                      MAX_NAME);
    }
    for (const char *at = name; *at != '\0'; at = g_utf8_next_char(at)) {
        if (g_unichar_iscntrl(g_utf8_get_char(at))) {
            return refuse(place, name, REFIT_ERROR_INVALID, error,
                          "its name has control characters");
        }
    }
    return TRUE;
}

const RefitTensor *refit_headers_add(RefitHeaders *headers, const char *place, const char *name,
                                     const json_t *stated, RefitDtype default_dtype,
                                     GError **error) {
    RefitTensor tensor = {
        .layer = REFIT_NO_LAYER, .expert = REFIT_NO_EXPERT, .role = REFIT_ROLE_OTHER};
    if (!check_name(place, name, error)) {
        return NULL;
    }
    tensor.name = (char *)name;
    if (!json_is_object(stated)) {
        refuse(place, name, REFIT_ERROR_INVALID, error, "is not an object with shape and dtype");
        return NULL;
    }
    if (!read_shape(place, json_object_get(stated, "shape"), &tensor, error) ||
        !read_dtype(place, json_object_get(stated, "dtype"), default_dtype, &tensor, error)) {
        return NULL;
    }
    if (refit_headers_find(headers, name) != NULL) {
        refuse(place, name, REFIT_ERROR_NAME_COLLISION, error,
               "another file has a tensor of this name; names must be unique");
        return NULL;
    }
    if (headers->tensors->len == REFIT_MODEL_MAX_TENSORS) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "%s: more than %u tensors", place,
                    REFIT_MODEL_MAX_TENSORS);
        return NULL;
    }
    tensor.name = g_string_chunk_insert(headers->names, name);
    g_array_append_val(headers->tensors, tensor);
    g_hash_table_insert(headers->by_name, tensor.name, GUINT_TO_POINTER(headers->tensors->len));
    return &g_array_index(headers->tensors, RefitTensor, headers->tensors->len - 1);
}

/* ---- scales ---- */

/* Endings of scales and of what they scale. */
static const struct {
    const char *scale, *weight;
} scale_endings[] = {
    {"weight_scale_inv", "weight"},    /* FP8 blocks */
    {"weight_scale", "weight_packed"}, /* compressed MXFP4 */
    {"weight_scale", "weight"},        /* FP8 rows */
    {"_scales", "_blocks"},            /* MXFP4 of gpt-oss */
    {"_scale_inv", ""},                /* FP8 blocks of stacked experts */
};

static guint find_scaled(const RefitHeaders *headers, const char *name) {
    for (guint i = 0; i < G_N_ELEMENTS(scale_endings); i++) {
        if (!g_str_has_suffix(name, scale_endings[i].scale)) {
            continue;
        }
        g_autofree char *stem = g_strndup(name, strlen(name) - strlen(scale_endings[i].scale));
        g_autofree char *weight = g_strconcat(stem, scale_endings[i].weight, NULL);
        guint index = GPOINTER_TO_UINT(g_hash_table_lookup(headers->by_name, weight));
        if (index != 0) {
            return index;
        }
    }
    return 0;
}

/*
 * Indices of `extent` per index of a scale with `n`: the power of two that gives n, such as 128 for
 * 576 and 5, else the least number that does; 0 when there is none.
 */
static guint64 block_of(guint64 extent, guint64 n) {
    guint64 least = (extent - 1) / n + 1, power = 1;
    while (power < least && power <= G_MAXUINT64 / 2) {
        power *= 2;
    }
    if ((extent - 1) / power + 1 == n) {
        return power;
    }
    return (extent - 1) / least + 1 == n ? least : 0;
}

/* Blocks of a second scale keep those of the first, where one kind is made of whole ones of the
 * other; FALSE where they are not. */
static gboolean join_granules(guint32 *granule, guint32 block) {
    guint32 larger = MAX(*granule, block), smaller = MIN(*granule, block);
    *granule = larger;
    return smaller == 0 || larger % smaller == 0;
}

/*
 * A scale of a quantized weight; one of fewer dims has one number per index of the leading dims. A
 * single number along a dim may stand for a block that the weight does not fill: that of the other
 * dim, where it has one. A number for all of a dim goes with each part of it, so that any cut is
 * allowed; bytes of packed numbers that share one are a group that stays together.
 */
static gboolean link_scale(RefitTensor *scale, guint weight_index, RefitTensor *weight,
                           GError **error) {
    gboolean fits = scale->n_dims <= weight->n_dims;
    guint64 block[REFIT_MAX_DIMS] = {0}, usual = 1;
    for (guint d = 0; d < scale->n_dims && fits; d++) {
        block[d] = block_of(weight->shape[d], scale->shape[d]);
        fits = block[d] != 0 && block[d] <= G_MAXUINT32;
        usual = scale->shape[d] > 1 ? MAX(usual, block[d]) : usual;
    }
    for (guint d = 0; d < weight->n_dims && fits; d++) {
        gboolean is_one = d >= scale->n_dims || scale->shape[d] == 1;
        if (is_one) {
            block[d] = weight->shape[d] < usual ? usual : weight->shape[d];
            fits = block[d] <= G_MAXUINT32;
        }
    }
    if (!fits) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LOCAL_SHAPE,
                    "tensor %s: its shape does not divide that of %s into blocks", scale->name,
                    weight->name);
        return FALSE;
    }
    for (guint d = 0; d < weight->n_dims; d++) {
        gboolean is_whole =
            d < scale->n_dims ? block[d] == weight->shape[d] : weight->dtype != REFIT_DTYPE_U8;
        scale->block[d] = (guint32)block[d];
        if (!join_granules(&weight->granule[d],
                           block[d] > 1 && !is_whole ? (guint32)block[d] : 0)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_LOCAL_SHAPE,
                        "tensor %s: has blocks that another scale of %s does not have", scale->name,
                        weight->name);
            return FALSE;
        }
    }
    scale->scale = TRUE;
    scale->scale_of = weight_index;
    scale->n_packed = 0; /* its cuts follow those of the weight */
    scale->role = weight->role;
    scale->unknown = weight->unknown;
    scale->layer = weight->layer;
    scale->expert = weight->expert;
    scale->mtp = weight->mtp;
    return TRUE;
}

gboolean refit_headers_link_scales(RefitHeaders *headers, GError **error) {
    for (guint i = 0; i < headers->tensors->len; i++) {
        RefitTensor *tensor = &g_array_index(headers->tensors, RefitTensor, i);
        guint weight = find_scaled(headers, tensor->name);
        if (weight != 0 &&
            !link_scale(tensor, weight - 1,
                        &g_array_index(headers->tensors, RefitTensor, weight - 1), error)) {
            return FALSE;
        }
    }
    return TRUE;
}
