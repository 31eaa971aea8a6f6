/*
 * Lower limits from cells. A cell has one set of holders and one set of needers, so whether its
 * bytes must enter a domain, leave a set of sources or reach a GPU is one question per cell and
 * domain. Bytes are summed exactly in 64 bits; only the final divisions are in floating point, and
 * maxima do not depend on order, so the result is reproducible. Cost: cells x (holders + needers).
 */

#include "refit-bound.h"

#include <string.h>

/* Ranks that alone hold some bytes that must leave them. */
typedef struct {
    guint n;
    const guint *ranks; /* borrowed from the problem */
    guint64 bytes;
} HolderSet;

typedef struct {
    const RefitProblem *problem;
    const RefitTopology *topology;
    guint64 *domain_bytes; /* must enter the domain */
    guint64 *need_bytes;   /* per rank: needed */
    guint64 *away_bytes;   /* per rank: needed and not held by itself */
    gboolean *may_send;    /* per rank: holds or receives something */
    guint *holds_stamp;    /* per domain: number of the last cell with a holder there */
    guint *needs_stamp;    /* per domain: number of the last cell with a needer there */
    guint *rank_stamp;     /* per rank: number of the last cell it holds */
    GHashTable *sets;      /* HolderSet -> itself */
    GArray *set_order;     /* HolderSet *, in the order they were met */
    guint64 network_bytes;
} Limits;

static guint holder_set_hash(gconstpointer key) {
    const HolderSet *set = key;
    guint hash = set->n;
    for (guint i = 0; i < set->n; i++)
        hash = (hash ^ set->ranks[i]) * 0x9e3779b1u;
    return hash;
}

static gboolean holder_set_equal(gconstpointer a, gconstpointer b) {
    const HolderSet *left = a, *right = b;
    return left->n == right->n &&
           (left->ranks == right->ranks ||
            memcmp(left->ranks, right->ranks, left->n * sizeof *left->ranks) == 0);
}

static HolderSet *find_set(Limits *limits, const RefitCell *cell) {
    HolderSet key = {cell->n_holders, cell->holders, 0};
    HolderSet *set = g_hash_table_lookup(limits->sets, &key);
    if (set == NULL) {
        set = g_memdup2(&key, sizeof key);
        g_hash_table_add(limits->sets, set);
        g_array_append_val(limits->set_order, set);
    }
    return set;
}

static gboolean count_cell(Limits *limits, const RefitCell *cell, guint stamp, guint64 bytes,
                           GError **error) {
    for (guint i = 0; i < cell->n_holders; i++) {
        guint rank = cell->holders[i];
        limits->rank_stamp[rank] = stamp;
        limits->may_send[rank] = TRUE;
        limits->holds_stamp[refit_topology_domain_of(limits->topology, rank)] = stamp;
    }
    gboolean leaves = FALSE;
    for (guint i = 0; i < cell->n_needers; i++) {
        guint rank = cell->needers[i];
        guint domain = refit_topology_domain_of(limits->topology, rank);
        limits->may_send[rank] = TRUE;
        limits->need_bytes[rank] += bytes;
        if (limits->rank_stamp[rank] != stamp)
            limits->away_bytes[rank] += bytes;
        if (limits->holds_stamp[domain] == stamp || limits->needs_stamp[domain] == stamp)
            continue;
        limits->needs_stamp[domain] = stamp;
        limits->domain_bytes[domain] += bytes;
        leaves = TRUE;
        if (!refit_checked_add(limits->network_bytes, bytes, "network bytes",
                               &limits->network_bytes, error))
            return FALSE;
    }
    if (leaves)
        find_set(limits, cell)->bytes += bytes;
    return TRUE;
}

/* Problem totals fit in 64 bits, so all sums of parts of them do. */
static gboolean count_cells(Limits *limits, GError **error) {
    guint stamp = 0;
    for (guint i = 0; i < limits->problem->n_classes; i++) {
        const RefitClass *klass = &limits->problem->classes[i];
        for (guint j = 0; j < klass->cells->n_cells; j++) {
            const RefitCell *cell = &klass->cells->cells[j];
            guint64 bytes = refit_class_bytes(klass, cell->volume) * klass->n_members;
            if (!count_cell(limits, cell, ++stamp, bytes, error))
                return FALSE;
        }
    }
    return TRUE;
}

