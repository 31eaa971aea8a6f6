/*
 * What ranks tell each other, with the other ranks' records made up: how many gathers an agreement
 * takes and of how many bytes, that the reason of a failure is heard in a second one and by all,
 * what remains when a rank goes away between the two, calls that do not match, and how the bytes of
 * rank 0 reach the others.
 */

#include "gpu/executor/refit-gpu-private.h"

#include <string.h>

enum { MANY = 1000 };

/* The other ranks: what they say, and what was asked of them. */
typedef struct {
    RefitGpuRecord records[4];
    const char *spread; /* rank 0's bytes */
    guint n_gathers, n_broadcasts;
    gsize bytes[3];               /* of each gather */
    guint absent_in, absent_rank; /* a gather counted from 1; 0: none */
    guint fails_in;
} Others;

static gboolean gather(gpointer user_data, gconstpointer mine, gsize bytes, gpointer all,
                       guint8 *came, double timeout_s, GError **error) {
    Others *others = user_data;
    /* The second one takes the rest of the records. */
    gsize from = others->n_gathers == 0 ? 0 : REFIT_GPU_HEAD_BYTES;
    guint8 *at = all;

    g_assert_cmpfloat(timeout_s, >=, 1);
    g_assert_cmpuint(others->n_gathers, <, G_N_ELEMENTS(others->bytes));
    others->bytes[others->n_gathers++] = bytes;
    if (others->fails_in == others->n_gathers) {
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "no way to the others");
        return FALSE;
    }
    for (guint r = 0; r < G_N_ELEMENTS(others->records); r++) {
        came[r] = others->absent_in != others->n_gathers || others->absent_rank != r;
        if (others->spread != NULL)
            memcpy(at + r * bytes, r == 0 ? others->spread : "....", bytes);
        else if (came[r])
            memcpy(at + r * bytes,
                   r == 1 ? mine : (gconstpointer)((const guint8 *)&others->records[r] + from),
                   bytes);
    }
    return TRUE;
}

static gboolean broadcast(gpointer user_data, gpointer data, gsize bytes, GError **error) {
    Others *others = user_data;

    others->n_broadcasts++;
    if (others->fails_in > 0) {
        g_set_error_literal(error, REFIT_ERROR, REFIT_ERROR_BACKEND, "no way to the others");
        return FALSE;
    }
    memcpy(data, others->spread, bytes);
    return TRUE;
}

/* Rank 1 of four, all others well. */
static RefitGpuRank rank_of(Others *others) {
    for (guint r = 0; r < G_N_ELEMENTS(others->records); r++)
        refit_gpu_record_init(&others->records[r], REFIT_GPU_PHASE_PREPARE);
    return (RefitGpuRank){.rank = 1,
                          .n_ranks = G_N_ELEMENTS(others->records),
                          .peers = {.gather = gather, .user_data = others},
                          .timeout_s = 4,
                          .deadline_us = g_get_monotonic_time() + 4 * G_USEC_PER_SEC};
}

static void fail_record(RefitGpuRecord *record, RefitError code, const char *text) {
    record->failed = 1 + (guint32)code;
    g_strlcpy(record->text, text, sizeof record->text);
}

static void refuse(RefitGpuRank *self, GError *failure, RefitError code, const char *message) {
    g_autofree RefitGpuRecord *all = NULL;
    g_autoptr(GError) error = NULL;
    RefitGpuRecord mine;

    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_PREPARE);
    g_assert_false(refit_gpu_agree(self, &mine, failure, &all, &error));
    g_assert_null(all);
    g_assert_error(error, REFIT_ERROR, (gint)code);
    g_assert_cmpstr(error->message, ==, message);
}

