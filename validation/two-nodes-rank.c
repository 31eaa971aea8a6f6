/*
 * One rank of validation/two-nodes: what communicators of several nodes cost and how fast ranks
 * exchange messages, by the number of peers, where they are, and channels per network peer.
 *
 *     two-nodes-rank [--channels 0,1,2,4] [--peers 1,2,4,8] [--bytes 4194304,...] [--times K]
 *                    [--timeout SECONDS] [--per-node N]
 *
 * Ranks are started by torchrun, srun or mpirun, and find each other as those of `refit run` do.
 * What the environment says, as NCCL_PXN_DISABLE, is a parameter of each row. Every setting has a
 * communicator of its own, so that what it costs can be told. Rank 0 prints one JSON object with
 * `device`, `nodes`, `ranks` and `rows` of measure.h. Exit: 0; 1 for a call or a rank that failed;
 * 2 usage; 77 without a GPU.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/rendezvous/refit-launch.h"
#include "validation/measure-nccl.h"
#include "validation/measure.h"
#include "validation/pack-check.h"
#include "validation/two-nodes-bench.h"

enum { EXIT_WELL = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_NOTHING = 77 };
enum { MAX_LIST = 8, MAX_TIMES = 32, HOST_BYTES = 128, TRAIN = 8, TINY_BYTES = 256 };

static struct {
    char *channels, *peers, *bytes;
    gint n_times, per_node;
    double timeout_s;
} options = {.n_times = 5, .timeout_s = 60};

static const GOptionEntry entries[] = {
    {"channels", 0, 0, G_OPTION_ARG_STRING, &options.channels,
     "per network peer; 0: NCCL's choice; default: 0,1,2,4", "LIST"},
    {"peers", 0, 0, G_OPTION_ARG_STRING, &options.peers, "of a rank; default: 1,2,4,8", "LIST"},
    {"bytes", 0, 0, G_OPTION_ARG_STRING, &options.bytes,
     "of a message; default: 4194304,16777216,67108864", "LIST"},
    {"times", 0, 0, G_OPTION_ARG_INT, &options.n_times, "times that each is timed; default: 5",
     "K"},
    {"per-node", 0, 0, G_OPTION_ARG_INT, &options.per_node,
     "take so many ranks for a node, whatever the hosts", "N"},
    {"timeout", 0, 0, G_OPTION_ARG_DOUBLE, &options.timeout_s, "of each wait; default: 60",
     "SECONDS"},
    G_OPTION_ENTRY_NULL,
};

typedef struct {
    guint64 values[MAX_LIST];
    guint n;
} List;

static gboolean read_list(const char *text, const char *otherwise, guint64 least, List *list_out,
                          GError **error) {
    g_auto(GStrv) words = g_strsplit(text != NULL ? text : otherwise, ",", -1);

    *list_out = (List){{0}, 0};
    for (guint i = 0; words[i] != NULL; i++) {
        guint64 value;

        if (i == MAX_LIST ||
            !g_ascii_string_to_unsigned(words[i], 10, least, 1 << 30, &value, NULL)) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "\"%s\": give at most %d numbers from %" G_GUINT64_FORMAT
                        " on, with commas",
                        text, MAX_LIST, least);
            return FALSE;
        }
        list_out->values[list_out->n++] = value;
    }
    return TRUE;
}

typedef struct {
    List channels, peers, bytes;
    TwoNodesBench bench;
    RefitJson *json; /* NULL but on rank 0 */
} Job;

/* ---- rows ---- */

/* What a rank says of a setting. */
typedef struct {
    double set_up_s, set_up_bytes, first_s, first_bytes;
    double seconds[MAX_LIST][MAX_TIMES]; /* per size */
} Record;

typedef struct {
    TwoNodesPlace place;
    guint channels, n_peers;
} Setting;

