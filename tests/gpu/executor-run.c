/*
 * Ranks of the executor on the stand-in. What a rank found is written to memory that all share,
 * threads and processes alike, and judged by the process that started the ranks. Cost: some
 * megabytes of address space.
 */

#include "model/schedule/refit-schedule-comms.h"
#include "executor-run.h"

#include "executor-events.h"
#include "executor-meet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* GLib is not built for ThreadSanitizer, which does not see that its locks order anything. And the
 * stand-in's report of a process that is stuck looks at all of its threads as they are. */
const char *__tsan_default_suppressions(void); /* NOLINT: the sanitizer's name */
const char *__tsan_default_suppressions(void) {
    return "race:g_rw_lock_reader_lock\nrace:g_rw_lock_reader_unlock\nrace:standin_sleep\n";
}

typedef enum { RANK_GONE, RANK_WELL, RANK_FAILED } Outcome;

typedef struct {
    _Atomic int outcome;
    guint64 version;
    int serves;
    char text[MEET_TEXT];
} Verdict;

typedef struct {
    Meeting meeting;
    Verdict verdicts[EXECUTOR_MAX_RANKS];
} Shared;

typedef struct {
    const ProgramSet *set;
    const ExecutorRun *run;
    Shared *shared;
    guint rank;
    Seat seat;
    RefitGpuRank *gpu;
    guint64 *source, *destination; /* device addresses */
    GArray *events;                /* RefitEvent, of the last run */
    cudaStream_t stream, followed;
    char **after;          /* destination parameters as the caller's stream saw them */
    guint n_versions;      /* brought so far */
    _Atomic int may_abort; /* its thread may */
} Member;

/* ---- one rank ---- */

static const RefitModel *model_of(const Member *self) {
    return self->set->plan->problem->refit_case->model;
}

static gboolean fill(Member *self, const RefitRankViews *views, gboolean filled, guint64 address,
                     guint parameter, GError **error) {
    g_autofree guint8 *bytes = program_parameter_bytes(views, parameter, model_of(self), filled);

    return views->parameters[parameter].bytes == 0 ||
           refit_gpu.memory_upload(self->gpu, address, bytes, views->parameters[parameter].bytes,
                                   error);
}

static gboolean allocate(Member *self, const RefitRankViews *views, gboolean filled,
                         guint64 **addresses_out, GError **error) {
    guint n = views != NULL ? views->n_parameters : 0;

    *addresses_out = g_new0(guint64, n + 1);
    for (guint p = 0; p < n; p++) {
        guint64 address = refit_gpu.memory_alloc(self->gpu, views->parameters[p].bytes, error);
        (*addresses_out)[p] = address;
        if (address == 0 || !fill(self, views, filled, address, p, error))
            return FALSE;
    }
    return TRUE;
}

static void release(Member *self, const RefitRankViews *views, guint64 *addresses) {
    for (guint p = 0; addresses != NULL && p < (views != NULL ? views->n_parameters : 0); p++)
        if (self->gpu != NULL)
            refit_gpu.memory_free(self->gpu, addresses[p]);
        else
            CUDA(cudaFree((void *)addresses[p]));
    g_free(addresses);
}

static const char *compare(const Member *self, guint parameter, const guint8 *found) {
    const RefitRankViews *views = self->set->destination[self->rank];
    g_autofree guint8 *right = program_parameter_bytes(views, parameter, model_of(self), TRUE);

    return memcmp(found, right, views->parameters[parameter].bytes) == 0
               ? NULL
               : views->parameters[parameter].name;
}

/* Bytes of all destination parameters, padding included. */
static gboolean check_bytes(Member *self, GError **error) {
    const RefitRankViews *views = self->set->destination[self->rank];

    for (guint p = 0; p < (views != NULL ? views->n_parameters : 0); p++) {
        guint64 size = views->parameters[p].bytes;
        g_autofree guint8 *bytes = g_malloc0(size + 1);
        /* Again where a planned fault hit this call: the run itself has ended well. */
        if (size > 0 &&
            !refit_gpu.memory_download(self->gpu, bytes, self->destination[p], size, NULL) &&
            !refit_gpu.memory_download(self->gpu, bytes, self->destination[p], size, error))
            return FALSE;
        const char *wrong = compare(self, p, bytes);
        if (wrong == NULL && self->after != NULL)
            wrong = compare(self, p, (guint8 *)self->after[p]);
        if (wrong != NULL) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE, "wrong bytes in %s", wrong);
            return FALSE;
        }
    }
    return TRUE;
}

