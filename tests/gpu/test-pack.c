/*
 * Strided copies: how regions become descriptors (merged dims, contiguous ones, widths, parts of
 * what is too much for one), and thousands of random n-dimensional slices through the kernels on
 * the CPU stand-in: pack equals an element-by-element reference, unpack is its inverse, a strided
 * copy equals both in turn, and nothing else is touched. Host-side limits are checked without any
 * memory behind them.
 */

#include "refit-error.h"
#include "refit-pack.h"
#include "refit-strided.h"
#include "standin-child.h"

#include <string.h>

#if defined(__SANITIZE_THREAD__)
enum { N_SLICES = 100 }; /* there for the stand-in's sake */
#else
enum { N_SLICES = 1000 };
#endif
enum { MAX_DIMS = 7, MAX_BYTES = 100000 };

/* ---- descriptors ---- */

static RefitStridedCopy describe_one(guint n_dims, const guint64 *extents, const gint64 *strides,
                                     guint64 element_bytes, guint64 address, guint64 offset) {
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    g_autoptr(GError) error = NULL;
    const RefitStridedShape shape = {n_dims, extents, element_bytes};
    const RefitStridedPlace place = {address, strides};
    guint n;

    refit_strided_table_begin(table);
    gboolean added = refit_strided_table_add_packed(table, &shape, &place, offset, &error);
    g_assert_no_error(error);
    g_assert_true(added);
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n);
    g_assert_cmpuint(n, ==, 1);
    return copies[0];
}

/* Columns 8 to 15 of a [4, 6, 32] array of 2 bytes: 24 rows, 16 bytes every 64. */
static void test_merged(void) {
    const guint64 extents[] = {4, 6, 8};
    const gint64 strides[] = {384, 64, 2};
    const RefitStridedCopy copy = describe_one(3, extents, strides, 2, 0x10000, 32);
    g_assert_cmpuint(copy.n_dims, ==, 1);
    g_assert_cmpuint(copy.extent[0].divisor, ==, 24);
    g_assert_cmpint(copy.strided_step[0], ==, 64);
    g_assert_cmpuint(copy.width_log2, ==, 4);
    g_assert_cmpuint(copy.run.divisor, ==, 1);
    g_assert_cmpuint(copy.n_bytes, ==, 24 * 16);
}

/* The same with one thing off: base, packed place, stride, length. */
static void test_width(void) {
    const guint64 extents[] = {24, 8};
    const guint64 longer[] = {24, 9};
    const gint64 strides[] = {64, 2};
    const gint64 odd[] = {72, 2};
    g_assert_cmpuint(describe_one(2, extents, strides, 2, 0x10000, 8).width_log2, ==, 3);
    g_assert_cmpuint(describe_one(2, extents, strides, 2, 0x10004, 0).width_log2, ==, 2);
    g_assert_cmpuint(describe_one(2, extents, odd, 2, 0x10000, 0).width_log2, ==, 3);
    g_assert_cmpuint(describe_one(2, longer, strides, 2, 0x10000, 0).width_log2, ==, 1);
    g_assert_cmpuint(describe_one(2, extents, strides, 2, 0x10000, 1).width_log2, ==, 0);
}

static gboolean is_contiguous(guint n_dims, const guint64 *extents, const gint64 *strides) {
    const RefitStridedShape shape = {n_dims, extents, 2};
    const RefitStridedPlace place = {64, strides};
    return refit_strided_is_contiguous(&shape, &place);
}

static void test_contiguous(void) {
    const guint64 whole[] = {4, 6, 8};
    const guint64 one_row[] = {1, 1, 5};
    const guint64 empty[] = {4, 0, 8};
    const guint64 rows[] = {4, 2, 8};
    const gint64 strides[] = {96, 16, 2};
    g_assert_true(is_contiguous(3, whole, strides));
    g_assert_true(is_contiguous(3, one_row, strides));
    g_assert_true(is_contiguous(3, empty, strides));
    g_assert_true(is_contiguous(0, NULL, NULL));
    g_assert_false(is_contiguous(3, rows, strides));
}

