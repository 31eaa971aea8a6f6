/*
 * Grouping a case's tensors into classes: what separates classes, their order and members; cells,
 * stages and totals by hand; several pools as one destination; sharing of holdings and cells;
 * tensors that nobody needs; which tensors are bulk; errors for tensors without a source, cut
 * bytes, ranks beyond the topology and sizes beyond 64 bits; the shipped DeepSeek-V3 case.
 */

#include "plan-cases.h"

static void test_classes(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(
        WORKED_TOPOLOGY,
        "  - {name: \"layers.{0-2}.up\", shape: [8, 4], dtype: bf16, role: dense_up}\n"
        "  - {name: \"layers.{0-2}.o\", shape: [8, 4], dtype: bf16, role: attention_o}\n"
        "  - {name: \"layers.{0-2}.down\", shape: [8, 4], dtype: bf16, role: dense_down}\n"
        "  - {name: \"layers.{0-1}.wide\", shape: [8, 8], dtype: bf16, role: attention_o}\n"
        "  - {name: \"layers.{0-1}.f32\", shape: [8, 4], dtype: f32, role: attention_o}\n"
        "  - {name: last, shape: [8, 4], dtype: bf16, role: attention_o}\n",
        4,
        "rules: [{tensors: last, ranks: [2-3], place: [replicate]}, {tensors: \"*\", ranks: [0-1], "
        "place: [{shard: 0}]}]",
        4, "rules: [{tensors: \"*\", mesh: [2, 2], place: [replicate, {shard: 1}]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    static const struct {
        guint n_members, first, last;
        gboolean bulk;
        guint64 bytes;
    } expected[] = {{6, 0, 8, TRUE, 64},     /* up and down */
                    {3, 3, 5, FALSE, 64},    /* o: not bulk */
                    {2, 9, 10, FALSE, 128},  /* another shape */
                    {2, 11, 12, FALSE, 128}, /* another type */
                    {1, 13, 13, FALSE, 64}}; /* another source */
    g_assert_cmpuint(problem->n_classes, ==, G_N_ELEMENTS(expected));
    guint64 weight = 0;
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
        const RefitClass *klass = &problem->classes[i];
        g_assert_cmpuint(klass->n_members, ==, expected[i].n_members);
        g_assert_cmpuint(klass->members[0], ==, expected[i].first);
        g_assert_cmpuint(klass->members[klass->n_members - 1], ==, expected[i].last);
        g_assert_cmpint(klass->bulk, ==, expected[i].bulk);
        g_assert_cmpuint(klass->bytes, ==, expected[i].bytes);
        weight += klass->bytes * klass->n_members;
    }
    g_assert_cmpuint(problem->classes[0].members[3], ==, 6);
    g_assert_cmpuint(problem->weight_bytes, ==, weight);
    g_assert_cmpuint(problem->needed_bytes, ==, 2 * weight); /* two replicas */
    g_assert_cmpuint(problem->n_ranks, ==, 8);
    /* Same shape and layout: same geometry, also when the purpose or the type differs. */
    g_assert_true(problem->classes[0].cells == problem->classes[1].cells);
    g_assert_true(problem->classes[0].cells == problem->classes[3].cells);
    g_assert_true(problem->classes[0].destination == problem->classes[4].destination);
    g_assert_true(problem->classes[0].cells != problem->classes[4].cells);
}

static void test_cells(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    const RefitClass *klass = &problem->classes[0];
    g_assert_cmpuint(klass->cells->n_cells, ==, 4);
    for (guint i = 0; i < 4; i++) {
        const RefitCell *cell = &klass->cells->cells[i];
        g_assert_cmpuint(cell->volume, ==, 8);
        g_assert_cmpuint(cell->n_holders, ==, 1);
        g_assert_cmpuint(cell->holders[0], ==, i / 2);
        g_assert_cmpuint(cell->n_needers, ==, 2);
        g_assert_cmpuint(cell->needers[0], ==, 4 + i % 2);
        g_assert_cmpuint(cell->needers[1], ==, 6 + i % 2);
    }
    g_assert_cmpuint(problem->weight_bytes, ==, 64);
    g_assert_cmpuint(problem->needed_bytes, ==, 128);
    g_assert_cmpuint(klass->elements, ==, 32);
}

