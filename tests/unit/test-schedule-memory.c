/*
 * What schedules say of memory, by hand: which messages go straight and which are packed on each
 * side, and why; what is installed out of buckets, with copies and several pools; landings and the
 * slots that batches take in turn; and communicators.
 */

#include "schedule-cases.h"

#define HOME REFIT_LANDING_HOME
#define RELAY REFIT_LANDING_RELAY
#define ASSEMBLY REFIT_LANDING_ASSEMBLY
#define BUCKET REFIT_LANDING_BUCKET

/* ---- straight or packed ---- */

/* What goes from one rank to another in a stage; expected: 'd' or 'p' at the sender, the receiver.
 */
typedef struct {
    const char *region;
    guint src, dst, stage;
    RefitLanding landing;
    int after;            /* move; -1: none */
    const char *expected; /* NULL: as the one before, of the same message */
} Move;

static char flag_of(const RefitSchedule *schedule, guint rank, guint peer, guint stage,
                    RefitExchangeKind kind) {
    guint n;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n);

    for (guint i = 0; i < n; i++)
        for (guint e = 0; e < steps[i].n_exchanges; e++) {
            const RefitScheduleExchange *exchange =
                &schedule->exchanges[steps[i].first_exchange + e];

            if (steps[i].stage == stage && exchange->peer == peer && exchange->kind == kind)
                return exchange->direct ? 'd' : 'p';
        }
    g_error("rank %u has no such message with rank %u in stage %u", rank, peer, stage);
}

/* The class of eight rows in `slices`, by three stages. */
static void assert_moves(const RefitCase *refit_case, guint slices, const Move *moves, guint n) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    g_autofree guint *handles = g_new(guint, n);
    guint class_index = problem->classes[0].shape[0] == 8 ? 0 : 1;

    for (guint stage = 0; stage < 3; stage++)
        refit_plan_builder_add_stage(builder, "stage", slices);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < n; i++)
        handles[i] = plan_case_add(builder, class_index, moves[i].region, moves[i].src,
                                   moves[i].dst, moves[i].stage, moves[i].landing,
                                   moves[i].after < 0 ? NULL : &handles[moves[i].after],
                                   moves[i].after < 0 ? 0 : 1);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    for (guint i = 0; i < n; i++) {
        const Move *move = &moves[i];

        if (move->expected == NULL)
            continue;
        const char flags[] = {
            flag_of(schedule, move->src, move->dst, move->stage, REFIT_EXCHANGE_SEND),
            flag_of(schedule, move->dst, move->src, move->stage, REFIT_EXCHANGE_RECEIVE), '\0'};
        if (!g_str_equal(flags, move->expected))
            g_error("move %u is %s, not %s", i, flags, move->expected);
    }
}

/* Eight rows of 32 bytes. Ranks 0-3 hold all of them. */
#define ONE_NODE "node:1 gpu:8 nvlink:450GBps nic:50GBps"
#define TENSOR "  - {name: w, shape: [8, 16], dtype: bf16, role: other}\n"
#define ALL "rules: [{tensors: \"*\", place: [replicate]}]"
#define COLUMNS "rules: [{tensors: w, mesh: [4], place: [{shard: 1}]}]"

static void assert_between(const char *source, const char *destination, guint slices,
                           const Move *moves, guint n) {
    g_autoptr(RefitCase) refit_case = plan_case_new(ONE_NODE, TENSOR, 4, source, 4, destination);

    assert_moves(refit_case, slices, moves, n);
}

