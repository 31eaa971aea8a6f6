/*
 * Damage to a plan that the builder cannot produce, and that the proof must refuse: each array
 * entry that has to agree with another one, counts and numbers out of range, lists out of order.
 * One kind of damage at a time to a copy of a good plan.
 */

#include "plan-cases.h"

typedef struct {
    RefitPlan plan;
    RefitRegion *regions;
    RefitSection *sections;
    guint *section_offsets, *run_offsets;
    RefitTransfer *transfers;
    RefitPair *pairs;
    RefitMessage *messages;
    RefitBatchRun *runs;
    guint *deps, *order;
    RefitRankAccount *accounts;
    RefitObligation *obligations;
    RefitStage *stages;
    RefitBatch *batches;
} Copy;

static void copy_plan(const RefitPlan *plan, Copy *copy) {
    copy->plan = *plan;
#define COPY(field, member, n)                                                                     \
    copy->plan.member = copy->field = g_memdup2(plan->member, (gsize)(n) * sizeof *copy->field)
    COPY(regions, regions, plan->n_regions);
    COPY(sections, sections, plan->n_sections);
    COPY(section_offsets, section_offsets, plan->problem->n_classes + 1);
    COPY(run_offsets, run_offsets, plan->n_sections + 1);
    COPY(transfers, transfers, plan->n_transfers);
    COPY(pairs, pairs, plan->n_pairs);
    COPY(messages, messages, plan->n_messages);
    COPY(runs, batch_runs, plan->run_offsets[plan->n_sections]);
    COPY(deps, deps, plan->n_deps);
    COPY(order, member_order, plan->member_offsets[plan->n_sections]);
    COPY(accounts, accounts, plan->problem->n_ranks);
    COPY(obligations, obligations, plan->n_obligations);
    COPY(stages, stages, plan->n_stages);
    COPY(batches, batches, plan->n_batches);
#undef COPY
}

static void copy_clear(Copy *copy) {
    g_free(copy->regions);
    g_free(copy->sections);
    g_free(copy->section_offsets);
    g_free(copy->run_offsets);
    g_free(copy->transfers);
    g_free(copy->pairs);
    g_free(copy->messages);
    g_free(copy->runs);
    g_free(copy->deps);
    g_free(copy->order);
    g_free(copy->accounts);
    g_free(copy->obligations);
    g_free(copy->stages);
    g_free(copy->batches);
}

static const guint falling_ranks[] = {7, 6, 5, 4}, repeated_ranks[] = {4, 5, 6, 7, 7};

