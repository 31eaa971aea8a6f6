/*
 * The cases of a public suite for moving tensors between two meshes (data/m2n-cases.tsv): every one
 * that must work is planned by every strategy and proved; bytes per destination rank and over the
 * network are compared with what the row says. The plan of the same case, where that is too large
 * with every dim shortened to a few elements per shard, is carried out element by element. Cases
 * that must be refused are about execution, not planning, and are only counted.
 */

#include "element-oracle.h"
#include "strategy-cases.h"

#define N_COLUMNS 14
#define MAX_WORLD 256
/* Worlds up to this size are also planned for domains of two GPUs. */
#define SMALL_WORLD 16
/* Elements times ranks of a plan that is carried out as it is, and at most. */
#define EXACT_LIMIT 200000
#define SHORT_LIMIT 1500000

typedef struct {
    guint sizes[2], shard_dims[2]; /* of the mesh; dim 8 and up: replicate */
    guint first, n_ranks;
    guint n_shards; /* as stated */
} Side;

typedef struct {
    char *group, *name;
    gboolean must_work; /* else it must be refused when executed */
    guint element_bytes, world;
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    Side source, destination;
} Row;

/* What was done, over all rows. */
typedef struct {
    guint rows, plans, exact, shortened, totals_only;
} Counts;

/* ---- rows ---- */

static guint read_uint(const char *text) {
    guint64 number;

    g_assert_true(g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT32, &number, NULL));
    return (guint)number;
}

