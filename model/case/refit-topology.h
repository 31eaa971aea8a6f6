#pragma once

/*
 * A topology: GPUs in nodes and NVLink domains, their NICs and rails, and the fabric, with
 * bandwidths and latencies. File format (schema refit.topology/1, topologies/README.md): every
 * number other than a count is a mapping {value, source}; a number without `source` is refused.
 *
 *   schema: refit.topology/1
 *   name: dgx-h100
 *   nodes: 64                 # default size; a case may override it
 *   gpus_per_node: 8
 *   nodes_per_domain: 1       # nodes that share one NVLink domain; default 1
 *   rails: 8                  # NIC of local GPU g is on rail g mod rails; default gpus_per_node
 *   nvlink:                   # per GPU, one way
 *     bandwidth: {value: 450GBps, source: ...}
 *     latency: {value: 2us, source: ...}
 *   nic:                      # per GPU, one way; latency between ports of one leaf
 *     bandwidth: {...}
 *     latency: {...}
 *   fabric:
 *     nodes_per_leaf: 32      # default 0: one switch for all
 *     oversubscription: {value: 1, source: ...}
 *     spine_latency: {...}
 *   gpu:
 *     memory: {...}
 *     memory_bandwidth: {...}
 *
 * Short form, one line: "node:64 gpu:8 nvlink:450GBps nic:50GBps" with optional words domain:N
 * (nodes per domain), rails:N, leaf:N (nodes per leaf), nvlink_latency:, nic_latency:,
 * spine_latency:, oversubscription:, memory:, hbm:. The source of such numbers is "stated on one
 * line"; words left out take the numbers of an H100 node, marked as assumed.
 *
 * Derived: GPU g sits in node g / gpus_per_node, domain node / nodes_per_domain, and has the NIC
 * of rail (g mod gpus_per_node) mod rails. One NIC per GPU. The last domain may hold fewer nodes.
 */

#include "model/base/refit-yaml.h"

G_BEGIN_DECLS

typedef struct {
    double value; /* bytes, bytes/s, s or a ratio, by field */
    char *source;
} RefitSourced;

/*
 * Reads {value, source} from `node`. With `stated` not NULL a bare quantity will do and gets that
 * text as its source. Whatever `sourced` held is freed on success.
 */
gboolean refit_sourced_parse(RefitNode *node, RefitUnit unit, const char *stated,
                             RefitSourced *sourced, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_sourced_clear(RefitSourced *sourced);
#define REFIT_SOURCE_CASE "stated in the case"

#define REFIT_TOPOLOGY_MAX_GPUS (1u << 20)

typedef struct {
    char *name;
    guint n_nodes;
    guint gpus_per_node;
    guint nodes_per_domain;
    guint rails;
    guint nodes_per_leaf;          /* 0: one switch for all */
    RefitSourced nvlink_bandwidth; /* bytes/s per GPU and direction */
    RefitSourced nvlink_latency;   /* s, GPU to GPU */
    RefitSourced nic_bandwidth;    /* bytes/s per GPU and direction */
    RefitSourced nic_latency;      /* s, GPU to GPU below one leaf */
    RefitSourced spine_latency;    /* s, GPU to GPU over the spine */
    RefitSourced oversubscription; /* leaf downlink / uplink bandwidth; 1: non-blocking */
    RefitSourced memory;           /* bytes per GPU */
    RefitSourced memory_bandwidth; /* bytes/s per GPU */
} RefitTopology;

/*
 * `node` is the `topology:` value of a case: a shipped name, a path, a one-line text, or a mapping
 * {name: any of these, nodes: N, ...} whose further keys override counts and numbers: nodes,
 * gpus_per_node, nodes_per_domain, rails, nodes_per_leaf, nvlink_bandwidth, nvlink_latency,
 * nic_bandwidth, nic_latency, spine_latency, oversubscription, memory, memory_bandwidth. A bare
 * quantity gets the source REFIT_SOURCE_CASE. `store` (see refit-case.h) is borrowed for the call.
 */
struct _RefitStore;
RefitTopology *refit_topology_from_case(RefitNode *node, const struct _RefitStore *store,
                                        GError **error) G_GNUC_WARN_UNUSED_RESULT;
RefitTopology *refit_topology_parse(RefitNode *root, GError **error) G_GNUC_WARN_UNUSED_RESULT;
RefitTopology *refit_topology_parse_line(const char *line, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
void refit_topology_free(RefitTopology *topology);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitTopology, refit_topology_free)

guint refit_topology_n_gpus(const RefitTopology *topology);
guint refit_topology_n_domains(const RefitTopology *topology);
/* GPUs of a full domain, or all GPUs when they are fewer. */
guint refit_topology_gpus_per_domain(const RefitTopology *topology);
guint refit_topology_node_of(const RefitTopology *topology, guint gpu);
guint refit_topology_domain_of(const RefitTopology *topology, guint gpu);
guint refit_topology_rail_of(const RefitTopology *topology, guint gpu);
/* The one-line form of the same topology (sources are lost). Caller frees. */
char *refit_topology_to_line(const RefitTopology *topology);

G_END_DECLS