/* Six dims that nothing merges: the kernel takes four and a run, so one dim of 3 becomes 3 parts.
 */
static void test_split_dims(void) {
    const guint64 extents[] = {3, 2, 2, 2, 2, 4};
    const gint64 strides[] = {1 << 14, 1 << 11, 1 << 9, 1 << 7, 1 << 5, 4};
    const RefitStridedShape shape = {6, extents, 4};
    const RefitStridedPlace place = {1 << 20, strides};
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    g_autoptr(GError) error = NULL;
    guint n;
    refit_strided_table_begin(table);
    g_assert_true(refit_strided_table_add_packed(table, &shape, &place, 64, &error));
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n);
    g_assert_cmpuint(n, ==, 3);
    for (guint i = 0; i < n; i++) {
        g_assert_cmpuint(copies[i].strided, ==, (1 << 20) + ((guint64)i << 14));
        g_assert_cmpuint(copies[i].other, ==, 64 + i * 256);
        g_assert_cmpuint(copies[i].n_bytes, ==, 256);
        g_assert_cmpuint(copies[i].first_tile, ==, i);
    }
    const RefitStridedSpan span = refit_strided_table_end(table);
    g_assert_cmpuint(span.first, ==, 0);
    g_assert_cmpuint(span.n, ==, 3);
    g_assert_cmpuint(span.n_tiles, ==, 3);
}

/* 2^33 rows are cut into parts of fewer than 2^31; rows of 2^31 bytes are taken one by one. */
static void test_split_sizes(void) {
    const guint64 many[] = {(guint64)1 << 33, 1};
    const guint64 wide[] = {3, (guint64)1 << 31};
    const gint64 many_strides[] = {2, 1};
    const gint64 wide_strides[] = {((gint64)1 << 31) + 1, 1};
    const RefitStridedShape shapes[] = {{2, many, 1}, {2, wide, 1}};
    const RefitStridedPlace places[] = {{4096, many_strides}, {4096, wide_strides}};
    for (guint k = 0; k < 2; k++) {
        g_autoptr(RefitStridedTable) table = refit_strided_table_new();
        g_autoptr(GError) error = NULL;
        guint64 n_bytes = 0;
        guint n;
        refit_strided_table_begin(table);
        g_assert_true(refit_strided_table_add_packed(table, &shapes[k], &places[k], 0, &error));
        const RefitStridedCopy *copies = refit_strided_table_get(table, &n);
        g_assert_cmpuint(n, ==, k == 0 ? 8 : 3);
        for (guint i = 0; i < n; i++) {
            g_assert_cmpuint(copies[i].other, ==, n_bytes);
            n_bytes += copies[i].n_bytes;
        }
        g_assert_cmpuint(n_bytes, ==, k == 0 ? (guint64)1 << 33 : (guint64)3 << 31);
    }
}

static void test_refused(void) {
    const guint64 huge[] = {(guint64)1 << 40, (guint64)1 << 30};
    const guint64 many[] = {70000, 2, 2, 2, 2, 4};
    const gint64 strides[] = {1 << 14, 1 << 11, 1 << 9, 1 << 7, 1 << 5, 4};
    const RefitStridedShape shapes[] = {{2, huge, 1}, {6, many, 4}, {17, NULL, 1}};
    const gint codes[] = {REFIT_ERROR_OVERFLOW, REFIT_ERROR_LIMIT, REFIT_ERROR_LIMIT};
    const RefitStridedPlace place = {1 << 20, strides};
    for (guint i = 0; i < G_N_ELEMENTS(shapes); i++) {
        g_autoptr(RefitStridedTable) table = refit_strided_table_new();
        g_autoptr(GError) error = NULL;
        guint n;
        refit_strided_table_begin(table);
        g_assert_false(refit_strided_table_add_packed(table, &shapes[i], &place, 0, &error));
        g_assert_error(error, REFIT_ERROR, codes[i]);
        refit_strided_table_get(table, &n);
        g_assert_cmpuint(n, ==, 0);
        g_assert_cmpuint(refit_strided_table_end(table).n_tiles, ==, 0);
    }
}

