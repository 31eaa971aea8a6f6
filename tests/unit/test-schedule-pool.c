/*
 * The pool that chunks share, by an independent count over all ranks: for every strategy on the
 * tiny case, random and shipped cases; wire memory is no larger than the pool, staging memory than
 * plans keep to, and any budget is kept that the smallest chunks keep.
 */

#include "model/schedule/refit-schedule.h"
#include "random-case.h"

#include <math.h>

#define MIB (G_GUINT64_CONSTANT(1) << 20)

/* ---- an independent count ---- */

/* Bytes of a turn per stream: what the smallest chunks take, and more as the pool has it. */
/* A turn takes twice as long to move as to submit, if there is so much. */
static double wanted_bytes(const RefitSchedule *schedule, guint stream, guint64 most,
                           guint exchanges) {
    const RefitCase *refit_case = schedule->plan->problem->refit_case;
    double rate = stream % REFIT_N_LINKS == REFIT_LINK_NVLINK
                      ? refit_case->topology->nvlink_bandwidth.value
                      : refit_case->topology->nic_bandwidth.value;
    double operation_s =
        refit_case->profile == NULL || refit_case->profile->off[REFIT_TERM_OPERATION]
            ? 0
            : refit_case->profile->terms[REFIT_TERM_OPERATION].value;
    double least = MAX((double)most / 256, 16777216.0);

    return MAX(least, MIN(2 * (1 + exchanges) * operation_s * rate, (double)most));
}

static guint64 *find_shares(const RefitSchedule *schedule, guint64 pool) {
    gboolean budget = schedule->plan->problem->refit_case->budget_staging_bytes > 0;
    guint n_streams = schedule->n_streams;
    g_autofree guint64 *least = g_new0(guint64, n_streams), *most = g_new0(guint64, n_streams);
    g_autofree guint *exchanges = g_new0(guint, n_streams);
    guint64 *shares = g_new0(guint64, n_streams);
    double left = (double)pool / 2, sum = 0, roots = 0;

    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++) {
        g_autofree guint64 *packed = g_new0(guint64, n_streams);
        guint n;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n);

        for (guint i = 0; i < n; i++) {
            guint64 smallest = 0;

            for (guint e = 0; steps[i].link != REFIT_LINK_LOCAL && e < steps[i].n_exchanges; e++) {
                const RefitScheduleExchange *exchange =
                    &schedule->exchanges[steps[i].first_exchange + e];

                if (exchange->direct)
                    continue;
                smallest += 256;
                for (guint m = 0; m < exchange->n_messages; m++)
                    packed[steps[i].stream] +=
                        schedule->plan->messages[schedule->messages[exchange->first + m]].bytes;
            }
            least[steps[i].stream] = MAX(least[steps[i].stream], smallest);
            if (steps[i].link != REFIT_LINK_LOCAL)
                exchanges[steps[i].stream] = MAX(exchanges[steps[i].stream], steps[i].n_exchanges);
        }
        for (guint s = 0; s < n_streams; s++)
            most[s] = MAX(most[s], packed[s]);
    }
    for (guint s = 0; s < n_streams; s++) {
        double wanted = most[s] > 0 ? wanted_bytes(schedule, s, most[s], exchanges[s]) : 0;

        sum += wanted;
        roots += sqrt(wanted);
        left -= (double)least[s];
    }
    for (guint s = 0; s < n_streams; s++) {
        double wanted = wanted_bytes(schedule, s, most[s], exchanges[s]);

        if (most[s] == 0)
            continue;
        if (sum > left)
            wanted = MIN(MAX(left, 0) * sqrt(wanted) / roots, wanted);
        shares[s] = left < 0 ? 0 : least[s] + (guint64)wanted;
        if (!budget)
            shares[s] = MAX(shares[s], 4 << 20);
    }
    return shares;
}

static guint64 up(guint64 bytes) {
    return MAX((bytes + 255) / 256 * 256, 256);
}

static guint64 grains_of(guint64 bytes, guint64 grain) {
    return (bytes + grain - 1) / grain;
}

/* Memory for the largest of n chunks of an exchange, or of as many as it has grains. */
static guint64 largest_chunk(guint64 bytes, guint n, guint64 grain) {
    guint64 grains = grains_of(bytes, grain), chunks = MIN(MAX(grains, 1), n);

    return chunks == 1 ? up(bytes) : (grains + chunks - 1) / chunks * grain;
}

static gboolean is_under_way(const RefitSchedule *schedule, const RefitScheduleExchange *exchange,
                             guint number) {
    for (guint m = 0; m < exchange->n_messages; m++) {
        const RefitMessage *message =
            &schedule->plan->messages[schedule->messages[exchange->first + m]];

        if (message->step <= number &&
            number < message->step + refit_schedule_message_slices(schedule, message))
            return TRUE;
    }
    return FALSE;
}

