/*
 * The transport through memory: one segment per communicator, with a ring of bytes for each ordered
 * pair of ranks, a bell per rank that is rung when something moved, and a barrier. Ranks that are
 * threads share one mapping of it, ranks that are processes map it themselves. The segment is a
 * memfd that one process keeps open and names by its own /proc entry, so nothing stays behind
 * however a test ends.
 *
 * A sender releases the tail of a ring and the receiver acquires it: the message. A receiver
 * releases the head, and a sender acquires it only when it is short of room: the credit that NCCL
 * has too.
 */

#include "standin-nccl.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    _Atomic uint64_t head; /* bytes taken, written by the receiver */
    _Atomic uint64_t n_confirmed;
    _Atomic uint32_t receiver_is_open;
    char apart[44];
    _Atomic uint64_t tail; /* bytes put, written by the sender */
    _Atomic uint32_t sender_is_open;
    char apart_too[52];
    char bytes[];
} Ring;

typedef struct {
    _Atomic uint32_t n_arrived, phase; /* arrivals in total, and barriers that were completed */
    _Atomic uint32_t bells[STANDIN_MAX_RANKS];
    _Atomic uint64_t pools[STANDIN_MAX_RANKS];
    char rest[]; /* records of gathers, then rings */
} Segment;

enum { RECORD_SIZE = 256 };

typedef struct Mapping {
    struct Mapping *next;
    char id[STANDIN_ID_SIZE];
    Segment *segment;
    size_t size;
    guint n_users;
} Mapping;

typedef struct Announcement {
    struct Announcement *next;
    char id[STANDIN_ID_SIZE];
    int file;
} Announcement;

