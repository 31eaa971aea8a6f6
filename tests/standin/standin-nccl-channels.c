/*
 * Channels: how many a communicator has, how many each message takes and which, after NCCL 2.28.9's
 * source (lines are given at each rule) and nothing else, so that what counts them elsewhere can be
 * compared with it. A channel is a block of threads (CTA) of a group's kernel.
 *
 * What NCCL finds by searching the machine's links is a constant here: the channels of collectives
 * of an H100 node with eight GPUs. Cost: a pass over the ranks per communicator, and one over the
 * parts of a message.
 */

#include "standin-nccl.h"

enum {
    /* Channels of collectives on DGX H100: 24 rings within a node, 16 between nodes; no run has
     * confirmed the latter. REFIT_STANDIN_CHANNELS states others. */
    RINGS_ONE_NODE = 24,
    RINGS_NODES = 16,
    /* Of an NVLink pair, 2 x its links (paths.cc:829); H100 has 18. */
    NVLINK_PAIR_CHANNELS = 36,
    /* Messages that a channel moves at the same time, NCCL_MAX_DEV_WORK_P2P_PER_BATCH; also ranks
     * of one group of the schedule (init.cc:766). */
    PER_BATCH = 8,
    LL_BYTES_PER_CHANNEL = 16384,   /* NCCL_P2P_LL_THRESHOLD */
    LL_STEP = 65536,                /* LL buffer of 512 KiB in 8 steps (init.cc:697) */
    MIN_COLLECTIVE_BYTES = 16 << 10 /* of a channel (enqueue.cc:529) */
};

static guint pow2_up(guint value) {
    guint power = 1;
    while (power < value) {
        power *= 2;
    }
    return power;
}

static guint log2_of(guint power) {
    guint log = 0;
    while ((1u << log) < power) {
        log++;
    }
    return log;
}

static guint reverse_bits(guint value, guint n_bits) {
    guint reversed = 0;
    for (guint i = 0; i < n_bits; i++) {
        reversed |= (value >> i & 1) << (n_bits - 1 - i);
    }
    return reversed;
}

static guint64 divide_up(guint64 a, guint64 b) {
    return (a + b - 1) / b;
}

