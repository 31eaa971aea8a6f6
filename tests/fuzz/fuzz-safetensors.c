/*
 * Fuzz target of the readers of foreign model files: any bytes, as a safetensors file and as a JSON
 * file (a hub config, an index, an M2N model), either are refused with a message that names the
 * file or give a model whose tensors hold together. The JSON readers never leave the file's folder.
 */

#include <glib/gstdio.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/refit-disk.h"
#include "model/tensors/refit-model-import.h"

#define MAX_ASKED 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const RefitModel *model) {
    for (guint i = 0; i < MIN(refit_model_n_tensors(model), MAX_ASKED); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        guint64 elements = 1;
        for (guint d = 0; d < tensor->n_dims; d++) {
            g_assert_cmpuint(tensor->shape[d], >, 0);
            elements *= tensor->shape[d];
        }
        g_assert_cmpuint(tensor->elements, ==, elements);
        g_assert_true(*tensor->name != '\0' && g_utf8_validate(tensor->name, -1, NULL));
        if (tensor->scale) {
            g_assert_cmpuint(tensor->scale_of, <, refit_model_n_tensors(model));
            g_assert_false(refit_model_tensor(model, tensor->scale_of)->scale);
        }
    }
}

static void import(const char *folder, const char *name, const uint8_t *data, size_t size) {
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    g_autofree char *path = g_build_filename(folder, name, NULL);
    g_autoptr(GError) error = NULL;
    FILE *file = fopen(path, "wb");
    g_assert_nonnull(file);
    if (size > 0) {
        g_assert_cmpuint(fwrite(data, 1, size, file), ==, size);
    }
    g_assert_cmpint(fclose(file), ==, 0);
    g_autoptr(RefitModel) model = refit_model_import(&refit_disk, path, &options, &error);
    if (model != NULL) {
        check(model);
    } else {
        g_assert_true(error != NULL && error->domain == REFIT_ERROR);
        g_assert_nonnull(strstr(error->message, name));
    }
    g_assert_cmpint(g_unlink(path), ==, 0); /* writing over it would wait for the disk */
}

static char *scratch; /* made once: a folder per input would cost more than the reading */

static void remove_scratch(void) {
    g_rmdir(scratch);
    g_clear_pointer(&scratch, g_free);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (scratch == NULL) {
        g_autoptr(GError) error = NULL;
        scratch = g_dir_make_tmp("refit-fuzz-XXXXXX", &error);
        g_assert_no_error(error);
        atexit(remove_scratch);
    }
    import(scratch, "a.safetensors", data, size);
    import(scratch, "a.json", data, size);
    return 0;
}
