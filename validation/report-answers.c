/*
 * What a report can be asked for: the demand of its case, what each rank holds of each tensor, and
 * the rows of fused buffers, as JSON under the names of `expect`.
 */

#include <stdlib.h>
#include <string.h>

#include "validation/report.h"

static void set_rank(const Report *report, json_t *object, guint gpu, json_t *value) {
    g_autofree char *key = g_strdup_printf("%u", report->ranks->rank_of[gpu]);

    json_object_set_new(object, key, value);
}

static int compare_numbers(gconstpointer a, gconstpointer b) {
    guint left = *(const guint *)a, right = *(const guint *)b;

    return left < right ? -1 : left > right;
}

/* ---- demand ---- */

/* Ranks of the world, or of the case when none is stated, that a plan may leave out. */
static gboolean add_idle(const Report *report, json_t *answers, GError **error) {
    const json_t *stated = json_object_get(report->root, "world");
    g_autoptr(GArray) world = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autofree gboolean *busy = g_new0(gboolean, MAX(report->ranks->n_ranks, 1));
    json_t *idle = json_array();

    json_object_set_new(answers, "no_mandatory_op", idle);
    for (guint i = 0; i < report->demand->n_ranks; i++) {
        const RefitDemandRank *item = &report->demand->ranks[i];
        guint rank = report->ranks->rank_of[item->rank];
        busy[rank] = !item->idle;
        if (stated == NULL)
            g_array_append_val(world, rank);
    }
    if (stated != NULL) {
        g_autoptr(GArray) list = report_get_uints(stated, "world", REPORT_MAX_RANK, error);
        for (guint i = 0; list != NULL && i < list->len; i++) {
            guint rank = (guint)g_array_index(list, guint64, i);
            g_array_append_val(world, rank);
        }
        if (list == NULL)
            return FALSE;
    } else {
        g_array_sort(world, compare_numbers);
    }
    for (guint i = 0; i < world->len; i++) {
        guint rank = g_array_index(world, guint, i);
        if (!busy[rank])
            json_array_append_new(idle, json_integer(rank));
    }
    return TRUE;
}

static void add_demand(const Report *report, json_t *answers) {
    const RefitDemand *demand = report->demand;
    json_t *receive = json_object(), *local = json_object(), *fan_in = json_object();

    for (guint i = 0; i < demand->n_ranks; i++) {
        const RefitDemandRank *item = &demand->ranks[i];
        if (item->needs)
            set_rank(report, receive, item->rank, report_new_uint(item->receive_bytes));
        if (item->local_bytes > 0)
            set_rank(report, local, item->rank, report_new_uint(item->local_bytes));
        if (item->fan_in > 0)
            set_rank(report, fan_in, item->rank, json_integer(item->fan_in));
    }
    json_object_set_new(answers, "recv_bytes", receive);
    json_object_set_new(answers, "local_copy_bytes", local);
    json_object_set_new(answers, "fan_in", fan_in);
    report_set_uint(answers, "total_recv_bytes", demand->receive_bytes);
    report_set_uint(answers, "unique_bytes", demand->unique_bytes);
    report_set_uint(answers, "ops", demand->operations);
    report_set_uint(answers, "max_fan_in", demand->max_fan_in);
    report_set_uint(answers, "min_max_egress", demand->min_max_egress_bytes);
    if (report->ranks->has_rails)
        report_set_uint(answers, "cross_rail_bytes", demand->cross_rail_bytes);
    if (report->ranks->n_nodes == 0)
        return;
    json_t *nodes = json_object();
    for (guint node = 0; node < report->ranks->n_nodes; node++) {
        g_autofree char *key = g_strdup_printf("%u", node);
        report_set_uint(nodes, key, demand->domain_in_bytes[node]);
    }
    json_object_set_new(answers, "node_in_bytes", nodes);
}

/* ---- shards ---- */

static int compare_places(gconstpointer a, gconstpointer b) {
    const RefitInterval *left = a, *right = b;

    return left->at < right->at ? -1 : left->at > right->at;
}

