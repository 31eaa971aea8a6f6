#pragma once

/*
 * Geometry: which elements of a tensor a rank holds.
 *
 * A shard is a product over the tensor's dims of interval lists, not a box: strided, interleaved
 * and fused parameters are lists with several intervals and need no special path. Each interval
 * knows its place in the local buffer of its holder. Everything here is immutable once built.
 *
 *   tensor [8, 6], rank holds rows 0-1 and 4-5, columns 3-5
 *   dims[0] = {[0,2) at 0, [4,6) at 2}    extent 4
 *   dims[1] = {[3,6) at 0}                extent 3        volume 12 elements
 *
 * Sizes are element counts in 64 bits. Ranks are global: rank r is GPU r of the topology.
 */

#include "model/base/refit-checked.h"

G_BEGIN_DECLS

#define REFIT_MAX_DIMS 8
#define REFIT_MAX_AXES 8

/* Indices [lo, hi) of one tensor dim, stored from local index `at` on. */
typedef struct {
    guint64 lo, hi, at;
} RefitInterval;

/*
 * Disjoint non-empty intervals sorted by `lo`; adjacent ones that are also adjacent locally are
 * merged, so equal sets have equal lists. Reference counted, never modified.
 */
typedef struct {
    guint64 extent; /* elements covered: sum of hi - lo */
    guint n;
    RefitInterval items[];
} RefitIntervalList;

/* Takes intervals in any order; REFIT_ERROR_INVALID when two overlap or one is reversed,
 * REFIT_ERROR_OVERFLOW when a local place does not fit in 64 bits. Empty intervals are dropped. */
RefitIntervalList *refit_interval_list_new(const RefitInterval *items, guint n, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/* [lo, hi) stored at 0; empty when lo == hi. */
RefitIntervalList *refit_interval_list_range(guint64 lo, guint64 hi);
RefitIntervalList *refit_interval_list_ref(RefitIntervalList *list);
void refit_interval_list_unref(RefitIntervalList *list);
/* Same indices; `at` is compared only by the second. */
gboolean refit_interval_list_same_indices(const RefitIntervalList *a, const RefitIntervalList *b);
gboolean refit_interval_list_equal(const RefitIntervalList *a, const RefitIntervalList *b);
/* Order of indices, for sorting: first differing `lo`, then `hi`, then length. */
int refit_interval_list_compare(const RefitIntervalList *a, const RefitIntervalList *b);
/* TRUE when local places count 0, 1, ... in index order, as results of operations have them. */
gboolean refit_interval_list_is_packed(const RefitIntervalList *list);
/* Length of the local buffer: the end of its last place in use, so gaps before it count. */
guint64 refit_interval_list_local_extent(const RefitIntervalList *list);
/* Indices of both, `at` renumbered 0, 1, ... in index order. Linear in a->n + b->n. */
RefitIntervalList *refit_interval_list_intersect(const RefitIntervalList *a,
                                                 const RefitIntervalList *b);
/*
 * Elements of `list` at the local places that `places` covers, each stored where `places` stores
 * that place: what a cut of a local buffer leaves of the tensor. Places beyond the list are
 * ignored. Cost: a sort of each by local place.
 */
RefitIntervalList *refit_interval_list_select(const RefitIntervalList *list,
                                              const RefitIntervalList *places);
/* Number of indices of both, without building the list. Linear in a->n + b->n. */
guint64 refit_interval_list_common(const RefitIntervalList *a, const RefitIntervalList *b);
/*
 * Positions [from, to) of the list counted in index order (position 3 is the fourth index covered),
 * `at` renumbered from 0. Requires from <= to <= extent.
 */
RefitIntervalList *refit_interval_list_slice(const RefitIntervalList *list, guint64 from,
                                             guint64 to);
/*
 * Part `index` of `count` near-equal slices: sizes differ by at most one, larger first. Where the
 * list has at least `count` times `grain` indices, they begin at multiples of `grain` of them, and
 * sizes differ by at most one grain and what the last one is short of.
 */
RefitIntervalList *refit_interval_list_part(const RefitIntervalList *list, guint count,
                                            guint64 grain, guint index);
/*
 * Walks maximal runs of neighbouring indices, whatever their local places: starts with *position 0,
 * gives one run [lo, hi) a call and FALSE at the end.
 */
gboolean refit_interval_list_next_run(const RefitIntervalList *list, guint *position,
                                      guint64 *lo_out, guint64 *hi_out);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitIntervalList, refit_interval_list_unref)

