/*
 * Strategy `refit`: what goes on inside domains that hold a cell, and chains from domain to domain.
 *
 * Needers in a domain with holders are served over NVLink: each from another holder while there are
 * enough of them, else in stripes that they swap, so that the holders send the cell once. What is
 * too small for stripes comes from the holders in any case.
 *
 * Chains are for few sources and many domains. A stripe goes from domain to domain in slices, so
 * that each of them has it little later than the first one, and the sources send it once. What a
 * domain's few holders have to send is spread over the NICs of all its ranks that take part.
 */

#include "model/strategy/refit-planner-private.h"

static guint least_sent_inside(const RefitPlanner *self, const guint *holders, guint n) {
    guint best = holders[0];

    for (guint i = 1; i < n; i++)
        if (self->sent_inside[holders[i]] < self->sent_inside[best])
            best = holders[i];
    return best;
}

/* Over NVLink, from the holder that has sent least that way. Returns the transfer. */
static guint bring_inside(RefitPlanner *self, guint class_index, const RefitPart *part,
                          const guint *holders, guint n_holders, guint taker) {
    guint sender = least_sent_inside(self, holders, n_holders);

    self->sent_inside[sender] += part->bytes * self->problem->classes[class_index].n_members;
    return refit_plan_builder_add(self->builder, class_index, part->region, sender, taker,
                                  self->chains ? self->network_stage : self->exchange_stage,
                                  REFIT_LANDING_HOME, NULL, 0);
}

/*
 * The domain holds the cell already, so nothing enters it. Needers that hold it copy it. When the
 * others are no more than the holders, each gets it from one of them; else they are noted as an
 * arrival, which takes it in by stripes and swaps these, so that the holders send it once.
 */
void refit_planner_serve_inside(RefitPlanner *self, guint class_index, const RefitCell *cell,
                                const RefitArrival *arrival) {
    const RefitClass *klass = &self->problem->classes[class_index];
    guint64 bytes = refit_class_bytes(klass, cell->volume);
    RefitPart whole = {refit_plan_builder_region(self->builder, &cell->region), bytes};
    const guint *holders = cell->holders + arrival->first_inside;
    guint first = self->inside->len, n;

    for (guint i = 0; i < arrival->n_ranks; i++) {
        guint needer = arrival->ranks[i];

        if (refit_ranks_contain(cell->holders, cell->n_holders, needer))
            refit_plan_builder_add(self->builder, class_index, whole.region, needer, needer,
                                   self->exchange_stage, REFIT_LANDING_HOME, NULL, 0);
        else
            g_array_append_val(self->inside, needer);
    }
    n = self->inside->len - first;
    if (self->stripes && n > arrival->n_inside && bytes >= n * self->stripe_bytes) {
        RefitArrival others = {.ranks = &g_array_index(self->inside, guint, first),
                               .n_ranks = n,
                               .first_inside = arrival->first_inside,
                               .n_inside = arrival->n_inside};
        g_array_append_val(self->insiders, others);
        return;
    }
    for (guint i = 0; i < n; i++)
        bring_inside(self, class_index, &whole, holders, arrival->n_inside,
                     g_array_index(self->inside, guint, first + i));
}

/* Stripes into a domain that holds the cell, for its other needers. */
void refit_planner_bring_stripes_inside(RefitPlanner *self, guint class_index,
                                        const RefitCell *cell, RefitCut *cuts, guint number) {
    const RefitArrival *arrival = &g_array_index(self->arrivals, RefitArrival, number);

    for (guint i = 0; i < self->cuts->len; i++) {
        RefitLanded *landed =
            &g_array_index(self->landed, RefitLanded, number * self->cuts->len + i);

        if (refit_region_is_empty(&cuts[i].stripe))
            continue;
        landed->n = 1;
        landed->handles[0] =
            bring_inside(self, class_index, refit_planner_whole_stripe(self, &cuts[i]),
                         cell->holders + arrival->first_inside, arrival->n_inside,
                         g_array_index(self->takers, guint, arrival->first_taker + i));
    }
}

/*
 * Who begins the chain of a part: the rank in the domain of `holder`, itself or another, whose NIC
 * has sent least. One that does not hold the cell gets the part over NVLink, to send it on: few
 * holders thus use all NICs of their domain. Returns it, and in *handle_out the transfer by which
 * it has the part.
 */
static guint begin_chain(RefitPlanner *self, guint class_index, const RefitCell *cell,
                         const RefitPart *part, guint holder, guint *handle_out) {
    const guint *ranks = (const guint *)(gpointer)self->everyone->data;
    guint64 bytes = part->bytes * self->problem->classes[class_index].n_members;
    guint best = holder, first, n, n_inside;

    n = refit_domain_ranks(self->topology, ranks, self->everyone->len, holder, &first);
    for (guint i = first; i < first + n; i++)
        if (self->sent[ranks[i]] + bytes <= self->sent[best])
            best = ranks[i];
    if (refit_ranks_contain(cell->holders, cell->n_holders, best))
        return best;
    n_inside = refit_domain_ranks(self->topology, cell->holders, cell->n_holders, best, &first);
    holder = least_sent_inside(self, cell->holders + first, n_inside);
    self->sent_inside[holder] += bytes;
    *handle_out = refit_plan_builder_add(self->builder, class_index, part->region, holder, best,
                                         self->network_stage, REFIT_LANDING_RELAY, NULL, 0);
    return best;
}

/*
 * Stripe `index` from domain to domain: from a taker in a holder's domain, if there is one that has
 * it by then, else from where begin_chain() says.
 */
void refit_planner_chain_stripe(RefitPlanner *self, guint class_index, const RefitCell *cell,
                                RefitCut *cut, guint index, guint n_network) {
    const RefitClass *klass = &self->problem->classes[class_index];
    const RefitArrival *arrivals = (const RefitArrival *)(gpointer)self->arrivals->data;
    const guint *takers = (const guint *)(gpointer)self->takers->data;
    const RefitPart *part = refit_planner_whole_stripe(self, cut);
    RefitLanded *landed = (RefitLanded *)(gpointer)self->landed->data + index;
    guint n_stripes = self->cuts->len, sender, handle;
    const guint *dep = NULL;

    if (n_network < self->arrivals->len) {
        dep = landed[n_network * n_stripes].handles;
        sender = takers[arrivals[n_network].first_taker + index];
    } else {
        guint holder = refit_planner_choose_sender(
            self, cell, takers[arrivals[0].first_taker + index], part->bytes * klass->n_members);

        handle = G_MAXUINT;
        sender = begin_chain(self, class_index, cell, part, holder, &handle);
        if (handle != G_MAXUINT)
            dep = &handle;
    }
    for (guint a = 0; a < n_network; a++) {
        guint taker = takers[arrivals[a].first_taker + index];

        landed[a * n_stripes].n = 1;
        landed[a * n_stripes].handles[0] =
            refit_planner_bring(self, class_index, part, sender, taker, dep);
        dep = landed[a * n_stripes].handles;
        sender = taker;
    }
}
