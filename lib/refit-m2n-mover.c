/*
 * Carries out the calls of the NCCL M2N interface on one communicator.
 *
 * The problem: callers hand in descriptors each time, in a loop over tensors or steps, and a rank
 * that is wrong must not leave the others hanging. Method: each run begins with one record of every
 * rank: what it was asked to do, by digest, whether that makes sense to it, and whether its memory
 * is where it was. All ranks read the same records and so decide alike: to refuse, to plan (shapes
 * are exchanged only then, and only where they differ), to prepare anew, or to run what is ready.
 * Plans are kept by what all ranks stated, the least recently used goes first. Cost in the steady
 * state: that record and the run itself.
 */

#include "lib/refit-m2n-private.h"

#include "gpu/executor/refit-host.h"

#include <string.h>

enum { MAX_PLANS = 64, TEXT = 256 };

struct _M2nMover {
    ncclComm_t comm; /* the caller's */
    guint rank, n_ranks, domain_size;
    int device;
    double timeout_s;
    M2nGather *gather;
    RefitGpuRank *gpu;
    GPtrArray *plans;        /* of M2nPlan, the last one used most recently */
    const M2nPlan *prepared; /* NULL: none */
    guint8 addresses[32];    /* digest of those that it is prepared with */
    guint64 *bound[REFIT_N_SIDES];
};

/* What a rank says before a run; all bytes are set. */
typedef struct {
    guint32 failed, n_calls;
    guint32 moved; /* its memory is not where the prepared run has it */
    guint32 reserved;
    guint8 calls[32], shapes[32]; /* digests */
    char text[TEXT];
} Record;

/* ---- set-up ---- */

static double read_timeout(void) {
    const char *text = g_getenv("REFIT_TIMEOUT_S");
    double timeout_s = text != NULL ? g_ascii_strtod(text, NULL) : 0;

    return timeout_s > 0 && timeout_s < 1e6 ? timeout_s : 300;
}

/* The largest number of ranks that, in turn, are on one host. Equal on all ranks, as `hosts` is. */
static guint common_domain(const guint64 *hosts, guint n_ranks) {
    for (guint size = n_ranks; size > 1; size--) {
        guint rank = 1;
        while (rank < n_ranks && (rank % size == 0 || hosts[rank] == hosts[rank - 1]))
            rank++;
        if (rank == n_ranks)
            return size;
    }
    return 1;
}

/* Domains, from hosts or from what rank 0 was told. */
static gboolean find_domains(M2nMover *self, GError **error) {
    const char *text = g_getenv("REFIT_DOMAIN_SIZE");
    guint64 stated = 0;
    RefitHost host;

    refit_host_find(NULL, &host);
    const guint64 mine[2] = {
        host.id,
        text != NULL && g_ascii_string_to_unsigned(text, 10, 0, G_MAXINT, &stated, NULL)
            ? MAX(stated, 1)
            : 0,
    };
    g_autofree guint64(*all)[2] = g_malloc0_n(self->n_ranks, sizeof mine);

    if (!m2n_gather(self->gather, mine, sizeof mine, all, self->timeout_s, error))
        return FALSE;
    g_autofree guint64 *hosts = g_new(guint64, self->n_ranks);
    for (guint r = 0; r < self->n_ranks; r++)
        hosts[r] = all[r][0];
    self->domain_size =
        all[0][1] > 0 ? (guint)MIN(all[0][1], self->n_ranks) : common_domain(hosts, self->n_ranks);
    return TRUE;
}

static gboolean gather_for_executor(gpointer user_data, gconstpointer mine, gsize bytes,
                                    gpointer all, guint8 *came, double timeout_s, GError **error) {
    const M2nMover *self = user_data;

    if (!m2n_gather(self->gather, mine, bytes, all, timeout_s, error))
        return FALSE;
    if (came != NULL)
        memset(came, 1, self->n_ranks);
    return TRUE;
}

static gboolean broadcast_for_executor(gpointer user_data, gpointer data, gsize bytes,
                                       double timeout_s, GError **error) {
    const M2nMover *self = user_data;
    g_autofree guint8 *all = g_malloc(self->n_ranks * bytes);

    if (!m2n_gather(self->gather, data, bytes, all, timeout_s, error))
        return FALSE;
    memcpy(data, all, bytes);
    return TRUE;
}

static gboolean open_executor(M2nMover *self, guint max_blocks, GError **error) {
    g_autofree guint *domains = g_new(guint, self->n_ranks);
    const RefitGpuConfig config = {
        .rank = self->rank,
        .n_ranks = self->n_ranks,
        .device = self->device,
        .domains = domains,
        .peers = {.gather = gather_for_executor,
                  .broadcast = broadcast_for_executor,
                  .user_data = self},
        .timeout_s = self->timeout_s,
        .untimed = TRUE,
        .kernel_blocks = max_blocks,
    };
    const RefitExecutorConfig executor = {.rank = &config}; /* cases differ from call to call */

    for (guint r = 0; r < self->n_ranks; r++)
        domains[r] = r / self->domain_size;
    self->gpu = refit_gpu.executor.open(&executor, error);
    return self->gpu != NULL;
}

