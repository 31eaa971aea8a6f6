/*
 * case-runner DIR: runs every report of a folder, JSON files that state a case of resharding and
 * what must come out of it, through the public functions of the planning core (docs/reports.md).
 *
 * For each file it builds the case, compares what the core answers with all of `expect`, answers
 * `checks`, applies `negatives`, and plans the case with every strategy. One line per failure, then
 * a closing count; the exit status is 0 when all files pass, 1 when one does not, 2 for a wrong
 * call and 3 when there is nothing to run.
 */

#include <stdio.h>
#include <string.h>

#include "validation/report.h"

typedef struct {
    const char *file; /* name of the file at hand */
    guint n_failures; /* in it */
} Runner;

static void fail(Runner *runner, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void fail(Runner *runner, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *message = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    printf("%s: %s\n", runner->file, message);
    runner->n_failures++;
}

/* ---- expected values ---- */

/* A value in a line of its own; long ones are cut. */
static char *show(const json_t *value) {
    g_autofree char *text =
        value != NULL
            ? json_dumps(value, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(12))
            : g_strdup("nothing");

    return refit_error_excerpt(text);
}

/* Integers are compared as such: a double does not tell all of them apart. */
static gboolean same_number(const json_t *a, const json_t *b) {
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    return json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b);
}

/*
 * Compares what a file expects with what came out. With `partly`, as in values written by hand,
 * objects may state only some of their keys; an empty one states that there are none.
 */
static void compare(Runner *runner, const char *path, const json_t *expected, const json_t *got,
                    gboolean partly) {
    const char *key;
    json_t *value;

    if (json_is_object(expected) && json_is_object(got)) {
        partly = partly && json_object_size(expected) > 0;
        json_object_foreach((json_t *)expected, key, value) {
            g_autofree char *below = g_strconcat(path, ".", key, NULL);
            compare(runner, below, value, json_object_get(got, key), partly);
        }
        json_object_foreach((json_t *)got, key, value) {
            g_autofree char *shown = show(value);
            if (!partly && json_object_get(expected, key) == NULL)
                fail(runner, "%s.%s: the file says nothing, Refit says %s", path, key, shown);
        }
        return;
    }
    if (json_equal(expected, got) || same_number(expected, got))
        return;
    g_autofree char *one = show(expected), *two = show(got);
    fail(runner, "%s: the file says %s, Refit says %s", path, one, two);
}

/* "E_LOCAL_SHAPE" for REFIT_ERROR_LOCAL_SHAPE; no code for an error that no file can expect. */
static char *error_code(const GError *error) {
    if (error == NULL)
        return g_strdup("no error");
    if (error->domain != REFIT_ERROR)
        return g_strdup("that it cannot be read");
    g_autofree char *name = g_ascii_strup(refit_error_name(error), -1);
    return g_strconcat("E_", g_strdelimit(name, "-", '_'), NULL);
}

static gboolean is_code(const char *text) {
    return text != NULL && g_str_has_prefix(text, "E_");
}

/* Everything of `expect` but what is about errors. `note` is for people. */
static void compare_answers(Runner *runner, const json_t *expect, const json_t *answers) {
    const json_t *computed = json_object_get(expect, "computed");
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)expect, key, value) {
        g_autofree char *path = g_strconcat("expect.", key, NULL);
        if (strcmp(key, "computed") != 0 && strcmp(key, "note") != 0 && strcmp(key, "error") != 0)
            compare(runner, path, value, json_object_get(answers, key), TRUE);
    }
    json_object_foreach((json_t *)computed, key, value) {
        g_autofree char *path = g_strconcat("expect.computed.", key, NULL);
        if (!json_is_null(value)) /* not known to the file */
            compare(runner, path, value, json_object_get(answers, key), FALSE);
    }
}

#define NOTHING_EXPECTED "expect: the file says nothing; state what must come out"

/* Whether anything of `expect` is compared, so that the file can fail. */
static gboolean says_something(const json_t *expect) {
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)json_object_get(expect, "computed"), key, value) {
        if (!json_is_null(value))
            return TRUE;
    }
    json_object_foreach((json_t *)expect, key, value) {
        if (strcmp(key, "computed") != 0 && strcmp(key, "note") != 0)
            return TRUE;
    }
    return FALSE;
}

