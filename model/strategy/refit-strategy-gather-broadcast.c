/*
 * Strategy `gather-broadcast`: the conventional path. Every source rank assembles every tensor in
 * full, then buckets of full tensors are broadcast to all ranks of both sides, and each destination
 * rank installs its part. Per bucket:
 *
 *   step                 route                                             each rank receives
 *   pipeline broadcast   from the owning stage in a chain over the         (PP-1)/PP x
 *                        same-position ranks of all other stages           (We/EP + Wd/TP)
 *   gather               each shard spread over the ranks of a stage       (n-1)/n of what n
 *                        that hold the other shards                        ranks hold together
 *   broadcast            one chain from the first source rank over         W
 *                        all domains, spread in each
 *
 * Rings and chains are rotated per channel as collective libraries do: channel j leaves a domain at
 * its j-th GPU and enters the next at the one after, so that all NICs of a domain carry a share and
 * each domain takes W in once. Channels are dealt to classes by bytes.
 *
 * A ring of n ranks takes n (n - 1) messages per bucket, too many to simulate for large groups.
 * There a rank doubles what it has in each of log2(n) steps (refit_spread): a gather first over the
 * domains, from NIC to NIC of the same place, then inside them; a broadcast over a chain of
 * domains, channel j through the j-th GPU of each, and spread inside. Every rank still receives
 * what it lacks once, and every domain over all its NICs; a ring would bring the domain's own
 * shards back to it too, which is little when there are many domains. Stages are sliced, so that
 * all steps of a batch overlap as the hops of a ring do. Cost: (source + destination ranks) x
 * classes.
 */

#include "model/strategy/refit-strategy-private.h"

/* Largest groups that move rings and chains rank by rank. */
#define MAX_RING 8
#define MAX_CHAIN 16

/* What a source rank has of a cell: nothing, from the start, or by the transfer of that handle. */
#define NOT_HELD G_MAXUINT
#define HELD (G_MAXUINT - 1)

typedef struct {
    RefitPlanBuilder *builder;
    const RefitProblem *problem;
    const RefitTopology *topology;
    RefitSelection selection;
    guint pipeline_stage, gather_stage, broadcast_stage;
    guint n_positions;
    guint *ranks;    /* position -> rank: source ranks that have not failed */
    guint *stage_of; /* position -> pipeline stage; positions of one are contiguous below */
    guint n_stages;
    guint *stage_first;      /* n_stages + 1 offsets into stage_positions */
    guint *stage_positions;  /* positions ordered by (stage, position) */
    GHashTable *position_of; /* rank -> position + 1 */
    GArray *everyone;        /* ranks of both sides, ascending */
    guint n_channels;
    guint64 *channel_bytes; /* dealt so far, per (stage, channel) */
    guint64 total;          /* bytes of the selection */
    guint64 slice_bytes;
} Gather;

/*
 * Ring over `ranks`, domain after domain, each domain's ranks rotated so that the ring leaves it at
 * its `channel`-th rank.
 */
static void ring_order(const RefitTopology *topology, const guint *ranks, guint n_ranks,
                       guint channel, guint *order_out) {
    for (guint first = 0; first < n_ranks;) {
        guint n = refit_domain_run(topology, ranks, n_ranks, first);

        for (guint i = 0; i < n; i++)
            order_out[first + i] = ranks[first + (channel + 1 + i) % n];
        first += n;
    }
}

/* ---- source side: who has what, and its groups ---- */

static void list_positions(Gather *self) {
    const RefitLayout *source = self->problem->refit_case->source;
    const guint *ranks = refit_layout_ranks(source);
    guint n = refit_layout_n_ranks(source);

    self->ranks = g_new(guint, n);
    self->stage_of = g_new(guint, n);
    for (guint p = 0; p < n; p++) {
        if (self->problem->failed[ranks[p]])
            continue;
        self->ranks[self->n_positions] = ranks[p];
        self->stage_of[self->n_positions++] = refit_layout_stage_of(source, p);
    }
}

