/*
 * The `refit` program: finds the command in the one table below, parses its options, runs it, and
 * turns its outcome into an exit code. Help, usage errors and the list of commands all come from
 * the table, so they cannot disagree.
 */

#include "cli.h"
#include "refit-config.h"
#include "refit-netsim.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const CliCommand commands[] = {
    {
        .name = "compare",
        .arguments = "CASE",
        .summary = "all strategies on one case, side by side with the bound",
        .help =
            "Plans and simulates every strategy. CASE is a shipped name (see `refit show case`) "
            "or a file.\n\n"
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
        .help = "Simulates one plan with SimGrid. When the case has a time budget, exits with 1 if "
                "the step\nmisses it.\n\n"
                "  refit predict deepseek-v3-h100 --strategy hybrid\n"
                "  refit predict tiny --set 'budget={time: 1s}'\n",
        .options = CLI_OPTION_STRATEGY | CLI_OPTION_SET | CLI_OPTION_JSON | CLI_OPTION_TIMINGS,
        .min_arguments = 1,
        .max_arguments = 1,
        .run = cli_predict,
    },
    {
        .name = "plan",
        .arguments = "CASE",
        .summary = "make, prove and save a plan",
        .help = "Makes a plan, proves that it delivers every needed element exactly once, and "
                "prints what it\nmoves. With -o the whole plan is written as JSON.\n\n"
                "  refit plan qwen3-30b-h100 -o plan.json\n",
        .options = CLI_OPTION_STRATEGY | CLI_OPTION_OUTPUT | CLI_OPTION_SET | CLI_OPTION_JSON |
                   CLI_OPTION_TIMINGS,
        .min_arguments = 1,
        .max_arguments = 1,
        .run = cli_plan,
    },
    {
        .name = "show",
        .arguments = "model|layout|topology|profile|case|plan [NAME]",
        .summary = "what a model, layout, topology, profile, case or plan file holds",
        .help = "Without NAME, lists what is shipped. NAME is a shipped name or a file; for layout "
                "it is a case,\nfor plan a file written by `refit plan -o`.\n\n"
                "  refit show model deepseek-v3 --set mtp=false\n"
                "  refit show layout tiny\n"
                "  refit show topology \"node:4 gpu:8 nvlink:450GBps nic:50GBps\"\n",
        .options = CLI_OPTION_SET | CLI_OPTION_JSON,
        .min_arguments = 1,
        .max_arguments = 2,
        .run = cli_show,
    },
};

static void print_overview(FILE *stream) {
    fprintf(stream, "Usage: refit COMMAND ... [--json] [--quiet]\n\n"
                    "Plans and predicts the move of model weights from a training layout to an "
                    "inference layout.\n\nCommands:\n");
    for (guint i = 0; i < G_N_ELEMENTS(commands); i++)
        fprintf(stream, "  %-8s  %s\n", commands[i].name, commands[i].summary);
    fprintf(stream, "\nStrategies:\n");
    for (guint i = 0; refit_strategies()[i] != NULL; i++)
        fprintf(stream, "  %-16s  %s\n", refit_strategies()[i]->name,
                refit_strategies()[i]->summary);
    fprintf(stream, "\n`refit COMMAND --help` tells more; `refit --version` the version.\n"
                    "Exit codes: 0 yes, 1 no, 2 usage, 3 bad input, 4 infeasible, 5 not supported "
                    "here, 6 backend failure.\n");
}

static void print_version(void) {
    cli_print("refit %s\n%s\n", REFIT_VERSION, refit_netsim_version());
#ifdef REFIT_CUDA_VERSION
    cli_print("CUDA %s, NCCL %s found when built; this version plans and predicts only\n",
              REFIT_CUDA_VERSION, REFIT_NCCL_VERSION);
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
        {CLI_OPTION_STRATEGY,
         {"strategy", 's', 0, G_OPTION_ARG_STRING, &options->strategy,
          "how to plan; default: " REFIT_STRATEGY_DEFAULT, "NAME"}},
        {CLI_OPTION_OUTPUT,
         {"output", 'o', 0, G_OPTION_ARG_FILENAME, &options->output, "write the plan as JSON",
          "FILE"}},
        {CLI_OPTION_OUTPUT,
         {"force", 'f', 0, G_OPTION_ARG_NONE, &options->force, "replace an existing FILE", NULL}},
        {CLI_OPTION_SET,
         {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options->set,
          "override one value of the input, such as train.tp=4", "KEY=VALUE"}},
        {CLI_OPTION_JSON,
         {"json", 0, 0, G_OPTION_ARG_NONE, &options->json, "one JSON document on stdout", NULL}},
        {CLI_OPTION_TIMINGS,
         {"timings", 0, 0, G_OPTION_ARG_NONE, &options->timings,
          "add the program's own run times to the JSON (not reproducible)", NULL}},
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

    cli_print("Usage: refit %s %s [OPTION...]\n\n%s\n%s%s", command->name, command->arguments,
              command->summary, command->help, list != NULL ? list + 1 : "");
}

