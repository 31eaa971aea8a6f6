/*
 * The coverage proof. It accepts plans that deliver (by hand, and of every strategy), and refuses
 * each of them after any single change: for every transfer of every plan, the transfer dropped,
 * doubled, its region moved, shrunk or grown, its source replaced by a rank that does not have the
 * region, its dependencies removed, its landing changed. Changed plans are built again as a whole,
 * so that sums agree and only geometry can tell. Then what is owed twice, slices of unlike regions,
 * ranks that need overlapping pieces, sub-byte cuts. The union of regions against counting element
 * by element. (Damaged arrays: test-plan-damage.)
 */

#include "model/plan/refit-plan-coverage.h"
#include "model/strategy/refit-strategy.h"
#include "plan-cases.h"

/* ---- changed copies ---- */

typedef enum {
    UNCHANGED,
    DROPPED,
    DOUBLED,
    MOVED,
    SHRUNK,
    GROWN,
    OTHER_SOURCE,
    OTHER_DESTINATION,
    NO_DEPENDENCY,
    OTHER_LANDING,
    N_CHANGES
} Change;

/* One dim of the region replaced; FALSE when there is no room for the change. */
static gboolean change_region(const RefitClass *klass, RefitRegion *region, Change change) {
    for (guint dim = 0; dim < region->n_dims; dim++) {
        RefitIntervalList *list = region->dims[dim];
        g_autofree RefitInterval *items = g_memdup2(list->items, list->n * sizeof *items);
        guint last = list->n - 1;
        if (change == MOVED && items[last].hi < klass->shape[dim]) {
            for (guint i = 0; i < list->n; i++) {
                items[i].lo++;
                items[i].hi++;
            }
        } else if (change == MOVED && items[0].lo > 0) {
            for (guint i = 0; i < list->n; i++) {
                items[i].lo--;
                items[i].hi--;
            }
        } else if (change == SHRUNK && items[last].hi - items[last].lo > 1) {
            items[last].hi--;
        } else if (change == GROWN && items[last].hi < klass->shape[dim]) {
            items[last].hi++;
        } else if (change == GROWN && items[0].lo > 0) {
            items[0].lo--;
        } else {
            continue;
        }
        region->dims[dim] = refit_interval_list_new(items, list->n, NULL);
        g_assert_nonnull(region->dims[dim]);
        refit_interval_list_unref(list);
        return TRUE;
    }
    return FALSE;
}

/* The rank has from the start some (or all) of the region. */
static gboolean holds(const RefitClass *klass, guint rank, const RefitRegion *region,
                      gboolean all) {
    for (guint piece = 0; piece < klass->source->n_pieces; piece++)
        for (guint i = 0; i < klass->source->pieces[piece].n_ranks; i++)
            if (klass->source->pieces[piece].ranks[i] == rank &&
                refit_region_common(&klass->source->pieces[piece].region, region) >=
                    (all ? refit_region_volume(region) : 1))
                return TRUE;
    return FALSE;
}

