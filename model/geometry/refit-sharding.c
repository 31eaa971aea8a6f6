/*
 * Shardings: the stated layout of one kind of tensor, before it meets a shape.
 *
 * Problem: layouts come from files and recipes, many are equal, and mistakes in them must be named
 * before anything is planned. Method: everything that does not need a shape is checked when a part
 * is added, and placements are stored in a normal form (fields without meaning zeroed, `order`
 * renumbered 0, 1, ... per dim), so two shardings that say the same compare equal. A region of one
 * rank is a mesh with an axis of size 1 per dim and one stated list each, so it is no special case
 * anywhere. Cost: placements and ranks.
 */

#include "model/geometry/refit-geometry-private.h"

#include <string.h>

typedef struct {
    RefitMesh *mesh;
    RefitPlacement *placements;
} Part;

struct _RefitSharding {
    GArray *parts;                  /* Part */
    guint64 padded[REFIT_MAX_DIMS]; /* 0: as the tensor */
};

static void placements_free(RefitPlacement *placements, guint n) {
    for (guint a = 0; a < n; a++) {
        g_free((guint64 *)placements[a].sizes);
        refit_lists_free((RefitIntervalList **)placements[a].lists, placements[a].n_lists);
    }
    g_free(placements);
}

RefitSharding *refit_sharding_new(void) {
    RefitSharding *sharding = g_new0(RefitSharding, 1);

    sharding->parts = g_array_new(FALSE, FALSE, sizeof(Part));
    return sharding;
}

void refit_sharding_free(RefitSharding *sharding) {
    if (sharding == NULL)
        return;
    for (guint i = 0; i < sharding->parts->len; i++) {
        Part *part = &g_array_index(sharding->parts, Part, i);

        placements_free(part->placements, part->mesh->n_axes);
        refit_mesh_free(part->mesh);
    }
    g_array_unref(sharding->parts);
    g_free(sharding);
}

static gboolean check_placement(const RefitMesh *mesh, const RefitPlacement *placements, guint axis,
                                GError **error) {
    const RefitPlacement *placement = &placements[axis];

    if (placement->kind == REFIT_PLACEMENT_REPLICATE)
        return TRUE;
    if (placement->dim >= REFIT_MAX_DIMS) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "mesh axis %u shards dim %u, the largest dim is %d", axis, placement->dim,
                    REFIT_MAX_DIMS - 1);
        return FALSE;
    }
    if (placement->split == REFIT_SPLIT_SIZES && placement->n_sizes != mesh->sizes[axis]) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARTITION_COUNT,
                    "mesh axis %u has %u positions, but %u part sizes are stated: "
                    "state one size for each position",
                    axis, mesh->sizes[axis], placement->n_sizes);
        return FALSE;
    }
    if (placement->split == REFIT_SPLIT_LISTS && placement->n_lists != mesh->sizes[axis]) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARTITION_COUNT,
                    "mesh axis %u has %u positions, but %u lists of places are stated: "
                    "state one list for each position",
                    axis, mesh->sizes[axis], placement->n_lists);
        return FALSE;
    }
    if (placement->split == REFIT_SPLIT_STRIDED && placement->chunks == 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "mesh axis %u cuts each of 0 chunks: state at least 1 chunk", axis);
        return FALSE;
    }
    for (guint other = 0; other < axis; other++) {
        if (placements[other].kind == REFIT_PLACEMENT_SHARD &&
            placements[other].dim == placement->dim &&
            placements[other].order == placement->order) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "mesh axes %u and %u both shard dim %u with order %u: "
                        "give them different orders to say which cuts first",
                        other, axis, placement->dim, placement->order);
            return FALSE;
        }
    }
    return TRUE;
}

static RefitPlacement placement_normal(const RefitPlacement *placements, guint n_axes, guint axis) {
    const RefitPlacement *given = &placements[axis];
    RefitPlacement normal = {.kind = given->kind};

    if (given->kind == REFIT_PLACEMENT_REPLICATE)
        return normal;
    normal.dim = given->dim;
    normal.split = given->split;
    for (guint other = 0; other < n_axes; other++) {
        if (placements[other].kind == REFIT_PLACEMENT_SHARD &&
            placements[other].dim == given->dim && placements[other].order < given->order)
            normal.order++;
    }
    if (given->split == REFIT_SPLIT_SIZES) {
        normal.n_sizes = given->n_sizes;
        normal.sizes = g_memdup2(given->sizes, given->n_sizes * sizeof *given->sizes);
    }
    if (given->split == REFIT_SPLIT_STRIDED && given->chunks == 1)
        normal.split = REFIT_SPLIT_CHUNK;
    else if (given->split == REFIT_SPLIT_STRIDED)
        normal.chunks = given->chunks;
    if (given->split == REFIT_SPLIT_LISTS) {
        RefitIntervalList **lists = g_new(RefitIntervalList *, given->n_lists);

        for (guint i = 0; i < given->n_lists; i++)
            lists[i] = refit_interval_list_ref(given->lists[i]);
        normal.n_lists = given->n_lists;
        normal.lists = lists;
    }
    return normal;
}