/*
 * Data files lie beside the program: ../share/refit when installed, .. in a build folder of the
 * source tree. REFIT_DATA names another place.
 */
static char *find_data_dir(void) {
    const char *chosen = g_getenv("REFIT_DATA");
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
    g_autofree char *bin = self != NULL ? g_path_get_dirname(self) : g_strdup(".");
    g_autofree char *parent = g_path_get_dirname(bin);
    const char *tails[] = {"share/refit", "."};

    if (chosen != NULL)
        return g_strdup(chosen);
    for (guint i = 0; i < G_N_ELEMENTS(tails); i++) {
        g_autofree char *dir = g_build_filename(parent, tails[i], NULL);
        g_autofree char *layouts = g_build_filename(dir, "layouts", NULL);

        if (g_file_test(layouts, G_FILE_TEST_IS_DIR))
            return g_steal_pointer(&dir);
    }
    return g_strdup(REFIT_DATA_DIR);
}

static int report_error(const CliOptions *options, const GError *error) {
    fprintf(stderr, "refit: %s\n", error->message);
    if (options->json) {
        RefitJson *json = refit_json_new(2);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "schema", "refit.error/1");
        refit_json_string(json, "code", refit_error_name(error));
        refit_json_uint(json, "exit_code", (guint64)refit_error_exit_code(error));
        refit_json_string(json, "message", error->message);
        refit_json_end_object(json);
        cli_print_json(json);
    }
    return refit_error_exit_code(error);
}

static int usage_error(const CliCommand *command, const char *message) {
    fprintf(stderr, "refit: %s\n", message);
    if (command != NULL)
        fprintf(stderr, "usage: refit %s %s [OPTION...]; see `refit %s --help`\n", command->name,
                command->arguments, command->name);
    else
        fprintf(stderr, "see `refit --help`\n");
    return CLI_EXIT_USAGE;
}

static int run_command(const CliCommand *command, char **arguments) {
    Cli cli = {.options = {.quiet = FALSE}};
    g_autoptr(GOptionContext) context = new_context(command, &cli.options);
    g_autoptr(GError) error = NULL;
    g_autofree char *data = find_data_dir();
    g_autofree char *layouts = g_build_filename(data, "layouts", NULL);
    g_autofree char *topologies = g_build_filename(data, "topologies", NULL);
    guint n_arguments;
    int exit_code;

    if (!g_option_context_parse_strv(context, &arguments, &error))
        return usage_error(command, error->message);
    n_arguments = g_strv_length(arguments) - 1;
    if (cli.options.help) {
        print_help(command, context);
        exit_code = CLI_EXIT_YES;
    } else if (n_arguments < command->min_arguments || n_arguments > command->max_arguments) {
        exit_code =
            usage_error(command, n_arguments < command->min_arguments ? "an argument is missing"
                                                                      : "too many arguments");
    } else {
        cli.store = (RefitStore){.layouts_dir = layouts, .topologies_dir = topologies};
        cli.arguments = arguments + 1;
        cli.progress = !cli.options.quiet && isatty(STDERR_FILENO);
        exit_code = command->run(&cli, &error);
        cli_progress_done(&cli);
        if (error != NULL)
            exit_code = report_error(&cli.options, error);
    }
    g_free(cli.options.strategy);
    g_free(cli.options.output);
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

int main(int argc, char **argv) {
    const CliCommand *command;
    const char *nearest = NULL;

    g_log_writer_default_set_use_stderr(TRUE);
    if (argc < 2) {
        print_overview(stderr);
        return CLI_EXIT_USAGE;
    }
    if (g_str_equal(argv[1], "--help") || g_str_equal(argv[1], "-h") ||
        g_str_equal(argv[1], "help")) {
        print_overview(stdout);
        return finish(CLI_EXIT_YES);
    }
    if (g_str_equal(argv[1], "--version")) {
        print_version();
        return finish(CLI_EXIT_YES);
    }
    command = find_command(argv[1], &nearest);
    if (command == NULL) {
        g_autofree char *message =
            nearest != NULL
                ? g_strdup_printf("unknown command \"%s\" (did you mean \"%s\"?)", argv[1], nearest)
                : g_strdup_printf("unknown command \"%s\"", argv[1]);
        return usage_error(NULL, message);
    }
    return finish(run_command(command, g_strdupv(argv + 1)));
}
