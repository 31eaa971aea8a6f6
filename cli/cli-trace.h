#pragma once

/*
 * Traces: the events of a run as a file. One that ends in .json is for the viewers of Chrome and
 * Perfetto, one that ends in .csv for programs; both have the same events in the same order
 * (docs/formats.md).
 */

#include "cli/cli.h"

G_BEGIN_DECLS

/* Ranks whose events are written when nobody says which: all, if they are no more. */
#define CLI_TRACE_MANY_RANKS 64

/* What --trace and --trace-ranks ask for. */
typedef struct {
    const char *path; /* NULL: no trace; borrowed from the options */
    gboolean csv;
    guint n_ranks;
    guint8 *wanted; /* per rank */
} CliTrace;

void cli_trace_clear(CliTrace *trace);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(CliTrace, cli_trace_clear)

/* What can be said before the case is known; a mistake is one of the command line. */
gboolean cli_trace_check(const Cli *cli, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* CLI_EXIT_YES, or the exit code that goes with the error. Does not look for the file. */
int cli_trace_read(const Cli *cli, const RefitProblem *problem, CliTrace *trace_out, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;

/* A RefitEventFunc: keeps those of the ranks that are wanted. */
typedef struct {
    const CliTrace *trace;
    GArray *events; /* of RefitEvent */
} CliTraceKeeper;
void cli_trace_keep(const RefitEvent *event, gpointer keeper);

/* What the events are of. */
typedef struct {
    const RefitPlan *plan;
    const char *executor, *note; /* `note`: what results must say about it, or NULL */
    gboolean predicted, exact;   /* `exact`: an event per turn */
} CliTraceOrigin;

/* Sorts `events`. Nothing when no trace is wanted. */
gboolean cli_trace_write(const Cli *cli, const CliTrace *trace, const CliTraceOrigin *origin,
                         GArray *events, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* A line, and a member of the same name; nothing when no trace is wanted. */
void cli_print_trace(const CliTrace *trace, const GArray *events);
void cli_json_trace(RefitJson *json, const CliTrace *trace, const GArray *events);

G_END_DECLS
