#pragma once

/*
 * Carrying programs out on memory of the host: every rank has its parameters and its staging memory
 * as bytes, every element a value of its own, and events happen in an order that the test chooses.
 */

#include "model/schedule/refit-program.h"

G_BEGIN_DECLS

/* The programs of all ranks of a plan. */
typedef struct {
    const RefitPlan *plan;
    RefitSchedule *schedule;
    guint n_ranks;
    RefitRankViews **source, **destination; /* per rank; NULL when not on that side */
    RefitProgram **programs;
} ProgramSet;

/* Asserts that all of them can be made, pass their proofs and agree. */
ProgramSet *program_set_new(const RefitPlan *plan);
void program_set_free(ProgramSet *set);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(ProgramSet, program_set_free)

/*
 * What a parameter holds when each element of its views has its value, or, not `filled`, before
 * anything has come; bytes of no element are the same in both. Caller frees.
 */
guint8 *program_parameter_bytes(const RefitRankViews *views, guint parameter,
                                const RefitModel *model, gboolean filled);

typedef enum {
    PROGRAM_ORDER_SERIAL, /* a rank completes each turn before it starts the next */
    PROGRAM_ORDER_EAGER,  /* every rank does what it can, lowest rank first */
    PROGRAM_ORDER_RANDOM, /* by seed: any event that is possible may come next, or wait long */
} ProgramOrder;

/*
 * Runs all programs and compares the parameters of every rank bit by bit, with all padding. NULL
 * when they are right; else what is wrong, or who waits for what for ever. Caller frees.
 */
char *program_set_run(const ProgramSet *set, ProgramOrder order, guint seed);
/* Runs them in every order, by several seeds, and asserts that all is right; in one order only when
 * there are many thousand turns. */
void program_set_assert_right(const ProgramSet *set, guint seed);

/*
 * Bytes of staging memory without which a plan cannot be carried out: what its programs take when
 * they move everything in the smallest chunks. Changes the budget of the plan's case.
 */
static inline guint64 program_least_staging(RefitCase *refit_case, const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    guint64 most = 0;

    g_assert_true(plan->problem->refit_case == refit_case);
    refit_case->budget_staging_bytes = 1;
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++)
        most = MAX(most, refit_schedule_staging_bytes(schedule, rank));
    return most;
}

G_END_DECLS
