/*
 * Damaged programs, as test-program-damage.c: staging memory, chunks, turns and slots. And that
 * staging memory is what the schedule says, down to the least budget.
 */

#include "program-damage.h"

/* ---- memory ---- */

/* The first exchange of the program that is packed; NULL. */
static RefitExchange *find_packed(const RefitProgram *program) {
    for (guint e = 0; e < program->n_exchanges; e++)
        if (program->exchanges[e].wire_bytes > 0)
            return &exchanges_of(program)[e];
    return NULL;
}

static void test_wires(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_packed = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];
        RefitExchange *exchange = find_packed(program);

        if (exchange == NULL)
            continue;
        RefitExchange kept = *exchange;
        n_packed++;
        exchange->wire = program->staging_bytes;
        assert_refused(program, "leaves its memory");
        *exchange = kept;
        exchange->wire_bytes = 1;
        assert_refused(program, "memory");
        *exchange = kept;
        assert_accepted(program);
    }
    g_assert_cmpuint(n_packed, >, 0);
}

/* Puts the wire memory of a stream somewhere else: its first place at `to`. */
static void move_wires(const RefitProgram *program, guint stream, guint64 from, guint64 to) {
    for (guint i = 0; i < program->n_steps; i++)
        for (guint e = program->steps[i].first_exchange;
             e < program->steps[i].first_exchange + program->steps[i].n_exchanges; e++)
            if (program->steps[i].stream == stream && program->exchanges[e].wire_bytes > 0)
                exchanges_of(program)[e].wire += to - from;
}

/* First place of a stream's wire memory; G_MAXUINT64: it has none. */
static guint64 find_wires(const RefitProgram *program, guint stream) {
    guint64 first = G_MAXUINT64;

    for (guint i = 0; i < program->n_steps; i++)
        for (guint e = program->steps[i].first_exchange;
             e < program->steps[i].first_exchange + program->steps[i].n_exchanges; e++)
            if (program->steps[i].stream == stream && program->exchanges[e].wire_bytes > 0)
                first = MIN(first, program->exchanges[e].wire);
    return first;
}

/* Messages and landings in one place: someone reads what somebody else wrote. */
static void test_shared_memory(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_refused = 0;

    for (guint rank = 4; rank < 8; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];
        guint64 at = G_MAXUINT64;

        for (guint c = 0; c < program->n_copies && at == G_MAXUINT64; c++)
            if (program->copies[c].to.memory == REFIT_MEMORY_STAGING)
                at = program->copies[c].to.base;
        for (guint s = 0; at != G_MAXUINT64 && s < program->n_streams; s++) {
            guint64 wires = find_wires(program, s);

            if (wires == G_MAXUINT64)
                continue;
            move_wires(program, s, wires, at);
            assert_refused(program, "staging memory at");
            n_refused++;
            move_wires(program, s, at, wires);
        }
        assert_accepted(program);
    }
    g_assert_cmpuint(n_refused, >, 0);
}

/* Messages of two streams in one place; where that is accepted, they never are at the same time. */
static void test_shared_streams(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_refused = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        for (guint s = 1; s < program->n_streams; s++)
            for (guint t = 0; t < s; t++) {
                guint64 wires = find_wires(program, s), others = find_wires(program, t);
                g_autoptr(GError) error = NULL;

                if (wires == G_MAXUINT64 || others == G_MAXUINT64)
                    continue;
                move_wires(program, s, wires, others);
                if (refit_program_check(program, &error)) {
                    g_autofree char *complaint =
                        program_set_run(fixture->set, PROGRAM_ORDER_RANDOM, rank);

                    g_assert_cmpstr(complaint, ==, NULL);
                } else {
                    g_assert_nonnull(strstr(error->message, "staging memory at"));
                    n_refused++;
                }
                move_wires(program, s, others, wires);
            }
        assert_accepted(program);
    }
    g_assert_cmpuint(n_refused, >, 0);
}

/* ---- chunks ---- */

/* A step in several chunks with an exchange that is packed; G_MAXUINT. */
static guint find_chunked(const RefitProgram *program) {
    for (guint i = 0; i < program->n_steps; i++)
        for (guint e = program->steps[i].first_exchange;
             e < program->steps[i].first_exchange + program->steps[i].n_exchanges; e++)
            if (program->exchanges[e].wire_bytes > 0 && program->steps[i].n_chunks > 1 &&
                program->exchanges[e].bytes > program->exchanges[e].wire_bytes)
                return i;
    return G_MAXUINT;
}

