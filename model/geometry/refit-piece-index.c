/*
 * Rank to pieces of a holding: lists of piece numbers, grouped by rank, filled by counting. Arrays
 * over all ranks are allocated once; loading another holding resets only the ranks it touched.
 */

#include "model/geometry/refit-piece-index.h"

struct _RefitPieceIndex {
    const RefitHolding *holding;
    guint *first; /* per rank: start in `pieces` */
    guint *count; /* per rank; 0 for ranks outside the loaded holding */
    GArray *pieces;
};

RefitPieceIndex *refit_piece_index_new(guint n_ranks) {
    RefitPieceIndex *index = g_new0(RefitPieceIndex, 1);
    index->first = g_new0(guint, n_ranks);
    index->count = g_new0(guint, n_ranks);
    index->pieces = g_array_new(FALSE, FALSE, sizeof(guint));
    return index;
}

void refit_piece_index_free(RefitPieceIndex *index) {
    if (index == NULL)
        return;
    g_free(index->first);
    g_free(index->count);
    g_array_unref(index->pieces);
    g_free(index);
}

void refit_piece_index_load(RefitPieceIndex *index, const RefitHolding *holding) {
    if (holding == index->holding)
        return;
    if (index->holding != NULL)
        for (guint piece = 0; piece < index->holding->n_pieces; piece++)
            for (guint i = 0; i < index->holding->pieces[piece].n_ranks; i++)
                index->count[index->holding->pieces[piece].ranks[i]] = 0;
    guint total = 0;
    for (guint piece = 0; piece < holding->n_pieces; piece++) {
        total += holding->pieces[piece].n_ranks;
        for (guint i = 0; i < holding->pieces[piece].n_ranks; i++)
            index->count[holding->pieces[piece].ranks[i]]++;
    }
    /* A rank gets its place when first met, which resets its count; filling counts again. */
    g_array_set_size(index->pieces, total);
    guint end = 0;
    for (guint piece = 0; piece < holding->n_pieces; piece++)
        for (guint i = 0; i < holding->pieces[piece].n_ranks; i++) {
            guint rank = holding->pieces[piece].ranks[i];
            if (index->count[rank] == 0)
                continue;
            index->first[rank] = end;
            end += index->count[rank];
            index->count[rank] = 0;
        }
    for (guint piece = 0; piece < holding->n_pieces; piece++)
        for (guint i = 0; i < holding->pieces[piece].n_ranks; i++) {
            guint rank = holding->pieces[piece].ranks[i];
            g_array_index(index->pieces, guint, index->first[rank] + index->count[rank]++) = piece;
        }
    index->holding = holding;
}

guint refit_piece_index_get(const RefitPieceIndex *index, guint rank, const guint **pieces_out) {
    *pieces_out = (const guint *)(gpointer)index->pieces->data + index->first[rank];
    return index->count[rank];
}