/* The plan's decisions once more, with one change to `victim`; NULL when it cannot be made. */
static RefitPlan *rebuild(const RefitPlan *plan, guint victim, Change change) {
    const RefitProblem *problem = plan->problem;
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, plan->strategy);
    for (guint i = 0; i < plan->n_stages; i++)
        refit_plan_builder_add_stage(builder, plan->stages[i].name, plan->stages[i].slices);
    for (guint i = 0; i < plan->n_batches; i++)
        refit_plan_builder_add_batch(builder, plan->batches[i].lane, plan->batches[i].buckets,
                                     plan->batches[i].barrier);
    for (guint i = 0; i < problem->n_classes; i++)
        for (guint run = plan->run_offsets[i]; run < plan->run_offsets[i + 1]; run++)
            for (guint at = 0; at < plan->batch_runs[run].count; at++)
                refit_plan_builder_assign(
                    builder, i,
                    plan->member_order[plan->member_offsets[i] + plan->batch_runs[run].first + at],
                    plan->batch_runs[run].batch);
    for (guint i = 0; i < plan->n_obligations; i++)
        refit_plan_builder_oblige(builder, plan->obligations[i].class_index,
                                  plan->obligations[i].landing, plan->obligations[i].ranks,
                                  plan->obligations[i].n_ranks);

    g_autofree guint *handles = g_new(guint, plan->n_transfers);
    g_autoptr(GArray) deps = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint i = 0; i < plan->n_transfers; i++) {
        RefitTransfer transfer = plan->transfers[i];
        const RefitClass *klass = &problem->classes[transfer.class_index];
        g_auto(RefitRegion) region = refit_region_copy(&plan->regions[transfer.region]);
        g_array_set_size(deps, 0);
        for (guint dep = 0; dep < transfer.n_deps; dep++) {
            guint handle = handles[plan->deps[transfer.first_dep + dep]];
            if (handle == G_MAXUINT) /* was dropped, or does not arrive here any more */
                continue;
            g_array_append_val(deps, handle);
        }
        handles[i] = G_MAXUINT;
        guint copies = 1;
        if (i == victim) {
            switch (change) {
            case DROPPED:
                continue;
            case DOUBLED:
                copies = 2;
                break;
            case MOVED:
            case SHRUNK:
            case GROWN:
                if (!change_region(klass, &region, change))
                    return NULL;
                break;
            case OTHER_SOURCE:
                transfer.src = 0;
                while (transfer.src < problem->n_ranks &&
                       (transfer.src == plan->transfers[i].src ||
                        holds(klass, transfer.src, &region, FALSE)))
                    transfer.src++;
                if (transfer.src == problem->n_ranks)
                    return NULL;
                g_array_set_size(deps, 0);
                break;
            case OTHER_DESTINATION:
                transfer.dst = (transfer.dst + 1) % problem->n_ranks;
                break;
            case NO_DEPENDENCY:
                if (deps->len == 0 || holds(klass, transfer.src, &region, TRUE))
                    return NULL;
                g_array_set_size(deps, 0);
                break;
            case OTHER_LANDING:
                transfer.landing = transfer.landing == REFIT_LANDING_HOME ? REFIT_LANDING_BUCKET
                                                                          : REFIT_LANDING_HOME;
                break;
            default:
                break;
            }
        }
        guint number = refit_plan_builder_region(builder, &region);
        for (guint copy = 0; copy < copies; copy++) {
            guint handle = refit_plan_builder_add(
                builder, transfer.class_index, number, transfer.src, transfer.dst, transfer.stage,
                (RefitLanding)transfer.landing, (const guint *)(gpointer)deps->data, deps->len);
            if (i != victim || change != OTHER_DESTINATION)
                handles[i] = handle;
        }
    }
    return plan_case_finish(builder);
}

static void assert_good(const RefitPlan *plan) {
    g_autoptr(GError) error = NULL;
    gboolean good = refit_plan_check(plan, &error);
    g_assert_no_error(error);
    g_assert_true(good);
}

static void assert_bad(const RefitPlan *plan, const char *what, guint victim, guint change) {
    g_autoptr(GError) error = NULL;
    if (refit_plan_check(plan, &error))
        g_error("%s: transfer %u with change %u was accepted", what, victim, change);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
}

/* Returns how many changed plans were refused. */
static guint refuse_all_changes(const RefitPlan *plan, const char *what) {
    guint n = 0;
    assert_good(plan);
    g_autoptr(RefitPlan) copy = rebuild(plan, 0, UNCHANGED);
    assert_good(copy);
    g_assert_cmpuint(copy->n_messages, ==, plan->n_messages);
    for (guint victim = 0; victim < plan->n_transfers; victim++)
        for (guint change = DROPPED; change < N_CHANGES; change++) {
            g_autoptr(RefitPlan) changed = rebuild(plan, victim, (Change)change);
            if (changed == NULL)
                continue;
            assert_bad(changed, what, victim, change);
            n++;
        }
    return n;
}

