/*
 * Meshes and shardings: the stated layout of one kind of tensor, before it meets a shape.
 *
 * Problem: layouts come from files and recipes, many are equal, and mistakes in them must be named
 * before anything is planned. Method: everything that does not need a shape is checked when a part
 * is added, and placements are stored in a normal form (fields without meaning zeroed, `order`
 * renumbered 0, 1, ... per dim), so two shardings that say the same compare equal. Cost: ranks for
 * a mesh in ascending order, one sort for any other.
 */

#include "refit-geometry.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    RefitMesh *mesh;
    RefitPlacement *placements;
} Part;

struct _RefitSharding {
    GArray *parts; /* Part */
};

static int rank_compare(const void *a, const void *b) {
    const guint *left = a;
    const guint *right = b;

    return *left < *right ? -1 : *left > *right;
}

void refit_ranks_sort(guint *ranks, guint n) {
    for (guint i = 1; i < n; i++) {
        if (ranks[i - 1] > ranks[i]) {
            qsort(ranks, n, sizeof *ranks, rank_compare);
            return;
        }
    }
}

guint refit_ranks_drop_repeats(guint *ranks, guint n) {
    guint kept = 0;

    for (guint i = 0; i < n; i++) {
        if (kept == 0 || ranks[kept - 1] != ranks[i])
            ranks[kept++] = ranks[i];
    }
    return kept;
}

static void append_sizes(GString *text, guint n_axes, const guint *sizes) {
    g_string_append(text, "mesh [");
    for (guint a = 0; a < n_axes; a++)
        g_string_append_printf(text, "%s%u", a > 0 ? ", " : "", sizes[a]);
    g_string_append_c(text, ']');
}

static gboolean check_sizes(guint n_axes, const guint *sizes, guint n_ranks, GError **error) {
    g_autoptr(GString) text = g_string_new(NULL);
    guint64 positions = 1;

    if (n_axes > REFIT_MAX_AXES) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "mesh has %u axes, the limit is %d: join axes that place alike", n_axes,
                    REFIT_MAX_AXES);
        return FALSE;
    }
    append_sizes(text, n_axes, sizes);
    for (guint a = 0; a < n_axes; a++) {
        if (sizes[a] == 0) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "%s: axis %u is 0, every axis needs at least 1 rank", text->str, a);
            return FALSE;
        }
    }
    for (guint a = 0; a < n_axes && positions <= n_ranks; a++)
        positions *= sizes[a];
    if (positions != n_ranks) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%s: %u ranks are given, but the product of the axes is %s: "
                    "list one rank for each position",
                    text->str, n_ranks, positions > n_ranks ? "larger" : "smaller");
        return FALSE;
    }
    return TRUE;
}

static gboolean check_ranks(const guint *ranks, guint n_ranks, GError **error) {
    g_autofree guint *sorted = g_memdup2(ranks, n_ranks * sizeof *ranks);

    refit_ranks_sort(sorted, n_ranks);
    for (guint i = 1; i < n_ranks; i++) {
        if (sorted[i - 1] == sorted[i]) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "rank %u is listed twice in a mesh: each rank has one position", sorted[i]);
            return FALSE;
        }
    }
    return TRUE;
}

RefitMesh *refit_mesh_new(guint n_axes, const guint *sizes, const guint *ranks, guint n_ranks,
                          GError **error) {
    RefitMesh *mesh;

    if (!check_sizes(n_axes, sizes, n_ranks, error) || !check_ranks(ranks, n_ranks, error))
        return NULL;
    mesh = g_new0(RefitMesh, 1);
    mesh->n_axes = n_axes;
    for (guint a = 0; a < n_axes; a++)
        mesh->sizes[a] = sizes[a];
    mesh->n_ranks = n_ranks;
    mesh->ranks = g_memdup2(ranks, n_ranks * sizeof *ranks);
    return mesh;
}

void refit_mesh_free(RefitMesh *mesh) {
    if (mesh == NULL)
        return;
    g_free(mesh->ranks);
    g_free(mesh);
}

static void placements_free(RefitPlacement *placements, guint n) {
    for (guint a = 0; a < n; a++)
        g_free((guint64 *)placements[a].sizes);
    g_free(placements);
}

RefitSharding *refit_sharding_new(void) {
    RefitSharding *sharding = g_new(RefitSharding, 1);

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
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "mesh axis %u has %u positions, but %u part sizes are stated: "
                    "state one size for each position",
                    axis, mesh->sizes[axis], placement->n_sizes);
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
        a->n_sizes != b->n_sizes)
        return FALSE;
    return a->n_sizes == 0 || memcmp(a->sizes, b->sizes, a->n_sizes * sizeof *a->sizes) == 0;
}

gboolean refit_sharding_equal(const RefitSharding *a, const RefitSharding *b) {
    if (a == b)
        return TRUE;
    if (a->parts->len != b->parts->len)
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

guint refit_sharding_hash(const RefitSharding *sharding) {
    guint hash = mix(0, sharding->parts->len);

    for (guint i = 0; i < sharding->parts->len; i++) {
        const Part *part = &g_array_index(sharding->parts, Part, i);

        for (guint a = 0; a < part->mesh->n_axes; a++) {
            const RefitPlacement *placement = &part->placements[a];

            hash = mix(mix(hash, part->mesh->sizes[a]), placement->kind);
            hash = mix(mix(mix(hash, placement->dim), placement->split), placement->order);
            for (guint s = 0; s < placement->n_sizes; s++)
                hash = mix(hash, placement->sizes[s]);
        }
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
        append_sizes(text, part->mesh->n_axes, part->mesh->sizes);
        append_ranks(text, part->mesh);
        for (guint a = 0; a < part->mesh->n_axes; a++) {
            g_string_append(text, a > 0 ? ", " : ": ");
            append_placement(text, part, a);
        }
    }
    return g_string_free(text, FALSE);
}
