/*
 * Pack, unpack and copy kernels against loops over elements. Slices have up to seven dims, elements
 * of 1 to 8 bytes and begin anywhere, so that every access width and many merged and unmerged dims
 * come up; the host moves each element by itself. The large region has contents that follow from
 * the address, so that rows can be compared without a copy of gigabytes on the host. Cost: some
 * nanoseconds per element; for the large region, bytes at the rate of host copies.
 */

#include "validation/pack-check.h"

#include <string.h>

#include "gpu/executor/refit-pack.h"

enum { MAX_DIMS = 7, MAX_GAP = 9 };

typedef struct {
    guint n_dims;
    guint64 element_bytes;
    guint64 extents[MAX_DIMS];
    gint64 strides[MAX_DIMS];
    guint64 n_elements;
    guint64 begin; /* byte of the first element */
    guint64 total; /* bytes of the array */
} Slice;

gboolean pack_check_cuda(cudaError_t result, const char *call, GError **error) {
    if (result == cudaSuccess)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%.*s: %s (%s)", (int)strcspn(call, "("),
                call, cudaGetErrorString(result), cudaGetErrorName(result));
    return FALSE;
}

/* ---- memory ---- */

static void free_memory(PackCheck *self) {
    for (guint i = 0; i < self->addresses->len; i++)
        cudaFree(g_array_index(self->addresses, void *, i));
    g_array_set_size(self->addresses, 0);
}

static char *allocate(PackCheck *self, guint64 bytes, GError **error) {
    void *address = NULL;

    if (!PACK_CHECK_CUDA(cudaMalloc(&address, bytes), error))
        return NULL;
    g_array_append_val(self->addresses, address);
    return address;
}

static char *upload(PackCheck *self, gconstpointer bytes, guint64 size, GError **error) {
    char *address = allocate(self, size, error);

    return address != NULL &&
                   PACK_CHECK_CUDA(
                       cudaMemcpyAsync(address, bytes, size, cudaMemcpyHostToDevice, self->stream),
                       error) &&
                   PACK_CHECK_CUDA(cudaStreamSynchronize(self->stream), error)
               ? address
               : NULL;
}

static gboolean download(PackCheck *self, gpointer to, const char *address, guint64 size,
                         GError **error) {
    return PACK_CHECK_CUDA(cudaMemcpyAsync(to, address, size, cudaMemcpyDeviceToHost, self->stream),
                           error) &&
           PACK_CHECK_CUDA(cudaStreamSynchronize(self->stream), error);
}

static gboolean is_as(PackCheck *self, const char *what, const char *address, const char *expected,
                      guint64 size, GError **error) {
    g_autofree char *bytes = g_malloc(size + 1);
    guint64 wrong = 0;

    if (!download(self, bytes, address, size, error))
        return FALSE;
    while (wrong < size && bytes[wrong] == expected[wrong])
        wrong++;
    if (wrong < size)
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                    "%s: byte %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " is wrong", what, wrong,
                    size);
    return wrong == size;
}

PackCheck *pack_check_new(guint32 seed, guint64 most_bytes, GError **error) {
    cudaStream_t stream;

    if (!PACK_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), error))
        return NULL;
    PackCheck *self = g_new0(PackCheck, 1);
    self->random = g_rand_new_with_seed(seed);
    self->stream = stream;
    self->most_bytes = most_bytes;
    self->addresses = g_array_new(FALSE, FALSE, sizeof(void *));
    return self;
}

void pack_check_free(PackCheck *self) {
    if (self == NULL)
        return;
    free_memory(self);
    cudaStreamDestroy(self->stream);
    g_rand_free(self->random);
    g_array_unref(self->addresses);
    g_free(self);
}

/* ---- slices ---- */

static guint32 below(PackCheck *self, guint32 n) {
    return (guint32)g_rand_int_range(self->random, 0, (gint32)n);
}

static char *random_bytes(PackCheck *self, guint64 size) {
    char *bytes = g_malloc(size + 1);
    guint32 state = g_rand_int(self->random) | 1;

    for (guint64 i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        bytes[i] = (char)(state >> 24);
    }
    return bytes;
}

/* A slice of `extents` elements of a random larger array. */
static void place_slice(PackCheck *self, Slice *slice) {
    guint64 step = slice->element_bytes;

    slice->begin = 0;
    for (guint i = slice->n_dims; i-- > 0;) {
        guint64 before = below(self, 3) == 0 ? below(self, MAX_GAP) : 0;
        guint64 after = below(self, 3) == 0 ? below(self, MAX_GAP) : 0;

        slice->strides[i] = (gint64)step;
        slice->begin += before * step;
        step *= before + slice->extents[i] + after;
    }
    slice->total = step;
}

