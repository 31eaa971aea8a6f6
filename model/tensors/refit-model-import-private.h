#pragma once

/* What the readers of foreign model files share; see refit-model-import.h. */

#include <jansson.h>

#include "model/tensors/refit-model-import.h"
#include "model/tensors/refit-model-private.h"

G_BEGIN_DECLS

G_DEFINE_AUTOPTR_CLEANUP_FUNC(json_t, json_decref)

/* ---- hub configs ---- */

/* The model that a config.json describes; its name is `name`. */
RefitModel *refit_hub_config_parse(RefitDoc *doc, const char *name,
                                   const RefitModelOptions *options, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Whether the root looks like a config.json, and whether its model_type is in the table. */
gboolean refit_hub_config_is(RefitNode *root);
gboolean refit_hub_config_is_known(RefitNode *root);
/* The attention heads of a config.json of any model type, and KV heads that divide them; both 0
 * where it does not say how many heads there are. */
gboolean refit_hub_config_heads(RefitNode *root, RefitModelCounts *counts, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* ---- lists of tensors ---- */

/* Tensors as headers state them, in file order: name, shape and dtype only. */
typedef struct {
    GArray *tensors; /* RefitTensor */
    GStringChunk *names;
    GHashTable *by_name; /* name to index + 1 */
} RefitHeaders;

RefitHeaders *refit_headers_new(void);
void refit_headers_free(RefitHeaders *headers);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitHeaders, refit_headers_free)

/* Reads a JSON text; `place` begins the message of an error, which has line and column. */
json_t *refit_headers_read_json(const char *data, gsize length, const char *place, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Adds the tensor that an object states under "shape" and "dtype"; without dtype it is
 * `default_dtype`, or an error when that is REFIT_N_DTYPES. Messages begin with `place` and name
 * the tensor. REFIT_ERROR_NAME_COLLISION.
 */
const RefitTensor *refit_headers_add(RefitHeaders *headers, const char *place, const char *name,
                                     const json_t *stated, RefitDtype default_dtype, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
const RefitTensor *refit_headers_find(const RefitHeaders *headers, const char *name);

/* Readers of whole files; every tensor of the file is added to `headers`. */
gboolean refit_safetensors_read(const RefitFiles *files, const char *path, RefitHeaders *headers,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;
gboolean refit_safetensors_index_read(const RefitFiles *files, const char *path, const json_t *root,
                                      RefitHeaders *headers, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean refit_m2n_model_read(const char *path, const json_t *root, RefitHeaders *headers,
                              GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* ---- from headers to models ---- */

/*
 * Fills in role, layer, expert and MTP from the names. `like`, the model of a config.json that lies
 * beside the headers, or NULL, knows the names it has; others are looked up in the families' names.
 * REFIT_ERROR_SHAPE_MISMATCH where `like` has another shape.
 */
gboolean refit_headers_name(RefitHeaders *headers, const RefitModel *like, RefitModelCounts *counts,
                            GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Links scales to the tensors they belong to, by their names. */
gboolean refit_headers_link_scales(RefitHeaders *headers, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