static gboolean asks_for(const json_t *expect, const char *key) {
    return json_object_get(expect, key) != NULL ||
           json_object_get(json_object_get(expect, "computed"), key) != NULL;
}

/* A file that expects an error states it by hand, in `computed`, or in both. */
static void check_error(Runner *runner, const json_t *expect, const GError *error) {
    const json_t *stated[] = {json_object_get(expect, "error"),
                              json_object_get(json_object_get(expect, "computed"), "error")};
    gboolean any = FALSE;

    for (guint i = 0; i < G_N_ELEMENTS(stated); i++) {
        if (stated[i] == NULL)
            continue;
        any = TRUE;
        g_autofree char *code = error_code(error);
        const char *wanted = json_string_value(stated[i]);
        if (!is_code(wanted))
            fail(runner, "expect%s.error: is no code such as E_NOT_COVERED",
                 i == 0 ? "" : ".computed");
        else if (strcmp(wanted, code) != 0)
            fail(runner, "expect%s.error: the file says %s, Refit says %s%s%s",
                 i == 0 ? "" : ".computed", wanted, code, error != NULL ? ": " : "",
                 error != NULL ? error->message : "");
    }
    if (!any && error != NULL) {
        g_autofree char *code = error_code(error);
        fail(runner, "%s%s%s", error->domain == REFIT_ERROR ? code : "",
             error->domain == REFIT_ERROR ? ": " : "", error->message);
    }
}

static void run_case(Runner *runner, const json_t *root) {
    const json_t *expect = json_object_get(root, "expect");
    const json_t *computed = json_object_get(expect, "computed");
    g_autoptr(GError) error = NULL;

    if (computed != NULL && !report_expect_object(computed, "expect.computed", &error)) {
        fail(runner, "%s", error->message);
        return;
    }
    if (!json_is_object(expect)) {
        fail(runner, NOTHING_EXPECTED);
        return;
    }
    g_autoptr(Report) report = report_new(root, &error);
    check_error(runner, expect, error);
    if (report == NULL)
        return;
    if (!says_something(expect))
        fail(runner, NOTHING_EXPECTED);
    json_t *answers = report_answers(report, asks_for(expect, "segments"), &error);
    if (answers == NULL) {
        fail(runner, "%s", error->message);
        return;
    }
    compare_answers(runner, expect, answers);
    json_decref(answers);
    if (!report_check_plans(report, &error))
        fail(runner, "%s", error->message);
}

/* ---- checks and negatives ---- */

static void run_check(Runner *runner, const json_t *root, const json_t *check, gsize index) {
    const char *type = json_string_value(json_object_get(check, "type"));
    g_autoptr(GError) error = NULL;
    g_autofree char *path = g_strdup_printf("checks.%" G_GSIZE_FORMAT " %s", index,
                                            type != NULL ? type : "without a type");
    json_t *result = report_check_result(check, &error);

    (void)root; /* a check needs no tensors */
    if (result == NULL)
        fail(runner, "%s: %s", path, error->message);
    else
        compare(runner, path, json_object_get(check, "result"), result, FALSE);
    json_decref(result);
}

/* Puts `value` at "tensors/0/shape" of a report; missing objects on the way are made. */
static gboolean apply(json_t *root, const char *path, json_t *value) {
    g_auto(GStrv) keys = g_strsplit(path, "/", -1);
    guint n = g_strv_length(keys);
    json_t *at = root;

    for (guint i = 0; i < n; i++) {
        gboolean last = i + 1 == n;
        guint64 index;
        if (json_is_array(at)) {
            if (!g_ascii_string_to_unsigned(keys[i], 10, 0, G_MAXUINT32, &index, NULL) ||
                index >= json_array_size(at))
                return FALSE;
            if (last)
                return json_array_set(at, (gsize)index, value) == 0;
            at = json_array_get(at, (gsize)index);
            continue;
        }
        if (!json_is_object(at))
            return FALSE;
        if (last)
            return json_object_set(at, keys[i], value) == 0;
        if (json_object_get(at, keys[i]) == NULL)
            json_object_set_new(at, keys[i], json_object());
        at = json_object_get(at, keys[i]);
    }
    return FALSE;
}

