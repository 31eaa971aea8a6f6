/*
 * What ranks tell each other: one record of each per phase, which the caller's function brings to
 * rank 0. Rank 0 judges all of them and tells every rank its verdict, so all return the same, and a
 * rank that has failed says so instead of staying away. Why, rank 0 asks only then. Cost: 56 bytes
 * from and 16 to each rank; when one has failed, 280 and 1028 more, and then the last time.
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

    for (guint link = 0; link < REFIT_N_LINKS; link++) {
        hash = mix(hash, schedule->n_comms[link]);
        hash = mix(hash, (guint64)schedule->ctas[link] << 32 | schedule->per_peer[link]);
    }
    for (guint s = 0; s < schedule->n_streams; s++)
        hash = mix(hash, schedule->comm_of[s]);
    for (guint i = 0; i < schedule->n_steps; i++) {
        const RefitScheduleStep *step = &schedule->steps[i];

        hash = mix(hash, (guint64)step->number << 32 | step->n_numbers);
        hash = mix(hash, (guint64)step->stream << 32 | step->n_chunks);
        hash = mix(mix(hash, step->cutting.n), step->cutting.grain);
    }
    return hash;
}

char *refit_gpu_name_ranks(const RefitGpuRank *self, const guint *ranks, guint n) {
    GString *text = g_string_new(n == 1 ? "rank " : "ranks ");
    guint shown = n <= MAX_LISTED + 1 ? n : MAX_LISTED;

    for (guint i = 0; i < shown; i++) {
        const char *host = refit_gpu_host_of(self, ranks[i]);

        g_string_append_printf(text, "%s%u",
                               i == 0                         ? ""
                               : i + 1 == shown && shown == n ? " and "
                                                              : ", ",
                               ranks[i]);
        if (host != NULL)
            g_string_append_printf(text, " (%s)", host);
    }
    if (shown < n)
        g_string_append_printf(text, " and %u more", n - shown);
    return g_string_free(text, FALSE);
}

static char *name_rank(const RefitGpuRank *self, guint rank) {
    return refit_gpu_name_ranks(self, &rank, 1);
}

/* Copies as much of the text as fits, cut between characters. */
static void put_text(char *to, gsize size, const char *text) {
    g_strlcpy(to, text, size);
    const char *end;
    if (!g_utf8_validate(to, -1, &end))
        to[end - to] = '\0';
}

static char *list_absent(const RefitGpuRank *self, const guint8 *came) {
    g_autoptr(GArray) ranks = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint r = 0; r < self->n_ranks; r++)
        if (came[r] == 0)
            g_array_append_val(ranks, r);
    return ranks->len > 0 ? refit_gpu_name_ranks(self, (guint *)(gpointer)ranks->data, ranks->len)
                          : NULL;
}

/* Of the records of ranks from `first_rank` on: the lowest step that somebody waits in and who
 * waits for whom there, or what the first who waits says. */
static char *describe_stuck(const RefitGpuRank *self, const RefitGpuRecord *all, guint first_rank,
                            guint n) {
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
        g_autofree char *peers = refit_gpu_name_ranks(self, all[r].peers, n_peers);
        g_autofree char *name = name_rank(self, first_rank + r);
        if (shown++ > 0)
            g_string_append(text, "; ");
        else if (all[r].phase == REFIT_GPU_PHASE_PREPARE)
            g_string_append(text, "connecting to peers: ");
        else
            g_string_append_printf(text, "step %u: ", step);
        g_string_append_printf(text, "%s waits for %s", name, peers);
        if (all[r].n_peers > n_peers)
            g_string_append_printf(text, " and %u more", all[r].n_peers - n_peers);
    }
    if (shown == 0 && first != G_MAXUINT) {
        g_autofree char *name = name_rank(self, first_rank + first);
        g_string_append_printf(text, "%s: %.*s", name, REFIT_GPU_TEXT, all[first].text);
    }
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
            g_autofree char *first = name_rank(self, self->rank), *other = name_rank(self, r);
            g_set_error(error, REFIT_ERROR, REFIT_ERROR_INVALID,
                        "%s is in %s, %s in %s; all ranks must make the same calls with the same "
                        "version of refit",
                        first, phase_name(mine->phase), other, phase_name(all[r].phase));
            return FALSE;
        }
    return TRUE;
}

