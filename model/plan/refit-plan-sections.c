/*
 * Sections: which runs of a tensor's bytes are put into batches by themselves, and into which.
 *
 * A class that is not split has one section, the whole tensor, so that its sections cost a record
 * and nothing to look up. The sections of a split class are boxes that follow each other in the
 * row-major order of the tensor; the first index of a transfer's region tells in which it lies, by
 * bisection, so transfers need not say it. Cost: members times sections; a look-up costs the log of
 * a class's sections.
 */

#include "model/plan/refit-plan-private.h"

/* ---- building ---- */

static void forget_batches(RefitPlanMembers *members, guint n_members) {
    gsize n = (gsize)members->n_sections * n_members;

    members->batches = g_renew(guint, members->batches, MAX(n, 1));
    for (gsize i = 0; i < n; i++)
        members->batches[i] = G_MAXUINT;
}

void refit_plan_members_init(RefitPlanBuilder *builder) {
    const RefitProblem *problem = builder->problem;

    builder->members = g_new0(RefitPlanMembers, MAX(problem->n_classes, 1));
    for (guint c = 0; c < problem->n_classes; c++) {
        builder->members[c].n_sections = 1;
        forget_batches(&builder->members[c], problem->classes[c].n_members);
    }
}

void refit_plan_members_free(RefitPlanBuilder *builder) {
    for (guint c = 0; c < builder->problem->n_classes; c++) {
        RefitPlanMembers *members = &builder->members[c];

        for (guint s = 0; members->regions != NULL && s < members->n_sections; s++)
            refit_region_clear(&members->regions[s]);
        g_free(members->regions);
        g_free(members->batches);
    }
    g_free(builder->members);
}

void refit_plan_builder_split(RefitPlanBuilder *builder, guint class_index,
                              const RefitRegion *regions, guint n) {
    g_assert(class_index < builder->problem->n_classes && n > 0);
    RefitPlanMembers *members = &builder->members[class_index];
    guint n_members = builder->problem->classes[class_index].n_members;

    g_assert(members->regions == NULL); /* a class is split once, */
    for (guint m = 0; m < n_members; m++)
        g_assert(members->batches[m] == G_MAXUINT); /* before it has batches */
    members->n_sections = n;
    members->regions = g_new(RefitRegion, n);
    for (guint s = 0; s < n; s++)
        members->regions[s] = refit_region_copy(&regions[s]);
    forget_batches(members, n_members);
}

const RefitRegion *refit_plan_builder_sections(const RefitPlanBuilder *builder, guint class_index,
                                               guint *n_out) {
    g_assert(class_index < builder->problem->n_classes);
    *n_out = builder->members[class_index].n_sections;
    return builder->members[class_index].regions;
}

void refit_plan_builder_assign_section(RefitPlanBuilder *builder, guint class_index, guint section,
                                       guint member, guint batch) {
    g_assert(class_index < builder->problem->n_classes);
    RefitPlanMembers *members = &builder->members[class_index];
    guint n_members = builder->problem->classes[class_index].n_members;

    g_assert(section < members->n_sections && member < n_members);
    g_assert(batch < builder->batches->len);
    guint *place = &members->batches[(gsize)section * n_members + member];
    g_assert(*place == G_MAXUINT); /* every section of a member is put once */
    *place = batch;
}

void refit_plan_builder_assign(RefitPlanBuilder *builder, guint class_index, guint member,
                               guint batch) {
    g_assert(class_index < builder->problem->n_classes);
    g_assert(builder->members[class_index].n_sections == 1);
    refit_plan_builder_assign_section(builder, class_index, 0, member, batch);
}

/* ---- placing ---- */

/* Appends the runs of a section's members; `order`: room for them. */
static void place_section(const RefitPlan *plan, const guint *batches, guint n, guint *order,
                          guint *scratch, GArray *runs) {
    for (guint member = 0; member < n; member++) {
        g_assert(batches[member] != G_MAXUINT); /* every section of a member is in a batch */
        order[member] = member;
    }
    refit_counting_sort(batches, plan->n_batches, order, scratch, n);
    for (guint first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && batches[order[end]] == batches[order[first]];)
            end++;
        RefitBatchRun run = {batches[order[first]], first, end - first};
        g_array_append_val(runs, run);
    }
}

