#pragma once

/*
 * A second, independent simulator of item graphs in plain C, as an oracle for tests: the same
 * platform and graph give the same dates. It has no component analysis, no lazy updates and no
 * merging of dates, which makes it slow and easy to check.
 */

#include "sim/refit-netsim.h"

G_BEGIN_DECLS

/* Dates of all items of a valid graph without cycles; returns the makespan. Cost: dates x (links^2
 * + flows). */
double fluid_run(const RefitNetsimPlatform *platform, const RefitNetsimGraph *graph,
                 RefitNetsimTime *times_out);

G_END_DECLS