/* The first failure of its own making, else where ranks wait. */
static void judge_failures(const RefitGpuRank *self, const RefitGpuRecord *mine,
                           const RefitGpuRecord *all, GError **error) {
    guint first = 0;

    while (first < self->n_ranks && (all[first].failed == 0 || all[first].stuck != 0))
        first++;
    if (first == self->n_ranks) {
        g_autofree char *where = describe_stuck(self, all, 0, self->n_ranks);
        g_set_error(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "%s has not ended within %g s; %s",
                    phase_name(mine->phase), self->timeout_s, where);
    } else {
        g_autofree char *name = name_rank(self, first);
        g_set_error(error, REFIT_ERROR, (gint)code_of(&all[first]), "%s: %.*s", name,
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

/* A part of what a rank says, and on rank 0 where those of all go. */
typedef struct {
    gconstpointer mine;
    gsize bytes;
    gpointer all; /* NULL elsewhere */
    gsize stride;
} Part;

/* Gathers parts, one after the other in one record; `came` is of rank 0. */
static gboolean hear(RefitGpuRank *self, const Part *parts, guint n, guint8 *came, GError **error) {
    g_autoptr(GByteArray) mine = g_byte_array_new();
    g_autofree guint8 *all = NULL;

    for (guint p = 0; p < n; p++)
        g_byte_array_append(mine, parts[p].mine, (guint)parts[p].bytes);
    if (came != NULL)
        all = g_malloc0_n(self->n_ranks, mine->len);
    if (!self->peers.gather(self->peers.user_data, mine->data, mine->len, all, came, patience(self),
                            error)) {
        self->broken = TRUE;
        return FALSE;
    }
    for (guint r = 0; all != NULL && r < self->n_ranks; r++) {
        const guint8 *from = all + (gsize)r * mine->len;
        for (guint p = 0; came[r] != 0 && p < n; from += parts[p++].bytes)
            memcpy((guint8 *)parts[p].all + r * parts[p].stride, from, parts[p].bytes);
    }
    return TRUE;
}

/* The heads of all records; with the first of them, places. */
static gboolean hear_heads(RefitGpuRank *self, const RefitGpuRecord *mine, RefitGpuRecord *all,
                           guint8 *came, GError **error) {
    const Part parts[] = {
        {mine, REFIT_GPU_HEAD_BYTES, all, sizeof *all},
        {&self->place, sizeof self->place, self->places, sizeof self->place},
    };

    if (!hear(self, parts, self->introduces ? 2 : 1, came, error))
        return FALSE;
    if (self->introduces && self->places != NULL)
        refit_gpu_places_heard(self);
    self->introduces = FALSE;
    return TRUE;
}

static GError *unheard(const RefitGpuVerdict *verdict) {
    return g_error_new(REFIT_ERROR, (gint)verdict->failed - 1,
                       "rank %u: it has failed, and has not said why", verdict->rank);
}

/* Some rank has failed: why. Those that go away meanwhile leave it unsaid. FALSE: nobody can be
 * heard any more. */
static gboolean hear_why(RefitGpuRank *self, const RefitGpuRecord *mine, RefitGpuRecord *all) {
    g_autofree guint8 *came = all != NULL ? g_new0(guint8, self->n_ranks) : NULL;

    const Part rest = {mine->peers, sizeof *mine - REFIT_GPU_HEAD_BYTES,
                       all != NULL ? all->peers : NULL, sizeof *all};

    if (!hear(self, &rest, 1, came, NULL))
        return FALSE;
    for (guint r = 0; all != NULL && r < self->n_ranks; r++) {
        all[r].text[REFIT_GPU_TEXT - 1] = '\0';
        if (all[r].failed != 0 && all[r].text[0] == '\0')
            g_strlcpy(all[r].text, "it has failed, and has not said why", REFIT_GPU_TEXT);
    }
    return TRUE;
}

/* On rank 0: what is wrong with the heads of all ranks. NULL: nothing, or that a rank has failed,
 * which the verdict says then. */
static GError *judge_heads(const RefitGpuRank *self, const RefitGpuRecord *mine,
                           const RefitGpuRecord *all, const guint8 *came, RefitGpuJudge judge,
                           RefitGpuVerdict *verdict) {
    g_autofree char *absent = list_absent(self, came);
    GError *found = NULL;

    verdict->breaks = absent != NULL;
    if (absent != NULL)
        return g_error_new(REFIT_ERROR, REFIT_ERROR_BACKEND, "%s: %s did not report within %g s",
                           phase_name(mine->phase), absent, self->timeout_s);
    if (!check_phases(self, mine, all, &found))
        return found;
    for (guint r = 0; r < self->n_ranks; r++)
        if (all[r].failed != 0) {
            *verdict = (RefitGpuVerdict){.failed = all[r].failed, .asks_why = 1, .rank = r};
            return NULL;
        }
    if (judge != NULL && !judge(self, all, &found))
        g_assert(found != NULL);
    return found;
}

/* The error of rank 0, `found` there, on all ranks; what each knows where that cannot be told. */
static GError *share_error(RefitGpuRank *self, const RefitGpuVerdict *verdict,
                           const GError *found) {
    struct {
        guint32 code;
        char text[REFIT_GPU_VERDICT_TEXT];
    } told = {.code = 0};

    if (found != NULL) {
        told.code = (guint32)found->code;
        put_text(told.text, sizeof told.text, found->message);
    }
    if (!refit_gpu_spread(self, &told, sizeof told, NULL) && found == NULL)
        return unheard(verdict);
    told.text[sizeof told.text - 1] = '\0';
    return g_error_new_literal(REFIT_ERROR, (gint)told.code, told.text);
}

/* Rank 0's verdict over what all have said, with its reasons. */
static gboolean hear_verdict(RefitGpuRank *self, const RefitGpuRecord *mine, RefitGpuRecord *all,
                             const guint8 *came, RefitGpuJudge judge, GError **error) {
    RefitGpuVerdict verdict = {0};
    g_autoptr(GError) found = NULL;

    if (all != NULL)
        found = judge_heads(self, mine, all, came, judge, &verdict);
    if (found != NULL)
        verdict.failed = 1 + (guint32)found->code;
    if (!refit_gpu_spread(self, &verdict, sizeof verdict, found == NULL ? error : NULL)) {
        if (found != NULL)
            g_propagate_error(error, g_steal_pointer(&found));
        return FALSE;
    }
    if (verdict.failed == 0)
        return TRUE;
    self->broken |= verdict.breaks != 0;
    if (verdict.asks_why != 0 && !hear_why(self, mine, all)) {
        g_propagate_error(error, unheard(&verdict));
        return FALSE;
    }
    if (verdict.asks_why != 0 && all != NULL)
        judge_failures(self, mine, all, &found);
    g_propagate_error(error, share_error(self, &verdict, found));
    return FALSE;
}

/* What would stay unsaid, as rank 0 could not ask for it. */
static void add_own(GError **error, const GError *own) {
    if (error == NULL)
        return;
    char *text = g_strdup_printf("%s; this rank: %s", (*error)->message, own->message);
    g_free((*error)->message);
    (*error)->message = text;
}

gboolean refit_gpu_agree(RefitGpuRank *self, RefitGpuRecord *mine, GError *failure,
                         RefitGpuJudge judge, GError **error) {
    g_autoptr(GError) own = failure;
    const gboolean judges = self->rank == 0;
    g_autofree RefitGpuRecord *all = judges ? g_new0(RefitGpuRecord, self->n_ranks) : NULL;
    g_autofree guint8 *came = judges ? g_new0(guint8, self->n_ranks) : NULL;

    if (own != NULL) {
        if (self->informed) { /* the error came from another rank */
            self->broken = TRUE;
            g_propagate_error(error, g_steal_pointer(&own));
            return FALSE;
        }
        /* Those whose time is over come at the same time, and together know whom they wait for. */
        if (self->peers.fail != NULL && (mine->stuck == 0 || !refit_gpu_is_late(self))) {
            if (mine->stuck != 0 && mine->n_peers > 0) {
                g_autofree char *where = describe_stuck(self, mine, self->rank, 1);
                g_prefix_error(&own, "%s: ", where);
            }
            return fail_at_once(self, g_steal_pointer(&own), error);
        }
        mine->failed = 1 + (own->domain == REFIT_ERROR ? (guint32)own->code : REFIT_ERROR_BACKEND);
        put_text(mine->text, sizeof mine->text, own->message);
    }
    if (hear_heads(self, mine, all, came, error) &&
        hear_verdict(self, mine, all, came, judge, error))
        return TRUE;
    if (own != NULL && self->broken)
        add_own(error, own);
    return FALSE;
}

gboolean refit_gpu_spread(RefitGpuRank *self, gpointer bytes, gsize size, GError **error) {
    if (self->peers.broadcast(self->peers.user_data, bytes, size, patience(self), error))
        return TRUE;
    self->broken = TRUE;
    return FALSE;
}
