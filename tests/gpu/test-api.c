/*
 * The C API (refit.h), seen as its users see it: nothing else of the project is included. Planning:
 * bytes of a small job worked out by hand, every kind of axis, ranges, padding, failed ranks, case
 * files, plans as JSON. Mistakes: status and message of each, handles unharmed. Endpoints as far as
 * they come without an executor. What moves bytes is tested on the stand-in (test-api-run.c).
 */

#include "lib/refit.h"

#include <glib.h>
#include <jansson.h>

#include <string.h>

static RefitJob *new_job(const char *topology) {
    RefitJob *job = refit_job_new();

    g_assert_nonnull(job);
    g_assert_cmpstr(refit_job_message(job), ==, "");
    g_assert_cmpint(refit_job_set_topology(job, topology), ==, REFIT_OK);
    return job;
}

static uint32_t add_tensor(RefitJob *job, const char *name, const char *dtype, uint32_t n_dims,
                           const uint64_t *shape) {
    RefitTensorDesc tensor = REFIT_TENSOR_INIT;
    uint32_t index = 77;

    tensor.name = name;
    tensor.dtype = dtype;
    tensor.n_dims = n_dims;
    tensor.shape = shape;
    g_assert_cmpint(refit_job_add_tensor(job, &tensor, &index), ==, REFIT_OK);
    return index;
}

static RefitStatus place(RefitJob *job, uint32_t tensor, RefitEnd side, uint32_t first_rank,
                         uint32_t n_axes, const RefitAxisDesc *axes) {
    RefitMeshDesc mesh = REFIT_MESH_INIT;

    mesh.n_axes = n_axes;
    mesh.axes = axes;
    mesh.first_rank = first_rank;
    return refit_job_place(job, tensor, side, &mesh);
}

static const RefitAxisDesc whole = {.extent = 1, .kind = REFIT_AXIS_REPLICATE};

/* 8 x 4 BF16: rows over ranks 0 and 1; columns over two of four ranks of another node, twice. */
static RefitJob *worked_example(void) {
    const uint64_t shape[] = {8, 4};
    const RefitAxisDesc rows = {.extent = 2, .kind = REFIT_AXIS_CHUNK, .dim = 0};
    const RefitAxisDesc columns[] = {{.extent = 2, .kind = REFIT_AXIS_REPLICATE},
                                     {.extent = 2, .kind = REFIT_AXIS_CHUNK, .dim = 1}};
    RefitJob *job = new_job("node:2 gpu:4 nvlink:450GBps nic:50GBps");
    uint32_t tensor = add_tensor(job, "w", "bf16", 2, shape);

    g_assert_cmpuint(tensor, ==, 0);
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &rows), ==, REFIT_OK);
    g_assert_cmpint(place(job, tensor, REFIT_DESTINATION, 4, 2, columns), ==, REFIT_OK);
    return job;
}

static RefitJobFacts facts_of(RefitJob *job) {
    RefitJobFacts facts = REFIT_JOB_FACTS_INIT;

    g_assert_cmpint(refit_job_facts(job, &facts), ==, REFIT_OK);
    g_assert_cmpuint(facts.size, ==, sizeof facts);
    return facts;
}

static RefitRankFacts rank_facts_of(RefitJob *job, uint32_t rank) {
    RefitRankFacts facts = REFIT_RANK_FACTS_INIT;

    g_assert_cmpint(refit_job_rank_facts(job, rank, &facts), ==, REFIT_OK);
    return facts;
}

static void test_worked_example(void) {
    RefitJob *job = worked_example();

    g_assert_null(refit_job_digest(job));
    g_assert_null(refit_job_strategy(job));
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    g_assert_cmpstr(refit_job_strategy(job), ==, "refit");
    RefitJobFacts facts = facts_of(job);
    g_assert_cmpuint(facts.n_ranks, ==, 8);
    g_assert_cmpuint(facts.n_tensors, ==, 1);
    g_assert_cmpuint(facts.weight_bytes, ==, 64);
    g_assert_cmpuint(facts.needed_bytes, ==, 128);
    g_assert_cmpuint(facts.network_bytes, ==, 64);
    g_assert_cmpuint(facts.network_bound_bytes, ==, 64);
    g_assert_cmpuint(facts.nvlink_bytes, ==, 64);
    g_assert_cmpuint(facts.local_bytes, ==, 0);
    g_assert_cmpfloat(facts.time_bound_s, >, 0);
    /* The exchange evens out: whatever a rank does not take from the network it takes by NVLink. */
    for (uint32_t rank = 4; rank < 8; rank++) {
        RefitRankFacts at = rank_facts_of(job, rank);
        g_assert_cmpuint(at.network_in + at.nvlink_in, ==, 32);
        g_assert_cmpuint(at.network_out, ==, 0);
    }
    RefitRankFacts source = rank_facts_of(job, 0), idle = rank_facts_of(job, 2);
    g_assert_cmpuint(source.network_out, ==, 32);
    g_assert_cmpuint(idle.network_in + idle.network_out + idle.nvlink_in + idle.staging_bytes, ==,
                     0);
    refit_job_free(job);
}

