/*
 * Endpoints of the C API on the CPU stand-in, its executor loaded as a plugin: bytes arrive and are
 * counted as planned, versions count up, a rank may be idle or on both sides, layouts of frameworks
 * have their own parameters, ranks meet by a function of the caller or over TCP. Calls out of order
 * are refused, absent ranks and other plans named. Ranks are threads.
 */

#include "lib/refit.h"

#include <glib.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 8, MAX_RECORD = 4096, N_RUNS = 3, ROWS = 8, COLUMNS = 4, RANKS_PER_NODE = 4 };

/* ---- meeting ---- */

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    guint n_ranks, n_came, round;
    guint8 came[MAX_RANKS];
    char records[MAX_RANKS][MAX_RECORD];
} Meeting;

typedef struct {
    Meeting *meeting;
    guint rank, port, runs; /* port 0: by the function below */
    double timeout_s;
    RefitJob *job;
    const char *executor;
    gboolean misplaced; /* on this machine, as all others */
    void (*body)(RefitEndpoint *endpoint, guint rank);
    RefitStatus status;
    char message[1024]; /* of the call that failed */
} Member;

/* A round ends when all have come; who came for one that did not end has spoiled the meeting. */
static int gather(void *data, const void *mine, size_t bytes, void *all, uint8_t *came,
                  double timeout_s, char *message, size_t message_size) {
    const Member *self = data;
    Meeting *meeting = self->meeting;
    gint64 end_us = g_get_real_time() + (gint64)(timeout_s * G_USEC_PER_SEC);
    const struct timespec end = {end_us / G_USEC_PER_SEC, end_us % G_USEC_PER_SEC * 1000};

    if (bytes > MAX_RECORD) {
        g_strlcpy(message, "too many bytes", message_size);
        return 0;
    }
    pthread_mutex_lock(&meeting->lock);
    guint round = meeting->round;
    memcpy(meeting->records[self->rank], mine, bytes);
    meeting->came[self->rank] = 1;
    if (++meeting->n_came % meeting->n_ranks == 0) {
        meeting->round++;
        pthread_cond_broadcast(&meeting->changed);
    }
    while (meeting->round == round &&
           pthread_cond_timedwait(&meeting->changed, &meeting->lock, &end) == 0)
        continue;
    memcpy(came, meeting->came, meeting->n_ranks);
    for (guint r = 0; r < meeting->n_ranks; r++)
        memcpy((char *)all + r * bytes, meeting->records[r], bytes);
    if (meeting->round > round) { /* all have copied before the next round begins */
        if (++meeting->n_came % meeting->n_ranks == 0) {
            memset(meeting->came, 0, sizeof meeting->came);
            meeting->round++;
            pthread_cond_broadcast(&meeting->changed);
        }
        while (meeting->round == round + 1)
            pthread_cond_wait(&meeting->changed, &meeting->lock);
    }
    pthread_mutex_unlock(&meeting->lock);
    return 1;
}

/* A port that nothing listens on. */
static guint free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int file = socket(AF_INET, SOCK_STREAM, 0);

    g_assert_cmpint(file, >=, 0);
    g_assert_cmpint(bind(file, (struct sockaddr *)&address, size), ==, 0);
    g_assert_cmpint(getsockname(file, (struct sockaddr *)&address, &size), ==, 0);
    close(file);
    return ntohs(address.sin_port);
}

/* ---- ranks ---- */

static void keep(Member *self, RefitStatus status, const char *message) {
    self->status = status;
    g_strlcpy(self->message, message, sizeof self->message);
}

