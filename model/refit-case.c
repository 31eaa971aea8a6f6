/*
 * Reading a case: the parts are read by their own modules in an order that lets each see what it
 * depends on (topology before sides, model before layouts); what only the whole shows is checked
 * here: that all sides fit the topology and that no two destination pools fill the same GPU.
 * Cost: that of the layouts, plus linear in the ranks of all sides.
 */

#include <string.h>

#include "refit-case.h"

/* First rank above all ranks of `layout`. */
static guint ranks_end(const RefitLayout *layout) {
    const guint *ranks = refit_layout_ranks(layout);
    guint end = 0;
    for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
        end = MAX(end, ranks[i] + 1);
    return end;
}

static char *name_of(const char *path) {
    char *name = g_path_get_basename(path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    return name;
}

static RefitModel *parse_model(const RefitStore *store, RefitNode *root, GError **error) {
    RefitModelOptions options = {.dtype = REFIT_DTYPE_BF16, .mtp = FALSE};
    const char *name = NULL;
    RefitNode *dtype = refit_node_get(root, "dtype");
    if ((dtype && !refit_node_dtype(dtype, &options.dtype, error)) ||
        !refit_node_get_bool(root, "mtp", &options.mtp, error))
        return NULL;
    RefitNode *node = refit_node_require(root, "model", error);
    if (!node || !refit_node_string(node, &name, error))
        return NULL;
    g_autoptr(RefitDoc) doc = refit_store_load(store, "models", name, node, error);
    return doc ? refit_model_parse(refit_doc_root(doc), &options, error) : NULL;
}

static gboolean parse_budget(RefitNode *node, RefitCase *refit_case, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return FALSE;
    double staging = 0;
    if (!refit_node_get_quantity(node, "time", REFIT_UNIT_SECONDS, &refit_case->budget_time_s,
                                 error) ||
        !refit_node_get_quantity(node, "staging", REFIT_UNIT_BYTES, &staging, error))
        return FALSE;
    const char *const keys[] = {"time", "staging"};
    const double values[] = {refit_case->budget_time_s, staging};
    for (guint i = 0; i < G_N_ELEMENTS(keys); i++) {
        RefitNode *place = refit_node_get(node, keys[i]);
        if (place && values[i] <= 0) {
            refit_node_error(place, REFIT_ERROR_INVALID, error,
                             "nothing fits a budget of 0; leave the key out for no limit");
            return FALSE;
        }
    }
    refit_case->budget_staging_bytes = (guint64)staging; /* whole and at most 2^63 by its parser */
    return refit_node_finish(node, error);
}

static gboolean parse_side(RefitCase *refit_case, RefitNode *node, const char *side,
                           guint *next_rank, RefitLayout **layout_out, GError **error) {
    RefitLayout *layout = refit_layout_parse(node, side, refit_case->model, *next_rank,
                                             refit_topology_n_gpus(refit_case->topology), error);
    if (!layout)
        return FALSE;
    *next_rank = ranks_end(layout);
    *layout_out = layout;
    return TRUE;
}

static gboolean parse_destinations(RefitCase *refit_case, RefitNode *node, guint next_rank,
                                   GError **error) {
    gboolean is_list = refit_node_kind(node) == REFIT_NODE_SEQUENCE;
    guint n_pools = is_list ? refit_node_size(node) : 1;
    if (n_pools == 0) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "the list has no pool; write one mapping per pool to fill");
        return FALSE;
    }
    refit_case->destinations = g_new0(RefitLayout *, n_pools);
    for (guint i = 0; i < n_pools; i++) {
        RefitNode *pool = is_list ? refit_node_at(node, i) : node;
        if (!parse_side(refit_case, pool, refit_node_path(pool), &next_rank,
                        &refit_case->destinations[i], error))
            return FALSE;
        refit_case->n_destinations = i + 1;
    }
    return TRUE;
}

/*
 * Sides placed by count alone are added up here, before anything large is built, so that one
 * message can say how many nodes would do. What this cannot read is left to the side's own reader.
 */
