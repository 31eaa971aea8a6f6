/*
 * Where the bytes of a piece come from and go to.
 *
 * A sender has a region from the transfers it waited for, in the memory in which they landed, and
 * otherwise from the start; a region may be spread over several arrivals and parameters. What has
 * not been found yet is kept as disjoint regions, from which each place in turn takes its common
 * part: each element is read once. A receiver writes to every parameter that has a place for the
 * element. Nearly all pieces lie in one place, which costs a look-up and a comparison per dim.
 */

#include "model/plan/refit-plan-coverage.h"
#include "model/schedule/refit-program-private.h"

typedef struct {
    const RefitRegion *region;
    RefitPlace place;
} Part;

guint64 refit_program_bytes(RefitDtype dtype, guint64 elements) {
    guint bits = refit_dtype_bits(dtype);

    return bits >= 8 ? elements * (bits / 8) : elements / (8 / bits);
}

static guint *index_views(const RefitRankViews *views, guint n_tensors) {
    guint *first = g_new0(guint, MAX(n_tensors, 1));

    for (guint v = views != NULL ? views->n_views : 0; v-- > 0;)
        first[views->views[v].tensor] = v + 1;
    return first;
}

static void free_region(gpointer data) {
    refit_region_clear(data);
    g_free(data);
}

void refit_copier_init(RefitCopier *copier, const RefitSchedule *schedule, guint rank,
                       const RefitRankViews *source, const RefitRankViews *destination,
                       const RefitLandings *landings, guint n_pieces) {
    const RefitProgramIndex *index = refit_schedule_index(schedule);
    guint n = refit_model_n_tensors(index->plan->problem->refit_case->model);

    *copier = (RefitCopier){
        .index = index,
        .rank = rank,
        .views = {source, destination},
        .first_views = {index_views(source, n), index_views(destination, n)},
        .landings = landings,
        .copies = g_array_sized_new(FALSE, FALSE, sizeof(RefitCopy), n_pieces),
        .regions = g_ptr_array_new_with_free_func(free_region),
        .from = g_array_new(FALSE, FALSE, sizeof(Part)),
        .to = g_array_new(FALSE, FALSE, sizeof(Part)),
        .left = g_ptr_array_new(),
        .asked = g_new0(guint, MAX(index->plan->n_regions, 1)),
        .at_home = g_new0(gboolean, MAX(index->plan->n_regions, 1)),
    };
}

void refit_copier_clear(RefitCopier *copier) {
    g_free(copier->first_views[0]);
    g_free(copier->first_views[1]);
    g_free(copier->asked);
    g_free(copier->at_home);
    g_clear_pointer(&copier->copies, g_array_unref);
    g_clear_pointer(&copier->regions, g_ptr_array_unref);
    g_clear_pointer(&copier->from, g_array_unref);
    g_clear_pointer(&copier->to, g_array_unref);
    g_clear_pointer(&copier->left, g_ptr_array_unref);
}

/* First view of `tensor` on a side, NULL when it has none. */
static const RefitView *first_view(const RefitCopier *copier, RefitMemory side, guint tensor) {
    guint first = copier->first_views[side][tensor];

    return first > 0 ? &copier->views[side]->views[first - 1] : NULL;
}

static const RefitView *next_view(const RefitCopier *copier, RefitMemory side,
                                  const RefitView *view) {
    const RefitRankViews *views = copier->views[side];

    return view + 1 < views->views + views->n_views && view[1].tensor == view->tensor ? view + 1
                                                                                      : NULL;
}

/* ---- regions ---- */

/* Takes over the contents of `region`. */
static const RefitRegion *own_region(const RefitCopier *copier, const RefitRegion *region) {
    RefitRegion *owned = g_memdup2(region, sizeof *region);

    g_ptr_array_add(copier->regions, owned);
    return owned;
}

/* Common part of both, or NULL; one of the two where it lies in the other. */
static const RefitRegion *common_part(const RefitCopier *copier, const RefitRegion *a,
                                      const RefitRegion *b) {
    RefitRegion common;

    if (a == b || refit_region_contains(b, a))
        return a;
    if (refit_region_contains(a, b))
        return b;
    common = refit_region_intersect(a, b);
    if (refit_region_is_empty(&common)) {
        refit_region_clear(&common);
        return NULL;
    }
    return own_region(copier, &common);
}

