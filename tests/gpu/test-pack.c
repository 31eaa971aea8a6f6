/*
 * Strided copies: how regions become descriptors (merged dims, contiguous ones, widths, parts of
 * what is too much for one), and thousands of random n-dimensional slices through the kernels on
 * the CPU stand-in, by the checks that a GPU is given, too; how long launches last when the
 * stand-in is told a rate. Host-side limits are checked without any memory behind them.
 */

#include "gpu/executor/refit-pack.h"
#include "gpu/executor/refit-strided.h"
#include "model/base/refit-error.h"
#include "standin-child.h"
#include "validation/pack-check.h"

#if defined(__SANITIZE_THREAD__)
enum { N_SLICES = 100 }; /* there for the stand-in's sake */
#else
enum { N_SLICES = 1000 };
#endif
enum { MAX_BYTES = 100000 };

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

static guint32 seed;

static PackCheck *begin_check(void) {
    PackCheck *check = pack_check_new(seed, MAX_BYTES, NULL);
    CHECK(check != NULL);
    return check;
}

static void fail_with(const GError *error) {
    if (error != NULL) {
        check_failed(__FILE__, __LINE__, error->message);
    }
}

static void body_slices(void) {
    g_autoptr(PackCheck) check = begin_check();
    g_autoptr(GError) error = NULL;
    for (guint i = 0; i < N_SLICES / 2; i++) { /* 2.5 each on average */
        CHECK(pack_check_slices(check, 1 + i % PACK_CHECK_SLICES, &error) || error != NULL);
        fail_with(error);
    }
}

static void body_copies(void) {
    g_autoptr(PackCheck) check = begin_check();
    g_autoptr(GError) error = NULL;
    for (guint i = 0; i < N_SLICES; i++) {
        CHECK(pack_check_copy(check, &error) || error != NULL);
        fail_with(error);
    }
}

static void test_slices(void) {
    seed = (guint32)g_test_rand_int();
    child_passes(body_slices, NULL);
}

static void test_copies(void) {
    seed = (guint32)g_test_rand_int();
    child_passes(body_copies, NULL);
}

/* Rows of 64 KiB, every second one; what lies between them stays. */
static void body_large(void) {
    g_autoptr(PackCheck) check = begin_check();
    g_autoptr(GError) error = NULL;
    CHECK(pack_check_large(check, 40 << 16, &error) || error != NULL);
    fail_with(error);
}

static void test_large(void) {
    seed = (guint32)g_test_rand_int();
    child_passes(body_large, NULL);
}

