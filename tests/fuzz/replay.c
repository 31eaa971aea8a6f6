/*
 * Replays a corpus through a fuzz target without libFuzzer: each argument is a file or a folder of
 * files. Besides the file itself every beginning of it is tried (of the first 4 KiB), because
 * parsers go wrong at an unexpected end. One run per byte, so keep the files small.
 *
 * clang's libFuzzer calls the same targets with inputs of its own: build one without this file and
 * with -fsanitize=fuzzer,address.
 */

#include <glib.h>
#include <stdint.h>

#define MAX_CUT 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly `size` bytes, so that AddressSanitizer sees a read past the end. */
static void try_input(const char *data, gsize size) {
    g_autofree uint8_t *copy = g_memdup2(data, size);
    LLVMFuzzerTestOneInput(copy, size);
}

static guint replay(const char *path) {
    if (g_file_test(path, G_FILE_TEST_IS_DIR)) {
        guint n = 0;
        g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
        g_assert_nonnull(dir);
        for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
            g_autofree char *child = g_build_filename(path, name, NULL);
            n += replay(child);
        }
        return n;
    }
    g_autoptr(GError) error = NULL;
    g_autofree char *data = NULL;
    gsize size = 0;
    g_file_get_contents(path, &data, &size, &error);
    g_assert_no_error(error);
    for (gsize cut = 0; cut < MIN(size, MAX_CUT); cut++) {
        try_input(data, cut);
    }
    try_input(data, size);
    return 1;
}

int main(int argc, char **argv) {
    guint n = 0;
    for (int i = 1; i < argc; i++) {
        n += replay(argv[i]);
    }
    if (n == 0) {
        g_printerr("usage: %s FILE|FOLDER...\n", argv[0]);
        return 2;
    }
    g_print("%u files\n", n);
    return 0;
}
