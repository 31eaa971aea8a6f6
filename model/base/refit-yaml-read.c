/*
 * Reading a document: one pass over libyaml's events, which carry positions, building nodes as they
 * come. Only the innermost open collection and at most one key waiting for its value are state. An
 * alias becomes a copy of what it names, since every use has its own path and its own consumed
 * keys; copies are counted, because aliases of aliases grow exponentially in the length of the
 * text. Everything else is linear in the text.
 */

#include "model/base/refit-yaml-private.h"

#include <string.h>
#include <yaml.h>

#define MAX_ALIAS_NODES (1 << 16)

typedef struct {
    RefitDoc *doc;
    RefitNode *root;
    RefitNode *open;     /* innermost collection that has not ended */
    RefitNode *waiting;  /* its key was read, its value was not */
    GHashTable *anchors; /* name to node */
    gboolean has_document;
} Reader;

/* Error at a mark that has no node. */
static void set_mark_error(const Reader *reader, yaml_mark_t mark, GError **error,
                           const char *message) {
    if (reader->root->place != NULL) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE, "%s: %s", reader->root->place, message);
    } else {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "%s:%" G_GSIZE_FORMAT ":%" G_GSIZE_FORMAT ": %s", reader->doc->name,
                    mark.line + 1, mark.column + 1, message);
    }
}

static void set_libyaml_error(const Reader *reader, const yaml_parser_t *parser, const char *data,
                              gsize length, GError **error) {
    yaml_mark_t mark = parser->problem_mark;
    const char *problem = parser->problem != NULL ? parser->problem : "not enough memory";
    g_autoptr(GString) message = g_string_new("not YAML: ");

    if (parser->error == YAML_READER_ERROR) {
        /* The decoder runs ahead of the scanner and reports a byte offset only */
        gsize offset = MIN(parser->problem_offset, length);
        mark.line = mark.column = 0;
        for (gsize i = 0; i < offset; i++) {
            guchar byte = (guchar)data[i];
            if (byte == '\n') {
                mark.line++;
                mark.column = 0;
            } else {
                mark.column += (byte & 0xc0) != 0x80;
            }
        }
    }
    g_string_append(message, problem);
    if (parser->context != NULL) {
        g_string_append_printf(message, " %s", parser->context);
        if (parser->context_mark.line != mark.line && reader->root->place == NULL) {
            g_string_append_printf(message, " begun in line %" G_GSIZE_FORMAT,
                                   parser->context_mark.line + 1);
        }
    }
    set_mark_error(reader, mark, error, message->str);
}

/* The node that the value beginning at `mark` is for. */
static RefitNode *begin_node(Reader *reader, yaml_mark_t mark) {
    RefitNode *node;

    if (reader->open == NULL) {
        node = reader->root;
    } else if (reader->waiting != NULL) {
        node = g_steal_pointer(&reader->waiting);
        refit_yaml_node_attach(node);
    } else {
        node = refit_yaml_node_new(reader->doc, reader->open, NULL);
        refit_yaml_node_attach(node);
    }
    node->line = (guint)mark.line + 1;
    node->column = (guint)mark.column + 1;
    return node;
}

static gboolean is_key_next(const Reader *reader) {
    return reader->open != NULL && reader->open->kind == REFIT_NODE_MAPPING &&
           reader->waiting == NULL;
}

static gboolean read_key(Reader *reader, const yaml_event_t *event, GError **error) {
    const char *text = (const char *)event->data.scalar.value;
    gsize length = event->data.scalar.length;

    if (length == 0 || strlen(text) != length) {
        set_mark_error(reader, event->start_mark, error,
                       length == 0 ? "a key is empty" : "a key contains a NUL character");
        return FALSE;
    }
    RefitNode *node = refit_yaml_node_new(reader->doc, reader->open, text);
    node->key_line = (guint)event->start_mark.line + 1;
    node->key_column = (guint)event->start_mark.column + 1;
    const RefitNode *first = g_hash_table_lookup(reader->open->by_key, text);
    if (first != NULL) {
        if (first->place != NULL) {
            refit_yaml_key_error(node, REFIT_ERROR_PARSE, error, "the key is given twice");
        } else {
            refit_yaml_key_error(node, REFIT_ERROR_PARSE, error,
                                 "the key is given twice, first in line %u", first->key_line);
        }
        return FALSE;
    }
    reader->waiting = node;
    return TRUE;
}

