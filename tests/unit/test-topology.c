/*
 * Topologies: the three spellings (file, mapping in a case, one line) give the right numbers and
 * sources; derived places of a GPU, also in an incomplete last domain; every override; every error
 * with its place and way out; the shipped files' nominal numbers, and that each number of each of
 * them has a source.
 */

#include "input-text.h"

static const char small[] =
    "schema: refit.topology/1\n"
    "name: small\n"
    "nodes: 6\n"
    "gpus_per_node: 4\n"
    "nodes_per_domain: 4\n"
    "rails: 2\n"
    "nvlink: {bandwidth: {value: 300GBps, source: sheet A}, latency: {value: 1us, source: B}}\n"
    "nic: {bandwidth: {value: 200Gbps, source: sheet C}, latency: {value: 3us, source: D}}\n"
    "fabric: {nodes_per_leaf: 3, oversubscription: {value: 2, source: E},\n"
    "         spine_latency: {value: 9us, source: F}}\n"
    "gpu: {memory: {value: 64GB, source: G}, memory_bandwidth: {value: 2TBps, source: H}}\n";

static const char case_text[] = "topology: {name: dgx-h100, nodes: 4}\n";

static RefitTopology *parse_file(const char *text, GError **error) {
    g_autoptr(RefitDoc) doc = input_doc(text);
    return refit_topology_parse(refit_doc_root(doc), error);
}

/* `text` is a document whose `topology` is read; `set`: an override applied first, or NULL. */
static RefitTopology *parse_case(const char *text, const char *set, GError **error) {
    g_autoptr(RefitDoc) doc = input_doc(text);
    g_autoptr(GError) local = NULL;
    g_assert_true(!set || refit_doc_set(doc, set, &local));
    RefitNode *node = refit_node_get(refit_doc_root(doc), "topology");
    return refit_topology_from_case(node, input_store(), error);
}

static void assert_number(const RefitSourced *number, double value, const char *source) {
    g_assert_cmpfloat_with_epsilon(number->value, value, value * 1e-12 + G_MINDOUBLE);
    g_assert_cmpstr(number->source, ==, source);
}

static void test_file(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitTopology) topology = parse_file(small, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(topology->name, ==, "small");
    g_assert_cmpuint(topology->n_nodes, ==, 6);
    g_assert_cmpuint(topology->gpus_per_node, ==, 4);
    g_assert_cmpuint(topology->nodes_per_domain, ==, 4);
    g_assert_cmpuint(topology->rails, ==, 2);
    g_assert_cmpuint(topology->nodes_per_leaf, ==, 3);
    assert_number(&topology->nvlink_bandwidth, 300e9, "sheet A");
    assert_number(&topology->nvlink_latency, 1e-6, "B");
    assert_number(&topology->nic_bandwidth, 25e9, "sheet C");
    assert_number(&topology->nic_latency, 3e-6, "D");
    assert_number(&topology->oversubscription, 2, "E");
    assert_number(&topology->spine_latency, 9e-6, "F");
    assert_number(&topology->memory, 64e9, "G");
    assert_number(&topology->memory_bandwidth, 2e12, "H");
}

static void test_defaults(void) {
    g_autofree char *no_rails = input_replace(small, "rails: 2\n", "");
    g_autofree char *no_domain = input_replace(no_rails, "nodes_per_domain: 4\n", "");
    g_autofree char *no_leaf = input_replace(no_domain, "nodes_per_leaf: 3, ", "");
    g_autofree char *text =
        input_replace(no_leaf, "{value: 2, source: E}", "{value: 1, source: E}");
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitTopology) topology = parse_file(text, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(topology->nodes_per_domain, ==, 1);
    g_assert_cmpuint(topology->rails, ==, 4);
    g_assert_cmpuint(topology->nodes_per_leaf, ==, 0);
}

