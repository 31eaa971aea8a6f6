/*
 * Proof that the waits of a program suffice.
 *
 * For each step, the steps that are complete when it starts form a prefix of every stream, so a
 * number per stream says it all; these follow from the waits and from the order of each stream.
 * Then two questions are look-ups: has arrived what a piece sends on, and is everything that used
 * some staging memory for one thing complete before a step uses it for another. Staging memory is
 * kept as sorted segments, each with what it holds and the last users per stream. Cost: pieces and
 * their dependencies, and uses of staging memory times the segments they meet.
 */

#include "model/schedule/refit-program-check.h"

/* What staging memory holds: messages of a stream, whose turns wait for their slots, or a region or
 * tensor that landed. */
typedef struct {
    const RefitView *view; /* NULL: messages */
    guint number;          /* tensor, or stream */
} Owner;

typedef struct {
    guint64 lo, hi;
    Owner owner;
    guint *users; /* per stream: 1 + last step */
} Segment;

typedef struct {
    guint64 lo, hi;
    Owner owner;
    gboolean writes;
} Use;

typedef struct {
    const RefitProgram *program;
    guint *complete;  /* per step and stream: 1 + last step that is complete when it starts */
    GArray *segments; /* Segment, by place, disjoint */
    GArray *uses;     /* scratch: Use */
    guint *stage_bases;
} Proof;

/* ---- what is complete ---- */

static void raise_to(guint *own, const guint *other, guint n) {
    for (guint s = 0; s < n; s++)
        own[s] = MAX(own[s], other[s]);
}

static guint *complete_at(const Proof *proof, guint step) {
    return proof->complete + (gsize)step * proof->program->n_streams;
}

static gboolean ends_after(const RefitProgramStep *step, guint number) {
    return step->number + step->n_numbers > number;
}

static void follow_waits(const Proof *proof) {
    const RefitProgram *program = proof->program;
    g_autofree guint *last = g_new0(guint, MAX(program->n_streams, 1)); /* per stream, 1 + step */

    for (guint i = 0; i < program->n_steps; i++) {
        const RefitProgramStep *step = &program->steps[i];
        guint *own = complete_at(proof, i);

        if (last[step->stream] > 0)
            raise_to(own, complete_at(proof, last[step->stream] - 1), program->n_streams);
        last[step->stream] = i + 1;
        for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
            guint on = program->waits[w].step;
            guint stream = program->steps[on].stream;

            if (program->waits[w].in_slices && ends_after(&program->steps[on], step->number))
                continue;
            raise_to(own, complete_at(proof, on), program->n_streams);
            own[stream] = MAX(own[stream], on + 1);
        }
    }
}

static gboolean is_complete(const Proof *proof, guint step, guint other) {
    return complete_at(proof, step)[proof->program->steps[other].stream] > other;
}

static gboolean follows_in_slices(const RefitProgram *program, guint step, guint other) {
    const RefitProgramStep *self = &program->steps[step];

    for (guint w = self->first_wait; w < self->first_wait + self->n_waits; w++)
        if (program->waits[w].in_slices && program->waits[w].step == other)
            return TRUE;
    return FALSE;
}

/* ---- what is sent on has arrived ---- */

/* The step that has this number of a batch, stage and link class; G_MAXUINT. */
static guint find_step(const RefitProgram *program, guint number, guint batch, guint stage,
                       guint link) {
    guint low = 0, high = program->n_steps;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (program->steps[middle].number <= number)
            low = middle + 1;
        else
            high = middle;
    }
    while (low-- > 0) {
        const RefitProgramStep *step = &program->steps[low];

        if (step->batch != batch || step->stage < stage)
            return G_MAXUINT;
        if (step->stage == stage && step->link == link && !step->install &&
            number < step->number + step->n_numbers)
            return low;
    }
    return G_MAXUINT;
}

static gboolean check_arrival(const Proof *proof, guint step, const RefitProgramPiece *piece,
                              guint dep, GError **error) {
    const RefitProgram *program = proof->program;
    const RefitPlan *plan = program->plan;
    const RefitTransfer *landed = &plan->transfers[dep];
    const RefitPair *pair = &plan->pairs[plan->transfers[piece->transfer].pair];
    const RefitPair *before = &plan->pairs[landed->pair];
    guint number = piece->number - proof->stage_bases[pair->stage] - pair->offset +
                   proof->stage_bases[before->stage] + before->offset;
    guint arrival =
        find_step(program, number, program->steps[step].batch, before->stage, before->link);

    if (arrival != G_MAXUINT &&
        (is_complete(proof, step, arrival) ||
         (follows_in_slices(program, step, arrival) && number < piece->number)))
        return TRUE;
    return refit_program_fail(program, step, error,
                              "does not wait for transfer %u, which brings what transfer %u sends "
                              "on",
                              dep, piece->transfer);
}

