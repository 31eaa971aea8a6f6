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
static guint64 *find_shares(const RefitSchedule *schedule, guint64 pool) {
    gboolean budget = schedule->plan->problem->refit_case->budget_staging_bytes > 0;
    guint n_streams = schedule->n_streams;
    g_autofree guint64 *least = g_new0(guint64, n_streams), *most = g_new0(guint64, n_streams);
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
        }
        for (guint s = 0; s < n_streams; s++)
            most[s] = MAX(most[s], packed[s]);
    }
    for (guint s = 0; s < n_streams; s++) {
        double wanted = most[s] > 0 ? MAX((double)most[s] / 256, 16777216.0) : 0;

        sum += wanted;
        roots += sqrt(wanted);
        left -= (double)least[s];
    }
    for (guint s = 0; s < n_streams; s++) {
        double wanted = MAX((double)most[s] / 256, 16777216.0);

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

/* What a step packs under a number, in chunks of so many bytes. */
static guint64 packed_under(const RefitSchedule *schedule, const RefitScheduleStep *step,
                            guint number, guint64 chunk) {
    guint64 sum = 0;

    for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];
        gboolean under_way = FALSE;

        for (guint m = 0; m < exchange->n_messages; m++) {
            const RefitMessage *message =
                &schedule->plan->messages[schedule->messages[exchange->first + m]];

            under_way = under_way ||
                        (message->step <= number &&
                         number < message->step + refit_schedule_message_slices(schedule, message));
        }
        if (under_way && !exchange->direct)
            sum += MIN(up(refit_schedule_most_bytes(schedule, exchange)), chunk);
    }
    return sum;
}

#define WHOLE (G_GUINT64_CONSTANT(1) << 60)

/* The largest chunk with which a step keeps to its share under each of its numbers. */
static guint64 largest_chunk(const RefitSchedule *schedule, const RefitScheduleStep *step,
                             guint64 share) {
    guint64 chunk = WHOLE;

    for (guint k = 0; k < step->n_numbers; k++) {
        guint64 lo = 0, hi = chunk;

        if (packed_under(schedule, step, step->number + k, chunk) <= share)
            continue;
        while (lo < hi) {
            guint64 middle = hi - (hi - lo) / 2;

            if (packed_under(schedule, step, step->number + k, middle) <= share)
                lo = middle;
            else
                hi = middle - 1;
        }
        chunk = lo;
    }
    return chunk;
}

/* What all ranks that share numbers and a link class ask of chunks. */
typedef struct {
    guint64 largest; /* chunk */
    guint64 most;    /* bytes of an exchange under one number */
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
        group->largest = WHOLE;
        g_hash_table_insert(groups, g_memdup2(&key, sizeof key), group);
    }
    return group;
}

static guint64 chunk_of(const Group *group, RefitLink link, gboolean budget) {
    guint64 largest = group->largest, least = link == REFIT_LINK_NVLINK ? 4 * MIB : MIB, n;

    if (!budget && largest < least)
        largest = MIN(least, largest + largest / 4);
    largest = MAX(largest / 256 * 256, 256);
    n = MAX((group->most + largest - 1) / largest, 1);
    return up((group->most + n - 1) / n);
}

/* Chunks of all ranks, by what all of them ask for; steps in more chunks than one. */
static guint assert_shared(const RefitSchedule *schedule, guint64 pool) {
    g_autoptr(GHashTable) groups =
        g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    gboolean budget = schedule->plan->problem->refit_case->budget_staging_bytes > 0;
    g_autofree guint64 *shares = find_shares(schedule, pool);
    g_autofree guint64 *mosts = g_new0(guint64, schedule->n_steps);
    guint n_cut = 0;

    for (guint i = 0; i < schedule->n_steps; i++) {
        const RefitScheduleStep *step = &schedule->steps[i];
        Group *group = group_of(groups, schedule, step);

        if (step->link == REFIT_LINK_LOCAL)
            continue;
        for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++)
            mosts[i] = MAX(mosts[i], refit_schedule_most_bytes(schedule, &schedule->exchanges[e]));
        group->most = MAX(group->most, mosts[i]);
        group->largest = MIN(group->largest, largest_chunk(schedule, step, shares[step->stream]));
    }
    for (guint i = 0; i < schedule->n_steps; i++) {
        const RefitScheduleStep *step = &schedule->steps[i];

        if (step->link == REFIT_LINK_LOCAL) {
            g_assert_cmpuint(step->chunk_bytes, ==, G_MAXUINT64);
            g_assert_cmpuint(step->n_chunks, ==, 1);
            continue;
        }
        g_assert_cmpuint(step->chunk_bytes, ==,
                         chunk_of(group_of(groups, schedule, step), step->link, budget));
        g_assert_cmpuint(step->n_chunks, ==,
                         MAX((mosts[i] + step->chunk_bytes - 1) / step->chunk_bytes, 1));
        n_cut += step->n_chunks > 1 ? 1 : 0;
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
