/*
 * Files of this machine. Documents are read whole, up to a limit that the caller sets and however
 * long a pipe turns out to be; checkpoints, which can be larger than memory, are mapped, so that
 * only the pages of their headers are ever fetched. Cost: the bytes that are looked at.
 */

#include "lib/refit-disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_ROOM = 64 << 10 };

static RefitPathKind disk_kind(const char *path, G_GNUC_UNUSED gpointer user_data) {
    struct stat found;

    if (stat(path, &found) != 0)
        return REFIT_PATH_MISSING;
    if (S_ISREG(found.st_mode))
        return REFIT_PATH_FILE;
    return S_ISDIR(found.st_mode) ? REFIT_PATH_FOLDER : REFIT_PATH_OTHER;
}

static void fail_errno(GError **error) {
    int code = errno;

    g_set_error_literal(error, G_FILE_ERROR, (int)g_file_error_from_errno(code), g_strerror(code));
}

/* Bytes to make room for at first: those of a file and one more, which shows its end. */
static gsize first_room(int descriptor, guint64 limit) {
    struct stat found;

    if (fstat(descriptor, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size <= 0 ||
        (guint64)found.st_size > limit)
        return FIRST_ROOM;
    return (gsize)found.st_size + 1;
}

static GBytes *read_all(int descriptor, guint64 limit, GError **error) {
    gsize room = first_room(descriptor, limit), length = 0;
    g_autofree guint8 *data = g_malloc(room);

    for (;;) {
        gssize n = read(descriptor, data + length, room - length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            fail_errno(error);
            return NULL;
        }
        if (n == 0)
            return g_bytes_new_take(g_steal_pointer(&data), length);
        length += (gsize)n;
        if (length > limit) {
            g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_FAILED,
                        "it has more than the %" G_GUINT64_FORMAT " bytes that are read of such a "
                        "file",
                        limit);
            return NULL;
        }
        if (length == room) {
            room *= 2;
            data = g_realloc(data, room);
        }
    }
}

static GBytes *disk_read(const char *path, guint64 limit, G_GNUC_UNUSED gpointer user_data,
                         GError **error) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    GBytes *bytes;

    if (descriptor < 0) {
        fail_errno(error);
        return NULL;
    }
    bytes = read_all(descriptor, limit, error);
    close(descriptor);
    return bytes;
}

static GBytes *disk_map(const char *path, G_GNUC_UNUSED gpointer user_data, GError **error) {
    g_autoptr(GError) cause = NULL;
    g_autoptr(GMappedFile) file = g_mapped_file_new(path, FALSE, &cause);

    if (file == NULL) {
        /* GLib's message has the path before the reason. */
        const char *reason = g_strrstr(cause->message, ": ");
        g_set_error_literal(error, cause->domain, cause->code,
                            reason != NULL ? reason + 2 : cause->message);
        return NULL;
    }
    return g_mapped_file_get_bytes(file);
}

static char **disk_list(const char *folder, G_GNUC_UNUSED gpointer user_data) {
    g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
    GPtrArray *names;

    if (dir == NULL)
        return NULL;
    names = g_ptr_array_new();
    for (const char *name; (name = g_dir_read_name(dir)) != NULL;)
        g_ptr_array_add(names, g_strdup(name));
    g_ptr_array_add(names, NULL);
    return (char **)g_ptr_array_free(names, FALSE);
}

const RefitFiles refit_disk = {
    .kind = disk_kind, .read = disk_read, .map = disk_map, .list = disk_list};
