/*
 * Models of family `list`: ranges in names and their order; layers and experts taken from names;
 * bad items and ranges with their place; limits on sizes and on the number of tensors.
 */

#include "test-model.h"

#define LIST(items) HEAD("list") "tensors:\n" items

static void test_list_ranges(void) {
    g_autoptr(RefitModel) model =
        parse_ok(HEAD("list") "tensors:\n"
                              "- {name: scalar, shape: [], dtype: f32}\n"
                              "- {name: \"layers.{0-2}.mlp.experts.{10-11}.w\", shape: [2, 3], "
                              "role: expert_up}\n"
                              "- {name: x.layers.7.b, shape: [5], role: norm}\n"
                              "- {name: layers.9.b, shape: [5], mtp: true}\n"
                              "config: {num_attention_heads: 4, num_key_value_heads: 2}\n",
                 TRUE);
    g_assert_cmpuint(refit_model_n_tensors(model), ==, 9);
    expect_at(model, 0, "scalar F32 other -1 -1");
    expect_at(model, 1, "layers.0.mlp.experts.10.w 2x3 BF16 expert_up 0 10");
    expect_at(model, 2, "layers.0.mlp.experts.11.w 2x3 BF16 expert_up 0 11");
    expect_at(model, 3, "layers.1.mlp.experts.10.w 2x3 BF16 expert_up 1 10");
    expect_at(model, 6, "layers.2.mlp.experts.11.w 2x3 BF16 expert_up 2 11");
    expect_at(model, 7, "x.layers.7.b 5 BF16 norm 7 -1");
    expect_at(model, 8, "layers.9.b 5 BF16 other 9 -1 mtp");
    g_assert_cmpuint(refit_model_tensor(model, 0)->elements, ==, 1);
    g_assert_cmpuint(refit_model_tensor(model, 0)->bytes, ==, 4);
    g_assert_cmpuint(refit_model_parameters(model), ==, 1 + 6 * 6 + 5 + 5);
    g_assert_cmpuint(refit_model_n_layers(model), ==, 8);
    g_assert_cmpuint(refit_model_n_experts(model), ==, 12);
    g_assert_cmpuint(refit_model_n_heads(model), ==, 4);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 2);
}

/* Only whole components count as layers. */
static void test_list_layer_words(void) {
    g_autoptr(RefitModel) model =
        parse_ok(HEAD("list") "tensors:\n"
                              "- {name: sublayers.4.layers.3, shape: [1]}\n"
                              "- {name: layers.4x.w, shape: [1]}\n"
                              "- {name: layers.x.w, shape: [1]}\n"
                              "- {name: layers.99999999999999999999.w, shape: [1]}\n",
                 FALSE);
    expect_at(model, 0, "sublayers.4.layers.3 1 BF16 other 3 -1");
    expect_at(model, 1, "layers.4x.w 1 BF16 other -1 -1");
    expect_at(model, 2, "layers.x.w 1 BF16 other -1 -1");
    g_assert_cmpint(refit_model_tensor(model, 3)->layer, ==, REFIT_NO_LAYER);
    g_assert_cmpuint(refit_model_n_layers(model), ==, 4);
    g_assert_cmpuint(refit_model_n_heads(model), ==, 0);
    g_assert_cmpuint(refit_model_n_kv_heads(model), ==, 0);
}

