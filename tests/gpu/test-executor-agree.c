/*
 * What ranks tell each other, with the other ranks made up: of how many bytes an agreement is, that
 * rank 0 judges all records and its verdict is what all return, that the reason of a failure is
 * heard in a second gather, what remains when a rank goes away between the two, calls that do not
 * match, and what another rank makes of a verdict.
 */

#include "gpu/executor/refit-gpu-private.h"

#include <string.h>

enum { RANKS = 4, MANY = 8192, CALLS = 4 };

/* The other ranks: what they say, and what was asked of them. */
typedef struct {
    RefitGpuRecord records[RANKS];
    RefitGpuVerdict verdict; /* of rank 0, to another */
    struct {
        guint32 code;
        char text[REFIT_GPU_VERDICT_TEXT];
    } reason;             /* likewise */
    RefitGpuVerdict told; /* by rank 0 */
    char told_text[REFIT_GPU_VERDICT_TEXT];
    guint n_gathers, n_broadcasts;
    gsize gathered[CALLS], spread[CALLS]; /* bytes of each */
    guint absent_in, absent_rank;         /* a gather counted from 1; 0: none */
    guint fails_in, mute_in;              /* a gather, a broadcast; likewise */
} Others;

static gboolean fail_call(GError **error) {
    g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "no way to the others");
    return FALSE;
}

static gboolean gather(gpointer user_data, gconstpointer mine, gsize bytes, gpointer all,
                       guint8 *came, double timeout_s, GError **error) {
    Others *others = user_data;
    /* The second one takes the rest of the records. */
    gsize from = others->n_gathers == 0 ? 0 : REFIT_GPU_HEAD_BYTES;
    guint8 *at = all;

    g_assert_cmpfloat(timeout_s, >=, 1);
    g_assert_cmpuint(others->n_gathers, <, CALLS);
    g_assert_true((all == NULL) == (came == NULL));
    others->gathered[others->n_gathers++] = bytes;
    if (others->fails_in == others->n_gathers)
        return fail_call(error);
    for (guint r = 0; at != NULL && r < RANKS; r++) {
        came[r] = others->absent_in != others->n_gathers || others->absent_rank != r;
        if (came[r])
            memcpy(at + r * bytes,
                   r == 0 ? mine : (gconstpointer)((const guint8 *)&others->records[r] + from),
                   bytes);
    }
    return TRUE;
}

/* Rank 0's bytes are kept, or those that it would say come. */
static gboolean broadcast(gpointer user_data, gpointer data, gsize bytes, double timeout_s,
                          GError **error) {
    Others *others = user_data;
    const gboolean first = others->n_broadcasts == 0;

    g_assert_cmpfloat(timeout_s, >=, 1);
    g_assert_cmpuint(others->n_broadcasts, <, CALLS);
    others->spread[others->n_broadcasts++] = bytes;
    if (others->mute_in == others->n_broadcasts)
        return fail_call(error);
    g_assert_cmpuint(bytes, ==, first ? sizeof others->verdict : sizeof others->reason);
    memcpy(first ? (gpointer)&others->told : (gpointer)&others->told_text,
           first ? (guint8 *)data : (guint8 *)data + sizeof(guint32),
           first ? bytes : bytes - sizeof(guint32));
    if (others->verdict.failed != 0)
        memcpy(data, first ? (gpointer)&others->verdict : (gpointer)&others->reason, bytes);
    return TRUE;
}

/* One of four ranks, all others well. */
static RefitGpuRank rank_of(Others *others, guint rank) {
    for (guint r = 0; r < RANKS; r++)
        refit_gpu_record_init(&others->records[r], REFIT_GPU_PHASE_PREPARE);
    return (RefitGpuRank){.rank = rank,
                          .n_ranks = RANKS,
                          .peers = {.gather = gather, .broadcast = broadcast, .user_data = others},
                          .timeout_s = 4,
                          .deadline_us = g_get_monotonic_time() + 4 * G_USEC_PER_SEC};
}

static void fail_record(RefitGpuRecord *record, RefitError code, const char *text) {
    record->failed = 1 + (guint32)code;
    g_strlcpy(record->text, text, sizeof record->text);
}

/* All return the same: what rank 0 finds is what it tells. */
static void refuse(RefitGpuRank *self, GError *failure, RefitError code, const char *message) {
    const Others *others = self->peers.user_data;
    g_autoptr(GError) error = NULL;
    RefitGpuRecord mine;

    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_PREPARE);
    g_assert_false(refit_gpu_agree(self, &mine, failure, NULL, &error));
    g_assert_error(error, REFIT_ERROR, (gint)code);
    g_assert_cmpstr(error->message, ==, message);
    if (self->rank == 0 && others->n_broadcasts == 2 && others->mute_in == 0) {
        g_assert_cmpstr(others->told_text, ==, message);
        g_assert_cmpuint(others->told.failed, ==, 1 + (guint32)code);
    }
}