static void *run_member(void *data) {
    Member *self = data;
    RefitEndpointConfig config = REFIT_ENDPOINT_CONFIG_INIT;
    RefitEndpoint *endpoint;
    RefitStatus status;
    char host[16];

    config.rank = self->rank;
    config.device = (int)self->rank;
    if (self->port == 0) {
        config.gather = gather;
        config.gather_data = self;
    } else {
        config.address = "127.0.0.1";
        config.port = self->port;
        config.token = "a token of this test";
    }
    config.timeout_s = self->timeout_s;
    config.executor = self->executor;
    g_snprintf(host, sizeof host, "node%u", self->rank / RANKS_PER_NODE);
    if (!self->misplaced)
        config.host = host;
    status = refit_endpoint_open(self->job, &config, &endpoint);
    keep(self, status, refit_endpoint_message(endpoint));
    if (status == REFIT_OK) {
        self->body(endpoint, self->rank);
        keep(self, REFIT_OK, refit_endpoint_message(endpoint));
    }
    refit_endpoint_close(endpoint);
    return NULL;
}

/* Ranks say that they are on this machine, where all are, instead of on the nodes of the topology.
 */
static gboolean misplaced;

/* `other`: the job of rank 1; NULL: the same. `executor`: of rank 2; NULL: the same. */
static void run_ranks_apart(RefitJob *job, RefitJob *other, const char *executor, guint n_ranks,
                            guint port, double timeout_s,
                            void (*body)(RefitEndpoint *endpoint, guint rank), Member *members) {
    g_autofree Meeting *meeting = g_new0(Meeting, 1);
    pthread_t threads[MAX_RANKS];

    g_assert_cmpint(refit_job_probe(job, REFIT_TEST_EXECUTOR, NULL), ==, REFIT_OK);
    meeting->n_ranks = n_ranks;
    pthread_mutex_init(&meeting->lock, NULL);
    pthread_cond_init(&meeting->changed, NULL);
    for (guint r = 0; r < n_ranks; r++) {
        members[r] =
            (Member){.meeting = meeting,
                     .rank = r,
                     .port = port,
                     .timeout_s = timeout_s,
                     .job = r == 1 && other != NULL ? other : job,
                     .executor = r == 2 && executor != NULL ? executor : REFIT_TEST_EXECUTOR,
                     .misplaced = misplaced,
                     .body = body};
        g_assert_cmpint(pthread_create(&threads[r], NULL, run_member, &members[r]), ==, 0);
    }
    for (guint r = 0; r < n_ranks; r++)
        pthread_join(threads[r], NULL);
}

static void run_ranks(RefitJob *job, RefitJob *other, guint n_ranks, guint port, double timeout_s,
                      void (*body)(RefitEndpoint *endpoint, guint rank), Member *members) {
    run_ranks_apart(job, other, NULL, n_ranks, port, timeout_s, body, members);
}

static void run_well(RefitJob *job, guint n_ranks, guint port,
                     void (*body)(RefitEndpoint *endpoint, guint rank)) {
    Member members[MAX_RANKS];

    run_ranks(job, NULL, n_ranks, port, 30, body, members);
    for (guint r = 0; r < n_ranks; r++)
        g_assert_cmpstr(members[r].message, ==, "");
}

/* ---- a job ---- */

/* 8 x 4 F32: rows over ranks 0 and 1, columns over two of ranks 4 to 7, twice; 2 and 3 are idle.
 * With `shared`, rows over ranks 0 to 3 of one node to rows over 2 to 5, so that two are on both
 * sides. */
