/*
 * The rate of channels: with REFIT_STANDIN_CHANNEL_RATE each channel of a communicator moves that
 * many bytes per second in each direction. A message goes over its channels side by side, each with
 * a part of it in units of 4 KiB (device.h:245 of NCCL 2.28.9), and what shares a channel shares
 * its rate. Each channel has a date until which it is taken; some bytes of a message may move when
 * it has come for all its channels, and put it off by their share. A late thread may catch up a
 * little, within a message. Collectives and copies of a rank to itself have no rate.
 *
 * Dates are the communicator's, whose groups run one after the other.
 */

#include "standin-nccl.h"

#include <time.h>

#define NS_PER_S 1e9
#define CREDIT_NS 2e6 /* at most, of a thread that comes late */
#define QUANTUM_S 1e-3
#define MIN_QUANTUM 1024

enum { PART_UNIT = 4096 };

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * NS_PER_S + (double)now.tv_nsec;
}

static double rate(void) {
    return (double)standin_options()->channel_rate;
}

static gboolean has_rate(const StandinPart *part) {
    return part->kind == STANDIN_SEND_RECEIVE && standin_options()->channel_rate > 0;
}

static double *date_of(StandinPart *part, guint i) {
    ncclComm_t comm = part->comm;
    return &comm->taken_until_ns[part->is_send ? 1 : 0]
                                [standin_channel_of(comm, part->peer, part->is_send, i)];
}

/* Its channels, from now on at the earliest. */
static void begin(StandinPart *part) {
    const double now = now_ns();
    part->n_channels = standin_parts_of(part->comm, part->peer, part->size);
    for (guint i = 0; i < part->n_channels; i++) {
        double *date = date_of(part, i);
        *date = MAX(*date, now);
    }
}

gboolean standin_rate_is_free(StandinPart *part, gint64 *wait_ns) {
    double until = 0;

    for (guint i = 0; i < part->n_channels; i++) {
        until = MAX(until, *date_of(part, i));
    }
    const double wait = part->n_channels > 0 ? until - now_ns() : 0;
    if (wait > 0) {
        *wait_ns = MIN(*wait_ns, (gint64)wait + 1);
    }
    return wait <= 0;
}

guint64 standin_rate_allows(StandinPart *part, gint64 *wait_ns) {
    const guint64 left = part->size - part->n_moved;

    if (!has_rate(part) || left == 0) {
        return left;
    }
    if (part->n_channels == 0) {
        begin(part);
    }
    if (!standin_rate_is_free(part, wait_ns)) {
        return 0;
    }
    const guint64 quantum = MAX((guint64)(rate() * QUANTUM_S), MIN_QUANTUM);
    return MIN(left, quantum * part->n_channels);
}

void standin_rate_moved(StandinPart *part, guint64 bytes) {
    if (part->n_channels == 0) {
        return;
    }
    const double earliest = now_ns() - CREDIT_NS;
    const double share_ns = (double)bytes / part->n_channels / rate() * NS_PER_S;
    for (guint i = 0; i < part->n_channels; i++) {
        double *date = date_of(part, i);
        *date = MAX(*date, earliest) + share_ns;
    }
}

void standin_rate_count(ncclComm_t comm, const StandinPart *parts, guint n) {
    for (guint i = 0; i < n; i++) {
        const StandinPart *part = &parts[i];
        if (part->kind != STANDIN_SEND_RECEIVE || part->peer == comm->rank) {
            continue;
        }
        const guint n_parts = standin_parts_of(comm, part->peer, part->size);
        const guint64 share =
            ((part->size + n_parts - 1) / n_parts + PART_UNIT - 1) / PART_UNIT * PART_UNIT;
        for (guint k = 0; k < n_parts; k++) {
            const guint64 from = MIN(k * share, part->size);
            const guint64 to = MIN(from + share, part->size);
            const guint channel = standin_channel_of(comm, part->peer, part->is_send, k);
            comm->channel_bytes[part->is_send ? 1 : 0][channel] += to - from;
        }
    }
}

uint64_t standin_channel_bytes(const struct ncclComm *comm, int is_send, unsigned channel) {
    return channel < STANDIN_MAX_CHANNELS ? comm->channel_bytes[is_send != 0][channel] : 0;
}
