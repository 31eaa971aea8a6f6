#pragma once

/* Shared by the files that make work items step by step; not for other modules. */

#include "sim/refit-sim-private.h"

G_BEGIN_DECLS

/* What a turn takes: bytes through the rank's port, copies, and the way here. */
typedef struct {
    double port_s, pack_s, unpack_s, latency_s;
} RefitSimLoad;

/* What a step does in all its turns. */
typedef struct {
    guint n_turns;
    gboolean waits_for_itself;          /* each number for the one before */
    gboolean clocked;                   /* turns are held by more than the port */
    guint64 packed, unpacked;           /* bytes */
    double pack_first_s, unpack_last_s; /* of the first and the last turn */
    RefitSimLoad all;                   /* of all turns; the latency is that of one */
} RefitSimSums;

typedef struct {
    guint first, begin; /* what the waits hold, and what the flows wait for */
    guint moved, done;
    guint almost_done; /* all turns but the last; REFIT_SIM_NONE: there is but one, or no clock */
} RefitSimStep;

/* Of a rank's stream. */
typedef struct {
    guint last, before; /* steps of the schedule */
    guint pack, unpack; /* items */
} RefitSimStream;

typedef struct {
    RefitSimBuild *build;
    const RefitSchedule *schedule;
    RefitSimSubmits submits;
    RefitSimSums *sums;       /* per step */
    RefitSimStep *steps;      /* per step */
    guint *sender, *receiver; /* per message: steps */
    guint *flows, *ends;      /* per message: items; the same, when nothing makes it end later */
    guint *lasts;             /* per message: the last slice; REFIT_SIM_NONE: no slices */
    guint rank;               /* in work */
    RefitSimStream *streams;  /* of the rank */
    guint moved[REFIT_SIM_N_COMMS]; /* steps of the rank */
} RefitSimMerged;

/*
 * From the begin of the first of `n` turns until the last one has moved, when nothing else holds
 * them. loads[i * stride] is of turn i. `every`: so many turns, from the first one on, are of a
 * number that waits for the one before; 0: none does.
 */
double refit_sim_turns_s(const RefitSimLoad *loads, guint stride, guint n, guint every);

/* Share of a message of one number that a chunk of it is; 0 when it has fewer. */
double refit_sim_chunk_share(const RefitScheduleStep *step, guint64 bytes, guint chunk);

/* Items of the steps [first, last) of the rank in work: all of one batch of a sliced stage, or one
 * that is clocked. */
void refit_sim_add_clocked(RefitSimMerged *self, guint first, guint last);

/* Items of one step: copies or an install; messages up to their begin, and from their ends on. */
void refit_sim_add_launch(RefitSimMerged *self, guint number);
void refit_sim_begin_step(RefitSimMerged *self, guint number);
void refit_sim_end_step(RefitSimMerged *self, guint number);

G_END_DECLS
