/*
 * Fuzz target of the document reader: any bytes either are refused with a message that names the
 * place, or give a tree that every accessor survives. The first line, if it begins with '!', is an
 * override; the rest is the document.
 */

#include <stdint.h>
#include <string.h>

#include "model/base/refit-yaml.h"

#define MAX_ASKED 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Asks the node for everything it could be, as readers do with wrong inputs. */
static void ask(RefitNode *node) {
    static const char *const choices[] = {"refit", "ring", NULL};
    const char *text = NULL;
    gboolean flag = FALSE;
    guint64 number = 0;
    double quantity = 0;
    guint choice = 0;
    RefitDtype dtype = REFIT_DTYPE_U8;

    gboolean is_text = refit_node_string(node, &text, NULL);
    g_assert_true(!is_text || g_utf8_validate(text, -1, NULL));
    gboolean is_flag = refit_node_bool(node, &flag, NULL);
    gboolean is_number = refit_node_uint(node, 1, 1 << 20, &number, NULL);
    g_assert_true(!is_number || (number >= 1 && number <= 1 << 20));
    g_assert_false(is_flag && is_number);
    for (int unit = REFIT_UNIT_BYTES; unit <= REFIT_UNIT_PLAIN; unit++) {
        if (refit_node_quantity(node, (RefitUnit)unit, &quantity, NULL)) {
            g_assert_true(quantity >= 0 && quantity <= G_MAXDOUBLE);
        }
    }
    if (refit_node_choice(node, choices, &choice, NULL)) {
        g_assert_cmpuint(choice, <, 2);
    }
    if (refit_node_dtype(node, &dtype, NULL)) {
        g_assert_cmpint(dtype, <, REFIT_N_DTYPES);
    }
}

/* Aliases make many equal nodes; their messages would cost all the time of a run. */
static void walk(RefitNode *node, guint *n_asked) {
    if (*n_asked < MAX_ASKED) {
        ask(node);
        ++*n_asked;
    }
    for (guint i = 0; i < refit_node_size(node); i++) {
        RefitNode *child = refit_node_at(node, i);
        if (refit_node_kind(node) == REFIT_NODE_MAPPING) {
            g_assert_true(refit_node_get(node, refit_node_key_at(node, i)) == child);
        }
        walk(child, n_asked);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    g_autoptr(GError) error = NULL;
    g_autofree char *assignment = NULL;
    const char *text = (const char *)data;
    guint n_asked = 0;

    if (size > 0 && text[0] == '!') {
        const char *end = memchr(text, '\n', size);
        gsize length = end != NULL ? (gsize)(end - text) + 1 : size;
        assignment = g_strndup(text + 1, length - 1);
        g_strchomp(assignment);
        text += length;
        size -= length;
    }
    g_autoptr(RefitDoc) doc = refit_doc_parse(text, size, "fuzz", &error);
    if (doc == NULL) {
        g_assert_true(error != NULL && error->domain == REFIT_ERROR);
        g_assert_true(g_str_has_prefix(error->message, "fuzz:"));
        return 0;
    }
    if (assignment != NULL && !refit_doc_set(doc, assignment, &error)) {
        g_assert_true(g_str_has_prefix(error->message, "--set "));
        g_clear_error(&error);
    }

    RefitNode *root = refit_doc_root(doc);
    gboolean nothing_unknown = refit_node_finish(root, &error);
    g_assert_true(nothing_unknown == (error == NULL));
    g_clear_error(&error);
    walk(root, &n_asked);
    nothing_unknown = refit_node_finish(root, &error);
    g_assert_no_error(error);
    g_assert_true(nothing_unknown);
    return 0;
}
