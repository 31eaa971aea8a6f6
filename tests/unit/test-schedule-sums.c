/*
 * Schedules of every strategy, by sums: the bytes of all turns are the plan's accounts per rank and
 * link class; turns are in one order, each at its place; all of them move the same share of each
 * message; what moves in a turn is the same at both ends of a message, and in the program of the
 * rank; installs are what its parameters take. For the tiny case, random cases and a shipped one,
 * with and without a staging budget.
 */

#include "random-case.h"
#include "schedule-cases.h"

#include "model/schedule/refit-program.h"

/* What moves between two ranks in a turn, as one end has it. */
typedef struct {
    guint src, dst, number, chunk;
    gboolean sends;
    guint64 bytes;
} Part;

static int compare_numbers(guint a, guint b) {
    return (a > b) - (a < b);
}

static int compare_parts(gconstpointer left, gconstpointer right) {
    const Part *a = left, *b = right;
    int order = compare_numbers(a->src, b->src);

    order = order != 0 ? order : compare_numbers(a->dst, b->dst);
    order = order != 0 ? order : compare_numbers(a->number, b->number);
    order = order != 0 ? order : compare_numbers(a->chunk, b->chunk);
    return order != 0 ? order : (a->sends ? 1 : 0) - (b->sends ? 1 : 0);
}

/* Both ends of everything, and just once. */
static void check_parts(GArray *parts) {
    g_assert_cmpuint(parts->len % 2, ==, 0);
    g_array_sort(parts, compare_parts);
    for (guint i = 0; i < parts->len; i += 2) {
        const Part *in = &g_array_index(parts, Part, i), *out = in + 1;

        g_assert_cmpuint(in->src, ==, out->src);
        g_assert_cmpuint(in->dst, ==, out->dst);
        g_assert_cmpuint(in->number, ==, out->number);
        g_assert_cmpuint(in->chunk, ==, out->chunk);
        g_assert_cmpuint(in->bytes, ==, out->bytes);
        g_assert_false(in->sends);
        g_assert_true(out->sends);
    }
}

/* ---- ranks ---- */

/* (number, install, chunk, stream), strictly. */
static void check_order(const RefitScheduleStep *steps, const RefitTurn *before,
                        const RefitTurn *turn) {
    int order = compare_numbers(before->number, turn->number);

    order = order != 0 ? order
                       : compare_numbers(steps[before->step].install, steps[turn->step].install);
    order = order != 0 ? order : compare_numbers(before->chunk, turn->chunk);
    order =
        order != 0 ? order : compare_numbers(steps[before->step].stream, steps[turn->step].stream);
    g_assert_cmpint(order, <, 0);
}

typedef struct {
    const RefitSchedule *schedule;
    guint rank;
    const RefitProgram *program; /* NULL: not compared */
    RefitRankAccount account;    /* of turns */
    guint64 installed;
    GArray *parts; /* Part */
} Sums;

/*
 * Every turn moves the same share of what the exchange has under the number, to a grain; of what
 * has fewer grains than the step has chunks, the first turns move a grain each.
 */
static void check_share(const RefitSchedule *schedule, const RefitScheduleStep *step,
                        const RefitScheduleExchange *exchange, const RefitTurn *turn,
                        guint64 bytes) {
    guint64 all = 0, grain = step->cutting.grain, n;

    for (guint i = 0; i < exchange->n_messages; i++)
        all += refit_schedule_message_bytes(schedule, schedule->messages[exchange->first + i],
                                            turn->number);
    if (step->link == REFIT_LINK_LOCAL || all <= grain || step->cutting.n == 1) {
        g_assert_cmpuint(bytes, ==, turn->chunk == 0 ? all : 0);
        return;
    }
    g_assert_cmpuint(turn->chunk, <, step->cutting.n);
    n = MIN((all + grain - 1) / grain, step->cutting.n);
    if (turn->chunk >= n) {
        g_assert_cmpuint(bytes, ==, 0);
        return;
    }
    g_assert_cmpuint(bytes, >, 0);
    g_assert_cmpuint(bytes, <=, all / n + grain);
    g_assert_cmpuint(bytes + grain, >=, all / n);
    if (turn->chunk + 1 < n)
        g_assert_cmpuint(bytes % grain, ==, 0);
}

