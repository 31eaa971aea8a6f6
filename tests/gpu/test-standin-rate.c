/*
 * The rate of NCCL's channels on the CPU stand-in: which channel carries how many bytes, and that
 * none carries them faster than stated. Times are lower bounds; what shares a channel needs the
 * sum.
 */

#include "standin-child.h"

#include <string.h>

#define MIB ((size_t)1 << 20)
#define ONE ((size_t)64 << 10) /* bytes, in 0.1 s by a channel */
#define CREDIT_US 5000         /* a channel may catch up a little */

static const char *const two_hosts[] = {"REFIT_STANDIN_DEVICES=4", "REFIT_STANDIN_HOST_DEVICES=2",
                                        "REFIT_STANDIN_CHANNEL_RATE=655360", NULL};

/* Rank 0 sends n bytes to each of `peers`. Returns how long the group took, in us. */
static gint64 send_from_0(Rank *rank, size_t n, const int *peers, int n_peers) {
    char *bytes = device_new(n, rank->rank + 1);
    gboolean receives = FALSE;
    NCCL(ncclGroupStart());
    for (int i = 0; i < n_peers; i++) {
        if (rank->rank == 0) {
            NCCL(ncclSend(bytes, n, ncclUint8, peers[i], rank->comm, rank->stream));
        } else if (rank->rank == peers[i]) {
            NCCL(ncclRecv(bytes, n, ncclUint8, 0, rank->comm, rank->stream));
            receives = TRUE;
        }
    }
    const gint64 begun_us = g_get_monotonic_time();
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(rank->stream));
    const gint64 took_us = g_get_monotonic_time() - begun_us;
    device_expect(rank->stream, bytes, n, receives ? 1 : rank->rank + 1);
    CUDA(cudaFree(bytes));
    return took_us;
}

/* Two hosts of two: 16 channels, two per peer; node 1 is at channel 8. One part of up to 128 KiB
 * has one channel. 100,000 bytes at 1 MB/s are 0.1 s. */
static void rank_alone(Rank *rank) {
    const int peers[] = {2};
    const gint64 took_us = send_from_0(rank, ONE, peers, 1);
    CHECK(rank->rank == 1 || rank->rank == 3 || took_us >= 100000 - CREDIT_US);
    for (unsigned channel = 0; channel < 64; channel++) {
        const uint64_t expected = channel == 8 ? ONE : 0;
        CHECK(standin_channel_bytes(rank->comm, TRUE, channel) == (rank->rank == 0 ? expected : 0));
        CHECK(standin_channel_bytes(rank->comm, FALSE, channel) ==
              (rank->rank == 2 ? expected : 0));
    }
    CHECK(standin_channel_bytes(rank->comm, TRUE, 64) == 0);
}

/* Both peers on the other node: one channel's rate together. */
static void rank_shared(Rank *rank) {
    const int peers[] = {2, 3};
    const gint64 took_us = send_from_0(rank, ONE, peers, 2);
    CHECK(rank->rank != 0 || took_us >= 200000 - CREDIT_US);
    CHECK(rank->rank < 2 || took_us >= 100000 - CREDIT_US);
    CHECK(rank->rank != 0 || standin_channel_bytes(rank->comm, TRUE, 8) == 2 * ONE);
    CHECK(rank->rank < 2 || standin_channel_bytes(rank->comm, FALSE, 8) == ONE);
}

/* A peer here and one there: a channel each. */
static void rank_apart(Rank *rank) {
    const int peers[] = {1, 2};
    send_from_0(rank, ONE, peers, 2);
    CHECK(rank->rank != 0 || standin_channel_bytes(rank->comm, TRUE, 8) == ONE);
    CHECK(rank->rank != 0 || standin_channel_bytes(rank->comm, TRUE, 0) == ONE);
}

/* 128 KiB and a byte in two parts, cut at 17 units of 4 KiB. */
static void rank_parts(Rank *rank) {
    const int peers[] = {3};
    const gint64 took_us = send_from_0(rank, 131073, peers, 1);
    CHECK(rank->rank != 0 || took_us >= 100000 - CREDIT_US);
    CHECK(rank->rank != 0 || standin_channel_bytes(rank->comm, TRUE, 8) == 69632);
    CHECK(rank->rank != 0 || standin_channel_bytes(rank->comm, TRUE, 9) == 61441);
    CHECK(rank->rank != 3 || standin_channel_bytes(rank->comm, FALSE, 9) == 61441);
    CHECK(rank->rank == 0 || standin_channel_bytes(rank->comm, TRUE, 9) == 0);
}

/* Messages without bytes, to the rank itself and of collectives know no rate. */
static void rank_none(Rank *rank) {
    char *bytes = device_new(2 * MIB, rank->rank);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(bytes, MIB, ncclUint8, rank->rank, rank->comm, rank->stream));
    NCCL(ncclRecv(bytes + MIB, MIB, ncclUint8, rank->rank, rank->comm, rank->stream));
    NCCL(ncclSend(bytes, 0, ncclUint8, (rank->rank + 1) % 4, rank->comm, rank->stream));
    NCCL(ncclRecv(bytes, 0, ncclUint8, (rank->rank + 3) % 4, rank->comm, rank->stream));
    NCCL(ncclGroupEnd());
    NCCL(ncclBroadcast(bytes, bytes, MIB, ncclUint8, 0, rank->comm, rank->stream));
    device_expect(rank->stream, bytes, MIB, 0);
    for (unsigned channel = 0; channel < 64; channel++) {
        CHECK(standin_channel_bytes(rank->comm, TRUE, channel) == 0);
    }
    CUDA(cudaFree(bytes));
}

static void (*chosen)(Rank *rank);

static void body_threads(void) {
    ranks_run(4, RANKS_AS_THREADS, chosen);
}

static void body_processes(void) {
    ranks_run(4, RANKS_AS_PROCESSES, chosen);
}

static void test_rate(gconstpointer data) {
    const char *const tcp[] = {two_hosts[0], two_hosts[1], two_hosts[2],
                               "REFIT_STANDIN_TRANSPORT=tcp", NULL};
    void (*const bodies[])(Rank *) = {rank_alone, rank_shared, rank_apart, rank_parts, rank_none};
    chosen = bodies[GPOINTER_TO_INT(data)];
    child_passes(body_threads, two_hosts);
    child_passes(body_processes, tcp);
}

/* A rate that says nothing, and a rate for which a word is none. */
static void body_rate_0(void) {
    ranks_run(4, RANKS_AS_THREADS, rank_none);
}

static void test_wrong(void) {
    const char *const none[] = {"REFIT_STANDIN_CHANNEL_RATE=0", NULL};
    const char *const fast[] = {"REFIT_STANDIN_CHANNEL_RATE=fast", NULL};
    child_passes(body_rate_0, none);
    child_expect(body_rate_0, fast, STANDIN_EXIT_MISUSE, "REFIT_STANDIN_CHANNEL_RATE");
}

int main(int argc, char **argv) {
    static const char *const paths[] = {
        "/rate/a-message-of-one-channel", "/rate/peers-that-share-a-channel",
        "/rate/peers-with-a-channel-each", "/rate/a-message-of-two-channels",
        "/rate/messages-without-a-rate"};
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
        g_test_add_data_func(paths[i], GUINT_TO_POINTER(i), test_rate);
    }
    g_test_add_func("/rate/a-wrong-rate-is-refused", test_wrong);
    return g_test_run();
}
