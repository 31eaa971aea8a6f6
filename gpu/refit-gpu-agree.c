/*
 * What ranks tell each other: one record of each per phase, gathered by the caller's function.
 * Every rank reads the same records, so all come to the same verdict, and a rank that has failed
 * says so instead of staying away. Cost: one gather of some 700 bytes per rank.
 */

#include "refit-gpu-private.h"

#include <string.h>

#define MAX_LISTED 8
/* Ranks that waited for each other come a little apart. */
#define MIN_GRACE_S 1.0

static const char *phase_name(guint32 phase) {
    static const char *const names[] = {"opening", "preparing", "starting a run", "a run"};

    return phase < G_N_ELEMENTS(names) ? names[phase] : "another call";
}

void refit_gpu_record_init(RefitGpuRecord *record, RefitGpuPhase phase) {
    memset(record, 0, sizeof *record); /* padding too: it is sent */
    record->abi = REFIT_GPU_ABI;
    record->phase = phase;
}

char *refit_gpu_list_ranks(const guint *ranks, guint n) {
    GString *text = g_string_new(n == 1 ? "rank " : "ranks ");
    guint shown = n <= MAX_LISTED + 1 ? n : MAX_LISTED;

    for (guint i = 0; i < shown; i++)
        g_string_append_printf(text, "%s%u",
                               i == 0                         ? ""
                               : i + 1 == shown && shown == n ? " and "
                                                              : ", ",
                               ranks[i]);
    if (shown < n)
        g_string_append_printf(text, " and %u more", n - shown);
    return g_string_free(text, FALSE);
}

/* Copies as much of the text as fits, cut between characters. */
static void put_text(char *to, gsize size, const char *text) {
    g_strlcpy(to, text, size);
    const char *end;
    if (!g_utf8_validate(to, -1, &end))
        to[end - to] = '\0';
}

static char *list_came(const guint8 *came, guint n, guint8 which) {
    g_autoptr(GArray) ranks = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint r = 0; r < n; r++)
        if ((came[r] != 0) == (which != 0))
            g_array_append_val(ranks, r);
    return ranks->len > 0 ? refit_gpu_list_ranks((guint *)(gpointer)ranks->data, ranks->len) : NULL;
}

/* The lowest step that somebody waits in and who waits for whom there, or what the first who waits
 * says. */
static char *describe_stuck(const RefitGpuRecord *all, guint n) {
    GString *text = g_string_new(NULL);
    guint32 step = G_MAXUINT32;
    guint shown = 0, first = G_MAXUINT;

    for (guint r = 0; r < n; r++) {
        if (all[r].stuck == 0)
            continue;
        if (first == G_MAXUINT)
            first = r;
        if (all[r].n_peers > 0)
            step = MIN(step, all[r].step);
    }
    for (guint r = 0; r < n && shown < MAX_LISTED; r++) {
        if (all[r].stuck == 0 || all[r].step != step || all[r].n_peers == 0)
            continue;
        guint n_peers = MIN(all[r].n_peers, REFIT_GPU_STUCK_PEERS);
        g_autofree char *peers = refit_gpu_list_ranks(all[r].peers, n_peers);
        if (shown++ == 0)
            g_string_append_printf(text, "step %u: ", step);
        else
            g_string_append(text, "; ");
        g_string_append_printf(text, "rank %u waits for %s", r, peers);
        if (all[r].n_peers > n_peers)
            g_string_append_printf(text, " and %u more", all[r].n_peers - n_peers);
    }
    if (shown == 0 && first != G_MAXUINT)
        g_string_append_printf(text, "rank %u: %.*s", first, REFIT_GPU_TEXT, all[first].text);
    return g_string_free(text, FALSE);
}

static RefitError code_of(const RefitGpuRecord *record) {
    return (RefitError)(record->failed - 1);
}

/* All ranks have come: the first failure of its own making, else where they wait. */
static gboolean judge(const RefitGpuRank *self, const RefitGpuRecord *mine,
                      const RefitGpuRecord *all, GError **error) {
    guint n_failed = 0, first = G_MAXUINT;

    for (guint r = 0; r < self->n_ranks; r++) {
        if (all[r].abi != REFIT_GPU_ABI || all[r].phase != mine->phase) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "rank %u is in %s, rank %u in %s; all ranks must make the same calls with "
                        "the same version of refit",
                        self->rank, phase_name(mine->phase), r, phase_name(all[r].phase));
            return FALSE;
        }
        n_failed += all[r].failed != 0;
        if (all[r].failed != 0 && all[r].stuck == 0 && first == G_MAXUINT)
            first = r;
    }
    if (n_failed == 0)
        return TRUE;
    if (first == G_MAXUINT) {
        g_autofree char *where = describe_stuck(all, self->n_ranks);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s has not ended within %g s; %s",
                    phase_name(mine->phase), self->timeout_s, where);
        return FALSE;
    }
    g_set_error(error, REFIT_ERROR, (gint)code_of(&all[first]), "rank %u: %.*s", first,
                REFIT_GPU_TEXT, all[first].text);
    return FALSE;
}

/* Leaves it to the caller's function to tell the others. */
static gboolean fail_at_once(RefitGpuRank *self, GError *failure, GError **error) {
    self->broken = TRUE;
    g_propagate_error(error, self->peers.fail(self->peers.user_data, failure));
    return FALSE;
}

gboolean refit_gpu_agree(RefitGpuRank *self, RefitGpuRecord *mine, GError *failure,
                         RefitGpuRecord **all_out, GError **error) {
    g_autoptr(GError) own = failure;
    g_autofree RefitGpuRecord *all = g_new0(RefitGpuRecord, self->n_ranks);
    g_autofree guint8 *came = g_new0(guint8, self->n_ranks);

    if (own != NULL) {
        if (self->informed) { /* the error came from another rank */
            self->broken = TRUE;
            g_propagate_error(error, g_steal_pointer(&own));
            return FALSE;
        }
        if (self->peers.fail != NULL) {
            if (mine->stuck != 0 && mine->n_peers > 0) {
                all[self->rank] = *mine;
                g_autofree char *where = describe_stuck(all, self->n_ranks);
                g_prefix_error(&own, "%s: ", where);
            }
            return fail_at_once(self, g_steal_pointer(&own), error);
        }
        mine->failed = 1 + (own->domain == REFIT_ERROR ? (guint32)own->code : REFIT_ERROR_BACKEND);
        put_text(mine->text, sizeof mine->text, own->message);
    }
    double left = (double)(self->deadline_us - g_get_monotonic_time()) / G_USEC_PER_SEC;
    if (!self->peers.gather(self->peers.user_data, mine, sizeof *mine, all, came,
                            MAX(left, 0) + MAX(self->timeout_s / 4, MIN_GRACE_S), error)) {
        self->broken = TRUE;
        return FALSE;
    }
    g_autofree char *absent = list_came(came, self->n_ranks, 0);
    if (absent != NULL) {
        self->broken = TRUE;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "%s: %s did not report within %g s%s%s", phase_name(mine->phase), absent,
                    self->timeout_s, own != NULL ? "; this rank: " : "",
                    own != NULL ? own->message : "");
        return FALSE;
    }
    if (!judge(self, mine, all, error))
        return FALSE;
    if (all_out != NULL)
        *all_out = g_steal_pointer(&all);
    return TRUE;
}