static void test_strategies(void) {
    RefitJob *job = worked_example();
    RefitJob *other = worked_example();

    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    g_autofree char *digest = g_strdup(refit_job_digest(job));
    g_assert_cmpuint(strlen(digest), ==, 64);
    g_assert_cmpint(refit_job_plan(other, "refit"), ==, REFIT_OK);
    g_assert_cmpstr(refit_job_digest(other), ==, digest);

    g_assert_cmpint(refit_job_plan(job, "direct"), ==, REFIT_OK);
    g_assert_cmpstr(refit_job_strategy(job), ==, "direct");
    g_assert_cmpstr(refit_job_digest(job), !=, digest);
    g_assert_cmpuint(facts_of(job).network_bytes, ==, 128);

    g_assert_cmpint(refit_job_plan(job, "drect"), ==, REFIT_STATUS_INVALID);
    g_assert_nonnull(strstr(refit_job_message(job), "direct"));
    g_assert_cmpstr(refit_job_strategy(job), ==, "direct");
    refit_job_free(job);
    refit_job_free(other);
}

static void test_json(void) {
    RefitJob *job = worked_example();
    char *text = NULL;
    size_t length = 0;

    g_assert_cmpint(refit_job_json(job, &text, &length), ==, REFIT_STATUS_INVALID);
    g_assert_null(text);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    g_assert_cmpint(refit_job_json(job, &text, &length), ==, REFIT_OK);
    json_t *plan = json_loadb(text, length, 0, NULL);
    g_assert_cmpstr(json_string_value(json_object_get(plan, "schema")), ==, "refit.plan/1");
    g_assert_cmpstr(json_string_value(json_object_get(plan, "digest")), ==, refit_job_digest(job));
    json_decref(plan);
    refit_text_free(text);
    refit_job_free(job);
}

/* What ranks 1 to 3 of a domain take of ten bytes that rank 0 holds. */
static void check_cut(const RefitAxisDesc *axis, const uint64_t *expected) {
    const uint64_t shape[] = {10};
    RefitJob *job = new_job("node:1 gpu:4 nvlink:450GBps nic:50GBps");
    uint32_t tensor = add_tensor(job, "w", "U8", 1, shape);

    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &whole), ==, REFIT_OK);
    g_assert_cmpint(place(job, tensor, REFIT_DESTINATION, 1, 1, axis), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, "direct"), ==, REFIT_OK);
    for (uint32_t rank = 1; rank < 4; rank++)
        g_assert_cmpuint(rank_facts_of(job, rank).nvlink_in, ==, expected[rank - 1]);
    refit_job_free(job);
}

static void test_axes(void) {
    const uint64_t sizes[] = {1, 7, 2};
    const RefitAxisDesc axes[] = {
        {.extent = 3, .kind = REFIT_AXIS_REPLICATE},
        {.extent = 3, .kind = REFIT_AXIS_CHUNK},
        {.extent = 3, .kind = REFIT_AXIS_BALANCED},
        {.extent = 3, .kind = REFIT_AXIS_SIZES, .sizes = sizes},
        {.extent = 3, .kind = REFIT_AXIS_STRIDED, .chunks = 2},
    };
    /* Strided: two chunks of 5, each cut in 2, 2 and 1. */
    const uint64_t expected[][3] = {{10, 10, 10}, {4, 4, 2}, {4, 3, 3}, {1, 7, 2}, {4, 4, 2}};

    for (size_t i = 0; i < G_N_ELEMENTS(axes); i++)
        check_cut(&axes[i], expected[i]);
}

