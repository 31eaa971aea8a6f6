/*
 * Error codes as data: exit codes and names come from the one table in the header, so that a new
 * code cannot miss either. Every function is constant time but refit_error_excerpt, which is linear
 * in the text.
 */

#include "model/base/refit-error.h"

#define EXCERPT_CHARACTERS 80

/* Without the cache of G_DEFINE_QUARK, which threads would write without order. */
GQuark refit_error_quark(void) {
    return g_quark_from_static_string("refit-error-quark");
}

int refit_error_exit_code(const GError *error) {
    static const int exit_codes[] = {
#define X(suffix, exit_code, name, meaning) [REFIT_ERROR_##suffix] = exit_code,
        REFIT_ERROR_MAP(X)
#undef X
    };

    g_return_val_if_fail(error != NULL, exit_codes[REFIT_ERROR_BACKEND]);
    if (error->domain != REFIT_ERROR || error->code < 0 ||
        (gsize)error->code >= G_N_ELEMENTS(exit_codes)) {
        return exit_codes[REFIT_ERROR_BACKEND];
    }
    return exit_codes[error->code];
}

const char *refit_error_name(const GError *error) {
    static const char *const names[] = {
#define X(suffix, exit_code, name, meaning) [REFIT_ERROR_##suffix] = name,
        REFIT_ERROR_MAP(X)
#undef X
    };

    g_return_val_if_fail(error != NULL, names[REFIT_ERROR_BACKEND]);
    if (error->domain != REFIT_ERROR || error->code < 0 ||
        (gsize)error->code >= G_N_ELEMENTS(names)) {
        return names[REFIT_ERROR_BACKEND];
    }
    return names[error->code];
}

char *refit_error_excerpt(const char *text) {
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    GString *excerpt = g_string_new(NULL);
    guint n_characters = 0;

    for (const char *at = valid; *at != '\0'; at = g_utf8_next_char(at)) {
        if (n_characters++ == EXCERPT_CHARACTERS) {
            g_string_append(excerpt, "...");
            break;
        }
        gunichar character = g_utf8_get_char(at);
        g_string_append_unichar(excerpt, g_unichar_iscntrl(character) ? '?' : character);
    }
    return g_string_free(excerpt, FALSE);
}
