/*
 * Communicators: how many channels they may have and what their connections cost.
 *
 * A network pair gets as many channels as fill a NIC, and its communicator twice as many, so that
 * two peers on different nodes meet on different ones. (NCCL chooses the first channel of a pair by
 * the distance of their nodes, channel.h:22; peers on one node share theirs, which still fill the
 * NIC.) NVLink communicators get as many channels as memory permits, all the same. Cost: one pass
 * over exchanges, with a stamp per communicator and peer.
 *
 * Sources, of NCCL 2.28.9: maxCTAs bounds the channels (graph/connect.cc:487) and these the ones
 * for sends and receives, a power of two (graph/paths.cc:863); a pair connects on all of its
 * channels at once (enqueue.cc:2426); buffers of NVLink connections (transport/p2p.cc:377, 446)
 * with their sizes (init.cc:698: 0.5 + 4.7 + 4 MiB, rounded up to 2 MiB); pools of network
 * connections (transport/net.cc:628, 647: 16 steps of 128 KiB per channel); channels of a message
 * (enqueue.cc:894, 1053). 2.27 and 2.30 have the same numbers; 2.27 has no nChannelsPerNetPeer in
 * its configuration.
 */

#include "model/schedule/refit-schedule-comms.h"

#include <string.h>

#define MIB ((guint64)1 << 20)
#define NVLINK_RECEIVE_BYTES (10 * MIB) /* per channel */
#define NVLINK_SEND_BYTES (2 * MIB)
#define NETWORK_POOL_BYTES (2 * MIB)
#define NVLINK_LEAST_PART (64u << 10) /* of a message, on one channel */
#define NVLINK_MOST_PART (16u << 20)
#define MAX_PER_NET_PEER 16

typedef RefitScheduleConnections Connections;

const RefitScheduleConnections *refit_schedule_connections(const RefitSchedule *schedule,
                                                           guint rank, RefitLink link, guint comm) {
    return &schedule->connections[(rank * REFIT_N_LINKS + link) * REFIT_SCHEDULE_COMMS + comm];
}

/* While they are counted. */
static Connections *connections_of(const RefitSchedule *schedule, guint rank, RefitLink link,
                                   guint comm) {
    return (Connections *)refit_schedule_connections(schedule, rank, link, comm);
}

static gboolean is_message(const RefitScheduleExchange *exchange) {
    return exchange->kind == REFIT_EXCHANGE_SEND || exchange->kind == REFIT_EXCHANGE_RECEIVE;
}

/* Peers of each rank, each once per communicator and direction. */
static void count_connections(RefitSchedule *schedule) {
    guint n_ranks = schedule->plan->problem->n_ranks;
    gsize n_comms = (gsize)REFIT_N_LINKS * REFIT_SCHEDULE_COMMS;
    /* Per communicator, direction and peer: 1 + the rank that met it last. */
    g_autofree guint *stamps = g_new0(guint, MAX(n_comms * 2 * n_ranks, 1));

    schedule->connections = g_new0(Connections, MAX(n_comms * n_ranks, 1));
    for (guint rank = 0; rank < n_ranks; rank++) {
        guint n_steps;
        const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);

        for (guint s = 0; s < n_steps; s++) {
            RefitLink link = (RefitLink)steps[s].link;
            guint comm = schedule->comm_of[steps[s].stream];
            gsize place = (link * REFIT_SCHEDULE_COMMS + comm) * (gsize)2;

            for (guint e = 0; e < steps[s].n_exchanges; e++) {
                const RefitScheduleExchange *exchange =
                    &schedule->exchanges[steps[s].first_exchange + e];
                Connections *connections = connections_of(schedule, rank, link, comm);
                guint *stamp;

                if (!is_message(exchange))
                    continue;
                stamp =
                    &stamps[(place + (exchange->kind == REFIT_EXCHANGE_SEND ? 0 : 1)) * n_ranks +
                            exchange->peer];
                if (*stamp == rank + 1)
                    continue;
                *stamp = rank + 1;
                if (exchange->kind == REFIT_EXCHANGE_SEND)
                    connections->n_sends++;
                else
                    connections->n_receives++;
            }
        }
    }
}

/* Every rank counts the senders of its node. */
static void count_senders(RefitSchedule *schedule) {
    const RefitTopology *topology = schedule->plan->problem->refit_case->topology;
    guint n_ranks = schedule->plan->problem->n_ranks, per_node = topology->gpus_per_node;

    for (guint first = 0; first < n_ranks; first += per_node)
        for (guint comm = 0; comm < schedule->n_comms[REFIT_LINK_NETWORK]; comm++) {
            guint end = MIN(first + per_node, n_ranks), n = 0;

            for (guint r = first; r < end; r++)
                n += connections_of(schedule, r, REFIT_LINK_NETWORK, comm)->n_sends > 0 ? 1 : 0;
            for (guint r = first; r < end; r++)
                connections_of(schedule, r, REFIT_LINK_NETWORK, comm)->n_node_senders = n;
        }
}

static guint64 comm_bytes(const Connections *connections, RefitLink link, guint ctas) {
    if (link == REFIT_LINK_NVLINK)
        return ctas * (connections->n_receives * NVLINK_RECEIVE_BYTES +
                       connections->n_sends * NVLINK_SEND_BYTES);
    return ctas * NETWORK_POOL_BYTES *
           (connections->n_node_senders + (connections->n_receives > 0 ? 1u : 0u));
}

