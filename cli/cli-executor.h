#pragma once

/*
 * The executors that the program has, in one table: those that are part of it, and plugins that are
 * loaded when they are asked for. The test programs on the CPU stand-in and on the loop-back have
 * tables of their own.
 */

#include "gpu/executor/refit-gpu.h"

G_BEGIN_DECLS

typedef struct {
    const char *name; /* for --executor */
    /* What results must say about it; NULL: nothing. */
    const char *note;
    const RefitExecutor *linked; /* NULL: a plugin */
    /* Of a plugin: the executor, probed, ready to open ranks. */
    const RefitGpu *(*load)(GError **error);
    /* Of a plugin: with --ranks, they run as threads of this process. */
    gboolean (*wants_threads)(void);
} CliExecutor;

/* Ended by one without a name. */
extern const CliExecutor cli_executors[];

/* The one with this name. REFIT_ERROR_INVALID names those that there are, and the nearest. */
const CliExecutor *cli_executor_find(const char *name, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * The one that `refit run` takes, NULL: the first plugin. REFIT_ERROR_INVALID for one that moves no
 * data; `case_name` is for the message, which names the command to use instead.
 */
const CliExecutor *cli_executor_find_mover(const char *name, const char *case_name, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Loads a mover. REFIT_ERROR_NOT_SUPPORTED. */
const RefitGpu *cli_executor_load(const CliExecutor *executor, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* The one that predictions are made with. */
const RefitExecutor *cli_executor_find_predictor(GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