static void check_accounts(const Member *self, const RefitGpuResult *result) {
    const RefitRankAccount *account = &self->set->plan->accounts[self->rank];

    for (guint link = 0; link < REFIT_N_LINKS; link++) {
        CHECK(result->in[link] == account->in[link]);
        CHECK(result->out[link] == account->out[link]);
    }
    CHECK(result->n_stages == self->set->plan->n_stages);
    executor_events_check_sums(self->events, result);
}

/* Communicators are aborted with the run, not only when all is closed. */
static gboolean wait_for_end(Member *self, GError **error) {
    RefitGpuResult result;
    gboolean well =
        refit_gpu.wait(self->gpu, executor_events_collect, self->events, &result, error);

    CHECK(well || standin_comms_of((int)self->rank) == 0);
    if (well)
        check_accounts(self, &result);
    CHECK(!well || !self->run->in_place || result.n_launches == 0);
    CHECK(!well || result.version == self->n_versions + 1);
    return well;
}

/* Source parameters come by the caller's stream and by another just before the run, which follows
 * both, and the destination's are read on the first just after. */
static gboolean run_on_stream(Member *self, GError **error) {
    const RefitRankViews *from = self->set->source[self->rank];
    const RefitRankViews *to = self->set->destination[self->rank];
    g_autoptr(GPtrArray) filled = g_ptr_array_new_with_free_func(g_free);

    for (guint p = 0; p < (from != NULL ? from->n_parameters : 0); p++) {
        guint8 *bytes = program_parameter_bytes(from, p, model_of(self), TRUE);
        g_ptr_array_add(filled, bytes);
        if (from->parameters[p].bytes > 0)
            CUDA(cudaMemcpyAsync((void *)self->source[p], bytes, from->parameters[p].bytes,
                                 cudaMemcpyHostToDevice,
                                 p % 2 == 0 ? self->stream : self->followed));
    }
    if (!refit_gpu.follow(self->gpu, self->followed, error))
        return FALSE;
    if (!refit_gpu.start(self->gpu, self->stream, error)) {
        CUDA(cudaStreamSynchronize(self->stream)); /* it goes on without the run */
        CUDA(cudaStreamSynchronize(self->followed));
        return FALSE;
    }
    self->after = g_new0(char *, (to != NULL ? to->n_parameters : 0) + 1);
    for (guint p = 0; p < (to != NULL ? to->n_parameters : 0); p++) {
        self->after[p] = g_malloc0(to->parameters[p].bytes + 1);
        if (to->parameters[p].bytes > 0)
            CUDA(cudaMemcpyAsync(self->after[p], (void *)self->destination[p],
                                 to->parameters[p].bytes, cudaMemcpyDeviceToHost, self->stream));
    }
    gboolean well = wait_for_end(self, error);
    CUDA(cudaStreamSynchronize(self->stream));
    CUDA(cudaStreamSynchronize(self->followed));
    return well;
}

static RefitExecutorWork work_of(const Member *self, const RefitProgram *program) {
    return (RefitExecutorWork){program->schedule, program, self->source, self->destination};
}

static void refuse(gboolean accepted, GError *error, const char *says) {
    CHECK(!accepted && g_error_matches(error, REFIT_ERROR, REFIT_ERROR_INVALID));
    CHECK(strstr(error->message, says) != NULL);
    g_error_free(error);
}

/* Calls that no other rank hears of, whatever state the rank is in. */
static void call_in_wrong_order(Member *self, gboolean running) {
    const RefitExecutorWork work = work_of(self, self->set->programs[self->rank]);
    GError *errors[3] = {NULL};
    gboolean accepted = refit_gpu.start(self->gpu, NULL, &errors[0]);

    refuse(accepted, errors[0],
           running ? "has been started and not waited for" : "nothing has been prepared");
    if (running)
        accepted = refit_gpu.executor.prepare(self->gpu, &work, &errors[1]);
    else
        accepted = refit_gpu.wait(self->gpu, NULL, NULL, NULL, &errors[1]);
    refuse(accepted, errors[1], running ? "a run is in progress" : "no run has been started");
    accepted = refit_gpu.executor.run(self->gpu, NULL, NULL, NULL, &errors[2]);
    refuse(accepted, errors[2], running ? "has been started" : "nothing has been prepared");
}

