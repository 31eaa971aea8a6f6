/*
 * Profiles: a file gives every term its number and source; terms that cost nothing; switching off
 * and overriding in a case; every error with its place; the shipped files' agreed numbers, and that
 * each number of each of them has a source.
 */

#include "input-text.h"

static const char small[] = "schema: refit.profile/1\n"
                            "name: small\n"
                            "terms:\n"
                            "  operation: {value: 12us, source: S0}\n"
                            "  run: {value: 30ns, source: S1}\n"
                            "  pack: {value: 1TBps, source: S2}\n"
                            "  unpack: {value: 2TBps, source: S3}\n"
                            "  bucket: {value: 3ms, source: S4}\n"
                            "  host: {value: 4us, source: S5}\n"
                            "  install: {value: 0GBps, source: S6}\n"
                            "  pause: {value: 1s, source: S7}\n"
                            "bucket_bytes: {value: 1GiB, source: S8}\n"
                            "bucket_memory_percent: {value: 2.5, source: S9}\n"
                            "stage_lanes: 3\n"
                            "slices: 5\n"
                            "batches: 7\n"
                            "slice_bytes: {value: 256KiB, source: S10}\n"
                            "stripe_bytes: {value: 4KiB, source: S11}\n";

static RefitProfile *parse_file(const char *text, GError **error) {
    g_autoptr(RefitDoc) doc = input_doc(text);
    return refit_profile_parse(refit_doc_root(doc), error);
}

/* `text` is a document whose `profile` is read, absent meaning none. */
static RefitProfile *parse_case(const char *text, GError **error) {
    g_autoptr(RefitDoc) doc = input_doc(text);
    return refit_profile_from_case(refit_node_get(refit_doc_root(doc), "profile"), input_store(),
                                   error);
}

static void assert_number(const RefitSourced *number, double value, const char *source) {
    g_assert_cmpfloat_with_epsilon(number->value, value, value * 1e-12 + G_MINDOUBLE);
    g_assert_cmpstr(number->source, ==, source);
}

static void test_file(void) {
    static const double values[REFIT_N_TERMS] = {12e-6, 30e-9, 1e12, 2e12, 3e-3, 4e-6, 0, 1};
    static const char *const names[REFIT_N_TERMS] = {"operation", "run",  "pack",    "unpack",
                                                     "bucket",    "host", "install", "pause"};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProfile) profile = parse_file(small, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(profile->name, ==, "small");
    for (guint i = 0; i < REFIT_N_TERMS; i++) {
        g_autofree char *source = g_strdup_printf("S%u", i);
        assert_number(&profile->terms[i], values[i], source);
        g_assert_cmpstr(refit_term_name((RefitTerm)i), ==, names[i]);
        g_assert_cmpuint(strlen(refit_term_meaning((RefitTerm)i)), >, 10);
        g_assert_false(profile->off[i]);
    }
    assert_number(&profile->bucket_bytes, 1073741824.0, "S8");
    assert_number(&profile->bucket_memory_percent, 2.5, "S9");
    assert_number(&profile->slice_bytes, 262144.0, "S10");
    assert_number(&profile->stripe_bytes, 4096.0, "S11");
    g_assert_cmpuint(profile->stage_lanes, ==, 3);
    g_assert_cmpuint(profile->slices, ==, 5);
    g_assert_cmpuint(profile->batches, ==, 7);
}

static void test_free_term(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProfile) profile = parse_file(small, &error);
    g_assert_no_error(error);
    for (guint i = 0; i < REFIT_N_TERMS; i++)
        g_assert_cmpint(refit_profile_is_on(profile, (RefitTerm)i), ==, i != REFIT_TERM_INSTALL);
    profile->off[REFIT_TERM_PACK] = TRUE;
    g_assert_false(refit_profile_is_on(profile, REFIT_TERM_PACK));
    g_assert_true(refit_profile_is_on(profile, REFIT_TERM_UNPACK));
}