static void enter_exchange(Sums *sums, const RefitScheduleStep *step, guint number,
                           const RefitTurn *turn) {
    const RefitScheduleExchange *exchange =
        &sums->schedule->exchanges[step->first_exchange + number];
    guint64 bytes =
        refit_schedule_turn_bytes(sums->schedule, step, exchange, turn->number, turn->chunk);
    gboolean sends = exchange->kind == REFIT_EXCHANGE_SEND;
    Part part = {sends ? sums->rank : exchange->peer,
                 sends ? exchange->peer : sums->rank,
                 turn->number,
                 turn->chunk,
                 sends,
                 bytes};

    if (exchange->kind != REFIT_EXCHANGE_INSTALL)
        check_share(sums->schedule, step, exchange, turn, bytes);
    if (sums->program != NULL) {
        const RefitExchange *of_program =
            &sums->program->exchanges[sums->program->steps[turn->step].first_exchange + number];

        g_assert_cmpuint(of_program->peer, ==, exchange->peer);
        g_assert_cmpint(of_program->sends, ==, sends);
        g_assert_cmpuint(refit_program_exchange_bytes(sums->program, of_program, turn), ==, bytes);
        if (exchange->kind == REFIT_EXCHANGE_INSTALL)
            g_assert_cmpuint(of_program->n_pieces, ==,
                             sums->schedule->installs[exchange->first].tensors);
    }
    switch ((RefitExchangeKind)exchange->kind) {
    case REFIT_EXCHANGE_INSTALL:
        sums->installed += bytes;
        break;
    case REFIT_EXCHANGE_COPY:
        sums->account.in[step->link] += bytes;
        sums->account.out[step->link] += bytes;
        break;
    default:
        g_assert_cmpuint(bytes, <=, refit_schedule_most_bytes(sums->schedule, exchange));
        *(sends ? &sums->account.out[step->link] : &sums->account.in[step->link]) += bytes;
        if (bytes > 0)
            g_array_append_val(sums->parts, part);
        break;
    }
}

/* What the parameters of a rank take of all tensors that come in buckets. */
static guint64 needed_of_buckets(const RefitPlan *plan, guint rank) {
    const RefitProblem *problem = plan->problem;
    guint64 bytes = 0;

    for (guint o = 0; o < plan->n_obligations; o++) {
        const RefitObligation *obligation = &plan->obligations[o];
        gboolean reached = FALSE;

        for (guint i = 0; i < obligation->n_ranks; i++)
            reached = reached || obligation->ranks[i] == rank;
        if (obligation->landing != REFIT_LANDING_BUCKET || !reached)
            continue;
        const RefitClass *klass = &problem->classes[obligation->class_index];
        for (guint d = 0; d < problem->refit_case->n_destinations; d++) {
            const RefitSharding *sharding =
                refit_layout_sharding(problem->refit_case->destinations[d], klass->members[0]);

            for (guint part = 0; sharding != NULL && part < refit_sharding_n_parts(sharding);
                 part++) {
                g_auto(RefitRegion) region = {0};
                guint64 buffer[REFIT_MAX_DIMS];

                if (refit_sharding_local(sharding, part, rank, klass->n_dims, klass->shape, &region,
                                         buffer, NULL))
                    bytes +=
                        refit_class_bytes(klass, refit_region_volume(&region)) * klass->n_members;
            }
        }
    }
    return bytes;
}

static void check_rank(Sums *sums) {
    const RefitSchedule *schedule = sums->schedule;
    const RefitRankAccount *expected = &schedule->plan->accounts[sums->rank];
    g_autoptr(GArray) turns = refit_schedule_list_turns(schedule, sums->rank);
    g_autofree guint *places = g_new0(guint, schedule->n_streams);
    guint n_steps, n_groups = 0;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, sums->rank, &n_steps);

    for (guint t = 0; t < turns->len; t++) {
        const RefitTurn *turn = &g_array_index(turns, RefitTurn, t);
        const RefitScheduleStep *step = &steps[turn->step];

        if (t > 0)
            check_order(steps, turn - 1, turn);
        g_assert_cmpuint(step->first_turn + refit_schedule_turn_place(step, turn), ==,
                         places[step->stream]++);
        n_groups += step->link != REFIT_LINK_LOCAL ? 1 : 0;
        for (guint e = 0; e < step->n_exchanges; e++)
            enter_exchange(sums, step, e, turn);
    }
    g_assert_cmpuint(turns->len, ==, schedule->ranks[sums->rank].n_turns);
    g_assert_cmpuint(n_groups, ==, schedule->ranks[sums->rank].n_groups);
    for (guint link = 0; link < REFIT_N_LINKS; link++) {
        g_assert_cmpuint(sums->account.in[link], ==, expected->in[link]);
        g_assert_cmpuint(sums->account.out[link], ==, expected->out[link]);
    }
    g_assert_cmpuint(sums->installed, ==, needed_of_buckets(schedule->plan, sums->rank));
}

