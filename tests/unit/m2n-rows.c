/*
 * Reading is strict: a row that does not make sense ends the test. Cost: the file once.
 */

#include "m2n-rows.h"

#include "strategy-cases.h"

enum { N_COLUMNS = 14 };

/* Elements times ranks of a row that is carried out as it is. */
#define AS_IT_IS 200000

static guint read_uint(const char *text) {
    guint64 number;

    g_assert_true(g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT32, &number, NULL));
    return (guint)number;
}

static M2nSide read_side(char **columns) {
    M2nSide side = {.n_shards = read_uint(columns[3])};
    g_auto(GStrv) ranks = g_strsplit(columns[0], "-", -1);
    g_auto(GStrv) sizes = g_strsplit(columns[1], "x", -1);
    g_auto(GStrv) places = g_strsplit(columns[2], ",", -1);
    guint shards = 1;

    g_assert_cmpuint(g_strv_length(ranks), ==, 2);
    g_assert_cmpuint(g_strv_length(sizes), ==, 2);
    g_assert_cmpuint(g_strv_length(places), ==, 2);
    side.first = read_uint(ranks[0]);
    side.n_ranks = read_uint(ranks[1]) + 1 - side.first;
    for (guint axis = 0; axis < 2; axis++) {
        side.sizes[axis] = read_uint(sizes[axis]);
        side.shard_dims[axis] = REFIT_MAX_DIMS;
        if (g_str_equal(places[axis], "R"))
            continue;
        g_assert_true(places[axis][0] == 'S');
        side.shard_dims[axis] = read_uint(places[axis] + 1);
        shards *= side.sizes[axis];
    }
    g_assert_cmpuint(side.sizes[0] * side.sizes[1], ==, side.n_ranks);
    g_assert_cmpuint(shards, ==, side.n_shards);
    return side;
}

static M2nRow read_row(const char *line) {
    g_auto(GStrv) columns = g_strsplit(line, "\t", -1);

    g_assert_cmpuint(g_strv_length(columns), ==, N_COLUMNS);
    g_assert_true(g_str_equal(columns[13], "ok") || g_str_equal(columns[13], "reject"));
    g_auto(GStrv) shape = g_strsplit(columns[3], "x", -1);
    M2nRow row = {
        .name = g_strdup_printf("case %s %s, %s ranks", columns[0], columns[1], columns[4]),
        .group = g_strdup(columns[1]),
        .must_work = g_str_equal(columns[13], "ok"),
        .number = read_uint(columns[0]),
        .element_bytes = read_uint(columns[2]),
        .world = read_uint(columns[4]),
        .source = read_side(columns + 5),
        .destination = read_side(columns + 9),
    };

    for (; shape[row.n_dims] != NULL; row.n_dims++)
        row.shape[row.n_dims] = read_uint(shape[row.n_dims]);
    return row;
}

guint64 m2n_row_elements(const M2nRow *row) {
    guint64 n = 1;

    for (guint dim = 0; dim < row->n_dims; dim++)
        n *= row->shape[dim];
    return n;
}

static guint n_cuts(const M2nSide *side, guint dim) {
    guint n = 1;

    for (guint axis = 0; axis < 2; axis++)
        n *= side->shard_dims[axis] == dim ? side->sizes[axis] : 1;
    return n;
}

M2nRow m2n_row_shorten(const M2nRow *row) {
    M2nRow result = *row;

    for (guint dim = 0; dim < row->n_dims; dim++) {
        guint a = n_cuts(&row->source, dim), b = n_cuts(&row->destination, dim);
        guint64 least = a; /* common multiple of both */

        while (least % b != 0)
            least += a;
        g_assert_cmpuint(row->shape[dim] % least, ==, 0);
        result.shape[dim] = least;
        for (guint k = 2; k <= 3; k++)
            if (least < 8 && row->shape[dim] % (k * least) == 0)
                result.shape[dim] = k * least;
    }
    return result;
}

static char *side_text(const M2nSide *side) {
    GString *text = g_string_new(NULL);

    g_string_append_printf(text, "gpus: %u, first_gpu: %u, rules: [{tensors: \"*\", mesh: [%u, %u]",
                           side->n_ranks, side->first, side->sizes[0], side->sizes[1]);
    for (guint axis = 0; axis < 2; axis++) {
        g_string_append(text, axis == 0 ? ", place: [" : ", ");
        if (side->shard_dims[axis] < REFIT_MAX_DIMS)
            g_string_append_printf(text, "{shard: %u, order: %u}", side->shard_dims[axis], axis);
        else
            g_string_append(text, "replicate");
    }
    g_string_append(text, "]}]");
    return g_string_free(text, FALSE);
}

RefitCase *m2n_row_case(const M2nRow *row, guint n_tensors, guint domain_size, guint64 scale) {
    static const char *const dtypes[] = {NULL, "u8", "bf16", NULL, "f32"};
    g_autoptr(GString) tensors = g_string_new(NULL);
    g_autofree char *source = side_text(&row->source);
    g_autofree char *destination = side_text(&row->destination);
    g_autofree char *topology =
        g_strdup_printf("node:%u gpu:%u nvlink:450GBps nic:50GBps",
                        (row->world + domain_size - 1) / domain_size, domain_size);

    for (guint t = 0; t < n_tensors; t++) {
        g_string_append_printf(tensors, "  - {name: w%u, dtype: %s, role: %s, shape: [", t,
                               dtypes[row->element_bytes], t == 0 ? "dense_up" : "other");
        for (guint dim = 0; dim < row->n_dims; dim++)
            g_string_append_printf(tensors, "%s%" G_GUINT64_FORMAT, dim > 0 ? ", " : "",
                                   row->shape[dim]);
        g_string_append(tensors, "]}\n");
    }
    const StrategyCase described = {topology, tensors->str, source, {destination, NULL}};
    RefitCase *refit_case = strategy_case_new(&described);
    refit_case->profile->stripe_bytes.value =
        MAX(1, refit_case->profile->stripe_bytes.value / (double)scale);
    return refit_case;
}

RefitCase *m2n_row_light_case(const M2nRow *row, const char *strategy, guint domain_size) {
    gboolean two = strategy_get(strategy)->sends == REFIT_SENDS_BOTH;
    M2nRow light = m2n_row_elements(row) * row->world <= AS_IT_IS ? *row : m2n_row_shorten(row);

    return m2n_row_case(&light, two ? 2 : 1, domain_size,
                        m2n_row_elements(row) / m2n_row_elements(&light));
}

gboolean m2n_row_is_first(const GArray *rows, guint index) {
    const M2nRow *row = &g_array_index(rows, M2nRow, index);

    for (guint i = 0; i < index; i++) {
        const M2nRow *other = &g_array_index(rows, M2nRow, i);
        if (other->world == row->world && g_str_equal(other->group, row->group))
            return FALSE;
    }
    return TRUE;
}

static void row_clear(gpointer data) {
    M2nRow *row = data;

    g_free(row->group);
    g_free(row->name);
}

GArray *m2n_rows_read(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL;
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(M2nRow));

    g_array_set_clear_func(rows, row_clear);
    g_file_get_contents(REFIT_TEST_SOURCE_DIR "/data/m2n-cases.tsv", &text, NULL, &error);
    g_assert_no_error(error);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i] != NULL; i++) {
        if (lines[i][0] == '\0' || lines[i][0] == '#' || g_str_has_prefix(lines[i], "case\t"))
            continue;
        M2nRow row = read_row(lines[i]);
        g_array_append_val(rows, row);
    }
    return rows;
}
