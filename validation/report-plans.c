/*
 * Plans of a report's case with every strategy. Planning runs the coverage proof; what is added is
 * that no messages wait for each other in a circle, and that the direct plan moves exactly the
 * bytes the case demands, which is what the report states.
 */

#include <string.h>

#include "model/strategy/refit-strategy.h"
#include "model/schedule/refit-schedule.h"
#include "validation/report.h"

static gboolean check_direct(const Report *report, const RefitPlan *plan, GError **error) {
    guint64 moved = plan->link_bytes[REFIT_LINK_NVLINK] + plan->link_bytes[REFIT_LINK_NETWORK];
    guint64 local = 0;

    for (guint i = 0; i < report->demand->n_ranks; i++)
        local += report->demand->ranks[i].local_bytes;
    if (moved != report->demand->receive_bytes)
        return report_fail(error, "moves %" G_GUINT64_FORMAT " bytes, not %" G_GUINT64_FORMAT,
                           moved, report->demand->receive_bytes);
    if (plan->link_bytes[REFIT_LINK_LOCAL] != local)
        return report_fail(error,
                           "copies %" G_GUINT64_FORMAT " bytes in place, not %" G_GUINT64_FORMAT,
                           plan->link_bytes[REFIT_LINK_LOCAL], local);
    return TRUE;
}

static gboolean check_strategy(const Report *report, const RefitStrategy *strategy,
                               GError **error) {
    g_autoptr(GError) cause = NULL;
    g_autoptr(RefitPlan) plan = refit_plan_new(report->problem, strategy, &cause);
    g_autoptr(RefitSchedule) schedule = NULL;

    /* A strategy may say that it cannot do a case; that is no mistake of its plans. */
    if (plan == NULL && g_error_matches(cause, REFIT_ERROR, REFIT_ERROR_INFEASIBLE) &&
        strcmp(strategy->name, "direct") != 0)
        return TRUE;
    if (plan == NULL) {
        g_propagate_error(error, g_steal_pointer(&cause));
        return FALSE;
    }
    /* So may a schedule, of more turns than a rank can have. */
    schedule = refit_schedule_new(plan, &cause);
    if (schedule == NULL && !g_error_matches(cause, REFIT_ERROR, REFIT_ERROR_LIMIT)) {
        g_propagate_error(error, g_steal_pointer(&cause));
        return FALSE;
    }
    return (schedule == NULL || refit_schedule_check(schedule, error)) &&
           (strcmp(strategy->name, "direct") != 0 || check_direct(report, plan, error));
}

gboolean report_check_plans(const Report *report, GError **error) {
    const RefitStrategy *const *strategies = refit_strategies();

    for (guint i = 0; strategies[i] != NULL; i++) {
        if (!check_strategy(report, strategies[i], error)) {
            g_prefix_error(error, "plan %s: ", strategies[i]->name);
            return FALSE;
        }
    }
    return TRUE;
}
