#pragma once

/* What the tests of documents share: parsing that must succeed, and walking by dotted path. */

#include <string.h>

#include "model/base/refit-yaml.h"

G_GNUC_UNUSED static RefitDoc *parse(const char *text) {
    g_autoptr(GError) error = NULL;
    RefitDoc *doc = refit_doc_parse(text, strlen(text), "a.yaml", &error);

    g_assert_no_error(error);
    g_assert_nonnull(doc);
    return doc;
}

G_GNUC_UNUSED static void assert_uint(RefitNode *node, guint64 expected) {
    g_autoptr(GError) error = NULL;
    guint64 value = G_MAXUINT64 - expected;

    g_assert_true(refit_node_uint(node, 0, G_MAXUINT64, &value, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(value, ==, expected);
}

G_GNUC_UNUSED static void assert_string(RefitNode *node, const char *expected) {
    const char *text = NULL;

    g_assert_true(refit_node_string(node, &text, NULL));
    g_assert_cmpstr(text, ==, expected);
}

/* Follows keys and indices. */
G_GNUC_UNUSED static RefitNode *at(RefitDoc *doc, const char *path) {
    RefitNode *node = refit_doc_root(doc);
    g_auto(GStrv) segments = g_strsplit(path, ".", -1);

    for (guint i = 0; segments[i] != NULL; i++) {
        node = refit_node_kind(node) == REFIT_NODE_SEQUENCE
                   ? refit_node_at(node, (guint)g_ascii_strtoull(segments[i], NULL, 10))
                   : refit_node_get(node, segments[i]);
        g_assert_nonnull(node);
    }
    return node;
}
