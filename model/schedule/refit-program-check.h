#pragma once

/* Shared by the files that check programs; not for other modules. */

#include "model/schedule/refit-program-private.h"

G_BEGIN_DECLS

/* Always FALSE. `step`: of the program, or G_MAXUINT. */
gboolean refit_program_fail(const RefitProgram *program, guint step, GError **error,
                            const char *format, ...) G_GNUC_PRINTF(4, 5);

/*
 * What is sent on has arrived by then, and staging memory holds one thing at a time, as far as
 * waits guarantee. The rest of the program is right.
 */
gboolean refit_program_check_memory(const RefitProgram *program, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
