/*
 * From ranks of a report to GPUs of a topology.
 *
 * A topology is regular: equal nodes, GPUs numbered node by node, rails by place in the node. A
 * report lists the ranks of each node in any order and gives each rank any rail. So every node gets
 * as many places as the fullest needs, a rank with a rail takes a place of that rail, and ranks in
 * no node get nodes of their own behind. Without nodes, ranks are GPUs, eight to a node.
 */

#include "validation/report.h"

#define GPUS_PER_NODE 8

/* ---- which ranks there are ---- */

static gboolean note_ranks(GArray *ranks, const json_t *list, const char *where, GError **error) {
    g_autoptr(GArray) numbers = report_get_uints(list, where, REPORT_MAX_RANK, error);

    if (numbers == NULL)
        return FALSE;
    for (guint i = 0; i < numbers->len; i++) {
        guint rank = (guint)g_array_index(numbers, guint64, i);
        g_array_append_val(ranks, rank);
    }
    return TRUE;
}

static gboolean note_layout(GArray *ranks, const json_t *layout, GError **error) {
    const json_t *rows = json_object_get(json_object_get(layout, "index"), "rows");
    const char *key;
    json_t *value;

    if (json_is_array(layout)) {
        for (gsize i = 0; i < json_array_size(layout); i++)
            if (!note_layout(ranks, json_array_get(layout, i), error))
                return FALSE;
        return TRUE;
    }
    if (json_object_get(layout, "ranks") != NULL &&
        !note_ranks(ranks, json_object_get(layout, "ranks"), "ranks", error))
        return FALSE;
    json_object_foreach((json_t *)rows, key, value) {
        guint rank;
        if (!report_get_rank(key, "rows", &rank, error))
            return FALSE;
        g_array_append_val(ranks, rank);
    }
    return TRUE;
}

static gboolean note_all(GArray *ranks, const json_t *root, GError **error) {
    const json_t *tensors = json_object_get(root, "tensors");
    const json_t *nodes = json_object_get(json_object_get(root, "topology"), "nodes");
    static const char *const lists[] = {"world", "failed_ranks"};
    static const char *const sides[] = {"src", "dst"};
    const char *key;
    json_t *value;

    for (guint side = 0; side < G_N_ELEMENTS(sides); side++) {
        if (!note_layout(ranks, json_object_get(root, sides[side]), error))
            return FALSE;
        for (gsize i = 0; i < json_array_size(tensors); i++)
            if (!note_layout(ranks, json_object_get(json_array_get(tensors, i), sides[side]),
                             error))
                return FALSE;
    }
    json_object_foreach((json_t *)json_object_get(root, "fused"), key, value) {
        if (!note_layout(ranks, json_object_get(value, "layout"), error))
            return FALSE;
    }
    for (guint i = 0; i < G_N_ELEMENTS(lists); i++)
        if (json_object_get(root, lists[i]) != NULL &&
            !note_ranks(ranks, json_object_get(root, lists[i]), lists[i], error))
            return FALSE;
    for (gsize i = 0; i < json_array_size(nodes); i++)
        if (!note_ranks(ranks, json_array_get(nodes, i), "topology.nodes", error))
            return FALSE;
    return TRUE;
}

/* ---- places ---- */

static gboolean read_rails(const json_t *rails, guint n_ranks, guint *rail_of, guint *n_rails,
                           GError **error) {
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)rails, key, value) {
        guint64 rail;
        guint rank;
        if (!report_get_rank(key, "topology.rails", &rank, error) ||
            !report_get_uint(value, "topology.rails", 1023, &rail, error))
            return FALSE;
        if (rank < n_ranks)
            rail_of[rank] = (guint)rail;
        *n_rails = MAX(*n_rails, (guint)rail + 1);
    }
    return TRUE;
}

/* Places one node's ranks: places_out of each. Returns the places it takes. */
static guint place_node(const guint *members, guint n, const guint *rail_of, guint n_rails,
                        guint *places_out) {
    g_autofree guint *used = g_new0(guint, MAX(n_rails, 1)); /* per rail */
    guint n_places = 0;

    for (guint i = 0; i < n; i++) {
        guint rail = rail_of[members[i]];
        places_out[i] = n_rails == 0 ? i : rail + n_rails * used[rail]++;
        n_places = MAX(n_places, places_out[i] + 1);
    }
    return n_places;
}

/* Ranks of each node, an array of arrays; ranks in none make nodes of their own at the end. */
static GPtrArray *list_nodes(const json_t *nodes, const GArray *all, guint n_ranks,
                             GError **error) {
    g_autoptr(GPtrArray) lists = g_ptr_array_new_with_free_func((GDestroyNotify)g_array_unref);
    g_autofree gboolean *seen = g_new0(gboolean, n_ranks);
    GArray *rest = NULL;

    for (gsize i = 0; i < json_array_size(nodes); i++) {
        GArray *list = g_array_new(FALSE, FALSE, sizeof(guint));
        g_ptr_array_add(lists, list);
        if (!note_ranks(list, json_array_get(nodes, i), "topology.nodes", error))
            return NULL;
        for (guint k = 0; k < list->len; k++) {
            guint rank = g_array_index(list, guint, k);
            if (seen[rank]) {
                report_fail(error, "topology.nodes lists rank %u twice", rank);
                return NULL;
            }
            seen[rank] = TRUE;
        }
    }
    for (guint i = 0; i < all->len; i++) {
        guint rank = g_array_index(all, guint, i);
        if (seen[rank])
            continue;
        if (rest == NULL || rest->len == GPUS_PER_NODE) {
            rest = g_array_new(FALSE, FALSE, sizeof(guint));
            g_ptr_array_add(lists, rest);
        }
        g_array_append_val(rest, rank);
    }
    return g_steal_pointer(&lists);
}