gboolean refit_sharding_add(RefitSharding *sharding, RefitMesh *mesh,
                            const RefitPlacement *placements, GError **error) {
    g_autoptr(RefitMesh) owned = mesh;
    Part *part;

    for (guint a = 0; a < mesh->n_axes; a++) {
        if (!check_placement(mesh, placements, a, error))
            return FALSE;
    }
    g_array_set_size(sharding->parts, sharding->parts->len + 1);
    part = &g_array_index(sharding->parts, Part, sharding->parts->len - 1);
    part->placements = g_new(RefitPlacement, mesh->n_axes);
    for (guint a = 0; a < mesh->n_axes; a++)
        part->placements[a] = placement_normal(placements, mesh->n_axes, a);
    part->mesh = g_steal_pointer(&owned);
    return TRUE;
}

gboolean refit_sharding_add_region(RefitSharding *sharding, guint rank, const RefitRegion *region,
                                   GError **error) {
    RefitPlacement placements[REFIT_MAX_DIMS] = {{.kind = REFIT_PLACEMENT_REPLICATE}};
    guint sizes[REFIT_MAX_DIMS] = {1};
    RefitMesh *mesh;

    for (guint d = 0; d < region->n_dims; d++) {
        sizes[d] = 1;
        placements[d] = (RefitPlacement){.kind = REFIT_PLACEMENT_SHARD,
                                         .dim = d,
                                         .split = REFIT_SPLIT_LISTS,
                                         .n_lists = 1,
                                         .lists = &region->dims[d]};
    }
    mesh = refit_mesh_new(MAX(region->n_dims, 1), sizes, &rank, 1, error);
    return mesh != NULL && refit_sharding_add(sharding, mesh, placements, error);
}

void refit_sharding_set_padded(RefitSharding *sharding, guint dim, guint64 extent) {
    g_assert(dim < REFIT_MAX_DIMS);
    sharding->padded[dim] = extent;
}

guint64 refit_sharding_padded(const RefitSharding *sharding, guint dim) {
    g_assert(dim < REFIT_MAX_DIMS);
    return sharding->padded[dim];
}

guint refit_sharding_n_parts(const RefitSharding *sharding) {
    return sharding->parts->len;
}

const RefitMesh *refit_sharding_mesh(const RefitSharding *sharding, guint part) {
    g_assert(part < sharding->parts->len);
    return g_array_index(sharding->parts, Part, part).mesh;
}

const RefitPlacement *refit_sharding_placements(const RefitSharding *sharding, guint part) {
    g_assert(part < sharding->parts->len);
    return g_array_index(sharding->parts, Part, part).placements;
}

static gboolean mesh_equal(const RefitMesh *a, const RefitMesh *b) {
    return a->n_axes == b->n_axes && a->n_ranks == b->n_ranks &&
           memcmp(a->sizes, b->sizes, a->n_axes * sizeof *a->sizes) == 0 &&
           memcmp(a->ranks, b->ranks, a->n_ranks * sizeof *a->ranks) == 0;
}

static gboolean placement_equal(const RefitPlacement *a, const RefitPlacement *b) {
    if (a->kind != b->kind || a->dim != b->dim || a->split != b->split || a->order != b->order ||
        a->n_sizes != b->n_sizes || a->chunks != b->chunks || a->n_lists != b->n_lists)
        return FALSE;
    for (guint i = 0; i < a->n_lists; i++) {
        if (!refit_interval_list_equal(a->lists[i], b->lists[i]))
            return FALSE;
    }
    return a->n_sizes == 0 || memcmp(a->sizes, b->sizes, a->n_sizes * sizeof *a->sizes) == 0;
}

gboolean refit_sharding_equal(const RefitSharding *a, const RefitSharding *b) {
    if (a == b)
        return TRUE;
    if (a->parts->len != b->parts->len || memcmp(a->padded, b->padded, sizeof a->padded) != 0)
        return FALSE;
    for (guint i = 0; i < a->parts->len; i++) {
        const Part *x = &g_array_index(a->parts, Part, i);
        const Part *y = &g_array_index(b->parts, Part, i);

        if (!mesh_equal(x->mesh, y->mesh))
            return FALSE;
        for (guint axis = 0; axis < x->mesh->n_axes; axis++) {
            if (!placement_equal(&x->placements[axis], &y->placements[axis]))
                return FALSE;
        }
    }
    return TRUE;
}

static guint mix(guint hash, guint64 value) {
    hash = (hash ^ (guint)value) * 0x9e3779b1u;
    hash = (hash ^ (guint)(value >> 32)) * 0x85ebca6bu;
    return hash ^ (hash >> 15);
}

