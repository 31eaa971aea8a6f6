/*
 * Documents and their nodes: lookup that remembers what was asked for, the check for keys that
 * nobody asked for, overrides, and the places in messages. Paths are made on demand, since only
 * messages need them and eager ones would cost depth times length. Lookups are hashed; everything
 * else is linear in the part of the tree it looks at. Typed values are in refit-yaml-value.c.
 */

#include "model/base/refit-yaml-private.h"

#include <string.h>

#define SET_PLACE "--set "

static void node_free(gpointer data) {
    RefitNode *node = data;

    g_clear_pointer(&node->children, g_ptr_array_unref);
    g_clear_pointer(&node->by_key, g_hash_table_unref);
    g_clear_pointer(&node->asked, g_ptr_array_unref);
    g_free(node);
}

RefitNode *refit_yaml_node_new(RefitDoc *doc, RefitNode *parent, const char *key) {
    RefitNode *node = g_new0(RefitNode, 1);

    node->doc = doc;
    node->parent = parent;
    node->kind = REFIT_NODE_SCALAR;
    node->text = "";
    if (parent != NULL) {
        node->depth = parent->depth + 1;
        node->place = parent->place;
        node->index = parent->children->len;
    }
    if (key != NULL) {
        node->key = g_string_chunk_insert_const(doc->strings, key);
    }
    g_ptr_array_add(doc->nodes, node);
    return node;
}

void refit_yaml_node_set_kind(RefitNode *node, RefitNodeKind kind) {
    g_assert(node != NULL);
    node->kind = kind;
    if (kind != REFIT_NODE_SCALAR) {
        node->children = g_ptr_array_new();
    }
    if (kind == REFIT_NODE_MAPPING) {
        node->by_key = g_hash_table_new(g_str_hash, g_str_equal);
    }
}

void refit_yaml_node_attach(RefitNode *node) {
    RefitNode *parent = node->parent;

    node->index = parent->children->len;
    g_ptr_array_add(parent->children, node);
    if (parent->kind == REFIT_NODE_MAPPING) {
        g_hash_table_insert(parent->by_key, (gpointer)node->key, node);
    }
}

static RefitDoc *doc_new(const char *name) {
    RefitDoc *doc = g_new0(RefitDoc, 1);

    doc->name = g_strdup(name);
    doc->nodes = g_ptr_array_new_with_free_func(node_free);
    doc->strings = g_string_chunk_new(1024);
    doc->paths = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    doc->root = refit_yaml_node_new(doc, NULL, NULL);
    doc->root->is_consumed = TRUE;
    return doc;
}

void refit_doc_free(RefitDoc *doc) {
    if (doc == NULL) {
        return;
    }
    g_hash_table_unref(doc->paths);
    g_ptr_array_unref(doc->nodes);
    g_string_chunk_free(doc->strings);
    g_free(doc->name);
    g_free(doc);
}

RefitDoc *refit_doc_parse(const char *data, gsize length, const char *name, GError **error) {
    g_return_val_if_fail((data != NULL || length == 0) && name != NULL, NULL);
    g_autoptr(RefitDoc) doc = doc_new(name);

    if (!refit_yaml_read(doc->root, data, length, error)) {
        return NULL;
    }
    return g_steal_pointer(&doc);
}

RefitDoc *refit_doc_load(const RefitFiles *files, const char *path, GError **error) {
    g_autoptr(GBytes) bytes = refit_files_read(files, path, REFIT_DOC_MAX_BYTES, error);
    gsize length;

    if (bytes == NULL) {
        return NULL;
    }
    const char *data = g_bytes_get_data(bytes, &length);
    RefitDoc *doc = refit_doc_parse(data, length, path, error);
    if (doc != NULL) {
        doc->files = files;
    }
    return doc;
}

void refit_doc_use_files(RefitDoc *doc, const RefitFiles *files) {
    doc->files = files;
}

RefitNode *refit_doc_root(RefitDoc *doc) {
    return doc->root;
}

const char *refit_doc_name(const RefitDoc *doc) {
    return doc->name;
}

RefitNodeKind refit_node_kind(const RefitNode *node) {
    return node->kind;
}

const char *refit_node_path(const RefitNode *node) {
    if (node->parent == NULL) {
        return "";
    }
    char *path = g_hash_table_lookup(node->doc->paths, node);
    if (path == NULL) {
        g_autofree char *digits = g_strdup_printf("%u", node->index);
        const char *outer = refit_node_path(node->parent);
        path = g_strconcat(outer, *outer != '\0' ? "." : "", node->key != NULL ? node->key : digits,
                           NULL);
        g_hash_table_insert(node->doc->paths, (gpointer)node, path);
    }
    return path;
}

