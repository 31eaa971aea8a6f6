/*
 * Quantities with units. A text is split into decimal digits, a decimal exponent and a unit; the
 * unit is a power of ten, a power of two and a small factor. Keeping the three apart lets the value
 * be rounded once: digits and powers of ten go through one decimal-to-binary conversion, powers of
 * two are exact. Sizes are also computed in integers, so that a fraction of a byte is refused and
 * not rounded away. Cost: linear in the text.
 */

#include "model/base/refit-units.h"

#include <math.h>
#include <string.h>

#define MAX_DIGITS 19 /* 10^19 - 1 fits in 64 bits */
#define MAX_EXPONENT 999
#define MAX_SIZE ((guint64)1 << 63)

static const struct {
    const char *noun;
    const char *example;
} kinds[] = {
    [REFIT_UNIT_BYTES] = {"a size", "64MiB or 5GB"},
    [REFIT_UNIT_BYTES_PER_S] = {"a bandwidth", "450GBps or 400Gbps"},
    [REFIT_UNIT_SECONDS] = {"a time", "2us or 1.5ms"},
    [REFIT_UNIT_PLAIN] = {"a plain number", "0.5"},
};

/* value = digits * 10^exponent */
typedef struct {
    guint64 digits;
    int exponent;
} Decimal;

/* factor * 10^power10 * 2^power2 */
typedef struct {
    int power10;
    int power2;
    guint factor;
} Scale;

typedef enum { NUMBER_OK, NUMBER_MALFORMED, NUMBER_TOO_LONG } NumberState;

/* Reads digits[.digits][e[+-]digits] and moves `*text` behind it. */
static NumberState parse_number(const char **text, Decimal *number_out) {
    const char *at = *text;
    Decimal number = {0, 0};
    guint n_digits = 0;
    int n_zeros = 0; /* zeros that count only when another digit follows */
    gboolean in_fraction = FALSE;

    if (!g_ascii_isdigit(*at)) {
        return NUMBER_MALFORMED;
    }
    for (;; at++) {
        if (*at == '.' && !in_fraction && g_ascii_isdigit(at[1])) {
            in_fraction = TRUE;
            continue;
        }
        if (!g_ascii_isdigit(*at)) {
            break;
        }
        if (in_fraction) {
            number.exponent--;
        }
        if (*at == '0') {
            n_zeros += n_digits > 0;
        } else {
            if (n_digits + (guint)n_zeros + 1 > MAX_DIGITS) {
                return NUMBER_TOO_LONG;
            }
            for (; n_zeros > 0; n_zeros--, n_digits++) {
                number.digits *= 10;
            }
            number.digits = number.digits * 10 + (guint64)g_ascii_digit_value(*at);
            n_digits++;
        }
        if (n_zeros > MAX_EXPONENT || number.exponent < -MAX_EXPONENT) {
            return NUMBER_TOO_LONG;
        }
    }
    number.exponent += n_zeros;
    if ((*at == 'e' || *at == 'E') &&
        (g_ascii_isdigit(at[1]) || ((at[1] == '+' || at[1] == '-') && g_ascii_isdigit(at[2])))) {
        int exponent = 0;
        int sign = at[1] == '-' ? -1 : 1;
        for (at += g_ascii_isdigit(at[1]) ? 1 : 2; g_ascii_isdigit(*at); at++) {
            exponent = exponent * 10 + g_ascii_digit_value(*at);
            if (exponent > MAX_EXPONENT) {
                return NUMBER_TOO_LONG;
            }
        }
        number.exponent += sign * exponent;
    }
    *text = at;
    *number_out = number;
    return NUMBER_OK;
}

/* Reads k M G T P and Ki Mi Gi Ti Pi; no prefix is a scale of one. */
static Scale parse_prefix(const char **text) {
    static const char letters[] = "kMGTP";
    Scale scale = {0, 0, 1};
    char first = (*text)[0];

    for (int i = 0; letters[i] != '\0'; i++) {
        if ((*text)[0] != '\0' && (*text)[1] == 'i' && first == g_ascii_toupper(letters[i])) {
            scale.power2 = 10 * (i + 1);
            *text += 2;
            return scale;
        }
        if (first == letters[i]) {
            scale.power10 = 3 * (i + 1);
            *text += 1;
            return scale;
        }
    }
    return scale;
}

