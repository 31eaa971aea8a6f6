#pragma once

/*
 * `refit run` in parts: what all ranks know (cmd-run.c), what one rank does (cli-run-rank.c), ranks
 * as processes or threads of this program (cli-run-ranks.c), and what rank 0 makes of it all
 * (cli-run-report.c).
 */

#include "cli/cli-executor.h"
#include "cli/cli-trace.h"
#include "gpu/rendezvous/refit-launch.h"
#include "gpu/rendezvous/refit-rendezvous.h"

G_BEGIN_DECLS

/* The same on all ranks; read only. */
typedef struct {
    const Cli *cli;
    const RefitPlan *plan;
    const RefitSchedule *schedule;
    const CliExecutor *executor;
    const guint *domains, *nodes; /* per rank */
    guint repeat;
    gboolean verify;
    double timeout_s;
    const CliTrace *trace; /* of the last run */
} CliRun;

/* What a rank reports about all its runs. A plain record: it is sent. */
typedef struct {
    guint64 in[REFIT_N_LINKS], out[REFIT_N_LINKS];     /* of each run */
    guint64 n_groups, n_launches, staging_bytes;       /* of each run */
    guint64 connection_bytes, connections_taken_bytes; /* see RefitGpuResult */
} CliRankReport;

/* On rank 0. */
typedef struct {
    guint n_ranks, repeat, n_stages;
    char *place_note; /* what could not be checked of where ranks are; NULL: nothing */
    CliRankReport *ranks;
    double *agreed_s;      /* per run: until all ranks agreed, the longest of all ranks */
    double *duration_s;    /* per run: first to last operation, the longest of all ranks */
    RefitGpuStage *stages; /* of the last run: first start, last end, longest busy of all ranks */
    GArray *events;        /* of the last run, those that a trace wants; NULL: none is wanted */
} CliRunReport;

void cli_run_report_clear(CliRunReport *report);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(CliRunReport, cli_run_report_clear)

/*
 * One rank from its joining to its leaving. `listener`: on rank 0, may be NULL. `early` is what has
 * failed on this rank before (NULL: nothing; ownership taken): then it joins to say so, and of
 * `run` there need be no more than `cli` and the time-out. *report_out is written on rank 0 only.
 * All ranks return the same error where they can; *tells_out (may be NULL) takes whether this one
 * is to tell the user, so that it is told once.
 */
gboolean cli_run_rank(const CliRun *run, const RefitLaunch *launch, GSocket *listener,
                      GError *early, CliRunReport *report_out, gboolean *tells_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/*
 * On rank 0, when its executor is closed: writes the trace, predicts the same schedule, and prints
 * what was measured beside that.
 */
gboolean cli_run_report(const CliRun *run, const CliRunReport *report, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/*
 * All ranks of the plan on this machine. When one fails the others have a grace time to end; then
 * they are ended. Of all that the ranks say on stderr, each line is given its rank. The error is
 * that of the rank that failed first.
 */
gboolean cli_run_ranks(const CliRun *run, GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