const char *refit_node_file(const RefitNode *node) {
    return node->place == NULL ? node->doc->name : NULL;
}

guint refit_node_size(const RefitNode *node) {
    return node->children != NULL ? node->children->len : 0;
}

RefitNode *refit_node_at(RefitNode *node, guint index) {
    g_return_val_if_fail(index < refit_node_size(node), NULL);
    RefitNode *child = g_ptr_array_index(node->children, index);

    child->is_consumed = TRUE;
    return child;
}

const char *refit_node_key_at(const RefitNode *node, guint index) {
    g_return_val_if_fail(node->kind == REFIT_NODE_MAPPING && index < node->children->len, NULL);
    const RefitNode *child = g_ptr_array_index(node->children, index);

    return child->key;
}

RefitNode *refit_node_get(RefitNode *node, const char *key) {
    g_return_val_if_fail(node->kind == REFIT_NODE_MAPPING, NULL);
    const char *known = g_string_chunk_insert_const(node->doc->strings, key);
    RefitNode *child = g_hash_table_lookup(node->by_key, key);

    if (node->asked == NULL) {
        node->asked = g_ptr_array_new();
    }
    /* insert_const() made equal texts one pointer */
    if (!g_ptr_array_find(node->asked, known, NULL)) {
        g_ptr_array_add(node->asked, (gpointer)known);
    }
    if (child != NULL) {
        child->is_consumed = TRUE;
    }
    return child;
}

char *refit_node_resolve(const RefitNode *node, const char *path) {
    const char *file = node != NULL ? refit_node_file(node) : NULL;
    g_autofree char *directory = file != NULL ? g_path_get_dirname(file) : NULL;

    if (directory == NULL || g_path_is_absolute(path) || g_str_equal(directory, ".")) {
        return g_strdup(path);
    }
    return g_build_filename(directory, path, NULL);
}

RefitDoc *refit_node_load(const RefitNode *node, const char *path, GError **error) {
    g_autofree char *file = refit_node_resolve(node, path);

    return refit_doc_load(node->doc->files, file, error);
}

/* A key like the missing one is probably it, misspelt; keys that were asked for are not. */
static void report_missing(RefitNode *node, const char *key, const char *value, GError **error) {
    g_autofree const char **spare = g_new0(const char *, node->children->len + 1);
    guint n_spare = 0;

    for (guint i = 0; i < node->children->len; i++) {
        const RefitNode *other = g_ptr_array_index(node->children, i);
        if (!other->is_consumed) {
            spare[n_spare++] = other->key;
        }
    }
    const char *nearest = refit_nearest_name(key, spare);
    if (nearest == NULL) {
        g_autofree char *hint =
            value != NULL ? g_strdup_printf("; write %s: %s", key, value) : g_strdup("");
        refit_node_error(node, REFIT_ERROR_INVALID, error, "the key \"%s\" is missing%s", key,
                         hint);
        return;
    }
    const RefitNode *other = g_hash_table_lookup(node->by_key, nearest);
    g_autofree char *excerpt = refit_error_excerpt(nearest);
    g_autofree char *where =
        other->place != NULL ? g_strdup(other->place) : g_strdup_printf("line %u", other->key_line);
    refit_node_error(node, REFIT_ERROR_INVALID, error,
                     "the key \"%s\" is missing; is \"%s\" (%s) meant for it?", key, excerpt,
                     where);
}

RefitNode *refit_yaml_require(RefitNode *node, const char *key, const char *value, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error)) {
        return NULL;
    }
    RefitNode *child = refit_node_get(node, key);
    if (child == NULL) {
        report_missing(node, key, value, error);
    }
    return child;
}

RefitNode *refit_node_require(RefitNode *node, const char *key, GError **error) {
    return refit_yaml_require(node, key, NULL, error);
}

void refit_node_consume_all(RefitNode *node) {
    node->is_consumed = TRUE;
    for (guint i = 0; i < refit_node_size(node); i++) {
        refit_node_consume_all(g_ptr_array_index(node->children, i));
    }
}

