/*
 * Buckets of the conventional path: layer after layer, cut where a bucket is full. Inside a layer
 * the first tensors of all classes come before the second ones: exporters gather the i-th expert of
 * all expert-parallel ranks together, so that all of them send. A batch stands for one bucket or,
 * in large models, for several. A tensor that leaves no room for what is on its way, even when it
 * lands alone, is split in sections of whole rows that fit beside another batch, as few as will do
 * and as even as rows are, which fill buckets one after the other. Then tensors that would fit only
 * alone are split too, or all batches had to wait for each other because of them. Cost: sections x
 * log.
 */

#include "model/strategy/refit-strategy-private.h"

/* Merging buckets keeps the number of messages in hand; each still costs its own fixed time.
 * Landings of two batches must fit staging memory, though, whatever their number. */
#define FEW_BATCHES 32

/* Sections of one tensor at most: with a budget too small for that, the schedule says so. */
#define MAX_SECTIONS 256

#define NO_CLASS G_MAXUINT

typedef struct {
    guint tensor;
    guint layer; /* place of the first tensor of its layer in the model */
    guint turn;  /* its number among those of its class and layer */
    guint section;
} Placed;

static int compare_placed(gconstpointer left, gconstpointer right) {
    const Placed *a = left, *b = right;

    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    if (a->tensor != b->tensor)
        return a->tensor < b->tensor ? -1 : 1;
    return (a->section > b->section) - (a->section < b->section);
}

/* ---- sections ---- */

/* The dims before `dim` at single indices, `outside` together, and for each `shares` of `dim`. */
typedef struct {
    guint dim;
    guint64 granule; /* rows of `dim` that belong together */
    guint64 outside, shares;
} Cut;

/* The outermost dim of which a row, or the rows that belong together, have no more than `limit`
 * bytes. FALSE when there is none, or it takes too many sections. */
static gboolean find_cut(const RefitClass *klass, const RefitTensor *tensor, guint64 limit,
                         Cut *cut_out) {
    guint64 row = klass->elements, outside = 1;

    for (guint dim = 0; dim < klass->n_dims; dim++) {
        guint64 extent = klass->shape[dim], granule = MAX(tensor->granule[dim], 1), in_limit;

        row /= extent;
        in_limit = limit / refit_class_bytes(klass, row * MIN(granule, extent));
        if (in_limit > 0) {
            guint64 shares = ((extent - 1) / granule) / in_limit + 1;

            *cut_out = (Cut){dim, granule, outside, shares};
            return shares <= MAX_SECTIONS / outside;
        }
        if (granule > 1 || extent > MAX_SECTIONS / outside)
            return FALSE;
        outside *= extent;
    }
    return FALSE;
}

/* Sections are in row-major order, and the shares of a row as even as its blocks are. */
static RefitRegion section_at(const RefitClass *klass, const Cut *cut, guint number) {
    RefitRegion region = refit_region_full(klass->n_dims, klass->shape);
    guint64 blocks = (klass->shape[cut->dim] - 1) / cut->granule + 1;
    guint64 share = number % cut->shares, index = number / cut->shares;
    guint64 lo = blocks * share / cut->shares * cut->granule;
    guint64 hi = blocks * (share + 1) / cut->shares * cut->granule;

    for (guint d = cut->dim + 1; d-- > 0;) {
        if (d < cut->dim) {
            lo = index % klass->shape[d];
            hi = lo + 1;
            index /= klass->shape[d];
        }
        refit_interval_list_unref(region.dims[d]);
        region.dims[d] = refit_interval_list_range(lo, MIN(hi, klass->shape[d]));
    }
    return region;
}

/* Splits a class of which a member has more than `limit` bytes, unless a cut falls inside a byte.
 */
static void split(RefitPlanBuilder *builder, const RefitProblem *problem, guint class_index,
                  guint64 limit) {
    const RefitClass *klass = &problem->classes[class_index];
    gboolean whole_bytes = TRUE;
    Cut cut;

    if (!find_cut(klass, refit_model_tensor(problem->refit_case->model, klass->members[0]), limit,
                  &cut))
        return;
    guint n = (guint)(cut.outside * cut.shares);
    g_autofree RefitRegion *regions = g_new(RefitRegion, n);

    for (guint i = 0; i < n; i++) {
        regions[i] = section_at(klass, &cut, i);
        whole_bytes = whole_bytes && !refit_class_cuts_byte(klass, &regions[i]);
    }
    if (whole_bytes)
        refit_plan_builder_split(builder, class_index, regions, n);
    for (guint i = 0; i < n; i++)
        refit_region_clear(&regions[i]);
}

/* ---- buckets ---- */

