/*
 * The simulator's two modes, turn by turn and one flow per message, on random cases, on the scaled
 * twins of the shipped cases and on shipped cases, with every strategy, without terms and with the
 * profile's:
 *
 *   durations     agree within LIMIT; LOOSE names all that do not, by how much, and why
 *   totals        per rank and kind are those of the schedule's turns, in both modes
 *   exact events  are those of the schedule, turn by turn, each once
 *
 * A part of them every time, all when REFIT_LONG=1 is in the environment.
 */

#include "event-sets.h"
#include "random-case.h"
#include "sim-run.h"
#include "twin-cases.h"

#define N_RANDOM 60
#define LIMIT 0.01
#define SOME 4 /* of so many twins, one has tiny chunks in the short tier */

/*
 * Where the modes differ by more. Merged, ranks meet at the first and the last turn of a message
 * only. Turn by turn they meet in each chunk and slice, and what holds a rank in one turn can hold
 * all that it has messages with in the next, while flows that share bandwidth overtake each other;
 * so merged times are mostly shorter. Where latency is far above what a turn's bytes take, that
 * shows most.
 */
static const struct {
    const char *name; /* of a case; NULL: every twin */
    TwinWay way;
    const char *strategy; /* NULL: any */
    double limit;
} LOOSE[] = {
    {NULL, TWIN_SMALL_SLICES, "ring", 0.035},
    {NULL, TWIN_TINY_CHUNKS, NULL, 0.35},
    {"qwen3-30b-h100", TWIN_AS_IT_IS, "gather-broadcast", 0.07},
    {"qwen3-235b-h100", TWIN_AS_IT_IS, "gather-broadcast", 0.05},
    {"qwen3-235b-h100", TWIN_AS_IT_IS, "ring", 0.085},
    {"qwen3-235b-h100", TWIN_AS_IT_IS, "hybrid", 0.06},
    {"qwen3-235b-h100", TWIN_AS_IT_IS, "direct", 0.04},
    {"qwen3-235b-h100", TWIN_AS_IT_IS, "refit", 0.03},
};

/* ---- runs ---- */

typedef struct {
    RefitRunResult result;
    GArray *events; /* RefitEvent */
} Run;

static Run run_new(const RefitSchedule *schedule, const RefitProfile *profile, SimMode mode) {
    Run run = {.events = g_array_new(FALSE, FALSE, sizeof(RefitEvent))};

    sim_run_as(schedule, profile, mode, run.events, &run.result);
    return run;
}

/* ---- what the schedule says ---- */

static void append(GArray *events, const RefitEvent *like, RefitEventKind kind, guint peer,
                   guint64 bytes) {
    RefitEvent event = *like;

    event.kind = kind;
    event.peer = peer;
    event.bytes = bytes;
    g_array_append_val(events, event);
}

/* Of one turn: messages one by one, launches in sum. */
static void append_turn(GArray *events, const RefitSchedule *schedule, guint rank,
                        const RefitScheduleStep *step, const RefitTurn *turn) {
    const RefitEvent like = {.rank = rank,
                             .stage = step->stage,
                             .stream = step->stream,
                             .number = turn->number,
                             .chunk = turn->chunk};
    guint64 sums[REFIT_N_EVENT_KINDS] = {0};
    gboolean is_launch = step->link == REFIT_LINK_LOCAL;

    for (guint e = 0; e < step->n_exchanges; e++) {
        const RefitScheduleExchange *exchange = &schedule->exchanges[step->first_exchange + e];
        gboolean sends = exchange->kind == REFIT_EXCHANGE_SEND;
        guint64 bytes =
            refit_schedule_turn_bytes(schedule, step, exchange, turn->number, turn->chunk);

        if (is_launch)
            sums[step->install != 0 ? REFIT_EVENT_INSTALL : REFIT_EVENT_COPY] += bytes;
        else if (bytes > 0)
            append(events, &like, sends ? REFIT_EVENT_SEND : REFIT_EVENT_RECEIVE, exchange->peer,
                   bytes);
        if (!is_launch && exchange->direct == 0)
            sums[sends ? REFIT_EVENT_PACK : REFIT_EVENT_UNPACK] += bytes;
    }
    for (guint kind = 0; kind < REFIT_N_EVENT_KINDS; kind++)
        if (sums[kind] > 0)
            append(events, &like, (RefitEventKind)kind, rank, sums[kind]);
}

static GArray *events_of(const RefitSchedule *schedule) {
    GArray *events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));

    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++) {
        g_autoptr(GArray) turns = refit_schedule_list_turns(schedule, rank);
        guint n;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n);

        for (guint i = 0; i < turns->len; i++) {
            const RefitTurn *turn = &g_array_index(turns, RefitTurn, i);

            append_turn(events, schedule, rank, &steps[turn->step], turn);
        }
    }
    return events;
}

/* Of the run; both modes have the sums. */
static void assert_events(const GArray *expected, const Run *run, SimMode mode) {
    const EventSet schedule = {"the schedule", expected};
    const EventSet simulator = {"the simulator", run->events};
    g_autofree char *sums = event_totals_differ(&schedule, &simulator);

    g_assert_cmpstr(sums, ==, NULL);
    if (mode == SIM_EXACT) {
        g_autofree char *difference = event_sets_differ(&schedule, &simulator);
        g_assert_cmpstr(difference, ==, NULL);
    }
}