/* ---- programs ---- */

static void check_with_program(Sums *sums) {
    const RefitCase *refit_case = sums->schedule->plan->problem->refit_case;
    g_autoptr(RefitRankViews) source = schedule_views_of(refit_case->source, sums->rank);
    g_autoptr(RefitRankViews) destination = NULL;
    g_autoptr(GError) error = NULL;

    for (guint d = 0; destination == NULL && d < refit_case->n_destinations; d++)
        destination = schedule_views_of(refit_case->destinations[d], sums->rank);
    g_autoptr(RefitProgram) program =
        refit_program_new(sums->schedule, sums->rank, source, destination, &error);
    g_assert_no_error(error);
    sums->program = program;
    check_rank(sums);
}

/* ---- schedules ---- */

/* All numbers of a message together are the message. */
static void check_messages(const RefitSchedule *schedule) {
    for (guint m = 0; m < schedule->plan->n_messages; m++) {
        const RefitMessage *message = &schedule->plan->messages[m];
        guint slices = refit_schedule_message_slices(schedule, message);
        guint64 bytes = 0;

        for (guint k = 0; k < slices; k++)
            bytes += refit_schedule_message_bytes(schedule, m, message->step + k);
        g_assert_cmpuint(bytes, ==, message->bytes);
        g_assert_cmpuint(refit_schedule_message_bytes(schedule, m, message->step + slices), ==, 0);
        if (message->step > 0)
            g_assert_cmpuint(refit_schedule_message_bytes(schedule, m, message->step - 1), ==, 0);
    }
}

/* Programs are made of every `stride`th rank. */
static void check_plan(const RefitPlan *plan, guint stride) {
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);
    g_autoptr(GArray) parts = g_array_new(FALSE, FALSE, sizeof(Part));

    check_messages(schedule);
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++) {
        Sums sums = {.schedule = schedule, .rank = rank, .parts = parts};

        if (rank % stride == 0)
            check_with_program(&sums);
        else
            check_rank(&sums);
    }
    check_parts(parts);
}

/* Without a budget, and in chunks as small as can be. */
static void check_case(RefitCase *refit_case, guint stride, gboolean small) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        refit_case->budget_staging_bytes = 0;
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, refit_strategies()[i]);

        if (plan == NULL)
            continue;
        g_test_message("strategy %s", plan->strategy);
        check_plan(plan, stride);
        refit_case->budget_staging_bytes = 1;
        if (small)
            check_plan(plan, stride);
    }
}

static void check_shipped(const char *name, guint stride, gboolean small) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), name, NULL, &error);

    g_assert_no_error(error);
    check_case(refit_case, stride, small);
}

static void test_tiny(void) {
    check_shipped("tiny", 1, TRUE);
}

/* Experts with copies in other slots, and two pools; a rank of both sides. */
static void test_copies(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc =
        input_doc("schema: refit.case/1\nmodel: tiny\ndtype: bf16\n"
                  "train: {framework: megatron, gpus: 4, tp: 2, pp: 1, ep: 2}\n"
                  "generation:\n"
                  "  - {framework: vllm, gpus: 4, first_gpu: 2, tp: 2, dp: 2, ep: true, "
                  "redundant_experts: 4}\n"
                  "  - {framework: sglang, gpus: 2, first_gpu: 6, tp: 2}\n"
                  "topology: \"node:2 gpu:4 nvlink:450GBps nic:50GBps\"\n");
    g_autoptr(RefitCase) refit_case = refit_case_parse(input_store(), doc, &error);

    g_assert_no_error(error);
    check_case(refit_case, 1, TRUE);
}

static void test_random(void) {
    guint first = g_test_rand_int() & 0xffff, n = g_test_thorough() ? 1000 : 50;

    for (guint i = 0; i < n; i++) {
        g_autoptr(RandomCase) random = random_case_new(first + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);

        g_test_message("seed %u", first + i);
        check_case(refit_case, 1, TRUE);
    }
}

static void test_shipped(void) {
    check_shipped("qwen3-30b-h100", 7, FALSE);
    check_shipped("prefill-decode-h100", 7, FALSE);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/schedule-sums/tiny-case-with-every-strategy", test_tiny);
    g_test_add_func("/schedule-sums/copies-of-experts-with-every-strategy", test_copies);
    g_test_add_func("/schedule-sums/random-cases-with-every-strategy", test_random);
    g_test_add_func("/schedule-sums/shipped-cases-with-every-strategy", test_shipped);
    return g_test_run();
}
