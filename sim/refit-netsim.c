/*
 * The simulator from outside: checks the graph, runs the engine in a forked child and brings back
 * dates or the reason why there are none.
 *
 * SimGrid keeps its platform, its settings and its clock per process, aborts on its own assertions
 * and installs signal handlers. A child per run keeps all of that away from the caller; a fork
 * costs well under a millisecond. Dates come back through an anonymous shared mapping. The child's
 * standard output and error are a memory file, of which a failure quotes the first line; it leaves
 * by _exit(), so it neither flushes the caller's buffers nor runs the caller's exit handlers.
 *
 * Items in a cycle never run. Which they are is found when the engine has come back without them,
 * by taking away items without predecessors: linear in edges.
 */

#define _GNU_SOURCE /* memfd_create */
#include "sim/refit-netsim-private.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Below, large pages gain nothing. */
#define LEAST_LARGE ((gsize)8 << 20) /* bytes */

void refit_netsim_advise(gpointer memory, gsize n_bytes) {
    const guintptr page = (guintptr)sysconf(_SC_PAGESIZE);
    guintptr begin = ((guintptr)memory + page - 1) / page * page;
    guintptr end = ((guintptr)memory + n_bytes) / page * page;

    /* Where the system has none, small ones do. */
    if (n_bytes >= LEAST_LARGE)
        (void)madvise((gpointer)begin, end - begin, MADV_HUGEPAGE);
}

/* What counts as one date in an exact run: far below a nanosecond, and above the rounding of
 * double dates up to hours of simulated time. */
#define EXACT_PRECISION_S 1e-11

static gboolean check_platform(const RefitNetsimPlatform *platform, GError **error) {
    const struct {
        const char *of;
        double bytes_per_s;
    } rates[] = {{"NVLink", platform->nvlink_bytes_per_s},
                 {"NIC", platform->nic_bytes_per_s},
                 {"leaf uplink", platform->leaf_uplink_bytes_per_s}};
    guint n_rates = platform->n_leaves > 0 ? 3 : 2;

    if (platform->n_gpus == 0 || platform->gpus_per_domain == 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "platform with %u GPUs in domains of %u; both must be at least 1",
                    platform->n_gpus, platform->gpus_per_domain);
        return FALSE;
    }
    for (guint i = 0; i < n_rates; i++)
        if (!isfinite(rates[i].bytes_per_s) || rates[i].bytes_per_s <= 0) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "the %s bandwidth of the platform is not a positive number", rates[i].of);
            return FALSE;
        }
    for (guint gpu = 0; platform->n_leaves > 0 && gpu < platform->n_gpus; gpu++)
        if (platform->leaf_of[gpu] >= platform->n_leaves) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "GPU %u is on leaf %u, but the platform has %u leaves", gpu,
                        platform->leaf_of[gpu], platform->n_leaves);
            return FALSE;
        }
    return TRUE;
}

static gboolean check_item(const RefitNetsimPlatform *platform, const RefitNetsimGraph *graph,
                           guint index, GError **error) {
    const RefitNetsimItem *item = &graph->items[index];
    guint64 begin = graph->successor_offsets[index], end = graph->successor_offsets[index + 1];

    if (item->kind > REFIT_NETSIM_JOIN) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "item %u has the unknown kind %u",
                    index, item->kind);
        return FALSE;
    }
    if (item->kind == REFIT_NETSIM_FLOW &&
        (item->src >= platform->n_gpus || item->dst >= platform->n_gpus ||
         item->src == item->dst)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "item %u flows from GPU %u to GPU %u; two different ones below %u are needed",
                    index, item->src, item->dst, platform->n_gpus);
        return FALSE;
    }
    if (item->kind == REFIT_NETSIM_FLOW && !(isfinite(item->bytes) && item->bytes > 0)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "item %u flows a number of bytes that is not positive and finite", index);
        return FALSE;
    }
    if (item->kind == REFIT_NETSIM_DELAY && !(isfinite(item->delay_s) && item->delay_s >= 0)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "item %u delays by a time that is negative or not finite", index);
        return FALSE;
    }
    if (begin > end) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "the successors of item %u end before they begin", index);
        return FALSE;
    }
    for (guint64 i = begin; i < end; i++)
        if ((graph->successors[i] & ~REFIT_NETSIM_ON_START) >= graph->n_items) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "item %u precedes item %u, but there are %u items", index,
                        graph->successors[i] & ~REFIT_NETSIM_ON_START, graph->n_items);
            return FALSE;
        } else if (!(isfinite(graph->lags_s[i]) && graph->lags_s[i] >= 0)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "item %u precedes item %u by a time that is negative or not finite", index,
                        graph->successors[i] & ~REFIT_NETSIM_ON_START);
            return FALSE;
        }
    return TRUE;
}