static void test_two_axes_on_one_dim(void) {
    /* The second axis cuts first: 6 = 3 + 3, then 2 + 1. Ranks in mesh order: (0,0) (0,1) (1,0)
     * (1,1). */
    const RefitAxisDesc axes[] = {{.extent = 2, .kind = REFIT_AXIS_CHUNK, .order = 1},
                                  {.extent = 2, .kind = REFIT_AXIS_CHUNK, .order = 0}};
    const uint32_t ranks[] = {4, 2, 3, 1};
    const uint64_t expected[] = {0, 1, 2, 1, 2};
    const uint64_t shape[] = {6};
    RefitJob *job = new_job("node:1 gpu:5 nvlink:450GBps nic:50GBps");
    uint32_t tensor = add_tensor(job, "w", "U8", 1, shape);
    RefitMeshDesc mesh = REFIT_MESH_INIT;

    mesh.n_axes = 2;
    mesh.axes = axes;
    mesh.ranks = ranks;
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &whole), ==, REFIT_OK);
    g_assert_cmpint(refit_job_place(job, tensor, REFIT_DESTINATION, &mesh), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, "direct"), ==, REFIT_OK);
    for (uint32_t rank = 0; rank < 5; rank++)
        g_assert_cmpuint(rank_facts_of(job, rank).nvlink_in, ==, expected[rank]);
    refit_job_free(job);
}

static void test_ranges(void) {
    /* Rank 1 holds rows 0 and 3 of four, rank 2 all of them; two bytes a row. */
    const RefitRangeDesc outer[] = {{0, 0, 1, 0}, {0, 3, 4, 1}, {1, 0, 2, 0}};
    const RefitRangeDesc all[] = {{0, 0, 4, 0}, {1, 0, 2, 0}};
    const RefitRangeDesc overlap[] = {{0, 0, 3, 0}, {0, 2, 4, 3}, {1, 0, 2, 0}};
    const uint64_t shape[] = {4, 2};
    RefitJob *job = new_job("node:1 gpu:3 nvlink:450GBps nic:50GBps");
    uint32_t tensor = add_tensor(job, "w", "I8", 2, shape);

    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &whole), ==, REFIT_OK);
    g_assert_cmpint(refit_job_place_ranges(job, tensor, REFIT_DESTINATION, 1, 3, overlap), ==,
                    REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_job_place_ranges(job, tensor, REFIT_DESTINATION, 1, 3, outer), ==,
                    REFIT_OK);
    g_assert_cmpint(refit_job_place_ranges(job, tensor, REFIT_DESTINATION, 2, 2, all), ==,
                    REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, "direct"), ==, REFIT_OK);
    g_assert_cmpuint(rank_facts_of(job, 1).nvlink_in, ==, 4);
    g_assert_cmpuint(rank_facts_of(job, 2).nvlink_in, ==, 8);
    refit_job_free(job);
}

static void test_padding(void) {
    /* Six rows padded to eight: ranks 1 and 2 take four and two of them. */
    const RefitAxisDesc rows = {.extent = 2, .kind = REFIT_AXIS_CHUNK};
    const uint64_t shape[] = {6};
    RefitJob *job = new_job("node:1 gpu:3 nvlink:450GBps nic:50GBps");
    uint32_t tensor = add_tensor(job, "w", "U8", 1, shape);

    g_assert_cmpint(refit_job_pad(job, tensor, REFIT_DESTINATION, 0, 8), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &whole), ==, REFIT_OK);
    g_assert_cmpint(place(job, tensor, REFIT_DESTINATION, 1, 1, &rows), ==, REFIT_OK);
    g_assert_cmpint(refit_job_pad(job, tensor, REFIT_DESTINATION, 0, 8), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, "direct"), ==, REFIT_OK);
    g_assert_cmpuint(rank_facts_of(job, 1).nvlink_in, ==, 4);
    g_assert_cmpuint(rank_facts_of(job, 2).nvlink_in, ==, 2);
    refit_job_free(job);
}

