/*
 * Damaged programs: each proof names what is wrong. One thing is changed in a right program, the
 * proof or the comparison of ends must refuse it, and where it can be run, it must go wrong in some
 * order of events (so the reference executor can fail, too): waits left out or turned round, order,
 * peers, pieces, copies, accounts; what cannot be made.
 */

#include "program-damage.h"

/* ---- waits ---- */

/* Without any of its waits, a step that sends on is refused. */
static void test_no_waits(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_refused = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        for (guint i = 0; i < program->n_steps; i++)
            steps_of(program)[i].n_waits = 0;
        g_autoptr(GError) error = NULL;
        if (!refit_program_check(program, &error))
            n_refused++;
    }
    g_assert_cmpuint(n_refused, >=, 4);
    g_assert_true(goes_wrong(fixture->set));
}

/* Each wait of every rank alone: where its loss is accepted, another one says the same. */
static void test_each_wait(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_refused = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        for (guint i = 0; i < program->n_steps; i++) {
            RefitProgramStep *step = &steps_of(program)[i];

            for (guint w = 0; w < step->n_waits; w++) {
                RefitWait *waits = (RefitWait *)program->waits + step->first_wait;
                RefitWait lost = waits[w];
                g_autoptr(GError) error = NULL;

                waits[w] = waits[step->n_waits - 1];
                step->n_waits--;
                if (refit_program_check(program, &error)) {
                    g_autofree char *complaint =
                        program_set_run(fixture->set, PROGRAM_ORDER_RANDOM, rank + i);
                    g_assert_cmpstr(complaint, ==, NULL);
                } else {
                    n_refused++;
                }
                step->n_waits++;
                waits[step->n_waits - 1] = waits[w];
                waits[w] = lost;
            }
        }
        assert_accepted(program);
    }
    g_assert_cmpuint(n_refused, >=, 4);
}

static void test_forward_wait(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    const RefitProgram *program = fixture->set->programs[4];

    for (guint i = 0; i < program->n_steps; i++) {
        RefitProgramStep *step = &steps_of(program)[i];

        if (step->n_waits == 0)
            continue;
        RefitWait *wait = (RefitWait *)&program->waits[step->first_wait];
        RefitWait kept = *wait;

        *wait = (RefitWait){i, FALSE};
        assert_refused(program, "does not end before");
        *wait = (RefitWait){program->n_steps - 1, FALSE};
        assert_refused(program, "does not end before");
        *wait = (RefitWait){program->n_steps, FALSE};
        assert_refused(program, "waits for no step");
        *wait = kept;
    }
    assert_accepted(program);
}

/* ---- order, messages and copies ---- */

static void test_order(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    const RefitProgram *program = fixture->set->programs[4];
    RefitTurn *turns = (RefitTurn *)program->turns, turn = turns[0];
    RefitProgramStep *steps = steps_of(program), step = steps[0];

    g_assert_cmpuint(program->n_turns, >, 1);
    turns[0] = turns[1];
    turns[1] = turn;
    assert_refused(program, "turn");
    turns[1] = turns[0];
    turns[0] = turn;
    assert_accepted(program);
    steps[0].number = steps[program->n_steps - 1].number;
    assert_refused(program, "step");
    steps[0] = step;
    steps[0].stream++;
    assert_refused(program, "is not a step of the plan");
    steps[0] = step;
    assert_accepted(program);
}

static void test_messages(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    const RefitProgram *program = fixture->set->programs[4];
    RefitExchange *exchange = exchanges_of(program), kept = *exchange;
    RefitProgramPiece *piece = &pieces_of(program)[exchange->first_piece], whole = *piece;

    exchange->peer = program->rank;
    assert_refused(program, "exchange with rank");
    *exchange = kept;
    exchange->peer++;
    assert_refused(program, "is not part of it");
    *exchange = kept;
    exchange->bytes++;
    assert_refused(program, "bytes");
    *exchange = kept;
    exchange->n_pieces--;
    assert_refused(program, "");
    *exchange = kept;
    piece->bytes -= 2;
    assert_refused(program, "other bytes or another place");
    *piece = whole;
    piece->at += 2;
    assert_refused(program, "other bytes or another place");
    *piece = whole;
    piece->number++;
    assert_refused(program, "");
    *piece = whole;
    piece->n_copies = 0;
    assert_refused(program, "has no copies");
    *piece = whole;
    assert_accepted(program);
}

/* The program with an exchange cut in two behind its first piece. */
static RefitProgram cut_in_two(const RefitProgram *program, guint step, guint number) {
    RefitProgram cut = *program;
    RefitProgramStep *steps = g_memdup2(program->steps, program->n_steps * sizeof *steps);
    RefitExchange *exchanges = g_new(RefitExchange, program->n_exchanges + 1);
    RefitExchange *first = &exchanges[number];
    const RefitProgramPiece *pieces = &program->pieces[program->exchanges[number].first_piece];

    memcpy(exchanges, program->exchanges, (number + 1) * sizeof *exchanges);
    memcpy(&first[1], &program->exchanges[number],
           (program->n_exchanges - number) * sizeof *exchanges);
    first[0].n_pieces = 1;
    first[0].bytes = pieces[0].bytes;
    first[1].first_piece++;
    first[1].n_pieces--;
    first[1].bytes -= pieces[0].bytes;
    for (guint i = 0; i < program->n_steps; i++)
        steps[i].first_exchange += steps[i].first_exchange > number ? 1 : 0;
    steps[step].n_exchanges++;
    cut.n_exchanges++;
    cut.steps = steps;
    cut.exchanges = exchanges;
    return cut;
}

