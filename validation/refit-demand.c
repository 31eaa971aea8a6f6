/*
 * What any plan must do, from cells.
 *
 * A cell has one set of holders and one of needers, so every count is a sum over cells: bytes by
 * needer, by domain, by rail. Which ranks can serve a rank is a question about its distinct sets of
 * holders, of which there are few; sets are numbered once, whatever cells they come from. Classes
 * that share their cells are counted together. Cost: cells times their ranks, then the searches of
 * refit-cover.h.
 */

#include "validation/refit-demand.h"

#include "validation/refit-cover.h"

/* Steps that a search for the fewest senders of one rank may take. */
#define SEARCH_BUDGET 2000

typedef struct {
    RefitRankSet ranks;
    guint64 bytes; /* to be sent, once for each rank that lacks them */
} Holders;

typedef struct {
    const RefitProblem *problem;
    RefitDemand *demand;
    guint *position_of; /* rank -> 1 + position in demand->ranks */
    GHashTable *known;  /* RefitRankSet -> 1 + index into sets; looked up only */
    GPtrArray *sets;    /* of Holders, owned */
    GArray *serves;     /* guint64: position << 32 | set, over all tensors */
    gsize n_distinct;   /* of serves after the last clean-up */
    GArray *pairs;      /* the same, of the cells at hand */
    guint8 *sole;       /* per position: alone holds something that another needs */
    guint *rail_stamp, *node_stamp, *domain_stamp, *need_stamp; /* last cell met */
} Count;

/* Number of a set of holders; those of cells outlive the count. */
static guint number_set(Count *count, const guint *members, guint n) {
    RefitRankSet key = {n, members};
    guint number = GPOINTER_TO_UINT(g_hash_table_lookup(count->known, &key));

    if (number > 0)
        return number - 1;
    Holders *holders = g_new0(Holders, 1);
    holders->ranks = key;
    g_ptr_array_add(count->sets, holders);
    g_hash_table_insert(count->known, &holders->ranks, GUINT_TO_POINTER(count->sets->len));
    return count->sets->len - 1;
}

/* ---- ranks ---- */

static void mark_ranks(const RefitProblem *problem, const RefitLayout *layout, guint8 mark,
                       guint8 *marks) {
    const guint *ranks = refit_layout_ranks(layout);

    for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
        if (ranks[i] < problem->n_ranks && !problem->failed[ranks[i]])
            marks[ranks[i]] |= mark;
}

#define IS_MEMBER 1
#define IS_NEEDER 2

static void list_ranks(Count *count) {
    const RefitProblem *problem = count->problem;
    const RefitCase *refit_case = problem->refit_case;
    RefitDemand *demand = count->demand;
    g_autofree guint8 *marks = g_new0(guint8, MAX(problem->n_ranks, 1));

    mark_ranks(problem, refit_case->source, IS_MEMBER, marks);
    for (guint pool = 0; pool < refit_case->n_destinations; pool++)
        mark_ranks(problem, refit_case->destinations[pool], IS_MEMBER | IS_NEEDER, marks);
    demand->ranks = g_new0(RefitDemandRank, MAX(problem->n_ranks, 1));
    for (guint rank = 0; rank < problem->n_ranks; rank++) {
        if (marks[rank] == 0)
            continue;
        RefitDemandRank *item = &demand->ranks[demand->n_ranks++];
        item->rank = rank;
        item->needs = (marks[rank] & IS_NEEDER) != 0;
        count->position_of[rank] = demand->n_ranks;
    }
}

/* ---- cells ---- */

/* Marks where the holders are; `stamp` is the number of the cell. */
static void mark_holders(Count *count, const RefitCell *cell, guint stamp) {
    const RefitTopology *topology = count->problem->refit_case->topology;

    for (guint i = 0; i < cell->n_holders; i++) {
        guint rank = cell->holders[i];
        count->rail_stamp[refit_topology_rail_of(topology, rank)] = stamp;
        count->node_stamp[refit_topology_node_of(topology, rank)] = stamp;
        count->domain_stamp[refit_topology_domain_of(topology, rank)] = stamp;
    }
}

