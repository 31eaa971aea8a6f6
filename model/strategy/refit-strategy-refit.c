/*
 * Strategy `refit`: every tensor shard to shard, the whole model at once.
 *
 *   network   each byte a domain needs enters it once; a part needed by k GPUs of the domain is cut
 *             into k stripes, so that each of the k NICs takes a k-th, whatever the shard borders
 *   relay     when source NICs would be busy longer than the bound, domains that need the same part
 *             help each other: g of them leave out g - 1 of g slices each and pass them round
 *   exchange  the k GPUs swap their stripes over NVLink (refit-planner-exchange.c)
 *
 *   three domains, one stripe:   A is sent to all, slice i only to domain i
 *
 *       source --A,S0--> d0   then, hop by hop,  d0 -S0-> d1 -S0-> d2
 *       source --A,S1--> d1                      d1 -S1-> d2 -S1-> d0
 *       source --A,S2--> d2                      d2 -S2-> d0 -S2-> d1
 *
 * so every pair of source and destination still moves the same share, and a schedule of pairwise
 * rounds keeps all NICs busy. Senders are chosen by bytes over the whole model: the holder that has
 * sent least so far. A first pass over the model finds what each source would send without relays,
 * and from it the share that relays must take over. The model is cut in batches over which the
 * three stages overlap; all pipeline stages send in all of them. Cost: one transfer per cell and
 * needer, g of them where relays help, plus one per pair of needers of a cell in one domain.
 *
 * That is the usual shape of its plans. Others are the same in one batch, with fewer messages; with
 * parts that are not cut into stripes, with fewer still; in chains instead of relays
 * (refit-planner-chains.c); and M2N's ring. All bring each byte into a domain once.
 */

#include "model/problem/refit-bound.h"
#include "model/strategy/refit-planner-private.h"

#include <string.h>

#define NOT_A_REGION G_MAXUINT
#define MAX_KNOWN 32 /* senders of a rank that are remembered */
/*
 * Sources busy for more than the first share of the bound get relays and are planned to the second:
 * where a relay and a source share a receiving NIC, the source is slowed down, and needs time left
 * to make up for it.
 */
#define OVERLOADED_SHARE 0.9
#define RELAYED_SOURCE_SHARE 0.7
/* NICs whose bytes differ by this share of the bound count as even. */
#define EVEN_SHARE 0.001
/* Batches are added until what follows the last one's network stage is this share of the bound. */
#define TAIL_SHARE 0.01
/* As many for relays: they slow down the network stage of the next batch, however short. */
#define RELAY_BATCHES 4

static guint least_sent(const RefitPlanner *self, const RefitCell *cell) {
    guint best = cell->holders[0];

    for (guint i = 1; i < cell->n_holders; i++)
        if (self->sent[cell->holders[i]] < self->sent[best])
            best = cell->holders[i];
    return best;
}

guint refit_planner_choose_sender(RefitPlanner *self, const RefitCell *cell, guint taker,
                                  guint64 bytes) {
    guint *known = self->known + (gsize)taker * MAX_KNOWN, *n_known = &self->n_known[taker];
    guint least = least_sent(self, cell), best = least;
    guint64 limit = self->sent[least] + MAX(bytes / 2, self->even_bytes);
    gboolean found = FALSE;

    for (guint i = 0; i < *n_known; i++)
        if (refit_ranks_contain(cell->holders, cell->n_holders, known[i]) &&
            self->sent[known[i]] < limit && (!found || self->sent[known[i]] < self->sent[best])) {
            best = known[i];
            found = TRUE;
        }
    if (!found && *n_known < MAX_KNOWN)
        known[(*n_known)++] = best;
    return best;
}

/* ---- stripes and slices ---- */

/* Near-equal stripes of a cell, at most `wanted`, less where that would cut a byte (1 cannot). */
static guint count_stripes(const RefitClass *klass, const RefitCell *cell, guint wanted) {
    guint n = wanted;

    if (refit_dtype_bits(klass->dtype) % 8 == 0)
        return n;
    for (; n > 1; n--) {
        gboolean cuts_byte = FALSE;

        for (guint i = 0; i < n && !cuts_byte; i++) {
            g_auto(RefitRegion) part =
                refit_region_stripe(&cell->region, n, refit_strategy_grain(klass), i);
            cuts_byte = refit_class_cuts_byte(klass, &part);
        }
        if (!cuts_byte)
            break;
    }
    return n;
}

