#pragma once

/*
 * What the tests of the CPU stand-in share. The stand-in reads its environment once and ends a
 * process that misuses it, so each test body runs in a child process; and ranks may be threads or
 * processes.
 */

#include <glib.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "standin.h"

G_BEGIN_DECLS

/*
 * Runs `body` in a child, with the variables of `environment` ("NAME=value", NULL at the end; may
 * be NULL) set, and fails the test unless the child ends with `code` (a signal counts as 128 + its
 * number) and, where `text` is not NULL, its stderr contains it.
 */
void child_expect(void (*body)(void), const char *const *environment, int code, const char *text);

/* The same in two steps, for children that run side by side. */
typedef struct Child Child;
Child *child_start(void (*body)(void), const char *const *environment);
/* What it said on stderr, when it has ended; caller frees the text. Frees `child`. */
char *child_end(Child *child, int *code_out);

/* child_expect of an orderly end. */
void child_passes(void (*body)(void), const char *const *environment);

/* In a child: ends it with status 1 and a message unless the condition holds. Works on any thread.
 */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            check_failed(__FILE__, __LINE__, #condition);                                          \
        }                                                                                          \
    } while (0)
#define CUDA(call) CHECK((call) == cudaSuccess)
#define NCCL(call) CHECK((call) == ncclSuccess)
G_NORETURN void check_failed(const char *file, int line, const char *what);

typedef struct {
    int rank, n;
    ncclComm_t comm;
    cudaStream_t stream;
} Rank;

typedef enum { RANKS_AS_THREADS, RANKS_AS_PROCESSES } RanksAs;

/* In a child: runs `body` for `n` ranks, rank r on device r with a communicator and a stream of its
 * own, and ends them in order. As processes, one that fails ends the child with its status. */
void ranks_run(int n, RanksAs as, void (*body)(Rank *rank));

/* The same without communicator and stream: the body makes its own of `id`. */
void ranks_run_bare(int n, RanksAs as, void (*body)(Rank *rank, const ncclUniqueId *id));

cudaStream_t stream_new(void);

/* Device memory of `size` bytes, all `value`. */
char *device_new(size_t size, int value);

/* All bytes have that value, read after `stream` has come to rest. */
void device_expect(cudaStream_t stream, const char *address, size_t size, int value);

G_END_DECLS
