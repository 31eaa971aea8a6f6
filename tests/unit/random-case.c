/*
 * Random cases. Sizes are drawn so that most cases are tiny and few are large: odd shapes matter
 * more than many elements. Every draw comes from one generator, in a fixed order, so a seed names a
 * case. Cost: that of the oracle's tables.
 */

#include "random-case.h"

#include <string.h>

#define MAX_PARTS 2
#define MAX_SIDE 64
#define UNEQUAL G_MAXUINT64
#define MAX_ELEMENTS 400
#define MAX_FUSED 3
#define MAX_TENSORS 5

typedef struct {
    GRand *rand;
    RandomCase *random;
    guint n_gpus;
} Draw;

typedef struct {
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    guint number, first, n_members; /* in the names, and in the model */
    const char *kind;
    guint n_fused; /* this one and those after it make up a parameter where a side fuses them */
    guint64 block; /* their rows in turn */
} DrawnTensor;

/* What a rule holds: one tensor, or a parameter of several, each with its members. */
typedef struct {
    const DrawnTensor *parts;
    guint n_parts;
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    guint64 blocks[MAX_FUSED];
    guint64 padded[REFIT_MAX_DIMS]; /* 0: not */
} Target;

/* What the placements of a mesh point to. */
typedef struct {
    guint64 sizes[REFIT_MAX_AXES][MAX_SIDE];
    GArray *lists[REFIT_MAX_AXES][MAX_SIDE];
} Stock;

static guint draw(Draw *self, guint low, guint high) {
    g_assert_cmpuint(high - low, <, G_MAXUINT);
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
 * Lists for `parts` of `extent` places. All places are somewhere, in any order; some twice. A side
 * that only needs the tensor may leave places out.
 */
static void draw_lists(Draw *self, guint extent, guint parts, gboolean needed, GArray **lists) {
    g_autofree guint *places = g_new(guint, MAX(extent, 1));
    guint part = 0;

    count_up(places, extent);
    if (draw_chance(self, 40))
        shuffle(self, places, extent);
    for (guint i = 0; i < parts; i++)
        lists[i] = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint i = 0; i < extent; i++) {
        if (draw_chance(self, 30))
            part = draw(self, 0, parts - 1);
        if (needed && draw_chance(self, 10))
            continue;
        g_array_append_val(lists[part], places[i]);
        if (parts > 1 && draw_chance(self, 15)) /* the next part has it too */
            g_array_append_val(lists[(part + 1) % parts], places[i]);
    }
}

static void draw_segments(Draw *self, guint extent, guint parts, ElementCut *cut) {
    cut->n_segments = draw(self, 1, ELEMENT_MAX_SEGMENTS);
    for (guint i = 0; i < cut->n_segments; i++) {
        cut->extents[i] = i + 1 < cut->n_segments ? draw(self, 0, extent) : extent;
        cut->ways[i] = draw_chance(self, 50) ? parts : draw(self, 1, parts);
        extent -= (guint)cut->extents[i];
    }
}

/*
 * What one axis does. `extent` is the size of each dim's parts so far, or UNEQUAL, when what is
 * stated cannot fit all of them.
 */
