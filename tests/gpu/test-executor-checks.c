/*
 * The checks of data/reports that bytes can show, and two of its errors, on the CPU stand-in.
 *
 * `schedule`: collectives of NCCL that end, or hang with the stated ranks stuck; `commit`: a run in
 * which a call fails, and what each rank serves then; `rounds`: buckets of a tensor larger than
 * one; `strided_view`: the pack kernel. Errors: a device for two ranks, sizes that differ at both
 * ends of a message. (`gather_pad` is in test-executor-reports.c.)
 *
 * Not here: `time_ms`, `wrap`, `product`, `padded_vocab`, which are arithmetic; `layout_diff`,
 * `row_order_diff`, `stream_slices`, `registrations`, which compare two descriptions; `pack` and
 * `windows`, answers for other messages than the executor's.
 */

#include "gpu/executor/refit-pack.h"
#include "gpu/executor/refit-strided.h"
#include "report-files.h"
#include "strategy-cases.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    N_SCHEDULES = 8,
    MAX_MEMBERS = 8,  /* of a schedule */
    MAX_TOGETHER = 2, /* operations of a step */
    SHARE = 16,       /* bytes of a member */
};

static const json_t *chosen; /* what a child is about, as its body takes no arguments */

static const char *const environment[] = {"REFIT_STANDIN_DEVICES=64",
                                          "REFIT_STANDIN_TIMEOUT_MS=60000", NULL};

/* ---- one check after the other ---- */

static void run_checks(const char *type, guint n, void (*body)(void)) {
    g_autoptr(GPtrArray) checks = report_files_checks(type);

    g_assert_cmpuint(checks->len, ==, n);
    for (guint i = 0; i < n; i++) {
        chosen = g_ptr_array_index(checks, i);
        child_passes(body, environment);
    }
}

/* ---- orders ---- */

typedef _Atomic int Passed[MAX_MEMBERS];

static _Atomic int *passed; /* ranks that came to their end; in memory that all share */

static guint number_of(const char *rank) {
    const char *key;
    json_t *steps;
    guint number = 0;

    json_object_foreach(json_object_get(chosen, "ranks"), key, steps) {
        if (g_str_equal(key, rank))
            return number;
        number++;
    }
    CHECK(FALSE);
    return 0;
}

/* A communicator for each operation; NULL for ranks that are not in it. */
static void split(Rank *rank, GHashTable *comms) {
    const char *name;
    json_t *members;

    json_object_foreach(json_object_get(chosen, "members"), name, members) {
        int color = NCCL_SPLIT_NOCOLOR;
        ncclComm_t comm = NULL;
        for (gsize i = 0; i < json_array_size(members); i++)
            if (number_of(json_string_value(json_array_get(members, i))) == (guint)rank->rank)
                color = 0;
        NCCL(ncclCommSplit(rank->comm, color, rank->rank, &comm, NULL));
        g_hash_table_insert(comms, (gpointer)name, comm);
    }
}

/* Operations of one step go side by side, on streams of their own. */
static void take_step(GHashTable *comms, const json_t *step, cudaStream_t *streams, char *memory) {
    gsize n = json_is_array(step) ? json_array_size(step) : 1;

    CHECK(n <= MAX_TOGETHER);
    NCCL(ncclGroupStart());
    for (gsize k = 0; k < n; k++) {
        const json_t *operation = json_is_array(step) ? json_array_get(step, k) : step;
        ncclComm_t comm = g_hash_table_lookup(comms, json_string_value(operation));
        char *mine = memory + k * (MAX_MEMBERS + 1) * SHARE;
        CHECK(comm != NULL);
        NCCL(ncclAllGather(mine, mine + SHARE, SHARE, ncclUint8, comm, streams[k]));
    }
    NCCL(ncclGroupEnd());
    for (gsize k = 0; k < n; k++)
        CUDA(cudaStreamSynchronize(streams[k]));
}

static void wait_for_all(const Rank *rank) {
    int n_passed = 0;

    while (n_passed < rank->n) {
        n_passed = 0;
        for (int r = 0; r < rank->n; r++)
            n_passed += atomic_load(&passed[r]);
        g_usleep(500);
    }
}