static void test_places(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitTopology) topology = parse_file(small, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_topology_n_gpus(topology), ==, 24);
    g_assert_cmpuint(refit_topology_n_domains(topology), ==, 2);
    g_assert_cmpuint(refit_topology_gpus_per_domain(topology), ==, 16);
    /* gpu, node, domain, rail */
    static const guint places[][4] = {
        {0, 0, 0, 0}, {3, 0, 0, 1}, {14, 3, 0, 0}, {15, 3, 0, 1}, {16, 4, 1, 0}, {23, 5, 1, 1},
    };
    for (guint i = 0; i < G_N_ELEMENTS(places); i++) {
        g_assert_cmpuint(refit_topology_node_of(topology, places[i][0]), ==, places[i][1]);
        g_assert_cmpuint(refit_topology_domain_of(topology, places[i][0]), ==, places[i][2]);
        g_assert_cmpuint(refit_topology_rail_of(topology, places[i][0]), ==, places[i][3]);
    }
}

static void test_domain_larger_than_cluster(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text =
        input_replace(small, "nodes_per_domain: 4", "nodes_per_domain: 4294967295");
    g_autoptr(RefitTopology) topology = parse_file(text, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_topology_n_domains(topology), ==, 1);
    g_assert_cmpuint(refit_topology_gpus_per_domain(topology), ==, 24);
    g_assert_cmpuint(refit_topology_domain_of(topology, 23), ==, 0);
}

static void test_most_gpus(void) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = input_replace(small, "nodes: 6", "nodes: 262144");
    g_autoptr(RefitTopology) topology = parse_file(text, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_topology_n_gpus(topology), ==, 1u << 20);
    g_assert_cmpuint(refit_topology_node_of(topology, (1u << 20) - 1), ==, 262143);
}

static void test_file_errors(void) {
    static const InputBad bad[] = {
        {"refit.topology/1", "refit.topology/9", "t.yaml:1:9: schema: *"},
        {"name: small\n", "", "t.yaml:1:1: *"},
        {"nodes: 6", "nodes: 0", "t.yaml:3:8: nodes: *"},
        {"nodes: 6", "nodes: 262145",
         "t.yaml:3:8: nodes: 262145 nodes of 4 GPUs are 1048580 GPUs, the limit is 1048576; use "
         "fewer nodes or GPUs per node"},
        {"nodes: 6\ngpus_per_node: 4", "nodes: 4294967295\ngpus_per_node: 4294967295",
         "t.yaml:3:8: nodes: 4294967295 nodes of 4294967295 GPUs are 18446744065119617025 GPUs, "
         "the limit is 1048576; use fewer nodes or GPUs per node"},
        {"nodes: 6", "nodes: 4294967296", "t.yaml:3:8: nodes: *"},
        {"nodes: 6\n", "", "t.yaml:1:1: *"},
        {"gpus_per_node: 4", "gpus_per_node: 0", "t.yaml:4:16: gpus_per_node: *"},
        {"nodes_per_domain: 4", "nodes_per_domain: 0", "t.yaml:5:19: nodes_per_domain: *"},
        {"rails: 2", "rails: 0", "t.yaml:6:8: rails: *"},
        {"rails: 2", "rails: 5",
         "t.yaml:6:8: rails: 5 rails are more than the 4 GPUs of a node, which have one NIC each; "
         "use at most 4 rails"},
        {"rails: 2", "railz: 2", "t.yaml:6:1: *"},
        {"300GBps", "0GBps", "t.yaml:7:21: nvlink.bandwidth: 0 is too small; it must be above 0"},
        {"{value: 200Gbps, source: sheet C}", "200Gbps",
         "t.yaml:8:18: nic.bandwidth: a number needs its source; write {value: ..., source: ...}"},
        {", source: sheet C", "",
         "t.yaml:8:18: nic.bandwidth: the number has no source; name the data sheet or the "
         "measurement, or write 'assumed: why'"},
        {"source: sheet C", "source: \"  \"",
         "t.yaml:8:43: nic.bandwidth.source: the number has no source; name the data sheet or the "
         "measurement, or write 'assumed: why'"},
        {"source: sheet C", "sauce: sheet C", "t.yaml:8:18: nic.bandwidth: *"},
        {"200Gbps", "200", "t.yaml:8:26: nic.bandwidth.value: *"},
        {"latency: {value: 3us, source: D}", "latency: {source: D}", "t.yaml:8:*"},
        {"nodes_per_leaf: 3, ", "",
         "t.yaml:9:28: fabric.oversubscription: an oversubscribed fabric needs leaves, and one "
         "switch serves all nodes; state the nodes per leaf, or 1 here"},
        {"{nodes_per_leaf: 3, oversubscription: {value: 2, source: E},\n"
         "         spine_latency: {value: 9us, source: F}}",
         "flat", "t.yaml:9:9: fabric: *"},
        {"memory: {value: 64GB", "memory: {value: 0B",
         "t.yaml:11:15: gpu.memory: 0 is too small; it must be above 0"},
        {"source: H}", "source: H, note: x}", "t.yaml:11:*"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *text = input_replace(small, bad[i].old, bad[i].new_text);
        g_autoptr(RefitTopology) topology = parse_file(text, &error);
        g_test_message("%s -> %s", bad[i].old, bad[i].new_text);
        g_assert_null(topology);
        if (error->code == REFIT_ERROR_PARSE) /* a quantity that is none */
            input_assert_error(error, REFIT_ERROR_PARSE, bad[i].message);
        else
            input_assert_error(error, REFIT_ERROR_INVALID, bad[i].message);
    }
}

static void test_count_overrides(void) {
    static const struct {
        const char *set;
        gsize offset;
        guint value;
    } sets[] = {
        {"topology.nodes=100", G_STRUCT_OFFSET(RefitTopology, n_nodes), 100},
        {"topology.gpus_per_node=16", G_STRUCT_OFFSET(RefitTopology, gpus_per_node), 16},
        {"topology.nodes_per_domain=9", G_STRUCT_OFFSET(RefitTopology, nodes_per_domain), 9},
        {"topology.rails=2", G_STRUCT_OFFSET(RefitTopology, rails), 2},
        {"topology.nodes_per_leaf=0", G_STRUCT_OFFSET(RefitTopology, nodes_per_leaf), 0},
    };
    for (guint i = 0; i < G_N_ELEMENTS(sets); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitTopology) before = parse_case(case_text, NULL, &error);
        g_autoptr(RefitTopology) after = parse_case(case_text, sets[i].set, &error);
        g_assert_no_error(error);
        g_assert_cmpuint(before->n_nodes, ==, 4);
        for (guint j = 0; j < G_N_ELEMENTS(sets); j++) {
            guint was = G_STRUCT_MEMBER(guint, before, sets[j].offset);
            guint is = G_STRUCT_MEMBER(guint, after, sets[j].offset);
            g_assert_cmpuint(was, !=, sets[j].value);
            g_assert_cmpuint(is, ==, i == j ? sets[j].value : was);
        }
    }
}