static gboolean run_in_one_call(Member *self, GError **error) {
    RefitRunResult result;

    if (!refit_gpu.executor.run(self->gpu, executor_events_collect, self->events, &result, error))
        return FALSE;
    CHECK(result.n_items == self->set->programs[self->rank]->n_turns);
    CHECK(result.duration_s >= 0 && (result.duration_s == 0 || !self->run->untimed));
    return TRUE;
}

static gboolean run_in_two_calls(Member *self, GError **error) {
    if (!refit_gpu.start(self->gpu, NULL, error))
        return FALSE;
    call_in_wrong_order(self, TRUE);
    return wait_for_end(self, error);
}

static gboolean leaves_at(const Member *self, ExecutorLeaves when) {
    return self->run->leaves == when && self->run->leaver == self->rank;
}

static gboolean aborts_at(const Member *self, ExecutorAborts when) {
    return self->run->aborts == when && self->run->aborter == self->rank;
}

static void *abort_soon(void *argument) {
    Member *self = argument;

    while (atomic_load(&self->may_abort) == 0)
        g_usleep(200);
    g_usleep(10000);
    refit_gpu.abort(self->gpu);
    return NULL;
}

/* Its device moves nothing, so the run is where it is when the abort comes. */
static gboolean run_aborted(Member *self, GError **error) {
    pthread_t thread;

    if (aborts_at(self, EXECUTOR_ABORTS_BEFORE))
        refit_gpu.abort(self->gpu);
    CHECK(pthread_create(&thread, NULL, abort_soon, self) == 0);
    atomic_store(&self->may_abort, !aborts_at(self, EXECUTOR_ABORTS_IN_WAIT));
    gboolean well = refit_gpu.start(self->gpu, NULL, error);
    atomic_store(&self->may_abort, 1);
    CHECK(well == aborts_at(self, EXECUTOR_ABORTS_IN_WAIT));
    well = well && wait_for_end(self, error);
    pthread_join(thread, NULL);
    CHECK(!well);
    return FALSE;
}

static gboolean run_and_leave(Member *self, GError **error) {
    if (!refit_gpu.start(self->gpu, NULL, error))
        return FALSE;
    if (leaves_at(self, EXECUTOR_CLOSES_IN_A_RUN))
        refit_gpu.executor.close(g_steal_pointer(&self->gpu));
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "leaves");
    return FALSE;
}

static gboolean run_once(Member *self, GError **error) {
    const RefitRankViews *views = self->set->destination[self->rank];
    gboolean well;

    for (guint p = 0; self->n_versions > 0 && p < (views != NULL ? views->n_parameters : 0); p++)
        if (!fill(self, views, FALSE, self->destination[p], p, error))
            return FALSE;
    g_array_set_size(self->events, 0);
    if (leaves_at(self, EXECUTOR_NEVER_WAITS) || leaves_at(self, EXECUTOR_CLOSES_IN_A_RUN))
        return run_and_leave(self, error);
    if (self->run->aborts != EXECUTOR_NEVER_ABORTS && self->run->aborter == self->rank)
        return run_aborted(self, error);
    if (self->run->own_stream)
        well = run_on_stream(self, error);
    else
        well = self->rank % 4 == 2 ? run_in_one_call(self, error) : run_in_two_calls(self, error);
    if (!well)
        return FALSE;
    CHECK(refit_gpu.version(self->gpu) == ++self->n_versions);
    if (self->run->untimed)
        CHECK(self->events->len == 0);
    else
        executor_events_check(self->set->schedule, self->rank, self->events);
    return check_bytes(self, error);
}

/* An address that is not memory of this rank's device; of freed memory, if so stated. */
static guint64 wrong_address(const Member *self) {
    static char host;
    void *address = NULL;

    switch (self->run->addresses) {
    case EXECUTOR_HOST_MEMORY:
        return (guint64)(guintptr)&host;
    case EXECUTOR_OTHER_DEVICE:
        CUDA(cudaSetDevice((int)self->set->n_ranks));
        break;
    case EXECUTOR_FREED_MEMORY:
        CUDA(cudaSetDevice((int)self->rank));
        break;
    default:
        return 0;
    }
    CUDA(cudaMalloc(&address, 64));
    if (self->run->addresses == EXECUTOR_FREED_MEMORY)
        CUDA(cudaFree(address));
    return (guint64)(guintptr)address;
}

