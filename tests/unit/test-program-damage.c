/*
 * Damaged programs: each proof names what is wrong. One thing is changed in a right program, the
 * proof or the comparison of ends must refuse it, and where it can be run, it must go wrong in some
 * order of events (so the reference executor can fail, too): waits left out or turned round, order,
 * peers, pieces, copies, chunks, slots, staging memory, accounts; budget and limits.
 */

#include "program-run.h"
#include "strategy-cases.h"

typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitPlan *plan;
    ProgramSet *set;
} Fixture;

/*
 * Four sources with a quarter each, and four destinations that need all, so that every kind of wait
 * occurs. `strategy`.
 */
static const StrategyCase spread = {
    .topology = "node:4 gpu:2 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: \"a.{0-5}.weight\", shape: [16, 12], dtype: bf16, role: other}\n"
               "  - {name: b, shape: [40], dtype: F32, role: other}\n",
    .source = "ranks: [0-3], rules: [{tensors: \"*\", mesh: [4], place: [{shard: 0}]}]",
    .pools = {"ranks: [4-7], rules: [{tensors: \"*\", mesh: [4], place: [replicate]}]"}};

/* The same with messages of kilobytes. */
static const StrategyCase large = {
    .topology = "node:4 gpu:2 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: \"a.{0-5}.weight\", shape: [64, 24], dtype: bf16, role: other}\n"
               "  - {name: b, shape: [400], dtype: F32, role: other}\n",
    .source = "ranks: [0-3], rules: [{tensors: \"a.*\", mesh: [4], place: [{shard: 1}]}, "
              "{tensors: b, mesh: [4], place: [{shard: 0}]}]",
    .pools = {"ranks: [4-7], rules: [{tensors: \"*\", mesh: [4], place: [replicate]}]"}};

/* Rows of one tensor: no message has to be packed. */
static const StrategyCase rows = {
    .topology = "node:4 gpu:2 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: a, shape: [64, 48], dtype: bf16, role: other}\n",
    .source = "ranks: [0-3], rules: [{tensors: a, mesh: [4], place: [{shard: 0}]}]",
    .pools = {"ranks: [4-7], rules: [{tensors: a, mesh: [4], place: [replicate]}]"}};

static void set_up_plan(Fixture *fixture, const StrategyCase *described, const char *strategy) {
    fixture->refit_case = strategy_case_new(described);
    fixture->refit_case->profile->stripe_bytes.value = 16;
    fixture->refit_case->profile->slice_bytes.value = 64;
    fixture->refit_case->profile->bucket_bytes.value = 1000;
    fixture->refit_case->profile->batches = 3;
    fixture->problem = plan_case_problem(fixture->refit_case);
    fixture->plan = strategy_plan(fixture->problem, strategy);
}

static void set_up(Fixture *fixture, gconstpointer strategy) {
    set_up_plan(fixture, &spread, strategy);
    fixture->set = program_set_new(fixture->plan);
}

static void set_up_chunks_of(Fixture *fixture, const StrategyCase *described,
                             const char *strategy) {
    set_up_plan(fixture, described, strategy);
    fixture->refit_case->budget_staging_bytes =
        3 * program_least_staging(fixture->refit_case, fixture->plan);
    fixture->set = program_set_new(fixture->plan);
}

/* In chunks of two to three times the smallest size. */
static void set_up_chunks(Fixture *fixture, gconstpointer strategy) {
    set_up_chunks_of(fixture, &large, strategy);
}

static void set_up_chunks_of_rows(Fixture *fixture, gconstpointer strategy) {
    set_up_chunks_of(fixture, &rows, strategy);
}

static void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    program_set_free(fixture->set);
    refit_plan_free(fixture->plan);
    refit_problem_free(fixture->problem);
    refit_case_free(fixture->refit_case);
}

