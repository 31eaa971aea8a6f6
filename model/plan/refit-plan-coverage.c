/*
 * The coverage proof, second half: what arrives is what is needed, once, from who has it.
 *
 * Transfers are grouped by class and destination. Each claim about a group is one about sets of
 * regions: "these regions are disjoint and together equal those". All of them are decided by the
 * sizes of unions (refit-union.c): regions are disjoint when the size of their union is the sum of
 * their sizes, and inside a target when adding them does not enlarge it. A claim depends on nothing
 * but its regions, so what has been proved once (for one replica, one layer) is remembered and
 * recognised. Cost: sorting by class and destination, one look-up per group, one sweep per
 * distinct claim.
 */

#include "model/plan/refit-plan-coverage.h"

#include "model/base/refit-words.h"
#include "model/geometry/refit-piece-index.h"
#include "model/plan/refit-plan-private.h"

#include <stdlib.h>
#include <string.h>

typedef enum {
    CLAIM_NEED,
    CLAIM_BUCKET,
    CLAIM_ASSEMBLY,
    CLAIM_RELAY,
    CLAIM_HELD,
    CLAIM_SENT
} Claim;

typedef struct {
    const RefitPlan *plan;
    const RefitClass *klass;
    RefitPieceIndex *sources, *needs;   /* of `klass` */
    RefitRegion full;                   /* of `klass` */
    guint8 *duties;                     /* per rank: bit per landing owed; zero outside `klass` */
    gboolean *met;                      /* per rank: has been looked at; FALSE outside `klass` */
    GArray *arrivals[REFIT_N_LANDINGS]; /* region numbers, ascending, of one destination */
    guint *onward_offsets, *onward;     /* per transfer: those that depend on it */
    GHashTable *proved;                 /* keys of claims */
    GArray *key;                        /* the claim in work */
    GPtrArray *set;                     /* regions whose union is measured; borrowed */
} Proof;

static const char *tensor_name(const Proof *proof) {
    return refit_model_tensor(proof->plan->problem->refit_case->model, proof->klass->members[0])
        ->name;
}

/* ---- sets of regions ---- */

static guint64 union_of_set(const Proof *proof) {
    return refit_union_volume((const RefitRegion *const *)proof->set->pdata, proof->set->len);
}

static void set_add_numbers(const Proof *proof, const GArray *numbers) {
    for (guint i = 0; i < numbers->len; i++)
        g_ptr_array_add(proof->set,
                        (gpointer)&proof->plan->regions[g_array_index(numbers, guint, i)]);
}

static void set_add_pieces(const Proof *proof, const RefitHolding *holding,
                           const RefitPieceIndex *index, guint rank) {
    const guint *pieces;
    guint n = refit_piece_index_get(index, rank, &pieces);
    for (guint i = 0; i < n; i++)
        g_ptr_array_add(proof->set, &holding->pieces[pieces[i]].region);
}

/* ---- remembered claims ---- */

static void key_add(const Proof *proof, guint64 word) {
    g_array_append_val(proof->key, word);
}

static void key_begin(const Proof *proof, Claim claim) {
    g_array_set_size(proof->key, 1);
    key_add(proof, claim);
}

static void key_add_pieces(const Proof *proof, const RefitHolding *holding,
                           const RefitPieceIndex *index, guint rank) {
    const guint *pieces;
    guint n = refit_piece_index_get(index, rank, &pieces);
    key_add(proof, n);
    for (guint i = 0; i < n; i++)
        key_add(proof, (guintptr)&holding->pieces[pieces[i]].region);
}

static void key_add_numbers(const Proof *proof, const GArray *numbers) {
    key_add(proof, numbers->len);
    for (guint i = 0; i < numbers->len; i++)
        key_add(proof, g_array_index(numbers, guint, i));
}

static const guint64 *key_end(const Proof *proof) {
    g_array_index(proof->key, guint64, 0) = proof->key->len;
    return (const guint64 *)(gpointer)proof->key->data;
}

