/*
 * Covers model/base/refit-files and lib/refit-disk:
 *   - a case that lies in memory with all it names, a model of several files among them: the core
 *     asks for what the case names, by the paths it resolved, and for nothing else
 *   - no files at all
 *   - of the disk: kinds through links, empty and large files, pipes, limits, folders, what fails
 */

#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/refit-disk.h"
#include "model/case/refit-case.h"

/* ---- files in memory ---- */

typedef struct {
    const char *path, *text;
} File;

/* The header of two tensors in the file's own form: its length, then the text. */
#define HEADER                                                                                     \
    "{\"w\":{\"dtype\":\"BF16\",\"shape\":[8,4],\"data_offsets\":[0,64]},"                         \
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[6],\"data_offsets\":[64,76]}}"

static const File files[] = {
    {"m/cases/a.yaml", "schema: refit.case/1\n"
                       "model: ../weights/model.safetensors.index.json\n"
                       "topology: {name: t, nodes: 1}\n"
                       "profile: p.yaml\n"
                       "train: {framework: fsdp, gpus: 2}\n"
                       "generation: {framework: m2n, system: system.json}\n"},
    {"m/cases/system.json",
     "{\"train\": {\"num_gpus\": 2}, \"generation\": {\"num_gpus\": 2, \"tp_size\": 2}}"},
    {"m/cases/../weights/model.safetensors.index.json",
     "{\"weight_map\": {\"w\": \"a.safetensors\", \"b\": \"a.safetensors\"}}"},
};

typedef struct {
    GString *asked; /* "read PATH\n" and so on, in turn */
    char *profile, *topology;
} Memory;

static const char *text_of(const Memory *memory, const char *path) {
    for (guint i = 0; i < G_N_ELEMENTS(files); i++)
        if (g_str_equal(path, files[i].path))
            return files[i].text;
    if (g_str_equal(path, "m/cases/p.yaml"))
        return memory->profile;
    return g_str_equal(path, "t/t.yaml") ? memory->topology : NULL;
}

static RefitPathKind memory_kind(const char *path, gpointer data) {
    Memory *memory = data;

    g_string_append_printf(memory->asked, "kind %s\n", path);
    return text_of(memory, path) != NULL || g_str_has_suffix(path, "/a.safetensors")
               ? REFIT_PATH_FILE
               : REFIT_PATH_MISSING;
}

static GBytes *memory_read(const char *path, guint64 limit, gpointer data, GError **error) {
    Memory *memory = data;
    const char *text = text_of(memory, path);

    g_string_append_printf(memory->asked, "read %s\n", path);
    g_assert_cmpuint(limit, ==, REFIT_DOC_MAX_BYTES);
    if (text == NULL) {
        g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_NOENT, "not in memory");
        return NULL;
    }
    return g_bytes_new_static(text, strlen(text));
}

static GBytes *memory_map(const char *path, gpointer data, G_GNUC_UNUSED GError **error) {
    const char length[8] = {(char)strlen(HEADER)};
    GByteArray *bytes = g_byte_array_new();

    g_string_append_printf(((Memory *)data)->asked, "map %s\n", path);
    g_byte_array_append(bytes, (const guint8 *)length, sizeof length);
    g_byte_array_append(bytes, (const guint8 *)HEADER, (guint)strlen(HEADER));
    return g_byte_array_free_to_bytes(bytes);
}

static char **memory_list(const char *folder, gpointer data) {
    g_string_append_printf(((Memory *)data)->asked, "list %s\n", folder);
    return g_strsplit("t.yaml b.yaml README.md .hidden.yaml", " ", -1);
}

static void memory_init(Memory *memory) {
    memory->asked = g_string_new(NULL);
    g_assert_true(g_file_get_contents(REFIT_SOURCE_DATA_DIR "/topologies/dgx-h100.yaml",
                                      &memory->topology, NULL, NULL));
    g_assert_true(g_file_get_contents(REFIT_SOURCE_DATA_DIR "/layouts/profiles/refit.yaml",
                                      &memory->profile, NULL, NULL));
}

static void memory_clear(Memory *memory) {
    g_string_free(memory->asked, TRUE);
    g_free(memory->topology);
    g_free(memory->profile);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Memory, memory_clear)