static gboolean look_at_records(const RefitGpuRank *self, const RefitGpuRecord *all,
                                GError **error) {
    (void)error;
    g_assert_cmpuint(self->n_ranks, ==, RANKS);
    g_assert_cmpuint(all[0].sent, ==, 5);
    g_assert_cmpuint(all[3].same, ==, 7);
    g_assert_cmpuint(all[3].sent, ==, G_MAXUINT64);
    g_assert_cmpuint(all[3].received, ==, 9);
    return TRUE;
}

static void test_small_messages(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others, 0);
    g_autoptr(GError) error = NULL;
    RefitGpuRecord mine;

    others.records[3].same = 7;
    others.records[3].sent = G_MAXUINT64;
    others.records[3].received = 9;
    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_PREPARE);
    mine.sent = 5;
    g_assert_true(refit_gpu_agree(&self, &mine, NULL, look_at_records, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(others.n_gathers, ==, 1);
    g_assert_cmpuint(others.n_broadcasts, ==, 1);
    g_assert_cmpuint(others.gathered[0], ==, 56);
    g_assert_cmpuint(others.spread[0], ==, 16);
    g_assert_cmpuint(others.told.failed, ==, 0);
    /* What a function of a program must take, see RefitGatherFunc. */
    g_assert_cmpuint(REFIT_GPU_HEAD_BYTES + sizeof(RefitGpuPlace), <=, 512);
    g_assert_cmpuint(sizeof(RefitGpuRecord) - REFIT_GPU_HEAD_BYTES, <=, 512);
    /* Of all ranks, through rank 0. */
    g_assert_cmpuint((others.gathered[0] + others.spread[0]) * MANY, <=, 1000 * 1000);
}

static gboolean find_fault(const RefitGpuRank *self, const RefitGpuRecord *all, GError **error) {
    (void)self;
    (void)all;
    g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_COVERAGE, "they do not go together");
    return FALSE;
}

static void test_judged_by_the_caller(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others, 0);
    g_autoptr(GError) error = NULL;
    RefitGpuRecord mine;

    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_PREPARE);
    g_assert_false(refit_gpu_agree(&self, &mine, NULL, find_fault, &error));
    g_assert_error(error, REFIT_ERROR, REFIT_ERROR_COVERAGE);
    g_assert_cmpstr(error->message, ==, "they do not go together");
    g_assert_cmpstr(others.told_text, ==, "they do not go together");
    g_assert_cmpuint(others.n_gathers, ==, 1);
    g_assert_false(self.broken);
    /* Not asked where a rank has failed. */
    others = (Others){0};
    self = rank_of(&others, 0);
    fail_record(&others.records[1], REFIT_ERROR_LIMIT, "no room");
    g_clear_error(&error);
    g_assert_false(refit_gpu_agree(&self, &mine, NULL, find_fault, &error));
    g_assert_cmpstr(error->message, ==, "rank 1: no room");
}

static void test_why_another_failed(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others, 0);

    fail_record(&others.records[2], REFIT_ERROR_INFEASIBLE, "no room");
    fail_record(&others.records[3], REFIT_ERROR_BACKEND, "later");
    refuse(&self, NULL, REFIT_ERROR_INFEASIBLE, "rank 2: no room");
    g_assert_cmpuint(others.n_gathers, ==, 2);
    g_assert_cmpuint(others.gathered[0] + others.gathered[1], ==, sizeof(RefitGpuRecord));
    g_assert_cmpuint(others.n_broadcasts, ==, 2);
    g_assert_cmpuint(others.told.asks_why, ==, 1);
    g_assert_false(self.broken); /* it may go on */
}

static void test_own_failure(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others, 0);
    GString *text = g_string_new("x");
    g_autoptr(GString) cut = g_string_new("rank 0: x");

    for (guint i = 0; i < 200; i++)
        g_string_append(text, "\xc3\xa9"); /* two bytes: 255 would end inside of one */
    for (guint i = 0; i < 127; i++)
        g_string_append(cut, "\xc3\xa9");
    refuse(&self, g_error_new_literal(REFIT_ERROR, REFIT_ERROR_INVALID, text->str),
           REFIT_ERROR_INVALID, cut->str);
    g_assert_cmpuint(others.n_gathers, ==, 2);
    g_string_free(text, TRUE);
}

