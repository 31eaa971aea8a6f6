/*
 * Schedules by hand: steps, exchanges, turns and waits of small plans; sliced stages, their parts
 * and where they are not sliced; exchanges with one peer; installs, landings and their slots;
 * communicators; the rank with the most turns; plans whose stages or hops were turned round.
 */

#include "schedule-cases.h"

/* A plan of one batch: what its hops are and after which of those before. */
typedef struct {
    const char *region;
    guint src, dst, stage, depth;
    RefitLanding landing;
    int after; /* hop; -1: none */
} Hop;

#define HOME REFIT_LANDING_HOME
#define RELAY REFIT_LANDING_RELAY

static void add_hops(RefitPlanBuilder *builder, guint class_index, const Hop *hops, guint n) {
    g_autofree guint *handles = g_new(guint, n);

    for (guint i = 0; i < n; i++) {
        const Hop *hop = &hops[i];

        refit_plan_builder_set_least_depth(builder, hop->depth);
        handles[i] = plan_case_add(
            builder, class_index, hop->region, hop->src, hop->dst, hop->stage, hop->landing,
            hop->after < 0 ? NULL : &handles[hop->after], hop->after < 0 ? 0 : 1);
    }
    refit_plan_builder_set_least_depth(builder, 0);
}

static RefitPlan *plan_hops(const RefitProblem *problem, guint slices, const Hop *hops, guint n) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");

    refit_plan_builder_add_stage(builder, "first", slices);
    refit_plan_builder_add_stage(builder, "second", 1);
    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    add_hops(builder, 0, hops, n);
    return plan_case_finish(builder);
}

/* Eight rows of 32 bytes. Ranks 0-3 hold all of them, 4-7 need all of them. */
#define ROWS "  - {name: w, shape: [8, 16], dtype: bf16, role: other}\n"
#define ALL "rules: [{tensors: \"*\", place: [replicate]}]"
#define ONE_NODE "node:1 gpu:8 nvlink:450GBps nic:50GBps"

static RefitCase *rows_case(const char *topology) {
    return plan_case_new(topology, ROWS, 4, ALL, 4, ALL);
}

/* ---- worked plans ---- */

static void test_worked(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_worked_plan(problem);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    /* One lane and one track; streams are local, NVLink and network. */
    g_assert_cmpuint(schedule->n_streams, ==, 3);
    schedule_assert(schedule, 0, "0 network: >4:16p >5:16p");
    schedule_assert(schedule, 1, "0 network: >6:16p >7:16p");
    schedule_assert(schedule, 2, "");
    schedule_assert(schedule, 4, "0 network: <0:16d | 1 nvlink: <6:16d >6:16d; after 0");
    schedule_assert(schedule, 7, "0 network: <1:16d | 1 nvlink: <5:16d >5:16d; after 0");
    g_assert_cmpuint(schedule->ranks[0].n_turns, ==, 1);
    g_assert_cmpuint(schedule->ranks[0].wire_bytes, ==, 512);
    g_assert_cmpuint(schedule->ranks[4].n_turns, ==, 2);
    g_assert_cmpuint(schedule->ranks[4].n_groups, ==, 2);
    g_assert_cmpuint(refit_schedule_staging_bytes(schedule, 4), ==, 0);
}

static void test_relay(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_relay_plan(problem);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    schedule_assert(schedule, 0, "0 nvlink: >2:32d");
    schedule_assert(schedule, 2,
                    "0 nvlink: <0:32d | 1 network: >4:16p >5:16p >6:16p >7:16p; after 0");
    schedule_assert(schedule, 4, "1 network: <2:16d <3:16d");
    g_assert_cmpuint(schedule->ranks[2].landing_bytes, ==, 256);
    g_assert_cmpuint(schedule->ranks[2].wire_bytes, ==, 4 * 256);
    g_assert_cmpuint(refit_schedule_staging_bytes(schedule, 2), ==, 1280);
}

/*
 * The gather takes number 0. Hops of the chain begin at 1, 2, 3 and 4 and have four slices each, so
 * the last number is 7; installs follow it. A slice moves after the one that brought it.
 */
