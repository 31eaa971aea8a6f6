/*
 * Damaged schedules: one thing is changed in a right one, and the proof that all ranks finish must
 * refuse it and say what is wrong: order, waits, ends of messages, chunks, numbers and turns. And
 * schedules of every strategy are accepted.
 */

#include "schedule-cases.h"

typedef RefitPlan *(*Make)(const RefitProblem *problem);
typedef void (*Damage)(const RefitSchedule *schedule);

/* ---- what is damaged ---- */

/*
 * Of the bucket plan of plan-cases.h, with four slices:
 *
 *   rank 0  0 nvlink: <1 >1 | 1-4 network: >4; after 0
 *   rank 4  1-4 network: <0 | 2-5 nvlink: >5; after ~0 | 7 local: an install; after 0
 *   rank 5  2-6 nvlink: <4 >6; after ~0 | 7 local: an install; after 0
 *   rank 7  4-7 nvlink: <6 | 7 local: an install; after 0
 */
static RefitScheduleStep *step_of(const RefitSchedule *schedule, guint rank, guint number) {
    return (RefitScheduleStep *)&schedule->steps[schedule->step_offsets[rank] + number];
}

static RefitScheduleExchange *exchange_of(const RefitSchedule *schedule, guint rank, guint number,
                                          guint exchange) {
    return (RefitScheduleExchange *)&schedule
        ->exchanges[step_of(schedule, rank, number)->first_exchange + exchange];
}

static RefitWait *wait_of(const RefitSchedule *schedule, guint rank, guint number) {
    return (RefitWait *)&schedule->waits[step_of(schedule, rank, number)->first_wait];
}

/*
 * Three messages of two slices, from rank 0 to 4, under numbers 0 and 1, 1 and 2, 4 and 5; others
 * fill the numbers:
 *
 *   rank 0  0-2 network: >4x2 | 4-5 network: >4
 */
static RefitPlan *plan_row(const RefitProblem *problem) {
    static const struct {
        const char *region;
        guint src, dst;
    } hops[] = {{"0:4,0:2", 0, 4},
                {"0:4,2:4", 0, 4},
                {"4:8,0:2", 1, 5},
                {"4:8,0:2", 1, 6},
                {"0:4,0:4", 0, 4}};
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "row", 2);

    plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
    for (guint i = 0; i < G_N_ELEMENTS(hops); i++) {
        refit_plan_builder_set_least_depth(builder, i);
        plan_case_add(builder, 0, hops[i].region, hops[i].src, hops[i].dst, stage,
                      REFIT_LANDING_HOME, NULL, 0);
    }
    return plan_case_finish(builder);
}

/* ---- order ---- */

static void swap_steps(const RefitSchedule *schedule) {
    RefitScheduleStep first = *step_of(schedule, 4, 0);

    *step_of(schedule, 4, 0) = *step_of(schedule, 4, 1);
    *step_of(schedule, 4, 1) = first;
}

static void repeat_step(const RefitSchedule *schedule) {
    *step_of(schedule, 4, 1) = *step_of(schedule, 4, 0);
}

static void swap_streams(const RefitSchedule *schedule) {
    step_of(schedule, 4, 1)->number--;
}

static void overlap_steps(const RefitSchedule *schedule) {
    step_of(schedule, 0, 0)->n_numbers += 2;
    step_of(schedule, 0, 1)->first_turn += 2;
}

static void move_install(const RefitSchedule *schedule) {
    step_of(schedule, 4, 2)->number = 4;
    step_of(schedule, 4, 2)->install = 0;
}

/* ---- waits ---- */

static void wait_for_itself(const RefitSchedule *schedule) {
    wait_of(schedule, 4, 2)->step = 2;
}

static void wait_for_later(const RefitSchedule *schedule) {
    *wait_of(schedule, 4, 1) = (RefitWait){2, FALSE};
}

static void wait_for_all_slices(const RefitSchedule *schedule) {
    wait_of(schedule, 4, 1)->in_slices = FALSE;
}

static void wait_for_slices_of_an_install(const RefitSchedule *schedule) {
    wait_of(schedule, 4, 1)->step = 2;
}

static void wait_for_slices_of_a_stage(const RefitSchedule *schedule) {
    wait_of(schedule, 0, 1)->in_slices = TRUE;
}

static void install_in_slices(const RefitSchedule *schedule) {
    wait_of(schedule, 4, 2)->in_slices = TRUE;
}

static void wait_for_nothing(const RefitSchedule *schedule) {
    wait_of(schedule, 4, 2)->step = 3;
}

