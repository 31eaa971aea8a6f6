/*
 * The executor's table and its parts: what probe() says where there is no driver and no GPU,
 * arguments that make no sense, calls in the wrong order, addresses of the wrong kind, memory that
 * is not enough, an abort by the user; and how runs become boxes.
 */

#include "gpu/executor/refit-gpu-private.h"
#include "standin-child.h"

#include <string.h>

/* ---- probe ---- */

static void body_probe_fails(void) {
    g_autoptr(GError) error = NULL;

    CHECK(!refit_gpu.executor.probe(&error) && refit_gpu.n_devices() == 0);
    CHECK(g_error_matches(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED));
    CHECK(refit_error_exit_code(error) == 5 && strchr(error->message, '\n') == NULL);
    g_printerr("%s\n", error->message);
}

static void test_no_driver(void) {
    child_expect(body_probe_fails, (const char *const[]){"REFIT_STANDIN_NO_DRIVER=1", NULL}, 0,
                 "no NVIDIA driver here");
}

static void test_no_gpu(void) {
    child_expect(body_probe_fails, (const char *const[]){"REFIT_STANDIN_DEVICES=0", NULL}, 0,
                 "no GPU here that CUDA can use");
}

static void body_probe(void) {
    g_autoptr(GError) error = NULL;

    g_auto(GStrv) before = g_get_environ(), after = NULL;

    CHECK(refit_gpu.executor.probe(&error) && refit_gpu.n_devices() == 3);
    /* It is the embedding program's. */
    after = g_get_environ();
    CHECK(g_strv_equal((const char *const *)before, (const char *const *)after));
}

static void test_probe(void) {
    child_passes(body_probe, (const char *const[]){"REFIT_STANDIN_DEVICES=3", NULL});
}

/* ---- arguments ---- */

static gboolean alone(gpointer user_data, gconstpointer mine, gsize bytes, gpointer all,
                      guint8 *came, double timeout_s, GError **error) {
    (void)user_data;
    (void)timeout_s;
    (void)error;
    memcpy(all, mine, bytes);
    came[0] = 1;
    return TRUE;
}

static gboolean keep(gpointer user_data, gpointer data, gsize bytes, double timeout_s,
                     GError **error) {
    (void)user_data;
    (void)data;
    (void)bytes;
    (void)timeout_s;
    (void)error;
    return TRUE;
}

static RefitGpuConfig config_alone(void) {
    static const guint domains[] = {0};

    return (RefitGpuConfig){.n_ranks = 1,
                            .domains = domains,
                            .peers = {.gather = alone, .broadcast = keep},
                            .timeout_s = 10};
}

static void refuse_open(const RefitGpuConfig *config, RefitError code, const char *says) {
    const RefitExecutorConfig executor = {.rank = config};
    g_autoptr(GError) error = NULL;

    CHECK(refit_gpu.executor.open(&executor, &error) == NULL);
    CHECK(g_error_matches(error, REFIT_ERROR, (gint)code));
    CHECK(strstr(error->message, says) != NULL);
}

static void body_config(void) {
    RefitGpuConfig config = config_alone();

    refuse_open(NULL, REFIT_ERROR_INVALID, "which rank this is has not been stated");
    config.rank = 1;
    refuse_open(&config, REFIT_ERROR_INVALID, "a rank must be below the number of ranks");
    config = config_alone();
    config.domains = NULL;
    refuse_open(&config, REFIT_ERROR_INVALID, "the domains of all ranks");
    config = config_alone();
    config.peers.broadcast = NULL;
    refuse_open(&config, REFIT_ERROR_INVALID, "functions that gather and broadcast are needed");
    config = config_alone();
    config.timeout_s = 0;
    refuse_open(&config, REFIT_ERROR_INVALID, "the time-out must be above 0");
    config = config_alone();
    config.domains = (const guint[]){G_MAXUINT};
    refuse_open(&config, REFIT_ERROR_INVALID, "NVLink domain is too large");
    config = config_alone();
    config.device = 99;
    refuse_open(&config, REFIT_ERROR_BACKEND, "rank 0: cudaSetDevice: invalid device ordinal");
}

static void test_config(void) {
    child_passes(body_config, NULL);
}

static void body_order(void) {
    g_autoptr(GError) error = NULL;
    const RefitGpuConfig config = config_alone();
    const RefitExecutorConfig executor = {.rank = &config};
    const RefitExecutorWork work = {0};
    RefitGpuRank *rank = refit_gpu.executor.open(&executor, &error);

    CHECK(rank != NULL);
    CHECK(!refit_gpu.executor.prepare(rank, &work, &error));
    CHECK(strstr(error->message, "rank 0 got no program") != NULL);
    g_clear_error(&error);
    CHECK(!refit_gpu.start(rank, NULL, &error));
    CHECK(strstr(error->message, "nothing has been prepared") != NULL);
    g_clear_error(&error);
    CHECK(!refit_gpu.wait(rank, NULL, NULL, NULL, &error));
    CHECK(strstr(error->message, "no run has been started") != NULL);
    g_clear_error(&error);
    CHECK(refit_gpu.serves(rank) == REFIT_SERVES_OLD && refit_gpu.version(rank) == 0);
    CHECK(refit_gpu.memory_alloc(rank, (guint64)1 << 50, &error) == 0);
    CHECK(strstr(error->message, "1125899906842624 bytes: cudaMalloc: out of memory") != NULL);
    refit_gpu.memory_free(rank, 0);
    refit_gpu.executor.close(rank);
    refit_gpu.executor.close(NULL);
}

