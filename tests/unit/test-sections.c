/*
 * Tensors that leave no room for what is on its way: cut into sections that follow each other,
 * every section in a batch of its own, every byte in its place. Cuts are at whole rows and between
 * what belongs together; what cannot be cut stays whole. Random cases with small budgets are
 * carried out element by element, and some byte by byte.
 */

#include "model/schedule/refit-schedule.h"
#include "program-run.h"
#include "random-case.h"

#include <jansson.h>

#define SOURCE "ranks: [0-3], rules: [{tensors: \"*\", mesh: [4], place: [{shard: 0}]}]"
#define COLUMNS "ranks: [4-7], rules: [{tensors: \"*\", mesh: [4], place: [{shard: 1}]}]"
#define ALL "ranks: [4-7], rules: [{tensors: \"*\", mesh: [4], place: [replicate]}]"
#define TOPOLOGY "node:2 gpu:4 nvlink:450GBps nic:50GBps"

/* The largest section that a batch may have with this budget; see refit_batch_limit(). */
static guint64 limit_of(guint64 budget) {
    return (budget - budget / 80 * 34) / 2;
}

static RefitPlan *checked_plan(const RefitProblem *problem, const char *strategy) {
    g_autoptr(GError) error = NULL;
    RefitPlan *plan = strategy_plan(problem, strategy);

    g_assert_true(refit_plan_check(plan, &error));
    g_assert_no_error(error);
    return plan;
}

static guint count_sections(const RefitPlan *plan, guint class_index) {
    return plan->section_offsets[class_index + 1] - plan->section_offsets[class_index];
}

static void assert_region(const RefitRegion *region, const char *expected) {
    g_autofree char *text = refit_region_to_string(region);

    g_assert_cmpstr(text, ==, expected);
}

/* ---- where tensors are cut ---- */

static const struct {
    const char *name, *tensor;
    guint64 budget;
    guint n;
    const char *first, *second, *last; /* sections */
} cuts[] = {
    /* Budgets of 8000, 800 and 80 bytes leave 2300, 230 and 23 for each of two batches. */
    {"even", "{name: w, shape: [16, 8, 32], role: other}", 8000, 4, "[0:4, 0:8, 0:32]",
     "[4:8, 0:8, 0:32]", "[12:16, 0:8, 0:32]"},
    {"uneven", "{name: w, shape: [15, 8, 32], role: other}", 8000, 4, "[0:3, 0:8, 0:32]",
     "[3:7, 0:8, 0:32]", "[11:15, 0:8, 0:32]"},
    {"row-by-row", "{name: w, shape: [4, 1000], role: other}", 8000, 4, "[0:1, 0:1000]",
     "[1:2, 0:1000]", "[3:4, 0:1000]"},
    {"inside-rows", "{name: w, shape: [4, 50, 32], role: other}", 8000, 8, "[0:1, 0:25, 0:32]",
     "[0:1, 25:50, 0:32]", "[3:4, 25:50, 0:32]"},
    {"one-row", "{name: w, shape: [1, 4096], role: other}", 8000, 4, "[0:1, 0:1024]",
     "[0:1, 1024:2048]", "[0:1, 3072:4096]"},
    {"vector", "{name: w, shape: [2301], dtype: F32, role: other}", 8000, 5, "[0:460]", "[460:920]",
     "[1840:2301]"},
    {"blocks", "{name: w, shape: [20, 128], granule: [8, 0], role: other}", 8000, 3, "[0:8, 0:128]",
     "[8:16, 0:128]", "[16:20, 0:128]"},
    {"fits-alone", "{name: w, shape: [20, 115], role: other}", 8000, 1, NULL, NULL, NULL},
    {"block-too-large", "{name: w, shape: [20, 128], granule: [16, 0], role: other}", 8000, 1, NULL,
     NULL, NULL},
    {"inside-a-byte", "{name: w, shape: [20, 3], dtype: F4, role: other}", 20, 1, NULL, NULL, NULL},
    {"whole-bytes", "{name: w, shape: [40, 4], dtype: F4, role: other}", 80, 4, "[0:10, 0:4]",
     "[10:20, 0:4]", "[30:40, 0:4]"},
    {"too-many", "{name: w, shape: [257, 100], role: other}", 800, 1, NULL, NULL, NULL},
    {"as-many-as-may-be", "{name: w, shape: [256, 100], role: other}", 800, 256, "[0:1, 0:100]",
     "[1:2, 0:100]", "[255:256, 0:100]"},
};

/* What cannot be cut asks for more than there is, as it always did. */
static void assert_refused(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);

    g_assert_no_error(error);
    g_assert_false(refit_schedule_check_budget(schedule, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE);
}

