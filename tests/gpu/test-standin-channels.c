/*
 * Channels of the CPU stand-in's communicators: numbers and places worked out by hand from NCCL
 * 2.28.9's rules, for one node, for several, with a config and with the environment; and what a
 * config may ask for.
 */

#include "standin-child.h"

#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static const char *const two_hosts[] = {"REFIT_STANDIN_DEVICES=16", "REFIT_STANDIN_HOST_DEVICES=8",
                                        NULL};
static const char *const eight_hosts[] = {"REFIT_STANDIN_DEVICES=64",
                                          "REFIT_STANDIN_HOST_DEVICES=8", NULL};

/* Channels `from` to `from` + n - 1. */
static uint64_t run_of(unsigned from, unsigned n) {
    return ((UINT64_C(1) << n) - 1) << from;
}

static void expect(ncclComm_t comm, unsigned nodes, unsigned channels, unsigned per_peer) {
    StandinChannels found;
    standin_channels(comm, &found);
    if (found.nodes != nodes || found.channels != channels || found.per_peer != per_peer) {
        g_printerr("%u nodes, %u channels, %u per peer\n", found.nodes, found.channels,
                   found.per_peer);
    }
    CHECK(found.nodes == nodes && found.channels == channels && found.per_peer == per_peer);
}

static void expect_count(ncclComm_t comm, int peer, uint64_t bytes, int n) {
    CHECK(__builtin_popcountll(standin_message_channels(comm, peer, TRUE, bytes)) == n);
}

/* ---- one node ---- */

static void rank_one_node(Rank *rank) {
    const int next = (rank->rank + 1) % 8;
    StandinChannels found;
    expect(rank->comm, 1, 32, 32);
    standin_channels(rank->comm, &found);
    CHECK(found.collective == 24 && found.chunk == 512 * KIB);
    /* Low latency: parts of 8 KiB at least, up to 32 x 16 KiB. */
    expect_count(rank->comm, next, 0, 1);
    expect_count(rank->comm, next, 1, 1);
    expect_count(rank->comm, next, 8 * KIB, 1);
    expect_count(rank->comm, next, 8 * KIB + 1, 2);
    expect_count(rank->comm, next, 24 * KIB + 1, 4);
    expect_count(rank->comm, next, 512 * KIB, 4);
    /* Four channels until a part is above 16 MiB. */
    expect_count(rank->comm, next, 512 * KIB + 1, 4);
    expect_count(rank->comm, next, 3700000, 4);
    expect_count(rank->comm, next, 64 * MIB, 4);
    expect_count(rank->comm, next, 64 * MIB + 1, 8);
    expect_count(rank->comm, next, 128 * MIB + 1, 16);
    expect_count(rank->comm, next, 256 * MIB + 1, 32);
    expect_count(rank->comm, next, 100 * GIB, 32);
    /* To the rank itself without low latency: parts of 64 KiB at least. */
    expect_count(rank->comm, rank->rank, 64 * KIB, 1);
    expect_count(rank->comm, rank->rank, 64 * KIB + 1, 2);
}

/* The rounds' numbers with their five bits reversed. */
static void rank_one_node_places(Rank *rank) {
    const unsigned bases[8] = {0, 16, 8, 24, 4, 20, 12, 28};
    uint64_t all = 0;
    for (int round = 0; round < 8; round++) {
        const int to = (rank->rank + round) % 8;
        const int from = (rank->rank - round + 8) % 8;
        const uint64_t channels = run_of(bases[round], 4);
        CHECK(standin_message_channels(rank->comm, to, TRUE, 3700000) == channels);
        CHECK(standin_message_channels(rank->comm, from, FALSE, 3700000) == channels);
        all |= round > 0 ? channels : 0;
    }
    CHECK(all == run_of(4, 28)); /* seven peers share none */
}

static void body_one_node(void) {
    ranks_run(8, RANKS_AS_THREADS, rank_one_node);
    ranks_run(8, RANKS_AS_THREADS, rank_one_node_places);
}

static void test_one_node(void) {
    child_passes(body_one_node, NULL);
}