/* A region is straight where it is one run of the rank's parameter. */
static void test_parameters(void) {
    static const Move rows[] = {
        {"0:4,0:16", 0, 4, 0, HOME, -1, "dd"}, /* rows, of whole rows on both sides */
        {"5:6,3:9", 0, 5, 0, HOME, -1, "dd"},  /* inside a row */
        {"0:8,0:4", 0, 6, 0, HOME, -1, "pp"},  /* a column */
        {"2:4,0:15", 0, 7, 0, HOME, -1, "pp"}, /* not all of two rows */
        {"0:4,0:16", 4, 5, 1, HOME, 0, "dd"},  /* on, from where it came home */
        {"1:2,0:16", 4, 6, 1, HOME, 0, "pd"},  /* of what came: nobody says which part is whole */
    };
    static const Move columns[] = {
        {"0:8,0:4", 0, 4, 0, HOME, -1, "pd"}, /* all that rank 4 has */
        {"2:5,4:8", 0, 5, 0, HOME, -1, "pd"}, /* rows of what rank 5 has */
        {"2:5,8:9", 0, 6, 0, HOME, -1, "pp"},
    };
    static const Move from_columns[] = {
        {"0:8,0:4", 0, 4, 0, HOME, -1, "dp"},
        {"3:8,8:12", 2, 4, 0, HOME, -1, "dp"},
    };

    assert_between(ALL, ALL, 1, rows, G_N_ELEMENTS(rows));
    assert_between(ALL, COLUMNS, 1, columns, G_N_ELEMENTS(columns));
    assert_between(COLUMNS, ALL, 1, from_columns, G_N_ELEMENTS(from_columns));
    /* Slices are cut out of one run, so they are runs. */
    assert_between(ALL, ALL, 2, rows, 4);
}

/* Several pieces lie apart at home, in a block one behind the other. */
static void test_pieces(void) {
    static const Move apart[] = {
        {"0:1,0:16", 0, 4, 0, HOME, -1, "pp"},
        {"2:3,0:16", 0, 4, 0, HOME, -1, NULL},
    };
    static const Move blocks[] = {
        {"0:1,0:16", 0, 1, 0, RELAY, -1, "pd"}, /* 0, 1: one block */
        {"2:3,0:16", 0, 1, 0, RELAY, -1, NULL},
        {"0:1,0:16", 1, 4, 1, HOME, 0, "dp"}, /* all of it, in its order */
        {"2:3,0:16", 1, 4, 1, HOME, 1, NULL},
        {"0:1,0:16", 1, 5, 1, HOME, 0, "dd"}, /* a piece of it is whole */
        {"2:3,0:8", 1, 6, 1, HOME, 1, "pd"},  /* but not a part of the piece */
        {"4:5,0:16", 2, 1, 0, RELAY, -1, "dd"},
        {"2:3,0:16", 1, 7, 1, HOME, 1, "pp"}, /* of two blocks */
        {"4:5,0:16", 1, 7, 1, HOME, 6, NULL},
    };
    static const Move relays[] = {
        {"0:1,0:16", 0, 1, 0, RELAY, -1, "pd"}, {"2:3,0:16", 0, 1, 0, RELAY, -1, NULL},
        {"0:1,0:16", 1, 2, 1, RELAY, 0, "dd"}, /* from block to block */
        {"2:3,0:16", 1, 2, 1, RELAY, 1, NULL},  {"0:1,0:16", 2, 4, 2, HOME, 2, "dp"},
        {"2:3,0:16", 2, 4, 2, HOME, 3, NULL},
    };

    assert_between(ALL, ALL, 1, apart, G_N_ELEMENTS(apart));
    assert_between(ALL, ALL, 1, blocks, G_N_ELEMENTS(blocks));
    assert_between(ALL, ALL, 1, relays, G_N_ELEMENTS(relays));
}

/* A slice of several pieces is a part of each, which do not touch; of a single one it is a run. */
static void test_sliced_pieces(void) {
    static const Move moves[] = {
        {"0:1,0:16", 0, 1, 0, RELAY, -1, "pp"}, {"2:3,0:16", 0, 1, 0, RELAY, -1, NULL},
        {"0:1,0:16", 1, 4, 1, HOME, 0, "pp"},   {"2:3,0:16", 1, 4, 1, HOME, 1, NULL},
        {"4:6,0:16", 2, 3, 0, RELAY, -1, "dd"}, {"4:6,0:16", 3, 5, 1, HOME, 4, "dd"},
    };

    assert_between(ALL, ALL, 2, moves, G_N_ELEMENTS(moves));
}