static void write_parameters(const Job *job, const Setting *setting) {
    const char *pxn = g_getenv("NCCL_PXN_DISABLE");

    refit_json_string(job->json, "place", two_nodes_place_name(setting->place));
    refit_json_uint(job->json, "channels_per_net_peer", setting->channels);
    refit_json_uint(job->json, "pxn_disable", pxn != NULL ? g_ascii_strtoull(pxn, NULL, 10) : 0);
    refit_json_uint(job->json, "ranks", job->bench.n_nodes * job->bench.per_node);
}

/* One value of each rank, `offset` bytes into its record. */
static void write_of_ranks(const Job *job, const Setting *setting, const char *what,
                           MeasureUnit unit, const Record *records, gsize offset) {
    const guint n_ranks = job->bench.n_nodes * job->bench.per_node;
    g_autofree double *values = g_new(double, n_ranks);

    for (guint r = 0; r < n_ranks; r++)
        values[r] = *(const double *)(gconstpointer)((const char *)&records[r] + offset);
    const MeasureSpread spread = measure_spread(values, n_ranks);
    measure_row_begin(job->json, what);
    write_parameters(job, setting);
    if (setting->n_peers > 0)
        refit_json_uint(job->json, "peers", setting->n_peers);
    measure_row_end(job->json, unit, &spread);
}

/* What each rank sends in a second, by the slowest of them. */
static void write_rates(const Job *job, const Setting *setting, const Record *records) {
    const guint n_ranks = job->bench.n_nodes * job->bench.per_node;
    const guint n_times = (guint)options.n_times;

    for (guint b = 0; b < job->bytes.n; b++) {
        double rates[MAX_TIMES];

        for (guint t = 0; t < n_times; t++) {
            double slowest = 0;

            for (guint r = 0; r < n_ranks; r++)
                slowest = MAX(slowest, records[r].seconds[b][t]);
            rates[t] = (double)(setting->n_peers * job->bytes.values[b]) / slowest;
        }
        const MeasureSpread spread = measure_spread(rates, n_times);
        measure_row_begin(job->json, "exchange");
        write_parameters(job, setting);
        refit_json_uint(job->json, "peers", setting->n_peers);
        refit_json_uint(job->json, "message_bytes", job->bytes.values[b]);
        measure_row_end(job->json, MEASURE_BYTES_PER_S, &spread);
    }
}

static void write_rows(const Job *job, const Setting *setting, const Record *records) {
    const Setting any = {setting->place, setting->channels, 0};

    write_of_ranks(job, &any, "set_up", MEASURE_SECONDS, records, offsetof(Record, set_up_s));
    write_of_ranks(job, &any, "set_up_memory", MEASURE_BYTES, records,
                   offsetof(Record, set_up_bytes));
    write_of_ranks(job, setting, "first_exchange", MEASURE_SECONDS, records,
                   offsetof(Record, first_s));
    write_of_ranks(job, setting, "first_exchange_memory", MEASURE_BYTES, records,
                   offsetof(Record, first_bytes));
    write_rates(job, setting, records);
}

/* ---- measuring ---- */

static gboolean measure(Job *job, const Setting *setting, Record *record, GError **error) {
    TwoNodesBench *bench = &job->bench;
    double before, after;

    if (!two_nodes_connect(bench, setting->place, (int)setting->channels, &record->set_up_s,
                           &record->set_up_bytes, error) ||
        !two_nodes_free_bytes(bench, &before, error) ||
        !two_nodes_exchange(bench, setting->place, setting->n_peers, TINY_BYTES, 0,
                            &record->first_s, error) ||
        !two_nodes_free_bytes(bench, &after, error))
        return FALSE;
    record->first_bytes = MAX(before - after, 0);
    for (guint b = 0; b < job->bytes.n; b++)
        for (guint t = 0; t < (guint)options.n_times; t++)
            if (!two_nodes_exchange(bench, setting->place, setting->n_peers, job->bytes.values[b],
                                    TRAIN, &record->seconds[b][t], error))
                return FALSE;
    return TRUE;
}