static RefitJob *new_job_on(const char *topology, gboolean shared, const char *strategy) {
    static const uint64_t shape[] = {ROWS, COLUMNS};
    const RefitAxisDesc two_rows = {.extent = 2, .kind = REFIT_AXIS_CHUNK, .dim = 0};
    const RefitAxisDesc four_rows = {.extent = 4, .kind = REFIT_AXIS_CHUNK, .dim = 0};
    const RefitAxisDesc columns[] = {{.extent = 2, .kind = REFIT_AXIS_REPLICATE},
                                     {.extent = 2, .kind = REFIT_AXIS_CHUNK, .dim = 1}};
    RefitTensorDesc tensor = REFIT_TENSOR_INIT;
    RefitMeshDesc source = REFIT_MESH_INIT, destination = REFIT_MESH_INIT;
    RefitJob *job = refit_job_new();

    tensor.name = "w";
    tensor.dtype = "F32";
    tensor.n_dims = 2;
    tensor.shape = shape;
    source.n_axes = 1;
    source.axes = shared ? &four_rows : &two_rows;
    destination.n_axes = shared ? 1 : 2;
    destination.axes = shared ? &four_rows : columns;
    destination.first_rank = shared ? 2 : 4;
    g_assert_cmpint(refit_job_set_topology(job, topology), ==, REFIT_OK);
    g_assert_cmpint(refit_job_add_tensor(job, &tensor, NULL), ==, REFIT_OK);
    g_assert_cmpint(refit_job_place(job, 0, REFIT_SOURCE, &source), ==, REFIT_OK);
    g_assert_cmpint(refit_job_place(job, 0, REFIT_DESTINATION, &destination), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(job, strategy), ==, REFIT_OK);
    return job;
}

static RefitJob *new_job(gboolean shared, const char *strategy) {
    return new_job_on("node:2 gpu:4 nvlink:450GBps nic:50GBps", shared, strategy);
}

/* What element (row, column) holds after so many runs. */
static guint32 value_at(guint64 row, guint64 column, guint run) {
    return (guint32)(1 + row * COLUMNS + column) * 2654435761u + run;
}

/* Where a rank's shard of new_job() begins. */
static void find_shard(gboolean shared, RefitEnd side, guint rank, guint64 *row, guint64 *column) {
    guint position = side == REFIT_SOURCE ? rank : rank - (shared ? 2 : 4);

    *row = shared ? position * ROWS / 4 : side == REFIT_SOURCE ? position * ROWS / 2 : 0;
    *column = shared || side == REFIT_SOURCE ? 0 : position % 2 * COLUMNS / 2;
}

static guint32 *expected(const RefitParameterInfo *info, guint64 row, guint64 column, guint run) {
    guint32 *values = g_new(guint32, info->shape[0] * info->shape[1]);

    for (guint64 r = 0; r < info->shape[0]; r++)
        for (guint64 c = 0; c < info->shape[1]; c++)
            values[r * info->shape[1] + c] = value_at(row + r, column + c, run);
    return values;
}

#define WELL(call) check_well(endpoint, (call), #call)
static void check_well(RefitEndpoint *endpoint, RefitStatus status, const char *call) {
    if (status != REFIT_OK)
        g_error("%s: %s", call, refit_endpoint_message(endpoint));
}

/* Memory for the only parameter of a side, bound; NULL when there is none. */
static void *bind_side(RefitEndpoint *endpoint, RefitEnd side, RefitParameterInfo *info) {
    void *address;

    if (refit_endpoint_n_parameters(endpoint, side) == 0)
        return NULL;
    g_assert_cmpuint(refit_endpoint_n_parameters(endpoint, side), ==, 1);
    WELL(refit_endpoint_parameter(endpoint, side, 0, info));
    g_assert_cmpstr(info->name, ==, "w");
    g_assert_cmpstr(info->dtype, ==, "F32");
    g_assert_cmpuint(info->n_dims, ==, 2);
    g_assert_cmpuint(info->bytes, ==, 4 * info->shape[0] * info->shape[1]);
    WELL(refit_endpoint_alloc(endpoint, info->bytes, &address));
    WELL(refit_endpoint_bind(endpoint, side, 0, address));
    return address;
}

static RefitJob *planned; /* the job in work: read by all ranks */
static gboolean is_shared;

static void check_metrics(const RefitMetrics *metrics, const RefitRankFacts *facts) {
    g_assert_cmpuint(metrics->network_in, ==, facts->network_in);
    g_assert_cmpuint(metrics->network_out, ==, facts->network_out);
    g_assert_cmpuint(metrics->nvlink_in, ==, facts->nvlink_in);
    g_assert_cmpuint(metrics->nvlink_out, ==, facts->nvlink_out);
    g_assert_cmpuint(metrics->local_bytes, ==, facts->local_bytes);
    g_assert_cmpfloat(metrics->agreed_s, >, 0);
}

