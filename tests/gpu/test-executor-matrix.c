/*
 * The executor on the cases of a public suite for moving tensors between two meshes
 * (data/m2n-cases.tsv): every row that must work, of worlds up to 64 ranks, planned by every
 * strategy, made into programs and carried out on the CPU stand-in, ranks as threads and as
 * processes, in NVLink domains of eight ranks and, worlds up to 16, of two. Compared: the bytes of
 * all parameters with values that tell every element, and the bytes per link class that each rank's
 * executor counted with those of its plan.
 *
 * Tensors above some thousand elements are shortened where that keeps all cuts, and striped the
 * more finely. By default some parts take the first row of every kind of case and world only, or
 * one strategy per row in turn, and with sanitizers all parts do both; REFIT_LONG=1 asks for all
 * rows with all strategies everywhere.
 */

#include "executor-run.h"
#include "m2n-rows.h"
#include "strategy-cases.h"

#include <stdio.h>

#define ROWS_PER_CHILD 4 /* as the stand-in gives a stream or an address to one use only */

/* Worlds, and what of them is run by default. */
typedef struct {
    const char *path;
    guint smallest, largest, domain_size;
    RanksAs as;
    gboolean every_row, every_strategy;
    guint n_first, n_all; /* rows: the first ones of their kind and world, all */
} Share;

/* What a child is about, as its body takes no arguments. */
static struct {
    const Share *share;
    GPtrArray *rows; /* const M2nRow */
    guint first, n;  /* of the child */
} chosen;

/* ---- selection ---- */

static gboolean takes_all(gboolean by_default) {
    return strategy_long_tier() || (by_default && !EXECUTOR_IS_SLOW);
}

/* Of the first rows, every so many: sanitizers take most of a minute for 64 ranks. */
static guint first_rows_step(void) {
    return EXECUTOR_IS_SLOW && !strategy_long_tier() ? 4 : 1;
}

static GPtrArray *choose(const GArray *rows, const Share *share) {
    gboolean every_row = takes_all(share->every_row);
    GPtrArray *list = g_ptr_array_new();
    guint n_first = 0;

    for (guint i = 0; i < rows->len; i++) {
        M2nRow *row = &g_array_index(rows, M2nRow, i);
        if (row->must_work && row->world >= share->smallest && row->world <= share->largest &&
            (every_row || (m2n_row_is_first(rows, i) && n_first++ % first_rows_step() == 0)))
            g_ptr_array_add(list, row);
    }
    return list;
}

/* ---- bodies ---- */

static void run_plan(const M2nRow *row, const RefitStrategy *strategy) {
    const ExecutorRun run = {.as = chosen.share->as, .n_runs = 1, .timeout_s = 120};
    g_autoptr(RefitCase) refit_case =
        m2n_row_light_case(row, strategy->name, chosen.share->domain_size);
    executor_cut_small(refit_case);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = strategy_plan(problem, strategy->name);
    g_autoptr(ProgramSet) set = program_set_new(plan);

    fprintf(stderr, "%s, strategy %s\n", row->name, strategy->name);
    executor_run(set, &run);
}

static void body_rows(void) {
    const RefitStrategy *const *strategies = refit_strategies();
    gboolean every_strategy = takes_all(chosen.share->every_strategy);
    guint n_strategies = strategy_count(), n_plans = 0;

    for (guint i = chosen.first; i < chosen.first + chosen.n; i++) {
        for (guint s = 0; s < n_strategies; s++) {
            if (every_strategy || (i + s) % n_strategies == 0) {
                run_plan(g_ptr_array_index(chosen.rows, i), strategies[s]);
                n_plans++;
            }
        }
    }
    CHECK(n_plans == chosen.n * (every_strategy ? n_strategies : 1));
}

/* ---- tests ---- */

static void test_rows(gconstpointer data) {
    static const char *const environment[] = {"REFIT_STANDIN_DEVICES=64",
                                              "REFIT_STANDIN_TIMEOUT_MS=60000", NULL};
    const Share *share = data;

    if (share->as == RANKS_AS_PROCESSES && EXECUTOR_WATCHES_THREADS) {
        g_test_skip("ThreadSanitizer sees nothing between processes");
        return;
    }
    g_autoptr(GArray) rows = m2n_rows_read();
    g_autoptr(GPtrArray) list = choose(rows, share);
    guint n_done = 0;

    chosen.share = share;
    chosen.rows = list;
    while (n_done < list->len && !g_test_failed()) {
        chosen.first = n_done;
        chosen.n = MIN(ROWS_PER_CHILD, list->len - n_done);
        child_passes(body_rows, environment);
        n_done += chosen.n;
    }
    if (g_test_failed())
        return;
    if (takes_all(share->every_row))
        g_assert_cmpuint(n_done, ==, share->n_all);
    else
        g_assert_cmpuint(n_done, ==, (share->n_first - 1) / first_rows_step() + 1);
}

int main(int argc, char **argv) {
    static const Share shares[] = {
        {"threads-up-to-16", 2, 16, 8, RANKS_AS_THREADS, TRUE, FALSE, 58, 473},
        {"threads-in-domains-of-two", 2, 16, 2, RANKS_AS_THREADS, FALSE, TRUE, 58, 473},
        {"threads-17-to-64", 17, 64, 8, RANKS_AS_THREADS, FALSE, TRUE, 52, 522},
        {"processes-up-to-16", 2, 16, 8, RANKS_AS_PROCESSES, FALSE, FALSE, 58, 473},
        {"processes-17-to-64", 17, 64, 8, RANKS_AS_PROCESSES, FALSE, FALSE, 52, 522},
    };

    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(shares); i++) {
        g_autofree char *path = g_strconcat("/executor-matrix/", shares[i].path, NULL);
        g_test_add_data_func(path, &shares[i], test_rows);
    }
    return g_test_run();
}