static void test_cut(gconstpointer data) {
    guint row = GPOINTER_TO_UINT(data);
    g_autofree char *tensors = g_strdup_printf("  - %s\n", cuts[row].tensor);
    const StrategyCase described = {
        .topology = TOPOLOGY,
        .tensors = tensors,
        .source = "ranks: [0-3], rules: [{tensors: \"*\", mesh: [4], place: [replicate]}]",
        .pools = {ALL}};
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);

    refit_case->budget_staging_bytes = cuts[row].budget;
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = checked_plan(problem, "gather-broadcast");

    g_assert_cmpuint(problem->n_classes, ==, 1);
    g_assert_cmpuint(plan->n_sections, ==, cuts[row].n);
    g_assert_cmpuint(plan->n_batches, ==, cuts[row].n);
    if (plan->sections[0].bytes > cuts[row].budget)
        assert_refused(plan);
    if (cuts[row].n == 1)
        return;
    assert_region(&plan->sections[0].region, cuts[row].first);
    assert_region(&plan->sections[1].region, cuts[row].second);
    assert_region(&plan->sections[plan->n_sections - 1].region, cuts[row].last);
    for (guint s = 0; s < plan->n_sections; s++)
        g_assert_cmpuint(plan->sections[s].bytes, <=, limit_of(cuts[row].budget));
}

/* What fits alone is split only where something is that does not. */
static void test_company(void) {
    static const char *const tensors[] = {"  - {name: a, shape: [20, 115], role: other}\n",
                                          "  - {name: a, shape: [20, 115], role: other}\n  - "
                                          "{name: b, shape: [20, 116], role: other}\n"};

    for (guint i = 0; i < G_N_ELEMENTS(tensors); i++) {
        const StrategyCase described = {
            .topology = TOPOLOGY, .tensors = tensors[i], .source = SOURCE, .pools = {ALL}};
        g_autoptr(RefitCase) refit_case = strategy_case_new(&described);

        refit_case->budget_staging_bytes = 8000;
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlan) plan = checked_plan(problem, "gather-broadcast");

        g_assert_cmpuint(count_sections(plan, 0), ==, i == 0 ? 1 : 2);
        if (i > 0)
            g_assert_cmpuint(count_sections(plan, 1), ==, 3);
    }
}

static const StrategyCase stacked = {
    .topology = TOPOLOGY,
    .tensors = "  - {name: \"l.{0-2}.experts\", shape: [17, 8, 32], role: expert_gate_up}\n"
               "  - {name: embed, shape: [301, 24], role: other}\n"
               "  - {name: \"l.{0-2}.norm\", shape: [64, 2], dtype: F32, role: other}\n",
    .source = SOURCE,
    .pools = {COLUMNS}};

/* Strategies that move shards keep tensors whole; the ring of `hybrid` does with the experts. */
static void test_who_splits(void) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(&stacked);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        const char *name = refit_strategies()[i]->name;
        RefitStrategySends sends = refit_strategies()[i]->sends;

        refit_case->budget_staging_bytes = 8000;
        g_autoptr(RefitPlan) plan = checked_plan(problem, name);

        g_assert_cmpuint(count_sections(plan, 0), ==, sends == REFIT_SENDS_WHOLE ? 5 : 1);
        g_assert_cmpuint(count_sections(plan, 1), ==, sends == REFIT_SENDS_SHARDS ? 1 : 7);
        g_assert_cmpuint(count_sections(plan, 2), ==, 1);
        refit_case->budget_staging_bytes = 0;
        g_autoptr(RefitPlan) whole = checked_plan(problem, name);
        g_assert_cmpuint(whole->n_sections, ==, problem->n_classes);
        g_assert_cmpint(g_str_equal(plan->digest, whole->digest), ==, sends == REFIT_SENDS_SHARDS);
    }
}

/* Beyond 32 bits, by planning alone: half a terabyte in one tensor, in batches of 2.3 GB. */
static void test_large(void) {
    static const StrategyCase described = {
        .topology = TOPOLOGY,
        .tensors = "  - {name: w, shape: [4099, 65536, 1024], role: other}\n",
        .source = SOURCE,
        .pools = {COLUMNS}};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = checked_plan(problem, "gather-broadcast");
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    guint64 row = G_GUINT64_CONSTANT(65536) * 1024 * 2, installed = 0;

    g_assert_no_error(error);
    g_assert_cmpuint(plan->n_sections, ==, 242); /* of 17 rows at most */
    for (guint s = 0; s < plan->n_sections; s++) {
        g_assert_cmpuint(plan->sections[s].bytes, >=, 16 * row);
        g_assert_cmpuint(plan->sections[s].bytes, <=, 17 * row);
    }
    g_assert_true(refit_schedule_check(schedule, &error));
    g_assert_no_error(error);
    for (guint rank = 0; rank < problem->n_ranks; rank++) {
        guint n;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n);

        g_assert_cmpuint(refit_schedule_staging_bytes(schedule, rank), <=,
                         REFIT_PLAN_STAGING_BYTES);
        for (guint i = 0; i < n; i++)
            if (steps[i].install != 0)
                installed +=
                    schedule->installs[schedule->exchanges[steps[i].first_exchange].first].bytes;
    }
    g_assert_cmpuint(installed, ==, problem->needed_bytes);
}