/* Applies damage number `kind`; FALSE when there is none of that number. */
static gboolean damage(Copy *copy, guint kind) {
    RefitMessage swap;
    switch (kind) {
    case 0:
        copy->transfers[0].class_index = 99;
        break;
    case 1:
        copy->transfers[0].region = 99;
        break;
    case 2:
        copy->transfers[0].src = 99;
        break;
    case 3:
        copy->transfers[0].dst = 99;
        break;
    case 4:
        copy->transfers[0].stage = 99;
        break;
    case 5:
        copy->transfers[0].landing = 99;
        break;
    case 6:
        copy->transfers[0].pair = 99;
        break;
    case 7:
        copy->transfers[0].pair = 1;
        break;
    case 8:
        copy->transfers[0].link = REFIT_LINK_NETWORK;
        break;
    case 9:
        copy->transfers[2].first_dep = 99;
        break;
    case 10:
        copy->transfers[2].n_deps = 99;
        break;
    case 11:
        copy->deps[0] = 99;
        break;
    case 12:
        copy->deps[0] = 0;
        break; /* arrives elsewhere */
    case 13:
        copy->deps[1] = 2 + 1;
        break; /* itself */
    case 14:
        copy->pairs[0].first_transfer = 1;
        break;
    case 15:
        copy->pairs[0].n_transfers = 0;
        break;
    case 16:
        copy->pairs[1].n_transfers = 99;
        break;
    case 17:
        copy->pairs[0].src = 5;
        break;
    case 18:
        copy->pairs[0].offset = 7;
        break;
    case 19:
        copy->pairs[5].offset = 0;
        break;
    case 20:
        copy->plan.n_pairs--;
        break;
    case 21:
        copy->pairs[3].link = REFIT_LINK_LOCAL;
        break;
    case 22:
        copy->runs[0].count = 0;
        break;
    case 23:
        copy->runs[0].count = 2;
        break;
    case 24:
        copy->runs[0].batch = 9;
        break;
    case 25:
        copy->runs[0].first = 1;
        break;
    case 26:
        copy->order[0] = 1;
        break;
    case 27:
        copy->messages[0].bytes--;
        break;
    case 28:
        copy->messages[0].tensors++;
        break;
    case 29:
        copy->messages[0].step = 99;
        break;
    case 30:
        copy->messages[5].step--;
        break;
    case 31:
        copy->messages[0].pair = 99;
        break;
    case 32:
        copy->messages[1].pair = 0;
        break;
    case 33:
        copy->messages[0].batch = 5;
        break;
    case 34:
        copy->plan.n_messages--;
        break;
    case 35:
        copy->accounts[4].in[REFIT_LINK_NETWORK]++;
        break;
    case 36:
        copy->accounts[0].messages_out--;
        break;
    case 37:
        copy->plan.link_bytes[REFIT_LINK_NVLINK]++;
        break;
    case 38:
        copy->obligations[0].class_index = 9;
        break;
    case 39:
        copy->obligations[0].landing = REFIT_LANDING_HOME;
        break;
    case 40:
        copy->obligations[1].n_ranks--;
        break; /* rank 7 is not owed a bucket */
    case 41:
        swap = copy->messages[2];
        copy->messages[2] = copy->messages[3];
        copy->messages[3] = swap;
        break;
    case 42:
        copy->stages[0].slices = 0;
        break;
    case 43:
        copy->stages[1].track = 2;
        break;
    case 44:
        copy->batches[0].lane = 1;
        break;
    case 45:
        copy->obligations[1].ranks = falling_ranks;
        break;
    case 46:
        copy->obligations[1].ranks = repeated_ranks;
        copy->obligations[1].n_ranks = 5;
        break;
    case 47:
        copy->obligations[0] = copy->obligations[1];
        break;
    default:
        return FALSE;
    }
    return TRUE;
}

static void test_damage(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = plan_case_bucket_plan(problem);
    gboolean more = TRUE;
    for (guint kind = 0; more; kind++) {
        g_autoptr(GError) error = NULL;
        Copy copy;
        copy_plan(plan, &copy);
        g_assert_true(refit_plan_check(&copy.plan, &error));
        g_assert_no_error(error);
        more = damage(&copy, kind);
        if (more && refit_plan_check(&copy.plan, &error))
            g_error("damage %u was accepted", kind);
        if (more)
            g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
        copy_clear(&copy);
    }
}

/* ---- sections ---- */

/* The plan of buckets, in sections of rows 0 to 2 and 3 to 7, each in a batch of its own. */
static RefitPlan *sections_plan(const RefitProblem *problem) {
    static const char *const rows[] = {"0:3,0:4", "3:8,0:4"};
    static const guint roots[] = {0, 1}, receivers[] = {4, 5, 6, 7};
    g_autoptr(RefitPlanBuilder) builder = refit_plan_builder_new(problem, "by hand");
    guint gather = refit_plan_builder_add_stage(builder, "gather", 1);
    guint chain = refit_plan_builder_add_stage(builder, "broadcast", 4);
    RefitRegion regions[2] = {plan_case_region(rows[0]), plan_case_region(rows[1])};

    refit_plan_builder_split(builder, 0, regions, 2);
    refit_plan_builder_oblige(builder, 0, REFIT_LANDING_ASSEMBLY, roots, 2);
    refit_plan_builder_oblige(builder, 0, REFIT_LANDING_BUCKET, receivers, 4);
    plan_case_add(builder, 0, rows[0], 0, 1, gather, REFIT_LANDING_ASSEMBLY, NULL, 0);
    plan_case_add(builder, 0, "3:4,0:4", 0, 1, gather, REFIT_LANDING_ASSEMBLY, NULL, 0);
    guint dep = plan_case_add(builder, 0, "4:8,0:4", 1, 0, gather, REFIT_LANDING_ASSEMBLY, NULL, 0);
    for (guint section = 0; section < 2; section++) {
        guint batch = refit_plan_builder_add_batch(builder, 0, 1, FALSE);

        refit_plan_builder_assign_section(builder, 0, section, 0, batch);
        for (guint hop = 0; hop < 4; hop++)
            dep = plan_case_add(builder, 0, rows[section], hop == 0 ? 0 : 3 + hop, 4 + hop, chain,
                                REFIT_LANDING_BUCKET, &dep, hop == 0 && section == 0 ? 0 : 1);
        refit_region_clear(&regions[section]);
        dep = 2; /* what completes the second section on the root */
    }
    return plan_case_finish(builder);
}