/* Product of interval lists; a 0-d region (n_dims 0) is one element. Value type that owns refs. */
typedef struct {
    guint n_dims;
    RefitIntervalList *dims[REFIT_MAX_DIMS];
} RefitRegion;

/* The whole tensor of `shape`. */
RefitRegion refit_region_full(guint n_dims, const guint64 *shape);
RefitRegion refit_region_copy(const RefitRegion *region);
void refit_region_clear(RefitRegion *region);
/* Elements. Regions lie inside tensors whose size was checked, so this cannot overflow. */
guint64 refit_region_volume(const RefitRegion *region);
/*
 * Contiguous runs of `region` inside the local buffer of a rank that holds `local`, which contains
 * it. Merging across rows is not counted: a run that ends one row and one that begins the next are
 * two.
 */
guint64 refit_local_runs(const RefitRegion *region, const RefitRegion *local);
gboolean refit_region_is_empty(const RefitRegion *region);
/* Equality and order of the index sets; local places are ignored. */
gboolean refit_region_equal(const RefitRegion *a, const RefitRegion *b);
int refit_region_compare(const RefitRegion *a, const RefitRegion *b);
guint refit_region_hash(const RefitRegion *region);
RefitRegion refit_region_intersect(const RefitRegion *a, const RefitRegion *b);
/* Elements of both, without building the region. */
guint64 refit_region_common(const RefitRegion *a, const RefitRegion *b);
gboolean refit_region_contains(const RefitRegion *outer, const RefitRegion *inner);
/*
 * Stripe `index` of `count` near-equal stripes (sizes differ by at most one index of the cut dim).
 * The cut dim is the first whose extent is >= count, else the one with the largest extent; stripes
 * beyond its extent are empty. All stripes together are the region, disjointly. A 0-d region cannot
 * be cut: stripe 0 is the region and the others are empty 1-d regions. Where the innermost dim is
 * cut, it is in multiples of `grain` indices if there are enough; 1: anywhere.
 */
RefitRegion refit_region_stripe(const RefitRegion *region, guint count, guint64 grain, guint index);
/* Contiguous runs when its elements are visited in row-major order of a dense tensor of `shape`. */
guint64 refit_region_runs(const RefitRegion *region, const guint64 *shape);
/*
 * Elements in the union of n regions of the same number of dims.
 * Method: sweep over the cuts of the first dim; where several regions meet, sweep the next dim for
 * just those. Cost: sorting the cuts, plus the regions that meet at each.
 */
guint64 refit_union_volume(const RefitRegion *const *regions, guint n);
/* "[0:2+4:6, 3:6]"; "[]" for 0-d; an empty dim is "0:0". Caller frees. */
char *refit_region_to_string(const RefitRegion *region);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(RefitRegion, refit_region_clear)

/* N-d array of ranks, row-major (last axis fastest), any ranks without repetition. */
typedef struct {
    guint n_axes;
    guint sizes[REFIT_MAX_AXES];
    guint n_ranks;
    guint *ranks;
} RefitMesh;

/* REFIT_ERROR_MESH_SIZE when sizes and number of ranks disagree, REFIT_ERROR_RANK_DUP when a rank
 * repeats, REFIT_ERROR_INVALID when an axis is 0 or there are too many. */
RefitMesh *refit_mesh_new(guint n_axes, const guint *sizes, const guint *ranks, guint n_ranks,
                          GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_mesh_free(RefitMesh *mesh);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitMesh, refit_mesh_free)

/* Sorts ascending; constant extra memory and one pass when already sorted. */
void refit_ranks_sort(guint *ranks, guint n);
/* Drops repeats from sorted ranks; returns how many remain. */
guint refit_ranks_drop_repeats(guint *ranks, guint n);

/* Keys of hash tables. */
typedef struct {
    guint n;
    const guint *members; /* ascending; at least one */
} RefitRankSet;
guint refit_rank_set_hash(gconstpointer set);
gboolean refit_rank_set_equal(gconstpointer a, gconstpointer b);

typedef enum { REFIT_PLACEMENT_REPLICATE, REFIT_PLACEMENT_SHARD } RefitPlacementKind;