static void rank_few(Rank *rank) {
    expect(rank->comm, 1, 32, 32);
    expect_count(rank->comm, 1 - rank->rank, 512 * KIB, 16); /* 32, halved while two need more */
    expect_count(rank->comm, 1 - rank->rank, 256 * MIB, 16);
    expect_count(rank->comm, 1 - rank->rank, 256 * MIB + 1, 32);
}

static void body_few(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_few);
}

static void test_few(void) {
    child_passes(body_few, NULL);
}

/* 64 GPUs of one domain: one channel up to 16 MiB. */
static void rank_domain(Rank *rank) {
    const int next = (rank->rank + 1) % 64;
    expect(rank->comm, 1, 32, 32);
    expect_count(rank->comm, next, 3700000, 1);
    expect_count(rank->comm, next, 16 * MIB, 1);
    expect_count(rank->comm, next, 16 * MIB + 1, 2);
    expect_count(rank->comm, next, 64 * MIB, 4);
    /* Round 33 is 100001 in bits, of which five are left. */
    CHECK(standin_message_channels(rank->comm, (rank->rank + 33) % 64, TRUE, 3700000) ==
          run_of(16, 1));
}

static void body_domain(void) {
    ranks_run(64, RANKS_AS_THREADS, rank_domain);
}

static void test_domain(void) {
    const char *const hosts[] = {"REFIT_STANDIN_DEVICES=64", NULL};
    const char *const group[] = {"REFIT_STANDIN_DEVICES=64", "REFIT_STANDIN_HOST_DEVICES=4",
                                 "REFIT_STANDIN_FAST_GROUP=domain", NULL};
    child_passes(body_domain, hosts);
    child_passes(body_domain, group);
}

/* ---- several nodes ---- */

static void rank_two_hosts(Rank *rank) {
    const int near = rank->rank ^ 1;
    const int far = (rank->rank + 8) % 16;
    StandinChannels found;
    expect(rank->comm, 2, 16, 2); /* NVLink pairs get no more than network pairs */
    standin_channels(rank->comm, &found);
    CHECK(found.collective == 16 && found.chunk == 128 * KIB);
    for (int i = 0; i < 2; i++) {
        const int peer = i == 0 ? near : far;
        const unsigned base = i == 0 ? 0 : 8;
        for (int is_send = 0; is_send < 2; is_send++) {
            CHECK(standin_message_channels(rank->comm, peer, is_send, 0) == run_of(base, 1));
            CHECK(standin_message_channels(rank->comm, peer, is_send, 128 * KIB) ==
                  run_of(base, 1));
            CHECK(standin_message_channels(rank->comm, peer, is_send, 128 * KIB + 1) ==
                  run_of(base, 2));
            CHECK(standin_message_channels(rank->comm, peer, is_send, GIB) == run_of(base, 2));
        }
    }
}

static void body_two_hosts(void) {
    ranks_run(16, RANKS_AS_THREADS, rank_two_hosts);
}

static void test_two_hosts(void) {
    child_passes(body_two_hosts, two_hosts);
}

static void rank_two_hosts_processes(Rank *rank, const ncclUniqueId *id) {
    g_setenv("NCCL_HOSTID", rank->rank < 8 ? "a" : "b", TRUE);
    NCCL(ncclCommInitRank(&rank->comm, rank->n, *id, rank->rank));
    rank_two_hosts(rank);
    /* None leaves before all have come. */
    cudaStream_t stream = stream_new();
    char *all = device_new(16, 0);
    NCCL(ncclAllGather(all + rank->rank, all, 1, ncclUint8, rank->comm, stream));
    device_expect(stream, all, 16, 0);
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(all));
    NCCL(ncclCommDestroy(rank->comm));
}

static void body_two_hosts_processes(void) {
    ranks_run_bare(16, RANKS_AS_PROCESSES, rank_two_hosts_processes);
}

static void test_two_hosts_processes(void) {
    const char *const memory[] = {"REFIT_STANDIN_DEVICES=16", NULL};
    const char *const tcp[] = {"REFIT_STANDIN_DEVICES=16", "REFIT_STANDIN_TRANSPORT=tcp", NULL};
    child_passes(body_two_hosts_processes, memory);
    child_passes(body_two_hosts_processes, tcp);
}

/* Nodes come at distances 0, 1, 3, 6, 2, 7, 5, 4; their positions in that order, reversed in four
 * bits, are the channels, one for all eight ranks of a node. */
