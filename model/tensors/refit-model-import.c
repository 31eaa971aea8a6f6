/*
 * Models from files that other programs wrote.
 *
 * What a file is, its ending or the keys of its root say. Configs go to the families; everything
 * else is a list of tensors whose roles follow from their names, helped by a config.json in the
 * same folder, which alone knows the numbers of heads. Hub files may hold what JSON forbids
 * (Infinity in configs of state-space models), so configs are read as YAML, of which JSON is a
 * subset; lists of tensors, which can be large, are read by jansson. Cost: linear in the files.
 */

#include "model/tensors/refit-model-import-private.h"

#include <string.h>

#define CONFIG "config.json"

/* ---- which kind ---- */

static gboolean is_m2n(const json_t *root) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)root, name, value) {
        if (*name != '_') {
            return json_object_get(value, "shape") != NULL;
        }
    }
    return FALSE;
}

/* By the keys of a JSON root. */
static gboolean kind_of_json(const char *path, const json_t *root, RefitModelFile *kind,
                             GError **error) {
    if (json_object_get(root, "schema") != NULL) {
        *kind = REFIT_MODEL_FILE_REFIT;
    } else if (json_object_get(root, "weight_map") != NULL) {
        *kind = REFIT_MODEL_FILE_SAFETENSORS_INDEX;
    } else if (json_object_get(root, "model_type") != NULL ||
               json_object_get(root, "architectures") != NULL) {
        *kind = REFIT_MODEL_FILE_HUB_CONFIG;
    } else if (is_m2n(root)) {
        *kind = REFIT_MODEL_FILE_M2N;
    } else {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s:1:1: is no model: its root has neither schema (our files), model_type (hub "
                    "configs), weight_map (safetensors indexes) nor tensors with a shape",
                    path);
        return FALSE;
    }
    return TRUE;
}

/* A list of tensors in JSON. */
static gboolean is_list(RefitModelFile kind) {
    return kind == REFIT_MODEL_FILE_SAFETENSORS_INDEX || kind == REFIT_MODEL_FILE_M2N;
}

/*
 * Kind of a file that may be JSON; `root_out` is its JSON where the reader of that kind wants it.
 * What jansson refuses is left to the reader of configs where it may be one.
 */
static gboolean kind_of_text(const RefitFiles *files, const char *path, RefitModelFile *kind,
                             json_t **root_out, GError **error) {
    gsize length = 0;
    g_autoptr(GError) cause = NULL;
    g_autoptr(GBytes) bytes = refit_files_read(files, path, REFIT_DOC_MAX_BYTES, error);
    if (bytes == NULL) {
        return FALSE;
    }
    const char *data = g_bytes_get_data(bytes, &length);
    data = length > 0 ? data : "";
    g_autoptr(json_t) root = refit_headers_read_json(data, length, path, &cause);
    if (root == NULL) {
        g_autoptr(json_t) loose = json_loadb(data, length, 0, NULL);
        g_autoptr(RefitDoc) doc = refit_doc_parse(data, length, path, NULL);
        if (loose != NULL ? !kind_of_json(path, loose, kind, NULL) || is_list(*kind)
                          : doc == NULL || !refit_hub_config_is(refit_doc_root(doc))) {
            g_propagate_error(error, g_steal_pointer(&cause));
            return FALSE;
        }
        *kind = loose != NULL ? *kind : REFIT_MODEL_FILE_HUB_CONFIG;
        return TRUE;
    }
    if (!kind_of_json(path, root, kind, error)) {
        return FALSE;
    }
    *root_out = g_steal_pointer(&root);
    return TRUE;
}

static gboolean find_kind(const RefitFiles *files, const char *path, RefitModelFile *kind,
                          json_t **root_out, GError **error) {
    if (refit_files_kind(files, path) == REFIT_PATH_FOLDER) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "%s: is a folder; name a file in it, such as " CONFIG
                    " or model.safetensors.index.json",
                    path);
        return FALSE;
    }
    if (g_str_has_suffix(path, ".safetensors")) {
        *kind = REFIT_MODEL_FILE_SAFETENSORS;
        return TRUE;
    }
    if (g_str_has_suffix(path, ".json")) {
        return kind_of_text(files, path, kind, root_out, error);
    }
    *kind = REFIT_MODEL_FILE_REFIT;
    return TRUE;
}