/* Parts of assembled tensors are blocks, buckets whole tensors. */
static void test_whole_tensors(void) {
    static const Move assembled[] = {
        {"0:8,0:4", 1, 0, 0, ASSEMBLY, -1, "pd"}, /* a column */
        {"0:8,0:4", 0, 4, 1, HOME, 0, "dp"},      /* on, just that */
        {"0:8,0:16", 0, 5, 1, HOME, 0, "pd"},     /* with the sender's own */
    };
    static const Move buckets[] = {
        {"0:8,0:16", 0, 4, 0, BUCKET, -1, "dd"}, /* all of the tensor */
        {"0:8,0:4", 1, 5, 0, BUCKET, -1, "pp"},  /* a column of it */
        {"2:4,0:16", 2, 6, 0, BUCKET, -1, "dd"}, /* rows of it */
        {"0:8,0:16", 4, 7, 1, BUCKET, 0, "dd"},  {"2:4,0:16", 6, 5, 1, BUCKET, 2, "dd"},
        {"0:8,0:4", 5, 4, 1, BUCKET, 1, "pp"},
    };

    assert_between(ALL, ALL, 1, assembled, G_N_ELEMENTS(assembled));
    assert_between(ALL, ALL, 1, buckets, G_N_ELEMENTS(buckets));
}

/* Four rows of q, then two of k, in turn: no rows of q are known to be together. */
static void test_interleaved(void) {
    static const Move moves[] = {{"0:1,0:16", 0, 4, 0, HOME, -1, "pd"}};
    static const Move back[] = {{"0:1,0:16", 0, 4, 0, HOME, -1, "dp"}};
    static const char tensors[] = "  - {name: q, shape: [8, 16], dtype: bf16, role: other}\n"
                                  "  - {name: k, shape: [4, 16], dtype: bf16, role: other}\n";
    static const char mixed[] = "rules: [{fused: [q, k], blocks: [4, 2], parameter: qk, mesh: [4], "
                                "place: [replicate]}]";
    g_autoptr(RefitCase) from = plan_case_new(ONE_NODE, tensors, 4, mixed, 4, ALL);
    g_autoptr(RefitCase) to = plan_case_new(ONE_NODE, tensors, 4, ALL, 4, mixed);

    assert_moves(from, 1, moves, 1);
    assert_moves(to, 1, back, 1);
}

/* The same tensor as a side holds it in another dtype. */
static RefitLayout *held(const RefitLayout *layout, RefitDtype dtype) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = input_doc("schema: refit.model/1\nname: made-up\nfamily: list\n"
                                        "tensors:\n  - {name: w, shape: [8, 16], role: other}\n");
    const RefitModelOptions options = {.dtype = dtype, .mtp = TRUE};
    g_autoptr(RefitModel) model = refit_model_parse(refit_doc_root(doc), &options, &error);

    g_assert_no_error(error);
    return plan_case_side(refit_layout_side(layout), model, refit_layout_ranks(layout)[0], 4, 8,
                          ALL);
}

/* Casts are made where a form is left or reached; what arrived goes on in the form on the wire. */
static void test_casts(void) {
    static const Move from[] = {{"0:4,0:16", 0, 4, 0, HOME, -1, "pd"},
                                {"4:8,0:16", 0, 1, 0, RELAY, -1, "pd"},
                                {"4:8,0:16", 1, 5, 1, HOME, 1, "dd"}};
    static const Move to[] = {{"0:4,0:16", 0, 4, 0, HOME, -1, "dp"},
                              {"4:8,0:16", 0, 5, 0, RELAY, -1, "dd"},
                              {"4:8,0:16", 5, 6, 1, HOME, 1, "dp"}};
    g_autoptr(RefitCase) source = plan_case_new(ONE_NODE, TENSOR, 4, ALL, 4, ALL);
    g_autoptr(RefitCase) destination = plan_case_new(ONE_NODE, TENSOR, 4, ALL, 4, ALL);

    source->source_held = held(source->source, REFIT_DTYPE_F32);
    assert_moves(source, 1, from, G_N_ELEMENTS(from));
    destination->destinations_held = g_new0(RefitLayout *, 1);
    destination->destinations_held[0] = held(destination->destinations[0], REFIT_DTYPE_F8_E4M3);
    assert_moves(destination, 1, to, G_N_ELEMENTS(to));
}

/* ---- installs ---- */

static void set_members(RefitPlanBuilder *builder, guint class_index, const guint *batches,
                        guint n) {
    for (guint member = 0; member < n; member++)
        refit_plan_builder_assign(builder, class_index, member, batches[member]);
}

/*
 * Ranks 2 and 3 of one pool hold halves of tensors of 64 bytes, rank 4 of another has two copies of
 * all. Batch 0 has three of them; batch 1 one, and with it, for rank 4 alone, one of 12 bytes;
 * batch 2 one, which takes the place of batch 0 when that is installed.
 */