static void rank_eight_hosts(Rank *rank) {
    const unsigned channel_of[8] = {0, 8, 2, 4, 14, 6, 12, 10}; /* per distance */
    const int node = rank->rank / 8;
    expect(rank->comm, 8, 16, 1);
    for (int peer = 0; peer < 64; peer++) {
        const int ahead = (peer / 8 - node + 8) % 8;
        const int behind = (node - peer / 8 + 8) % 8;
        CHECK(standin_message_channels(rank->comm, peer, TRUE, GIB) ==
              run_of(channel_of[ahead], 1));
        CHECK(standin_message_channels(rank->comm, peer, FALSE, GIB) ==
              run_of(channel_of[behind], 1));
    }
}

static void body_eight_hosts(void) {
    ranks_run(64, RANKS_AS_THREADS, rank_eight_hosts);
}

static void test_eight_hosts(void) {
    child_passes(body_eight_hosts, eight_hosts);
}

/* Two channels up to 32 ranks, one above. */
static void rank_32(Rank *rank) {
    expect(rank->comm, 4, 16, 2);
}

static void rank_40(Rank *rank) {
    expect(rank->comm, 5, 16, 1);
}

/* Six GPUs a host: groups of two in the schedule, of which those at distances 0 and 1 are near. */
static void rank_six_a_host(Rank *rank) {
    const unsigned bases[6] = {0, 8, 12, 4, 10, 2}; /* per distance in groups: 0 1 3 2 5 4 */
    expect(rank->comm, 2, 16, 2);
    for (int peer = 0; peer < 12; peer++) {
        const int ahead = (peer / 2 - rank->rank / 2 + 6) % 6;
        CHECK(standin_message_channels(rank->comm, peer, TRUE, GIB) == run_of(bases[ahead], 2));
    }
}

static void body_32(void) {
    ranks_run(32, RANKS_AS_THREADS, rank_32);
}

static void body_40(void) {
    ranks_run(40, RANKS_AS_THREADS, rank_40);
}

static void body_six_a_host(void) {
    ranks_run(12, RANKS_AS_THREADS, rank_six_a_host);
}

static void test_scale(void) {
    const char *const six[] = {"REFIT_STANDIN_DEVICES=12", "REFIT_STANDIN_HOST_DEVICES=6", NULL};
    child_passes(body_32, eight_hosts);
    child_passes(body_40, eight_hosts);
    child_passes(body_six_a_host, six);
}

/* ---- a group's CTAs ---- */

static void group(Rank *rank, char *bytes, size_t size, int to, int from) {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(bytes, size, ncclUint8, to, rank->comm, rank->stream));
    NCCL(ncclRecv(bytes + size, size, ncclUint8, from, rank->comm, rank->stream));
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(rank->stream));
}

/* To the next and from the one before are of one round; to and from the next are not. */
static void rank_group(Rank *rank) {
    const int next = (rank->rank + 1) % 8;
    char *bytes = device_new(64 * KIB, rank->rank);
    CHECK(standin_group_ctas(rank->comm) == 0);
    group(rank, bytes, 32 * KIB, next, (rank->rank + 7) % 8);
    CHECK(standin_group_channels(rank->comm) == run_of(16, 4));
    CHECK(standin_group_ctas(rank->comm) == 4);
    group(rank, bytes, 100, rank->rank ^ 1, rank->rank ^ 1);
    CHECK(standin_group_channels(rank->comm) == (run_of(16, 1) | run_of(28, 1)));
    group(rank, bytes, 100, rank->rank, rank->rank);
    CHECK(standin_group_channels(rank->comm) == 1);
    NCCL(ncclBroadcast(bytes, bytes, 32 * KIB + 1, ncclUint8, 0, rank->comm, rank->stream));
    CUDA(cudaStreamSynchronize(rank->stream));
    CHECK(standin_group_channels(rank->comm) == run_of(0, 3));
    CUDA(cudaFree(bytes));
}

static void body_group(void) {
    ranks_run(8, RANKS_AS_THREADS, rank_group);
}

static void test_group(void) {
    child_passes(body_group, NULL);
}

/* ---- config and environment ---- */

static int asked_min, asked_max, asked_net;
static unsigned expected_channels, expected_per_peer;

