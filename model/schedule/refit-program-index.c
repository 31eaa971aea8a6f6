/*
 * What the programs of all ranks share: dense views of regions and sections, and which pieces a
 * message has, in which order. Cost: regions; per message its pieces.
 */

#include "model/schedule/refit-program-private.h"

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

    index->packed = g_new(RefitView, MAX(plan->n_regions, 1));
    index->volumes = g_new(guint64, MAX(plan->n_regions, 1));
    for (guint r = 0; r < plan->n_regions; r++) {
        pack_view(&index->packed[r], &plan->regions[r]);
        index->volumes[r] = refit_region_volume(&plan->regions[r]);
    }
    index->whole = g_new(RefitView, MAX(plan->n_sections, 1));
    for (guint i = 0; i < plan->n_sections; i++)
        pack_view(&index->whole[i], &plan->sections[i].region);
}

RefitProgramIndex *refit_program_index_new(const RefitPlan *plan) {
    RefitProgramIndex *index = g_new0(RefitProgramIndex, 1);

    index->plan = plan;
    pack_views(index);
    return index;
}

void refit_program_index_free(RefitProgramIndex *index) {
    if (index == NULL)
        return;
    for (guint r = 0; r < index->plan->n_regions; r++)
        refit_region_clear(&index->packed[r].region);
    for (guint i = 0; i < index->plan->n_sections; i++)
        refit_region_clear(&index->whole[i].region);
    g_free(index->packed);
    g_free(index->whole);
    g_free(index->volumes);
    g_free(index);
}

/* ---- pieces ---- */

static void list_transfer(const RefitProgramIndex *index, const RefitMessage *message,
                          guint transfer, GArray *seeds) {
    const RefitPlan *plan = index->plan;
    guint c = plan->transfers[transfer].class_index;
    const RefitClass *klass = &plan->problem->classes[c];
    guint section = refit_plan_section_of(plan, &plan->transfers[transfer]);
    const RefitBatchRun *run = refit_plan_batch_run(plan, section, message->batch);
    const guint *order = plan->member_order + plan->member_offsets[section];
    RefitPieceSeed seed = {
        .transfer = transfer,
        .section = section,
        .dtype = klass->dtype,
        .message = message,
        .bytes = refit_class_bytes(klass, index->volumes[plan->transfers[transfer].region])};

    for (guint i = 0; run != NULL && i < run->count; i++) {
        guint member = order[run->first + i];

        seed.tensor = klass->members[member];
        seed.place = plan->member_offsets[section] + member;
        g_array_append_val(seeds, seed);
    }
}

void refit_program_list_pieces(const RefitSchedule *schedule, const guint *messages, guint n,
                               GArray *seeds) {
    const RefitProgramIndex *index = refit_schedule_index(schedule);
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