static void test_file_errors(void) {
    static const InputBad bad[] = {
        {"refit.profile/1", "refit.topology/1", "t.yaml:1:9: schema: *"},
        {"name: small\n", "", "t.yaml:1:1: *"},
        {"  run: {value: 30ns, source: S1}\n", "", "t.yaml:4:3: terms: *"},
        {"run: {value: 30ns, source: S1}", "run: 30ns",
         "t.yaml:5:8: terms.run: a number needs its source; write {value: ..., source: ...}"},
        {", source: S2", "",
         "t.yaml:6:9: terms.pack: the number has no source; name the data sheet or the "
         "measurement, or write 'assumed: why'"},
        {"source: S9", "source: \"\"",
         "t.yaml:13:45: bucket_memory_percent.source: the number has no source; name the data "
         "sheet or the measurement, or write 'assumed: why'"},
        {"  pause: ", "  paws: ", "t.yaml:4:3: terms: *"},
        {"  pause: ", "  extra: {value: 1s, source: x}\n  pause: ", "t.yaml:11:3: *"},
        {"1TBps", "1us", "t.yaml:6:17: terms.pack.value: *"},
        {"1GiB", "0B", "t.yaml:12:15: bucket_bytes: a bucket needs at least one byte"},
        {"256KiB", "0B", "t.yaml:17:14: slice_bytes: a slice needs at least one byte"},
        {"4KiB", "0B", "t.yaml:18:15: stripe_bytes: a stripe needs at least one byte"},
        {"value: 2.5", "value: 0",
         "t.yaml:13:24: bucket_memory_percent: a bucket takes more than 0 and at most 100 percent "
         "of GPU memory"},
        {"value: 2.5", "value: 100.5",
         "t.yaml:13:24: bucket_memory_percent: a bucket takes more than 0 and at most 100 percent "
         "of GPU memory"},
        {"stage_lanes: 3", "stage_lanes: 0", "t.yaml:14:14: stage_lanes: *"},
        {"slices: 5", "slices: 1025", "t.yaml:15:9: slices: *"},
        {"batches: 7", "batches: 4097", "t.yaml:16:10: batches: *"},
        {"batches: 7\n", "", "t.yaml:1:1: *"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *text = input_replace(small, bad[i].old, bad[i].new_text);
        g_autoptr(RefitProfile) profile = parse_file(text, &error);
        g_test_message("%s -> %s", bad[i].old, bad[i].new_text);
        g_assert_null(profile);
        if (error->code == REFIT_ERROR_PARSE) /* a quantity that is none */
            input_assert_error(error, REFIT_ERROR_PARSE, bad[i].message);
        else
            input_assert_error(error, REFIT_ERROR_INVALID, bad[i].message);
    }
}

static void test_default(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProfile) absent = parse_case("other: 1\n", &error);
    g_assert_no_error(error);
    g_assert_cmpstr(absent->name, ==, "refit");
    g_autoptr(RefitProfile) nameless = parse_case("profile: {off: [host]}\n", &error);
    g_assert_no_error(error);
    g_assert_cmpstr(nameless->name, ==, "refit");
    g_assert_false(refit_profile_is_on(nameless, REFIT_TERM_HOST));
    g_assert_true(refit_profile_is_on(nameless, REFIT_TERM_OPERATION));
}

static void test_off(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProfile) all = parse_case("profile: nemo-rl\n", &error);
    g_assert_no_error(error);
    g_autoptr(RefitProfile) some =
        parse_case("profile: {name: nemo-rl, off: [host, pack]}\n", &error);
    g_assert_no_error(error);
    g_assert_cmpstr(some->name, ==, "nemo-rl");
    for (guint i = 0; i < REFIT_N_TERMS; i++) {
        gboolean off = i == REFIT_TERM_HOST || i == REFIT_TERM_PACK;
        g_assert_cmpint(some->off[i], ==, off);
        g_assert_false(all->off[i]);
        assert_number(&some->terms[i], all->terms[i].value, all->terms[i].source);
    }
}

static void test_overrides(void) {
    static const struct {
        const char *key, *text;
        double value;
    } sets[] = {
        {"operation", "21us", 21e-6}, {"run", "22ns", 22e-9},    {"pack", "23GBps", 23e9},
        {"unpack", "24GBps", 24e9},   {"bucket", "25ms", 25e-3}, {"host", "26us", 26e-6},
        {"install", "27GBps", 27e9},  {"pause", "28ms", 28e-3},
    };
    for (guint i = 0; i < G_N_ELEMENTS(sets); i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *text =
            g_strdup_printf("profile: {name: refit, %s: %s}\n", sets[i].key, sets[i].text);
        g_autoptr(RefitProfile) before = parse_case("profile: refit\n", &error);
        g_autoptr(RefitProfile) after = parse_case(text, &error);
        g_assert_no_error(error);
        for (guint j = 0; j < REFIT_N_TERMS; j++) {
            const RefitSourced *was = &before->terms[j], *is = &after->terms[j];
            if (i == j)
                assert_number(is, sets[j].value, "stated in the case");
            else
                assert_number(is, was->value, was->source);
        }
    }
}

static void test_size_overrides(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProfile) profile =
        parse_case("profile: {bucket_bytes: 64MiB, bucket_memory_percent: {value: 1, source: me}, "
                   "stage_lanes: 4, slices: 6, batches: 9}\n",
                   &error);
    g_assert_no_error(error);
    assert_number(&profile->bucket_bytes, 67108864.0, "stated in the case");
    assert_number(&profile->bucket_memory_percent, 1, "me");
    g_assert_cmpuint(profile->stage_lanes, ==, 4);
    g_assert_cmpuint(profile->slices, ==, 6);
    g_assert_cmpuint(profile->batches, ==, 9);
}

