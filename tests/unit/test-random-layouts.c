/*
 * Plans of random cases against the element oracle: meshes of up to 64 ranks and 4 axes, tensors of
 * up to 5 dims, several cuts of one dim in any order, chunk, balanced and stated sizes, strides,
 * lists in any order with places shared and left out, segments, fused parameters in blocks,
 * padding, empty shards, replicas, copies on two meshes, ranks permuted and with holes, sides apart
 * and overlapping, two pools, pipeline stages, domains of 1 to 8 GPUs, all strategies. What each
 * rank is told of its buffers is compared place by place; each plan is carried out step by step,
 * its bytes are recounted, and network bytes are compared with the oracle's own bound. By hand: the
 * worked example, shards of one rank that overlap. Also that the oracle sees plans that are wrong
 * in any of ten ways.
 *
 * REFIT_RANDOM_CASES is the number of cases, REFIT_RANDOM_SEED the first one's seed.
 */

#include "model/strategy/refit-strategy-private.h"
#include "random-case.h"

#define N_CASES 2000
#define N_FAULTY_CASES 40

static guint read_number(const char *name, guint otherwise) {
    const char *text = g_getenv(name);
    guint64 number = 0;

    if (text == NULL)
        return otherwise;
    g_assert_true(g_ascii_string_to_unsigned(text, 10, 0, G_MAXUINT32, &number, NULL));
    return (guint)number;
}

static char *check_sums(const RandomCase *random, const RefitPlan *plan) {
    guint64 network = element_oracle_network_bytes(random->oracle), needed = 0;
    RefitBound bound;

    for (guint rank = 0; rank < plan->problem->n_ranks; rank++)
        needed += element_oracle_needed_bytes(random->oracle, rank);
    if (plan->problem->needed_bytes != needed)
        return g_strdup_printf("%" G_GUINT64_FORMAT " bytes are needed, not %" G_GUINT64_FORMAT,
                               needed, plan->problem->needed_bytes);
    if (!refit_bound_compute(plan->problem, &bound, NULL) || bound.network_bytes != network)
        return g_strdup_printf("the bound is %" G_GUINT64_FORMAT " bytes", network);
    if (g_str_equal(plan->strategy, "refit") ? plan->link_bytes[NETWORK] != network
                                             : plan->link_bytes[NETWORK] < network)
        return g_strdup_printf("%" G_GUINT64_FORMAT " bytes cross the network, the bound is "
                               "%" G_GUINT64_FORMAT,
                               plan->link_bytes[NETWORK], network);
    return NULL;
}

/* NULL, or what is wrong with the plan of this strategy, in this shape. */
static char *check_plan(const RandomCase *random, const RefitProblem *problem,
                        const RefitStrategy *strategy, const RefitShape *shape) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitPlan) plan = refit_plan_of_shape(problem, strategy, shape, &error);

    if (plan == NULL)
        return g_strdup(error->message);
    char *complaint = element_oracle_run(random->oracle, plan);
    if (complaint == NULL)
        complaint = element_oracle_check_bytes(random->oracle, plan);
    return complaint != NULL ? complaint : check_sums(random, plan);
}

/* What the ranks of the source are told that they store, and those of a single pool. */
static char *check_local(const RandomCase *random, const RefitCase *refit_case) {
    for (guint side = 0; side < 2; side++) {
        const RefitLayout *layout = side == 0 ? refit_case->source : refit_case->destinations[0];

        for (guint t = 0; t < refit_model_n_tensors(refit_case->model); t++) {
            const RefitSharding *sharding = refit_layout_sharding(layout, t);

            if (sharding == NULL || (side == 1 && refit_case->n_destinations > 1))
                continue;
            char *complaint = element_oracle_check_local(random->oracle, t, side == 1, sharding);
            if (complaint != NULL)
                return complaint;
        }
    }
    return NULL;
}

static gboolean report(const RandomCase *random, const char *what, const char *complaint) {
    g_autofree char *text = random_case_to_string(random);

    g_test_message("REFIT_RANDOM_SEED=%u REFIT_RANDOM_CASES=1 runs this case alone\n%s",
                   random->seed, text);
    g_test_fail_printf("case %u, %s: %s", random->seed, what, complaint);
    return FALSE;
}

