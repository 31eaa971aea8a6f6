/*
 * Proofs about one program: order, waits, messages and copies.
 *
 * Everything is compared with the plan itself, not with the index from which the program was made.
 * What waits guarantee, and whether memory is used accordingly, is proved in
 * refit-program-check-memory.c. Cost: steps, pieces and copies.
 */

#include "model/plan/refit-plan-coverage.h"
#include "model/schedule/refit-program-check.h"

gboolean refit_program_fail(const RefitProgram *program, guint step, GError **error,
                            const char *format, ...) {
    g_autofree char *text = NULL;
    va_list arguments;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    if (step < program->n_steps)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE, "rank %u, step %u: %s", program->rank,
                    program->steps[step].number, text);
    else
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE, "rank %u: %s", program->rank, text);
    return FALSE;
}

/* ---- order ---- */

/* (number, install, chunk, stream), so that equal keys are one turn of one stream. */
static gboolean comes_before(const RefitProgram *program, const RefitTurn *a, const RefitTurn *b) {
    const RefitProgramStep *step_a = &program->steps[a->step], *step_b = &program->steps[b->step];

    if (a->number != b->number)
        return a->number < b->number;
    if (step_a->install != step_b->install)
        return step_b->install;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk;
    return step_a->stream < step_b->stream;
}

static gboolean check_steps(const RefitProgram *program, GError **error) {
    const RefitPlan *plan = program->plan;

    for (guint i = 0; i < program->n_steps; i++) {
        const RefitProgramStep *step = &program->steps[i], *before = step - 1;

        if (step->batch >= plan->n_batches || step->stage >= plan->n_stages ||
            step->link >= REFIT_N_LINKS || step->n_numbers == 0 ||
            (guint64)step->number + step->n_numbers > plan->n_steps ||
            step->stream >= program->n_streams ||
            step->stream != refit_schedule_stream(plan, step->stage, step->batch, step->link))
            return refit_program_fail(program, i, error, "is not a step of the plan");
        if (i > 0 && !comes_before(program, &(RefitTurn){i - 1, before->number, 0},
                                   &(RefitTurn){i, step->number, 0}))
            return refit_program_fail(program, i, error, "comes after step %u", before->number);
        if (step->n_chunks == 0 || step->n_chunks > step->cutting.n || step->cutting.grain == 0 ||
            (step->link == REFIT_LINK_LOCAL ? step->cutting.n != 1
                                            : step->cutting.grain % REFIT_SCHEDULE_ALIGN != 0))
            return refit_program_fail(
                program, i, error, "has %u of %u chunks, in grains of %" G_GUINT64_FORMAT " bytes",
                step->n_chunks, step->cutting.n, step->cutting.grain);
        if (step->n_exchanges == 0 ||
            step->first_exchange + step->n_exchanges > program->n_exchanges)
            return refit_program_fail(program, i, error, "has no exchanges");
    }
    return TRUE;
}

static gboolean check_turns(const RefitProgram *program, GError **error) {
    g_autofree guint *next = g_new0(guint, MAX(program->n_steps, 1));
    g_autofree guint *places = g_new0(guint, MAX(program->n_streams, 1));
    guint64 n = 0;

    for (guint i = 0; i < program->n_turns; i++) {
        const RefitTurn *turn = &program->turns[i], *before = turn - 1;

        if (turn->step >= program->n_steps)
            return refit_program_fail(program, G_MAXUINT, error, "turn %u is of no step", i);
        const RefitProgramStep *step = &program->steps[turn->step];
        if (next[turn->step] / step->n_chunks >= step->n_numbers ||
            turn->number != step->number + next[turn->step] / step->n_chunks ||
            turn->chunk != next[turn->step] % step->n_chunks)
            return refit_program_fail(program, turn->step, error,
                                      "turn %u has another number or chunk", i);
        next[turn->step]++;
        if (refit_program_turn_place(program, turn) != places[step->stream]++)
            return refit_program_fail(program, turn->step, error,
                                      "turn %u has another place on its stream", i);
        if (i > 0 && !comes_before(program, before, turn))
            return refit_program_fail(program, turn->step, error, "turn %u is out of order", i);
    }
    for (guint i = 0; i < program->n_steps; i++)
        n += (guint64)program->steps[i].n_numbers * program->steps[i].n_chunks;
    return n == program->n_turns ||
           refit_program_fail(program, G_MAXUINT, error, "steps lack turns");
}