static gboolean parse_unit(const char *text, RefitUnit unit, Scale *scale_out) {
    static const struct {
        const char *text;
        Scale scale;
    } times[] = {
        {"ns", {-9, 0, 1}}, {"us", {-6, 0, 1}},  {"ms", {-3, 0, 1}},
        {"s", {0, 0, 1}},   {"min", {0, 0, 60}},
    };

    if (unit == REFIT_UNIT_SECONDS) {
        for (guint i = 0; i < G_N_ELEMENTS(times); i++) {
            if (g_str_equal(text, times[i].text)) {
                *scale_out = times[i].scale;
                return TRUE;
            }
        }
        return FALSE;
    }
    if (unit == REFIT_UNIT_PLAIN) {
        return FALSE;
    }
    Scale scale = parse_prefix(&text);
    if (unit == REFIT_UNIT_BYTES) {
        *scale_out = scale;
        return g_str_equal(text, "B");
    }
    if (g_str_equal(text, "bps") || g_str_equal(text, "b/s")) {
        scale.power2 -= 3;
    } else if (!g_str_equal(text, "Bps") && !g_str_equal(text, "B/s")) {
        return FALSE;
    }
    *scale_out = scale;
    return TRUE;
}

static gboolean whole_bytes(Decimal number, Scale scale, const char *excerpt, guint64 *bytes_out,
                            GError **error) {
    /* Below 10^19 * 2^50 < 2^114 */
    unsigned __int128 value = number.digits;
    int power10 = number.exponent + scale.power10;

    value <<= scale.power2;
    for (; power10 < 0 && value % 10 == 0 && value > 0; power10++) {
        value /= 10;
    }
    if (power10 < 0 && value > 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "\"%s\": not a whole number of bytes; write it with a smaller unit, or in B",
                    excerpt);
        return FALSE;
    }
    for (; power10 > 0 && value > 0 && value <= MAX_SIZE; power10--) {
        value *= 10;
    }
    if (value > MAX_SIZE) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW,
                    "\"%s\": a size above 2^63 bytes (9223372036854775808)", excerpt);
        return FALSE;
    }
    guint64 bytes = (guint64)value;
    if ((guint64)(double)bytes != bytes) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "\"%s\": above 2^53 bytes a size must have at most 53 significant bits",
                    excerpt);
        return FALSE;
    }
    *bytes_out = bytes;
    return TRUE;
}

static void set_unit_error(const char *excerpt, const char *suffix, RefitUnit unit,
                           GError **error) {
    const char *noun = kinds[unit].noun;
    const char *example = kinds[unit].example;
    g_autofree char *suffix_excerpt = refit_error_excerpt(suffix);

    if (unit == REFIT_UNIT_PLAIN) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "\"%s\": %s has no unit \"%s\"; write it as in %s", excerpt, noun,
                    suffix_excerpt, example);
    } else if (*suffix == '\0') {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE, "\"%s\": %s needs a unit, as in %s",
                    excerpt, noun, example);
    } else if (*suffix == 'K' && unit != REFIT_UNIT_SECONDS) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "\"%s\": \"%s\" is not a unit of %s; write k for 1000 or Ki for 1024, as in "
                    "64KiB",
                    excerpt, suffix_excerpt, noun);
    } else {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "\"%s\": \"%s\" is not a unit of %s; write it as in %s", excerpt,
                    suffix_excerpt, noun, example);
    }
}

gboolean refit_quantity_parse(const char *text, RefitUnit unit, double *value_out, GError **error) {
    g_return_val_if_fail(text != NULL && (gsize)unit < G_N_ELEMENTS(kinds), FALSE);
    const char *noun = kinds[unit].noun;
    const char *example = kinds[unit].example;
    g_autofree char *excerpt = refit_error_excerpt(text);
    const char *at = text;
    Decimal number;

    if (*at == '-' && g_ascii_isdigit(at[1])) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "\"%s\": %s cannot be negative; write it as in %s", excerpt, noun, example);
        return FALSE;
    }
    switch (parse_number(&at, &number)) {
    case NUMBER_MALFORMED:
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE, "\"%s\": not %s; write it as in %s",
                    excerpt, noun, example);
        return FALSE;
    case NUMBER_TOO_LONG:
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "\"%s\": more than %d significant digits or an exponent beyond %d; write it as "
                    "in %s",
                    excerpt, MAX_DIGITS, MAX_EXPONENT, example);
        return FALSE;
    case NUMBER_OK:
        break;
    }

    while (*at == ' ') {
        at++;
    }
    Scale scale = {0, 0, 1};
    gboolean bare_is_enough = unit == REFIT_UNIT_PLAIN || number.digits == 0;
    if (!(*at == '\0' && bare_is_enough) && !parse_unit(at, unit, &scale)) {
        set_unit_error(excerpt, at, unit, error);
        return FALSE;
    }

    if (unit == REFIT_UNIT_BYTES) {
        guint64 bytes;
        if (!whole_bytes(number, scale, excerpt, &bytes, error)) {
            return FALSE;
        }
        *value_out = (double)bytes;
        return TRUE;
    }
    g_autofree char *decimal =
        g_strdup_printf("%" G_GUINT64_FORMAT "e%d", number.digits, number.exponent + scale.power10);
    double value = ldexp(g_ascii_strtod(decimal, NULL), scale.power2) * scale.factor;
    if (!isfinite(value) || (value <= 0 && number.digits != 0)) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_PARSE,
                    "\"%s\": beyond the range of double precision; write it as in %s", excerpt,
                    example);
        return FALSE;
    }
    *value_out = value;
    return TRUE;
}

