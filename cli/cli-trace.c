/*
 * Events of a run as JSON for viewers, or as CSV.
 *
 * The problem: a viewer draws what one thread of one process does as nested boxes, while the
 * messages of a turn overlap in any way, so on one thread they would seem to be parts of each
 * other. Method: a rank is a process; a stream and a kind of event are a thread, and as many more
 * threads of the same name as overlap at a time, each event on the first that is free. Times are
 * rounded to nanoseconds once, before anything is decided by them, so what follows in the run
 * follows in the file. Cost: events x log, and those that overlap on a thread.
 */

#include "cli/cli-trace.h"

#include <math.h>
#include <string.h>

#define NS_PER_S 1e9

void cli_trace_clear(CliTrace *trace) {
    g_clear_pointer(&trace->wanted, g_free);
}

/* ---- what is asked for ---- */

gboolean cli_trace_check(const Cli *cli, GError **error) {
    const char *path = cli->options.trace;

    if (path == NULL && cli->options.trace_ranks == NULL)
        return TRUE;
    if (path == NULL) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "--trace-ranks needs --trace, the file to write");
        return FALSE;
    }
    if (g_str_has_suffix(path, ".json") || g_str_has_suffix(path, ".csv"))
        return TRUE;
    g_autofree char *excerpt = refit_error_excerpt(path);
    g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                "--trace %s: give a file that ends in .json, for Perfetto and Chrome, or in .csv",
                excerpt);
    return FALSE;
}

static gboolean read_list(const char *list, const RefitTopology *topology, CliTrace *trace,
                          GError **error) {
    g_auto(GStrv) items = g_strsplit(list, ",", -1);

    for (guint i = 0; i == 0 || items[i] != NULL; i++) {
        const char *item = items[i] != NULL ? g_strstrip(items[i]) : "";
        guint first, last;

        if (!refit_layout_parse_range(item, trace->n_ranks, "GPU", topology->name, &first, &last,
                                      error)) {
            g_prefix_error(error, "--trace-ranks: ");
            return FALSE;
        }
        memset(trace->wanted + first, 1, last - first + 1);
    }
    return TRUE;
}

int cli_trace_read(const Cli *cli, const RefitProblem *problem, CliTrace *trace_out,
                   GError **error) {
    const RefitTopology *topology = problem->refit_case->topology;
    g_auto(CliTrace) trace = {.path = cli->options.trace, .n_ranks = problem->n_ranks};

    *trace_out = (CliTrace){.path = NULL};
    if (trace.path == NULL)
        return CLI_EXIT_YES;
    trace.csv = g_str_has_suffix(trace.path, ".csv");
    trace.wanted = g_new0(guint8, MAX(trace.n_ranks, 1));
    if (cli->options.trace_ranks != NULL) {
        if (!read_list(cli->options.trace_ranks, topology, &trace, error))
            return CLI_EXIT_NO;
    } else if (trace.n_ranks > CLI_TRACE_MANY_RANKS) {
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                    "--trace: %s has %u GPUs; say which to write with --trace-ranks, such as 0-7",
                    topology->name, trace.n_ranks);
        return CLI_EXIT_USAGE;
    } else {
        memset(trace.wanted, 1, trace.n_ranks);
    }
    *trace_out = trace;
    trace.wanted = NULL;
    return CLI_EXIT_YES;
}

void cli_trace_keep(const RefitEvent *event, gpointer user_data) {
    const CliTraceKeeper *keeper = user_data;

    if (keeper->trace->wanted[event->rank] != 0)
        g_array_append_vals(keeper->events, event, 1);
}

/* ---- times ---- */

static guint64 to_ns(double seconds) {
    return seconds > 0 ? (guint64)llround(seconds * NS_PER_S) : 0;
}

/* `ns` with its last `decimals` digits behind the point, whatever the locale. */
static void append_ns(GString *out, guint64 ns, guint decimals) {
    const guint64 unit = decimals == 9 ? 1000000000 : 1000;

    g_string_append_printf(out, "%" G_GUINT64_FORMAT ".%0*u", ns / unit, (int)decimals,
                           (guint)(ns % unit));
}

/* ---- CSV ---- */

static void write_csv(GString *out, const RefitPlan *plan, const GArray *events) {
    g_string_append(out, "begin_s,end_s,rank,peer,stage,stream,number,chunk,kind,bytes\n");
    for (guint i = 0; i < events->len; i++) {
        const RefitEvent *event = &g_array_index(events, RefitEvent, i);

        append_ns(out, to_ns(event->begin_s), 9);
        g_string_append_c(out, ',');
        append_ns(out, to_ns(event->end_s), 9);
        g_string_append_printf(out, ",%u,%u,%s,%u,%u,%u,%s,%" G_GUINT64_FORMAT "\n", event->rank,
                               event->peer, plan->stages[event->stage].name, event->stream,
                               event->number, event->chunk, refit_event_kind_name(event->kind),
                               event->bytes);
    }
}

