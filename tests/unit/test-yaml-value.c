/*
 * Covers model/base/refit-yaml-value and the places in messages:
 *   - a table of wrong values for every typed reader, with whole messages
 *   - right values up to the edge of 64 bits, optional and required keys, the schema line
 *   - a reader's own errors, nearest names
 */

#include "yaml-helpers.h"

typedef enum {
    READ_UINT,
    READ_BOOL,
    READ_STRING,
    READ_DTYPE,
    READ_CHOICE,
    READ_SIZE,
    READ_RATIO,
    READ_MAPPING,
    READ_SEQUENCE
} Reading;

static gboolean read_as(RefitNode *node, Reading reading, GError **error) {
    static const char *const choices[] = {"refit", "ring", "gather-broadcast", NULL};
    guint64 number;
    gboolean flag;
    const char *text;
    RefitDtype dtype;
    guint choice;
    double quantity;

    switch (reading) {
    case READ_UINT:
        return refit_node_uint(node, 1, 1024, &number, error);
    case READ_BOOL:
        return refit_node_bool(node, &flag, error);
    case READ_STRING:
        return refit_node_string(node, &text, error);
    case READ_DTYPE:
        return refit_node_dtype(node, &dtype, error);
    case READ_CHOICE:
        return refit_node_choice(node, choices, &choice, error);
    case READ_SIZE:
        return refit_node_quantity(node, REFIT_UNIT_BYTES, &quantity, error);
    case READ_RATIO:
        return refit_node_quantity(node, REFIT_UNIT_PLAIN, &quantity, error);
    case READ_MAPPING:
        return refit_node_expect(node, REFIT_NODE_MAPPING, error);
    case READ_SEQUENCE:
        return refit_node_expect(node, REFIT_NODE_SEQUENCE, error);
    }
    g_assert_not_reached();
}

