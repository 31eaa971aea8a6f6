/*
 * The kernels on this machine's GPU, or on the CPU stand-in of the tests: right, and how fast.
 *
 *     gpu-check-pack check [--seed S] [--slices N] [--large BYTES]
 *     gpu-check-pack measure [--bytes N] [--shortest N] [--times K] [--limit SECONDS]
 *
 * Prints one JSON object, and a line on stderr when something is wrong. Exit: 0; 1 for wrong bytes
 * or a call that failed; 77 when nothing can run here.
 */

#include <stdio.h>
#include <string.h>

#include "validation/measure.h"
#include "validation/pack-check.h"
#include "validation/pack-measure.h"

enum { EXIT_WELL = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_NOTHING = 77 };
enum { MOST_BYTES = 4 << 20 };

static struct {
    gint seed, n_slices, n_times;
    gint64 large, bytes, shortest;
    double limit_s;
} options = {.seed = 1,
             .n_slices = 400,
             .n_times = 9,
             .bytes = 1 << 30,
             .shortest = PACK_MEASURE_SHORTEST_RUN,
             .limit_s = 60};

static const GOptionEntry entries[] = {
    {"seed", 0, 0, G_OPTION_ARG_INT, &options.seed, "of the random slices", "S"},
    {"slices", 0, 0, G_OPTION_ARG_INT, &options.n_slices, "random slices per kernel", "N"},
    {"large", 0, 0, G_OPTION_ARG_INT64, &options.large, "bytes of the large region; 0: none", "N"},
    {"bytes", 0, 0, G_OPTION_ARG_INT64, &options.bytes, "payload of each launch", "N"},
    {"shortest", 0, 0, G_OPTION_ARG_INT64, &options.shortest, "bytes of the shortest run", "N"},
    {"times", 0, 0, G_OPTION_ARG_INT, &options.n_times, "times that each is timed", "K"},
    {"limit", 0, 0, G_OPTION_ARG_DOUBLE, &options.limit_s, "seconds for all of it", "S"},
    G_OPTION_ENTRY_NULL,
};

static gboolean has_memory(guint64 bytes, guint64 *free_out, GError **error) {
    size_t free_bytes, total_bytes;

    if (!PACK_CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes), error))
        return FALSE;
    *free_out = free_bytes;
    return bytes <= free_bytes;
}

/* ---- check ---- */

static gboolean check_random(PackCheck *check, GError **error) {
    for (gint i = 0; i < options.n_slices; i += PACK_CHECK_SLICES)
        if (!pack_check_slices(check, PACK_CHECK_SLICES, error))
            return FALSE;
    for (gint i = 0; i < options.n_slices; i++)
        if (!pack_check_copy(check, error))
            return FALSE;
    return TRUE;
}

static gboolean check_large(PackCheck *check, RefitJson *json, GError **error) {
    const guint64 bytes = (guint64)options.large, spare = 64 << 20;
    guint64 free_bytes;
    GError *failure = NULL;

    if (bytes == 0)
        return TRUE;
    if (!has_memory(3 * bytes + spare, &free_bytes, &failure)) {
        if (failure != NULL) {
            g_propagate_error(error, failure);
            return FALSE;
        }
        refit_json_string(json, "large_skipped", "too little free memory");
        return TRUE;
    }
    refit_json_uint(json, "large_bytes", bytes);
    return pack_check_large(check, bytes, error);
}

static gboolean check(RefitJson *json, GError **error) {
    g_autoptr(PackCheck) check = pack_check_new((guint32)options.seed, MOST_BYTES, error);

    if (check == NULL || !check_random(check, error))
        return FALSE;
    refit_json_uint(json, "seed", (guint64)options.seed);
    refit_json_uint(json, "regions", check->n_regions);
    refit_json_uint(json, "bytes", check->n_bytes);
    refit_json_begin_row(json, "regions_by_access_bytes_1_2_4_8_16");
    for (guint i = 0; i < PACK_CHECK_WIDTHS; i++)
        refit_json_uint(json, NULL, check->widths[i]);
    refit_json_end_row(json);
    return check_large(check, json, error);
}

/* ---- measure ---- */

static gboolean measure(RefitJson *json, GError **error) {
    const guint64 longest = PACK_MEASURE_LONGEST_RUN, spare = 64 << 20;
    guint64 free_bytes = 0;
    PackMeasure what = {.bytes = (guint64)options.bytes,
                        .n_times = (guint)options.n_times,
                        .shortest_run = (guint64)options.shortest,
                        .limit_s = options.limit_s};
    GError *failure = NULL;

    if (!has_memory(6 * what.bytes + spare, &free_bytes, &failure) && failure == NULL)
        what.bytes = (MAX(free_bytes, spare) - spare) / 6;
    if (failure != NULL) {
        g_propagate_error(error, failure);
        return FALSE;
    }
    what.bytes = MAX(what.bytes / longest, 1) * longest;
    return pack_measure(&what, json, error);
}

/* ---- main ---- */

static gboolean read_options(int argc, char **argv, GError **error) {
    g_autoptr(GOptionContext) context = g_option_context_new("check|measure");

    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, error))
        return FALSE;
    if (argc == 2 && (g_str_equal(argv[1], "check") || g_str_equal(argv[1], "measure")) &&
        options.n_slices >= 0 && options.n_times > 0 && options.large >= 0 && options.bytes >= 0 &&
        options.shortest >= PACK_MEASURE_SHORTEST_RUN &&
        PACK_MEASURE_LONGEST_RUN % options.shortest == 0)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID, "usage: gpu-check-pack check|measure");
    return FALSE;
}

int main(int argc, char **argv) {
    g_autoptr(GError) error = NULL;
    RefitJson *json;
    gboolean well;

    if (!read_options(argc, argv, &error)) {
        fprintf(stderr, "gpu-check-pack: %s\n", error->message);
        return EXIT_USAGE;
    }
    if (!measure_find_device("gpu-check-pack"))
        return EXIT_NOTHING;
    json = refit_json_new(2);
    refit_json_begin_object(json, NULL);
    well = measure_write_device(json, &error) &&
           (g_str_equal(argv[1], "check") ? check(json, &error) : measure(json, &error));
    if (!well)
        refit_json_string(json, "error", error->message);
    refit_json_end_object(json);
    g_autofree char *text = refit_json_finish(json, NULL);
    fputs(text, stdout);
    if (!well)
        fprintf(stderr, "gpu-check-pack: %s\n", error->message);
    return well && fflush(stdout) == 0 ? EXIT_WELL : EXIT_WRONG;
}