static void test_where_ranks_wait(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others, 0);

    for (guint r = 2; r < 4; r++) {
        fail_record(&others.records[r], REFIT_ERROR_BACKEND, "not done");
        others.records[r].stuck = 1;
        others.records[r].step = 10 - r;
        others.records[r].n_peers = 8;
        memcpy(others.records[r].peers, (const guint32[]){0, 1, 4, 5, 6, 7}, 6 * sizeof(guint32));
    }
    refuse(&self, NULL, REFIT_ERROR_BACKEND,
           "preparing has not ended within 4 s; connecting to peers: rank 3 waits for ranks 0, 1, "
           "4, 5, 6 and 7 "
           "and 2 more");
}

static void test_leaves_before_saying_why(void) {
    Others others = {.absent_in = 2, .absent_rank = 2};
    RefitGpuRank self = rank_of(&others, 0);

    fail_record(&others.records[2], REFIT_ERROR_INVALID, "never heard");
    refuse(&self, NULL, REFIT_ERROR_INVALID, "rank 2: it has failed, and has not said why");
}

static void test_no_second_gather(void) {
    Others others = {.fails_in = 2};
    RefitGpuRank self = rank_of(&others, 0);

    refuse(&self, g_error_new_literal(REFIT_ERROR, REFIT_ERROR_LIMIT, "own"), REFIT_ERROR_LIMIT,
           "rank 0: it has failed, and has not said why; this rank: own");
    g_assert_true(self.broken);
    others = (Others){.fails_in = 2};
    self = rank_of(&others, 0);
    fail_record(&others.records[3], REFIT_ERROR_INVALID, "never heard");
    refuse(&self, NULL, REFIT_ERROR_INVALID, "rank 3: it has failed, and has not said why");
}

static void test_text_without_end(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others, 0);
    g_autofree char *expected = g_strdup_printf("rank 1: %0*d", REFIT_GPU_TEXT - 1, 0);

    others.records[1].failed = 1 + REFIT_ERROR_BACKEND;
    memset(others.records[1].text, '0', REFIT_GPU_TEXT);
    refuse(&self, NULL, REFIT_ERROR_BACKEND, expected);
}

static void test_absent(void) {
    Others others = {.absent_in = 1, .absent_rank = 3};
    RefitGpuRank self = rank_of(&others, 0);

    fail_record(&others.records[2], REFIT_ERROR_INVALID, "not asked for");
    refuse(&self, NULL, REFIT_ERROR_BACKEND, "preparing: rank 3 did not report within 4 s");
    g_assert_cmpuint(others.n_gathers, ==, 1);
    g_assert_cmpuint(others.told.breaks, ==, 1);
    g_assert_true(self.broken);
}

static void test_other_call(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others, 0);

    others.records[2].phase = REFIT_GPU_PHASE_START;
    fail_record(&others.records[3], REFIT_ERROR_INVALID, "not asked for");
    refuse(&self, NULL, REFIT_ERROR_INVALID,
           "rank 0 is in preparing, rank 2 in starting a run; all ranks must make the same calls "
           "with the same version of refit");
    g_assert_cmpuint(others.n_gathers, ==, 1);
    g_assert_false(self.broken);
}

static void test_no_gather(void) {
    Others others = {.fails_in = 1};
    RefitGpuRank self = rank_of(&others, 2);

    refuse(&self, NULL, REFIT_ERROR_BACKEND, "no way to the others");
    g_assert_cmpuint(others.n_broadcasts, ==, 0);
    g_assert_true(self.broken);
}

/* ---- other ranks than 0 ---- */

static void test_verdict_is_what_all_return(void) {
    Others others = {.verdict = {.failed = 1 + REFIT_ERROR_LIMIT, .asks_why = 1, .rank = 3},
                     .reason = {REFIT_ERROR_LIMIT, "rank 3: no room"}};
    RefitGpuRank self = rank_of(&others, 2);

    refuse(&self, NULL, REFIT_ERROR_LIMIT, "rank 3: no room");
    g_assert_cmpuint(others.n_gathers, ==, 2);
    g_assert_false(self.broken);
    /* Nothing is asked where rank 0 knows all. */
    others.verdict = (RefitGpuVerdict){.failed = 1 + REFIT_ERROR_BACKEND, .breaks = 1};
    others.reason.code = REFIT_ERROR_BACKEND;
    g_strlcpy(others.reason.text, "rank 1 did not report", REFIT_GPU_VERDICT_TEXT);
    others.n_gathers = others.n_broadcasts = 0;
    refuse(&self, g_error_new_literal(REFIT_ERROR, REFIT_ERROR_LIMIT, "own"), REFIT_ERROR_BACKEND,
           "rank 1 did not report; this rank: own");
    g_assert_cmpuint(others.n_gathers, ==, 1);
    g_assert_true(self.broken);
}