/* What goes to one peer under one number is one message. */
static void test_overlaps(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        for (guint i = 0; i < program->n_steps; i++)
            for (guint e = 0; e < program->steps[i].n_exchanges; e++) {
                guint number = program->steps[i].first_exchange + e;

                if (program->steps[i].link == REFIT_LINK_LOCAL ||
                    program->exchanges[number].n_pieces < 2)
                    continue;
                RefitProgram cut = cut_in_two(program, i, number);
                g_autofree char *words =
                    g_strdup_printf("meets rank %u twice", program->exchanges[number].peer);

                assert_refused(&cut, words);
                n_found++;
                g_free((gpointer)cut.steps);
                g_free((gpointer)cut.exchanges);
            }
    }
    g_assert_cmpuint(n_found, >, 0);
}

static void test_copies(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    const RefitProgram *program = fixture->set->programs[4];
    RefitCopy *copies = (RefitCopy *)program->copies;

    for (guint c = 0; c < program->n_copies; c++) {
        RefitCopy kept = copies[c];
        g_auto(RefitRegion) part = refit_region_stripe(kept.region, 2, 1, 0);

        copies[c].region = &part;
        assert_refused(program, "not all of its region");
        copies[c] = kept;
        copies[c].from = kept.to;
        copies[c].to = kept.from;
        assert_refused(program, "copies from");
        copies[c] = kept;
        if (kept.to.memory == REFIT_MEMORY_STAGING) {
            copies[c].to.base = program->staging_bytes;
            assert_refused(program, "leaves its place in staging");
        }
        copies[c] = kept;
    }
    assert_accepted(program);
}

static void test_accounts(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    RefitProgram *program = fixture->set->programs[4];

    program->in[REFIT_LINK_NETWORK]++;
    assert_refused(program, "over link class network");
    program->in[REFIT_LINK_NETWORK]--;
    assert_accepted(program);
}

/* ---- both ends ---- */

static void test_ends(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    RefitProgram **programs = fixture->set->programs, *receiver = programs[4];
    RefitExchange *exchange = exchanges_of(receiver), kept = *exchange;
    RefitProgramPiece *piece = &pieces_of(receiver)[exchange->first_piece], whole = *piece;

    exchange->bytes++;
    assert_disagree(fixture->set, "other pieces");
    *exchange = kept;
    piece->tensor++;
    assert_disagree(fixture->set, "other pieces");
    *piece = whole;
    piece->at += 16;
    assert_disagree(fixture->set, "other pieces");
    *piece = whole;
    exchange->sends = !exchange->sends;
    assert_disagree(fixture->set, "one end");
    *exchange = kept;
    programs[4] = NULL;
    assert_disagree(fixture->set, "one end");
    programs[4] = receiver;
}

/* ---- refusals of the maker ---- */

static void test_no_views(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_program_new(fixture->set->schedule, 0, NULL, NULL, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    g_assert_nonnull(strstr(error->message, "neither in a parameter nor from an arrival"));
}

static void test_no_room(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    g_autoptr(GError) error = NULL;

    g_assert_null(
        refit_program_new(fixture->set->schedule, 4, NULL, fixture->set->source[0], &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    g_assert_nonnull(strstr(error->message, "has no parameter for all of it"));
}

#define ADD(path, strategy, func)                                                                  \
    g_test_add("/program-damage/" path, Fixture, strategy, set_up, func, tear_down)
int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    ADD("refit/waits-left-out-are-missed", "refit", test_no_waits);
    ADD("ring/waits-left-out-are-missed", "ring", test_no_waits);
    ADD("gather-broadcast/waits-left-out-are-missed", "gather-broadcast", test_no_waits);
    ADD("refit/each-wait-that-matters-is-missed", "refit", test_each_wait);
    ADD("gather-broadcast/each-wait-that-matters-is-missed", "gather-broadcast", test_each_wait);
    ADD("refit/waits-look-back", "refit", test_forward_wait);
    ADD("gather-broadcast/waits-look-back", "gather-broadcast", test_forward_wait);
    ADD("refit/order-of-turns", "refit", test_order);
    ADD("gather-broadcast/order-of-turns", "gather-broadcast", test_order);
    ADD("refit/messages", "refit", test_messages);
    ADD("refit/a-peer-is-met-once-under-a-number", "refit", test_overlaps);
    ADD("gather-broadcast/a-peer-is-met-once-under-a-number", "gather-broadcast", test_overlaps);
    ADD("refit/copies", "refit", test_copies);
    ADD("gather-broadcast/copies", "gather-broadcast", test_copies);
    ADD("refit/accounts", "refit", test_accounts);
    ADD("refit/both-ends-say-the-same", "refit", test_ends);
    ADD("ring/both-ends-say-the-same", "ring", test_ends);
    ADD("refit/nothing-to-send-from", "refit", test_no_views);
    ADD("direct/nowhere-to-receive", "direct", test_no_room);
    return g_test_run();
}