/* ---- installs ---- */

/* A tensor is loaded once out of each bucket that brings some of it to a rank, and from no other.
 */
static void test_installs(void) {
    static const StrategyCase described = {
        .topology = TOPOLOGY,
        .tensors = "  - {name: w, shape: [16, 8, 32], role: other}\n",
        .source = SOURCE,
        .pools = {"ranks: [4-7], rules: [{tensors: \"*\", mesh: [2, 2], place: [{shard: 0}, "
                  "{shard: 1}]}]"}};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);

    refit_case->budget_staging_bytes = 8000; /* four sections: two for each half of the rows */
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = checked_plan(problem, "gather-broadcast");
    g_autoptr(RefitSchedule) schedule = refit_schedule_new(plan, &error);
    g_assert_no_error(error);

    for (guint rank = 4; rank < 8; rank++) {
        RefitScheduleInstall sum = {0};
        guint n;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n);

        for (guint i = 0; i < n; i++) {
            const RefitScheduleInstall *install;

            if (steps[i].install == 0)
                continue;
            install = &schedule->installs[schedule->exchanges[steps[i].first_exchange].first];
            g_assert_cmpuint(install->tensors, ==, 1);
            sum.tensors += install->tensors;
            sum.bytes += install->bytes;
        }
        g_assert_cmpuint(sum.tensors, ==, 2);
        g_assert_cmpuint(sum.bytes, ==, 16 * 8 * 32 * 2 / 4);
    }
}

/* ---- carried out ---- */

static void test_programs(gconstpointer strategy) {
    static const guint64 budgets[] = {8000, 20000, 60000};

    for (guint i = 0; i < G_N_ELEMENTS(budgets); i++) {
        g_autoptr(RefitCase) refit_case = strategy_case_new(&stacked);

        refit_case->profile->slice_bytes.value = 64;
        refit_case->budget_staging_bytes = budgets[i];
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlan) plan = checked_plan(problem, strategy);
        g_autoptr(ProgramSet) set = program_set_new(plan);

        g_assert_cmpint(plan->n_sections > problem->n_classes, ==, i < 2);
        program_set_assert_right(set, i);
    }
}

static void test_random(gconstpointer strategy) {
    guint n_seeds = strategy_long_tier() ? 2000 : 250, n_split = 0, n_plans = 0;

    for (guint seed = 1; seed <= n_seeds; seed++) {
        static const guint64 budgets[] = {60, 200, 1000};
        g_autoptr(GError) error = NULL;
        g_autoptr(RandomCase) random = random_case_new(seed);
        g_autoptr(RefitCase) refit_case = random_case_build(random);

        refit_case->budget_staging_bytes = budgets[seed % G_N_ELEMENTS(budgets)];
        g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
        g_autoptr(RefitPlan) plan = strategy_try_plan(problem, strategy_get(strategy));
        if (plan == NULL)
            continue;
        n_plans++;
        n_split += plan->n_sections > problem->n_classes;
        if (!refit_plan_check(plan, &error))
            g_error("seed %u: %s", seed, error->message);
        g_autofree char *complaint = element_oracle_run(random->oracle, plan);
        if (complaint == NULL)
            complaint = element_oracle_check_bytes(random->oracle, plan);
        if (complaint != NULL)
            g_error("seed %u: %s", seed, complaint);
        if (seed % 5 == 0 && plan->n_sections > problem->n_classes) {
            g_autoptr(ProgramSet) set = program_set_new(plan);

            program_set_assert_right(set, seed);
        }
    }
    g_test_message("%s: %u of %u plans with sections", (const char *)strategy, n_split, n_plans);
    g_assert_cmpuint(n_split, >, n_plans / 5);
}

/* ---- forms ---- */

/* A plan of two transfers in two batches; `cut`: the first row of the second section, 0: not split.
 */