static void move_weights(RefitEndpoint *endpoint, guint rank) {
    RefitParameterInfo infos[2] = {REFIT_PARAMETER_INFO_INIT, REFIT_PARAMETER_INFO_INIT};
    RefitRankFacts facts = REFIT_RANK_FACTS_INIT;
    RefitMetrics metrics = REFIT_METRICS_INIT;
    void *source = bind_side(endpoint, REFIT_SOURCE, &infos[0]);
    void *destination = bind_side(endpoint, REFIT_DESTINATION, &infos[1]);
    guint64 row, column;

    g_assert_cmpint(refit_job_rank_facts(planned, rank, &facts), ==, REFIT_OK);
    WELL(refit_endpoint_prepare(endpoint));
    for (guint run = 1; run <= N_RUNS; run++) {
        if (source != NULL) {
            find_shard(is_shared, REFIT_SOURCE, rank, &row, &column);
            g_autofree guint32 *values = expected(&infos[0], row, column, run);
            WELL(refit_endpoint_upload(endpoint, source, values, infos[0].bytes));
        }
        g_assert_cmpuint(refit_endpoint_version(endpoint), ==, run - 1);
        WELL(refit_endpoint_follow(endpoint, NULL));
        WELL(refit_endpoint_start(endpoint, NULL));
        g_assert_cmpint(refit_endpoint_start(endpoint, NULL), ==, REFIT_STATUS_INVALID);
        g_assert_cmpint(refit_endpoint_prepare(endpoint), ==, REFIT_STATUS_INVALID);
        if (destination != NULL)
            g_assert_cmpint(refit_endpoint_serves(endpoint), ==, REFIT_VERSION_NONE);
        WELL(refit_endpoint_wait(endpoint, run == 1 ? NULL : &metrics));
        if (destination != NULL) {
            g_autofree guint32 *found = g_malloc(infos[1].bytes);
            find_shard(is_shared, REFIT_DESTINATION, rank, &row, &column);
            g_autofree guint32 *values = expected(&infos[1], row, column, run);
            WELL(refit_endpoint_download(endpoint, found, destination, infos[1].bytes));
            g_assert_cmpint(memcmp(found, values, infos[1].bytes), ==, 0);
            g_assert_cmpint(refit_endpoint_serves(endpoint), ==, REFIT_VERSION_NEW);
        }
    }
    g_assert_cmpuint(metrics.version, ==, N_RUNS);
    g_assert_cmpuint(refit_endpoint_version(endpoint), ==, N_RUNS);
    check_metrics(&metrics, &facts);
    refit_endpoint_free(endpoint, source);
    refit_endpoint_free(endpoint, destination);
    /* Messages of the calls that were refused are still there; they are no failure of the rank. */
    g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "a run is in progress"));
}

static void check_moves(gboolean shared, guint port) {
    Member members[MAX_RANKS];

    is_shared = shared;
    planned = new_job(shared, NULL);
    run_ranks(planned, NULL, 8, port, 30, move_weights, members);
    for (guint r = 0; r < 8; r++)
        g_assert_cmpint(members[r].status, ==, REFIT_OK);
    refit_job_free(planned);
}

static void test_moves(void) {
    check_moves(FALSE, 0);
}

static void test_both_sides(void) {
    check_moves(TRUE, 0);
}

static void test_tcp(void) {
    check_moves(FALSE, free_port());
}

/* ---- layouts of frameworks ---- */

