/*
 * Orders the meetings of senders and receivers so that ranks that run through their rounds in order
 * find their partners free.
 *
 * Method: ranks that meet directly or through others form an island (a domain in an NVLink
 * exchange, the whole cluster in a network stage). On an island where nearly everyone meets
 * everyone, a shift schedule: with senders and receivers numbered in rank order, receivers
 * first(s), first(s) + 1, ... follow each other, where first(s) spreads the senders evenly over the
 * receivers; `peers` of them make a round. An all-to-all thus becomes a sequence of permutations,
 * and in an exchange among the same ranks each one sends and receives in the same round.
 *
 * Where ranks meet few others, shifts would leave most ranks idle in most rounds, at different
 * times. There the meetings are coloured: the bipartite graph of senders and receivers gets as many
 * colours as its busiest rank has meetings (König), one round each, large meetings apart from small
 * ones, so that in a round all that takes part lasts about the same time.
 *
 * An island on which nobody has more than `peers` meetings (a ring) needs one round.
 *
 * Tried and dropped: list scheduling by bytes (an open shop). It packs unequal messages better on
 * paper, but a rank that is early or late by a little breaks the packing for all after it, so that
 * over several batches it lost to the shift. Cost: linear in meetings and ranks; colouring takes
 * the busiest rank's meetings for each meeting, and more where colours must be swapped.
 */

#include "model/plan/refit-rounds.h"

#include <stdlib.h>

#define MESSAGES_IN_FLIGHT 1024
#define SPARSE_IN_FLIGHT 8192 /* where ranks meet few others anyway */
#define MAX_PEERS 16
/* Below this share of all possible meetings an island is sparse. */
#define SPARSE 0.55
/* Meetings of at least this share of the largest one's bytes count as equal. */
#define ALIKE 0.7
/* Meetings below this share of the largest one's bytes are small; so many may share a round. */
#define SMALL 0.25
#define MAX_RIDERS (REFIT_ROUNDS_SPARSE_PEERS - MAX_PEERS)

typedef struct {
    guint n_senders, n_receivers, n_ranks;
    gboolean both;         /* some rank sends and receives */
    guint busiest;         /* most meetings of one rank in one direction */
    double bytes, squares; /* sums over its meetings */
    gboolean sparse;       /* its meetings are coloured */
} Island;

/* Union-find root, with path halving. */
static guint root_of(guint *parent, guint rank) {
    while (parent[rank] != rank) {
        parent[rank] = parent[parent[rank]];
        rank = parent[rank];
    }
    return rank;
}

static guint shift(guint sender, guint n_senders, guint receiver, guint n_receivers) {
    guint first;

    g_assert(n_senders > 0 && n_receivers > 0);
    if (n_senders > n_receivers)
        return shift(receiver, n_receivers, sender, n_senders);
    first = (guint)((guint64)sender * n_receivers / n_senders);
    return (receiver + n_receivers - first) % n_receivers;
}

/* Renumbers rounds so that none is unused; returns how many there are. */
static guint close_gaps(guint *rounds, guint n, guint n_rounds) {
    g_autofree guint *number = g_new0(guint, (gsize)n_rounds + 1);
    guint used = 0;

    for (guint m = 0; m < n; m++)
        number[rounds[m]] = 1;
    for (guint r = 0; r < n_rounds; r++)
        if (number[r] != 0)
            number[r] = used++;
    for (guint m = 0; m < n; m++)
        rounds[m] = number[rounds[m]];
    return used;
}

/* ---- colouring ---- */

/* Meeting + 1 of each rank and colour, 0 where the colour is free. */
typedef struct {
    const RefitMeeting *meetings;
    guint n_colours;
    guint *sent, *received;
    guint *colours; /* per meeting */
    GArray *path;   /* guint: meetings whose colours are swapped */
} Colouring;

static guint *slot_of(const Colouring *self, guint meeting, gboolean sender, guint colour) {
    const RefitMeeting *what = &self->meetings[meeting];

    return sender ? &self->sent[(gsize)what->src * self->n_colours + colour]
                  : &self->received[(gsize)what->dst * self->n_colours + colour];
}

static guint free_colour(const guint *slots) {
    guint colour = 0;

    while (slots[colour] != 0)
        colour++;
    return colour;
}

static void paint(const Colouring *self, guint meeting, guint colour) {
    self->colours[meeting] = colour;
    *slot_of(self, meeting, TRUE, colour) = *slot_of(self, meeting, FALSE, colour) = meeting + 1;
}

/*
 * `a` is free at the sender and `b` at the receiver. Where neither is free at both, the meetings
 * that alternate in a and b from the receiver on swap them; they never lead to the sender.
 */
