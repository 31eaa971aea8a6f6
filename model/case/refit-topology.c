/*
 * Topologies come in three spellings: a file, a mapping in a case that overrides parts of a file,
 * and one line of words. Two tables, of counts and of sourced numbers, hold the spelling of each
 * field in all three; every reader and the writer walk the tables, so that a new field is one line
 * and the spellings cannot drift apart. Cost: linear in the text.
 */

#include <string.h>

#include "model/case/refit-case.h"

#define SOURCE_LINE "stated on one line"
#define SOURCE_LINE_DEFAULT "assumed: not stated on the line, so as on an H100 node"
#define NAME_LINE "one-line"

typedef struct {
    const char *section; /* mapping of the file that holds it, NULL: the root */
    const char *key;     /* in that mapping, and in a case */
    const char *word;    /* on one line */
    gsize offset;
    guint min;
    gboolean required;
} CountField;

static const CountField count_fields[] = {
    {NULL, "nodes", "node", G_STRUCT_OFFSET(RefitTopology, n_nodes), 1, TRUE},
    {NULL, "gpus_per_node", "gpu", G_STRUCT_OFFSET(RefitTopology, gpus_per_node), 1, TRUE},
    {NULL, "nodes_per_domain", "domain", G_STRUCT_OFFSET(RefitTopology, nodes_per_domain), 1,
     FALSE},
    {NULL, "rails", "rails", G_STRUCT_OFFSET(RefitTopology, rails), 1, FALSE},
    {"fabric", "nodes_per_leaf", "leaf", G_STRUCT_OFFSET(RefitTopology, nodes_per_leaf), 0, FALSE},
};

typedef struct {
    const char *section, *key; /* in the file */
    const char *word;
    const char *case_key;
    gsize offset;
    double line_default; /* 0: the word is required */
    RefitUnit unit;
    gboolean positive;
} NumberField;

/* The member and its key in a case have the same name. */
#define NUMBER(member) #member, G_STRUCT_OFFSET(RefitTopology, member)
static const NumberField number_fields[] = {
    {"nvlink", "bandwidth", "nvlink", NUMBER(nvlink_bandwidth), 0, REFIT_UNIT_BYTES_PER_S, TRUE},
    {"nvlink", "latency", "nvlink_latency", NUMBER(nvlink_latency), 2e-6, REFIT_UNIT_SECONDS,
     FALSE},
    {"nic", "bandwidth", "nic", NUMBER(nic_bandwidth), 0, REFIT_UNIT_BYTES_PER_S, TRUE},
    {"nic", "latency", "nic_latency", NUMBER(nic_latency), 5e-6, REFIT_UNIT_SECONDS, FALSE},
    {"fabric", "spine_latency", "spine_latency", NUMBER(spine_latency), 7e-6, REFIT_UNIT_SECONDS,
     FALSE},
    {"fabric", "oversubscription", "oversubscription", NUMBER(oversubscription), 1,
     REFIT_UNIT_PLAIN, TRUE},
    {"gpu", "memory", "memory", NUMBER(memory), 80e9, REFIT_UNIT_BYTES, TRUE},
    {"gpu", "memory_bandwidth", "hbm", NUMBER(memory_bandwidth), 3.35e12, REFIT_UNIT_BYTES_PER_S,
     TRUE},
};
#undef NUMBER

#define N_COUNTS G_N_ELEMENTS(count_fields)
#define N_NUMBERS G_N_ELEMENTS(number_fields)

static guint *count_of(RefitTopology *topology, const CountField *field) {
    return G_STRUCT_MEMBER_P(topology, field->offset);
}

static RefitSourced *number_of(RefitTopology *topology, const NumberField *field) {
    return G_STRUCT_MEMBER_P(topology, field->offset);
}

void refit_sourced_clear(RefitSourced *sourced) {
    g_clear_pointer(&sourced->source, g_free);
    sourced->value = 0;
}

gboolean refit_sourced_parse(RefitNode *node, RefitUnit unit, const char *stated,
                             RefitSourced *sourced, GError **error) {
    double value = 0;
    g_autofree char *source = g_strdup(stated);
    if (stated && refit_node_kind(node) == REFIT_NODE_SCALAR) {
        if (!refit_node_quantity(node, unit, &value, error))
            return FALSE;
    } else {
        if (refit_node_kind(node) != REFIT_NODE_MAPPING) {
            refit_node_error(node, REFIT_ERROR_INVALID, error,
                             "a number needs its source; write {value: ..., source: ...}");
            return FALSE;
        }
        RefitNode *value_node = refit_node_require(node, "value", error);
        if (!value_node || !refit_node_quantity(value_node, unit, &value, error))
            return FALSE;
        RefitNode *source_node = refit_node_get(node, "source");
        const char *text = "";
        if (source_node && !refit_node_string(source_node, &text, error))
            return FALSE;
        g_free(source);
        source = g_strstrip(g_strdup(text));
        if (source[0] == '\0') {
            refit_node_error(source_node ? source_node : node, REFIT_ERROR_INVALID, error,
                             "the number has no source; name the data sheet or the measurement, "
                             "or write 'assumed: why'");
            return FALSE;
        }
    }
    refit_sourced_clear(sourced);
    sourced->value = value;
    sourced->source = g_steal_pointer(&source);
    return TRUE;
}

