/*
 * Cases and the store: the shipped cases hold what they say; defaults; ranks of sides and pools;
 * pools that collide and sides that do not fit, with their way out; budget; overrides; names
 * against paths, paths relative to the file or to the working directory, names that try to leave
 * their directory; every error with its place.
 */

#include "input-text.h"

static const char small[] = "schema: refit.case/1\n"
                            "model: tiny\n"
                            "train: {framework: megatron, gpus: 4, tp: 2, pp: 1, ep: 2}\n"
                            "generation: {framework: vllm, gpus: 4, tp: 2, engines: 2}\n"
                            "topology: \"node:4 gpu:4 nvlink:450GBps nic:50GBps\"\n";

static RefitCase *parse(const char *text, GError **error) {
    g_autoptr(RefitDoc) doc = input_doc(text);
    return refit_case_parse(input_store(), doc, error);
}

static RefitCase *parse_with(const char *old, const char *new_text, GError **error) {
    g_autofree char *text = input_replace(small, old, new_text);
    return parse(text, error);
}

static RefitCase *load(const char *name, const char *const *overrides) {
    g_autoptr(GError) error = NULL;
    RefitCase *refit_case = refit_case_load(input_store(), name, overrides, &error);
    g_assert_no_error(error);
    return refit_case;
}

/* The layout's ranks are `first`, `first` + 1, ... */
static void assert_ranks(const RefitLayout *layout, guint first, guint n) {
    g_assert_cmpuint(refit_layout_n_ranks(layout), ==, n);
    for (guint i = 0; i < n; i++)
        g_assert_cmpuint(refit_layout_ranks(layout)[i], ==, first + i);
}

static void test_shipped(void) {
    static const struct {
        const char *name, *model, *topology, *profile;
        guint n_source, n_destination, n_gpus, gpus_per_domain;
    } shipped[] = {
        {"deepseek-v3-gb200", "deepseek-v3", "dgx-gb200-nvl72", "nemo-rl", 256, 256, 512, 64},
        {"deepseek-v3-h100", "deepseek-v3", "dgx-h100", "nemo-rl", 256, 256, 512, 8},
        {"qwen3-235b-h100", "qwen3-235b-a22b", "dgx-h100", "nemo-rl", 128, 128, 256, 8},
        {"qwen3-30b-h100", "qwen3-30b-a3b", "dgx-h100", "refit", 16, 16, 32, 8},
        {"tiny", "tiny", "one-line", "refit", 4, 4, 8, 4},
    };
    for (guint i = 0; i < G_N_ELEMENTS(shipped); i++) {
        g_autoptr(RefitCase) refit_case = load(shipped[i].name, NULL);
        g_assert_cmpstr(refit_case->name, ==, shipped[i].name);
        g_assert_cmpstr(refit_model_name(refit_case->model), ==, shipped[i].model);
        g_assert_cmpstr(refit_case->topology->name, ==, shipped[i].topology);
        g_assert_cmpstr(refit_case->profile->name, ==, shipped[i].profile);
        g_assert_cmpuint(refit_case->n_destinations, ==, 1);
        assert_ranks(refit_case->source, 0, shipped[i].n_source);
        assert_ranks(refit_case->destinations[0], shipped[i].n_source, shipped[i].n_destination);
        g_assert_cmpuint(refit_topology_n_gpus(refit_case->topology), ==, shipped[i].n_gpus);
        g_assert_cmpuint(refit_topology_gpus_per_domain(refit_case->topology), ==,
                         shipped[i].gpus_per_domain);
        g_assert_cmpfloat(refit_case->budget_time_s, ==, 0);
        g_assert_cmpuint(refit_case->budget_staging_bytes, ==, 0);
    }
}

static void test_every_shipped_case_loads(void) {
    g_auto(GStrv) names = refit_store_list(input_store(), "cases");
    g_assert_cmpuint(g_strv_length(names), >=, 5);
    for (guint i = 0; names[i]; i++) {
        g_autoptr(RefitCase) refit_case = load(names[i], NULL);
        g_assert_cmpstr(refit_case->name, ==, names[i]);
        g_autofree char *file =
            g_strdup_printf("%s/cases/%s.yaml", input_store()->layouts_dir, names[i]);
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitDoc) doc = refit_doc_load(&refit_disk, file, &error);
        g_assert_no_error(error);
        g_assert_nonnull(refit_node_get(refit_doc_root(doc), "note"));
    }
}

