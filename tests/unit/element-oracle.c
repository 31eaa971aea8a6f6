/*
 * Oracle for plans, element by element: who holds what, and how many bytes that is.
 *
 * Each element is asked, dim by dim and cut by cut, for the part that owns it; a rank has the
 * elements that its mesh coordinates own. Cost: ranks times elements.
 */

#include "element-oracle-private.h"

#include <string.h>

/* ---- who holds what ---- */

static void buffer_free(gpointer data) {
    ElementBuffer *buffer = data;

    g_free(buffer->elements);
    g_free(buffer);
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
    g_ptr_array_add(oracle->tensors, tensor);
    return oracle->tensors->len - 1;
}

/*
 * The part that gets `index` of `n`; *index becomes its number in that part and *n the part's size.
 */
static guint owner(const RefitPlacement *place, guint parts, guint64 *index, guint64 *n) {
    guint64 first = 0, size = 0;
    guint part = 0;

    for (;; part++) {
        g_assert_cmpuint(part, <, parts);
        first += size;
        if (place->split == REFIT_SPLIT_SIZES)
            size = place->sizes[part];
        else if (place->split == REFIT_SPLIT_BALANCED)
            size = *n / parts + (part < *n % parts ? 1 : 0);
        else
            size = MIN((*n + parts - 1) / parts, *n - first);
        if (*index < first + size)
            break;
    }
    *index -= first;
    *n = size;
    return part;
}

/* Does the rank at these coordinates keep `index` of `dim`? */
static gboolean keeps(const ElementMesh *mesh, const guint *coordinates, guint dim, guint64 index,
                      guint64 n) {
    guint64 done = 0; /* axes that have cut, as bits */

    for (;;) {
        guint next = REFIT_MAX_AXES;

        for (guint axis = 0; axis < mesh->n_axes; axis++) {
            const RefitPlacement *place = &mesh->places[axis];

            if (place->kind == REFIT_PLACEMENT_SHARD && place->dim == dim && !(done >> axis & 1) &&
                (next == REFIT_MAX_AXES || place->order < mesh->places[next].order))
                next = axis;
        }
        if (next == REFIT_MAX_AXES)
            return TRUE;
        if (owner(&mesh->places[next], mesh->sizes[next], &index, &n) != coordinates[next])
            return FALSE;
        done |= G_GUINT64_CONSTANT(1) << next;
    }
}

static guint index_in_dim(const ElementTensor *tensor, guint element, guint dim) {
    for (guint inner = tensor->n_dims - 1; inner > dim; inner--)
        element /= (guint)tensor->shape[inner];
    return element % (guint)tensor->shape[dim];
}

/* A rank that has the same elements twice has them once. */
static void add_buffer(GPtrArray **buffers, const guint *elements, guint n) {
    ElementBuffer *buffer;

    if (n == 0)
        return;
    if (*buffers == NULL)
        *buffers = g_ptr_array_new_with_free_func(buffer_free);
    for (guint i = 0; i < (*buffers)->len; i++) {
        buffer = g_ptr_array_index(*buffers, i);
        if (buffer->n == n && memcmp(buffer->elements, elements, n * sizeof *elements) == 0)
            return;
    }
    buffer = g_new0(ElementBuffer, 1);
    buffer->n = n;
    buffer->elements = g_memdup2(elements, n * sizeof *elements);
    g_ptr_array_add(*buffers, buffer);
}

void element_oracle_place(ElementOracle *oracle, guint tensor_index, gboolean needed,
                          const ElementMesh *mesh) {
    const ElementTensor *tensor = element_oracle_tensor(oracle, tensor_index);
    g_autofree guint *elements = g_new(guint, tensor->n_elements);
    guint n_positions = 1;

    for (guint axis = 0; axis < mesh->n_axes; axis++)
        n_positions *= mesh->sizes[axis];
    for (guint position = 0; position < n_positions; position++) {
        guint coordinates[REFIT_MAX_AXES] = {0}, rest = position, n = 0;
        guint8 *kept[REFIT_MAX_DIMS] = {NULL};

        for (guint axis = mesh->n_axes; axis-- > 0;) {
            coordinates[axis] = rest % mesh->sizes[axis];
            rest /= mesh->sizes[axis];
        }
        for (guint dim = 0; dim < tensor->n_dims; dim++) {
            kept[dim] = g_new(guint8, tensor->shape[dim]);
            for (guint64 i = 0; i < tensor->shape[dim]; i++)
                kept[dim][i] = keeps(mesh, coordinates, dim, i, tensor->shape[dim]) ? 1 : 0;
        }
        for (guint e = 0; e < tensor->n_elements; e++) {
            gboolean all = TRUE;

            for (guint dim = tensor->n_dims; all && dim-- > 0;)
                all = kept[dim][index_in_dim(tensor, e, dim)];
            if (all)
                elements[n++] = e;
        }
        for (guint dim = 0; dim < tensor->n_dims; dim++)
            g_free(kept[dim]);
        add_buffer(&(needed ? tensor->needed : tensor->held)[mesh->ranks[position]], elements, n);
    }
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