static void test_one_small_gather(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others);
    g_autofree RefitGpuRecord *all = NULL;
    g_autoptr(GError) error = NULL;
    RefitGpuRecord mine;

    others.records[3].same = 7;
    others.records[3].sent = G_MAXUINT64;
    others.records[3].received = 9;
    refit_gpu_record_init(&mine, REFIT_GPU_PHASE_PREPARE);
    mine.sent = 5;
    g_assert_true(refit_gpu_agree(&self, &mine, NULL, &all, &error));
    g_assert_no_error(error);
    g_assert_cmpuint(others.n_gathers, ==, 1);
    g_assert_cmpuint(others.bytes[0], ==, 56);
    g_assert_cmpuint(all[1].sent, ==, 5);
    g_assert_cmpuint(all[3].same, ==, 7);
    g_assert_cmpuint(all[3].sent, ==, G_MAXUINT64);
    g_assert_cmpuint(all[3].received, ==, 9);
    /* All ranks' records through one place, each to each. */
    g_assert_cmpuint(others.bytes[0] * MANY * MANY, <=, 64 * 1000 * 1000);
}

static void test_why_another_failed(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others);

    fail_record(&others.records[2], REFIT_ERROR_INFEASIBLE, "no room");
    fail_record(&others.records[3], REFIT_ERROR_BACKEND, "later");
    refuse(&self, NULL, REFIT_ERROR_INFEASIBLE, "rank 2: no room");
    g_assert_cmpuint(others.n_gathers, ==, 2);
    g_assert_cmpuint(others.bytes[0] + others.bytes[1], ==, sizeof(RefitGpuRecord));
    g_assert_false(self.broken); /* it may go on */
}

static void test_own_failure(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others);
    GString *text = g_string_new("x");
    g_autoptr(GString) cut = g_string_new("rank 1: x");

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
    RefitGpuRank self = rank_of(&others);

    for (guint r = 2; r < 4; r++) {
        fail_record(&others.records[r], REFIT_ERROR_BACKEND, "not done");
        others.records[r].stuck = 1;
        others.records[r].step = 10 - r;
        others.records[r].n_peers = 8;
        memcpy(others.records[r].peers, (const guint32[]){0, 1, 4, 5, 6, 7}, 6 * sizeof(guint32));
    }
    refuse(&self, NULL, REFIT_ERROR_BACKEND,
           "preparing has not ended within 4 s; step 7: rank 3 waits for ranks 0, 1, 4, 5, 6 and 7 "
           "and 2 more");
}

static void test_leaves_before_saying_why(void) {
    Others others = {.absent_in = 2, .absent_rank = 2};
    RefitGpuRank self = rank_of(&others);

    fail_record(&others.records[2], REFIT_ERROR_INVALID, "never heard");
    refuse(&self, NULL, REFIT_ERROR_INVALID, "rank 2: it has failed, and has not said why");
}

static void test_no_second_gather(void) {
    Others others = {.fails_in = 2};
    RefitGpuRank self = rank_of(&others);

    refuse(&self, g_error_new_literal(REFIT_ERROR, REFIT_ERROR_LIMIT, "own"), REFIT_ERROR_LIMIT,
           "rank 1: own");
    g_assert_true(self.broken);
    others.n_gathers = 0;
    fail_record(&others.records[0], REFIT_ERROR_INVALID, "never heard");
    refuse(&self, NULL, REFIT_ERROR_INVALID, "rank 0: it has failed, and has not said why");
}

static void test_text_without_end(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others);
    g_autofree char *expected = g_strdup_printf("rank 0: %0*d", REFIT_GPU_TEXT - 1, 0);

    others.records[0].failed = 1 + REFIT_ERROR_BACKEND;
    memset(others.records[0].text, '0', REFIT_GPU_TEXT);
    refuse(&self, NULL, REFIT_ERROR_BACKEND, expected);
}