static gboolean read_comm(M2nMover *self, GError **error) {
    int rank = 0, n_ranks = 0;

    if (!m2n_wait_comm(self->comm, m2n_deadline(self->timeout_s), "the communicator", error) ||
        !m2n_nccl(self->comm, ncclCommUserRank(self->comm, &rank), "ncclCommUserRank", error) ||
        !m2n_nccl(self->comm, ncclCommCount(self->comm, &n_ranks), "ncclCommCount", error) ||
        !m2n_nccl(self->comm, ncclCommCuDevice(self->comm, &self->device), "ncclCommCuDevice",
                  error) ||
        !m2n_cuda(cudaSetDevice(self->device), "cudaSetDevice", error))
        return FALSE;
    self->rank = (guint)rank;
    self->n_ranks = (guint)n_ranks;
    return TRUE;
}

static void free_plan(gpointer plan) {
    m2n_plan_free(plan);
}

M2nMover *m2n_mover_new(ncclComm_t comm, guint max_blocks, GError **error) {
    g_autoptr(M2nMover) self = g_new0(M2nMover, 1);

    self->comm = comm;
    self->timeout_s = read_timeout();
    self->plans = g_ptr_array_new_with_free_func(free_plan);
    if (!read_comm(self, error))
        return NULL;
    self->gather = m2n_gather_new(comm, self->rank, self->n_ranks, self->timeout_s, error);
    if (self->gather == NULL || !find_domains(self, error) ||
        !open_executor(self, max_blocks, error))
        return NULL;
    return g_steal_pointer(&self);
}

void m2n_mover_free(M2nMover *self) {
    if (self == NULL)
        return;
    if (self->gather != NULL)
        cudaSetDevice(self->device);
    refit_gpu.executor.close(self->gpu);
    m2n_gather_free(self->gather);
    g_ptr_array_unref(self->plans);
    g_free(self->bound[0]);
    g_free(self->bound[1]);
    g_free(self);
}

ncclComm_t m2n_mover_comm(const M2nMover *self) {
    return self->comm;
}

/* ---- agreement ---- */

static void fail_record(Record *record, const GError *error) {
    const char *end;

    record->failed =
        1 + (error->domain == REFIT_ERROR ? (guint32)error->code : REFIT_ERROR_BACKEND);
    g_strlcpy(record->text, error->message, sizeof record->text);
    if (!g_utf8_validate(record->text, -1, &end))
        record->text[end - record->text] = '\0';
}

/* Says `mine`, hears all; FALSE on all ranks when one has failed. */
static gboolean agree(M2nMover *self, const Record *mine, Record *all, GError **error) {
    if (!m2n_gather(self->gather, mine, sizeof *mine, all, self->timeout_s, error))
        return FALSE;
    for (guint r = 0; r < self->n_ranks; r++)
        if (all[r].failed != 0) {
            g_set_error(error, REFIT_ERROR, (gint)all[r].failed - 1, "rank %u: %.*s", r, TEXT,
                        all[r].text);
            return FALSE;
        }
    return TRUE;
}

static gboolean compare(const M2nMover *self, const Record *all, GError **error) {
    for (guint r = 1; r < self->n_ranks; r++)
        if (all[r].n_calls != all[0].n_calls ||
            memcmp(all[r].calls, all[0].calls, sizeof all[r].calls) != 0) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "ranks 0 and %u state different things in %u and %u calls; all ranks must "
                        "state the same dims, data types, meshes and placements in the same order",
                        r, all[0].n_calls, all[r].n_calls);
            return FALSE;
        }
    return TRUE;
}

/* ---- plans ---- */

static GBytes *key_of(const M2nMover *self, const Record *all) {
    GByteArray *key = g_byte_array_new();

    g_byte_array_append(key, all[0].calls, sizeof all[0].calls);
    for (guint r = 0; r < self->n_ranks; r++)
        g_byte_array_append(key, all[r].shapes, sizeof all[r].shapes);
    return g_byte_array_free_to_bytes(key);
}

static M2nPlan *find_plan(M2nMover *self, GBytes *key) {
    for (guint i = self->plans->len; i-- > 0;) {
        M2nPlan *plan = g_ptr_array_index(self->plans, i);
        if (g_bytes_equal(plan->key, key)) {
            g_ptr_array_add(self->plans, g_ptr_array_steal_index(self->plans, i));
            return plan;
        }
    }
    return NULL;
}

