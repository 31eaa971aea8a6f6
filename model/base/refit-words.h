#pragma once

/*
 * Hash keys made of 64-bit words: word 0 is the number of words, itself included. For tables that
 * answer "seen before?" and are never iterated.
 */

#include <glib.h>

G_BEGIN_DECLS

guint refit_words_hash(gconstpointer key);
gboolean refit_words_equal(gconstpointer a, gconstpointer b);
guint64 *refit_words_copy(const guint64 *words);

G_END_DECLS
