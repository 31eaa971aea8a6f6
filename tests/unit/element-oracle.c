/*
 * Oracle for plans, element by element: who holds what, and how many bytes that is.
 *
 * A rank's part of a dim is a line of indices, one per local place. Each cut takes places out of
 * the line, one by one; a rank has the elements whose indices are on all of its lines. Cost: ranks
 * times elements.
 */

#include "element-oracle-private.h"

#include <string.h>

/* ---- who holds what ---- */

static void record_free(gpointer data) {
    ElementRecord *record = data;

    g_free(record->buffer.elements);
    for (guint dim = 0; dim < REFIT_MAX_DIMS; dim++)
        g_free(record->buffer.lines[dim].index);
    g_free(record);
}

static void side_free(GPtrArray **side, guint n_ranks) {
    for (guint rank = 0; rank < n_ranks; rank++)
        g_clear_pointer(&side[rank], g_ptr_array_unref);
    g_free(side);
}

ElementOracle *element_oracle_new(guint n_ranks, guint domain_size) {
    ElementOracle *oracle = g_new0(ElementOracle, 1);

    oracle->n_ranks = n_ranks;
    oracle->domain_size = domain_size;
    oracle->tensors = g_ptr_array_new_with_free_func(g_free);
    return oracle;
}

void element_oracle_free(ElementOracle *oracle) {
    if (oracle == NULL)
        return;
    for (guint i = 0; i < oracle->tensors->len; i++) {
        ElementTensor *tensor = g_ptr_array_index(oracle->tensors, i);
        side_free(tensor->held, oracle->n_ranks);
        side_free(tensor->needed, oracle->n_ranks);
        for (guint side = 0; side < 2; side++)
            g_ptr_array_unref(tensor->records[side]);
    }
    g_ptr_array_unref(oracle->tensors);
    g_free(oracle);
}

guint element_oracle_add_tensor(ElementOracle *oracle, guint n_dims, const guint64 *shape,
                                guint element_bytes) {
    ElementTensor *tensor = g_new0(ElementTensor, 1);

    tensor->n_dims = n_dims;
    tensor->element_bytes = element_bytes;
    tensor->n_elements = 1;
    for (guint dim = 0; dim < n_dims; dim++) {
        tensor->shape[dim] = shape[dim];
        tensor->n_elements *= (guint)shape[dim];
    }
    tensor->held = g_new0(GPtrArray *, oracle->n_ranks);
    tensor->needed = g_new0(GPtrArray *, oracle->n_ranks);
    for (guint side = 0; side < 2; side++)
        tensor->records[side] = g_ptr_array_new_with_free_func(record_free);
    g_ptr_array_add(oracle->tensors, tensor);
    return oracle->tensors->len - 1;
}

/* ---- lines ---- */

/* Which of `parts` chunks of the rounded-up size has place `i` of `n`. */
static guint chunk_of(guint i, guint n, guint parts) {
    return i / ((n + parts - 1) / parts);
}

/* Which of `parts` has place `i` of `n`. */
static guint owner(const RefitPlacement *place, guint parts, guint i, guint n) {
    guint first = 0, part = 0, chunk, in_chunk = 0, before = 0;

    switch (place->split) {
    case REFIT_SPLIT_SIZES:
    case REFIT_SPLIT_BALANCED:
        for (;; part++) {
            guint size = place->split == REFIT_SPLIT_SIZES ? (guint)place->sizes[part]
                                                           : n / parts + (part < n % parts ? 1 : 0);
            if (i < first + size)
                return part;
            first += size;
        }
    case REFIT_SPLIT_STRIDED:
        chunk = chunk_of(i, n, place->chunks);
        for (guint k = 0; k < n; k++) {
            before += k < i && chunk_of(k, n, place->chunks) == chunk;
            in_chunk += chunk_of(k, n, place->chunks) == chunk;
        }
        return chunk_of(before, in_chunk, parts);
    default:
        return chunk_of(i, n, parts);
    }
}

static void line_add(ElementLine *line, int index) {
    line->index[line->n++] = index;
}