static void test_defaults(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = parse(small, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(refit_case->name, ==, "t");
    g_assert_cmpstr(refit_case->profile->name, ==, "refit");
    g_assert_cmpint(refit_model_tensor(refit_case->model, 0)->dtype, ==, REFIT_DTYPE_BF16);
    g_assert_cmpuint(refit_model_bytes(refit_case->model), ==,
                     2 * refit_model_parameters(refit_case->model));
    for (guint i = 0; i < refit_model_n_tensors(refit_case->model); i++)
        g_assert_false(refit_model_tensor(refit_case->model, i)->mtp);
    assert_ranks(refit_case->source, 0, 4);
    assert_ranks(refit_case->destinations[0], 4, 4);
    g_assert_cmpstr(refit_layout_side(refit_case->source), ==, "train");
    g_assert_cmpstr(refit_layout_side(refit_case->destinations[0]), ==, "generation");
}

static void test_dtype(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = parse_with("model: tiny", "model: tiny\ndtype: f32", &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_model_bytes(refit_case->model), ==,
                     4 * refit_model_parameters(refit_case->model));
}

static void test_mtp(void) {
    static const char *const overrides[] = {"mtp=true", NULL};
    g_autoptr(RefitCase) without = load("deepseek-v3-h100", NULL);
    g_autoptr(RefitCase) with = load("deepseek-v3-h100", overrides);
    g_assert_cmpuint(refit_model_n_tensors(with->model), >, refit_model_n_tensors(without->model));
}

static void test_budget(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) both =
        parse_with("model: tiny", "model: tiny\nbudget: {time: 3s, staging: 2GiB}", &error);
    g_assert_no_error(error);
    g_assert_cmpfloat(both->budget_time_s, ==, 3);
    g_assert_cmpuint(both->budget_staging_bytes, ==, G_GUINT64_CONSTANT(2147483648));
    g_autoptr(RefitCase) time =
        parse_with("model: tiny", "model: tiny\nbudget: {time: 1ms}", &error);
    g_assert_no_error(error);
    g_assert_cmpfloat(time->budget_time_s, ==, 1e-3);
    g_assert_cmpuint(time->budget_staging_bytes, ==, 0);
}

static const char pools[] = "generation: [{framework: vllm, gpus: 4, tp: 2, engines: 2},\n"
                            "             {framework: vllm, gpus: 2, tp: 2, engines: 1}]\n";
static const char one_pool[] = "generation: {framework: vllm, gpus: 4, tp: 2, engines: 2}\n";

static void test_pools(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = parse_with(one_pool, pools, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_case->n_destinations, ==, 2);
    assert_ranks(refit_case->destinations[0], 4, 4);
    assert_ranks(refit_case->destinations[1], 8, 2);
    g_assert_cmpstr(refit_layout_side(refit_case->destinations[0]), ==, "generation.0");
    g_assert_cmpstr(refit_layout_side(refit_case->destinations[1]), ==, "generation.1");
}

static void test_colocated(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = parse_with("vllm, ", "vllm, first_gpu: 2, ", &error);
    g_assert_no_error(error);
    assert_ranks(refit_case->source, 0, 4);
    assert_ranks(refit_case->destinations[0], 2, 4);
}

static void test_next_rank_follows_the_highest(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        parse_with("megatron, gpus: 4", "megatron, ranks: [9, 0-2]", &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_layout_ranks(refit_case->source)[0], ==, 9);
    assert_ranks(refit_case->destinations[0], 10, 4);
}