static void run_negative(Runner *runner, const json_t *root, const json_t *negative, gsize index) {
    static const char *const keys[] = {"why", "set", "error", NULL};
    const char *wanted = json_string_value(json_object_get(negative, "error")), *path;
    g_autofree char *where = g_strdup_printf("negatives.%" G_GSIZE_FORMAT, index);
    json_t *set = json_object_get(negative, "set"), *value;
    g_autoptr(GError) error = NULL;

    if (!report_check_keys(negative, where, keys, &error)) {
        fail(runner, "%s", error->message);
        return;
    }
    if (!is_code(wanted) || json_object_size(set) == 0) {
        fail(runner, "%s: %s", where,
             is_code(wanted) ? "set changes nothing" : "error is no code such as E_NOT_COVERED");
        return;
    }
    json_t *copy = json_deep_copy(root);
    json_object_foreach(set, path, value) {
        if (!apply(copy, path, value))
            fail(runner, "%s: there is no place %s to change", where, path);
    }
    g_autoptr(Report) report = report_new(copy, &error);
    g_autofree char *code = error_code(error);
    if (strcmp(wanted, code) != 0)
        fail(runner, "%s: the file says %s, Refit says %s%s%s", where, wanted, code,
             error != NULL ? ": " : "", error != NULL ? error->message : "");
    json_decref(copy);
}

/* Runs each item of the list `key`, where the file has one. */
static void run_list(Runner *runner, const json_t *root, const char *key,
                     void (*run)(Runner *runner, const json_t *root, const json_t *item,
                                 gsize index)) {
    const json_t *list = json_object_get(root, key);
    g_autoptr(GError) error = NULL;

    if (list != NULL && !report_expect_list(list, key, &error))
        fail(runner, "%s", error->message);
    for (gsize i = 0; i < json_array_size(list); i++)
        run(runner, root, json_array_get(list, i), i);
}

/* ---- files ---- */

static void run_file(Runner *runner, const char *path) {
    json_error_t place;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &place);

    if (root == NULL) {
        g_autofree char *text = refit_error_excerpt(place.text);
        fail(runner, "%d:%d: %s", place.line, place.column, text);
        return;
    }
    if (!json_is_object(root)) {
        fail(runner, "the file does not hold one object");
    } else {
        run_case(runner, root);
        run_list(runner, root, "checks", run_check);
        run_list(runner, root, "negatives", run_negative);
    }
    json_decref(root);
}

static int compare_names(gconstpointer a, gconstpointer b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of the JSON files of a folder, in order; NULL with an error. */
static GPtrArray *list_files(const char *folder, GError **error) {
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GDir) dir = g_dir_open(folder, 0, error);

    if (dir == NULL)
        return NULL;
    for (const char *name; (name = g_dir_read_name(dir)) != NULL;)
        if (g_str_has_suffix(name, ".json"))
            g_ptr_array_add(names, g_strdup(name));
    g_ptr_array_sort(names, compare_names);
    return g_steal_pointer(&names);
}

static const char usage[] =
    "usage: case-runner DIR\n"
    "\n"
    "Runs every *.json file in DIR: a case of resharding and what must come out of it,\n"
    "in the format of docs/reports.md. Prints one line per failure and a closing count.\n"
    "\n"
    "exit status: 0 all passed, 1 some failed, 2 wrong call, 3 nothing to run\n";

int main(int argc, char **argv) {
    g_autoptr(GError) error = NULL;
    guint n_failed = 0;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fputs(usage, stderr);
        return 2;
    }
    g_autoptr(GPtrArray) names = list_files(argv[1], &error);
    if (names == NULL) {
        fprintf(stderr, "case-runner: %s\n", error->message);
        return 3;
    }
    if (names->len == 0) {
        fprintf(stderr, "case-runner: no *.json file in %s\n", argv[1]);
        return 3;
    }
    for (guint i = 0; i < names->len; i++) {
        Runner runner = {.file = g_ptr_array_index(names, i)};
        g_autofree char *path = g_build_filename(argv[1], runner.file, NULL);
        run_file(&runner, path);
        n_failed += runner.n_failures > 0 ? 1 : 0;
    }
    printf("%u case%s: %u passed, %u failed\n", names->len, names->len == 1 ? "" : "s",
           names->len - n_failed, n_failed);
    return n_failed > 0 ? 1 : 0;
}