static RefitPlan *cut_plan(const RefitProblem *problem, guint64 cut) {
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint stage = refit_plan_builder_add_stage(builder, "send", 1);
    g_autofree char *first = g_strdup_printf("0:%" G_GUINT64_FORMAT ",0:4", cut);
    g_autofree char *second = g_strdup_printf("%" G_GUINT64_FORMAT ":8,0:4", cut);
    guint batches[2];

    for (guint b = 0; b < 2; b++)
        batches[b] = refit_plan_builder_add_batch(builder, 0, 1, FALSE);
    if (cut == 0) {
        refit_plan_builder_assign(builder, 0, 0, batches[0]);
    } else {
        RefitRegion regions[2] = {plan_case_region(first), plan_case_region(second)};

        refit_plan_builder_split(builder, 0, regions, cut < 8 ? 2 : 1);
        for (guint s = 0; s < 2; s++) {
            if (s == 0 || cut < 8)
                refit_plan_builder_assign_section(builder, 0, s, 0, batches[s]);
            refit_region_clear(&regions[s]);
        }
    }
    plan_case_add(builder, 0, "0:2,0:4", 0, 4, stage, REFIT_LANDING_HOME, NULL, 0);
    plan_case_add(builder, 0, "6:8,0:4", 0, 4, stage, REFIT_LANDING_HOME, NULL, 0);
    return plan_case_finish(builder);
}

/* Where a tensor is cut is part of the plan's identity; one section is the whole tensor. */
static void test_digest(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) whole = cut_plan(problem, 0);
    g_autoptr(RefitPlan) one = cut_plan(problem, 8);
    g_autoptr(RefitPlan) three = cut_plan(problem, 3);
    g_autoptr(RefitPlan) again = cut_plan(problem, 3);
    g_autoptr(RefitPlan) four = cut_plan(problem, 4);

    g_assert_cmpstr(whole->digest, ==, one->digest);
    g_assert_cmpstr(three->digest, ==, again->digest);
    g_assert_cmpstr(three->digest, !=, four->digest);
    g_assert_cmpstr(three->digest, !=, whole->digest);
    g_assert_cmpuint(whole->n_messages, ==, 1);
    g_assert_cmpuint(three->n_messages, ==, 2);
}

/* A class that is split has its members and batches section by section. */
static void test_json(void) {
    g_autoptr(RefitCase) refit_case = strategy_case_new(&stacked);

    refit_case->budget_staging_bytes = 8000;
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = checked_plan(problem, "hybrid");
    gsize length;
    g_autofree char *text = refit_plan_to_json(plan, &length);
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    json_t *classes = json_object_get(root, "classes");
    json_t *experts = json_array_get(classes, 0), *embed = json_array_get(classes, 1);
    json_t *sections = json_object_get(embed, "sections");
    json_int_t bytes = 0;

    g_assert_cmpuint(json_array_size(json_object_get(experts, "members")), ==, 3);
    g_assert_null(json_object_get(experts, "sections"));
    g_assert_null(json_object_get(embed, "members"));
    g_assert_null(json_object_get(embed, "batches"));
    g_assert_cmpuint(json_array_size(sections), ==, 7);
    for (guint s = 0; s < 7; s++) {
        json_t *section = json_array_get(sections, s);
        json_t *member = json_array_get(json_object_get(section, "members"), 0);

        bytes += json_integer_value(json_object_get(section, "bytes"));
        g_assert_cmpstr(json_string_value(member), ==, "embed");
        g_assert_cmpuint(json_array_size(json_object_get(section, "batches")), ==, 1);
    }
    g_assert_cmpint(bytes, ==, 301 * 24 * 2);
    g_assert_cmpstr(json_string_value(json_object_get(json_array_get(sections, 1), "region")), ==,
                    "[43:86, 0:24]");
    json_decref(root);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(cuts); i++) {
        g_autofree char *path = g_strdup_printf("/sections/cut/%s", cuts[i].name);
        g_test_add_data_func(path, GUINT_TO_POINTER(i), test_cut);
    }
    g_test_add_func("/sections/in-company", test_company);
    g_test_add_func("/sections/shards-are-not-split", test_who_splits);
    g_test_add_func("/sections/sizes-of-64-bits", test_large);
    g_test_add_func("/sections/installed-out-of-each-bucket", test_installs);
    g_test_add_data_func("/sections/programs/gather-broadcast", "gather-broadcast", test_programs);
    g_test_add_data_func("/sections/programs/hybrid", "hybrid", test_programs);
    g_test_add_data_func("/sections/random/gather-broadcast", "gather-broadcast", test_random);
    g_test_add_data_func("/sections/random/hybrid", "hybrid", test_random);
    g_test_add_func("/sections/are-in-the-digest", test_digest);
    g_test_add_func("/sections/as-json", test_json);
    return g_test_run();
}
