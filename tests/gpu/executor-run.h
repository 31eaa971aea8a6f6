#pragma once

/*
 * Carrying a plan out on the CPU stand-in: one thread or process per rank, parameters filled with
 * values of their own, and afterwards what each rank says and whether its memory is right. Used in
 * the child of a test (standin-child.h).
 */

#include "program-run.h"
#include "refit-gpu.h"
#include "standin-child.h"

G_BEGIN_DECLS

enum { EXECUTOR_MAX_RANKS = 64 };

/* When a rank goes away without a word. */
typedef enum {
    EXECUTOR_STAYS,
    EXECUTOR_NEVER_OPENS,
    EXECUTOR_NEVER_PREPARES,
    EXECUTOR_NEVER_STARTS,
    EXECUTOR_NEVER_WAITS,
} ExecutorLeaves;

typedef struct {
    RanksAs as;
    guint n_runs; /* each into fresh parameters */
    double timeout_s;
    gboolean untimed;
    gboolean own_stream; /* of the caller, with work before and after the run */
    ExecutorLeaves leaves;
    guint leaver;          /* this rank */
    gboolean informs;      /* ranks hear at once that one has failed */
    gboolean may_fail;     /* all ranks may fail, or none, as long as they return and none that
                              failed has switched versions */
    gboolean must_fail;    /* and they do */
    gboolean untidy;       /* what is left at the end does not count, and this process ends */
    const char *error_has; /* every rank that fails says this; NULL: anything */
    guint other_plan;      /* 1 + rank that brings a plan of another digest; 0: none */
    guint lone; /* 1 + rank that is alone in its NVLink domain; 0: none but the topology's */
    guint short_message; /* 1 + rank whose programs expect other sizes; 0: none */
} ExecutorRun;

/* Runs it and checks, in this process: bytes, accounts, versions, what is left. */
void executor_run(const ProgramSet *set, const ExecutorRun *run);

G_END_DECLS
