/*
 * From runs to boxes. A column of a matrix is thousands of runs at a constant distance; a kernel
 * wants it as one box. Runs are folded as they come: equal lengths at constant distances on both
 * sides make a box of one dim, and equal boxes at constant distances one of a dim more, until
 * nothing folds any more. It finds the dims that the layouts had, whatever made the runs (views,
 * slices, expert lists), and what it does not find costs a descriptor, not correctness. Cost: one
 * step per run, and per box and dim.
 */

#include "gpu/executor/refit-gpu-private.h"

static guint64 address_of(const RefitGpuPlaces *places, guint8 memory, guint parameter,
                          guint64 offset) {
    switch ((RefitMemory)memory) {
    case REFIT_MEMORY_SOURCE:
        return places->source[parameter] + offset;
    case REFIT_MEMORY_DESTINATION:
        return places->destination[parameter] + offset;
    case REFIT_MEMORY_STAGING:
        return places->staging + offset;
    case REFIT_MEMORY_MESSAGE:
        break;
    }
    return places->message + offset;
}

static gboolean same_shape(const RefitGpuBox *a, const RefitGpuBox *b) {
    gboolean same = a->bytes == b->bytes && a->n_dims == b->n_dims;

    for (guint d = 0; same && d < a->n_dims; d++)
        same = a->extent[d] == b->extent[d] && a->from_step[d] == b->from_step[d] &&
               a->to_step[d] == b->to_step[d];
    return same;
}

static gint64 distance(guint64 from, guint64 to) {
    return (gint64)(to - from);
}

/* Adds a run to the last box when that is of one dim, or becomes it, and the run continues it. */
static gboolean extend(RefitGpuBox *last, const RefitGpuBox *run) {
    gint64 from_step = distance(last->from, run->from), to_step = distance(last->to, run->to);

    if (last->bytes != run->bytes)
        return FALSE;
    if (last->n_dims == 0) {
        last->n_dims = 1;
        last->extent[0] = 1;
        last->from_step[0] = from_step;
        last->to_step[0] = to_step;
    } else if (from_step != last->from_step[0] * (gint64)last->extent[0] ||
               to_step != last->to_step[0] * (gint64)last->extent[0]) {
        return FALSE;
    }
    last->extent[0]++;
    return TRUE;
}

/* Folds boxes [first, n) by one dim; FALSE when none could be. */
static gboolean fold(GArray *boxes, guint first) {
    RefitGpuBox *box = (RefitGpuBox *)(gpointer)boxes->data;
    guint n = boxes->len, out = first, count;

    for (guint i = first; i < n; i += count) {
        RefitGpuBox folded = box[i];
        guint d = folded.n_dims;

        count = 1;
        if (d < REFIT_STRIDED_DIMS && i + 1 < n && same_shape(&box[i], &box[i + 1])) {
            folded.from_step[d] = distance(box[i].from, box[i + 1].from);
            folded.to_step[d] = distance(box[i].to, box[i + 1].to);
            do
                count++;
            while (i + count < n && same_shape(&box[i], &box[i + count]) &&
                   distance(box[i + count - 1].from, box[i + count].from) == folded.from_step[d] &&
                   distance(box[i + count - 1].to, box[i + count].to) == folded.to_step[d]);
            folded.extent[d] = count;
            folded.n_dims++;
        }
        box[out++] = folded;
    }
    g_array_set_size(boxes, out);
    return out < n;
}

void refit_gpu_boxes_append(GArray *boxes, const RefitGpuPlaces *places, const RefitByteRun *runs,
                            guint n) {
    guint first = boxes->len;

    for (guint i = 0; i < n; i++) {
        const RefitByteRun *run = &runs[i];
        RefitGpuBox box = {
            .from = address_of(places, run->from_memory, run->from_parameter, run->from),
            .to = address_of(places, run->to_memory, run->to_parameter, run->to),
            .bytes = run->bytes,
        };

        if (box.from != box.to &&
            (boxes->len == first ||
             !extend(&g_array_index(boxes, RefitGpuBox, boxes->len - 1), &box)))
            g_array_append_val(boxes, box);
    }
    while (fold(boxes, first))
        ;
}

gboolean refit_gpu_box_is_packed(const RefitGpuBox *box, gboolean packs) {
    const gint64 *step = packs ? box->to_step : box->from_step;
    guint64 expected = box->bytes;

    for (guint d = 0; d < box->n_dims; d++) {
        if (step[d] != (gint64)expected)
            return FALSE;
        expected *= box->extent[d];
    }
    return TRUE;
}

gboolean refit_gpu_box_add(const RefitGpuBox *box, RefitStridedTable *table, gboolean packed,
                           gboolean packs, guint64 packed_base, GError **error) {
    guint64 extents[REFIT_STRIDED_DIMS + 1];
    gint64 from_strides[REFIT_STRIDED_DIMS + 1], to_strides[REFIT_STRIDED_DIMS + 1];
    guint n = box->n_dims;

    for (guint d = 0; d < n; d++) {
        extents[n - 1 - d] = box->extent[d];
        from_strides[n - 1 - d] = box->from_step[d];
        to_strides[n - 1 - d] = box->to_step[d];
    }
    extents[n] = box->bytes;
    from_strides[n] = to_strides[n] = 1;

    const RefitStridedShape shape = {n + 1, extents, 1};
    const RefitStridedPlace from = {box->from, from_strides}, to = {box->to, to_strides};

    if (!packed)
        return refit_strided_table_add_copy(table, &shape, &from, &to, error);
    return refit_strided_table_add_packed(table, &shape, packs ? &from : &to,
                                          (packs ? box->to : box->from) - packed_base, error);
}
