#pragma once

/* What the parts of a schedule cost: a topology's links, and the terms of a profile. */

#include "model/predict/refit-executor.h"

G_BEGIN_DECLS

typedef struct {
    const RefitTopology *topology; /* borrowed */
    const RefitSchedule *schedule; /* borrowed */
    const RefitProfile *profile;   /* borrowed */
    double operation_s, run_s, bucket_s;
    double pack_bytes_per_s, unpack_bytes_per_s; /* 0: free */
    /* Per rank: held bytes per byte sent from parameters, or received into them, where the form on
     * the wire is another one; 0 elsewhere. */
    double *cast_from, *cast_to;
} RefitSimCosts;

void refit_sim_costs_init(RefitSimCosts *costs, const RefitTopology *topology,
                          const RefitProfile *profile, const RefitSchedule *schedule);
void refit_sim_costs_clear(RefitSimCosts *costs);

/* Seconds to pack or to unpack all of a message of the plan, or to copy a local one. */
double refit_sim_pack_s(const RefitSimCosts *costs, guint message);
double refit_sim_unpack_s(const RefitSimCosts *costs, guint message);
double refit_sim_copy_s(const RefitSimCosts *costs, guint message);
double refit_sim_install_s(const RefitSimCosts *costs, guint rank,
                           const RefitScheduleInstall *install);

/* Leaf switch of a GPU's NIC: GPUs of one rail in `nodes_per_leaf` nodes share one. */
guint refit_sim_leaf_of(const RefitTopology *topology, guint gpu);
guint refit_sim_n_leaves(const RefitTopology *topology);
/* From the last byte sent to the last byte there; 0 inside a GPU. */
double refit_sim_latency(const RefitTopology *topology, guint src, guint dst, RefitLink link);
/* Of a port, in bytes per second; not of REFIT_LINK_LOCAL. */
double refit_sim_bandwidth(const RefitTopology *topology, RefitLink link);

G_END_DECLS