static void test_division(void) {
    for (guint i = 0; i < 100000; i++) {
        const guint32 divisor = 1 + (g_random_int() >> (1 + g_random_int_range(0, 31)));
        const guint64 extents[] = {divisor, 1};
        const gint64 strides[] = {3, 1};
        const guint32 n = g_random_int() >> 1;
        const RefitDivision by = describe_one(2, extents, strides, 1, 0, 0).extent[0];
        if (divisor > 1 && divisor < G_MAXINT32) {
            g_assert_cmpuint(by.divisor, ==, divisor);
            g_assert_cmpuint((guint32)((guint64)n * by.multiplier >> 32) >> by.shift, ==,
                             n / divisor);
        }
    }
}

/* ---- random slices ---- */

typedef struct {
    guint n_dims;
    guint64 element_bytes;
    guint64 extents[MAX_DIMS];
    gint64 strides[MAX_DIMS];
    guint64 n_elements;
    guint64 begin; /* byte of the first element */
    guint64 total; /* bytes of the array */
} Slice;

static guint32 below(guint32 n) {
    return (guint32)g_random_int_range(0, (gint32)n);
}

/* A slice of `extents` elements of a random larger array. */
static void place_slice(Slice *slice) {
    guint64 step = slice->element_bytes;
    slice->begin = 0;
    for (guint i = slice->n_dims; i-- > 0;) {
        const guint64 before = below(3) == 0 ? below(9) : 0;
        const guint64 after = below(3) == 0 ? below(9) : 0;
        slice->strides[i] = (gint64)step;
        slice->begin += before * step;
        step *= before + slice->extents[i] + after;
    }
    slice->total = step;
}

static Slice random_slice(void) {
    static const guint64 element_bytes[] = {1, 2, 2, 4, 8};
    Slice slice = {.n_dims = 1 + below(MAX_DIMS), .element_bytes = element_bytes[below(5)]};
    do {
        slice.n_elements = 1;
        for (guint i = 0; i < slice.n_dims; i++) {
            const gboolean last = i + 1 == slice.n_dims;
            slice.extents[i] = 1 + below(last ? 300 : 6);
            if (last && slice.extents[i] > 16 && below(2) == 0) {
                slice.extents[i] = slice.extents[i] / 8 * 8;
            }
            slice.n_elements *= slice.extents[i];
        }
        place_slice(&slice);
    } while (slice.total > (below(20) == 0 ? MAX_BYTES : MAX_BYTES / 20));
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

static char *upload(const void *bytes, gsize size) {
    char *address;
    CUDA(cudaMalloc((void **)&address, size));
    CUDA(cudaMemcpy(address, bytes, size, cudaMemcpyHostToDevice));
    return address;
}

static void check_memory(cudaStream_t stream, const char *address, const char *expected,
                         gsize size) {
    g_autofree char *bytes = g_malloc(size);
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(bytes, address, size, cudaMemcpyDeviceToHost));
    CHECK(memcmp(bytes, expected, size) == 0);
}

static char *random_bytes(gsize size) {
    char *bytes = g_malloc(size);
    guint32 state = g_random_int() | 1;
    for (gsize i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        bytes[i] = (char)(state >> 24);
    }
    return bytes;
}

static void add_slice(RefitStridedTable *table, const Slice *slice, const char *array,
                      guint64 offset) {
    const RefitStridedShape shape = {slice->n_dims, slice->extents, slice->element_bytes};
    const RefitStridedPlace place = {(guintptr)array + slice->begin, slice->strides};
    CHECK(refit_strided_table_add_packed(table, &shape, &place, offset, NULL));
}