static void test_bucket(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_bucket_plan(problem);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    schedule_assert(schedule, 0, "0 nvlink: <1:32d >1:32d | 1-4 network: >4:64p; after 0");
    schedule_assert(schedule, 1, "0 nvlink: <0:32d >0:32d");
    schedule_assert(schedule, 4,
                    "1-4 network: <0:64d | 2-5 nvlink: >5:64d; after ~0 | 7 local: !32/1; after 0");
    schedule_assert(schedule, 5, "2-6 nvlink: <4:64d >6:64d; after ~0 | 7 local: !32/1; after 0");
    schedule_assert(schedule, 7, "4-7 nvlink: <6:64d | 7 local: !32/1; after 0");
    /* 33 bytes at most under a number, and both slots. */
    g_assert_cmpuint(schedule->ranks[0].wire_bytes, ==, 512);
    g_assert_cmpuint(schedule->ranks[0].landing_bytes, ==, 256);
    g_assert_cmpuint(schedule->ranks[4].landing_bytes, ==, 256);
    g_assert_cmpuint(schedule->ranks[4].n_turns, ==, 4 + 4 + 1);
    g_assert_cmpuint(schedule->ranks[4].n_groups, ==, 8);
    g_assert_cmpuint(schedule->ranks[5].n_turns, ==, 5 + 1);
    g_assert_cmpuint(refit_schedule_busiest(schedule), ==, 4);
}

/* Rank 4's turns by (number, install, chunk, stream); places on their streams. */
static void test_turns(void) {
    static const guint steps[] = {0, 1, 0, 1, 0, 1, 0, 1, 2};
    static const guint numbers[] = {1, 2, 2, 3, 3, 4, 4, 5, 7};
    static const guint places[] = {0, 0, 1, 1, 2, 2, 3, 3, 0};
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_bucket_plan(problem);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);
    g_autoptr(GArray) turns = refit_schedule_list_turns(schedule, 4);
    guint n;
    const RefitScheduleStep *of_rank = refit_schedule_steps(schedule, 4, &n);

    g_assert_cmpuint(n, ==, 3);
    g_assert_cmpuint(turns->len, ==, G_N_ELEMENTS(steps));
    for (guint i = 0; i < turns->len; i++) {
        const RefitTurn *turn = &g_array_index(turns, RefitTurn, i);
        const RefitScheduleStep *step = &of_rank[turn->step];
        guint64 bytes = refit_schedule_turn_bytes(
            schedule, step, &schedule->exchanges[step->first_exchange], turn->number, turn->chunk);

        g_assert_cmpuint(turn->step, ==, steps[i]);
        g_assert_cmpuint(turn->number, ==, numbers[i]);
        g_assert_cmpuint(turn->chunk, ==, 0);
        g_assert_cmpuint(step->first_turn + refit_schedule_turn_place(step, turn), ==, places[i]);
        g_assert_cmpuint(bytes, ==, i + 1 < turns->len ? 16 : 32);
    }
}

/* ---- hops ---- */

/* Rows go from rank 0 to 4, to 5 and to 6. Without slices, a hop waits for the one before. */
static const Hop chain[] = {
    {"0:4,0:16", 0, 4, 0, 0, HOME, -1},
    {"0:4,0:16", 4, 5, 0, 0, HOME, 0},
    {"0:4,0:16", 5, 6, 0, 0, HOME, 1},
};

static void test_hops(void) {
    g_autoptr(RefitCase) refit_case = rows_case(WORKED_TOPOLOGY);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) whole = plan_hops(problem, 1, chain, G_N_ELEMENTS(chain));
    g_autoptr(RefitPlan) sliced = plan_hops(problem, 2, chain, G_N_ELEMENTS(chain));
    g_autoptr(RefitSchedule) one = schedule_of(whole), two = schedule_of(sliced);

    schedule_assert(one, 4, "0 network: <0:128d | 1 nvlink: >5:128d; after 0");
    schedule_assert(one, 5, "1 nvlink: <4:128d | 2 nvlink: >6:128d; after 0");
    schedule_assert(two, 4, "0-1 network: <0:128d | 1-2 nvlink: >5:128d; after ~0");
    schedule_assert(two, 5, "1-3 nvlink: <4:128d >6:128d; after ~0");
}