/* Indices of `a` that are not in `b`. */
static RefitIntervalList *list_without(const RefitIntervalList *a, const RefitIntervalList *b) {
    g_autoptr(GArray) items = g_array_new(FALSE, FALSE, sizeof(RefitInterval));
    guint64 at = 0;
    guint next = 0;

    for (guint i = 0; i < a->n; i++) {
        guint64 lo = a->items[i].lo;

        while (lo < a->items[i].hi) {
            while (next < b->n && b->items[next].hi <= lo)
                next++;
            if (next < b->n && b->items[next].lo <= lo) {
                lo = b->items[next].hi;
                continue;
            }
            guint64 hi = next < b->n ? MIN(a->items[i].hi, b->items[next].lo) : a->items[i].hi;
            RefitInterval item = {lo, hi, at};

            g_array_append_val(items, item);
            at += hi - lo;
            lo = hi;
        }
    }
    RefitIntervalList *list =
        refit_interval_list_new((RefitInterval *)(gpointer)items->data, items->len, NULL);
    g_assert(list != NULL); /* parts of one list cannot overlap */
    return list;
}

/* Appends what is left of `region` without `common`, which lies inside it: a region per dim. */
static void split_off(const RefitCopier *copier, const RefitRegion *region,
                      const RefitRegion *common, GPtrArray *left) {
    for (guint d = 0; d < region->n_dims; d++) {
        RefitRegion rest = {.n_dims = region->n_dims};

        for (guint e = 0; e < region->n_dims; e++)
            rest.dims[e] = e == d
                               ? list_without(region->dims[e], common->dims[e])
                               : refit_interval_list_ref(e < d ? common->dims[e] : region->dims[e]);
        if (rest.dims[d]->extent > 0)
            g_ptr_array_add(left, (gpointer)own_region(copier, &rest));
        else
            refit_region_clear(&rest);
    }
}

/* ---- where a sender reads ---- */

/* Takes from what is left all that lies in `limit`, and has it read at `place`. */
static void read_from(const RefitCopier *copier, const RefitRegion *limit, RefitPlace place) {
    GPtrArray *left = copier->left;
    guint n = left->len, kept = 0;

    for (guint i = 0; i < n; i++) {
        const RefitRegion *region = g_ptr_array_index(left, i);
        Part part = {common_part(copier, region, limit), place};

        if (part.region == NULL) {
            g_ptr_array_index(left, kept++) = (gpointer)region;
            continue;
        }
        g_array_append_val(copier->from, part);
        if (part.region != region)
            split_off(copier, region, part.region, left);
    }
    g_ptr_array_remove_range(left, kept, n - kept);
}

/* Memory, other than parameters, in which a transfer landed. */
static RefitPlace landing_place(const RefitCopier *copier, guint transfer,
                                const RefitPieceSeed *seed) {
    const RefitPlan *plan = copier->index->plan;
    const RefitTransfer *landed = &plan->transfers[transfer];

    return (RefitPlace){REFIT_MEMORY_STAGING,
                        refit_landings_find(copier->landings, plan, transfer, seed),
                        refit_schedule_lands_in_block((RefitLanding)landed->landing)
                            ? &copier->index->packed[landed->region]
                            : &copier->index->whole[seed->section]};
}

static void read_arrival(const RefitCopier *copier, const RefitPieceSeed *seed, guint dep) {
    const RefitTransfer *landed = &copier->index->plan->transfers[dep];
    const RefitRegion *region = &copier->index->plan->regions[landed->region];

    if (landed->landing != REFIT_LANDING_HOME) {
        read_from(copier, region, landing_place(copier, dep, seed));
        return;
    }
    for (const RefitView *view = first_view(copier, REFIT_MEMORY_DESTINATION, seed->tensor);
         view != NULL; view = next_view(copier, REFIT_MEMORY_DESTINATION, view)) {
        const RefitRegion *limit = common_part(copier, region, &view->region);

        if (limit != NULL)
            read_from(copier, limit, (RefitPlace){REFIT_MEMORY_DESTINATION, 0, view});
    }
}

static gboolean same_deps(const RefitPlan *plan, const RefitTransfer *a, const RefitTransfer *b) {
    guint d = 0;

    while (a->n_deps == b->n_deps && d < a->n_deps &&
           plan->deps[a->first_dep + d] == plan->deps[b->first_dep + d])
        d++;
    return a->n_deps == b->n_deps && d == a->n_deps;
}