static void test_errors(void) {
    static const InputBad bad[] = {
        {"refit.case/1", "refit.case/2", "t.yaml:1:9: schema: *"},
        {"model: tiny\n", "", "t.yaml:1:1: *"},
        {"model: tiny", "model: tinny",
         "t.yaml:2:8: model: no model \"tinny\" in \"" REFIT_SOURCE_DATA_DIR
         "/layouts/models\"; did you mean \"tiny\"?"},
        {"model: tiny", "model: ./tiny.yaml",
         "t.yaml:2:8: model: no model file \"./tiny.yaml\"; write the name of a shipped model or "
         "the path of a file"},
        {"model: tiny", "model: tiny\ndtype: bf61", "t.yaml:3:8: dtype: *"},
        {"model: tiny", "model: tiny\nmtp: 3", "t.yaml:3:6: mtp: *"},
        {"model: tiny", "modell: tiny", "t.yaml:1:1: *"},
        {"model: tiny", "model: tiny\nnotes: x", "t.yaml:3:1: *"},
        {"model: tiny", "model: tiny\nprofile: {off: [nothing]}", "t.yaml:3:17: profile.off.0: *"},
        {"model: tiny", "model: tiny\nbudget: 3s", "t.yaml:3:9: budget: *"},
        {"model: tiny", "model: tiny\nbudget: {time: 0s}",
         "t.yaml:3:16: budget.time: nothing fits a budget of 0; leave the key out for no limit"},
        {"model: tiny", "model: tiny\nbudget: {time: 1s, staging: 0B}",
         "t.yaml:3:29: budget.staging: nothing fits a budget of 0; leave the key out for no limit"},
        {"model: tiny", "model: tiny\nbudget: {tim: 1s}", "t.yaml:3:10: *"},
        {"train: {framework: megatron, gpus: 4, tp: 2, pp: 1, ep: 2}\n", "", "t.yaml:1:1: *"},
        {"generation: {framework: vllm, gpus: 4, tp: 2, engines: 2}\n", "", "t.yaml:1:1: *"},
        {"{framework: vllm, gpus: 4, tp: 2, engines: 2}", "[]",
         "t.yaml:4:13: generation: the list has no pool; write one mapping per pool to fill"},
        {"{framework: vllm, gpus: 4, tp: 2, engines: 2}", "vllm", "t.yaml:4:13: generation: *"},
        {"vllm, gpus: 4", "vlm, gpus: 4", "t.yaml:4:25: generation.framework: *"},
        {"vllm, ", "vllm, tpp: 2, ", "t.yaml:4:*"},
        {"vllm, gpus: 4, tp: 2, engines: 2", "vllm, gpus: 13, tp: 1, engines: 13",
         "t.yaml:5:11: topology: the case needs 17 GPUs, the topology has 16: use nodes: 5"},
        {"vllm, gpus: 4, tp: 2, engines: 2",
         "vllm, gpus: 4, first_gpu: 4294967295, tp: 2, engines: 2",
         "t.yaml:5:11: topology: the case needs 4294967299 GPUs, the topology has 16: use nodes: "
         "1073741825"},
        {"gpus: 4, tp: 2, engines: 2", "ranks: [12-16], tp: 1, engines: 5",
         "t.yaml:4:39: generation.ranks.0: *"},
        {"topology: \"node:4 gpu:4 nvlink:450GBps nic:50GBps\"",
         "topology: {name: dgx-h100, nodes: 1, gpus_per_node: 6, rails: 2}",
         "t.yaml:5:35: topology.nodes: the case needs 8 GPUs, the topology has 6: use nodes: 2"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_test_message("%s", bad[i].new_text);
        g_autoptr(RefitCase) refit_case = parse_with(bad[i].old, bad[i].new_text, &error);
        g_assert_null(refit_case);
        input_assert_error(error, REFIT_ERROR_INVALID, bad[i].message);
    }
}

static void test_pools_collide(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = input_replace(pools, "gpus: 2, ", "gpus: 2, first_gpu: 7, ");
    g_autoptr(RefitCase) refit_case = parse_with(one_pool, text, &error);
    g_assert_null(refit_case);
    input_assert_error(error, REFIT_ERROR_INVALID,
                       "t.yaml:5:14: generation.1: GPU 7 is already in pool generation.0; pools "
                       "cannot share GPUs, state first_gpu: or ranks: to place them");
}

static void test_overrides(void) {
    static const char *const overrides[] = {
        "topology.nodes=5",     "topology.nic_bandwidth=100GBps",
        "generation.engines=6", "generation.gpus=24",
        "budget.time=2s",       NULL};
    g_autoptr(RefitCase) refit_case = load("qwen3-30b-h100", overrides);
    g_assert_cmpuint(refit_topology_n_gpus(refit_case->topology), ==, 40);
    g_assert_cmpfloat(refit_case->topology->nic_bandwidth.value, ==, 100e9);
    g_assert_cmpstr(refit_case->topology->nic_bandwidth.source, ==, "stated in the case");
    g_assert_cmpfloat(refit_case->budget_time_s, ==, 2);
    assert_ranks(refit_case->destinations[0], 16, 24);
}

static void test_override_too_small(void) {
    static const char *const overrides[] = {"topology.nodes=32", NULL};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case =
        refit_case_load(input_store(), "deepseek-v3-h100", overrides, &error);
    g_assert_null(refit_case);
    input_assert_error(error, REFIT_ERROR_INVALID,
                       "--set topology.nodes: the case needs 512 GPUs, the topology has 256: use "
                       "nodes: 64");
}

static void test_bad_override(void) {
    static const char *const overrides[] = {"topology.nodes", NULL};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), "tiny", overrides, &error);
    g_assert_null(refit_case);
    g_assert_true(error->domain == REFIT_ERROR);
}

#define RELATIVE REFIT_TEST_SOURCE_DIR "/data/store/cases/relative.yaml"

static void test_path_is_relative_to_the_file(void) {
    g_autoptr(RefitCase) refit_case = load(RELATIVE, NULL);
    g_assert_cmpstr(refit_case->name, ==, "relative");
    g_assert_cmpstr(refit_case->topology->name, ==, "near");
    g_assert_cmpuint(refit_topology_n_gpus(refit_case->topology), ==, 6);
}

