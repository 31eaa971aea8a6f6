/*
 * Strategy `gather-broadcast`: the conventional path. Every source rank assembles every tensor in
 * full, then buckets of full tensors are broadcast to all ranks of both sides, and each destination
 * rank installs its part. Per bucket:
 *
 *   step                 route                                             each rank receives
 *   pipeline broadcast   from the owning stage in a chain over the         (PP-1)/PP x
 *                        same-position ranks of all other stages           (We/EP + Wd/TP)
 *   gather               each shard in a ring over the ranks of a          (n-1)/n of what n
 *                        stage that hold the other shards                  ranks hold together
 *   broadcast            one chain from the first source rank over         W
 *                        all ranks, domain by domain
 *
 * Rings and chains are rotated per channel as collective libraries do: channel j leaves a domain at
 * its j-th GPU and enters the next at the one after, so that all NICs of a domain carry a share and
 * each domain takes W in once. Channels are dealt to classes by bytes. Cost: (source + destination
 * ranks) x classes.
 */

#include "refit-strategy-private.h"

/* Merging buckets keeps the number of messages in hand; each still costs its own fixed time. */
#define MAX_BATCHES 32

#define NO_CLASS G_MAXUINT

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
    const guint *ranks; /* position -> rank; positions of a stage are contiguous below */
    guint n_stages;
    guint *stage_first;      /* n_stages + 1 offsets into stage_positions */
    guint *stage_positions;  /* positions ordered by (stage, position) */
    GHashTable *position_of; /* rank -> position + 1 */
    GArray *everyone;        /* ranks of both sides, ascending */
    guint n_channels;
    guint64 *channel_bytes; /* dealt so far, per (stage, channel) */
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