/* Sums that fit because each is a part of the bytes that the problem needs, or checked. */
static gboolean count_cell(Count *count, const RefitCell *cell, guint stamp, guint64 bytes,
                           GError **error) {
    const RefitTopology *topology = count->problem->refit_case->topology;
    RefitDemand *demand = count->demand;
    guint set = number_set(count, cell->holders, cell->n_holders), n_remote = 0, holder = 0;

    mark_holders(count, cell, stamp);
    for (guint i = 0; i < cell->n_needers; i++) {
        guint rank = cell->needers[i], position = count->position_of[rank] - 1;
        guint domain = refit_topology_domain_of(topology, rank);
        RefitDemandRank *item = &demand->ranks[position];

        if (count->domain_stamp[domain] != stamp && count->need_stamp[domain] != stamp)
            demand->domain_in_bytes[domain] += bytes;
        count->need_stamp[domain] = stamp;
        while (holder < cell->n_holders && cell->holders[holder] < rank)
            holder++;
        if (holder < cell->n_holders && cell->holders[holder] == rank) {
            item->local_bytes += bytes;
            continue;
        }
        n_remote++;
        item->receive_bytes += bytes;
        if (count->rail_stamp[refit_topology_rail_of(topology, rank)] != stamp &&
            count->node_stamp[refit_topology_node_of(topology, rank)] != stamp)
            demand->cross_rail_bytes += bytes;
        guint64 pair = (guint64)position << 32 | set;
        g_array_append_val(count->pairs, pair);
    }
    if (n_remote == 0)
        return TRUE;
    demand->unique_bytes += bytes;
    if (cell->n_holders == 1)
        count->sole[count->position_of[cell->holders[0]] - 1] = 1;
    guint64 sent;
    if (!refit_checked_mul(bytes, n_remote, "bytes to send", &sent, error) ||
        !refit_checked_add(demand->receive_bytes, sent, "bytes to send", &demand->receive_bytes,
                           error))
        return FALSE;
    ((Holders *)g_ptr_array_index(count->sets, set))->bytes += sent;
    return TRUE;
}

static int compare_words(gconstpointer a, gconstpointer b) {
    guint64 left = *(const guint64 *)a, right = *(const guint64 *)b;

    return left < right ? -1 : left > right;
}

static void sort_distinct(GArray *words) {
    guint n = 0;

    g_array_sort(words, compare_words);
    for (guint i = 0; i < words->len; i++) {
        guint64 word = g_array_index(words, guint64, i);
        if (n == 0 || word != g_array_index(words, guint64, n - 1))
            g_array_index(words, guint64, n++) = word;
    }
    g_array_set_size(words, n);
}

/* Fewest senders for the pairs [first, ...) of one position; *end_out is behind the last. */
static guint fewest_senders(const Count *count, const GArray *pairs, guint first, guint *end_out,
                            gboolean *exact_out) {
    guint64 position = g_array_index(pairs, guint64, first) >> 32;
    g_autoptr(GArray) sets = g_array_new(FALSE, FALSE, sizeof(RefitRankSet));
    guint end = first;

    for (; end < pairs->len && g_array_index(pairs, guint64, end) >> 32 == position; end++) {
        guint set = (guint)g_array_index(pairs, guint64, end);
        g_array_append_val(sets, ((const Holders *)g_ptr_array_index(count->sets, set))->ranks);
    }
    *end_out = end;
    return refit_cover_fewest((const RefitRankSet *)(gconstpointer)sets->data, sets->len,
                              SEARCH_BUDGET, exact_out);
}

/* Operations of one tensor whose pairs are at hand. */
static guint64 count_operations(Count *count) {
    guint64 operations = 0;

    sort_distinct(count->pairs);
    for (guint first = 0, end; first < count->pairs->len; first = end) {
        gboolean exact;
        operations += fewest_senders(count, count->pairs, first, &end, &exact);
        count->demand->exact_fan_in &= exact;
    }
    return operations;
}

static void keep_pairs(Count *count) {
    g_array_append_vals(count->serves, count->pairs->data, count->pairs->len);
    g_array_set_size(count->pairs, 0);
    if (count->serves->len < 2 * count->n_distinct + 65536)
        return;
    sort_distinct(count->serves);
    count->n_distinct = count->serves->len;
}

/* Classes by their cells, the order of first ones kept: heads and a list of the next with equal
 * cells. */
static guint *link_classes(const RefitProblem *problem, gboolean *is_head) {
    g_autoptr(GHashTable) last = g_hash_table_new(NULL, NULL);
    guint *next = g_new0(guint, MAX(problem->n_classes, 1)); /* 0: none, else 1 + class */

    for (guint i = 0; i < problem->n_classes; i++) {
        gpointer cells = (gpointer)problem->classes[i].cells;
        guint before = GPOINTER_TO_UINT(g_hash_table_lookup(last, cells));
        is_head[i] = before == 0;
        if (before > 0)
            next[before - 1] = i + 1;
        g_hash_table_insert(last, cells, GUINT_TO_POINTER(i + 1));
    }
    return next;
}

