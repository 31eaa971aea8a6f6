#pragma once

/* The parts of `refit show` that have a file of their own. */

#include "cli/cli.h"

G_BEGIN_DECLS

int cli_show_layout(Cli *cli, GError **error);
int cli_show_case(Cli *cli, GError **error);
/* `refit show layout` with --rank, and with --svg. */
int cli_show_rank(Cli *cli, const RefitCase *refit_case, GError **error);
int cli_show_picture(Cli *cli, GError **error);
int cli_show_plan(Cli *cli, GError **error);

G_END_DECLS
