/*
 * Reading a case: the parts are read by their own modules in an order that lets each see what it
 * depends on (topology before sides, model before layouts); what only the whole shows is checked
 * here: that all sides fit the topology and that no two destination pools fill the same GPU. A side
 * that holds the weights in a form of its own is read a second time, against the model in that
 * form. Cost: that of the layouts, plus linear in the ranks of all sides.
 */

#include <string.h>

#include "model/case/refit-case.h"
#include "model/case/refit-unknown.h"

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

/* What the sides of a case are read with. */
typedef struct {
    const RefitStore *store;
    RefitNode *root;
    RefitModelOptions wire; /* the form of the weights on the wire */
    RefitUnknown unknown;
    RefitCase *refit_case;
} Reading;

static RefitModel *load_model(const Reading *reading, const RefitModelOptions *options,
                              GError **error) {
    const char *name = NULL;
    RefitNode *node = refit_node_require(reading->root, "model", error);
    if (!node || !refit_node_string(node, &name, error))
        return NULL;
    g_autoptr(RefitModel) model =
        refit_store_load_model(reading->store, name, options, node, error);
    RefitNode *only = refit_node_get(reading->root, "only");
    RefitNode *except = refit_node_get(reading->root, "except");
    if (model && reading->unknown.roles) {
        RefitModel *stated = refit_model_state_roles(model, reading->unknown.roles, error);
        refit_model_unref(g_steal_pointer(&model));
        model = stated;
    }
    if (!model || (!only && !except))
        return g_steal_pointer(&model);
    return refit_model_select(model, only, except, error);
}

