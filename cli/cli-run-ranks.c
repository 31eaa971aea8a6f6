/*
 * All ranks on this machine: as processes, forked after planning so that they share the plan's
 * memory, or as threads where the executor asks for it. CUDA does not survive a fork, so this
 * process never touches it: whether the executor can run here is found out by a child of its own,
 * and said once instead of by every rank.
 *
 * A child reports its error through a pipe; its stderr is another, read line by line. The first
 * child that fails decides what is reported; the others learn of it through the rendezvous and have
 * GRACE_S to end by themselves.
 */

#include "cli/cli-run.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_S 5.0
#define KILL_S 2.0 /* from SIGTERM to SIGKILL */
enum { POLL_MS = 50, TOKEN_BYTES = 24, MAX_LINE = 16384 };

/* ---- children ---- */

typedef struct {
    guint rank;
    pid_t pid; /* 0: reaped */
    int lines_fd, error_fd;
    GString *line;     /* begun on stderr */
    GByteArray *error; /* code and text */
    gboolean told;     /* its end was asked for */
} Child;

typedef struct {
    const CliRun *run;
    GSocket *listener;
    guint port;
    char *token;
    GArray *children; /* of Child */
    gint64 term_us, kill_us;
    GError *failure; /* of the first that failed, or of the first that was killed */
    gboolean killed;
} Ranks;

static gboolean fail_of_system(const char *what, GError **error) {
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "cannot start ranks: %s: %s", what,
                g_strerror(errno));
    return FALSE;
}

/* What a child does instead of returning; ends it. */
typedef gboolean (*ChildFunc)(const Ranks *ranks, guint rank, GError **error);

static void write_error(int fd, const GError *error) {
    guint32 code = (guint32)error->code;
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    gsize done = 0;

    g_byte_array_append(bytes, (const guint8 *)&code, sizeof code);
    g_byte_array_append(bytes, (const guint8 *)error->message, (guint)strlen(error->message));
    while (done < bytes->len) {
        ssize_t n = write(fd, bytes->data + done, bytes->len - done);

        if (n <= 0)
            return; /* nobody reads; the exit status still says it */
        done += (gsize)n;
    }
}

static G_GNUC_NORETURN void be_child(const Ranks *ranks, guint rank, ChildFunc func, int lines_fd,
                                     int error_fd, pid_t parent) {
    g_autoptr(GError) error = NULL;
    int status = CLI_EXIT_YES;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        exit(CLI_EXIT_NO); /* it ended before that */
    /* Of the others', which would keep their writers from noticing that nobody reads. */
    for (guint i = 0; i < ranks->children->len; i++) {
        close(g_array_index(ranks->children, Child, i).lines_fd);
        close(g_array_index(ranks->children, Child, i).error_fd);
    }
    dup2(lines_fd, STDERR_FILENO);
    if (rank > 0)
        dup2(lines_fd, STDOUT_FILENO);
    close(lines_fd);
    if (!func(ranks, rank, &error)) {
        write_error(error_fd, error);
        status = refit_error_exit_code(error);
    }
    close(error_fd);
    exit(status);
}

static gboolean start_child(Ranks *ranks, guint rank, ChildFunc func, GError **error) {
    Child child = {.rank = rank}, *last;
    int lines[2], errors[2];
    pid_t parent = getpid();

    if (pipe(lines) != 0)
        return fail_of_system("pipe", error);
    if (pipe(errors) != 0) {
        close(lines[0]);
        close(lines[1]);
        return fail_of_system("pipe", error);
    }
    fflush(stdout); /* or the child would write it once more */
    fflush(stderr);
    child.pid = fork();
    if (child.pid == 0) {
        close(lines[0]);
        close(errors[0]);
        be_child(ranks, rank, func, lines[1], errors[1], parent);
    }
    close(lines[1]);
    close(errors[1]);
    if (child.pid < 0) {
        close(lines[0]);
        close(errors[0]);
        return fail_of_system("fork", error);
    }
    child.lines_fd = lines[0];
    child.error_fd = errors[0];
    (void)g_unix_set_fd_nonblocking(child.lines_fd, TRUE, NULL);
    (void)g_unix_set_fd_nonblocking(child.error_fd, TRUE, NULL);
    g_array_append_val(ranks->children, child);
    last = &g_array_index(ranks->children, Child, ranks->children->len - 1);
    last->line = g_string_new(NULL);
    last->error = g_byte_array_new();
    return TRUE;
}

static void clear_child(gpointer data) {
    Child *child = data;

    if (child->pid != 0) {
        kill(child->pid, SIGKILL);
        waitpid(child->pid, NULL, 0);
    }
    close(child->lines_fd);
    close(child->error_fd);
    g_string_free(child->line, TRUE);
    g_byte_array_unref(child->error);
}

