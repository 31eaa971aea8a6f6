/*
 * What NCCL's communicators take of a device: channels, and memory for connections.
 *
 * NCCL connects two ranks in a direction when a message first goes that way between them, on all
 * channels that a pair of the communicator may use; from then on the buffers are there. On one host
 * (NVLink) the receiver has 10 MiB and the sender 2 MiB per channel. Between hosts a communicator
 * has a pool of 2 MiB per channel to receive, and one for each sender on the GPU of the sender's
 * host that has the receiver's place there, because it sends by the NIC of that rail (PXN). The
 * bytes are only counted, not allocated, against the device's memory; a group that finds no room
 * fails as in NCCL. Pools on the devices of other processes are not counted. Numbers are those of
 * NCCL 2.28.9 (transport/p2p.cc:377, 446; transport/net.cc:647; graph/paths.cc:860) with its
 * defaults on a DGX H100: 32 channels on one host, 16 on several.
 *
 * With REFIT_STANDIN_GPUS_PER_HOST=N a process has several hosts: N devices each.
 */

#include "standin-nccl.h"

#include <string.h>

#define MIB ((guint64)1 << 20)

enum {
    CHANNELS_ON_A_HOST = 32,
    CHANNELS_OVER_HOSTS = 16,
    PER_NET_PEER = 2, /* halved while there are more than 4 ranks a channel */
    SENDS = 1,
    RECEIVES = 2
};

/* Of what a communicator has on devices of this process. */
typedef struct {
    int device, sender; /* -1: no pool */
    guint64 bytes;
} Charge;

struct StandinChannels {
    guint n, per_peer;
    gboolean over_hosts;
    guint8 *met; /* per peer: SENDS, RECEIVES */
    GArray *charges;
    guint64 bytes; /* of its own device */
};

static _Atomic guint64 connected[STANDIN_MAX_DEVICES];
static _Atomic uint64_t n_group_threads;

static guint power_up(guint n) {
    guint power = 1;

    while (power < n) {
        power *= 2;
    }
    return power;
}

guint64 standin_host_of(guint64 host, int device) {
    const guint per_host = standin_options()->gpus_per_host;

    return per_host > 0 ? host * 1000003 + 1 + (guint)device / per_host : host;
}

void standin_channels_open(ncclComm_t comm, const ncclConfig_t *config) {
    StandinChannels *channels = g_new0(StandinChannels, 1);
    guint most = 0, per_net_peer = 0;

    if (config != NULL && config->maxCTAs != NCCL_CONFIG_UNDEF_INT) {
        most = (guint)config->maxCTAs;
    }
    if (config != NULL && config->nChannelsPerNetPeer != NCCL_CONFIG_UNDEF_INT) {
        per_net_peer = (guint)config->nChannelsPerNetPeer;
    }
    channels->n = most;
    channels->per_peer = per_net_peer;
    channels->met = g_new0(guint8, (gsize)comm->n);
    channels->charges = g_array_new(FALSE, FALSE, sizeof(Charge));
    comm->channels = channels;
}

void standin_channels_settle(ncclComm_t comm) {
    StandinChannels *channels = comm->channels;
    const guint most = channels->n;

    for (int i = 0; i < comm->n; i++) {
        channels->over_hosts |= comm->members[i].host != comm->members[comm->rank].host;
    }
    channels->n = channels->over_hosts ? CHANNELS_OVER_HOSTS : CHANNELS_ON_A_HOST;
    if (most > 0) {
        channels->n = MIN(channels->n, most);
    }
    channels->n = power_up(channels->n);
    if (!channels->over_hosts) {
        channels->per_peer = channels->n;
        return;
    }
    if (channels->per_peer == 0) {
        channels->per_peer = PER_NET_PEER;
        while (channels->per_peer > 1 && channels->per_peer * (guint)comm->n > 4 * channels->n) {
            channels->per_peer /= 2;
        }
    }
    channels->per_peer = MIN(power_up(channels->per_peer), channels->n);
}

static void charge(ncclComm_t comm, int device, int sender, guint64 bytes) {
    const Charge one = {device, sender, bytes};

    g_array_append_val(comm->channels->charges, one);
    atomic_fetch_add_explicit(&connected[device], bytes, memory_order_relaxed);
    if (device == comm->device) {
        comm->channels->bytes += bytes;
    }
}

static gboolean has_pool(ncclComm_t comm, int device, int sender) {
    for (guint i = 0; i < comm->channels->charges->len; i++) {
        const Charge *one = &g_array_index(comm->channels->charges, Charge, i);
        if (one->device == device && one->sender == sender) {
            return TRUE;
        }
    }
    return FALSE;
}

/* The GPU of this rank's host by whose NIC a message to the peer goes. */
static int proxy_of(ncclComm_t comm, int peer) {
    const guint per_host = standin_options()->gpus_per_host;
    const int there = comm->members[peer].device;

    return per_host == 0 ? comm->device
                         : comm->device / (int)per_host * (int)per_host + there % (int)per_host;
}

static void connect_peer(ncclComm_t comm, int peer, gboolean sends) {
    const StandinChannels *channels = comm->channels;

    if (comm->members[peer].host == comm->members[comm->rank].host) {
        charge(comm, comm->device, -1, channels->per_peer * (sends ? 2 : 10) * MIB);
    } else {
        const int device = sends ? proxy_of(comm, peer) : comm->device;
        const int sender = sends ? comm->rank : comm->n;
        if (!has_pool(comm, device, sender)) {
            charge(comm, device, sender, channels->n * 2 * MIB);
        }
    }
}

gboolean standin_channels_connect(ncclComm_t comm, const StandinPart *parts, guint n, char *why,
                                  size_t why_size) {
    StandinChannels *channels = comm->channels;

    for (guint i = 0; i < n; i++) {
        const guint8 way = parts[i].is_send ? SENDS : RECEIVES;
        const int peer = parts[i].peer;
        if (parts[i].kind != STANDIN_SEND_RECEIVE || peer == comm->rank ||
            (channels->met[peer] & way) != 0) {
            continue;
        }
        channels->met[peer] |= way;
        connect_peer(comm, peer, parts[i].is_send);
        const guint64 taken = standin_memory_in_use(comm->device);
        if (taken > standin_options()->memory) {
            g_snprintf(why, why_size,
                       "Cuda failure 'out of memory': connections take %" G_GUINT64_FORMAT
                       " bytes of device %d, %" G_GUINT64_FORMAT " more than it has",
                       standin_connection_bytes(comm->device), comm->device,
                       taken - standin_options()->memory);
            return FALSE;
        }
    }
    return TRUE;
}

void standin_channels_close(ncclComm_t comm) {
    StandinChannels *channels = g_steal_pointer(&comm->channels);

    if (channels == NULL) {
        return;
    }
    for (guint i = 0; i < channels->charges->len; i++) {
        const Charge *one = &g_array_index(channels->charges, Charge, i);
        atomic_fetch_sub_explicit(&connected[one->device], one->bytes, memory_order_relaxed);
    }
    g_array_unref(channels->charges);
    g_free(channels->met);
    g_free(channels);
}

void standin_count_group_thread(void) {
    atomic_fetch_add_explicit(&n_group_threads, 1, memory_order_relaxed);
}

uint64_t standin_group_threads(void) {
    return atomic_load_explicit(&n_group_threads, memory_order_relaxed);
}

uint64_t standin_connection_bytes(int device) {
    return atomic_load_explicit(&connected[device], memory_order_relaxed);
}
