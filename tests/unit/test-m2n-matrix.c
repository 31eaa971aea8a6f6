/*
 * The cases of a public suite for moving tensors between two meshes (data/m2n-cases.tsv): every one
 * that must work is planned by every strategy and proved; bytes per destination rank and over the
 * network are compared with what the row says. The plan of the same case, where that is too large
 * with every dim shortened to a few elements per shard, is carried out element by element. Cases
 * that must be refused are about execution, not planning, and are only counted.
 */

#include "element-oracle.h"
#include "m2n-rows.h"
#include "strategy-cases.h"

#define MAX_WORLD 256
/* Worlds up to this size are also planned for domains of two GPUs. */
#define SMALL_WORLD 16
/* Elements times ranks of a plan that is carried out as it is, and at most. */
#define EXACT_LIMIT 200000
#define SHORT_LIMIT 1500000

/* What was done with a strategy, over all rows. */
typedef struct {
    guint exact, shortened, totals_only; /* plans */
} Counts;

/* ---- problems ---- */

static void place_side(ElementOracle *oracle, guint tensor, gboolean needed, const M2nSide *side) {
    guint ranks[MAX_WORLD];
    ElementMesh mesh = {.n_axes = 2, .ranks = ranks};

    g_assert_cmpuint(side->n_ranks, <=, MAX_WORLD);
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

static ElementOracle *new_oracle(const M2nRow *row, guint n_tensors, guint domain_size) {
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
static void check_totals(const RefitPlan *plan, const M2nRow *row, guint n_tensors,
                         guint64 network) {
    guint64 whole = m2n_row_elements(row) * row->element_bytes;
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

        if (strategy_get(plan->strategy)->sends == REFIT_SENDS_WHOLE)
            expected = n_tensors * whole;
        else if (strategy_get(plan->strategy)->sends == REFIT_SENDS_BOTH)
            expected = shard + (n_tensors - 1) * whole;
        g_assert_cmpuint(in[NETWORK] + in[NVLINK] + in[LOCAL], ==, expected);
    }
    g_assert_cmpuint(strategy_delivered(plan), ==, n_tensors * shard * row->destination.n_ranks);
}

static void check_elements(const ElementOracle *oracle, const RefitPlan *plan, const M2nRow *row,
                           guint n_tensors) {
    const M2nSide *destination = &row->destination;
    guint64 shard = m2n_row_elements(row) * row->element_bytes / destination->n_shards;

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

/* Plans the row as it is and, when that is too much to carry out, shortened: of one tensor with the
 * strategies that treat all alike, of two with those that do not. `all_counts`: per strategy. */
static void check_row(const M2nRow *row, guint n_tensors, guint domain_size, Counts *all_counts) {
    M2nRow small = m2n_row_elements(row) * row->world <= EXACT_LIMIT ? *row : m2n_row_shorten(row);
    guint64 scale = m2n_row_elements(row) / m2n_row_elements(&small);
    g_autoptr(ElementOracle) oracle = new_oracle(&small, n_tensors, domain_size);
    guint64 network = element_oracle_network_bytes(oracle);
    g_autoptr(RefitCase) refit_case = m2n_row_case(row, n_tensors, domain_size, 1);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitCase) small_case = m2n_row_case(&small, n_tensors, domain_size, scale);
    g_autoptr(RefitProblem) small_problem = plan_case_problem(small_case);

    for (guint s = 0; refit_strategies()[s] != NULL; s++) {
        const char *strategy = refit_strategies()[s]->name;
        Counts *counts = &all_counts[s];
        RefitStrategySends sends = refit_strategies()[s]->sends;
        gboolean whole = sends == REFIT_SENDS_WHOLE;
        guint64 moved = m2n_row_elements(&small) * n_tensors *
                        (whole ? row->world : row->destination.n_ranks / row->destination.n_shards);

        if ((sends == REFIT_SENDS_BOTH) != (n_tensors == 2))
            continue;
        g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy);

        check_totals(plan, row, n_tensors, network * scale);
        if (moved > SHORT_LIMIT) {
            counts->totals_only++;
        } else if (scale == 1) {
            check_elements(oracle, plan, row, n_tensors);
            counts->exact++;
        } else {
            g_autoptr(RefitPlan) small_plan = strategy_plan(small_problem, strategy);
            check_totals(small_plan, &small, n_tensors, network);
            check_elements(oracle, small_plan, &small, n_tensors);
            counts->shortened++;
        }
    }
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
    g_autoptr(GArray) rows = m2n_rows_read();
    guint at = 0, n_work = 0, n_left = 0;

    for (guint g = 0; g < G_N_ELEMENTS(groups); g++) {
        for (guint i = 0; i < groups[g].n; i++, at++) {
            const M2nRow *row = &g_array_index(rows, M2nRow, at);

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

/* Rows of worlds from `smallest` to `largest` ranks, and what must have been done with a strategy,
 * by what it sends. */
typedef struct {
    guint smallest, largest;
    guint n_rows;
    Counts expected[REFIT_SENDS_BOTH + 1];
} Share;

static void test_rows(gconstpointer data) {
    const Share *share = data;
    g_autoptr(GArray) rows = m2n_rows_read();
    g_autofree Counts *counts = g_new0(Counts, strategy_count());
    guint n_rows = 0;

    for (guint i = 0; i < rows->len; i++) {
        const M2nRow *row = &g_array_index(rows, M2nRow, i);

        if (!row->must_work || row->world < share->smallest || row->world > share->largest)
            continue;
        check_row(row, 1, 8, counts);
        if (row->world <= SMALL_WORLD)
            check_row(row, 1, 2, counts);
        if (n_rows++ % 10 == 0)
            check_row(row, 2, 8, counts);
    }
    g_assert_cmpuint(n_rows, ==, share->n_rows);
    for (guint s = 0; refit_strategies()[s] != NULL; s++) {
        const Counts *expected = &share->expected[refit_strategies()[s]->sends];

        g_test_message("%s: %u plans carried out as they are, %u shortened, %u only counted",
                       refit_strategies()[s]->name, counts[s].exact, counts[s].shortened,
                       counts[s].totals_only);
        g_assert_cmpuint(counts[s].exact, ==, expected->exact);
        g_assert_cmpuint(counts[s].shortened, ==, expected->shortened);
        g_assert_cmpuint(counts[s].totals_only, ==, expected->totals_only);
    }
}

int main(int argc, char **argv) {
    /* For one that sends shards, whole tensors, or both. */
    static const Share small = {2, SMALL_WORLD, 473, {{206, 740, 0}, {206, 740, 0}, {10, 38, 0}}};
    static const Share middle = {
        SMALL_WORLD + 1, 64, 522, {{15, 507, 0}, {15, 507, 0}, {2, 51, 0}}};
    static const Share large = {65, MAX_WORLD, 438, {{8, 430, 0}, {8, 429, 1}, {0, 44, 0}}};

    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/m2n-matrix/every-row-is-read", test_every_row_is_read);
    g_test_add_data_func("/m2n-matrix/up-to-16-ranks", &small, test_rows);
    g_test_add_data_func("/m2n-matrix/17-to-64-ranks", &middle, test_rows);
    g_test_add_data_func("/m2n-matrix/more-than-64-ranks", &large, test_rows);
    return g_test_run();
}