static gboolean check_arrivals(const Proof *proof, guint step, GError **error) {
    const RefitProgram *program = proof->program;
    const RefitProgramStep *self = &program->steps[step];
    const RefitPlan *plan = program->plan;

    for (guint e = self->first_exchange; e < self->first_exchange + self->n_exchanges; e++) {
        const RefitExchange *exchange = &program->exchanges[e];
        guint seen = G_MAXUINT;

        if (self->install || (!exchange->sends && exchange->peer != program->rank))
            continue;
        for (guint i = 0; i < exchange->n_pieces; i++) {
            const RefitProgramPiece *piece = &program->pieces[exchange->first_piece + i];
            const RefitTransfer *transfer = &plan->transfers[piece->transfer];

            for (guint d = 0; seen != piece->transfer && d < transfer->n_deps; d++)
                if (!check_arrival(proof, step, piece, plan->deps[transfer->first_dep + d], error))
                    return FALSE;
            seen = piece->transfer;
        }
    }
    return TRUE;
}

static gboolean brings_buckets(const RefitProgram *program, const RefitExchange *exchange) {
    for (guint i = 0; !exchange->sends && i < exchange->n_pieces; i++) {
        guint transfer = program->pieces[exchange->first_piece + i].transfer;

        if (transfer != G_MAXUINT &&
            program->plan->transfers[transfer].landing == REFIT_LANDING_BUCKET)
            return TRUE;
    }
    return FALSE;
}

/* A bucket is installed when all of it has come. */
static gboolean check_install(const Proof *proof, guint step, GError **error) {
    const RefitProgram *program = proof->program;
    const RefitProgramStep *self = &program->steps[step];

    for (guint i = step; self->install && i-- > 0 && program->steps[i].batch == self->batch;) {
        const RefitProgramStep *before = &program->steps[i];

        for (guint e = before->first_exchange; e < before->first_exchange + before->n_exchanges;
             e++)
            if (brings_buckets(program, &program->exchanges[e]) && !is_complete(proof, step, i))
                return refit_program_fail(program, step, error,
                                          "installs buckets without waiting for step %u",
                                          before->number);
    }
    return TRUE;
}

/* ---- staging memory ---- */

static void clear_segment(gpointer data) {
    g_free(((Segment *)data)->users);
}

static gboolean same_owner(const Owner *a, const Owner *b) {
    return a->view == b->view && a->number == b->number;
}

static void add_use(const Proof *proof, guint64 at, guint64 bytes, Owner owner, gboolean writes) {
    Use use = {at, at + bytes, owner, writes};
    Use *last =
        proof->uses->len > 0 ? &g_array_index(proof->uses, Use, proof->uses->len - 1) : NULL;

    if (bytes == 0 || (last != NULL && last->lo == use.lo && last->hi == use.hi &&
                       same_owner(&last->owner, &owner)))
        return;
    g_array_append_val(proof->uses, use);
}

static void use_place(const Proof *proof, const RefitProgramPiece *piece, const RefitPlace *place,
                      gboolean writes) {
    if (place->memory == REFIT_MEMORY_STAGING)
        add_use(proof, place->base,
                refit_program_bytes(piece->dtype, refit_region_volume(&place->view->region)),
                (Owner){place->view, piece->tensor}, writes);
}

/* What a step does in staging memory: `writes`, or reads. */
static void list_uses(const Proof *proof, guint step, gboolean writes) {
    const RefitProgram *program = proof->program;
    const RefitProgramStep *self = &program->steps[step];

    g_array_set_size(proof->uses, 0);
    for (guint e = self->first_exchange; e < self->first_exchange + self->n_exchanges; e++) {
        const RefitExchange *exchange = &program->exchanges[e];

        for (guint k = 0; writes && exchange->wire_bytes > 0 && k < exchange->wire_slots; k++)
            add_use(proof, exchange->wire + k * exchange->wire_step, exchange->wire_bytes,
                    (Owner){NULL, self->stream}, TRUE);
        for (guint i = 0; i < exchange->n_pieces; i++) {
            const RefitProgramPiece *piece = &program->pieces[exchange->first_piece + i];

            for (guint c = piece->first_copy; c < piece->first_copy + piece->n_copies; c++) {
                const RefitCopy *copy = &program->copies[c];

                use_place(proof, piece, writes ? &copy->to : &copy->from, writes);
            }
        }
    }
}

static Segment *segment_at(const Proof *proof, guint i) {
    return &g_array_index(proof->segments, Segment, i);
}