/* A wait for a whole step is for one that ends before; slices look back by themselves. */
static gboolean check_waits(const RefitProgram *program, GError **error) {
    for (guint i = 0; i < program->n_steps; i++) {
        const RefitProgramStep *step = &program->steps[i];

        if (step->first_wait + step->n_waits > program->n_waits)
            return refit_program_fail(program, i, error, "has waits of no step");
        for (guint w = step->first_wait; w < step->first_wait + step->n_waits; w++) {
            const RefitWait *wait = &program->waits[w];
            const RefitProgramStep *on = &program->steps[MIN(wait->step, program->n_steps - 1)];
            guint last = on->number + on->n_numbers - 1;

            if (wait->step >= program->n_steps)
                return refit_program_fail(program, i, error, "waits for no step");
            if (wait->in_slices ? on->install || step->install || on->batch != step->batch ||
                                      on->stage != step->stage
                                : last > step->number ||
                                      (last == step->number && !(step->install && !on->install)))
                return refit_program_fail(program, i, error,
                                          "waits for step %u, which does not end before", last);
        }
    }
    return TRUE;
}

/* Steps that have turns in common: the same number, or the same batch of a sliced stage. */
static gboolean share_turns(const RefitProgramStep *a, const RefitProgramStep *b) {
    return a->number == b->number || b->number < a->number + a->n_numbers;
}

/* Exchanges with different peers or directions: those of a turn at most. */
static guint count_peers(const RefitProgram *program, const RefitProgramStep *step) {
    guint n = 0;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitExchange *exchange = &program->exchanges[e];

        n += e == step->first_exchange || exchange->peer != exchange[-1].peer ||
             exchange->sends != exchange[-1].sends;
    }
    return n;
}

static gboolean check_operations(const RefitProgram *program, GError **error) {
    for (guint i = 0; i < program->n_steps; i++) {
        guint n = 0;

        for (guint j = i;
             j < program->n_steps && share_turns(&program->steps[i], &program->steps[j]); j++)
            if (program->steps[j].link != REFIT_LINK_LOCAL)
                n += count_peers(program, &program->steps[j]);
        if (n > REFIT_STEP_OPERATIONS)
            return refit_program_fail(program, i, error, "has %u exchanges, the limit is %d", n,
                                      REFIT_STEP_OPERATIONS);
    }
    return TRUE;
}

/* ---- copies ---- */

static gboolean is_inside(const RefitProgram *program, const RefitPlace *place, RefitDtype dtype,
                          const RefitRegion *piece) {
    const RefitView *view = place->view;
    const RefitRankViews *views =
        place->memory == REFIT_MEMORY_SOURCE ? program->source : program->destination;
    guint64 last = view->offset, limit;

    for (guint d = 0; d < view->region.n_dims; d++)
        last += (refit_interval_list_local_extent(view->region.dims[d]) - 1) * view->stride[d];
    switch (place->memory) {
    case REFIT_MEMORY_MESSAGE:
        return place->base == 0 && last < refit_region_volume(piece);
    case REFIT_MEMORY_STAGING:
        limit = program->staging_bytes;
        break;
    default:
        if (views == NULL || view < views->views || view >= views->views + views->n_views)
            return FALSE;
        limit = views->parameters[view->parameter].bytes;
        break;
    }
    guint64 bytes = refit_program_bytes(dtype, last) +
                    (refit_dtype_bits(dtype) + 7) / 8; /* past the last element */
    return place->base <= limit && bytes <= limit - place->base;
}

