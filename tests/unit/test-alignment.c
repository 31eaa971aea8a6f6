/*
 * Copies and messages that 16-byte accesses can make: on a shipped case whose tensors are all cut
 * at multiples of 16 bytes by their layouts, `refit` makes no cut that is not, whatever it takes to
 * share messages out evenly. Every byte run of a few ranks is looked at, as packed, unpacked and
 * sent straight.
 */

#include "model/schedule/refit-program.h"
#include "schedule-cases.h"

#define ALIGNED 16

/* Bytes that are copied, and of these what is aligned on both sides and in length. */
static void count_runs(const RefitProgram *program, guint64 *all_out, guint64 *aligned_out) {
    g_autoptr(GArray) runs = g_array_new(FALSE, FALSE, sizeof(RefitByteRun));

    for (guint t = 0; t < program->n_turns; t++) {
        const RefitTurn *turn = &program->turns[t];
        const RefitProgramStep *step = &program->steps[turn->step];

        for (guint e = step->first_exchange; e < step->first_exchange + step->n_exchanges; e++) {
            const RefitExchange *exchange = &program->exchanges[e];

            if (refit_program_exchange_bytes(program, exchange, turn) == 0)
                continue;
            if (exchange->direct) {
                g_assert_cmpuint(refit_program_exchange_offset(program, exchange, turn) % ALIGNED,
                                 ==, 0);
                continue;
            }
            g_array_set_size(runs, 0);
            refit_program_append_runs(program, exchange, turn, runs);
            for (guint i = 0; i < runs->len; i++) {
                const RefitByteRun *run = &g_array_index(runs, RefitByteRun, i);

                *all_out += run->bytes;
                *aligned_out += (run->from | run->to | run->bytes) % ALIGNED == 0 ? run->bytes : 0;
            }
        }
    }
}

static void test_runs(void) {
    static const guint ranks[] = {0, 5, 16, 21};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        refit_case_load(input_store(), "qwen3-30b-h100", NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = refit_plan_new(problem, refit_strategy_find("refit", NULL), &error);
    g_assert_no_error(error);
    g_autoptr(RefitSchedule) schedule = schedule_of(plan);

    for (guint i = 0; i < G_N_ELEMENTS(ranks); i++) {
        g_autoptr(RefitRankViews) source = schedule_views_of(refit_case->source, ranks[i]);
        g_autoptr(RefitRankViews) destination =
            schedule_views_of(refit_case->destinations[0], ranks[i]);
        g_autoptr(RefitProgram) program =
            refit_program_new(schedule, ranks[i], source, destination, &error);
        guint64 all = 0, aligned = 0;

        g_assert_no_error(error);
        count_runs(program, &all, &aligned);
        g_assert_cmpuint(all, >, 1000000000);
        g_assert_cmpuint(aligned, ==, all);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/alignment/cuts-of-refit-keep-sixteen-bytes", test_runs);
    return g_test_run();
}