/* What a step packs under one of its numbers at most, in n chunks. */
static guint64 most_packed(const RefitSchedule *schedule, const RefitScheduleStep *step, guint n) {
    guint64 most = 0;

    for (guint k = 0; k < step->n_numbers; k++) {
        guint64 sum = 0;

        for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
            const RefitScheduleExchange *exchange = &schedule->exchanges[e];

            if (!exchange->direct && is_under_way(schedule, exchange, step->number + k))
                sum += largest_chunk(refit_schedule_most_bytes(schedule, exchange), n,
                                     step->cutting.grain);
        }
        most = MAX(most, sum);
    }
    return most;
}

/* Packed exchanges of a step; the most grains of one, and the most chunks of any exchange. */
typedef struct {
    guint n;
    guint64 grains;
    guint64 chunks;
} Packs;

static Packs find_packs(const RefitSchedule *schedule, const RefitScheduleStep *step) {
    Packs packs = {0, 0, 1};

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];
        guint64 grains =
            grains_of(refit_schedule_most_bytes(schedule, exchange), step->cutting.grain);

        packs.chunks = MAX(packs.chunks, MIN(grains, step->cutting.n));
        if (exchange->direct)
            continue;
        packs.n++;
        packs.grains = MAX(packs.grains, grains);
    }
    return packs;
}

/* What all ranks that share numbers and a link class have in common. */
typedef struct {
    RefitCutting cutting;
    guint64 grain;      /* what all of them ask for */
    gboolean is_fewest; /* some step has no room in fewer chunks */
} Group;

/* (batch, stage) of a sliced stage, else the number; and the link class. */
static guint64 group_key(const RefitSchedule *schedule, const RefitScheduleStep *step) {
    gboolean sliced = refit_schedule_slices(schedule, step->batch, step->stage) > 1;
    guint64 key =
        sliced ? (guint64)step->batch * schedule->plan->n_stages + step->stage : step->number;

    return ((key << 1 | (sliced ? 1 : 0)) * REFIT_N_LINKS) + step->link;
}

static Group *group_of(GHashTable *groups, const RefitSchedule *schedule,
                       const RefitScheduleStep *step) {
    guint64 key = group_key(schedule, step);
    Group *group = g_hash_table_lookup(groups, &key);

    if (group == NULL) {
        group = g_new0(Group, 1);
        group->cutting = step->cutting;
        group->grain = step->link == REFIT_LINK_NVLINK ? MIB : MIB / 2;
        group->is_fewest = step->cutting.n == 1;
        g_hash_table_insert(groups, g_memdup2(&key, sizeof key), group);
    }
    return group;
}

/* The step is cut as its group is, has turns for that, and room for a turn in its stream's share,
 * unless its chunks are single grains. */
static void assert_step(const RefitSchedule *schedule, const RefitScheduleStep *step, guint64 share,
                        Group *group) {
    Packs packs = find_packs(schedule, step);
    guint n = step->cutting.n;

    g_assert_cmpuint(n, ==, group->cutting.n);
    g_assert_cmpuint(step->cutting.grain, ==, group->cutting.grain);
    g_assert_cmpuint(step->n_chunks, ==, packs.chunks);
    if (packs.n == 0)
        return;
    /* A quarter of the share for a grain of each exchange, in multiples of 256. */
    group->grain = MIN(group->grain, MAX(share / packs.n / 4 / 256 * 256, 256));
    if (n < packs.grains)
        g_assert_cmpuint(most_packed(schedule, step, n), <=, share);
    if (n > 1 && n <= packs.grains)
        group->is_fewest |= most_packed(schedule, step, n - 1) > share;
}

/* Chunks of all ranks, by what all of them ask for; steps in more chunks than one. */
static guint assert_shared(const RefitSchedule *schedule, guint64 pool) {
    g_autoptr(GHashTable) groups =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    g_autofree guint64 *shares = find_shares(schedule, pool);
    guint n_cut = 0;
    GHashTableIter iter;
    gpointer value;

    for (guint i = 0; i < schedule->n_steps; i++) {
        const RefitScheduleStep *step = &schedule->steps[i];

        n_cut += step->n_chunks > 1 ? 1 : 0;
        if (step->link != REFIT_LINK_LOCAL) {
            assert_step(schedule, step, shares[step->stream], group_of(groups, schedule, step));
            continue;
        }
        g_assert_cmpuint(step->cutting.n, ==, 1);
        g_assert_cmpuint(step->cutting.grain, ==, G_MAXUINT64);
        g_assert_cmpuint(step->n_chunks, ==, 1);
    }
    g_hash_table_iter_init(&iter, groups);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Group *group = value;

        g_assert_cmpuint(group->cutting.grain, ==, group->grain);
        g_assert_true(group->is_fewest);
    }
    return n_cut;
}

