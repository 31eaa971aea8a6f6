/*
 * Foreign model files that somebody damaged or made up: names that would garble a terminal or a
 * message, an index whose file is empty, is no file or leads in circles, totals that are no number
 * of bytes, nesting without end, heads that do not divide; names of 150,000 tensors.
 */

#include <sys/stat.h>
#include <unistd.h>

#include "import-files.h"

#define ONE "{\"x\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]}}"
#define TWO                                                                                        \
    "{\"x\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]}, "                      \
    "\"y\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [4, 8]}}"
#define INDEX "model.safetensors.index.json"

static const RefitModelOptions as_written = {.dtype = REFIT_DTYPE_BF16, .mtp = TRUE};

/* ---- names ---- */

static void test_names(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *control = folder_write_tensors(
        &folder, "a.safetensors",
        "{\"a\\u001b[2Jb\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}", 1);
    import_refused(control, REFIT_ERROR_INVALID, ": tensor a?[2Jb: ", "control characters");
    g_autofree char *line = folder_write_text(&folder, "b.json", "{\"a\\nb\": {\"shape\": [1]}}");
    import_refused(line, REFIT_ERROR_INVALID, ": tensor a?b: ", "control characters");
    g_autofree char *many = g_strnfill(1025, 'w');
    g_autofree char *header = g_strdup_printf(
        "{\"%s\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}", many);
    g_autofree char *length = folder_write_tensors(&folder, "c.safetensors", header, 1);
    import_refused(length, REFIT_ERROR_INVALID, ": tensor www", "1025 bytes");
    g_autofree char *map =
        g_strdup_printf("{\"weight_map\": {\"%s\": \"../c.safetensors\"}}", many);
    g_autofree char *index = folder_write_text(&folder, INDEX, map);
    import_refused(index, REFIT_ERROR_INVALID, ": weight_map.www", "www...: must be the name");
}

static void test_many_names(void) {
    const guint n = 150000;
    g_autoptr(GString) text = g_string_new("{");
    for (guint i = 0; i < n; i++) {
        g_string_append_printf(
            text, "%s\"model.layers.%u.mlp.experts.%u.up_proj.weight\": {\"shape\": [2, 2]}",
            i > 0 ? ",\n" : "", i / 1000, i % 1000);
    }
    g_string_append_c(text, '}');
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = folder_write_text(&folder, "many.json", text->str);
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, n);
    g_assert_cmpuint(refit_model_n_layers(model), ==, 150);
    g_assert_cmpuint(refit_model_n_experts(model), ==, 1000);
}

/* ---- files of an index ---- */

/* x is said to be in a file without tensors; the one behind it begins with x. */
static void test_empty_file(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *empty =
        folder_write_tensors(&folder, "a.safetensors", "{\"__metadata__\": {}}", 0);
    g_autofree char *full = folder_write_tensors(&folder, "b.safetensors", TWO, 8);
    g_autofree char *path = folder_write_text(
        &folder, INDEX, "{\"weight_map\": {\"x\": \"a.safetensors\", \"y\": \"b.safetensors\"}}");
    import_refused(path, REFIT_ERROR_NAME_MISSING,
                   ": weight_map.x: ", "a.safetensors has no such tensor");
}

static char *write_one_file_index(const Folder *folder) {
    return folder_write_text(folder, INDEX, "{\"weight_map\": {\"x\": \"a.safetensors\"}}");
}

/* A pipe would be waited at for ever. */
static void test_no_file(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_one_file_index(&folder);
    g_autofree char *pipe_path = g_build_filename(folder.path, "a.safetensors", NULL);
    g_assert_cmpint(mkfifo(pipe_path, 0600), ==, 0);
    import_refused(path, REFIT_ERROR_PARSE, ": weight_map.x: ", "a.safetensors: is no file");
    import_refused(pipe_path, REFIT_ERROR_PARSE, ": is no file", "");
}

static void test_circle(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = write_one_file_index(&folder);
    g_autofree char *first = g_build_filename(folder.path, "a.safetensors", NULL);
    g_autofree char *second = g_build_filename(folder.path, "b.safetensors", NULL);
    g_assert_cmpint(symlink("b.safetensors", first), ==, 0);
    g_assert_cmpint(symlink("a.safetensors", second), ==, 0);
    import_refused(path, REFIT_ERROR_PARSE, ": weight_map.x: ", "a.safetensors: cannot be read: ");
}

static void test_absolute(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *file = folder_write_tensors(&folder, "a.safetensors", ONE, 4);
    g_autofree char *map = g_strdup_printf("{\"weight_map\": {\"x\": \"%s\"}}", file);
    g_autofree char *path = folder_write_text(&folder, INDEX, map);
    import_refused(path, REFIT_ERROR_INVALID, ": weight_map.x: ", "in the same folder");
}