static void test_chunks(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];
        guint i = find_chunked(program);

        if (i == G_MAXUINT)
            continue;
        RefitProgramStep *step = &steps_of(program)[i], kept = *step;
        RefitTurn *turns = (RefitTurn *)program->turns;
        guint t = 0;

        n_found++;
        while (turns[t].step != i || turns[t].chunk == 0)
            t++;
        turns[t].chunk--;
        assert_refused(program, "has another number or chunk");
        turns[t].chunk += 2;
        assert_refused(program, "has another number or chunk");
        turns[t].chunk--;
        step->n_chunks--;
        assert_refused(program, "");
        step->n_chunks = 0;
        assert_refused(program, "has 0 of ");
        step->n_chunks = 1u << 31;
        assert_refused(program, "");
        *step = kept;
        step->cutting.grain--;
        assert_refused(program, "in grains of");
        step->cutting.grain = 0;
        assert_refused(program, "in grains of 0 bytes");
        step->cutting = (RefitCutting){step->n_chunks - 1, kept.cutting.grain};
        assert_refused(program, "in grains of");
        step->cutting.n = 0;
        assert_refused(program, "of 0 chunks");
        step->cutting = (RefitCutting){G_MAXUINT, REFIT_SCHEDULE_ALIGN};
        assert_refused(program, "too few for");
        step->cutting = (RefitCutting){kept.cutting.n, 1u << 20};
        assert_refused(program, "a chunk is larger than its memory");
        assert_disagree(fixture->set, "in grains of");
        *step = kept;
        assert_accepted(program);
    }
    g_assert_cmpuint(n_found, >, 0);
}

/* All exchanges of a stream agree on its slots, of which there are no more than it has turns. */
static void test_slots(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        for (guint e = 0; e < program->n_exchanges; e++) {
            RefitExchange *exchange = &exchanges_of(program)[e], kept = *exchange;

            if (kept.wire_bytes == 0)
                continue;
            n_found++;
            exchange->wire_slots--;
            assert_refused(program, "memory");
            exchange->wire_slots += 2;
            assert_refused(program, "memory");
            *exchange = kept;
            exchange->wire_step -= REFIT_SCHEDULE_ALIGN;
            assert_refused(program, "of its stream's slots alone");
            *exchange = kept;
            exchange->wire_step += REFIT_SCHEDULE_ALIGN;
            assert_refused(program, "memory");
            *exchange = kept;
            exchange->wire_bytes += kept.wire_step;
            assert_refused(program, "memory");
            *exchange = kept;
        }
        assert_accepted(program);
    }
    g_assert_cmpuint(n_found, >, 8);
}

/* Slots that the chunk before still uses: turns overlap in one place. */
static void test_busy_slots(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];
        gboolean packs = FALSE;

        for (guint e = 0; e < program->n_exchanges; e++) {
            RefitExchange *exchange = &exchanges_of(program)[e];

            if (exchange->wire_bytes == 0 || exchange->wire_slots < 2)
                continue;
            packs = TRUE;
            exchange->wire_step = exchange->wire_bytes / 2;
        }
        if (!packs)
            continue;
        n_found++;
        assert_refused(program, "of its stream's slots alone");
    }
    g_assert_cmpuint(n_found, >, 0);
    g_assert_true(goes_wrong(fixture->set));
}

/* Two exchanges of a step share bytes of a slot. */
static void test_shared_slots(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        for (guint i = 0; i < program->n_steps; i++)
            for (guint e = program->steps[i].first_exchange + 1;
                 e < program->steps[i].first_exchange + program->steps[i].n_exchanges; e++) {
                RefitExchange *exchange = &exchanges_of(program)[e];

                if (exchange->wire_bytes == 0 || exchange[-1].wire_bytes == 0)
                    continue;
                n_found++;
                exchange->wire -= REFIT_SCHEDULE_ALIGN;
                assert_refused(program, "of its stream's slots alone");
                exchange->wire += REFIT_SCHEDULE_ALIGN;
            }
        assert_accepted(program);
    }
    g_assert_cmpuint(n_found, >, 0);
}

/* Places of turns follow from where each step begins on its stream. */
static void test_first_turns(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        for (guint i = 0; i < program->n_steps; i++) {
            RefitProgramStep *step = &steps_of(program)[i];

            n_found++;
            step->first_turn++;
            assert_refused(program, "has another place on its stream");
            step->first_turn -= 2;
            assert_refused(program, "has another place on its stream");
            step->first_turn++;
        }
        assert_accepted(program);
    }
    g_assert_cmpuint(n_found, >, 8);
}