static void wait_far_away(const RefitSchedule *schedule) {
    wait_of(schedule, 0, 1)->step = G_MAXUINT;
}

static void install_too_early(const RefitSchedule *schedule) {
    step_of(schedule, 4, 2)->number = 3;
}

/* ---- ends of messages ---- */

static void lose_exchange(const RefitSchedule *schedule) {
    step_of(schedule, 5, 0)->n_exchanges--;
}

static void lose_message(const RefitSchedule *schedule) {
    exchange_of(schedule, 0, 0, 0)->n_messages--;
}

static void lose_all_messages(const RefitSchedule *schedule) {
    exchange_of(schedule, 7, 0, 0)->n_messages = 0;
}

static void lose_exchanges(const RefitSchedule *schedule) {
    step_of(schedule, 7, 0)->n_exchanges = 0;
}

static void lose_step(const RefitSchedule *schedule) {
    ((guint *)schedule->step_offsets)[8]--;
}

static void take_other_message(const RefitSchedule *schedule) {
    exchange_of(schedule, 5, 0, 1)->first = exchange_of(schedule, 5, 0, 0)->first;
}

static void take_message_twice(const RefitSchedule *schedule) {
    *exchange_of(schedule, 0, 0, 1) = *exchange_of(schedule, 0, 0, 0);
}

static void change_peer(const RefitSchedule *schedule) {
    exchange_of(schedule, 7, 0, 0)->peer--;
}

static void turn_round(const RefitSchedule *schedule) {
    exchange_of(schedule, 7, 0, 0)->kind = REFIT_EXCHANGE_SEND;
}

static void change_stage(const RefitSchedule *schedule) {
    step_of(schedule, 7, 0)->stage = 0;
}

static void change_batch(const RefitSchedule *schedule) {
    step_of(schedule, 7, 0)->batch++;
}

static void change_link(const RefitSchedule *schedule) {
    step_of(schedule, 7, 0)->link = REFIT_LINK_NETWORK;
}

static void change_stream(const RefitSchedule *schedule) {
    step_of(schedule, 7, 0)->stream++;
}

/* Rank 0 has the two messages of its first step in an exchange each, rank 4 in one. */
static void split_exchange(const RefitSchedule *schedule) {
    RefitScheduleStep *step = step_of(schedule, 0, 0);
    RefitScheduleExchange *exchanges =
        g_renew(RefitScheduleExchange, (gpointer)schedule->exchanges, schedule->n_exchanges + 2);
    RefitScheduleExchange *halves = &exchanges[schedule->n_exchanges];

    halves[0] = halves[1] = exchanges[step->first_exchange];
    halves[0].n_messages = halves[1].n_messages = 1;
    halves[1].first++;
    step->first_exchange = schedule->n_exchanges;
    step->n_exchanges = 2;
    ((RefitSchedule *)schedule)->exchanges = exchanges;
}

static void slice_otherwise(const RefitSchedule *schedule) {
    exchange_of(schedule, 7, 0, 0)->slices--;
}

/* ---- numbers, chunks and turns ---- */

static void begin_late(const RefitSchedule *schedule) {
    step_of(schedule, 7, 0)->number++;
}

static void end_early(const RefitSchedule *schedule) {
    step_of(schedule, 7, 0)->n_numbers--;
}

static void have_no_numbers(const RefitSchedule *schedule) {
    step_of(schedule, 7, 0)->n_numbers = 0;
}

static void cut_otherwise(const RefitSchedule *schedule) {
    step_of(schedule, 4, 0)->cutting.grain += REFIT_SCHEDULE_ALIGN;
}

static void cut_into_more(const RefitSchedule *schedule) {
    step_of(schedule, 4, 0)->cutting.n++;
}

static void cut_finer(const RefitSchedule *schedule) {
    step_of(schedule, 4, 0)->cutting = step_of(schedule, 0, 1)->cutting = (RefitCutting){3, 16};
}

static void cut_into_nothing(const RefitSchedule *schedule) {
    step_of(schedule, 4, 0)->cutting.grain = step_of(schedule, 0, 1)->cutting.grain = 0;
}

static void cut_into_none(const RefitSchedule *schedule) {
    step_of(schedule, 4, 0)->cutting.n = step_of(schedule, 0, 1)->cutting.n = 0;
}

static void have_no_chunks(const RefitSchedule *schedule) {
    step_of(schedule, 4, 0)->n_chunks = 0;
}

static void have_more_chunks(const RefitSchedule *schedule) {
    step_of(schedule, 0, 0)->n_chunks++;
}

