/*
 * One rank of `refit run`. Its own errors are agreed upon before each step that all ranks must take
 * together, so a rank that cannot go on stops the job at once and by name. What only this rank
 * holds (views, memory, the executor's object) lives in one struct and goes away in one place.
 */

#include "cli/cli-run.h"

#include "cli/cli-weights.h"
#include "gpu/executor/refit-host.h"

#include <string.h>

typedef struct {
    const CliRun *run;
    guint rank;
    RefitRendezvous *rendezvous;
    const RefitGpu *gpu;
    RefitRankViews *source, *destination; /* NULL: not on that side */
    RefitProgram *program;
    RefitGpuRank *opened;
    guint64 *source_at, *destination_at; /* device addresses of the parameters */
    CliRankReport report;
    double *agreed_s, *duration_s;
    RefitGpuStage *stages;
    guint n_stages;
    GArray *events; /* of RefitEvent: what a trace wants of this rank; NULL: no trace is wanted */
} Rank;

void cli_run_report_clear(CliRunReport *report) {
    g_clear_pointer(&report->place_note, g_free);
    g_clear_pointer(&report->ranks, g_free);
    g_clear_pointer(&report->agreed_s, g_free);
    g_clear_pointer(&report->duration_s, g_free);
    g_clear_pointer(&report->stages, g_free);
    g_clear_pointer(&report->events, g_array_unref);
}

static void free_memory(Rank *self, const RefitRankViews *views, guint64 *addresses) {
    for (guint p = 0; addresses != NULL && p < views->n_parameters; p++)
        if (addresses[p] != 0)
            self->gpu->memory_free(self->opened, addresses[p]);
    g_free(addresses);
}

static void clear_rank(Rank *self) {
    if (self->opened != NULL) {
        free_memory(self, self->source, self->source_at);
        free_memory(self, self->destination, self->destination_at);
        self->gpu->executor.close(self->opened);
    }
    refit_program_free(self->program);
    refit_rank_views_free(self->source);
    refit_rank_views_free(self->destination);
    refit_rendezvous_free(self->rendezvous);
    g_free(self->agreed_s);
    g_free(self->duration_s);
    g_free(self->stages);
    g_clear_pointer(&self->events, g_array_unref);
}

static const RefitModel *model_of(const Rank *self) {
    return self->run->plan->problem->refit_case->model;
}

/* ---- the others ---- */

static gboolean gather(gpointer user_data, gconstpointer mine, gsize bytes, gpointer all,
                       guint8 *came, double timeout_s, GError **error) {
    return refit_rendezvous_collect(user_data, "executor", mine, bytes, all, came, timeout_s,
                                    error);
}

static gboolean broadcast(gpointer user_data, gpointer data, gsize bytes, double timeout_s,
                          GError **error) {
    return refit_rendezvous_spread(user_data, "executor", data, bytes, timeout_s, error);
}

static gboolean check(gpointer user_data, GError **error) {
    return refit_rendezvous_check(user_data, error);
}

static GError *fail(gpointer user_data, GError *mine) {
    return refit_rendezvous_fail(user_data, mine);
}

/* Ownership of `mine` taken. */
static gboolean agree(Rank *self, const char *what, GError *mine, GError **error) {
    gboolean agreed = refit_rendezvous_agree(self->rendezvous, what, mine, error);

    g_clear_error(&mine);
    return agreed;
}

/* ---- set-up ---- */

static gboolean make_program(Rank *self, GError **error) {
    const RefitProblem *problem = self->run->plan->problem;
    const RefitCase *refit_case = problem->refit_case;

    if (problem->failed[self->rank] == 0 && refit_layout_has_rank(refit_case->source, self->rank)) {
        self->source = refit_rank_views_new(refit_case->source, self->rank, error);
        if (self->source == NULL)
            return FALSE;
    }
    for (guint d = 0; d < refit_case->n_destinations; d++)
        if (problem->failed[self->rank] == 0 &&
            refit_layout_has_rank(refit_case->destinations[d], self->rank)) {
            self->destination =
                refit_rank_views_new(refit_case->destinations[d], self->rank, error);
            if (self->destination == NULL)
                return FALSE;
        }
    self->program =
        refit_program_new(self->run->schedule, self->rank, self->source, self->destination, error);
    if (self->program == NULL || !refit_program_check(self->program, error))
        return FALSE;
    self->report.staging_bytes = self->program->staging_bytes;
    return TRUE;
}