static void colour_meeting(Colouring *self, guint meeting) {
    guint a = free_colour(slot_of(self, meeting, TRUE, 0));
    guint b = free_colour(slot_of(self, meeting, FALSE, 0));
    gboolean sender = FALSE;

    if (*slot_of(self, meeting, TRUE, b) == 0)
        a = b;
    g_array_set_size(self->path, 0);
    for (guint at = meeting, colour = a; *slot_of(self, at, sender, colour) != 0;
         sender = !sender, colour = colour == a ? b : a) {
        at = *slot_of(self, at, sender, colour) - 1;
        g_array_append_val(self->path, at);
    }
    for (guint i = 0; i < self->path->len; i++) {
        guint at = g_array_index(self->path, guint, i);
        *slot_of(self, at, TRUE, self->colours[at]) = 0;
        *slot_of(self, at, FALSE, self->colours[at]) = 0;
    }
    for (guint i = 0; i < self->path->len; i++) {
        guint at = g_array_index(self->path, guint, i);
        paint(self, at, self->colours[at] == a ? b : a);
    }
    paint(self, meeting, a);
}

typedef struct {
    guint meeting, shift;
    guint64 bytes;
} Candidate;

static int compare_candidates(gconstpointer left, gconstpointer right) {
    const Candidate *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->shift != b->shift)
        return a->shift < b->shift ? -1 : 1;
    return a->meeting < b->meeting ? -1 : 1;
}

static int compare_shifts(gconstpointer left, gconstpointer right) {
    const Candidate *a = left, *b = right;

    if (a->shift != b->shift)
        return a->shift < b->shift ? -1 : 1;
    return a->meeting < b->meeting ? -1 : 1;
}

/* Meetings of like size, by shift: colours in `rounds`. Returns how many there are. */
static guint colour_alike(const RefitMeeting *meetings, Candidate *candidates, guint n,
                          guint n_ranks, guint *rounds) {
    g_autofree guint *sent = g_new0(guint, n_ranks);
    g_autofree guint *received = g_new0(guint, n_ranks);
    Colouring self = {.meetings = meetings, .colours = rounds};

    for (guint i = 0; i < n; i++) {
        const RefitMeeting *meeting = &meetings[candidates[i].meeting];

        sent[meeting->src]++;
        received[meeting->dst]++;
        self.n_colours = MAX(self.n_colours, MAX(sent[meeting->src], received[meeting->dst]));
    }
    qsort(candidates, n, sizeof *candidates, compare_shifts);
    self.sent = g_new0(guint, (gsize)n_ranks * self.n_colours);
    self.received = g_new0(guint, (gsize)n_ranks * self.n_colours);
    self.path = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint i = 0; i < n; i++)
        colour_meeting(&self, candidates[i].meeting);
    g_free(self.sent);
    g_free(self.received);
    g_array_unref(self.path);
    return self.n_colours;
}

/*
 * `candidates`: the meetings of sparse islands. Small ones ride along in the rounds of large ones:
 * in rounds of their own, ranks would wait for each other again and again for little.
 */
static void colour_all(const RefitMeeting *meetings, GArray *candidates, guint n_ranks, guint peers,
                       guint *rounds) {
    Candidate *all = (Candidate *)(gpointer)candidates->data;
    guint n_rounds = 0, n_riders = 0; /* riders of a rank and round */

    g_array_sort(candidates, compare_candidates);
    for (guint first = 0, end; first < candidates->len; first = end) {
        guint64 bytes = all[first].bytes;
        gboolean small = (double)bytes < SMALL * (double)all[0].bytes;
        guint n_colours, riders;

        for (end = first + 1;
             end < candidates->len && (double)all[end].bytes >= ALIKE * (double)bytes;)
            end++;
        n_colours = colour_alike(meetings, all + first, end - first, n_ranks, rounds);
        /* The first are not small: by then there are rounds to ride in. */
        small = small && n_rounds > 0;
        riders = small ? (n_colours + n_rounds - 1) / n_rounds : 0;
        if (small && n_riders + riders <= MAX_RIDERS) {
            for (guint i = first; i < end; i++)
                rounds[all[i].meeting] %= n_rounds;
            n_riders += riders;
            continue;
        }
        for (guint i = first; i < end; i++)
            rounds[all[i].meeting] = n_rounds + rounds[all[i].meeting] / peers;
        n_rounds += (n_colours + peers - 1) / peers;
    }
}

guint refit_rounds_peers(guint n_senders) {
    return CLAMP(MESSAGES_IN_FLIGHT / MAX(n_senders, 1), 1, MAX_PEERS);
}

