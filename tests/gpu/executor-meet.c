/*
 * Each call has a place of its own in the shared memory, so nothing is ever reused. A
 * rank that comes when another has given it up is absent to all, itself included, so that all hear
 * the same.
 */

#include "executor-meet.h"

#include <stdatomic.h>
#include <string.h>

/* A rank in a call of the gather: nobody knows yet, it has come, or it was given up. */
typedef enum { CALL_OPEN, CALL_CAME, CALL_MISSED } Came;

gboolean meet_check(gpointer seat, GError **error) {
    const Seat *self = seat;
    int failed = atomic_load_explicit(&self->meeting->failed, memory_order_acquire);

    if (failed > 0)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "rank %d failed: %s", failed - 1,
                    self->meeting->failure);
    return failed <= 0;
}

/* The first word counts. */
static void settle(_Atomic int *came, Came state) {
    int open = CALL_OPEN;

    atomic_compare_exchange_strong(came, &open, (int)state);
}

gboolean meet_gather(gpointer seat, gconstpointer mine, gsize bytes, gpointer all, guint8 *came,
                     double timeout_s, GError **error) {
    Seat *self = seat;
    Meeting *meeting = self->meeting;
    guint call = self->n_calls++ % MEET_CALLS, n = self->n_ranks, n_known = 0;
    gint64 deadline = g_get_monotonic_time() + (gint64)(timeout_s * G_USEC_PER_SEC);

    CHECK(self->n_calls <= MEET_CALLS && bytes <= MEET_RECORD);
    /* What refit-gpu.h promises. */
    CHECK(timeout_s <= self->longest_s + 1e-6);
    memcpy(meeting->records[call][self->rank], mine, bytes);
    settle(&meeting->came[call][self->rank], CALL_CAME);
    while (n_known < n) {
        gboolean late = g_get_monotonic_time() > deadline;
        n_known = 0;
        for (guint r = 0; r < n; r++) {
            if (late)
                settle(&meeting->came[call][r], CALL_MISSED);
            n_known += atomic_load(&meeting->came[call][r]) != CALL_OPEN;
        }
        if (n_known < n && self->informs && !meet_check(self, error))
            return FALSE;
        if (n_known < n)
            g_usleep(200);
    }
    if (atomic_load(&meeting->came[call][0]) != CALL_CAME) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "rank 0 did not report within %g s",
                    self->longest_s);
        return FALSE;
    }
    CHECK((self->rank == 0) == (all != NULL) && (self->rank == 0) == (came != NULL));
    for (guint r = 0; all != NULL && r < n; r++) {
        came[r] = atomic_load(&meeting->came[call][r]) == CALL_CAME;
        if (came[r])
            memcpy((char *)all + r * bytes, meeting->records[call][r], bytes);
    }
    return TRUE;
}

gboolean meet_broadcast(gpointer seat, gpointer data, gsize bytes, double timeout_s,
                        GError **error) {
    Seat *self = seat;
    Meeting *meeting = self->meeting;
    guint call = self->n_calls++ % MEET_CALLS;
    gint64 deadline = g_get_monotonic_time() + (gint64)(timeout_s * G_USEC_PER_SEC);

    CHECK(self->n_calls <= MEET_CALLS && bytes <= sizeof meeting->records[call]);
    CHECK(timeout_s <= self->longest_s + 1e-6);
    if (self->rank == 0) {
        memcpy(meeting->records[call], data, bytes);
        atomic_store(&meeting->came[call][0], CALL_CAME);
        return TRUE;
    }
    while (atomic_load(&meeting->came[call][0]) != CALL_CAME) {
        if (self->informs && !meet_check(self, error))
            return FALSE;
        if (g_get_monotonic_time() > deadline) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                        "rank 0 did not report within %g s", self->longest_s);
            return FALSE;
        }
        g_usleep(200);
    }
    memcpy(data, meeting->records[call], bytes);
    return TRUE;
}

GError *meet_fail(gpointer seat, GError *mine) {
    const Seat *self = seat;
    int nobody = 0;

    if (atomic_compare_exchange_strong(&self->meeting->failed, &nobody, -1)) {
        g_strlcpy(self->meeting->failure, mine->message, MEET_TEXT);
        atomic_store_explicit(&self->meeting->failed, (int)self->rank + 1, memory_order_release);
    }
    return mine;
}
