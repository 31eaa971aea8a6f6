#pragma once

/*
 * Where `refit run` gets its executor from. The program loads a plugin; the test program of the
 * same name on the CPU stand-in has another cli-executor.
 */

#include "gpu/executor/refit-gpu.h"

G_BEGIN_DECLS

typedef struct {
    const char *name; /* for --executor */
    /* What results must say about it; NULL: nothing. */
    const char *note;
    /* The executor, ready to open ranks, and how many GPUs this process can use. */
    const RefitGpu *(*load)(guint *n_devices_out, GError **error);
    /* With --ranks, they run as threads of this process. */
    gboolean (*wants_threads)(void);
} CliExecutor;

/* Ended by one without a name. */
extern const CliExecutor cli_executors[];

G_END_DECLS