void refit_plan_place_members(RefitPlan *plan, const RefitPlanBuilder *builder) {
    const RefitProblem *problem = builder->problem;
    guint n_sections = 0, n_places = 0, most = 1;

    for (guint c = 0; c < problem->n_classes; c++) {
        n_sections += builder->members[c].n_sections;
        n_places += builder->members[c].n_sections * problem->classes[c].n_members;
        most = MAX(most, problem->classes[c].n_members);
    }
    RefitSection *sections = g_new(RefitSection, MAX(n_sections, 1));
    guint *section_offsets = g_new(guint, (gsize)problem->n_classes + 1);
    guint *member_offsets = g_new(guint, (gsize)n_sections + 1);
    guint *run_offsets = g_new(guint, (gsize)n_sections + 1);
    guint *order = g_new(guint, MAX(n_places, 1));
    GArray *runs = g_array_new(FALSE, FALSE, sizeof(RefitBatchRun));
    g_autofree guint *scratch = g_new(guint, most);
    guint next = 0;

    member_offsets[0] = run_offsets[0] = 0;
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitPlanMembers *members = &builder->members[c];
        const RefitClass *klass = &problem->classes[c];

        section_offsets[c] = next;
        for (guint s = 0; s < members->n_sections; s++, next++) {
            RefitSection *section = &sections[next];

            section->class_index = c;
            section->region = members->regions != NULL
                                  ? refit_region_copy(&members->regions[s])
                                  : refit_region_full(klass->n_dims, klass->shape);
            section->bytes = refit_class_bytes(klass, refit_region_volume(&section->region));
            place_section(plan, members->batches + (gsize)s * klass->n_members, klass->n_members,
                          order + member_offsets[next], scratch, runs);
            member_offsets[next + 1] = member_offsets[next] + klass->n_members;
            run_offsets[next + 1] = runs->len;
        }
    }
    section_offsets[problem->n_classes] = next;
    plan->n_sections = next;
    plan->sections = sections;
    plan->section_offsets = section_offsets;
    plan->run_offsets = run_offsets;
    plan->batch_runs = (RefitBatchRun *)(gpointer)g_array_free(runs, FALSE);
    plan->member_order = order;
    plan->member_offsets = member_offsets;
}

/* ---- looking up ---- */

/* The first index of `a` is before that of `b`, row-major. Neither is empty. */
static gboolean begins_before(const RefitRegion *a, const RefitRegion *b) {
    for (guint d = 0; d < a->n_dims; d++)
        if (a->dims[d]->items[0].lo != b->dims[d]->items[0].lo)
            return a->dims[d]->items[0].lo < b->dims[d]->items[0].lo;
    return FALSE;
}

guint refit_plan_section_of(const RefitPlan *plan, const RefitTransfer *transfer) {
    guint low = plan->section_offsets[transfer->class_index];
    guint high = plan->section_offsets[transfer->class_index + 1];

    while (high - low > 1) { /* it begins in one of [low, high) */
        guint middle = low + (high - low) / 2;

        if (begins_before(&plan->regions[transfer->region], &plan->sections[middle].region))
            high = middle;
        else
            low = middle;
    }
    return low;
}

const RefitBatchRun *refit_plan_batch_run(const RefitPlan *plan, guint section, guint batch) {
    guint low = plan->run_offsets[section], high = plan->run_offsets[section + 1];

    while (low < high) {
        guint middle = low + (high - low) / 2;
        const RefitBatchRun *run = &plan->batch_runs[middle];

        if (run->batch == batch)
            return run;
        if (run->batch < batch)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

guint refit_plan_batch_members(const RefitPlan *plan, guint section, guint batch) {
    const RefitBatchRun *run = refit_plan_batch_run(plan, section, batch);

    return run != NULL ? run->count : 0;
}

/* ---- proof ---- */

/*
 * Where the region begins in a dense tensor of the class, in elements; FALSE when it is empty, not
 * inside the tensor, or not one run: single indices, a range, and whole dims behind it are one.
 */
static gboolean find_run(const RefitClass *klass, const RefitRegion *region, guint64 *begin_out) {
    guint64 stride = klass->elements;
    gboolean whole = FALSE; /* all dims from here on must be */

    if (region->n_dims != klass->n_dims)
        return FALSE;
    *begin_out = 0;
    for (guint d = 0; d < region->n_dims; d++) {
        const RefitIntervalList *list = region->dims[d];

        if (list->n != 1 || list->items[0].hi > klass->shape[d] ||
            (whole && list->extent != klass->shape[d]))
            return FALSE;
        whole = whole || list->extent > 1;
        stride /= klass->shape[d];
        *begin_out += list->items[0].lo * stride;
    }
    return TRUE;
}

static gboolean check_class(const RefitPlan *plan, guint class_index) {
    const RefitClass *klass = &plan->problem->classes[class_index];
    guint first = plan->section_offsets[class_index];
    guint64 end = 0;

    if (klass->elements == 0)
        return plan->section_offsets[class_index + 1] - first == 1 &&
               plan->sections[first].class_index == class_index && plan->sections[first].bytes == 0;
    for (guint s = first; s < plan->section_offsets[class_index + 1]; s++) {
        const RefitSection *section = &plan->sections[s];
        guint64 begin, volume;

        if (section->class_index != class_index || !find_run(klass, &section->region, &begin) ||
            begin != end)
            return FALSE;
        volume = refit_region_volume(&section->region);
        if (section->bytes != refit_class_bytes(klass, volume) ||
            refit_class_cuts_byte(klass, &section->region))
            return FALSE;
        end += volume;
    }
    return end == klass->elements;
}

gboolean refit_plan_check_sections(const RefitPlan *plan, GError **error) {
    const RefitProblem *problem = plan->problem;
    guint next = 0;

    for (guint c = 0; c < problem->n_classes; c++) {
        guint end = plan->section_offsets[c + 1];

        if (plan->section_offsets[c] != next || end <= next || end > plan->n_sections ||
            !check_class(plan, c)) {
            g_set_error(
                error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "tensor %s: its sections do not follow each other from its first byte to its last",
                refit_model_tensor(problem->refit_case->model, problem->classes[c].members[0])
                    ->name);
            return FALSE;
        }
        next = end;
    }
    if (next == plan->n_sections)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE, "%u sections belong to no tensor",
                plan->n_sections - next);
    return FALSE;
}
