#pragma once

/*
 * How ranks of the executor's tests reach each other: RefitGpuPeers in memory that all share.
 */

#include "executor-run.h"

G_BEGIN_DECLS

enum { MEET_CALLS = 64, MEET_RECORD = 1024, MEET_TEXT = 1024 };

typedef struct {
    _Atomic int failed; /* 1 + the rank that told so first */
    char failure[MEET_TEXT];
    _Atomic int came[MEET_CALLS][EXECUTOR_MAX_RANKS];
    char records[MEET_CALLS][EXECUTOR_MAX_RANKS][MEET_RECORD]; /* or rank 0's bytes, in one */
} Meeting;

/* A rank's place, the user data of the functions. */
typedef struct {
    Meeting *meeting;
    guint rank, n_ranks;
    gboolean informs; /* hears in a gather at once that another rank has failed */
    double longest_s; /* that a gather may ask for */
    guint n_calls;
} Seat;

gboolean meet_gather(gpointer seat, gconstpointer mine, gsize bytes, gpointer all, guint8 *came,
                     double timeout_s, GError **error);
gboolean meet_broadcast(gpointer seat, gpointer data, gsize bytes, double timeout_s,
                        GError **error);
gboolean meet_check(gpointer seat, GError **error);
GError *meet_fail(gpointer seat, GError *mine);

G_END_DECLS