/* Whether a text has these words, with the hosts of ranks, " (node3)", or without. */
static gboolean says(const char *text, const char *words) {
    g_autoptr(GRegex) host = g_regex_new(" \\(node[0-9]+\\)", 0, 0, NULL);
    g_autofree char *without = g_regex_replace_literal(host, text, -1, 0, "", 0, NULL);

    return strstr(text, words) != NULL || strstr(without, words) != NULL;
}

/* All ranks fail, nothing can be run, and nothing is broken. */
static void prepare_wrongly(Member *self) {
    gboolean misled = self->rank == self->run->misled;
    RefitExecutorWork work = work_of(self, self->set->programs[self->rank]);
    guint64 *first =
        self->source != NULL && self->source[0] != 0 ? self->source : self->destination;
    guint64 right = first[0];
    g_autoptr(GError) error = NULL;

    if (misled && self->run->addresses == EXECUTOR_NO_LIST)
        *(first == self->source ? &work.source : &work.destination) = NULL;
    else if (misled)
        first[0] = wrong_address(self);
    CHECK(!refit_gpu.executor.prepare(self->gpu, &work, &error));
    CHECK(says(error->message, self->run->error_has));
    CHECK(g_error_matches(error, REFIT_ERROR, REFIT_ERROR_INVALID));
    g_clear_error(&error);
    CHECK(!refit_gpu.executor.run(self->gpu, NULL, NULL, NULL, &error));
    CHECK(strstr(error->message, "nothing has been prepared") != NULL);
    if (misled && self->run->addresses == EXECUTOR_OTHER_DEVICE)
        CUDA(cudaFree((void *)first[0]));
    first[0] = right;
}

/*
 * What NCCL takes of the device for connections, by the stand-in's own rules, is no more than the
 * schedule says, where the stand-in knows the hosts; over NVLink exactly that, and at least a pool
 * wherever there are messages over the network. Groups make no threads.
 */
static void check_connections(const Member *self) {
    const RefitSchedule *schedule = self->set->schedule;
    guint64 taken = standin_connection_bytes_of((int)self->rank), nvlink = 0;
    gboolean network = FALSE;

    CHECK(standin_group_threads() == 0);
    if (g_getenv("REFIT_STANDIN_HOST_DEVICES") == NULL || self->run->as != RANKS_AS_THREADS)
        return;
    for (guint i = 0; i < schedule->n_comms[REFIT_LINK_NVLINK]; i++)
        nvlink += refit_schedule_comm_bytes(schedule, self->rank, REFIT_LINK_NVLINK, i);
    for (guint i = 0; i < schedule->n_comms[REFIT_LINK_NETWORK]; i++)
        network |=
            refit_schedule_connections(schedule, self->rank, REFIT_LINK_NETWORK, i)->n_receives > 0;
    CHECK(taken <= refit_schedule_connection_bytes(schedule, self->rank));
    CHECK(taken >= nvlink && (!network || taken > nvlink));
}

static gboolean prepare_and_run(Member *self, const RefitProgram *program, GError **error) {
    const RefitExecutorWork work = work_of(self, program);

    if (!refit_gpu.executor.prepare(self->gpu, &work, error))
        return FALSE;
    CHECK(standin_events_of((int)self->rank) <=
          executor_events_most(self->set->schedule, self->rank, self->run->untimed));
    check_connections(self);
    if (leaves_at(self, EXECUTOR_NEVER_STARTS))
        return FALSE;
    guint n_events = standin_events_of((int)self->rank);
    for (guint i = 0; i < self->run->n_runs; i++)
        if (!run_once(self, error))
            return FALSE;
    CHECK(standin_events_of((int)self->rank) == n_events);
    return TRUE;
}

