#pragma once

/* What the reader of documents and the accessors of nodes share; nobody else includes it. */

#include "model/base/refit-yaml-import.h"

G_BEGIN_DECLS

struct _RefitDoc {
    char *name;
    const RefitFiles *files; /* borrowed; where what the nodes name is found */
    RefitNode *root;
    GPtrArray *nodes;      /* owns every node, also replaced ones: borrowed pointers stay valid */
    GStringChunk *strings; /* owns every text of the nodes */
    GHashTable *paths;     /* node to its path, made on demand */
    gsize n_alias_nodes;   /* copied for aliases so far */
};

struct _RefitNode {
    RefitDoc *doc;
    RefitNode *parent;  /* NULL for the root */
    const char *key;    /* in a mapping, else NULL */
    const char *place;  /* such as "--set train.tp"; NULL: line and column count */
    guint index;        /* in the parent */
    guint depth;        /* collections around the node */
    guint line, column; /* from 1 */
    guint key_line, key_column;
    RefitNodeKind kind;
    gboolean is_plain;    /* scalar without quotes */
    gboolean is_consumed; /* a reader asked for it */
    const char *text;     /* of a scalar */
    GPtrArray *children;  /* of a sequence or mapping */
    GHashTable *by_key;   /* of a mapping: key to child */
    GPtrArray *asked;     /* of a mapping: keys readers asked for, or NULL; texts in `strings` */
};

/* A scalar without text below `parent` (may be NULL), not yet among its children. */
RefitNode *refit_yaml_node_new(RefitDoc *doc, RefitNode *parent, const char *key);
void refit_yaml_node_set_kind(RefitNode *node, RefitNodeKind kind);
/* Makes `node` the last child of its parent. */
void refit_yaml_node_attach(RefitNode *node);
/* As refit_node_require; `value` is what to write when the key is missing, or NULL. */
RefitNode *refit_yaml_require(RefitNode *node, const char *key, const char *value, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* A plain scalar that says null. */
gboolean refit_yaml_is_null(const RefitNode *node);

/*
 * Reads `data` as one YAML value into the new node `node`. All nodes take over its place. On
 * failure `node` is left partly filled and must not be attached.
 */
gboolean refit_yaml_read(RefitNode *node, const char *data, gsize length, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