static void test_case_errors(void) {
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"profile: nemo-rI\n",
         "t.yaml:1:10: profile: no profile \"nemo-rI\" in "
         "\"" REFIT_SOURCE_DATA_DIR "/layouts/profiles\"; did you mean \"nemo-rl\"?"},
        {"profile: {name: nemorl}\n",
         "t.yaml:1:17: profile.name: no profile \"nemorl\" in "
         "\"" REFIT_SOURCE_DATA_DIR "/layouts/profiles\"; did you mean \"nemo-rl\"?"},
        {"profile: [refit]\n", "t.yaml:1:10: profile: *"},
        {"profile: {off: pack}\n", "t.yaml:1:16: profile.off: *"},
        {"profile: {of: [pack]}\n", "t.yaml:1:11: *"},
        {"profile: {batches: 0}\n", "t.yaml:1:20: profile.batches: *"},
        {"profile: {bucket_bytes: 0B}\n",
         "t.yaml:1:25: profile.bucket_bytes: a bucket needs at least one byte"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitProfile) profile = parse_case(bad[i].text, &error);
        g_test_message("%s", bad[i].text);
        g_assert_null(profile);
        input_assert_error(error, REFIT_ERROR_INVALID, bad[i].message);
    }
}

static void test_unknown_term(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProfile) profile = parse_case("profile: {off: [host, packk]}\n", &error);
    g_assert_null(profile);
    input_assert_error(error, REFIT_ERROR_INVALID, "t.yaml:1:23: profile.off.1: *");
    g_assert_nonnull(strstr(error->message, "\"pack\""));
}

static void test_shipped_numbers(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitProfile) refit = parse_case("profile: refit\n", &error);
    g_autoptr(RefitProfile) nemo = parse_case("profile: nemo-rl\n", &error);
    g_assert_no_error(error);
    g_assert_false(refit_profile_is_on(refit, REFIT_TERM_INSTALL));
    g_assert_false(refit_profile_is_on(refit, REFIT_TERM_PAUSE));
    g_assert_cmpuint(refit->batches, ==, 16);
    g_assert_cmpuint(refit->slices, ==, 8);
    g_assert_cmpuint(refit->stage_lanes, ==, 2);
    g_assert_cmpfloat(nemo->terms[REFIT_TERM_HOST].value, ==, 1e-4);
    /* Concatenating DeepSeek-V3, 1342 GB, takes about a second. */
    g_assert_cmpfloat_with_epsilon(1342e9 / nemo->terms[REFIT_TERM_PACK].value, 1.0, 0.05);
    g_assert_cmpfloat(nemo->terms[REFIT_TERM_OPERATION].value, >=, 10e-6);
    g_assert_cmpfloat(nemo->terms[REFIT_TERM_OPERATION].value, <=, 12e-6);
    g_assert_cmpfloat(nemo->bucket_bytes.value, ==, 5368709120.0);
    g_assert_cmpfloat(nemo->bucket_memory_percent.value, ==, 2);
    g_assert_cmpuint(nemo->slices, ==, 8);
    g_assert_cmpuint(nemo->stage_lanes, ==, 2);
}

static void test_shipped_sources(void) {
    g_auto(GStrv) names = refit_store_list(input_store(), "profiles");
    g_assert_cmpuint(g_strv_length(names), >=, 2);
    for (guint i = 0; names[i]; i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *text = g_strdup_printf("profile: %s\n", names[i]);
        g_autoptr(RefitProfile) profile = parse_case(text, &error);
        g_assert_no_error(error);
        g_assert_cmpstr(profile->name, ==, names[i]);
        for (guint j = 0; j < REFIT_N_TERMS; j++)
            g_assert_cmpuint(strlen(profile->terms[j].source), >, 10);
        g_assert_cmpuint(strlen(profile->bucket_bytes.source), >, 10);
        g_assert_cmpuint(strlen(profile->bucket_memory_percent.source), >, 10);
        g_assert_cmpuint(strlen(profile->slice_bytes.source), >, 10);
        g_assert_cmpuint(strlen(profile->stripe_bytes.source), >, 10);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/profile/file-gives-numbers-and-sources", test_file);
    g_test_add_func("/profile/term-of-zero-or-off-costs-nothing", test_free_term);
    g_test_add_func("/profile/file-errors-are-located", test_file_errors);
    g_test_add_func("/profile/default-is-refit", test_default);
    g_test_add_func("/profile/off-switches-the-named-terms-only", test_off);
    g_test_add_func("/profile/case-overrides-each-term-alone", test_overrides);
    g_test_add_func("/profile/case-overrides-sizes", test_size_overrides);
    g_test_add_func("/profile/case-errors-are-located", test_case_errors);
    g_test_add_func("/profile/unknown-term-gets-the-nearest-name", test_unknown_term);
    g_test_add_func("/profile/shipped-files-have-agreed-numbers", test_shipped_numbers);
    g_test_add_func("/profile/shipped-numbers-have-sources", test_shipped_sources);
    return g_test_run();
}