static void number_positions(Gather *self) {
    const RefitLayout *source = self->problem->refit_case->source;
    guint slot = 0;

    self->n_stages = refit_layout_n_stages(source);
    self->stage_first = g_new0(guint, self->n_stages + 1);
    self->stage_positions = g_new(guint, self->n_positions);
    for (guint stage = 0; stage < self->n_stages; stage++) {
        self->stage_first[stage] = slot;
        for (guint p = 0; p < self->n_positions; p++) {
            if (refit_layout_stage_of(source, p) != stage)
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
    guint home = refit_layout_stage_of(self->problem->refit_case->source,
                                       position_of(self, cell->holders[0]));

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
    g_autofree guint *order = g_new(guint, size);
    guint n_having = 0;

    for (guint i = 0; i < size; i++)
        if (state[positions[i]] != NOT_HELD)
            having[n_having++] = positions[i];
    for (guint h = 0; h < n_having; h++) {
        guint first = (guint)((guint64)h * size / n_having);
        guint end = (guint)((guint64)(h + 1) * size / n_having);
        guint n = end - first, start = 0, from = having[h];

        for (guint i = 0; i < n; i++)
            block[i] = self->ranks[positions[first + i]];
        refit_ranks_sort(block, n);
        ring_order(self->topology, block, n, channel, order);
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
}

/* ---- all ranks: the broadcast ---- */

/*
 * The broadcast. `root_deps`: transfers that completed the tensor on the root. The root's own need,
 * when it is a destination too, is a local copy out of the assembled tensor.
 */
static void broadcast_to_all(const Gather *self, guint class_index, guint channel,
                             const GArray *root_deps) {
    const RefitClass *klass = &self->problem->classes[class_index];
    guint n = self->everyone->len, root = self->ranks[0], start = 0, from, dep = 0;
    const guint *deps = (const guint *)(gpointer)root_deps->data;
    guint n_deps = root_deps->len;
    g_autofree guint *order = g_new(guint, n);
    g_auto(RefitRegion) full = refit_region_full(klass->n_dims, klass->shape);
    guint region = refit_plan_builder_region(self->builder, &full);

    ring_order(self->topology, (const guint *)(gpointer)self->everyone->data, n, channel, order);
    while (order[start] != root)
        start++;
    from = root;
    for (guint i = 1; i < n; i++) {
        guint to = order[(start + i) % n];

        dep = refit_plan_builder_add(self->builder, class_index, region, from, to,
                                     self->broadcast_stage, REFIT_LANDING_BUCKET, deps, n_deps);
        deps = &dep;
        n_deps = 1;
        from = to;
    }
    /* Shards of one rank may overlap, cells do not. */
    for (guint i = 0; i < klass->cells->n_cells; i++) {
        const RefitCell *cell = &klass->cells->cells[i];

        if (refit_ranks_contain(cell->needers, cell->n_needers, root))
            refit_plan_builder_add(self->builder, class_index,
                                   refit_plan_builder_region(self->builder, &cell->region), root,
                                   root, self->broadcast_stage, REFIT_LANDING_HOME,
                                   (const guint *)(gpointer)root_deps->data, root_deps->len);
    }
}

static guint deal_channel(Gather *self, const RefitClass *klass) {
    guint64 *dealt = self->channel_bytes + (gsize)klass->stage * self->n_channels;
    guint least = 0;

    for (guint j = 1; j < self->n_channels; j++)
        if (dealt[j] < dealt[least])
            least = j;
    dealt[least] += klass->bytes * klass->n_members;
    return least;
}

static void add_class(Gather *self, guint class_index, const RefitCells *parts, guint *state) {
    const RefitClass *klass = &self->problem->classes[class_index];
    guint channel = deal_channel(self, klass);
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
    broadcast_to_all(self, class_index, channel, root_deps);
}

/* ---- buckets ---- */

static void assign_buckets(Gather *self, gboolean barrier, guint64 *largest_batch_out) {
    const RefitProblem *problem = self->problem;
    const RefitProfile *profile = problem->refit_case->profile;
    guint n_tensors = refit_model_n_tensors(problem->refit_case->model);
    double share = profile->bucket_memory_percent.value / 100.0 * self->topology->memory.value;
    double limit = profile->bucket_bytes.value;
    guint64 total = refit_selection_bytes(self->selection, problem);
    guint64 bucket_bytes = (guint64)MAX(1.0, share > 0 ? MIN(share, limit) : limit);
    guint64 n_full = total / bucket_bytes + (total % bucket_bytes != 0);
    guint n_buckets = (guint)MIN(n_full, G_MAXUINT / 2);
    guint n_batches = CLAMP(n_buckets, 1, MAX_BATCHES);
    guint first = 0;
    guint64 done = 0, largest = 0;
    g_autofree guint *class_of = g_new(guint, n_tensors);
    g_autofree guint *member_of = g_new(guint, n_tensors);
    g_autofree guint64 *filled = g_new0(guint64, n_batches);

    for (guint t = 0; t < n_tensors; t++)
        class_of[t] = NO_CLASS;
    for (guint c = 0; c < problem->n_classes; c++) {
        const RefitClass *klass = &problem->classes[c];

        for (guint m = 0; refit_selection_has(self->selection, klass) && m < klass->n_members;
             m++) {
            class_of[klass->members[m]] = c;
            member_of[klass->members[m]] = m;
        }
    }
    for (guint b = 0; b < n_batches; b++) {
        guint buckets =
            (guint)((guint64)(b + 1) * n_buckets / n_batches - (guint64)b * n_buckets / n_batches);
        guint batch = refit_plan_builder_add_batch(self->builder, 0, buckets, barrier && b == 0);

        if (b == 0)
            first = batch;
    }
    for (guint t = 0; t < n_tensors; t++) {
        guint b;
        guint64 bytes;

        if (class_of[t] == NO_CLASS)
            continue;
        b = (guint)(done / (total / n_batches + 1));
        bytes = problem->classes[class_of[t]].bytes;
        refit_plan_builder_assign(self->builder, class_of[t], member_of[t], first + b);
        done += bytes;
        filled[b] += bytes;
    }
    for (guint b = 0; b < n_batches; b++)
        largest = MAX(largest, filled[b]);
    *largest_batch_out = largest;
}

static guint count_slices(guint64 bytes, double slice_bytes) {
    return (guint)CLAMP((double)bytes / MAX(slice_bytes, 1.0), 2.0, 65536.0);
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
    g_free(self->stage_first);
    g_free(self->stage_positions);
    g_clear_pointer(&self->position_of, g_hash_table_unref);
    g_clear_pointer(&self->everyone, g_array_unref);
    g_free(self->channel_bytes);
}

static GArray *list_everyone(const RefitCase *refit_case) {
    GArray *all = g_array_new(FALSE, FALSE, sizeof(guint));
    guint *ranks;

    g_array_append_vals(all, refit_layout_ranks(refit_case->source),
                        refit_layout_n_ranks(refit_case->source));
    for (guint d = 0; d < refit_case->n_destinations; d++)
        g_array_append_vals(all, refit_layout_ranks(refit_case->destinations[d]),
                            refit_layout_n_ranks(refit_case->destinations[d]));
    ranks = (guint *)(gpointer)all->data;
    refit_ranks_sort(ranks, all->len);
    g_array_set_size(all, refit_ranks_drop_repeats(ranks, all->len));
    return all;
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
        .n_positions = refit_layout_n_ranks(refit_case->source),
        .ranks = refit_layout_ranks(refit_case->source),
        .n_channels = refit_topology_gpus_per_domain(topology),
    };
    g_autofree guint *state = g_new(guint, self.n_positions);
    /* Source holding -> its cut; classes with equal holdings share one. Lookup only. */
    g_autoptr(GHashTable) cuts =
        g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)refit_cells_free);
    double slice_bytes = refit_case->profile->slice_bytes.value;
    guint64 largest_batch = 0;
    guint shard_slices;
    gboolean complete = TRUE;

    refit_plan_builder_set_window(builder, 1);
    assign_buckets(&self, barrier, &largest_batch);
    number_positions(&self);
    self.everyone = list_everyone(refit_case);
    self.channel_bytes = g_new0(guint64, (gsize)self.n_stages * self.n_channels);
    shard_slices = count_slices(largest_batch / self.n_positions * self.n_stages, slice_bytes);
    self.pipeline_stage = refit_plan_builder_add_stage(builder, "pipeline broadcast", shard_slices);
    self.gather_stage = refit_plan_builder_add_stage(builder, "gather", shard_slices);
    self.broadcast_stage = refit_plan_builder_add_stage(
        builder, "broadcast", count_slices(largest_batch / self.n_channels, slice_bytes));
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
    .build = build,
};