static void test_installs(void) {
    static const StrategyCase described = {
        .topology = "node:1 gpu:5 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: \"a.{0-4}\", shape: [8, 4], dtype: bf16, role: other}\n"
                   "  - {name: b, shape: [6], dtype: bf16, role: other}\n",
        .source = "ranks: [0], rules: [{tensors: \"*\", mesh: [1], place: [replicate]}]",
        .pools = {"ranks: [2-3], rules: [{tensors: \"*\", mesh: [2], place: [{shard: 0}]}]",
                  "ranks: [4], rules: [{tensors: \"*\", parts: [{mesh: [1], place: [replicate]}, "
                  "{mesh: [1], place: [replicate]}]}]"}};
    static const guint batches[] = {0, 0, 0, 1, 2}, ranks[] = {2, 3, 4};
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "broadcast", 1);
    guint a = problem->classes[0].n_members == 5 ? 0 : 1, b = 1 - a;

    refit_plan_builder_set_peers_per_step(builder, 3);
    for (guint batch = 0; batch < 3; batch++)
        refit_plan_builder_add_batch(builder, 0, 1, FALSE);
    set_members(builder, a, batches, 5);
    set_members(builder, b, &batches[3], 1);
    refit_plan_builder_oblige(builder, a, BUCKET, ranks, 3);
    refit_plan_builder_oblige(builder, b, BUCKET, &ranks[2], 1);
    for (guint i = 0; i < 3; i++)
        plan_case_add(builder, a, "0:8,0:4", 0, ranks[i], stage, BUCKET, NULL, 0);
    plan_case_add(builder, b, "0:6", 0, 4, stage, BUCKET, NULL, 0);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    for (guint rank = 2; rank < 4; rank++)
        schedule_assert(schedule, rank,
                        "0 nvlink: <0:192p | 0 local: !96/3; after 0 | "
                        "1 nvlink: <0:64d | 1 local: !32/1; after 2 | "
                        "2 nvlink: <0:64d; after 1 0 | 2 local: !32/1; after 1 4");
    schedule_assert(schedule, 4,
                    "0 nvlink: <0:192p | 0 local: !384/6; after 0 | "
                    "1 nvlink: <0:76p | 1 local: !152/4; after 2 | "
                    "2 nvlink: <0:64d; after 1 0 | 2 local: !128/2; after 1 4");
    /* 192 bytes of batch 0, and 64 and 16 of batch 1. */
    g_assert_cmpuint(schedule->ranks[4].landing_bytes, ==, 512);
}

/*
 * Ranks 0 and 1 assemble a tensor of halves, rank 0 sends it to rank 2, rank 1 to rank 0, whose
 * bucket takes the place of what it assembled; so it waits for all that rank 0 did before.
 */
static void test_bucket_in_place(void) {
    static const StrategyCase described = {
        .topology = "node:2 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [8, 4], dtype: bf16, role: other}\n",
        .source = "ranks: [0-1], rules: [{tensors: w, mesh: [2], place: [{shard: 0}]}]",
        .pools = {"ranks: [0, 2], rules: [{tensors: w, mesh: [2], place: [replicate]}]"}};
    static const guint roots[] = {0, 1}, receivers[] = {0, 2};
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");

    for (guint stage = 0; stage < 3; stage++)
        refit_plan_builder_add_stage(builder, "stage", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 1, FALSE));
    refit_plan_builder_oblige(builder, 0, ASSEMBLY, roots, 2);
    refit_plan_builder_oblige(builder, 0, BUCKET, receivers, 2);
    guint here = plan_case_add(builder, 0, "4:8,0:4", 1, 0, 0, ASSEMBLY, NULL, 0);
    guint there = plan_case_add(builder, 0, "0:4,0:4", 0, 1, 0, ASSEMBLY, NULL, 0);
    plan_case_add(builder, 0, "0:8,0:4", 0, 2, 1, BUCKET, &here, 1);
    plan_case_add(builder, 0, "0:8,0:4", 1, 0, 2, BUCKET, &there, 1);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    schedule_assert(schedule, 0,
                    "0 nvlink: <1:32d >1:32d | 1 network: >2:64p; after 0 | "
                    "2 nvlink: <1:64d; after 0 1 | 2 local: !64/1; after 2");
    g_assert_cmpuint(schedule->ranks[0].landing_bytes, ==, 256);
}

