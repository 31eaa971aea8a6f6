/*
 * What ranks tell each other: one record of each per phase, gathered by the caller's function.
 * Every rank reads the same records, so all come to the same verdict, and a rank that has failed
 * says so instead of staying away. Cost: each rank hears each, so 56 bytes times the square of the
 * number of ranks; 336 when one has failed, and then the last time.
 */

#include "gpu/executor/refit-gpu-private.h"

#include <string.h>

#define MAX_LISTED 8
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

guint64 refit_gpu_digest_head(const char *digest) {
    enum { DIGITS = 2 * sizeof(guint64) };
    guint64 head = 0;

    for (guint i = 0; i < DIGITS && g_ascii_isxdigit(digest[i]); i++)
        head = head << 4 | (guint64)g_ascii_xdigit_value(digest[i]);
    return head;
}

static guint64 mix(guint64 hash, guint64 value) {
    hash = (hash ^ value) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 32);
}

/* What both ends of a message, or all ranks of a communicator, rely on. The rest of the schedule
 * shows in the sums over messages. */
guint64 refit_gpu_schedule_hash(const RefitSchedule *schedule) {
    guint64 hash = mix(schedule->n_streams, schedule->n_steps);

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        hash = mix(hash, schedule->n_comms[link]);
    for (guint s = 0; s < schedule->n_streams; s++)
        hash = mix(hash, schedule->comm_of[s]);
    for (guint i = 0; i < schedule->n_steps; i++) {
        const RefitScheduleStep *step = &schedule->steps[i];

        hash = mix(hash, (guint64)step->number << 32 | step->n_numbers);
        hash = mix(hash, (guint64)step->stream << 32 | step->n_chunks);
        hash = mix(hash, step->chunk_bytes);
    }
    return hash;
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

/* All ranks have come. All find the same, as each sees one that differs. */
static gboolean check_phases(const RefitGpuRank *self, const RefitGpuRecord *mine,
                             const RefitGpuRecord *all, GError **error) {
    for (guint r = 0; r < self->n_ranks; r++)
        if (all[r].abi != REFIT_GPU_ABI || all[r].phase != mine->phase) {
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "rank %u is in %s, rank %u in %s; all ranks must make the same calls with "
                        "the same version of refit",
                        self->rank, phase_name(mine->phase), r, phase_name(all[r].phase));
            return FALSE;
        }
    return TRUE;
}

/* The first failure of its own making, else where ranks wait. */
static void judge(const RefitGpuRank *self, const RefitGpuRecord *mine, const RefitGpuRecord *all,
                  GError **error) {
    guint first = 0;

    while (first < self->n_ranks && (all[first].failed == 0 || all[first].stuck != 0))
        first++;
    if (first == self->n_ranks) {
        g_autofree char *where = describe_stuck(all, self->n_ranks);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s has not ended within %g s; %s",
                    phase_name(mine->phase), self->timeout_s, where);
    } else {
        g_set_error(error, REFIT_ERROR, (gint)code_of(&all[first]), "rank %u: %.*s", first,
                    REFIT_GPU_TEXT, all[first].text);
    }
}

/* Leaves it to the caller's function to tell the others. */
static gboolean fail_at_once(RefitGpuRank *self, GError *failure, GError **error) {
    self->broken = TRUE;
    g_propagate_error(error, self->peers.fail(self->peers.user_data, failure));
    return FALSE;
}

/* How long to wait for the others; ranks that waited for each other come a little apart. */
static double patience(const RefitGpuRank *self) {
    double left = (double)(self->deadline_us - g_get_monotonic_time()) / G_USEC_PER_SEC;

    return MAX(left, 0) + MAX(self->timeout_s / 4, MIN_GRACE_S);
}

/* Gathers a part of all records. */
static gboolean hear(RefitGpuRank *self, const RefitGpuRecord *mine, gsize from, gsize bytes,
                     RefitGpuRecord *all, guint8 *came, GError **error) {
    g_autofree guint8 *parts = g_malloc0_n(self->n_ranks, bytes);

    if (!self->peers.gather(self->peers.user_data, (const guint8 *)mine + from, bytes, parts, came,
                            patience(self), error)) {
        self->broken = TRUE;
        return FALSE;
    }
    for (guint r = 0; r < self->n_ranks; r++)
        if (came[r] != 0)
            memcpy((guint8 *)&all[r] + from, parts + r * bytes, bytes);
    return TRUE;
}

/* Some rank has failed, and all know: why. Those that go away meanwhile leave it unsaid. */
static void hear_why(RefitGpuRank *self, const RefitGpuRecord *mine, RefitGpuRecord *all) {
    g_autofree guint8 *came = g_new0(guint8, self->n_ranks);

    if (!hear(self, mine, REFIT_GPU_HEAD_BYTES, sizeof *mine - REFIT_GPU_HEAD_BYTES, all, came,
              NULL))
        all[self->rank] = *mine;
    for (guint r = 0; r < self->n_ranks; r++) {
        all[r].text[REFIT_GPU_TEXT - 1] = '\0';
        if (all[r].failed != 0 && all[r].text[0] == '\0')
            g_strlcpy(all[r].text, "it has failed, and has not said why", REFIT_GPU_TEXT);
    }
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
        /* Those whose time is over come at the same time, and together know whom they wait for. */
        if (self->peers.fail != NULL && (mine->stuck == 0 || !refit_gpu_is_late(self))) {
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
    if (!hear(self, mine, 0, REFIT_GPU_HEAD_BYTES, all, came, error))
        return FALSE;
    g_autofree char *absent = list_came(came, self->n_ranks, 0);
    if (absent != NULL) {
        self->broken = TRUE;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND,
                    "%s: %s did not report within %g s%s%s", phase_name(mine->phase), absent,
                    self->timeout_s, own != NULL ? "; this rank: " : "",
                    own != NULL ? own->message : "");
        return FALSE;
    }
    if (!check_phases(self, mine, all, error))
        return FALSE;
    for (guint r = 0; r < self->n_ranks; r++)
        if (all[r].failed != 0) {
            hear_why(self, mine, all);
            judge(self, mine, all, error);
            return FALSE;
        }
    if (all_out != NULL)
        *all_out = g_steal_pointer(&all);
    return TRUE;
}

gboolean refit_gpu_spread(RefitGpuRank *self, gpointer bytes, gsize size, GError **error) {
    if (self->peers.broadcast != NULL) {
        self->broken = !self->peers.broadcast(self->peers.user_data, bytes, size, error);
        return !self->broken;
    }
    g_autofree guint8 *all = g_malloc0_n(self->n_ranks, size);
    g_autofree guint8 *came = g_new0(guint8, self->n_ranks);
    if (!self->peers.gather(self->peers.user_data, bytes, size, all, came, patience(self), error)) {
        self->broken = TRUE;
        return FALSE;
    }
    g_autofree char *absent = list_came(came, self->n_ranks, 0);
    if (absent != NULL) {
        self->broken = TRUE;
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: %s did not report within %g s",
                    phase_name(REFIT_GPU_PHASE_OPEN), absent, self->timeout_s);
        return FALSE;
    }
    memcpy(bytes, all, size);
    return TRUE;
}