static void rank_follows(Rank *rank) {
    g_autoptr(GHashTable) comms = g_hash_table_new(g_str_hash, g_str_equal);
    char *memory = device_new(MAX_TOGETHER * (MAX_MEMBERS + 1) * SHARE, rank->rank);
    cudaStream_t streams[MAX_TOGETHER];
    GHashTableIter iter;
    const char *key;
    json_t *steps;
    gpointer comm;

    CHECK(rank->n <= MAX_MEMBERS);
    for (guint k = 0; k < MAX_TOGETHER; k++)
        streams[k] = stream_new();
    split(rank, comms);
    json_object_foreach(json_object_get(chosen, "ranks"), key, steps) {
        for (gsize i = 0; number_of(key) == (guint)rank->rank && i < json_array_size(steps); i++)
            take_step(comms, json_array_get(steps, i), streams, memory);
    }
    atomic_store(&passed[rank->rank], 1);
    wait_for_all(rank);
    g_hash_table_iter_init(&iter, comms);
    while (g_hash_table_iter_next(&iter, NULL, &comm))
        if (comm != NULL)
            NCCL(ncclCommDestroy(comm));
    for (guint k = 0; k < MAX_TOGETHER; k++)
        CUDA(cudaStreamDestroy(streams[k]));
    CUDA(cudaFree(memory));
}

static void body_schedule(void) {
    ranks_run((int)json_object_size(json_object_get(chosen, "ranks")), RANKS_AS_THREADS,
              rank_follows);
}

/* Ranks that the file calls stuck must not come to their end, and all others must. */
static void check_schedule(const json_t *check, Child *child) {
    const json_t *result = json_object_get(check, "result");
    const json_t *stuck = json_object_get(result, "stuck");
    guint n = (guint)json_object_size(json_object_get(check, "ranks")), n_passed = 0;
    int code;
    g_autofree char *said = child_end(child, &code);

    if (code != (json_is_true(json_object_get(result, "completes")) ? 0 : STANDIN_EXIT_STUCK))
        g_test_message("%s", said);
    chosen = check;
    g_assert_cmpint(code, ==,
                    json_is_true(json_object_get(result, "completes")) ? 0 : STANDIN_EXIT_STUCK);
    for (gsize i = 0; i < json_array_size(stuck); i++) {
        guint rank = number_of(json_string_value(json_array_get(stuck, i)));
        g_assert_cmpint(atomic_load(&passed[rank]), ==, 0);
    }
    for (guint rank = 0; rank < n; rank++)
        n_passed += atomic_load(&passed[rank]) != 0;
    g_assert_cmpuint(n_passed, ==, n - json_array_size(stuck));
}

