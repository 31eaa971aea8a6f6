#pragma once

/*
 * Carrying a plan out on the CPU stand-in: one thread or process per rank, parameters filled with
 * values of their own, and afterwards what each rank says and whether its memory is right. Used in
 * the child of a test (standin-child.h).
 */

#include "gpu/executor/refit-gpu.h"
#include "program-run.h"
#include "standin-child.h"

G_BEGIN_DECLS

enum {
    EXECUTOR_MAX_RANKS = 64,
    EXECUTOR_EXIT_LATE = 3 /* a rank blames another for being late, and not the one it should */
};

/* Sanitizers make all of this several times as slow: tests do less of the same then.
 * ThreadSanitizer is the slowest, and sees nothing between processes. */
#if defined(__SANITIZE_THREAD__)
#define EXECUTOR_IS_SLOW TRUE
#define EXECUTOR_WATCHES_THREADS TRUE
#elif defined(__SANITIZE_ADDRESS__)
#define EXECUTOR_IS_SLOW TRUE
#define EXECUTOR_WATCHES_THREADS FALSE
#else
#define EXECUTOR_IS_SLOW FALSE
#define EXECUTOR_WATCHES_THREADS FALSE
#endif

/* When a rank goes away without a word. */
typedef enum {
    EXECUTOR_STAYS,
    EXECUTOR_NEVER_OPENS,
    EXECUTOR_NEVER_PREPARES,
    EXECUTOR_NEVER_STARTS,
    EXECUTOR_NEVER_WAITS,
    EXECUTOR_CLOSES_IN_A_RUN, /* in order otherwise */
} ExecutorLeaves;

/* When a thread of a rank aborts it. */
typedef enum {
    EXECUTOR_NEVER_ABORTS,
    EXECUTOR_ABORTS_BEFORE, /* the run is started */
    EXECUTOR_ABORTS_IN_START,
    EXECUTOR_ABORTS_IN_WAIT,
} ExecutorAborts;

/* What a rank states first in the place of its parameters' addresses. */
typedef enum {
    EXECUTOR_RIGHT_ADDRESSES,
    EXECUTOR_NO_LIST,
    EXECUTOR_NULL_ADDRESS,
    EXECUTOR_HOST_MEMORY,
    EXECUTOR_OTHER_DEVICE,
    EXECUTOR_FREED_MEMORY,
} ExecutorAddresses;

typedef struct {
    RanksAs as;
    guint n_runs; /* each into fresh parameters */
    double timeout_s;
    gboolean untimed;
    gboolean own_stream; /* of the caller, with work before and after the run */
    gboolean in_place;   /* both sides have the same memory; one run */
    ExecutorLeaves leaves;
    guint leaver; /* this rank */
    ExecutorAborts aborts;
    guint aborter; /* this rank */
    ExecutorAddresses addresses;
    guint misled;              /* this rank; a prepare fails on all, and a run; then all go on */
    const ProgramSet *then;    /* of the same case: prepared and run after that; NULL: nothing */
    gboolean informs;          /* ranks hear at once that one has failed */
    gboolean may_fail;         /* all ranks may fail, or none, as long as they return and none that
                                  failed has switched versions */
    gboolean must_fail;        /* and they do */
    const RefitServes *serves; /* per rank, what it serves in the end; NULL: anything */
    gboolean untidy;           /* what is left at the end does not count, and this process ends */
    const char *error_has;     /* every rank that fails says this, hosts aside; NULL: anything */
    guint blamed;              /* 1 + rank that need not; 0: none */
    guint other_plan;          /* 1 + rank that brings a plan of another digest; 0: none */
    guint other_schedule;      /* 1 + rank whose schedule deals communicators otherwise; 0: none */
    guint lone; /* 1 + rank that is alone in its NVLink domain; 0: none but the topology's */
    guint short_message; /* 1 + rank whose programs expect other sizes; 0: none */
    GArray *events;      /* ranks as threads: RefitEvent, of each rank's last run; NULL: not kept */
} ExecutorRun;

/* Chains have all slices that the profile allows, however small the tensors of a test are. */
static inline void executor_cut_small(RefitCase *refit_case) {
    refit_case->profile->slice_bytes.value = 1;
}

/* Runs it and checks, in this process: bytes, accounts, events, versions, what is left. */
void executor_run(const ProgramSet *set, const ExecutorRun *run);

G_END_DECLS