/* Launchers either number the node's GPUs by local rank, or let each process see its own only. */
static gboolean choose_device(guint local_rank, guint n_devices, int *device_out, GError **error) {
    if (local_rank >= n_devices && n_devices != 1) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED,
                    "local rank %u has no GPU: the node has %u", local_rank, n_devices);
        return FALSE;
    }
    *device_out = n_devices == 1 ? 0 : (int)local_rank;
    return TRUE;
}

static gboolean open_executor(Rank *self, int device, GError **error) {
    const RefitCase *refit_case = self->run->plan->problem->refit_case;
    const RefitGpuConfig rank = {.rank = self->rank,
                                 .n_ranks = refit_rendezvous_world(self->rendezvous),
                                 .device = device,
                                 .domains = self->run->domains,
                                 .nodes = self->run->nodes,
                                 .peers = {.gather = gather,
                                           .broadcast = broadcast,
                                           .check = check,
                                           .fail = fail,
                                           .user_data = self->rendezvous},
                                 .timeout_s = self->run->timeout_s};
    const RefitExecutorConfig config = {
        .topology = refit_case->topology, .profile = refit_case->profile, .rank = &rank};

    self->opened = self->gpu->executor.open(&config, error);
    return self->opened != NULL;
}

/* ---- weights ---- */

static gboolean alloc_side(Rank *self, const RefitRankViews *views, guint64 **addresses_out,
                           GError **error) {
    if (views == NULL)
        return TRUE;
    *addresses_out = g_new0(guint64, views->n_parameters + 1);
    for (guint p = 0; p < views->n_parameters; p++) {
        (*addresses_out)[p] =
            self->gpu->memory_alloc(self->opened, views->parameters[p].bytes, error);
        if ((*addresses_out)[p] == 0) {
            g_prefix_error(error, "no memory for %s: ", views->parameters[p].name);
            return FALSE;
        }
    }
    return TRUE;
}

/* Source parameters take the values of `run`; destination ones are overwritten with filler. */
static gboolean write_weights(Rank *self, guint run, GError **error) {
    const RefitRankViews *views = self->source;

    for (guint p = 0; views != NULL && p < views->n_parameters; p++) {
        g_autofree guint8 *bytes = g_malloc(views->parameters[p].bytes + 1);

        cli_weights_fill(model_of(self), views, p, run, bytes);
        if (!self->gpu->memory_upload(self->opened, self->source_at[p], bytes,
                                      views->parameters[p].bytes, error))
            return FALSE;
    }
    views = self->destination;
    for (guint p = 0; views != NULL && p < views->n_parameters; p++) {
        g_autofree guint8 *bytes = g_malloc(views->parameters[p].bytes + 1);

        memset(bytes, CLI_WEIGHTS_FILLER, views->parameters[p].bytes);
        if (!self->gpu->memory_upload(self->opened, self->destination_at[p], bytes,
                                      views->parameters[p].bytes, error))
            return FALSE;
    }
    return TRUE;
}

/* What has arrived, and that the source is as it was. */
static gboolean check_side(Rank *self, const RefitRankViews *views, const guint64 *addresses,
                           guint run, GError **error) {
    for (guint p = 0; views != NULL && p < views->n_parameters; p++) {
        g_autofree guint8 *bytes = g_malloc(views->parameters[p].bytes + 1);

        if (!self->gpu->memory_download(self->opened, bytes, addresses[p],
                                        views->parameters[p].bytes, error) ||
            !cli_weights_check(model_of(self), views, p, run, bytes, error))
            return FALSE;
    }
    return TRUE;
}

