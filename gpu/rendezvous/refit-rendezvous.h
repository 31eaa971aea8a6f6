#pragma once

/*
 * Rendezvous: how the ranks of a job meet over TCP before and beside NCCL.
 *
 * Rank 0 listens on one stated address; a thread of its process, the hub, serves the others. Every
 * peer proves that it knows the job's token, which itself never crosses the network, and so does
 * the hub. What is exchanged is small and collective: all ranks call the same functions in the same
 * order with the same `what`, idle ranks too. Nothing waits without limit: an exchange that not all
 * ranks reach within the time-out fails on all of them and names those absent.
 *
 * When a rank fails, tells so or goes away, all others learn which one and why, in the exchange
 * that they are in or from refit_rendezvous_check(). The hub asks all ranks first, so that those
 * which no longer answer are named as well. In a job of several hosts, ranks are named with theirs:
 * "rank 4 (node0042)".
 *
 * A rendezvous is used by one thread at a time. Texts are cut at REFIT_RENDEZVOUS_TEXT bytes.
 * Errors are REFIT_ERROR_BACKEND when not stated otherwise, or have the code of the rank that
 * failed.
 */

#include <gio/gio.h>

G_BEGIN_DECLS

#define REFIT_RENDEZVOUS_VERSION 2U
#define REFIT_RENDEZVOUS_MAX_WORLD 65536U
#define REFIT_RENDEZVOUS_MAX_RECORD 65536 /* bytes that a rank contributes to an exchange */
/* Most that world * (size + 1) may be in an exchange that gathers. */
#define REFIT_RENDEZVOUS_MAX_EXCHANGE (64 << 20)
#define REFIT_RENDEZVOUS_TEXT 1024
#define REFIT_RENDEZVOUS_MIN_TOKEN 8U
/* How long a failing rank and the hub wait for what the others say. */
#define REFIT_RENDEZVOUS_GRACE_S 2.0

typedef struct {
    guint rank, world;
    const char *address; /* of rank 0: a host name or number */
    guint port;
    const char *token;   /* the same text on all ranks, at least REFIT_RENDEZVOUS_MIN_TOKEN bytes */
    double timeout_s;    /* for joining and for each exchange */
    const char *host;    /* name of the one that this rank is on; NULL: errors do without */
    gboolean *tells_out; /* takes, when joining fails, refit_rendezvous_tells(); NULL: not wanted */
} RefitRendezvousOptions;

typedef struct _RefitRendezvous RefitRendezvous;

/*
 * A socket that listens on `address` only; `port` 0: any free one. *port_out (may be NULL) takes
 * the port. For launchers that start rank 0 later, and for tests. Free with g_object_unref.
 */
GSocket *refit_rendezvous_listen(const char *address, guint port, guint *port_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/*
 * Joins; returns when all ranks have. Rank 0 serves on `listener` (borrowed), or listens on its
 * options' address when that is NULL; other ranks pass NULL and connect, trying again until the
 * time-out, as rank 0 may start later. `options` need not outlive the call. REFIT_ERROR_INVALID for
 * options that cannot be.
 */
RefitRendezvous *refit_rendezvous_new(const RefitRendezvousOptions *options, GSocket *listener,
                                      GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Leaves. On rank 0, waits until all others have left too, at most for the time-out, or for the
 * grace time after a failure. */
void refit_rendezvous_free(RefitRendezvous *rendezvous);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitRendezvous, refit_rendezvous_free)

guint refit_rendezvous_rank(const RefitRendezvous *rendezvous);
guint refit_rendezvous_world(const RefitRendezvous *rendezvous);

/* Returns when all ranks have called it. `what`: a few words for messages, at most 100 bytes. */
gboolean refit_rendezvous_barrier(RefitRendezvous *rendezvous, const char *what, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* `bytes` of rank 0 replace those of all others; all state the same size. */
gboolean refit_rendezvous_broadcast(RefitRendezvous *rendezvous, const char *what, void *bytes,
                                    gsize size, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* *all_out takes the records of all ranks, by rank, each of `size` bytes. Free with g_free. Bytes
 * through rank 0: world * world * size; REFIT_ERROR_LIMIT when world * (size + 1) is above
 * REFIT_RENDEZVOUS_MAX_EXCHANGE. */
gboolean refit_rendezvous_gather(RefitRendezvous *rendezvous, const char *what, const void *record,
                                 gsize size, guint8 **all_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* The same for rank 0 only; *all_out is NULL on other ranks. Bytes through rank 0: world * size. */
gboolean refit_rendezvous_report(RefitRendezvous *rendezvous, const char *what, const void *record,
                                 gsize size, guint8 **all_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Like refit_rendezvous_report() into `all` of world * size bytes, but does without those that do
 * not come within `timeout_s` of the first: came[rank] takes 1 for each rank that has, and records
 * of others are zero. Both are of rank 0 alone, which is told the same however late it comes, and
 * NULL elsewhere. When rank 0 itself is absent all ranks fail, with one error, whenever they come.
 */
gboolean refit_rendezvous_collect(RefitRendezvous *rendezvous, const char *what, const void *record,
                                  gsize size, void *all, guint8 *came, double timeout_s,
                                  GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Like refit_rendezvous_broadcast(), but waits for rank 0 alone: ranks that come later find its
 * bytes there.
 */
gboolean refit_rendezvous_spread(RefitRendezvous *rendezvous, const char *what, void *bytes,
                                 gsize size, double timeout_s, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* TRUE when `record` is the same on all ranks; else the error (REFIT_ERROR_INVALID) names the first
 * that differs from rank 0. */
gboolean refit_rendezvous_same(RefitRendezvous *rendezvous, const char *what, const void *record,
                               gsize size, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * TRUE when `mine` is NULL on all ranks; else FALSE on all of them, with the code and text of the
 * lowest rank that has one and how many more have. An orderly end: nobody is cut off.
 */
gboolean refit_rendezvous_agree(RefitRendezvous *rendezvous, const char *what, const GError *mine,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* FALSE when a rank has failed. Never waits. Call it every few milliseconds in long waits: a rank
 * that does not is called silent when another fails. */
gboolean refit_rendezvous_check(RefitRendezvous *rendezvous, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Tells all ranks that this one has failed, waits at most twice the grace time for what the hub
 * makes of it and returns that: the error to report. Takes ownership of `mine`.
 */
GError *refit_rendezvous_fail(RefitRendezvous *rendezvous, GError *mine) G_GNUC_WARN_UNUSED_RESULT;

/*
 * Of an error that all ranks return, whether this one is to tell its user, so that a job says it
 * once: rank 0 while it is there; else the lowest rank that answers; when rank 0 has gone away, the
 * lowest rank on another host, as its own may be down, or rank 1 where there is none. A rank whose
 * failure the others have not heard of tells it itself.
 */
gboolean refit_rendezvous_tells(const RefitRendezvous *rendezvous);

/* "3, 7-9", at most eight ranges, then "and 12 more". `member[rank]` tells which. With `hosts` (per
 * rank, NULL for one that is not known; all NULL: without) "3, 7-9 (node0), 10 (node1)". */
char *refit_ranks_to_string(const guint8 *member, guint world, char *const *hosts);

G_END_DECLS
