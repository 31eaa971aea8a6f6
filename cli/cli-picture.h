#pragma once

/*
 * A picture of one tensor: cut on both sides, and who sends what to whom, as SVG. Source on the
 * left, destination on the right; a rectangle per shard with the ranks that hold it, an arrow per
 * pair of shards with the bytes that move. The same plan gives the same bytes.
 */

#include "model/plan/refit-plan.h"

G_BEGIN_DECLS

/* What moves of the tensor from the ranks of one shard to those of another over one link class. */
typedef struct {
    gboolean from_source, to_source; /* FALSE: a shard of the destination */
    guint from, to;                  /* pieces; their number for ranks without a shard */
    RefitLink link;
    guint64 bytes, transfers;
    GArray *senders, *receivers; /* of guint, ascending, no repeats */
} CliEdge;

/* Edges of one member of class `class_index`, of CliEdge: by link from the network down, then by
 * bytes, most first, then by pieces. */
GArray *cli_edges_new(const RefitPlan *plan, guint class_index);

/* The SVG document. `tensor` is a member of the class. Caller frees. */
char *cli_picture_to_svg(const RefitPlan *plan, guint class_index, const RefitTensor *tensor);

G_END_DECLS
