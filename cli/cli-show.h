#pragma once

/* The parts of `refit show` that need more than one input. */

#include "cli.h"

#include <jansson.h>

G_BEGIN_DECLS

int cli_show_layout(Cli *cli, GError **error);
int cli_show_case(Cli *cli, GError **error);
/* `plan`: a parsed document of schema refit.plan/1. */
void cli_print_plan_summary(const Cli *cli, json_t *plan);

G_END_DECLS
