/*
 * The summary that `refit show plan FILE` prints: what the file says of itself and its totals. Reads
 * the document, not the plan's structures, so it also serves plans made by other versions.
 */

#include "cli-show.h"

void cli_print_plan_summary(const Cli *cli, json_t *plan) {
    json_t *totals = json_object_get(plan, "totals");
    const char *case_name = json_string_value(json_object_get(plan, "case"));
    const char *strategy = json_string_value(json_object_get(plan, "strategy"));
    const char *digest = json_string_value(json_object_get(plan, "digest"));
    const char *key;
    json_t *value;

    if (cli->options.json) {
        RefitJson *json = refit_json_new(2);

        refit_json_begin_object(json, NULL);
        refit_json_string(json, "schema", "refit.plan-file-summary/1");
        refit_json_string(json, "case", case_name);
        refit_json_string(json, "strategy", strategy);
        refit_json_string(json, "digest", digest);
        json_object_foreach(totals, key, value) {
            if (json_is_integer(value))
                refit_json_uint(json, key, (guint64)json_integer_value(value));
        }
        refit_json_end_object(json);
        cli_print_json(json);
        return;
    }
    cli_print("%s with %s\ndigest  %s\n", case_name != NULL ? case_name : "?",
              strategy != NULL ? strategy : "?", digest != NULL ? digest : "?");
    json_object_foreach(totals, key, value) {
        if (json_is_integer(value))
            cli_print("%-20s %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
    }
}
