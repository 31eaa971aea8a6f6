/*
 * The `refit` program: finds the command in the one table below, parses its options, runs it, and
 * turns its outcome into an exit code. Help, usage errors and the list of commands all come from
 * the table, so they cannot disagree.
 */

#include "cli/cli.h"
#include "cli/refit-config.h"
#include "lib/refit-disk.h"
#include "sim/refit-netsim.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const CliCommand commands[] = {
    {
        .name = "compare",
        .arguments = "CASE",
        .summary = "all strategies on one case, side by side with the bound",
        .help = "Plans and simulates every strategy; shows times and bytes next to the bound\n"
                "that no plan can beat. CASE is a shipped name (`refit show case` lists them) or\n"
                "a file: a text with a / or ending in .yaml, .yml or .json. Says which strategies\n"
                "meet a time budget; the exit code does not depend on it.\n\n"
                "  refit compare deepseek-v3-h100\n"
                "  refit compare my-case.yaml --set topology.nic_bandwidth=100GBps --json\n",
        .options = CLI_OPTION_SET | CLI_OPTION_JSON | CLI_OPTION_TIMINGS,
        .min_arguments = 1,
        .max_arguments = 1,
        .run = cli_compare,
    },
    {
        .name = "predict",
        .arguments = "CASE",
        .summary = "time and bytes of one strategy, simulated",
        .help = "Makes one plan and simulates it with SimGrid. When the case has a time budget,\n"
                "the first line says whether the step fits it, and the exit code is 1 when it\n"
                "does not. --trace writes when each GPU packs, sends, receives, unpacks, copies\n"
                "and installs; Perfetto (ui.perfetto.dev) shows a .json file. Large cases take\n"
                "several turns of a GPU as one; --exact takes each as `refit run` does.\n\n"
                "  refit predict deepseek-v3-h100 --strategy hybrid\n"
                "  refit predict tiny --set 'budget={time: 1s}'\n"
                "  refit predict tiny --exact --trace tiny.json\n",
        .options = CLI_OPTION_STRATEGY | CLI_OPTION_SET | CLI_OPTION_JSON | CLI_OPTION_TIMINGS |
                   CLI_OPTION_TRACE | CLI_OPTION_EXACT,
        .min_arguments = 1,
        .max_arguments = 1,
        .run = cli_predict,
    },
    {
        .name = "plan",
        .arguments = "CASE",
        .summary = "make, prove and save a plan",
        .help = "Makes a plan, proves that it delivers every needed element exactly once, and\n"
                "shows what it moves, the staging memory that carrying it out may take, and in\n"
                "how many turns GPUs do it. With a staging budget the exit code is 1 when the\n"
                "memory is more. With -o the whole plan is written as JSON, for other programs\n"
                "and for `refit show plan`.\n\n"
                "  refit plan qwen3-30b-h100 -o plan.json\n"
                "  refit plan qwen3-30b-h100 --set 'budget={staging: 1GiB}'\n",
        .options = CLI_OPTION_STRATEGY | CLI_OPTION_OUTPUT | CLI_OPTION_SET | CLI_OPTION_JSON |
                   CLI_OPTION_TIMINGS,
        .min_arguments = 1,
        .max_arguments = 1,
        .run = cli_plan,
    },
    {
        .name = "run",
        .arguments = "CASE",
        .summary = "carry a plan out on GPUs, with CUDA and NCCL",
        .help = "Makes one plan and moves synthetic weights by it, on one rank per GPU of the\n"
                "case's topology. With --verify, every byte of every rank is compared. Exit code\n"
                "1 when a byte is wrong, or other bytes have moved than were planned. Ends with\n"
                "the times that the simulator predicts of the same plan, stage by stage; --trace\n"
                "writes when each GPU did what in the last run, as `refit predict` does.\n\n"
                "Ranks are started here with --ranks, or by torchrun, srun or mpirun; then\n"
                "REFIT_TOKEN must hold the same secret text on all ranks.\n\n"
                "  refit run tiny --ranks 8 --verify\n"
                "  srun -N 2 -n 8 refit run tiny --verify --repeat 10\n",
        .options = CLI_OPTION_STRATEGY | CLI_OPTION_SET | CLI_OPTION_JSON | CLI_OPTION_RUN |
                   CLI_OPTION_TRACE,
        .min_arguments = 1,
        .max_arguments = 1,
        .run = cli_run,
    },
    {
        .name = "show",
        .arguments = "model|layout|topology|profile|case|plan [NAME]",
        .summary = "what a model, layout, topology, profile, case or plan file holds",
        .help = "Without NAME, lists what is shipped. NAME is a shipped name or a file; a layout\n"
                "is shown by its case, a plan by its file from `refit plan -o`. --set takes the\n"
                "keys of a case, or those of its model (dtype, mtp), topology or profile.\n\n"
                "  refit show model deepseek-v3 --set dtype=native\n"
                "  refit show layout tiny\n"
                "  refit show layout tiny --rank 5 --tensor '*.0.*q_proj*'\n"
                "  refit show layout tiny --tensor '*.0.*.0.up_proj*' --svg picture.svg\n"
                "  refit show topology \"node:4 gpu:8 nvlink:450GBps nic:50GBps\"\n",
        .options = CLI_OPTION_SET | CLI_OPTION_JSON | CLI_OPTION_LAYOUT,
        .min_arguments = 1,
        .max_arguments = 2,
        .run = cli_show,
    },
};

