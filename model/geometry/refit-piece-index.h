#pragma once

/*
 * Which pieces of a holding a rank has. One index serves many holdings in turn: loading costs the
 * ranks of the old and the new holding, a look-up costs the pieces of that rank (nearly always
 * one).
 */

#include "model/geometry/refit-geometry.h"

G_BEGIN_DECLS

typedef struct _RefitPieceIndex RefitPieceIndex;

RefitPieceIndex *refit_piece_index_new(guint n_ranks);
void refit_piece_index_free(RefitPieceIndex *index);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitPieceIndex, refit_piece_index_free)

/* Borrows `holding` until the next load; its ranks are below n_ranks. */
void refit_piece_index_load(RefitPieceIndex *index, const RefitHolding *holding);
/* Number of pieces of `rank`; piece numbers, ascending, in *pieces_out. */
guint refit_piece_index_get(const RefitPieceIndex *index, guint rank, const guint **pieces_out);

G_END_DECLS