/*
 * All of the transfer's region has landed in parameters: what its dependencies brought home, which
 * is disjoint, adds up to it. Then it need not be read arrival by arrival. A region is mostly sent
 * to several ranks after the same arrivals, so the last answer is kept.
 */
static gboolean is_all_home(RefitCopier *copier, guint transfer) {
    const RefitPlan *plan = copier->index->plan;
    const RefitTransfer *self = &plan->transfers[transfer];
    guint *asked = &copier->asked[self->region];
    guint64 volume = 0;

    if (*asked == transfer + 1 ||
        (*asked > 0 && same_deps(plan, self, &plan->transfers[*asked - 1])))
        return copier->at_home[self->region];
    for (guint d = 0; d < self->n_deps; d++) {
        const RefitTransfer *dep = &plan->transfers[plan->deps[self->first_dep + d]];

        if (dep->landing == REFIT_LANDING_HOME)
            volume += dep->region == self->region
                          ? copier->index->volumes[self->region]
                          : refit_region_common(&plan->regions[dep->region],
                                                &plan->regions[self->region]);
    }
    *asked = transfer + 1;
    copier->at_home[self->region] = volume == copier->index->volumes[self->region];
    return copier->at_home[self->region];
}

/* One view that has all of `region`, or NULL. */
static const RefitView *containing_view(const RefitCopier *copier, RefitMemory side, guint tensor,
                                        const RefitRegion *region) {
    const RefitView *view = first_view(copier, side, tensor);

    while (view != NULL && !refit_region_contains(&view->region, region))
        view = next_view(copier, side, view);
    return view;
}

static gboolean find_from(RefitCopier *copier, const RefitPieceSeed *seed, GError **error) {
    const RefitPlan *plan = copier->index->plan;
    const RefitTransfer *transfer = &plan->transfers[seed->transfer];
    const RefitRegion *region = &plan->regions[transfer->region];
    RefitMemory side = REFIT_MEMORY_SOURCE;
    const RefitView *view = NULL;

    if (transfer->n_deps > 0 && is_all_home(copier, seed->transfer))
        side = REFIT_MEMORY_DESTINATION;
    if (transfer->n_deps == 0 || side == REFIT_MEMORY_DESTINATION)
        view = containing_view(copier, side, seed->tensor, region);
    if (view != NULL) {
        Part part = {region, {side, 0, view}};

        g_array_append_val(copier->from, part);
        return TRUE;
    }
    g_ptr_array_set_size(copier->left, 0);
    g_ptr_array_add(copier->left, (gpointer)region);
    for (guint d = 0; d < transfer->n_deps && copier->left->len > 0; d++)
        read_arrival(copier, seed, plan->deps[transfer->first_dep + d]);
    for (view = first_view(copier, REFIT_MEMORY_SOURCE, seed->tensor);
         view != NULL && copier->left->len > 0; view = next_view(copier, REFIT_MEMORY_SOURCE, view))
        read_from(copier, &view->region, (RefitPlace){REFIT_MEMORY_SOURCE, 0, view});
    if (copier->left->len == 0)
        return TRUE;
    g_autofree char *text = refit_region_to_string(g_ptr_array_index(copier->left, 0));
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "tensor %s: rank %u is to send region %s to rank %u in step %u, but has it neither "
                "in a parameter nor from an arrival",
                refit_model_tensor(plan->problem->refit_case->model, seed->tensor)->name,
                copier->rank, text, transfer->dst, seed->message->step);
    return FALSE;
}

/* ---- where a receiver writes ---- */

static gboolean has_room(const RefitCopier *copier, const RefitRegion *region) {
    g_autofree const RefitRegion **parts = g_new(const RefitRegion *, MAX(copier->to->len, 1));

    for (guint i = 0; i < copier->to->len; i++) {
        parts[i] = g_array_index(copier->to, Part, i).region;
        if (parts[i] == region)
            return TRUE;
    }
    return refit_union_volume(parts, copier->to->len) == refit_region_volume(region);
}

