/*
 * From boxes of arrays to descriptors for the kernels. Dims of extent one are dropped and dims that
 * continue each other on every side are merged, so that most regions end as rows of one long run at
 * one or two strides. The widest access that every address and stride allows is chosen once for the
 * whole region. Divisions by extents become multiplications (round-up method; dividends stay below
 * 2^31). What still has too many dims, rows or bytes per row is cut along its slowest dim, or its
 * run, until each part fits. Cost: linear in dims, times the parts.
 */

#include "gpu/executor/refit-strided.h"

#include "model/base/refit-checked.h"

#define MAX_ROWS ((guint64)1 << 31)
#define MAX_RUN ((guint64)1 << 30)        /* vectors of a row; keeps those of a tile below 2^31 */
#define MAX_SINGLE_RUN ((guint64)1 << 20) /* one run may be cut into rows of any length */

/* A region after merging; side 0 is the strided one, side 1 the packed form or the copy's other
 * place. Dims from the innermost to the slowest. */
typedef struct {
    guint n_sides;
    guint64 run; /* bytes */
    guint64 start[2];
    guint n_dims;
    guint64 extent[REFIT_STRIDED_REGION_DIMS];
    gint64 step[2][REFIT_STRIDED_REGION_DIMS];
} Box;

struct RefitStridedTable {
    GArray *copies; /* RefitStridedCopy */
    guint64 n_tiles;
    guint span_first;
    guint64 span_first_tile;
};

RefitStridedTable *refit_strided_table_new(void) {
    RefitStridedTable *table = g_new0(RefitStridedTable, 1);
    table->copies = g_array_new(FALSE, TRUE, sizeof(RefitStridedCopy));
    return table;
}

void refit_strided_table_free(RefitStridedTable *table) {
    if (table == NULL) {
        return;
    }
    g_array_unref(table->copies);
    g_free(table);
}

void refit_strided_table_begin(RefitStridedTable *table) {
    table->span_first = table->copies->len;
    table->span_first_tile = table->n_tiles;
}

RefitStridedSpan refit_strided_table_end(RefitStridedTable *table) {
    return (RefitStridedSpan){
        .first = table->span_first,
        .n = table->copies->len - table->span_first,
        .first_tile = table->span_first_tile,
        .n_tiles = table->n_tiles - table->span_first_tile,
    };
}

const RefitStridedCopy *refit_strided_table_get(const RefitStridedTable *table, guint *n_out) {
    *n_out = table->copies->len;
    return (const RefitStridedCopy *)(const void *)table->copies->data;
}

static RefitDivision division_by(guint32 divisor) {
    RefitDivision division = {divisor, 0, 0};
    if (divisor > 1) {
        const guint bits = 32 - (guint)__builtin_clz(divisor - 1);
        division.multiplier = (guint32)((((guint64)1 << (31 + bits)) + divisor - 1) / divisor);
        division.shift = bits - 1;
    }
    return division;
}

/* Whether dim `step` apart continues the last dim of `box`, or its run when it has none, on all
 * sides. */
static gboolean continues(const Box *box, const gint64 step[2]) {
    for (guint side = 0; side < box->n_sides; side++) {
        gint64 reach = (gint64)box->run;
        if (box->n_dims > 0 &&
            __builtin_mul_overflow(box->step[side][box->n_dims - 1],
                                   (gint64)box->extent[box->n_dims - 1], &reach)) {
            return FALSE;
        }
        if (step[side] != reach) {
            return FALSE;
        }
    }
    return TRUE;
}

/* Merges dims into `box`, whose starts and number of sides are set. An empty region gets a run of
 * 0. */
static gboolean merge(const RefitStridedShape *shape, const gint64 *const strides[2], Box *box,
                      GError **error) {
    guint64 size = shape->element_bytes;

    if (shape->n_dims > REFIT_STRIDED_REGION_DIMS) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                    "a region has %u dims; a strided copy takes up to %d", shape->n_dims,
                    REFIT_STRIDED_REGION_DIMS);
        return FALSE;
    }
    box->run = shape->element_bytes;
    box->n_dims = 0;
    for (guint i = shape->n_dims; i-- > 0;) {
        const guint64 extent = shape->extents[i];
        const gint64 step[2] = {strides[0][i], strides[1] != NULL ? strides[1][i] : 0};
        if (extent == 0) {
            box->run = 0;
            return TRUE;
        }
        if (!refit_checked_mul(size, extent, "bytes of a region", &size, error)) {
            return FALSE;
        }
        if (extent == 1) {
            continue;
        }
        if (!continues(box, step)) {
            box->extent[box->n_dims] = extent;
            box->step[0][box->n_dims] = step[0];
            box->step[1][box->n_dims] = step[1];
            box->n_dims++;
        } else if (box->n_dims == 0) {
            box->run *= extent;
        } else {
            box->extent[box->n_dims - 1] *= extent;
        }
    }
    if (size > G_MAXINT64) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                    "a region of %" G_GUINT64_FORMAT " bytes is larger than an address space",
                    size);
        return FALSE;
    }
    return TRUE;
}

gboolean refit_strided_is_contiguous(const RefitStridedShape *shape,
                                     const RefitStridedPlace *place) {
    const gint64 *const strides[2] = {place->strides, NULL};
    Box box = {.n_sides = 1, .start = {place->address}};
    return merge(shape, strides, &box, NULL) && (box.run == 0 || box.n_dims == 0);
}

static guint64 n_rows(const Box *box) {
    guint64 rows = 1;
    for (guint i = 0; i < box->n_dims; i++) {
        rows *= box->extent[i];
    }
    return rows;
}

