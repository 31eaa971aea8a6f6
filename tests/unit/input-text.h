#pragma once

/* Helpers of the tests that read small documents written in the test itself. */

#include <string.h>

#include "lib/refit-disk.h"
#include "model/case/refit-case.h"

/* Shipped data of this source tree. */
static inline const RefitStore *input_store(void) {
    static const RefitStore store = {
        .layouts_dir = REFIT_SOURCE_DATA_DIR "/layouts",
        .topologies_dir = REFIT_SOURCE_DATA_DIR "/topologies",
        .files = &refit_disk,
    };
    return &store;
}

/* `text` with the one occurrence of `old` replaced. */
static inline char *input_replace(const char *text, const char *old, const char *new_text) {
    const char *at = strstr(text, old);
    g_assert_nonnull(at);
    g_assert_null(strstr(at + 1, old));
    g_autofree char *head = g_strndup(text, (gsize)(at - text));
    return g_strconcat(head, new_text, at + strlen(old), NULL);
}

static inline RefitDoc *input_doc(const char *text) {
    g_autoptr(GError) error = NULL;
    RefitDoc *doc = refit_doc_parse(text, strlen(text), "t.yaml", &error);
    g_assert_no_error(error);
    return doc;
}

/* The message must be `expected`, which may end in '*' where the rest is another module's wording.
 */
static inline void input_assert_error(const GError *error, RefitError code, const char *expected) {
    g_assert_error(error, REFIT_ERROR, (int)code);
    gsize length = strlen(expected);
    g_autofree char *seen = expected[length - 1] == '*' ? g_strndup(error->message, length - 1)
                                                        : g_strdup(error->message);
    g_autofree char *wanted =
        g_strndup(expected, expected[length - 1] == '*' ? length - 1 : length);
    g_assert_cmpstr(seen, ==, wanted);
}

typedef struct {
    const char *old, *new_text, *message;
} InputBad;