static void test_number_overrides(void) {
    static const struct {
        const char *set;
        gsize offset;
        double value;
    } sets[] = {
        {"topology.nvlink_bandwidth=900GBps", G_STRUCT_OFFSET(RefitTopology, nvlink_bandwidth),
         900e9},
        {"topology.nvlink_latency=0", G_STRUCT_OFFSET(RefitTopology, nvlink_latency), 0},
        {"topology.nic_bandwidth=800Gbps", G_STRUCT_OFFSET(RefitTopology, nic_bandwidth), 100e9},
        {"topology.nic_latency=8us", G_STRUCT_OFFSET(RefitTopology, nic_latency), 8e-6},
        {"topology.spine_latency=12us", G_STRUCT_OFFSET(RefitTopology, spine_latency), 12e-6},
        {"topology.oversubscription=2", G_STRUCT_OFFSET(RefitTopology, oversubscription), 2},
        {"topology.memory=141GB", G_STRUCT_OFFSET(RefitTopology, memory), 141e9},
        {"topology.memory_bandwidth=4.8TBps", G_STRUCT_OFFSET(RefitTopology, memory_bandwidth),
         4.8e12},
    };
    for (guint i = 0; i < G_N_ELEMENTS(sets); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitTopology) before = parse_case(case_text, NULL, &error);
        g_autoptr(RefitTopology) after = parse_case(case_text, sets[i].set, &error);
        g_assert_no_error(error);
        for (guint j = 0; j < G_N_ELEMENTS(sets); j++) {
            const RefitSourced *was = G_STRUCT_MEMBER_P(before, sets[j].offset);
            const RefitSourced *is = G_STRUCT_MEMBER_P(after, sets[j].offset);
            if (i == j)
                assert_number(is, sets[j].value, "stated in the case");
            else
                assert_number(is, was->value, was->source);
        }
    }
}