static void set_unknown_key_error(const RefitNode *node, GError **error) {
    const RefitNode *mapping = node->parent;
    g_autoptr(GPtrArray) known = g_ptr_array_new();

    for (guint i = 0; mapping->asked != NULL && i < mapping->asked->len; i++) {
        g_ptr_array_add(known, g_ptr_array_index(mapping->asked, i));
    }
    g_ptr_array_add(known, NULL);
    const char *const *names = (const char *const *)known->pdata;
    const char *nearest = refit_nearest_name(node->key, names);
    if (nearest != NULL) {
        refit_yaml_key_error(node, REFIT_ERROR_INVALID, error, "unknown key (did you mean \"%s\"?)",
                             nearest);
    } else if (known->len == 1) {
        refit_yaml_key_error(node, REFIT_ERROR_INVALID, error, "unknown key; none is known here");
    } else {
        g_autofree char *list = g_strjoinv(", ", (char **)known->pdata);
        refit_yaml_key_error(node, REFIT_ERROR_INVALID, error, "unknown key; known here: %s", list);
    }
}

gboolean refit_node_finish(RefitNode *node, GError **error) {
    for (guint i = 0; i < refit_node_size(node); i++) {
        RefitNode *child = g_ptr_array_index(node->children, i);
        if (node->kind == REFIT_NODE_MAPPING && !child->is_consumed) {
            set_unknown_key_error(child, error);
            return FALSE;
        }
        if (!refit_node_finish(child, error)) {
            return FALSE;
        }
    }
    return TRUE;
}

/* "FILE:LINE:COLUMN: PATH: ", without repeating a path that is the place itself. */
static void append_place(GString *message, const RefitNode *node, guint line, guint column) {
    const char *path = refit_node_path(node);

    if (node->place != NULL) {
        g_string_append_printf(message, "%s: ", node->place);
        if (g_str_has_prefix(node->place, SET_PLACE) &&
            g_str_equal(node->place + strlen(SET_PLACE), path)) {
            return;
        }
    } else {
        g_string_append_printf(message, "%s:%u:%u: ", node->doc->name, line, column);
    }
    if (*path != '\0') {
        g_autofree char *excerpt = refit_error_excerpt(path);
        g_string_append_printf(message, "%s: ", excerpt);
    }
}

void refit_node_error(const RefitNode *node, RefitError code, GError **error, const char *format,
                      ...) {
    g_autoptr(GString) message = g_string_new(NULL);
    va_list arguments;

    append_place(message, node, node->line, node->column);
    va_start(arguments, format);
    g_string_append_vprintf(message, format, arguments);
    va_end(arguments);
    g_set_error_literal(error, REFIT_ERROR, (int)code, message->str);
}

void refit_yaml_key_error(const RefitNode *node, RefitError code, GError **error,
                          const char *format, ...) {
    g_autoptr(GString) message = g_string_new(NULL);
    va_list arguments;

    append_place(message, node, node->key_line, node->key_column);
    va_start(arguments, format);
    g_string_append_vprintf(message, format, arguments);
    va_end(arguments);
    g_set_error_literal(error, REFIT_ERROR, (int)code, message->str);
}

/* Child of `node` for one segment of an override's path; `*child_out` is NULL when it is new. */
static gboolean find_segment(const RefitNode *node, const char *place, const char *segment,
                             RefitNode **child_out, GError **error) {
    g_autofree char *path = refit_error_excerpt(refit_node_path(node));
    const char *subject = *path != '\0' ? path : "the document";

    if (node->kind == REFIT_NODE_SCALAR) {
        g_autofree char *value = refit_error_excerpt(node->text);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s: %s is the single value \"%s\", which has no parts; set %s itself, as in "
                    "--set '%s={...}'",
                    place, subject, value, subject, path);
        return FALSE;
    }
    if (node->kind == REFIT_NODE_MAPPING) {
        *child_out = g_hash_table_lookup(node->by_key, segment);
        return TRUE;
    }
    guint64 index;
    g_autofree char *excerpt = refit_error_excerpt(segment);
    if (!g_ascii_string_to_unsigned(segment, 10, 0, G_MAXUINT, &index, NULL)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s: %s is a sequence of %u; \"%s\" is not a number from 0", place, subject,
                    node->children->len, excerpt);
        return FALSE;
    }
    if (index >= node->children->len) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s: %s is a sequence of %u, counted from 0; there is no %s", place, subject,
                    node->children->len, excerpt);
        return FALSE;
    }
    *child_out = g_ptr_array_index(node->children, (guint)index);
    return TRUE;
}

/* Puts `node` among its parent's children, in place of `old` when there is one. */
static void put_node(RefitNode *node, const RefitNode *old) {
    if (old == NULL) {
        refit_yaml_node_attach(node);
        return;
    }
    node->index = old->index;
    node->parent->children->pdata[old->index] = node;
    if (node->key != NULL) {
        g_hash_table_replace(node->parent->by_key, (gpointer)node->key, node);
    }
}

