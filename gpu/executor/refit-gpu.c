/*
 * The table of the plugin: is there a GPU, opening and closing a rank, preparing a program. Opening
 * finds each rank's place in its NVLink domain; preparing compares what must be the same on all
 * ranks, the plan by its digest, the schedule by a hash and the sizes of messages by sums of hashes
 * over both of their ends, before the first byte moves. Cost: two agreements, the communicators,
 * and what refit-gpu-prepare.c says.
 */

#include "gpu/executor/refit-gpu-private.h"

#include <limits.h>
#include <string.h>

#define EVENT_RESOLUTION_S 0.5e-6 /* of cudaEventElapsedTime() */

gboolean refit_gpu_cuda(cudaError_t result, const char *call, GError **error) {
    const char *end = strchr(call, '(');

    if (result == cudaSuccess)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%.*s: %s (%s)",
                (int)(end != NULL ? end - call : (ptrdiff_t)strlen(call)), call,
                cudaGetErrorString(result), cudaGetErrorName(result));
    return FALSE;
}

gboolean refit_gpu_begin(RefitGpuRank *self, GError **error) {
    self->deadline_us = g_get_monotonic_time() + (gint64)(self->timeout_s * G_USEC_PER_SEC);
    self->waiting = self->informed = FALSE;
    if (self->broken)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "rank %u has failed before; close it and open it anew", self->rank);
    return !self->broken;
}

gboolean refit_gpu_is_late(const RefitGpuRank *self) {
    return g_get_monotonic_time() > self->deadline_us;
}

gboolean refit_gpu_enter(const RefitGpuRank *self, GError **error) {
    return REFIT_GPU_CUDA(cudaSetDevice(self->device), error);
}

gboolean refit_gpu_upload(void *to, gconstpointer from, guint64 bytes, GError **error) {
    return REFIT_GPU_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), error) &&
           REFIT_GPU_CUDA(cudaDeviceSynchronize(), error);
}

/* ---- probe ---- */

/* A driver that is missing and one that is too old give the same error; its version tells. */
static gboolean fail_probe(cudaError_t result, GError **error) {
    int driver = 0, runtime = 0;

    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (result == cudaErrorInsufficientDriver && driver == 0)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED,
                    "no NVIDIA driver here: libcuda.so.1 was not found");
    else if (result == cudaErrorInsufficientDriver)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED,
                    "the NVIDIA driver is too old: it supports CUDA %d.%d, and this build needs "
                    "%d.%d",
                    driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (result == cudaErrorNoDevice)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED,
                    "no GPU here that CUDA can use: check nvidia-smi and CUDA_VISIBLE_DEVICES");
    else
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED, "CUDA does not start: %s",
                    cudaGetErrorString(result));
    return FALSE;
}

static cudaError_t count_devices(int *n_out) {
    cudaError_t result = cudaGetDeviceCount(n_out);

    return result == cudaSuccess && *n_out == 0 ? cudaErrorNoDevice : result;
}

static gboolean probe(GError **error) {
    int n = 0;
    cudaError_t result = count_devices(&n);

    if (result != cudaSuccess)
        return fail_probe(result, error);
    return TRUE;
}

static guint n_devices(void) {
    int n = 0;

    return count_devices(&n) == cudaSuccess ? (guint)n : 0;
}

/* ---- open and close ---- */

static gboolean check_config(const RefitGpuConfig *config, GError **error) {
    const char *wrong = NULL;

    if (config == NULL) {
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                            "which rank this is has not been stated");
        return FALSE;
    }
    if (config->n_ranks == 0 || config->n_ranks > INT_MAX || config->rank >= config->n_ranks)
        wrong = "a rank must be below the number of ranks";
    else if (config->domains == NULL || config->peers.gather == NULL ||
             config->peers.broadcast == NULL)
        wrong = "the domains of all ranks and functions that gather and broadcast are needed";
    else if (!(config->timeout_s > 0 && config->timeout_s < 1e6))
        wrong = "the time-out must be above 0 and below 1e6 s";
    for (guint r = 0; wrong == NULL && r < config->n_ranks; r++)
        if (config->domains[r] > INT_MAX)
            wrong = "the number of an NVLink domain is too large";
    if (wrong != NULL)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "rank %u of %u: %s", config->rank,
                    config->n_ranks, wrong);
    return wrong == NULL;
}

