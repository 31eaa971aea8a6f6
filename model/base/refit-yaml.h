#pragma once

/*
 * Input documents: YAML (JSON is a subset) read through libyaml into a tree whose every node knows
 * its file, line and column, so that also semantic errors point at the place. Reading marks keys
 * as consumed: refit_node_finish() then rejects what no reader asked for and names the nearest key
 * that was asked for. Duplicate keys, anchors with cycles, several documents and nesting deeper
 * than REFIT_YAML_MAX_DEPTH are refused at parse time. Cost: linear in the text.
 *
 * Messages begin with "FILE:LINE:COLUMN: PATH: ", for example
 *   cases/a.yaml:4:21: train.pp: 0 is not a positive count; write 1 for no pipeline
 */

#include "model/base/refit-dtype.h"
#include "model/base/refit-files.h"
#include "model/base/refit-units.h"

G_BEGIN_DECLS

#define REFIT_YAML_MAX_DEPTH 64

typedef struct _RefitDoc RefitDoc;
typedef struct _RefitNode RefitNode; /* borrowed from its document */

typedef enum { REFIT_NODE_SCALAR, REFIT_NODE_SEQUENCE, REFIT_NODE_MAPPING } RefitNodeKind;

/* `name` is used in messages only. The document keeps no reference to `data`. */
RefitDoc *refit_doc_parse(const char *data, gsize length, const char *name, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Reads a file of at most REFIT_DOC_MAX_BYTES; REFIT_ERROR_PARSE names the path when it cannot be
 * read. `files` is borrowed as long as the document lives: what its nodes name is found there, too.
 */
#define REFIT_DOC_MAX_BYTES (G_GUINT64_CONSTANT(1) << 30)
RefitDoc *refit_doc_load(const RefitFiles *files, const char *path, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* For a document from memory: where the files lie that its nodes name. Without, there are none. */
void refit_doc_use_files(RefitDoc *doc, const RefitFiles *files);
void refit_doc_free(RefitDoc *doc);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitDoc, refit_doc_free)

RefitNode *refit_doc_root(RefitDoc *doc);
const char *refit_doc_name(const RefitDoc *doc);

/*
 * Overrides one value: `assignment` is "dotted.path=YAML value", as given to --set. Sequences are
 * indexed by number ("generation.0.tp=4"). Missing last keys are created, missing parents too.
 * The new node's place in messages is "--set dotted.path".
 */
gboolean refit_doc_set(RefitDoc *doc, const char *assignment, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

RefitNodeKind refit_node_kind(const RefitNode *node);
const char *refit_node_path(const RefitNode *node); /* "train.tp", "" for the root */
/* Name of the document the node was written in; NULL when refit_doc_set() made it. Borrowed. */
const char *refit_node_file(const RefitNode *node);
/*
 * Where `path`, a text of `node`, lies: a relative one starts in the folder of the file that `node`
 * was written in, or in the working directory when `node` is NULL or was set by an override. Caller
 * frees.
 */
char *refit_node_resolve(const RefitNode *node, const char *path);
/* Loads the document that lies there, by the files of the document of `node`. */
RefitDoc *refit_node_load(const RefitNode *node, const char *path, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Number of children of a sequence or mapping; 0 for a scalar. */
guint refit_node_size(const RefitNode *node);
/* Sequence item or mapping value `index` in file order (consumes it). */
RefitNode *refit_node_at(RefitNode *node, guint index);
/* Key of mapping entry `index`. Borrowed. */
const char *refit_node_key_at(const RefitNode *node, guint index);

/* Value of `key`, or NULL when absent. Consumes it and remembers `key` as known. */
RefitNode *refit_node_get(RefitNode *node, const char *key);
/* The same, but absence is REFIT_ERROR_INVALID at the mapping's place. */
RefitNode *refit_node_require(RefitNode *node, const char *key, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Marks everything below `node` as consumed (free-form parts such as provenance). */
void refit_node_consume_all(RefitNode *node);
/* REFIT_ERROR_INVALID when `node` is not of `kind`. */
gboolean refit_node_expect(RefitNode *node, RefitNodeKind kind, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Rejects the first mapping key, here or below, that nobody consumed. */
gboolean refit_node_finish(RefitNode *node, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* Typed values of a scalar node. Strings are borrowed from the document. */
gboolean refit_node_string(RefitNode *node, const char **value_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean refit_node_bool(RefitNode *node, gboolean *value_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Decimal, within [min, max]; the message gives value and limit. */
gboolean refit_node_uint(RefitNode *node, guint64 min, guint64 max, guint64 *value_out,
                         GError **error) G_GNUC_WARN_UNUSED_RESULT;
gboolean refit_node_quantity(RefitNode *node, RefitUnit unit, double *value_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean refit_node_dtype(RefitNode *node, RefitDtype *value_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Index of the scalar in the NULL-terminated `choices`; otherwise REFIT_ERROR_INVALID with the
 * nearest choice and the list of all.
 */
gboolean refit_node_choice(RefitNode *node, const char *const *choices, guint *index_out,
                           GError **error) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Optional keys of a mapping: absent leaves `*value` untouched (its default) and returns TRUE.
 */
gboolean refit_node_get_uint(RefitNode *node, const char *key, guint64 min, guint64 max,
                             guint *value, GError **error) G_GNUC_WARN_UNUSED_RESULT;
gboolean refit_node_get_bool(RefitNode *node, const char *key, gboolean *value, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
gboolean refit_node_get_quantity(RefitNode *node, const char *key, RefitUnit unit, double *value,
                                 GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* `*value` is a newly allocated string, replacing (and freeing) what was there. */
gboolean refit_node_get_string(RefitNode *node, const char *key, char **value, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Checks that the root is a mapping whose `schema` is exactly `schema` ("refit.case/1"). */
gboolean refit_node_check_schema(RefitNode *root, const char *schema, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* Sets an error of `code` at the place of `node`. The message gets the "file:line:col: path: ". */
void refit_node_error(const RefitNode *node, RefitError code, GError **error, const char *format,
                      ...) G_GNUC_PRINTF(4, 5);

/* Name of `candidates` (NULL-terminated) nearest to `text` by edit distance, or NULL if none is
 * near. */
const char *refit_nearest_name(const char *text, const char *const *candidates);

G_END_DECLS
