/*
 * The weights that `refit run` moves and compares: values follow from tensor, index and run and not
 * from where they lie, padding keeps its filler, and each wrong byte is found and named.
 */

#include "cli/cli-weights.h"
#include "lib/refit-disk.h"
#include "model/case/refit-case.h"

#include <string.h>

typedef struct {
    RefitCase *refit_case;
    RefitRankViews *source, *destination;
} Sides;

/* The first rank of either side of a shipped case. */
static void load(Sides *sides, const char *const *overrides) {
    const RefitStore store = {.layouts_dir = REFIT_SOURCE_DATA_DIR "/layouts",
                              .topologies_dir = REFIT_SOURCE_DATA_DIR "/topologies",
                              .files = &refit_disk};
    g_autoptr(GError) error = NULL;

    sides->refit_case = refit_case_load(&store, "tiny", overrides, &error);
    g_assert_no_error(error);
    sides->source = refit_rank_views_new(sides->refit_case->source,
                                         refit_layout_ranks(sides->refit_case->source)[0], &error);
    g_assert_no_error(error);
    sides->destination =
        refit_rank_views_new(sides->refit_case->destinations[0],
                             refit_layout_ranks(sides->refit_case->destinations[0])[0], &error);
    g_assert_no_error(error);
}

static void clear(Sides *sides) {
    refit_rank_views_free(sides->source);
    refit_rank_views_free(sides->destination);
    refit_case_free(sides->refit_case);
}

static guint8 *fill(const Sides *sides, const RefitRankViews *views, guint parameter, guint run) {
    guint8 *bytes = g_malloc(views->parameters[parameter].bytes + 1);

    cli_weights_fill(sides->refit_case->model, views, parameter, run, bytes);
    return bytes;
}

/* Element (row, column) of a 2-d view, as two bytes. */
static guint element(const RefitView *view, const guint8 *bytes, guint64 row, guint64 column) {
    const guint64 index[2] = {row, column};
    guint64 place = view->offset;
    guint16 value;

    for (guint dim = 0; dim < 2; dim++) {
        const RefitIntervalList *list = view->region.dims[dim];
        gboolean found = FALSE;

        for (guint i = 0; i < list->n; i++)
            if (index[dim] >= list->items[i].lo && index[dim] < list->items[i].hi) {
                place += view->stride[dim] * (list->items[i].at + index[dim] - list->items[i].lo);
                found = TRUE;
            }
        if (!found)
            return G_MAXUINT;
    }
    memcpy(&value, bytes + place * sizeof value, sizeof value);
    return value;
}

static void values_do_not_depend_on_the_layout(void) {
    Sides sides;
    guint n_compared = 0;

    load(&sides, NULL);
    for (guint v = 0; v < sides.source->n_views; v++) {
        const RefitView *from = &sides.source->views[v];
        const RefitView *to = refit_rank_views_find(sides.destination, from->tensor, NULL);
        const RefitTensor *tensor = refit_model_tensor(sides.refit_case->model, from->tensor);
        g_autofree guint8 *here = NULL, *there = NULL;

        if (to == NULL || tensor->n_dims != 2)
            continue;
        here = fill(&sides, sides.source, from->parameter, 3);
        there = fill(&sides, sides.destination, to->parameter, 3);
        for (guint64 row = 0; row < tensor->shape[0]; row++)
            for (guint64 column = 0; column < tensor->shape[1]; column++) {
                guint a = element(from, here, row, column), b = element(to, there, row, column);

                if (a == G_MAXUINT || b == G_MAXUINT)
                    continue;
                g_assert_cmpuint(a, ==, b);
                n_compared++;
            }
    }
    g_assert_cmpuint(n_compared, >, 500);
    clear(&sides);
}

static void tensors_runs_and_elements_differ(void) {
    const char *const overrides[] = {"dtype=f32", NULL}; /* wide enough for chance to be out */
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);
    Sides sides;
    guint n = 0;

    load(&sides, overrides);
    for (guint run = 0; run < 2; run++)
        for (guint p = 0; p < sides.source->n_parameters; p++) {
            g_autofree guint8 *bytes = fill(&sides, sides.source, p, run);

            for (guint64 i = 0; i < sides.source->parameters[p].bytes / 4; i++) {
                guint32 value;

                memcpy(&value, bytes + 4 * i, sizeof value);
                if (value == 0x01010101U * CLI_WEIGHTS_FILLER)
                    continue; /* padding of the vocabulary */
                g_hash_table_add(seen, GUINT_TO_POINTER(value));
                n++;
            }
        }
    g_assert_cmpuint(n, >, 1000);
    g_assert_cmpuint(g_hash_table_size(seen), ==, n);
    clear(&sides);
}