static void assert_refused(const RefitProgram *program, const char *words) {
    g_autoptr(GError) error = NULL;

    g_assert_false(refit_program_check(program, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    if (strstr(error->message, words) == NULL)
        g_error("\"%s\" is not in: %s", words, error->message);
}

static void assert_accepted(const RefitProgram *program) {
    g_autoptr(GError) error = NULL;

    g_assert_true(refit_program_check(program, &error));
    g_assert_no_error(error);
}

static void assert_disagree(const ProgramSet *set, const char *words) {
    g_autoptr(GError) error = NULL;

    g_assert_false(
        refit_programs_check((const RefitProgram *const *)set->programs, set->n_ranks, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    if (strstr(error->message, words) == NULL)
        g_error("\"%s\" is not in: %s", words, error->message);
}

static RefitProgramStep *steps_of(const RefitProgram *program) {
    return (RefitProgramStep *)program->steps;
}

static RefitExchange *exchanges_of(const RefitProgram *program) {
    return (RefitExchange *)program->exchanges;
}

static RefitProgramPiece *pieces_of(const RefitProgram *program) {
    return (RefitProgramPiece *)program->pieces;
}

/* ---- waits ---- */

/* Some seed of some order must end with wrong bytes. */
static gboolean goes_wrong(const ProgramSet *set) {
    for (guint seed = 0; seed < 200; seed++) {
        g_autofree char *complaint = program_set_run(set, PROGRAM_ORDER_RANDOM, seed);

        if (complaint != NULL)
            return TRUE;
    }
    return FALSE;
}

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

static void test_copies(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    const RefitProgram *program = fixture->set->programs[4];
    RefitCopy *copies = (RefitCopy *)program->copies;

    for (guint c = 0; c < program->n_copies; c++) {
        RefitCopy kept = copies[c];
        g_auto(RefitRegion) part = refit_region_stripe(kept.region, 2, 0);

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

/* Messages and landings in one place: someone reads what somebody else wrote. */
static void test_shared_memory(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_refused = 0;

    for (guint rank = 4; rank < 8; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];
        RefitCopy *copies = (RefitCopy *)program->copies;
        RefitExchange *exchange = find_packed(program);
        guint64 at = G_MAXUINT64;

        for (guint c = 0; c < program->n_copies && at == G_MAXUINT64; c++)
            if (copies[c].to.memory == REFIT_MEMORY_STAGING)
                at = copies[c].to.base;
        if (exchange == NULL || at == G_MAXUINT64)
            continue;
        RefitExchange kept = *exchange;

        exchange->wire = at;
        assert_refused(program, "staging memory");
        n_refused++;
        *exchange = kept;
    }
    g_assert_cmpuint(n_refused, >, 0);
}

/* ---- chunks ---- */

/* A step in several chunks with an exchange that is packed, or with one that is not. */
static guint find_chunked(const RefitProgram *program, gboolean packed, guint *exchange_out) {
    for (guint i = 0; i < program->n_steps; i++)
        for (guint e = program->steps[i].first_exchange;
             e < program->steps[i].first_exchange + program->steps[i].n_exchanges; e++) {
            const RefitExchange *exchange = &program->exchanges[e];

            *exchange_out = e;
            if (exchange->peer != program->rank && exchange->direct != packed &&
                exchange->bytes > program->steps[i].chunk_bytes)
                return i;
        }
    return G_MAXUINT;
}

static void test_chunks(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0, e;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];
        guint i = find_chunked(program, TRUE, &e);

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
        assert_refused(program, "has 0 chunks");
        step->n_chunks = 1u << 31;
        assert_refused(program, "");
        *step = kept;
        step->chunk_bytes--;
        assert_refused(program, "chunks of");
        step->chunk_bytes = REFIT_PROGRAM_ALIGN;
        assert_refused(program, "too few for");
        step->chunk_bytes = kept.chunk_bytes + REFIT_PROGRAM_ALIGN;
        assert_refused(program, "a chunk is larger than its memory");
        assert_disagree(fixture->set, "chunks of");
        *step = kept;
        assert_accepted(program);
    }
    g_assert_cmpuint(n_found, >, 0);
}

/* A slot that the chunk before still uses. */
static void test_busy_slots(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0, e;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];

        if (find_chunked(program, TRUE, &e) == G_MAXUINT)
            continue;
        n_found++;
        exchanges_of(program)[e].wire_slots = 1;
        assert_refused(program, "slots of wire memory are not enough");
    }
    g_assert_cmpuint(n_found, >, 0);
    g_assert_true(goes_wrong(fixture->set));
}

/* The last slot of one exchange is the first of the next. */
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
                exchange->wire -= REFIT_PROGRAM_ALIGN;
                assert_refused(program, "staging memory");
                exchange->wire += REFIT_PROGRAM_ALIGN;
            }
        assert_accepted(program);
    }
    g_assert_cmpuint(n_found, >, 0);
}

