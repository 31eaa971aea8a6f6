/*
 * Buckets of the conventional path: tensors in the model's order, cut where a bucket is full. A
 * batch stands for one bucket or, in large models, for several. Cost: linear in tensors.
 */

#include "model/strategy/refit-strategy-private.h"

/* Merging buckets keeps the number of messages in hand; each still costs its own fixed time. */
#define MAX_BATCHES 32

#define NO_CLASS G_MAXUINT

guint64 refit_buckets_assign(RefitPlanBuilder *builder, const RefitProblem *problem,
                             RefitSelection selection, gboolean barrier) {
    const RefitProfile *profile = problem->refit_case->profile;
    guint n_tensors = refit_model_n_tensors(problem->refit_case->model);
    double share =
        profile->bucket_memory_percent.value / 100.0 * problem->refit_case->topology->memory.value;
    double limit = profile->bucket_bytes.value;
    guint64 total = refit_selection_bytes(selection, problem);
    guint64 bucket_bytes = (guint64)MAX(1.0, share > 0 ? MIN(share, limit) : limit);
    guint64 n_full = total / bucket_bytes + (total % bucket_bytes != 0);
    guint n_buckets = (guint)MIN(n_full, G_MAXUINT / 2);
    guint n_batches = CLAMP(n_buckets, 1, MAX_BATCHES);
    guint first = 0;
    guint64 done = 0, largest = 0;
    g_autofree guint *class_of = g_new(guint, n_tensors);
    g_autofree guint *member_of = g_new(guint, n_tensors);
    g_autofree guint64 *filled = g_new0(guint64, n_batches);

    for (guint t = 0; t < n_tensors; t++)
        class_of[t] = NO_CLASS;
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint m = 0; refit_selection_has(selection, klass) && m < klass->n_members; m++) {
            class_of[klass->members[m]] = c;
            member_of[klass->members[m]] = m;
        }
    }
    for (guint b = 0; b < n_batches; b++) {
        guint buckets =
            (guint)((guint64)(b + 1) * n_buckets / n_batches - (guint64)b * n_buckets / n_batches);
        guint batch = refit_plan_builder_add_batch(builder, 0, buckets, barrier && b == 0);

        if (b == 0)
            first = batch;
    }
    for (guint t = 0; t < n_tensors; t++) {
        guint b;
        guint64 bytes;

        if (class_of[t] == NO_CLASS)
            continue;
        b = (guint)(done / (total / n_batches + 1));
        bytes = problem->classes[class_of[t]].bytes;
        refit_plan_builder_assign(builder, class_of[t], member_of[t], first + b);
        done += bytes;
        filled[b] += bytes;
    }
    for (guint b = 0; b < n_batches; b++)
        largest = MAX(largest, filled[b]);
    return largest;
}