static gboolean measure_setting(Job *job, const Setting *setting, GError **error) {
    g_autofree Record *record = g_new0(Record, 1);
    g_autofree guint8 *all = NULL;

    if (!measure(job, setting, record, error) ||
        !refit_rendezvous_report(job->bench.rendezvous, "rows", record, sizeof *record, &all,
                                 error))
        return FALSE;
    if (all != NULL)
        write_rows(job, setting, (const Record *)(gpointer)all);
    return TRUE;
}

/* Numbers of peers that a place has room for; in the node's own communicator one, and all. */
static List peers_for(const Job *job, TwoNodesPlace place) {
    const guint most = two_nodes_most_peers(&job->bench, place);
    List list = {{0}, 0};

    if (place == TWO_NODES_DOMAIN)
        return (List){{1, most}, MIN(most, 2)};
    for (guint i = 0; i < job->peers.n; i++)
        if (job->peers.values[i] <= most)
            list.values[list.n++] = job->peers.values[i];
    return list;
}

static gboolean measure_place(Job *job, TwoNodesPlace place, guint channels, GError **error) {
    const List peers = peers_for(job, place);

    for (guint i = 0; i < peers.n; i++) {
        const Setting setting = {place, channels, (guint)peers.values[i]};

        if (!measure_setting(job, &setting, error))
            return FALSE;
    }
    return TRUE;
}

static gboolean measure_all(Job *job, GError **error) {
    for (guint c = 0; c < job->channels.n; c++)
        for (TwoNodesPlace place = TWO_NODES_OTHER; place < TWO_NODES_DOMAIN; place++)
            if (!measure_place(job, place, (guint)job->channels.values[c], error))
                return FALSE;
    return measure_place(job, TWO_NODES_DOMAIN, 0, error);
}

/* ---- ranks ---- */

/* Ranks of one host must follow each other, as many on each. */
static gboolean find_nodes(Job *job, guint world, GError **error) {
    const char *id = g_getenv("NCCL_HOSTID");
    char host[HOST_BYTES] = "";
    g_autofree guint8 *all = NULL;
    guint per_node = 1;

    g_strlcpy(host, id != NULL ? id : g_get_host_name(), sizeof host);
    if (!refit_rendezvous_gather(job->bench.rendezvous, "hosts", host, sizeof host, &all, error))
        return FALSE;
    const char *hosts = (const char *)all;
    if (options.per_node > 0) {
        per_node = (guint)options.per_node;
    } else {
        while (per_node < world && memcmp(hosts, hosts + per_node * HOST_BYTES, HOST_BYTES) == 0)
            per_node++;
        for (guint r = 0; r < world; r++)
            for (guint q = 0; q < r; q++)
                if ((r / per_node == q / per_node) !=
                    (memcmp(hosts + r * HOST_BYTES, hosts + q * HOST_BYTES, HOST_BYTES) == 0)) {
                    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                                "ranks %u and %u: ranks must be numbered node by node, with as "
                                "many on each",
                                q, r);
                    return FALSE;
                }
    }
    if (world % per_node != 0) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "%u ranks do not make nodes of %u ranks", world, per_node);
        return FALSE;
    }
    job->bench.per_node = per_node;
    job->bench.n_nodes = world / per_node;
    return TRUE;
}

static gboolean run_rank(Job *job, const RefitLaunch *launch, GError **error) {
    TwoNodesBench *bench = &job->bench;
    guint64 most_peers = 1;
    int nccl = 0;
    gboolean well;

    if (!find_nodes(job, launch->world, error))
        return FALSE;
    for (guint i = 0; i < job->peers.n; i++)
        most_peers = MAX(most_peers, job->peers.values[i]);
    for (guint i = 0; i < job->bytes.n; i++)
        bench->room = MAX(bench->room, MAX(most_peers, bench->per_node) * job->bytes.values[i]);
    well = two_nodes_open(bench, error);
    if (job->json != NULL && well) {
        well = measure_write_device(job->json, error) && MEASURE_NCCL(ncclGetVersion(&nccl), error);
        refit_json_uint(job->json, "nccl", (guint64)nccl);
        refit_json_uint(job->json, "nodes", bench->n_nodes);
        refit_json_uint(job->json, "ranks", launch->world);
        refit_json_begin_array(job->json, "rows");
    }
    well = well && measure_all(job, error);
    two_nodes_close(bench, well);
    return well;
}

