#pragma once

/*
 * Jobs whose ranks meet in a test: options, ranks as threads, and what an error must say.
 */

#include "gpu/rendezvous/refit-rendezvous-private.h"
#include "model/base/refit-error.h"

#include <string.h>

#define TOKEN "a token of this job"
#define SHORT_S 0.4
#define LONG_S 20.0

typedef struct _Job Job;
typedef void (*RankFunc)(RefitRendezvous *rendezvous, guint rank, Job *job);

struct _Job {
    guint world, port;
    GSocket *listener;
    double timeout_s;
    RankFunc func;
    gpointer data;
    GError *errors[16];       /* of joining */
    const char *const *hosts; /* per rank; NULL: none is stated */
    gboolean tells[16];       /* when joining failed */
};

typedef struct {
    Job *job;
    guint rank;
} Rank;

static inline RefitRendezvousOptions options_of(Job *job, guint rank) {
    return (RefitRendezvousOptions){.rank = rank,
                                    .world = job->world,
                                    .address = "127.0.0.1",
                                    .port = job->port,
                                    .token = TOKEN,
                                    .timeout_s = job->timeout_s,
                                    .host = job->hosts != NULL ? job->hosts[rank] : NULL,
                                    .tells_out = &job->tells[rank]};
}

static inline gpointer run_rank(gpointer data) {
    Rank *rank = data;
    Job *job = rank->job;
    RefitRendezvousOptions options = options_of(job, rank->rank);
    g_autoptr(RefitRendezvous) rendezvous = refit_rendezvous_new(
        &options, rank->rank == 0 ? job->listener : NULL, &job->errors[rank->rank]);

    if (rendezvous != NULL && job->func != NULL)
        job->func(rendezvous, rank->rank, job);
    return NULL;
}

static inline void init_job(Job *job, guint world, double timeout_s, RankFunc func) {
    g_autoptr(GError) error = NULL;

    *job = (Job){.world = world, .timeout_s = timeout_s, .func = func};
    job->listener = refit_rendezvous_listen("127.0.0.1", 0, &job->port, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(job->port, >, 0);
}

static inline void clear_job(Job *job) {
    g_clear_object(&job->listener);
    for (guint rank = 0; rank < G_N_ELEMENTS(job->errors); rank++)
        g_clear_error(&job->errors[rank]);
}

/* Ranks [first, first + n) as threads. */
static inline void run_ranks(Job *job, guint first, guint n) {
    GThread *threads[16];
    Rank ranks[16];

    g_assert_cmpuint(n, <=, G_N_ELEMENTS(threads));
    for (guint i = 0; i < n; i++) {
        ranks[i] = (Rank){job, first + i};
        threads[i] = g_thread_new("rank", run_rank, &ranks[i]);
    }
    for (guint i = 0; i < n; i++)
        g_thread_join(threads[i]);
}

static inline void run_all(guint world, RankFunc func, gpointer data) {
    Job job;

    init_job(&job, world, LONG_S, func);
    job.data = data;
    run_ranks(&job, 0, world);
    for (guint rank = 0; rank < world; rank++)
        g_assert_no_error(job.errors[rank]);
    clear_job(&job);
}

static inline void assert_says(const GError *error, const char *text) {
    g_assert_nonnull(error);
    g_assert_true(error->domain == REFIT_ERROR);
    if (strstr(error->message, text) == NULL)
        g_error("\"%s\" does not say \"%s\"", error->message, text);
}
