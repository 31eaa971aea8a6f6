#pragma once

/* What a rank needs of a plan besides the executor: its parameters and its program. */

#include "model/case/refit-case.h"
#include "model/case/refit-manifest.h"
#include "model/schedule/refit-program.h"

G_BEGIN_DECLS

typedef struct {
    RefitRankViews *views[REFIT_N_SIDES]; /* NULL: the rank is not on that side */
    RefitProgram *program;
} RefitPart;

/* Both borrowed until it is freed. `rank` is a GPU of the topology. The program has been proved. */
RefitPart *refit_part_new(const RefitCase *refit_case, const RefitSchedule *schedule, guint rank,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_part_free(RefitPart *part);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitPart, refit_part_free)

/* layouts/profiles/refit.yaml, as it was when the library was built. */
RefitProfile *refit_profile_built_in(GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
