#pragma once

/*
 * Runs of the executor that are to fail, several of them side by side: they mostly wait for a
 * time-out. One in which a time-out came before what it is about, as on a busy machine, is tried
 * again with more patience; any other failure counts at once.
 */

#include "executor-run.h"

G_BEGIN_DECLS

typedef struct {
    ExecutorRun run;       /* `timeout_s` 0: 0.6, and more when it has to be tried again */
    const char *case_name; /* NULL: tiny */
    const char *strategy;  /* NULL: refit */
    const char *then;      /* strategy of a second plan; NULL: none */
    /* As in REFIT_STANDIN_FAULT; NULL: none. It must happen. What NCCL is called for before the
     * run, to connect to peers, is not counted. */
    const char *fault;
    gboolean connecting; /* or is */
    gboolean may_miss;   /* or need not happen */
    const char *never;   /* a further one, which must not; NULL: none */
} FaultRun;

/* The case of such a run, its pieces made small; owned by the caller. */
RefitCase *fault_case_load(const char *name);

/* Fails the test unless each run ends as it should. `runs` and what it refers to are copied by the
 * processes that it starts. */
void fault_runs(const FaultRun *runs, guint n);

/* Whether the environment asks for everything. */
gboolean fault_runs_all(void);

G_END_DECLS
