/*
 * Places scale tensors after the tensors that they scale.
 *
 * A rank that holds part of a quantized tensor needs the scale of every block it touches, and needs
 * them in the order of its part. Where the cuts of the tensor fall on block borders, the same
 * meshes and placements say exactly that of the scales too, and then the sharding is shared, so
 * that no class of tensors is added. Else each rank's blocks are stated. Cost: one look-up per
 * scale; geometry once per distinct sharding and shape: its distinct shards, or all its ranks where
 * blocks are stated.
 */

#include "model/base/refit-words.h"
#include "model/layout/refit-layout-private.h"

#include <stdlib.h>

typedef struct {
    guint64 at;     /* local place of the run of indices */
    guint64 lo, hi; /* the blocks it keeps */
} Run;

static int compare_places(gconstpointer a, gconstpointer b) {
    const Run *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

/*
 * Blocks of `size` indices that `list` touches, in the order in which it stores them. A block that
 * several runs touch belongs to the one stored first; only the last block so far can be one.
 */
static RefitIntervalList *touched_blocks(RefitIntervalList *list, guint64 size, GError **error) {
    if (size == 1)
        return refit_interval_list_ref(list);
    g_autofree Run *runs = g_new(Run, MAX(list->n, 1));
    guint owner = 0;
    guint64 end = 0;

    for (guint i = 0; i < list->n; i++) {
        const RefitInterval *item = &list->items[i];
        Run *run = &runs[i];

        *run = (Run){item->at, item->lo / size, (item->hi - 1) / size + 1};
        if (i > 0 && run->lo < end && runs[owner].at < run->at)
            run->lo++;
        else if (i > 0 && run->lo < end)
            runs[owner].hi--;
        if (run->lo < run->hi) {
            owner = i;
            end = run->hi;
        }
    }
    qsort(runs, list->n, sizeof *runs, compare_places);

    g_autofree RefitInterval *items = g_new(RefitInterval, MAX(list->n, 1));
    guint64 at = 0;
    for (guint i = 0; i < list->n; i++) {
        items[i] = (RefitInterval){runs[i].lo, runs[i].hi, at};
        at += runs[i].hi - runs[i].lo;
    }
    return refit_interval_list_new(items, list->n, error);
}

/* The scales of the elements of `held`. */
static gboolean scales_of(const RefitRegion *held, const RefitTensor *scale, RefitRegion *out,
                          GError **error) {
    g_auto(RefitRegion) region = {.n_dims = 0};

    for (guint dim = 0; dim < scale->n_dims; dim++) {
        region.dims[dim] = touched_blocks(held->dims[dim], MAX(scale->block[dim], 1), error);
        if (region.dims[dim] == NULL)
            return FALSE;
        region.n_dims = dim + 1;
    }
    *out = region;
    region.n_dims = 0;
    return TRUE;
}

static gboolean has_same_places(const RefitRegion *a, const RefitRegion *b) {
    for (guint dim = 0; dim < a->n_dims; dim++)
        if (!refit_interval_list_equal(a->dims[dim], b->dims[dim]))
            return FALSE;
    return TRUE;
}

/* What a rank has of the tensor, and of the scale for it. */
static gboolean find_wanted(const RefitSharding *sharding, guint part, guint rank,
                            const RefitTensor *tensor, const RefitTensor *scale,
                            gboolean *holds_out, RefitRegion *wanted_out, GError **error) {
    g_auto(RefitRegion) held = {.n_dims = 0};
    guint64 buffer[REFIT_MAX_DIMS];

    if (!refit_sharding_local(sharding, part, rank, tensor->n_dims, tensor->shape, &held, buffer,
                              error))
        return FALSE;
    *holds_out = !refit_region_is_empty(&held);
    return scales_of(&held, scale, wanted_out, error);
}

/* Ranks that differ only along axes that replicate hold the same; one of them stands for all. */
static gboolean is_first_replica(const RefitMesh *mesh, const RefitPlacement *placements,
                                 guint index) {
    for (guint axis = mesh->n_axes; axis-- > 0; index /= mesh->sizes[axis])
        if (placements[axis].kind == REFIT_PLACEMENT_REPLICATE && index % mesh->sizes[axis] != 0)
            return FALSE;
    return TRUE;
}

/*
 * Whether the cuts of the tensor, applied to the scale, give each rank of the part what it needs.
 * Cuts that the scale is too small for do not.
 */
static gboolean fits(const RefitSharding *sharding, guint part, const RefitTensor *tensor,
                     const RefitTensor *scale, gboolean *fits_out, GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);
    gboolean same = TRUE;

    for (guint i = 0; i < mesh->n_ranks && same; i++) {
        g_auto(RefitRegion) wanted = {.n_dims = 0};
        g_auto(RefitRegion) given = {.n_dims = 0};
        guint64 buffer[REFIT_MAX_DIMS];
        gboolean holds;

        if (!is_first_replica(mesh, refit_sharding_placements(sharding, part), i))
            continue;
        if (!find_wanted(sharding, part, mesh->ranks[i], tensor, scale, &holds, &wanted, error))
            return FALSE;
        same = refit_sharding_local(sharding, part, mesh->ranks[i], scale->n_dims, scale->shape,
                                    &given, buffer, NULL) &&
               has_same_places(&given, &wanted);
    }
    *fits_out = same;
    return TRUE;
}