static gboolean key_is_proved(const Proof *proof) {
    return g_hash_table_contains(proof->proved, key_end(proof));
}

static void key_remember(const Proof *proof) {
    g_hash_table_add(proof->proved, refit_words_copy(key_end(proof)));
}

static int compare_numbers(gconstpointer a, gconstpointer b) {
    const guint *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* Equal sets must give equal keys. */
static void sort_numbers(GArray *numbers) {
    for (guint i = 1; i < numbers->len; i++)
        if (g_array_index(numbers, guint, i - 1) > g_array_index(numbers, guint, i)) {
            qsort(numbers->data, numbers->len, sizeof(guint), compare_numbers);
            return;
        }
}

/* ---- what a rank receives ---- */

/* Names the first thing wrong with arrivals that are not exactly `target` without `held`. */
static void explain(const Proof *proof, guint rank, RefitLanding landing, const GArray *arrivals,
                    guint64 target, guint64 held, GError **error) {
    const RefitRegion *regions = proof->plan->regions;
    guint64 sum = 0;
    for (guint i = 0; i < arrivals->len; i++) {
        const RefitRegion *region = &regions[g_array_index(arrivals, guint, i)];
        sum += refit_region_volume(region);
        for (guint j = 0; j < i; j++) {
            g_auto(RefitRegion) common =
                refit_region_intersect(region, &regions[g_array_index(arrivals, guint, j)]);
            if (!refit_region_is_empty(&common)) {
                g_autofree char *text = refit_region_to_string(&common);
                g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                            "tensor %s: region %s lands twice on rank %u (landing %s)",
                            tensor_name(proof), text, rank, refit_landing_name(landing));
                return;
            }
        }
    }
    guint64 owed = target - held;
    g_autofree char *text =
        arrivals->len == 0 ? refit_region_to_string(&proof->full)
                           : refit_region_to_string(&regions[g_array_index(arrivals, guint, 0)]);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "tensor %s: rank %u must receive %" G_GUINT64_FORMAT
                " elements (landing %s) but receives %" G_GUINT64_FORMAT "%s, in %u regions; %s %s",
                tensor_name(proof), rank, owed, refit_landing_name(landing), sum,
                sum == owed ? ", not all of them needed" : "", arrivals->len,
                arrivals->len == 0 ? "nothing arrives of" : "the first is", text);
}

/*
 * The arrivals are disjoint, none is already held, and with what is held they make the target.
 * HOME: the target is what the rank needs, nothing counts as held. BUCKET: the target is the whole
 * tensor. ASSEMBLY: the same, and what the rank holds from the start counts.
 */
static gboolean prove_arrivals(const Proof *proof, Claim claim, guint rank, RefitLanding landing,
                               const GArray *arrivals, GError **error) {
    const RefitClass *klass = proof->klass;
    key_begin(proof, claim);
    if (claim == CLAIM_NEED) {
        key_add_pieces(proof, klass->destination, proof->needs, rank);
    } else {
        key_add(proof, klass->n_dims);
        for (guint dim = 0; dim < klass->n_dims; dim++)
            key_add(proof, klass->shape[dim]);
        if (claim == CLAIM_ASSEMBLY)
            key_add_pieces(proof, klass->source, proof->sources, rank);
    }
    key_add_numbers(proof, arrivals);
    if (key_is_proved(proof))
        return TRUE;

    guint64 sum = 0;
    for (guint i = 0; i < arrivals->len; i++)
        sum += refit_region_volume(&proof->plan->regions[g_array_index(arrivals, guint, i)]);
    g_ptr_array_set_size(proof->set, 0);
    if (claim == CLAIM_ASSEMBLY)
        set_add_pieces(proof, klass->source, proof->sources, rank);
    guint64 held = union_of_set(proof);
    set_add_numbers(proof, arrivals);
    guint64 got = union_of_set(proof);
    g_ptr_array_set_size(proof->set, 0);
    if (claim == CLAIM_NEED)
        set_add_pieces(proof, klass->destination, proof->needs, rank);
    else
        g_ptr_array_add(proof->set, (gpointer)&proof->full);
    guint64 target = union_of_set(proof);
    set_add_numbers(proof, arrivals);
    if (got == held + sum && got == target && union_of_set(proof) == target) {
        key_remember(proof);
        return TRUE;
    }
    explain(proof, rank, landing, arrivals, target, held, error);
    return FALSE;
}