/* ---- threads of a viewer ---- */

/* An event by its place among all, with what decides its thread. */
typedef struct {
    const RefitEvent *event;
    guint64 begin_ns, end_ns;
    guint place;
} Entry;

typedef struct {
    guint rank, id;
    guint stream, kind;
    guint number; /* among those of the same name, from 0 */
} Thread;

static int compare_uint(guint a, guint b) {
    return (a > b) - (a < b);
}

static int compare_entries(gconstpointer left, gconstpointer right) {
    const Entry *a = left, *b = right;
    int order = compare_uint(a->event->rank, b->event->rank);

    order = order != 0 ? order : compare_uint(a->event->stream, b->event->stream);
    order = order != 0 ? order : compare_uint(a->event->kind, b->event->kind);
    if (order == 0 && a->begin_ns != b->begin_ns)
        order = a->begin_ns < b->begin_ns ? -1 : 1;
    return order != 0 ? order : compare_uint(a->place, b->place);
}

static gboolean has_name(const Thread *thread, const RefitEvent *event) {
    return thread->rank == event->rank && thread->stream == event->stream &&
           thread->kind == event->kind;
}

static GArray *sort_events(const GArray *events) {
    GArray *entries = g_array_new(FALSE, FALSE, sizeof(Entry));

    for (guint i = 0; i < events->len; i++) {
        const RefitEvent *event = &g_array_index(events, RefitEvent, i);
        const Entry entry = {event, to_ns(event->begin_s), to_ns(event->end_s), i};

        g_array_append_val(entries, entry);
    }
    g_array_sort(entries, compare_entries);
    return entries;
}

/* Per event the number of its thread in its rank, from 1; the threads in their order. */
static guint *choose_threads(const GArray *events, GArray *threads) {
    g_autoptr(GArray) entries = sort_events(events);
    g_autoptr(GArray) ends = g_array_new(FALSE, FALSE, sizeof(guint64)); /* of those of one name */
    guint *ids = g_new0(guint, MAX(events->len, 1));
    Thread last = {.id = 0};

    for (guint i = 0; i < entries->len; i++) {
        const Entry *entry = &g_array_index(entries, Entry, i);
        const RefitEvent *event = entry->event;
        guint number = 0;

        if (!has_name(&last, event))
            g_array_set_size(ends, 0);
        while (number < ends->len && g_array_index(ends, guint64, number) > entry->begin_ns)
            number++;
        if (number == ends->len) {
            last = (Thread){.rank = event->rank,
                            .id = last.rank == event->rank ? last.id + 1 : 1,
                            .stream = event->stream,
                            .kind = event->kind,
                            .number = number};
            g_array_append_val(threads, last);
            g_array_append_val(ends, entry->end_ns);
        }
        g_array_index(ends, guint64, number) = entry->end_ns;
        ids[entry->place] = last.id - last.number + number; /* those of a name follow each other */
    }
    return ids;
}

/* ---- JSON ---- */

/* Names of stages as JSON has them. */
static char **quote_stages(const RefitPlan *plan) {
    char **names = g_new0(char *, plan->n_stages + 1);

    for (guint s = 0; s < plan->n_stages; s++) {
        RefitJson *json = refit_json_new(0);
        gsize length;

        refit_json_string(json, NULL, plan->stages[s].name);
        names[s] = g_strchomp(refit_json_finish(json, &length));
    }
    return names;
}

/* Link class, lane, and in front of it the track of all but the first. */
static char *name_thread(const RefitPlan *plan, const Thread *thread) {
    const guint n_lanes = MAX(plan->n_lanes, 1), place = thread->stream / REFIT_N_LINKS;
    g_autofree char *track =
        place >= n_lanes ? g_strdup_printf("%u.", place / n_lanes) : g_strdup("");
    g_autofree char *more =
        thread->number > 0 ? g_strdup_printf(" (%u)", thread->number + 1) : g_strdup("");

    return g_strdup_printf(
        "%s %s%u %s%s", refit_link_name((RefitLink)(thread->stream % REFIT_N_LINKS)), track,
        place % n_lanes, refit_event_kind_name((RefitEventKind)thread->kind), more);
}