static void number_in_domains(RefitGpuRank *self) {
    g_autoptr(GHashTable) counts = g_hash_table_new(NULL, NULL);

    for (guint r = 0; r < self->n_ranks; r++) {
        gpointer domain = GUINT_TO_POINTER(self->domains[r]);
        guint n = GPOINTER_TO_UINT(g_hash_table_lookup(counts, domain));

        self->domain_ranks[r] = n;
        g_hash_table_insert(counts, domain, GUINT_TO_POINTER(n + 1));
    }
}

static guint64 hash_declared(const RefitGpuRank *self) {
    guint64 hash = self->n_ranks;

    for (guint r = 0; r < self->n_ranks; r++) {
        guint64 both = (guint64)self->domains[r] << 32 | (self->nodes != NULL ? self->nodes[r] : 0);
        hash = (hash ^ both) * G_GUINT64_CONSTANT(0x100000001b3) + 1;
    }
    return hash;
}

static gboolean enter_first(RefitGpuRank *self, const char *gpu, ncclUniqueId *id, GError **error) {
    if (!refit_gpu_enter(self, error) ||
        !refit_gpu_place_device(self->device, gpu, &self->place, error) ||
        !REFIT_GPU_CUDA(cudaDeviceGetStreamPriorityRange(&self->low_priority, &self->high_priority),
                        error))
        return FALSE;
    if (self->rank == 0 && ncclGetUniqueId(id) != ncclSuccess) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "ncclGetUniqueId: %s",
                    ncclGetLastError(NULL));
        return FALSE;
    }
    return TRUE;
}

/* On rank 0: what ranks have declared, and whether they are there. */
static gboolean check_places(const RefitGpuRank *self, const RefitGpuRecord *all, GError **error) {
    for (guint r = 1; r < self->n_ranks; r++)
        if (all[r].same != all[0].same) {
            g_autofree char *names = refit_gpu_name_ranks(self, (const guint[]){0, r}, 2);
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "%s state different numbers of ranks, nodes or NVLink domains", names);
            return FALSE;
        }
    return refit_gpu_places_check(self, &((RefitGpuRank *)self)->place_note, error);
}

/* Set-up has no order in which ranks come: those that wait say what they wait for. */
static gboolean agree_on_comms(RefitGpuRank *self, RefitGpuPhase phase, GError *failure,
                               GError **error) {
    RefitGpuRecord mine;

    refit_gpu_record_init(&mine, phase);
    if (failure != NULL) {
        mine.stuck = self->waiting ? 1 : 0;
        if (mine.stuck != 0 && phase == REFIT_GPU_PHASE_PREPARE)
            refit_gpu_connect_describe(self, &mine);
        refit_gpu_comms_abort(self);
    }
    if (refit_gpu_agree(self, &mine, failure, NULL, error))
        return TRUE;
    refit_gpu_comms_abort(self);
    return FALSE;
}

static gboolean join(RefitGpuRank *self, const char *gpu, GError **error) {
    GError *failure = NULL;
    RefitGpuRecord mine;
    ncclUniqueId id = {{0}};

    if (!refit_gpu_begin(self, error))
        return FALSE;
    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_OPEN);
    mine.same = hash_declared(self);
    if (!enter_first(self, gpu, &id, &failure))
        g_assert(failure != NULL);
    if (!refit_gpu_agree(self, &mine, failure, check_places, error) ||
        !refit_gpu_spread(self, &id, sizeof id, error) || !refit_gpu_begin(self, error))
        return FALSE;
    if (!refit_gpu_comms_open(self, &id, &failure))
        g_assert(failure != NULL);
    return agree_on_comms(self, REFIT_GPU_PHASE_OPEN, failure, error);
}

/* Where the device, or a call of NCCL, does not end its work, to give back what it may use would be
 * to wait for ever. */
static void drop_work(RefitGpuRank *self) {
    if (self->work != NULL && self->hung) {
        self->work->staging = self->work->greetings = 0;
        self->work->table = NULL;
        self->work->main = NULL;
    }
    g_clear_pointer(&self->work, refit_gpu_work_free);
}

static void close_rank(gpointer rank) {
    RefitGpuRank *self = rank;

    if (self == NULL)
        return;
    if (self->world != NULL || self->work != NULL)
        cudaSetDevice(self->device);
    if (self->running) /* its groups would be waited for */
        refit_gpu_comms_abort(self);
    refit_gpu_comms_close(self);
    drop_work(self);
    refit_gpu_forget_followed(self);
    refit_version_free(self->version);
    g_mutex_clear(&self->lock);
    g_free(self->domains);
    g_free(self->domain_ranks);
    g_array_unref(self->followed);
    g_free(self->nodes);
    g_free(self->places);
    g_free(self->place_note);
    g_free(self);
}

