/*
 * The cases of data/reports on the executor: each one that is possible is planned by every strategy
 * and carried out on the CPU stand-in, ranks as threads and as processes, and compared with the
 * answers that its file states.
 *
 * Bytes of all parameters. Counted by the executors: `recv_bytes`, `local_copy_bytes`,
 * `total_recv_bytes` (direct), `node_in_bytes` (refit), at least `min_max_egress` (direct), and
 * something for every rank that is not in `no_mandatory_op`; the `real` bytes of a `gather_pad`.
 * What the ranks hold is compared with `src_local` and `dst_local` element by element. Tensors of
 * gigabytes are halved, and the bytes with them, until they fit. With sanitizers, ranks as threads
 * carry out direct and refit only.
 *
 * Not here, as no bytes that move show it: fan-in, operations, unique bytes, bytes across rails,
 * which are bounds for plans; contiguous runs and rows of fused buffers, which are of one plan
 * among many; errors in what a case states, which end before there is a plan. The checks are in
 * test-executor-checks.c.
 */

#include "report-files.h"
#include "strategy-cases.h"

#include <stdio.h>
#include <sys/mman.h>

enum {
    N_IMPOSSIBLE = 4,
    N_HALVED = 3,
    N_TOO_LARGE = 1,        /* sums of odd sizes beyond 2 GiB: halves would be other sums */
    REPORTS_PER_CHILD = 10, /* as the stand-in gives a stream to one use only */
    N_SHARDS = 577,         /* compared with what the files state, */
    N_SHARDS_LEFT = 22,     /* and not: fused, padded, half bytes, of ranks that lack it */
};

static GPtrArray *names; /* of all reports, in order */

/* What a child is about, as its body takes no arguments. */
static struct {
    RanksAs as;
    guint first, n;
} chosen;

/* What the children of a test did; in memory that they share. */
typedef struct {
    guint cases, plans, impossible, halved, too_large, shards, shards_left, gathers, nodes;
} Done;

static Done *done;

/* ---- what ranks hold ---- */

/* All elements of a tensor as the ranks' values have them. Caller frees. */
static guint8 *whole_tensor(const RefitModel *model, guint index) {
    const RefitTensor *tensor = refit_model_tensor(model, index);
    RefitParameter parameter = {.dtype = tensor->dtype, .bytes = tensor->bytes};
    RefitView view = {.tensor = index, .region = refit_region_full(tensor->n_dims, tensor->shape)};
    const RefitRankViews views = {
        .n_parameters = 1, .n_views = 1, .parameters = &parameter, .views = &view};
    guint64 stride = 1;

    for (guint d = tensor->n_dims; d-- > 0; stride *= tensor->shape[d])
        view.stride[d] = stride;
    guint8 *bytes = program_parameter_bytes(&views, 0, model, TRUE);
    refit_region_clear(&view.region);
    return bytes;
}

/* Appends the elements of a stated shard in the order of its dims. */
static void append_shard(GByteArray *to, const json_t *shard, const RefitTensor *tensor,
                         const guint8 *whole, guint dim, guint64 element) {
    gsize size = refit_dtype_bits(tensor->dtype) / 8;

    if (dim == tensor->n_dims) {
        g_byte_array_append(to, whole + element * size, (guint)size);
        return;
    }
    const json_t *list = json_array_get(json_object_get(shard, "intervals"), dim);
    json_int_t lo = json_integer_value(json_array_get(json_object_get(shard, "offset"), dim));
    json_int_t hi = lo + json_integer_value(json_array_get(json_object_get(shard, "shape"), dim));
    for (gsize i = 0; i < (list != NULL ? json_array_size(list) : 1); i++) {
        if (list != NULL) {
            lo = json_integer_value(json_array_get(json_array_get(list, i), 0));
            hi = json_integer_value(json_array_get(json_array_get(list, i), 1));
        }
        for (json_int_t k = lo; k < hi; k++)
            append_shard(to, shard, tensor, whole, dim + 1,
                         element * tensor->shape[dim] + (guint64)k);
    }
}

/* FALSE where the parameter is not just the shard: fused, padded, in half bytes. */
static gboolean compare_shard(const json_t *shard, const RefitModel *model, guint index,
                              const RefitRankViews *views) {
    const RefitTensor *tensor = refit_model_tensor(model, index);
    guint n;
    const RefitView *view = refit_rank_views_find(views, index, &n);

    if (json_is_array(shard) || n > 1 || refit_dtype_bits(tensor->dtype) < 8)
        return FALSE;
    g_autofree guint8 *whole = whole_tensor(model, index);
    g_autoptr(GByteArray) stated = g_byte_array_new();
    append_shard(stated, shard, tensor, whole, 0, 0);
    if (n == 0)
        return stated->len == 0;
    g_autofree guint8 *held = program_parameter_bytes(views, view->parameter, model, TRUE);
    if (views->parameters[view->parameter].bytes != stated->len)
        return FALSE;
    CHECK(stated->len == 0 || memcmp(held, stated->data, stated->len) == 0);
    return TRUE;
}

