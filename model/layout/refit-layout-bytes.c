/*
 * Bytes that each rank of a layout holds.
 *
 * Tens of thousands of tensors share a few hundred pairs of sharding and shape, so tensors are
 * counted per pair first and geometry runs once for each. Cost: one look-up per tensor, and per
 * distinct pair its distinct shards and the ranks that hold them.
 */

#include "model/base/refit-words.h"
#include "model/layout/refit-layout.h"

typedef struct {
    const RefitSharding *sharding;
    const RefitTensor *tensor; /* the first one */
    guint64 n;                 /* how many */
} Kind;

#define KEY_WORDS (4 + REFIT_MAX_DIMS)

static void write_key(guint64 *key, const RefitSharding *sharding, const RefitTensor *tensor) {
    guint n = 1;

    key[n++] = (guintptr)sharding;
    key[n++] = tensor->dtype;
    key[n++] = tensor->n_dims;
    for (guint dim = 0; dim < tensor->n_dims; dim++)
        key[n++] = tensor->shape[dim];
    key[0] = n;
}

/* The kinds of tensor that the layout holds, in the order of their first one. */
static GArray *count_kinds(const RefitLayout *layout) {
    const RefitModel *model = refit_layout_model(layout);
    g_autoptr(GHashTable) known =
        g_hash_table_new_full(refit_words_hash, refit_words_equal, g_free, NULL);
    GArray *kinds = g_array_new(FALSE, FALSE, sizeof(Kind));

    for (guint t = 0; t < refit_model_n_tensors(model); t++) {
        const RefitTensor *tensor = refit_model_tensor(model, t);
        const RefitSharding *sharding = refit_layout_sharding(layout, t);
        guint64 key[KEY_WORDS];

        if (sharding == NULL)
            continue;
        write_key(key, sharding, tensor);
        guint number = GPOINTER_TO_UINT(g_hash_table_lookup(known, key)); /* 1 + index */
        if (number == 0) {
            const Kind kind = {sharding, tensor, 0};
            g_array_append_val(kinds, kind);
            number = kinds->len;
            g_hash_table_insert(known, refit_words_copy(key), GUINT_TO_POINTER(number));
        }
        g_array_index(kinds, Kind, number - 1).n++;
    }
    return kinds;
}

static gboolean add_kind(const Kind *kind, guint64 *bytes, GError **error) {
    g_autoptr(RefitHolding) holding =
        refit_holding_new(kind->sharding, kind->tensor->n_dims, kind->tensor->shape, error);

    if (holding == NULL)
        return FALSE;
    for (guint p = 0; p < holding->n_pieces; p++) {
        const RefitPiece *piece = &holding->pieces[p];
        guint64 held;

        if (!refit_dtype_bytes(kind->tensor->dtype, refit_region_volume(&piece->region), &held,
                               error) ||
            !refit_checked_mul(held, kind->n, "bytes of a rank", &held, error))
            return FALSE;
        for (guint r = 0; r < piece->n_ranks; r++)
            if (!refit_checked_add(bytes[piece->ranks[r]], held, "bytes of a rank",
                                   &bytes[piece->ranks[r]], error))
                return FALSE;
    }
    return TRUE;
}

gboolean refit_layout_add_bytes(const RefitLayout *layout, guint64 *bytes, GError **error) {
    g_autoptr(GArray) kinds = count_kinds(layout);

    for (guint k = 0; k < kinds->len; k++) {
        const Kind *kind = &g_array_index(kinds, Kind, k);
        if (!add_kind(kind, bytes, error)) {
            g_prefix_error(error, "tensor %s: ", kind->tensor->name);
            return FALSE;
        }
    }
    return TRUE;
}

gboolean refit_layout_total_bytes(const RefitLayout *layout, const guint *gone, guint n_gone,
                                  guint64 *total_out, GError **error) {
    guint end = 0;
    guint64 total = 0;

    for (guint i = 0; i < refit_layout_n_ranks(layout); i++)
        end = MAX(end, refit_layout_ranks(layout)[i] + 1);
    g_autofree guint64 *bytes = g_new0(guint64, MAX(end, 1));
    if (!refit_layout_add_bytes(layout, bytes, error))
        return FALSE;
    for (guint i = 0; i < n_gone; i++)
        if (gone[i] < end)
            bytes[gone[i]] = 0;
    for (guint rank = 0; rank < end; rank++)
        if (!refit_checked_add(total, bytes[rank], "bytes of a side", &total, error))
            return FALSE;
    *total_out = total;
    return TRUE;
}