static void test_absent(void) {
    Others others = {.absent_in = 1, .absent_rank = 3};
    RefitGpuRank self = rank_of(&others);

    fail_record(&others.records[2], REFIT_ERROR_INVALID, "not asked for");
    refuse(&self, NULL, REFIT_ERROR_BACKEND, "preparing: rank 3 did not report within 4 s");
    g_assert_cmpuint(others.n_gathers, ==, 1);
    g_assert_true(self.broken);
}

static void test_other_call(void) {
    Others others = {0};
    RefitGpuRank self = rank_of(&others);

    others.records[2].phase = REFIT_GPU_PHASE_START;
    fail_record(&others.records[3], REFIT_ERROR_INVALID, "not asked for");
    refuse(&self, NULL, REFIT_ERROR_INVALID,
           "rank 1 is in preparing, rank 2 in starting a run; all ranks must make the same calls "
           "with the same version of refit");
    g_assert_cmpuint(others.n_gathers, ==, 1);
}

static void test_digest(void) {
    g_assert_cmphex(refit_gpu_digest_head("0123456789abcDEF0123"), ==, 0x0123456789ABCDEFULL);
    g_assert_cmphex(refit_gpu_digest_head("ffffffffffffffff"), ==, G_MAXUINT64);
    g_assert_cmphex(refit_gpu_digest_head("1f"), ==, 0x1f);
    g_assert_cmphex(refit_gpu_digest_head(""), ==, 0);
}

static void test_spread(void) {
    Others others = {.spread = "zero"};
    RefitGpuRank self = rank_of(&others);
    g_autoptr(GError) error = NULL;
    char bytes[] = "mine";

    g_assert_true(refit_gpu_spread(&self, bytes, 4, &error));
    g_assert_cmpstr(bytes, ==, "zero");
    g_assert_cmpuint(others.n_gathers, ==, 1);
    others.absent_in = 2;
    others.absent_rank = 0;
    memcpy(bytes, "mine", 4);
    g_assert_false(refit_gpu_spread(&self, bytes, 4, &error));
    g_assert_cmpstr(error->message, ==, "opening: rank 0 did not report within 4 s");
    g_assert_cmpstr(bytes, ==, "mine");
    g_assert_true(self.broken);
}

static void test_broadcast(void) {
    Others others = {.spread = "zero"};
    RefitGpuRank self = rank_of(&others);
    g_autoptr(GError) error = NULL;
    char bytes[] = "mine";

    self.peers.broadcast = broadcast;
    g_assert_true(refit_gpu_spread(&self, bytes, 4, &error));
    g_assert_cmpstr(bytes, ==, "zero");
    g_assert_cmpuint(others.n_gathers, ==, 0);
    g_assert_cmpuint(others.n_broadcasts, ==, 1);
    others.fails_in = 1;
    g_assert_false(refit_gpu_spread(&self, bytes, 4, &error));
    g_assert_cmpstr(error->message, ==, "no way to the others");
    g_assert_true(self.broken);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/agree/one-gather-of-56-bytes-when-all-is-well", test_one_small_gather);
    g_test_add_func("/agree/why-another-failed-is-heard-in-a-second-gather",
                    test_why_another_failed);
    g_test_add_func("/agree/the-own-failure-is-cut-between-characters", test_own_failure);
    g_test_add_func("/agree/where-ranks-wait", test_where_ranks_wait);
    g_test_add_func("/agree/a-rank-leaves-before-it-says-why", test_leaves_before_saying_why);
    g_test_add_func("/agree/no-second-gather", test_no_second_gather);
    g_test_add_func("/agree/a-text-without-an-end", test_text_without_end);
    g_test_add_func("/agree/an-absent-rank-is-named-at-once", test_absent);
    g_test_add_func("/agree/another-call-is-told-at-once", test_other_call);
    g_test_add_func("/agree/digests-by-their-first-digits", test_digest);
    g_test_add_func("/agree/bytes-of-rank-0-by-a-gather", test_spread);
    g_test_add_func("/agree/bytes-of-rank-0-by-a-broadcast", test_broadcast);
    return g_test_run();
}