static void draw_place(Draw *self, const Target *target, guint parts, gboolean needed,
                       guint64 *extents, RefitPlacement *place, ElementCut *cut, guint64 *sizes,
                       GArray **lists) {
    guint64 *extent, before;

    if (target->n_dims == 0 || draw_chance(self, 35))
        return;
    place->kind = REFIT_PLACEMENT_SHARD;
    place->dim = draw(self, 0, target->n_dims - 1);
    extent = &extents[place->dim];
    before = *extent;
    *extent = UNEQUAL;
    if (before != UNEQUAL && draw_chance(self, 25)) {
        place->split = REFIT_SPLIT_SIZES;
        place->n_sizes = parts;
        place->sizes = sizes;
        if (draw_sizes(self, before, parts, sizes))
            *extent = sizes[0];
    } else if (before != UNEQUAL && draw_chance(self, 25)) {
        place->split = REFIT_SPLIT_LISTS;
        if (draw_chance(self, 50)) {
            draw_segments(self, (guint)before, parts, cut);
        } else {
            draw_lists(self, (guint)before, parts, needed, lists);
            cut->lists = lists;
        }
    } else if (draw_chance(self, 20)) {
        place->split = REFIT_SPLIT_STRIDED;
        place->chunks = draw(self, 1, 5);
        if (before != UNEQUAL && before % (place->chunks * parts) == 0)
            *extent = before / parts;
    } else {
        place->split = draw_chance(self, 60) ? REFIT_SPLIT_CHUNK : REFIT_SPLIT_BALANCED;
        if (before != UNEQUAL && before % parts == 0)
            *extent = before / parts;
    }
}

/* Runs of ascending places as first-last. */
static void append_places(GString *text, const GArray *places) {
    g_string_append_c(text, '[');
    for (guint i = 0, end; i < places->len; i = end) {
        guint first = g_array_index(places, guint, i), last = first;

        for (end = i + 1; end < places->len && g_array_index(places, guint, end) == last + 1; end++)
            last++;
        g_string_append_printf(text, last > first ? "%s%u-%u" : "%s%u", i > 0 ? ", " : "", first,
                               last);
    }
    g_string_append_c(text, ']');
}

static void append_place(GString *text, const RefitPlacement *place, const ElementCut *cut,
                         guint parts) {
    static const char *const splits[] = {"chunk", "balanced", "sizes", "strided", "lists"};

    if (place->kind == REFIT_PLACEMENT_REPLICATE) {
        g_string_append(text, "replicate");
        return;
    }
    g_string_append_printf(text, "{shard: %u, order: %u, split: %s", place->dim, place->order,
                           cut->n_segments > 0 ? "segments" : splits[place->split]);
    for (guint i = 0; i < place->n_sizes; i++)
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, i == 0 ? ", sizes: [" : ", ",
                               place->sizes[i]);
    if (place->split == REFIT_SPLIT_STRIDED)
        g_string_append_printf(text, ", chunks: %u", place->chunks);
    for (guint i = 0; i < parts && cut->lists != NULL; i++) {
        g_string_append(text, i == 0 ? ", lists: [" : ", ");
        append_places(text, cut->lists[i]);
    }
    for (guint i = 0; i < cut->n_segments; i++)
        g_string_append_printf(text, "%s{extent: %" G_GUINT64_FORMAT ", ways: %u}",
                               i == 0 ? ", segments: [" : ", ", cut->extents[i], cut->ways[i]);
    g_string_append(text, place->n_sizes + cut->n_segments > 0 || cut->lists != NULL ? "]}" : "}");
}

/* Gives the mesh to the oracle, for every member. */
static void place_members(Draw *self, const Target *target, gboolean needed,
                          const ElementMesh *mesh) {
    ElementOracle *oracle = self->random->oracle;

    for (guint m = 0; m < target->parts[0].n_members; m++) {
        guint tensors[MAX_FUSED];

        for (guint i = 0; i < target->n_parts; i++)
            tensors[i] = target->parts[i].first + m;
        if (target->blocks[0] == 0)
            element_oracle_place(oracle, tensors[0], needed, mesh);
        else
            element_oracle_place_fused(oracle, tensors, target->n_parts, target->blocks, needed,
                                       mesh);
    }
}