static void test_no_verdict(void) {
    Others others = {.mute_in = 1};
    RefitGpuRank self = rank_of(&others, 2);

    refuse(&self, NULL, REFIT_ERROR_BACKEND, "no way to the others");
    g_assert_true(self.broken);
    others = (Others){.mute_in = 2,
                      .verdict = {.failed = 1 + REFIT_ERROR_LIMIT, .asks_why = 1, .rank = 3}};
    self = rank_of(&others, 2);
    refuse(&self, NULL, REFIT_ERROR_LIMIT, "rank 3: it has failed, and has not said why");
    g_assert_true(self.broken);
    others = (Others){.mute_in = 2}; /* rank 0 knows what it has found */
    self = rank_of(&others, 0);
    fail_record(&others.records[1], REFIT_ERROR_LIMIT, "no room");
    refuse(&self, NULL, REFIT_ERROR_LIMIT, "rank 1: no room");
}

static void test_reason_without_end(void) {
    Others others = {.verdict = {.failed = 1 + REFIT_ERROR_LIMIT},
                     .reason = {.code = REFIT_ERROR_LIMIT}};
    RefitGpuRank self = rank_of(&others, 1);
    g_autofree char *expected = g_strdup_printf("%0*d", REFIT_GPU_VERDICT_TEXT - 1, 0);

    memset(others.reason.text, '0', REFIT_GPU_VERDICT_TEXT);
    refuse(&self, NULL, REFIT_ERROR_LIMIT, expected);
}

static void test_digest(void) {
    g_assert_cmphex(refit_gpu_digest_head("0123456789abcDEF0123"), ==, 0x0123456789ABCDEFULL);
    g_assert_cmphex(refit_gpu_digest_head("ffffffffffffffff"), ==, G_MAXUINT64);
    g_assert_cmphex(refit_gpu_digest_head("1f"), ==, 0x1f);
    g_assert_cmphex(refit_gpu_digest_head(""), ==, 0);
}

/* Ranks whose communicators would have other channels must not meet on them. */
static void test_channels_are_of_the_schedule(void) {
    RefitSchedule schedule = {0}, other = {0};

    schedule.ctas[REFIT_LINK_NVLINK] = other.ctas[REFIT_LINK_NVLINK] = 8;
    g_assert_cmpuint(refit_gpu_schedule_hash(&schedule), ==, refit_gpu_schedule_hash(&other));
    other.ctas[REFIT_LINK_NVLINK] = 16;
    g_assert_cmpuint(refit_gpu_schedule_hash(&schedule), !=, refit_gpu_schedule_hash(&other));
    other = schedule;
    other.per_peer[REFIT_LINK_NETWORK] = 4;
    g_assert_cmpuint(refit_gpu_schedule_hash(&schedule), !=, refit_gpu_schedule_hash(&other));
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/agree/some-bytes-from-and-to-each-rank-when-all-is-well",
                    test_small_messages);
    g_test_add_func("/agree/records-are-judged-together-on-rank-0", test_judged_by_the_caller);
    g_test_add_func("/agree/why-another-failed-is-heard-in-a-second-gather",
                    test_why_another_failed);
    g_test_add_func("/agree/the-own-failure-is-cut-between-characters", test_own_failure);
    g_test_add_func("/agree/where-ranks-wait", test_where_ranks_wait);
    g_test_add_func("/agree/channels-are-of-the-schedule", test_channels_are_of_the_schedule);
    g_test_add_func("/agree/a-rank-leaves-before-it-says-why", test_leaves_before_saying_why);
    g_test_add_func("/agree/no-second-gather", test_no_second_gather);
    g_test_add_func("/agree/a-text-without-an-end", test_text_without_end);
    g_test_add_func("/agree/an-absent-rank-is-named-at-once", test_absent);
    g_test_add_func("/agree/another-call-is-told-at-once", test_other_call);
    g_test_add_func("/agree/no-way-to-rank-0", test_no_gather);
    g_test_add_func("/agree/the-verdict-of-rank-0-is-what-all-return",
                    test_verdict_is_what_all_return);
    g_test_add_func("/agree/without-a-verdict-ranks-say-what-they-know", test_no_verdict);
    g_test_add_func("/agree/a-reason-without-an-end", test_reason_without_end);
    g_test_add_func("/agree/digests-by-their-first-digits", test_digest);
    return g_test_run();
}