static void test_memory(void) {
    g_auto(Memory) memory = {0};
    g_autoptr(GError) error = NULL;

    memory_init(&memory);
    const RefitFiles in_memory = {memory_kind, memory_read, memory_map, memory_list, &memory};
    const RefitStore store = {"l", "t", &in_memory};
    g_autoptr(RefitCase) refit_case = refit_case_load(&store, "m/cases/a.yaml", NULL, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_model_n_tensors(refit_case->model), ==, 2);
    g_assert_cmpstr(refit_layout_framework(refit_case->destinations[0]), ==, "m2n");
    g_assert_nonnull(strstr(memory.asked->str, "map m/cases/../weights/a.safetensors\n"));
    g_assert_nonnull(strstr(memory.asked->str, "read m/cases/system.json\n"));
    g_assert_nonnull(strstr(memory.asked->str, "read t/t.yaml\n"));
    /* Nothing but what lies beside what was named. */
    g_auto(GStrv) lines = g_strsplit(memory.asked->str, "\n", -1);
    for (guint i = 0; lines[i] != NULL && *lines[i] != '\0'; i++) {
        const char *path = strchr(lines[i], ' ') + 1;
        g_assert_true(g_str_has_prefix(path, "m/cases/") || g_str_equal(path, "t/t.yaml"));
    }

    g_string_truncate(memory.asked, 0);
    g_auto(GStrv) names = refit_store_list(&store, "topologies");
    g_autofree char *joined = g_strjoinv(" ", names);
    g_assert_cmpstr(joined, ==, "b t");
    g_assert_cmpstr(memory.asked->str, ==, "list t\n");
}

