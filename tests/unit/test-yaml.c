/*
 * Covers model/base/refit-yaml and refit-yaml-read:
 *   - a table of malformed documents with whole messages: place, path, text
 *   - trees: kinds, paths, order, aliases as copies, block texts, byte order mark, JSON, many keys
 *   - keys nobody asked for: nearest name, list of known names, free-form parts
 *   - overrides: replace, create, index, what cannot be set, the place they give to messages
 *   - files that cannot be read
 */

#include <glib/gstdio.h>

#include "lib/refit-disk.h"
#include "yaml-helpers.h"

typedef struct {
    const char *text;
    const char *message;
} Malformed;

static void test_malformed(void) {
    static const Malformed rows[] = {
        {"", "a.yaml:1:1: the document is empty"},
        {"\n# only a comment\n", "a.yaml:1:1: the document is empty"},
        {"---\n...\n", "a.yaml:1:1: the document is empty"},
        {"a: 1\nb: 2\na: 3\n", "a.yaml:3:1: a: the key is given twice, first in line 1"},
        {"t:\n  tp: 1\n  pp: 2\n  tp: 3\n",
         "a.yaml:4:3: t.tp: the key is given twice, first in line 2"},
        {"- {x: 1, x: 2}\n", "a.yaml:1:10: 0.x: the key is given twice, first in line 1"},
        {"{\"a\": 1, \"\\x61\": 2}", "a.yaml:1:10: a: the key is given twice, first in line 1"},
        {"a: 1\n? [b]\n: 2\n", "a.yaml:2:3: a key must be a single value, not a collection"},
        {"{{a: 1}: 2}", "a.yaml:1:2: a key must be a single value, not a collection"},
        {"a: &x b\n*x : 2\n", "a.yaml:2:1: a key must be written out, not be an alias"},
        {"a: 1\n?\n: 2\n", "a.yaml:2:2: a key is empty"},
        {"\"\": 2\n", "a.yaml:1:1: a key is empty"},
        {"\"a\\0b\": 2\n", "a.yaml:1:1: a key contains a NUL character"},
        {"a:\n  - \"x\\0y\"\n", "a.yaml:2:5: a.0: the text contains a NUL character"},
        {"a: 1\n---\nb: 2\n", "a.yaml:2:1: a second document begins; only one may be given"},
        {"a: *b\n", "a.yaml:1:4: a: the alias *b names no anchor before it"},
        {"a: &a\n  b: [*a]\n", "a.yaml:2:7: a.b.0: the alias *a names a value that contains it"},
        {"&r [*r]", "a.yaml:1:5: 0: the alias *r names a value that contains it"},
        {"a: !point 3\n", "a.yaml:1:4: a: the tag !point has no meaning here; leave it out"},
        {"a: !!set {b}\n", "a.yaml:1:4: a: the tag tag:yaml.org,2002:set has no meaning here; "
                           "leave it out"},
        {"a: !!seq {b: 1}\n", "a.yaml:1:4: a: the tag tag:yaml.org,2002:seq has no meaning here; "
                              "leave it out"},
        {"a: !!map 1\n", "a.yaml:1:4: a: the tag tag:yaml.org,2002:map has no meaning here; "
                         "leave it out"},
        {"a: [1, 2\nb: 3\n",
         "a.yaml:2:2: not YAML: did not find expected ',' or ']' while parsing a flow sequence "
         "begun in line 1"},
        {"a: 1\n b: 2\n", "a.yaml:2:3: not YAML: mapping values are not allowed in this context"},
        {"a:\n\t- 1\n", "a.yaml:2:1: not YAML: found character that cannot start any token while "
                        "scanning for the next token"},
        {"a: 'x\n", "a.yaml:2:1: not YAML: found unexpected end of stream while scanning a quoted "
                    "scalar begun in line 1"},
        {"a: 1\nb: \xc3\xa9\xff\n", "a.yaml:2:5: not YAML: invalid leading UTF-8 octet"},
        {"a: \x01\n", "a.yaml:1:4: not YAML: control characters are not allowed"},
        {"\xff\xfe"
         "a",
         "a.yaml:1:1: not YAML: invalid leading UTF-8 octet"},
    };

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitDoc) doc =
            refit_doc_parse(rows[i].text, strlen(rows[i].text), "a.yaml", &error);
        g_assert_null(doc);
        g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
        g_assert_cmpstr(error->message, ==, rows[i].message);
    }
}

