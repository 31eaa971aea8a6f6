/*
 * Random cases. Sizes are drawn so that most cases are tiny and few are large: odd shapes matter
 * more than many elements. Every draw comes from one generator, in a fixed order, so a seed names a
 * case. Cost: that of the oracle's tables.
 */

#include "random-case.h"

#define MAX_PARTS 2
#define MAX_SIDE 64
#define UNEQUAL G_MAXUINT64
#define MAX_ELEMENTS 400

typedef struct {
    GRand *rand;
    RandomCase *random;
    guint n_gpus;
} Draw;

typedef struct {
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    guint first, n_members; /* numbers in the model */
} DrawnTensor;

static guint draw(Draw *self, guint low, guint high) {
    return low + g_rand_int(self->rand) % (high - low + 1);
}

static gboolean draw_chance(Draw *self, guint percent) {
    return draw(self, 1, 100) <= percent;
}

static guint draw_of(Draw *self, const guint *choices, guint n) {
    return choices[draw(self, 0, n - 1)];
}

static void shuffle(Draw *self, guint *items, guint n) {
    for (guint i = n; i > 1; i--) {
        guint j = draw(self, 0, i - 1), item = items[j];
        items[j] = items[i - 1];
        items[i - 1] = item;
    }
}

static void count_up(guint *items, guint n) {
    for (guint i = 0; i < n; i++)
        items[i] = i;
}