static void rank_config(Rank *rank, const ncclUniqueId *id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t child;
    config.minCTAs = asked_min;
    config.maxCTAs = asked_max;
    config.nChannelsPerNetPeer = asked_net;
    NCCL(ncclCommInitRankConfig(&rank->comm, rank->n, *id, rank->rank, &config));
    expect(rank->comm, 2, expected_channels, expected_per_peer);
    /* A split without a config copies it, one with a config inherits nothing. */
    NCCL(ncclCommSplit(rank->comm, 0, rank->rank, &child, NULL));
    expect(child, 2, expected_channels, expected_per_peer);
    NCCL(ncclCommDestroy(child));
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    NCCL(ncclCommSplit(rank->comm, 0, rank->rank, &child, &config));
    expect(child, 2, 16, 2);
    NCCL(ncclCommDestroy(child));
    NCCL(ncclCommDestroy(rank->comm));
}

static void run_config(int min, int max, int net, unsigned channels, unsigned per_peer) {
    asked_min = min;
    asked_max = max;
    asked_net = net;
    expected_channels = channels;
    expected_per_peer = per_peer;
    ranks_run_bare(16, RANKS_AS_THREADS, rank_config);
}

static void body_config(void) {
    const int none = NCCL_CONFIG_UNDEF_INT;
    run_config(none, none, none, 16, 2);
    run_config(none, none, 4, 16, 4);
    run_config(none, none, 3, 16, 4); /* a power of two */
    run_config(none, none, 64, 16, 16);
    run_config(none, 12, none, 16, 2);
    run_config(none, 8, none, 8, 2);
    run_config(none, 7, none, 8, 1); /* 2 x 16 > 4 x 7 */
    run_config(none, 1, 4, 1, 1);
    run_config(none, 100, none, 16, 2); /* no more than there are */
    run_config(17, 64, none, 32, 2);
}

static void test_config(void) {
    child_passes(body_config, two_hosts);
}

static void rank_split_node(Rank *rank) {
    ncclComm_t node;
    expect(rank->comm, 2, 16, 2);
    NCCL(ncclCommSplit(rank->comm, rank->rank / 8, rank->rank, &node, NULL));
    expect(node, 1, 32, 32);
    NCCL(ncclCommDestroy(node));
}

static void body_split_node(void) {
    ranks_run(16, RANKS_AS_THREADS, rank_split_node);
}

static void test_split_node(void) {
    child_passes(body_split_node, two_hosts);
}

static void rank_environment(Rank *rank) {
    expect(rank->comm, 2, expected_channels, expected_per_peer);
}

static void body_environment_8_4(void) {
    expected_channels = 8;
    expected_per_peer = 4;
    ranks_run(16, RANKS_AS_THREADS, rank_environment);
}

static void body_environment_64_2(void) {
    expected_channels = 64;
    expected_per_peer = 2;
    ranks_run(16, RANKS_AS_THREADS, rank_environment);
}

static void run_with(void (*body)(void), const char *first, const char *second) {
    const char *const environment[] = {two_hosts[0], two_hosts[1], first, second, NULL};
    child_passes(body, environment);
}

static void test_environment(void) {
    run_with(body_environment_8_4, "NCCL_MAX_CTAS=8", "NCCL_NCHANNELS_PER_NET_PEER=4");
    run_with(body_environment_8_4, "NCCL_MAX_P2P_NCHANNELS=8", "NCCL_NCHANNELS_PER_NET_PEER=4");
    run_with(body_environment_8_4, "REFIT_STANDIN_CHANNELS=8", "NCCL_NCHANNELS_PER_NET_PEER=4");
    run_with(body_environment_64_2, "NCCL_MIN_P2P_NCHANNELS=40", NULL);
    run_with(body_environment_64_2, "NCCL_MIN_CTAS=33", NULL);
    run_with(body_environment_64_2, "REFIT_STANDIN_CHANNELS=64", "NCCL_MAX_CTAS=0");
}

/* ---- what is refused ---- */

/* Whether a communicator of one rank is made with that config. */
static gboolean is_made(const ncclConfig_t *given) {
    ncclConfig_t config = *given;
    ncclUniqueId id;
    ncclComm_t comm;
    NCCL(ncclGetUniqueId(&id));
    const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    if (result == ncclSuccess) {
        NCCL(ncclCommDestroy(comm));
        return TRUE;
    }
    CHECK(result == ncclInvalidArgument && comm == NULL);
    return FALSE;
}

