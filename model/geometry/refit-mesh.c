/*
 * Meshes: the ranks of one part of a layout as an array, and lists of ranks.
 *
 * Problem: ranks come from files in any order, with holes and with mistakes. Method: a mesh keeps
 * them as stated, after a check on a sorted copy. Cost: one pass for ranks in ascending order, one
 * sort for any other.
 */

#include "model/geometry/refit-geometry-private.h"

#include <stdlib.h>
#include <string.h>

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

void refit_mesh_append_sizes(GString *text, guint n_axes, const guint *sizes) {
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
    refit_mesh_append_sizes(text, n_axes, sizes);
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
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_MESH_SIZE,
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
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_RANK_DUP,
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

guint refit_rank_set_hash(gconstpointer key) {
    const RefitRankSet *set = key;
    guint hash = set->n;

    for (guint i = 0; i < set->n; i++)
        hash = (hash ^ set->members[i]) * 0x9e3779b1u;
    return hash;
}

gboolean refit_rank_set_equal(gconstpointer a, gconstpointer b) {
    const RefitRankSet *left = a, *right = b;

    return left->n == right->n &&
           (left->members == right->members ||
            memcmp(left->members, right->members, left->n * sizeof(guint)) == 0);
}