gboolean refit_model_file_kind(const RefitFiles *files, const char *path, RefitModelFile *kind_out,
                               GError **error) {
    g_autoptr(json_t) root = NULL;
    RefitModelFile kind = REFIT_MODEL_FILE_REFIT;
    if (!find_kind(files, path, &kind, &root, error)) {
        return FALSE;
    }
    *kind_out = kind;
    return TRUE;
}

/* ---- names ---- */

/* The file's name without endings, or that of its folder when all such files have the same name. */
static char *name_of(const char *path) {
    static const char *const usual[] = {"config", "model", NULL};
    g_autofree char *name = g_path_get_basename(path);
    g_autofree char *directory = g_path_get_dirname(path);
    g_autofree char *folder = g_path_get_basename(directory);
    char *ending = strchr(name, '.');
    while (ending != NULL && ending != name && g_ascii_isdigit(ending[1])) {
        ending = strchr(ending + 1, '.'); /* qwen3.5.json */
    }
    if (ending != NULL && ending != name) {
        *ending = '\0';
    }
    gboolean has_folder = !g_str_equal(folder, ".") && !g_str_equal(folder, "..") &&
                          !g_str_equal(folder, G_DIR_SEPARATOR_S);
    return g_strdup(g_strv_contains(usual, name) && has_folder ? folder : name);
}

/* ---- from headers to a model ---- */

/*
 * The model that a config.json beside `path` gives; NULL without one, and where it cannot be
 * expanded: then the headers are right without it, and only the heads are taken from it.
 */
static gboolean read_beside(const RefitFiles *files, const char *path, RefitModel **like_out,
                            RefitModelCounts *counts, GError **error) {
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    g_autofree char *directory = g_path_get_dirname(path);
    g_autofree char *config = g_build_filename(directory, CONFIG, NULL);
    if (refit_files_kind(files, config) == REFIT_PATH_MISSING || g_str_equal(config, path)) {
        return TRUE;
    }
    g_autoptr(RefitDoc) doc = refit_doc_load(files, config, error);
    if (doc == NULL) {
        return FALSE;
    }
    if (refit_hub_config_is_known(refit_doc_root(doc))) {
        *like_out = refit_hub_config_parse(doc, "beside", &options, NULL);
    }
    return *like_out != NULL || refit_hub_config_heads(refit_doc_root(doc), counts, error);
}

static gboolean is_plain(RefitDtype dtype) {
    return dtype == REFIT_DTYPE_BF16 || dtype == REFIT_DTYPE_F16 || dtype == REFIT_DTYPE_F32 ||
           dtype == REFIT_DTYPE_F64;
}

/* Numbers that only mean something with a scale, or are one. */
static gboolean is_quantized(const RefitTensor *tensor) {
    return tensor->scale || tensor->dtype == REFIT_DTYPE_F8_E4M3 ||
           tensor->dtype == REFIT_DTYPE_F8_E5M2 || tensor->dtype == REFIT_DTYPE_F4;
}

/*
 * Writes the weights in the plain type that was asked for; those that the file keeps in a second
 * one stay, as do integers.
 */
static gboolean convert(const char *path, RefitHeaders *headers, const RefitModelOptions *options,
                        GError **error) {
    guint64 n_of[REFIT_N_DTYPES] = {0};
    RefitDtype usual = REFIT_DTYPE_BF16;
    if (options->form == REFIT_FORM_NATIVE || !options->dtype_stated) {
        return TRUE;
    }
    for (guint i = 0; i < headers->tensors->len; i++) {
        const RefitTensor *tensor = &g_array_index(headers->tensors, RefitTensor, i);
        if (options->form != REFIT_FORM_PLAIN || is_quantized(tensor)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "%s: tensor %s is %s; a list of tensors can be converted between plain "
                        "types only: leave dtype out, write native, or import the config.json",
                        path, tensor->name, refit_dtype_name(tensor->dtype));
            return FALSE;
        }
        n_of[tensor->dtype] += is_plain(tensor->dtype) ? 1 : 0;
    }
    for (guint i = 0; i < REFIT_N_DTYPES; i++) {
        usual = n_of[i] > n_of[usual] ? (RefitDtype)i : usual;
    }
    for (guint i = 0; i < headers->tensors->len; i++) {
        RefitTensor *tensor = &g_array_index(headers->tensors, RefitTensor, i);
        if (tensor->dtype == usual) {
            tensor->dtype = options->dtype;
        }
    }
    return TRUE;
}