static guint width_log2(const Box *box, gboolean packed) {
    guint64 bits = box->run | box->start[0] | box->start[1] | 16;
    for (guint i = 0; i < box->n_dims; i++) {
        bits |= (guint64)box->step[0][i];
        bits |= packed ? 0 : (guint64)box->step[1][i];
    }
    return (guint)__builtin_ctzll(bits);
}

/* The box as one descriptor; FALSE when it is too much for one. */
static gboolean describe(const Box *box, gboolean packed, RefitStridedCopy *copy_out) {
    const guint width = width_log2(box, packed);
    const guint64 rows = n_rows(box);
    guint64 run = box->run >> width;
    RefitStridedCopy copy = {
        .strided = box->start[0],
        .other = box->start[1],
        .n_bytes = box->run * rows,
        .width_log2 = width,
        .n_dims = box->n_dims,
    };

    if (box->n_dims > REFIT_STRIDED_DIMS || rows >= MAX_ROWS) {
        return FALSE;
    }
    if (box->n_dims == 0 && run > MAX_SINGLE_RUN) {
        run = MAX_SINGLE_RUN;
        if ((box->run >> width) / run >= MAX_ROWS - 1) {
            return FALSE;
        }
    }
    if (run >= MAX_RUN) {
        return FALSE;
    }
    copy.run = division_by((guint32)run);
    for (guint i = 0; i < REFIT_STRIDED_DIMS; i++) {
        const gboolean used = i < box->n_dims;
        copy.extent[i] = division_by(used ? (guint32)box->extent[i] : 1);
        copy.strided_step[i] = used ? box->step[0][i] : 0;
        copy.other_step[i] = used ? box->step[1][i] : 0;
    }
    if (box->n_dims == 0) { /* the kernel sees rows that happen to follow each other */
        copy.strided_step[0] = copy.other_step[0] = (gint64)(run << width);
    }
    *copy_out = copy;
    return TRUE;
}

/* The part of `box` whose slowest index is in [first, first + n). */
static Box part_of(const Box *box, gboolean packed, guint64 first, guint64 n) {
    const guint slowest = box->n_dims - 1;
    Box part = *box;

    part.start[0] += first * (guint64)box->step[0][slowest];
    if (packed) {
        part.start[1] += first * (box->run * n_rows(box) / box->extent[slowest]);
    } else {
        part.start[1] += first * (guint64)box->step[1][slowest];
    }
    part.extent[slowest] = n;
    if (n == 1) {
        part.n_dims--;
    }
    return part;
}

/*
 * Appends the descriptors of `box`. One index of the slowest dim at a time when the dims are too
 * many or the rows too long, halves of it when the rows are too many; so the recursion is as deep
 * as there are dims and bits.
 */
static gboolean append(RefitStridedTable *table, const Box *box, gboolean packed, guint limit,
                       GError **error) {
    RefitStridedCopy copy;

    if (describe(box, packed, &copy)) {
        if (table->copies->len >= limit) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                        "a region falls into more than %d strided copies; use a layout with fewer "
                        "separate dims",
                        REFIT_STRIDED_MAX_PARTS);
            return FALSE;
        }
        copy.first_tile = table->n_tiles;
        table->n_tiles += (copy.n_bytes - 1) / REFIT_STRIDED_TILE + 1;
        g_array_append_val(table->copies, copy);
        return TRUE;
    }
    if (box->n_dims == 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_LIMIT,
                    "a run of %" G_GUINT64_FORMAT " bytes is too long for a strided copy",
                    box->run);
        return FALSE;
    }
    const gboolean one_by_one =
        box->n_dims > REFIT_STRIDED_DIMS || box->run >> width_log2(box, packed) >= MAX_RUN;
    const guint64 extent = box->extent[box->n_dims - 1];
    const guint64 n = one_by_one ? 1 : (extent + 1) / 2;
    for (guint64 first = 0; first < extent; first += n) {
        const Box part = part_of(box, packed, first, MIN(n, extent - first));
        if (!append(table, &part, packed, limit, error)) {
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean add(RefitStridedTable *table, const RefitStridedShape *shape, Box *box,
                    const gint64 *const strides[2], gboolean packed, GError **error) {
    const guint n_before = table->copies->len;
    const guint64 tiles_before = table->n_tiles;

    if (!merge(shape, strides, box, error)) {
        return FALSE;
    }
    if (box->run == 0) {
        return TRUE;
    }
    if (!append(table, box, packed, n_before + REFIT_STRIDED_MAX_PARTS, error)) {
        g_array_set_size(table->copies, n_before);
        table->n_tiles = tiles_before;
        return FALSE;
    }
    return TRUE;
}

gboolean refit_strided_table_add_packed(RefitStridedTable *table, const RefitStridedShape *shape,
                                        const RefitStridedPlace *place, guint64 packed_offset,
                                        GError **error) {
    const gint64 *const strides[2] = {place->strides, NULL};
    Box box = {.n_sides = 1, .start = {place->address, packed_offset}};
    return add(table, shape, &box, strides, TRUE, error);
}

gboolean refit_strided_table_add_copy(RefitStridedTable *table, const RefitStridedShape *shape,
                                      const RefitStridedPlace *from, const RefitStridedPlace *to,
                                      GError **error) {
    const gint64 *const strides[2] = {from->strides, to->strides};
    Box box = {.n_sides = 2, .start = {from->address, to->address}};
    return add(table, shape, &box, strides, FALSE, error);
}