static Side read_side(char **columns) {
    Side side = {.n_shards = read_uint(columns[3])};
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

static Row read_row(const char *line) {
    g_auto(GStrv) columns = g_strsplit(line, "\t", -1);

    g_assert_cmpuint(g_strv_length(columns), ==, N_COLUMNS);
    g_assert_true(g_str_equal(columns[13], "ok") || g_str_equal(columns[13], "reject"));
    g_auto(GStrv) shape = g_strsplit(columns[3], "x", -1);
    Row row = {
        .name = g_strdup_printf("case %s %s, %s ranks", columns[0], columns[1], columns[4]),
        .group = g_strdup(columns[1]),
        .must_work = g_str_equal(columns[13], "ok"),
        .element_bytes = read_uint(columns[2]),
        .world = read_uint(columns[4]),
        .source = read_side(columns + 5),
        .destination = read_side(columns + 9),
    };

    g_assert_cmpuint(row.world, <=, MAX_WORLD);
    for (; shape[row.n_dims] != NULL; row.n_dims++)
        row.shape[row.n_dims] = read_uint(shape[row.n_dims]);
    return row;
}

static guint64 n_elements(const Row *row) {
    guint64 n = 1;

    for (guint dim = 0; dim < row->n_dims; dim++)
        n *= row->shape[dim];
    return n;
}

static guint n_cuts(const Side *side, guint dim) {
    guint n = 1;

    for (guint axis = 0; axis < 2; axis++)
        n *= side->shard_dims[axis] == dim ? side->sizes[axis] : 1;
    return n;
}

/* The same row with as few elements per shard as keep all shards equal, twice or three times that
 * where it divides. */
static Row shorten(const Row *row) {
    Row result = *row;

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

/* ---- problems ---- */

static char *side_text(const Side *side) {
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

/* `n_tensors` of the row's shape, the first of them one that `hybrid` moves by ring. */
static RefitCase *new_case(const Row *row, guint n_tensors, guint domain_size) {
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
    return strategy_case_new(&described);
}

static void place_side(ElementOracle *oracle, guint tensor, gboolean needed, const Side *side) {
    guint ranks[MAX_WORLD];
    ElementMesh mesh = {.n_axes = 2, .ranks = ranks};

    for (guint i = 0; i < side->n_ranks; i++)
        ranks[i] = side->first + i;
    for (guint axis = 0; axis < 2; axis++) {
        mesh.sizes[axis] = side->sizes[axis];
        if (side->shard_dims[axis] < REFIT_MAX_DIMS)
            mesh.places[axis] = (RefitPlacement){
                .kind = REFIT_PLACEMENT_SHARD, .dim = side->shard_dims[axis], .order = axis};
    }
    element_oracle_place(oracle, tensor, needed, &mesh);
}

static ElementOracle *new_oracle(const Row *row, guint n_tensors, guint domain_size) {
    guint n_nodes = (row->world + domain_size - 1) / domain_size;
    ElementOracle *oracle = element_oracle_new(n_nodes * domain_size, domain_size);

    for (guint t = 0; t < n_tensors; t++) {
        element_oracle_add_tensor(oracle, row->n_dims, row->shape, row->element_bytes);
        place_side(oracle, t, FALSE, &row->source);
        place_side(oracle, t, TRUE, &row->destination);
    }
    return oracle;
}

/* ---- checks ---- */

/* Sums of the plan against the row; `network` is the bound, known from elsewhere. The proof ran
 * when the plan was made. */
static void check_totals(const RefitPlan *plan, const Row *row, guint n_tensors, guint64 network) {
    guint64 whole = n_elements(row) * row->element_bytes;
    guint64 shard = whole / row->destination.n_shards;
    g_autoptr(GError) error = NULL;
    RefitBound bound;

    g_assert_true(refit_bound_compute(plan->problem, &bound, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(bound.network_bytes, ==, network);
    g_assert_cmpuint(plan->link_bytes[NETWORK], >=, network);
    if (g_str_equal(plan->strategy, "refit"))
        g_assert_cmpuint(plan->link_bytes[NETWORK], ==, network);
    for (guint rank = row->destination.first;
         rank < row->destination.first + row->destination.n_ranks; rank++) {
        const guint64 *in = plan->accounts[rank].in;
        guint64 expected = n_tensors * shard;

        if (g_str_equal(plan->strategy, "gather-broadcast"))
            expected = n_tensors * whole;
        else if (g_str_equal(plan->strategy, "hybrid"))
            expected = shard + (n_tensors - 1) * whole;
        g_assert_cmpuint(in[NETWORK] + in[NVLINK] + in[LOCAL], ==, expected);
    }
    g_assert_cmpuint(strategy_delivered(plan), ==, n_tensors * shard * row->destination.n_ranks);
}

static void check_elements(const ElementOracle *oracle, const RefitPlan *plan, const Row *row,
                           guint n_tensors) {
    const Side *destination = &row->destination;
    guint64 shard = n_elements(row) * row->element_bytes / destination->n_shards;

    for (guint rank = 0; rank < row->world; rank++) {
        gboolean needs =
            rank >= destination->first && rank < destination->first + destination->n_ranks;
        g_assert_cmpuint(element_oracle_needed_bytes(oracle, rank), ==,
                         needs ? n_tensors * shard : 0);
    }
    g_autofree char *complaint = element_oracle_run(oracle, plan);
    if (complaint == NULL)
        complaint = element_oracle_check_bytes(oracle, plan);
    if (complaint != NULL)
        g_error("%s, strategy %s: %s", row->name, plan->strategy, complaint);
}

/* Plans the row as it is and, when that is too much to carry out, shortened. */
static void check_row(const Row *row, const char *const *strategies, guint n_tensors,
                      guint domain_size, Counts *counts) {
    Row small = n_elements(row) * row->world <= EXACT_LIMIT ? *row : shorten(row);
    guint64 scale = n_elements(row) / n_elements(&small);
    g_autoptr(ElementOracle) oracle = new_oracle(&small, n_tensors, domain_size);
    guint64 network = element_oracle_network_bytes(oracle);
    g_autoptr(RefitCase) refit_case = new_case(row, n_tensors, domain_size);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitCase) small_case = new_case(&small, n_tensors, domain_size);
    /* Cut as finely as the row itself. */
    small_case->profile->stripe_bytes.value =
        MAX(1, small_case->profile->stripe_bytes.value / (double)scale);
    g_autoptr(RefitProblem) small_problem = plan_case_problem(small_case);

    for (guint s = 0; strategies[s] != NULL; s++) {
        gboolean whole = g_str_has_suffix(strategies[s], "broadcast");
        guint64 moved = n_elements(&small) * n_tensors *
                        (whole ? row->world : row->destination.n_ranks / row->destination.n_shards);
        g_autoptr(RefitPlan) plan = strategy_plan(problem, strategies[s]);

        check_totals(plan, row, n_tensors, network * scale);
        counts->plans++;
        if (moved > SHORT_LIMIT) {
            counts->totals_only++;
        } else if (scale == 1) {
            check_elements(oracle, plan, row, n_tensors);
            counts->exact++;
        } else {
            g_autoptr(RefitPlan) small_plan = strategy_plan(small_problem, strategies[s]);
            check_totals(small_plan, &small, n_tensors, network);
            check_elements(oracle, small_plan, &small, n_tensors);
            counts->shortened++;
        }
    }
}

static void row_clear(gpointer data) {
    Row *row = data;

    g_free(row->group);
    g_free(row->name);
}

static GArray *read_rows(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL;
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(Row));

    g_array_set_clear_func(rows, row_clear);
    g_file_get_contents(REFIT_TEST_SOURCE_DIR "/data/m2n-cases.tsv", &text, NULL, &error);
    g_assert_no_error(error);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i] != NULL; i++) {
        if (lines[i][0] == '\0' || lines[i][0] == '#' || g_str_has_prefix(lines[i], "case\t"))
            continue;
        Row row = read_row(lines[i]);
        g_array_append_val(rows, row);
    }
    return rows;
}

static void test_every_row_is_read(void) {
    /* In the order of the file. */
    static const struct {
        const char *group;
        gboolean must_work;
        guint n;
    } groups[] = {
        {"full_replication", TRUE, 39},
        {"full_sharding", TRUE, 36},
        {"2d_placement", TRUE, 256},
        {"uneven_ratio", TRUE, 232},
        {"tensor_size_sensitivity", TRUE, 480},
        {"nd_tensors", TRUE, 81},
        {"staging_slot_pressure", TRUE, 1},
        {"graph_capture", FALSE, 12},
        {"1d_full_sharding", TRUE, 21},
        {"1d_2d_placement", TRUE, 89},
        {"1d_uneven_ratio", TRUE, 32},
        {"1d_tensor_size_sensitivity", TRUE, 84},
        {"cross_dim_regression", TRUE, 26},
        {"window_null", TRUE, 8},
        {"tiny_contribution", TRUE, 13},
        {"stream_churn", TRUE, 6},
        {"stream_ordering", TRUE, 6},
        {"split_tiny_contribution", TRUE, 13},
        {"split_reverse_mesh", TRUE, 7},
        {"pack_lsa_hput", TRUE, 2},
        {"pack_signal_bank", TRUE, 1},
    };
    g_autoptr(GArray) rows = read_rows();
    guint at = 0, n_work = 0, n_left = 0;

    for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
        for (guint i = 0; i < groups[g].n; i++, at++) {
            const Row *row = &g_array_index(rows, Row, at);

            g_assert_cmpstr(row->group, ==, groups[g].group);
            g_assert_true(row->must_work == groups[g].must_work);
            if (row->must_work) {
                n_work++;
            } else {
                g_test_message("left to execution: %s", row->name);
                n_left++;
            }
        }
    }
    g_assert_cmpuint(at, ==, rows->len);
    g_test_message("%u rows to plan, %u left to execution", n_work, n_left);
    g_assert_cmpuint(n_work, ==, 1433);
    g_assert_cmpuint(n_left, ==, 12);
}

