/*
 * What the programs of all ranks share: who has a part in which message, what a pair waits for,
 * dense views of regions and tensors; and in which parts messages move (refit-program-parts.c).
 *
 * Messages are dealt to their two ranks by a counting sort, so that making one rank's program costs
 * its own part only. Dependencies of transfers become dependencies of pairs, each named once. Cost:
 * transfers, dependencies, messages.
 */

#include "model/schedule/refit-program-private.h"

guint refit_program_stream(const RefitPlan *plan, guint stage, guint batch, RefitLink link) {
    return (plan->stages[stage].track * plan->n_lanes + plan->batches[batch].lane) * REFIT_N_LINKS +
           link;
}

/* ---- messages ---- */

static void deal_messages(RefitProgramIndex *index) {
    const RefitPlan *plan = index->plan;
    guint n_ranks = plan->problem->n_ranks;
    guint *offsets = g_new0(guint, (gsize)n_ranks + 2);

    for (guint64 m = 0; m < plan->n_messages; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];

        offsets[pair->src + 2]++;
        if (pair->dst != pair->src)
            offsets[pair->dst + 2]++;
    }
    for (guint rank = 0; rank < n_ranks; rank++)
        offsets[rank + 2] += offsets[rank + 1];
    index->messages = g_new(guint, MAX(offsets[n_ranks + 1], 1));
    for (guint m = 0; m < plan->n_messages; m++) {
        const RefitPair *pair = &plan->pairs[plan->messages[m].pair];

        index->messages[offsets[pair->src + 1]++] = m;
        if (pair->dst != pair->src)
            index->messages[offsets[pair->dst + 1]++] = m;
    }
    index->message_offsets = offsets;
}

/* ---- views ---- */

/* A dense, row-major view of `region`. */
static void pack_view(RefitView *view, const RefitRegion *region) {
    guint64 stride = 1;

    *view = (RefitView){.region.n_dims = region->n_dims};
    for (guint d = region->n_dims; d-- > 0;) {
        view->region.dims[d] =
            refit_interval_list_slice(region->dims[d], 0, region->dims[d]->extent);
        view->stride[d] = stride;
        stride *= region->dims[d]->extent;
    }
}

static void pack_views(RefitProgramIndex *index) {
    const RefitPlan *plan = index->plan;
    const RefitProblem *problem = plan->problem;

    index->packed = g_new(RefitView, MAX(plan->n_regions, 1));
    index->volumes = g_new(guint64, MAX(plan->n_regions, 1));
    for (guint r = 0; r < plan->n_regions; r++) {
        pack_view(&index->packed[r], &plan->regions[r]);
        index->volumes[r] = refit_region_volume(&plan->regions[r]);
    }
    index->whole = g_new(RefitView, MAX(problem->n_classes, 1));
    for (guint c = 0; c < problem->n_classes; c++) {
        g_auto(RefitRegion) full =
            refit_region_full(problem->classes[c].n_dims, problem->classes[c].shape);

        pack_view(&index->whole[c], &full);
    }
}

RefitProgramIndex *refit_program_index_new(const RefitPlan *plan, GError **error) {
    g_autoptr(RefitProgramIndex) index = NULL;
    guint n_tracks = 1;

    if (plan->n_messages >= G_MAXUINT / 2) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                    "the plan has %" G_GUINT64_FORMAT " messages, but at most %u can be carried "
                    "out; use fewer batches",
                    plan->n_messages, G_MAXUINT / 2 - 1);
        return NULL;
    }
    index = g_new0(RefitProgramIndex, 1);
    index->plan = plan;
    for (guint stage = 0; stage < plan->n_stages; stage++)
        n_tracks = MAX(n_tracks, plan->stages[stage].track + 1);
    index->n_streams = n_tracks * plan->n_lanes * REFIT_N_LINKS;
    deal_messages(index);
    index->deps = refit_plan_deps_new(plan);
    pack_views(index);
    return refit_program_choose_parts(index, error) ? g_steal_pointer(&index) : NULL;
}

void refit_program_index_free(RefitProgramIndex *index) {
    if (index == NULL)
        return;
    for (guint r = 0; r < index->plan->n_regions; r++)
        refit_region_clear(&index->packed[r].region);
    for (guint c = 0; c < index->plan->problem->n_classes; c++)
        refit_region_clear(&index->whole[c].region);
    g_free(index->message_offsets);
    g_free(index->messages);
    refit_plan_deps_free(index->deps);
    g_free(index->slices);
    g_free(index->chunk_bytes);
    g_free(index->packed);
    g_free(index->whole);
    g_free(index->volumes);
    g_free(index);
}

/* ---- pieces ---- */

/* The part of a class in a batch, or NULL. */
static const RefitBatchRun *find_batch_run(const RefitPlan *plan, guint class_index, guint batch) {
    guint low = plan->run_offsets[class_index], high = plan->run_offsets[class_index + 1];

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (plan->batch_runs[middle].batch == batch)
            return &plan->batch_runs[middle];
        if (plan->batch_runs[middle].batch < batch)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void list_transfer(const RefitProgramIndex *index, const RefitMessage *message,
                          guint transfer, GArray *seeds) {
    const RefitPlan *plan = index->plan;
    guint c = plan->transfers[transfer].class_index;
    const RefitClass *klass = &plan->problem->classes[c];
    const RefitBatchRun *run = find_batch_run(plan, c, message->batch);
    const guint *order = plan->member_order + plan->member_offsets[c];
    RefitPieceSeed seed = {
        .transfer = transfer,
        .dtype = klass->dtype,
        .message = message,
        .bytes = refit_class_bytes(klass, index->volumes[plan->transfers[transfer].region])};

    for (guint i = 0; run != NULL && i < run->count; i++) {
        seed.tensor = klass->members[order[run->first + i]];
        g_array_append_val(seeds, seed);
    }
}

void refit_program_list_pieces(const RefitProgramIndex *index, const guint *messages, guint n,
                               GArray *seeds) {
    const RefitPlan *plan = index->plan;
    guint64 widths = 0, left; /* bit b: elements of 1 << b bits */

    g_array_set_size(seeds, 0);
    for (guint i = 0; i < n; i++) {
        const RefitPair *pair = &plan->pairs[plan->messages[messages[i]].pair];

        for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++)
            widths |= (guint64)refit_dtype_bits(
                plan->problem->classes[plan->transfers[t].class_index].dtype);
    }
    for (left = widths; left != 0;) {
        guint64 width = G_GUINT64_CONSTANT(1) << (g_bit_storage(left) - 1);

        left &= ~width;
        for (guint i = 0; i < n; i++) {
            const RefitMessage *message = &plan->messages[messages[i]];
            const RefitPair *pair = &plan->pairs[message->pair];

            for (guint t = pair->first_transfer; t < pair->first_transfer + pair->n_transfers; t++)
                if (refit_dtype_bits(
                        plan->problem->classes[plan->transfers[t].class_index].dtype) == width)
                    list_transfer(index, message, t, seeds);
        }
    }
}
