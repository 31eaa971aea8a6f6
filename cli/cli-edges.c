/*
 * Who sends what of one tensor: the transfers of its class added up over pairs of shards, so that
 * hundreds of replicas are one arrow. A transfer starts at the source's shard that its sender holds
 * or, when the sender has received it, at the destination's shard. Cost: transfers of the class
 * times shards.
 */

#include "cli/cli-picture.h"

#include <stdlib.h>
#include <string.h>

static void edge_clear(gpointer item) {
    CliEdge *edge = item;

    g_array_unref(edge->senders);
    g_array_unref(edge->receivers);
}

static int compare_ranks(const void *a, const void *b) {
    guint one = *(const guint *)a, two = *(const guint *)b;

    return one < two ? -1 : one > two;
}

/*
 * The piece of `rank` that has most of `region`; FALSE when the rank has none. With `all` only one
 * that has all of it.
 */
static gboolean find_piece(const RefitHolding *holding, guint rank, const RefitRegion *region,
                           gboolean all, guint *piece_out) {
    guint64 best = 0, wanted = refit_region_volume(region);
    gboolean found = FALSE;

    for (guint p = 0; p < holding->n_pieces; p++) {
        const RefitPiece *piece = &holding->pieces[p];

        if (bsearch(&rank, piece->ranks, piece->n_ranks, sizeof(guint), compare_ranks) == NULL)
            continue;
        guint64 common = refit_region_common(&piece->region, region);
        if ((all && common < wanted) || (found && common <= best))
            continue;
        best = common;
        *piece_out = p;
        found = TRUE;
    }
    return found;
}

static void add_rank(GArray *ranks, guint rank) {
    guint at = ranks->len;

    while (at > 0 && g_array_index(ranks, guint, at - 1) > rank)
        at--;
    if (at == 0 || g_array_index(ranks, guint, at - 1) != rank)
        g_array_insert_val(ranks, at, rank);
}

static CliEdge *take_edge(GArray *edges, const CliEdge *like) {
    for (guint i = 0; i < edges->len; i++) {
        CliEdge *edge = &g_array_index(edges, CliEdge, i);

        if (edge->from == like->from && edge->to == like->to && edge->link == like->link &&
            edge->from_source == like->from_source && edge->to_source == like->to_source)
            return edge;
    }
    g_array_append_vals(edges, like, 1);
    CliEdge *added = &g_array_index(edges, CliEdge, edges->len - 1);
    added->senders = g_array_new(FALSE, FALSE, sizeof(guint));
    added->receivers = g_array_new(FALSE, FALSE, sizeof(guint));
    return added;
}

static int compare_edges(gconstpointer a, gconstpointer b) {
    const CliEdge *one = a, *two = b;

    if (one->link != two->link)
        return one->link > two->link ? -1 : 1;
    if (one->bytes != two->bytes)
        return one->bytes > two->bytes ? -1 : 1;
    if (one->from_source != two->from_source)
        return one->from_source ? -1 : 1;
    if (one->from != two->from)
        return one->from < two->from ? -1 : 1;
    if (one->to_source != two->to_source)
        return one->to_source ? -1 : 1;
    return one->to < two->to ? -1 : one->to > two->to;
}

/*
 * The shard that a transfer leaves from or arrives at: of the source for what is assembled there
 * and for what a holder sends, else of the destination; the place of ranks without a shard when the
 * rank has none on either side.
 */
static void find_end(const RefitClass *class, guint rank, const RefitRegion *region,
                     gboolean sender, gboolean assembly, gboolean *source_out, guint *piece_out) {
    *source_out = TRUE;
    if (sender && find_piece(class->source, rank, region, TRUE, piece_out))
        return;
    if (assembly && find_piece(class->source, rank, region, FALSE, piece_out))
        return;
    *source_out = FALSE;
    if (!assembly && find_piece(class->destination, rank, region, FALSE, piece_out))
        return;
    *source_out = TRUE;
    if (!find_piece(class->source, rank, region, FALSE, piece_out))
        *piece_out = class->source->n_pieces;
}

GArray *cli_edges_new(const RefitPlan *plan, guint class_index) {
    const RefitClass *class = &plan->problem->classes[class_index];
    GArray *edges = g_array_new(FALSE, FALSE, sizeof(CliEdge));

    g_array_set_clear_func(edges, edge_clear);
    for (guint t = 0; t < plan->n_transfers; t++) {
        const RefitTransfer *transfer = &plan->transfers[t];
        const RefitRegion *region = &plan->regions[transfer->region];
        CliEdge like = {.link = (RefitLink)transfer->link};

        if (transfer->class_index != class_index)
            continue;
        find_end(class, transfer->src, region, TRUE, FALSE, &like.from_source, &like.from);
        find_end(class, transfer->dst, region, FALSE, transfer->landing == REFIT_LANDING_ASSEMBLY,
                 &like.to_source, &like.to);
        CliEdge *edge = take_edge(edges, &like);
        edge->bytes += refit_plan_transfer_bytes(plan, transfer);
        edge->transfers++;
        add_rank(edge->senders, transfer->src);
        add_rank(edge->receivers, transfer->dst);
    }
    g_array_sort(edges, compare_edges);
    return edges;
}
