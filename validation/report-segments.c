/*
 * Contiguous runs of a report: how many pieces a copy has that is contiguous in the sender's and in
 * the receiver's local buffer, both dense, without padding. Each element comes from its lowest
 * holder; what a rank holds already is not copied, and a row that a layout gives a rank twice is
 * received once. Runs end at the borders of tensors. Cost: a step per run.
 */

#include "model/layout/refit-view.h"
#include "validation/report.h"

/*
 * What one layout gives a rank, in a dense buffer of its own: places in the order of the shard's,
 * without gaps. Rows held again keep their places but are no part of the view.
 */
typedef struct {
    guint gpu;
    RefitView view;
} Shard;

static void clear_shard(gpointer data) {
    refit_region_clear(&((Shard *)data)->view.region);
}

static int compare_places(gconstpointer a, gconstpointer b) {
    const RefitInterval *left = a, *right = b;

    return left->at < right->at ? -1 : left->at > right->at;
}

/*
 * The intervals of `list` with the places that are left when the gaps between all intervals of
 * `all` are closed; *extent_out takes the length of that buffer. `all` is sorted by place.
 */
static RefitIntervalList *close_gaps(const RefitIntervalList *list, const GArray *all,
                                     guint64 *extent_out) {
    g_autofree RefitInterval *items = g_new(RefitInterval, MAX(list->n, 1));
    guint64 at = 0;

    for (guint k = 0; k < all->len; k++) {
        const RefitInterval *item = &g_array_index(all, RefitInterval, k);
        for (guint i = 0; i < list->n; i++)
            if (list->items[i].at == item->at)
                items[i] = (RefitInterval){item->lo, item->hi, at};
        at += item->hi - item->lo;
    }
    *extent_out = at;
    return refit_interval_list_new(items, list->n, NULL);
}

/* Regions of a rank by the parts of one layout, the first of which makes the view. */
static void add_shard(GArray *shards, guint gpu, const RefitRegion *regions, guint n) {
    guint n_dims = regions[0].n_dims;
    guint64 stride = 1;

    g_array_set_size(shards, shards->len + 1);
    Shard *shard = &g_array_index(shards, Shard, shards->len - 1);
    shard->gpu = gpu;
    shard->view.region.n_dims = n_dims;
    for (guint d = n_dims; d-- > 0;) {
        g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
        guint64 extent;
        for (guint i = 0; i < n; i++)
            if (i == 0 || !refit_interval_list_equal(regions[0].dims[d], regions[i].dims[d]))
                g_array_append_vals(all, regions[i].dims[d]->items, regions[i].dims[d]->n);
        g_array_sort(all, compare_places);
        shard->view.region.dims[d] = close_gaps(regions[0].dims[d], all, &extent);
        shard->view.stride[d] = stride;
        stride *= extent;
    }
}

static void clear_region(gpointer data) {
    refit_region_clear(data);
}

static gboolean add_layout(GArray *shards, const RefitSharding *sharding, ReportLayout layout,
                           const RefitTensor *tensor, GError **error) {
    g_autoptr(GArray) ranks = report_layout_ranks(sharding, layout);

    for (guint i = 0; i < ranks->len; i++) {
        guint gpu = g_array_index(ranks, guint, i);
        g_autoptr(GArray) regions = g_array_new(FALSE, TRUE, sizeof(RefitRegion));
        g_array_set_clear_func(regions, clear_region);
        for (guint part = layout.first; part < layout.first + layout.n; part++) {
            guint64 buffer[REFIT_MAX_DIMS];
            g_autoptr(GError) cause = NULL;
            RefitRegion region;
            if (refit_sharding_local(sharding, part, gpu, tensor->n_dims, tensor->shape, &region,
                                     buffer, &cause))
                g_array_append_val(regions, region);
            if (cause != NULL) {
                g_propagate_error(error, g_steal_pointer(&cause));
                return FALSE;
            }
        }
        if (regions->len > 0)
            add_shard(shards, gpu, (const RefitRegion *)(gconstpointer)regions->data, regions->len);
    }
    return TRUE;
}

/* Shards of one tensor of the file on one side, layout by layout; an array of Shard. */
static GArray *list_shards(const Report *report, guint index, RefitSide side, GError **error) {
    const json_t *json = json_array_get(json_object_get(report->root, "tensors"), index);
    const RefitTensor *tensor = refit_model_tensor(report->refit_case->model, report->first[index]);
    g_autoptr(GArray) layouts = g_array_new(FALSE, FALSE, sizeof(ReportLayout));
    g_autoptr(GArray) shards = g_array_new(FALSE, TRUE, sizeof(Shard));
    g_autoptr(RefitSharding) stated = NULL;
    const RefitSharding *sharding =
        report_placed(report, index, json, side, layouts, &stated, error);

    g_array_set_clear_func(shards, clear_shard);
    if (sharding == NULL)
        return NULL;
    for (guint i = 0; i < layouts->len; i++)
        if (!add_layout(shards, sharding, g_array_index(layouts, ReportLayout, i), tensor, error))
            return NULL;
    return g_steal_pointer(&shards);
}