static RefitPart new_part(const RefitPlanner *self, const RefitClass *klass,
                          const RefitRegion *region) {
    return (RefitPart){refit_plan_builder_region(self->builder, region),
                       refit_class_bytes(klass, refit_region_volume(region))};
}

/* The stripe with its cut dim replaced; takes ownership of `list`. */
static RefitPart cut_part(const RefitPlanner *self, const RefitClass *klass, const RefitCut *cut,
                          RefitIntervalList *list) {
    g_auto(RefitRegion) region = refit_region_copy(&cut->stripe);

    refit_interval_list_unref(region.dims[cut->dim]);
    region.dims[cut->dim] = list;
    return new_part(self, klass, &region);
}

RefitIntervalList *refit_planner_join_lists(const RefitIntervalList *front,
                                            const RefitIntervalList *back) {
    g_autofree RefitInterval *items = g_new(RefitInterval, (gsize)front->n + back->n);
    RefitIntervalList *both;

    memcpy(items, front->items, front->n * sizeof *items);
    for (guint i = 0; i < back->n; i++) {
        items[front->n + i] = back->items[i];
        items[front->n + i].at += front->extent;
    }
    both = refit_interval_list_new(items, front->n + back->n, NULL);
    g_assert(both != NULL); /* parts of one list cannot overlap */
    return both;
}

static RefitIntervalList *slice_list(const RefitCut *cut, guint index) {
    guint64 from = cut->extent - cut->slice * (cut->n_slices - index);

    return refit_interval_list_slice(cut->stripe.dims[cut->dim], from, from + cut->slice);
}

/* What a source sends to domain `index`: the part for all and the domain's slice. */
static RefitIntervalList *direct_list(const RefitCut *cut, guint index) {
    const RefitIntervalList *whole = cut->stripe.dims[cut->dim];
    g_autoptr(RefitIntervalList) all =
        refit_interval_list_slice(whole, 0, cut->extent - cut->slice * cut->n_slices);
    g_autoptr(RefitIntervalList) own = slice_list(cut, index);
    return refit_planner_join_lists(all, own);
}

/*
 * Slices for `n_domains` so that each leaves out `share` of the stripe. None when they would be
 * smaller than a stripe may be, or of a type whose bytes must not be cut: such a stripe is passed
 * on whole, from domain to domain.
 */
static void cut_for_relay(const RefitPlanner *self, const RefitClass *klass, RefitCut *cut,
                          guint n_domains, double share) {
    guint64 slice = 0;

    if (n_domains > 1 && share > 0 && cut->extent > 0) {
        guint64 grain = cut->dim + 1 == cut->stripe.n_dims ? refit_strategy_grain(klass) : 1;

        slice = MIN((guint64)(share * (double)cut->extent / (n_domains - 1)) + 1,
                    cut->extent / n_domains);
        if (cut->extent % grain == 0 && slice >= grain) /* or borders are nowhere aligned */
            slice = MIN(slice + grain / 2, cut->extent / n_domains) / grain * grain;
        if (cut->whole.bytes / cut->extent * slice < self->stripe_bytes)
            slice = 0;
    }
    if (cut->n_slices == n_domains && cut->slice == slice)
        return;
    cut->n_slices = n_domains;
    cut->slice = slice;
    for (guint i = 0; slice > 0 && i < n_domains; i++) {
        cut->direct[i] = cut_part(self, klass, cut, direct_list(cut, i));
        cut->slices[i] = cut_part(self, klass, cut, slice_list(cut, i));
    }
}

const RefitPart *refit_planner_whole_stripe(const RefitPlanner *self, RefitCut *cut) {
    if (cut->whole.region == NOT_A_REGION)
        cut->whole.region = refit_plan_builder_region(self->builder, &cut->stripe);
    return &cut->whole;
}

static void clear_cut(gpointer data) {
    refit_region_clear(&((RefitCut *)data)->stripe);
}

/* The current cell in `n` stripes. */
static RefitCut *cut_cell(RefitPlanner *self, const RefitClass *klass, const RefitCell *cell,
                          guint n) {
    g_array_set_size(self->cuts, 0);
    g_array_set_size(self->cuts, n);
    for (guint i = 0; i < n; i++) {
        RefitCut *cut = &g_array_index(self->cuts, RefitCut, i);

        *cut = (RefitCut){
            .stripe = refit_region_stripe(&cell->region, n, refit_strategy_grain(klass), i)};
        if (refit_region_is_empty(&cut->stripe))
            continue;
        cut->whole =
            (RefitPart){NOT_A_REGION, refit_class_bytes(klass, refit_region_volume(&cut->stripe))};
        for (guint d = 1; d < cut->stripe.n_dims; d++)
            if (cut->stripe.dims[d]->extent > cut->stripe.dims[cut->dim]->extent)
                cut->dim = d;
        if (cut->stripe.n_dims > 0 && refit_dtype_bits(klass->dtype) % 8 == 0)
            cut->extent = cut->stripe.dims[cut->dim]->extent;
    }
    return (RefitCut *)(gpointer)self->cuts->data;
}