static gboolean check_case(guint seed) {
    g_autoptr(RandomCase) random = random_case_new(seed);
    g_autoptr(RefitCase) refit_case = random_case_build(random);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autofree char *local = check_local(random, refit_case);

    if (local != NULL)
        return report(random, "local buffers", local);
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        const RefitStrategy *strategy = refit_strategies()[i];
        const RefitShape *shape = NULL; /* the usual one, then the others */

        do {
            g_autofree char *complaint = check_plan(random, problem, strategy, shape);

            if (complaint != NULL)
                return report(random, shape != NULL ? shape->name : strategy->name, complaint);
            shape = shape != NULL ? shape + 1 : strategy->shapes;
        } while (shape != NULL && shape->name != NULL);
    }
    return TRUE;
}

static void test_random_layouts(void) {
    guint first = read_number("REFIT_RANDOM_SEED", (guint)g_test_rand_int());
    guint n = read_number("REFIT_RANDOM_CASES", N_CASES);

    for (guint i = 0; i < n; i++)
        if (!check_case(first + i))
            return;
    g_test_message("%u cases from seed %u on", n, first);
}

/* The generator must reach what the test says it covers. */
static void test_variety(void) {
    guint first = (guint)g_test_rand_int(), two_pools = 0, large = 0, staged = 0, ordered = 0;
    guint stated = 0, scalars = 0, copies = 0, strided = 0, listed = 0, segments = 0, fused = 0;
    guint padded = 0;

    for (guint i = 0; i < 300; i++) {
        g_autoptr(RandomCase) random = random_case_new(first + i);
        g_autoptr(RandomCase) again = random_case_new(first + i);
        g_autofree char *text = random_case_to_string(random);
        g_autofree char *text_again = random_case_to_string(again);

        g_assert_cmpstr(text, ==, text_again);
        two_pools += random->pools[1] != NULL;
        large += random->n_ranks > 48;
        staged += random->n_stages > 1;
        ordered += strstr(text, "order: 3") != NULL;
        stated += strstr(text, "sizes: [") != NULL;
        scalars += strstr(text, "shape: []") != NULL;
        copies += strstr(text, "]}, {mesh") != NULL;
        strided += strstr(text, "split: strided") != NULL;
        listed += strstr(text, "lists: [") != NULL;
        segments += strstr(text, "segments: [") != NULL;
        fused += strstr(text, "fused: [") != NULL;
        padded += strstr(text, "padded: {") != NULL;
    }
    g_test_message("of 300 cases: %u with two pools, %u with more than 48 ranks, %u with pipeline "
                   "stages, %u with four ordered axes, %u with stated sizes, %u with scalars, %u "
                   "with copies, %u with strides, %u with lists, %u with segments, %u with fused "
                   "parameters, %u with padding",
                   two_pools, large, staged, ordered, stated, scalars, copies, strided, listed,
                   segments, fused, padded);
    g_assert_cmpuint(two_pools, >, 20);
    g_assert_cmpuint(large, >, 5);
    g_assert_cmpuint(staged, >, 50);
    g_assert_cmpuint(ordered, >, 20);
    g_assert_cmpuint(stated, >, 50);
    g_assert_cmpuint(scalars, >, 10);
    g_assert_cmpuint(copies, >, 50);
    g_assert_cmpuint(strided, >, 50);
    g_assert_cmpuint(listed, >, 50);
    g_assert_cmpuint(segments, >, 50);
    g_assert_cmpuint(fused, >, 50);
    g_assert_cmpuint(padded, >, 50);
}

/* ---- faults ---- */

/* Plants a fault in a plan, when it has a place for it. */
typedef gboolean (*PlantFunc)(RefitPlan *plan, guint pick);

static RefitTransfer *transfer_at(RefitPlan *plan, guint pick) {
    return plan->n_transfers == 0 ? NULL
                                  : (RefitTransfer *)&plan->transfers[pick % plan->n_transfers];
}

/* A transfer that waits for others. */
static RefitTransfer *waiting_transfer(RefitPlan *plan, guint pick) {
    for (guint i = 0; i < plan->n_transfers; i++) {
        RefitTransfer *transfer = transfer_at(plan, pick % plan->n_transfers + i);
        if (transfer->n_deps > 0)
            return transfer;
    }
    return NULL;
}