static void add_anchor(Reader *reader, const yaml_char_t *anchor, RefitNode *node) {
    if (anchor != NULL) {
        g_hash_table_replace(reader->anchors, g_strdup((const char *)anchor), node);
    }
}

static gboolean has_tag(const yaml_char_t *tag, const char *const *names) {
    return tag == NULL || g_str_equal((const char *)tag, "!") ||
           g_strv_contains(names, (const char *)tag);
}

static gboolean refuse_tag(const RefitNode *node, const yaml_char_t *tag, GError **error) {
    g_autofree char *excerpt = refit_error_excerpt((const char *)tag);

    refit_node_error(node, REFIT_ERROR_PARSE, error, "the tag %s has no meaning here; leave it out",
                     excerpt);
    return FALSE;
}

static gboolean read_scalar(Reader *reader, const yaml_event_t *event, GError **error) {
    static const char *const text_tags[] = {YAML_STR_TAG, NULL};
    static const char *const other_tags[] = {YAML_INT_TAG, YAML_FLOAT_TAG, YAML_BOOL_TAG,
                                             YAML_NULL_TAG, NULL};
    const char *text = (const char *)event->data.scalar.value;
    const yaml_char_t *tag = event->data.scalar.tag;

    if (is_key_next(reader)) {
        return read_key(reader, event, error);
    }
    RefitNode *node = begin_node(reader, event->start_mark);
    if (strlen(text) != event->data.scalar.length) {
        refit_node_error(node, REFIT_ERROR_PARSE, error, "the text contains a NUL character");
        return FALSE;
    }
    node->text = g_string_chunk_insert(reader->doc->strings, text);
    if (tag == NULL) {
        node->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    } else if (has_tag(tag, text_tags)) {
        node->is_plain = FALSE;
    } else if (has_tag(tag, other_tags)) {
        node->is_plain = TRUE;
    } else {
        return refuse_tag(node, tag, error);
    }
    add_anchor(reader, event->data.scalar.anchor, node);
    return TRUE;
}

static gboolean begin_collection(Reader *reader, yaml_mark_t mark, RefitNodeKind kind,
                                 const yaml_char_t *anchor, const yaml_char_t *tag,
                                 GError **error) {
    const char *const tags[] = {kind == REFIT_NODE_MAPPING ? YAML_MAP_TAG : YAML_SEQ_TAG, NULL};

    if (is_key_next(reader)) {
        set_mark_error(reader, mark, error, "a key must be a single value, not a collection");
        return FALSE;
    }
    RefitNode *node = begin_node(reader, mark);
    if (node->depth >= REFIT_YAML_MAX_DEPTH) {
        refit_node_error(node, REFIT_ERROR_PARSE, error, "nested deeper than %d levels",
                         REFIT_YAML_MAX_DEPTH);
        return FALSE;
    }
    if (!has_tag(tag, tags)) {
        return refuse_tag(node, tag, error);
    }
    refit_yaml_node_set_kind(node, kind);
    add_anchor(reader, anchor, node);
    reader->open = node;
    return TRUE;
}

