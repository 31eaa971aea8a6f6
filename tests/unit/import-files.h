#pragma once

/* Files that the tests of imported models write themselves, in a folder that is removed again. */

#include <glib/gstdio.h>
#include <string.h>

#include "lib/refit-disk.h"
#include "model/tensors/refit-model-import.h"

typedef struct {
    char *path;
} Folder;

static inline void folder_init(Folder *folder) {
    g_autoptr(GError) error = NULL;
    folder->path = g_dir_make_tmp("refit-import-XXXXXX", &error);
    g_assert_no_error(error);
}

static inline void folder_clear(Folder *folder) {
    g_autoptr(GDir) dir = g_dir_open(folder->path, 0, NULL);
    g_assert_nonnull(dir);
    for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
        g_autofree char *path = g_build_filename(folder->path, name, NULL);
        g_assert_cmpint(g_unlink(path), ==, 0);
    }
    g_assert_cmpint(g_rmdir(folder->path), ==, 0);
    g_free(folder->path);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Folder, folder_clear)

static inline char *folder_write(const Folder *folder, const char *name, const char *data,
                                 gsize length) {
    g_autoptr(GError) error = NULL;
    char *path = g_build_filename(folder->path, name, NULL);
    g_file_set_contents(path, data, (gssize)length, &error);
    g_assert_no_error(error);
    return path;
}

static inline char *folder_write_text(const Folder *folder, const char *name, const char *text) {
    return folder_write(folder, name, text, strlen(text));
}

/* A safetensors file: `stated` as the length of the header, the header, and `n_data` zero bytes. */
static inline char *folder_write_header(const Folder *folder, const char *name, guint64 stated,
                                        const char *header, gsize n_data) {
    g_autoptr(GString) file = g_string_new(NULL);
    for (guint i = 0; i < 8; i++) {
        g_string_append_c(file, (char)(stated >> (8 * i) & 0xff));
    }
    g_string_append(file, header);
    g_string_set_size(file, file->len + n_data);
    memset(file->str + file->len - n_data, 0, n_data);
    return folder_write(folder, name, file->str, file->len);
}

static inline char *folder_write_tensors(const Folder *folder, const char *name, const char *header,
                                         gsize n_data) {
    return folder_write_header(folder, name, strlen(header), header, n_data);
}

static inline RefitModel *import_file(const char *path, const RefitModelOptions *options) {
    g_autoptr(GError) error = NULL;
    RefitModel *model = refit_model_import(&refit_disk, path, options, &error);
    g_assert_no_error(error);
    g_assert_nonnull(model);
    return model;
}

/* The message begins with `path` and `place` and contains `part`. */
static inline void import_refused(const char *path, RefitError code, const char *place,
                                  const char *part) {
    const RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) model = refit_model_import(&refit_disk, path, &options, &error);
    g_assert_null(model);
    g_assert_error(error, REFIT_ERROR, (gint)code);
    g_autofree char *begin = g_strconcat(path, place, NULL);
    if (!g_str_has_prefix(error->message, begin) || strstr(error->message, part) == NULL) {
        g_error("expected \"%s...%s...\", got \"%s\"", begin, part, error->message);
    }
}