static gboolean holds_some(const RefitPlan *plan, guint class_index, guint rank) {
    const RefitHolding *source = plan->problem->classes[class_index].source;

    for (guint i = 0; i < source->n_pieces; i++)
        if (refit_ranks_contain(source->pieces[i].ranks, source->pieces[i].n_ranks, rank))
            return TRUE;
    return FALSE;
}

static gboolean plant_skipped_transfer(RefitPlan *plan, guint pick) {
    if (plan->n_pairs == 0)
        return FALSE;
    ((RefitPair *)&plan->pairs[pick % plan->n_pairs])->n_transfers--;
    return TRUE;
}

static gboolean plant_repeated_transfer(RefitPlan *plan, guint pick) {
    for (guint i = 0; i + 1 < plan->n_pairs; i++) {
        RefitPair *pair = (RefitPair *)&plan->pairs[(pick + i) % (plan->n_pairs - 1)];
        guint next = pair->first_transfer + pair->n_transfers;

        if (plan->transfers[next].class_index != plan->transfers[next - 1].class_index)
            continue;
        pair->n_transfers++;
        return TRUE;
    }
    return FALSE;
}

static gboolean plant_shifted_region(RefitPlan *plan, guint pick) {
    RefitTransfer *transfer = transfer_at(plan, pick);
    RefitRegion *region;

    if (transfer == NULL)
        return FALSE;
    region = (RefitRegion *)&plan->regions[transfer->region];
    for (guint dim = 0; dim < region->n_dims; dim++) {
        const RefitIntervalList *old = region->dims[dim];
        g_autofree RefitInterval *items = g_memdup2(old->items, old->n * sizeof *items);
        gint by = old->items[0].lo > 0 ? -1 : 1;

        if (old->items[0].lo == 0 &&
            old->items[old->n - 1].hi == plan->problem->classes[transfer->class_index].shape[dim])
            continue;
        for (guint i = 0; i < plan->n_transfers && by == 1; i++)
            if (plan->transfers[i].region == transfer->region &&
                plan->problem->classes[plan->transfers[i].class_index].shape[dim] <=
                    old->items[old->n - 1].hi)
                return FALSE;
        for (guint i = 0; i < old->n; i++) {
            items[i].lo += (guint64)by;
            items[i].hi += (guint64)by;
        }
        RefitIntervalList *shifted = refit_interval_list_new(items, old->n, NULL);
        refit_interval_list_unref(region->dims[dim]);
        region->dims[dim] = shifted;
        return TRUE;
    }
    return FALSE;
}

/* The message of a transfer changes places with one that it waits for. */
static gboolean plant_wrong_order(RefitPlan *plan, guint pick) {
    const RefitTransfer *transfer = waiting_transfer(plan, pick);
    RefitMessage *messages = (RefitMessage *)plan->messages;

    if (transfer == NULL)
        return FALSE;
    guint before = plan->transfers[plan->deps[transfer->first_dep]].pair;
    for (guint64 i = 0; i < plan->n_messages; i++)
        for (guint64 j = i + 1; messages[i].pair == before && j < plan->n_messages; j++)
            if (messages[j].pair == transfer->pair && messages[j].batch == messages[i].batch &&
                refit_plan_batch_members(plan, refit_plan_section_of(plan, transfer),
                                         messages[i].batch) > 0) {
                RefitMessage message = messages[i];
                guint early = messages[i].step, late = messages[j].step;

                messages[i] = messages[j];
                messages[i].step = early;
                messages[j] = message;
                messages[j].step = late;
                return TRUE;
            }
    return FALSE;
}

static gboolean plant_same_step(RefitPlan *plan, guint pick) {
    if (waiting_transfer(plan, pick) == NULL)
        return FALSE;
    for (guint64 i = 0; i < plan->n_messages; i++)
        ((RefitMessage *)&plan->messages[i])->step = 0;
    return TRUE;
}

static gboolean plant_wrong_receiver(RefitPlan *plan, guint pick) {
    RefitTransfer *transfer = transfer_at(plan, pick);

    if (transfer == NULL || plan->problem->n_ranks < 2)
        return FALSE;
    transfer->dst = (transfer->dst + 1) % plan->problem->n_ranks;
    return TRUE;
}