static int greatest_divisor(int a, int b) {
    while (b != 0) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* ---- nodes ---- */

/* Numbers nodes by their first rank, and ranks within them (init.cc:1096-1120). `n_of` has an entry
 * per node. */
static void number_nodes(ncclComm_t comm, int *n_of) {
    StandinLayout *layout = &comm->layout;
    for (int rank = 0; rank < comm->n; rank++) {
        int first = 0;
        while (comm->members[first].node != comm->members[rank].node) {
            first++;
        }
        layout->node[rank] = first == rank ? layout->n_nodes++ : layout->node[first];
        layout->local[rank] = n_of[layout->node[rank]]++;
    }
}

static int rank_of(const ncclComm_t comm, int node, int local) {
    const StandinLayout *layout = &comm->layout;
    int rank = 0;
    while (layout->node[rank] != node || layout->local[rank] != local) {
        rank++;
    }
    return rank;
}

/* ---- the schedule: which peer comes in which round (init.cc:766-838) ---- */

typedef struct {
    int node, local; /* of its first rank */
} Group;

static int group_size(const ncclComm_t comm, const int *n_of) {
    int size = comm->layout.n_nodes > 1 ? PER_BATCH : comm->n;
    for (int node = 0; node < comm->layout.n_nodes; node++) {
        if (n_of[node] % size != 0) {
            size = greatest_divisor(size, n_of[node]);
        }
    }
    return size;
}

static void fill_rounds(ncclComm_t comm, const Group *groups, int n_groups, int own, int first) {
    StandinLayout *layout = &comm->layout;
    const int size = layout->group_size;
    const int local = layout->local[comm->rank] % size;
    for (int delta = 0; delta < size; delta++) {
        const Group *to = &groups[(own + first) % n_groups];
        const Group *from = &groups[(own - first + n_groups) % n_groups];
        const int round = layout->n_rounds++;
        layout->send_round[rank_of(comm, to->node, to->local + (local + delta) % size)] = round;
        layout->receive_round[rank_of(comm, from->node,
                                      from->local + (local - delta + size) % size)] = round;
    }
}

/* Groups come in the order of triangular numbers modulo a power of two: 0, 1, 3, 6, 10, ... */
static void schedule(ncclComm_t comm, const int *n_of) {
    StandinLayout *layout = &comm->layout;
    layout->group_size = group_size(comm, n_of);
    const int n_groups = comm->n / layout->group_size;
    const guint modulus = pow2_up((guint)n_groups);
    g_autofree Group *groups = g_new0(Group, (gsize)n_groups);
    int n = 0, own = 0;

    for (int node = 0; node < layout->n_nodes; node++) {
        for (int local = 0; local < n_of[node]; local += layout->group_size) {
            if (node == layout->node[comm->rank] &&
                local / layout->group_size == layout->local[comm->rank] / layout->group_size) {
                own = n;
            }
            groups[n++] = (Group){node, local};
        }
    }
    for (guint i = 0, delta = 0; i < modulus; delta = (delta + ++i) % modulus) {
        if (delta < (guint)n_groups) {
            fill_rounds(comm, groups, n_groups, own, (int)delta);
        }
    }
}

/* ---- how many channels ---- */

/* Of collectives (connect.cc:487-492). */
static guint count_rings(const ncclComm_t comm) {
    const guint stated = standin_options()->channels;
    const guint found = stated > 0                  ? stated
                        : comm->layout.n_nodes == 1 ? RINGS_ONE_NODE
                                                    : RINGS_NODES;
    return MAX(MIN(found, (guint)comm->config.max_ctas), (guint)comm->config.min_ctas);
}

/* Of a pair of ranks on different nodes (paths.cc:833-850): as asked, else two, halved while all
 * ranks together would need more than four times the channels. The network's bandwidth asks for no
 * more where the GPU reaches its NIC through a PCIe switch, as on DGX H100. */
static guint count_of_net_pair(const ncclComm_t comm, guint n_channels) {
    if (comm->config.channels_per_net_peer > 0) {
        return (guint)comm->config.channels_per_net_peer;
    }
    return 2 * (guint)comm->n > 4 * n_channels ? 1 : 2;
}

/* Of all messages, and of each (paths.cc:861-890): the least of all pairs, in powers of two. */
static void count_channels(ncclComm_t comm, int most_per_node) {
    const StandinNcclParams *params = standin_nccl_params();
    StandinLayout *layout = &comm->layout;
    layout->n_collective = count_rings(comm);
    guint n = layout->n_collective;
    n = (guint)CLAMP(params->max_p2p_channels, 1, n);
    n = (guint)CLAMP(params->min_p2p_channels, n, STANDIN_MAX_CHANNELS);
    guint least = n;
    if (most_per_node > 1) {
        least = MIN(least, NVLINK_PAIR_CHANNELS);
    }
    if (layout->n_nodes > 1) {
        least = MIN(least, count_of_net_pair(comm, n));
    }
    layout->n_channels = pow2_up(n);
    layout->per_peer = MIN(pow2_up(least), layout->n_channels);
}

void standin_layout_init(ncclComm_t comm) {
    StandinLayout *layout = &comm->layout;
    g_autofree int *n_of = g_new0(int, (gsize)comm->n);
    int most = 1;

    layout->node = g_new0(int, (gsize)comm->n);
    layout->local = g_new0(int, (gsize)comm->n);
    layout->send_round = g_new0(int, (gsize)comm->n);
    layout->receive_round = g_new0(int, (gsize)comm->n);
    number_nodes(comm, n_of);
    for (int node = 0; node < layout->n_nodes; node++) {
        most = MAX(most, n_of[node]);
    }
    schedule(comm, n_of);
    count_channels(comm, most);
    /* init.cc:716-721: an eighth of NCCL_BUFFSIZE, 4 MiB, at most. */
    layout->chunk = (guint64)MIN(layout->n_nodes > 1 ? standin_nccl_params()->net_chunk
                                                     : standin_nccl_params()->nvlink_chunk,
                                 512 << 10);
}

void standin_layout_clear(ncclComm_t comm) {
    g_free(comm->layout.node);
    g_free(comm->layout.local);
    g_free(comm->layout.send_round);
    g_free(comm->layout.receive_round);
}

gboolean standin_is_near(const ncclComm_t comm, int peer) {
    return comm->layout.node[peer] == comm->layout.node[comm->rank];
}

/* ---- of a message ---- */

/* Channel of its first part (channel.h:19-31). */
static guint base_of(const StandinLayout *layout, int round) {
    guint base = (guint)round;
    if (layout->n_nodes > 1) {
        const guint size = (guint)layout->group_size;
        base = (guint)round / size * (guint)divide_up(size, PER_BATCH) +
               (guint)round % size / PER_BATCH;
    }
    return reverse_bits(base, log2_of(layout->n_channels));
}

/* enqueue.cc:820-838, 891-901, 1053-1056. */
guint standin_parts_of(const ncclComm_t comm, int peer, guint64 bytes) {
    const StandinLayout *layout = &comm->layout;
    const gboolean several = layout->n_nodes > 1;
    const gboolean low_latency = peer != comm->rank && standin_is_near(comm, peer) &&
                                 bytes <= (guint64)layout->per_peer * LL_BYTES_PER_CHANNEL;
    const guint64 step = low_latency ? LL_STEP : layout->chunk;
    const guint64 min_part = several ? step / 2 : step / 8;
    const guint64 max_part = several ? step : step * 32;
    guint n_min = layout->per_peer;

    if (bytes == 0) {
        return 1;
    }
    while (n_min * (guint)comm->n > layout->n_channels && n_min > 1) {
        n_min /= 2;
    }
    guint n = (guint)MIN((guint64)n_min, divide_up(bytes, min_part));
    guint64 part = MAX(min_part, divide_up(bytes, n));
    while (part > max_part && n <= layout->per_peer / 2) {
        n *= 2;
        part = divide_up(bytes, n);
    }
    return n;
}

guint standin_channel_of(const ncclComm_t comm, int peer, gboolean is_send, guint part) {
    const StandinLayout *layout = &comm->layout;
    const int round = is_send ? layout->send_round[peer] : layout->receive_round[peer];
    return (base_of(layout, round) + part) % layout->n_channels;
}

uint64_t standin_message_channels(const struct ncclComm *comm, int peer, int is_send,
                                  uint64_t bytes) {
    const ncclComm_t whole = (ncclComm_t)(uintptr_t)comm;
    const guint n = standin_parts_of(whole, peer, bytes);
    uint64_t channels = 0;
    for (guint part = 0; part < n; part++) {
        channels |= UINT64_C(1) << standin_channel_of(whole, peer, is_send != 0, part);
    }
    return channels;
}

/* ---- of a group ---- */

/* A collective takes its first channels, one for each 16 KiB that it moves; here each of its
 * messages counts for itself. NCCL's own choice depends on its model of the machine. */
static uint64_t collective_channels(const ncclComm_t comm, guint64 bytes) {
    const guint64 n = CLAMP(divide_up(bytes, MIN_COLLECTIVE_BYTES), 1, comm->layout.n_collective);
    return n == STANDIN_MAX_CHANNELS ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

uint64_t standin_parts_channels(const ncclComm_t comm, const StandinPart *parts, guint n) {
    uint64_t channels = 0;
    for (guint i = 0; i < n; i++) {
        channels |=
            parts[i].kind == STANDIN_SEND_RECEIVE
                ? standin_message_channels(comm, parts[i].peer, parts[i].is_send, parts[i].size)
                : collective_channels(comm, parts[i].size);
    }
    return channels;
}

/* ---- for tests ---- */

void standin_channels(const struct ncclComm *comm, StandinChannels *channels_out) {
    const StandinLayout *layout = &comm->layout;
    *channels_out = (StandinChannels){
        .nodes = (unsigned)layout->n_nodes,
        .channels = layout->n_channels,
        .per_peer = layout->per_peer,
        .collective = layout->n_collective,
        .chunk = layout->chunk,
    };
}

uint64_t standin_group_channels(const struct ncclComm *comm) {
    return comm->group_channels;
}

unsigned standin_group_ctas(const struct ncclComm *comm) {
    return (unsigned)__builtin_popcountll(comm->group_channels);
}