/* Segments lie side by side; part `own` has one of each segment's chunks. */
static void take_segments(const ElementLine *from, const ElementCut *cut, guint parts, guint own,
                          ElementLine *to) {
    guint i = 0;

    for (guint s = 0; s < cut->n_segments; s++) {
        guint n = (guint)cut->extents[s], ways = cut->ways[s];

        for (guint k = 0; k < n; k++, i++)
            if (chunk_of(k, n, ways) == own * ways / parts)
                line_add(to, i < from->n ? from->index[i] : ELEMENT_GAP);
    }
}

/* What part `own` of an axis takes out of `line`, which is freed. */
static ElementLine cut_line(ElementLine from, const ElementMesh *mesh, guint axis, guint own) {
    const RefitPlacement *place = &mesh->places[axis];
    const ElementCut *cut = &mesh->cuts[axis];
    guint parts = mesh->sizes[axis], room = from.n;
    ElementLine to = {0};

    if (cut->lists != NULL)
        room += cut->lists[own]->len;
    for (guint s = 0; s < cut->n_segments; s++)
        room += (guint)cut->extents[s];
    to.index = g_new(int, MAX(room, 1));
    if (place->split == REFIT_SPLIT_LISTS && cut->lists != NULL) {
        for (guint k = 0; k < cut->lists[own]->len; k++) {
            guint i = g_array_index(cut->lists[own], guint, k);
            line_add(&to, i < from.n ? from.index[i] : ELEMENT_GAP);
        }
    } else if (place->split == REFIT_SPLIT_LISTS) {
        take_segments(&from, cut, parts, own, &to);
    } else {
        for (guint i = 0; i < from.n; i++)
            if (owner(place, parts, i, from.n) == own)
                line_add(&to, from.index[i]);
    }
    while (to.n > 0 && to.index[to.n - 1] == ELEMENT_GAP)
        to.n--;
    g_free(from.index);
    return to;
}

/* What the rank at these coordinates stores of `dim`, whose extent is `n`. */
static ElementLine make_line(const ElementMesh *mesh, const guint *coordinates, guint dim,
                             guint64 n) {
    guint64 done = 0; /* axes that have cut, as bits */
    guint64 padded = MAX(mesh->padded[dim], n);
    ElementLine line = {.index = g_new(int, MAX(padded, 1))};

    while (line.n < padded)
        line_add(&line, (int)line.n);
    for (;;) {
        guint next = REFIT_MAX_AXES;

        for (guint axis = 0; axis < mesh->n_axes; axis++) {
            const RefitPlacement *place = &mesh->places[axis];

            if (place->kind == REFIT_PLACEMENT_SHARD && place->dim == dim && !(done >> axis & 1) &&
                (next == REFIT_MAX_AXES || place->order < mesh->places[next].order))
                next = axis;
        }
        if (next == REFIT_MAX_AXES)
            break;
        line = cut_line(line, mesh, next, coordinates[next]);
        done |= G_GUINT64_CONSTANT(1) << next;
    }
    for (guint i = 0; i < line.n; i++)
        if (line.index[i] >= (int)n)
            line.index[i] = ELEMENT_GAP;
    return line;
}

/* ---- buffers ---- */

static guint index_in_dim(const ElementTensor *tensor, guint element, guint dim) {
    for (guint inner = tensor->n_dims - 1; inner > dim; inner--)
        element /= (guint)tensor->shape[inner];
    return element % (guint)tensor->shape[dim];
}

/* Per index below `n`: whether it is on the line. */
static guint8 *marks_of(const ElementLine *line, guint64 n) {
    guint8 *marks = g_new0(guint8, MAX(n, 1));

    for (guint i = 0; i < line->n; i++) {
        if (line->index[i] != ELEMENT_GAP)
            marks[line->index[i]] = 1;
    }
    return marks;
}