static void test_overriding_path_is_relative_to_the_working_directory(void) {
    static const char *const overrides[] = {"topology=../topologies/near.yaml", NULL};
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitCase) refit_case = refit_case_load(input_store(), RELATIVE, overrides, &error);
    g_assert_null(refit_case);
    input_assert_error(error, REFIT_ERROR_INVALID,
                       "--set topology: no topology file \"../topologies/near.yaml\"; write the "
                       "name of a shipped topology or the path of a file");
}

static void test_absolute_path(void) {
    static const char *const overrides[] = {
        "topology=" REFIT_TEST_SOURCE_DIR "/data/store/topologies/near.yaml", NULL};
    g_autoptr(RefitCase) refit_case = load(RELATIVE, overrides);
    g_assert_cmpstr(refit_case->topology->name, ==, "near");
}

static void test_names_stay_in_their_directory(void) {
    static const char *const names[] = {"",     ".",     "..",     ".hidden",
                                        "TINY", "tiny ", "ti\nny", "tiny_"};
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitDoc) doc = refit_store_load(input_store(), "cases", names[i], NULL, &error);
        g_assert_null(doc);
        input_assert_error(error, REFIT_ERROR_INVALID, "no case \"*");
        g_assert_nonnull(strstr(error->message, REFIT_SOURCE_DATA_DIR "/layouts/cases"));
    }
}

static void test_unknown_name_lists_all(void) {
    static const RefitStore other = {
        .layouts_dir = REFIT_TEST_SOURCE_DIR "/data/store",
        .topologies_dir = NULL,
        .files = &refit_disk,
    };
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitDoc) doc = refit_store_load(&other, "cases", "zzzzzzzzzzzz", NULL, &error);
    g_assert_null(doc);
    input_assert_error(error, REFIT_ERROR_INVALID,
                       "no case \"zzzzzzzzzzzz\" in \"" REFIT_TEST_SOURCE_DIR
                       "/data/store/cases\"; known: relative");
    g_clear_error(&error);
    doc = refit_store_load(&other, "topologies", "near", NULL, &error);
    g_assert_null(doc);
    input_assert_error(error, REFIT_ERROR_INVALID,
                       "no topology \"near\"; write a path, which has a \"/\" or ends in .yaml");
}

static void test_list(void) {
    g_auto(GStrv) cases = refit_store_list(input_store(), "cases");
    static const char *const expected[] = {"deepseek-v3-gb200", "deepseek-v3-h100",
                                           "qwen3-235b-h100", "qwen3-30b-h100", "tiny"};
    for (guint i = 0; i < G_N_ELEMENTS(expected); i++)
        g_assert_true(g_strv_contains((const char *const *)cases, expected[i]));
    for (guint i = 1; cases[i]; i++)
        g_assert_cmpint(strcmp(cases[i - 1], cases[i]), <, 0);
    static const RefitStore empty = {.layouts_dir = NULL};
    g_auto(GStrv) none = refit_store_list(&empty, "models");
    g_assert_null(none[0]);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/case/shipped-cases-hold-what-they-say", test_shipped);
    g_test_add_func("/case/every-shipped-case-loads-and-has-a-note", test_every_shipped_case_loads);
    g_test_add_func("/case/defaults", test_defaults);
    g_test_add_func("/case/dtype-sets-the-bytes", test_dtype);
    g_test_add_func("/case/mtp-adds-tensors", test_mtp);
    g_test_add_func("/case/budget", test_budget);
    g_test_add_func("/case/pools-take-the-next-gpus", test_pools);
    g_test_add_func("/case/destination-may-share-gpus-with-the-source", test_colocated);
    g_test_add_func("/case/next-side-follows-the-highest-gpu", test_next_rank_follows_the_highest);
    g_test_add_func("/case/errors-are-located", test_errors);
    g_test_add_func("/case/pools-cannot-share-gpus", test_pools_collide);
    g_test_add_func("/case/overrides-are-applied-first", test_overrides);
    g_test_add_func("/case/too-small-override-names-enough-nodes", test_override_too_small);
    g_test_add_func("/case/override-without-value-is-refused", test_bad_override);
    g_test_add_func("/store/path-is-relative-to-the-file", test_path_is_relative_to_the_file);
    g_test_add_func("/store/overriding-path-is-relative-to-the-working-directory",
                    test_overriding_path_is_relative_to_the_working_directory);
    g_test_add_func("/store/absolute-path", test_absolute_path);
    g_test_add_func("/store/names-stay-in-their-directory", test_names_stay_in_their_directory);
    g_test_add_func("/store/unknown-name-lists-all", test_unknown_name_lists_all);
    g_test_add_func("/store/list-is-sorted", test_list);
    return g_test_run();
}
