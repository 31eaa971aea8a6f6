/*
 * The program's dealings with its surroundings: streams, files, clock. Progress lines go to stderr
 * and only to a terminal, so that neither a pipe nor a log ever holds half a line.
 */

#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

void cli_print(const char *format, ...) {
    va_list arguments;
    g_autofree char *text = NULL;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    fputs(text, stdout);
}

void cli_print_labelled(const char *label, const char *format, ...) {
    va_list arguments;
    g_autofree char *text = NULL;

    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_autofree char *line = cli_labelled(label, text);
    fputs(line, stdout);
}

void cli_print_table(const CliTable *table) {
    g_autofree char *text = cli_table_to_string(table);

    fputs(text, stdout);
}

char *cli_count(guint64 n, const char *noun) {
    const char *ending = g_str_has_suffix(noun, "s") || g_str_has_suffix(noun, "ch") ? "es" : "s";

    return g_strdup_printf("%" G_GUINT64_FORMAT " %s%s", n, noun, n == 1 ? "" : ending);
}

void cli_progress(const Cli *cli, const char *format, ...) {
    va_list arguments;
    g_autofree char *text = NULL;

    if (!cli->progress)
        return;
    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}

void cli_progress_done(const Cli *cli) {
    if (cli->progress)
        fputs("\r\033[K", stderr);
}

void cli_print_json(RefitJson *json) {
    gsize length;
    g_autofree char *text = refit_json_finish(json, &length);

    fwrite(text, 1, length, stdout);
}

gboolean cli_is_stdout(const char *path) {
    return g_strcmp0(path, "-") == 0;
}

gboolean cli_check_output(const Cli *cli, const char *path, GError **error) {
    if (path == NULL || cli_is_stdout(path) || cli->options.force ||
        !g_file_test(path, G_FILE_TEST_IS_REGULAR))
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "%s exists already; write to another file or replace it with --force", path);
    return FALSE;
}

/* Devices and pipes cannot be replaced by a renamed file; they are written to as they are. */
static gboolean write_in_place(const char *path, const char *data, gsize length) {
    FILE *stream = fopen(path, "wb");
    gboolean ok = stream != NULL && fwrite(data, 1, length, stream) == length;

    if (stream != NULL) {
        int saved = errno;
        gboolean closed = fclose(stream) == 0;

        if (!ok)
            errno = saved;
        ok = ok && closed;
    }
    return ok;
}

gboolean cli_write_output(const Cli *cli, const char *path, const char *data, gsize length,
                          GError **error) {
    g_autoptr(GError) local = NULL;

    if (!cli_check_output(cli, path, error))
        return FALSE;
    if (cli_is_stdout(path)) {
        cli_progress_done(cli);
        fwrite(data, 1, length, stdout); /* main() checks the stream */
        return TRUE;
    }
    if (g_file_test(path, G_FILE_TEST_EXISTS) && !g_file_test(path, G_FILE_TEST_IS_REGULAR)) {
        if (write_in_place(path, data, length))
            return TRUE;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "cannot write %s: %s", path,
                    g_strerror(errno));
        return FALSE;
    }
    if (!g_file_set_contents(path, data, (gssize)length, &local)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "cannot write %s: %s", path,
                    local->message);
        return FALSE;
    }
    return TRUE;
}

double cli_clock_s(void) {
    return (double)g_get_monotonic_time() / G_USEC_PER_SEC;
}

guint64 cli_peak_rss_bytes(void) {
    struct rusage own, children;

    if (getrusage(RUSAGE_SELF, &own) != 0 || getrusage(RUSAGE_CHILDREN, &children) != 0)
        return 0;
    return (guint64)MAX(own.ru_maxrss, children.ru_maxrss) * 1024; /* Linux counts KiB */
}