/* ---- transfers ---- */

guint refit_planner_bring(RefitPlanner *self, guint class_index, const RefitPart *part,
                          guint sender, guint taker, const guint *dep) {
    guint64 bytes = part->bytes * self->problem->classes[class_index].n_members;

    self->sent[sender] += bytes;
    self->received[taker] += bytes;
    return refit_plan_builder_add(self->builder, class_index, part->region, sender, taker,
                                  dep != NULL ? self->relay_stage : self->network_stage,
                                  REFIT_LANDING_HOME, dep, dep != NULL ? 1 : 0);
}

/* Stripe `index` into the `n` domains of a group, the first of them arrival `first`. */
static void bring_stripe(RefitPlanner *self, guint class_index, const RefitCell *cell,
                         RefitCut *cut, guint index, guint first, guint n, double share) {
    const RefitArrival *group = &g_array_index(self->arrivals, RefitArrival, first);
    const guint *takers = (const guint *)(gpointer)self->takers->data;
    /* handles[i][h]: the transfer by which domain i got a slice in hop h; 0 from the source. */
    guint handles[REFIT_MAX_GROUP][REFIT_MAX_GROUP];
    guint n_members = self->problem->classes[class_index].n_members, n_hops;

    cut_for_relay(self, &self->problem->classes[class_index], cut, n, share);
    n_hops = cut->slice > 0 ? n : 1;
    for (guint i = 0; i < n; i++) {
        gboolean pass_on = cut->slice == 0 && i > 0;

        const RefitPart *part =
            cut->slice > 0 ? &cut->direct[i] : refit_planner_whole_stripe(self, cut);
        guint taker = takers[group[i].first_taker + index];
        guint sender =
            pass_on ? takers[group[i - 1].first_taker + index]
                    : refit_planner_choose_sender(self, cell, taker, part->bytes * n_members);

        handles[i][0] = refit_planner_bring(self, class_index, part, sender, taker,
                                            pass_on ? handles[i - 1] : NULL);
    }
    for (guint hop = 1; hop < n_hops; hop++) {
        for (guint i = 0; i < n; i++) {
            guint before = (i + n - 1) % n;

            handles[i][hop] = refit_planner_bring(
                self, class_index, &cut->slices[(i + n - hop) % n],
                takers[group[before].first_taker + index], takers[group[i].first_taker + index],
                &handles[before][hop - 1]);
        }
    }
    for (guint i = 0; i < n; i++) {
        RefitLanded *landed =
            &g_array_index(self->landed, RefitLanded, (first + i) * self->cuts->len + index);

        landed->n = n_hops;
        memcpy(landed->handles, handles[i], n_hops * sizeof *handles[i]);
    }
}

/* Puts the `n_takers` needers that have received least so far first; ties in rank order. */
static void sort_takers(const RefitPlanner *self, guint *ranks, guint n_ranks, guint n_takers) {
    for (guint i = 0; i < n_takers; i++) {
        guint least = i, taker;

        for (guint j = i + 1; j < n_ranks; j++)
            if (self->received[ranks[j]] < self->received[ranks[least]])
                least = j;
        taker = ranks[least];
        for (guint j = least; j > i; j--)
            ranks[j] = ranks[j - 1];
        ranks[i] = taker;
    }
}

/* Who brings in which stripe: the needers in turn, or the least loaded ones when they are more. */
static void choose_takers(RefitPlanner *self, RefitArrival *arrival, guint n_stripes) {
    guint *takers;

    arrival->first_taker = self->takers->len;
    g_array_append_vals(self->takers, arrival->ranks, arrival->n_ranks);
    takers = &g_array_index(self->takers, guint, arrival->first_taker);
    if (n_stripes < arrival->n_ranks)
        sort_takers(self, takers, arrival->n_ranks, n_stripes);
    g_array_set_size(self->takers, arrival->first_taker + n_stripes);
    takers = &g_array_index(self->takers, guint, arrival->first_taker);
    for (guint i = arrival->n_ranks; i < n_stripes; i++)
        takers[i] = takers[i - arrival->n_ranks];
}