static void test_by_hand(void) {
    static RefitPlan *(*const makers[])(const RefitProblem *) = {
        plan_case_direct_plan, plan_case_worked_plan, plan_case_relay_plan, plan_case_bucket_plan};
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    for (guint i = 0; i < G_N_ELEMENTS(makers); i++) {
        g_autoptr(RefitPlan) plan = makers[i](problem);
        g_assert_cmpuint(refuse_all_changes(plan, "by hand"), >=, 4 * plan->n_transfers);
    }
}

static void test_strategies(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), "tiny", NULL, &error);
    g_assert_no_error(error);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    for (const RefitStrategy *const *strategy = refit_strategies(); *strategy != NULL; strategy++) {
        g_autoptr(RefitPlan) plan = refit_plan_new(problem, *strategy, &error);
        g_assert_no_error(error);
        g_assert_cmpuint(refuse_all_changes(plan, (*strategy)->name), >=, 4 * plan->n_transfers);
    }
}

/* ---- messages of the proof ---- */

static void assert_message(const RefitPlan *plan, const char *expected) {
    g_autoptr(GError) error = NULL;
    g_assert_false(refit_plan_check(plan, &error));
    input_assert_error(error, REFIT_ERROR_COVERAGE, expected);
}

static void test_messages(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) direct = plan_case_direct_plan(problem);
    g_autoptr(RefitPlan) relay = plan_case_relay_plan(problem);
    g_autoptr(RefitPlan) dropped = rebuild(direct, 0, DROPPED);
    assert_message(dropped, "tensor w: rank 4 must receive 16 elements (landing home) but receives "
                            "8, in 1 regions; the first is [4:8, 0:2]");
    g_autoptr(RefitPlan) doubled = rebuild(direct, 0, DOUBLED);
    assert_message(doubled, "tensor w: region [0:4, 0:2] lands twice on rank 4 (landing home)");
    g_autoptr(RefitPlan) moved = rebuild(direct, 0, MOVED);
    assert_message(moved, "tensor w: rank 0 sends region [1:5, 0:2] to rank 4 but does not hold "
                          "all of it by then");
    g_autoptr(RefitPlan) landed = rebuild(direct, 0, OTHER_LANDING);
    assert_message(landed, "tensor w: rank 4 must receive 16 elements (landing home) but receives "
                           "8, in 1 regions; the first is [4:8, 0:2]");
    g_autoptr(RefitPlan) elsewhere = rebuild(relay, 0, OTHER_DESTINATION);
    assert_message(elsewhere, "tensor w: rank 3 relays region [0:4, 0:4] from rank 0 but does "
                              "not send all of it on");
}

/* ---- what the builder cannot produce ---- */

/* A rank that is owed the same twice; one more obligation than a plan's array has room for. */
static void test_owed_twice(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_bucket_plan(problem);
    const RefitObligation obligations[] = {plan->obligations[0], plan->obligations[1],
                                           plan->obligations[1]};
    RefitPlan twice = *plan;
    twice.obligations = obligations;
    twice.n_obligations = 3;
    assert_message(&twice, "tensor w: rank 4 is owed landing bucket twice");
}