static RefitStridedCopy *upload_table(const RefitStridedTable *table) {
    guint n;
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n);
    return (RefitStridedCopy *)(void *)upload(copies, n * sizeof *copies);
}

/* Packs `n` slices into one buffer in one launch, unpacks them into other arrays, all compared. */
static void check_slices(cudaStream_t stream, guint n) {
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    Slice slices[4];
    char *arrays[4], *others[4];
    char *host[4], *host_other[4];
    guint64 offsets[4], end = 0;
    RefitStridedSpan pack, unpack;

    for (guint i = 0; i < n; i++) {
        slices[i] = random_slice();
        offsets[i] = end + (below(2) == 0 ? 0 : slices[i].element_bytes * below(4));
        end = offsets[i] + slices[i].n_elements * slices[i].element_bytes;
        host[i] = random_bytes(slices[i].total);
        host_other[i] = random_bytes(slices[i].total);
        arrays[i] = upload(host[i], slices[i].total);
        others[i] = upload(host_other[i], slices[i].total);
    }
    g_autofree char *packed_host = random_bytes(end);
    char *packed = upload(packed_host, end);
    refit_strided_table_begin(table);
    for (guint i = 0; i < n; i++) {
        add_slice(table, &slices[i], arrays[i], offsets[i]);
    }
    pack = refit_strided_table_end(table);
    refit_strided_table_begin(table);
    for (guint i = 0; i < n; i++) {
        add_slice(table, &slices[i], others[i], offsets[i]);
    }
    unpack = refit_strided_table_end(table);
    RefitStridedCopy *copies = upload_table(table);
    CUDA(refit_pack_launch(copies, &pack, packed, 1 + below(5), stream));
    CUDA(refit_unpack_launch(copies, &unpack, packed, 1 + below(5), stream));
    for (guint i = 0; i < n; i++) {
        g_autofree guint64 *places = element_places(&slices[i]);
        const guint64 size = slices[i].element_bytes;
        for (guint64 k = 0; k < slices[i].n_elements; k++) {
            memcpy(packed_host + offsets[i] + k * size, host[i] + places[k], size);
            memcpy(host_other[i] + places[k], host[i] + places[k], size);
        }
        check_memory(stream, arrays[i], host[i], slices[i].total);
        check_memory(stream, others[i], host_other[i], slices[i].total);
        CUDA(cudaFree(arrays[i]));
        CUDA(cudaFree(others[i]));
        g_free(host[i]);
        g_free(host_other[i]);
    }
    check_memory(stream, packed, packed_host, end);
    CUDA(cudaFree(packed));
    CUDA(cudaFree(copies));
}

/* From a slice of one array to a slice of the same shape of another. */
static void check_copy(cudaStream_t stream) {
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    const Slice from = random_slice();
    Slice to = from;
    place_slice(&to);
    g_autofree char *host_from = random_bytes(from.total);
    g_autofree char *host_to = random_bytes(to.total);
    char *array_from = upload(host_from, from.total);
    char *array_to = upload(host_to, to.total);
    const RefitStridedShape shape = {from.n_dims, from.extents, from.element_bytes};
    const RefitStridedPlace places[] = {{(guintptr)array_from + from.begin, from.strides},
                                        {(guintptr)array_to + to.begin, to.strides}};
    refit_strided_table_begin(table);
    CHECK(refit_strided_table_add_copy(table, &shape, &places[0], &places[1], NULL));
    const RefitStridedSpan span = refit_strided_table_end(table);
    RefitStridedCopy *copies = upload_table(table);
    CUDA(refit_copy_launch(copies, &span, 3, stream));
    g_autofree guint64 *at_from = element_places(&from);
    g_autofree guint64 *at_to = element_places(&to);
    for (guint64 k = 0; k < from.n_elements; k++) {
        memcpy(host_to + at_to[k], host_from + at_from[k], from.element_bytes);
    }
    check_memory(stream, array_to, host_to, to.total);
    CUDA(cudaFree(array_from));
    CUDA(cudaFree(array_to));
    CUDA(cudaFree(copies));
}