/* Appends the intervals of a list to those of the same dim in other parts. */
static void collect(GArray *intervals, const RefitIntervalList *list) {
    g_array_append_vals(intervals, list->items, list->n);
}

/* Intervals in the order of the local buffer, neighbours in both joined; [[lo, hi], ...]. */
static json_t *intervals_to_json(GArray *intervals, guint64 *extent_out) {
    json_t *list = json_array();
    guint64 extent = 0, lo = 0, hi = 0;

    g_array_sort(intervals, compare_places);
    for (guint i = 0; i < intervals->len; i++) {
        const RefitInterval *item = &g_array_index(intervals, RefitInterval, i);
        extent += item->hi - item->lo;
        if (i > 0 && item->lo == hi) {
            hi = item->hi;
            continue;
        }
        if (i > 0)
            json_array_append_new(list, json_pack("[I,I]", (json_int_t)lo, (json_int_t)hi));
        lo = item->lo;
        hi = item->hi;
    }
    if (intervals->len > 0)
        json_array_append_new(list, json_pack("[I,I]", (json_int_t)lo, (json_int_t)hi));
    *extent_out = extent;
    return list;
}

/*
 * What one layout gives a rank: {shape, offset, intervals}. Its parts differ in one dim at most
 * (rows that a rank holds again), so the other dims are those of the first.
 */
static gboolean shard_to_json(const RefitSharding *sharding, ReportLayout layout, guint gpu,
                              const RefitTensor *tensor, json_t **json_out, GError **error) {
    GArray *dims[REFIT_MAX_DIMS] = {0};
    gboolean held = FALSE, worked = TRUE;

    for (guint d = 0; d < tensor->n_dims; d++)
        dims[d] = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    for (guint part = layout.first; part < layout.first + layout.n && worked; part++) {
        g_auto(RefitRegion) region = {0};
        guint64 buffer[REFIT_MAX_DIMS];
        g_autoptr(GError) cause = NULL;
        if (!refit_sharding_local(sharding, part, gpu, tensor->n_dims, tensor->shape, &region,
                                  buffer, &cause)) {
            worked = cause == NULL;
            if (!worked)
                g_propagate_error(error, g_steal_pointer(&cause));
            continue;
        }
        for (guint d = 0; d < tensor->n_dims; d++)
            if (!held || !(dims[d]->len == region.dims[d]->n &&
                           memcmp(dims[d]->data, region.dims[d]->items,
                                  region.dims[d]->n * sizeof(RefitInterval)) == 0))
                collect(dims[d], region.dims[d]);
        held = TRUE;
    }
    json_t *shape = json_array(), *offset = json_array(), *intervals = json_array();
    gboolean several = FALSE;
    for (guint d = 0; d < tensor->n_dims; d++) {
        guint64 extent;
        json_t *list = intervals_to_json(dims[d], &extent);
        json_t *start = json_array_get(json_array_get(list, 0), 0);
        json_array_append_new(shape, json_integer((json_int_t)extent));
        json_array_append_new(offset, start != NULL ? json_incref(start)
                                                    : json_integer((json_int_t)tensor->shape[d]));
        several |= json_array_size(list) > 1;
        json_array_append_new(intervals, list);
        g_array_unref(dims[d]);
    }
    json_t *shard = json_pack("{s:o,s:o}", "shape", shape, "offset", offset);
    if (several)
        json_object_set(shard, "intervals", intervals);
    json_decref(intervals);
    if (!held || !worked)
        g_clear_pointer(&shard, json_decref);
    *json_out = shard;
    return worked;
}

/* A rank that several layouts name has a list of shards. */
static void add_shard(const Report *report, json_t *shards, guint gpu, json_t *shard) {
    g_autofree char *key = g_strdup_printf("%u", report->ranks->rank_of[gpu]);
    json_t *known = json_object_get(shards, key);

    if (known == NULL) {
        json_object_set_new(shards, key, shard);
    } else if (json_is_array(known)) {
        json_array_append_new(known, shard);
    } else {
        json_t *list = json_pack("[O,o]", known, shard);
        json_object_set_new(shards, key, list);
    }
}