/*
 * Two slices. To rank 4 come messages of rank 0 under numbers 0 and 1, 3 and 4, 6 and 7, and of
 * rank 1 under 1 and 2, 2 and 3: without a break up to 4, so that is a step. What comes from rank 0
 * in it has no number in common, what comes from rank 1 has. Other messages fill the numbers.
 */
static const Hop broken[] = {
    {"0:1,0:16", 0, 4, 0, 0, HOME, -1}, {"1:2,0:16", 1, 4, 0, 1, HOME, -1},
    {"2:3,0:16", 1, 4, 0, 2, HOME, -1}, {"3:4,0:16", 0, 4, 0, 3, HOME, -1},
    {"4:5,0:16", 0, 5, 0, 4, HOME, -1}, {"5:6,0:16", 1, 6, 0, 5, HOME, -1},
    {"6:7,0:16", 0, 4, 0, 6, HOME, -1},
};

static void test_parts(void) {
    g_autoptr(RefitCase) refit_case = rows_case(ONE_NODE);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_hops(problem, 2, broken, G_N_ELEMENTS(broken));
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);
    guint n, first, end;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, 4, &n);

    schedule_assert(schedule, 4, "0-4 nvlink: <0:32d <0:32d <1:64px2 | 6-7 nvlink: <0:32d");
    schedule_assert(schedule, 0,
                    "0-1 nvlink: >4:32d | 3-5 nvlink: >4:32d >5:32d | 6-7 nvlink: >4:32d");
    schedule_assert(schedule, 1, "1-3 nvlink: >4:64px2 | 5-6 nvlink: >6:32d");
    g_assert_cmpuint(steps[0].first_turn, ==, 0);
    g_assert_cmpuint(steps[1].first_turn, ==, 5);
    static const guint firsts[] = {0, 3, 1}, ends[] = {2, 5, 4};
    for (guint e = 0; e < 3; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[steps[0].first_exchange + e];

        refit_schedule_numbers(schedule, exchange, &first, &end);
        g_assert_cmpuint(first, ==, firsts[e]);
        g_assert_cmpuint(end, ==, ends[e]);
        for (guint number = 0; number < 5; number++) {
            guint64 expected = number >= firsts[e] && number < ends[e] ? 16 : 0;

            /* Of rank 1, the last slice of one and the first of the other. */
            if (e == 2 && number == 2)
                expected = 32;
            g_assert_cmpuint(refit_schedule_turn_bytes(schedule, &steps[0], exchange, number, 0),
                             ==, expected);
        }
    }
}

/*
 * Two slices. Rank 4 receives under numbers 0 and 1, 3 and 4, 6 and 7, and sends on what came last
 * under 7 and 8: after slices of the same step, and of the one before, which stands for all before.
 */
static void test_parts_that_ended(void) {
    static const Hop hops[] = {
        {"0:1,0:16", 0, 4, 0, 0, HOME, -1}, {"1:2,0:16", 1, 7, 0, 1, HOME, -1},
        {"2:3,0:16", 1, 7, 0, 2, HOME, -1}, {"3:4,0:16", 0, 4, 0, 3, HOME, -1},
        {"4:5,0:16", 1, 7, 0, 4, HOME, -1}, {"5:6,0:16", 1, 7, 0, 5, HOME, -1},
        {"6:7,0:16", 0, 4, 0, 6, HOME, -1}, {"6:7,0:16", 4, 6, 0, 7, HOME, 6},
    };
    g_autoptr(RefitCase) refit_case = rows_case(ONE_NODE);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_hops(problem, 2, hops, G_N_ELEMENTS(hops));
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    schedule_assert(
        schedule, 4,
        "0-1 nvlink: <0:32d | 3-4 nvlink: <0:32d | 6-8 nvlink: <0:32d >6:32d; after ~2 ~1");
}

/* ---- where a stage is not sliced ---- */