static void test_sourced_override(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitTopology) topology =
        parse_case("topology: {name: dgx-h100, nic_bandwidth: {value: 48GBps, source: measured}}\n",
                   NULL, &error);
    g_assert_no_error(error);
    assert_number(&topology->nic_bandwidth, 48e9, "measured");
    g_assert_cmpuint(topology->n_nodes, ==, 64);
}

static void test_override_of_a_line(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitTopology) topology = parse_case(
        "topology: {name: \"node:2 gpu:4 nvlink:450GBps nic:50GBps\", nodes: 3}\n", NULL, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(refit_topology_n_gpus(topology), ==, 12);
}

static void test_case_errors(void) {
    static const InputBad bad[] = {
        {"{name: dgx-h100, nodes: 4}", "[dgx-h100]", "t.yaml:1:11: topology: *"},
        {"{name: dgx-h100, nodes: 4}", "{nodes: 4}", "t.yaml:1:11: topology: *"},
        {"nodes: 4", "nodes: 0", "t.yaml:1:35: topology.nodes: *"},
        {"nodes: 4", "nodes: 131073",
         "t.yaml:1:35: topology.nodes: 131073 nodes of 8 GPUs are 1048584 GPUs, the limit is "
         "1048576; use fewer nodes or GPUs per node"},
        {"nodes: 4", "gpus_per_node: 4",
         "t.yaml:1:11: topology: 8 rails are more than the 4 GPUs of a node, which have one NIC "
         "each; use at most 4 rails"},
        {"nodes: 4", "node: 4", "t.yaml:1:28: *"},
        {"nodes: 4", "nic_bandwidth: 0GBps",
         "t.yaml:1:43: topology.nic_bandwidth: 0 is too small; it must be above 0"},
        {"nodes: 4", "oversubscription: 2, nodes_per_leaf: 0",
         "t.yaml:1:46: topology.oversubscription: an oversubscribed fabric needs leaves, and one "
         "switch serves all nodes; state the nodes per leaf, or 1 here"},
        {"dgx-h100", "dgx-h10",
         "t.yaml:1:18: topology.name: no topology \"dgx-h10\" in "
         "\"" REFIT_SOURCE_DATA_DIR "/topologies\"; did you mean \"dgx-h100\"?"},
        {"{name: dgx-h100, nodes: 4}", "\"node:2 gpu:0 nvlink:1GBps nic:1GBps\"",
         "t.yaml:1:11: topology: \"gpu:0\" is not a whole number from 1 to 4294967295"},
        {"{name: dgx-h100, nodes: 4}", "./gone.yaml",
         "t.yaml:1:11: topology: no topology file \"./gone.yaml\"; write the name of a shipped "
         "topology or the path of a file"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_autofree char *text = input_replace(case_text, bad[i].old, bad[i].new_text);
        g_autoptr(RefitTopology) topology = parse_case(text, NULL, &error);
        g_test_message("%s", bad[i].new_text);
        g_assert_null(topology);
        input_assert_error(error, REFIT_ERROR_INVALID, bad[i].message);
    }
}

static void test_line(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitTopology) topology =
        refit_topology_parse_line("  nic:400Gbps node:2\tgpu:8 nvlink:450GB/s ", &error);
    g_assert_no_error(error);
    const char *assumed = "assumed: not stated on the line, so as on an H100 node";
    g_assert_cmpstr(topology->name, ==, "one-line");
    g_assert_cmpuint(topology->n_nodes, ==, 2);
    g_assert_cmpuint(topology->gpus_per_node, ==, 8);
    g_assert_cmpuint(topology->nodes_per_domain, ==, 1);
    g_assert_cmpuint(topology->rails, ==, 8);
    g_assert_cmpuint(topology->nodes_per_leaf, ==, 0);
    assert_number(&topology->nvlink_bandwidth, 450e9, "stated on one line");
    assert_number(&topology->nic_bandwidth, 50e9, "stated on one line");
    assert_number(&topology->nvlink_latency, 2e-6, assumed);
    assert_number(&topology->nic_latency, 5e-6, assumed);
    assert_number(&topology->spine_latency, 7e-6, assumed);
    assert_number(&topology->oversubscription, 1, assumed);
    assert_number(&topology->memory, 80e9, assumed);
    assert_number(&topology->memory_bandwidth, 3.35e12, assumed);
}