/* Landings in staging memory are disjoint. */
static gboolean prove_disjoint(const Proof *proof, guint rank, const GArray *arrivals,
                               GError **error) {
    if (arrivals->len < 2)
        return TRUE;
    key_begin(proof, CLAIM_RELAY);
    key_add_numbers(proof, arrivals);
    if (key_is_proved(proof))
        return TRUE;
    guint64 sum = 0;
    for (guint i = 0; i < arrivals->len; i++)
        sum += refit_region_volume(&proof->plan->regions[g_array_index(arrivals, guint, i)]);
    g_ptr_array_set_size(proof->set, 0);
    set_add_numbers(proof, arrivals);
    if (union_of_set(proof) == sum) {
        key_remember(proof);
        return TRUE;
    }
    explain(proof, rank, REFIT_LANDING_RELAY, arrivals, 0, 0, error);
    return FALSE;
}

static gboolean refuse_arrivals(const Proof *proof, guint rank, RefitLanding landing,
                                const GArray *arrivals, GError **error) {
    if (arrivals->len == 0)
        return TRUE;
    g_autofree char *text =
        refit_region_to_string(&proof->plan->regions[g_array_index(arrivals, guint, 0)]);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "tensor %s: region %s lands on rank %u (landing %s), which is not owed it",
                tensor_name(proof), text, rank, refit_landing_name(landing));
    return FALSE;
}

static gboolean check_rank(const Proof *proof, guint rank, GError **error) {
    GArray *const *arrivals = proof->arrivals;
    for (guint landing = 0; landing < REFIT_N_LANDINGS; landing++)
        sort_numbers(arrivals[landing]);
    proof->met[rank] = TRUE;
    const guint *pieces;
    gboolean needs = refit_piece_index_get(proof->needs, rank, &pieces) > 0;
    gboolean bucket = (proof->duties[rank] & 1u << REFIT_LANDING_BUCKET) != 0;
    gboolean assembly = (proof->duties[rank] & 1u << REFIT_LANDING_ASSEMBLY) != 0;
    const GArray *home = arrivals[REFIT_LANDING_HOME];
    /* A bucket holds the whole tensor, so the rank's need is met from it and from nowhere else. */
    return (needs && !bucket
                ? prove_arrivals(proof, CLAIM_NEED, rank, REFIT_LANDING_HOME, home, error)
                : refuse_arrivals(proof, rank, REFIT_LANDING_HOME, home, error)) &&
           (bucket ? prove_arrivals(proof, CLAIM_BUCKET, rank, REFIT_LANDING_BUCKET,
                                    arrivals[REFIT_LANDING_BUCKET], error)
                   : refuse_arrivals(proof, rank, REFIT_LANDING_BUCKET,
                                     arrivals[REFIT_LANDING_BUCKET], error)) &&
           (assembly ? prove_arrivals(proof, CLAIM_ASSEMBLY, rank, REFIT_LANDING_ASSEMBLY,
                                      arrivals[REFIT_LANDING_ASSEMBLY], error)
                     : refuse_arrivals(proof, rank, REFIT_LANDING_ASSEMBLY,
                                       arrivals[REFIT_LANDING_ASSEMBLY], error)) &&
           prove_disjoint(proof, rank, arrivals[REFIT_LANDING_RELAY], error);
}

/* ---- what a rank sends ---- */