static void move_parameters(RefitEndpoint *endpoint, guint rank) {
    RefitRankFacts facts = REFIT_RANK_FACTS_INIT;
    RefitMetrics metrics = REFIT_METRICS_INIT;
    g_autoptr(GPtrArray) addresses = g_ptr_array_new();

    g_assert_cmpint(refit_job_rank_facts(planned, rank, &facts), ==, REFIT_OK);
    for (int side = REFIT_SOURCE; side <= REFIT_DESTINATION; side++)
        for (guint i = 0; i < refit_endpoint_n_parameters(endpoint, (RefitEnd)side); i++) {
            RefitParameterInfo info = REFIT_PARAMETER_INFO_INIT;
            void *address;
            WELL(refit_endpoint_parameter(endpoint, (RefitEnd)side, i, &info));
            WELL(refit_endpoint_alloc(endpoint, info.bytes, &address));
            g_ptr_array_add(addresses, address);
            WELL(refit_endpoint_bind(endpoint, (RefitEnd)side, i, address));
        }
    WELL(refit_endpoint_prepare(endpoint));
    WELL(refit_endpoint_follow(endpoint, NULL));
    WELL(refit_endpoint_run(endpoint, NULL, &metrics));
    check_metrics(&metrics, &facts);
    for (guint i = 0; i < addresses->len; i++)
        refit_endpoint_free(endpoint, g_ptr_array_index(addresses, i));
}

static void test_case_file(void) {
    RefitJobFacts facts = REFIT_JOB_FACTS_INIT;

    planned = refit_job_new();
    g_assert_cmpint(refit_job_set_data_dir(planned, REFIT_SOURCE_DATA_DIR), ==, REFIT_OK);
    g_assert_cmpint(refit_job_load_case(planned, "tiny", NULL), ==, REFIT_OK);
    g_assert_cmpint(refit_job_plan(planned, NULL), ==, REFIT_OK);
    g_assert_cmpint(refit_job_facts(planned, &facts), ==, REFIT_OK);
    g_assert_cmpuint(facts.n_ranks, <=, MAX_RANKS);
    run_well(planned, facts.n_ranks, 0, move_parameters);
    refit_job_free(planned);
}

/* ---- mistakes ---- */

static void use_out_of_order(RefitEndpoint *endpoint, guint rank) {
    RefitParameterInfo info = REFIT_PARAMETER_INFO_INIT;
    RefitMetrics metrics = REFIT_METRICS_INIT;
    void *source, *destination;

    g_assert_cmpint(refit_endpoint_start(endpoint, NULL), ==, REFIT_STATUS_INVALID);
    g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "prepare"));
    g_assert_cmpint(refit_endpoint_wait(endpoint, NULL), ==, REFIT_STATUS_INVALID);
    g_assert_cmpint(refit_endpoint_bind(endpoint, REFIT_SOURCE, 1, NULL), ==, REFIT_STATUS_INVALID);
    info.size = 1;
    if (refit_endpoint_n_parameters(endpoint, REFIT_DESTINATION) > 0) {
        g_assert_cmpint(refit_endpoint_prepare(endpoint), ==, REFIT_STATUS_INVALID);
        g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "destination parameter 0, w"));
        g_assert_cmpint(refit_endpoint_parameter(endpoint, REFIT_DESTINATION, 0, &info), ==,
                        REFIT_STATUS_INVALID);
    }
    info.size = sizeof info;
    source = bind_side(endpoint, REFIT_SOURCE, &info);
    destination = bind_side(endpoint, REFIT_DESTINATION, &info);
    WELL(refit_endpoint_prepare(endpoint));
    if (destination != NULL) {
        g_assert_cmpint(refit_endpoint_start(endpoint, NULL), ==, REFIT_STATUS_INVALID);
        g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "state the stream"));
    }
    WELL(refit_endpoint_follow(endpoint, NULL));
    WELL(refit_endpoint_start(endpoint, NULL));
    g_assert_cmpint(refit_endpoint_follow(endpoint, NULL), ==, REFIT_STATUS_INVALID);
    metrics.size = 8; /* refused before anything is waited for */
    g_assert_cmpint(refit_endpoint_wait(endpoint, &metrics), ==, REFIT_STATUS_INVALID);
    WELL(refit_endpoint_wait(endpoint, NULL));
    refit_endpoint_free(endpoint, source);
    refit_endpoint_free(endpoint, destination);
    (void)rank;
}