static gboolean place_all(ReportRanks *ranks, const GPtrArray *nodes, const guint *rail_of,
                          guint n_rails, guint *gpus_per_node_out, GError **error) {
    g_autofree guint *places = g_new0(guint, MAX(ranks->n_ranks, 1));
    guint per_node = MAX(n_rails, 1), at = 0;

    for (guint i = 0; i < nodes->len; i++) {
        const GArray *list = g_ptr_array_index(nodes, i);
        guint n = place_node((const guint *)(gconstpointer)list->data, list->len, rail_of, n_rails,
                             places + at);
        per_node = MAX(per_node, n);
        at += list->len;
    }
    if (n_rails > 0) /* whole rounds over the rails, so that place mod rails is the rail */
        per_node = (per_node + n_rails - 1) / n_rails * n_rails;
    guint n_nodes = MAX(nodes->len, 1);
    if ((guint64)n_nodes * per_node > REFIT_TOPOLOGY_MAX_GPUS)
        return report_fail(error, "topology.nodes: %u nodes of %u places are more than %u GPUs",
                           n_nodes, per_node, REFIT_TOPOLOGY_MAX_GPUS);
    ranks->n_gpus = n_nodes * per_node;
    ranks->rank_of = g_new(guint, ranks->n_gpus);
    for (guint gpu = 0; gpu < ranks->n_gpus; gpu++)
        ranks->rank_of[gpu] = REPORT_NO_GPU;
    at = 0;
    for (guint i = 0; i < nodes->len; i++) {
        const GArray *list = g_ptr_array_index(nodes, i);
        for (guint k = 0; k < list->len; k++) {
            guint rank = g_array_index(list, guint, k), gpu = i * per_node + places[at++];
            ranks->gpu_of[rank] = gpu;
            ranks->rank_of[gpu] = rank;
        }
    }
    *gpus_per_node_out = per_node;
    return TRUE;
}

/* Ranks as GPUs, eight to a node. */
static GPtrArray *plain_nodes(guint n_ranks) {
    GPtrArray *nodes = g_ptr_array_new_with_free_func((GDestroyNotify)g_array_unref);

    for (guint rank = 0; rank < n_ranks; rank++) {
        if (rank % GPUS_PER_NODE == 0)
            g_ptr_array_add(nodes, g_array_new(FALSE, FALSE, sizeof(guint)));
        g_array_append_val((GArray *)g_ptr_array_index(nodes, rank / GPUS_PER_NODE), rank);
    }
    return nodes;
}

ReportRanks *report_ranks_new(const json_t *root, GError **error) {
    static const char *const keys[] = {"nodes", "rails", "nics_per_node", "nic_bw", NULL};
    const json_t *topology = json_object_get(root, "topology");
    const json_t *nodes = json_object_get(topology, "nodes");
    const json_t *rails = json_object_get(topology, "rails");
    g_autoptr(ReportRanks) ranks = g_new0(ReportRanks, 1);
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(guint));
    guint n_rails = 0, per_node = 1;

    if ((topology != NULL && !report_check_keys(topology, "topology", keys, error)) ||
        (nodes != NULL && !report_expect_list(nodes, "topology.nodes", error)) ||
        (rails != NULL && !report_expect_object(rails, "topology.rails", error)) ||
        !note_all(all, root, error))
        return NULL;
    guint *numbers = (guint *)(gpointer)all->data;
    refit_ranks_sort(numbers, all->len);
    g_array_set_size(all, refit_ranks_drop_repeats(numbers, all->len));
    ranks->n_ranks = all->len > 0 ? g_array_index(all, guint, all->len - 1) + 1 : 0;
    ranks->gpu_of = g_new(guint, MAX(ranks->n_ranks, 1));
    for (guint rank = 0; rank < ranks->n_ranks; rank++)
        ranks->gpu_of[rank] = REPORT_NO_GPU;
    g_autofree guint *rail_of = g_new0(guint, MAX(ranks->n_ranks, 1));
    ranks->n_nodes = (guint)json_array_size(nodes);
    ranks->has_rails = json_object_size(rails) > 0;
    if (!read_rails(rails, ranks->n_ranks, rail_of, &n_rails, error))
        return NULL;
    g_autoptr(GPtrArray) lists = ranks->n_nodes > 0 || ranks->has_rails
                                     ? list_nodes(nodes, all, MAX(ranks->n_ranks, 1), error)
                                     : plain_nodes(ranks->n_ranks);
    if (lists == NULL || !place_all(ranks, lists, rail_of, n_rails, &per_node, error))
        return NULL;
    g_autofree char *line =
        g_strdup_printf("node:%u gpu:%u rails:%u nvlink:450GBps nic:50GBps",
                        ranks->n_gpus / per_node, per_node, n_rails > 0 ? n_rails : per_node);
    ranks->topology = refit_topology_parse_line(line, error);
    return ranks->topology != NULL ? g_steal_pointer(&ranks) : NULL;
}

void report_ranks_free(ReportRanks *ranks) {
    if (ranks == NULL)
        return;
    g_free(ranks->gpu_of);
    g_free(ranks->rank_of);
    refit_topology_free(ranks->topology);
    g_free(ranks);
}