static void test_reasons(void) {
    g_auto(Memory) memory = {0};
    g_autoptr(GError) error = NULL;

    memory_init(&memory);
    const RefitFiles in_memory = {memory_kind, memory_read, memory_map, memory_list, &memory};
    g_assert_null(refit_doc_load(&in_memory, "n.yaml", &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_assert_cmpstr(error->message, ==, "n.yaml: cannot be read: not in memory");
}

static void test_no_files(void) {
    const RefitStore store = {"l", "t", NULL};
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_doc_load(NULL, "n.yaml", &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_assert_cmpstr(error->message, ==, "n.yaml: cannot be read: no files are within reach");
    g_clear_error(&error);
    g_assert_null(refit_files_map(NULL, "n.safetensors", &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_clear_error(&error);
    g_assert_null(refit_case_load(&store, "./n.yaml", NULL, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_auto(GStrv) names = refit_store_list(&store, "cases");
    g_assert_null(names[0]);
}

/* ---- the disk ---- */

static char *folder;

static char *path_of(const char *name) {
    return g_build_filename(folder, name, NULL);
}

static void write_file(const char *name, gsize length) {
    g_autofree char *path = path_of(name);
    g_autofree char *data = g_malloc(length + 1);

    for (gsize i = 0; i < length; i++)
        data[i] = (char)(i * 7);
    g_assert_true(g_file_set_contents(path, data, (gssize)length, NULL));
}

static void assert_bytes(GBytes *bytes, gsize length) {
    gsize seen;
    const char *data = g_bytes_get_data(bytes, &seen);

    g_assert_cmpuint(seen, ==, length);
    for (gsize i = 0; i < length; i++)
        g_assert_cmpint(data[i], ==, (char)(i * 7));
}

static void test_kinds(void) {
    g_autofree char *file = path_of("kind"), *link = path_of("link"), *lost = path_of("lost"),
                    *pipe_path = path_of("pipe"), *below = path_of("kind/below");

    write_file("kind", 3);
    g_assert_cmpint(symlink("kind", link), ==, 0);
    g_assert_cmpint(symlink("gone", lost), ==, 0);
    g_assert_cmpint(mkfifo(pipe_path, 0600), ==, 0);
    g_assert_cmpint(refit_files_kind(&refit_disk, file), ==, REFIT_PATH_FILE);
    g_assert_cmpint(refit_files_kind(&refit_disk, link), ==, REFIT_PATH_FILE);
    g_assert_cmpint(refit_files_kind(&refit_disk, lost), ==, REFIT_PATH_MISSING);
    g_assert_cmpint(refit_files_kind(&refit_disk, below), ==, REFIT_PATH_MISSING);
    g_assert_cmpint(refit_files_kind(&refit_disk, folder), ==, REFIT_PATH_FOLDER);
    g_assert_cmpint(refit_files_kind(&refit_disk, pipe_path), ==, REFIT_PATH_OTHER);
    g_assert_cmpint(refit_files_kind(&refit_disk, "/dev/null"), ==, REFIT_PATH_OTHER);
    g_assert_cmpint(g_unlink(file) | g_unlink(link) | g_unlink(lost) | g_unlink(pipe_path), ==, 0);
}

static void test_sizes(void) {
    static const gsize sizes[] = {0, 1, 65535, 65536, 65537, 300000};
    g_autofree char *path = path_of("sized");

    for (guint i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_autoptr(GError) error = NULL;
        write_file("sized", sizes[i]);
        g_autoptr(GBytes) read_bytes = refit_files_read(&refit_disk, path, sizes[i], &error);
        g_assert_no_error(error);
        assert_bytes(read_bytes, sizes[i]);
        g_autoptr(GBytes) mapped = refit_files_map(&refit_disk, path, &error);
        g_assert_no_error(error);
        assert_bytes(mapped, sizes[i]);
        if (sizes[i] == 0)
            continue;
        g_assert_null(refit_files_read(&refit_disk, path, sizes[i] - 1, &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
        g_autofree char *wanted =
            g_strdup_printf("%s: cannot be read: it has more than the %" G_GSIZE_FORMAT
                            " bytes that are read of such a file",
                            path, sizes[i] - 1);
        g_assert_cmpstr(error->message, ==, wanted);
    }
    g_assert_cmpint(g_unlink(path), ==, 0);
}

static gpointer write_pipe(gpointer path) {
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);

    g_assert_cmpint(descriptor, >=, 0);
    for (gsize i = 0; i < 200000; i++) {
        char byte = (char)(i * 7);
        g_assert_cmpint(write(descriptor, &byte, 1), ==, 1);
    }
    close(descriptor);
    return NULL;
}

static void test_streams(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *path = path_of("stream");

    g_assert_cmpint(mkfifo(path, 0600), ==, 0);
    GThread *writer = g_thread_new("writer", write_pipe, path);
    g_autoptr(GBytes) bytes = refit_files_read(&refit_disk, path, REFIT_DOC_MAX_BYTES, &error);
    g_assert_no_error(error);
    assert_bytes(bytes, 200000);
    g_thread_join(writer);
    g_assert_cmpint(g_unlink(path), ==, 0);
    /* One that never ends. */
    g_assert_null(refit_files_read(&refit_disk, "/dev/zero", 100000, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
}

static void test_folders(void) {
    g_autofree char *missing = path_of("missing"), *a = path_of("a"), *b = path_of("b");

    write_file("a", 1);
    write_file("b", 1);
    g_auto(GStrv) names = refit_files_list(&refit_disk, folder);
    g_assert_cmpuint(g_strv_length(names), ==, 2);
    g_assert_true(g_strv_contains((const char *const *)names, "a"));
    g_assert_true(g_strv_contains((const char *const *)names, "b"));
    g_assert_null(refit_files_list(&refit_disk, missing));
    g_assert_null(refit_files_list(&refit_disk, a));
    g_assert_cmpint(g_unlink(a) | g_unlink(b), ==, 0);
}

static void test_failures(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *missing = path_of("missing");
    g_autofree char *no_file =
        g_strconcat(missing, ": cannot be read: No such file or directory", NULL);
    g_autofree char *is_folder = g_strconcat(folder, ": cannot be read: Is a directory", NULL);

    g_assert_null(refit_files_read(&refit_disk, missing, 10, &error));
    g_assert_cmpstr(error->message, ==, no_file);
    g_clear_error(&error);
    g_assert_null(refit_files_map(&refit_disk, missing, &error));
    g_assert_cmpstr(error->message, ==, no_file);
    g_clear_error(&error);
    g_assert_null(refit_files_read(&refit_disk, folder, 10, &error));
    g_assert_cmpstr(error->message, ==, is_folder);
}

int main(int argc, char **argv) {
    int status;

    g_test_init(&argc, &argv, NULL);
    folder = g_dir_make_tmp("refit-files-XXXXXX", NULL);
    g_assert_nonnull(folder);
    g_test_add_func("/files/a-case-may-lie-in-memory", test_memory);
    g_test_add_func("/files/messages-have-the-path-and-the-reason", test_reasons);
    g_test_add_func("/files/without-files-nothing-is-found", test_no_files);
    g_test_add_func("/files/kinds-are-those-at-the-end-of-links", test_kinds);
    g_test_add_func("/files/all-sizes-are-read-up-to-the-limit", test_sizes);
    g_test_add_func("/files/pipes-are-read-to-their-end-or-the-limit", test_streams);
    g_test_add_func("/files/folders-are-listed", test_folders);
    g_test_add_func("/files/what-cannot-be-read-says-why", test_failures);
    status = g_test_run();
    g_rmdir(folder);
    g_free(folder);
    return status;
}