static gboolean plant_wrong_sender(RefitPlan *plan, guint pick) {
    RefitTransfer *transfer = transfer_at(plan, pick);

    for (guint rank = 0; transfer != NULL && rank < plan->problem->n_ranks; rank++) {
        if (rank == transfer->src || holds_some(plan, transfer->class_index, rank))
            continue;
        transfer->src = rank;
        return TRUE;
    }
    return FALSE;
}

static gboolean plant_no_dependency(RefitPlan *plan, guint pick) {
    RefitTransfer *transfer = waiting_transfer(plan, pick);

    if (transfer == NULL || holds_some(plan, transfer->class_index, transfer->src))
        return FALSE;
    transfer->n_deps = 0;
    return TRUE;
}

static gboolean plant_lost_member(RefitPlan *plan, guint pick) {
    for (guint i = 0; i < plan->problem->n_classes; i++) {
        guint c = (pick + i) % plan->problem->n_classes;
        guint *order = (guint *)&plan->member_order[plan->member_offsets[c]];

        if (plan->problem->classes[c].n_members < 2)
            continue;
        order[0] = order[1];
        return TRUE;
    }
    return FALSE;
}

/* The first index of a shard is said to lie behind the others, where no rank stores it. */
static gboolean plant_wrong_place(RefitPlan *plan, guint pick) {
    const RefitClass *klass = &plan->problem->classes[pick % plan->problem->n_classes];
    const RefitPiece *piece = &klass->destination->pieces[pick % klass->destination->n_pieces];

    for (guint dim = 0; dim < piece->region.n_dims; dim++) {
        RefitIntervalList **list = (RefitIntervalList **)&piece->region.dims[dim];
        RefitInterval whole = (*list)->items[0];
        guint64 middle = whole.lo + 1;

        if (whole.hi == middle)
            continue;
        const RefitInterval halves[] = {{whole.lo, middle, whole.hi + 50}, {middle, whole.hi, 0}};
        refit_interval_list_unref(*list);
        *list = refit_interval_list_new(halves, 2, NULL);
        return TRUE;
    }
    return FALSE;
}

static void test_faults_are_seen(void) {
    static const struct {
        const char *name;
        PlantFunc plant;
    } faults[] = {
        {"a transfer is skipped", plant_skipped_transfer},
        {"a transfer is repeated", plant_repeated_transfer},
        {"a region is shifted", plant_shifted_region},
        {"steps in the wrong order", plant_wrong_order},
        {"one step for all", plant_same_step},
        {"the wrong rank receives", plant_wrong_receiver},
        {"the wrong rank sends", plant_wrong_sender},
        {"a dependency is missing", plant_no_dependency},
        {"a member moves twice", plant_lost_member},
        {"the wrong place in a buffer", plant_wrong_place},
    };
    guint first = (guint)g_test_rand_int();

    for (guint fault = 0; fault < G_N_ELEMENTS(faults); fault++) {
        guint planted = 0;

        for (guint i = 0; i < N_FAULTY_CASES; i++) {
            g_autoptr(RandomCase) random = random_case_new(first + i);

            for (guint s = 0; refit_strategies()[s] != NULL; s++) {
                g_autoptr(RefitCase) refit_case = random_case_build(random);
                g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
                g_autoptr(RefitPlan) plan = strategy_plan(problem, refit_strategies()[s]->name);

                if (!faults[fault].plant(plan, (guint)g_test_rand_int()))
                    continue;
                g_autofree char *complaint = element_oracle_run(random->oracle, plan);
                if (complaint == NULL)
                    g_test_fail_printf("case %u, strategy %s: not seen: %s", random->seed,
                                       plan->strategy, faults[fault].name);
                planted++;
            }
        }
        g_test_message("%s: %u", faults[fault].name, planted);
        g_assert_cmpuint(planted, >=, 20);
    }
}

typedef RefitPlan *(*MakePlanFunc)(const RefitProblem *problem);