static void test_failed_ranks(void) {
    RefitJob *job = worked_example();

    g_assert_cmpint(refit_job_fail_rank(job, 0), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_STATUS_MISSING);
    g_assert_nonnull(strstr(refit_job_message(job), "w"));
    refit_job_free(job);

    job = worked_example();
    g_assert_cmpint(refit_job_fail_rank(job, 7), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    g_assert_cmpuint(facts_of(job).needed_bytes, ==, 96);
    refit_job_free(job);
}

static void test_case_file(void) {
    const char *const overrides[] = {"topology=node:2 gpu:4 nvlink:450GBps nic:50GBps", NULL};
    RefitJob *job = refit_job_new();
    RefitJob *changed = refit_job_new();

    g_assert_cmpint(refit_job_load_case(job, "no-such-case", NULL), !=, REFIT_OK);
    g_assert_cmpint(refit_job_set_data_dir(job, REFIT_SOURCE_DATA_DIR), ==, REFIT_OK);
    g_assert_cmpint(refit_job_load_case(job, "tiny", NULL), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    g_assert_cmpuint(facts_of(job).n_tensors, >, 1);

    g_assert_cmpint(refit_job_set_data_dir(changed, REFIT_SOURCE_DATA_DIR), ==, REFIT_OK);
    g_assert_cmpint(refit_job_load_case(changed, "tiny", overrides), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(changed, NULL), ==, REFIT_OK);
    g_assert_cmpuint(facts_of(changed).n_ranks, ==, 8);
    g_assert_cmpint(refit_job_load_case(changed, "tiny", NULL), ==, REFIT_STATUS_INVALID);
    refit_job_free(job);
    refit_job_free(changed);
}

static void test_shipped_names(void) {
    RefitJob *job = worked_example();

    g_assert_cmpint(refit_job_set_data_dir(job, REFIT_SOURCE_DATA_DIR), ==, REFIT_OK);
    g_assert_cmpint(refit_job_set_topology(job, "dgx-h10"), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_STATUS_INVALID);
    g_assert_nonnull(strstr(refit_job_message(job), "dgx-h100"));
    g_assert_cmpint(refit_job_set_topology(job, "dgx-h100"), ==, REFIT_OK);
    g_assert_cmpint(refit_job_set_profile(job, "nemo-rl"), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    /* One domain of eight GPUs now. */
    g_assert_cmpuint(facts_of(job).network_bytes, ==, 0);
    refit_job_free(job);
}

static void test_closed_description(void) {
    const uint64_t shape[] = {4};
    RefitTensorDesc tensor = REFIT_TENSOR_INIT;
    RefitJob *job = worked_example();

    tensor.name = "v";
    tensor.dtype = "f32";
    tensor.n_dims = 1;
    tensor.shape = shape;
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    g_autofree char *digest = g_strdup(refit_job_digest(job));
    g_assert_cmpint(refit_job_add_tensor(job, &tensor, NULL), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(place(job, 0, REFIT_SOURCE, 2, 1, &whole), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_job_pad(job, 0, REFIT_SOURCE, 0, 9), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_job_fail_rank(job, 0), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_job_set_topology(job, "dgx-h100"), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_job_set_staging(job, 1), ==, REFIT_STATUS_INVALID);
    g_assert_nonnull(strstr(refit_job_message(job), "before the plan"));
    g_assert_cmpstr(refit_job_digest(job), ==, digest);
    refit_job_free(job);
}

/* ---- mistakes ---- */

static void test_tensor_mistakes(void) {
    const uint64_t shape[] = {4, G_MAXUINT64}, small[] = {4, 4};
    const struct {
        RefitTensorDesc tensor;
        RefitStatus status;
        const char *message;
    } rows[] = {
        {{sizeof(RefitTensorDesc), NULL, "f32", 1, small}, REFIT_STATUS_INVALID, "lacks a name"},
        {{sizeof(RefitTensorDesc), "w", NULL, 1, small}, REFIT_STATUS_INVALID, "lacks"},
        {{sizeof(RefitTensorDesc), "w", "f32", 1, NULL}, REFIT_STATUS_INVALID, "lacks"},
        {{8, "w", "f32", 1, small}, REFIT_STATUS_INVALID, "size is 8"},
        {{sizeof(RefitTensorDesc), "w", "f33", 1, small}, REFIT_STATUS_INVALID, "f33"},
        {{sizeof(RefitTensorDesc), "w", "f32", 9, small}, REFIT_STATUS_INVALID, "9 dims"},
        {{sizeof(RefitTensorDesc), "w", "f32", 2, shape}, REFIT_STATUS_OVERFLOW, "w"},
        {{sizeof(RefitTensorDesc), "taken", "f32", 2, small}, REFIT_STATUS_INVALID, "taken"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        RefitJob *job = new_job("node:1 gpu:2 nvlink:450GBps nic:50GBps");
        uint32_t index = 77;
        (void)add_tensor(job, "taken", "f32", 2, small);
        g_assert_cmpint(refit_job_add_tensor(job, &rows[i].tensor, &index), ==, rows[i].status);
        g_assert_nonnull(strstr(refit_job_message(job), rows[i].message));
        g_assert_cmpuint(index, ==, 77);
        g_assert_cmpuint(add_tensor(job, "next", "f32", 2, small), ==, 1);
        refit_job_free(job);
    }
}

static void test_mesh_mistakes(void) {
    const RefitAxisDesc twice[] = {{.extent = 2, .kind = REFIT_AXIS_CHUNK},
                                   {.extent = 2, .kind = REFIT_AXIS_CHUNK}};
    const RefitAxisDesc none = {.extent = 0, .kind = REFIT_AXIS_CHUNK};
    const RefitAxisDesc odd = {.extent = 2, .kind = (RefitAxisKind)9};
    const RefitAxisDesc sizes = {.extent = 2, .kind = REFIT_AXIS_SIZES};
    const uint64_t shape[] = {8};
    const uint32_t repeats[] = {1, 1};
    RefitJob *job = new_job("node:1 gpu:4 nvlink:450GBps nic:50GBps");
    RefitMeshDesc mesh = REFIT_MESH_INIT;
    uint32_t tensor = add_tensor(job, "w", "f32", 1, shape);

    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 2, twice), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &none), ==, REFIT_STATUS_LAYOUT);
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &odd), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &sizes), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 0, &whole), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(place(job, tensor, (RefitEnd)2, 0, 1, &whole), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(place(job, 5, REFIT_SOURCE, 0, 1, &whole), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, G_MAXUINT32, 1, &whole), ==,
                    REFIT_STATUS_INVALID);
    mesh.n_axes = 1;
    mesh.axes = twice;
    mesh.ranks = repeats;
    g_assert_cmpint(refit_job_place(job, tensor, REFIT_SOURCE, &mesh), ==, REFIT_STATUS_LAYOUT);
    /* None of it has left a trace. */
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &whole), ==, REFIT_OK);
    g_assert_cmpint(place(job, tensor, REFIT_DESTINATION, 1, 1, &whole), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    g_assert_cmpuint(facts_of(job).nvlink_bytes, ==, 32);
    refit_job_free(job);
}

