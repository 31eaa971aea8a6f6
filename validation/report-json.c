/*
 * Reading values of a report. Files come from users, so that everything in them is checked for its
 * kind and range, and an error says which value of which part it is about.
 */

#include "validation/report.h"

GQuark report_error_quark(void) {
    return g_quark_from_static_string("refit-report-error");
}

gboolean report_fail(GError **error, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    g_autofree char *message = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_set_error_literal(error, REPORT_ERROR, 0, message);
    return FALSE;
}

gboolean report_check_keys(const json_t *object, const char *where, const char *const *keys,
                           GError **error) {
    const char *key;
    json_t *value;

    if (!report_expect_object(object, where, error))
        return FALSE;
    json_object_foreach((json_t *)object, key, value) {
        if (g_strv_contains(keys, key))
            continue;
        const char *nearest = refit_nearest_name(key, keys);
        g_autofree char *shown = refit_error_excerpt(key);
        return report_fail(error, "%s has the unknown key \"%s\"%s%s%s", where, shown,
                           nearest != NULL ? "; did you mean \"" : "",
                           nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
    }
    return TRUE;
}

gboolean report_expect_list(const json_t *value, const char *where, GError **error) {
    return json_is_array(value) || report_fail(error, "%s is not a list", where);
}

gboolean report_expect_object(const json_t *value, const char *where, GError **error) {
    return json_is_object(value) || report_fail(error, "%s is not an object", where);
}

gboolean report_get_uint(const json_t *value, const char *where, guint64 max, guint64 *value_out,
                         GError **error) {
    double real = json_is_real(value) ? json_real_value(value) : -1;

    /* Sizes may be written as 1e11; such a number is exact below 2^53. */
    if (real >= 0 && real <= 9007199254740992.0 && (double)(guint64)real == real &&
        (guint64)real <= max) {
        *value_out = (guint64)real;
        return TRUE;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return report_fail(error, "%s is not a whole number from 0 on", where);
    if ((guint64)json_integer_value(value) > max)
        return report_fail(error, "%s is %" JSON_INTEGER_FORMAT ", above %" G_GUINT64_FORMAT, where,
                           json_integer_value(value), max);
    *value_out = (guint64)json_integer_value(value);
    return TRUE;
}

gboolean report_get_number(const json_t *value, const char *where, double *value_out,
                           GError **error) {
    if (!json_is_number(value) || json_number_value(value) < 0)
        return report_fail(error, "%s is not a number from 0 on", where);
    *value_out = json_number_value(value);
    return TRUE;
}

GArray *report_get_uints(const json_t *value, const char *where, guint64 max, GError **error) {
    g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(guint64));

    if (!json_is_array(value)) {
        report_fail(error, "%s is not a list of numbers", where);
        return NULL;
    }
    for (gsize i = 0; i < json_array_size(value); i++) {
        guint64 number;
        if (!report_get_uint(json_array_get(value, i), where, max, &number, error))
            return NULL;
        g_array_append_val(numbers, number);
    }
    return g_steal_pointer(&numbers);
}

gboolean report_get_string(const json_t *value, const char *where, const char **value_out,
                           GError **error) {
    if (!json_is_string(value))
        return report_fail(error, "%s is not a text", where);
    *value_out = json_string_value(value);
    return TRUE;
}

gboolean report_get_rank(const char *text, const char *where, guint *rank_out, GError **error) {
    guint64 rank;

    if (!g_ascii_string_to_unsigned(text, 10, 0, REPORT_MAX_RANK, &rank, NULL)) {
        g_autofree char *shown = refit_error_excerpt(text);
        return report_fail(error, "%s: \"%s\" is not a rank", where, shown);
    }
    *rank_out = (guint)rank;
    return TRUE;
}

gboolean report_get_shape(const json_t *value, const char *where, guint *n_dims_out,
                          guint64 *shape_out, GError **error) {
    g_autoptr(GArray) shape = report_get_uints(value, where, G_MAXINT64, error);

    if (shape == NULL)
        return FALSE;
    if (shape->len > REFIT_MAX_DIMS)
        return report_fail(error, "%s has %u dims, at most %d are supported", where, shape->len,
                           REFIT_MAX_DIMS);
    for (guint dim = 0; dim < shape->len; dim++)
        shape_out[dim] = g_array_index(shape, guint64, dim);
    *n_dims_out = shape->len;
    return TRUE;
}

gboolean report_get_dtype(const json_t *value, const char *where, RefitDtype *dtype_out,
                          GError **error) {
    static const struct {
        const char *name;
        RefitDtype dtype;
    } names[] = {
        {"fp64", REFIT_DTYPE_F64},    {"fp32", REFIT_DTYPE_F32}, {"fp16", REFIT_DTYPE_F16},
        {"fp8", REFIT_DTYPE_F8_E4M3}, {"fp4", REFIT_DTYPE_F4},   {"int64", REFIT_DTYPE_I64},
        {"int32", REFIT_DTYPE_I32},   {"int8", REFIT_DTYPE_I8},  {"uint8", REFIT_DTYPE_U8}};
    const char *text = NULL;

    if (!report_get_string(value, where, &text, error))
        return FALSE;
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        if (g_strcmp0(text, names[i].name) == 0) {
            *dtype_out = names[i].dtype;
            return TRUE;
        }
    }
    g_autoptr(GError) unknown = NULL;
    if (refit_dtype_parse(text, dtype_out, &unknown))
        return TRUE;
    return report_fail(error, "%s: %s", where, unknown->message);
}

json_t *report_new_uint(guint64 value) {
    return value <= G_MAXINT64 ? json_integer((json_int_t)value) : json_real((double)value);
}

void report_set_uint(json_t *object, const char *key, guint64 value) {
    json_object_set_new(object, key, report_new_uint(value));
}