static gboolean parse_number(RefitNode *node, const NumberField *field, const char *stated,
                             RefitTopology *topology, GError **error) {
    RefitSourced *number = number_of(topology, field);
    if (!refit_sourced_parse(node, field->unit, stated, number, error))
        return FALSE;
    if (field->positive && number->value <= 0) {
        refit_node_error(node, REFIT_ERROR_INVALID, error, "0 is too small; it must be above 0");
        return FALSE;
    }
    return TRUE;
}

static void set_count_defaults(RefitTopology *topology) {
    if (topology->nodes_per_domain == 0)
        topology->nodes_per_domain = 1;
    if (topology->rails == 0)
        topology->rails = topology->gpus_per_node;
}

/* What no single field shows. `key_out`: the key to blame, set on failure only. */
static gboolean check(const RefitTopology *topology, const char **key_out, GError **error) {
    guint64 n_gpus = (guint64)topology->n_nodes * topology->gpus_per_node;
    if (n_gpus > REFIT_TOPOLOGY_MAX_GPUS) {
        *key_out = "nodes";
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%u nodes of %u GPUs are %" G_GUINT64_FORMAT
                    " GPUs, the limit is %u; use fewer nodes or GPUs per node",
                    topology->n_nodes, topology->gpus_per_node, n_gpus, REFIT_TOPOLOGY_MAX_GPUS);
        return FALSE;
    }
    if (topology->rails > topology->gpus_per_node) {
        *key_out = "rails";
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%u rails are more than the %u GPUs of a node, which have one NIC each; use at "
                    "most %u rails",
                    topology->rails, topology->gpus_per_node, topology->gpus_per_node);
        return FALSE;
    }
    if (topology->nodes_per_leaf == 0 && topology->oversubscription.value > 1) {
        *key_out = "oversubscription";
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                            "an oversubscribed fabric needs leaves, and one switch serves all "
                            "nodes; state the nodes per leaf, or 1 here");
        return FALSE;
    }
    return TRUE;
}

static RefitNode *find_key(RefitNode *node, const char *key) {
    if (refit_node_kind(node) != REFIT_NODE_MAPPING)
        return NULL;
    RefitNode *found = refit_node_get(node, key);
    if (found)
        return found;
    RefitNode *fabric = refit_node_get(node, "fabric");
    return fabric && refit_node_kind(fabric) == REFIT_NODE_MAPPING ? refit_node_get(fabric, key)
                                                                   : NULL;
}

static gboolean check_at(const RefitTopology *topology, RefitNode *node, GError **error) {
    g_autoptr(GError) local = NULL;
    const char *key = NULL;
    if (check(topology, &key, &local))
        return TRUE;
    RefitNode *place = find_key(node, key);
    refit_node_error(place ? place : node, (RefitError)local->code, error, "%s", local->message);
    return FALSE;
}

RefitTopology *refit_topology_parse(RefitNode *root, GError **error) {
    g_autoptr(RefitTopology) topology = g_new0(RefitTopology, 1);
    if (!refit_node_check_schema(root, "refit.topology/1", error))
        return NULL;
    RefitNode *name = refit_node_require(root, "name", error);
    if (!name || !refit_node_get_string(root, "name", &topology->name, error))
        return NULL;
    for (guint i = 0; i < N_COUNTS; i++) {
        const CountField *field = &count_fields[i];
        RefitNode *parent = root;
        if (field->section) {
            parent = refit_node_require(root, field->section, error);
            if (!parent || !refit_node_expect(parent, REFIT_NODE_MAPPING, error))
                return NULL;
        }
        if (field->required && !refit_node_require(parent, field->key, error))
            return NULL;
        if (!refit_node_get_uint(parent, field->key, field->min, G_MAXUINT,
                                 count_of(topology, field), error))
            return NULL;
    }
    for (guint i = 0; i < N_NUMBERS; i++) {
        const NumberField *field = &number_fields[i];
        RefitNode *section = refit_node_require(root, field->section, error);
        if (!section || !refit_node_expect(section, REFIT_NODE_MAPPING, error))
            return NULL;
        RefitNode *node = refit_node_require(section, field->key, error);
        if (!node || !parse_number(node, field, NULL, topology, error))
            return NULL;
    }
    set_count_defaults(topology);
    if (!refit_node_finish(root, error) || !check_at(topology, root, error))
        return NULL;
    return g_steal_pointer(&topology);
}

