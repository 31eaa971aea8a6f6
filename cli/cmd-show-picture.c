/*
 * `refit show layout CASE --tensor PATTERN --svg FILE`: plans the case and draws one tensor, see
 * cli-picture.h.
 */

#include "cli/cli-picture.h"
#include "cli/cli-show.h"

#include <string.h>

/* The one tensor that the pattern means: that of this name, else the only one that it matches. */
static gboolean find_tensor(const RefitModel *model, const char *pattern, guint *index_out,
                            GError **error) {
    GPatternSpec *spec = g_pattern_spec_new(pattern);
    g_autofree char *excerpt = refit_error_excerpt(pattern);
    guint n = 0, found[2] = {0, 0};

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const char *name = refit_model_tensor(model, i)->name;

        if (g_str_equal(name, pattern)) {
            found[0] = i;
            n = 1;
            break;
        }
        if (g_pattern_spec_match_string(spec, name)) {
            found[n == 0 ? 0 : 1] = i;
            n++;
        }
    }
    g_pattern_spec_free(spec);
    if (n == 1) {
        *index_out = found[0];
        return TRUE;
    }
    if (n == 0)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "no tensor of %s is \"%s\"; `refit show layout CASE --rank R --tensor '*'` "
                    "lists names",
                    refit_model_name(model), excerpt);
    else
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "\"%s\" is %u tensors, such as %s and %s; --svg shows one", excerpt, n,
                    refit_model_tensor(model, found[0])->name,
                    refit_model_tensor(model, found[1])->name);
    return FALSE;
}

static gboolean find_class(const RefitProblem *problem, guint tensor, guint *class_out,
                           GError **error) {
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *class = &problem->classes[c];

        for (guint m = 0; m < class->n_members; m++) {
            if (class->members[m] == tensor) {
                *class_out = c;
                return TRUE;
            }
        }
    }
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "no destination of %s holds %s, so that nobody sends it", problem->refit_case->name,
                refit_model_tensor(problem->refit_case->model, tensor)->name);
    return FALSE;
}

int cli_show_picture(Cli *cli, GError **error) {
    g_autoptr(RefitCase) refit_case = NULL;
    g_autoptr(RefitProblem) problem = NULL;
    g_auto(CliPlanned) planned = {0};
    const RefitStrategy *strategy = refit_strategy_find(
        cli->options.strategy ? cli->options.strategy : REFIT_STRATEGY_DEFAULT, error);
    CliTimings timings;
    guint tensor, class_index;

    if (strategy == NULL || !cli_check_output(cli, cli->options.output, error) ||
        !cli_load_case(cli, cli->arguments[1], &refit_case, &problem, error))
        return CLI_EXIT_NO;
    if (!find_tensor(refit_case->model, cli->options.tensor, &tensor, error))
        return CLI_EXIT_USAGE;
    if (!find_class(problem, tensor, &class_index, error) ||
        !cli_plan_and_predict(cli, problem, strategy, &planned, NULL, NULL, &timings, error))
        return CLI_EXIT_NO;
    g_autofree char *svg = cli_picture_to_svg(planned.plan, class_index,
                                              refit_model_tensor(refit_case->model, tensor));
    if (!cli_write_output(cli, cli->options.output, svg, strlen(svg), error))
        return CLI_EXIT_NO;
    cli_progress_done(cli);
    if (!cli_is_stdout(cli->options.output))
        cli_print("%s: %s\n", cli->options.output,
                  refit_model_tensor(refit_case->model, tensor)->name);
    return CLI_EXIT_YES;
}
