/*
 * The sweep along one tensor dim that overlaps and cells are built on.
 *
 * Problem: two holdings cut a dim at different places, with lists that may interleave and overlap;
 * comparing every list with every other is quadratic. Method: number the distinct lists, put the
 * starts and ends of all their intervals in one sorted sequence and walk it with the set of lists
 * that are open. Between two cuts that set does not change; stretches with the same set form one
 * group, found again by a hash that is updated with each cut. Cost: sort of the cuts plus the size
 * of the open sets; constant when every piece has the same list, as most dims do.
 */

#include "model/geometry/refit-cuts.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const RefitIntervalList *list;
    guint piece; /* pieces of b follow those of a */
} Use;

typedef struct {
    guint64 at;
    guint list;
    gboolean opens;
} Cut;

/* Indices [lo, hi) between two cuts, and the group they belong to. */
typedef struct {
    guint64 lo, hi;
    guint group;
} Stretch;

/* The sweep under way. Groups are found through an open addressing table of group numbers. */
typedef struct {
    RefitCuts *cuts;
    guint n_open, n_open_in_b;
    guint *open;  /* lists open at the current place, ascending */
    guint64 hash; /* of the open lists: the sum of their keys */
    GArray *cover;
    guint64 *hashes; /* per group */
    guint table_mask;
    guint *table; /* group number + 1; 0: free */
    guint n_stretches;
    Stretch *stretches;
} Sweep;

static int use_compare(const void *a, const void *b) {
    const Use *left = a;
    const Use *right = b;
    int order = refit_interval_list_compare(left->list, right->list);

    return order != 0 ? order : left->piece < right->piece ? -1 : left->piece > right->piece;
}

/* The order at one place is of no matter: sets are looked at between places only. */
static int cut_compare(const void *a, const void *b) {
    const Cut *left = a;
    const Cut *right = b;

    return left->at < right->at ? -1 : left->at > right->at;
}

static guint64 list_key(guint list) {
    guint64 key = (list + G_GUINT64_CONSTANT(1)) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);

    key = (key ^ (key >> 30)) * G_GUINT64_CONSTANT(0xbf58476d1ce4e5b9);
    return key ^ (key >> 27);
}

/* Numbers the distinct lists and notes which piece has which. */
static void number_lists(RefitCuts *cuts, const RefitHolding *a, const RefitHolding *b, guint dim) {
    guint n_uses = a->n_pieces + b->n_pieces;
    g_autofree Use *uses = g_new(Use, n_uses);
    gboolean sorted = TRUE;

    for (guint i = 0; i < n_uses; i++) {
        const RefitPiece *piece = i < a->n_pieces ? &a->pieces[i] : &b->pieces[i - a->n_pieces];

        uses[i] = (Use){.list = piece->region.dims[dim], .piece = i};
        sorted =
            sorted && (i == 0 || refit_interval_list_compare(uses[i - 1].list, uses[i].list) <= 0);
    }
    if (!sorted)
        qsort(uses, n_uses, sizeof *uses, use_compare);

    cuts->lists = g_new0(const RefitIntervalList *, n_uses);
    cuts->in_b = g_new0(gboolean, n_uses);
    cuts->a_list = g_new(guint, a->n_pieces);
    cuts->b_list = g_new(guint, b->n_pieces);
    for (guint i = 0; i < n_uses; i++) {
        if (i == 0 || !refit_interval_list_same_indices(uses[i - 1].list, uses[i].list))
            cuts->lists[cuts->n_lists++] = uses[i].list;
        if (uses[i].piece < a->n_pieces) {
            cuts->a_list[uses[i].piece] = cuts->n_lists - 1;
        } else {
            cuts->b_list[uses[i].piece - a->n_pieces] = cuts->n_lists - 1;
            cuts->in_b[cuts->n_lists - 1] = TRUE;
        }
    }
}