/* All ranks state the same shapes, as they do unless shards differ in size. */
static gboolean are_alike(const M2nMover *self, const Record *all) {
    for (guint r = 1; r < self->n_ranks; r++)
        if (memcmp(all[r].shapes, all[0].shapes, sizeof all[r].shapes) != 0)
            return FALSE;
    return TRUE;
}

/* Equal on all ranks, but for memory that runs out or a part that one rank alone finds wrong. */
static M2nPlan *make_plan(M2nMover *self, const M2nCall *calls, guint n, const Record *stated,
                          GBytes *key, GError **error) {
    const gsize size = (gsize)n * REFIT_N_SIDES * REFIT_MAX_DIMS * sizeof(guint64);
    const gboolean alike = are_alike(self, stated);
    g_autofree guint64 *mine = m2n_calls_shapes(calls, n);
    g_autofree guint64 *shapes = alike ? NULL : g_malloc0_n(self->n_ranks, size);
    g_autofree Record *all = g_new0(Record, self->n_ranks);
    g_autoptr(GError) own = NULL;
    g_autoptr(M2nPlan) plan = NULL;
    Record record = {0};
    RefitCase *refit_case;

    if (!alike && !m2n_gather(self->gather, mine, size, shapes, self->timeout_s, error))
        return NULL;
    refit_case = m2n_case_new(calls, n, alike ? mine : shapes, alike, self->n_ranks,
                              self->domain_size, &own);
    if (refit_case != NULL)
        plan = m2n_plan_new(refit_case, self->rank, key, &own);
    if (plan == NULL)
        fail_record(&record, own);
    if (!agree(self, &record, all, error))
        return NULL;
    if (self->plans->len == MAX_PLANS) /* not the prepared one, which was used last */
        g_ptr_array_remove_index(self->plans, 0);
    g_ptr_array_add(self->plans, plan);
    return g_steal_pointer(&plan);
}

static gboolean prepare(M2nMover *self, const M2nPlan *plan, const M2nCall *calls,
                        const guint8 *addresses, GError **error) {
    guint64 *bound[REFIT_N_SIDES];
    gboolean well;

    for (guint s = 0; s < REFIT_N_SIDES; s++)
        bound[s] = m2n_plan_addresses(plan, (RefitSide)s, calls);
    const RefitExecutorWork work = {.schedule = plan->schedule,
                                    .program = plan->part->program,
                                    .source = bound[REFIT_SIDE_SOURCE],
                                    .destination = bound[REFIT_SIDE_DESTINATION]};
    self->prepared = NULL;
    well = refit_gpu.executor.prepare(self->gpu, &work, error);
    for (guint s = 0; s < REFIT_N_SIDES; s++) {
        g_free(self->bound[s]);
        self->bound[s] = bound[s];
    }
    if (well)
        self->prepared = plan;
    memcpy(self->addresses, addresses, sizeof self->addresses);
    return well;
}

/* ---- runs ---- */

static gboolean is_default(cudaStream_t stream) {
    return stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

static gboolean run(M2nMover *self, cudaStream_t stream, GError **error) {
    /* The caller waits in any case, so it can as well wait for a default stream first. */
    if (is_default(stream) &&
        !m2n_wait_stream(stream, NULL, m2n_deadline(self->timeout_s), "the default stream", error))
        return FALSE;
    return refit_gpu.start(self->gpu, is_default(stream) ? NULL : stream, error) &&
           refit_gpu.wait(self->gpu, NULL, NULL, NULL, error);
}

gboolean m2n_mover_run(M2nMover *self, const M2nCall *calls, guint n, cudaStream_t stream,
                       GError **error) {
    g_autofree Record *all = g_new0(Record, self->n_ranks);
    g_autoptr(GError) own = NULL;
    g_autoptr(GBytes) key = NULL;
    Record mine = {.n_calls = n};
    guint8 addresses[32];
    gboolean moved = FALSE;
    M2nPlan *plan;

    for (guint i = 0; i < n && own == NULL; i++)
        if (!m2n_call_check(&calls[i], self->rank, self->n_ranks, &own))
            fail_record(&mine, own);
    m2n_calls_digest(calls, n, mine.calls);
    m2n_calls_digest_local(calls, n, mine.shapes, addresses);
    mine.moved = memcmp(addresses, self->addresses, sizeof addresses) != 0;
    if (!m2n_cuda(cudaSetDevice(self->device), "cudaSetDevice", error) ||
        !agree(self, &mine, all, error) || !compare(self, all, error))
        return FALSE;
    key = key_of(self, all);
    plan = find_plan(self, key);
    if (plan == NULL)
        plan = make_plan(self, calls, n, all, key, error);
    if (plan == NULL)
        return FALSE;
    for (guint r = 0; r < self->n_ranks; r++)
        moved |= all[r].moved != 0;
    if ((plan != self->prepared || moved) && !prepare(self, plan, calls, addresses, error))
        return FALSE;
    return run(self, stream, error);
}
