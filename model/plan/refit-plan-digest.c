/*
 * The digest of a plan: SHA-256 over a canonical form that holds everything that defines it and
 * nothing that depends on the machine. Two ranks with the same digest hold the same plan.
 *
 * The form is a stream of numbers, each written as base-128 digits from the least significant on,
 * with the top bit set on all but the last; texts are preceded by their length. Transfers follow
 * their pair and are written as differences to their predecessor, which makes most of them four
 * bytes long: hashing, not writing, is what costs time here.
 */

#include "model/plan/refit-plan-private.h"

#include <string.h>

#define BUFFER_SIZE 65536

typedef struct {
    GChecksum *checksum;
    gsize n;
    guint8 buffer[BUFFER_SIZE];
} Stream;

static void put(Stream *stream, guint64 value) {
    if (stream->n + 10 > BUFFER_SIZE) {
        g_checksum_update(stream->checksum, stream->buffer, (gssize)stream->n);
        stream->n = 0;
    }
    while (value >= 0x80) {
        stream->buffer[stream->n++] = (guint8)(value | 0x80);
        value >>= 7;
    }
    stream->buffer[stream->n++] = (guint8)value;
}

/* Small differences of either sign become small numbers. */
static void put_difference(Stream *stream, guint from, guint to) {
    put(stream, to >= from ? (guint64)(to - from) << 1 : ((guint64)(from - to) << 1) - 1);
}

static void put_text(Stream *stream, const char *text) {
    gsize length = strlen(text);
    put(stream, length);
    for (gsize i = 0; i < length; i++)
        put(stream, (guint8)text[i]);
}

static void put_region(Stream *stream, const RefitRegion *region) {
    put(stream, region->n_dims);
    for (guint dim = 0; dim < region->n_dims; dim++) {
        put(stream, region->dims[dim]->n);
        for (guint item = 0; item < region->dims[dim]->n; item++) {
            put(stream, region->dims[dim]->items[item].lo);
            put(stream, region->dims[dim]->items[item].hi);
        }
    }
}

/* Which members of a section are in which batch. */
static void put_batches(Stream *stream, const RefitPlan *plan, guint section, guint n_members) {
    const guint *order = plan->member_order + plan->member_offsets[section];
    put(stream, plan->run_offsets[section + 1] - plan->run_offsets[section]);
    for (guint run = plan->run_offsets[section]; run < plan->run_offsets[section + 1]; run++) {
        put(stream, plan->batch_runs[run].batch);
        put(stream, plan->batch_runs[run].count);
    }
    for (guint member = 0; member < n_members; member++)
        put_difference(stream, member == 0 ? 0 : order[member - 1], order[member]);
}

/* No batches, which no section has, announce that there are several. */
static void put_sections(Stream *stream, const RefitPlan *plan, guint class_index) {
    guint first = plan->section_offsets[class_index];
    guint n = plan->section_offsets[class_index + 1] - first;
    if (n > 1) {
        put(stream, 0);
        put(stream, n);
    }
    for (guint s = first; s < first + n; s++) {
        if (n > 1)
            put_region(stream, &plan->sections[s].region);
        put_batches(stream, plan, s, plan->problem->classes[class_index].n_members);
    }
}

static void put_classes(Stream *stream, const RefitPlan *plan) {
    const RefitProblem *problem = plan->problem;
    put(stream, problem->n_classes);
    for (guint i = 0; i < problem->n_classes; i++) {
        const RefitClass *klass = &problem->classes[i];
        put(stream, klass->n_dims);
        for (guint dim = 0; dim < klass->n_dims; dim++)
            put(stream, klass->shape[dim]);
        put_text(stream, refit_dtype_name(klass->dtype));
        put_text(stream, refit_model_tensor(problem->refit_case->model, klass->members[0])->name);
        put(stream, klass->n_members);
        for (guint member = 0; member < klass->n_members; member++)
            put_difference(stream, member == 0 ? 0 : klass->members[member - 1],
                           klass->members[member]);
        put_sections(stream, plan, i);
    }
}

static void put_regions(Stream *stream, const RefitPlan *plan) {
    put(stream, plan->n_regions);
    for (guint i = 0; i < plan->n_regions; i++)
        put_region(stream, &plan->regions[i]);
}

static void put_transfers(Stream *stream, const RefitPlan *plan) {
    put(stream, plan->n_pairs);
    guint class_index = 0, region = 0;
    for (guint number = 0; number < plan->n_pairs; number++) {
        const RefitPair *pair = &plan->pairs[number];
        put(stream, pair->stage);
        put(stream, pair->offset);
        put(stream, pair->src);
        put(stream, pair->dst);
        put(stream, pair->link);
        put(stream, pair->n_transfers);
        for (guint i = pair->first_transfer; i < pair->first_transfer + pair->n_transfers; i++) {
            const RefitTransfer *transfer = &plan->transfers[i];
            put_difference(stream, class_index, transfer->class_index);
            put_difference(stream, region, transfer->region);
            put(stream, (guint64)transfer->n_deps * REFIT_N_LANDINGS + transfer->landing);
            for (guint dep = 0; dep < transfer->n_deps; dep++)
                put_difference(stream, i, plan->deps[transfer->first_dep + dep]);
            class_index = transfer->class_index;
            region = transfer->region;
        }
    }
}

static void put_obligations(Stream *stream, const RefitPlan *plan) {
    put(stream, plan->n_obligations);
    const guint *last = NULL; /* a set that repeats is written once */
    for (guint i = 0; i < plan->n_obligations; i++) {
        const RefitObligation *obligation = &plan->obligations[i];
        put(stream, obligation->class_index);
        put(stream, obligation->landing);
        put(stream, obligation->ranks == last ? 0 : obligation->n_ranks);
        if (obligation->ranks != last)
            for (guint rank = 0; rank < obligation->n_ranks; rank++)
                put_difference(stream, rank == 0 ? 0 : obligation->ranks[rank - 1],
                               obligation->ranks[rank]);
        last = obligation->ranks;
    }
}

char *refit_plan_digest(const RefitPlan *plan) {
    g_autofree Stream *stream = g_new(Stream, 1);
    stream->checksum = g_checksum_new(G_CHECKSUM_SHA256);
    stream->n = 0;
    put_text(stream, "refit.plan/1");
    put_text(stream, plan->strategy);
    put(stream, plan->problem->n_ranks);
    put(stream, plan->logical_bytes);
    put(stream, plan->n_stages);
    for (guint i = 0; i < plan->n_stages; i++) {
        put_text(stream, plan->stages[i].name);
        put(stream, plan->stages[i].slices);
        put(stream, plan->stages[i].n_offsets);
        put(stream, plan->stages[i].track);
    }
    put(stream, plan->n_batches);
    for (guint i = 0; i < plan->n_batches; i++) {
        put(stream, plan->batches[i].lane);
        put(stream, plan->batches[i].buckets);
        put(stream, plan->batches[i].barrier ? 1 : 0);
    }
    put_classes(stream, plan);
    put_regions(stream, plan);
    put_transfers(stream, plan);
    put_obligations(stream, plan);
    g_checksum_update(stream->checksum, stream->buffer, (gssize)stream->n);
    char *digest = g_strdup(g_checksum_get_string(stream->checksum));
    g_checksum_free(stream->checksum);
    return digest;
}