static gboolean line_error(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);

static gboolean line_error(GError **error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    g_autofree char *message = g_strdup_vprintf(format, args);
    va_end(args);
    g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_INVALID, message);
    return FALSE;
}

static gboolean unknown_word(const char *word, GError **error) {
    const char *words[N_COUNTS + N_NUMBERS + 1] = {NULL};
    for (guint i = 0; i < N_COUNTS; i++)
        words[i] = count_fields[i].word;
    for (guint i = 0; i < N_NUMBERS; i++)
        words[N_COUNTS + i] = number_fields[i].word;
    const char *nearest = refit_nearest_name(word, words);
    g_autofree char *excerpt = refit_error_excerpt(word);
    if (nearest)
        return line_error(error, "unknown word \"%s\"; did you mean \"%s\"?", excerpt, nearest);
    g_autofree char *known = g_strjoinv(", ", (char **)words);
    return line_error(error, "unknown word \"%s\"; known: %s", excerpt, known);
}

static gboolean read_word(RefitTopology *topology, const char *word, const char *value,
                          GError **error) {
    g_autofree char *excerpt = refit_error_excerpt(value);
    for (guint i = 0; i < N_COUNTS; i++) {
        const CountField *field = &count_fields[i];
        if (!g_str_equal(field->word, word))
            continue;
        guint64 count = 0;
        if (!g_ascii_string_to_unsigned(value, 10, field->min, G_MAXUINT, &count, NULL))
            return line_error(error, "\"%s:%s\" is not a whole number from %u to %u", word, excerpt,
                              field->min, G_MAXUINT);
        *count_of(topology, field) = (guint)count;
        return TRUE;
    }
    for (guint i = 0; i < N_NUMBERS; i++) {
        const NumberField *field = &number_fields[i];
        if (!g_str_equal(field->word, word))
            continue;
        RefitSourced *number = number_of(topology, field);
        if (!refit_quantity_parse(value, field->unit, &number->value, error)) {
            g_prefix_error(error, "%s: ", word);
            return FALSE;
        }
        if (field->positive && number->value <= 0)
            return line_error(error, "\"%s:%s\" is too small; it must be above 0", word, excerpt);
        number->source = g_strdup(SOURCE_LINE);
        return TRUE;
    }
    return unknown_word(word, error);
}

RefitTopology *refit_topology_parse_line(const char *line, GError **error) {
    g_autoptr(RefitTopology) topology = g_new0(RefitTopology, 1);
    g_auto(GStrv) tokens = g_strsplit_set(line, " \t\r\n", -1);
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    topology->name = g_strdup(NAME_LINE);
    for (guint i = 0; tokens[i]; i++) {
        if (tokens[i][0] == '\0')
            continue;
        const char *colon = strchr(tokens[i], ':');
        if (!colon) {
            g_autofree char *excerpt = refit_error_excerpt(tokens[i]);
            line_error(error, "\"%s\" is not of the form word:value, as in \"%s\"", excerpt,
                       "node:2 gpu:8 nvlink:450GBps nic:50GBps");
            return NULL;
        }
        g_autofree char *word = g_strndup(tokens[i], (gsize)(colon - tokens[i]));
        if (g_hash_table_contains(seen, word)) {
            line_error(error, "the word \"%s\" is stated twice", word);
            return NULL;
        }
        if (!read_word(topology, word, colon + 1, error))
            return NULL;
        g_hash_table_add(seen, g_steal_pointer(&word));
    }
    for (guint i = 0; i < N_COUNTS; i++) {
        if (count_fields[i].required && !g_hash_table_contains(seen, count_fields[i].word)) {
            line_error(error, "the word \"%s:\" is missing", count_fields[i].word);
            return NULL;
        }
    }
    for (guint i = 0; i < N_NUMBERS; i++) {
        const NumberField *field = &number_fields[i];
        if (g_hash_table_contains(seen, field->word))
            continue;
        if (field->line_default <= 0) {
            line_error(error, "the word \"%s:\" is missing", field->word);
            return NULL;
        }
        RefitSourced *number = number_of(topology, field);
        number->value = field->line_default;
        number->source = g_strdup(SOURCE_LINE_DEFAULT);
    }
    set_count_defaults(topology);
    const char *key = NULL;
    if (!check(topology, &key, error))
        return NULL;
    return g_steal_pointer(&topology);
}

/* "word:" comes first on a line; a path that begins so can be written with "./". */
static gboolean is_line(const char *text) {
    gsize letters = strspn(text, "abcdefghijklmnopqrstuvwxyz_ \t");
    return letters > 0 && text[letters] == ':';
}

