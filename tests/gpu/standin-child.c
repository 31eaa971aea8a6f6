/*
 * Children and ranks of the stand-in's tests. A test forks before anything has started a thread, so
 * that the child is a fresh process to the stand-in and to the sanitizers; it reports through its
 * exit status and stderr.
 */

#include "standin-child.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 256

#if defined(__SANITIZE_THREAD__)
/* A child has waited for its streams when it ends: no need to sleep for late races. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "atexit_sleep_ms=0";
}
#endif

void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: not so: %s (NCCL: %s)\n", file, line, what, ncclGetLastError(NULL));
    fflush(stderr);
    _exit(1);
}

/* ---- children ---- */

struct Child {
    pid_t pid;
    int said; /* a file of its stderr: it never waits for a reader */
};

static char *read_from_start(int file) {
    GString *text = g_string_new(NULL);
    char bytes[4096];
    gssize n;
    g_assert_cmpint(lseek(file, 0, SEEK_SET), ==, 0);
    while ((n = read(file, bytes, sizeof bytes)) > 0) {
        g_string_append_len(text, bytes, n);
    }
    return g_string_free(text, FALSE);
}

static int status_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Child *child_start(void (*body)(void), const char *const *environment) {
    Child *child = g_new0(Child, 1);

    child->said = memfd_create("stderr of a child", MFD_CLOEXEC);
    g_assert_cmpint(child->said, >=, 0);
    fflush(stdout);
    child->pid = fork();
    g_assert_cmpint(child->pid, >=, 0);
    if (child->pid == 0) {
        dup2(child->said, STDERR_FILENO);
        close(child->said);
        g_free(child);
        for (guint i = 0; environment != NULL && environment[i] != NULL; i++) {
            g_auto(GStrv) parts = g_strsplit(environment[i], "=", 2);
            g_setenv(parts[0], parts[1], TRUE);
        }
        body();
        exit(0);
    }
    return child;
}

char *child_end(Child *child, int *code_out) {
    int status;

    g_assert_cmpint(waitpid(child->pid, &status, 0), ==, child->pid);
    *code_out = status_of(status);
    char *said = read_from_start(child->said);
    close(child->said);
    g_free(child);
    return said;
}

void child_expect(void (*body)(void), const char *const *environment, int code, const char *text) {
    int ended;
    g_autofree char *said = child_end(child_start(body, environment), &ended);
    if (ended != code || (text != NULL && strstr(said, text) == NULL)) {
        g_test_message("child ended with %d, not %d, and said:\n%s", ended, code, said);
        g_test_fail();
    }
}

void child_passes(void (*body)(void), const char *const *environment) {
    child_expect(body, environment, 0, NULL);
}

/* ---- ranks ---- */

/* Seen by all ranks, also as processes. */
typedef struct {
    _Atomic bool announced;
    ncclUniqueId id;
} Shared;

typedef struct {
    Rank rank;
    Shared *shared;
    void (*body)(Rank *rank);
    void (*bare_body)(Rank *rank, const ncclUniqueId *id);
} RankRun;

static void *rank_main(void *argument) {
    RankRun *run = argument;
    Rank *rank = &run->rank;

    CUDA(cudaSetDevice(rank->rank));
    if (rank->rank == 0) {
        NCCL(ncclGetUniqueId(&run->shared->id));
        atomic_store(&run->shared->announced, true);
    }
    while (!atomic_load(&run->shared->announced)) {
        g_usleep(100);
    }
    if (run->bare_body != NULL) {
        run->bare_body(rank, &run->shared->id);
        return NULL;
    }
    NCCL(ncclCommInitRank(&rank->comm, rank->n, run->shared->id, rank->rank));
    rank->stream = stream_new();
    run->body(rank);
    CUDA(cudaStreamSynchronize(rank->stream));
    CUDA(cudaStreamDestroy(rank->stream));
    if (rank->comm != NULL) {
        NCCL(ncclCommDestroy(rank->comm));
    }
    return NULL;
}

static void run_threads(int n, RankRun *runs) {
    pthread_t threads[MAX_RANKS];
    for (int i = 0; i < n; i++) {
        CHECK(pthread_create(&threads[i], NULL, rank_main, &runs[i]) == 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void run_processes(int n, RankRun *runs) {
    int code = 0;
    for (int i = 0; i < n; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            rank_main(&runs[i]);
            exit(0);
        }
    }
    for (int i = 0; i < n; i++) {
        int status;
        CHECK(wait(&status) > 0);
        code = MAX(code, status_of(status));
    }
    if (code != 0) {
        fflush(stderr);
        _exit(code);
    }
}

static void run_ranks(int n, RanksAs as, void (*body)(Rank *),
                      void (*bare_body)(Rank *, const ncclUniqueId *)) {
    RankRun runs[MAX_RANKS] = {0};
    Shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(n <= MAX_RANKS && shared != MAP_FAILED);
    for (int i = 0; i < n; i++) {
        runs[i] = (RankRun){{.rank = i, .n = n}, shared, body, bare_body};
    }
    if (as == RANKS_AS_THREADS) {
        run_threads(n, runs);
    } else {
        run_processes(n, runs);
    }
    munmap(shared, sizeof *shared);
}

void ranks_run(int n, RanksAs as, void (*body)(Rank *rank)) {
    run_ranks(n, as, body, NULL);
}

void ranks_run_bare(int n, RanksAs as, void (*body)(Rank *rank, const ncclUniqueId *id)) {
    run_ranks(n, as, NULL, body);
}

/* ---- device ---- */

cudaStream_t stream_new(void) {
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

char *device_new(size_t size, int value) {
    char *address;
    CUDA(cudaMalloc((void **)&address, size));
    CUDA(cudaMemset(address, value, size));
    return address;
}

void device_expect(cudaStream_t stream, const char *address, size_t size, int value) {
    g_autofree char *bytes = g_malloc(size);
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(bytes, address, size, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < size; i++) {
        CHECK(bytes[i] == (char)value);
    }
}
