/*
 * Where shipped files are found. A text is either a name, looked up as NAME.yaml in the directory
 * of its kind, or a path; the two are told apart by spelling alone, so that what a case means does
 * not depend on which files happen to exist. Names cannot leave their directory: they contain no
 * '/' and do not begin with a dot. Cost: one directory listing, and only for an unknown name.
 */

#include <string.h>

#include "model/case/refit-case.h"
#include "model/tensors/refit-model-import.h"

#define ENDING ".yaml"

typedef struct {
    const char *kind, *singular;
} Kind;

static const Kind kinds[] = {
    {"models", "model"},
    {"cases", "case"},
    {"profiles", "profile"},
    {"topologies", "topology"},
};

static const Kind *find_kind(const char *kind) {
    for (guint i = 0; i < G_N_ELEMENTS(kinds); i++)
        if (g_str_equal(kinds[i].kind, kind))
            return &kinds[i];
    g_assert_not_reached();
}

static char *directory_of(const RefitStore *store, const Kind *kind) {
    if (g_str_equal(kind->kind, "topologies"))
        return g_strdup(store->topologies_dir);
    return store->layouts_dir ? g_build_filename(store->layouts_dir, kind->kind, NULL) : NULL;
}

static gboolean is_path(const char *text) {
    return strchr(text, '/') || g_str_has_suffix(text, ENDING) || g_str_has_suffix(text, ".yml") ||
           g_str_has_suffix(text, ".json") || g_str_has_suffix(text, ".safetensors");
}

static gboolean is_name(const char *text) {
    return text[0] != '\0' && text[0] != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.-") == strlen(text);
}

static void report(const RefitNode *node, GError **error, const char *message) {
    if (node)
        refit_node_error(node, REFIT_ERROR_INVALID, error, "%s", message);
    else
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID, message);
}

/* Where the file of a path is; NULL and an error when it is not there. */
static char *find_path(const RefitStore *store, const char *text, const Kind *kind,
                       const RefitNode *node, GError **error) {
    g_autofree char *path = refit_node_resolve(node, text);
    if (refit_files_kind(store->files, path) == REFIT_PATH_MISSING) {
        g_autofree char *message = g_strdup_printf(
            "no %s file \"%s\"; write the name of a shipped %s or the path of a file",
            kind->singular, path, kind->singular);
        report(node, error, message);
        return NULL;
    }
    return g_steal_pointer(&path);
}

static int compare_names(gconstpointer a, gconstpointer b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

char **refit_store_list(const RefitStore *store, const char *kind) {
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    g_autofree char *directory = directory_of(store, find_kind(kind));
    g_auto(GStrv) files = directory ? refit_files_list(store->files, directory) : NULL;
    for (guint i = 0; files && files[i]; i++) {
        if (!g_str_has_suffix(files[i], ENDING))
            continue;
        g_autofree char *name = g_strndup(files[i], strlen(files[i]) - strlen(ENDING));
        if (is_name(name))
            g_ptr_array_add(names, g_steal_pointer(&name));
    }
    g_ptr_array_sort(names, compare_names);
    g_ptr_array_add(names, NULL);
    return (char **)g_ptr_array_free(g_steal_pointer(&names), FALSE);
}

static void report_unknown(const RefitStore *store, const Kind *kind, const char *text,
                           const char *directory, const RefitNode *node, GError **error) {
    g_auto(GStrv) names = refit_store_list(store, kind->kind);
    const char *nearest = refit_nearest_name(text, (const char *const *)names);
    g_autoptr(GString) message = g_string_new(NULL);
    g_autofree char *excerpt = refit_error_excerpt(text);
    g_string_append_printf(message, "no %s \"%s\"", kind->singular, excerpt);
    if (directory)
        g_string_append_printf(message, " in \"%s\"", directory);
    if (nearest) {
        g_string_append_printf(message, "; did you mean \"%s\"?", nearest);
    } else if (names[0]) {
        g_autofree char *known = g_strjoinv(", ", names);
        g_string_append_printf(message, "; known: %s", known);
    } else {
        g_string_append(message, "; write a path, which has a \"/\" or ends in " ENDING);
    }
    report(node, error, message->str);
}

/* Where the file of a name or path is; NULL and an error when there is none. */
static char *find_file(const RefitStore *store, const Kind *kind, const char *name_or_path,
                       const RefitNode *node, GError **error) {
    if (is_path(name_or_path))
        return find_path(store, name_or_path, kind, node, error);

    g_autofree char *directory = directory_of(store, kind);
    if (is_name(name_or_path) && directory) {
        g_autofree char *file = g_strconcat(name_or_path, ENDING, NULL);
        g_autofree char *path = g_build_filename(directory, file, NULL);
        if (refit_files_kind(store->files, path) != REFIT_PATH_MISSING)
            return g_steal_pointer(&path);
    }
    report_unknown(store, kind, name_or_path, directory, node, error);
    return NULL;
}

RefitDoc *refit_store_load(const RefitStore *store, const char *kind, const char *name_or_path,
                           const RefitNode *node, GError **error) {
    g_autofree char *path = find_file(store, find_kind(kind), name_or_path, node, error);
    return path ? refit_doc_load(store->files, path, error) : NULL;
}

RefitModel *refit_store_load_model(const RefitStore *store, const char *name_or_path,
                                   const RefitModelOptions *options, const RefitNode *node,
                                   GError **error) {
    g_autofree char *path = find_file(store, find_kind("models"), name_or_path, node, error);
    return path ? refit_model_import(store->files, path, options, error) : NULL;
}
