/*
 * Proof that programs agree: every message has both of its ends.
 *
 * The ends of all messages are sorted by what identifies a message (receiver, sender, batch, stage,
 * first number), so that the two of one message are neighbours. Cost: sort of the messages, and
 * their pieces.
 */

#include "model/schedule/refit-program-check.h"

typedef struct {
    guint src, dst, batch, stage, link, number;
    gboolean sends;
    const RefitProgram *program;
    guint step;
    const RefitExchange *exchange;
} End;

static int compare_numbers(guint a, guint b) {
    return (a > b) - (a < b);
}

/* Of the message; its sender's end comes first. */
static int compare_messages(const End *a, const End *b) {
    int order = compare_numbers(a->dst, b->dst);

    order = order != 0 ? order : compare_numbers(a->src, b->src);
    order = order != 0 ? order : compare_numbers(a->batch, b->batch);
    order = order != 0 ? order : compare_numbers(a->stage, b->stage);
    order = order != 0 ? order : compare_numbers(a->link, b->link);
    return order != 0 ? order : compare_numbers(a->number, b->number);
}

static int compare_ends(gconstpointer left, gconstpointer right) {
    const End *a = left, *b = right;
    int order = compare_messages(a, b);

    return order != 0 ? order : (a->sends ? 0 : 1) - (b->sends ? 0 : 1);
}

static void list_ends(const RefitProgram *program, GArray *ends) {
    for (guint s = 0; s < program->n_steps; s++) {
        const RefitProgramStep *step = &program->steps[s];

        for (guint e = step->first_exchange;
             step->link != REFIT_LINK_LOCAL && e < step->first_exchange + step->n_exchanges; e++) {
            const RefitExchange *exchange = &program->exchanges[e];
            End end = {.src = exchange->sends ? program->rank : exchange->peer,
                       .dst = exchange->sends ? exchange->peer : program->rank,
                       .batch = step->batch,
                       .stage = step->stage,
                       .link = step->link,
                       .number = G_MAXUINT,
                       .sends = exchange->sends,
                       .program = program,
                       .step = s,
                       .exchange = exchange};

            for (guint i = 0; i < exchange->n_pieces; i++)
                end.number = MIN(end.number, program->pieces[exchange->first_piece + i].number);
            g_array_append_val(ends, end);
        }
    }
}

static gboolean same_piece(const RefitProgramPiece *a, const RefitProgramPiece *b) {
    return a->transfer == b->transfer && a->tensor == b->tensor && a->dtype == b->dtype &&
           a->slices == b->slices && a->number == b->number && a->bytes == b->bytes &&
           a->at == b->at;
}

static gboolean check_ends(const End *sends, const End *receives, GError **error) {
    const RefitExchange *a = sends->exchange, *b = receives->exchange;
    gboolean same = a->bytes == b->bytes && a->n_pieces == b->n_pieces && a->sliced == b->sliced;
    const RefitCutting *cutting = &sends->program->steps[sends->step].cutting;
    const RefitCutting *other = &receives->program->steps[receives->step].cutting;

    if (cutting->n != other->n || cutting->grain != other->grain)
        return refit_program_fail(sends->program, sends->step, error,
                                  "sends %u chunks in grains of %" G_GUINT64_FORMAT
                                  " bytes, rank %u expects %u of %" G_GUINT64_FORMAT,
                                  cutting->n, cutting->grain, receives->dst, other->n,
                                  other->grain);
    for (guint i = 0; same && i < a->n_pieces; i++)
        same = same_piece(&sends->program->pieces[a->first_piece + i],
                          &receives->program->pieces[b->first_piece + i]);
    return same || refit_program_fail(sends->program, sends->step, error,
                                      "sends other pieces than rank %u expects", receives->dst);
}

gboolean refit_programs_check(const RefitProgram *const *programs, guint n, GError **error) {
    g_autoptr(GArray) ends = g_array_new(FALSE, FALSE, sizeof(End));

    for (guint rank = 0; rank < n; rank++)
        if (programs[rank] != NULL)
            list_ends(programs[rank], ends);
    g_array_sort(ends, compare_ends);
    for (guint i = 0; i < ends->len; i += 2) {
        const End *end = &g_array_index(ends, End, i);

        if (i + 1 == ends->len || compare_messages(end, end + 1) != 0 || !end->sends ||
            end[1].sends)
            return refit_program_fail(end->program, end->step, error,
                                      "the message from rank %u to rank %u has one end", end->src,
                                      end->dst);
        if (!check_ends(end, end + 1, error))
            return FALSE;
    }
    return TRUE;
}