/* `value` with three significant digits when it is below 1000 after rounding, else NULL. */
static char *three_digits(double value) {
    static const char *const formats[] = {"%.3f", "%.2f", "%.1f", "%.0f"};
    char text[G_ASCII_DTOSTR_BUF_SIZE];

    /* Rounding may add a digit, so each format is judged by what it printed: 9.996 is 10.0 */
    for (gsize i = 0; i < G_N_ELEMENTS(formats); i++) {
        g_ascii_formatd(text, sizeof text, formats[i], value);
        gsize n_integer = strspn(text, "0123456789");
        if (i == 0 ? text[0] == '0' : n_integer == i) {
            return g_strdup(text);
        }
    }
    return NULL;
}

/* As three_digits(), for values of any size. */
static char *few_digits(double value) {
    char *digits = value > 0 && value < 0.001 ? NULL : three_digits(value);

    if (digits == NULL) {
        const char *format = value >= 1000 && value < 1e9 ? "%.0f" : "%.3g";
        digits = g_malloc(G_ASCII_DTOSTR_BUF_SIZE);
        g_ascii_formatd(digits, G_ASCII_DTOSTR_BUF_SIZE, format, value);
    }
    return digits;
}

/* `value` in the first of `units`, each 1000 times the one before, that leaves three digits. */
static char *format_scaled(double value, const char *const *units, guint n_units) {
    guint i = 0;
    char *digits = NULL;

    for (; i + 1 < n_units && value >= 1; i++, value /= 1000) {
        digits = three_digits(value);
        if (digits != NULL) {
            break;
        }
    }
    if (digits == NULL) {
        digits = few_digits(value);
    }
    char *text = g_strconcat(digits, " ", units[i], NULL);
    g_free(digits);
    return text;
}

char *refit_format_bytes(guint64 bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};

    if (bytes < 1000) {
        return g_strdup_printf("%" G_GUINT64_FORMAT " B", bytes);
    }
    return format_scaled((double)bytes / 1000, units, G_N_ELEMENTS(units));
}

char *refit_format_bandwidth(double bytes_per_s) {
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", "EB/s"};

    if (bytes_per_s <= 0) {
        return g_strdup("0 B/s");
    }
    return format_scaled(bytes_per_s, units, G_N_ELEMENTS(units));
}

char *refit_format_seconds(double seconds) {
    static const struct {
        double per_second;
        const char *unit;
    } units[] = {{1e9, "ns"}, {1e6, "us"}, {1e3, "ms"}};

    if (seconds < 0) {
        g_autofree char *magnitude = refit_format_seconds(-seconds);
        return g_strconcat("-", magnitude, NULL);
    }
    if (seconds <= 0) {
        return g_strdup("0 s");
    }
    for (gsize i = 0; i < G_N_ELEMENTS(units) && seconds < 0.1; i++) {
        double value = seconds * units[i].per_second;
        g_autofree char *digits = i == 0 ? few_digits(value) : three_digits(value);
        /* From 0.1 s on, also after rounding, times are in seconds */
        gboolean fits = i + 1 < G_N_ELEMENTS(units) ? value < 999.5 : value < 99.95;
        if (digits != NULL && fits) {
            return g_strconcat(digits, " ", units[i].unit, NULL);
        }
    }
    g_autofree char *digits = few_digits(seconds);
    return g_strconcat(digits, " s", NULL);
}
