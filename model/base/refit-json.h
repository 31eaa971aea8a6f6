#pragma once

/*
 * JSON output as a stream of calls into one growing string. A plan has millions of numbers, which a
 * tree of heap objects would make ten times larger than the plan; so the tree libraries serve for
 * reading and this writer for writing. Output is byte-reproducible: keys in the order of the calls,
 * doubles as the shortest of "%.9g", no locale. NaN and infinities are programmer mistakes
 * (asserted): JSON has none. Misuse (a value without key inside an object, unbalanced ends)
 * asserts.
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct _RefitJson RefitJson;

/* `indent`: spaces per level, or 0 for one line. */
RefitJson *refit_json_new(guint indent);
void refit_json_free(RefitJson *json);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitJson, refit_json_free)

/* `key` is NULL inside arrays and for the root value. */
void refit_json_begin_object(RefitJson *json, const char *key);
void refit_json_end_object(RefitJson *json);
void refit_json_begin_array(RefitJson *json, const char *key);
void refit_json_end_array(RefitJson *json);
/* Arrays of numbers: the following elements stay on one line whatever the indent. */
void refit_json_begin_row(RefitJson *json, const char *key);
void refit_json_end_row(RefitJson *json);
void refit_json_string(RefitJson *json, const char *key, const char *value); /* NULL: null */
void refit_json_uint(RefitJson *json, const char *key, guint64 value);
void refit_json_double(RefitJson *json, const char *key, double value);
void refit_json_bool(RefitJson *json, const char *key, gboolean value);

/* The finished document with a final newline; frees `json`. Caller frees the string. */
char *refit_json_finish(RefitJson *json, gsize *length_out);

G_END_DECLS