/* TRUE when the parts of `region` in the regions of `set` and of `numbers` make up all of it. */
static gboolean covers(const Proof *proof, const RefitRegion *region, const GArray *numbers) {
    set_add_numbers(proof, numbers);
    g_autofree RefitRegion *parts = g_new(RefitRegion, MAX(proof->set->len, 1));
    guint n = proof->set->len;
    for (guint i = 0; i < n; i++) {
        parts[i] = refit_region_intersect(region, g_ptr_array_index(proof->set, i));
        g_ptr_array_index(proof->set, i) = &parts[i];
    }
    gboolean covered = union_of_set(proof) == refit_region_volume(region);
    for (guint i = 0; i < n; i++)
        refit_region_clear(&parts[i]);
    g_ptr_array_set_size(proof->set, 0);
    return covered;
}

/*
 * The transfer's region lies in the listed regions and, for CLAIM_HELD, in what the sender holds
 * from the start. Equal questions are answered once.
 */
static gboolean is_covered(const Proof *proof, const RefitTransfer *transfer, Claim claim,
                           GArray *regions) {
    sort_numbers(regions);
    key_begin(proof, claim);
    key_add(proof, transfer->region);
    if (claim == CLAIM_HELD)
        key_add_pieces(proof, proof->klass->source, proof->sources, transfer->src);
    key_add_numbers(proof, regions);
    if (key_is_proved(proof))
        return TRUE;
    g_ptr_array_set_size(proof->set, 0);
    if (claim == CLAIM_HELD)
        set_add_pieces(proof, proof->klass->source, proof->sources, transfer->src);
    if (!covers(proof, &proof->plan->regions[transfer->region], regions))
        return FALSE;
    key_remember(proof);
    return TRUE;
}

/* The sender holds the region from the start or has received it before. */
static gboolean check_sender(const Proof *proof, const RefitTransfer *transfer, GArray *received,
                             GError **error) {
    const RefitPlan *plan = proof->plan;
    g_array_set_size(received, 0);
    for (guint i = 0; i < transfer->n_deps; i++) {
        const RefitTransfer *dep = &plan->transfers[plan->deps[transfer->first_dep + i]];
        if (dep->region == transfer->region)
            return TRUE;
        g_array_append_val(received, dep->region);
    }
    if (is_covered(proof, transfer, CLAIM_HELD, received))
        return TRUE;
    g_autofree char *text = refit_region_to_string(&plan->regions[transfer->region]);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "tensor %s: rank %u sends region %s to rank %u but does not hold all of it by then",
                tensor_name(proof), transfer->src, text, transfer->dst);
    return FALSE;
}

/* All of a RELAY landing is sent on by the transfers that wait for it. */
static gboolean check_relay(const Proof *proof, guint index, GArray *sent, GError **error) {
    const RefitPlan *plan = proof->plan;
    const RefitTransfer *transfer = &plan->transfers[index];
    if (transfer->landing != REFIT_LANDING_RELAY)
        return TRUE;
    g_array_set_size(sent, 0);
    for (guint i = proof->onward_offsets[index]; i < proof->onward_offsets[index + 1]; i++) {
        guint region = plan->transfers[proof->onward[i]].region;
        if (region == transfer->region)
            return TRUE;
        g_array_append_val(sent, region);
    }
    if (is_covered(proof, transfer, CLAIM_SENT, sent))
        return TRUE;
    g_autofree char *text = refit_region_to_string(&plan->regions[transfer->region]);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "tensor %s: rank %u relays region %s from rank %u but does not send all of it on",
                tensor_name(proof), transfer->dst, text, transfer->src);
    return FALSE;
}

