/*
 * One rank's views and program of a plan, and the profile that libraries carry with them. The rank
 * may be of the source, of one destination pool, of both or of none. Cost: the rank's part.
 */

#include "lib/refit-part.h"

#include "lib/refit-profile-text.h"

static gboolean read_views(RefitPart *part, RefitSide side, const RefitLayout *layout, guint rank,
                           GError **error) {
    if (!refit_layout_has_rank(layout, rank))
        return TRUE;
    part->views[side] = refit_rank_views_new(layout, rank, error);
    return part->views[side] != NULL;
}

RefitPart *refit_part_new(const RefitCase *refit_case, const RefitSchedule *schedule, guint rank,
                          GError **error) {
    g_autoptr(RefitPart) part = g_new0(RefitPart, 1);

    if (!read_views(part, REFIT_SIDE_SOURCE, refit_case->source, rank, error))
        return NULL;
    for (guint pool = 0; pool < refit_case->n_destinations; pool++)
        if (!read_views(part, REFIT_SIDE_DESTINATION, refit_case->destinations[pool], rank, error))
            return NULL;
    part->program = refit_program_new(schedule, rank, part->views[REFIT_SIDE_SOURCE],
                                      part->views[REFIT_SIDE_DESTINATION], error);
    if (part->program == NULL || !refit_program_check(part->program, error))
        return NULL;
    return g_steal_pointer(&part);
}

void refit_part_free(RefitPart *part) {
    if (part == NULL)
        return;
    refit_program_free(part->program);
    for (guint side = 0; side < REFIT_N_SIDES; side++)
        refit_rank_views_free(part->views[side]);
    g_free(part);
}

RefitProfile *refit_profile_built_in(GError **error) {
    g_autoptr(RefitDoc) doc = refit_doc_parse(refit_profile_text, sizeof refit_profile_text - 1,
                                              "built-in profile", error);

    return doc != NULL ? refit_profile_parse(refit_doc_root(doc), error) : NULL;
}