static const RefitView *find_view(const GArray *shards, guint gpu, const RefitRegion *region) {
    for (guint i = 0; i < shards->len; i++) {
        const Shard *shard = &g_array_index(shards, Shard, i);
        if (shard->gpu == gpu && refit_region_contains(&shard->view.region, region))
            return &shard->view;
    }
    return NULL;
}

/* The holder with the lowest rank in the report's own numbers. */
static guint lowest_holder(const Report *report, const RefitCell *cell) {
    guint best = cell->holders[0];

    for (guint i = 1; i < cell->n_holders; i++)
        if (report->ranks->rank_of[cell->holders[i]] < report->ranks->rank_of[best])
            best = cell->holders[i];
    return best;
}

/* Runs of one receiver from one pair of views. */
typedef struct {
    const RefitView *from, *to;
    GArray *runs;
} Stream;

static void clear_stream(gpointer data) {
    g_array_unref(((Stream *)data)->runs);
}

static GArray *stream_runs(GArray *streams, const RefitView *from, const RefitView *to) {
    for (guint i = 0; i < streams->len; i++) {
        const Stream *stream = &g_array_index(streams, Stream, i);
        if (stream->from == from && stream->to == to)
            return stream->runs;
    }
    Stream stream = {from, to, g_array_new(FALSE, FALSE, sizeof(RefitRun))};
    g_array_append_val(streams, stream);
    return stream.runs;
}

static gboolean holds(const RefitCell *cell, guint gpu) {
    for (guint i = 0; i < cell->n_holders; i++)
        if (cell->holders[i] == gpu)
            return TRUE;
    return FALSE;
}

static gboolean is_needed(const RefitCell *cell, guint gpu) {
    for (guint i = 0; i < cell->n_needers; i++)
        if (cell->needers[i] == gpu)
            return TRUE;
    return FALSE;
}

static gboolean count_tensor(const Report *report, guint index, const RefitCells *cells,
                             guint64 *runs_out, GError **error) {
    g_autoptr(GArray) senders = list_shards(report, index, REFIT_SIDE_SOURCE, error);
    g_autoptr(GArray) receivers = NULL;
    g_autoptr(GArray) streams = g_array_new(FALSE, FALSE, sizeof(Stream));
    guint64 n = 0;

    g_array_set_clear_func(streams, clear_stream);
    if (senders == NULL)
        return FALSE;
    receivers = list_shards(report, index, REFIT_SIDE_DESTINATION, error);
    if (receivers == NULL)
        return FALSE;
    for (guint i = 0; i < cells->n_cells; i++) {
        const RefitCell *cell = &cells->cells[i];
        const RefitView *from = find_view(senders, lowest_holder(report, cell), &cell->region);
        for (guint k = 0; k < receivers->len; k++) {
            const Shard *shard = &g_array_index(receivers, Shard, k);
            if (holds(cell, shard->gpu) || !is_needed(cell, shard->gpu) ||
                !refit_region_contains(&shard->view.region, &cell->region))
                continue;
            if (from == NULL)
                return report_fail(error, "tensor %u of the file: a holder has no shard", index);
            refit_view_append_runs(from, &shard->view, &cell->region,
                                   stream_runs(streams, from, &shard->view));
        }
    }
    for (guint i = 0; i < streams->len; i++) {
        GArray *runs = g_array_index(streams, Stream, i).runs;
        refit_runs_join(runs);
        n += runs->len;
    }
    *runs_out = n;
    return TRUE;
}

gboolean report_segments(const Report *report, guint64 *segments_out, GError **error) {
    guint n = report->first[report->n_tensors];
    g_autofree const RefitCells **cells = g_new0(const RefitCells *, MAX(n, 1));
    guint64 total = 0, runs = 0;

    for (guint i = 0; i < report->problem->n_classes; i++) {
        const RefitClass *klass = &report->problem->classes[i];
        for (guint m = 0; m < klass->n_members; m++)
            cells[klass->members[m]] = klass->cells;
    }
    for (guint i = 0; i < report->n_tensors; i++) {
        guint first = report->first[i], repeat = report->first[i + 1] - first;
        if (repeat == 0 || cells[first] == NULL) /* needed by nobody */
            continue;
        if (!count_tensor(report, i, cells[first], &runs, error))
            return FALSE;
        total += runs * repeat;
    }
    *segments_out = total;
    return TRUE;
}
