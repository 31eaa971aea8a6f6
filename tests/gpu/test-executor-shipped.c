/*
 * The executor on the shipped cases (layouts/cases), each scaled down to at most 32 ranks and a
 * megabyte or two (data/scaled): with every strategy, ranks as threads and for some as processes,
 * on the CPU stand-in; bytes of all parameters with their padding, bytes per link class that each
 * executor counted. Cases named more-* show what no shipped case has: scales, half bytes, further
 * frameworks, stated placements, both sides on the same GPUs. With sanitizers a case has refit and
 * one other strategy, and with ThreadSanitizer few cases run, unless REFIT_LONG=1 asks for all.
 *
 * That a twin is like its case is a test of its own: the same kinds of tensors, keys and axes on
 * each side, and the same relations between heads, replicas, copies of experts and domains.
 */

#include "executor-run.h"
#include "strategy-cases.h"
#include "twin-cases.h"

#include <stdio.h>

#define MAX_GPUS 32
#define MAX_MODEL_BYTES 2000000 /* and of all but the smallest at least a tenth */

#define WATCHED 5 /* one case of so many runs under ThreadSanitizer */

/* Beside the twins of shipped cases. */
static const char *const further[] = {"more-colocated", "more-explicit", "more-fp8-scales",
                                      "more-mxfp4",     "more-sglang",   NULL};

static GPtrArray *names; /* of all files */

/* What a child is about, as its body takes no arguments. */
static struct {
    const char *name;
    const char *strategy; /* NULL: every one */
    guint turn;           /* which one beside refit where one must do */
    RanksAs as;
} chosen;

/* ---- twins ---- */

/* Names of all tensors without their numbers, and their dtypes, each once. */
static char *kinds_of_tensors(const RefitModel *model) {
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        g_autoptr(GString) kind = g_string_new(NULL);

        for (const char *at = tensor->name; *at != '\0'; at++)
            if (!g_ascii_isdigit(*at))
                g_string_append_c(kind, *at);
        g_string_append_printf(kind, " %s", refit_dtype_name(tensor->dtype));
        g_hash_table_add(seen, g_strdup(kind->str));
    }
    g_autofree gpointer *kinds = g_hash_table_get_keys_as_array(seen, NULL);
    qsort(kinds, g_hash_table_size(seen), sizeof *kinds, twin_compare_texts);
    return g_strjoinv("\n", (char **)kinds);
}

/* The number that follows `word` in a summary such as "vllm tp4 dp2 x 2 engines"; 1: none. */
static guint number_of(const RefitLayout *layout, const char *word) {
    g_auto(GStrv) words = g_strsplit(refit_layout_summary(layout), " ", -1);

    for (guint i = 0; words[i] != NULL; i++)
        if (g_str_has_prefix(words[i], word) && g_ascii_isdigit(words[i][strlen(word)]))
            return (guint)g_ascii_strtoull(words[i] + strlen(word), NULL, 10);
    return 1;
}

/* Words of a summary whose number is more than 1, framework first. */
static char *axes_of(const RefitLayout *layout) {
    g_auto(GStrv) words = g_strsplit(refit_layout_summary(layout), " ", -1);
    g_autoptr(GString) axes = g_string_new(refit_layout_framework(layout));

    for (guint i = 1; words[i] != NULL; i++) {
        gsize n = strcspn(words[i], "0123456789");
        if (!g_str_equal(words[i] + n, "1"))
            g_string_append_printf(axes, " %.*s", (int)n, words[i]);
    }
    return g_string_free(g_steal_pointer(&axes), FALSE);
}

