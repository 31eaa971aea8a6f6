/*
 * Lower limits from cells. A cell has one set of holders and one set of needers, so whether its
 * bytes must enter a domain, leave a set of sources or reach a GPU is one question per cell and
 * domain. Bytes are summed exactly in 64 bits; only the final divisions are in floating point, and
 * maxima do not depend on order, so the result is reproducible. Cost: cells x (holders + needers).
 */

#include "model/problem/refit-bound.h"

/* Ranks, or domains, that alone hold some bytes that must leave them. */
typedef struct {
    RefitRankSet ranks; /* or domains; members borrowed, or owned by Limits.domain_lists */
    guint64 bytes;
} HolderSet;

/* Sets in the order they were met. */
typedef struct {
    GHashTable *known; /* HolderSet -> itself */
    GPtrArray *order;  /* HolderSet, owned */
} HolderSets;

typedef struct {
    const RefitProblem *problem;
    const RefitTopology *topology;
    guint64 *domain_bytes; /* must enter the domain */
    guint64 *need_bytes;   /* per rank: needed */
    guint64 *away_bytes;   /* per rank: needed and not held by itself */
    guint *holds_stamp;    /* per domain: number of the last cell with a holder there */
    guint *needs_stamp;    /* per domain: number of the last cell with a needer there */
    guint *rank_stamp;     /* per rank: number of the last cell it holds */
    HolderSets ranks, domains;
    GPtrArray *domain_lists; /* owned lists of domains */
    GArray *scratch;         /* guint: domains of the current cell's holders */
    guint64 network_bytes;
} Limits;

static HolderSets new_sets(void) {
    return (HolderSets){g_hash_table_new(refit_rank_set_hash, refit_rank_set_equal),
                        g_ptr_array_new_with_free_func(g_free)};
}

static void clear_sets(HolderSets *sets) {
    g_hash_table_unref(sets->known);
    g_ptr_array_unref(sets->order);
}

/* `owner`: NULL when `members` outlives the sets, else it keeps the copy that a new set needs. */
static void add_to_set(HolderSets *sets, const guint *members, guint n, guint64 bytes,
                       GPtrArray *owner) {
    HolderSet key = {{n, members}, bytes};
    HolderSet *set = g_hash_table_lookup(sets->known, &key);
    if (set != NULL) {
        set->bytes += bytes;
        return;
    }
    if (owner != NULL) {
        key.ranks.members = g_memdup2(members, n * sizeof *members);
        g_ptr_array_add(owner, (gpointer)key.ranks.members);
    }
    set = g_memdup2(&key, sizeof key);
    g_ptr_array_add(sets->order, set);
    g_hash_table_add(sets->known, set);
}

static gboolean count_cell(Limits *limits, const RefitCell *cell, guint stamp, guint64 bytes,
                           GError **error) {
    g_array_set_size(limits->scratch, 0);
    for (guint i = 0; i < cell->n_holders; i++) {
        guint rank = cell->holders[i];
        guint domain = refit_topology_domain_of(limits->topology, rank);
        limits->rank_stamp[rank] = stamp;
        if (limits->holds_stamp[domain] != stamp)
            g_array_append_val(limits->scratch, domain);
        limits->holds_stamp[domain] = stamp;
    }
    gboolean leaves = FALSE;
    for (guint i = 0; i < cell->n_needers; i++) {
        guint rank = cell->needers[i];
        guint domain = refit_topology_domain_of(limits->topology, rank);
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
    if (leaves) {
        add_to_set(&limits->ranks, cell->holders, cell->n_holders, bytes, NULL);
        add_to_set(&limits->domains, (const guint *)(gpointer)limits->scratch->data,
                   limits->scratch->len, bytes, limits->domain_lists);
    }
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

/* GPUs of a domain; the last one may be short. */
static guint domain_size(const RefitTopology *topology, guint domain) {
    guint full = refit_topology_gpus_per_domain(topology);
    return MIN(full, refit_topology_n_gpus(topology) - domain * full);
}

/*
 * Bytes leave a set of domains by the NICs of all their GPUs, because holders can pass them to
 * their neighbours first; and a set of ranks by NIC and NVLink together.
 */
static double egress(const Limits *limits) {
    const RefitTopology *topology = limits->topology;
    double nic = topology->nic_bandwidth.value;
    double least = seconds(limits->network_bytes, refit_topology_n_gpus(topology) * nic);
    for (guint i = 0; i < limits->domains.order->len; i++) {
        const HolderSet *set = g_ptr_array_index(limits->domains.order, i);
        guint n_gpus = 0;
        for (guint d = 0; d < set->ranks.n; d++)
            n_gpus += domain_size(topology, set->ranks.members[d]);
        least = MAX(least, seconds(set->bytes, n_gpus * nic));
    }
    for (guint i = 0; i < limits->ranks.order->len; i++) {
        const HolderSet *set = g_ptr_array_index(limits->ranks.order, i);
        least = MAX(least,
                    seconds(set->bytes, set->ranks.n * (nic + topology->nvlink_bandwidth.value)));
    }
    return least;
}

static void evaluate(const Limits *limits, RefitBound *bound) {
    const RefitTopology *topology = limits->topology;
    double nic = topology->nic_bandwidth.value;
    guint64 most_needed = 0, most_away = 0;
    bound->network_bytes = limits->network_bytes;
    bound->ingress_s = 0;
    for (guint domain = 0; domain < refit_topology_n_domains(topology); domain++)
        bound->ingress_s = MAX(bound->ingress_s, seconds(limits->domain_bytes[domain],
                                                         domain_size(topology, domain) * nic));
    for (guint rank = 0; rank < limits->problem->n_ranks; rank++) {
        most_needed = MAX(most_needed, limits->need_bytes[rank]);
        most_away = MAX(most_away, limits->away_bytes[rank]);
    }
    bound->egress_s = egress(limits);
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
    g_autofree guint *holds_stamp = g_new0(guint, n_domains);
    g_autofree guint *needs_stamp = g_new0(guint, n_domains);
    g_autofree guint *rank_stamp = g_new0(guint, n_ranks);
    g_autoptr(GPtrArray) domain_lists = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GArray) scratch = g_array_new(FALSE, FALSE, sizeof(guint));
    Limits limits = {
        .problem = problem,
        .topology = topology,
        .domain_bytes = domain_bytes,
        .need_bytes = need_bytes,
        .away_bytes = away_bytes,
        .holds_stamp = holds_stamp,
        .needs_stamp = needs_stamp,
        .rank_stamp = rank_stamp,
        .ranks = new_sets(),
        .domains = new_sets(),
        .domain_lists = domain_lists,
        .scratch = scratch,
    };
    gboolean counted = count_cells(&limits, error);
    if (counted)
        evaluate(&limits, bound_out);
    clear_sets(&limits.ranks);
    clear_sets(&limits.domains);
    return counted;
}