static const char full_line[] =
    "node:6 gpu:4 domain:3 rails:2 leaf:2 nvlink:300.5GBps nvlink_latency:1.25us nic:25GBps "
    "nic_latency:300us spine_latency:0us oversubscription:1.5 memory:64.000000001GB hbm:999Bps";

static void test_line_round_trip(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitTopology) topology = refit_topology_parse_line(full_line, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(topology->nodes_per_domain, ==, 3);
    g_assert_cmpuint(topology->nodes_per_leaf, ==, 2);
    assert_number(&topology->memory, 64000000001.0, "stated on one line");
    assert_number(&topology->memory_bandwidth, 999, "stated on one line");
    assert_number(&topology->oversubscription, 1.5, "stated on one line");
    g_autofree char *line = refit_topology_to_line(topology);
    g_assert_cmpstr(line, ==, full_line);
}

static void test_file_to_line(void) {
    g_autoptr(GError) error = NULL;
    g_autoptr(RefitTopology) topology = parse_file(small, &error);
    g_assert_no_error(error);
    g_autofree char *line = refit_topology_to_line(topology);
    g_assert_cmpstr(line, ==,
                    "node:6 gpu:4 domain:4 rails:2 leaf:3 nvlink:300GBps nvlink_latency:1us "
                    "nic:25GBps nic_latency:3us spine_latency:9us oversubscription:2 memory:64GB "
                    "hbm:2TBps");
}

