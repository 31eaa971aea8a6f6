/*
 * Both lists are sorted by all that counts and walked side by side. At the first place where they
 * are not alike, one side has an event that the other lacks; when the other lacks one as well, and
 * a single property tells the two apart, that property is the difference. Cost: events x log.
 */

#include "event-sets.h"

/* What of an event counts, in the order in which events are sorted. */
typedef enum { RANK, KIND, NUMBER, CHUNK, STREAM, STAGE, PEER, BYTES, N_PROPERTIES } Property;

static const char *const names[N_PROPERTIES] = {"rank",   "kind",  "number", "chunk",
                                                "stream", "stage", "peer",   "bytes"};

typedef struct {
    guint64 of[N_PROPERTIES];
} Event;

static int compare_events(gconstpointer left, gconstpointer right) {
    const Event *a = left, *b = right;

    for (guint p = 0; p < N_PROPERTIES; p++)
        if (a->of[p] != b->of[p])
            return a->of[p] < b->of[p] ? -1 : 1;
    return 0;
}

static GArray *sorted(const EventSet *set) {
    GArray *list = g_array_sized_new(FALSE, FALSE, sizeof(Event), set->events->len);

    for (guint i = 0; i < set->events->len; i++) {
        const RefitEvent *event = &g_array_index(set->events, RefitEvent, i);
        const Event item = {{event->rank, event->kind, event->number, event->chunk, event->stream,
                             event->stage, event->peer, event->bytes}};

        g_array_append_val(list, item);
    }
    g_array_sort(list, compare_events);
    return list;
}

/* ---- words ---- */

static char *value_of(const Event *event, guint property) {
    return property == KIND ? g_strdup(refit_event_kind_name((RefitEventKind)event->of[KIND]))
                            : g_strdup_printf("%" G_GUINT64_FORMAT, event->of[property]);
}

/* All properties but `without`. */
static GString *describe(const Event *event, guint without) {
    GString *text = g_string_new(NULL);

    for (guint p = 0; p < N_PROPERTIES; p++) {
        g_autofree char *value = value_of(event, p);

        if (p != without)
            g_string_append_printf(text, "%s%s%s%s", p > 0 ? ", " : "", p == KIND ? "" : names[p],
                                   p == KIND ? "" : " ", value);
    }
    return text;
}

static char *tell_property(const EventSet *left, const EventSet *right, const Event *a,
                           const Event *b, guint property) {
    GString *text = describe(a, property);
    g_autofree char *of_a = value_of(a, property), *of_b = value_of(b, property);

    g_string_append_printf(text, ": %s %s in %s, %s in %s", names[property], of_a, left->name, of_b,
                           right->name);
    return g_string_free(text, FALSE);
}

static char *tell_more(const EventSet *set, const Event *event) {
    GString *text = describe(event, N_PROPERTIES);

    g_string_append_printf(text, ": %s has one more", set->name);
    return g_string_free(text, FALSE);
}

/* ---- comparison ---- */

static gboolean has(const GArray *list, const Event *event) {
    return g_array_binary_search((GArray *)list, event, compare_events, NULL);
}

/* The property in which alone two events differ; N_PROPERTIES: there are several. */
static guint only_difference(const Event *a, const Event *b) {
    guint only = N_PROPERTIES, n = 0;

    for (guint p = 0; p < N_PROPERTIES; p++)
        if (a->of[p] != b->of[p]) {
            only = p;
            n++;
        }
    return n == 1 ? only : N_PROPERTIES;
}

char *event_sets_differ(const EventSet *left, const EventSet *right) {
    g_autoptr(GArray) of_left = sorted(left), of_right = sorted(right);
    guint n_both = MIN(of_left->len, of_right->len), i = 0;
    const Event *a = NULL, *b = NULL;

    while (i < n_both && compare_events(&g_array_index(of_left, Event, i),
                                        &g_array_index(of_right, Event, i)) == 0)
        i++;
    if (i < of_left->len)
        a = &g_array_index(of_left, Event, i);
    if (i < of_right->len)
        b = &g_array_index(of_right, Event, i);
    if (a == NULL && b == NULL)
        return NULL;
    if (a != NULL && b != NULL && !has(of_right, a) && !has(of_left, b)) {
        guint property = only_difference(a, b);

        if (property < N_PROPERTIES)
            return tell_property(left, right, a, b, property);
    }
    if (a != NULL && (b == NULL || compare_events(a, b) < 0))
        return tell_more(left, a);
    return tell_more(right, b);
}

/* ---- sums ---- */

static guint count_ranks(const EventSet *set) {
    guint n = 0;

    for (guint i = 0; i < set->events->len; i++)
        n = MAX(n, g_array_index(set->events, RefitEvent, i).rank + 1);
    return n;
}

/* Per rank and kind. */
static guint64 *sums_of(const EventSet *set, guint n_ranks) {
    guint64 *sums = g_new0(guint64, (gsize)n_ranks * REFIT_N_EVENT_KINDS);

    for (guint i = 0; i < set->events->len; i++) {
        const RefitEvent *event = &g_array_index(set->events, RefitEvent, i);

        sums[(gsize)event->rank * REFIT_N_EVENT_KINDS + event->kind] += event->bytes;
    }
    return sums;
}

char *event_totals_differ(const EventSet *left, const EventSet *right) {
    guint n_ranks = MAX(count_ranks(left), count_ranks(right));
    g_autofree guint64 *a = sums_of(left, n_ranks), *b = sums_of(right, n_ranks);

    for (guint i = 0; i < n_ranks * REFIT_N_EVENT_KINDS; i++)
        if (a[i] != b[i])
            return g_strdup_printf("rank %u, %s: bytes %" G_GUINT64_FORMAT
                                   " in %s, %" G_GUINT64_FORMAT " in %s",
                                   i / REFIT_N_EVENT_KINDS,
                                   refit_event_kind_name((RefitEventKind)(i % REFIT_N_EVENT_KINDS)),
                                   a[i], left->name, b[i], right->name);
    return NULL;
}