static gboolean check_copy(const RefitProgram *program, guint step, const RefitExchange *exchange,
                           const RefitProgramPiece *piece, const RefitRegion *region,
                           const RefitCopy *copy, GError **error) {
    gboolean local = exchange->peer == program->rank;
    gboolean reads = copy->from.memory != REFIT_MEMORY_MESSAGE;
    gboolean writes = copy->to.memory != REFIT_MEMORY_MESSAGE;

    if (reads != (local || exchange->sends) || writes != (local || !exchange->sends) ||
        copy->to.memory == REFIT_MEMORY_SOURCE)
        return refit_program_fail(program, step, error, "copies from %s to %s",
                                  refit_memory_name(copy->from.memory),
                                  refit_memory_name(copy->to.memory));
    const RefitPlace *const places[] = {&copy->from, &copy->to};
    for (guint i = 0; i < G_N_ELEMENTS(places); i++)
        if (!refit_region_contains(&places[i]->view->region, copy->region) ||
            (places[i]->memory <= REFIT_MEMORY_DESTINATION &&
             places[i]->view->tensor != piece->tensor) ||
            !is_inside(program, places[i], piece->dtype, region))
            return refit_program_fail(program, step, error,
                                      "a copy of tensor %u leaves its place in %s", piece->tensor,
                                      refit_memory_name(places[i]->memory));
    return refit_region_contains(region, copy->region) ||
           refit_program_fail(program, step, error, "a copy of tensor %u is not of its region",
                              piece->tensor);
}

/* All of the region is copied: sent once, received in at least one place. */
static gboolean check_copies(const RefitProgram *program, guint step, const RefitExchange *exchange,
                             const RefitProgramPiece *piece, const RefitRegion *region,
                             GError **error) {
    guint64 volume = refit_region_volume(region), sum = 0;

    if (piece->n_copies == 0 || piece->first_copy + piece->n_copies > program->n_copies)
        return refit_program_fail(program, step, error, "a piece has no copies");
    g_autofree const RefitRegion **parts = g_new(const RefitRegion *, piece->n_copies);
    for (guint c = 0; c < piece->n_copies; c++) {
        const RefitCopy *copy = &program->copies[piece->first_copy + c];

        if (!check_copy(program, step, exchange, piece, region, copy, error))
            return FALSE;
        parts[c] = copy->region;
        sum += refit_region_volume(copy->region);
    }
    if (piece->n_copies == 1 ? sum == volume
                             : refit_union_volume(parts, piece->n_copies) == volume &&
                                   (!exchange->sends || sum == volume))
        return TRUE;
    return refit_program_fail(program, step, error,
                              "copies of tensor %u are not all of its region, once", piece->tensor);
}

/* ---- messages ---- */

/* A parameter takes all it has a place for of the section in the bucket. */
static gboolean check_installed(const RefitProgram *program, guint step,
                                const RefitExchange *exchange, const RefitProgramPiece *piece,
                                GError **error) {
    const RefitCopy *copy = &program->copies[piece->first_copy];
    g_auto(RefitRegion) common = {0};

    if (piece->transfer != G_MAXUINT || piece->n_copies != 1 ||
        piece->first_copy >= program->n_copies || exchange->peer != program->rank)
        return refit_program_fail(program, step, error, "installs something else");
    if (copy->from.memory != REFIT_MEMORY_STAGING || copy->to.memory != REFIT_MEMORY_DESTINATION)
        return refit_program_fail(program, step, error, "copies from %s to %s in an install",
                                  refit_memory_name(copy->from.memory),
                                  refit_memory_name(copy->to.memory));
    common = refit_region_intersect(&copy->to.view->region, &copy->from.view->region);
    if (piece->bytes != refit_program_bytes(piece->dtype, refit_region_volume(&common)))
        return refit_program_fail(program, step, error, "installs a part of tensor %u",
                                  piece->tensor);
    return check_copies(program, step, exchange, piece, &common, error);
}

