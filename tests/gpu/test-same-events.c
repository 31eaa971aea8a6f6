/*
 * The simulator and the executor report the same events. Every strategy plans the scaled twins of
 * the shipped cases (data/scaled), the rows of data/m2n-cases.tsv up to 16 ranks, and random cases;
 * each schedule runs turn by turn in the simulator and on the CPU stand-in in the executor, and the
 * events of both are compared with one another: rank, peer, stage, stream, number, chunk, kind and
 * bytes of each, each as often. So are the bytes that each rank packed, unpacked, sent, received,
 * copied and installed, with the simulator in its normal mode too. Part of all runs with so little
 * staging memory that most messages move in chunks, or with slices as small as they can be.
 *
 * By default a part of the cases run, those of many ranks with one strategy in turn. REFIT_LONG=1
 * asks for all. Each part must have seen every strategy, every kind of event, chunks, slices, and
 * messages that go straight and packed, so that it cannot be empty of what it is about. That
 * differences show is tested in test-planted-events.c. Cost: seconds; all of it, some minutes.
 */

#include "executor-run.h"
#include "m2n-rows.h"
#include "random-case.h"
#include "same-events.h"
#include "twin-cases.h"

#include <stdio.h>
#include <sys/mman.h>

#define MAX_STRATEGIES 64
#define N_RANDOM 500
#define MAX_ROW_RANKS 16
#define N_ROWS 473 /* that must work, with so many ranks or fewer */

/* By default: of twins, one of so many each way; random cases, so many. */
static const guint twins[TWIN_N_WAYS] = {
    [TWIN_AS_IT_IS] = EXECUTOR_WATCHES_THREADS ? 6
                      : EXECUTOR_IS_SLOW       ? 3
                                               : 1,
    [TWIN_SMALL_SLICES] = EXECUTOR_IS_SLOW ? 6 : 2,
    [TWIN_TINY_CHUNKS] = EXECUTOR_IS_SLOW ? 6 : 4,
};
#define RANDOM_CASES (EXECUTOR_IS_SLOW ? 50 : 100)
#define FEW_GPUS 16 /* twins that have no more run with all strategies */

/* Of rows and random cases, always: one of so many. */
#define LITTLE_MEMORY 4
#define SMALL_SLICES 2 /* of random cases; rows have them all */

/* What the children of a part came across. */
typedef struct {
    guint n_cases;
    guint64 n_events;
    guint of_strategy[MAX_STRATEGIES];
    guint64 of_kind[REFIT_N_EVENT_KINDS];
    guint64 in_chunks;                     /* events of a second chunk and later ones */
    guint64 sliced, whole, direct, packed; /* exchanges of messages */
} Seen;

static Seen *seen; /* shared by parent and children */

/* What a child is about, as its body takes no arguments. */
static struct {
    guint first_strategy; /* of refit_strategies() ... */
    gboolean every;       /* ... and then all */
    gboolean little;      /* the least staging memory that a plan can do with */
    const char *twin;
    TwinWay way;
    const M2nRow *row;
    guint seed;
} chosen;

/* ---- one plan ---- */

static void count_schedule(const RefitSchedule *schedule) {
    for (guint e = 0; e < schedule->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[e];

        if (exchange->kind == REFIT_EXCHANGE_COPY || exchange->kind == REFIT_EXCHANGE_INSTALL)
            continue;
        *(exchange->slices > 1 ? &seen->sliced : &seen->whole) += 1;
        *(exchange->direct != 0 ? &seen->direct : &seen->packed) += 1;
    }
}

static void count_events(const GArray *events) {
    seen->n_events += events->len;
    for (guint i = 0; i < events->len; i++) {
        const RefitEvent *event = &g_array_index(events, RefitEvent, i);

        seen->of_kind[event->kind]++;
        seen->in_chunks += event->chunk > 0 ? 1 : 0;
    }
}

static void complain(const char *name, const char *strategy, const char *difference) {
    if (difference == NULL)
        return;
    fprintf(stderr, "%s, strategy %s: %s\n", name, strategy, difference);
    CHECK(difference == NULL);
}

static void compare_plan(RefitCase *refit_case, const RefitPlan *plan, const char *name) {
    if (chosen.little)
        refit_case->budget_staging_bytes = MAX(program_least_staging(refit_case, plan), 1);
    g_autoptr(ProgramSet) set = program_set_new(plan);
    g_autoptr(SameEvents) events = same_events_new(set, set->schedule);
    g_autofree char *difference = same_events_differ(events);
    g_autofree char *totals = same_events_totals_differ(events);

    complain(name, plan->strategy, difference);
    complain(name, plan->strategy, totals);
    count_schedule(set->schedule);
    count_events(events->executed);
}

static gboolean is_chosen(guint strategy) {
    return chosen.every || strategy == chosen.first_strategy % strategy_count();
}

/* With the chosen strategies, as far as they can serve it. */
static void compare_case(RefitCase *refit_case, const char *name) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint s = 0; s < strategy_count(); s++) {
        g_autoptr(RefitPlan) plan = NULL;

        if (is_chosen(s))
            plan = strategy_try_plan(problem, refit_strategies()[s]);
        if (plan == NULL)
            continue;
        compare_plan(refit_case, plan, name);
        seen->of_strategy[s]++;
    }
}

/* ---- children ---- */

static void body_twin(void) {
    g_autoptr(RefitCase) refit_case = twin_load(chosen.twin, chosen.way);

    compare_case(refit_case, chosen.twin);
    seen->n_cases++;
}