/* Rows of worlds from `smallest` to `largest` ranks, and what must have been done. */
typedef struct {
    guint smallest, largest;
    Counts expected;
} Share;

static void test_rows(gconstpointer data) {
    static const char *const common[] = {"gather-broadcast", "direct", "ring", "refit", NULL};
    static const char *const mixed[] = {"hybrid", NULL};
    const Share *share = data;
    g_autoptr(GArray) rows = read_rows();
    Counts counts = {0};

    for (guint i = 0; i < rows->len; i++) {
        const Row *row = &g_array_index(rows, Row, i);

        if (!row->must_work || row->world < share->smallest || row->world > share->largest)
            continue;
        check_row(row, common, 1, 8, &counts);
        if (row->world <= SMALL_WORLD)
            check_row(row, common, 1, 2, &counts);
        if (counts.rows++ % 10 == 0)
            check_row(row, mixed, 2, 8, &counts);
    }
    g_test_message("%u rows: %u plans, %u of them carried out as they are, %u shortened, %u only "
                   "counted",
                   counts.rows, counts.plans, counts.exact, counts.shortened, counts.totals_only);
    g_assert_cmpuint(counts.rows, ==, share->expected.rows);
    g_assert_cmpuint(counts.plans, ==, share->expected.plans);
    g_assert_cmpuint(counts.exact, ==, share->expected.exact);
    g_assert_cmpuint(counts.shortened, ==, share->expected.shortened);
    g_assert_cmpuint(counts.totals_only, ==, share->expected.totals_only);
}

int main(int argc, char **argv) {
    static const Share small = {2, SMALL_WORLD, {473, 3832, 834, 2998, 0}};
    static const Share middle = {SMALL_WORLD + 1, 64, {522, 2141, 62, 2079, 0}};
    static const Share large = {65, MAX_WORLD, {438, 1796, 32, 1763, 1}};

    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/m2n-matrix/every-row-is-read", test_every_row_is_read);
    g_test_add_data_func("/m2n-matrix/up-to-16-ranks", &small, test_rows);
    g_test_add_data_func("/m2n-matrix/17-to-64-ranks", &middle, test_rows);
    g_test_add_data_func("/m2n-matrix/more-than-64-ranks", &large, test_rows);
    return g_test_run();
}
