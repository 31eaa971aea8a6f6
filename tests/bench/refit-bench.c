/*
 * How long the program's own work takes, case by case: loading, preparing the problem, planning by
 * each strategy (build, number, prove), the proof alone, and predicting. After one warm-up every
 * figure is the median of N repeats with the median absolute deviation next to it, because a shared
 * machine disturbs single runs upwards and a mean would carry that on. Times are of the wall clock
 * and of the machine at hand; nothing here judges them. See README.md.
 */

#include <locale.h>
#include <stdio.h>
#include <sys/resource.h>

#include "lib/refit-disk.h"
#include "model/base/refit-json.h"
#include "model/predict/refit-prediction.h"
#include "model/strategy/refit-strategy.h"
#include "sim/refit-sim.h"

#define DEFAULT_CASE "deepseek-v3-h100"
#define DEFAULT_REPEATS 5

typedef struct {
    char *name; /* CASE/WHAT or CASE/WHAT/STRATEGY */
    const char *unit;
    double median, mad;
} Figure;

typedef struct {
    RefitStore store;
    gint repeats;
    gboolean plan_only;
    const RefitStrategy *only; /* NULL: all */
    GArray *figures;
    GHashTable *samples; /* figure name -> GArray of double; look-up only */
    GPtrArray *order;    /* figure names in the order they were first met; borrowed */
} Bench;

static void figure_clear(gpointer data) {
    Figure *figure = data;

    g_free(figure->name);
}

static void samples_free(gpointer data) {
    g_array_unref(data);
}

static double now_ms(void) {
    return (double)g_get_monotonic_time() / 1000.0;
}

/* Largest memory of the process so far. */
static double peak_mib(void) {
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024.0;
}

/* ---- figures ---- */

/* `strategy` may be NULL. Samples of a warm-up (`repeat` < 0) are dropped. */
static void add_sample(Bench *bench, gint repeat, const char *case_name, const char *what,
                       const char *strategy, double ms) {
    g_autofree char *name = strategy != NULL ? g_strjoin("/", case_name, what, strategy, NULL)
                                             : g_strjoin("/", case_name, what, NULL);
    GArray *samples;

    if (repeat < 0)
        return;
    samples = g_hash_table_lookup(bench->samples, name);
    if (samples == NULL) {
        samples = g_array_new(FALSE, FALSE, sizeof(double));
        g_ptr_array_add(bench->order, name);
        g_hash_table_insert(bench->samples, g_steal_pointer(&name), samples);
    }
    g_array_append_val(samples, ms);
}