#define EXPECT_FIELD(field, value, made)                                                           \
    do {                                                                                           \
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;                                             \
        config.field = (value);                                                                    \
        CHECK(is_made(&config) == (made));                                                         \
    } while (0)

static void body_refused(void) {
    EXPECT_FIELD(blocking, 1, TRUE);
    EXPECT_FIELD(blocking, 2, FALSE);
    EXPECT_FIELD(cgaClusterSize, 0, TRUE);
    EXPECT_FIELD(cgaClusterSize, -1, FALSE);
    EXPECT_FIELD(maxCTAs, 1, TRUE);
    EXPECT_FIELD(maxCTAs, 0, FALSE);
    EXPECT_FIELD(minCTAs, 1, FALSE); /* alone: above an undefined maxCTAs */
    EXPECT_FIELD(splitShare, 2, FALSE);
    EXPECT_FIELD(collnetEnable, -1, FALSE);
    EXPECT_FIELD(CTAPolicy, 2, TRUE);
    EXPECT_FIELD(CTAPolicy, 3, FALSE);
    EXPECT_FIELD(shrinkShare, 2, FALSE);
    EXPECT_FIELD(nvlsCTAs, 0, FALSE);
    EXPECT_FIELD(nChannelsPerNetPeer, 64, TRUE);
    EXPECT_FIELD(nChannelsPerNetPeer, 65, FALSE);
    EXPECT_FIELD(nChannelsPerNetPeer, 0, FALSE);
    EXPECT_FIELD(nvlinkCentricSched, 2, FALSE);
    EXPECT_FIELD(magic, 0, FALSE);
    CHECK(strstr(ncclGetLastError(NULL), "NCCL_CONFIG_INITIALIZER") != NULL);
}

/* What a caller of an older version cannot have meant does not count. */
static void body_older(void) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.nChannelsPerNetPeer = 65;
    config.version = NCCL_VERSION(2, 27, 7);
    CHECK(is_made(&config));
    config.version = NCCL_VERSION(2, 28, 0);
    CHECK(!is_made(&config));
    config.size = offsetof(ncclConfig_t, nChannelsPerNetPeer);
    CHECK(is_made(&config));
    config.size = sizeof config + 64; /* a newer caller: what this version knows */
    CHECK(!is_made(&config));
    config.nChannelsPerNetPeer = 4;
    CHECK(is_made(&config));
}

static void rank_refused_split(Rank *rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t child = rank->comm;
    config.maxCTAs = -5;
    CHECK(ncclCommSplit(rank->comm, 0, 0, &child, &config) == ncclInvalidArgument);
    CHECK(child == NULL && strstr(ncclGetLastError(rank->comm), "min/max channels") != NULL);
    NCCL(ncclCommSplit(rank->comm, 0, 0, &child, NULL));
    NCCL(ncclCommDestroy(child));
}

static void body_refused_split(void) {
    ranks_run(2, RANKS_AS_THREADS, rank_refused_split);
}

static void test_refused(void) {
    child_passes(body_refused, NULL);
    child_passes(body_older, NULL);
    child_passes(body_refused_split, NULL);
}

int main(int argc, char **argv) {
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/channels/one-node-of-eight", test_one_node);
    g_test_add_func("/channels/two-ranks", test_few);
    g_test_add_func("/channels/a-domain-of-64", test_domain);
    g_test_add_func("/channels/two-hosts", test_two_hosts);
    g_test_add_func("/channels/two-hosts-as-processes", test_two_hosts_processes);
    g_test_add_func("/channels/eight-hosts", test_eight_hosts);
    g_test_add_func("/channels/network-peers-get-fewer-with-scale", test_scale);
    g_test_add_func("/channels/a-group-takes-the-channels-of-its-messages", test_group);
    g_test_add_func("/channels/a-config-changes-them", test_config);
    g_test_add_func("/channels/a-split-counts-its-own-nodes", test_split_node);
    g_test_add_func("/channels/the-environment-overrides", test_environment);
    g_test_add_func("/channels/wrong-configs-are-refused", test_refused);
    return g_test_run();
}
