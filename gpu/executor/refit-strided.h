#pragma once

/*
 * Strided copies as the kernels want them: tables of descriptors, made once on the host and
 * uploaded.
 *
 * A region is a box of an array in a buffer: `extents` from the slowest dim to the fastest,
 * `strides` in bytes, elements of `element_bytes`. In packed form its elements lie in row-major
 * order without gaps, so both ends of a message agree on it whatever their buffers look like.
 *
 * A table collects the descriptors of many launches. A span of it is what one launch takes:
 *
 *     refit_strided_table_begin(table);
 *     refit_strided_table_add_packed(...); ... once per region
 *     RefitStridedSpan span = refit_strided_table_end(table);
 */

#include <glib.h>

#include "gpu/executor/refit-strided-copy.h"

G_BEGIN_DECLS

enum {
    REFIT_STRIDED_REGION_DIMS = 16,   /* dims that a region may have */
    REFIT_STRIDED_MAX_PARTS = 1 << 16 /* descriptors that one region may need */
};

typedef struct {
    guint n_dims;
    const guint64 *extents;
    guint64 element_bytes;
} RefitStridedShape;

/* Where a region lies: address of its first element, and bytes from one index to the next. */
typedef struct {
    guint64 address;
    const gint64 *strides;
} RefitStridedPlace;

/*
 * TRUE when the region is one run of bytes at `place`, or empty: it can be sent from and received
 * into its place, without packing. Never fails; a shape with more dims than allowed is not
 * contiguous.
 */
gboolean refit_strided_is_contiguous(const RefitStridedShape *shape,
                                     const RefitStridedPlace *place);

typedef struct RefitStridedTable RefitStridedTable;

RefitStridedTable *refit_strided_table_new(void);
void refit_strided_table_free(RefitStridedTable *table);

/* Begins a span. A span that was begun must be ended before the next one. */
void refit_strided_table_begin(RefitStridedTable *table);

/* Ends the span that was begun last; one without descriptors has no tiles, and need not be
 * launched. */
RefitStridedSpan refit_strided_table_end(RefitStridedTable *table);

/*
 * Adds the copy between `place` and `packed_offset` in a packed buffer; whether it packs or unpacks
 * is the launch's choice. One descriptor, or several when the region has more dims than one takes
 * or is too large for one. An empty region adds none. The buffer that holds the packed form must be
 * aligned to 16 bytes. REFIT_ERROR_OVERFLOW; REFIT_ERROR_LIMIT when it would take more than
 * REFIT_STRIDED_MAX_PARTS. The table is unchanged after an error.
 */
gboolean refit_strided_table_add_packed(RefitStridedTable *table, const RefitStridedShape *shape,
                                        const RefitStridedPlace *place, guint64 packed_offset,
                                        GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* Adds a copy of the region from one place to another on the same device; they must not overlap. A
 * span holds either packed copies or these. Errors as above. */
gboolean refit_strided_table_add_copy(RefitStridedTable *table, const RefitStridedShape *shape,
                                      const RefitStridedPlace *from, const RefitStridedPlace *to,
                                      GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* The descriptors so far. Borrowed, until the next addition. */
const RefitStridedCopy *refit_strided_table_get(const RefitStridedTable *table, guint *n_out);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitStridedTable, refit_strided_table_free)

G_END_DECLS