/* Which transfers depend on each transfer. */
static void find_onward(Proof *proof) {
    const RefitPlan *plan = proof->plan;
    guint *offsets = g_new0(guint, (gsize)plan->n_transfers + 2);
    for (guint i = 0; i < plan->n_transfers; i++)
        for (guint j = 0; j < plan->transfers[i].n_deps; j++)
            offsets[plan->deps[plan->transfers[i].first_dep + j] + 2]++;
    for (guint i = 0; i < plan->n_transfers; i++)
        offsets[i + 2] += offsets[i + 1];
    guint *onward = g_new(guint, MAX(offsets[plan->n_transfers + 1], 1));
    for (guint i = 0; i < plan->n_transfers; i++)
        for (guint j = 0; j < plan->transfers[i].n_deps; j++)
            onward[offsets[plan->deps[plan->transfers[i].first_dep + j] + 1]++] = i;
    proof->onward_offsets = offsets;
    proof->onward = onward;
}

/* ---- classes ---- */

static void clear_arrivals(const Proof *proof) {
    for (guint landing = 0; landing < REFIT_N_LANDINGS; landing++)
        g_array_set_size(proof->arrivals[landing], 0);
}

/* Ranks to which nothing arrived: right only when they hold already what they are owed. */
static gboolean check_idle(const Proof *proof, const guint *ranks, guint n, GError **error) {
    clear_arrivals(proof);
    for (guint i = 0; i < n; i++)
        if (!proof->met[ranks[i]] && !check_rank(proof, ranks[i], error))
            return FALSE;
    return TRUE;
}

/* Marks what the ranks are owed; FALSE at the first that is owed the same landing twice. */
static gboolean add_duties(const Proof *proof, const RefitObligation *obligation, GError **error) {
    const guint8 duty = (guint8)(1u << obligation->landing);
    for (guint i = 0; i < obligation->n_ranks; i++) {
        guint rank = obligation->ranks[i];
        if ((proof->duties[rank] & duty) != 0) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                        "tensor %s: rank %u is owed landing %s twice", tensor_name(proof), rank,
                        refit_landing_name(obligation->landing));
            return FALSE;
        }
        proof->duties[rank] |= duty;
    }
    return TRUE;
}

/* `transfers`: those of one class, grouped by destination. */
static gboolean check_class(const Proof *proof, const guint *transfers, guint n,
                            const RefitObligation *const *obligations, guint n_obligations,
                            GError **error) {
    const RefitPlan *plan = proof->plan;
    g_autoptr(GArray) scratch = g_array_new(FALSE, FALSE, sizeof(guint));
    gboolean good = TRUE;
    for (guint i = 0; good && i < n_obligations; i++)
        good = add_duties(proof, obligations[i], error);
    for (guint i = 0; good && i < n;) {
        guint rank = plan->transfers[transfers[i]].dst;
        clear_arrivals(proof);
        for (; good && i < n && plan->transfers[transfers[i]].dst == rank; i++) {
            const RefitTransfer *transfer = &plan->transfers[transfers[i]];
            g_array_append_val(proof->arrivals[transfer->landing], transfer->region);
            good = check_sender(proof, transfer, scratch, error) &&
                   check_relay(proof, transfers[i], scratch, error);
        }
        good = good && check_rank(proof, rank, error);
    }
    const RefitHolding *destination = proof->klass->destination;
    for (guint piece = 0; good && piece < destination->n_pieces; piece++)
        good = check_idle(proof, destination->pieces[piece].ranks,
                          destination->pieces[piece].n_ranks, error);
    for (guint i = 0; good && i < n_obligations; i++)
        good = check_idle(proof, obligations[i]->ranks, obligations[i]->n_ranks, error);

    for (guint i = 0; i < n; i++)
        proof->met[plan->transfers[transfers[i]].dst] = FALSE;
    for (guint piece = 0; piece < destination->n_pieces; piece++)
        for (guint i = 0; i < destination->pieces[piece].n_ranks; i++)
            proof->met[destination->pieces[piece].ranks[i]] = FALSE;
    for (guint i = 0; i < n_obligations; i++)
        for (guint rank = 0; rank < obligations[i]->n_ranks; rank++) {
            proof->duties[obligations[i]->ranks[rank]] = 0;
            proof->met[obligations[i]->ranks[rank]] = FALSE;
        }
    return good;
}