typedef enum {
    REFIT_SPLIT_CHUNK,    /* torch.chunk: ceil(n/parts) each, short and empty tails */
    REFIT_SPLIT_BALANCED, /* sizes differ by at most one, larger first */
    REFIT_SPLIT_SIZES,    /* stated sizes, summing to the extent that is split */
    REFIT_SPLIT_STRIDED,  /* first `chunks` chunks, then a chunk of each: one run per chunk */
    REFIT_SPLIT_LISTS,    /* stated places per part: any order, shared between parts or left out */
} RefitSplit;

/*
 * What one mesh axis does. When several axes shard the same dim, `order` says which cuts first
 * (ascending, all different): DTensor's left-to-right rule is order = axis number, FSDP over TP is
 * the reverse. For a dim cut once, `order` is ignored.
 */
typedef struct {
    RefitPlacementKind kind;
    guint dim;
    RefitSplit split;
    guint order;
    guint n_sizes;        /* with REFIT_SPLIT_SIZES: the axis size */
    const guint64 *sizes; /* with REFIT_SPLIT_SIZES: elements per part; copied by the sharding */
    guint chunks;         /* with REFIT_SPLIT_STRIDED: at least 1 */
    guint n_lists;        /* with REFIT_SPLIT_LISTS: the axis size */
    /* With REFIT_SPLIT_LISTS: per part the local places it takes; referenced by the sharding. */
    RefitIntervalList *const *lists;
} RefitPlacement;

/*
 * Stated lists for the cuts that fused and packed parameters need. All return `parts` lists, owned
 * by the caller (refit_lists_free).
 *
 * A packed projection is several segments side by side, each cut on its own: part j takes chunk
 * j * ways / parts of each segment's `ways` chunks, so that ways == parts cuts evenly, 1 replicates
 * and anything between (KV heads or groups fewer than ranks) does both. Requires ways <= parts.
 */
typedef struct {
    guint64 extent;
    guint ways;
} RefitSegment;
RefitIntervalList **refit_lists_of_segments(const RefitSegment *segments, guint n_segments,
                                            guint parts);
/*
 * A fused parameter is rows of several members in turn; the whole is cut into `parts` chunks, and
 * list j is what chunk j holds of `member`, by the member's own row numbers. Rows of no tensor
 * (padding) have a member number of their own. REFIT_ERROR_OVERFLOW for a sum beyond 64 bits.
 */
typedef struct {
    guint member;
    guint64 lo, hi; /* rows of that member */
} RefitFusedRows;
RefitIntervalList **refit_lists_of_member(const RefitFusedRows *rows, guint n_rows, guint member,
                                          guint parts, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_lists_free(RefitIntervalList **lists, guint parts);

/*
 * How one side holds a kind of tensor: one or more parts, each a mesh with a placement per axis.
 * Several parts hold independent copies (tied embeddings on two stages).
 */
typedef struct _RefitSharding RefitSharding;

/* An empty sharding; add at least one part. */
RefitSharding *refit_sharding_new(void);
/*
 * Takes ownership of `mesh`, also on error. `placements` has mesh->n_axes entries.
 * REFIT_ERROR_INVALID when a dim >= REFIT_MAX_DIMS is named or the same dim is cut twice with equal
 * `order`, REFIT_ERROR_PARTITION_COUNT when sizes or lists do not match the axis.
 */
gboolean refit_sharding_add(RefitSharding *sharding, RefitMesh *mesh,
                            const RefitPlacement *placements, GError **error)
    G_GNUC_WARN_UNUSED_RESULT;
/*
 * Adds one rank that holds exactly `region`, which is copied with its local places: for layouts
 * that no mesh describes (expert maps, scales of irregular blocks).
 */
gboolean refit_sharding_add_region(RefitSharding *sharding, guint rank, const RefitRegion *region,
                                   GError **error) G_GNUC_WARN_UNUSED_RESULT;
/*
 * Says that all cuts of `dim` act on `extent` indices, of which the tensor has only the first
 * (padded vocabularies); an extent equal to the tensor's changes nothing but is part of equality,
 * so leave it out then. 0 removes it. Applies to every part.
 */
void refit_sharding_set_padded(RefitSharding *sharding, guint dim, guint64 extent);
guint64 refit_sharding_padded(const RefitSharding *sharding, guint dim); /* 0: not padded */
void refit_sharding_free(RefitSharding *sharding);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitSharding, refit_sharding_free)
guint refit_sharding_n_parts(const RefitSharding *sharding);
const RefitMesh *refit_sharding_mesh(const RefitSharding *sharding, guint part);
/* In normal form: fields without meaning are 0, the orders of a dim count 0, 1, ... */
const RefitPlacement *refit_sharding_placements(const RefitSharding *sharding, guint part);
/* Same meshes and placements in the same order (used to share equal shardings). */
gboolean refit_sharding_equal(const RefitSharding *a, const RefitSharding *b);
guint refit_sharding_hash(const RefitSharding *sharding);
/* "mesh [2, 4] ranks 0-7: replicate, shard(0)"; ranks in mesh order; parts joined by "; ". Caller
 * frees. */