static Slice random_slice(PackCheck *self) {
    static const guint64 element_bytes[] = {1, 2, 2, 4, 8};
    const guint64 most = below(self, 20) == 0 ? self->most_bytes : self->most_bytes / 20;
    Slice slice = {.n_dims = 1 + below(self, MAX_DIMS),
                   .element_bytes = element_bytes[below(self, 5)]};

    do {
        slice.n_elements = 1;
        for (guint i = 0; i < slice.n_dims; i++) {
            gboolean last = i + 1 == slice.n_dims;

            slice.extents[i] = 1 + below(self, last ? 300 : 6);
            if (last && slice.extents[i] > 16 && below(self, 2) == 0)
                slice.extents[i] = slice.extents[i] / 8 * 8;
            slice.n_elements *= slice.extents[i];
        }
        place_slice(self, &slice);
    } while (slice.total > most);
    return slice;
}

/* Byte offsets in the array of the elements of the slice, in row-major order. */
static guint64 *element_places(const Slice *slice) {
    guint64 *places = g_new(guint64, slice->n_elements);

    for (guint64 i = 0; i < slice->n_elements; i++) {
        guint64 rest = i;

        places[i] = slice->begin;
        for (guint k = slice->n_dims; k-- > 0;) {
            places[i] += rest % slice->extents[k] * (guint64)slice->strides[k];
            rest /= slice->extents[k];
        }
    }
    return places;
}

static gboolean add_slice(RefitStridedTable *table, const Slice *slice, const char *array,
                          guint64 offset, GError **error) {
    const RefitStridedShape shape = {slice->n_dims, slice->extents, slice->element_bytes};
    const RefitStridedPlace place = {(guintptr)array + slice->begin, slice->strides};

    return refit_strided_table_add_packed(table, &shape, &place, offset, error);
}

static RefitStridedCopy *upload_table(PackCheck *self, const RefitStridedTable *table,
                                      GError **error) {
    guint n;
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n);

    for (guint i = 0; i < n; i++) {
        self->widths[copies[i].width_log2]++;
        self->n_bytes += copies[i].n_bytes;
    }
    self->n_regions += n;
    return (RefitStridedCopy *)(void *)upload(self, copies, n * sizeof *copies, error);
}

typedef struct {
    Slice slice;
    guint64 offset;            /* in the packed buffer */
    char *from, *to;           /* on the device */
    char *host_from, *host_to; /* what they hold */
} Packed;

static void clear_packed(Packed *packed, guint n) {
    for (guint i = 0; i < n; i++) {
        g_free(packed[i].host_from);
        g_free(packed[i].host_to);
    }
}

/* Returns how long the packed buffer must be. */
static guint64 draw_packed(PackCheck *self, Packed *packed, guint n) {
    guint64 end = 0;

    for (guint i = 0; i < n; i++) {
        Packed *one = &packed[i];

        one->slice = random_slice(self);
        one->offset = end;
        if (below(self, 2) == 0)
            one->offset += one->slice.element_bytes * below(self, 4);
        end = one->offset + one->slice.n_elements * one->slice.element_bytes;
        one->host_from = random_bytes(self, one->slice.total);
        one->host_to = random_bytes(self, one->slice.total);
    }
    return end;
}

static gboolean place_packed(PackCheck *self, Packed *packed, guint n, RefitStridedTable *table,
                             RefitStridedSpan *pack, RefitStridedSpan *unpack, GError **error) {
    for (guint i = 0; i < n; i++) {
        packed[i].from = upload(self, packed[i].host_from, packed[i].slice.total, error);
        if (packed[i].from == NULL)
            return FALSE;
        packed[i].to = upload(self, packed[i].host_to, packed[i].slice.total, error);
        if (packed[i].to == NULL)
            return FALSE;
    }
    refit_strided_table_begin(table);
    for (guint i = 0; i < n; i++)
        if (!add_slice(table, &packed[i].slice, packed[i].from, packed[i].offset, error))
            return FALSE;
    *pack = refit_strided_table_end(table);
    refit_strided_table_begin(table);
    for (guint i = 0; i < n; i++)
        if (!add_slice(table, &packed[i].slice, packed[i].to, packed[i].offset, error))
            return FALSE;
    *unpack = refit_strided_table_end(table);
    return TRUE;
}