static gboolean join(Job *job, const RefitLaunch *launch, GError **error) {
    const RefitRendezvousOptions rendezvous = {.rank = launch->rank,
                                               .world = launch->world,
                                               .address = launch->address,
                                               .port = launch->port,
                                               .token = launch->token,
                                               .timeout_s = options.timeout_s};
    GError *mine = NULL;
    gboolean well;

    job->bench.rendezvous = refit_rendezvous_new(&rendezvous, NULL, error);
    if (job->bench.rendezvous == NULL)
        return FALSE;
    job->bench.rank = launch->rank;
    job->bench.timeout_s = options.timeout_s;
    well = run_rank(job, launch, &mine);
    if (!well)
        g_propagate_error(error, refit_rendezvous_fail(job->bench.rendezvous, mine));
    refit_rendezvous_free(job->bench.rendezvous);
    return well;
}

/* ---- main ---- */

static const char *look_up(gpointer data, const char *name) {
    (void)data;
    return g_getenv(name);
}

static gboolean read_options(int argc, char **argv, Job *job, GError **error) {
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);

    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, error) ||
        !read_list(options.channels, "0,1,2,4", 0, &job->channels, error) ||
        !read_list(options.peers, "1,2,4,8", 1, &job->peers, error) ||
        !read_list(options.bytes, "4194304,16777216,67108864", TINY_BYTES, &job->bytes, error))
        return FALSE;
    if (argc == 1 && options.n_times > 0 && options.n_times <= MAX_TIMES && options.per_node >= 0 &&
        options.timeout_s > 0)
        return TRUE;
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "usage: two-nodes-rank [OPTION...], with --times from 1 to %d", MAX_TIMES);
    return FALSE;
}

/* As `refit run` does: by local rank, or the only one there is. */
static int use_device(guint local_rank) {
    int n = 0;
    cudaError_t result = cudaGetDeviceCount(&n);

    if (result == cudaSuccess && (n == 1 || local_rank < (guint)n))
        result = cudaSetDevice(n == 1 ? 0 : (int)local_rank);
    else if (result == cudaSuccess)
        result = cudaErrorInvalidDevice;
    if (result == cudaSuccess)
        return EXIT_WELL;
    fprintf(stderr, "two-nodes-rank: no GPU for local rank %u: %s\n", local_rank,
            cudaGetErrorString(result));
    return EXIT_NOTHING;
}

static int measure_as(Job *job, const RefitLaunch *launch) {
    g_autoptr(GError) error = NULL;
    const int status = use_device(launch->local_rank);
    gboolean well;

    if (status != EXIT_WELL)
        return status;
    if (launch->rank == 0) {
        job->json = refit_json_new(1);
        refit_json_begin_object(job->json, NULL);
    }
    well = join(job, launch, &error);
    if (!well) {
        fprintf(stderr, "two-nodes-rank: rank %u: %s\n", launch->rank, error->message);
        g_clear_pointer(&job->json, refit_json_free);
        return EXIT_WRONG;
    }
    if (job->json == NULL)
        return EXIT_WELL;
    refit_json_end_array(job->json);
    refit_json_end_object(job->json);
    g_autofree char *text = refit_json_finish(job->json, NULL);
    fputs(text, stdout);
    return fflush(stdout) == 0 ? EXIT_WELL : EXIT_WRONG;
}

int main(int argc, char **argv) {
    g_autoptr(GError) error = NULL;
    g_auto(RefitLaunch) launch = {0};
    Job job = {.bench = {0}};

    if (!read_options(argc, argv, &job, &error) ||
        !refit_launch_read(look_up, NULL, &launch, &error)) {
        fprintf(stderr, "two-nodes-rank: %s\n", error->message);
        return EXIT_USAGE;
    }
    return measure_as(&job, &launch);
}