/* ---- runs ---- */

/* Bytes that the executor counted itself, against the plan's account of this rank. */
static gboolean check_bytes(const Rank *self, const RefitGpuResult *result, guint run,
                            GError **error) {
    const RefitRankAccount *account = &self->run->plan->accounts[self->rank];

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        if (result->in[link] != account->in[link] || result->out[link] != account->out[link]) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                        "run %u moved %" G_GUINT64_FORMAT " bytes in and %" G_GUINT64_FORMAT
                        " out over %s; the plan says %" G_GUINT64_FORMAT " and %" G_GUINT64_FORMAT,
                        run + 1, result->in[link], result->out[link],
                        refit_link_name((RefitLink)link), account->in[link], account->out[link]);
            return FALSE;
        }
    return TRUE;
}

static void keep_result(Rank *self, const RefitGpuResult *result, guint run) {
    memcpy(self->report.in, result->in, sizeof self->report.in);
    memcpy(self->report.out, result->out, sizeof self->report.out);
    self->report.n_groups = result->n_groups;
    self->report.n_launches = result->n_launches;
    self->report.connection_bytes = result->connection_bytes;
    self->report.connections_taken_bytes = result->connections_taken_bytes;
    self->agreed_s[run] = result->agreed_s;
    self->duration_s[run] = result->duration_s;
    if (result->stages != NULL)
        memcpy(self->stages, result->stages,
               MIN(result->n_stages, self->n_stages) * sizeof *self->stages);
}

static gboolean run_once(Rank *self, guint run, GError **error) {
    const gboolean fresh = run == 0 || self->run->verify;
    const gboolean traced = self->events != NULL && run + 1 == self->run->repeat &&
                            self->run->trace->wanted[self->rank] != 0;
    const guint values = self->run->verify ? run : 0;
    CliTraceKeeper keeper = {self->run->trace, self->events};
    RefitGpuResult result = {0};
    GError *mine = NULL;

    if (fresh)
        (void)write_weights(self, values, &mine);
    if (!agree(self, "weights", mine, error) || !self->gpu->start(self->opened, NULL, error) ||
        !self->gpu->wait(self->opened, traced ? cli_trace_keep : NULL, &keeper, &result, error))
        return FALSE;
    mine = NULL;
    keep_result(self, &result, run);
    if (check_bytes(self, &result, run, &mine) && self->run->verify)
        (void)(check_side(self, self->destination, self->destination_at, values, &mine) &&
               check_side(self, self->source, self->source_at, values, &mine));
    return agree(self, "result", mine, error);
}

static gboolean run_all(Rank *self, GError **error) {
    RefitExecutorWork work = {.schedule = self->run->schedule, .program = self->program};
    GError *mine = NULL;

    (void)(alloc_side(self, self->source, &self->source_at, &mine) &&
           alloc_side(self, self->destination, &self->destination_at, &mine));
    if (!agree(self, "memory", mine, error))
        return FALSE;
    work.source = self->source_at;
    work.destination = self->destination_at;
    if (!self->gpu->executor.prepare(self->opened, &work, error))
        return FALSE;
    for (guint run = 0; run < self->run->repeat; run++)
        if (!run_once(self, run, error))
            return FALSE;
    return TRUE;
}

/* ---- report ---- */

/* The largest of all ranks, per run; NULL on other ranks than 0. */
static gboolean report_longest(Rank *self, const char *what, const double *mine, double **all_out,
                               GError **error) {
    const guint repeat = self->run->repeat;
    g_autofree guint8 *bytes = NULL;

    if (!refit_rendezvous_report(self->rendezvous, what, mine, repeat * sizeof *mine, &bytes,
                                 error))
        return FALSE;
    if (bytes == NULL)
        return TRUE;
    *all_out = g_new0(double, repeat);
    for (guint i = 0; i < refit_rendezvous_world(self->rendezvous) * repeat; i++)
        (*all_out)[i % repeat] = MAX((*all_out)[i % repeat], ((double *)(gpointer)bytes)[i]);
    return TRUE;
}

