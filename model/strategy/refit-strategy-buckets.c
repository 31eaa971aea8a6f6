/*
 * Buckets of the conventional path: layer after layer, cut where a bucket is full. Inside a layer
 * the first tensors of all classes come before the second ones: exporters gather the i-th expert of
 * all expert-parallel ranks together, so that all of them send. A batch stands for one bucket or,
 * in large models, for several. Cost: tensors x log.
 */

#include "model/strategy/refit-strategy-private.h"

/* Merging buckets keeps the number of messages in hand; each still costs its own fixed time.
 * Landings of two batches must fit staging memory, though, whatever their number. */
#define FEW_BATCHES 32

#define NO_CLASS G_MAXUINT

typedef struct {
    guint tensor;
    guint layer; /* place of the first tensor of its layer in the model */
    guint turn;  /* its number among those of its class and layer */
} Placed;

static int compare_placed(gconstpointer left, gconstpointer right) {
    const Placed *a = left, *b = right;

    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* Tensors that have a class, in the order in which they fill buckets. */
static GArray *order_tensors(const RefitProblem *problem, const guint *class_of) {
    const RefitModel *model = problem->refit_case->model;
    guint n_tensors = refit_model_n_tensors(model), first = 0;
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
        g_array_append_val(placed, item);
    }
    g_array_sort(placed, compare_placed);
    return placed;
}

/* Puts the next tensor into the last batch, or into a new one when that is full. Returns which. */
static guint fill(GArray *filled, guint64 bytes, guint64 target, guint64 limit) {
    guint64 *last = filled->len > 0 ? &g_array_index(filled, guint64, filled->len - 1) : NULL;

    if (last == NULL || *last >= target || bytes > limit - MIN(limit, *last)) {
        g_array_set_size(filled, filled->len + 1);
        last = &g_array_index(filled, guint64, filled->len - 1);
    }
    *last += bytes;
    return filled->len - 1;
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
    guint64 before = 0, largest = 0;
    guint first = G_MAXUINT;

    for (guint t = 0; t < n_tensors; t++)
        class_of[t] = NO_CLASS;
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint m = 0; refit_selection_has(selection, klass) && m < klass->n_members; m++) {
            class_of[klass->members[m]] = c;
            member_of[klass->members[m]] = m;
        }
    }
    g_autoptr(GArray) placed = order_tensors(problem, class_of);
    for (guint i = 0; i < placed->len; i++) {
        guint t = g_array_index(placed, Placed, i).tensor;

        fill(filled, problem->classes[class_of[t]].bytes, target, limit_bytes);
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
        guint t = g_array_index(placed, Placed, i).tensor;

        refit_plan_builder_assign(
            builder, class_of[t], member_of[t],
            first + fill(filled, problem->classes[class_of[t]].bytes, target, limit_bytes));
    }
    return largest;
}
