/*
 * Strategy `refit`: every tensor shard to shard, the whole model at once.
 *
 *   network   each byte a domain needs enters it once; a part needed by k GPUs of the domain is cut
 *             into k stripes, so that each of the k NICs takes a k-th, whatever the shard borders
 *   relay     when source NICs would be busy longer than the bound, domains that need the same part
 *             help each other: g of them leave out g - 1 of g slices each and pass them round
 *   exchange  the k GPUs swap their stripes over NVLink
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
 */

#include "refit-bound.h"
#include "refit-strategy-private.h"

#define NOT_A_REGION G_MAXUINT
#define MAX_GROUP 8 /* domains that relay to each other */
/*
 * Sources busy for more than the first share of the bound get relays and are planned to the second:
 * where a relay and a source share a receiving NIC, the source is slowed down, and needs time left
 * to make up for it.
 */
#define OVERLOADED_SHARE 0.9
#define RELAYED_SOURCE_SHARE 0.8
/* Batches are added until what follows the last one's network stage is this share of the bound. */
#define TAIL_SHARE 0.01

typedef struct {
    RefitPlanBuilder *builder;
    const RefitProblem *problem;
    const RefitTopology *topology;
    guint network_stage, relay_stage, exchange_stage;
    guint64 *sent, *received; /* network bytes per rank so far, all members */
    double *relayed;          /* per source rank: share of its deliveries that relays take over */
    guint64 stripe_bytes;     /* parts are not cut below this; dealt to the least loaded NIC */
    GArray *arrivals;         /* Arrival: domains that must bring in the current cell */
    GArray *takers;           /* guint: of the current cell, arrival after arrival */
    GArray *cuts;             /* Cut: stripes of the current cell */
} Planner;

typedef struct {
    const guint *ranks; /* needers of the cell in one domain */
    guint n_ranks;
    guint first_taker; /* index into takers: stripe i is brought in by takers[first_taker + i] */
} Arrival;

/* A part of the current cell that moves: its number in the plan, and bytes of one member. */
typedef struct {
    guint region;
    guint64 bytes;
} Part;

/*
 * A stripe of the current cell, cut for a group of domains: `direct` is what the source sends to
 * each domain, a part for all (A) and the domain's slice; `slices` are passed on.
 */
typedef struct {
    RefitRegion stripe; /* owned */
    Part whole;
    guint dim;      /* that is cut */
    guint64 extent; /* of that dim */
    guint64 slice;  /* its positions per slice; 0: not cut */
    guint n_slices; /* one per domain; 0: none yet */
    Part direct[MAX_GROUP], slices[MAX_GROUP];
} Cut;

static guint least_sent(const Planner *self, const RefitCell *cell) {
    guint best = cell->holders[0];

    for (guint i = 1; i < cell->n_holders; i++)
        if (self->sent[cell->holders[i]] < self->sent[best])
            best = cell->holders[i];
    return best;
}

/* Holders of the cell in the domain of `rank`: a run of the ascending list. */
static guint holders_inside(const Planner *self, const RefitCell *cell, guint rank,
                            guint *first_out) {
    guint domain = refit_topology_domain_of(self->topology, rank);
    guint first = 0, n = 0;

    while (first < cell->n_holders &&
           refit_topology_domain_of(self->topology, cell->holders[first]) < domain)
        first++;
    while (first + n < cell->n_holders &&
           refit_topology_domain_of(self->topology, cell->holders[first + n]) == domain)
        n++;
    *first_out = first;
    return n;
}

/* The domain holds the cell already: nothing enters it. */
static void serve_inside(const Planner *self, guint class_index, const RefitCell *cell,
                         const Arrival *arrival, guint first, guint n_inside) {
    guint region = refit_plan_builder_region(self->builder, &cell->region);

    for (guint i = 0; i < arrival->n_ranks; i++) {
        guint needer = arrival->ranks[i];
        gboolean own = refit_ranks_contain(cell->holders, cell->n_holders, needer);

        refit_plan_builder_add(self->builder, class_index, region,
                               own ? needer : cell->holders[first + i % n_inside], needer,
                               self->exchange_stage, REFIT_LANDING_HOME, NULL, 0);
    }
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
            g_auto(RefitRegion) part = refit_region_stripe(&cell->region, n, i);
            cuts_byte = refit_class_cuts_byte(klass, &part);
        }
        if (!cuts_byte)
            break;
    }
    return n;
}