/* Names and summaries below each other, indented by two. */
static void print_names(FILE *stream, const char *title, const CliTable *table) {
    g_autofree char *text = cli_table_to_string(table);

    fprintf(stream, "\n%s\n", title);
    fputs(text, stream);
}

static CliTable *new_names(void) {
    CliTable *table = cli_table_new();

    cli_table_add_column(table, "", "", CLI_LEFT);
    cli_table_add_column(table, "", "", CLI_LEFT);
    return table;
}

static void add_name(CliTable *table, const char *name, const char *summary) {
    cli_table_add_cell(table, g_strconcat("  ", name, NULL));
    cli_table_add_cell(table, g_strdup(summary));
}

static void print_overview(FILE *stream) {
    g_autoptr(CliTable) command_names = new_names();
    g_autoptr(CliTable) strategy_names = new_names();

    for (guint i = 0; i < G_N_ELEMENTS(commands); i++)
        add_name(command_names, commands[i].name, commands[i].summary);
    for (guint i = 0; refit_strategies()[i] != NULL; i++)
        add_name(strategy_names, refit_strategies()[i]->name, refit_strategies()[i]->summary);
    fputs("Usage: refit COMMAND [ARGUMENT...] [OPTION...]\n\n"
          "Plans, predicts and carries out the move of model weights from a training layout\n"
          "to an inference layout.\n",
          stream);
    print_names(stream, "Commands:", command_names);
    print_names(stream, "Strategies:", strategy_names);
    fputs("\nFirst try:  refit compare tiny\n"
          "More:       refit COMMAND --help, refit --version\n"
          "Exit codes: 0 yes, 1 no (over budget), 2 usage, 3 bad input, 4 infeasible,\n"
          "            5 not supported here, 6 backend failure\n",
          stream);
}

static void print_version(void) {
    cli_print("refit %s\n%s\n", REFIT_VERSION, refit_netsim_version());
#ifdef REFIT_CUDA_VERSION
    cli_print("CUDA %s, NCCL %s found when built\n", REFIT_CUDA_VERSION, REFIT_NCCL_VERSION);
#else
    cli_print("no CUDA Toolkit or NCCL found when built; planning and prediction need none\n");
#endif
}

static const CliCommand *find_command(const char *name, const char **nearest_out) {
    const char *names[G_N_ELEMENTS(commands) + 1] = {NULL};

    for (guint i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (g_str_equal(commands[i].name, name))
            return &commands[i];
        names[i] = commands[i].name;
    }
    *nearest_out = refit_nearest_name(name, names);
    return NULL;
}

