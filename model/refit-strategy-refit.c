/*
 * Strategy `refit`: every tensor shard to shard, the whole model at once.
 *
 *   network   each byte a domain needs enters it once; a part needed by k GPUs of the domain is cut
 *             into k stripes, so that each of the k NICs takes a k-th, whatever the shard borders
 *   relay     when source NICs would be busy longer than the bound, destination ranks that have
 *             a stripe pass it on to a domain that lacks it
 *   exchange  the k GPUs swap their stripes over NVLink
 *
 * Senders are chosen by bytes over the whole model: the holder that has sent least so far. The
 * model is cut in batches over which the three stages overlap; all pipeline stages send in all of
 * them. Cost: one transfer per cell and needer, plus one per pair of needers of a cell in one
 * domain.
 */

#include "refit-bound.h"
#include "refit-strategy-private.h"

typedef struct {
    RefitPlanBuilder *builder;
    const RefitTopology *topology;
    guint network_stage, relay_stage, exchange_stage;
    guint64 *sent, *received; /* network bytes per rank so far, all members */
    guint64 quota;            /* network bytes a source rank may send before relays help it */
    guint64 stripe_bytes;     /* parts are not cut below this; dealt to the least loaded NIC */
    GArray *taken;            /* Stripe: the current cell's, per arrival then stripe */
    GArray *cuts;             /* Cut: the current cell in cuts->len stripes; 0 until it is cut */
} Planner;

typedef struct {
    guint region;
    guint64 volume;
} Cut;

/* One stripe of the current cell in one domain. */
typedef struct {
    guint taker;
    guint transfer;  /* handle of the network transfer that brings it */
    gboolean direct; /* from a holder, so it may be relayed on */
} Stripe;

typedef struct {
    const guint *ranks; /* needers of the cell in one domain */
    guint n_ranks;
    guint n_stripes;
    guint first_stripe; /* index into taken */
} Arrival;

static guint least_sent(const Planner *self, const guint *ranks, guint n_ranks) {
    guint best = ranks[0];

    for (guint i = 1; i < n_ranks; i++)
        if (self->sent[ranks[i]] < self->sent[best])
            best = ranks[i];
    return best;
}

/* The domain holds the cell already: nothing enters it. */
static gboolean serve_inside(const Planner *self, guint class_index, const RefitCell *cell,
                             const Arrival *arrival) {
    guint domain = refit_topology_domain_of(self->topology, arrival->ranks[0]);
    guint first = 0, n_inside = 0;

    /* Ranks of a domain follow each other in an ascending list. */
    while (first < cell->n_holders &&
           refit_topology_domain_of(self->topology, cell->holders[first]) < domain)
        first++;
    while (first + n_inside < cell->n_holders &&
           refit_topology_domain_of(self->topology, cell->holders[first + n_inside]) == domain)
        n_inside++;
    if (n_inside == 0)
        return FALSE;
    guint region = refit_plan_builder_region(self->builder, &cell->region);
    for (guint i = 0; i < arrival->n_ranks; i++) {
        guint needer = arrival->ranks[i];
        gboolean own = refit_ranks_contain(cell->holders, cell->n_holders, needer);

        refit_plan_builder_add(self->builder, class_index, region,
                               own ? needer : cell->holders[first + i % n_inside], needer,
                               self->exchange_stage, REFIT_LANDING_HOME, NULL, 0);
    }
    return TRUE;
}

/* Puts the `n_takers` needers that have received least so far first; ties in rank order. */
static void sort_takers(const Planner *self, guint *ranks, guint n_ranks, guint n_takers) {
    for (guint i = 0; i < n_takers; i++) {
        guint least = i;

        for (guint j = i + 1; j < n_ranks; j++)
            if (self->received[ranks[j]] < self->received[ranks[least]])
                least = j;
        guint taker = ranks[least];
        for (guint j = least; j > i; j--)
            ranks[j] = ranks[j - 1];
        ranks[i] = taker;
    }
}

/*
 * Earlier arrivals of the same cell that were cut alike and got stripe `index` from a holder: the
 * one whose taker has sent least, or NULL.
 */
static const Stripe *find_relay(const Planner *self, const GArray *arrivals, guint before,
                                guint n_stripes, guint index) {
    const Stripe *best = NULL;

    for (guint a = 0; a < before; a++) {
        const Arrival *arrival = &g_array_index(arrivals, Arrival, a);
        const Stripe *stripe;

        if (arrival->n_stripes != n_stripes)
            continue;
        stripe = &g_array_index(self->taken, Stripe, arrival->first_stripe + index);
        if (stripe->direct && (best == NULL || self->sent[stripe->taker] < self->sent[best->taker]))
            best = stripe;
    }
    return best;
}

/*
 * Cuts the cell in `n_stripes`, or in the next smaller number that cuts no byte of a sub-byte type
 * (1 does not); returns that number. Domains mostly have as many needers as the one before, so the
 * last cut is kept.
 */
static guint cut_cell(Planner *self, const RefitClass *klass, const RefitCell *cell,
                      guint n_stripes) {
    if (self->cuts->len == n_stripes)
        return n_stripes;
    g_array_set_size(self->cuts, 0);
    for (guint i = 0; i < n_stripes; i++) {
        g_auto(RefitRegion) part = refit_region_stripe(&cell->region, n_stripes, i);
        Cut cut = {.volume = refit_region_volume(&part)};

        if (cut.volume > 0) {
            if (refit_class_cuts_byte(klass, &part))
                return cut_cell(self, klass, cell, n_stripes - 1);
            cut.region = refit_plan_builder_region(self->builder, &part);
        }
        g_array_append_val(self->cuts, cut);
    }
    return n_stripes;
}