static gpointer open_rank(const RefitExecutorConfig *executor, GError **error) {
    const RefitGpuConfig *config = executor->rank;
    RefitGpuRank *self;

    if (!check_config(config, error))
        return NULL;
    self = g_new0(RefitGpuRank, 1);
    self->rank = config->rank;
    self->n_ranks = config->n_ranks;
    self->device = config->device;
    self->domains = g_memdup2(config->domains, config->n_ranks * sizeof *config->domains);
    self->domain_ranks = g_new0(guint, config->n_ranks);
    if (config->nodes != NULL)
        self->nodes = g_memdup2(config->nodes, config->n_ranks * sizeof *config->nodes);
    refit_gpu_place_host(config->host, &self->place);
    self->introduces = TRUE;
    if (config->rank == 0)
        self->places = g_new0(RefitGpuPlace, config->n_ranks);
    self->peers = config->peers;
    self->timeout_s = config->timeout_s;
    self->untimed = config->untimed;
    self->kernel_blocks = config->kernel_blocks;
    self->followed = g_array_new(FALSE, FALSE, sizeof(cudaEvent_t));
    g_mutex_init(&self->lock);
    number_in_domains(self);
    if (join(self, config->gpu, error))
        return self;
    refit_gpu_comms_abort(self);
    close_rank(self);
    return NULL;
}

/* ---- prepare ---- */

static gboolean check_program(const RefitGpuRank *self, const RefitExecutorWork *what,
                              GError **error) {
    const RefitProgram *program = what->program;

    if (program == NULL || program->schedule != what->schedule) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "rank %u got %s", self->rank,
                    program == NULL ? "no program" : "the program of another schedule");
        return FALSE;
    }
    for (guint s = 0; s < program->n_steps; s++) {
        const RefitProgramStep *step = &program->steps[s];
        for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
            guint peer = program->exchanges[e].peer;
            if (peer >= self->n_ranks || (step->link == REFIT_LINK_NVLINK &&
                                          self->domains[peer] != self->domains[self->rank])) {
                g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "step %u: rank %u is not %s",
                            step->number, peer,
                            peer >= self->n_ranks ? "among the open ranks"
                                                  : "in the NVLink domain of this rank");
                return FALSE;
            }
        }
    }
    if (program->rank != self->rank) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "rank %u got the program of rank %u",
                    self->rank, program->rank);
        return FALSE;
    }
    return TRUE;
}

static gboolean make_ready(RefitGpuRank *self, const RefitExecutorWork *what, GError **error) {
    guint64 landings = 0;

    if (!refit_gpu_enter(self, error))
        return FALSE;
    g_clear_pointer(&self->work, refit_gpu_work_free);
    if (!check_program(self, what, error))
        return FALSE;
    self->work = refit_gpu_work_new(self, what, error);
    if (self->work == NULL || !refit_gpu_connect_check(self, error))
        return FALSE;
    for (guint t = 0; t < self->work->n_turns; t++)
        if (self->work->turns[t].writes)
            landings = 2; /* the first write and the agreement of all ranks */
    g_mutex_lock(&self->lock);
    refit_version_free(self->version);
    self->version = refit_version_new(1, &landings);
    self->writing = FALSE;
    g_mutex_unlock(&self->lock);
    return TRUE;
}

static gboolean compare_plans(const RefitGpuRank *self, const RefitGpuRecord *all, GError **error) {
    guint64 sent = 0, received = 0;

    for (guint r = 0; r < self->n_ranks; r++) {
        g_autofree char *names = refit_gpu_name_ranks(self, (const guint[]){0, r}, 2);
        if (all[r].same != all[0].same) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                        "%s have different plans: digests %016" G_GINT64_MODIFIER
                        "x and %016" G_GINT64_MODIFIER "x; plan the same case with the same "
                        "version of refit everywhere",
                        names, all[0].same, all[r].same);
            return FALSE;
        }
        if (all[r].schedule != all[0].schedule) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                        "%s have different schedules of the same plan; use the same version of "
                        "refit everywhere",
                        names);
            return FALSE;
        }
        sent += all[r].sent;
        received += all[r].received;
    }
    if (sent != received) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_WIRE_SIZE,
                    "what ranks would send is not what others would receive; make the programs of "
                    "all ranks from one plan");
        return FALSE;
    }
    return TRUE;
}

/* Communicators that this plan wants and no plan before it did, of which all ranks have the same;
 * and the connections of all that it uses. Each has its own time. */
