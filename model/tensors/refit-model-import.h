#pragma once

/*
 * Models from files that other programs wrote, read as they are:
 *
 *   config.json                     hub facts; `model_type` chooses the family, unknown keys are
 *                                   ignored, nested text_config and quantization_config are used
 *   *.safetensors                   the header of one file: names, shapes, dtypes
 *   model.safetensors.index.json    the headers of the files it lists, in the same folder
 *   *.json of NCCL M2N              object of {name: {shape, dtype, shard}}
 *
 * Tensors from headers get their role, layer and expert from their names by the tables of the
 * families; a name that no table knows is `other`, which every framework replicates.
 */

#include "model/tensors/refit-model.h"

G_BEGIN_DECLS

typedef enum {
    REFIT_MODEL_FILE_REFIT, /* refit.model/1 */
    REFIT_MODEL_FILE_HUB_CONFIG,
    REFIT_MODEL_FILE_SAFETENSORS,
    REFIT_MODEL_FILE_SAFETENSORS_INDEX,
    REFIT_MODEL_FILE_M2N,
} RefitModelFile;

/* What a file is: by its ending for .safetensors, by the keys of its root for .json, else ours. */
gboolean refit_model_file_kind(const RefitFiles *files, const char *path, RefitModelFile *kind_out,
                               GError **error) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Loads a model of any kind of file, which lies in `files`. Names of tensors, not their data, are
 * read. With headers, form and dtype are those of the file, unless a plain dtype is stated (see
 * dtype_stated), which a file that is all plain is converted to; a config.json in the same folder
 * gives the numbers of heads, roles and MTP layers, and shapes must agree with it. A config's name
 * is that of its file, or of its folder. Errors are located where the text has a place, else they
 * name file and tensor.
 */
RefitModel *refit_model_import(const RefitFiles *files, const char *path,
                               const RefitModelOptions *options, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