/* In batch 0 a local copy follows a message; in batch 1 nothing of that kind moves. */
static void test_local_hop(void) {
    static const Hop copied[] = {{"0:8,0:16", 0, 4, 0, 0, RELAY, -1},
                                 {"0:8,0:16", 4, 4, 0, 0, HOME, 0}};
    static const Hop sent[] = {{"0:4,0:16", 0, 4, 0, 0, HOME, -1}};
    g_autoptr(RefitCase) refit_case = plan_case_new(
        ONE_NODE, ROWS "  - {name: v, shape: [4, 16], dtype: bf16, role: other}\n", 4, ALL, 4, ALL);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint w = problem->classes[0].shape[0] == 8 ? 0 : 1;

    refit_plan_builder_add_stage(builder, "first", 4);
    for (guint batch = 0; batch < 2; batch++)
        refit_plan_builder_assign(builder, batch == 0 ? w : 1 - w, 0,
                                  refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    add_hops(builder, w, copied, G_N_ELEMENTS(copied));
    add_hops(builder, 1 - w, sent, G_N_ELEMENTS(sent));
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    g_assert_cmpuint(refit_schedule_slices(schedule, 0, 0), ==, 1);
    g_assert_cmpuint(refit_schedule_slices(schedule, 1, 0), ==, 4);
    /* Two offsets and three more slices: batch 1 begins at 5. */
    schedule_assert(schedule, 4,
                    "0 nvlink: <0:256d | 1 local: =256; after 0 | 5-8 nvlink: <0:128d");
    schedule_assert(schedule, 0, "0 nvlink: >4:256d | 5-8 nvlink: >4:128d");
}

/* A copy that follows nothing is whole, under the number of its hop; what follows it is sliced. */
static void test_local_start(void) {
    static const Hop hops[] = {{"0:8,0:16", 4, 4, 0, 0, RELAY, -1},
                               {"0:8,0:16", 4, 5, 0, 0, HOME, 0}};
    g_autoptr(RefitCase) refit_case = rows_case(ONE_NODE);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_hops(problem, 4, hops, G_N_ELEMENTS(hops));
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    schedule_assert(schedule, 4, "0 local: =256 | 1-4 nvlink: >5:256d; after ~0");
    schedule_assert(schedule, 5, "1-4 nvlink: <4:256d");
}

/* No more slices than a message has times the slice size; a size of 100 bytes allows for two. */
static void test_small_slices(void) {
    static const struct {
        double slice_bytes;
        guint slices;
    } expected[] = {{1, 8}, {32, 8}, {33, 7}, {100, 2}, {128, 2}, {129, 1}, {1e9, 1}};
    static const Hop hops[] = {{"0:8,0:16", 0, 4, 0, 0, HOME, -1},
                               {"0:1,0:16", 1, 5, 0, 0, HOME, -1}};
    g_autoptr(RefitCase) refit_case = rows_case(ONE_NODE);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_hops(problem, 8, hops, G_N_ELEMENTS(hops));

    refit_case->profile = g_new0(RefitProfile, 1);
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
        refit_case->profile->slice_bytes.value = expected[i].slice_bytes;
        g_autoptr(RefitSchedule) schedule = schedule_of(plan);

        g_assert_cmpuint(refit_schedule_slices(schedule, 0, 0), ==, expected[i].slices);
        g_assert_cmpuint(schedule->ranks[5].n_turns, ==, expected[i].slices);
    }
}

/* ---- waits ---- */

static void assign_members(RefitPlanBuilder *builder, const guint *batches, guint n) {
    for (guint member = 0; member < n; member++)
        refit_plan_builder_assign(builder, 0, member, batches[member]);
}

/* What is sent waits for all that an earlier stage brought, over both links. */
static void test_stage_waits(void) {
    static const Hop hops[] = {{"0:2,0:16", 0, 5, 0, 0, HOME, -1},
                               {"2:4,0:16", 4, 5, 0, 0, HOME, -1},
                               {"4:6,0:16", 4, 5, 0, 1, HOME, -1},
                               {"0:2,0:16", 5, 6, 1, 0, HOME, 0}};
    g_autoptr(RefitCase) refit_case = rows_case(WORKED_TOPOLOGY);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_hops(problem, 1, hops, G_N_ELEMENTS(hops));
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    schedule_assert(schedule, 5,
                    "0 nvlink: <4:64d | 0 network: <0:64d | 1 nvlink: <4:64d | 2 nvlink: >6:64d; "
                    "after 2 1");
}

