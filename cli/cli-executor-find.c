/*
 * Finding an executor in the program's table, by its name. What one can do is said by its own
 * flags; those of a plugin are known when it is loaded. Cost: none, and that of loading.
 */

#include "cli/cli-executor.h"

#include "model/base/refit-yaml.h"

#define PREDICTOR "simgrid"
enum { MAX_EXECUTORS = 8 };

const CliExecutor *cli_executor_find(const char *name, GError **error) {
    const char *names[MAX_EXECUTORS + 1] = {NULL};
    const char *nearest;
    g_autofree char *list = NULL, *excerpt = NULL;

    for (guint i = 0; cli_executors[i].name != NULL; i++) {
        g_assert(i < MAX_EXECUTORS);
        if (g_str_equal(cli_executors[i].name, name))
            return &cli_executors[i];
        names[i] = cli_executors[i].name;
    }
    nearest = refit_nearest_name(name, names);
    list = g_strjoinv(", ", (char **)names);
    excerpt = refit_error_excerpt(name);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "no executor \"%s\"; there are %s%s%s%s",
                excerpt, list, nearest != NULL ? "; did you mean \"" : "",
                nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
    return NULL;
}

const CliExecutor *cli_executor_find_mover(const char *name, const char *case_name,
                                           GError **error) {
    const CliExecutor *found = cli_executors;

    if (name == NULL)
        while (found->name != NULL && found->linked != NULL)
            found++;
    else
        found = cli_executor_find(name, error);
    if (found == NULL)
        return NULL;
    g_assert(found->name != NULL);
    if (found->linked == NULL)
        return found;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "executor %s %s; use `refit predict %s`",
                found->name,
                (found->linked->flags & REFIT_EXECUTOR_PREDICTS) != 0 ? "predicts and moves no data"
                                                                      : "moves no data",
                case_name);
    return NULL;
}

const RefitGpu *cli_executor_load(const CliExecutor *executor, GError **error) {
    const RefitGpu *gpu = executor->load(error);

    if (gpu == NULL || (gpu->executor.flags & REFIT_EXECUTOR_MOVES_DATA) != 0)
        return gpu;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_NOT_SUPPORTED, "executor %s moves no data",
                executor->name);
    return NULL;
}

const RefitExecutor *cli_executor_find_predictor(GError **error) {
    const CliExecutor *found = cli_executor_find(PREDICTOR, error);

    if (found == NULL)
        return NULL;
    g_assert(found->linked != NULL && (found->linked->flags & REFIT_EXECUTOR_PREDICTS) != 0);
    return found->linked;
}
