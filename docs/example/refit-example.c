/*
 * The use of librefit, in one file: two ranks train, two generate, each on a GPU of one node.
 *
 *   cc refit-example.c $(pkg-config --cflags --libs refit) -pthread -o refit-example
 *   ./refit-example [EXECUTOR]
 *
 * Ranks are threads here, so that one program is enough. In real life they are processes on many
 * nodes, and either state an address, a port and a token in RefitEndpointConfig, or gather with
 * what they have: MPI_Allgather, or the store of a framework.
 */

#include <pthread.h>
#include <refit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_TRAIN = 2, N_GENERATE = 2, N_RANKS = N_TRAIN + N_GENERATE, N_RUNS = 3 };
enum { ROWS = 4096, COLUMNS = 1024 }; /* of one F32 matrix */

/* Ends the program with the message of a job or an endpoint. */
static void fail(RefitStatus status, const char *call, const char *message) {
    fprintf(stderr, "%s: %s: %s\n", call, refit_status_name(status), message);
    exit(1);
}

#define CHECK(call, message)                                                                       \
    do {                                                                                           \
        RefitStatus status = (call);                                                               \
        if (status != REFIT_OK)                                                                    \
            fail(status, #call, (message));                                                        \
    } while (0)
#define JOB(call) CHECK(call, refit_job_message(job))
#define ENDPOINT(call) CHECK(call, refit_endpoint_message(endpoint))

/* ---- what moves, and where ---- */

static RefitJob *describe(void) {
    const uint64_t shape[] = {ROWS, COLUMNS};
    const RefitAxisDesc by_rows = {.extent = N_TRAIN, .kind = REFIT_AXIS_CHUNK, .dim = 0};
    const RefitAxisDesc by_columns = {.extent = N_GENERATE, .kind = REFIT_AXIS_CHUNK, .dim = 1};
    RefitTensorDesc tensor = REFIT_TENSOR_INIT;
    RefitMeshDesc train = REFIT_MESH_INIT, generate = REFIT_MESH_INIT;
    RefitJob *job = refit_job_new();
    uint32_t index;

    tensor.name = "layers.0.mlp.up_proj.weight";
    tensor.dtype = "F32";
    tensor.n_dims = 2;
    tensor.shape = shape;
    train.n_axes = generate.n_axes = 1;
    train.axes = &by_rows;
    generate.axes = &by_columns;
    generate.first_rank = N_TRAIN;

    JOB(refit_job_set_topology(job, "node:1 gpu:4 nvlink:450GBps nic:50GBps"));
    JOB(refit_job_add_tensor(job, &tensor, &index));
    JOB(refit_job_place(job, index, REFIT_SOURCE, &train));
    JOB(refit_job_place(job, index, REFIT_DESTINATION, &generate));
    JOB(refit_job_plan(job, NULL));
    return job;
}

/* ---- how ranks meet ---- */

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned n_came, n_left; /* of the gather in progress */
    char records[N_RANKS][4096];
} Meeting;

typedef struct {
    const char *executor;
    RefitJob *job;
    Meeting *meeting;
    uint32_t rank;
} Rank;

static int gather(void *data, const void *mine, size_t bytes, void *all, uint8_t *came,
                  double timeout_s, char *message, size_t message_size) {
    const Rank *rank = data;
    Meeting *meeting = rank->meeting;
    struct timespec end;
    int here = 0;

    if (bytes > sizeof meeting->records[0]) {
        snprintf(message, message_size, "%zu bytes are too many", bytes);
        return 0;
    }
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)timeout_s + 1;
    pthread_mutex_lock(&meeting->lock);
    while (meeting->n_left > 0) /* the gather before */
        pthread_cond_wait(&meeting->changed, &meeting->lock);
    memcpy(meeting->records[rank->rank], mine, bytes);
    if (++meeting->n_came == N_RANKS)
        meeting->n_left = N_RANKS;
    pthread_cond_broadcast(&meeting->changed);
    while (meeting->n_left == 0 &&
           pthread_cond_timedwait(&meeting->changed, &meeting->lock, &end) == 0)
        continue;
    if (meeting->n_left > 0) {
        here = 1;
        for (unsigned r = 0; r < N_RANKS; r++)
            memcpy((char *)all + r * bytes, meeting->records[r], bytes);
        memset(came, 1, N_RANKS);
        if (--meeting->n_left == 0)
            meeting->n_came = 0;
        pthread_cond_broadcast(&meeting->changed);
    } else {
        snprintf(message, message_size, "%u of %d ranks came", meeting->n_came, N_RANKS);
    }
    pthread_mutex_unlock(&meeting->lock);
    return here;
}

/* ---- one rank ---- */