static void number_positions(Gather *self) {
    const RefitLayout *source = self->problem->refit_case->source;
    guint slot = 0;

    self->n_stages = refit_layout_n_stages(source);
    self->stage_first = g_new0(guint, self->n_stages + 1);
    self->stage_positions = g_new(guint, self->n_positions);
    for (guint stage = 0; stage < self->n_stages; stage++) {
        self->stage_first[stage] = slot;
        for (guint p = 0; p < self->n_positions; p++) {
            if (self->stage_of[p] != stage)
                continue;
            self->stage_positions[slot++] = p;
        }
    }
    self->stage_first[self->n_stages] = slot;
    self->position_of = g_hash_table_new(NULL, NULL);
    for (guint p = 0; p < self->n_positions; p++)
        g_hash_table_insert(self->position_of, GUINT_TO_POINTER(self->ranks[p]),
                            GUINT_TO_POINTER(p + 1));
}

static guint position_of(const Gather *self, guint rank) {
    return GPOINTER_TO_UINT(g_hash_table_lookup(self->position_of, GUINT_TO_POINTER(rank))) - 1;
}

static guint stage_size(const Gather *self, guint stage) {
    return self->stage_first[stage + 1] - self->stage_first[stage];
}

static void add_hop(const Gather *self, guint class_index, guint region, guint stage, guint *state,
                    guint from, guint to) {
    guint dep = state[from];

    state[to] = refit_plan_builder_add(self->builder, class_index, region, self->ranks[from],
                                       self->ranks[to], stage, REFIT_LANDING_ASSEMBLY, &dep,
                                       dep == HELD ? 0 : 1);
}

/* `state`: per position NOT_HELD, HELD or the handle of the transfer that brought the cell. */
static void broadcast_over_stages(const Gather *self, guint class_index, guint region,
                                  const RefitCell *cell, guint *state) {
    guint home = self->stage_of[position_of(self, cell->holders[0])];

    for (guint slot = 0; slot < stage_size(self, home); slot++) {
        guint from = self->stage_positions[self->stage_first[home] + slot];

        if (state[from] != HELD)
            continue;
        for (guint hop = 1; hop < self->n_stages; hop++) {
            guint stage = (home + hop) % self->n_stages;
            guint to;

            if (slot >= stage_size(self, stage))
                continue;
            to = self->stage_positions[self->stage_first[stage] + slot];
            if (state[to] != NOT_HELD)
                continue;
            add_hop(self, class_index, region, self->pipeline_stage, state, from, to);
            from = to;
        }
    }
    /* Stages that a rank failed in, or of other sizes, may have no position beside a holder. */
    guint holder = position_of(self, cell->holders[0]);
    for (guint stage = 0; stage < self->n_stages; stage++) {
        const guint *positions = self->stage_positions + self->stage_first[stage];
        guint size = stage_size(self, stage);
        gboolean reached = FALSE;

        for (guint i = 0; i < size && !reached; i++)
            reached = state[positions[i]] != NOT_HELD;
        if (size > 0 && !reached)
            add_hop(self, class_index, region, self->pipeline_stage, state, holder, positions[0]);
    }
}

/* Round the ring of a block, which is in rank order, from `from` on. */
static void ring_in_block(const Gather *self, guint class_index, guint region, guint channel,
                          const guint *block, guint n, guint from, guint *state) {
    guint ranks[MAX_RING], order[MAX_RING], start = 0;

    for (guint i = 0; i < n; i++)
        ranks[i] = self->ranks[block[i]];
    ring_order(self->topology, ranks, n, channel, order);
    while (start < n && order[start] != self->ranks[from])
        start++;
    for (guint i = 0; i < n; i++) {
        guint to = position_of(self, order[(start + i) % n]);

        if (state[to] != NOT_HELD)
            continue;
        add_hop(self, class_index, region, self->gather_stage, state, from, to);
        from = to;
    }
}

/* A cell, or a whole tensor, on its way from rank to rank of a group. */
typedef struct {
    const Gather *self;
    guint class_index, region, stage;
    RefitLanding landing;
    guint first_level;
    const guint *group; /* what members of the spread are: indices into `state` */
    const guint *ranks; /* per index into `state` */
    guint *state;       /* NOT_HELD, HELD or the handle of the transfer that brought it */
    const GArray *deps; /* handles that completed the root's copy, or NULL */
} Travel;

static void pass_on(guint level, guint from, guint to, gpointer data) {
    const Travel *travel = data;
    guint source = travel->group[from], target = travel->group[to];
    guint *state = travel->state;
    const guint *deps = &state[source];
    guint n_deps = 1;

    if (state[target] != NOT_HELD)
        return;
    if (state[source] == HELD) {
        deps = travel->deps != NULL ? (const guint *)(gpointer)travel->deps->data : NULL;
        n_deps = travel->deps != NULL ? travel->deps->len : 0;
    }
    refit_plan_builder_set_least_depth(travel->self->builder, travel->first_level + level);
    state[target] = refit_plan_builder_add(
        travel->self->builder, travel->class_index, travel->region, travel->ranks[source],
        travel->ranks[target], travel->stage, travel->landing, deps, n_deps);
    refit_plan_builder_set_least_depth(travel->self->builder, 0);
}

