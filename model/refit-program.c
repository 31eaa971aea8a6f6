/*
 * Reading a program: slices and runs.
 *
 * Runs come from the two views of a copy, element by element where they must (refit-view-runs.c).
 * The runs of a sliced piece are those of the whole piece cut to the part that its slice has in the
 * message, whose order is the piece's own. Cost: the runs of the pieces.
 */

#include "refit-program-private.h"

const char *refit_memory_name(RefitMemory memory) {
    static const char *const names[] = {"source", "destination", "staging", "message"};

    return names[memory];
}

void refit_program_slice(const RefitProgramPiece *piece, guint number, guint64 *from_out,
                         guint64 *to_out) {
    *from_out = *to_out = 0;
    if (number < piece->number || number - piece->number >= piece->slices)
        return;
    *from_out = refit_program_cut(piece->bytes, piece->slices, number - piece->number);
    *to_out = refit_program_cut(piece->bytes, piece->slices, number - piece->number + 1);
}

guint64 refit_program_exchange_bytes(const RefitProgram *program, const RefitExchange *exchange,
                                     guint number) {
    guint64 bytes = 0, from, to;

    if (!exchange->sliced)
        return exchange->bytes;
    for (guint i = 0; i < exchange->n_pieces; i++) {
        refit_program_slice(&program->pieces[exchange->first_piece + i], number, &from, &to);
        bytes += to - from;
    }
    return bytes;
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

void refit_program_append_runs(const RefitProgram *program, const RefitExchange *exchange,
                               guint number, GArray *runs) {
    g_autoptr(GArray) elements = g_array_new(FALSE, FALSE, sizeof(RefitRun));
    guint first = runs->len;
    guint64 at = 0, from, to;

    for (guint i = 0; i < exchange->n_pieces; i++) {
        const RefitProgramPiece *piece = &program->pieces[exchange->first_piece + i];

        refit_program_slice(piece, number, &from, &to);
        for (guint c = piece->first_copy; from < to && c < piece->first_copy + piece->n_copies;
             c++) {
            const RefitCopy *copy = &program->copies[c];

            g_array_set_size(elements, 0);
            refit_view_append_runs(copy->from.view, copy->to.view, copy->region, elements);
            for (guint r = 0; r < elements->len; r++) {
                const RefitRun *run = &g_array_index(elements, RefitRun, r);
                RefitByteRun bytes = {(guint8)copy->from.memory,
                                      (guint8)copy->to.memory,
                                      parameter_of(&copy->from),
                                      parameter_of(&copy->to),
                                      copy->from.base +
                                          refit_program_bytes(piece->dtype, run->from),
                                      copy->to.base + refit_program_bytes(piece->dtype, run->to),
                                      refit_program_bytes(piece->dtype, run->length)};

                if (exchange->peer == program->rank || cut_run(&bytes, from, to, at))
                    append_run(runs, first, &bytes);
            }
        }
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
