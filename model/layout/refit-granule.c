/*
 * Looks for cuts that a type does not allow, before anything is planned with them.
 *
 * Along a dim with granules every end of an interval is compared with the multiples of the granule.
 * Bytes need more care, because a cut of an outer dim moves whole rows of the inner ones: only the
 * innermost dim that is not held whole can cut a byte. Cost: linear in the intervals; for a layout,
 * one look-up per tensor and geometry once per distinct sharding and shape.
 */

#include "model/layout/refit-granule.h"

#include "model/base/refit-words.h"

/* ---- single regions ---- */

/* First end of an interval that is neither a multiple of the granule nor the end of the dim. */
static gboolean find_cut(const RefitIntervalList *list, guint64 extent, guint32 granule,
                         guint64 *place_out) {
    for (guint i = 0; granule > 1 && i < list->n; i++) {
        const guint64 ends[] = {list->items[i].lo, list->items[i].hi};
        for (guint end = 0; end < G_N_ELEMENTS(ends); end++) {
            if (ends[end] % granule != 0 && ends[end] != extent) {
                *place_out = ends[end];
                return TRUE;
            }
        }
    }
    return FALSE;
}

gboolean refit_granules_cut_byte(RefitDtype dtype, guint n_dims, const guint64 *shape,
                                 const RefitRegion *region, guint *dim_out, guint64 *place_out) {
    guint bits = refit_dtype_bits(dtype);
    if (bits % 8 == 0 || refit_region_is_empty(region)) {
        return FALSE;
    }
    /* Elements of an index of the dim, counted modulo those of a byte. */
    guint64 per_byte = 8 / bits, inner = 1;
    for (guint dim = n_dims; dim-- > 0;) {
        const RefitIntervalList *list = region->dims[dim];
        if (list->extent != shape[dim]) {
            for (guint i = 0; i < list->n; i++) {
                const guint64 ends[] = {list->items[i].lo, list->items[i].hi};
                for (guint end = 0; end < G_N_ELEMENTS(ends); end++) {
                    if (ends[end] % per_byte * inner % per_byte != 0) {
                        *dim_out = dim;
                        *place_out = ends[end];
                        return TRUE;
                    }
                }
            }
            /* Whole runs, but the next index of an outer dim would start inside a byte. */
            guint outer = dim;
            while (outer > 0 && shape[outer - 1] == 1) {
                outer--;
            }
            *dim_out = dim;
            *place_out = shape[dim];
            return outer > 0 && shape[dim] % per_byte * inner % per_byte != 0;
        }
        inner = shape[dim] % per_byte * inner % per_byte;
    }
    *dim_out = 0;
    *place_out = 0;
    return inner % per_byte != 0;
}

static void set_cut(const RefitTensor *tensor, const char *side, guint rank, guint dim,
                    guint64 place, GError **error) {
    g_set_error(
        error, REFIT_ERROR, tensor->tiled ? REFIT_ERROR_TILE_SPLIT : REFIT_ERROR_GRANULE_SPLIT,
        "tensor %s: %s cuts dim %u at %" G_GUINT64_FORMAT
        " for rank %u, inside a %s of %u; choose parallel sizes that cut at multiples of "
        "%u, or another dtype",
        tensor->name, side, dim, place, rank, tensor->tiled ? "tile" : "block with one scale",
        tensor->granule[dim], tensor->granule[dim]);
}

static void set_byte_cut(const RefitTensor *tensor, const char *side, guint rank, guint dim,
                         guint64 place, GError **error) {
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_SUBBYTE_SPLIT,
                "tensor %s: %s cuts dim %u at %" G_GUINT64_FORMAT
                " for rank %u, inside a byte of %s, which has %u elements; choose parallel sizes "
                "that cut at whole bytes",
                tensor->name, side, dim, place, rank, refit_dtype_name(tensor->dtype),
                8 / refit_dtype_bits(tensor->dtype));
}

gboolean refit_granules_check(const RefitTensor *tensor, const RefitHolding *holding,
                              const char *side, GError **error) {
    for (guint p = 0; p < holding->n_pieces; p++) {
        const RefitPiece *piece = &holding->pieces[p];
        guint64 place;
        guint cut;
        for (guint dim = 0; dim < tensor->n_dims; dim++) {
            if (find_cut(piece->region.dims[dim], tensor->shape[dim], tensor->granule[dim],
                         &place)) {
                set_cut(tensor, side, piece->ranks[0], dim, place, error);
                return FALSE;
            }
        }
        if (refit_granules_cut_byte(tensor->dtype, tensor->n_dims, tensor->shape, &piece->region,
                                    &cut, &place)) {
            set_byte_cut(tensor, side, piece->ranks[0], cut, place, error);
            return FALSE;
        }
    }
    return TRUE;
}

/* ---- whole sides ---- */

static gboolean has_granules(const RefitTensor *tensor) {
    gboolean any = refit_dtype_bits(tensor->dtype) % 8 != 0;
    for (guint dim = 0; dim < tensor->n_dims; dim++) {
        any |= tensor->granule[dim] > 1;
    }
    return any;
}

#define KEY_WORDS (4 + 2 * REFIT_MAX_DIMS)

static void write_key(guint64 *key, const RefitSharding *sharding, const RefitTensor *tensor) {
    guint n = 1;
    key[n++] = (guintptr)sharding;
    key[n++] = tensor->dtype;
    key[n++] = tensor->n_dims;
    for (guint dim = 0; dim < REFIT_MAX_DIMS; dim++) {
        key[n++] = dim < tensor->n_dims ? tensor->shape[dim] : 0;
        key[n++] = dim < tensor->n_dims ? tensor->granule[dim] : 0;
    }
    key[0] = n;
}

gboolean refit_granules_check_layout(const RefitLayout *layout, GError **error) {
    const RefitModel *model = refit_layout_model(layout);
    g_autoptr(GHashTable) seen =
        g_hash_table_new_full(refit_words_hash, refit_words_equal, g_free, NULL);
    for (guint i = 0; i < refit_model_n_tensors(model); i++) {
        const RefitTensor *tensor = refit_model_tensor(model, i);
        const RefitSharding *sharding = refit_layout_sharding(layout, i);
        guint64 key[KEY_WORDS];
        if (sharding == NULL || !has_granules(tensor)) {
            continue;
        }
        write_key(key, sharding, tensor);
        if (g_hash_table_contains(seen, key)) {
            continue;
        }
        g_hash_table_add(seen, refit_words_copy(key));
        g_autoptr(RefitHolding) holding =
            refit_holding_new(sharding, tensor->n_dims, tensor->shape, error);
        if (holding == NULL) {
            g_prefix_error(error, "tensor %s: ", tensor->name);
            return FALSE;
        }
        if (!refit_granules_check(tensor, holding, refit_layout_side(layout), error)) {
            return FALSE;
        }
    }
    return TRUE;
}