/* What the kernels have done, done by hand. */
static void move_by_hand(Packed *packed, guint n, char *buffer) {
    for (guint i = 0; i < n; i++) {
        const Packed *one = &packed[i];
        const guint64 size = one->slice.element_bytes;
        g_autofree guint64 *places = element_places(&one->slice);

        for (guint64 k = 0; k < one->slice.n_elements; k++) {
            memcpy(buffer + one->offset + k * size, one->host_from + places[k], size);
            memcpy(one->host_to + places[k], one->host_from + places[k], size);
        }
    }
}

static gboolean move_packed(PackCheck *self, Packed *packed, guint n, guint64 end, GError **error) {
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    g_autofree char *expected = random_bytes(self, end);
    char *buffer = upload(self, expected, end, error);
    RefitStridedSpan pack, unpack;

    if (buffer == NULL || !place_packed(self, packed, n, table, &pack, &unpack, error))
        return FALSE;
    const RefitStridedCopy *copies = upload_table(self, table, error);
    if (copies == NULL ||
        !PACK_CHECK_CUDA(refit_pack_launch(copies, &pack, buffer, 1 + below(self, 5), self->stream),
                         error) ||
        !PACK_CHECK_CUDA(
            refit_unpack_launch(copies, &unpack, buffer, 1 + below(self, 5), self->stream), error))
        return FALSE;
    move_by_hand(packed, n, expected);
    for (guint i = 0; i < n; i++)
        if (!is_as(self, "pack's source", packed[i].from, packed[i].host_from,
                   packed[i].slice.total, error) ||
            !is_as(self, "unpack", packed[i].to, packed[i].host_to, packed[i].slice.total, error))
            return FALSE;
    return is_as(self, "pack", buffer, expected, end, error);
}

gboolean pack_check_slices(PackCheck *self, guint n, GError **error) {
    Packed packed[PACK_CHECK_SLICES] = {0};

    g_return_val_if_fail(n <= PACK_CHECK_SLICES, FALSE);
    guint64 end = draw_packed(self, packed, n);
    gboolean well = move_packed(self, packed, n, end, error);
    clear_packed(packed, n);
    free_memory(self);
    return well;
}

static gboolean move_copy(PackCheck *self, const Slice *from, const Slice *to, const char *at_from,
                          char *host_from, char *host_to, GError **error) {
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    g_autofree guint64 *places_from = element_places(from);
    g_autofree guint64 *places_to = element_places(to);
    const RefitStridedShape shape = {from->n_dims, from->extents, from->element_bytes};
    char *at_to = upload(self, host_to, to->total, error);
    const RefitStridedPlace places[] = {{(guintptr)at_from + from->begin, from->strides},
                                        {(guintptr)at_to + to->begin, to->strides}};

    refit_strided_table_begin(table);
    if (at_to == NULL ||
        !refit_strided_table_add_copy(table, &shape, &places[0], &places[1], error))
        return FALSE;
    const RefitStridedSpan span = refit_strided_table_end(table);
    const RefitStridedCopy *copies = upload_table(self, table, error);
    if (copies == NULL ||
        !PACK_CHECK_CUDA(refit_copy_launch(copies, &span, 3, self->stream), error))
        return FALSE;
    for (guint64 k = 0; k < from->n_elements; k++)
        memcpy(host_to + places_to[k], host_from + places_from[k], from->element_bytes);
    return is_as(self, "copy's source", at_from, host_from, from->total, error) &&
           is_as(self, "copy", at_to, host_to, to->total, error);
}

gboolean pack_check_copy(PackCheck *self, GError **error) {
    const Slice from = random_slice(self);
    Slice to = from;

    place_slice(self, &to);
    g_autofree char *host_from = random_bytes(self, from.total);
    g_autofree char *host_to = random_bytes(self, to.total);
    const char *at_from = upload(self, host_from, from.total, error);
    gboolean well =
        at_from != NULL && move_copy(self, &from, &to, at_from, host_from, host_to, error);
    free_memory(self);
    return well;
}

/* ---- a large region ---- */

enum {
    ROW = 1 << 16,    /* bytes of the region in a row of the array, which has twice as many */
    PERIOD = 1000003, /* of contents: prime */
    CHUNK = ROW << 7,
    LARGE_BLOCKS = 64,
};