/* A part of what arrives cannot be passed on slice by slice: its first slice comes late. */
static void test_slices_of_another_region(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(
        WORKED_TOPOLOGY, WORKED_TENSOR, 1, "rules: [{tensors: w, place: [replicate]}]", 2,
        "rules: [{tensors: w, parts: [{ranks: [0], place: [replicate]}, {ranks: [0-1], place: "
        "[{shard: 0}]}]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    for (guint slices = 1; slices <= 2; slices++) {
        g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
        refit_plan_builder_add_stage(builder, "chain", slices);
        plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
        guint dep = plan_case_add(builder, 0, "0:8,0:4", 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
        plan_case_add(builder, 0, "4:8,0:4", 1, 2, 0, REFIT_LANDING_HOME, &dep, 1);
        g_autoptr(RefitPlan) plan = plan_case_finish(builder);
        if (slices == 1)
            assert_good(plan);
        else
            assert_message(plan, "tensor w: rank 1 passes on another region than transfer 0 brings "
                                 "it in stage chain, whose slices would not match");
    }
}

/* ---- special needs ---- */

/* Rank 1 needs rows 0-3 and, for another reason, all rows: each row still lands once. */
static void test_overlapping_pieces(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(
        WORKED_TOPOLOGY, WORKED_TENSOR, 1, "rules: [{tensors: w, place: [replicate]}]", 2,
        "rules: [{tensors: w, parts: [{ranks: [0-1], place: [{shard: 0}]}, {ranks: [0], place: "
        "[replicate]}]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    static const struct {
        const char *first, *second;
        gboolean good;
    } cases[] = {{"0:8,0:4", NULL, TRUE},
                 {"0:3,0:4", "3:8,0:4", TRUE},
                 {"0:4,0:4", NULL, FALSE},
                 {"0:8,0:4", "0:4,0:4", FALSE}};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
        refit_plan_builder_add_stage(builder, "direct", 1);
        plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
        plan_case_add(builder, 0, cases[i].first, 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
        if (cases[i].second != NULL)
            plan_case_add(builder, 0, cases[i].second, 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
        plan_case_add(builder, 0, "4:8,0:4", 0, 2, 0, REFIT_LANDING_HOME, NULL, 0);
        g_autoptr(RefitPlan) plan = plan_case_finish(builder);
        if (cases[i].good)
            assert_good(plan);
        else
            assert_bad(plan, "overlapping pieces", i, 0);
    }
}

/* A rank may send what it holds in part and has received in part, and pass a relay on in parts. */
static void test_parts(void) {
    g_autoptr(RefitCase) refit_case = plan_case_new(WORKED_TOPOLOGY, WORKED_TENSOR, 2,
                                                    "rules: [{tensors: w, place: [{shard: 0}]}]", 2,
                                                    "rules: [{tensors: w, place: [{shard: 1}]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    for (guint short_relay = 0; short_relay < 2; short_relay++) {
        g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
        refit_plan_builder_add_stage(builder, "relay", 1);
        refit_plan_builder_add_stage(builder, "deliver", 1);
        plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
        guint dep = plan_case_add(builder, 0, "4:8,0:4", 1, 0, 0, REFIT_LANDING_RELAY, NULL, 0);
        plan_case_add(builder, 0, "0:8,0:2", 0, 2, 1, REFIT_LANDING_HOME, &dep, 1);
        if (short_relay) { /* columns 2-3 of rows 4-7 come from their holder after all */
            plan_case_add(builder, 0, "0:4,2:4", 0, 3, 1, REFIT_LANDING_HOME, NULL, 0);
            plan_case_add(builder, 0, "4:8,2:4", 1, 3, 1, REFIT_LANDING_HOME, NULL, 0);
        } else {
            plan_case_add(builder, 0, "0:8,2:4", 0, 3, 1, REFIT_LANDING_HOME, &dep, 1);
        }
        g_autoptr(RefitPlan) plan = plan_case_finish(builder);
        if (short_relay)
            assert_message(plan, "tensor w: rank 0 relays region [4:8, 0:4] from rank 1 but does "
                                 "not send all of it on");
        else
            assert_good(plan);
    }
}

static void test_sub_byte(void) {
    g_autoptr(RefitCase) refit_case =
        plan_case_new(WORKED_TOPOLOGY, "  - {name: w, shape: [4, 8], dtype: f4, role: other}\n", 1,
                      "rules: [{tensors: w, place: [replicate]}]", 1,
                      "rules: [{tensors: w, place: [replicate]}]");
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    for (guint cut = 3; cut <= 4; cut++) {
        g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
        refit_plan_builder_add_stage(builder, "direct", 1);
        plan_case_assign_all(builder, problem, refit_plan_builder_add_batch(builder, 0, 0, FALSE));
        g_autofree char *left = g_strdup_printf("0:4,0:%u", cut);
        g_autofree char *right = g_strdup_printf("0:4,%u:8", cut);
        plan_case_add(builder, 0, left, 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
        plan_case_add(builder, 0, right, 0, 1, 0, REFIT_LANDING_HOME, NULL, 0);
        g_autoptr(RefitPlan) plan = plan_case_finish(builder);
        if (cut == 3)
            assert_message(plan, "tensor w: rank 0 sends rank 1 region [0:4, 0:3], which does not "
                                 "start and end on whole bytes");
        else
            assert_good(plan);
    }
}

/* ---- union ---- */

static RefitRegion random_region(GRand *rand, guint n_dims, guint extent) {
    RefitRegion region = {.n_dims = n_dims};
    for (guint dim = 0; dim < n_dims; dim++) {
        RefitInterval items[16];
        guint n = 0;
        for (guint i = 0; i < extent; i++)
            if (g_rand_int_range(rand, 0, 3) > 0) {
                items[n] = (RefitInterval){i, i + 1, n};
                n++;
            }
        region.dims[dim] = refit_interval_list_new(items, n, NULL);
        g_assert_nonnull(region.dims[dim]);
    }
    return region;
}

static gboolean has_index(const RefitIntervalList *list, guint64 index) {
    for (guint i = 0; i < list->n; i++)
        if (list->items[i].lo <= index && index < list->items[i].hi)
            return TRUE;
    return FALSE;
}

static void test_union(void) {
    g_autoptr(GRand) rand = g_rand_new_with_seed(11);
    for (guint round = 0; round < 400; round++) {
        guint n_dims = (guint)g_rand_int_range(rand, 0, 4), n = (guint)g_rand_int_range(rand, 0, 6);
        guint extent = (guint)g_rand_int_range(rand, 1, 7);
        RefitRegion regions[6];
        const RefitRegion *pointers[6];
        for (guint i = 0; i < n; i++) {
            regions[i] = random_region(rand, n_dims, extent);
            pointers[i] = &regions[i];
        }
        guint64 cells = 1, expected = 0;
        for (guint dim = 0; dim < n_dims; dim++)
            cells *= extent;
        for (guint64 cell = 0; cell < cells; cell++) {
            gboolean covered = FALSE;
            for (guint i = 0; i < n && !covered; i++) {
                guint64 rest = cell;
                covered = TRUE;
                for (guint dim = 0; dim < n_dims; dim++, rest /= extent)
                    covered = covered && has_index(regions[i].dims[dim], rest % extent);
            }
            expected += covered ? 1 : 0;
        }
        g_assert_cmpuint(refit_union_volume(pointers, n), ==, expected);
        for (guint i = 0; i < n; i++)
            refit_region_clear(&regions[i]);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/plan-check/any-change-to-a-plan-by-hand-is-refused", test_by_hand);
    g_test_add_func("/plan-check/any-change-to-a-strategy-s-plan-is-refused", test_strategies);
    g_test_add_func("/plan-check/a-refusal-names-tensor-rank-and-region", test_messages);
    g_test_add_func("/plan-check/nobody-is-owed-the-same-twice", test_owed_twice);
    g_test_add_func("/plan-check/slices-follow-slices-of-the-same-region",
                    test_slices_of_another_region);
    g_test_add_func("/plan-check/overlapping-needs-are-met-once", test_overlapping_pieces);
    g_test_add_func("/plan-check/parts-held-and-parts-received-add-up", test_parts);
    g_test_add_func("/plan-check/a-region-that-cuts-a-byte-is-refused", test_sub_byte);
    g_test_add_func("/plan-check/unions-are-what-counting-gives", test_union);
    return g_test_run();
}