static int compare_doubles(gconstpointer left, gconstpointer right) {
    const double *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

/* Sorts. */
static double median_of(GArray *values) {
    guint middle = values->len / 2;

    g_array_sort(values, compare_doubles);
    if (values->len % 2 == 1)
        return g_array_index(values, double, middle);
    return (g_array_index(values, double, middle - 1) + g_array_index(values, double, middle)) / 2;
}

static void add_figure(Bench *bench, const char *name, const char *unit, double median,
                       double mad) {
    Figure figure = {g_strdup(name), unit, median, mad};

    g_array_append_val(bench->figures, figure);
}

static void close_figures(Bench *bench) {
    for (guint i = 0; i < bench->order->len; i++) {
        const char *name = g_ptr_array_index(bench->order, i);
        GArray *values = g_hash_table_lookup(bench->samples, name);
        double median = median_of(values);

        for (guint j = 0; j < values->len; j++) {
            double *value = &g_array_index(values, double, j);
            *value = ABS(*value - median);
        }
        add_figure(bench, name, "ms", median, median_of(values));
    }
    g_ptr_array_set_size(bench->order, 0);
    g_hash_table_remove_all(bench->samples);
}

/* ---- measuring ---- */

static gboolean measure_strategy(Bench *bench, gint repeat, const char *case_name,
                                 const RefitProblem *problem, const RefitStrategy *strategy,
                                 GError **error) {
    RefitPrediction prediction;
    double start = now_ms(), planned, proved, scheduled;
    g_autoptr(RefitPlan) plan = refit_plan_new(problem, strategy, error);
    g_autoptr(RefitSchedule) schedule = NULL;

    planned = now_ms();
    if (plan == NULL || !refit_plan_check(plan, error))
        return FALSE;
    proved = now_ms();
    add_sample(bench, repeat, case_name, "plan", strategy->name, planned - start);
    add_sample(bench, repeat, case_name, "proof", strategy->name, proved - planned);
    schedule = refit_schedule_new(plan, error);
    scheduled = now_ms();
    if (schedule == NULL || !refit_schedule_check(schedule, error))
        return FALSE;
    add_sample(bench, repeat, case_name, "schedule", strategy->name, scheduled - proved);
    add_sample(bench, repeat, case_name, "schedule-proof", strategy->name, now_ms() - scheduled);
    if (bench->plan_only)
        return TRUE;
    proved = now_ms();
    if (!refit_predict(&refit_executor_simgrid, schedule, NULL, &prediction, error))
        return FALSE;
    add_sample(bench, repeat, case_name, "predict", strategy->name, now_ms() - proved);
    return TRUE;
}

static gboolean measure_once(Bench *bench, gint repeat, const char *case_name, GError **error) {
    double start = now_ms(), loaded, prepared;
    g_autoptr(RefitCase) refit_case = refit_case_load(&bench->store, case_name, NULL, error);

    loaded = now_ms();
    if (refit_case == NULL)
        return FALSE;
    g_autoptr(RefitProblem) problem = refit_problem_new(refit_case, error);
    prepared = now_ms();
    if (problem == NULL)
        return FALSE;
    add_sample(bench, repeat, case_name, "case", NULL, loaded - start);
    add_sample(bench, repeat, case_name, "problem", NULL, prepared - loaded);
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        if (bench->only != NULL && bench->only != refit_strategies()[i])
            continue;
        if (!measure_strategy(bench, repeat, case_name, problem, refit_strategies()[i], error)) {
            g_prefix_error(error, "strategy %s: ", refit_strategies()[i]->name);
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean measure_case(Bench *bench, const char *case_name, GError **error) {
    g_autofree char *peak = g_strconcat(case_name, "/peak-memory-so-far", NULL);

    for (gint repeat = -1; repeat < bench->repeats; repeat++)
        if (!measure_once(bench, repeat, case_name, error))
            return FALSE;
    close_figures(bench);
    add_figure(bench, peak, "MiB", peak_mib(), 0);
    return TRUE;
}

/* ---- output ---- */

static void print_figures(const Bench *bench) {
    printf("# %u cores, %d repeats after one warm-up; times are of this machine and its load\n",
           g_get_num_processors(), bench->repeats);
    printf("%-50s %12s %12s %s\n", "# figure", "median", "mad", "unit");
    for (guint i = 0; i < bench->figures->len; i++) {
        const Figure *figure = &g_array_index(bench->figures, Figure, i);
        printf("%-50s %12.3f %12.3f %s\n", figure->name, figure->median, figure->mad, figure->unit);
    }
}

static gboolean write_json(const Bench *bench, const char *path, GError **error) {
    RefitJson *json = refit_json_new(2);
    g_autofree char *text = NULL;
    gsize length;

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.bench/1");
    refit_json_uint(json, "cores", g_get_num_processors());
    refit_json_uint(json, "repeats", (guint64)bench->repeats);
    refit_json_begin_array(json, "figures");
    for (guint i = 0; i < bench->figures->len; i++) {
        const Figure *figure = &g_array_index(bench->figures, Figure, i);
        refit_json_begin_object(json, NULL);
        refit_json_string(json, "name", figure->name);
        refit_json_string(json, "unit", figure->unit);
        refit_json_double(json, "median", figure->median);
        refit_json_double(json, "mad", figure->mad);
        refit_json_end_object(json);
    }
    refit_json_end_array(json);
    refit_json_end_object(json);
    text = refit_json_finish(json, &length);
    return g_file_set_contents(path, text, (gssize)length, error);
}

static gboolean run(Bench *bench, char **cases, const char *strategy, const char *json_path,
                    GError **error) {
    static char *default_cases[] = {(char *)DEFAULT_CASE, NULL};

    if (bench->repeats < 1) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "%d repeats; state at least 1",
                    bench->repeats);
        return FALSE;
    }
    if (strategy != NULL) {
        bench->only = refit_strategy_find(strategy, error);
        if (bench->only == NULL)
            return FALSE;
    }
    for (char **name = cases != NULL ? cases : default_cases; *name != NULL; name++)
        if (!measure_case(bench, *name, error))
            return FALSE;
    print_figures(bench);
    return json_path == NULL || write_json(bench, json_path, error);
}

int main(int argc, char **argv) {
    g_autoptr(GError) error = NULL;
    g_autofree char *json_path = NULL, *strategy = NULL;
    g_auto(GStrv) cases = NULL;
    Bench bench = {
        .store = {.layouts_dir = REFIT_SOURCE_DATA_DIR "/layouts",
                  .topologies_dir = REFIT_SOURCE_DATA_DIR "/topologies",
                  .files = &refit_disk},
        .repeats = DEFAULT_REPEATS,
    };
    const GOptionEntry entries[] = {
        {"repeats", 'r', 0, G_OPTION_ARG_INT, &bench.repeats, "measured runs per figure (5)", "N"},
        {"plan-only", 'p', 0, G_OPTION_ARG_NONE, &bench.plan_only, "leave prediction out", NULL},
        {"strategy", 's', 0, G_OPTION_ARG_STRING, &strategy, "this one only", "NAME"},
        {"json", 'j', 0, G_OPTION_ARG_FILENAME, &json_path, "also write the figures here", "FILE"},
        {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &cases, NULL, "[CASE...]"},
        G_OPTION_ENTRY_NULL,
    };
    g_autoptr(GOptionContext) context =
        g_option_context_new("- time the planner and the predictor (" DEFAULT_CASE ")");
    g_autoptr(GArray) figures = g_array_new(FALSE, FALSE, sizeof(Figure));
    g_autoptr(GPtrArray) order = g_ptr_array_new();
    g_autoptr(GHashTable) samples =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, samples_free);

    setlocale(LC_CTYPE, "");
    g_array_set_clear_func(figures, figure_clear);
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        fprintf(stderr, "refit-bench: %s\n", error->message);
        return 2;
    }
    bench.figures = figures;
    bench.order = order;
    bench.samples = samples;
    if (!run(&bench, cases, strategy, json_path, &error)) {
        fprintf(stderr, "refit-bench: %s\n", error->message);
        return 1;
    }
    return 0;
}