static gboolean use(Member *self, GError **error) {
    const RefitProgram *program = self->set->programs[self->rank];
    RefitPlan other_plan = *self->set->plan;
    RefitSchedule other_schedule = *self->set->schedule;
    RefitProgram other = *program;
    char digest[65];

    if (!allocate(self, self->set->source[self->rank], !self->run->own_stream, &self->source,
                  error) ||
        (!self->run->in_place &&
         !allocate(self, self->set->destination[self->rank], FALSE, &self->destination, error)))
        return FALSE;
    if (self->run->in_place)
        self->destination = self->source;
    if (leaves_at(self, EXECUTOR_NEVER_PREPARES))
        return FALSE;
    if (self->run->other_plan == self->rank + 1) {
        memset(digest, 'a', 64);
        digest[64] = '\0';
        other_plan.digest = digest;
        other.plan = &other_plan;
    }
    g_autofree guint *comm_of =
        g_memdup2(other_schedule.comm_of, MAX(other_schedule.n_streams, 1) * sizeof *comm_of);
    if (self->run->other_schedule == self->rank + 1) {
        comm_of[REFIT_LINK_LOCAL]++; /* where it would not be noticed */
        other_schedule.comm_of = comm_of;
        other.schedule = &other_schedule;
    }
    g_autofree RefitExchange *exchanges =
        g_memdup2(program->exchanges, program->n_exchanges * sizeof *exchanges);
    if (self->run->short_message == self->rank + 1) {
        for (guint e = 0; e < program->n_exchanges; e++)
            exchanges[e].bytes -= exchanges[e].peer != self->rank && !exchanges[e].sliced ? 1 : 0;
        other.exchanges = exchanges;
    }
    if (self->rank % 2 != 0)
        call_in_wrong_order(self, FALSE);
    if (self->run->addresses != EXECUTOR_RIGHT_ADDRESSES)
        prepare_wrongly(self);
    if (!prepare_and_run(self, &other, error))
        return FALSE;
    if (self->run->then == NULL)
        return TRUE;
    self->set = self->run->then;
    return prepare_and_run(self, self->set->programs[self->rank], error);
}

/* Puts its events with those of other ranks. */
static void hand_in_events(const Member *self) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    if (self->run->events == NULL)
        return;
    CHECK(self->run->as == RANKS_AS_THREADS && pthread_mutex_lock(&lock) == 0);
    g_array_append_vals(self->run->events, self->events->data, self->events->len);
    CHECK(pthread_mutex_unlock(&lock) == 0);
}

static gboolean leaves(const Member *self) {
    return self->run->leaves != EXECUTOR_STAYS && self->run->leaver == self->rank;
}

static void *member_main(void *argument) {
    Member *self = argument;
    const RefitTopology *topology = self->set->plan->problem->refit_case->topology;
    Verdict *verdict = &self->shared->verdicts[self->rank];
    guint domains[EXECUTOR_MAX_RANKS], nodes[EXECUTOR_MAX_RANKS];
    char host[16];
    GError *error = NULL;
    gboolean well = FALSE;

    if (leaves_at(self, EXECUTOR_NEVER_OPENS))
        return NULL;
    for (guint r = 0; r < self->set->n_ranks; r++) {
        domains[r] = refit_topology_domain_of(topology, r);
        nodes[r] = refit_topology_node_of(topology, r);
    }
    g_snprintf(host, sizeof host, "node%u", nodes[self->rank]);
    if (self->run->lone > 0)
        domains[self->run->lone - 1] = G_MAXINT;
    const RefitGpuConfig config = {
        .rank = self->rank,
        .n_ranks = self->set->n_ranks,
        .device = (int)self->rank,
        .domains = domains,
        .nodes = nodes,
        .host = host,
        .peers = {.gather = meet_gather,
                  .broadcast = meet_broadcast,
                  .check = self->run->informs ? meet_check : NULL,
                  .fail = self->run->informs ? meet_fail : NULL,
                  .user_data = &self->seat},
        .timeout_s = self->run->timeout_s,
        .untimed = self->run->untimed,
        .kernel_blocks = 3,
    };
    const RefitExecutorConfig executor = {.topology = topology, .rank = &config};
    self->gpu = refit_gpu.executor.open(&executor, &error);
    self->events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    if (self->gpu != NULL && self->run->own_stream) {
        self->stream = stream_new();
        self->followed = stream_new();
    }
    if (self->gpu != NULL)
        well = use(self, &error);
    if (leaves(self) && self->run->leaves != EXECUTOR_CLOSES_IN_A_RUN)
        return NULL; /* as if its process had ended */
    if (!well && self->run->informs && error != NULL)
        error = meet_fail(&self->seat, error); /* it may have come before or between calls */
    if (!well) {
        g_strlcpy(verdict->text, error != NULL ? error->message : "no error is set", MEET_TEXT);
        g_clear_error(&error);
    }
    verdict->version = self->gpu != NULL ? refit_gpu.version(self->gpu) : 0;
    verdict->serves = self->gpu != NULL ? (int)refit_gpu.serves(self->gpu) : REFIT_SERVES_OLD;
    release(self, self->set->source[self->rank], self->source);
    if (!self->run->in_place)
        release(self, self->set->destination[self->rank], self->destination);
    g_strfreev(self->after);
    hand_in_events(self);
    g_array_unref(self->events);
    if (self->stream != NULL)
        CUDA(cudaStreamDestroy(self->stream));
    if (self->followed != NULL)
        CUDA(cudaStreamDestroy(self->followed));
    refit_gpu.executor.close(self->gpu);
    CHECK(ncclGroupEnd() == ncclInvalidUsage); /* this thread is in no group */
    if (!leaves(self))
        atomic_store(&verdict->outcome, well ? RANK_WELL : RANK_FAILED);
    return NULL;
}