/* A second pool on ranks 2-3 of the same case. */
static void test_pools(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    refit_case->n_destinations = 2;
    refit_case->destinations[1] = plan_case_side("generation", refit_case->model, 2, 2, 8,
                                                 "rules: [{tensors: w, place: [{shard: 0}]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    const RefitClass *klass = &problem->classes[0];
    g_assert_cmpuint(problem->n_classes, ==, 1);
    g_assert_cmpuint(klass->destination->n_pieces, ==, 4); /* two of each pool */
    g_assert_cmpuint(klass->cells->n_cells, ==, 4);
    for (guint i = 0; i < 4; i++) {
        g_assert_cmpuint(klass->cells->cells[i].n_needers, ==, 3);
        g_assert_cmpuint(klass->cells->cells[i].needers[0], ==, 2 + i / 2);
    }
    g_assert_cmpuint(problem->weight_bytes, ==, 64);
    g_assert_cmpuint(problem->needed_bytes, ==, 3 * 64);
}

static void test_unneeded(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new(WORKED_TOPOLOGY,
                      "  - {name: optimizer, shape: [8], dtype: f32, role: other}\n"
                      "  - {name: w, shape: [8, 4], dtype: bf16, role: other}\n",
                      2, "rules: [{tensors: \"*\", place: [{shard: 0}]}]", 2,
                      "absent: [optimizer], rules: [{tensors: w, place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->n_classes, ==, 1);
    g_assert_cmpuint(problem->classes[0].members[0], ==, 1);
    g_assert_cmpuint(problem->members->len, ==, 1);
    g_assert_cmpuint(problem->weight_bytes, ==, 64);
}

static void test_nothing_needed(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(WORKED_TOPOLOGY, WORKED_TENSOR, 4,
                                                    WORKED_SOURCE, 4, "absent: [w], rules: []");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->n_classes, ==, 0);
    g_assert_cmpuint(problem->needed_bytes, ==, 0);
    refit_problem_free(NULL);
}

static void test_stage(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(
        WORKED_TOPOLOGY,
        "  - {name: a, shape: [8], dtype: bf16, role: other}\n"
        "  - {name: b, shape: [8], dtype: bf16, role: other}\n"
        "  - {name: tied, shape: [8], dtype: bf16, role: other}\n",
        4,
        "rules: [{tensors: a, ranks: [2-3], place: [replicate]}, {tensors: b, ranks: [0-1], place: "
        "[replicate]}, {tensors: tied, parts: [{ranks: [3], place: [replicate]}, {ranks: [0], "
        "place: [replicate]}]}]",
        4, "rules: [{tensors: \"*\", place: [replicate]}]");
    static const guint stages[] = {4, 4, 7, 7};
    refit_layout_set_stages(refit_case->source, 8, stages);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->n_classes, ==, 3);
    g_assert_cmpuint(problem->classes[0].stage, ==, 7);
    g_assert_cmpuint(problem->classes[1].stage, ==, 4);
    g_assert_cmpuint(problem->classes[2].stage, ==, 4); /* the first holder's */
}

static void test_bulk(void) {
    static const gboolean bulk[REFIT_N_ROLES] = {
        [REFIT_ROLE_DENSE_GATE] = TRUE,     [REFIT_ROLE_DENSE_UP] = TRUE,
        [REFIT_ROLE_DENSE_DOWN] = TRUE,     [REFIT_ROLE_EXPERT_GATE] = TRUE,
        [REFIT_ROLE_EXPERT_UP] = TRUE,      [REFIT_ROLE_EXPERT_DOWN] = TRUE,
        [REFIT_ROLE_EXPERT_GATE_UP] = TRUE, [REFIT_ROLE_EXPERT_GATE_UP_T] = TRUE,
        [REFIT_ROLE_EXPERT_DOWN_T] = TRUE,  [REFIT_ROLE_EXPERT_GATE_UP_HALVES_T] = TRUE,
    };
    for (guint role = 0; role < REFIT_N_ROLES; role++) {
        RefitTensor tensor = {.role = (RefitRole)role};
        g_assert_cmpint(refit_tensor_is_bulk(&tensor), ==, bulk[role]);
        tensor.mtp = TRUE;
        g_assert_false(refit_tensor_is_bulk(&tensor));
    }
}