/* Seconds that `bytes` take; no bytes take no time, whatever the rate. */
static double seconds(guint64 bytes, double bytes_per_s) {
    return bytes == 0 ? 0 : (double)bytes / bytes_per_s;
}

static void evaluate(const Limits *limits, RefitBound *bound) {
    const RefitTopology *topology = limits->topology;
    double nic = topology->nic_bandwidth.value;
    guint64 most_in = 0, most_needed = 0, most_away = 0;
    guint n_senders = 0;
    for (guint domain = 0; domain < refit_topology_n_domains(topology); domain++)
        most_in = MAX(most_in, limits->domain_bytes[domain]);
    for (guint rank = 0; rank < limits->problem->n_ranks; rank++) {
        most_needed = MAX(most_needed, limits->need_bytes[rank]);
        most_away = MAX(most_away, limits->away_bytes[rank]);
        n_senders += limits->may_send[rank] ? 1 : 0;
    }
    bound->network_bytes = limits->network_bytes;
    bound->ingress_s = seconds(most_in, refit_topology_gpus_per_domain(topology) * nic);
    bound->egress_s = seconds(limits->network_bytes, n_senders * nic);
    for (guint i = 0; i < limits->set_order->len; i++) {
        const HolderSet *set = g_array_index(limits->set_order, const HolderSet *, i);
        bound->egress_s = MAX(bound->egress_s, seconds(set->bytes, set->n * nic));
    }
    bound->receive_s = seconds(most_away, nic + topology->nvlink_bandwidth.value);
    bound->memory_s = seconds(most_needed, topology->memory_bandwidth.value);

    const struct {
        double time_s;
        const char *name;
    } candidates[] = {{bound->ingress_s, "network in"},
                      {bound->egress_s, "network out"},
                      {bound->receive_s, "receive"},
                      {bound->memory_s, "memory"}};
    bound->time_s = candidates[0].time_s;
    bound->limited_by = candidates[0].name;
    for (guint i = 1; i < G_N_ELEMENTS(candidates); i++)
        if (candidates[i].time_s > bound->time_s) {
            bound->time_s = candidates[i].time_s;
            bound->limited_by = candidates[i].name;
        }
}

gboolean refit_bound_compute(const RefitProblem *problem, RefitBound *bound_out, GError **error) {
    g_return_val_if_fail(problem != NULL && bound_out != NULL, FALSE);
    const RefitTopology *topology = problem->refit_case->topology;
    guint n_ranks = problem->n_ranks, n_domains = refit_topology_n_domains(topology);
    g_autofree guint64 *domain_bytes = g_new0(guint64, n_domains);
    g_autofree guint64 *need_bytes = g_new0(guint64, n_ranks);
    g_autofree guint64 *away_bytes = g_new0(guint64, n_ranks);
    g_autofree gboolean *may_send = g_new0(gboolean, n_ranks);
    g_autofree guint *holds_stamp = g_new0(guint, n_domains);
    g_autofree guint *needs_stamp = g_new0(guint, n_domains);
    g_autofree guint *rank_stamp = g_new0(guint, n_ranks);
    g_autoptr(GHashTable) sets =
        g_hash_table_new_full(holder_set_hash, holder_set_equal, g_free, NULL);
    g_autoptr(GArray) set_order = g_array_new(FALSE, FALSE, sizeof(HolderSet *));
    Limits limits = {
        .problem = problem,
        .topology = topology,
        .domain_bytes = domain_bytes,
        .need_bytes = need_bytes,
        .away_bytes = away_bytes,
        .may_send = may_send,
        .holds_stamp = holds_stamp,
        .needs_stamp = needs_stamp,
        .rank_stamp = rank_stamp,
        .sets = sets,
        .set_order = set_order,
    };
    if (!count_cells(&limits, error))
        return FALSE;
    evaluate(&limits, bound_out);
    return TRUE;
}