char *refit_sharding_to_string(const RefitSharding *sharding);

/*
 * What one rank holds by one part of a sharding: the region with its local places, and the shape of
 * its local buffer, which is larger than the region where the tensor is padded. `n_dims` and
 * `shape` are the tensor's. FALSE without an error when the part does not name the rank; errors as
 * refit_holding_new(). The region may be empty. Cost: axes times intervals.
 */
gboolean refit_sharding_local(const RefitSharding *sharding, guint part, guint rank, guint n_dims,
                              const guint64 *shape, RefitRegion *region_out,
                              guint64 *buffer_shape_out, GError **error) G_GNUC_WARN_UNUSED_RESULT;

/* One distinct region and all ranks that hold it, ascending. */
typedef struct {
    RefitRegion region;
    guint n_ranks;
    guint *ranks;
} RefitPiece;

/*
 * What the ranks of one side hold of a tensor shape: distinct non-empty regions in the order of
 * refit_region_compare. Ranks that hold nothing do not appear. A rank in two parts of a sharding
 * appears in two pieces unless both regions are equal.
 */
typedef struct {
    guint n_pieces;
    RefitPiece *pieces;
} RefitHolding;

/*
 * Applies `sharding` to a tensor. Errors: REFIT_ERROR_DIM_RANGE for a shard dim >= n_dims,
 * REFIT_ERROR_SCALAR_SHARD when the tensor has no dims, REFIT_ERROR_PARTITION_SUM for stated sizes
 * that do not sum to the extent, REFIT_ERROR_INVALID for a padded extent below the tensor's;
 * REFIT_ERROR_OVERFLOW when the volume does not fit in 64 bits. Cost: distinct shards + ranks.
 */
RefitHolding *refit_holding_new(const RefitSharding *sharding, guint n_dims, const guint64 *shape,
                                GError **error) G_GNUC_WARN_UNUSED_RESULT;
/* What several shardings hold together, each with its own padding. */
RefitHolding *refit_holding_new_all(const RefitSharding *const *shardings, guint n, guint n_dims,
                                    const guint64 *shape, GError **error) G_GNUC_WARN_UNUSED_RESULT;
void refit_holding_free(RefitHolding *holding);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitHolding, refit_holding_free)

/*
 * Calls `func` once for each pair of pieces of `a` and `b` with a common element, in the order of
 * (piece of a, piece of b). Method: per dim, the distinct interval lists of both sides are swept in
 * order of their cuts; only pairs that meet are refined in the next dim. Cost: sort plus output.
 */
typedef void (*RefitOverlapFunc)(guint piece_a, guint piece_b, const RefitRegion *common,
                                 gpointer user_data);
void refit_holding_overlaps(const RefitHolding *a, const RefitHolding *b, RefitOverlapFunc func,
                            gpointer user_data);

/*
 * The tensor cut into the coarsest regions ("cells") in which every element has the same holders
 * and the same needers. Cells with no needer are left out. Cell borders are products of per-dim
 * cuts: along each dim, indices that no list of either side tells apart form one interval list.
 */
typedef struct {
    RefitRegion region;
    guint64 volume; /* elements */
    guint n_holders, n_needers;
    const guint *holders; /* ascending; owned by the RefitCells; NULL when there are none */
    const guint *needers; /* equal sets of one RefitCells are one pointer, also across the two */
} RefitCell;

typedef struct {
    guint n_cells;
    RefitCell *cells;     /* in the order of refit_region_compare */
    GPtrArray *rank_sets; /* owns the sets; not for callers */
} RefitCells;

/*
 * `source` and `destination` hold the same tensor. A cell that is needed but held by no source rank
 * has n_holders 0: the caller decides (it is the error "uncovered elements").
 */
RefitCells *refit_cells_new(const RefitHolding *source, const RefitHolding *destination);
void refit_cells_free(RefitCells *cells);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RefitCells, refit_cells_free)

G_END_DECLS
