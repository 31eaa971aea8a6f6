#pragma once

/* The parts of `refit show` that have a file of their own. */

#include "cli.h"

G_BEGIN_DECLS

int cli_show_layout(Cli *cli, GError **error);
int cli_show_case(Cli *cli, GError **error);
int cli_show_plan(Cli *cli, GError **error);

G_END_DECLS