static void test_out_of_order(void) {
    Member members[MAX_RANKS];
    RefitJob *job = new_job(FALSE, NULL);

    run_ranks(job, NULL, 8, 0, 30, use_out_of_order, members);
    for (guint r = 0; r < 8; r++)
        g_assert_cmpint(members[r].status, ==, REFIT_OK);
    refit_job_free(job);
}

static void stay_away(RefitEndpoint *endpoint, guint rank) {
    RefitParameterInfo info = REFIT_PARAMETER_INFO_INIT;
    void *source = bind_side(endpoint, REFIT_SOURCE, &info);
    void *destination = bind_side(endpoint, REFIT_DESTINATION, &info);

    WELL(refit_endpoint_prepare(endpoint));
    WELL(refit_endpoint_follow(endpoint, NULL));
    WELL(refit_endpoint_run(endpoint, NULL, NULL));
    if (rank != 5) {
        {
            WELL(refit_endpoint_follow(endpoint, NULL));
            g_assert_cmpint(refit_endpoint_run(endpoint, NULL, NULL), ==, REFIT_STATUS_BACKEND);
        }
        g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "rank 5"));
        g_assert_cmpuint(refit_endpoint_version(endpoint), ==, 1);
    }
    refit_endpoint_free(endpoint, source);
    refit_endpoint_free(endpoint, destination);
}

static void test_absent(void) {
    Member members[MAX_RANKS];
    RefitJob *job = new_job(FALSE, NULL);

    run_ranks(job, NULL, 8, 0, 1, stay_away, members);
    refit_job_free(job);
}

static void bring_other_plan(RefitEndpoint *endpoint, guint rank) {
    RefitParameterInfo info = REFIT_PARAMETER_INFO_INIT;
    void *source = bind_side(endpoint, REFIT_SOURCE, &info);
    void *destination = bind_side(endpoint, REFIT_DESTINATION, &info);

    g_assert_cmpint(refit_endpoint_prepare(endpoint), ==, REFIT_STATUS_COVERAGE);
    g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "ranks 0 (node0) and 1 (node0)"));
    refit_endpoint_free(endpoint, source);
    refit_endpoint_free(endpoint, destination);
    (void)rank;
}

static void test_other_plan(void) {
    Member members[MAX_RANKS];
    RefitJob *job = new_job(FALSE, NULL), *other = new_job(FALSE, "direct");

    run_ranks(job, other, 8, 0, 30, bring_other_plan, members);
    refit_job_free(job);
    refit_job_free(other);
}

static void be_missed(RefitEndpoint *endpoint, guint rank) {
    (void)endpoint;
    g_error("rank %u is open", rank);
}

/* No rank waits for one that cannot come, however they meet. */
static void test_no_executor(void) {
    const guint ports[] = {0, free_port()};
    Member members[MAX_RANKS];
    RefitJob *job = new_job(FALSE, NULL);

    for (guint i = 0; i < G_N_ELEMENTS(ports); i++) {
        run_ranks_apart(job, NULL, "/no/such/executor.so", 8, ports[i], 100, be_missed, members);
        for (guint r = 0; r < 8; r++) {
            g_assert_cmpint(members[r].status, ==, REFIT_STATUS_NOT_SUPPORTED);
            /* Hosts are known to ranks that have met over TCP. */
            g_assert_true(g_str_has_prefix(
                members[r].message, ports[i] == 0 ? "rank 2: /no/such/executor.so: "
                                                  : "rank 2 (node0): /no/such/executor.so: "));
        }
    }
    refit_job_free(job);
}

static void note_nothing(RefitEndpoint *endpoint, guint rank) {
    (void)rank;
    g_assert_null(refit_endpoint_place_note(endpoint));
}

