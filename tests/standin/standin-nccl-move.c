/*
 * A running NCCL kernel: all messages of a group progress at once, those with one peer in their
 * order. A message is a header, which both sides compare, and its bytes, in as many pieces as the
 * link takes. A send ends when the receiver has confirmed the message (rendezvous); a small one may
 * end earlier with REFIT_STANDIN_EAGER, as NCCL's may. Cost: a pass over the unfinished messages
 * for each wake-up.
 */

#include "standin-nccl.h"

#include <string.h>

#define HEADER_MAGIC 0x57a9d1f5u

static const char *const kind_names[] = {
    [STANDIN_SEND_RECEIVE] = "send/recv",
    [STANDIN_BROADCAST] = "broadcast",
    [STANDIN_ALL_GATHER] = "all-gather",
};

typedef enum { MOVED_NOTHING, MOVED_SOME, PEER_GONE } Moved;

static const char *header_error(const StandinHeader *mine, const StandinHeader *theirs) {
    if (theirs->magic != HEADER_MAGIC) {
        return "the stream of bytes is damaged";
    }
    if (theirs->kind != mine->kind) {
        return "different operations meet";
    }
    if (theirs->size != mine->size) {
        return "sizes differ";
    }
    if (theirs->type != mine->type) {
        return "data types differ";
    }
    if (theirs->root != mine->root) {
        return "roots differ";
    }
    return theirs->number != mine->number ? "out of sequence" : NULL;
}

static void check_header(const StandinPart *part, const StandinHeader *mine) {
    const StandinHeader *theirs = &part->header;
    const char *why = header_error(mine, theirs);
    if (why == NULL) {
        return;
    }
    standin_die("%s: rank %d posts %s from rank %d (%" G_GUINT64_FORMAT
                " bytes, type %u, root %u), but rank %d sent %s (%" G_GUINT64_FORMAT
                " bytes, type %u, root %u): %s",
                part->comm->name, part->comm->rank, kind_names[part->kind], part->peer, mine->size,
                mine->type, mine->root, part->peer,
                theirs->kind < G_N_ELEMENTS(kind_names) ? kind_names[theirs->kind] : "?",
                theirs->size, theirs->type, theirs->root, why);
}

static StandinHeader header_of(const StandinPart *part, guint64 number) {
    return (StandinHeader){HEADER_MAGIC,        (guint32)part->kind, (guint32)part->type,
                           (guint32)part->root, part->size,          number};
}

/* Whether both ends of a part are there; one of a collective may be the first. */
static Moved meet(StandinPart *part) {
    if (part->met) {
        return MOVED_SOME;
    }
    const int met = part->comm->transport->opened(part->comm->link, part->peer, part->is_send);
    part->met = met == 1;
    return met == 1 ? MOVED_SOME : met == 0 ? MOVED_NOTHING : PEER_GONE;
}

static Moved move_send(StandinPart *part, gint64 *wait_ns) {
    const StandinTransport *transport = part->comm->transport;
    StandinLink *link = part->comm->link;
    Moved moved = MOVED_NOTHING;

    if (!part->begun) {
        part->header = header_of(part, part->comm->pairs[part->peer].n_sent++);
        part->begun = TRUE;
    }
    if (part->header_moved < sizeof part->header) {
        const gssize n =
            transport->put(link, part->peer, (const char *)&part->header + part->header_moved,
                           sizeof part->header - part->header_moved);
        if (n == STANDIN_PEER_GONE) {
            return PEER_GONE;
        }
        part->header_moved += (guint64)n;
        moved = n > 0 ? MOVED_SOME : moved;
    }
    const guint64 allowed =
        part->header_moved == sizeof part->header ? standin_rate_allows(part, wait_ns) : 0;
    if (allowed > 0) {
        const gssize n = transport->put(link, part->peer, part->bytes + part->n_moved, allowed);
        if (n == STANDIN_PEER_GONE) {
            return PEER_GONE;
        }
        standin_rate_moved(part, (guint64)n);
        part->n_moved += (guint64)n;
        moved = n > 0 ? MOVED_SOME : moved;
    }
    if (part->header_moved == sizeof part->header && part->n_moved == part->size &&
        standin_rate_is_free(part, wait_ns)) {
        const gint64 n = transport->receipts(link, part->peer);
        if (n == STANDIN_PEER_GONE) {
            return PEER_GONE;
        }
        if (standin_options()->eager || n > (gint64)part->header.number) {
            part->done = TRUE;
            moved = MOVED_SOME;
        }
    }
    return moved;
}

