/*
 * Models from the model files of NCCL M2N's benchmark: an object of tensors under their hub names,
 * each {"shape": [...], "dtype": "BF16", "shard": "..."}. `dtype` may be missing and is BF16 then;
 * `shard` names the checkpoint file a tensor came from and says nothing about its layout. Keys that
 * begin with an underscore are comments. Cost: linear in the tensors.
 */

#include "model/tensors/refit-model-import-private.h"

gboolean refit_m2n_model_read(const char *path, const json_t *root, RefitHeaders *headers,
                              GError **error) {
    const char *name = NULL;
    json_t *stated = NULL;
    json_object_foreach((json_t *)root, name, stated) {
        if (*name != '_' &&
            refit_headers_add(headers, path, name, stated, REFIT_DTYPE_BF16, error) == NULL) {
            return FALSE;
        }
    }
    return TRUE;
}