static gboolean is_idle(const RefitGpuStage *stage) {
    return stage->end_s <= stage->start_s;
}

static void merge_stage(RefitGpuStage *into, const RefitGpuStage *stage) {
    if (is_idle(stage))
        return;
    into->start_s = is_idle(into) ? stage->start_s : MIN(into->start_s, stage->start_s);
    into->end_s = MAX(into->end_s, stage->end_s);
    for (guint kind = 0; kind < REFIT_N_EVENT_KINDS; kind++) {
        into->busy_s[kind] = MAX(into->busy_s[kind], stage->busy_s[kind]);
        into->bytes[kind] += stage->bytes[kind];
    }
}

/* How many events the rank with most has, which rank 0 knows, by `counts`, and tells all. */
static gboolean spread_most(Rank *self, const guint64 *counts, guint64 *most_out, GError **error) {
    *most_out = 0;
    for (guint rank = 0; counts != NULL && rank < refit_rendezvous_world(self->rendezvous); rank++)
        *most_out = MAX(*most_out, counts[rank]);
    return refit_rendezvous_broadcast(self->rendezvous, "trace", most_out, sizeof *most_out, error);
}

/*
 * The events of all ranks, by rank, on rank 0. All records of an exchange have one size, so they go
 * in as many pieces as the rank with most has; a rank that has none left, or none, sends zeros.
 */
static gboolean report_events(Rank *self, GArray **all_out, GError **error) {
    const guint world = refit_rendezvous_world(self->rendezvous);
    const gsize room = MIN(REFIT_RENDEZVOUS_MAX_RECORD, REFIT_RENDEZVOUS_MAX_EXCHANGE / world - 1);
    const guint64 n_piece = room / sizeof(RefitEvent), count = self->events->len;
    g_autofree guint8 *bytes = NULL;
    g_autofree RefitEvent *piece = g_new0(RefitEvent, n_piece);
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    const guint64 *counts;
    guint64 most;

    if (!refit_rendezvous_report(self->rendezvous, "trace", &count, sizeof count, &bytes, error))
        return FALSE;
    counts = (const guint64 *)(gpointer)bytes;
    if (!spread_most(self, counts, &most, error))
        return FALSE;
    for (guint64 done = 0; done < most; done += n_piece) {
        const guint64 n = MIN(n_piece, most - done), mine = MIN(n, count - MIN(done, count));
        g_autofree guint8 *received = NULL;

        memset(piece, 0, n * sizeof *piece);
        for (guint64 i = 0; i < mine; i++)
            piece[i] = g_array_index(self->events, RefitEvent, done + i);
        if (!refit_rendezvous_report(self->rendezvous, "trace", piece, n * sizeof *piece, &received,
                                     error))
            return FALSE;
        for (guint rank = 0; counts != NULL && rank < world; rank++)
            g_array_append_vals(all, (const RefitEvent *)(gpointer)received + rank * n,
                                (guint)MIN(n, counts[rank] - MIN(done, counts[rank])));
    }
    *all_out = g_steal_pointer(&all);
    return TRUE;
}