static Moved move_receive(StandinPart *part, gint64 *wait_ns) {
    const StandinTransport *transport = part->comm->transport;
    StandinLink *link = part->comm->link;
    Moved moved = MOVED_NOTHING;

    if (part->header_moved < sizeof part->header) {
        const gssize n =
            transport->get(link, part->peer, (char *)&part->header + part->header_moved,
                           sizeof part->header - part->header_moved);
        if (n == STANDIN_PEER_GONE) {
            return PEER_GONE;
        }
        part->header_moved += (guint64)n;
        moved = n > 0 ? MOVED_SOME : moved;
        if (part->header_moved == sizeof part->header) {
            const StandinHeader mine = header_of(part, part->comm->pairs[part->peer].n_received++);
            check_header(part, &mine);
        }
    }
    const guint64 allowed =
        part->header_moved == sizeof part->header ? standin_rate_allows(part, wait_ns) : 0;
    if (allowed > 0) {
        const gssize n = transport->get(link, part->peer, part->bytes + part->n_moved, allowed);
        if (n == STANDIN_PEER_GONE) {
            return PEER_GONE;
        }
        standin_rate_moved(part, (guint64)n);
        part->n_moved += (guint64)n;
        moved = n > 0 ? MOVED_SOME : moved;
    }
    if (part->header_moved == sizeof part->header && part->n_moved == part->size &&
        standin_rate_is_free(part, wait_ns)) {
        transport->confirm(link, part->peer);
        part->done = TRUE;
        moved = MOVED_SOME;
    }
    return moved;
}

static guint8 wants_of(const StandinPart *part) {
    if (!part->is_send) {
        return STANDIN_WANT_BYTES;
    }
    if (!part->met) {
        return STANDIN_WANT_RECEIPT;
    }
    return part->header_moved < sizeof part->header || part->n_moved < part->size
               ? STANDIN_WANT_SPACE
               : STANDIN_WANT_RECEIPT;
}

/* Why the group cannot go on, or success. */
static ncclResult_t obstacle(ncclComm_t comm) {
    if (atomic_load_explicit(&comm->aborted, memory_order_relaxed)) {
        return ncclInternalError;
    }
    return standin_device_lost(comm->device) ? ncclUnhandledCudaError : ncclSuccess;
}

static gboolean give_up(ncclComm_t comm, ncclResult_t error, int peer) {
    if (error == ncclRemoteError) {
        g_autofree char *text =
            g_strdup_printf("rank %d: connection to rank %d lost", comm->rank, peer);
        standin_comm_say(comm, text);
    }
    atomic_store_explicit(&comm->error, (int)error, memory_order_release);
    return FALSE;
}

gboolean standin_parts_move(ncclComm_t comm, StandinPart *parts, guint n) {
    g_autofree guint8 *wants = g_new(guint8, (gsize)comm->n);
    g_autofree gboolean *busy =
        g_new(gboolean, 2 * (gsize)comm->n); /* earlier message unfinished */

    for (;;) {
        const uint32_t seen = comm->transport->look(comm->link);
        gboolean all_done = TRUE;
        gboolean moved = FALSE;
        gint64 wait_ns = STANDIN_SLEEP_NS;         /* until a rate lets go on */
        const ncclResult_t error = obstacle(comm); /* first: later groups must not begin */
        if (error != ncclSuccess) {
            return give_up(comm, error, -1);
        }
        memset(wants, 0, (gsize)comm->n);
        memset(busy, 0, 2 * (gsize)comm->n * sizeof *busy);
        for (guint i = 0; i < n && !standin_device_stalled(comm->device); i++) {
            StandinPart *part = &parts[i];
            gboolean *lane = &busy[2 * part->peer + part->is_send];
            if (part->done) {
                continue;
            }
            all_done = FALSE;
            if (*lane) {
                continue;
            }
            standin_jitter();
            gint64 held_ns = G_MAXINT64; /* by a rate */
            Moved result = meet(part);
            if (result == MOVED_SOME) {
                result = part->is_send ? move_send(part, &held_ns) : move_receive(part, &held_ns);
            }
            if (result == PEER_GONE) {
                return give_up(comm, ncclRemoteError, part->peer);
            }
            moved |= result == MOVED_SOME;
            if (!part->done) {
                *lane = TRUE;
                wants[part->peer] |= held_ns < G_MAXINT64 ? 0 : wants_of(part);
                wait_ns = MIN(wait_ns, held_ns);
            }
        }
        if (all_done && !standin_device_stalled(comm->device)) {
            return TRUE;
        }
        if (!moved) {
            comm->transport->wait(comm->link, seen, wants, wait_ns, "a group");
        } else {
            standin_progress();
        }
    }
}

STANDIN_RACY void standin_parts_describe(const StandinPart *parts, guint n, char *text,
                                         size_t size) {
    gsize at = 0;
    text[0] = '\0';
    for (guint i = 0; i < n && at + 1 < size; i++) {
        const StandinPart *part = &parts[i];
        if (!part->done) {
            g_snprintf(text + at, size - at,
                       " %s %s rank %d %" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT,
                       kind_names[part->kind], part->is_send ? "to" : "from", part->peer,
                       part->n_moved, part->size);
            at = strlen(text);
        }
    }
}
