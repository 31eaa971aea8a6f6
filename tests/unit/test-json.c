/*
 * Covers model/base/refit-json:
 *   - the exact text of every kind of value, compact and indented, rows and nesting
 *   - escapes, invalid UTF-8, 64-bit integers, extreme doubles
 *   - reading back with an independent parser (jansson) gives the values written
 *   - misuse ends the program
 */

#include <jansson.h>
#include <math.h>

#include "model/base/refit-json.h"

static char *write_sample(guint indent) {
    RefitJson *json = refit_json_new(indent);

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "schema", "refit.plan/1");
    refit_json_uint(json, "bytes", 64);
    refit_json_double(json, "time_s", 0.5);
    refit_json_bool(json, "ok", TRUE);
    refit_json_string(json, "none", NULL);
    refit_json_begin_array(json, "rows");
    refit_json_begin_row(json, NULL);
    refit_json_uint(json, NULL, 1);
    refit_json_uint(json, NULL, 2);
    refit_json_end_row(json);
    refit_json_begin_row(json, NULL);
    refit_json_end_row(json);
    refit_json_end_array(json);
    refit_json_begin_object(json, "empty");
    refit_json_end_object(json);
    refit_json_begin_array(json, "none_either");
    refit_json_end_array(json);
    refit_json_end_object(json);
    return refit_json_finish(json, NULL);
}

static void test_compact(void) {
    g_autofree char *text = write_sample(0);

    g_assert_cmpstr(text, ==,
                    "{\"schema\":\"refit.plan/1\",\"bytes\":64,\"time_s\":0.5,\"ok\":true,"
                    "\"none\":null,\"rows\":[[1,2],[]],\"empty\":{},\"none_either\":[]}\n");
}

static void test_indented(void) {
    g_autofree char *text = write_sample(2);

    g_assert_cmpstr(text, ==,
                    "{\n"
                    "  \"schema\": \"refit.plan/1\",\n"
                    "  \"bytes\": 64,\n"
                    "  \"time_s\": 0.5,\n"
                    "  \"ok\": true,\n"
                    "  \"none\": null,\n"
                    "  \"rows\": [\n"
                    "    [1, 2],\n"
                    "    []\n"
                    "  ],\n"
                    "  \"empty\": {},\n"
                    "  \"none_either\": []\n"
                    "}\n");
}

static void test_row_keeps_inner_values_on_its_line(void) {
    RefitJson *json = refit_json_new(4);
    gsize length = 0;

    refit_json_begin_row(json, NULL);
    refit_json_uint(json, NULL, 1);
    refit_json_begin_object(json, NULL);
    refit_json_bool(json, "a", FALSE);
    refit_json_begin_array(json, "b");
    refit_json_uint(json, NULL, 2);
    refit_json_end_array(json);
    refit_json_end_object(json);
    refit_json_end_row(json);
    g_autofree char *text = refit_json_finish(json, &length);
    g_assert_cmpstr(text, ==, "[1, {\"a\": false, \"b\": [2]}]\n");
    g_assert_cmpuint(length, ==, strlen(text));
}

static void test_strings(void) {
    static const struct {
        const char *value;
        const char *text;
    } rows[] = {
        {"", "\"\"\n"},
        {"a\"b\\c/d", "\"a\\\"b\\\\c/d\"\n"},
        {"\n\t\r", "\"\\n\\t\\r\"\n"},
        {"\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\"\n"},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\"\n"},
        {"a\xff"
         "b",
         "\"a\xef\xbf\xbd"
         "b\"\n"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        RefitJson *json = refit_json_new(0);
        refit_json_string(json, NULL, rows[i].value);
        g_autofree char *text = refit_json_finish(json, NULL);
        g_assert_cmpstr(text, ==, rows[i].text);
    }
}

static void test_numbers(void) {
    RefitJson *json = refit_json_new(0);

    refit_json_begin_array(json, NULL);
    refit_json_uint(json, NULL, 0);
    refit_json_uint(json, NULL, 10);
    refit_json_uint(json, NULL, G_MAXUINT64);
    refit_json_double(json, NULL, 0);
    refit_json_double(json, NULL, -0.0);
    refit_json_double(json, NULL, 1);
    refit_json_double(json, NULL, 0.1);
    refit_json_double(json, NULL, -2.5);
    refit_json_double(json, NULL, 1.0 / 3);
    refit_json_double(json, NULL, 1e300);
    refit_json_double(json, NULL, 5e-324);
    refit_json_double(json, NULL, 123456789012.0);
    refit_json_end_array(json);
    g_autofree char *text = refit_json_finish(json, NULL);
    g_assert_cmpstr(text, ==,
                    "[0,10,18446744073709551615,0,0,1,0.1,-2.5,0.333333333,1e+300,4.94065646e-324,"
                    "1.23456789e+11]\n");
}