/*
 * From `from` to the `n` positions of a block, which are in rank order: over the domains, to one
 * position in each, then inside each domain.
 */
static void spread_in_block(Travel *travel, const guint *block, guint n, guint from) {
    const Gather *self = travel->self;
    g_autofree guint *ranks = g_new(guint, n);
    g_autofree guint *firsts = g_new(guint, (gsize)n + 1);
    g_autofree guint *heads = g_new(guint, (gsize)n + 1);
    guint n_domains = 0, home = G_MAXUINT, place = 0;

    for (guint i = 0; i < n; i++)
        ranks[i] = self->ranks[block[i]];
    for (guint first = 0; first < n; first = firsts[n_domains]) {
        firsts[n_domains] = first;
        firsts[++n_domains] = first + refit_domain_run(self->topology, ranks, n, first);
    }
    for (guint d = 0; d < n_domains; d++)
        for (guint i = firsts[d]; i < firsts[d + 1]; i++)
            if (block[i] == from) {
                home = d;
                place = i - firsts[d];
            }
    for (guint d = 0; d < n_domains; d++) {
        guint n_inside = MAX(firsts[d + 1] - firsts[d], 1); /* never 0 */

        heads[d] = block[firsts[d] + place % n_inside];
    }
    if (home == G_MAXUINT) { /* serves a block that it is not in */
        heads[n_domains] = from;
        home = n_domains;
    }
    travel->group = heads;
    travel->first_level = refit_spread(MAX(n_domains, home + 1), home, pass_on, travel);
    for (guint d = 0; d < n_domains; d++) {
        guint n_inside = MAX(firsts[d + 1] - firsts[d], 1);

        travel->group = block + firsts[d];
        refit_spread(n_inside, place % n_inside, pass_on, travel);
    }
}

/*
 * The gather in one stage. The R ranks that have the cell each serve one of R equal blocks of the
 * stage's positions; tensor- and expert-parallel groups are such blocks because those axes vary
 * fastest.
 */
static void gather_in_stage(const Gather *self, guint class_index, guint region, guint stage,
                            guint channel, guint *state) {
    guint size = stage_size(self, stage);
    const guint *positions = self->stage_positions + self->stage_first[stage];
    g_autofree guint *having = g_new(guint, size);
    g_autofree guint *block = g_new(guint, size);
    guint n_having = 0;
    Travel travel = {.self = self,
                     .class_index = class_index,
                     .region = region,
                     .stage = self->gather_stage,
                     .landing = REFIT_LANDING_ASSEMBLY,
                     .ranks = self->ranks,
                     .state = state};

    for (guint i = 0; i < size; i++)
        if (state[positions[i]] != NOT_HELD)
            having[n_having++] = positions[i];
    for (guint h = 0; h < n_having; h++) {
        guint first = (guint)((guint64)h * size / n_having);
        guint end = (guint)((guint64)(h + 1) * size / n_having), n = 0;

        for (guint i = first; i < end; i++) { /* by rank; mostly they are in order */
            guint at = n++;

            for (; at > 0 && self->ranks[block[at - 1]] > self->ranks[positions[i]]; at--)
                block[at] = block[at - 1];
            block[at] = positions[i];
        }
        travel.first_level = 0;
        if (n <= MAX_RING)
            ring_in_block(self, class_index, region, channel, block, n, having[h], state);
        else
            spread_in_block(&travel, block, n, having[h]);
    }
}

/* ---- all ranks: the broadcast ---- */

static gboolean same_domain(const Gather *self, guint a, guint b) {
    return refit_topology_domain_of(self->topology, a) ==
           refit_topology_domain_of(self->topology, b);
}

static void pass_between(Travel *travel, guint level, guint from, guint to) {
    const guint pair[2] = {from, to};

    travel->group = pair;
    travel->first_level = level;
    pass_on(0, 0, 1, travel);
}

/*
 * A chain over the domains and a spread in each. The root gives each channel to one neighbour only,
 * which serves the rest of its domain: its own NVLink port would else be the narrowest place of
 * all.
 */