static RefitTopology *load_text(RefitNode *node, const RefitStore *store, GError **error) {
    const char *text = NULL;
    if (!refit_node_string(node, &text, error))
        return NULL;
    if (is_line(text)) {
        g_autoptr(GError) local = NULL;
        RefitTopology *topology = refit_topology_parse_line(text, &local);
        if (!topology)
            refit_node_error(node, (RefitError)local->code, error, "%s", local->message);
        return topology;
    }
    g_autoptr(RefitDoc) doc = refit_store_load(store, "topologies", text, node, error);
    return doc ? refit_topology_parse(refit_doc_root(doc), error) : NULL;
}

RefitTopology *refit_topology_from_case(RefitNode *node, const RefitStore *store, GError **error) {
    if (refit_node_kind(node) == REFIT_NODE_SCALAR)
        return load_text(node, store, error);
    if (!refit_node_expect(node, REFIT_NODE_MAPPING, error))
        return NULL;

    RefitNode *name = refit_node_require(node, "name", error);
    if (!name)
        return NULL;
    g_autoptr(RefitTopology) topology = load_text(name, store, error);
    if (!topology)
        return NULL;
    for (guint i = 0; i < N_COUNTS; i++) {
        const CountField *field = &count_fields[i];
        if (!refit_node_get_uint(node, field->key, field->min, G_MAXUINT, count_of(topology, field),
                                 error))
            return NULL;
    }
    for (guint i = 0; i < N_NUMBERS; i++) {
        const NumberField *field = &number_fields[i];
        RefitNode *value = refit_node_get(node, field->case_key);
        if (value && !parse_number(value, field, REFIT_SOURCE_CASE, topology, error))
            return NULL;
    }
    if (!refit_node_finish(node, error) || !check_at(topology, node, error))
        return NULL;
    return g_steal_pointer(&topology);
}

void refit_topology_free(RefitTopology *topology) {
    if (!topology)
        return;
    for (guint i = 0; i < N_NUMBERS; i++)
        refit_sourced_clear(number_of(topology, &number_fields[i]));
    g_free(topology->name);
    g_free(topology);
}

guint refit_topology_n_gpus(const RefitTopology *topology) {
    return topology->n_nodes * topology->gpus_per_node;
}

guint refit_topology_n_domains(const RefitTopology *topology) {
    return (topology->n_nodes - 1) / topology->nodes_per_domain + 1;
}

guint refit_topology_gpus_per_domain(const RefitTopology *topology) {
    return MIN(topology->nodes_per_domain, topology->n_nodes) * topology->gpus_per_node;
}

guint refit_topology_node_of(const RefitTopology *topology, guint gpu) {
    return gpu / topology->gpus_per_node;
}

guint refit_topology_domain_of(const RefitTopology *topology, guint gpu) {
    return refit_topology_node_of(topology, gpu) / topology->nodes_per_domain;
}

guint refit_topology_rail_of(const RefitTopology *topology, guint gpu) {
    return gpu % topology->gpus_per_node % topology->rails;
}

/* The largest prefix that leaves at least 1 in front of it. */
static void append_quantity(GString *line, double value, RefitUnit unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    char number[G_ASCII_DTOSTR_BUF_SIZE];
    const char *suffix = unit == REFIT_UNIT_BYTES_PER_S ? "Bps" : "B";
    guint prefix = 0;
    if (unit == REFIT_UNIT_BYTES || unit == REFIT_UNIT_BYTES_PER_S) {
        for (; value >= 1000 && prefix + 1 < G_N_ELEMENTS(prefixes); prefix++)
            value /= 1000;
        g_ascii_formatd(number, sizeof number, "%.15g", value);
        g_string_append_printf(line, "%s%s%s", number, prefixes[prefix], suffix);
    } else if (unit == REFIT_UNIT_SECONDS) {
        g_ascii_formatd(number, sizeof number, "%.15g", value * 1e6);
        g_string_append_printf(line, "%sus", number);
    } else {
        g_ascii_formatd(number, sizeof number, "%.15g", value);
        g_string_append(line, number);
    }
}

char *refit_topology_to_line(const RefitTopology *topology) {
    GString *line = g_string_new(NULL);
    for (guint i = 0; i < N_COUNTS; i++) {
        const guint *count = G_STRUCT_MEMBER_P(topology, count_fields[i].offset);
        g_string_append_printf(line, "%s%s:%u", i ? " " : "", count_fields[i].word, *count);
    }
    for (guint i = 0; i < N_NUMBERS; i++) {
        const RefitSourced *number = G_STRUCT_MEMBER_P(topology, number_fields[i].offset);
        g_string_append_printf(line, " %s:", number_fields[i].word);
        append_quantity(line, number->value, number_fields[i].unit);
    }
    return g_string_free(line, FALSE);
}