/* ---- errors ---- */

static void assert_error(const RefitCase *refit_case, RefitError code, const char *expected) {
    g_autoptr(GError) error = NULL;
    g_assert_null(refit_problem_new(refit_case, &error));
    input_assert_error(error, code, expected);
}

static void test_missing_tensor(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(
        WORKED_TOPOLOGY, WORKED_TENSOR, 4, "absent: [w], rules: []", 4, WORKED_DESTINATION);
    assert_error(refit_case, REFIT_ERROR_NOT_COVERED,
                 "tensor w: needed by the destination but no source rank holds it; add it to the "
                 "source layout");
}

static void test_cut_byte(void) {
    static const struct {
        const char *shape, *place, *message;
    } cases[] = {
        {"[4, 6]", "shard: 1",
         "tensor w: the source cuts dim 1 at 3 for rank 0, inside a byte of F4, which has 2 "
         "elements; choose parallel sizes that cut at whole bytes"},
        {"[2, 3]", "shard: 0",
         "tensor w: the source cuts dim 0 at 1 for rank 0, inside a byte of F4, which has 2 "
         "elements; choose parallel sizes that cut at whole bytes"},
        {"[4, 8]", "shard: 1", NULL},
        {"[4, 3]", "shard: 0", NULL},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *tensor =
            g_strdup_printf("  - {name: w, shape: %s, dtype: f4, role: other}\n", cases[i].shape);
        g_autofree char *rules =
            g_strdup_printf("rules: [{tensors: w, place: [{%s}]}]", cases[i].place);
        g_autoptr(RefitCase) refit_case = plan_case_new(
            WORKED_TOPOLOGY, tensor, 2, rules, 2, "rules: [{tensors: w, place: [replicate]}]");
        if (cases[i].message != NULL) {
            assert_error(refit_case, REFIT_ERROR_SUBBYTE_SPLIT, cases[i].message);
        } else {
            g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
            g_assert_cmpuint(problem->needed_bytes, ==, 2 * problem->weight_bytes);
        }
    }
}

static void test_bytes_of_sub_byte_types(void) {
    const RefitClass four = {.n_dims = 2, .shape = {4, 6}, .dtype = REFIT_DTYPE_F4, .elements = 24};
    g_assert_cmpuint(refit_class_bytes(&four, 24), ==, 12);
    g_assert_cmpuint(refit_class_bytes(&four, 2), ==, 1);
    static const struct {
        const char *region;
        gboolean cuts;
    } cases[] = {{"0:4,0:6", FALSE},
                 {"1:3,0:6", FALSE},
                 {"0:4,2:4", FALSE},
                 {"0:4,1:4", TRUE},
                 {"0:4,2:5", TRUE}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_auto(RefitRegion) region = plan_case_region(cases[i].region);
        g_assert_cmpint(refit_class_cuts_byte(&four, &region), ==, cases[i].cuts);
    }
    /* Rows of 5 elements: every second row begins inside a byte. */
    const RefitClass odd = {.n_dims = 2, .shape = {4, 5}, .dtype = REFIT_DTYPE_F4, .elements = 20};
    static const struct {
        const char *region;
        gboolean cuts;
    } rows[] = {{"0:2,0:5", FALSE}, {"2:4,0:5", FALSE}, {"1:3,0:5", TRUE}, {"0:4,0:4", TRUE}};
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_auto(RefitRegion) region = plan_case_region(rows[i].region);
        g_assert_cmpint(refit_class_cuts_byte(&odd, &region), ==, rows[i].cuts);
    }
    const RefitClass two = {.n_dims = 1, .shape = {3}, .dtype = REFIT_DTYPE_BF16, .elements = 3};
    g_auto(RefitRegion) third = plan_case_region("1:2");
    g_assert_false(refit_class_cuts_byte(&two, &third));
    g_assert_cmpuint(refit_class_bytes(&two, G_MAXUINT64 / 2), ==, G_MAXUINT64 - 1);
}

