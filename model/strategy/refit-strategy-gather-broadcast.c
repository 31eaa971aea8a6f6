/*
 * Strategy `gather-broadcast`: the conventional path. Every source rank assembles every tensor in
 * full, then buckets of full tensors are broadcast to all ranks of both sides, and each destination
 * rank installs its part. Tensors larger than a bucket go through all of this section by section
 * (refit-strategy-buckets.c). Per bucket:
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

/* Largest group that moves a ring rank by rank. */
#define MAX_RING 8

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
                                       dep == REFIT_HELD ? 0 : 1);
}

/* `state`: per position REFIT_NOT_HELD, REFIT_HELD or the handle of the transfer that brought the
 * cell. */
static void broadcast_over_stages(const Gather *self, guint class_index, guint region,
                                  const RefitCell *cell, guint *state) {
    guint home = self->stage_of[position_of(self, cell->holders[0])];

    for (guint slot = 0; slot < stage_size(self, home); slot++) {
        guint from = self->stage_positions[self->stage_first[home] + slot];

        if (state[from] != REFIT_HELD)
            continue;
        for (guint hop = 1; hop < self->n_stages; hop++) {
            guint stage = (home + hop) % self->n_stages;
            guint to;

            if (slot >= stage_size(self, stage))
                continue;
            to = self->stage_positions[self->stage_first[stage] + slot];
            if (state[to] != REFIT_NOT_HELD)
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
            reached = state[positions[i]] != REFIT_NOT_HELD;
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
    refit_ring_order(self->topology, ranks, n, channel, order);
    while (start < n && order[start] != self->ranks[from])
        start++;
    for (guint i = 0; i < n; i++) {
        guint to = position_of(self, order[(start + i) % n]);

        if (state[to] != REFIT_NOT_HELD)
            continue;
        add_hop(self, class_index, region, self->gather_stage, state, from, to);
        from = to;
    }
}

/*
 * From `from` to the `n` positions of a block, which are in rank order: over the domains, to one
 * position in each, then inside each domain.
 */
static void spread_in_block(const Gather *self, RefitTravel *travel, const guint *block, guint n,
                            guint from) {
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
    travel->first_level = refit_spread(MAX(n_domains, home + 1), home, refit_travel_pass, travel);
    for (guint d = 0; d < n_domains; d++) {
        guint n_inside = MAX(firsts[d + 1] - firsts[d], 1);

        travel->group = block + firsts[d];
        refit_spread(n_inside, place % n_inside, refit_travel_pass, travel);
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
    RefitTravel travel = {.builder = self->builder,
                          .class_index = class_index,
                          .region = region,
                          .stage = self->gather_stage,
                          .landing = REFIT_LANDING_ASSEMBLY,
                          .ranks = self->ranks,
                          .state = state};

    for (guint i = 0; i < size; i++)
        if (state[positions[i]] != REFIT_NOT_HELD)
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
            spread_in_block(self, &travel, block, n, having[h]);
    }
}

/* ---- the whole ---- */

/* The root's own need, when it is a destination too: a copy out of the assembled section. */
static void install_on_root(const Gather *self, guint class_index, const RefitRegion *section,
                            const GArray *root_deps) {
    const RefitCells *cells = self->problem->classes[class_index].cells;
    guint root = self->ranks[0];

    /* Shards of one rank may overlap, cells do not. */
    for (guint i = 0; i < cells->n_cells; i++) {
        const RefitCell *cell = &cells->cells[i];

        if (!refit_ranks_contain(cell->needers, cell->n_needers, root))
            continue;
        g_auto(RefitRegion) common = refit_region_intersect(&cell->region, section);
        if (!refit_region_is_empty(&common))
            refit_plan_builder_add(self->builder, class_index,
                                   refit_plan_builder_region(self->builder, &common), root, root,
                                   self->broadcast_stage, REFIT_LANDING_HOME,
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

/* `bytes`: of one member. */
static guint deal_channel(Gather *self, const RefitClass *klass, guint64 bytes) {
    guint64 *dealt = self->channel_bytes + (gsize)klass->stage * self->n_channels;
    guint least = 0;

    for (guint j = 1; j < self->n_channels; j++)
        if (dealt[j] < dealt[least])
            least = j;
    dealt[least] += bytes * klass->n_members;
    return least;
}

/* A class that outweighs a channel's share of the model is cut, so that all channels carry it.
 * `bytes`: of a section. */
static guint count_parts(const Gather *self, const RefitClass *klass, guint64 bytes) {
    gboolean heavy = klass->bytes * klass->n_members > self->total / self->n_channels;

    return heavy && bytes / self->n_channels >= self->slice_bytes &&
                   refit_dtype_bits(klass->dtype) % 8 == 0
               ? self->n_channels
               : 1;
}

/* Assembles what of a cell is in the section; appends to `root_deps` what brings it to the root. */
static void gather_cell(const Gather *self, guint class_index, const RefitRegion *section,
                        const RefitCell *cell, guint *state, GArray *root_deps) {
    g_auto(RefitRegion) common = refit_region_intersect(&cell->region, section);
    guint region;

    if (refit_region_is_empty(&common))
        return;
    region = refit_plan_builder_region(self->builder, &common);
    for (guint p = 0; p < self->n_positions; p++)
        state[p] = REFIT_NOT_HELD;
    for (guint h = 0; h < cell->n_holders; h++)
        state[position_of(self, cell->holders[h])] = REFIT_HELD;
    broadcast_over_stages(self, class_index, region, cell, state);
    /* Shards ride different channels, by the place of their holder. */
    for (guint stage = 0; stage < self->n_stages; stage++)
        gather_in_stage(self, class_index, region, stage,
                        position_of(self, cell->holders[0]) % self->n_channels, state);
    if (state[0] != REFIT_HELD)
        g_array_append_val(root_deps, state[0]);
}

static void add_section(Gather *self, guint class_index, const RefitRegion *section,
                        const RefitCells *cells, guint *state) {
    const RefitClass *klass = &self->problem->classes[class_index];
    const RefitBroadcast broadcast = {self->builder, self->topology, self->broadcast_stage,
                                      self->everyone, self->ranks[0]};
    guint64 bytes = refit_class_bytes(klass, refit_region_volume(section));
    guint n_parts = count_parts(self, klass, bytes);
    g_autoptr(GArray) root_deps = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint i = 0; i < cells->n_cells; i++)
        gather_cell(self, class_index, section, &cells->cells[i], state, root_deps);
    for (guint i = 0; i < n_parts; i++) {
        g_auto(RefitRegion) part =
            refit_region_stripe(section, n_parts, refit_strategy_grain(klass), i);

        if (!refit_region_is_empty(&part) || n_parts == 1)
            refit_broadcast_add(&broadcast, class_index, &part,
                                deal_channel(self, klass, bytes / n_parts), root_deps);
    }
    install_on_root(self, class_index, section, root_deps);
}

static void add_class(Gather *self, guint class_index, const RefitCells *cells, guint *state) {
    const RefitClass *klass = &self->problem->classes[class_index];
    g_auto(RefitRegion) full = refit_region_full(klass->n_dims, klass->shape);
    guint n;
    const RefitRegion *sections = refit_plan_builder_sections(self->builder, class_index, &n);

    for (guint i = 0; i < n; i++)
        add_section(self, class_index, sections != NULL ? &sections[i] : &full, cells, state);
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
                           refit_broadcast_hops(topology, self.everyone)));
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
