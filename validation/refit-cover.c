/*
 * Fewest ranks with one in every set.
 *
 * The problem is the hitting set problem, hard in general but easy as it comes: replicas make sets
 * that are equal, disjoint or nested. Method: sets that contain another are dropped, for whoever
 * hits the smaller hits both; ranks that lie in the same sets count as one; what then falls apart
 * is searched apart. The search branches on the members of a smallest open set, and is cut off by a
 * packing of disjoint open sets, which each need a rank of their own. Cost: linear in the sets for
 * disjoint ones; else at most `budget` nodes of the size of what is searched.
 */

#include "validation/refit-cover.h"

#include <string.h>

static int compare_sets(gconstpointer a, gconstpointer b) {
    const RefitRankSet *left = a, *right = b;

    if (left->n != right->n)
        return left->n < right->n ? -1 : 1;
    for (guint i = 0; i < left->n; i++)
        if (left->members[i] != right->members[i])
            return left->members[i] < right->members[i] ? -1 : 1;
    return 0;
}

static gboolean is_subset(const RefitRankSet *inner, const RefitRankSet *outer) {
    guint at = 0;

    for (guint i = 0; i < inner->n; i++) {
        while (at < outer->n && outer->members[at] < inner->members[i])
            at++;
        if (at == outer->n || outer->members[at] != inner->members[i])
            return FALSE;
    }
    return TRUE;
}

/* Sets without those that contain another; an array of RefitRankSet. A kept set is found again by
 * its first member, which every set that contains it has as well. */
static GArray *drop_supersets(const RefitRankSet *sets, guint n) {
    g_autoptr(GArray) sorted = g_array_sized_new(FALSE, FALSE, sizeof(RefitRankSet), n);
    g_autoptr(GHashTable) by_first =
        g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)g_array_unref);
    GArray *kept = g_array_new(FALSE, FALSE, sizeof(RefitRankSet));

    g_array_append_vals(sorted, sets, n);
    g_array_sort(sorted, compare_sets);
    for (guint i = 0; i < n; i++) {
        const RefitRankSet *set = &g_array_index(sorted, RefitRankSet, i);
        gboolean contains = FALSE;
        for (guint m = 0; m < set->n && !contains; m++) {
            const GArray *known = g_hash_table_lookup(by_first, GUINT_TO_POINTER(set->members[m]));
            for (guint k = 0; known != NULL && k < known->len && !contains; k++)
                contains = is_subset(
                    &g_array_index(kept, RefitRankSet, g_array_index(known, guint, k)), set);
        }
        if (contains)
            continue;
        GArray *known = g_hash_table_lookup(by_first, GUINT_TO_POINTER(set->members[0]));
        if (known == NULL) {
            known = g_array_new(FALSE, FALSE, sizeof(guint));
            g_hash_table_insert(by_first, GUINT_TO_POINTER(set->members[0]), known);
        }
        g_array_append_val(known, kept->len);
        g_array_append_val(kept, *set);
    }
    return kept;
}

/* ---- the search, on ranks numbered 0, 1, ... ---- */

typedef struct {
    guint n_sets, n_ranks;
    GArray **sets;  /* per set: ranks */
    GArray **ranks; /* per rank: sets */
    guint *hits;    /* per set: chosen ranks in it */
    guint *packed;  /* per rank: number of the last packing that used it */
    guint n_packings;
    guint best, budget;
    gboolean exact;
} Search;

static gboolean same_sets(const GArray *a, const GArray *b) {
    return a->len == b->len && memcmp(a->data, b->data, a->len * sizeof(guint)) == 0;
}

/* Sets of `set` ranks that are still open and pairwise disjoint, found greedily. */
static guint packing(Search *search) {
    guint n = 0;

    search->n_packings++;
    for (guint s = 0; s < search->n_sets; s++) {
        const GArray *set = search->sets[s];
        gboolean open = search->hits[s] == 0;
        for (guint i = 0; i < set->len && open; i++)
            open = search->packed[g_array_index(set, guint, i)] != search->n_packings;
        if (!open)
            continue;
        n++;
        for (guint i = 0; i < set->len; i++)
            search->packed[g_array_index(set, guint, i)] = search->n_packings;
    }
    return n;
}

static void choose(Search *search, guint rank, gint change) {
    const GArray *sets = search->ranks[rank];

    for (guint i = 0; i < sets->len; i++)
        search->hits[g_array_index(sets, guint, i)] += (guint)change;
}

/* Open sets that the rank would close. */
static guint gain(const Search *search, guint rank) {
    const GArray *sets = search->ranks[rank];
    guint n = 0;

    for (guint i = 0; i < sets->len; i++)
        n += search->hits[g_array_index(sets, guint, i)] == 0 ? 1 : 0;
    return n;
}

/* Position of the smallest open set, n_sets when all are closed. */
static guint smallest_open(const Search *search) {
    guint found = search->n_sets;

    for (guint s = 0; s < search->n_sets; s++)
        if (search->hits[s] == 0 &&
            (found == search->n_sets || search->sets[s]->len < search->sets[found]->len))
            found = s;
    return found;
}

typedef struct {
    guint rank, gain;
} Choice;