gboolean refit_doc_set(RefitDoc *doc, const char *assignment, GError **error) {
    const char *equals = strchr(assignment, '=');
    gsize path_length = equals != NULL ? (gsize)(equals - assignment) : strlen(assignment);
    g_autofree char *dotted = g_strndup(assignment, path_length);
    g_autofree char *excerpt = refit_error_excerpt(dotted);
    g_autofree char *place_text = g_strconcat(SET_PLACE, excerpt, NULL);
    g_auto(GStrv) segments = g_strsplit(dotted, ".", -1);
    guint n_segments = g_strv_length(segments);
    gboolean has_gap = n_segments == 0 || g_strv_contains((const char *const *)segments, "");

    if (equals == NULL || has_gap || !g_utf8_validate(dotted, -1, NULL)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "%s: needs a path, an equals sign and a value, as in --set train.tp=4",
                    place_text);
        return FALSE;
    }
    if (n_segments > REFIT_YAML_MAX_DEPTH) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "%s: nested deeper than %d levels",
                    place_text, REFIT_YAML_MAX_DEPTH);
        return FALSE;
    }

    /* First what exists, then a chain of new mappings; the document changes only at the end */
    const char *place = g_string_chunk_insert(doc->strings, place_text);
    RefitNode *parent = NULL;
    RefitNode *old = doc->root;
    RefitNode *top = NULL;  /* first new node */
    RefitNode *last = NULL; /* the one with the value */
    for (guint i = 0; i < n_segments; i++) {
        if (old != NULL) {
            parent = old;
            if (!find_segment(parent, place, segments[i], &old, error)) {
                return FALSE;
            }
            if (old != NULL && i + 1 < n_segments) {
                continue;
            }
        } else {
            refit_yaml_node_set_kind(last, REFIT_NODE_MAPPING);
            parent = last;
        }
        gboolean is_item = parent->kind == REFIT_NODE_SEQUENCE;
        RefitNode *node = refit_yaml_node_new(doc, parent, is_item ? NULL : segments[i]);
        node->place = place;
        if (old != NULL) {
            node->index = old->index;
        }
        if (last != NULL) {
            refit_yaml_node_attach(node);
        } else {
            top = node;
        }
        last = node;
    }
    if (!refit_yaml_read(last, equals + 1, strlen(equals + 1), error)) {
        return FALSE;
    }
    put_node(top, old);
    return TRUE;
}

/* ---- reshaping what other programs wrote ---- */

void refit_yaml_drop_nulls(RefitNode *node) {
    guint n_kept = 0;

    for (guint i = 0; i < refit_node_size(node); i++) {
        RefitNode *child = g_ptr_array_index(node->children, i);
        if (node->kind == REFIT_NODE_MAPPING && refit_yaml_is_null(child)) {
            g_hash_table_remove(node->by_key, child->key);
            continue;
        }
        child->index = n_kept;
        node->children->pdata[n_kept++] = child;
        refit_yaml_drop_nulls(child);
    }
    if (node->children != NULL) {
        g_ptr_array_set_size(node->children, (gint)n_kept);
    }
}

void refit_yaml_put_text(RefitNode *mapping, const char *key, const char *text) {
    RefitNode *node = refit_yaml_node_new(mapping->doc, mapping, key);

    node->text = g_string_chunk_insert(mapping->doc->strings, text);
    node->is_plain = node->is_consumed = TRUE;
    node->line = mapping->line;
    node->column = mapping->column;
    g_hash_table_replace(mapping->by_key, (gpointer)node->key, node);
}

gboolean refit_yaml_put(RefitNode *mapping, const char *key, const char *text, GError **error) {
    RefitNode *node = refit_yaml_node_new(mapping->doc, mapping, key);
    g_autofree char *place =
        g_strdup_printf("%s:%u:%u", mapping->doc->name, mapping->line, mapping->column);

    node->place = g_string_chunk_insert(mapping->doc->strings, place);
    if (!refit_yaml_read(node, text, strlen(text), error)) {
        return FALSE;
    }
    refit_node_consume_all(node);
    g_hash_table_replace(mapping->by_key, (gpointer)node->key, node);
    return TRUE;
}

void refit_yaml_link(RefitNode *mapping, const char *key, RefitNode *node) {
    const char *known = g_string_chunk_insert_const(mapping->doc->strings, key);

    if (node != NULL) {
        g_hash_table_replace(mapping->by_key, (gpointer)known, node);
    } else {
        g_hash_table_remove(mapping->by_key, known);
    }
}