static json_t *shards_to_json(const Report *report, const RefitSharding *sharding,
                              const GArray *layouts, const RefitTensor *tensor, GError **error) {
    json_t *shards = json_object();

    for (guint i = 0; i < layouts->len; i++) {
        ReportLayout layout = g_array_index(layouts, ReportLayout, i);
        g_autoptr(GArray) ranks = report_layout_ranks(sharding, layout);
        for (guint k = 0; k < ranks->len; k++) {
            guint gpu = g_array_index(ranks, guint, k);
            json_t *shard = NULL;
            if (!shard_to_json(sharding, layout, gpu, tensor, &shard, error)) {
                json_decref(shards);
                return NULL;
            }
            if (shard != NULL)
                add_shard(report, shards, gpu, shard);
        }
    }
    return shards;
}

/* Shards of every tensor of the file on one side. */
static gboolean add_shards(const Report *report, json_t *answers, RefitSide side, GError **error) {
    const json_t *tensors = json_object_get(report->root, "tensors");
    json_t *all = json_object();

    json_object_set_new(answers, side == REFIT_SIDE_SOURCE ? "src_local" : "dst_local", all);
    for (guint i = 0; i < report->n_tensors; i++) {
        const json_t *json = json_array_get(tensors, i);
        const RefitTensor *tensor = refit_model_tensor(report->refit_case->model, report->first[i]);
        g_autoptr(GArray) layouts = g_array_new(FALSE, FALSE, sizeof(ReportLayout));
        g_autoptr(RefitSharding) stated = NULL;
        g_autoptr(GError) cause = NULL;
        const RefitSharding *sharding =
            report_placed(report, i, json, side, layouts, &stated, &cause);
        if (cause != NULL) {
            g_propagate_error(error, g_steal_pointer(&cause));
            return FALSE;
        }
        if (sharding == NULL)
            continue;
        json_t *shards = shards_to_json(report, sharding, layouts, tensor, error);
        if (shards == NULL)
            return FALSE;
        if (json_object_size(shards) > 0)
            json_object_set(all, json_string_value(json_object_get(json, "name")), shards);
        json_decref(shards);
    }
    return TRUE;
}

/* ---- fused buffers ---- */

/* Intervals of dim `dim` of one shard; a shard with one interval per dim states none. */
static json_t *shard_rows(const json_t *shard, gsize dim) {
    json_t *intervals = json_array_get(json_object_get(shard, "intervals"), dim);
    json_int_t start = json_integer_value(json_array_get(json_object_get(shard, "offset"), dim));
    json_int_t n = json_integer_value(json_array_get(json_object_get(shard, "shape"), dim));

    if (intervals != NULL)
        return json_incref(intervals);
    return n > 0 ? json_pack("[[I,I]]", start, start + n) : json_array();
}

static void append_rows(json_t *rows, const char *rank, const char *name, const json_t *intervals) {
    json_t *list = json_object_get(rows, rank);

    if (list == NULL) {
        list = json_array();
        json_object_set_new(rows, rank, list);
    }
    for (gsize i = 0; i < json_array_size(intervals); i++) {
        const json_t *pair = json_array_get(intervals, i);
        json_array_append_new(
            list, json_pack("[s,O,O]", name, json_array_get(pair, 0), json_array_get(pair, 1)));
    }
}

