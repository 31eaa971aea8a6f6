/*
 * Orders the meetings of senders and receivers so that ranks that run through their rounds in order
 * find their partners free.
 *
 * Method: ranks that meet directly or through others form an island (a domain in an NVLink
 * exchange, the whole cluster in a network stage). On each, a shift schedule: with senders and
 * receivers numbered in rank order, receivers first(s), first(s) + 1, ... follow each other, where
 * first(s) spreads the senders evenly over the receivers; `peers` of them make a round. An
 * all-to-all thus becomes a sequence of permutations, and in an exchange among the same ranks each
 * one sends and receives in the same round.
 *
 * Where ranks meet few others, shifts can leave most ranks idle in most rounds, at different times.
 * There the meetings are coloured: the bipartite graph of senders and receivers gets as many
 * colours as its busiest rank has meetings (Koenig), large meetings apart from small ones; colours
 * take the place of shifts.
 *
 * How many peers make a round. In a round each rank moves all its messages side by side, and no
 * rank is done before the busiest port is. So rounds in lock step last at least the sum, over the
 * rounds, of the bytes of the busiest port of each: for equal messages of everyone with everyone
 * that is what the busiest port has in all, whatever the number of peers; where ranks meet few
 * others, or in unlike sizes, other ports are the busiest ones in other rounds, and the sum grows.
 * The more peers make a round, the smaller it is, down to what the busiest port has when all is one
 * round. Fewer peers are better otherwise: fewer messages arrive at a port at the same time, and
 * each of them is longer. So of 4, 8, 16 ... peers, the fewest are taken with which the sum is
 * within LOCK_STEP_SHARE of what the busiest port has in all: ranks are not in lock step, and lose
 * about a third of the excess. Where no number of peers comes so close, an island is coloured, if
 * that makes the sum smaller. Four is what it takes to fill a NIC at the rate of one pair of ranks
 * (REFIT_ROUNDS_LEAST_PEERS).
 *
 * An island on which nobody has more than `peers` meetings (a ring), and no more than a turn may
 * have, needs one round. Cost: linear in meetings and ranks, for each number of peers that is
 * tried; colouring takes the busiest rank's meetings for each meeting, and more where colours must
 * be swapped.
 */

#include "model/plan/refit-rounds.h"

#include <stdlib.h>

#define LOCK_STEP_SHARE 0.06
/* Meetings of at least this share of the largest one's bytes count as equal. */
#define ALIKE 0.7
/* Meetings below this share of the largest one's bytes are small. */
#define SMALL 0.25

typedef struct {
    guint n_senders, n_receivers, n_ranks;
    gboolean both;     /* some rank sends and receives */
    guint busiest;     /* most meetings of one rank in one direction */
    guint64 most;      /* bytes of the busiest port */
    guint peers;       /* of a round */
    double least;      /* bytes of rounds in lock step, with the best number of peers so far */
    double sum;        /* the same with the number that is tried */
    guint64 round;     /* bytes of the busiest port of the round in work */
    gboolean too_many; /* messages of a rank in a round; no more peers are tried */
    gboolean coloured; /* rounds are of colours, not shifts */
} Island;

typedef struct {
    const RefitMeeting *meetings;
    guint n, n_ranks;
    guint *parent;   /* union-find; roots are islands */
    Island *islands; /* at the root's number */
    guint *shifts;   /* per meeting */
} Rounds;

/* Union-find root, with path halving. */
static guint root_of(guint *parent, guint rank) {
    while (parent[rank] != rank) {
        parent[rank] = parent[parent[rank]];
        rank = parent[rank];
    }
    return rank;
}