static void turn_late(const RefitSchedule *schedule) {
    step_of(schedule, 4, 1)->first_turn++;
}

static void turn_early(const RefitSchedule *schedule) {
    step_of(schedule, 0, 1)->first_turn--;
}

static void meet_too_many(const RefitSchedule *schedule) {
    RefitScheduleStep *step = step_of(schedule, 0, 0);
    RefitScheduleExchange *exchanges =
        g_renew(RefitScheduleExchange, (gpointer)schedule->exchanges, schedule->n_exchanges + 257);

    for (guint i = 0; i < 257; i++) {
        exchanges[schedule->n_exchanges + i] = exchanges[step->first_exchange];
        exchanges[schedule->n_exchanges + i].peer = i;
    }
    step->first_exchange = schedule->n_exchanges;
    step->n_exchanges = 257;
    ((RefitSchedule *)schedule)->exchanges = exchanges;
}

/* ---- the table ---- */

static const struct {
    const char *path;
    Make make;
    Damage damage;
    const char *words;
} damages[] = {
    {"steps-that-changed-places", plan_case_bucket_plan, swap_steps, "comes after step 2"},
    {"a-step-that-is-there-twice", plan_case_bucket_plan, repeat_step, "comes after step 1"},
    {"streams-out-of-order", plan_case_bucket_plan, swap_streams, "comes after step 1"},
    {"steps-that-overlap-on-a-stream", plan_row, overlap_steps, "is not behind the one before"},
    {"a-copy-before-what-it-stands-behind", plan_case_bucket_plan, move_install, "step 4: "},
    {"a-wait-for-the-step-itself", plan_case_bucket_plan, wait_for_itself, "does not end before"},
    {"a-wait-for-a-later-step", plan_case_bucket_plan, wait_for_later, "does not end before"},
    {"a-wait-for-slices-under-way", plan_case_bucket_plan, wait_for_all_slices,
     "waits for step 4, which does not end before"},
    {"a-wait-for-slices-of-an-install", plan_case_bucket_plan, wait_for_slices_of_an_install,
     "does not end before"},
    {"a-wait-for-slices-of-another-stage", plan_case_bucket_plan, wait_for_slices_of_a_stage,
     "does not end before"},
    {"an-install-that-waits-for-slices", plan_case_bucket_plan, install_in_slices,
     "does not end before"},
    {"a-wait-for-no-step", plan_case_bucket_plan, wait_for_nothing, "waits for no step"},
    {"a-wait-for-a-step-far-away", plan_case_bucket_plan, wait_far_away, "waits for no step"},
    {"an-install-before-the-arrival", plan_case_bucket_plan, install_too_early,
     "waits for step 4, which does not end before"},
    {"an-exchange-without-its-other-end", plan_case_bucket_plan, lose_exchange,
     "rank 5, step 3: the message to rank 6 has 1 of its ends"},
    {"a-message-without-its-other-end", plan_row, lose_message, "has 1 of its ends"},
    {"an-exchange-without-messages", plan_case_bucket_plan, lose_all_messages,
     "the message to rank 7 has 1 of its ends"},
    {"a-step-without-exchanges", plan_case_bucket_plan, lose_exchanges, "rank 7, step 4: "},
    {"a-rank-without-its-last-step", plan_case_worked_plan, lose_step,
     "the message to rank 7 has 1 of its ends"},
    {"a-message-of-others", plan_case_bucket_plan, take_other_message,
     "has a message with rank 6 that is not of it"},
    {"a-message-that-is-there-twice", plan_case_bucket_plan, take_message_twice, "or has it twice"},
    {"another-peer", plan_case_bucket_plan, change_peer, "rank 5 that is not of it"},
    {"another-direction", plan_case_bucket_plan, turn_round, "that is not of it"},
    {"another-stage", plan_case_bucket_plan, change_stage, "that is not of it"},
    {"another-batch", plan_case_bucket_plan, change_batch, "that is not of it"},
    {"another-link", plan_case_bucket_plan, change_link, "that is not of it"},
    {"another-stream-at-one-end", plan_case_bucket_plan, change_stream,
     "cuts the message with rank 6 otherwise"},
    {"an-exchange-cut-in-two-at-one-end", plan_row, split_exchange, "otherwise"},
    {"other-slices-at-one-end", plan_case_bucket_plan, slice_otherwise,
     "has other slices of the message of step 4"},
    {"a-step-that-begins-late", plan_case_bucket_plan, begin_late,
     "has no turns for the message of step 4"},
    {"a-step-that-ends-early", plan_case_bucket_plan, end_early,
     "has no turns for the message of step 4"},
    {"a-step-without-numbers", plan_case_bucket_plan, have_no_numbers, "rank 7, step 4: "},
    {"other-grains-at-one-end", plan_case_bucket_plan, cut_otherwise,
     "cuts the message with rank 0 otherwise"},
    {"more-chunks-at-one-end", plan_case_bucket_plan, cut_into_more,
     "cuts the message with rank 0 otherwise"},
    {"too-few-chunks", plan_case_bucket_plan, cut_finer, "has 1 chunks, too few for 33 bytes"},
    {"grains-of-no-bytes", plan_case_bucket_plan, cut_into_nothing, "rank 0, step 1: "},
    {"cut-into-no-chunks", plan_case_bucket_plan, cut_into_none, "rank 0, step 1: "},
    {"a-step-without-chunks", plan_case_bucket_plan, have_no_chunks, "rank 4, step 1: "},
    {"more-chunks-than-there-are-places", plan_row, have_more_chunks,
     "is not behind the one before"},
    {"turns-one-place-late", plan_case_bucket_plan, turn_late, "is not behind the one before"},
    {"turns-one-place-early", plan_row, turn_early, "is not behind the one before"},
    {"more-exchanges-than-a-turn-may-have", plan_case_worked_plan, meet_too_many,
     "has 257 exchanges in a turn, the limit is 256"},
};

