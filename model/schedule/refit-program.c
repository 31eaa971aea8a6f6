/*
 * Reading a program: what moves in a turn, and its runs.
 *
 * Under each number a message is slices of its pieces, one after the other, and a turn moves one
 * chunk of that. Runs come from the two views of a copy, element by element where they must
 * (refit-view-runs.c). Those of a part of a piece are the runs of the rows in which it lies, cut to
 * it; rows are those of the first dim that has more than one. Cost: the runs of these rows.
 */

#include "model/schedule/refit-program-private.h"

const char *refit_memory_name(RefitMemory memory) {
    static const char *const names[] = {"source", "destination", "staging", "message"};

    return names[memory];
}

void refit_program_slice(const RefitProgramPiece *piece, guint number, guint64 *from_out,
                         guint64 *to_out) {
    *from_out = *to_out = 0;
    if (number < piece->number || number - piece->number >= piece->slices)
        return;
    *from_out = refit_schedule_cut(piece->bytes, piece->slices, number - piece->number);
    *to_out = refit_schedule_cut(piece->bytes, piece->slices, number - piece->number + 1);
}

guint refit_program_turn_place(const RefitProgram *program, const RefitTurn *turn) {
    const RefitProgramStep *step = &program->steps[turn->step];

    return step->first_turn + refit_schedule_turn_place(step, turn);
}

guint64 refit_program_slices_bytes(const RefitProgramPiece *pieces, guint n, guint number) {
    guint64 bytes = 0, from, to;

    for (guint i = 0; i < n; i++) {
        refit_program_slice(&pieces[i], number, &from, &to);
        bytes += to - from;
    }
    return bytes;
}

/* The bytes [*from_out, *to_out) of what the exchange moves under the turn's number. */
static void find_chunk(const RefitProgram *program, const RefitExchange *exchange,
                       const RefitTurn *turn, guint64 *from_out, guint64 *to_out) {
    const RefitCutting *cutting = &program->steps[turn->step].cutting;
    guint64 bytes = exchange->bytes;

    if (exchange->sliced)
        bytes = refit_program_slices_bytes(&program->pieces[exchange->first_piece],
                                           exchange->n_pieces, turn->number);
    *from_out = refit_cutting_border(cutting, bytes, turn->chunk);
    *to_out = refit_cutting_border(cutting, bytes, turn->chunk + 1);
}

guint64 refit_program_exchange_bytes(const RefitProgram *program, const RefitExchange *exchange,
                                     const RefitTurn *turn) {
    guint64 from, to;

    find_chunk(program, exchange, turn, &from, &to);
    return to - from;
}

guint64 refit_program_exchange_offset(const RefitProgram *program, const RefitExchange *exchange,
                                      const RefitTurn *turn) {
    guint64 from = 0, chunk_from, to;

    if (!exchange->direct)
        return exchange->wire +
               refit_program_turn_place(program, turn) % REFIT_SCHEDULE_SLOTS * exchange->wire_step;
    if (exchange->sliced)
        refit_program_slice(&program->pieces[exchange->first_piece], turn->number, &from, &to);
    find_chunk(program, exchange, turn, &chunk_from, &to);
    return exchange->offset + from + chunk_from;
}

static void append_run(GArray *runs, guint first, const RefitByteRun *run) {
    RefitByteRun *last =
        runs->len > first ? &g_array_index(runs, RefitByteRun, runs->len - 1) : NULL;

    if (last != NULL && last->from_memory == run->from_memory &&
        last->to_memory == run->to_memory && last->from_parameter == run->from_parameter &&
        last->to_parameter == run->to_parameter && last->from + last->bytes == run->from &&
        last->to + last->bytes == run->to)
        last->bytes += run->bytes;
    else
        g_array_append_vals(runs, run, 1);
}

static guint parameter_of(const RefitPlace *place) {
    return place->memory <= REFIT_MEMORY_DESTINATION ? place->view->parameter : 0;
}

/* Cuts a run to bytes [from, to) of its piece, which are at `at` of the message. FALSE when nothing
 * is left. */
static gboolean cut_run(RefitByteRun *run, guint64 from, guint64 to, guint64 at) {
    guint64 *inside = run->from_memory == REFIT_MEMORY_MESSAGE ? &run->from : &run->to;
    guint64 *outside = run->from_memory == REFIT_MEMORY_MESSAGE ? &run->to : &run->from;
    guint64 lo = MAX(*inside, from), hi = MIN(*inside + run->bytes, to);

    if (lo >= hi)
        return FALSE;
    *outside += lo - *inside;
    *inside = at + lo - from;
    run->bytes = hi - lo;
    return TRUE;
}