static void test_plan_mistakes(void) {
    const uint64_t shape[] = {8};
    const RefitAxisDesc second = {.extent = 2, .kind = REFIT_AXIS_CHUNK, .dim = 1};
    RefitJobFacts facts = REFIT_JOB_FACTS_INIT;
    RefitRankFacts rank = REFIT_RANK_FACTS_INIT;
    RefitJob *job = refit_job_new();
    uint32_t tensor = add_tensor(job, "w", "f32", 1, shape);

    g_assert_cmpint(refit_job_facts(job, &facts), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_job_rank_facts(job, 0, &rank), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_STATUS_INVALID);
    g_assert_nonnull(strstr(refit_job_message(job), "topology"));
    g_assert_cmpint(refit_job_set_topology(job, "node:1 gpu:0"), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, NULL), !=, REFIT_OK);
    g_assert_cmpint(refit_job_set_topology(job, "node:1 gpu:4 nvlink:450GBps nic:50GBps"), ==,
                    REFIT_OK);
    g_assert_cmpint(place(job, tensor, REFIT_SOURCE, 0, 1, &second), ==, REFIT_OK);
    g_assert_cmpint(place(job, tensor, REFIT_DESTINATION, 2, 1, &whole), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_STATUS_LAYOUT);
    refit_job_free(job);

    job = worked_example();
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    g_assert_cmpint(refit_job_rank_facts(job, 8, &rank), ==, REFIT_STATUS_INVALID);
    facts.size = 1;
    g_assert_cmpint(refit_job_facts(job, &facts), ==, REFIT_STATUS_INVALID);
    refit_job_free(job);
}

/* ---- endpoints without an executor ---- */

static int gather_fails(void *data, const void *mine, size_t bytes, void *all, uint8_t *came,
                        double timeout_s, char *message, size_t message_size) {
    (void)mine, (void)bytes, (void)all, (void)came, (void)timeout_s;
    ++*(int *)data;
    g_strlcpy(message, "no network", message_size);
    return 0;
}