/* Recursion is bounded by REFIT_YAML_MAX_DEPTH. */
static gboolean copy_node(RefitNode *to, const RefitNode *from, const char *anchor,
                          GError **error) {
    if (++to->doc->n_alias_nodes > MAX_ALIAS_NODES) {
        refit_node_error(to, REFIT_ERROR_PARSE, error,
                         "aliases expand to more than %d values; write fewer of them",
                         MAX_ALIAS_NODES);
        return FALSE;
    }
    if (from->kind != REFIT_NODE_SCALAR && to->depth >= REFIT_YAML_MAX_DEPTH) {
        refit_node_error(to, REFIT_ERROR_PARSE, error,
                         "nested deeper than %d levels through the alias *%s", REFIT_YAML_MAX_DEPTH,
                         anchor);
        return FALSE;
    }
    to->line = from->line;
    to->column = from->column;
    to->is_plain = from->is_plain;
    to->text = from->text;
    if (from->kind == REFIT_NODE_SCALAR) {
        return TRUE;
    }
    refit_yaml_node_set_kind(to, from->kind);
    for (guint i = 0; i < from->children->len; i++) {
        const RefitNode *item = g_ptr_array_index(from->children, i);
        RefitNode *copy = refit_yaml_node_new(to->doc, to, item->key);
        copy->key_line = item->key_line;
        copy->key_column = item->key_column;
        copy->line = item->line;
        copy->column = item->column;
        refit_yaml_node_attach(copy);
        if (!copy_node(copy, item, anchor, error)) {
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean read_alias(Reader *reader, const yaml_event_t *event, GError **error) {
    const char *anchor = (const char *)event->data.alias.anchor;

    if (is_key_next(reader)) {
        set_mark_error(reader, event->start_mark, error,
                       "a key must be written out, not be an alias");
        return FALSE;
    }
    RefitNode *node = begin_node(reader, event->start_mark);
    const RefitNode *target = g_hash_table_lookup(reader->anchors, anchor);
    if (target == NULL) {
        refit_node_error(node, REFIT_ERROR_PARSE, error, "the alias *%s names no anchor before it",
                         anchor);
        return FALSE;
    }
    for (const RefitNode *outer = reader->open; outer != NULL; outer = outer->parent) {
        if (outer == target) {
            refit_node_error(node, REFIT_ERROR_PARSE, error,
                             "the alias *%s names a value that contains it", anchor);
            return FALSE;
        }
    }
    return copy_node(node, target, anchor, error);
}

static gboolean read_event(Reader *reader, const yaml_event_t *event, GError **error) {
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (reader->has_document) {
            set_mark_error(reader, event->start_mark, error,
                           "a second document begins; only one may be given");
            return FALSE;
        }
        reader->has_document = TRUE;
        return TRUE;
    case YAML_SCALAR_EVENT:
        return read_scalar(reader, event, error);
    case YAML_SEQUENCE_START_EVENT:
        return begin_collection(reader, event->start_mark, REFIT_NODE_SEQUENCE,
                                event->data.sequence_start.anchor, event->data.sequence_start.tag,
                                error);
    case YAML_MAPPING_START_EVENT:
        return begin_collection(reader, event->start_mark, REFIT_NODE_MAPPING,
                                event->data.mapping_start.anchor, event->data.mapping_start.tag,
                                error);
    case YAML_ALIAS_EVENT:
        return read_alias(reader, event, error);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        /* Above the root of a value given with --set lies the document it goes to. */
        g_assert(reader->open != NULL);
        reader->open = reader->open == reader->root ? NULL : reader->open->parent;
        return TRUE;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return TRUE;
    }
    g_return_val_if_reached(FALSE);
}

static gboolean read_stream(Reader *reader, yaml_parser_t *parser, const char *data, gsize length,
                            GError **error) {
    gboolean is_done = FALSE;

    while (!is_done) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) {
            set_libyaml_error(reader, parser, data, length, error);
            return FALSE;
        }
        is_done = event.type == YAML_STREAM_END_EVENT;
        gboolean is_read = read_event(reader, &event, error);
        yaml_event_delete(&event);
        if (!is_read) {
            return FALSE;
        }
    }
    const RefitNode *root = reader->root;
    if (!reader->has_document ||
        (root->kind == REFIT_NODE_SCALAR && root->is_plain && *root->text == '\0')) {
        yaml_mark_t begin = {0, 0, 0};
        set_mark_error(reader, begin, error,
                       root->place != NULL ? "no value is given" : "the document is empty");
        return FALSE;
    }
    return TRUE;
}

gboolean refit_yaml_read(RefitNode *node, const char *data, gsize length, GError **error) {
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    Reader reader = {.doc = node->doc, .root = node};
    yaml_parser_t parser;

    if (length == 0) {
        data = "";
    }
    /* libyaml counts the mark as a column */
    if (length >= 3 && memcmp(data, byte_order_mark, 3) == 0) {
        data += 3;
        length -= 3;
    }
    if (!yaml_parser_initialize(&parser)) {
        yaml_mark_t begin = {0, 0, 0};
        set_mark_error(&reader, begin, error, "not enough memory");
        return FALSE;
    }
    /* Otherwise the first bytes could choose UTF-16 */
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)data, length);
    reader.anchors = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    gboolean is_read = read_stream(&reader, &parser, data, length, error);
    g_hash_table_unref(reader.anchors);
    yaml_parser_delete(&parser);
    return is_read;
}