static void test_line_errors(void) {
    static const struct {
        const char *line, *message;
    } bad[] = {
        {"", "the word \"node:\" is missing"},
        {"node:2 nvlink:1GBps nic:1GBps", "the word \"gpu:\" is missing"},
        {"node:2 gpu:2 nvlink:1GBps", "the word \"nic:\" is missing"},
        {"node:2 gpu:2 gpu:3", "the word \"gpu\" is stated twice"},
        {"node:2 gpu", "\"gpu\" is not of the form word:value, as in \"node:2 gpu:8 "
                       "nvlink:450GBps nic:50GBps\""},
        {"node:-1", "\"node:-1\" is not a whole number from 1 to 4294967295"},
        {"leaf:x", "\"leaf:x\" is not a whole number from 0 to 4294967295"},
        {"node:4294967296", "\"node:4294967296\" is not a whole number from 1 to 4294967295"},
        {"nodes:2", "unknown word \"nodes\"; did you mean \"node\"?"},
        {"zzzzzzzzzzzz:2",
         "unknown word \"zzzzzzzzzzzz\"; known: node, gpu, domain, rails, leaf, nvlink, "
         "nvlink_latency, nic, nic_latency, spine_latency, oversubscription, memory, hbm"},
        {"nic:0GBps", "\"nic:0GBps\" is too small; it must be above 0"},
        {"nic:50", "nic: *"},
        {"node:1 gpu:2 rails:3 nvlink:1GBps nic:1GBps",
         "3 rails are more than the 2 GPUs of a node, which have one NIC each; use at most 2 "
         "rails"},
        {"node:1 gpu:2 oversubscription:2 nvlink:1GBps nic:1GBps",
         "an oversubscribed fabric needs leaves, and one switch serves all nodes; state the nodes "
         "per leaf, or 1 here"},
        {"node:1048577 gpu:1 nvlink:1GBps nic:1GBps",
         "1048577 nodes of 1 GPUs are 1048577 GPUs, the limit is 1048576; use fewer nodes or GPUs "
         "per node"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(RefitTopology) topology = refit_topology_parse_line(bad[i].line, &error);
        g_assert_null(topology);
        input_assert_error(
            error, g_str_equal(bad[i].line, "nic:50") ? REFIT_ERROR_PARSE : REFIT_ERROR_INVALID,
            bad[i].message);
    }
}

static RefitTopology *shipped(const char *name) {
    g_autoptr(GError) error = NULL;
    g_autofree char *text = g_strdup_printf("topology: %s\n", name);
    RefitTopology *topology = parse_case(text, NULL, &error);
    g_assert_no_error(error);
    return topology;
}

static void test_shipped_numbers(void) {
    g_autoptr(RefitTopology) h100 = shipped("dgx-h100");
    g_assert_cmpuint(h100->gpus_per_node, ==, 8);
    g_assert_cmpuint(refit_topology_gpus_per_domain(h100), ==, 8);
    g_assert_cmpuint(h100->rails, ==, 8);
    g_assert_cmpfloat(h100->nvlink_bandwidth.value, ==, 450e9);
    g_assert_cmpfloat(h100->nic_bandwidth.value, ==, 50e9);
    g_assert_cmpfloat(h100->memory.value, ==, 80e9);
    g_assert_cmpfloat(h100->memory_bandwidth.value, ==, 3.35e12);
    g_autoptr(RefitTopology) gb200 = shipped("dgx-gb200-nvl72");
    g_assert_cmpuint(gb200->gpus_per_node, ==, 4);
    g_assert_cmpuint(refit_topology_gpus_per_domain(gb200), ==, 72);
    g_assert_cmpuint(gb200->rails, ==, 4);
    g_assert_cmpfloat(gb200->nvlink_bandwidth.value, ==, 900e9);
    g_assert_cmpfloat(gb200->nic_bandwidth.value, ==, 50e9);
    g_assert_cmpfloat(gb200->memory.value, ==, 186e9);
    g_assert_cmpfloat(gb200->memory_bandwidth.value, ==, 8e12);
}

static void test_shipped_sources(void) {
    g_auto(GStrv) names = refit_store_list(input_store(), "topologies");
    g_assert_cmpuint(g_strv_length(names), >=, 2);
    for (guint i = 0; names[i]; i++) {
        g_autoptr(RefitTopology) topology = shipped(names[i]);
        g_assert_cmpstr(topology->name, ==, names[i]);
        const RefitSourced *numbers[] = {
            &topology->nvlink_bandwidth, &topology->nvlink_latency,   &topology->nic_bandwidth,
            &topology->nic_latency,      &topology->spine_latency,    &topology->oversubscription,
            &topology->memory,           &topology->memory_bandwidth,
        };
        for (guint j = 0; j < G_N_ELEMENTS(numbers); j++)
            g_assert_cmpuint(strlen(numbers[j]->source), >, 10);
    }
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/topology/file-gives-numbers-and-sources", test_file);
    g_test_add_func("/topology/file-may-leave-out-counts", test_defaults);
    g_test_add_func("/topology/gpu-has-node-domain-and-rail", test_places);
    g_test_add_func("/topology/domain-may-be-larger-than-the-cluster",
                    test_domain_larger_than_cluster);
    g_test_add_func("/topology/holds-a-million-gpus", test_most_gpus);
    g_test_add_func("/topology/file-errors-are-located", test_file_errors);
    g_test_add_func("/topology/case-overrides-each-count-alone", test_count_overrides);
    g_test_add_func("/topology/case-overrides-each-number-alone", test_number_overrides);
    g_test_add_func("/topology/case-may-state-a-source", test_sourced_override);
    g_test_add_func("/topology/case-overrides-a-line", test_override_of_a_line);
    g_test_add_func("/topology/case-errors-are-located", test_case_errors);
    g_test_add_func("/topology/line-takes-defaults", test_line);
    g_test_add_func("/topology/line-survives-a-round-trip", test_line_round_trip);
    g_test_add_func("/topology/file-becomes-a-line", test_file_to_line);
    g_test_add_func("/topology/line-errors-say-what-is-wrong", test_line_errors);
    g_test_add_func("/topology/shipped-files-have-nominal-numbers", test_shipped_numbers);
    g_test_add_func("/topology/shipped-numbers-have-sources", test_shipped_sources);
    return g_test_run();
}
