/*
 * Covers model/base/refit-error, refit-checked, refit-dtype and refit-units:
 *   - exit codes and names of every error code and of foreign errors; excerpts of hostile texts
 *   - checked products and sums at the edge of 64 bits, with their messages
 *   - element types: sizes, both spellings, packed bytes, what is refused
 *   - quantities: every unit, exactness of sizes, single rounding of the rest, every refusal with
 *     its whole message
 *   - formatting for people: three digits, carries at every border, no locale
 */

#include <locale.h>
#include <math.h>

#include "model/base/refit-checked.h"
#include "model/base/refit-dtype.h"
#include "model/base/refit-units.h"

static void test_error_codes(void) {
    static const struct {
        RefitError code;
        int exit_code;
        const char *name;
    } rows[] = {
        {REFIT_ERROR_PARSE, 3, "parse"},
        {REFIT_ERROR_INVALID, 3, "invalid"},
        {REFIT_ERROR_OVERFLOW, 3, "overflow"},
        {REFIT_ERROR_INFEASIBLE, 4, "infeasible"},
        {REFIT_ERROR_NOT_SUPPORTED, 5, "not-supported"},
        {REFIT_ERROR_BACKEND, 6, "backend"},
        {REFIT_ERROR_COVERAGE, 1, "coverage"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = g_error_new_literal(REFIT_ERROR, (int)rows[i].code, "text");
        g_assert_cmpint(refit_error_exit_code(error), ==, rows[i].exit_code);
        g_assert_cmpstr(refit_error_name(error), ==, rows[i].name);
    }
}

static void test_error_foreign(void) {
    g_autoptr(GError) file = g_error_new_literal(G_FILE_ERROR, G_FILE_ERROR_EXIST, "text");
    g_autoptr(GError) unknown = g_error_new_literal(REFIT_ERROR, 99, "text");

    g_assert_cmpint(refit_error_exit_code(file), ==, 6);
    g_assert_cmpstr(refit_error_name(file), ==, "backend");
    g_assert_cmpint(refit_error_exit_code(unknown), ==, 6);
    g_assert_cmpstr(refit_error_name(unknown), ==, "backend");
}

static void test_error_excerpt(void) {
    g_autofree char *plain = refit_error_excerpt("plain \xc3\xa9");
    g_autofree char *control = refit_error_excerpt("a\nb\x1b[31m\x7f");
    g_autofree char *broken = refit_error_excerpt("a\xff");
    g_autofree char *long_text = g_strnfill(81, 'x');
    g_autofree char *limit_text = g_strnfill(80, 'x');
    g_autofree char *cut = refit_error_excerpt(long_text);
    g_autofree char *whole = refit_error_excerpt(limit_text);
    g_autofree char *expected = g_strconcat(limit_text, "...", NULL);

    g_assert_cmpstr(plain, ==, "plain \xc3\xa9");
    g_assert_cmpstr(control, ==, "a?b?[31m?");
    g_assert_cmpstr(broken, ==, "a\xef\xbf\xbd");
    g_assert_cmpstr(cut, ==, expected);
    g_assert_cmpstr(whole, ==, limit_text);
}

static void test_checked_mul(void) {
    g_autoptr(GError) error = NULL;
    guint64 value = 7;

    g_assert_true(refit_checked_mul(G_GUINT64_CONSTANT(0xffffffff), G_GUINT64_CONSTANT(0x100000001),
                                    "bytes", &value, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(value, ==, G_MAXUINT64);
    g_assert_true(refit_checked_mul(G_MAXUINT64, 0, "bytes", &value, &error));
    g_assert_cmpuint(value, ==, 0);

    value = 7;
    g_assert_false(refit_checked_mul(G_GUINT64_CONSTANT(0x100000000),
                                     G_GUINT64_CONSTANT(0x100000000), "bytes of x", &value,
                                     &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW);
    g_assert_cmpstr(error->message, ==,
                    "bytes of x: 4294967296 times 4294967296 does not fit in 64 bits");
    g_assert_cmpuint(value, ==, 7);
}

static void test_checked_add(void) {
    g_autoptr(GError) error = NULL;
    guint64 value = 7;

    g_assert_true(refit_checked_add(G_MAXUINT64 - 5, 5, "bytes", &value, &error));
    g_assert_cmpuint(value, ==, G_MAXUINT64);
    value = 7;
    g_assert_false(refit_checked_add(G_MAXUINT64 - 5, 6, "bytes", &value, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW);
    g_assert_cmpstr(error->message, ==,
                    "bytes: 18446744073709551610 plus 6 does not fit in 64 bits");
    g_assert_cmpuint(value, ==, 7);
}

static void test_dtype_names(void) {
    RefitDtype dtype = REFIT_N_DTYPES;

    g_assert_true(refit_dtype_parse("BF16", &dtype, NULL));
    g_assert_cmpint(dtype, ==, REFIT_DTYPE_BF16);
    g_assert_true(refit_dtype_parse("f8_e4m3", &dtype, NULL));
    g_assert_cmpint(dtype, ==, REFIT_DTYPE_F8_E4M3);
    g_assert_true(refit_dtype_parse("F8_e5m2", &dtype, NULL));
    g_assert_cmpint(dtype, ==, REFIT_DTYPE_F8_E5M2);
    g_assert_cmpstr(refit_dtype_name(REFIT_DTYPE_F4), ==, "F4");
    g_assert_cmpuint(refit_dtype_bits(REFIT_DTYPE_F4), ==, 4);
    g_assert_cmpuint(refit_dtype_bits(REFIT_DTYPE_BF16), ==, 16);
    g_assert_cmpuint(refit_dtype_bits(REFIT_DTYPE_I64), ==, 64);
}

static void test_dtype_unknown(void) {
    g_autoptr(GError) error = NULL;
    RefitDtype dtype = REFIT_DTYPE_I8;

    g_assert_false(refit_dtype_parse("bf61", &dtype, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_cmpstr(error->message, ==,
                    "\"bf61\" is not a known element type; known are bf16, f16, f32, f64, f8_e4m3, "
                    "f8_e5m2, u8, i8, i32, i64, f4, f8_e8m0, i16, u16, u32, u64, bool");
    g_assert_cmpint(dtype, ==, REFIT_DTYPE_I8);
    g_clear_error(&error);
    g_assert_false(refit_dtype_parse("", &dtype, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
}

static void test_dtype_bytes(void) {
    g_autoptr(GError) error = NULL;
    guint64 bytes = 7;

    g_assert_true(refit_dtype_bytes(REFIT_DTYPE_BF16, 3, &bytes, &error));
    g_assert_cmpuint(bytes, ==, 6);
    g_assert_true(refit_dtype_bytes(REFIT_DTYPE_F4, 6, &bytes, &error));
    g_assert_cmpuint(bytes, ==, 3);
    g_assert_true(refit_dtype_bytes(REFIT_DTYPE_F4, G_MAXUINT64 - 1, &bytes, &error));
    g_assert_cmpuint(bytes, ==, G_MAXUINT64 / 2);
    /* 8 bits times the elements would not fit, the bytes do */
    g_assert_true(refit_dtype_bytes(REFIT_DTYPE_U8, G_MAXUINT64, &bytes, &error));
    g_assert_cmpuint(bytes, ==, G_MAXUINT64);
    g_assert_true(refit_dtype_bytes(REFIT_DTYPE_F64, 0, &bytes, &error));
    g_assert_cmpuint(bytes, ==, 0);
}

static void test_dtype_bytes_refused(void) {
    g_autoptr(GError) error = NULL;
    guint64 bytes = 7;

    g_assert_false(refit_dtype_bytes(REFIT_DTYPE_F4, 5, &bytes, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_cmpstr(error->message, ==,
                    "5 elements of F4 do not end on a byte; cut at a multiple of 2 elements");
    g_clear_error(&error);
    g_assert_false(refit_dtype_bytes(REFIT_DTYPE_BF16, (guint64)1 << 63, &bytes, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW);
    g_assert_cmpuint(bytes, ==, 7);
}

typedef struct {
    const char *text;
    RefitUnit unit;
    double value;
} Accepted;

static void test_quantity_values(void) {
    /* Each value is the literal the compiler rounds once */
    static const Accepted rows[] = {
        {"0", REFIT_UNIT_BYTES, 0},
        {"0.00", REFIT_UNIT_BYTES, 0},
        {"0", REFIT_UNIT_BYTES_PER_S, 0},
        {"0", REFIT_UNIT_SECONDS, 0},
        {"0B", REFIT_UNIT_BYTES, 0},
        {"1B", REFIT_UNIT_BYTES, 1},
        {"007B", REFIT_UNIT_BYTES, 7},
        {"5kB", REFIT_UNIT_BYTES, 5000},
        {"5KiB", REFIT_UNIT_BYTES, 5120},
        {"64MiB", REFIT_UNIT_BYTES, 67108864},
        {"64 MiB", REFIT_UNIT_BYTES, 67108864},
        {"5GB", REFIT_UNIT_BYTES, 5000000000.0},
        {"1.5GiB", REFIT_UNIT_BYTES, 1610612736.0},
        {"0.1GB", REFIT_UNIT_BYTES, 100000000.0},
        {"1e3B", REFIT_UNIT_BYTES, 1000},
        {"2500e-3kB", REFIT_UNIT_BYTES, 2500},
        {"3TiB", REFIT_UNIT_BYTES, 3298534883328.0},
        {"2PB", REFIT_UNIT_BYTES, 2e15},
        {"1PiB", REFIT_UNIT_BYTES, 1125899906842624.0},
        {"9007199254740992B", REFIT_UNIT_BYTES, 9007199254740992.0},
        {"8192PiB", REFIT_UNIT_BYTES, 9223372036854775808.0},
        {"1.000000000000000000000000kB", REFIT_UNIT_BYTES, 1000},
        {"450GBps", REFIT_UNIT_BYTES_PER_S, 450e9},
        {"450GB/s", REFIT_UNIT_BYTES_PER_S, 450e9},
        {"400Gbps", REFIT_UNIT_BYTES_PER_S, 50e9},
        {"400Gb/s", REFIT_UNIT_BYTES_PER_S, 50e9},
        {"1Gibps", REFIT_UNIT_BYTES_PER_S, 134217728},
        {"1b/s", REFIT_UNIT_BYTES_PER_S, 0.125},
        {"2ns", REFIT_UNIT_SECONDS, 2e-9},
        {"3us", REFIT_UNIT_SECONDS, 3e-6},
        {"0.7us", REFIT_UNIT_SECONDS, 0.7e-6},
        {"1.5ms", REFIT_UNIT_SECONDS, 1.5e-3},
        {"3s", REFIT_UNIT_SECONDS, 3},
        {"2min", REFIT_UNIT_SECONDS, 120},
        {"0.93", REFIT_UNIT_PLAIN, 0.93},
        {"1e-6", REFIT_UNIT_PLAIN, 1e-6},
        {"1E+2", REFIT_UNIT_PLAIN, 100},
        {"9999999999999999999", REFIT_UNIT_PLAIN, 9999999999999999999.0},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        double value = -1;
        gboolean is_read = refit_quantity_parse(rows[i].text, rows[i].unit, &value, &error);
        g_assert_no_error(error);
        g_assert_true(is_read);
        if (memcmp(&value, &rows[i].value, sizeof value) != 0) {
            g_test_message("%s is read as %.17g", rows[i].text, value);
            g_test_fail();
        }
    }
}

static void test_quantity_refused(void) {
    static const struct {
        const char *text;
        RefitUnit unit;
        RefitError code;
        const char *message;
    } rows[] = {
        {"450", REFIT_UNIT_BYTES_PER_S, REFIT_ERROR_PARSE,
         "\"450\": a bandwidth needs a unit, as in 450GBps or 400Gbps"},
        {"64", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"64\": a size needs a unit, as in 64MiB or 5GB"},
        {"3", REFIT_UNIT_SECONDS, REFIT_ERROR_PARSE,
         "\"3\": a time needs a unit, as in 2us or 1.5ms"},
        {"0.5x", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\"0.5x\": a plain number has no unit \"x\"; write it as in 0.5"},
        {"", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE, "\"\": not a size; write it as in 64MiB or 5GB"},
        {"GB", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"GB\": not a size; write it as in 64MiB or 5GB"},
        {"nan", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\"nan\": not a plain number; write it as in 0.5"},
        {"inf", REFIT_UNIT_SECONDS, REFIT_ERROR_PARSE,
         "\"inf\": not a time; write it as in 2us or 1.5ms"},
        {".5", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\".5\": not a plain number; write it as in 0.5"},
        {"+5", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\"+5\": not a plain number; write it as in 0.5"},
        {" 5", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\" 5\": not a plain number; write it as in 0.5"},
        {"-5GB", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"-5GB\": a size cannot be negative; write it as in 64MiB or 5GB"},
        {"0x10B", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"0x10B\": \"x10B\" is not a unit of a size; write it as in 64MiB or 5GB"},
        {"5.GB", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"5.GB\": \".GB\" is not a unit of a size; write it as in 64MiB or 5GB"},
        {"1,5GB", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"1,5GB\": \",5GB\" is not a unit of a size; write it as in 64MiB or 5GB"},
        {"64Mb", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"64Mb\": \"Mb\" is not a unit of a size; write it as in 64MiB or 5GB"},
        {"64mB", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"64mB\": \"mB\" is not a unit of a size; write it as in 64MiB or 5GB"},
        {"64kiB", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"64kiB\": \"kiB\" is not a unit of a size; write it as in 64MiB or 5GB"},
        {"64KB", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"64KB\": \"KB\" is not a unit of a size; write k for 1000 or Ki for 1024, as in 64KiB"},
        {"5GBps", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"5GBps\": \"GBps\" is not a unit of a size; write it as in 64MiB or 5GB"},
        {"5GB", REFIT_UNIT_BYTES_PER_S, REFIT_ERROR_PARSE,
         "\"5GB\": \"GB\" is not a unit of a bandwidth; write it as in 450GBps or 400Gbps"},
        {"5GBps ", REFIT_UNIT_BYTES_PER_S, REFIT_ERROR_PARSE,
         "\"5GBps \": \"GBps \" is not a unit of a bandwidth; write it as in 450GBps or 400Gbps"},
        {"2h", REFIT_UNIT_SECONDS, REFIT_ERROR_PARSE,
         "\"2h\": \"h\" is not a unit of a time; write it as in 2us or 1.5ms"},
        {"0.3B", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"0.3B\": not a whole number of bytes; write it with a smaller unit, or in B"},
        {"1.1KiB", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"1.1KiB\": not a whole number of bytes; write it with a smaller unit, or in B"},
        {"9007199254740993B", REFIT_UNIT_BYTES, REFIT_ERROR_PARSE,
         "\"9007199254740993B\": above 2^53 bytes a size must have at most 53 significant bits"},
        {"8193PiB", REFIT_UNIT_BYTES, REFIT_ERROR_OVERFLOW,
         "\"8193PiB\": a size above 2^63 bytes (9223372036854775808)"},
        {"1e900PB", REFIT_UNIT_BYTES, REFIT_ERROR_OVERFLOW,
         "\"1e900PB\": a size above 2^63 bytes (9223372036854775808)"},
        {"1e400", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\"1e400\": beyond the range of double precision; write it as in 0.5"},
        {"1e-400", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\"1e-400\": beyond the range of double precision; write it as in 0.5"},
        {"10000000000000000001", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\"10000000000000000001\": more than 19 significant digits or an exponent beyond 999; "
         "write it as in 0.5"},
        {"1e99999999999", REFIT_UNIT_PLAIN, REFIT_ERROR_PARSE,
         "\"1e99999999999\": more than 19 significant digits or an exponent beyond 999; write it "
         "as in 0.5"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        double value = -1;
        g_assert_false(refit_quantity_parse(rows[i].text, rows[i].unit, &value, &error));
        g_assert_error(error, REFIT_ERROR, (int)rows[i].code);
        g_assert_cmpstr(error->message, ==, rows[i].message);
        g_assert_true(value < 0);
    }
}

static void test_format_bytes(void) {
    static const struct {
        guint64 bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {1, "1 B"},
        {999, "999 B"},
        {1000, "1.00 kB"},
        {9994, "9.99 kB"},
        {9996, "10.0 kB"},
        {99960, "100 kB"},
        {999499, "999 kB"},
        {999600, "1.00 MB"},
        {43900000000, "43.9 GB"},
        {999600000000, "1.00 TB"},
        {1342052868096, "1.34 TB"},
        {G_MAXUINT64, "18.4 EB"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = refit_format_bytes(rows[i].bytes);
        g_assert_cmpstr(text, ==, rows[i].text);
    }
}

static void test_format_seconds(void) {
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {
        {0, "0 s"},          {5e-10, "0.500 ns"},   {1e-14, "1e-05 ns"},
        {1.5e-9, "1.50 ns"}, {9.996e-7, "1.00 us"}, {12e-6, "12.0 us"},
        {843e-6, "843 us"},  {999.6e-6, "1.00 ms"}, {1.2e-3, "1.20 ms"},
        {0.0994, "99.4 ms"}, {0.09997, "0.100 s"},  {0.1, "0.100 s"},
        {0.843, "0.843 s"},  {0.9996, "1.00 s"},    {9.996, "10.0 s"},
        {99.96, "100 s"},    {123.4, "123 s"},      {4321.4, "4321 s"},
        {1e30, "1e+30 s"},   {-0.5, "-0.500 s"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = refit_format_seconds(rows[i].seconds);
        g_assert_cmpstr(text, ==, rows[i].text);
    }
}

static void test_format_bandwidth(void) {
    static const struct {
        double bytes_per_s;
        const char *text;
    } rows[] = {
        {0, "0 B/s"},           {0.5, "0.500 B/s"},          {500, "500 B/s"},
        {999.6, "1.00 kB/s"},   {50e9, "50.0 GB/s"},         {450e9, "450 GB/s"},
        {999.6e9, "1.00 TB/s"}, {1.2345e24, "1234500 EB/s"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = refit_format_bandwidth(rows[i].bytes_per_s);
        g_assert_cmpstr(text, ==, rows[i].text);
    }
}

/* In a locale with a decimal comma nothing may change. */
static void test_locale(void) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8", "de_DE"};
    const char *set = NULL;

    for (gsize i = 0; i < G_N_ELEMENTS(names) && set == NULL; i++) {
        set = setlocale(LC_ALL, names[i]);
    }
    if (set == NULL) {
        g_test_skip("no locale with a decimal comma is installed");
        return;
    }
    g_autofree char *seconds = refit_format_seconds(0.843);
    double value = 0;
    g_assert_true(refit_quantity_parse("1.5ms", REFIT_UNIT_SECONDS, &value, NULL));
    setlocale(LC_ALL, "C");
    g_assert_cmpstr(seconds, ==, "0.843 s");
    g_assert_cmpfloat(value, ==, 1.5e-3);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/error/every-code-has-its-exit-code-and-name", test_error_codes);
    g_test_add_func("/error/a-foreign-error-counts-as-backend", test_error_foreign);
    g_test_add_func("/error/an-excerpt-is-short-printable-text", test_error_excerpt);
    g_test_add_func("/checked/a-product-is-exact-or-refused", test_checked_mul);
    g_test_add_func("/checked/a-sum-is-exact-or-refused", test_checked_add);
    g_test_add_func("/dtype/both-spellings-in-any-case-are-read", test_dtype_names);
    g_test_add_func("/dtype/an-unknown-name-lists-the-known-ones", test_dtype_unknown);
    g_test_add_func("/dtype/bytes-are-exact-up-to-64-bits", test_dtype_bytes);
    g_test_add_func("/dtype/half-bytes-and-overflow-are-refused", test_dtype_bytes_refused);
    g_test_add_func("/units/quantities-are-rounded-once", test_quantity_values);
    g_test_add_func("/units/a-refusal-quotes-the-text-and-shows-the-form", test_quantity_refused);
    g_test_add_func("/units/bytes-are-printed-with-three-digits", test_format_bytes);
    g_test_add_func("/units/seconds-are-printed-with-three-digits", test_format_seconds);
    g_test_add_func("/units/bandwidths-are-printed-with-three-digits", test_format_bandwidth);
    g_test_add_func("/units/the-locale-changes-nothing", test_locale);
    return g_test_run();
}