/* Per destination rank its rows of each part, one part after the other. */
static gboolean add_dst_fused(const Report *report, json_t *answers, GError **error) {
    static const char *const keys[] = {"name", "dim", "parts", NULL};
    const json_t *fused = json_object_get(report->root, "dst_fused");
    const json_t *parts = json_object_get(fused, "parts");
    guint64 dim;

    if (fused == NULL)
        return TRUE;
    if (!report_check_keys(fused, "dst_fused", keys, error) ||
        !report_get_uint(json_object_get(fused, "dim"), "dst_fused.dim", REFIT_MAX_DIMS, &dim,
                         error) ||
        !report_expect_list(parts, "dst_fused.parts", error))
        return FALSE;
    json_t *rows = json_object();
    json_object_set_new(answers, "dst_fused_rows", rows);
    for (gsize i = 0; i < json_array_size(parts); i++) {
        const char *name, *rank;
        json_t *shard;
        if (!report_get_string(json_array_get(parts, i), "dst_fused.parts", &name, error))
            return FALSE;
        json_t *shards = json_object_get(json_object_get(answers, "dst_local"), name);
        if (shards == NULL)
            return report_fail(error, "dst_fused.parts: no destination holds \"%s\"", name);
        json_object_foreach(shards, rank, shard) {
            gsize n = json_is_array(shard) ? json_array_size(shard) : 1;
            for (gsize k = 0; k < n; k++) {
                const json_t *part = json_is_array(shard) ? json_array_get(shard, k) : shard;
                if (dim >= json_array_size(json_object_get(part, "shape")))
                    return report_fail(error, "dst_fused.dim is not a dim of \"%s\"", name);
                json_t *own = shard_rows(part, (gsize)dim);
                append_rows(rows, rank, name, own);
                json_decref(own);
            }
        }
    }
    return TRUE;
}

/* Rows of a fused buffer that a shard of it covers, in the order of the buffer's list. */
static void buffer_rows(const GArray *rows, const RefitIntervalList *held, json_t *list) {
    guint64 place = 0;

    for (guint i = 0; i < rows->len; i++) {
        const ReportRows *row = &g_array_index(rows, ReportRows, i);
        guint64 end = place + (row->hi - row->lo);
        g_autoptr(RefitIntervalList) span = refit_interval_list_range(place, end);
        g_autoptr(RefitIntervalList) mine = refit_interval_list_intersect(held, span);
        for (guint k = 0; k < mine->n; k++)
            json_array_append_new(list,
                                  json_pack("[s,I,I]", row->name,
                                            (json_int_t)(row->lo + mine->items[k].lo - place),
                                            (json_int_t)(row->lo + mine->items[k].hi - place)));
        place = end;
    }
}

static gboolean add_fused(const Report *report, json_t *answers, GError **error) {
    const json_t *stated = json_object_get(report->root, "fused");
    const char *name;
    json_t *json, *all;

    if (stated == NULL)
        return TRUE;
    if (!report_expect_object(stated, "fused", error))
        return FALSE;
    all = json_object();
    json_object_set_new(answers, "fused_rows", all);
    json_object_foreach((json_t *)stated, name, json) {
        g_auto(ReportFused) fused = {0};
        guint64 buffer[REFIT_MAX_DIMS];
        json_t *rows = json_object();
        json_object_set_new(all, name, rows);
        if (!report_fused_read(report->ranks, json, &fused, error))
            return FALSE;
        const RefitMesh *mesh = refit_sharding_mesh(fused.whole, 0);
        for (guint i = 0; i < mesh->n_ranks; i++) {
            g_auto(RefitRegion) region = {0};
            json_t *list = json_array();
            set_rank(report, rows, mesh->ranks[i], list);
            if (!refit_sharding_local(fused.whole, 0, mesh->ranks[i], fused.n_dims, fused.shape,
                                      &region, buffer, error))
                return FALSE;
            buffer_rows(fused.rows, region.dims[fused.dim], list);
        }
    }
    return TRUE;
}

json_t *report_answers(const Report *report, gboolean with_segments, GError **error) {
    json_t *answers = json_object();
    guint64 segments;

    add_demand(report, answers);
    if (add_idle(report, answers, error) && add_shards(report, answers, REFIT_SIDE_SOURCE, error) &&
        add_shards(report, answers, REFIT_SIDE_DESTINATION, error) &&
        add_dst_fused(report, answers, error) && add_fused(report, answers, error) &&
        (!with_segments || report_segments(report, &segments, error))) {
        if (with_segments)
            report_set_uint(answers, "segments", segments);
        return answers;
    }
    json_decref(answers);
    return NULL;
}