/* ---- landings ---- */

static void assert_landings(const RefitSchedule *schedule, guint rank,
                            const RefitScheduleLanding *expected, guint n) {
    const RefitScheduleLanding *landings = schedule->landings + schedule->landing_offsets[rank];

    g_assert_cmpuint(schedule->landing_offsets[rank + 1] - schedule->landing_offsets[rank], ==, n);
    for (guint i = 0; i < n; i++) {
        g_assert_cmpuint(landings[i].batch, ==, expected[i].batch);
        g_assert_cmpuint(landings[i].slot, ==, expected[i].slot);
        g_assert_cmpuint(landings[i].bytes, ==, expected[i].bytes);
        g_assert_cmpuint(landings[i].relay_bytes, ==, expected[i].relay_bytes);
    }
}

/*
 * Tensors of 64 bytes go from rank 0 to 2 as relays and on to 4. Batches 0, 1, 4 and 5 of lane 0
 * have 1, 5, 3 and 1 of them: batch 1 is more than half as much again as the mean of 320 bytes, so
 * it takes the first slot, too. Batches 2, 6 and 7 of lane 1 have 2, 4 and 1, batch 3 nothing that
 * lands. Each takes a slot over from the batch before that had it, when its rank has sent that on.
 */
static void test_slots(void) {
    static const guint lanes[] = {0, 0, 1, 0, 0, 0, 1, 1};
    static const guint batches[] = {0, 1, 1, 1, 1, 1, 2, 2, 4, 4, 4, 5, 6, 6, 6, 6, 7};
    static const RefitScheduleLanding expected[] = {
        {0, 0, 256, 256}, {1, 0, 512, 512}, {2, 2, 256, 256}, {4, 1, 256, 256},
        {5, 0, 256, 256}, {6, 3, 256, 256}, {7, 2, 256, 256},
    };
    g_autoptr(RefitCase) refit_case =
        plan_case_new(WORKED_TOPOLOGY,
                      "  - {name: \"a.{0-16}\", shape: [8, 4], dtype: bf16, role: other}\n"
                      "  - {name: v, shape: [4, 4], dtype: bf16, role: other}\n",
                      4, ALL, 4, ALL);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint first = refit_plan_builder_add_stage(builder, "relay", 1);
    guint second = refit_plan_builder_add_stage(builder, "deliver", 1), three = 3;
    guint a = problem->classes[0].n_members == 17 ? 0 : 1, v = 1 - a;

    for (guint b = 0; b < G_N_ELEMENTS(lanes); b++)
        refit_plan_builder_add_batch(builder, lanes[b], 0, FALSE);
    set_members(builder, a, batches, 17);
    set_members(builder, v, &three, 1);
    guint dep = plan_case_add(builder, a, "0:8,0:4", 0, 2, first, RELAY, NULL, 0);
    plan_case_add(builder, a, "0:8,0:4", 2, 4, second, HOME, &dep, 1);
    plan_case_add(builder, v, "0:4,0:4", 3, 5, second, HOME, NULL, 0);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    assert_landings(schedule, 2, expected, G_N_ELEMENTS(expected));
    assert_landings(schedule, 0, NULL, 0);
    assert_landings(schedule, 4, NULL, 0);
    g_assert_cmpuint(schedule->ranks[2].landing_bytes, ==, 512 + 256 + 256 + 256);
    schedule_assert(schedule, 2,
                    "0 nvlink: <0:64d | 1 network: >4:64d; after 0 | "
                    "2 nvlink: <0:320d; after 0 1 | 3 network: >4:320d; after 2 1 | "
                    "4 nvlink: <0:128d | 5 network: >4:128d; after 4 | "
                    "8 nvlink: <0:192d | 9 network: >4:192d; after 6 | "
                    "10 nvlink: <0:64d; after 2 3 | 11 network: >4:64d; after 8 3 | "
                    "12 nvlink: <0:256d | 13 network: >4:256d; after 10 | "
                    "14 nvlink: <0:64d; after 4 5 | 15 network: >4:64d; after 12 5");
    /* Two slots would take more than three quarters of this: all batches of a lane take one. */
    refit_case->budget_staging_bytes = 1700;
    g_autoptr(RefitSchedule) narrow = schedule_of(plan);
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++)
        g_assert_cmpuint(narrow->landings[narrow->landing_offsets[2] + i].slot, ==,
                         expected[i].slot / 2 * 2);
    g_assert_cmpuint(narrow->ranks[2].landing_bytes, ==, 512 + 256);
    refit_case->budget_staging_bytes = 1708;
    g_autoptr(RefitSchedule) wide = schedule_of(plan);
    g_assert_cmpuint(wide->ranks[2].landing_bytes, ==, 1280);
}