/*
 * Lists the domains that must bring the cell in, starting with another one each `turn`, so that
 * no domain is always the one that groups leave over. Cells with the same holders take the same
 * turns, so that each holder serves the same domains again.
 */
static void list_arrivals(RefitPlanner *self, guint class_index, const RefitCell *cell, guint turn,
                          gboolean serve) {
    guint n;

    g_array_set_size(self->arrivals, 0);
    g_array_set_size(self->insiders, 0);
    g_array_set_size(self->takers, 0);
    g_array_set_size(self->inside,
                     cell->n_needers); /* stays where it is while arrivals refer to it */
    g_array_set_size(self->inside, 0);
    for (guint first = 0; first < cell->n_needers; first += n) {
        RefitArrival arrival = {.ranks = cell->needers + first};

        n = refit_domain_run(self->topology, cell->needers, cell->n_needers, first);
        arrival.n_ranks = n;
        arrival.n_inside = refit_domain_ranks(self->topology, cell->holders, cell->n_holders,
                                              arrival.ranks[0], &arrival.first_inside);
        if (arrival.n_inside == 0)
            g_array_append_val(self->arrivals, arrival);
        else if (serve)
            refit_planner_serve_inside(self, class_index, cell, &arrival);
    }
    if (self->arrivals->len == 0)
        return;
    turn %= self->arrivals->len;
    for (guint i = 0; i < turn; i++) {
        RefitArrival arrival = g_array_index(self->arrivals, RefitArrival, i);
        g_array_append_val(self->arrivals, arrival);
    }
    g_array_remove_range(self->arrivals, 0, turn);
}

/*
 * How many of the `left` domains form the next group: enough to take over `share`, in groups of
 * nearly equal size, so that none is left alone.
 */
static guint group_size(guint left, double share) {
    guint wanted = share < 1 ? (guint)MIN(1 / (1 - share) + 1, REFIT_MAX_GROUP) : REFIT_MAX_GROUP;
    guint n_groups = MAX(MAX(left / wanted, 1), (left + REFIT_MAX_GROUP - 1) / REFIT_MAX_GROUP);

    return share > 0 ? (left + n_groups - 1) / n_groups : 1;
}

/*
 * Stripes of a cell of `bytes` that up to `n` ranks of a domain need: one for each, unless they
 * would be smaller than stripes may be, or so few bytes that NICs come out even without.
 */
static guint wanted_stripes(const RefitPlanner *self, const RefitClass *klass, guint64 bytes,
                            guint n) {
    guint64 least = MAX(self->stripe_bytes * klass->n_members, self->even_bytes);
    guint64 wanted = MAX(bytes * klass->n_members / MAX(least, 1), 1);
    guint levels = 0;

    if (!self->stripes)
        return 1;
    if (wanted >= n || n <= REFIT_MAX_SWAP)
        return (guint)MIN(wanted, n);
    while (1u << levels < n)
        levels++;
    return (guint)MIN(wanted, levels); /* a tree for each; more would cost more than `n` do */
}

static void add_cell(RefitPlanner *self, guint class_index, const RefitCell *cell, guint number) {
    const RefitClass *klass = &self->problem->classes[class_index];
    guint64 bytes = refit_class_bytes(klass, cell->volume);
    guint n, n_stripes, n_network, most_ranks = 1;
    RefitCut *cuts;

    list_arrivals(self, class_index, cell, cell->holders[0] + number, TRUE);
    n_network = self->arrivals->len;
    g_array_append_vals(self->arrivals, self->insiders->data, self->insiders->len);
    for (guint a = 0; a < self->arrivals->len; a++)
        most_ranks = MAX(most_ranks, g_array_index(self->arrivals, RefitArrival, a).n_ranks);
    n_stripes = count_stripes(klass, cell, wanted_stripes(self, klass, bytes, most_ranks));
    for (guint a = 0; a < self->arrivals->len; a++)
        choose_takers(self, &g_array_index(self->arrivals, RefitArrival, a), n_stripes);
    cuts = cut_cell(self, klass, cell, n_stripes);
    g_array_set_size(self->landed, 0);
    g_array_set_size(self->landed, self->arrivals->len * n_stripes);
    for (guint a = n_network; a < self->arrivals->len; a++)
        refit_planner_bring_stripes_inside(self, class_index, cell, cuts, a);
    for (guint i = 0; i < n_stripes && self->chains && n_network > 0; i++)
        if (!refit_region_is_empty(&cuts[i].stripe))
            refit_planner_chain_stripe(self, class_index, cell, &cuts[i], i, n_network);
    for (guint a = 0; a < n_network && !self->chains; a += n) {
        double share = self->relayed[least_sent(self, cell)];

        n = group_size(n_network - a, share);
        for (guint i = 0; i < n_stripes; i++)
            if (!refit_region_is_empty(&cuts[i].stripe))
                bring_stripe(self, class_index, cell, &cuts[i], i, a, n, share);
    }
    refit_planner_exchange(self, class_index, cell);
}