static gboolean find_to(const RefitCopier *copier, const RefitPieceSeed *seed, GError **error) {
    const RefitPlan *plan = copier->index->plan;
    const RefitTransfer *transfer = &plan->transfers[seed->transfer];
    const RefitRegion *region = &plan->regions[transfer->region];
    Part part = {.region = region};

    if (transfer->landing != REFIT_LANDING_HOME) {
        part.place = landing_place(copier, seed->transfer, seed);
        g_array_append_val(copier->to, part);
        return TRUE;
    }
    for (const RefitView *view = first_view(copier, REFIT_MEMORY_DESTINATION, seed->tensor);
         view != NULL; view = next_view(copier, REFIT_MEMORY_DESTINATION, view)) {
        part.region = common_part(copier, region, &view->region);
        part.place = (RefitPlace){REFIT_MEMORY_DESTINATION, 0, view};
        if (part.region != NULL)
            g_array_append_val(copier->to, part);
    }
    if (has_room(copier, region))
        return TRUE;
    g_autofree char *text = refit_region_to_string(region);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "tensor %s: rank %u receives region %s from rank %u in step %u, but has no "
                "parameter for all of it",
                refit_model_tensor(plan->problem->refit_case->model, seed->tensor)->name,
                copier->rank, text, transfer->src, seed->message->step);
    return FALSE;
}

/* ---- copies ---- */

/* Runs of elements smaller than a byte must be whole bytes on both sides. */
static gboolean check_bytes(const RefitCopier *copier, const RefitCopy *copy,
                            const RefitPieceSeed *seed, GError **error) {
    guint per_byte = 8 / MIN(refit_dtype_bits(seed->dtype), 8);
    g_autoptr(GArray) runs = NULL;

    if (per_byte == 1)
        return TRUE;
    runs = g_array_new(FALSE, FALSE, sizeof(RefitRun));
    refit_view_append_runs(copy->from.view, copy->to.view, copy->region, runs);
    for (guint i = 0; i < runs->len; i++) {
        const RefitRun *run = &g_array_index(runs, RefitRun, i);

        if (run->from % per_byte != 0 || run->to % per_byte != 0 || run->length % per_byte != 0) {
            g_set_error(
                error, REFIT_ERROR, REFIT_ERROR_SUBBYTE_SPLIT,
                "tensor %s: rank %u would have to move part of a byte in step %u",
                refit_model_tensor(copier->index->plan->problem->refit_case->model, seed->tensor)
                    ->name,
                copier->rank, seed->message->step);
            return FALSE;
        }
    }
    return TRUE;
}

gboolean refit_copier_add(RefitCopier *copier, const RefitPieceSeed *seed, gboolean reads,
                          gboolean writes, GError **error) {
    guint region = copier->index->plan->transfers[seed->transfer].region;
    const Part message = {&copier->index->plan->regions[region],
                          {REFIT_MEMORY_MESSAGE, 0, &copier->index->packed[region]}};

    g_array_set_size(copier->from, 0);
    g_array_set_size(copier->to, 0);
    if (!reads)
        g_array_append_val(copier->from, message);
    else if (!find_from(copier, seed, error))
        return FALSE;
    if (!writes)
        g_array_append_val(copier->to, message);
    else if (!find_to(copier, seed, error))
        return FALSE;
    for (guint i = 0; i < copier->from->len; i++)
        for (guint j = 0; j < copier->to->len; j++) {
            const Part *from = &g_array_index(copier->from, Part, i);
            const Part *to = &g_array_index(copier->to, Part, j);
            RefitCopy copy = {common_part(copier, from->region, to->region), from->place,
                              to->place};

            if (copy.region == NULL)
                continue;
            if (!check_bytes(copier, &copy, seed, error))
                return FALSE;
            g_array_append_val(copier->copies, copy);
        }
    return TRUE;
}

guint64 refit_copier_add_install(RefitCopier *copier, const RefitBucketTensor *bucket,
                                 const RefitView *view) {
    const RefitView *section = &copier->index->whole[bucket->section];
    RefitCopy copy = {common_part(copier, &view->region, &section->region),
                      {REFIT_MEMORY_STAGING,
                       refit_landings_find_bucket(copier->landings, bucket->place, bucket->batch),
                       section},
                      {REFIT_MEMORY_DESTINATION, 0, view}};

    if (copy.region == NULL || refit_region_is_empty(copy.region))
        return 0;
    g_array_append_val(copier->copies, copy);
    return refit_region_volume(copy.region);
}