static gboolean make_comms(RefitGpuRank *self, GError **error) {
    GError *failure = NULL;

    if (!refit_gpu_begin(self, error))
        return FALSE;
    if (!refit_gpu_comms_extend(self, &failure) || !refit_gpu_begin(self, &failure) ||
        !refit_gpu_connect(self, &failure))
        g_assert(failure != NULL);
    return agree_on_comms(self, REFIT_GPU_PHASE_PREPARE, failure, error);
}

static gboolean prepare(gpointer rank, const RefitExecutorWork *what, GError **error) {
    RefitGpuRank *self = rank;
    GError *failure = NULL;
    RefitGpuRecord mine;

    if (self->running) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "rank %u: a run is in progress; wait for it", self->rank);
        return FALSE;
    }
    if (!refit_gpu_begin(self, error))
        return FALSE;
    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_PREPARE);
    if (make_ready(self, what, &failure)) {
        mine.same = refit_gpu_digest_head(what->program->plan->digest);
        mine.schedule = refit_gpu_schedule_hash(what->schedule);
        mine.sent = self->work->sent;
        mine.received = self->work->received;
    }
    if (refit_gpu_agree(self, &mine, failure, compare_plans, error) && make_comms(self, error))
        return TRUE;
    drop_work(self);
    return FALSE;
}

/* ---- run ---- */

static gboolean run(gpointer self, RefitEventFunc func, gpointer user_data,
                    RefitRunResult *result_out, GError **error) {
    RefitGpuResult result;

    if (!refit_gpu_start(self, NULL, error) ||
        !refit_gpu_wait(self, func, user_data, &result, error))
        return FALSE;
    if (result_out != NULL)
        *result_out = (RefitRunResult){.duration_s = result.duration_s,
                                       .n_items = ((RefitGpuRank *)self)->work->n_turns,
                                       .time_resolution_s = EVENT_RESOLUTION_S};
    return TRUE;
}

static void abort_run(RefitGpuRank *self) {
    g_atomic_int_set(&self->aborted, 1);
}

static RefitServes serves(RefitGpuRank *self) {
    RefitServes serves = REFIT_SERVES_OLD;

    g_mutex_lock(&self->lock);
    if (self->version != NULL)
        serves = refit_version_of_rank(self->version, 0);
    g_mutex_unlock(&self->lock);
    return serves;
}

static const char *place_note(RefitGpuRank *self) {
    return self->place_note;
}

static guint64 version(RefitGpuRank *self) {
    g_mutex_lock(&self->lock);
    guint64 number = self->number;
    g_mutex_unlock(&self->lock);
    return number;
}

/* ---- memory ---- */

static guint64 memory_alloc(RefitGpuRank *self, guint64 bytes, GError **error) {
    void *address = NULL;

    if (!refit_gpu_enter(self, error) ||
        !REFIT_GPU_CUDA(cudaMalloc(&address, MAX(bytes, 1)), error)) {
        g_prefix_error(error, "%" G_GUINT64_FORMAT " bytes: ", bytes);
        return 0;
    }
    return (guint64)(guintptr)address;
}

static void memory_free(RefitGpuRank *self, guint64 address) {
    if (address != 0 && !self->hung && refit_gpu_enter(self, NULL))
        cudaFree((void *)(guintptr)address);
}

static gboolean memory_upload(RefitGpuRank *self, guint64 address, gconstpointer from,
                              guint64 bytes, GError **error) {
    return refit_gpu_enter(self, error) &&
           refit_gpu_upload((void *)(guintptr)address, from, bytes, error);
}

static gboolean memory_download(RefitGpuRank *self, gpointer to, guint64 address, guint64 bytes,
                                GError **error) {
    return refit_gpu_enter(self, error) &&
           REFIT_GPU_CUDA(cudaMemcpy(to, (void *)(guintptr)address, bytes, cudaMemcpyDeviceToHost),
                          error);
}

const RefitGpu refit_gpu = {
    .executor = {.name = "nccl",
                 .summary = "CUDA and NCCL",
                 .flags = REFIT_EXECUTOR_MOVES_DATA,
                 .probe = probe,
                 .open = open_rank,
                 .prepare = prepare,
                 .run = run,
                 .close = close_rank},
    .abi = REFIT_GPU_ABI,
    .n_devices = n_devices,
    .place_note = place_note,
    .follow = refit_gpu_follow,
    .start = refit_gpu_start,
    .wait = refit_gpu_wait,
    .abort = abort_run,
    .serves = serves,
    .version = version,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_upload = memory_upload,
    .memory_download = memory_download,
};
