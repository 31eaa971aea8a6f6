#pragma once

/*
 * Errors of the whole project.
 *
 * Every function that can fail takes a `GError **` as its last argument and returns FALSE or NULL
 * when it fails. Output arguments end in `_out` and are written only on success. A message is
 * lower case, has no full stop, and says where, what value, what limit and what to do. Programmer
 * mistakes are caught by g_assert and g_return_if_fail, never by a GError. Running out of host
 * memory aborts, as everywhere in GLib.
 */

#include <glib.h>

G_BEGIN_DECLS

#define REFIT_ERROR (refit_error_quark())

/*
 * X(SUFFIX, exit_code, name, meaning): one row per code. The exit code is what the program returns
 * for it; the name is what JSON error objects carry.
 */
#define REFIT_ERROR_MAP(X)                                                                         \
    X(PARSE, 3, "parse", "the text is not YAML, JSON or a quantity")                               \
    X(INVALID, 3, "invalid", "the text is well formed but says something impossible")              \
    X(OVERFLOW, 3, "overflow", "a size does not fit in 64 bits")                                   \
    X(INFEASIBLE, 4, "infeasible", "no plan exists within the stated limits")                      \
    X(NOT_SUPPORTED, 5, "not-supported", "this build or machine cannot do it")                     \
    X(BACKEND, 6, "backend", "SimGrid, CUDA, NCCL or the operating system failed")                 \
    X(COVERAGE, 1, "coverage", "a plan does not deliver exactly what is needed")

typedef enum {
#define X(suffix, exit_code, name, meaning) REFIT_ERROR_##suffix,
    REFIT_ERROR_MAP(X)
#undef X
} RefitError;

GQuark refit_error_quark(void);

/* Exit code of the program for `error`; 6 for an error of another domain. */
int refit_error_exit_code(const GError *error);

/* Stable name of the code, such as "parse"; "backend" for another domain. Static string. */
const char *refit_error_name(const GError *error);

/*
 * Text of an input as shown in messages: valid UTF-8, control characters shown as '?', at most 80
 * characters (a longer text ends in "..."). Caller frees.
 */
char *refit_error_excerpt(const char *text);

G_END_DECLS