static void spread_to_all(Travel *travel, guint channel, guint root) {
    const Gather *self = travel->self;
    const guint *ranks = travel->ranks;
    guint n = self->everyone->len, first = root, size, before;
    g_autofree guint *group = g_new(guint, n);

    while (first > 0 && same_domain(self, ranks[first - 1], ranks[root]))
        first--;
    size = refit_domain_run(self->topology, ranks, n, first);
    before = first + channel % size;
    if (size > 1) {
        guint neighbour = before != root ? before : first + (root - first + 1) % size, others = 0;

        pass_between(travel, 0, root, neighbour);
        for (guint i = first; i < first + size; i++)
            if (i != root)
                group[others++] = i;
        travel->group = group;
        travel->first_level = 1;
        refit_spread(others, neighbour - first - (neighbour > root ? 1 : 0), pass_on, travel);
    }
    for (guint hop = 1, done = size; done < n; hop++, done += size) {
        first = (first + size) % n;
        size = refit_domain_run(self->topology, ranks, n, first);
        pass_between(travel, hop, before, first + channel % size);
        before = first + channel % size;
        for (guint i = 0; i < size; i++)
            group[i] = first + i;
        travel->group = group;
        travel->first_level = hop + 1;
        refit_spread(size, channel % size, pass_on, travel);
    }
}

/* Hops of the broadcast: in a chain through all ranks, or over all domains. */
static guint count_hops(const Gather *self) {
    const guint *ranks = (const guint *)(gpointer)self->everyone->data;
    guint n = self->everyone->len, hops = 0;

    for (guint first = 0; first < n && n > MAX_CHAIN; hops++)
        first += refit_domain_run(self->topology, ranks, n, first);
    return n > MAX_CHAIN ? hops : n;
}

/* One chain through all ranks, domain by domain. */
static void chain_to_all(Travel *travel, guint channel, guint root) {
    const Gather *self = travel->self;
    guint n = self->everyone->len, start = 0, from = root;
    g_autofree guint *order = g_new(guint, n);
    g_autofree guint *place_of = g_new(guint, self->problem->n_ranks);

    for (guint i = 0; i < n; i++)
        place_of[travel->ranks[i]] = i;
    ring_order(self->topology, travel->ranks, n, channel, order);
    while (order[start] != travel->ranks[root])
        start++;
    for (guint i = 1; i < n; i++) {
        guint to = place_of[order[(start + i) % n]];

        pass_between(travel, 0, from, to);
        from = to;
    }
}

/*
 * The broadcast of a part of the tensor. `root_deps`: transfers that completed the tensor on the
 * root.
 */
static void broadcast_to_all(const Gather *self, guint class_index, const RefitRegion *part,
                             guint channel, const GArray *root_deps) {
    const guint *ranks = (const guint *)(gpointer)self->everyone->data;
    guint n = self->everyone->len, root = 0;
    g_autofree guint *state = g_new(guint, n);
    Travel travel = {.self = self,
                     .class_index = class_index,
                     .region = refit_plan_builder_region(self->builder, part),
                     .stage = self->broadcast_stage,
                     .landing = REFIT_LANDING_BUCKET,
                     .ranks = ranks,
                     .state = state,
                     .deps = root_deps};

    for (guint i = 0; i < n; i++)
        state[i] = NOT_HELD;
    while (ranks[root] != self->ranks[0])
        root++;
    state[root] = HELD;
    if (n <= MAX_CHAIN)
        chain_to_all(&travel, channel, root);
    else
        spread_to_all(&travel, channel, root);
}

/* The root's own need, when it is a destination too: a copy out of the assembled tensor. */
static void install_on_root(const Gather *self, guint class_index, const GArray *root_deps) {
    const RefitCells *cells = self->problem->classes[class_index].cells;
    guint root = self->ranks[0];

    /* Shards of one rank may overlap, cells do not. */
    for (guint i = 0; i < cells->n_cells; i++) {
        const RefitCell *cell = &cells->cells[i];

        if (refit_ranks_contain(cell->needers, cell->n_needers, root))
            refit_plan_builder_add(self->builder, class_index,
                                   refit_plan_builder_region(self->builder, &cell->region), root,
                                   root, self->broadcast_stage, REFIT_LANDING_HOME,
                                   (const guint *)(gpointer)root_deps->data, root_deps->len);
    }
}