static int compare_guints(const void *a, const void *b) {
    const guint *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

static void append_list(GString *text, const guint *items, guint n) {
    g_string_append_c(text, '[');
    for (guint i = 0; i < n; i++)
        g_string_append_printf(text, "%s%u", i > 0 ? ", " : "", items[i]);
    g_string_append_c(text, ']');
}

/* ---- placements ---- */

/* Random sizes of `parts` parts of `extent`, some of them 0; tells whether all are equal. */
static gboolean draw_sizes(Draw *self, guint64 extent, guint parts, guint64 *sizes) {
    gboolean equal = TRUE;

    for (guint i = 0; i < parts; i++)
        sizes[i] = 0;
    for (guint64 i = 0; i < extent; i++)
        sizes[draw(self, 0, parts - 1)]++;
    for (guint i = 1; i < parts; i++)
        equal = equal && sizes[i] == sizes[0];
    return equal;
}

/*
 * What one axis does. `extent` is the size of each dim's parts so far, or UNEQUAL, when stated
 * sizes cannot fit all of them.
 */
static void draw_place(Draw *self, const DrawnTensor *tensor, guint parts, guint64 *extents,
                       RefitPlacement *place, guint64 *sizes) {
    guint64 *extent;

    if (tensor->n_dims == 0 || draw_chance(self, 35))
        return;
    place->kind = REFIT_PLACEMENT_SHARD;
    place->dim = draw(self, 0, tensor->n_dims - 1);
    extent = &extents[place->dim];
    place->split = draw_chance(self, 60) ? REFIT_SPLIT_CHUNK : REFIT_SPLIT_BALANCED;
    if (*extent != UNEQUAL && draw_chance(self, 30)) {
        place->split = REFIT_SPLIT_SIZES;
        place->n_sizes = parts;
        place->sizes = sizes;
        *extent = draw_sizes(self, *extent, parts, sizes) ? sizes[0] : UNEQUAL;
    } else {
        *extent = *extent != UNEQUAL && *extent % parts == 0 ? *extent / parts : UNEQUAL;
    }
}

static void append_place(GString *text, const RefitPlacement *place) {
    static const char *const splits[] = {"chunk", "balanced", "sizes"};

    if (place->kind == REFIT_PLACEMENT_REPLICATE) {
        g_string_append(text, "replicate");
        return;
    }
    g_string_append_printf(text, "{shard: %u, order: %u, split: %s", place->dim, place->order,
                           splits[place->split]);
    for (guint i = 0; i < place->n_sizes; i++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, i == 0 ? ", sizes: [" : ", ",
                               place->sizes[i]);
    g_string_append(text, place->n_sizes > 0 ? "]}" : "}");
}

/* One mesh over some of the side's ranks, written to `text` and given to the oracle. */
static void draw_part(Draw *self, const DrawnTensor *tensor, const guint *side, guint n_side,
                      gboolean needed, GString *text) {
    static const guint axis_sizes[] = {1, 2, 2, 2, 3, 4, 4, 5, 6, 8, 16};
    guint positions[MAX_SIDE], ranks[MAX_SIDE], orders[REFIT_MAX_AXES], n = 1;
    guint64 extents[REFIT_MAX_DIMS], sizes[REFIT_MAX_AXES][MAX_SIDE];
    ElementMesh mesh = {.n_axes = draw(self, 1, 4), .ranks = ranks};

    for (guint axis = 0; axis < mesh.n_axes; axis++) {
        mesh.sizes[axis] = draw_of(self, axis_sizes, G_N_ELEMENTS(axis_sizes));
        if (draw_chance(self, 10))
            mesh.sizes[axis] = n_side / n;
        if (n * mesh.sizes[axis] > n_side)
            mesh.sizes[axis] = 1;
        n *= mesh.sizes[axis];
    }
    count_up(positions, n_side);
    if (draw_chance(self, 50))
        shuffle(self, positions, n_side);
    for (guint i = 0; i < n; i++)
        ranks[i] = side[positions[i]];
    for (guint dim = 0; dim < tensor->n_dims; dim++)
        extents[dim] = tensor->shape[dim];
    count_up(orders, mesh.n_axes);
    if (draw_chance(self, 50))
        shuffle(self, orders, mesh.n_axes);
    for (guint i = 0; i < mesh.n_axes; i++) {
        draw_place(self, tensor, mesh.sizes[orders[i]], extents, &mesh.places[orders[i]],
                   sizes[orders[i]]);
        mesh.places[orders[i]].order = i;
    }
    g_string_append(text, "{mesh: ");
    append_list(text, mesh.sizes, mesh.n_axes);
    g_string_append(text, ", ranks: ");
    append_list(text, positions, n);
    for (guint axis = 0; axis < mesh.n_axes; axis++) {
        g_string_append(text, axis == 0 ? ", place: [" : ", ");
        append_place(text, &mesh.places[axis]);
    }
    g_string_append(text, "]}");
    for (guint m = 0; m < tensor->n_members; m++)
        element_oracle_place(self->random->oracle, tensor->first + m, needed, &mesh);
}

/* ---- sides ---- */

static char *draw_side(Draw *self, const DrawnTensor *tensors, guint n_tensors, const guint *ranks,
                       guint n_ranks, gboolean needed) {
    GString *text = g_string_new("ranks: ");
    g_autoptr(GString) absent = g_string_new(NULL);
    guint kept = draw(self, 0, n_tensors - 1); /* each side has at least one */
    const char *separator = "";

    append_list(text, ranks, n_ranks);
    g_string_append(text, ", rules: [");
    for (guint t = 0; t < n_tensors; t++) {
        guint n_parts = draw_chance(self, 20) ? MAX_PARTS : 1;

        if (needed && t != kept && draw_chance(self, 15)) {
            g_string_append_printf(absent, "%s\"t%u.*\"", absent->len > 0 ? ", " : "", t);
            continue;
        }
        g_string_append_printf(text, "%s{tensors: \"t%u.*\", parts: [", separator, t);
        separator = ", ";
        for (guint part = 0; part < n_parts; part++) {
            g_string_append(text, part > 0 ? ", " : "");
            draw_part(self, &tensors[t], ranks, n_ranks, needed, text);
        }
        g_string_append(text, "]}");
    }
    g_string_append_printf(text, "], absent: [%s]", absent->str);
    return g_string_free(text, FALSE);
}

static void draw_shape(Draw *self, DrawnTensor *tensor) {
    guint64 elements = 1;

    tensor->n_dims = draw_chance(self, 5) ? 0 : draw(self, 1, 5);
    for (guint dim = 0; dim < tensor->n_dims; dim++) {
        tensor->shape[dim] = draw(self, 1, tensor->n_dims < 3 ? 24 : 9);
        if (elements * tensor->shape[dim] > MAX_ELEMENTS)
            tensor->shape[dim] = draw(self, 1, 2);
        elements *= tensor->shape[dim];
    }
}

static guint draw_tensors(Draw *self, DrawnTensor *tensors, guint n) {
    static const RefitDtype dtypes[] = {REFIT_DTYPE_BF16, REFIT_DTYPE_F32, REFIT_DTYPE_F64,
                                        REFIT_DTYPE_U8, REFIT_DTYPE_F8_E4M3};
    static const RefitRole roles[] = {REFIT_ROLE_OTHER, REFIT_ROLE_NORM, REFIT_ROLE_DENSE_UP,
                                      REFIT_ROLE_EXPERT_DOWN};
    static const char *const kinds[] = {"layers", "experts", "w"};
    GString *text = g_string_new(NULL);
    guint n_members = 0;

    for (guint t = 0; t < n; t++) {
        DrawnTensor *tensor = &tensors[t];
        RefitDtype dtype = dtypes[draw(self, 0, G_N_ELEMENTS(dtypes) - 1)];

        *tensor = (DrawnTensor){.first = n_members, .n_members = draw(self, 1, 4)};
        n_members += tensor->n_members;
        draw_shape(self, tensor);
        g_string_append_printf(text, "  - {name: \"t%u.%s.{0-%u}\", dtype: %s, role: %s, shape: [",
                               t, kinds[draw(self, 0, G_N_ELEMENTS(kinds) - 1)],
                               tensor->n_members - 1, refit_dtype_name(dtype),
                               refit_role_name(roles[draw(self, 0, G_N_ELEMENTS(roles) - 1)]));
        for (guint dim = 0; dim < tensor->n_dims; dim++)
            g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, dim > 0 ? ", " : "",
                                   tensor->shape[dim]);
        g_string_append(text, "]}\n");
        for (guint m = 0; m < tensor->n_members; m++)
            element_oracle_add_tensor(self->random->oracle, tensor->n_dims, tensor->shape,
                                      refit_dtype_bits(dtype) / 8);
    }
    self->random->tensors = g_string_free(text, FALSE);
    return n_members;
}