/* Transfer numbers in the order of class, then destination. Caller frees. */
static guint *group_transfers(const RefitPlan *plan) {
    gsize space = MAX(plan->n_transfers, 1);
    guint *order = g_new(guint, space);
    g_autofree guint *scratch = g_new(guint, space);
    g_autofree guint *keys = g_new(guint, space);
    for (guint i = 0; i < plan->n_transfers; i++) {
        order[i] = i;
        keys[i] = plan->transfers[i].dst;
    }
    refit_counting_sort(keys, plan->problem->n_ranks, order, scratch, plan->n_transfers);
    for (guint i = 0; i < plan->n_transfers; i++)
        keys[i] = plan->transfers[i].class_index;
    refit_counting_sort(keys, plan->problem->n_classes, order, scratch, plan->n_transfers);
    return order;
}

static int compare_obligations(gconstpointer a, gconstpointer b) {
    const RefitObligation *const *left = a, *const *right = b;
    return compare_numbers(&(*left)->class_index, &(*right)->class_index);
}

static gboolean check_classes(Proof *proof, GError **error) {
    const RefitPlan *plan = proof->plan;
    g_autofree guint *order = group_transfers(plan);
    g_autofree const RefitObligation **obligations =
        g_new(const RefitObligation *, MAX(plan->n_obligations, 1));
    for (guint i = 0; i < plan->n_obligations; i++)
        obligations[i] = &plan->obligations[i];
    qsort(obligations, plan->n_obligations, sizeof *obligations, compare_obligations);
    guint next = 0, next_obligation = 0;
    for (guint number = 0; number < plan->problem->n_classes; number++) {
        const RefitClass *klass = &plan->problem->classes[number];
        guint first = next, first_obligation = next_obligation;
        while (next < plan->n_transfers && plan->transfers[order[next]].class_index == number)
            next++;
        while (next_obligation < plan->n_obligations &&
               obligations[next_obligation]->class_index == number)
            next_obligation++;
        proof->klass = klass;
        refit_piece_index_load(proof->sources, klass->source);
        refit_piece_index_load(proof->needs, klass->destination);
        proof->full = refit_region_full(klass->n_dims, klass->shape);
        gboolean good =
            check_class(proof, order + first, next - first, obligations + first_obligation,
                        next_obligation - first_obligation, error);
        refit_region_clear(&proof->full);
        if (!good)
            return FALSE;
    }
    return TRUE;
}

gboolean refit_plan_check_coverage(const RefitPlan *plan, GError **error) {
    guint n_ranks = plan->problem->n_ranks;
    Proof proof = {
        .plan = plan,
        .sources = refit_piece_index_new(n_ranks),
        .needs = refit_piece_index_new(n_ranks),
        .duties = g_new0(guint8, MAX(n_ranks, 1)),
        .met = g_new0(gboolean, MAX(n_ranks, 1)),
        .proved = g_hash_table_new_full(refit_words_hash, refit_words_equal, g_free, NULL),
        .key = g_array_new(FALSE, FALSE, sizeof(guint64)),
        .set = g_ptr_array_new(),
    };
    for (guint landing = 0; landing < REFIT_N_LANDINGS; landing++)
        proof.arrivals[landing] = g_array_new(FALSE, FALSE, sizeof(guint));
    find_onward(&proof);
    gboolean good = check_classes(&proof, error);
    refit_piece_index_free(proof.sources);
    refit_piece_index_free(proof.needs);
    g_free(proof.duties);
    g_free(proof.met);
    g_hash_table_unref(proof.proved);
    g_array_unref(proof.key);
    g_ptr_array_unref(proof.set);
    for (guint landing = 0; landing < REFIT_N_LANDINGS; landing++)
        g_array_unref(proof.arrivals[landing]);
    g_free(proof.onward_offsets);
    g_free(proof.onward);
    return good;
}