/* Neither end packs, so each alone is right. */
static void test_other_chunks(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    guint n_found = 0, e;

    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        const RefitProgram *program = fixture->set->programs[rank];
        guint i = find_chunked(program, FALSE, &e);

        g_assert_null(find_packed(program));
        if (i == G_MAXUINT)
            continue;
        n_found++;
        steps_of(program)[i].chunk_bytes += REFIT_PROGRAM_ALIGN;
        assert_accepted(program);
        assert_disagree(fixture->set, "chunks of");
        steps_of(program)[i].chunk_bytes -= REFIT_PROGRAM_ALIGN;
    }
    g_assert_cmpuint(n_found, >, 0);
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

static void test_budget(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    for (guint rank = 0; rank < fixture->set->n_ranks; rank++) {
        guint64 bytes = fixture->set->programs[rank]->staging_bytes;
        g_autoptr(GError) error = NULL;

        if (bytes == 0)
            continue;
        fixture->refit_case->budget_staging_bytes = bytes;
        g_autoptr(RefitProgram) fits =
            refit_program_new(fixture->set->index, rank, fixture->set->source[rank],
                              fixture->set->destination[rank], &error);
        g_assert_no_error(error);
        g_assert_cmpuint(fits->staging_bytes, ==, bytes);
        fixture->refit_case->budget_staging_bytes = bytes - 1;
        g_assert_null(refit_program_new(fixture->set->index, rank, fixture->set->source[rank],
                                        fixture->set->destination[rank], &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE);
        g_autofree char *figures =
            g_strdup_printf("needs %" G_GUINT64_FORMAT " bytes of staging memory", bytes);
        g_assert_nonnull(strstr(error->message, figures));
        g_assert_nonnull(strstr(error->message, "state a larger one"));
    }
}

static void test_no_views(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_program_new(fixture->set->index, 0, NULL, NULL, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    g_assert_nonnull(strstr(error->message, "neither in a parameter nor from an arrival"));
}

static void test_no_room(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    g_autoptr(GError) error = NULL;

    g_assert_null(refit_program_new(fixture->set->index, 4, NULL, fixture->set->source[0], &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    g_assert_nonnull(strstr(error->message, "has no parameter for all of it"));
}

#define ADD(path, strategy, func)                                                                  \
    g_test_add("/program-damage/" path, Fixture, strategy, set_up, func, tear_down)
#define ADD_ROWS(path, strategy, func)                                                             \
    g_test_add("/program-damage/" path, Fixture, strategy, set_up_chunks_of_rows, func, tear_down)
#define ADD_CHUNKS(path, strategy, func)                                                           \
    g_test_add("/program-damage/" path, Fixture, strategy, set_up_chunks, func, tear_down)

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
    ADD("refit/copies", "refit", test_copies);
    ADD("gather-broadcast/copies", "gather-broadcast", test_copies);
    ADD("refit/accounts", "refit", test_accounts);
    ADD("gather-broadcast/wire-memory-is-inside", "gather-broadcast", test_wires);
    ADD("gather-broadcast/memory-for-two-things", "gather-broadcast", test_shared_memory);
    ADD_CHUNKS("direct/chunks-and-their-turns", "direct", test_chunks);
    ADD_CHUNKS("refit/chunks-and-their-turns", "refit", test_chunks);
    ADD_CHUNKS("direct/a-slot-in-use", "direct", test_busy_slots);
    ADD_CHUNKS("refit/slots-of-two-exchanges", "refit", test_shared_slots);
    ADD_ROWS("direct/ends-cut-alike", "direct", test_other_chunks);
    ADD("refit/both-ends-say-the-same", "refit", test_ends);
    ADD("ring/both-ends-say-the-same", "ring", test_ends);
    ADD("gather-broadcast/staging-budget-holds", "gather-broadcast", test_budget);
    ADD("refit/nothing-to-send-from", "refit", test_no_views);
    ADD("direct/nowhere-to-receive", "direct", test_no_room);
    return g_test_run();
}