/* The worked example: 8 x 4, rows on ranks 0 and 1, columns twice on ranks 4 to 7. */
static void test_oracle_by_hand(void) {
    static const guint sources[] = {0, 1}, destinations[] = {4, 5, 6, 7};
    static const guint64 shape[] = {8, 4};
    const ElementMesh rows = {
        .n_axes = 1, .sizes = {2}, .places = {{.kind = REFIT_PLACEMENT_SHARD}}, .ranks = sources};
    const ElementMesh columns = {.n_axes = 2,
                                 .sizes = {2, 2},
                                 .places = {{0}, {.kind = REFIT_PLACEMENT_SHARD, .dim = 1}},
                                 .ranks = destinations};
    g_autoptr(ElementOracle) oracle = element_oracle_new(8, 4);
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    static const MakePlanFunc plans[] = {plan_case_worked_plan, plan_case_relay_plan,
                                         plan_case_bucket_plan, plan_case_direct_plan};

    element_oracle_add_tensor(oracle, 2, shape, 2);
    element_oracle_place(oracle, 0, FALSE, &rows);
    element_oracle_place(oracle, 0, TRUE, &columns);
    for (guint rank = 0; rank < 8; rank++)
        g_assert_cmpuint(element_oracle_needed_bytes(oracle, rank), ==, rank < 4 ? 0 : 32);
    g_assert_cmpuint(element_oracle_network_bytes(oracle), ==, 64);
    for (guint i = 0; i < G_N_ELEMENTS(plans); i++) {
        g_autoptr(RefitPlan) plan = plans[i](problem);
        g_autofree char *complaint = element_oracle_run(oracle, plan);
        g_autofree char *bytes = element_oracle_check_bytes(oracle, plan);

        g_assert_cmpstr(complaint, ==, NULL);
        g_assert_cmpstr(bytes, ==, NULL);
        ((RefitMessage *)plan->messages)->bytes++;
        g_autofree char *wrong = element_oracle_check_bytes(oracle, plan);
        g_assert_nonnull(wrong);
    }
}

/*
 * Each rank needs two rows and two columns: 8 + 8 elements, of which 4 are in both shards and land
 * in both places, so 12 are needed.
 */
static void test_overlapping_shards(void) {
    static const guint ranks[] = {0, 1};
    static const guint64 shape[] = {4, 4};
    static const StrategyCase described = {
        .topology = "node:1 gpu:2 nvlink:450GBps nic:50GBps",
        .tensors = "  - {name: w, shape: [4, 4], dtype: bf16}\n",
        .source = "ranks: [0], rules: [{tensors: w, place: [replicate]}]",
        .pools = {"ranks: [0, 1], rules: [{tensors: w, parts: [{place: [shard(0)]}, {place: "
                  "[shard(1)]}]}]"},
    };
    const ElementMesh whole = {.n_axes = 1, .sizes = {1}, .ranks = ranks};
    const ElementMesh rows = {
        .n_axes = 1, .sizes = {2}, .places = {{.kind = REFIT_PLACEMENT_SHARD}}, .ranks = ranks};
    const ElementMesh columns = {.n_axes = 1,
                                 .sizes = {2},
                                 .places = {{.kind = REFIT_PLACEMENT_SHARD, .dim = 1}},
                                 .ranks = ranks};
    g_autoptr(ElementOracle) oracle = element_oracle_new(2, 2);
    g_autoptr(RefitCase) refit_case = strategy_case_new(&described);
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);

    element_oracle_add_tensor(oracle, 2, shape, 2);
    element_oracle_place(oracle, 0, FALSE, &whole);
    element_oracle_place(oracle, 0, TRUE, &rows);
    element_oracle_place(oracle, 0, TRUE, &columns);
    g_assert_cmpuint(element_oracle_needed_bytes(oracle, 0), ==, 24);
    g_assert_cmpuint(element_oracle_needed_bytes(oracle, 1), ==, 24);
    g_assert_cmpuint(problem->needed_bytes, ==, 48);
    for (guint i = 0; refit_strategies()[i] != NULL; i++) {
        g_autoptr(RefitPlan) plan = strategy_plan(problem, refit_strategies()[i]->name);
        g_autofree char *complaint = element_oracle_run(oracle, plan);

        g_assert_cmpstr(complaint, ==, NULL);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/random-layouts/the-oracle-runs-the-worked-example", test_oracle_by_hand);
    g_test_add_func("/random-layouts/shards-of-one-rank-may-overlap", test_overlapping_shards);
    g_test_add_func("/random-layouts/every-fault-is-seen", test_faults_are_seen);
    g_test_add_func("/random-layouts/cases-are-varied-and-follow-from-their-seed", test_variety);
    g_test_add_func("/random-layouts/every-plan-delivers-every-element", test_random_layouts);
    return g_test_run();
}