/* ---- communicators ---- */

/* A lane for each of six batches; messages over NVLink are in one of them, on a track of their own.
 */
static void test_comms(void) {
    static const guint batches[] = {0, 1, 2, 3, 4, 5};
    g_autoptr(RefitCase) refit_case =
        plan_case_new(WORKED_TOPOLOGY,
                      "  - {name: \"a.{0-5}\", shape: [8, 4], dtype: bf16, role: other}\n"
                      "  - {name: v, shape: [4, 4], dtype: bf16, role: other}\n",
                      4, ALL, 4, ALL);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint first = refit_plan_builder_add_stage(builder, "across", 1);
    guint second = refit_plan_builder_add_stage(builder, "aside", 1);
    guint a = problem->classes[0].n_members == 6 ? 0 : 1, v = 1 - a;

    refit_plan_builder_set_track(builder, second, 1);
    for (guint lane = 0; lane < 6; lane++)
        refit_plan_builder_add_batch(builder, lane, 0, FALSE);
    set_members(builder, a, batches, 6);
    set_members(builder, v, &batches[3], 1);
    plan_case_add(builder, a, "0:8,0:4", 0, 4, first, HOME, NULL, 0);
    guint dep = plan_case_add(builder, v, "0:4,0:4", 0, 4, first, HOME, NULL, 0);
    plan_case_add(builder, v, "0:4,0:4", 4, 5, second, HOME, &dep, 1);
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    g_assert_cmpuint(schedule->n_streams, ==, 2 * 6 * 3);
    g_assert_cmpuint(schedule->n_comms[REFIT_LINK_LOCAL], ==, 0);
    g_assert_cmpuint(schedule->n_comms[REFIT_LINK_NVLINK], ==, 1);
    g_assert_cmpuint(schedule->n_comms[REFIT_LINK_NETWORK], ==, REFIT_SCHEDULE_COMMS);
    for (guint lane = 0; lane < 6; lane++) {
        guint stream = refit_schedule_stream(plan, first, lane, REFIT_LINK_NETWORK);

        g_assert_cmpuint(stream, ==, 3 * lane + 2);
        g_assert_cmpuint(schedule->comm_of[stream], ==, lane % 4);
    }
    g_assert_cmpuint(refit_schedule_stream(plan, second, 3, REFIT_LINK_NVLINK), ==, 28);
    g_assert_cmpuint(schedule->comm_of[28], ==, 0);
    /* The first of those with the most turns. */
    g_assert_cmpuint(schedule->ranks[0].n_turns, ==, 6);
    g_assert_cmpuint(schedule->ranks[4].n_turns, ==, 7);
    g_assert_cmpuint(refit_schedule_busiest(schedule), ==, 4);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/schedule-memory/runs-of-parameters-go-straight", test_parameters);
    g_test_add_func("/schedule-memory/blocks-land-and-go-on-straight", test_pieces);
    g_test_add_func("/schedule-memory/slices-of-several-pieces-are-packed", test_sliced_pieces);
    g_test_add_func("/schedule-memory/assembled-parts-are-blocks-and-buckets-tensors",
                    test_whole_tensors);
    g_test_add_func("/schedule-memory/interleaved-rows-are-packed", test_interleaved);
    g_test_add_func("/schedule-memory/casts-are-packed", test_casts);
    g_test_add_func("/schedule-memory/installs-are-what-each-pool-holds", test_installs);
    g_test_add_func("/schedule-memory/buckets-take-the-place-of-assembled-parts",
                    test_bucket_in_place);
    g_test_add_func("/schedule-memory/batches-take-slots-in-turn", test_slots);
    g_test_add_func("/schedule-memory/streams-share-communicators", test_comms);
    return g_test_run();
}