static void test_damage(gconstpointer data) {
    guint row = GPOINTER_TO_UINT(data);
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = damages[row].make(problem);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);
    g_autoptr(GError) error = NULL;

    damages[row].damage(schedule);
    g_assert_false(refit_schedule_check(schedule, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    g_assert_true(g_str_has_prefix(error->message, "a plan by the strategy by hand: rank "));
    if (strstr(error->message, damages[row].words) == NULL)
        g_error("\"%s\" is not in: %s", damages[row].words, error->message);
}

/* The schedule that rows are about, so that they damage what they say. */
static void test_row(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_row(problem);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    schedule_assert(schedule, 0, "0-2 network: >4:32px2 | 4-5 network: >4:32d");
    schedule_assert(schedule, 4, "0-2 network: <0:32px2 | 4-5 network: <0:32p");
}

/* ---- schedules that are right ---- */

static void assert_strategies(const RefitCase *refit_case) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, refit_strategies()[i]);

        if (plan != NULL)
            refit_schedule_free(schedule_of(plan));
    }
}

static void test_strategies(void) {
    static const StrategyCase described = {
        .topology = "node:4 gpu:4 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: \"w.{0-9}\", shape: [16, 8], role: dense_up}\n"
                   "  - {name: v, shape: [12, 4], role: norm}\n",
        .source = "gpus: 8, rules: [{tensors: \"w.*\", mesh: [2, 4], place: [replicate, "
                  "{shard: 0}]}, {tensors: v, place: [{shard: 0}]}]",
        .pools = {"gpus: 8, first_gpu: 8, rules: [{tensors: \"*\", mesh: [4, 2], place: "
                  "[replicate, {shard: 1}]}]"}};
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);

    assert_strategies(refit_case);
}

static void test_shipped(void) {
    static const char *const names[] = {"tiny", "qwen3-30b-h100", "prefill-decode-h100"};

    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), names[i], NULL, &error);

        g_assert_no_error(error);
        assert_strategies(refit_case);
    }
}

static void test_plans_by_hand(void) {
    static const Make makes[] = {plan_case_worked_plan, plan_case_relay_plan, plan_case_bucket_plan,
                                 plan_case_direct_plan};
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; i < G_N_ELEMENTS(makes); i++) {
        g_autoptr(RefitPlan) plan = makes[i](problem);

        refit_schedule_free(schedule_of(plan));
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/schedule-damage/the-row-that-is-damaged", test_row);
    for (guint i = 0; i < G_N_ELEMENTS(damages); i++) {
        g_autofree char *path =
            g_strconcat("/schedule-damage/", damages[i].path, "-is-refused", NULL);

        g_test_add_data_func(path, GUINT_TO_POINTER(i), test_damage);
    }
    g_test_add_func("/schedule-damage/plans-of-every-strategy-finish", test_strategies);
    g_test_add_func("/schedule-damage/plans-of-shipped-cases-finish", test_shipped);
    g_test_add_func("/schedule-damage/plans-by-hand-finish", test_plans_by_hand);
    return g_test_run();
}