static gboolean check_piece(const RefitProgram *program, guint step, const RefitExchange *exchange,
                            const RefitProgramPiece *piece, guint64 at, GError **error) {
    const RefitPlan *plan = program->plan;
    const RefitProgramStep *self = &program->steps[step];
    const RefitTransfer *transfer;
    guint width = refit_dtype_bits(piece->dtype) / 8;

    if (self->install)
        return check_installed(program, step, exchange, piece, error);
    if (piece->transfer >= plan->n_transfers)
        return refit_program_fail(program, step, error, "has a piece of no transfer");
    transfer = &plan->transfers[piece->transfer];
    if ((exchange->sends || exchange->peer == program->rank ? transfer->src : transfer->dst) !=
            program->rank ||
        (exchange->sends ? transfer->dst : transfer->src) != exchange->peer ||
        transfer->link != self->link || transfer->stage != self->stage)
        return refit_program_fail(program, step, error, "transfer %u is not part of it",
                                  piece->transfer);
    if (piece->bytes != refit_plan_transfer_bytes(plan, transfer) || piece->at != at ||
        (width > 1 && at % width != 0))
        return refit_program_fail(program, step, error,
                                  "a piece of transfer %u has other bytes or another place",
                                  piece->transfer);
    if (piece->slices == 0 || piece->number < self->number ||
        piece->number + piece->slices > self->number + self->n_numbers ||
        (piece->slices > 1 && !exchange->sliced))
        return refit_program_fail(program, step, error, "a piece has other numbers than its step");
    return check_copies(program, step, exchange, piece, &plan->regions[transfer->region], error);
}

/* Where a message goes or comes from straight lies in one parameter, or in staging memory. */
static gboolean check_memory_of(const RefitProgram *program, guint step,
                                const RefitExchange *exchange, GError **error) {
    const RefitRankViews *views =
        exchange->memory == REFIT_MEMORY_SOURCE ? program->source : program->destination;
    guint64 limit = program->staging_bytes, bytes, from = exchange->wire;

    if (exchange->peer == program->rank)
        return TRUE;
    if (exchange->direct) {
        bytes = exchange->bytes;
        from = exchange->offset;
        if (exchange->memory != REFIT_MEMORY_STAGING) {
            if (views == NULL || exchange->parameter >= views->n_parameters)
                return refit_program_fail(program, step, error, "sends from no parameter");
            limit = views->parameters[exchange->parameter].bytes;
        }
    } else {
        bytes = exchange->wire_bytes + (exchange->wire_slots - 1) * exchange->wire_step;
    }
    return (from <= limit && bytes <= limit - from) ||
           refit_program_fail(program, step, error, "the message with rank %u leaves its memory",
                              exchange->peer);
}

/* Whether a turn has a chunk for all of `bytes` under one number, and its slot room for it. */
static gboolean chunks_fit(const RefitProgramStep *step, const RefitExchange *exchange,
                           guint64 bytes) {
    return refit_cutting_count(&step->cutting, bytes) <= step->n_chunks &&
           (exchange->direct || refit_cutting_most(&step->cutting, bytes) <= exchange->wire_bytes);
}

/* The step has a turn for each chunk, and slots have room for it: for what the exchange has under
 * each of its numbers, or for a bound on all of them. */