/* Byte i of the array is byte i % PERIOD of the pattern, which goes on for a chunk. */
static char *make_pattern(PackCheck *self) {
    char *pattern = g_realloc(random_bytes(self, PERIOD), PERIOD + CHUNK);

    for (guint64 done = PERIOD; done < PERIOD + CHUNK; done += PERIOD)
        memcpy(pattern + done, pattern, MIN(PERIOD + CHUNK - done, PERIOD));
    return pattern;
}

static gboolean fill_array(PackCheck *self, char *array, guint64 bytes, const char *pattern,
                           GError **error) {
    for (guint64 done = 0; done < bytes; done += CHUNK)
        if (!PACK_CHECK_CUDA(cudaMemcpyAsync(array + done, pattern + done % PERIOD,
                                             MIN(bytes - done, CHUNK), cudaMemcpyHostToDevice,
                                             self->stream),
                             error))
            return FALSE;
    return PACK_CHECK_CUDA(cudaStreamSynchronize(self->stream), error);
}

static gboolean fail_large(const char *what, guint64 row, GError **error) {
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE,
                "%s of a large region: row %" G_GUINT64_FORMAT " is wrong", what, row);
    return FALSE;
}

/* Row r of the region is the first half of row r of the array. */
static gboolean packed_is_right(PackCheck *self, const char *packed, guint64 n_rows,
                                const char *pattern, GError **error) {
    g_autofree char *chunk = g_malloc(CHUNK);

    for (guint64 first = 0; first < n_rows; first += CHUNK / ROW) {
        const guint64 n = MIN(n_rows - first, CHUNK / ROW);

        if (!download(self, chunk, packed + first * ROW, n * ROW, error))
            return FALSE;
        for (guint64 r = first; r < first + n; r++)
            if (memcmp(chunk + (r - first) * ROW, pattern + r * 2 * ROW % PERIOD, ROW) != 0)
                return fail_large("pack", r, error);
    }
    return TRUE;
}

/* The other halves are all 0. */
static gboolean unpacked_is_right(PackCheck *self, const char *array, guint64 n_rows,
                                  const char *pattern, GError **error) {
    g_autofree char *chunk = g_malloc(CHUNK);
    static const char zeros[ROW];

    for (guint64 first = 0; first < n_rows; first += CHUNK / ROW / 2) {
        const guint64 n = MIN(n_rows - first, CHUNK / ROW / 2);

        if (!download(self, chunk, array + first * 2 * ROW, n * 2 * ROW, error))
            return FALSE;
        for (guint64 r = first; r < first + n; r++) {
            const char *row = chunk + (r - first) * 2 * ROW;
            if (memcmp(row, pattern + r * 2 * ROW % PERIOD, ROW) != 0 ||
                memcmp(row + ROW, zeros, ROW) != 0)
                return fail_large("unpack", r, error);
        }
    }
    return TRUE;
}

static gboolean move_large(PackCheck *self, guint64 n_rows, GError **error) {
    const guint64 extents[] = {n_rows, ROW};
    const gint64 strides[] = {2 * ROW, 1};
    const RefitStridedShape shape = {2, extents, 1};
    g_autofree char *pattern = make_pattern(self);
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    char *array = allocate(self, n_rows * 2 * ROW, error);
    char *packed = array != NULL ? allocate(self, n_rows * ROW, error) : NULL;
    const RefitStridedPlace place = {(guintptr)array, strides};

    if (packed == NULL || !fill_array(self, array, n_rows * 2 * ROW, pattern, error))
        return FALSE;
    refit_strided_table_begin(table);
    if (!refit_strided_table_add_packed(table, &shape, &place, 0, error))
        return FALSE;
    const RefitStridedSpan span = refit_strided_table_end(table);
    const RefitStridedCopy *copies = upload_table(self, table, error);
    return copies != NULL &&
           PACK_CHECK_CUDA(refit_pack_launch(copies, &span, packed, LARGE_BLOCKS, self->stream),
                           error) &&
           packed_is_right(self, packed, n_rows, pattern, error) &&
           PACK_CHECK_CUDA(cudaMemsetAsync(array, 0, n_rows * 2 * ROW, self->stream), error) &&
           PACK_CHECK_CUDA(refit_unpack_launch(copies, &span, packed, LARGE_BLOCKS, self->stream),
                           error) &&
           unpacked_is_right(self, array, n_rows, pattern, error);
}

gboolean pack_check_large(PackCheck *self, guint64 bytes, GError **error) {
    gboolean well = move_large(self, MAX(bytes / ROW, 1), error);

    free_memory(self);
    return well;
}