/* ---- strategies ---- */

/* Places of messages that follow each other in a slot may leave gaps, for which budgets make chunks
 * smaller. */
static gboolean may_have_gaps(const RefitSchedule *schedule) {
    for (guint i = 0; i < schedule->n_steps; i++)
        if (schedule->steps[i].n_numbers > 1 && schedule->steps[i].n_exchanges > 2)
            return TRUE;
    return FALSE;
}

/* Steps in more chunks than one; *wire_out: the most wire memory of a rank. */
static guint assert_within(RefitCase *refit_case, const RefitPlan *plan, guint64 budget,
                           guint64 *wire_out) {
    g_autoptr(GError) error = NULL;
    guint64 landings = 0, pool = REFIT_SCHEDULE_POOL_BYTES;

    refit_case->budget_staging_bytes = budget;
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);
    *wire_out = 0;
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++) {
        landings = MAX(landings, schedule->ranks[rank].landing_bytes);
        *wire_out = MAX(*wire_out, schedule->ranks[rank].wire_bytes);
    }
    if (budget > 0)
        pool = MIN(budget - MIN(budget, landings), pool);
    else if (landings > REFIT_PLAN_STAGING_BYTES - pool)
        pool = MAX(REFIT_PLAN_STAGING_BYTES - MIN(landings, REFIT_PLAN_STAGING_BYTES), pool / 4);
    return budget > 1 && may_have_gaps(schedule) ? 0 : assert_shared(schedule, pool);
}

static guint64 most_staging(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    guint64 most = 0;

    g_assert_no_error(error);
    for (guint rank = 0; rank < plan->problem->n_ranks; rank++)
        most = MAX(most, refit_schedule_staging_bytes(schedule, rank));
    return most;
}

/* Any budget is kept that the smallest chunks keep. */
static void assert_kept(RefitCase *refit_case, const RefitPlan *plan) {
    refit_case->budget_staging_bytes = 1;
    guint64 least = most_staging(plan);

    for (guint i = 0; least > 0 && i < 8; i++) {
        refit_case->budget_staging_bytes = least + i * least / 5;
        g_assert_cmpuint(most_staging(plan), <=, refit_case->budget_staging_bytes);
    }
}

/* `staging`: budget by which strategies make their batches; 0: none. */
static guint assert_case(RefitCase *refit_case, guint64 staging) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    guint n = 0;

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        guint64 wire;

        refit_case->budget_staging_bytes = staging;
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, refit_strategies()[i]);
        if (plan == NULL)
            continue;
        n += assert_within(refit_case, plan, 0, &wire);
        n += assert_within(refit_case, plan, 1, &wire);
        n += assert_within(refit_case, plan, 3 * wire, &wire);
        assert_kept(refit_case, plan);
    }
    return n;
}

static void test_tiny(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), "tiny", NULL, &error);

    g_assert_no_error(error);
    g_assert_cmpuint(assert_case(refit_case, 0), >, 0);
    g_assert_cmpuint(assert_case(refit_case, 4000), >, 0);
}

static void test_random(void) {
    guint first = g_test_rand_int() & 0xffff, n = g_test_thorough() ? 1000 : 50, n_chunks = 0;

    for (guint i = 0; i < n; i++) {
        g_autoptr(RandomCase) random = random_case_new(first + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);

        g_test_message("seed %u", first + i);
        n_chunks += assert_case(refit_case, i % 2 == 0 ? 0 : 2000);
    }
    g_assert_cmpuint(n_chunks, >, 0);
}

/* Single messages of these have gigabytes. */
static void assert_shipped(const char *name, const char *strategy) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), name, NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy);
    guint64 wire;

    assert_within(refit_case, plan, 0, &wire);
    g_test_message("%s, %s: %" G_GUINT64_FORMAT, name, strategy, wire);
    g_assert_cmpuint(wire, <=, REFIT_SCHEDULE_POOL_BYTES);
    g_assert_cmpuint(wire, >=, 2 * 16 * MIB);
    g_assert_cmpuint(most_staging(plan), <=, REFIT_PLAN_STAGING_BYTES);
}

static void test_shipped(void) {
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        const char *strategy = refit_strategies()[i]->name;

        assert_shipped("kimi-k2-h100", strategy);
        assert_shipped("qwen3-235b-h100", strategy);
        if (strategy_long_tier()) {
            assert_shipped("deepseek-v3-h100", strategy);
            assert_shipped("llama-405b-fsdp-h100", strategy);
        }
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/schedule-pool/tiny-case-with-every-strategy", test_tiny);
    g_test_add_func("/schedule-pool/random-cases-with-every-strategy", test_random);
    g_test_add_func("/schedule-pool/shipped-cases-stay-within-the-pool", test_shipped);
    return g_test_run();
}