static gboolean check_chunks(const RefitProgram *program, guint step, const RefitExchange *exchange,
                             GError **error) {
    const RefitProgramStep *self = &program->steps[step];
    const RefitProgramPiece *pieces = &program->pieces[exchange->first_piece];
    guint64 bytes = 0;

    if (exchange->peer == program->rank)
        return TRUE;
    for (guint i = 0; i < exchange->n_pieces; i++)
        bytes += pieces[i].slices == 1
                     ? pieces[i].bytes
                     : MIN(pieces[i].bytes, pieces[i].bytes / pieces[i].slices + 17);
    if (chunks_fit(self, exchange, bytes))
        return TRUE;
    for (guint k = 0; exchange->sliced && k < self->n_numbers; k++) {
        bytes = refit_program_slices_bytes(pieces, exchange->n_pieces, self->number + k);
        if (!chunks_fit(self, exchange, bytes))
            break;
        if (k + 1 == self->n_numbers)
            return TRUE;
    }
    if (refit_cutting_count(&self->cutting, bytes) > self->n_chunks)
        return refit_program_fail(program, step, error,
                                  "has %u chunks, too few for %" G_GUINT64_FORMAT
                                  " bytes with rank %u",
                                  self->n_chunks, bytes, exchange->peer);
    return refit_program_fail(program, step, error, "a chunk is larger than its memory");
}

static gboolean check_exchange(const RefitProgram *program, guint step,
                               const RefitExchange *exchange, GError **error) {
    const RefitProgramStep *self = &program->steps[step];
    guint64 at = 0;

    if ((exchange->peer == program->rank) != (self->link == REFIT_LINK_LOCAL) ||
        exchange->peer >= program->plan->problem->n_ranks || exchange->n_pieces == 0 ||
        exchange->first_piece + exchange->n_pieces > program->n_pieces)
        return refit_program_fail(program, step, error, "has an exchange with rank %u",
                                  exchange->peer);
    for (guint i = 0; i < exchange->n_pieces; i++) {
        const RefitProgramPiece *piece = &program->pieces[exchange->first_piece + i];

        if (!check_piece(program, step, exchange, piece, at, error))
            return FALSE;
        at += piece->bytes;
    }
    if (at != exchange->bytes)
        return refit_program_fail(program, step, error,
                                  "the message with rank %u has %" G_GUINT64_FORMAT
                                  " bytes, its pieces %" G_GUINT64_FORMAT,
                                  exchange->peer, exchange->bytes, at);
    return check_memory_of(program, step, exchange, error) &&
           check_chunks(program, step, exchange, error);
}

static guint first_number(const RefitProgram *program, const RefitExchange *exchange) {
    guint first = G_MAXUINT;

    for (guint i = 0; i < exchange->n_pieces; i++)
        first = MIN(first, program->pieces[exchange->first_piece + i].number);
    return first;
}

static guint last_number(const RefitProgram *program, const RefitExchange *exchange) {
    guint last = 0;

    for (guint i = 0; i < exchange->n_pieces; i++) {
        const RefitProgramPiece *piece = &program->pieces[exchange->first_piece + i];

        last = MAX(last, piece->number + piece->slices - 1);
    }
    return last;
}

static gboolean check_exchanges(const RefitProgram *program, GError **error) {
    for (guint i = 0; i < program->n_steps; i++) {
        const RefitProgramStep *step = &program->steps[i];

        for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
            const RefitExchange *exchange = &program->exchanges[e], *before = exchange - 1;

            if (e > step->first_exchange &&
                (before->peer > exchange->peer ||
                 (before->peer == exchange->peer &&
                  (before->sends > exchange->sends ||
                   (before->sends == exchange->sends &&
                    last_number(program, before) >= first_number(program, exchange))))))
                return refit_program_fail(program, i, error, "meets rank %u twice", exchange->peer);
            if (!check_exchange(program, i, exchange, error))
                return FALSE;
        }
    }
    return TRUE;
}

typedef struct {
    guint64 base, step; /* of slot 0, from a slot to the next; step 0: no wire memory so far */
    guint n_turns;
} Wire;

/* Turns of a stream have slots of one size. */
static gboolean is_in_slot(const Wire *wire, const RefitExchange *exchange) {
    return exchange->wire_step == wire->step && exchange->wire >= wire->base &&
           exchange->wire_slots == MIN(wire->n_turns, REFIT_SCHEDULE_SLOTS) &&
           exchange->wire_bytes <= wire->step &&
           exchange->wire - wire->base <= wire->step - exchange->wire_bytes;
}