/* ---- whole model ---- */

/* First pass: what each source rank would send if every domain were served by a holder. */
static void find_relayed_shares(RefitPlanner *self, double quota_bytes) {
    g_autofree gboolean *shared = g_new0(gboolean, self->problem->n_ranks); /* could be relayed */

    for (guint c = 0; c < self->problem->n_classes; c++) {
        const RefitClass *klass = &self->problem->classes[c];

        for (guint i = 0; i < klass->cells->n_cells; i++) {
            const RefitCell *cell = &klass->cells->cells[i];
            guint64 bytes = refit_class_bytes(klass, cell->volume) * klass->n_members;

            list_arrivals(self, c, cell, 0, FALSE);
            for (guint a = 0; a < self->arrivals->len; a++) {
                guint sender = least_sent(self, cell);
                self->sent[sender] += bytes;
                shared[sender] = shared[sender] || self->arrivals->len > 1;
            }
        }
    }
    for (guint rank = 0; rank < self->problem->n_ranks; rank++) {
        double sent = (double)self->sent[rank];

        self->relayed[rank] = sent > OVERLOADED_SHARE * quota_bytes && shared[rank]
                                  ? 1 - RELAYED_SOURCE_SHARE * quota_bytes / sent
                                  : 0;
        self->sent[rank] = 0;
    }
}

/*
 * What a rank receives by relay or over NVLink comes after its network stage, and overlaps with
 * that of the next batch only: the more of it, the more batches. Each batch costs messages.
 */
static guint count_batches(const RefitPlanner *self, double bound_s) {
    const RefitCase *refit_case = self->problem->refit_case;
    g_autofree guint64 *exchanged = g_new0(guint64, self->problem->n_ranks);
    double most_relayed = 0, tail_s = 0, wanted, most_batches;

    for (guint rank = 0; rank < self->problem->n_ranks; rank++)
        most_relayed = MAX(most_relayed, self->relayed[rank]);
    for (guint c = 0; c < self->problem->n_classes; c++) {
        const RefitClass *klass = &self->problem->classes[c];

        for (guint i = 0; i < klass->cells->n_cells; i++) {
            const RefitCell *cell = &klass->cells->cells[i];
            guint64 bytes = refit_class_bytes(klass, cell->volume) * klass->n_members;
            guint n;

            for (guint first = 0; first < cell->n_needers; first += n) {
                n = refit_domain_run(self->topology, cell->needers, cell->n_needers, first);
                for (guint r = first; r < first + n; r++)
                    exchanged[cell->needers[r]] += bytes / n * (n - 1);
            }
        }
    }
    for (guint rank = 0; rank < self->problem->n_ranks; rank++)
        tail_s = MAX(tail_s, (double)exchanged[rank] / self->topology->nvlink_bandwidth.value);
    wanted =
        MAX(tail_s / (TAIL_SHARE * bound_s), MIN(most_relayed / TAIL_SHARE, RELAY_BATCHES - 1));
    /* No batch without a stripe for every rank that receives. */
    most_batches =
        (double)self->problem->needed_bytes / self->problem->n_ranks / (double)self->stripe_bytes;
    return (guint)CLAMP(MIN(wanted + 1, most_batches), 1, refit_case->profile->batches);
}

/* NVLink domains whose ranks take part. */
static guint count_domains(const RefitPlanner *self) {
    const guint *ranks = (const guint *)(gpointer)self->everyone->data;
    guint n_domains = 0;

    for (guint first = 0; first < self->everyone->len; n_domains++)
        first += refit_domain_run(self->topology, ranks, self->everyone->len, first);
    return n_domains;
}

