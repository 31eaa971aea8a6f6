#pragma once

/*
 * How the core comes by files. It opens none itself: whoever asks it to load something says with
 * these functions where files are, so that they may as well lie in memory, in an archive or on
 * another machine. Those of this machine's file system are in lib/refit-disk.h.
 *
 * NULL in the place of a RefitFiles is a place without any file.
 */

#include "model/base/refit-error.h"

G_BEGIN_DECLS

typedef enum {
    REFIT_PATH_MISSING,
    REFIT_PATH_FILE,
    REFIT_PATH_FOLDER,
    REFIT_PATH_OTHER, /* a pipe, a device: can be read but once, and may never end */
} RefitPathKind;

/*
 * Functions get `user_data` last but for the error, whose message is the reason alone ("No such
 * file or directory"): the core puts the path before it. Threads may call them at once.
 */
typedef struct {
    /* What lies at `path`, at the end of all links. */
    RefitPathKind (*kind)(const char *path, gpointer user_data);
    /* All bytes of a file, pipe or device. Fails on one that has more than `limit`. */
    GBytes *(*read)(const char *path, guint64 limit, gpointer user_data, GError **error);
    /* The bytes of a REFIT_PATH_FILE of any size, of which only those that are looked at cost
     * anything. */
    GBytes *(*map)(const char *path, gpointer user_data, GError **error);
    /* Names of all that lies in a folder, in any order, NULL-terminated; NULL where there is none.
     * Freed with g_strfreev. */
    char **(*list)(const char *folder, gpointer user_data);
    gpointer user_data;
} RefitFiles;

RefitPathKind refit_files_kind(const RefitFiles *files, const char *path);
/* REFIT_ERROR_PARSE: "PATH: cannot be read: REASON". */
GBytes *refit_files_read(const RefitFiles *files, const char *path, guint64 limit, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
GBytes *refit_files_map(const RefitFiles *files, const char *path, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
char **refit_files_list(const RefitFiles *files, const char *folder);

G_END_DECLS