static void test_rank_beyond_topology(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    refit_topology_free(refit_case->topology);
    refit_case->topology =
        refit_topology_parse_line("node:1 gpu:4 nvlink:450GBps nic:50GBps", NULL);
    assert_error(refit_case, REFIT_ERROR_INVALID,
                 "tensor w: rank 6 holds or needs a shard, but the topology has 4 GPUs; give the "
                 "topology more nodes or the layouts fewer ranks");
}

static void test_overflow(void) {
    /* 9e18 bytes once fit; twice, for two ranks, they do; three times they do not. */
    for (guint n = 2; n <= 3; n++) {
        g_autoptr(RefitCase) refit_case = plan_case_new(
            WORKED_TOPOLOGY,
            "  - {name: w, shape: [3000000000, 3000000000], dtype: u8, role: other}\n", 1,
            "rules: [{tensors: w, place: [replicate]}]", n,
            "rules: [{tensors: w, place: [replicate]}]");
        if (n == 2) {
            g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
            g_assert_cmpuint(problem->needed_bytes, ==, G_GUINT64_CONSTANT(18000000000000000000));
        } else {
            assert_error(refit_case, REFIT_ERROR_OVERFLOW, "bytes needed*");
        }
    }
}

/* ---- a shipped case ---- */

static void test_deepseek(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        refit_case_load(input_store(), "deepseek-v3-h100", NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_assert_cmpuint(problem->weight_bytes, ==, refit_model_bytes(refit_case->model));
    g_assert_cmpuint(problem->n_classes, <, 1000);
    guint n = refit_model_n_tensors(refit_case->model);
    g_autofree gboolean *seen = g_new0(gboolean, n);
    guint n_members = 0;
    for (guint i = 0; i < problem->n_classes; i++) {
        const RefitClass *klass = &problem->classes[i];
        g_assert_true(i == 0 || problem->classes[i - 1].members[0] < klass->members[0]);
        g_assert_cmpuint(klass->stage, <, 16);
        for (guint member = 0; member < klass->n_members; member++) {
            g_assert_false(seen[klass->members[member]]);
            seen[klass->members[member]] = TRUE;
            n_members++;
        }
    }
    g_assert_cmpuint(n_members, ==, n);
    /* Published: 43.9 GB per generation GPU when everything is sharded. */
    g_assert_cmpfloat_with_epsilon((double)problem->needed_bytes / 256e9, 43.9, 0.05);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/problem/classes-differ-in-shape-type-purpose-and-layout", test_classes);
    g_test_add_func("/problem/cells-know-holders-and-needers", test_cells);
    g_test_add_func("/problem/pools-are-one-destination", test_pools);
    g_test_add_func("/problem/unneeded-tensors-are-left-out", test_unneeded);
    g_test_add_func("/problem/nothing-needed-is-no-class", test_nothing_needed);
    g_test_add_func("/problem/the-stage-is-that-of-the-first-holder", test_stage);
    g_test_add_func("/problem/bulk-is-routed-and-dense-projections", test_bulk);
    g_test_add_func("/problem/a-tensor-without-source-is-refused", test_missing_tensor);
    g_test_add_func("/problem/shards-that-cut-a-byte-are-refused", test_cut_byte);
    g_test_add_func("/problem/sub-byte-regions-must-be-whole-bytes", test_bytes_of_sub_byte_types);
    g_test_add_func("/problem/ranks-beyond-the-topology-are-refused", test_rank_beyond_topology);
    g_test_add_func("/problem/bytes-beyond-64-bits-are-refused", test_overflow);
    g_test_add_func("/problem/deepseek-v3-is-grouped-completely", test_deepseek);
    return g_test_run();
}