static void print_line(Child *child) {
    fprintf(stderr, "rank %u: %s\n", child->rank, child->line->str);
    g_string_truncate(child->line, 0);
}

static void read_lines(Child *child) {
    char chunk[4096];
    ssize_t n;

    while ((n = read(child->lines_fd, chunk, sizeof chunk)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (chunk[i] != '\n')
                g_string_append_c(child->line, chunk[i]);
            if (chunk[i] == '\n' || child->line->len >= MAX_LINE)
                print_line(child);
        }
}

static void read_error(Child *child) {
    guint8 chunk[1024];
    ssize_t n;

    while ((n = read(child->error_fd, chunk, sizeof chunk)) > 0)
        g_byte_array_append(child->error, chunk, (guint)n);
}

/* Why a child that has ended has failed; NULL: it has not. */
static GError *judge(const Child *child, int status) {
    guint32 code;

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return NULL;
    if (child->error->len >= sizeof code) {
        g_autofree char *text = g_strndup((const char *)child->error->data + sizeof code,
                                          child->error->len - sizeof code);

        memcpy(&code, child->error->data, sizeof code);
        return g_error_new_literal(REFIT_ERROR, (int)code, text);
    }
    if (WIFSIGNALED(status))
        return g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND, "rank %u was ended by signal %d (%s)",
                           child->rank, WTERMSIG(status), g_strsignal(WTERMSIG(status)));
    return g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND, "rank %u ended with status %d",
                       child->rank, WEXITSTATUS(status));
}

static void reap(Ranks *ranks, Child *child) {
    int status;
    g_autoptr(GError) failure = NULL;

    if (child->pid == 0 || waitpid(child->pid, &status, WNOHANG) != child->pid)
        return;
    child->pid = 0;
    read_lines(child);
    if (child->line->len > 0)
        print_line(child);
    read_error(child);
    failure = judge(child, status);
    if (failure == NULL || child->told)
        return;
    if (ranks->term_us == 0)
        ranks->term_us = g_get_monotonic_time() + (gint64)(GRACE_S * G_USEC_PER_SEC);
    /* A rank that was killed is the cause of what the others saw, even when they end first. */
    if (ranks->failure == NULL || (WIFSIGNALED(status) && !ranks->killed)) {
        ranks->killed = WIFSIGNALED(status);
        g_clear_error(&ranks->failure);
        ranks->failure = g_steal_pointer(&failure);
    }
}

static void signal_all(Ranks *ranks, int signal_number) {
    for (guint i = 0; i < ranks->children->len; i++) {
        Child *child = &g_array_index(ranks->children, Child, i);

        if (child->pid != 0) {
            child->told = TRUE;
            kill(child->pid, signal_number);
        }
    }
}

static void enforce_grace(Ranks *ranks) {
    gint64 now_us = g_get_monotonic_time();

    if (ranks->kill_us > 0 && now_us >= ranks->kill_us) {
        signal_all(ranks, SIGKILL);
    } else if (ranks->kill_us == 0 && ranks->term_us > 0 && now_us >= ranks->term_us) {
        signal_all(ranks, SIGTERM);
        ranks->kill_us = now_us + (gint64)(KILL_S * G_USEC_PER_SEC);
    }
}

static void wait_for_children(Ranks *ranks) {
    const guint n = ranks->children->len;
    g_autofree struct pollfd *polls = g_new0(struct pollfd, n);
    gboolean any = TRUE;

    while (any) {
        any = FALSE;
        for (guint i = 0; i < n; i++) {
            const Child *child = &g_array_index(ranks->children, Child, i);

            polls[i] =
                (struct pollfd){.fd = child->pid != 0 ? child->lines_fd : -1, .events = POLLIN};
        }
        (void)poll(polls, n, POLL_MS);
        for (guint i = 0; i < n; i++) {
            Child *child = &g_array_index(ranks->children, Child, i);

            if (child->pid != 0) {
                read_lines(child);
                read_error(child); /* or a long one would not fit in the pipe */
                reap(ranks, child);
            }
            any |= child->pid != 0;
        }
        enforce_grace(ranks);
    }
}

/* ---- what children do ---- */

static gboolean probe(const Ranks *ranks, guint rank, GError **error) {
    const guint n_ranks = ranks->run->plan->problem->n_ranks;
    const RefitGpu *gpu = cli_executor_load(ranks->run->executor, error);
    guint n_devices;

    (void)rank;
    if (gpu == NULL)
        return FALSE;
    n_devices = gpu->n_devices();
    if (n_devices >= n_ranks)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED,
                "%u ranks need a GPU each, and this machine has %u; start them under a launcher on "
                "more machines",
                n_ranks, n_devices);
    return FALSE;
}