static void write_names(GString *out, const RefitPlan *plan, const CliTrace *trace,
                        const GArray *threads) {
    for (guint rank = 0; rank < trace->n_ranks; rank++)
        if (trace->wanted[rank] != 0)
            g_string_append_printf(
                out,
                "{\"ph\": \"M\", \"pid\": %u, \"name\": \"process_name\", \"args\": {\"name\": "
                "\"rank %u\"}},\n"
                "{\"ph\": \"M\", \"pid\": %u, \"name\": \"process_sort_index\", \"args\": "
                "{\"sort_index\": %u}},\n",
                rank, rank, rank, rank);
    for (guint t = 0; t < threads->len; t++) {
        const Thread *thread = &g_array_index(threads, Thread, t);
        g_autofree char *name = name_thread(plan, thread);

        g_string_append_printf(
            out,
            "{\"ph\": \"M\", \"pid\": %u, \"tid\": %u, \"name\": \"thread_name\", \"args\": "
            "{\"name\": \"%s\"}},\n"
            "{\"ph\": \"M\", \"pid\": %u, \"tid\": %u, \"name\": \"thread_sort_index\", \"args\": "
            "{\"sort_index\": %u}},\n",
            thread->rank, thread->id, name, thread->rank, thread->id, thread->id);
    }
}

static void write_event(GString *out, const RefitEvent *event, const char *stage, guint id) {
    const char *kind = refit_event_kind_name(event->kind);
    const guint64 begin_ns = to_ns(event->begin_s), end_ns = to_ns(event->end_s);

    g_string_append_printf(out, "{\"ph\": \"X\", \"pid\": %u, \"tid\": %u, \"ts\": ", event->rank,
                           id);
    append_ns(out, begin_ns, 3);
    g_string_append(out, ", \"dur\": ");
    append_ns(out, MAX(end_ns, begin_ns) - begin_ns, 3);
    g_string_append_printf(out, ", \"cat\": \"%s\", \"name\": \"%s", kind, kind);
    if (event->kind == REFIT_EVENT_SEND || event->kind == REFIT_EVENT_RECEIVE)
        g_string_append_printf(out, " %s %u", event->kind == REFIT_EVENT_SEND ? "to" : "from",
                               event->peer);
    g_string_append_printf(
        out,
        "\", \"args\": {\"peer\": %u, \"stage\": %s, \"stream\": %u, \"number\": "
        "%u, \"chunk\": %u, \"bytes\": %" G_GUINT64_FORMAT "}}",
        event->peer, stage, event->stream, event->number, event->chunk, event->bytes);
}

static void write_origin(GString *out, const CliTraceOrigin *origin) {
    RefitJson *json = refit_json_new(0);
    gsize length;

    refit_json_begin_object(json, NULL);
    refit_json_string(json, "case", origin->plan->problem->refit_case->name);
    refit_json_string(json, "strategy", origin->plan->strategy);
    refit_json_string(json, "digest", origin->plan->digest);
    refit_json_string(json, "executor", origin->executor);
    refit_json_string(json, "note", origin->note);
    refit_json_bool(json, "predicted", origin->predicted);
    refit_json_bool(json, "exact", origin->exact);
    refit_json_end_object(json);
    g_autofree char *text = refit_json_finish(json, &length);
    g_string_append_printf(out, "{\"schema\": \"refit.trace/1\",\n\"otherData\": %.*s,\n",
                           (int)length - 1, text);
}

static void write_json(GString *out, const CliTrace *trace, const CliTraceOrigin *origin,
                       const GArray *events) {
    g_autoptr(GArray) threads = g_array_new(FALSE, FALSE, sizeof(Thread));
    g_autofree guint *ids = choose_threads(events, threads);
    g_auto(GStrv) stages = quote_stages(origin->plan);

    write_origin(out, origin);
    g_string_append(out, "\"displayTimeUnit\": \"ns\",\n\"traceEvents\": [\n");
    write_names(out, origin->plan, trace, threads);
    for (guint i = 0; i < events->len; i++) {
        const RefitEvent *event = &g_array_index(events, RefitEvent, i);

        write_event(out, event, stages[event->stage], ids[i]);
        g_string_append(out, ",\n");
    }
    g_string_truncate(out, out->len - strlen(",\n")); /* a rank at least has a name */
    g_string_append(out, "\n]}\n");
}

/* ---- the file ---- */

gboolean cli_trace_write(const Cli *cli, const CliTrace *trace, const CliTraceOrigin *origin,
                         GArray *events, GError **error) {
    g_autoptr(GString) out = g_string_new(NULL);

    if (trace->path == NULL)
        return TRUE;
    g_array_sort(events, refit_event_compare);
    if (trace->csv)
        write_csv(out, origin->plan, events);
    else
        write_json(out, trace, origin, events);
    return cli_write_output(cli, trace->path, out->str, out->len, error);
}

void cli_print_trace(const CliTrace *trace, const GArray *events) {
    g_autofree char *count = NULL;

    if (trace->path == NULL)
        return;
    count = cli_count(events->len, "event");
    cli_print_labelled("trace", "%s: %s", trace->path, count);
}

void cli_json_trace(RefitJson *json, const CliTrace *trace, const GArray *events) {
    if (trace->path == NULL)
        return;
    refit_json_begin_object(json, "trace");
    refit_json_string(json, "file", trace->path);
    refit_json_uint(json, "events", events->len);
    refit_json_end_object(json);
}