static void test_endpoint_mistakes(void) {
    RefitEndpointConfig config = REFIT_ENDPOINT_CONFIG_INIT;
    RefitParameterInfo info = REFIT_PARAMETER_INFO_INIT;
    RefitEndpoint *endpoint = NULL;
    RefitJob *job = worked_example();
    int calls = 0;

    config.gather = gather_fails;
    config.gather_data = &calls;
    config.executor = "/no/such/executor.so";
    g_assert_cmpint(refit_endpoint_open(job, &config, &endpoint), ==, REFIT_STATUS_INVALID);
    g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "refit_job_plan"));
    refit_endpoint_close(endpoint);

    g_assert_cmpint(refit_job_probe(job, config.executor, NULL), ==, REFIT_STATUS_NOT_SUPPORTED);
    g_assert_nonnull(strstr(refit_job_message(job), config.executor));
    g_assert_cmpint(refit_job_plan(job, NULL), ==, REFIT_OK);
    config.rank = 8;
    g_assert_cmpint(refit_endpoint_open(job, &config, &endpoint), ==, REFIT_STATUS_INVALID);
    refit_endpoint_close(endpoint);

    config.rank = 1;
    g_assert_cmpint(refit_endpoint_open(job, &config, &endpoint), ==, REFIT_STATUS_NOT_SUPPORTED);
    g_assert_nonnull(strstr(refit_endpoint_message(endpoint), config.executor));
    g_assert_cmpint(refit_endpoint_prepare(endpoint), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_endpoint_start(endpoint, NULL), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_endpoint_wait(endpoint, NULL), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_endpoint_parameter(endpoint, REFIT_SOURCE, 9, &info), ==,
                    REFIT_STATUS_INVALID);
    g_assert_cmpuint(refit_endpoint_version(endpoint), ==, 0);
    g_assert_cmpint(refit_endpoint_serves(endpoint), ==, REFIT_VERSION_OLD);
    refit_endpoint_abort(endpoint);
    /* Replanning has to wait for it. */
    g_assert_cmpint(refit_job_plan(job, "direct"), ==, REFIT_STATUS_INVALID);
    refit_endpoint_close(endpoint);
    g_assert_cmpint(refit_job_plan(job, "direct"), ==, REFIT_OK);

    config.gather = NULL;
    g_assert_cmpint(refit_endpoint_open(job, &config, &endpoint), ==, REFIT_STATUS_INVALID);
    g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "token"));
    refit_endpoint_close(endpoint);
    g_assert_cmpint(calls, ==, 1); /* the others were to be told */
    refit_endpoint_close(NULL);
    refit_job_free(job);
    refit_job_free(NULL);
}

static void test_names(void) {
    g_assert_cmpstr(refit_status_name(REFIT_OK), ==, "ok");
    g_assert_cmpstr(refit_status_name(REFIT_STATUS_SPLIT), ==, "split");
    for (int status = REFIT_OK; status <= REFIT_STATUS_SPLIT; status++)
        g_assert_nonnull(refit_status_name((RefitStatus)status));
    g_assert_cmpstr(refit_status_name((RefitStatus)99), ==, "unknown");
    g_assert_true(g_ascii_isdigit(refit_library_version()[0]));
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/api/the-worked-example-costs-what-it-should", test_worked_example);
    g_test_add_func("/api/a-job-is-planned-anew-with-another-strategy", test_strategies);
    g_test_add_func("/api/a-plan-is-json-with-its-digest", test_json);
    g_test_add_func("/api/axes-cut-as-they-say", test_axes);
    g_test_add_func("/api/two-axes-cut-one-dim-in-the-stated-order", test_two_axes_on_one_dim);
    g_test_add_func("/api/ranks-hold-stated-ranges", test_ranges);
    g_test_add_func("/api/padding-moves-the-cuts", test_padding);
    g_test_add_func("/api/failed-ranks-take-no-part", test_failed_ranks);
    g_test_add_func("/api/case-files-are-read", test_case_file);
    g_test_add_func("/api/topologies-and-profiles-have-names", test_shipped_names);
    g_test_add_func("/api/a-plan-closes-the-description", test_closed_description);
    g_test_add_func("/api/mistakes-in-tensors-are-named", test_tensor_mistakes);
    g_test_add_func("/api/mistakes-in-meshes-leave-no-trace", test_mesh_mistakes);
    g_test_add_func("/api/mistakes-in-plans-are-named", test_plan_mistakes);
    g_test_add_func("/api/an-endpoint-that-did-not-open-can-be-closed", test_endpoint_mistakes);
    g_test_add_func("/api/statuses-have-names", test_names);
    return g_test_run();
}
