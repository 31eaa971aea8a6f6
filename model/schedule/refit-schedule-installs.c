/*
 * What each rank copies out of buckets.
 *
 * A rank installs all that its layout has it hold of each section that reaches it in a bucket,
 * copies counted. Per section that is a number of bytes and places, the same for each member; the
 * members of a batch give the sum. A tensor in several sections counts as one in each batch that
 * brings some of what the rank holds: it is loaded out of each of these buckets, with all that the
 * host does for that. Cost: ranks times sections in buckets, and their batches.
 */

#include "model/schedule/refit-schedule-private.h"

/* What a rank installs of one section, per member. */
typedef struct {
    guint section;
    RefitScheduleInstall amount;
} Installed;

struct _RefitScheduleInstalls {
    const RefitPlan *plan;
    guint *offsets;                /* per rank: slice of installed */
    GArray *installed;             /* Installed */
    RefitScheduleInstall *batches; /* per batch, of the rank last summed */
};

typedef struct {
    GArray *all, *ranks; /* Installed and guint: whose it is */
    guint8 *reached;     /* per rank: gets the section in buckets */
} Found;

static void add(Found *found, guint section, guint rank, guint64 bytes) {
    Installed item = {section, {bytes, 1}};

    if (bytes == 0 || found->reached[rank] == 0)
        return;
    g_array_append_val(found->all, item);
    g_array_append_val(found->ranks, rank);
}

/* Bytes of a region of the tensor that are in the section. */
static guint64 bytes_in(const RefitPlan *plan, guint s, const RefitRegion *region) {
    const RefitSection *section = &plan->sections[s];

    return refit_class_bytes(&plan->problem->classes[section->class_index],
                             refit_region_common(region, &section->region));
}

/* Parts of a sharding may bring the same to a rank twice, which its holding does not show. */
static void add_parts(Found *found, const RefitPlan *plan, guint s, const RefitLayout *layout,
                      const RefitSharding *sharding) {
    const RefitClass *klass = &plan->problem->classes[plan->sections[s].class_index];

    for (guint part = 0; part < refit_sharding_n_parts(sharding); part++)
        for (guint i = 0; i < refit_layout_n_ranks(layout); i++) {
            guint rank = refit_layout_ranks(layout)[i];
            guint64 buffer[REFIT_MAX_DIMS];
            g_auto(RefitRegion) region = {0};

            if (refit_sharding_local(sharding, part, rank, klass->n_dims, klass->shape, &region,
                                     buffer, NULL))
                add(found, s, rank, bytes_in(plan, s, &region));
        }
}

/* Whether all pools have the class in one part. */
static gboolean is_simple(const RefitPlan *plan, guint c) {
    const RefitCase *refit_case = plan->problem->refit_case;

    for (guint d = 0; d < refit_case->n_destinations; d++) {
        const RefitSharding *sharding = refit_layout_sharding(refit_case->destinations[d],
                                                              plan->problem->classes[c].members[0]);

        if (sharding != NULL && refit_sharding_n_parts(sharding) > 1)
            return FALSE;
    }
    return TRUE;
}

static void add_section(Found *found, const RefitPlan *plan, guint s) {
    const RefitCase *refit_case = plan->problem->refit_case;
    const RefitClass *klass = &plan->problem->classes[plan->sections[s].class_index];

    if (is_simple(plan, plan->sections[s].class_index)) {
        for (guint p = 0; p < klass->destination->n_pieces; p++) {
            const RefitPiece *piece = &klass->destination->pieces[p];
            guint64 bytes = bytes_in(plan, s, &piece->region);

            for (guint r = 0; r < piece->n_ranks; r++)
                add(found, s, piece->ranks[r], bytes);
        }
        return;
    }
    for (guint d = 0; d < refit_case->n_destinations; d++) {
        const RefitSharding *sharding =
            refit_layout_sharding(refit_case->destinations[d], klass->members[0]);

        if (sharding != NULL)
            add_parts(found, plan, s, refit_case->destinations[d], sharding);
    }
}

/* What has been found, rank by rank. */
static void deal(RefitScheduleInstalls *installs, const Found *found) {
    guint n_ranks = installs->plan->problem->n_ranks;
    guint *offsets = g_new0(guint, (gsize)n_ranks + 2);

    for (guint i = 0; i < found->ranks->len; i++)
        offsets[g_array_index(found->ranks, guint, i) + 2]++;
    for (guint rank = 0; rank < n_ranks; rank++)
        offsets[rank + 2] += offsets[rank + 1];
    g_array_set_size(installs->installed, found->all->len);
    for (guint i = 0; i < found->all->len; i++) {
        guint rank = g_array_index(found->ranks, guint, i);

        g_array_index(installs->installed, Installed, offsets[rank + 1]++) =
            g_array_index(found->all, Installed, i);
    }
    installs->offsets = offsets;
}

RefitScheduleInstalls *refit_schedule_installs_new(const RefitPlan *plan) {
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(Installed));
    g_autoptr(GArray) ranks = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autofree guint8 *reached = g_new0(guint8, MAX(plan->problem->n_ranks, 1));
    Found found = {all, ranks, reached};
    RefitScheduleInstalls *installs;

    for (guint o = 0; o < plan->n_obligations; o++) {
        const RefitObligation *obligation = &plan->obligations[o];

        if (obligation->landing != REFIT_LANDING_BUCKET)
            continue;
        for (guint i = 0; i < obligation->n_ranks; i++)
            reached[obligation->ranks[i]] = 1;
        for (guint s = plan->section_offsets[obligation->class_index];
             s < plan->section_offsets[obligation->class_index + 1]; s++)
            add_section(&found, plan, s);
        for (guint i = 0; i < obligation->n_ranks; i++)
            reached[obligation->ranks[i]] = 0;
    }
    if (all->len == 0)
        return NULL;
    installs = g_new0(RefitScheduleInstalls, 1);
    installs->plan = plan;
    installs->installed = g_array_new(FALSE, FALSE, sizeof(Installed));
    installs->batches = g_new0(RefitScheduleInstall, MAX(plan->n_batches, 1));
    deal(installs, &found);
    return installs;
}

void refit_schedule_installs_free(RefitScheduleInstalls *installs) {
    if (installs == NULL)
        return;
    g_free(installs->offsets);
    g_array_unref(installs->installed);
    g_free(installs->batches);
    g_free(installs);
}

void refit_schedule_installs_sum(RefitScheduleInstalls *installs, guint rank) {
    const RefitPlan *plan = installs->plan;

    for (guint b = 0; b < plan->n_batches; b++)
        installs->batches[b] = (RefitScheduleInstall){0};
    for (guint i = installs->offsets[rank]; i < installs->offsets[rank + 1]; i++) {
        const Installed *item = &g_array_index(installs->installed, Installed, i);
        guint last = plan->run_offsets[item->section + 1];

        for (guint r = plan->run_offsets[item->section]; r < last; r++) {
            const RefitBatchRun *run = &plan->batch_runs[r];

            installs->batches[run->batch].bytes += item->amount.bytes * run->count;
            installs->batches[run->batch].tensors += item->amount.tensors * run->count;
        }
    }
}

const RefitScheduleInstall *refit_schedule_installs_get(const RefitScheduleInstalls *installs,
                                                        guint batch) {
    return &installs->batches[batch];
}