static Part new_part(const Planner *self, const RefitClass *klass, const RefitRegion *region) {
    return (Part){refit_plan_builder_region(self->builder, region),
                  refit_class_bytes(klass, refit_region_volume(region))};
}

/* The stripe with its cut dim replaced; takes ownership of `list`. */
static Part cut_part(const Planner *self, const RefitClass *klass, const Cut *cut,
                     RefitIntervalList *list) {
    g_auto(RefitRegion) region = refit_region_copy(&cut->stripe);

    refit_interval_list_unref(region.dims[cut->dim]);
    region.dims[cut->dim] = list;
    return new_part(self, klass, &region);
}

static RefitIntervalList *slice_list(const Cut *cut, guint index) {
    guint64 from = cut->extent - cut->slice * (cut->n_slices - index);

    return refit_interval_list_slice(cut->stripe.dims[cut->dim], from, from + cut->slice);
}

/* What a source sends to domain `index`: the part for all and the domain's slice. */
static RefitIntervalList *direct_list(const Cut *cut, guint index) {
    const RefitIntervalList *whole = cut->stripe.dims[cut->dim];
    g_autoptr(RefitIntervalList) all =
        refit_interval_list_slice(whole, 0, cut->extent - cut->slice * cut->n_slices);
    g_autoptr(RefitIntervalList) own = slice_list(cut, index);
    g_autofree RefitInterval *items = g_new(RefitInterval, (gsize)all->n + own->n);
    RefitIntervalList *both;

    for (guint i = 0; i < all->n; i++)
        items[i] = all->items[i];
    for (guint i = 0; i < own->n; i++) {
        items[all->n + i] = own->items[i];
        items[all->n + i].at += all->extent;
    }
    both = refit_interval_list_new(items, all->n + own->n, NULL);
    g_assert(both != NULL); /* two parts of one list cannot overlap */
    return both;
}

/*
 * Slices for `n_domains` so that each leaves out `share` of the stripe. None when they would be
 * smaller than a stripe may be, or of a type whose bytes must not be cut: such a stripe is passed
 * on whole, from domain to domain.
 */