/* Exchanges of a step that move under the same number have no wire memory in common. */
static gboolean share_wire(const RefitProgram *program, const RefitExchange *a,
                           const RefitExchange *b) {
    return a->wire_bytes > 0 && b->wire_bytes > 0 && a->wire < b->wire + b->wire_bytes &&
           b->wire < a->wire + a->wire_bytes &&
           first_number(program, a) <= last_number(program, b) &&
           first_number(program, b) <= last_number(program, a);
}

static gboolean check_wires_of(const RefitProgram *program, guint step, const Wire *wire,
                               GError **error) {
    const RefitProgramStep *self = &program->steps[step];
    const RefitExchange *exchanges = &program->exchanges[self->first_exchange];

    for (guint e = 0; e < self->n_exchanges; e++) {
        gboolean right = exchanges[e].wire_bytes == 0 || is_in_slot(wire, &exchanges[e]);

        for (guint other = 0; right && other < e; other++)
            right = !share_wire(program, &exchanges[e], &exchanges[other]);
        if (!right)
            return refit_program_fail(program, step, error,
                                      "the wire memory of the message with rank %u is not that of "
                                      "its stream's slots alone",
                                      exchanges[e].peer);
    }
    return TRUE;
}

static gboolean check_wires(const RefitProgram *program, GError **error) {
    g_autofree Wire *wires = g_new0(Wire, MAX(program->n_streams, 1));

    for (guint i = 0; i < program->n_steps; i++) {
        const RefitProgramStep *step = &program->steps[i];
        Wire *wire = &wires[step->stream];

        wire->n_turns += step->n_numbers * step->n_chunks;
        for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
            const RefitExchange *exchange = &program->exchanges[e];

            if (exchange->wire_bytes == 0 || (wire->step > 0 && exchange->wire >= wire->base))
                continue;
            wire->base = exchange->wire;
            wire->step = exchange->wire_step;
        }
    }
    for (guint i = 0; i < program->n_steps; i++)
        if (!check_wires_of(program, i, &wires[program->steps[i].stream], error))
            return FALSE;
    return TRUE;
}

static gboolean check_accounts(const RefitProgram *program, GError **error) {
    const RefitRankAccount *account = &program->plan->accounts[program->rank];
    guint64 in[REFIT_N_LINKS] = {0}, out[REFIT_N_LINKS] = {0};

    for (guint i = 0; i < program->n_steps; i++) {
        const RefitProgramStep *step = &program->steps[i];

        for (guint e = step->first_exchange;
             !step->install && e < step->first_exchange + step->n_exchanges; e++) {
            const RefitExchange *exchange = &program->exchanges[e];

            out[step->link] +=
                exchange->sends || step->link == REFIT_LINK_LOCAL ? exchange->bytes : 0;
            in[step->link] += exchange->sends ? 0 : exchange->bytes;
        }
    }
    for (guint link = 0; link < REFIT_N_LINKS; link++)
        if (in[link] != account->in[link] || out[link] != account->out[link] ||
            in[link] != program->in[link] || out[link] != program->out[link])
            return refit_program_fail(program, G_MAXUINT, error,
                                      "moves %" G_GUINT64_FORMAT " bytes in and %" G_GUINT64_FORMAT
                                      " out over link class %s, the plan says %" G_GUINT64_FORMAT
                                      " and %" G_GUINT64_FORMAT,
                                      in[link], out[link], refit_link_name(link), account->in[link],
                                      account->out[link]);
    return TRUE;
}

gboolean refit_program_check(const RefitProgram *program, GError **error) {
    return check_steps(program, error) && check_turns(program, error) &&
           check_waits(program, error) && check_operations(program, error) &&
           check_exchanges(program, error) && check_wires(program, error) &&
           check_accounts(program, error) && refit_program_check_memory(program, error);
}