/* Sections that have a class, in the order in which they fill buckets. */
static GArray *order_sections(const RefitPlanBuilder *builder, const RefitProblem *problem,
                              const guint *class_of) {
    const RefitModel *model = problem->refit_case->model;
    guint n_tensors = refit_model_n_tensors(model), first = 0, n_sections;
    g_autofree guint *turns = g_new0(guint, MAX(problem->n_classes, 1));
    g_autofree guint *layer_of = g_new0(guint, MAX(problem->n_classes, 1)); /* 1 + first tensor */
    GArray *placed = g_array_new(FALSE, FALSE, sizeof(Placed));

    for (guint t = 0; t < n_tensors; t++) {
        Placed item = {.tensor = t};
        guint c = class_of[t];

        if (t > 0 && refit_model_tensor(model, t)->layer != refit_model_tensor(model, t - 1)->layer)
            first = t;
        if (c == NO_CLASS)
            continue;
        if (layer_of[c] != first + 1)
            turns[c] = 0;
        layer_of[c] = first + 1;
        item.layer = first;
        item.turn = turns[c]++;
        refit_plan_builder_sections(builder, c, &n_sections);
        for (; item.section < n_sections; item.section++)
            g_array_append_val(placed, item);
    }
    g_array_sort(placed, compare_placed);
    return placed;
}

/* Puts the next section into the last batch, or into a new one when that is full. Returns which. */
static guint fill(GArray *filled, guint64 bytes, guint64 target, guint64 limit) {
    guint64 *last = filled->len > 0 ? &g_array_index(filled, guint64, filled->len - 1) : NULL;

    if (last == NULL || *last >= target || bytes > limit - MIN(limit, *last)) {
        g_array_set_size(filled, filled->len + 1);
        last = &g_array_index(filled, guint64, filled->len - 1);
    }
    *last += bytes;
    return filled->len - 1;
}

static guint64 section_bytes(const RefitPlanBuilder *builder, const RefitProblem *problem,
                             guint class_index, guint section) {
    const RefitClass *klass = &problem->classes[class_index];
    guint n;
    const RefitRegion *regions = refit_plan_builder_sections(builder, class_index, &n);

    return regions == NULL ? klass->bytes
                           : refit_class_bytes(klass, refit_region_volume(&regions[section]));
}

/* So many of `n` as the first `bytes` of all have. */
static guint share_of(guint n, guint64 bytes, guint64 all) {
    return all > 0 ? (guint)((double)n * ((double)bytes / (double)all)) : n;
}

guint64 refit_buckets_assign(RefitPlanBuilder *builder, const RefitProblem *problem,
                             RefitSelection selection, gboolean barrier) {
    const RefitProfile *profile = problem->refit_case->profile;
    guint n_tensors = refit_model_n_tensors(problem->refit_case->model);
    double share =
        profile->bucket_memory_percent.value / 100.0 * problem->refit_case->topology->memory.value;
    double limit = profile->bucket_bytes.value;
    guint64 limit_bytes = refit_batch_limit(problem->refit_case);
    guint64 total = refit_selection_bytes(selection, problem);
    guint64 bucket_bytes = (guint64)MAX(1.0, share > 0 ? MIN(share, limit) : limit);
    guint64 n_full = total / bucket_bytes + (total % bucket_bytes != 0);
    guint n_buckets = (guint)MIN(n_full, G_MAXUINT / 2);
    guint64 target = total / CLAMP(n_buckets, 1, FEW_BATCHES) + 1;
    g_autofree guint *class_of = g_new(guint, n_tensors);
    g_autofree guint *member_of = g_new(guint, n_tensors);
    g_autoptr(GArray) filled = g_array_new(FALSE, TRUE, sizeof(guint64));
    guint64 before = 0, largest = 0, largest_tensor = 0;
    guint first = G_MAXUINT;

    for (guint t = 0; t < n_tensors; t++)
        class_of[t] = NO_CLASS;
    for (guint c = 0; c < problem->n_classes; c++)
        if (refit_selection_has(selection, &problem->classes[c]))
            largest_tensor = MAX(largest_tensor, problem->classes[c].bytes);
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        if (largest_tensor / 2 > limit_bytes && refit_selection_has(selection, klass) &&
            klass->bytes > limit_bytes)
            split(builder, problem, c, limit_bytes);
        for (guint m = 0; refit_selection_has(selection, klass) && m < klass->n_members; m++) {
            class_of[klass->members[m]] = c;
            member_of[klass->members[m]] = m;
        }
    }
    g_autoptr(GArray) placed = order_sections(builder, problem, class_of);
    for (guint i = 0; i < placed->len; i++) {
        const Placed *item = &g_array_index(placed, Placed, i);

        fill(filled, section_bytes(builder, problem, class_of[item->tensor], item->section), target,
             limit_bytes);
    }
    for (guint b = 0; b < filled->len; b++) {
        guint64 bytes = g_array_index(filled, guint64, b);
        guint buckets =
            share_of(n_buckets, before + bytes, total) - share_of(n_buckets, before, total);
        guint batch = refit_plan_builder_add_batch(builder, 0, buckets, barrier && b == 0);

        first = MIN(first, batch);
        before += bytes;
        largest = MAX(largest, bytes);
    }
    g_array_set_size(filled, 0);
    for (guint i = 0; i < placed->len; i++) {
        const Placed *item = &g_array_index(placed, Placed, i);
        guint c = class_of[item->tensor];
        guint64 bytes = section_bytes(builder, problem, c, item->section);

        refit_plan_builder_assign_section(builder, c, item->section, member_of[item->tensor],
                                          first + fill(filled, bytes, target, limit_bytes));
    }
    return largest;
}