static int compare_choices(gconstpointer a, gconstpointer b) {
    const Choice *left = a, *right = b;

    if (left->gain != right->gain)
        return left->gain > right->gain ? -1 : 1;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Depth is the number of ranks chosen, so at most the number of sets. */
static void descend(Search *search, guint n_chosen) {
    guint open = smallest_open(search);

    if (open == search->n_sets) {
        search->best = MIN(search->best, n_chosen);
        return;
    }
    if (n_chosen + packing(search) >= search->best)
        return;
    if (search->budget == 0) {
        search->exact = FALSE;
        return;
    }
    search->budget--;
    g_autoptr(GArray) choices = g_array_new(FALSE, FALSE, sizeof(Choice));
    for (guint i = 0; i < search->sets[open]->len; i++) {
        guint rank = g_array_index(search->sets[open], guint, i);
        Choice choice = {rank, gain(search, rank)};
        g_array_append_val(choices, choice);
    }
    g_array_sort(choices, compare_choices);
    for (guint i = 0; i < choices->len; i++) {
        guint rank = g_array_index(choices, Choice, i).rank;
        choose(search, rank, 1);
        descend(search, n_chosen + 1);
        choose(search, rank, -1);
    }
}

/* Always the rank that closes most open sets: what the search has to beat. */
static guint greedy(Search *search) {
    g_autoptr(GArray) chosen = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint open; (open = smallest_open(search)) < search->n_sets;) {
        guint best = g_array_index(search->sets[open], guint, 0);
        for (guint rank = 0; rank < search->n_ranks; rank++)
            if (gain(search, rank) > gain(search, best))
                best = rank;
        choose(search, best, 1);
        g_array_append_val(chosen, best);
    }
    for (guint i = 0; i < chosen->len; i++)
        choose(search, g_array_index(chosen, guint, i), -1);
    return chosen->len;
}

static void search_clear(Search *search) {
    for (guint s = 0; s < search->n_sets; s++)
        g_array_unref(search->sets[s]);
    for (guint rank = 0; rank < search->n_ranks; rank++)
        g_array_unref(search->ranks[rank]);
    g_free(search->sets);
    g_free(search->ranks);
    g_free(search->hits);
    g_free(search->packed);
}

/* Sets that hang together, on ranks of which those in the same sets are one. */
static guint search_sets(const RefitRankSet *sets, const guint *chosen, guint n, guint *budget,
                         gboolean *exact) {
    Search search = {.n_sets = n, .budget = *budget, .exact = TRUE};
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint s = 0; s < n; s++)
        g_array_append_vals(all, sets[chosen[s]].members, sets[chosen[s]].n);
    guint *names = (guint *)(gpointer)all->data;
    refit_ranks_sort(names, all->len);
    guint n_names = refit_ranks_drop_repeats(names, all->len);
    search.sets = g_new(GArray *, n);
    search.ranks = g_new(GArray *, n_names);
    for (guint s = 0; s < n; s++)
        search.sets[s] = g_array_new(FALSE, FALSE, sizeof(guint));
    for (guint name = 0; name < n_names; name++) {
        GArray *in = g_array_new(FALSE, FALSE, sizeof(guint));
        gboolean known = FALSE;
        for (guint s = 0; s < n; s++) {
            const RefitRankSet one = {1, &names[name]};
            if (is_subset(&one, &sets[chosen[s]]))
                g_array_append_val(in, s);
        }
        for (guint rank = 0; rank < search.n_ranks && !known; rank++)
            known = same_sets(search.ranks[rank], in);
        if (known) {
            g_array_unref(in);
            continue;
        }
        for (guint i = 0; i < in->len; i++)
            g_array_append_val(search.sets[g_array_index(in, guint, i)], search.n_ranks);
        search.ranks[search.n_ranks++] = in;
    }
    search.hits = g_new0(guint, n);
    search.packed = g_new0(guint, search.n_ranks);
    search.best = greedy(&search);
    descend(&search, 0);
    *budget = search.budget;
    *exact = *exact && search.exact;
    search_clear(&search);
    return search.best;
}

/* ---- components ---- */

static guint find_root(guint *parent, guint set) {
    while (parent[set] != set) {
        parent[set] = parent[parent[set]];
        set = parent[set];
    }
    return set;
}

/* Root of each set's component: sets with a common member are in one. */
static guint *find_components(const RefitRankSet *sets, guint n) {
    g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL); /* member -> 1 + set */
    guint *parent = g_new(guint, MAX(n, 1));

    for (guint s = 0; s < n; s++)
        parent[s] = s;
    for (guint s = 0; s < n; s++) {
        for (guint i = 0; i < sets[s].n; i++) {
            gpointer key = GUINT_TO_POINTER(sets[s].members[i]);
            guint other = GPOINTER_TO_UINT(g_hash_table_lookup(seen, key));
            if (other > 0) {
                guint a = find_root(parent, s), b = find_root(parent, other - 1);
                parent[MAX(a, b)] = MIN(a, b);
            } else {
                g_hash_table_insert(seen, key, GUINT_TO_POINTER(s + 1));
            }
        }
    }
    for (guint s = 0; s < n; s++)
        parent[s] = find_root(parent, s);
    return parent;
}

guint refit_cover_fewest(const RefitRankSet *sets, guint n, guint budget, gboolean *exact_out) {
    gboolean exact = TRUE;
    guint fewest = 0;

    if (n <= 1) {
        *exact_out = TRUE;
        return n;
    }
    g_autoptr(GArray) kept = drop_supersets(sets, n);
    const RefitRankSet *items = (const RefitRankSet *)(gconstpointer)kept->data;
    g_autofree guint *root = find_components(items, kept->len);
    g_autofree GArray **components = g_new0(GArray *, kept->len);
    for (guint s = 0; s < kept->len; s++) {
        if (components[root[s]] == NULL)
            components[root[s]] = g_array_new(FALSE, FALSE, sizeof(guint));
        g_array_append_val(components[root[s]], s);
    }
    for (guint s = 0; s < kept->len; s++) {
        GArray *component = components[s];
        if (component == NULL)
            continue;
        if (component->len == 1)
            fewest++;
        else
            fewest += search_sets(items, (const guint *)(gpointer)component->data, component->len,
                                  &budget, &exact);
        g_array_unref(component);
    }
    *exact_out = exact;
    return fewest;
}
