#pragma once

/*
 * Lower limits that no plan can beat, from geometry and topology alone (docs/model.md gives the
 * derivations).
 *
 *   network bytes  >= sum over domains of |union of what its GPUs need and none of them holds|
 *   ingress_s      >= max over domains of those bytes / (NICs of the domain x NIC bandwidth)
 *   egress_s       >= max of
 *                       over sets of domains D that alone hold some bytes that others need:
 *                         bytes / (GPUs of D x NIC bandwidth)                [each leaves once]
 *                       over sets of ranks H likewise:
 *                         bytes / (|H| x (NIC + NVLink bandwidth))
 *                       network bytes / (all GPUs x NIC bandwidth)
 *   receive_s      >= max over destination GPUs of need / (NIC + NVLink bandwidth)
 *   memory_s       >= max over destination GPUs of need / memory bandwidth
 *   time_s          = the maximum of these
 */

#include "model/problem/refit-problem.h"

G_BEGIN_DECLS

typedef struct {
    guint64 network_bytes;
    double time_s;
    double ingress_s, egress_s, receive_s, memory_s;
    const char *limited_by; /* "network in", "network out", "receive", "memory"; static string */
} RefitBound;

/* Cost: cells x distinct domains. */
gboolean refit_bound_compute(const RefitProblem *problem, RefitBound *bound_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