static void draw_profile(Draw *self) {
    static const guint stripes[] = {1, 1, 4, 16, 64, 16384};
    static const guint slices[] = {1, 64, 1000000};
    static const guint buckets[] = {1, 100, 1000, 1000000000};
    RandomCase *random = self->random;

    random->stripe_bytes = draw_of(self, stripes, G_N_ELEMENTS(stripes));
    random->slice_bytes = draw_of(self, slices, G_N_ELEMENTS(slices));
    random->bucket_bytes = draw_of(self, buckets, G_N_ELEMENTS(buckets));
    random->lanes = draw(self, 1, 3);
    random->slices = draw(self, 1, 4);
    random->batches = draw(self, 1, 6);
}

/* Sizes of the sides, GPUs enough for them, and who is where: ranks holds all GPUs, shuffled. */
static void draw_topology(Draw *self, const guint *sizes, guint n_sides, gboolean apart) {
    guint per_node = draw(self, 1, 8), per_domain = draw(self, 1, 8 / per_node);
    guint needed = apart ? sizes[0] : 0, n_nodes;

    for (guint pool = 1; pool < n_sides; pool++)
        needed += sizes[pool];
    needed = MAX(needed, sizes[0]) + (draw_chance(self, 50) ? draw(self, 0, 4) : 0);
    n_nodes = (needed + per_node - 1) / per_node;
    self->n_gpus = n_nodes * per_node;
    self->random->topology =
        g_strdup_printf("node:%u gpu:%u domain:%u nvlink:450GBps nic:%uGBps", n_nodes, per_node,
                        per_domain, draw_chance(self, 50) ? 50u : 2u);
    self->random->oracle = element_oracle_new(self->n_gpus, per_node * per_domain);
}