static gboolean read_wire(Reading *reading, GError **error) {
    RefitNode *dtype = refit_node_get(reading->root, "dtype");
    reading->wire = (RefitModelOptions){.dtype = REFIT_DTYPE_BF16, .dtype_stated = dtype != NULL};
    if ((dtype && !refit_model_form_read(dtype, &reading->wire, error)) ||
        !refit_node_get_bool(reading->root, "mtp", &reading->wire.mtp, error) ||
        !refit_unknown_read(refit_node_get(reading->root, "unknown"), &reading->unknown, error))
        return FALSE;
    reading->refit_case->model = load_model(reading, &reading->wire, error);
    return reading->refit_case->model != NULL;
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

static gboolean is_same_form(const RefitModel *a, const RefitModel *b) {
    if (refit_model_n_tensors(a) != refit_model_n_tensors(b))
        return FALSE;
    for (guint i = 0; i < refit_model_n_tensors(a); i++) {
        const RefitTensor *x = refit_model_tensor(a, i), *y = refit_model_tensor(b, i);
        if (x->dtype != y->dtype || x->bytes != y->bytes || !g_str_equal(x->name, y->name))
            return FALSE;
    }
    return TRUE;
}

/* The side in the form of its own `dtype:`; NULL where it holds that on the wire. */
static gboolean parse_held(const Reading *reading, RefitNode *node, const char *side,
                           guint next_rank, RefitLayout **held_out, GError **error) {
    const RefitCase *refit_case = reading->refit_case;
    RefitNode *dtype = refit_node_get(node, "dtype");
    RefitModelOptions options = reading->wire;
    if (!dtype)
        return TRUE;
    options.dtype_stated = TRUE;
    if (!refit_model_form_read(dtype, &options, error))
        return FALSE;
    g_autoptr(RefitModel) model = load_model(reading, &options, error);
    if (!model)
        return FALSE;
    if (is_same_form(model, refit_case->model))
        return TRUE;
    *held_out = refit_layout_parse(node, side, model, next_rank,
                                   refit_topology_n_gpus(refit_case->topology), error);
    return *held_out != NULL;
}

static gboolean parse_side(const Reading *reading, RefitNode *node, const char *side,
                           guint *next_rank, RefitLayout **layout_out, RefitLayout **held_out,
                           GError **error) {
    const RefitCase *refit_case = reading->refit_case;
    if (refit_node_kind(node) == REFIT_NODE_MAPPING &&
        !parse_held(reading, node, side, *next_rank, held_out, error))
        return FALSE;
    if (!refit_unknown_check(&reading->unknown, refit_case->model, node,
                             refit_node_get(reading->root, "model"), error))
        return FALSE;
    RefitLayout *layout = refit_layout_parse(node, side, refit_case->model, *next_rank,
                                             refit_topology_n_gpus(refit_case->topology), error);
    if (!layout)
        return FALSE;
    *next_rank = ranks_end(layout);
    *layout_out = layout;
    return TRUE;
}

static gboolean parse_destinations(const Reading *reading, RefitNode *node, guint next_rank,
                                   GError **error) {
    RefitCase *refit_case = reading->refit_case;
    gboolean is_list = refit_node_kind(node) == REFIT_NODE_SEQUENCE;
    guint n_pools = is_list ? refit_node_size(node) : 1;
    if (n_pools == 0) {
        refit_node_error(node, REFIT_ERROR_INVALID, error,
                         "the list has no pool; write one mapping per pool to fill");
        return FALSE;
    }
    refit_case->destinations = g_new0(RefitLayout *, n_pools);
    refit_case->destinations_held = g_new0(RefitLayout *, n_pools);
    for (guint i = 0; i < n_pools; i++) {
        RefitNode *pool = is_list ? refit_node_at(node, i) : node;
        refit_case->n_destinations = i + 1;
        if (!parse_side(reading, pool, refit_node_path(pool), &next_rank,
                        &refit_case->destinations[i], &refit_case->destinations_held[i], error))
            return FALSE;
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

/* Ranks that are gone; naming none is no mistake. */
static gboolean parse_failed(RefitNode *node, RefitCase *refit_case, GError **error) {
    if (!refit_node_expect(node, REFIT_NODE_SEQUENCE, error))
        return FALSE;
    if (refit_node_size(node) == 0)
        return TRUE;
    g_autoptr(GArray) ranks = refit_layout_read_ranks(
        node, refit_topology_n_gpus(refit_case->topology), "GPU", "the topology", error);
    if (!ranks)
        return FALSE;
    refit_case->n_failed = ranks->len;
    refit_case->failed = (guint *)(gpointer)g_array_free(g_steal_pointer(&ranks), FALSE);
    refit_ranks_sort(refit_case->failed, refit_case->n_failed);
    return TRUE;
}

RefitCase *refit_case_parse(const RefitStore *store, RefitDoc *doc, GError **error) {
    g_autoptr(RefitCase) refit_case = g_new0(RefitCase, 1);
    g_autofree char *note = NULL;
    RefitNode *root = refit_doc_root(doc);
    guint next_rank = 0;

    refit_doc_use_files(doc, store->files);
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
    RefitNode *failed = refit_node_get(root, "failed_ranks");
    if (failed && !parse_failed(failed, refit_case, error))
        return NULL;
    RefitNode *train = refit_node_require(root, "train", error);
    RefitNode *generation = train ? refit_node_require(root, "generation", error) : NULL;
    if (!generation || !check_fits(refit_case->topology, topology, train, generation, error))
        return NULL;
    Reading reading = {.store = store, .root = root, .refit_case = refit_case};
    if (!read_wire(&reading, error) ||
        !parse_side(&reading, train, "train", &next_rank, &refit_case->source,
                    &refit_case->source_held, error) ||
        !parse_destinations(&reading, generation, next_rank, error) ||
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

/* ---- forms ---- */

const RefitLayout *refit_case_held(const RefitCase *refit_case, guint pool) {
    g_return_val_if_fail(pool == REFIT_CASE_SOURCE || pool < refit_case->n_destinations, NULL);
    if (pool == REFIT_CASE_SOURCE)
        return refit_case->source_held;
    return refit_case->destinations_held ? refit_case->destinations_held[pool] : NULL;
}

static void set_ratio(const RefitCase *refit_case, guint pool, double *ratios) {
    const RefitLayout *held = refit_case_held(refit_case, pool);
    guint64 wire = refit_model_bytes(refit_case->model);
    if (!held || wire == 0)
        return;
    const guint *ranks = refit_layout_ranks(held);
    for (guint i = 0; i < refit_layout_n_ranks(held); i++)
        ratios[ranks[i]] = (double)refit_model_bytes(refit_layout_model(held)) / (double)wire;
}

double *refit_case_cast_ratios(const RefitCase *refit_case, gboolean sending) {
    double *ratios = g_new0(double, MAX(refit_topology_n_gpus(refit_case->topology), 1));
    if (sending)
        set_ratio(refit_case, REFIT_CASE_SOURCE, ratios);
    for (guint pool = 0; !sending && pool < refit_case->n_destinations; pool++)
        set_ratio(refit_case, pool, ratios);
    return ratios;
}

void refit_case_free(RefitCase *refit_case) {
    if (!refit_case)
        return;
    for (guint i = 0; i < refit_case->n_destinations; i++) {
        refit_layout_free(refit_case->destinations[i]);
        if (refit_case->destinations_held)
            refit_layout_free(refit_case->destinations_held[i]);
    }
    g_free(refit_case->destinations);
    g_free(refit_case->destinations_held);
    refit_layout_free(refit_case->source);
    refit_layout_free(refit_case->source_held);
    g_clear_pointer(&refit_case->model, refit_model_unref);
    refit_topology_free(refit_case->topology);
    refit_profile_free(refit_case->profile);
    g_free(refit_case->failed);
    g_free(refit_case->name);
    g_free(refit_case);
}
