/*
 * The transport through sockets, for ranks as processes, in network namespaces too: bytes between
 * two ranks really cross the links between their addresses. For each ordered pair there is one
 * connection; a byte each way opens it, messages go one way and one byte per confirmed message
 * comes back. Ranks meet at a thread of the process that announced the id: it takes a record from
 * everyone and gives all of them to everyone, first those with the ranks' addresses, then each
 * later gather's. REFIT_STANDIN_ADDRESS is the rank's address; between ranks of the same
 * REFIT_STANDIN_FAST_GROUP REFIT_STANDIN_FAST_ADDRESS is used instead.
 *
 * A socket orders more than a GPU does, so this transport is not for runs under ThreadSanitizer. A
 * peer that ends is noticed, as NCCL notices a lost connection.
 */

#include "standin-nccl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 20, ADDRESS_SIZE = 48, GROUP_SIZE = 64, N_PLACES = 2 };

/* Where a rank listens: [0] for all, [1] for its fast group. */
typedef struct {
    char address[N_PLACES][ADDRESS_SIZE]; /* empty: none */
    guint32 port[N_PLACES];
    char group[GROUP_SIZE];
} Place;

typedef struct {
    gint32 rank, n;
} Hello;

typedef struct Announcement {
    struct Announcement *next;
    char id[STANDIN_ID_SIZE];
    int listener;
} Announcement;

struct StandinLink {
    char id[STANDIN_ID_SIZE];
    int rank, n;
    gboolean connected;
    int control; /* to the meeting point */
    int listener[N_PLACES];
    int *to, *from;      /* connections per peer, -1 for none: our messages; theirs */
    gint64 *n_confirmed; /* per peer */
    pthread_mutex_t greeting_lock;
    gboolean *greeted[2]; /* per peer: what they send; what we send */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Announcement *announcements;

static const char *address_of(const char *variable, const char *otherwise) {
    const char *value = getenv(variable);
    return value != NULL && *value != '\0' ? value : otherwise;
}

static gboolean to_sockaddr(const char *address, guint port, struct sockaddr_in *place_out) {
    *place_out = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((guint16)port)};
    return inet_pton(AF_INET, address, &place_out->sin_addr) == 1;
}

/* A listener at `address`, and its port; -1. */
static int listen_at(const char *address, guint32 *port_out) {
    struct sockaddr_in place;
    socklen_t size = sizeof place;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) {
        return -1;
    }
    if (!to_sockaddr(address, 0, &place) ||
        bind(listener, (const struct sockaddr *)&place, sizeof place) != 0 ||
        listen(listener, STANDIN_MAX_RANKS) != 0 ||
        getsockname(listener, (struct sockaddr *)&place, &size) != 0) {
        close(listener);
        return -1;
    }
    *port_out = ntohs(place.sin_port);
    return listener;
}

/* From `own` address (the route decides when that is NULL) to `address`; -1. */
static int connect_to(const char *own, const char *address, guint port) {
    const int yes = 1;
    struct sockaddr_in place, from;
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0) {
        return -1;
    }
    if (!to_sockaddr(address, port, &place) ||
        (own != NULL && (!to_sockaddr(own, 0, &from) ||
                         bind(connection, (const struct sockaddr *)&from, sizeof from) != 0)) ||
        connect(connection, (const struct sockaddr *)&place, sizeof place) != 0) {
        close(connection);
        return -1;
    }
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return connection;
}

static void close_if(int file) {
    if (file >= 0) {
        close(file);
    }
}

static gboolean write_all(int socket, const void *bytes, size_t size) {
    for (size_t at = 0; at < size;) {
        const gssize n = send(socket, (const char *)bytes + at, size - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return FALSE;
        }
        at += (size_t)n;
    }
    return TRUE;
}

static gboolean read_all(int socket, void *bytes, size_t size) {
    for (size_t at = 0; at < size;) {
        const gssize n = recv(socket, (char *)bytes + at, size - at, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return FALSE;
        }
        at += (size_t)n;
    }
    return TRUE;
}

/* ---- the meeting point ---- */

static gboolean is_welcome(const Hello *hello, const int *ranks, int n) {
    return hello->n >= 1 && hello->n <= STANDIN_MAX_RANKS && hello->rank >= 0 &&
           hello->rank < hello->n && (n == 0 || (hello->n == n && ranks[hello->rank] < 0));
}