/* Elements whose indices are all on the lines; takes the lines. */
static void add_record(ElementOracle *oracle, guint tensor_index, gboolean needed, guint rank,
                       const ElementLine *lines, gboolean alone) {
    ElementTensor *tensor = element_oracle_tensor(oracle, tensor_index);
    GPtrArray **buffers = &(needed ? tensor->needed : tensor->held)[rank];
    ElementRecord *record = g_new0(ElementRecord, 1);
    ElementBuffer *buffer = &record->buffer;
    guint8 *on_line[REFIT_MAX_DIMS] = {NULL};

    record->rank = rank;
    record->alone = alone;
    memcpy(buffer->lines, lines, sizeof buffer->lines);
    buffer->elements = g_new(guint, MAX(tensor->n_elements, 1));
    for (guint dim = 0; dim < tensor->n_dims; dim++)
        on_line[dim] = marks_of(&lines[dim], tensor->shape[dim]);
    for (guint e = 0; e < tensor->n_elements; e++) {
        gboolean all = TRUE;

        for (guint dim = tensor->n_dims; all && dim-- > 0;)
            all = on_line[dim][index_in_dim(tensor, e, dim)];
        if (all)
            buffer->elements[buffer->n++] = e;
    }
    for (guint dim = 0; dim < tensor->n_dims; dim++)
        g_free(on_line[dim]);
    g_ptr_array_add(tensor->records[needed], record);
    if (buffer->n == 0)
        return;
    if (*buffers == NULL)
        *buffers = g_ptr_array_new();
    /* A rank that has the same elements twice has them once. */
    for (guint i = 0; i < (*buffers)->len; i++) {
        const ElementBuffer *other = g_ptr_array_index(*buffers, i);
        if (other->n == buffer->n &&
            memcmp(other->elements, buffer->elements, buffer->n * sizeof(guint)) == 0)
            return;
    }
    g_ptr_array_add(*buffers, buffer);
}

static guint n_positions(const ElementMesh *mesh) {
    guint n = 1;

    for (guint axis = 0; axis < mesh->n_axes; axis++)
        n *= mesh->sizes[axis];
    return n;
}

static void find_coordinates(const ElementMesh *mesh, guint position, guint *coordinates) {
    for (guint axis = mesh->n_axes; axis-- > 0;) {
        coordinates[axis] = position % mesh->sizes[axis];
        position /= mesh->sizes[axis];
    }
}

void element_oracle_place(ElementOracle *oracle, guint tensor_index, gboolean needed,
                          const ElementMesh *mesh) {
    const ElementTensor *tensor = element_oracle_tensor(oracle, tensor_index);

    for (guint position = 0; position < n_positions(mesh); position++) {
        guint coordinates[REFIT_MAX_AXES] = {0};
        ElementLine lines[REFIT_MAX_DIMS] = {{0}};

        find_coordinates(mesh, position, coordinates);
        for (guint dim = 0; dim < tensor->n_dims; dim++)
            lines[dim] = make_line(mesh, coordinates, dim, tensor->shape[dim]);
        add_record(oracle, tensor_index, needed, mesh->ranks[position], lines, TRUE);
    }
}

/* One row of a parameter: whose it is, and its number there. */
typedef struct {
    guint tensor;
    int row;
} Row;

static GArray *interleave(const ElementOracle *oracle, const guint *tensors, guint n_tensors,
                          const guint64 *blocks) {
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(Row));
    gboolean more = TRUE;

    for (guint block = 0; more; block++) {
        more = FALSE;
        for (guint t = 0; t < n_tensors; t++) {
            guint64 n = element_oracle_tensor(oracle, tensors[t])->shape[0];

            for (guint64 row = block * blocks[t]; row < (block + 1) * blocks[t] && row < n; row++) {
                Row item = {t, (int)row};
                g_array_append_val(rows, item);
                more = TRUE;
            }
        }
    }
    return rows;
}

void element_oracle_place_fused(ElementOracle *oracle, const guint *tensors, guint n_tensors,
                                const guint64 *blocks, gboolean needed, const ElementMesh *mesh) {
    g_autoptr(GArray) rows = interleave(oracle, tensors, n_tensors, blocks);

    for (guint position = 0; position < n_positions(mesh); position++) {
        guint coordinates[REFIT_MAX_AXES] = {0};

        find_coordinates(mesh, position, coordinates);
        for (guint t = 0; t < n_tensors; t++) {
            const ElementTensor *tensor = element_oracle_tensor(oracle, tensors[t]);
            ElementLine whole = make_line(mesh, coordinates, 0, rows->len);
            ElementLine lines[REFIT_MAX_DIMS] = {{0}};

            /* Rows of others and padding leave no gap in what a rank has of one tensor. */
            lines[0].index = g_new(int, MAX(whole.n, 1));
            for (guint i = 0; i < whole.n; i++) {
                if (whole.index[i] == ELEMENT_GAP)
                    continue;
                const Row *row = &g_array_index(rows, Row, (guint)whole.index[i]);
                if (row->tensor == t)
                    line_add(&lines[0], row->row);
            }
            g_free(whole.index);
            for (guint dim = 1; dim < tensor->n_dims; dim++)
                lines[dim] = make_line(mesh, coordinates, dim, tensor->shape[dim]);
            add_record(oracle, tensors[t], needed, mesh->ranks[position], lines, FALSE);
        }
    }
}