/* A barrier is behind all that the rank has in earlier batches, of every stream. */
static void test_barrier(void) {
    static const guint batches[] = {0, 1, 2};
    static const Hop hops[] = {{"0:8,0:16", 0, 4, 0, 0, HOME, -1},
                               {"0:8,0:16", 4, 5, 1, 0, HOME, 0}};
    g_autoptr(RefitCase) refit_case = plan_case_new(
        WORKED_TOPOLOGY, "  - {name: \"w.{0-2}\", shape: [8, 16], dtype: bf16, role: other}\n", 4,
        ALL, 4, ALL);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");

    refit_plan_builder_add_stage(builder, "first", 1);
    refit_plan_builder_add_stage(builder, "second", 1);
    refit_plan_builder_add_batch(builder, 0, 0, FALSE);
    refit_plan_builder_add_batch(builder, 1, 0, FALSE);
    refit_plan_builder_add_batch(builder, 0, 0, TRUE);
    assign_members(builder, batches, 3);
    add_hops(builder, 0, hops, G_N_ELEMENTS(hops));
    g_autoptr(RefitPlan) plan = plan_case_finish(builder);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    g_assert_cmpuint(schedule->n_streams, ==, 6);
    schedule_assert(schedule, 4,
                    "0 network: <0:256d | 1 nvlink: >5:256d; after 0 | "
                    "2 network: <0:256d | 3 nvlink: >5:256d; after 2 | "
                    "4 network: <0:256d; after 1 0 3 2 | 5 nvlink: >5:256d; after 1 4 3 2");
    schedule_assert(schedule, 5,
                    "1 nvlink: <4:256d | 3 nvlink: <4:256d | 5 nvlink: <4:256d; after 0 1");
}

/* ---- plans that were turned round ---- */

static void assert_refused(RefitPlan *plan, RefitPair *pairs, const char *message) {
    const RefitPair *kept = plan->pairs;
    g_autoptr(GError) error = NULL;

    plan->pairs = pairs;
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    g_assert_false(refit_schedule_check(schedule, &error));
    input_assert_error(error, REFIT_ERROR_COVERAGE, message);
    plan->pairs = kept;
    g_free(pairs);
}

/* A hop that follows one of the same offset cannot start. */
static void test_late_dependency(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_bucket_plan(problem);
    RefitPair *pairs = g_memdup2(plan->pairs, plan->n_pairs * sizeof(RefitPair));
    guint last = plan->n_pairs - 1;

    pairs[last].offset = pairs[last - 1].offset;
    assert_refused(plan, pairs,
                   "a plan by the strategy by hand: rank 6, step 4: the message to rank 7 follows "
                   "one that comes no earlier");
}

/* Two stages whose order was turned round: the relay waits for what is numbered behind it. */
static void test_turned_round(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_relay_plan(problem);
    RefitPair *pairs = g_memdup2(plan->pairs, plan->n_pairs * sizeof(RefitPair));

    for (guint i = 0; i < plan->n_pairs; i++)
        pairs[i].stage = (guint16)(1 - pairs[i].stage);
    assert_refused(plan, pairs, "a plan by the strategy by hand: rank 2, step 1: *");
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/schedule/an-exchange-waits-for-what-arrived", test_worked);
    g_test_add_func("/schedule/relays-land-and-go-on", test_relay);
    g_test_add_func("/schedule/buckets-are-installed-behind-their-stage", test_bucket);
    g_test_add_func("/schedule/turns-of-two-streams-take-turns", test_turns);
    g_test_add_func("/schedule/hops-follow-each-other-or-overlap", test_hops);
    g_test_add_func("/schedule/steps-and-exchanges-end-where-numbers-have-a-gap", test_parts);
    g_test_add_func("/schedule/a-part-of-a-stage-stands-for-those-before", test_parts_that_ended);
    g_test_add_func("/schedule/a-copy-between-two-hops-stops-slices-of-its-batch", test_local_hop);
    g_test_add_func("/schedule/a-copy-at-the-start-is-whole", test_local_start);
    g_test_add_func("/schedule/slices-are-no-smaller-than-the-profile-says", test_small_slices);
    g_test_add_func("/schedule/a-stage-waits-for-arrivals-over-both-links", test_stage_waits);
    g_test_add_func("/schedule/a-barrier-waits-for-every-stream", test_barrier);
    g_test_add_func("/schedule/a-hop-beside-what-it-follows-is-refused", test_late_dependency);
    g_test_add_func("/schedule/stages-turned-round-are-refused", test_turned_round);
    return g_test_run();
}
