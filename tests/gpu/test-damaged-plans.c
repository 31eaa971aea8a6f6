/*
 * A plan that would never end is refused before anything moves, by the C API and by the NCCL M2N
 * interface: see damage-plan.c. The same of `refit run` is a case of run-cases.
 */

#include "lib/refit.h"
#include "m2n-tensor.h"

#include <string.h>

#define WORDS "follows one that comes no earlier"

/* ---- the C API ---- */

static void child_job(void) {
    RefitJob *job = refit_job_new();
    RefitEndpointConfig config = REFIT_ENDPOINT_CONFIG_INIT;
    RefitEndpoint *endpoint;

    CHECK(refit_job_set_data_dir(job, REFIT_SOURCE_DATA_DIR) == REFIT_OK);
    CHECK(refit_job_load_case(job, "tiny", NULL) == REFIT_OK);
    CHECK(refit_job_plan(job, NULL) == REFIT_STATUS_COVERAGE);
    CHECK(g_str_has_prefix(refit_job_message(job), "a plan by the strategy refit: rank "));
    CHECK(strstr(refit_job_message(job), WORDS) != NULL);
    CHECK(refit_job_digest(job) == NULL && refit_job_strategy(job) == NULL);
    CHECK(refit_endpoint_open(job, &config, &endpoint) == REFIT_STATUS_INVALID);
    CHECK(strstr(refit_endpoint_message(endpoint), "the job has no plan") != NULL);
    refit_endpoint_close(endpoint);
    /* A plan of before stays. */
    g_unsetenv("REFIT_STANDIN_SPOIL");
    CHECK(refit_job_plan(job, NULL) == REFIT_OK);
    g_autofree char *digest = g_strdup(refit_job_digest(job));
    g_setenv("REFIT_STANDIN_SPOIL", "plan", TRUE);
    CHECK(refit_job_plan(job, "hybrid") == REFIT_STATUS_COVERAGE);
    CHECK(g_strcmp0(refit_job_digest(job), digest) == 0);
    CHECK(g_strcmp0(refit_job_strategy(job), "refit") == 0);
    refit_job_free(job);
}

static void test_job(void) {
    child_passes(child_job, (const char *const[]){"REFIT_STANDIN_SPOIL=plan", NULL});
}

/* ---- the NCCL M2N interface ---- */

/* Both destinations are in one NVLink domain, so one passes on what the other lacks. */
static const Tensor copied = {
    .n_dims = 2,
    .shape = {64, 4096},
    .dtype = ncclFloat32,
    .element = 4,
    .source = {.n_axes = 1, .axes = {2}, .places = {0}},
    .destination = {.first = 2, .n_axes = 1, .axes = {2}, .places = {NCCL_RESHARD_REPLICATE}},
};

static void rank_reshard(Rank *rank) {
    TensorOnRank tensor;
    ncclM2nHandle_t handle;

    CHECK(ncclM2nInit(&handle, NULL) == ncclSuccess);
    tensor_open(&tensor, &copied, rank->rank);
    for (guint i = 0; i < 2; i++) { /* nothing of it is kept for the next call */
        CHECK(ncclReshard(handle, rank->comm, &tensor.sides[0], &tensor.sides[1], rank->stream) ==
              ncclInternalError);
        CHECK(strstr(ncclM2nGetLastError(), "rank 0: a plan by the strategy refit: ") != NULL);
        CHECK(strstr(ncclM2nGetLastError(), WORDS) != NULL);
        if (tensor.shards[1].data != NULL)
            device_expect(rank->stream, tensor.shards[1].data, tensor.shards[1].bytes, 0xa5);
    }
    tensor_close(&tensor);
    CHECK(ncclM2nFinalize(handle) == ncclSuccess);
}

static void child_reshard(void) {
    ranks_run(4, RANKS_AS_THREADS, rank_reshard);
}

static void test_reshard(void) {
    child_passes(child_reshard,
                 (const char *const[]){"REFIT_STANDIN_SPOIL=plan", "REFIT_DOMAIN_SIZE=2",
                                       "REFIT_TIMEOUT_S=30", NULL});
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/damaged-plans/a-job-gets-no-such-plan", test_job);
    g_test_add_func("/damaged-plans/a-reshard-moves-nothing", test_reshard);
    return g_test_run();
}