static void check_side(const Report *report, const json_t *stated, RefitRankViews *const *views) {
    const json_t *tensors = json_object_get(report->root, "tensors");

    for (guint i = 0; i < report->n_tensors; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(tensors, i), "name"));
        const char *key;
        json_t *shard;
        json_object_foreach(json_object_get(stated, name), key, shard) {
            guint gpu = report->ranks->gpu_of[g_ascii_strtoull(key, NULL, 10)];
            if (views[gpu] != NULL &&
                compare_shard(shard, report->refit_case->model, report->first[i], views[gpu]))
                done->shards++;
            else
                done->shards_left++;
        }
    }
}

/* ---- what executors counted ---- */

static guint64 over_links(const guint64 *bytes) {
    return bytes[NETWORK] + bytes[NVLINK];
}

/* The number stated for a rank; 0 when there is none. */
static guint64 stated_of(const json_t *object, guint rank) {
    g_autofree char *key = g_strdup_printf("%u", rank);

    return (guint64)json_integer_value(json_object_get(object, key));
}

static gboolean may_rest(const json_t *computed, guint rank) {
    const json_t *list = json_object_get(computed, "no_mandatory_op");

    for (gsize i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == rank)
            return TRUE;
    return FALSE;
}

/* Accounts are what the executors counted, to the byte: executor_run() has compared them. */
static void check_direct(const Report *report, const json_t *computed, const RefitPlan *plan,
                         guint64 factor) {
    guint64 total = 0, most = 0;

    for (guint gpu = 0; gpu < report->ranks->n_gpus; gpu++) {
        const RefitRankAccount *account = &plan->accounts[gpu];
        guint rank = report->ranks->rank_of[gpu];
        if (rank == REPORT_NO_GPU)
            continue;
        CHECK(over_links(account->in) * factor ==
              stated_of(json_object_get(computed, "recv_bytes"), rank));
        CHECK(account->in[LOCAL] * factor ==
              stated_of(json_object_get(computed, "local_copy_bytes"), rank));
        total += over_links(account->in);
        most = MAX(most, over_links(account->out));
    }
    CHECK(total * factor == report_file_uint(computed, "total_recv_bytes"));
    CHECK(most * factor >= report_file_uint(computed, "min_max_egress"));
    const json_t *checks = json_object_get(report->root, "checks");
    for (gsize i = 0; i < json_array_size(checks); i++) {
        const json_t *check = json_array_get(checks, i);
        if (g_strcmp0(json_string_value(json_object_get(check, "type")), "gather_pad") == 0) {
            CHECK(total == report_file_uint(json_object_get(check, "result"), "real"));
            done->gathers++;
        }
    }
}

/* Into each node by network no more than none of its GPUs holds. */
static void check_nodes(const Report *report, const json_t *computed, const RefitPlan *plan) {
    const json_t *nodes = json_object_get(computed, "node_in_bytes");
    g_autofree guint64 *into = g_new0(guint64, report->ranks->n_nodes + 1);

    if (nodes == NULL)
        return;
    CHECK(json_object_size(nodes) == report->ranks->n_nodes);
    for (guint gpu = 0; gpu < report->ranks->n_gpus; gpu++) {
        guint node = refit_topology_node_of(report->refit_case->topology, gpu);
        into[MIN(node, report->ranks->n_nodes)] += plan->accounts[gpu].in[NETWORK];
    }
    for (guint node = 0; node < report->ranks->n_nodes; node++)
        CHECK(into[node] == stated_of(nodes, node));
    done->nodes++;
}

static void check_answers(const Report *report, const RefitPlan *plan, guint64 factor) {
    const json_t *computed = json_object_get(json_object_get(report->root, "expect"), "computed");

    CHECK(json_is_object(computed));
    for (guint i = 0; i < report->demand->n_ranks; i++) { /* none that has failed */
        guint gpu = report->demand->ranks[i].rank;
        const RefitRankAccount *account = &plan->accounts[gpu];
        CHECK(over_links(account->in) + over_links(account->out) > 0 ||
              may_rest(computed, report->ranks->rank_of[gpu]));
    }
    if (g_str_equal(plan->strategy, "direct"))
        check_direct(report, computed, plan, factor);
    if (g_str_equal(plan->strategy, "refit"))
        check_nodes(report, computed, plan);
}