/* What a side is like, in words. */
static char *describe_side(const RefitCase *refit_case, const RefitLayout *layout) {
    const RefitModel *model = refit_case->model;
    guint domain = refit_topology_gpus_per_domain(refit_case->topology);
    guint stage = refit_layout_n_ranks(layout) / refit_layout_n_stages(layout);
    guint tp = number_of(layout, "tp"), ep = number_of(layout, "ep");
    gboolean trains = g_str_equal(refit_layout_side(layout), "train");
    guint replica = MAX(tp, ep);
    const char *relation = replica < domain    ? ", replicas less than a domain"
                           : replica == domain ? ", replicas of a domain"
                                               : ", replicas more than a domain";
    g_autofree char *axes = axes_of(layout);

    return g_strconcat(axes, refit_model_n_kv_heads(model) < tp ? ", fewer KV heads than tp" : "",
                       trains && ep > 1 && stage > ep ? ", copies of experts" : "",
                       trains ? "" : relation, NULL);
}

static void assert_same_sides(const RefitCase *shipped, const RefitCase *twin) {
    for (guint pool = 0; pool <= shipped->n_destinations; pool++) {
        gboolean first = pool == shipped->n_destinations;
        g_autofree char *a =
            describe_side(shipped, first ? shipped->source : shipped->destinations[pool]);
        g_autofree char *b = describe_side(twin, first ? twin->source : twin->destinations[pool]);

        g_test_message("%s", a);
        g_assert_cmpstr(b, ==, a);
    }
}

/* Keys of a mapping and all below it, in their order. */
static void append_keys(GString *text, RefitNode *node) {
    for (guint i = 0; refit_node_kind(node) != REFIT_NODE_SCALAR && i < refit_node_size(node);
         i++) {
        if (refit_node_kind(node) == REFIT_NODE_MAPPING)
            g_string_append_printf(text, "%s ", refit_node_key_at(node, i));
        append_keys(text, refit_node_at(node, i));
    }
    g_string_append_c(text, ';');
}

static char *keys_of(RefitDoc *doc) {
    static const char *const compared[] = {"dtype", "mtp", "train", "generation"};
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < G_N_ELEMENTS(compared); i++) {
        RefitNode *node = refit_node_get(refit_doc_root(doc), compared[i]);
        g_string_append_printf(text, "%s: ", node != NULL ? compared[i] : "-");
        if (node != NULL)
            append_keys(text, node);
    }
    return g_string_free(text, FALSE);
}

static void assert_same_keys(const char *name, const char *path) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) shipped = refit_store_load(input_store(), "cases", name, NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitDoc) twin = refit_doc_load(&refit_disk, path, &error);
    g_assert_no_error(error);
    g_autofree char *a = keys_of(shipped), *b = keys_of(twin);

    g_assert_cmpstr(b, ==, a);
}

static gboolean has_wide_domains(const RefitTopology *topology) {
    return refit_topology_node_of(topology, refit_topology_gpus_per_domain(topology) - 1) > 0;
}

static void assert_twin(const char *name) {
    g_autoptr(GError) error = NULL;
    g_autofree char *path = twin_path(name);
    g_autoptr(RefitCase) shipped = refit_case_load(input_store(), name, NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitCase) twin = twin_load(name, TWIN_AS_IT_IS);
    g_autofree char *a = kinds_of_tensors(shipped->model), *b = kinds_of_tensors(twin->model);

    g_test_message("%s", name);
    assert_same_keys(name, path);
    g_assert_cmpstr(b, ==, a);
    g_assert_cmpstr(refit_model_form(twin->model), ==, refit_model_form(shipped->model));
    g_assert_cmpstr(twin->profile->name, ==, shipped->profile->name);
    g_assert_cmpuint(twin->n_destinations, ==, shipped->n_destinations);
    assert_same_sides(shipped, twin);
    g_assert_true(has_wide_domains(twin->topology) == has_wide_domains(shipped->topology));
}

static void test_twins(void) {
    g_auto(GStrv) shipped = refit_store_list(input_store(), "cases");
    g_assert_cmpuint(names->len, ==,
                     g_strv_length(shipped) + g_strv_length((char **)(gpointer)further));
    for (guint i = 0; i < names->len; i++) {
        const char *name = g_ptr_array_index(names, i);

        g_assert_true(g_strv_contains((const char *const *)shipped, name) !=
                      g_strv_contains(further, name));
    }
    for (guint i = 0; shipped[i] != NULL; i++)
        assert_twin(shipped[i]);
}