/* Options of `command` as GOption entries; `options` receives the values. */
static GOptionContext *new_context(const CliCommand *command, CliOptions *options) {
    const struct {
        CliOptionFlags flag; /* 0: every command */
        GOptionEntry entry;
    } all[] = {
        {CLI_OPTION_STRATEGY | CLI_OPTION_LAYOUT,
         {"strategy", 's', 0, G_OPTION_ARG_STRING, &options->strategy,
          "how to plan; default: " REFIT_STRATEGY_DEFAULT, "NAME"}},
        {CLI_OPTION_OUTPUT,
         {"output", 'o', 0, G_OPTION_ARG_FILENAME, &options->output,
          "write the plan as JSON; - is stdout", "FILE"}},
        {CLI_OPTION_LAYOUT,
         {"rank", 0, 0, G_OPTION_ARG_STRING, &options->rank, "of a layout: what this GPU holds",
          "GPU"}},
        {CLI_OPTION_LAYOUT,
         {"tensor", 0, 0, G_OPTION_ARG_STRING, &options->tensor,
          "of a layout: tensors or parameters, with * and ?", "PATTERN"}},
        {CLI_OPTION_LAYOUT,
         {"svg", 0, 0, G_OPTION_ARG_FILENAME, &options->output,
          "of a layout: draw who sends one tensor; - is stdout", "FILE"}},
        {CLI_OPTION_TRACE,
         {"trace", 0, 0, G_OPTION_ARG_FILENAME, &options->trace,
          "write what happened when: .json for viewers, or .csv", "FILE"}},
        {CLI_OPTION_TRACE,
         {"trace-ranks", 0, 0, G_OPTION_ARG_STRING, &options->trace_ranks,
          "of these GPUs, such as 0-7,256; needed beyond 64", "LIST"}},
        {CLI_OPTION_EXACT,
         {"exact", 0, 0, G_OPTION_ARG_NONE, &options->exact,
          "simulate turn by turn; slow for large cases", NULL}},
        {CLI_OPTION_OUTPUT | CLI_OPTION_LAYOUT | CLI_OPTION_TRACE,
         {"force", 'f', 0, G_OPTION_ARG_NONE, &options->force, "replace an existing FILE", NULL}},
        {CLI_OPTION_RUN,
         {"ranks", 0, 0, G_OPTION_ARG_INT, &options->ranks, "start this many ranks on this machine",
          "N"}},
        {CLI_OPTION_RUN,
         {"repeat", 0, 0, G_OPTION_ARG_INT, &options->repeat, "runs; default: 1", "K"}},
        {CLI_OPTION_RUN,
         {"verify", 0, 0, G_OPTION_ARG_NONE, &options->verify, "compare every byte", NULL}},
        {CLI_OPTION_RUN,
         {"timeout", 0, 0, G_OPTION_ARG_STRING, &options->timeout,
          "to meet, and for a run; default: 60s + 50ms a rank", "TIME"}},
        {CLI_OPTION_RUN,
         {"executor", 0, 0, G_OPTION_ARG_STRING, &options->executor, "default: nccl", "NAME"}},
        {CLI_OPTION_SET,
         {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options->set,
          "override one value, such as train.tp=4", "KEY=VALUE"}},
        {CLI_OPTION_JSON,
         {"json", 0, 0, G_OPTION_ARG_NONE, &options->json, "one JSON document on stdout", NULL}},
        {CLI_OPTION_TIMINGS,
         {"timings", 0, 0, G_OPTION_ARG_NONE, &options->timings,
          "add the program's own run times (not reproducible)", NULL}},
        {0, {"quiet", 'q', 0, G_OPTION_ARG_NONE, &options->quiet, "no progress on stderr", NULL}},
        {0, {"help", 'h', 0, G_OPTION_ARG_NONE, &options->help, "this text", NULL}},
    };
    GOptionContext *context = g_option_context_new(NULL);

    g_option_context_set_help_enabled(context, FALSE);
    for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
        GOptionEntry entries[2] = {all[i].entry, {NULL}};
        if (all[i].flag == 0 || (command->options & all[i].flag) != 0)
            g_option_context_add_main_entries(context, entries, NULL);
    }
    return context;
}