static void test_list_refusals(void) {
    refuse(HEAD("list"), REFIT_ERROR_INVALID, "m.yaml:", "tensors");
    refuse(HEAD("list") "tensors: []\n", REFIT_ERROR_INVALID,
           "m.yaml:4:10: tensors: ", "at least one tensor");
    refuse(LIST("- 5\n"), REFIT_ERROR_INVALID, "m.yaml:5:3: tensors.0: ", "");
    refuse(LIST("- {shape: [5]}\n"), REFIT_ERROR_INVALID, "m.yaml:5:3: tensors.0: ", "name");
    refuse(LIST("- {name: a}\n"), REFIT_ERROR_INVALID, "m.yaml:5:3: tensors.0: ", "shape");
    refuse(LIST("- {name: '', shape: [1]}\n"), REFIT_ERROR_INVALID, "m.yaml:5:10: ", "empty");
    refuse(LIST("- {name: a, shape: 5}\n"), REFIT_ERROR_INVALID, "m.yaml:5:20: ", "");
    refuse(LIST("- {name: a, shape: [4, 0]}\n"), REFIT_ERROR_INVALID, "m.yaml:5:24: ", "0");
    refuse(LIST("- {name: a, shape: [1, 1, 1, 1, 1, 1, 1, 1, 1]}\n"), REFIT_ERROR_INVALID,
           "m.yaml:5:20: ", "9 dims exceed the limit of 8");
    refuse(LIST("- {name: a, shape: [1], role: dense_upp}\n"), REFIT_ERROR_INVALID,
           "m.yaml:5:31: ", "dense_up");
    refuse(LIST("- {name: a, shape: [1], dtype: bf17}\n"), REFIT_ERROR_INVALID,
           "m.yaml:5:32: ", "bf17");
    refuse(LIST("- {name: a, shape: [1], rolle: norm}\n"), REFIT_ERROR_INVALID,
           "m.yaml:5:", "role");
    refuse(LIST("- {name: a, shape: [3], dtype: f4}\n"), REFIT_ERROR_INVALID,
           "m.yaml:5:3: tensors.0: ", "tensor a: ");
    refuse(LIST("- {name: a, shape: [1]}\n- {name: \"{0-3}.b\", shape: [1]}\n"
                "- {name: 2.b, shape: [1]}\n"),
           REFIT_ERROR_INVALID, "m.yaml:7:3: tensors.2: ", "2.b is already in the list");
    refuse(LIST("- {name: a, shape: [1]}\n") "config: {num_attention_heads: 4, "
                                             "num_key_value_heads: 3}\n",
           REFIT_ERROR_INVALID, "m.yaml:6:55: config.num_key_value_heads: ", "3 does not divide");
    refuse(LIST("- {name: a, shape: [1]}\n") "config: {num_key_value_heads: 3}\n",
           REFIT_ERROR_INVALID, "m.yaml:6:31: config.num_key_value_heads: ", "3 does not divide");
}

static void test_list_bad_ranges(void) {
    static const char *const names[] = {
        "a{3-1}",  "a{-1}",   "a{1-}",         "a{1}",       "a{1-2",
        "a}",      "a{1-2}}", "a{0-99999999}", "a{0x1-0x2}", "{0-1}{0-1}{0-1}{0-1}{0-1}",
        "a{ 1-2}", "a{1- 2}", "a{}",           "a{1,2}",     "a{1-99999999999999999999999}",
    };
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *text = g_strdup_printf(LIST("- {name: \"%s\", shape: [1]}\n"), names[i]);
        refuse(text, REFIT_ERROR_INVALID,
               "m.yaml:5:10: tensors.0.name: ", "braces hold a range such as {0-3}");
    }
}

static void test_list_sizes(void) {
    refuse(LIST("- {name: a, shape: [4294967296, 4294967296]}\n"), REFIT_ERROR_OVERFLOW,
           "m.yaml:5:3: tensors.0: tensor a: ", "elements");
    /* Elements fit, bytes do not. */
    refuse(LIST("- {name: a, shape: [4294967296, 2147483648], dtype: f32}\n"), REFIT_ERROR_OVERFLOW,
           "m.yaml:5:3: tensors.0: tensor a: ", "");
    /* Each fits, the sum of bytes does not. */
    refuse(LIST("- {name: \"a{0-3}\", shape: [4294967296, 1073741824]}\n"), REFIT_ERROR_OVERFLOW,
           "m.yaml:5:3: tensors.0: tensor a1: ", "bytes of the model");
    /* Left-out MTP tensors are counted, too. */
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitModel) none =
        parse(LIST("- {name: \"a{0-1}\", shape: [9223372036854775808], dtype: u8, mtp: true}\n"),
              FALSE, &error);
    g_assert_null(none);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_OVERFLOW);
}

/* Refused while counting: this would not fit in memory. */
static void test_list_too_many(void) {
    const char *const part = "expands to more than 4000000 tensors";
    refuse(LIST("- {name: a, shape: [1]}\n"
                "- {name: \"{0-1048575}.{0-1048575}.{0-1048575}.{0-1048575}\", shape: [1]}\n"),
           REFIT_ERROR_INVALID, "m.yaml:6:3: tensors.1: ", part);
    refuse(LIST("- {name: a, shape: [1]}\n- {name: \"{0-3999}.{0-999}\", shape: [1]}\n"),
           REFIT_ERROR_INVALID, "m.yaml:6:3: tensors.1: ", part);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/model-list/ranges-count-last-fastest", test_list_ranges);
    g_test_add_func("/model-list/layers-are-whole-words", test_list_layer_words);
    g_test_add_func("/model-list/refuses-bad-items", test_list_refusals);
    g_test_add_func("/model-list/refuses-bad-ranges", test_list_bad_ranges);
    g_test_add_func("/model-list/refuses-sizes-beyond-64-bits", test_list_sizes);
    g_test_add_func("/model-list/refuses-too-many-tensors", test_list_too_many);
    return g_test_run();
}