/* ---- all ranks ---- */

static void start_threads(Member *members, guint n) {
    pthread_t threads[EXECUTOR_MAX_RANKS];

    for (guint i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], NULL, member_main, &members[i]) == 0);
    for (guint i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* Past everybody who would look at what is left, sanitizers included. */
static void leave_at_once(void) {
    syscall(SYS_exit_group, 0);
}

static void start_processes(Member *members, guint n) {
    pid_t children[EXECUTOR_MAX_RANKS];
    int worst = 0;

    for (guint i = 0; i < n; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            member_main(&members[i]);
            if ((leaves(&members[i]) && members[i].run->leaves != EXECUTOR_CLOSES_IN_A_RUN) ||
                members[i].run->untidy)
                leave_at_once();
            exit(0);
        }
    }
    for (guint i = 0; i < n; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (code != 128 + 9) /* killed, as the test wanted */
            worst = MAX(worst, code);
    }
    if (worst != 0) {
        fflush(stderr);
        _exit(worst);
    }
}

/* On a busy machine, a time-out may come before what the test is about. */
static void check_text(const ExecutorRun *run, guint rank, const char *text) {
    if (run->error_has == NULL || run->blamed == rank + 1 || says(text, run->error_has))
        return;
    fprintf(stderr, "it does not say: %s\n", run->error_has);
    fflush(stderr);
    CHECK(strstr(text, "did not report within") != NULL ||
          strstr(text, "not done within") != NULL || strstr(text, "has not ended") != NULL);
    _exit(EXECUTOR_EXIT_LATE);
}

static void judge(const Member *members, guint n) {
    const ExecutorRun *run = members[0].run;
    const Shared *shared = members[0].shared;
    gboolean may_fail = run->may_fail || run->must_fail;
    guint n_failed = 0, n_well = 0, n_runs = run->n_runs * (run->then != NULL ? 2 : 1);

    for (guint r = 0; r < n; r++) {
        const Verdict *verdict = &shared->verdicts[r];
        int outcome = atomic_load(&verdict->outcome);

        n_failed += outcome == RANK_FAILED;
        n_well += outcome == RANK_WELL;
        if (outcome == RANK_FAILED)
            fprintf(stderr, "rank %u: %s\n", r, verdict->text);
        if (outcome == RANK_FAILED) {
            CHECK(verdict->version < n_runs);
            CHECK(verdict->serves != REFIT_SERVES_NEW);
            check_text(run, r, verdict->text);
        }
        if (outcome == RANK_WELL)
            CHECK(verdict->version == n_runs);
        CHECK(outcome != RANK_GONE || may_fail);
        CHECK(run->serves == NULL || verdict->serves == (int)run->serves[r]);
    }
    CHECK(may_fail || n_failed == 0);
    CHECK(n_failed == 0 || n_well == 0); /* all or none */
    CHECK(!run->must_fail || n_failed > 0);
}

void executor_run(const ProgramSet *set, const ExecutorRun *run) {
    Member members[EXECUTOR_MAX_RANKS] = {0};
    Shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    refit_error_quark(); /* before there are threads: GLib makes it without ordering */
    CHECK(shared != MAP_FAILED && set->n_ranks <= EXECUTOR_MAX_RANKS);
    for (guint r = 0; r < set->n_ranks; r++)
        members[r] = (Member){.set = set,
                              .run = run,
                              .shared = shared,
                              .rank = r,
                              .seat = {.meeting = &shared->meeting,
                                       .rank = r,
                                       .n_ranks = set->n_ranks,
                                       .informs = run->informs,
                                       .longest_s = run->timeout_s + MAX(run->timeout_s / 4, 1)}};
    if (run->as == RANKS_AS_THREADS)
        start_threads(members, set->n_ranks);
    else
        start_processes(members, set->n_ranks);
    judge(members, set->n_ranks);
    munmap(shared, sizeof *shared);
    if (run->untidy)
        leave_at_once();
}