static guint32 seed;

static void body_slices(void) {
    cudaStream_t stream = stream_new();
    g_random_set_seed(seed);
    for (guint i = 0; i < N_SLICES / 2; i++) { /* 2.5 each on average */
        check_slices(stream, 1 + below(4));
    }
    CUDA(cudaStreamDestroy(stream));
}

static void body_copies(void) {
    cudaStream_t stream = stream_new();
    g_random_set_seed(seed);
    for (guint i = 0; i < N_SLICES; i++) {
        check_copy(stream);
    }
    CUDA(cudaStreamDestroy(stream));
}

static void test_slices(void) {
    seed = (guint32)g_test_rand_int();
    child_passes(body_slices, NULL);
}

static void test_copies(void) {
    seed = (guint32)g_test_rand_int();
    child_passes(body_copies, NULL);
}

/* Blocks at the same time: no two may write one place, which ThreadSanitizer would see. */
static void body_concurrent(void) {
    cudaStream_t stream = stream_new();
    g_random_set_seed(seed);
    for (guint i = 0; i < N_SLICES / 20; i++) {
        check_slices(stream, 4);
        check_copy(stream);
    }
    CUDA(cudaStreamDestroy(stream));
}

static void test_concurrent(void) {
    const char *const environment[] = {"REFIT_STANDIN_BLOCK_THREADS=3", NULL};
    seed = (guint32)g_test_rand_int();
    child_passes(body_concurrent, environment);
}

static void body_nothing(void) {
    const RefitStridedSpan span = {0};
    CUDA(refit_pack_launch(NULL, &span, NULL, 1, NULL));
    CUDA(refit_unpack_launch(NULL, &span, NULL, 1, NULL));
    CUDA(refit_copy_launch(NULL, &span, 1, NULL));
}

static void test_nothing(void) {
    child_passes(body_nothing, NULL);
}

/* A table whose region leaves its array by a byte is caught by the page behind the block. */
static void body_outside(void) {
    cudaStream_t stream = stream_new();
    const guint64 extents[] = {4, 256};
    const gint64 strides[] = {256, 1};
    const RefitStridedShape shape = {2, extents, 1};
    char *array = device_new(1024, 0);
    char *packed = device_new(1024, 0);
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    const RefitStridedPlace place = {(guintptr)array + 16, strides};
    refit_strided_table_begin(table);
    CHECK(refit_strided_table_add_packed(table, &shape, &place, 0, NULL));
    const RefitStridedSpan span = refit_strided_table_end(table);
    CUDA(refit_pack_launch(upload_table(table), &span, packed, 2, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void test_outside(void) {
#if defined(__SANITIZE_ADDRESS__)
    child_expect(body_outside, NULL, 1, "AddressSanitizer");
#elif defined(__SANITIZE_THREAD__)
    child_expect(body_outside, NULL, 66, "SEGV");
#else
    child_expect(body_outside, NULL, 128 + 11, NULL);
#endif
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/strided/adjacent-dims-are-merged", test_merged);
    g_test_add_func("/strided/the-width-suits-every-address-and-stride", test_width);
    g_test_add_func("/strided/one-run-needs-no-packing", test_contiguous);
    g_test_add_func("/strided/too-many-dims-become-parts", test_split_dims);
    g_test_add_func("/strided/too-large-sizes-become-parts", test_split_sizes);
    g_test_add_func("/strided/what-cannot-be-is-refused", test_refused);
    g_test_add_func("/strided/divisions-are-exact", test_division);
    g_test_add_func("/pack/random-slices-go-out-and-back", test_slices);
    g_test_add_func("/pack/random-slices-are-copied", test_copies);
    g_test_add_func("/pack/blocks-do-not-meet", test_concurrent);
    g_test_add_func("/pack/an-empty-span-launches-nothing", test_nothing);
    g_test_add_func("/pack/a-region-outside-its-memory-is-caught", test_outside);
    return g_test_run();
}