/* Takes MTP layers out; tensors keep their order, and scales their weights. */
static void drop_mtp(RefitHeaders *headers) {
    g_autofree guint *moved = g_new0(guint, headers->tensors->len + 1);
    RefitTensor *tensors = (RefitTensor *)(gpointer)headers->tensors->data;
    guint n = 0;
    for (guint i = 0; i < headers->tensors->len; i++) {
        moved[i] = n;
        if (!tensors[i].mtp) {
            tensors[n++] = tensors[i];
        }
    }
    g_array_set_size(headers->tensors, n);
    for (guint i = 0; i < n; i++) {
        if (tensors[i].scale) {
            tensors[i].scale_of = moved[tensors[i].scale_of];
        }
    }
}

static RefitModel *model_of_headers(const RefitFiles *files, const char *path,
                                    RefitHeaders *headers, const RefitModelOptions *options,
                                    GError **error) {
    RefitModelCounts counts = {0};
    g_autoptr(RefitModel) like = NULL;
    g_autofree char *name = name_of(path);
    if (headers->tensors->len == 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "%s: has no tensors", path);
        return NULL;
    }
    if (!read_beside(files, path, &like, &counts, error)) {
        return NULL;
    }
    if (!refit_headers_name(headers, like, &counts, error) ||
        !refit_headers_link_scales(headers, error)) {
        g_prefix_error(error, "%s: ", path);
        return NULL;
    }
    if (!options->mtp) {
        drop_mtp(headers);
    }
    if (!convert(path, headers, options, error)) {
        return NULL;
    }
    RefitModel *model =
        refit_model_new_counted(name, (const RefitTensor *)(gpointer)headers->tensors->data,
                                headers->tensors->len, &counts, error);
    if (model == NULL) {
        g_prefix_error(error, "%s: ", path);
    }
    return model;
}

/* ---- all kinds ---- */

RefitModel *refit_model_import(const RefitFiles *files, const char *path,
                               const RefitModelOptions *options, GError **error) {
    RefitModelFile kind = REFIT_MODEL_FILE_REFIT;
    g_autoptr(json_t) root = NULL;
    g_autoptr(RefitHeaders) headers = refit_headers_new();
    g_return_val_if_fail(path != NULL && options != NULL, NULL);
    if (!find_kind(files, path, &kind, &root, error)) {
        return NULL;
    }
    switch (kind) {
    case REFIT_MODEL_FILE_SAFETENSORS:
        return refit_safetensors_read(files, path, headers, error)
                   ? model_of_headers(files, path, headers, options, error)
                   : NULL;
    case REFIT_MODEL_FILE_SAFETENSORS_INDEX:
        return refit_safetensors_index_read(files, path, root, headers, error)
                   ? model_of_headers(files, path, headers, options, error)
                   : NULL;
    case REFIT_MODEL_FILE_M2N:
        return refit_m2n_model_read(path, root, headers, error)
                   ? model_of_headers(files, path, headers, options, error)
                   : NULL;
    case REFIT_MODEL_FILE_REFIT:
    case REFIT_MODEL_FILE_HUB_CONFIG:
    default:
        break;
    }
    g_autoptr(RefitDoc) doc = refit_doc_load(files, path, error);
    if (doc == NULL) {
        return NULL;
    }
    if (kind == REFIT_MODEL_FILE_REFIT) {
        return refit_model_parse(refit_doc_root(doc), options, error);
    }
    g_autofree char *name = name_of(path);
    return refit_hub_config_parse(doc, name, options, error);
}