static void test_schedules(void) {
    static const char *const impatient[] = {"REFIT_STANDIN_TIMEOUT_MS=3000", NULL};
    g_autoptr(GPtrArray) checks = report_files_checks("schedule");
    Child *children[N_SCHEDULES];
    Passed *all = mmap(NULL, N_SCHEDULES * sizeof *all, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    g_assert_true(all != MAP_FAILED);
    g_assert_cmpuint(checks->len, ==, N_SCHEDULES);
    for (guint i = 0; i < N_SCHEDULES; i++) {
        const json_t *result = json_object_get(g_ptr_array_index(checks, i), "result");
        chosen = g_ptr_array_index(checks, i);
        passed = all[i];
        children[i] = child_start(body_schedule, json_is_true(json_object_get(result, "completes"))
                                                     ? environment
                                                     : impatient);
    }
    for (guint i = 0; i < N_SCHEDULES; i++) {
        passed = all[i];
        check_schedule(g_ptr_array_index(checks, i), children[i]);
    }
    munmap(all, N_SCHEDULES * sizeof *all);
}

/* ---- kernels ---- */

static void body_strided(void) {
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    g_autoptr(GError) error = NULL;
    const json_t *storage = json_object_get(chosen, "storage");
    const json_t *wanted = json_object_get(chosen, "result");
    gsize n_storage = json_array_size(storage), n_wanted = json_array_size(wanted);
    guint64 shape[REFIT_MAX_DIMS], offset = report_file_uint(chosen, "offset");
    gint64 strides[REFIT_MAX_DIMS];
    guint8 bytes[64], packed[64];
    guint n_dims, n_copies;

    CHECK(n_storage <= sizeof bytes && n_wanted <= sizeof packed);
    CHECK(report_get_shape(json_object_get(chosen, "shape"), "", &n_dims, shape, &error));
    for (guint d = 0; d < n_dims; d++)
        strides[d] = json_integer_value(json_array_get(json_object_get(chosen, "stride"), d));
    for (gsize i = 0; i < n_storage; i++)
        bytes[i] = (guint8)json_integer_value(json_array_get(storage, i));
    CUDA(cudaSetDevice(0));
    cudaStream_t stream = stream_new();
    char *from = device_new(n_storage, 0), *to = device_new(sizeof packed, 0);
    CUDA(cudaMemcpy(from, bytes, n_storage, cudaMemcpyHostToDevice));
    const RefitStridedShape elements = {n_dims, shape, 1};
    const RefitStridedPlace place = {(guintptr)from + offset, strides};
    refit_strided_table_begin(table);
    CHECK(refit_strided_table_add_packed(table, &elements, &place, 0, &error));
    const RefitStridedSpan span = refit_strided_table_end(table);
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n_copies);
    char *copies_there = device_new(n_copies * sizeof *copies, 0);
    CUDA(cudaMemcpy(copies_there, copies, n_copies * sizeof *copies, cudaMemcpyHostToDevice));
    CUDA(refit_pack_launch((const void *)copies_there, &span, to, 4, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(packed, to, sizeof packed, cudaMemcpyDeviceToHost));
    for (gsize i = 0; i < sizeof packed; i++)
        CHECK(packed[i] == (i < n_wanted ? json_integer_value(json_array_get(wanted, i)) : 0));
    CUDA(cudaFree(from));
    CUDA(cudaFree(to));
    CUDA(cudaFree(copies_there));
    CUDA(cudaStreamDestroy(stream));
}

static void test_strided(void) {
    run_checks("strided_view", 1, body_strided);
}

/* ---- buckets ---- */

/* A tensor larger than a bucket, both halved alike, goes in so many rounds. */
static void body_rounds(void) {
    const ExecutorRun run = {.as = RANKS_AS_THREADS, .n_runs = 1, .timeout_s = 120};
    g_autoptr(GError) error = NULL;
    json_auto_t *root = report_file_load_number("078");
    guint64 factor = report_file_halve(root), bytes = report_file_uint(chosen, "bytes"), rounds = 0;
    g_autoptr(Report) report = report_new(root, &error);

    CHECK(report != NULL && factor > 1 && report_file_uint(chosen, "buffer") % factor == 0);
    CHECK(refit_model_bytes(report->refit_case->model) * factor == bytes);
    report->refit_case->profile->bucket_bytes.value =
        (double)(report_file_uint(chosen, "buffer") / factor);
    g_autoptr(RefitPlan) plan = strategy_plan(report->problem, "gather-broadcast");
    g_autoptr(ProgramSet) set = report_file_programs(plan);
    for (guint b = 0; b < plan->n_batches; b++)
        rounds += plan->batches[b].buckets;
    CHECK(rounds == report_file_uint(chosen, "result"));
    executor_run(set, &run);
}

static void test_rounds(void) {
    run_checks("rounds", 1, body_rounds);
}

/* ---- updates that break off ---- */

/* The report with as many ranks, each a node, and slices as the check has ranks and chunks. */
static Report *commit_report(json_t *root, guint n_ranks, guint n_chunks) {
    g_autoptr(GError) error = NULL;
    json_t *destination = json_object_get(root, "dst"), *ranks = json_array();
    json_t *nodes = json_array();

    for (guint rank = 0; rank < n_ranks; rank++) {
        json_array_append_new(ranks, json_integer(rank));
        json_array_append_new(nodes, json_pack("[i]", (int)rank));
    }
    json_object_set_new(root, "topology", json_pack("{s:o}", "nodes", nodes));
    json_object_set_new(destination, "ranks", ranks);
    json_object_set_new(destination, "mesh_dims", json_pack("[i]", (int)n_ranks));
    Report *report = report_new(root, &error);
    g_assert_no_error(error);
    report->refit_case->profile->slices = n_chunks;
    executor_cut_small(report->refit_case);
    return report;
}

/* The rank fails as it submits the group in which that chunk comes, or, when it is the first one,
 * before all groups. */
static void plan_failure(const ProgramSet *set) {
    guint64 rank = report_file_uint(chosen, "fail_rank"),
            chunk = report_file_uint(chosen, "fail_chunk");
    const RefitProgram *program = set->programs[rank];
    guint64 n_groups = 0;

    for (guint t = 0; t < program->n_turns; t++)
        n_groups += program->steps[program->turns[t].step].link != LOCAL;
    CHECK(n_groups >= report_file_uint(chosen, "chunks"));
    g_autofree char *fault =
        g_strdup_printf("%s:%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT,
                        chunk > 0 ? "ncclGroupEnd" : "cudaStreamWaitEvent", rank, chunk + 1);
    g_setenv("REFIT_STANDIN_FAULT", fault, TRUE);
}

static void body_commit(void) {
    const json_t *result = json_object_get(chosen, "result");
    const json_t *dirty = json_object_get(result, "dirty_ranks");
    RefitServes serves[EXECUTOR_MAX_RANKS] = {REFIT_SERVES_OLD};
    json_auto_t *root = report_file_load_number("110");
    g_autoptr(Report) report = commit_report(root, (guint)report_file_uint(chosen, "ranks"),
                                             (guint)report_file_uint(chosen, "chunks"));
    g_autoptr(RefitPlan) plan = strategy_plan(report->problem, "ring");
    g_autoptr(ProgramSet) set = report_file_programs(plan);
    const ExecutorRun run = {.as = RANKS_AS_THREADS,
                             .n_runs = 1,
                             .timeout_s = 60,
                             .informs = TRUE,
                             .must_fail = TRUE,
                             .serves = serves};
    RefitServes all = json_array_size(dirty) > 0 ? REFIT_SERVES_NONE : REFIT_SERVES_OLD;

    for (gsize i = 0; i < json_array_size(dirty); i++) {
        guint rank = (guint)json_integer_value(json_array_get(dirty, i));
        serves[report->ranks->gpu_of[rank]] = REFIT_SERVES_NONE;
    }
    CHECK(g_str_equal(json_string_value(json_object_get(result, "serve_version")),
                      refit_serves_name(all)));
    plan_failure(set);
    executor_run(set, &run);
}

static void test_commits(void) {
    run_checks("commit", 2, body_commit);
}

/* ---- what must be refused ---- */

static void rank_shares(Rank *rank, const ncclUniqueId *id) {
    g_autofree char *key = g_strdup_printf("%d", rank->rank);
    const char *device = json_string_value(json_object_get(chosen, key));
    ncclComm_t comm = NULL;

    CHECK(device != NULL && g_str_has_prefix(device, "gpu"));
    CUDA(cudaSetDevice(atoi(device + strlen("gpu"))));
    CHECK(ncclCommInitRank(&comm, rank->n, *id, rank->rank) == ncclInvalidUsage);
    CHECK(comm == NULL && strstr(ncclGetLastError(NULL), "Duplicate GPU") != NULL);
}

static void body_shared_devices(void) {
    ranks_run_bare((int)json_object_size(chosen), RANKS_AS_THREADS, rank_shares);
}

static void test_shared_devices(void) {
    json_auto_t *root = report_file_load_number("024");

    chosen = json_object_get(root, "device_of");
    g_assert_cmpuint(json_object_size(chosen), ==, 8);
    child_passes(body_shared_devices, environment);
}

/* A receiver that expects other sizes than are sent: no hang, and no byte moves. */
static void body_wire_sizes(void) {
    g_autoptr(GError) error = NULL;
    const RefitServes serves[EXECUTOR_MAX_RANKS] = {REFIT_SERVES_OLD};
    json_auto_t *root = report_file_load_number("074");
    g_autoptr(Report) report = report_new(root, &error);
    const ExecutorRun run = {.as = RANKS_AS_THREADS,
                             .n_runs = 1,
                             .timeout_s = 60,
                             .must_fail = TRUE,
                             .short_message = 1 + report->ranks->gpu_of[1],
                             .error_has = "what ranks would send is not what others would receive",
                             .serves = serves};
    g_autoptr(RefitPlan) plan = strategy_plan(report->problem, "direct");
    g_autoptr(ProgramSet) set = report_file_programs(plan);

    executor_run(set, &run);
}

static void test_wire_sizes(void) {
    child_passes(body_wire_sizes, environment);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-checks/schedules-end-or-hang-as-stated", test_schedules);
    g_test_add_func("/executor-checks/a-strided-view-is-packed", test_strided);
    g_test_add_func("/executor-checks/rounds-of-a-bucket", test_rounds);
    g_test_add_func("/executor-checks/ranks-are-dirty-after-a-failure", test_commits);
    g_test_add_func("/executor-checks/a-device-for-two-ranks", test_shared_devices);
    g_test_add_func("/executor-checks/sizes-that-differ", test_wire_sizes);
    return g_test_run();
}