/* Blocks at the same time: no two may write one place, which ThreadSanitizer would see. */
static void body_concurrent(void) {
    g_autoptr(PackCheck) check = begin_check();
    g_autoptr(GError) error = NULL;
    for (guint i = 0; i < N_SLICES / 20; i++) {
        CHECK((pack_check_slices(check, PACK_CHECK_SLICES, &error) &&
               pack_check_copy(check, &error)) ||
              error != NULL);
        fail_with(error);
    }
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

static RefitStridedCopy *upload(const RefitStridedTable *table) {
    guint n;
    const RefitStridedCopy *copies = refit_strided_table_get(table, &n);
    RefitStridedCopy *on_device;
    CUDA(cudaMalloc((void **)&on_device, n * sizeof *copies));
    CUDA(cudaMemcpy(on_device, copies, n * sizeof *copies, cudaMemcpyHostToDevice));
    return on_device;
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
    CUDA(refit_pack_launch(upload(table), &span, packed, 2, stream));
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

/* ---- time ---- */

#define TIMED_BYTES 40000 /* of a region, in two tiles */
/* Bytes per second of a kernel in the environment below. */
#define PACK_RATE 2000000
#define UNPACK_RATE 4000000
#define COPY_RATE 1000000
#define TIMED_SLACK_MS 2.0 /* a late wake-up */
#define TIMED_TRIES 50     /* on a busy machine most are later than that */

typedef enum { TIMED_PACK, TIMED_UNPACK, TIMED_COPY, N_TIMED } Timed;

typedef struct {
    RefitStridedCopy *table;
    RefitStridedSpan packed, copied;
    char *buffer;
    cudaStream_t stream;
    cudaEvent_t begin, end;
} TimedRegion;

static double time_launch(const TimedRegion *self, Timed what) {
    float ms;
    CUDA(cudaEventRecord(self->begin, self->stream));
    switch (what) {
    case TIMED_PACK:
        CUDA(refit_pack_launch(self->table, &self->packed, self->buffer, 4, self->stream));
        break;
    case TIMED_UNPACK:
        CUDA(refit_unpack_launch(self->table, &self->packed, self->buffer, 4, self->stream));
        break;
    default:
        CUDA(refit_copy_launch(self->table, &self->copied, 4, self->stream));
    }
    CUDA(cudaEventRecord(self->end, self->stream));
    CUDA(cudaStreamSynchronize(self->stream));
    CUDA(cudaEventElapsedTime(&ms, self->begin, self->end));
    return (double)ms;
}

/* The least of launches that are made until one lasts no longer than `most_ms`. */
static double least_ms(const TimedRegion *self, Timed what, double most_ms) {
    double least = G_MAXDOUBLE;
    for (guint i = 0; i < TIMED_TRIES && least > most_ms; i++) {
        least = MIN(least, time_launch(self, what));
    }
    return least;
}

/* Rows of `row` bytes, every second one: accesses of 16 bytes, or of one. */
static void check_times(guint64 row, gboolean timed) {
    const guint64 extents[] = {TIMED_BYTES / row, row};
    const gint64 strides[] = {2 * (gint64)row, 1};
    const RefitStridedShape shape = {2, extents, 1};
    g_autoptr(RefitStridedTable) table = refit_strided_table_new();
    char *array = device_new(2 * TIMED_BYTES, 1), *other = device_new(2 * TIMED_BYTES, 2);
    const RefitStridedPlace from = {(guintptr)array, strides}, to = {(guintptr)other, strides};
    TimedRegion self = {.buffer = device_new(TIMED_BYTES, 0), .stream = stream_new()};

    refit_strided_table_begin(table);
    CHECK(refit_strided_table_add_packed(table, &shape, &from, 0, NULL));
    self.packed = refit_strided_table_end(table);
    refit_strided_table_begin(table);
    CHECK(refit_strided_table_add_copy(table, &shape, &from, &to, NULL));
    self.copied = refit_strided_table_end(table);
    self.table = upload(table);
    CUDA(cudaEventCreate(&self.begin));
    CUDA(cudaEventCreate(&self.end));
    for (guint what = 0; what < N_TIMED; what++) {
        static const double rates[N_TIMED] = {PACK_RATE, UNPACK_RATE, COPY_RATE};
        const double stated = TIMED_BYTES * 1e3 / rates[what];
        const double most = timed ? stated + TIMED_SLACK_MS : stated / 2;
        const double least = least_ms(&self, (Timed)what, most);
        CHECK(least <= most);
        CHECK(!timed || least >= stated);
    }
    CUDA(cudaEventDestroy(self.begin));
    CUDA(cudaEventDestroy(self.end));
    CUDA(cudaStreamDestroy(self.stream));
    CUDA(cudaFree(array));
    CUDA(cudaFree(other));
    CUDA(cudaFree(self.buffer));
    CUDA(cudaFree(self.table));
}

static void body_timed(void) {
    check_times(16, TRUE);
    check_times(25, TRUE);
}

static void body_untimed(void) {
    check_times(16, FALSE);
}

static void test_timed(void) {
#define RATES                                                                                      \
    "REFIT_STANDIN_KERNEL_RATES=refit_pack_kernel=" G_STRINGIFY(                                   \
        PACK_RATE) ",refit_unpack_kernel=" G_STRINGIFY(UNPACK_RATE) ",refit_copy_"                 \
                                                                    "kernel=" G_STRINGIFY(COPY_RATE)
    const char *const one[] = {RATES, NULL};
    const char *const several[] = {RATES, "REFIT_STANDIN_BLOCK_THREADS=3", NULL};
    child_passes(body_timed, one);
    child_passes(body_timed, several); /* together they copied what one thread does */
    child_passes(body_untimed, NULL);
}

static void test_bad_rate(void) {
    const char *const environment[] = {"REFIT_STANDIN_KERNEL_RATES=refit_pack_kernel", NULL};
    child_expect(body_untimed, environment, STANDIN_EXIT_MISUSE, "is not KERNEL=RATE");
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
    g_test_add_func("/pack/one-large-region-goes-out-and-back", test_large);
    g_test_add_func("/pack/blocks-do-not-meet", test_concurrent);
    g_test_add_func("/pack/an-empty-span-launches-nothing", test_nothing);
    g_test_add_func("/pack/a-launch-lasts-as-long-as-stated", test_timed);
    g_test_add_func("/pack/a-wrong-rate-is-refused", test_bad_rate);
    g_test_add_func("/pack/a-region-outside-its-memory-is-caught", test_outside);
    return g_test_run();
}