static gboolean build_with(RefitPlanBuilder *builder, const RefitProblem *problem,
                           guint most_batches, gboolean stripes, gboolean chains, GError **error) {
    const RefitCase *refit_case = problem->refit_case;
    g_autofree guint64 *sent = g_new0(guint64, problem->n_ranks);
    g_autofree guint64 *received = g_new0(guint64, problem->n_ranks);
    g_autofree guint64 *sent_inside = g_new0(guint64, problem->n_ranks);
    g_autofree double *relayed = g_new0(double, problem->n_ranks);
    g_autofree guint *known = g_new(guint, (gsize)problem->n_ranks * MAX_KNOWN);
    g_autofree guint *n_known = g_new0(guint, problem->n_ranks);
    g_autoptr(GArray) arrivals = g_array_new(FALSE, FALSE, sizeof(RefitArrival));
    g_autoptr(GArray) insiders = g_array_new(FALSE, FALSE, sizeof(RefitArrival));
    g_autoptr(GArray) everyone = refit_ranks_of_both_sides(problem);
    g_autoptr(GArray) inside = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autoptr(GArray) takers = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autoptr(GArray) cuts = g_array_new(FALSE, TRUE, sizeof(RefitCut));
    g_autoptr(GArray) landed = g_array_new(FALSE, TRUE, sizeof(RefitLanded));
    RefitPlanner self = {
        .builder = builder,
        .problem = problem,
        .topology = refit_case->topology,
        .stripes = stripes,
        .chains = chains,
        .sent = sent,
        .received = received,
        .sent_inside = sent_inside,
        .relayed = relayed,
        .known = known,
        .n_known = n_known,
        .stripe_bytes = (guint64)refit_case->profile->stripe_bytes.value,
        .arrivals = arrivals,
        .insiders = insiders,
        .everyone = everyone,
        .inside = inside,
        .takers = takers,
        .cuts = cuts,
        .landed = landed,
    };
    double quota_bytes;
    guint n_batches;
    RefitBound bound;

    g_array_set_clear_func(cuts, clear_cut);
    if (!refit_bound_compute(problem, &bound, error))
        return FALSE;
    quota_bytes = bound.time_s * refit_case->topology->nic_bandwidth.value;
    self.even_bytes = (guint64)(EVEN_SHARE * quota_bytes);
    find_relayed_shares(&self, quota_bytes);
    n_batches = MIN(count_batches(&self, bound.time_s), most_batches);
    if (chains) {
        guint64 per_batch = (guint64)(quota_bytes / n_batches);

        self.network_stage = self.relay_stage = refit_plan_builder_add_stage(
            builder, "chain",
            refit_chain_slices(problem, per_batch, per_batch, count_domains(&self)));
    } else {
        self.network_stage = refit_plan_builder_add_stage(builder, "network", 1);
        self.relay_stage = refit_plan_builder_add_stage(builder, "relay", 1);
        refit_plan_builder_set_track(builder, self.relay_stage, 1);
    }
    self.exchange_stage = refit_plan_builder_add_stage(builder, "exchange", 1);
    refit_batches_spread(builder, problem, n_batches);
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitCells *cells = problem->classes[c].cells;

        for (guint i = 0; i < cells->n_cells; i++)
            add_cell(&self, c, &cells->cells[i], i);
    }
    refit_plan_builder_add_logical_bytes(builder, problem->weight_bytes);
    return TRUE;
}

static gboolean build(RefitPlanBuilder *builder, const RefitProblem *problem, GError **error) {
    return build_with(builder, problem, G_MAXUINT, TRUE, FALSE, error);
}

static gboolean build_at_once(RefitPlanBuilder *builder, const RefitProblem *problem,
                              GError **error) {
    return build_with(builder, problem, 1, TRUE, FALSE, error);
}

static gboolean build_whole(RefitPlanBuilder *builder, const RefitProblem *problem,
                            GError **error) {
    return build_with(builder, problem, 1, FALSE, FALSE, error);
}

static gboolean build_chains(RefitPlanBuilder *builder, const RefitProblem *problem,
                             GError **error) {
    return build_with(builder, problem, G_MAXUINT, TRUE, TRUE, error);
}

static gboolean build_ring(RefitPlanBuilder *builder, const RefitProblem *problem, GError **error) {
    return refit_strategy_ring.build(builder, problem, error);
}

static const RefitShape shapes[] = {
    {"at once", build_at_once},
    {"whole parts at once", build_whole},
    {"chains", build_chains},
    {"ring", build_ring},
    {NULL, NULL},
};

const RefitStrategy refit_strategy_refit = {
    .name = "refit",
    .summary = "each byte into a domain once, striped over its NICs, replicas finished over NVLink",
    .build = build,
    .shapes = shapes,
};