/*
 * Islands on which most of the meetings that could be are not, or are small: meetings count as many
 * as there would be with the same bytes, were they all equal.
 */
static void find_sparse(const RefitMeeting *meetings, guint n, Island *islands, guint n_ranks,
                        guint *parent) {
    for (guint m = 0; m < n; m++) {
        Island *island = &islands[root_of(parent, meetings[m].src)];
        double bytes = MAX((double)meetings[m].bytes, 1);

        island->bytes += bytes;
        island->squares += bytes * bytes;
    }
    for (guint rank = 0; rank < n_ranks; rank++) {
        Island *island = &islands[rank];
        guint64 most = island->both ? (guint64)island->n_ranks * (island->n_ranks - 1)
                                    : (guint64)island->n_senders * island->n_receivers;

        island->sparse = island->bytes * island->bytes < SPARSE * (double)most * island->squares;
    }
}

guint refit_rounds_assign(const RefitMeeting *meetings, guint n, guint n_ranks, guint peers,
                          guint *rounds_out) {
    g_autofree guint *parent = g_new(guint, MAX(n_ranks, 1));
    g_autofree guint *sends = g_new0(guint, MAX(n_ranks, 1)); /* meetings as sender */
    g_autofree guint *receives = g_new0(guint, MAX(n_ranks, 1));
    g_autofree Island *islands = g_new0(Island, MAX(n_ranks, 1)); /* at the root's number */
    g_autofree guint *sender = g_new(guint, MAX(n_ranks, 1));     /* number on its island */
    g_autofree guint *receiver = g_new(guint, MAX(n_ranks, 1));
    g_autoptr(GArray) sparse = g_array_new(FALSE, FALSE, sizeof(Candidate));
    guint n_rounds = 0, n_senders = 0;

    for (guint rank = 0; rank < n_ranks; rank++)
        parent[rank] = rank;
    for (guint m = 0; m < n; m++) {
        sends[meetings[m].src]++;
        receives[meetings[m].dst]++;
        parent[root_of(parent, meetings[m].src)] = root_of(parent, meetings[m].dst);
    }
    for (guint rank = 0; rank < n_ranks; rank++)
        if (sends[rank] > 0 && receives[rank] > 0)
            islands[root_of(parent, rank)].both = TRUE;
    for (guint rank = 0; rank < n_ranks; rank++) {
        Island *island = &islands[root_of(parent, rank)];

        if (sends[rank] + receives[rank] == 0)
            continue;
        n_senders += sends[rank] > 0 ? 1 : 0;
        sender[rank] = island->both ? island->n_ranks : island->n_senders;
        receiver[rank] = island->both ? island->n_ranks : island->n_receivers;
        island->n_ranks++;
        island->n_senders += sends[rank] > 0 ? 1 : 0;
        island->n_receivers += receives[rank] > 0 ? 1 : 0;
        island->busiest = MAX(island->busiest, MAX(sends[rank], receives[rank]));
    }
    for (guint m = 0; m < n; m++) {
        const Island *island = &islands[root_of(parent, meetings[m].src)];

        rounds_out[m] =
            shift(sender[meetings[m].src], island->both ? island->n_ranks : island->n_senders,
                  receiver[meetings[m].dst], island->both ? island->n_ranks : island->n_receivers);
    }
    find_sparse(meetings, n, islands, n_ranks, parent);
    for (guint m = 0; m < n; m++) {
        Candidate candidate = {m, rounds_out[m], meetings[m].bytes};

        if (islands[root_of(parent, meetings[m].src)].sparse)
            g_array_append_val(sparse, candidate);
    }
    colour_all(meetings, sparse, n_ranks,
               CLAMP(SPARSE_IN_FLIGHT / MAX(n_senders, 1), peers, MAX(peers, MAX_PEERS)),
               rounds_out);
    for (guint m = 0; m < n; m++) {
        const Island *island = &islands[root_of(parent, meetings[m].src)];

        if (island->busiest <= peers)
            rounds_out[m] = 0;
        else if (!island->sparse)
            rounds_out[m] /= peers;
        n_rounds = MAX(n_rounds, rounds_out[m] + 1);
    }
    return close_gaps(rounds_out, n, n_rounds);
}

guint refit_rounds_least(const RefitMeeting *meetings, guint n, guint n_ranks) {
    g_autofree guint *sent = g_new0(guint, MAX(n_ranks, 1));
    g_autofree guint *received = g_new0(guint, MAX(n_ranks, 1));
    guint most = 0;

    for (guint i = 0; i < n; i++) {
        guint of_src = ++sent[meetings[i].src], of_dst = ++received[meetings[i].dst];
        most = MAX(most, MAX(of_src, of_dst));
    }
    return most;
}
