#pragma once

/*
 * Between refit-netsim.c (checks, child process, shared memory) and refit-netsim-simgrid.cpp (the
 * engine). Not part of the interface of the simulator.
 */

#include "sim/refit-netsim.h"

G_BEGIN_DECLS

/* Memory shared with the child; `times` follows in the same mapping, if they are wanted. */
typedef struct {
    guint64 n_done; /* items that ran to their end */
    double makespan_s;
    char error[400]; /* why the engine gave up, empty when it did not */
} RefitNetsimStatus;

/*
 * Runs a checked graph in this process, which cannot simulate again. `precision_s`: completions
 * within it are one event. `times`: zeroed; NULL: nobody wants them.
 */
typedef void (*RefitNetsimEngine)(const RefitNetsimPlatform *platform,
                                  const RefitNetsimGraph *graph, double precision_s,
                                  RefitNetsimTime *times, RefitNetsimStatus *status);

void refit_netsim_simgrid(const RefitNetsimPlatform *platform, const RefitNetsimGraph *graph,
                          double precision_s, RefitNetsimTime *times, RefitNetsimStatus *status);

/* Tells the system that memory just allocated, of so many bytes, is better in large pages. */
void refit_netsim_advise(gpointer memory, gsize n_bytes);

/* refit_netsim_run with any engine; what tests of the containment use. */
gboolean refit_netsim_run_with(RefitNetsimEngine engine, const RefitNetsimPlatform *platform,
                               const RefitNetsimGraph *graph, double resolution_s,
                               RefitNetsimTime *times_out, double *makespan_s_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