static gboolean join(const Ranks *ranks, guint rank, CliRunReport *report, GError **error) {
    const RefitLaunch launch = {.launcher = "--ranks",
                                .rank = rank,
                                .local_rank = rank,
                                .world = ranks->run->plan->problem->n_ranks,
                                .address = (char *)"127.0.0.1",
                                .port = ranks->port,
                                .token = ranks->token};

    return cli_run_rank(ranks->run, &launch, rank == 0 ? ranks->listener : NULL, NULL, report, NULL,
                        error);
}

static gboolean run_process(const Ranks *ranks, guint rank, GError **error) {
    g_auto(CliRunReport) report = {0};

    if (rank > 0) /* or it would seem to be served when rank 0 is gone */
        (void)g_socket_close(ranks->listener, NULL);
    if (!join(ranks, rank, &report, error))
        return FALSE;
    if (rank == 0) {
        if (!cli_run_report(ranks->run, &report, error))
            return FALSE;
        if (fflush(stdout) != 0 || ferror(stdout)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "cannot write to standard output");
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean run_processes(Ranks *ranks, GError **error) {
    for (guint rank = 0; rank < ranks->run->plan->problem->n_ranks; rank++)
        if (!start_child(ranks, rank, run_process, error))
            return FALSE; /* those that run are ended with `ranks` */
    g_clear_object(&ranks->listener);
    wait_for_children(ranks);
    if (ranks->failure == NULL)
        return TRUE;
    g_propagate_error(error, g_steal_pointer(&ranks->failure));
    return FALSE;
}

static gboolean probe_in_child(Ranks *ranks, GError **error) {
    if (!start_child(ranks, 0, probe, error))
        return FALSE;
    wait_for_children(ranks);
    g_array_set_size(ranks->children, 0);
    ranks->term_us = ranks->kill_us = 0;
    if (ranks->failure == NULL)
        return TRUE;
    g_propagate_error(error, g_steal_pointer(&ranks->failure));
    return FALSE;
}

/* ---- threads ---- */

typedef struct {
    const Ranks *ranks;
    guint rank;
    CliRunReport report;
    GError *error;
} RankThread;

static gpointer run_thread(gpointer data) {
    RankThread *thread = data;

    (void)join(thread->ranks, thread->rank, &thread->report, &thread->error);
    return NULL;
}

static gboolean run_threads(Ranks *ranks, GError **error) {
    const guint n = ranks->run->plan->problem->n_ranks;
    g_autofree RankThread *threads = g_new0(RankThread, n);
    g_autofree GThread **handles = g_new0(GThread *, n);
    GError *first = NULL;

    if (!probe(ranks, 0, error))
        return FALSE;
    for (guint rank = 0; rank < n; rank++) {
        threads[rank] = (RankThread){.ranks = ranks, .rank = rank};
        handles[rank] = g_thread_new("rank", run_thread, &threads[rank]);
    }
    for (guint rank = 0; rank < n; rank++)
        g_thread_join(handles[rank]);
    for (guint rank = 0; rank < n; rank++) {
        if (first == NULL)
            first = g_steal_pointer(&threads[rank].error);
        g_clear_error(&threads[rank].error);
    }
    if (first == NULL && !cli_run_report(ranks->run, &threads[0].report, &first))
        g_assert(first != NULL);
    cli_run_report_clear(&threads[0].report);
    if (first != NULL)
        g_propagate_error(error, first);
    return first == NULL;
}

/* ---- all ---- */

static char *draw_token(void) {
    guint8 bytes[TOKEN_BYTES];
    GString *token = g_string_new(NULL);

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return g_string_free(token, TRUE);
    for (guint i = 0; i < sizeof bytes; i++)
        g_string_append_printf(token, "%02x", bytes[i]);
    return g_string_free(token, FALSE);
}

gboolean cli_run_ranks(const CliRun *run, GError **error) {
    const gboolean as_threads = run->executor->wants_threads();
    Ranks ranks = {.run = run, .token = draw_token()};
    gboolean ok = FALSE;

    if (!as_threads)
        (void)signal(SIGCHLD, SIG_DFL); /* where it is ignored, no child can be waited for */
    ranks.children = g_array_new(FALSE, FALSE, sizeof(Child));
    g_array_set_clear_func(ranks.children, clear_child);
    if (ranks.token == NULL)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "the operating system gives no random bytes");
    else if (as_threads || probe_in_child(&ranks, error))
        ranks.listener = refit_rendezvous_listen("127.0.0.1", 0, &ranks.port, error);
    if (ranks.listener != NULL)
        ok = as_threads ? run_threads(&ranks, error) : run_processes(&ranks, error);
    g_array_unref(ranks.children);
    g_clear_object(&ranks.listener);
    g_clear_error(&ranks.failure);
    g_free(ranks.token);
    return ok;
}