static gboolean report_all(Rank *self, CliRunReport *report, GError **error) {
    const guint world = refit_rendezvous_world(self->rendezvous);
    g_autofree guint8 *ranks = NULL, *stages = NULL;

    report->n_ranks = world;
    report->repeat = self->run->repeat;
    report->n_stages = self->n_stages;
    report->place_note = g_strdup(self->gpu->place_note(self->opened));
    if (!refit_rendezvous_report(self->rendezvous, "bytes", &self->report, sizeof self->report,
                                 &ranks, error) ||
        !report_longest(self, "times", self->agreed_s, &report->agreed_s, error) ||
        !report_longest(self, "times", self->duration_s, &report->duration_s, error) ||
        !refit_rendezvous_report(self->rendezvous, "stages", self->stages,
                                 self->n_stages * sizeof *self->stages, &stages, error) ||
        (self->events != NULL && !report_events(self, &report->events, error)))
        return FALSE;
    if (ranks == NULL)
        return TRUE;
    report->ranks = (CliRankReport *)(gpointer)g_steal_pointer(&ranks);
    report->stages = g_new0(RefitGpuStage, self->n_stages + 1);
    for (guint i = 0; i < world * self->n_stages; i++)
        merge_stage(&report->stages[i % self->n_stages],
                    &((const RefitGpuStage *)(gpointer)stages)[i]);
    return TRUE;
}

/* Joins, and returns with all ranks when one has failed before that. Ownership of `early` taken. */
static gboolean join(Rank *self, const RefitLaunch *launch, GSocket *listener, GError *early,
                     gboolean *tells_out, GError **error) {
    RefitHost host;
    const RefitRendezvousOptions options = {.rank = launch->rank,
                                            .world = launch->world,
                                            .address = launch->address,
                                            .port = launch->port,
                                            .token = launch->token,
                                            .timeout_s = self->run->timeout_s,
                                            .host = host.name,
                                            .tells_out = tells_out};

    refit_host_find(NULL, &host);
    self->rendezvous = refit_rendezvous_new(&options, listener, early == NULL ? error : NULL);
    if (self->rendezvous != NULL)
        return agree(self, "executor", early, error);
    if (early != NULL) { /* which nobody has heard */
        *tells_out = TRUE;
        g_propagate_error(error, early);
    }
    return FALSE;
}

static gboolean run_rank(Rank *self, const RefitLaunch *launch, CliRunReport *report,
                         GError **error) {
    const char *digest = self->run->plan->digest;
    GError *mine = NULL;
    int device = 0;

    g_assert(self->gpu != NULL); /* or this rank would have said so */
    if (!refit_rendezvous_same(self->rendezvous, "plan", digest, strlen(digest), error))
        return FALSE;
    (void)(choose_device(launch->local_rank, self->gpu->n_devices(), &device, &mine) &&
           make_program(self, &mine));
    return agree(self, "program", mine, error) && open_executor(self, device, error) &&
           run_all(self, error) && report_all(self, report, error);
}

/* What rank 0 and the executor's loading can tell before ranks meet. */
static gboolean get_ready(Rank *self, GError **error) {
    /* Before the first thread, as probing may change the environment. */
    self->gpu = cli_executor_load(self->run->executor, error);
    return self->gpu != NULL &&
           (self->rank > 0 || cli_check_output(self->run->cli, self->run->trace->path, error));
}

gboolean cli_run_rank(const CliRun *run, const RefitLaunch *launch, GSocket *listener,
                      GError *early, CliRunReport *report_out, gboolean *tells_out,
                      GError **error) {
    Rank self = {
        .run = run, .rank = launch->rank, .n_stages = early == NULL ? run->plan->n_stages : 0};
    g_auto(CliRunReport) report = {0};
    gboolean tells = TRUE, ok;

    self.agreed_s = g_new0(double, run->repeat + 1);
    self.duration_s = g_new0(double, run->repeat + 1);
    self.stages = g_new0(RefitGpuStage, self.n_stages + 1);
    if (run->trace->path != NULL)
        self.events = g_array_new(FALSE, FALSE, sizeof(RefitEvent));
    if (early == NULL && !get_ready(&self, &early))
        g_assert(early != NULL);
    ok = join(&self, launch, listener, early, &tells, error) &&
         run_rank(&self, launch, &report, error);
    if (self.rendezvous != NULL)
        tells = refit_rendezvous_tells(self.rendezvous);
    if (tells_out != NULL)
        *tells_out = tells;
    clear_rank(&self);
    if (ok && launch->rank == 0) {
        *report_out = report;
        report = (CliRunReport){0};
    }
    return ok;
}