/* The share that the fullest rank of a stage holds of what the stage has, mean over all bytes. */
static double held_share(const Gather *self) {
    const RefitProblem *problem = self->problem;
    g_autofree guint64 *held = g_new0(guint64, MAX(problem->n_ranks, 1));
    g_autofree guint64 *most = g_new0(guint64, MAX(self->n_stages, 1));
    double sum = 0;

    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint p = 0;
             refit_selection_has(self->selection, klass) && p < klass->source->n_pieces; p++) {
            const RefitPiece *piece = &klass->source->pieces[p];
            guint64 bytes = refit_class_bytes(klass, refit_region_volume(&piece->region));

            for (guint r = 0; r < piece->n_ranks; r++)
                held[piece->ranks[r]] += bytes * klass->n_members;
        }
    }
    for (guint p = 0; p < self->n_positions; p++)
        most[self->stage_of[p]] = MAX(most[self->stage_of[p]], held[self->ranks[p]]);
    for (guint stage = 0; stage < self->n_stages; stage++)
        sum += (double)most[stage];
    return MIN(sum / MAX((double)self->total, 1), 1);
}

static guint deal_channel(Gather *self, const RefitClass *klass, guint n_parts) {
    guint64 *dealt = self->channel_bytes + (gsize)klass->stage * self->n_channels;
    guint least = 0;

    for (guint j = 1; j < self->n_channels; j++)
        if (dealt[j] < dealt[least])
            least = j;
    dealt[least] += klass->bytes / n_parts * klass->n_members;
    return least;
}

/* A class that outweighs a channel's share of the model is cut, so that all channels carry it. */
static guint count_parts(const Gather *self, const RefitClass *klass) {
    gboolean heavy = klass->bytes * klass->n_members > self->total / self->n_channels;

    return heavy && klass->bytes / self->n_channels >= self->slice_bytes &&
                   refit_dtype_bits(klass->dtype) % 8 == 0
               ? self->n_channels
               : 1;
}

static void add_class(Gather *self, guint class_index, const RefitCells *parts, guint *state) {
    const RefitClass *klass = &self->problem->classes[class_index];
    guint n_parts = count_parts(self, klass);
    g_auto(RefitRegion) full = refit_region_full(klass->n_dims, klass->shape);
    g_autoptr(GArray) root_deps = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint i = 0; i < parts->n_cells; i++) {
        const RefitCell *cell = &parts->cells[i];
        guint region = refit_plan_builder_region(self->builder, &cell->region);

        for (guint p = 0; p < self->n_positions; p++)
            state[p] = NOT_HELD;
        for (guint h = 0; h < cell->n_holders; h++)
            state[position_of(self, cell->holders[h])] = HELD;
        broadcast_over_stages(self, class_index, region, cell, state);
        /* Shards ride different channels, by the place of their holder. */
        for (guint stage = 0; stage < self->n_stages; stage++)
            gather_in_stage(self, class_index, region, stage,
                            position_of(self, cell->holders[0]) % self->n_channels, state);
        if (state[0] != HELD)
            g_array_append_val(root_deps, state[0]);
    }
    for (guint i = 0; i < n_parts; i++) {
        g_auto(RefitRegion) part = refit_region_stripe(&full, n_parts, i);

        if (!refit_region_is_empty(&part) || n_parts == 1)
            broadcast_to_all(self, class_index, &part, deal_channel(self, klass, n_parts),
                             root_deps);
    }
    install_on_root(self, class_index, root_deps);
}

static void oblige(const Gather *self, guint class_index) {
    g_autoptr(GArray) receivers = g_array_new(FALSE, FALSE, sizeof(guint));
    g_autofree guint *sources = g_memdup2(self->ranks, self->n_positions * sizeof(guint));

    refit_ranks_sort(sources, self->n_positions);
    for (guint i = 0; i < self->everyone->len; i++) {
        guint rank = g_array_index(self->everyone, guint, i);
        if (rank != self->ranks[0])
            g_array_append_val(receivers, rank);
    }
    refit_plan_builder_oblige(self->builder, class_index, REFIT_LANDING_ASSEMBLY, sources,
                              self->n_positions);
    refit_plan_builder_oblige(self->builder, class_index, REFIT_LANDING_BUCKET,
                              (const guint *)(gpointer)receivers->data, receivers->len);
}