/* The last transfer of the section. */
static RefitTransfer *last_of(const Copy *copy, guint section) {
    guint i = copy->plan.n_transfers;

    while (refit_plan_section_of(&copy->plan, &copy->transfers[i - 1]) != section)
        i--;
    return &copy->transfers[i - 1];
}

static const struct {
    const char *name, *message;
} section_damages[] = {
    {"class", "*its sections do not follow each other*"},
    {"bytes", "*its sections do not follow each other*"},
    {"order", "*its sections do not follow each other*"},
    {"overlap", "*its sections do not follow each other*"},
    {"gap", "*its sections do not follow each other*"},
    {"columns", "*its sections do not follow each other*"},
    {"offset", "*its sections do not follow each other*"},
    {"fewer", "*its sections do not follow each other*"},
    {"more", "1 sections belong to no tensor"},
    {"other-section", "*which does not bring this section of the tensor*"},
    {"two-sections", "*is in more than one section"},
    {"run", "*its class is not shared out among batches"},
    {"run-offset", "*1 of 1 members of its class are in no batch"},
    {"member", "*a member of its class moves twice or never"},
};

static void damage_section(Copy *copy, const char *name, const RefitRegion *other) {
    RefitSection swap = copy->sections[0];

    if (g_str_equal(name, "class"))
        copy->sections[0].class_index = 1;
    else if (g_str_equal(name, "bytes"))
        copy->sections[1].bytes--;
    else if (g_str_equal(name, "order")) {
        copy->sections[0] = copy->sections[1];
        copy->sections[1] = swap;
    } else if (g_str_equal(name, "overlap") || g_str_equal(name, "gap") ||
               g_str_equal(name, "columns")) {
        copy->sections[1].region = *other;
        copy->sections[1].bytes = refit_region_volume(other) * 2;
    } else if (g_str_equal(name, "offset"))
        copy->section_offsets[1] = 1;
    else if (g_str_equal(name, "fewer"))
        copy->plan.n_sections = 1;
    else if (g_str_equal(name, "more"))
        copy->plan.n_sections = 3;
    else if (g_str_equal(name, "other-section"))
        last_of(copy, 0)->region = last_of(copy, 1)->region;
    else if (g_str_equal(name, "two-sections"))
        copy->regions[last_of(copy, 0)->region] = *other;
    else if (g_str_equal(name, "run"))
        copy->runs[1].count = 0;
    else if (g_str_equal(name, "run-offset"))
        copy->run_offsets[1] = 0;
    else
        copy->order[1] = 1;
}

static void test_sections(void) {
    g_autoptr(RefitCase) refit_case = plan_case_worked();
    g_autoptr(RefitProblem) problem = plan_case_problem(refit_case);
    g_autoptr(RefitPlan) plan = sections_plan(problem);

    for (guint i = 0; i < G_N_ELEMENTS(section_damages); i++) {
        const char *name = section_damages[i].name;
        g_autoptr(GError) error = NULL;
        g_auto(RefitRegion) other = plan_case_region(g_str_equal(name, "gap")       ? "4:8,0:4"
                                                     : g_str_equal(name, "overlap") ? "2:8,0:4"
                                                     : g_str_equal(name, "columns") ? "3:8,0:3"
                                                                                    : "0:4,0:4");
        Copy copy;

        copy_plan(plan, &copy);
        g_assert_true(refit_plan_check(&copy.plan, &error));
        g_assert_no_error(error);
        damage_section(&copy, name, &other);
        g_test_message("%s", name);
        g_assert_false(refit_plan_check(&copy.plan, &error));
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
        if (!g_pattern_match_simple(section_damages[i].message, error->message))
            g_error("%s: %s", name, error->message);
        copy_clear(&copy);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/plan-damage/entries-that-disagree-are-refused", test_damage);
    g_test_add_func("/plan-damage/sections-that-do-not-fit-are-refused", test_sections);
    return g_test_run();
}