static gboolean count_cells(Count *count, GError **error) {
    const RefitProblem *problem = count->problem;
    g_autofree gboolean *is_head = g_new0(gboolean, MAX(problem->n_classes, 1));
    g_autofree guint *next = link_classes(problem, is_head);
    guint stamp = 0;

    for (guint head = 0; head < problem->n_classes; head++) {
        const RefitCells *cells = problem->classes[head].cells;
        guint64 members = 0;
        if (!is_head[head])
            continue;
        for (guint i = 0; i < cells->n_cells; i++) {
            guint64 bytes = 0;
            for (guint k = head + 1; k > 0; k = next[k - 1]) {
                const RefitClass *klass = &problem->classes[k - 1];
                bytes += refit_class_bytes(klass, cells->cells[i].volume) * klass->n_members;
            }
            if (!count_cell(count, &cells->cells[i], ++stamp, bytes, error))
                return FALSE;
        }
        for (guint k = head + 1; k > 0; k = next[k - 1])
            members += problem->classes[k - 1].n_members;
        count->demand->operations += count_operations(count) * members;
        keep_pairs(count);
    }
    return TRUE;
}

/* ---- ranks and sets together ---- */

static void finish_ranks(Count *count) {
    RefitDemand *demand = count->demand;

    sort_distinct(count->serves);
    for (guint first = 0, end; first < count->serves->len; first = end) {
        guint position = (guint)(g_array_index(count->serves, guint64, first) >> 32);
        gboolean exact;
        guint fewest = fewest_senders(count, count->serves, first, &end, &exact);
        demand->ranks[position].fan_in = fewest;
        demand->max_fan_in = MAX(demand->max_fan_in, fewest);
        demand->exact_fan_in &= exact;
    }
    for (guint i = 0; i < demand->n_ranks; i++)
        demand->ranks[i].idle = demand->ranks[i].receive_bytes == 0 && !count->sole[i];
}

static guint64 least_egress(const Count *count) {
    g_autofree RefitRankSet *sets = g_new(RefitRankSet, MAX(count->sets->len, 1));
    g_autofree guint64 *bytes = g_new(guint64, MAX(count->sets->len, 1));
    guint n = 0;

    for (guint i = 0; i < count->sets->len; i++) {
        const Holders *holders = g_ptr_array_index(count->sets, i);
        if (holders->bytes == 0)
            continue;
        sets[n] = holders->ranks;
        bytes[n++] = holders->bytes;
    }
    return refit_spread_least(sets, bytes, n);
}

RefitDemand *refit_demand_new(const RefitProblem *problem, GError **error) {
    const RefitTopology *topology = problem->refit_case->topology;
    g_autoptr(RefitDemand) demand = g_new0(RefitDemand, 1);
    guint n_ranks = MAX(problem->n_ranks, 1);

    demand->exact_fan_in = TRUE;
    demand->n_domains = refit_topology_n_domains(topology);
    demand->domain_in_bytes = g_new0(guint64, demand->n_domains);
    g_autofree guint *position_of = g_new0(guint, n_ranks);
    g_autoptr(GHashTable) known = g_hash_table_new(refit_rank_set_hash, refit_rank_set_equal);
    g_autoptr(GPtrArray) sets = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GArray) serves = g_array_new(FALSE, FALSE, sizeof(guint64));
    g_autoptr(GArray) pairs = g_array_new(FALSE, FALSE, sizeof(guint64));
    g_autofree guint8 *sole = g_new0(guint8, n_ranks);
    /* Rails, nodes and domains are each no more than GPUs. */
    g_autofree guint *stamps = g_new0(guint, 4 * (gsize)n_ranks);
    Count count = {
        .problem = problem,
        .demand = demand,
        .position_of = position_of,
        .known = known,
        .sets = sets,
        .serves = serves,
        .pairs = pairs,
        .sole = sole,
        .rail_stamp = stamps,
        .node_stamp = stamps + n_ranks,
        .domain_stamp = stamps + 2 * (gsize)n_ranks,
        .need_stamp = stamps + 3 * (gsize)n_ranks,
    };
    list_ranks(&count);
    if (!count_cells(&count, error))
        return NULL;
    finish_ranks(&count);
    demand->min_max_egress_bytes = least_egress(&count);
    return g_steal_pointer(&demand);
}

void refit_demand_free(RefitDemand *demand) {
    if (demand == NULL)
        return;
    g_free(demand->ranks);
    g_free(demand->domain_in_bytes);
    g_free(demand);
}

gboolean refit_demand_check_sources(const RefitDemand *demand, guint max_sources, GError **error) {
    for (guint i = 0; i < demand->n_ranks; i++) {
        const RefitDemandRank *item = &demand->ranks[i];
        if (item->fan_in <= max_sources)
            continue;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                    "rank %u needs bytes from %u ranks, but the limit is %u; raise it, or relay "
                    "through other ranks",
                    item->rank, item->fan_in, max_sources);
        return FALSE;
    }
    return TRUE;
}