RandomCase *random_case_new(guint seed) {
    static const guint largest[] = {2, 4, 4, 8, 8, 8, 12, 16, 24, MAX_SIDE};
    RandomCase *random = g_new0(RandomCase, 1);
    Draw self = {.rand = g_rand_new_with_seed(seed), .random = random};
    DrawnTensor tensors[4];
    guint sizes[3], n_tensors = draw(&self, 1, G_N_ELEMENTS(tensors));
    guint n_sides = draw_chance(&self, 20) ? 3 : 2;
    guint most = draw_of(&self, largest, G_N_ELEMENTS(largest));
    gboolean apart = draw_chance(&self, 50);

    random->seed = seed;
    for (guint side = 0; side < n_sides; side++) {
        sizes[side] = draw(&self, 1, most / (side > 0 ? n_sides - 1 : 1));
        random->n_ranks += sizes[side];
    }
    draw_topology(&self, sizes, n_sides, apart);
    random->n_tensors = draw_tensors(&self, tensors, n_tensors);
    draw_profile(&self);
    g_autofree guint *gpus = g_new(guint, self.n_gpus);
    count_up(gpus, self.n_gpus);
    if (draw_chance(&self, 70))
        shuffle(&self, gpus, self.n_gpus);
    for (guint side = 0, at = 0; side < n_sides; side++) {
        guint *ranks = gpus + at;

        if (draw_chance(&self, 50))
            qsort(ranks, sizes[side], sizeof *ranks, compare_guints);
        char *text = draw_side(&self, tensors, n_tensors, ranks, sizes[side], side > 0);

        if (side == 0)
            random->source = text;
        else
            random->pools[side - 1] = text;
        at += sizes[side];
        if (side == 0 && !apart) { /* destinations among all GPUs, the source's included */
            at = 0;
            if (draw_chance(&self, 70))
                shuffle(&self, gpus, self.n_gpus);
        }
    }
    random->n_stages = draw(&self, 1, 4);
    if (sizes[0] % random->n_stages != 0)
        random->n_stages = 1;
    g_rand_free(self.rand);
    return random;
}

void random_case_free(RandomCase *random) {
    if (random == NULL)
        return;
    g_free(random->topology);
    g_free(random->tensors);
    g_free(random->source);
    for (guint pool = 0; pool < G_N_ELEMENTS(random->pools); pool++)
        g_free(random->pools[pool]);
    element_oracle_free(random->oracle);
    g_free(random);
}

RefitCase *random_case_build(const RandomCase *random) {
    const StrategyCase described = {.topology = random->topology,
                                    .tensors = random->tensors,
                                    .source = random->source,
                                    .pools = {random->pools[0], random->pools[1]}};
    RefitCase *refit_case = strategy_case_new(&described);
    RefitProfile *profile = refit_case->profile;
    guint n = refit_layout_n_ranks(refit_case->source);
    g_autofree guint *stages = g_new(guint, n);

    profile->stripe_bytes.value = random->stripe_bytes;
    profile->slice_bytes.value = random->slice_bytes;
    profile->bucket_bytes.value = random->bucket_bytes;
    profile->stage_lanes = random->lanes;
    profile->slices = random->slices;
    profile->batches = random->batches;
    /* Stages are contiguous, as pipeline parallelism is outermost. */
    for (guint position = 0; position < n; position++)
        stages[position] = position / (n / random->n_stages);
    refit_layout_set_stages(refit_case->source, random->n_stages, stages);
    return refit_case;
}

char *random_case_to_string(const RandomCase *random) {
    GString *text = g_string_new(NULL);

    g_string_append_printf(text,
                           "# model.yaml\nschema: refit.model/1\nname: made-up\nfamily: list\n"
                           "tensors:\n%s\n# case %u; pipeline stages of the source: %u\n"
                           "schema: refit.case/1\nmodel: ./model.yaml\ndtype: bf16\n"
                           "topology: \"%s\"\nprofile: {stripe_bytes: %uB, slice_bytes: %uB, "
                           "bucket_bytes: %uB, stage_lanes: %u, slices: %u, batches: %u}\n"
                           "train: {framework: explicit, %s}\ngeneration:\n",
                           random->tensors, random->seed, random->n_stages, random->topology,
                           random->stripe_bytes, random->slice_bytes, random->bucket_bytes,
                           random->lanes, random->slices, random->batches, random->source);
    for (guint pool = 0; pool < G_N_ELEMENTS(random->pools) && random->pools[pool] != NULL; pool++)
        g_string_append_printf(text, "  - {framework: explicit, %s}\n", random->pools[pool]);
    return g_string_free(text, FALSE);
}
