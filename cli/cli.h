#pragma once

/*
 * What the commands of the `refit` program share. Commands parse options, call the library and
 * print; they hold no logic that a user of the library would miss. stdout carries data, stderr
 * talk; exit codes are those of REFIT_ERROR_MAP, 0 yes, 1 no, 2 usage.
 */

#include "cli/cli-table.h"
#include "model/case/refit-values.h"
#include "model/predict/refit-executor.h"
#include "model/predict/refit-prediction.h"
#include "model/strategy/refit-strategy.h"

G_BEGIN_DECLS

enum { CLI_EXIT_YES = 0, CLI_EXIT_NO = 1, CLI_EXIT_USAGE = 2 };

/* Options of all commands; each command accepts the ones its table entry names. */
typedef struct {
    char *strategy;
    char *output; /* -o; --svg of `refit show`; "-" is stdout, which then holds nothing else */
    char *rank;   /* --rank */
    char *tensor; /* --tensor */
    char **set;   /* --set, repeated */
    char *timeout, *executor;
    char *trace, *trace_ranks;
    gint ranks; /* 0: not given */
    gint repeat;
    gboolean verify;
    gboolean exact;
    gboolean json;
    gboolean timings;
    gboolean force; /* -f: overwrite an existing output file or trace */
    gboolean quiet;
    gboolean help;
} CliOptions;

/* One bit per option, for the command table. */
typedef enum {
    CLI_OPTION_STRATEGY = 1 << 0,
    CLI_OPTION_OUTPUT = 1 << 1,
    CLI_OPTION_SET = 1 << 2,
    CLI_OPTION_JSON = 1 << 3,
    CLI_OPTION_TIMINGS = 1 << 4,
    CLI_OPTION_LAYOUT = 1 << 5, /* --rank, --tensor and --svg */
    CLI_OPTION_RUN = 1 << 6,    /* --ranks, --repeat, --verify, --timeout and --executor */
    CLI_OPTION_TRACE = 1 << 7,  /* --trace and --trace-ranks */
    CLI_OPTION_EXACT = 1 << 8,
} CliOptionFlags;

typedef struct {
    RefitStore store;
    CliOptions options;
    char **arguments;     /* after the command name; NULL-terminated */
    gboolean progress;    /* stderr is a terminal and nobody asked for --quiet or --json */
    gboolean others_tell; /* of the error: another rank of this job prints it */
} Cli;

typedef struct {
    const char *name;
    const char *arguments; /* "CASE" */
    const char *summary;   /* one line */
    const char *help;      /* paragraphs for `refit COMMAND --help`, with an example */
    CliOptionFlags options;
    guint min_arguments, max_arguments;
    /* Exit code. With `error` set, CLI_EXIT_USAGE blames the command line; else any value. */
    int (*run)(Cli *cli, GError **error);
} CliCommand;

int cli_plan(Cli *cli, GError **error);
int cli_predict(Cli *cli, GError **error);
int cli_compare(Cli *cli, GError **error);
int cli_run(Cli *cli, GError **error);
int cli_show(Cli *cli, GError **error);

/* ---- console ---- */

/* Prints `text` to stdout. */
void cli_print(const char *format, ...) G_GNUC_PRINTF(1, 2);
/* A line of cli_labelled(). */
void cli_print_labelled(const char *label, const char *format, ...) G_GNUC_PRINTF(2, 3);
void cli_print_table(const CliTable *table);
/* "1 batch", "2 batches", "0 GPUs": the count and its noun, given in the singular. Free with
 * g_free. */
char *cli_count(guint64 n, const char *noun);
/* A line of progress on stderr that the next one replaces; nothing unless cli->progress. */
void cli_progress(const Cli *cli, const char *format, ...) G_GNUC_PRINTF(2, 3);
void cli_progress_done(const Cli *cli);
/* Ends `json` and prints it to stdout; takes ownership. */
void cli_print_json(RefitJson *json);
/* The path is "-". */
gboolean cli_is_stdout(const char *path);
/* Refuses to replace an existing file without --force; asked before any work is done. `path` may be
 * NULL. */
gboolean cli_check_output(const Cli *cli, const char *path, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* Writes a file through a temporary name, so that it is whole or absent. */
gboolean cli_write_output(const Cli *cli, const char *path, const char *data, gsize length,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Seconds of a monotonic clock, and the largest resident size so far of this program and of its
 * finished children, in bytes. */
double cli_clock_s(void);
guint64 cli_peak_rss_bytes(void);

/* ---- cases ---- */

/* Case NAME or PATH with --set applied, and its problem. Free the problem first. */
gboolean cli_load_case(const Cli *cli, const char *name, RefitCase **case_out,
                       RefitProblem **problem_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* Prints what the case is: model, sides, topology, costs that are on, budget. */
/* Tensors that no family knows, with their bytes; nothing when there are none. */
void cli_print_unknown(const RefitModel *model);
void cli_json_unknown(RefitJson *json, const RefitModel *model);
void cli_print_case(const RefitCase *refit_case);
/* Which of a strategy's shapes was taken, when it is not the usual one. */
void cli_print_shape(const RefitPlan *plan);
/* The forms of the weights: on the wire, held by the source, installed by each destination. */
typedef struct {
    guint64 held_bytes;       /* all GPUs of the source that have not failed, copies counted */
    guint64 *installed_bytes; /* per destination: all such GPUs of it */
} CliForms;
void cli_forms_clear(CliForms *forms);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(CliForms, cli_forms_clear)
gboolean cli_forms_measure(const RefitCase *refit_case, CliForms *forms_out, GError **error);
/* One line, where a side holds another form than that on the wire. */
void cli_print_forms(const RefitCase *refit_case, const CliForms *forms);
/* Members "forms", "wire_bytes", "held_bytes" and "installed_bytes". */
void cli_json_forms(RefitJson *json, const RefitCase *refit_case, const CliForms *forms);
/* The GPUs that are gone, when there are any. */
void cli_json_failed(RefitJson *json, const RefitCase *refit_case);
/* What the layouts' readers noted, when they did. */
void cli_print_notes(const RefitLayout *layout);
void cli_json_notes(RefitJson *json, const RefitCase *refit_case);
/* Members "profile" and "terms_on". */
void cli_json_profile(RefitJson *json, const RefitProfile *profile);
void cli_json_bound(RefitJson *json, const RefitBound *bound);

/* Transfers counted per tensor: a class transfer once for each member. */
guint64 cli_count_transfers(const RefitPlan *plan);

/* What --timings adds; both do nothing without it. */
typedef struct {
    double plan_s, simulate_s;
} CliTimings;
void cli_print_timings(const Cli *cli, const CliTimings *timings);
void cli_json_timings(const Cli *cli, RefitJson *json, const CliTimings *timings);

/* A plan and its schedule, which borrows it. */
typedef struct {
    RefitPlan *plan;
    RefitSchedule *schedule;
} CliPlanned;
void cli_planned_clear(CliPlanned *planned);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(CliPlanned, cli_planned_clear)
/* Plans with `strategy` and, when `prediction_out` is not NULL, simulates. `options` may be NULL.
 */
gboolean cli_plan_and_predict(const Cli *cli, const RefitProblem *problem,
                              const RefitStrategy *strategy, CliPlanned *planned_out,
                              const RefitPredictionOptions *options,
                              RefitPrediction *prediction_out, CliTimings *timings_out,
                              GError **error) G_GNUC_WARN_UNUSED_RESULT;

G_END_DECLS