static Stripe bring_stripe(Planner *self, const RefitProblem *problem, guint class_index,
                           const RefitCell *cell, const Cut *cut, guint taker,
                           const Stripe *relay) {
    const RefitClass *klass = &problem->classes[class_index];
    guint64 bytes = refit_class_bytes(klass, cut->volume) * klass->n_members;
    guint sender = least_sent(self, cell->holders, cell->n_holders);
    Stripe stripe = {.taker = taker, .direct = TRUE};

    if (relay != NULL && self->sent[sender] + bytes > self->quota &&
        self->sent[relay->taker] + bytes <= self->quota) {
        sender = relay->taker;
        stripe.direct = FALSE;
    }
    stripe.transfer = refit_plan_builder_add(
        self->builder, class_index, cut->region, sender, taker,
        stripe.direct ? self->network_stage : self->relay_stage, REFIT_LANDING_HOME,
        stripe.direct ? NULL : &relay->transfer, stripe.direct ? 0 : 1);
    self->sent[sender] += bytes;
    self->received[taker] += bytes;
    return stripe;
}

static void bring_in(Planner *self, const RefitProblem *problem, guint class_index,
                     const RefitCell *cell, GArray *arrivals, guint number) {
    const RefitClass *klass = &problem->classes[class_index];
    Arrival *arrival = &g_array_index(arrivals, Arrival, number);
    g_autofree guint *takers = g_memdup2(arrival->ranks, arrival->n_ranks * sizeof(guint));
    guint64 wanted = refit_class_bytes(klass, cell->volume) / self->stripe_bytes;

    arrival->n_stripes = cut_cell(self, klass, cell, (guint)CLAMP(wanted, 1, arrival->n_ranks));
    arrival->first_stripe = self->taken->len;
    if (arrival->n_stripes < arrival->n_ranks)
        sort_takers(self, takers, arrival->n_ranks, arrival->n_stripes);
    for (guint i = 0; i < arrival->n_stripes; i++) {
        const Cut *cut = &g_array_index(self->cuts, Cut, i);
        Stripe stripe = {.direct = FALSE};

        if (cut->volume > 0) {
            stripe = bring_stripe(self, problem, class_index, cell, cut, takers[i],
                                  find_relay(self, arrivals, number, arrival->n_stripes, i));
            for (guint n = 0; n < arrival->n_ranks; n++)
                if (arrival->ranks[n] != takers[i])
                    refit_plan_builder_add(self->builder, class_index, cut->region, takers[i],
                                           arrival->ranks[n], self->exchange_stage,
                                           REFIT_LANDING_HOME, &stripe.transfer, 1);
        }
        g_array_append_val(self->taken, stripe);
    }
}

/*
 * `turn` rotates the order in which domains are served, so that not always the same ones are
 * served last and by relay.
 */
static void add_cell(Planner *self, const RefitProblem *problem, guint class_index,
                     const RefitCell *cell, guint turn, GArray *arrivals, GArray *outside) {
    g_array_set_size(arrivals, 0);
    g_array_set_size(outside, 0);
    g_array_set_size(self->taken, 0);
    g_array_set_size(self->cuts, 0);
    for (guint first = 0; first < cell->n_needers;) {
        guint n = refit_domain_run(self->topology, cell->needers, cell->n_needers, first);
        Arrival arrival = {.ranks = cell->needers + first, .n_ranks = n};

        if (!serve_inside(self, class_index, cell, &arrival))
            g_array_append_val(outside, arrival);
        first += n;
    }
    for (guint a = 0; a < outside->len; a++)
        g_array_append_val(arrivals, g_array_index(outside, Arrival, (a + turn) % outside->len));
    for (guint a = 0; a < arrivals->len; a++)
        bring_in(self, problem, class_index, cell, arrivals, a);
}

static gboolean build(RefitPlanBuilder *builder, const RefitProblem *problem, GError **error) {
    const RefitCase *refit_case = problem->refit_case;
    g_autofree guint64 *sent = g_new0(guint64, problem->n_ranks);
    g_autofree guint64 *received = g_new0(guint64, problem->n_ranks);
    g_autoptr(GArray) taken = g_array_new(FALSE, FALSE, sizeof(Stripe));
    g_autoptr(GArray) cuts = g_array_new(FALSE, FALSE, sizeof(Cut));
    g_autoptr(GArray) arrivals = g_array_new(FALSE, FALSE, sizeof(Arrival));
    g_autoptr(GArray) outside = g_array_new(FALSE, FALSE, sizeof(Arrival));
    guint turn = 0;
    RefitBound bound;
    Planner self = {.builder = builder, .topology = refit_case->topology};

    if (!refit_bound_compute(problem, &bound, error))
        return FALSE;
    self.quota = (guint64)(bound.time_s * refit_case->topology->nic_bandwidth.value);
    self.stripe_bytes = (guint64)refit_case->profile->stripe_bytes.value;
    self.sent = sent;
    self.received = received;
    self.taken = taken;
    self.cuts = cuts;
    self.network_stage = refit_plan_builder_add_stage(builder, "network", 1);
    self.relay_stage = refit_plan_builder_add_stage(builder, "relay", 1);
    self.exchange_stage = refit_plan_builder_add_stage(builder, "exchange", 1);
    refit_batches_spread(builder, problem, refit_case->profile->batches);
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitCells *cells = problem->classes[c].cells;

        for (guint i = 0; i < cells->n_cells; i++)
            add_cell(&self, problem, c, &cells->cells[i], turn++, arrivals, outside);
    }
    refit_plan_builder_add_logical_bytes(builder, problem->weight_bytes);
    return TRUE;
}

const RefitStrategy refit_strategy_refit = {
    .name = "refit",
    .summary = "each byte into a domain once, striped over its NICs, replicas finished over NVLink",
    .build = build,
};