static void print_help(const CliCommand *command, GOptionContext *context) {
    g_autofree char *options = g_option_context_get_help(context, TRUE, NULL);
    const char *list = strstr(options, "\n\n"); /* skip GOption's own usage line */

    cli_print("Usage: refit %s %s [OPTION...]\n\n%s%s", command->name, command->arguments,
              command->help, list != NULL ? list + 1 : "");
}

/*
 * Data files lie beside the program: in ../share/refit when installed, in .. when it was built in
 * the source tree. REFIT_DATA names another place.
 */
static char *find_data_dir(void) {
    const char *chosen = g_getenv("REFIT_DATA");
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
    g_autofree char *bin = self != NULL ? g_path_get_dirname(self) : g_strdup(".");
    g_autofree char *beside = g_build_filename(bin, "..", "share", "refit", NULL);
    g_autofree char *above = g_build_filename(bin, "..", NULL);
    const char *places[] = {beside, above, REFIT_DATA_DIR};

    if (chosen != NULL)
        return g_strdup(chosen);
    for (guint i = 0; i < G_N_ELEMENTS(places); i++) {
        g_autofree char *layouts = g_build_filename(places[i], "layouts", NULL);

        if (g_file_test(layouts, G_FILE_TEST_IS_DIR))
            return g_canonicalize_filename(places[i], NULL);
    }
    return g_strdup(REFIT_SOURCE_DATA_DIR);
}

static void print_json_error(const char *code, int exit_code, const char *message) {
    RefitJson *json = refit_json_new(2);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.error/1");
    refit_json_string(json, "code", code);
    refit_json_uint(json, "exit_code", (guint64)exit_code);
    refit_json_string(json, "message", message);
    refit_json_end_object(json);
    cli_print_json(json);
}

static int report_error(gboolean json, const GError *error) {
    fprintf(stderr, "refit: %s\n", error->message);
    if (json)
        print_json_error(refit_error_name(error), refit_error_exit_code(error), error->message);
    return refit_error_exit_code(error);
}

static int usage_error(const CliCommand *command, gboolean json, const char *message) {
    fprintf(stderr, "refit: %s\n", message);
    if (command != NULL)
        fprintf(stderr, "usage: refit %s %s [OPTION...]\nsee `refit %s --help`\n", command->name,
                command->arguments, command->name);
    else
        fprintf(stderr, "see `refit --help`\n");
    if (json)
        print_json_error("usage", CLI_EXIT_USAGE, message);
    return CLI_EXIT_USAGE;
}

/* Tests set REFIT_FAKE_TTY to see what only a terminal gets. */
static gboolean wants_progress(const CliOptions *options) {
    return !options->quiet && !options->json &&
           (isatty(STDERR_FILENO) || g_strcmp0(g_getenv("REFIT_FAKE_TTY"), "1") == 0);
}

static int run_parsed(const CliCommand *command, Cli *cli) {
    g_autoptr(GError) error = NULL;
    g_autofree char *data = find_data_dir();
    g_autofree char *layouts = g_build_filename(data, "layouts", NULL);
    g_autofree char *topologies = g_build_filename(data, "topologies", NULL);
    int exit_code;

    cli->store =
        (RefitStore){.layouts_dir = layouts, .topologies_dir = topologies, .files = &refit_disk};
    cli->progress = wants_progress(&cli->options);
    exit_code = command->run(cli, &error);
    cli_progress_done(cli);
    if (error == NULL)
        return exit_code;
    if (exit_code == CLI_EXIT_USAGE)
        return usage_error(command, cli->options.json, error->message);
    return cli->others_tell ? refit_error_exit_code(error) : report_error(cli->options.json, error);
}