static gboolean check_fits(const RefitTopology *topology, RefitNode *place, RefitNode *train,
                           RefitNode *generation, GError **error) {
    gboolean is_list = refit_node_kind(generation) == REFIT_NODE_SEQUENCE;
    guint n_pools = is_list ? refit_node_size(generation) : 1;
    guint64 next = 0, needed = 0;
    for (guint i = 0; i <= n_pools; i++) {
        RefitNode *side = generation;
        if (i == 0)
            side = train;
        else if (is_list)
            side = refit_node_at(generation, i - 1);
        if (refit_node_kind(side) != REFIT_NODE_MAPPING || refit_node_get(side, "ranks"))
            return TRUE;
        RefitNode *gpus = refit_node_get(side, "gpus");
        RefitNode *first = refit_node_get(side, "first_gpu");
        guint64 count = 0;
        if (!gpus || !refit_node_uint(gpus, 1, G_MAXUINT32, &count, NULL) ||
            (first && !refit_node_uint(first, 0, G_MAXUINT32, &next, NULL)))
            return TRUE;
        next += count;
        needed = MAX(needed, next);
    }
    guint n_gpus = refit_topology_n_gpus(topology);
    if (needed <= n_gpus)
        return TRUE;
    RefitNode *nodes =
        refit_node_kind(place) == REFIT_NODE_MAPPING ? refit_node_get(place, "nodes") : NULL;
    refit_node_error(nodes ? nodes : place, REFIT_ERROR_INVALID, error,
                     "the case needs %" G_GUINT64_FORMAT
                     " GPUs, the topology has %u: use nodes: %" G_GUINT64_FORMAT,
                     needed, n_gpus, (needed - 1) / topology->gpus_per_node + 1);
    return FALSE;
}

static gboolean check_disjoint(const RefitCase *refit_case, RefitNode *generation, GError **error) {
    g_autofree guint *pool_of = g_new0(guint, refit_topology_n_gpus(refit_case->topology));
    for (guint i = 0; i < refit_case->n_destinations; i++) {
        const RefitLayout *layout = refit_case->destinations[i];
        const guint *ranks = refit_layout_ranks(layout);
        for (guint r = 0; r < refit_layout_n_ranks(layout); r++) {
            guint *pool = &pool_of[ranks[r]]; /* 1 + the pool that takes it, 0: none */
            if (*pool != 0) {
                refit_node_error(refit_node_at(generation, i), REFIT_ERROR_INVALID, error,
                                 "GPU %u is already in pool %s; pools cannot share GPUs, state "
                                 "first_gpu: or ranks: to place them",
                                 ranks[r], refit_layout_side(refit_case->destinations[*pool - 1]));
                return FALSE;
            }
            *pool = i + 1;
        }
    }
    return TRUE;
}

RefitCase *refit_case_parse(const RefitStore *store, RefitDoc *doc, GError **error) {
    g_autoptr(RefitCase) refit_case = g_new0(RefitCase, 1);
    g_autofree char *note = NULL;
    RefitNode *root = refit_doc_root(doc);
    guint next_rank = 0;

    refit_case->name = name_of(refit_doc_name(doc));
    if (!refit_node_check_schema(root, "refit.case/1", error) ||
        !refit_node_get_string(root, "note", &note, error))
        return NULL;
    RefitNode *topology = refit_node_require(root, "topology", error);
    if (!topology)
        return NULL;
    refit_case->topology = refit_topology_from_case(topology, store, error);
    if (!refit_case->topology)
        return NULL;
    refit_case->profile = refit_profile_from_case(refit_node_get(root, "profile"), store, error);
    if (!refit_case->profile)
        return NULL;
    RefitNode *budget = refit_node_get(root, "budget");
    if (budget && !parse_budget(budget, refit_case, error))
        return NULL;
    RefitNode *train = refit_node_require(root, "train", error);
    RefitNode *generation = train ? refit_node_require(root, "generation", error) : NULL;
    if (!generation || !check_fits(refit_case->topology, topology, train, generation, error))
        return NULL;
    refit_case->model = parse_model(store, root, error);
    if (!refit_case->model ||
        !parse_side(refit_case, train, "train", &next_rank, &refit_case->source, error) ||
        !parse_destinations(refit_case, generation, next_rank, error) ||
        !refit_node_finish(root, error) || !check_disjoint(refit_case, generation, error))
        return NULL;
    return g_steal_pointer(&refit_case);
}

RefitCase *refit_case_load(const RefitStore *store, const char *name_or_path,
                           const char *const *overrides, GError **error) {
    g_autoptr(RefitDoc) doc = refit_store_load(store, "cases", name_or_path, NULL, error);
    if (!doc)
        return NULL;
    for (guint i = 0; overrides && overrides[i]; i++)
        if (!refit_doc_set(doc, overrides[i], error))
            return NULL;
    return refit_case_parse(store, doc, error);
}

void refit_case_free(RefitCase *refit_case) {
    if (!refit_case)
        return;
    for (guint i = 0; i < refit_case->n_destinations; i++)
        refit_layout_free(refit_case->destinations[i]);
    g_free(refit_case->destinations);
    refit_layout_free(refit_case->source);
    g_clear_pointer(&refit_case->model, refit_model_unref);
    refit_topology_free(refit_case->topology);
    refit_profile_free(refit_case->profile);
    g_free(refit_case->name);
    g_free(refit_case);
}
