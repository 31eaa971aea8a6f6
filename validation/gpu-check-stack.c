/*
 * What CUDA and NCCL do on this machine's GPU where the executor and the simulator assume something
 * of them; on the CPU stand-in of the tests it shows only that the program runs.
 *
 *     gpu-check-stack order|group|copy|beside|width [--bytes N] [--times K] [--wait SECONDS]
 *                     [--resident-blocks N] [--resident-us N]
 *
 * One of them a process, as what the environment says is read once. Prints one JSON object with
 * `device` and `rows`, and a line on stderr when something is wrong. Exit: 0; 1 for a call that
 * failed; 77 when nothing can run here.
 */

#include <nccl.h>
#include <stdio.h>
#include <string.h>

#include "validation/measure.h"
#include "validation/pack-check.h"
#include "validation/stack-nccl.h"
#include "validation/stack-pack.h"

enum { EXIT_WELL = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_NOTHING = 77 };
enum { MOST_TIMES = 100000, MOST_BLOCKS = 1024, MOST_STAY_US = 100000 };

static struct {
    gint64 bytes;
    gint n_times, resident_blocks, resident_us;
    double wait_s;
} options = {
    .bytes = 256 << 20, .n_times = 9, .resident_blocks = 32, .resident_us = 20000, .wait_s = 0.3};

static const GOptionEntry entries[] = {
    {"bytes", 0, 0, G_OPTION_ARG_INT64, &options.bytes, "of a message or a launch", "N"},
    {"times", 0, 0, G_OPTION_ARG_INT, &options.n_times, "times that each is measured", "K"},
    {"wait", 0, 0, G_OPTION_ARG_DOUBLE, &options.wait_s, "order: how long B may take", "SECONDS"},
    {"resident-blocks", 0, 0, G_OPTION_ARG_INT, &options.resident_blocks,
     "beside: blocks of the kernel that stays", "N"},
    {"resident-us", 0, 0, G_OPTION_ARG_INT, &options.resident_us, "beside: how long it stays", "N"},
    G_OPTION_ENTRY_NULL,
};

static gboolean order(RefitJson *json, GError **error) {
    return stack_order((guint)options.n_times, options.wait_s, json, error);
}

static gboolean group(RefitJson *json, GError **error) {
    return stack_group((guint)options.n_times, json, error);
}

static gboolean copy(RefitJson *json, GError **error) {
    return stack_copy((guint64)options.bytes, (guint)options.n_times, json, error);
}

static StackPack what_to_pack(void) {
    return (StackPack){.bytes = (guint64)options.bytes / STACK_PACK_RUN * STACK_PACK_RUN,
                       .n_times = (guint)options.n_times,
                       .resident_blocks = (guint)options.resident_blocks,
                       .resident_ns = (guint64)options.resident_us * 1000};
}

static gboolean beside(RefitJson *json, GError **error) {
    const StackPack what = what_to_pack();

    return stack_pack_beside(&what, json, error);
}

static gboolean width(RefitJson *json, GError **error) {
    const StackPack what = what_to_pack();

    return stack_pack_width(&what, json, error);
}

static const struct {
    const char *name;
    gboolean (*measure)(RefitJson *json, GError **error);
} kinds[] = {
    {"order", order}, {"group", group}, {"copy", copy}, {"beside", beside}, {"width", width},
};

static int find_kind(const char *name) {
    for (guint i = 0; i < G_N_ELEMENTS(kinds); i++)
        if (g_str_equal(kinds[i].name, name))
            return (int)i;
    return -1;
}

/* ---- main ---- */

static gboolean in_range(void) {
    return options.bytes >= STACK_PACK_RUN && options.n_times > 0 &&
           options.n_times <= MOST_TIMES && options.wait_s > 0 && options.resident_blocks > 0 &&
           options.resident_blocks <= MOST_BLOCKS && options.resident_us >= 0 &&
           options.resident_us <= MOST_STAY_US;
}

/* The kind, or -1. */
static int read_options(int argc, char **argv, GError **error) {
    g_autoptr(GOptionContext) context = g_option_context_new("order|group|copy|beside|width");
    int kind = -1;

    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, error))
        return -1;
    if (argc == 2 && in_range())
        kind = find_kind(argv[1]);
    if (kind < 0)
        g_set_error(
            error, REFIT_ERROR, REFIT_ERROR_INVALID,
            "usage: gpu-check-stack order|group|copy|beside|width [OPTION...], with --bytes "
            "from %d, --times from 1 to %d, --resident-blocks to %d, --resident-us to %d",
            STACK_PACK_RUN, MOST_TIMES, MOST_BLOCKS, MOST_STAY_US);
    return kind;
}

static gboolean measure(int kind, RefitJson *json, GError **error) {
    int nccl = 0;
    gboolean well;

    if (ncclGetVersion(&nccl) != ncclSuccess || !measure_write_device(json, error))
        return FALSE;
    refit_json_uint(json, "nccl", (guint64)nccl);
    refit_json_begin_array(json, "rows");
    well = kinds[kind].measure(json, error);
    refit_json_end_array(json);
    return well;
}

int main(int argc, char **argv) {
    g_autoptr(GError) error = NULL;
    const int kind = read_options(argc, argv, &error);
    int status = EXIT_WELL;
    RefitJson *json;

    if (kind < 0) {
        fprintf(stderr, "gpu-check-stack: %s\n", error->message);
        return EXIT_USAGE;
    }
    if (!measure_find_device("gpu-check-stack"))
        return EXIT_NOTHING;
    json = refit_json_new(2);
    refit_json_begin_object(json, NULL);
    if (!measure(kind, json, &error)) {
        status = EXIT_WRONG;
        fprintf(stderr, "gpu-check-stack: %s\n",
                error != NULL ? error->message : "NCCL does not say its version");
    }
    refit_json_end_object(json);
    g_autofree char *text = refit_json_finish(json, NULL);
    fputs(text, stdout);
    return fflush(stdout) == 0 ? status : EXIT_WRONG;
}
