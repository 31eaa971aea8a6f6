#pragma once

/*
 * Rows of data/m2n-cases.tsv, the cases of a public suite for moving tensors between two meshes,
 * and cases made of them.
 */

#include "model/case/refit-case.h"

G_BEGIN_DECLS

typedef struct {
    guint sizes[2], shard_dims[2]; /* of the mesh; dim 8 and up: replicate */
    guint first, n_ranks;
    guint n_shards; /* as stated */
} M2nSide;

typedef struct {
    char *group, *name;
    gboolean must_work; /* else it must be refused when executed */
    guint number;       /* of the case: the same at every world */
    guint element_bytes, world;
    guint n_dims;
    guint64 shape[REFIT_MAX_DIMS];
    M2nSide source, destination;
} M2nRow;

/* All rows, of M2nRow, in the order of the file. */
GArray *m2n_rows_read(void);

guint64 m2n_row_elements(const M2nRow *row);

/* The same row with as few elements per shard as keep all shards equal, twice or three times that
 * where it divides. Its texts are those of `row`. */
M2nRow m2n_row_shorten(const M2nRow *row);

/* A case of `n_tensors` of the row's shape, the first of them one that `hybrid` moves by ring. It
 * is cut as finely as one with tensors `scale` times as large. */
RefitCase *m2n_row_case(const M2nRow *row, guint n_tensors, guint domain_size, guint64 scale);

/* For tests that move the bytes: of a shorter row where elements times ranks are many, and cut as
 * finely; with two tensors for a strategy that sends some tensors this way and some that. */
RefitCase *m2n_row_light_case(const M2nRow *row, const char *strategy, guint domain_size);

/* The first row of its group and world? */
gboolean m2n_row_is_first(const GArray *rows, guint index);

G_END_DECLS