/* Takes the ranks' connections, by rank; the first says how many come. FALSE when the id was
 * withdrawn before all had come. */
static gboolean take_ranks(int listener, int ranks[STANDIN_MAX_RANKS], int *n_out) {
    int n = 0, n_come = 0;

    while (n == 0 || n_come < n) {
        Hello hello;
        const int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0 && errno == EINTR) {
            continue;
        }
        if (connection < 0) {
            break;
        }
        if (!read_all(connection, &hello, sizeof hello) || !is_welcome(&hello, ranks, n)) {
            close(connection);
            continue;
        }
        n = hello.n;
        ranks[hello.rank] = connection;
        n_come++;
    }
    *n_out = n;
    return n > 0 && n_come == n;
}

/* One record from everyone, all records to everyone. FALSE when a rank has left. */
static gboolean serve(const int *ranks, int n) {
    guint32 size = 0;
    g_autofree char *all = NULL;

    for (int i = 0; i < n; i++) {
        guint32 own_size;
        if (!read_all(ranks[i], &own_size, sizeof own_size) || (i > 0 && own_size != size)) {
            return FALSE;
        }
        if (i == 0) {
            size = own_size;
            all = g_malloc((gsize)n * size);
        }
        if (!read_all(ranks[i], all + (gsize)i * size, size)) {
            return FALSE;
        }
    }
    /* The first rank comes last: mostly this thread is of its process, which may end with it. */
    for (int i = n - 1; i >= 0; i--) {
        if (!write_all(ranks[i], all, (gsize)n * size)) {
            return FALSE;
        }
    }
    return TRUE;
}

static void *meeting_point(void *argument) {
    const int listener = GPOINTER_TO_INT(argument);
    int ranks[STANDIN_MAX_RANKS];
    int n;

    memset(ranks, -1, sizeof ranks);
    const gboolean complete = take_ranks(listener, ranks, &n);
    close(listener);
    while (complete && serve(ranks, n)) {
    }
    for (int i = 0; i < n; i++) {
        close_if(ranks[i]);
    }
    return NULL;
}