static Island *island_of(const Rounds *self, guint meeting) {
    return &self->islands[root_of(self->parent, self->meetings[meeting].src)];
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

/* ---- islands ---- */

static void find_islands(const Rounds *self) {
    guint n_ranks = MAX(self->n_ranks, 1);
    g_autofree guint *sends = g_new0(guint, n_ranks), *receives = g_new0(guint, n_ranks);
    g_autofree guint64 *sent = g_new0(guint64, n_ranks), *received = g_new0(guint64, n_ranks);
    g_autofree guint *sender = g_new(guint, n_ranks);   /* number on its island */
    g_autofree guint *receiver = g_new(guint, n_ranks); /* the same */

    for (guint rank = 0; rank < self->n_ranks; rank++)
        self->parent[rank] = rank;
    for (guint m = 0; m < self->n; m++) {
        const RefitMeeting *meeting = &self->meetings[m];

        sends[meeting->src]++;
        receives[meeting->dst]++;
        sent[meeting->src] += meeting->bytes;
        received[meeting->dst] += meeting->bytes;
        self->parent[root_of(self->parent, meeting->src)] = root_of(self->parent, meeting->dst);
    }
    for (guint rank = 0; rank < self->n_ranks; rank++)
        if (sends[rank] > 0 && receives[rank] > 0)
            self->islands[root_of(self->parent, rank)].both = TRUE;
    for (guint rank = 0; rank < self->n_ranks; rank++) {
        Island *island = &self->islands[root_of(self->parent, rank)];

        if (sends[rank] + receives[rank] == 0)
            continue;
        sender[rank] = island->both ? island->n_ranks : island->n_senders;
        receiver[rank] = island->both ? island->n_ranks : island->n_receivers;
        island->n_ranks++;
        island->n_senders += sends[rank] > 0 ? 1 : 0;
        island->n_receivers += receives[rank] > 0 ? 1 : 0;
        island->busiest = MAX(island->busiest, MAX(sends[rank], receives[rank]));
        island->most = MAX(island->most, MAX(sent[rank], received[rank]));
    }
    for (guint m = 0; m < self->n; m++) {
        const Island *island = island_of(self, m);

        self->shifts[m] = shift(
            sender[self->meetings[m].src], island->both ? island->n_ranks : island->n_senders,
            receiver[self->meetings[m].dst], island->both ? island->n_ranks : island->n_receivers);
    }
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
 * Colours of the candidates into `rounds`. Small meetings ride along with large ones: with colours
 * of their own, ranks would wait for each other again and again for little.
 */
static void colour_all(const RefitMeeting *meetings, GArray *candidates, guint n_ranks,
                       guint *rounds) {
    Candidate *all = (Candidate *)(gpointer)candidates->data;
    guint n_colours = 0;

    g_array_sort(candidates, compare_candidates);
    for (guint first = 0, end; first < candidates->len; first = end) {
        guint64 bytes = all[first].bytes;
        /* The first are not small: by then there are colours to ride with. */
        gboolean small = n_colours > 0 && (double)bytes < SMALL * (double)all[0].bytes;
        guint n_more;

        for (end = first + 1;
             end < candidates->len && (double)all[end].bytes >= ALIKE * (double)bytes;)
            end++;
        n_more = colour_alike(meetings, all + first, end - first, n_ranks, rounds);
        for (guint i = first; i < end; i++)
            rounds[all[i].meeting] =
                small ? rounds[all[i].meeting] % n_colours : n_colours + rounds[all[i].meeting];
        n_colours += small ? 0 : n_more;
    }
}

/* ---- peers ---- */

/* Meetings by place: what makes a round is together, whatever the peers are. */
static guint *sort_by_place(const Rounds *self, const guint *places, guint *n_places_out) {
    guint *order = g_new(guint, MAX(self->n, 1)), n_places = 0;
    g_autofree guint *ends = NULL;

    for (guint m = 0; m < self->n; m++)
        n_places = MAX(n_places, places[m] + 1);
    ends = g_new0(guint, (gsize)n_places + 1);
    for (guint m = 0; m < self->n; m++)
        ends[places[m] + 1]++;
    for (guint s = 0; s < n_places; s++)
        ends[s + 1] += ends[s];
    for (guint m = 0; m < self->n; m++)
        order[ends[places[m]]++] = m;
    *n_places_out = n_places;
    return order;
}

/* What a rank does in the round in work. */
typedef struct {
    guint64 sent, received;
    guint n_sent, n_received;
} Load;

/* One round: meetings order[first .. end). */
static void add_round(const Rounds *self, const guint *order, guint first, guint end, Load *loads) {
    for (guint i = first; i < end; i++) {
        const RefitMeeting *meeting = &self->meetings[order[i]];
        Island *island = island_of(self, order[i]);
        Load *src = &loads[meeting->src], *dst = &loads[meeting->dst];

        src->sent += meeting->bytes;
        dst->received += meeting->bytes;
        island->round = MAX(island->round, MAX(src->sent, dst->received));
        src->n_sent++;
        dst->n_received++;
        island->too_many |= MAX(src->n_sent, dst->n_received) > REFIT_ROUNDS_OPERATIONS;
    }
    for (guint i = first; i < end; i++) {
        const RefitMeeting *meeting = &self->meetings[order[i]];
        Island *island = island_of(self, order[i]);

        loads[meeting->src] = loads[meeting->dst] = (Load){0};
        island->sum += (double)island->round;
        island->round = 0;
    }
}

static gboolean is_close(const Island *island) {
    return island->least <= (1 + LOCK_STEP_SHARE) * (double)island->most;
}

/*
 * Tries numbers of peers on rounds of `places`, and notes on each island that is not close yet the
 * best of them, and that it was with `coloured` places, where it beats what is known.
 */
static void try_peers(const Rounds *self, const guint *places, gboolean coloured) {
    guint n_places;
    g_autofree guint *order = sort_by_place(self, places, &n_places);
    g_autofree Load *loads = g_new0(Load, MAX(self->n_ranks, 1));
    gboolean settled = self->n == 0;

    for (guint peers = REFIT_ROUNDS_LEAST_PEERS; !settled; peers *= 2) {
        for (guint first = 0, end; first < self->n; first = end) {
            guint round = places[order[first]] / peers;

            for (end = first + 1; end < self->n && places[order[end]] / peers == round;)
                end++;
            add_round(self, order, first, end, loads);
        }
        settled = TRUE;
        for (guint rank = 0; rank < self->n_ranks; rank++) {
            Island *island = &self->islands[rank];

            if (!is_close(island) && !island->too_many && island->sum < island->least) {
                island->least = island->sum;
                island->peers = peers;
                island->coloured = coloured;
            }
            settled &= island->n_ranks == 0 || island->too_many || is_close(island);
            island->sum = 0;
        }
        settled |= peers >= n_places;
    }
    for (guint rank = 0; rank < self->n_ranks; rank++)
        self->islands[rank].too_many = FALSE;
}

/* Colours what no shift puts in order. */
static void try_colours(const Rounds *self) {
    g_autoptr(GArray) candidates = g_array_new(FALSE, FALSE, sizeof(Candidate));
    g_autofree guint *colours = g_new0(guint, MAX(self->n, 1));

    for (guint m = 0; m < self->n; m++) {
        Candidate candidate = {m, self->shifts[m], self->meetings[m].bytes};

        if (!is_close(island_of(self, m)))
            g_array_append_val(candidates, candidate);
    }
    if (candidates->len == 0)
        return;
    colour_all(self->meetings, candidates, self->n_ranks, colours);
    try_peers(self, colours, TRUE);
    for (guint m = 0; m < self->n; m++)
        if (island_of(self, m)->coloured)
            self->shifts[m] = colours[m];
}

guint refit_rounds_assign(const RefitMeeting *meetings, guint n, guint n_ranks, guint peers,
                          guint *rounds_out) {
    g_autofree guint *parent = g_new(guint, MAX(n_ranks, 1));
    g_autofree Island *islands = g_new0(Island, MAX(n_ranks, 1));
    const Rounds self = {meetings, n, n_ranks, parent, islands, rounds_out};
    guint n_rounds = 0;

    find_islands(&self);
    for (guint rank = 0; rank < n_ranks; rank++) {
        islands[rank].peers = peers > 0 ? peers : REFIT_ROUNDS_LEAST_PEERS;
        islands[rank].least = islands[rank].n_ranks > 0 && peers == 0 ? G_MAXDOUBLE : 0;
    }
    if (peers == 0) {
        try_peers(&self, rounds_out, FALSE);
        try_colours(&self);
    }
    for (guint m = 0; m < n; m++) {
        const Island *island = island_of(&self, m);

        if (!island->coloured && island->busiest <= MIN(island->peers, REFIT_ROUNDS_OPERATIONS))
            rounds_out[m] = 0;
        else
            rounds_out[m] /= island->peers;
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
