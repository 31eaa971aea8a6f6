/*
 * The coverage proof, first half: everything about a plan that needs no geometry. Indices in
 * range, order, pairs, dependencies, batches, messages, link classes and accounts are recomputed
 * from the transfers and compared. Only a plan that passes may be looked at by the second half
 * (refit-plan-coverage.c), which trusts its indices. Cost: linear in transfers and messages.
 *
 * There is no cycle because every dependency is earlier in the order of (stage, offset); that is
 * also why no rank can wait for a message of a later step.
 */

#include "model/plan/refit-plan-coverage.h"
#include "model/plan/refit-plan-private.h"

#include <string.h>

#define FAIL(error, ...)                                                                           \
    (g_set_error((error), REFIT_ERROR, REFIT_ERROR_COVERAGE, __VA_ARGS__), FALSE)

static const char *tensor_name(const RefitPlan *plan, guint class_index) {
    const RefitProblem *problem = plan->problem;
    return refit_model_tensor(problem->refit_case->model, problem->classes[class_index].members[0])
        ->name;
}

/* ---- stages and batches ---- */

static gboolean check_counts(const RefitPlan *plan, GError **error) {
    for (guint i = 0; i < plan->n_stages; i++)
        if (plan->stages[i].slices == 0 || plan->stages[i].track >= plan->n_stages)
            return FAIL(error, "stage %s: %u slices on track %u of %u", plan->stages[i].name,
                        plan->stages[i].slices, plan->stages[i].track, plan->n_stages);
    for (guint i = 0; i < plan->n_batches; i++)
        if (plan->batches[i].lane >= plan->n_lanes)
            return FAIL(error, "batch %u: lane %u of %u", i, plan->batches[i].lane, plan->n_lanes);
    return TRUE;
}

/* ---- transfers ---- */

static gboolean check_region(const RefitPlan *plan, const RefitTransfer *transfer, GError **error) {
    const RefitClass *klass = &plan->problem->classes[transfer->class_index];
    const RefitRegion *region = &plan->regions[transfer->region];
    gboolean inside = region->n_dims == klass->n_dims;
    for (guint dim = 0; inside && dim < region->n_dims; dim++) {
        const RefitIntervalList *list = region->dims[dim];
        inside = list->n > 0 && list->items[list->n - 1].hi <= klass->shape[dim];
    }
    if (inside && !refit_class_cuts_byte(klass, region))
        return plan->n_sections == plan->problem->n_classes || /* no class is split */
               refit_region_contains(&plan->sections[refit_plan_section_of(plan, transfer)].region,
                                     region) ||
               FAIL(error, "tensor %s: what rank %u sends rank %u is in more than one section",
                    tensor_name(plan, transfer->class_index), transfer->src, transfer->dst);
    g_autofree char *text = refit_region_to_string(region);
    return FAIL(error, "tensor %s: rank %u sends rank %u region %s, which %s",
                tensor_name(plan, transfer->class_index), transfer->src, transfer->dst, text,
                inside ? "does not start and end on whole bytes"
                       : "is empty or not inside the tensor");
}

static gboolean check_deps(const RefitPlan *plan, guint index, GError **error) {
    const RefitTransfer *transfer = &plan->transfers[index];
    if (transfer->first_dep > plan->n_deps || transfer->n_deps > plan->n_deps - transfer->first_dep)
        return FAIL(error, "transfer %u: its dependencies lie outside the plan", index);
    for (guint i = 0; i < transfer->n_deps; i++) {
        guint number = plan->deps[transfer->first_dep + i];
        if (number >= plan->n_transfers)
            return FAIL(error, "transfer %u: depends on transfer %u, but there are %u", index,
                        number, plan->n_transfers);
        const RefitTransfer *dep = &plan->transfers[number];
        if (dep->class_index != transfer->class_index || dep->dst != transfer->src ||
            refit_plan_section_of(plan, dep) != refit_plan_section_of(plan, transfer))
            return FAIL(error,
                        "tensor %s: rank %u sends to rank %u after transfer %u, which does not "
                        "bring this section of the tensor to rank %u",
                        tensor_name(plan, transfer->class_index), transfer->src, transfer->dst,
                        number, transfer->src);
        if (dep->stage == transfer->stage && plan->stages[dep->stage].slices > 1 &&
            dep->region != transfer->region)
            return FAIL(error,
                        "tensor %s: rank %u passes on another region than transfer %u brings it "
                        "in stage %s, whose slices would not match",
                        tensor_name(plan, transfer->class_index), transfer->src, number,
                        plan->stages[transfer->stage].name);
        if (dep->stage > transfer->stage ||
            (dep->stage == transfer->stage &&
             plan->pairs[dep->pair].offset >= plan->pairs[transfer->pair].offset))
            return FAIL(error,
                        "tensor %s: rank %u sends to rank %u in stage %s after transfer %u, which "
                        "is not earlier",
                        tensor_name(plan, transfer->class_index), transfer->src, transfer->dst,
                        plan->stages[transfer->stage].name, number);
    }
    return TRUE;
}