/* One mesh over some of the side's ranks, written to `text` and given to the oracle. */
static void draw_part(Draw *self, const Target *target, const guint *side, guint n_side,
                      gboolean needed, GString *text) {
    static const guint axis_sizes[] = {1, 2, 2, 2, 3, 4, 4, 5, 6, 8, 16};
    guint positions[MAX_SIDE] = {0}, ranks[MAX_SIDE], orders[REFIT_MAX_AXES], n = 1;
    guint64 extents[REFIT_MAX_DIMS];
    ElementMesh mesh = {.n_axes = draw(self, 1, 4), .ranks = ranks};
    Stock *stock = g_new0(Stock, 1);

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
    memcpy(mesh.padded, target->padded, sizeof mesh.padded);
    for (guint dim = 0; dim < target->n_dims; dim++)
        extents[dim] = MAX(target->shape[dim], target->padded[dim]);
    count_up(orders, mesh.n_axes);
    if (draw_chance(self, 50))
        shuffle(self, orders, mesh.n_axes);
    for (guint i = 0; i < mesh.n_axes; i++) {
        guint axis = orders[i];

        draw_place(self, target, mesh.sizes[axis], needed, extents, &mesh.places[axis],
                   &mesh.cuts[axis], stock->sizes[axis], stock->lists[axis]);
        mesh.places[axis].order = i;
    }
    g_string_append(text, "{mesh: ");
    append_list(text, mesh.sizes, mesh.n_axes);
    g_string_append(text, ", ranks: ");
    append_list(text, positions, n);
    for (guint axis = 0; axis < mesh.n_axes; axis++) {
        g_string_append(text, axis == 0 ? ", place: [" : ", ");
        append_place(text, &mesh.places[axis], &mesh.cuts[axis], mesh.sizes[axis]);
    }
    g_string_append(text, "]}");
    place_members(self, target, needed, &mesh);
    for (guint axis = 0; axis < mesh.n_axes; axis++)
        for (guint i = 0; i < MAX_SIDE; i++)
            g_clear_pointer(&stock->lists[axis][i], g_array_unref);
    g_free(stock);
}

/* ---- sides ---- */

/* The tensor alone, or all parts of its parameter. */
static void draw_target(Draw *self, const DrawnTensor *tensor, guint n_parts, Target *target) {
    gboolean whole = draw_chance(self, 20); /* not in blocks, but one after the other */

    *target = (Target){.parts = tensor, .n_parts = n_parts, .n_dims = tensor->n_dims};
    memcpy(target->shape, tensor->shape, sizeof target->shape);
    for (guint i = 1; i < n_parts; i++)
        target->shape[0] += tensor[i].shape[0];
    for (guint i = 0; i < n_parts && n_parts > 1; i++)
        target->blocks[i] = whole ? tensor[i].shape[0] : tensor[i].block;
    for (guint dim = 0; dim < target->n_dims; dim++)
        if (draw_chance(self, 8))
            target->padded[dim] = target->shape[dim] + draw(self, 1, 6);
}

static void append_target(GString *text, const Target *target) {
    const char *separator = "";

    if (target->n_parts == 1) {
        g_string_append_printf(text, "{tensors: \"t%u.*\"", target->parts->number);
    } else {
        for (guint i = 0; i < target->n_parts; i++)
            g_string_append_printf(text, "%s\"t%u.%s.*\"", i > 0 ? ", " : "{fused: [",
                                   target->parts[i].number, target->parts[i].kind);
        g_string_append_printf(text, "], parameter: \"f%u.*\"", target->parts->number);
        for (guint i = 0; i < target->n_parts; i++)
            g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, i > 0 ? ", " : ", blocks: [",
                                   target->blocks[i]);
        g_string_append_c(text, ']');
    }
    for (guint dim = 0; dim < target->n_dims; dim++) {
        if (target->padded[dim] == 0)
            continue;
        g_string_append_printf(text, "%s%u: %" G_GUINT64_FORMAT,
                               *separator == '\0' ? ", padded: {" : separator, dim,
                               target->padded[dim]);
        separator = ", ";
    }
    g_string_append(text, *separator == '\0' ? ", parts: [" : "}, parts: [");
}