/* The rows of a region in which its elements [from, to), in row-major order, lie. from < to. */
static RefitRegion rows_between(const RefitRegion *region, guint64 from, guint64 to) {
    RefitRegion rows = refit_region_copy(region);
    guint64 volume = refit_region_volume(region);

    for (guint d = 0; d < region->n_dims; d++) {
        volume /= region->dims[d]->extent;
        guint64 first = from / volume, last = (to - 1) / volume;

        refit_interval_list_unref(rows.dims[d]);
        rows.dims[d] = refit_interval_list_slice(region->dims[d], first, last + 1);
        if (first < last)
            break;
        from -= first * volume;
        to -= first * volume;
    }
    return rows;
}

/* Elements of a copy among bytes [from, to) of its piece, and others of the same rows. */
static RefitRegion narrow(const RefitProgramPiece *piece, const RefitCopy *copy, guint64 from,
                          guint64 to) {
    const RefitView *message =
        copy->from.memory == REFIT_MEMORY_MESSAGE ? copy->from.view : copy->to.view;
    guint width = refit_dtype_bits(piece->dtype) / 8;

    /* Rows of smaller elements may begin inside a byte. */
    if (width == 0 || (from == 0 && to == piece->bytes))
        return refit_region_copy(copy->region);
    g_auto(RefitRegion) rows =
        rows_between(&message->region, from / width, to / width + (to % width > 0 ? 1 : 0));
    return refit_region_intersect(copy->region, &rows);
}

typedef struct {
    const RefitProgramPiece *piece;
    gboolean local;   /* no side is the message */
    guint64 from, to; /* bytes of the piece that move */
    guint64 at;       /* where they begin in what the exchange moves in the turn */
} Part;

static void append_copy(const Part *part, const RefitCopy *copy, GArray *elements, GArray *runs,
                        guint first) {
    RefitDtype dtype = part->piece->dtype;
    g_auto(RefitRegion) region = {0};
    const RefitRegion *narrowed = copy->region;

    if (!part->local) {
        region = narrow(part->piece, copy, part->from, part->to);
        narrowed = &region;
        if (refit_region_is_empty(&region))
            return;
    }
    g_array_set_size(elements, 0);
    refit_view_append_runs(copy->from.view, copy->to.view, narrowed, elements);
    for (guint r = 0; r < elements->len; r++) {
        const RefitRun *run = &g_array_index(elements, RefitRun, r);
        RefitByteRun bytes = {(guint8)copy->from.memory,
                              (guint8)copy->to.memory,
                              parameter_of(&copy->from),
                              parameter_of(&copy->to),
                              copy->from.base + refit_program_bytes(dtype, run->from),
                              copy->to.base + refit_program_bytes(dtype, run->to),
                              refit_program_bytes(dtype, run->length)};

        if (part->local || cut_run(&bytes, part->from, part->to, part->at))
            append_run(runs, first, &bytes);
    }
}

void refit_program_append_runs(const RefitProgram *program, const RefitExchange *exchange,
                               const RefitTurn *turn, GArray *runs) {
    g_autoptr(GArray) elements = g_array_new(FALSE, FALSE, sizeof(RefitRun));
    guint64 lo, hi, at = 0, from, to; /* of what the number carries */
    guint first = runs->len;

    find_chunk(program, exchange, turn, &lo, &hi);
    for (guint i = 0; i < exchange->n_pieces && at < hi; i++) {
        const RefitProgramPiece *piece = &program->pieces[exchange->first_piece + i];

        refit_program_slice(piece, turn->number, &from, &to);
        guint64 begin = MAX(at, lo), end = MIN(at + (to - from), hi);
        const Part part = {piece, exchange->peer == program->rank, from + begin - at,
                           from + end - at, begin - lo};

        for (guint c = piece->first_copy; begin < end && c < piece->first_copy + piece->n_copies;
             c++)
            append_copy(&part, &program->copies[c], elements, runs, first);
        at += to - from;
    }
}

void refit_program_free(RefitProgram *program) {
    if (program == NULL)
        return;
    g_free((gpointer)program->steps);
    g_free((gpointer)program->turns);
    g_free((gpointer)program->exchanges);
    g_free((gpointer)program->pieces);
    g_free((gpointer)program->copies);
    g_free((gpointer)program->waits);
    g_ptr_array_unref(((RefitProgramStorage *)program)->regions);
    g_free(program);
}