static void test_order(void) {
    child_passes(body_order, NULL);
}

/* ---- boxes ---- */

static const guint64 sources[] = {1000000}, destinations[] = {2000000};
static const RefitGpuPlaces places = {sources, destinations, 3000000, 4000000};

static RefitByteRun run_at(guint64 from, guint64 to, guint64 bytes) {
    return (RefitByteRun){.from_memory = REFIT_MEMORY_SOURCE,
                          .to_memory = REFIT_MEMORY_MESSAGE,
                          .from = from,
                          .to = to,
                          .bytes = bytes};
}

/* Layers of a stack of matrices' columns. */
static void test_fold(void) {
    g_autoptr(GArray) boxes = g_array_new(FALSE, FALSE, sizeof(RefitGpuBox));
    RefitByteRun runs[2 * 3 * 5];
    guint n = 0;

    for (guint64 i = 0; i < 2; i++)
        for (guint64 j = 0; j < 3; j++)
            for (guint64 k = 0; k < 5; k++, n++)
                runs[n] = run_at(10000 * i + 1000 * j + 100 * k, 16 * n, 16);
    refit_gpu_boxes_append(boxes, &places, runs, n);
    g_assert_cmpuint(boxes->len, ==, 1);
    const RefitGpuBox *box = &g_array_index(boxes, RefitGpuBox, 0);
    g_assert_cmpuint(box->from, ==, 1000000);
    g_assert_cmpuint(box->to, ==, 4000000);
    g_assert_cmpuint(box->n_dims, ==, 3);
    g_assert_cmpuint(box->extent[0], ==, 5);
    g_assert_cmpuint(box->extent[1], ==, 3);
    g_assert_cmpuint(box->extent[2], ==, 2);
    g_assert_cmpint(box->from_step[0], ==, 100);
    g_assert_cmpint(box->from_step[1], ==, 1000);
    g_assert_cmpint(box->from_step[2], ==, 10000);
    g_assert_true(refit_gpu_box_is_packed(box, TRUE));
    g_assert_false(refit_gpu_box_is_packed(box, FALSE));
}

/* Every byte that runs say is in exactly the boxes, in whatever order they come. */
static void test_fold_random(void) {
    for (guint round = 0; round < 200; round++) {
        g_autoptr(GArray) boxes = g_array_new(FALSE, FALSE, sizeof(RefitGpuBox));
        g_autoptr(GHashTable) moves = g_hash_table_new(g_int64_hash, g_int64_equal);
        g_autofree gint64 *keys = g_new(gint64, 64);
        RefitByteRun runs[64];
        guint64 from = 0;
        guint n_found = 0;

        for (guint i = 0; i < 64; i++) {
            from += 8 * (guint64)g_test_rand_int_range(1, 3);
            runs[i] = run_at(from, 8 * i, 8);
            keys[i] = (gint64)((1000000 + from) << 32 | (4000000 + 8 * i));
            g_hash_table_add(moves, &keys[i]);
        }
        refit_gpu_boxes_append(boxes, &places, runs, 64);
        for (guint b = 0; b < boxes->len; b++) {
            const RefitGpuBox *box = &g_array_index(boxes, RefitGpuBox, b);
            guint64 n = 1;
            for (guint d = 0; d < box->n_dims; d++)
                n *= box->extent[d];
            for (guint64 i = 0; i < n; i++, n_found++) {
                guint64 at = box->from, to = box->to, left = i;
                for (guint d = 0; d < box->n_dims; d++) {
                    at += left % box->extent[d] * (guint64)box->from_step[d];
                    to += left % box->extent[d] * (guint64)box->to_step[d];
                    left /= box->extent[d];
                }
                gint64 key = (gint64)(at << 32 | to);
                g_assert_cmpuint(box->bytes, ==, 8);
                g_assert_true(g_hash_table_remove(moves, &key));
            }
        }
        g_assert_cmpuint(n_found, ==, 64);
    }
}

/* A copy whose bytes are in place, as with one buffer on both sides. */
static void test_in_place(void) {
    g_autoptr(GArray) boxes = g_array_new(FALSE, FALSE, sizeof(RefitGpuBox));
    const guint64 shared[] = {1000000};
    const RefitGpuPlaces one_place = {shared, shared, 0, 0};
    RefitByteRun run = run_at(64, 64, 32);

    run.to_memory = REFIT_MEMORY_DESTINATION;
    refit_gpu_boxes_append(boxes, &one_place, &run, 1);
    g_assert_cmpuint(boxes->len, ==, 0);
    run.to = 128;
    refit_gpu_boxes_append(boxes, &one_place, &run, 1);
    g_assert_cmpuint(boxes->len, ==, 1);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/executor-calls/probe-says-when-there-is-no-driver", test_no_driver);
    g_test_add_func("/executor-calls/probe-says-when-there-is-no-gpu", test_no_gpu);
    g_test_add_func("/executor-calls/probe-counts-gpus-and-leaves-the-environment-alone",
                    test_probe);
    g_test_add_func("/executor-calls/open-refuses-what-makes-no-sense", test_config);
    g_test_add_func("/executor-calls/calls-in-the-wrong-order-are-refused", test_order);
    g_test_add_func("/executor-calls/columns-of-a-stack-are-one-box", test_fold);
    g_test_add_func("/executor-calls/boxes-move-what-runs-say", test_fold_random);
    g_test_add_func("/executor-calls/bytes-in-place-are-left-alone", test_in_place);
    return g_test_run();
}