/* Starts and ends of all runs of all lists, sorted. */
static Cut *collect_cuts(const RefitCuts *cuts, guint *n_out) {
    guint n_items = 0;
    guint n = 0;
    Cut *sorted;

    for (guint l = 0; l < cuts->n_lists; l++) {
        g_assert(cuts->lists[l] != NULL);
        n_items += cuts->lists[l]->n;
    }
    sorted = g_new(Cut, 2 * (gsize)n_items);
    for (guint l = 0; l < cuts->n_lists; l++) {
        guint position = 0;
        guint64 lo, hi;

        while (refit_interval_list_next_run(cuts->lists[l], &position, &lo, &hi)) {
            sorted[n++] = (Cut){.at = lo, .list = l, .opens = TRUE};
            sorted[n++] = (Cut){.at = hi, .list = l};
        }
    }
    qsort(sorted, n, sizeof *sorted, cut_compare);
    *n_out = n;
    return sorted;
}

static void apply_cut(Sweep *sweep, const Cut *cut) {
    guint at = 0;

    while (at < sweep->n_open && sweep->open[at] < cut->list)
        at++;
    if (cut->opens) {
        memmove(sweep->open + at + 1, sweep->open + at, (sweep->n_open - at) * sizeof *sweep->open);
        sweep->open[at] = cut->list;
        sweep->n_open++;
        sweep->hash += list_key(cut->list);
        sweep->n_open_in_b += sweep->cuts->in_b[cut->list] ? 1 : 0;
    } else {
        sweep->n_open--;
        memmove(sweep->open + at, sweep->open + at + 1, (sweep->n_open - at) * sizeof *sweep->open);
        sweep->hash -= list_key(cut->list);
        sweep->n_open_in_b -= sweep->cuts->in_b[cut->list] ? 1 : 0;
    }
}

/* The group whose lists are exactly the open ones, made when there is none. */
static guint find_group(Sweep *sweep) {
    RefitCuts *cuts = sweep->cuts;
    guint slot = (guint)(sweep->hash >> 32) & sweep->table_mask;
    guint group;

    for (; sweep->table[slot] != 0; slot = (slot + 1) & sweep->table_mask) {
        group = sweep->table[slot] - 1;
        if (sweep->hashes[group] == sweep->hash &&
            cuts->cover_start[group + 1] - cuts->cover_start[group] == sweep->n_open &&
            memcmp(&g_array_index(sweep->cover, guint, cuts->cover_start[group]), sweep->open,
                   sweep->n_open * sizeof *sweep->open) == 0)
            return group;
    }
    group = cuts->n_groups++;
    sweep->table[slot] = group + 1;
    sweep->hashes[group] = sweep->hash;
    g_array_append_vals(sweep->cover, sweep->open, sweep->n_open);
    cuts->cover_start[group + 1] = sweep->cover->len;
    return group;
}

/* Finds groups, their lists, and all stretches in index order. */
static void sweep_run(Sweep *sweep, const Cut *sorted, guint n) {
    guint64 from = 0;

    for (guint i = 0; i < n; i++) {
        if (sorted[i].at > from && sweep->n_open_in_b > 0) {
            sweep->stretches[sweep->n_stretches++] =
                (Stretch){.lo = from, .hi = sorted[i].at, .group = find_group(sweep)};
        }
        from = sorted[i].at;
        apply_cut(sweep, &sorted[i]);
    }
}

/* The list of one group; shared with a covering list that has no more indices. */
static RefitIntervalList *group_list(const RefitCuts *cuts, guint group, RefitInterval *items,
                                     guint n) {
    RefitIntervalList *list;
    guint64 at = 0;

    for (guint i = 0; i < n; i++) {
        items[i].at = at;
        at += items[i].hi - items[i].lo;
    }
    for (guint i = cuts->cover_start[group]; i < cuts->cover_start[group + 1]; i++) {
        const RefitIntervalList *cover = cuts->lists[cuts->cover[i]];

        if (cover->extent == at)
            return refit_interval_list_slice(cover, 0, at);
    }
    if (n == 1)
        return refit_interval_list_range(items[0].lo, items[0].hi);
    list = refit_interval_list_new(items, n, NULL);
    g_assert(list != NULL); /* stretches are disjoint by construction */
    return list;
}

