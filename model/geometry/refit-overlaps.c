/*
 * Overlaps: the pairs of pieces of two holdings that have elements in common.
 *
 * Problem: two sides have thousands of pieces each, and few pairs meet; trying every pair is out of
 * the question. Method: pieces are sorted, so they form a tree with one level per dim; the walk
 * goes down the tree of one side and keeps the nodes of the other side that meet in every dim so
 * far, with the meeting pairs of lists found by one sweep per dim (refit-cuts.c). Cost: sort plus
 * output.
 */

#include "model/geometry/refit-cuts.h"

/* A list of b that a list of a meets, and what they have in common. */
typedef struct {
    guint list;
    RefitIntervalList *common;
} Meeting;

/* A node of the tree of b: pieces [first, end) agree in the dims walked so far. */
typedef struct {
    guint first, end;
    RefitRegion common; /* borrowed lists */
} Node;

typedef struct {
    const RefitHolding *a;
    guint n_dims;
    RefitCuts cuts[REFIT_MAX_DIMS];
    GArray **meetings[REFIT_MAX_DIMS]; /* per dim and list of a, ascending */
    GArray *nodes[REFIT_MAX_DIMS + 1]; /* Node; nodes[d] meet in dims 0 .. d - 1 */
    RefitOverlapFunc func;
    gpointer user_data;
} Overlaps;

/* Lists of b that share a group with list `list`. */
static GArray *find_meetings(const RefitCuts *cuts, guint list) {
    GArray *meetings = g_array_new(FALSE, FALSE, sizeof(Meeting));
    g_autoptr(GArray) met = g_array_new(FALSE, FALSE, sizeof(guint));

    for (guint p = cuts->parts_start[list]; p < cuts->parts_start[list + 1]; p++) {
        guint group = cuts->parts[p];

        for (guint i = cuts->cover_start[group]; i < cuts->cover_start[group + 1]; i++) {
            if (cuts->in_b[cuts->cover[i]])
                g_array_append_val(met, cuts->cover[i]);
        }
    }
    refit_ranks_sort((guint *)(gpointer)met->data, met->len);
    for (guint i = 0; i < met->len; i++) {
        Meeting meeting = {.list = g_array_index(met, guint, i)};

        if (i > 0 && meeting.list == g_array_index(met, guint, i - 1))
            continue;
        meeting.common =
            refit_interval_list_intersect(cuts->lists[list], cuts->lists[meeting.list]);
        g_array_append_val(meetings, meeting);
    }
    return meetings;
}

static void overlaps_init_dim(Overlaps *self, guint dim, const RefitHolding *b) {
    RefitCuts *cuts = &self->cuts[dim];

    refit_cuts_init(cuts, self->a, b, dim);
    self->meetings[dim] = g_new0(GArray *, cuts->n_lists);
    for (guint i = 0; i < self->a->n_pieces; i++) {
        guint list = cuts->a_list[i];

        if (self->meetings[dim][list] == NULL)
            self->meetings[dim][list] = find_meetings(cuts, list);
    }
}

static void overlaps_clear_dim(Overlaps *self, guint dim) {
    for (guint l = 0; l < self->cuts[dim].n_lists; l++) {
        GArray *meetings = self->meetings[dim][l];

        if (meetings == NULL)
            continue;
        for (guint i = 0; i < meetings->len; i++)
            refit_interval_list_unref(g_array_index(meetings, Meeting, i).common);
        g_array_unref(meetings);
    }
    g_free(self->meetings[dim]);
    refit_cuts_clear(&self->cuts[dim]);
}

/* First piece in [first, end) whose list is at least `list`. */
static guint lower_bound(const guint *lists, guint first, guint end, guint list) {
    while (first < end) {
        guint middle = first + (end - first) / 2;

        if (lists[middle] < list)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* Children of `node` in `dim` whose list meets one of `meetings`. */
static void refine(GArray *children, const Node *node, guint dim, const guint *lists,
                   const GArray *meetings) {
    guint first = node->first;

    for (guint i = 0; i < meetings->len && first < node->end; i++) {
        const Meeting *meeting = &g_array_index(meetings, Meeting, i);
        Node child = *node;

        child.first = lower_bound(lists, first, node->end, meeting->list);
        child.end = lower_bound(lists, child.first, node->end, meeting->list + 1);
        first = child.end;
        if (child.first == child.end)
            continue;
        child.common.dims[dim] = meeting->common;
        g_array_append_val(children, child);
    }
}

/* Pieces [first, end) of a agree in dims 0 .. dim - 1; self->nodes[dim] are their partners. */
static void overlaps_walk(Overlaps *self, guint dim, guint first, guint end) {
    const GArray *nodes = self->nodes[dim];

    if (dim == self->n_dims) {
        for (guint i = 0; i < nodes->len; i++) {
            const Node *node = &g_array_index(nodes, Node, i);

            self->func(first, node->first, &node->common, self->user_data);
        }
        return;
    }
    while (first < end && nodes->len > 0) {
        guint list = self->cuts[dim].a_list[first];
        guint next = lower_bound(self->cuts[dim].a_list, first, end, list + 1);

        g_array_set_size(self->nodes[dim + 1], 0);
        for (guint i = 0; i < nodes->len; i++) {
            refine(self->nodes[dim + 1], &g_array_index(nodes, Node, i), dim,
                   self->cuts[dim].b_list, self->meetings[dim][list]);
        }
        overlaps_walk(self, dim + 1, first, next);
        first = next;
    }
}

void refit_holding_overlaps(const RefitHolding *a, const RefitHolding *b, RefitOverlapFunc func,
                            gpointer user_data) {
    Overlaps self = {.a = a, .func = func, .user_data = user_data};
    Node root = {.first = 0, .end = b->n_pieces};

    if (a->n_pieces == 0 || b->n_pieces == 0)
        return;
    self.n_dims = a->pieces[0].region.n_dims;
    g_assert(b->pieces[0].region.n_dims == self.n_dims);
    root.common.n_dims = self.n_dims;
    for (guint d = 0; d <= self.n_dims; d++)
        self.nodes[d] = g_array_new(FALSE, FALSE, sizeof(Node));
    for (guint d = 0; d < self.n_dims; d++)
        overlaps_init_dim(&self, d, b);
    g_array_append_val(self.nodes[0], root);
    overlaps_walk(&self, 0, 0, a->n_pieces);
    for (guint d = 0; d < self.n_dims; d++)
        overlaps_clear_dim(&self, d);
    for (guint d = 0; d <= self.n_dims; d++)
        g_array_unref(self.nodes[d]);
}