static void clear(Gather *self) {
    g_free(self->ranks);
    g_free(self->stage_of);
    g_free(self->stage_first);
    g_free(self->stage_positions);
    g_clear_pointer(&self->position_of, g_hash_table_unref);
    g_clear_pointer(&self->everyone, g_array_unref);
    g_free(self->channel_bytes);
}

/* The whole tensor cut by who holds what; NULL when some of it is held by no source rank. */
static RefitCells *cut_by_holders(const RefitClass *klass, guint root) {
    RefitPiece whole = {refit_region_full(klass->n_dims, klass->shape), 1, &root};
    RefitHolding need = {1, &whole};
    g_autoptr(RefitCells) parts = refit_cells_new(klass->source, &need);

    refit_region_clear(&whole.region);
    for (guint i = 0; i < parts->n_cells; i++)
        if (parts->cells[i].n_holders == 0)
            return NULL;
    return g_steal_pointer(&parts);
}

gboolean refit_gather_broadcast_build(RefitPlanBuilder *builder, const RefitProblem *problem,
                                      RefitSelection selection, gboolean barrier, GError **error) {
    const RefitCase *refit_case = problem->refit_case;
    const RefitTopology *topology = refit_case->topology;
    Gather self = {
        .builder = builder,
        .problem = problem,
        .topology = topology,
        .selection = selection,
        .total = refit_selection_bytes(selection, problem),
        .slice_bytes = (guint64)refit_case->profile->slice_bytes.value,
        .n_channels = refit_topology_gpus_per_domain(topology),
    };
    g_autofree guint *state = NULL;
    /* Source holding -> its cut; classes with equal holdings share one. Lookup only. */
    g_autoptr(GHashTable) cuts =
        g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)refit_cells_free);
    guint64 largest_batch;
    double held;
    gboolean complete = TRUE;

    list_positions(&self);
    state = g_new(guint, self.n_positions);
    largest_batch = refit_buckets_assign(builder, problem, selection, barrier);
    number_positions(&self);
    self.everyone = refit_ranks_of_both_sides(problem);
    self.channel_bytes = g_new0(guint64, (gsize)self.n_stages * self.n_channels);
    /* A batch may be of one stage, whose ranks are then where all chains begin. In a gather every
     * rank sends all the time, so that nothing is gained by slices. */
    held = held_share(&self);
    self.pipeline_stage = refit_plan_builder_add_stage(
        builder, "pipeline broadcast",
        refit_chain_slices(problem, (guint64)(held * (double)largest_batch),
                           (guint64)(held * (double)self.total), self.n_stages));
    self.gather_stage = refit_plan_builder_add_stage(builder, "gather", 1);
    self.broadcast_stage = refit_plan_builder_add_stage(
        builder, "broadcast",
        refit_chain_slices(problem, largest_batch / self.n_channels, self.total / self.n_channels,
                           count_hops(&self)));
    /* While a bucket is broadcast, the next one is assembled. */
    refit_plan_builder_set_track(builder, self.broadcast_stage, 1);
    for (guint c = 0; complete && c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];
        RefitCells *parts;

        if (!refit_selection_has(selection, klass))
            continue;
        parts = g_hash_table_lookup(cuts, klass->source);
        if (parts == NULL) {
            parts = cut_by_holders(klass, self.ranks[0]);
            if (parts == NULL) {
                const RefitTensor *tensor =
                    refit_model_tensor(refit_case->model, klass->members[0]);
                g_set_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE,
                            "gather-broadcast assembles full tensors, but the source side holds "
                            "only part of \"%s\"; use another strategy",
                            tensor->name);
                complete = FALSE;
                break;
            }
            g_hash_table_insert(cuts, (gpointer)klass->source, parts);
        }
        oblige(&self, c);
        add_class(&self, c, parts, state);
    }
    clear(&self);
    for (guint pass = 0; complete && pass < 2; pass++)
        refit_plan_builder_add_logical_bytes(builder, refit_selection_bytes(selection, problem));
    return complete;
}

static gboolean build(RefitPlanBuilder *builder, const RefitProblem *problem, GError **error) {
    return refit_gather_broadcast_build(builder, problem, REFIT_SELECT_ALL, FALSE, error);
}

const RefitStrategy refit_strategy_gather_broadcast = {
    .name = "gather-broadcast",
    .summary = "assemble full tensors on every source rank, then broadcast them to all",
    .sends = REFIT_SENDS_WHOLE,
    .build = build,
};