static void test_embedded_nul(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_doc_parse("a: 1\0b", 6, "a.yaml", &error);

    g_assert_null(doc);
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_assert_cmpstr(error->message, ==, "a.yaml:1:5: not YAML: control characters are not allowed");
}

static char *nested(guint depth) {
    g_autofree char *open = g_strnfill(depth, '[');
    g_autofree char *close = g_strnfill(depth, ']');

    return g_strconcat(open, "1", close, NULL);
}

static void test_depth(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *allowed = nested(REFIT_YAML_MAX_DEPTH);
    g_autofree char *refused = nested(REFIT_YAML_MAX_DEPTH + 1);
    g_autoptr(RefitDoc) doc = parse(allowed);
    RefitNode *node = refit_doc_root(doc);

    for (guint i = 0; i < REFIT_YAML_MAX_DEPTH; i++) {
        node = refit_node_at(node, 0);
    }
    assert_uint(node, 1);
    g_assert_null(refit_doc_parse(refused, strlen(refused), "a.yaml", &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_assert_true(g_str_has_prefix(error->message, "a.yaml:1:65: 0.0.0."));
    g_assert_true(g_str_has_suffix(error->message, ": nested deeper than 64 levels"));
}

static void test_depth_through_alias(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *deep = nested(40);
    g_autofree char *text = g_strdup_printf(
        "- &a %s\n- [[[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]]\n", deep);

    g_assert_null(refit_doc_parse(text, strlen(text), "a.yaml", &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_assert_true(
        g_str_has_suffix(error->message, ": nested deeper than 64 levels through the alias *a"));
}

/* Seven levels of nine aliases are 4.8 million values from a text of a few lines. */
static void test_alias_expansion(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(GString) text = g_string_new("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");

    for (guint i = 1; i < 7; i++) {
        guint b = i - 1;
        g_string_append_printf(text,
                               "a%u: &a%u [*a%u, *a%u, *a%u, *a%u, *a%u, *a%u, *a%u, *a%u, *a%u]\n",
                               i, i, b, b, b, b, b, b, b, b, b);
    }
    g_assert_null(refit_doc_parse(text->str, text->len, "a.yaml", &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_assert_true(g_str_has_suffix(
        error->message, ": aliases expand to more than 65536 values; write fewer of them"));
}

static void test_tree(void) {
    g_autoptr(RefitDoc) doc = parse("model: deepseek-v3\n"
                                    "train: {tp: 2, pp: 8}\n"
                                    "generation:\n"
                                    "  - tp: 4\n"
                                    "  - {tp: 8}\n");
    RefitNode *root = refit_doc_root(doc);

    g_assert_cmpstr(refit_doc_name(doc), ==, "a.yaml");
    g_assert_cmpint(refit_node_kind(root), ==, REFIT_NODE_MAPPING);
    g_assert_cmpstr(refit_node_path(root), ==, "");
    g_assert_cmpuint(refit_node_size(root), ==, 3);
    g_assert_cmpstr(refit_node_key_at(root, 0), ==, "model");
    g_assert_cmpstr(refit_node_key_at(root, 2), ==, "generation");
    g_assert_null(refit_node_get(root, "absent"));

    RefitNode *model = at(doc, "model");
    g_assert_cmpint(refit_node_kind(model), ==, REFIT_NODE_SCALAR);
    g_assert_cmpuint(refit_node_size(model), ==, 0);
    assert_string(model, "deepseek-v3");
    RefitNode *tp = at(doc, "generation.1.tp");
    g_assert_cmpstr(refit_node_path(tp), ==, "generation.1.tp");
    assert_uint(tp, 8);
    assert_uint(refit_node_at(refit_node_at(root, 1), 1), 8);
    g_assert_cmpint(refit_node_kind(at(doc, "generation")), ==, REFIT_NODE_SEQUENCE);
}

static void test_texts(void) {
    g_autoptr(RefitDoc) doc = parse("\xef\xbb\xbf"
                                    "a: |\n  two\n  lines\n"
                                    "b: 'it''s'\n"
                                    "c: \"\\u00e9\"\n"
                                    "d: !!str 12\n"
                                    "e: !!int 12\n"
                                    "f: ! 12\n"
                                    "g: no\n");
    guint64 value;

    assert_string(at(doc, "a"), "two\nlines\n");
    assert_string(at(doc, "b"), "it's");
    assert_string(at(doc, "c"), "\xc3\xa9");
    assert_string(at(doc, "d"), "12");
    assert_string(at(doc, "g"), "no");
    assert_uint(at(doc, "e"), 12);
    g_assert_false(refit_node_uint(at(doc, "d"), 0, 99, &value, NULL));
    g_assert_false(refit_node_uint(at(doc, "f"), 0, 99, &value, NULL));
}

static void test_json(void) {
    g_autoptr(RefitDoc) doc =
        parse("{\n\t\"a\": [1, \"x\\/y\", true],\n\t\"b\": {\"c\": \"450GBps\"}\n}\n");
    gboolean flag = FALSE;
    double value = 0;

    assert_uint(at(doc, "a.0"), 1);
    assert_string(at(doc, "a.1"), "x/y");
    g_assert_true(refit_node_bool(at(doc, "a.2"), &flag, NULL));
    g_assert_true(flag);
    g_assert_true(refit_node_quantity(at(doc, "b.c"), REFIT_UNIT_BYTES_PER_S, &value, NULL));
    g_assert_cmpfloat(value, ==, 450e9);
}

static void test_alias_is_a_copy(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("a: &x {tp: 2, list: [1]}\nb: *x\n");
    guint64 value;

    /* Every use has its own path, override and consumption; the text stays where it was written */
    g_assert_true(refit_doc_set(doc, "a.tp=3", &error));
    assert_uint(at(doc, "a.tp"), 3);
    assert_uint(at(doc, "b.tp"), 2);
    assert_uint(at(doc, "b.list.0"), 1);
    g_assert_false(refit_node_uint(at(doc, "b.tp"), 5, 9, &value, &error));
    g_assert_cmpstr(error->message, ==, "a.yaml:1:12: b.tp: 2 is below the least allowed, 5");
    g_clear_error(&error);
    g_assert_false(refit_node_finish(refit_doc_root(doc), &error));
    g_assert_cmpstr(error->message, ==, "a.yaml:1:15: a.list: unknown key; known here: tp");
}

static void test_many_keys(void) {
    const guint n = 100000;
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < n; i++) {
        g_string_append_printf(text, "key%u: %u\n", i, i);
    }
    g_autoptr(RefitDoc) doc = parse(text->str);
    g_assert_cmpuint(refit_node_size(refit_doc_root(doc)), ==, n);
    assert_uint(at(doc, "key99999"), 99999);
    assert_uint(at(doc, "key0"), 0);
    g_assert_null(refit_node_get(refit_doc_root(doc), "key100000"));
}

static void test_unknown_key(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("model: x\ntrain:\n  pp: 1\n  tpp: 4\n");
    RefitNode *root = refit_doc_root(doc);

    refit_node_get(root, "model");
    RefitNode *train = refit_node_get(root, "train");
    refit_node_get(train, "tp");
    refit_node_get(train, "pp");
    g_assert_false(refit_node_finish(root, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_INVALID);
    g_assert_cmpstr(error->message, ==,
                    "a.yaml:4:3: train.tpp: unknown key (did you mean \"tp\"?)");
    g_clear_error(&error);
    refit_node_get(train, "tpp");
    g_assert_true(refit_node_finish(root, &error));
    g_assert_no_error(error);
}

static void test_unknown_key_without_neighbour(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("model: x\nwhatever: 1\n");
    RefitNode *root = refit_doc_root(doc);

    refit_node_get(root, "model");
    refit_node_get(root, "train");
    refit_node_get(root, "model");
    g_assert_false(refit_node_finish(root, &error));
    g_assert_cmpstr(error->message, ==,
                    "a.yaml:2:1: whatever: unknown key; known here: model, train");
}

static void test_unknown_key_below_sequences(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("list:\n  - {a: 1}\n  - {b: 2}\n");
    RefitNode *root = refit_doc_root(doc);

    /* The list was asked for, what is in its items was not */
    RefitNode *list = refit_node_get(root, "list");
    refit_node_get(refit_node_at(list, 0), "a");
    g_assert_false(refit_node_finish(root, &error));
    g_assert_cmpstr(error->message, ==, "a.yaml:3:6: list.1.b: unknown key; none is known here");
    g_clear_error(&error);
    refit_node_consume_all(list);
    g_assert_true(refit_node_finish(root, &error));
    g_assert_no_error(error);
}

static void test_free_form(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("source: {url: x, who: [{name: y}]}\n");
    RefitNode *root = refit_doc_root(doc);

    RefitNode *source = refit_node_get(root, "source");
    g_assert_false(refit_node_finish(root, NULL));
    refit_node_consume_all(source);
    g_assert_true(refit_node_finish(root, &error));
    g_assert_no_error(error);
}

static void test_set_replaces_and_creates(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("train: {tp: 2, pp: 8}\ngeneration: [{tp: 4}, {tp: 8}]\n");
    static const char *const assignments[] = {
        "train.tp=4", "generation.1.tp=16", "train.cp=2", "a.b.c=x=y", "generation.0={ep: [1, 2]}",
    };

    for (gsize i = 0; i < G_N_ELEMENTS(assignments); i++) {
        g_assert_true(refit_doc_set(doc, assignments[i], &error));
        g_assert_no_error(error);
    }
    assert_uint(at(doc, "train.tp"), 4);
    assert_uint(at(doc, "train.pp"), 8);
    assert_uint(at(doc, "train.cp"), 2);
    assert_uint(at(doc, "generation.1.tp"), 16);
    assert_uint(at(doc, "generation.0.ep.1"), 2);
    g_assert_cmpstr(refit_node_path(at(doc, "generation.0.ep.1")), ==, "generation.0.ep.1");
    assert_string(at(doc, "a.b.c"), "x=y");
    /* A replaced value keeps its position, a new one comes last */
    RefitNode *train = at(doc, "train");
    g_assert_cmpuint(refit_node_size(train), ==, 3);
    g_assert_cmpstr(refit_node_key_at(train, 0), ==, "tp");
    g_assert_cmpstr(refit_node_key_at(train, 2), ==, "cp");
    g_assert_cmpuint(refit_node_size(at(doc, "generation")), ==, 2);
    g_assert_true(refit_doc_set(doc, "a.b.c=2", &error));
    assert_uint(at(doc, "a.b.c"), 2);
}

static void test_set_place(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("train: {tp: 2}\n");
    RefitNode *root = refit_doc_root(doc);
    guint64 value;

    g_assert_true(refit_doc_set(doc, "train.tp=0", &error));
    g_assert_true(refit_doc_set(doc, "budget={time: no}", &error));
    g_assert_false(refit_node_uint(at(doc, "train.tp"), 1, 9, &value, &error));
    g_assert_cmpstr(error->message, ==, "--set train.tp: 0 is below the least allowed, 1");
    g_clear_error(&error);
    g_assert_false(refit_node_uint(at(doc, "budget.time"), 1, 9, &value, &error));
    g_assert_cmpstr(error->message, ==,
                    "--set budget: budget.time: \"no\" is not a whole number; write decimal "
                    "digits, as in 1");
    g_clear_error(&error);
    g_assert_true(refit_doc_set(doc, "train.ttp=1", &error));
    g_assert_false(refit_node_finish(root, &error));
    g_assert_cmpstr(error->message, ==, "--set train.ttp: unknown key (did you mean \"tp\"?)");
}

static void test_set_refused(void) {
    static const struct {
        const char *assignment;
        RefitError code;
        const char *message;
    } rows[] = {
        {"train.tp", REFIT_ERROR_PARSE,
         "--set train.tp: needs a path, an equals sign and a value, as in --set train.tp=4"},
        {"=4", REFIT_ERROR_PARSE,
         "--set : needs a path, an equals sign and a value, as in --set train.tp=4"},
        {"train..tp=4", REFIT_ERROR_PARSE,
         "--set train..tp: needs a path, an equals sign and a value, as in --set train.tp=4"},
        {"train.\xff=4", REFIT_ERROR_PARSE,
         "--set train.\xef\xbf\xbd: needs a path, an equals sign and a value, as in --set "
         "train.tp=4"},
        {"train.tp=", REFIT_ERROR_PARSE, "--set train.tp: no value is given"},
        {"train.tp=[1", REFIT_ERROR_PARSE,
         "--set train.tp: not YAML: did not find expected ',' or ']' while parsing a flow "
         "sequence"},
        {"train={a: 1, a: 2}", REFIT_ERROR_PARSE, "--set train: train.a: the key is given twice"},
        {"new.train={a: *x}", REFIT_ERROR_PARSE,
         "--set new.train: new.train.a: the alias *x names no anchor before it"},
        {"topology.nodes=4", REFIT_ERROR_INVALID,
         "--set topology.nodes: topology is the single value \"dgx-h100\", which has no parts; set "
         "topology itself, as in --set 'topology={...}'"},
        {"generation.2.tp=4", REFIT_ERROR_INVALID,
         "--set generation.2.tp: generation is a sequence of 2, counted from 0; there is no 2"},
        {"generation.tp=4", REFIT_ERROR_INVALID,
         "--set generation.tp: generation is a sequence of 2; \"tp\" is not a number from 0"},
        {"generation.-1=4", REFIT_ERROR_INVALID,
         "--set generation.-1: generation is a sequence of 2; \"-1\" is not a number from 0"},
    };
    g_autoptr(RefitDoc) doc = parse("topology: dgx-h100\ntrain: {tp: 2}\ngeneration: [1, 2]\n");

    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_false(refit_doc_set(doc, rows[i].assignment, &error));
        g_assert_error(error, REFIT_ERROR, (int)rows[i].code);
        g_assert_cmpstr(error->message, ==, rows[i].message);
    }
    /* Nothing of all this got into the document */
    g_assert_cmpuint(refit_node_size(refit_doc_root(doc)), ==, 3);
    assert_uint(at(doc, "train.tp"), 2);
    g_assert_cmpuint(refit_node_size(at(doc, "train")), ==, 1);
}

static void test_set_depth(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = parse("{}");
    g_autoptr(GString) path = g_string_new("a");

    for (guint i = 1; i < REFIT_YAML_MAX_DEPTH; i++) {
        g_string_append(path, ".a");
    }
    g_autofree char *allowed = g_strconcat(path->str, "=1", NULL);
    g_autofree char *collection = g_strconcat(path->str, "=[]", NULL);
    g_autofree char *refused = g_strconcat(path->str, ".a=1", NULL);
    g_assert_false(refit_doc_set(doc, collection, &error));
    g_assert_true(g_str_has_suffix(error->message, "nested deeper than 64 levels"));
    g_clear_error(&error);
    g_assert_false(refit_doc_set(doc, refused, &error));
    g_assert_true(g_str_has_suffix(error->message, "nested deeper than 64 levels"));
    g_clear_error(&error);
    g_assert_true(refit_doc_set(doc, allowed, &error));
    g_assert_no_error(error);
    assert_uint(at(doc, path->str), 1);
}

static void test_load(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *dir = g_dir_make_tmp("refit-yaml-XXXXXX", NULL);
    g_autofree char *path = g_build_filename(dir, "a.yaml", NULL);

    g_assert_null(refit_doc_load(&refit_disk, path, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_PARSE);
    g_autofree char *message =
        g_strconcat(path, ": cannot be read: No such file or directory", NULL);
    g_assert_cmpstr(error->message, ==, message);
    g_clear_error(&error);

    g_assert_true(g_file_set_contents(path, "a: 3\n", -1, NULL));
    g_autoptr(RefitDoc) doc = refit_doc_load(&refit_disk, path, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(refit_doc_name(doc), ==, path);
    assert_uint(at(doc, "a"), 3);
    g_unlink(path);
    g_rmdir(dir);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/yaml/a-malformed-document-is-refused-at-its-place", test_malformed);
    g_test_add_func("/yaml/a-nul-byte-is-refused", test_embedded_nul);
    g_test_add_func("/yaml/nesting-is-limited", test_depth);
    g_test_add_func("/yaml/nesting-through-aliases-is-limited", test_depth_through_alias);
    g_test_add_func("/yaml/aliases-of-aliases-are-limited", test_alias_expansion);
    g_test_add_func("/yaml/a-document-is-a-tree-with-paths", test_tree);
    g_test_add_func("/yaml/texts-keep-what-was-written", test_texts);
    g_test_add_func("/yaml/json-is-read-too", test_json);
    g_test_add_func("/yaml/an-alias-is-a-copy", test_alias_is_a_copy);
    g_test_add_func("/yaml/many-keys-are-found", test_many_keys);
    g_test_add_func("/yaml/unknown/the-nearest-key-is-named", test_unknown_key);
    g_test_add_func("/yaml/unknown/without-a-near-one-all-keys-are-listed",
                    test_unknown_key_without_neighbour);
    g_test_add_func("/yaml/unknown/items-of-sequences-count", test_unknown_key_below_sequences);
    g_test_add_func("/yaml/unknown/free-form-parts-are-left-alone", test_free_form);
    g_test_add_func("/yaml/set/values-are-replaced-and-created", test_set_replaces_and_creates);
    g_test_add_func("/yaml/set/messages-name-the-override", test_set_place);
    g_test_add_func("/yaml/set/a-refused-override-changes-nothing", test_set_refused);
    g_test_add_func("/yaml/set/nesting-is-limited", test_set_depth);
    g_test_add_func("/yaml/a-file-is-read-or-named", test_load);
    return g_test_run();
}