/* Neither end packs, so each alone is right. */
static void test_other_chunks(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        g_assert_null(find_packed(program));
        for (guint i = 0; i < program->n_steps; i++) {
            if (program->steps[i].link == REFIT_LINK_LOCAL)
                continue;
            n_found++;
            RefitCutting *cutting = &steps_of(program)[i].cutting;
            RefitCutting kept = *cutting;

            cutting->grain += REFIT_SCHEDULE_ALIGN;
            assert_accepted(program);
            assert_disagree(fixture->set, "in grains of");
            *cutting = kept;
            cutting->n++;
            assert_accepted(program);
            assert_disagree(fixture->set, "in grains of");
            *cutting = kept;
        }
    }
    g_assert_cmpuint(n_found, >=, 8);
}

/* ---- the budget ---- */

static void test_budget(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint64 least = program_least_staging(fixture->refit_case, fixture->plan);
    g_autoptr(GError) error = NULL;

    fixture->refit_case->budget_staging_bytes = least;
    g_autoptr(RefitSchedule) fits = refit_schedule_new(fixture->plan, &error);
    g_assert_no_error(error);
    g_assert_true(refit_schedule_check_budget(fits, &error));
    g_assert_no_error(error);
    fixture->refit_case->budget_staging_bytes = least - 1;
    g_autoptr(RefitSchedule) lacks = refit_schedule_new(fixture->plan, &error);
    g_assert_no_error(error);
    g_assert_false(refit_schedule_check_budget(lacks, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE);
    g_autofree char *figures =
        g_strdup_printf("needs %" G_GUINT64_FORMAT " bytes of staging memory", least);
    g_assert_nonnull(strstr(error->message, figures));
    g_assert_nonnull(strstr(error->message, "state a larger one"));
}

/* A program takes what its schedule says, and one with the least memory is right. */
static void test_staging(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    fixture->refit_case->budget_staging_bytes =
        program_least_staging(fixture->refit_case, fixture->plan);
    g_autoptr(ProgramSet) set = program_set_new(fixture->plan);

    for (guint rank = 0; rank < set->n_ranks; rank++) {
        g_assert_cmpuint(set->programs[rank]->staging_bytes, ==,
                         refit_schedule_staging_bytes(set->schedule, rank));
        g_assert_cmpuint(set->programs[rank]->staging_bytes, <=,
                         fixture->refit_case->budget_staging_bytes);
    }
    program_set_assert_right(set, 9);
}

#define ADD(path, strategy, func)                                                                  \
    g_test_add("/program-memory/" path, Fixture, strategy, set_up, func, tear_down)
#define ADD_ROWS(path, strategy, func)                                                             \
    g_test_add("/program-memory/" path, Fixture, strategy, set_up_chunks_of_rows, func, tear_down)
#define ADD_CHUNKS(path, strategy, func)                                                           \
    g_test_add("/program-memory/" path, Fixture, strategy, set_up_chunks, func, tear_down)

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    ADD("gather-broadcast/wire-memory-is-inside", "gather-broadcast", test_wires);
    ADD("gather-broadcast/memory-for-two-things", "gather-broadcast", test_shared_memory);
    ADD_CHUNKS("refit/memory-of-two-streams", "refit", test_shared_streams);
    ADD("gather-broadcast/memory-of-two-streams", "gather-broadcast", test_shared_streams);
    ADD_CHUNKS("direct/chunks-and-their-turns", "direct", test_chunks);
    ADD_CHUNKS("refit/chunks-and-their-turns", "refit", test_chunks);
    ADD_CHUNKS("direct/slots-of-a-stream", "direct", test_slots);
    ADD("gather-broadcast/slots-of-a-stream", "gather-broadcast", test_slots);
    ADD_CHUNKS("direct/a-slot-in-use", "direct", test_busy_slots);
    ADD_CHUNKS("refit/slots-of-two-exchanges", "refit", test_shared_slots);
    ADD_CHUNKS("refit/places-of-turns", "refit", test_first_turns);
    ADD("gather-broadcast/places-of-turns", "gather-broadcast", test_first_turns);
    ADD_ROWS("direct/ends-cut-alike", "direct", test_other_chunks);
    ADD("gather-broadcast/staging-budget-holds", "gather-broadcast", test_budget);
    ADD("gather-broadcast/staging-memory-is-that-of-the-schedule", "gather-broadcast",
        test_staging);
    return g_test_run();
}