/* Dates are in order, and none is behind the end. */
static void assert_dates(const Run *run) {
    for (guint i = 0; i < run->events->len; i++) {
        const RefitEvent *event = &g_array_index(run->events, RefitEvent, i);

        g_assert_cmpfloat(event->begin_s, >=, 0);
        g_assert_cmpfloat(event->begin_s, <=, event->end_s);
        g_assert_cmpfloat(event->end_s, <=,
                          run->result.duration_s * (1 + 1e-9) + run->result.time_resolution_s);
        if (i > 0)
            g_assert_cmpint(refit_event_compare(event - 1, event), <=, 0);
    }
}

/* ---- durations ---- */

typedef struct {
    const char *name;
    TwinWay way;
    gboolean is_twin;
    const char *strategy;
    const char *terms;
} Subject;

static struct {
    double off;
    char *what;
} worst;

static double limit_of(const Subject *subject) {
    for (guint i = 0; i < G_N_ELEMENTS(LOOSE); i++)
        if (subject->is_twin == (LOOSE[i].name == NULL) &&
            (subject->is_twin || g_str_equal(LOOSE[i].name, subject->name)) &&
            LOOSE[i].way == subject->way &&
            (LOOSE[i].strategy == NULL || g_str_equal(LOOSE[i].strategy, subject->strategy)))
            return LOOSE[i].limit;
    return LIMIT;
}

static void compare_modes(const RefitSchedule *schedule, const Subject *subject,
                          const RefitProfile *profile) {
    Run exact = run_new(schedule, profile, SIM_EXACT);
    Run merged = run_new(schedule, profile, SIM_MERGED);
    double exact_s = exact.result.duration_s, merged_s = merged.result.duration_s;
    g_autoptr(GArray) expected = events_of(schedule);
    double off = exact_s > 0 ? merged_s / exact_s - 1 : 0;
    g_autofree char *what =
        g_strdup_printf("%s, %s, %s: %.9g s turn by turn, %.9g s merged, %+.3f %%", subject->name,
                        subject->strategy, subject->terms, exact_s, merged_s, 100 * off);

    assert_dates(&exact);
    assert_dates(&merged);
    assert_events(expected, &exact, SIM_EXACT);
    assert_events(expected, &merged, SIM_MERGED);
    if (fabs(off) > limit_of(subject))
        g_error("%s: more than %g %%", what, 100 * limit_of(subject));
    if (fabs(off) >= fabs(worst.off)) {
        worst.off = off;
        g_free(worst.what);
        worst.what = g_steal_pointer(&what);
    }
    g_array_unref(exact.events);
    g_array_unref(merged.events);
}

static void compare_case(const RefitCase *refit_case, const char *name, TwinWay way,
                         gboolean is_twin) {
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    RefitProfile wire = *refit_case->profile;

    for (guint t = 0; t < REFIT_N_TERMS; t++)
        wire.off[t] = TRUE;
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, refit_strategies()[i]);
        g_autoptr(RefitSchedule) schedule = NULL;
        Subject subject = {name, way, is_twin, refit_strategies()[i]->name, "without terms"};

        if (plan == NULL)
            continue;
        schedule = schedule_of(plan);
        compare_modes(schedule, &subject, &wire);
        subject.terms = "with terms";
        compare_modes(schedule, &subject, refit_case->profile);
    }
}

static void tell_worst(void) {
    g_test_message("worst: %s", worst.what);
    g_clear_pointer(&worst.what, g_free);
    worst.off = 0;
}

/* ---- cases ---- */

static void test_random(void) {
    for (guint i = 0; i < N_RANDOM; i++) {
        g_autoptr(RandomCase) random = random_case_new(1000 + i);
        g_autoptr(RefitCase) refit_case = random_case_build(random);
        g_autofree char *name = g_strdup_printf("random case %u", random->seed);

        compare_case(refit_case, name, TWIN_AS_IT_IS, FALSE);
    }
    tell_worst();
}

static void test_twins(gconstpointer data) {
    TwinWay way = (TwinWay)GPOINTER_TO_UINT(data);
    g_autoptr(GPtrArray) names = twin_names();
    guint step = way == TWIN_TINY_CHUNKS && !strategy_long_tier() ? SOME : 1;

    g_assert_cmpuint(names->len, >, SOME);
    for (guint i = 0; i < names->len; i += step) {
        const char *name = g_ptr_array_index(names, i);
        g_autoptr(RefitCase) refit_case = twin_load(name, way);

        compare_case(refit_case, name, way, TRUE);
    }
    tell_worst();
}

static void test_shipped(gconstpointer data) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), data, NULL, &error);

    g_assert_no_error(error);
    if (refit_topology_n_gpus(refit_case->topology) > 32 && !strategy_long_tier()) {
        g_test_skip("takes minutes turn by turn; set REFIT_LONG=1");
        return;
    }
    compare_case(refit_case, data, TWIN_AS_IT_IS, FALSE);
    tell_worst();
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sim-modes/agree-on-random-cases", test_random);
    g_test_add_data_func("/sim-modes/agree-on-twins", GUINT_TO_POINTER(TWIN_AS_IT_IS), test_twins);
    g_test_add_data_func("/sim-modes/agree-on-twins-in-small-slices",
                         GUINT_TO_POINTER(TWIN_SMALL_SLICES), test_twins);
    g_test_add_data_func("/sim-modes/agree-roughly-on-twins-in-tiny-chunks",
                         GUINT_TO_POINTER(TWIN_TINY_CHUNKS), test_twins);
    g_test_add_data_func("/sim-modes/agree-on-tiny", "tiny", test_shipped);
    g_test_add_data_func("/sim-modes/agree-on-qwen3-30b-h100", "qwen3-30b-h100", test_shipped);
    g_test_add_data_func("/sim-modes/agree-on-qwen3-235b-h100", "qwen3-235b-h100", test_shipped);
    return g_test_run();
}