/* Adds what each rank of the part needs of the scale. */
static gboolean state_part(RefitSharding *stated, const RefitSharding *sharding, guint part,
                           const RefitTensor *tensor, const RefitTensor *scale, GError **error) {
    const RefitMesh *mesh = refit_sharding_mesh(sharding, part);

    for (guint i = 0; i < mesh->n_ranks; i++) {
        g_auto(RefitRegion) wanted = {.n_dims = 0};
        gboolean holds;

        if (!find_wanted(sharding, part, mesh->ranks[i], tensor, scale, &holds, &wanted, error) ||
            (holds && !refit_sharding_add_region(stated, mesh->ranks[i], &wanted, error)))
            return FALSE;
    }
    return TRUE;
}

/* The sharding of a scale of a tensor that lies as `sharding`; shared by the layout. */
static const RefitSharding *follow(RefitLayout *layout, const RefitSharding *sharding,
                                   const RefitTensor *tensor, const RefitTensor *scale,
                                   GError **error) {
    guint n_parts = refit_sharding_n_parts(sharding);
    gboolean same = TRUE;

    for (guint part = 0; part < n_parts && same; part++)
        if (!fits(sharding, part, tensor, scale, &same, error))
            return NULL;
    if (same)
        return sharding;
    g_autoptr(RefitSharding) stated = refit_sharding_new();
    for (guint part = 0; part < n_parts; part++)
        if (!state_part(stated, sharding, part, tensor, scale, error))
            return NULL;
    return refit_layout_share(layout, g_steal_pointer(&stated));
}

#define KEY_WORDS (3 + 3 * REFIT_MAX_DIMS)

static void write_key(guint64 *key, const RefitSharding *sharding, const RefitTensor *tensor,
                      const RefitTensor *scale) {
    guint n = 1;

    key[n++] = (guintptr)sharding;
    key[n++] = tensor->n_dims << 8 | scale->n_dims;
    for (guint dim = 0; dim < REFIT_MAX_DIMS; dim++) {
        key[n++] = dim < tensor->n_dims ? tensor->shape[dim] : 0;
        key[n++] = dim < scale->n_dims ? scale->shape[dim] : 0;
        key[n++] = dim < scale->n_dims ? scale->block[dim] : 0;
    }
    key[0] = n;
}

gboolean refit_layout_place_scales(RefitLayout *layout, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    g_autoptr(GHashTable) known =
        g_hash_table_new_full(refit_words_hash, refit_words_equal, g_free, NULL);

    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *scale = refit_model_tensor(model, i);
        if (!scale->scale || refit_layout_sharding(layout, i) != NULL)
            continue;
        const RefitTensor *tensor = refit_model_tensor(model, scale->scale_of);
        const RefitSharding *sharding = refit_layout_sharding(layout, scale->scale_of);
        guint64 key[KEY_WORDS];

        if (sharding == NULL)
            continue;
        write_key(key, sharding, tensor, scale);
        const RefitSharding *found = g_hash_table_lookup(known, key);
        if (found == NULL) {
            found = follow(layout, sharding, tensor, scale, error);
            if (found == NULL) {
                g_prefix_error(error, "%s: tensor %s: ", refit_layout_side(layout), scale->name);
                return FALSE;
            }
            g_hash_table_insert(known, refit_words_copy(key), (gpointer)found);
        }
        refit_layout_assign(layout, i, found);
    }
    return TRUE;
}