static guint mix_placement(guint hash, const RefitPlacement *placement) {
    hash = mix(mix(hash, placement->kind), placement->dim);
    hash = mix(mix(mix(hash, placement->split), placement->order), placement->chunks);
    for (guint s = 0; s < placement->n_sizes; s++)
        hash = mix(hash, placement->sizes[s]);
    for (guint i = 0; i < placement->n_lists; i++) {
        const RefitIntervalList *list = placement->lists[i];

        hash = mix(hash, list->n);
        for (guint k = 0; k < list->n; k++)
            hash = mix(mix(mix(hash, list->items[k].lo), list->items[k].hi), list->items[k].at);
    }
    return hash;
}

guint refit_sharding_hash(const RefitSharding *sharding) {
    guint hash = mix(0, sharding->parts->len);

    for (guint d = 0; d < REFIT_MAX_DIMS; d++) {
        if (sharding->padded[d] != 0)
            hash = mix(mix(hash, d), sharding->padded[d]);
    }
    for (guint i = 0; i < sharding->parts->len; i++) {
        const Part *part = &g_array_index(sharding->parts, Part, i);

        for (guint a = 0; a < part->mesh->n_axes; a++)
            hash = mix_placement(mix(hash, part->mesh->sizes[a]), &part->placements[a]);
        for (guint r = 0; r < part->mesh->n_ranks; r++)
            hash = mix(hash, part->mesh->ranks[r]);
    }
    return hash;
}

/* Ranks in mesh order, so that a permutation shows; runs of neighbours as first-last. */
static void append_ranks(GString *text, const RefitMesh *mesh) {
    g_string_append(text, " ranks ");
    for (guint i = 0; i < mesh->n_ranks;) {
        guint end = i + 1;

        while (end < mesh->n_ranks && mesh->ranks[end] == mesh->ranks[end - 1] + 1)
            end++;
        g_string_append_printf(text, "%s%u", i > 0 ? "," : "", mesh->ranks[i]);
        if (end > i + 1)
            g_string_append_printf(text, "-%u", mesh->ranks[end - 1]);
        i = end;
    }
}

/* "[0:4+8:9]", with the local place where the buffer does not keep the order: "[0:4@1+8:9@0]". */
static void append_list(GString *text, const RefitIntervalList *list) {
    guint64 at = 0;

    g_string_append_c(text, '[');
    for (guint i = 0; i < list->n; i++) {
        const RefitInterval *item = &list->items[i];

        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT, i > 0 ? "+" : "",
                               item->lo, item->hi);
        if (item->at != at)
            g_string_append_printf(text, "@%" G_GUINT64_FORMAT, item->at);
        at += item->hi - item->lo;
    }
    g_string_append_c(text, ']');
}

static void append_placement(GString *text, const Part *part, guint axis) {
    const RefitPlacement *placement = &part->placements[axis];
    guint cuts = 0;

    if (placement->kind == REFIT_PLACEMENT_REPLICATE) {
        g_string_append(text, "replicate");
        return;
    }
    g_string_append_printf(text, "shard(%u", placement->dim);
    if (placement->split == REFIT_SPLIT_BALANCED)
        g_string_append(text, ", balanced");
    for (guint s = 0; s < placement->n_sizes; s++) {
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT, s > 0 ? "+" : ", sizes ",
                               placement->sizes[s]);
    }
    if (placement->split == REFIT_SPLIT_STRIDED)
        g_string_append_printf(text, ", each of %u chunks", placement->chunks);
    for (guint i = 0; i < placement->n_lists; i++) {
        g_string_append(text, i > 0 ? " " : ", lists ");
        append_list(text, placement->lists[i]);
    }
    for (guint other = 0; other < part->mesh->n_axes; other++) {
        cuts += part->placements[other].kind == REFIT_PLACEMENT_SHARD &&
                part->placements[other].dim == placement->dim;
    }
    if (cuts > 1)
        g_string_append_printf(text, ", order %u", placement->order);
    g_string_append_c(text, ')');
}

char *refit_sharding_to_string(const RefitSharding *sharding) {
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < sharding->parts->len; i++) {
        const Part *part = &g_array_index(sharding->parts, Part, i);

        if (i > 0)
            g_string_append(text, "; ");
        refit_mesh_append_sizes(text, part->mesh->n_axes, part->mesh->sizes);
        append_ranks(text, part->mesh);
        for (guint a = 0; a < part->mesh->n_axes; a++) {
            g_string_append(text, a > 0 ? ", " : ": ");
            append_placement(text, part, a);
        }
    }
    for (guint d = 0; d < REFIT_MAX_DIMS; d++) {
        if (sharding->padded[d] != 0)
            g_string_append_printf(text, "; dim %u padded to %" G_GUINT64_FORMAT, d,
                                   sharding->padded[d]);
    }
    return g_string_free(text, FALSE);
}
