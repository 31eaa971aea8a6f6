#pragma once

/*
 * For importers: how a foreign document is made to look like one of ours without losing its places.
 */

#include "model/base/refit-yaml.h"

G_BEGIN_DECLS

/* As refit_node_error, at the place of the key. */
void refit_yaml_key_error(const RefitNode *node, RefitError code, GError **error,
                          const char *format, ...) G_GNUC_PRINTF(4, 5);

/* Takes null values of mappings out, here and below: elsewhere they mean that the key is absent. */
void refit_yaml_drop_nulls(RefitNode *node);
/* Lookups of `key` find a plain scalar, which is not among the children; its place is `mapping`. */
void refit_yaml_put_text(RefitNode *mapping, const char *key, const char *text);
/* The same for any value: `text` is YAML. */
gboolean refit_yaml_put(RefitNode *mapping, const char *key, const char *text, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Lookups of `key` find `node`, which keeps its place and path, or nothing when it is NULL. */
void refit_yaml_link(RefitNode *mapping, const char *key, RefitNode *node);

G_END_DECLS