static gboolean check_transfer(const RefitPlan *plan, guint index, GError **error) {
    const RefitProblem *problem = plan->problem;
    const RefitTransfer *transfer = &plan->transfers[index];
    if (transfer->class_index >= problem->n_classes || transfer->region >= plan->n_regions ||
        transfer->src >= problem->n_ranks || transfer->dst >= problem->n_ranks ||
        transfer->stage >= plan->n_stages || transfer->landing >= REFIT_N_LANDINGS ||
        transfer->pair >= plan->n_pairs)
        return FAIL(error, "transfer %u: an index lies outside the plan", index);
    if (transfer->link !=
        refit_plan_link(problem->refit_case->topology, transfer->src, transfer->dst))
        return FAIL(error, "tensor %s: rank %u to rank %u is not a link of the stated class",
                    tensor_name(plan, transfer->class_index), transfer->src, transfer->dst);
    return check_region(plan, transfer, error);
}

static int compare_pairs(const RefitPair *a, const RefitPair *b) {
    const guint left[] = {a->stage, a->offset, a->src, a->dst};
    const guint right[] = {b->stage, b->offset, b->src, b->dst};
    for (guint i = 0; i < G_N_ELEMENTS(left); i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

/* Pairs ascend and share the transfers out among them, without a gap. */
static gboolean check_pairs(const RefitPlan *plan, GError **error) {
    guint next = 0;
    for (guint number = 0; number < plan->n_pairs; number++) {
        const RefitPair *pair = &plan->pairs[number];
        if (pair->first_transfer != next || pair->n_transfers == 0 ||
            pair->n_transfers > plan->n_transfers - next)
            return FAIL(error, "pair %u: does not continue the transfers of the one before",
                        number);
        if (number > 0 && compare_pairs(pair - 1, pair) >= 0)
            return FAIL(error, "pair %u: not in the order of stage, offset, source, destination",
                        number);
        next += pair->n_transfers;
        for (guint i = pair->first_transfer; i < next; i++) {
            const RefitTransfer *transfer = &plan->transfers[i];
            if (transfer->pair != number || transfer->stage != pair->stage ||
                transfer->src != pair->src || transfer->dst != pair->dst ||
                transfer->link != pair->link)
                return FAIL(error, "pair %u: transfer %u does not belong to it", number, i);
        }
        if (pair->stage >= plan->n_stages || pair->offset >= plan->stages[pair->stage].n_offsets)
            return FAIL(error, "pair %u: its stage has no offset %u", number, pair->offset);
    }
    if (next != plan->n_transfers)
        return FAIL(error, "%u transfers belong to no pair", plan->n_transfers - next);
    return TRUE;
}

/* ---- members ---- */

/* `seen`: of all members; FALSE before and, when they are right, after. */
static gboolean check_order(const RefitPlan *plan, guint section, gboolean *seen) {
    guint n = plan->problem->classes[plan->sections[section].class_index].n_members;
    const guint *order = plan->member_order + plan->member_offsets[section];
    for (guint i = 0; i < n; i++) {
        if (order[i] >= n || seen[order[i]])
            return FALSE;
        seen[order[i]] = TRUE;
    }
    memset(seen, 0, n * sizeof *seen);
    return TRUE;
}

static gboolean check_members(const RefitPlan *plan, GError **error) {
    guint at = 0, most = 1;
    for (guint i = 0; i < plan->problem->n_classes; i++)
        most = MAX(most, plan->problem->classes[i].n_members);
    g_autofree gboolean *seen = g_new0(gboolean, most);
    for (guint number = 0; number < plan->n_sections; number++) {
        guint class_index = plan->sections[number].class_index;
        guint n = plan->problem->classes[class_index].n_members, next = 0;
        const char *name = tensor_name(plan, class_index);
        if (plan->run_offsets[number] != at || plan->run_offsets[number + 1] < at ||
            plan->member_offsets[number + 1] - plan->member_offsets[number] != n)
            return FAIL(error, "tensor %s: its batches are not listed", name);
        for (; at < plan->run_offsets[number + 1]; at++) {
            const RefitBatchRun *run = &plan->batch_runs[at];
            if (run->first != next || run->count == 0 || run->count > n - next ||
                run->batch >= plan->n_batches ||
                (next > 0 && plan->batch_runs[at - 1].batch >= run->batch))
                return FAIL(error, "tensor %s: its class is not shared out among batches", name);
            next += run->count;
        }
        if (!check_order(plan, number, seen))
            return FAIL(error, "tensor %s: a member of its class moves twice or never", name);
        if (next != n)
            return FAIL(error, "tensor %s: %u of %u members of its class are in no batch", name,
                        n - next, n);
    }
    return TRUE;
}

/* ---- messages ---- */

/* Steps ascend with (batch, stage, offset), and inside a step with (src, dst). */
static gboolean check_message_order(const RefitPlan *plan, GError **error) {
    for (guint64 i = 0; i < plan->n_messages; i++) {
        const RefitMessage *message = &plan->messages[i];
        if (message->pair >= plan->n_pairs || message->batch >= plan->n_batches ||
            message->step >= plan->n_steps)
            return FAIL(error, "message %" G_GUINT64_FORMAT ": an index lies outside the plan", i);
        if (i == 0)
            continue;
        const RefitMessage *last = message - 1;
        const RefitPair *pair = &plan->pairs[message->pair], *before = &plan->pairs[last->pair];
        gboolean same_place = last->batch == message->batch && before->stage == pair->stage &&
                              before->offset == pair->offset;
        gboolean ordered = same_place ? last->step == message->step : last->step < message->step;
        if (last->batch == message->batch)
            ordered &= last->pair < message->pair;
        else
            ordered &= last->batch < message->batch;
        if (!ordered)
            return FAIL(error,
                        "step %u: rank %u to rank %u is not in the order of batch, stage and "
                        "offset, or a second message of this pair",
                        message->step, pair->src, pair->dst);
    }
    return TRUE;
}

static gboolean check_operations(const RefitPlan *plan, GError **error) {
    guint n_ranks = plan->problem->n_ranks;
    g_autofree guint *operations = g_new0(guint, MAX(n_ranks, 1));
    guint64 first = 0; /* of the current step */
    for (guint64 i = 0; i < plan->n_messages; i++) {
        for (; plan->messages[first].step != plan->messages[i].step; first++) {
            const RefitPair *done = &plan->pairs[plan->messages[first].pair];
            operations[done->src] = operations[done->dst] = 0;
        }
        const RefitPair *pair = &plan->pairs[plan->messages[i].pair];
        operations[pair->src]++;
        if (pair->src != pair->dst)
            operations[pair->dst]++;
        if (MAX(operations[pair->src], operations[pair->dst]) > REFIT_STEP_OPERATIONS)
            return FAIL(error, "step %u: rank %u or %u takes part in more than %d messages",
                        plan->messages[i].step, pair->src, pair->dst, REFIT_STEP_OPERATIONS);
    }
    return TRUE;
}

/* Bytes and tensors that pair `number` moves, added per batch. */
static void expect_bytes(const RefitPlan *plan, const guint64 *volumes, guint number,
                         guint64 *bytes, guint *tensors) {
    const RefitPair *pair = &plan->pairs[number];
    guint end = pair->first_transfer + pair->n_transfers;
    for (guint i = pair->first_transfer; i < end;) {
        guint section = refit_plan_section_of(plan, &plan->transfers[i]);
        guint64 sum = 0;
        guint n = 0;
        for (; i < end && refit_plan_section_of(plan, &plan->transfers[i]) == section; i++, n++)
            sum += refit_class_bytes(&plan->problem->classes[plan->sections[section].class_index],
                                     volumes[plan->transfers[i].region]);
        for (guint run = plan->run_offsets[section]; run < plan->run_offsets[section + 1]; run++) {
            bytes[plan->batch_runs[run].batch] += sum * plan->batch_runs[run].count;
            tensors[plan->batch_runs[run].batch] += n * plan->batch_runs[run].count;
        }
    }
}

/* Messages carry what the transfers of their pair say, and none is missing. */
static gboolean check_message_bytes(const RefitPlan *plan, GError **error) {
    g_autofree guint64 *volumes = g_new(guint64, MAX(plan->n_regions, 1));
    for (guint i = 0; i < plan->n_regions; i++)
        volumes[i] = refit_region_volume(&plan->regions[i]);
    g_autofree guint64 *ends = g_new0(guint64, (gsize)plan->n_pairs + 1);
    g_autofree guint64 *of_pair = g_new(guint64, MAX(plan->n_messages, 1));
    for (guint64 i = 0; i < plan->n_messages; i++)
        ends[plan->messages[i].pair + 1]++;
    for (guint number = 0; number < plan->n_pairs; number++)
        ends[number + 1] += ends[number];
    for (guint64 i = 0; i < plan->n_messages; i++)
        of_pair[ends[plan->messages[i].pair]++] = i;

    g_autofree guint64 *bytes = g_new0(guint64, MAX(plan->n_batches, 1));
    g_autofree guint *tensors = g_new0(guint, MAX(plan->n_batches, 1));
    guint64 next = 0;
    for (guint number = 0; number < plan->n_pairs; number++) {
        const RefitPair *pair = &plan->pairs[number];
        expect_bytes(plan, volumes, number, bytes, tensors);
        for (; next < ends[number]; next++) {
            const RefitMessage *message = &plan->messages[of_pair[next]];
            if (message->bytes == 0 || message->bytes != bytes[message->batch] ||
                message->tensors != tensors[message->batch])
                return FAIL(error,
                            "step %u: the message from rank %u to rank %u states %" G_GUINT64_FORMAT
                            " bytes of %u tensors, its transfers %" G_GUINT64_FORMAT " of %u",
                            message->step, pair->src, pair->dst, message->bytes, message->tensors,
                            bytes[message->batch], tensors[message->batch]);
            bytes[message->batch] = 0;
            tensors[message->batch] = 0;
        }
        for (guint i = pair->first_transfer; i < pair->first_transfer + pair->n_transfers; i++) {
            guint section = refit_plan_section_of(plan, &plan->transfers[i]);
            for (guint run = plan->run_offsets[section]; run < plan->run_offsets[section + 1];
                 run++)
                if (bytes[plan->batch_runs[run].batch] != 0)
                    return FAIL(error,
                                "tensor %s: no message moves what rank %u sends to rank %u in "
                                "batch %u",
                                tensor_name(plan, plan->transfers[i].class_index), pair->src,
                                pair->dst, plan->batch_runs[run].batch);
        }
    }
    return TRUE;
}

/* ---- accounts ---- */

static gboolean check_accounts(const RefitPlan *plan, GError **error) {
    guint n_ranks = plan->problem->n_ranks;
    g_autofree RefitRankAccount *sums = g_new0(RefitRankAccount, MAX(n_ranks, 1));
    guint64 links[REFIT_N_LINKS] = {0};
    for (guint64 i = 0; i < plan->n_messages; i++) {
        const RefitMessage *message = &plan->messages[i];
        const RefitPair *pair = &plan->pairs[message->pair];
        sums[pair->src].out[pair->link] += message->bytes;
        sums[pair->dst].in[pair->link] += message->bytes;
        links[pair->link] += message->bytes;
        sums[pair->src].messages_out += pair->link != REFIT_LINK_LOCAL;
        sums[pair->dst].messages_in += pair->link != REFIT_LINK_LOCAL;
    }
    for (guint rank = 0; rank < n_ranks; rank++)
        if (memcmp(&sums[rank], &plan->accounts[rank], sizeof sums[rank]) != 0)
            return FAIL(error, "rank %u: its account is not the sum of its messages", rank);
    if (memcmp(links, plan->link_bytes, sizeof links) != 0)
        return FAIL(error, "the totals per link class are not the sums of the messages");
    return TRUE;
}

static gboolean check_obligations(const RefitPlan *plan, GError **error) {
    for (guint i = 0; i < plan->n_obligations; i++) {
        const RefitObligation *obligation = &plan->obligations[i];
        gboolean valid = obligation->class_index < plan->problem->n_classes &&
                         (obligation->landing == REFIT_LANDING_ASSEMBLY ||
                          obligation->landing == REFIT_LANDING_BUCKET);
        for (guint rank = 0; valid && rank < obligation->n_ranks; rank++)
            valid = obligation->ranks[rank] < plan->problem->n_ranks &&
                    (rank == 0 || obligation->ranks[rank - 1] < obligation->ranks[rank]);
        if (!valid)
            return FAIL(error,
                        "obligation %u: an index or landing lies outside the plan, or its ranks do "
                        "not ascend",
                        i);
    }
    return TRUE;
}

gboolean refit_plan_check(const RefitPlan *plan, GError **error) {
    g_return_val_if_fail(plan != NULL, FALSE);
    if (!check_counts(plan, error) || !refit_plan_check_sections(plan, error))
        return FALSE;
    for (guint i = 0; i < plan->n_transfers; i++)
        if (!check_transfer(plan, i, error))
            return FALSE;
    if (!check_pairs(plan, error))
        return FALSE;
    for (guint i = 0; i < plan->n_transfers; i++)
        if (!check_deps(plan, i, error))
            return FALSE;
    return check_members(plan, error) && check_message_order(plan, error) &&
           check_operations(plan, error) && check_message_bytes(plan, error) &&
           check_accounts(plan, error) && check_obligations(plan, error) &&
           refit_plan_check_coverage(plan, error);
}