static void note_unknown(RefitEndpoint *endpoint, guint rank) {
    const char *note = refit_endpoint_place_note(endpoint);

    g_assert_true((note != NULL) == (rank == 0));
    g_assert_true(note == NULL ||
                  g_str_has_prefix(note, "NVLink domain 0 spans hosts node0 and node1; "));
}

/* Where the management library of the driver is not, nobody knows which hosts NVLink joins. */
static void test_place_note(void) {
    RefitJob *job = new_job(FALSE, NULL);

    run_well(job, 8, 0, note_nothing);
    refit_job_free(job);
    job = new_job_on("node:2 gpu:4 domain:2 nvlink:450GBps nic:50GBps", FALSE, NULL);
    run_well(job, 8, 0, note_unknown);
    refit_job_free(job);
}

/* Eight GPUs of one host that are declared as two nodes, however ranks meet. */
static void test_misplaced(void) {
    const guint ports[] = {0, free_port()};
    Member members[MAX_RANKS];
    RefitJob *job = new_job(FALSE, NULL);

    misplaced = TRUE;
    for (guint i = 0; i < G_N_ELEMENTS(ports); i++) {
        run_ranks(job, NULL, 8, ports[i], 30, be_missed, members);
        for (guint r = 0; r < 8; r++) {
            g_assert_cmpint(members[r].status, ==, REFIT_STATUS_INVALID);
            g_assert_true(g_str_has_prefix(
                members[r].message, "ranks 0 and 4 are declared as GPUs of nodes 0 and 1, but are "
                                    "both on host "));
            g_assert_nonnull(strstr(members[r].message, "(node:1 gpu:8)"));
        }
    }
    misplaced = FALSE;
    refit_job_free(job);
}

static void abort_run(RefitEndpoint *endpoint, guint rank) {
    RefitParameterInfo info = REFIT_PARAMETER_INFO_INIT;
    void *source = bind_side(endpoint, REFIT_SOURCE, &info);
    void *destination = bind_side(endpoint, REFIT_DESTINATION, &info);
    RefitStatus status;

    WELL(refit_endpoint_prepare(endpoint));
    if (rank == 4)
        refit_endpoint_abort(endpoint);
    WELL(refit_endpoint_follow(endpoint, NULL));
    status = refit_endpoint_run(endpoint, NULL, NULL);
    g_assert_cmpint(status, ==, REFIT_STATUS_BACKEND);
    g_assert_nonnull(strstr(refit_endpoint_message(endpoint), "abort"));
    g_assert_cmpuint(refit_endpoint_version(endpoint), ==, 0);
    refit_endpoint_free(endpoint, source);
    refit_endpoint_free(endpoint, destination);
}

static void test_abort(void) {
    Member members[MAX_RANKS];
    RefitJob *job = new_job(FALSE, NULL);

    run_ranks(job, NULL, 8, 0, 1, abort_run, members);
    refit_job_free(job);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/api-run/weights-arrive-and-are-counted", test_moves);
    g_test_add_func("/api-run/a-rank-may-be-on-both-sides", test_both_sides);
    g_test_add_func("/api-run/ranks-meet-over-tcp", test_tcp);
    g_test_add_func("/api-run/layouts-of-frameworks-have-their-parameters", test_case_file);
    g_test_add_func("/api-run/calls-out-of-order-are-refused", test_out_of_order);
    g_test_add_func("/api-run/a-rank-that-stays-away-is-named", test_absent);
    g_test_add_func("/api-run/a-rank-with-another-plan-is-named", test_other_plan);
    g_test_add_func("/api-run/a-rank-without-an-executor-is-named", test_no_executor);
    g_test_add_func("/api-run/what-is-not-known-of-nvlink-is-noted", test_place_note);
    g_test_add_func("/api-run/ranks-that-are-not-where-they-are-declared-are-named",
                    test_misplaced);
    g_test_add_func("/api-run/an-abort-ends-the-run-on-all-ranks", test_abort);
    return g_test_run();
}