/* ---- runs ---- */

/* Ranks send on what they have received. */
static gboolean passes_on(const RefitPlan *plan) {
    for (guint t = 0; t < plan->n_transfers; t++)
        if (plan->transfers[t].n_deps > 0)
            return TRUE;
    return FALSE;
}

static void body_case(void) {
    const ExecutorRun run = {.as = chosen.as, .n_runs = 1, .timeout_s = 120};
    g_autoptr(RefitCase) refit_case = twin_load(chosen.name, TWIN_SMALL_SLICES);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    guint64 bytes = refit_model_bytes(refit_case->model);
    gboolean all = strategy_long_tier() || !EXECUTOR_IS_SLOW;
    guint n_others = 0, n_plans = 0;

    CHECK(problem->n_ranks <= MAX_GPUS && bytes <= MAX_MODEL_BYTES);
    CHECK(bytes >= MAX_MODEL_BYTES / 10 || g_str_equal(chosen.name, "tiny"));
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        const char *strategy = refit_strategies()[i]->name;
        gboolean is_turn = g_str_equal(strategy, "refit") || n_others++ == chosen.turn;
        if (chosen.strategy != NULL ? !g_str_equal(chosen.strategy, strategy) : !all && !is_turn)
            continue;
        g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy);
        g_autoptr(ProgramSet) set = program_set_new(plan);

        fprintf(stderr, "%s, strategy %s\n", chosen.name, strategy);
        CHECK(plan->link_bytes[NETWORK] > 0);
        CHECK(plan->link_bytes[NVLINK] > 0 || !passes_on(plan));
        executor_run(set, &run);
        n_plans++;
    }
    CHECK(n_plans == (chosen.strategy != NULL ? 1 : all ? strategy_count() : 2));
}

static void run_case(const char *name, const char *strategy, RanksAs as) {
    static const char *const environment[] = {"REFIT_STANDIN_DEVICES=64",
                                              "REFIT_STANDIN_TIMEOUT_MS=60000", NULL};

    chosen.name = name;
    chosen.strategy = strategy;
    chosen.as = as;
    child_passes(body_case, environment);
}

static void test_threads(gconstpointer data) {
    guint index = GPOINTER_TO_UINT(data);
    guint step = EXECUTOR_WATCHES_THREADS ? WATCHED : EXECUTOR_IS_SLOW ? 2 : 1;

    if (index % step != 0 && !strategy_long_tier()) {
        g_test_skip("takes long under sanitizers; set REFIT_LONG=1");
        return;
    }
    chosen.turn = index % (strategy_count() - 1);
    run_case(g_ptr_array_index(names, index), NULL, RANKS_AS_THREADS);
}

static void test_processes(void) {
    /* In turn. */
    static const char *const cases[] = {"llama-405b-fsdp-h100", "more-colocated",
                                        "prefill-decode-h100", "more-fp8-scales",
                                        "deepseek-v3-h100"};

    if (EXECUTOR_WATCHES_THREADS) {
        g_test_skip("ThreadSanitizer sees nothing between processes");
        return;
    }
    for (guint s = 0; refit_strategies()[s] != NULL; s++)
        run_case(cases[s % G_N_ELEMENTS(cases)], refit_strategies()[s]->name, RANKS_AS_PROCESSES);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    names = twin_names();
    g_test_add_func("/executor-shipped/each-case-has-a-twin-of-its-kind", test_twins);
    for (guint i = 0; i < names->len; i++) {
        g_autofree char *path =
            g_strconcat("/executor-shipped/", (char *)g_ptr_array_index(names, i), NULL);
        g_test_add_data_func(path, GUINT_TO_POINTER(i), test_threads);
    }
    g_test_add_func("/executor-shipped/ranks-as-processes", test_processes);
    int status = g_test_run();
    g_ptr_array_unref(names);
    return status;
}