static void cut_for_relay(const Planner *self, const RefitClass *klass, Cut *cut, guint n_domains,
                          double share) {
    guint64 slice = 0;

    if (n_domains > 1 && share > 0 && cut->extent > 0) {
        slice = MIN((guint64)(share * (double)cut->extent / (n_domains - 1)) + 1,
                    cut->extent / n_domains);
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

/* Registered when it is first moved whole, so that the plan has no unused regions. */
static const Part *whole_stripe(const Planner *self, Cut *cut) {
    if (cut->whole.region == NOT_A_REGION)
        cut->whole.region = refit_plan_builder_region(self->builder, &cut->stripe);
    return &cut->whole;
}

static void clear_cut(gpointer data) {
    refit_region_clear(&((Cut *)data)->stripe);
}

/* The current cell in `n` stripes. */
static Cut *cut_cell(Planner *self, const RefitClass *klass, const RefitCell *cell, guint n) {
    g_array_set_size(self->cuts, 0);
    g_array_set_size(self->cuts, n);
    for (guint i = 0; i < n; i++) {
        Cut *cut = &g_array_index(self->cuts, Cut, i);

        *cut = (Cut){.stripe = refit_region_stripe(&cell->region, n, i)};
        if (refit_region_is_empty(&cut->stripe))
            continue;
        cut->whole =
            (Part){NOT_A_REGION, refit_class_bytes(klass, refit_region_volume(&cut->stripe))};
        for (guint d = 1; d < cut->stripe.n_dims; d++)
            if (cut->stripe.dims[d]->extent > cut->stripe.dims[cut->dim]->extent)
                cut->dim = d;
        if (cut->stripe.n_dims > 0 && refit_dtype_bits(klass->dtype) % 8 == 0)
            cut->extent = cut->stripe.dims[cut->dim]->extent;
    }
    return (Cut *)(gpointer)self->cuts->data;
}

/* ---- transfers ---- */

static guint bring(Planner *self, guint class_index, const Part *part, guint sender, guint taker,
                   const guint *dep) {
    guint64 bytes = part->bytes * self->problem->classes[class_index].n_members;

    self->sent[sender] += bytes;
    self->received[taker] += bytes;
    return refit_plan_builder_add(self->builder, class_index, part->region, sender, taker,
                                  dep != NULL ? self->relay_stage : self->network_stage,
                                  REFIT_LANDING_HOME, dep, dep != NULL ? 1 : 0);
}

/*
 * Stripe `index` into the `n` domains of a group, `share` of it by relay, and from their takers to
 * the other needers.
 */
static void bring_stripe(Planner *self, guint class_index, const RefitCell *cell, Cut *cut,
                         guint index, const Arrival *group, guint n, double share) {
    const guint *takers = (const guint *)(gpointer)self->takers->data;
    /* handles[i][h]: the transfer by which domain i got a slice in hop h; 0 from the source. */
    guint handles[MAX_GROUP][MAX_GROUP];
    guint n_hops;

    cut_for_relay(self, &self->problem->classes[class_index], cut, n, share);
    n_hops = cut->slice > 0 ? n : 1;
    for (guint i = 0; i < n; i++) {
        gboolean pass_on = cut->slice == 0 && i > 0;

        handles[i][0] =
            bring(self, class_index, cut->slice > 0 ? &cut->direct[i] : whole_stripe(self, cut),
                  pass_on ? takers[group[i - 1].first_taker + index] : least_sent(self, cell),
                  takers[group[i].first_taker + index], pass_on ? handles[i - 1] : NULL);
    }
    for (guint hop = 1; hop < n_hops; hop++) {
        for (guint i = 0; i < n; i++) {
            guint before = (i + n - 1) % n;

            handles[i][hop] =
                bring(self, class_index, &cut->slices[(i + n - hop) % n],
                      takers[group[before].first_taker + index],
                      takers[group[i].first_taker + index], &handles[before][hop - 1]);
        }
    }
    for (guint i = 0; i < n; i++) {
        guint taker = takers[group[i].first_taker + index];

        for (guint r = 0; r < group[i].n_ranks; r++)
            if (group[i].ranks[r] != taker)
                refit_plan_builder_add(self->builder, class_index, whole_stripe(self, cut)->region,
                                       taker, group[i].ranks[r], self->exchange_stage,
                                       REFIT_LANDING_HOME, handles[i], n_hops);
    }
}

/* Puts the `n_takers` needers that have received least so far first; ties in rank order. */
static void sort_takers(const Planner *self, guint *ranks, guint n_ranks, guint n_takers) {
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
static void choose_takers(Planner *self, Arrival *arrival, guint n_stripes) {
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
 * no domain is always the one that groups leave over.
 */
static void list_arrivals(Planner *self, guint class_index, const RefitCell *cell, guint turn,
                          gboolean serve) {
    guint n;

    g_array_set_size(self->arrivals, 0);
    g_array_set_size(self->takers, 0);
    for (guint first = 0; first < cell->n_needers; first += n) {
        Arrival arrival = {.ranks = cell->needers + first};
        guint first_inside, n_inside;

        n = refit_domain_run(self->topology, cell->needers, cell->n_needers, first);
        arrival.n_ranks = n;
        n_inside = holders_inside(self, cell, arrival.ranks[0], &first_inside);
        if (n_inside == 0)
            g_array_append_val(self->arrivals, arrival);
        else if (serve)
            serve_inside(self, class_index, cell, &arrival, first_inside, n_inside);
    }
    if (self->arrivals->len == 0)
        return;
    turn %= self->arrivals->len;
    for (guint i = 0; i < turn; i++) {
        Arrival arrival = g_array_index(self->arrivals, Arrival, i);
        g_array_append_val(self->arrivals, arrival);
    }
    g_array_remove_range(self->arrivals, 0, turn);
}

/*
 * How many of the `left` domains form the next group: enough to take over `share`, in groups of
 * nearly equal size, so that none is left alone.
 */
static guint group_size(guint left, double share) {
    guint wanted = share < 1 ? (guint)MIN(1 / (1 - share) + 1, MAX_GROUP) : MAX_GROUP;
    guint n_groups = MAX(MAX(left / wanted, 1), (left + MAX_GROUP - 1) / MAX_GROUP);

    return share > 0 ? (left + n_groups - 1) / n_groups : 1;
}

static void add_cell(Planner *self, guint class_index, const RefitCell *cell, guint turn) {
    const RefitClass *klass = &self->problem->classes[class_index];
    guint64 wanted = refit_class_bytes(klass, cell->volume) / self->stripe_bytes;
    guint n, n_stripes, most_ranks = 1;
    Cut *cuts;

    list_arrivals(self, class_index, cell, turn, TRUE);
    for (guint a = 0; a < self->arrivals->len; a++)
        most_ranks = MAX(most_ranks, g_array_index(self->arrivals, Arrival, a).n_ranks);
    n_stripes = count_stripes(klass, cell, (guint)CLAMP(wanted, 1, most_ranks));
    for (guint a = 0; a < self->arrivals->len; a++)
        choose_takers(self, &g_array_index(self->arrivals, Arrival, a), n_stripes);
    cuts = cut_cell(self, klass, cell, n_stripes);
    for (guint a = 0; a < self->arrivals->len; a += n) {
        const Arrival *group = &g_array_index(self->arrivals, Arrival, a);
        double share = self->relayed[least_sent(self, cell)];

        n = group_size(self->arrivals->len - a, share);
        for (guint i = 0; i < n_stripes; i++)
            if (!refit_region_is_empty(&cuts[i].stripe))
                bring_stripe(self, class_index, cell, &cuts[i], i, group, n, share);
    }
}

/* ---- whole model ---- */

/* First pass: what each source rank would send if every domain were served by a holder. */
static void find_relayed_shares(Planner *self, double quota_bytes) {
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
static guint count_batches(const Planner *self, double bound_s) {
    const RefitCase *refit_case = self->problem->refit_case;
    g_autofree guint64 *exchanged = g_new0(guint64, self->problem->n_ranks);
    double most_relayed = 0, tail_s = 0, most_batches;

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
    tail_s += most_relayed * bound_s;
    /* No batch without a stripe for every rank that receives. */
    most_batches =
        (double)self->problem->needed_bytes / self->problem->n_ranks / (double)self->stripe_bytes;
    return (guint)CLAMP(MIN(tail_s / (TAIL_SHARE * bound_s) + 1, most_batches), 1,
                        refit_case->profile->batches);
}

static gboolean build(RefitPlanBuilder *builder, const RefitProblem *problem, GError **error) {
    const RefitCase *refit_case = problem->refit_case;
    g_autofree guint64 *sent = g_new0(guint64, problem->n_ranks);
    g_autofree guint64 *received = g_new0(guint64, problem->n_ranks);
    g_autofree double *relayed = g_new0(double, problem->n_ranks);
    g_autoptr(GArray) arrivals = g_array_new(FALSE, FALSE, sizeof(Arrival));
    g_autoptr(GArray) takers = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autoptr(GArray) cuts = g_array_new(FALSE, TRUE, sizeof(Cut));
    Planner self = {
        .builder = builder,
        .problem = problem,
        .topology = refit_case->topology,
        .sent = sent,
        .received = received,
        .relayed = relayed,
        .stripe_bytes = (guint64)refit_case->profile->stripe_bytes.value,
        .arrivals = arrivals,
        .takers = takers,
        .cuts = cuts,
    };
    guint turn = 0;
    RefitBound bound;

    g_array_set_clear_func(cuts, clear_cut);
    if (!refit_bound_compute(problem, &bound, error))
        return FALSE;
    find_relayed_shares(&self, bound.time_s * refit_case->topology->nic_bandwidth.value);
    self.network_stage = refit_plan_builder_add_stage(builder, "network", 1);
    self.relay_stage = refit_plan_builder_add_stage(builder, "relay", 1);
    self.exchange_stage = refit_plan_builder_add_stage(builder, "exchange", 1);
    refit_plan_builder_set_track(builder, self.relay_stage, 1);
    refit_batches_spread(builder, problem, count_batches(&self, bound.time_s));
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitCells *cells = problem->classes[c].cells;

        for (guint i = 0; i < cells->n_cells; i++)
            add_cell(&self, c, &cells->cells[i], turn++);
    }
    refit_plan_builder_add_logical_bytes(builder, problem->weight_bytes);
    return TRUE;
}

const RefitStrategy refit_strategy_refit = {
    .name = "refit",
    .summary = "each byte into a domain once, striped over its NICs, replicas finished over NVLink",
    .build = build,
};