static void test_wrong_values(void) {
    static const struct {
        const char *value;
        Reading reading;
        RefitError code;
        const char *message; /* without the place */
    } rows[] = {
        {"0", READ_UINT, REFIT_ERROR_INVALID, "0 is below the least allowed, 1"},
        {"1025", READ_UINT, REFIT_ERROR_INVALID, "1025 is above the limit of 1024"},
        {"99999999999999999999999", READ_UINT, REFIT_ERROR_INVALID,
         "99999999999999999999999 is above the limit of 1024"},
        {"-1", READ_UINT, REFIT_ERROR_INVALID, "-1 is negative; write a whole number from 1"},
        {"1.5", READ_UINT, REFIT_ERROR_INVALID,
         "\"1.5\" is not a whole number; write decimal digits, as in 1"},
        {"0x10", READ_UINT, REFIT_ERROR_INVALID,
         "\"0x10\" is not a whole number; write decimal digits, as in 1"},
        {"1e3", READ_UINT, REFIT_ERROR_INVALID,
         "\"1e3\" is not a whole number; write decimal digits, as in 1"},
        {"1_000", READ_UINT, REFIT_ERROR_INVALID,
         "\"1_000\" is not a whole number; write decimal digits, as in 1"},
        {"+5", READ_UINT, REFIT_ERROR_INVALID,
         "\"+5\" is not a whole number; write decimal digits, as in 1"},
        {"017", READ_UINT, REFIT_ERROR_INVALID,
         "017 begins with a zero, which some read as octal; write 17"},
        {"00", READ_UINT, REFIT_ERROR_INVALID,
         "00 begins with a zero, which some read as octal; write 0"},
        {"\"256\"", READ_UINT, REFIT_ERROR_INVALID, "\"256\" is text; write it without quotes"},
        {"", READ_UINT, REFIT_ERROR_INVALID, "has no value; write a single value"},
        {"~", READ_STRING, REFIT_ERROR_INVALID, "has no value; write a single value"},
        {"null", READ_BOOL, REFIT_ERROR_INVALID, "has no value; write a single value"},
        {"null", READ_MAPPING, REFIT_ERROR_INVALID, "has no value; write a mapping"},
        {"[1]", READ_UINT, REFIT_ERROR_INVALID, "is a sequence; write a single value here"},
        {"{a: 1}", READ_STRING, REFIT_ERROR_INVALID, "is a mapping; write a single value here"},
        {"[1]", READ_MAPPING, REFIT_ERROR_INVALID, "is a sequence; write a mapping here"},
        {"dgx", READ_MAPPING, REFIT_ERROR_INVALID,
         "\"dgx\" is a single value; write a mapping here"},
        {"dgx", READ_SEQUENCE, REFIT_ERROR_INVALID,
         "\"dgx\" is a single value; write a sequence here"},
        {"yes", READ_BOOL, REFIT_ERROR_INVALID, "\"yes\" is neither true nor false; write true"},
        {"Off", READ_BOOL, REFIT_ERROR_INVALID, "\"Off\" is neither true nor false; write false"},
        {"True", READ_BOOL, REFIT_ERROR_INVALID, "\"True\" is neither true nor false; write true"},
        {"maybe", READ_BOOL, REFIT_ERROR_INVALID,
         "\"maybe\" is neither true nor false; write true or false"},
        {"'true'", READ_BOOL, REFIT_ERROR_INVALID, "\"true\" is text; write it without quotes"},
        {"rign", READ_CHOICE, REFIT_ERROR_INVALID,
         "\"rign\" is not one of refit, ring, gather-broadcast (did you mean \"ring\"?)"},
        {"direct", READ_CHOICE, REFIT_ERROR_INVALID,
         "\"direct\" is not one of refit, ring, gather-broadcast"},
        {"{}", READ_CHOICE, REFIT_ERROR_INVALID, "is a mapping; write a single value here"},
        {"fp8", READ_DTYPE, REFIT_ERROR_INVALID,
         "\"fp8\" is not a known element type; known are bf16, f16, f32, f64, f8_e4m3, f8_e5m2, "
         "u8, i8, i32, i64, f4, f8_e8m0, i16, u16, u32, u64, bool"},
        {"64", READ_SIZE, REFIT_ERROR_PARSE, "\"64\": a size needs a unit, as in 64MiB or 5GB"},
        {"9000PiB", READ_SIZE, REFIT_ERROR_OVERFLOW,
         "\"9000PiB\": a size above 2^63 bytes (9223372036854775808)"},
        {"'0.5'", READ_RATIO, REFIT_ERROR_INVALID, "\"0.5\" is text; write it without quotes"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *text = g_strconcat("# one line\nt:\n  v: ", rows[i].value, "\n", NULL);
        g_autofree char *message = g_strdup_printf("a.yaml:3:%d: t.v: %s",
                                                   *rows[i].value == '\0' ? 5 : 6, rows[i].message);
        g_autoptr(RefitDoc) doc = parse(text);
        g_assert_false(read_as(at(doc, "t.v"), rows[i].reading, &error));
        g_assert_error(error, REFIT_ERROR, (int)rows[i].code);
        g_assert_cmpstr(error->message, ==, message);
    }
}

static void test_right_values(void) {
    g_autoptr(RefitDoc) doc = parse("n: 18446744073709551615\nz: 0\nt: true\nf: false\nd: BF16\n"
                                    "c: gather-broadcast\nq: 64MiB\nr: 0.93\n");
    static const char *const choices[] = {"refit", "ring", "gather-broadcast", NULL};
    gboolean flag = FALSE;
    RefitDtype dtype = REFIT_DTYPE_F4;
    guint choice = 9;
    double quantity = 0;

    assert_uint(at(doc, "n"), G_MAXUINT64);
    assert_uint(at(doc, "z"), 0);
    g_assert_true(refit_node_bool(at(doc, "t"), &flag, NULL));
    g_assert_true(flag);
    g_assert_true(refit_node_bool(at(doc, "f"), &flag, NULL));
    g_assert_false(flag);
    g_assert_true(refit_node_dtype(at(doc, "d"), &dtype, NULL));
    g_assert_cmpint(dtype, ==, REFIT_DTYPE_BF16);
    g_assert_true(refit_node_choice(at(doc, "c"), choices, &choice, NULL));
    g_assert_cmpuint(choice, ==, 2);
    g_assert_true(refit_node_quantity(at(doc, "q"), REFIT_UNIT_BYTES, &quantity, NULL));
    g_assert_cmpfloat(quantity, ==, 67108864);
    g_assert_true(refit_node_quantity(at(doc, "r"), REFIT_UNIT_PLAIN, &quantity, NULL));
    g_assert_cmpfloat(quantity, ==, 0.93);
}

static void test_optional_keys(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("n: 4\nb: true\nq: 2us\ns: text\nbig: 4294967296\n");
    RefitNode *root = refit_doc_root(doc);
    guint n = 1;
    gboolean b = FALSE;
    double q = 7;
    g_autofree char *s = g_strdup("default");

    g_assert_true(refit_node_get_uint(root, "no_n", 1, 8, &n, &error));
    g_assert_true(refit_node_get_bool(root, "no_b", &b, &error));
    g_assert_true(refit_node_get_quantity(root, "no_q", REFIT_UNIT_SECONDS, &q, &error));
    g_assert_true(refit_node_get_string(root, "no_s", &s, &error));
    g_assert_cmpuint(n, ==, 1);
    g_assert_false(b);
    g_assert_cmpfloat(q, ==, 7);
    g_assert_cmpstr(s, ==, "default");

    g_assert_true(refit_node_get_uint(root, "n", 1, 8, &n, &error));
    g_assert_true(refit_node_get_bool(root, "b", &b, &error));
    g_assert_true(refit_node_get_quantity(root, "q", REFIT_UNIT_SECONDS, &q, &error));
    g_assert_true(refit_node_get_string(root, "s", &s, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(n, ==, 4);
    g_assert_true(b);
    g_assert_cmpfloat(q, ==, 2e-6);
    g_assert_cmpstr(s, ==, "text");

    /* Fits the limit asked for but not the output */
    g_assert_false(refit_node_get_uint(root, "big", 1, G_MAXUINT64, &n, &error));
    g_assert_cmpstr(error->message, ==,
                    "a.yaml:5:6: big: 4294967296 is above the limit of 4294967295");
    g_assert_cmpuint(n, ==, 4);
    g_clear_error(&error);
    g_assert_false(refit_node_get_bool(at(doc, "n"), "x", &b, &error));
    g_assert_cmpstr(error->message, ==,
                    "a.yaml:1:4: n: \"4\" is a single value; write a mapping here");
}

static void test_required_key(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("train:\n  pp: 2\n");

    g_assert_nonnull(refit_node_require(at(doc, "train"), "pp", &error));
    g_assert_no_error(error);
    g_assert_null(refit_node_require(at(doc, "train"), "tp", &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_cmpstr(error->message, ==, "a.yaml:2:3: train: the key \"tp\" is missing");
    g_clear_error(&error);
    g_assert_null(refit_node_require(refit_doc_root(doc), "model", &error));
    g_assert_cmpstr(error->message, ==, "a.yaml:1:1: the key \"model\" is missing");
}

static void test_schema(void) {
    static const struct {
        const char *text;
        const char *message;
    } rows[] = {
        {"schema: refit.case/1\n", NULL},
        {"schema: refit.case/2\n",
         "a.yaml:1:9: schema: \"refit.case/2\" cannot be read here; \"refit.case/1\" can"},
        {"model: x\n", "a.yaml:1:1: the key \"schema\" is missing; write schema: refit.case/1"},
        {"[1]\n", "a.yaml:1:1: is a sequence; write a mapping here"},
        {"text\n", "a.yaml:1:1: \"text\" is a single value; write a mapping here"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitDoc) doc = parse(rows[i].text);
        gboolean is_right = refit_node_check_schema(refit_doc_root(doc), "refit.case/1", &error);
        g_assert_cmpint(is_right, ==, rows[i].message == NULL);
        g_assert_cmpstr(error != NULL ? error->message : NULL, ==, rows[i].message);
    }
}

static void test_own_error(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("a: 1\ntrain: {tp: 1, pp: 0}\n");

    refit_node_error(at(doc, "train.pp"), REFIT_ERROR_INFEASIBLE, &error, "%d is not %s", 0,
                     "a positive count");
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INFEASIBLE);
    g_assert_cmpstr(error->message, ==, "a.yaml:2:20: train.pp: 0 is not a positive count");
    g_clear_error(&error);
    refit_node_error(refit_doc_root(doc), REFIT_ERROR_INVALID, &error, "text");
    g_assert_cmpstr(error->message, ==, "a.yaml:1:1: text");
}

static void test_nearest_name(void) {
    static const char *const names[] = {"tp", "pp", "ranks", "generation", "gather-broadcast",
                                        NULL};
    static const struct {
        const char *text;
        const char *nearest;
    } rows[] = {
        {"tpp", "tp"},
        {"pt", "tp"},
        {"rnaks", "ranks"},
        {"RANKS", "ranks"},
        {"genration", "generation"},
        {"xp", "tp"},
        {"rates", NULL},
        {"x", NULL},
        {"", NULL},
        {"gather_broadcast", "gather-broadcast"},
        {"gatherbroadcasting", "gather-broadcast"},
        {"ppp", "pp"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_assert_cmpstr(refit_nearest_name(rows[i].text, names), ==, rows[i].nearest);
    }
    g_assert_null(refit_nearest_name("tp", names + 5));
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/yaml/a-wrong-value-is-refused-with-a-way-out", test_wrong_values);
    g_test_add_func("/yaml/right-values-are-read", test_right_values);
    g_test_add_func("/yaml/an-absent-optional-key-keeps-the-default", test_optional_keys);
    g_test_add_func("/yaml/a-missing-key-is-named-at-its-mapping", test_required_key);
    g_test_add_func("/yaml/the-schema-must-match-exactly", test_schema);
    g_test_add_func("/yaml/a-reader-s-own-error-has-the-place", test_own_error);
    g_test_add_func("/yaml/the-nearest-name-needs-few-edits", test_nearest_name);
    return g_test_run();
}