/* ---- totals ---- */

static void test_totals(void) {
    static const char *const bad[] = {"1e300", "4.5", "-4", "-4.0", "18446744073709551616.0"};
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *file = folder_write_tensors(&folder, "a.safetensors", ONE, 4);
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *text = g_strdup_printf(
            "{\"metadata\": {\"total_size\": %s}, \"weight_map\": {\"x\": \"a.safetensors\"}}",
            bad[i]);
        g_autofree char *path = folder_write_text(&folder, INDEX, text);
        import_refused(path, REFIT_ERROR_INVALID,
                       ": metadata.total_size: ", "is not a number of bytes");
    }
    g_autofree char *path = folder_write_text(
        &folder, INDEX,
        "{\"metadata\": {\"total_size\": 4.0}, \"weight_map\": {\"x\": \"a.safetensors\"}}");
    g_autoptr(RefitModel) model = import_file(path, &as_written);
    g_assert_cmpuint(refit_model_bytes(model), ==, 4);
}

/* ---- text ---- */

static void test_nesting(void) {
    const guint depth = 100000;
    g_autoptr(GString) text = g_string_new(NULL);
    for (guint i = 0; i < depth; i++) {
        g_string_append(text, "{\"a\":");
    }
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *tensors = folder_write_tensors(&folder, "a.safetensors", text->str, 0);
    import_refused(tensors, REFIT_ERROR_PARSE, ": header:1:", "depth");
    g_autofree char *config = folder_write_text(&folder, "b.json", text->str);
    import_refused(config, REFIT_ERROR_PARSE, ":1:", "depth");
}

/* Infinity makes it no JSON, so that the reader of configs has its say; NaN is no number of layers.
 */
static void test_numbers(void) {
    static const char *const bad[] = {".nan", "NaN", "-1", "1.5", "1e3", "99999999999999999999"};
    g_auto(Folder) folder;
    folder_init(&folder);
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *text =
            g_strdup_printf("{\"model_type\": \"llama\", \"limit\": Infinity,\n"
                            " \"num_hidden_layers\": %s,\n \"hidden_size\": 8, \"vocab_size\": 8,"
                            " \"intermediate_size\": 8, \"num_attention_heads\": 2}",
                            bad[i]);
        g_autofree char *path = folder_write_text(&folder, "a.json", text);
        import_refused(path, REFIT_ERROR_INVALID, ":2:23: num_hidden_layers: ", bad[i]);
    }
}

/* ---- a config beside ---- */

static RefitModel *import_beside(const Folder *folder, const char *config, char **path_out) {
    g_autofree char *beside = folder_write_text(folder, "config.json", config);
    g_autofree char *path = folder_write_tensors(folder, "a.safetensors", ONE, 4);
    RefitModel *model = refit_model_import(&refit_disk, path, &as_written, NULL);
    *path_out = g_steal_pointer(&path);
    return model;
}

/* What is known of heads is whole: some divide by others of them, or nothing is known. */
static void test_heads(void) {
    g_auto(Folder) folder;
    folder_init(&folder);
    g_autofree char *path = NULL, *again = NULL;
    g_autoptr(RefitModel) model =
        import_beside(&folder, "{\"model_type\": \"novel\", \"num_key_value_heads\": 2}", &path);
    g_assert_nonnull(model);
    g_assert_cmpuint(refit_model_n_heads(model), ==, 0);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 0);
    g_assert_null(import_beside(
        &folder,
        "{\"model_type\": \"novel\", \"num_attention_heads\": 5, \"num_key_value_heads\": 2}",
        &again));
    g_autofree char *config = g_build_filename(folder.path, "config.json", NULL);
    g_autoptr(GError) error = NULL;
    g_assert_null(refit_model_import(&refit_disk, path, &as_written, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_autofree char *wanted = g_strconcat(
        config, ":1:74: num_key_value_heads: 2 KV heads do not divide the 5 attention heads", NULL);
    g_assert_cmpstr(error->message, ==, wanted);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
#define ADD(path, function) g_test_add_func("/model-import-hostile/" path, function)
    ADD("names-fit-into-messages", test_names);
    ADD("names-may-be-many", test_many_names);
    ADD("a-file-without-tensors-has-none", test_empty_file);
    ADD("a-pipe-is-not-waited-for", test_no_file);
    ADD("links-in-a-circle-are-refused", test_circle);
    ADD("absolute-paths-are-refused", test_absolute);
    ADD("totals-are-whole-numbers", test_totals);
    ADD("nesting-has-a-limit", test_nesting);
    ADD("numbers-are-whole", test_numbers);
    ADD("heads-divide-or-are-unknown", test_heads);
#undef ADD
    return g_test_run();
}
