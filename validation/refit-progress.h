#pragma once

/*
 * Progress: does a set of ranks that work through ordered steps ever finish, and if not, who waits
 * for whom.
 *
 * A step is a set of operations submitted together; a rank goes on to its next step when all of
 * them are done. An operation is done once every member stands at a step that has it: a message
 * with both ends, a collective with all ranks, the creation of a communicator. A rank that has an
 * operation in a step without being a member only waits for it. This is the strictest reading of
 * what communication libraries promise: schedules that finish here finish everywhere.
 *
 *   rank 0: {a, b} {c}     rank 1: {c, d} {a}     rank 2: {b, d}
 *   a, c between 0 and 1; b between 0 and 2; d between 1 and 2
 *   rank 0 waits for rank 1 to submit a, rank 1 for rank 0 to submit c: both are stuck
 */

#include <glib.h>

G_BEGIN_DECLS

typedef struct _RefitProgress RefitProgress;

RefitProgress *refit_progress_new(guint n_ranks);
void refit_progress_free(RefitProgress *progress);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitProgress, refit_progress_free)

/* A new operation; its number counts from 0. `members` in any order, repeats are ignored. An
 * operation without members is done from the start. */
guint refit_progress_add_operation(RefitProgress *progress, const guint *members, guint n_members);
/* Ends the rank's current step, if it has one, and begins another, empty so far. */
void refit_progress_begin_step(RefitProgress *progress, guint rank);
/* Puts an operation into the current step of the rank, of which there is at least one. */
void refit_progress_join(RefitProgress *progress, guint rank, guint operation);

typedef struct {
    guint rank;
    guint step;             /* it stands at, counted from 0 */
    guint operation;        /* the first in that step that is not done */
    guint missing;          /* the lowest member that has not come to it */
    gboolean missing_ended; /* that member has finished all its steps */
} RefitStuck;

typedef struct {
    gboolean finishes;
    guint n_stuck;
    RefitStuck *stuck; /* by rank, ascending */
} RefitProgressResult;

/* Cost: linear in operations, members and steps, times a search in the members. */
RefitProgressResult *refit_progress_run(const RefitProgress *progress);
void refit_progress_result_free(RefitProgressResult *result);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitProgressResult, refit_progress_result_free)

G_END_DECLS
