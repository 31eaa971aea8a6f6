/*
 * Keys of several words. The hash multiplies by the golden ratio after each word and folds the
 * upper half down, so that pointers and small numbers both spread. Cost: one multiplication a word.
 */

#include "model/base/refit-words.h"

#include <string.h>

guint refit_words_hash(gconstpointer key) {
    const guint64 *words = key;
    guint64 hash = 0;
    for (guint64 i = 0; i < words[0]; i++) {
        hash = (hash ^ words[i]) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return (guint)(hash >> 16);
}

gboolean refit_words_equal(gconstpointer a, gconstpointer b) {
    const guint64 *words = a;
    return *(const guint64 *)b == words[0] && memcmp(a, b, words[0] * sizeof *words) == 0;
}

guint64 *refit_words_copy(const guint64 *words) {
    return g_memdup2(words, words[0] * sizeof *words);
}