/* Deals the stretches to their groups and makes each group's list. */
static void make_groups(RefitCuts *cuts, const Stretch *stretches, guint n) {
    g_autofree RefitInterval *items = g_new(RefitInterval, n);
    g_autofree guint *end = g_new0(guint, cuts->n_groups + 1);

    for (guint i = 0; i < n; i++)
        end[stretches[i].group + 1]++;
    for (guint g = 0; g < cuts->n_groups; g++)
        end[g + 1] += end[g];
    for (guint i = 0; i < n; i++) {
        items[end[stretches[i].group]++] =
            (RefitInterval){.lo = stretches[i].lo, .hi = stretches[i].hi};
    }
    cuts->groups = g_new(RefitIntervalList *, cuts->n_groups);
    for (guint g = 0; g < cuts->n_groups; g++) {
        guint start = g > 0 ? end[g - 1] : 0;

        cuts->groups[g] = group_list(cuts, g, items + start, end[g] - start);
    }
}

static void find_groups(RefitCuts *cuts) {
    guint n;
    g_autofree Cut *sorted = collect_cuts(cuts, &n);
    Sweep sweep = {.cuts = cuts, .cover = g_array_new(FALSE, FALSE, sizeof(guint))};

    /* There are fewer stretches, and so groups, than cuts; the table stays half empty. */
    for (sweep.table_mask = 1; sweep.table_mask < 2 * n;
         sweep.table_mask = 2 * sweep.table_mask + 1)
        continue;
    sweep.open = g_new(guint, cuts->n_lists);
    sweep.hashes = g_new(guint64, n);
    sweep.table = g_new0(guint, (gsize)sweep.table_mask + 1);
    sweep.stretches = g_new(Stretch, n);
    cuts->cover_start = g_new0(guint, (gsize)n + 1);
    sweep_run(&sweep, sorted, n);
    cuts->cover = (guint *)(gpointer)g_array_free(sweep.cover, FALSE);
    make_groups(cuts, sweep.stretches, sweep.n_stretches);
    g_free(sweep.open);
    g_free(sweep.hashes);
    g_free(sweep.table);
    g_free(sweep.stretches);
}

/* The inverse of `cover`: groups of each list. */
static void invert_cover(RefitCuts *cuts) {
    g_autofree guint *next = NULL;

    cuts->parts_start = g_new0(guint, cuts->n_lists + 1);
    cuts->parts = g_new(guint, cuts->cover_start[cuts->n_groups]);
    for (guint i = 0; i < cuts->cover_start[cuts->n_groups]; i++)
        cuts->parts_start[cuts->cover[i] + 1]++;
    for (guint l = 0; l < cuts->n_lists; l++)
        cuts->parts_start[l + 1] += cuts->parts_start[l];
    next = g_memdup2(cuts->parts_start, (cuts->n_lists + 1) * sizeof *next);
    for (guint g = 0; g < cuts->n_groups; g++) {
        for (guint i = cuts->cover_start[g]; i < cuts->cover_start[g + 1]; i++)
            cuts->parts[next[cuts->cover[i]]++] = g;
    }
}

void refit_cuts_init(RefitCuts *cuts, const RefitHolding *a, const RefitHolding *b, guint dim) {
    *cuts = (RefitCuts){.n_lists = 0};
    number_lists(cuts, a, b, dim);
    if (cuts->n_lists == 1 && b->n_pieces > 0) {
        const RefitIntervalList *only = cuts->lists[0];

        g_assert(only != NULL);
        cuts->n_groups = 1;
        cuts->groups = g_new(RefitIntervalList *, 1);
        cuts->groups[0] = refit_interval_list_slice(only, 0, only->extent);
        cuts->cover = g_new0(guint, 1);
        cuts->cover_start = g_new0(guint, 2);
        cuts->cover_start[1] = 1;
    } else {
        find_groups(cuts);
    }
    invert_cover(cuts);
}

void refit_cuts_clear(RefitCuts *cuts) {
    for (guint g = 0; g < cuts->n_groups; g++)
        refit_interval_list_unref(cuts->groups[g]);
    g_free(cuts->groups);
    g_free(cuts->lists);
    g_free(cuts->in_b);
    g_free(cuts->a_list);
    g_free(cuts->b_list);
    g_free(cuts->cover_start);
    g_free(cuts->cover);
    g_free(cuts->parts_start);
    g_free(cuts->parts);
    *cuts = (RefitCuts){.n_lists = 0};
}
