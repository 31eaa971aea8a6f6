#pragma once

/*
 * Flow-level network simulation of a directed acyclic graph of work items: the C view of SimGrid.
 * refit-netsim-simgrid.cpp is the only C++ file of the project; it exists because SimGrid 3.32 has
 * no C calls for asynchronous host-to-host communication, dependencies and platform building.
 *
 * Items: a FLOW moves bytes between two GPUs over their NVLink or NIC ports, sharing bandwidth
 * max-min fairly; a DELAY lasts a fixed time; a JOIN is done as soon as it may start. An item may
 * start when all its predecessors are done, each of them a stated time before, or 0; a predecessor
 * marked "on start" counts as done when it starts. Links have no latency: who wants one puts it on
 * what follows a flow, because a latency inside every flow would be paid again by each chunk of a
 * stream. Each run happens in a forked child, because SimGrid is global to a process: settings
 * differ between runs, nothing leaks, and a crash of the engine becomes a REFIT_ERROR_BACKEND.
 */

#include "model/base/refit-error.h"

G_BEGIN_DECLS

typedef struct {
    guint n_gpus;
    guint gpus_per_domain; /* flows inside a domain use NVLink ports, others NIC ports */
    guint n_leaves;        /* 0: the fabric never limits and is left out */
    const guint *leaf_of;  /* per GPU; NULL when n_leaves is 0 */
    double nvlink_bytes_per_s, nic_bytes_per_s; /* per GPU and direction */
    double leaf_uplink_bytes_per_s;             /* per leaf and direction, all its uplinks */
} RefitNetsimPlatform;

typedef enum { REFIT_NETSIM_FLOW, REFIT_NETSIM_DELAY, REFIT_NETSIM_JOIN } RefitNetsimKind;

typedef struct {
    guint8 kind; /* RefitNetsimKind */
    guint src, dst;
    union {
        double bytes;   /* FLOW: > 0 */
        double delay_s; /* DELAY: >= 0 */
    };
} RefitNetsimItem;

#define REFIT_NETSIM_ON_START 0x80000000u /* or-ed into a successor: counts when we start */

typedef struct {
    guint n_items;
    const RefitNetsimItem *items;
    const guint64 *successor_offsets; /* n_items + 1 */
    const guint *successors;          /* item numbers, possibly with REFIT_NETSIM_ON_START */
    const double *lags_s;             /* per successor: so long after */
} RefitNetsimGraph;

typedef struct {
    double start_s, end_s; /* both 0 for an item that never ran */
} RefitNetsimTime;

/*
 * Simulates `graph`. `resolution_s`: completions closer than this may be handled together (0:
 * exact). `times_out`: n_items entries; NULL when only the makespan matters. Errors:
 * REFIT_ERROR_BACKEND when SimGrid fails or some item never ran (a cycle), naming it;
 * REFIT_ERROR_INVALID for impossible items.
 */
gboolean refit_netsim_run(const RefitNetsimPlatform *platform, const RefitNetsimGraph *graph,
                          double resolution_s, RefitNetsimTime *times_out, double *makespan_s_out,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* "SimGrid 3.32". Static string. */
const char *refit_netsim_version(void);

G_END_DECLS