/* `arguments`: the command name and what follows it; ownership taken. */
static int run_command(const CliCommand *command, char **arguments, gboolean json) {
    Cli cli = {.options = {.quiet = FALSE, .repeat = 1}};
    g_autoptr(GOptionContext) context = new_context(command, &cli.options);
    g_autoptr(GError) error = NULL;
    int exit_code;

    if (!g_option_context_parse_strv(context, &arguments, &error)) {
        error->message[0] = g_ascii_tolower(error->message[0]); /* GLib's begin with a capital */
        exit_code = usage_error(command, json, error->message);
    } else if (cli.options.help) {
        print_help(command, context);
        exit_code = CLI_EXIT_YES;
    } else if (g_strv_length(arguments) - 1 < command->min_arguments) {
        exit_code = usage_error(command, json, "an argument is missing");
    } else if (g_strv_length(arguments) - 1 > command->max_arguments) {
        exit_code = usage_error(command, json, "too many arguments");
    } else {
        cli.arguments = arguments + 1;
        exit_code = run_parsed(command, &cli);
    }
    g_free(cli.options.strategy);
    g_free(cli.options.output);
    g_free(cli.options.rank);
    g_free(cli.options.tensor);
    g_free(cli.options.timeout);
    g_free(cli.options.executor);
    g_free(cli.options.trace);
    g_free(cli.options.trace_ranks);
    g_strfreev(cli.options.set);
    g_strfreev(arguments);
    return exit_code;
}

/* stdout is data: a full disk or closed pipe must not look like success. */
static int finish(int exit_code) {
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "refit: cannot write to standard output\n");
        return 6;
    }
    return exit_code;
}

/*
 * The arguments with the command first: --json and --quiet may also stand before it. Free with
 * g_strfreev.
 */
static char **command_first(char **argv) {
    g_autoptr(GPtrArray) arguments = g_ptr_array_new();
    guint command = 1;

    while (argv[command] != NULL &&
           (g_str_equal(argv[command], "--json") || g_str_equal(argv[command], "--quiet") ||
            g_str_equal(argv[command], "-q")))
        command++;
    if (argv[command] != NULL)
        g_ptr_array_add(arguments, g_strdup(argv[command]));
    for (guint i = 1; argv[i] != NULL; i++)
        if (i != command)
            g_ptr_array_add(arguments, g_strdup(argv[i]));
    g_ptr_array_add(arguments, NULL);
    return (char **)g_ptr_array_free(g_steal_pointer(&arguments), FALSE);
}

/* `help COMMAND ...` becomes `COMMAND --help`. */
static void help_first(char ***arguments) {
    const char *asked[] = {(*arguments)[1], "--help", NULL};
    char **turned = g_strdupv((char **)asked);

    g_strfreev(*arguments);
    *arguments = turned;
}

int main(int argc, char **argv) {
    const CliCommand *command;
    const char *nearest = NULL;
    gboolean json = argc > 1 && g_strv_contains((const char *const *)argv + 1, "--json");
    g_auto(GStrv) arguments = argc > 0 ? command_first(argv) : g_new0(char *, 1);
    const char *name = arguments[0];

    g_log_writer_default_set_use_stderr(TRUE);
    if (name == NULL) {
        print_overview(stderr);
        return CLI_EXIT_USAGE;
    }
    if (g_str_equal(name, "help") && arguments[1] != NULL && arguments[1][0] != '-') {
        help_first(&arguments);
        name = arguments[0];
    }
    if (g_str_equal(name, "--help") || g_str_equal(name, "-h") || g_str_equal(name, "help")) {
        print_overview(stdout);
        return finish(CLI_EXIT_YES);
    }
    if (g_str_equal(name, "--version") || g_str_equal(name, "version")) {
        print_version();
        return finish(CLI_EXIT_YES);
    }
    command = find_command(name, &nearest);
    if (command == NULL) {
        const char *what = name[0] == '-' ? "option" : "command";
        g_autofree char *excerpt = refit_error_excerpt(name);
        g_autofree char *message =
            nearest != NULL
                ? g_strdup_printf("unknown %s \"%s\"; did you mean \"%s\"?", what, excerpt, nearest)
                : g_strdup_printf("unknown %s \"%s\"", what, excerpt);
        return finish(usage_error(NULL, json, message));
    }
    return finish(run_command(command, g_steal_pointer(&arguments), json));
}