/* As many as fill a NIC; a power of two. */
static guint channels_per_net_peer(const RefitTopology *topology) {
    guint n = 1;

    while (n < MAX_PER_NET_PEER && n * REFIT_SCHEDULE_CHANNEL_RATE < topology->nic_bandwidth.value)
        n *= 2;
    return n;
}

/* Most bytes of any rank. */
static guint64 most_bytes(const RefitSchedule *schedule) {
    return refit_schedule_connection_bytes(schedule, refit_schedule_most_connected(schedule));
}

void refit_schedule_plan_comms(RefitSchedule *schedule) {
    const RefitTopology *topology = schedule->plan->problem->refit_case->topology;
    guint64 limit = (guint64)(topology->memory.value / REFIT_SCHEDULE_COMM_SHARE);
    guint *ctas = schedule->ctas, per_peer = channels_per_net_peer(topology),
          network = 2 * per_peer;

    G_STATIC_ASSERT(REFIT_SCHEDULE_COMMS * (2 * 4 + REFIT_SCHEDULE_NVLINK_CTAS) <=
                    REFIT_SCHEDULE_COMM_CTAS);
    count_connections(schedule);
    count_senders(schedule);
    /* Faster NICs: fewer channels for each of many communicators. */
    while (network > 1 &&
           network * schedule->n_comms[REFIT_LINK_NETWORK] +
                   REFIT_SCHEDULE_NVLINK_CTAS * schedule->n_comms[REFIT_LINK_NVLINK] >
               REFIT_SCHEDULE_COMM_CTAS)
        network /= 2;
    ctas[REFIT_LINK_NETWORK] = network;
    ctas[REFIT_LINK_NVLINK] = REFIT_SCHEDULE_NVLINK_CTAS;
    while (ctas[REFIT_LINK_NVLINK] > 1 && limit > 0 && most_bytes(schedule) > limit)
        ctas[REFIT_LINK_NVLINK] /= 2;
    schedule->per_peer[REFIT_LINK_NETWORK] = MIN(per_peer, network);
    schedule->per_peer[REFIT_LINK_NVLINK] = ctas[REFIT_LINK_NVLINK];
}

/* ---- reading ---- */

static int compare_ranks(gconstpointer left, gconstpointer right) {
    const guint *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

static void sort_once(GArray *ranks) {
    g_array_sort(ranks, compare_ranks);
    g_array_set_size(ranks, refit_ranks_drop_repeats((guint *)(gpointer)ranks->data, ranks->len));
}

void refit_schedule_comm_peers(const RefitSchedule *schedule, guint rank, RefitLink link,
                               guint comm, GArray *sends, GArray *receives) {
    guint n_steps;
    const RefitScheduleStep *steps = refit_schedule_steps(schedule, rank, &n_steps);

    g_array_set_size(sends, 0);
    g_array_set_size(receives, 0);
    for (guint s = 0; s < n_steps; s++) {
        if (steps[s].link != link || schedule->comm_of[steps[s].stream] != comm)
            continue;
        for (guint e = 0; e < steps[s].n_exchanges; e++) {
            const RefitScheduleExchange *exchange =
                &schedule->exchanges[steps[s].first_exchange + e];

            if (is_message(exchange))
                g_array_append_val(exchange->kind == REFIT_EXCHANGE_SEND ? sends : receives,
                                   exchange->peer);
        }
    }
    sort_once(sends);
    sort_once(receives);
}

guint64 refit_schedule_comm_bytes(const RefitSchedule *schedule, guint rank, RefitLink link,
                                  guint comm) {
    return comm_bytes(refit_schedule_connections(schedule, rank, link, comm), link,
                      schedule->ctas[link]);
}

guint64 refit_schedule_connection_bytes(const RefitSchedule *schedule, guint rank) {
    guint64 bytes = 0;

    for (guint link = 0; link < REFIT_N_LINKS; link++)
        for (guint comm = 0; comm < schedule->n_comms[link]; comm++)
            bytes += refit_schedule_comm_bytes(schedule, rank, (RefitLink)link, comm);
    return bytes;
}

guint refit_schedule_most_connected(const RefitSchedule *schedule) {
    guint64 most = 0;
    guint best = 0;

    for (guint rank = 0; rank < schedule->plan->problem->n_ranks; rank++) {
        guint64 bytes = refit_schedule_connection_bytes(schedule, rank);

        if (bytes > most) {
            most = bytes;
            best = rank;
        }
    }
    return best;
}

guint refit_schedule_message_channels(const RefitSchedule *schedule, RefitLink link, guint n_ranks,
                                      guint64 bytes) {
    guint most = schedule->per_peer[link], n = most;
    guint64 part;

    while (n > 1 && (guint64)n * n_ranks > schedule->ctas[link])
        n /= 2;
    if (link == REFIT_LINK_NETWORK) /* parts of 64 to 128 KiB: whatever matters has all of them */
        return most;
    n = (guint)MIN(n, MAX((bytes + NVLINK_LEAST_PART - 1) / NVLINK_LEAST_PART, 1));
    for (part = bytes / n; part > NVLINK_MOST_PART && n <= most / 2; part = bytes / n)
        n *= 2;
    return n;
}