static void test_read_back(void) {
    for (guint indent = 0; indent < 3; indent++) {
        g_autoptr(GString) every_byte = g_string_new(NULL);
        for (gunichar c = 1; c < 0x250; c++) {
            g_string_append_unichar(every_byte, c);
        }
        RefitJson *json = refit_json_new(indent);
        refit_json_begin_object(json, NULL);
        refit_json_string(json, every_byte->str, every_byte->str);
        refit_json_begin_row(json, "numbers");
        for (guint i = 0; i < 63; i++) {
            refit_json_uint(json, NULL, (guint64)1 << i);
        }
        refit_json_end_row(json);
        refit_json_double(json, "time_s", 0.123456789);
        refit_json_end_object(json);
        gsize length = 0;
        g_autofree char *text = refit_json_finish(json, &length);

        json_error_t problem;
        json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
        g_assert_nonnull(root);
        g_assert_cmpstr(json_string_value(json_object_get(root, every_byte->str)), ==,
                        every_byte->str);
        json_t *numbers = json_object_get(root, "numbers");
        g_assert_cmpuint(json_array_size(numbers), ==, 63);
        for (guint i = 0; i < 63; i++) {
            g_assert_cmpint(json_integer_value(json_array_get(numbers, i)), ==, (gint64)1 << i);
        }
        g_assert_cmpfloat(json_real_value(json_object_get(root, "time_s")), ==, 0.123456789);
        json_decref(root);
    }
}

static void test_unfinished(void) {
    g_autoptr(RefitJson) json = refit_json_new(2);

    /* The address checker sees what is not freed here */
    refit_json_begin_array(json, NULL);
    refit_json_string(json, NULL, "text");
    refit_json_free(NULL);
}

static void misuse(gconstpointer data) {
    RefitJson *json = refit_json_new(0);

    switch (GPOINTER_TO_INT(data)) {
    case 0:
        refit_json_begin_object(json, NULL);
        refit_json_uint(json, NULL, 1);
        break;
    case 1:
        refit_json_begin_array(json, NULL);
        refit_json_uint(json, "key", 1);
        break;
    case 2:
        refit_json_begin_array(json, NULL);
        refit_json_end_object(json);
        break;
    case 3:
        refit_json_end_array(json);
        break;
    case 4:
        refit_json_begin_array(json, NULL);
        g_free(refit_json_finish(json, NULL));
        return;
    case 5:
        refit_json_double(json, NULL, NAN);
        break;
    case 6:
        refit_json_double(json, NULL, INFINITY);
        break;
    case 7:
        refit_json_uint(json, NULL, 1);
        refit_json_uint(json, NULL, 2);
        break;
    case 8:
        refit_json_begin_array(json, NULL);
        refit_json_end_row(json);
        break;
    case 9:
        g_free(refit_json_finish(json, NULL));
        return;
    default:
        g_assert_not_reached();
    }
    refit_json_free(json);
}

static void test_misuse(gconstpointer data) {
    if (g_test_subprocess()) {
        misuse(data);
        return;
    }
    g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
    g_test_trap_assert_failed();
    g_test_trap_assert_stderr("*refit-json.c*assertion failed*");
}

int main(int argc, char **argv) {
    static const char *const misuses[] = {
        "a-value-without-key-in-an-object",
        "a-key-in-an-array",
        "the-wrong-end",
        "an-end-without-beginning",
        "finishing-an-open-array",
        "not-a-number",
        "infinity",
        "a-second-root",
        "ending-an-array-as-a-row",
        "finishing-nothing",
    };

    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/json/without-indent-all-is-one-line", test_compact);
    g_test_add_func("/json/with-indent-each-value-has-a-line", test_indented);
    g_test_add_func("/json/a-row-keeps-inner-values-on-its-line",
                    test_row_keeps_inner_values_on_its_line);
    g_test_add_func("/json/strings-are-escaped-and-repaired", test_strings);
    g_test_add_func("/json/numbers-are-exact-texts", test_numbers);
    g_test_add_func("/json/another-parser-reads-the-same-values", test_read_back);
    g_test_add_func("/json/an-unfinished-document-is-freed", test_unfinished);
    for (gsize i = 0; i < G_N_ELEMENTS(misuses); i++) {
        g_autofree char *path = g_strconcat("/json/misuse/", misuses[i], NULL);
        g_test_add_data_func(path, GINT_TO_POINTER((int)i), test_misuse);
    }
    return g_test_run();
}