static gboolean announce(char *id_out, char *why, size_t why_size) {
    const char *address = address_of("REFIT_STANDIN_ADDRESS", "127.0.0.1");
    guint32 port;
    pthread_t thread;
    const int listener = listen_at(address, &port);
    const int copy = listener >= 0 ? dup(listener) : -1; /* withdrawn by this process */

    if (copy < 0 || pthread_create(&thread, NULL, meeting_point, GINT_TO_POINTER(listener)) != 0) {
        g_snprintf(why, why_size, "cannot listen at %s: %s", address, g_strerror(errno));
        return FALSE;
    }
    pthread_detach(thread);
    Announcement *announcement = g_new0(Announcement, 1);
    announcement->listener = copy;
    g_snprintf(announcement->id, sizeof announcement->id, "%s %u", address, port);
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
            shutdown(announcement->listener, SHUT_RDWR); /* ends the thread's accept */
            close(announcement->listener);
            g_free(announcement);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- joining ---- */

static void leave(StandinLink *link) {
    close_if(link->control);
    for (int i = 0; i < N_PLACES; i++) {
        close_if(link->listener[i]);
    }
    for (int i = 0; i < link->n; i++) {
        close_if(link->to[i]);
        close_if(link->from[i]);
    }
    g_free(link->to);
    g_free(link->from);
    g_free(link->n_confirmed);
    g_free(link->greeted[0]);
    g_free(link->greeted[1]);
    g_free(link);
}

static StandinLink *join_ranks(const char *id, int rank, int n, char *why, size_t why_size) {
    char address[ADDRESS_SIZE];
    guint port;
    const Hello hello = {rank, n};
    StandinLink *link = g_new0(StandinLink, 1);

    g_strlcpy(link->id, id, sizeof link->id);
    link->rank = rank;
    link->n = n;
    link->to = g_new(int, (gsize)n);
    link->from = g_new(int, (gsize)n);
    memset(link->to, -1, (gsize)n * sizeof *link->to);
    memset(link->from, -1, (gsize)n * sizeof *link->from);
    link->n_confirmed = g_new0(gint64, (gsize)n);
    pthread_mutex_init(&link->greeting_lock, NULL);
    link->greeted[0] = g_new0(gboolean, (gsize)n);
    link->greeted[1] = g_new0(gboolean, (gsize)n);
    link->listener[0] = link->listener[1] = -1;
    link->control =
        sscanf(id, "%47s %u", address, &port) == 2 ? connect_to(NULL, address, port) : -1;
    if (link->control < 0 || !write_all(link->control, &hello, sizeof hello)) {
        g_snprintf(why, why_size, "nobody meets at '%.80s'", id);
        leave(link);
        return NULL;
    }
    return link;
}

/* Waits until `socket` can be read or accepted from; FALSE when the caller shall give up. */
static gboolean wait_readable(int socket, _Atomic bool *aborted, gboolean patient) {
    struct pollfd entry = {.fd = socket, .events = POLLIN};
    while (poll(&entry, 1, POLL_MS) <= 0) {
        if (atomic_load_explicit(aborted, memory_order_relaxed)) {
            return FALSE;
        }
        if (patient) {
            standin_progress();
        }
        standin_watch("ranks meeting");
    }
    return TRUE;
}

static gboolean exchange(StandinLink *link, const void *mine, size_t size, void *all,
                         _Atomic bool *aborted, gboolean patient) {
    const guint32 own_size = (guint32)size;
    const size_t whole = size * (size_t)link->n;
    if (!write_all(link->control, &own_size, sizeof own_size) ||
        !write_all(link->control, mine, size)) {
        return FALSE;
    }
    for (size_t at = 0; at < whole;) {
        if (!wait_readable(link->control, aborted, patient)) {
            return FALSE;
        }
        const gssize n = recv(link->control, (char *)all + at, whole - at, MSG_DONTWAIT);
        if (n <= 0 && errno != EAGAIN && errno != EINTR) {
            return FALSE;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    standin_progress();
    return TRUE;
}

static gboolean open_place(StandinLink *link, Place *place) {
    const char *fast = address_of("REFIT_STANDIN_FAST_ADDRESS", "");
    g_strlcpy(place->address[0], address_of("REFIT_STANDIN_ADDRESS", "127.0.0.1"), ADDRESS_SIZE);
    g_strlcpy(place->address[1], fast, ADDRESS_SIZE);
    g_strlcpy(place->group, address_of("REFIT_STANDIN_FAST_GROUP", ""), GROUP_SIZE);
    for (int i = 0; i < N_PLACES; i++) {
        if (place->address[i][0] == '\0') {
            continue;
        }
        link->listener[i] = listen_at(place->address[i], &place->port[i]);
        if (link->listener[i] < 0) {
            return FALSE;
        }
    }
    return TRUE;
}

/* The place at which two ranks meet: 1 in a fast group that they share. */
static int place_between(const Place *a, const Place *b) {
    return a->group[0] != '\0' && strcmp(a->group, b->group) == 0 && a->address[1][0] != '\0' &&
           b->address[1][0] != '\0';
}

/* One connection to each peer, then one from each: the kernel completes the former meanwhile. */
static gboolean connect_all(StandinLink *link, _Atomic bool *aborted, gboolean patient) {
    Place mine = {0};
    g_autofree Place *places = g_new0(Place, (gsize)link->n);
    int n_from[N_PLACES] = {0, 0};

    if (!open_place(link, &mine) || !exchange(link, &mine, sizeof mine, places, aborted, patient)) {
        return FALSE;
    }
    for (int i = 1; i < link->n; i++) {
        const int peer = (link->rank + i) % link->n;
        const int at = place_between(&mine, &places[peer]);
        const gint32 rank = link->rank;
        link->to[peer] =
            connect_to(mine.address[at], places[peer].address[at], places[peer].port[at]);
        if (link->to[peer] < 0 || !write_all(link->to[peer], &rank, sizeof rank)) {
            return FALSE;
        }
        n_from[at]++;
    }
    for (int at = 0; at < N_PLACES; at++) {
        for (; n_from[at] > 0; n_from[at]--) {
            const int yes = 1;
            gint32 rank;
            if (!wait_readable(link->listener[at], aborted, patient)) {
                return FALSE;
            }
            const int connection = accept4(link->listener[at], NULL, NULL, SOCK_CLOEXEC);
            if (connection < 0 || !read_all(connection, &rank, sizeof rank) || rank < 0 ||
                rank >= link->n || link->from[rank] >= 0) {
                close_if(connection);
                return FALSE;
            }
            setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            link->from[rank] = connection;
        }
    }
    link->connected = TRUE;
    return TRUE;
}

static gboolean gather(StandinLink *link, const void *mine, size_t size, void *all,
                       _Atomic bool *aborted, gboolean patient) {
    return (link->connected || connect_all(link, aborted, patient)) &&
           exchange(link, mine, size, all, aborted, patient);
}

/* ---- bytes ---- */

static gboolean is_for_later(gssize n) {
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/* A byte each way on the connection, before all messages. */
static void open_direction(StandinLink *link, int peer, gboolean is_send) {
    const char greeting = 1;
    (void)write_all(is_send ? link->to[peer] : link->from[peer], &greeting, 1);
}

/* The host and a stream may both ask. */
static int opened(StandinLink *link, int peer, gboolean is_send) {
    gboolean *greeted = &link->greeted[is_send][peer];
    char greeting;
    gssize n = 1;
    pthread_mutex_lock(&link->greeting_lock);
    if (!*greeted) {
        n = recv(is_send ? link->to[peer] : link->from[peer], &greeting, 1, MSG_DONTWAIT);
        *greeted = n == 1;
    }
    pthread_mutex_unlock(&link->greeting_lock);
    return n == 1 ? 1 : is_for_later(n) ? 0 : STANDIN_PEER_GONE;
}

static gssize put(StandinLink *link, int peer, const void *bytes, size_t size) {
    const gssize n = send(link->to[peer], bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? n : is_for_later(n) ? 0 : STANDIN_PEER_GONE;
}

static gssize get(StandinLink *link, int peer, void *bytes, size_t size) {
    const gssize n = recv(link->from[peer], bytes, size, MSG_DONTWAIT);
    return n > 0 ? n : is_for_later(n) ? 0 : STANDIN_PEER_GONE;
}

static void confirm(StandinLink *link, int peer) {
    const char receipt = 1;
    (void)write_all(link->from[peer], &receipt, 1); /* a peer that has gone needs none */
}

static gint64 receipts(StandinLink *link, int peer) {
    char bytes[256];
    const gssize n = recv(link->to[peer], bytes, sizeof bytes, MSG_DONTWAIT);
    if (n <= 0 && !is_for_later(n)) {
        return STANDIN_PEER_GONE;
    }
    link->n_confirmed[peer] += MAX(n, 0);
    return link->n_confirmed[peer];
}

static uint32_t look(StandinLink *link) {
    (void)link;
    return 0;
}

static void wait_for(StandinLink *link, uint32_t seen, const guint8 *wants, gint64 at_most_ns,
                     const char *who) {
    const struct timespec limit = {.tv_nsec = MIN(at_most_ns, STANDIN_SLEEP_NS)};
    g_autofree struct pollfd *entries = g_new(struct pollfd, 2 * (gsize)link->n);
    nfds_t n = 0;
    (void)seen;
    for (int i = 0; i < link->n; i++) {
        if ((wants[i] & (STANDIN_WANT_SPACE | STANDIN_WANT_RECEIPT)) != 0) {
            const short events = (wants[i] & STANDIN_WANT_SPACE) != 0 ? POLLOUT : POLLIN;
            entries[n++] = (struct pollfd){.fd = link->to[i], .events = events};
        }
        if ((wants[i] & STANDIN_WANT_BYTES) != 0) {
            entries[n++] = (struct pollfd){.fd = link->from[i], .events = POLLIN};
        }
    }
    ppoll(entries, n, &limit, NULL);
    standin_watch(who);
}

/* Waits are short here. */
static void interrupt(StandinLink *link) {
    (void)link;
}

const StandinTransport standin_tcp_transport = {
    .name = "tcp",
    .announce = announce,
    .withdraw = withdraw,
    .join = join_ranks,
    .leave = leave,
    .gather = gather,
    .open = open_direction,
    .opened = opened,
    .put = put,
    .get = get,
    .confirm = confirm,
    .receipts = receipts,
    .look = look,
    .wait = wait_for,
    .interrupt = interrupt,
};
