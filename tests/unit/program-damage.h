#pragma once

/* What the tests of damaged programs share: right programs to damage, and what proofs say of them.
 */

#include "program-run.h"
#include "strategy-cases.h"

typedef struct {
    RefitCase *refit_case;
    RefitProblem *problem;
    RefitPlan *plan;
    ProgramSet *set;
} Fixture;

/*
 * Four sources with a quarter each, and four destinations that need all, so that every kind of wait
 * occurs. `strategy`.
 */
static const StrategyCase spread = {
    .topology = "node:4 gpu:2 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: \"a.{0-5}.weight\", shape: [16, 12], dtype: bf16, role: other}\n"
               "  - {name: b, shape: [40], dtype: F32, role: other}\n",
    .source = "ranks: [0-3], rules: [{tensors: \"*\", mesh: [4], place: [{shard: 0}]}]",
    .pools = {"ranks: [4-7], rules: [{tensors: \"*\", mesh: [4], place: [replicate]}]"}};

/* The same with messages of kilobytes. */
static const StrategyCase large = {
    .topology = "node:4 gpu:2 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: \"a.{0-5}.weight\", shape: [64, 24], dtype: bf16, role: other}\n"
               "  - {name: b, shape: [400], dtype: F32, role: other}\n",
    .source = "ranks: [0-3], rules: [{tensors: \"a.*\", mesh: [4], place: [{shard: 1}]}, "
              "{tensors: b, mesh: [4], place: [{shard: 0}]}]",
    .pools = {"ranks: [4-7], rules: [{tensors: \"*\", mesh: [4], place: [replicate]}]"}};

/* Rows of one tensor: no message has to be packed. */
static const StrategyCase rows = {
    .topology = "node:4 gpu:2 nvlink:450GBps nic:50GBps",
    .tensors = "  - {name: a, shape: [64, 48], dtype: bf16, role: other}\n",
    .source = "ranks: [0-3], rules: [{tensors: a, mesh: [4], place: [{shard: 0}]}]",
    .pools = {"ranks: [4-7], rules: [{tensors: a, mesh: [4], place: [replicate]}]"}};

static inline void set_up_plan(Fixture *fixture, const StrategyCase *described,
                               const char *strategy) {
    fixture->refit_case = strategy_case_new(described);
    fixture->refit_case->profile->stripe_bytes.value = 16;
    fixture->refit_case->profile->slice_bytes.value = 64;
    fixture->refit_case->profile->bucket_bytes.value = 1000;
    fixture->refit_case->profile->batches = 3;
    fixture->problem = plan_case_problem(fixture->refit_case);
    fixture->plan = strategy_plan(fixture->problem, strategy);
}

static inline void set_up(Fixture *fixture, gconstpointer strategy) {
    set_up_plan(fixture, &spread, strategy);
    fixture->set = program_set_new(fixture->plan);
}

static inline void set_up_chunks_of(Fixture *fixture, const StrategyCase *described,
                                    const char *strategy) {
    set_up_plan(fixture, described, strategy);
    fixture->refit_case->budget_staging_bytes =
        3 * program_least_staging(fixture->refit_case, fixture->plan);
    fixture->set = program_set_new(fixture->plan);
}

/* In chunks of two to three times the smallest size. */
static inline void set_up_chunks(Fixture *fixture, gconstpointer strategy) {
    set_up_chunks_of(fixture, &large, strategy);
}

static inline void set_up_chunks_of_rows(Fixture *fixture, gconstpointer strategy) {
    set_up_chunks_of(fixture, &rows, strategy);
}

static inline void tear_down(Fixture *fixture, G_GNUC_UNUSED gconstpointer strategy) {
    program_set_free(fixture->set);
    refit_plan_free(fixture->plan);
    refit_problem_free(fixture->problem);
    refit_case_free(fixture->refit_case);
}

static inline void assert_refused(const RefitProgram *program, const char *words) {
    g_autoptr(GError) error = NULL;

    g_assert_false(refit_program_check(program, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    if (strstr(error->message, words) == NULL)
        g_error("\"%s\" is not in: %s", words, error->message);
}

static inline void assert_accepted(const RefitProgram *program) {
    g_autoptr(GError) error = NULL;

    g_assert_true(refit_program_check(program, &error));
    g_assert_no_error(error);
}

static inline void assert_disagree(const ProgramSet *set, const char *words) {
    g_autoptr(GError) error = NULL;

    g_assert_false(
        refit_programs_check((const RefitProgram *const *)set->programs, set->n_ranks, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    if (strstr(error->message, words) == NULL)
        g_error("\"%s\" is not in: %s", words, error->message);
}

static inline RefitProgramStep *steps_of(const RefitProgram *program) {
    return (RefitProgramStep *)program->steps;
}

static inline RefitExchange *exchanges_of(const RefitProgram *program) {
    return (RefitExchange *)program->exchanges;
}

static inline RefitProgramPiece *pieces_of(const RefitProgram *program) {
    return (RefitProgramPiece *)program->pieces;
}

/* Some seed of some order must end with wrong bytes. */
static inline gboolean goes_wrong(const ProgramSet *set) {
    for (guint seed = 0; seed < 200; seed++) {
        g_autofree char *complaint = program_set_run(set, PROGRAM_ORDER_RANDOM, seed);

        if (complaint != NULL)
            return TRUE;
    }
    return FALSE;
}