/* The weights after `run` updates: no two elements alike. */
static float weight(unsigned run, uint64_t row, uint64_t column) {
    return (float)(row * COLUMNS + column + run);
}

/* Fills or checks this rank's shard: rows from `row` and columns from `column` on. */
static void each(float *shard, const RefitParameterInfo *info, uint64_t row, uint64_t column,
                 unsigned run, int fill) {
    for (uint64_t r = 0; r < info->shape[0]; r++)
        for (uint64_t c = 0; c < info->shape[1]; c++) {
            float *at = &shard[r * info->shape[1] + c];
            if (fill)
                *at = weight(run, row + r, column + c);
            else if (*at < weight(run, row + r, column + c) ||
                     *at > weight(run, row + r, column + c)) {
                fprintf(stderr, "row %llu, column %llu is wrong\n", (unsigned long long)(row + r),
                        (unsigned long long)(column + c));
                exit(1);
            }
        }
}

static void *run_rank(void *data) {
    Rank *rank = data;
    RefitEnd side = rank->rank < N_TRAIN ? REFIT_SOURCE : REFIT_DESTINATION;
    RefitEndpointConfig config = REFIT_ENDPOINT_CONFIG_INIT;
    RefitParameterInfo info = REFIT_PARAMETER_INFO_INIT;
    RefitMetrics metrics = REFIT_METRICS_INIT;
    RefitEndpoint *endpoint;
    void *address;

    config.rank = rank->rank;
    config.device = (int)rank->rank;
    config.gather = gather;
    config.gather_data = rank;
    config.timeout_s = 60;
    config.executor = rank->executor;
    ENDPOINT(refit_endpoint_open(rank->job, &config, &endpoint));

    /* A program with weights of its own binds their addresses. */
    ENDPOINT(refit_endpoint_parameter(endpoint, side, 0, &info));
    ENDPOINT(refit_endpoint_alloc(endpoint, info.bytes, &address));
    ENDPOINT(refit_endpoint_bind(endpoint, side, 0, address));
    ENDPOINT(refit_endpoint_prepare(endpoint));

    float *shard = malloc(info.bytes);
    if (shard == NULL)
        exit(1);
    for (unsigned run = 1; run <= N_RUNS; run++) {
        if (side == REFIT_SOURCE) {
            each(shard, &info, rank->rank * info.shape[0], 0, run, 1);
            ENDPOINT(refit_endpoint_upload(endpoint, address, shard, info.bytes));
        }
        /* No engine uses this memory; one that does states its streams. */
        ENDPOINT(refit_endpoint_follow(endpoint, NULL));
        ENDPOINT(refit_endpoint_run(endpoint, NULL, &metrics)); /* NULL: or a cudaStream_t */
        if (side == REFIT_DESTINATION) {
            ENDPOINT(refit_endpoint_download(endpoint, shard, address, info.bytes));
            each(shard, &info, 0, (rank->rank - N_TRAIN) * info.shape[1], run, 0);
        }
    }
    printf("rank %u: version %llu, %llu bytes in, %llu out\n", rank->rank,
           (unsigned long long)metrics.version,
           (unsigned long long)(metrics.nvlink_in + metrics.network_in),
           (unsigned long long)(metrics.nvlink_out + metrics.network_out));
    free(shard);
    refit_endpoint_free(endpoint, address);
    refit_endpoint_close(endpoint);
    return NULL;
}

int main(int argc, char **argv) {
    static Meeting meeting = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};
    RefitJobFacts facts = REFIT_JOB_FACTS_INIT;
    RefitJob *job = describe();
    pthread_t threads[N_RANKS];
    Rank ranks[N_RANKS];
    uint32_t n_devices;

    JOB(refit_job_facts(job, &facts));
    printf("plan %.12s: %llu bytes over the network, %llu over NVLink\n", refit_job_digest(job),
           (unsigned long long)facts.network_bytes, (unsigned long long)facts.nvlink_bytes);
    JOB(refit_job_probe(job, argc > 1 ? argv[1] : NULL, &n_devices));
    if (n_devices < N_RANKS) {
        fprintf(stderr, "%u GPUs are too few for %d ranks\n", n_devices, N_RANKS);
        return 1;
    }
    for (uint32_t r = 0; r < N_RANKS; r++) {
        ranks[r] = (Rank){argc > 1 ? argv[1] : NULL, job, &meeting, r};
        if (pthread_create(&threads[r], NULL, run_rank, &ranks[r]) != 0)
            return 1;
    }
    for (uint32_t r = 0; r < N_RANKS; r++)
        pthread_join(threads[r], NULL);
    refit_job_free(job);
    printf("all weights are right\n");
    return 0;
}