/* ---- cases ---- */

static void run_plan(const Report *report, const RefitStrategy *strategy, guint64 factor) {
    const ExecutorRun run = {.as = chosen.as, .n_runs = 1, .timeout_s = 120};
    const json_t *computed = json_object_get(json_object_get(report->root, "expect"), "computed");
    g_autoptr(RefitPlan) plan = strategy_plan(report->problem, strategy->name);
    g_autoptr(ProgramSet) set = report_file_programs(plan);

    fprintf(stderr, "strategy %s\n", strategy->name);
    executor_run(set, &run);
    check_answers(report, plan, factor);
    done->plans++;
    if (factor == 1 && g_str_equal(strategy->name, "direct")) {
        check_side(report, json_object_get(computed, "src_local"), set->source);
        check_side(report, json_object_get(computed, "dst_local"), set->destination);
    }
}

/* As processes one strategy in turn, as threads all, or those with answers where all take long. */
static gboolean takes(const char *strategy, guint turn) {
    if (chosen.as == RANKS_AS_PROCESSES)
        return turn == 0;
    return !EXECUTOR_IS_SLOW || g_str_equal(strategy, "direct") || g_str_equal(strategy, "refit");
}

static void run_report(guint index) {
    const RefitStrategy *const *strategies = refit_strategies();
    g_autoptr(GError) error = NULL;
    json_auto_t *root = report_file_load(g_ptr_array_index(names, index));
    guint64 factor = report_file_halve(root);

    fprintf(stderr, "%s\n", (const char *)g_ptr_array_index(names, index));
    if (factor == 0) {
        done->too_large++;
        return;
    }
    g_autoptr(Report) report = report_new(root, &error);
    if (report == NULL) {
        CHECK(json_object_get(json_object_get(root, "expect"), "error") != NULL);
        done->impossible++;
    } else {
        done->halved += factor > 1;
        done->cases++;
        for (guint s = 0; strategies[s] != NULL; s++)
            if (takes(strategies[s]->name, (index + s) % strategy_count()))
                run_plan(report, strategies[s], factor);
    }
}

static void body_reports(void) {
    for (guint i = chosen.first; i < chosen.first + chosen.n; i++)
        run_report(i);
}

static const char *const environment[] = {"REFIT_STANDIN_DEVICES=64",
                                          "REFIT_STANDIN_TIMEOUT_MS=60000", NULL};

static void run_reports(RanksAs as) {
    memset(done, 0, sizeof *done);
    chosen.as = as;
    for (guint i = 0; i < names->len && !g_test_failed(); i += chosen.n) {
        chosen.first = i;
        chosen.n = MIN(REPORTS_PER_CHILD, names->len - i);
        child_passes(body_reports, environment);
    }
    if (g_test_failed())
        return;
    g_test_message("%u cases, %u plans; %u shards as stated, %u not compared", done->cases,
                   done->plans, done->shards, done->shards_left);
    g_assert_cmpuint(done->impossible, ==, N_IMPOSSIBLE);
    g_assert_cmpuint(done->too_large, ==, N_TOO_LARGE);
    g_assert_cmpuint(done->halved, ==, N_HALVED);
    g_assert_cmpuint(done->cases, ==, N_REPORTS - N_IMPOSSIBLE - N_TOO_LARGE);
}

static void test_threads(void) {
    run_reports(RANKS_AS_THREADS);
    g_assert_cmpuint(done->plans, ==, (EXECUTOR_IS_SLOW ? 2 : strategy_count()) * done->cases);
    g_assert_cmpuint(done->gathers, ==, 1);
    g_assert_cmpuint(done->nodes, ==, 5);
    g_assert_cmpuint(done->shards, ==, N_SHARDS);
    g_assert_cmpuint(done->shards_left, ==, N_SHARDS_LEFT);
}

static void test_processes(void) {
    if (EXECUTOR_WATCHES_THREADS) {
        g_test_skip("ThreadSanitizer sees nothing between processes");
        return;
    }
    run_reports(RANKS_AS_PROCESSES);
    g_assert_cmpuint(done->plans, ==, done->cases);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    names = report_files_list();
    done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert_true(done != MAP_FAILED);
    g_test_add_func("/executor-reports/cases-with-ranks-as-threads", test_threads);
    g_test_add_func("/executor-reports/cases-with-ranks-as-processes", test_processes);
    int status = g_test_run();
    g_ptr_array_unref(names);
    return status;
}