/* ---- what a rank is told ---- */

gboolean element_line_is(const ElementLine *line, const RefitIntervalList *list) {
    guint n = 0;

    for (guint i = 0; i < list->n; i++) {
        for (guint64 k = list->items[i].lo; k < list->items[i].hi; k++, n++) {
            guint64 at = list->items[i].at + (k - list->items[i].lo);
            if (at >= line->n || line->index[at] != (int)k)
                return FALSE;
        }
    }
    for (guint i = 0; i < line->n; i++)
        n -= line->index[i] != ELEMENT_GAP;
    return n == 0;
}

char *element_oracle_check_local(const ElementOracle *oracle, guint tensor_index, gboolean needed,
                                 const RefitSharding *sharding) {
    const ElementTensor *tensor = element_oracle_tensor(oracle, tensor_index);
    const GPtrArray *records = tensor->records[needed];

    for (guint i = 0; i < records->len; i++) {
        const ElementRecord *record = g_ptr_array_index(records, i);
        gboolean found = FALSE;

        for (guint part = 0; !found && part < refit_sharding_n_parts(sharding); part++) {
            g_auto(RefitRegion) region = {0};
            guint64 shape[REFIT_MAX_DIMS];

            found = refit_sharding_local(sharding, part, record->rank, tensor->n_dims,
                                         tensor->shape, &region, shape, NULL);
            for (guint dim = 0; found && dim < tensor->n_dims; dim++)
                found = (shape[dim] == record->buffer.lines[dim].n || !record->alone) &&
                        element_line_is(&record->buffer.lines[dim], region.dims[dim]);
        }
        if (!found)
            return g_strdup_printf("tensor %u: no part of the sharding stores what rank %u %s",
                                   tensor_index, record->rank, needed ? "needs" : "holds");
    }
    return NULL;
}

/* ---- byte counts ---- */

guint element_buffers_mark(GPtrArray *buffers, guint8 *seen) {
    guint n = 0;

    for (guint i = 0; buffers != NULL && i < buffers->len; i++) {
        const ElementBuffer *buffer = g_ptr_array_index(buffers, i);

        for (guint k = 0; k < buffer->n; k++) {
            n += !seen[buffer->elements[k]];
            seen[buffer->elements[k]] = 1;
        }
    }
    return n;
}

guint64 element_oracle_needed_bytes(const ElementOracle *oracle, guint rank) {
    guint64 bytes = 0;

    for (guint t = 0; t < oracle->tensors->len; t++) {
        const ElementTensor *tensor = element_oracle_tensor(oracle, t);
        g_autofree guint8 *seen = g_new0(guint8, tensor->n_elements);

        bytes += (guint64)element_buffers_mark(tensor->needed[rank], seen) * tensor->element_bytes;
    }
    return bytes;
}

guint64 element_oracle_network_bytes(const ElementOracle *oracle) {
    guint64 bytes = 0;

    for (guint t = 0; t < oracle->tensors->len; t++) {
        const ElementTensor *tensor = element_oracle_tensor(oracle, t);

        for (guint first = 0; first < oracle->n_ranks; first += oracle->domain_size) {
            guint end = MIN(first + oracle->domain_size, oracle->n_ranks);
            g_autofree guint8 *seen = g_new0(guint8, tensor->n_elements);

            for (guint rank = first; rank < end; rank++)
                element_buffers_mark(tensor->held[rank], seen);
            for (guint rank = first; rank < end; rank++)
                bytes += (guint64)element_buffers_mark(tensor->needed[rank], seen) *
                         tensor->element_bytes;
        }
    }
    return bytes;
}