static gboolean check_acyclic(const RefitNetsimGraph *graph, GError **error) {
    g_autofree guint *left = g_new0(guint, graph->n_items);
    g_autofree guint *order = g_new(guint, graph->n_items);
    guint n = 0;

    for (guint64 i = 0; i < graph->successor_offsets[graph->n_items]; i++)
        left[graph->successors[i] & ~REFIT_NETSIM_ON_START]++;
    for (guint item = 0; item < graph->n_items; item++)
        if (left[item] == 0)
            order[n++] = item;
    for (guint next = 0; next < n; next++)
        for (guint64 i = graph->successor_offsets[order[next]];
             i < graph->successor_offsets[order[next] + 1]; i++) {
            guint successor = graph->successors[i] & ~REFIT_NETSIM_ON_START;
            if (--left[successor] == 0)
                order[n++] = successor;
        }
    if (n == graph->n_items)
        return TRUE;
    for (guint item = 0; item < graph->n_items; item++)
        if (left[item] > 0) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                        "item %u never ran: among the items it waits for, some wait for each other "
                        "in a cycle (%u of %u items are stuck)",
                        item, graph->n_items - n, graph->n_items);
            break;
        }
    return FALSE;
}

/* First line that the child wrote, for error messages: ": text", or "" when it wrote none. */
static char *first_line(int output) {
    char text[300];
    ssize_t length = pread(output, text, sizeof text - 1, 0);
    g_autofree char *valid = NULL;

    if (length <= 0)
        return g_strdup("");
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    valid = g_utf8_make_valid(text, -1);
    return g_strconcat(": ", valid, NULL);
}

/* Waits for the child and turns how it ended into TRUE or an error. */
static gboolean reap(pid_t child, int output, const RefitNetsimStatus *status,
                     const RefitNetsimGraph *graph, GError **error) {
    g_autofree char *said = NULL;
    pid_t got;
    int how = 0;

    do
        got = waitpid(child, &how, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "cannot wait for the simulation process: %s", g_strerror(errno));
        return FALSE;
    }
    said = first_line(output);
    if (WIFSIGNALED(how))
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "the simulation process was killed by signal %d (%s)%s", WTERMSIG(how),
                    g_strsignal(WTERMSIG(how)), said);
    else if (WEXITSTATUS(how) != 0)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "the simulation process ended with status %d%s", WEXITSTATUS(how), said);
    else if (status->error[0] != '\0')
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "SimGrid failed: %s", status->error);
    else if (status->n_done == graph->n_items)
        return TRUE;
    else if (check_acyclic(graph, error))
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "SimGrid ended after %" G_GUINT64_FORMAT " of %u items%s", status->n_done,
                    graph->n_items, said);
    return FALSE;
}

static gboolean run_in_child(RefitNetsimEngine engine, const RefitNetsimPlatform *platform,
                             const RefitNetsimGraph *graph, double precision_s,
                             RefitNetsimStatus *status, RefitNetsimTime *times, int output,
                             GError **error) {
    pid_t child = fork();

    if (child < 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "cannot start the simulation process: %s", g_strerror(errno));
        return FALSE;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
            _exit(126);
        engine(platform, graph, precision_s, times, status);
        _exit(0);
    }
    return reap(child, output, status, graph, error);
}

gboolean refit_netsim_run_with(RefitNetsimEngine engine, const RefitNetsimPlatform *platform,
                               const RefitNetsimGraph *graph, double resolution_s,
                               RefitNetsimTime *times_out, double *makespan_s_out, GError **error) {
    RefitNetsimStatus *status;
    gsize offset = (sizeof *status + 63) / 64 * 64, size;
    int output;
    gboolean ok;

    if (!check_platform(platform, error))
        return FALSE;
    if (graph->n_items >= REFIT_NETSIM_ON_START || !isfinite(resolution_s) || resolution_s < 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "a simulation needs fewer than 2^31 items and a resolution that is not "
                    "negative");
        return FALSE;
    }
    for (guint item = 0; item < graph->n_items; item++)
        if (!check_item(platform, graph, item, error))
            return FALSE;
    if (graph->n_items == 0) {
        *makespan_s_out = 0;
        return TRUE;
    }
    size = offset + (times_out != NULL ? graph->n_items * sizeof *times_out : 0);
    output = memfd_create("refit-netsim", MFD_CLOEXEC);
    status = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (output < 0 || status == MAP_FAILED) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "cannot set up shared memory for the simulation process: %s",
                    g_strerror(errno));
        ok = FALSE;
    } else {
        RefitNetsimTime *times = NULL;

        if (times_out != NULL)
            times = (RefitNetsimTime *)(gpointer)((char *)status + offset);
        ok = run_in_child(engine, platform, graph, MAX(resolution_s, EXACT_PRECISION_S), status,
                          times, output, error);
        if (ok && times_out != NULL)
            memcpy(times_out, times, graph->n_items * sizeof *times_out);
        if (ok)
            *makespan_s_out = status->makespan_s;
    }
    if (status != MAP_FAILED)
        munmap(status, size);
    if (output >= 0)
        close(output);
    return ok;
}

gboolean refit_netsim_run(const RefitNetsimPlatform *platform, const RefitNetsimGraph *graph,
                          double resolution_s, RefitNetsimTime *times_out, double *makespan_s_out,
                          GError **error) {
    return refit_netsim_run_with(refit_netsim_simgrid, platform, graph, resolution_s, times_out,
                                 makespan_s_out, error);
}