static void body_row(void) {
    for (guint s = 0; s < strategy_count(); s++) {
        guint domain_size = chosen.row->number % 2 == 0 ? 8 : 2;
        const char *strategy = refit_strategies()[s]->name;

        if (!is_chosen(s))
            continue;
        g_autoptr(RefitCase) refit_case = m2n_row_light_case(chosen.row, strategy, domain_size);
        executor_cut_small(refit_case);
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy);
        compare_plan(refit_case, plan, chosen.row->name);
        seen->of_strategy[s]++;
    }
    seen->n_cases++;
}

static void body_random(void) {
    g_autoptr(RandomCase) random = random_case_new(chosen.seed);
    g_autoptr(RefitCase) refit_case = random_case_build(random);
    g_autofree char *name = g_strdup_printf("random case %u", chosen.seed);

    if (refit_topology_n_gpus(refit_case->topology) > EXECUTOR_MAX_RANKS)
        return;
    if (chosen.seed % SMALL_SLICES == 0)
        executor_cut_small(refit_case);
    compare_case(refit_case, name);
    seen->n_cases++;
}

/* ---- parts ---- */

static void begin(void) {
    void *memory =
        mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    g_assert_true(memory != MAP_FAILED);
    g_assert_cmpuint(strategy_count(), <=, MAX_STRATEGIES);
    seen = memory;
    memset(&chosen, 0, sizeof chosen);
    chosen.every = strategy_long_tier();
}

static void run(void (*body)(void)) {
    static const char *const environment[] = {"REFIT_STANDIN_DEVICES=64",
                                              "REFIT_STANDIN_TIMEOUT_MS=60000", NULL};

    if (!g_test_failed())
        child_passes(body, environment);
    chosen.first_strategy++;
}

static void end(guint n_cases, gboolean copies) {
    guint n_plans = 0;

    for (guint s = 0; s < strategy_count(); s++)
        n_plans += seen->of_strategy[s];
    g_test_message("%u cases, %u plans, %" G_GUINT64_FORMAT " events, %" G_GUINT64_FORMAT
                   " of them in later chunks; exchanges: %" G_GUINT64_FORMAT
                   " in slices, %" G_GUINT64_FORMAT " direct, %" G_GUINT64_FORMAT " packed",
                   seen->n_cases, n_plans, seen->n_events, seen->in_chunks, seen->sliced,
                   seen->direct, seen->packed);
    if (!g_test_failed()) {
        g_assert_cmpuint(seen->n_cases, ==, n_cases);
        for (guint s = 0; s < strategy_count(); s++)
            g_assert_cmpuint(seen->of_strategy[s], >, 0);
        for (guint kind = 0; kind < REFIT_N_EVENT_KINDS; kind++)
            if (copies || kind != REFIT_EVENT_COPY)
                g_assert_cmpuint(seen->of_kind[kind], >, 0);
        g_assert_cmpuint(seen->in_chunks, >, 0);
        g_assert_cmpuint(seen->sliced, >, 0);
        g_assert_cmpuint(seen->whole, >, 0);
        g_assert_cmpuint(seen->direct, >, 0);
        g_assert_cmpuint(seen->packed, >, 0);
    }
    munmap(g_steal_pointer(&seen), sizeof *seen);
}

static gboolean has_few_gpus(const char *twin) {
    g_autoptr(RefitCase) refit_case = twin_load(twin, TWIN_AS_IT_IS);

    return refit_topology_n_gpus(refit_case->topology) <= FEW_GPUS;
}

static void test_twins(void) {
    g_autoptr(GPtrArray) names = twin_names();
    guint n = 0;

    begin();
    for (guint way = 0; way < TWIN_N_WAYS; way++)
        for (guint i = 0; i < names->len; i++) {
            const char *name = g_ptr_array_index(names, i);
            gboolean few = way == TWIN_AS_IT_IS && has_few_gpus(name);

            if (i % twins[way] != 0 && !few && !strategy_long_tier())
                continue;
            chosen.twin = name;
            chosen.way = (TwinWay)way;
            chosen.every = few || strategy_long_tier();
            run(body_twin);
            n++;
        }
    end(n, TRUE);
}

static void test_rows(void) {
    g_autoptr(GArray) rows = m2n_rows_read();
    guint n = 0;

    begin();
    for (guint i = 0; i < rows->len; i++) {
        const M2nRow *row = &g_array_index(rows, M2nRow, i);

        if (!row->must_work || row->world > MAX_ROW_RANKS ||
            (!strategy_long_tier() && !m2n_row_is_first(rows, i)))
            continue;
        chosen.row = row;
        chosen.little = n++ % LITTLE_MEMORY == 0;
        run(body_row);
    }
    if (strategy_long_tier())
        g_assert_cmpuint(n, ==, N_ROWS);
    end(n, FALSE);
}

static void test_random(void) {
    guint n = strategy_long_tier() ? N_RANDOM : RANDOM_CASES;

    begin();
    for (chosen.seed = 1; seen->n_cases < n && !g_test_failed(); chosen.seed++) {
        chosen.little = chosen.seed % LITTLE_MEMORY == 0;
        run(body_random);
    }
    end(n, TRUE);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/same-events/twins-of-shipped-cases", test_twins);
    g_test_add_func("/same-events/rows-of-two-meshes", test_rows);
    g_test_add_func("/same-events/random-cases", test_random);
    return g_test_run();
}