/* First segment that ends after `at`. */
static guint find_segment(const Proof *proof, guint64 at) {
    guint low = 0, high = proof->segments->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (segment_at(proof, middle)->hi <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Makes a segment begin at `at`, if one has it inside. */
static void cut_segment(const Proof *proof, guint64 at) {
    guint i = find_segment(proof, at);
    Segment rest;

    if (i == proof->segments->len || segment_at(proof, i)->lo >= at)
        return;
    rest = *segment_at(proof, i);
    rest.users = g_memdup2(rest.users, proof->program->n_streams * sizeof(guint));
    rest.lo = at;
    segment_at(proof, i)->hi = at;
    g_array_insert_val(proof->segments, i + 1, rest);
}

/* The step uses memory that held something else: everyone who used that is done. */
static gboolean check_reuse(const Proof *proof, guint step, const Segment *segment,
                            GError **error) {
    const RefitProgram *program = proof->program;

    for (guint s = 0; s < program->n_streams; s++)
        if (segment->users[s] > 0 && !is_complete(proof, step, segment->users[s] - 1))
            return refit_program_fail(program, step, error,
                                      "uses staging memory at %" G_GUINT64_FORMAT
                                      " without waiting for step %u, which uses it for something "
                                      "else",
                                      segment->lo, program->steps[segment->users[s] - 1].number);
    return TRUE;
}

static gboolean apply_use(const Proof *proof, guint step, const Use *use, GError **error) {
    const RefitProgram *program = proof->program;
    guint stream = program->steps[step].stream, i;
    gboolean same = TRUE;
    guint64 at = use->lo;

    cut_segment(proof, use->lo);
    cut_segment(proof, use->hi);
    i = find_segment(proof, use->lo);
    for (guint j = i; j < proof->segments->len && segment_at(proof, j)->lo < use->hi; j++) {
        Segment *segment = segment_at(proof, j);
        gboolean own = same_owner(&segment->owner, &use->owner);

        if (!own && !check_reuse(proof, step, segment, error))
            return FALSE;
        same = same && own && segment->lo == at;
        at = segment->hi;
        if (own)
            segment->users[stream] = MAX(segment->users[stream], step + 1);
    }
    if (same && at == use->hi)
        return TRUE;
    if (!use->writes)
        return refit_program_fail(
            program, step, error,
            "reads staging memory at %" G_GUINT64_FORMAT ", where nothing was put for it", use->lo);
    while (i < proof->segments->len && segment_at(proof, i)->lo < use->hi)
        g_array_remove_index(proof->segments, i);
    Segment taken = {use->lo, use->hi, use->owner, g_new0(guint, program->n_streams)};
    taken.users[stream] = step + 1;
    g_array_insert_val(proof->segments, i, taken);
    return TRUE;
}

static gboolean check_uses(const Proof *proof, guint step, gboolean writes, GError **error) {
    list_uses(proof, step, writes);
    for (guint u = 0; u < proof->uses->len; u++)
        if (!apply_use(proof, step, &g_array_index(proof->uses, Use, u), error))
            return FALSE;
    return TRUE;
}

/* In a sliced stage, steps read what others write at the same time: all writers go first. */
static gboolean check_staging(const Proof *proof, GError **error) {
    const RefitProgram *program = proof->program;

    for (guint first = 0, end; first < program->n_steps; first = end) {
        const RefitProgramStep *step = &program->steps[first];

        for (end = first + 1;
             end < program->n_steps && program->plan->stages[step->stage].slices > 1 &&
             program->steps[end].batch == step->batch && program->steps[end].stage == step->stage &&
             !program->steps[end].install;)
            end++;
        for (guint i = first; i < end; i++)
            if (!check_uses(proof, i, TRUE, error))
                return FALSE;
        for (guint i = first; i < end; i++)
            if (!check_uses(proof, i, FALSE, error))
                return FALSE;
    }
    return TRUE;
}

gboolean refit_program_check_memory(const RefitProgram *program, GError **error) {
    const RefitPlan *plan = program->plan;
    g_autofree guint *complete =
        g_new0(guint, MAX((gsize)program->n_steps * program->n_streams, 1));
    g_autofree guint *stage_bases = g_new0(guint, (gsize)plan->n_stages + 1);
    g_autoptr(GArray) segments = g_array_new(FALSE, FALSE, sizeof(Segment));
    g_autoptr(GArray) uses = g_array_new(FALSE, FALSE, sizeof(Use));
    const Proof proof = {program, complete, segments, uses, stage_bases};

    g_array_set_clear_func(segments, clear_segment);
    for (guint stage = 0; stage < plan->n_stages; stage++)
        stage_bases[stage + 1] =
            stage_bases[stage] + plan->stages[stage].n_offsets + plan->stages[stage].slices - 1;
    follow_waits(&proof);
    for (guint i = 0; i < program->n_steps; i++)
        if (!check_arrivals(&proof, i, error) || !check_install(&proof, i, error))
            return FALSE;
    return check_staging(&proof, error);
}