static char *draw_side(Draw *self, const DrawnTensor *tensors, guint n_tensors, const guint *ranks,
                       guint n_ranks, gboolean needed) {
    GString *text = g_string_new("ranks: ");
    g_autoptr(GString) absent = g_string_new(NULL);
    guint kept = draw(self, 0, n_tensors - 1); /* each side has at least one */
    const char *separator = "";

    append_list(text, ranks, n_ranks);
    g_string_append(text, ", rules: [");
    for (guint t = 0, n = 1; t < n_tensors; t += n) {
        guint n_parts = draw_chance(self, 20) ? MAX_PARTS : 1;
        Target target;

        n = tensors[t].n_fused > 1 && draw_chance(self, 70) ? tensors[t].n_fused : 1;
        if (needed && n == 1 && t != kept && draw_chance(self, 15)) {
            g_string_append_printf(absent, "%s\"t%u.*\"", absent->len > 0 ? ", " : "", t);
            continue;
        }
        draw_target(self, &tensors[t], n, &target);
        g_string_append(text, separator);
        append_target(text, &target);
        separator = ", ";
        for (guint part = 0; part < n_parts; part++) {
            g_string_append(text, part > 0 ? ", " : "");
            draw_part(self, &target, ranks, n_ranks, needed, text);
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

/* Makes the tensors from `first` on parts of one parameter: alike but for their rows. */
static void draw_fused(Draw *self, DrawnTensor *tensors, guint n) {
    guint n_blocks = draw(self, 1, 4);

    if (tensors[0].n_dims == 0)
        return;
    for (guint i = 0; i < n; i++) {
        DrawnTensor *tensor = &tensors[i];

        tensor->n_dims = tensors[0].n_dims;
        memcpy(tensor->shape, tensors[0].shape, sizeof tensor->shape);
        tensor->n_members = tensors[0].n_members;
        tensor->block = draw(self, 1, 4);
        tensor->shape[0] = n_blocks * tensor->block;
    }
    tensors[0].n_fused = n;
}

static guint draw_tensors(Draw *self, DrawnTensor *tensors, guint n) {
    static const RefitDtype dtypes[] = {REFIT_DTYPE_BF16, REFIT_DTYPE_F32, REFIT_DTYPE_F64,
                                        REFIT_DTYPE_U8, REFIT_DTYPE_F8_E4M3};
    static const RefitRole roles[] = {REFIT_ROLE_OTHER, REFIT_ROLE_NORM, REFIT_ROLE_DENSE_UP,
                                      REFIT_ROLE_EXPERT_DOWN};
    static const char *const kinds[] = {"layers", "experts", "w"};
    GString *text = g_string_new(NULL);
    guint n_members = 0, fused_end = 0;
    RefitDtype dtype = REFIT_DTYPE_BF16;

    for (guint t = 0; t < n; t++) {
        DrawnTensor *tensor = &tensors[t];

        *tensor = (DrawnTensor){.number = t, .n_fused = 1};
        tensor->n_members = draw(self, 1, 4);
        tensor->kind = kinds[draw(self, 0, G_N_ELEMENTS(kinds) - 1)];
        draw_shape(self, tensor);
    }
    for (guint t = 0; t + 1 < n; t += tensors[t].n_fused)
        if (draw_chance(self, 35))
            draw_fused(self, &tensors[t], draw(self, 2, MIN(MAX_FUSED, n - t)));
    for (guint t = 0; t < n; t++) {
        DrawnTensor *tensor = &tensors[t];

        tensor->first = n_members;
        n_members += tensor->n_members;
        if (t >= fused_end) {
            dtype = dtypes[draw(self, 0, G_N_ELEMENTS(dtypes) - 1)];
            fused_end = t + tensor->n_fused;
        }
        g_string_append_printf(text, "  - {name: \"t%u.%s.{0-%u}\", dtype: %s, role: %s, shape: [",
                               t, tensor->kind, tensor->n_members - 1, refit_dtype_name(dtype),
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
    DrawnTensor tensors[MAX_TENSORS];
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
