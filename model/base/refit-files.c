/*
 * The functions that read files for the core, called in one place each, so that every message that
 * a file cannot be read has the same form. Cost: theirs.
 */

#include "model/base/refit-files.h"

RefitPathKind refit_files_kind(const RefitFiles *files, const char *path) {
    return files != NULL ? files->kind(path, files->user_data) : REFIT_PATH_MISSING;
}

/* Takes ownership of `cause`, which is NULL where there are no files at all. */
static void fail(const char *path, GError *cause, GError **error) {
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE, "%s: cannot be read: %s", path,
                cause != NULL ? cause->message : "no files are within reach");
    g_clear_error(&cause);
}

GBytes *refit_files_read(const RefitFiles *files, const char *path, guint64 limit, GError **error) {
    GError *cause = NULL;
    GBytes *bytes = files != NULL ? files->read(path, limit, files->user_data, &cause) : NULL;

    if (bytes == NULL)
        fail(path, cause, error);
    return bytes;
}

GBytes *refit_files_map(const RefitFiles *files, const char *path, GError **error) {
    GError *cause = NULL;
    GBytes *bytes = files != NULL ? files->map(path, files->user_data, &cause) : NULL;

    if (bytes == NULL)
        fail(path, cause, error);
    return bytes;
}

char **refit_files_list(const RefitFiles *files, const char *folder) {
    return files != NULL ? files->list(folder, files->user_data) : NULL;
}