struct StandinLink {
    Mapping *mapping;
    Segment *segment;
    int rank, n;
    uint32_t n_barriers;
    guint64 *put, *got, *head_seen; /* per peer; used by the group that runs */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* set-up only */
static Mapping *mappings;
static Announcement *announcements;

static size_t ring_size(void) {
    return sizeof(Ring) + (standin_options()->ring + 63) / 64 * 64;
}

static Ring *ring_between(const StandinLink *link, int from, int to) {
    char *rings = link->segment->rest + (size_t)link->n * RECORD_SIZE;
    return (Ring *)(void *)(rings + ((size_t)from * (size_t)link->n + (size_t)to) * ring_size());
}

/* ---- set-up ---- */

static gboolean announce(char *id_out, char *why, size_t why_size) {
    struct stat status;
    const int file = memfd_create("refit-standin", MFD_CLOEXEC);
    if (file < 0 || fstat(file, &status) != 0) {
        g_strlcpy(why, "memfd_create failed", why_size);
        return FALSE;
    }
    Announcement *announcement = g_new0(Announcement, 1);
    announcement->file = file;
    /* The inode, for the number of a closed file comes again. */
    g_snprintf(announcement->id, sizeof announcement->id, "/proc/%d/fd/%d %" G_GUINT64_FORMAT,
               (int)getpid(), file, (guint64)status.st_ino);
    memcpy(id_out, announcement->id, STANDIN_ID_SIZE);
    pthread_mutex_lock(&lock);
    announcement->next = announcements;
    announcements = announcement;
    pthread_mutex_unlock(&lock);
    return TRUE;
}

static void withdraw(const char *id) {
    pthread_mutex_lock(&lock);
    for (Announcement **at = &announcements; *at != NULL; at = &(*at)->next) {
        Announcement *announcement = *at;
        if (strcmp(announcement->id, id) == 0) {
            *at = announcement->next;
            close(announcement->file);
            g_free(announcement);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

static Mapping *mapping_new(const char *id, size_t size) {
    g_auto(GStrv) parts = g_strsplit(id, " ", 2);
    struct stat status;
    void *address = MAP_FAILED;
    const int file = open(parts[0], O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return NULL;
    }
    if (fstat(file, &status) == 0 && g_strv_length(parts) == 2 &&
        g_ascii_strtoull(parts[1], NULL, 10) == status.st_ino &&
        ftruncate(file, (off_t)size) == 0) {
        address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    close(file);
    if (address == MAP_FAILED) {
        return NULL;
    }
    Mapping *mapping = g_new0(Mapping, 1);
    g_strlcpy(mapping->id, id, sizeof mapping->id);
    mapping->segment = address;
    mapping->size = size;
    mapping->next = mappings;
    mappings = mapping;
    return mapping;
}

static Mapping *mapping_get(const char *id, int n) {
    const size_t size =
        sizeof(Segment) + (size_t)n * RECORD_SIZE + (size_t)n * (size_t)n * ring_size();
    pthread_mutex_lock(&lock);
    Mapping *mapping = mappings;
    while (mapping != NULL && (strcmp(mapping->id, id) != 0 || mapping->size != size)) {
        mapping = mapping->next;
    }
    if (mapping == NULL) {
        mapping = mapping_new(id, size);
    }
    if (mapping != NULL) {
        mapping->n_users++;
    }
    pthread_mutex_unlock(&lock);
    return mapping;
}

static void mapping_drop(Mapping *mapping) {
    pthread_mutex_lock(&lock);
    if (--mapping->n_users == 0) {
        Mapping **at = &mappings;
        while (*at != mapping) {
            at = &(*at)->next;
        }
        *at = mapping->next;
        munmap(mapping->segment, mapping->size);
        g_free(mapping);
    }
    pthread_mutex_unlock(&lock);
}

static StandinLink *join_ranks(const char *id, int rank, int n, char *why, size_t why_size) {
    Mapping *mapping = mapping_get(id, n);
    if (mapping == NULL) {
        g_snprintf(why, why_size, "cannot map %.80s: its rank is gone", id);
        return NULL;
    }
    StandinLink *link = g_new0(StandinLink, 1);
    link->mapping = mapping;
    link->segment = mapping->segment;
    link->rank = rank;
    link->n = n;
    link->put = g_new0(guint64, (gsize)n);
    link->got = g_new0(guint64, (gsize)n);
    link->head_seen = g_new0(guint64, (gsize)n);
    return link;
}

static void leave(StandinLink *link) {
    mapping_drop(link->mapping);
    g_free(link->put);
    g_free(link->got);
    g_free(link->head_seen);
    g_free(link);
}

/* ---- meeting ---- */

/* Orders all that ranks did before it before all that they do after it. */
static gboolean barrier(StandinLink *link, _Atomic bool *aborted, gboolean patient) {
    Segment *segment = link->segment;
    const uint32_t round = ++link->n_barriers;

    standin_progress();
    if (atomic_fetch_add_explicit(&segment->n_arrived, 1, memory_order_acq_rel) + 1 ==
        round * (uint32_t)link->n) {
        atomic_store_explicit(&segment->phase, round, memory_order_release);
        standin_wake(&segment->phase);
        return TRUE;
    }
    for (;;) {
        const uint32_t phase = atomic_load_explicit(&segment->phase, memory_order_acquire);
        if ((int32_t)(phase - round) >= 0) {
            return TRUE;
        }
        if (atomic_load_explicit(aborted, memory_order_relaxed)) {
            return FALSE;
        }
        if (patient) {
            standin_progress();
        }
        standin_sleep(&segment->phase, phase, "ranks meeting");
    }
}

static gboolean gather(StandinLink *link, const void *mine, size_t size, void *all,
                       _Atomic bool *aborted, gboolean patient) {
    g_assert_true(size <= RECORD_SIZE);
    memcpy(link->segment->rest + (size_t)link->rank * RECORD_SIZE, mine, size);
    if (!barrier(link, aborted, patient)) {
        return FALSE;
    }
    for (int i = 0; i < link->n; i++) {
        memcpy((char *)all + (size_t)i * size, link->segment->rest + (size_t)i * RECORD_SIZE, size);
    }
    return barrier(link, aborted, patient); /* nobody writes a record before all have read it */
}

/* ---- bytes ---- */

static void ring_bell(StandinLink *link, int rank) {
    atomic_fetch_add_explicit(&link->segment->bells[rank], 1, memory_order_relaxed);
    standin_wake(&link->segment->bells[rank]);
}

static void open_ring(StandinLink *link, int peer, gboolean is_send) {
    Ring *ring =
        is_send ? ring_between(link, link->rank, peer) : ring_between(link, peer, link->rank);
    atomic_store_explicit(is_send ? &ring->sender_is_open : &ring->receiver_is_open, 1,
                          memory_order_relaxed);
    ring_bell(link, peer);
}

static int opened(StandinLink *link, int peer, gboolean is_send) {
    Ring *ring =
        is_send ? ring_between(link, link->rank, peer) : ring_between(link, peer, link->rank);
    return (int)atomic_load_explicit(is_send ? &ring->receiver_is_open : &ring->sender_is_open,
                                     memory_order_relaxed);
}

static _Atomic uint64_t *pool(StandinLink *link, int rank) {
    return &link->segment->pools[rank];
}

static gssize put(StandinLink *link, int peer, const void *bytes, size_t size) {
    const guint64 capacity = standin_options()->ring;
    Ring *ring = ring_between(link, link->rank, peer);
    guint64 room = capacity - (link->put[peer] - link->head_seen[peer]);

    if (room < size && room < capacity / 2) { /* short: else do not look, for looking orders */
        link->head_seen[peer] = atomic_load_explicit(&ring->head, memory_order_acquire);
        room = capacity - (link->put[peer] - link->head_seen[peer]);
    }
    const size_t n = MIN(size, room);
    const size_t at = link->put[peer] % capacity;
    const size_t first = MIN(n, capacity - at);
    if (n == 0) {
        return 0;
    }
    memcpy(ring->bytes + at, bytes, first);
    memcpy(ring->bytes, (const char *)bytes + first, n - first);
    link->put[peer] += n;
    atomic_store_explicit(&ring->tail, link->put[peer], memory_order_release);
    ring_bell(link, peer);
    return (gssize)n;
}

static gssize get(StandinLink *link, int peer, void *bytes, size_t size) {
    const guint64 capacity = standin_options()->ring;
    Ring *ring = ring_between(link, peer, link->rank);
    const guint64 have = atomic_load_explicit(&ring->tail, memory_order_acquire) - link->got[peer];
    const size_t n = MIN(size, have);
    const size_t at = link->got[peer] % capacity;
    const size_t first = MIN(n, capacity - at);

    if (n == 0) {
        return 0;
    }
    memcpy(bytes, ring->bytes + at, first);
    memcpy((char *)bytes + first, ring->bytes, n - first);
    link->got[peer] += n;
    atomic_store_explicit(&ring->head, link->got[peer], memory_order_release);
    ring_bell(link, peer);
    return (gssize)n;
}

static void confirm(StandinLink *link, int peer) {
    Ring *ring = ring_between(link, peer, link->rank);
    atomic_fetch_add_explicit(&ring->n_confirmed, 1, memory_order_relaxed);
    ring_bell(link, peer);
}

static gint64 receipts(StandinLink *link, int peer) {
    return (gint64)atomic_load_explicit(&ring_between(link, link->rank, peer)->n_confirmed,
                                        memory_order_relaxed);
}

static uint32_t look(StandinLink *link) {
    return atomic_load_explicit(&link->segment->bells[link->rank], memory_order_relaxed);
}

static void wait_for(StandinLink *link, uint32_t seen, const guint8 *wants, gint64 at_most_ns,
                     const char *who) {
    (void)wants;
    standin_sleep_at_most(&link->segment->bells[link->rank], seen, at_most_ns, who);
}

static void interrupt(StandinLink *link) {
    ring_bell(link, link->rank);
    standin_wake(&link->segment->phase);
}

const StandinTransport standin_memory_transport = {
    .name = "memory",
    .announce = announce,
    .withdraw = withdraw,
    .join = join_ranks,
    .leave = leave,
    .gather = gather,
    .open = open_ring,
    .opened = opened,
    .pool = pool,
    .put = put,
    .get = get,
    .confirm = confirm,
    .receipts = receipts,
    .look = look,
    .wait = wait_for,
    .interrupt = interrupt,
};