static void every_wrong_byte_is_found(void) {
    Sides sides;

    load(&sides, NULL);
    for (guint p = 0; p < sides.destination->n_parameters; p++) {
        g_autofree guint8 *bytes = fill(&sides, sides.destination, p, 1);
        g_autoptr(GError) error = NULL;

        g_assert_true(
            cli_weights_check(sides.refit_case->model, sides.destination, p, 1, bytes, &error));
        g_assert_no_error(error);
        for (guint64 i = 0; i < sides.destination->parameters[p].bytes; i += 13) {
            g_autofree char *says = g_strdup_printf("byte %" G_GUINT64_FORMAT " is", i);

            bytes[i] ^= 1;
            g_assert_false(
                cli_weights_check(sides.refit_case->model, sides.destination, p, 1, bytes, &error));
            g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
            g_assert_nonnull(strstr(error->message, sides.destination->parameters[p].name));
            g_assert_nonnull(strstr(error->message, "left 1 wrong of"));
            g_assert_nonnull(strstr(error->message, says));
            g_clear_error(&error);
            bytes[i] ^= 1;
        }
    }
    clear(&sides);
}

static void another_run_is_found(void) {
    Sides sides;
    g_autofree guint8 *bytes = NULL;
    g_autoptr(GError) error = NULL;

    load(&sides, NULL);
    bytes = fill(&sides, sides.destination, 0, 1);
    g_assert_false(
        cli_weights_check(sides.refit_case->model, sides.destination, 0, 2, bytes, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    clear(&sides);
}

/* A parameter of one row of padding behind two of a tensor, made by hand. */
static void padding_keeps_its_filler(void) {
    Sides sides;
    g_autoptr(GError) error = NULL;
    RefitParameter parameter = {
        .name = (char *)"padded", .dtype = REFIT_DTYPE_BF16, .n_dims = 1, .shape = {3}, .bytes = 6};
    RefitView view = {.stride = {1}};
    RefitRankViews views = {
        .n_parameters = 1, .n_views = 1, .parameters = &parameter, .views = &view};
    const guint64 shape[] = {2};
    guint8 bytes[6];

    load(&sides, NULL);
    for (view.tensor = 0; refit_model_tensor(sides.refit_case->model, view.tensor)->n_dims != 1;)
        view.tensor++;
    view.region = refit_region_full(1, shape);
    cli_weights_fill(sides.refit_case->model, &views, 0, 0, bytes);
    g_assert_cmpuint(bytes[4], ==, CLI_WEIGHTS_FILLER);
    g_assert_cmpuint(bytes[5], ==, CLI_WEIGHTS_FILLER);
    g_assert_true(bytes[0] != CLI_WEIGHTS_FILLER || bytes[1] != CLI_WEIGHTS_FILLER);
    bytes[5] = 0;
    g_assert_false(cli_weights_check(sides.refit_case->model, &views, 0, 0, bytes, &error));
    g_assert_nonnull(strstr(error->message, "byte 5 is 0x00 and must be 0xa5 (padding)"));
    g_clear_error(&error);
    bytes[5] = CLI_WEIGHTS_FILLER;
    bytes[1] ^= 0x80;
    g_assert_false(cli_weights_check(sides.refit_case->model, &views, 0, 0, bytes, &error));
    g_assert_nonnull(
        strstr(error->message, refit_model_tensor(sides.refit_case->model, view.tensor)->name));
    refit_region_clear(&view.region);
    clear(&sides);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/weights/values-do-not-depend-on-the-layout",
                    values_do_not_depend_on_the_layout);
    g_test_add_func("/weights/tensors-runs-and-elements-differ", tensors_runs_and_elements_differ);
    g_test_add_func("/weights/every-wrong-byte-is-found", every_wrong_byte_is_found);
    g_test_add_func("/weights/another-run-is-found", another_run_is_found);
    g_test_add_func("/weights/padding-keeps-its-filler", padding_keeps_its_filler);
    return g_test_run();
}
